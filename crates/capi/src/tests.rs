//! Tests of the header with compilers, and of an algorithm whose callbacks are written in Rust.

use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::path::Path;
use std::process::{Command, Output};

use forebay_core::cc::{Algorithm, CongestionControl, CongestionEvent, Measurement, RttSample};
use forebay_core::spec::{Spec, SpecError};
use forebay_core::testing::cc::conform;
use forebay_core::units::{ByteCount, Duration, Rate, Ratio, Timestamp};

use crate::abi::{ABI, Callbacks, Limits, Measured, NONE, Start};
use crate::foreign::{build, numbered};

fn compiler(program: &str, arguments: &[&str]) -> Output {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut command = Command::new(program);
    command.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-I"]).arg(include).args(arguments);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    output
}

/// Lines of C that each print a size or an offset, paired with its value in Rust.
macro_rules! layout {
    ($c:literal, $rust:ty: $($field:ident)*) => {
        [
            (concat!("sizeof(struct ", $c, ")"), size_of::<$rust>()),
            $((concat!("offsetof(struct ", $c, ", ", stringify!($field), ")"), offset_of!($rust, $field))),*
        ]
    };
}

#[test]
fn a_c_compiler_lays_the_structures_out_alike() {
    let start = layout!("forebay_cc_start", Start: now_ns mss_bytes initial_cwnd_bytes seed);
    let measured = layout!("forebay_cc_measurement", Measured:
        interval_ns acked_bytes lost_bytes ecn_ce_bytes ect1_bytes rtt_latest_ns rtt_min_ns
        feedback_delay_ns one_way_ns send_rate_bits_per_s delivery_rate_bits_per_s
        train_rate_bits_per_s in_flight_bytes delivered_bytes prior_delivered_bytes
        lost_prior_delivered_bytes backlog_bytes idle_ppm app_limited cwnd_limited);
    let limits =
        layout!("forebay_cc_limits", Limits: cwnd_bytes ssthresh_bytes pacing_rate_bits_per_s);
    let callbacks = layout!("forebay_cc_algorithm", Callbacks:
        abi create destroy on_measurement on_event limits next_timer_ns on_timer phase);
    let events = [
        ("LOSS", CongestionEvent::Loss),
        ("RECOVERY_END", CongestionEvent::RecoveryEnd),
        ("RTO", CongestionEvent::Rto),
        ("SPURIOUS", CongestionEvent::Spurious),
        ("ECN_CE", CongestionEvent::EcnCe),
        ("RESUME", CongestionEvent::Resume(Duration::ZERO)),
        ("IDLE_RESTART", CongestionEvent::IdleRestart(1)),
        ("UNDERUSED", CongestionEvent::Underused(ByteCount::ZERO)),
        ("RTT_SHIFT", CongestionEvent::RttShift(0)),
        ("SLOW_START_END", CongestionEvent::SlowStartEnd(ByteCount::ZERO)),
        ("FEEDBACK_LOST", CongestionEvent::FeedbackLost),
        ("UNENFORCED", CongestionEvent::Unenforced),
        ("ENFORCED", CongestionEvent::Enforced),
        ("DELAY_NOISE", CongestionEvent::DelayNoise(Duration::ZERO)),
    ];
    let events = events
        .map(|(name, event)| (format!("(size_t)FOREBAY_CC_{name}"), numbered(event).0 as usize));
    let layouts = [&start[..], &measured, &limits, &callbacks].concat();
    let mut expected: Vec<(String, usize)> =
        layouts.into_iter().map(|(of, bytes)| (of.to_string(), bytes)).collect();
    expected.extend(events);
    expected.push(("(size_t)FOREBAY_CC_ABI".into(), ABI as usize));
    expected.push(("(size_t)(FOREBAY_CC_NONE == UINT64_MAX)".into(), 1));

    let lines = expected.iter().map(|(of, _)| format!("    printf(\"%zu\\n\", {of});\n"));
    let text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include \"forebay_cc.h\"\n\
         int main(void) {{\n{}    return 0;\n}}\n",
        lines.collect::<String>()
    );
    let folder = tempfile::tempdir().unwrap();
    let [source, program] = ["layout.c", "layout"].map(|name| folder.path().join(name));
    std::fs::write(&source, text).unwrap();
    compiler("cc", &["-std=c99", source.to_str().unwrap(), "-o", program.to_str().unwrap()]);
    let printed = String::from_utf8(Command::new(program).output().unwrap().stdout).unwrap();
    let found: Vec<usize> = printed.lines().map(|line| line.parse().unwrap()).collect();
    let in_rust: Vec<usize> = expected.iter().map(|(_, bytes)| *bytes).collect();
    assert_eq!(found, in_rust, "{expected:#?}");
}

#[test]
fn the_header_is_c_plus_plus_too() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/forebay_cc.h");
    let header = header.to_str().unwrap();
    compiler("clang", &["-std=c++11", "-fsyntax-only", "-x", "c++", header]);
}

/// The calls that the callbacks of this thread received.
#[derive(Default)]
struct Seen {
    start: Option<[u64; 4]>,
    measured: Vec<Measured>,
    events: Vec<(u32, i64)>,
    timers: usize,
    destroyed: usize,
}

thread_local! {
    /// Calls that the callbacks of this thread have received.
    static SEEN: RefCell<Seen> = RefCell::new(Seen::default());
}

fn seen<T>(look: impl FnOnce(&mut Seen) -> T) -> T {
    SEEN.with_borrow_mut(look)
}

/// The state is the window, in bytes.
unsafe extern "C" fn create(start: *const Start) -> *mut c_void {
    // SAFETY: `start` lives until this returns.
    let start = unsafe { &*start };
    let Start { now_ns, mss_bytes, initial_cwnd_bytes, seed } = *start;
    seen(|seen| seen.start = Some([now_ns, mss_bytes, initial_cwnd_bytes, seed]));
    Box::into_raw(Box::new(initial_cwnd_bytes)).cast()
}

unsafe extern "C" fn destroy(cc: *mut c_void) {
    seen(|seen| seen.destroyed += 1);
    // SAFETY: `create` made it, and this is the last call for it.
    drop(unsafe { Box::from_raw(cc.cast::<u64>()) });
}

unsafe extern "C" fn on_measurement(_cc: *mut c_void, _now_ns: u64, measured: *const Measured) {
    // SAFETY: it lives until this returns.
    let measured = unsafe { measured.read() };
    seen(|seen| seen.measured = vec![measured]);
}

unsafe extern "C" fn on_event(_cc: *mut c_void, _now_ns: u64, event: u32, value: i64) {
    seen(|seen| seen.events = vec![(event, value)]);
}

unsafe extern "C" fn limits(cc: *const c_void, limits: *mut Limits) {
    // SAFETY: `create` made the window, and `limits` lives until this returns.
    unsafe { (*limits).cwnd_bytes = *cc.cast::<u64>() }
}

unsafe extern "C" fn next_timer_ns(_cc: *const c_void) -> u64 {
    if seen(|seen| seen.timers) == 0 { 7 } else { NONE }
}

unsafe extern "C" fn on_timer(_cc: *mut c_void, _now_ns: u64) {
    seen(|seen| seen.timers += 1);
}

unsafe extern "C" fn phase(_cc: *const c_void) -> *const c_char {
    c"fixed".as_ptr()
}

/// An algorithm with all callbacks and a fixed window.
const FIXED: Callbacks = Callbacks {
    abi: ABI,
    create: Some(create),
    destroy: Some(destroy),
    on_measurement: Some(on_measurement),
    on_event: Some(on_event),
    limits: Some(limits),
    next_timer_ns: Some(next_timer_ns),
    on_timer: Some(on_timer),
    phase: Some(phase),
};

/// [`FIXED`] at a static address, as [`build`] requires.
static CALLBACKS: Callbacks = FIXED;

fn built(callbacks: &'static Callbacks) -> Result<Box<dyn CongestionControl>, SpecError> {
    // SAFETY: the callbacks of these tests follow the header, each test in a separate thread.
    unsafe { build(callbacks) }
}

#[test]
fn callbacks_receive_all_input_of_an_algorithm() {
    let mut cc = built(&CALLBACKS).unwrap();
    assert_eq!(cc.send_limits().cwnd, None, "not started");
    cc.set_seed(9);
    let now = Timestamp::from_nanos(5);
    cc.init(now, ByteCount::new(1448), ByteCount::new(14_480));
    assert_eq!(seen(|seen| seen.start), Some([5, 1448, 14_480, 9]));
    assert_eq!(cc.send_limits().cwnd, Some(ByteCount::new(14_480)));
    assert_eq!((cc.send_limits().pacing_rate, cc.state().phase), (None, "fixed"));

    let rtt = RttSample { latest: Duration::from_nanos(6), min: Duration::from_nanos(4) };
    cc.on_measurement(
        now,
        &Measurement {
            acked: ByteCount::new(3),
            rtt: Some(rtt),
            delivery_rate: Some(Rate::from_mbit_per_sec(2)),
            idle: Ratio::new(0.25),
            cwnd_limited: Some(false),
            app_limited: true,
            ..Measurement::default()
        },
    );
    let measured = seen(|seen| seen.measured.pop().unwrap());
    assert_eq!((measured.acked_bytes, measured.lost_bytes), (3, NONE));
    assert_eq!((measured.rtt_latest_ns, measured.rtt_min_ns), (6, 4));
    assert_eq!((measured.delivery_rate_bits_per_s, measured.idle_ppm), (2_000_000, 250_000));
    assert_eq!((measured.app_limited, measured.cwnd_limited), (1, 0));

    cc.on_event(now, CongestionEvent::RttShift(-3));
    assert_eq!(seen(|seen| seen.events.pop()), Some((9, -3)));
    assert_eq!(cc.next_timer(), Some(Timestamp::from_nanos(7)));
    cc.on_timer(Timestamp::from_nanos(7));
    assert_eq!(cc.next_timer(), None);
}

#[test]
fn a_state_is_destroyed_once() {
    let mut cc = built(&CALLBACKS).unwrap();
    for _ in 0..2 {
        cc.init(Timestamp::ZERO, ByteCount::new(1000), ByteCount::new(1000));
    }
    assert_eq!(seen(|seen| seen.destroyed), 1, "one for another start");
    drop(cc);
    drop(built(&CALLBACKS).unwrap());
    assert_eq!(seen(|seen| seen.destroyed), 2, "what never started has none");
}

#[test]
fn only_optional_callbacks_may_be_missing() {
    /// Without all callbacks that may be NULL.
    static LEAST: Callbacks =
        Callbacks { next_timer_ns: None, on_timer: None, phase: None, ..FIXED };
    /// Without a callback that is required.
    static WITHOUT_LIMITS: Callbacks = Callbacks { limits: None, ..FIXED };
    /// From another version of the header.
    static OLD: Callbacks = Callbacks { abi: ABI + 1, ..FIXED };
    let mut cc = built(&LEAST).unwrap();
    cc.init(Timestamp::ZERO, ByteCount::new(1000), ByteCount::new(1000));
    cc.on_timer(Timestamp::ZERO);
    assert_eq!((cc.next_timer(), cc.state().phase), (None, "running"));
    let error = built(&WITHOUT_LIMITS).err().unwrap().to_string();
    assert_eq!(error, "limits = NULL: allowed is a function: this callback is required");
    let error = built(&OLD).err().unwrap().to_string();
    assert!(error.starts_with("abi = 2: allowed is 1: "), "{error}");
}

#[test]
fn an_algorithm_in_c_conforms_like_any_other() {
    /// Description of the algorithm for the conformance tests.
    const ALGORITHM: Algorithm = Algorithm {
        name: "fixed",
        summary: "the initial window",
        sources: &[],
        params: &[],
        needs: &[],
        min_window_mss: 1.0,
        batch_tolerance: 0.0,
        build: &|_: &Spec| built(&CALLBACKS),
    };
    conform(&ALGORITHM);
}
