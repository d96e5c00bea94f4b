//! `forebay plan`: the changes that a configuration would make here. Plans of experiments are the
//! laboratory's.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::foreign_rust::{With, in_sets};
use super::print;

/// Preview a configuration, or check a plan of experiments.
///
/// `forebay plan FILE` compares the configuration FILE of a sendbox or receivebox with the running
/// box. If no box runs, it compares FILE with devices, programs, qdiscs, filters, addresses,
/// sockets and files. It lists the effects on traffic during the change, the reasons why the box
/// would not start, and the parts that it could not read, for example without root. Nothing
/// changes.
///
/// `check` and `schema` are for plans of experiments (package forebay-experiments).
///
/// Exit code 1: the box would not start.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay plan new.toml\n  \
    forebay plan check bundler/main\n  \
    forebay plan schema")]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Plan {
    /// The configuration file of a sendbox or receivebox.
    file: Option<PathBuf>,
    /// Print one line of JSON for each box of FILE and nothing else on stdout.
    #[arg(long)]
    json: bool,
    /// The command on plans of experiments, if this is one.
    #[command(subcommand)]
    pub action: Option<Action>,
}

/// Commands on plans of experiments.
#[derive(clap::Subcommand)]
pub enum Action {
    /// Check a plan of experiments: resolve every arm and cell, and run nothing.
    #[command(after_help = "Examples:\n  \
        forebay plan check bundler/main\n  \
        forebay plan check my-plan.toml --set stop=10s")]
    Check {
        /// Path or name of a plan.
        file: String,
        /// Override a value of the plan. May be repeated.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        sets: Vec<String>,
        /// Crates of algorithms.
        #[command(flatten)]
        with: With,
    },
    /// Print every key that a plan of experiments may have.
    #[command(after_help = "Examples:\n  \
        forebay plan schema\n  \
        forebay plan schema --json > plan.schema.json")]
    Schema {
        /// Print a JSON Schema, with which editors complete and check plans.
        #[arg(long)]
        json: bool,
    },
}

impl Plan {
    /// The arguments that may name algorithms.
    pub fn mentions(&mut self) -> Vec<&mut String> {
        match &mut self.action {
            Some(Action::Check { sets, with, .. }) => {
                in_sets(sets).chain(with.mentions()).collect()
            }
            Some(Action::Schema { .. }) | None => Vec::new(),
        }
    }

    /// The command on plans of experiments, if this is one.
    pub fn is_of_laboratory(&self) -> Option<&'static str> {
        self.action.as_ref().map(|action| match action {
            Action::Check { .. } => "plan check",
            Action::Schema { .. } => "plan schema",
        })
    }

    /// Prints on stdout; exit code 2 if the file is wrong.
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        match self.file {
            Some(file) => of_box(&file, self.json),
            None => {
                let allowed =
                    "FILE is missing: allowed is the configuration of a box, `check` or `schema`";
                Err(super::BadInput(allowed.into()).into())
            }
        }
    }
}

/// Prints the changes that the configuration of a box would make on this machine.
#[cfg(feature = "host")]
fn of_box(file: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let plans = forebay_host::daemon::plan::Plan::of(file);
    let plans = plans.map_err(|error| super::BadInput(error.to_string()))?;
    for plan in &plans {
        let text = if json { format!("{}\n", serde_json::json!(plan)) } else { plan.to_string() };
        print(&text)?;
    }
    let is_clear = plans.iter().all(|plan| plan.blockers.is_empty());
    Ok(if is_clear { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(not(feature = "host"))]
fn of_box(_file: &Path, _json: bool) -> anyhow::Result<ExitCode> {
    Err(super::needs_host("plan FILE"))
}
