//! Metrics that agree with ns-3, and the bounds of agreement.
//!
//! | class | bound |
//! |---|---|
//! | tight | from the nearest end of the ensemble: the metric's share or its slack, the larger |
//! | loose | the ensemble widened by 8 % |
//! | loss | the mean of ten seeds within 2 standard errors + 3 % of either version's |
//! | unstable | as loose, and reported only |
//!
//! The standard error is for the difference of two means of ten. A slack (1 packet, 8 drops, 1 timeout)
//! counts in tight runs alone. The number of other pairs that would hold with it is reported separately.

use forebay_sim::{FlowMetrics, LinkMetrics};
use serde_json::Value;

use super::simulated::Ours;
use super::truth::{Class, Truth};

/// Share of the tight pairs that must agree. Loose and loss pairs must all agree.
const REQUIRED: f64 = 0.95;
/// Allowed deviation of a loose pair, as a share of ns-3's value.
const LOOSE_SHARE: f64 = 0.08;
/// Allowed deviation of a loss pair beyond two standard errors, as a share of ns-3's value.
const LOSS_SHARE: f64 = 0.03;

enum Of {
    Flow(fn(&FlowMetrics) -> f64),
    Link(fn(&LinkMetrics) -> f64),
}

struct PairMetric {
    name: &'static str,
    /// Bound of a tight run, relative and absolute.
    share: f64,
    slack: f64,
    of: Of,
}

/// The compared metrics, with the allowed deviation of a tight pair in each.
const METRICS: [PairMetric; 7] = [
    PairMetric {
        name: "mean_throughput_l4",
        share: 0.02,
        slack: 0.0,
        of: Of::Flow(|it| it.mean_throughput_l4),
    },
    PairMetric {
        name: "mean_cwnd_l4",
        share: 0.04,
        slack: 0.0,
        of: Of::Flow(|it| it.mean_cwnd_l4),
    },
    PairMetric {
        name: "mean_in_flight_l4",
        share: 0.04,
        slack: 0.0,
        of: Of::Flow(|it| it.mean_in_flight_l4),
    },
    PairMetric {
        name: "mean_srtt_l4",
        share: 0.03,
        slack: 0.0,
        of: Of::Flow(|it| it.mean_srtt_l4),
    },
    PairMetric {
        name: "total_rtos_l4",
        share: 0.0,
        slack: 1.0,
        of: Of::Flow(|it| it.total_rtos_l4 as f64),
    },
    PairMetric {
        name: "mean_qdisc_length_l2",
        share: 0.10,
        slack: 1.0,
        of: Of::Link(|it| it.mean_qdisc_length_l2),
    },
    PairMetric {
        name: "total_qdisc_drops_l2",
        share: 0.15,
        slack: 8.0,
        of: Of::Link(|it| it.total_qdisc_drops_l2 as f64),
    },
];

/// A pair: one metric of one run, here and in ns-3.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The flow's number among several.
    pub flow: Option<usize>,
    /// Name of the metric.
    pub metric: &'static str,
    /// Median over starts, or mean over seeds.
    pub ours: f64,
    /// Least value of the ensemble in ns-3.
    pub low: f64,
    /// Greatest value of the ensemble in ns-3.
    pub high: f64,
    /// Distance from the nearest end of the ensemble, as a share of that end.
    pub deviation: f64,
    /// The distance is within the bound.
    pub holds: bool,
    /// The pair holds with the metric's slack.
    pub nearly: bool,
}

/// Judges every metric that the file has for this run.
pub fn judge(truth: &Truth, ours: &[Ours]) -> Vec<Pair> {
    let flows = ours.first().map_or(0, |first| first.flows.len());
    let mut pairs = Vec::new();
    for metric in &METRICS {
        let count = if matches!(metric.of, Of::Flow(_)) { flows } else { 1 };
        for flow in 0..count {
            let values: Vec<f64> = ours.iter().map(|run| metric.value(run, flow)).collect();
            pairs.extend(match truth.class {
                Class::Loss => by_seeds(truth, metric, &values),
                _ => by_ensemble(truth, metric, flow, count, values),
            });
        }
    }
    pairs
}

impl PairMetric {
    fn value(&self, run: &Ours, flow: usize) -> f64 {
        match self.of {
            Of::Flow(value) => value(&run.flows[flow]),
            Of::Link(value) => value(&run.link),
        }
    }

    fn pair(&self, ours: f64, (low, high): (f64, f64), bound: impl Fn(f64) -> f64) -> Pair {
        let end = if ours < low { low } else { high };
        let beyond = (low - ours).max(ours - high).max(0.0);
        Pair {
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
    metric: &PairMetric,
    flow: usize,
    count: usize,
    mut values: Vec<f64>,
) -> Option<Pair> {
    let is_flow = matches!(metric.of, Of::Flow(_));
    let range = truth.range(is_flow.then_some(flow), metric.name)?;
    let (share, slack) = match truth.class {
        Class::Tight => (metric.share, metric.slack),
        _ => (LOOSE_SHARE, 0.0),
    };
    values.sort_by(f64::total_cmp);
    let median = values[values.len() / 2];
    let pair = metric.pair(median, range, |end| (share * end).max(slack));
    Some(Pair { flow: (count > 1).then_some(flow), ..pair })
}

fn by_seeds(truth: &Truth, metric: &PairMetric, values: &[f64]) -> Option<Pair> {
    let (mean, error) = mean_and_error(values);
    let versions = truth.seeds.iter().filter_map(|seeds| {
        let values = seeds[metric.name]["values"].as_array()?;
        let values: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
        let (theirs, their_error) = mean_and_error(&values);
        let errors = (error * error + their_error * their_error).sqrt();
        let bound = |end: f64| 2.0 * errors + LOSS_SHARE * end;
        Some(metric.pair(mean, (theirs, theirs), bound))
    });
    versions.min_by(|one, other| {
        let key = |it: &Pair| (!it.holds, it.deviation.abs());
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

/// Pairs that hold, and all pairs, for each class.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    counts: [(usize, usize); 4],
    nearly: [usize; 4],
}

impl Totals {
    pub(super) fn add(&mut self, class: Class, pairs: &[Pair]) {
        let (holding, all) = &mut self.counts[class as usize];
        *holding += pairs.iter().filter(|pair| pair.holds).count();
        *all += pairs.len();
        self.nearly[class as usize] += pairs.iter().filter(|pair| pair.nearly).count();
    }

    pub(super) fn add_not_run(&mut self, class: Class) {
        self.counts[class as usize].1 += METRICS.len();
    }

    /// Pairs that hold, and all.
    pub(super) fn of(&self, class: Class) -> (usize, usize) {
        self.counts[class as usize]
    }

    /// Pairs that hold with the slack.
    pub(super) fn nearly(&self, class: Class) -> usize {
        self.nearly[class as usize]
    }

    /// Enough of the tight pairs hold, and every loose and loss pair.
    pub fn holds(&self) -> bool {
        let (holding, all) = self.of(Class::Tight);
        let is_whole = |class| self.of(class).0 == self.of(class).1;
        holding as f64 >= REQUIRED * all as f64 && is_whole(Class::Loose) && is_whole(Class::Loss)
    }
}
