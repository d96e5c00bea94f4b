//! Events behind the retransmission timer: a timeout, the end of RACK's reordering window or a tail loss
//! probe. One timer serves all three (RFC 8985 section 8): a probe, and a check of the reordering window,
//! re-arm the timeout. While nothing is outstanding, it may wait for the probe of a closed window.

use forebay_core::cc::CongestionEvent;
use forebay_core::units::Timestamp;

use super::{Next, Sender};
use crate::event::after;
use crate::packet::Range;
use crate::tcp::delivery::Sample;
use crate::tcp::rack::Conditions;
use crate::tcp::recovery::{Phase, Turn};
use crate::tcp::scoreboard::Progress;
use crate::tcp::tlp::{Probe, TIMEOUT_MIN_NS, Verdict, probe_timeout_ns};

/// Event that the timer is set for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Alarm {
    /// The retransmission timeout.
    #[default]
    Timeout,
    /// The loss of the segments sent before RACK's segment.
    Reordering,
    /// The tail loss probe.
    Probe,
    /// The probe of a closed window.
    Window,
}

impl Sender {
    /// RACK's part of an acknowledgement. Returns when to check again.
    pub(super) fn judge(
        &mut self,
        now: Timestamp,
        progress: &mut Progress,
        duplicate: Option<Range>,
    ) -> Option<Timestamp> {
        if !self.board.has_rack() {
            return None;
        }
        let conditions = Conditions {
            is_recovering: matches!(self.state.recovery.phase(), Phase::Recovery | Phase::Loss),
            sacked: 0,
            min_rtt_ns: self.state.rtt.min_ns(),
            srtt_ns: self.state.rtt.srtt_ns(),
        };
        let has_dsack = duplicate.is_some_and(|range| !self.is_of_probe(range));
        self.board.finish_ack(has_dsack, conditions);
        self.board.lose_overdue(now, progress)
    }

    fn is_of_probe(&self, duplicate: Range) -> bool {
        self.state.probe.is_some_and(|probe| probe.end == duplicate.end)
    }

    /// Checks the answer to an outstanding probe; a loss that the probe repaired counts as a loss.
    pub(super) fn judge_probe(
        &mut self,
        now: Timestamp,
        progress: &Progress,
        duplicate: Option<Range>,
        has_advanced: bool,
    ) {
        let Some(probe) = self.state.probe else { return };
        let is_duplicated = duplicate.is_some_and(|range| self.is_of_probe(range));
        match probe.on_ack(self.board.una(), progress, is_duplicated, has_advanced) {
            Verdict::Open => {}
            Verdict::Harmless => self.state.probe = None,
            Verdict::Repaired => {
                self.state.probe = None;
                if matches!(self.state.recovery.phase(), Phase::Open | Phase::Disorder) {
                    self.tell_loss(now, CongestionEvent::Loss);
                    self.algorithm.on_event(now, CongestionEvent::RecoveryEnd);
                }
            }
        }
    }

    /// Sets the timer after an acknowledgement that restarts it.
    pub(super) fn set_alarm(&mut self, now: Timestamp, look_again: Option<Timestamp>) {
        if let Some(at) = look_again {
            self.state.alarm = Alarm::Reordering;
            self.rto_timer.set(after(at, TIMEOUT_MIN_NS));
        } else {
            self.restart_rto(now);
        }
    }

    /// Plans a probe, if one is due sooner than the timeout at `rto_at`.
    pub(super) fn plan_probe(&mut self, now: Timestamp, rto_at: Timestamp) -> bool {
        let is_calm = self.state.recovery.phase() == Phase::Open && self.board.sacked() == 0;
        let is_due = is_calm && self.board.outstanding() > 0;
        if !self.tcp.tlp || !is_due || self.state.rtt.srtt_ns() == 0 {
            return false;
        }
        let timeout_ns = probe_timeout_ns(self.state.rtt.srtt_ns(), self.board.outstanding());
        self.state.alarm = Alarm::Probe;
        self.rto_timer.set(after(now, timeout_ns).min(rto_at));
        true
    }

    /// After a new segment left: the probe is for the last segment.
    pub(super) fn replan_probe(&mut self, now: Timestamp) {
        let rto_at = self.timeout_of_head(now);
        if !self.plan_probe(now, rto_at) && self.state.alarm == Alarm::Probe {
            self.state.alarm = Alarm::Timeout;
            self.rto_timer.set(rto_at);
        }
    }

    /// When the head times out, whatever event the timer was set for since its transmission.
    fn timeout_of_head(&self, now: Timestamp) -> Timestamp {
        after(self.board.head_sent_at(), self.state.rtt.rto_ns()).max(after(now, 1))
    }

    /// The timer has expired. False if it was set for a timeout.
    pub(super) fn serve_alarm(&mut self, now: Timestamp) -> bool {
        match std::mem::take(&mut self.state.alarm) {
            Alarm::Timeout => return false,
            Alarm::Reordering => self.look_again(now),
            Alarm::Probe => self.plan_transmission_of_probe(now),
            Alarm::Window => self.plan_window_probe(),
        }
        true
    }

    fn look_again(&mut self, now: Timestamp) {
        let mut progress = Progress::default();
        let look_again = self.board.lose_overdue(now, &mut progress);
        if progress.lost > 0 {
            let turn = self.state.recovery.on_losses(now, &self.board);
            self.turn(now, turn, &mut progress);
            let acked = self.acked(&progress, self.board.una(), turn);
            self.measure(now, &progress, Sample::default(), None, acked);
            self.take_limits();
            if turn == Turn::Enter {
                // As with one delivered segment (Linux, tcp_rack_reo_timeout).
                let delivered = Progress { delivered: 1, ..progress };
                self.reduce_proportionally(&delivered, self.in_flight_bytes(), false, false);
            }
        }
        match look_again {
            Some(_) => self.set_alarm(now, look_again),
            None => self.rto_timer.set(self.timeout_of_head(now)),
        }
    }

    fn plan_transmission_of_probe(&mut self, now: Timestamp) {
        // A SACK shows the state of the tail too; the probe was planned before it.
        let is_known = self.board.outstanding() == 0 || self.board.sacked() > 0;
        if self.state.probe.is_some() || is_known {
            self.rto_timer.set(self.timeout_of_head(now));
            return;
        }
        let is_new = self.has_new_segment();
        self.state.probing = Some(if is_new { Next::New } else { Next::Probe });
        let end = self.board.next() + u32::from(is_new);
        self.state.probe = Some(Probe { end, is_repetition: !is_new });
        // The timeout restarts with the probe.
        self.rto_timer.set(after(now, self.state.rtt.rto_ns()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::Script;
    use crate::tcp::stack::Tcp;

    #[test]
    fn lost_tail_is_probed_after_two_rtts() {
        let mut it = Script::new(Tcp::LINUX, Some(10));
        assert_eq!(it.ack(100.0, 7, &[]), [0; 0]);
        // PTO = 2 x 50 + 2 ms after the acknowledgement; the timeout would have been 250 ms.
        assert_eq!(it.wait(210.0), [(202.0, vec![9])]);
        // 7 and 8 were sent long before the delivered probe: both are lost. RFC 9937 sends one segment for
        // the SACKed one, and two for the safe acknowledgement.
        assert_eq!(it.ack(252.0, 7, &[(9, 10)]), [7]);
        assert_eq!(it.ack_echoing(302.0, 252.0, 8, &[(9, 10)]), [8]);
        assert_eq!(it.ack_echoing(352.0, 302.0, 10, &[]), [0; 0]);
        assert_eq!((it.sender.counters.timeouts, it.sender.recoveries().0), (0, 1));
    }

    #[test]
    fn single_segment_is_probed_at_each_timeout() {
        // PTO = 2 x 50 + 200 ms exceeds the timeout of 50 + 200 ms.
        let mut it = Script::new(Tcp::LINUX, Some(1));
        assert_eq!(it.wait(400.0), [(300.0, vec![0])]);
        assert_eq!(it.sender.counters.timeouts, 0);
        assert_eq!(it.wait(600.0), [(550.0, vec![0])]);
        assert_eq!(it.sender.counters.timeouts, 1);
    }

    #[test]
    fn probe_beyond_full_window_is_new_segment() {
        let mut it = Script::new(Tcp::LINUX, None);
        assert_eq!(it.wait(160.0), [(152.0, vec![10])]);
        assert_eq!(it.sender.in_flight_bytes().as_u64(), 11 * 1448);
        // At most one probe: then the timeout, counted from the probe, marks all as lost.
        assert_eq!(it.wait(500.0), [(402.0, vec![0])]);
    }

    #[test]
    fn lost_tail_without_tlp_waits_for_timeout() {
        let mut it = Script::new(Tcp { tlp: false, ..Tcp::LINUX }, Some(10));
        it.ack(100.0, 7, &[]);
        assert_eq!(it.wait(400.0), [(350.0, vec![7])]);
    }

    #[test]
    fn hole_is_repaired_after_quarter_rtt() {
        let mut it = Script::new(Tcp::LINUX, None);
        // Limited transmit: 3 is SACKed, one new segment leaves.
        assert_eq!(it.ack(100.0, 0, &[(3, 4)]), [10]);
        // Sent at 50 ms, lost after 50 + 12.5 ms; the timer adds 2 ms.
        assert_eq!(it.wait(130.0), [(114.5, vec![0])]);
    }

    #[test]
    fn reordering_by_less_than_that_costs_nothing() {
        let mut it = Script::new(Tcp::LINUX, None);
        it.ack(100.0, 0, &[(3, 4)]);
        assert_eq!(it.ack(110.0, 4, &[]).len(), 7);
        assert_eq!(it.wait(200.0), [], "the probe is due at 110 + 102 ms");
        assert_eq!(it.window().1, None);
    }

    #[test]
    fn lost_retransmission_is_resent_after_later_delivery() {
        let mut it = Script::new(Tcp::LINUX, None);
        // 0 is lost: with three SACKed it is sent again at once, and new ones later.
        assert_eq!(it.ack(100.0, 0, &[(1, 4)]), [0]);
        assert_eq!(it.ack(101.0, 0, &[(1, 10)]).first(), Some(&10));
        // It is lost again: what left at 101 ms arrives first.
        assert_eq!(it.ack(151.0, 0, &[(1, 11)]).first(), Some(&0));
        assert_eq!(it.sender.counters.timeouts, 0);
        let by_count = Tcp { rack: false, tlp: false, ..Tcp::LINUX };
        let mut it = Script::new(by_count, None);
        it.ack(100.0, 0, &[(1, 4)]);
        it.ack(101.0, 0, &[(1, 10)]);
        assert!(!it.ack(151.0, 0, &[(1, 11)]).contains(&0), "RFC 6675 waits for the timeout");
    }
}
