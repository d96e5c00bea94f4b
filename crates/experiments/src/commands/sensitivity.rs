//! `forebay sensitivity`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use forebay_lab::output::{number, text_table};
use forebay_lab::plan::Seeds;
use forebay_studies::sensitivity::{
    Sensitivity, SensitivityProgress, SensitivityRequest, SensitivityTable, sensitivity,
    sensitivity_numbers,
};

use super::run::BUILD;
use super::{jobs, refuse};
use forebay::commands::interrupt::resume_after_interrupt;
use forebay::print;

/// The exit code where something is left to run.
const LEFT: u8 = 3;
/// A week.
const MINUTES_MAX: u64 = 10_080;

/// Halve and double each tuning number, and measure the effect.
///
/// Halves and doubles each tuning number of a bundle's control, one at a time. Simulates each
/// change on bundler/main, bundler/draft, bundler/real_paths (cut to 35 s) and eight cells of
/// world. Compares each effect with the spread over seeds with all defaults.
///
/// Exit code 3: runs are left; 130: you pressed Ctrl-C. In both cases the same command continues.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay sensitivity --list\n  \
    forebay sensitivity supervisor_keep --minutes 30")]
pub struct Arguments {
    /// Numbers to change, as in `bundle.X.tuning` of a plan; --list prints all [default: all].
    #[arg(value_name = "NUMBER")]
    numbers: Vec<String>,
    /// List all numbers with their defaults, and run nothing.
    #[arg(long, exclusive = true)]
    list: bool,
    /// Seeds of the runs with a number halved or doubled, both ends included.
    #[arg(long, default_value = "1..3", value_name = "A..B")]
    seeds: Seeds,
    /// Stop after N minutes. Call again to make the remaining runs.
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=MINUTES_MAX), value_name = "N")]
    minutes: Option<u64>,
    /// Runs at a time [default: one for each processor].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "N")]
    jobs: Option<u16>,
    /// Folder for results: one line of JSON for each run. An interrupted command continues there.
    #[arg(long, default_value = "out/sensitivity", value_name = "DIR")]
    out: PathBuf,
    /// Also write sensitivity.csv and sensitivity.md into this folder, such as docs/evidence.
    #[arg(long, value_name = "DIR")]
    docs: Option<PathBuf>,
    /// Print one JSON document and nothing else on stdout.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Makes the missing measurements. The exit code is 3 if runs are left.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        if self.list {
            print(&sensitivity_numbers())?;
            return Ok(ExitCode::SUCCESS);
        }
        let request = SensitivityRequest {
            numbers: self.numbers,
            seeds: self.seeds,
            jobs: self.jobs.map_or_else(|| jobs("sim"), usize::from),
            until: self.minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes)),
            folder: self.out,
            build: BUILD,
        };
        resume_after_interrupt()?;
        let table = sensitivity(&request, &mut show).map_err(refuse)?;
        if let Some(folder) = self.docs {
            for (name, text) in [("sensitivity.csv", table.csv()), ("sensitivity.md", table.page())]
            {
                let path = folder.join(name);
                std::fs::write(&path, text).with_context(|| path.display().to_string())?;
            }
        }
        for it in &table.numbers {
            if let Some(reason) = &it.refused {
                eprintln!("{} = {}: not possible: {reason}", it.number, it.value);
            }
        }
        print(&if self.json { format!("{:#}\n", serde_json::json!(table)) } else { text(&table) })?;
        let is_whole = table.numbers.iter().all(|it| it.runs == it.wanted);
        Ok(if is_whole { ExitCode::SUCCESS } else { LEFT.into() })
    }
}

fn show(progress: SensitivityProgress) {
    let SensitivityProgress { done, total, took, left } = progress;
    let [took, left] = [took, left].map(|it| it.as_secs_f64() / 60.0);
    eprintln!("{done} of {total} runs after {took:.1} min, about {left:.0} min left");
}

/// A line for each number and change: the figure that changes most.
fn text(table: &SensitivityTable) -> String {
    let titles = ["number", "default", "value", "runs", "same", "change", "of", ""];
    let row = |it: &Sensitivity| {
        let (name, change) = match (it.presences.first_key_value(), it.largest()) {
            (Some((name, presence)), _) => (name.as_str(), presence.name().into()),
            (None, Some((name, change))) => (name, number(change)),
            (None, None) => ("", "-".into()),
        };
        let mark = match (it.is_beyond_noise(), it.clamped) {
            _ if it.refused.is_some() => "not possible: out of range",
            (true, true) => "beyond noise, clamped",
            (true, false) => "beyond noise",
            (false, true) => "clamped",
            (false, false) => "",
        };
        vec![
            it.number.into(),
            it.default.clone(),
            it.value.clone(),
            format!("{}/{}", it.runs, it.wanted),
            it.same.to_string(),
            change,
            name.into(),
            mark.into(),
        ]
    };
    let rows: Vec<Vec<String>> = table.numbers.iter().map(row).collect();
    text_table(&titles.map(String::from), &rows)
}
