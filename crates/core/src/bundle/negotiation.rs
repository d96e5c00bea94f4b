//! Which version of the sampling block both boxes build, and whether both rest.
//!
//! Each box tells what it can do in the session, and again until the other says that it has heard it, as scopes are
//! told (`exchange`). The lowest version that both build is in force: it tells most packets apart. Until a peer has told
//! its versions, and for ever if it is older than this message and rejects it, the peer builds version 1 alone and does
//! not rest, nor counts what goes to and from boxes. A peer that is older than such a bit tells it back as it came, and
//! never sets it of its own accord.
//!
//! The boxes learn of each other's versions one after the other. What is sampled meanwhile matches nothing, for a
//! round trip at the start of a session.

use super::sample::{BlockVersion, BlockVersions};
use super::telling::Telling;
use super::wire::{Offer, VersionsMessage};
use crate::units::Timestamp;

/// What a box can do that tells nothing.
const OLDEST: Offer = Offer {
    versions: BlockVersions::of(BlockVersion::V1),
    rests: false,
    counts_boxes: false,
    probes: false,
};

/// One box's end of the negotiation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Negotiation {
    /// `None`: version 1, of which a box need not tell.
    mine: Option<Offer>,
    theirs: Option<Offer>,
    is_established: bool,
    telling: Telling,
}

impl Negotiation {
    /// Of a box that builds version 1 and tells nothing.
    pub const fn new() -> Self {
        Self { mine: None, theirs: None, is_established: false, telling: Telling::new() }
    }

    /// The box builds these versions from now on.
    pub fn offer(&mut self, now: Timestamp, versions: BlockVersions) {
        self.tell(now, Offer { versions, ..self.mine() });
    }

    /// The box rests from now on.
    pub fn offer_rest(&mut self, now: Timestamp) {
        self.tell(now, Offer { rests: true, ..self.mine() });
    }

    /// The box counts what goes to and from boxes from now on.
    pub fn offer_counting(&mut self, now: Timestamp) {
        self.tell(now, Offer { counts_boxes: true, ..self.mine() });
    }

    /// The box sends or answers probes from now on.
    pub fn offer_probes(&mut self, now: Timestamp) {
        self.tell(now, Offer { probes: true, ..self.mine() });
    }

    fn tell(&mut self, now: Timestamp, offer: Offer) {
        if self.mine.replace(offer) != Some(offer) {
            self.begin(now);
        }
    }

    /// The session is new: the peer may be another, and has heard nothing in it.
    pub fn on_session(&mut self, now: Timestamp) {
        self.is_established = true;
        self.theirs = None;
        self.telling.end();
        self.begin(now);
    }

    /// The box begins another session.
    pub const fn restart(&mut self) {
        self.is_established = false;
        self.telling.end();
    }

    /// Takes what the peer told.
    pub fn on_message(&mut self, now: Timestamp, message: &VersionsMessage) {
        self.theirs = Some(message.offered);
        self.telling.on_message(now, message.held == self.mine, message.asks);
    }

    /// What is to be told now.
    pub fn poll(&mut self, now: Timestamp) -> Option<VersionsMessage> {
        let offered = self.mine?;
        let asks = self.telling.poll(now)?;
        Some(VersionsMessage { held: self.theirs, asks, offered })
    }

    /// When [`Negotiation::poll`] is next needed.
    pub const fn next_timer(&self) -> Timestamp {
        self.telling.next_timer()
    }

    /// The version in force; `None`: the boxes build none in common, as far as is known.
    pub fn version(&self) -> Option<BlockVersion> {
        self.mine().versions.common(self.theirs.unwrap_or(OLDEST).versions)
    }

    /// Whether both boxes rest, as far as is known.
    pub fn both_rest(&self) -> bool {
        self.mine().rests && self.theirs.is_some_and(|theirs| theirs.rests)
    }

    /// Whether both boxes count what goes to and from boxes, as far as is known.
    pub fn both_count_boxes(&self) -> bool {
        self.mine().counts_boxes && self.theirs.is_some_and(|theirs| theirs.counts_boxes)
    }

    /// Whether the path MTU may be looked for, as far as is known.
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

    /// Both ends, which have just met; `None` is a box of an older version.
    fn pair(versions: [Option<BlockVersions>; 2], now: Timestamp) -> [Negotiation; 2] {
        versions.map(|versions| {
            let mut end = Negotiation::new();
            versions.into_iter().for_each(|versions| end.offer(now, versions));
            end.on_session(now);
            end
        })
    }

    /// What both have in force after a minute, in which the first message of each is lost, and the messages sent.
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
    fn the_lowest_version_that_both_build_is_in_force_and_then_they_are_silent() {
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
            // NAT of which one box, or both, say nothing or say another thing.
            ([nat(Nat::Source); 2], Some(BlockVersion::V3)),
            ([nat(Nat::Source), nat(Nat::Both)], None),
            ([nat(Nat::Source), all], None),
            // One that came later.
            ([BlockVersions::from_bits(0b1000_0001), all], v1),
            ([BlockVersions::from_bits(0b1000_0000), all], None),
        ] {
            let (settled, sent) = settled(versions.map(Some));
            assert_eq!(settled, [expected; 2], "{versions:?}");
            assert!(sent < 12, "{versions:?}: {sent} messages");
        }
    }

    #[test]
    fn with_an_older_box_version_1_is_in_force_if_any_is() {
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
    fn boxes_rest_where_both_do_and_as_long_as_the_peer_is_the_one_that_does() {
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
            // Whether it does makes no other version.
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
