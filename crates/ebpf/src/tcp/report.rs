//! Records that the datapath writes about a connection, 128 bytes each (`struct report` and `struct
//! opened` of `bpf/tcp_flow.h`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use forebay_core::cc::CongestionEvent;
use forebay_core::cc::interim::SSTHRESH_INFINITE;
use forebay_core::units::{ByteCount, Rate, Timestamp};
use serde::{Deserialize, Serialize};

use crate::skel::Plain;
use crate::skel::tcp_datapath::types;

/// Bytes of a record.
pub const RECORD_LEN: usize = size_of::<types::report>();

/// A connection of one datapath. No two have the same number, however often its slot is used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    /// Slot of the connection, from 0.
    pub slot: u32,
    /// Number of the connection in that slot, from 1.
    pub generation: u32,
}

/// Which algorithm a connection is under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum Mode {
    /// The datapath's first law, before any decision.
    #[default]
    Start,
    /// The law of the last decision.
    Agent,
    /// Reno or Cubic in the kernel: no answer came for too long.
    Fallback,
}

/// State of the kernel's loss recovery (`enum tcp_ca_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum CaState {
    /// Nothing unusual.
    #[default]
    Open,
    /// Duplicate acknowledgements or SACKs.
    Disorder,
    /// The window is being reduced for a mark.
    Cwr,
    /// Fast recovery.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

impl From<CaState> for u8 {
    /// As the kernel numbers it.
    fn from(state: CaState) -> Self {
        state as Self
    }
}

impl TryFrom<u8> for CaState {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        let all = [Self::Open, Self::Disorder, Self::Cwr, Self::Recovery, Self::Loss];
        all.get(usize::from(number))
            .copied()
            .ok_or(format!("ca_state = {number}: allowed is 0 to 4"))
    }
}

/// Why a record was written and what happened since the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events(u16);

impl Events {
    /// The first record of a connection, or one that takes its place.
    pub const OPEN: Self = Self(1 << 0);
    /// The last record of a connection.
    pub const CLOSE: Self = Self(1 << 1);
    /// Something sent after the last report has been acknowledged.
    pub const ROUND: Self = Self(1 << 2);
    /// The time between reports has passed. With reports per round: 5/4 of a round trip in which holes
    /// were being repaired.
    pub const TIMER: Self = Self(1 << 3);
    /// A recovery began.
    pub const LOSS: Self = Self(1 << 4);
    /// A retransmission timeout.
    pub const RTO: Self = Self(1 << 5);
    /// The losses of an episode are repaired.
    pub const RECOVERY_END: Self = Self(1 << 6);
    /// The last reduction was needless and has been taken back.
    pub const SPURIOUS: Self = Self(1 << 7);
    /// A reduction for a mark began.
    pub const ECN: Self = Self(1 << 8);
    /// Sending resumed after a pause of at least a timeout.
    pub const IDLE: Self = Self(1 << 9);
    /// HyStart ended slow start.
    pub const SLOW_START_END: Self = Self(1 << 10);
    /// The tripwire of the round trip.
    pub const TRIP_RTT: Self = Self(1 << 11);
    /// The tripwire of losses.
    pub const TRIP_LOSS: Self = Self(1 << 12);
    /// The tripwire of marks.
    pub const TRIP_CE: Self = Self(1 << 13);
    /// The connection fell back to the kernel's algorithm.
    pub const FALLBACK: Self = Self(1 << 14);
    /// The connection left the kernel's algorithm.
    pub const RESUMED: Self = Self(1 << 15);
    /// Events that [`Report::congestion_events`] returns.
    const CONGESTION: Self = Self(
        Self::LOSS.0
            | Self::RTO.0
            | Self::RECOVERY_END.0
            | Self::SPURIOUS.0
            | Self::ECN.0
            | Self::IDLE.0
            | Self::SLOW_START_END.0,
    );

    /// The bits, one an event.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The events of these bits.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Whether any event of `other` is among them.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The beginning of every record. Counters run from the start of the connection and wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Connection that the report is of; a recording has no slots of the kernel.
    #[serde(skip)]
    pub flow: FlowId,
    /// Number of the record within the connection, from 1; records that found no room count too.
    pub seq: u32,
    /// Why, and what happened.
    pub events: Events,
    /// State of loss recovery.
    pub ca_state: CaState,
    /// The law in force.
    pub mode: Mode,
    /// When, on CLOCK_MONOTONIC, to the microsecond.
    #[serde(rename = "at_ns")]
    pub at: Timestamp,
    /// Bytes acknowledged in sequence.
    pub bytes_acked: u64,
    /// Segments delivered, in sequence or SACKed.
    pub delivered: u32,
    /// Segments delivered that were reported as marked.
    pub delivered_ce: u32,
    /// Segments considered lost.
    pub lost: u32,
    /// Segments sent again.
    pub retransmitted: u32,
    /// Segments outstanding.
    pub in_flight: u32,
    /// Window in segments.
    pub cwnd: u32,
    /// Slow-start threshold in segments; `None` before anything was lost.
    pub ssthresh: Option<u32>,
    /// Segment size in bytes, 1 to 65,535.
    pub mss: u32,
    /// Smoothed round trip; 0 before the first sample.
    pub srtt_us: u32,
    /// The kernel's least round trip of some minutes.
    pub min_rtt_us: Option<u32>,
}

/// A connection that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Counters, window and segment size.
    pub head: Head,
    /// Own address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Inode number of the network namespace (`/proc/PID/ns/net`).
    pub netns: u32,
}

/// Events and measurements of a connection since its last record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Counters, window and segment size.
    #[serde(flatten)]
    pub head: Head,
    /// Pacing rate in force; [`Rate::MAX`] for none.
    #[serde(rename = "pacing_bps")]
    pub pacing_rate: Rate,
    /// The newest round trip.
    pub rtt_us: Option<u32>,
    /// The least since the last record.
    pub rtt_min_us: Option<u32>,
    /// Time since the last record.
    pub window_us: u32,
    /// Acknowledgements since the last record, up to 65,535.
    pub acks: u32,
    /// Segments of the kernel's newest rate sample; 0: none.
    pub rate_delivered: u32,
    /// The time over which these segments arrived, by the sample: about a round trip.
    pub rate_interval_us: u32,
    /// The time over which they had left.
    pub send_interval_us: u32,
    /// `delivered` when the newest acknowledged segment left; 0 where there is no sample.
    pub prior_delivered: u32,
    /// The peer's window in bytes.
    pub snd_wnd: u32,
    /// Segments sent and not yet acknowledged in sequence.
    pub packets_out: u32,
    /// A rate sample since the last record was limited by the application.
    pub app_limited: bool,
    /// An acknowledgement since the last record found the window filled.
    pub cwnd_limited: bool,
    /// Timeouts that the pause lasted, with [`Events::IDLE`].
    pub idle_timeouts: u8,
    /// Most segments outstanding for a timeout, if they did not fill the window. The datapath has
    /// lowered the window by half of the rest where the law has an ssthresh (RFC 2861, 3).
    pub underused: Option<u32>,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A connection begins.
    Opened(Opened),
    /// A later record of a connection.
    Report(Report),
}

/// Bit of `flags`: the application had nothing to send (`REPORT_APP_LIMITED`).
const APP_LIMITED: u32 = 1 << 0;
/// Bit of `flags`: the connection has filled its window (`REPORT_CWND_LIMITED`).
const CWND_LIMITED: u32 = 1 << 1;
/// The bits of `flags` from this one on count idle timeouts (`REPORT_IDLE_SHIFT`).
const IDLE_SHIFT: u32 = 8;
/// Largest segment: an IP packet's length has 16 bits.
const MSS_MAX: u32 = 65_535;

impl Record {
    /// Reads a record; `None` if it has another size or values that the datapath does not write.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let report = types::report::from_bytes(bytes)?;
        let head = report.head.parse()?;
        if !head.events.contains(Events::OPEN) {
            return Some(Self::Report(report.parse(head)));
        }
        let opened = types::opened::from_bytes(bytes)?;
        let (local, remote) = opened.addresses()?;
        Some(Self::Opened(Opened { head, local, remote, netns: opened.netns }))
    }

    /// The beginning of the record.
    pub fn head(&self) -> &Head {
        match self {
            Self::Opened(opened) => &opened.head,
            Self::Report(report) => &report.head,
        }
    }
}

/// The value; `None` if zero, which means unknown.
fn known(value: u32) -> Option<u32> {
    (value > 0).then_some(value)
}

impl types::head {
    fn parse(&self) -> Option<Head> {
        let ca_state = CaState::try_from(self.ca_state).ok()?;
        let mode = Mode::of(u32::from(self.mode))?;
        if self.generation == 0 || self.mss == 0 || self.mss > MSS_MAX {
            return None;
        }
        Some(Head {
            flow: FlowId { slot: self.slot, generation: self.generation },
            seq: self.seq,
            events: Events(self.events),
            ca_state,
            mode,
            at: Timestamp::from_nanos(self.at_us.saturating_mul(1000)),
            bytes_acked: self.bytes_acked,
            delivered: self.delivered,
            delivered_ce: self.delivered_ce,
            lost: self.lost,
            retransmitted: self.retransmitted,
            in_flight: self.in_flight,
            cwnd: self.cwnd,
            ssthresh: Some(self.ssthresh).filter(|ssthresh| *ssthresh < SSTHRESH_INFINITE),
            mss: self.mss,
            srtt_us: self.srtt_us,
            min_rtt_us: known(self.min_rtt_us).filter(|rtt| *rtt < u32::MAX),
        })
    }
}

impl types::report {
    fn parse(&self, head: Head) -> Report {
        Report {
            head,
            pacing_rate: Rate::from_bits_per_sec(self.pacing_rate.saturating_mul(8)),
            rtt_us: known(self.rtt_us),
            rtt_min_us: known(self.rtt_min_us),
            window_us: self.window_us,
            acks: self.acks,
            rate_delivered: self.rate_delivered,
            rate_interval_us: self.rate_interval_us,
            send_interval_us: self.send_interval_us,
            prior_delivered: self.prior_delivered,
            snd_wnd: self.snd_wnd,
            packets_out: self.packets_out,
            app_limited: self.flags & APP_LIMITED != 0,
            cwnd_limited: self.flags & CWND_LIMITED != 0,
            idle_timeouts: (self.flags >> IDLE_SHIFT) as u8,
            underused: known(self.underused),
        }
    }
}

impl types::opened {
    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let address = |bytes: [u8; 16]| {
            let [a, b, c, d, ..] = bytes;
            match i32::from(self.family) {
                libc::AF_INET => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
                // IPv4 on a socket of IPv6 is given as IPv4.
                libc::AF_INET6 => Some(Ipv6Addr::from(bytes).to_canonical()),
                _ => None,
            }
        };
        Some((
            SocketAddr::new(address(self.local)?, self.local_port),
            SocketAddr::new(address(self.remote)?, self.remote_port),
        ))
    }
}

impl Mode {
    /// As the datapath numbers them; 0 is a slot that no connection has.
    pub(crate) fn of(number: u32) -> Option<Self> {
        u8::try_from(number).ok()?.checked_sub(1)?.try_into().ok()
    }
}

impl From<Mode> for u8 {
    fn from(mode: Mode) -> Self {
        mode as Self
    }
}

impl TryFrom<u8> for Mode {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        let all = [Self::Start, Self::Agent, Self::Fallback];
        all.get(usize::from(number)).copied().ok_or(format!("mode = {number}: allowed is 0 to 2"))
    }
}

impl Report {
    /// Whether [`Report::congestion_events`] has an event. Most reports have none.
    pub fn has_congestion_events(&self) -> bool {
        self.underused.is_some() || self.head.events.contains(Events::CONGESTION)
    }

    /// The events for the algorithm, in the order in which they happened. Most are at the end of the
    /// interval that the record covers, since it closes with a loss, a timeout or the end of either.
    pub fn congestion_events(&self) -> impl Iterator<Item = CongestionEvent> + use<> {
        let head = &self.head;
        let found = head.events;
        let bytes = |segments: u32| ByteCount::new(u64::from(segments) * u64::from(head.mss));
        let cwnd = bytes(head.cwnd);
        // The current reduction began after another was undone or ended, which the same acknowledgement
        // may do (tcp_fastretrans_alert).
        let is_under_way = !matches!(head.ca_state, CaState::Open | CaState::Disorder);
        let (ends, is_undone) =
            (found.contains(Events::RECOVERY_END), found.contains(Events::SPURIOUS));
        [
            (found.contains(Events::IDLE))
                .then_some(CongestionEvent::IdleRestart(u32::from(self.idle_timeouts.max(1)))),
            self.underused.map(|used| CongestionEvent::Underused(bytes(used))),
            (is_undone && is_under_way).then_some(CongestionEvent::Spurious),
            (ends && is_under_way).then_some(CongestionEvent::RecoveryEnd),
            found.contains(Events::SLOW_START_END).then_some(CongestionEvent::SlowStartEnd(cwnd)),
            found.contains(Events::ECN).then_some(CongestionEvent::EcnCe),
            found.contains(Events::LOSS).then_some(CongestionEvent::Loss),
            found.contains(Events::RTO).then_some(CongestionEvent::Rto),
            (is_undone && !is_under_way).then_some(CongestionEvent::Spurious),
            (ends && !is_under_way).then_some(CongestionEvent::RecoveryEnd),
        ]
        .into_iter()
        .flatten()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A record of zeros except for the fields that make it valid.
    pub(crate) fn blank(events: Events) -> types::report {
        let (generation, seq, mode, mss) = (7, 3, 2, 1448);
        let events = events.bits();
        let head = types::head { generation, seq, events, mode, mss, ..types::head::default() };
        types::report { head, ..types::report::default() }
    }

    /// A record that is not a connection's first.
    pub(crate) fn parsed(record: &types::report) -> Report {
        match Record::parse(record.as_bytes()) {
            Some(Record::Report(report)) => report,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn malformed_records_are_refused() {
        let report = blank(Events::ROUND);
        let bytes = report.as_bytes();
        assert!(Record::parse(bytes).is_some());
        assert_eq!(Record::parse(&bytes[1..]), None);
        assert_eq!(Record::parse(&[bytes, &[0]].concat()), None);
        let impossible: [fn(&mut types::head); 6] = [
            |head| head.ca_state = 5,
            |head| head.mode = 0,
            |head| head.mode = 4,
            |head| head.generation = 0,
            |head| head.mss = 0,
            |head| head.mss = 65_536,
        ];
        for change in impossible {
            let mut report = blank(Events::ROUND);
            change(&mut report.head);
            assert_eq!(Record::parse(report.as_bytes()), None, "{:?}", report.head);
        }
    }

    #[test]
    fn an_opened_connection_has_addresses_of_its_family() {
        let head = blank(Events::OPEN).head;
        let mut record = types::opened { head, ..types::opened::default() };
        assert_eq!(Record::parse(record.as_bytes()), None, "no family");
        record.local[..4].copy_from_slice(&[127, 0, 0, 1]);
        record.remote[..4].copy_from_slice(&[192, 0, 2, 7]);
        (record.local_port, record.remote_port) = (40_000, 443);
        let mut parse = |family: i32| {
            record.family = family as u16;
            match Record::parse(record.as_bytes()) {
                Some(Record::Opened(opened)) => opened,
                other => panic!("{other:?}"),
            }
        };
        let opened = parse(libc::AF_INET);
        assert_eq!(opened.local.to_string(), "127.0.0.1:40000");
        assert_eq!(opened.remote.to_string(), "192.0.2.7:443");
        assert_eq!(opened.head.flow, FlowId { slot: 0, generation: 7 });
        assert_eq!(parse(libc::AF_INET6).local.to_string(), "[7f00:1::]:40000");
    }

    #[test]
    fn events_keep_their_order_of_occurrence() {
        let events = |bits: &[Events], state: u8| {
            let bits = bits.iter().fold(0, |sum, event| sum | event.bits());
            let mut record = blank(Events::from_bits(bits));
            record.head.ca_state = state;
            let report = parsed(&record);
            report.congestion_events().collect::<Vec<_>>()
        };
        let (loss, end) = (CongestionEvent::Loss, CongestionEvent::RecoveryEnd);
        let both = [Events::RECOVERY_END, Events::LOSS];
        assert_eq!(events(&both, 3), [end, loss]);
        assert_eq!(events(&both, 0), [loss, end]);
        let spurious = CongestionEvent::Spurious;
        assert_eq!(events(&[Events::SPURIOUS, Events::RECOVERY_END], 0), [spurious, end]);
        let undone = [Events::SPURIOUS, Events::RECOVERY_END, Events::LOSS];
        for state in [2, 3, 4] {
            assert_eq!(events(&undone, state), [spurious, end, loss]);
        }
        assert_eq!(events(&undone, 0), [loss, spurious, end]);
        assert_eq!(events(&[Events::SPURIOUS, Events::LOSS], 3), [spurious, loss]);
        let marked = [Events::RECOVERY_END, Events::ECN];
        assert_eq!(events(&marked, 2), [end, CongestionEvent::EcnCe]);
        assert_eq!(events(&both, 2), [end, loss]);
        assert_eq!(events(&[Events::IDLE], 0), [CongestionEvent::IdleRestart(1)]);
        let report = parsed(&types::report { underused: 3, ..blank(Events::ROUND) });
        let told: Vec<CongestionEvent> = report.congestion_events().collect();
        assert_eq!(told, [CongestionEvent::Underused(ByteCount::new(3 * 1448))]);
        assert!(report.has_congestion_events());
        assert_eq!(events(&[Events::TRIP_RTT, Events::TIMER, Events::FALLBACK], 1), []);
        for bit in 0..16 {
            let record = blank(Events::from_bits(1 << bit));
            let Some(Record::Report(report)) = Record::parse(record.as_bytes()) else { continue };
            let has_any = report.congestion_events().next().is_some();
            assert_eq!(report.has_congestion_events(), has_any, "{bit}");
        }
    }
}
