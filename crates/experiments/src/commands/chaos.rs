//! `forebay chaos`.

use std::path::PathBuf;
use std::process::ExitCode;

use forebay_lab::backend;
use forebay_lab::plan::Seeds;
use forebay_studies::chaos::{Chaos, ChaosError, ChaosRow};
use serde_json::json;

use super::refuse;
use super::run::BUILD;
use forebay::commands::interrupt::resume_after_interrupt;
use forebay::{BadInput, print};

/// Test a bundle under random faults, next to a run without boxes.
///
/// Draws a sequence of faults for each seed: on links, packets, messages and boxes. Runs it with
/// boxes and without, and compares the two runs.
///
/// Exit code 1: a run with boxes was worse than a rule allows, or a sequence could not be judged;
/// 130: you pressed Ctrl-C. The same command then continues.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay chaos\n  \
    forebay chaos --seeds 17..17 --force\n  \
    forebay chaos --seeds 1..5 --backend emu --keep-logs")]
pub struct Arguments {
    /// Seeds of the sequences, both ends included.
    #[arg(long, default_value = "1..200", value_name = "A..B")]
    seeds: Seeds,
    /// Back end: sim (the packet simulator) or emu (real kernels over an emulated link).
    #[arg(long, default_value = "sim", value_name = "NAME")]
    backend: String,
    /// Folder for results: one line of JSON for each sequence, and a plan for each sequence that
    /// breaks a rule.
    #[arg(long, default_value = "out/chaos", value_name = "DIR")]
    out: PathBuf,
    /// Run sequences again that have results.
    #[arg(long)]
    force: bool,
    /// Keep the files of runs with emu in the folder of results.
    #[arg(long)]
    keep_logs: bool,
    /// Print one JSON document and nothing else on stdout.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Runs the sequences without results. The exit code is 1 if a rule was broken or a sequence could
    /// not be judged.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let backend = backend::open(&self.backend).map_err(refuse)?;
        let mut chaos = Chaos::new(&*backend, BUILD.commit, &self.out).map_err(refused)?;
        chaos.keep_logs = self.keep_logs;
        resume_after_interrupt()?;
        let mut rows = Vec::new();
        for seed in self.seeds.iter() {
            let known = if self.force { None } else { chaos.known(seed) };
            let row = match known {
                Some(row) => row,
                None => chaos.run(seed).map_err(refused)?,
            };
            if !self.json {
                print(&words(&row))?;
            }
            rows.push(row);
        }
        if self.json {
            print(&format!("{:#}\n", json!({ "sequences": rows })))?;
        } else {
            print(&summary(&rows))?;
        }
        let passed = rows.iter().all(ChaosRow::passed);
        Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn refused(error: ChaosError) -> anyhow::Error {
    match error {
        ChaosError::Plan(error) => refuse(error),
        ChaosError::Backend(error) => refuse(error),
        error @ ChaosError::Folder { .. } => BadInput(format!("--out {error}")).into(),
    }
}

/// The setting and events of a seed, and how it was judged.
fn words(row: &ChaosRow) -> String {
    let mut text = format!("seed {} on {}: {}\n", row.seed, row.backend, row.setting);
    row.events.iter().for_each(|event| text += &format!("  {event}\n"));
    for reason in &row.rejected {
        text += &format!("  not judged: {reason}\n");
    }
    for (_, violation) in &row.violations {
        text += &format!("  WORSE: {violation}\n");
    }
    if row.passed() {
        let least = row.least.map_or(0.0, |(share, _)| share);
        let shaped_s = row.shaped_after_s.unwrap_or_default();
        text += &format!(
            "  fine: {} windows, the least at {least:.2} of {:.1} Mbit/s; shaped after {shaped_s:.1} s\n",
            row.windows, row.twin_mbit
        );
    }
    text
}

fn summary(rows: &[ChaosRow]) -> String {
    let judged = rows.iter().filter(|row| row.rejected.is_empty()).count();
    let passed = rows.iter().filter(|row| row.passed()).count();
    let worse: Vec<String> = rows
        .iter()
        .filter(|row| !row.violations.is_empty())
        .map(|row| {
            let kinds: Vec<&str> = row.violations.iter().map(|(kind, _)| kind.as_str()).collect();
            format!("{} ({})", row.seed, kinds.join(", "))
        })
        .collect();
    let mut text = format!(
        "{} sequences: {passed} fine, {} worse, {} not judged\n",
        rows.len(),
        judged - passed,
        rows.len() - judged
    );
    if !worse.is_empty() {
        text += &format!("worse: {}\n", worse.join(", "));
    }
    text
}
