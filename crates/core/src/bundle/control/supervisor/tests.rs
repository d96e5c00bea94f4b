use super::*;
use crate::cc::RttSample;
use crate::units::Ratio;

const RTT_MS: u64 = 50;
/// Delivery rate without limits (bytes per second).
const LINK: f64 = 1e6;

/// A path with a round trip of 50 ms and a report every 10 ms, and the supervisor's answers.
struct Bench {
    supervisor: Supervisor,
    now_s: f64,
    backlog: ByteCount,
    changes: Vec<(f64, LimitsChange)>,
}

impl Bench {
    /// A queue stands while passing, the trial removes it, and the limits apply.
    fn shaping() -> Self {
        let mut bench = Self::passing();
        bench.run(1.0, LINK / 2.0, 0.0, 1.0);
        bench.run(2.0, LINK, 100.0, 1.0);
        while bench.supervisor.phase().is_some() {
            bench.run(0.01, LINK, 2.0, 1.0);
            assert!(bench.now_s < 20.0, "{:?}", bench.changes);
        }
        bench
    }

    fn passing() -> Self {
        let supervisor = Supervisor::new(Duration::ZERO);
        Self { supervisor, now_s: 0.0, backlog: ByteCount::ZERO, changes: Vec::new() }
    }

    /// For `seconds`, the path delivers `rate` (bytes per second) with a queue of `queue_ms`. The sendbox is
    /// `busy` (0 to 1).
    fn run(&mut self, seconds: f64, rate: f64, queue_ms: f64, busy: f64) {
        let end_s = self.now_s + seconds - 1e-6;
        while self.now_s < end_s {
            self.now_s += 0.01;
            let now = Timestamp::from_nanos((self.now_s * 1e9) as u64);
            let sent = if let Mode::Draining(drain) = self.supervisor.mode {
                // The queue belongs to the bundle and is empty after a quarter of a second.
                let is_empty = self.now_s > drain.since_s + 0.25;
                if is_empty { (drain.rate, 0.0) } else { (rate, queue_ms) }
            } else {
                (rate, queue_ms)
            };
            let rtt = Duration::from_secs_f64(RTT_MS as f64 * 1e-3 + sent.1 * 1e-3);
            let measurement = Measurement {
                interval: Duration::from_millis(10),
                acked: ByteCount::new((sent.0 * 0.01) as u64),
                rtt: Some(RttSample { latest: rtt, min: rtt }),
                feedback_delay: Some(rtt),
                delivery_rate: Some(Rate::from_bytes_per_sec_f64(sent.0)),
                idle: Ratio::new(1.0 - busy),
                backlog: Some(self.backlog),
                ..Measurement::default()
            };
            let is_limited = !matches!(self.supervisor.mode, Mode::Passing);
            let loop_time = Duration::from_millis(RTT_MS);
            let change = self.supervisor.on_measurement(
                &Tuning::DEFAULT,
                now,
                &measurement,
                loop_time,
                is_limited,
            );
            self.changes.extend(change.map(|change| (self.now_s, change)));
            let law = Some(Rate::from_bytes_per_sec_f64(rate));
            self.supervisor.bound(&Tuning::DEFAULT, now, law, ByteCount::ZERO, 0.0);
        }
    }

    fn is_passing(&self) -> bool {
        self.supervisor.mode == Mode::Passing
    }
}

#[test]
fn without_a_queue_nothing_is_tried() {
    let mut bench = Bench::passing();
    bench.run(60.0, LINK, 0.0, 1.0);
    assert!(bench.is_passing() && bench.changes.is_empty(), "{:?}", bench.changes);
}

#[test]
fn a_trial_waits_for_slow_start() {
    let mut bench = Bench::passing();
    bench.run(0.5, LINK / 100.0, 0.0, 1.0);
    for step in 1..=8 {
        bench.run(1.0, LINK * f64::from(1 << step), 40.0, 1.0);
        assert!(bench.is_passing(), "after {step} s");
    }
    bench.run(3.0, LINK * 256.0, 40.0, 1.0);
    assert!(!bench.is_passing());
}

#[test]
fn limits_that_deliver_as_much_are_kept() {
    let mut bench = Bench::shaping();
    assert_eq!(bench.supervisor.saves(&Tuning::DEFAULT), None, "not known so soon");
    bench.run(120.0, LINK, 2.0, 1.0);
    assert!(!bench.is_passing(), "{:?}", bench.changes);
    let saved = bench.supervisor.saves(&Tuning::DEFAULT).unwrap();
    assert!((90..=99).contains(&saved.as_millis()), "{saved:?} of a queue of 100 ms");
}

#[test]
fn half_the_rate_ends_shaping_within_a_second() {
    let mut bench = Bench::shaping();
    // The rate varies, as it does in competition with responsive flows.
    let from_s = bench.now_s;
    while !bench.is_passing() {
        let share = if ((bench.now_s * 10.0) as u64).is_multiple_of(2) { 0.45 } else { 0.55 };
        bench.run(0.1, LINK * share, 30.0, 1.0);
        assert!(bench.now_s < from_s + 1.5, "{:?}", bench.changes);
    }
    assert_eq!(bench.supervisor.reason, "limits reduced the delivered rate");
}

#[test]
fn a_lack_of_demand_is_no_deficit() {
    let mut bench = Bench::shaping();
    bench.run(60.0, LINK / 10.0, 0.0, 0.05);
    assert!(!bench.is_passing(), "{:?}", bench.changes);
}

#[test]
fn idle_time_repays_little_of_a_deficit() {
    let mut bench = Bench::shaping();
    bench.supervisor.deficit_s = 0.2;
    bench.run(1.0, LINK, 0.0, 0.5);
    assert!(bench.supervisor.deficit_s > 0.15, "{}", bench.supervisor.deficit_s);
}

#[test]
fn a_constant_lower_rate_is_a_slower_link() {
    let mut bench = Bench::shaping();
    bench.run(20.0, LINK * 0.7, 20.0, 1.0);
    assert!(!bench.is_passing(), "{:?}", bench.changes);
    let reference = bench.supervisor.reference.rate();
    assert!((reference / LINK - 0.7).abs() < 0.02, "{reference}");
}

#[test]
fn the_floor_is_no_slower_link() {
    let mut bench = Bench::shaping();
    bench.supervisor.is_at_floor = true;
    let reference = bench.supervisor.reference.rate();
    let law = |bench: &mut Bench| {
        let now = Timestamp::from_nanos((bench.now_s * 1e9) as u64);
        bench.supervisor.bound(&Tuning::DEFAULT, now, Some(Rate::ZERO), ByteCount::ZERO, 0.0)
    };
    while !bench.is_passing() {
        let floor = law(&mut bench).map_or(0.0, Rate::as_bytes_per_sec_f64);
        bench.run(0.01, floor, 0.0, 1.0);
        bench.supervisor.is_at_floor = true;
        assert!(bench.now_s < 40.0, "{}", bench.supervisor.reference.rate());
    }
    assert!(bench.supervisor.reference.rate() > 0.99 * reference);
}

#[test]
fn intermittently_idle_box_learns_no_constant_rate() {
    let mut bench = Bench::shaping();
    let reference = bench.supervisor.reference.rate();
    bench.run(20.0, LINK * 0.69, 0.0, 0.7);
    assert!(bench.supervisor.reference.rate() > 0.99 * reference);
}

#[test]
fn a_silence_keeps_the_least_round_trip() {
    let mut bench = Bench::shaping();
    bench.supervisor.restart();
    bench.run(3.0, LINK, 100.0, 1.0);
    assert!(!bench.is_passing(), "the queue stands still");
}

#[test]
fn a_backlog_of_requests_that_grows_ends_shaping() {
    let mut bench = Bench::shaping();
    // A fifth of a second of backlog, twice the round trip while passing. There is none for half of the time.
    bench.backlog = ByteCount::new(LINK as u64 / 5);
    bench.run(15.0, LINK, 0.0, 0.5);
    assert!(bench.is_passing());
    assert_eq!(bench.supervisor.reason, "limits lengthened the delay");
}
