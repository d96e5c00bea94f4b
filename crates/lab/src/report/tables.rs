//! The tables of a report.

use std::collections::{BTreeMap, BTreeSet};

use super::content::PlanResults;
use super::figures::place;
use super::page::{Block, MetricRow, MetricTable, PageTable, REJECTED};
use crate::metrics::statistics::mean;
use crate::metrics::{LIMITS, Metrics, OF_CURVES, describe, higher_is_better, is_sum, title, unit};
use crate::output::{self, cell, number};
use crate::plan::setup::boxes;
use crate::store::{Run, Store, StoreError};
use crate::summary::ArmSummary;

/// A table.
pub fn block(columns: &[&str], rows: Vec<Vec<String>>, caption: &str) -> Block {
    let columns = columns.iter().map(|column| column.to_string()).collect();
    Block::Table(PageTable { columns, rows, caption: caption.into() })
}

/// The arms in plain words, and the boxes that they have.
pub fn arms(plan: &PlanResults<'_>) -> Block {
    let row = |(name, summary): &(String, String)| {
        let runs = plan.runs.iter().filter(|run| run.key.arm == *name);
        let state = match runs.clone().filter(|run| run.is_valid()).count() {
            0 => format!("{REJECTED}: no valid run"),
            valid => format!("{valid} valid"),
        };
        let boxes = boxes(&runs.map(|run| &run.parameters).collect::<Vec<_>>());
        vec![name.clone(), summary.clone(), boxes, state]
    };
    let columns = ["arm", "description", "its boxes", "runs"];
    block(&columns, plan.arms.iter().map(row).collect(), "The compared arms.")
}

/// The numbers that a reader looks for first.
const OVERVIEW: &str = "slowdown_p50 slowdown_geomean slowdown_above_1_3 slowdown_p99 fct_p50_ms fct_p99_ms \
     requests_unfinished rtt_p50_ms video_rate_mbps video_rebuffering_s media_delay_p95_ms goodput_mbps gap_closed queue_mean_packets \
     sojourn_mean_ms drops_queue_packets";
/// Metrics of the overview of a plan that measures costs.
const OVERVIEW_OF_COSTS: &str = "cpu_score cpu_ratio cpu_s_per_gb processor_share acked_mbps ack_over_empty_ns \
     decision_p50_us decision_p99_us";

/// Caption of the summary of plans with traffic.
const OF_REQUESTS: &str = "Results. Requests of all seeds are pooled; queues and throughput are means over time and \
     seeds. Below a number: the least and the greatest seed alone. A smaller difference between arms may be chance. \
     Bold: the best number. Time next to packets: time to send these at the bottleneck's rate. Gap closed: share of \
     the gap between status_quo and in_network_fq that an arm closes; 1 is all of it. Quantiles interpolate between \
     the closest ranks.";

/// Caption of the summary of trials of costs.
const OF_COSTS: &str = "Results: medians over the seeds. A CPU score is the count of a process that runs in the \
     remaining time of the processor, divided by its count in the baseline's trial of the same block. A pair of \
     trials counts only if bytes and acknowledgements per second differ by at most 1 % at a fixed rate, and if \
     neither the hypervisor nor other processes took the processor away. The score is 0 if an agent fell back, lost \
     a report, decided too late or missed acknowledgements that it should have got.";

/// Name and definition of the metric at `address`, for a tooltip.
pub fn definition(address: &str) -> String {
    let quantity = address.rsplit('/').next().unwrap_or(address);
    let entry = describe(quantity);
    entry.map_or_else(|| address.into(), |entry| format!("{address}: {}", entry.summary))
}

/// The summary table: runs, the bottleneck and the sendboxes of each cell.
pub fn overview(plan: &PlanResults<'_>) -> Option<Block> {
    let bottleneck = parts(plan, "link").filter(|it| it.name == "forward");
    let mut groups: Vec<_> = whole(plan).chain(bottleneck).chain(parts(plan, "bundle")).collect();
    groups.sort_by_key(|it| plan.cells().iter().position(|cell| *cell == it.cell));
    let is_of_costs = plan.summaries.iter().any(|arm| arm.metrics.get("cpu_s_per_gb").is_some());
    let (names, caption) =
        if is_of_costs { (OVERVIEW_OF_COSTS, OF_COSTS) } else { (OVERVIEW, OF_REQUESTS) };
    metric_table(plan, groups.into_iter(), names, caption)
}

/// Medians, 95th and 99th percentiles, accuracy, windows, CPU.
pub fn numbers(plan: &PlanResults<'_>) -> Vec<Block> {
    let mut blocks = Vec::new();
    blocks.extend(completion_times(plan));
    blocks.extend(videos(plan));
    blocks.extend(media(plan));
    blocks.extend(connections(plan));
    blocks.extend(curves(plan));
    blocks.extend(programs(plan));
    blocks.extend(queues(plan));
    blocks.extend(accuracy(plan));
    blocks.extend(comparisons(plan));
    blocks.extend(windows(plan));
    blocks.extend(cpu(plan));
    blocks
}

/// Metrics of one cell, or of one part of the runs in it, on each side.
struct Group<'a> {
    cell: &'a str,
    part: &'static str,
    name: &'a str,
    sides: Vec<Option<(&'a Metrics, &'a ArmSummary)>>,
}

impl Group<'_> {
    /// Whether a side has `metric`.
    fn has(&self, metric: &str) -> bool {
        self.sides.iter().flatten().any(|(metrics, _)| metrics.get(metric).is_some())
    }
}

/// A table of the metrics `names`, separated by spaces: one row for each group and metric. Rows without any
/// number are left out, and so is a table without any. Sums over runs become means. Queues have the time to
/// send their packets next to these.
fn metric_table<'a>(
    plan: &PlanResults<'_>,
    groups: impl Iterator<Item = Group<'a>>,
    names: &str,
    caption: &str,
) -> Option<Block> {
    let mut rows = Vec::new();
    for Group { cell, part, name, sides } in groups {
        let place = if part == "run" { String::new() } else { place(part, name) };
        let of: Vec<&str> = [cell, &place].into_iter().filter(|it| !it.is_empty()).collect();
        let packet_ms = plan.packet_ms(cell).filter(|_| part == "bundle" || name == "forward");
        for metric in names.split_whitespace() {
            let is_sum = is_sum(metric);
            let packet_ms =
                packet_ms.filter(|_| metric.starts_with("queue_") && unit(metric) == "packets");
            let key = format!("{part} {name} {metric}");
            let key = if part == "run" { metric } else { &key };
            let shown = |side: &Option<(&Metrics, &ArmSummary)>| {
                let (metrics, arm) = (*side)?;
                let value = metrics.get(metric)? / if is_sum { arm.runs as f64 } else { 1.0 };
                let wait = packet_ms.map(|ms| format!(", {} ms", number(value * ms)));
                let spread = arm.spread(key).map(|it| [it.least, it.greatest].map(number));
                let range = spread.filter(|[least, greatest]| least != greatest);
                let range = range.map(|ends| format!("\n{}", ends.join(" to ")));
                let text = [Some(number(value)), wait, range].into_iter().flatten().collect();
                Some((value, text))
            };
            rows.push(MetricRow {
                of: of.join(", "),
                title: title(metric) + if is_sum { ", per run (mean over seeds)" } else { "" },
                name: definition(metric),
                higher: higher_is_better(part, metric),
                numbers: sides.iter().map(shown).collect(),
            });
        }
    }
    rows.retain(|row| row.numbers.iter().any(Option::is_some));
    let sides = plan.sides.iter().map(|side| side.label.clone()).collect();
    let table = MetricTable { sides, rows, caption: caption.into() };
    (!table.rows.is_empty()).then_some(Block::Metrics(table))
}

/// The metrics of whole runs in each cell.
fn whole<'a>(plan: &'a PlanResults<'_>) -> impl Iterator<Item = Group<'a>> {
    plan.cells().into_iter().map(|cell| {
        let metrics = |side| plan.summary(cell, side).map(|arm| (&arm.metrics, arm));
        Group { cell, part: "run", name: "", sides: plan.sides.iter().map(metrics).collect() }
    })
}

/// The parts of this kind in each cell, in the order of their first arm.
fn parts<'a>(plan: &'a PlanResults<'_>, part: &'static str) -> impl Iterator<Item = Group<'a>> {
    let list = move |arm: &'a ArmSummary| match part {
        "flow" => &arm.flows,
        "link" => &arm.links,
        _ => &arm.bundles,
    };
    plan.cells().into_iter().flat_map(move |cell| {
        let arms = || plan.sides.iter().map(|side| plan.summary(cell, side));
        let mut names: Vec<&str> = Vec::new();
        for it in arms().flatten().flat_map(list) {
            if !names.contains(&it.name.as_str()) {
                names.push(&it.name);
            }
        }
        let group = |name| {
            let find = |arm: Option<&'a ArmSummary>| {
                let found = list(arm?).iter().find(|it| it.name == name)?;
                Some((&found.metrics, arm?))
            };
            Group { cell, part, name, sides: arms().map(find).collect() }
        };
        names.into_iter().map(group).collect::<Vec<_>>()
    })
}

fn completion_times(plan: &PlanResults<'_>) -> Vec<Block> {
    let tables = [
        (
            "requests_total requests_unfinished fct_p50_ms fct_p95_ms fct_p99_ms \
         slowdown_p50 slowdown_p95 slowdown_p99 slowdown_geomean slowdown_unqueued_p99",
            "Completion times of requests, from scheduled arrival to the last byte, and slowdowns. \
             An unfinished request counts with its age.",
        ),
        (
            "slowdown_small_p50 slowdown_small_p95 slowdown_small_p99 slowdown_medium_p50 \
         slowdown_medium_p95 slowdown_medium_p99 slowdown_large_p50 slowdown_large_p95 \
         slowdown_large_p99",
            "Slowdowns by size: small up to 10 KB, medium up to 1 MB, large above.",
        ),
    ];
    let table = |(names, caption)| metric_table(plan, whole(plan), names, caption);
    tables.into_iter().filter_map(table).collect()
}

fn programs(plan: &PlanResults<'_>) -> Option<Block> {
    let arms = plan.summaries.iter().map(|arm| (plan.name(arm), arm));
    let (columns, rows) = output::programs(arms)?;
    let caption = "BPF programs, medians over the seeds. The kernel takes their time, and the empty program shows how \
                   much of it taking the time costs.";
    Some(Block::Table(PageTable { columns, rows, caption: caption.into() }))
}

fn queues(plan: &PlanResults<'_>) -> Vec<Block> {
    let links = metric_table(
        plan,
        parts(plan, "link"),
        "queue_mean_packets queue_p95_packets queue_max_packets sojourn_mean_ms \
         sojourn_p50_ms sojourn_p99_ms throughput_mbps utilisation drops_queue_packets",
        "The links, from their own log of every packet; `forward` is the bottleneck. Queues are \
         means over time.",
    );
    let bundles = metric_table(
        plan,
        parts(plan, "bundle"),
        "queue_mean_packets queue_p95_packets queue_share_at_sendbox throughput_mbps \
         shaped_share passing_share trying_share trials first_shape_s min_rtt_ms \
         min_rtt_drift_ms drops_queue_packets message_share",
        "The sendboxes. Share of all queueing: the sendbox's queue divided by the sum of the \
         sendbox and bottleneck queues. Drops and messages cover the whole run, including the \
         warm-up.",
    );
    links.into_iter().chain(bundles).collect()
}

fn accuracy(plan: &PlanResults<'_>) -> Option<Block> {
    metric_table(
        plan,
        parts(plan, "bundle"),
        "rtt_within_1ms rtt_within_1ms_of_all rtt_error_abs_p50_ms rtt_error_p10_ms \
         rtt_error_p90_ms rate_within_4pct rate_within_4pct_of_all rate_within_2mbps \
         rate_within_2mbps_of_all samples_per_rtt boundaries_matched \
         boundaries_matched_of_all epochs_without_truth",
        "Estimates of the sendbox compared with the truth. True RTT: propagation, the boundary \
         packet's time at the bottleneck, and the reverse path. True rate: bytes that left the \
         bottleneck between the same two boundaries. No sample is excluded or corrected. Shares \
         count matched boundaries; in shares of all boundaries, unmatched ones count as wrong.",
    )
}

fn comparisons(plan: &PlanResults<'_>) -> Option<Block> {
    metric_table(
        plan,
        whole(plan),
        "slowdown_p50_over_status_quo slowdown_p99_over_status_quo \
         fct_p50_over_status_quo slowdown_p50_over_in_network_fq gap_closed \
         large_paired_ratio_geomean bytes_over_status_quo queue_total_over_status_quo",
        "Arms compared with each other. Large, paired: over requests above 1 MB, the geometric \
         mean of a request's slowdown divided by the same request's slowdown in the status quo.",
    )
}

/// How closely flows follow the flows of the baseline over time.
fn curves(plan: &PlanResults<'_>) -> Option<Block> {
    metric_table(
        plan,
        parts(plan, "flow"),
        &OF_CURVES.join(" "),
        "Flows compared with the baseline over time. NRMSE: root mean square difference between \
         the two curves, divided by the mean of the baseline's curve. Each curve is a mean over \
         runs.",
    )
}

/// What greedy connections got, and how evenly.
fn connections(plan: &PlanResults<'_>) -> Vec<Block> {
    let of_flows = metric_table(
        plan,
        parts(plan, "flow").filter(|group| group.has("mean_srtt_l4")),
        "goodput_mbps throughput_drift srtt_p50_ms srtt_p99_ms queueing_p95_ms \
         total_retransmissions_l4 total_spurious_retransmissions_l4 total_rtos_l4 \
         starved_s harm_throughput harm_delay",
        "Flows that always have data to send. A flow with a throughput drift far from 0 was not in \
         a steady state. Harm: share of its performance alone that a flow loses to competitors.",
    );
    let of_networks = metric_table(
        plan,
        whole(plan).filter(|group| group.has("agg_throughput_l4")),
        "agg_throughput_l4 agg_utilization_bw_l4 agg_network_power_l4 \
         jain_throughput_l4 jain_min unfairness_max fair_after_s converged_after_s \
         starved_s",
        "Greedy connections together: their total throughput, its fairness, and how soon they \
         converge after each start and end.",
    );
    of_flows.into_iter().chain(of_networks).collect()
}

fn videos(plan: &PlanResults<'_>) -> Option<Block> {
    metric_table(
        plan,
        whole(plan),
        "video_startup_ms video_rebuffering_s video_rebuffers video_switches \
         video_settled_s video_rate_mbps",
        "Videos, each from its start to its end: means over clients and seeds. \
         A video has settled when its rate no longer changes.",
    )
}

fn media(plan: &PlanResults<'_>) -> Option<Block> {
    metric_table(
        plan,
        whole(plan),
        "media_delay_p50_ms media_delay_p95_ms media_delay_p99_ms media_late_share \
         media_frozen_s media_rate_mbps",
        "Frames of live encoders: means over seeds. Late frames include missing and skipped frames.",
    )
}

/// The metrics of the plan's own windows.
fn windows(plan: &PlanResults<'_>) -> Option<Block> {
    let metrics = ["queue_mean_packets", "utilisation", "in_use_after_s", "standing_queue_until_s"];
    let links =
        || plan.summaries.iter().flat_map(|arm| &arm.links).filter(|it| it.name == "forward");
    let keys = links().flat_map(|link| link.metrics.0.keys());
    let windows: BTreeSet<&str> = keys.filter_map(|key| Some(key.split_once('.')?.0)).collect();
    let names =
        windows.iter().flat_map(|window| metrics.map(|metric| format!("{window}.{metric}")));
    let names: Vec<String> = names.collect();
    let forward = parts(plan, "link").filter(|group| group.name == "forward");
    let caption = "The bottleneck in the plan's own windows; times count from the window's start. \
                   A link is in use when it carries 90 % of its rate. A queue counts when it \
                   exceeds 30 packets.";
    metric_table(plan, forward, &names.join(" "), caption)
}

/// CPU of each process.
fn cpu(plan: &PlanResults<'_>) -> Option<Block> {
    let mut by_side: BTreeMap<(usize, String), BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
    let mut programs: BTreeSet<&str> = BTreeSet::new();
    for run in plan.runs.iter().filter(|run| run.is_valid()) {
        let Some(cores) = run.host["cpu_cores"].as_object() else { continue };
        if cores.is_empty() {
            continue;
        }
        let label = plan.label(&run.key.arm, &run.key.backend);
        let place = plan.order().iter().position(|other| *other == label).unwrap_or(0);
        let of_side = by_side.entry((place, label)).or_default();
        for (program, cores) in cores {
            programs.insert(program);
            of_side.entry(program).or_default().extend(cores.as_f64());
        }
    }
    let rows: Vec<Vec<String>> = by_side
        .iter()
        .map(|((_, label), cores)| {
            let share = |program: &&str| {
                let percent = |values: &Vec<f64>| mean(values.iter().map(|cores| cores * 100.0));
                cell(cores.get(program).and_then(percent))
            };
            std::iter::once(label.clone()).chain(programs.iter().map(share)).collect()
        })
        .collect();
    let columns: Vec<&str> = std::iter::once("arm").chain(programs.iter().copied()).collect();
    (!programs.is_empty()).then(|| {
        block(&columns, rows, "CPU time of each process over the run, in percent of one core.")
    })
}

/// The parameters that all arms share, and the parameters that differ.
pub fn parameters(plan: &PlanResults<'_>) -> Vec<Block> {
    let mut by_arm: Vec<(&str, &BTreeMap<String, String>)> = Vec::new();
    for (arm, _) in &plan.arms {
        if let Some(run) = plan.runs.iter().find(|run| run.key.arm == *arm) {
            by_arm.push((arm, &run.parameters));
        }
    }
    let keys: BTreeSet<&String> = by_arm.iter().flat_map(|(_, params)| params.keys()).collect();
    let value = |params: &BTreeMap<String, String>, key: &String| params.get(key).cloned();
    let (same, differing): (Vec<&String>, Vec<&String>) = keys.into_iter().partition(|key| {
        by_arm.iter().all(|(_, params)| value(params, key) == value(by_arm[0].1, key))
    });
    let mut blocks = Vec::new();
    if by_arm.len() > 1 {
        let columns: Vec<&str> =
            std::iter::once("key").chain(by_arm.iter().map(|(arm, _)| *arm)).collect();
        let row = |key: &&String| {
            let cells = by_arm.iter().map(|(_, p)| value(p, key).unwrap_or_else(|| "-".into()));
            std::iter::once(key.to_string()).chain(cells).collect()
        };
        let caption = "All parameters that differ between the arms; `-` means not set. If a bundle \
                       is not enabled, its other keys have no effect.";
        blocks.push(block(&columns, differing.iter().map(row).collect(), caption));
    }
    let first = by_arm.first().map(|(_, params)| *params);
    let row = |key: &&String| {
        let value = first.and_then(|params| value(params, key)).unwrap_or_default();
        vec![key.to_string(), value]
    };
    let caption = match plan.cells().len() {
        0 | 1 => "Parameters that all arms have in common.".to_string(),
        cells => format!("Parameters that all arms have in common, in the first of {cells} cells."),
    };
    blocks.push(block(&["key", "value"], same.iter().map(row).collect(), &caption));
    blocks
}

/// Attempts, the limits of validity, and the machine.
pub fn about_runs(store: &Store, newest: &[Run]) -> Result<Vec<Block>, StoreError> {
    let mut rows = Vec::new();
    for id in store.run_ids()? {
        let run = store.run(id)?;
        let key = &run.key;
        let lateness = &run.host["links"]["forward"]["lateness"]["p99_ms"];
        let used = newest.iter().any(|newest| newest.id == id);
        let verdict = match (run.is_valid(), used) {
            (true, true) => "valid".to_string(),
            (true, false) => "valid, replaced by a newer one".into(),
            (false, _) => format!("{REJECTED}: {}", run.invalid.join("; ")),
        };
        rows.push(vec![
            format!("{} {} {}", key.plan, key.arm, key.cell).trim_end().to_string(),
            key.backend.clone(),
            key.seed.to_string(),
            run.attempt.to_string(),
            cell(run.host["wall_s"].as_f64()),
            cell(lateness.as_f64()),
            run.commit.clone(),
            verdict,
        ]);
    }
    let rejected = rows.iter().filter(|row| row[7].starts_with(REJECTED)).count();
    let caption = format!(
        "Every attempt in the store: {} attempts, {rejected} rejected. Only measurements of the \
         test harness itself reject a run, with the same limits for every arm. A run is tried at \
         most three times.",
        rows.len()
    );
    let columns = [
        "run",
        "back end",
        "seed",
        "attempt",
        "wall (s)",
        "link late p99 (ms)",
        "commit",
        "verdict",
    ];
    let mut blocks = vec![block(&columns, rows, &caption)];
    let limits =
        LIMITS.iter().map(|limit| vec![limit.name.to_string(), limit.text.to_string()]).collect();
    blocks.push(block(&["limit", "allowed"], limits, "Conditions for a valid run."));
    // A simulation has no machine to describe.
    let has_machine = |run: &&Run| run.host["kernel"].as_str().is_some_and(|it| !it.is_empty());
    if let Some(run) = newest.iter().rfind(has_machine) {
        blocks.extend(machine(run));
    }
    Ok(blocks)
}

fn machine(run: &Run) -> Vec<Block> {
    let host = &run.host;
    let list = |key: &str| {
        let texts = host[key].as_array().into_iter().flatten();
        texts.filter_map(|text| text.as_str()).collect::<Vec<_>>().join("\n")
    };
    let processor = &host["processor_lateness"];
    let load = host["load"].as_array().into_iter().flatten();
    let load: Vec<String> = load.filter_map(|load| load.as_f64()).map(number).collect();
    let rows = vec![
        vec!["kernel".into(), host["kernel"].as_str().unwrap_or("-").into()],
        vec!["load average, start and end".into(), load.join(", ")],
        vec!["CPU time stolen".into(), cell(host["steal"].as_f64())],
        vec!["lateness of a processor, p99.9 (ms)".into(), cell(processor["p999_ms"].as_f64())],
        vec!["longest pause of a processor (ms)".into(), cell(processor["max_ms"].as_f64())],
        vec!["real-time programs".into(), list("realtime").replace('\n', ", ")],
    ];
    let mut blocks =
        vec![block(&["", ""], rows, "The machine of the last run that was not simulated.")];
    for (key, title) in
        [("settings", "Kernel settings of the hosts"), ("offloads", "Offloads of the devices")]
    {
        let text = list(key);
        if !text.is_empty() {
            blocks.push(Block::Details { title: title.into(), text });
        }
    }
    blocks
}
