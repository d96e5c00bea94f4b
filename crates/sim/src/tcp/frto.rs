//! F-RTO: detects spurious timeouts from the acknowledgements after them (RFC 5682).
//!
//! ```text
//! timeout      the first segment again                                               (3.1, step 1)
//! ACK of it    not everything: new segments instead of the next retransmission       (3.1, step 2b)
//! then         something never sent again is acknowledged or SACKed: spurious        (3.1, step 3b)
//!              a new segment is SACKed above the hole: the loss was real             (3.1, step 3a)
//! ```
//! This is the SACK-enhanced variant, as in Linux (tcp_process_loss). Step 3b may apply at once, and
//! [`super::undo`] answers a spurious timeout. The variant needs neither timestamps nor D-SACK.

use super::recovery::Phase;
use super::scoreboard::Progress;

/// Whether a timeout is in doubt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Frto {
    is_in_doubt: bool,
    /// Something was acknowledged since the last timeout.
    has_advanced: bool,
}

/// Conclusion from an acknowledgement about the timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// No conclusion, or the timeout was right.
    None,
    /// New segments must be sent before any retransmission.
    TryNew,
    /// The timeout was spurious.
    Spurious,
}

impl Frto {
    /// A timeout in `phase`.
    pub fn on_timeout(&mut self, phase: Phase) {
        let is_repeated = phase == Phase::Loss && !self.has_advanced;
        self.is_in_doubt = matches!(phase, Phase::Open | Phase::Disorder) || is_repeated;
        self.has_advanced = false;
    }

    /// Takes an acknowledgement after a timeout, with SND.UNA at `una` and SND.NXT at `next`; segments below
    /// `point` were sent before the timeout.
    pub fn on_ack(
        &mut self,
        progress: &Progress,
        has_advanced: bool,
        (una, next, point): (u32, u32, u32),
    ) -> Finding {
        self.has_advanced |= has_advanced;
        if !self.is_in_doubt {
            return Finding::None;
        }
        if progress.lowest_original.is_some_and(|number| number < point) {
            self.is_in_doubt = false;
            return Finding::Spurious;
        }
        if next > point {
            let is_duplicate = progress.sacked > 0 || !has_advanced;
            self.is_in_doubt &= !is_duplicate;
            return Finding::None;
        }
        if has_advanced && una < point { Finding::TryNew } else { Finding::None }
    }

    /// There is no new segment to send: the timeout counts as right.
    pub fn give_up(&mut self) {
        self.is_in_doubt = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(sacked: u32, lowest_original: Option<u32>) -> Progress {
        Progress { sacked, lowest_original, ..Progress::default() }
    }

    fn in_doubt() -> Frto {
        let mut frto = Frto::default();
        frto.on_timeout(Phase::Open);
        frto
    }

    #[test]
    fn acks_of_originals_reveal_spurious_timeout() {
        let mut frto = in_doubt();
        assert_eq!(frto.on_ack(&progress(0, None), true, (1, 10, 10)), Finding::TryNew);
        assert_eq!(frto.on_ack(&progress(0, Some(1)), true, (2, 12, 10)), Finding::Spurious);
    }

    #[test]
    fn new_segment_above_hole_confirms_loss() {
        let mut frto = in_doubt();
        assert_eq!(frto.on_ack(&progress(0, None), true, (1, 10, 10)), Finding::TryNew);
        assert_eq!(frto.on_ack(&progress(1, Some(10)), false, (1, 12, 10)), Finding::None);
        assert_eq!(frto.on_ack(&progress(0, Some(1)), true, (2, 12, 10)), Finding::None);
    }

    #[test]
    fn an_acknowledgement_of_everything_leaves_nothing_in_doubt() {
        assert_eq!(in_doubt().on_ack(&progress(0, None), true, (10, 10, 10)), Finding::None);
    }

    #[test]
    fn frto_skips_timeout_in_recovery_but_tests_repeats() {
        let mut frto = in_doubt();
        frto.on_timeout(Phase::Recovery);
        assert_eq!(frto.on_ack(&progress(0, Some(1)), true, (2, 10, 10)), Finding::None);
        frto.on_timeout(Phase::Loss);
        assert_eq!(frto.on_ack(&progress(0, None), true, (3, 10, 10)), Finding::None);
        frto.on_timeout(Phase::Loss);
        frto.on_timeout(Phase::Loss);
        assert_eq!(frto.on_ack(&progress(0, None), true, (4, 10, 10)), Finding::TryNew);
    }
}
