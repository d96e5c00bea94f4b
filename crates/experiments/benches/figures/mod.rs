//! Figures of a benchmark whose arms take turns in rounds.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use forebay_core::units::parse_duration;
use forebay_testbed::TestbedError;
use serde::Serialize;

/// Duration of a measurement, and the file for its figures.
#[derive(clap::Args)]
pub struct Rounds {
    /// Number of turns for each arm.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Duration of each block of traffic.
    #[arg(long, default_value = "2s", value_parser = parse_duration)]
    pub duration: Duration,
    /// Write all turns and figures here, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Accepted because cargo passes it.
    #[arg(long = "bench", hide = true)]
    _is_bench: bool,
}

/// A measured figure with its bound, and whether the figure keeps it.
#[derive(Serialize)]
pub struct Figure {
    pub name: String,
    /// Median over the rounds, least and largest.
    pub median: f64,
    pub range: [f64; 2],
    pub aim: Option<&'static str>,
    pub is_met: Option<bool>,
}

impl Figure {
    /// A figure without a bound. `values` has one value for each round.
    pub fn of(name: impl Into<String>, values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (half, last) = (values.len() / 2, values.len() - 1);
        let median = f64::midpoint(values[last - half], values[half]);
        let range = [values[0], values[last]];
        Self { name: name.into(), median, range, aim: None, is_met: None }
    }

    /// The figure with a bound on its median.
    pub fn judged(self, aim: &'static str, is_met: impl Fn(f64) -> bool) -> Self {
        Self { aim: Some(aim), is_met: Some(is_met(self.median)), ..self }
    }
}

impl Rounds {
    /// Measures with this program, in a folder of its own, and prints the figures. Exit code 1: a figure misses its
    /// bound, or the measurement failed.
    pub fn run<T: Serialize>(
        &self,
        measure: impl FnOnce(&Path, &Path) -> Result<Vec<T>, TestbedError>,
        figures: impl FnOnce(&[T]) -> Vec<Figure>,
    ) -> ExitCode {
        match self.try_run(measure, figures) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    fn try_run<T: Serialize>(
        &self,
        measure: impl FnOnce(&Path, &Path) -> Result<Vec<T>, TestbedError>,
        figures: impl FnOnce(&[T]) -> Vec<Figure>,
    ) -> anyhow::Result<bool> {
        let dir = tempfile::tempdir()?;
        let turns = measure(Path::new(env!("CARGO_BIN_EXE_forebay-experiments")), dir.path())?;
        let figures = figures(&turns);
        println!("{:<58} {:>12} {:>25}  aim", "", "median", "least .. largest");
        for Figure { name, median, range: [least, largest], aim, is_met } in &figures {
            let aim = aim.unwrap_or_default();
            let verdict = is_met.map_or("", |is_met| if is_met { ": met" } else { ": MISSED" });
            println!("{name:<58} {median:>12.3} {least:>12.3} {largest:>12.3}  {aim}{verdict}");
        }
        if let Some(path) = &self.json {
            let document = serde_json::json!({ "figures": figures, "turns": turns });
            std::fs::write(path, format!("{document:#}\n"))?;
        }
        Ok(figures.iter().all(|figure| figure.is_met != Some(false)))
    }
}
