//! Key files: one pre-shared key per line in hexadecimal, readable only by their owner.
//!
//! [`KeyRing`] defines the contents of a file, and how keys are rotated without a gap. This module
//! checks who may read it.

pub mod reader;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use forebay_core::bundle::keys::{KeyError, KeyRing};
use forebay_reader::PROBLEMS_MAX;

use super::config::{self, Config, ConfigError};

/// Longest key file: two keys and some comments.
const MAX_FILE: u64 = 4096;

/// Reason why a key file is refused. No message contains key material.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The system refused an operation.
    #[error("{}: {error}{}", file.display(), advice(error))]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file does not exist.
    #[error("{}: no such file: `forebay keygen` makes one, for both boxes of the \
             bundle", file.display())]
    Absent {
        /// The file.
        file: PathBuf,
    },
    /// Other users could read the file.
    #[error(
        "{}: mode {mode:04o}: allowed is 0600 or narrower; run `chmod 600 {}`",
        file.display(),
        file.display()
    )]
    Mode {
        /// The file.
        file: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// Another user owns the file.
    #[error(
        "{}: owned by user {owner}: allowed is user {user} or root; run `chown {user} {}`",
        file.display(),
        file.display()
    )]
    Owner {
        /// The file.
        file: PathBuf,
        /// Owner of the file.
        owner: u32,
        /// The effective user of the daemon.
        user: u32,
    },
    /// The process that reads key files reports an error, or does not answer.
    #[error("{0}")]
    Reader(String),
    /// The file does not contain one or two keys.
    #[error("{}: {error}; `forebay keygen` makes a new file, for both boxes of the bundle", file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// The line, and the error in it.
        error: KeyError,
    },
}

/// Advice about an error of the system, if there is any.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ": run this as root, or as the owner of the file",
        _ => "",
    }
}

/// The texts of the key files of all bundles of `config`. Each holds keys.
///
/// # Errors
///
/// The files that cannot be used, at most fifty, with the lines that name them.
pub fn read_all(config: &Config) -> Result<Vec<String>, ConfigError> {
    let read_one = |bundle: &config::BundleConfig| {
        let path = &bundle.key_file;
        read(path).and_then(|keys| parse(path, &keys).map(|_| keys))
    };
    let (mut texts, mut errors) = (Vec::new(), Vec::new());
    for (place, bundle) in config.bundles.iter().enumerate() {
        match read_one(bundle) {
            Ok(keys) => texts.push(keys),
            Err(error) => errors.push((place, error)),
        }
    }
    if errors.is_empty() {
        return Ok(texts);
    }
    let problem = |(place, error): (usize, KeyFileError)| {
        config.problem(Some(place), "bundle.key_file", format!(": {error}"))
    };
    let problems = errors.into_iter().take(PROBLEMS_MAX).map(problem).collect();
    Err(ConfigError { file: config.file.display().to_string(), problems })
}

/// Reads the key file at `path`. The mode is checked on the open file, so that the file cannot be
/// replaced in between.
pub fn load(path: &Path) -> Result<KeyRing, KeyFileError> {
    parse(path, &read(path)?)
}

fn parse(path: &Path, text: &str) -> Result<KeyRing, KeyFileError> {
    KeyRing::parse(text).map_err(|error| KeyFileError::Content { file: path.to_owned(), error })
}

/// The text of the key file at `path`, if no other user can read it.
fn read(path: &Path) -> Result<String, KeyFileError> {
    let io = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => KeyFileError::Absent { file: path.to_owned() },
        _ => KeyFileError::Io { file: path.to_owned(), error },
    };
    let file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o177 != 0 {
        return Err(KeyFileError::Mode { file: path.to_owned(), mode });
    }
    let user = nix::unistd::geteuid().as_raw();
    if metadata.uid() != user && metadata.uid() != 0 {
        return Err(KeyFileError::Owner { file: path.to_owned(), owner: metadata.uid(), user });
    }
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text).map_err(io)?;
    Ok(text)
}

/// Writes a new random key to a new file of mode 0600. An existing file is refused: the other box
/// may depend on it.
pub fn generate(path: &Path) -> Result<(), KeyFileError> {
    let io = |error| KeyFileError::Io { file: path.to_owned(), error };
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| io(io::Error::other(error)))?;
    let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io)?;
    file.write_all(format!("{digits}\n").as_bytes()).map_err(io)?;
    file.sync_all().map_err(io)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_generated_key_is_private_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bundle.key");
        generate(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let keys = load(&path).unwrap();
        assert_eq!(keys.keys().count(), 1);
        assert!(matches!(generate(&path), Err(KeyFileError::Io { .. })));
        assert_eq!(load(&path).unwrap(), keys, "the old key is still there");
        let other = folder.path().join("other.key");
        generate(&other).unwrap();
        assert_ne!(load(&other).unwrap(), keys);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bundle.key");
        generate(&path).unwrap();
        for (mode, is_fine) in
            [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o700, false)]
        {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let result = load(&path);
            assert_eq!(result.is_ok(), is_fine, "{mode:o}: {result:?}");
        }
    }

    #[test]
    fn error_names_file_and_line_but_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bundle.key");
        generate(&path).unwrap();
        let secret = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("# key\n{}x\n", &secret[..63])).unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("bundle.key: line 2"), "{error}");
        assert!(!error.contains(&secret[..16]), "{error}");
    }
}
