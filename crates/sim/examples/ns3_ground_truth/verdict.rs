//! Which metrics agree, and by what bound.
//!
//! | class | bound |
//! |---|---|
//! | tight | from the nearest end of the ensemble: the metric's share or its slack, the larger |
//! | loose | the ensemble widened by 8 % |
//! | loss | the mean of ten seeds within 2 standard errors + 3 % of either version's |
//! | unstable | as loose, and reported only |
//!
//! The standard error is that of the difference of two means of ten. A slack (1 packet, 8 drops, 1 timeout)
//! counts in tight runs alone; how many of the others would hold with it is told beside.

use forebay_sim::{FlowMetrics, LinkMetrics};
use serde_json::Value;

use crate::run::Ours;
use crate::truth::{Class, Truth};

/// Share of the tight pairs that must hold.
const REQUIRED: f64 = 0.95;
const LOOSE_SHARE: f64 = 0.08;
const LOSS_SHARE: f64 = 0.03;

enum Of {
    Flow(fn(&FlowMetrics) -> f64),
    Link(fn(&LinkMetrics) -> f64),
}

struct Metric {
    name: &'static str,
    /// Bound of a tight run, relative and absolute.
    share: f64,
    slack: f64,
    of: Of,
}

const METRICS: [Metric; 7] = [
    Metric {
        name: "mean_throughput_l4",
        share: 0.02,
        slack: 0.0,
        of: Of::Flow(|it| it.mean_throughput_l4),
    },
    Metric { name: "mean_cwnd_l4", share: 0.04, slack: 0.0, of: Of::Flow(|it| it.mean_cwnd_l4) },
    Metric {
        name: "mean_in_flight_l4",
        share: 0.04,
        slack: 0.0,
        of: Of::Flow(|it| it.mean_in_flight_l4),
    },
    Metric { name: "mean_srtt_l4", share: 0.03, slack: 0.0, of: Of::Flow(|it| it.mean_srtt_l4) },
    Metric {
        name: "total_rtos_l4",
        share: 0.0,
        slack: 1.0,
        of: Of::Flow(|it| it.total_rtos_l4 as f64),
    },
    Metric {
        name: "mean_qdisc_length_l2",
        share: 0.10,
        slack: 1.0,
        of: Of::Link(|it| it.mean_qdisc_length_l2),
    },
    Metric {
        name: "total_qdisc_drops_l2",
        share: 0.15,
        slack: 8.0,
        of: Of::Link(|it| it.total_qdisc_drops_l2 as f64),
    },
];

/// One metric of one run.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The flow's number among several.
    pub flow: Option<usize>,
    pub metric: &'static str,
    /// Median over starts, or mean over seeds.
    pub ours: f64,
    pub low: f64,
    pub high: f64,
    /// From the nearest end, as a share of it.
    pub deviation: f64,
    pub holds: bool,
    /// With the metric's slack.
    pub nearly: bool,
}

/// Judges every metric that the file has for this run.
pub fn judge(truth: &Truth, ours: &[Ours]) -> Vec<Verdict> {
    let flows = ours.first().map_or(0, |first| first.flows.len());
    let mut verdicts = Vec::new();
    for metric in &METRICS {
        let count = if matches!(metric.of, Of::Flow(_)) { flows } else { 1 };
        for flow in 0..count {
            let values: Vec<f64> = ours.iter().map(|run| metric.value(run, flow)).collect();
            verdicts.extend(match truth.class {
                Class::Loss => by_seeds(truth, metric, &values),
                _ => by_ensemble(truth, metric, flow, count, values),
            });
        }
    }
    verdicts
}

impl Metric {
    fn value(&self, run: &Ours, flow: usize) -> f64 {
        match self.of {
            Of::Flow(value) => value(&run.flows[flow]),
            Of::Link(value) => value(&run.link),
        }
    }

    fn verdict(&self, ours: f64, (low, high): (f64, f64), bound: impl Fn(f64) -> f64) -> Verdict {
        let end = if ours < low { low } else { high };
        let beyond = (low - ours).max(ours - high).max(0.0);
        Verdict {
            flow: None,
            metric: self.name,
            ours,
            low,
            high,
            deviation: if end == 0.0 { beyond } else { beyond.copysign(ours - end) / end },
            holds: beyond <= bound(end) + 1e-9,
            nearly: beyond <= bound(end).max(self.slack) + 1e-9,
        }
    }
}

fn by_ensemble(
    truth: &Truth,
    metric: &Metric,
    flow: usize,
    count: usize,
    mut values: Vec<f64>,
) -> Option<Verdict> {
    let is_flow = matches!(metric.of, Of::Flow(_));
    let range = truth.range(is_flow.then_some(flow), metric.name)?;
    let (share, slack) = match truth.class {
        Class::Tight => (metric.share, metric.slack),
        _ => (LOOSE_SHARE, 0.0),
    };
    values.sort_by(f64::total_cmp);
    let median = values[values.len() / 2];
    let verdict = metric.verdict(median, range, |end| (share * end).max(slack));
    Some(Verdict { flow: (count > 1).then_some(flow), ..verdict })
}

fn by_seeds(truth: &Truth, metric: &Metric, values: &[f64]) -> Option<Verdict> {
    let (mean, error) = mean_and_error(values);
    let versions = truth.seeds.iter().filter_map(|seeds| {
        let values = seeds[metric.name]["values"].as_array()?;
        let values: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
        let (theirs, their_error) = mean_and_error(&values);
        let errors = (error * error + their_error * their_error).sqrt();
        let bound = |end: f64| 2.0 * errors + LOSS_SHARE * end;
        Some(metric.verdict(mean, (theirs, theirs), bound))
    });
    versions.min_by(|one, other| {
        let key = |it: &Verdict| (!it.holds, it.deviation.abs());
        key(one).0.cmp(&key(other).0).then(key(one).1.total_cmp(&key(other).1))
    })
}

/// Mean of a sample and its standard error.
fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0) / count).sqrt())
}

/// Pairs that hold, of all, for each class.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    counts: [(usize, usize); 4],
    nearly: [usize; 4],
}

impl Totals {
    /// Counts one run.
    pub fn add(&mut self, class: Class, verdicts: &[Verdict]) {
        let (holding, all) = &mut self.counts[class as usize];
        *holding += verdicts.iter().filter(|verdict| verdict.holds).count();
        *all += verdicts.len();
        self.nearly[class as usize] += verdicts.iter().filter(|verdict| verdict.nearly).count();
    }

    /// A run that cannot be run here misses in everything.
    pub fn add_not_run(&mut self, class: Class) {
        self.counts[class as usize].1 += METRICS.len();
    }

    /// Pairs that hold, and all.
    pub fn of(&self, class: Class) -> (usize, usize) {
        self.counts[class as usize]
    }

    /// Pairs that hold with the slack.
    pub fn nearly(&self, class: Class) -> usize {
        self.nearly[class as usize]
    }

    /// Enough of the tight pairs hold, and every loose and loss pair.
    pub fn holds(&self) -> bool {
        let (holding, all) = self.of(Class::Tight);
        let is_whole = |class| self.of(class).0 == self.of(class).1;
        holding as f64 >= REQUIRED * all as f64 && is_whole(Class::Loose) && is_whole(Class::Loss)
    }
}
