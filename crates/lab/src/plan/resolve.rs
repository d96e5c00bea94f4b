//! From a plan's tree with its overrides applied to an [`Experiment`].

mod algorithm;
mod bundles;
mod copies;
mod cost;
mod flows;
mod hits;
mod links;
mod receiving;
mod topology;
mod traffic;
mod uplink;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use forebay_core::cc::Registry;
use forebay_core::traffic::SizeCdf;
use forebay_core::units::{parse_duration, stretched};
use forebay_reader::tree::{Table, flatten};
use forebay_reader::{Document, FileError, Reader};
use forebay_scenario::{Flow, Link, OwnLink, Platform, Scenario, Stack, Window, fixed_size};
use sha2::{Digest, Sha256};

use self::algorithm::{Known, aut};
use self::bundles::{DeclaredBundle, bundles};
use self::flows::{agent, flows};
use self::hits::{attack, faults, upsets};
use self::links::{Links, links};
use self::topology::topology;
use self::uplink::uplink;
use super::library::Source;
use super::paths;
use super::schema::{self, DURATION_MAX};
use crate::experiment::Experiment;
use crate::traces::{self, LinkTrace, Understood};
use crate::versions::version_of;

/// Keys that say nothing about the experiment itself.
const ABOUT_THE_PLAN: [&str; 16] = [
    "name",
    "title",
    "description",
    "extends",
    "as_published",
    "seeds",
    "arm",
    "arms",
    "baseline",
    "ideal",
    "alone",
    "cell",
    "cells",
    "curves",
    "window",
    "figure",
];
/// Largest number of round trips in a time given in round trips.
const MAX_ROUND_TRIPS: f64 = 1e6;

/// Reads an experiment; the caller sets the names of plan, arm and cell and the seed.
///
/// # Errors
///
/// All errors in the experiment.
pub fn experiment(
    mut tree: Table,
    source: &Source,
    algorithms: &Registry,
) -> Result<Experiment, FileError> {
    let unknown = paths::follow(&mut tree);
    let written = Document::new(&source.file, tree.clone(), &schema::FORMAT);
    unknown.into_iter().for_each(|problem| written.note(problem));
    // Check every key as written, before copies repeat its errors.
    written.visit();
    let all = flatten(&tree);
    copies::expand(&mut tree);
    let document = Document::new(&source.file, tree, &schema::FORMAT);
    let resolved = resolved(&document.root(), source, algorithms, all);
    document.into_problems().into_iter().for_each(|problem| written.note(problem));
    written.finish(resolved)
}

fn resolved(
    plan: &Reader<'_>,
    source: &Source,
    algorithms: &Registry,
    mut all: BTreeMap<String, String>,
) -> Option<Experiment> {
    let mut files = Files { source, digest: Sha256::new(), traces: Vec::new() };
    if plan.has("cost") {
        let scenario = cost::trial(plan)?;
        // The plan's baseline changes its results.
        let over = scenario.cost.as_ref().and_then(|cost| cost.over.clone());
        all.extend(over.map(|over| ("cost.over".to_string(), over)));
        return Some(identified(scenario, files, all, algorithms));
    }
    for key in ["bottleneck", "flow"] {
        plan.require(key, plan.has(key).then_some(()));
    }
    let rtt = links::rtt(plan).unwrap_or_default();
    let [stop, warmup, start_jitter] =
        ["stop", "warmup", "start_jitter"].map(|key| time(plan, key, rtt));
    let (warmup, start_jitter) = (warmup.unwrap_or_default(), start_jitter.unwrap_or_default());
    if stop.is_some_and(|stop| stop.is_zero()) {
        plan.wrong_because("stop", "a duration above zero");
    } else if stop.is_some_and(|stop| warmup >= stop) {
        plan.wrong_because("warmup", "a duration below the plan's stop");
    }
    // Without a stop the plan is refused in any case.
    let until = stop.unwrap_or(DURATION_MAX);
    let windows = windows(plan, until);
    let agent = agent(plan);
    let aut = aut(plan, algorithms);
    let Links { forward, paths, balance, hops, reverse, own } =
        links(plan, rtt, until, &mut files)?;
    let ends = Ends { rtt, forward: &forward, reverse: &reverse, own: &own };
    let declared = bundles(plan, ends, algorithms);
    if !hops.is_empty() && declared.iter().any(|bundle| bundle.enabled) {
        plan.table("bottleneck").iter().for_each(|table| table.wrong("hops"));
    }
    let known = Known { algorithms, aut };
    let flows = flows(plan, [warmup, until], (ends, &hops), &declared, &mut files, &known);
    let faults = faults(plan, until, &declared, &flows);
    let upsets = upsets(plan, until, &declared);
    let attack = attack(plan, until, &declared);
    // Comparisons of flows and bundles need the full lists.
    let is_whole = flows.len() == plan.elements("flow").len()
        && declared.len() == plan.elements("bundle").len();
    if !is_whole {
        return None;
    }
    let uplink = uplink(plan, &declared);
    if flows.iter().any(|flow| flow.start + start_jitter >= flow.stop) {
        plan.wrong_because("start_jitter", "a time after which every flow still runs");
    }
    let topology = topology(plan, &declared, &flows);
    let pairs = pairs(plan, &declared, &flows);
    all.extend(versions(plan, &flows, &declared)?);
    let scenario = Scenario {
        seed: 0,
        stop: stop?,
        warmup,
        stack: plan.choice("stack", &STACKS).unwrap_or(Stack::Linux),
        ecn: plan.choice("ecn", &[("off", false), ("classic", true)]).unwrap_or(false),
        start_jitter,
        drain: plan.duration("drain").unwrap_or(Duration::from_secs(30)),
        rtt,
        forward,
        paths,
        balance,
        hops,
        reverse,
        own_links: own,
        pairs,
        routed: declared.iter().any(|bundle| bundle.is_routed),
        // The bundles of a topology are as many as its sites need.
        bundles: declared
            .into_iter()
            .filter(|it| it.enabled && topology.is_none())
            .map(|it| it.bundle)
            .collect(),
        topology,
        uplink,
        flows,
        windows,
        faults,
        upsets,
        attack,
        agent,
        cost: None,
        schedules: BTreeMap::new(),
    };
    Some(identified(scenario, files, all, algorithms))
}

/// The experiment of `scenario`, whose keys and values are `all`.
fn identified(
    scenario: Scenario,
    mut files: Files<'_>,
    all: BTreeMap<String, String>,
    algorithms: &Registry,
) -> Experiment {
    let traces = std::mem::take(&mut files.traces);
    // Windows do not change a run, but they change its results.
    let sha256 = files.finish(all.iter().filter(|(key, _)| {
        let part = first_part(key);
        part == "window" || !ABOUT_THE_PLAN.contains(&part)
    }));
    let mut parameters = all;
    parameters.retain(|key, _| !ABOUT_THE_PLAN.contains(&first_part(key)));
    Experiment {
        plan: String::new(),
        arm: String::new(),
        cell: String::new(),
        scenario,
        traces,
        sha256,
        parameters,
        algorithms: algorithms.clone(),
    }
}

/// The pairs of sites of bundles and flows, in this order; refuses a link of another pair.
fn pairs(plan: &Reader<'_>, declared: &[DeclaredBundle], flows: &[Flow]) -> Vec<String> {
    let mut pairs: Vec<String> = Vec::new();
    let named = declared.iter().map(|bundle| &bundle.bundle.pair);
    for pair in named.chain(flows.iter().map(|flow| &flow.pair)) {
        if !pairs.contains(pair) {
            pairs.push(pair.clone());
        }
    }
    for table in plan.tables("link") {
        if table.name("name").is_some_and(|pair| !pairs.contains(&pair)) {
            table.wrong_because("name", "a pair of sites that has a flow or a bundle");
        }
    }
    pairs
}

/// A duration in a unit of time, in round trips of `rtt` (`100rtt`), or the longest of several
/// (`max(60s, 100rtt)`).
fn time(table: &Reader<'_>, key: &str, rtt: Duration) -> Option<Duration> {
    let text = table.text(key)?;
    let one = |text: &str| match text.trim().strip_suffix("rtt") {
        None => parse_duration(text.trim()).ok(),
        Some(number) => {
            let number = number.trim().parse::<f64>().ok();
            let number = number.filter(|number| (0.0..=MAX_ROUND_TRIPS).contains(number));
            number.map(|number| stretched(rtt, number))
        }
    };
    let longest = match text.strip_prefix("max(").and_then(|text| text.strip_suffix(')')) {
        None => one(text),
        Some(all) => {
            all.split(',').map(one).reduce(|longest, next| Some(longest?.max(next?))).flatten()
        }
    };
    longest.filter(|time| *time <= DURATION_MAX).or_else(|| table.refused(key))
}

/// Values of the key `stack`.
const STACKS: [(&str, Stack); 2] = [("linux", Stack::Linux), ("ns3", Stack::Ns3)];

/// The version of each user-supplied algorithm and of each policy that decides for a flow or a bundle.
fn versions(
    plan: &Reader<'_>,
    flows: &[Flow],
    bundles: &[DeclaredBundle],
) -> Option<Vec<(String, String)>> {
    let is_own = |flow: &&Flow| matches!(flow.platform, None | Some(Platform::Agent));
    let of_flows = flows.iter().filter(is_own).map(|flow| &flow.cc);
    let of_bundles = bundles.iter().filter(|it| it.enabled).map(|it| &it.bundle.cc);
    let versions = of_flows.chain(of_bundles).filter_map(|cc| version_of(cc).transpose());
    let versions: Result<_, _> = versions.collect();
    versions.map_err(|error| plan.wrong_spec("cc", &error)).ok()
}

fn first_part(key: &str) -> &str {
    key.split('.').next().unwrap_or_default()
}

/// The files that a plan names; their contents are part of an experiment's identity.
struct Files<'a> {
    source: &'a Source,
    digest: Sha256,
    /// How its traces were understood.
    traces: Vec<Understood>,
}

impl Files<'_> {
    fn finish<'p>(mut self, parameters: impl Iterator<Item = (&'p String, &'p String)>) -> String {
        for (key, value) in parameters {
            // Lengths distinguish `a = "b"` from `ab = ""`.
            self.digest.update(format!("{}:{key}{}:{value}", key.len(), value.len()));
        }
        let mut hex = String::new();
        for byte in self.digest.finalize() {
            let _ = write!(hex, "{byte:02x}");
        }
        hex
    }

    /// The trace of a link: a built-in one or one at a path.
    fn trace(&mut self, table: &Reader<'_>) -> Option<LinkTrace> {
        let reference = table.text("trace")?;
        let text = self.source.trace(reference).map_err(|error| {
            table.wrong_because("trace", format!("a readable trace ({error})"));
        });
        let text = text.ok()?;
        self.digest.update(&text.text);
        let read = traces::read(&text.file, &text.text);
        let (trace, understood) = read.map_err(|error| table.document().note(error)).ok()?;
        self.traces.push(understood);
        Some(trace)
    }

    /// The sizes of a requests table: one size, a built-in CDF or a CDF at a path.
    fn sizes(&mut self, table: &Reader<'_>) -> Option<SizeCdf> {
        let reference = table.text("sizes")?;
        if let Ok(size) = reference.parse() {
            return fixed_size(size).or_else(|| table.refused("sizes"));
        }
        let text = self.source.sizes(reference).map_err(|error| {
            table.wrong_because("sizes", format!("a size or a size CDF ({error})"));
        });
        let text = text.ok()?;
        self.digest.update(&text.text);
        let sizes = SizeCdf::parse(&text.file, &text.text);
        sizes.map_err(|error| table.document().note(error)).ok()
    }
}

/// The links for the data of pairs of sites.
#[derive(Clone, Copy)]
struct Ends<'a> {
    /// Two-way propagation delay of the links that all pairs share.
    rtt: Duration,
    forward: &'a Link,
    reverse: &'a Link,
    own: &'a [OwnLink],
}

impl<'a> Ends<'a> {
    /// The own links of `pair`, if it has any.
    fn own(self, pair: &str) -> Option<&'a OwnLink> {
        self.own.iter().find(|own| own.pair == pair)
    }

    /// The link for the data of `pair` in this direction.
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

fn windows(plan: &Reader<'_>, stop: Duration) -> Vec<Window> {
    let mut windows: Vec<Window> = Vec::new();
    for table in plan.tables("window") {
        let (name, from) = (table.name("name"), table.duration("from"));
        let to = table.duration("to").unwrap_or(stop);
        if from.is_some_and(|from| from >= to) || to > stop {
            let key = if table.has("to") { "to" } else { "from" };
            table.wrong_because(key, "from < to <= the plan's stop");
        }
        if windows.iter().any(|window| Some(&window.name) == name.as_ref()) {
            table.repeated("window");
        }
        windows.extend(name.zip(from).map(|(name, from)| Window { name, from, to }));
    }
    windows
}
