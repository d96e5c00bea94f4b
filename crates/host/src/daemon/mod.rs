//! The two daemons: the sendbox, which paces and schedules the traffic of bundles, and the
//! receivebox, which watches it arrive and reports.
//!
//! Both are built the same way: [`config`] says what to do, a worker thread does it and never
//! touches a disk, and the main thread serves the control socket and waits for signals
//! ([`crate::service`]).

mod apart;
#[cfg(feature = "bpf")]
mod attempt;
mod claim;
pub mod conditions;
pub mod config;
#[cfg(feature = "bpf")]
pub mod doctor;
pub mod explain;
#[cfg(feature = "bpf")]
pub mod init;
pub mod keys;
mod messages;
pub mod metrics;
pub mod observer;
mod peer;
#[cfg(feature = "bpf")]
pub mod plan;
pub mod receivebox;
#[cfg(feature = "bpf")]
pub mod record;
pub mod reload;
#[cfg(feature = "bpf")]
pub mod routed;
mod schedule;
mod scope;
#[cfg(feature = "bpf")]
pub mod sendbox;
mod starting;
pub mod status;
pub mod trace;
mod udp;
mod waiting;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use forebay_core::bundle::Overhead;
use forebay_core::spec::SpecError;
use nix::ifaddrs::getifaddrs;

pub use config::{BundleConfig, Config, ConfigError, Role};

use crate::offload::OffloadError;
use crate::overhead;
use crate::port::PortError;

/// Why a daemon did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A key file.
    #[error(transparent)]
    Keys(#[from] keys::KeyFileError),
    /// An algorithm or qdisc of a bundle.
    #[error("bundle {0}: {1}")]
    Spec(String, SpecError),
    /// A device.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A device is not as it must be.
    #[error(transparent)]
    Void(#[from] conditions::Void),
    /// A device could not be asked, or did not obey.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// A BPF program.
    #[error(transparent)]
    Ebpf(#[from] forebay_ebpf::Error),
    /// The trace.
    #[error("{0}")]
    Trace(io::Error),
    /// The start was on trial.
    #[error(
        "the start of the box was not confirmed in time: start it again for one without a trial"
    )]
    Unconfirmed,
    /// Something else at the start.
    #[error("{0}")]
    SetUp(io::Error),
    /// Something after the start.
    #[error("{0}")]
    Failed(io::Error),
}

impl DaemonError {
    /// Whether the operator's input was wrong, or missing, and not the machine.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Config(_) | Self::Keys(_) | Self::Spec(..) | Self::Trace(_) | Self::Unconfirmed
        )
    }
}

/// A number that nobody can guess, for session ids and nonces.
pub(crate) fn unguessable() -> u64 {
    getrandom::u64().expect("the kernel's random numbers are ready once booted")
}

/// What packets of a sendbox gain: what its file says, or what follows from the kind of its port towards the Internet.
fn overhead_of(config: &Config) -> Overhead {
    // A device that is not there is a matter of the conditions.
    let derived = || overhead::of(&config.wan).unwrap_or_default();
    Overhead { bytes: config.overhead.unwrap_or_else(derived) }
}

/// Addresses of this machine.
fn machine_addresses() -> io::Result<BTreeSet<IpAddr>> {
    let interfaces = getifaddrs()?.filter_map(|interface| interface.address);
    let own = interfaces.filter_map(|address| {
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or(address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    });
    Ok(own.collect())
}
