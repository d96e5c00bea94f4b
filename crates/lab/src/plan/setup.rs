//! What is said of a plan in words that are made from its values, so that they hold with every override.

use std::collections::{BTreeMap, BTreeSet};

use super::schema::{self, Key, Section};
use super::tree::Node;
use super::{Override, Plan, PlanError};

/// The values of a run by their dotted keys, as written.
type Parameters = BTreeMap<String, String>;

/// The links, the traffic, what happens to them and for how long, in one line: the values in `runs`.
/// Where runs differ, each value that one of them has.
pub fn setup(runs: &[&Parameters]) -> String {
    let sections = [
        &schema::BOTTLENECK,
        &schema::CHANGE,
        &schema::PULSE,
        &schema::WALK,
        &schema::REVERSE,
        &schema::REVERSE_CHANGE,
        &schema::REVERSE_WALK,
        &schema::LINK,
        &schema::LINK_CHANGE,
        &schema::TOPOLOGY,
        &schema::FLOW,
        &schema::FAULT,
        &schema::UPSET,
        &schema::ATTACK,
        &schema::PLAN,
    ];
    describe(runs, &sections)
}

/// The bundles and the agent of `runs`, as [`setup`] says them; empty if there are none.
pub fn boxes(runs: &[&Parameters]) -> String {
    describe(runs, &[&schema::BUNDLE, &schema::AGENT])
}

fn describe(runs: &[&Parameters], sections: &[&Section]) -> String {
    let mut parts = Vec::new();
    for section in sections {
        for table in tables(runs, section) {
            let is_off = |run: &Parameters| {
                run.get(&format!("{table}enabled")).is_some_and(|it| it == "false")
            };
            let has =
                |run: &Parameters| run.keys().any(|key| key.starts_with(&table)) && !is_off(run);
            let having: Vec<_> = runs.iter().copied().filter(|run| has(run)).collect();
            let facts = section.keys.iter().filter_map(|key| fact(&having, &table, key));
            let facts = facts.collect::<Vec<_>>().join(", ");
            let seldom = if having.len() < runs.len() { " (not always)" } else { "" };
            match table.trim_end_matches('.') {
                _ if facts.is_empty() => {}
                "" => parts.push(facts),
                name => parts.push(format!("{name}{seldom}: {facts}")),
            }
        }
    }
    parts.join("; ")
}

/// What the keys of the tables of `section` begin with, such as `flow.web.`; numbered tables in their order.
fn tables(runs: &[&Parameters], section: &Section) -> Vec<String> {
    let Some(name) = section.heading.strip_prefix('[') else { return vec![String::new()] };
    let start = format!("{}.", name.trim_matches(['[', ']']));
    if !name.starts_with('[') {
        return vec![start];
    }
    let keys = runs.iter().flat_map(|run| run.keys());
    let elements = keys.filter_map(|key| Some(key.strip_prefix(&start)?.split_once('.')?.0));
    let elements: BTreeSet<_> = elements.map(|it| (it.parse::<usize>().ok(), it)).collect();
    elements.iter().map(|(_, element)| format!("{start}{element}.")).collect()
}

/// A key with the values that it has in `runs`, the schema's default where it is not written; `None` if none writes
/// it, but for a queue, which there is always.
fn fact(runs: &[&Parameters], table: &str, key: &Key) -> Option<String> {
    let path = format!("{table}{}", key.name);
    let written: Vec<_> = runs.iter().map(|run| value(run, &path)).collect();
    let is_told = written.iter().any(Option::is_some) || key.name == "qdisc" && !runs.is_empty();
    if !is_told || key.name == "name" || key.name == "enabled" {
        return None;
    }
    let mut values: Vec<String> = Vec::new();
    for value in written {
        let value = value.unwrap_or_else(|| key.default.trim_matches('"').to_string());
        if !values.contains(&value) {
            values.push(value);
        }
    }
    Some(format!("{} {}", key.name, listed(&values, "or")))
}

/// The value of `key`; that of a kind with parameters is `sfq(limit=1200p, perturb=10s)`.
fn value(run: &Parameters, key: &str) -> Option<String> {
    let start = format!("{key}.");
    let parameters = run.iter().filter_map(|(key, value)| Some((key.strip_prefix(&start)?, value)));
    let parameters = parameters.filter(|(key, _)| *key != "kind");
    let parameters: Vec<_> = parameters.map(|(key, value)| format!("{key}={value}")).collect();
    match (run.get(key), run.get(&format!("{key}.kind"))) {
        (None, Some(kind)) if !parameters.is_empty() => {
            Some(format!("{kind}({})", parameters.join(", ")))
        }
        (value, kind) => value.or(kind).cloned(),
    }
}

/// `a, b or c`.
fn listed<T: AsRef<str>>(texts: &[T], conjunction: &str) -> String {
    let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
    match texts.split_last() {
        Some((last, others)) if !others.is_empty() => {
            format!("{} {conjunction} {last}", others.join(", "))
        }
        _ => texts.concat(),
    }
}

impl Plan {
    /// The [`setup`] of all arms in all cells.
    pub fn setup(&self) -> Result<String, PlanError> {
        let parameters = self.experiments().map(|experiment| Ok(experiment?.parameters));
        let parameters = parameters.collect::<Result<Vec<_>, PlanError>>()?;
        Ok(setup(&parameters.iter().collect::<Vec<_>>()))
    }

    /// A clause for each of the user's overrides: what it puts in place of what, and which arms and cells keep a
    /// value of their own.
    pub fn replacements(&self) -> Vec<String> {
        let clause = |(set, old): &(Override, Option<Node>)| {
            let old = old.as_ref().map_or("its default".into(), |node| node.value.plain());
            let mut clause = format!("{} = {} in place of {old}", set.key, set.node.value.plain());
            let arms = self.arms.iter().map(|arm| (&arm.name, &arm.set)).collect();
            let cells = self.cells.iter().map(|cell| (&cell.name, &cell.set)).collect();
            for kept in [keepers("arm", arms, set), keepers("cell", cells, set)].concat() {
                clause = format!("{clause}; {kept}");
            }
            clause
        };
        self.replacements.iter().map(clause).collect()
    }
}

/// Who of `all` sets the key of `set` itself, a part of it or what it is a part of.
fn keepers(what: &str, all: Vec<(&String, &Vec<Override>)>, set: &Override) -> Vec<String> {
    let mut keepers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, sets) in &all {
        for own in sets.iter().filter(|own| own.overlaps(set)) {
            keepers.entry(&own.key).or_default().push(name);
        }
    }
    let clause = |(key, names): (&str, Vec<&str>)| match names.as_slice() {
        names if names.len() == all.len() => format!("every {what} keeps its own {key}"),
        [name] => format!("{what} {name} keeps its own {key}"),
        names => format!("{what}s {} keep their own {key}", listed(names, "and")),
    };
    keepers.into_iter().map(clause).collect()
}
