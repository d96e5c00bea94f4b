//! From rows to numbers: one definition of every metric, for every back end.

mod address;
mod agent;
mod arms;
mod attack;
mod bundles;
mod catalogue;
mod convergence;
mod cost;
mod entry;
mod fairness;
mod flows;
mod links;
mod media;
mod network;
mod path;
pub mod requests;
mod rows;
mod samples;
mod sites;
pub mod statistics;
#[cfg(test)]
pub(crate) mod testing;
mod validity;
mod video;

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use forebay_core::record::{AttackRecord, RequestRecord, RunRecord};
use forebay_scenario::Window;
use serde::{Deserialize, Serialize};

use crate::experiment::Experiment;
pub use address::Address;
pub use arms::OF_CURVES;
pub use bundles::Transition;
pub use catalogue::{
    catalogue, describe, heading, higher_is_better, is_sum, title, unit, with_unit,
};
pub use cost::disturbance;
pub use entry::{Entry, HOLES, NOTATION, Pooling};
pub use links::{LinkTruth, PacketLog, Reader};
pub use requests::{OF_REQUESTS, Outcome};
pub use rows::RunRows;
pub use samples::{SERIES, Series};
pub use sites::OF_A_SITE;
pub use validity::{LIMITS, harness_reasons};

use fairness::Fairness;

/// Numbers by name. The end of the name is the unit; without one the number is a share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Metrics(pub BTreeMap<String, f64>);

impl Metrics {
    /// Adds a number. One that is unknown or not finite is left out; it never becomes 0.
    pub fn put(&mut self, name: &str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.0.insert(name.to_string(), value);
        }
    }

    /// Adds the percentiles for the placeholder `{p}` or `{q}` in `pattern`; `of` returns the quantile of a
    /// share, 0 to 1.
    fn put_quantiles(&mut self, pattern: &str, of: impl Fn(f64) -> Option<f64>) {
        for (hole, words) in HOLES.iter().filter(|(hole, _)| pattern.contains(hole)) {
            for word in *words {
                let percent = word.strip_prefix('p').and_then(|number| number.parse::<f64>().ok());
                let share = percent.expect("such a hole is filled with percentiles") / 100.0;
                self.put(&pattern.replace(hole, word), of(share));
            }
        }
    }

    /// The number called `name`.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Adds the numbers of `other`, each as `prefix.name`.
    fn put_all(&mut self, prefix: &str, other: Metrics) {
        for (name, value) in other.0 {
            let name = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
            self.0.insert(name, value);
        }
    }
}

/// The metrics of one part of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Part {
    /// Name of the flow, link or bundle.
    pub name: String,
    /// Metrics of the part.
    pub metrics: Metrics,
}

/// A request with its place and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedRequest {
    /// As measured.
    pub row: RequestRecord,
    /// Arrived after the warm-up.
    pub counted: bool,
    /// Outcome of the request.
    pub outcome: Outcome,
}

/// Everything known about a run after its rows were read.
#[derive(Clone, Debug, Default)]
pub struct Evaluation {
    /// Why the harness's own figures make the run invalid; empty: valid.
    pub invalid: Vec<String>,
    /// The whole run.
    pub run: Metrics,
    /// Per flow of the plan.
    pub flows: Vec<Part>,
    /// Per link.
    pub links: Vec<Part>,
    /// Per bundle.
    pub bundles: Vec<Part>,
    /// Every request.
    pub requests: Vec<JudgedRequest>,
    /// Numbers over time.
    pub series: Vec<Series>,
    /// The states of the bundles, and why each began.
    pub transitions: Vec<Transition>,
}

impl Evaluation {
    /// Evaluation of a run that the harness could not make.
    pub fn of_failure(reason: &str) -> Self {
        Self { invalid: vec![format!("failed: {reason}")], ..Self::default() }
    }

    /// Evaluation of a run in which a box died: valid, because the death is the box's own behaviour.
    pub fn of_death() -> Self {
        let mut run = Metrics::default();
        run.put("boxes_died", Some(1.0));
        Self { run, ..Self::default() }
    }
}

/// Computes every metric of a run. Fails only if a packet log cannot be read.
pub fn evaluate(experiment: &Experiment, rows: &RunRows) -> io::Result<Evaluation> {
    if let Some(trial) = &rows.run.cost {
        return Ok(cost::evaluate(experiment, trial));
    }
    let known: Option<Vec<&LinkTruth>> = rows.packets.iter().map(PacketLog::truth).collect();
    if let Some(truths) = known {
        return Ok(evaluate_by(experiment, &rows.run, &truths));
    }
    let windows: Vec<Window> = windows(experiment, rows.run.attack.as_ref()).collect();
    let truths = links::read(experiment, &rows.run, &rows.packets, &windows)?;
    Ok(evaluate_by(experiment, &rows.run, &truths.iter().collect::<Vec<_>>()))
}

fn evaluate_by(experiment: &Experiment, rows: &RunRecord, truths: &[&LinkTruth]) -> Evaluation {
    let truth = |name: &str| truths.iter().copied().find(|truth| truth.name == name);
    let requests: Vec<JudgedRequest> =
        rows.requests.iter().map(|row| judge(experiment, rows, row)).collect();
    let mut run = requests::metrics(&outcomes(&requests, |_| true));
    let fairness = Fairness::of(experiment, rows);
    let mut flow_parts = Vec::new();
    for (place, flow) in experiment.flows.iter().enumerate() {
        let mut metrics = requests::metrics(&outcomes(&requests, |row| row.flow == place));
        metrics.0.extend(flows::metrics(experiment, rows, Some(place)).0);
        metrics.0.extend(sites::metrics(experiment, &requests, place).0);
        metrics.put("slowdown_first", first_slowdown(&requests, place));
        metrics.put("starved_s", fairness.starved_s(Some(place)));
        flow_parts.push(Part { name: flow.name.clone(), metrics });
    }
    run.0.extend(flows::metrics(experiment, rows, None).0);
    run.0.extend(network::metrics(experiment, rows, &flow_parts).0);
    run.0.extend(sites::of_bundles(experiment, rows).0);
    run.0.extend(fairness.metrics().0);
    run.0.extend(convergence::metrics(experiment, rows).0);
    run.0.extend(rows.attack.as_ref().map(attack::metrics).unwrap_or_default().0);
    run.0.extend(rows.agent.as_ref().map(agent::metrics).unwrap_or_default().0);
    let mut link_parts = Vec::new();
    for truth in truths {
        let row = rows.link(&truth.name).expect("read from it");
        let mut metrics =
            per_window(experiment, rows, |window| truth.metrics(experiment, row, window));
        metrics.0.extend(links::whole_run(row).0);
        link_parts.push(Part { name: truth.name.clone(), metrics });
    }
    let mut bundle_parts = Vec::new();
    let mut series = samples::of_run(experiment, rows, truths);
    series.extend(fairness.series());
    let mut transitions = Vec::new();
    for (bundle, row) in bundles::declared(experiment, rows) {
        let there = truth(&experiment.ways(&bundle.pair)[usize::from(bundle.reversed)].name);
        let Some(there) = there else { continue };
        let judged = bundles::judge_epochs(experiment, bundle, row, there);
        series.extend(samples::of_bundle(row, &judged));
        transitions.extend(bundles::transitions(row));
        let metrics = per_window(experiment, rows, |window| {
            bundles::metrics(experiment, bundle, row, there, &judged, window)
        });
        bundle_parts.push(Part { name: row.name.clone(), metrics });
    }
    for window in windows(experiment, rows.attack.as_ref()) {
        run.put_all(&window.name, queues_together(rows, truths, &window));
    }
    Evaluation {
        invalid: harness_reasons(experiment, rows),
        run,
        flows: flow_parts,
        links: link_parts,
        bundles: bundle_parts,
        requests,
        series,
        transitions,
    }
}

/// The counted interval, the plan's own windows, and the window of an attack.
pub fn windows(
    experiment: &Experiment,
    attack: Option<&AttackRecord>,
) -> impl Iterator<Item = Window> {
    let attack = attack.and_then(|attack| attack_window(experiment, attack));
    let own = experiment.windows.iter().cloned();
    std::iter::once(experiment.counted()).chain(own).chain(attack)
}

/// An attack and the second after it; `None` if it never began.
fn attack_window(experiment: &Experiment, attack: &AttackRecord) -> Option<Window> {
    let from = Duration::from_nanos(attack.began_ns);
    let to = from + Duration::from_nanos(attack.took_ns) + Duration::from_secs(1);
    let window = Window { name: "attack".into(), from, to: to.min(experiment.stop) };
    (attack.took_ns > 0 && window.from < window.to).then_some(window)
}

fn per_window(
    experiment: &Experiment,
    rows: &RunRecord,
    mut metrics: impl FnMut(&Window) -> Metrics,
) -> Metrics {
    let mut all = Metrics::default();
    for window in windows(experiment, rows.attack.as_ref()) {
        all.put_all(&window.name, metrics(&window));
    }
    all
}

fn outcomes(requests: &[JudgedRequest], keep: impl Fn(&RequestRecord) -> bool) -> Vec<Outcome> {
    let kept = requests.iter().filter(|request| request.counted && keep(&request.row));
    kept.map(|request| request.outcome).collect()
}

/// Slowdown of the flow's first request, counted or not: the cost of an idle time before it.
fn first_slowdown(requests: &[JudgedRequest], flow: usize) -> Option<f64> {
    let of_flow = requests.iter().filter(|request| request.row.flow == flow);
    of_flow.min_by_key(|request| request.row.scheduled_ns)?.outcome.slowdown
}

fn judge(experiment: &Experiment, rows: &RunRecord, row: &RequestRecord) -> JudgedRequest {
    let flow = &experiment.flows[row.flow];
    let end = row.finished_ns.unwrap_or(rows.finished_ns);
    let fct = Duration::from_nanos(end.saturating_sub(row.scheduled_ns));
    let (rtt, rate) = match experiment.site_pair(row.flow, row.connection) {
        Some(pair) => (pair.rtt, Some(pair.rate)),
        None => (experiment.rtt_of(flow), path::link_of(experiment, flow).nominal_rate()),
    };
    let ideal = rate.map(|rate| requests::ideal(row.size_bytes, rtt, rate));
    JudgedRequest {
        row: row.clone(),
        counted: u128::from(row.scheduled_ns) >= experiment.warmup.as_nanos(),
        outcome: Outcome {
            size_bytes: row.size_bytes,
            fct_ms: fct.as_secs_f64() * 1e3,
            slowdown: ideal.map(|ideal| fct.as_secs_f64() / ideal.as_secs_f64()),
            queued_behind: row.queued_behind,
            finished: row.finished_ns.is_some(),
        },
    }
}

/// The queues of all links and of all sendboxes, added.
fn queues_together(rows: &RunRecord, truths: &[&LinkTruth], window: &Window) -> Metrics {
    // The queue of a path is part of the link where the paths merge.
    let links = truths.iter().filter(|truth| !truth.name.starts_with("path-"));
    let at_links = links.filter_map(|truth| truth.mean_queue(window));
    let at_sendboxes = rows.bundles.iter().filter_map(|bundle| bundles::mean_queue(bundle, window));
    let mut metrics = Metrics::default();
    metrics.put("queue_total_mean_packets", Some(at_links.chain(at_sendboxes).sum()));
    metrics
}

/// The ends of a window in nanoseconds since the start.
fn bounds_ns(window: &Window) -> (u64, u64) {
    (window.from.as_nanos() as u64, window.to.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_metric_is_described() {
        let (_, evaluation) = testing::invented_run();
        let parts = [
            ("flow", &evaluation.flows),
            ("link", &evaluation.links),
            ("bundle", &evaluation.bundles),
        ];
        let of_parts =
            parts.iter().flat_map(|(kind, parts)| parts.iter().map(|it| (*kind, &it.metrics)));
        for (kind, metrics) in of_parts.chain([("run", &evaluation.run)]) {
            for name in metrics.0.keys() {
                assert!(describe(name).is_some_and(|it| it.is_of(kind)), "{name} of a {kind}");
            }
        }
        for series in &evaluation.series {
            let is_it = |it: &Entry| it.name == series.quantity && it.is_of(series.part);
            assert!(SERIES.iter().any(is_it), "{} of a {}", series.quantity, series.part);
        }
    }

    #[test]
    fn name_placeholders_match_percentiles() {
        let mut metrics = Metrics::default();
        metrics.put_quantiles("srtt_{p}_ms", |share| Some(share * 1000.0));
        let names: Vec<&str> = metrics.0.keys().map(String::as_str).collect();
        assert_eq!(names, ["srtt_p50_ms", "srtt_p5_ms", "srtt_p95_ms", "srtt_p99_ms"]);
        assert_eq!(metrics.get("srtt_p5_ms"), Some(50.0));
    }

    #[test]
    fn attack_window_ends_one_second_later() {
        let mut experiment = testing::experiment();
        experiment.stop = Duration::from_secs(9);
        let attack = |began_s: u64, took_s: u64| AttackRecord {
            began_ns: began_s * 1_000_000_000,
            took_ns: took_s * 1_000_000_000,
            ..AttackRecord::default()
        };
        let bounds = |attack: &AttackRecord| {
            attack_window(&experiment, attack).map(|w| (w.from.as_secs(), w.to.as_secs()))
        };
        assert_eq!(bounds(&attack(3, 4)), Some((3, 8)));
        assert_eq!(bounds(&attack(3, 6)), Some((3, 9)));
        assert_eq!(bounds(&attack(0, 0)), None);
    }
}
