//! The laboratory's part of `forebay list`: plans, paths, metrics and quantities.

use std::fmt::{self, Write as _};
use std::process::ExitCode;

use forebay::commands::list::{List, What};
use forebay::{BadInput, print};
use forebay_core::spec::nearest_words;
use forebay_lab::metrics::{Entry, HOLES, NOTATION, SERIES, catalogue};
use forebay_lab::plan::Plan;
use forebay_lab::plan::library::{runnable_plans, title};
use forebay_lab::plan::paths::{PATHS, Path};
use serde_json::{Value, json};

use super::refuse;

/// Prints the list on stdout.
pub fn execute(list: &List) -> anyhow::Result<ExitCode> {
    list.check_pattern()?;
    let pattern = list.pattern.as_deref();
    if list.json {
        print(&format!("{:#}\n", as_json(list.what, pattern)?))?;
    } else {
        print(&as_text(list.what, pattern)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_text(what: What, pattern: Option<&str>) -> anyhow::Result<String> {
    let mut list = String::new();
    match what {
        What::Plans => {
            let plans = plans(pattern)?;
            let width = plans.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
            for (name, title) in plans {
                writeln!(list, "{name:width$}  {title}")?;
            }
        }
        What::Paths => {
            for path in &*PATHS {
                let values = path.values().map(|(key, value)| format!("{key} {value}"));
                let values = values.collect::<Vec<_>>().join(", ");
                let (name, summary, source) = (&path.name, &path.summary, &path.source);
                writeln!(list, "{name}\n    {summary}\n    {values}\n    source: {source}")?;
            }
        }
        What::Metrics => metrics(&mut list)?,
        What::Series => {
            writeln!(list, "{NOTATION}\n")?;
            for entry in SERIES {
                writeln!(list, "{}    of: {}", definition(entry), entry.of.replace(' ', ", "))?;
            }
        }
        What::Algorithms | What::Qdiscs | What::Receivers => {}
    }
    Ok(list)
}

fn as_json(what: What, pattern: Option<&str>) -> anyhow::Result<Value> {
    Ok(match what {
        What::Plans => {
            let plan = |(name, _): &(&str, String)| -> anyhow::Result<Value> {
                let plan = Plan::load(name, &[]).map_err(refuse)?;
                let arms: Vec<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
                let cells: Vec<&str> = plan.cells.iter().map(|it| it.name.as_str()).collect();
                let setup = plan.setup();
                Ok(json!({ "name": name, "title": plan.title, "setup": setup,
                           "seeds": plan.seeds.to_string(), "arms": arms, "cells": cells }))
            };
            plans(pattern)?.iter().map(plan).collect::<anyhow::Result<Vec<_>>>()?.into()
        }
        What::Paths => {
            let path = |path: &Path| {
                let values: serde_json::Map<String, Value> =
                    path.values().map(|(key, value)| (key.into(), value.into())).collect();
                json!({ "name": path.name, "summary": path.summary, "source": path.source,
                        "bottleneck": values })
            };
            PATHS.iter().map(path).collect()
        }
        What::Metrics => json!(catalogue().collect::<Vec<_>>()),
        What::Series => json!(SERIES),
        What::Algorithms | What::Qdiscs | What::Receivers => Value::Null,
    })
}

/// Names and titles of the plans with `pattern` in either, in upper or lower case. Without a pattern, all plans.
fn plans(pattern: Option<&str>) -> anyhow::Result<Vec<(&'static str, String)>> {
    let wanted = pattern.unwrap_or_default().to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&wanted);
    let titled = |name| (name, title(name).unwrap_or_default());
    let all = runnable_plans().map(titled);
    let plans: Vec<(&str, String)> = all.filter(|(name, title)| has(name) || has(title)).collect();
    if plans.is_empty() {
        let names: Vec<&str> = runnable_plans().collect();
        let near = nearest_words(&wanted, &names);
        let text =
            format!("PATTERN {wanted}: allowed is a part of the name or title of a plan{near}");
        return Err(BadInput(text).into());
    }
    Ok(plans)
}

/// Name, unit, definition, formula and source, the first two in one line, the rest in a line each.
fn definition(entry: &Entry) -> String {
    let Entry { name, unit, summary, formula, source, .. } = entry;
    let unit = if unit.is_empty() { String::new() } else { format!(" in {unit}") };
    format!("{name}{unit}\n    {summary}\n    = {formula}\n    source: {source}\n")
}

fn metrics(list: &mut String) -> fmt::Result {
    for (hole, words) in HOLES {
        writeln!(list, "{hole} is one of {}.", words.join(", "))?;
    }
    writeln!(list, "Metrics of a plan's own windows are called window.metric.\n{NOTATION}\n")?;
    for entry in catalogue() {
        let (of, pooling) = (entry.of.replace(' ', ", "), entry.pooling.as_str());
        writeln!(list, "{}    of: {of}; over seeds: {pooling}", definition(entry))?;
    }
    Ok(())
}
