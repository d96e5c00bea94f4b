//! The sender's record of outstanding segments (RFC 6675 section 4): a ring of segment states.
//!
//! ```text
//!   una ............ frontier ............ next
//!    │ judged: SACKed or lost │ outstanding │ not yet sent
//! in flight = next − una − sacked − lost + retransmitted                     (SetPipe)
//! lost      = not SACKed, and 3 or more segments above it are SACKed         (IsLost, DupThresh 3)
//! ```
//! Counters are updated with each change of a state, so an acknowledgement costs O(newly acknowledged):
//! - SACK blocks repeat earlier ones. Links skip runs of SACKed segments, and are shortened whenever they are
//!   followed (union-find; Tarjan 1975).
//! - A segment is lost when it lies below the third-highest SACKed one. That frontier only rises, so each
//!   segment is judged once.
//! - The cursor of NextSeg only rises too, except when the head or everything is marked lost.
//!
//! A retransmitted segment counts as lost until it is acknowledged: only a timeout shows the loss of the
//! retransmission (RFC 6675 section 5.1). A SACKed segment no longer counts as retransmitted, unless
//! `keeps_repairs` is set.
//!
//! If [`Rack`] judges, the frontier and DupThresh do not. It may find a segment below the cursor lost, again
//! or for the first time. Such segments wait in a heap of their own, so that the cursor never turns back.
//!
//! Departures: NextSeg's rule 4 (a rescue retransmission, a MAY) is left out; IsLost counts segments and not
//! bytes, which is the same for full-sized ones.
//!
//! Ranges: 2^32 − 1 segments a connection (6 TB of 1448 B); numbers do not wrap.

mod by_time;
mod guessed;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_core::units::Timestamp;

use self::by_time::is_listed;
use super::rack::{DUP_THRESH, Rack};
use crate::packet::Range;

/// The segment was SACKed.
const SACKED: u8 = 1;
/// Considered lost; cleared when it is SACKed.
const LOST: u8 = 2;
/// Lost and sent again; cleared when it is SACKed and by a timeout.
const RESENT: u8 = 4;
/// Sent again at some time, in ns-3 also outstanding at a timeout: it gives no round-trip time (RFC 6298
/// section 3).
const AMBIGUOUS: u8 = 8;
/// Sent again as a probe and not as lost. Counts as both until it is delivered or lost.
const PROBED: u8 = 16;

/// State at a segment's last transmission, for the delivery-rate sample (draft-ietf-ccwg-bbr-06, section
/// 4.1.2.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// When the segment was sent.
    pub at: Timestamp,
    /// When the newest segment then known to be delivered had been acknowledged.
    pub delivered_at: Timestamp,
    /// When that segment had been sent.
    pub first_sent: Timestamp,
    /// Segments delivered until then.
    pub delivered: u32,
    /// For a SACKed segment: all segments from this one on and before `skip` are SACKed.
    pub(super) skip: u32,
}

/// Result of one acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Segments newly acknowledged or SACKed.
    pub delivered: u32,
    /// Segments that were newly SACKed.
    pub sacked: u32,
    /// Segments newly considered lost.
    pub lost: u32,
    /// Segments delivered when the first newly lost segment was sent.
    pub lost_delivered: Option<u32>,
    /// Change of the number of lost segments, up or down.
    pub lost_change: u32,
    /// The newly delivered segment that was sent last.
    pub newest: Option<Sent>,
    /// When the last newly delivered segment among those sent only once was sent.
    pub unambiguous: Option<Timestamp>,
    /// The lowest newly delivered segment among those sent only once.
    pub lowest_original: Option<u32>,
    /// A repair was acknowledged without having been SACKed.
    pub covers_repair: bool,
    /// The first of the acknowledged segments had been sent only once.
    pub is_head_original: bool,
}

/// The ring and its counters, all in segments.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    flags: Vec<u8>,
    sent: Vec<Sent>,
    mask: u32,
    una: u32,
    next: u32,
    /// Every segment below is SACKed or lost.
    frontier: u32,
    /// No segment below is lost and not yet sent again.
    cursor: u32,
    /// No segment below is a candidate for rule 3.
    rescue: u32,
    /// The highest SACKed segments, highest first, each plus one; 0: none.
    top: [u32; DUP_THRESH],
    sacked: u32,
    lost: u32,
    resent: u32,
    /// Lost segments that are only [`PROBED`].
    probed: u32,
    /// Lost segments below the cursor; some may have been delivered or sent again since.
    behind: BinaryHeap<Reverse<u32>>,
    /// Boxed: a sender that counts duplicates has none, and the other fields are read often.
    rack: Option<Box<Rack>>,
    /// Segments among the resent that are not lost: SACKed ones, and those that ns-3 repeats by rule 3.
    unlost_resent: u32,
    /// A repair stays in flight when it is SACKed.
    keeps_repairs: bool,
    /// SACKed states are guesses from duplicates.
    is_guessed: bool,
}

/// Places of the smallest ring, enough for a short flow.
const RING_MIN: usize = 16;
/// The largest ring kept for the next connection.
const RING_KEPT: usize = 64;

impl Scoreboard {
    /// State before the first segment. `keeps_repairs`: [`super::stack::Tcp::sacked_repairs_in_flight`].
    pub fn new(keeps_repairs: bool) -> Self {
        Self {
            flags: vec![0; RING_MIN],
            sent: vec![Sent::default(); RING_MIN],
            mask: RING_MIN as u32 - 1,
            una: 0,
            next: 0,
            frontier: 0,
            cursor: 0,
            rescue: 0,
            top: [0; DUP_THRESH],
            sacked: 0,
            lost: 0,
            resent: 0,
            probed: 0,
            behind: BinaryHeap::new(),
            rack: None,
            unlost_resent: 0,
            keeps_repairs,
            is_guessed: false,
        }
    }

    /// Starts over before the first segment; keeps a small ring and frees a large one.
    pub fn empty(&mut self) {
        if self.flags.len() > RING_KEPT {
            *self = match self {
                Self { rack: Some(_), .. } => Self::with_rack(),
                Self { is_guessed: true, .. } => Self::with_guesses(),
                _ => Self::new(self.keeps_repairs),
            };
            return;
        }
        (self.una, self.next, self.frontier, self.cursor, self.rescue) = (0, 0, 0, 0, 0);
        (self.sacked, self.lost, self.resent) = (0, 0, 0);
        (self.probed, self.unlost_resent, self.top) = (0, 0, [0; DUP_THRESH]);
        self.behind.clear();
        if let Some(rack) = &mut self.rack {
            rack.empty();
        }
    }

    /// The first segment not acknowledged (SND.UNA).
    pub fn una(&self) -> u32 {
        self.una
    }

    /// The first segment never sent (HighData + 1).
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Segments sent and not acknowledged, SACKed or not (FlightSize).
    pub fn outstanding(&self) -> u32 {
        self.next - self.una
    }

    /// Segments thought to be in the network (pipe).
    pub fn in_flight(&self) -> u32 {
        self.next - self.una - self.sacked - self.lost + self.resent
    }

    /// Segments considered lost and not delivered.
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// The first segment not acknowledged is considered lost.
    pub fn is_head_lost(&self) -> bool {
        self.una < self.next && self.flag(self.una) & LOST != 0
    }

    /// Whether the first segment above the head that is SACKed or lost is lost.
    pub fn is_lost_above_head(&self) -> bool {
        let mut above = (self.una + 1..self.next).map(|number| self.flag(number));
        above.find(|flag| flag & (SACKED | LOST) != 0).is_some_and(|flag| flag & LOST != 0)
    }

    /// The first segment not acknowledged has been sent again.
    pub fn is_head_resent(&self) -> bool {
        self.una < self.next && self.flag(self.una) & RESENT != 0
    }

    fn flag(&self, number: u32) -> u8 {
        self.flags[(number & self.mask) as usize]
    }

    fn flag_mut(&mut self, number: u32) -> &mut u8 {
        &mut self.flags[(number & self.mask) as usize]
    }

    /// Sends the next new segment; `sent.skip` is ignored.
    pub fn send_new(&mut self, sent: Sent) -> u32 {
        if self.outstanding() as usize == self.flags.len() {
            self.grow();
        }
        let number = self.next;
        *self.flag_mut(number) = 0;
        self.sent[(number & self.mask) as usize] = sent;
        self.next += 1;
        if let Some(rack) = &mut self.rack {
            rack.append(number, sent.at);
        }
        number
    }

    /// Sends segment `number`, which is outstanding, again.
    pub fn send_again(&mut self, number: u32, sent: Sent) {
        debug_assert!((self.una..self.next).contains(&number));
        let place = (number & self.mask) as usize;
        self.sent[place] = sent;
        let flag = &mut self.flags[place];
        debug_assert!(*flag & SACKED == 0, "a SACKed segment is not sent again");
        if let Some(rack) = &mut self.rack {
            if is_listed(*flag) {
                rack.remove(number);
            }
            rack.append(number, sent.at);
        }
        // ns-3 does not take a segment for lost because it repeats it: two are in flight.
        if *flag & LOST == 0 && (!self.keeps_repairs || self.is_guessed) {
            *flag |= LOST;
            self.lost += 1;
        }
        if *flag & RESENT == 0 {
            self.resent += 1;
            self.unlost_resent += u32::from(*flag & LOST == 0);
        }
        *flag |= RESENT | AMBIGUOUS;
    }

    fn grow(&mut self) {
        let len = self.flags.len();
        let (mut flags, mut sent) = (vec![0; 2 * len], vec![Sent::default(); 2 * len]);
        let mask = 2 * len as u32 - 1;
        for number in self.una..self.next {
            flags[(number & mask) as usize] = self.flags[(number & self.mask) as usize];
            sent[(number & mask) as usize] = self.sent[(number & self.mask) as usize];
        }
        (self.flags, self.sent, self.mask) = (flags, sent, mask);
        if let Some(rack) = &mut self.rack {
            rack.grow(self.una..self.next);
        }
    }

    /// Takes an acknowledgement of everything below `ack` with SACK `blocks` (Update). `ack` must not lie
    /// below [`Scoreboard::una`].
    pub fn acknowledge(&mut self, ack: u32, blocks: &[Range]) -> Progress {
        let mut progress = Progress::default();
        let ack = ack.min(self.next);
        progress.is_head_original = self.una < ack && self.flag(self.una) & AMBIGUOUS == 0;
        while self.una < ack {
            self.remove_head(&mut progress);
        }
        self.frontier = self.frontier.max(ack);
        self.cursor = self.cursor.max(ack);
        self.rescue = self.rescue.max(ack);
        for block in blocks {
            self.sack(*block, &mut progress);
        }
        if progress.sacked > 0 && self.rack.is_none() {
            self.raise_frontier(&mut progress);
        }
        progress
    }

    fn remove_head(&mut self, progress: &mut Progress) {
        let number = self.una;
        let flag = self.flag(number);
        if flag & SACKED != 0 {
            self.sacked -= 1;
        }
        self.unlost_resent -= u32::from(flag & (RESENT | LOST) == RESENT);
        if flag & SACKED == 0 || self.is_guessed {
            self.note_delivered(number, progress);
        }
        if flag & SACKED == 0 {
            progress.covers_repair |= flag & RESENT != 0;
        }
        self.lost -= u32::from(flag & LOST != 0);
        self.resent -= u32::from(flag & RESENT != 0);
        self.probed -= u32::from(flag & PROBED != 0);
        self.una += 1;
    }

    fn note_delivered(&mut self, number: u32, progress: &mut Progress) {
        let place = (number & self.mask) as usize;
        let sent = self.sent[place];
        progress.delivered += 1;
        if progress.newest.is_none_or(|newest| sent.at >= newest.at) {
            progress.newest = Some(sent);
        }
        let flag = self.flags[place];
        if flag & AMBIGUOUS == 0 {
            progress.unambiguous = progress.unambiguous.max(Some(sent.at));
            let lowest = progress.lowest_original.map_or(number, |lowest| lowest.min(number));
            progress.lowest_original = Some(lowest);
        }
        if let Some(rack) = &mut self.rack {
            if is_listed(flag) {
                rack.remove(number);
            }
            rack.deliver(number, sent.at, flag & AMBIGUOUS != 0);
        }
    }

    fn sack(&mut self, block: Range, progress: &mut Progress) {
        let end = block.end.min(self.next);
        let mut number = self.first_unsacked(block.start.max(self.una), end);
        while number < end {
            self.note_delivered(number, progress);
            progress.sacked += 1;
            let kept = if self.keeps_repairs { RESENT } else { 0 };
            let flag = self.flag_mut(number);
            let cleared = (LOST | RESENT | PROBED) & !kept;
            let old = std::mem::replace(flag, (*flag & !cleared) | SACKED);
            self.sacked += 1;
            self.lost -= u32::from(old & LOST != 0);
            self.resent -= u32::from(old & RESENT & !kept != 0);
            self.unlost_resent += u32::from(old & kept != 0 && old & LOST != 0);
            self.probed -= u32::from(old & PROBED != 0);
            self.sent[(number & self.mask) as usize].skip = number + 1;
            self.note_high(number + 1);
            number = self.first_unsacked(number + 1, end);
        }
    }

    /// The first segment from `from` on that is not SACKed, or `end` or more.
    fn first_unsacked(&mut self, from: u32, end: u32) -> u32 {
        let mut number = from;
        while number < end && self.flag(number) & SACKED != 0 {
            let skip = self.sent[(number & self.mask) as usize].skip;
            if skip < end && self.flag(skip) & SACKED != 0 {
                let further = self.sent[(skip & self.mask) as usize].skip;
                self.sent[(number & self.mask) as usize].skip = further;
            }
            number = skip;
        }
        number
    }

    fn note_high(&mut self, mut number: u32) {
        for place in &mut self.top {
            if number > *place {
                std::mem::swap(place, &mut number);
            }
        }
    }

    fn raise_frontier(&mut self, progress: &mut Progress) {
        let below = self.top[DUP_THRESH - 1].saturating_sub(1);
        while self.frontier < below {
            let flag = self.flag_mut(self.frontier);
            if *flag & (SACKED | LOST) == 0 {
                *flag |= LOST;
                let is_resent = *flag & RESENT != 0;
                self.unlost_resent -= u32::from(is_resent);
                self.lost += 1;
                self.note_lost(self.frontier, progress);
            }
            self.frontier += 1;
        }
    }

    fn note_lost(&self, number: u32, progress: &mut Progress) {
        progress.lost += 1;
        progress.lost_delivered.get_or_insert(self.sent[(number & self.mask) as usize].delivered);
    }

    /// Marks the first unacknowledged segment as lost, for duplicate acknowledgements whose SACK blocks alone
    /// do not show the loss.
    pub fn mark_head_lost(&mut self, progress: &mut Progress) {
        if self.una == self.next || self.flag(self.una) & (LOST | SACKED) != 0 {
            return;
        }
        self.unlost_resent -= u32::from(self.flag(self.una) & RESENT != 0);
        *self.flag_mut(self.una) |= LOST;
        self.lost += 1;
        self.note_lost(self.una, progress);
        self.cursor = self.una;
    }

    /// Handles a timeout: all segments that are not SACKed are lost, and none counts as sent again (RFC 6675
    /// section 5.1; SACK information is kept, as errata 1610 allows). Returns the number of newly lost
    /// segments.
    pub fn mark_all_lost(&mut self) -> u32 {
        let before = self.lost;
        // ns-3 empties its history of send times (TcpSocketBase::ReTxTimeout).
        let forgotten = if self.keeps_repairs { AMBIGUOUS } else { 0 };
        for number in self.una..self.next {
            let flag = self.flag_mut(number);
            *flag = (*flag & !RESENT) | forgotten;
            if *flag & (SACKED | LOST) == 0 {
                *flag |= LOST;
                self.lost += 1;
            }
        }
        (self.resent, self.unlost_resent) = (0, 0);
        (self.frontier, self.cursor, self.rescue) = (self.next, self.una, self.next);
        self.lost - before
    }

    /// The segments that are lost and not sent again since, in order. This looks at all outstanding segments,
    /// so it is for observers only.
    pub fn unrepaired(&self) -> impl Iterator<Item = u32> {
        let is_any = self.lost != self.resent - self.unlost_resent;
        let looked_at = if is_any { self.una..self.next } else { 0..0 };
        looked_at.filter(|number| self.flag(*number) & (LOST | RESENT) == LOST)
    }

    /// NextSeg rule 1: the first segment that is lost and not yet sent again.
    pub fn next_lost(&mut self) -> Option<u32> {
        if self.lost == self.resent - self.unlost_resent {
            return None;
        }
        while let Some(Reverse(number)) = self.behind.peek().copied() {
            if number >= self.una && self.flag(number) & (LOST | RESENT) == LOST {
                return Some(number);
            }
            self.behind.pop();
        }
        while self.cursor < self.next {
            if self.flag(self.cursor) & (LOST | RESENT) == LOST {
                return Some(self.cursor);
            }
            self.cursor += 1;
        }
        debug_assert!(false, "a lost segment lies below the cursor");
        None
    }

    /// NextSeg rule 3: the first segment above the retransmitted ones that is not SACKed and has a SACKed one
    /// above it. `None` if RACK judges, which repairs only lost segments, and without SACK (ns-3).
    pub fn next_unsacked(&mut self) -> Option<u32> {
        if self.rack.is_some() || self.is_guessed {
            return None;
        }
        // ns-3 repeats what is still on its way, too.
        let highest = if self.keeps_repairs { self.next } else { self.top[0].saturating_sub(1) };
        self.rescue = self.rescue.max(self.cursor);
        while self.rescue < highest {
            if self.flag(self.rescue) & (SACKED | RESENT) == 0 {
                return Some(self.rescue);
            }
            self.rescue += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests;
