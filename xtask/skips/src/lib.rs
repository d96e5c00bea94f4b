//! A test's needs of its machine, and a record of the tests that were skipped because a need was not
//! met.
//!
//! This crate tests for a missing feature itself, never through the programs under test: an agent
//! that wrongly refuses to start must not look like a machine that cannot carry one.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

/// The environment variable that names the file in which skipped tests are recorded: an absolute
/// path, since tests run in the folders of their packages.
pub const RECORD: &str = "FOREBAY_SKIPS";

/// The modules of ns-3 that the driver of the back end ns3 is linked with.
const NS3_MODULES: [&str; 5] =
    ["ns3-core", "ns3-network", "ns3-internet", "ns3-point-to-point", "ns3-traffic-control"];

/// A feature that a test may need of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Root, to load BPF programs and to make network namespaces.
    Root,
    /// The browser of `packaging/test.txt`.
    Chromium,
    /// The reader of captures of `packaging/test.txt`.
    Tshark,
    /// The checker of units of `packaging/test.txt`.
    SystemdAnalyze,
    /// ns-3 with headers and a compiler, which no program of ours needs.
    Ns3,
    /// Links of struct_ops, with which a congestion control in BPF is registered.
    StructOpsLinks,
    /// Links of programs at tc (tcx).
    Tcx,
    /// Programs after a qdisc that may read bytes in the fragments of a packet buffer.
    QueueSampling,
    /// AF_XDP frames that are longer than a page.
    FramesInPieces,
    /// The qdiscs that a bundle may wait in while its packets stay in the kernel.
    FlowQdiscs,
    /// TUN devices.
    Tun,
    /// Bridges that heed VLANs.
    VlanBridges,
    /// A default for receive packet steering, from Linux 6.3 on.
    Steering,
    /// GRE tunnels.
    Gre,
    /// WireGuard: a device of the kernel or of wireguard-go, and its tool.
    WireGuard,
    /// No account `forebay`, which a box would become.
    NoAccount,
}

impl Need {
    /// Every need.
    pub const ALL: [Self; 16] = [
        Self::Root,
        Self::Chromium,
        Self::Tshark,
        Self::SystemdAnalyze,
        Self::Ns3,
        Self::StructOpsLinks,
        Self::Tcx,
        Self::QueueSampling,
        Self::FramesInPieces,
        Self::FlowQdiscs,
        Self::Tun,
        Self::VlanBridges,
        Self::Steering,
        Self::Gre,
        Self::WireGuard,
        Self::NoAccount,
    ];

    /// Reason for skipping a test that needs it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Root => "no root",
            Self::Chromium => "no chromium (apt-get install chromium)",
            Self::Tshark => "no tshark (apt-get install tshark)",
            Self::SystemdAnalyze => "no systemd-analyze (apt-get install systemd)",
            Self::Ns3 => "no ns-3 (apt-get install libns3-dev g++ pkg-config)",
            Self::StructOpsLinks => "Linux before 6.4, or without struct_ops links",
            Self::Tcx => "Linux before 6.6",
            Self::QueueSampling => "Linux before 6.12",
            Self::FramesInPieces => "Linux before 6.6, for frames longer than a page",
            Self::FlowQdiscs => "a kernel without one of fq_codel, cake, fq and sfq",
            Self::Tun => "no /dev/net/tun",
            Self::VlanBridges => "a kernel without CONFIG_BRIDGE_VLAN_FILTERING",
            Self::Steering => "no net.core.rps_default_mask",
            Self::Gre => "a kernel without GRE tunnels",
            Self::WireGuard => "no WireGuard (apt-get install wireguard-go wireguard-tools)",
            Self::NoAccount => "the account forebay exists",
        }
    }

    /// Whether it may be missing on a machine where root has run `make test-packages`.
    pub fn may_be_missing_for_root(self) -> bool {
        match self {
            Self::Root | Self::Chromium | Self::Tshark | Self::SystemdAnalyze | Self::WireGuard => {
                false
            }
            Self::Ns3
            | Self::StructOpsLinks
            | Self::Tcx
            | Self::QueueSampling
            | Self::FramesInPieces
            | Self::FlowQdiscs
            | Self::Tun
            | Self::VlanBridges
            | Self::Steering
            | Self::Gre
            | Self::NoAccount => true,
        }
    }

    /// Whether this machine has it.
    pub fn is_met(self) -> bool {
        match self {
            Self::Root => nix::unistd::geteuid().is_root(),
            Self::Chromium => Command::new("chromium").arg("--version").output().is_ok(),
            Self::Tshark => Command::new("tshark").arg("--version").output().is_ok(),
            Self::SystemdAnalyze => {
                Command::new("systemd-analyze").arg("--version").output().is_ok()
            }
            Self::Ns3 => {
                let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
                let found = Command::new("pkg-config").arg("--exists").args(NS3_MODULES).status();
                found.is_ok_and(|status| status.success())
                    && Command::new(compiler).arg("--version").output().is_ok()
            }
            Self::StructOpsLinks => {
                let types = fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
                has_struct_ops_links(&release(), &types)
            }
            Self::Tcx | Self::FramesInPieces => version(&release()) >= (6, 6),
            Self::QueueSampling => version(&release()) >= (6, 12),
            Self::FlowQdiscs => {
                let try_each = "for kind in fq_codel cake fq sfq; do \
                                tc qdisc replace dev lo root $kind || exit 1; done";
                is_done_apart(try_each)
            }
            Self::Tun => OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok(),
            Self::VlanBridges => {
                // A kernel without VLAN filtering refuses the second command.
                is_done_apart("ip link add b type bridge && bridge vlan add dev b vid 2 self")
            }
            Self::Steering => Path::new("/proc/sys/net/core/rps_default_mask").exists(),
            Self::Gre => is_done_apart("ip link add g type gre local 10.0.0.1 remote 10.0.0.2"),
            Self::WireGuard => ["wg", "wireguard-go"]
                .iter()
                .all(|tool| Command::new(tool).arg("--version").output().is_ok()),
            Self::NoAccount => matches!(nix::unistd::User::from_name("forebay"), Ok(None)),
        }
    }
}

/// Whether a shell can run these commands in a network namespace of its own.
fn is_done_apart(commands: &str) -> bool {
    let tried = Command::new("unshare").args(["-n", "sh", "-c", commands]).output();
    tried.is_ok_and(|tried| tried.status.success())
}

fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()
}

/// The two numbers that a release begins with.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Whether a kernel of this release, with these types (BTF), has links of struct_ops. A kernel before
/// 6.4 may have them from its distributor, but forebay does not look for them there.
fn has_struct_ops_links(release: &str, types: &[u8]) -> bool {
    let name = b"\0bpf_struct_ops_link\0";
    version(release) >= (6, 4) && types.windows(name.len()).any(|part| part == name)
}

/// Returns true where `need` is not met: the calling test then returns. The skip is printed, and
/// recorded in the file that [`RECORD`] names, if it names one. Call this in the test's own thread,
/// whose name is the test's. Panics where that file cannot be written.
pub fn skip_without(need: Need) -> bool {
    if need.is_met() {
        return false;
    }
    println!("skipped: {}", need.reason());
    if let Some(path) = std::env::var_os(RECORD) {
        let test = format!("{} {}", program(), std::thread::current().name().unwrap_or("?"));
        record(path.as_ref(), need, &test).expect("skipped tests are recorded");
    }
    true
}

/// The name of this test program without the hash that cargo appends.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    name.rsplit_once('-').map_or(name.as_ref(), |(name, _)| name).to_string()
}

/// One write a line, since many test programs append to the file at a time.
fn record(path: &Path, need: Need, test: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(format!("{}\t{test}\n", need.reason()).as_bytes())
}

/// The record's tests that were skipped because `need` was not met, each once and in order.
pub fn skipped_without(need: Need, record: &str) -> Vec<&str> {
    let rows = record.lines().filter_map(|line| line.split_once('\t'));
    let mut tests: Vec<&str> =
        rows.filter(|(reason, _)| *reason == need.reason()).map(|(_, test)| test).collect();
    tests.sort_unstable();
    tests.dedup();
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_each_recorded_skip_once_by_need() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("skips");
        record(&path, Need::Root, "boxes a").unwrap();
        for test in ["ebpf b", "ebpf a", "ebpf b"] {
            record(&path, Need::Tun, test).unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(skipped_without(Need::Tun, &text), ["ebpf a", "ebpf b"]);
        assert_eq!(skipped_without(Need::Root, &text), ["boxes a"]);
        assert!(skipped_without(Need::Chromium, &text).is_empty());
    }

    #[test]
    fn struct_ops_links_need_release_and_types() {
        let types = b"\x01\0bpf_struct_ops\0bpf_struct_ops_link\0int\0";
        assert!(has_struct_ops_links("6.4.0-1-amd64", types));
        assert!(has_struct_ops_links("7.0", types));
        assert!(!has_struct_ops_links("6.1.0-37-amd64", types));
        assert!(!has_struct_ops_links("6.12.1", b"\0bpf_struct_ops\0int\0"));
        assert!(!has_struct_ops_links("6.12.1", b""));
        assert!(!has_struct_ops_links("", types));
    }

    #[test]
    fn test_program_name_omits_hash() {
        assert_eq!(program(), "forebay_skips");
    }
}
