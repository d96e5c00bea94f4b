//! The candidate of a box's configuration file: the text that `forebay apply` has on trial, and `forebay
//! confirm` keeps.
//!
//! Both commands may be root's, and the box need not be: no text and no name in a box's answer is written
//! anywhere. The operator names the box's file, and the text is the candidate that `forebay apply` has
//! written next to it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use forebay_host::daemon::keys::reader::candidate_of;
use forebay_host::daemon::status::Status;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use super::BadInput;

/// The file of a box: the file that the operator has `named`, and else the unit's. The box's answer is
/// compared with it.
pub fn file_of(status: &Status, named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let file = match named {
        Some(file) => std::path::absolute(file)?,
        None => format!("/etc/forebay/{}.toml", status.role).into(),
    };
    let told = &status.config_file;
    if file.display().to_string() == *told {
        return Ok(file);
    }
    let reason = format!(
        "{} is not the file that the box was started with, which is {told:?}: name the box's file with --config",
        file.display()
    );
    Err(BadInput(reason).into())
}

/// The candidate of a file, for one command at a time.
pub struct Candidate {
    file: PathBuf,
    path: PathBuf,
    _lock: File,
}

impl Candidate {
    /// The candidate of a box's `file`, unless another command is at work there.
    pub fn of(file: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot lock {}", file.display());
        let lock = File::open(file).with_context(cannot)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => anyhow::bail!(
                "another `forebay apply` or `forebay confirm` is using {}",
                file.display()
            ),
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        Ok(Self { file: file.to_owned(), path: candidate_of(file), _lock: lock })
    }

    /// Replaces the candidate: readers of the file may read it, and only its owner may write it.
    pub fn write(&self, text: &str) -> anyhow::Result<()> {
        let written = || {
            self.remove_if_there()?;
            let mut options = OpenOptions::new();
            let mut new = options.write(true).create_new(true).mode(0o600).open(&self.path)?;
            new.write_all(text.as_bytes())?;
            let mode = fs::metadata(&self.file)?.permissions().mode() & 0o755;
            new.set_permissions(fs::Permissions::from_mode(mode))
        };
        written().with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Text of the candidate, if `forebay apply` has written it as this user or root.
    pub fn text(&self) -> anyhow::Result<String> {
        let cannot = || format!("cannot take {}", self.path.display());
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let opened = OpenOptions::new().read(true).custom_flags(flags.bits()).open(&self.path);
        let mut opened = opened.with_context(cannot)?;
        let metadata = opened.metadata().with_context(cannot)?;
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        let is_ours = owner == 0 || owner == geteuid().as_raw();
        if !metadata.is_file() || !is_ours || mode & 0o022 != 0 {
            anyhow::bail!(
                "{}: owned by user {owner}, mode {mode:04o}: allowed is a regular file of root or of you that only \
                 its owner may write",
                self.path.display()
            );
        }
        let mut text = String::new();
        opened.read_to_string(&mut text).with_context(cannot)?;
        Ok(text)
    }

    /// Removes the candidate, if it is there.
    pub fn remove(&self) -> anyhow::Result<()> {
        let removed = self.remove_if_there();
        removed.with_context(|| format!("cannot remove {}", self.path.display()))
    }

    fn remove_if_there(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidate_is_locked_and_only_apply_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let [file, other] = ["box.toml", "other"].map(|name| folder.path().join(name));
        fs::write(&file, "before").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
        let candidate = Candidate::of(&file).unwrap();
        let error = Candidate::of(&file).err().unwrap().to_string();
        assert!(error.contains("is using"), "{error}");
        candidate.remove().unwrap();
        assert!(candidate.text().is_err());
        for text in ["one", "two"] {
            candidate.write(text).unwrap();
            assert_eq!(candidate.text().unwrap(), text);
        }
        let path = candidate_of(&file);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let error = candidate.text().unwrap_err().to_string();
        assert!(error.contains("mode 0666: allowed is a regular file"), "{error}");
        fs::remove_file(&path).unwrap();
        fs::write(&other, "another's").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(candidate.text().is_err(), "no link is followed");
        candidate.write("three").unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "another's");
        drop(candidate);
        assert_eq!(Candidate::of(&file).unwrap().text().unwrap(), "three");
    }
}
