//! Arms over their seeds: pooled metrics, and comparisons with the reference arms.

mod curves;
mod sites;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::{Serialize, Serializer};

use crate::metrics::requests::{self, class};
use crate::metrics::statistics::{Sorted, mean};
use crate::metrics::{Address, Metrics, Outcome, Part, Pooling, describe};
use crate::plan::references::{AGAIN, IN_NETWORK, SOLO, STATUS_QUO};
use crate::store::{RequestKey, Run, Store, StoreError};

/// Least life of a flow in the arm where it runs alone, as a share of its life with competitors.
const SOLO_LIFE: f64 = 0.9;

/// One arm of a plan in one cell on one back end, its valid runs pooled.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ArmSummary {
    /// Name of the plan.
    pub plan: String,
    /// Name of the cell.
    pub cell: String,
    /// Name of the arm.
    pub arm: String,
    /// Back end.
    pub backend: String,
    /// This arm runs without the mechanism under study.
    #[serde(skip)]
    pub is_baseline: bool,
    /// This arm shows the best possible result.
    #[serde(skip)]
    pub is_ideal: bool,
    /// Valid runs.
    pub runs: usize,
    /// Metrics of the whole run.
    pub metrics: Metrics,
    /// Metrics of its flows.
    pub flows: Vec<Part>,
    /// Metrics of its links.
    pub links: Vec<Part>,
    /// Metrics of its bundles.
    pub bundles: Vec<Part>,
    /// Metrics of the whole run, one value a run, in the order of seeds. As JSON: the [`Spread`] of each
    /// metric without the name of a part.
    #[serde(rename = "spread", serialize_with = "spreads")]
    pub by_seed: BTreeMap<String, Vec<f64>>,
}

/// A metric over the seeds of an arm, each seed's run by itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Runs that have the metric.
    pub runs: usize,
    /// Least value.
    pub least: f64,
    /// Exceeded by 95 % of the runs; quantiles interpolate between the closest ranks.
    pub p5: f64,
    /// Median of the values.
    pub median: f64,
    /// Exceeded by 5 % of the runs.
    pub p95: f64,
    /// Greatest value.
    pub greatest: f64,
}

impl Spread {
    /// The spread of `values`; `None` without any.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = Sorted::new(values.iter().copied());
        Some(Self {
            runs: values.len(),
            least: sorted.quantile(0.0)?,
            p5: sorted.quantile(0.05)?,
            median: sorted.quantile(0.5)?,
            p95: sorted.quantile(0.95)?,
            greatest: sorted.quantile(1.0)?,
        })
    }
}

fn spreads<S: Serializer>(
    by_seed: &BTreeMap<String, Vec<f64>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let of_run = by_seed.iter().filter(|(name, _)| !name.contains(' '));
    serializer.collect_map(of_run.filter_map(|(name, values)| Some((name, Spread::of(values)?))))
}

impl ArmSummary {
    /// A metric of the whole run over the seeds; `None` without a run that has it.
    pub fn spread(&self, metric: &str) -> Option<Spread> {
        Spread::of(self.by_seed.get(metric)?)
    }

    /// The metric at `address`, of all parts their mean.
    pub fn get(&self, address: &Address) -> Option<f64> {
        address.find(&self.metrics, [&self.flows, &self.links, &self.bundles])
    }

    /// A metric of the link `name`.
    pub fn link(&self, name: &str, metric: &str) -> Option<f64> {
        find(&self.links, name, metric)
    }

    /// The mean of a metric over all bundles.
    pub fn bundles(&self, metric: &str) -> Option<f64> {
        mean(self.bundles.iter().filter_map(|bundle| bundle.metrics.get(metric)))
    }
}

fn find(parts: &[Part], name: &str, metric: &str) -> Option<f64> {
    parts.iter().find(|part| part.name == name)?.metrics.get(metric)
}

/// The `runs` that count: the last valid attempt at each run.
pub fn counting(runs: &[Run]) -> Vec<&Run> {
    let mut counting: Vec<&Run> = Vec::new();
    for run in runs.iter().filter(|run| run.is_valid()) {
        match counting.iter_mut().find(|older| older.key == run.key) {
            Some(older) => *older = run,
            None => counting.push(run),
        }
    }
    counting
}

/// The counted requests of the runs in a store, read at first use and then kept.
pub struct Requests<'a> {
    store: &'a Store,
    known: RefCell<BTreeMap<i64, Rc<OfRun>>>,
}

/// Outcomes of the counted requests of one run.
type OfRun = BTreeMap<RequestKey, Outcome>;

impl<'a> Requests<'a> {
    /// The requests of the runs in `store`.
    pub fn new(store: &'a Store) -> Self {
        Self { store, known: RefCell::default() }
    }

    /// The store that they are in.
    pub fn store(&self) -> &'a Store {
        self.store
    }

    /// The requests of the run `id`.
    pub fn of(&self, id: i64) -> Result<Rc<OfRun>, StoreError> {
        if let Some(known) = self.known.borrow().get(&id) {
            return Ok(known.clone());
        }
        let read: Rc<OfRun> = Rc::new(self.store.outcomes(id)?.into_iter().collect());
        self.known.borrow_mut().insert(id, read.clone());
        Ok(read)
    }
}

/// Pools the counting ones among `runs` by plan, cell, arm and back end, in the order of first appearance.
pub fn summarise(requests: &Requests<'_>, runs: &[Run]) -> Result<Vec<ArmSummary>, StoreError> {
    let mut groups: Vec<Vec<&Run>> = Vec::new();
    for run in counting(runs) {
        let same = |group: &&mut Vec<&Run>| {
            let (one, other) = (&group[0].key, &run.key);
            (&one.plan, &one.cell, &one.arm) == (&other.plan, &other.cell, &other.arm)
                && one.backend == other.backend
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    let mut arms = Vec::new();
    for group in &groups {
        arms.push(Arm::pool(requests, group)?);
    }
    let mut summaries: Vec<ArmSummary> = arms.iter().map(|arm| arm.summary.clone()).collect();
    for ((arm, runs), summary) in arms.iter().zip(&groups).zip(&mut summaries) {
        let references = requests.store().references(&summary.plan)?;
        let (baseline, ideal, alone) =
            (references.baseline(), references.ideal(), references.alone());
        summary.is_baseline = summary.arm == baseline;
        summary.is_ideal = summary.arm == ideal;
        let place = |name: &str| {
            arms.iter().position(|other| {
                let (this, other) = (&arm.summary, &other.summary);
                other.arm == name
                    && (&other.plan, &other.cell) == (&this.plan, &this.cell)
                    && other.backend == this.backend
            })
        };
        let other = |name: &str| place(name).map(|place| &arms[place]);
        compare(arm, other(baseline), other(ideal), &mut summary.metrics);
        if let Some(without) = other(baseline) {
            sites::compare(summary, &without.summary, other(AGAIN).map(|it| &it.summary));
        }
        if let Some(solo) = other(alone).filter(|_| arm.summary.arm != alone) {
            harm(summary, &solo.summary);
        }
        if let Some((curves, base)) = references.curves().zip(place(baseline)) {
            curves::compare(requests.store(), &curves, [runs, &groups[base]], summary)?;
        }
    }
    Ok(summaries)
}

/// An arm with the requests that its metrics came from, by seed.
struct Arm {
    summary: ArmSummary,
    requests: BTreeMap<u64, Rc<OfRun>>,
}

impl Arm {
    fn pool(requests: &Requests<'_>, runs: &[&Run]) -> Result<Self, StoreError> {
        let of_run = |run: &&Run| Ok((run.key.seed, requests.of(run.id)?));
        let requests: BTreeMap<u64, Rc<OfRun>> =
            runs.iter().map(of_run).collect::<Result<_, StoreError>>()?;
        let key = &runs[0].key;
        let mut summary = ArmSummary {
            plan: key.plan.clone(),
            cell: key.cell.clone(),
            arm: key.arm.clone(),
            backend: key.backend.clone(),
            is_baseline: false,
            is_ideal: false,
            runs: runs.len(),
            metrics: pool_metrics(runs.iter().map(|run| &run.metrics)),
            flows: pool_parts(runs.iter().map(|run| &run.flows)),
            links: pool_parts(runs.iter().map(|run| &run.links)),
            bundles: pool_parts(runs.iter().map(|run| &run.bundles)),
            by_seed: by_seed_of(runs),
        };
        let pooled = |keep: &dyn Fn(&RequestKey) -> bool| {
            let all = requests.values().flat_map(|of_run| of_run.iter());
            let all = all.filter(|(key, _)| keep(key));
            requests::metrics(&all.map(|(_, outcome)| *outcome).collect::<Vec<_>>())
        };
        summary.metrics.0.extend(pooled(&|_| true).0);
        for flow in &mut summary.flows {
            flow.metrics.0.extend(pooled(&|(name, _)| *name == flow.name).0);
        }
        Ok(Self { summary, requests })
    }
}

/// Metrics of the run and of its parts, by seed. A metric of a link is named `link forward metric`, and a metric of
/// a flow `flow web metric`. The mean queue of all sendboxes is `bundles queue_mean_packets`.
fn by_seed_of(runs: &[&Run]) -> BTreeMap<String, Vec<f64>> {
    let mut sorted: Vec<&&Run> = runs.iter().collect();
    sorted.sort_by_key(|run| run.key.seed);
    let mut by_seed: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for run in sorted {
        for (name, value) in &run.metrics.0 {
            by_seed.entry(name.clone()).or_default().push(*value);
        }
        for part in &run.links {
            for (metric, value) in &part.metrics.0 {
                by_seed.entry(format!("link {} {metric}", part.name)).or_default().push(*value);
            }
        }
        for part in &run.flows {
            for (metric, value) in &part.metrics.0 {
                by_seed.entry(format!("flow {} {metric}", part.name)).or_default().push(*value);
            }
        }
        let queues = run.bundles.iter().filter_map(|it| it.metrics.get("queue_mean_packets"));
        by_seed.entry("bundles queue_mean_packets".into()).or_default().extend(mean(queues));
    }
    by_seed
}

fn pool_parts<'a>(runs: impl Iterator<Item = &'a Vec<Part>>) -> Vec<Part> {
    let mut by_name: Vec<(String, Vec<&Metrics>)> = Vec::new();
    for part in runs.flatten() {
        match by_name.iter_mut().find(|(name, _)| *name == part.name) {
            Some((_, list)) => list.push(&part.metrics),
            None => by_name.push((part.name.clone(), vec![&part.metrics])),
        }
    }
    let pool = |(name, list): (String, Vec<&Metrics>)| Part {
        name,
        metrics: pool_metrics(list.into_iter()),
    };
    by_name.into_iter().map(pool).collect()
}

/// Pools each metric as the catalogue says. Metrics of requests are left to the caller, who takes them from
/// all requests.
fn pool_metrics<'a>(runs: impl Iterator<Item = &'a Metrics>) -> Metrics {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, value) in runs.flat_map(|metrics| &metrics.0) {
        values.entry(name).or_default().push(*value);
    }
    let mut pooled = Metrics::default();
    for (name, values) in values {
        let value = match describe(name).map_or(Pooling::Mean, |entry| entry.pooling) {
            Pooling::Requests => None,
            Pooling::Mean | Pooling::Time => mean(values.into_iter()),
            Pooling::Sum => Some(values.into_iter().sum()),
            Pooling::Min => values.into_iter().reduce(f64::min),
            Pooling::Max => values.into_iter().reduce(f64::max),
        };
        pooled.put(name, value);
    }
    pooled
}

/// Arms that a metric of `compare` needs in addition to its own; empty for other metrics. The names are the
/// defaults, for plans that name no references; plans with claims are such plans.
pub fn baselines(metric: &str) -> &'static [&'static str] {
    let name = metric.rsplit('/').next().unwrap_or(metric);
    match name {
        "gap_closed" => &[STATUS_QUO, IN_NETWORK],
        "large_paired_ratio_geomean" => &[STATUS_QUO],
        "sites_better" | "sites_worse" | "sites_noise" => &[STATUS_QUO, AGAIN],
        _ if name.ends_with("_over_status_quo") => &[STATUS_QUO],
        _ if name.ends_with("_over_in_network_fq") => &[IN_NETWORK],
        _ if name.contains("harm_") => &[SOLO],
        _ => &[],
    }
}

fn compare(arm: &Arm, status_quo: Option<&Arm>, in_network: Option<&Arm>, out: &mut Metrics) {
    let of = |arm: &Arm, metric: &str| arm.summary.metrics.get(metric);
    let ratio = |metric: &str, other: Option<&Arm>| Some(of(arm, metric)? / of(other?, metric)?);
    out.put("slowdown_p50_over_status_quo", ratio("slowdown_p50", status_quo));
    out.put("slowdown_p99_over_status_quo", ratio("slowdown_p99", status_quo));
    out.put("fct_p50_over_status_quo", ratio("fct_p50_ms", status_quo));
    out.put("slowdown_p50_over_in_network_fq", ratio("slowdown_p50", in_network));
    // Means over the runs, so that arms with another number of runs compare.
    out.put("bytes_over_status_quo", ratio("goodput_mbps", status_quo));
    out.put("queue_total_over_status_quo", ratio("queue_total_mean_packets", status_quo));
    let gap = || {
        let slowdown = |arm| of(arm, "slowdown_p50");
        let (quo, network) = (slowdown(status_quo?)?, slowdown(in_network?)?);
        Some((quo - slowdown(arm)?) / (quo - network))
    };
    out.put("gap_closed", gap());
    out.put("large_paired_ratio_geomean", status_quo.and_then(|other| paired_ratio(arm, other)));
}

/// Harm to each flow of an arm by its competitors, relative to the arm where it runs alone. If more is
/// better: the lost share of the figure alone. If less is better: the added share of the figure here.
fn harm(arm: &mut ArmSummary, solo: &ArmSummary) {
    let runs = [solo.runs, arm.runs].map(|runs| runs as f64);
    for flow in &mut arm.flows {
        let Some(alone) = solo.flows.iter().find(|it| it.name == flow.name) else { continue };
        let both = |name: &str| Some([alone.metrics.get(name)?, flow.metrics.get(name)?]);
        // Skip flows cut short in `solo`: they are the competitors that `solo` removes.
        if both("flow_completion_time_l4").is_some_and(|[alone, here]| alone < SOLO_LIFE * here) {
            continue;
        }
        let lost = |[alone, beside]: [f64; 2]| (alone - beside) / alone;
        let added = |[alone, beside]: [f64; 2]| (beside - alone) / beside;
        let losses = || {
            let (sent_again, bytes) = (both("total_retransmissions_l4")?, both("payload_bytes")?);
            // Retransmissions of all runs, and bytes of one.
            Some([0, 1].map(|side| sent_again[side] / runs[side] / bytes[side]))
        };
        let harms = [
            ("harm_throughput", both("goodput_mbps").map(lost)),
            ("harm_delay", both("mean_srtt_l4").map(added)),
            ("harm_fct", both("fct_p50_ms").map(added)),
            ("harm_loss", losses().map(added)),
        ];
        for (name, value) in harms {
            flow.metrics.put(name, value);
        }
    }
}

/// Ratio of the slowdowns of the same large request with the same seed in two arms: the geometric mean over
/// all large requests.
fn paired_ratio(arm: &Arm, other: &Arm) -> Option<f64> {
    let mut ratios = Vec::new();
    for (seed, requests) in &arm.requests {
        let Some(others) = other.requests.get(seed) else { continue };
        for (key, outcome) in requests.iter().filter(|(_, o)| class(o.size_bytes) == "large") {
            let theirs = others.get(key).and_then(|outcome| outcome.slowdown);
            ratios.extend(outcome.slowdown.zip(theirs).map(|(ours, theirs)| ours / theirs));
        }
    }
    Sorted::new(ratios).geometric_mean()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::evaluate;
    use crate::metrics::testing::{invented_rows, invented_run};
    use crate::plan::Plan;
    use crate::plan::library::Source;
    use crate::store::testing::put;

    /// Runs of three arms whose requests all have the slowdown given, with as many seeds.
    fn stored(arms: &[(&str, &[f64])]) -> (tempfile::TempDir, Store, Vec<Run>) {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::create(folder.path()).unwrap();
        let (experiment, _) = invented_run();
        let mut runs = Vec::new();
        for (arm, slowdowns) in arms {
            for (seed, slowdown) in slowdowns.iter().enumerate() {
                let mut experiment = experiment.clone();
                experiment.arm = arm.to_string();
                experiment.seed = seed as u64;
                let rows = invented_rows(&experiment, *slowdown);
                let evaluation = evaluate(&experiment, &rows).unwrap();
                let id = put(&mut store, &experiment, "emu", &evaluation);
                runs.push(store.run(id).unwrap());
            }
        }
        (folder, store, runs)
    }

    #[test]
    fn seeds_are_pooled_and_arms_compared() {
        let (_folder, store, mut runs) = stored(&[
            ("status_quo", &[2.0, 2.0]),
            ("copa_sfq", &[1.2, 1.2]),
            ("in_network_fq", &[1.1, 1.1]),
        ]);
        let summaries = summarise(&Requests::new(&store), &runs).unwrap();
        let names: Vec<&str> = summaries.iter().map(|arm| arm.arm.as_str()).collect();
        assert_eq!(names, ["status_quo", "copa_sfq", "in_network_fq"]);
        let copa = &summaries[1];
        let get = |name: &str| copa.metrics.get(name).unwrap();
        let near = |name: &str, expected: f64| {
            assert!((get(name) - expected).abs() < 1e-5, "{name} = {}", get(name));
        };
        near("slowdown_p50", 1.2);
        near("slowdown_p50_over_status_quo", 0.6);
        near("slowdown_p50_over_in_network_fq", 1.2 / 1.1);
        near("gap_closed", 0.8 / 0.9);
        near("bytes_over_status_quo", 1.0);
        let one = runs[2].metrics.get("requests_total").unwrap();
        assert_eq!(get("requests_total"), 2.0 * one);
        assert_eq!(
            copa.link("forward", "queue_mean_packets"),
            runs[2].links[0].metrics.get("queue_mean_packets")
        );
        if get("requests_large") > 0.0 {
            near("large_paired_ratio_geomean", 0.6);
        }
        // A second valid attempt replaces the first.
        let mut again = runs[2].clone();
        again.metrics.put("flows_failed", Some(7.0));
        runs.push(again);
        let copa = &summarise(&Requests::new(&store), &runs).unwrap()[1];
        assert_eq!((copa.runs, copa.metrics.get("flows_failed")), (2, Some(7.0)));
        runs[3].invalid.push("late".into());
        assert_eq!(summarise(&Requests::new(&store), &runs).unwrap()[1].runs, 1);
    }

    #[test]
    fn arms_compare_with_named_references() {
        let (_folder, mut store, runs) =
            stored(&[("plain", &[2.0, 2.0]), ("copa", &[1.2, 1.2]), ("best", &[1.1, 1.1])]);
        let gap = |store: &Store| {
            let copa = summarise(&Requests::new(store), &runs).unwrap().remove(1);
            assert!(!copa.is_baseline && !copa.is_ideal);
            copa.metrics.get("gap_closed")
        };
        assert_eq!(gap(&store), None);
        let text = r#"
            name = "NAME"
            stop = "1s"
            baseline = "plain"
            ideal = "best"
            bottleneck = { rate = "96Mbit/s", rtt = "50ms", qdisc = "fifo" }
            flow = [{ name = "bulk", traffic = { kind = "greedy" } }]
            arm = [{ name = "plain" }, { name = "copa" }, { name = "best" }]
        "#;
        let text = text.replace("NAME", &runs[0].key.plan);
        let source = Source { file: "p".into(), folder: None, text };
        store.put_plan(&Plan::from_source(source, &[]).unwrap()).unwrap();
        assert!((gap(&store).unwrap() - 0.8 / 0.9).abs() < 1e-5);
        let best = summarise(&Requests::new(&store), &runs).unwrap().remove(2);
        assert!(best.is_ideal && !best.is_baseline);
    }

    #[test]
    fn requests_of_a_run_are_read_once() {
        let (_folder, store, runs) = stored(&[("status_quo", &[2.0, 3.0])]);
        let requests = Requests::new(&store);
        let [first, second] = [0, 1].map(|place| requests.of(runs[place].id).unwrap());
        assert!(first != second && Rc::ptr_eq(&first, &requests.of(runs[0].id).unwrap()));
    }

    #[test]
    fn back_ends_compare_only_with_themselves() {
        let (_folder, store, mut runs) =
            stored(&[("status_quo", &[2.0, 4.0]), ("copa_sfq", &[1.0, 1.0])]);
        for run in runs.iter_mut().filter(|run| run.key.seed == 1) {
            run.key.backend = "sim".into();
        }
        let summaries = summarise(&Requests::new(&store), &runs).unwrap();
        let named: Vec<(&str, &str)> =
            summaries.iter().map(|arm| (arm.arm.as_str(), arm.backend.as_str())).collect();
        let expected = [("status_quo", "emu"), ("status_quo", "sim"), ("copa_sfq", "emu")];
        assert_eq!((&named[..3], named.len()), (&expected[..], 4));
        let over = |arm: usize| summaries[arm].metrics.get("slowdown_p50_over_status_quo").unwrap();
        assert!((over(2) - 0.5).abs() < 1e-5 && (over(3) - 0.25).abs() < 1e-5);
    }

    #[test]
    fn the_spread_is_over_seeds_each_by_itself() {
        let (_folder, store, runs) = stored(&[("status_quo", &[3.0, 1.0, 2.0])]);
        let summaries = summarise(&Requests::new(&store), &runs).unwrap();
        let spread = summaries[0].spread("slowdown_p50").unwrap();
        let near =
            |value: f64, expected: f64| assert!((value - expected).abs() < 1e-5, "{spread:?}");
        near(spread.least, 1.0);
        near(spread.median, 2.0);
        near(spread.greatest, 3.0);
        near(spread.p5, 1.1);
        near(spread.p95, 2.9);
        assert_eq!(spread.runs, 3);
        let queue = summaries[0].spread("link forward queue_mean_packets").unwrap();
        assert_eq!(queue.runs, 3);
        assert_eq!(summaries[0].spread("nothing"), None);
    }

    #[test]
    fn harm_is_share_lost_from_solo() {
        let arm = |name: &str, runs, metrics: &[(&str, f64)]| {
            let metrics = metrics.iter().map(|(name, value)| (name.to_string(), *value)).collect();
            let flow = Part { name: "victim".into(), metrics: Metrics(metrics) };
            ArmSummary { arm: name.into(), runs, flows: vec![flow], ..ArmSummary::default() }
        };
        let life_of = |seconds| ("flow_completion_time_l4", seconds);
        let alone = [
            life_of(20.0),
            ("goodput_mbps", 90.0),
            ("payload_bytes", 900.0),
            ("mean_srtt_l4", 50.0),
            ("total_retransmissions_l4", 18.0),
        ];
        let beside = [
            life_of(20.0),
            ("goodput_mbps", 30.0),
            ("payload_bytes", 300.0),
            ("mean_srtt_l4", 80.0),
            ("total_retransmissions_l4", 15.0),
        ];
        let mut duel = arm("duel", 1, &beside);
        harm(&mut duel, &arm(SOLO, 2, &alone));
        let harm = |name: &str| duel.flows[0].metrics.get(name);
        let near = |name: &str, expected: f64| (harm(name).unwrap() - expected).abs() < 1e-9;
        assert!(near("harm_throughput", 2.0 / 3.0) && near("harm_delay", 0.375));
        // 1 and 5 of a hundred bytes each.
        assert!(near("harm_loss", 0.8), "{:?}", harm("harm_loss"));
        assert_eq!(harm("harm_fct"), None);
        let [mut other, gone] = [20.0, 0.1].map(|life| arm("duel", 1, &[life_of(life), beside[1]]));
        super::harm(&mut other, &gone);
        assert_eq!(other.flows[0].metrics.get("harm_throughput"), None);
        assert_eq!(baselines("flows/victim/harm_delay"), [SOLO]);
    }

    #[test]
    fn pooling_follows_the_catalogue() {
        let metrics = |pairs: &[(&str, f64)]| {
            Metrics(pairs.iter().map(|(name, value)| (name.to_string(), *value)).collect())
        };
        let runs = [
            metrics(&[
                ("queue_mean_packets", 1.0),
                ("queue_max_packets", 5.0),
                ("rate_min_mbps", 80.0),
                ("flows_failed", 2.0),
            ]),
            metrics(&[
                ("queue_mean_packets", 3.0),
                ("queue_max_packets", 4.0),
                ("rate_min_mbps", 70.0),
                ("flows_failed", 2.0),
            ]),
        ];
        let pooled = pool_metrics(runs.iter());
        assert_eq!(
            pooled,
            metrics(&[
                ("queue_mean_packets", 2.0),
                ("queue_max_packets", 5.0),
                ("rate_min_mbps", 70.0),
                ("flows_failed", 4.0)
            ])
        );
    }
}
