//! Presets of the switches, with their reasons. A run chooses a stack and no single switch.
//!
//! | | `ns3` | `linux` |
//! |---|---|---|
//! | wire | PPP: 54 B in addition to the payload | Ethernet without FCS: 66 B |
//! | device under the qdisc | one packet in addition to the one being sent | none: the emulator's qdisc is all |
//! | access links | 10 Gbit/s for acknowledgements | none |
//! | losses, shorter delay | at the far end; later packets overtake | before the queue; they wait |
//! | round-trip times | timestamps of 1 ms, one for each ACK that advances | send times, for repairs timestamps of 1 ms |
//! | least timeout | 1 s (RFC 6298) | 200 ms under 4 RTTVAR |
//! | first timeout | 3 s (TcpSocket::ConnTimeout) | 1 s |
//! | acknowledgements | each segment | every second, adaptive from 40 ms; the first 16 at once, also after a pause |
//! | Cubic | default parameters | with HyStart |
//! | handshake | SYN of 58 B; an acknowledgement precedes the data | SYN of 66 B; the data confirm it |
//! | service times | each rounded to 1 ns | remainders carried |
//! | unused window | kept, and it grows | halved for each timeout idle or unused; no growth (RFC 2861, 7661) |
//! | partial ACK | sends the next hole at once; only the first restarts the timer | as PRR allows; each does |
//! | loss detection | 3 duplicates (RFC 6675) | send times (RACK), without a timeout also of repairs |
//! | tail loss probe | none | after 2 SRTT |
//! | recovery | PRR as TcpPrrRecovery computes it ([`PrrBound::Ns3`]) | PRR (RFC 9937) |
//! | SACKed repairs | stay in flight until SND.UNA passes them | leave the pipe |
//! | pacing | not of the first window, nor of repairs sent at once | of all segments |
//! | algorithms | as in ns-3 ([`forebay_core::cc::algorithms::ns3`]); BBR without a margin | as published |
//! | acknowledged bytes for the algorithm | advance of SND.UNA | newly delivered bytes |
//! | round trip for the algorithm | the smoothed one; for BBR also the handshake's | the sample |
//! | a window lowered in a recovery | until the next ACK | PRR's |
//! | rate samples | kept until a segment sent later is delivered, and timed from the previous one | new with each ACK |
//! | lost segments for the algorithm in a recovery | change of the number of lost segments | newly lost segments |
//! | PIE, RED | as in ns-3, PIE not derandomised | as RFC 8033, as the paper |
//! | spurious losses | remain | undone by F-RTO, timestamps and D-SACK |
//! | ECN | off unless a plan says `classic`; accurate or L4S for an algorithm that needs it | the same |
//! | duplicates | not reported | reported (RFC 2883) |
//! | send buffer | 4,000,000 B | 12 MB |
//!
//! `ns3` agrees with ccperf's settings (delayed acknowledgements off, buffers of 4,000,000 B and 6 MiB) and
//! ns-3.37's code. `linux` is the testbed's kernel within the mechanisms implemented here. It has no window
//! auto-tuning, and no batches of segments (TSO, GRO, TCP small queues).

use forebay_core::cc::algorithms::ns3;
use forebay_core::cc::{CongestionControl, Field, Registry};
use forebay_core::packet::Packet;
use forebay_core::qdisc::{self, Qdisc};
use forebay_core::spec::{Spec, SpecError, Value};

use super::ecn::EcnMode;

/// Algorithms that use one-way delays in ns-3 (TcpLedbat, TcpLp).
const ONE_WAY: [&str; 2] = ["ledbat", "lp"];
/// The algorithm that has its own recovery in ns-3 (TcpBbr).
const BBR: &str = "bbr";
/// Algorithms that receive the handshake's round trip in ns-3 (TcpBbr, TcpHybla).
const HANDSHAKE: [&str; 2] = [BBR, "hybla"];

/// Where the minimum of the timeout is applied, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinRto {
    /// Under SRTT + 4 RTTVAR (RFC 6298 section 2.4).
    OfSum(u64),
    /// Under 4 RTTVAR (Linux, TCP_RTO_MIN).
    OfVariation(u64),
}

/// Source of round-trip times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RttSource {
    /// Timestamps (RFC 7323) that count ticks of this many nanoseconds. Each acknowledgement that advances
    /// SND.UNA gives a sample if the first segment was sent only once (ns-3, TcpSocketBase::EstimateRtt).
    /// Algorithms receive the smoothed time with every acknowledgement (m_lastRtt holds it).
    Timestamps {
        /// Length of a tick.
        tick_ns: u64,
    },
    /// Send times of newly delivered segments that were sent once (RFC 6298 section 3). Without such
    /// segments, timestamps of 1 ms (Linux, tcp_ack_update_rtt).
    Segments,
}

/// How the window falls in a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// To ssthresh at once (RFC 6675 section 5, step 4.2; ns-3's TcpClassicRecovery).
    AtOnce,
    /// With every acknowledgement (RFC 6937), bounded below ssthresh by [`PrrBound`].
    Proportional(PrrBound),
}

/// Bound of proportional rate reduction once less than ssthresh is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrrBound {
    /// Delivered bytes without an answer yet, and one segment more if the acknowledgement is safe: it moves
    /// SND.UNA and shows no more losses (RFC 9937; Linux, tcp_cwnd_reduction). The reduction starts from the
    /// window before the recovery, not from the flight.
    Linux,
    /// ns-3.37 (TcpPrrRecovery::DoRecovery): the bytes that this acknowledgement delivered, but slow start's
    /// amount if it covers a repair. The product prr_delivered x ssthresh has 32 bits. In windows from about
    /// 65 kB on (45 segments) it wraps, and the reduction stalls until no more than ssthresh is in flight. An
    /// acknowledgement that both SACKs and advances counts twice.
    Ns3,
}

/// Behaviour of both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Payload bytes of a full segment; two timestamps leave 1448 of 1460.
    pub mss: u16,
    /// Bytes on the wire in addition to the payload, and bytes of an acknowledgement without SACK blocks.
    pub overhead: u16,
    /// Bytes of a SYN, and of its answer.
    pub syn_bytes: u16,
    /// Segments sent before the first acknowledgement (RFC 6928).
    pub initial_window: u32,
    /// Bytes that may be sent and not acknowledged, or wait to be sent.
    pub send_buffer: u64,
    /// Bytes that the receiver announces.
    pub receive_buffer: u64,
    /// Source of round-trip times.
    pub rtt_source: RttSource,
    /// Least timeout.
    pub min_rto: MinRto,
    /// Timeout before the first round-trip time.
    pub initial_rto_ns: u64,
    /// Clock granularity G of RFC 6298.
    pub rto_granularity_ns: u64,
    /// In-order segments that share an acknowledgement (RFC 1122 section 4.2.3.2).
    pub ack_every: u32,
    /// The longest wait of an acknowledgement for such segments.
    pub ack_delay_ns: u64,
    /// Number of first segments of a connection that are acknowledged one by one.
    pub quick_acks: u32,
    /// The delay follows the gaps between segments; pauses and duplicates restart quick acknowledgements, as
    /// in Linux.
    pub adapts_ack_delay: bool,
    /// An unused window falls (RFC 2861; Linux, tcp_slow_start_after_idle) and does not grow.
    pub validates_window: bool,
    /// A partial acknowledgement in recovery sends the next hole at once, whatever the window says
    /// (RFC 6582 section 3.2, step 3). Only the first one restarts the timer (the "impatient" variant
    /// of RFC 3782 section 4).
    pub newreno_partial_acks: bool,
    /// The first window is paced if the algorithm paces. In ns-3 it is not (TcpSocketBase::IsPacingEnabled;
    /// TcpSocketState, PaceInitialWindow).
    pub paces_first_window: bool,
    /// A repair that is sent at once takes its turn in the pacing, and later segments wait for it. ns-3 does
    /// not restart its pacing timer there (TcpSocketBase::DoRetransmit).
    pub paces_forced_repairs: bool,
    /// BBR and Hybla, and no other algorithm, receive the handshake's round trip before the first segment
    /// leaves (ns-3, TcpBbr::CongestionStateSet, TcpSocketState::m_minRtt).
    pub tells_handshake: bool,
    /// Losses are detected from send times (RFC 8985) and not from duplicates.
    pub rack: bool,
    /// A probe is sent if the end of a flight is not acknowledged (RFC 8985 section 7).
    pub tlp: bool,
    /// How the window falls in a recovery.
    pub reduction: Reduction,
    /// A SACKed repair stays in flight until SND.UNA passes it (ns-3, TcpTxBuffer::Update, which does not
    /// clear its retransmitted flag). After a lost repair this blocks the sender. Linux and RFC 6675
    /// (SetPipe) remove it from the flight.
    pub sacked_repairs_in_flight: bool,
    /// Before the third duplicate, the first SACKed or lost segment above the head decides: a recovery begins
    /// if it is lost (ns-3, TcpSocketBase::DupAck, which asks for HighACK + 1 segment). Without this switch,
    /// a recovery begins if the head itself is lost.
    pub entry_looks_above_head: bool,
    /// Algorithms receive the advance of SND.UNA as the acknowledged bytes. At the end of the repair after a
    /// timeout, only the advance beyond the recovery point counts (ns-3, TcpSocketBase::ProcessAck).
    /// Otherwise they receive the newly delivered bytes, as in Linux.
    pub acked_is_advance: bool,
    /// In a recovery, the change of the number of lost segments, up or down, is reported as the lost segments
    /// (ns-3, TcpSocketBase::ReceivedAck). This is for BBR alone, which has its own recovery.
    pub lost_is_change: bool,
    /// If an algorithm lowers its window in a recovery, that window holds until PRR computes the next one
    /// (ns-3, where PktsAcked follows DoRecovery).
    pub obeys_in_recovery: bool,
    /// A rate sample is kept until a segment sent later is delivered. It counts the segments delivered since,
    /// over a time that begins with the previous sample (ns-3, TcpRateLinux). ns-3 never empties its sample,
    /// and takes the time of a new one before its segment.
    pub keeps_rate_samples: bool,
    /// Acknowledgements report the one-way delay of a segment, for LEDBAT and TCP-LP alone (ns-3).
    pub tells_one_way: bool,
    /// The receiver reports segments above a gap (RFC 2018). Otherwise each duplicate counts as one guessed
    /// segment above the head that has arrived, as in ns-3 (TcpTxBuffer::AddRenoSack).
    pub sack: bool,
    /// A timeout is in doubt until an acknowledgement confirms it (RFC 5682); needs [`Tcp::undo`].
    pub frto: bool,
    /// Unnecessary reductions are undone (RFC 4015, RFC 3708).
    pub undo: bool,
    /// Answer to marks, for algorithms that need neither [`EcnMode::Accurate`] nor [`EcnMode::L4s`].
    pub ecn: EcnMode,
    /// Rates are sampled for each acknowledgement; off for an algorithm that needs none.
    pub samples_rates: bool,
    /// The receiver reports duplicates (RFC 2883).
    pub dsack: bool,
}

/// Behaviour below TCP that is not a link's own setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Packets in the device below the bottleneck's qdisc, in addition to the one being sent.
    pub packets: usize,
    /// Time of an acknowledgement on the access links, in picoseconds a byte. One with SACK blocks therefore
    /// arrives later than one without; the latter may arrive at the instant of a departure.
    pub ack_access_ps: u32,
    /// Packets are lost before the queue (the testbed's emulator), not at the far end (ns-3).
    pub loses_before_queue: bool,
    /// After a decrease of a link's delay, later packets overtake earlier ones (ns-3); otherwise they wait
    /// for them (the emulator).
    pub packets_overtake: bool,
}

/// A TCP and the device below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Name as written in plans.
    pub name: &'static str,
    /// TCP of the hosts.
    pub tcp: Tcp,
    /// Device below the TCP of hosts and links.
    pub device: Device,
    /// Algorithms and qdiscs compute like those in ns-3, if ns-3 has them.
    pub is_ns3: bool,
    /// Parameters of algorithms and qdiscs in this stack, if a run does not set them: name of the algorithm
    /// or qdisc, of the parameter, value.
    pub defaults: &'static [(&'static str, &'static str, &'static str)],
}

impl Tcp {
    /// The part of [`Stack::NS3`].
    pub const NS3: Self = Self {
        mss: 1448,
        overhead: 54,
        syn_bytes: 58,
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
        syn_bytes: 66,
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
        is_ns3: true,
        defaults: &[("pie", "derandomize", "false"), ("bbr", "pacing_margin", "0")],
    };

    /// The testbed's kernel, within the mechanisms implemented here.
    pub const LINUX: Self = Self {
        name: "linux",
        tcp: Tcp::LINUX,
        device: Device::LINUX,
        is_ns3: false,
        defaults: &[("cubic", "hystart", "classic"), ("cubic", "linux_growth", "true")],
    };

    /// All presets.
    pub const ALL: [Self; 2] = [Self::NS3, Self::LINUX];

    /// The preset `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stack| stack.name == name)
    }

    /// The algorithm `cc` of `registry` for a sender of this stack that fills the fields in `supplied`. It
    /// controls a single flow and has the stack's defaults, except where `cc` sets a parameter.
    ///
    /// # Errors
    ///
    /// The errors of [`Registry::build`].
    pub fn algorithm(
        &self,
        registry: &Registry,
        cc: &Spec,
        supplied: &[Field],
    ) -> Result<Box<dyn CongestionControl>, SpecError> {
        let cc = self.with_defaults(&registry.of_single_flow(cc.clone()));
        let algorithm = registry.fit(&cc, supplied)?;
        if self.is_ns3 { ns3::build(algorithm, &cc) } else { algorithm.build(&cc) }
    }

    /// The qdisc `spec` with this stack's defaults.
    ///
    /// # Errors
    ///
    /// The errors of [`qdisc::build`].
    pub(crate) fn qdisc<P: Packet + Send + 'static>(
        &self,
        spec: &Spec,
    ) -> Result<Box<dyn Qdisc<P> + Send>, SpecError> {
        if self.is_ns3 { qdisc::build_as_ns3(spec) } else { qdisc::build(spec) }
    }

    /// `spec` of an algorithm or a qdisc, completed with this stack's defaults.
    pub fn with_defaults(&self, spec: &Spec) -> Spec {
        let defaults = self.defaults.iter().filter(|(kind, ..)| *kind == spec.kind);
        defaults.fold(spec.clone(), |mut spec, (_, param, value)| {
            spec.params.entry((*param).into()).or_insert_with(|| Value::Text((*value).into()));
            spec
        })
    }

    /// The TCP of a connection with this algorithm. Its ECN is accurate or L4S if `cc` needs that (in Linux
    /// TCP_CONG_NEEDS_ECN, in ns-3 TcpDctcp::Init). Rates that `cc` does not need are not sampled.
    pub(crate) fn tcp_for(&self, registry: &Registry, cc: &Spec) -> Tcp {
        let known = registry.named(&cc.kind);
        let needs = |field| known.is_none_or(|algorithm| algorithm.needs.contains(&field));
        let tcp = self.tcp;
        Tcp {
            ecn: match known {
                Some(_) if needs(Field::Ect1) => EcnMode::L4s,
                Some(_) if needs(Field::EcnCe) => EcnMode::Accurate,
                _ => tcp.ecn,
            },
            samples_rates: needs(Field::DeliveryRate) || needs(Field::SendRate),
            tells_one_way: tcp.tells_one_way && ONE_WAY.contains(&cc.kind.as_str()),
            tells_handshake: tcp.tells_handshake && HANDSHAKE.contains(&cc.kind.as_str()),
            lost_is_change: tcp.lost_is_change && cc.kind == BBR,
            ..tcp
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::cc::Measurement;
    use forebay_core::units::{ByteCount, Timestamp};

    use super::*;

    /// The algorithms of core.
    const BUILTIN: &Registry = &Registry::BUILTIN;

    #[test]
    fn wire_sizes_are_those_of_the_two_worlds() {
        assert_eq!(Tcp::NS3.mss + Tcp::NS3.overhead, 1502);
        assert_eq!(Tcp::LINUX.mss + Tcp::LINUX.overhead, 1514);
    }

    /// The window after a first window of ten segments was acknowledged at once.
    fn grown(stack: Stack, cc: &str) -> u64 {
        let mut cc = stack.algorithm(BUILTIN, &cc.parse().unwrap(), &Field::ALL).unwrap();
        let mss = ByteCount::new(1000);
        cc.init(Timestamp::ZERO, mss, mss * 10);
        let measurement = Measurement { acked: mss * 10, ..Measurement::default() };
        cc.on_measurement(Timestamp::ZERO, &measurement);
        cc.send_limits().cwnd.unwrap().as_u64() / 1000
    }

    #[test]
    fn algorithms_compute_as_those_of_their_stack() {
        assert_eq!(Stack::ALL.map(|stack| grown(stack, "newreno")), [11, 20]);
        for stack in Stack::ALL {
            for algorithm in BUILTIN.algorithms() {
                let built = stack.algorithm(BUILTIN, &Spec::named(algorithm.name), &Field::ALL);
                assert!(built.is_ok(), "{} {}", stack.name, algorithm.name);
            }
        }
        let linux = "cubic(linux_growth=true)".parse().unwrap();
        let cubic = Stack::NS3.algorithm(BUILTIN, &linux, &[]);
        let error = cubic.err().unwrap().to_string();
        assert!(error.starts_with("linux_growth = true: allowed is false"), "{error}");
    }

    #[test]
    fn a_stack_sets_what_a_run_leaves_out() {
        let with =
            |stack: Stack, spec: &str| stack.with_defaults(&spec.parse().unwrap()).to_string();
        assert_eq!(with(Stack::NS3, "pie(limit=9p)"), "pie(derandomize=false, limit=9p)");
        assert_eq!(with(Stack::NS3, "pie(derandomize=true)"), "pie(derandomize=true)");
        assert_eq!(with(Stack::LINUX, "pie"), "pie");
        assert_eq!(with(Stack::LINUX, "cubic"), "cubic(hystart=classic, linux_growth=true)");
        let off = "cubic(hystart=off, linux_growth=false)";
        assert_eq!(with(Stack::LINUX, off), off);
    }

    #[test]
    fn one_way_delays_reach_algorithms_that_need_them() {
        let tells = |stack: Stack, kind| stack.tcp_for(BUILTIN, &Spec::named(kind)).tells_one_way;
        assert_eq!(["lp", "ledbat", "cubic"].map(|it| tells(Stack::NS3, it)), [true, true, false]);
        assert!(!tells(Stack::LINUX, "lp"));
    }

    #[test]
    fn ns3_tells_bbr_alone_of_the_handshake() {
        let tcp = |kind| Stack::NS3.tcp_for(BUILTIN, &Spec::named(kind));
        let told = ["bbr", "cubic"].map(tcp).map(|tcp| [tcp.tells_handshake, tcp.lost_is_change]);
        assert_eq!(told, [[true; 2], [false; 2]]);
    }

    #[test]
    fn stacks_are_found_by_name() {
        assert_eq!(Stack::named("ns3"), Some(Stack::NS3));
        assert_eq!(Stack::named("ns4"), None);
    }

    #[test]
    fn algorithm_that_needs_marks_gets_each_one() {
        for stack in Stack::ALL {
            let ecn = |kind| stack.tcp_for(BUILTIN, &Spec::named(kind)).ecn;
            let expected = [EcnMode::Accurate, EcnMode::L4s, stack.tcp.ecn];
            assert_eq!([ecn("dctcp"), ecn("prague"), ecn("cubic")], expected);
        }
    }
}
