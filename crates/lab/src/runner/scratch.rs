//! Folders for the files of one attempt.

use std::path::{Path, PathBuf};

use super::{Job, Options, RunnerError};

/// How temporary folders begin; the number of the process that owns one follows.
const PREFIX: &str = "forebay-run-";

/// Where the files of one attempt go.
pub enum Scratch {
    /// Removed after the attempt.
    Temporary(tempfile::TempDir),
    /// Kept.
    Kept(PathBuf),
}

impl Scratch {
    /// A new and empty folder for `job`.
    pub fn new(job: &Job, options: &Options) -> Result<Self, RunnerError> {
        let Some(folder) = &options.keep_logs else {
            sweep();
            let prefix = format!("{PREFIX}{}-", std::process::id());
            return Ok(Self::Temporary(tempfile::Builder::new().prefix(&prefix).tempdir()?));
        };
        let name = job.name().replace([' ', '/'], "_");
        // An earlier attempt's files stay.
        for attempt in 1.. {
            let folder = folder.join(format!("{name}-{attempt}"));
            match std::fs::create_dir_all(folder.parent().unwrap_or(&folder))
                .and_then(|()| std::fs::create_dir(&folder))
            {
                Ok(()) => return Ok(Self::Kept(folder)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
        }
        unreachable!("some number is free")
    }

    /// Its path.
    pub fn folder(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(folder) => folder,
        }
    }
}

/// Removes what killed processes could not: temporary folders whose process is gone.
fn sweep() {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        let Some(Ok(owner)) = owner.map(str::parse::<u32>) else { continue };
        if Path::new("/proc/self").exists() && !Path::new(&format!("/proc/{owner}")).exists() {
            // Somebody else may be sweeping too; what stays is swept the next time.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
