//! RACK: detects losses from send times, including those of retransmissions (RFC 8985).
//!
//! ```text
//! segment   the delivered one that was sent last; rtt its round trip              (6.2, step 2)
//! lost      sent before it, and sent + rtt + reo_wnd <= now                       (6.2, step 5)
//! reo_wnd   0 until reordering is seen, in a recovery or with 3 segments SACKed;
//!           else min(mult min_rtt / 4, SRTT)                                      (6.2, step 4)
//! mult      1; one more for a round with a D-SACK; 1 again after 16 recoveries    (6.2, step 4)
//! timer     when the last segment sent before this one would be lost              (6.2, step 5)
//! ```
//! Segments in flight form a list in the order of their last transmission, linked by their places in the
//! scoreboard's ring. Losses are taken from its front. A cursor at the last segment sent before RACK's
//! segment only moves forward, so an acknowledgement costs O(newly delivered + newly lost).
//!
//! Two rules follow Linux (net/ipv4/tcp_recovery.c), not the RFC. The delivery of a retransmission counts
//! unless it took less than the least round trip, whatever timestamp is echoed: the acknowledgement of a
//! SACKed segment echoes an earlier one. A D-SACK widens the window only once reordering was seen.

use forebay_core::units::Timestamp;

use crate::event::{after, nanos_between};

/// Segments SACKed above a hole from which it counts as lost (RFC 6675 section 2).
pub(crate) const DUP_THRESH: usize = 3;
/// No segment.
const NONE: u32 = u32::MAX;
/// Recoveries without a D-SACK after which the window returns to its first size (RFC 8985 section 6.2, step
/// 4).
const PERSISTENCE: u32 = 16;

#[derive(Clone, Copy, Debug)]
struct ListLink {
    at: Timestamp,
    earlier: u32,
    later: u32,
}

/// Link of a segment that is not in the list.
const UNLINKED: ListLink = ListLink { at: Timestamp::ZERO, earlier: NONE, later: NONE };

/// Inputs of the window from outside RACK's own state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// A recovery is under way, after a timeout or not.
    pub is_recovering: bool,
    /// Segments SACKed.
    pub sacked: u32,
    /// Least round trip, [`u64::MAX`] for none.
    pub min_rtt_ns: u64,
    /// Smoothed round trip.
    pub srtt_ns: u64,
}

/// The list, and results of past deliveries.
#[derive(Debug)]
pub(crate) struct Rack {
    links: Vec<ListLink>,
    mask: u32,
    first: u32,
    last: u32,
    /// The last segment sent before RACK's segment; [`NONE`]: there is none.
    older: u32,
    segment: (Timestamp, u32),
    rtt_ns: u64,
    reo_wnd_ns: u64,
    /// The number after the highest segment delivered: before this acknowledgement, and with it.
    fack: u32,
    highest: u32,
    is_reordering_seen: bool,
    multiplier: u32,
    persistence: u32,
    /// SND.NXT when the round of the last D-SACK began.
    dsack_round: Option<u32>,
    now: Timestamp,
    min_rtt_ns: u64,
}

impl Rack {
    /// State before the first segment, for a ring of `places`.
    pub fn new(places: usize) -> Self {
        Self {
            links: vec![UNLINKED; places],
            mask: (places as u32).wrapping_sub(1),
            first: NONE,
            last: NONE,
            older: NONE,
            segment: (Timestamp::ZERO, 0),
            rtt_ns: 0,
            reo_wnd_ns: 0,
            fack: 0,
            highest: 0,
            is_reordering_seen: false,
            multiplier: 1,
            persistence: 0,
            dsack_round: None,
            now: Timestamp::ZERO,
            min_rtt_ns: u64::MAX,
        }
    }

    /// Starts over before the first segment, with the same ring.
    pub fn empty(&mut self) {
        let links = std::mem::take(&mut self.links);
        *self = Self { mask: self.mask, links, ..Self::new(0) };
    }

    fn link(&self, number: u32) -> ListLink {
        self.links[(number & self.mask) as usize]
    }

    fn link_mut(&mut self, number: u32) -> &mut ListLink {
        &mut self.links[(number & self.mask) as usize]
    }

    /// Follows the growth of the ring, which holds `numbers`, to twice its places.
    pub fn grow(&mut self, numbers: std::ops::Range<u32>) {
        let mut links = vec![UNLINKED; 2 * self.links.len()];
        let mask = links.len() as u32 - 1;
        for number in numbers {
            links[(number & mask) as usize] = self.link(number);
        }
        (self.links, self.mask) = (links, mask);
    }

    /// `number` was just sent.
    pub fn append(&mut self, number: u32, at: Timestamp) {
        let earlier = self.last;
        *self.link_mut(number) = ListLink { at, earlier, later: NONE };
        match earlier {
            NONE => self.first = number,
            _ => self.link_mut(earlier).later = number,
        }
        self.last = number;
    }

    /// `number` is delivered or lost.
    pub fn remove(&mut self, number: u32) {
        let ListLink { earlier, later, .. } = self.link(number);
        match earlier {
            NONE => self.first = later,
            _ => self.link_mut(earlier).later = later,
        }
        match later {
            NONE => self.last = earlier,
            _ => self.link_mut(later).earlier = earlier,
        }
        if self.older == number {
            self.older = earlier;
        }
    }

    /// Rebuilds the list of segments in flight after a loss was undone; `sent` is sorted here.
    pub fn relist(&mut self, mut sent: Vec<(Timestamp, u32)>) {
        sent.sort_unstable();
        (self.first, self.last, self.older) = (NONE, NONE, NONE);
        sent.into_iter().for_each(|(at, number)| self.append(number, at));
        self.follow();
    }

    /// An acknowledgement arrives; its deliveries follow.
    pub fn begin(&mut self, now: Timestamp, min_rtt_ns: u64) {
        (self.now, self.min_rtt_ns) = (now, min_rtt_ns);
    }

    /// An acknowledgement delivers `number`, last sent at `at` and, if `is_resent`, not for the first time.
    pub fn deliver(&mut self, number: u32, at: Timestamp, is_resent: bool) {
        self.highest = self.highest.max(number + 1);
        self.is_reordering_seen |= !is_resent && number + 1 < self.fack;
        let rtt_ns = nanos_between(at, self.now);
        if is_resent && rtt_ns < self.min_rtt_ns {
            return;
        }
        self.rtt_ns = rtt_ns;
        self.segment = self.segment.max((at, number));
    }

    /// Updates the reordering window after all deliveries. `round` is SND.NXT for a D-SACK that counts; else
    /// `None`.
    pub fn finish(&mut self, una: u32, round: Option<u32>, conditions: Conditions) {
        self.fack = self.highest;
        self.follow();
        if self.dsack_round.is_some_and(|end| una >= end) {
            self.dsack_round = None;
        }
        if self.dsack_round.is_none() && round.is_some() && self.is_reordering_seen {
            self.dsack_round = round;
            self.multiplier += 1;
            self.persistence = PERSISTENCE;
        }
        self.reo_wnd_ns = self.reordering_window(conditions);
    }

    fn reordering_window(&self, conditions: Conditions) -> u64 {
        let is_short = conditions.is_recovering || conditions.sacked as usize >= DUP_THRESH;
        if (!self.is_reordering_seen && is_short) || conditions.min_rtt_ns == u64::MAX {
            return 0;
        }
        (conditions.min_rtt_ns / 4 * u64::from(self.multiplier)).min(conditions.srtt_ns)
    }

    /// A recovery has ended.
    pub fn on_recovery_end(&mut self) {
        self.persistence = self.persistence.saturating_sub(1);
        if self.persistence == 0 {
            self.multiplier = 1;
        }
    }

    fn follow(&mut self) {
        loop {
            let next = if self.older == NONE { self.first } else { self.link(self.older).later };
            if next == NONE || (self.link(next).at, next) >= self.segment {
                return;
            }
            self.older = next;
        }
    }

    fn lost_at(&self, number: u32) -> Timestamp {
        after(self.link(number).at, self.rtt_ns + self.reo_wnd_ns)
    }

    /// The next segment that is lost at `now`; the caller then removes it.
    pub fn overdue(&self, now: Timestamp) -> Option<u32> {
        (self.older != NONE && self.lost_at(self.first) <= now).then_some(self.first)
    }

    /// The next segment that a timeout at `now` marks as lost (6.3).
    pub fn timed_out(&self, now: Timestamp) -> Option<u32> {
        (self.first != NONE && self.lost_at(self.first) <= now).then_some(self.first)
    }

    /// When all segments sent before RACK's segment will be lost.
    pub fn deadline(&self) -> Option<Timestamp> {
        (self.older != NONE).then(|| self.lost_at(self.older))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nanoseconds per millisecond.
    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * MS)
    }

    /// Outside a recovery, with one SACKed segment.
    const CALM: Conditions =
        Conditions { is_recovering: false, sacked: 1, min_rtt_ns: 40 * MS, srtt_ns: 50 * MS };

    /// Segments 0 to 9, sent a millisecond apart from 0 ms on.
    fn rack() -> Rack {
        let mut rack = Rack::new(16);
        (0..10).for_each(|number| rack.append(number, at(u64::from(number))));
        rack
    }

    fn deliver(rack: &mut Rack, ms: u64, numbers: &[u32], conditions: Conditions) -> Vec<u32> {
        rack.begin(at(ms), 40 * MS);
        for number in numbers {
            let sent = rack.link(*number).at;
            rack.remove(*number);
            rack.deliver(*number, sent, false);
        }
        rack.finish(0, None, conditions);
        lost(rack, ms)
    }

    fn lost(rack: &mut Rack, ms: u64) -> Vec<u32> {
        let mut lost = Vec::new();
        while let Some(number) = rack.overdue(at(ms)) {
            rack.remove(number);
            lost.push(number);
        }
        lost
    }

    #[test]
    fn hole_is_lost_after_quarter_min_rtt() {
        let mut rack = rack();
        // Segment 3 arrives after 40 ms: 0 to 2 have until sent + 40 + 10 ms.
        assert_eq!(deliver(&mut rack, 43, &[3], CALM), [0; 0]);
        assert_eq!(rack.deadline(), Some(at(2 + 50)));
        assert_eq!(lost(&mut rack, 51), [0, 1]);
        assert_eq!(lost(&mut rack, 52), [2]);
        assert_eq!(rack.deadline(), None, "nothing else was sent before segment 3");
    }

    #[test]
    fn three_sacks_or_recovery_skip_the_reordering_wait() {
        let conditions = Conditions { sacked: 3, ..CALM };
        assert_eq!(deliver(&mut rack(), 43, &[1, 2, 3], conditions), [0]);
        let conditions = Conditions { is_recovering: true, ..CALM };
        assert_eq!(deliver(&mut rack(), 43, &[3], conditions), [0, 1, 2]);
    }

    #[test]
    fn reordering_that_was_seen_keeps_the_window_open() {
        let mut rack = rack();
        deliver(&mut rack, 43, &[3], CALM);
        deliver(&mut rack, 44, &[2], CALM);
        let conditions = Conditions { sacked: 5, is_recovering: true, ..CALM };
        assert_eq!(deliver(&mut rack, 46, &[4, 5, 6], conditions), [0; 0]);
        assert_eq!(rack.deadline(), Some(at(1 + 40 + 10)));
    }

    #[test]
    fn dsack_rounds_widen_window_up_to_srtt() {
        let mut rack = rack();
        rack.is_reordering_seen = true;
        let mut windows = Vec::new();
        for round in 1..6 {
            rack.finish(10 * round, Some(10 * round + 10), CALM);
            rack.finish(10 * round + 5, Some(10 * round + 15), CALM);
            windows.push(rack.reo_wnd_ns / MS);
        }
        assert_eq!(windows, [20, 30, 40, 50, 50]);
        (0..16).for_each(|_| rack.on_recovery_end());
        rack.finish(100, None, CALM);
        assert_eq!(rack.reo_wnd_ns, 10 * MS);
    }

    #[test]
    fn too_early_answer_to_retransmission_is_ignored() {
        let mut rack = rack();
        rack.remove(0);
        rack.append(0, at(30));
        rack.begin(at(42), 40 * MS);
        rack.remove(0);
        rack.deliver(0, at(30), true);
        rack.finish(0, None, CALM);
        assert_eq!(rack.deadline(), None);
        // A second one that took long enough shows that all segments sent before it are late.
        rack.remove(1);
        rack.append(1, at(60));
        rack.begin(at(100), 40 * MS);
        rack.remove(1);
        rack.deliver(1, at(60), true);
        rack.finish(0, None, CALM);
        assert_eq!(lost(&mut rack, 100), [2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn timeout_spares_segments_sent_within_one_rtt() {
        let mut rack = rack();
        deliver(&mut rack, 40, &[0], CALM);
        let mut lost = Vec::new();
        while let Some(number) = rack.timed_out(at(55)) {
            rack.remove(number);
            lost.push(number);
        }
        assert_eq!(lost, [1, 2, 3, 4, 5]);
    }
}
