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
use forebay::commands::interrupt::resume_after_interrupt;
use forebay::print;

/// Compare a site with and without boxes on random changing paths.
///
/// A sequence is a simulated path of 2 minutes, drawn from its seed. Its rate, delay or cross
/// traffic changes every 20 to 40 s. Each sequence runs in four arms: without boxes; without boxes,
/// with connections that start up to 2 ms later (the effect of chance); with boxes whose limits are
/// too high to limit anything; and with boxes.
///
/// Exit code 1: a bound is not met; 130: you pressed Ctrl-C. The same command then continues.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay regret --seeds 1..20             # the worst of 20 sequences\n  \
    forebay regret --seeds 17                # sequence 17 in detail\n  \
    forebay regret --seeds 17 --plan > 17.toml && forebay run 17.toml --backend sim")]
pub struct Arguments {
    /// Seeds of the sequences, both ends included.
    #[arg(long, default_value = "1..200", value_name = "A..B")]
    seeds: Seeds,
    /// Sequences at a time [default: one for each processor].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "N")]
    jobs: Option<u16>,
    /// Folder for results: one line of JSON for each sequence. An interrupted command continues
    /// there.
    #[arg(long, default_value = "out/regret", value_name = "DIR")]
    out: PathBuf,
    /// Simulate sequences again that have results.
    #[arg(long)]
    force: bool,
    /// Number of worst sequences to show, with the windows that delivered less and the states of
    /// the sendbox.
    #[arg(long, default_value_t = 5, value_name = "N")]
    worst: usize,
    /// Print the plan of the first sequence, and run nothing.
    #[arg(long, conflicts_with_all = ["json", "force", "jobs"])]
    plan: bool,
    /// Print one JSON document and nothing else on stdout.
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
        resume_after_interrupt()?;
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
        "\n{sequences} sequences, {windows} windows of 10 s with data to send\n\
         windows with less than {SHARE_MIN} of the payload without boxes: {worse_boxes_percent:.2} % with boxes, {worse_later_percent:.2} % by \
         chance, {worse_unlimited_percent:.2} % with boxes without limits\n  difference {:.2} +- {:.2} percentage points, bound {BOUND_POINTS}: {}\n\
         {:.2} points of it from the {:.0} % of windows in which the sendbox mostly limits the rate\n\
         windows without boxes with less than {SHARE_MIN} of the payload of the other run: {better_boxes_percent:.2} % with boxes, \
         {better_later_percent:.2} % by chance\n\
         queueing delay of a sparse flow, with over without boxes: geometric mean {} (by chance {later_geometric}), ratio of means \
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
