//! Time of an acknowledgement beyond an empty program, within a minute and roughly: to compare two
//! versions, run both in turn. The decisive measurement is `forebay platforms --what cpu`.
//!
//! ```text
//! cargo run --release -p forebay-ebpf --example per_ack -- [ROUNDS [MILLISECONDS]]
//! ```
//! Both ends, the agent and the kernel's work on a connection over the loopback device share the last
//! processor. A write has two segments, and acknowledgements come at the rate of kernel Cubic's score.
//! Needs root. Prints the median over the rounds of the mean time of a round's calls (ns), and each
//! round's.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::{Read, Write};
use std::mem::size_of_val;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay_core::cc::interim::{Beta, SlowStart};
use forebay_core::cc::{Interim, SendLimits};
use forebay_core::units::ByteCount;
use forebay_ebpf::tcp::{
    Cadence, Datapath, Decision, Empty, Native, NativeKind, Options, Record, Reporting, RunTimes,
    program_times,
};

/// Name under which the datapath registers.
const NAME: &str = "fb_per_ack";
/// Payload bytes of a segment.
const SEGMENT: usize = 1448;
/// Bytes of a write.
const PIECE: usize = 2 * SEGMENT;
/// Writes that are due at the same time.
const PIECES: u32 = 22;
/// Time between two groups of writes: 1.38 Gbit/s. A shorter time loads the processor more.
const PERIOD: Duration = Duration::from_micros(369);
/// Time that a connection sends before the measurement.
const WARM_UP: Duration = Duration::from_millis(150);
/// Interval at which the agent reads reports.
const NAP: Duration = Duration::from_millis(1);
/// Receive window, so that the receiver never limits the sender.
const WINDOW_BYTES: i32 = 4 << 20;
/// Receive buffer; larger than the window, since the kernel counts the memory of packets.
const BUFFER_BYTES: i32 = 32 << 20;

type Outcome<T> = Result<T, Box<dyn Error>>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Control {
    Empty,
    Native,
    /// A connection without a slot.
    Unled,
    Agent(Cadence),
}

/// Label in the table, and what controls the connection.
const CONTROLS: [(&str, Control); 6] = [
    ("empty", Control::Empty),
    ("native cubic", Control::Native),
    ("fold", Control::Unled),
    ("per round", Control::Agent(Cadence::Round { at_least: Duration::from_millis(1) })),
    ("10 ms", Control::Agent(Cadence::Every(Duration::from_millis(10)))),
    ("per ACK", Control::Agent(Cadence::Every(Duration::ZERO))),
];

fn main() -> Outcome<()> {
    let mut numbers = std::env::args().skip(1).map(|argument| argument.parse::<u32>());
    let rounds = numbers.next().transpose()?.unwrap_or(5);
    let time = Duration::from_millis(numbers.next().transpose()?.unwrap_or(1000).into());
    keep_to_last_processor();
    let _timing = RunTimes::enable()?;
    let mut seen: Vec<Vec<f64>> = vec![Vec::new(); CONTROLS.len()];
    for _ in 0..rounds {
        for (times, (_, control)) in seen.iter_mut().zip(CONTROLS) {
            times.push(call_ns(control, time)?);
        }
    }
    let empty = seen[0].clone();
    for (times, (name, _)) in seen.iter().zip(CONTROLS) {
        let over: Vec<f64> = times.iter().zip(&empty).map(|(time, empty)| time - empty).collect();
        let all: Vec<String> = over.iter().map(|ns| format!("{ns:.0}")).collect();
        println!(
            "{name:>12} {:6.1} over empty {:6.1}  {}",
            median(times),
            median(&over),
            all.join(" ")
        );
    }
    Ok(())
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn keep_to_last_processor() {
    // SAFETY: plain numbers, for which zero is valid; the set outlives the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let last = libc::sysconf(libc::_SC_NPROCESSORS_ONLN).max(1) as usize - 1;
        libc::CPU_SET(last, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// The mean time of a call while traffic flows.
fn call_ns(control: Control, time: Duration) -> Outcome<f64> {
    let known: BTreeSet<u32> = program_times(&BTreeSet::new())?.iter().map(|it| it.id).collect();
    match control {
        Control::Empty => {
            let _held = Empty::register(NAME)?;
            traffic("empty_control", &known, time)
        }
        Control::Native => {
            let _held = Native::register(NativeKind::Cubic, NAME)?;
            traffic("native_cong", &known, time)
        }
        Control::Unled => {
            let _held = Datapath::register(&Options { flows: 1, ..Options::named(NAME) })?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let _holder = connect(&listener)?;
            traffic("cong_control", &known, time)
        }
        Control::Agent(cadence) => {
            let mut datapath = Datapath::register(&Options::named(NAME))?;
            let has_ended = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !has_ended.load(Ordering::Relaxed) {
                        decide(&mut datapath, cadence);
                        thread::sleep(NAP);
                    }
                });
                let outcome = traffic("cong_control", &known, time);
                has_ended.store(true, Ordering::Relaxed);
                outcome
            })
        }
    }
}

/// Answers the newest record of the connection.
fn decide(datapath: &mut Datapath, cadence: Cadence) {
    let mut newest = None;
    let mut take = |record: Record| newest = Some(*record.head());
    datapath.drain(&mut take).expect("the datapath is loaded");
    let interim = Interim {
        growth: ByteCount::new(SEGMENT as u64),
        slow_start: SlowStart::HyStart,
        beta: Some(Beta::of(7, 10)),
        ..Interim::HOLD
    };
    if let Some(head) = newest {
        let reporting = Reporting { cadence, wake: false };
        let decision = Decision::new(&SendLimits::default(), &interim, head.mss, reporting);
        datapath.decide(&head, &decision);
    }
}

/// Sends under [`NAME`]; the mean time of a call of `program` after the warm-up.
fn traffic(program: &str, known: &BTreeSet<u32>, time: Duration) -> Outcome<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // Connections inherit both.
    set_option(&listener, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_BYTES)?;
    set_option(&listener, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, WINDOW_BYTES)?;
    let mut sender = connect(&listener)?;
    let (mut receiver, _) = listener.accept()?;
    let sink = thread::spawn(move || {
        let mut buffer = vec![0; 256 * 1024];
        while receiver.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    let total = || -> Outcome<(u64, u64)> {
        let times = program_times(known)?;
        let own = times.iter().find(|it| it.name.starts_with(program) && it.calls > 0);
        Ok(own.map_or((0, 0), |own| (own.calls, own.time_ns)))
    };
    send(&mut sender, WARM_UP)?;
    let (calls, time_ns) = total()?;
    send(&mut sender, time)?;
    let (later_calls, later_ns) = total()?;
    drop(sender);
    let _ = sink.join();
    Ok((later_ns - time_ns) as f64 / (later_calls - calls).max(1) as f64)
}

fn send(sender: &mut TcpStream, time: Duration) -> Outcome<()> {
    let piece = [0; PIECE];
    let began = Instant::now();
    let mut due = Duration::ZERO;
    while due < time {
        thread::sleep(due.saturating_sub(began.elapsed()));
        for _ in 0..PIECES {
            sender.write_all(&piece)?;
        }
        due += PERIOD;
    }
    Ok(())
}

fn connect(to: &TcpListener) -> Outcome<TcpStream> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: the kernel just gave us this descriptor.
    let socket = unsafe { TcpStream::from_raw_fd(fd) };
    set_option(&socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG, SEGMENT as i32 + 12)?;
    set_option(&socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    // SAFETY: plain numbers, for which zero is valid.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::AF_INET as u16;
    address.sin_port = to.local_addr()?.port().to_be();
    address.sin_addr.s_addr = u32::from(Ipv4Addr::LOCALHOST).to_be();
    // SAFETY: a name and an address of the sizes that are given, which outlive the calls.
    let is_connected = unsafe {
        let (name, len) = (NAME.as_ptr().cast(), NAME.len() as u32);
        libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name, len) == 0
            && libc::connect(fd, (&raw const address).cast(), size_of_val(&address) as u32) == 0
    };
    if is_connected { Ok(socket) } else { Err(std::io::Error::last_os_error().into()) }
}

fn set_option(socket: &impl AsRawFd, level: i32, name: i32, value: i32) -> Outcome<()> {
    let (value, len) = ((&raw const value).cast(), size_of::<i32>() as u32);
    // SAFETY: the value outlives the call.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, len) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}
