//! Unnecessary reductions of the window: when they are detected, they are undone.
//!
//! ```text
//! Eifel     something new is acknowledged by a timestamp older than the first
//!           retransmission: the original arrived                                     (RFC 3522, 3.2)
//! D-SACK    every retransmission since the reduction is reported as a duplicate      (RFC 3708, 2)
//! answer    the algorithm restores its window and ssthresh, nothing is lost          (RFC 4015, 3.2)
//! ```
//! As in Linux (tcp_may_undo), the whole reduction is undone; RFC 4015 would restart from the bytes in
//! flight. F-RTO is the third way, in [`super::frto`].

use forebay_core::units::Timestamp;

/// A tick of Linux's timestamps.
const TICK_NS: u64 = 1_000_000;

/// Retransmissions since the last reduction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Undo {
    is_armed: bool,
    /// SND.UNA at the reduction.
    una: u32,
    /// When the first retransmission left.
    first_resent: Option<Timestamp>,
    /// Retransmissions that were not reported as duplicates.
    unreported: u32,
}

impl Undo {
    /// A reduction of the window, with SND.UNA at `una`.
    pub fn arm(&mut self, una: u32) {
        *self = Self { is_armed: true, una, ..Self::default() };
    }

    /// The reduction was undone, or must not be.
    pub fn disarm(&mut self) {
        self.is_armed = false;
    }

    /// A segment was sent again.
    pub fn on_resend(&mut self, now: Timestamp) {
        self.first_resent.get_or_insert(now);
        self.unreported += 1;
    }

    /// The segment before `end` was reported as a duplicate.
    pub fn on_duplicate(&mut self, end: u32) {
        if end > self.una {
            self.unreported = self.unreported.saturating_sub(1);
        }
    }

    /// All retransmissions were duplicates.
    pub fn is_refuted_by_duplicates(&self) -> bool {
        self.is_armed && self.first_resent.is_some() && self.unreported == 0
    }

    /// An acknowledgement that moves SND.UNA echoes `echo`, which is older than the first retransmission.
    pub fn is_refuted_by(&self, echo: Timestamp) -> bool {
        let tick = |at: Timestamp| at.as_nanos() / TICK_NS;
        self.is_armed && self.first_resent.is_some_and(|first| tick(echo) < tick(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * TICK_NS)
    }

    #[test]
    fn echo_older_than_retransmission_refutes_it() {
        let mut undo = Undo::default();
        undo.arm(5);
        assert!(!undo.is_refuted_by(at(0)), "nothing was sent again");
        undo.on_resend(at(100));
        undo.on_resend(at(120));
        assert!(undo.is_refuted_by(at(99)) && !undo.is_refuted_by(at(100)));
        undo.disarm();
        assert!(!undo.is_refuted_by(at(99)));
    }

    #[test]
    fn duplicates_refute_it_when_all_are_reported() {
        let mut undo = Undo::default();
        undo.arm(5);
        undo.on_resend(at(100));
        undo.on_resend(at(100));
        undo.on_duplicate(6);
        undo.on_duplicate(3); // of an earlier episode
        assert!(!undo.is_refuted_by_duplicates());
        undo.on_duplicate(7);
        assert!(undo.is_refuted_by_duplicates());
    }
}
