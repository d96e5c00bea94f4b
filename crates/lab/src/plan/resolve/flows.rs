//! Flows, and the agent that decides for some of them.

use std::time::Duration;

use forebay_core::random::Streams;

use super::algorithm::{FlowCc, Known};
use super::bundles::{DeclaredBundle, known_bundles};
use super::receiving::receiving;
use super::traffic::traffic;
use super::{Ends, Files};
use crate::experiment::{Agent, Flow, INITIAL_WINDOW, Link, Report, Traffic};
use crate::plan::error::PlanError;
use crate::plan::reader::Reader;
use crate::plan::schema;

/// Pair of the flows that name neither a bundle nor a pair.
const CROSS: &str = "cross";

/// Reads the flows, which may run between the sites of `bundles`.
pub(super) fn flows(
    plan: &Reader<'_>,
    [warmup, stop]: [Duration; 2],
    (ends, hops): (Ends<'_>, &[Link]),
    bundles: &[DeclaredBundle],
    files: &mut Files<'_>,
    known: &Known<'_>,
) -> Result<Vec<Flow>, PlanError> {
    let mut flows: Vec<Flow> = Vec::new();
    for table in plan.tables("flow", &schema::FLOW)? {
        let pair = pair_of(&table, bundles)?;
        let (kind, traffic) = traffic(&table, ends.of(&pair, false), files)?;
        let name = table.name("name")?.unwrap_or_else(|| kind.to_string());
        if flows.iter().any(|flow| flow.name == name) {
            return Err(table.repeated("flow"));
        }
        let start = table.duration("start")?.unwrap_or(Duration::ZERO);
        let end = table.duration("stop")?.unwrap_or(stop);
        if end > stop || start >= end {
            let key = if table.has("stop") { "stop" } else { "start" };
            return Err(table.wrong_because(key, "start < stop <= the plan's stop"));
        }
        if let Traffic::Requests(load) = &traffic {
            // Any seed will do: what is refused does not depend on it.
            let drawn = load.schedule(start, warmup, end, &Streams::new(0));
            drawn.map_err(|error| table.wrong_spec("traffic", &error))?;
        }
        let FlowCc { platform, cc, at: cc_at } = known.cc_of(&table)?;
        let reversed = table.switch("reversed")?.unwrap_or(false);
        let ttl = table.count("ttl", 1..=2)?.map(|ttl| ttl as u8);
        if ttl.is_some() && (reversed || !matches!(traffic, Traffic::Datagrams { .. })) {
            return Err(table.wrong("ttl"));
        }
        let hop = table.count("hop", 1..=hops.len() as u32 + 1)?.map(|hop| hop as usize - 1);
        if hop.is_some() && (reversed || ttl.is_some()) {
            return Err(table.wrong("hop"));
        }
        for (key, is_given) in [("ttl", ttl.is_some()), ("hop", hop.is_some())] {
            if is_given && ends.own(&pair).is_some() {
                return Err(
                    table.wrong_because(key, "nothing where the pair has a link of its own")
                );
            }
        }
        let rtt = table.duration("rtt")?;
        if rtt.is_some_and(|rtt| rtt < ends.rtt(&pair)) {
            return Err(table.wrong("rtt"));
        }
        let initial_window = table.count("initial_window", 1..=10_000)?;
        if initial_window.is_some() && !traffic.is_tcp() {
            return Err(table.wrong("initial_window"));
        }
        let receiving = receiving(&table, &traffic)?;
        flows.push(Flow {
            name,
            pair,
            reversed,
            cc,
            cc_at,
            platform,
            start,
            other_starts: Vec::new(),
            stop: end,
            rtt,
            hop,
            dscp: table.count("dscp", 0..=63)?.unwrap_or(0) as u8,
            initial_window: initial_window.unwrap_or(INITIAL_WINDOW),
            receiving,
            ttl,
            traffic,
        });
    }
    if flows.is_empty() {
        return Err(plan.wrong_because("flow", "at least one [[flow]]"));
    }
    Ok(flows)
}

fn pair_of(flow: &Reader<'_>, bundles: &[DeclaredBundle]) -> Result<String, PlanError> {
    match (flow.name("bundle")?, flow.name("pair")?) {
        (Some(_), Some(_)) => Err(flow.wrong_because("pair", "either a bundle or a pair")),
        (Some(name), None) => {
            let bundle = bundles.iter().find(|known| known.bundle.name == name);
            bundle
                .map(|known| known.bundle.pair.clone())
                .ok_or_else(|| flow.wrong_because("bundle", &known_bundles(bundles)))
        }
        (None, Some(pair)) => {
            if bundles.iter().any(|known| known.bundle.pair == pair) {
                let allowed = "a pair of its own; `bundle` for the sites of a bundle";
                return Err(flow.wrong_because("pair", allowed));
            }
            Ok(pair)
        }
        (None, None) => Ok(CROSS.into()),
    }
}

/// What `forebay agent --report` takes as a time.
const REPORTS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(50)];
/// What `forebay agent --period` takes beside 0 ms.
const PERIODS: [Duration; 2] = [Duration::from_micros(500), Duration::from_millis(10)];

/// Reads how the agent of flows hears of them.
pub(super) fn agent(plan: &Reader<'_>) -> Result<Agent, PlanError> {
    let mut agent = Agent { report: Report::Round, period: Duration::from_millis(10) };
    let Some(table) = plan.table("agent", &schema::AGENT)? else { return Ok(agent) };
    let is_within = |time: Duration, [least, most]: [Duration; 2]| least <= time && time <= most;
    agent.report = match table.text("report")? {
        None | Some("round") => Report::Round,
        Some("ack") => Report::Ack,
        Some(_) => match table.duration("report")? {
            Some(time) if is_within(time, REPORTS) => Report::Every(time),
            _ => return Err(table.wrong("report")),
        },
    };
    if let Some(period) = table.duration("period")? {
        if !period.is_zero() && !is_within(period, PERIODS) {
            return Err(table.wrong("period"));
        }
        agent.period = period;
    }
    Ok(agent)
}
