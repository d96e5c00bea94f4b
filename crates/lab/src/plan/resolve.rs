//! From a plan's tree, overrides applied, to an [`Experiment`].

mod algorithm;
mod bundles;
mod flows;
mod hits;
mod links;
mod receiving;
mod topology;
mod traffic;
mod uplink;

use std::fmt::Write;
use std::time::Duration;

use forebay_core::cc::Registry;
use forebay_core::link::Trace;
use forebay_core::traffic::SizeCdf;
use sha2::{Digest, Sha256};

use self::algorithm::{Known, aut};
use self::bundles::{DeclaredBundle, bundles};
use self::flows::{agent, flows};
use self::hits::{attack, faults, upsets};
use self::links::{Links, links};
use self::topology::topology;
use self::uplink::uplink;
use super::copies;
use super::error::PlanError;
use super::library::Source;
use super::paths;
use super::reader::Reader;
use super::schema;
use super::tree::{Table, flatten};
use crate::algorithms::version_of;
use crate::experiment::schedule::{fixed_size, size_cdf};
use crate::experiment::{Experiment, Flow, Link, OwnLink, Platform, Stack, Window};

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
/// A box that is later than this hangs.
const JITTER_MAX: Duration = Duration::from_secs(1);

/// Reads an experiment; names of plan, arm and cell and the seed are left to the caller.
pub fn experiment(
    mut tree: Table,
    source: &Source,
    algorithms: &Registry,
) -> Result<Experiment, PlanError> {
    paths::follow(&mut tree)?;
    let mut all = flatten(&tree);
    copies::expand(&mut tree)?;
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
    let topology = topology(&plan, &declared, &flows)?;
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
    all.extend(versions(&plan, &flows, &declared)?);
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
        routed: declared.iter().any(|bundle| bundle.is_routed),
        // Those of a topology are as many as its sites need.
        bundles: declared
            .into_iter()
            .filter(|it| it.enabled && topology.is_none())
            .map(|it| it.bundle)
            .collect(),
        topology,
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

/// The version of each algorithm of somebody's own, and of each policy, that decides for a flow or a bundle.
fn versions(
    plan: &Reader<'_>,
    flows: &[Flow],
    bundles: &[DeclaredBundle],
) -> Result<Vec<(String, String)>, PlanError> {
    let is_own = |flow: &&Flow| matches!(flow.platform, None | Some(Platform::Agent));
    let of_flows = flows.iter().filter(is_own).map(|flow| &flow.cc);
    let of_bundles = bundles.iter().filter(|it| it.enabled).map(|it| &it.bundle.cc);
    let versions = of_flows.chain(of_bundles).filter_map(|cc| version_of(cc).transpose());
    versions.collect::<Result<_, _>>().map_err(|error| plan.wrong_spec("cc", &error))
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

fn jitter(table: &Reader<'_>, key: &str) -> Result<Duration, PlanError> {
    let jitter = table.duration(key)?.unwrap_or(Duration::ZERO);
    if jitter > JITTER_MAX { Err(table.wrong(key)) } else { Ok(jitter) }
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
