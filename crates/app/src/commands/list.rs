//! `forebay list`.

use std::fmt::{self, Write as _};
use std::process::ExitCode;

use forebay_core::qdisc::DISCIPLINES;
use forebay_core::spec::Parameter;
use forebay_lab::metrics::{SERIES, catalogue};
use forebay_lab::plan::Plan;
use forebay_lab::plan::library::runnable_plans;

use super::{print, refuse};

/// Arguments of `forebay list`.
#[derive(clap::Args)]
pub struct List {
    /// What to list.
    what: What,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// The plans that come with the program.
    Plans,
    /// The congestion-control algorithms, of sendboxes and of simulated flows.
    Algorithms,
    /// The queueing disciplines.
    Qdiscs,
    /// The metrics of a run.
    Metrics,
    /// The quantities over time.
    Series,
}

impl List {
    /// Prints the list on stdout.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let mut list = String::new();
        match self.what {
            What::Plans => plans(&mut list)?,
            What::Algorithms => {
                for algorithm in forebay_core::cc::ALGORITHMS {
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
            What::Metrics => metrics(&mut list)?,
            What::Series => {
                for entry in SERIES {
                    let of = entry.of.replace(' ', ", ");
                    let unit = if entry.unit.is_empty() { "" } else { " in " };
                    writeln!(
                        list,
                        "{}{unit}{}\n    {}\n    of: {of}",
                        entry.name, entry.unit, entry.summary
                    )?;
                }
            }
        }
        print(&list)?;
        Ok(ExitCode::SUCCESS)
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

fn metrics(list: &mut String) -> fmt::Result {
    writeln!(list, "{{q}} is p25, p50, p75, p95 or p99; {{class}} is small, medium or large.")?;
    writeln!(list, "Metrics of a plan's own windows are called window.metric.\n")?;
    for entry in catalogue() {
        let unit = if entry.unit.is_empty() { "" } else { " in " };
        writeln!(
            list,
            "{}{unit}{}\n    {}\n    of: {}; over seeds: {}",
            entry.name,
            entry.unit,
            entry.summary,
            entry.of.replace(' ', ", "),
            entry.pooling.as_str()
        )?;
    }
    Ok(())
}
