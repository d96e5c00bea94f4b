//! `forebay run`.

use std::path::PathBuf;
use std::process::ExitCode;

use forebay_lab::plan::{Override, Plan, PlanError, Seeds};
use forebay_lab::store::{Build, Run as StoredRun};
use forebay_lab::summary::ArmSummary;
use forebay_lab::{Options, Results, backend, output, progress};
use serde_json::json;

use super::engine::{Engine, Work};
use super::refuse;
use forebay::commands::foreign_rust::{self, With, in_sets};
use forebay::commands::interrupt::{command_line, resume_after_interrupt};
use forebay::commands::python::Python;
use forebay::{BadInput, print};

/// Commit and source digests from which this program was built.
pub const BUILD: Build = Build {
    commit: env!("FOREBAY_COMMIT"),
    sim: env!("FOREBAY_SOURCES_SIM"),
    emu: env!("FOREBAY_SOURCES_EMU"),
    ns3: env!("FOREBAY_SOURCES_NS3"),
};

/// Run plans, and write results and a report.
///
/// Makes the runs of a plan (arms, cells and seeds) that the store lacks. Writes the results into a
/// SQLite file and an HTML report.
///
/// Exit code 1: a run was not valid, a box ended during a run, or the back end cannot run here, for
/// example without root; 2: a plan or an option is wrong; 130: you pressed Ctrl-C. The same command
/// then continues.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay run bundler/main --seeds 1..3                # real kernel TCP; needs root\n  \
    forebay run bundler/main --seeds 1..3 --backend sim  # simulated\n  \
    forebay run ccperf/deep_buffers --backend sim --set 'aut=[\"cubic\", \"bbr\"]'")]
pub struct Run {
    /// Plans: paths of files, or names from `forebay list plans`.
    #[arg(required = true, value_name = "PLAN")]
    plans: Vec<String>,
    /// Back end that runs it: sim, the packet simulator, emu, real kernels over an emulated link, or ns3, that
    /// simulator where libns3-dev is installed.
    #[arg(long, default_value = backend::DEFAULT, value_name = "NAME")]
    backend: String,
    /// Use one seed instead of the plan's seeds.
    #[arg(long, conflicts_with = "seeds", value_name = "N")]
    seed: Option<Seeds>,
    /// Use these seeds instead of the plan's, both ends included.
    #[arg(long, value_name = "A..B")]
    seeds: Option<Seeds>,
    /// Run only these arms, in this order.
    #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
    arms: Vec<String>,
    /// Override a value of the plan, such as bottleneck.rate=48Mbit/s or bundle.a.cc=setpoint. May
    /// be repeated. Values that an arm or a cell sets itself stay.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    #[command(flatten)]
    with: With,
    #[command(flatten)]
    python: Python,
    /// Use the settings of the experiment's authors, instead of the plan's own.
    #[arg(long)]
    as_published: bool,
    /// Runs at a time [default: 1; with ray, one for each processor of the cluster]. With sim, runs
    /// of plans with [topology] also use the cores of missing runs: `--jobs 8` makes a single run on
    /// eight. With emu, only 1 is allowed, because an emulation needs the whole machine.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "N")]
    jobs: Option<u16>,
    /// Where to simulate: threads (of this program), ray (the cluster of this machine, or a new one
    /// on this machine) or ray://HOST:PORT (another cluster). Ray needs python3 with the package
    /// forebay[ray].
    #[arg(long, default_value = "threads", value_name = "NAME")]
    engine: Engine,
    /// Folder for results [default: out/PLAN].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON document and nothing else on stdout.
    #[arg(long)]
    json: bool,
    /// Make runs again that the store has already. Earlier results stay; the newest valid run
    /// counts.
    #[arg(long)]
    force: bool,
    /// Print no progress on stderr; only warnings, problems of runs, and errors.
    #[arg(short, long)]
    quiet: bool,
    /// Keep packet logs of the emulator and of ns-3, and traces of the boxes, in this folder.
    #[arg(long, value_name = "DIR")]
    keep_logs: Option<PathBuf>,
}

impl Run {
    /// The arguments that may name algorithms.
    pub fn mentions(&mut self) -> Vec<&mut String> {
        in_sets(&mut self.sets).chain(self.with.mentions()).collect()
    }

    /// Runs the plans; exit code 1 if a run was not valid, or ended with a box.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        self.python.know_in_plans()?;
        let plans = self.plans().map_err(refuse)?;
        if backend::lacks_root(&self.backend) {
            return Err(without_root(&["--keep-logs"]));
        }
        plans.iter().for_each(note_replacements);
        plans.iter().for_each(warn_of_references);
        resume_after_interrupt()?;
        if let Engine::Ray(address) = &self.engine {
            self.give_to(address, &plans)?;
        }
        let options = Options {
            backend: self.backend,
            out: self.out,
            seeds: self.seeds.or(self.seed),
            jobs: self.jobs.unwrap_or(1).into(),
            force: self.force,
            keep_logs: self.keep_logs,
            build: BUILD,
            ..Options::default()
        };
        let mut all: Vec<Results> = Vec::new();
        for plan in &plans {
            let mut shown = match self.quiet {
                true => progress::problems_on_stderr(),
                false => progress::on_stderr(),
            };
            let results = forebay_lab::run(plan, &options, &mut *shown);
            let results = results.map_err(refuse)?;
            if !self.json {
                let report = results.report.display();
                print(&format!("{}report: {report}\n", output::text(&results.summaries)))?;
            }
            all.push(results);
        }
        if self.json {
            let runs: Vec<&StoredRun> = all.iter().flat_map(|it| &it.runs).collect();
            let summary: Vec<&ArmSummary> = all.iter().flat_map(|it| &it.summaries).collect();
            print(&format!("{:#}\n", json!({ "runs": runs, "summary": summary })))?;
        }
        let is_valid = all.iter().all(|it| it.valid);
        Ok(if is_valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Has the cluster at `address` make the runs, and stores them as if this program had made them.
    fn give_to(&self, address: &str, plans: &[Plan]) -> anyhow::Result<()> {
        let is_refused = self.force || self.keep_logs.is_some() || self.python.is_given();
        if self.backend != "sim" || is_refused {
            let allowed = "allowed is --backend sim, without --force, --keep-logs and --cc-python";
            return Err(BadInput(format!("--engine {address}: {allowed}")).into());
        }
        for (reference, plan) in self.plans.iter().zip(plans) {
            let out = self.out.clone().unwrap_or_else(|| PathBuf::from("out").join(&plan.name));
            let seeds = self.seeds.or(self.seed);
            let Self { arms, sets, as_published, jobs, .. } = self;
            let (as_published, jobs) = (*as_published, *jobs);
            let out = &out;
            let work = Work { plan: reference, arms, sets, as_published, seeds, jobs, out };
            work.give_to(address, BUILD.sim)?;
        }
        Ok(())
    }

    fn plans(&self) -> Result<Vec<Plan>, PlanError> {
        let sets = parse_sets(&self.sets)?;
        let load = |reference: &String| {
            let mut plan = match self.as_published {
                true => Plan::load_as_published(reference, &sets)?,
                false => Plan::load(reference, &sets)?,
            };
            if !self.arms.is_empty() {
                plan.select_arms(&self.arms)?;
            }
            plan.repeat_with(&(foreign_rust::arguments() + &self.python.arguments()));
            Ok(plan)
        };
        self.plans.iter().map(load).collect()
    }
}

/// Why nothing was run, and the same command for the simulator, which has no options `without`.
pub fn without_root(without: &[&str]) -> anyhow::Error {
    let line = command_line(&[&["--backend"], without].concat());
    anyhow::anyhow!(
        "--backend {} needs root for network namespaces: run it with sudo, or simulate:\n  \
         {line} --backend {}",
        backend::NAMES[1],
        backend::SIMULATOR
    )
}

/// Reads the values of `--set`.
pub fn parse_sets(sets: &[String]) -> Result<Vec<Override>, PlanError> {
    sets.iter().map(|set| Override::parse(set)).collect()
}

/// Warns on stderr of reference arms that the plan has but does not name.
pub fn warn_of_references(plan: &Plan) {
    for warning in plan.warnings() {
        eprintln!("warning: {}: {warning}", plan.name);
    }
}

/// Prints on stderr the values that `--set` replaces, and where it does not.
pub fn note_replacements(plan: &Plan) {
    for clause in plan.replacements() {
        eprintln!("note: {}: {clause}", plan.name);
    }
}
