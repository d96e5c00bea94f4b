//! Unnecessary reductions: applies the results of [`Undo`](crate::tcp::undo) and [`Frto`](crate::tcp::frto).

use forebay_core::cc::CongestionEvent;
use forebay_core::units::Timestamp;

use super::Sender;
use crate::packet::Range;
use crate::tcp::frto::Finding;
use crate::tcp::recovery::{Phase, Turn};
use crate::tcp::scoreboard::Progress;

impl Sender {
    /// A reduction begins after a loss or a timeout; a second one within an episode belongs to the first.
    pub(super) fn arm_undo(&mut self) {
        if self.tcp.undo && matches!(self.state.recovery.phase(), Phase::Open | Phase::Disorder) {
            self.state.undo.arm(self.board.una());
        }
    }

    /// Checks whether an acknowledgement refutes a timeout, or a recovery that has ended. Call it before
    /// [`super::Recovery::on_ack`].
    pub(super) fn doubt(
        &mut self,
        now: Timestamp,
        echo: Timestamp,
        progress: &Progress,
        duplicate: Option<Range>,
        has_advanced: bool,
    ) {
        if !self.tcp.undo {
            return;
        }
        if self.state.is_ece && self.state.ecn.is_classic() {
            // The reduction also answers a mark (Linux, tcp_fastretrans_alert).
            self.state.undo.disarm();
            self.state.frto.give_up();
        }
        if let Some(range) = duplicate {
            self.state.undo.on_duplicate(range.end);
        }
        match self.state.recovery.phase() {
            Phase::Loss => self.doubt_timeout(now, echo, progress, has_advanced),
            Phase::Open | Phase::Disorder
                if duplicate.is_some() && self.state.undo.is_refuted_by_duplicates() =>
            {
                self.take_back(now)
            }
            _ => {}
        }
    }

    fn doubt_timeout(
        &mut self,
        now: Timestamp,
        echo: Timestamp,
        progress: &Progress,
        has_advanced: bool,
    ) {
        let is_refuted =
            self.state.undo.is_refuted_by(echo) || self.state.undo.is_refuted_by_duplicates();
        if has_advanced && is_refuted {
            return self.take_back(now);
        }
        let numbers = (self.board.una(), self.board.next(), self.state.recovery.point());
        match self.state.frto.on_ack(progress, has_advanced, numbers) {
            Finding::None => {}
            Finding::Spurious => self.take_back(now),
            Finding::TryNew if self.has_new_segment() => {
                self.state.recovery.raise_point(&self.board);
                self.state.prefers_new = true;
            }
            Finding::TryNew => self.state.frto.give_up(),
        }
    }

    /// Whether a turn of the recovery shows that the reduction was unnecessary; it is then undone.
    pub(super) fn doubt_recovery(&mut self, now: Timestamp, echo: Timestamp, turn: Turn) -> bool {
        let is_over = match turn {
            Turn::End => true,
            // Outstanding retransmissions may have been necessary.
            Turn::Partial { .. } => self.board.resent() == 0,
            _ => return false,
        };
        let by_echo = self.state.undo.is_refuted_by(echo);
        let by_duplicates = turn == Turn::End && self.state.undo.is_refuted_by_duplicates();
        let is_refuted = self.tcp.undo && is_over && (by_echo || by_duplicates);
        if is_refuted {
            self.take_back(now);
        }
        is_refuted
    }

    fn take_back(&mut self, now: Timestamp) {
        self.state.undo.disarm();
        self.state.frto.give_up();
        self.state.ecn.withdraw();
        self.board.take_losses_back();
        self.state.recovery.take_back(now, &self.board);
        self.state.prr = None;
        self.state.is_forced = false;
        self.counters.undone += 1;
        self.algorithm.on_event(now, CongestionEvent::Spurious);
        self.take_limits();
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::Script;
    use crate::tcp::recovery::Phase;
    use crate::tcp::stack::Tcp;

    /// Without probes, so that the timeout comes at 300 ms.
    const TCP: Tcp = Tcp { tlp: false, ..Tcp::LINUX };

    /// A timeout at 300 ms took ten segments for lost that were only late.
    fn timed_out() -> Script {
        let mut it = Script::new(TCP, None);
        assert_eq!(it.wait(320.0), [(300.0, vec![0])]);
        assert_eq!(it.window(), (1, Some(5)));
        it
    }

    #[test]
    fn echo_of_original_undoes_timeout() {
        let mut it = timed_out();
        // The original's acknowledgement: 9 are in flight again, the window is 10 + 1.
        assert_eq!(it.ack(330.0, 1, &[]), [10, 11]);
        assert_eq!((it.window(), it.sender.counters.undone), ((11, None), 1));
        assert_eq!(it.sender.state.recovery.phase(), Phase::Open);
    }

    #[test]
    fn frto_detects_spurious_timeout_without_timestamps() {
        let mut it = timed_out();
        // The echo is the retransmission's: two new segments instead of repairs.
        assert_eq!(it.ack_echoing(330.0, 300.0, 1, &[]), [10, 11]);
        assert_eq!(it.sender.counters.undone, 0);
        // 1 was sent once and is acknowledged: nothing was lost.
        it.ack_echoing(331.0, 300.0, 2, &[]);
        assert_eq!((it.sender.counters.undone, it.window().1), (1, None));
        assert!(it.window().0 >= 10);
        assert_eq!(it.sender.in_flight_bytes().as_u64() / 1448, it.window().0);
    }

    #[test]
    fn new_segment_above_hole_confirms_timeout() {
        let mut it = timed_out();
        assert_eq!(it.ack_echoing(350.0, 300.0, 1, &[]), [10, 11]);
        assert_eq!(it.ack_echoing(400.0, 300.0, 1, &[(10, 11)]).first(), Some(&1));
        assert_eq!((it.sender.counters.undone, it.window().1), (0, Some(5)));
    }

    #[test]
    fn duplicates_of_all_retransmissions_take_a_recovery_back() {
        let mut it = Script::new(TCP, None);
        assert_eq!(it.ack(100.0, 0, &[(1, 4)]), [0]);
        assert_eq!(it.window(), (5, Some(5)));
        // The original arrives late. It fills the hole, but its tick is the retransmission's.
        it.ack_echoing(104.0, 100.0, 10, &[]);
        let before = it.window();
        assert_eq!((before.1, it.sender.counters.undone), (Some(5), 0));
        // Then the retransmission arrives: a duplicate.
        it.ack_echoing(150.0, 100.0, 10, &[(0, 1)]);
        assert_eq!((it.window().1, it.sender.counters.undone), (None, 1));
        assert!(it.window().0 >= 10 && before.0 < 10, "{before:?}");
    }

    #[test]
    fn echo_before_retransmission_undoes_recovery() {
        let mut it = Script::new(TCP, None);
        it.ack(100.0, 0, &[(1, 4)]);
        it.ack(104.0, 10, &[]);
        assert_eq!((it.window().1, it.sender.counters.undone), (None, 1));
    }

    #[test]
    fn ns3_takes_nothing_back() {
        let mut it = Script::new(Tcp::NS3, None);
        it.ack(100.0, 0, &[(1, 4)]);
        it.ack(104.0, 10, &[]);
        assert_eq!((it.window().1, it.sender.counters.undone), (Some(5), 0));
    }

    #[test]
    fn timestamped_repair_gives_rtt_sample() {
        // Otherwise a path that has become longer than the timeout would never be measured.
        let mut it = timed_out();
        it.ack_echoing(500.0, 300.0, 1, &[]);
        assert_eq!(it.sender.srtt_ns(), (7 * 50 + 200) * 1_000_000 / 8);
    }
}
