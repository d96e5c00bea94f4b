//! `forebay keep-python`: the process that keeps a child in Python running for a daemon.

use std::path::PathBuf;
use std::process::ExitCode;

use forebay_host::foreign_python::keeper;

/// Arguments of `forebay keep-python`.
#[derive(clap::Args)]
pub struct KeepPython {
    /// The user to become.
    #[arg(long, requires = "gid")]
    uid: Option<u32>,
    /// Group of that user.
    #[arg(long, requires = "uid")]
    gid: Option<u32>,
    /// The file that defines the algorithms.
    #[arg(last = true)]
    file: PathBuf,
}

impl KeepPython {
    /// Runs until the daemon ends.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        keeper::keep(&self.file, self.uid.zip(self.gid))?;
        Ok(ExitCode::SUCCESS)
    }
}
