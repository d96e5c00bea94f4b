//! What each platform does over an emulated bottleneck: the plan, and what its runs gave.
//!
//! ```text
//! plans/platforms/behaviour ──► runs of emu, and of sim ──► store ──► trials ──► Fidelity a link
//! ```
//! Runs are those of any plan: interleaved, in a store, not made twice.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::fidelity::{Asked, Fidelity, Link, TRIALS, Trial};
use super::platform::{Algorithm, Platform};
use crate::judge::Made;
use crate::plan::{Override, Plan, PlanError};
use crate::store::{Run, Store, StoreError};
use crate::summary::counting;

/// The plan, whose cells are the links.
pub const PLAN: &str = "platforms/behaviour";
/// What the plan's arms run as it stands.
const ALGORITHM: &str = "cubic";
/// Flow of the plan.
const FLOW: &str = "bulk";
/// Curves are compared from here on...
const FROM: Duration = Duration::from_secs(1);
/// ...until so long before the end.
const BEFORE_END: Duration = Duration::from_millis(500);
/// Bins of the curves: they are whole ones of the store's, which is also the default.
pub const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(1);
const INTERVAL_STEP: Duration = *INTERVALS.start();
/// Shortest run: slow start and as long again are seen, and the curves are compared for more than half.
pub const STOP_MIN: Duration = Duration::from_secs(4);

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Behaviour {
    /// Name of the algorithm.
    pub algorithm: String,
    /// Commit of this program.
    pub commit: String,
    /// The hosts' kernel.
    pub kernel: String,
    /// Trials of each platform that were asked for.
    pub trials: usize,
    /// Runs that the harness's own figures forbid to use.
    pub rejected: usize,
    /// By link.
    pub links: Vec<Fidelity>,
}

/// A plan cannot be read, or the results.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum BehaviourError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The plan with `algorithm` on every platform that has it, or on the kernel and the arms of `only`, its
/// runs as long as `stop` says.
pub fn plan(
    algorithm: &Algorithm,
    stop: Option<Duration>,
    only: &[String],
) -> Result<Plan, PlanError> {
    let mut sets = Vec::new();
    if let Some(stop) = stop {
        let ms = |time: Duration| format!("{}ms", time.as_millis());
        sets.push(Override::parse(&format!("stop={}", ms(stop)))?);
        let end = ms(stop.saturating_sub(BEFORE_END));
        sets.push(Override::parse(&format!("window.study.to={end}"))?);
    }
    let mut plan = Plan::load(PLAN, &sets)?;
    let has = |platform: Platform| {
        Some((platform.arm()?.to_string(), platform.congestion_control(algorithm)?))
    };
    let arms: Vec<(String, String)> = Platform::BEHAVING.into_iter().filter_map(has).collect();
    for (arm, cc) in arms.iter().filter(|_| algorithm.name != ALGORITHM) {
        plan.set_in_arm(arm, Override::parse(&format!("flow.{FLOW}.cc={cc}"))?);
    }
    plan.select_arms(&arms.into_iter().map(|(arm, _)| arm).collect::<Vec<_>>())?;
    if !only.is_empty() {
        let kernel =
            [Platform::Kernel, Platform::KernelAgain].into_iter().filter_map(Platform::arm);
        plan.select_arms(
            &kernel.map(String::from).chain(only.iter().cloned()).collect::<Vec<_>>(),
        )?;
    }
    Ok(plan)
}

/// The plan for the simulator: what the kernel does.
pub fn simulated(plan: &Plan) -> Result<Plan, PlanError> {
    let mut plan = plan.clone();
    plan.select_arms(&Platform::Kernel.arm().map(String::from).into_iter().collect::<Vec<_>>())?;
    Ok(plan)
}

impl Platform {
    /// Arm of the plan for this platform.
    fn arm(self) -> Option<&'static str> {
        match self {
            Self::Kernel => Some("kernel"),
            Self::KernelAgain => Some("kernel_again"),
            Self::Native => Some("native"),
            Self::AgentRound => Some("agent_round"),
            Self::Agent1Ms => Some("agent_1ms"),
            Self::Agent10Ms => Some("agent_10ms"),
            Self::AgentAck => Some("agent_ack"),
            Self::AgentSlowed | Self::Empty | Self::Fold | Self::Simulator => None,
        }
    }

    /// What the plan's flow has there; for the plan's own algorithm the plan says it more closely.
    fn congestion_control(self, algorithm: &Algorithm) -> Option<String> {
        match self {
            Self::Kernel | Self::KernelAgain => Some(format!("kernel:{}", algorithm.kernel)),
            Self::Native => algorithm.bpf.map(|name| format!("bpf:{name}")),
            _ => Some(format!("agent:{}", algorithm.agent)),
        }
    }

    fn of_run(run: &Run) -> Option<Self> {
        if run.key.backend == "sim" {
            return Some(Self::Simulator);
        }
        Self::BEHAVING.into_iter().find(|platform| platform.arm() == Some(&run.key.arm))
    }
}

/// How runs are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Trials of each platform that were asked for: with fewer, or fewer than [`TRIALS`] if more were,
    /// nothing is said.
    pub trials: usize,
    /// Bins of the curves, see [`is_interval`].
    pub interval: Duration,
}

/// Whether curves can have such bins: a whole number of the store's, within [`INTERVALS`].
pub fn is_interval(interval: Duration) -> bool {
    INTERVALS.contains(&interval) && interval.as_nanos().is_multiple_of(INTERVAL_STEP.as_nanos())
}

/// Judges `runs` of `plan`: those that are valid.
pub fn read(
    plan: &Plan,
    algorithm: &Algorithm,
    store: &Store,
    runs: &[Run],
    look: Look,
) -> Result<Behaviour, BehaviourError> {
    let has_arm =
        |platform: &Platform| plan.arms.iter().any(|arm| platform.arm() == Some(&arm.name));
    let commit = runs.first().map(|run| run.commit.clone()).unwrap_or_default();
    let asked = |cell: &str| Asked {
        trials: look.trials.min(TRIALS),
        platforms: Platform::BEHAVING.into_iter().filter(has_arm).collect(),
        made: made(runs, cell),
        commit: commit.clone(),
    };
    let bins = (look.interval.as_nanos() / INTERVAL_STEP.as_nanos()).max(1) as usize;
    let mut links = Vec::new();
    for cell in &plan.cells {
        let Some(arm) = plan.arms.first() else { continue };
        let experiment = plan.experiment(arm, cell, plan.seeds.first)?;
        let link = Link {
            name: cell.name.clone(),
            rtt_ms: experiment.rtt.as_secs_f64() * 1e3,
            from_s: FROM.as_secs_f64(),
            to_s: experiment.stop.saturating_sub(BEFORE_END).as_secs_f64(),
            interval_s: look.interval.as_secs_f64(),
        };
        let mut trials: BTreeMap<Platform, Vec<Trial>> = BTreeMap::new();
        for run in counting(runs).into_iter().filter(|run| run.key.cell == cell.name) {
            if let Some(platform) = Platform::of_run(run) {
                trials.entry(platform).or_default().push(trial(store, run, bins)?);
            }
        }
        links.push(Fidelity::of(link, trials, &asked(&cell.name)));
    }
    let kernel =
        runs.iter().find_map(|run| run.host["kernel"].as_str().filter(|it| !it.is_empty()));
    Ok(Behaviour {
        algorithm: algorithm.name.into(),
        commit,
        kernel: kernel.unwrap_or("unknown").into(),
        trials: look.trials,
        rejected: runs.iter().filter(|run| !run.is_valid()).count(),
        links,
    })
}

/// How often each platform was run over the link `cell`.
fn made(runs: &[Run], cell: &str) -> Vec<(Platform, Made)> {
    let made = |platform: Platform| {
        let is_meant = |run: &&Run| run.key.cell == cell && Platform::of_run(run) == Some(platform);
        let own = || runs.iter().filter(is_meant);
        let rejected = own().filter(|run| !run.is_valid()).count();
        (platform, Made { arm: platform.title().into(), runs: own().count(), rejected })
    };
    Platform::BEHAVING.into_iter().map(made).collect()
}

fn trial(store: &Store, run: &Run, bins: usize) -> Result<Trial, StoreError> {
    let over_time = store.connection_over_time(run.id, FLOW)?;
    let windows = store.series(run.id, "flow", FLOW, "cwnd_segments")?;
    let flow = run.flows.iter().find(|flow| flow.name == FLOW);
    let half = flow.and_then(|flow| flow.metrics.get("half_bdp_after_ms"));
    Ok(Trial::new(run.key.seed, &over_time, &windows, half, bins))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, run};

    fn algorithm(name: &str) -> Algorithm {
        Algorithm::find(name, "cubic reno bbr").unwrap()
    }

    /// Each arm's congestion control.
    fn arms(plan: &Plan) -> Vec<(String, String)> {
        let cc = |arm| plan.experiment(arm, &plan.cells[0], 1).unwrap().flows[0].cc_name();
        plan.arms.iter().map(|arm| (arm.name.clone(), cc(arm))).collect()
    }

    #[test]
    fn the_kernel_stays_beside_the_arms_that_are_asked_for() {
        let only = |name: &str| plan(&algorithm(ALGORITHM), None, &[name.to_string()]);
        let names: Vec<String> =
            only("native").unwrap().arms.into_iter().map(|arm| arm.name).collect();
        assert_eq!(names, ["kernel", "kernel_again", "native"]);
        let error = only("nativ").unwrap_err().to_string();
        assert!(error.contains("no arm nativ: allowed is one of kernel"), "{error}");
    }

    #[test]
    fn the_plan_as_it_stands_is_cubic_s() {
        let plan = plan(&algorithm(ALGORITHM), None, &[]).unwrap();
        let own = Plan::load(PLAN, &[]).unwrap();
        assert_eq!(arms(&plan), arms(&own));
        for (platform, (_, cc)) in Platform::BEHAVING.into_iter().zip(arms(&plan)) {
            let expected = platform.congestion_control(&algorithm(ALGORITHM)).unwrap();
            assert!(cc.starts_with(&expected), "{cc} is not {expected}");
        }
        let window = &plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
        assert_eq!(window.stop - BEFORE_END, Duration::from_millis(14_500));
    }

    #[test]
    fn curves_have_whole_bins_of_the_store_s() {
        let ms = Duration::from_millis;
        assert!([100, 200, 1000].into_iter().all(|it| is_interval(ms(it))));
        assert!(![0, 50, 150, 1100].into_iter().any(|it| is_interval(ms(it))));
    }

    #[test]
    fn another_algorithm_has_the_platforms_that_it_runs_on() {
        let names =
            |name| -> Vec<(String, String)> { arms(&plan(&algorithm(name), None, &[]).unwrap()) };
        let agent = "agent:newreno";
        for (name, in_bpf) in [("reno", "bpf:reno"), ("newreno", "bpf:newreno")] {
            let ccs: Vec<String> = names(name).into_iter().map(|(_, cc)| cc).collect();
            let expected = ["kernel:reno", "kernel:reno", in_bpf, agent, agent, agent, agent];
            assert_eq!(ccs, expected.map(String::from));
        }
        let bbr: Vec<String> = names("bbr").into_iter().map(|(arm, _)| arm).collect();
        assert!(!bbr.contains(&"native".to_string()) && bbr.len() == 6, "{bbr:?}");
    }

    #[test]
    fn runs_of_the_simulator_become_trials_of_that_platform_over_each_link() {
        let algorithm = algorithm("reno");
        let plan = plan(&algorithm, Some(STOP_MIN), &[]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            backend: "sim".into(),
            out: Some(folder.path().into()),
            seeds: Some("1..2".parse().unwrap()),
            ..Options::default()
        };
        let results = run(&simulated(&plan).unwrap(), &options, &mut |_| {}).unwrap();
        let look = Look { trials: 2, interval: Duration::from_millis(500) };
        let found = read(&plan, &algorithm, &results.store, &results.runs, look).unwrap();
        assert!(found.links.iter().all(|one| one.curves[0].points[1].at_s == 0.5));
        let names: Vec<&str> = found.links.iter().map(|one| one.link.name.as_str()).collect();
        assert_eq!(names, ["40mbit_40ms", "96mbit_50ms"]);
        for (fidelity, mbps, rtt) in [(&found.links[0], 40.0, 40.0), (&found.links[1], 96.0, 50.0)]
        {
            assert_eq!((fidelity.link.rtt_ms, fidelity.link.to_s), (rtt, 3.5));
            let seen = &fidelity.platforms[&Platform::Simulator];
            assert_eq!(seen.trials, 2);
            // Reno without HyStart fills path and queue: its payload is 1448 of 1514 bytes.
            let throughput = seen.throughput_mbps.unwrap();
            assert!((0.85 * mbps..0.96 * mbps).contains(&throughput), "{throughput}");
            let bdp = mbps * 1e6 * rtt / 1e3 / 8.0 / 1514.0;
            let peak = seen.slow_start_peak.unwrap();
            assert!((1.5 * bdp..4.5 * bdp).contains(&peak), "{peak} segments, BDP {bdp}");
            // Doubling from 10 each round trip.
            let rounds = (bdp / 2.0 / 10.0).log2();
            let half = seen.half_bdp_after_ms.unwrap();
            assert!((rtt * (rounds - 0.5)..rtt * (rounds + 2.5)).contains(&half), "{half} ms");
        }
    }
}
