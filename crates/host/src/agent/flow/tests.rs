use forebay_core::cc::ALGORITHMS;
use forebay_core::cc::interim::SEGMENTS_MAX;
use forebay_ebpf::tcp::{Events, FlowId, Opened};
use proptest::prelude::*;

use super::*;
use crate::agent::rules::SUPPLIED;

pub(in crate::agent) const MSS: u32 = 1448;
/// Round trip of the path.
const RTT: Duration = Duration::from_millis(40);
pub(in crate::agent) const TERMS: Terms =
    Terms { reporting: REPORTING, pace: false, stale_after: Duration::from_millis(20) };
const REPORTING: Reporting = Reporting {
    cadence: forebay_ebpf::tcp::Cadence::Round { at_least: Duration::ZERO },
    wake: false,
};

pub(in crate::agent) fn choice(text: &str) -> Choice {
    text.parse().unwrap()
}

/// A path that delivers all that the kernel sends, with a report each round trip.
pub(in crate::agent) struct Path {
    pub report: Report,
}

impl Path {
    /// A connection in this slot, with a window of ten segments.
    pub fn new(slot: u32, generation: u32) -> Self {
        let head = Head {
            flow: FlowId { slot, generation },
            seq: 1,
            at: Timestamp::from_nanos(1_000_000_000),
            cwnd: 10,
            in_flight: 10,
            mss: MSS,
            srtt_us: RTT.as_micros() as u32,
            min_rtt_us: Some(RTT.as_micros() as u32),
            events: Events::OPEN,
            ca_state: CaState::Open,
            mode: Mode::Start,
            bytes_acked: 0,
            delivered: 0,
            delivered_ce: 0,
            lost: 0,
            retransmitted: 0,
            ssthresh: None,
        };
        let rtt_us = Some(RTT.as_micros() as u32);
        let report = Report {
            head,
            rtt_us,
            rtt_min_us: rtt_us,
            rate_interval_us: RTT.as_micros() as u32,
            send_interval_us: RTT.as_micros() as u32,
            window_us: RTT.as_micros() as u32,
            cwnd_limited: true,
            pacing_rate: Rate::MAX,
            acks: 0,
            rate_delivered: 0,
            prior_delivered: 0,
            snd_wnd: 1 << 20,
            packets_out: 10,
            app_limited: false,
            idle_timeouts: 0,
            underused: None,
        };
        Self { report }
    }

    pub fn opened(&self, remote: &str) -> Opened {
        let local = "192.0.2.2:5000".parse().unwrap();
        Opened { head: self.report.head, local, remote: remote.parse().unwrap(), netns: 1 }
    }

    /// A round trip later: `acked` segments acknowledged, as many in flight.
    pub fn round(&mut self, acked: u32) -> &mut Report {
        let report = &mut self.report;
        report.prior_delivered = report.head.delivered;
        report.head.seq += 1;
        report.head.at += RTT;
        report.head.events = Events::ROUND;
        report.head.delivered += acked;
        report.head.bytes_acked += u64::from(acked * MSS);
        report.head.in_flight = acked;
        report.rate_delivered = acked;
        report.acks = acked;
        report
    }
}

fn flow(algorithm: &str) -> (Flow, Path) {
    let path = Path::new(0, 1);
    let flow = Flow::new(FlowOrigin::Opened, path.report.head, &choice(algorithm), 7);
    (flow, path)
}

fn cwnd(flow: &mut Flow) -> u32 {
    flow.decide(&TERMS).unwrap().cwnd.unwrap()
}

#[test]
fn first_acknowledgement_after_pause_grows_the_reduced_window() {
    for algorithm in ["newreno", "cubic"] {
        let (mut flow, mut path) = flow(algorithm);
        // The first data of a connection that was opened long before: 10 segments are left and grow.
        let report = path.round(1);
        report.head.events = Events::IDLE;
        report.idle_timeouts = 3;
        flow.on_report(report);
        assert_eq!(cwnd(&mut flow), 11, "{algorithm}");
        flow.on_report(path.round(9));
        assert_eq!(cwnd(&mut flow), 20, "{algorithm}");
    }
}

#[test]
fn bytes_acknowledged_before_loss_count_before_it() {
    let (mut flow, mut path) = flow("newreno");
    assert_eq!(cwnd(&mut flow), 10);
    flow.on_report(path.round(10));
    assert_eq!(cwnd(&mut flow), 20);
    let report = path.round(20);
    report.head.events = Events::LOSS;
    report.head.ca_state = CaState::Recovery;
    report.head.lost += 1;
    flow.on_report(report);
    // 40 segments when the loss was seen.
    let decision = flow.decide(&TERMS).unwrap();
    assert_eq!((decision.cwnd, decision.ssthresh), (Some(20), Some(20)));
}

#[test]
fn a_lost_report_loses_no_bytes() {
    let (mut heard, mut all) = flow("newreno");
    let (mut missed, mut some) = flow("newreno");
    for round in 0..5 {
        let acked = 10 << round;
        heard.on_report(all.round(acked));
        let report = some.round(acked);
        if round == 0 || round == 4 {
            missed.on_report(report);
        }
    }
    assert_eq!(cwnd(&mut heard), 320);
    assert_eq!(cwnd(&mut missed), 320);
    assert_eq!((heard.counts().missed, missed.counts().missed), (0, 3));
}

#[test]
fn old_reports_change_nothing() {
    let (mut flow, mut path) = flow("newreno");
    flow.on_report(path.round(10));
    let old = path.report;
    flow.on_report(path.round(20));
    let before = cwnd(&mut flow);
    flow.on_report(&old);
    assert_eq!((cwnd(&mut flow), flow.counts().records), (before, 3));
}

#[test]
fn missing_events_are_inferred_from_kernel_state() {
    let (mut flow, mut path) = flow("newreno");
    flow.on_report(path.round(10));
    let report = path.round(20);
    report.head.ca_state = CaState::Recovery;
    flow.on_report(report);
    assert_eq!(cwnd(&mut flow), 20);
    // Nothing grows in a recovery.
    flow.on_report(path.round(20));
    assert_eq!(cwnd(&mut flow), 20);
    let report = path.round(20);
    report.head.ca_state = CaState::Open;
    flow.on_report(report);
    flow.on_report(path.round(21));
    assert_eq!(cwnd(&mut flow), 21, "avoidance after the recovery");
    let report = path.round(0);
    report.head.ca_state = CaState::Loss;
    flow.on_report(report);
    let decision = flow.decide(&TERMS).unwrap();
    assert_eq!((decision.cwnd, decision.ssthresh), (Some(1), Some(10)));
}

#[test]
fn episode_in_lost_reports_is_one_reduction() {
    let (mut flow, mut path) = flow("newreno");
    flow.on_report(path.round(10));
    path.round(20);
    let report = path.round(20);
    report.head.lost += 3;
    flow.on_report(report);
    assert_eq!(cwnd(&mut flow), 30, "60 in slow start, and half of it");
    flow.on_report(path.round(31));
    assert_eq!(cwnd(&mut flow), 31);
}

/// A flow whose window went from 10 to 40 segments in slow start, when a loss begins an episode in this
/// state.
fn reduced_to_20(ca_state: CaState) -> (Flow, Path) {
    let (mut flow, mut path) = flow("newreno");
    flow.on_report(path.round(10));
    let report = path.round(20);
    (report.head.events, report.head.ca_state) = (Events::LOSS, ca_state);
    report.head.lost += 1;
    flow.on_report(report);
    assert_eq!(cwnd(&mut flow), 20);
    (flow, path)
}

#[test]
fn loss_in_cwr_belongs_to_the_next_recovery() {
    let (mut flow, mut path) = reduced_to_20(CaState::Cwr);
    for ca_state in [CaState::Cwr, CaState::Recovery] {
        let report = path.round(20);
        report.head.ca_state = ca_state;
        flow.on_report(report);
        let decision = flow.decide(&TERMS).unwrap();
        assert_eq!((decision.cwnd, decision.ssthresh), (Some(20), Some(20)), "{ca_state:?}");
    }
    let report = path.round(20);
    (report.head.events, report.head.ca_state) = (Events::RECOVERY_END, CaState::Open);
    flow.on_report(report);
    flow.on_report(path.round(21));
    assert_eq!(cwnd(&mut flow), 21, "avoidance after the recovery");
}

#[test]
fn loss_after_undo_reduces_the_restored_window() {
    let begins = [
        (Events::LOSS, CaState::Recovery),
        (Events::LOSS, CaState::Cwr),
        (Events::ECN, CaState::Cwr),
        (Events::RTO, CaState::Loss),
    ];
    for ((event, ca_state), end) in begins.into_iter().flat_map(|it| [(it, true), (it, false)]) {
        let (mut flow, mut path) = reduced_to_20(CaState::Recovery);
        let end = if end { Events::RECOVERY_END.bits() } else { 0 };
        let report = path.round(1);
        let events = Events::SPURIOUS.bits() | event.bits() | end;
        (report.head.events, report.head.ca_state) = (Events::from_bits(events), ca_state);
        flow.on_report(report);
        // Of 40.
        let ssthresh = flow.decide(&TERMS).unwrap().ssthresh;
        assert_eq!(ssthresh, Some(20), "{event:?} in {ca_state:?}");
    }
}

/// Without SACK the kernel stays in recovery until the peer acknowledges data sent after the recovery
/// began (tcp_is_non_sack_preventing_reopen).
#[test]
fn recovery_continuing_after_undo_is_no_new_loss() {
    let (mut flow, mut path) = reduced_to_20(CaState::Recovery);
    let report = path.round(1);
    report.head.events = Events::SPURIOUS;
    flow.on_report(report);
    assert_eq!(cwnd(&mut flow), 40);
    let report = path.round(1);
    (report.head.events, report.head.ca_state) = (Events::RECOVERY_END, CaState::Open);
    flow.on_report(report);
    assert!(cwnd(&mut flow) >= 40);
}

#[test]
fn reports_keep_the_kernel_s_order() {
    let (mut flow, mut path) = flow("newreno");
    for _ in 0..20 {
        let report = path.round(1);
        report.head.in_flight = 40;
        flow.on_report(report);
    }
    let report = path.round(1);
    report.head.events = Events::LOSS;
    report.head.ca_state = CaState::Recovery;
    report.head.lost += 1;
    flow.on_report(report);
    assert_eq!(
        cwnd(&mut flow),
        15,
        "the acknowledgement that reports a loss does not grow the \
                                     window"
    );
}

#[test]
fn adopted_flow_continues_from_its_window() {
    for algorithm in
        ["newreno", "cubic", "bic", "highspeed", "scalable", "htcp", "illinois", "veno"]
    {
        let (mut flow, mut path) = flow(algorithm);
        flow.on_report(path.round(10));
        for mode in [Mode::Fallback, Mode::Fallback, Mode::Agent] {
            let report = path.round(100);
            (report.head.mode, report.head.cwnd) = (mode, 80);
            report.head.ssthresh = Some(60);
            flow.on_report(report);
            let decision = flow.decide(&TERMS).unwrap();
            let cwnd = decision.cwnd.unwrap();
            assert!((78..=92).contains(&cwnd), "{algorithm}: {cwnd} in {mode:?}");
            assert!(decision.ssthresh.is_some_and(|it| it <= cwnd), "{algorithm}: no slow start");
        }
    }
}

#[test]
fn flow_adopted_in_slow_start_stays_in_it() {
    let mut path = Path::new(0, 1);
    path.report.head.cwnd = 40;
    let mut flow = Flow::new(FlowOrigin::Adopted, path.report.head, &choice("newreno"), 7);
    assert_eq!(cwnd(&mut flow), 40);
    flow.on_report(path.round(40));
    assert_eq!(cwnd(&mut flow), 80);
}

#[test]
fn flow_adopted_in_recovery_is_not_reduced_again() {
    let mut path = Path::new(0, 1);
    path.report.head.cwnd = 55;
    path.report.head.ssthresh = Some(50);
    path.report.head.ca_state = CaState::Recovery;
    let mut flow = Flow::new(FlowOrigin::Adopted, path.report.head, &choice("newreno"), 7);
    assert_eq!(cwnd(&mut flow), 50);
    let report = path.round(50);
    report.head.ca_state = CaState::Recovery;
    flow.on_report(report);
    assert_eq!(cwnd(&mut flow), 50);
}

#[test]
fn flow_adopted_in_cwr_is_not_reduced_again() {
    let mut path = Path::new(0, 1);
    path.report.head.cwnd = 55;
    path.report.head.ssthresh = Some(50);
    path.report.head.ca_state = CaState::Cwr;
    let mut flow = Flow::new(FlowOrigin::Adopted, path.report.head, &choice("newreno"), 7);
    assert_eq!(cwnd(&mut flow), 50);
    let report = path.round(50);
    report.head.ca_state = CaState::Recovery;
    flow.on_report(report);
    assert_eq!(cwnd(&mut flow), 50);
}

#[test]
fn decision_is_late_after_bounded_age() {
    let (mut flow, path) = flow("newreno");
    let at = |ms| path.report.head.at + Duration::from_millis(ms);
    assert!(!flow.is_stale(at(80), &TERMS));
    assert!(flow.is_stale(at(81), &TERMS));
    let slow = Terms { stale_after: Duration::from_millis(100), ..TERMS };
    assert!(!flow.is_stale(at(100), &slow));
    assert_eq!(flow.counts().stale, 1);
}

#[test]
fn missing_window_or_rate_is_derived() {
    let (mut rate, _) = flow("const(rate=96Mbit/s)");
    let decision = rate.decide(&TERMS).unwrap();
    // 96 Mbit/s over 40 ms are 480 KB; twice that.
    assert_eq!(decision.cwnd, Some(960_000 / MSS));
    assert_eq!(decision.pacing_rate, Some(Rate::from_mbit_per_sec(96)));
    let (mut window, _) = flow("const(cwnd=480KB)");
    assert_eq!(window.decide(&TERMS).unwrap().pacing_rate, None);
    let paced = window.decide(&Terms { pace: true, ..TERMS }).unwrap();
    assert_eq!(paced.pacing_rate, Some(Rate::from_mbit_per_sec(192)));
    let (mut none, _) = flow("const");
    let decision = none.decide(&Terms { pace: true, ..TERMS }).unwrap();
    assert_eq!((decision.cwnd, decision.pacing_rate), (Some(SEGMENTS_MAX), None));
}

/// Answers with the limits and the timer of the test; panics at a loss.
pub(in crate::agent) struct Wild(pub SendLimits, pub Option<Timestamp>);

impl CongestionControl for Wild {
    fn init(&mut self, _now: Timestamp, _mss: ByteCount, _initial_cwnd: ByteCount) {}
    fn on_measurement(&mut self, _now: Timestamp, _measurement: &Measurement) {}
    fn on_event(&mut self, _now: Timestamp, event: CongestionEvent) {
        assert!(event != CongestionEvent::Loss, "a loss was not foreseen");
    }
    fn on_timer(&mut self, now: Timestamp) {
        self.1 = self.1.map(|_| now + Duration::from_millis(10));
    }
    fn next_timer(&self) -> Option<Timestamp> {
        self.1
    }
    fn send_limits(&self) -> SendLimits {
        self.0
    }
    fn state(&self) -> State {
        State { phase: "wild", ..State::default() }
    }
}

#[test]
fn out_of_range_limits_are_clamped_and_counted() {
    let not_a_number = Rate::from_bytes_per_sec_f64(f64::NAN);
    for (cwnd, rate) in [
        (0, not_a_number),
        (u64::MAX, Rate::MAX),
        (0, Rate::from_bytes_per_sec_f64(f64::INFINITY)),
        (u64::MAX, Rate::from_bytes_per_sec_f64(-1.0)),
    ] {
        let limits = SendLimits {
            cwnd: Some(ByteCount::new(cwnd)),
            ssthresh: Some(ByteCount::new(cwnd)),
            pacing_rate: Some(rate),
            ..SendLimits::default()
        };
        let (flow, _) = flow("const");
        let mut flow = flow.with_algorithm(Box::new(Wild(limits, None)));
        check(&flow.decide(&TERMS).unwrap());
        assert_eq!(flow.counts().clamped, 1);
    }
}

fn check(decision: &Decision) {
    let in_bounds =
        |segments: Option<u32>| segments.is_none_or(|it| (1..=SEGMENTS_MAX).contains(&it));
    assert!(in_bounds(decision.cwnd) && in_bounds(decision.ssthresh), "{decision:?}");
    assert!(decision.pacing_rate.is_none_or(|rate| (RATE_MIN..=RATE_MAX).contains(&rate)));
}

#[test]
fn panicking_algorithm_stops_deciding_and_keeps_its_message() {
    let (flow, mut path) = flow("const");
    let limits = SendLimits { cwnd: Some(ByteCount::new(50_000)), ..SendLimits::default() };
    let mut flow = flow.with_algorithm(Box::new(Wild(limits, None)));
    assert!(flow.decide(&TERMS).is_some());
    let report = path.round(10);
    report.head.events = Events::LOSS;
    flow.on_report(report);
    assert_eq!(flow.failure(), Some("a loss was not foreseen"));
    assert!(flow.decide(&TERMS).is_none() && flow.next_timer().is_none());
    flow.on_report(path.round(10));
    assert_eq!(flow.counts().records, 3, "it is still counted");
}

fn ca_states() -> impl Strategy<Value = CaState> {
    use CaState::{Cwr, Disorder, Loss, Open, Recovery};
    prop::sample::select(vec![Open, Disorder, Cwr, Recovery, Loss])
}

fn modes() -> impl Strategy<Value = Mode> {
    prop::sample::select(vec![Mode::Start, Mode::Agent, Mode::Fallback])
}

prop_compose! {
    fn heads()(
        seq in prop_oneof![0u32..50, any::<u32>()],
        (events, ca_state, mode) in (any::<u16>(), ca_states(), modes()),
        at in prop_oneof![0u64..10_000_000_000, any::<u64>()],
        (bytes_acked, delivered, delivered_ce) in (any::<u64>(), any::<u32>(), any::<u32>()),
        (lost, retransmitted, in_flight) in (any::<u32>(), any::<u32>(), any::<u32>()),
        (cwnd, ssthresh) in (any::<u32>(), any::<Option<u32>>()),
        mss in prop_oneof![Just(1448u32), any::<u32>()],
        (srtt_us, min_rtt_us) in (any::<u32>(), any::<Option<u32>>()),
    ) -> Head {
        Head {
            flow: FlowId { slot: 0, generation: 1 },
            seq,
            events: Events::from_bits(events & !Events::CLOSE.bits()),
            ca_state,
            mode,
            at: Timestamp::from_nanos(at),
            bytes_acked, delivered, delivered_ce, lost, retransmitted, in_flight, cwnd, ssthresh,
            mss, srtt_us, min_rtt_us,
        }
    }
}

prop_compose! {
    pub(in crate::agent) fn reports()(
        head in heads(),
        rate in any::<u64>(),
        (rtt_us, rtt_min_us) in (any::<Option<u32>>(), any::<Option<u32>>()),
        (window_us, acks, rate_delivered) in (any::<u32>(), 0u32..3, any::<u32>()),
        (rate_interval_us, send_interval_us) in (any::<u32>(), any::<u32>()),
        (prior_delivered, snd_wnd, packets_out) in (any::<u32>(), any::<u32>(), any::<u32>()),
        (app_limited, cwnd_limited) in (any::<bool>(), any::<bool>()),
        (idle_timeouts, underused) in (any::<u8>(), any::<Option<u32>>()),
    ) -> Report {
        Report {
            head,
            pacing_rate: Rate::from_bits_per_sec(rate),
            rtt_us, rtt_min_us, window_us, acks, rate_delivered, rate_interval_us,
            send_interval_us, prior_delivered, snd_wnd, packets_out, app_limited, cwnd_limited,
            idle_timeouts, underused,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any reports: no panic, decisions within bounds, and the same decisions in a second run.
    #[test]
    fn garbage_gives_bounded_and_repeatable_decisions(
        first in heads(),
        reports in prop::collection::vec(reports(), 1..30),
        adopted in any::<bool>(),
    ) {
        let fits = |needs: &[forebay_core::cc::Field]| needs.iter().all(|it| SUPPLIED.contains(it));
        for algorithm in ALGORITHMS.iter().filter(|algorithm| fits(algorithm.needs)) {
            let origin = if adopted { FlowOrigin::Adopted } else { FlowOrigin::Opened };
            let run = || -> Vec<Decision> {
                let mut flow = Flow::new(origin, first, &choice(algorithm.name), 3);
                let decisions = reports.iter().map(|report| {
                    flow.on_report(report);
                    if flow.next_timer().is_some() {
                        flow.on_timer(report.head.at);
                    }
                    let decision = flow.decide(&TERMS);
                    assert_eq!(flow.failure(), None, "{}", algorithm.name);
                    decision.unwrap()
                });
                decisions.collect()
            };
            let decisions = run();
            decisions.iter().for_each(check);
            prop_assert_eq!(decisions, run());
        }
    }
}
