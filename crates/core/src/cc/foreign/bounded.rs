//! Bounds the answers of an algorithm: with any answers, a simulation ends and the window lets some data leave.

use alloc::boxed::Box;

use crate::cc::window::CWND_MAX;
use crate::cc::{
    Algorithm, CongestionControl, CongestionEvent, Interim, Measurement, SendLimits, State,
};
use crate::spec::{Spec, SpecError};
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Least pacing rate, a full packet in about 1.5 s, the same as for `const`.
const RATE_MIN: Rate = Rate::from_bits_per_sec(8_000);
/// Least time from one call of a timer to the next: an algorithm without a gap would be called for ever at
/// one instant.
const TIMER_MIN: Duration = Duration::from_micros(10);

/// `algorithm`, with each instance [`within_bounds`]. The entry lives as long as the program.
pub fn bounded(algorithm: Algorithm) -> Algorithm {
    let build = move |spec: &Spec| -> Result<Box<dyn CongestionControl>, SpecError> {
        Ok(within_bounds((algorithm.build)(spec)?, algorithm.min_window_mss))
    };
    Algorithm { build: Box::leak(Box::new(build)), ..algorithm }
}

/// `cc` within bounds: its host sees windows between `least_mss` segments, one at least, and 4 GiB, and rates
/// of 8 kbit/s or more.
pub fn within_bounds(cc: Box<dyn CongestionControl>, least_mss: f64) -> Box<dyn CongestionControl> {
    let (least, waits) = (ByteCount::new(1), Timestamp::ZERO);
    Box::new(Bounded { cc, least_mss: least_mss.max(1.0), least, waits, clamped: 0 })
}

struct Bounded {
    cc: Box<dyn CongestionControl>,
    /// Least window in segments.
    least_mss: f64,
    /// Least window, and least ssthresh.
    least: ByteCount,
    /// No timer is due before this time.
    waits: Timestamp,
    /// See [`CongestionControl::clamped`].
    clamped: u64,
}

impl Bounded {
    /// Takes note of limits outside the bounds. An endless ssthresh is allowed: slow start then ends with a
    /// loss.
    fn note(&mut self) {
        let limits = self.cc.send_limits();
        let is_window = |it: ByteCount| (self.least..=ByteCount::new(CWND_MAX)).contains(&it);
        let is_clamped = limits.cwnd.is_some_and(|it| !is_window(it))
            || limits.ssthresh.is_some_and(|it| it < self.least)
            || limits.pacing_rate.is_some_and(|it| it < RATE_MIN);
        self.clamped += u64::from(is_clamped);
    }
}

impl CongestionControl for Bounded {
    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        let least = (self.least_mss * mss.as_f64()) as u64;
        self.least = ByteCount::new(least.clamp(1, CWND_MAX));
        self.cc.init(now, mss, initial_cwnd);
    }

    fn set_seed(&mut self, seed: u64) {
        self.cc.set_seed(seed);
    }

    fn set_owner(&mut self, owner: &str) {
        self.cc.set_owner(owner);
    }

    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        self.cc.on_measurement(now, measurement);
        self.note();
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        self.cc.on_event(now, event);
        self.note();
    }

    fn on_timer(&mut self, now: Timestamp) {
        self.waits = now + TIMER_MIN;
        self.cc.on_timer(now);
        self.note();
    }

    fn next_timer(&self) -> Option<Timestamp> {
        self.cc.next_timer().map(|at| at.max(self.waits))
    }

    fn send_limits(&self) -> SendLimits {
        let limits = self.cc.send_limits();
        let window = |bytes: ByteCount| bytes.clamp(self.least, ByteCount::new(CWND_MAX));
        SendLimits {
            cwnd: limits.cwnd.map(window),
            ssthresh: limits.ssthresh.map(window),
            pacing_rate: limits.pacing_rate.map(|rate| rate.max(RATE_MIN)),
            ..limits
        }
    }

    fn interim(&self) -> Interim {
        self.cc.interim()
    }

    fn state(&self) -> State {
        self.cc.state()
    }

    fn clamped(&self) -> u64 {
        self.clamped
    }

    fn copied(&self) -> Option<Box<dyn CongestionControl>> {
        let Self { least_mss, least, waits, clamped, .. } = *self;
        Some(Box::new(Self { cc: self.cc.copied()?, least_mss, least, waits, clamped }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::algorithms::constant;
    use crate::spec::Value;

    /// Answers with nonsense, and asks to be called at once.
    struct Nonsense;

    impl CongestionControl for Nonsense {
        fn init(&mut self, _now: Timestamp, _mss: ByteCount, _initial_cwnd: ByteCount) {}
        fn on_measurement(&mut self, _now: Timestamp, _measurement: &Measurement) {}
        fn on_event(&mut self, _now: Timestamp, _event: CongestionEvent) {}
        fn next_timer(&self) -> Option<Timestamp> {
            Some(Timestamp::ZERO)
        }
        fn send_limits(&self) -> SendLimits {
            SendLimits {
                cwnd: Some(ByteCount::ZERO),
                ssthresh: Some(ByteCount::new(u64::MAX)),
                pacing_rate: Some(Rate::ZERO),
                app_limited: None,
            }
        }
        fn state(&self) -> State {
            State::default()
        }
        fn copied(&self) -> Option<Box<dyn CongestionControl>> {
            Some(Box::new(Self))
        }
    }

    #[test]
    fn nonsense_is_brought_within_bounds_and_sense_stays() {
        let nonsense = Algorithm {
            params: &[],
            min_window_mss: 2.0,
            build: &|_| Ok(Box::new(Nonsense)),
            ..constant::ALGORITHM
        };
        let spec = Spec::named("const");
        let mut cc = bounded(nonsense).build(&spec).unwrap();
        let now = Timestamp::from_nanos(1_000_000);
        cc.init(now, ByteCount::new(1000), ByteCount::new(10_000));
        for cc in [&cc, &cc.copied().unwrap()] {
            let limits = cc.send_limits();
            assert_eq!(limits.cwnd, Some(ByteCount::new(2000)));
            assert_eq!(limits.ssthresh, Some(ByteCount::new(CWND_MAX)));
            assert_eq!(limits.pacing_rate, Some(RATE_MIN));
        }
        assert_eq!(cc.clamped(), 0);
        cc.on_timer(now);
        assert_eq!(cc.next_timer(), Some(now + TIMER_MIN));
        cc.on_event(now, CongestionEvent::Loss);
        assert_eq!(cc.clamped(), 2);

        let window = Value::Text("30000B".into());
        let mut sane = bounded(constant::ALGORITHM).build(&spec.with("cwnd", window)).unwrap();
        sane.init(now, ByteCount::new(1000), ByteCount::new(10_000));
        sane.on_event(now, CongestionEvent::Loss);
        assert_eq!(sane.clamped(), 0);
        assert_eq!(sane.send_limits().cwnd, Some(ByteCount::new(30_000)));
    }
}
