//! Real connections over loopback, each with its socket option, and a reader that is trivial.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_core::cc::interim::{Beta, SlowStart};
use forebay_core::cc::{self, CongestionControl, Field, Interim, SendLimits};
use forebay_core::spec::Spec;
use forebay_core::units::{ByteCount, Rate};
use libbpf_rs::MapCore;
use libbpf_rs::query::{MapInfoIter, ProgInfoIter, ProgInfoQueryOptions};

use super::super::{
    Cadence, Datapath, Decision, Events, FlowId, Head, Meter, Mode, NAME_MAX, Native, NativeKind,
    Options, Record, Reporting,
};
use super::safety::take_slot;
use crate::Error;
use crate::program::tests::loaded;

/// Rate of the transfers here, for the machine's sake.
pub(super) const RATE: Rate = Rate::from_mbit_per_sec(160);
/// Longest wait for an event that must happen.
pub(super) const LONG: Duration = Duration::from_secs(10);

/// A name that no other test has.
pub(super) fn fresh_name() -> String {
    /// Names so far.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("fbt{:x}_{count}", std::process::id());
    assert!(name.len() <= NAME_MAX);
    name
}

pub(super) fn options() -> Options {
    Options { flows: 256, ..Options::named(&fresh_name()) }
}

pub(super) fn is_registered(name: &str) -> bool {
    let list = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    list.expect("the kernel's list").split_whitespace().any(|one| one == name)
}

/// Waits until `condition` holds.
pub(super) fn until(what: &str, condition: impl FnMut() -> bool) {
    until_with(what, condition, || thread::sleep(Duration::from_millis(2)));
}

/// As [`until`] where the condition does not hold for long.
pub(super) fn until_at_once(what: &str, condition: impl FnMut() -> bool) {
    until_with(what, condition, thread::yield_now);
}

fn until_with(what: &str, mut condition: impl FnMut() -> bool, pause: impl Fn()) {
    let deadline = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        pause();
    }
}

pub(super) fn set_option(socket: &impl AsRawFd, level: i32, name: i32, value: &[u8]) {
    // SAFETY: the value outlives the call.
    let status = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), value.len() as u32)
    };
    assert_eq!(status, 0, "option {name}: {}", std::io::Error::last_os_error());
}

fn congestion_control(socket: &impl AsRawFd) -> String {
    let mut name = [0_u8; NAME_MAX + 1];
    let mut len = name.len() as u32;
    // SAFETY: the kernel writes at most `len` bytes.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &mut len,
        )
    };
    assert_eq!(status, 0);
    String::from_utf8_lossy(&name).trim_end_matches('\0').to_string()
}

/// The kernel's information about a connection.
pub(super) fn tcp_info(socket: &impl AsRawFd) -> libc::tcp_info {
    // SAFETY: plain numbers, for which zero is valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `len` bytes.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &mut len,
        )
    };
    assert_eq!(status, 0);
    info
}

/// Connects with this congestion control and segments of 1448 bytes.
pub(super) fn connect(to: SocketAddr, name: &str) -> TcpStream {
    let IpAddr::V4(ip) = to.ip() else { panic!("{to}") };
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    assert!(fd >= 0);
    // SAFETY: the kernel just gave us this descriptor.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    set_option(&socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes());
    set_option(&socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG, &1460_u32.to_ne_bytes());
    // SAFETY: plain numbers, for which zero is valid.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::AF_INET as u16;
    address.sin_port = to.port().to_be();
    address.sin_addr.s_addr = u32::from(ip).to_be();
    // SAFETY: an address of the size that is given, which outlives the call.
    let status = unsafe {
        libc::connect(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_in>() as u32,
        )
    };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    TcpStream::from(socket)
}

/// Takes `connections` one after the other, each until its end; returns the bytes of all.
pub(super) fn sink(connections: usize) -> (SocketAddr, JoinHandle<u64>) {
    sink_with(connections, |_| {})
}

/// A sink with `prepare` for each connection before anything is read.
pub(super) fn sink_with(
    connections: usize,
    mut prepare: impl FnMut(&TcpStream) + Send + 'static,
) -> (SocketAddr, JoinHandle<u64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("its address");
    let thread = thread::spawn(move || {
        let mut bytes = 0;
        let mut buffer = vec![0; 1 << 16];
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().expect("a connection");
            prepare(&stream);
            while let Ok(count) = stream.read(&mut buffer) {
                if count == 0 {
                    break;
                }
                bytes += count as u64;
            }
        }
        bytes
    });
    (address, thread)
}

/// Sends `bytes` bytes on a connection of its own.
pub(super) fn send(to: SocketAddr, name: &str, bytes: usize) -> JoinHandle<SocketAddr> {
    send_on(connect(to, name), name, bytes)
}

/// Sends at [`RATE`] before any decision, too: a busy machine may read the first record late.
pub(super) fn send_paced(to: SocketAddr, name: &str, bytes: usize) -> JoinHandle<SocketAddr> {
    let stream = connect(to, name);
    let rate = (RATE.as_bits_per_sec() / 8) as u32;
    set_option(&stream, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate.to_ne_bytes());
    send_on(stream, name, bytes)
}

fn send_on(mut stream: TcpStream, name: &str, bytes: usize) -> JoinHandle<SocketAddr> {
    assert_eq!(congestion_control(&stream), name);
    thread::spawn(move || {
        let local = stream.local_addr().expect("an address");
        let chunk = vec![7; 1 << 16];
        let mut left = bytes;
        while left > 0 {
            left -= stream.write(&chunk[..left.min(chunk.len())]).expect("sent");
        }
        local
    })
}

pub(super) fn paced(limits: SendLimits) -> SendLimits {
    SendLimits { pacing_rate: Some(RATE), ..limits }
}

/// A connection's algorithm and its input so far.
struct Led {
    algorithm: Box<dyn CongestionControl>,
    meter: Meter,
}

impl Led {
    fn new(head: &Head) -> Self {
        let fields = [
            Field::Rtt,
            Field::Lost,
            Field::EcnCe,
            Field::DeliveryRate,
            Field::SendRate,
            Field::InFlight,
        ];
        let mut algorithm = cc::build(&Spec::named("newreno"), &fields).expect("newreno");
        let mss = u64::from(head.mss);
        algorithm.init(head.at, ByteCount::new(mss), ByteCount::new(u64::from(head.cwnd) * mss));
        Self { algorithm, meter: Meter::new(head) }
    }
}

/// Answers every connection's records as newreno says.
#[derive(Default)]
pub(super) struct Agent {
    flows: BTreeMap<FlowId, Led>,
    pub(super) records: Vec<Record>,
    acked: u64,
}

impl Agent {
    /// Takes the waiting records; returns whether a connection ended.
    pub(super) fn serve(&mut self, datapath: &mut Datapath, reporting: Reporting) -> bool {
        let mut taken = Vec::new();
        datapath.drain(&mut |record| taken.push(record)).expect("drained");
        let mut has_ended = false;
        for record in &taken {
            let head = record.head();
            let led = self.flows.entry(head.flow).or_insert_with(|| Led::new(head));
            if let Record::Report(report) = record {
                report.congestion_events().for_each(|event| led.algorithm.on_event(head.at, event));
                let measurement = led.meter.measure(report);
                self.acked += measurement.acked.as_u64();
                led.algorithm.on_measurement(head.at, &measurement);
            }
            if head.events.contains(Events::CLOSE) {
                has_ended = true;
                continue;
            }
            let (limits, interim) = (paced(led.algorithm.send_limits()), led.algorithm.interim());
            datapath.decide(head, &Decision::new(&limits, &interim, head.mss, reporting));
        }
        self.records.extend(taken);
        has_ended
    }
}

/// Serves until the connection that `received` reads has ended. The kernel may leave out the call that
/// reports the end (docs/operate/agent.md): a second of silence after all has been received does as well.
pub(super) fn serve_to_end<T>(
    agent: &mut Agent,
    datapath: &mut Datapath,
    received: &JoinHandle<T>,
) {
    serve_to_ends(agent, datapath, received, |has_ended, _| has_ended);
}

/// Serves where `is_told` says whether all have ended: whether one just has, and the datapath.
pub(super) fn serve_to_ends<T>(
    agent: &mut Agent,
    datapath: &mut Datapath,
    received: &JoinHandle<T>,
    is_told: impl Fn(bool, &Datapath) -> bool,
) {
    /// Without a record for this time, the wait ends.
    const SILENT: Duration = Duration::from_secs(1);
    let mut heard = Instant::now();
    until("it ends", || {
        let before = agent.records.len();
        let has_ended = agent.serve(datapath, Reporting::default());
        if agent.records.len() > before || !received.is_finished() {
            heard = Instant::now();
        }
        is_told(has_ended, datapath) || heard.elapsed() > SILENT
    });
}

/// Serves until a connection ends.
fn serve_one(datapath: &mut Datapath, reporting: Reporting) -> Agent {
    let mut agent = Agent::default();
    let deadline = Instant::now() + LONG;
    while !agent.serve(datapath, reporting) {
        assert!(Instant::now() < deadline, "no connection ended: {} records", agent.records.len());
        datapath.wait(Duration::from_millis(2)).expect("waited");
    }
    agent
}

#[test]
fn a_transfer_under_decisions_is_told_whole() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    for (name, count) in datapath.instructions() {
        println!("{name}: {count} instructions verified");
    }
    /// Bytes of the transfer.
    const BYTES: usize = 4 << 20;
    let (address, received) = sink(1);
    let sender = send_paced(address, datapath.name(), BYTES);
    let agent = serve_one(&mut datapath, Reporting::default());
    let local = sender.join().expect("sent");
    assert_eq!(received.join().expect("received"), BYTES as u64);

    let Some(Record::Opened(opened)) = agent.records.first() else { panic!("not opened first") };
    assert_eq!((opened.local, opened.remote), (local, address));
    assert_eq!((opened.head.mss, opened.head.cwnd), (1448, 10));
    let heads: Vec<&Head> = agent.records.iter().map(Record::head).collect();
    assert!(heads.iter().enumerate().all(|(index, head)| head.seq as usize == index + 1));
    assert!(heads.windows(2).all(|pair| pair[0].at <= pair[1].at));
    let last = heads.last().expect("records");
    // SYN and FIN count as a byte each.
    assert!(last.bytes_acked.abs_diff(BYTES as u64) <= 2, "{}", last.bytes_acked);
    let segments = BYTES.div_ceil(1448) as u64 * 1448;
    assert!(agent.acked.abs_diff(segments) < 100 * 1448, "{} bytes measured", agent.acked);
    let led = heads.iter().filter(|head| head.mode == Mode::Agent).count();
    assert!(led > 20 && heads.iter().all(|head| head.mode != Mode::Fallback), "{led}");

    let counters = datapath.counters();
    assert_eq!((counters.opened, counters.closed, counters.refused), (1, 1, 0));
    assert_eq!((counters.records, counters.dropped), (heads.len() as u64, 0));
    assert_eq!((counters.fallbacks, counters.refused_decisions), (0, 0));
    assert_eq!(datapath.mode(last.flow), None);
    assert_eq!(datapath.free_slots(), 256);
}

#[test]
fn a_record_for_every_acknowledgement_tells_each_once() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    let (address, received) = sink(1);
    let sender = send_paced(address, datapath.name(), 2 << 20);
    let each = Reporting { cadence: Cadence::Every(Duration::ZERO), wake: true };
    let agent = serve_one(&mut datapath, each);
    sender.join().expect("sent");
    received.join().expect("received");
    let counts: Vec<u32> = agent
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Report(report) if report.head.events == Events::TIMER => Some(report.acks),
            _ => None,
        })
        .collect();
    let alone = counts.iter().filter(|acks| **acks == 1).count();
    assert!(counts.len() > 20 && alone + 3 >= counts.len(), "{alone} of {}", counts.len());
}

#[test]
fn algorithm_name_lives_as_long_as_its_loader() {
    let options = options();
    let Some(datapath) = loaded(Datapath::register(&options)) else { return };
    assert!(is_registered(&options.name));
    let error = Datapath::register(&options).map(drop).unwrap_err();
    assert!(matches!(error, Error::NameTaken { .. }), "{error}");
    drop(datapath);
    until("the name is unregistered", || !is_registered(&options.name));
}

/// The maps of a datapath, by their numbers in the kernel.
pub(super) fn maps_of(datapath: &Datapath) -> BTreeSet<u32> {
    datapath.maps.iter().map(|map| map.info().expect("map info").info.id).collect()
}

/// The programs of this machine that use one of these maps.
fn programs_with(maps: &BTreeSet<u32>) -> BTreeSet<u32> {
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    ProgInfoIter::with_query_opts(options)
        .filter(|program| program.map_ids.iter().any(|id| maps.contains(id)))
        .map(|program| program.id)
        .collect()
}

#[test]
fn many_short_connections_leak_no_kernel_resources() {
    /// Far more than the slots, so that a leak of one per connection shows.
    const CONNECTIONS: u64 = 10_000;
    let Some(mut datapath) = loaded(Datapath::register(&Options { flows: 8, ..options() })) else {
        return;
    };
    let maps = maps_of(&datapath);
    let programs = programs_with(&maps);
    assert!(maps.len() == 8 && !programs.is_empty(), "{maps:?} {programs:?}");
    let (address, received) = sink(CONNECTIONS as usize);
    let (mut opened, mut closed) = (0, 0);
    let mut numbers = BTreeSet::new();
    let mut drain = |datapath: &mut Datapath| {
        let mut take = |record: Record| {
            numbers.insert(record.head().flow.generation);
            opened += u64::from(matches!(record, Record::Opened(_)));
            closed += u64::from(record.head().events.contains(Events::CLOSE));
        };
        datapath.drain(&mut take).expect("drained");
    };
    for _ in 0..CONNECTIONS {
        let mut stream = connect(address, datapath.name());
        stream.write_all(b"hello").expect("sent");
        drop(stream);
        drain(&mut datapath);
    }
    assert_eq!(received.join().expect("received"), 5 * CONNECTIONS);
    until("all end", || datapath.counters().closed == CONNECTIONS);
    drain(&mut datapath);
    let counters = datapath.counters();
    let told = CONNECTIONS - counters.refused;
    assert_eq!((counters.opened, counters.dropped), (CONNECTIONS, 0));
    assert_eq!((opened, closed, numbers.len() as u64), (told, told, told));
    assert_eq!((datapath.free_slots(), datapath.connections().count()), (8, 0));
    let mut slots: Vec<u32> = std::iter::from_fn(|| take_slot(&datapath)).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2, 3, 4, 5, 6, 7], "each waits for its next connection");
    drop(datapath);
    until("the maps are freed", || !MapInfoIter::default().any(|map| maps.contains(&map.id)));
    until("the programs are freed", || programs_with(&maps).is_empty());
}

#[test]
fn decision_takes_effect_at_next_ack() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    let (address, received) = sink(1);
    let sender = send(address, datapath.name(), 24 << 20);
    let hold = SendLimits {
        cwnd: Some(ByteCount::new(37 * 1448)),
        ssthresh: Some(ByteCount::new(21 * 1448)),
        pacing_rate: Some(RATE),
        ..SendLimits::default()
    };
    let mut held = Vec::new();
    let mut moving = Vec::new();
    let mut count = 0;
    let mut has_ended = false;
    let deadline = Instant::now() + LONG;
    while !has_ended && Instant::now() < deadline {
        let mut heads = Vec::new();
        let mut rates = Vec::new();
        datapath
            .drain(&mut |record| {
                heads.push(*record.head());
                if let Record::Report(report) = record {
                    rates.push(report.pacing_rate);
                }
            })
            .expect("drained");
        for head in &heads {
            has_ended |= head.events.contains(Events::CLOSE);
            count += 1;
            // Held first; then an interim that grows by a segment per window, as fast as it may, up to
            // 60.
            let interim = Interim {
                growth: ByteCount::new(1448),
                cap: ByteCount::new(60 * 1448),
                slow_start: SlowStart::Standard,
                beta: Some(Beta::of(1, 2)),
                ..Interim::HOLD
            };
            let (limits, interim) = if count < 40 {
                if count > 10 {
                    held.push((head.cwnd, head.ssthresh));
                }
                (hold, Interim::HOLD)
            } else {
                moving.push(head.cwnd);
                (SendLimits::default(), interim)
            };
            datapath
                .decide(head, &Decision::new(&limits, &interim, head.mss, Reporting::default()));
        }
        if (10..40).contains(&count) {
            assert!(rates.iter().all(|rate| rate.as_bits_per_sec().abs_diff(160_000_000) < 8));
        }
        datapath.wait(Duration::from_millis(1)).expect("waited");
    }
    sender.join().expect("sent");
    received.join().expect("received");
    assert!(held.len() > 20 && held.iter().all(|at| *at == (37, Some(21))), "{held:?}");
    assert!(moving.windows(2).all(|pair| pair[0] <= pair[1]), "{moving:?}");
    assert_eq!((moving[0], moving[moving.len() - 1]), (37, 60));
}

#[test]
fn native_algorithms_carry_transfers_and_unregister() {
    for kind in NativeKind::ALL {
        let name = fresh_name();
        let Some(native) = loaded(Native::register(kind, &name)) else { return };
        for (program, count) in native.instructions() {
            println!("{kind:?} {program}: {count} instructions verified");
        }
        let (address, received) = sink(1);
        send(address, native.name(), 8 << 20).join().expect("sent");
        assert_eq!(received.join().expect("received"), 8 << 20);
        assert!(is_registered(&name));
        drop(native);
        until("the name is unregistered", || !is_registered(&name));
    }
}
