//! One emulation at a time: two would share the cores and spoil each other's times.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::{TICK, TestbedError};

/// Longest wait for another emulation on this machine: longer than any plan's run.
const TIMEOUT: Duration = Duration::from_secs(900);

/// Places of the lock, in order of preference: `/run` is wiped at boot, but not writable
/// everywhere.
const FILES: [&str; 2] = ["/run/forebay-testbed.lock", "/tmp/forebay-testbed.lock"];

/// Held while the emulation runs; the kernel releases it when the process ends, for any reason.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: Flock<File>,
}

/// Result of an attempt to take the lock.
#[derive(Debug)]
enum Attempt {
    /// This process has the lock.
    Taken(Lock),
    /// Process and command line of the holder, as it wrote them to the file.
    HeldBy(String),
}

/// Takes the machine's lock. While another process has it, `waiting` gets the holder's name, ten
/// times a second, for at most 15 minutes.
pub(crate) fn take(waiting: &mut dyn FnMut(String)) -> Result<Lock, TestbedError> {
    let start = Instant::now();
    loop {
        match try_lock().map_err(TestbedError::Lock)? {
            Attempt::Taken(lock) => return Ok(lock),
            Attempt::HeldBy(holder) if start.elapsed() > TIMEOUT => {
                return Err(TestbedError::Busy { seconds: TIMEOUT.as_secs(), holder });
            }
            Attempt::HeldBy(holder) => {
                waiting(holder);
                std::thread::sleep(TICK);
            }
        }
    }
}

/// Tries to take the machine's lock.
fn try_lock() -> io::Result<Attempt> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for path in FILES.map(PathBuf::from) {
        match OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path) {
            Ok(file) => return attempt(file),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn attempt(file: File) -> io::Result<Attempt> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut file) => {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(own_name().as_bytes())?;
            Ok(Attempt::Taken(Lock { _file: file }))
        }
        Err((mut file, Errno::EWOULDBLOCK)) => {
            let mut holder = String::new();
            file.read_to_string(&mut holder)?;
            Ok(Attempt::HeldBy(holder.trim().to_string()))
        }
        Err((_, errno)) => Err(errno.into()),
    }
}

fn own_name() -> String {
    let command: Vec<String> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    format!("process {} ({})\n", std::process::id(), command.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_learns_who_the_first_is() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let open = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let Attempt::Taken(lock) = attempt(open()).unwrap() else { panic!("free, but not taken") };
        let Attempt::HeldBy(holder) = attempt(open()).unwrap() else { panic!("taken twice") };
        assert!(holder.contains(&std::process::id().to_string()), "{holder}");
        drop(lock);
        assert!(matches!(attempt(open()).unwrap(), Attempt::Taken(_)));
    }
}
