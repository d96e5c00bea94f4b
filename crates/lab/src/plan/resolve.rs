//! From a plan's tree, overrides applied, to an [`Experiment`].

mod hits;
mod links;
mod receiving;
mod uplink;

use std::fmt::Write;
use std::time::Duration;

use forebay_core::bundle::NAME_MAX;
use forebay_core::bundle::sendbox::{DEFAULT_MIN_RATE, RATES, SUPPLIED};
use forebay_core::cc::Registry;
use forebay_core::link::Trace;
use forebay_core::qdisc::{self, bundle_default};
use forebay_core::random::Streams;
use forebay_core::spec::{Spec, Value as SpecValue, nearest};
use forebay_core::traffic::SizeCdf;
use forebay_core::traffic::video::{LADDER, Video};
use forebay_core::units::{ByteCount, Rate, Ratio};
use sha2::{Digest, Sha256};

use self::hits::{attack, faults, upsets};
use self::links::{Links, links};
use self::receiving::receiving;
use self::uplink::uplink;
use super::error::PlanError;
use super::library::Source;
use super::paths;
use super::reader::Reader;
use super::schema;
use super::tree::{Node, Table, Value, flatten};
use crate::algorithms::{LINUX_ONLY, version};
use crate::experiment::schedule::{Connections, RequestLoad, fixed_size, size_cdf};
use crate::experiment::{
    Agent, Bundle, Experiment, Flow, INITIAL_WINDOW, Link, OwnLink, Platform, Report, Stack,
    Timing, Traffic, Window,
};

/// Keys that say nothing about the experiment itself.
const ABOUT_THE_PLAN: [&str; 12] = [
    "name",
    "title",
    "description",
    "extends",
    "as_published",
    "seeds",
    "arm",
    "arms",
    "cell",
    "cells",
    "window",
    "figure",
];
/// Pair of the flows that name neither a bundle nor a pair.
const CROSS: &str = "cross";
/// Of a bundle of which nothing is seen there is nothing to find out.
const UNSEEN_MAX: f64 = 0.99;
/// A box that is later than this hangs.
const JITTER_MAX: Duration = Duration::from_secs(1);

/// Reads an experiment; names of plan, arm and cell and the seed are left to the caller.
pub fn experiment(
    mut tree: Table,
    source: &Source,
    algorithms: &Registry,
) -> Result<Experiment, PlanError> {
    paths::follow(&mut tree)?;
    let plan = Reader::document(&tree, &schema::PLAN, &source.file)?;
    let mut files = Files { source, digest: Sha256::new() };
    let rtt = links::rtt(&plan)?;
    let stop = plan.require("stop", plan.time("stop", rtt)?)?;
    let warmup = plan.time("warmup", rtt)?.unwrap_or(Duration::ZERO);
    if stop.is_zero() {
        return Err(plan.wrong_because("stop", "a duration above zero"));
    }
    if warmup >= stop {
        return Err(plan.wrong_because("warmup", "a duration below the plan's stop"));
    }
    let Links { forward, paths, balance, hops, reverse, own } =
        links(&plan, rtt, stop, &mut files)?;
    let ends = Ends { rtt, forward: &forward, reverse: &reverse, own: &own };
    let declared = bundles(&plan, ends, algorithms)?;
    let uplink = uplink(&plan, &declared)?;
    if !hops.is_empty() && declared.iter().any(|bundle| bundle.enabled) {
        let bottleneck = plan.table("bottleneck", &schema::BOTTLENECK)?;
        return Err(plan.require("bottleneck", bottleneck)?.wrong("hops"));
    }
    let start_jitter = plan.time("start_jitter", rtt)?.unwrap_or(Duration::ZERO);
    let known = Known { algorithms, aut: aut(&plan, algorithms)? };
    let flows = flows(&plan, [warmup, stop], (ends, &hops), &declared, &mut files, &known)?;
    if flows.iter().any(|flow| flow.start + start_jitter >= flow.stop) {
        return Err(plan.wrong_because("start_jitter", "a time after which every flow still runs"));
    }
    let mut pairs: Vec<String> = Vec::new();
    let named = declared.iter().map(|bundle| &bundle.bundle.pair);
    for pair in named.chain(flows.iter().map(|flow| &flow.pair)) {
        if !pairs.contains(pair) {
            pairs.push(pair.clone());
        }
    }
    for table in plan.tables("link", &schema::LINK)? {
        if table.name("name")?.is_some_and(|pair| !pairs.contains(&pair)) {
            return Err(table.wrong_because("name", "a pair of sites that has a flow or a bundle"));
        }
    }
    let faults = faults(&plan, stop, &declared, &flows, uplink.is_some())?;
    let upsets = upsets(&plan, stop, &declared)?;
    let attack = attack(&plan, stop, &declared)?;
    let mut all = flatten(&tree);
    all.extend(versions(&flows, &declared));
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
        paths,
        balance,
        hops,
        reverse,
        own_links: own,
        pairs,
        bundles: declared.into_iter().filter(|b| b.enabled).map(|b| b.bundle).collect(),
        uplink,
        flows,
        windows: windows(&plan, stop)?,
        faults,
        upsets,
        attack,
        agent: agent(&plan)?,
        sha256,
        parameters,
        algorithms: algorithms.clone(),
    })
}

const STACKS: [(&str, Stack); 2] = [("linux", Stack::Linux), ("ns3", Stack::Ns3)];

/// The version of each algorithm of somebody's own that decides for a flow or a bundle.
fn versions(flows: &[Flow], bundles: &[DeclaredBundle]) -> Vec<(String, String)> {
    let is_own = |flow: &&Flow| matches!(flow.platform, None | Some(Platform::Agent));
    let of_flows = flows.iter().filter(is_own).map(|flow| &flow.cc.kind);
    let of_bundles = bundles.iter().filter(|it| it.enabled).map(|it| &it.bundle.cc.kind);
    of_flows.chain(of_bundles).filter_map(|name| version(name)).collect()
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

    /// The trace of a link: a built-in one or the path of one.
    fn trace(&mut self, table: &Reader<'_>) -> Result<Option<Trace>, PlanError> {
        let Some(reference) = table.text("trace")? else { return Ok(None) };
        let text = self.source.trace(reference).map_err(|error| {
            table.wrong_because("trace", &format!("a readable trace ({error})"))
        })?;
        self.digest.update(&text.text);
        Trace::parse(&text.file, &text.text).map(Some).map_err(PlanError::Data)
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

/// The links that data of pairs of sites take.
#[derive(Clone, Copy)]
struct Ends<'a> {
    /// Two-way propagation delay of those that are common to all.
    rtt: Duration,
    forward: &'a Link,
    reverse: &'a Link,
    own: &'a [OwnLink],
}

impl<'a> Ends<'a> {
    /// The links of `pair`, where they are its own.
    fn own(self, pair: &str) -> Option<&'a OwnLink> {
        self.own.iter().find(|own| own.pair == pair)
    }

    /// What the data of `pair` take in this direction.
    fn of(self, pair: &str, reversed: bool) -> &'a Link {
        match (self.own(pair), reversed) {
            (None, false) => self.forward,
            (None, true) => self.reverse,
            (Some(own), false) => &own.there,
            (Some(own), true) => &own.back,
        }
    }

    /// The two-way propagation delay of `pair`.
    fn rtt(self, pair: &str) -> Duration {
        self.own(pair).map_or(self.rtt, |own| own.there.delay + own.back.delay)
    }
}

struct DeclaredBundle {
    bundle: Bundle,
    enabled: bool,
}

fn bundles(
    plan: &Reader<'_>,
    ends: Ends<'_>,
    algorithms: &Registry,
) -> Result<Vec<DeclaredBundle>, PlanError> {
    let mut bundles: Vec<DeclaredBundle> = Vec::new();
    for table in plan.tables("bundle", &schema::BUNDLE)? {
        let name = table.require("name", table.name("name")?)?;
        if name.len() > NAME_MAX {
            let allowed = format!("at most {NAME_MAX} characters");
            return Err(table.wrong_because("name", &allowed));
        }
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
        let cc = with_rate_of(cc, ends.of(&pair, reversed));
        algorithms.build(&cc, SUPPLIED).map_err(|error| table.wrong_spec("cc", &error))?;
        let qdisc = table.spec("qdisc")?.unwrap_or_else(bundle_default);
        qdisc::check(&qdisc).map_err(|error| table.wrong_spec("qdisc", &error))?;
        let (min_rate, max_rate) =
            (shaper_rate(&table, "min_rate")?, shaper_rate(&table, "max_rate")?);
        let least = min_rate.unwrap_or(DEFAULT_MIN_RATE);
        if max_rate.is_some_and(|max| max < least) {
            let allowed = format!("a rate of at least min_rate, {least}");
            return Err(table.wrong_because("max_rate", &allowed));
        }
        let enabled = table.switch("enabled")?.unwrap_or(true);
        let unseen = table.share("unseen")?.unwrap_or(0.0);
        if unseen > UNSEEN_MAX || unseen > 0.0 && reversed {
            return Err(table.wrong("unseen"));
        }
        let bundle = Bundle {
            name,
            pair,
            reversed,
            cc,
            qdisc,
            min_rate,
            max_rate,
            unseen,
            clock: table.parsed("clock")?.unwrap_or_default(),
            report_jitter: jitter(&table, "report_jitter")?,
            timestamp_jitter: jitter(&table, "timestamp_jitter")?,
        };
        bundles.push(DeclaredBundle { bundle, enabled });
    }
    Ok(bundles)
}

/// Replaces a rate that is a share of the link's by what it is there. Without a rate of the link it is left for
/// the registry to refuse.
fn with_rate_of(mut cc: Spec, link: &Link) -> Spec {
    let share = match cc.params.get("rate") {
        Some(SpecValue::Text(text)) if text.ends_with('%') => text.parse::<Ratio>().ok(),
        _ => None,
    };
    if let Some((share, rate)) = share.zip(link.nominal_rate) {
        let bits = (share.as_f64() * rate.as_bits_per_sec() as f64).round() as u64;
        let rate = Rate::from_bits_per_sec(bits).to_string();
        cc.params.insert("rate".into(), SpecValue::Text(rate));
    }
    cc
}

fn jitter(table: &Reader<'_>, key: &str) -> Result<Duration, PlanError> {
    let jitter = table.duration(key)?.unwrap_or(Duration::ZERO);
    if jitter > JITTER_MAX { Err(table.wrong(key)) } else { Ok(jitter) }
}

/// A bound of a sendbox's rate.
fn shaper_rate(table: &Reader<'_>, key: &str) -> Result<Option<Rate>, PlanError> {
    let rate = table.rate(key)?;
    if rate.is_some_and(|rate| !RATES.contains(&rate)) {
        let allowed = format!("a rate from {} to {}", RATES.start(), RATES.end());
        return Err(table.wrong_because(key, &allowed));
    }
    Ok(rate)
}

fn flows(
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

/// What a flow may have as its congestion control.
struct Known<'a> {
    algorithms: &'a Registry,
    /// The algorithm under test.
    aut: Option<FlowCc>,
}

/// The congestion control of flows.
#[derive(Clone)]
struct FlowCc {
    /// The platform, if one is named.
    platform: Option<Platform>,
    cc: Spec,
    /// Where it was written.
    at: String,
}

impl Known<'_> {
    /// The congestion control of `flow`, which may be the algorithm under test.
    fn cc_of(&self, flow: &Reader<'_>) -> Result<FlowCc, PlanError> {
        let is_aut = |node: &Node| node.value == Value::Text("aut".into());
        if flow.node("cc").is_some_and(is_aut) {
            let allowed = "an algorithm: the plan has no `aut`";
            return self.aut.clone().ok_or_else(|| flow.wrong_because("cc", allowed));
        }
        flow_cc(flow, "cc", self.algorithms)
    }
}

/// The algorithm under test, one where the plan has several arms with one each.
fn aut(plan: &Reader<'_>, algorithms: &Registry) -> Result<Option<FlowCc>, PlanError> {
    plan.has("aut").then(|| flow_cc(plan, "aut", algorithms)).transpose()
}

/// The platform, if one is named, and the algorithm under `key`. Which ones a kernel has is for the back end
/// that asks it; a name without a platform is one that is known here.
fn flow_cc(table: &Reader<'_>, key: &str, algorithms: &Registry) -> Result<FlowCc, PlanError> {
    let check = |cc: &Spec| {
        let cc = algorithms.of_single_flow(cc.clone());
        let built = algorithms.build(&cc, forebay_sim::SUPPLIED);
        built.map(drop).map_err(|error| table.wrong_spec(key, &error))
    };
    let written = table.spec(key)?.unwrap_or_else(|| Spec::named("cubic"));
    let (platform, algorithm) = match written.kind.split_once(':') {
        None => (None, written.kind.as_str()),
        Some((name, algorithm)) => {
            let platform = Platform::ALL.into_iter().find(|platform| platform.name() == name);
            (Some(platform.ok_or_else(|| table.wrong(key))?), algorithm)
        }
    };
    let mut cc: Spec = algorithm.parse().map_err(|_| table.wrong(key))?;
    // What an override sets beside the text.
    cc.params.extend(written.params);
    match platform {
        None if cc.kind == "reno" || algorithms.named(&cc.kind).is_some() => {
            let kind = if cc.kind == "reno" { "newreno".into() } else { cc.kind.clone() };
            check(&Spec { kind, params: cc.params.clone() })?;
        }
        None if !LINUX_ONLY.contains(&cc.kind.as_str()) => {
            let names = algorithms.algorithms().iter().map(|algorithm| algorithm.name);
            let names: Vec<&str> = names.chain(LINUX_ONLY).collect();
            let Some(name) = nearest(&cc.kind, &names) else { return Err(table.wrong(key)) };
            return Err(table.wrong_but_near(key, name));
        }
        None | Some(Platform::Kernel) => {
            // TCP_CA_NAME_MAX of Linux, less the final zero.
            if cc.kind.len() > 15 {
                return Err(table.wrong(key));
            }
        }
        Some(Platform::Bpf) => {
            if !["reno", "newreno", "cubic"].contains(&cc.kind.as_str()) || !cc.params.is_empty() {
                let allowed = "\"bpf:reno\" or \"bpf:cubic\", as they are";
                return Err(table.wrong_because(key, allowed));
            }
        }
        Some(Platform::Agent) => {
            if cc.kind == "reno" {
                cc.kind = "newreno".into();
            }
            check(&cc)?;
        }
    }
    Ok(FlowCc { platform, cc, at: table.origin_of(key).to_string() })
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

/// What is allowed where a bundle is named.
fn known_bundles(bundles: &[DeclaredBundle]) -> String {
    if bundles.is_empty() {
        return "the name of a [[bundle]], of which there is none".into();
    }
    let names: Vec<&str> = bundles.iter().map(|known| known.bundle.name.as_str()).collect();
    format!("one of {}", names.join(", "))
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
        Some("\"video\"") => &schema::VIDEO,
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
        Some("\"video\"") => Ok(("video", Traffic::Video { flows, video: video(&table)? })),
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

fn video(table: &Reader<'_>) -> Result<Video, PlanError> {
    let segment = table.duration("segment")?.unwrap_or(Duration::from_secs(4));
    let video = Video {
        segment,
        rates: table.rates("rates")?.unwrap_or_else(|| LADDER.to_vec()),
        buffer: table.duration("buffer")?.unwrap_or(Duration::from_secs(30)),
        startup: table.duration("startup")?.unwrap_or(segment),
    };
    match video.check() {
        Ok(()) => Ok(video),
        Err(error) => Err(table.wrong_because(&error.key, &error.allowed)),
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
