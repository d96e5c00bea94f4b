//! Explicit congestion notification.
//!
//! ```text
//! classic    new segments are ECT(0), repeated ones are not                        (RFC 3168, 6.1.5)
//!            receiver: ECE from a CE on until CWR arrives, the first at once       (RFC 3168, 6.1.3)
//!            sender: one reduction a round trip, for a mark or a loss, then CWR on the next new
//!            segment                                                               (RFC 3168, 6.1.2)
//! accurate   every segment is ECT(0); ECE says whether the acknowledged segments were marked. If
//!            that changes, the segments before are acknowledged at once with the old answer
//!                                                                                  (RFC 8257, 3.2)
//!            sender: reports the bytes of acknowledgements with ECE                (RFC 8257, 3.3)
//! l4s        every segment is ECT(1)                                               (RFC 9331, 4.1)
//!            receiver: counts arrivals with CE and with ECT(1), and puts both counts into each
//!            acknowledgement. The first CE after another segment is acknowledged at once
//!                                                                            (RFC 9768, 3.2.2.5.1)
//!            sender: reports the growth of the counts to the algorithm           (RFC 9768, 3.2.3.1)
//! ```
//! The algorithm's needs select the mode of a connection; without needs the stack's switch does. There is no
//! negotiation: both ends have the same stack.
//!
//! In L4S each acknowledgement carries whole counts in the 8 bytes of an option (RFC 9768, 3.2.3). Here it
//! does so even with three SACK blocks, which leave no room for it on the wire. A lost acknowledgement
//! therefore loses no counts. The three bits of ACE, which would then be ambiguous, are not needed.
//! Acknowledgements are not ECN-capable.
//!
//! Further marks cause no acknowledgement. RFC 9768 (3.2.2.5.1) sends one at once after two marks, and after
//! seven at the most. A receiver that acknowledges every second segment satisfies this. One with a larger
//! `ack_every` reports marks later.

use crate::packet::{MarkCounts, Marks};

/// Answer to marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnMode {
    /// Packets are not ECN-capable.
    #[default]
    Off,
    /// RFC 3168.
    Classic,
    /// RFC 8257.
    Accurate,
    /// RFC 9331, with the feedback of RFC 9768.
    L4s,
}

/// The sender's part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answers {
    mode: EcnMode,
    /// SND.NXT at the last reduction, until the segment there, which carries CWR, is acknowledged.
    point: Option<u32>,
    owes_cwr: bool,
    /// The receiver's counts, as far as acknowledgements have reported them.
    heard: MarkCounts,
    /// The counts that the algorithm has received.
    told: MarkCounts,
}

impl Answers {
    /// State before any mark.
    pub fn new(mode: EcnMode) -> Self {
        let (heard, told) = (MarkCounts::default(), MarkCounts::default());
        Self { mode, point: None, owes_cwr: false, heard, told }
    }

    /// The marks of a segment that leaves.
    pub fn marks(&mut self, is_new: bool) -> Marks {
        match self.mode {
            EcnMode::Off => Marks::NONE,
            EcnMode::Classic if !is_new => Marks::NONE,
            EcnMode::Classic if std::mem::take(&mut self.owes_cwr) => Marks::ECT.with_cwr(),
            EcnMode::Classic | EcnMode::Accurate => Marks::ECT,
            EcnMode::L4s => Marks::ECT1,
        }
    }

    /// Takes the counts of an acknowledgement; an overtaken one brings no new counts.
    pub fn learn(&mut self, counts: MarkCounts) {
        self.heard.ce = self.heard.ce.max(counts.ce);
        self.heard.ect1 = self.heard.ect1.max(counts.ect1);
    }

    /// Reports to the algorithm for an acknowledgement that delivered this many segments: how many arrived
    /// with CE, and how many with ECT(1).
    pub fn tell(&mut self, is_ece: bool, delivered: u32) -> (Option<u32>, Option<u32>) {
        match self.mode {
            EcnMode::Off | EcnMode::Classic => (None, None),
            EcnMode::Accurate => (Some(if is_ece { delivered } else { 0 }), None),
            EcnMode::L4s => {
                let before = std::mem::replace(&mut self.told, self.heard);
                (Some(self.told.ce - before.ce), Some(self.told.ect1 - before.ect1))
            }
        }
    }

    /// An acknowledgement up to `una` ends the round trip of the last reduction.
    pub fn ends_round(&mut self, una: u32) -> bool {
        let is_over = self.point.is_some_and(|point| una > point);
        if is_over {
            self.point = None;
        }
        is_over
    }

    /// Whether an acknowledgement with ECE may reduce the window.
    pub fn may_reduce(&self) -> bool {
        self.mode == EcnMode::Classic && self.point.is_none()
    }

    /// Whether marks prevent a reduction from being undone, because it also answers marks.
    pub fn is_classic(&self) -> bool {
        self.mode == EcnMode::Classic
    }

    /// The window was reduced for whatever reason, with SND.NXT at `next`.
    pub fn on_reduction(&mut self, next: u32) {
        if self.mode == EcnMode::Classic {
            (self.point, self.owes_cwr) = (Some(next), true);
        }
    }

    /// The reduction was undone (Linux, tcp_ecn_withdraw_cwr).
    pub fn withdraw(&mut self) {
        (self.point, self.owes_cwr) = (None, false);
    }
}

/// The receiver's part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echoes {
    mode: EcnMode,
    is_marked: bool,
    counts: MarkCounts,
}

/// Reaction of a receiver to a segment's marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    /// None: marks change nothing.
    AsUsual,
    /// Acknowledges this segment at once.
    AtOnce,
    /// Acknowledges the segments before this one with their own marks, and this one at once.
    Apart,
}

impl Echoes {
    /// State before any mark.
    pub fn new(mode: EcnMode) -> Self {
        Self { mode, is_marked: false, counts: MarkCounts::default() }
    }

    /// Reaction to the marks of a segment; call it before [`Echoes::note`].
    pub fn on_data(&self, marks: Marks) -> Echo {
        let is_change = marks.is_ce() != self.is_marked;
        match self.mode {
            EcnMode::Classic if marks.is_ce() => Echo::AtOnce,
            EcnMode::Accurate if is_change => Echo::Apart,
            EcnMode::L4s if is_change && marks.is_ce() => Echo::AtOnce,
            _ => Echo::AsUsual,
        }
    }

    /// Notes the marks of a segment.
    pub fn note(&mut self, marks: Marks) {
        match self.mode {
            EcnMode::Off => {}
            EcnMode::Classic => {
                self.is_marked = marks.is_ce() || (self.is_marked && !marks.is_cwr());
            }
            EcnMode::Accurate => self.is_marked = marks.is_ce(),
            EcnMode::L4s => {
                self.is_marked = marks.is_ce();
                self.counts.ce += u32::from(marks.is_ce());
                self.counts.ect1 += u32::from(marks.is_ect1());
            }
        }
    }

    /// Whether an acknowledgement carries ECE.
    pub fn is_echoed(&self) -> bool {
        self.is_marked && self.mode != EcnMode::L4s
    }

    /// Accurate feedback in an acknowledgement; `None`: without.
    pub fn counts(&self) -> Option<MarkCounts> {
        (self.mode == EcnMode::L4s).then_some(self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::receiver::Receiver;
    use crate::tcp::stack::Tcp;
    use forebay_core::units::Timestamp;

    fn ce() -> Marks {
        Marks::ECT.with_ce()
    }

    /// Acknowledgement numbers and echoes for segments with these marks.
    fn echoes(ecn: EcnMode, marks: &[Marks]) -> Vec<(u32, bool)> {
        let tcp = Tcp { ecn, ack_every: 2, quick_acks: 0, ..Tcp::LINUX };
        let mut receiver = Receiver::new(&tcp);
        let mut acks = Vec::new();
        for (number, marks) in marks.iter().enumerate() {
            let now = Timestamp::from_nanos(number as u64);
            acks.extend(receiver.on_marks(*marks));
            acks.extend(receiver.on_data(now, number as u32, now).0);
        }
        acks.iter().map(|ack| (ack.number, ack.is_ece)).collect()
    }

    #[test]
    fn a_classic_receiver_echoes_until_cwr_comes() {
        let marks = [Marks::ECT, ce(), Marks::ECT, Marks::ECT, Marks::ECT.with_cwr(), Marks::ECT];
        let expected = [(2, true), (4, true), (6, false)];
        assert_eq!(echoes(EcnMode::Classic, &marks), expected);
        // The first mark is echoed at once, and so is one that comes with CWR.
        let marks = [ce(), Marks::ECT.with_cwr().with_ce()];
        assert_eq!(echoes(EcnMode::Classic, &marks), [(1, true), (2, true)]);
    }

    #[test]
    fn accurate_ecn_separates_marks_despite_delayed_acks() {
        // RFC 8257 section 3.2, figure 1: the change acknowledges what was pending with the old state.
        let marks = [Marks::ECT, ce(), ce(), ce(), Marks::ECT, Marks::ECT, Marks::ECT];
        let expected = [(1, false), (2, true), (4, true), (5, false), (7, false)];
        assert_eq!(echoes(EcnMode::Accurate, &marks), expected);
    }

    #[test]
    fn l4s_receiver_reports_first_mark_at_once() {
        let l4s = Marks::ECT1;
        let marks = [l4s, l4s, l4s, l4s.with_ce(), l4s.with_ce(), l4s.with_ce(), l4s, l4s];
        let expected = [(2, false), (4, false), (6, false), (8, false)];
        assert_eq!(echoes(EcnMode::L4s, &marks), expected);
        assert_eq!(echoes(EcnMode::L4s, &marks[1..4]), [(2, false), (3, false)]);
        let mut echoes = Echoes::new(EcnMode::L4s);
        marks.iter().for_each(|marks| echoes.note(*marks));
        assert_eq!(echoes.counts(), Some(MarkCounts { ce: 3, ect1: 5 }));
        assert_eq!(Echoes::new(EcnMode::Accurate).counts(), None);
    }

    #[test]
    fn lost_or_late_ack_loses_no_marks() {
        let mut answers = Answers::new(EcnMode::L4s);
        assert_eq!([answers.marks(true), answers.marks(false)], [Marks::ECT1; 2]);
        answers.learn(MarkCounts { ce: 1, ect1: 9 });
        assert_eq!(answers.tell(false, 10), (Some(1), Some(9)));
        // The acknowledgement with 2 and 18 is overtaken, and another one lost.
        answers.learn(MarkCounts { ce: 5, ect1: 25 });
        answers.learn(MarkCounts { ce: 2, ect1: 18 });
        assert_eq!(answers.tell(false, 20), (Some(4), Some(16)));
        assert_eq!(answers.tell(false, 0), (Some(0), Some(0)));
        assert!(!answers.may_reduce() && !answers.is_classic());
    }

    #[test]
    fn sender_reduces_once_per_rtt_with_one_cwr() {
        let mut answers = Answers::new(EcnMode::Classic);
        assert!(answers.may_reduce());
        answers.on_reduction(15);
        assert_eq!(answers.marks(false), Marks::NONE, "repeated segments are not ECN-capable");
        assert!(answers.marks(true).is_cwr() && !answers.marks(true).is_cwr());
        // Segment 15 carries CWR: up to it, the receiver echoes marks that are already answered.
        assert!(!answers.ends_round(15) && !answers.may_reduce());
        assert!(answers.ends_round(16) && answers.may_reduce());
        assert!(!Answers::new(EcnMode::Accurate).may_reduce());
    }

    #[test]
    fn without_ecn_nothing_is_capable_and_nothing_echoed() {
        assert_eq!(Answers::new(EcnMode::Off).marks(true), Marks::NONE);
        assert_eq!(echoes(EcnMode::Off, &[ce(), ce()]), [(2, false)]);
    }
}
