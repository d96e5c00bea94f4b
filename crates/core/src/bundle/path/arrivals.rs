//! Bytes that have arrived of those sent: the receivebox's counter, bounded by the bytes sent.
//!
//! The counter does not know who sent a packet. It includes packets forged in the bundle's name and
//! packets that the kernel forwarded past the sendbox. Neither shows that the path carries more than the
//! sendbox sent.

use super::MSS;
use super::visibility::Seen;
use crate::units::ByteCount;

/// Missing bytes that reordering may still deliver late: 256 full frames. Bounds the effect of forged packets.
const OWED_MAX: u64 = 256 * MSS.as_u64();

/// Counts how many of the sent bytes have arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrivals {
    /// Sent and received bytes at the last match.
    last: Option<[ByteCount; 2]>,
    arrived: ByteCount,
    sent: ByteCount,
    owed: u64,
    /// Most bytes that were missing at any match.
    missing_max: u64,
}

impl Arrivals {
    /// Takes the totals at a match. Answers the bytes that are newly lost.
    pub fn on_match(&mut self, sent: ByteCount, received: ByteCount, seen: Seen) -> ByteCount {
        let [last_sent, last_received] = *self.last.get_or_insert([sent, received]);
        self.last = Some([sent, received]);
        let sent = sent.saturating_sub(last_sent).as_u64();
        let received = received.saturating_sub(last_received).as_u64();
        let arrived = if seen.unseen > 0.0 {
            // Too few seen packets lie between two boundaries to count the arrived ones.
            (sent as f64 * (1.0 - seen.missing)) as u64
        } else if received > sent + self.owed {
            sent
        } else {
            received
        };
        self.owed = (self.owed + sent).saturating_sub(arrived).min(OWED_MAX);
        self.arrived += ByteCount::new(arrived);
        self.sent += ByteCount::new(sent);
        let missing = self.sent.saturating_sub(self.arrived).as_u64();
        let lost = missing.saturating_sub(self.missing_max);
        self.missing_max = self.missing_max.max(missing);
        ByteCount::new(lost)
    }

    /// Bytes that have arrived since the first match.
    pub const fn arrived(&self) -> ByteCount {
        self.arrived
    }

    /// The receivebox restarts its counters.
    pub fn forget_receivebox(&mut self) {
        (self.last, self.owed) = (None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes newly lost at each of these totals, sent and received.
    fn lost(totals: &[(u64, u64)]) -> alloc::vec::Vec<u64> {
        let mut arrivals = Arrivals::default();
        let bytes = |(sent, received)| (ByteCount::new(sent), ByteCount::new(received));
        let lost =
            totals.iter().copied().map(bytes).map(|(sent, received)| {
                arrivals.on_match(sent, received, Seen::default()).as_u64()
            });
        lost.collect()
    }

    #[test]
    fn loss_is_seen_after_packets_bypassed_the_box() {
        let totals = [
            // On the way when counting began.
            (1_000_000, 900_000),
            (2_000_000, 1_880_000),
            // Late packets arrive, and reordering is counted once.
            (3_000_000, 2_890_000),
            (4_000_000, 3_880_000),
            // The kernel has forwarded 50 MB meanwhile.
            (5_000_000, 54_880_000),
            (6_000_000, 55_850_000),
        ];
        assert_eq!(lost(&totals), [0, 20_000, 0, 0, 0, 30_000]);
    }

    #[test]
    fn forged_packets_do_not_count_as_arrived() {
        let mut arrivals = Arrivals::default();
        for number in 0..100 {
            let sent = ByteCount::new(number * 100_000);
            arrivals.on_match(sent, ByteCount::new(number * 150_000), Seen::default());
            assert_eq!(arrivals.arrived(), sent);
        }
    }
}
