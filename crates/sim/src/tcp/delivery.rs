//! Delivery-rate samples: how fast the path delivered the segments that an acknowledgement reports.
//!
//! ```text
//! rate = delivered since the segment was sent / max(send elapsed, ack elapsed)
//! ```
//! Here the segment is the newly delivered one that was sent last. Send elapsed is the time over which the
//! delivered segments were sent, and ack elapsed the time over which they were acknowledged. So neither a
//! burst of data nor one of acknowledgements makes the rate too high.
//!
//! Source: draft-ietf-ccwg-bbr-06 section 4.1 (the algorithm of Linux net/ipv4/tcp_rate.c). As there, samples
//! over less than the least round-trip time are dropped. If the sender runs out of data, later segments give
//! app-limited samples until more is delivered than was then outstanding.
//!
//! ns-3 ([`super::stack::Tcp::keeps_rate_samples`]) keeps a sample and its segment until it sees a segment
//! with more delivered before its departure. Deliveries in the meantime count. The time of its
//! acknowledgements starts where the previous sample's did. With one segment for each acknowledgement the
//! rate is therefore low by the gap between two; with two segments for each it is right.

use std::collections::VecDeque;

use forebay_core::units::{ByteCount, Duration, Rate, Timestamp};

use super::scoreboard::Sent;
use crate::event::nanos_between;

/// Counters of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    /// Segments delivered, 2^32 at most.
    delivered: u32,
    delivered_at: Timestamp,
    first_sent: Timestamp,
    /// Rates are needed: each costs a division.
    has_rates: bool,
    /// ns-3's sample. It is boxed because no other stack has one.
    kept: Option<Box<Kept>>,
    /// Until more than this is delivered, departing segments are app-limited (C.app_limited).
    limited_until: Option<u32>,
    /// Intervals of departure of app-limited segments that may still be delivered: after the first time, up
    /// to the second.
    limited: VecDeque<(Timestamp, Timestamp)>,
}

/// A sample that is kept until a better one arrives (TcpRateLinux::m_rateSample).
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    prior_delivered: u32,
    /// When the segments delivered before this segment's departure had arrived (m_priorTime); zero after a
    /// sample that was too short.
    prior_at: Timestamp,
    send_ns: u64,
    ack_ns: u64,
    /// The sample has not been found too short.
    is_valid: bool,
    is_app_limited: bool,
    rate: Option<Rate>,
}

/// A rate sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Segments delivered when the newest delivered segment was sent.
    pub prior_delivered: u32,
    /// Rate at which segments were delivered.
    pub delivery_rate: Option<Rate>,
    /// Rate at which these segments had been sent.
    pub send_rate: Option<Rate>,
    /// The segment was sent when there was too little to send.
    pub is_app_limited: bool,
}

impl Delivery {
    /// State before the first delivery; `has_rates` enables rates, and `keeps` keeps samples.
    pub fn new(has_rates: bool, keeps: bool) -> Self {
        let (delivered_at, first_sent) = (Timestamp::ZERO, Timestamp::ZERO);
        let kept = (has_rates && keeps).then(Box::default);
        let (limited_until, limited) = (None, VecDeque::new());
        Self { delivered: 0, delivered_at, first_sent, has_rates, kept, limited_until, limited }
    }

    /// The sender runs out of data at `now`, with this many segments in flight.
    pub fn run_dry(&mut self, now: Timestamp, in_flight: u32) {
        if self.limited_until.is_none() {
            self.limited.push_back((now, now));
        }
        self.limited_until = Some(self.delivered + in_flight);
    }

    /// Segments delivered so far.
    pub fn delivered(&self) -> u32 {
        self.delivered
    }

    /// The record of a segment that leaves at `now`; `is_first_in_flight`: none was in flight before it.
    pub fn on_send(&mut self, now: Timestamp, is_first_in_flight: bool) -> Sent {
        if is_first_in_flight {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        if let Some((_, to)) = self.limited.back_mut().filter(|_| self.limited_until.is_some()) {
            *to = now;
        }
        Sent {
            at: now,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            delivered: self.delivered,
            ..Sent::default()
        }
    }

    /// Takes an acknowledgement that delivered `segments` of `mss` bytes, `newest` sent last.
    pub fn on_ack(
        &mut self,
        now: Timestamp,
        segments: u32,
        newest: Sent,
        mss: ByteCount,
        min_rtt_ns: u64,
    ) -> Sample {
        self.delivered += segments;
        self.delivered_at = now;
        let is_app_limited = !self.limited.is_empty() && self.was_limited(newest.at);
        self.limited_until = self.limited_until.filter(|until| self.delivered <= *until);
        if let Some(kept) = &mut self.kept {
            if kept.takes(now, newest) {
                self.first_sent = newest.at;
                kept.is_app_limited = is_app_limited;
            }
            return kept.sample(self.delivered, mss, min_rtt_ns);
        }
        self.first_sent = newest.at;
        let prior_delivered = newest.delivered;
        if !self.has_rates {
            return Sample { prior_delivered, is_app_limited, ..Sample::default() };
        }
        let send_ns = nanos_between(newest.first_sent, newest.at);
        let interval_ns = send_ns.max(nanos_between(newest.delivered_at, now));
        let bytes = mss * u64::from(self.delivered - newest.delivered);
        let is_long_enough = interval_ns >= min_rtt_ns;
        let rate = |nanos| bytes.per(Duration::from_nanos(nanos)).filter(|_| is_long_enough);
        let (delivery_rate, send_rate) = (rate(interval_ns), rate(send_ns));
        Sample { prior_delivered, delivery_rate, send_rate, is_app_limited }
    }

    /// Whether a segment sent at `at` was app-limited. Intervals before it are dropped.
    fn was_limited(&mut self, at: Timestamp) -> bool {
        while self.limited.front().is_some_and(|(_, to)| *to < at) {
            self.limited.pop_front();
        }
        self.limited.front().is_some_and(|(after, _)| *after < at)
    }
}

impl Kept {
    /// Takes the newest segment delivered at `now`, if more had been delivered when it left.
    fn takes(&mut self, now: Timestamp, newest: Sent) -> bool {
        let is_newer = self.prior_delivered == 0 || newest.delivered > self.prior_delivered;
        if is_newer {
            self.prior_delivered = newest.delivered;
            self.send_ns = nanos_between(newest.first_sent, newest.at);
            // TcpRateLinux::SkbDelivered takes the time before the segment.
            self.ack_ns = nanos_between(self.prior_at, now);
            self.prior_at = newest.delivered_at;
            self.is_valid = true;
        }
        is_newer
    }

    /// The sample with `delivered` segments delivered; its rate is the last one over a long enough time.
    fn sample(&mut self, delivered: u32, mss: ByteCount, min_rtt_ns: u64) -> Sample {
        let interval_ns = self.send_ns.max(self.ack_ns);
        self.is_valid &= interval_ns >= min_rtt_ns;
        if self.is_valid {
            let bytes = mss * u64::from(delivered - self.prior_delivered);
            self.rate = bytes.per(Duration::from_nanos(interval_ns));
        } else {
            self.prior_at = Timestamp::ZERO;
        }
        let prior_delivered = self.prior_delivered;
        let (delivery_rate, is_app_limited) = (self.rate, self.is_app_limited);
        Sample { prior_delivered, delivery_rate, send_rate: None, is_app_limited }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Payload bytes of a segment.
    const MSS: ByteCount = ByteCount::new(1000);
    /// Nanoseconds per millisecond.
    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * MS)
    }

    #[test]
    fn burst_rate_follows_its_ack_pace() {
        let mut delivery = Delivery::new(true, false);
        let sent: Vec<Sent> = (0..10).map(|index| delivery.on_send(at(0), index == 0)).collect();
        // One acknowledgement a millisecond from 100 ms on: 8 Mbit/s on top of the first round trip.
        let samples: Vec<Sample> = (0..10)
            .map(|index| delivery.on_ack(at(100 + index), 1, sent[index as usize], MSS, 100 * MS))
            .collect();
        let last = samples[9].delivery_rate.unwrap();
        assert_eq!(last, (MSS * 10).per(Duration::from_millis(109)).unwrap());
        assert_eq!(samples[9].send_rate, None, "all were sent in no time");
    }

    #[test]
    fn ack_burst_does_not_raise_the_rate() {
        let mut delivery = Delivery::new(true, false);
        // A segment a millisecond, all acknowledged at once after 100 ms.
        let sent: Vec<Sent> =
            (0..50).map(|index| delivery.on_send(at(index), index == 0)).collect();
        let sample = delivery.on_ack(at(149), 50, sent[49], MSS, 100 * MS);
        assert_eq!(sample.delivery_rate, (MSS * 50).per(Duration::from_millis(149)));
    }

    #[test]
    fn samples_below_one_rtt_are_discarded() {
        let mut delivery = Delivery::new(true, false);
        let sent = delivery.on_send(at(0), true);
        let sample = delivery.on_ack(at(50), 1, sent, MSS, 100 * MS);
        assert_eq!((sample.delivery_rate, delivery.delivered()), (None, 1));
    }

    #[test]
    fn app_limit_ends_when_prior_flight_is_delivered() {
        let mut delivery = Delivery::new(true, false);
        let first = delivery.on_send(at(0), true);
        delivery.run_dry(at(0), 1);
        let (second, third) = (delivery.on_send(at(20), false), delivery.on_send(at(40), false));
        let limited = |delivery: &mut Delivery, ms, sent| {
            delivery.on_ack(at(ms), 1, sent, MSS, MS).is_app_limited
        };
        assert!(!limited(&mut delivery, 100, first), "it left before");
        // One is delivered; no more than one was in flight.
        let fourth = delivery.on_send(at(100), false);
        assert!(limited(&mut delivery, 120, second) && limited(&mut delivery, 140, third));
        let fifth = delivery.on_send(at(140), false);
        assert!(limited(&mut delivery, 200, fourth));
        assert!(!limited(&mut delivery, 240, fifth));
        assert!(delivery.limited.is_empty());
    }

    #[test]
    fn ns3_sample_interval_starts_at_previous_sample() {
        let rates = [false, true].map(|keeps| {
            let mut delivery = Delivery::new(true, keeps);
            let first = delivery.on_send(at(0), true);
            delivery.on_ack(at(100), 1, first, MSS, 50 * MS);
            // Two leave between acknowledgements and are acknowledged a millisecond apart.
            let sent = [delivery.on_send(at(100), false), delivery.on_send(at(101), false)];
            let mut ack = |ms, sent| delivery.on_ack(at(ms), 1, sent, MSS, 50 * MS).delivery_rate;
            [ack(200, sent[0]), ack(201, sent[1])]
        });
        let rate = |segments: u64, ms| (MSS * segments).per(Duration::from_millis(ms));
        assert_eq!(rates[0], [rate(1, 100), rate(2, 101)]);
        assert_eq!(rates[1], [rate(1, 200), rate(2, 200)]);
    }

    #[test]
    fn ns3_short_sample_keeps_previous_rate() {
        let mut delivery = Delivery::new(true, true);
        let mut rate = |sent_ms, acked_ms| {
            let sent = delivery.on_send(at(sent_ms), sent_ms == 0);
            delivery.on_ack(at(acked_ms), 1, sent, MSS, 50 * MS).delivery_rate
        };
        let of_one = |ms| MSS.per(Duration::from_millis(ms));
        assert_eq!([rate(0, 100), rate(100, 110)], [of_one(100), of_one(110)]);
        assert_eq!(rate(110, 120), of_one(110), "20 ms are no round trip");
        // The next sample's time begins with the run.
        assert_eq!(rate(120, 200), of_one(200));
    }
}
