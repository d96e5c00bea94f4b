//! A WireGuard gateway at both sites: the boxes are at the tunnel, which has no Ethernet header.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;
use tempfile::TempDir;

use crate::alone;
use crate::course;
use crate::machine::output;
use crate::tunnel::{self, BEHIND, inner};
use crate::vpc::{Vpc, gateway_at};

/// Port of WireGuard, its default.
const PORT: u16 = 51820;
/// MTU that `wg-quick` would choose for a path of 1500 bytes.
const MTU: u32 = 1420;

/// The tunnel `wg0` from gateway to gateway, which ends with this.
struct Tunnel {
    /// WireGuard in user space, where the kernel has none.
    programs: Vec<Child>,
    _keys: TempDir,
}

impl Tunnel {
    fn lay(vpc: &Vpc) -> Self {
        let keys = tempfile::tempdir().unwrap();
        let public = [0, 1].map(|site| make_key(&keys.path().join(site.to_string())));
        let mut programs = Vec::new();
        for (own, other) in [(0, 1), (1, 0)] {
            let gateway = &vpc.sites[own].gateway;
            let settings = format!(
                "wg set wg0 private-key {}/{own} listen-port {PORT} peer {} endpoint {}:{PORT} allowed-ips {},{}/32",
                keys.path().display(),
                public[other],
                gateway_at(other),
                BEHIND[other],
                inner(other),
            );
            programs.extend(make_device(gateway, &settings));
        }
        tunnel::join(vpc, "wg0", MTU);
        Self { programs, _keys: keys }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

/// Writes a private key; answers the public one.
fn make_key(file: &Path) -> String {
    let line = "umask 077; wg genkey | tee \"$0\" | wg pubkey";
    let output = Command::new("sh").args(["-c", line]).arg(file).output().unwrap();
    assert!(output.status.success() && fs::metadata(file).unwrap().len() > 0, "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}

/// Makes `wg0` with these settings: the kernel's, or one of wireguard-go.
fn make_device(gateway: &Namespace, settings: &str) -> Option<Child> {
    let mut kernel = Command::new("ip");
    kernel.args(["link", "add", "wg0", "type", "wireguard"]);
    gateway.host(&mut kernel).unwrap();
    if kernel.output().unwrap().status.success() {
        output(gateway, settings);
        return None;
    }
    // Its socket has the same path at both gateways, so each has mounts of its own.
    let script = format!(
        "mount -t tmpfs none /run; mkdir /run/wireguard\n\
         (until {settings} 2>/dev/null; do sleep 0.1; done; touch /run/is-set) &\n\
         exec env LOG_LEVEL=error WG_PROCESS_FOREGROUND=1 wireguard-go -f wg0"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    gateway.host(&mut command).unwrap();
    let program = command.spawn().unwrap();
    let is_set = format!("/proc/{}/root/run/is-set", program.id());
    let deadline = Instant::now() + Duration::from_secs(20);
    while !Path::new(&is_set).exists() {
        assert!(Instant::now() < deadline, "wireguard-go takes no settings");
        std::thread::sleep(Duration::from_millis(50));
    }
    Some(program)
}

#[test]
#[ignore = "a minute of real traffic: make test-gateway"]
fn long_course_of_wireguard_gateways() {
    if skip_without(Need::WireGuard) {
        return;
    }
    let _alone = alone();
    let vpc = Vpc::build([true; 2]);
    let _tunnel = Tunnel::lay(&vpc);
    let ends = tunnel::ends(&vpc, "wg0");
    course::long("WireGuard gateways", &ends).judge(&vpc.link.finish());
}
