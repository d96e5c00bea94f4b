//! Key files: 32 random bytes in hexadecimal, one key a line, readable by their owner alone.
//!
//! During a rotation the file holds two keys: both are accepted, the first one is used to send. So
//! a rotation is: put the new key second at both boxes, reload, put it first at both, reload, remove
//! the old one.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// Longest key file: two keys and some comment.
const MAX_FILE: u64 = 4096;

/// A secret shared by the two boxes of a bundle. It is not printed, not even by `{:?}`.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

impl Key {
    /// A new key from the kernel's random numbers.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(bytes))
    }

    /// The secret bytes.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    fn from_hex(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if text.len() != 2 * KEY_BYTES {
            return None;
        }
        let mut bytes = [0; KEY_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |c: u8| char::from(c).to_digit(16);
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Some(Self(bytes))
    }

    fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The keys in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Used to send, and accepted.
    pub current: Key,
    /// Accepted too, during a rotation.
    pub other: Option<Key>,
}

/// Why a key file is refused. No message contains key material.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The system's answer.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// Others could read it.
    #[error("{file}: mode {mode:04o}: allowed is 0600 or narrower; chmod 600 {file}")]
    Mode {
        /// The file.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Someone else owns it.
    #[error("{file}: owned by user {owner}: allowed is user {user} or root")]
    Owner {
        /// The file.
        file: PathBuf,
        /// Its owner.
        owner: u32,
        /// The effective user of the daemon.
        user: u32,
    },
    /// A line is no key.
    #[error("{file}:{line}: no key: allowed are {} hexadecimal digits", 2 * KEY_BYTES)]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    /// Not one or two keys.
    #[error("{file}: {count} keys: allowed are 1, or 2 during a rotation")]
    Count {
        /// The file.
        file: PathBuf,
        /// Keys found.
        count: usize,
    },
}

impl Keys {
    /// Reads the key file at `path`. Its mode is checked on the open file, so that it cannot be
    /// exchanged in between.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let io = |error| KeyError::Io { file: path.to_owned(), error };
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        let mode = metadata.mode() & 0o7777;
        if mode & 0o177 != 0 {
            return Err(KeyError::Mode { file: path.to_owned(), mode });
        }
        let user = nix::unistd::geteuid().as_raw();
        if metadata.uid() != user && metadata.uid() != 0 {
            return Err(KeyError::Owner { file: path.to_owned(), owner: metadata.uid(), user });
        }
        let mut text = String::new();
        file.take(MAX_FILE).read_to_string(&mut text).map_err(io)?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, KeyError> {
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let malformed = || KeyError::Malformed { file: path.to_owned(), line: index + 1 };
            keys.push(Key::from_hex(line).ok_or_else(malformed)?);
        }
        let count = keys.len();
        let mut keys = keys.into_iter();
        match (keys.next(), keys.next(), keys.next()) {
            (Some(current), other, None) => Ok(Self { current, other }),
            _ => Err(KeyError::Count { file: path.to_owned(), count }),
        }
    }
}

/// Writes a new random key to a new file of mode 0600. An existing file is refused: the other box
/// may depend on it.
pub fn generate(path: &Path) -> Result<(), KeyError> {
    let io = |error| KeyError::Io { file: path.to_owned(), error };
    let key = Key::random().map_err(io)?;
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io)?;
    file.write_all(format!("{}\n", key.to_hex()).as_bytes()).map_err(io)?;
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
        let keys = Keys::load(&path).unwrap();
        assert!(keys.other.is_none());
        assert_ne!(keys.current, Key([0; KEY_BYTES]));
        assert!(matches!(generate(&path), Err(KeyError::Io { .. })));
        assert_eq!(Keys::load(&path).unwrap(), keys, "the old key is still there");
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
            let result = Keys::load(&path);
            assert_eq!(result.is_ok(), is_fine, "{mode:o}: {result:?}");
        }
    }

    #[test]
    fn two_keys_are_a_rotation_and_three_are_none() {
        let (a, b) = ("0a".repeat(32), "F1".repeat(32));
        let path = Path::new("k");
        let keys = Keys::parse(path, &format!("# new\n{a}\n\n{b} # old\n")).unwrap();
        assert_eq!(keys.current.as_bytes(), &[0x0a; 32]);
        assert_eq!(keys.other.unwrap().as_bytes(), &[0xf1; 32]);
        for (text, message) in [
            (String::new(), "k: 0 keys"),
            (format!("{a}\n{a}\n{b}\n"), "k: 3 keys"),
            (format!("{a}\nzz{}\n", &b[2..]), "k:2: no key"),
            (a[1..].to_string(), "k:1: no key"),
        ] {
            let error = Keys::parse(path, &text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
            assert!(!error.contains("f1f1"), "{error}");
        }
    }

    #[test]
    fn debug_output_hides_the_key() {
        let key = Key([7; KEY_BYTES]);
        assert_eq!(format!("{key:?}"), "Key(..)");
    }
}
