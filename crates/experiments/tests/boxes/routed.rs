//! Sites with a router between them, and boxes with the files of the guide.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use forebay_host::daemon::keys;
use forebay_skips::{Need, skip_without};
use forebay_testbed::topology::{PairSites, Site, Topology};

use crate::by_hand::{ip, start};
use crate::turns::together;
use crate::two_bundles::{await_both, flow};

/// Page with the configuration files of the test.
const GUIDE: &str = include_str!("../../../../docs/operate/two-sites.md");
/// Destination port of the test's flows.
const PORT: u16 = 7000;

#[test]
fn boxes_of_guide_measure_across_router() {
    if skip_without(Need::Root) {
        return;
    }
    let _turn = together();
    let topology = Topology::build(1, None).unwrap();
    let sites = &topology.pairs[0];
    route(&topology);
    let folder = tempfile::tempdir().unwrap();
    let [receivebox, sendbox] = files(folder.path());
    let mut boxes = [
        start(&sites.right_box, "receivebox", &receivebox),
        start(&sites.left_box, "sendbox", &sendbox),
    ];
    let sockets = ["receivebox.sock", "sendbox.sock"].map(|name| folder.path().join(name));
    await_both(&sockets, |both| both.iter().all(|one| one.bundles[0].peer.state == "alive"));
    let target = SocketAddr::from((Site::RightHosts.address(0), PORT));
    let (sender, receiver) = flow(sites, target);
    let [_, sent] = await_both(&sockets, |[_, sent]| {
        let shaping = sent.bundles[0].shaping.as_ref().unwrap();
        shaping.counters.boundaries_matched > 100 && shaping.last_second.delivered_bps > 0
    });
    assert_eq!(sent.bundles[0].differences.as_deref(), Some(&[][..]));
    assert_eq!(receiver.join().unwrap(), sender.join().unwrap());
    for one in &mut boxes {
        one.kill().unwrap();
        one.wait().unwrap();
    }
}

/// Sets up the networks and routes of the guide: in the middle a router instead of the emulator.
pub fn route(topology: &Topology) {
    let emulator = &topology.emulator;
    ip(emulator, "address add 10.1.1.254/24 dev left0\naddress add 10.1.2.254/24 dev right0\n");
    emulator.within(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap();
    let PairSites { left_hosts, left_box, right_box, right_hosts } = &topology.pairs[0];
    for (namespace, device, network, host) in [
        (left_hosts, "eth0", 1, 1),
        (left_box, "br0", 1, 2),
        (right_box, "br0", 2, 2),
        (right_hosts, "eth0", 2, 1),
    ] {
        ip(
            namespace,
            &format!(
                "address flush dev {device}\naddress add 10.1.{network}.{host}/24 dev {device}\n\
                 route add default via 10.1.{network}.254\n"
            ),
        );
    }
}

/// The guide's files for the receivebox and the sendbox.
pub fn files(folder: &Path) -> [PathBuf; 2] {
    keys::generate(&folder.join("bundle.key")).unwrap();
    let files = GUIDE.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let files: Vec<&str> = files.collect();
    let [sendbox, receivebox] = files[..] else { panic!("{files:?}") };
    [write(folder, "receivebox", receivebox), write(folder, "sendbox", sendbox)]
}

/// A file of the guide for the testbed's devices, with the control socket in the same folder.
fn write(folder: &Path, role: &str, text: &str) -> PathBuf {
    let text = text.replace("lan0", "lan").replace("wan0", "wan");
    let text = text.replace("[box]\n", &format!("[box]\ncontrol = \"{role}.sock\"\n"));
    let file = folder.join(format!("{role}.toml"));
    fs::write(&file, text).unwrap();
    file
}
