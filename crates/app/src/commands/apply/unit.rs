//! The unit of a box, started on trial where no box runs.

use std::io;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use forebay_host::daemon::reload::start;

/// Requests to systemd about a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Whether the unit is active, or becomes so, or has yet to stop.
    IsActive,
    /// To start the unit; it has begun once its box says so.
    Start,
    /// To stop the unit.
    Stop,
}

/// Has systemctl(1) do that; answers whether it says yes, or has done so.
pub fn systemctl(verb: Verb, unit: &str) -> io::Result<bool> {
    let word = match verb {
        Verb::IsActive => return Ok(is_active(&state(unit)?)),
        Verb::Start => "start",
        Verb::Stop => "stop",
    };
    Ok(Command::new("systemctl").args([word, unit]).status()?.success())
}

/// The state that a unit is in, as systemd calls it (`ActiveState`).
fn state(unit: &str) -> io::Result<String> {
    let output = Command::new("systemctl").args(["show", "-P", "ActiveState", unit]).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
}

/// Whether a unit in this state has processes, or will have some: `systemctl is-active` says no for a unit
/// that is starting, or that systemd will start again after a crash.
fn is_active(state: &str) -> bool {
    !["inactive", "failed"].contains(&state)
}

/// Refuses a `unit` whose box runs, though none answers at `socket`: a trial would end with a stop of that box.
pub fn refuse_active(
    unit: &str,
    socket: &Path,
    systemctl: impl Fn(Verb) -> io::Result<bool>,
) -> anyhow::Result<()> {
    if !systemctl(Verb::IsActive).context("cannot run systemctl")? {
        return Ok(());
    }
    anyhow::bail!(
        "no box answers at {}, and {unit} is active: name the box's control socket with --socket, or stop the unit \
         first",
        socket.display()
    )
}

/// Starts a `unit` on trial for `within_s` seconds: its box, whose control socket is to be at `control`, ends
/// after them unless it is confirmed. `is_on_trial` fails if that box is not.
///
/// # Errors
///
/// The box did not start, or not on trial: its unit is stopped again, and nothing is on trial.
pub fn start_on_trial(
    unit: &str,
    control: &Path,
    within_s: u32,
    systemctl: impl Fn(Verb) -> io::Result<bool>,
    is_on_trial: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Before the start, so that the trial ends even if this command or the box dies.
    start::put(control, within_s)?;
    let begun = match systemctl(Verb::Start).context("cannot run systemctl") {
        Ok(true) => is_on_trial(),
        Ok(false) => {
            Err(anyhow::anyhow!("{unit} did not start: for the reason, see `journalctl -u {unit}`"))
        }
        Err(error) => Err(error),
    };
    let Err(error) = begun else { return Ok(()) };
    // Otherwise systemd would start the unit again until the end of the trial.
    let is_stopped = systemctl(Verb::Stop).is_ok_and(|is_stopped| is_stopped);
    let then = if is_stopped { "is stopped again" } else { "could not be stopped" };
    start::remove(control)?;
    Err(error.context(format!("{unit} {then}")))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use forebay_host::daemon::reload::start::Left;

    use super::*;

    /// Name of the unit in these tests.
    const UNIT: &str = "forebay-sendbox@sendbox";

    type Answers = fn(Verb) -> io::Result<bool>;

    /// Answers for a unit that is stopped.
    const INACTIVE: Answers = |verb| Ok(verb != Verb::IsActive);

    /// The requests to a systemd with these `answers`, and the outcome of a start on trial there: the error,
    /// and whether anything is on trial afterwards.
    fn started(answers: Answers, is_on_trial: bool) -> (Vec<Verb>, Option<String>, bool) {
        let folder = tempfile::tempdir().unwrap();
        let control = folder.path().join("sendbox.sock");
        let asked = RefCell::new(Vec::new());
        let systemctl = |verb: Verb| {
            asked.borrow_mut().push(verb);
            answers(verb)
        };
        let is_on_trial = || {
            assert!(matches!(start::left(&control), Ok(Left::For(_))), "the box finds its trial");
            if is_on_trial { Ok(()) } else { Err(anyhow::anyhow!("the box is not on trial")) }
        };
        let begun = refuse_active(UNIT, &control, systemctl)
            .and_then(|()| start_on_trial(UNIT, &control, 60, systemctl, is_on_trial));
        let error = begun.err().map(|error| format!("{error:#}"));
        let is_left = start::left(&control).unwrap() != Left::NoTrial;
        (asked.into_inner(), error, is_left)
    }

    #[test]
    fn stopped_unit_starts_on_trial() {
        let expected = (vec![Verb::IsActive, Verb::Start], None, true);
        assert_eq!(started(INACTIVE, true), expected);
    }

    #[test]
    fn unit_that_fails_to_start_is_stopped_again() {
        let failing: Answers = |verb| Ok(verb == Verb::Stop);
        let all = [Verb::IsActive, Verb::Start, Verb::Stop];
        for (answers, why) in
            [(failing, "did not start: for the reason"), (INACTIVE, "the box is not on trial")]
        {
            let (asked, error, is_left) = started(answers, false);
            let error = error.unwrap();
            assert_eq!((&asked[..], is_left), (&all[..], false), "{error}");
            assert!(error.starts_with("forebay-sendbox@sendbox is stopped again: "), "{error}");
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn failed_stop_is_reported_and_missing_systemctl_refused() {
        let (_, error, is_left) = started(|_| Ok(false), false);
        assert!(error.unwrap().contains("could not be stopped") && !is_left);
        let missing: Answers = |_| Err(io::ErrorKind::NotFound.into());
        let (asked, error, is_left) = started(missing, false);
        assert_eq!((asked, is_left), (vec![Verb::IsActive], false));
        assert!(error.unwrap().starts_with("cannot run systemctl: "));
    }

    #[test]
    fn active_or_activating_unit_is_left_alone() {
        let activating: Answers = |_| Ok(is_active("activating"));
        let active: Answers = |_| Ok(is_active("active"));
        for answers in [active, activating] {
            let (asked, error, is_left) = started(answers, true);
            assert_eq!((asked, is_left), (vec![Verb::IsActive], false));
            let error = error.unwrap();
            assert!(error.contains("forebay-sendbox@sendbox is active: name the"), "{error}");
        }
        let of = ["reloading", "deactivating", "inactive", "failed"].map(is_active);
        assert_eq!(of, [true, true, false, false]);
    }
}
