//! When a loss recovery begins and ends.
//!
//! ```text
//!            new SACK                     3 SACKed, or the head lost
//!   Open ─────────────────► Disorder ─────────────────────────────────► Recovery
//!    ▲ ◄──── SND.UNA moves ────┘                                          │
//!    └──────── SND.UNA reaches RecoveryPoint ──────── Loss ◄── timeout ───┘
//! ```
//! Source: RFC 6675 section 5. A duplicate acknowledgement is one that SACKs something new (its section 2).
//! RecoveryPoint is SND.NXT at the entry, also after a timeout, and no recovery begins before it is reached
//! (section 5.1).
//!
//! If RACK detects losses (RFC 8985), the first one begins a recovery, and duplicates are not counted.
//!
//! Limited transmit (RFC 3042) needs no switch: a SACKed segment leaves the pipe, so in Disorder each
//! duplicate sends one new segment without a change of the window (RFC 6675 section 5, step 3).

use forebay_core::units::Timestamp;

use super::rack::DUP_THRESH;
use super::scoreboard::Scoreboard;
use crate::event::nanos_between;

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing is missing.
    Open,
    /// Something was SACKed above a hole.
    Disorder,
    /// Lost segments are being repaired.
    Recovery,
    /// Everything is sent again after a timeout.
    Loss,
}

/// Change of phase by an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// No change.
    None,
    /// A recovery begins.
    Enter,
    /// SND.UNA moved within a recovery.
    Partial {
        /// The first such move.
        is_first: bool,
    },
    /// All losses of the episode are repaired.
    End,
}

/// The phases, and statistics of past episodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    phase: Phase,
    point: u32,
    duplicates: usize,
    is_first_partial: bool,
    looks_above_head: bool,
    since: Timestamp,
    /// Episodes that have ended.
    pub episodes: u64,
    /// Their total length (ns).
    pub episodes_ns: u64,
}

impl Recovery {
    /// State without losses. `looks_above_head`: [`super::stack::Tcp::entry_looks_above_head`].
    pub fn new(looks_above_head: bool) -> Self {
        Self {
            phase: Phase::Open,
            point: 0,
            duplicates: 0,
            is_first_partial: true,
            looks_above_head,
            since: Timestamp::ZERO,
            episodes: 0,
            episodes_ns: 0,
        }
    }

    /// The state.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Takes an acknowledgement that `board` has taken. `is_duplicate`: it SACKed something new;
    /// `has_advanced`: SND.UNA moved.
    pub fn on_ack(
        &mut self,
        now: Timestamp,
        board: &Scoreboard,
        is_duplicate: bool,
        has_advanced: bool,
    ) -> Turn {
        match self.phase {
            Phase::Open | Phase::Disorder if board.has_rack() => self.on_losses(now, board),
            Phase::Open if !is_duplicate => Turn::None,
            Phase::Open | Phase::Disorder => {
                self.count_duplicates(is_duplicate, has_advanced);
                if self.duplicates >= DUP_THRESH || self.is_loss_evident(board) {
                    self.enter(now, Phase::Recovery, board);
                    return Turn::Enter;
                }
                let is_repaired = has_advanced && !is_duplicate;
                self.phase = if is_repaired { Phase::Open } else { Phase::Disorder };
                Turn::None
            }
            Phase::Recovery | Phase::Loss if board.una() >= self.point => {
                self.end(now);
                Turn::End
            }
            Phase::Recovery if has_advanced => {
                Turn::Partial { is_first: std::mem::take(&mut self.is_first_partial) }
            }
            Phase::Recovery | Phase::Loss => Turn::None,
        }
    }

    /// With RACK: any loss begins a recovery, unless one is under way.
    pub fn on_losses(&mut self, now: Timestamp, board: &Scoreboard) -> Turn {
        if matches!(self.phase, Phase::Recovery | Phase::Loss) {
            return Turn::None;
        }
        if board.has_lost() {
            self.enter(now, Phase::Recovery, board);
            return Turn::Enter;
        }
        self.phase = if board.sacked() > 0 { Phase::Disorder } else { Phase::Open };
        Turn::None
    }

    /// End of the episode: all segments sent before the timeout lie below it, and those sent until a check
    /// for a spurious timeout.
    pub fn point(&self) -> u32 {
        self.point
    }

    /// New segments follow that show whether the timeout was spurious (RFC 5682).
    pub fn raise_point(&mut self, board: &Scoreboard) {
        self.point = board.next();
    }

    /// The episode was unnecessary and ends.
    pub fn take_back(&mut self, now: Timestamp, board: &Scoreboard) {
        if matches!(self.phase, Phase::Recovery | Phase::Loss) {
            self.end(now);
        }
        self.phase = if board.sacked() > 0 { Phase::Disorder } else { Phase::Open };
    }

    fn end(&mut self, now: Timestamp) {
        self.phase = Phase::Open;
        self.duplicates = 0;
        self.episodes += 1;
        self.episodes_ns += nanos_between(self.since, now);
    }

    fn is_loss_evident(&self, board: &Scoreboard) -> bool {
        if self.looks_above_head { board.is_lost_above_head() } else { board.is_head_lost() }
    }

    fn count_duplicates(&mut self, is_duplicate: bool, has_advanced: bool) {
        if is_duplicate {
            self.duplicates += 1;
        } else if has_advanced {
            self.duplicates = 0;
        }
    }

    /// Takes a timeout.
    pub fn on_timeout(&mut self, now: Timestamp, board: &Scoreboard) {
        self.enter(now, Phase::Loss, board);
    }

    fn enter(&mut self, now: Timestamp, phase: Phase, board: &Scoreboard) {
        if matches!(self.phase, Phase::Open | Phase::Disorder) {
            self.since = now;
        }
        self.phase = phase;
        self.point = board.next();
        self.duplicates = 0;
        self.is_first_partial = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Range;
    use crate::tcp::scoreboard::Sent;

    struct Connection {
        board: Scoreboard,
        recovery: Recovery,
        now_ns: u64,
    }

    impl Connection {
        fn new(segments: u32) -> Self {
            let mut board = Scoreboard::new(false);
            (0..segments).for_each(|_| {
                board.send_new(Sent::default());
            });
            Self { board, recovery: Recovery::new(false), now_ns: 0 }
        }

        fn ack(&mut self, number: u32, blocks: &[(u32, u32)]) -> Turn {
            self.now_ns += 10;
            let blocks: Vec<Range> =
                blocks.iter().map(|(start, end)| Range { start: *start, end: *end }).collect();
            let before = self.board.una();
            let progress = self.board.acknowledge(number, &blocks);
            let has_advanced = self.board.una() > before;
            let now = Timestamp::from_nanos(self.now_ns);
            self.recovery.on_ack(now, &self.board, progress.sacked > 0, has_advanced)
        }
    }

    #[test]
    fn third_duplicate_starts_recovery_until_recovery_point() {
        let mut it = Connection::new(10);
        assert_eq!([it.ack(1, &[]), it.ack(1, &[(2, 3)]), it.ack(1, &[(2, 4)])], [Turn::None; 3]);
        assert_eq!(it.recovery.phase(), Phase::Disorder);
        assert_eq!(it.ack(1, &[(2, 5)]), Turn::Enter);
        assert_eq!(it.ack(1, &[(2, 5), (6, 10)]), Turn::None);
        assert_eq!(it.ack(5, &[(6, 10)]), Turn::Partial { is_first: true });
        assert_eq!(it.ack(10, &[]), Turn::End);
        assert_eq!((it.recovery.episodes, it.recovery.episodes_ns), (1, 30));
    }

    #[test]
    fn one_ack_with_three_sacked_segments_suffices() {
        let mut it = Connection::new(10);
        assert_eq!(it.ack(0, &[(1, 4)]), Turn::Enter);
    }

    #[test]
    fn reordering_of_two_segments_passes() {
        let mut it = Connection::new(10);
        assert_eq!([it.ack(0, &[(1, 2)]), it.ack(0, &[(1, 3)]), it.ack(3, &[])], [Turn::None; 3]);
        assert_eq!(it.recovery.phase(), Phase::Open);
    }

    #[test]
    fn a_repeated_block_is_no_duplicate() {
        let mut it = Connection::new(10);
        for _ in 0..5 {
            assert_eq!(it.ack(0, &[(1, 2)]), Turn::None);
        }
    }

    #[test]
    fn no_recovery_before_recovery_point_after_timeout() {
        let mut it = Connection::new(10);
        it.board.mark_all_lost();
        it.recovery.on_timeout(Timestamp::from_nanos(5), &it.board);
        assert_eq!([it.ack(1, &[(2, 6)]), it.ack(6, &[(7, 10)])], [Turn::None; 2]);
        assert_eq!(it.recovery.phase(), Phase::Loss);
        assert_eq!(it.ack(10, &[]), Turn::End);
    }
}
