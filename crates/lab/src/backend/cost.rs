//! Trials of costs on the testbed's bench: the arms of a cell and seed on one processor.
//!
//! Where a plan names no rate, the first group of a cell searches it. Later groups have that group's rate, since the
//! store keeps it with the machine of each run.

use std::path::Path;
use std::time::Duration;

use forebay_core::random::Streams;
use forebay_core::record::{CostRecord, HostRecord, RunRecord, TrialRecord};
use forebay_core::units::Rate;
use forebay_host::agent::Cadence;
use forebay_host::kernel;
use forebay_scenario::{Cost, CostAlgorithm, CostPlatform, CostRate, Report};
use forebay_testbed::cost::bench::{Bench, Turn};
use forebay_testbed::cost::{AgentTerms, Control, CostError, Load, NativeKind, Trial};
use serde_json::Value;

use super::{BackendError, RunProgress};
use crate::experiment::Experiment;
use crate::metrics::{RunRows, disturbance};

/// Longest trial while a rate is searched.
const SEARCH_TRIAL: Duration = Duration::from_secs(2);
/// Share of the processor that the kernel's algorithm should take.
const SHARE: f64 = 0.57;
/// Accepted range of the share. It lies well within the half to seven tenths that the scored trials, which
/// come later, must show.
const SHARE_NEAR: std::ops::RangeInclusive<f64> = 0.53..=0.62;
/// Range of rates to try.
const RATES: [Rate; 2] = [Rate::from_mbit_per_sec(10), Rate::from_mbit_per_sec(100_000)];
/// Rate of the first trial of a search.
const RATE_FIRST: Rate = Rate::from_mbit_per_sec(300);
/// Most rates that a search tries.
const TRIES: usize = 10;
/// Most trials at a rate until one is undisturbed: a minute and a half.
const TRIALS_A_RATE: u32 = 30;
/// Least share of the rate that the traffic must reach for the rate to count.
const RATE_REACHED: f64 = 0.99;
/// A report per round, at most one per millisecond: the default of `forebay agent`.
const ROUND_MIN: Duration = Duration::from_millis(1);
/// Pause after a group, so that waiting measurements get their turn: they look ten times a second.
const PAUSE: Duration = Duration::from_millis(250);
/// The kernel's list of congestion controls.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Refuses trials that this machine or the algorithm's platform does not allow.
pub fn check(experiment: &Experiment, cost: &Cost) -> Result<(), BackendError> {
    control(experiment, cost)?;
    let available = std::fs::read_to_string(AVAILABLE).unwrap_or_default();
    let (name, wanted) = (cost.algorithm.name(), cost.algorithm.kernel());
    if !available.split_whitespace().any(|known| known == wanted) {
        return Err(BackendError::Unavailable(format!(
            "cost.algorithm = {name:?}: the kernel has no congestion control {wanted}, it has {}",
            available.trim()
        )));
    }
    Bench::check().map_err(unavailable)
}

/// Makes the trials of a group in a random order, with no other measurement in between.
pub fn run(
    arms: &[Experiment],
    earlier: &Value,
    directory: &Path,
    progress: &mut dyn FnMut(RunProgress),
) -> Result<Vec<RunRows>, BackendError> {
    check_group(arms)?;
    let mut report = |phase: String, done| progress(RunProgress { phase, done });
    let binary = std::env::current_exe()
        .map_err(|error| BackendError::Failed(format!("this program: {error}")))?;
    let turn = Turn::take(&mut |holder| report(format!("waiting for {holder}"), 0.0));
    let turn = turn.map_err(unavailable)?;
    let bench = Bench::open(&binary, directory).map_err(unavailable)?;
    let first = Arm::of(&arms[0])?;
    let calibration = Calibration::of(&bench, &first, earlier, &mut report)?;
    let mut order: Vec<usize> = (0..arms.len()).collect();
    Streams::new(arms[0].seed).stream(&format!("order {}", arms[0].cell)).shuffle(&mut order);
    // Without turns the trials follow each other.
    let together = if first.cost.turn.is_zero() { 1 } else { order.len() };
    let mut trials: Vec<TrialRecord> = vec![TrialRecord::default(); arms.len()];
    for (place, places) in order.chunks(together).enumerate() {
        report("running".into(), (place * together) as f64 / order.len() as f64);
        let controls = places.iter().map(|place| Ok(Arm::of(&arms[*place])?.control));
        let controls: Vec<Control> = controls.collect::<Result<_, BackendError>>()?;
        let found =
            bench.run_in_turns(&first.trial(calibration.rate), &controls).map_err(failed)?;
        places.iter().zip(found).for_each(|(place, found)| trials[*place] = found);
    }
    drop(turn);
    std::thread::sleep(PAUSE);
    let processor = processor();
    let rows = |(arm, trial): (&Experiment, &TrialRecord)| {
        let over = arm.cost.as_ref().and_then(|cost| cost.over.as_ref());
        let other = over.filter(|over| **over != arm.arm);
        let other = other.and_then(|other| arms.iter().position(|arm| arm.arm == *other));
        let record = CostRecord {
            trial: trial.clone(),
            compared: other.map(|place| trials[place].clone()),
            rate_bps: calibration.rate.map(Rate::as_bits_per_sec),
            idle_per_s: calibration.idle_per_s,
            cpu: bench.cpu(),
            processor: processor.clone(),
        };
        let (kernel, load) = (kernel::release(), [trial.load; 2]);
        let steal = trial.share(trial.steal_ns);
        let host = HostRecord { kernel, load, steal, ..HostRecord::default() };
        let run = RunRecord { cost: Some(record), host, ..RunRecord::default() };
        RunRows { run, packets: Vec::new() }
    };
    Ok(arms.iter().zip(&trials).map(rows).collect())
}

/// Refuses arms that differ in their traffic, and arms whose compared arm is not in the group: their costs could not
/// be compared.
fn check_group(arms: &[Experiment]) -> Result<(), BackendError> {
    let first = Arm::of(&arms[0])?;
    let traffic = |arm: &Arm<'_>| {
        let (platform, over, burden) = (first.cost.platform, None, Duration::ZERO);
        let cost = Cost { platform, over, burden, ..arm.cost.clone() };
        (cost, arm.experiment.scenario.stop, arm.experiment.scenario.warmup)
    };
    for experiment in arms {
        let (arm, name) = (Arm::of(experiment)?, &experiment.arm);
        if traffic(&arm) != traffic(&first) {
            let reason = format!(
                "arm {name}: its stop, its warmup and its [cost] other than platform, over and burden: allowed are \
                 those of arm {}",
                arms[0].arm
            );
            return Err(BackendError::Unsupported(reason));
        }
        if let Some(over) =
            arm.cost.over.as_ref().filter(|over| arms.iter().all(|it| it.arm != **over))
        {
            let reason =
                format!("cost.over = {over:?} of arm {name}: allowed is an arm that runs, too");
            return Err(BackendError::Unsupported(reason));
        }
    }
    Ok(())
}

/// An arm in the terms of the bench.
struct Arm<'a> {
    experiment: &'a Experiment,
    cost: &'a Cost,
    control: Control,
}

impl<'a> Arm<'a> {
    fn of(experiment: &'a Experiment) -> Result<Self, BackendError> {
        let cost = experiment.cost.as_ref().ok_or_else(|| {
            let reason = format!("arm {}: [cost] of the other arms of its group", experiment.arm);
            BackendError::Unsupported(reason)
        })?;
        Ok(Self { experiment, cost, control: control(experiment, cost)? })
    }

    fn trial(&self, rate: Option<Rate>) -> Trial {
        let Experiment { scenario, .. } = self.experiment;
        let Cost { connections: flows, segments, .. } = *self.cost;
        Trial {
            load: Load { rate, flows, gso_segments: segments },
            counter: self.cost.counter,
            warm_up: scenario.warmup,
            duration: scenario.stop - scenario.warmup,
            slice: self.cost.turn,
            times_programs: self.cost.times_programs,
        }
    }
}

/// The bench's control for a trial.
fn control(experiment: &Experiment, cost: &Cost) -> Result<Control, BackendError> {
    Ok(match cost.platform {
        CostPlatform::Kernel => Control::Kernel(cost.algorithm.kernel().into()),
        CostPlatform::Native if !cost.exists() => {
            let (arm, name) = (&experiment.arm, cost.algorithm.name());
            return Err(BackendError::Unsupported(format!(
                "arm {arm}: cost.algorithm = {name:?}: allowed is \"cubic\" or \"reno\" with platform = \"native\""
            )));
        }
        CostPlatform::Native if cost.algorithm == CostAlgorithm::Cubic => {
            Control::Native(NativeKind::Cubic)
        }
        CostPlatform::Native => Control::Native(NativeKind::Reno),
        CostPlatform::Agent => Control::Agent(AgentTerms {
            algorithm: cost.algorithm.agent().into(),
            cadence: match experiment.agent.report {
                Report::Round => Cadence::Round { at_least: ROUND_MIN },
                Report::Ack => Cadence::Every(Duration::ZERO),
                Report::Every(time) => Cadence::Every(time),
            },
            period: experiment.agent.period,
            burden: cost.burden,
        }),
        CostPlatform::Empty => Control::Empty,
        CostPlatform::Fold => Control::Unled,
    })
}

/// The rate of a group's traffic, and the count without traffic.
struct Calibration {
    /// `None`: as fast as possible.
    rate: Option<Rate>,
    /// Steps of the counting process per second of CPU time without traffic.
    idle_per_s: Option<f64>,
}

impl Calibration {
    /// The calibration of an earlier group on this machine, or a new one.
    fn of(
        bench: &Bench,
        arm: &Arm<'_>,
        earlier: &Value,
        report: &mut dyn FnMut(String, f64),
    ) -> Result<Self, BackendError> {
        if arm.cost.rate == CostRate::Unlimited {
            return Ok(Self { rate: None, idle_per_s: None });
        }
        let known = &earlier["cost"];
        let is_here = known["processor"] == processor() && earlier["kernel"] == kernel::release();
        if let (true, Some(rate), Some(idle)) =
            (is_here, known["rate_bps"].as_u64(), known["idle_per_s"].as_f64())
        {
            let rate = Some(Rate::from_bits_per_sec(rate));
            return Ok(Self { rate, idle_per_s: Some(idle) });
        }
        report("searching the rate".into(), 0.0);
        let trial = arm.trial(None);
        let duration = trial.duration.min(SEARCH_TRIAL);
        let idle = bench.idle_count(duration, arm.cost.counter).map_err(failed)?;
        let rate = match arm.cost.rate {
            CostRate::Fixed(rate) => rate,
            _ => searched(
                &Trial { duration, ..trial },
                arm.cost.algorithm.kernel(),
                |trial, control| {
                    let found = bench.run(trial, control).map_err(failed)?;
                    let share = 1.0 - found.counted_per_s / idle;
                    Ok((found, share))
                },
            )?,
        };
        Ok(Self { rate: Some(rate), idle_per_s: Some(idle) })
    }
}

/// The rate at which the kernel's algorithm `name` takes its share of the processor; `run` makes a trial, and
/// returns that share as well.
fn searched(
    trial: &Trial,
    name: &str,
    run: impl Fn(&Trial, &Control) -> Result<(TrialRecord, f64), BackendError>,
) -> Result<Rate, BackendError> {
    let control = Control::Kernel(name.into());
    // CPU time of other processes must not count as the kernel's.
    let share_at = |rate: Rate| {
        let mut reason = "";
        for _ in 0..TRIALS_A_RATE {
            let load = Load { rate: Some(rate), ..trial.load };
            let (found, share) = run(&Trial { load, ..trial.clone() }, &control)?;
            let sent = found.bytes_per_s * 8.0 / rate.as_bits_per_sec() as f64;
            match disturbance(&found) {
                None => return Ok((share, sent >= RATE_REACHED)),
                Some(why) => reason = why,
            }
        }
        Err(BackendError::Unavailable(format!(
            "no rate can be searched while other processes use this machine: {reason} in {TRIALS_A_RATE} trials"
        )))
    };
    let (mut rate, mut tried) = (RATE_FIRST, Vec::new());
    for _ in 0..TRIES {
        let (share, is_reached) = share_at(rate)?;
        tried.push(format!("{rate}: {:.0} %", 100.0 * share));
        if SHARE_NEAR.contains(&share) && is_reached {
            return Ok(rate);
        }
        rate = next_rate(rate, share);
    }
    let [least, most] = RATES;
    Err(BackendError::Unavailable(format!(
        "no rate between {least} and {most} makes the kernel's {name} use half to seven tenths of the processor: \
         tried {}",
        tried.join(", ")
    )))
}

/// The rate that takes the wanted share, if the share grows with the rate.
fn next_rate(rate: Rate, share: f64) -> Rate {
    let factor = (SHARE / share.max(0.01)).clamp(0.25, 4.0);
    let bits = rate.as_bits_per_sec() as f64 * factor;
    let [least, most] = RATES.map(|rate| rate.as_bits_per_sec() as f64);
    Rate::from_bits_per_sec(bits.clamp(least, most) as u64)
}

/// The model of the processor.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map(|model| model.trim_start_matches([' ', '\t', ':']));
    model.unwrap_or("unknown").into()
}

/// An error before a trial.
fn unavailable(error: CostError) -> BackendError {
    if error.is_bad_input() { BackendError::Unavailable(error.to_string()) } else { failed(error) }
}

/// An error of a trial.
fn failed(error: CostError) -> BackendError {
    BackendError::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use forebay_scenario::Counter;

    use super::*;
    use crate::plan::{Override, Plan};

    fn arm(name: &str, set: &str) -> Experiment {
        let sets = [Override::parse(set).unwrap()];
        let plan = Plan::load("platforms/cpu", &sets).unwrap();
        let arm = plan.arms.iter().find(|arm| arm.name == name).unwrap();
        plan.experiment(arm, &plan.cells[0], 1).unwrap()
    }

    fn control_of(name: &str, algorithm: &str) -> Result<Control, BackendError> {
        let experiment = arm(name, &format!("cost.algorithm={algorithm}"));
        Ok(Arm::of(&experiment)?.control)
    }

    #[test]
    fn slowed_agent_differs_in_its_burden_only() {
        let terms = |name| match control_of(name, "cubic").unwrap() {
            Control::Agent(terms) => terms,
            other => panic!("{other:?}"),
        };
        let slowed = terms("agent_slowed");
        assert_eq!(slowed.burden, Duration::from_micros(5));
        assert_eq!(AgentTerms { burden: Duration::ZERO, ..slowed }, terms("agent_round"));
        assert_eq!(terms("agent_ack").cadence, Cadence::Every(Duration::ZERO));
    }

    #[test]
    fn arms_that_cannot_be_compared_are_refused() {
        let [kernel, mut native] = ["kernel", "native"].map(|it| arm(it, "cost.algorithm=cubic"));
        check_group(&[kernel.clone(), native.clone()]).unwrap();
        let refused = |arms: &[Experiment]| check_group(arms).unwrap_err().to_string();
        assert!(refused(&[native.clone()]).contains("cost.over = \"kernel\" of arm native"));
        native.cost.as_mut().unwrap().connections = 9;
        assert!(refused(&[kernel, native]).contains("arm native: its stop"));
    }

    #[test]
    fn platforms_refuse_algorithms_that_they_lack() {
        assert_eq!(control_of("native", "reno").unwrap(), Control::Native(NativeKind::Reno));
        for algorithm in ["bbr", "newreno"] {
            let error = control_of("native", algorithm).unwrap_err().to_string();
            assert!(
                error.contains(&format!("arm native: cost.algorithm = \"{algorithm}\"")),
                "{error}"
            );
        }
        assert_eq!(control_of("kernel", "newreno").unwrap(), Control::Kernel("reno".into()));
    }

    #[test]
    fn search_ends_where_the_share_is_near() {
        // 1.5 Gbit/s takes the whole processor. Every second trial is disturbed.
        let made = RefCell::new(0);
        let run = |trial: &Trial, _: &Control| {
            *made.borrow_mut() += 1;
            let rate = trial.load.rate.unwrap().as_bits_per_sec() as f64;
            let foreign_ns = if *made.borrow() % 2 == 1 { 900 } else { 0 };
            let found = TrialRecord {
                counted_per_s: 1.0,
                window_ns: 1000,
                foreign_ns,
                bytes_per_s: rate / 8.0,
                ..TrialRecord::default()
            };
            Ok((found, (rate / 1.5e9).min(1.0)))
        };
        let load = Load { rate: None, flows: 1, gso_segments: None };
        let zero = Duration::ZERO;
        let trial = Trial {
            load,
            counter: Counter::Idle,
            warm_up: zero,
            duration: zero,
            slice: zero,
            times_programs: false,
        };
        let rate = searched(&trial, "cubic", run).unwrap();
        assert!(SHARE_NEAR.contains(&(rate.as_bits_per_sec() as f64 / 1.5e9)), "{rate}");
        let busy = |_: &Trial, _: &Control| Ok((TrialRecord::default(), 0.0));
        let error = searched(&trial, "cubic", busy).unwrap_err().to_string();
        assert!(error.contains("nothing was counted in 30 trials"), "{error}");
        assert_eq!(next_rate(RATES[1], 0.0), RATES[1]);
        assert_eq!(next_rate(RATES[0], 1.0), RATES[0]);
    }

    #[test]
    fn simulated_back_ends_refuse_trials() {
        let experiment = arm("kernel", "cost.algorithm=cubic");
        let error = crate::backend::open("sim").unwrap().check(&experiment).unwrap_err();
        assert!(matches!(error, BackendError::Unsupported(_)));
        assert!(error.to_string().starts_with("[cost]: the back end sim"), "{error}");
    }
}
