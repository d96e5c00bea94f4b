//! A bundle as its sendbox reports it: the rows of its trace, and its counters.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::AddAssign;

use crate::bundle::decision::Decision;
use crate::bundle::sendbox::{Epoch, Sendbox};
use crate::bundle::waits::WaitSecond;
use crate::qdisc::Backlog;
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// One bundle.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct BundleRecord {
    /// Name of the bundle.
    pub name: String,
    /// One per matched boundary, in order of arrival.
    pub epochs: Vec<EpochRecord>,
    /// The sendbox's queue every 10 ms.
    pub queue: Vec<QueueSample>,
    /// Decisions: at every change of the rate by more than 1 % and at least every 100 ms.
    pub decisions: Vec<DecisionRecord>,
    /// Waits of sparse flows in the sendbox's queue, one row for each second with any.
    #[cfg_attr(feature = "serde", serde(default))]
    pub waits: Vec<WaitRecord>,
    /// Counters of the sendbox.
    pub counters: BundleCounters,
    /// Packets lost by the sendbox itself, in the rings of either port or as too long for them, and
    /// not while a fault had stopped it.
    pub drops_ring: u64,
    /// Times that the sendbox left its traffic to the kernel, since it got nothing out or did not keep up
    /// with the arrivals; not after a fault had stopped it.
    pub hand_backs: u64,
    /// Boundaries that the receivebox saw but could not report, as its process was too slow; not
    /// while a fault had stopped it.
    pub boundaries_lost: u64,
    /// Rows missing above because the trace's writer was too slow.
    pub rows_lost: u64,
}

/// Counters of a sendbox since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize), serde(default))]
pub struct BundleCounters {
    /// Boundaries sent while reports could be expected back.
    pub boundaries_sent: u64,
    /// Boundaries sent without the expectation of a report, and without a plausible one.
    pub boundaries_unexpected: u64,
    /// Boundaries matched by a report.
    pub boundaries_matched: u64,
    /// Matched boundaries that arrived in the order of their departure.
    pub boundaries_in_order: u64,
    /// Matched boundaries that arrived late: behind a boundary that left later and took less time.
    pub boundaries_late: u64,
    /// Packets dropped by the sendbox's queue.
    pub drops_queue: u64,
    /// Packets sent by the sendbox, or seen by the receivebox that writes the trace.
    pub packets_sent: u64,
    /// Bytes of these packets, as layer-2 frames without FCS.
    pub bytes_sent: u64,
    /// Bytes of messages in both directions, headers included.
    pub message_bytes: u64,
    /// How late packets left after their due time (ns): p50, p99, p99.9, max.
    pub lateness_ns: [u64; 4],
}

impl BundleCounters {
    /// Counters of a sendbox. Its queue, which core does not know, has dropped `drops_queue` packets.
    pub fn of(sendbox: &Sendbox, drops_queue: u64) -> Self {
        let counters = sendbox.counters();
        Self {
            boundaries_sent: counters.boundaries_sent,
            boundaries_unexpected: counters.boundaries_unexpected,
            boundaries_matched: counters.boundaries_matched,
            boundaries_in_order: counters.order.in_order,
            boundaries_late: counters.order.late,
            drops_queue,
            packets_sent: counters.packets_sent,
            bytes_sent: counters.bytes_sent.as_u64(),
            message_bytes: sendbox.message_bytes().as_u64(),
            lateness_ns: [0; 4],
        }
    }
}

/// Adds the counters of a sendbox that was started again: counts add up, and the worst lateness stays.
impl AddAssign for BundleCounters {
    fn add_assign(&mut self, later: Self) {
        self.boundaries_sent += later.boundaries_sent;
        self.boundaries_unexpected += later.boundaries_unexpected;
        self.boundaries_matched += later.boundaries_matched;
        self.boundaries_in_order += later.boundaries_in_order;
        self.boundaries_late += later.boundaries_late;
        self.drops_queue += later.drops_queue;
        self.packets_sent += later.packets_sent;
        self.bytes_sent += later.bytes_sent;
        self.message_bytes += later.message_bytes;
        for (worst, other) in self.lateness_ns.iter_mut().zip(later.lateness_ns) {
            *worst = (*worst).max(other);
        }
    }
}

/// One matched boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct EpochRecord {
    /// When the report was handled at the sendbox.
    pub at_ns: u64,
    /// Identity of the boundary packet ([`SampleBlock::identity`](crate::bundle::SampleBlock::identity)).
    pub identity: u64,
    /// Identity of the previous matched boundary; 0: there is none.
    pub previous_identity: u64,
    /// Departure of the boundary packet from the sendbox.
    pub sent_ns: u64,
    /// Composed RTT (ns).
    pub rtt_ns: u64,
    /// Raw round trip: report arrival minus departure (ns).
    pub raw_rtt_ns: u64,
    /// Receive rate between the previous boundary and this one (bits per second), 0 if unknown.
    pub delivery_rate_bps: u64,
    /// Epoch size in force (packets).
    pub epoch_packets: u32,
}

impl EpochRecord {
    /// An epoch with a report that was handled at `at`.
    pub fn of(at: Timestamp, epoch: &Epoch) -> Self {
        Self {
            at_ns: at.as_nanos(),
            identity: epoch.identity,
            previous_identity: epoch.previous_identity.unwrap_or(0),
            sent_ns: epoch.sent_at.as_nanos(),
            rtt_ns: nanos(epoch.rtt),
            raw_rtt_ns: nanos(epoch.raw_rtt),
            delivery_rate_bps: epoch.delivery_rate.map_or(0, Rate::as_bits_per_sec),
            epoch_packets: epoch.epoch_size.packets(),
        }
    }
}

/// One decision of a sendbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct DecisionRecord {
    /// When the decision was taken.
    pub at_ns: u64,
    /// The shaper's rate (bits per second); `None`: unshaped.
    pub rate_bps: Option<u64>,
    /// Window of the algorithm (bytes).
    pub cwnd_bytes: Option<u64>,
    /// Bytes outstanding.
    pub in_flight_bytes: Option<u64>,
    /// Base RTT (ns).
    pub min_rtt_ns: Option<u64>,
    /// Standing queueing delay (ns).
    pub queue_delay_ns: Option<u64>,
    /// Estimated bottleneck rate (bits per second).
    pub bottleneck_bps: Option<u64>,
    /// State of the bundle (`measuring`, `shaping`, `draining`, `no_peer`, `handed_back`, ...).
    pub state: String,
    /// Reason for the rate.
    pub reason: String,
}

impl DecisionRecord {
    /// A decision in force at `at`.
    pub fn of(at: Timestamp, decision: &Decision) -> Self {
        Self {
            at_ns: at.as_nanos(),
            rate_bps: decision.rate.map(Rate::as_bits_per_sec),
            cwnd_bytes: decision.cwnd.map(ByteCount::as_u64),
            in_flight_bytes: decision.in_flight.map(ByteCount::as_u64),
            min_rtt_ns: decision.min_rtt.map(nanos),
            queue_delay_ns: decision.queue_delay.map(nanos),
            bottleneck_bps: decision.bottleneck_rate.map(Rate::as_bits_per_sec),
            state: decision.state.into(),
            reason: decision.reason.into(),
        }
    }
}

/// A queue at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct QueueSample {
    /// When the queue was sampled.
    pub at_ns: u64,
    /// Packets in the queue.
    pub packets: u64,
    /// Bytes in the queue.
    pub bytes: u64,
}

impl QueueSample {
    /// Contents of a queue at `at`.
    pub fn of(at: Timestamp, backlog: Backlog) -> Self {
        let (packets, bytes) = (backlog.packets, backlog.bytes.as_u64());
        Self { at_ns: at.as_nanos(), packets, bytes }
    }
}

/// How long packets of sparse flows waited in the sendbox's queue in one second: packets that came while
/// their flow had nothing else in the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct WaitRecord {
    /// When the second ended.
    pub at_ns: u64,
    /// Median (ns).
    pub p50_ns: u64,
    /// 99th percentile (ns).
    pub p99_ns: u64,
    /// Waits (ns, with about 5 % resolution), ascending, and how often each occurred.
    pub counts: Vec<(u64, u32)>,
}

impl WaitRecord {
    /// A second in which packets waited.
    pub fn of(second: &WaitSecond) -> Option<Self> {
        Some(Self {
            at_ns: second.at.as_nanos(),
            p50_ns: nanos(second.p50?),
            p99_ns: nanos(second.p99?),
            counts: second.counts.iter().map(|(wait, count)| (nanos(*wait), *count)).collect(),
        })
    }
}

/// Whole nanoseconds, at most as many as there can be.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
