//! `forebay confirm` and `forebay revert`: keep a trial, or end it at once.

use std::path::PathBuf;
use std::process::ExitCode;

use super::status::Target;

/// Keep the configuration or the start that is on trial.
///
/// Keeps the configuration that `forebay apply` has put on trial: writes it to the box's file, and
/// saves the earlier text as FILE.before. If the start of a box is on trial, no file changes.
///
/// If `forebay confirm` was interrupted, run it again: it completes the change.
///
/// Exit code 1: nothing is on trial, or no box answers; 2: --config is not the box's file.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay confirm\n  \
    forebay confirm --socket /run/forebay/sendbox.sock --config /etc/forebay/sendbox.toml")]
pub struct Confirm {
    #[command(flatten)]
    target: Target,
    /// File that the box was started with [default: /etc/forebay/sendbox.toml or receivebox.toml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// End a trial now, and go back.
///
/// Ends the trial that `forebay apply` started, without waiting for its time to pass.
///
/// Exit code 1: nothing is on trial, or no box answers.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay revert")]
pub struct Revert {
    #[command(flatten)]
    target: Target,
}

#[cfg(feature = "host")]
pub use with_host::{keep, state, told};

#[cfg(feature = "host")]
mod with_host {
    use std::fs::{self, File, OpenOptions};
    use std::io::{self, Write};
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
    use std::path::Path;

    use anyhow::Context;
    use forebay_host::daemon::reload::start;
    use forebay_host::daemon::status::Status;
    use forebay_host::service::control::{Answer, Request, ask};

    use super::*;
    use crate::commands::candidate::{Candidate, file_of};
    use crate::commands::print;
    use crate::commands::status::{ANOTHER_QUESTION, State};

    impl Target {
        /// Sockets of boxes: with a trial, and without.
        fn by_trial(&self) -> anyhow::Result<[Vec<PathBuf>; 2]> {
            let (mut found, mut failed) = ([Vec::new(), Vec::new()], None);
            for socket in self.sockets()? {
                let no_answer = || format!("no answer on {}", socket.display());
                let status = match ask::<State>(&socket, Request::Status).with_context(no_answer) {
                    Ok(Answer::Status(state)) => Ok(*state),
                    Ok(Answer::Failed(reason)) => Err(anyhow::anyhow!(reason)),
                    Ok(_) => Err(anyhow::anyhow!(ANOTHER_QUESTION)),
                    Err(error) => Err(error),
                };
                match status {
                    Ok(State::Box(status)) => {
                        found[usize::from(status.trial.is_none())].push(socket)
                    }
                    Ok(State::Agent(_)) => {}
                    Err(error) => failed = Some(error),
                }
            }
            match failed {
                // A box that does not answer may have a trial.
                Some(error) if found[0].is_empty() => Err(error),
                Some(error) => {
                    eprintln!("warning: {error:#}");
                    Ok(found)
                }
                None => Ok(found),
            }
        }
    }

    /// Error of `confirm` and `revert` if no box has a trial.
    const NOTHING: &str =
        "nothing is on trial: it was confirmed, or the earlier configuration is in force again";

    impl Confirm {
        /// Confirms at each box with a trial. If there is no trial, completes an interrupted confirmation.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            let [on_trial, others] = self.target.by_trial()?;
            let config = self.config.as_deref();
            for socket in &on_trial {
                keep(socket, config)?;
            }
            let mut is_done = !on_trial.is_empty();
            for socket in others.iter().filter(|_| on_trial.is_empty()) {
                is_done |= finish(socket, config)?;
            }
            anyhow::ensure!(is_done, NOTHING);
            Ok(ExitCode::SUCCESS)
        }
    }

    impl Revert {
        /// Reverts at each box with a trial.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            let [on_trial, _] = self.target.by_trial()?;
            anyhow::ensure!(!on_trial.is_empty(), NOTHING);
            for socket in on_trial {
                print(&(told(&socket, Request::Revert)? + "\n"))?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }

    /// Writes the configuration on trial to the box's file, then confirms the trial. The operator may have `named`
    /// the file. After an interruption in between, another `confirm` completes the change, or restores the file if
    /// the trial has ended.
    pub fn keep(socket: &Path, named: Option<&Path>) -> anyhow::Result<()> {
        let status = state(socket)?;
        let trial = status.trial.as_ref().context(NOTHING)?;
        if trial.is_start {
            // The box may lack the permission to remove the file. If this fails too, the box's answer says so.
            let _ = start::remove(socket);
            print(&(told(socket, Request::Confirm)? + "\n"))?;
            return Ok(());
        }
        let file = file_of(&status, named)?;
        let candidate = Candidate::of(&file)?;
        let text = candidate.text()?;
        if told(socket, Request::Config)? != text {
            anyhow::bail!(
                "the candidate next to {} is not the configuration in force: it is not confirmed, and nothing is \
                 written",
                file.display()
            );
        }
        replace(&file, &text).with_context(|| {
            format!("cannot write {}: nothing is confirmed, and the trial goes on", file.display())
        })?;
        let said = match told(socket, Request::Confirm) {
            Ok(said) => said,
            Err(error) => {
                take_back(socket, &file, &text)?;
                return Err(error);
            }
        };
        print(&format!("{said}: written to {}\n", file.display()))?;
        candidate.remove()
    }

    /// Completes an interrupted confirmation at a box without a trial. Returns whether the box had confirmed it.
    fn finish(socket: &Path, named: Option<&Path>) -> anyhow::Result<bool> {
        let file = match file_of(&*state(socket)?, named) {
            Ok(file) => file,
            Err(error) if named.is_some() => return Err(error),
            // Without a file, no earlier command wrote one.
            Err(_) => return Ok(false),
        };
        let candidate = Candidate::of(&file)?;
        // Until this command had the lock, `forebay apply` may have put another candidate on trial.
        anyhow::ensure!(state(socket)?.trial.is_none(), "something has just been put on trial");
        let said = told(socket, Request::Confirm).ok();
        let Some(said) = said else {
            if let Ok(text) = candidate.text() {
                take_back(socket, &file, &text)?;
            }
            return Ok(false);
        };
        print(&format!("{said}\n"))?;
        candidate.remove()?;
        Ok(true)
    }

    /// Restores a box's file if it has the text that was on trial, and that text is not in force.
    fn take_back(socket: &Path, file: &Path, on_trial: &str) -> anyhow::Result<()> {
        let in_force = told(socket, Request::Config)?;
        let failed = || format!("{} has a configuration that is not in force", file.display());
        if in_force == on_trial || fs::read_to_string(file).with_context(failed)? != on_trial {
            return Ok(());
        }
        let file = fs::canonicalize(file).with_context(failed)?;
        // Restores the operator's own text, not the box's answer.
        let before = fs::read_to_string(beside(&file, ".before")).with_context(failed)?;
        if before == in_force {
            replace(&file, &before).with_context(failed)?;
            eprintln!("{} has the configuration in force again", file.display());
            return Ok(());
        }
        anyhow::bail!(failed())
    }

    /// The status of a box.
    pub fn state(socket: &Path) -> anyhow::Result<Box<Status>> {
        let no_answer = || format!("no answer on {}", socket.display());
        match ask::<Status>(socket, Request::Status).with_context(no_answer)? {
            Answer::Status(status) => Ok(status),
            Answer::Failed(reason) => anyhow::bail!(reason),
            Answer::Done(_) | Answer::Changed(_) => anyhow::bail!(ANOTHER_QUESTION),
        }
    }

    /// A box's answer to a request.
    pub fn told(socket: &Path, request: Request) -> anyhow::Result<String> {
        let no_answer = || format!("no answer on {}", socket.display());
        match ask::<Status>(socket, request).with_context(no_answer)? {
            Answer::Done(said) => Ok(said),
            Answer::Failed(reason) => anyhow::bail!(reason),
            Answer::Status(_) | Answer::Changed(_) => anyhow::bail!(ANOTHER_QUESTION),
        }
    }

    /// `file` with `ending` appended to its name.
    fn beside(file: &Path, ending: &str) -> PathBuf {
        let mut name = file.as_os_str().to_owned();
        name.push(ending);
        name.into()
    }

    /// Replaces the text of a file atomically, and keeps its owner and mode. When this returns, the text is on the
    /// disk. The earlier text stays as FILE.before.
    fn replace(file: &Path, text: &str) -> io::Result<()> {
        // Follows a symbolic link.
        let file = fs::canonicalize(file)?;
        let folder = File::open(file.parent().unwrap_or(Path::new("/")))?;
        if fs::read_to_string(&file)? == text {
            return folder.sync_all();
        }
        let (new, before) = (beside(&file, ".new"), beside(&file, ".before"));
        remove_if_there(&new)?;
        let there = fs::metadata(&file)?;
        let mut written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        written.write_all(text.as_bytes())?;
        fchown(&written, Some(there.uid()), Some(there.gid()))?;
        written.set_permissions(there.permissions())?;
        written.sync_all()?;
        remove_if_there(&before)?;
        fs::hard_link(&file, &before)?;
        fs::rename(&new, &file)?;
        folder.sync_all()
    }

    fn remove_if_there(file: &Path) -> io::Result<()> {
        match fs::remove_file(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    #[cfg(test)]
    mod tests {
        use std::os::unix::fs::PermissionsExt;

        use super::*;

        #[test]
        fn file_is_replaced_whole_and_earlier_text_kept() {
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
    /// Refuses the command: this build has no feature `host`.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = (self.target.socket, self.config);
        Err(super::needs_host("confirm"))
    }
}

#[cfg(not(feature = "host"))]
impl Revert {
    /// Refuses the command: this build has no feature `host`.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = self.target.socket;
        Err(super::needs_host("revert"))
    }
}
