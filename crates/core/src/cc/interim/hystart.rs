//! HyStart and HyStart++: leave slow start before it causes loss. A host between two decisions calls this at
//! each acknowledgement, with its sequence numbers. [`crate::cc::hystart`] counts rounds in bytes.
//!
//! ```text
//! round        ends when something sent after its beginning is acknowledged
//! HyStart++    m = the least round trip of a round after 8 samples, p = the least of the previous round,
//!              T = p / 8 within 4 to 16 ms                                     (RFC 9406, 4.2, 4.3)
//!              m >= p + T: conservative slow start begins. After 5 rounds of it, slow start is over.
//!              m falls below its value at that beginning: normal slow start again
//! HyStart      with at least 16 segments, slow start is over if one of these holds:
//!   train      acknowledgements at most 2 ms apart span more than (min_rtt + d) / 2 of a round, or
//!              min_rtt + d if segments are paced. d = the time for four of the largest aggregates at
//!              the pacing rate, at most 1 ms
//!   delay      the least round trip of a round, after 8 samples, is above min_rtt + T,
//!              T = min_rtt / 8 within 4 to 16 ms
//! ```
//! HyStart is Linux's (net/ipv4/tcp_cubic.c, hystart_update, hystart_ack_delay, from 6.14 on). It ignores
//! acknowledgements without a round-trip sample, and counts rounds from the beginning of the connection. After
//! it has ended slow start, it stays silent until a timeout: slow start after a pause then grows to ssthresh.

use super::Ack;

/// Samples of a round before it is judged.
const SAMPLES: u8 = 8;
/// Least threshold on the rise of the round trip, in microseconds (RFC 9406, MIN_RTT_THRESH).
const RISE_MIN_US: u32 = 4_000;
/// Largest threshold on the rise of the round trip, in microseconds (RFC 9406, MAX_RTT_THRESH).
const RISE_MAX_US: u32 = 16_000;
/// Round trip over the threshold on its rise (RFC 9406, MIN_RTT_DIVISOR).
const RISE_PARTS: u32 = 8;
/// Rounds of conservative slow start.
const CONSERVATIVE_ROUNDS: u8 = 5;
/// Least window in segments for HyStart (`hystart_low_window`).
const CLASSIC_FROM: u32 = 16;
/// Largest gap within a train of acknowledgements, in microseconds (`hystart_ack_delta`).
const TRAIN_GAP_US: u32 = 2_000;
/// Largest lateness of a train's acknowledgements that aggregation explains, in microseconds.
pub const ACK_DELAY_MAX_US: u32 = 1_000;
/// Aggregates that may queue behind each other (`hystart_ack_delay`).
const AGGREGATES: u64 = 4;

/// Lateness of a train's acknowledgements that aggregation of segments and acknowledgements explains
/// (`hystart_ack_delay`), in microseconds. `aggregate` is the largest aggregate in bytes, and `pacing_rate` is in
/// bytes per second.
pub fn ack_delay_us(aggregate: u32, pacing_rate: u64) -> u32 {
    let bytes = u64::from(aggregate) * AGGREGATES;
    if pacing_rate <= bytes * 1_000 {
        return if pacing_rate == 0 { 0 } else { ACK_DELAY_MAX_US };
    }
    (bytes * 1_000_000 / pacing_rate) as u32
}

/// State of HyStart or HyStart++. Round trips are in microseconds, 0 before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostHyStart {
    /// The sequence number that ends the round.
    pub round_end: u32,
    /// The round's least round trip.
    pub round_min: u32,
    /// HyStart++: the least round trip of the previous round. HyStart: the least since the
    /// start or the last timeout.
    pub base: u32,
    /// HyStart++: `round_min` when conservative slow start began. HyStart: the time when the round
    /// began, in microseconds.
    pub mark: u32,
    /// HyStart: arrival time of the last acknowledgement of the train.
    pub train_us: u32,
    /// Samples of the round, up to 255.
    pub samples: u8,
    /// Rounds of conservative slow start, including the first; 0 outside of it.
    pub conservative: u8,
    /// HyStart has ended slow start.
    pub is_found: bool,
}

/// A round-trip sample for HyStart. Times are in microseconds and wrap.
#[derive(Clone, Copy, Debug)]
pub struct HyStartSample {
    /// Round trip, above 0.
    pub rtt_us: u32,
    /// Arrival time of the acknowledgement.
    pub now_us: u32,
    /// The window in segments.
    pub cwnd: u32,
    /// See [`ack_delay_us`].
    pub ack_delay_us: u32,
    /// The host or a qdisc paces the segments.
    pub is_paced: bool,
}

fn least(one: u32, other: u32) -> u32 {
    if one == 0 || (other > 0 && other < one) { other } else { one }
}

fn rise(rtt_us: u32) -> u32 {
    (rtt_us / RISE_PARTS).clamp(RISE_MIN_US, RISE_MAX_US)
}

impl HostHyStart {
    /// State at the beginning of a connection and after a timeout. `nxt` is SND.NXT: the first round ends with
    /// the first acknowledgement beyond it.
    pub fn new(nxt: u32, now_us: u32) -> Self {
        Self { round_end: nxt, mark: now_us, train_us: now_us, ..Self::default() }
    }

    /// Whether conservative slow start is under way.
    pub fn is_conservative(&self) -> bool {
        self.conservative > 0
    }

    fn ends_round(&mut self, ack: &Ack) -> bool {
        let is_over = ack.una.wrapping_sub(self.round_end) as i32 > 0;
        if is_over {
            self.round_end = ack.nxt;
        }
        is_over
    }

    fn sample(&mut self, rtt_us: u32, count: u8) {
        if rtt_us > 0 {
            self.round_min = least(self.round_min, rtt_us);
            self.samples = self.samples.saturating_add(count);
        }
    }

    /// HyStart++: a round begins. Returns whether slow start is over.
    pub fn begin_plus_plus(&mut self) -> bool {
        if self.round_min > 0 {
            self.base = self.round_min;
        }
        (self.round_min, self.samples) = (0, 0);
        self.conservative += u8::from(self.conservative > 0);
        let is_over = self.conservative > CONSERVATIVE_ROUNDS;
        if is_over {
            self.conservative = 0;
        }
        is_over
    }

    /// HyStart++: takes a round trip that counts as `count` samples, and begins or ends conservative
    /// slow start.
    pub fn judge_plus_plus(&mut self, rtt_us: u32, count: u8) {
        self.sample(rtt_us, count);
        if self.samples < SAMPLES {
            return;
        }
        if self.conservative > 0 {
            if self.round_min < self.mark {
                self.conservative = 0;
            }
        } else if self.base > 0 && self.round_min >= self.base.saturating_add(rise(self.base)) {
            self.conservative = 1;
            self.mark = self.round_min;
        }
    }

    /// HyStart: a round begins.
    pub fn begin(&mut self, now_us: u32) {
        (self.round_min, self.samples) = (0, 0);
        (self.mark, self.train_us) = (now_us, now_us);
    }

    /// HyStart: takes a round trip, after the caller has updated `base`. Returns whether slow start is over.
    pub fn finds(&mut self, sample: &HyStartSample) -> bool {
        if sample.cwnd < CLASSIC_FROM {
            return false;
        }
        if sample.now_us.wrapping_sub(self.train_us) <= TRAIN_GAP_US {
            self.train_us = sample.now_us;
            let most = self.base.saturating_add(sample.ack_delay_us);
            let most = if sample.is_paced { most } else { most / 2 };
            self.is_found |= sample.now_us.wrapping_sub(self.mark) > most;
        }
        let is_judged = self.samples >= SAMPLES;
        self.sample(sample.rtt_us, 1);
        let most = self.base.saturating_add(rise(self.base));
        self.is_found |= is_judged && self.round_min > most;
        self.is_found
    }

    /// HyStart++ at an acknowledgement. Returns whether slow start is over.
    pub(super) fn plus_plus(&mut self, ack: &Ack) -> bool {
        if self.ends_round(ack) && self.begin_plus_plus() {
            return true;
        }
        self.judge_plus_plus(ack.rtt_us, 1);
        false
    }

    /// HyStart at an acknowledgement. Returns whether slow start is over.
    pub(super) fn classic(&mut self, cwnd: u32, ack: &Ack) -> bool {
        if ack.rtt_us == 0 {
            return false;
        }
        self.base = least(self.base, ack.rtt_us);
        if self.is_found {
            return false;
        }
        if self.ends_round(ack) {
            self.begin(ack.now_us);
        }
        let Ack { rtt_us, now_us, ack_delay_us, is_paced, .. } = *ack;
        self.finds(&HyStartSample { rtt_us, now_us, cwnd, ack_delay_us, is_paced })
    }
}
