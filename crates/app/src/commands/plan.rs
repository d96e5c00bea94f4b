//! `forebay plan`.

use std::fmt::Write as _;
use std::process::ExitCode;

use forebay_lab::plan::{Plan as LabPlan, schema};

use super::print;
use super::run::{bad_plan, parse_sets};

/// Arguments of `forebay plan`.
#[derive(clap::Args)]
pub struct Plan {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Check a plan: every arm and cell is resolved, nothing is run.
    Check {
        /// The path of a plan, or its name.
        file: String,
        /// Override a value of the plan.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        sets: Vec<String>,
    },
    /// Show every key that a plan may have.
    Schema,
}

impl Plan {
    /// Prints on stdout; exit code 2 if the plan is wrong.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::Check { file, sets } => {
                let plan = LabPlan::load(&file, &parse_sets(&sets)?).map_err(bad_plan)?;
                let seeds = plan.seeds.iter().count();
                let (name, arms, cells) = (&plan.name, plan.arms.len(), plan.cells.len());
                let runs = arms * cells * seeds;
                let mut text =
                    format!("{name}: {arms} arms, {cells} cells, {seeds} seeds: {runs} runs\n");
                for arm in &plan.arms {
                    let experiment =
                        plan.experiment(arm, &plan.cells[0], plan.seeds.first).map_err(bad_plan)?;
                    writeln!(text, "\n{} ({})", arm.name, arm.summary)?;
                    writeln!(text, "    bottleneck: {}", experiment.forward.qdisc)?;
                    for bundle in &experiment.bundles {
                        let (name, cc, qdisc) = (&bundle.name, &bundle.cc, &bundle.qdisc);
                        writeln!(text, "    bundle {name}: {cc}, {qdisc}")?;
                    }
                }
                print(&text)?;
            }
            Action::Schema => drop(print(&schema::listing())?),
        }
        Ok(ExitCode::SUCCESS)
    }
}
