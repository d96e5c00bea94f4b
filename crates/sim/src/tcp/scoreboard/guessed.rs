//! A scoreboard without SACK. Each duplicate means that one more segment above the head has arrived; which
//! one is a guess (ns-3, TcpTxBuffer::AddRenoSack). Only heads are found lost.

use super::{LOST, Progress, RESENT, SACKED, Scoreboard};
use crate::packet::Range;

impl Scoreboard {
    /// State before the first segment; arrivals are guessed.
    pub fn with_guesses() -> Self {
        Self { is_guessed: true, ..Self::new(true) }
    }

    /// Whether SACKed states are guesses from duplicates.
    pub fn is_guessed(&self) -> bool {
        self.is_guessed
    }

    /// Takes a duplicate: the lowest segment above the head without an arrival now counts as arrived.
    pub fn guess_arrival(&mut self) {
        let number = self.first_unsacked(self.una + 1, self.next);
        if number < self.next {
            // The delivery is counted only when SND.UNA passes the segment.
            self.sack(Range { start: number, end: number + 1 }, &mut Progress::default());
        }
    }

    /// SND.UNA has moved. The head has not arrived, so a guess on it was for another segment.
    pub fn correct_head(&mut self) {
        if self.una == self.next || self.flag(self.una) & SACKED == 0 {
            return;
        }
        *self.flag_mut(self.una) &= !SACKED;
        self.sacked -= 1;
        self.unlost_resent -= u32::from(self.flag(self.una) & RESENT != 0);
        self.guess_arrival();
        self.lose_head(&mut Progress::default());
    }

    /// Marks the head as lost, together with its retransmission; a new loss is added to `progress`.
    pub fn lose_head(&mut self, progress: &mut Progress) {
        if self.una == self.next {
            return;
        }
        let flag = self.flag(self.una);
        if flag & LOST == 0 {
            self.lost += 1;
            self.note_lost(self.una, progress);
        }
        self.resent -= u32::from(flag & RESENT != 0);
        *self.flag_mut(self.una) = (flag & !RESENT) | LOST;
        self.cursor = self.una;
    }

    /// Handles a timeout: drops all guesses.
    pub fn forget_guesses(&mut self) {
        for number in self.una..self.next {
            *self.flag_mut(number) &= !SACKED;
        }
        (self.sacked, self.unlost_resent) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::scoreboard::Sent;

    fn board(segments: u32) -> Scoreboard {
        let mut board = Scoreboard::with_guesses();
        (0..segments).for_each(|_| _ = board.send_new(Sent::default()));
        board
    }

    #[test]
    fn duplicates_count_as_segments_above_head() {
        let mut board = board(10);
        (0..3).for_each(|_| board.guess_arrival());
        assert_eq!((board.sacked, board.in_flight()), (3, 7));
        board.lose_head(&mut Progress::default());
        board.send_again(0, Sent::default());
        assert_eq!(board.in_flight(), 7);
        // The repair and 1 arrive. 2 and 3 were guessed, and 2 cannot have arrived.
        let progress = board.acknowledge(2, &[]);
        board.correct_head();
        assert_eq!((progress.delivered, board.sacked, board.is_head_lost()), (2, 2, true));
        assert_eq!((board.next_lost(), board.in_flight()), (Some(2), 8 - 2 - 1));
    }

    #[test]
    fn guesses_end_with_acks_or_timeout() {
        let mut board = board(10);
        (0..4).for_each(|_| board.guess_arrival());
        assert_eq!(board.acknowledge(0, &[]).delivered, 0);
        board.forget_guesses();
        board.mark_all_lost();
        assert_eq!((board.sacked, board.in_flight(), board.next_lost()), (0, 0, Some(0)));
        assert_eq!(board.acknowledge(10, &[]).delivered, 10);
    }
}
