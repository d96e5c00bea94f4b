//! `forebay report`.

use std::path::PathBuf;
use std::process::ExitCode;

use forebay_lab::report;
use forebay_lab::store::Store;
use forebay_lab::summary::Requests;

use super::refuse;
use forebay::print;

/// Write the report of a folder of results.
///
/// `forebay run` writes the report at its end. Use this command for a store that another program
/// filled, or after an upgrade.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay report out/bundler/main")]
pub struct Report {
    /// Folder that `forebay run --out` wrote.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Report {
    /// Writes `report.html` into the folder and prints its path.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let store = Store::open(&self.folder).map_err(refuse)?;
        print(&format!("{}\n", report::write(&Requests::new(&store))?.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
