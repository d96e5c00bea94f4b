//! Flows, and the agent that decides for some flows.

use std::time::Duration;

use forebay_core::random::Streams;
use forebay_core::traffic::Schedule;
use forebay_core::units::parse_duration;

use super::algorithm::{FlowCc, Known};
use super::bundles::{DeclaredBundle, bundle_of};
use super::receiving::receiving;
use super::traffic::traffic;
use super::{Ends, Files};
use forebay_reader::Reader;
use forebay_scenario::{Agent, Flow, INITIAL_WINDOW, Link, Report, Traffic, Transport};

/// Pair of the flows that name neither a bundle nor a pair.
const CROSS: &str = "cross";

/// Algorithms of quinn that a flow over QUIC may have.
const OF_QUINN: [&str; 2] = ["cubic", "bbr"];

/// Reads the flows, which may run between the sites of `bundles`, as far as their values are valid.
pub(super) fn flows(
    plan: &Reader<'_>,
    times: [Duration; 2],
    (ends, hops): (Ends<'_>, &[Link]),
    bundles: &[DeclaredBundle],
    files: &mut Files<'_>,
    known: &Known<'_>,
) -> Vec<Flow> {
    let mut flows: Vec<Flow> = Vec::new();
    for table in plan.tables("flow") {
        let Some(flow) = flow(&table, times, (ends, hops), bundles, files, known) else { continue };
        if flows.iter().any(|known| known.name == flow.name) {
            table.repeated("flow");
        }
        flows.push(flow);
    }
    if plan.has("flow") && plan.elements("flow").is_empty() {
        plan.wrong_because("flow", "at least one [[flow]]");
    }
    flows
}

fn flow(
    table: &Reader<'_>,
    [warmup, stop]: [Duration; 2],
    (ends, hops): (Ends<'_>, &[Link]),
    bundles: &[DeclaredBundle],
    files: &mut Files<'_>,
    known: &Known<'_>,
) -> Option<Flow> {
    let (pair, cc) = (pair_of(table, bundles), known.cc_of(table));
    let link = pair.as_ref().map_or(ends.forward, |pair| ends.of(pair, false));
    let (kind, traffic) = traffic(table, link, files)?;
    let start = table.duration("start").unwrap_or(Duration::ZERO);
    let end = table.duration("stop").unwrap_or(stop);
    if end > stop || start >= end {
        let key = if table.has("stop") { "stop" } else { "start" };
        table.wrong_because(key, "start < stop <= the plan's stop");
    } else if let Traffic::Requests(load) = &traffic {
        // Any seed will do: the refusal does not depend on it.
        let plan = load.plan(start, warmup, end);
        if let Err(error) = Schedule::draw(&plan, &Streams::new(0)) {
            table.wrong_spec("traffic", &error);
        }
    }
    let reversed = table.switch("reversed").unwrap_or(false);
    let ttl = table.whole("ttl").map(|ttl| ttl as u8);
    if ttl.is_some() && (reversed || !matches!(traffic, Traffic::Datagrams { .. })) {
        table.wrong("ttl");
    }
    let hop = table.whole("hop").map(|hop| hop as usize - 1);
    if hop.is_some_and(|hop| hop > hops.len() || reversed || ttl.is_some()) {
        table.wrong("hop");
    }
    let has_own = pair.as_ref().is_some_and(|pair| ends.own(pair).is_some());
    for (key, is_given) in [("ttl", ttl.is_some()), ("hop", hop.is_some())] {
        if is_given && has_own {
            table.wrong_because(key, "no value, because the pair has a link of its own");
        }
    }
    let rtt = table.duration("rtt");
    if rtt.zip(pair.as_ref()).is_some_and(|(rtt, pair)| rtt < ends.rtt(pair)) {
        table.wrong("rtt");
    }
    let transport = transport(table, &traffic, cc.as_ref());
    let is_tcp = transport == Transport::Tcp && traffic.has_connections();
    let initial_window = table.whole("initial_window");
    if initial_window.is_some() && !is_tcp {
        table.wrong("initial_window");
    }
    let receiving = receiving(table, &traffic, is_tcp);
    let FlowCc { platform, cc, at: cc_at } = cc?;
    Some(Flow {
        name: table.name("name").unwrap_or_else(|| kind.to_string()),
        pair: pair?,
        reversed,
        transport,
        cc,
        cc_at,
        platform,
        start,
        other_starts: Vec::new(),
        stop: end,
        rtt,
        hop,
        dscp: table.whole("dscp").unwrap_or(0) as u8,
        initial_window: initial_window.unwrap_or(INITIAL_WINDOW),
        receiving: receiving?,
        ttl,
        traffic,
    })
}

fn transport(table: &Reader<'_>, traffic: &Traffic, cc: Option<&FlowCc>) -> Transport {
    let is_quic = table.choice("transport", &[("tcp", false), ("quic", true)]).unwrap_or(false);
    if table.has("transport") && !traffic.has_connections() {
        table.wrong_because("transport", "no value: greedy, requests and video have connections");
    }
    if !is_quic {
        return Transport::Tcp;
    }
    let of_quinn = |FlowCc { platform, cc, .. }: &FlowCc| {
        platform.is_none() && cc.params.is_empty() && OF_QUINN.contains(&cc.kind.as_str())
    };
    if cc.is_some_and(|cc| !of_quinn(cc)) {
        table.wrong_because("cc", "\"cubic\" or \"bbr\" with transport = \"quic\"");
    }
    Transport::Quic { at: table.origin_of("transport").to_string() }
}

fn pair_of(flow: &Reader<'_>, bundles: &[DeclaredBundle]) -> Option<String> {
    match (flow.has("bundle"), flow.has("pair")) {
        (true, true) => flow.refuse("pair", "either a bundle or a pair"),
        (true, false) => Some(bundle_of(flow, bundles)?.bundle.pair.clone()),
        (false, true) => {
            let pair = flow.name("pair")?;
            if bundles.iter().any(|known| known.bundle.pair == pair) {
                let allowed = "a pair of its own; `bundle` for the sites of a bundle";
                flow.wrong_because("pair", allowed);
            }
            Some(pair)
        }
        (false, false) => Some(CROSS.into()),
    }
}

/// Range of times for `forebay agent --report`.
const REPORTS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(50)];
/// Range of times for `forebay agent --period`; 0 ms is also allowed.
const PERIODS: [Duration; 2] = [Duration::from_micros(500), Duration::from_millis(10)];

/// Reads the reporting settings of the flows' agent.
pub(super) fn agent(plan: &Reader<'_>) -> Agent {
    let mut agent = Agent::default();
    let Some(table) = plan.table("agent") else { return agent };
    let time = |key: &str, [least, most]: [Duration; 2], or_none: bool| {
        let time = parse_duration(table.text(key)?).ok();
        let time = time.filter(|time| (least..=most).contains(time) || or_none && time.is_zero());
        time.or_else(|| table.refused(key))
    };
    agent.report = match table.text("report") {
        None | Some("round") => Report::Round,
        Some("ack") => Report::Ack,
        Some(_) => time("report", REPORTS, false).map_or(Report::Round, Report::Every),
    };
    if let Some(period) = time("period", PERIODS, true) {
        agent.period = period;
    }
    agent
}
