//! Negotiates the version of the sampling block that both boxes build, and whether both rest.
//!
//! Each box sends its offer in the session and repeats it until the peer acknowledges it, as with scopes
//! (`exchange`). The lowest version that both build is in force: it distinguishes the most packets. Until the
//! peer has sent its offer, the box assumes that the peer builds version 1 alone. It also assumes that the peer
//! neither rests nor counts traffic of boxes. For an older peer that rejects this message, these assumptions
//! stay. A peer that does not know an offer bit echoes it unchanged and never sets it itself.
//!
//! The boxes learn each other's versions one after the other. For a round trip at the start of a session, their
//! samples therefore do not match.

use super::telling::Telling;
use super::wire::{Offer, VersionsMessage};
use crate::bundle::{BlockVersion, BlockVersions};
use crate::units::Timestamp;

/// Offer of a box that sends none.
const OLDEST: Offer = Offer {
    versions: BlockVersions::of(BlockVersion::V1),
    rests: false,
    counts_boxes: false,
    probes: false,
};

/// One box's end of the negotiation.
#[derive(Clone, Copy, Debug)]
pub struct Negotiation {
    /// `None`: version 1, which a box need not offer.
    mine: Option<Offer>,
    theirs: Option<Offer>,
    is_established: bool,
    telling: Telling,
}

impl Negotiation {
    /// A box that builds version 1 and sends no offer.
    pub const fn new() -> Self {
        Self { mine: None, theirs: None, is_established: false, telling: Telling::new() }
    }

    /// Offers these versions of the sampling block from now on.
    pub fn offer(&mut self, now: Timestamp, versions: BlockVersions) {
        self.tell(now, Offer { versions, ..self.mine() });
    }

    /// Offers to rest from now on.
    pub fn offer_rest(&mut self, now: Timestamp) {
        self.tell(now, Offer { rests: true, ..self.mine() });
    }

    /// Offers to count traffic of boxes from now on.
    pub fn offer_counting(&mut self, now: Timestamp) {
        self.tell(now, Offer { counts_boxes: true, ..self.mine() });
    }

    /// Offers to send or answer probes from now on.
    pub fn offer_probes(&mut self, now: Timestamp) {
        self.tell(now, Offer { probes: true, ..self.mine() });
    }

    fn tell(&mut self, now: Timestamp, offer: Offer) {
        if self.mine.replace(offer) != Some(offer) {
            self.begin(now);
        }
    }

    /// A new session: the peer may have been replaced, and has received no offer in it.
    pub fn on_session(&mut self, now: Timestamp) {
        self.is_established = true;
        self.theirs = None;
        self.telling.end();
        self.begin(now);
    }

    /// This box begins another session.
    pub const fn restart(&mut self) {
        self.is_established = false;
        self.telling.end();
    }

    /// Takes the peer's offer.
    pub fn on_message(&mut self, now: Timestamp, message: &VersionsMessage) {
        self.theirs = Some(message.offered);
        self.telling.on_message(now, message.held == self.mine, message.asks);
    }

    /// The message to send now, if one is due.
    pub fn poll(&mut self, now: Timestamp) -> Option<VersionsMessage> {
        let offered = self.mine?;
        let asks = self.telling.poll(now)?;
        Some(VersionsMessage { held: self.theirs, asks, offered })
    }

    /// When [`Negotiation::poll`] is next needed.
    pub const fn next_timer(&self) -> Timestamp {
        self.telling.next_timer()
    }

    /// The version in force; `None`: by present knowledge, the boxes have none in common.
    pub fn version(&self) -> Option<BlockVersion> {
        self.mine().versions.common(self.theirs.unwrap_or(OLDEST).versions)
    }

    /// Whether both boxes rest, by present knowledge.
    pub fn both_rest(&self) -> bool {
        self.mine().rests && self.theirs.is_some_and(|theirs| theirs.rests)
    }

    /// Whether both boxes count traffic of boxes, by present knowledge.
    pub fn both_count_boxes(&self) -> bool {
        self.counting() == Some(true)
    }

    /// Whether both boxes count traffic of boxes; `None`: the peer's offer has not arrived.
    pub fn counting(&self) -> Option<bool> {
        if self.mine().counts_boxes {
            self.theirs.map(|theirs| theirs.counts_boxes)
        } else {
            Some(false)
        }
    }

    /// Whether both boxes support probes for the path MTU, by present knowledge.
    pub fn both_probe(&self) -> bool {
        self.mine().probes && self.theirs.is_some_and(|theirs| theirs.probes)
    }

    fn mine(&self) -> Offer {
        self.mine.unwrap_or(OLDEST)
    }

    fn begin(&mut self, now: Timestamp) {
        if self.mine.is_some() && self.is_established {
            self.telling.begin(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::Nat;
    use core::time::Duration;

    const ONE: BlockVersions = BlockVersions::of(BlockVersion::V1);
    const TWO: BlockVersions = BlockVersions::of(BlockVersion::V2);

    /// Both ends, which have just met; `None` is a box with an older version.
    fn pair(versions: [Option<BlockVersions>; 2], now: Timestamp) -> [Negotiation; 2] {
        versions.map(|versions| {
            let mut end = Negotiation::new();
            versions.into_iter().for_each(|versions| end.offer(now, versions));
            end.on_session(now);
            end
        })
    }

    /// Versions in force after a minute in which the first message of each end is lost, and the number of messages.
    fn settled(versions: [Option<BlockVersions>; 2]) -> ([Option<BlockVersion>; 2], usize) {
        let mut now = Timestamp::from_nanos(1_000_000_000);
        let mut ends = pair(versions, now);
        let mut sent = [0, 0];
        for _ in 0..6000 {
            for from in [0, 1] {
                let Some(message) = ends[from].poll(now) else { continue };
                sent[from] += 1;
                if sent[from] > 1 && versions[1 - from].is_some() {
                    ends[1 - from].on_message(now, &message);
                }
                assert!(ends[from].next_timer() > now);
            }
            now += Duration::from_millis(10);
        }
        (ends.map(|end| end.version()), sent.iter().sum())
    }

    #[test]
    fn lowest_common_version_takes_effect_and_silences_offers() {
        let (v1, v2) = (Some(BlockVersion::V1), Some(BlockVersion::V2));
        let all = BlockVersions::ALL;
        let nat = |nat| all.with_nat(Some(nat));
        for (versions, expected) in [
            ([all, all], v1),
            ([ONE, all], v1),
            ([TWO, all], v2),
            ([all, TWO], v2),
            ([TWO, TWO], v2),
            ([ONE, TWO], None),
            // NAT settings that differ, or that only one box has.
            ([nat(Nat::Source); 2], Some(BlockVersion::V3)),
            ([nat(Nat::Source), nat(Nat::Both)], None),
            ([nat(Nat::Source), all], None),
            // A version that does not exist yet.
            ([BlockVersions::from_bits(0b1000_0001), all], v1),
            ([BlockVersions::from_bits(0b1000_0000), all], None),
        ] {
            let (settled, sent) = settled(versions.map(Some));
            assert_eq!(settled, [expected; 2], "{versions:?}");
            assert!(sent < 12, "{versions:?}: {sent} messages");
        }
    }

    #[test]
    fn older_box_gets_version_1_or_none() {
        for (versions, expected) in [
            (BlockVersions::ALL, Some(BlockVersion::V1)),
            (TWO, None),
            (ONE, Some(BlockVersion::V1)),
        ] {
            let (settled, sent) = settled([Some(versions), None]);
            assert_eq!(settled, [expected, Some(BlockVersion::V1)]);
            assert!((7..20).contains(&sent), "{sent} messages in a minute");
        }
    }

    #[test]
    fn boxes_rest_only_while_both_support_it() {
        let now = Timestamp::from_nanos(1);
        for are_resting in [[true, true], [true, false], [false, false]] {
            let mut ends = pair([Some(BlockVersions::ALL); 2], now);
            for (end, rests) in ends.iter_mut().zip(are_resting) {
                if rests {
                    end.offer_rest(now);
                }
            }
            let told = [0, 1].map(|from| ends[from].poll(now).unwrap());
            ends[0].on_message(now, &told[1]);
            ends[1].on_message(now, &told[0]);
            let expected = are_resting == [true, true];
            assert_eq!(ends.map(|end| end.both_rest()), [expected; 2], "{are_resting:?}");
            // Rest does not change the version.
            assert_eq!(ends.map(|end| end.version()), [Some(BlockVersion::V1); 2]);
            ends[0].on_session(now);
            assert!(!ends[0].both_rest());
        }
    }

    #[test]
    fn traffic_of_boxes_is_counted_where_both_do() {
        let now = Timestamp::from_nanos(1);
        for are_counting in [[true, true], [true, false], [false, false]] {
            let mut ends = pair([Some(BlockVersions::ALL); 2], now);
            for (end, counts) in ends.iter_mut().zip(are_counting) {
                end.offer_rest(now);
                if counts {
                    end.offer_counting(now);
                }
                assert!(!end.both_count_boxes());
            }
            let told = [0, 1].map(|from| ends[from].poll(now).unwrap());
            ends[0].on_message(now, &told[1]);
            ends[1].on_message(now, &told[0]);
            let expected = are_counting == [true, true];
            assert_eq!(ends.map(|end| end.both_count_boxes()), [expected; 2], "{are_counting:?}");
            assert_eq!(ends.map(|end| end.both_rest()), [true; 2]);
            assert_eq!(ends.map(|end| end.version()), [Some(BlockVersion::V1); 2]);
        }
    }

    #[test]
    fn what_a_predecessor_told_does_not_hold() {
        let now = Timestamp::from_nanos(1);
        let [mut end, mut other] = pair([Some(BlockVersions::ALL), Some(TWO)], now);
        end.on_message(now, &other.poll(now).unwrap());
        assert_eq!(end.version(), Some(BlockVersion::V2));
        end.on_session(now);
        assert_eq!(end.version(), Some(BlockVersion::V1));
        end.restart();
        assert_eq!(end.next_timer(), Timestamp::MAX);
    }
}
