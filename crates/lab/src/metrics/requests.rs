//! Flow completion times and slowdowns of requests.
//!
//! The completion time runs from the scheduled arrival to the last byte read, so it includes the wait for a
//! busy connection. The slowdown is the ratio to the time on an empty path: one round trip, and the size at
//! the bottleneck's rate, both nominal. An unfinished request counts with its age.

use std::time::Duration;

use forebay_core::units::{ByteCount, Rate};
use serde::Serialize;

use super::Metrics;
use super::entry::Pooling::{Mean, Requests};
use super::entry::{BUNDLER, Entry, OWN, entry};
use super::statistics::{Sorted, mean};

/// Classes of sizes: name, largest size (bytes).
pub const CLASSES: [(&str, u64); 3] =
    [("small", 10_000), ("medium", 1_000_000), ("large", u64::MAX)];

/// The class of a size.
pub fn class(size_bytes: u64) -> &'static str {
    CLASSES.iter().find(|(_, largest)| size_bytes <= *largest).map_or("large", |(name, _)| name)
}

/// The completion time on an empty path; [`Duration::MAX`] on a path without capacity.
pub fn ideal(size_bytes: u64, rtt: Duration, rate: Rate) -> Duration {
    rtt.saturating_add(ByteCount::new(size_bytes).time_at(rate).unwrap_or(Duration::MAX))
}

/// Outcome of one counted request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Bytes of the answer.
    pub size_bytes: u64,
    /// Completion time, or age at the end of the run (ms).
    pub fct_ms: f64,
    /// Completion time over the ideal one; `None` without a nominal rate.
    pub slowdown: Option<f64>,
    /// Another request was unfinished on its connection when it arrived.
    pub queued_behind: bool,
    /// The request finished.
    pub finished: bool,
}

impl Outcome {
    /// One of [`OF_REQUESTS`]; `None` if it is unknown.
    pub fn get(&self, quantity: &str) -> Option<f64> {
        match quantity {
            "slowdown" => self.slowdown,
            "fct_ms" => Some(self.fct_ms),
            _ => None,
        }
    }
}

/// The source of completion times as a measure.
const FCT: &str = "Dukkipati and McKeown, CCR 36(1), 2006";

/// Figures of each request.
pub static OF_REQUESTS: &[Entry] = &[
    entry(
        "slowdown",
        "run flow",
        "completion time / time on an empty path",
        Requests,
        "slowdown",
        "t / (D + 8 size / C)",
        BUNDLER,
    ),
    entry(
        "fct_ms",
        "run flow",
        "ms",
        Requests,
        "completion time",
        "last byte read - scheduled arrival",
        FCT,
    ),
];

/// Metrics of requests.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("slowdown_{q}", "run flow arm", "", Requests,
        "completion time divided by the ideal time on an empty path: round trip + 8 size / rate, \
         both nominal",
        "Qq(t / (D + 8 size / C))", BUNDLER),
    entry("slowdown_geomean", "run flow arm", "", Requests, "geometric mean of the slowdown",
        "exp(mean(ln slowdown))", OWN),
    entry("slowdown_above_1_3", "run flow arm", "", Requests,
        "share of the requests whose slowdown is above 1.3",
        "#{slowdown > 1.3} / #{requests}", OWN),
    entry("slowdown_{class}_{q}", "run flow arm", "", Requests,
        "slowdown of requests of one class: small up to 10 KB, medium up to 1 MB, large",
        "Qq(slowdown), size <= 10 KB, <= 1 MB or above", BUNDLER),
    entry("slowdown_{class}_geomean", "run flow arm", "", Requests,
        "geometric mean of the slowdown of requests of one size class",
        "exp(mean(ln slowdown)), size <= 10 KB, <= 1 MB or above", OWN),
    entry("slowdown_unqueued_{q}", "run flow arm", "", Requests,
        "slowdown of requests that did not wait behind another on their connection",
        "Qq(slowdown), connection free at arrival", OWN),
    entry("slowdown_unqueued_geomean", "run flow arm", "", Requests,
        "geometric mean of the slowdown of requests that did not wait behind another",
        "exp(mean(ln slowdown)), connection free at arrival", OWN),
    entry("slowdown_first", "flow", "", Mean, "slowdown of the flow's first request",
        "slowdown of the request that arrives first", OWN),
    entry("fct_{p}_ms", "run flow arm", "ms", Requests,
        "percentile of the completion time from scheduled arrival to last byte",
        "Qp(t)", FCT),
    entry("fct_{class}_{p}_ms", "run flow arm", "ms", Requests,
        "percentile of the completion time of requests of one class: small up to 10 KB, medium up to 1 MB, large",
        "Qp(t), size <= 10 KB, <= 1 MB or above", FCT),
    entry("requests_total", "run flow arm", "", Requests,
        "requests that arrived after the warm-up",
        "#{arrival >= warm-up}", OWN),
    entry("requests_{class}", "run flow arm", "", Requests,
        "requests of a size class that arrived after the warm-up",
        "#{arrival >= warm-up}, size <= 10 KB, <= 1 MB or above", OWN),
    entry("requests_unfinished", "run flow arm", "", Requests,
        "requests whose last byte did not arrive; they count with their age",
        "#{no last byte}", OWN),
    entry("requests_unfinished_age_mean_ms", "run flow arm", "ms", Requests,
        "mean age of the requests whose last byte did not arrive",
        "mean(end of run - scheduled arrival)", OWN),
    entry("requests_queued_behind", "run flow arm", "", Requests,
        "requests that found their connection busy",
        "#{connection busy at arrival}", OWN),
];

/// The metrics of a set of requests: of a run, of a flow, or of all seeds of an arm.
pub fn metrics(outcomes: &[Outcome]) -> Metrics {
    let mut metrics = Metrics::default();
    if outcomes.is_empty() {
        return metrics;
    }
    let fct = Sorted::new(outcomes.iter().map(|outcome| outcome.fct_ms));
    metrics.put_quantiles("fct_{p}_ms", |share| fct.quantile(share));
    let unfinished = outcomes.iter().filter(|outcome| !outcome.finished);
    metrics.put("requests_total", Some(outcomes.len() as f64));
    metrics.put("requests_unfinished", Some(unfinished.clone().count() as f64));
    metrics.put("requests_unfinished_age_mean_ms", mean(unfinished.map(|outcome| outcome.fct_ms)));
    let queued = outcomes.iter().filter(|outcome| outcome.queued_behind).count();
    metrics.put("requests_queued_behind", Some(queued as f64));
    slowdowns(&mut metrics, "slowdown", outcomes, |_| true);
    metrics.put("slowdown_above_1_3", above(outcomes, 1.3));
    slowdowns(&mut metrics, "slowdown_unqueued", outcomes, |outcome| !outcome.queued_behind);
    for (name, _) in CLASSES {
        let in_class = |outcome: &Outcome| class(outcome.size_bytes) == name;
        slowdowns(&mut metrics, &format!("slowdown_{name}"), outcomes, in_class);
        let in_class = outcomes.iter().filter(|outcome| in_class(outcome));
        let fct = Sorted::new(in_class.map(|outcome| outcome.fct_ms));
        metrics.put_quantiles(&format!("fct_{name}_{{p}}_ms"), |share| fct.quantile(share));
        metrics.put(&format!("requests_{name}"), Some(fct.samples().len() as f64));
    }
    metrics
}

/// The share of the slowdowns that are above `bound`.
fn above(outcomes: &[Outcome], bound: f64) -> Option<f64> {
    let slowdowns = outcomes.iter().filter_map(|outcome| outcome.slowdown);
    mean(slowdowns.map(|slowdown| if slowdown > bound { 1.0 } else { 0.0 }))
}

fn slowdowns(
    metrics: &mut Metrics,
    prefix: &str,
    outcomes: &[Outcome],
    keep: impl Fn(&Outcome) -> bool,
) {
    let kept = outcomes.iter().filter(|outcome| keep(outcome));
    let sorted = Sorted::new(kept.filter_map(|outcome| outcome.slowdown));
    metrics.put_quantiles(&format!("{prefix}_{{q}}"), |share| sorted.quantile(share));
    metrics.put(&format!("{prefix}_geomean"), sorted.geometric_mean());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ideal_time_is_round_trip_plus_transfer() {
        let rate = Rate::from_mbit_per_sec(96);
        // 10,000 bytes at 12 MB/s take 0.8333 ms; facts: slowdown(10 kB, 55 ms) = 1.082.
        let ideal = ideal(10_000, Duration::from_millis(50), rate).as_secs_f64();
        assert!((0.055 / ideal - 1.0820).abs() < 1e-4);
        assert_eq!(super::ideal(1, Duration::from_millis(50), Rate::ZERO), Duration::MAX);
    }

    #[test]
    fn classes_end_at_10_kb_and_1_mb() {
        let classes = [1, 10_000, 10_001, 1_000_000, 1_000_001].map(class);
        assert_eq!(classes, ["small", "small", "medium", "medium", "large"]);
    }

    #[test]
    fn unfinished_requests_count_and_queued_are_separate() {
        let outcome = |size_bytes, fct_ms, slowdown, queued_behind, finished| Outcome {
            size_bytes,
            fct_ms,
            slowdown: Some(slowdown),
            queued_behind,
            finished,
        };
        let metrics = metrics(&[
            outcome(1_000, 50.0, 1.0, false, true),
            outcome(1_000, 100.0, 2.0, true, true),
            outcome(2_000_000, 900.0, 4.0, false, false),
        ]);
        let get = |name: &str| metrics.get(name).unwrap();
        assert_eq!(get("fct_p50_ms"), 100.0);
        assert_eq!((get("fct_small_p50_ms"), get("fct_large_p99_ms")), (75.0, 900.0));
        assert_eq!(get("requests_total"), 3.0);
        assert_eq!(get("requests_unfinished"), 1.0);
        assert_eq!(get("requests_unfinished_age_mean_ms"), 900.0);
        assert_eq!(get("requests_queued_behind"), 1.0);
        assert_eq!(get("slowdown_p50"), 2.0);
        assert!((get("slowdown_geomean") - 2.0).abs() < 1e-12);
        assert_eq!(get("slowdown_above_1_3"), 2.0 / 3.0);
        assert_eq!(get("slowdown_unqueued_p50"), 2.5);
        assert_eq!(get("slowdown_small_p50"), 1.5);
        assert_eq!(get("slowdown_large_p99"), 4.0);
        assert_eq!(metrics.get("slowdown_medium_p50"), None);
    }
}
