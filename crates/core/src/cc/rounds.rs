//! Rounds of a connection, and the round trips seen in them.
//!
//! A round ends with the acknowledgement of a packet that was sent after the round began: the bytes
//! delivered at its departure (`prior_delivered`) then reach those at the round's beginning. Counted
//! like this, rounds do not depend on how many packets an acknowledgement covers.

mod max;
mod ns3;

#[cfg(test)]
use alloc::boxed::Box;

pub use self::max::RoundMax;
use self::ns3::Outstanding;
use super::Measurement;
#[cfg(test)]
use super::{CongestionControl, CongestionEvent, RttSample};
#[cfg(test)]
use crate::spec::SpecError;
use crate::units::{ByteCount, duration_nanos, mul_div};
#[cfg(test)]
use crate::units::{Duration, Timestamp};

/// Finds where a round ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rounds {
    began: ByteCount,
}

impl Rounds {
    /// Takes a measurement; true if a round ends with it. The first always does.
    pub fn on_measurement(&mut self, measurement: &Measurement) -> bool {
        let is_over = measurement.prior_delivered >= self.began;
        if is_over {
            self.restart(measurement);
        }
        is_over
    }

    /// Begins a new round with this measurement, even if the last one is not over.
    pub fn restart(&mut self, measurement: &Measurement) {
        self.restart_at(measurement.delivered);
    }

    /// Begins a new round after `delivered` bytes, even if the last one is not over.
    pub fn restart_at(&mut self, delivered: ByteCount) {
        self.began = delivered;
    }
}

/// Outcome of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// The round is not over, or it had no measurement.
    Open,
    /// The round is over, and too little was measured.
    TooShort,
    /// The round is over: its least round trip in nanoseconds.
    Over(u64),
}

/// Least round trips, of all time and of one round, in nanoseconds from 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrips {
    rounds: Rounds,
    /// Counts rounds in another way instead.
    outstanding: Option<Outstanding>,
    base: Option<u64>,
    current: Option<u64>,
    /// Present samples belong to a repair.
    is_paused: bool,
}

impl RoundTrips {
    /// Round trips in rounds that [`Outstanding`] counts.
    pub(super) fn by_outstanding() -> Self {
        Self { outstanding: Some(Outstanding::new()), ..Self::default() }
    }

    /// Takes a measurement, which belongs to the round that it ends.
    pub fn on_measurement(&mut self, measurement: &Measurement) -> Round {
        if let Some(rtt) = least(measurement) {
            self.base = Some(self.base.map_or(rtt, |base| base.min(rtt)));
            self.current = Some(self.current.map_or(rtt, |current| current.min(rtt)));
        }
        let is_paused = self.is_paused;
        let outstanding = self.outstanding.as_mut();
        if outstanding.is_some_and(|it| it.is_order_restored(measurement)) && !is_paused {
            self.resume();
        }
        let is_over = match &mut self.outstanding {
            Some(rounds) => rounds.on_measurement(measurement),
            None => self.rounds.on_measurement(measurement),
        };
        if !is_over {
            return Round::Open;
        }
        let is_short = self.outstanding.as_mut().is_some_and(Outstanding::was_too_short);
        match self.current.take().filter(|_| !self.is_paused) {
            Some(_) if is_short => Round::TooShort,
            Some(rtt) => Round::Over(rtt),
            None => Round::Open,
        }
    }

    /// A repair begins: until [`RoundTrips::resume`] rounds have no result.
    pub fn pause(&mut self) {
        self.is_paused = true;
    }

    /// There was no pause: rounds go on as if nothing had begun.
    pub fn unpause(&mut self) {
        self.is_paused = false;
    }

    /// The repair is over; samples of this round were for another window.
    pub fn resume(&mut self) {
        self.is_paused = false;
        self.current = None;
        if let Some(rounds) = &mut self.outstanding {
            rounds.restart();
        }
    }

    /// A repair is under way.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// The least of all time.
    pub fn base(&self) -> Option<u64> {
        self.base
    }

    /// Round trips seen before count as longer by this many nanoseconds.
    pub fn shift(&mut self, nanos: i64) {
        let shifted = |rtt: u64| rtt.saturating_add_signed(nanos).max(1);
        self.base = self.base.map(shifted);
        self.current = self.current.map(shifted);
    }
}

/// The least round trip of a measurement in nanoseconds. `None` also for zero, which a clock of 1 ms may give.
pub fn least(measurement: &Measurement) -> Option<u64> {
    Some(duration_nanos(measurement.rtt?.min)).filter(|nanos| *nanos > 0)
}

/// Bytes of `window` in queues when the round trip is `rtt` and would be `base` without them: `window
/// (rtt - base) / rtt`. In Vegas' words that is the expected minus the actual rate, times the base.
pub fn queued(window: u64, base: u64, rtt: u64) -> u64 {
    mul_div(window, rtt.saturating_sub(base), rtt.max(1))
}

/// Segment of [`RoundSender`].
#[cfg(test)]
pub(super) const MSS: u64 = 1000;

/// A sender for the tests of algorithms: a whole window is acknowledged at once, with the round trip
/// that the test says.
#[cfg(test)]
pub(super) struct RoundSender {
    pub cc: Box<dyn CongestionControl>,
    pub now: Timestamp,
    /// Further fields of the measurements.
    pub extra: Measurement,
    delivered: ByteCount,
}

#[cfg(test)]
impl RoundSender {
    /// With ten segments.
    pub fn new(cc: Result<Box<dyn CongestionControl>, SpecError>) -> Self {
        let mut cc = cc.unwrap();
        cc.init(Timestamp::ZERO, ByteCount::new(MSS), ByteCount::new(10 * MSS));
        let (extra, delivered) = (Measurement::default(), ByteCount::ZERO);
        Self { cc, now: Timestamp::ZERO, extra, delivered }
    }

    /// As above, with the algorithm `name` as ns-3 has it.
    pub fn as_ns3(name: &str) -> Self {
        Self::new(Ok(super::algorithms::ns3::built(name, &[])))
    }

    pub fn cwnd(&self) -> u64 {
        self.cc.send_limits().cwnd.unwrap().as_u64()
    }

    pub fn ssthresh(&self) -> Option<u64> {
        self.cc.send_limits().ssthresh.map(ByteCount::as_u64)
    }

    pub fn event(&mut self, event: CongestionEvent) -> u64 {
        self.cc.on_event(self.now, event);
        self.cwnd()
    }

    /// Acknowledges a window after this round trip; returns the window that follows.
    pub fn round(&mut self, rtt_us: u64) -> u64 {
        let rtt = Duration::from_micros(rtt_us);
        self.now += rtt;
        let (prior_delivered, acked) = (self.delivered, ByteCount::new(self.cwnd()));
        self.delivered += acked;
        let measurement = Measurement {
            interval: rtt,
            acked,
            rtt: Some(RttSample { latest: rtt, min: rtt }),
            delivered: self.delivered,
            prior_delivered,
            ..self.extra
        };
        self.cc.on_measurement(self.now, &measurement);
        self.cwnd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::RttSample;
    use alloc::vec::Vec;

    fn measured(delivered: u64, prior: u64, rtt_ms: u64) -> Measurement {
        let rtt = Duration::from_millis(rtt_ms);
        Measurement {
            delivered: ByteCount::new(delivered),
            prior_delivered: ByteCount::new(prior),
            rtt: Some(RttSample { latest: rtt, min: rtt }),
            ..Measurement::default()
        }
    }

    #[test]
    fn ns3_round_covers_its_flight_and_three_measurements() {
        let mut trips = RoundTrips::by_outstanding();
        let mut measure = |delivered, in_flight, acked, rtt_ms| {
            trips.on_measurement(&Measurement {
                acked: ByteCount::new(acked),
                in_flight: Some(ByteCount::new(in_flight)),
                ..measured(delivered, 0, rtt_ms)
            })
        };
        assert_eq!(measure(10, 30, 10, 40), Round::TooShort);
        assert_eq!([measure(20, 30, 10, 50), measure(30, 30, 10, 45)], [Round::Open; 2]);
        assert_eq!(measure(40, 20, 10, 60), Round::Over(45_000_000));
        // A second acknowledgement of two ends it: two are not three.
        assert_eq!(
            [measure(50, 20, 10, 50), measure(60, 20, 10, 50)],
            [Round::Open, Round::TooShort]
        );
        // After a duplicate that reported no loss a new round begins, so the next one does not end it.
        assert_eq!([measure(70, 20, 10, 50), measure(70, 20, 0, 48)], [Round::Open; 2]);
        assert_eq!([measure(80, 20, 10, 60), measure(90, 20, 10, 61)], [Round::Open; 2]);
        assert_eq!(
            [measure(95, 20, 5, 62), measure(100, 20, 5, 63)],
            [Round::Open, Round::Over(61_000_000)]
        );
    }

    #[test]
    fn measurements_during_repair_count_for_no_round() {
        for mut trips in [RoundTrips::default(), RoundTrips::by_outstanding()] {
            trips.pause();
            let repairing = Measurement { acked: ByteCount::new(10), ..measured(10, 0, 90) };
            assert_eq!(trips.on_measurement(&repairing), Round::Open);
            assert!(trips.is_paused());
            trips.resume();
            let mut rtts = Vec::new();
            for delivered in (20..90).step_by(10) {
                let acked = ByteCount::new(10);
                let in_flight = Some(ByteCount::new(30));
                let prior = delivered - 10;
                let measurement =
                    Measurement { acked, in_flight, ..measured(delivered, prior, delivered) };
                if let Round::Over(rtt) = trips.on_measurement(&measurement) {
                    rtts.push(rtt);
                }
            }
            assert!(!rtts.is_empty() && rtts.iter().all(|rtt| *rtt <= 80_000_000), "{rtts:?}");
            assert_eq!(trips.base(), Some(20_000_000));
        }
    }

    #[test]
    fn round_ends_with_first_packet_sent_after_start() {
        let mut trips = RoundTrips::default();
        assert_eq!(trips.on_measurement(&measured(10, 0, 40)), Round::Over(40_000_000));
        assert_eq!(trips.on_measurement(&measured(20, 0, 60)), Round::Open);
        assert_eq!(trips.on_measurement(&measured(30, 9, 50)), Round::Open);
        assert_eq!(trips.on_measurement(&measured(40, 10, 55)), Round::Over(50_000_000));
        assert_eq!(trips.on_measurement(&measured(50, 39, 70)), Round::Open);
        assert_eq!(trips.on_measurement(&measured(60, 40, 80)), Round::Over(70_000_000));
        assert_eq!(trips.base(), Some(40_000_000));
    }

    #[test]
    fn quarter_longer_round_means_a_fifth_is_queued() {
        assert_eq!(queued(100_000, 40, 50), 20_000);
        assert_eq!(queued(100_000, 50, 40), 0);
        assert_eq!(queued(u64::MAX, 0, u64::MAX), u64::MAX);
    }
}
