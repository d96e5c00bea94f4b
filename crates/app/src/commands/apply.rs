//! `forebay apply`: another configuration on trial; without confirmation the box goes back by itself.

#[cfg(feature = "host")]
mod unit;

use std::path::PathBuf;
use std::process::ExitCode;

use forebay_core::units::parse_duration;

/// Try a configuration; the box goes back unless you confirm.
///
/// The running box uses FILE instead of its own file, as after `forebay reload`. Press Enter here,
/// or run `forebay confirm` in time, to keep the change. Otherwise the box goes back to its own
/// file. The box itself measures the time, so it also goes back if you lose this terminal or the
/// connection to it.
///
/// This command copies FILE next to the box's own file, as its candidate. The box's file changes
/// only when you confirm: a box that restarts before that uses its earlier configuration. Relative
/// paths in FILE start from the folder of the box's file.
///
/// If no box runs and FILE belongs to a unit (/etc/forebay/NAME.toml of forebay-sendbox@NAME or
/// forebay-receivebox@NAME), this command starts the unit. The box ends again unless you confirm
/// its start.
///
/// With --dry-run, this command compares FILE with the running box. If no box runs, it compares FILE
/// with devices, programs, qdiscs, filters, addresses, sockets and files. It lists the effects on
/// traffic during the change, the reasons why the box would not start, and the parts that it could
/// not read, for example without root. Nothing changes.
///
/// Exit code 1: you did not confirm in time, no box runs, or the box would not start; 2: FILE was
/// refused, and nothing changed.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay apply --dry-run new.toml            # shows the changes\n  \
    forebay apply new.toml --confirm 60s\n  \
    forebay apply /etc/forebay/sendbox.toml     # no box runs: starts forebay-sendbox@sendbox on trial")]
pub struct Apply {
    /// The new configuration.
    file: PathBuf,
    /// Only show the changes that FILE would make here. FILE may have several boxes.
    #[arg(long, conflicts_with_all = ["confirm", "config", "socket"])]
    dry_run: bool,
    /// Time until the box goes back, 5s to 86400s.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = seconds)]
    confirm: u32,
    /// File that the box was started with [default: /etc/forebay/sendbox.toml or receivebox.toml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Control socket of the box [default: box.control of FILE].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print one JSON document and nothing else on stdout, and do not wait for Enter. With --dry-run,
    /// print one line of JSON for each box of FILE.
    #[arg(long)]
    json: bool,
}

/// Reads a time in whole seconds; the box knows how many are allowed.
fn seconds(text: &str) -> Result<u32, String> {
    let time = parse_duration(text).ok().filter(|time| time.subsec_nanos() == 0);
    let seconds = time.and_then(|time| u32::try_from(time.as_secs()).ok());
    seconds.ok_or_else(|| "allowed is a time of whole seconds, such as \"60s\"".into())
}

#[cfg(feature = "host")]
pub(super) use with_host::preview;

#[cfg(feature = "host")]
mod with_host {
    use std::fs;
    use std::io::{self, IsTerminal};
    use std::path::Path;
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::thread;
    use std::time::{Duration, Instant};

    use anyhow::Context;
    use forebay_host::daemon::Config;
    use forebay_host::daemon::config::unit_of;
    use forebay_host::daemon::reload::trial;
    use forebay_host::daemon::status::Status;
    use forebay_host::service::control::{Answer, Request, ask};
    use forebay_host::service::outcome::Outcome;

    use super::*;
    use crate::commands::candidate::{Candidate, file_of};
    use crate::commands::status::ANOTHER_QUESTION;
    use crate::commands::{BadInput, confirm, print};

    /// How long a box that has crashed may be away until systemd has started it again (s).
    const AWAY_MAX_S: u32 = 10;
    /// How long after the end of a trial its box may be silent.
    const LATENESS: Duration = Duration::from_secs(10);

    impl Apply {
        /// Reports the outcome for each bundle, and waits for Enter at a terminal.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            if self.dry_run {
                return preview(&self.file, self.json);
            }
            let refused = |error: forebay_host::daemon::ConfigError| BadInput(error.to_string());
            trial::check(self.confirm)
                .map_err(|reason| BadInput(format!("--confirm: {reason}")))?;
            let text = Config::read(&self.file).map_err(refused)?;
            let boxes = Config::parse_all(&self.file, &text).map_err(refused)?;
            let [config] = &boxes[..] else { return Err(several(&self.file, &boxes).into()) };
            let socket = self.socket.as_deref().unwrap_or(&config.control);
            let Some(status) = status_of(socket)? else {
                return self.start(config, socket);
            };
            let own = file_of(&status, self.config.as_deref())?;
            if Config::load_all(&own).is_ok_and(|boxes| boxes.len() > 1) {
                let own = own.display();
                let reason = format!(
                    "{own} has several boxes, and a trial is for one box: edit {own} and run `forebay reload`"
                );
                return Err(BadInput(reason).into());
            }
            let place = |file: &Path| {
                fs::canonicalize(file).with_context(|| format!("cannot find {}", file.display()))
            };
            if place(&own)? == place(&self.file)? {
                let own = own.display();
                let reason = format!(
                    "{own} is the box's own file, which a trial would not restore: name a copy with your changes, \
                     or run `forebay reload`"
                );
                return Err(BadInput(reason).into());
            }
            let outcome = self.put_on_trial(&own, &text, socket)?;
            if !outcome.refused.is_empty() {
                if self.json {
                    self.show(&outcome)?;
                    return Ok(ExitCode::from(2));
                }
                return Err(BadInput(outcome.to_string().trim_end().into()).into());
            }
            self.show(&outcome)?;
            match outcome.confirm_within_s {
                Some(_) => self.wait(socket, Some((status.pid, &text))),
                None => Ok(ExitCode::SUCCESS),
            }
        }

        fn show(&self, outcome: &Outcome) -> anyhow::Result<()> {
            let text = if self.json {
                format!("{}\n", serde_json::json!(outcome))
            } else {
                outcome.to_string()
            };
            print(&text)?;
            Ok(())
        }

        /// Has the box take the text as the candidate of its `own` file, which stays there for `forebay confirm`.
        fn put_on_trial(&self, own: &Path, text: &str, socket: &Path) -> anyhow::Result<Outcome> {
            let candidate = Candidate::of(own)?;
            // The candidate that is there is needed until then.
            if let Some(trial) = confirm::state(socket)?.trial {
                let (what, left_s) = (trial.what, trial.left_s);
                let reason = format!(
                    "{what} is on trial for {left_s} s more: run `forebay confirm` or `forebay revert` first"
                );
                return Ok(Outcome::refused(own.display().to_string(), reason));
            }
            candidate.write(text)?;
            let answer = ask::<Status>(socket, Request::Apply { within_s: self.confirm });
            let may_be_on_trial = match &answer {
                Ok(Answer::Changed(outcome)) => outcome.confirm_within_s.is_some(),
                Ok(_) => false,
                // A box that answers too late may have it.
                Err(_) => true,
            };
            if !may_be_on_trial {
                candidate.remove()?;
            }
            match answer.with_context(|| format!("no answer on {}", socket.display()))? {
                Answer::Changed(outcome) => Ok(*outcome),
                Answer::Failed(reason) => anyhow::bail!(reason),
                Answer::Status(_) | Answer::Done(_) => anyhow::bail!(ANOTHER_QUESTION),
            }
        }

        /// Starts the unit of a box, which ends again unless that is confirmed.
        fn start(&self, config: &Config, socket: &Path) -> anyhow::Result<ExitCode> {
            let (role, file) = (config.role, self.file.display());
            let own = std::path::absolute(&self.file)?;
            let is_systemd = Path::new("/run/systemd/system").exists();
            let Some(name) = unit_of(role, &own).filter(|_| is_systemd) else {
                anyhow::bail!(
                    "no box answers at {}: start it with `forebay {role} --config {file}`, or move the file to \
                     /etc/forebay/NAME.toml, so that this command can start the unit forebay-{role}@NAME on trial",
                    socket.display()
                );
            };
            let systemctl = |verb| unit::systemctl(verb, &name);
            unit::refuse_active(&name, socket, systemctl)?;
            // The candidate of an earlier trial is not on trial now.
            Candidate::of(&own)?.remove()?;
            let is_on_trial = || is_on_trial(socket);
            unit::start_on_trial(&name, &config.control, self.confirm, systemctl, is_on_trial)?;
            let within_s = self.confirm;
            let text = if self.json {
                format!(
                    "{}\n",
                    serde_json::json!({ "started": name, "confirm_within_s": within_s })
                )
            } else {
                format!(
                    "{name} runs: the box ends in {within_s} s unless you run `forebay confirm`\n"
                )
            };
            print(&text)?;
            self.wait(socket, None)
        }

        /// Waits for Enter as long as the trial lasts, if stdin is a terminal. On trial is this text at this
        /// process, or the start of a box.
        fn wait(&self, socket: &Path, what: Option<(u32, &str)>) -> anyhow::Result<ExitCode> {
            if self.json || !io::stdin().is_terminal() {
                return Ok(ExitCode::SUCCESS);
            }
            print("press Enter to confirm\n")?;
            let (pressed, enter) = mpsc::channel();
            // The thread ends with the process: its read cannot be interrupted.
            thread::spawn(move || {
                let mut line = String::new();
                let _ = pressed.send(io::stdin().read_line(&mut line).is_ok_and(|len| len > 0));
            });
            let deadline = Instant::now() + Duration::from_secs(self.confirm.into()) + LATENESS;
            let mut away_s = 0;
            loop {
                match enter.recv_timeout(Duration::from_secs(1)) {
                    Ok(true) => {
                        confirm::keep(socket, self.config.as_deref())?;
                        return Ok(ExitCode::SUCCESS);
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    // The terminal is gone; the box keeps the time.
                    Ok(false) | Err(RecvTimeoutError::Disconnected) => {
                        return Ok(ExitCode::FAILURE);
                    }
                }
                match seen(socket, what) {
                    Ok(Seen::OnTrial) => away_s = 0,
                    // Its unit starts a box again that has crashed, and the trial goes on.
                    Ok(Seen::Away) if what.is_none() && away_s < AWAY_MAX_S => away_s += 1,
                    Ok(Seen::Away) => {
                        eprintln!("not confirmed: the box has ended");
                        return Ok(ExitCode::FAILURE);
                    }
                    Ok(Seen::Confirmed) => {
                        print("confirmed elsewhere\n")?;
                        return Ok(ExitCode::SUCCESS);
                    }
                    Ok(Seen::Over(what)) => {
                        eprintln!("not confirmed: {what}");
                        return Ok(ExitCode::FAILURE);
                    }
                    // It may be busy.
                    Err(_) if Instant::now() < deadline => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Prints the changes that the configuration of a box would make on this machine. Exit code 1: the box would
    /// not start.
    pub(in crate::commands) fn preview(file: &Path, json: bool) -> anyhow::Result<ExitCode> {
        let plans = forebay_host::daemon::plan::Plan::of(file);
        let plans = plans.map_err(|error| BadInput(error.to_string()))?;
        for plan in &plans {
            let text =
                if json { format!("{}\n", serde_json::json!(plan)) } else { plan.to_string() };
            print(&text)?;
        }
        let is_clear = plans.iter().all(|plan| plan.blockers.is_empty());
        Ok(if is_clear { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The state of a trial.
    enum Seen {
        /// No box is there.
        Away,
        OnTrial,
        Confirmed,
        Over(&'static str),
    }

    /// The status of the box at `socket`; `None` if no box is there.
    fn status_of(socket: &Path) -> anyhow::Result<Option<Status>> {
        use io::ErrorKind::{ConnectionRefused, NotFound};
        match ask::<Status>(socket, Request::Status) {
            Ok(Answer::Status(status)) => Ok(Some(*status)),
            Ok(Answer::Failed(reason)) => anyhow::bail!(reason),
            Ok(_) => anyhow::bail!(ANOTHER_QUESTION),
            Err(error) if [ConnectionRefused, NotFound].contains(&error.kind()) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("no answer on {}", socket.display())),
        }
    }

    /// The state of the trial of this text at this process, or of the start of a box.
    fn seen(socket: &Path, what: Option<(u32, &str)>) -> anyhow::Result<Seen> {
        let Some(status) = status_of(socket)? else { return Ok(Seen::Away) };
        let Some((pid, text)) = what else {
            let is_on_trial = status.trial.is_some();
            return Ok(if is_on_trial { Seen::OnTrial } else { Seen::Confirmed });
        };
        if status.pid != pid {
            return Ok(Seen::Over("the box was started again, with its own file and no trial"));
        }
        if status.trial.is_some() {
            return Ok(Seen::OnTrial);
        }
        if confirm::told(socket, Request::Config)? == text {
            return Ok(Seen::Confirmed);
        }
        Ok(Seen::Over("the earlier configuration is in force again"))
    }

    /// Refuses a file of several boxes.
    fn several(file: &Path, boxes: &[Config]) -> BadInput {
        let names: Vec<&str> = boxes.iter().map(|it| it.name.as_str()).collect();
        let (file, role) = (file.display(), boxes[0].role);
        BadInput(format!(
            "{file} has several boxes ({}), and a trial is for one box: preview it with `forebay apply --dry-run {file}`, update \
             running boxes with `forebay reload`, or start one with `forebay {role} --config {file} --box NAME`",
            names.join(", ")
        ))
    }

    /// Refuses a box that was just started and is not on trial.
    fn is_on_trial(socket: &Path) -> anyhow::Result<()> {
        if confirm::state(socket)?.trial.as_ref().is_some_and(|trial| trial.is_start) {
            return Ok(());
        }
        anyhow::bail!("the box at {} is not on trial", socket.display())
    }
}

#[cfg(not(feature = "host"))]
impl Apply {
    /// Refuses the command, which this build lacks.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = (self.dry_run, self.confirm, self.config, self.socket);
        preview(&self.file, self.json)
    }
}

/// Refuses the command, which this build lacks.
#[cfg(not(feature = "host"))]
pub(super) fn preview(_file: &std::path::Path, _json: bool) -> anyhow::Result<ExitCode> {
    Err(super::needs_host("apply"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_seconds() {
        for (text, expected) in [("60s", 60), ("5s", 5), ("2min", 120), ("90000ms", 90)] {
            assert_eq!(seconds(text), Ok(expected));
        }
        for text in ["60", "5500ms", "", "-60s", "1e10s"] {
            assert!(seconds(text).unwrap_err().contains("whole seconds"), "{text}");
        }
    }
}
