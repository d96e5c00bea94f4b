//! Whether a case is worse than other cases in runs that no search has used.

use serde_json::{Value, json};

use super::Objective;
use super::case::Case;
use forebay_lab::metrics::statistics::Sorted;
use forebay_lab::plan::Seeds;

/// Runs of a case in a comparison. If two cases are alike, all 5 of one are worse than all 5 of the other with
/// probability 1 / 252: one of the (10 over 5) equally likely orders.
pub const COMPARED_RUNS: u64 = 5;
/// Seeds of these runs, and of the plan of a finding; the search itself uses seed 1.
pub const COMPARED_SEEDS: Seeds = Seeds { first: 2, last: 1 + COMPARED_RUNS };

/// A case in a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedCase {
    /// The case.
    pub case: Case,
    /// The objective's figure in each run that counts.
    pub runs: Vec<f64>,
    /// Simulated figures of the same seeds; empty: none.
    pub simulated: Vec<f64>,
}

impl ComparedCase {
    /// The figures of all runs, and their median on the back end and in the simulator.
    fn document(&self) -> Value {
        let median = |runs: &[f64]| Sorted::new(runs.iter().copied()).quantile(0.5);
        json!({
            "case": self.case.words(),
            "by_seed": self.runs,
            "value": median(&self.runs),
            "simulated_by_seed": self.simulated,
            "simulated_value": median(&self.simulated),
        })
    }
}

/// A case next to other cases.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The other cases: the plain cells of a space.
    pub plain: Vec<ComparedCase>,
    /// The case.
    pub case: ComparedCase,
    /// Whether each run of the case is worse than each run of the plain cells.
    pub is_finding: bool,
}

impl Comparison {
    /// Runs that are missing because they were disturbed at every attempt. With any, nothing is judged.
    pub fn missing(&self) -> u64 {
        let all = self.plain.iter().chain([&self.case]);
        all.map(|it| COMPARED_RUNS.saturating_sub(it.runs.len() as u64)).sum()
    }

    /// The comparison in JSON.
    pub fn document(&self) -> Value {
        json!({
            "finding": self.is_finding,
            "missing_runs": self.missing(),
            "case": self.case.document(),
            "plain": self.plain.iter().map(ComparedCase::document).collect::<Vec<_>>(),
        })
    }

    /// The worst figure of the plain cells, of `runs` of each.
    pub fn worst_plain<'a>(
        &'a self,
        objective: &Objective,
        runs: fn(&'a ComparedCase) -> &'a [f64],
    ) -> Option<f64> {
        let all = self.plain.iter().flat_map(runs).copied();
        all.max_by(|one, other| objective.compare(*one, *other))
    }
}

/// Whether each of `case`'s runs is worse than each run of every case in `plain`. `false` if a case has fewer than
/// [`COMPARED_RUNS`] runs, because other runs were disturbed.
pub fn is_worse(objective: &Objective, case: &[f64], plain: &[Vec<f64>]) -> bool {
    let is_whole = |runs: &[f64]| runs.len() as u64 == COMPARED_RUNS;
    let all_worse = |other: &f64| case.iter().all(|it| objective.compare(*it, *other).is_gt());
    let is_beaten = |runs: &Vec<f64>| is_whole(runs) && runs.iter().all(all_worse);
    is_whole(case) && !plain.is_empty() && plain.iter().all(is_beaten)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_is_worse_in_every_run() {
        let [less, more] = ["utilization", "queueing"].map(|it| Objective::named(it).unwrap());
        let low = [0.1, 0.2, 0.3, 0.2, 0.1];
        let high = [0.5, 0.4, 0.6, 0.7, 0.31];
        assert!(is_worse(less, &low, &[high.to_vec(), vec![0.9; 5]]));
        assert!(is_worse(more, &high, &[low.to_vec()]) && !is_worse(more, &low, &[high.to_vec()]));
        // One run as bad as the best of the case, or a run that is missing, makes it no finding.
        assert!(!is_worse(less, &low, &[high.to_vec(), vec![0.9, 0.9, 0.3, 0.9, 0.9]]));
        assert!(!is_worse(less, &low[..4], &[high.to_vec()]));
        assert!(!is_worse(less, &low, &[high[..4].to_vec()]) && !is_worse(less, &low, &[]));
        assert!(!is_worse(less, &low, &[low.to_vec()]));
    }
}
