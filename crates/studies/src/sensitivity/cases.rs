//! The cells in which the numbers are measured.

use std::sync::Arc;

use forebay_lab::RunError;
use forebay_lab::metrics::Address;
use forebay_lab::plan::{Experiment, Override, Plan};

/// A plan with the arm and the cells that are run.
struct Case {
    plan: &'static str,
    /// The arm that runs the boxes with the plan's settings.
    arm: &'static str,
    /// The cells that are run; all if empty.
    cells: &'static [&'static str],
    /// Settings changed in the plan, as with `--set`.
    sets: &'static [&'static str],
    /// Figures that users see.
    figures: &'static [&'static str],
}

/// Figures of plans that have bulk flows, requests and a sparse flow.
const MIXED: &[&str] = &[
    "flows/bulk/goodput_mbps",
    "flows/web/fct_p50_ms",
    "flows/web/fct_p99_ms",
    "flows/ping/ping_queueing_mean_ms",
];

/// The plans; the ones with the shortest runs come first.
const CASES: [Case; 6] = [
    Case {
        plan: "world/alone_mixed",
        arm: "boxes",
        cells: &["starlink", "adsl", "failover", "outage"],
        sets: &[],
        figures: MIXED,
    },
    Case {
        plan: "world/cross_mixed",
        arm: "boxes",
        cells: &["cubic-3", "web", "codel-4"],
        sets: &[],
        figures: MIXED,
    },
    Case {
        plan: "world/cellular_mixed",
        arm: "boxes",
        cells: &["outages"],
        sets: &[],
        figures: MIXED,
    },
    Case {
        plan: "bundler/main",
        arm: "copa_sfq",
        cells: &[],
        sets: &[],
        figures: &["goodput_mbps", "slowdown_p50", "slowdown_p99"],
    },
    Case {
        plan: "bundler/draft",
        arm: "copa_sfq",
        cells: &[],
        sets: &[],
        figures: &["flows/backlogged/goodput_mbps", "slowdown_p50", "slowdown_p99"],
    },
    // Five bundles of one kind, with constant traffic.
    Case {
        plan: "bundler/real_paths",
        arm: "copa_sfq_150ms",
        cells: &[],
        sets: &["stop=35s"],
        figures: &["goodput_mbps", "rtt_p50_ms", "rtt_p99_ms"],
    },
];

/// One cell of a plan.
#[derive(Clone, Debug)]
pub struct CaseCell {
    /// Name of the plan and the cell, such as `world/alone_mixed adsl`.
    pub name: String,
    /// Figures that users see.
    pub figures: Vec<Address>,
    plan: Plan,
    cell: usize,
    /// The bundles with the numbers.
    bundles: Vec<String>,
}

impl CaseCell {
    /// The experiment with the number `name` of every bundle at `value`, or with all defaults.
    pub fn experiment(&self, set: Option<(&str, &str)>) -> Result<Arc<Experiment>, RunError> {
        let mut plan = self.plan.clone();
        let arm = plan.arms[0].name.clone();
        for bundle in self.bundles.iter().filter(|_| set.is_some()) {
            let (name, value) = set.unwrap_or_default();
            let set = Override::parse(&format!("bundle.{bundle}.tuning.{name}={value}"))?;
            plan.set_in_arm(&arm, set)?;
        }
        Ok(plan.arms[0].run(&plan.cells[self.cell]).clone())
    }
}

/// Every cell in which numbers are measured.
///
/// # Errors
/// A plan cannot be read.
pub fn cells() -> Result<Vec<CaseCell>, RunError> {
    let mut cells = Vec::new();
    for Case { plan: name, arm, cells: wanted, sets, figures } in CASES {
        let sets = sets.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
        let mut plan = Plan::load(name, &sets)?;
        plan.select_arms(&[arm.into()])?;
        let figure = |text: &&str| text.parse().expect("an address");
        let figures: Vec<Address> = figures.iter().map(figure).collect();
        for (cell, known) in plan.cells.iter().enumerate() {
            if !wanted.is_empty() && !wanted.contains(&known.name.as_str()) {
                continue;
            }
            let experiment = plan.arms[0].run(known);
            let bundles = experiment.bundles.iter().map(|bundle| bundle.name.clone()).collect();
            let name = format!("{name} {}", known.name).trim_end().into();
            cells.push(CaseCell {
                name,
                figures: figures.clone(),
                plan: plan.clone(),
                cell,
                bundles,
            });
        }
    }
    Ok(cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_there_and_takes_numbers() {
        let cells = cells().unwrap();
        assert_eq!(cells.iter().filter(|cell| cell.name.starts_with("world/")).count(), 8);
        assert_eq!(cells.len(), 11);
        for cell in cells {
            let default = cell.experiment(None).unwrap();
            let other = cell.experiment(Some(("rest", "10s"))).unwrap();
            assert_ne!(default.sha256, other.sha256, "{}", cell.name);
            let is_set = |key: &&String| key.ends_with(".tuning.rest");
            assert_eq!(other.parameters.keys().filter(is_set).count(), cell.bundles.len());
        }
    }
}
