//! Why a BPF program could not be loaded, attached or configured.

use std::io;
use std::path::PathBuf;

use ipnet::IpNet;

#[cfg(feature = "programs")]
use crate::program::{may_load, verdict};

/// Why a BPF program could not be loaded, attached or configured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process may not load or attach BPF programs.
    #[error("BPF programs need root, or CAP_BPF and CAP_NET_ADMIN, and unrestricted bpf(2)")]
    Privilege,
    /// The kernel does not know something that the program uses.
    #[error(
        "this kernel cannot run the BPF program {program} (needs Linux {} or later): {reason}",
        oldest(program)
    )]
    Kernel {
        /// Program name.
        program: &'static str,
        /// Messages of libbpf and the verifier.
        reason: String,
    },
    /// There is no such network device in this network namespace.
    #[error("no network device with index {ifindex} in this network namespace")]
    NoDevice {
        /// Interface index.
        ifindex: u32,
    },
    /// Another owner's XDP program is attached, which is never replaced.
    #[error(
        "{device} already runs the XDP program with id {program_id}, which is not from forebay: \
         stop its owner or detach it with `ip link set dev {device} xdp off`"
    )]
    Foreign {
        /// Device name.
        device: String,
        /// Kernel id of the attached program, as `bpftool prog` shows it.
        program_id: u32,
    },
    /// The device takes no such program; an XDP program neither in its driver nor generically.
    #[error("{device} refuses {program}: {source}")]
    Attach {
        /// Device name.
        device: String,
        /// The kind of program.
        program: &'static str,
        /// The kernel's error, for an XDP program in generic mode.
        source: io::Error,
    },
    /// A congestion control cannot have this name.
    #[error(
        "congestion control {name:?}: a name has 1 to {max} letters, digits, underscores or dashes"
    )]
    CongestionControlName {
        /// The name.
        name: String,
        /// Longest name in bytes.
        max: usize,
    },
    /// A congestion control of this name is registered.
    #[error(
        "a congestion control named {name} is already registered: stop its owner or choose \
         another name"
    )]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The kernel refuses to register a congestion control.
    #[error(
        "the kernel refuses to register the congestion control {name} (needs Linux 6.4 or later): \
         {reason}"
    )]
    Register {
        /// The name.
        name: String,
        /// The kernel's message.
        reason: String,
    },
    /// Something could not be pinned.
    #[error("{path}: {source}; pins need a BPF file system (mount -t bpf bpf /sys/fs/bpf)")]
    Pin {
        /// File or directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Another process has registered with the same pins.
    #[error("another process uses the pins in {path}: stop it first, or pin elsewhere")]
    PinsInUse {
        /// Directory of the pins.
        path: PathBuf,
    },
    /// Other users could put something between the pins.
    #[error("{path}: another user owns or can change this folder: its pins cannot be trusted")]
    PinsExposed {
        /// Directory of the pins.
        path: PathBuf,
    },
    /// Pins that this program cannot read.
    #[error(
        "the pins in {path} are incomplete or from another version: `rm -r {path}` discards them, \
         and open connections continue with the kernel's algorithm"
    )]
    PinnedLayout {
        /// Directory of the pins.
        path: PathBuf,
    },
    /// No directory was given to pin anything in.
    #[error("cannot pin a datapath without a directory for pins")]
    NoPins,
    /// A map operation failed.
    #[error("BPF map {map}: {source}")]
    Map {
        /// Map name.
        map: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// There are more entries than there is room for.
    #[error("BPF map {map}: {count} entries: allowed are {max}")]
    Full {
        /// Map name.
        map: &'static str,
        /// Number of the entries.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// The sampler's table of bundles is full.
    #[error("more than {max} bundles on one device")]
    TooManyBundles {
        /// How many there may be.
        max: usize,
    },
    /// A packet could belong to either of two bundles.
    #[error(
        "bundles {first} and {second} both list the destination {destination}, and their sources \
         overlap: a packet could belong to either"
    )]
    Overlap {
        /// The bundle that is watched already.
        first: u16,
        /// The bundle that was refused.
        second: u16,
        /// The destination prefix that both list.
        destination: IpNet,
    },
    /// Too many destination prefixes lie inside each other.
    #[error("more than {max} destination prefixes of bundles contain each other")]
    Nesting {
        /// How many there may be.
        max: usize,
    },
    /// An IPv6 prefix inside ::ffff:0:0/96, which no packet on a wire may carry.
    #[error("{0} is an IPv4-mapped prefix: write it as IPv4")]
    MappedPrefix(IpNet),
}

#[cfg(feature = "programs")]
impl Error {
    /// An error of the operation on `map` that libbpf reported.
    pub(crate) fn map(map: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Self {
        move |error| Self::Map { map, source: io::Error::other(error) }
    }

    /// An error while opening or loading `program`. The kernel mostly answers "Permission denied" for
    /// a program that its verifier refuses, too.
    pub(crate) fn load(program: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Self {
        move |error| {
            let verdict = verdict();
            let is_denied = error.kind() == libbpf_rs::ErrorKind::PermissionDenied;
            if is_denied && verdict.is_none() && !may_load() {
                return Self::Privilege;
            }
            let verdict = verdict.map_or_else(String::new, |verdict| format!(": {verdict}"));
            Self::Kernel { program, reason: format!("{error}{verdict}") }
        }
    }
}

/// The oldest kernel that can run a program.
fn oldest(program: &str) -> &'static str {
    match program {
        "classes" => "6.12",
        "merged" => "6.6",
        // Linux 6.10 passes four arguments to cong_control.
        "tcp_paced" => "6.10",
        _ if program.starts_with("tcp_") => "6.4",
        _ => "5.15",
    }
}
