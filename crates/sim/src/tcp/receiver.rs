//! The receiving side: reassembly, acknowledgements and their SACK blocks.
//!
//! ```text
//! in order, nothing missing   see [`super::delack`]
//! gap, repair or duplicate    ACK at once                                           (RFC 5681, 4.2)
//! SACK blocks                 first the one with the newest segment, then the most
//!                             recently reported ones                                (RFC 2018, 4)
//! duplicate                   reported in a block before these, if the stack does   (RFC 2883)
//! echoed time                 that of the segment that was next to be acknowledged  (RFC 7323, 4.3)
//! ```
//! The application reads segments in order at once, unless it has a rate (`reading`). Segments above a gap
//! are kept as sorted ranges. New data extends the last range and repairs remove the first one, both in
//! constant time. The module `claims` has receivers with false acknowledgements.

use std::collections::VecDeque;

use forebay_core::traffic::{Conduct, Receiving};
use forebay_core::units::Timestamp;

use super::claims::Claims;
use super::delack::DelayedAck;
use super::ecn::{Echo, Echoes, EcnMode};
use super::stack::Tcp;
use crate::event::{Timer, after};
use crate::packet::{Marks, Range, SACK_BLOCKS, SackBlocks};

/// An acknowledgement to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The next segment expected.
    pub number: u32,
    /// The echoed send time.
    pub echo: Timestamp,
    /// The acknowledgement carries ECE.
    pub is_ece: bool,
    /// The timestamp reports the one-way delay of the echoed segment.
    pub tells_one_way: bool,
    /// The acknowledgement carries the receiver's counts (accurate feedback).
    pub tells_counts: bool,
    /// The acknowledgement has no extras but SACK blocks, and is sent as it is.
    pub is_plain: bool,
    /// A reported duplicate segment; without an end: none.
    duplicate: Range,
}

/// One connection's receiver.
#[derive(Debug)]
pub(crate) struct Receiver {
    next: u32,
    /// Arrived segments above `next`, in order, no two ranges touching.
    ranges: VecDeque<Range>,
    /// Blocks reported last, newest first; each is one of `ranges`.
    recent: [Range; SACK_BLOCKS],
    echo: Timestamp,
    last_acked: u32,
    /// Segments in order since the last acknowledgement.
    unacked: u32,
    delay: DelayedAck,
    echoes: Echoes,
    /// The next segment is acknowledged at once.
    is_urgent: bool,
    /// Segments that arrived more than once.
    duplicates: u32,
    dsack: bool,
    reports_ranges: bool,
    tells_one_way: bool,
    is_plain: bool,
    /// Makes the false acknowledgements of a receiver that is not honest.
    claims: Option<Box<Claims>>,
    /// When a delayed acknowledgement is due.
    pub timer: Timer,
}

impl Receiver {
    /// State before the first segment.
    pub fn new(tcp: &Tcp) -> Self {
        Self {
            next: 0,
            ranges: VecDeque::new(),
            recent: [Range::default(); SACK_BLOCKS],
            echo: Timestamp::ZERO,
            last_acked: 0,
            unacked: 0,
            delay: DelayedAck::new(tcp),
            echoes: Echoes::new(tcp.ecn),
            is_urgent: false,
            duplicates: 0,
            dsack: tcp.dsack,
            reports_ranges: tcp.sack,
            tells_one_way: tcp.tells_one_way,
            is_plain: !tcp.tells_one_way && tcp.ecn != EcnMode::L4s,
            claims: None,
            timer: Timer::STOPPED,
        }
    }

    /// This receiver with false acknowledgements, or with a changing window.
    pub fn with(mut self, receiving: &Receiving) -> Self {
        match receiving.conduct {
            Conduct::Honest => {}
            Conduct::Concealing => self.echoes = Echoes::new(EcnMode::Off),
            conduct => self.claims = Some(Box::new(Claims::new(conduct))),
        }
        self.is_plain &= self.claims.is_none() && receiving.read_rate.is_none();
        self
    }

    /// Starts over for a connection that was requested at `now`; keeps memory and the planned event of its
    /// timer.
    pub fn renew(&mut self, now: Timestamp, tcp: &Tcp) {
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.clear();
        // The first echoed time is the SYN's (RFC 7323 section 4.3).
        *self = Self { ranges, echo: now, timer: self.timer.stopped(), ..Self::new(tcp) };
    }

    /// The next segment expected; all before it have been read.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Segments that arrived again. The network copies no packet, so these are unnecessary repairs.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.into()
    }

    /// Segments that were acknowledged but have not arrived; `None` for a receiver that does not hide losses.
    pub fn unreceived(&self) -> Option<u64> {
        self.claims.as_deref().filter(|claims| claims.hides_losses()).map(Claims::missing)
    }

    /// Acknowledgements to send for `ack`, which was just made; `None`: `ack` itself.
    pub fn answers(&mut self, ack: Ack) -> Option<impl Iterator<Item = Ack> + use<>> {
        self.claims.as_deref_mut().map(|claims| claims.answers(ack))
    }

    /// Takes segment `number`, sent at `sent`. In the result, `is_new` means that it had not arrived before.
    pub fn on_data(&mut self, now: Timestamp, number: u32, sent: Timestamp) -> (Option<Ack>, bool) {
        if number <= self.last_acked {
            self.echo = sent;
        }
        self.delay.on_data(now);
        if number == self.next && self.ranges.is_empty() {
            self.next += 1;
            self.unacked += 1;
            return (self.acknowledge_in_order(now), true);
        }
        if self.claims.as_deref().is_some_and(Claims::hides_losses) {
            return self.claim(now, number, sent);
        }
        let is_new = self.insert(number);
        let is_told = self.dsack && !is_new;
        if !is_new {
            self.duplicates += 1;
            self.delay.on_duplicate();
        }
        let duplicate = is_told.then_some(Range { start: number, end: number + 1 });
        (Some(self.acknowledge_with(duplicate)), is_new)
    }

    /// [`Receiver::on_data`] for a segment out of order; a false claim counts missing segments as arrived.
    fn claim(&mut self, now: Timestamp, number: u32, sent: Timestamp) -> (Option<Ack>, bool) {
        let claims = self.claims.as_deref_mut();
        if number < self.next {
            let is_new = claims.is_some_and(|claims| claims.on_repeat(number));
            self.duplicates += u32::from(!is_new);
            return (Some(self.acknowledge_with(None)), is_new);
        }
        if let Some(claims) = claims {
            claims.skip(self.next..number);
        }
        if self.unacked == 0 {
            self.echo = sent;
        }
        self.next = number + 1;
        self.unacked += 1;
        (self.acknowledge_in_order(now), true)
    }

    /// A segment with `marks` arrives; call this before [`Receiver::on_data`]. Returns the acknowledgement of
    /// earlier segments that must not share one with this segment.
    pub fn on_marks(&mut self, marks: Marks) -> Option<Ack> {
        let echo = self.echoes.on_data(marks);
        let is_apart = echo == Echo::Apart && self.unacked > 0;
        let before = is_apart.then(|| self.acknowledge_with(None));
        self.echoes.note(marks);
        self.is_urgent = echo != Echo::AsUsual;
        before
    }

    fn acknowledge_in_order(&mut self, now: Timestamp) -> Option<Ack> {
        if self.delay.is_due(self.unacked) || self.is_urgent {
            return Some(self.acknowledge_with(None));
        }
        if !self.timer.is_running() {
            self.timer.set(after(now, self.delay.delay_ns()));
        }
        None
    }

    /// Makes the acknowledgement after [`Receiver::timer`] has expired.
    pub fn acknowledge(&mut self) -> Ack {
        self.delay.on_expiry();
        self.acknowledge_with(None)
    }

    /// Makes the acknowledgement now instead of after the delay.
    pub fn acknowledge_now(&mut self) -> Ack {
        self.acknowledge_with(None)
    }

    fn acknowledge_with(&mut self, duplicate: Option<Range>) -> Ack {
        self.timer.stop();
        self.unacked = 0;
        self.last_acked = self.next;
        self.is_urgent = false;
        Ack {
            number: self.next,
            echo: self.echo,
            is_ece: self.echoes.is_echoed(),
            tells_one_way: self.tells_one_way,
            tells_counts: self.echoes.counts().is_some(),
            is_plain: self.is_plain,
            duplicate: duplicate.unwrap_or_default(),
        }
    }

    /// The SACK blocks of `ack`, which has just been made.
    fn blocks(&self, ack: &Ack) -> impl Iterator<Item = Range> {
        let reported = if self.reports_ranges && !self.ranges.is_empty() { SACK_BLOCKS } else { 0 };
        let recent = self.recent.into_iter().take(reported);
        std::iter::once(ack.duplicate).chain(recent).filter(|range| range.end > 0)
    }

    /// How many blocks `ack`, which has just been made, carries.
    #[inline]
    pub fn block_count(&self, ack: &Ack) -> usize {
        if self.ranges.is_empty() && ack.duplicate.end == 0 {
            return 0;
        }
        self.blocks(ack).count().min(SACK_BLOCKS)
    }

    /// Writes the SACK blocks of `ack`, and the counts of accurate feedback.
    pub fn fill(&self, ack: &Ack, blocks: &mut SackBlocks) {
        self.blocks(ack).for_each(|range| blocks.push(range));
        if let Some(counts) = self.echoes.counts() {
            blocks.tell_counts(counts);
        }
    }

    /// Puts `number` in its place; false if it had arrived already.
    fn insert(&mut self, number: u32) -> bool {
        if number < self.next {
            return false;
        }
        if number == self.next {
            self.next += 1;
            if self.ranges.front().is_some_and(|first| first.start == self.next) {
                self.next = self.ranges.pop_front().map_or(self.next, |first| first.end);
            }
            let next = self.next;
            self.remember(|range| range.start >= next, None);
            return true;
        }
        let place = match self.ranges.back() {
            Some(last) if last.start <= number => self.ranges.len(),
            _ => self.ranges.partition_point(|range| range.start <= number),
        };
        if place > 0 && number < self.ranges[place - 1].end {
            let range = self.ranges[place - 1];
            self.remember(|other| other.start != range.start, Some(range));
            return false;
        }
        let range = self.join(place, number);
        self.remember(|other| other.end <= range.start || other.start >= range.end, Some(range));
        true
    }

    /// Adds `number` before the range at `place`; joins it with neighbours that it touches.
    fn join(&mut self, place: usize, number: u32) -> Range {
        let touches_left = place > 0 && self.ranges[place - 1].end == number;
        let right = self.ranges.get(place).copied().filter(|range| range.start == number + 1);
        match (touches_left, right) {
            (true, Some(right)) => {
                self.ranges.remove(place);
                self.ranges[place - 1].end = right.end;
                self.ranges[place - 1]
            }
            (true, None) => {
                self.ranges[place - 1].end = number + 1;
                self.ranges[place - 1]
            }
            (false, Some(_)) => {
                self.ranges[place].start = number;
                self.ranges[place]
            }
            (false, None) => {
                let range = Range { start: number, end: number + 1 };
                if place == self.ranges.len() {
                    self.ranges.push_back(range);
                } else {
                    self.ranges.insert(place, range);
                }
                range
            }
        }
    }

    /// Keeps the recent blocks that `keep` accepts, after `first`.
    fn remember(&mut self, keep: impl Fn(&Range) -> bool, first: Option<Range>) {
        let kept = self.recent.into_iter().filter(|range| range.end > 0 && keep(range));
        let mut all = first.into_iter().chain(kept);
        let mut recent = [Range::default(); SACK_BLOCKS];
        recent.iter_mut().for_each(|place| *place = all.next().unwrap_or_default());
        self.recent = recent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time of arrival where it does not matter.
    const NOW: Timestamp = Timestamp::from_nanos(1_000);

    fn receiver(ack_every: u32) -> Receiver {
        Receiver::new(&Tcp { ack_every, quick_acks: 0, ..Tcp::NS3 })
    }

    fn feed(receiver: &mut Receiver, numbers: &[u32]) -> Vec<Option<Ack>> {
        numbers.iter().map(|number| receiver.on_data(NOW, *number, NOW).0).collect()
    }

    /// Number and blocks of the acknowledgement of `number`.
    fn answer(receiver: &mut Receiver, number: u32) -> (u32, Vec<(u32, u32)>) {
        let ack = receiver.on_data(NOW, number, NOW).0.unwrap();
        let mut blocks = SackBlocks::NONE;
        receiver.fill(&ack, &mut blocks);
        assert_eq!(blocks.as_slice().len(), receiver.block_count(&ack));
        (ack.number, blocks.as_slice().iter().map(|range| (range.start, range.end)).collect())
    }

    #[test]
    fn the_block_of_the_newest_segment_comes_first() {
        // RFC 2018 section 4, example "Case 3": segments 2, 4, 6 and 8 of 8 are lost.
        let mut receiver = receiver(1);
        let answers = [0, 2, 4, 6].map(|number| answer(&mut receiver, number));
        assert_eq!(answers[0], (1, vec![]));
        assert_eq!(answers[1], (1, vec![(2, 3)]));
        assert_eq!(answers[2], (1, vec![(4, 5), (2, 3)]));
        assert_eq!(answers[3], (1, vec![(6, 7), (4, 5), (2, 3)]));
        // Case 3 goes on: the fourth is received, then the second.
        assert_eq!(answer(&mut receiver, 3), (1, vec![(2, 5), (6, 7)]));
        assert_eq!(answer(&mut receiver, 1), (5, vec![(6, 7)]));
    }

    #[test]
    fn gap_and_repair_skip_delayed_ack() {
        let mut receiver = receiver(2);
        let acks = feed(&mut receiver, &[0, 1, 2, 4, 3, 5]);
        let numbers: Vec<Option<u32>> = acks.iter().map(|ack| ack.map(|ack| ack.number)).collect();
        assert_eq!(numbers, [None, Some(2), None, Some(3), Some(5), None]);
        assert!(receiver.timer.is_running());
        assert_eq!(receiver.acknowledge().number, 6);
        assert!(!receiver.timer.is_running());
    }

    #[test]
    fn the_first_segments_are_acknowledged_one_by_one() {
        let mut receiver = Receiver::new(&Tcp { ack_every: 2, quick_acks: 3, ..Tcp::NS3 });
        let acks = feed(&mut receiver, &[0, 1, 2, 3, 4]);
        let sent: Vec<bool> = acks.iter().map(Option::is_some).collect();
        assert_eq!(sent, [true, true, true, false, true]);
    }

    #[test]
    fn echo_is_timestamp_of_the_due_segment() {
        // RFC 7323 section 4.3: (A) delayed acknowledgements echo the first of the segments, (B) above a
        // gap the last one in order, and (C) the repair itself.
        let mut receiver = receiver(2);
        let mut arrive = |number, sent| {
            let sent = Timestamp::from_nanos(sent);
            receiver.on_data(NOW, number, sent).0.map(|ack| ack.echo.as_nanos())
        };
        assert_eq!([arrive(0, 10), arrive(1, 11)], [None, Some(10)]);
        assert_eq!([arrive(3, 13), arrive(4, 14)], [Some(10), Some(10)]);
        assert_eq!(arrive(2, 20), Some(20));
    }

    #[test]
    fn what_has_come_before_is_not_new() {
        let mut receiver = receiver(1);
        let new: Vec<bool> =
            [0, 2, 2, 0, 1, 2].iter().map(|number| receiver.on_data(NOW, *number, NOW).1).collect();
        assert_eq!(new, [true, true, false, false, true, false]);
        assert_eq!(receiver.next(), 3);
    }

    #[test]
    fn any_order_of_arrival_ends_with_everything_read() {
        let mut stream = forebay_core::random::Streams::new(5).stream("order");
        for _ in 0..50 {
            let mut numbers: Vec<u32> = (0..200).collect();
            stream.shuffle(&mut numbers);
            let mut receiver = receiver(1);
            for (count, number) in numbers.iter().enumerate() {
                receiver.on_data(NOW, *number, NOW);
                let above: u32 = receiver.ranges.iter().map(|range| range.end - range.start).sum();
                assert_eq!((receiver.next + above) as usize, count + 1);
                let (ack, mut blocks) = (receiver.acknowledge(), SackBlocks::NONE);
                receiver.fill(&ack, &mut blocks);
                assert!(blocks.as_slice().iter().all(|block| receiver.ranges.contains(block)));
            }
            assert!(receiver.next == 200 && receiver.ranges.is_empty());
        }
    }
}
