//! The figures that a search can make as bad as possible.

use std::cmp::Ordering;
use std::time::Duration;

use super::case::{COMPETITOR, TESTED};
use forebay_core::spec::one_of;
use forebay_lab::metrics::{Part, statistics};

/// A figure of a run between its warm-up and its end, and which way the figure gets worse.
#[derive(Debug)]
pub struct Objective {
    /// Name as `--metric` takes it.
    pub name: &'static str,
    /// Unit; empty: a pure number.
    pub unit: &'static str,
    /// The measured quantity and its reference.
    pub summary: &'static str,
    less_is_worse: bool,
    of: fn(&Figures<'_>) -> Option<f64>,
}

/// All objectives, in the order in which they are listed.
pub static OBJECTIVES: [Objective; 5] = [
    Objective {
        name: "utilization",
        unit: "",
        summary: "lowest utilization of the bottleneck: data carried over data that its rate allowed, without pauses",
        less_is_worse: true,
        of: |run| run.link("utilisation"),
    },
    Objective {
        name: "queueing",
        unit: "ms",
        summary: "longest mean time of packets in the bottleneck's queue and server",
        less_is_worse: false,
        of: |run| run.link("sojourn_mean_ms"),
    },
    Objective {
        name: "queueing_p99",
        unit: "ms",
        summary: "longest time of packets in the bottleneck's queue and server, 99th percentile",
        less_is_worse: false,
        of: |run| run.link("sojourn_p99_ms"),
    },
    Objective {
        name: "share",
        unit: "",
        summary: "lowest share: the flow's goodput over an even share of the bottleneck",
        less_is_worse: true,
        of: share,
    },
    Objective {
        name: "stall",
        unit: "s",
        summary: "longest time in which the flow's receiver got nothing, in steps of 100 ms",
        less_is_worse: false,
        of: stall,
    },
];

/// Throughput of the tested flow as a share of its fair part of the link: the capacity divided by the number of flows
/// that always have data.
fn share(run: &Figures<'_>) -> Option<f64> {
    let carried_mbps = run.link("throughput_mbps")?;
    // If nothing left for a pair, the link has no throughput for it.
    let Some(got_mbps) = run.link(&format!("throughput_mbps[{TESTED}]")) else { return Some(0.0) };
    let capacity_mbps = carried_mbps / run.link("utilisation")?;
    let flows = run.flows.iter().filter(|flow| [TESTED, COMPETITOR].contains(&&*flow.name)).count();
    Some(got_mbps * flows as f64 / capacity_mbps)
}

/// The longest stall; for a flow that got nothing, all the time that counts: `stall_max_s` begins with the first byte.
fn stall(run: &Figures<'_>) -> Option<f64> {
    let is_empty = run.flow(TESTED, "payload_bytes")? == 0.0;
    if is_empty { Some(run.counted.as_secs_f64()) } else { run.flow(TESTED, "stall_max_s") }
}

/// The metrics of a run, simulated just now or stored.
struct Figures<'a> {
    /// From the warm-up to the end.
    counted: Duration,
    flows: &'a [Part],
    links: &'a [Part],
}

impl Figures<'_> {
    /// A metric of the bottleneck.
    fn link(&self, metric: &str) -> Option<f64> {
        self.links.iter().find(|link| link.name == "forward")?.metrics.get(metric)
    }

    fn flow(&self, name: &str, metric: &str) -> Option<f64> {
        self.flows.iter().find(|flow| flow.name == name)?.metrics.get(metric)
    }
}

/// Significant digits of a score: as many as stay exact when they are written as JSON and read again.
const DIGITS: usize = 12;

impl Objective {
    /// The objective called `name`.
    ///
    /// # Errors No objective has this name; the error lists the known names.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        let found = OBJECTIVES.iter().find(|objective| objective.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = OBJECTIVES.iter().map(|objective| objective.name).collect();
            format!("no metric {name:?}: allowed is {}", one_of(name, &names))
        })
    }

    /// The figure of a run with these flows and links to 12 significant digits; `counted` is the time after the
    /// warm-up. `None` where nothing was measured.
    pub fn of(&self, counted: Duration, flows: &[Part], links: &[Part]) -> Option<f64> {
        let value = (self.of)(&Figures { counted, flows, links })?;
        value.is_finite().then(|| rounded(value, DIGITS))
    }

    /// Orders figures so that the worse one is greater.
    pub fn compare(&self, one: f64, other: f64) -> Ordering {
        if self.less_is_worse { other.total_cmp(&one) } else { one.total_cmp(&other) }
    }

    /// How many times worse `one` is than `other`; `None` where that would be a multiple of 0.
    pub fn times_worse(&self, one: f64, other: f64) -> Option<f64> {
        let (part, whole) = if self.less_is_worse { (other, one) } else { (one, other) };
        statistics::share(part, whole)
    }

    /// Heading of a column of values.
    pub fn heading(&self) -> String {
        if self.unit.is_empty() {
            self.name.into()
        } else {
            format!("{} ({})", self.name, self.unit)
        }
    }
}

/// `value` to this number of significant digits.
pub(super) fn rounded(value: f64, digits: usize) -> f64 {
    let text = format!("{value:.*e}", digits - 1);
    text.parse().expect("a number in the format written above")
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_lab::metrics::Metrics;

    /// Length of the measured part of a run.
    const COUNTED: Duration = Duration::from_millis(1500);

    fn part(name: &str, metrics: &[(&str, f64)]) -> Part {
        let mut all = Metrics::default();
        metrics.iter().for_each(|(name, value)| all.put(name, Some(*value)));
        Part { name: name.into(), metrics: all }
    }

    #[test]
    fn even_share_is_of_link_capacity() {
        let share = Objective::named("share").unwrap();
        let carried =
            [("throughput_mbps", 8.0), ("utilisation", 0.8), ("throughput_mbps[tested]", 2.0)];
        let links = [part("reverse", &[]), part("forward", &carried)];
        let alone = [part("tested", &[]), part("burst-1", &[])];
        let of = |flows: &[Part], links: &[Part]| share.of(COUNTED, flows, links);
        assert_eq!(of(&alone, &links), Some(0.2));
        let beside = [part("tested", &[]), part("competitor", &[])];
        assert_eq!(of(&beside, &links), Some(0.4));
        assert_eq!(of(&beside, &links[..1]), None);
    }

    #[test]
    fn starved_flow_has_zero_share_and_always_stalls() {
        let [share, stall] = ["share", "stall"].map(|name| Objective::named(name).unwrap());
        for [throughput, utilisation] in [[8.0, 0.8], [0.0, 0.0]] {
            let carried = [("throughput_mbps", throughput), ("utilisation", utilisation)];
            assert_eq!(share.of(COUNTED, &[], &[part("forward", &carried)]), Some(0.0));
        }
        let of = |metrics: &[(&str, f64)]| stall.of(COUNTED, &[part("tested", metrics)], &[]);
        assert_eq!(of(&[("payload_bytes", 0.0)]), Some(1.5));
        assert_eq!(of(&[("payload_bytes", 9.0), ("stall_max_s", 0.3)]), Some(0.3));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn worse_figures_score_higher_for_every_metric() {
        let [less, more] = ["utilization", "queueing"].map(|name| Objective::named(name).unwrap());
        assert_eq!(
            (less.compare(0.1, 0.2), more.compare(10.0, 20.0)),
            (Ordering::Greater, Ordering::Less)
        );
        let twice = [less.times_worse(0.1, 0.2), more.times_worse(20.0, 10.0)];
        assert_eq!(twice, [Some(2.0); 2]);
        for any in [0.0, 0.3] {
            assert_eq!([less.times_worse(0.0, any), more.times_worse(any, 0.0)], [None; 2]);
        }
        assert!(Objective::named("speed").unwrap_err().contains("allowed is one of utilization, "));
    }

    #[test]
    fn a_score_survives_being_written() {
        let mut stream = forebay_core::random::Streams::new(1).stream("scores");
        for _ in 0..10_000 {
            let score = rounded(stream.unit() * 1e3, DIGITS);
            let text = serde_json::to_string(&score).unwrap();
            assert_eq!(serde_json::from_str::<f64>(&text).unwrap(), score, "{text}");
        }
        assert_eq!([0.0, 1234.5, 0.0123].map(|value| rounded(value, 2)), [0.0, 1200.0, 0.012]);
    }
}
