//! An algorithm that gets measurements less often than its host takes them, for one that is expensive to
//! call.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::str::FromStr;

use crate::cc::rounds::Rounds;
use crate::cc::{
    CongestionControl, CongestionEvent, Interim, Measurement, RttSample, SendLimits, State,
};
use crate::units::{ByteCount, Duration, Ratio, Timestamp, parse_duration};

/// How often an algorithm gets a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// At each measurement of the host: of a TCP each acknowledgement.
    Measurement,
    /// Once a round trip, counted in bytes as in [`Rounds`].
    Round,
    /// At the first measurement this long after the previous one that it got.
    Time(Duration),
}

/// The longest time: an algorithm that gets a measurement less than once a second decides nothing.
const TIME_MAX: Duration = Duration::from_secs(1);
/// The shortest time: a full packet at 12 Gbit/s.
const TIME_MIN: Duration = Duration::from_micros(1);

impl FromStr for Every {
    type Err = String;

    /// Reads `ack`, `round`, or a time such as `10ms`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ack" => Ok(Self::Measurement),
            "round" => Ok(Self::Round),
            _ => {
                let time = parse_duration(text).ok();
                let time = time.filter(|time| (TIME_MIN..=TIME_MAX).contains(time));
                time.map(Self::Time)
                    .ok_or_else(|| "\"round\", \"ack\", or a time, 1us to 1s".to_string())
            }
        }
    }
}

/// `cc`, called with measurements as rarely as `every` says: several as one. Events come at once, and the
/// measurements until then come before them.
pub fn seldom(cc: Box<dyn CongestionControl>, every: Every) -> Box<dyn CongestionControl> {
    let (rounds, told) = (Rounds::default(), Timestamp::ZERO);
    Box::new(Seldom { cc, every, rounds, told, pending: None })
}

struct Seldom {
    cc: Box<dyn CongestionControl>,
    every: Every,
    rounds: Rounds,
    /// When the algorithm last got a measurement, or started.
    told: Timestamp,
    /// Measurements that the algorithm has not got yet.
    pending: Option<Measurement>,
}

impl Seldom {
    fn tell(&mut self, now: Timestamp) {
        if let Some(measurement) = self.pending.take() {
            self.told = now;
            self.cc.on_measurement(now, &measurement);
        }
    }
}

impl CongestionControl for Seldom {
    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        (self.rounds, self.told, self.pending) = (Rounds::default(), now, None);
        self.cc.init(now, mss, initial_cwnd);
    }

    fn set_seed(&mut self, seed: u64) {
        self.cc.set_seed(seed);
    }

    fn set_owner(&mut self, owner: &str) {
        self.cc.set_owner(owner);
    }

    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        match &mut self.pending {
            Some(older) => join(older, measurement),
            None => self.pending = Some(*measurement),
        }
        let is_due = match self.every {
            Every::Measurement => true,
            Every::Round => self.rounds.on_measurement(measurement),
            Every::Time(time) => now.saturating_since(self.told) >= time,
        };
        if is_due {
            self.tell(now);
        }
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        self.tell(now);
        self.cc.on_event(now, event);
    }

    fn on_timer(&mut self, now: Timestamp) {
        self.cc.on_timer(now);
    }

    fn next_timer(&self) -> Option<Timestamp> {
        self.cc.next_timer()
    }

    fn send_limits(&self) -> SendLimits {
        self.cc.send_limits()
    }

    fn interim(&self) -> Interim {
        self.cc.interim()
    }

    fn state(&self) -> State {
        self.cc.state()
    }
}

/// Joins a measurement and the next one into one.
///
/// Field by field: a new measurement in the place of the old one makes a run 2 % slower.
fn join(it: &mut Measurement, next: &Measurement) {
    it.idle = idle(it, next);
    it.interval += next.interval;
    it.acked += next.acked;
    it.lost = sum(it.lost, next.lost);
    it.ecn_ce = sum(it.ecn_ce, next.ecn_ce);
    it.ect1 = sum(it.ect1, next.ect1);
    it.rtt = match (it.rtt, next.rtt) {
        (Some(one), Some(other)) => {
            Some(RttSample { latest: other.latest, min: one.min.min(other.min) })
        }
        (one, other) => other.or(one),
    };
    it.feedback_delay = next.feedback_delay.or(it.feedback_delay);
    it.one_way = next.one_way.or(it.one_way);
    it.send_rate = next.send_rate.or(it.send_rate);
    it.delivery_rate = next.delivery_rate.or(it.delivery_rate);
    it.train_rate = next.train_rate.or(it.train_rate);
    it.in_flight = next.in_flight.or(it.in_flight);
    (it.delivered, it.prior_delivered) = (next.delivered, next.prior_delivered);
    it.lost_prior_delivered = it.lost_prior_delivered.or(next.lost_prior_delivered);
    it.app_limited |= next.app_limited;
    it.cwnd_limited = match (it.cwnd_limited, next.cwnd_limited) {
        (Some(one), Some(other)) => Some(one || other),
        (one, other) => other.or(one),
    };
    it.backlog = next.backlog.or(it.backlog);
}

/// The sum of the known values.
fn sum(older: Option<ByteCount>, newer: Option<ByteCount>) -> Option<ByteCount> {
    match (older, newer) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => other.or(one),
    }
}

/// The share of both intervals in which the sender had nothing to send.
fn idle(older: &Measurement, newer: &Measurement) -> Option<Ratio> {
    let (Some(one), Some(other)) = (older.idle, newer.idle) else {
        return newer.idle.or(older.idle);
    };
    let [first, second] = [older, newer].map(|it| it.interval.as_secs_f64());
    let share = (one.as_f64() * first + other.as_f64() * second) / (first + second);
    // Two intervals of no length have no share.
    Ratio::new(share).or(newer.idle)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::units::Rate;

    /// Writes down each call: acknowledged bytes, or 0 for an event.
    struct Heard(Arc<Mutex<Vec<u64>>>);

    impl CongestionControl for Heard {
        fn init(&mut self, _now: Timestamp, _mss: ByteCount, _initial_cwnd: ByteCount) {}
        fn on_measurement(&mut self, _now: Timestamp, measurement: &Measurement) {
            self.0.lock().unwrap().push(measurement.acked.as_u64());
        }
        fn on_event(&mut self, _now: Timestamp, _event: CongestionEvent) {
            self.0.lock().unwrap().push(0);
        }
        fn send_limits(&self) -> SendLimits {
            SendLimits::default()
        }
        fn state(&self) -> State {
            State::default()
        }
    }

    /// The calls for ten acknowledgements of a byte, 1 ms apart, each for a byte that left four before. A
    /// loss is noticed with the seventh.
    fn heard(every: &str) -> Vec<u64> {
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut cc = seldom(Box::new(Heard(log.clone())), every.parse().unwrap());
        let byte = ByteCount::new(1);
        cc.init(Timestamp::ZERO, byte, byte);
        for number in 1..=10 {
            let now = Timestamp::from_nanos(number * 1_000_000);
            if number == 7 {
                cc.on_event(now, CongestionEvent::Loss);
            }
            let delivered = ByteCount::new(number);
            let prior_delivered = ByteCount::new(number.saturating_sub(4));
            let measurement =
                Measurement { acked: byte, delivered, prior_delivered, ..Measurement::default() };
            cc.on_measurement(now, &measurement);
        }
        log.lock().unwrap().clone()
    }

    #[test]
    fn measurements_arrive_at_the_chosen_interval_without_loss() {
        assert_eq!(heard("ack"), [1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1]);
        assert_eq!(heard("round"), [1, 4, 1, 0, 3]);
        assert_eq!(heard("3ms"), [3, 3, 0, 3]);
        for wrong in ["", "rounds", "2s", "0ms"] {
            assert!(wrong.parse::<Every>().unwrap_err().contains("1us to 1s"), "{wrong}");
        }
    }

    #[test]
    fn merged_measurements_keep_sums_minimum_and_newest_rates() {
        let ms = Duration::from_millis;
        let share = |value| Ratio::new(value).unwrap();
        let (bytes, rate) = (ByteCount::new, Rate::from_bits_per_sec);
        // No field is left to a default, so that a new field does not compile before it is tested here.
        let measured = |interval, sum, rtt: [u64; 2], newest, idle, is_limited| Measurement {
            interval: ms(interval),
            acked: bytes(sum),
            lost: Some(bytes(sum)),
            ecn_ce: Some(bytes(sum)),
            ect1: Some(bytes(sum)),
            rtt: Some(RttSample { latest: ms(rtt[0]), min: ms(rtt[1]) }),
            feedback_delay: Some(ms(newest)),
            one_way: Some(ms(newest)),
            send_rate: Some(rate(newest)),
            delivery_rate: Some(rate(newest)),
            train_rate: Some(rate(newest)),
            in_flight: Some(bytes(newest)),
            delivered: bytes(newest),
            prior_delivered: bytes(newest),
            lost_prior_delivered: Some(bytes(7)),
            app_limited: is_limited,
            cwnd_limited: Some(is_limited),
            idle: Some(share(idle)),
            backlog: Some(bytes(newest)),
        };
        let older = measured(10, 3, [30, 20], 1, 1.0, true);
        let mut newer = measured(30, 4, [40, 40], 2, 0.0, false);
        newer.lost_prior_delivered = Some(bytes(8));
        let mut one = older;
        join(&mut one, &newer);
        assert_eq!(one, measured(40, 7, [40, 20], 2, 0.25, true));
        let mut unknown = newer;
        join(&mut unknown, &Measurement::default());
        assert_eq!((unknown.rtt, unknown.ecn_ce), (newer.rtt, newer.ecn_ce));
    }
}
