//! Records of the kernel and decisions as rows of a recording ([`super::recording`]).

use forebay_core::cc::interim::{self, SlowStart};
use forebay_core::units::Rate;
use forebay_ebpf::tcp::{Decision, Report};
use serde::{Deserialize, Serialize};

/// A [`Report`] of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportRow {
    /// Number of the connection, unique within the recording.
    pub flow: u64,
    /// The report itself.
    #[serde(flatten)]
    pub report: Report,
}

/// A [`Decision`] as it is passed to the kernel, with the kernel's units: segments, 1/1024 and
/// microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct DecisionRow {
    pub flow: u64,
    /// Number of the record that the decision answers.
    pub seq: u32,
    pub cwnd: Option<u32>,
    pub ssthresh: Option<u32>,
    pub pacing_bps: Option<u64>,
    pub growth: u32,
    pub cap: u32,
    pub slow_start: u8,
    pub beta: u16,
    pub trip_rtt_us: u32,
    pub trip_lost: u16,
    pub trip_ce: u16,
}

impl DecisionRow {
    /// Makes the row of `decision` for the connection with this number, in answer to record `seq`.
    pub fn of(flow: u64, seq: u32, decision: &Decision) -> Self {
        let interim::Terms { growth, cap, slow_start, beta, trip_rtt_us, trip_lost, trip_ce } =
            decision.terms;
        Self {
            flow,
            seq,
            cwnd: decision.cwnd,
            ssthresh: decision.ssthresh,
            pacing_bps: decision.pacing_rate.map(Rate::as_bits_per_sec),
            growth,
            cap,
            slow_start: match slow_start {
                SlowStart::Hold => 0,
                SlowStart::Standard => 1,
                SlowStart::HyStart => 2,
                SlowStart::HyStartPlusPlus => 3,
            },
            beta,
            trip_rtt_us,
            trip_lost,
            trip_ce,
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::units::Timestamp;
    use forebay_ebpf::tcp::{CaState, Events, Head, Mode};

    use super::*;
    use crate::agent::recording::RecordingRow;

    #[test]
    fn arbitrary_records_survive_a_round_trip() {
        let head = Head {
            seq: u32::MAX,
            at: Timestamp::MAX,
            events: Events::from_bits(u16::MAX),
            ca_state: CaState::Recovery,
            mode: Mode::Fallback,
            bytes_acked: u64::MAX,
            ssthresh: Some(u32::MAX),
            min_rtt_us: None,
            ..Head::default()
        };
        let report = Report { head, rtt_us: Some(0), app_limited: true, ..Report::default() };
        let row = RecordingRow::Report(ReportRow { flow: 7, report });
        let text = serde_json::to_string(&row).unwrap();
        assert!(text.contains("\"ca_state\":3,\"mode\":2,"), "{text}");
        assert_eq!(serde_json::from_str::<RecordingRow>(&text).unwrap(), row);
        let nonsense = text.replace("\"ca_state\":3", "\"ca_state\":9");
        let error = serde_json::from_str::<RecordingRow>(&nonsense).unwrap_err().to_string();
        assert!(error.contains("ca_state = 9: allowed is 0 to 4"), "{error}");
    }
}
