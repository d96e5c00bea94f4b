//! `forebay confirm` and `forebay revert`: what is on trial stays, or goes at once.

use std::path::PathBuf;
use std::process::ExitCode;

use super::status::Target;

/// Arguments of `forebay confirm`.
///
/// What `forebay apply` has put on trial stays: the candidate that it has written beside the box's file becomes
/// the text of that, and what was there before stands beside it as FILE.before. Where the start of a box is on
/// trial, no file changes.
#[derive(clap::Args)]
pub struct Confirm {
    #[command(flatten)]
    target: Target,
    /// The file that the box was started with [default: /etc/forebay/sendbox.toml or receivebox.toml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
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
pub use with_host::{keep, state, told};

#[cfg(feature = "host")]
mod with_host {
    use std::fs::{self, OpenOptions};
    use std::io::{self, Write};
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
    use std::path::Path;

    use anyhow::Context;
    use forebay_host::daemon::reload::start;
    use forebay_host::daemon::status::Status;
    use forebay_host::service::control::{Answer, Request, ask};

    use super::*;
    use crate::commands::candidate::{Candidate, file_of};
    use crate::commands::status::{ANOTHER_QUESTION, State};
    use crate::commands::{BadInput, print};

    impl Target {
        /// Sockets of the boxes that have something on trial.
        fn on_trial(&self) -> anyhow::Result<Vec<PathBuf>> {
            let (mut found, mut failed) = (Vec::new(), None);
            for socket in self.sockets()? {
                let no_answer = || format!("no answer on {}", socket.display());
                let status = match ask::<State>(&socket, Request::Status).with_context(no_answer) {
                    Ok(Answer::Status(state)) => Ok(*state),
                    Ok(Answer::Failed(reason)) => Err(anyhow::anyhow!(reason)),
                    Ok(_) => Err(anyhow::anyhow!(ANOTHER_QUESTION)),
                    Err(error) => Err(error),
                };
                match status {
                    Ok(State::Box(status)) if status.trial.is_some() => found.push(socket),
                    Ok(_) => {}
                    Err(error) => failed = Some(error),
                }
            }
            match failed {
                // It may have something on trial, or not.
                Some(error) if found.is_empty() => Err(error),
                Some(error) => {
                    eprintln!("warning: {error:#}");
                    Ok(found)
                }
                None if found.is_empty() => Err(BadInput(NOTHING.into()).into()),
                None => Ok(found),
            }
        }
    }

    const NOTHING: &str =
        "nothing is on trial: either it was confirmed, or what was before is in force again";

    impl Confirm {
        /// Confirms at each box that waits for it.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            for socket in self.target.on_trial()? {
                print(&(keep(&socket, self.config.as_deref())? + "\n"))?;
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

    /// Confirms what is on trial at a box, and has the box's file, which the operator may have `named`, say the
    /// same.
    pub fn keep(socket: &Path, named: Option<&Path>) -> anyhow::Result<String> {
        let status = state(socket)?;
        let trial = status.trial.as_ref().context(NOTHING)?;
        if trial.is_start {
            // The box may not be allowed to, and says so then.
            let _ = start::remove(socket);
            return told(socket, Request::Confirm);
        }
        let file = file_of(&status, named)?;
        let candidate = Candidate::of(&file)?;
        let text = candidate.text()?;
        if told(socket, Request::Config)? != text {
            anyhow::bail!(
                "the candidate beside {} is not what the box has in force: it is not confirmed, and nothing is \
                 written",
                file.display()
            );
        }
        let said = told(socket, Request::Confirm)?;
        let not_written = || {
            format!(
                "{said}, but {} does not say so yet: the box would take what is there at its next start",
                file.display()
            )
        };
        replace(&file, &text).with_context(not_written)?;
        candidate.remove()?;
        Ok(format!("{said}: {} says so", file.display()))
    }

    /// What a box says of itself.
    pub fn state(socket: &Path) -> anyhow::Result<Box<Status>> {
        let no_answer = || format!("no answer on {}", socket.display());
        match ask::<Status>(socket, Request::Status).with_context(no_answer)? {
            Answer::Status(status) => Ok(status),
            Answer::Failed(reason) => anyhow::bail!(reason),
            Answer::Done(_) | Answer::Changed(_) => anyhow::bail!(ANOTHER_QUESTION),
        }
    }

    /// What a box says to a request.
    pub fn told(socket: &Path, request: Request) -> anyhow::Result<String> {
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
        let _ = (self.target.socket, self.config);
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
