//! Trial of the start of a box. `forebay apply` writes the end of the trial to a file next to the box's
//! control socket before it has the box started. A box that is started again meanwhile, for example after a
//! crash, is on trial for the remaining time.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_core::units::Timestamp;
use nix::unistd::geteuid;

use super::trial::WITHIN;
use crate::clock;

/// A start this long after the end of a trial is a new start by an operator: systemd restarts a crashed or
/// hanging box within seconds.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Most bytes that are read: more than the file has.
const BYTES_MAX: u64 = 64;

/// Remaining trial of the start of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// There is no trial.
    NoTrial,
    /// The start is on trial for this time.
    For(Duration),
    /// The start was on trial and was not confirmed.
    Nothing,
}

/// The file of the trial of a box with this control socket.
fn file_of(control: &Path) -> PathBuf {
    let mut name = control.as_os_str().to_owned();
    name.push(".trial");
    name.into()
}

/// Puts the start of the box with this control socket on trial for `within_s` seconds from now.
///
/// # Errors
///
/// The file cannot be written; the error names it.
pub fn put(control: &Path, within_s: u32) -> io::Result<()> {
    remove(control)?;
    let file = file_of(control);
    let until = clock::now() + Duration::from_secs(within_s.into());
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o644).open(&file);
    let written = opened.and_then(|mut new| writeln!(new, "{}", until.as_nanos()));
    written.map_err(|error| named(&file, "write", &error))
}

/// Ends the trial, if there is one: the start was confirmed, or the box has ended.
///
/// # Errors
///
/// The file cannot be removed; the error names it.
pub fn remove(control: &Path) -> io::Result<()> {
    let file = file_of(control);
    match fs::remove_file(&file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(named(&file, "remove", &error))
        }
        _ => Ok(()),
    }
}

/// Remaining trial of the start of the box with this control socket. The call removes a trial that is over.
///
/// # Errors
///
/// The file cannot be read or removed; the error names it.
pub fn left(control: &Path) -> io::Result<Left> {
    let file = file_of(control);
    let until = match read(&file) {
        Ok(until) => until,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Left::NoTrial),
        Err(error) => return Err(named(&file, "take", &error)),
    };
    let now = clock::now();
    let left = until.saturating_since(now);
    // The clock restarts with the machine.
    let is_of_now = left <= Duration::from_secs((*WITHIN.end()).into());
    if is_of_now && !left.is_zero() {
        return Ok(Left::For(left));
    }
    remove(control)?;
    let is_remembered = is_of_now && now.saturating_since(until) < REMEMBERED;
    Ok(if is_remembered { Left::Nothing } else { Left::NoTrial })
}

/// Message of a box that a signal stops during the trial of its start. The trial goes on:
/// the operator who starts the box again may not know of it.
pub fn parting(control: &Path) -> Option<String> {
    let Ok(Left::For(time)) = left(control) else { return None };
    let left_s = time.as_millis().div_ceil(1000);
    Some(format!(
        "its start was not confirmed: a box that starts within {left_s} s ends with the trial, too, \
         unless you confirm"
    ))
}

/// Reads the end of the trial from the file. A file that other users may have written is not trusted.
fn read(file: &Path) -> io::Result<Timestamp> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(file)?;
    let metadata = opened.metadata()?;
    let is_ours = [0, geteuid().as_raw()].contains(&metadata.uid());
    let mut text = String::new();
    if metadata.is_file() && is_ours && metadata.mode() & 0o022 == 0 {
        opened.take(BYTES_MAX).read_to_string(&mut text)?;
    }
    let until = text.trim_end().parse().map(Timestamp::from_nanos);
    until.map_err(|_| io::Error::other("allowed is a file written by `forebay apply`: remove it"))
}

fn named(file: &Path, what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what} {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn restarts_do_not_extend_a_trial() {
        let folder = tempfile::tempdir().unwrap();
        let control = folder.path().join("box.sock");
        assert_eq!(left(&control).unwrap(), Left::NoTrial);
        put(&control, 60).unwrap();
        for _ in 0..2 {
            let Left::For(time) = left(&control).unwrap() else { panic!("it is on trial") };
            assert!(time <= Duration::from_secs(60) && time > Duration::from_secs(20), "{time:?}");
            let said = parting(&control).unwrap();
            assert!(said.contains(" starts within ") && said.contains(" s ends"), "{said}");
        }
        put(&control, 5).unwrap();
        assert!(matches!(left(&control), Ok(Left::For(time)) if time <= Duration::from_secs(5)));
        remove(&control).unwrap();
        remove(&control).unwrap();
        assert_eq!(parting(&control), None);
        assert_eq!(left(&control).unwrap(), Left::NoTrial);
    }

    #[test]
    fn expired_trial_is_reported_once_if_recent() {
        let folder = tempfile::tempdir().unwrap();
        let control = folder.path().join("box.sock");
        let (now, minute) = (clock::now().as_nanos(), 60_000_000_000);
        for (until, expected) in [
            (now.saturating_sub(1), Left::Nothing),
            (now.saturating_sub(2 * minute), Left::NoTrial),
            (now + 3 * 24 * 60 * minute, Left::NoTrial),
        ] {
            fs::write(file_of(&control), format!("{until}\n")).unwrap();
            assert_eq!(left(&control).unwrap(), expected, "{until}");
            assert_eq!(left(&control).unwrap(), Left::NoTrial, "it is forgotten");
        }
    }

    #[test]
    fn what_others_may_write_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let control = folder.path().join("box.sock");
        put(&control, 60).unwrap();
        let file = file_of(&control);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        let error = left(&control).unwrap_err().to_string();
        assert!(
            error.contains("box.sock.trial: allowed is a file written by `forebay apply`"),
            "{error}"
        );
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/proc/uptime", &file).unwrap();
        assert!(left(&control).is_err(), "no link is followed");
    }
}
