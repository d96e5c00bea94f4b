//! `forebay confirm` and `forebay revert`: what is on trial stays, or goes at once.

use std::process::ExitCode;

use super::status::Target;

/// Arguments of `forebay confirm`.
///
/// What `forebay apply` has put on trial stays: the configuration in force becomes the text of the box's file,
/// and what was there before stands beside it as FILE.before.
#[derive(clap::Args)]
pub struct Confirm {
    #[command(flatten)]
    target: Target,
}

/// Arguments of `forebay revert`.
///
/// What `forebay apply` has put on trial goes, without waiting for the end of its time.
#[derive(clap::Args)]
pub struct Revert {
    #[command(flatten)]
    target: Target,
}

#[cfg(feature = "host")]
pub use with_host::keep;

#[cfg(feature = "host")]
mod with_host {
    use std::fs::{self, OpenOptions};
    use std::io::{self, Write};
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
    use std::path::{Path, PathBuf};

    use anyhow::Context;
    use forebay_host::daemon::status::Status;
    use forebay_host::service::control::{Answer, Request, ask};

    use super::*;
    use crate::commands::status::ANOTHER_QUESTION;
    use crate::commands::{BadInput, print};

    impl Target {
        /// Sockets of the boxes that have something on trial.
        fn on_trial(&self) -> anyhow::Result<Vec<PathBuf>> {
            let mut found = Vec::new();
            for socket in self.sockets()? {
                // One that does not answer has nothing that could be confirmed.
                if let Ok(Answer::<Status>::Status(status)) = ask(&socket, Request::Status)
                    && status.trial.is_some()
                {
                    found.push(socket);
                }
            }
            if found.is_empty() {
                let reason = "nothing is on trial: either it was confirmed, or what was before is in force again";
                return Err(BadInput(reason.into()).into());
            }
            Ok(found)
        }
    }

    impl Confirm {
        /// Confirms at each box that waits for it.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            for socket in self.target.on_trial()? {
                print(&(keep(&socket)? + "\n"))?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }

    impl Revert {
        /// Reverts at each box that waits for a word.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            for socket in self.target.on_trial()? {
                print(&(told(&socket, Request::Revert)? + "\n"))?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }

    /// Confirms what is on trial at a box, and has the box's file say the same.
    pub fn keep(socket: &Path) -> anyhow::Result<String> {
        let status = match ask::<Status>(socket, Request::Status)? {
            Answer::Status(status) => status,
            _ => anyhow::bail!(ANOTHER_QUESTION),
        };
        let file = PathBuf::from(status.config_file);
        let text = told(socket, Request::Config)?;
        let said = told(socket, Request::Confirm)?;
        let named = || {
            format!(
                "{said}, but {} does not say so yet: the box would take what is there at its next start",
                file.display()
            )
        };
        replace(&file, &text).with_context(named)?;
        Ok(format!("{said}: {} says so", file.display()))
    }

    /// What a box says to a request.
    fn told(socket: &Path, request: Request) -> anyhow::Result<String> {
        let no_answer = || format!("no answer on {}", socket.display());
        match ask::<Status>(socket, request).with_context(no_answer)? {
            Answer::Done(said) => Ok(said),
            Answer::Failed(reason) => anyhow::bail!(reason),
            Answer::Status(_) | Answer::Changed(_) => anyhow::bail!(ANOTHER_QUESTION),
        }
    }

    /// Gives a file another text, whole, with its owner and mode. What was there stays as FILE.before.
    fn replace(file: &Path, text: &str) -> io::Result<()> {
        // Where it leads, if it is a link.
        let file = fs::canonicalize(file)?;
        if fs::read_to_string(&file)? == text {
            return Ok(());
        }
        let beside = |ending: &str| {
            let mut name = file.as_os_str().to_owned();
            name.push(ending);
            PathBuf::from(name)
        };
        let (new, before) = (beside(".new"), beside(".before"));
        for left in [&new, &before] {
            match fs::remove_file(left) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let there = fs::metadata(&file)?;
        let mut written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        written.write_all(text.as_bytes())?;
        fchown(&written, Some(there.uid()), Some(there.gid()))?;
        written.set_permissions(there.permissions())?;
        written.sync_all()?;
        fs::hard_link(&file, &before)?;
        fs::rename(&new, &file)
    }

    #[cfg(test)]
    mod tests {
        use std::os::unix::fs::PermissionsExt;

        use super::*;

        #[test]
        fn a_file_is_replaced_whole_and_what_was_there_is_kept() {
            let folder = tempfile::tempdir().unwrap();
            let [file, link] = ["box.toml", "link.toml"].map(|name| folder.path().join(name));
            fs::write(&file, "one").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
            std::os::unix::fs::symlink(&file, &link).unwrap();
            for (text, before) in
                [("two", Some("one")), ("two", Some("one")), ("three", Some("two"))]
            {
                replace(&link, text).unwrap();
                assert_eq!(fs::read_to_string(&file).unwrap(), text);
                let kept = fs::read_to_string(folder.path().join("box.toml.before")).ok();
                assert_eq!(kept.as_deref(), before);
            }
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
            assert!(!folder.path().join("box.toml.new").exists());
        }
    }
}

#[cfg(not(feature = "host"))]
impl Confirm {
    /// Says what is missing.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = self.target.socket;
        Err(super::needs_host("confirm"))
    }
}

#[cfg(not(feature = "host"))]
impl Revert {
    /// Says what is missing.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = self.target.socket;
        Err(super::needs_host("revert"))
    }
}
