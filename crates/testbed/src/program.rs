//! One program of a run: started in a namespace, with stdout read by the testbed and stderr kept in
//! a file.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::TestbedError;
use super::namespace::Namespace;
use crate::process;

/// Longest time from the request to end until a program ends. It first writes its results to disk,
/// some 100 MB after a long run.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Most bytes of a dead program's stderr that an error quotes.
const TAIL_BYTES: usize = 2000;

/// A running program; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Program {
    /// Name in errors and in the table of CPU time.
    pub name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    heard: Vec<u8>,
    lines: VecDeque<String>,
    log: PathBuf,
    /// Held open and never read.
    _unread: Option<PipeReader>,
    ended: bool,
}

/// Destination of a program's stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    /// Appended to `DIR/NAME.log`.
    File,
    /// To a device that is always full (full(4)).
    Full,
    /// Into a full pipe whose reader never reads.
    Blocked,
}

impl Log {
    /// The file for stderr, and the other end of a pipe.
    fn open(self, path: &Path) -> io::Result<(OwnedFd, Option<PipeReader>)> {
        let append = |path: &Path| File::options().append(true).create(true).open(path);
        match self {
            Self::File => Ok((append(path)?.into(), None)),
            Self::Full => Ok((File::options().write(true).open("/dev/full")?.into(), None)),
            Self::Blocked => {
                let (reader, mut writer) = io::pipe()?;
                fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
                // A pipe stores whole pages: single bytes fill the last one.
                for length in [4096, 1] {
                    while writer.write(&vec![b'.'; length]).is_ok() {}
                }
                fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty()))?;
                Ok((writer.into(), Some(reader)))
            }
        }
    }
}

impl Program {
    /// Starts `binary` with `arguments` inside `namespace`; appends its stderr to `DIR/NAME.log`.
    /// The program dies with the calling thread.
    pub fn start(
        name: &str,
        binary: &Path,
        arguments: &[OsString],
        namespace: &Namespace,
        dir: &Path,
    ) -> Result<Self, TestbedError> {
        Self::start_with(name, binary, arguments, namespace, dir, Log::File)
    }

    /// Starts a program with another destination of its stderr.
    pub fn start_with(
        name: &str,
        binary: &Path,
        arguments: &[OsString],
        namespace: &Namespace,
        dir: &Path,
        log: Log,
    ) -> Result<Self, TestbedError> {
        let path = dir.join(format!("{}.log", name.replace(' ', "-")));
        let start = || -> io::Result<(Child, ChildStdout, Option<PipeReader>)> {
            let (stderr, unread) = log.open(&path)?;
            let mut command = Command::new(binary);
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
            // An interrupt from the terminal must reach only the testbed, which ends its programs
            // in order.
            command.process_group(0);
            namespace.host(&mut command)?;
            let mut child = command.spawn()?;
            let stdout = child.stdout.take().expect("piped");
            fcntl(&stdout, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            Ok((child, stdout, unread))
        };
        let (mut child, stdout, unread) =
            start().map_err(|source| TestbedError::Start { name: name.to_string(), source })?;
        Ok(Self {
            name: name.to_string(),
            stdin: child.stdin.take(),
            child,
            stdout,
            heard: Vec::new(),
            lines: VecDeque::new(),
            log: path,
            _unread: unread,
            ended: false,
        })
    }

    /// Process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time so far (ns); `None` once the process is gone.
    pub fn cpu_time_ns(&self) -> Option<u64> {
        process::cpu_time_ns(self.pid()).ok().filter(|_| !self.ended)
    }

    /// Writes one line to the program.
    pub fn tell(&mut self, line: &str) -> Result<(), TestbedError> {
        let stdin = self.stdin.as_mut().expect("stdin is open until the end");
        match stdin.write_all(format!("{line}\n").as_bytes()) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.death()),
        }
    }

    /// Waits until the program has printed `line`, at most for `timeout`.
    pub fn await_line(&mut self, line: &str, timeout: Duration) -> Result<(), TestbedError> {
        let deadline = Instant::now() + timeout;
        while !self.has_said(line)? {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.silent(line, timeout));
            }
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN)];
            // Interrupted or not, the loop looks again.
            let _ = poll(&mut fds, left);
        }
        Ok(())
    }

    /// The error for a program that has not printed `line` for `waited`.
    pub fn silent(&self, line: &str, waited: Duration) -> TestbedError {
        let (name, line) = (self.name.clone(), line.to_string());
        TestbedError::Silent { name, line, seconds: waited.as_secs(), tail: self.tail() }
    }

    /// Whether the program has printed `line` since the last call that found a line.
    pub fn has_said(&mut self, line: &str) -> Result<bool, TestbedError> {
        let open = self.listen();
        while let Some(said) = self.lines.pop_front() {
            if said == line {
                return Ok(true);
            }
        }
        if open { Ok(false) } else { Err(self.death()) }
    }

    /// Fails if the program has ended without a request.
    pub fn check(&mut self) -> Result<(), TestbedError> {
        // Only this process reads the program's output: a full pipe would block it.
        self.listen();
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(self.death()),
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), TestbedError> {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).map_err(|errno| {
            TestbedError::Signal { name: self.name.clone(), signal, source: errno.into() }
        })
    }

    /// Kills the program and waits for its end.
    pub fn kill(&mut self) {
        if !self.ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
            self.ended = true;
        }
    }

    /// Requests the end of the program by closing stdin, and with `signal` if given, and waits.
    pub fn stop(&mut self, signal: Option<Signal>) -> Result<(), TestbedError> {
        if self.ended {
            return Ok(());
        }
        self.stdin = None;
        if let Some(signal) = signal {
            self.signal(signal)?;
            // A stopped process handles the signal once it continues.
            self.signal(Signal::SIGCONT)?;
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            self.listen();
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => {
                    self.ended = true;
                    return Ok(());
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                _ => return Err(self.death()),
            }
        }
        self.kill();
        let seconds = STOP_TIMEOUT.as_secs();
        Err(TestbedError::Hung { name: self.name.clone(), seconds, tail: self.tail() })
    }

    /// Reads the program's output; false at its end.
    fn listen(&mut self) -> bool {
        let mut chunk = [0; 4096];
        let open = loop {
            match self.stdout.read(&mut chunk) {
                Ok(0) => break false,
                Ok(length) => self.heard.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
        };
        while let Some(end) = self.heard.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            self.lines.push_back(String::from_utf8_lossy(&line[..end]).into_owned());
        }
        open
    }

    /// The error for a program that ended by itself.
    fn death(&mut self) -> TestbedError {
        // Stdout is closed: the program has ended or is about to.
        let deadline = Instant::now() + Duration::from_secs(1);
        let mut status: Option<ExitStatus> = None;
        while status.is_none() && Instant::now() < deadline {
            status = self.child.try_wait().ok().flatten();
            std::thread::sleep(Duration::from_millis(1));
        }
        self.kill();
        let status = status.map_or("closed its output".to_string(), |status| status.to_string());
        TestbedError::Died { name: self.name.clone(), status, tail: self.tail() }
    }

    /// The last bytes of the program's stderr.
    pub fn tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let tail = &log[log.len().saturating_sub(TAIL_BYTES)..];
        String::from_utf8_lossy(tail).trim().to_string()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_log_fails_and_blocked_log_stalls() {
        let nowhere = Path::new("/nonexistent/log");
        let (full, _) = Log::Full.open(nowhere).unwrap();
        let refused = File::from(full).write(b"line\n").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        let (blocked, unread) = Log::Blocked.open(nowhere).unwrap();
        assert!(unread.is_some());
        // A writer that blocks would wait for ever.
        let flags = OFlag::from_bits_retain(fcntl(&blocked, FcntlArg::F_GETFL).unwrap());
        assert!(!flags.contains(OFlag::O_NONBLOCK));
        fcntl(&blocked, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let taken = File::from(blocked).write(b"!").unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::WouldBlock);
    }
}
