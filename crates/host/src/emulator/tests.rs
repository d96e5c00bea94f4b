//! Real kernel TCP and UDP over an emulated link, between network namespaces.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_core::spec::{Spec, Value};
use nix::unistd::{Uid, pipe};

use super::*;
use crate::record::{Fate, PacketRecord};
use crate::scenario::LinkChange;
use crate::testbed::namespace::Namespace;
use crate::{clock, offload};

/// Two hosts, 10.9.PAIR.1 on the left and 10.9.PAIR.2 on the right, per pair.
struct Bench {
    hosts: Vec<[Namespace; 2]>,
    emulator: Option<JoinHandle<[LinkRecord; 2]>>,
    orders: Option<std::fs::File>,
    dir: tempfile::TempDir,
}

impl Bench {
    /// `None`, with a note, without root.
    fn new(pairs: usize, forward: LinkSpec, reverse: LinkSpec) -> Option<Self> {
        if !Uid::effective().is_root() {
            println!("skipped: network namespaces need root");
            return None;
        }
        let middle = Namespace::new().unwrap();
        let hosts: Vec<_> = (0..pairs).map(|pair| Self::hosts(pair, &middle)).collect();
        let dir = tempfile::tempdir().unwrap();
        let device = |side: &str, pair| format!("{side}{pair}");
        let pairs = (0..pairs)
            .map(|pair| DevicePair { left: device("left", pair), right: device("right", pair) })
            .collect();
        let out = Some(dir.path().to_path_buf());
        let spec = EmulatorSpec { seed: 1, pairs, forward, reverse, out };
        let (orders, order_end) = pipe().unwrap();
        let mut emulator = middle.within(|| Ok(Emulator::open(&spec).unwrap())).unwrap();
        let emulator = std::thread::spawn(move || {
            emulator.obey(&orders).unwrap();
            drop(orders);
            emulator.run().unwrap();
            emulator.finish().unwrap()
        });
        let orders = Some(order_end.into());
        Some(Self { hosts, emulator: Some(emulator), orders, dir })
    }

    fn hosts(pair: usize, middle: &Namespace) -> [Namespace; 2] {
        let hosts = [Namespace::new().unwrap(), Namespace::new().unwrap()];
        for (number, (side, host)) in ["left", "right"].iter().zip(&hosts).enumerate() {
            let middle = middle.path();
            let device = format!("{side}{pair}");
            ip(
                host,
                &format!("link add eth0 type veth peer name {device} netns {}", middle.display()),
            );
            ip(host, &format!("address add 10.9.{pair}.{}/24 dev eth0", number + 1));
            host.within(|| offload::disable_all("eth0").map_err(io::Error::other)).unwrap();
            ip(host, "link set eth0 up");
        }
        for side in ["left", "right"] {
            ip(middle, &format!("link set {side}{pair} up"));
        }
        hosts
    }

    /// Starts the run now and returns when that was.
    fn start(&mut self) -> u64 {
        let now = clock::now().as_nanos();
        writeln!(self.orders.as_mut().unwrap(), "start {now}").unwrap();
        // The order is read within 10 ms.
        std::thread::sleep(Duration::from_millis(50));
        now
    }

    /// Ends the run: records of the links and of their packets.
    fn finish(mut self) -> [(LinkRecord, Vec<PacketRecord>); 2] {
        self.orders = None;
        let links = self.emulator.take().unwrap().join().unwrap();
        for name in ["forward", "reverse"] {
            assert!(self.dir.path().join(format!("{name}.packets")).exists());
        }
        links.map(|link| {
            let packets = PacketRecord::read_file(&link.packets).unwrap();
            assert_eq!(link.packets_in, packets.len() as u64);
            assert_eq!((link.drops_ring, link.records_lost), (0, 0));
            (link, packets)
        })
    }

    /// Sends `bytes` over TCP from left to right; returns when the last byte was read.
    fn transfer(&self, pair: usize, bytes: usize) -> Duration {
        let [left, right] = &self.hosts[pair];
        let listener = right.within(|| TcpListener::bind(("0.0.0.0", 7000))).unwrap();
        let address = format!("10.9.{pair}.2:7000");
        let mut sender = left.within(|| TcpStream::connect(&address)).unwrap();
        socket2::SockRef::from(&sender).set_tcp_congestion(b"cubic").unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let started = Instant::now();
        let writer = std::thread::spawn(move || sender.write_all(&vec![0; bytes]).unwrap());
        let mut buffer = vec![0; 1 << 16];
        let mut read = 0;
        while read < bytes {
            read += receiver.read(&mut buffer).unwrap();
        }
        writer.join().unwrap();
        started.elapsed()
    }

    /// Round trips of UDP datagrams, one after the other.
    fn ping(&self, pair: usize, count: usize) -> Vec<Duration> {
        let [left, right] = &self.hosts[pair];
        let echo = right.within(|| UdpSocket::bind(("0.0.0.0", 7001))).unwrap();
        let client = left.within(|| UdpSocket::bind(("0.0.0.0", 0))).unwrap();
        client.connect(format!("10.9.{pair}.2:7001")).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let answers = std::thread::spawn(move || {
            let mut buffer = [0; 100];
            for _ in 0..count {
                let (len, from) = echo.recv_from(&mut buffer).unwrap();
                echo.send_to(&buffer[..len], from).unwrap();
            }
        });
        let mut buffer = [0; 100];
        let round_trips = (0..count).map(|_| {
            let sent = Instant::now();
            client.send(&[7; 40]).unwrap();
            client.recv(&mut buffer).unwrap();
            sent.elapsed()
        });
        let round_trips = round_trips.collect();
        answers.join().unwrap();
        round_trips
    }
}

fn ip(namespace: &Namespace, arguments: &str) {
    tool(namespace, &format!("ip {arguments}"));
}

fn tool(namespace: &Namespace, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    namespace.host(&mut command).unwrap();
    let output = command.output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

fn link(rate_mbit: Option<u64>, delay_ms: u64, limit: &str) -> LinkSpec {
    LinkSpec {
        rate_bps: rate_mbit.map(|mbit| mbit * 1_000_000),
        trace: None,
        delay_ns: delay_ms * 1_000_000,
        loss: 0.0,
        message_loss: 0.0,
        reorder: 0.0,
        reorder_packets: 0,
        qdisc: Spec::named("fifo").with("limit", Value::Text(limit.into())),
        changes: Vec::new(),
    }
}

/// Bytes that departed per second between two virtual times.
fn rate_mbit(packets: &[PacketRecord], from_ns: u64, to_ns: u64) -> f64 {
    let inside = packets.iter().filter(|packet| (from_ns..to_ns).contains(&packet.departed_ns));
    let bytes: u64 = inside.map(|packet| u64::from(packet.frame_bytes())).sum();
    bytes as f64 * 8e3 / (to_ns - from_ns) as f64
}

#[test]
fn tcp_gets_the_rate_and_every_packet_the_delay() {
    let Some(mut bench) = Bench::new(1, link(Some(20), 10, "100p"), link(None, 15, "1000p")) else {
        return;
    };
    let start = bench.start();
    // 2 s at 20 Mbit/s.
    bench.transfer(0, 5_000_000);
    let [(forward, packets), (reverse, acks)] = bench.finish();
    let busy = packets.iter().filter(|packet| packet.queue_packets > 0);
    let busy: Vec<u64> = busy.map(|packet| packet.departed_ns).filter(|at| *at > 0).collect();
    let (from, to) = (busy[busy.len() / 4], busy[busy.len() * 3 / 4]);
    let rate = rate_mbit(&packets, from, to);
    assert!((19.8..=20.2).contains(&rate), "{rate} Mbit/s");
    assert!(forward.drops_queue > 0, "Cubic fills 100 packets");
    assert!(forward.backlogged_ns > 1_000_000_000);
    assert!(forward.rate_achieved > 0.9, "{}", forward.rate_achieved);
    for (packets, delay_ns) in [(&packets, 10_000_000), (&acks, 15_000_000)] {
        for packet in packets.iter().filter(|packet| packet.fate() == Some(Fate::Delivered)) {
            assert!(packet.departed_ns >= packet.arrived_ns);
            assert!(packet.released_ns >= packet.departed_ns + delay_ns);
        }
    }
    assert_eq!(reverse.drops_queue, 0);
    let samples = &forward.queue;
    assert_eq!(samples[0].at_ns, start);
    assert!(samples.windows(2).all(|pair| pair[1].at_ns - pair[0].at_ns == 10_000_000));
    for sample in samples {
        let at_ns = sample.at_ns;
        let waits =
            |packet: &&PacketRecord| (packet.arrived_ns..packet.departed_ns).contains(&at_ns);
        // The packet that is being sent is in the log and no longer in the queue.
        let waiting = packets.iter().filter(waits).count() as u64;
        assert_eq!(sample.packets, waiting.saturating_sub(1), "{at_ns}");
    }
}

#[test]
fn the_round_trip_is_the_sum_of_both_delays() {
    let Some(bench) = Bench::new(2, link(Some(96), 20, "100p"), link(Some(96), 30, "100p")) else {
        return;
    };
    for pair in 0..2 {
        // The first one waits for the neighbour's address too.
        let round_trips = bench.ping(pair, 20);
        let fastest = round_trips.iter().min().unwrap();
        assert!(*fastest >= Duration::from_millis(50), "{fastest:?}");
        assert!(*fastest < Duration::from_millis(100), "{fastest:?}");
    }
    let [(_, forward), (_, reverse)] = bench.finish();
    for packets in [&forward, &reverse] {
        for pair in 0..2 {
            assert!(packets.iter().filter(|packet| packet.pair() == pair).count() >= 20);
        }
    }
}

#[test]
fn changes_take_place_at_their_times_after_the_start() {
    let change = |at_ms: u64, delay_ms: Option<u64>, loss| LinkChange {
        at_ns: at_ms * 1_000_000,
        delay_ns: delay_ms.map(|ms| ms * 1_000_000),
        loss,
        ..LinkChange::default()
    };
    let mut forward = link(Some(96), 5, "100p");
    forward.changes = vec![change(0, Some(60), None), change(3_000, None, Some(1.0))];
    let Some(mut bench) = Bench::new(1, forward, link(None, 0, "100p")) else { return };
    let before = *bench.ping(0, 5).iter().min().unwrap();
    let start = bench.start();
    let after = *bench.ping(0, 5).iter().min().unwrap();
    assert!(before < Duration::from_millis(60) && after >= Duration::from_millis(60));
    while clock::now().as_nanos() < start + 3_000_000_000 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let client = bench.hosts[0][0].within(|| UdpSocket::bind(("0.0.0.0", 0))).unwrap();
    client.connect("10.9.0.2:7001").unwrap();
    for _ in 0..10 {
        // Refused: an answer of the right host would come by the reverse link only.
        client.send(&[7; 40]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    let [(forward, packets), _] = bench.finish();
    let lost = packets.iter().filter(|packet| packet.fate() == Some(Fate::Lost)).count();
    assert!(lost >= 10);
    assert_eq!(forward.drops_loss, lost as u64);
    let first_lost = packets.iter().find(|packet| packet.fate() == Some(Fate::Lost)).unwrap();
    assert!(first_lost.arrived_ns >= start + 3_000_000_000);
}

#[test]
fn messages_of_the_boxes_can_be_lost_and_nothing_else_is() {
    let forward = LinkSpec { message_loss: 0.5, ..link(Some(96), 1, "1000p") };
    let Some(mut bench) = Bench::new(1, forward, link(None, 0, "100p")) else { return };
    bench.start();
    bench.ping(0, 1);
    let [left, _] = &bench.hosts[0];
    for (from, to) in [(61_475, 61_475), (61_476, 61_476), (40_000, 61_475)] {
        let socket = left.within(|| UdpSocket::bind(("0.0.0.0", from))).unwrap();
        for _ in 0..200 {
            // Refused now and then: nobody listens there.
            let _ = socket.send_to(&[7; 100], ("10.9.0.2", to));
        }
    }
    std::thread::sleep(Duration::from_millis(200));
    let [(forward, packets), (reverse, _)] = bench.finish();
    let sent = packets.iter().filter(|packet| packet.frame_bytes() == 142).count();
    assert!((500..=600).contains(&sent), "{sent} of 600 datagrams");
    let lost = packets.iter().filter(|packet| packet.fate() == Some(Fate::Lost));
    // Of 300 to 400 messages; 5 sigma are 50.
    let lost = lost.inspect(|packet| assert_eq!(packet.frame_bytes(), 142)).count();
    assert!((100..=250).contains(&lost), "{lost} lost");
    assert_eq!((forward.drops_loss, reverse.drops_loss), (lost as u64, 0));
}

#[test]
fn bad_links_are_refused_by_name() {
    let good = || link(Some(96), 10, "10p");
    let open = |forward: LinkSpec| {
        let pairs = vec![DevicePair { left: "nowhere".into(), right: "nowhere".into() }];
        let spec = EmulatorSpec { seed: 1, pairs, forward, reverse: good(), out: None };
        Emulator::open(&spec).err().expect("refused")
    };
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("bad.trace");
    std::fs::write(&trace, "1\n0\n").unwrap();
    let cases = [
        (LinkSpec { loss: 1.5, ..good() }, "forward: loss = 1.5: allowed is a share from 0 to 1"),
        (LinkSpec { message_loss: -0.1, ..good() }, "forward: message_loss = -0.1: allowed is"),
        (LinkSpec { trace: Some(trace.clone()), ..good() }, "rate = 96Mbit/s: allowed is either"),
        (LinkSpec { trace: Some(trace), rate_bps: None, ..good() }, "bad.trace:2: \"0\": allowed"),
        (LinkSpec { qdisc: Spec::named("cake"), ..good() }, "forward: qdisc.kind = cake: allowed"),
        (LinkSpec { trace: Some("/none".into()), rate_bps: None, ..good() }, "forward: /none: No"),
    ];
    for (forward, expected) in cases {
        let error = open(forward);
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.is_bad_input());
    }
    assert!(!open(good()).is_bad_input(), "a missing device is not the specification's fault");
}
