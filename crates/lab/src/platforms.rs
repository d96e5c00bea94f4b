//! The plans below `platforms/` for any algorithm: the arms that have it, and their run time.

use std::time::Duration;

use forebay_core::units::Rate;
use forebay_scenario::{Cost, CostAlgorithm, Counter};

use crate::plan::curves::BINS;
use crate::plan::{Override, Plan, PlanError};

/// The plan of behaviour, whose cells are the links.
pub const BEHAVIOUR: &str = "platforms/behaviour";
/// The plans of costs.
pub const CPU: &str = "platforms/cpu";
/// The time of each BPF program.
pub const PROGRAMS: &str = "platforms/programs";
/// The time from a report to its decision.
pub const LATENCY: &str = "platforms/latency";
/// From one to a thousand connections.
pub const SCALE: &str = "platforms/scale";
/// Algorithm of the arms in the plan's file.
const ALGORITHM: &str = "cubic";
/// Flow of the plan.
const FLOW: &str = "bulk";
/// Curves are compared until this time before the end.
const BEFORE_END: Duration = Duration::from_millis(500);
/// Shortest run: it shows slow start and an equal time after it, and compares the curves for more than half.
pub const STOP_MIN: Duration = Duration::from_secs(4);

/// Traffic before the measured part of a trial. Slow start ends within milliseconds there.
const WARM_UP: Duration = Duration::from_millis(500);
/// Arms of the plan of behaviour, in the order of reports; the kernel's own come first.
const ARMS: [&str; 7] =
    ["kernel", "kernel_again", "native", "agent_round", "agent_1ms", "agent_10ms", "agent_ack"];

/// The plan with `algorithm` on every platform that has it, or only on the kernel and the arms of `only`.
/// Runs take `stop`, and curves have bins of `bin`.
///
/// # Errors
/// `only` names an arm that the plan does not have, or the plan refuses a value.
pub fn behaviour(
    algorithm: CostAlgorithm,
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
    let mut plan = Plan::load(BEHAVIOUR, &sets)?;
    let arms = ARMS.iter().filter_map(|arm| Some((arm.to_string(), control(arm, algorithm)?)));
    let arms: Vec<(String, String)> = arms.collect();
    for (arm, cc) in arms.iter().filter(|_| algorithm.name() != ALGORITHM) {
        plan.set_in_arm(arm, Override::parse(&format!("flow.{FLOW}.cc={cc}"))?)?;
    }
    plan.select_arms(&arms.into_iter().map(|(arm, _)| arm).collect::<Vec<_>>())?;
    if !only.is_empty() {
        let kernel = ARMS[..2].iter().map(|arm| arm.to_string());
        plan.select_arms(&kernel.chain(only.iter().cloned()).collect::<Vec<_>>())?;
    }
    Ok(plan)
}

/// The plan for the simulator: only the kernel's arm.
///
/// # Errors
/// The plan has no such arm.
pub fn simulated(plan: &Plan) -> Result<Plan, PlanError> {
    let mut plan = plan.clone();
    plan.select_arms(&[ARMS[0].to_string()])?;
    Ok(plan)
}

/// Congestion control of the flow of behaviour in `arm`; `None`: the arm's platform does not have `algorithm`. For its
/// own algorithm the plan itself has more detail.
fn control(arm: &str, algorithm: CostAlgorithm) -> Option<String> {
    match arm {
        "kernel" | "kernel_again" => Some(format!("kernel:{}", algorithm.kernel())),
        "native" => algorithm.bpf().map(|name| format!("bpf:{name}")),
        _ => Some(format!("agent:{}", algorithm.agent())),
    }
}

/// How the plan of costs `name` differs from its file.
#[derive(Clone, Debug)]
pub struct CostOptions {
    /// The algorithm.
    pub algorithm: CostAlgorithm,
    /// The measured part of a trial; `None`: the plan's.
    pub duration: Option<Duration>,
    /// Rate of the traffic where the plan searches one; `None`: searched.
    pub rate: Option<Rate>,
    /// Scheduling classes of the counting process for which scores are taken.
    pub counters: Vec<Counter>,
}

/// The plan of costs `name` with the arms whose platform has the algorithm.
///
/// # Errors
/// The plan refuses a value.
pub fn cost(name: &str, options: &CostOptions) -> Result<Plan, PlanError> {
    let mut sets = vec![format!("cost.algorithm={}", options.algorithm.name())];
    if let Some(duration) = options.duration {
        let stop = (WARM_UP + duration).as_millis();
        sets.extend([format!("warmup={}ms", WARM_UP.as_millis()), format!("stop={stop}ms")]);
    }
    let rate = options.rate.filter(|_| name != SCALE);
    sets.extend(rate.map(|rate| format!("cost.rate={}bit/s", rate.as_bits_per_sec())));
    let sets: Vec<Override> =
        sets.iter().map(|set| Override::parse(set)).collect::<Result<_, _>>()?;
    let mut plan = Plan::load(name, &sets)?;
    let Plan { arms, cells, .. } = &mut plan;
    arms.retain(|arm| arm.run(&cells[0]).cost.as_ref().is_some_and(Cost::exists));
    cells.retain(|cell| {
        let cost = arms[0].run(cell).cost.as_ref();
        name != CPU || cost.is_some_and(|cost| options.counters.contains(&cost.counter))
    });
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use forebay_scenario::CostRate;

    use super::*;
    use crate::{Options, run};

    const BIN: Duration = *BINS.start();

    /// The plan with all arms at its own length.
    fn plan(algorithm: CostAlgorithm) -> Plan {
        behaviour(algorithm, None, BIN, &[]).unwrap()
    }

    /// Each arm's congestion control.
    fn arms(plan: &Plan) -> Vec<(String, String)> {
        let cc = |arm| plan.experiment(arm, &plan.cells[0], 1).unwrap().flows[0].cc_name();
        plan.arms.iter().map(|arm| (arm.name.clone(), cc(arm))).collect()
    }

    #[test]
    fn the_kernel_stays_next_to_named_arms() {
        let only = |name: &str| behaviour(CostAlgorithm::Cubic, None, BIN, &[name.to_string()]);
        let names: Vec<String> =
            only("native").unwrap().arms.into_iter().map(|arm| arm.name).collect();
        assert_eq!(names, ["kernel", "kernel_again", "native"]);
        let error = only("nativ").unwrap_err().to_string();
        assert!(error.contains("no arm nativ: allowed is one of kernel"), "{error}");
    }

    #[test]
    fn the_plan_as_it_stands_runs_cubic() {
        let plan = plan(CostAlgorithm::Cubic);
        let own = Plan::load(BEHAVIOUR, &[]).unwrap();
        assert_eq!(arms(&plan), arms(&own));
        for (arm, (_, cc)) in ARMS.into_iter().zip(arms(&plan)) {
            let expected = control(arm, CostAlgorithm::Cubic).unwrap();
            assert!(cc.starts_with(&expected), "{cc} is not {expected}");
        }
        let window = &plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
        assert_eq!(window.stop - BEFORE_END, Duration::from_millis(14_500));
    }

    #[test]
    fn algorithms_have_the_arms_they_run_on() {
        let names = |algorithm| -> Vec<(String, String)> { arms(&plan(algorithm)) };
        let agent = "agent:newreno";
        let [reno, newreno] = [CostAlgorithm::Reno, CostAlgorithm::Newreno];
        for (name, in_bpf) in [(reno, "bpf:reno"), (newreno, "bpf:newreno")] {
            let ccs: Vec<String> = names(name).into_iter().map(|(_, cc)| cc).collect();
            let expected = ["kernel:reno", "kernel:reno", in_bpf, agent, agent, agent, agent];
            assert_eq!(ccs, expected.map(String::from));
        }
        let bbr: Vec<String> = names(CostAlgorithm::Bbr).into_iter().map(|(arm, _)| arm).collect();
        assert!(!bbr.contains(&"native".to_string()) && bbr.len() == 6, "{bbr:?}");
    }

    #[test]
    fn simulated_runs_are_compared_over_each_link() {
        let half_s = Duration::from_millis(500);
        let plan = behaviour(CostAlgorithm::Reno, Some(STOP_MIN), half_s, &[]).unwrap();
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

    #[test]
    fn cost_plans_follow_their_options() {
        let options = CostOptions {
            algorithm: CostAlgorithm::Bbr,
            duration: Some(Duration::from_millis(300)),
            rate: Some(Rate::from_mbit_per_sec(7)),
            counters: vec![Counter::Nice19],
        };
        for (name, arms, cells) in [(CPU, 7, 3), (PROGRAMS, 6, 2), (LATENCY, 4, 1), (SCALE, 3, 4)] {
            let plan = cost(name, &options).unwrap();
            assert_eq!((plan.arms.len(), plan.cells.len()), (arms, cells), "{name}");
            let run = plan.arms[0].run(&plan.cells[0]);
            assert_eq!(run.stop - run.warmup, Duration::from_millis(300));
            let is_fixed =
                run.cost.as_ref().unwrap().rate == CostRate::Fixed(options.rate.unwrap());
            assert_eq!(is_fixed, name != SCALE);
        }
        let cpu = cost(CPU, &options).unwrap();
        let last = cpu.arms.last().unwrap().run(cpu.cells.last().unwrap());
        let last = last.cost.as_ref().unwrap();
        assert_eq!((last.rate, last.over.as_deref()), (CostRate::Unlimited, Some("agent_round")));
    }
}
