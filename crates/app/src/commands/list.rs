//! `forebay list`.

use std::process::ExitCode;

use forebay_core::qdisc::DISCIPLINES;
use forebay_core::spec::Param;
use forebay_lab::metrics::CATALOGUE;
use forebay_lab::plan::Plan;
use forebay_lab::plan::library::runnable_plans;

use super::run::bad_plan;

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
    /// The algorithms of a sendbox.
    Algorithms,
    /// The queueing disciplines.
    Qdiscs,
    /// The metrics of a run.
    Metrics,
}

impl List {
    /// Prints the list on stdout.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Plans => plans()?,
            What::Algorithms => {
                for algorithm in forebay_core::cc::ALGORITHMS {
                    kind(algorithm.name, algorithm.summary, algorithm.params, algorithm.sources);
                }
            }
            What::Qdiscs => {
                for discipline in DISCIPLINES {
                    kind(
                        discipline.name,
                        discipline.summary,
                        discipline.params,
                        discipline.sources,
                    );
                }
            }
            What::Metrics => metrics(),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn plans() -> anyhow::Result<()> {
    for name in runnable_plans() {
        let plan = Plan::load(name, &[]).map_err(bad_plan)?;
        let arms: Vec<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
        println!("{name}\n    {}\n    arms: {}", plan.title, arms.join(", "));
        if plan.cells.len() > 1 {
            println!("    cells: {}", plan.cells.len());
        }
    }
    Ok(())
}

fn kind(name: &str, summary: &str, params: &[Param], sources: &[&str]) {
    println!("{name}\n    {summary}");
    for param in params {
        let default = match param.default {
            "" => String::new(),
            default => format!(" [{default}]"),
        };
        println!("    {}{default}: {}; {}", param.name, param.summary, param.allowed);
    }
    println!("    sources: {}", sources.join("; "));
}

fn metrics() {
    println!("{{q}} is p25, p50, p75, p95 or p99; {{class}} is small, medium or large.");
    println!("Metrics of a plan's own windows are called window.metric.\n");
    for entry in CATALOGUE {
        let unit = if entry.unit.is_empty() { "" } else { " in " };
        println!(
            "{}{unit}{}\n    {}\n    of: {}; over seeds: {}",
            entry.name,
            entry.unit,
            entry.summary,
            entry.of.replace(' ', ", "),
            entry.pooling.as_str()
        );
    }
}
