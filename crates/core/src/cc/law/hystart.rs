//! Leaving slow start before it loses, acknowledgement by acknowledgement: what
//! [`crate::cc::hystart`] does for algorithms, in a host's units and with its sequence numbers.
//!
//! ```text
//! round        ends when something sent after its beginning is acknowledged
//! HyStart++    a round's least round trip, after 8 samples, at least T above that of the round
//!              before: conservative slow start; below what it was then: slow start again; after 5
//!              rounds: over. T = that of the round before / 8, 4 to 16 ms     (RFC 9406, 4.2, 4.3)
//! HyStart      from 16 segments on: acknowledgements at most 2 ms apart span half the least round
//!              trip of the connection, or the round's least, after 8 samples, is above that by more
//!              than an eighth of it, 4 to 16 ms                       (Linux, hystart_update)
//! ```

use super::Ack;

/// Samples of a round before it is judged.
const SAMPLES: u8 = 8;
/// Bounds of the threshold on the rise, in microseconds.
const RISE_MIN_US: u32 = 4_000;
const RISE_MAX_US: u32 = 16_000;
/// Share of the round trip that is the threshold.
const RISE_PARTS: u32 = 8;
/// Rounds of conservative slow start.
const CONSERVATIVE_ROUNDS: u8 = 5;
/// Window in segments from which HyStart looks.
const CLASSIC_FROM: u32 = 16;
/// Largest gap within a train of acknowledgements, in microseconds.
const TRAIN_GAP_US: u32 = 2_000;

/// Watches slow start. Round trips in microseconds, 0 where there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HyStart {
    /// The sequence number that ends the round.
    pub round_end: u32,
    /// The round's least round trip.
    pub round_min: u32,
    /// HyStart++: that of the round before. HyStart: the least of all.
    pub base: u32,
    /// HyStart++: the round's least when conservative slow start began. HyStart: when the round
    /// began.
    pub mark: u32,
    /// HyStart: when the last acknowledgement of an unbroken train came.
    pub train_us: u32,
    /// Samples of the round, up to 255.
    pub samples: u8,
    /// Rounds of conservative slow start, the one it began in included; 0: not in it.
    pub conservative: u8,
}

fn least(one: u32, other: u32) -> u32 {
    if one == 0 || (other > 0 && other < one) { other } else { one }
}

fn rise(rtt_us: u32) -> u32 {
    (rtt_us / RISE_PARTS).clamp(RISE_MIN_US, RISE_MAX_US)
}

impl HyStart {
    /// The first round ends with the first acknowledgement beyond `una`.
    pub fn new(una: u32) -> Self {
        Self { round_end: una, ..Self::default() }
    }

    /// Conservative slow start is under way.
    pub fn is_conservative(&self) -> bool {
        self.conservative > 0
    }

    fn begins_round(&mut self, ack: &Ack) -> bool {
        let is_over = ack.una.wrapping_sub(self.round_end) as i32 > 0;
        if is_over {
            self.round_end = ack.nxt;
            self.samples = 0;
        }
        is_over
    }

    fn sample(&mut self, rtt_us: u32) {
        if rtt_us > 0 {
            self.round_min = least(self.round_min, rtt_us);
            self.samples = self.samples.saturating_add(1);
        }
    }

    /// HyStart++: true if slow start is over.
    pub(super) fn plus_plus(&mut self, ack: &Ack) -> bool {
        if self.begins_round(ack) {
            if self.round_min > 0 {
                self.base = self.round_min;
            }
            self.round_min = 0;
            if self.conservative > 0 {
                self.conservative += 1;
                if self.conservative > CONSERVATIVE_ROUNDS {
                    self.conservative = 0;
                    return true;
                }
            }
        }
        self.sample(ack.rtt_us);
        if self.samples < SAMPLES {
            return false;
        }
        if self.conservative > 0 {
            if self.round_min < self.mark {
                self.conservative = 0;
            }
        } else if self.base > 0 && self.round_min >= self.base.saturating_add(rise(self.base)) {
            self.conservative = 1;
            self.mark = self.round_min;
        }
        false
    }

    /// HyStart: true if slow start is over.
    pub(super) fn classic(&mut self, cwnd: u32, ack: &Ack) -> bool {
        self.base = least(self.base, ack.rtt_us);
        if cwnd < CLASSIC_FROM {
            return false;
        }
        if self.begins_round(ack) {
            self.round_min = 0;
            self.mark = ack.now_us;
            self.train_us = ack.now_us;
        }
        if self.base == 0 {
            return false;
        }
        if ack.now_us.wrapping_sub(self.train_us) <= TRAIN_GAP_US {
            self.train_us = ack.now_us;
            if ack.now_us.wrapping_sub(self.mark) > self.base / 2 {
                return true;
            }
        }
        let is_judged = self.samples >= SAMPLES;
        self.sample(ack.rtt_us);
        is_judged && self.round_min > self.base.saturating_add(rise(self.base))
    }
}
