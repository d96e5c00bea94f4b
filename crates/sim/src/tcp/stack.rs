//! Presets: how the switches stand, and why. A run chooses a stack and nothing below it.
//!
//! | | `ns3` | `linux` |
//! |---|---|---|
//! | wire | PPP: 54 B beside the payload | Ethernet without FCS: 66 B |
//! | device under the qdisc | one packet beside the one being sent | none: the emulator's qdisc is all |
//! | access links | 10 Gbit/s for acknowledgements | none |
//! | losses, shorter delay | at the far end; later packets overtake | before the queue; they wait |
//! | round-trip times | timestamps of 1 ms, one for each ACK that advances | send times, for repairs timestamps of 1 ms |
//! | least timeout | 1 s (RFC 6298) | 200 ms under 4 RTTVAR |
//! | first timeout | 3 s (TcpSocket::ConnTimeout) | 1 s |
//! | acknowledgements | each segment | every second, adaptive from 40 ms; the first 16 at once, also after a pause |
//! | Cubic | as its parameters are by default | with HyStart |
//! | unused window | kept, and it grows | halved for each timeout idle or unused; no growth (RFC 2861, 7661) |
//! | partial ACK | sends the next hole at once; only the first restarts the timer | as PRR allows; each does |
//! | losses told by | 3 duplicates (RFC 6675) | send times (RACK), without a timeout also of repairs |
//! | tail loss probe | none | after 2 SRTT |
//! | recovery | PRR as TcpPrrRecovery computes it ([`PrrBound::Ns3`]) | PRR (RFC 9937) |
//! | SACKed repairs | stay in flight until SND.UNA passes them | leave the pipe |
//! | pace | not of the first window, nor of repairs that go at once | of all |
//! | algorithms | with their `ns3_` parameters on; BBR without a margin | as published |
//! | told as acknowledged | how far SND.UNA has moved | what was newly delivered |
//! | told as round trip | the smoothed one; BBR hears that of the handshake, too | the sample |
//! | a window lowered in a recovery | until the next ACK | PRR's |
//! | rate samples | kept where nothing sent later is delivered, and timed from the one before | anew with each ACK |
//! | told as lost in a recovery | by how much what is lost changed | what was newly lost |
//! | PIE | as ns-3's by its `ns3_` parameter, not derandomised | as RFC 8033 |
//! | spurious losses | stand | taken back by F-RTO, timestamps and D-SACK |
//! | ECN | off unless a plan says `classic`; accurate or L4S for an algorithm that needs it | the same |
//! | duplicates | not reported | reported (RFC 2883) |
//! | send buffer | 4,000,000 B | 12 MB |
//!
//! `ns3` agrees with ccperf's settings (delayed acknowledgements off, buffers of 4,000,000 B and
//! 6 MiB) and ns-3.37's code. `linux` is the testbed's kernel as far as the mechanisms here go: no
//! window auto-tuning, and no batches of segments (TSO, GRO, TCP small queues).

use forebay_core::cc::{Field, Registry};
use forebay_core::qdisc;
use forebay_core::spec::{Parameter, Spec, Value};

use super::ecn::EcnMode;

/// The switch of algorithms that want to be told one-way delays.
const NS3_ONE_WAY: &str = "ns3_one_way";
/// The switch of algorithms that want to be told the round trip of the handshake.
const NS3_HANDSHAKE: &str = "ns3_handshake";
/// The switch of algorithms with a recovery of their own.
const NS3_RECOVERY: &str = "ns3_recovery";

/// Where the minimum of the timeout is applied, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinRto {
    /// Under SRTT + 4 RTTVAR (RFC 6298 section 2.4).
    OfSum(u64),
    /// Under 4 RTTVAR (Linux, TCP_RTO_MIN).
    OfVariation(u64),
}

/// What round-trip times are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RttSource {
    /// Timestamps (RFC 7323) that count ticks of this many nanoseconds, on each acknowledgement that
    /// advances SND.UNA over a head that was sent only once (ns-3, TcpSocketBase::EstimateRtt).
    /// Algorithms are told the smoothed time, with every acknowledgement (m_lastRtt holds it).
    Timestamps {
        /// Length of a tick.
        tick_ns: u64,
    },
    /// Send times of newly delivered segments that were sent once (RFC 6298 section 3); where there are
    /// none, timestamps of 1 ms (Linux, tcp_ack_update_rtt).
    Segments,
}

/// How the window falls in a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// To ssthresh at once (RFC 6675 section 5, step 4.2; ns-3's TcpClassicRecovery).
    AtOnce,
    /// With every acknowledgement (RFC 6937), bounded below ssthresh as [`PrrBound`] says.
    Proportional(PrrBound),
}

/// What proportional rate reduction lets out once less is in flight than ssthresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrrBound {
    /// What has been delivered and not yet answered, and one segment more where the acknowledgement
    /// is safe: it moves SND.UNA and tells of no more losses (RFC 9937; Linux, tcp_cwnd_reduction).
    /// The reduction is counted from the window before the recovery and not from the flight.
    Linux,
    /// ns-3.37 (TcpPrrRecovery::DoRecovery): what this acknowledgement delivered and no more, but on
    /// one that covers a repair what slow start would. Its product prr_delivered x ssthresh has 32
    /// bits: in windows from about 65 kB on (45 segments) it wraps, and the reduction stalls until
    /// no more than ssthresh is in flight. An acknowledgement that both SACKs and advances counts
    /// twice.
    Ns3,
}

/// What both ends of a connection do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Payload bytes of a full segment; two timestamps leave 1448 of 1460.
    pub mss: u16,
    /// Bytes on the wire beside the payload, and those of an acknowledgement without SACK blocks.
    pub overhead: u16,
    /// Segments sent before the first acknowledgement (RFC 6928).
    pub initial_window: u32,
    /// Bytes that may be sent and not acknowledged, or wait for it.
    pub send_buffer: u64,
    /// Bytes that the receiver announces.
    pub receive_buffer: u64,
    /// What round-trip times are taken from.
    pub rtt_source: RttSource,
    /// Least timeout.
    pub min_rto: MinRto,
    /// Timeout before the first round-trip time.
    pub initial_rto_ns: u64,
    /// Clock granularity G of RFC 6298.
    pub rto_granularity_ns: u64,
    /// In-order segments that share an acknowledgement (RFC 1122 section 4.2.3.2).
    pub ack_every: u32,
    /// The longest that an acknowledgement waits for them.
    pub ack_delay_ns: u64,
    /// First segments of a connection that are acknowledged one by one.
    pub quick_acks: u32,
    /// The delay follows the gaps between segments, and pauses and duplicates bring quick
    /// acknowledgements back, as in Linux.
    pub adapts_ack_delay: bool,
    /// A window that is not used falls (RFC 2861; Linux, tcp_slow_start_after_idle) and does not grow.
    pub validates_window: bool,
    /// A partial acknowledgement in recovery sends the next hole at once, whatever the window says
    /// (RFC 6582 section 3.2, step 3), and only the first one restarts the timer (the "impatient"
    /// variant of RFC 3782 section 4).
    pub newreno_partial_acks: bool,
    /// The first window leaves at the pace of an algorithm that has one. In ns-3 it leaves at once
    /// (TcpSocketBase::IsPacingEnabled; TcpSocketState, PaceInitialWindow).
    pub paces_first_window: bool,
    /// A repair that goes at once takes its turn of the pace, and what follows waits for that. ns-3 leaves its timer
    /// alone there (TcpSocketBase::DoRetransmit).
    pub paces_forced_repairs: bool,
    /// The round trip of the handshake is told before the first segment leaves (ns-3, TcpBbr::CongestionStateSet), to
    /// an algorithm with the switch `ns3_handshake` on.
    pub tells_handshake: bool,
    /// Losses are told from send times (RFC 8985) and not from duplicates.
    pub rack: bool,
    /// A probe is sent where the end of a flight is not acknowledged (RFC 8985 section 7).
    pub tlp: bool,
    /// How the window falls in a recovery.
    pub reduction: Reduction,
    /// A repair that is SACKed stays in flight until SND.UNA passes it (ns-3,
    /// TcpTxBuffer::Update, which leaves its retransmitted flag standing). After a lost repair this
    /// keeps a sender from sending. Linux and RFC 6675 (SetPipe) take it out.
    pub sacked_repairs_in_flight: bool,
    /// Before the third duplicate a recovery begins only when the first segment above the head of
    /// which anything is known is lost (ns-3, TcpSocketBase::DupAck, which asks for HighACK + 1
    /// segment), and not when the head itself is.
    pub entry_looks_above_head: bool,
    /// What algorithms are told as acknowledged is how far SND.UNA has moved, at the end of a repair
    /// after a timeout only beyond the recovery point (ns-3, TcpSocketBase::ProcessAck); otherwise
    /// what was newly delivered, as in Linux.
    pub acked_is_advance: bool,
    /// What a recovery tells as lost is by how many segments the number of lost ones has changed, up or
    /// down (ns-3, TcpSocketBase::ReceivedAck), to an algorithm with the switch `ns3_recovery` on.
    pub lost_is_change: bool,
    /// A window that an algorithm lowers in a recovery is in force until PRR computes the next one (ns-3,
    /// where PktsAcked follows DoRecovery).
    pub obeys_in_recovery: bool,
    /// A rate sample stands until something is delivered that was sent later, and counts what has been
    /// delivered since, over a time that begins with the sample before (ns-3, TcpRateLinux, which never empties its
    /// sample and takes the time of a new one before its segment).
    pub keeps_rate_samples: bool,
    /// Acknowledgements tell how long a segment was on its way, to an algorithm with the switch
    /// `ns3_one_way` on.
    pub tells_one_way: bool,
    /// The receiver reports what it has above a gap (RFC 2018). Without that each duplicate counts as
    /// one guessed segment above the head that has arrived, as in ns-3 (TcpTxBuffer::AddRenoSack).
    pub sack: bool,
    /// Timeouts are doubted until something tells that they were right (RFC 5682); needs [`Tcp::undo`].
    pub frto: bool,
    /// Reductions that were for nothing are taken back (RFC 4015, RFC 3708).
    pub undo: bool,
    /// How marks are answered, for algorithms that need neither [`EcnMode::Accurate`] nor [`EcnMode::L4s`].
    pub ecn: EcnMode,
    /// Rates are sampled for each acknowledgement; for an algorithm that needs none they are not.
    pub samples_rates: bool,
    /// The receiver reports duplicates (RFC 2883).
    pub dsack: bool,
}

/// What lies below TCP and is no link's own setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Packets that the device below the bottleneck's qdisc holds beside the one being sent.
    pub packets: usize,
    /// What an acknowledgement takes on the access links, picoseconds a byte: one that carries SACK
    /// blocks comes behind the instant at which one without would, which may be that of a departure.
    pub ack_access_ps: u32,
    /// Packets are lost before the queue (the testbed's emulator), not at the far end (ns-3).
    pub loses_before_queue: bool,
    /// Behind a decrease of a link's delay packets overtake those before it (ns-3); otherwise they wait
    /// for them (the emulator).
    pub packets_overtake: bool,
}

/// A TCP and the device below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Name as written in plans.
    pub name: &'static str,
    /// What its hosts run.
    pub tcp: Tcp,
    /// What its hosts and links run on.
    pub device: Device,
    /// Parameters of an algorithm or a qdisc whose names begin so are switched on.
    pub departures: &'static str,
    /// Parameters that algorithms and qdiscs have in this stack where a run sets them not: name of the
    /// algorithm or qdisc, of the parameter, value.
    pub defaults: &'static [(&'static str, &'static str, &'static str)],
}

impl Tcp {
    /// The part of [`Stack::NS3`].
    pub const NS3: Self = Self {
        mss: 1448,
        overhead: 54,
        initial_window: 10,
        send_buffer: 4_000_000,
        receive_buffer: 6 << 20,
        rtt_source: RttSource::Timestamps { tick_ns: 1_000_000 },
        min_rto: MinRto::OfSum(1_000_000_000),
        initial_rto_ns: 3_000_000_000,
        rto_granularity_ns: 1_000_000,
        ack_every: 1,
        ack_delay_ns: 200_000_000,
        quick_acks: 1,
        adapts_ack_delay: false,
        validates_window: false,
        newreno_partial_acks: true,
        paces_first_window: false,
        paces_forced_repairs: false,
        tells_handshake: true,
        rack: false,
        tlp: false,
        reduction: Reduction::Proportional(PrrBound::Ns3),
        sacked_repairs_in_flight: true,
        entry_looks_above_head: true,
        acked_is_advance: true,
        lost_is_change: true,
        obeys_in_recovery: true,
        keeps_rate_samples: true,
        tells_one_way: true,
        sack: true,
        frto: false,
        undo: false,
        ecn: EcnMode::Off,
        samples_rates: true,
        dsack: false,
    };

    /// The part of [`Stack::LINUX`].
    pub const LINUX: Self = Self {
        mss: 1448,
        overhead: 66,
        initial_window: 10,
        send_buffer: 12_000_000,
        receive_buffer: 12_000_000,
        rtt_source: RttSource::Segments,
        min_rto: MinRto::OfVariation(200_000_000),
        initial_rto_ns: 1_000_000_000,
        rto_granularity_ns: 1_000_000,
        ack_every: 2,
        ack_delay_ns: 40_000_000,
        quick_acks: 16,
        adapts_ack_delay: true,
        validates_window: true,
        newreno_partial_acks: false,
        paces_first_window: true,
        paces_forced_repairs: true,
        tells_handshake: false,
        rack: true,
        tlp: true,
        reduction: Reduction::Proportional(PrrBound::Linux),
        sacked_repairs_in_flight: false,
        entry_looks_above_head: false,
        acked_is_advance: false,
        lost_is_change: false,
        obeys_in_recovery: false,
        keeps_rate_samples: false,
        tells_one_way: false,
        sack: true,
        frto: true,
        undo: true,
        ecn: EcnMode::Off,
        samples_rates: true,
        dsack: true,
    };

    /// Segments that the send buffer holds, at least one.
    pub(crate) fn sent_segments(&self) -> u32 {
        self.segments_of(self.send_buffer)
    }

    /// Segments that the receive buffer holds, at least one.
    pub(crate) fn received_segments(&self) -> u32 {
        self.segments_of(self.receive_buffer)
    }

    fn segments_of(&self, buffer: u64) -> u32 {
        u32::try_from(buffer / u64::from(self.mss)).unwrap_or(u32::MAX).max(1)
    }
}

impl Device {
    /// The part of [`Stack::NS3`].
    pub const NS3: Self =
        Self { packets: 1, ack_access_ps: 800, loses_before_queue: false, packets_overtake: true };

    /// The part of [`Stack::LINUX`].
    pub const LINUX: Self =
        Self { packets: 0, ack_access_ps: 0, loses_before_queue: true, packets_overtake: false };
}

impl Stack {
    /// ns-3.37 as ccperf sets it up.
    pub const NS3: Self = Self {
        name: "ns3",
        tcp: Tcp::NS3,
        device: Device::NS3,
        departures: "ns3_",
        defaults: &[("pie", "derandomize", "false"), ("bbr", "pacing_margin", "0")],
    };

    /// The testbed's kernel, within the mechanisms that are here.
    pub const LINUX: Self = Self {
        name: "linux",
        tcp: Tcp::LINUX,
        device: Device::LINUX,
        departures: "linux_",
        defaults: &[("cubic", "hystart", "classic")],
    };

    /// All presets.
    pub const ALL: [Self; 2] = [Self::NS3, Self::LINUX];

    /// The preset `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stack| stack.name == name)
    }

    /// The algorithm `cc` of `registry` as a sender of this stack runs it: for a single flow, with the
    /// stack's defaults, and with its departures switched on, except what `cc` sets itself.
    pub fn algorithm(&self, registry: &Registry, cc: &Spec) -> Spec {
        let known = registry.named(&cc.kind);
        let cc = registry.of_single_flow(cc.clone());
        self.departed(&cc, known.map_or(&[][..], |algorithm| algorithm.params))
    }

    /// The qdisc `spec` as this stack runs it, likewise.
    pub fn qdisc(&self, spec: &Spec) -> Spec {
        let known = qdisc::discipline(spec);
        self.departed(spec, known.map_or(&[][..], |discipline| discipline.params))
    }

    fn departed(&self, spec: &Spec, params: &[&dyn Parameter]) -> Spec {
        let departures = params
            .iter()
            .filter(|param| param.name().starts_with(self.departures))
            .map(|param| (param.name(), Value::Bool(true)));
        let defaults = self.defaults.iter().filter(|(kind, ..)| *kind == spec.kind);
        let defaults = defaults.map(|(_, param, value)| (*param, Value::Text((*value).into())));
        defaults
            .chain(departures)
            .filter(|(param, _)| !spec.params.contains_key(*param))
            .fold(spec.clone(), |spec, (param, value)| spec.with(param, value))
    }

    /// The TCP of a connection with this algorithm: its ECN is accurate or that of L4S if `cc` needs that (in
    /// Linux TCP_CONG_NEEDS_ECN, in ns-3 TcpDctcp::Init), and no rate is sampled that it does not need.
    pub(crate) fn tcp_for(&self, registry: &Registry, cc: &Spec) -> Tcp {
        let known = registry.named(&cc.kind);
        let running = self.algorithm(registry, cc);
        let has = |param| matches!(running.value(param), Ok(Some(true)));
        let needs = |field| known.is_none_or(|algorithm| algorithm.needs.contains(&field));
        let tcp = self.tcp;
        Tcp {
            ecn: match known {
                Some(_) if needs(Field::Ect1) => EcnMode::L4s,
                Some(_) if needs(Field::EcnCe) => EcnMode::Accurate,
                _ => tcp.ecn,
            },
            samples_rates: needs(Field::DeliveryRate) || needs(Field::SendRate),
            tells_one_way: tcp.tells_one_way && has(NS3_ONE_WAY),
            tells_handshake: tcp.tells_handshake && has(NS3_HANDSHAKE),
            lost_is_change: tcp.lost_is_change && has(NS3_RECOVERY),
            ..tcp
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILTIN: &Registry = &Registry::BUILTIN;

    #[test]
    fn wire_sizes_are_those_of_the_two_worlds() {
        assert_eq!(Tcp::NS3.mss + Tcp::NS3.overhead, 1502);
        assert_eq!(Tcp::LINUX.mss + Tcp::LINUX.overhead, 1514);
    }

    #[test]
    fn the_departures_of_an_algorithm_are_switched_on_unless_they_are_set() {
        let set = Spec::named("vegas").with("ns3_loss", Value::Bool(false));
        let spec = Stack::NS3.algorithm(BUILTIN, &set);
        assert_eq!(spec.params.get("ns3_loss"), Some(&Value::Bool(false)));
        assert_eq!(spec.params.get("ns3_whole_segments"), Some(&Value::Bool(true)));
        assert!(!spec.params.contains_key("alpha"));
        assert_eq!(Stack::LINUX.algorithm(BUILTIN, &set), set);
        for algorithm in BUILTIN.algorithms() {
            let built =
                algorithm.build(&Stack::NS3.algorithm(BUILTIN, &Spec::named(algorithm.name)));
            assert!(built.is_ok(), "{}", algorithm.name);
        }
    }

    #[test]
    fn a_qdisc_departs_as_an_algorithm_does() {
        let pie = Spec::named("pie").with("limit", Value::Text("100p".into()));
        let ns3 = Stack::NS3.qdisc(&pie);
        assert_eq!(ns3.params.get("derandomize"), Some(&Value::Text("false".into())));
        assert_eq!(ns3.params.get("ns3_control"), Some(&Value::Bool(true)));
        let set = pie.clone().with("derandomize", Value::Bool(true));
        assert_eq!(Stack::NS3.qdisc(&set).params.get("derandomize"), Some(&Value::Bool(true)));
        assert_eq!(Stack::LINUX.qdisc(&pie), pie);
    }

    #[test]
    fn one_way_delays_are_told_to_whom_asks_for_them() {
        let tells = |stack: Stack, kind| stack.tcp_for(BUILTIN, &Spec::named(kind)).tells_one_way;
        assert_eq!(["lp", "ledbat", "cubic"].map(|it| tells(Stack::NS3, it)), [true, true, false]);
        assert!(!tells(Stack::LINUX, "lp"));
    }

    #[test]
    fn a_departure_that_is_switched_off_is_off_in_the_stack_too() {
        let ns3 = |kind, param, on| {
            Stack::NS3.tcp_for(BUILTIN, &Spec::named(kind).with(param, Value::Bool(on)))
        };
        let set = [true, false];
        assert_eq!(set.map(|on| ns3("lp", NS3_ONE_WAY, on).tells_one_way), set);
        assert_eq!(set.map(|on| ns3("bbr", NS3_RECOVERY, on).lost_is_change), set);
        assert_eq!(set.map(|on| ns3("bbr", NS3_HANDSHAKE, on).tells_handshake), set);
        let by_default = |kind| Stack::NS3.tcp_for(BUILTIN, &Spec::named(kind)).lost_is_change;
        assert_eq!(["bbr", "cubic"].map(by_default), set);
    }

    #[test]
    fn stacks_are_found_by_name() {
        assert_eq!(Stack::named("ns3"), Some(Stack::NS3));
        assert_eq!(Stack::named("ns4"), None);
    }

    #[test]
    fn linux_runs_cubic_with_hystart_unless_a_run_says_otherwise() {
        let cubic = Spec::named("cubic");
        let linux = Stack::LINUX.algorithm(BUILTIN, &cubic);
        let expected = cubic.clone().with("hystart", Value::Text("classic".into()));
        assert_eq!(linux, expected.with("linux_growth", Value::Bool(true)));
        let off = cubic.clone().with("hystart", Value::Text("off".into()));
        let linux_off = Stack::LINUX.algorithm(BUILTIN, &off);
        assert_eq!(linux_off.params.get("hystart"), off.params.get("hystart"));
        assert!(forebay_core::cc::build(&linux, &[]).is_ok());
    }

    #[test]
    fn a_law_for_bundles_begins_in_slow_start_unless_a_run_says_otherwise() {
        let flow = |cc: &Spec| Stack::LINUX.algorithm(BUILTIN, cc).params.get("flow").cloned();
        for law in ["copa", "setpoint", "basic_delay"] {
            let law = Spec::named(law);
            assert_eq!(flow(&law), Some(Value::Bool(true)));
            assert_eq!(flow(&law.with("flow", Value::Bool(false))), Some(Value::Bool(false)));
        }
        assert_eq!(flow(&Spec::named("cubic")), None);
    }

    #[test]
    fn an_algorithm_that_needs_marks_gets_them_one_by_one() {
        for stack in Stack::ALL {
            let ecn = |kind| stack.tcp_for(BUILTIN, &Spec::named(kind)).ecn;
            let expected = [EcnMode::Accurate, EcnMode::L4s, stack.tcp.ecn];
            assert_eq!([ecn("dctcp"), ecn("prague"), ecn("cubic")], expected);
        }
    }
}
