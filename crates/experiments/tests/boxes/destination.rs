//! A receivebox on the destination host of the bundle's packets, at its only address.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use forebay_host::daemon::keys;
use forebay_host::daemon::status::Status;
use forebay_skips::{Need, skip_without};
use forebay_testbed::topology::{Site, Topology};

use crate::alone;
use crate::by_hand::{connect_the_sites, start};
use crate::two_bundles::{await_both, flow};

/// Port of the test traffic.
const PORT: u16 = 7000;
/// Datagrams of 100 bytes, few enough to arrive at any rate.
const DATAGRAMS: u64 = 150;

#[test]
fn destination_host_measures_packets_to_itself() {
    measured("");
}

#[test]
fn destination_host_measures_packets_in_kernel() {
    if !skip_without(Need::QueueSampling) {
        measured("datapath = \"kernel\"\n");
    }
}

fn measured(datapath: &str) {
    if skip_without(Need::Root) {
        return;
    }
    let _alone = alone();
    let topology = Topology::build(1, None).unwrap();
    connect_the_sites(&topology.emulator);
    let folder = tempfile::tempdir().unwrap();
    keys::generate(&folder.path().join("bundle.key")).unwrap();
    let sites = &topology.pairs[0];
    let host = Site::RightHosts.address(0);
    let (ours, theirs) = (Site::LeftHosts.host_prefix(0), Site::RightHosts.host_prefix(0));
    let sendbox = Site::LeftBox.address(0);
    let file = |role: &str, devices: &str, listen, peer, more: &str| {
        let text = format!(
            "[box]\nrole = \"{role}\"\n{devices}listen = \"{listen}\"\ncontrol = \"{role}.sock\"\n[[bundle]]\n\
             name = \"b\"\nid = 1\npeer = \"{peer}\"\nto = [\"{theirs}\"]\nfrom = [\"{ours}\"]\n\
             key_file = \"bundle.key\"\n{more}"
        );
        let file = folder.path().join(format!("{role}.toml"));
        fs::write(&file, text).unwrap();
        file
    };
    let devices = format!("lan = \"lan\"\nwan = \"wan\"\n{datapath}");
    let receivebox = file("receivebox", "wan = \"eth0\"\n", host, sendbox, "");
    let sendbox = file("sendbox", &devices, sendbox, host, "cc = \"copa\"\n");
    let mut boxes = [
        start(&sites.right_hosts, "receivebox", &receivebox),
        start(&sites.left_box, "sendbox", &sendbox),
    ];
    let sockets = ["receivebox", "sendbox"].map(|it| folder.path().join(format!("{it}.sock")));
    await_both(&sockets, |both| both.iter().all(|one| one.bundles[0].peer.state == "alive"));
    // Each box has received the other's counts.
    thread::sleep(Duration::from_secs(1));
    let [watched, sent] = await_both(&sockets, counts_agree);
    assert_eq!([packets(&watched), packets(&sent)], [0, 0], "messages alone have passed");

    let [to, from] = [(&sites.right_hosts, host), (&sites.left_hosts, Site::LeftHosts.address(0))]
        .map(|(place, address)| place.within(|| UdpSocket::bind((address, 0))).unwrap());
    to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for _ in 0..DATAGRAMS {
        from.send_to(&[7; 100], to.local_addr().unwrap()).unwrap();
        to.recv(&mut [0; 100]).unwrap();
    }
    let is_all = |both: &[Status; 2]| counts_agree(both) && packets(&both[0]) == DATAGRAMS;
    await_both(&sockets, is_all);
    let (sender, receiver) = flow(sites, SocketAddr::from((host, PORT)));
    await_both(&sockets, |[_, sent]| {
        sent.bundles[0].shaping.as_ref().unwrap().counters.boundaries_matched > 100
    });
    assert_eq!(receiver.join().unwrap(), sender.join().unwrap());
    // On a busy machine the kernel datapath's program misses some departing packets, and some packets are
    // lost.
    let [_, sent] = await_both(&sockets, |both| {
        let [watched, sent] = both.each_ref().map(packets);
        watched.abs_diff(sent) * 100 <= sent
    });
    let counters = &sent.bundles[0].shaping.as_ref().unwrap().counters;
    assert!(2 * counters.boundaries_matched > counters.boundaries_sent, "{counters:?}");
    assert_eq!(sent.bundles[0].differences.as_deref(), Some(&[][..]));
    let mtu = sent.bundles[0].peer.path_mtu.map(|mtu| (mtu.bytes, mtu.tried));
    assert_eq!(mtu, Some((1500, 1500)));
    for one in &mut boxes {
        one.kill().unwrap();
        one.wait().unwrap();
    }
}

fn packets(status: &Status) -> u64 {
    status.bundles[0].packets
}

/// Whether both boxes have counted the same bytes and packets.
fn counts_agree([watched, sent]: &[Status; 2]) -> bool {
    let counts = |status: &Status| (packets(status), status.bundles[0].bytes);
    counts(watched) == counts(sent)
}
