//! Tail loss probe: detects a loss at the end of a flight without a timeout (RFC 8985 section 7).
//!
//! ```text
//! PTO      2 SRTT + 2 ms; with one segment out 2 SRTT + 200 ms, for a delayed ACK; at most the RTO  (7.2)
//! probe    a new segment, whatever the window says, else the last one again                       (7.3)
//! answer   past a probe that was a repetition: it repaired a loss, which counts as one            (7.4)
//!          a D-SACK or a bare duplicate of it: the original had arrived
//! ```
//! As in Linux (tcp_schedule_loss_probe, tcp_process_tlp_ack): the 2 ms are TCP_TIMEOUT_MIN, two ticks of 1
//! kHz; probes are planned only while nothing is SACKED or lost.

use super::scoreboard::Progress;

/// Longest delay of an acknowledgement at a receiver (TLP.max_ack_delay; Linux: TCP_RTO_MIN).
const MAX_ACK_DELAY_NS: u64 = 200_000_000;
/// Least time of a timer (TCP_TIMEOUT_MIN at 1 kHz).
pub(crate) const TIMEOUT_MIN_NS: u64 = 2_000_000;

/// Time from an acknowledgement or a transmission to the probe, with `outstanding` segments.
pub(crate) fn probe_timeout_ns(srtt_ns: u64, outstanding: u32) -> u64 {
    2 * srtt_ns + if outstanding == 1 { MAX_ACK_DELAY_NS } else { TIMEOUT_MIN_NS }
}

/// A probe that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// SND.NXT after the probe.
    pub end: u32,
    /// The probe repeated an old segment.
    pub is_repetition: bool,
}

/// Conclusion from an acknowledgement about a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No conclusion yet.
    Open,
    /// Nothing was lost, or a recovery will decide.
    Harmless,
    /// The probe repaired a loss.
    Repaired,
}

impl Probe {
    /// Takes an acknowledgement up to `una`; `is_duplicated`: with a D-SACK for the probe;
    /// `has_advanced`: SND.UNA moved.
    pub fn on_ack(
        self,
        una: u32,
        progress: &Progress,
        is_duplicated: bool,
        has_advanced: bool,
    ) -> Verdict {
        let is_bare = !has_advanced && progress.sacked == 0;
        match una {
            una if una < self.end => Verdict::Open,
            _ if !self.is_repetition || is_duplicated => Verdict::Harmless,
            una if una > self.end => Verdict::Repaired,
            _ if is_bare => Verdict::Harmless,
            _ => Verdict::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nanoseconds per millisecond.
    const MS: u64 = 1_000_000;

    #[test]
    fn probe_timeout_allows_for_delayed_ack() {
        assert_eq!(probe_timeout_ns(50 * MS, 2), 102 * MS);
        assert_eq!(probe_timeout_ns(50 * MS, 1), 300 * MS);
    }

    #[test]
    fn ack_beyond_probe_without_dsack_means_loss() {
        let probe = Probe { end: 10, is_repetition: true };
        let nothing = Progress::default();
        let sacked = Progress { sacked: 1, ..Progress::default() };
        assert_eq!(probe.on_ack(9, &nothing, false, true), Verdict::Open);
        assert_eq!(probe.on_ack(10, &nothing, false, true), Verdict::Open);
        assert_eq!(probe.on_ack(10, &sacked, false, false), Verdict::Open);
        assert_eq!(probe.on_ack(10, &nothing, false, false), Verdict::Harmless);
        assert_eq!(probe.on_ack(10, &nothing, true, false), Verdict::Harmless);
        assert_eq!(probe.on_ack(11, &nothing, false, true), Verdict::Repaired);
        let probe = Probe { is_repetition: false, ..probe };
        assert_eq!(probe.on_ack(10, &nothing, false, true), Verdict::Harmless);
    }
}
