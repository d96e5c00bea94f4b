//! One flow over one bottleneck, for the tests of algorithms. These are fed with every acknowledgement
//! or with many at once.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{CongestionControl, CongestionEvent, Measurement, RttSample};
use crate::spec::SpecError;
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Length of a packet of the flow (bytes).
pub(super) const MSS: ByteCount = ByteCount::new(1500);
/// Most bytes that a sender without a window sends.
const SEND_BUFFER: ByteCount = ByteCount::new(4_000_000);

struct Packet {
    sent: Timestamp,
    /// When it is acknowledged or, if it was dropped, noticed as missing.
    known: Timestamp,
    dropped: bool,
    /// Bytes delivered when it was sent, and when that was.
    prior: (ByteCount, Timestamp),
}

/// A sender that always has data, on a path with a FIFO.
pub(super) struct Flow {
    pub cc: Box<dyn CongestionControl>,
    pub now: Timestamp,
    pub rate: Rate,
    pub rtt: Duration,
    /// Packets that may wait.
    pub buffer: u32,
    /// Least time from one measurement to the next; zero: each covers one acknowledgement.
    pub period: Duration,
    /// The acknowledgements since the last measurement, and the time of that measurement.
    untold: Measurement,
    told_at: Timestamp,
    free_at: Timestamp,
    next_send: Timestamp,
    outstanding: VecDeque<Packet>,
    /// Bytes delivered, and when that was.
    pub delivered: (ByteCount, Timestamp),
    pub dropped: u64,
    recovering_since: Option<Timestamp>,
    /// Phases with their first moment.
    pub phases: Vec<(&'static str, Timestamp)>,
}

impl Flow {
    pub fn new(
        cc: Result<Box<dyn CongestionControl>, SpecError>,
        rate: Rate,
        rtt: Duration,
    ) -> Self {
        let mut cc = cc.unwrap();
        cc.set_seed(1);
        cc.init(Timestamp::ZERO, MSS, MSS * 10);
        Self {
            cc,
            now: Timestamp::ZERO,
            rate,
            rtt,
            buffer: 10_000,
            period: Duration::ZERO,
            untold: Measurement::default(),
            told_at: Timestamp::ZERO,
            free_at: Timestamp::ZERO,
            next_send: Timestamp::ZERO,
            outstanding: VecDeque::new(),
            delivered: (ByteCount::ZERO, Timestamp::ZERO),
            dropped: 0,
            recovering_since: None,
            phases: Vec::new(),
        }
    }

    pub fn in_flight(&self) -> ByteCount {
        MSS * self.outstanding.len() as u64
    }

    fn send(&mut self) {
        if self.outstanding.is_empty() {
            self.delivered.1 = self.now;
        }
        let service = MSS.time_at(self.rate).unwrap();
        let dropped = self.free_at.saturating_since(self.now) > service * self.buffer;
        if !dropped {
            self.free_at = self.free_at.max(self.now) + service;
        }
        let (sent, known, prior) = (self.now, self.free_at + self.rtt, self.delivered);
        self.outstanding.push_back(Packet { sent, known, dropped, prior });
        let pacing_rate = self.cc.send_limits().pacing_rate;
        let gap = pacing_rate.and_then(|rate| MSS.time_at(rate)).unwrap_or_default();
        self.next_send = self.now + gap;
    }

    /// A loss begins an episode; an acknowledgement of a packet sent since then ends it.
    fn notice(&mut self, packet: &Packet) {
        let event = match self.recovering_since {
            None if packet.dropped => {
                self.recovering_since = Some(self.now);
                CongestionEvent::Loss
            }
            Some(since) if !packet.dropped && packet.sent > since => {
                self.recovering_since = None;
                CongestionEvent::RecoveryEnd
            }
            _ => return,
        };
        self.cc.on_event(self.now, event);
    }

    fn acknowledge(&mut self) {
        let packet = self.outstanding.pop_front().unwrap();
        self.notice(&packet);
        let lost = if packet.dropped { MSS } else { ByteCount::ZERO };
        let untold = &mut self.untold;
        untold.in_flight = Some(MSS * self.outstanding.len() as u64);
        untold.lost = Some(untold.lost.unwrap_or_default() + lost);
        if packet.dropped {
            untold.lost_prior_delivered.get_or_insert(packet.prior.0);
        }
        self.dropped += u64::from(packet.dropped);
        if !packet.dropped {
            let rtt = self.now.saturating_since(packet.sent);
            let min = untold.rtt.map_or(rtt, |earlier| earlier.min.min(rtt));
            self.delivered = (self.delivered.0 + MSS, self.now);
            let (prior_delivered, prior_at) = packet.prior;
            let span = self.now.saturating_since(prior_at);
            untold.acked += MSS;
            untold.rtt = Some(RttSample { latest: rtt, min });
            untold.delivery_rate = (self.delivered.0 - prior_delivered).per(span);
        }
        untold.delivered = self.delivered.0;
        untold.prior_delivered = packet.prior.0;
        untold.interval = self.now.saturating_since(self.told_at);
        if self.period.is_zero() || untold.interval >= self.period {
            let measurement = core::mem::take(untold);
            self.told_at = self.now;
            self.cc.on_measurement(self.now, &measurement);
        }
        let phase = self.cc.state().phase;
        if self.phases.last().is_none_or(|(last, _)| *last != phase) {
            self.phases.push((phase, self.now));
        }
    }

    /// Runs until `seconds`, and calls `each` after every acknowledgement.
    pub fn run(&mut self, seconds: u64, mut each: impl FnMut(&Self)) {
        let end = Timestamp::ZERO + Duration::from_secs(seconds);
        while self.now < end {
            let cwnd = self.cc.send_limits().cwnd.unwrap_or(SEND_BUFFER);
            let may_send = self.in_flight() + MSS <= cwnd;
            if let Some(at) = self.cc.next_timer().filter(|at| *at <= self.now) {
                self.cc.on_timer(at.max(self.now));
            }
            let acked = self.outstanding.front().map_or(Timestamp::MAX, |packet| packet.known);
            let sends = self.next_send.max(self.now);
            if may_send && sends <= acked {
                self.now = sends;
                self.send();
            } else {
                self.now = acked;
                self.acknowledge();
                each(self);
            }
        }
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.phases.iter().map(|(phase, _)| *phase).collect()
    }
}
