//! `forebay export`.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use forebay_lab::store::{Store, TABLES};

use super::{print, refuse};

/// Arguments of `forebay export`.
#[derive(clap::Args)]
pub struct Export {
    /// A folder that `forebay run --out` wrote.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Format of the files.
    #[arg(long, default_value = "csv")]
    format: Format,
    /// Where they go [default: DIR/csv].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// One file a table, with a head of column names (RFC 4180).
    Csv,
}

impl Export {
    /// Writes the files and prints their paths.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let store = Store::open(&self.folder).map_err(refuse)?;
        let Format::Csv = self.format;
        let out = self.out.unwrap_or_else(|| self.folder.join("csv"));
        std::fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
        for table in TABLES {
            let path = out.join(format!("{table}.csv"));
            let file = std::fs::File::create(&path).with_context(|| path.display().to_string())?;
            let mut writer = BufWriter::new(file);
            store.csv(table, &mut writer)?;
            writer.flush()?;
            print(&format!("{}\n", path.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
