//! A sendbox whose packets stay in the kernel, as super-packets where there are any.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use forebay_host::daemon::status::Status;
use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::{PairSites, Site, Topology};
use nix::sys::signal::Signal;

use crate::by_hand::{connect_the_sites, signal, start, switch, write_sendbox};
use crate::turns::alone;
use crate::two_bundles::{await_both, flow};

/// Bound of the bundle (bit/s).
const RATE_BPS: f64 = 20e6;
/// Offloads that the test switches, by ethtool's names.
const OFFLOADS: [&str; 4] = ["tx", "gso", "tso", "gro"];

#[test]
fn super_packets_are_shaped_and_outlive_box() {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
        return;
    }
    let _turn = alone();
    let topology = connected();
    let sites = &topology.pairs[0];
    let folder = tempfile::tempdir().unwrap();
    let [sendbox, receivebox] = write_configs(folder.path(), "20Mbit/s");
    let qdiscs_before = qdiscs(sites);
    let mut watching = start(&sites.right_box, "receivebox", &receivebox);
    let mut shaping = start(&sites.left_box, "sendbox", &sendbox);
    let sockets = ["receivebox.sock", "box.sock"].map(|name| folder.path().join(name));
    let alive = |both: &[Status; 2]| both.iter().all(|one| one.bundles[0].peer.state == "alive");
    await_both(&sockets, alive);

    let shaped = carry(sites);
    assert!(shaped < 1.05 * RATE_BPS, "{shaped} bit/s");
    assert!(shaped > 0.8 * RATE_BPS, "{shaped} bit/s");
    // While some tasks of a virtual machine run, its kernel may show departing packets to no
    // program.
    let unseen = |both: &[Status; 2]| {
        let [came, left] = both.each_ref().map(|one| one.bundles[0].packets);
        came.checked_sub(left).filter(|unseen| 20 * unseen < came)
    };
    let both = await_both(&sockets, |both| unseen(both).is_some());
    let (unseen, [_, sent]) = (unseen(&both).unwrap(), both);
    let state = sent.bundles[0].shaping.as_ref().unwrap();
    let counters = &state.counters;
    assert!(counters.boundaries_matched > 10, "{state:?}");
    assert!(10 * counters.boundaries_matched > 9 * counters.boundaries_sent, "{state:?}");
    assert!(state.reports_unmatched <= unseen, "{unseen}: {state:?}");
    assert_eq!(state.alarm, None);
    let at_wan = |name: &str| counter(&sent, name);
    assert!(at_wan("sampled") > 1000, "{:?}", sent.ports);
    assert_eq!(["unsampled", "unread"].map(at_wan), [0; 2], "{:?}", sent.ports);
    // The box cannot count missed packets before the first one that it sees, and after the last.
    assert!(at_wan("missed") + 10 >= unseen, "{unseen}: {:?}", sent.ports);

    signal(&shaping, Signal::SIGSTOP);
    // Longer than a heartbeat counts.
    thread::sleep(Duration::from_millis(700));
    let unshaped = carry(sites);
    assert!(unshaped > 5.0 * RATE_BPS, "{unshaped} bit/s");
    signal(&shaping, Signal::SIGCONT);
    await_both(&sockets, alive);
    let shaped = carry(sites);
    assert!(shaped < 1.05 * RATE_BPS, "{shaped} bit/s");

    shaping.kill().unwrap();
    shaping.wait().unwrap();
    let unshaped = carry(sites);
    assert!(unshaped > 5.0 * RATE_BPS, "{unshaped} bit/s");

    let mut again = start(&sites.left_box, "sendbox", &sendbox);
    await_both(&sockets, alive);
    let shaped = carry(sites);
    assert!(shaped < 1.05 * RATE_BPS, "{shaped} bit/s");
    for one in [&mut watching, &mut again] {
        signal(one, Signal::SIGTERM);
        assert!(one.wait().unwrap().success());
    }
    assert_eq!(qdiscs(sites), qdiscs_before);
}

/// The qdiscs of the sendbox's WAN port.
fn qdiscs(sites: &PairSites) -> String {
    let mut tc = Command::new("tc");
    tc.args(["qdisc", "show", "dev", "wan"]);
    sites.left_box.host(&mut tc).unwrap();
    String::from_utf8(tc.output().unwrap().stdout).unwrap()
}

/// Counter of this name at a sendbox's WAN port.
pub fn counter(status: &Status, name: &str) -> u64 {
    let counters = &status.ports[1].counters;
    counters.iter().find(|(known, _)| known == name).unwrap().1
}

/// Two sites joined by a bridge, with offloads on.
pub fn connected() -> Topology {
    let topology = Topology::build(1, None).unwrap();
    connect_the_sites(&topology.emulator);
    switch_offloads(&topology, "on");
    topology
}

/// Switches offloads of all devices from host to host `"on"` or `"off"`.
pub fn switch_offloads(topology: &Topology, to: &str) {
    let sites = &topology.pairs[0];
    let all: [(&Namespace, &[&str]); 5] = [
        (&sites.left_hosts, &["eth0"]),
        (&sites.left_box, &["lan", "wan"]),
        (&topology.emulator, &["left0", "right0"]),
        (&sites.right_box, &["lan", "wan"]),
        (&sites.right_hosts, &["eth0"]),
    ];
    for (namespace, devices) in all {
        for device in devices {
            switch(namespace, device, &OFFLOADS, to);
        }
    }
}

/// The rate of a flow from site to site, in bit/s.
fn carry(sites: &PairSites) -> f64 {
    let began = Instant::now();
    let target = SocketAddr::new(Site::RightHosts.address(0).into(), 7000);
    let (sender, receiver) = flow(sites, target);
    let sent = sender.join().unwrap();
    let elapsed = began.elapsed();
    assert_eq!(receiver.join().unwrap(), sent);
    8.0 * sent as f64 / elapsed.as_secs_f64()
}

/// Has the packets of the sendbox with this file stay in the kernel.
pub fn keep_in_kernel(sendbox: &Path) {
    let text = fs::read_to_string(sendbox).unwrap();
    let (before, rest) = text.split_once("qdisc = ").unwrap();
    let (_, after) = rest.split_once('\n').unwrap();
    let text = format!("{before}{after}").replace("[box]", "[box]\ndatapath = \"kernel\"");
    fs::write(sendbox, text).unwrap();
}

/// The files of a sendbox that shapes to `max_rate` at most, and of its receivebox.
pub fn write_configs(folder: &Path, max_rate: &str) -> [PathBuf; 2] {
    let sendbox = write_sendbox(folder, max_rate);
    keep_in_kernel(&sendbox);
    let receivebox = folder.join("receivebox.toml");
    let text = format!(
        r#"
[box]
role = "receivebox"
wan = "wan"
listen = "{}"
control = "receivebox.sock"

[[bundle]]
name = "b"
id = 1
peer = "{}"
to = ["{}"]
from = ["{}"]
key_file = "bundle.key"
"#,
        Site::RightBox.address(0),
        Site::LeftBox.address(0),
        Site::RightHosts.host_prefix(0),
        Site::LeftHosts.host_prefix(0),
    );
    fs::write(&receivebox, text).unwrap();
    [sendbox, receivebox]
}
