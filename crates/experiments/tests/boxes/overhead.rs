//! Configured rates count the bytes that are added to packets below the WAN port.

use std::fs;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use forebay_skips::{Need, skip_without};
use forebay_testbed::topology::{Site, Topology};

use crate::alone;
use crate::by_hand::{await_status, await_that, connect_the_sites, end, start, write_sendbox};

/// Length of each packet, with Ethernet, IPv4 and UDP headers.
const FRAME_BYTES: u32 = 1000;
/// Payload that makes a packet of FRAME_BYTES.
const PAYLOAD: [u8; FRAME_BYTES as usize - 42] = [7; FRAME_BYTES as usize - 42];
/// Rate of the bundle; twice as much is sent.
const BITS_PER_SEC: u32 = 8_000_000;

#[test]
fn rates_count_overhead_in_the_process() {
    measured("", "qdisc = { kind = \"sfq\", limit = \"1200p\" }\n");
}

#[test]
fn rates_count_overhead_in_the_kernel() {
    if !skip_without(Need::QueueSampling) {
        measured("datapath = \"kernel\"\n", "");
    }
}

fn measured(datapath: &str, qdisc: &str) {
    if skip_without(Need::Root) {
        return;
    }
    let _alone = alone();
    let topology = Topology::build(1, None).unwrap();
    connect_the_sites(&topology.emulator);
    let sites = &topology.pairs[0];
    for overhead_bytes in [0, 500] {
        let folder = tempfile::tempdir().unwrap();
        let file = write_sendbox(folder.path(), "8Mbit/s");
        let text = fs::read_to_string(&file).unwrap();
        let text = text.replace("qdisc = { kind = \"sfq\", limit = \"1200p\" }\n", qdisc);
        let of_box = format!("wan = \"wan\"\noverhead = \"{overhead_bytes}B\"\n{datapath}");
        fs::write(&file, text.replace("wan = \"wan\"\n", &of_box)).unwrap();
        let mut boxes = [start(&sites.left_box, "sendbox", &file)];
        let socket = folder.path().join("box.sock");
        let [from, to] =
            [(&sites.left_hosts, Site::LeftHosts), (&sites.right_hosts, Site::RightHosts)].map(
                |(place, site)| place.within(|| UdpSocket::bind((site.address(0), 0))).unwrap(),
            );
        from.connect(to.local_addr().unwrap()).unwrap();
        await_that("packets are taken", || {
            from.send(&PAYLOAD).unwrap();
            let status = await_status(&socket);
            status.bundles[0].packets > 0 && status.overhead_bytes == overhead_bytes
        });
        let arrivals = flooded(&from, &to);
        let bits = 8 * (FRAME_BYTES + u32::from(overhead_bytes));
        let expected = f64::from(BITS_PER_SEC) / f64::from(bits);
        let share = f64::from(arrivals) / expected;
        assert!((0.85..=1.1).contains(&share), "{arrivals} packets a second for {expected}");
        end(&mut boxes);
    }
}

/// Sends for two seconds at more than the rate, and returns the number of packets that arrive in
/// the second one.
fn flooded(from: &UdpSocket, to: &UdpSocket) -> u32 {
    to.set_nonblocking(true).unwrap();
    let (began, mut sent, mut arrivals) = (Instant::now(), 0, 0);
    let second = Duration::from_secs(1);
    while began.elapsed() < 2 * second {
        let due = began.elapsed().as_secs_f64() * 2.0 * f64::from(BITS_PER_SEC / 8 / FRAME_BYTES);
        while f64::from(sent) < due {
            from.send(&PAYLOAD).unwrap();
            sent += 1;
        }
        let is_counted = began.elapsed() >= second;
        while to.recv(&mut [0; FRAME_BYTES as usize]).is_ok() {
            arrivals += u32::from(is_counted);
        }
        thread::sleep(Duration::from_millis(2));
    }
    arrivals
}
