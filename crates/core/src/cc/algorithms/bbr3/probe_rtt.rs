//! The least round trip, and the phase that measures it again (draft, sections 5.3.4, 5.5.7).

use super::{Bbr3, Bbr3Phase};
use crate::cc::Measurement;
use crate::units::{ByteCount, Duration, Timestamp};

/// A least round trip is forgotten after this long (BBR.MinRTTFilterLen).
const MIN_RTT_LIFE: Duration = Duration::from_secs(10);
/// If no round trip as short is seen for this time, probe_rtt looks for one (BBR.ProbeRTTInterval).
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest stay in probe_rtt (BBR.ProbeRTTDuration).
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);

/// The path's least round trip, and the state of its measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delay {
    pub min_rtt: Option<Duration>,
    min_rtt_at: Timestamp,
    /// The least of the last [`PROBE_RTT_INTERVAL`].
    recent: Option<Duration>,
    recent_at: Timestamp,
    is_probe_due: bool,
    /// In probe_rtt: when it may end, and whether a round has passed.
    until: Option<Timestamp>,
    is_round_done: bool,
    /// Packets sent before this many bytes were delivered were held back by probe_rtt.
    pub held_back_until: Option<ByteCount>,
}

impl Delay {
    pub fn new(now: Timestamp) -> Self {
        Self {
            min_rtt: None,
            min_rtt_at: now,
            recent: None,
            recent_at: now,
            is_probe_due: false,
            until: None,
            is_round_done: false,
            held_back_until: None,
        }
    }

    fn update(&mut self, now: Timestamp, rtt: Option<Duration>) {
        let is_older = |at, life| now.saturating_since(at) > life;
        self.is_probe_due = is_older(self.recent_at, PROBE_RTT_INTERVAL);
        if let Some(rtt) = rtt
            && (self.is_probe_due || self.recent.is_none_or(|least| rtt < least))
        {
            (self.recent, self.recent_at) = (Some(rtt), now);
        }
        let is_less = self.recent.is_some() && self.min_rtt.is_none_or(|it| self.recent < Some(it));
        if is_less || is_older(self.min_rtt_at, MIN_RTT_LIFE) {
            (self.min_rtt, self.min_rtt_at) = (self.recent, self.recent_at);
        }
    }

    /// Round trips seen before count as longer by this many nanoseconds.
    pub fn shift(&mut self, nanos: i64) {
        let shifted = |rtt: Duration| {
            let rtt = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX);
            Duration::from_nanos(rtt.saturating_add_signed(nanos).max(1))
        };
        (self.min_rtt, self.recent) = (self.min_rtt.map(shifted), self.recent.map(shifted));
    }
}

impl Bbr3 {
    pub(super) fn update_min_rtt(&mut self, now: Timestamp, measurement: &Measurement) {
        let rtt = measurement.rtt.map(|rtt| rtt.min).filter(|rtt| !rtt.is_zero());
        if let Some(rtt) = rtt.filter(|_| self.delay.min_rtt.is_none()) {
            self.init_pacing_rate(rtt);
        }
        self.delay.update(now, rtt);
    }

    /// Whether the measurement covers packets sent in probe_rtt, which show less than the path's
    /// rate.
    pub(super) fn is_held_back(&self, measurement: &Measurement) -> bool {
        self.delay.held_back_until.is_some_and(|until| measurement.prior_delivered <= until)
    }

    pub(super) fn check_probe_rtt(&mut self, now: Timestamp) {
        if self.phase != Bbr3Phase::ProbeRtt && self.delay.is_probe_due && !self.is_idle_restart {
            self.save_cwnd();
            self.phase = Bbr3Phase::ProbeRtt;
            self.reason = "least round trip is out of date";
            self.delay.until = None;
            self.probing.is_stopping = true;
            self.start_round();
        }
        if self.phase == Bbr3Phase::ProbeRtt {
            self.probe_rtt(now);
        }
        if self.sample.newly_acked > ByteCount::ZERO {
            self.is_idle_restart = false;
        }
    }

    fn probe_rtt(&mut self, now: Timestamp) {
        self.delay.held_back_until = Some(self.delivered + self.in_flight);
        if self.delay.until.is_none() {
            if self.in_flight <= self.probe_rtt_cwnd() {
                self.delay.until = Some(now + PROBE_RTT_TIME);
                self.delay.is_round_done = false;
                self.start_round();
            }
            return;
        }
        self.delay.is_round_done |= self.is_round_start;
        if self.delay.is_round_done {
            self.check_probe_rtt_done(now);
        }
    }

    pub(super) fn check_probe_rtt_done(&mut self, now: Timestamp) {
        if self.delay.until.is_none_or(|until| now <= until) {
            return;
        }
        self.delay.recent_at = now;
        self.restore_cwnd();
        self.congestion.forget_short_term();
        if self.full_pipe.has_been {
            self.start_down(now, "least round trip measured");
            self.start_cruise();
        } else {
            self.enter_startup();
        }
    }
}
