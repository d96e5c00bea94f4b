//! `forebay export`.

use std::path::PathBuf;
use std::process::ExitCode;

use forebay_lab::export::{self, Choice, ExportError};
use forebay_lab::store::Store;

use super::refuse;
use forebay::{BadInput, print};

/// Write results as CSV or Parquet for other programs.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay export out/bench --format parquet\n  \
    forebay export out/bundler/main --arm status_quo --metric rtt_p50_ms")]
pub struct Export {
    /// Folder of `forebay run --out`, or the folder over all experiments of `forebay bench` or
    /// `reproduce`.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Format of the files: one for each table, and one for the summary of the arms.
    #[arg(long, default_value = "csv")]
    format: Format,
    /// Folder for the files [default: DIR/csv or DIR/parquet].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Export only runs of these plans.
    #[arg(long = "plan", value_delimiter = ',', value_name = "NAME,..")]
    plans: Vec<String>,
    /// Export only runs of these arms.
    #[arg(long = "arm", value_delimiter = ',', value_name = "NAME,..")]
    arms: Vec<String>,
    /// Export only these metrics and quantities over time.
    #[arg(long = "metric", value_delimiter = ',', value_name = "NAME,..")]
    metrics: Vec<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Text with a line of column names (RFC 4180).
    Csv,
    /// Apache Parquet with typed columns, compressed with LZ4.
    Parquet,
}

impl Export {
    /// Writes the files and prints their paths.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let stores = Store::all_in(&self.folder).map_err(refuse)?;
        let format = match self.format {
            Format::Csv => export::Format::Csv,
            Format::Parquet => export::Format::Parquet,
        };
        let out = self.out.unwrap_or_else(|| self.folder.join(format.extension()));
        let choice = Choice { plans: self.plans, arms: self.arms, metrics: self.metrics };
        let refused = |error: ExportError| -> anyhow::Error {
            if error.is_bad_input() { BadInput(error.to_string()).into() } else { error.into() }
        };
        for path in export::export(&stores, &choice, format, &out).map_err(refused)? {
            print(&format!("{}\n", path.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
