//! Whether a run may be used. The harness's own figures decide, with the same limits for every arm, never the
//! results. A failure of a box is a result. A sendbox that is late, loses packets or hands its traffic back
//! has a valid run, with metrics of its bundle.

use forebay_core::record::{LinkRecord, RunRecord, SUPER_PACKETS};

use crate::experiment::Experiment;

/// A limit of the harness.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Name of the limited quantity.
    pub name: &'static str,
    /// The limit in words, with its reason.
    pub text: &'static str,
}

/// 99 of 100 packets leave the emulator within 1 ms of their time: 2 % of a round trip of 50 ms,
/// and what the prototype's own evaluation allowed for its emulator (0.8 ms).
const LINK_LATENESS_P99_NS: u64 = 1_000_000;
/// 999 of 1000 within 5 ms, a tenth of that round trip: a stall of the emulator stalls the boxes too, and
/// their control attributes it to the path. The limit applies to the processors as well, because after a
/// pause hosts and boxes send one burst.
const LATENESS_P999_NS: u64 = 5_000_000;
/// Nor may the lateness exceed half the time that the link's buffer lasts; for a processor the shallowest
/// buffer counts. A longer stop of the machine makes bursts that a shallow buffer drops, with any controller.
const LATENESS_OF_BUFFER: u32 = 2;
/// 99 of 100 requests are written within 2 ms of their arrival: 4 % of the shortest ideal completion time.
const GENERATOR_LATENESS_P99_NS: u64 = 2_000_000;
/// A backlogged link carries at least 99 % of its rate; arms may differ by more than the missing 1 %. There
/// is no upper limit because departures are virtual. A link can only seem faster if the first packets of a
/// burst are late, and that has its own limit.
const RATE_ACHIEVED_MIN: f64 = 0.99;
/// No processor stops for more than half a round trip of 50 ms. Afterwards hosts and boxes would send a burst
/// that no modelled path makes, and that shallow buffers drop.
const PAUSE_NS: u64 = 25_000_000;
/// With more stolen CPU time, the neighbours determine every figure of CPU use, and soon of time.
const STEAL: f64 = 0.05;

/// The limits, for the report.
pub static LIMITS: &[Limit] = &[
    Limit {
        name: "link lateness",
        text: "p99 at most 1 ms; p99.9 at most 5 ms and at most half the time that a full buffer \
               takes to drain: packets leave the emulator on time",
    },
    Limit {
        name: "link rate",
        text: "at least 99 % of the plan's rate while the link is backlogged for 0.5 s or longer",
    },
    Limit { name: "generator lateness", text: "p99 at most 2 ms: requests are written on time" },
    Limit {
        name: "ring drops",
        text: "none in the emulator: the test harness itself loses no packet",
    },
    Limit { name: "packet log", text: "complete: no packet is missing from the ground truth" },
    Limit {
        name: "stolen CPU time",
        text: "at most 5 %: the hypervisor gives the machine its CPU time",
    },
    Limit {
        name: "processor lateness",
        text: "p99.9 at most 5 ms and at most half the time that the shallowest full buffer takes \
               to drain, never above 25 ms: no processor pauses",
    },
    Limit {
        name: "offloads",
        text: "off on every device, so that each packet is one frame; on only between hosts and a \
               sendbox that queues in the kernel",
    },
];

/// Why the run must not be used; empty if it is valid.
pub fn harness_reasons(experiment: &Experiment, rows: &RunRecord) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut late = |what: String, percentile: &str, value: u64, limit: u64| {
        reasons.extend(too_late(&what, percentile, value, limit));
    };
    for link in &rows.links {
        let what = format!("lateness of link {}", link.name);
        late(what.clone(), "p99", link.lateness_ns[1], LINK_LATENESS_P99_NS);
        late(what, "p99.9", link.lateness_ns[2], lateness_p999_ns(experiment, &link.name));
    }
    let generator = rows.host.generator_lateness_ns[1];
    late("lateness of the generator".into(), "p99", generator, GENERATOR_LATENESS_P99_NS);
    let processor = "lateness of a processor";
    let [_, _, p999, longest] = rows.host.processor_lateness_ns;
    let shallowest = rows.links.iter().map(|link| lateness_p999_ns(experiment, &link.name)).min();
    late(processor.into(), "p99.9", p999, shallowest.unwrap_or(LATENESS_P999_NS));
    late(processor.into(), "longest", longest, PAUSE_NS);
    for link in &rows.links {
        if link.rate_achieved < RATE_ACHIEVED_MIN {
            reasons.push(format!(
                "link {} carried {:.1} % of its rate while backlogged, allowed is 99 % or more",
                link.name,
                link.rate_achieved * 100.0
            ));
        }
        if link.records_lost > 0 {
            let lost = link.records_lost;
            reasons.push(format!("log of link {} lacks {lost} packets, allowed is 0", link.name));
        }
        if link.drops_ring > 0 {
            let LinkRecord { name, drops_ring, .. } = link;
            reasons.push(format!("link {name} lost {drops_ring} packets in a ring, allowed is 0"));
        }
    }
    if rows.host.steal > STEAL {
        let percent = rows.host.steal * 100.0;
        reasons.push(format!("{percent:.1} % of CPU time was stolen, allowed is 5 %"));
    }
    for device in &rows.host.offloads {
        let (unmeant, allowed) =
            if device.contains(SUPER_PACKETS) { ("tso=off", "on") } else { ("=on", "off") };
        if device.contains(unmeant) {
            reasons.push(format!("offloads: {device}, allowed is {allowed}"));
        }
    }
    reasons
}

fn too_late(what: &str, percentile: &str, value: u64, limit: u64) -> Option<String> {
    let [value_ms, limit_ms] = [value, limit].map(|ns| ns as f64 / 1e6);
    (value > limit)
        .then(|| format!("{what}: {percentile} {value_ms:.2} ms, allowed is {limit_ms:.2} ms"))
}

fn lateness_p999_ns(experiment: &Experiment, link: &str) -> u64 {
    let buffer = experiment.link(link).buffer_time();
    let of_buffer = buffer.map(|time| (time / LATENESS_OF_BUFFER).as_nanos());
    of_buffer.map_or(LATENESS_P999_NS, |ns| LATENESS_P999_NS.min(ns as u64))
}

#[cfg(test)]
mod tests {
    use forebay_core::record::{BundleCounters, BundleRecord, HostRecord};
    use forebay_core::spec::{Spec, Value};

    use super::*;
    use crate::metrics::testing;

    #[test]
    fn every_limit_of_the_harness_is_checked() {
        let mut rows = RunRecord {
            links: vec![LinkRecord {
                name: "forward".into(),
                lateness_ns: [0, 1_000_000, 5_000_000, 9_000_000],
                rate_achieved: 0.995,
                ..LinkRecord::default()
            }],
            bundles: vec![BundleRecord { name: "a".into(), ..BundleRecord::default() }],
            host: HostRecord {
                offloads: vec![
                    "eth0: tso=off gso=off".into(),
                    format!("lan, {SUPER_PACKETS}: tso=on gso=on"),
                ],
                processor_lateness_ns: [0, 0, 5_000_000, 25_000_000],
                ..HostRecord::default()
            },
            ..RunRecord::default()
        };
        let experiment = testing::experiment();
        let reasons = |rows: &RunRecord| harness_reasons(&experiment, rows);
        assert_eq!(reasons(&rows), Vec::<String>::new());
        rows.links[0].lateness_ns[1] += 1;
        rows.links[0].lateness_ns[2] += 1;
        rows.links[0].rate_achieved = 0.97;
        rows.links[0].records_lost = 4;
        rows.links[0].drops_ring = 1;
        rows.host.generator_lateness_ns[1] = 3_000_000;
        rows.host.steal = 0.2;
        rows.host.processor_lateness_ns = [0, 0, 5_000_001, 25_000_001];
        rows.host.offloads.push("eth1: tso=on".into());
        rows.host.offloads.push(format!("lan, {SUPER_PACKETS}: tso=off"));
        assert_eq!(reasons(&rows).len(), 11, "{:?}", reasons(&rows));
    }

    #[test]
    fn what_a_box_fails_at_is_a_result() {
        let failing = BundleRecord {
            counters: BundleCounters {
                lateness_ns: [0, 2_000_000, 900_000_000, 900_000_000],
                ..BundleCounters::default()
            },
            drops_ring: 2,
            hand_backs: 1,
            boundaries_lost: 1,
            rows_lost: 1,
            ..BundleRecord::default()
        };
        let rows = RunRecord { bundles: vec![failing], ..RunRecord::default() };
        assert_eq!(harness_reasons(&testing::experiment(), &rows), Vec::<String>::new());
    }

    #[test]
    fn shallow_buffer_tightens_the_lateness_limit() {
        let mut experiment = testing::experiment();
        let limit = |queue: &str| Spec::named("fifo").with("limit", Value::Text(queue.into()));
        experiment.reverse.service = experiment.forward.service.clone();
        experiment.reverse.qdisc = limit("1200p");
        // 1514 bytes take 126 us.
        for (queue, limit_ns) in [
            ("10p", 630_833),
            ("79p", 4_983_583),
            ("1200p", 5_000_000),
            ("2ms", 1_000_000),
            ("1ms", 630_833),
        ] {
            experiment.forward.qdisc = limit(queue);
            assert_eq!(lateness_p999_ns(&experiment, "forward"), limit_ns, "{queue}");
            assert_eq!(lateness_p999_ns(&experiment, "reverse"), 5_000_000);
        }
    }
}
