//! Describes a plan in words. They are made from its values, so they are true with every override.

use std::collections::{BTreeMap, BTreeSet};

use forebay_reader::schema::{Heading, Key};
use forebay_reader::tree::Node;

use super::{Override, Plan, schema};

/// The values of a run by their dotted keys, as written.
type Parameters = BTreeMap<String, String>;

/// Tables that [`setup`] describes, by their dotted keys.
const SETUP: [&str; 15] = [
    "bottleneck",
    "bottleneck.change",
    "bottleneck.pulse",
    "bottleneck.walk",
    "reverse",
    "reverse.change",
    "reverse.walk",
    "link",
    "link.change",
    "topology",
    "flow",
    "fault",
    "upset",
    "attack",
    "cost",
];

/// The links, the traffic, the events and the duration in one line, from the values in `runs`. Where runs
/// differ, all values are listed.
pub fn setup(runs: &[&Parameters]) -> String {
    describe(runs, SETUP.iter().chain([&""]))
}

/// The bundles and the agent of `runs`, in the words of [`setup`]; empty if there are none.
pub fn boxes(runs: &[&Parameters]) -> String {
    describe(runs, &["bundle", "agent"])
}

fn describe<'a>(runs: &[&Parameters], paths: impl IntoIterator<Item = &'a &'a str>) -> String {
    let mut parts = Vec::new();
    let headings = schema::headings();
    let heading = |path: &&str| headings.iter().find(|heading| heading.path == *path);
    for heading in paths.into_iter().filter_map(heading) {
        for table in tables(runs, heading) {
            let is_off = |run: &Parameters| {
                run.get(&format!("{table}enabled")).is_some_and(|it| it == "false")
            };
            let has =
                |run: &Parameters| run.keys().any(|key| key.starts_with(&table)) && !is_off(run);
            let having: Vec<_> = runs.iter().copied().filter(|run| has(run)).collect();
            let facts = heading.section.keys.iter().filter_map(|key| fact(&having, &table, key));
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

/// Prefixes of the keys of the tables under `heading`, such as `flow.web.`; numbered tables in order.
fn tables(runs: &[&Parameters], heading: &Heading) -> Vec<String> {
    if heading.path.is_empty() {
        return vec![String::new()];
    }
    let start = format!("{}.", heading.path);
    if !heading.is_list {
        return vec![start];
    }
    let keys = runs.iter().flat_map(|run| run.keys());
    let elements = keys.filter_map(|key| Some(key.strip_prefix(&start)?.split_once('.')?.0));
    let elements: BTreeSet<_> = elements.map(|it| (it.parse::<usize>().ok(), it)).collect();
    elements.iter().map(|(_, element)| format!("{start}{element}.")).collect()
}

/// A key with its values in `runs`; the schema's default if a run does not write it. `None` if no run writes
/// it, except for a queue, because every link has one.
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

/// The value of `key`; a kind with parameters becomes `sfq(limit=1200p, perturb=10s)`.
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

/// Joins texts: `a, b or c`.
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
    pub fn setup(&self) -> String {
        let runs =
            self.arms.iter().flat_map(|arm| self.cells.iter().map(move |cell| arm.run(cell)));
        setup(&runs.map(|run| &run.parameters).collect::<Vec<_>>())
    }

    /// A clause for each of the user's overrides: the new and the old value, and the arms and cells that keep
    /// their own.
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

/// The arms or cells in `all` that set the key of `set` themselves, a part of it, or a table around it.
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
