//! `forebay plan`: what a configuration would change on this machine; and plans of experiments.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use forebay_lab::algorithms;
use forebay_lab::plan::experiment::{Flow, Platform};
use forebay_lab::plan::{Plan as LabPlan, schema};

use super::own::{With, in_sets};
use super::run::{note_replacements, parse_sets};
use super::{print, refuse};

/// Arguments of `forebay plan`.
///
/// `forebay plan FILE` compares the configuration FILE of a sendbox or receivebox with what is there: the box that
/// runs, if one does, and else devices, programs, qdiscs, filters, addresses, sockets and files. It says what
/// becomes of traffic meanwhile, what would keep the box from starting, and what it could not see, as when it
/// is not root. Nothing is changed. Exit code 1: the box would not start.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Plan {
    /// The configuration file of a sendbox or receivebox.
    file: Option<PathBuf>,
    /// Print one JSON document for each box of FILE, a line each, and nothing else, on stdout.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Check a plan of experiments: every arm and cell is resolved, nothing is run.
    Check {
        /// The path of a plan, or its name.
        file: String,
        /// Override a value of the plan.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        sets: Vec<String>,
        #[command(flatten)]
        with: With,
    },
    /// Show every key that a plan of experiments may have.
    Schema,
}

impl Plan {
    /// The arguments that may name algorithms.
    pub fn mentions(&mut self) -> Vec<&mut String> {
        match &mut self.action {
            Some(Action::Check { sets, with, .. }) => {
                in_sets(sets).chain(with.mentions()).collect()
            }
            Some(Action::Schema) | None => Vec::new(),
        }
    }

    /// Prints on stdout; exit code 2 if the file or plan is wrong.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let action = match (self.action, self.file) {
            (Some(action), _) => action,
            (None, Some(file)) => return of_box(&file, self.json),
            (None, None) => {
                let allowed =
                    "FILE is missing: allowed is the configuration of a box, `check` or `schema`";
                return Err(super::BadInput(allowed.into()).into());
            }
        };
        match action {
            Action::Check { file, sets, with: _ } => {
                let sets = parse_sets(&sets).map_err(refuse)?;
                let plan = LabPlan::load(&file, &sets).map_err(refuse)?;
                let seeds = plan.seeds.iter().count();
                let (name, arms, cells) = (&plan.name, plan.arms.len(), plan.cells.len());
                let runs = arms * cells * seeds;
                let mut text =
                    format!("{name}: {arms} arms, {cells} cells, {seeds} seeds: {runs} runs\n");
                writeln!(text, "{}", plan.setup().map_err(refuse)?)?;
                for arm in &plan.arms {
                    let experiment =
                        plan.experiment(arm, &plan.cells[0], plan.seeds.first).map_err(refuse)?;
                    writeln!(text, "\n{} ({})", arm.name, arm.summary)?;
                    writeln!(text, "    bottleneck: {}", experiment.forward.qdisc)?;
                    for bundle in &experiment.bundles {
                        let (name, cc, qdisc) = (&bundle.name, &bundle.cc, &bundle.qdisc);
                        writeln!(text, "    bundle {name}: {cc}, {qdisc}")?;
                    }
                }
                print(&text)?;
                note_replacements(&plan);
                warn_of_names(&plan)?;
            }
            Action::Schema => drop(print(&schema::listing())?),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What the configuration of a box would change on this machine.
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

/// Says on stderr which congestion controls the kernel here has not loaded: they are no mistake on the
/// machine that has them.
fn warn_of_names(plan: &LabPlan) -> anyhow::Result<()> {
    let available = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    // Another system has no such names to compare with.
    let Ok(available) = std::fs::read_to_string(available) else { return Ok(()) };
    let names: Vec<&str> = available.split_whitespace().collect();
    let mut warnings = BTreeSet::new();
    for experiment in plan.experiments() {
        let flows = experiment.map_err(refuse)?.flows;
        let unknown = flows.iter().filter(|flow| is_unknown(flow, &names));
        warnings.extend(unknown.map(|flow| {
            let (at, name, cc) = (&flow.cc_at, &flow.name, flow.cc_name());
            format!("{at}: flow.{name}.cc = {cc}: this kernel has {}", names.join(", "))
        }));
    }
    for warning in warnings {
        eprintln!("warning: {warning}; `run` refuses others that it cannot load");
    }
    Ok(())
}

/// Whether only a kernel has its congestion control, and not one with these names.
fn is_unknown(flow: &Flow, names: &[&str]) -> bool {
    let kind = if flow.cc.kind == "newreno" { "reno" } else { &flow.cc.kind };
    let is_of_kernel = match flow.platform {
        None => kind != "reno" && algorithms::known().named(kind).is_none(),
        Some(platform) => platform == Platform::Kernel,
    };
    flow.is_tcp() && is_of_kernel && !names.contains(&kind)
}
