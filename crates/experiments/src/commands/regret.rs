//! `forebay regret`.

use std::path::PathBuf;
use std::process::ExitCode;

use forebay_lab::output::{number, text_table};
use forebay_lab::plan::Seeds;
use forebay_studies::regret::{
    BOUND_PING, BOUND_POINTS, RegretRequest, RegretRow, RegretSequence, RegretSummary,
    RegretWindow, SHARE_MIN, State, regret,
};
use serde_json::json;

use super::run::BUILD;
use super::{jobs, refuse};
use forebay::print;

/// Arguments of `forebay regret`.
#[derive(clap::Args)]
#[command(
    after_help = "A sequence is a simulated path of 2 minutes, drawn from its seed: rate, delay or cross traffic change every \
    20 to 40 s. It runs without boxes, without boxes with connections that start up to 2 ms later (what chance does), with \
    boxes whose limits are too high to limit anything, and with boxes.\n\n\
    Exit code 1: a bound is not met.\n\n\
    Example: which sequences are worst, and what happens in sequence 17?\n  \
    forebay regret --seeds 1..20\n  \
    forebay regret --seeds 17\n  \
    forebay regret --seeds 17 --plan > 17.toml && forebay run 17.toml --backend sim"
)]
pub struct Arguments {
    /// The sequences, each drawn from its seed; both ends included.
    #[arg(long, default_value = "1..200", value_name = "A..B")]
    seeds: Seeds,
    /// Sequences at a time [default: one for each processor].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "N")]
    jobs: Option<u16>,
    /// Where results go: one line of JSON for each sequence. The command continues where it was interrupted.
    #[arg(long, default_value = "out/regret", value_name = "DIR")]
    out: PathBuf,
    /// Simulate known sequences again.
    #[arg(long)]
    force: bool,
    /// Show this many of the worst sequences: when which arm delivered less, and how the sendbox reacted.
    #[arg(long, default_value_t = 5, value_name = "N")]
    worst: usize,
    /// Print the plan of the first sequence instead of running anything.
    #[arg(long, conflicts_with_all = ["json", "force", "jobs"])]
    plan: bool,
    /// Print one JSON document on stdout and nothing else there.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Measures the sequences without results. The exit code is 1 if a bound is not met.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        if self.plan {
            print(&RegretSequence::draw(self.seeds.first).plan())?;
            return Ok(ExitCode::SUCCESS);
        }
        let request = RegretRequest {
            seeds: self.seeds,
            jobs: self.jobs.map_or_else(|| jobs("sim"), usize::from),
            folder: self.out,
            force: self.force,
            build: BUILD,
        };
        let mut printed = Ok(true);
        let rows = regret(&request, &mut |row| {
            if !self.json && printed.is_ok() {
                printed = print(&line(row));
            }
        });
        let rows = rows.map_err(refuse)?;
        printed?;
        let summary = RegretSummary::of(&rows);
        if self.json {
            let worst: Vec<u64> =
                RegretRow::worst(&rows, self.worst).iter().map(|row| row.seed).collect();
            let document = json!({ "summary": summary, "worst": worst, "sequences": rows });
            print(&format!("{document:#}\n"))?;
        } else {
            for row in RegretRow::worst(&rows, self.worst) {
                print(&details(row))?;
            }
            print(&text(&summary))?;
        }
        Ok(if summary.is_fine() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// A sequence in one line.
fn line(row: &RegretRow) -> String {
    let counted = row.windows.iter().filter(|window| window.counts()).count();
    let ping = row.ping_ratio().map_or("-".into(), number);
    format!(
        "seed {}: {} of {counted} windows worse, {} by chance; ping {ping}; {}\n",
        row.seed,
        row.worse(RegretWindow::boxes),
        row.worse(RegretWindow::later),
        row.setting
    )
}

/// A sequence with its changes, the amount delivered in each window, and the sendbox's states meanwhile.
fn details(row: &RegretRow) -> String {
    let mut text = format!("\nseed {}: {}\n", row.seed, row.setting);
    row.changes.iter().for_each(|change| text += &format!("  {change}\n"));
    let titles = ["from (s)", "no boxes (Mbit/s)", "later", "no limits", "boxes", "shaped", ""]
        .map(String::from);
    let share = |share: Option<f64>| share.map_or("-".into(), |it| format!("{it:.2}"));
    let cells = |window: &RegretWindow| {
        let is_worse = window.boxes().is_some_and(|share| share < SHARE_MIN);
        vec![
            window.from_s.to_string(),
            number(window.none_mbit),
            share(window.later()),
            share(window.unlimited()),
            share(window.boxes()),
            format!("{:.2}", window.shaped),
            if is_worse { "worse" } else { "" }.into(),
        ]
    };
    let rows: Vec<Vec<String>> = row.windows.iter().map(cells).collect();
    text += &text_table(&titles, &rows);
    let mut was_shaped = false;
    for State { at_s, state, reason, shaped } in &row.states {
        // One limited state follows another many times a second.
        if !(*shaped && was_shaped) {
            text += &format!("  {at_s:.1} s: {state} ({reason})\n");
        }
        was_shaped = *shaped;
    }
    text
}

fn text(summary: &RegretSummary) -> String {
    let met = |is_met: bool| if is_met { "met" } else { "not met" };
    let ratio = |ratio: Option<f64>| ratio.map_or("-".into(), number);
    let RegretSummary { sequences, windows, worse_boxes_percent, worse_later_percent, .. } =
        summary;
    let RegretSummary {
        worse_unlimited_percent, better_boxes_percent, better_later_percent, ..
    } = summary;
    let [later_geometric, later_of_means] = summary.ping_later.map(ratio);
    format!(
        "\n{sequences} sequences, {windows} windows of 10 s in which data wait\n\
         windows below {SHARE_MIN} of no boxes: {worse_boxes_percent:.2} % with boxes, {worse_later_percent:.2} % by \
         chance, {worse_unlimited_percent:.2} % with boxes without limits\n  difference {:.2} +- {:.2} percentage points, bound {BOUND_POINTS}: {}\n\
         {:.2} points of it from the {:.0} % of windows in which the sendbox mostly enforces limits\n\
         windows in which no boxes deliver below {SHARE_MIN} of the other run: {better_boxes_percent:.2} % with boxes, \
         {better_later_percent:.2} % by chance\n\
         queueing delay of a sparse flow over no boxes: geometric mean {} (by chance {later_geometric}), ratio of means \
         {} (by chance {later_of_means})\n  bound {BOUND_PING}: {}\n",
        summary.regret_points,
        summary.regret_error_points,
        met(summary.regret_is_met),
        summary.regret_shaped_points,
        summary.shaped_percent,
        ratio(summary.ping_geometric),
        ratio(summary.ping_of_means),
        met(summary.ping_is_met),
    )
}
