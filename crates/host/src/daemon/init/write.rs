//! Writes a draft and its key. Neither replaces an existing file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use serde::Serialize;

use super::Draft;
use crate::daemon::keys::{self, KeyFileError};

/// Origin of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    /// The key file existed, and holds a key.
    Read,
    /// A new key was made.
    Made,
}

/// Reason why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// There is a file of this name.
    #[error(
        "{}: exists already and is never overwritten: give another --name or --out, or move the \
         file away",
        .0.display()
    )]
    There(PathBuf),
    /// The key file.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// `--key` names a file that is not there.
    #[error(
        "--key {}: no such file: copy it from the other box, or leave --key out for a new key",
        .0.display()
    )]
    NoKey(PathBuf),
    /// The system refused an operation.
    #[error("{}: {error}{}", file.display(), advice(error))]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// Advice about an error of the system.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ": run this as root, or give --out FILE",
        io::ErrorKind::NotFound => ": its folder does not exist; the package creates /etc/forebay",
        _ => "",
    }
}

impl Draft {
    /// Writes the file, and makes a key unless there is one. A key that is `given` must be there.
    ///
    /// # Errors
    ///
    /// Nothing was written, and no key made.
    pub fn write(&self, is_given: bool) -> Result<KeyState, WriteError> {
        if fs::symlink_metadata(&self.file).is_ok() {
            return Err(WriteError::There(self.file.clone()));
        }
        let key = match keys::load(&self.key_file) {
            Ok(_) => KeyState::Read,
            Err(KeyFileError::Absent { .. }) if is_given => {
                return Err(WriteError::NoKey(self.key_file.clone()));
            }
            Err(KeyFileError::Absent { .. }) => {
                if let Some(folder) = self.file.parent().filter(|it| !it.as_os_str().is_empty()) {
                    fs::metadata(folder).map_err(|error| self.failed(error))?;
                }
                keys::generate(&self.key_file)?;
                KeyState::Made
            }
            Err(error) => return Err(error.into()),
        };
        let written = self.write_text();
        if written.is_err() && key == KeyState::Made {
            // A new key is useless without the file.
            let _ = fs::remove_file(&self.key_file);
        }
        written.map(|()| key)
    }

    fn write_text(&self) -> Result<(), WriteError> {
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&self.file);
        let mut file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => WriteError::There(self.file.clone()),
            _ => self.failed(error),
        })?;
        let written = file.write_all(self.text.as_bytes()).and_then(|()| file.sync_all());
        written.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> WriteError {
        WriteError::Io { file: self.file.clone(), error }
    }
}
