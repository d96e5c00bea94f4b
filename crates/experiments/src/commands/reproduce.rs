//! `forebay reproduce`.

use std::path::PathBuf;
use std::process::ExitCode;

use forebay_lab::judge::{PlanClaims, table};
use forebay_lab::plan::Seeds;
use forebay_lab::{Options, backend, output, progress};
use forebay_studies::reproduce::{Reproduction, Study, reproduce};
use serde_json::json;

use super::run::BUILD;
use super::{jobs, refuse};
use forebay::commands::interrupt::resume_after_interrupt;
use forebay::{BadInput, print};

/// Repeat the experiments of a study, and check its claims.
///
/// Runs each experiment of a study, and compares the results with its claims. Simulates unless
/// --backend says otherwise.
///
/// Exit code 1: a claim is not met, or an experiment failed; 130: you pressed Ctrl-C. The same command
/// then continues.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay reproduce bundler --list\n  \
    forebay reproduce bundler --only main,endhost_cc\n  \
    forebay reproduce deployment --only deployment --seeds 1..2")]
pub struct Reproduce {
    /// Study to repeat: bundler (experiments on site-to-site traffic control, published and of this
    /// project), deployment (request times of sites with and without boxes as more sites deploy) or
    /// world (120 paths of many kinds with and without boxes).
    #[arg(value_name = "STUDY")]
    study: String,
    /// Run only these experiments, such as main,endhost_cc; --list prints all.
    #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
    only: Vec<String>,
    /// Back end: sim (the packet simulator) or emu (real kernels over an emulated link). Results of
    /// the other back end stay in the report.
    #[arg(long, default_value = "sim", value_name = "NAME")]
    backend: String,
    /// Use these seeds in every experiment, both ends included.
    #[arg(long, value_name = "A..B")]
    seeds: Option<Seeds>,
    /// Runs at a time [default: one for each processor with sim, 1 with emu].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "N")]
    jobs: Option<u16>,
    /// Folder for the report, and for one folder of results for each experiment [default:
    /// out/reproduce/STUDY].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON document and nothing else on stdout.
    #[arg(long)]
    json: bool,
    /// Make runs again that the store has already. Earlier results stay; the newest valid run
    /// counts.
    #[arg(long)]
    force: bool,
    /// List the experiments, and run nothing.
    #[arg(long)]
    list: bool,
}

impl Reproduce {
    /// Runs the study; exit code 1 unless every claim is met.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let mut study = Study::load(&self.study).map_err(BadInput)?;
        if !self.only.is_empty() {
            study.only(&self.only).map_err(|error| BadInput(format!("--only: {error}")))?;
        }
        if self.list {
            print(&self.listing(&study)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        if backend::NAMES.contains(&&*self.backend) {
            study.on(&self.backend);
        }
        if study.experiments.is_empty() {
            let asked = match self.only.join(",") {
                none if none.is_empty() => format!("experiments of {}", self.study),
                names => format!("--only {names}"),
            };
            let backend = &self.backend;
            let error = format!("{asked}: none runs with --backend {backend}");
            return Err(BadInput(error).into());
        }
        let options = Options {
            jobs: self.jobs.map_or_else(|| jobs(&self.backend), usize::from),
            backend: self.backend.clone(),
            out: self.out.clone(),
            seeds: self.seeds,
            force: self.force,
            build: BUILD,
            ..Options::default()
        };
        resume_after_interrupt()?;
        let found = reproduce(&study, &options, &mut progress::of_each_on_stderr());
        let found = found.map_err(refuse)?;
        if self.json {
            print(&format!("{:#}\n", json!(found)))?;
        } else {
            print(&text(&found))?;
        }
        Ok(if found.is_fine() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn listing(&self, study: &Study) -> anyhow::Result<String> {
        if self.json {
            let of = |plan: &PlanClaims| {
                let seeds =
                    |(backend, seeds): (&String, &Seeds)| (backend.clone(), seeds.to_string());
                let seeds =
                    plan.seeds.iter().map(seeds).collect::<std::collections::BTreeMap<_, _>>();
                json!({ "name": study.short_name(plan), "plan": plan.name, "paper": plan.paper,
                        "seeds": seeds, "claims": plan.claim.len() })
            };
            let experiments: Vec<_> = study.experiments.iter().map(of).collect();
            return Ok(format!("{:#}\n", json!({ "experiments": experiments })));
        }
        let row = |plan: &PlanClaims| {
            let seeds = backend::NAMES
                .map(|name| plan.seeds.get(name).map_or_else(|| "-".into(), ToString::to_string));
            let paper = plan.paper.clone().unwrap_or_else(|| "-".into());
            let [sim, emu] = seeds;
            vec![study.short_name(plan).to_string(), sim, emu, paper]
        };
        let titles = ["experiment", "seeds sim", "seeds emu", "published in"].map(String::from);
        let rows: Vec<Vec<String>> = study.experiments.iter().map(row).collect();
        Ok(output::text_table(&titles, &rows))
    }
}

/// The claims of each experiment, the problems found, and the path of the report.
fn text(found: &Reproduction) -> String {
    let mut text = String::new();
    for experiment in &found.experiments {
        let title = format!("{}: {}", experiment.plan, experiment.title);
        text += &table::titled(&title, &table::of_claims(&experiment.claims));
        text.push('\n');
    }
    let failed = found.experiments.iter().filter_map(|it| Some((&it.plan, it.failed.as_ref()?)));
    failed.for_each(|(plan, reason)| text += &format!("{plan} failed: {reason}\n"));
    text + &format!("{}\nreport: {}\n", table::counts(found.claims()), found.report.display())
}
