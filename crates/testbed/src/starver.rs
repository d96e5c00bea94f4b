//! A program with too little of a processor: stopped and continued in turn.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Time that the program runs in each turn.
const RUNS: Duration = Duration::from_millis(50);
/// Time that the program is stopped in each turn.
const STOPPED: Duration = Duration::from_millis(450);

/// Starves a process until it is dropped; then the process runs freely.
#[derive(Debug)]
pub(crate) struct Starver {
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Starver {
    /// Starves the process `pid`, which must outlive the returned value.
    ///
    /// # Errors
    ///
    /// No thread could be started.
    pub fn start(pid: u32) -> io::Result<Self> {
        let pid = Pid::from_raw(pid.cast_signed());
        let (over, is_over) = mpsc::channel();
        let work = move || {
            let goes_on = |time| is_over.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            loop {
                let _ = kill(pid, Signal::SIGSTOP);
                let goes_on_after_stop = goes_on(STOPPED);
                let _ = kill(pid, Signal::SIGCONT);
                if !goes_on_after_stop || !goes_on(RUNS) {
                    break;
                }
            }
        };
        let thread = thread::Builder::new().name("starver".into()).spawn(work)?;
        Ok(Self { over: Some(over), thread: Some(thread) })
    }
}

impl Drop for Starver {
    fn drop(&mut self) {
        self.over = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;
    use crate::process;

    #[test]
    fn starved_process_gets_tenth_then_all() {
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let cpu_ms = || process::cpu_time_ns(busy.id()).unwrap() / 1_000_000;
        let starver = Starver::start(busy.id()).unwrap();
        let started = Instant::now();
        while started.elapsed() < 4 * (RUNS + STOPPED) {
            thread::sleep(Duration::from_millis(20));
        }
        // Two seconds with four turns of 50 ms, plus rounding of the counter's clock.
        let starved_ms = cpu_ms();
        drop(starver);
        let deadline = Instant::now() + Duration::from_secs(60);
        while cpu_ms() < starved_ms + 500 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        let fed_ms = cpu_ms() - starved_ms;
        let _ = busy.kill();
        let _ = busy.wait();
        assert!(starved_ms <= 400, "{starved_ms} ms");
        assert!(fed_ms >= 500, "{fed_ms} ms");
    }
}
