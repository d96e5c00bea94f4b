//! `forebay compare`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use forebay_core::spec::nearest_words;
use forebay_lab::compare::{self, CompareOptions, ComparedSide, Comparison, FigurePlace};
use forebay_lab::metrics::catalogue;
use forebay_lab::output::text_table;
use serde_json::json;

use super::{refuse, share};
use forebay::{BadInput, print, within};

/// Compare two folders of results.
///
/// Prints each metric of each arm that changed significantly from OLD to NEW.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay compare out/before out/after\n  \
    forebay compare out/before out/after --metric throughput --above 0.05\n  \
    forebay compare out/before out/after --fail --report diff.html")]
pub struct Compare {
    /// Folder of `forebay run --out`, or the folder over all experiments of `forebay bench` or
    /// `reproduce`.
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// Folder to compare with, for example of a later commit.
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Show only metrics whose names contain TEXT.
    #[arg(long, default_value = "", value_name = "TEXT")]
    metric: String,
    /// Show only metrics whose median changes by at least this share, 0 to 1.
    #[arg(long, default_value_t = 0.02, value_parser = share, value_name = "SHARE")]
    above: f64,
    /// Largest chance of any false alarm in the whole comparison, 0.001 to 0.5.
    #[arg(long, default_value_t = 0.01, value_parser = level, value_name = "SHARE")]
    level: f64,
    /// Exit with code 1 if a metric changed or could not be compared, for continuous integration.
    #[arg(long)]
    fail: bool,
    /// Print one JSON document and nothing else on stdout.
    #[arg(long)]
    json: bool,
    /// Write figures of the changes into this HTML file.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl Compare {
    /// Prints every metric of every arm that differs beyond the noise.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let side = |folder: &Path| ComparedSide::read(folder).map_err(refuse);
        let (old, new) = (side(&self.old)?, side(&self.new)?);
        let options =
            CompareOptions { level: self.level, above: self.above, metric: self.metric.clone() };
        let found = compare::compare(old, new, &options);
        if found.figures == 0 && !self.metric.is_empty() {
            let names: Vec<&str> = catalogue().map(|entry| entry.name).collect();
            let near = nearest_words(&self.metric, &names);
            let refusal = format!(
                "--metric {}: allowed is a part of the name of a metric that both folders have{near}",
                self.metric
            );
            return Err(BadInput(refusal).into());
        }
        if let Some(path) = &self.report {
            let refused = |error| BadInput(format!("--report {error:#}"));
            compare::write(&found, path).map_err(refused)?;
        }
        print(&if self.json { format!("{:#}\n", json!(found)) } else { text(&found) })?;
        let is_fine = !self.fail || found.is_equal();
        Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn text(found: &Comparison) -> String {
    let names = found.old.names(&found.new);
    let mut text = String::new();
    for changes in found.listed().chunk_by(|one, other| one.place == other.place) {
        let table = compare::table(changes, &names);
        text += &format!("{}\n{}\n", changes[0].place, text_table(&table.columns, &table.rows));
    }
    for (only, name) in [(&found.only_old, &names[0]), (&found.only_new, &names[1])] {
        let line = |place: &FigurePlace| format!("{place}: only in {name}\n");
        text.extend(only.iter().map(line));
    }
    text + &found.in_a_sentence() + "\n"
}

fn level(text: &str) -> Result<f64, String> {
    within(text, 0.001, 0.5)
}
