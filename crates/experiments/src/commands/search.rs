//! `forebay search`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use forebay_core::units::{ParseQuantityError, parse_duration};
use forebay_lab::backend::Stop;
use forebay_lab::output;
use forebay_studies::search::{
    self, Budget, Found, JudgedCase, OBJECTIVES, Objective, SPACES, SearchRequest, Space,
    check_algorithm,
};

use super::refuse;
use super::run::BUILD;
use forebay::commands::interrupt::resume_after_interrupt;
use forebay::{BadInput, print};

/// Find the path on which an algorithm is worst, as a plan.
///
/// First simulates plain cells, a small grid of usual links. Then draws cases from the whole space,
/// and breeds new cases from the worst ones. At the end, simplifies the worst case as long as its
/// metric stays within 5 %. Each case runs with three seeds, and their median counts. The result is
/// a plan.
///
/// Exit code 2: algorithm, metric or space are wrong; 130: you pressed Ctrl-C. The same command then
/// continues.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay search --list\n  \
    forebay search bbr --metric queueing --space alone --budget 5min   # where does BBR build a queue?\n  \
    forebay run out/search/bbr-queueing.toml --backend sim             # run the case that it found")]
pub struct Search {
    /// Algorithm, as in flows of plans: bbr, cubic(hystart=off), or the folder of your own crate,
    /// such as ./my_cc.
    #[arg(required_unless_present = "list", value_name = "ALGORITHM")]
    algorithm: Option<String>,
    /// Metric to make as bad as possible; --list prints all.
    #[arg(long, default_value = "utilization", value_name = "NAME")]
    metric: String,
    /// Space of cases: default, alone (one flow, no competing traffic), or the path of a file in
    /// the format that --list prints.
    #[arg(long, default_value = "default", value_name = "NAME|FILE")]
    space: String,
    /// Number of simulated runs, without plain cells and runs that simplify the worst case. The
    /// same number gives the same plan.
    #[arg(long, default_value_t = 6000, value_parser = clap::value_parser!(u64).range(1..),
          value_name = "N")]
    runs: u64,
    /// Time for the search instead of a number of runs, such as 10min.
    #[arg(long, conflicts_with = "runs", value_parser = budget, value_name = "TIME")]
    budget: Option<Duration>,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Runs at a time [default: one for each processor].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "N")]
    jobs: Option<u16>,
    /// Folder for the plan and the results of all cases. An interrupted search continues there.
    #[arg(long, default_value = "out/search", value_name = "DIR")]
    out: PathBuf,
    /// Print one JSON document and nothing else on stdout.
    #[arg(long)]
    json: bool,
    /// List metrics and spaces, and search nothing.
    #[arg(long)]
    list: bool,
}

impl Search {
    /// The arguments that may name algorithms.
    pub fn mentions(&mut self) -> Vec<&mut String> {
        self.algorithm.iter_mut().collect()
    }

    /// Searches; exit code 2 if algorithm, metric or space are wrong.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        if self.list {
            print(&listing())?;
            return Ok(ExitCode::SUCCESS);
        }
        let algorithm = self.algorithm.unwrap_or_default();
        let wrong = |error: String| BadInput(format!("ALGORITHM {algorithm:?}: {error}"));
        check_algorithm(&algorithm).map_err(wrong)?;
        let objective = Objective::named(&self.metric);
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let request = SearchRequest {
            algorithm,
            objective: objective.map_err(|error| BadInput(format!("--metric: {error}")))?,
            space: Space::load(&self.space).map_err(refuse)?,
            budget: self.budget.map_or(Budget::Runs(self.runs), Budget::Time),
            seed: self.seed,
            jobs: self.jobs.map_or_else(processors, usize::from),
            folder: self.out,
            build: BUILD,
            stop: Stop::default(),
        };
        resume_after_interrupt()?;
        let found = search::search(&request, &mut *search::on_stderr()).map_err(refuse)?;
        if self.json {
            print(&format!("{:#}\n", found.document(&request)))?;
        } else {
            print(&text(&request, &found))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads a duration whose minutes may be written `10m`. No other duration of this program exceeds a minute.
fn budget(text: &str) -> Result<Duration, ParseQuantityError> {
    match text.strip_suffix('m') {
        Some(minutes) => parse_duration(&format!("{minutes}min")),
        None => parse_duration(text),
    }
}

fn listing() -> String {
    let mut text = String::from("Metrics, which a search makes as bad as possible:\n");
    for objective in &OBJECTIVES {
        text += &format!("{}\n    {}\n", objective.heading(), objective.summary);
    }
    for (name, space) in SPACES {
        text += &format!("\nThe space {name}, in the format of a file:\n\n{space}");
    }
    text
}

/// The plain cells, the worst case, and its simplified form.
fn text(request: &SearchRequest, found: &Found) -> String {
    let objective = request.objective;
    let row = |what: &str, it: &JudgedCase| {
        let times = objective.times_worse(it.value, found.worst_plain.value);
        let [value, times] =
            [Some(it.value), times].map(|it| it.map_or("-".into(), output::number));
        vec![what.to_string(), value, times, it.case.words()]
    };
    let mut rows: Vec<Vec<String>> = found.plain.iter().map(|it| row("plain cell", it)).collect();
    rows.push(row("worst case", &found.worst));
    rows.push(row("simplified", &found.simple));
    let heading = objective.heading();
    let titles = ["", &heading, "times worse", "case"].map(String::from);
    let (simulated, reused) = (found.simulated, found.reused);
    let (algorithm, plan) = (&request.algorithm, found.plan.display());
    format!(
        "{algorithm}: {}\n{}{simulated} cases simulated, {reused} known before\nplan: {plan}\n",
        objective.summary,
        output::text_table(&titles, &rows)
    )
}
