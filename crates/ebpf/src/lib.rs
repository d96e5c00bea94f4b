//! The BPF programs of forebay and their loaders, behind a safe API.
//!
//! The programs are in `bpf/`, and the build compiles them into the binary. The loaders attach them through BPF
//! links: when the process of a loader ends for any reason, the kernel detaches its program and frees its maps.
//! A program of another owner is never replaced.
//!
//! [`tcp`] registers congestion controls, which needs Linux 6.4.
//!
//! Needs Linux 5.15, and `CAP_BPF` plus `CAP_NET_ADMIN` (which root has) to load and attach. Operations
//! through memory ([`Capture::beat`], [`Sampler::set_epoch_size`], [`Sampler::consume`]) need neither later
//! on. The other methods do before Linux 5.19, unless `kernel.unprivileged_bpf_disabled` is 0.
//!
//! Without the feature `programs` the crate has the limits, errors and types alone, for a box that has no
//! programs, and needs neither clang nor libelf.

#[cfg(feature = "programs")]
mod attach;
#[cfg(feature = "programs")]
mod capture;
#[cfg(feature = "programs")]
mod classes;
mod error;
#[cfg(feature = "programs")]
mod key;
#[cfg(feature = "programs")]
mod mapped;
mod membership;
#[cfg(feature = "programs")]
mod program;
#[cfg(feature = "programs")]
mod sampler;
#[cfg(feature = "programs")]
mod skel;
mod standing;
#[cfg(feature = "programs")]
pub mod tcp;
mod watched;

#[cfg(feature = "programs")]
pub use attach::{XdpMode, has_tcx, tcx_programs};
#[cfg(feature = "programs")]
pub use capture::{Capture, CaptureCounters, CaptureOptions, NO_VLAN, STAMP_LEN};
#[cfg(feature = "programs")]
pub use classes::{
    Classes, ClassesOptions, ClassifiedCounters, DepartedCounters, Ledger, Standing, Wait,
};
pub use error::Error;
pub use membership::{MAX_BUNDLES, MAX_OWN_ADDRESSES, MAX_PAIRS, MAX_PREFIXES, Membership};
#[cfg(feature = "programs")]
pub use sampler::{Sampler, SamplerPlace};
pub use standing::{CLASSIFY, QDISC};
pub use watched::{Boundary, BundleCounters, MAX_LEFT_OUT, MessageEnd, SamplerBundle};
