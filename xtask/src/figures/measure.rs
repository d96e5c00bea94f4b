//! Makes the rows of pictures with the simulator: plans by the program that `make build` leaves, with the defaults of
//! the boxes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use forebay_lab::compare::ns3::{Class, Simulated, Truths};
use forebay_lab::metrics::Address;
use forebay_lab::metrics::statistics::Sorted;
use forebay_lab::store::{Run, Store};
use forebay_lab::summary::counting;

use super::research::{ALGORITHMS, NS3_METRICS};
use super::rows::{Rows, median, short};
use crate::evaluate::{jobs, printed};

/// Folder of the runs; runs of the same sources in it are not repeated.
const OUT: &str = "out/figures";
/// Length of a step of queues over time (s).
const STEP_S: f64 = 0.25;
/// Steps of a curve of requests, and the last one: 0.995 and more are a few requests.
const SHARES: (usize, usize) = (200, 198);
/// Runs of ns-3 that the simulator was not fitted to.
const DRAWN: &str = "traces/ns3/drawn_7.json";

/// Arms without and with boxes. In plans of `bundler` the default discipline is an arm of its own.
const BUNDLER: [&str; 2] = ["status_quo", "copa_default"];
/// Arms without and with boxes in other plans.
const DEFAULTS: [&str; 2] = ["status_quo", "boxes"];

/// Runs of a plan.
struct Made {
    store: Store,
    runs: Vec<Run>,
    /// How they were made, for the head of a file.
    note: String,
}

/// Makes the runs of `plan` that are missing. `arguments` are further ones of `forebay run`.
fn made(plan: &str, arguments: &[&str]) -> Result<Made> {
    let folder = Path::new(OUT).join(plan.replace('/', "-"));
    let command = [&["run", plan, "--backend", "sim"], arguments].concat();
    let jobs = jobs().to_string();
    let document = printed(plan, &[&command[..], &["--jobs", &jobs]].concat(), &folder)?;
    // Runs of the plan as it was before an edit may be in the folder, too.
    let made = document["runs"].as_array().with_context(|| format!("{plan}: no runs"))?;
    let store = Store::open(&folder)?;
    let ids = made.iter().filter_map(|run| run["id"].as_i64());
    let runs = ids.map(|id| store.run(id)).collect::<Result<Vec<Run>, _>>()?;
    let runs: Vec<Run> = counting(&runs).into_iter().cloned().collect();
    let last = runs.last().with_context(|| format!("{plan}: no valid runs"))?;
    let seeds = || runs.iter().map(|run| run.key.seed);
    let (first, end) = (seeds().min().unwrap_or(0), seeds().max().unwrap_or(0));
    let mut arms: Vec<&str> = Vec::new();
    for run in &runs {
        if !arms.contains(&run.key.arm.as_str()) {
            arms.push(&run.key.arm);
        }
    }
    let note = format!(
        "plan {plan}; arms {}; seeds {first} to {end}; forebay {}; commit {}",
        arms.join(" "),
        command.join(" "),
        last.commit
    );
    Ok(Made { note, store, runs })
}

impl Made {
    fn run(&self, arm: &str) -> Result<&Run> {
        self.runs.iter().find(|run| run.key.arm == arm).with_context(|| format!("no run of {arm}"))
    }

    /// The cells in the order of their first run.
    fn cells(&self) -> Vec<&str> {
        let mut cells: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !cells.contains(&run.key.cell.as_str()) {
                cells.push(&run.key.cell);
            }
        }
        cells
    }

    /// Values of a metric over the seeds of an arm in a cell, with the seeds.
    fn values(&self, [cell, arm, metric]: [&str; 3]) -> Result<Vec<(u64, f64)>> {
        let address: Address = metric.parse().map_err(|()| anyhow!("{metric}: no metric"))?;
        let of_arm = self.runs.iter().filter(|run| run.key.cell == cell && run.key.arm == arm);
        Ok(of_arm.filter_map(|run| Some((run.key.seed, run.get(&address)?))).collect())
    }

    /// The median of a metric over the seeds; an error without any.
    fn median(&self, place: [&str; 3]) -> Result<f64> {
        let values = self.values(place)?;
        ensure!(!values.is_empty(), "{place:?}: no values");
        Ok(median(values.into_iter().map(|(_, value)| value)))
    }

    /// Values of a metric with boxes over those without, seed by seed.
    fn ratios(&self, cell: &str, metric: &str) -> Result<Vec<f64>> {
        let [without, with] = DEFAULTS.map(|arm| self.values([cell, arm, metric]));
        let (without, with) = (without?, with?);
        let ratio = |(seed, value): &(u64, f64)| {
            let (_, other) = without.iter().find(|(other, _)| other == seed)?;
            Some(value / other).filter(|ratio| ratio.is_finite())
        };
        Ok(with.iter().filter_map(ratio).collect())
    }
}

/// Means of samples in steps of [`STEP_S`]; an error for a step without samples.
fn steps(samples: &[(f64, f64)], count: usize) -> Result<Vec<f64>> {
    let mut sums = vec![(0.0, 0.0); count];
    for (at, value) in samples {
        if let Some((sum, seen)) = sums.get_mut((at / STEP_S + 1e-6) as usize) {
            *sum += value;
            *seen += 1.0;
        }
    }
    let mean = |(place, (sum, seen)): (usize, (f64, f64))| {
        ensure!(seen > 0.0, "no samples from {} s on", STEP_S * place as f64);
        Ok(sum / seen)
    };
    sums.into_iter().enumerate().map(mean).collect()
}

/// Queues over time of the first seed.
pub fn queue() -> Result<Rows> {
    let arms = BUNDLER.join(",");
    let made = made("bundler/queue_shift", &["--arms", &arms, "--seed", "1"])?;
    let series = |arm: &str, part: &str, name: &str| -> Result<Vec<(f64, f64)>> {
        Ok(made.store.series(made.run(arm)?.id, part, name, "queue_packets")?)
    };
    let [without, with] = BUNDLER;
    let queues = [
        series(without, "link", "forward")?,
        series(with, "link", "forward")?,
        series(with, "bundle", "a")?,
    ];
    let end = queues[0].last().context("no samples")?.0;
    let count = (end / STEP_S).round() as usize;
    let [without, with, sendbox] = queues.map(|queue| steps(&queue, count));
    let (without, with, sendbox) = (without?, with?, sendbox?);
    let columns = ["at_s", "without_bottleneck", "with_bottleneck", "with_sendbox"];
    let mut rows = Rows::new(made.note, &columns);
    for place in 0..count {
        let at = STEP_S * place as f64;
        rows.push([at, without[place], with[place], sendbox[place]].map(short));
    }
    Ok(rows)
}

/// Percentiles of round trips on each path of `world/alone_mixed`: medians of the seeds.
pub fn ping() -> Result<Rows> {
    let made = made("world/alone_mixed", &["--arms", &DEFAULTS.join(",")])?;
    let columns = ["cell", "without_p50_ms", "with_p50_ms", "without_p99_ms", "with_p99_ms"];
    let mut rows = Rows::new(made.note.clone(), &columns);
    for cell in made.cells() {
        let of = |arm: usize, metric: &str| made.median([cell, DEFAULTS[arm], metric]).map(short);
        let (median, slow) = ("flows/ping/rtt_p50_ms", "flows/ping/rtt_p99_ms");
        rows.push([cell.into(), of(0, median)?, of(1, median)?, of(0, slow)?, of(1, slow)?]);
    }
    Ok(rows)
}

/// Quantiles of the times of all requests.
pub fn requests() -> Result<Rows> {
    let [without, with] = BUNDLER;
    let arms = [without, with, "in_network_fq"];
    let made = made("bundler/main", &["--arms", &arms.join(",")])?;
    let mut times = Vec::new();
    for arm in arms {
        let mut all = Vec::new();
        for run in made.runs.iter().filter(|run| run.key.arm == arm) {
            let outcomes = made.store.outcomes(run.id)?;
            all.extend(outcomes.into_iter().map(|(_, outcome)| outcome.fct_ms));
        }
        times.push(Sorted::new(all));
    }
    let mut rows = Rows::new(made.note, &["share", "without_ms", "with_ms", "in_network_fq_ms"]);
    let (all, last) = SHARES;
    for share in (0..=last).map(|step| step as f64 / all as f64) {
        let at = |arm: usize| times[arm].quantile(share).map(short).context("no requests");
        rows.push([short(share), at(0)?, at(1)?, at(2)?]);
    }
    Ok(rows)
}

/// Times of requests with boxes over those without in the cells of `scale/share` that differ in the share alone.
pub fn share() -> Result<Rows> {
    let made = made("scale/share", &["--arms", &DEFAULTS.join(",")])?;
    let columns = ["requests", "share_pct", "median", "least", "greatest"];
    let mut rows = Rows::new(made.note.clone(), &columns);
    for side in ["inside", "outside"] {
        for cell in made.cells() {
            let share = cell.strip_prefix("share-").and_then(|share| share.parse::<u32>().ok());
            let Some(share) = share else { continue };
            let ratios = made.ratios(cell, &format!("flows/{side}/slowdown_geomean"))?;
            ensure!(!ratios.is_empty(), "{cell}: no requests {side}");
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let greatest = ratios.iter().copied().fold(0.0, f64::max);
            let middle = median(ratios.into_iter());
            rows.push([
                side.into(),
                share.to_string(),
                short(middle),
                short(least),
                short(greatest),
            ]);
        }
    }
    Ok(rows)
}

/// Metrics of the map, each with its address in runs of `plans/world`.
const OF_WORLD: [(&str, &str); 4] = [
    ("payload", "flows/bulk/goodput_mbps"),
    ("ping", "flows/ping/ping_queueing_mean_ms"),
    ("request_p50", "flows/web/fct_p50_ms"),
    ("request_p99", "flows/web/fct_p99_ms"),
];

/// Ratios of metrics in all cells of `plans/world`.
pub fn world() -> Result<Rows> {
    let names = std::fs::read_dir("plans/world")?.map(|entry| Ok(entry?.path()));
    let mut plans = names.collect::<Result<Vec<PathBuf>>>()?;
    plans.retain(|path| path.file_stem().is_some_and(|stem| stem != "arms"));
    plans.sort();
    let mut all = Vec::new();
    for path in &plans {
        let plan = format!("world/{}", path.file_stem().unwrap_or_default().to_string_lossy());
        let made = made(&plan, &["--arms", &DEFAULTS.join(",")])?;
        all.push((plan, made));
    }
    let (_, first) = all.first().context("plans/world: no plans")?;
    let note = format!("each plan of plans/world, all of their seeds, such as {}", first.note);
    let [payload, ping, usual, slow] = OF_WORLD.map(|(name, _)| name);
    let mut rows = Rows::new(note, &["plan", "cell", payload, ping, usual, slow]);
    for (plan, made) in &all {
        for cell in made.cells() {
            let ratio = |metric: &str| -> Result<String> {
                let ratios = made.ratios(cell, metric)?;
                let is_there = !ratios.is_empty();
                Ok(if is_there { short(median(ratios.into_iter())) } else { String::new() })
            };
            let [payload, ping, usual, slow] = OF_WORLD.map(|(_, metric)| ratio(metric));
            rows.push([plan.clone(), cell.into(), payload?, ping?, usual?, slow?]);
        }
    }
    Ok(rows)
}

/// Throughput and queueing of each algorithm on the paths of the benchmark.
pub fn bench() -> Result<Rows> {
    let names = ALGORITHMS.map(|(name, _)| name);
    let algorithms = format!("aut={names:?}");
    let made = made("ccperf/steady_state_single_flow", &["--set", &algorithms])?;
    let mut rows = Rows::new(made.note.clone(), &["algorithm", "path", "utilisation", "delay_ms"]);
    for name in names {
        for cell in made.cells() {
            let filled = made.median([cell, name, "flows/aut/mean_utilization_bw_l4"])?;
            let delay = made.median([cell, name, "links/forward/mean_qdisc_delay_l2"])?;
            let path = cell.trim_start_matches("path=");
            rows.push([name.into(), path.into(), short(filled), short(delay)]);
        }
    }
    Ok(rows)
}

/// Metrics of drawn runs in ns-3, and in the simulator now. Runs whose throughput is chaotic in ns-3 itself are left out.
pub fn ns3() -> Result<Rows> {
    let truths = Truths::read(Path::new(DRAWN)).map_err(|error| anyhow!(error))?;
    let commit = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output()?.stdout;
    let note = format!(
        "runs of {DRAWN} that are not unstable; five starts or ten seeds; forebay compare-ns3 --file {DRAWN}; commit {}",
        String::from_utf8_lossy(&commit).trim()
    );
    let columns = ["run", "class", "metric", "ns3_least", "ns3_greatest", "simulator", "holds"];
    let mut rows = Rows::new(note, &columns);
    for truth in truths.runs.iter().filter(|truth| truth.class != Class::Unstable) {
        let simulated = Simulated::new(truth).map_err(|error| anyhow!(error))?;
        for pair in simulated.pairs() {
            if NS3_METRICS.iter().any(|(metric, _)| *metric == pair.metric) {
                let [low, high, ours] = [pair.low, pair.high, pair.ours].map(short);
                let class = format!("{:?}", truth.class).to_lowercase();
                let holds = u8::from(pair.holds).to_string();
                rows.push([truth.name.clone(), class, pair.metric.into(), low, high, ours, holds]);
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_hold_means_of_their_samples() {
        let samples = [(0.0, 1.0), (0.2, 3.0), (0.25, 5.0), (0.8, 9.0)];
        assert_eq!(steps(&samples, 2).unwrap(), [2.0, 5.0]);
        assert_eq!(steps(&samples, 3).unwrap_err().to_string(), "no samples from 0.5 s on");
    }
}
