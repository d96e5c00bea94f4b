//! Real kernel TCP and UDP over an emulated link, between network namespaces.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_core::link::{AtEnd, PathTrace, Replay, Service};
use forebay_core::spec::{Spec, Value};
use forebay_core::units::{Rate, Ratio};
use forebay_scenario::Change;
use nix::poll::{PollFd, PollFlags, poll};
use nix::unistd::pipe;

use super::*;
use crate::namespace::Namespace;
use forebay_core::record::{Fate, PacketRecord};
use forebay_host::{clock, offload};

/// Two hosts, 10.9.PAIR.1 on the left and 10.9.PAIR.2 on the right, per pair.
struct Bench {
    hosts: Vec<[Namespace; 2]>,
    emulator: Option<JoinHandle<[LinkRecord; 2]>>,
    orders: Option<std::fs::File>,
    /// The emulator's end of the orders.
    order_end: OwnedFd,
    dir: tempfile::TempDir,
}

impl Bench {
    /// Returns `None`, and prints a note, without root.
    fn new(pairs: usize, forward: Link, reverse: Link) -> Option<Self> {
        if forebay_skips::skip_without(forebay_skips::Need::Root) {
            return None;
        }
        let middle = Namespace::new().unwrap();
        let hosts: Vec<_> = (0..pairs).map(|pair| Self::hosts(pair, &middle)).collect();
        let dir = tempfile::tempdir().unwrap();
        let device = |side: &str, pair| format!("{side}{pair}");
        let pairs = (0..pairs)
            .map(|pair| DevicePair {
                left: device("left", pair),
                right: device("right", pair),
                beside: None,
            })
            .collect();
        let out = Some(dir.path().to_path_buf());
        let reverse = Link { name: "reverse".into(), ..reverse };
        let (cpu, routed, keeps_headers, own) = (None, false, false, Vec::new());
        let spec =
            EmulatorSpec { seed: 1, pairs, forward, reverse, own, out, keeps_headers, cpu, routed };
        let (order_end, orders) = pipe().unwrap();
        let obeyed = order_end.try_clone().unwrap();
        let mut emulator = middle.within(|| Ok(Emulator::open(&spec).unwrap())).unwrap();
        let emulator = std::thread::spawn(move || {
            emulator.obey(&obeyed).unwrap();
            drop(obeyed);
            emulator.run().unwrap();
            emulator.finish().unwrap()
        });
        let orders = Some(orders.into());
        Some(Self { hosts, emulator: Some(emulator), orders, order_end, dir })
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

    /// Starts the run now and returns its start. The emulator reads the order before all later
    /// packets.
    fn start(&mut self) -> u64 {
        let now = clock::now().as_nanos();
        writeln!(self.orders.as_mut().unwrap(), "start {now}").unwrap();
        let is_unread = || {
            let mut fds = [PollFd::new(self.order_end.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, 0_u16).unwrap() > 0
        };
        while is_unread() {
            assert!(!self.emulator.as_ref().unwrap().is_finished());
            std::thread::sleep(Duration::from_millis(1));
        }
        now
    }

    /// Ends the run; returns the records of the links and their packets.
    fn finish(mut self) -> [(LinkRecord, Vec<PacketRecord>); 2] {
        self.orders = None;
        let links = self.emulator.take().unwrap().join().unwrap();
        links.map(|link| {
            let packets = read_packets(&packets_file(self.dir.path(), &link.name)).unwrap();
            let count = |fate| packets.iter().filter(|it| it.fate == fate).count() as u64;
            assert_eq!(link.packets_in, packets.len() as u64);
            assert_eq!(link.packets_out, count(Fate::Delivered));
            assert_eq!(link.drops_queue, count(Fate::QueueDrop));
            assert_eq!(link.drops_by_reason.total(), link.drops_queue);
            assert_eq!(link.drops_loss, count(Fate::Lost));
            assert_eq!((link.drops_ring, link.records_lost), (0, 0));
            (link, packets)
        })
    }

    /// Sends `bytes` over TCP from left to right; returns the time until the last byte was read.
    fn transfer(&self, pair: usize, bytes: usize) -> Duration {
        let [left, right] = &self.hosts[pair];
        let listener = right.within(|| TcpListener::bind(("0.0.0.0", 7000))).unwrap();
        let address = format!("10.9.{pair}.2:7000");
        let mut sender = left.within(|| TcpStream::connect(&address)).unwrap();
        socket2::SockRef::from(&sender).set_tcp_congestion(b"reno").unwrap();
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

    /// Round trips of UDP datagrams, one after the other. Earlier packets from the left have then
    /// reached the emulator.
    fn ping(&self, pair: usize, count: usize) -> Vec<Duration> {
        let [left, right] = &self.hosts[pair];
        // Each call has its own port: a child that another test starts may hold a closed socket.
        let echo = right.within(|| UdpSocket::bind(("0.0.0.0", 0))).unwrap();
        let port = echo.local_addr().unwrap().port();
        let client = left.within(|| UdpSocket::bind(("0.0.0.0", 0))).unwrap();
        client.connect(format!("10.9.{pair}.2:{port}")).unwrap();
        for socket in [&echo, &client] {
            socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        }
        let answers = std::thread::spawn(move || {
            let mut buffer = [0; 100];
            for _ in 0..count {
                let (len, from) = uninterrupted(|| echo.recv_from(&mut buffer));
                echo.send_to(&buffer[..len], from).unwrap();
            }
        });
        let mut buffer = [0; 100];
        let round_trips = (0..count).map(|_| {
            let sent = Instant::now();
            client.send(&[7; DATAGRAM_BYTES]).unwrap();
            uninterrupted(|| client.recv(&mut buffer));
            sent.elapsed()
        });
        let round_trips = round_trips.collect();
        answers.join().unwrap();
        round_trips
    }
}

/// Payload bytes of most datagrams here.
const DATAGRAM_BYTES: usize = 40;
/// Bytes of the frame that carries it: Ethernet, IPv4 and UDP headers come first.
const FRAME_BYTES: u32 = 14 + 20 + 8 + DATAGRAM_BYTES as u32;

/// Repeats a call after EINTR: the kernel does not restart one on a socket with a timeout
/// (signal(7)).
fn uninterrupted<T>(mut receive: impl FnMut() -> io::Result<T>) -> T {
    loop {
        match receive() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.unwrap(),
        }
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

fn link(rate_mbit: Option<u64>, delay_ms: u64, limit: &str) -> Link {
    let rate = rate_mbit.map(Rate::from_mbit_per_sec);
    let qdisc = Spec::named("fifo").with("limit", Value::Text(limit.into()));
    let delay = Duration::from_millis(delay_ms);
    Link::new("forward", rate.map_or(Service::Unlimited, Service::Rate), delay, qdisc)
}

#[test]
fn tcp_gets_link_rate_and_delay() {
    let Some(mut bench) = Bench::new(1, link(Some(20), 10, "100p"), link(None, 15, "1000p")) else {
        return;
    };
    let start = bench.start();
    // At 20 Mbit/s it takes at least 2 s; how much longer depends on the machine.
    assert!(bench.transfer(0, 5_000_000) >= Duration::from_secs(2));
    let [(forward, packets), (reverse, acks)] = bench.finish();
    for (packets, delay_ns) in [(&packets, 10_000_000), (&acks, 15_000_000)] {
        for packet in packets.iter().filter(|packet| packet.fate == Fate::Delivered) {
            assert!(packet.departed_ns >= packet.arrived_ns);
            assert!(packet.released_ns >= packet.departed_ns + delay_ns);
        }
    }
    assert_eq!(reverse.drops_queue, 0);
    assert_departures_at(20, &forward, &packets);
    assert!(forward.drops_queue > 0, "slow start fills 100 packets");
    let full = packets.iter().filter(|packet| packet.fate == Fate::QueueDrop);
    assert!(full.into_iter().all(|packet| packet.queue_packets == 100));
    assert!(packets.iter().all(|packet| packet.queue_packets <= 100));
    assert_samples_from(start, &forward, &packets);
}

/// Asserts that each packet of a FIFO at `mbit` takes its own time on the wire, from its arrival or
/// from the departure before it. The record's rate must follow from these times.
fn assert_departures_at(mbit: u64, link: &LinkRecord, packets: &[PacketRecord]) {
    let delivered = packets.iter().filter(|packet| packet.fate == Fate::Delivered);
    let mut last: Option<&PacketRecord> = None;
    let mut stretches: Vec<[&PacketRecord; 2]> = Vec::new();
    for packet in delivered {
        let free_ns = last.map_or(0, |last| last.departed_ns);
        let own_ns = u64::from(packet.bytes) * 8_000 / mbit;
        assert_eq!(packet.departed_ns, free_ns.max(packet.arrived_ns) + own_ns);
        match stretches.last_mut() {
            Some(stretch) if packet.arrived_ns < stretch[1].departed_ns => stretch[1] = packet,
            _ => stretches.push([packet; 2]),
        }
        last = Some(packet);
    }
    let took_ns =
        |[first, last]: &[&PacketRecord; 2], at: fn(&PacketRecord) -> u64| at(last) - at(first);
    let departed_ns = |stretch: &[&PacketRecord; 2]| took_ns(stretch, |it| it.departed_ns);
    let backlogged_ns: u64 = stretches.iter().map(departed_ns).sum();
    assert_eq!(link.backlogged_ns, backlogged_ns);
    assert!(backlogged_ns > 0);
    stretches.retain(|stretch| departed_ns(stretch) >= 500_000_000);
    let released_ns: u64 = stretches.iter().map(|it| took_ns(it, |it| it.released_ns)).sum();
    let judged_ns: u64 = stretches.iter().map(departed_ns).sum();
    let achieved = if judged_ns == 0 { 1.0 } else { judged_ns as f64 / released_ns as f64 };
    assert!((link.rate_achieved - achieved).abs() < 1e-9, "{} {achieved}", link.rate_achieved);
}

/// Asserts that the queue is sampled every 10 ms from `start_ns` on, and that each sample agrees
/// with the log.
fn assert_samples_from(start_ns: u64, link: &LinkRecord, packets: &[PacketRecord]) {
    let samples = &link.queue;
    assert_eq!(samples[0].at_ns, start_ns);
    assert!(samples.windows(2).all(|pair| pair[1].at_ns - pair[0].at_ns == 10_000_000));
    // For a packet inside at the end, the log does not know the departure.
    let inside = packets.iter().find(|packet| packet.fate == Fate::Inside);
    let known_ns = inside.map_or(u64::MAX, |packet| packet.arrived_ns);
    for sample in samples.iter().filter(|sample| sample.at_ns <= known_ns) {
        let at_ns = sample.at_ns;
        let waits =
            |packet: &&PacketRecord| packet.arrived_ns < at_ns && at_ns < packet.departed_ns;
        // The packet being sent is in the log and no longer in the queue.
        let waiting = packets.iter().filter(waits).count() as u64;
        assert_eq!(sample.packets, waiting.saturating_sub(1), "{at_ns}");
    }
}

#[test]
fn rtt_is_sum_of_both_delays() {
    let Some(bench) = Bench::new(2, link(Some(96), 20, "100p"), link(Some(96), 30, "100p")) else {
        return;
    };
    for pair in 0..2 {
        // The first one also waits for the neighbour's address.
        let round_trips = bench.ping(pair, 20);
        let fastest = round_trips.iter().min().unwrap();
        assert!(*fastest >= Duration::from_millis(50), "{fastest:?}");
        assert!(*fastest < Duration::from_millis(100), "{fastest:?}");
    }
    let [(_, forward), (_, reverse)] = bench.finish();
    for packets in [&forward, &reverse] {
        for pair in 0..2 {
            assert!(packets.iter().filter(|packet| packet.pair == pair).count() >= 20);
        }
    }
}

#[test]
fn changes_apply_at_times_after_start() {
    let change = |at_ms, delay_ms: Option<u64>, loss| Change {
        at: Duration::from_millis(at_ms),
        delay: delay_ms.map(Duration::from_millis),
        loss,
        ..Change::default()
    };
    let mut forward = link(Some(96), 5, "100p");
    let changes =
        [(0, Some(60), None), (200, None, Some(Ratio::ONE)), (1_200, None, Some(Ratio::ZERO))];
    forward.changes = changes.map(|(at, delay, loss)| change(at, delay, loss)).into();
    let Some(mut bench) = Bench::new(1, forward, link(None, 0, "100p")) else { return };
    bench.ping(0, 10);
    let start = bench.start();
    let client = bench.hosts[0][0].within(|| UdpSocket::bind(("0.0.0.0", 0))).unwrap();
    while clock::now().as_nanos() < start + 1_300_000_000 {
        // No program listens there.
        client.send_to(&[7; DATAGRAM_BYTES], "10.9.0.2:9").unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    bench.ping(0, 1);
    let [(forward, mut packets), _] = bench.finish();
    // Drops the kernel's own packets.
    packets.retain(|packet| packet.bytes == FRAME_BYTES);
    assert!(forward.drops_loss > 0);
    for packet in &packets {
        let is_lost = (start + 200_000_000..start + 1_200_000_000).contains(&packet.arrived_ns);
        assert_eq!(packet.fate == Fate::Lost, is_lost, "{packet:?}");
    }
    let delivered = packets.iter().filter(|packet| packet.fate == Fate::Delivered);
    let (before, after): (Vec<_>, Vec<_>) = delivered.partition(|it| it.departed_ns < start);
    let fastest = |packets: &[&PacketRecord]| {
        let delays = packets.iter().map(|packet| packet.released_ns - packet.departed_ns);
        delays.min().map(Duration::from_nanos).unwrap()
    };
    let (slow, long) = (Duration::from_millis(5), Duration::from_millis(60));
    assert!((slow..long).contains(&fastest(&before)) && fastest(&after) >= long);
}

#[test]
fn ping_sees_the_delay_of_a_trace() {
    let text = "time_s,delay_ms,loss\n0,20,0\n1,120,0\n60,,\n";
    let trace = PathTrace::parse("t", text).unwrap().into();
    let forward =
        Link { traces: vec![Replay { trace, at_end: AtEnd::Repeat }], ..link(Some(96), 1, "100p") };
    let Some(mut bench) = Bench::new(1, forward, link(None, 5, "100p")) else { return };
    bench.ping(0, 2);
    let start = bench.start();
    while clock::now().as_nanos() < start + 1_500_000_000 {
        bench.ping(0, 1);
    }
    let [(_, packets), _] = bench.finish();
    let delay_ms = |packet: &PacketRecord| (packet.released_ns - packet.departed_ns) / 1_000_000;
    let fastest = |from_ms: u64, to_ms: u64| {
        let range = start + from_ms * 1_000_000..start + to_ms * 1_000_000;
        let delivered = packets.iter().filter(|it| it.fate == Fate::Delivered);
        let among = delivered.filter(|it| range.contains(&it.departed_ns));
        among.map(delay_ms).min().unwrap()
    };
    let [before, after] = [fastest(0, 1_000), fastest(1_000, 1_500)];
    assert!((20..120).contains(&before) && after >= 120, "{before} {after}");
}

#[test]
fn message_loss_hits_only_box_messages() {
    let forward = Link { message_loss: Ratio::new(0.5).unwrap(), ..link(Some(96), 1, "1000p") };
    let Some(mut bench) = Bench::new(1, forward, link(None, 0, "100p")) else { return };
    bench.start();
    bench.ping(0, 1);
    for (from, to) in [(61_475, 61_475), (61_476, 61_476), (40_000, 61_475)] {
        let socket = bench.hosts[0][0].within(|| UdpSocket::bind(("0.0.0.0", from))).unwrap();
        for number in 0..200 {
            socket.send_to(&[7; 100], ("10.9.0.2", to)).unwrap();
            // A veth holds 256 packets, however late its softirq runs.
            if number % 50 == 49 {
                bench.ping(0, 1);
            }
        }
    }
    let [(forward, packets), (reverse, _)] = bench.finish();
    let sent = packets.iter().filter(|packet| packet.bytes == 142).count();
    assert_eq!(sent, 600);
    let lost = packets.iter().filter(|packet| packet.fate == Fate::Lost);
    // Out of 300 to 400 messages; 5 sigma are 50.
    let lost = lost.inspect(|packet| assert_eq!(packet.bytes, 142)).count();
    assert!((100..=250).contains(&lost), "{lost} lost");
    assert_eq!((forward.drops_loss, reverse.drops_loss), (lost as u64, 0));
}

#[test]
fn bad_links_are_refused_by_name() {
    let good = || link(Some(96), 10, "10p");
    let open = |forward: Link| {
        let pairs =
            vec![DevicePair { left: "nowhere".into(), right: "nowhere".into(), beside: None }];
        let (reverse, out) = (good(), None);
        let (cpu, routed, keeps_headers, own) = (None, false, false, Vec::new());
        let spec =
            EmulatorSpec { seed: 1, pairs, forward, reverse, own, out, keeps_headers, cpu, routed };
        Emulator::open(&spec).err().expect("refused")
    };
    let change = |ms| Change { at: Duration::from_millis(ms), ..Change::default() };
    let cases = [
        (Link { qdisc: Spec::named("cake"), ..good() }, "forward: qdisc.kind = cake: allowed"),
        (Link { changes: vec![change(2), change(1)], ..good() }, "forward: at = 1ms: allowed"),
    ];
    for (forward, expected) in cases {
        let error = open(forward);
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.is_bad_input());
    }
    assert!(!open(good()).is_bad_input(), "a missing device is not the specification's fault");
}
