//! `forebay search`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use forebay_core::spec::one_of;
use forebay_core::units::{ParseQuantityError, parse_duration};
use forebay_lab::backend::{NAMES, SIMULATOR, Stop, lacks_root};
use forebay_lab::output;
use forebay_studies::search::{
    self, Budget, COMPARED_RUNS, ComparedCase, Comparison, Found, JudgedCase, OBJECTIVES,
    Objective, SPACES, SearchRequest, Space, check_algorithm,
};
use serde_json::json;

use super::run::{BUILD, without_root};
use super::{jobs, refuse};
use forebay::commands::interrupt::resume_after_interrupt;
use forebay::{BadInput, print};

/// Find the path on which an algorithm is worst, as a plan.
///
/// First simulates plain cells, a small grid of usual links. Then draws cases from the whole space,
/// and breeds new cases from the worst ones. At the end, simplifies the worst case as long as its
/// metric stays within 5 %. Each case runs with three seeds, and their median counts. The result is
/// a plan.
///
/// With --backend emu, cases run on this kernel with its own algorithms, such as kernel:cubic. Each
/// run takes its time: half an hour gives about 100 cases of the space short. A case has one run.
/// Half of the cases are the worst of 32 times as many in the simulator. At the end, the worst case
/// and all plain cells run 5 more times. The case is a finding if each of its runs is worse than
/// each run of the plain cells.
///
/// Exit code 1: --backend emu cannot run here, for example without root; 2: algorithm, metric or
/// space are wrong; 130: you pressed Ctrl-C. The same command then continues.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay search --list\n  \
    forebay search bbr --metric queueing --space alone --budget 5min   # where does BBR build a queue?\n  \
    forebay run out/search/bbr-queueing.toml --backend sim             # run the case that it found\n  \
    forebay search kernel:cubic --backend emu --budget 30min           # the same on this kernel; needs root")]
pub struct Search {
    /// Algorithm, as in flows of plans: bbr, cubic(hystart=off), or the folder of your own crate,
    /// such as ./my_cc. With --backend emu an algorithm of the kernel that the simulator has, too:
    /// kernel:cubic, also written linux:cubic or cubic.
    #[arg(required_unless_present = "list", value_name = "ALGORITHM")]
    algorithm: Option<String>,
    /// Metric to make as bad as possible; --list prints all.
    #[arg(long, default_value = "utilization", value_name = "NAME")]
    metric: String,
    /// Back end: sim (the packet simulator) or emu (real kernels over an emulated link).
    #[arg(long, default_value = SIMULATOR, value_name = "NAME")]
    backend: String,
    /// Space of cases: default, alone (one flow, no competing traffic), short (one flow, few and
    /// short runs), or the path of a file in the format that --list prints [default: default; with
    /// emu, short].
    #[arg(long, value_name = "NAME|FILE")]
    space: Option<String>,
    /// Number of runs, without plain cells and runs that simplify or compare the worst case
    /// [default: 6000]. In the simulator the same number gives the same plan.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    runs: Option<u64>,
    /// Time for the search instead of a number of runs, such as 10min [default with emu: 30min].
    /// With emu it includes the last 5 runs of each plain cell (5 min in the space short), but at
    /// least one generation runs.
    #[arg(long, conflicts_with = "runs", value_parser = budget, value_name = "TIME")]
    budget: Option<Duration>,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Runs at a time [default: one for each processor]. With emu, only 1 is allowed.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "N")]
    jobs: Option<u16>,
    /// Folder for the plan and the results of all cases. An interrupted search continues there.
    #[arg(long, default_value = "out/search", value_name = "DIR")]
    out: PathBuf,
    /// Search nothing. Instead compare one case of the space N times with itself by the rule for
    /// findings.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1000), value_name = "N")]
    self_test: Option<u64>,
    /// With emu: also add a finding to search.csv, search.md and search/ in this folder, such as
    /// docs/evidence.
    #[arg(long, conflicts_with = "self_test", value_name = "DIR")]
    docs: Option<PathBuf>,
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
        let Self { backend, .. } = &self;
        if !NAMES.contains(&backend.as_str()) {
            let allowed = one_of(backend, &NAMES);
            return Err(BadInput(format!("--backend {backend}: allowed is {allowed}")).into());
        }
        let is_real = backend != SIMULATOR;
        if self.docs.is_some() && !is_real {
            let refusal = format!("--docs: allowed with --backend {}", NAMES[1]);
            return Err(BadInput(refusal).into());
        }
        let written = self.algorithm.unwrap_or_default();
        let algorithm = of_backend(&written, is_real);
        if !is_real {
            let wrong = |error: String| BadInput(format!("ALGORITHM {algorithm:?}: {error}"));
            check_algorithm(&algorithm).map_err(wrong)?;
        }
        let objective = Objective::named(&self.metric);
        let space = self.space.as_deref().unwrap_or(if is_real { "short" } else { "default" });
        let budget = match (self.budget, self.runs) {
            (Some(time), _) => Budget::Time(time),
            (None, Some(runs)) => Budget::Runs(runs),
            (None, None) if is_real => Budget::Time(REAL_BUDGET),
            (None, None) => Budget::Runs(SIMULATED_RUNS),
        };
        let request = SearchRequest {
            algorithm,
            objective: objective.map_err(|error| BadInput(format!("--metric: {error}")))?,
            space: Space::load(space).map_err(refuse)?,
            budget,
            seed: self.seed,
            jobs: self.jobs.map_or_else(|| jobs(&self.backend), usize::from),
            backend: self.backend,
            folder: self.out,
            build: BUILD,
            stop: Stop::default(),
        };
        if lacks_root(&request.backend) {
            return Err(without_root(&["--docs"]));
        }
        resume_after_interrupt()?;
        let mut progress = search::on_stderr();
        if let Some(count) = self.self_test {
            let compared = search::compare_with_itself(&request, count, &mut *progress);
            print(&of_itself(&compared.map_err(refuse)?, self.json))?;
            return Ok(ExitCode::SUCCESS);
        }
        let found = search::search(&request, &mut *progress).map_err(refuse)?;
        if self.json {
            print(&format!("{:#}\n", found.document(&request)))?;
        } else {
            print(&text(&request, &found))?;
        }
        if let Some(docs) = self.docs {
            let linux = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
            let published = search::publish(&docs, &request, &found, linux.trim());
            published.with_context(|| format!("--docs {}", docs.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Default number of runs in the simulator: some minutes.
const SIMULATED_RUNS: u64 = 6000;
/// Default time on a real kernel: about 100 cases.
const REAL_BUDGET: Duration = Duration::from_secs(1800);

/// The algorithm as its plan has it. On a real kernel, a name without a platform is the kernel's.
fn of_backend(written: &str, is_real: bool) -> String {
    let name = ["linux:", "kernel:"].iter().find_map(|platform| written.strip_prefix(platform));
    match name.unwrap_or(written) {
        name if is_real && !name.contains(':') => format!("kernel:{name}"),
        name => name.into(),
    }
}

/// How many comparisons of a case with itself were called findings.
fn of_itself(compared: &[Comparison], as_json: bool) -> String {
    let count = compared.iter().filter(|it| it.is_finding).count();
    if as_json {
        let all: Vec<_> = compared.iter().map(Comparison::document).collect();
        return format!("{:#}\n", json!({ "findings": count, "comparisons": all }));
    }
    let case = compared.first().map_or_else(String::new, |it| it.case.case.words());
    let titles = ["", "one", "the same case again"].map(String::from);
    let row = |(number, it): (usize, &Comparison)| {
        let again = it.plain.first().map(|it| figures(&it.runs)).unwrap_or_default();
        vec![format!("{}{}", number, mark(it)), figures(&it.case.runs), again]
    };
    let rows: Vec<Vec<String>> = (1..).zip(compared).map(row).collect();
    let table = output::text_table(&titles, &rows);
    let open = compared.iter().filter(|it| it.missing() > 0).count();
    let all = compared.len();
    format!("{case}\n{table}{count} of {all} comparisons called a finding, {open} not judged\n")
}

/// Marks findings in a table, and comparisons that lack runs.
fn mark(comparison: &Comparison) -> &'static str {
    match (comparison.is_finding, comparison.missing()) {
        (true, _) => ": finding",
        (false, 0) => "",
        (false, _) => ": not judged",
    }
}

fn figures(runs: &[f64]) -> String {
    let numbers: Vec<String> = runs.iter().map(|it| output::number(*it)).collect();
    if numbers.is_empty() { "-".into() } else { numbers.join(" ") }
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
    let (run, reused) = (found.run, found.reused);
    let (algorithm, plan) = (&request.algorithm, found.plan.display());
    let mut text = format!(
        "{algorithm}: {}\n{}{run} cases run, {reused} known before",
        objective.summary,
        output::text_table(&titles, &rows)
    );
    if let Some(comparison) = &found.comparison {
        let rejected = found.rejected.len();
        text += &format!(", {rejected} attempts rejected\n\n{}", further(&heading, comparison));
    }
    text + &format!("\nplan: {plan}\n")
}

/// The further runs of plain cells and case, with the verdict.
fn further(heading: &str, comparison: &Comparison) -> String {
    let row = |what: &str, it: &ComparedCase| {
        vec![what.to_string(), figures(&it.runs), figures(&it.simulated), it.case.words()]
    };
    let plain = comparison.plain.iter().map(|it| row("plain cell", it));
    let rows: Vec<_> = plain.chain([row("simplified", &comparison.case)]).collect();
    let kernel = format!("{heading} in {COMPARED_RUNS} further runs");
    let titles = ["", &kernel, "the same, simulated", "case"].map(String::from);
    let verdict = match (comparison.is_finding, comparison.missing()) {
        (true, _) => "finding: each run of the case is worse than each run of the plain cells",
        (false, 0) => {
            "no finding: not each run of the case is worse than each run of the plain cells"
        }
        (false, _) => "not judged: disturbed runs are missing; the same command repeats them",
    };
    output::text_table(&titles, &rows) + verdict
}
