use super::*;
use crate::random::{Stream, Streams};

/// A path of 10 ms each way and reports every 5 ms that are late by up to 1 ms; the queue there (seconds)
/// and the foreign clock's error (seconds) are functions of time (seconds).
struct Bench {
    clock: ForeignClock,
    noise: Stream,
    now_s: f64,
    corrected_s: f64,
    doubts: u32,
}

impl Bench {
    fn new() -> Self {
        let noise = Streams::new(1).stream("noise");
        let clock = ForeignClock::default();
        Self { clock, noise, now_s: 1.0, corrected_s: 0.0, doubts: 0 }
    }

    fn run(&mut self, seconds: f64, queue_s: impl Fn(f64) -> f64, ahead_s: impl Fn(f64) -> f64) {
        self.run_with(seconds, queue_s, ahead_s, |_| 0.0);
    }

    fn run_with(
        &mut self,
        seconds: f64,
        queue_s: impl Fn(f64) -> f64,
        ahead_s: impl Fn(f64) -> f64,
        back_queue_s: impl Fn(f64) -> f64,
    ) {
        let at = |seconds: f64| Timestamp::from_nanos((seconds * 1e9) as u64);
        let end_s = self.now_s + seconds;
        while self.now_s < end_s {
            self.now_s += 0.005;
            let received_s = self.now_s + 0.01 + queue_s(self.now_s) + 0.2e-3 * self.noise.unit();
            let back_s = 0.01 + 1e-3 * self.noise.unit() + back_queue_s(self.now_s);
            let foreign = at(received_s + 1000.0 + ahead_s(received_s));
            let corrected = self.clock.on_report(
                &Tuning::DEFAULT,
                at(received_s + back_s),
                at(self.now_s),
                foreign,
            );
            self.corrected_s = corrected.received_at.as_secs_f64() - 1000.0 - received_s;
            self.doubts += u32::from(corrected.finding == Some(Finding::Doubt));
        }
    }
}

/// A queue that is empty once in half a second.
fn sawtooth(now_s: f64) -> f64 {
    4e-3 * (now_s * 2.0).fract()
}

#[test]
fn agreeing_clocks_are_not_corrected_whatever_the_queue() {
    let mut bench = Bench::new();
    bench.run(20.0, sawtooth, |_| 0.0);
    let sine = |now_s: f64| 0.025 - 0.025 * libm::cos(now_s * core::f64::consts::TAU / 10.0);
    bench.run_with(20.0, sawtooth, |_| 0.0, sine);
    bench.run_with(20.0, sine, |_| 0.0, |_| 0.0);
    bench.run(1.0, |_| 0.2, |_| 0.0);
    bench.run(1.0, sawtooth, |_| 0.0);
    bench.run_with(5.0, sawtooth, |_| 0.0, |_| 0.05);
    assert_eq!(bench.clock.drift(), 0.0);
    assert!(bench.corrected_s.abs() < 1e-8, "{}", bench.corrected_s);
}

#[test]
fn drift_is_found_within_tens_of_ppm() {
    for ppm in [-1000.0, -300.0, -100.0, 100.0, 300.0, 1000.0, 2600.0] {
        let mut bench = Bench::new();
        bench.run(20.0, sawtooth, |now_s| ppm * 1e-6 * now_s);
        let found_ppm = bench.clock.drift() * 1e6;
        assert!((found_ppm - ppm).abs() < 40.0, "{found_ppm} of {ppm} ppm");
        let before_s = bench.corrected_s;
        bench.run(10.0, sawtooth, |now_s| ppm * 1e-6 * now_s);
        let moved_s = bench.corrected_s - before_s;
        assert!(moved_s.abs() < 0.5e-3, "{ppm} ppm: {moved_s} s in ten seconds");
    }
}

#[test]
fn slew_and_its_end_are_followed_within_seconds() {
    for share in [-0.1, 0.1] {
        let mut bench = Bench::new();
        let ahead_s = |now_s: f64| share * (now_s - 5.0).clamp(0.0, 20.0);
        bench.run(4.0, sawtooth, ahead_s);
        bench.run(1.5, sawtooth, ahead_s);
        assert!((bench.clock.drift() - share).abs() < 0.01, "{}", bench.clock.drift());
        bench.run(14.0, sawtooth, ahead_s);
        // A slew moves this far within a stretch.
        assert!(
            bench.corrected_s.abs() < 0.1 * Tuning::DEFAULT.reports_time.as_secs_f64(),
            "{share}: {}",
            bench.corrected_s
        );
        bench.run(10.0, sawtooth, ahead_s);
        assert!(
            bench.corrected_s.abs() < 0.1 * Tuning::DEFAULT.reports_time.as_secs_f64(),
            "{share}: {}",
            bench.corrected_s
        );
        assert!(bench.clock.drift().abs() < 1e-3, "{}", bench.clock.drift());
    }
}

#[test]
fn step_is_removed_and_reports_are_distrusted_meanwhile() {
    for step_s in [-900.0, -1.0, -0.02, 0.02, 1.0, 3600.0] {
        let mut bench = Bench::new();
        let ahead_s = |now_s: f64| if now_s < 5.0 { 0.0 } else { step_s };
        bench.run(4.35, sawtooth, ahead_s);
        assert!(bench.clock.is_suspect(), "{step_s} s");
        bench.run(0.5, sawtooth, ahead_s);
        assert!(!bench.clock.is_suspect(), "{step_s} s");
        assert!(bench.corrected_s.abs() < 3e-3, "{step_s} s: {}", bench.corrected_s);
        bench.run(2.0, sawtooth, ahead_s);
        assert!(bench.clock.drift().abs() < 1e-3, "{step_s} s: {}", bench.clock.drift());
    }
}

/// A controller that holds its measured queueing delay lets the queue grow as the clock loses time.
#[test]
fn drift_hidden_by_queue_is_doubted_until_drained() {
    let mut bench = Bench::new();
    let slow = |now_s: f64| -300e-6 * now_s;
    bench.run(5.0, |now_s| 300e-6 * now_s, slow);
    assert_eq!(bench.clock.drift(), 0.0);
    assert!(bench.doubts > 0);
    bench.run(1.0, |_| 0.0, slow);
    bench.run(5.0, sawtooth, slow);
    assert!((bench.clock.drift() + 300e-6).abs() < 100e-6, "{}", bench.clock.drift());
}

#[test]
fn hostile_times_are_no_more_than_wrong() {
    let mut clock = ForeignClock::default();
    let mut times = Streams::new(7).stream("times");
    for _ in 0..20_000 {
        let shift = times.below(64);
        let [now, sent, received] = [(); 3].map(|()| Timestamp::from_nanos(times.bits() >> shift));
        clock.on_report(&Tuning::DEFAULT, now, sent, received);
    }
    assert!(clock.drift().is_finite());
}
