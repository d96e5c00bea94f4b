//! A plan on a back end: its runs, seed by seed, until its claims are decided.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use forebay_lab::is_left_to_try;
use forebay_lab::judge::{ClaimResults, Judged, PlanClaims};
use forebay_lab::plan::{Plan, Seeds};
use forebay_lab::store::{FILE, RunKey, Store};

use super::{OUT, printed, sources};

/// Time of a run on the testbed in addition to its emulated seconds (s): namespaces, waiting for quiet, logs.
/// Measured with `bundler/main`.
const EMU_EXTRA_S: f64 = 4.6;
/// Simulated seconds in a second of one core. Six plans with up to 25 flows over 96 Mbit/s reached 180 to 220, and
/// `bundler/elastic_cross` 34.
const SIM_SPEED: f64 = 200.0;

/// Remaining work of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Left {
    /// Runs, at most: claims may be decided earlier.
    pub runs: usize,
    /// Time for these (min), from earlier runs of the plan or else from the length of a run.
    pub minutes: f64,
}

/// A plan on a back end: the unit that is run and judged by itself.
pub struct PlanPart<'a> {
    claims: &'a PlanClaims,
    plan: Plan,
    backend: &'a str,
    /// Seeds at most.
    seeds: Seeds,
    folder: PathBuf,
    sources: String,
    results: ClaimResults,
    /// Remaining work.
    pub left: Left,
}

impl<'a> PlanPart<'a> {
    /// The plan of `claims` on `backend` with `seeds` at most; [`Self::advance`] looks for earlier results.
    pub fn new(claims: &'a PlanClaims, backend: &'a str, seeds: Seeds) -> Result<Self> {
        let plan = claims.plan(backend)?;
        let results = ClaimResults::none(&plan, seeds);
        let folder = Path::new(OUT).join(claims.part(backend).replace('/', "-"));
        let (sources, left) = (sources(backend)?, Left::default());
        Ok(Self { claims, plan, backend, seeds, folder, sources, results, left })
    }

    /// `bundler/main@sim`, or of a variant `bundler/main@emu+kernel`.
    pub fn name(&self) -> String {
        self.claims.part(self.backend)
    }

    /// Whether the simulator makes the runs.
    pub fn is_simulated(&self) -> bool {
        self.backend == "sim"
    }

    /// Whether the runs are trials of CPU cost.
    pub fn measures_cost(&self) -> bool {
        self.plan.experiments().flatten().any(|experiment| experiment.cost.is_some())
    }

    /// Whether there is no run yet.
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Whether `name` is the name of the part, of its plan on any back end, or of a folder that the part is in.
    pub fn is_called(&self, name: &str) -> bool {
        is_called(&self.name(), name)
    }

    /// Makes missing runs, seed by seed, until the claims are decided or `may_begin` refuses the next seed.
    pub fn advance(&mut self, may_begin: &mut dyn FnMut(f64) -> bool) -> Result<()> {
        let minutes = self.minutes_a_run()?;
        let Seeds { first, last } = self.seeds;
        let (mut is_decided, mut reached) = (false, first);
        for seed in self.seeds.iter() {
            let missing = self.missing(seed)?;
            // An existing run counts, even if an earlier seed already decided.
            if missing > 0 && is_decided {
                break;
            }
            if missing > 0 && !may_begin(minutes * missing as f64) {
                self.results = self.read(self.seeds)?;
                return self.reckon(first..=last, minutes);
            }
            if missing > 0 {
                self.run(seed)?;
            }
            self.results = self.read(Seeds { first, last: seed })?;
            is_decided = self.claims.is_decided(self.backend, &self.results);
            reached = seed;
        }
        self.reckon(first..=reached, minutes)
    }

    /// Estimates the remaining work for some seeds.
    fn reckon(&mut self, mut seeds: RangeInclusive<u64>, minutes_a_run: f64) -> Result<()> {
        let runs = seeds.try_fold(0, |runs, seed| anyhow::Ok(runs + self.missing(seed)?))?;
        self.left = Left { runs, minutes: minutes_a_run * runs as f64 };
        Ok(())
    }

    /// Judges the claims. A claim that also concerns the simulator finds the simulator's runs in `parts`. Before
    /// the first run, the result is one row, which says that there is no run. Later a row says that runs are left.
    pub fn judge<'b>(&self, mut parts: impl Iterator<Item = &'b PlanPart<'b>>) -> Vec<Judged> {
        if self.results.is_empty() {
            let claim = "all of it".into();
            return vec![Judged { of: self.name(), claim, ..Judged::default() }];
        }
        let is_beside = |part: &&PlanPart<'_>| {
            part.claims.name == self.claims.name && part.backend == "sim" && self.backend != "sim"
        };
        let there = parts.find(is_beside).map(|part| &part.results);
        let mut judged = self.claims.judge(self.backend, &self.results, there);
        if self.left.runs > 0 {
            judged.push(Judged { of: self.name(), claim: "the rest".into(), ..Judged::default() });
        }
        judged
    }

    /// Makes the runs of a seed that the store lacks.
    fn run(&self, seed: u64) -> Result<()> {
        let (name, seed) = (self.name(), seed.to_string());
        // An emulation needs the machine for itself.
        let jobs = if self.is_simulated() { jobs().to_string() } else { "1".into() };
        let arms: Vec<&str> = self.plan.arms.iter().map(|arm| arm.name.as_str()).collect();
        let (aut, arms) = (format!("aut={arms:?}"), arms.join(","));
        let selected = match self.claims.as_published {
            true => vec!["--as-published", "--set", &aut],
            false => vec!["--arms", &arms],
        };
        let of_plan = ["run", &self.claims.name, "--backend", self.backend];
        let set = self.claims.settings().iter().flat_map(|setting| ["--set", setting]);
        let set: Vec<&str> = set.collect();
        let of_run = ["--seed", &seed, "--jobs", &jobs];
        let arguments = [&of_plan[..], &set, &selected, &of_run].concat();
        let document = printed(&name, &arguments, &self.folder)?;
        let built = document["runs"][0]["sources"].as_str().unwrap_or(&self.sources);
        ensure!(
            built == self.sources,
            "{name}: forebay was built from other sources ({built}): make build"
        );
        Ok(())
    }

    fn store(&self) -> Result<Option<Store>> {
        let exists = self.folder.join(FILE).is_file();
        Ok(exists.then(|| Store::open(&self.folder)).transpose()?)
    }

    fn read(&self, seeds: Seeds) -> Result<ClaimResults> {
        match self.store()? {
            Some(store) => {
                ClaimResults::read(&store, &self.plan, self.backend, &self.sources, seeds)
            }
            None => Ok(ClaimResults::none(&self.plan, seeds)),
        }
    }

    /// Number of runs of a seed that the store lacks and another call of `forebay run` would try.
    fn missing(&self, seed: u64) -> Result<usize> {
        let Some(store) = self.store()? else { return Ok(self.runs_a_seed()) };
        let mut missing = 0;
        for cell in &self.plan.cells {
            for arm in &self.plan.arms {
                let experiment = self.plan.experiment(arm, cell, seed)?;
                let key = RunKey::of(&experiment, self.backend, &self.sources);
                let is_left = is_left_to_try(&store.attempts(&key)?, self.is_simulated());
                missing += usize::from(is_left);
            }
        }
        Ok(missing)
    }

    fn runs_a_seed(&self) -> usize {
        self.plan.arms.len() * self.plan.cells.len()
    }

    /// Duration of a run, with parallel runs taken into account (min).
    fn minutes_a_run(&self) -> Result<f64> {
        let seen = match self.store()? {
            Some(store) => store.wall_s(&self.plan.name, self.backend)?,
            None => None,
        };
        let seconds = match seen {
            Some(seconds) => seconds,
            None => self.expected_s()?,
        };
        let jobs = if self.is_simulated() { jobs() as f64 } else { 1.0 };
        Ok(seconds / jobs / 60.0)
    }

    /// Estimate of a run's duration from its length (s): the mean of arms and cells.
    fn expected_s(&self) -> Result<f64> {
        let mut stops = 0.0;
        for experiment in self.plan.experiments() {
            stops += experiment?.stop.as_secs_f64();
        }
        let stop = stops / self.runs_a_seed() as f64;
        Ok(if self.is_simulated() { stop / SIM_SPEED } else { stop + EMU_EXTRA_S })
    }
}

/// Compares whole words between slashes: neither `queue_shift` nor `shift_both` matches `bundler/queue_shift_both`.
fn is_called(part: &str, name: &str) -> bool {
    let plan = part.split('@').next().unwrap_or(part);
    let is_within = |whole: &str| format!("/{whole}/").contains(&format!("/{name}/"));
    is_within(part) || is_within(plan)
}

/// Simulations at a time.
pub fn jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use forebay_lab::judge::{Verdict, Why};
    use forebay_lab::metrics::{Evaluation, Metrics};
    use forebay_lab::store::NewRun;
    use serde_json::json;

    use super::*;

    /// A claim about the goodput of `copa_sfq`, with nine seeds at most.
    fn claims() -> PlanClaims {
        let claim = json!({ "text": "t", "arms": ["copa_sfq"], "value": ["goodput_mbps"],
                            "at_least": 48.0 });
        let seeds = json!({ "emu": "1..9" });
        let claims = json!({ "name": "bundler/dynamics/long", "seeds": seeds, "claim": [claim] });
        serde_json::from_value(claims).unwrap()
    }

    /// The plan of `claims` with results in `folder`.
    fn part<'a>(claims: &'a PlanClaims, folder: &Path) -> PlanPart<'a> {
        let part = PlanPart::new(claims, "emu", claims.seeds["emu"]).unwrap();
        PlanPart { folder: folder.into(), ..part }
    }

    /// Stores a run of `copa_sfq` with this goodput, or a rejected one.
    fn put(part: &PlanPart<'_>, seed: u64, goodput: Option<f64>) {
        let mut store = Store::create(&part.folder).unwrap();
        let plan = &part.plan;
        let experiment = &plan.experiment(&plan.arms[0], &plan.cells[0], seed).unwrap();
        let run = Metrics(goodput.map(|it| ("goodput_mbps".to_string(), it)).into_iter().collect());
        let invalid = if run.0.is_empty() { vec!["late".into()] } else { Vec::new() };
        let evaluation = &Evaluation { run, invalid, ..Evaluation::default() };
        let key = &RunKey::of(experiment, part.backend, &part.sources);
        let host = &json!({ "wall_s": 60.0 });
        let run = NewRun { key, experiment, commit: "c", attempt: 1, evaluation, host };
        store.put_run(&run).unwrap();
    }

    /// The remaining work, and the minutes that `part` requested from `may_begin`, which refused.
    fn left_and_asked(part: &mut PlanPart<'_>) -> (Left, Vec<f64>) {
        let mut asked = Vec::new();
        part.advance(&mut |minutes| {
            asked.push(minutes);
            false
        })
        .unwrap();
        (part.left, asked)
    }

    #[test]
    fn seeds_are_run_until_the_claims_have_decided() {
        let claims = claims();
        let advance = |goodputs: &[f64]| {
            let folder = tempfile::tempdir().unwrap();
            let mut part = part(&claims, folder.path());
            for (seed, goodput) in (1..).zip(goodputs) {
                put(&part, seed, Some(*goodput));
            }
            left_and_asked(&mut part)
        };
        let decided = [90.0, 91.0, 92.0, 93.0, 94.0, 95.0];
        assert_eq!(advance(&decided), (Left::default(), vec![]));
        // The remaining runs are an upper bound, and a run took a minute.
        assert_eq!(advance(&decided[..2]), (Left { runs: 7, minutes: 7.0 }, vec![1.0]));
        let open = [40.0, 91.0, 42.0, 93.0, 44.0, 95.0];
        assert_eq!(advance(&open), (Left { runs: 3, minutes: 3.0 }, vec![1.0]));
        let by_length = (300.0 + EMU_EXTRA_S) / 60.0;
        assert_eq!(advance(&[]).1, [by_length]);
    }

    #[test]
    fn part_without_runs_is_one_row() {
        let claims = claims();
        let folder = tempfile::tempdir().unwrap();
        let judged = part(&claims, folder.path()).judge(std::iter::empty());
        assert_eq!(judged.len(), 1);
        assert_eq!(judged[0].verdict, Verdict::NotShown(Why::NotRun));
    }

    #[test]
    fn rejected_run_remains_and_each_attempt_counts() {
        let claims = claims();
        let folder = tempfile::tempdir().unwrap();
        let mut part = part(&claims, folder.path());
        for seed in 1..=9 {
            let goodputs = if seed == 2 { vec![None; 7] } else { vec![Some(90.0)] };
            goodputs.into_iter().for_each(|goodput| put(&part, seed, goodput));
        }
        let (left, asked) = left_and_asked(&mut part);
        assert_eq!((left.runs, asked.len()), (1, 1));
        let judged = part.judge(std::iter::empty());
        assert_eq!(judged[0].behind.to_string(), "8/9, made copa_sfq 15 (7 rejected)");
    }

    #[test]
    fn a_part_is_called_by_whole_words() {
        let part = "bundler/dynamics/start@sim";
        for name in
            [part, "bundler/dynamics/start", "dynamics/start", "start", "start@sim", "bundler"]
        {
            assert!(is_called(part, name), "{name}");
        }
        for name in
            ["bundler/dynamics/start@emu", "star", "bundler/start", "sim", "dynamics@sim", ""]
        {
            assert!(!is_called(part, name), "{name}");
        }
        assert!(
            is_called("platforms/cpu@emu", "platforms") && is_called("platforms/cpu@emu", "cpu")
        );
    }
}
