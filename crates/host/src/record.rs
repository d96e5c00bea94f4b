//! What a sendbox leaves behind of a bundle, as typed rows: those of its trace and its status.
//!
//! All times are nanoseconds on the machine's monotonic clock (`CLOCK_MONOTONIC`).

use serde::{Deserialize, Serialize};

/// One bundle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BundleRecord {
    /// Name.
    pub name: String,
    /// One per matched boundary, in order of arrival.
    pub epochs: Vec<EpochRecord>,
    /// The sendbox's queue every 10 ms.
    pub queue: Vec<QueueSample>,
    /// Decisions: at every change of the rate by more than 1 % and at least every 100 ms.
    pub decisions: Vec<DecisionRecord>,
    /// Boundaries sent while reports could be expected back.
    pub boundaries_sent: u64,
    /// Boundaries sent that no report could be expected of, and none came.
    #[serde(default)]
    pub boundaries_unexpected: u64,
    /// Boundaries matched by a report.
    pub boundaries_matched: u64,
    /// Matched boundaries that arrived in the order of their departure, and those that arrived late: behind
    /// one that left later and took less time.
    #[serde(default)]
    pub boundaries_in_order: u64,
    /// See `boundaries_in_order`.
    #[serde(default)]
    pub boundaries_late: u64,
    /// Packets dropped by the sendbox's queue.
    pub drops_queue: u64,
    /// Packets and bytes sent by the sendbox.
    pub packets_sent: u64,
    /// Bytes sent by the sendbox.
    pub bytes_sent: u64,
    /// Bytes of messages in both directions.
    pub message_bytes: u64,
    /// How late packets left after their due time (ns): p50, p99, p99.9, max.
    pub lateness_ns: [u64; 4],
    /// Packets lost by the sendbox itself, in the rings of either port or as too long for them, and
    /// not while a fault had stopped it.
    pub drops_ring: u64,
    /// Times that the sendbox left its traffic to the kernel, since it got nothing out or did not
    /// keep up with what came; not after a fault had stopped it.
    #[serde(default)]
    pub hand_backs: u64,
    /// Boundaries that the receivebox saw but could not report, as its process was too slow; not
    /// while a fault had stopped it.
    #[serde(default)]
    pub boundaries_lost: u64,
    /// Rows missing above because the trace's writer was too slow.
    #[serde(default)]
    pub rows_lost: u64,
}

/// One matched boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// When the report was handled at the sendbox.
    pub at_ns: u64,
    /// Identity of the boundary packet: the sampling hash under the all-zero key.
    pub identity: u64,
    /// Identity of the previous matched boundary.
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

/// One decision of a sendbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// When.
    pub at_ns: u64,
    /// The shaper's rate (bits per second); `None`: unshaped.
    pub rate_bps: Option<u64>,
    /// Window of the law (bytes).
    pub cwnd_bytes: Option<u64>,
    /// Bytes outstanding.
    pub in_flight_bytes: Option<u64>,
    /// Base RTT (ns).
    pub min_rtt_ns: Option<u64>,
    /// Standing queueing delay (ns).
    pub queue_delay_ns: Option<u64>,
    /// Estimated bottleneck rate (bits per second).
    pub bottleneck_bps: Option<u64>,
    /// State of the bundle (`measuring`, `shaping`, `draining`, `silent`, `handed_back`, ...).
    pub state: String,
    /// Why.
    pub reason: String,
}

/// A queue at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSample {
    /// When.
    pub at_ns: u64,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}
