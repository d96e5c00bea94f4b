//! A trial of costs, instead of links and traffic.

use std::time::Duration;

use forebay_core::units::Rate;
use forebay_reader::Reader;
use forebay_scenario::{Cost, CostAlgorithm, CostPlatform, CostRate, Counter, Link, Scenario};

use super::flows::agent;
use super::{ABOUT_THE_PLAN, time};

/// Keys of a plan that describe a trial. Other keys are about links and traffic.
const OF_TRIALS: [&str; 4] = ["stop", "warmup", "agent", "cost"];
/// Keys about the plan that concern links and traffic alone.
const OF_TRAFFIC: [&str; 4] = ["ideal", "alone", "curves", "window"];

/// The run of a plan with `[cost]`.
pub(super) fn trial(plan: &Reader<'_>) -> Option<Scenario> {
    let table = plan.table("cost")?;
    for key in plan.keys().iter().map(|key| key.name).filter(|key| plan.has(key)) {
        let is_about = ABOUT_THE_PLAN.contains(&key) && !OF_TRAFFIC.contains(&key);
        if !is_about && !OF_TRIALS.contains(&key) {
            plan.wrong_because(key, "nothing with [cost], which has neither links nor flows");
        }
    }
    let [stop, warmup] = ["stop", "warmup"].map(|key| time(plan, key, Duration::ZERO));
    let (stop, warmup) = (stop?, warmup.unwrap_or_default());
    if warmup >= stop {
        return plan.refuse("warmup", "a duration below the plan's stop");
    }
    let rate = match table.rate("rate") {
        None => CostRate::Searched,
        Some(Rate::ZERO) => CostRate::Unlimited,
        Some(rate) => CostRate::Fixed(rate),
    };
    let cost = Cost {
        platform: table.choice("platform", &CostPlatform::ALL).unwrap_or(CostPlatform::Kernel),
        algorithm: table.choice("algorithm", &CostAlgorithm::ALL).unwrap_or(CostAlgorithm::Cubic),
        over: table.name("over").or_else(|| plan.name("baseline")),
        connections: table.whole("connections").unwrap_or(1),
        segments: table.whole("segments"),
        rate,
        counter: table.choice("counter", &Counter::ALL).unwrap_or(Counter::Idle),
        turn: table.duration("turn").unwrap_or(Duration::from_millis(100)),
        times_programs: table.switch("times_programs").unwrap_or(false),
        burden: table.duration("burden").unwrap_or_default(),
    };
    if !cost.burden.is_zero() && cost.platform != CostPlatform::Agent {
        table.wrong_because("burden", "0s without platform = \"agent\"");
    }
    let [there, back] = ["forward", "reverse"].map(|name| Link::delay(name, Duration::ZERO));
    let scenario = Scenario::new(there, back, stop);
    Some(Scenario { warmup, agent: agent(plan), cost: Some(cost), ..scenario })
}
