//! One flow on a path, fed to an algorithm at any frequency: the rule of batch invariance.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::MSS;
use crate::cc::{
    Algorithm, CongestionControl, CongestionEvent, Field, Measurement, RttSample, SendLimits,
};
use crate::spec::Spec;
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// How often an algorithm is fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feeding {
    /// With every acknowledgement.
    Packet,
    /// Every so often.
    Every(Duration),
}

/// Bottleneck rate of [`mean_window`]; with [`PATH_RTT`] the path holds 79 packets.
const PATH_RATE: Rate = Rate::from_mbit_per_sec(24);
/// Two-way delay of [`mean_window`].
pub(super) const PATH_RTT: Duration = Duration::from_millis(40);
/// Packets that the bottleneck holds: half of the packets that fill the path, so that an algorithm
/// that fills the buffer loses every few seconds.
const PATH_BUFFER_PACKETS: u64 = 40;
/// Packets waiting from which one is marked, for algorithms that need marks.
const PATH_MARKED_PACKETS: u64 = 10;
/// Window of the hosts before the algorithm sets one.
const HOST_WINDOW_PACKETS: u64 = 240;

/// Mean window in packets of a sender that always has data, on a fixed path with a drop-tail
/// buffer, from 20 s to 60 s. Events come at once, and the measurements until then come before
/// them. Every field that the algorithm does not need is unknown.
pub fn mean_window(algorithm: &'static Algorithm, feeding: Feeding) -> Option<f64> {
    let mut sender = Sender::new(algorithm, feeding);
    let gap = MSS.time_at(PATH_RATE).expect("a positive rate");
    let (mut sum, mut samples) = (0.0, 0u32);
    while sender.now.as_secs_f64() < 60.0 {
        sender.now += gap;
        sender.acknowledge();
        let limits = sender.cc.send_limits();
        let cwnd = limits.cwnd;
        sender.send(&limits);
        if sender.now.as_secs_f64() > 20.0 {
            sum += cwnd?.as_f64() / MSS.as_f64();
            samples += 1;
        }
    }
    Some(sum / f64::from(samples))
}

/// A packet on its way.
#[derive(Clone, Copy)]
struct Outstanding {
    sent_at: Timestamp,
    /// When it is acknowledged, or, if it was dropped, noticed as missing.
    known_at: Timestamp,
    dropped: bool,
    marked: bool,
    /// Bytes delivered when it was sent.
    prior_delivered: ByteCount,
}

/// A sender limited by window and pacing, with its packets queued at one bottleneck; time advances
/// by one service time.
struct Sender {
    algorithm: &'static Algorithm,
    cc: Box<dyn CongestionControl>,
    feeding: Feeding,
    now: Timestamp,
    outstanding: VecDeque<Outstanding>,
    /// When the episode of loss under way was noticed.
    recovering_since: Option<Timestamp>,
    /// The next packet may leave.
    paced_until: Timestamp,
    bottleneck_free_at: Timestamp,
    /// Acknowledgements of the last round trip, for the delivery rate.
    acknowledged: VecDeque<Timestamp>,
    pending: Measurement,
    fed_at: Timestamp,
}

impl Sender {
    fn new(algorithm: &'static Algorithm, feeding: Feeding) -> Self {
        let mut cc = algorithm.build(&Spec::named(algorithm.name)).expect("defaults are valid");
        cc.set_seed(1);
        cc.init(Timestamp::ZERO, MSS, MSS * 10);
        Self {
            algorithm,
            cc,
            feeding,
            now: Timestamp::ZERO,
            outstanding: VecDeque::new(),
            recovering_since: None,
            paced_until: Timestamp::ZERO,
            bottleneck_free_at: Timestamp::ZERO,
            acknowledged: VecDeque::new(),
            pending: Measurement::default(),
            fed_at: Timestamp::ZERO,
        }
    }

    fn send(&mut self, limits: &SendLimits) {
        let window = limits.cwnd.map_or(HOST_WINDOW_PACKETS, |cwnd| cwnd.as_u64() / MSS.as_u64());
        let service = MSS.time_at(PATH_RATE).expect("a positive rate");
        // A window that opens is not sent as one burst: two packets for each service time.
        for _ in 0..2 {
            if self.outstanding.len() as u64 >= window || !self.is_paced(limits, service) {
                break;
            }
            let arrives_at = self.now + PATH_RTT / 2;
            let waits = self.bottleneck_free_at.saturating_since(arrives_at);
            let dropped = waits > service * PATH_BUFFER_PACKETS as u32;
            if !dropped {
                self.bottleneck_free_at = self.bottleneck_free_at.max(arrives_at) + service;
            }
            self.outstanding.push_back(Outstanding {
                sent_at: self.now,
                known_at: self.bottleneck_free_at + PATH_RTT / 2,
                dropped,
                marked: waits > service * PATH_MARKED_PACKETS as u32,
                prior_delivered: self.pending.delivered,
            });
        }
    }

    /// Whether pacing lets a packet leave, which then counts as sent.
    fn is_paced(&mut self, limits: &SendLimits, service: Duration) -> bool {
        let Some(gap) = limits.pacing_rate.and_then(|rate| MSS.time_at(rate)) else {
            return true;
        };
        let may_go = self.paced_until <= self.now;
        if may_go {
            // The lateness of a time step does not lower the rate.
            self.paced_until = self.paced_until.max(self.now - service) + gap;
        }
        may_go
    }

    /// One loss an episode; it ends with the first acknowledgement of a packet sent after it.
    fn notice(&mut self, packet: Outstanding) {
        let event = match self.recovering_since {
            None if packet.dropped => {
                self.recovering_since = Some(self.now);
                CongestionEvent::Loss
            }
            Some(since) if !packet.dropped && packet.sent_at > since => {
                self.recovering_since = None;
                CongestionEvent::RecoveryEnd
            }
            _ => return,
        };
        if self.pending.rtt.is_some() {
            self.feed();
        }
        self.cc.on_event(self.now, event);
    }

    fn acknowledge(&mut self) {
        while self.outstanding.front().is_some_and(|packet| packet.known_at <= self.now) {
            let packet = self.outstanding.pop_front().expect("there is a front");
            self.notice(packet);
            if packet.dropped {
                self.pending.lost = Some(self.pending.lost.unwrap_or_default() + MSS);
                self.pending.lost_prior_delivered.get_or_insert(packet.prior_delivered);
                continue;
            }
            let (sent_at, acked_at) = (packet.sent_at, packet.known_at);
            self.acknowledged.push_back(acked_at);
            while self.acknowledged.front().is_some_and(|at| *at + PATH_RTT < acked_at) {
                self.acknowledged.pop_front();
            }
            let rtt = acked_at.saturating_since(sent_at);
            let least = self.pending.rtt.map_or(rtt, |pending| pending.min.min(rtt));
            self.pending.rtt = Some(RttSample { latest: rtt, min: least });
            self.pending.acked += MSS;
            self.pending.delivered += MSS;
            self.pending.prior_delivered = packet.prior_delivered;
            let (marked, unmarked) =
                if packet.marked { (MSS, ByteCount::ZERO) } else { (ByteCount::ZERO, MSS) };
            self.pending.ecn_ce = Some(self.pending.ecn_ce.unwrap_or_default() + marked);
            self.pending.ect1 = Some(self.pending.ect1.unwrap_or_default() + unmarked);
        }
        let is_due = match self.feeding {
            Feeding::Packet => self.pending.rtt.is_some(),
            Feeding::Every(period) => self.now.saturating_since(self.fed_at) >= period,
        };
        if is_due && self.pending.rtt.is_some() {
            self.feed();
        }
        if self.cc.next_timer().is_some_and(|at| at <= self.now) {
            self.cc.on_timer(self.now);
        }
    }

    fn feed(&mut self) {
        let needs = |field| self.algorithm.needs.contains(&field);
        let mut measurement = self.pending;
        measurement.interval = self.now.saturating_since(self.fed_at);
        let span = self.acknowledged.front().zip(self.acknowledged.back());
        measurement.delivery_rate = span
            .and_then(|(first, last)| {
                let bytes = MSS * (self.acknowledged.len() as u64 - 1);
                bytes.per(last.saturating_since(*first))
            })
            .filter(|_| needs(Field::DeliveryRate));
        measurement.rtt = measurement.rtt.filter(|_| needs(Field::Rtt));
        measurement.lost = needs(Field::Lost).then_some(measurement.lost.unwrap_or_default());
        measurement.lost_prior_delivered =
            measurement.lost_prior_delivered.filter(|_| needs(Field::Lost));
        measurement.ecn_ce = measurement.ecn_ce.filter(|_| needs(Field::EcnCe));
        measurement.ect1 = measurement.ect1.filter(|_| needs(Field::Ect1));
        let in_flight = MSS * self.outstanding.len() as u64;
        measurement.in_flight = needs(Field::InFlight).then_some(in_flight);
        self.cc.on_measurement(self.now, &measurement);
        let delivered = self.pending.delivered;
        self.pending = Measurement { delivered, ..Measurement::default() };
        self.fed_at = self.now;
    }
}
