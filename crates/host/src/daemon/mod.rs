//! The two daemons: the sendbox, which paces and schedules the traffic of bundles, and the
//! receivebox, which watches it arrive and reports.
//!
//! Both are built the same way. [`config`] holds the settings. A worker thread carries them out and never
//! touches a disk. The main thread serves the control socket and waits for signals ([`crate::service`]).

mod apart;
#[cfg(feature = "bpf")]
mod attempt;
mod claim;
pub mod conditions;
pub mod config;
#[cfg(feature = "bpf")]
pub mod doctor;
pub mod explain;
pub mod helpers;
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

pub use config::{BundleConfig, Config, ConfigError, ConfigProblem, Role};

use crate::offload::OffloadError;
use crate::overhead;
use crate::port::PortError;

/// Reason why a daemon did not start, or ended.
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
    /// A device fails a condition.
    #[error(transparent)]
    FailedCondition(#[from] conditions::FailedCondition),
    /// A device could not be queried, or refused a setting.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// A BPF program.
    #[error(transparent)]
    Ebpf(#[from] forebay_ebpf::Error),
    /// The trace.
    #[error("{0}")]
    Trace(io::Error),
    /// The start was on trial and was not confirmed.
    #[error(
        "the start of the box was not confirmed in time; start it again to run without a trial"
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
    /// Whether the operator's input, and not the machine, caused the error (exit code 2, after which a unit does
    /// not start the box again). An unconfirmed start counts as a refused configuration.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Config(_) | Self::Keys(_) | Self::Spec(..) | Self::Trace(_) | Self::Unconfirmed
        )
    }
}

/// An unpredictable number, for session ids and nonces.
pub(crate) fn unguessable() -> u64 {
    getrandom::u64().expect("the kernel's random numbers are ready once booted")
}

/// Bytes that packets of a sendbox gain: from the file, or derived from the kind of its port towards the
/// Internet.
fn overhead_of(config: &Config) -> Overhead {
    // The conditions report a missing device.
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
