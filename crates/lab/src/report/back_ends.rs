//! A comparison of back ends.

use super::content::PlanResults;
use super::page::{Block, PageTable};
use crate::output::{cell, text_of_share};
use crate::summary::ArmSummary;

/// The metrics to show, with their names for readers.
const SHOWN: [(&str, &str); 8] = [
    ("slowdown_p50", "slowdown p50"),
    ("slowdown_geomean", "slowdown, geometric mean"),
    ("slowdown_above_1_3", "share of slowdowns above 1.3"),
    ("slowdown_p99", "slowdown p99"),
    ("fct_p50_ms", "completion p50 (ms)"),
    ("goodput_mbps", "goodput (Mbit/s)"),
    ("link forward queue_mean_packets", "bottleneck queue (packets)"),
    (SENDBOXES, "sendbox queue (packets)"),
];

/// The mean over all bundles.
const SENDBOXES: &str = "bundles queue_mean_packets";

/// Every arm that two back ends ran, metric by metric; `None` if a single back end ran them all.
pub fn beside(plan: &PlanResults<'_>) -> Option<Block> {
    let mut rows = Vec::new();
    for emu in plan.summaries.iter().filter(|arm| arm.backend == "emu") {
        let is_same = |arm: &&ArmSummary| {
            arm.backend == "sim" && (&arm.arm, &arm.cell) == (&emu.arm, &emu.cell)
        };
        let Some(sim) = plan.summaries.iter().find(is_same) else { continue };
        let name = format!("{} {}", emu.arm, emu.cell).trim_end().to_string();
        for (metric, title) in SHOWN {
            let values = [emu, sim].map(|arm| pooled(arm, metric));
            let [Some(real), Some(simulated)] = values else { continue };
            let off = (real != 0.0).then(|| text_of_share(simulated / real - 1.0));
            let [real, simulated] = values.map(cell);
            let off = off.unwrap_or_else(|| "-".into());
            rows.push(vec![name.clone(), title.to_string(), real, simulated, off]);
        }
    }
    let columns = ["arm", "", "emu", "sim", "sim - emu"].map(str::to_string).to_vec();
    let caption = "The same plan on real kernels (emu) and in the simulator (sim), all seeds \
                   together. Request schedules, algorithms and queues are the same. The simulator \
                   has no machine noise, and its TCP is a model of the kernel's.";
    let caption = caption.to_string();
    (!rows.is_empty()).then_some(Block::Table(PageTable { columns, rows, caption }))
}

/// The metric over all seeds together.
fn pooled(arm: &ArmSummary, metric: &str) -> Option<f64> {
    match metric {
        SENDBOXES => arm.bundles("queue_mean_packets"),
        "link forward queue_mean_packets" => arm.link("forward", "queue_mean_packets"),
        metric => arm.metrics.get(metric),
    }
}
