//! Rate and cost of a sendbox whose packets stay in the kernel, compared with a plain bridge. Also the latency of
//! short messages through it while bulk traffic competes. These are measurements, not claims.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use forebay_host::port::{Direction, PacketPort, Port};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::{PairSites, Site, Topology};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};

use crate::by_hand::{await_status, signal, start, switch, write_sendbox};
use crate::kernel_queues::{connected, counter, switch_offloads, write_configs};
use crate::many::cpu_time;
use crate::turns::alone;

/// Turns of each rate.
const TURNS: usize = 9;
/// A rate above the machine's capacity.
const UNSHAPED: &str = "100Gbit/s";
/// Rate that short messages share with bulk traffic.
const SHORT_RATE: &str = "96Mbit/s";
/// Bulk flows next to the short messages.
const BULK_FLOWS: u16 = 4;
/// Length of each answer in bytes; none is shorter.
const ANSWER_BYTES: usize = 100;
/// Duration of a flow.
const LASTING: Duration = Duration::from_secs(2);

#[test]
#[ignore = "a measurement, not a claim"]
fn throughput_and_cost_beside_a_plain_bridge() {
    let _turn = alone();
    let topology = connected();
    let sites = &topology.pairs[0];
    for rate in ["1Gbit/s", "5Gbit/s", "10Gbit/s", UNSHAPED] {
        let turns: Vec<Turn> = (0..TURNS).map(|_| Turn::take(sites, rate)).collect();
        let of = |value: fn(&Turn) -> f64| median(turns.iter().map(value).collect());
        println!(
            "max_rate {rate}: {:.2} Gbit/s, plain bridge {:.2}, ratio {:.2}; past the class and \
             unsampled {:.2}, ratio {:.2}; medians of {TURNS} turns",
            of(|turn| turn.boxed),
            of(|turn| turn.plain),
            of(|turn| turn.boxed / turn.plain),
            of(|turn| turn.past),
            of(|turn| turn.past / turn.plain),
        );
    }
    say_cost(sites, "super-packets");
    switch(&sites.left_hosts, "eth0", &["gso", "tso"], "off");
    switch(&sites.left_box, "lan", &["gro"], "off");
    say_cost(sites, "single packets");
}

#[test]
#[ignore = "a measurement, not a claim"]
fn short_messages_beside_bulk_traffic() {
    let _turn = alone();
    let topology = connected();
    let mut turns = [const { Vec::new() }; 2];
    for _ in 0..TURNS {
        for (datapath, turns) in ["kernel", "user"].into_iter().zip(&mut turns) {
            // A box in user space takes packets of the wire's size.
            switch_offloads(&topology, if datapath == "kernel" { "on" } else { "off" });
            turns.push(ShortMessages::measure(&topology, datapath));
        }
    }
    for (datapath, turns) in ["kernel", "user"].into_iter().zip(&turns) {
        let of = |value: fn(&ShortMessages) -> f64| median(turns.iter().map(value).collect());
        println!(
            "{SHORT_RATE}, datapath {datapath}, next to {BULK_FLOWS} bulk flows: 100 bytes and back p50 {:.2}, \
             p99 {:.2} ms; 10 kB and an answer p50 {:.2} ms; {:.3} cores; medians of {TURNS} turns; {} bytes at most at \
             the next hop",
            of(|turn| turn.small_p50_ms),
            of(|turn| turn.small_p99_ms),
            of(|turn| turn.large_p50_ms),
            of(|turn| turn.cores),
            turns.iter().map(|turn| turn.longest_bytes).max().unwrap(),
        );
    }
}

/// Response times of the messages of one connection, sent one after the other.
struct ShortMessages {
    small_p50_ms: f64,
    small_p99_ms: f64,
    large_p50_ms: f64,
    /// The longest frame beyond the sendbox.
    longest_bytes: usize,
    /// Processors that the sendbox uses, without the kernel's work in its place.
    cores: f64,
}

impl ShortMessages {
    fn measure(topology: &Topology, datapath: &str) -> Self {
        let sites = &topology.pairs[0];
        let folder = tempfile::tempdir().unwrap();
        let config = match datapath {
            "kernel" => write_configs(folder.path(), SHORT_RATE)[0].clone(),
            _ => write_sendbox(folder.path(), SHORT_RATE),
        };
        with_the_sendbox(sites, folder.path(), &config, |sendbox, _| {
            let bulks: Vec<_> = (0..BULK_FLOWS).map(|at| endless(sites, 7100 + at)).collect();
            thread::sleep(Duration::from_secs(1));
            let (before, began) = (cpu_time(sendbox.id()), Instant::now());
            let [small, large] = [100, 10_000].map(|bytes| round_trips_ms(sites, bytes));
            let used = cpu_time(sendbox.id()) - before;
            let cores = used.as_secs_f64() / began.elapsed().as_secs_f64();
            let longest_bytes = longest_bytes(&topology.emulator);
            for bulk in bulks {
                bulk.shutdown(Shutdown::Both).unwrap();
            }
            Self {
                small_p50_ms: percentile(&small, 50),
                small_p99_ms: percentile(&small, 99),
                large_p50_ms: percentile(&large, 50),
                longest_bytes,
                cores,
            }
        })
    }
}

/// Starts a flow that sends until its receiver, the returned socket, is shut down.
fn endless(sites: &PairSites, port: u16) -> TcpStream {
    let (mut sender, mut receiver) = connection(sites, port);
    thread::spawn(move || while sender.write_all(&[7; 16_384]).is_ok() {});
    let watched = receiver.try_clone().unwrap();
    thread::spawn(move || io::copy(&mut receiver, &mut io::sink()));
    watched
}

/// The longest frame that a sendbox sends in a fifth of a second.
fn longest_bytes(emulator: &Namespace) -> usize {
    let open = || PacketPort::open("left0", Direction::Receive).map_err(io::Error::other);
    let mut tap = emulator.within(open).unwrap();
    let (mut longest, began) = (0, Instant::now());
    while began.elapsed() < Duration::from_millis(200) {
        tap.receive(4096, &mut |frame, _| longest = longest.max(frame.len())).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    longest
}

/// Round-trip times of many messages of this length, in ms, in order.
fn round_trips_ms(sites: &PairSites, bytes: usize) -> Vec<f64> {
    let (mut asking, mut answering) = connection(sites, 7002);
    let server = thread::spawn(move || {
        let mut message = vec![0; bytes];
        while answering.read_exact(&mut message).is_ok() {
            answering.write_all(&message[..ANSWER_BYTES]).unwrap();
        }
    });
    let (mut times, mut message, began) = (Vec::new(), vec![7; bytes], Instant::now());
    while began.elapsed() < LASTING {
        let sent = Instant::now();
        asking.write_all(&message).unwrap();
        asking.read_exact(&mut message[..ANSWER_BYTES]).unwrap();
        times.push(1e3 * sent.elapsed().as_secs_f64());
        thread::sleep(Duration::from_millis(1));
    }
    drop(asking);
    server.join().unwrap();
    times.sort_by(f64::total_cmp);
    times
}

/// A connection from site to site under Cubic that sends without delay (`TCP_NODELAY`); its two ends.
fn connection(sites: &PairSites, port: u16) -> (TcpStream, TcpStream) {
    let target = SocketAddr::new(Site::RightHosts.address(0).into(), port);
    let listener = sites.right_hosts.within(|| TcpListener::bind(target)).unwrap();
    let sender = sites.left_hosts.within(|| TcpStream::connect(target)).unwrap();
    setsockopt(&sender, sockopt::TcpCongestion, &"cubic".into()).unwrap();
    let receiver = listener.accept().unwrap().0;
    sender.set_nodelay(true).unwrap();
    receiver.set_nodelay(true).unwrap();
    (sender, receiver)
}

fn percentile(in_order: &[f64], percent: usize) -> f64 {
    in_order[in_order.len() * percent / 100]
}

/// Rates of one flow in consecutive measurements, in Gbit/s.
struct Turn {
    /// Over the bridge alone.
    plain: f64,
    /// With a sendbox.
    boxed: f64,
    /// With a sendbox that is stopped: packets pass its programs and its qdisc without a class, and are not
    /// sampled.
    past: f64,
}

impl Turn {
    fn take(sites: &PairSites, rate: &str) -> Self {
        let plain = bulk(sites);
        let (boxed, past) = with_a_sendbox(sites, rate, |shaping, _| {
            let boxed = bulk(sites);
            signal(shaping, Signal::SIGSTOP);
            // Longer than a heartbeat counts.
            thread::sleep(Duration::from_millis(700));
            let past = bulk(sites);
            signal(shaping, Signal::SIGCONT);
            (boxed, past)
        });
        Self { plain, boxed, past }
    }
}

/// Prints the cost of sampling a packet of one flow, from the kernel's own run times of the program.
fn say_cost(sites: &PairSites, what: &str) {
    /// File that makes the kernel measure the run time of BPF programs.
    const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";
    let before = fs::read_to_string(SWITCH).unwrap();
    fs::write(SWITCH, "1").unwrap();
    let status = with_a_sendbox(sites, UNSHAPED, |_, socket| {
        bulk(sites);
        // The box counts departed packets at its next ticks.
        thread::sleep(Duration::from_millis(500));
        await_status(socket)
    });
    fs::write(SWITCH, before).unwrap();
    let packets = status.bundles[0].packets as f64;
    println!(
        "{what}: {:.0} ns a packet to sample it, {:.1} packets a buffer, {} buffers refused by the driver and sent again",
        counter(&status, "sampling_ns") as f64 / packets,
        packets / counter(&status, "sampled") as f64,
        counter(&status, "sent_again"),
    );
}

/// Runs `work` with a sendbox of this rate, its process and its socket. The sendbox must end cleanly on request.
fn with_a_sendbox<T>(sites: &PairSites, rate: &str, work: impl FnOnce(&Child, &Path) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let [config, _] = write_configs(folder.path(), rate);
    with_the_sendbox(sites, folder.path(), &config, work)
}

/// As [`with_a_sendbox`], with this configuration and folder.
fn with_the_sendbox<T>(
    sites: &PairSites,
    folder: &Path,
    config: &Path,
    work: impl FnOnce(&Child, &Path) -> T,
) -> T {
    let mut shaping = start(&sites.left_box, "sendbox", config);
    let socket = folder.join("box.sock");
    await_status(&socket);
    let done = work(&shaping, &socket);
    signal(&shaping, Signal::SIGTERM);
    assert!(shaping.wait().unwrap().success());
    done
}

/// The rate of one flow of large writes, in Gbit/s.
fn bulk(sites: &PairSites) -> f64 {
    /// Bytes of one write or read.
    const CHUNK: usize = 256 << 10;
    let target = SocketAddr::new(Site::RightHosts.address(0).into(), 7001);
    let listener = sites.right_hosts.within(|| TcpListener::bind(target)).unwrap();
    let mut sender = sites.left_hosts.within(|| TcpStream::connect(target)).unwrap();
    let mut receiver = listener.accept().unwrap().0;
    let sending = thread::spawn(move || {
        let (chunk, began) = (vec![7; CHUNK], Instant::now());
        while began.elapsed() < LASTING {
            sender.write_all(&chunk).unwrap();
        }
    });
    let (mut chunk, mut bytes, began) = (vec![0; CHUNK], 0, Instant::now());
    loop {
        match receiver.read(&mut chunk).unwrap() {
            0 => break,
            len => bytes += len,
        }
    }
    let elapsed = began.elapsed();
    sending.join().unwrap();
    8.0 * bytes as f64 / elapsed.as_secs_f64() / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
