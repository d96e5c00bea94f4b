mod alike;

use alloc::collections::VecDeque;
use alloc::string::ToString;
use std::sync::{Arc, Mutex};

use super::*;
use crate::bundle::{BoundaryMark, DepartureCounters};
use crate::cc::{SendLimits, State};
use crate::spec::{Spec, Value};

fn mark(hash: u64, identity: u64) -> Option<BoundaryMark> {
    Some(BoundaryMark { hash, identity })
}

/// Keeps the last measurement.
struct Listener(Arc<Mutex<Measurement>>);

impl CongestionControl for Listener {
    fn init(&mut self, _now: Timestamp, _mss: ByteCount, _initial_cwnd: ByteCount) {}
    fn on_measurement(&mut self, _now: Timestamp, measurement: &Measurement) {
        *self.0.lock().unwrap() = *measurement;
    }
    fn on_event(&mut self, _now: Timestamp, _event: CongestionEvent) {}
    fn send_limits(&self) -> SendLimits {
        SendLimits::default()
    }
    fn state(&self) -> State {
        State::default()
    }
}

fn is_filled(measurement: &Measurement, field: Field) -> bool {
    match field {
        Field::Lost => measurement.lost.is_some(),
        Field::EcnCe => measurement.ecn_ce.is_some(),
        Field::Ect1 => measurement.ect1.is_some(),
        Field::Rtt => measurement.rtt.is_some(),
        Field::FeedbackDelay => measurement.feedback_delay.is_some(),
        Field::SendRate => measurement.send_rate.is_some(),
        Field::DeliveryRate => measurement.delivery_rate.is_some(),
        Field::TrainRate => measurement.train_rate.is_some(),
        Field::InFlight => measurement.in_flight.is_some(),
        Field::Idle => measurement.idle.is_some(),
        Field::Backlog => measurement.backlog.is_some(),
    }
}

#[test]
fn supplied_fields_are_filled_after_a_round_trip() {
    let heard = Arc::new(Mutex::new(Measurement::default()));
    let mut control =
        Control::new(SendboxConfig::default(), Box::new(Listener(Arc::clone(&heard))));
    let mut departed = DepartureCounters::default();
    let start = Timestamp::from_nanos(1_000_000_000);
    let one_way = Duration::from_millis(10);
    for packet in 1..=10 {
        let sent_at = start + Duration::from_millis(10) * packet as u32;
        // A hash that ends in zeros is a boundary under every epoch size.
        let hash = packet << 40;
        assert!(control.on_departures(&departed.count(sent_at, MSS, mark(hash, hash))));
        let report = Report {
            hash,
            received_at: sent_at + one_way,
            received_bytes: MSS * packet,
            received_packets: packet,
            received_ce: 0,
            epoch_size: control.epoch_size(),
        };
        control.on_report(sent_at + one_way * 2, &report).expect("a plausible report");
    }
    let measurement = heard.lock().unwrap();
    for field in SUPPLIED {
        assert!(is_filled(&measurement, *field), "{}", field.name());
    }
}

const LEN: ByteCount = ByteCount::new(1500);
/// A packet every millisecond.
const ARRIVAL: Rate = Rate::from_mbit_per_sec(12);

/// A bundle on a path that delivers everything after half a round trip, every packet a boundary.
struct Bench {
    control: Control,
    departed: DepartureCounters,
    rtt_ms: u64,
    now_ms: u64,
    sent: u64,
    delivered: u64,
    in_flight: VecDeque<(u64, u64)>,
    are_reports_lost: bool,
    /// A device on the path changes the hashed headers.
    are_headers_changed: bool,
}

fn fixed(name: &str, value: &str) -> Spec {
    Spec::named("const").with(name, Value::Text(value.to_string()))
}

impl Bench {
    fn new(spec: &Spec, rtt_ms: u64, max_rate: Option<Rate>) -> Self {
        let cc = crate::cc::build(spec, SUPPLIED).unwrap();
        let config = SendboxConfig { max_rate, ..SendboxConfig::default() };
        let control = Control::new(config, cc);
        let in_flight = VecDeque::new();
        let (now_ms, sent, delivered) = (1000, 0, 0);
        let departed = DepartureCounters::default();
        let (are_reports_lost, are_headers_changed) = (false, false);
        Self {
            control,
            departed,
            rtt_ms,
            now_ms,
            sent,
            delivered,
            in_flight,
            are_reports_lost,
            are_headers_changed,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now_ms * 1_000_000)
    }

    /// A packet every `gap_ms`. Gaps of more than 1 ms mean that no packet was available.
    fn run(&mut self, ms: u64, gap_ms: u64) {
        for _ in 0..ms {
            if self.now_ms.is_multiple_of(gap_ms) {
                self.sent += 1;
                let mark = mark(self.sent << 32, self.sent);
                self.control.on_departures(&self.departed.count(self.now(), LEN, mark));
                self.in_flight.push_back((self.now_ms, self.sent));
            }
            let queued = u64::from(gap_ms == 1);
            let backlog = Backlog { packets: queued, bytes: LEN * queued };
            self.control.on_queue(self.now(), backlog);
            if self.now_ms.is_multiple_of(5) {
                self.control.on_tick(self.now(), backlog);
            }
            self.now_ms += 1;
            self.report();
        }
    }

    fn report(&mut self) {
        let due = |&(sent_ms, _): &(u64, u64)| sent_ms + self.rtt_ms <= self.now_ms;
        let Some((sent_ms, number)) = self.in_flight.front().copied().filter(due) else {
            return;
        };
        self.in_flight.pop_front();
        let report = self.report_of(sent_ms, number);
        if !self.are_reports_lost {
            let is_matched = self.control.on_report(self.now(), &report).is_some();
            assert_ne!(is_matched, self.are_headers_changed);
        }
    }

    fn report_of(&mut self, sent_ms: u64, number: u64) -> Report {
        self.delivered += 1;
        Report {
            hash: if self.are_headers_changed { !0 << 40 } else { number << 32 },
            received_at: Timestamp::from_nanos((sent_ms + self.rtt_ms / 2) * 1_000_000),
            received_bytes: LEN * self.delivered,
            received_packets: self.delivered,
            received_ce: 0,
            epoch_size: self.control.epoch_size(),
        }
    }
}

#[test]
fn reports_queued_during_stalls_give_no_round_trips() {
    let mut bench = Bench::new(&Spec::named("copa"), 50, None);
    bench.run(1000, 1);
    let before = bench.control.min_rtt();
    assert!(before.is_some());
    bench.now_ms += 20_000;
    while let Some((sent_ms, number)) = bench.in_flight.pop_front() {
        // A datapath may report an old departure late.
        let sent_at = Timestamp::from_nanos((sent_ms + 100) * 1_000_000);
        let late = mark((number + 1_000_000) << 32, number);
        bench.control.on_departures(&bench.departed.count(sent_at, LEN, late));
        for number in [number, number + 1_000_000] {
            let report = bench.report_of(sent_ms, number);
            assert!(bench.control.on_report(bench.now(), &report).is_none());
        }
    }
    for _ in 0..30 {
        bench.run(100, 1);
        assert_eq!(bench.control.min_rtt(), before);
    }
}

#[test]
fn a_missing_report_freezes_the_rate() {
    // A window that fills the path, a far larger one and a far smaller one.
    for (cwnd, before_mbit, frozen_mbit) in
        [("75000B", 12.0, 12.0), ("1000000B", 15.0, 12.0), ("3000B", 1.2, 1.2)]
    {
        let mut bench = Bench::new(&fixed("cwnd", cwnd), 50, None);
        let mbit = |bench: &Bench| bench.control.rate().unwrap().as_bits_per_sec() as f64 / 1e6;
        // One packet of the window is 4 % of the rate.
        let is_near = |rate: f64, expected: f64| (rate / expected - 1.0).abs() < 0.05;
        bench.run(1000, 1);
        assert!(is_near(mbit(&bench), before_mbit), "{cwnd}: {}", mbit(&bench));
        bench.are_reports_lost = true;
        bench.run(200, 1);
        assert!(is_near(mbit(&bench), frozen_mbit), "{cwnd}: {}", mbit(&bench));
        let frozen = bench.control.rate();
        for _ in 0..28 {
            bench.run(100, 1);
            assert_eq!(bench.control.rate(), frozen, "{cwnd}");
        }
    }
}

#[test]
fn idle_hosts_do_not_bind_a_frozen_rate() {
    let mut bench = Bench::new(&fixed("cwnd", "75000B"), 50, None);
    bench.run(1000, 1);
    bench.run(500, 10);
    bench.are_reports_lost = true;
    bench.run(1000, 10);
    assert_eq!(bench.control.rate(), Some(ARRIVAL));
    bench.run(1000, 1);
    assert_eq!(bench.control.rate(), Some(ARRIVAL));
}

#[test]
fn an_operators_bound_is_no_rate_to_freeze() {
    let bound = Some(Rate::from_mbit_per_sec(100));
    let mut bench = Bench::new(&Spec::named("const"), 50, bound);
    bench.run(1000, 1);
    bench.are_reports_lost = true;
    bench.run(1000, 1);
    assert_eq!(bench.control.rate(), bound);
}

#[test]
fn ceiling_binds_every_state_and_is_no_path() {
    let mut bench = Bench::new(&fixed("cwnd", "75000B"), 50, None);
    let short = Ceiling { rate: Rate::from_mbit_per_sec(6), is_short: true };
    let is_app_limited = |bench: &mut Bench| bench.control.path.view(bench.now()).app_limited;
    bench.run(1000, 1);
    assert!(!is_app_limited(&mut bench) && bench.control.rate() > Some(short.rate));
    let wanted = bench.control.wanted_rate();
    bench.control.set_ceiling(bench.now(), Some(short));
    let seen = |bench: &Bench| [bench.control.rate(), bench.control.wanted_rate()];
    assert_eq!(seen(&bench), [Some(short.rate), wanted]);
    bench.run(500, 1);
    assert!(is_app_limited(&mut bench) && bench.control.rate() == Some(short.rate));
    bench.control.on_peer(bench.now(), Peer::Silent);
    assert_eq!(seen(&bench), [Some(short.rate), None]);
    bench.control.on_peer(bench.now(), Peer::Alive);
    // Below the loop's rate, but the ceiling is the bundle's own demand.
    bench.control.set_ceiling(bench.now(), Some(Ceiling { is_short: false, ..short }));
    bench.run(500, 1);
    assert!(!is_app_limited(&mut bench) && bench.control.rate() == Some(short.rate));
    bench.control.set_ceiling(bench.now(), None);
    assert!(bench.control.rate() > Some(short.rate));
}

#[test]
fn changed_operator_bounds_hold_at_once_without_restart() {
    let mut bench = Bench::new(&fixed("cwnd", "75000B"), 50, None);
    bench.run(1000, 1);
    let (wanted, measured) = (bench.control.wanted_rate(), bench.control.decision());
    let [low, high] = [6, 60].map(|mbit| Some(Rate::from_mbit_per_sec(mbit)));
    bench.control.set_bounds(bench.now(), None, low);
    assert_eq!((bench.control.rate(), bench.control.wanted_rate()), (low, wanted));
    bench.control.set_bounds(bench.now(), high, None);
    assert_eq!(bench.control.rate(), high);
    bench.control.set_bounds(bench.now(), None, None);
    assert_eq!(bench.control.decision(), measured);
}

#[test]
fn control_is_given_up_when_reports_stop() {
    for (rtt_ms, patience_ms) in [(50, 3000), (400, 4000)] {
        let mut bench = Bench::new(&fixed("cwnd", "75000B"), rtt_ms, None);
        bench.run(2000, 1);
        bench.are_reports_lost = true;
        bench.run(patience_ms - 10, 1);
        assert!(bench.control.rate().is_some());
        bench.run(20, 1);
        assert_eq!(bench.control.rate(), None);
        let Decision { state, reason, .. } = bench.control.decision();
        assert_eq!((state, reason), ("no_reports", "packets leave, but no reports arrive"));
        bench.run(2000, 1);
        assert_eq!(bench.control.rate(), None);
        bench.are_reports_lost = false;
        bench.run(1, 1);
        assert!(bench.control.rate().is_some());
        assert_eq!(bench.control.decision().state, "constant");
    }
}

#[test]
fn reports_of_unsent_packets_suggest_nat() {
    let mut bench = Bench::new(&fixed("cwnd", "75000B"), 50, None);
    bench.are_headers_changed = true;
    bench.run(4000, 1);
    assert_eq!(bench.control.rate(), None);
    let reason = bench.control.decision().reason;
    assert!(reason.ends_with("is there NAT between the boxes?"), "{reason}");
}

#[test]
fn little_traffic_proves_nothing() {
    let mut bench = Bench::new(&fixed("cwnd", "75000B"), 50, None);
    bench.run(1000, 1);
    bench.run(60_000, 60_000);
    bench.are_reports_lost = true;
    bench.run(9000, 1000);
    assert_eq!(bench.control.decision().state, "constant");
    bench.run(2000, 1000);
    assert_eq!(bench.control.decision().state, "no_reports");
}

#[test]
fn a_burst_after_silence_has_its_round_trip() {
    let mut bench = Bench::new(&fixed("cwnd", "75000B"), 50, None);
    bench.run(1000, 1);
    bench.are_reports_lost = true;
    bench.run(2, 1);
    bench.run(5000, 60_000);
    bench.are_reports_lost = false;
    bench.run(40, 1);
    assert_eq!(bench.control.decision().state, "constant");
}

#[test]
fn returning_peer_owes_no_report_of_earlier_packets() {
    let mut bench = Bench::new(&fixed("cwnd", "75000B"), 50, None);
    bench.run(1000, 1);
    bench.are_reports_lost = true;
    bench.run(4000, 1);
    bench.control.on_peer(bench.now(), Peer::Restarted);
    bench.run(100, 1);
    assert_eq!(bench.control.decision().state, "constant");
    bench.control.on_peer(bench.now(), Peer::Silent);
    assert_eq!(bench.control.decision().reason, "no authentic message");
    bench.run(4000, 1);
    bench.control.on_peer(bench.now(), Peer::Alive);
    bench.run(100, 1);
    assert_eq!(bench.control.decision().state, "constant");
}

/// The smallest composed round trip in the last second under a supervised algorithm without a queue. The way
/// there takes 15 ms. The way back takes `back_us` of the time at which the report leaves.
fn least_round_trip(seconds: u64, back_us: impl Fn(u64) -> u64) -> Duration {
    let cc = crate::cc::build(&"copa".parse().unwrap(), SUPPLIED).unwrap();
    let mut control = Control::new(SendboxConfig::default(), cc);
    let mut departed = DepartureCounters::default();
    let (forth, mut reports, mut least) = (Duration::from_millis(15), VecDeque::new(), Vec::new());
    for ms in 1..1000 * seconds {
        let now = Timestamp::from_nanos(ms * 1_000_000);
        while let Some((_, report)) = reports.pop_front_if(|(at, _)| *at <= now) {
            let epoch = control.on_report(now, &report).expect("a plausible report");
            if ms > 1000 * (seconds - 1) {
                least.push(epoch.rtt);
            }
        }
        if !ms.is_multiple_of(5) {
            continue;
        }
        control.on_tick(now, Backlog::default());
        let hash = ms << 32;
        let sent = departed.count(now, LEN, mark(hash, ms));
        control.on_departures(&sent);
        let report = Report {
            hash,
            received_at: now + forth,
            received_bytes: sent.bytes,
            received_packets: sent.packets,
            received_ce: 0,
            epoch_size: control.epoch_size(),
        };
        let back = Duration::from_micros(back_us(ms + 15));
        reports.push_back((now + forth + back, report));
    }
    least.into_iter().min().unwrap()
}

#[test]
fn way_back_that_shortens_again_leaves_round_trips() {
    // A queue on the way back that stands for half a minute, then drains at once or within 1.2 s.
    let at_once = |ms| if (10_000..40_000).contains(&ms) { 21_000 } else { 15_000 };
    let slowly = |ms: u64| match ms {
        ..10_000 => 15_000,
        _ => 21_000 - (5 * ms.saturating_sub(40_000)).min(6000),
    };
    let least = [least_round_trip(60, at_once), least_round_trip(60, slowly)];
    assert!(least.iter().all(|it| it.as_millis().abs_diff(30) <= 1), "{least:?}");
}
