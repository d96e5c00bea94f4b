//! Runs one scenario repeatedly and prints the cost of each run as a line of JSON. Or compares the
//! scaling of parallel runs with the scaling of an arithmetic loop, and fails if the runs scale worse
//! than required.
//!
//! ```text
//! cargo run --release -p forebay-sim --example speed -- b2 5
//! cargo run --release -p forebay-sim --example speed -- scaling 1000
//! ```

mod scaling;
mod scenarios;

use std::process::ExitCode;

use forebay_core::units::Duration;
use nix::time::{ClockId, clock_gettime};

use self::scenarios::Scenario;

/// Names that [`named`] knows.
const NAMES: &str = "b1|b2|b3|overshoot|100_flows|1000_flows|10000_flows";

fn named(name: &str) -> Option<Scenario> {
    let dumbbell = match name {
        "b1" => scenarios::rate_step(),
        "b2" => scenarios::many(10, Duration::from_secs(30)),
        "b3" => return Some(scenarios::requests(Duration::from_secs(60))),
        "overshoot" => scenarios::overshoot(Duration::from_secs(3)),
        "100_flows" => scenarios::crowd(100, Duration::from_secs(3)),
        "1000_flows" => scenarios::crowd(1_000, Duration::from_secs(3)),
        "10000_flows" => scenarios::crowd(10_000, Duration::from_secs(3)),
        _ => return None,
    };
    Some(dumbbell.into())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("", String::as_str);
    let repetitions = arguments.get(1).map_or(Ok(5), |count| count.parse::<u32>());
    if let ("scaling", Ok(runs)) = (name, &repetitions) {
        return if scaling::compare(*runs) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let (Some(scenario), Ok(repetitions)) = (named(name), repetitions) else {
        eprintln!("usage: speed {NAMES} [REPETITIONS] | speed scaling [RUNS]");
        return ExitCode::from(2);
    };
    for _ in 0..repetitions {
        let before_ns = clock_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        let (mut simulation, requests) = scenario.run();
        let flows = 0..scenario.network.flows.len();
        let metrics: Vec<_> = flows.filter_map(|flow| simulation.flow_metrics(flow)).collect();
        let link = simulation.link_metrics(0);
        let cpu_ns = clock_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID) - before_ns;
        let resent: u64 = metrics.iter().map(|flow| flow.total_retransmissions_l4).sum();
        let timeouts: u64 = metrics.iter().map(|flow| flow.total_rtos_l4).sum();
        let slots = simulation.slots(0);
        let [opened, slots] = slots.map_or([0; 2], |it| [it.opened as usize, it.all]);
        println!(
            "{{\"scenario\":\"{name}\",\"cpu_s\":{:.6},\"packets\":{},\"events\":{},\
             \"drops\":{},\"retransmissions\":{resent},\"timeouts\":{timeouts},\
             \"requests\":{opened},\"completed\":{},\"slots\":{slots},\"rss_mb\":{:.1}}}",
            cpu_ns as f64 * 1e-9,
            simulation.packets(),
            simulation.events(),
            link.total_qdisc_drops_l2,
            opened.saturating_sub(requests.unfinished()),
            peak_mb(),
        );
    }
    ExitCode::SUCCESS
}

/// A clock in nanoseconds; CPU times in `/proc` come in ticks of 4 ms.
fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("every Linux has this clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// Peak memory of this process (MB).
fn peak_mb() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .map_or(0.0, |kb: f64| kb / 1024.0)
}
