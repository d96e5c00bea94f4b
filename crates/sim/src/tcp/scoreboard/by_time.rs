//! The scoreboard with RACK instead of DupThresh (RFC 8985), with probes and undone losses.

use std::cmp::Reverse;

use forebay_core::units::Timestamp;

use super::super::rack::{Conditions, Rack};
use super::{LOST, PROBED, Progress, RESENT, RING_MIN, SACKED, Scoreboard, Sent};

impl Scoreboard {
    /// State before the first segment; losses are detected from send times (RFC 8985).
    pub fn with_rack() -> Self {
        Self { rack: Some(Box::new(Rack::new(RING_MIN))), ..Self::new(false) }
    }

    /// Whether losses are detected from send times.
    pub fn has_rack(&self) -> bool {
        self.rack.is_some()
    }

    /// Whether a segment is considered lost, sent again since or not.
    pub fn has_lost(&self) -> bool {
        self.lost > self.probed
    }

    /// Segments SACKed.
    pub fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Segments sent again and not delivered.
    pub fn resent(&self) -> u32 {
        self.resent
    }

    /// When the first segment not acknowledged was last sent.
    pub fn head_sent_at(&self) -> Timestamp {
        self.sent[(self.una & self.mask) as usize].at
    }

    /// Sends the last segment again, not as lost, while no segment is SACKed. Returns its number.
    pub fn send_probe(&mut self, sent: Sent) -> u32 {
        let number = self.next - 1;
        let flag = self.flag(number);
        self.send_again(number, sent);
        if flag & LOST == 0 {
            *self.flag_mut(number) |= PROBED;
            self.probed += 1;
        }
        number
    }

    /// RACK's part before [`Scoreboard::acknowledge`] at `now`; no effect without RACK.
    pub fn begin_ack(&mut self, now: Timestamp, min_rtt_ns: u64) {
        if let Some(rack) = &mut self.rack {
            rack.begin(now, min_rtt_ns);
        }
    }

    /// RACK's part after it. `has_dsack`: a D-SACK that counts arrived. Sets `conditions.sacked`.
    pub fn finish_ack(&mut self, has_dsack: bool, conditions: Conditions) {
        let round = has_dsack.then_some(self.next);
        let conditions = Conditions { sacked: self.sacked, ..conditions };
        if let Some(rack) = &mut self.rack {
            rack.finish(self.una, round, conditions);
        }
    }

    /// RACK: marks segments overdue at `now` as lost; returns when to check again.
    pub fn lose_overdue(&mut self, now: Timestamp, progress: &mut Progress) -> Option<Timestamp> {
        while let Some(number) = self.rack.as_ref().and_then(|rack| rack.overdue(now)) {
            self.lose(number);
            self.note_lost(number, progress);
        }
        self.rack.as_ref().and_then(|rack| rack.deadline())
    }

    /// RACK: a recovery has ended.
    pub fn on_recovery_end(&mut self) {
        if let Some(rack) = &mut self.rack {
            rack.on_recovery_end();
        }
    }

    /// Handles a timeout with RACK: only the head and overdue segments are lost (RFC 8985 section 6.3).
    pub fn lose_timed_out(&mut self, now: Timestamp) {
        while let Some(number) = self.rack.as_ref().and_then(|rack| rack.timed_out(now)) {
            self.lose(number);
        }
        if self.una < self.next && is_listed(self.flag(self.una)) {
            self.lose(self.una);
        }
    }

    /// Marks `number`, which is in flight, as lost.
    fn lose(&mut self, number: u32) {
        let old = self.flag(number);
        *self.flag_mut(number) = (old & !(RESENT | PROBED)) | LOST;
        self.lost += u32::from(old & LOST == 0);
        self.resent -= u32::from(old & RESENT != 0);
        self.probed -= u32::from(old & PROBED != 0);
        if let Some(rack) = &mut self.rack {
            rack.remove(number);
        }
        if number < self.cursor {
            self.behind.push(Reverse(number));
        }
    }

    /// Undoes all losses: segments that are not SACKed are in flight, once (Linux, tcp_undo_cwnd_reduction).
    pub fn take_losses_back(&mut self) {
        let mut sent = Vec::new();
        for number in self.una..self.next {
            let flag = self.flag_mut(number);
            *flag &= !(LOST | RESENT | PROBED);
            if *flag & SACKED == 0 {
                sent.push((self.sent[(number & self.mask) as usize].at, number));
            }
        }
        (self.lost, self.resent, self.probed) = (0, 0, 0);
        (self.frontier, self.cursor) = (self.una, self.una);
        self.behind.clear();
        if let Some(rack) = &mut self.rack {
            rack.relist(sent);
        }
    }
}

/// Whether a segment with these flags is in RACK's list: it is thought to be in the network.
pub(super) fn is_listed(flag: u8) -> bool {
    flag & SACKED == 0 && flag & (LOST | RESENT) != LOST
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Range;

    /// Nanoseconds per millisecond.
    const MS: u64 = 1_000_000;
    /// Least round trip in ns.
    const MIN_RTT: u64 = 40 * MS;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * MS)
    }

    fn sent(ms: u64) -> Sent {
        Sent { at: at(ms), ..Sent::default() }
    }

    /// Segments a millisecond apart from 0 ms on.
    fn board(segments: u64) -> Scoreboard {
        let mut board = Scoreboard::with_rack();
        for ms in 0..segments {
            board.send_new(sent(ms));
        }
        board
    }

    /// Takes an acknowledgement in a recovery; returns the segments to send again.
    fn ack(board: &mut Scoreboard, ms: u64, number: u32, blocks: &[(u32, u32)]) -> Vec<u32> {
        let blocks: Vec<Range> =
            blocks.iter().map(|(start, end)| Range { start: *start, end: *end }).collect();
        board.begin_ack(at(ms), MIN_RTT);
        board.acknowledge(number, &blocks);
        let (is_recovering, min_rtt_ns, srtt_ns) = (true, MIN_RTT, MIN_RTT);
        let conditions = Conditions { is_recovering, sacked: 0, min_rtt_ns, srtt_ns };
        board.finish_ack(false, conditions);
        board.lose_overdue(at(ms), &mut Progress::default());
        resend(board, ms)
    }

    fn resend(board: &mut Scoreboard, ms: u64) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let Some(number) = board.next_lost() {
            board.send_again(number, sent(ms));
            numbers.push(number);
        }
        check(board);
        numbers
    }

    fn check(board: &Scoreboard) {
        let count = |wanted: u8| {
            let numbers = board.una..board.next;
            numbers.filter(|number| board.flag(*number) & wanted != 0).count() as u32
        };
        let counted = [count(SACKED), count(LOST), count(RESENT), count(PROBED)];
        assert_eq!(counted, [board.sacked, board.lost, board.resent, board.probed]);
        assert!(board.in_flight() <= board.outstanding());
    }

    #[test]
    fn retransmission_is_lost_once_a_later_one_arrives() {
        let mut board = board(10);
        assert_eq!(ack(&mut board, 50, 0, &[(3, 10)]), [0, 1, 2]);
        // The first repair is lost too, the second arrives.
        assert_eq!(ack(&mut board, 100, 0, &[(1, 2), (3, 10)]), [0]);
        assert_eq!(ack(&mut board, 101, 0, &[(1, 10)]), [0; 0]);
        // Another time.
        board.send_new(sent(110));
        assert_eq!(ack(&mut board, 160, 0, &[(1, 11)]), [0]);
        assert_eq!(ack(&mut board, 210, 11, &[]), [0; 0]);
        assert_eq!((board.in_flight(), board.outstanding()), (0, 0));
    }

    #[test]
    fn probe_changes_no_counts_until_lost() {
        let mut board = board(4);
        assert_eq!(board.send_probe(sent(100)), 3);
        assert!(!board.has_lost() && board.in_flight() == 4 && board.next_lost().is_none());
        check(&board);
        assert_eq!(ack(&mut board, 150, 0, &[(3, 4)]), [0, 1, 2]);
        let mut board = self::board(4);
        board.send_probe(sent(100));
        board.send_new(sent(120));
        assert_eq!(ack(&mut board, 170, 3, &[(4, 5)]), [3]);
        assert!(board.has_lost());
    }

    #[test]
    fn undone_losses_return_to_flight() {
        let mut board = board(10);
        assert_eq!(ack(&mut board, 50, 0, &[(5, 6)]), [0, 1, 2, 3, 4]);
        board.take_losses_back();
        check(&board);
        assert_eq!((board.in_flight(), board.has_lost()), (9, false));
        assert_eq!(ack(&mut board, 60, 5, &[(5, 6), (8, 9)]), [6, 7]);
    }

    #[test]
    fn timeout_resends_head_and_overdue_segments() {
        let mut board = board(10);
        ack(&mut board, 41, 1, &[]);
        board.lose_timed_out(at(45));
        assert_eq!(resend(&mut board, 45), [1, 2, 3, 4]);
        assert_eq!(board.in_flight(), 9);
        // The retransmissions are young, but the next timeout takes the head again.
        board.lose_timed_out(at(46));
        assert_eq!(resend(&mut board, 46), [1, 5]);
    }

    #[test]
    fn the_list_follows_a_ring_that_grows() {
        let mut board = board(100);
        assert_eq!(ack(&mut board, 150, 0, &[(90, 91)]), (0..90).collect::<Vec<_>>());
        // Segments that left between the losses and their repair are older than the repair: lost as well.
        assert_eq!(ack(&mut board, 200, 91, &[]), (91..100).collect::<Vec<_>>());
        assert_eq!(board.in_flight(), 9);
    }
}
