//! Folders for the files of one attempt.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Job, name};
use crate::run::{Options, RunError};

/// Prefix of temporary folders; the process id of the owner follows.
const PREFIX: &str = "forebay-run-";

/// Folder for the files of one attempt.
pub enum Scratch {
    /// Removed after the attempt, and after the death of this process.
    Temporary {
        /// The folder.
        folder: tempfile::TempDir,
        /// Removes the folder if this process cannot; `None` without a shell.
        _watcher: Option<Watcher>,
    },
    /// A folder that is kept.
    Kept(PathBuf),
}

impl Scratch {
    /// A new and empty folder for `job`.
    pub fn new(job: &Job, options: &Options) -> Result<Self, RunError> {
        let Some(folder) = &options.keep_logs else {
            sweep();
            let prefix = format!("{PREFIX}{}-", std::process::id());
            let folder = tempfile::Builder::new().prefix(&prefix).tempdir()?;
            let _watcher = Watcher::start(folder.path()).ok();
            return Ok(Self::Temporary { folder, _watcher });
        };
        let name = name(&job.key).replace([' ', '/'], "_");
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

    /// Path of the folder.
    pub fn folder(&self) -> &Path {
        match self {
            Self::Temporary { folder, .. } => folder.path(),
            Self::Kept(folder) => folder,
        }
    }
}

/// A process that removes a folder after this process has ended, also by `kill -9`.
pub struct Watcher {
    shell: Child,
}

/// Waits for the end of stdin; only this process holds the other end. The programs of a run die with this
/// process, too, but perhaps a moment later, and may still write. Signals from the terminal are for the run.
const WATCH: &str = r#"
trap '' INT TERM HUP
read -r _
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf -- "$1" && exit
    sleep 0.2
done
"#;

impl Watcher {
    fn start(folder: &Path) -> io::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", WATCH, "forebay-scratch"]).arg(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { shell: command.spawn()? })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Waiting closes its stdin first.
        let _ = self.shell.wait();
    }
}

/// Removes temporary folders whose process is gone, if neither the process nor its watcher could.
fn sweep() {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        let Some(Ok(owner)) = owner.map(str::parse::<u32>) else { continue };
        if Path::new("/proc/self").exists() && !Path::new(&format!("/proc/{owner}")).exists() {
            // Another process may be sweeping too; leftovers are removed at the next sweep.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_removed_with_last_watcher_handle() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("it's a run");
        std::fs::create_dir_all(run.join("deep")).unwrap();
        std::fs::write(run.join("deep/log"), "text").unwrap();
        let watcher = Watcher::start(&run).unwrap();
        assert!(run.exists(), "not before");
        drop(watcher);
        assert!(!run.exists() && folder.path().exists());
    }
}
