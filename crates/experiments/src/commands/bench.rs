//! `forebay bench`.

use std::path::PathBuf;
use std::process::ExitCode;

use forebay_lab::judge::table;
use forebay_lab::output::text_table;
use forebay_lab::plan::Seeds;
use forebay_lab::report::page::PageTable;
use forebay_lab::{Options, progress};
use forebay_studies::bench::{BenchRequest, Benchmark, Suite, bench};
use serde_json::json;

use super::run::{BUILD, parse_sets};
use super::{jobs, refuse, share};
use forebay::commands::foreign_rust::in_sets;
use forebay::commands::interrupt::resume_after_interrupt;
use forebay::commands::python::Python;
use forebay::print;

/// Benchmark congestion-control algorithms, and compare them.
///
/// Always simulates unless --backend says otherwise, unlike `forebay run`, which uses real kernels
/// by default.
///
/// Exit code 1: an experiment failed or missed its published results; 130: you pressed Ctrl-C. The
/// same command then continues.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay bench ./my_cc bbr cubic               # your own crate, BBR and CUBIC\n  \
    forebay bench cubic bbr --only loss_resilience,competition_duel\n  \
    forebay bench ./my_cc cubic newreno --suite rfc9743")]
pub struct Bench {
    /// Algorithms to test, as flows name them: newreno, cubic, "copa(mode_switching=true)",
    /// agent:bbr, bpf:cubic, kernel:NAME; or the folder of your own crate, such as ./my_cc, which
    /// `forebay new-algorithm` creates.
    #[arg(value_name = "ALGORITHM", required_unless_present = "list")]
    algorithms: Vec<String>,
    #[command(flatten)]
    python: Python,
    /// Set of experiments: ccperf (the benchmark ccperf, with a scorecard) or rfc9743 (the
    /// evaluation criteria of the IETF, with a verdict on each).
    #[arg(long, default_value = "ccperf", value_name = "NAME")]
    suite: Suite,
    /// Run only these experiments, such as loss_resilience,competition_duel; --list prints all.
    #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
    only: Vec<String>,
    /// Back end: sim (the packet simulator), emu (real kernels over an emulated link) or ns3 (needs
    /// libns3-dev).
    #[arg(long, default_value = "sim", value_name = "NAME")]
    backend: String,
    /// Use these seeds in every experiment, both ends included.
    #[arg(long, value_name = "A..B")]
    seeds: Option<Seeds>,
    /// Start with six seeds. Add seeds until the 95 % interval of each score is at most this share
    /// of its scale (0 to 1), or until no seeds are left.
    #[arg(long, value_parser = share, value_name = "SHARE")]
    until: Option<f64>,
    /// Use the settings of the experiments' authors instead of this project's. The report compares
    /// measured with published results.
    #[arg(long)]
    as_published: bool,
    /// Override a value in every experiment, such as stop=90s. May be repeated. Results with other
    /// values are not compared.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Runs at a time [default: one for each processor with sim and ns3, 1 with emu].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "N")]
    jobs: Option<u16>,
    /// Folder for the report, and for one folder of results for each experiment. Algorithms that
    /// you tested there before stay in the report [default: out/bench or out/rfc9743].
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

impl Bench {
    /// The arguments that may name algorithms.
    pub fn mentions(&mut self) -> Vec<&mut String> {
        self.algorithms.iter_mut().chain(in_sets(&mut self.sets)).collect()
    }

    /// Runs the benchmark. The exit code is 1 unless every experiment finished and met its published results.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        self.python.know_in_plans()?;
        let request = BenchRequest {
            suite: self.suite,
            algorithms: match self.list {
                true => vec!["newreno".into()],
                false => self.algorithms.clone(),
            },
            only: self.only.clone(),
            as_published: self.as_published,
            sets: parse_sets(&self.sets).map_err(refuse)?,
            until: self.until,
        };
        if self.list {
            let plans = request.plans().map_err(refuse)?;
            let rows = plans.iter().map(|plan| {
                let runs = plan.cells.len() as u64 * plan.seeds.iter().count() as u64;
                vec![plan.name.clone(), runs.to_string(), plan.title.clone()]
            });
            let titles = ["experiment", "runs", "title"].map(String::from);
            print(&text_table(&titles, &rows.collect::<Vec<_>>()))?;
            return Ok(ExitCode::SUCCESS);
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
        let found = bench(&request, &options, &mut progress::of_each_on_stderr());
        let found = found.map_err(refuse)?;
        print(&if self.json { format!("{:#}\n", json!(found)) } else { text(&found) })?;
        Ok(if found.is_fine() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn text(found: &Benchmark) -> String {
    let mut text = String::new();
    if !found.scorecard.is_empty() {
        text += &captioned(&found.scorecard.table());
    }
    for experiment in &found.experiments {
        let title = format!("\n{}: {}", experiment.plan, experiment.title);
        text += &table::titled(&title, &table::of_claims(&experiment.published));
    }
    if found.published().next().is_some() {
        text += &format!("{}\n", table::counts(found.published()));
    }
    if !found.criteria.is_empty() {
        text += &captioned(&found.criteria.table());
        let lines = found.criteria.unmet().chain(found.criteria.contradictions());
        text += &lines.map(|line| format!("{line}\n")).collect::<String>();
        if !found.criteria.known.is_empty() {
            text += &format!("{}\n", found.criteria.known_table().caption);
        }
    }
    let failed = found.experiments.iter().filter_map(|it| Some((&it.plan, it.failed.as_ref()?)));
    failed.for_each(|(plan, reason)| text += &format!("{plan} failed: {reason}\n"));
    text + &format!("report: {}\n", found.report.display())
}

fn captioned(table: &PageTable) -> String {
    format!("{}{}\n", text_table(&table.columns, &table.rows), table.caption)
}
