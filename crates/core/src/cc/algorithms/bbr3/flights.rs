//! Bytes in flight, and bytes lost, when a packet left (draft, section 4.1.2.1.2: P.tx_in_flight and
//! P.lost).
//!
//! No host reports departures. A packet is known by the bytes delivered when it left, as in rounds
//! ([`crate::cc::rounds`]). So it left between the measurement that reported this number and the next one,
//! and both report the bytes in flight. The measurements of any host are enough.

use crate::units::ByteCount;

/// Measurements closer together than this part of the bytes in flight share an entry.
const PARTS: u64 = 64;
/// Entries kept: those for two round trips, and more. A power of two, so that BPF sees that an index is in
/// bounds.
const CAPACITY: usize = 256;

/// The path as one measurement reported it.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    delivered: ByteCount,
    in_flight: ByteCount,
    lost: ByteCount,
}

/// Bytes in flight and lost, for one packet that has been on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flight {
    /// In flight when the packet left, that one included.
    pub in_flight: ByteCount,
    /// Lost since then.
    pub lost: ByteCount,
}

/// The measurements of the last two round trips, without memory of its own.
#[derive(Clone, Debug)]
pub(super) struct Flights {
    /// Entry number n is at n modulo [`CAPACITY`].
    entries: [Entry; CAPACITY],
    /// Entries since the start.
    count: usize,
    /// The entry before the oldest one, used for packets that left earlier.
    evicted: Entry,
    /// Lost since the start.
    lost: ByteCount,
}

impl Default for Flights {
    fn default() -> Self {
        let entries = [Entry::default(); CAPACITY];
        Self { entries, count: 0, evicted: Entry::default(), lost: ByteCount::ZERO }
    }
}

impl Flights {
    /// Takes a measurement; `in_flight` includes the packet that leaves next.
    pub fn note(&mut self, delivered: ByteCount, in_flight: ByteCount, newly_lost: ByteCount) {
        self.lost += newly_lost;
        let last = if self.count > 0 { self.entry(self.count - 1) } else { Entry::default() };
        let apart = delivered.saturating_sub(last.delivered);
        if apart == ByteCount::ZERO || apart.as_u64() < in_flight.as_u64() / PARTS {
            return;
        }
        let slot = &mut self.entries[self.count % CAPACITY];
        if self.count >= CAPACITY {
            self.evicted = *slot;
        }
        *slot = Entry { delivered, in_flight, lost: self.lost };
        self.count += 1;
    }

    /// The flight of the packet that left when `delivered` bytes had been delivered.
    pub fn of_packet_sent_at(&self, delivered: ByteCount) -> Flight {
        let len = self.count.min(CAPACITY);
        let first = self.count - len;
        // How many entries are not after the packet: a binary search whose end BPF sees.
        let (mut next, mut part) = (0, CAPACITY);
        while part > 0 {
            let more = next + part;
            if more <= len && self.entry(first + more - 1).delivered <= delivered {
                next = more;
            }
            part /= 2;
        }
        let before = if next > 0 { self.entry(first + next - 1) } else { self.evicted };
        let after = if next < len { self.entry(first + next) } else { before };
        Flight {
            in_flight: before.in_flight.max(after.in_flight),
            lost: self.lost.saturating_sub(before.lost),
        }
    }

    fn entry(&self, number: usize) -> Entry {
        self.entries[number % CAPACITY]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kb(count: u64) -> ByteCount {
        ByteCount::new(1000 * count)
    }

    #[test]
    fn packet_knows_inflight_before_and_after_it() {
        let mut flights = Flights::default();
        // The first flight: ten packets left before anything was delivered.
        flights.note(kb(1), kb(10), kb(0));
        assert_eq!(flights.of_packet_sent_at(kb(0)), Flight { in_flight: kb(10), lost: kb(0) });
        flights.note(kb(2), kb(12), kb(0));
        flights.note(kb(3), kb(11), kb(2));
        assert_eq!(flights.of_packet_sent_at(kb(1)), Flight { in_flight: kb(12), lost: kb(2) });
        assert_eq!(flights.of_packet_sent_at(kb(2)), Flight { in_flight: kb(12), lost: kb(2) });
        // A packet that leaves now: losses before its departure are no losses of its flight.
        assert_eq!(flights.of_packet_sent_at(kb(3)), Flight { in_flight: kb(11), lost: kb(0) });
    }

    #[test]
    fn two_large_windows_need_few_entries() {
        let mut flights = Flights::default();
        for delivered in 1..=30_000 {
            flights.note(kb(delivered), kb(10_000), kb(u64::from(delivered % 1000 == 0)));
        }
        // A round trip ago 20 MB had been delivered, and 20 kB been lost.
        let Flight { in_flight, lost } = flights.of_packet_sent_at(kb(20_000));
        assert_eq!(in_flight, kb(10_000));
        assert!((kb(10)..=kb(11)).contains(&lost), "{lost}");
        assert_eq!(flights.of_packet_sent_at(kb(10_500)).in_flight, kb(10_000));
    }

    #[test]
    fn losses_before_a_packet_are_not_its_own() {
        let mut flights = Flights::default();
        flights.note(kb(1000), kb(10_000), kb(500));
        // The less is in flight, the closer together are the entries: one round trip fills them.
        for gone in 1..10_000 {
            flights.note(kb(1000 + gone), kb(10_000 - gone), kb(0));
        }
        assert!(flights.count > CAPACITY, "nothing was evicted");
        assert_eq!(flights.of_packet_sent_at(kb(1000)).lost, kb(0));
    }
}
