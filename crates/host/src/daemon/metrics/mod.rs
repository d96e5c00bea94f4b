//! The status of a box as metrics for Prometheus and other readers of its text formats.
//!
//! `[metrics] listen` switches them on. A thread of its own serves them (`server`). It queries the status by
//! the control socket, like `forebay status`, at most once a second. The packet thread neither waits for a
//! client nor knows of one.

mod families;
mod server;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

pub use self::families::{FAMILIES, Family, MetricKind};
pub(super) use self::server::Server;
use super::status::Status;

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// OpenMetrics 1.0.0, which Prometheus requests.
    OpenMetrics,
    /// The format of Prometheus, version 0.0.4, for clients that do not request OpenMetrics.
    Prometheus,
}

impl Format {
    /// The format for a client with this `Accept` header. Prometheus names OpenMetrics if it supports it.
    fn accepted(accept: &str) -> Self {
        let names = accept.split(',').map(|range| range.split(';').next().unwrap_or("").trim());
        let mut names = names.map(str::to_ascii_lowercase);
        let takes_openmetrics = names.any(|name| name == "application/openmetrics-text");
        if takes_openmetrics { Self::OpenMetrics } else { Self::Prometheus }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The metrics of a box in this state.
fn encode(status: Status, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(status)));
    let mut metrics = String::new();
    match format {
        Format::OpenMetrics => text::encode(&mut metrics, &registry)?,
        Format::Prometheus => prometheus_text::encode(&mut metrics, &registry)?,
    }
    Ok(metrics)
}

#[derive(Debug)]
struct Snapshot(Status);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in FAMILIES {
            let samples = family.samples(&self.0);
            // A family without samples would be a name without data.
            if samples.is_empty() {
                continue;
            }
            let kind = match family.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
            };
            // The encoder itself appends the suffix of a counter's name.
            let stem = family.name.strip_suffix("_total").unwrap_or(family.name);
            let mut metric = encoder.encode_descriptor(stem, family.help, None, kind)?;
            for sample in &samples {
                let names = family.labels().iter().copied();
                let labels: Vec<(&str, &str)> =
                    names.zip(sample.labels.iter().map(String::as_str)).collect();
                if labels.is_empty() {
                    put(&mut metric, family.kind, sample.value)?;
                } else {
                    put(&mut metric.encode_family(&labels)?, family.kind, sample.value)?;
                }
            }
        }
        Ok(())
    }
}

fn put(metric: &mut MetricEncoder<'_>, kind: MetricKind, value: f64) -> fmt::Result {
    match kind {
        MetricKind::Counter => metric.encode_counter::<NoLabelSet, f64, f64>(&value, None),
        MetricKind::Gauge => metric.encode_gauge(&value),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::daemon::Role;
    use crate::daemon::status::{
        BundleStatus, LastSecond, PathMtuStatus, PeerStatus, PortStatus, ShapingStatus,
        SparseWaitStatus, WatchingStatus,
    };

    fn sendbox() -> Status {
        let mut shaping = ShapingStatus {
            last_second: LastSecond {
                sent_bps: 80_000_000,
                delivered_bps: 72_000_000,
                queue_delay_ns: Some(12_500_000),
            },
            ..ShapingStatus::default()
        };
        shaping.sparse_wait =
            SparseWaitStatus { packets: 40, p50_ns: Some(1_500_000), p99_ns: Some(20_000_000) };
        shaping.decision.state = "shaping".into();
        shaping.decision.rate_bps = Some(96_000_000);
        shaping.counters.drops_queue = 7;
        let bundle = BundleStatus {
            name: "berlin".into(),
            bytes: 123_456,
            peer: PeerStatus { state: "alive".into(), ..PeerStatus::default() },
            shaping: Some(shaping),
            ..BundleStatus::default()
        };
        let port = PortStatus {
            device: "la\"n\\0".into(),
            counters: vec![("captured".into(), 5)],
            ..PortStatus::default()
        };
        Status {
            ports: vec![port],
            bundles: vec![bundle],
            uptime_ns: 1_500_000_000,
            ..Status::new(Role::Sendbox, false)
        }
    }

    #[test]
    fn metrics_use_base_units_and_omit_unknowns() {
        let told = encode(sendbox(), Format::OpenMetrics).unwrap();
        for line in [
            "# TYPE forebay_bundle_bytes counter",
            "forebay_bundle_bytes_total{bundle=\"berlin\"} 123456.0",
            "# TYPE forebay_bundle_queue_delay_seconds gauge",
            "forebay_bundle_queue_delay_seconds{bundle=\"berlin\"} 0.0125",
            "forebay_bundle_sparse_packets_per_second{bundle=\"berlin\"} 40.0",
            "forebay_bundle_sparse_wait_p50_seconds{bundle=\"berlin\"} 0.0015",
            "forebay_bundle_sparse_wait_p99_seconds{bundle=\"berlin\"} 0.02",
            "forebay_bundle_rate_bytes_per_second{bundle=\"berlin\"} 12000000.0",
            "forebay_bundle_delivered_bytes_per_second{bundle=\"berlin\"} 9000000.0",
            "forebay_bundle_state{bundle=\"berlin\",state=\"shaping\"} 1.0",
            "forebay_bundle_peer_up{bundle=\"berlin\"} 1.0",
            "forebay_uptime_seconds 1.5",
            "# EOF",
        ] {
            assert!(told.lines().any(|it| it == line), "{line} is missing in\n{told}");
        }
        for unknown in ["min_rtt", "uplink", "peer_silence", "reports_dropped", "share"] {
            assert!(!told.contains(unknown), "{unknown} in\n{told}");
        }
    }

    #[test]
    fn device_name_cannot_break_out_of_label() {
        let told = encode(sendbox(), Format::OpenMetrics).unwrap();
        let line = r#"forebay_device_events_total{device="la\"n\\0",event="captured"} 5.0"#;
        assert!(told.lines().any(|it| it == line), "{told}");
    }

    #[test]
    fn older_format_types_totals_and_has_no_eof() {
        let told = encode(sendbox(), Format::Prometheus).unwrap();
        assert!(told.contains("\n# TYPE forebay_bundle_bytes_total counter\n"), "{told}");
        assert!(!told.contains("# EOF"), "{told}");
    }

    #[test]
    fn a_client_gets_openmetrics_where_it_takes_it() {
        for (accept, format) in [
            ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", Format::OpenMetrics),
            ("text/plain;version=0.0.4;q=1, Application/OpenMetrics-Text", Format::OpenMetrics),
            ("application/openmetrics-text-like", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("", Format::Prometheus),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }

    #[test]
    fn names_keep_to_the_conventions() {
        let names: BTreeSet<&str> = FAMILIES.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), FAMILIES.len(), "a name stands twice");
        for Family { name, kind, help, .. } in FAMILIES {
            let is_letter =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            let is_plain = name.bytes().all(is_letter);
            assert!(is_plain && name.starts_with("forebay_"), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name}");
            let units = ["_ms", "_us", "_ns", "_bps", "_bits", "_percent", "_milliseconds"];
            assert!(!units.iter().any(|unit| name.contains(unit)), "{name}: not a base unit");
            assert!(help.ends_with('.') && !help.contains(['\n', '\\']), "{name}: {help}");
        }
    }

    #[test]
    fn rules_and_dashboard_use_existing_metrics() {
        let rules = include_str!("../../../../../packaging/prometheus/forebay.rules.yml");
        let dashboard = include_str!("../../../../../packaging/grafana/forebay.json");
        for (file, text) in [("forebay.rules.yml", rules), ("forebay.json", dashboard)] {
            let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let asked: BTreeSet<&str> = words.filter(|word| word.starts_with("forebay_")).collect();
            assert!(asked.len() > 10, "{file}: {asked:?}");
            for name in asked {
                assert!(FAMILIES.iter().any(|family| family.name == name), "{file}: {name}");
            }
        }
        // Each rule gives advice to the operator.
        let count = |part: &str| rules.matches(part).count();
        let alerts = count("- alert: Forebay");
        for part in
            ["\n        expr: ", "\n          summary: ", "\n          runbook: >-\n", "severity: "]
        {
            assert_eq!(count(part), alerts, "{part}");
        }
        // The test of the rules expects each alert.
        let tests = include_str!("../../../../../packaging/prometheus/forebay.rules.test.yml");
        for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
            assert!(tests.contains(&format!("alertname=\"{alert}\"")), "{alert}");
        }
    }

    #[test]
    fn every_metric_has_a_sample_in_some_box() {
        let mut full = sendbox();
        full.uplink_bps = Some(1);
        full.messages.add_rejected("forged", 1);
        let bundle = &mut full.bundles[0];
        bundle.differences = Some(Vec::new());
        bundle.peer.heard_ns = Some(1);
        bundle.peer.path_mtu = Some(PathMtuStatus { bytes: 1, tried: 1 });
        bundle.watching = Some(WatchingStatus::default());
        let shaping = bundle.shaping.as_mut().unwrap();
        shaping.share = Some(Default::default());
        shaping.flows = Some(1);
        shaping.saves_ns = Some(1);
        shaping.varies_ns = Some(1);
        let decision = &mut shaping.decision;
        for field in [
            &mut decision.bottleneck_bps,
            &mut decision.cwnd_bytes,
            &mut decision.in_flight_bytes,
            &mut decision.min_rtt_ns,
            &mut decision.queue_delay_ns,
        ] {
            *field = Some(1);
        }
        for family in FAMILIES {
            let samples = family.samples(&full);
            assert_eq!(samples.len(), 1, "{}", family.name);
            assert_eq!(samples[0].labels.len(), family.labels().len(), "{}", family.name);
        }
    }
}
