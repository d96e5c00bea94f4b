//! Tests on real devices, between a source and a sink behind a bridge, in a network namespace of their own.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use forebay_core::bundle::{Report, SampleBlock};
use forebay_core::packet::Headers;
use forebay_core::units::ByteCount;
use forebay_ebpf::Sampler;

use super::*;
use crate::clock;
use crate::daemon::sendbox::tests::config;
use crate::port::tests::{on_a_veth_pair, run};
use crate::port::{Direction, PacketPort, Port};

const KEY: SamplingKey = SamplingKey(*b"0123456789abcdef");
const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// One packet in four is a boundary.
fn epoch_size() -> EpochSize {
    EpochSize::from_log2(2).unwrap()
}

fn steering(rate: Option<Rate>) -> Steering {
    let (epoch_size, version) = (epoch_size(), BlockVersion::V2);
    Steering { rate, epoch_size, sampling_key: KEY, version, path_rtt: None }
}

/// Reports about the bundle.
#[derive(Default)]
struct Told {
    departures: Vec<Departures>,
    waits: Vec<Duration>,
}

impl Listener for Told {
    fn on_departures(&mut self, sent: &Departures) {
        self.departures.push(*sent);
    }

    fn on_queue(&mut self, _now: Timestamp, _backlog: Backlog) {}

    fn on_wait(&mut self, wait: Duration) {
        self.waits.push(wait);
    }
}

/// The datapath between the ports `lan` and `wan`, and the ports at their other ends.
struct Bench {
    kernel: Kernel,
    source: PacketPort,
    sink: PacketPort,
    arrived: Sampler,
    told: Vec<Told>,
    schedule: Schedule,
    /// Each round of the loop also beats.
    is_beating: bool,
    sent: u32,
}

impl Bench {
    fn new(qdisc: Option<KernelQdisc>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path());
        (config.lan, config.wan) = (Some("lan".into()), "wan".into());
        config.kernel_qdisc = qdisc;
        let index = |device| nix::net::if_::if_nametoindex(device).unwrap();
        let seen = Observation {
            lan: Some(index("lan")),
            wan: Some(index("wan")),
            ..Observation::default()
        };
        let mut kernel = Kernel::open(&config, 1518, &seen, &Confinement::default()).unwrap();
        let mut arrived = Sampler::attach_at_tc(index("sink")).unwrap();
        let bundle = kernel.bundles[0].sampled.clone();
        let bundle = SamplerBundle { key: KEY, epoch_size: epoch_size(), ..bundle };
        arrived.set_bundle(BundleId(1), bundle).unwrap();
        kernel.steer(clock::now(), 0, &steering(None));
        Self {
            kernel,
            source: PacketPort::open("source", Direction::Transmit).unwrap(),
            sink: PacketPort::open("sink", Direction::Receive).unwrap(),
            arrived,
            told: vec![Told::default()],
            schedule: Schedule::new(1),
            is_beating: false,
            sent: 0,
        }
    }

    /// Has packets put into classes from now on, as long as rounds of the loop come.
    fn beat(&mut self) {
        self.is_beating = true;
        self.kernel.beat();
    }

    /// Sets the rate of the bundle and waits until the kernel has it. It may take time: all namespaces share the lock.
    fn set_rate(&mut self, rate: Option<Rate>) {
        self.kernel.steer(clock::now(), 0, &steering(rate));
        let rate = match rate.map(Rate::as_bits_per_sec) {
            None => "rate 100Gbit ".into(),
            Some(bits) if bits % 1_000_000 == 0 => format!("rate {}Mbit ", bits / 1_000_000),
            Some(bits) => format!("rate {}Kbit ", bits / 1000),
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        let is_set = |class: &str| class.starts_with("class htb fb:1 ") && class.contains(&rate);
        while !shown("class").lines().any(is_set) {
            assert!(Instant::now() < deadline, "{rate}: {}", shown("class"));
        }
        self.turn();
    }

    /// The next frame of the bundle, from one of 16 flows.
    fn frame(&mut self) -> Vec<u8> {
        self.sent += 1;
        let number = self.sent;
        let len = 1514;
        let mut frame = vec![0; len];
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        frame[6..12].copy_from_slice(&SOURCE);
        frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
        frame[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
        frame[18..20].copy_from_slice(&(number as u16).to_be_bytes());
        frame[22..24].copy_from_slice(&[64, 17]);
        frame[26..34].copy_from_slice(&[10, 1, 1, 1, 10, 1, 2, 1]);
        set_checksum(&mut frame);
        frame[35] = (number % 16) as u8;
        frame[38..40].copy_from_slice(&(len as u16 - 34).to_be_bytes());
        frame[42..46].copy_from_slice(&number.to_be_bytes());
        frame
    }

    /// Sends `count` frames, at most `a_millisecond` per millisecond, with the beats and calls of the loop.
    fn send(&mut self, count: u32, a_millisecond: u32) {
        for at in 0..count {
            let frame = self.frame();
            assert!(self.source.send(&frame));
            self.source.flush().unwrap();
            if at % a_millisecond == a_millisecond - 1 {
                std::thread::sleep(Duration::from_millis(1));
                self.turn();
            }
        }
    }

    /// A round of the loop.
    fn turn(&mut self) {
        let now = clock::now();
        if self.is_beating {
            self.kernel.beat();
        }
        self.kernel.receive(now, &mut self.told, &mut self.schedule).unwrap();
        self.kernel.serve(now, 0, &mut self.told[0]);
    }

    /// Takes frames at the sink until none has come for `quiet`; returns how many belong to the bundle.
    fn receive(&mut self, quiet: Duration) -> u64 {
        let (mut count, mut last) = (0, Instant::now());
        while last.elapsed() < quiet {
            let before = count;
            let take = &mut |frame: &[u8], _: Timestamp| count += u64::from(frame[6..12] == SOURCE);
            self.sink.receive(64, take).unwrap();
            if count > before {
                last = Instant::now();
            }
            self.turn();
        }
        count
    }
}

/// Sets the checksum of the IP header, which bridges check if they pass packets to iptables.
fn set_checksum(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let words = frame[14..34].chunks(2).map(|it| u32::from(it[0]) << 8 | u32::from(it[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!folded as u16).to_be_bytes());
}

/// The output of tc(8) at the WAN port, for a `"qdisc"` or a `"class"`.
fn shown(what: &str) -> String {
    let output = Command::new("tc").args([what, "show", "dev", "wan"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Whether `seen` is plausible for `sent` packets: while some tasks of a virtual machine run, its kernel may
/// run no programs at tracepoints.
fn is_seen(seen: u64, sent: u64) -> bool {
    (sent - sent / 10..=sent).contains(&seen)
}

/// Runs `test` with a bridge that has the ports `lan` and `wan`.
fn behind_a_bridge(test: impl FnOnce(Bench) + Send + 'static) {
    waiting_in(None, test);
}

/// As [`behind_a_bridge`], with this qdisc in the bundle's class.
fn waiting_in(qdisc: Option<KernelQdisc>, test: impl FnOnce(Bench) + Send + 'static) {
    if forebay_skips::skip_without(forebay_skips::Need::QueueSampling) {
        return;
    }
    on_a_veth_pair(move || {
        for command in [
            "ip link add source type veth peer name lan",
            "ip link add sink type veth peer name wan",
            "ip link add br0 type bridge forward_delay 0",
            "ip link set lan master br0",
            "ip link set wan master br0",
            "ip link set source up",
            "ip link set sink up",
            "ip link set lan up",
            "ip link set wan up",
            "ip link set br0 up",
        ] {
            run(command);
        }
        crate::bridge::await_forwarding("lan", "wan").unwrap();
        test(Bench::new(qdisc));
    });
}

#[test]
fn packets_leave_at_the_rate_and_counts_agree() {
    behind_a_bridge(|mut bench| {
        bench.beat();
        bench.set_rate(Some(Rate::from_mbit_per_sec(20)));
        let started = Instant::now();
        bench.send(400, 4);
        let arrived = bench.receive(Duration::from_millis(200));
        let took = started.elapsed() - Duration::from_millis(200);
        assert_eq!(arrived, 400, "the bundle holds more");
        // 400 frames at 20 Mbit/s, minus the burst that may leave at once. With bytes for bits, the rate is
        // off by a factor of 8.
        let least = Duration::from_millis(230);
        assert!(took >= least && took < least * 8, "{took:?}");
        bench.turn();
        let mut expected = Vec::new();
        let take = &mut |Boundary { report, .. }: Boundary| {
            expected.push((report.hash, report.received_packets, report.received_bytes));
        };
        bench.arrived.consume(take).unwrap();
        let boundaries = |told: &Told| -> Vec<_> {
            let marked = told.departures.iter().filter(|sent| sent.boundary.is_some());
            marked.map(|sent| (sent.boundary.unwrap().hash, sent.packets, sent.bytes)).collect()
        };
        assert!(expected.len() > 50, "{}", expected.len());
        let told = boundaries(&bench.told[0]);
        let last = bench.told[0].departures.last().unwrap();
        assert_eq!(last.bytes, ByteCount::new(last.packets * 1514));
        if last.packets == 400 {
            assert_eq!(told, expected);
        } else {
            assert!(is_seen(last.packets, 400), "{last:?}");
            assert!(told.iter().all(|it| expected.iter().any(|other| other.0 == it.0)));
        }
        let is_before =
            |one: &Departures, next: &Departures| one.packets < next.packets && one.at <= next.at;
        assert!(bench.told[0].departures.is_sorted_by(is_before));
    });
}

#[test]
fn sparse_flow_s_wait_is_its_queue_time() {
    waiting_in(Some(KernelQdisc::Fifo), |mut bench| {
        bench.beat();
        // 80 frames of 16 flows wait 97 ms, and so does the first frame of another flow. Its second frame
        // does not count. The kernel's hash differs at each boot. It may put one of these flows into the
        // queue of a waiting flow, but hardly three.
        bench.set_rate(Some(Rate::from_mbit_per_sec(10)));
        let others = [99, 77, 55];
        bench.send(80, 80);
        // A busy machine may delay this thread anywhere: each event has a clock reading before and after it.
        let mut sent = Vec::new();
        for number in others.into_iter().flat_map(|number| [number; 2]) {
            let mut frame = bench.frame();
            frame[35] = number;
            let before = Instant::now();
            assert!(bench.source.send(&frame));
            bench.source.flush().unwrap();
            sent.push([before, Instant::now()]);
        }
        let (began, mut arrived, mut seen) = (Instant::now(), [None; 3], 0);
        let mut looks = [began; 2];
        while seen < 86 && began.elapsed() < Duration::from_secs(5) {
            looks = [looks[1], Instant::now()];
            let take = &mut |frame: &[u8], _: Timestamp| {
                seen += u64::from(frame[6..12] == SOURCE);
                let other = others.iter().position(|other| frame[35] == *other);
                if let Some(other) = other.filter(|_| frame[6..12] == SOURCE) {
                    arrived[other] = arrived[other].or(Some([looks[0], Instant::now()]));
                }
            };
            bench.sink.receive(128, take).unwrap();
            bench.turn();
        }
        bench.turn();
        assert_eq!(seen, 86);
        let waits = &bench.told[0].waits;
        // The first frame of each flow, and further frames of flows that had no frame in the queue.
        assert!((15..=40).contains(&waits.len()), "{waits:?}");
        // The first frame of each other flow waited at least and at most this long.
        let truths = [0, 1, 2].map(|other| {
            let (arrived, sent) = (arrived[other].unwrap(), sent[2 * other]);
            [arrived[0].saturating_duration_since(sent[1]), arrived[1] - sent[0]]
        });
        let close = Duration::from_millis(2);
        let is_close = |wait: &Duration| {
            truths.iter().any(|truth| *wait + close > truth[0] && *wait < truth[1] + close)
        };
        assert!(waits.iter().any(is_close), "{waits:?} has none of {truths:?}");
        assert!(truths[0][1] > Duration::from_millis(30), "{truths:?}");
        // Once all have left, the next frame of any flow counts again.
        bench.set_rate(Some(Rate::from_mbit_per_sec(20)));
        bench.told[0].waits.clear();
        bench.send(16, 1);
        bench.receive(Duration::from_millis(100));
        let waits = &bench.told[0].waits;
        assert!((15..=16).contains(&waits.len()), "{waits:?}");
        assert!(waits[8] < Duration::from_millis(2), "{waits:?}");
    });
}

/// Bytes sent by a socket that the kernel still holds (udp(7)).
fn held(socket: &UdpSocket) -> libc::c_int {
    let mut bytes = -1;
    // SAFETY: the descriptor is open, and the kernel writes one integer.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(status, 0);
    bytes
}

#[test]
fn waiting_packets_belong_to_no_local_socket() {
    behind_a_bridge(|mut bench| {
        run("ip address add 10.1.1.1/16 dev source");
        run("ip neighbour add 10.1.2.1 lladdr 02:00:00:00:00:02 dev source");
        // 57 ms per frame.
        bench.set_rate(Some(Rate::from_bits_per_sec(200_000)));
        bench.beat();
        let socket = UdpSocket::bind("10.1.1.1:0").unwrap();
        for _ in 0..20 {
            socket.send_to(&[7; 1400], "10.1.2.1:9").unwrap();
        }
        // The datapath reads the queue when a frame leaves.
        std::thread::sleep(Duration::from_millis(150));
        bench.turn();
        let waiting = bench.kernel.backlog(0);
        assert!((5..20).contains(&waiting.packets), "{waiting:?}");
        assert_eq!(held(&socket), 0);
    });
}

#[test]
fn without_heartbeats_packets_bypass_the_classes() {
    behind_a_bridge(|mut bench| {
        // 60 ms per frame.
        bench.set_rate(Some(Rate::from_bits_per_sec(200_000)));
        bench.send(50, 50);
        assert_eq!(bench.receive(Duration::from_millis(200)), 50);
        assert!(bench.told[0].departures.is_empty(), "nothing of the bundle has left");
        bench.beat();
        bench.send(50, 50);
        assert!(bench.receive(Duration::from_millis(30)) < 50, "shaped");
        bench.is_beating = false;
        bench.kernel.hand_back();
        // Queued packets leave at once when they are unshaped.
        bench.set_rate(None);
        bench.receive(Duration::from_millis(100));
        assert_eq!(bench.kernel.backlog(0).packets, 0);
        let Bench { kernel, mut source, mut sink, .. } = bench;
        drop(kernel);
        assert!(!shown("qdisc").contains("htb"), "{}", shown("qdisc"));
        let wan = nix::net::if_::if_nametoindex("wan").unwrap();
        assert!(!forebay_ebpf::has_tcx(wan, true).unwrap());
        // The bridge still forwards.
        let mut frame = vec![0; 60];
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        frame[6..12].copy_from_slice(&SOURCE);
        assert!(source.send(&frame));
        source.flush().unwrap();
        let mut seen = 0;
        let started = Instant::now();
        while seen == 0 && started.elapsed() < Duration::from_secs(10) {
            sink.receive(64, &mut |frame, _| seen += u32::from(frame[6..12] == SOURCE)).unwrap();
        }
        assert!(seen > 0);
    });
}

#[test]
fn reload_changes_matched_packets_and_restarts_new_bundle() {
    behind_a_bridge(|mut bench| {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path());
        let site = config.bundles[0].to.clone();
        let carry = |bench: &mut Bench, config: &Config, origin| {
            let seen = Observation::default();
            bench.kernel.rearrange(clock::now(), config, &[origin], &seen).unwrap();
            bench.beat();
            bench.send(20, 20);
            assert_eq!(bench.receive(Duration::from_millis(200)), 20);
            let told = std::mem::take(&mut bench.told[0]).departures;
            told.last().map_or(0, |left| left.packets)
        };
        let carried = |packets: u64, sent| assert!(is_seen(packets, sent), "{packets} of {sent}");
        let kept = BundleOrigin::Kept { place: 0, has_other_keys: false };
        carried(carry(&mut bench, &config, kept), 20);
        config.bundles[0].to = vec!["10.9.0.0/16".parse().unwrap()];
        assert_eq!(carry(&mut bench, &config, kept), 0, "of no bundle");
        config.bundles[0].to = site;
        carried(carry(&mut bench, &config, kept), 40);
        config.bundles[0].id = BundleId(7);
        carried(carry(&mut bench, &config, BundleOrigin::New), 20);
    });
}

#[test]
fn ports_that_are_made_again_are_attached_to() {
    behind_a_bridge(|mut bench| {
        let rate = Rate::from_mbit_per_sec(20);
        bench.set_rate(Some(rate));
        bench.beat();
        let index = |device| nix::net::if_::if_nametoindex(device).ok();
        let seen =
            || Observation { lan: index("lan"), wan: index("wan"), ..Observation::default() };
        for (name, peer) in [("wan", "sink"), ("lan", "source"), ("wan", "sink")] {
            run(&format!("ip link del {name}"));
            bench.kernel.follow(&seen());
            run(&format!("ip link add {peer} type veth peer name {name}"));
            for command in ["master br0", "up"] {
                run(&format!("ip link set {name} {command}"));
            }
            run(&format!("ip link set {peer} up"));
            crate::bridge::await_forwarding("lan", "wan").unwrap();
            bench.kernel.follow(&seen());
            await_failed(&mut bench, false);
            bench.source = PacketPort::open("source", Direction::Transmit).unwrap();
            bench.sink = PacketPort::open("sink", Direction::Receive).unwrap();
            // As before: the rate is still wanted.
            let deadline = Instant::now() + Duration::from_secs(20);
            let is_set = |class: &str| {
                class.starts_with("class htb fb:1 ") && class.contains("rate 20Mbit ")
            };
            while !shown("class").lines().any(is_set) {
                assert!(Instant::now() < deadline, "{name}: {}", shown("class"));
            }
            bench.turn();
            bench.told[0].departures.clear();
            let started = Instant::now();
            bench.send(400, 4);
            let arrived = bench.receive(Duration::from_millis(200));
            let took = started.elapsed() - Duration::from_millis(200);
            // 240 ms at the rate, minus the burst that may leave at once.
            assert_eq!(arrived, 400, "{name}");
            assert!(took > Duration::from_millis(200), "{name}: {took:?}");
            let told = &bench.told[0].departures;
            let [first, last] = [told.first(), told.last()].map(|it| it.unwrap().packets);
            assert!(last - first > 300, "{name}: {first} to {last}");
        }
    });
}

#[test]
fn port_that_cannot_be_attached_to_is_told() {
    behind_a_bridge(|mut bench| {
        let kernel = &mut bench.kernel;
        let [lan, wan] = kernel.indices;
        let seen = |lan, wan| Observation { lan, wan, ..Observation::default() };
        kernel.follow(&seen(lan, wan));
        assert!(kernel.failed_conditions().is_empty(), "{:?}", kernel.failed_conditions());
        // There is no such device.
        kernel.follow(&seen(lan, Some(9999)));
        let [failed] = kernel.failed_conditions() else {
            panic!("{:?}", kernel.failed_conditions())
        };
        assert!(failed.fault.found.starts_with("wan was made again: "), "{failed:?}");
        kernel.follow(&seen(lan, wan));
        assert!(kernel.failed_conditions().is_empty(), "{:?}", kernel.failed_conditions());
    });
}

#[test]
fn added_bundle_has_its_own_classes_and_queue() {
    behind_a_bridge(|mut bench| {
        add_bundle(&mut bench);
        // 6 ms per frame, and 0.1 s for the first burst of each leaf.
        bench.set_rate(Some(Rate::from_mbit_per_sec(2)));
        bench.beat();
        bench.send(200, 200);
        // The datapath reads the queue when a frame leaves.
        std::thread::sleep(Duration::from_millis(150));
        bench.turn();
        assert!(bench.kernel.backlog(0).packets > 10, "{:?}", bench.kernel.backlog(0));
        assert_eq!(bench.kernel.backlog(1).packets, 0);
        let classes = shown("class");
        assert!(classes.contains("class htb fb:2 "), "{classes}");
        let folder = tempfile::tempdir().unwrap();
        let (mut config, seen) = (config(folder.path()), Observation::default());
        let too_many = bench.kernel.classes.room() + 1;
        config.bundles = vec![config.bundles[0].clone(); too_many];
        let origins = vec![BundleOrigin::New; too_many];
        let refused = bench.kernel.rearrange(clock::now(), &config, &origins, &seen).unwrap_err();
        assert!(refused.to_string().contains("up to 8 bundles"), "{refused}");
    });
}

/// Adds a bundle to 10.9.0.0/16.
fn add_bundle(bench: &mut Bench) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    let to = vec!["10.9.0.0/16".parse().unwrap()];
    let added = BundleConfig { id: BundleId(2), to, ..config.bundles[0].clone() };
    config.bundles.push(added);
    let origins = [BundleOrigin::Kept { place: 0, has_other_keys: false }, BundleOrigin::New];
    let seen = Observation::default();
    bench.kernel.rearrange(clock::now(), &config, &origins, &seen).unwrap();
    bench.told.push(Told::default());
    bench.schedule = Schedule::new(2);
}

#[test]
fn flood_into_one_bundle_costs_another_nothing() {
    const PROBES: u64 = 60;
    const PROBE: [u8; 6] = [2, 0, 0, 0, 0, 7];
    behind_a_bridge(|mut bench| {
        add_bundle(&mut bench);
        bench.kernel.steer(clock::now(), 1, &steering(Some(Rate::from_mbit_per_sec(5))));
        bench.set_rate(Some(Rate::from_bits_per_sec(240_000)));
        bench.beat();
        // 60 bytes from one of 4,096 flows, which all have a leaf.
        let small = |bench: &mut Bench| {
            let mut frame = bench.frame();
            frame.truncate(60);
            frame[16..18].copy_from_slice(&46_u16.to_be_bytes());
            frame[38..40].copy_from_slice(&26_u16.to_be_bytes());
            frame[34..36].copy_from_slice(&(bench.sent as u16 % 4096 + 1000).to_be_bytes());
            set_checksum(&mut frame);
            frame
        };
        let full = |bench: &Bench| {
            let counts = bench.kernel.classes.classified().unwrap();
            counts.full + counts.overlimit
        };
        let deadline = Instant::now() + Duration::from_secs(100);
        while full(&bench) < 1000 {
            assert!(Instant::now() < deadline, "{:?}", bench.kernel.classes.classified());
            (0..64).for_each(|_| {
                let frame = small(&mut bench);
                bench.source.send(&frame);
            });
            bench.source.flush().unwrap();
            bench.turn();
        }
        let (before, mut arrived) = (full(&bench), 0);
        let mut take = |bench: &mut Bench| {
            let count = &mut |frame: &[u8], _: Timestamp| {
                arrived += u64::from(frame[6..12] == PROBE);
            };
            bench.sink.receive(64, count).unwrap();
        };
        for _ in 0..PROBES {
            let mut probe = bench.frame();
            probe.truncate(98);
            probe[6..12].copy_from_slice(&PROBE);
            probe[16..18].copy_from_slice(&84_u16.to_be_bytes());
            probe[31] = 9;
            set_checksum(&mut probe);
            assert!(bench.source.send(&probe));
            // 8,000 packets/s.
            for _ in 0..10 {
                for _ in 0..8 {
                    let frame = small(&mut bench);
                    bench.source.send(&frame);
                }
                bench.source.flush().unwrap();
                std::thread::sleep(Duration::from_millis(1));
                bench.turn();
                take(&mut bench);
            }
        }
        let deadline = Instant::now() + Duration::from_secs(1);
        while Instant::now() < deadline {
            bench.turn();
            take(&mut bench);
        }
        assert!(full(&bench) > before + 1000, "the flood is refused meanwhile");
        assert_eq!(arrived, PROBES);
    });
}

#[test]
fn many_bulk_flows_wait_no_longer_than_one() {
    const SPARSE: [u8; 3] = [99, 77, 55];
    behind_a_bridge(|mut bench| {
        bench.set_rate(Some(Rate::from_mbit_per_sec(20)));
        // Leaves get other turns one after the other, within a second of the rate.
        std::thread::sleep(Duration::from_secs(2));
        bench.beat();
        let (mut bulk, mut sparse) = (0, 0);
        let (mut most, mut sent, mut arrived) = (ByteCount::ZERO, [0; 256], [0; 256]);
        // 20 flows of 60 Mbit/s together, and a packet of another flow every 20 ms.
        let started = Instant::now();
        while bulk < 5000 {
            let ms = started.elapsed().as_millis() as usize;
            let mut send = |number: u8, bench: &mut Bench| {
                let mut frame = bench.frame();
                frame[35] = number;
                sent[usize::from(number)] += 1;
                assert!(bench.source.send(&frame));
            };
            while bulk < 5 * ms {
                send((bulk % 20) as u8, &mut bench);
                bulk += 1;
            }
            while sparse < ms / 20 {
                send(SPARSE[sparse % 3], &mut bench);
                sparse += 1;
            }
            bench.source.flush().unwrap();
            let count = &mut |frame: &[u8], _: Timestamp| {
                arrived[usize::from(frame[35])] += usize::from(frame[6..12] == SOURCE);
            };
            bench.sink.receive(128, count).unwrap();
            bench.turn();
            most = most.max(bench.kernel.backlog(0).bytes);
        }
        let count = &mut |frame: &[u8], _: Timestamp| {
            arrived[usize::from(frame[35])] += usize::from(frame[6..12] == SOURCE);
        };
        let ended = Instant::now();
        while ended.elapsed() < Duration::from_millis(500) {
            bench.sink.receive(128, count).unwrap();
            bench.turn();
        }
        let most_ms = most.as_f64() * 8.0 / 20e3;
        println!("at most {most_ms:.0} ms of the rate wait");
        // Without a common limit it is 2 s.
        assert!((100.0..200.0).contains(&most_ms), "{most_ms} ms of the rate wait");
        // The kernel's hash may put a sparse flow into the leaf of another one, but hardly two.
        let complete = SPARSE.map(usize::from).map(|flow| arrived[flow] == sent[flow]);
        assert!(complete.iter().filter(|it| **it).count() >= 2, "{sent:?}: {arrived:?}");
        let mean = arrived[..20].iter().sum::<usize>() / 20;
        let close = arrived[..20].iter().filter(|it| it.abs_diff(mean) < mean / 4).count();
        assert!(close >= 16, "{:?}", &arrived[..20]);
    });
}

#[test]
fn shares_grow_with_few_bundles_and_small_frames() {
    let shares = [(1, 64), (1, 1518), (4, 1518), (1024, 1518), (1024, 9018)];
    let shares = shares.map(|(bundles, frame_bytes)| share(bundles, frame_bytes));
    assert_eq!(shares, [131_072, 88_417, 22_104, 86, 14]);
}

#[test]
fn all_flows_may_share_one_queue() {
    packets_wait_in(KernelQdisc::Fifo);
}

#[test]
fn packets_may_wait_in_a_kernel_qdisc() {
    if forebay_skips::skip_without(forebay_skips::Need::FlowQdiscs) {
        return;
    }
    for qdisc in [KernelQdisc::FqCodel, KernelQdisc::Cake, KernelQdisc::Fq, KernelQdisc::Sfq] {
        packets_wait_in(qdisc);
    }
}

fn packets_wait_in(qdisc: KernelQdisc) {
    waiting_in(Some(qdisc), move |mut bench| {
        bench.beat();
        // 6 ms per frame.
        bench.set_rate(Some(Rate::from_mbit_per_sec(2)));
        let started = Instant::now();
        bench.send(40, 10);
        // An emulated machine may stand still for a part of this time.
        let quiet = Duration::from_secs(1);
        let received = bench.receive(quiet);
        let took = started.elapsed() - quiet;
        // CoDel drops from a queue that lasts for more than its interval of 100 ms: this one lasts for 240
        // ms.
        let dropped_max =
            if matches!(qdisc, KernelQdisc::FqCodel | KernelQdisc::Cake) { 4 } else { 0 };
        assert!((40 - dropped_max..=40).contains(&received), "{qdisc:?}: {received} of 40");
        assert!(took > Duration::from_millis(6 * received - 20), "{qdisc:?}: {took:?}");
        let left = *bench.told[0].departures.last().unwrap();
        assert!(is_seen(left.packets, received), "{qdisc:?}: {left:?}");
        let classes = shown("class");
        // The other class is for packets in no bundle.
        assert_eq!(classes.matches("class htb ").count(), 2, "{classes}");
        let in_leaf = qdisc.kind().map(|kind| format!("qdisc {kind} "));
        assert!(in_leaf.is_none_or(|it| shown("qdisc").contains(&it)), "{}", shown("qdisc"));
        assert_eq!(bench.kernel.discipline(), Some(qdisc.nearest()));
    });
}

#[test]
fn next_start_removes_a_killed_box_s_remains() {
    behind_a_bridge(|bench| {
        // Like a kill: the programs go, and the thread removes nothing.
        let Kernel { classes, rates, .. } = bench.kernel;
        drop(classes);
        std::mem::forget(rates);
        let started = clock::now();
        let mut bench = Bench::new(None);
        bench.beat();
        bench.send(20, 20);
        assert_eq!(bench.receive(Duration::from_millis(200)), 20);
        let left = bench.told[0].departures.last().unwrap();
        assert!(left.at > started && is_seen(left.packets, 20), "{left:?}");
    });
}

/// Waits until the datapath reports that its queues have failed, or no longer does.
fn await_failed(bench: &mut Bench, has_failed: bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        assert_eq!(bench.kernel.health(), Health::default());
        let failed = bench.kernel.failed_conditions();
        if failed.is_empty() != has_failed {
            assert!(failed.iter().all(|it| it.condition == ROOT_QDISC), "{failed:?}");
            return;
        }
        assert!(Instant::now() < deadline, "{failed:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn removed_queues_are_reported_and_rebuilt() {
    behind_a_bridge(|mut bench| {
        bench.set_rate(Some(Rate::from_mbit_per_sec(20)));
        let all = shown("class").lines().count();
        for taken in [
            "tc class del dev wan classid fb:401",
            "tc qdisc del dev wan parent fb:402",
            "tc qdisc del dev wan root",
        ] {
            run(taken);
            await_failed(&mut bench, true);
            await_failed(&mut bench, false);
            let (classes, qdiscs) = (shown("class"), shown("qdisc"));
            assert!(classes.contains(" rate 20Mbit "), "{taken}");
            assert_eq!(classes.lines().count(), all, "{taken}");
            // Below the class of the bundle each leaf has the class of its TBF in addition to its own. There
            // is one more leaf, for packets in no bundle.
            assert_eq!(2 * qdiscs.matches("qdisc tbf ").count(), all - 2, "{taken}");
        }
        bench.beat();
        bench.send(20, 20);
        assert_eq!(bench.receive(Duration::from_millis(200)), 20);
        let left = bench.told[0].departures.last().unwrap();
        assert!(is_seen(left.packets, 20), "{left:?}");
    });
}

#[test]
fn change_by_another_program_is_told_and_undone() {
    behind_a_bridge(|mut bench| {
        bench.set_rate(Some(Rate::from_mbit_per_sec(20)));
        let qdisc = |handle: &str| {
            let all = shown("qdisc");
            let line = all.lines().find(|line| line.contains(handle)).unwrap();
            line.split(" direct_packets").next().unwrap().to_owned()
        };
        let class = |handle: &str| {
            let all = shown("class");
            all.lines().find(|line| line.contains(handle)).unwrap().to_owned()
        };
        // Leaves get other limits a moment after the rate.
        std::thread::sleep(Duration::from_millis(500));
        let all = || (qdisc("tbf 4fc: "), class(" fb:1 "), class(" fb:401 "), class(" fb:4000 "));
        let before = all();
        for changed in [
            "tc qdisc change dev wan handle 4fc: parent fb:401 tbf rate 64kbit burst 1600 limit 9000",
            "tc class change dev wan parent fb: classid fb:1 htb rate 1mbit",
            "tc class change dev wan parent fb:1 classid fb:401 htb rate 1mbit ceil 1mbit",
            "tc class change dev wan parent fb: classid fb:4000 htb rate 1mbit",
            "tc qdisc add dev wan handle 7fff: parent 4fc:1 pfifo limit 1",
        ] {
            assert!(bench.kernel.failed_conditions().is_empty());
            run(changed);
            await_failed(&mut bench, true);
            let found = &bench.kernel.failed_conditions()[0].fault.found;
            assert!(found.contains("another program has changed "), "{changed}: {found}");
            await_failed(&mut bench, false);
            assert_eq!(all(), before, "{changed}");
            assert!(!shown("qdisc").contains("7fff"), "{}", shown("qdisc"));
        }
        // A class of no bundle does not belong to the box.
        run("tc class add dev wan parent fb: classid fb:300 htb rate 1mbit");
        std::thread::sleep(Duration::from_millis(100));
        bench.kernel.health();
        assert!(
            bench.kernel.failed_conditions().is_empty(),
            "{:?}",
            bench.kernel.failed_conditions()
        );
    });
}

#[test]
fn packets_leave_at_once_when_queues_are_damaged() {
    waiting_in(Some(KernelQdisc::Fifo), |mut bench| {
        run("tc class add dev wan parent fb: classid fb:300 htb rate 1mbit");
        bench.beat();
        // 24 ms per frame.
        bench.set_rate(Some(Rate::from_bits_per_sec(500_000)));
        let started = Instant::now();
        bench.send(50, 50);
        run("tc class del dev wan classid fb:300");
        let quiet = Duration::from_millis(200);
        assert_eq!(bench.receive(quiet), 50);
        let took = started.elapsed() - quiet;
        assert!(took < Duration::from_millis(600), "{took:?}, and 1.2 s at the rate");
    });
}

#[test]
fn removed_queues_hold_no_packets() {
    waiting_in(Some(KernelQdisc::Fifo), |mut bench| {
        bench.beat();
        // 60 ms per frame.
        bench.set_rate(Some(Rate::from_bits_per_sec(200_000)));
        bench.send(20, 20);
        // The datapath reads the queue when a frame leaves.
        std::thread::sleep(Duration::from_millis(150));
        bench.turn();
        assert!(bench.kernel.backlog(0).packets > 0);
        run("tc qdisc replace dev wan root handle 2: pfifo");
        await_failed(&mut bench, true);
        bench.turn();
        assert_eq!(bench.kernel.backlog(0).packets, 0);
    });
}

#[test]
fn foreign_qdisc_in_place_of_the_queues_stays() {
    behind_a_bridge(|mut bench| {
        run("tc qdisc replace dev wan root handle 2: pfifo");
        await_failed(&mut bench, true);
        bench.kernel.hand_back();
        bench.send(20, 20);
        assert_eq!(bench.receive(Duration::from_millis(500)), 20);
        bench.kernel.health();
        let found = &bench.kernel.failed_conditions()[0].fault.found;
        assert_eq!(
            found,
            "queues at wan: another program or user has configured another qdisc there"
        );
        assert!(shown("qdisc").contains("qdisc pfifo 2: root"), "{}", shown("qdisc"));
        run("tc qdisc del dev wan root");
        await_failed(&mut bench, false);
        bench.set_rate(Some(Rate::from_mbit_per_sec(20)));
        run("tc qdisc replace dev wan root handle 2: pfifo");
        drop(bench);
        assert!(shown("qdisc").contains("qdisc pfifo 2: root"), "{}", shown("qdisc"));
    });
}

#[test]
fn segments_of_a_super_packet_leave_at_rate() {
    let folder = tempfile::tempdir().unwrap();
    let mut bundle = Bundle::new(&config(folder.path()).bundles[0]);
    let mut left_us = |rate, packets: u64, ahead_bytes| {
        bundle.rate = rate;
        let report = Report {
            hash: 0,
            received_at: Timestamp::from_nanos(1_000_000),
            received_bytes: ByteCount::new(1514 * packets),
            received_packets: packets,
            received_ce: 0,
            epoch_size: EpochSize::MAX,
        };
        let ahead = ByteCount::new(ahead_bytes);
        let left = bundle.departures(&Boundary { bundle: BundleId(1), report, identity: 0, ahead });
        assert_eq!((left.packets, left.bytes), (packets, report.received_bytes));
        left.at.as_nanos() / 1000
    };
    let rate = Some(Rate::from_mbit_per_sec(1000));
    assert_eq!(left_us(rate, 1, 0), 1000);
    assert_eq!(left_us(rate, 43, 62_500), 1500);
    assert_eq!(left_us(rate, 44, 0), 1500, "not before the packets in front of it");
    assert_eq!(left_us(None, 45, 125_000), 1500, "all at once");
}

#[test]
fn a_frame_is_sampled_as_core_does() {
    behind_a_bridge(|mut bench| {
        bench.beat();
        let frame = bench.frame();
        let headers = Headers::parse(&frame).unwrap();
        let hash = SampleBlock::new(BlockVersion::V2, &headers, &frame).hash(&KEY);
        assert!(bench.source.send(&frame));
        bench.source.flush().unwrap();
        bench.receive(Duration::from_millis(100));
        let told = &bench.told[0].departures;
        let is_boundary = epoch_size().is_boundary(hash);
        assert_eq!(told.iter().any(|sent| sent.boundary.is_some()), is_boundary);
        assert_eq!(told.last().unwrap().bytes, ByteCount::new(1514));
    });
}
