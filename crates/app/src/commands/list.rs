//! `forebay list`.

use std::fmt::{self, Write as _};
use std::process::ExitCode;

use forebay_core::qdisc::DISCIPLINES;
use forebay_core::spec::Parameter;
use forebay_core::traffic::RECEIVERS;
use forebay_lab::algorithms;
use forebay_lab::metrics::{Entry, HOLES, NOTATION, SERIES, catalogue};
use forebay_lab::plan::Plan;
use forebay_lab::plan::library::runnable_plans;
use forebay_lab::plan::paths::{PATHS, Path};
use serde_json::{Value, json};

use super::own::With;
use super::{print, refuse};

/// Arguments of `forebay list`.
#[derive(clap::Args)]
pub struct List {
    /// What to list.
    what: What,
    #[command(flatten)]
    with: With,
    /// As one JSON array on stdout.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// The plans that come with the program.
    Plans,
    /// The paths that a plan can name.
    Paths,
    /// The congestion-control algorithms, of sendboxes and of simulated flows.
    Algorithms,
    /// The queueing disciplines.
    Qdiscs,
    /// The receivers of TCP, those that misbehave among them.
    Receivers,
    /// The metrics of a run.
    Metrics,
    /// The quantities over time.
    Series,
}

impl List {
    /// The arguments that may name algorithms.
    pub fn mentions(&mut self) -> Vec<&mut String> {
        self.with.mentions()
    }

    /// Prints the list on stdout.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        if self.json {
            print(&format!("{:#}\n", self.what.as_json()?))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut list = String::new();
        match self.what {
            What::Plans => plans(&mut list)?,
            What::Paths => {
                for path in &*PATHS {
                    let values = path.values().map(|(key, value)| format!("{key} {value}"));
                    let values = values.collect::<Vec<_>>().join(", ");
                    let (name, summary, source) = (&path.name, &path.summary, &path.source);
                    writeln!(list, "{name}\n    {summary}\n    {values}\n    source: {source}")?;
                }
            }
            What::Algorithms => {
                for algorithm in algorithms::known().algorithms() {
                    let (params, sources) = (algorithm.params, algorithm.sources);
                    kind(&mut list, algorithm.name, algorithm.summary, params, sources)?;
                }
            }
            What::Qdiscs => {
                for discipline in DISCIPLINES {
                    let (params, sources) = (discipline.params, discipline.sources);
                    kind(&mut list, discipline.name, discipline.summary, params, sources)?;
                }
            }
            What::Receivers => {
                for receiver in RECEIVERS {
                    let (params, sources) = (receiver.params, receiver.sources);
                    kind(&mut list, receiver.name, receiver.summary, params, sources)?;
                }
            }
            What::Metrics => metrics(&mut list)?,
            What::Series => {
                writeln!(list, "{NOTATION}\n")?;
                for entry in SERIES {
                    writeln!(list, "{}    of: {}", definition(entry), entry.of.replace(' ', ", "))?;
                }
            }
        }
        print(&list)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl What {
    fn as_json(self) -> anyhow::Result<Value> {
        Ok(match self {
            Self::Plans => {
                let plan = |name: &str| -> anyhow::Result<Value> {
                    let plan = Plan::load(name, &[]).map_err(refuse)?;
                    let arms: Vec<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
                    let cells: Vec<&str> = plan.cells.iter().map(|it| it.name.as_str()).collect();
                    let setup = plan.setup().map_err(refuse)?;
                    Ok(json!({ "name": name, "title": plan.title, "setup": setup,
                               "seeds": plan.seeds.to_string(), "arms": arms, "cells": cells }))
                };
                runnable_plans().map(plan).collect::<anyhow::Result<Vec<_>>>()?.into()
            }
            Self::Paths => {
                let path = |path: &Path| {
                    let values: serde_json::Map<String, Value> =
                        path.values().map(|(key, value)| (key.into(), value.into())).collect();
                    json!({ "name": path.name, "summary": path.summary, "source": path.source,
                            "bottleneck": values })
                };
                PATHS.iter().map(path).collect()
            }
            Self::Algorithms => {
                let kinds = algorithms::known().algorithms().iter();
                kinds.map(|it| kind_as_json(it.name, it.summary, it.params, it.sources)).collect()
            }
            Self::Qdiscs => {
                let kinds = DISCIPLINES.iter();
                kinds.map(|it| kind_as_json(it.name, it.summary, it.params, it.sources)).collect()
            }
            Self::Receivers => {
                let kinds = RECEIVERS.iter();
                kinds.map(|it| kind_as_json(it.name, it.summary, it.params, it.sources)).collect()
            }
            Self::Metrics => json!(catalogue().collect::<Vec<_>>()),
            Self::Series => json!(SERIES),
        })
    }
}

fn plans(list: &mut String) -> anyhow::Result<()> {
    for name in runnable_plans() {
        let plan = Plan::load(name, &[]).map_err(refuse)?;
        let arms: Vec<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
        writeln!(list, "{name}\n    {}\n    {}", plan.title, plan.setup().map_err(refuse)?)?;
        writeln!(list, "    seeds: {}\n    arms: {}", plan.seeds, arms.join(", "))?;
        if plan.cells.len() > 1 {
            writeln!(list, "    cells: {}", plan.cells.len())?;
        }
    }
    Ok(())
}

fn kind(
    list: &mut String,
    name: &str,
    summary: &str,
    params: &[&dyn Parameter],
    sources: &[&str],
) -> fmt::Result {
    writeln!(list, "{name}\n    {summary}")?;
    for param in params {
        let (name, summary, allowed) = (param.name(), param.summary(), param.allowed());
        let default = param.written_default().map_or(String::new(), |it| format!(" [{it}]"));
        writeln!(list, "    {name}{default}: {summary}; {allowed}")?;
    }
    writeln!(list, "    sources: {}", sources.join("; "))
}

fn kind_as_json(name: &str, summary: &str, params: &[&dyn Parameter], sources: &[&str]) -> Value {
    let param = |it: &&dyn Parameter| {
        json!({ "name": it.name(), "default": it.written_default(), "summary": it.summary(),
                "allowed": it.allowed() })
    };
    let params: Vec<Value> = params.iter().map(param).collect();
    json!({ "name": name, "summary": summary, "parameters": params, "sources": sources })
}

/// Name, unit, definition, formula and source, a line each but for the first two.
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
