//! Switch of a running box to another configuration.
//!
//! ```text
//! files ──► reader ──► difference ──► the worker's Change      what did not change is not touched
//!                          └── refused: nothing is changed
//! ```
//! All checks come before any change, and the worker takes over all of the configuration or none. A change on
//! [`trial`] reverts by itself: the main thread of the box keeps the earlier configuration, and the time.

pub mod difference;
pub mod start;
pub mod trial;

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use forebay_core::bundle::keys::KeyRing;

use self::difference::BundleOrigin;
use self::trial::Trial;
use super::config::Config;
use super::keys::reader::{KeyReader, Loaded, Source};
use super::status::{Status, TrialStatus};
use crate::service::control::{Answer, Request};
use crate::service::outcome::Outcome;
use crate::service::supervisor::{Desk, Handle, Worker};

/// Most changes that get a log line each.
const CHANGES_TOLD: usize = 20;

/// A configuration that a worker takes over, completely or not at all.
#[derive(Clone, Debug)]
pub struct ReloadChange {
    /// The configuration. Its devices, sockets and trace are unchanged.
    pub config: Config,
    /// The keys of its bundles.
    pub keys: Vec<KeyRing>,
    /// Origin of each bundle. Earlier bundles that are no origin end.
    pub origins: Vec<BundleOrigin>,
}

impl ReloadChange {
    /// Indices in the earlier configuration, with `count` bundles, of the bundles that end.
    pub fn gone(&self, count: usize) -> Vec<usize> {
        let stay: BTreeSet<usize> = self.origins.iter().filter_map(|it| it.place()).collect();
        (0..count).filter(|place| !stay.contains(place)).collect()
    }
}

/// State before a trial.
#[derive(Debug)]
enum Before {
    /// Another configuration.
    Other(Box<Loaded>),
    /// No box: it was started on trial, and ends.
    Nothing,
}

/// Answers the requests of the operators of a box.
pub struct Reloader {
    reader: KeyReader,
    /// The configuration file as an absolute path, since another process may have another working folder.
    file: String,
    in_force: Loaded,
    trial: Option<Trial<Before>>,
    /// The last change that was confirmed, until another one comes: a `forebay confirm` may be repeated.
    confirmed: Option<String>,
}

impl Reloader {
    /// For a box that has begun with `in_force`, on trial if the start must be confirmed `within` some time.
    /// Call it before the box is confined: it reads the working folder.
    pub fn new(reader: KeyReader, in_force: Loaded, within: Option<Duration>) -> io::Result<Self> {
        let file = std::path::absolute(&in_force.config.file)?.display().to_string();
        let trial = within.map(|within| {
            let left_s = within.as_millis().div_ceil(1000);
            tracing::info!(target: "reload", "the box ends in {left_s} s, unless you confirm its \
                                              start");
            Trial::until(Instant::now() + within, Before::Nothing, "the start".into())
        });
        Ok(Self { reader, file, in_force, trial, confirmed: None })
    }

    /// Switches to the configuration of `source`; on trial, if it must be confirmed `within_s`.
    fn load<W>(&mut self, worker: &Handle<W>, source: Source, within_s: Option<u32>) -> Outcome
    where
        W: Worker<Change = ReloadChange>,
    {
        let refused = |reason| Outcome::refused(self.file.clone(), reason);
        let now = Instant::now();
        if let Some(trial) = &self.trial {
            let left_s = trial.left_s(now);
            return refused(format!(
                "the configuration in force is on trial for {left_s} s more: run `forebay confirm` \
                 or `forebay revert` first"
            ));
        }
        if let Some(Err(reason)) = within_s.map(trial::check) {
            return refused(reason);
        }
        let loaded = match self.reader.load(source) {
            Ok(loaded) => loaded,
            Err(error) => return refused(error.to_string()),
        };
        let (mut outcome, before) = self.go_over(worker, loaded);
        if let (Some(before), Some(within_s)) = (before, within_s.filter(|_| !outcome.is_nothing()))
        {
            let before = Before::Other(Box::new(before));
            let trial = Trial::new(before, outcome.summary(), now, within_s);
            self.trial = Some(trial.expect("its time was checked"));
            outcome.confirm_within_s = Some(within_s);
        }
        outcome
    }

    /// Has the worker switch to another configuration. Returns the outcome and, if the switch succeeded, the
    /// earlier configuration.
    fn go_over<W>(&mut self, worker: &Handle<W>, mut to: Loaded) -> (Outcome, Option<Loaded>)
    where
        W: Worker<Change = ReloadChange>,
    {
        let (mut outcome, origins) = difference::between(&self.in_force, &to);
        if !outcome.refused.is_empty() {
            return (outcome, None);
        }
        // The box keeps the datapath that it selected at the start: otherwise it could not revert to it.
        to.config.datapath = self.in_force.config.datapath;
        self.confirmed = None;
        if !outcome.is_nothing() {
            let change = ReloadChange { config: to.config.clone(), keys: to.keys.clone(), origins };
            if let Err(reason) = worker.change(change) {
                outcome.refused.push(reason);
                return (outcome, None);
            }
        }
        (outcome, Some(std::mem::replace(&mut self.in_force, to)))
    }

    fn confirm(&mut self) -> Result<String, String> {
        if let (None, Some(what)) = (&self.trial, &self.confirmed) {
            return Ok(format!("confirmed before: {what}"));
        }
        let trial = self.trial.as_ref().ok_or_else(nothing_on_trial)?;
        if matches!(trial.before, Before::Nothing) {
            // Otherwise the box would be on trial at its next start.
            start::remove(&self.in_force.config.control).map_err(|error| error.to_string())?;
        }
        let trial = self.trial.take().ok_or_else(nothing_on_trial)?;
        tracing::info!(target: "reload", "confirmed: {}", trial.what);
        let said = format!("confirmed: {}", trial.what);
        self.confirmed = Some(trial.what);
        Ok(said)
    }

    fn cut_short(&mut self) -> Result<String, String> {
        let trial = self.trial.as_mut().ok_or_else(nothing_on_trial)?;
        trial.end(Instant::now());
        Ok(format!("reverted: {}", trial.what))
    }

    /// Reverts a trial that was not confirmed. False: the box must end.
    ///
    /// # Errors
    ///
    /// The box cannot revert. An operator who uses a trial prefers no box to one that keeps the change.
    fn go_back<W>(&mut self, worker: &Handle<W>, before: Before) -> io::Result<bool>
    where
        W: Worker<Change = ReloadChange>,
    {
        match before {
            Before::Nothing => {
                tracing::info!(target: "reload", "its start was not confirmed: the box ends");
                if let Err(error) = start::remove(&self.in_force.config.control) {
                    tracing::warn!(target: "reload", %error, "of a trial that has ended");
                }
                Ok(false)
            }
            Before::Other(before) => {
                let (outcome, _) = self.go_over(worker, *before);
                if !outcome.refused.is_empty() {
                    let reasons = outcome.refused.join("; ");
                    return Err(io::Error::other(format!(
                        "not confirmed, and the box cannot return to the previous configuration: \
                         {reasons}: it ends instead of keeping an unconfirmed configuration"
                    )));
                }
                say(&outcome, "not confirmed, and the previous configuration is in force again");
                self.warn_of_own_file();
                Ok(true)
            }
        }
    }
}

impl Reloader {
    /// Logs a warning if the box would start with another configuration than the current one, for example
    /// after an interrupted `forebay confirm`.
    fn warn_of_own_file(&self) {
        let file = &self.file;
        match self.reader.load(Source::Own) {
            Ok(own) if own.text == self.in_force.text => {}
            Ok(_) => tracing::warn!(
                target: "reload",
                "{file} differs from the configuration in force, and the box would read it at its \
                 next start: `forebay confirm` repairs it after an interrupted confirmation"
            ),
            Err(error) => tracing::warn!(target: "reload", "{file} cannot take effect now: \
                                                            {error}"),
        }
    }
}

fn nothing_on_trial() -> String {
    "nothing is on trial: the trial was confirmed, or the previous configuration is in force \
     again"
        .into()
}

/// Logs the outcome of a request from any source.
fn say(outcome: &Outcome, how: &str) {
    let file = &outcome.file;
    if outcome.refused.is_empty() {
        let what = if outcome.is_nothing() { "no differences".into() } else { outcome.summary() };
        tracing::info!(target: "reload", "{file}: {how}: {what}");
        for change in outcome.changes().take(CHANGES_TOLD) {
            tracing::info!(target: "reload", "{change}");
        }
    } else {
        let reasons = outcome.refused.join("; ");
        tracing::warn!(target: "reload", "{file}: {reasons}: the previous configuration stays in \
                                          force");
    }
}

impl<W: Worker<Status = Status, Change = ReloadChange>> Desk<W> for Reloader {
    fn answer(&mut self, worker: &Handle<W>, request: Request) -> Option<Answer<Status>> {
        let done = |result: Result<String, String>| result.map(Answer::Done);
        let answer = match request {
            Request::Status => return None,
            Request::Config => done(Ok(self.in_force.text.clone())),
            Request::Reload => {
                let outcome = self.load(worker, Source::Own, None);
                say(&outcome, "read again");
                Ok(Answer::Changed(Box::new(outcome)))
            }
            Request::Apply { within_s } => {
                let outcome = self.load(worker, Source::Candidate, Some(within_s));
                say(&outcome, &format!("its candidate is on trial for {within_s} s"));
                Ok(Answer::Changed(Box::new(outcome)))
            }
            Request::Confirm => done(self.confirm()),
            Request::Revert => done(self.cut_short()),
        };
        Some(answer.unwrap_or_else(Answer::Failed))
    }

    fn complete(&self, status: Status) -> Status {
        let now = Instant::now();
        let trial = self.trial.as_ref();
        let trial = trial.map(|trial| TrialStatus {
            left_s: trial.left_s(now),
            what: trial.what.clone(),
            is_start: matches!(trial.before, Before::Nothing),
        });
        Status { config_file: self.file.clone(), trial, ..status }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.trial.as_ref().map(Trial::over_at)
    }

    fn on_timer(&mut self, worker: &Handle<W>) -> io::Result<bool> {
        let now = Instant::now();
        let over = self.trial.take_if(|trial| trial.is_over(now));
        over.map_or(Ok(true), |trial| self.go_back(worker, trial.before))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::path::{Path, PathBuf};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;
    use crate::daemon::config::{DatapathKind, Role};
    use crate::daemon::keys;
    use crate::daemon::keys::reader::candidate_of;
    use crate::service::outcome::Fate;
    use crate::service::privileges::Confinement;
    use crate::service::supervisor::{Command, Mailbox};

    /// Records each requested switch, and obeys unless a bundle has the name `refused`.
    struct Told(Sender<ReloadChange>);

    impl Worker for Told {
        type Status = Status;
        type Change = ReloadChange;
        fn run(self, mailbox: Mailbox<Self>) -> io::Result<Status> {
            loop {
                let mut fds = [PollFd::new(mailbox.as_fd(), PollFlags::POLLIN)];
                poll(&mut fds, PollTimeout::from(10_000u16)).unwrap();
                while let Some(command) = mailbox.take() {
                    match command {
                        Command::Status(reply) => {
                            reply.send(Status::new(Role::Receivebox, false));
                        }
                        Command::Change(change, reply) => {
                            let is_bad =
                                change.config.bundles.iter().any(|it| it.name == "refused");
                            let answer = if is_bad { Err("no room".into()) } else { Ok(()) };
                            self.0.send(change).unwrap();
                            reply.send(answer).unwrap();
                        }
                        Command::Stop => return Ok(Status::new(Role::Receivebox, false)),
                    }
                }
            }
        }
    }

    struct Bench {
        reloader: Reloader,
        worker: Handle<Told>,
        told: Receiver<ReloadChange>,
        file: PathBuf,
        _folder: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("box.toml");
            write(&file, &["a"]);
            keys::generate(&folder.path().join("key")).unwrap();
            Self::of(folder, file, None)
        }

        /// A started box, on trial if `within` is set.
        fn of(folder: tempfile::TempDir, file: PathBuf, within: Option<Duration>) -> Self {
            let config = Config::load(&file).unwrap();
            let reader = KeyReader::start(&config, &Confinement::default()).unwrap();
            let loaded = reader.load(Source::Own).unwrap();
            let (sender, told) = channel();
            let worker = Handle::start(Told(sender)).unwrap();
            let reloader = Reloader::new(reader, loaded, within).unwrap();
            Self { reloader, worker, told, file, _folder: folder }
        }

        fn ask(&mut self, request: Request) -> Answer<Status> {
            self.reloader.answer(&self.worker, request).expect("no state is asked for")
        }

        fn change(&mut self, request: Request) -> Outcome {
            match self.ask(request) {
                Answer::Changed(outcome) => *outcome,
                other => panic!("{other:?}"),
            }
        }

        fn is_on_trial(&self) -> bool {
            let status = self.worker.status().unwrap();
            Desk::<Told>::complete(&self.reloader, status).trial.is_some()
        }

        fn next_timer(&self) -> Option<Instant> {
            Desk::<Told>::next_timer(&self.reloader)
        }

        /// Names of the bundles that the worker has switched to since the last call.
        fn told(&self) -> Vec<Vec<String>> {
            let names = |change: ReloadChange| {
                change.config.bundles.into_iter().map(|it| it.name).collect()
            };
            self.told.try_iter().map(names).collect()
        }
    }

    /// A file with these bundles.
    fn write(file: &Path, names: &[&str]) {
        let mut text =
            "[box]\nrole = \"receivebox\"\nwan = \"s0\"\nlisten = \"192.0.2.9\"\n".to_string();
        for (id, name) in names.iter().enumerate() {
            text += &format!(
                "[[bundle]]\nname = \"{name}\"\nid = {id}\npeer = \"192.0.2.1\"\nto = \
                 [\"10.{id}.0.0/16\"]\nfrom = [\"192.0.2.0/24\"]\nkey_file = \"key\"\n"
            );
        }
        fs::write(file, text).unwrap();
    }

    #[test]
    fn reload_reaches_the_worker_only_with_differences() {
        let mut bench = Bench::new();
        assert!(bench.change(Request::Reload).is_nothing());
        assert!(bench.told().is_empty());
        write(&bench.file, &["a", "b"]);
        let outcome = bench.change(Request::Reload);
        let fates: Vec<Fate> = outcome.bundles.iter().map(|bundle| bundle.fate).collect();
        assert_eq!(fates, [Fate::Unchanged, Fate::Added]);
        assert_eq!(bench.told(), [["a", "b"]]);
        let Answer::Done(text) = bench.ask(Request::Config) else { panic!("no text") };
        assert_eq!(text, fs::read_to_string(&bench.file).unwrap());
    }

    #[test]
    fn what_is_wrong_or_refused_changes_nothing() {
        let mut bench = Bench::new();
        write(&bench.file, &["a", "refused"]);
        assert_eq!(bench.change(Request::Reload).refused, ["no room"]);
        assert_eq!(bench.told().len(), 1);
        fs::write(&bench.file, "[box]\n").unwrap();
        let refused = bench.change(Request::Reload).refused.concat();
        assert!(refused.contains("box.role is missing"), "{refused}");
        write(&bench.file, &["a", "b"]);
        let text = fs::read_to_string(&bench.file).unwrap();
        fs::write(&bench.file, text.replace("s0", "s1")).unwrap();
        let refused = bench.change(Request::Reload).refused.concat();
        assert!(refused.starts_with("box.wan s0 -> s1: "), "{refused}");
        assert!(bench.told().is_empty());
        write(&bench.file, &["a"]);
        assert!(bench.change(Request::Reload).is_nothing(), "as at the start");
    }

    #[test]
    fn unconfirmed_trial_is_reverted() {
        let mut bench = Bench::new();
        let candidate = candidate_of(&bench.file);
        let apply = Request::Apply { within_s: 60 };
        let refused = bench.change(apply).refused.concat();
        assert!(refused.contains("box.toml.candidate: cannot read it"), "{refused}");
        write(&candidate, &["a", "b"]);
        assert!(
            bench.change(Request::Apply { within_s: 1 }).refused[0].contains("allowed are 5 to")
        );
        assert_eq!(bench.change(apply).confirm_within_s, Some(60));
        assert_eq!(bench.told(), [["a", "b"]]);
        assert!(bench.is_on_trial() && bench.next_timer().is_some());
        assert!(bench.reloader.on_timer(&bench.worker).unwrap(), "its time has not come");
        // No request changes a configuration on trial.
        for request in [apply, Request::Reload] {
            assert!(bench.change(request).refused[0].contains("on trial for 60 s more"));
        }
        assert!(matches!(bench.ask(Request::Revert), Answer::Done(_)));
        assert!(bench.reloader.on_timer(&bench.worker).unwrap());
        assert_eq!(bench.told(), [["a"]]);
        assert!(!bench.is_on_trial() && bench.next_timer().is_none());
        assert!(
            matches!(bench.ask(Request::Confirm), Answer::Failed(why) if why.contains("nothing is on"))
        );
        bench.change(apply);
        for said in ["confirmed: 1 added", "confirmed before: 1 added"] {
            let answer = bench.ask(Request::Confirm);
            assert!(matches!(&answer, Answer::Done(it) if it.starts_with(said)), "{answer:?}");
            assert!(!bench.is_on_trial() && bench.next_timer().is_none());
        }
        assert_eq!(bench.told(), [["a", "b"]], "and it stays");
        bench.change(Request::Reload);
        assert!(matches!(bench.ask(Request::Confirm), Answer::Failed(_)), "that was another one");
    }

    #[test]
    fn revert_keeps_the_settled_datapath() {
        let Bench { file, _folder: folder, .. } = Bench::new();
        let left_to_the_box = |file: &Path, names: &[&str]| {
            write(file, names);
            let text = fs::read_to_string(file).unwrap();
            let sendbox = "\"sendbox\"\nlan = \"s1\"\ndatapath = \"auto\"";
            let text = text.replace("\"receivebox\"", sendbox);
            fs::write(file, text.replace("from =", "cc = \"copa\"\nfrom =")).unwrap();
        };
        left_to_the_box(&file, &["a"]);
        let mut bench = Bench::of(folder, file, None);
        bench.reloader.in_force.config.datapath = DatapathKind::Kernel;
        left_to_the_box(&candidate_of(&bench.file), &["a", "b"]);
        let apply = Request::Apply { within_s: 60 };
        assert_eq!(bench.change(apply).confirm_within_s, Some(60));
        bench.ask(Request::Revert);
        assert!(bench.reloader.on_timer(&bench.worker).unwrap());
        assert_eq!(bench.told(), [vec!["a", "b"], vec!["a"]]);
        assert_eq!(bench.reloader.in_force.config.datapath, DatapathKind::Kernel);
    }

    #[test]
    fn box_ends_when_it_cannot_revert() {
        let mut bench = Bench::new();
        write(&candidate_of(&bench.file), &["a", "b"]);
        bench.change(Request::Apply { within_s: 60 });
        // As if the worker had lost the earlier configuration.
        let Some(trial) = &mut bench.reloader.trial else { panic!("nothing is on trial") };
        let Before::Other(before) = &mut trial.before else { panic!("its start is on trial") };
        before.config.bundles[0].name = "refused".into();
        bench.ask(Request::Revert);
        let error = bench.reloader.on_timer(&bench.worker).unwrap_err().to_string();
        assert!(error.contains("cannot return") && error.contains("no room"), "{error}");
    }

    #[test]
    fn unconfirmed_trial_start_ends_the_box() {
        for (word, stays) in [(Request::Confirm, true), (Request::Revert, false)] {
            let Bench { file, _folder: folder, .. } = Bench::new();
            let text = fs::read_to_string(&file).unwrap();
            fs::write(&file, text.replace("[[bundle]]", "control = \"c\"\n[[bundle]]")).unwrap();
            let control = folder.path().join("c");
            start::put(&control, 60).unwrap();
            let mut bench = Bench::of(folder, file, Some(Duration::from_secs(60)));
            assert!(bench.is_on_trial());
            assert!(matches!(bench.ask(word), Answer::Done(_)));
            assert_eq!(bench.reloader.on_timer(&bench.worker).unwrap(), stays);
            assert!(bench.told().is_empty() && !bench.is_on_trial());
            assert_eq!(start::left(&control).unwrap(), start::Left::NoTrial);
        }
    }
}
