//! `forebay report`.

use std::path::PathBuf;
use std::process::ExitCode;

use forebay_lab::report;
use forebay_lab::store::Store;
use forebay_lab::summary::Requests;

use super::refuse;
use forebay::print;

/// Arguments of `forebay report`.
#[derive(clap::Args)]
pub struct Report {
    /// A folder that `forebay run --out` wrote.
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
