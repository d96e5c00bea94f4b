//! The plan `platforms/behaviour` for any algorithm: the arms that have it, and their run time.

use std::time::Duration;

use super::platform::{Algorithm, Platform};
use crate::plan::curves::BINS;
use crate::plan::{Override, Plan, PlanError};

/// The plan, whose cells are the links.
pub const PLAN: &str = "platforms/behaviour";
/// Algorithm of the arms in the plan's file.
const ALGORITHM: &str = "cubic";
/// Flow of the plan.
const FLOW: &str = "bulk";
/// Curves are compared until this time before the end.
const BEFORE_END: Duration = Duration::from_millis(500);
/// Shortest run: it shows slow start and an equal time after it, and compares the curves for more than half.
pub const STOP_MIN: Duration = Duration::from_secs(4);

/// The plan with `algorithm` on every platform that has it, or only on the kernel and the arms of `only`.
/// Runs take `stop`, and curves have bins of `bin`.
///
/// # Errors
/// `only` names an arm that the plan does not have, or the plan refuses a value.
pub fn plan(
    algorithm: &Algorithm,
    stop: Option<Duration>,
    bin: Duration,
    only: &[String],
) -> Result<Plan, PlanError> {
    let ms = |time: Duration| format!("{}ms", time.as_millis());
    let mut sets = Vec::new();
    if bin != *BINS.start() {
        sets.push(Override::parse(&format!("curves.bin={}", ms(bin)))?);
    }
    if let Some(stop) = stop {
        let end = ms(stop.saturating_sub(BEFORE_END));
        let stop = ms(stop);
        for (key, value) in [("stop", &stop), ("curves.to", &end), ("window.study.to", &end)] {
            sets.push(Override::parse(&format!("{key}={value}"))?);
        }
    }
    let mut plan = Plan::load(PLAN, &sets)?;
    let has = |platform: Platform| {
        Some((platform.arm()?.to_string(), platform.congestion_control(algorithm)?))
    };
    let arms: Vec<(String, String)> = Platform::BEHAVING.into_iter().filter_map(has).collect();
    for (arm, cc) in arms.iter().filter(|_| algorithm.name != ALGORITHM) {
        plan.set_in_arm(arm, Override::parse(&format!("flow.{FLOW}.cc={cc}"))?)?;
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

/// The plan for the simulator: only the kernel's arm.
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
            Self::AgentSlowed | Self::Empty | Self::Fold => None,
        }
    }

    /// Congestion control of the plan's flow on this platform. For its own algorithm the plan itself has
    /// more detail.
    fn congestion_control(self, algorithm: &Algorithm) -> Option<String> {
        match self {
            Self::Kernel | Self::KernelAgain => Some(format!("kernel:{}", algorithm.kernel)),
            Self::Native => algorithm.bpf.map(|name| format!("bpf:{name}")),
            _ => Some(format!("agent:{}", algorithm.agent)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, run};

    const BIN: Duration = *BINS.start();

    fn algorithm(name: &str) -> Algorithm {
        Algorithm::find(name, "cubic reno bbr").unwrap()
    }

    /// The plan with all arms at its own length.
    fn plan(algorithm: &Algorithm) -> Plan {
        super::plan(algorithm, None, BIN, &[]).unwrap()
    }

    /// Each arm's congestion control.
    fn arms(plan: &Plan) -> Vec<(String, String)> {
        let cc = |arm| plan.experiment(arm, &plan.cells[0], 1).unwrap().flows[0].cc_name();
        plan.arms.iter().map(|arm| (arm.name.clone(), cc(arm))).collect()
    }

    #[test]
    fn the_kernel_stays_next_to_named_arms() {
        let only = |name: &str| super::plan(&algorithm(ALGORITHM), None, BIN, &[name.to_string()]);
        let names: Vec<String> =
            only("native").unwrap().arms.into_iter().map(|arm| arm.name).collect();
        assert_eq!(names, ["kernel", "kernel_again", "native"]);
        let error = only("nativ").unwrap_err().to_string();
        assert!(error.contains("no arm nativ: allowed is one of kernel"), "{error}");
    }

    #[test]
    fn the_plan_as_it_stands_runs_cubic() {
        let plan = plan(&algorithm(ALGORITHM));
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
    fn algorithms_have_the_arms_they_run_on() {
        let names = |name| -> Vec<(String, String)> { arms(&plan(&algorithm(name))) };
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
    fn simulated_runs_are_compared_over_each_link() {
        let algorithm = algorithm("reno");
        let half_s = Duration::from_millis(500);
        let plan = super::plan(&algorithm, Some(STOP_MIN), half_s, &[]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            backend: "sim".into(),
            out: Some(folder.path().into()),
            seeds: Some("1..2".parse().unwrap()),
            ..Options::default()
        };
        let results = run(&simulated(&plan).unwrap(), &options, &mut |_| {}).unwrap();
        for (arm, (mbps, rtt)) in results.summaries.iter().zip([(40.0, 40.0), (96.0, 50.0)]) {
            let get = |name: &str| arm.flows[0].metrics.get(name).unwrap();
            // The kernel's arm is its own baseline.
            let of_itself = ["nrmse_cwnd", "nrmse_bitrate", "nrmse_rtt", "bitrate_off"];
            assert_eq!(of_itself.map(get), [0.0; 4]);
            // Reno without HyStart fills path and queue: its payload is 1448 of 1514 bytes.
            let throughput = get("study.goodput_mbps");
            assert!((0.85 * mbps..0.96 * mbps).contains(&throughput), "{throughput}");
            let bdp = mbps * 1e6 * rtt / 1e3 / 8.0 / 1514.0;
            let peak = get("slow_start_peak");
            assert!((1.5 * bdp..4.5 * bdp).contains(&peak), "{peak} segments, BDP {bdp}");
            // Doubling from 10 each round trip.
            let rounds = (bdp / 2.0 / 10.0).log2();
            let half = get("half_bdp_after_ms");
            assert!((rtt * (rounds - 0.5)..rtt * (rounds + 2.5)).contains(&half), "{half} ms");
        }
        let drawn = crate::report::drawn(&crate::summary::Requests::new(&results.store)).unwrap();
        assert_eq!(drawn.len(), 6, "three ribbons a link");
    }
}
