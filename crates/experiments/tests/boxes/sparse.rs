//! The wait of sparse flows that a sendbox reports is the delay of a ping, on either datapath.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use forebay_host::daemon::status::SparseWaitStatus;
use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::{PairSites, Site, Topology};

use crate::by_hand::{await_status, connect_the_sites, end, start, write_sendbox};
use crate::kernel_queues::connected;
use crate::turns::alone;

/// Once in this time a burst fills the queue ...
const PERIOD: Duration = Duration::from_millis(100);
/// ... with this many datagrams, which wait 17 ms at 20 Mbit/s ...
const BURST: usize = 30;
/// ... and this many pings behind it, each of its own flow. They outnumber the burst datagrams that find an empty queue
/// for their flow because a slow machine paused before them.
const PINGS: usize = 16;
/// Duration of traffic in periods: contains two whole seconds of the status at any offset.
const PERIODS: u32 = 32;
/// Port of the test traffic.
const PORT: u16 = 7000;

/// Largest difference of the report from the truth, and between datapaths.
const CLOSE: Duration = Duration::from_millis(2);

#[test]
fn reported_wait_of_sparse_flows_equals_ping_delay() {
    if skip_without(Need::Root) {
        return;
    }
    let _turn = alone();
    let topology = Topology::build(1, None).unwrap();
    connect_the_sites(&topology.emulator);
    let user = reported(&topology, "qdisc = { kind = \"fifo\", limit = \"200p\" }", "");
    drop(topology);
    if skip_without(Need::QueueSampling) {
        return;
    }
    let kernel = reported(&connected(), "", "datapath = \"kernel\"\nkernel_qdisc = \"fifo\"");
    assert!(user.abs_diff(kernel) < CLOSE, "{user:?} and {kernel:?}");
}

/// The median wait that a sendbox reports in steady traffic, which is close to the truth.
fn reported(topology: &Topology, qdisc: &str, of_box: &str) -> Duration {
    let sites = &topology.pairs[0];
    let folder = tempfile::tempdir().unwrap();
    let config = write_sendbox(folder.path(), "20Mbit/s");
    let text = fs::read_to_string(&config).unwrap();
    let (before, rest) = text.split_once("qdisc = ").unwrap();
    let (_, after) = rest.split_once('\n').unwrap();
    let text = format!("{before}{qdisc}\n{after}").replace("[box]", &format!("[box]\n{of_box}"));
    fs::write(&config, text).unwrap();
    let mut boxes = [start(&sites.left_box, "sendbox", &config)];
    let socket = folder.path().join("box.sock");
    await_status(&socket);
    let pings = thread::scope(|scope| {
        let pings = scope.spawn(|| delays(sites));
        // The last whole second began after the first.
        thread::sleep(PERIOD * (PERIODS - 5));
        let status = await_status(&socket);
        let SparseWaitStatus { packets, p50_ns, p99_ns } =
            status.bundles[0].shaping.as_ref().unwrap().sparse_wait;
        assert!((140..=340).contains(&packets), "{packets}: {}", status.table());
        assert!(status.table().contains("\n  sparse flows wait "), "{}", status.table());
        let [p50, p99] = [p50_ns, p99_ns].map(|ns| Duration::from_nanos(ns.unwrap()));
        (pings.join().unwrap(), p50, p99)
    });
    end(&mut boxes);
    let (mut delays, p50, p99) = pings;
    delays.sort();
    let truth = delays[delays.len() / 2];
    assert!(truth > Duration::from_millis(10), "{delays:?}");
    assert!(p50.abs_diff(truth) < CLOSE, "reported {p50:?}, truth {truth:?}");
    assert!(p99 + CLOSE > p50 && p99 < 3 * truth, "{p50:?} {p99:?}");
    p50
}

/// One-way delays of pings between the hosts of two sites, behind bursts that fill the queue.
fn delays(sites: &PairSites) -> Vec<Duration> {
    let bind =
        |namespace: &Namespace, address| namespace.within(|| UdpSocket::bind(address)).unwrap();
    let target = SocketAddr::new(Site::RightHosts.address(0).into(), PORT);
    let receiver = bind(&sites.right_hosts, target);
    receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let own = SocketAddr::new(Site::LeftHosts.address(0).into(), 0);
    let senders: Vec<UdpSocket> = (0..=PINGS).map(|_| bind(&sites.left_hosts, own)).collect();
    let epoch = Instant::now();
    let send = || {
        for period in 0..PERIODS {
            for _ in 0..BURST {
                senders[0].send_to(&[0; 1400], target).unwrap();
            }
            for ping in &senders[1..] {
                let at_ns = epoch.elapsed().as_nanos() as u64;
                ping.send_to(&at_ns.to_ne_bytes(), target).unwrap();
            }
            thread::sleep((PERIOD * (period + 1)).saturating_sub(epoch.elapsed()));
        }
    };
    thread::scope(|scope| {
        scope.spawn(send);
        let mut delays = Vec::new();
        let mut buffer = [0; 2000];
        while delays.len() < PERIODS as usize * PINGS {
            let length = receiver.recv(&mut buffer).unwrap();
            if let Ok(at_ns) = <[u8; 8]>::try_from(&buffer[..length]) {
                let sent = Duration::from_nanos(u64::from_ne_bytes(at_ns));
                delays.push(epoch.elapsed().saturating_sub(sent));
            }
        }
        delays
    })
}
