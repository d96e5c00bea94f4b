//! Hosts of the plant: Cubic senders with an initial window of 10 and SACK-like recovery.
//!
//! Enough of TCP to load a queue as real flows do, and no more: every transmission is acknowledged
//! by itself, three later acknowledgements make it lost, the window falls once per round trip, and
//! what is lost is sent again as a new transmission. No HyStart, no pacing, no delayed ACKs.

use std::collections::VecDeque;

use super::Flow;
use crate::units::{Duration, Timestamp};

/// Initial window in packets (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;
/// RFC 9438: scaling constant in packets per s^3, and multiplicative decrease.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// Least retransmission timeout, as on Linux.
const RTO_MIN: Duration = Duration::from_millis(200);
/// Later acknowledgements that make a transmission lost (RFC 5681).
const DUPLICATES: u64 = 3;

#[derive(Clone, Copy, Debug)]
struct Transmission {
    id: u64,
    sent_at: Timestamp,
}

/// One TCP sender.
#[derive(Clone, Debug)]
pub struct Host {
    /// Packets still to be sent, `None` for an endless flow or a stream.
    remaining: Option<u64>,
    is_finite: bool,
    outstanding: VecDeque<Transmission>,
    next_id: u64,
    cwnd: f64,
    ssthresh: f64,
    window_max: f64,
    epoch_at: Option<Timestamp>,
    /// Window of an AIMD flow since the reduction (RFC 9438, section 4.3).
    friendly: f64,
    /// Losses of transmissions before this one belong to the episode that is being repaired.
    recovery_until: u64,
    srtt_s: Option<f64>,
    rttvar_s: f64,
    backoff: u32,
    generation: u64,
    timer: Option<(Timestamp, u64)>,
}

impl Host {
    /// A sender of `flow`.
    pub fn new(flow: &Flow) -> Self {
        let remaining = match flow {
            Flow::Tcp(_, packets) => *packets,
            Flow::Cbr(..) => Some(0),
        };
        Self {
            remaining,
            is_finite: remaining.is_some(),
            outstanding: VecDeque::new(),
            next_id: 0,
            cwnd: INITIAL_WINDOW,
            ssthresh: f64::INFINITY,
            window_max: 0.0,
            epoch_at: None,
            friendly: 0.0,
            recovery_until: 0,
            srtt_s: None,
            rttvar_s: 0.0,
            backoff: 0,
            generation: 0,
            timer: None,
        }
    }

    /// The next transmission, if the window allows one.
    pub fn poll(&mut self, now: Timestamp) -> Option<u64> {
        if self.outstanding.len() as f64 >= self.cwnd || self.remaining == Some(0) {
            return None;
        }
        if let Some(remaining) = &mut self.remaining {
            *remaining -= 1;
        }
        if self.outstanding.is_empty() {
            self.arm(now);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.outstanding.push_back(Transmission { id, sent_at: now });
        Some(id)
    }

    /// Everything has been acknowledged.
    pub fn is_done(&self) -> bool {
        self.is_finite && self.remaining == Some(0) && self.outstanding.is_empty()
    }

    /// The retransmission timer, if it was set anew.
    pub fn take_timer(&mut self) -> Option<(Timestamp, u64)> {
        self.timer.take()
    }

    fn arm(&mut self, now: Timestamp) {
        let rto_s = self.srtt_s.map_or(1.0, |srtt_s| srtt_s + 4.0 * self.rttvar_s);
        let rto = RTO_MIN.max(Duration::from_secs_f64(rto_s)) * (1 << self.backoff.min(6));
        self.generation += 1;
        self.timer = Some((now + rto, self.generation));
    }

    /// Takes the acknowledgement of one transmission.
    pub fn on_ack(&mut self, now: Timestamp, id: u64) {
        let Ok(index) = self.outstanding.binary_search_by_key(&id, |sent| sent.id) else { return };
        let sent = self.outstanding.remove(index).expect("found at this index");
        self.backoff = 0;
        let rtt_s = now.saturating_since(sent.sent_at).as_secs_f64();
        match self.srtt_s {
            None => (self.srtt_s, self.rttvar_s) = (Some(rtt_s), rtt_s / 2.0),
            Some(srtt_s) => {
                self.rttvar_s += ((rtt_s - srtt_s).abs() - self.rttvar_s) / 4.0;
                self.srtt_s = Some(srtt_s + (rtt_s - srtt_s) / 8.0);
            }
        }
        self.detect_losses(id);
        if id >= self.recovery_until {
            self.grow(now, rtt_s);
        }
        if !self.outstanding.is_empty() {
            self.arm(now);
        }
    }

    fn detect_losses(&mut self, acked: u64) {
        while self.outstanding.front().is_some_and(|sent| sent.id + DUPLICATES <= acked) {
            let lost = self.outstanding.pop_front().expect("there is a front");
            if let Some(remaining) = &mut self.remaining {
                *remaining += 1;
            }
            if lost.id >= self.recovery_until {
                self.recovery_until = self.next_id;
                self.reduce();
            }
        }
    }

    fn reduce(&mut self) {
        // Fast convergence (RFC 9438, section 4.7).
        let is_shrinking = self.cwnd < self.window_max;
        self.window_max = if is_shrinking { self.cwnd * (1.0 + BETA) / 2.0 } else { self.cwnd };
        self.cwnd = (self.cwnd * BETA).max(2.0);
        self.ssthresh = self.cwnd;
        self.epoch_at = None;
    }

    fn grow(&mut self, now: Timestamp, rtt_s: f64) {
        // A window that is not used does not grow (RFC 7661).
        if (self.outstanding.len() as f64 + 1.0) < self.cwnd * 0.5 {
            return;
        }
        if self.cwnd < self.ssthresh {
            self.cwnd += 1.0;
            return;
        }
        if self.epoch_at.is_none() {
            self.epoch_at = Some(now);
            self.friendly = self.cwnd;
        }
        let since_s = now.saturating_since(self.epoch_at.unwrap_or(now)).as_secs_f64() + rtt_s;
        let k_s = libm::cbrt((self.window_max - self.ssthresh).max(0.0) / C);
        let target = self.window_max.max(self.ssthresh) + C * (since_s - k_s).powi(3);
        self.friendly += 3.0 * (1.0 - BETA) / (1.0 + BETA) / self.cwnd;
        let target = target.max(self.friendly).min(1.5 * self.cwnd);
        self.cwnd += ((target - self.cwnd) / self.cwnd).max(0.01 / self.cwnd);
    }

    /// The timer of `generation` fired; true if there is something to send again.
    pub fn on_rto(&mut self, now: Timestamp, generation: u64) -> bool {
        if generation != self.generation || self.outstanding.is_empty() {
            return false;
        }
        if let Some(remaining) = &mut self.remaining {
            *remaining += self.outstanding.len() as u64;
        }
        self.outstanding.clear();
        self.recovery_until = self.next_id;
        self.window_max = self.cwnd;
        self.ssthresh = (self.cwnd * BETA).max(2.0);
        self.cwnd = 1.0;
        self.epoch_at = None;
        self.backoff += 1;
        self.arm(now);
        true
    }
}
