//! The laboratory's part of `forebay plan`: checks plans of experiments, and shows their keys.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;

use forebay::commands::plan::Action;
use forebay::print;
use forebay_lab::plan::{Plan, schema};
use forebay_policy::algorithms;
use forebay_scenario::{Flow, Platform};

use super::refuse;
use super::run::{note_replacements, parse_sets, warn_of_references};

/// Prints on stdout; exit code 2 if the plan is wrong.
pub fn execute(action: &Action) -> anyhow::Result<ExitCode> {
    match action {
        Action::Check { file, sets, with: _ } => check(file, sets)?,
        Action::Schema { json } => {
            let listing = if *json {
                format!("{:#}\n", schema::PLAN.json_schema())
            } else {
                schema::listing()
            };
            print(&listing)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Resolves every arm and cell of a plan, and prints them.
fn check(file: &str, sets: &[String]) -> anyhow::Result<()> {
    let sets = parse_sets(sets).map_err(refuse)?;
    let plan = Plan::load(file, &sets).map_err(refuse)?;
    let seeds = plan.seeds.iter().count();
    let (name, arms, cells) = (&plan.name, plan.arms.len(), plan.cells.len());
    let runs = arms * cells * seeds;
    let mut text = format!("{name}: {arms} arms, {cells} cells, {seeds} seeds: {runs} runs\n");
    writeln!(text, "{}", plan.setup())?;
    for arm in &plan.arms {
        let experiment = plan.experiment(arm, &plan.cells[0], plan.seeds.first).map_err(refuse)?;
        writeln!(text, "\n{} ({})", arm.name, arm.summary)?;
        writeln!(text, "    bottleneck: {}", experiment.forward.qdisc)?;
        for bundle in &experiment.bundles {
            let (name, cc, qdisc) = (&bundle.name, &bundle.cc, &bundle.qdisc);
            writeln!(text, "    bundle {name}: {cc}, {qdisc}")?;
        }
    }
    for read in plan.traces() {
        writeln!(text, "\ntrace {read}")?;
    }
    print(&text)?;
    note_replacements(&plan);
    warn_of_references(&plan);
    warn_of_names(&plan)
}

/// Warns on stderr of congestion controls that the kernel here has not loaded. They may be right on
/// the machine that runs the plan.
fn warn_of_names(plan: &Plan) -> anyhow::Result<()> {
    let available = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    // Other systems have no such list.
    let Ok(available) = std::fs::read_to_string(available) else { return Ok(()) };
    let names: Vec<&str> = available.split_whitespace().collect();
    let mut warnings = BTreeSet::new();
    for experiment in plan.experiments() {
        let flows = experiment.map_err(refuse)?.scenario.flows;
        let unknown = flows.iter().filter(|flow| is_unknown(flow, &names));
        warnings.extend(unknown.map(|flow| {
            let (at, name, cc) = (&flow.cc_at, &flow.name, flow.cc_name());
            format!("{at}: flow.{name}.cc = {cc}: this kernel has {}", names.join(", "))
        }));
    }
    for warning in warnings {
        eprintln!("warning: {warning}; `forebay run` refuses names that the kernel cannot load");
    }
    Ok(())
}

/// Whether the flow's congestion control exists only in a kernel, and not among these names.
fn is_unknown(flow: &Flow, names: &[&str]) -> bool {
    let kind = if flow.cc.kind == "newreno" { "reno" } else { &flow.cc.kind };
    let is_of_kernel = match flow.platform {
        None => kind != "reno" && algorithms::known().named(kind).is_none(),
        Some(platform) => platform == Platform::Kernel,
    };
    flow.is_tcp() && is_of_kernel && !names.contains(&kind)
}
