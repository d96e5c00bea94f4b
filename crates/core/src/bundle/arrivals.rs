//! What of the sent bytes has arrived, by the receivebox's counter and no more than was sent.
//!
//! The counter knows nothing of who sent a packet: what is forged in the bundle's name is in it, and
//! what the kernel has forwarded past the sendbox. Neither says that the path carries more than left.

use crate::units::ByteCount;

/// So much of what was missing may still arrive late, by reordering: 256 full frames.
const OWED_MAX: u64 = 256 * 1514;

/// Counts what has arrived of the bytes sent.
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
    /// Takes the totals at a match; `unseen` is the share that the receivebox does not see, and
    /// `missing` the share of what it sees that is missing. Answers the bytes that are newly lost.
    pub fn on_match(
        &mut self,
        sent: ByteCount,
        received: ByteCount,
        unseen: f64,
        missing: f64,
    ) -> ByteCount {
        let [last_sent, last_received] = *self.last.get_or_insert([sent, received]);
        self.last = Some([sent, received]);
        let sent = sent.saturating_sub(last_sent).as_u64();
        let received = received.saturating_sub(last_received).as_u64();
        let arrived = if unseen > 0.0 {
            // Of what is seen too few packets lie between two boundaries to tell how many arrived.
            (sent as f64 * (1.0 - missing)) as u64
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

    /// The receivebox counts anew.
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
        let lost = totals
            .iter()
            .copied()
            .map(bytes)
            .map(|(sent, received)| arrivals.on_match(sent, received, 0.0, 0.0).as_u64());
        lost.collect()
    }

    #[test]
    fn loss_is_seen_also_after_packets_went_past_the_box() {
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
    fn what_is_forged_in_the_bundles_name_has_not_arrived_of_what_was_sent() {
        let mut arrivals = Arrivals::default();
        for number in 0..100 {
            let sent = ByteCount::new(number * 100_000);
            arrivals.on_match(sent, ByteCount::new(number * 150_000), 0.0, 0.0);
            assert_eq!(arrivals.arrived(), sent);
        }
    }
}
