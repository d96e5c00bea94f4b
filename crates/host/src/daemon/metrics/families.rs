//! Every metric of a box: its name, its meaning, and its source in the status.
//!
//! Names follow the conventions of Prometheus (prometheus.io/docs/practices/naming): one prefix, base units
//! (seconds, bytes), the unit last, and `_total` at the end of counters. Labels are few: names of bundles and
//! devices from the box's own file, and a few fixed words of the program.

use super::super::status::{BundleStatus, ShapingStatus, Status, WatchingStatus};

/// Behaviour of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Values that only grow, from 0 at the start of the box.
    Counter,
    /// Values that go up and down.
    Gauge,
}

impl MetricKind {
    /// The name in the exposition formats.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// One value with the values of its labels, in the order of [`Family::labels`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub labels: Vec<String>,
    pub value: f64,
}

/// Source of values. An unknown value is `None` and has no sample.
#[derive(Clone, Copy)]
enum Source {
    /// One value of a box.
    Box(fn(&Status) -> Option<f64>),
    /// One value of each bundle.
    Bundle(fn(&BundleStatus) -> Option<f64>),
    /// One value of each bundle of a sendbox.
    Shaping(fn(&ShapingStatus) -> Option<f64>),
    /// One value of each bundle of a receivebox.
    Watching(fn(&WatchingStatus) -> Option<f64>),
    /// Several values, by these labels.
    Labelled(&'static [&'static str], fn(&Status) -> Vec<Sample>),
}

/// A metric.
pub struct Family {
    /// The name under which it is scraped.
    pub name: &'static str,
    /// Behaviour of its values.
    pub kind: MetricKind,
    /// Meaning of its values, as a sentence with a full stop.
    pub help: &'static str,
    source: Source,
}

impl Family {
    /// Names of its labels.
    pub fn labels(&self) -> &'static [&'static str] {
        match self.source {
            Source::Box(_) => &[],
            Source::Bundle(_) | Source::Shaping(_) | Source::Watching(_) => &["bundle"],
            Source::Labelled(labels, _) => labels,
        }
    }

    /// Roles of the boxes that have it.
    pub const fn boxes(&self) -> &'static str {
        match self.source {
            Source::Shaping(_) => "sendbox",
            Source::Watching(_) => "receivebox",
            Source::Box(_) | Source::Bundle(_) | Source::Labelled(..) => "both",
        }
    }

    /// The values of a box in this state.
    pub(super) fn samples(&self, status: &Status) -> Vec<Sample> {
        let of_bundles = |read: &dyn Fn(&BundleStatus) -> Option<f64>| -> Vec<Sample> {
            let sample = |bundle: &BundleStatus| {
                Some(Sample { labels: vec![bundle.name.clone()], value: read(bundle)? })
            };
            status.bundles.iter().filter_map(sample).collect()
        };
        match self.source {
            Source::Box(read) => {
                read(status).map(|value| Sample { labels: Vec::new(), value }).into_iter().collect()
            }
            Source::Bundle(read) => of_bundles(&read),
            Source::Shaping(read) => {
                of_bundles(&|bundle: &BundleStatus| read(bundle.shaping.as_ref()?))
            }
            Source::Watching(read) => {
                of_bundles(&|bundle: &BundleStatus| read(bundle.watching.as_ref()?))
            }
            Source::Labelled(_, read) => read(status),
        }
    }
}

const fn family(name: &'static str, help: &'static str, source: Source) -> Family {
    let kind = if ends_in_total(name) { MetricKind::Counter } else { MetricKind::Gauge };
    Family { name, kind, help, source }
}

const fn ends_in_total(name: &str) -> bool {
    matches!(name.as_bytes(), [.., b'_', b't', b'o', b't', b'a', b'l'])
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn bytes_per_second(bits_per_sec: u64) -> f64 {
    bits_per_sec as f64 / 8.0
}

fn switch(is_on: bool) -> f64 {
    f64::from(u8::from(is_on))
}

fn build_info(status: &Status) -> Vec<Sample> {
    vec![Sample { labels: vec![status.version.clone(), status.role.to_string()], value: 1.0 }]
}

fn device_events(status: &Status) -> Vec<Sample> {
    let ports = status.ports.iter();
    let events = ports.flat_map(|port| {
        port.counters.iter().map(|(event, count)| Sample {
            labels: vec![port.device.clone(), event.clone()],
            value: *count as f64,
        })
    });
    events.collect()
}

fn rejected(status: &Status) -> Vec<Sample> {
    let rejected = status.messages.rejected.iter();
    rejected
        .map(|(reason, count)| Sample { labels: vec![reason.clone()], value: *count as f64 })
        .collect()
}

fn states(status: &Status) -> Vec<Sample> {
    let shaped = status.bundles.iter().filter_map(|it| Some((&it.name, it.shaping.as_ref()?)));
    shaped
        .map(|(bundle, shaping)| Sample {
            labels: vec![bundle.clone(), shaping.decision.state.clone()],
            value: 1.0,
        })
        .collect()
}

/// All metrics, in the order in which they are scraped.
pub const FAMILIES: &[Family] = &[
    family(
        "forebay_build_info",
        "Version and role of the box; always 1.",
        Source::Labelled(&["version", "role"], build_info),
    ),
    family(
        "forebay_uptime_seconds",
        "Time since the start of the box.",
        Source::Box(|it| Some(seconds(it.uptime_ns))),
    ),
    family(
        "forebay_dry_run",
        "1: the box measures and decides but does not shape.",
        Source::Box(|it| Some(switch(it.dry_run))),
    ),
    family(
        "forebay_conditions_failed",
        "Failed conditions of the devices. Until all hold, a sendbox leaves packets to the kernel \
         and a receivebox reports nothing.",
        Source::Box(|it| Some(it.failed_conditions.len() as f64)),
    ),
    family(
        "forebay_device_events_total",
        "Frames of a device by their fate; names as the counters in the status.",
        Source::Labelled(&["device", "event"], device_events),
    ),
    family(
        "forebay_messages_sent_total",
        "Messages sent to other boxes.",
        Source::Box(|it| Some(it.messages.sent as f64)),
    ),
    family(
        "forebay_messages_sent_bytes_total",
        "UDP payload bytes of the messages sent.",
        Source::Box(|it| Some(it.messages.sent_bytes as f64)),
    ),
    family(
        "forebay_messages_received_total",
        "Datagrams received on the socket for messages, accepted or not.",
        Source::Box(|it| Some(it.messages.received as f64)),
    ),
    family(
        "forebay_messages_received_bytes_total",
        "UDP payload bytes of these datagrams.",
        Source::Box(|it| Some(it.messages.received_bytes as f64)),
    ),
    family(
        "forebay_messages_accepted_total",
        "Messages accepted as authentic and new.",
        Source::Box(|it| Some(it.messages.accepted as f64)),
    ),
    family(
        "forebay_messages_rejected_total",
        "Rejected datagrams, by reason.",
        Source::Labelled(&["reason"], rejected),
    ),
    family(
        "forebay_trace_rows_lost_total",
        "Rows of the trace that could not be written.",
        Source::Box(|it| Some(it.trace_rows_lost as f64)),
    ),
    family(
        "forebay_log_lines_lost_total",
        "Lines of the log that could not be written.",
        Source::Box(|it| Some(it.log_lines_lost as f64)),
    ),
    family(
        "forebay_uplink_rate_bytes_per_second",
        "Rate of the uplink that all bundles of a sendbox share, if configured.",
        Source::Box(|it| it.uplink_bps.map(bytes_per_second)),
    ),
    family(
        "forebay_bundle_packets_total",
        "Packets of the bundle: sent by a sendbox, seen by a receivebox.",
        Source::Bundle(|it| Some(it.packets as f64)),
    ),
    family(
        "forebay_bundle_bytes_total",
        "Bytes of these packets, as layer-2 frames without FCS.",
        Source::Bundle(|it| Some(it.bytes as f64)),
    ),
    family(
        "forebay_bundle_peer_up",
        "1: the other box of the bundle is heard.",
        Source::Bundle(|it| Some(switch(it.peer.state == "alive"))),
    ),
    family(
        "forebay_bundle_peer_silence_seconds",
        "Time since the last authentic message of the other box, if there was one.",
        Source::Bundle(|it| it.peer.heard_ns.map(seconds)),
    ),
    family(
        "forebay_bundle_path_mtu_bytes",
        "Largest IP packet that reached the receivebox, once known.",
        Source::Bundle(|it| it.peer.path_mtu.map(|mtu| f64::from(mtu.bytes))),
    ),
    family(
        "forebay_bundle_scope_differences",
        "Prefixes and keys by which the two boxes assign different packets to the bundle, once \
         both boxes have exchanged theirs.",
        Source::Bundle(|it| it.differences.as_ref().map(|told| told.len() as f64)),
    ),
    family(
        "forebay_bundle_alarm",
        "1: a problem needs an operator; forebay status names it.",
        Source::Bundle(|it| {
            let shaping = it.shaping.as_ref().is_some_and(|it| it.alarm.is_some());
            let watching = it.watching.as_ref().is_some_and(|it| it.alarm.is_some());
            Some(switch(shaping || watching))
        }),
    ),
    family(
        "forebay_bundle_state",
        "The state that the bundle is in; always 1.",
        Source::Labelled(&["bundle", "state"], states),
    ),
    family(
        "forebay_bundle_shaped",
        "1: the sendbox limits the bundle's rate; 0: packets leave unshaped.",
        Source::Shaping(|it| Some(switch(it.decision.rate_bps.is_some()))),
    ),
    family(
        "forebay_bundle_rate_bytes_per_second",
        "The rate of the shaper, while the bundle is shaped.",
        Source::Shaping(|it| it.decision.rate_bps.map(bytes_per_second)),
    ),
    family(
        "forebay_bundle_share_bytes_per_second",
        "Share of the uplink that the bundle may send, if there is an uplink.",
        Source::Shaping(|it| it.share.map(|share| bytes_per_second(share.rate_bps))),
    ),
    family(
        "forebay_bundle_sent_bytes_per_second",
        "Rate sent by the sendbox in the last second.",
        Source::Shaping(|it| Some(bytes_per_second(it.last_second.sent_bps))),
    ),
    family(
        "forebay_bundle_delivered_bytes_per_second",
        "Rate reported by the receivebox for the last second.",
        Source::Shaping(|it| Some(bytes_per_second(it.last_second.delivered_bps))),
    ),
    family(
        "forebay_bundle_bottleneck_bytes_per_second",
        "Estimated rate of the bottleneck, once there is an estimate.",
        Source::Shaping(|it| it.decision.bottleneck_bps.map(bytes_per_second)),
    ),
    family(
        "forebay_bundle_window_bytes",
        "Congestion window of the bundle's algorithm, if it has one.",
        Source::Shaping(|it| it.decision.cwnd_bytes.map(|bytes| bytes as f64)),
    ),
    family(
        "forebay_bundle_in_flight_bytes",
        "Bytes in flight between the sendbox and the receivebox, if known.",
        Source::Shaping(|it| it.decision.in_flight_bytes.map(|bytes| bytes as f64)),
    ),
    family(
        "forebay_bundle_min_rtt_seconds",
        "Base round-trip time between the boxes, once it is measured.",
        Source::Shaping(|it| it.decision.min_rtt_ns.map(seconds)),
    ),
    family(
        "forebay_bundle_network_queue_delay_seconds",
        "Standing queueing delay beyond the sendbox, once it is measured.",
        Source::Shaping(|it| it.decision.queue_delay_ns.map(seconds)),
    ),
    family(
        "forebay_bundle_queue_delay_seconds",
        "Delay of bytes in the sendbox's own queue in the last second, if any left.",
        Source::Shaping(|it| it.last_second.queue_delay_ns.map(seconds)),
    ),
    family(
        "forebay_bundle_sparse_packets_per_second",
        "Packets of sparse flows in the last second: their flow had no other packet in the \
         sendbox's own queue on arrival.",
        Source::Shaping(|it| Some(it.sparse_wait.packets as f64)),
    ),
    family(
        "forebay_bundle_sparse_wait_p50_seconds",
        "Median wait of these packets in the sendbox's own queue in the last second, if there were any.",
        Source::Shaping(|it| it.sparse_wait.p50_ns.map(seconds)),
    ),
    family(
        "forebay_bundle_sparse_wait_p99_seconds",
        "99th percentile of that wait.",
        Source::Shaping(|it| it.sparse_wait.p99_ns.map(seconds)),
    ),
    family(
        "forebay_bundle_shaping_saves_seconds",
        "Delay that shaping saves for packets of sparse flows, once measured.",
        Source::Shaping(|it| it.saves_ns.map(seconds)),
    ),
    family(
        "forebay_bundle_delay_varies_seconds",
        "Variation of the path's delay without a queue, if above one millisecond.",
        Source::Shaping(|it| it.varies_ns.map(seconds)),
    ),
    family(
        "forebay_bundle_queue_bytes",
        "Bytes in the sendbox's own queue.",
        Source::Shaping(|it| Some(it.queue.bytes as f64)),
    ),
    family(
        "forebay_bundle_queue_packets",
        "Packets in the sendbox's own queue.",
        Source::Shaping(|it| Some(it.queue.packets as f64)),
    ),
    family(
        "forebay_bundle_queue_flows",
        "Flows in the sendbox's own queue, if its discipline separates flows.",
        Source::Shaping(|it| it.flows.map(f64::from)),
    ),
    family(
        "forebay_bundle_dropped_packets_total",
        "Packets that the sendbox's own queue dropped.",
        Source::Shaping(|it| Some(it.counters.drops_queue as f64)),
    ),
    family(
        "forebay_bundle_marked_packets_total",
        "Packets that the sendbox's own queue marked (ECN CE) instead of dropping.",
        Source::Shaping(|it| Some(it.marks_queue as f64)),
    ),
    family(
        "forebay_bundle_boundaries_sent_total",
        "Boundary packets sent while the receivebox was expected to report.",
        Source::Shaping(|it| Some(it.counters.boundaries_sent as f64)),
    ),
    family(
        "forebay_bundle_boundaries_matched_total",
        "Boundary packets matched by a report.",
        Source::Shaping(|it| Some(it.counters.boundaries_matched as f64)),
    ),
    family(
        "forebay_bundle_boundaries_late_total",
        "Matched boundary packets that arrived after one that left later.",
        Source::Shaping(|it| Some(it.counters.boundaries_late as f64)),
    ),
    family(
        "forebay_bundle_reports_unmatched_total",
        "Reports that matched no boundary packet.",
        Source::Shaping(|it| Some(it.reports_unmatched as f64)),
    ),
    family(
        "forebay_bundle_reports_ambiguous_total",
        "Reports that match several identical packets, and are ignored.",
        Source::Shaping(|it| Some(it.reports_ambiguous as f64)),
    ),
    family(
        "forebay_bundle_unseen_ratio",
        "Share of the sent bytes that the receivebox does not see, 0 to 1.",
        Source::Shaping(|it| Some(it.unseen)),
    ),
    family(
        "forebay_bundle_out_of_order_ratio",
        "Share of boundary packets in the last 4 s that arrived late, 0 to 1.",
        Source::Shaping(|it| Some(it.out_of_order)),
    ),
    family(
        "forebay_bundle_reports_total",
        "Boundary packets reported to the sendbox.",
        Source::Watching(|it| Some(it.reports as f64)),
    ),
    family(
        "forebay_bundle_report_datagrams_total",
        "Datagrams in which these reports left.",
        Source::Watching(|it| Some(it.datagrams as f64)),
    ),
    family(
        "forebay_bundle_reports_dropped_total",
        "Reports dropped because too many waited for the limit on messages.",
        Source::Watching(|it| Some(it.dropped as f64)),
    ),
    family(
        "forebay_bundle_reports_without_sendbox_total",
        "Boundary packets seen while no sendbox was there to report to.",
        Source::Watching(|it| Some(it.without_sendbox as f64)),
    ),
];
