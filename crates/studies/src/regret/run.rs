//! Runs sequences, several at a time, and stores the results.

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_core::record::RunRecord;
use forebay_scenario::Traffic;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::sequence::{BULK, PING, RegretSequence, TRAFFIC_MS, WEB};
use super::windows::{RegretWindow, SeenRun, rounded, windows};
use crate::json_lines;
use crate::parallel::in_order;
use forebay_lab::RunError;
use forebay_lab::backend::{self, Backend};
use forebay_lab::metrics::{Evaluation, evaluate};
use forebay_lab::plan::library::Source;
use forebay_lab::plan::{Experiment, Plan, Seeds};
use forebay_lab::store::Build;

/// The back end: 200 sequences are 20 hours of traffic.
const BACKEND: &str = "sim";
/// Name of the file in a folder of results.
const FILE: &str = "regret.jsonl";
/// Length of an interval of [`SeenRun`].
const INTERVAL: Duration = Duration::from_millis(100);

/// Which sequences to run, and how.
#[derive(Clone, Debug)]
pub struct RegretRequest {
    /// The sequences.
    pub seeds: Seeds,
    /// Sequences at a time (1 or more).
    pub jobs: usize,
    /// Folder of the rows.
    pub folder: PathBuf,
    /// Run known sequences again.
    pub force: bool,
    /// The program that runs them.
    pub build: Build,
}

/// Measurements of one sequence. A row depends on the seed and the program alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegretRow {
    /// Seed of the sequence.
    pub seed: u64,
    /// Digest of the sources of the program that ran it.
    pub sources: String,
    /// SHA-256 of the plan, in hex.
    pub plan_sha256: String,
    /// The path and the site's traffic in words.
    pub setting: String,
    /// The changes and their times, in words.
    pub changes: Vec<String>,
    /// Deliveries over time.
    pub windows: Vec<RegretWindow>,
    /// Mean queueing delay of a sparse flow of the site.
    pub ping: Ping,
    /// States of the sendbox and the reasons, in order of time.
    pub states: Vec<State>,
}

/// Mean queueing delay of a sparse flow (ms): round trip less the propagation delay. `None`: no ping was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ping {
    /// Without boxes.
    pub none_ms: Option<f64>,
    /// Without boxes, for connections that start a little later.
    pub later_ms: Option<f64>,
    /// With boxes.
    pub boxes_ms: Option<f64>,
}

/// A state of the sendbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// When the state begins (s since the start of the run).
    pub at_s: f64,
    /// Name of the state.
    pub state: String,
    /// Why the state began.
    pub reason: String,
    /// Whether the algorithm's limits are enforced; on trial they are not counted.
    pub shaped: bool,
}

/// Measures the sequences of `request` that its folder lacks. Rows are in the order of the seeds, and `progress` gets
/// each row in that order.
///
/// # Errors The folder cannot be used, or a sequence cannot be simulated.
pub fn regret(
    request: &RegretRequest,
    progress: &mut dyn FnMut(&RegretRow),
) -> Result<Vec<RegretRow>, RunError> {
    let path = request.folder.join(FILE);
    let unusable = |error| RunError::unusable(&request.folder, &error);
    let backend = backend::open(BACKEND)?;
    let sources = request.build.sources(BACKEND);
    let mut known: Vec<RegretRow> = json_lines::read(&path).map_err(unusable)?;
    known.retain(|row| row.sources == sources && !request.force);
    let seeds: Vec<u64> = request.seeds.iter().collect();
    let mut rows = Vec::with_capacity(seeds.len());
    for seeds in seeds.chunks(request.jobs.max(1)) {
        let blank: Vec<RegretRow> = seeds.iter().map(|seed| blank(*seed, sources)).collect();
        let known = |row: &RegretRow| known.iter().rev().find(|it| is_like(it, row));
        let wanted: Vec<&RegretRow> = blank.iter().filter(|row| known(row).is_none()).collect();
        let measured = in_order(&wanted, request.jobs, |row| measure(&*backend, row));
        let measured = measured.into_iter().collect::<Result<Vec<RegretRow>, _>>()?;
        json_lines::append(&path, &measured).map_err(unusable)?;
        for row in &blank {
            let measured = measured.iter().find(|it| it.seed == row.seed);
            let row = measured.or_else(|| known(row)).expect("it is known or was just measured");
            progress(row);
            rows.push(row.clone());
        }
    }
    Ok(rows)
}

/// A row without measurements.
fn blank(seed: u64, sources: &str) -> RegretRow {
    let sequence = RegretSequence::draw(seed);
    let digest = Sha256::digest(sequence.plan());
    RegretRow {
        seed,
        sources: sources.into(),
        plan_sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        setting: sequence.words(),
        changes: sequence.changes(),
        windows: Vec::new(),
        ping: Ping::default(),
        states: Vec::new(),
    }
}

/// Whether both rows belong to the same sequence.
fn is_like(one: &RegretRow, other: &RegretRow) -> bool {
    (one.seed, &one.plan_sha256) == (other.seed, &other.plan_sha256)
}

/// Measures the sequence of `blank` and returns its row.
fn measure(backend: &dyn Backend, blank: &RegretRow) -> Result<RegretRow, RunError> {
    let text = RegretSequence::draw(blank.seed).plan();
    let source = Source { file: format!("regret-{}", blank.seed), folder: None, text };
    let plan = Plan::from_source(source, &[])?;
    let run = |arm: usize| {
        let experiment = plan.experiment(&plan.arms[arm], &plan.cells[0], blank.seed)?;
        let rows = backend.run(&experiment, Path::new(""), &mut |_| ())?;
        let found = evaluate(&experiment, &rows)?;
        Ok::<_, RunError>((seen(&experiment, &rows.run), ping_ms(&found), states(&found)))
    };
    let (none, none_ms, _) = run(0)?;
    let (later, later_ms, _) = run(1)?;
    let (unlimited, ..) = run(2)?;
    let (boxes, boxes_ms, states) = run(3)?;
    let mut windows = windows(&none, &later, &unlimited, &boxes);
    for window in &mut windows {
        window.shaped = rounded(shaped(&states, window.from_s, window.until_s()));
    }
    Ok(RegretRow { windows, ping: Ping { none_ms, later_ms, boxes_ms }, states, ..blank.clone() })
}

/// Deliveries to the site, and whether data waited: a bulk flow was open, or a request had arrived and not finished.
fn seen(experiment: &Experiment, rows: &RunRecord) -> SeenRun {
    let intervals = (Duration::from_millis(TRAFFIC_MS).as_nanos() / INTERVAL.as_nanos()) as usize;
    let mut seen = SeenRun { bytes: vec![0; intervals], waits: vec![false; intervals] };
    let name = |flow: usize| experiment.flows.get(flow).map_or("", |it| it.name.as_str());
    for row in rows.flows.iter().filter(|row| [BULK, WEB].contains(&name(row.flow))) {
        seen.bytes.iter_mut().zip(&row.bytes_per_100ms).for_each(|(sum, bytes)| *sum += bytes);
    }
    let interval_ns = INTERVAL.as_nanos() as u64;
    // Data wait at the end of interval i if they arrive before and stay until after (i + 1) x 100 ms.
    let mut wait = |from_ns: u64, until_ns: u64| {
        let [from, to] =
            [from_ns, until_ns].map(|ns| (ns.div_ceil(interval_ns) as usize).max(1) - 1);
        let to = to.min(intervals);
        seen.waits[from.min(to)..to].fill(true);
    };
    for flow in experiment.flows.iter().filter(|flow| flow.name == BULK) {
        if let Traffic::Greedy { .. } = flow.traffic {
            wait(flow.first_start().as_nanos() as u64, u64::MAX);
        }
    }
    for request in rows.requests.iter().filter(|request| name(request.flow) == WEB) {
        wait(request.scheduled_ns, request.finished_ns.unwrap_or(u64::MAX));
    }
    seen
}

/// Mean queueing delay of the sparse flow.
fn ping_ms(found: &Evaluation) -> Option<f64> {
    let flow = found.flows.iter().find(|flow| flow.name == PING)?;
    flow.metrics.get("ping_queueing_mean_ms").map(rounded)
}

/// Share of the time from `from_s` to `until_s` in which a sendbox with these states enforces limits.
fn shaped(states: &[State], from_s: f64, until_s: f64) -> f64 {
    let ends = states.iter().skip(1).map(|next| next.at_s).chain([f64::INFINITY]);
    let parts = states.iter().zip(ends).filter(|(state, _)| state.shaped);
    let within = |(state, end): (&State, f64)| (end.min(until_s) - state.at_s.max(from_s)).max(0.0);
    parts.map(within).sum::<f64>() / (until_s - from_s)
}

fn states(found: &Evaluation) -> Vec<State> {
    let state = |it: &forebay_lab::metrics::Transition| State {
        at_s: rounded(it.at_s),
        state: it.state.clone(),
        reason: it.reason.clone(),
        shaped: it.is_shaped(),
    };
    found.transitions.iter().map(state).collect()
}

#[cfg(test)]
mod tests;
