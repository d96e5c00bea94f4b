//! The start of a box on trial. How long stands in a file beside the box's control socket, which `forebay apply` writes
//! before it has the box started: one that is started again meanwhile, as after a crash, is on trial for what is left.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_core::units::Timestamp;
use nix::unistd::geteuid;

use super::trial::WITHIN;
use crate::clock;

/// A box that is started so long after the end of a trial is started by somebody: systemd starts one that has crashed, or
/// hangs, again within seconds.
const REMEMBERED: Duration = Duration::from_secs(60);
/// More than the file has bytes.
const BYTES_MAX: u64 = 64;

/// How long the start of a box is on trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// There is no trial.
    NoTrial,
    /// The start is on trial for so long.
    For(Duration),
    /// The start was on trial, and nobody has confirmed it.
    Nothing,
}

/// The file of the trial of a box with this control socket.
fn file_of(control: &Path) -> PathBuf {
    let mut name = control.as_os_str().to_owned();
    name.push(".trial");
    name.into()
}

/// Puts the start of the box with this control socket on trial, from now on for so many seconds.
///
/// # Errors
///
/// That the file cannot be written, with its name.
pub fn put(control: &Path, within_s: u32) -> io::Result<()> {
    remove(control)?;
    let file = file_of(control);
    let until = clock::now() + Duration::from_secs(within_s.into());
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o644).open(&file);
    let written = opened.and_then(|mut new| writeln!(new, "{}", until.as_nanos()));
    written.map_err(|error| named(&file, "write", &error))
}

/// Ends the trial, if there is one: the start stays, or the box has ended.
///
/// # Errors
///
/// That the file cannot be removed, with its name.
pub fn remove(control: &Path) -> io::Result<()> {
    let file = file_of(control);
    match fs::remove_file(&file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(named(&file, "remove", &error))
        }
        _ => Ok(()),
    }
}

/// How long the start of the box with this control socket is on trial. What is over is forgotten with the answer.
///
/// # Errors
///
/// That the file cannot be read or removed, with its name.
pub fn left(control: &Path) -> io::Result<Left> {
    let file = file_of(control);
    let until = match read(&file) {
        Ok(until) => until,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Left::NoTrial),
        Err(error) => return Err(named(&file, "take", &error)),
    };
    let now = clock::now();
    let left = until.saturating_since(now);
    // The clock begins anew when the machine does.
    let is_of_now = left <= Duration::from_secs((*WITHIN.end()).into());
    if is_of_now && !left.is_zero() {
        return Ok(Left::For(left));
    }
    remove(control)?;
    let is_remembered = is_of_now && now.saturating_since(until) < REMEMBERED;
    Ok(if is_remembered { Left::Nothing } else { Left::NoTrial })
}

/// What to say of a box that was told to end during the trial of its start, if it was: that trial goes on, for whoever
/// starts the box again does so, perhaps, with no regard to it.
pub fn parting(control: &Path) -> Option<String> {
    let Ok(Left::For(time)) = left(control) else { return None };
    let left_s = time.as_millis().div_ceil(1000);
    Some(format!(
        "its start was not confirmed: a box that is started within {left_s} s ends with them, too, unless it is"
    ))
}

/// Until when the file says, which others may not have written.
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
    until.map_err(|_| io::Error::other("allowed is what `forebay apply` has written: remove it"))
}

fn named(file: &Path, what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what} {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_start_is_on_trial_for_what_is_left_however_often_the_box_is_started() {
        let folder = tempfile::tempdir().unwrap();
        let control = folder.path().join("box.sock");
        assert_eq!(left(&control).unwrap(), Left::NoTrial);
        put(&control, 60).unwrap();
        for _ in 0..2 {
            let Left::For(time) = left(&control).unwrap() else { panic!("it is on trial") };
            assert!(time <= Duration::from_secs(60) && time > Duration::from_secs(20), "{time:?}");
            let said = parting(&control).unwrap();
            assert!(said.contains(" is started within ") && said.contains(" s ends"), "{said}");
        }
        put(&control, 5).unwrap();
        assert!(matches!(left(&control), Ok(Left::For(time)) if time <= Duration::from_secs(5)));
        remove(&control).unwrap();
        remove(&control).unwrap();
        assert_eq!(parting(&control), None);
        assert_eq!(left(&control).unwrap(), Left::NoTrial);
    }

    #[test]
    fn what_is_over_is_told_once_and_what_is_long_over_or_of_another_boot_not_at_all() {
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
        assert!(error.contains("box.sock.trial: allowed is what `forebay apply`"), "{error}");
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/proc/uptime", &file).unwrap();
        assert!(left(&control).is_err(), "no link is followed");
    }
}
