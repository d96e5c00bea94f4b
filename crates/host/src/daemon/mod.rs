//! The two daemons: the sendbox, which paces and schedules the traffic of bundles, and the
//! receivebox, which watches it arrive and reports.
//!
//! Both are built the same way: [`config`] says what to do, a worker thread does it and never
//! touches a disk, and the main thread serves the [`control`] socket and waits for signals
//! ([`supervisor`]).

pub mod config;
pub mod control;
pub mod doctor;
pub mod keys;
pub mod lateness;
mod messages;
mod peer;
pub mod privileges;
pub mod receivebox;
mod schedule;
pub mod sendbox;
pub mod status;
pub mod supervisor;
pub mod trace;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use forebay_core::spec::SpecError;
use nix::ifaddrs::getifaddrs;

pub use config::{BundleConfig, Config, ConfigError, Role};

use crate::bridge::BridgeError;
use crate::egress::EgressError;
use crate::ethernet::EthernetError;
use crate::offload::OffloadError;
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
    /// A device carries no Ethernet frames.
    #[error(transparent)]
    Ethernet(#[from] EthernetError),
    /// A device does to frames what a box cannot bear.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// The ports are not those of one bridge, or it does not forward.
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    /// Somebody shapes where the packets of bundles would pass it by.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// A BPF program.
    #[error(transparent)]
    Ebpf(#[from] forebay_ebpf::Error),
    /// The trace.
    #[error("{0}")]
    Trace(io::Error),
    /// Something else at the start.
    #[error("{0}")]
    SetUp(io::Error),
    /// Something after the start.
    #[error("{0}")]
    Failed(io::Error),
}

impl DaemonError {
    /// Whether the operator's input was wrong, and not the machine.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Keys(_) | Self::Spec(..) | Self::Trace(_))
    }
}

/// A number that nobody can guess, for session ids and nonces.
fn unguessable() -> u64 {
    getrandom::u64().expect("the kernel's random numbers are ready once booted")
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

/// Addresses that a sendbox counts no packets to: this machine's own, whose packets end here, and
/// those that the receiveboxes take messages at and leave out as well.
fn uncounted_by_sendbox(config: &Config) -> io::Result<BTreeSet<IpAddr>> {
    let boxes = config.bundles.iter().map(|bundle| bundle.peer.ip());
    Ok(machine_addresses()?.into_iter().chain(boxes).chain([config.listen.ip()]).collect())
}
