//! `forebay plan`: plans of experiments, which are the laboratory's. `forebay plan FILE` of a box's configuration is the
//! old spelling of `forebay apply --dry-run FILE`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::apply::preview;
use super::foreign_rust::{With, in_sets};

/// Check a plan of experiments, or print the keys of plans.
///
/// Needs the package forebay-experiments. To preview a box's configuration, run `forebay apply
/// --dry-run FILE`.
///
/// Exit code 2: the plan is wrong.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay plan check bundler/main\n  \
    forebay plan schema")]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
#[command(override_usage = "forebay plan <COMMAND>")]
pub struct Plan {
    /// The configuration file of a sendbox or receivebox: the old spelling of `forebay apply
    /// --dry-run FILE`.
    #[arg(hide = true)]
    file: Option<PathBuf>,
    /// As `--json` of `forebay apply --dry-run`.
    #[arg(long, hide = true)]
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

    /// Previews the configuration of a box, and names the new spelling.
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let Some(file) = self.file else {
            let allowed = "COMMAND is missing: allowed is `check` or `schema`";
            return Err(super::BadInput(allowed.into()).into());
        };
        let shown = file.display();
        eprintln!(
            "note: `forebay plan FILE` is now `forebay apply --dry-run {shown}`; for a plan of \
             experiments, run `forebay plan check {shown}`"
        );
        preview(&file, self.json)
    }
}
