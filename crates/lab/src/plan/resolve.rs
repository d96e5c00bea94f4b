//! From a plan's tree, overrides applied, to an [`Experiment`].

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use forebay_core::link::Trace;
use forebay_core::random::Streams;
use forebay_core::spec::{Spec, Value as SpecValue};
use forebay_core::traffic::SizeCdf;
use forebay_core::units::{ByteCount, Limit, Rate, Ratio};
use sha2::{Digest, Sha256};

use super::error::PlanError;
use super::experiment::{
    Agent, Attack, BoxEnd, Bundle, Change, Experiment, Fault, FaultAction, FaultProgram, Flow,
    Link, Platform, Report, Stack, Timing, Traffic, Window,
};
use super::library::Source;
use super::reader::Reader;
use super::registry;
use super::schedule::{Connections, RequestLoad, fixed_size, size_cdf};
use super::schema::{self, Section};
use super::tree::{Table, flatten};

/// Keys that say nothing about the experiment itself.
const ABOUT_THE_PLAN: [&str; 10] =
    ["name", "title", "description", "extends", "seeds", "arm", "arms", "cell", "cells", "window"];
/// Bytes of a packet in a bandwidth-delay product: the customary MTU, so that 96 Mbit/s x 50 ms is
/// 400 packets.
const BDP_PACKET_BYTES: f64 = 1500.0;
/// Pair of the flows that name neither a bundle nor a pair.
const CROSS: &str = "cross";

/// Reads an experiment; names of plan, arm and cell and the seed are left to the caller.
pub fn experiment(tree: &Table, source: &Source) -> Result<Experiment, PlanError> {
    let plan = Reader::document(tree, &schema::PLAN, &source.file)?;
    let mut files = Files { source, digest: Sha256::new() };
    let stop = plan.require("stop", plan.duration("stop")?)?;
    let warmup = plan.duration("warmup")?.unwrap_or(Duration::ZERO);
    if stop.is_zero() {
        return Err(plan.wrong_because("stop", "a duration above zero"));
    }
    if warmup >= stop {
        return Err(plan.wrong_because("warmup", "a duration below the plan's stop"));
    }
    let (rtt, forward, reverse) = links(&plan, stop, &mut files)?;
    let declared = bundles(&plan)?;
    let start_jitter = start_jitter(&plan, rtt)?;
    let flows = flows(&plan, [warmup, stop], &forward, &declared, &mut files)?;
    if flows.iter().any(|flow| flow.start + start_jitter >= flow.stop) {
        return Err(plan.wrong_because("start_jitter", "a time after which every flow still runs"));
    }
    if let Some(flow) = flows.iter().find(|flow| flow.rtt.is_some_and(|own| own < rtt)) {
        let reason = format!("rtt of flow {} not below the bottleneck's", flow.name);
        return Err(plan.wrong_because("flow", &reason));
    }
    let mut pairs: Vec<String> = Vec::new();
    let named = declared.iter().map(|bundle| &bundle.bundle.pair);
    for pair in named.chain(flows.iter().map(|flow| &flow.pair)) {
        if !pairs.contains(pair) {
            pairs.push(pair.clone());
        }
    }
    let faults = faults(&plan, stop, &declared, &flows)?;
    let attack = attack(&plan, stop, &declared)?;
    let all = flatten(tree);
    // Windows change no run, but what is known of it.
    let sha256 = files.finish(all.iter().filter(|(key, _)| {
        let part = first_part(key);
        part == "window" || !ABOUT_THE_PLAN.contains(&part)
    }));
    let mut parameters = all;
    parameters.retain(|key, _| !ABOUT_THE_PLAN.contains(&first_part(key)));
    Ok(Experiment {
        plan: String::new(),
        arm: String::new(),
        cell: String::new(),
        seed: 0,
        stop,
        warmup,
        stack: plan.choice("stack", &STACKS)?.unwrap_or(Stack::Linux),
        ecn: plan.choice("ecn", &[("off", false), ("classic", true)])?.unwrap_or(false),
        start_jitter,
        drain: plan.duration("drain")?.unwrap_or(Duration::from_secs(30)),
        rtt,
        forward,
        reverse,
        pairs,
        bundles: declared.into_iter().filter(|b| b.enabled).map(|b| b.bundle).collect(),
        flows,
        windows: windows(&plan, stop)?,
        faults,
        attack,
        agent: agent(&plan)?,
        sha256,
        parameters,
    })
}

const STACKS: [(&str, Stack); 2] = [("linux", Stack::Linux), ("ns3", Stack::Ns3)];

/// A duration, or a number of round trips.
fn start_jitter(plan: &Reader<'_>, rtt: Duration) -> Result<Duration, PlanError> {
    let text = plan.text("start_jitter")?.unwrap_or("0s");
    let Some(factor) = text.strip_suffix("rtt") else {
        return Ok(plan.duration("start_jitter")?.unwrap_or(Duration::ZERO));
    };
    let factor = factor.trim().parse::<f64>().ok().filter(|n| (0.0..=1000.0).contains(n));
    factor.map(|factor| rtt.mul_f64(factor)).ok_or_else(|| plan.wrong("start_jitter"))
}

fn first_part(key: &str) -> &str {
    key.split('.').next().unwrap_or_default()
}

/// The files that a plan names; their contents are part of what identifies an experiment.
struct Files<'a> {
    source: &'a Source,
    digest: Sha256,
}

impl Files<'_> {
    fn finish<'p>(mut self, parameters: impl Iterator<Item = (&'p String, &'p String)>) -> String {
        for (key, value) in parameters {
            // Lengths keep `a = "b"` apart from `ab = ""`.
            self.digest.update(format!("{}:{key}{}:{value}", key.len(), value.len()));
        }
        let mut hex = String::new();
        for byte in self.digest.finalize() {
            let _ = write!(hex, "{byte:02x}");
        }
        hex
    }

    fn trace(&mut self, table: &Reader<'_>) -> Result<Option<(PathBuf, Rate)>, PlanError> {
        let Some(reference) = table.text("trace")? else { return Ok(None) };
        let path = self.source.path(reference).ok_or_else(|| table.wrong("trace"))?;
        let text = Source::read(&path)
            .map_err(|error| table.wrong_because("trace", &format!("a readable file ({error})")))?
            .text;
        self.digest.update(&text);
        let trace = Trace::parse(&path.display().to_string(), &text).map_err(PlanError::Data)?;
        Ok(Some((path, trace.mean_rate())))
    }

    /// The sizes of a requests table: one size, a built-in CDF or the path of one.
    fn sizes(&mut self, table: &Reader<'_>) -> Result<SizeCdf, PlanError> {
        let reference = table.require("sizes", table.text("sizes")?)?;
        if let Ok(size) = reference.parse() {
            return fixed_size(size).ok_or_else(|| table.wrong("sizes"));
        }
        let text = self.source.sizes(reference).map_err(|error| {
            table.wrong_because("sizes", &format!("a size or a size CDF ({error})"))
        })?;
        self.digest.update(&text.text);
        size_cdf(&text.file, &text.text).map_err(PlanError::Data)
    }
}

fn links(
    plan: &Reader<'_>,
    stop: Duration,
    files: &mut Files<'_>,
) -> Result<(Duration, Link, Link), PlanError> {
    let table = plan.table("bottleneck", &schema::BOTTLENECK)?;
    let table = plan.require("bottleneck", table)?;
    let rtt = table.require("rtt", table.duration("rtt")?)?;
    let qdisc = table.require("qdisc", table.spec("qdisc")?)?;
    let mut forward = link(&table, rtt / 2, qdisc, files)?;
    forward.changes = changes(&table, &schema::CHANGE, stop)?;
    if forward.rate.is_none() && forward.trace.is_none() {
        return Err(table.wrong_because("rate", "a rate, or a trace instead"));
    }
    let mut reverse = match plan.table("reverse", &schema::REVERSE)? {
        Some(table) => {
            let qdisc = table.spec("qdisc")?.unwrap_or_else(unnoticed_queue);
            let mut reverse = link(&table, rtt / 2, qdisc, files)?;
            reverse.changes = changes(&table, &schema::REVERSE_CHANGE, stop)?;
            reverse
        }
        None => Link {
            rate: None,
            nominal_rate: None,
            trace: None,
            delay: rtt / 2,
            loss: 0.0,
            message_loss: 0.0,
            reorder: 0.0,
            reorder_packets: 3,
            qdisc: unnoticed_queue(),
            changes: Vec::new(),
        },
    };
    // A change of the round trip is one of both directions.
    for change in forward.changes.iter().filter(|change| change.delay.is_some()) {
        reverse.changes.push(Change { at: change.at, delay: change.delay, ..Change::default() });
    }
    reverse.changes.sort_by_key(|change| change.at);
    Ok((rtt, forward, reverse))
}

/// The queue of a link that is no bottleneck: long enough never to drop.
fn unnoticed_queue() -> Spec {
    Spec::named("fifo").with("limit", SpecValue::Text("10000p".into()))
}

fn link(
    table: &Reader<'_>,
    delay: Duration,
    qdisc: Spec,
    files: &mut Files<'_>,
) -> Result<Link, PlanError> {
    let rate = table.rate("rate")?;
    let trace = files.trace(table)?;
    if rate.is_some() && trace.is_some() {
        return Err(table.wrong_because("trace", "either a rate or a trace"));
    }
    let qdisc =
        resolve_bdp(table, qdisc, rate.or(trace.as_ref().map(|(_, mean)| *mean)), delay * 2)?;
    registry::check_qdisc(&qdisc).map_err(|error| table.wrong_spec("qdisc", &error))?;
    let (trace, mean_rate) = trace.unzip();
    Ok(Link {
        rate,
        nominal_rate: rate.or(mean_rate),
        trace,
        delay,
        loss: table.share("loss")?.unwrap_or(0.0),
        message_loss: table.share("message_loss")?.unwrap_or(0.0),
        reorder: table.share("reorder")?.unwrap_or(0.0),
        reorder_packets: table.count("reorder_packets", 1..=1000)?.unwrap_or(3),
        qdisc,
        changes: Vec::new(),
    })
}

/// The changes of a link, which has those that its section knows.
fn changes(
    link: &Reader<'_>,
    section: &'static Section,
    stop: Duration,
) -> Result<Vec<Change>, PlanError> {
    let mut changes: Vec<Change> = Vec::new();
    for table in link.tables("change", section)? {
        let at = table.require("at", table.duration("at")?)?;
        if at >= stop || changes.last().is_some_and(|last| last.at > at) {
            let allowed = "a time before the plan's stop, not before the previous change";
            return Err(table.wrong_because("at", allowed));
        }
        // Both directions follow the round trip, which the bottleneck's section alone has.
        let rtt = if table.knows("rtt") { table.duration("rtt")? } else { None };
        let delay = rtt.map(|rtt| rtt / 2);
        changes.push(Change { at, rate: table.rate("rate")?, delay, loss: table.share("loss")? });
    }
    Ok(changes)
}

/// Replaces a limit in bandwidth-delay products by one in packets.
fn resolve_bdp(
    table: &Reader<'_>,
    mut qdisc: Spec,
    rate: Option<Rate>,
    rtt: Duration,
) -> Result<Spec, PlanError> {
    let Some(SpecValue::Text(text)) = qdisc.params.get("limit") else { return Ok(qdisc) };
    let Some(number) = text.strip_suffix("bdp") else { return Ok(qdisc) };
    let factor = number.trim().parse::<f64>().ok().filter(|n| (0.001..=1000.0).contains(n));
    let (Some(factor), Some(rate)) = (factor, rate) else {
        return Err(table.wrong("qdisc"));
    };
    let packets = rate.as_bytes_per_sec_f64() * rtt.as_secs_f64() / BDP_PACKET_BYTES;
    // At least one packet: an empty limit would pass nothing.
    let limit = Limit::Packets(((factor * packets).round() as u64).max(1));
    qdisc.params.insert("limit".into(), SpecValue::Text(limit.to_string()));
    Ok(qdisc)
}

struct DeclaredBundle {
    bundle: Bundle,
    enabled: bool,
}

fn bundles(plan: &Reader<'_>) -> Result<Vec<DeclaredBundle>, PlanError> {
    let mut bundles: Vec<DeclaredBundle> = Vec::new();
    for table in plan.tables("bundle", &schema::BUNDLE)? {
        let name = table.require("name", table.name("name")?)?;
        let pair = table.name("pair")?.unwrap_or_else(|| name.clone());
        let reversed = table.switch("reversed")?.unwrap_or(false);
        if bundles.iter().any(|known| known.bundle.name == name) {
            return Err(table.repeated("bundle"));
        }
        let same =
            |known: &DeclaredBundle| known.bundle.pair == pair && known.bundle.reversed == reversed;
        if bundles.iter().any(same) {
            return Err(table.wrong_because("pair", "a pair without a bundle in this direction"));
        }
        let cc = table.require("cc", table.spec("cc")?)?;
        registry::check_cc(&cc).map_err(|error| table.wrong_spec("cc", &error))?;
        let qdisc = table.require("qdisc", table.spec("qdisc")?)?;
        registry::check_qdisc(&qdisc).map_err(|error| table.wrong_spec("qdisc", &error))?;
        let (min_rate, max_rate) = (table.rate("min_rate")?, table.rate("max_rate")?);
        if min_rate.zip(max_rate).is_some_and(|(min, max)| min > max) {
            return Err(table.wrong_because("min_rate", "a rate not above max_rate"));
        }
        let enabled = table.switch("enabled")?.unwrap_or(true);
        let bundle = Bundle { name, pair, reversed, cc, qdisc, min_rate, max_rate };
        bundles.push(DeclaredBundle { bundle, enabled });
    }
    Ok(bundles)
}

fn flows(
    plan: &Reader<'_>,
    [warmup, stop]: [Duration; 2],
    forward: &Link,
    bundles: &[DeclaredBundle],
    files: &mut Files<'_>,
) -> Result<Vec<Flow>, PlanError> {
    let mut flows: Vec<Flow> = Vec::new();
    for table in plan.tables("flow", &schema::FLOW)? {
        let (kind, traffic) = traffic(&table, forward, files)?;
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
        let (platform, cc) = flow_cc(&table)?;
        flows.push(Flow {
            name,
            pair: pair_of(&table, bundles)?,
            reversed: table.switch("reversed")?.unwrap_or(false),
            cc,
            cc_at: table.origin_of("cc").to_string(),
            platform,
            start,
            other_starts: Vec::new(),
            stop: end,
            rtt: table.duration("rtt")?,
            traffic,
        });
    }
    if flows.is_empty() {
        return Err(plan.wrong_because("flow", "at least one [[flow]]"));
    }
    Ok(flows)
}

/// The platform, if one is named, and the algorithm. Which ones a kernel has is for the back end that
/// asks it; a name without a platform is one that is known here.
fn flow_cc(flow: &Reader<'_>) -> Result<(Option<Platform>, Spec), PlanError> {
    let written = flow.spec("cc")?.unwrap_or_else(|| Spec::named("cubic"));
    let (platform, algorithm) = match written.kind.split_once(':') {
        None => (None, written.kind.as_str()),
        Some((name, algorithm)) => {
            let platform = Platform::ALL.into_iter().find(|platform| platform.name() == name);
            (Some(platform.ok_or_else(|| flow.wrong("cc"))?), algorithm)
        }
    };
    let mut cc: Spec = algorithm.parse().map_err(|_| flow.wrong("cc"))?;
    // What an override sets beside the text.
    cc.params.extend(written.params);
    match platform {
        None if cc.kind == "reno" || registry::is_algorithm(&cc.kind) => {
            let kind = if cc.kind == "reno" { "newreno".into() } else { cc.kind.clone() };
            let ours = Spec { kind, params: cc.params.clone() };
            registry::check_flow_cc(&ours).map_err(|error| flow.wrong_spec("cc", &error))?;
        }
        None if !registry::LINUX_ONLY.contains(&cc.kind.as_str()) => {
            return Err(flow.wrong("cc"));
        }
        None | Some(Platform::Kernel) => {
            // TCP_CA_NAME_MAX of Linux, less the final zero.
            if cc.kind.len() > 15 {
                return Err(flow.wrong("cc"));
            }
        }
        Some(Platform::Bpf) => {
            if !["reno", "newreno", "cubic"].contains(&cc.kind.as_str()) || !cc.params.is_empty() {
                return Err(flow.wrong_because("cc", "\"bpf:reno\" or \"bpf:cubic\", as they are"));
            }
        }
        Some(Platform::Agent) => {
            if cc.kind == "reno" {
                cc.kind = "newreno".into();
            }
            registry::check_flow_cc(&cc).map_err(|error| flow.wrong_spec("cc", &error))?;
        }
    }
    Ok((platform, cc))
}

/// What `forebay agent --report` takes as a time.
const REPORTS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(50)];
/// What `forebay agent --period` takes beside 0 ms.
const PERIODS: [Duration; 2] = [Duration::from_micros(500), Duration::from_millis(10)];

fn agent(plan: &Reader<'_>) -> Result<Agent, PlanError> {
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

fn pair_of(flow: &Reader<'_>, bundles: &[DeclaredBundle]) -> Result<String, PlanError> {
    match (flow.name("bundle")?, flow.name("pair")?) {
        (Some(_), Some(_)) => Err(flow.wrong_because("pair", "either a bundle or a pair")),
        (Some(name), None) => {
            let bundle = bundles.iter().find(|known| known.bundle.name == name);
            bundle.map(|known| known.bundle.pair.clone()).ok_or_else(|| {
                flow.wrong_because("bundle", &format!("one of {}", bundle_names(bundles)))
            })
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

fn bundle_names(bundles: &[DeclaredBundle]) -> String {
    let names: Vec<&str> = bundles.iter().map(|known| known.bundle.name.as_str()).collect();
    names.join(", ")
}

fn traffic(
    flow: &Reader<'_>,
    forward: &Link,
    files: &mut Files<'_>,
) -> Result<(&'static str, Traffic), PlanError> {
    let raw = flow.require("traffic", flow.raw_table("traffic")?)?;
    let kind = raw.get("kind").map(|node| node.value.to_string());
    let section = match kind.as_deref() {
        Some("\"greedy\"") => &schema::GREEDY,
        Some("\"requests\"") => &schema::REQUESTS,
        Some("\"cbr\"") => &schema::CBR,
        Some("\"poisson\"") => &schema::POISSON,
        Some("\"on_off\"") => &schema::ON_OFF,
        Some("\"ping\"") => &schema::PING,
        _ => return Err(flow.wrong("traffic")),
    };
    let table = flow.require("traffic", flow.table("traffic", section)?)?;
    let count = flow.count("count", 1..=10_000)?;
    let flows = count.unwrap_or(1);
    match kind.as_deref() {
        Some("\"greedy\"") => Ok(("greedy", Traffic::Greedy { flows })),
        Some("\"ping\"") => Ok(("ping", Traffic::Ping { loops: flows })),
        Some("\"cbr\"") => Ok(("cbr", datagrams(&table, flows, Timing::Even)?)),
        Some("\"poisson\"") => Ok(("poisson", datagrams(&table, flows, Timing::Poisson)?)),
        Some("\"on_off\"") => {
            let on = table.require("on", table.duration("on")?)?;
            let off = table.require("off", table.duration("off")?)?;
            if on.is_zero() {
                return Err(table.wrong_because("on", "a duration above zero"));
            }
            Ok(("on_off", datagrams(&table, flows, Timing::OnOff { on, off })?))
        }
        _ => {
            if count.is_some() {
                let allowed = "no count with requests: `connections` says how many";
                return Err(flow.wrong_because("count", allowed));
            }
            Ok(("requests", requests(&table, forward, files)?))
        }
    }
}

fn datagrams(table: &Reader<'_>, flows: u32, timing: Timing) -> Result<Traffic, PlanError> {
    let rate = table.require("rate", table.rate("rate")?)?;
    let packet = table.parsed::<ByteCount>("packet")?;
    let packet_bytes = packet.map_or(1514, |packet| packet.as_u64());
    // An Ethernet frame without FCS: 60 bytes at least, 64 keep a sequence number inside.
    if !(64..=1514).contains(&packet_bytes) {
        return Err(table.wrong("packet"));
    }
    Ok(Traffic::Datagrams { flows, rate, packet_bytes: packet_bytes as u32, timing })
}

fn requests(
    table: &Reader<'_>,
    forward: &Link,
    files: &mut Files<'_>,
) -> Result<Traffic, PlanError> {
    let text = table.require("load", table.text("load")?)?;
    let load = match (text.parse::<Rate>(), text.parse::<Ratio>()) {
        (Ok(load), _) => load,
        (Err(_), Ok(share)) => {
            let rate = forward.nominal_rate.ok_or_else(|| table.wrong("load"))?;
            rate.scale(share.as_f64())
        }
        _ => return Err(table.wrong("load")),
    };
    if load == Rate::ZERO {
        return Err(table.wrong_because("load", "a load above zero"));
    }
    let iid = table.choice("sampling", &[("strata", false), ("iid", true)])?.unwrap_or(false);
    let connections = match table.text("connections") {
        Ok(Some("each")) => Connections::Each,
        _ => Connections::Persistent(table.count("connections", 1..=10_000)?.unwrap_or(200)),
    };
    Ok(Traffic::Requests(RequestLoad { sizes: files.sizes(table)?, load, connections, iid }))
}

fn windows(plan: &Reader<'_>, stop: Duration) -> Result<Vec<Window>, PlanError> {
    let mut windows: Vec<Window> = Vec::new();
    for table in plan.tables("window", &schema::WINDOW)? {
        let name = table.require("name", table.name("name")?)?;
        if windows.iter().any(|window| window.name == name) {
            return Err(table.repeated("window"));
        }
        let from = table.require("from", table.duration("from")?)?;
        let to = table.duration("to")?.unwrap_or(stop);
        if from >= to || to > stop {
            let key = if table.has("to") { "to" } else { "from" };
            return Err(table.wrong_because(key, "from < to <= the plan's stop"));
        }
        windows.push(Window { name, from, to });
    }
    Ok(windows)
}

fn faults(
    plan: &Reader<'_>,
    stop: Duration,
    bundles: &[DeclaredBundle],
    flows: &[Flow],
) -> Result<Vec<Fault>, PlanError> {
    let mut faults: Vec<Fault> = Vec::new();
    for table in plan.tables("fault", &schema::FAULT)? {
        let at = table.require("at", table.duration("at")?)?;
        if at > stop || faults.last().is_some_and(|last| last.at > at) {
            let allowed = "a time within the run, not before the previous fault";
            return Err(table.wrong_because("at", allowed));
        }
        let program = fault_program(&table, bundles, flows)?;
        let actions = [
            ("kill", FaultAction::Kill),
            ("stop", FaultAction::Stop),
            ("continue", FaultAction::Continue),
            ("restart", FaultAction::Restart),
        ];
        let action = table.require("action", table.choice("action", &actions)?)?;
        // An arm without the program has none to hit: the same plan, nothing happens.
        if let Some(program) = program {
            faults.push(Fault { at, program, action });
        }
    }
    Ok(faults)
}

/// What a fault hits; `None` where the arm has no such program.
fn fault_program(
    table: &Reader<'_>,
    bundles: &[DeclaredBundle],
    flows: &[Flow],
) -> Result<Option<FaultProgram>, PlanError> {
    if table.text("end")? == Some("agent") {
        if table.has("bundle") {
            return Err(table.wrong_because("bundle", "no bundle: the agent has none"));
        }
        let has_agent = flows.iter().any(|flow| flow.platform == Some(Platform::Agent));
        return Ok(has_agent.then_some(FaultProgram::Agent));
    }
    // Before the bundle, which only a box needs.
    let end = table.require("end", table.choice("end", &ENDS)?)?;
    let known = bundle_of(table, bundles)?;
    let bundle = known.bundle.name.clone();
    Ok(known.enabled.then_some(FaultProgram::Box { bundle, end }))
}

const ENDS: [(&str, BoxEnd); 2] =
    [("sendbox", BoxEnd::Sendbox), ("receivebox", BoxEnd::Receivebox)];

/// The bundle that `table` must name.
fn bundle_of<'a>(
    table: &Reader<'_>,
    bundles: &'a [DeclaredBundle],
) -> Result<&'a DeclaredBundle, PlanError> {
    let name = table.require("bundle", table.name("bundle")?)?;
    bundles
        .iter()
        .find(|known| known.bundle.name == name)
        .ok_or_else(|| table.wrong_because("bundle", &format!("one of {}", bundle_names(bundles))))
}

fn attack(
    plan: &Reader<'_>,
    stop: Duration,
    bundles: &[DeclaredBundle],
) -> Result<Option<Attack>, PlanError> {
    let Some(table) = plan.table("attack", &schema::ATTACK)? else { return Ok(None) };
    let at = table.require("at", table.duration("at")?)?;
    // Before, there is nothing to replay yet.
    if at.is_zero() || at >= stop {
        return Err(table.wrong_because("at", "a time after the start and before the plan's stop"));
    }
    let known = bundle_of(&table, bundles)?;
    let end = table.require("target", table.choice("target", &ENDS)?)?;
    let messages = u64::from(table.count("messages", 1..=1_000_000_000)?.unwrap_or(1_000_000));
    // An arm without the bundle has no box to attack.
    let happens = table.switch("enabled")?.unwrap_or(true) && known.enabled;
    let bundle = known.bundle.name.clone();
    Ok(happens.then_some(Attack { at, bundle, end, messages }))
}
