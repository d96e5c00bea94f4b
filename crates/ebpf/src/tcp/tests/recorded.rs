//! Connections of the kernel under the native algorithms, call by call, repeated by core's.
//!
//! Slow start ends where the recording says: what HyStart sees is compared in `arithmetic.rs`. Then
//! Cubic is core's to the segment. Reno may be one segment apart: core keeps ssthresh to the byte
//! and stops slow start there, the kernel in whole segments.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use forebay_core::cc::CongestionEvent;
use forebay_core::units::{ByteCount, Timestamp};
use forebay_skips::{Need, skip_without};
use libbpf_rs::{MapHandle, RingBufferBuilder};

use super::super::{Native, NativeKind};
use super::loopback::{connect, fresh_name, set_option};
use super::native::{MSS, in_core, measured};
use super::wire::{HOST, NEIGHBOUR, Wire};
use crate::Error;
use crate::program::tests::in_namespace;
use crate::skel::Plain;
use crate::skel::tcp_native::types::step as Step;

/// `CALL_CONG_AVOID` of enum call in `bpf/tcp_native.bpf.c`, as the other calls below.
pub(super) const CONG_AVOID: u32 = 0;
/// `CALL_SSTHRESH`.
pub(super) const SSTHRESH: u32 = 1;
/// `CALL_SET_STATE`.
pub(super) const SET_STATE: u32 = 2;
/// `CALL_UNDO_CWND`.
pub(super) const UNDO_CWND: u32 = 3;
/// `CALL_PAUSE`.
pub(super) const PAUSE: u32 = 4;

/// Bit of a step: the window was filled (`STEP_FILLED`).
pub(super) const FILLED: u32 = 1 << 0;
/// Bit of a step: slow start was ended (`STEP_ENDED`).
const ENDED: u32 = 1 << 1;

/// `TCP_CA_Disorder` of enum tcp_ca_state (include/uapi/linux/tcp.h): a segment may be lost.
pub(super) const DISORDER: u64 = 1;
/// `TCP_CA_CWR`: the window is being reduced.
pub(super) const CWR: u64 = 2;
/// `TCP_CA_Loss`: a timeout is being repaired.
pub(super) const LOSS: u64 = 4;

/// The first window (RFC 6928).
const INITIAL: u64 = 10;

impl Step {
    fn of_line(line: &str) -> Self {
        let numbers: Vec<u64> =
            line.split(' ').map(|word| word.parse().expect("a number")).collect();
        let [at_us, call, value, rtt_us, flags, cwnd] = numbers[..] else { panic!("{line}") };
        let [rtt_us, cwnd, call, flags] = [rtt_us, cwnd, call, flags].map(|it| it as u32);
        Self { at_us, value, rtt_us, cwnd, call, flags }
    }

    fn line(&self, from_us: u64) -> String {
        let Self { at_us, value, rtt_us, cwnd, call, flags } = self;
        format!("{} {call} {value} {rtt_us} {flags} {cwnd}\n", at_us - from_us)
    }
}

/// Recordings in the repository: of Reno and of Cubic.
pub(super) const RECORDINGS: [&str; 2] =
    [include_str!("recorded/reno.txt"), include_str!("recorded/cubic.txt")];

/// The steps of a recording.
pub(super) fn steps_of(text: &str) -> Vec<Step> {
    text.lines().filter(|line| !line.starts_with('#')).map(Step::of_line).collect()
}

/// Counts of the comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Compared {
    acks: u32,
    losses: u32,
    timeouts: u32,
    pauses: u32,
    undone: u32,
    /// Acknowledgements that grew the window above ssthresh.
    grown: u32,
}

/// Gives core's algorithm the native algorithm's calls. Their windows after each acknowledgement and
/// their thresholds differ by at most `within` segments.
fn compare(kind: NativeKind, steps: &[Step], within: u64) -> Compared {
    let mut core = in_core(kind);
    let mss = u64::from(MSS);
    core.init(Timestamp::ZERO, ByteCount::new(mss), ByteCount::new(INITIAL * mss));
    let (mut compared, mut state, mut wanted, mut cwnd) = (Compared::default(), 0, None, 0);
    for (number, step) in steps.iter().enumerate() {
        let now = Timestamp::from_nanos((step.at_us - steps[0].at_us) * 1000);
        let limits = core.send_limits();
        let is_avoidance = limits.ssthresh.is_some_and(|ssthresh| limits.cwnd >= Some(ssthresh));
        match step.call {
            CONG_AVOID => {
                if step.flags & ENDED != 0 {
                    let at = limits.cwnd.expect("a window");
                    core.on_event(now, CongestionEvent::SlowStartEnd(at));
                }
                let is_filled = step.flags & FILLED != 0;
                core.on_measurement(now, &measured(step.value as u32, step.rtt_us, is_filled));
                let bytes = core.send_limits().cwnd.expect("a window").as_u64();
                let apart = (bytes / mss).abs_diff(u64::from(step.cwnd));
                assert!(apart <= within, "{kind:?} {number}: {step:?}, {bytes} bytes in core");
                compared.acks += 1;
                compared.grown += u32::from(is_avoidance && step.cwnd > cwnd);
                cwnd = step.cwnd;
            }
            SSTHRESH => wanted = Some(step.value),
            SET_STATE => {
                let event = match step.value {
                    LOSS => Some(CongestionEvent::Rto),
                    CWR.. if state < CWR => Some(CongestionEvent::Loss),
                    ..=DISORDER if state >= CWR => Some(CongestionEvent::RecoveryEnd),
                    _ => None,
                };
                state = step.value;
                event.into_iter().for_each(|event| core.on_event(now, event));
                compared.losses += u32::from(event == Some(CongestionEvent::Loss));
                compared.timeouts += u32::from(event == Some(CongestionEvent::Rto));
                if let Some(wanted) = wanted.take() {
                    let ssthresh = core.send_limits().ssthresh.expect("a threshold").as_u64();
                    let apart = (ssthresh / mss).abs_diff(wanted);
                    assert!(apart <= within, "{kind:?} {number}: {wanted}, {ssthresh} bytes");
                }
            }
            UNDO_CWND => {
                core.on_event(now, CongestionEvent::Spurious);
                compared.undone += 1;
            }
            PAUSE => {
                let idle = Duration::from_micros(step.value);
                core.on_event(now, CongestionEvent::Resume(idle));
                compared.pauses += u32::from(idle > Duration::from_millis(100));
            }
            _ => panic!("{step:?}"),
        }
    }
    compared
}

/// How far apart the windows of core and kernel may be, in segments.
fn tolerance(kind: NativeKind) -> u64 {
    match kind {
        NativeKind::Reno => 1,
        NativeKind::Cubic => 0,
    }
}

/// The contents of a ring.
fn taken<T: Plain + 'static>(records: &MapHandle) -> Vec<T> {
    let taken = Rc::new(RefCell::new(Vec::new()));
    let mut ring = RingBufferBuilder::new();
    let into = Rc::clone(&taken);
    ring.add(records, move |bytes| {
        into.borrow_mut().push(T::from_bytes(bytes).expect("a record"));
        0
    })
    .expect("a ring");
    ring.build().and_then(|ring| ring.consume()).expect("read");
    taken.take()
}

/// Sends over the path for some seconds: losses of a full queue, a pause, and a cut that times out.
fn send(name: &str, wire: &Wire) {
    let listener = TcpListener::bind((Ipv4Addr::from(HOST), 0)).expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let reader = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut buffer = vec![0; 1 << 16];
        while stream.read(&mut buffer).expect("received") > 0 {}
    });
    let mut stream = connect(SocketAddr::from((NEIGHBOUR, port)), name);
    // Little data is left unsent, so that a pause begins when it is to.
    let lowat = 16_384_u32.to_ne_bytes();
    set_option(&stream, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &lowat);
    let mut write_for = |ms: u64| {
        let until = Instant::now() + Duration::from_millis(ms);
        while Instant::now() < until {
            stream.write_all(&[7; 4096]).expect("sent");
        }
    };
    write_for(4_000);
    thread::sleep(Duration::from_millis(600));
    write_for(2_000);
    wire.cut(true);
    // A tail loss probe comes first, and then the timeout.
    thread::sleep(Duration::from_millis(1_200));
    wire.cut(false);
    write_for(2_000);
    drop(stream);
    reader.join().expect("received");
}

/// A connection under the native algorithm.
fn recorded(kind: NativeKind) -> Vec<Step> {
    connection(move |name| Native::record(kind, name))
}

/// A connection under what `record` registers with a ring of records.
pub(super) fn connection<T: Plain + Send + 'static>(
    record: impl FnOnce(&str) -> Result<(Native, MapHandle), Error> + Send + 'static,
) -> Vec<T> {
    let (tell, told) = std::sync::mpsc::channel();
    in_namespace(move || {
        let (native, records) = record(&fresh_name()).expect("recorded");
        // The kernel lowers unused windows next to its congestion control.
        std::fs::write("/proc/sys/net/ipv4/tcp_slow_start_after_idle", "0").expect("set");
        let wire = Wire::new();
        send(native.name(), &wire);
        tell.send(taken(&records)).expect("sent");
    });
    told.recv().expect("received")
}

fn connections_are_repeated(kind: NativeKind) {
    if [Need::Root, Need::StructOpsLinks, Need::Tun].into_iter().any(skip_without) {
        return;
    }
    let steps = recorded(kind);
    let compared = compare(kind, &steps, tolerance(kind));
    println!("{kind:?}: {compared:?}");
    // A busy machine yields fewer steps; the recordings in the repository have everything.
    assert!(compared.acks > 100 && compared.timeouts > 0 && compared.pauses > 0, "{compared:?}");
}

#[test]
fn core_reproduces_native_reno_connection() {
    connections_are_repeated(NativeKind::Reno);
}

#[test]
fn core_reproduces_native_cubic_connection() {
    connections_are_repeated(NativeKind::Cubic);
}

#[test]
fn core_reproduces_stored_recordings() {
    let of_reno = Compared { acks: 1227, losses: 3, timeouts: 2, pauses: 3, undone: 0, grown: 55 };
    let of_cubic = Compared { acks: 1328, losses: 4, grown: 38, ..of_reno };
    for (kind, text, expected) in
        [(NativeKind::Reno, RECORDINGS[0], of_reno), (NativeKind::Cubic, RECORDINGS[1], of_cubic)]
    {
        let compared = compare(kind, &steps_of(text), tolerance(kind));
        assert_eq!(compared, expected, "{kind:?}");
    }
}

#[test]
#[ignore = "writes the recordings that are in the repository"]
fn connections_are_recorded() {
    for (kind, name) in [(NativeKind::Reno, "reno"), (NativeKind::Cubic, "cubic")] {
        let steps = recorded(kind);
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
        let version = release.trim().split('-').next().unwrap_or_default();
        let mut text = format!(
            "# Calls of the native {name} (struct step of bpf/tcp_native.bpf.c) in a connection of\n\
             # Linux {version} over the path of tests/wire.rs. Written by:\n\
             # cargo test -p forebay-ebpf --lib connections_are_recorded -- --ignored\n\
             # at_us call value rtt_us flags cwnd\n",
        );
        text.extend(steps.iter().map(|step| step.line(steps[0].at_us)));
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tcp/tests/recorded");
        std::fs::write(format!("{folder}/{name}.txt"), text).expect("written");
    }
}
