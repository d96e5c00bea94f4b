//! The sendbox's own account of the path: bytes outstanding, bytes that the path accepted, and the time
//! in which there was nothing to send.

use super::{MSS, TICK};
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Time without anything to send, starting after the last packet's own time at the shaper's rate.
#[derive(Clone, Copy, Debug)]
pub struct IdleClock {
    pub idle: Duration,
    pub is_empty: bool,
    /// A ceiling holds the waiting packets back. For the path this counts as nothing to send.
    pub is_held: bool,
    pub updated_at: Timestamp,
    pub busy_until: Timestamp,
}

impl Default for IdleClock {
    fn default() -> Self {
        Self {
            idle: Duration::ZERO,
            is_empty: true,
            is_held: false,
            updated_at: Timestamp::ZERO,
            busy_until: Timestamp::ZERO,
        }
    }
}

impl IdleClock {
    pub fn advance(&mut self, now: Timestamp) {
        if self.is_empty {
            self.idle += now.saturating_since(self.updated_at.max(self.busy_until));
        } else if self.is_held {
            self.idle += now.saturating_since(self.updated_at);
        }
        self.updated_at = self.updated_at.max(now);
    }

    /// `packets` packets of `len` bytes in total have left, the last one at `now`.
    pub fn on_departures(
        &mut self,
        now: Timestamp,
        packets: u64,
        len: ByteCount,
        rate: Option<Rate>,
    ) {
        self.advance(now);
        let Some(time) = rate.and_then(|rate| len.time_at(rate)).filter(|_| packets > 0) else {
            return;
        };
        // All but the last have had their time at the shaper.
        let before = time.mul_f64((packets - 1) as f64 / packets as f64);
        self.busy_until = self.busy_until.max(now - before) + time;
    }
}

/// Bytes outstanding, estimated between reports by crediting the acknowledgements to be expected.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outstanding {
    pub bytes: f64,
    pub updated_at: Timestamp,
    pub sent_bytes: ByteCount,
    /// After an empty path no acknowledgement can come before one round trip.
    pub credit_from: Option<Timestamp>,
}

impl Outstanding {
    pub fn advance(&mut self, now: Timestamp, sent: ByteCount, delivery_rate: Rate) {
        self.bytes += sent.saturating_sub(self.sent_bytes).as_f64();
        self.sent_bytes = sent;
        let from = self.credit_from.unwrap_or(self.updated_at).max(self.updated_at);
        let credited_s = now.saturating_since(from).as_secs_f64();
        self.bytes = (self.bytes - delivery_rate.as_bytes_per_sec_f64() * credited_s).max(0.0);
        self.updated_at = self.updated_at.max(now);
    }
}

/// Bytes sent that a full buffer accepts: bytes sent faster than the delivery rate count only up to that
/// rate. The rest is lost, and no report will ever subtract it from the bytes outstanding.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accepted {
    pub bytes: f64,
    allowance_bytes: f64,
    updated_at: Timestamp,
}

impl Accepted {
    pub fn on_departures(&mut self, now: Timestamp, len: ByteCount, delivery_rate: Rate) {
        let rate = delivery_rate.as_bytes_per_sec_f64();
        let elapsed_s = now.saturating_since(self.updated_at).as_secs_f64();
        self.updated_at = self.updated_at.max(now);
        // Bursts of up to a tick are the host's way of pacing.
        let burst_bytes = rate * TICK.as_secs_f64() + 2.0 * MSS.as_f64();
        self.allowance_bytes = (self.allowance_bytes + rate * elapsed_s).min(burst_bytes);
        let accepted = len.as_f64().min(self.allowance_bytes);
        self.allowance_bytes -= accepted;
        self.bytes += accepted;
    }
}
