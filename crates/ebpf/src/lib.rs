//! The BPF programs of forebay and their loaders, behind a safe API.
//!
//! The programs are in `bpf/` and are compiled into the binary. They are attached through BPF
//! links: when the process that holds a loader ends, for whatever reason, the kernel detaches its
//! program and frees its maps. A program that somebody else attached is never replaced.
//!
//! [`tcp`] registers congestion controls, which needs Linux 6.4.
//!
//! Needs Linux 5.15, and `CAP_BPF` plus `CAP_NET_ADMIN` (which root has) to load and attach. What
//! goes through memory ([`Capture::beat`], [`Sampler::set_epoch_size`], [`Sampler::consume`]) needs
//! neither later on; the other methods do before Linux 5.19, unless
//! `kernel.unprivileged_bpf_disabled` is 0.

mod attach;
mod capture;
mod classes;
mod error;
mod key;
mod mapped;
mod membership;
mod program;
mod sampler;
mod skel;
pub mod tcp;

pub use attach::{XdpMode, has_tcx, tcx_programs};
pub use capture::{
    Capture, CaptureCounters, CaptureOptions, MAX_OWN_ADDRESSES, NO_VLAN, STAMP_LEN,
};
pub use classes::{
    CLASSIFY, Classes, ClassesOptions, ClassifiedCounters, DepartedCounters, Ledger, QDISC,
    Standing, Wait,
};
pub use error::Error;
pub use key::MessageEnd;
pub use membership::{MAX_BUNDLES, MAX_PAIRS, MAX_PREFIXES};
pub use sampler::{Boundary, BundleCounters, MAX_LEFT_OUT, Sampler, SamplerBundle, SamplerPlace};
