//! `forebay read-keys`: the process that reads the files of a box which is no longer root.

use std::path::PathBuf;
use std::process::ExitCode;

use forebay_host::daemon::keys::reader;

/// Arguments of `forebay read-keys`.
#[derive(clap::Args)]
pub struct ReadKeys {
    /// The user of the box.
    #[arg(long)]
    uid: u32,
    /// Group of that user.
    #[arg(long)]
    gid: u32,
    /// The name of the box, of those of the configuration file.
    #[arg(long = "box", value_name = "NAME")]
    name: String,
    /// The configuration file of the box, which names the key files.
    #[arg(last = true)]
    file: PathBuf,
}

impl ReadKeys {
    /// Answers until the box ends.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        reader::serve(&self.file, &self.name, self.uid, self.gid)?;
        Ok(ExitCode::SUCCESS)
    }
}
