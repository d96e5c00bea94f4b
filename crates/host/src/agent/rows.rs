//! Records of the kernel and decisions as rows of a recording ([`super::recording`]).

use forebay_core::cc::law::{self, SlowStart};
use forebay_core::units::{Rate, Timestamp};
use forebay_ebpf::tcp::{CaState, Decision, Events, FlowId, Head, Mode, Report};
use serde::{Deserialize, Serialize};

/// The fields of a [`Head`]; `Option` and enums as there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct HeadRow {
    pub seq: u32,
    pub at_ns: u64,
    pub events: u16,
    pub ca_state: u8,
    pub mode: u8,
    pub bytes_acked: u64,
    pub delivered: u32,
    pub delivered_ce: u32,
    pub lost: u32,
    pub retransmitted: u32,
    pub in_flight: u32,
    pub cwnd: u32,
    pub ssthresh: Option<u32>,
    pub mss: u32,
    pub srtt_us: u32,
    pub min_rtt_us: Option<u32>,
}

/// The fields of a [`Report`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ReportRow {
    pub flow: u64,
    #[serde(flatten)]
    pub head: HeadRow,
    pub pacing_bps: u64,
    pub rtt_us: Option<u32>,
    pub rtt_min_us: Option<u32>,
    pub window_us: u32,
    pub acks: u32,
    pub rate_delivered: u32,
    pub rate_interval_us: u32,
    pub send_interval_us: u32,
    pub prior_delivered: u32,
    pub snd_wnd: u32,
    pub packets_out: u32,
    pub app_limited: bool,
    pub cwnd_limited: bool,
    pub idle_timeouts: u8,
    pub underused: Option<u32>,
}

/// A [`Decision`] as the kernel is given it; segments, 1/1024 and microseconds as there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct DecisionRow {
    pub flow: u64,
    /// Number of the record that it answers.
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

/// By their numbers in a recording.
const CA_STATES: [CaState; 5] =
    [CaState::Open, CaState::Disorder, CaState::Cwr, CaState::Recovery, CaState::Loss];
/// By their numbers in a recording.
const MODES: [Mode; 3] = [Mode::Start, Mode::Agent, Mode::Fallback];

fn number<T: PartialEq>(all: &[T], one: T) -> u8 {
    all.iter().position(|it| *it == one).map_or(u8::MAX, |at| at as u8)
}

impl HeadRow {
    /// What of `head` is recorded: all but which slot of the kernel it was.
    pub fn of(head: &Head) -> Self {
        Self {
            seq: head.seq,
            at_ns: head.at.as_nanos(),
            events: head.events.bits(),
            ca_state: number(&CA_STATES, head.ca_state),
            mode: number(&MODES, head.mode),
            bytes_acked: head.bytes_acked,
            delivered: head.delivered,
            delivered_ce: head.delivered_ce,
            lost: head.lost,
            retransmitted: head.retransmitted,
            in_flight: head.in_flight,
            cwnd: head.cwnd,
            ssthresh: head.ssthresh,
            mss: head.mss,
            srtt_us: head.srtt_us,
            min_rtt_us: head.min_rtt_us,
        }
    }

    /// The record again; `None` where a number stands for nothing.
    pub fn head(&self) -> Option<Head> {
        Some(Head {
            flow: FlowId { slot: 0, generation: 1 },
            seq: self.seq,
            at: Timestamp::from_nanos(self.at_ns),
            events: Events::from_bits(self.events),
            ca_state: *CA_STATES.get(usize::from(self.ca_state))?,
            mode: *MODES.get(usize::from(self.mode))?,
            bytes_acked: self.bytes_acked,
            delivered: self.delivered,
            delivered_ce: self.delivered_ce,
            lost: self.lost,
            retransmitted: self.retransmitted,
            in_flight: self.in_flight,
            cwnd: self.cwnd,
            ssthresh: self.ssthresh,
            mss: self.mss,
            srtt_us: self.srtt_us,
            min_rtt_us: self.min_rtt_us,
        })
    }
}

impl ReportRow {
    /// `report` of the connection with this number.
    pub fn of(flow: u64, report: &Report) -> Self {
        Self {
            flow,
            head: HeadRow::of(&report.head),
            pacing_bps: report.pacing_rate.as_bits_per_sec(),
            rtt_us: report.rtt_us,
            rtt_min_us: report.rtt_min_us,
            window_us: report.window_us,
            acks: report.acks,
            rate_delivered: report.rate_delivered,
            rate_interval_us: report.rate_interval_us,
            send_interval_us: report.send_interval_us,
            prior_delivered: report.prior_delivered,
            snd_wnd: report.snd_wnd,
            packets_out: report.packets_out,
            app_limited: report.app_limited,
            cwnd_limited: report.cwnd_limited,
            idle_timeouts: report.idle_timeouts,
            underused: report.underused,
        }
    }

    /// The report again; `None` where a number stands for nothing.
    pub fn report(&self) -> Option<Report> {
        Some(Report {
            head: self.head.head()?,
            pacing_rate: Rate::from_bits_per_sec(self.pacing_bps),
            rtt_us: self.rtt_us,
            rtt_min_us: self.rtt_min_us,
            window_us: self.window_us,
            acks: self.acks,
            rate_delivered: self.rate_delivered,
            rate_interval_us: self.rate_interval_us,
            send_interval_us: self.send_interval_us,
            prior_delivered: self.prior_delivered,
            snd_wnd: self.snd_wnd,
            packets_out: self.packets_out,
            app_limited: self.app_limited,
            cwnd_limited: self.cwnd_limited,
            idle_timeouts: self.idle_timeouts,
            underused: self.underused,
        })
    }
}

impl DecisionRow {
    /// `decision` for the connection with this number, in answer to record `seq`.
    pub fn of(flow: u64, seq: u32, decision: &Decision) -> Self {
        let law::Terms { growth, cap, slow_start, beta, trip_rtt_us, trip_lost, trip_ce } =
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
    use super::*;
    use crate::agent::recording::Row;

    #[test]
    fn records_survive_a_round_trip_whatever_is_in_them() {
        let row = ReportRow {
            head: HeadRow {
                seq: u32::MAX,
                at_ns: u64::MAX,
                events: u16::MAX,
                ca_state: 3,
                mode: 2,
                bytes_acked: u64::MAX,
                ssthresh: Some(u32::MAX),
                min_rtt_us: None,
                ..HeadRow::default()
            },
            rtt_us: Some(0),
            app_limited: true,
            ..ReportRow::default()
        };
        assert_eq!(ReportRow::of(0, &row.report().unwrap()), row);
        let text = serde_json::to_string(&Row::Report(row.clone())).unwrap();
        assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), Row::Report(row));
        let nonsense = HeadRow { ca_state: 9, ..HeadRow::default() };
        assert_eq!(nonsense.head().map(|head| head.seq), None);
    }
}
