//! Results of a plan on one back end, by seed and for all seeds together.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::Value;

use super::Made;
use crate::plan::{Plan, Seeds};
use crate::store::{Run, RunKey, Store, StoreError};
use crate::summary::{ArmSummary, Requests, summarise};

/// The attempts at the runs of a plan, and the runs that it should have.
#[derive(Debug, Default)]
pub struct ClaimResults {
    /// Arms of the plan.
    pub(super) arms: Vec<String>,
    /// Cells of the plan.
    pub(super) cells: Vec<String>,
    /// Requested seeds: every arm has a run of each seed in each cell.
    pub(super) seeds: Vec<u64>,
    /// Every attempt; those at the same run are ordered from oldest to newest.
    pub(super) runs: Vec<Run>,
    /// The arms over all seeds.
    pub(super) pooled: Vec<ArmSummary>,
    /// The arms in each seed, compared within the seed.
    pub(super) by_seed: BTreeMap<u64, Vec<ArmSummary>>,
}

impl ClaimResults {
    /// The results of a plan before any run.
    pub fn none(plan: &Plan, seeds: Seeds) -> Self {
        let cells = plan.cells.iter().map(|cell| cell.name.clone()).collect();
        let arms = plan.arms.iter().map(|arm| arm.name.clone()).collect();
        Self { arms, cells, seeds: seeds.iter().collect(), ..Self::default() }
    }

    /// The results of `plan` with `seeds` in `store`: every attempt on `backend` with the plan's current
    /// numbers, by a program with the digest `sources`.
    pub fn read(
        store: &Store,
        plan: &Plan,
        backend: &str,
        sources: &str,
        seeds: Seeds,
    ) -> Result<Self> {
        let mut results = Self::none(plan, seeds);
        for cell in &plan.cells {
            for arm in &plan.arms {
                for seed in seeds.iter() {
                    let experiment = plan.experiment(arm, cell, seed)?;
                    let key = RunKey::of(&experiment, backend, sources);
                    for attempt in store.attempts(&key)? {
                        results.runs.push(store.run(attempt.id)?);
                    }
                }
            }
        }
        Ok(results.summarised(store)?)
    }

    fn summarised(mut self, store: &Store) -> Result<Self, StoreError> {
        let requests = Requests::new(store);
        self.pooled = summarise(&requests, &self.runs)?;
        for seed in &self.seeds {
            let runs = self.runs.iter().filter(|run| run.key.seed == *seed).cloned();
            self.by_seed.insert(*seed, summarise(&requests, &runs.collect::<Vec<_>>())?);
        }
        Ok(self)
    }

    /// Whether nothing was run.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The figures of `arm` in `cell`, in one seed or over all seeds.
    pub(super) fn row(&self, arm: &str, cell: &str, seed: Option<u64>) -> Option<Row<'_>> {
        let arms = match seed {
            Some(seed) => self.by_seed.get(&seed)?,
            None => &self.pooled,
        };
        let summary = arms.iter().find(|it| it.arm == arm && it.cell == cell)?;
        let run = seed.and_then(|seed| self.run(arm, cell, seed));
        Some(Row { summary, host: run.map(|run| &run.host) })
    }

    /// Whether the plan has `arm` but no run of it counts in `cell`, in one seed or over all seeds.
    pub(super) fn lacks(&self, arm: &str, cell: &str, seed: Option<u64>) -> bool {
        self.arms.iter().any(|known| known == arm) && self.row(arm, cell, seed).is_none()
    }

    /// Whether a box died in the run.
    pub(super) fn died(&self, arm: &str, cell: &str, seed: u64) -> bool {
        self.run(arm, cell, seed).is_some_and(|run| run.died().is_some())
    }

    /// How often `arm` was run in `cell` with `seeds`.
    pub(super) fn made(&self, arm: &str, cell: &str, seeds: &[u64]) -> Made {
        let runs = || {
            let of_arm = self.runs.iter().filter(|run| run.key.arm == arm && run.key.cell == cell);
            of_arm.filter(|run| seeds.contains(&run.key.seed))
        };
        let rejected = runs().filter(|run| !run.is_valid()).count();
        Made { arm: arm.into(), runs: runs().count(), rejected }
    }

    /// The commits of the runs of `arms` in `cell`.
    pub(super) fn commits(&self, arms: &[&str], cell: &str) -> String {
        let is_meant = |run: &&Run| run.key.cell == cell && arms.contains(&run.key.arm.as_str());
        let runs = self.runs.iter().filter(|run| run.is_valid()).filter(is_meant);
        let mut commits: Vec<&str> = runs.map(|run| run.commit.as_str()).collect();
        commits.sort_unstable();
        commits.dedup();
        commits.join(", ")
    }

    /// The run that counts.
    fn run(&self, arm: &str, cell: &str, seed: u64) -> Option<&Run> {
        self.runs.iter().rfind(|run| {
            let key = (run.key.seed, run.key.arm.as_str(), run.key.cell.as_str());
            run.is_valid() && key == (seed, arm, cell)
        })
    }
}

/// The figures of an arm.
pub(super) struct Row<'a> {
    summary: &'a ArmSummary,
    /// Host figures of the single run.
    host: Option<&'a Value>,
}

impl Row<'_> {
    /// The sum of metrics; `None` if one is missing.
    pub fn sum(&self, paths: &[String]) -> Option<f64> {
        paths.iter().map(|path| self.look_up(path)).sum()
    }

    /// `metric`, `links/forward/metric` or `host/cpu_cores/program`.
    fn look_up(&self, path: &str) -> Option<f64> {
        match path.split('/').collect::<Vec<_>>()[..] {
            ["host", group, name] => self.host?[group][name].as_f64(),
            _ => self.summary.get(&path.parse().ok()?),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::judge::{PlanClaims, Verdict};
    use crate::metrics::evaluate;
    use crate::metrics::testing::invented_rows;
    use crate::plan::library::Source;
    use crate::store::NewRun;

    fn plan() -> Plan {
        let text = r#"
            name = "p"
            stop = "2s"
            warmup = "500ms"
            seeds = "1..2"
            bottleneck = { rate = "96Mbit/s", rtt = "50ms", qdisc = "fifo" }
            flow = [{ name = "web", bundle = "a", traffic = {
                kind = "requests", sizes = "10KB", load = "10Mbit/s" } }]
            bundle = [{ name = "a", cc = "copa", qdisc = "sfq" }]
            arm = [{ name = "status_quo", set = { bundle.a.enabled = false } }, { name = "copa" }]
        "#;
        let source = Source { file: "p".into(), folder: None, text: text.into() };
        Plan::from_source(source, &[]).unwrap()
    }

    /// Adds an attempt at the run of arm `arm` in which all requests have this slowdown.
    fn put(
        store: &mut Store,
        arm: usize,
        seed: u64,
        sources: &str,
        slowdown: f64,
        invalid: &[&str],
    ) {
        let plan = plan();
        let experiment = plan.experiment(&plan.arms[arm], &plan.cells[0], seed).unwrap();
        let mut evaluation = evaluate(&experiment, &invented_rows(&experiment, slowdown)).unwrap();
        evaluation.invalid = invalid.iter().map(|reason| reason.to_string()).collect();
        let key = &RunKey::of(&experiment, "emu", sources);
        let (experiment, evaluation, host) = (&experiment, &evaluation, &json!({}));
        let run = NewRun { key, experiment, commit: "c", attempt: 1, evaluation, host };
        store.put_run(&run).unwrap();
    }

    #[test]
    fn all_attempts_are_read_and_seeds_paired() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::create(folder.path()).unwrap();
        let claim = json!({ "text": "t", "arms": ["copa"], "at_most": 0.5,
                            "value": ["slowdown_p50_over_status_quo"] });
        let claims = json!({ "name": "p", "seeds": { "emu": "1..2" }, "claim": [claim] });
        let claims: PlanClaims = serde_json::from_value(claims).unwrap();
        // Seeds differ more than arms.
        for (seed, scale) in [(1, 1.0), (2, 3.0)] {
            put(&mut store, 0, seed, "abc", 4.0 * scale, &[]);
            put(&mut store, 1, seed, "abc", 9.0 * scale, &["late"]);
            put(&mut store, 1, seed, "abc", 2.0 * scale, &[]);
            put(&mut store, 1, seed, "other", 9.0, &[]);
        }
        let read = |backend: &str, store: &Store| {
            ClaimResults::read(store, &plan(), backend, "abc", plan().seeds).unwrap()
        };
        let results = read("emu", &store);
        let judged = claims.judge("emu", &results, None).remove(0);
        assert_eq!(judged.behind.to_string(), "2/2, made copa 4 (2 rejected), status_quo 2");
        let found = judged.interval.unwrap();
        assert!((found.low - 0.5).abs() < 1e-4 && (found.high - 0.5).abs() < 1e-4, "{found:?}");
        // The newer valid attempt counts, the first no longer does.
        put(&mut store, 1, 1, "abc", 4.0, &[]);
        put(&mut store, 1, 2, "abc", 12.0, &[]);
        let results = read("emu", &store);
        let judged = claims.judge("emu", &results, None).remove(0);
        assert_eq!(judged.verdict, Verdict::Failed);
        assert_eq!(judged.behind.to_string(), "2/2, made copa 6 (2 rejected), status_quo 2");
        let none = read("sim", &store);
        assert_eq!(claims.judge("emu", &none, None)[0].behind.values, 0);
    }
}
