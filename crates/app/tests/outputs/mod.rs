//! Outputs that cannot be written: a full disk, a reader that has gone, a pipe that is never
//! emptied.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe};

/// How soon a daemon has to end whose output is never read.
const END: Duration = Duration::from_secs(2);

/// An output that the test never reads.
#[derive(Clone, Copy, Debug)]
pub enum Unread {
    FullDisk,
    ClosedPipe,
    FullPipe,
}

impl Unread {
    /// All kinds of outputs that cannot be written.
    pub const ALL: [Self; 3] = [Self::FullDisk, Self::ClosedPipe, Self::FullPipe];

    /// The output, and its other end if it has one.
    pub fn open(self) -> (Stdio, Option<File>) {
        if let Self::FullDisk = self {
            return (File::options().write(true).open("/dev/full").unwrap().into(), None);
        }
        let (reader, writer) = pipe().unwrap();
        match self {
            Self::ClosedPipe => drop(reader),
            _ => {
                fill(&writer);
                set_blocking(&reader, false);
                return (writer.into(), Some(reader.into()));
            }
        }
        (writer.into(), None)
    }
}

fn fill(pipe: &OwnedFd) {
    set_blocking(pipe, false);
    let mut writer = File::from(pipe.try_clone().unwrap());
    while writer.write(&[b'.'; 4096]).is_ok() {}
    while writer.write(b".").is_ok() {}
    // The flag is the pipe's, and not the descriptor's: the daemon's writes are to wait.
    set_blocking(pipe, true);
}

fn set_blocking(pipe: &OwnedFd, is_blocking: bool) {
    let flag = if is_blocking { OFlag::empty() } else { OFlag::O_NONBLOCK };
    fcntl(pipe, FcntlArg::F_SETFL(flag)).unwrap();
}

pub fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

/// Ends a daemon by SIGTERM, cleanly and soon.
pub fn end(mut child: Child) {
    let began = Instant::now();
    signal(&child, Signal::SIGTERM);
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if began.elapsed() < END => std::thread::sleep(Duration::from_millis(5)),
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("it has not ended {END:?} after SIGTERM");
            }
        }
    };
    assert!(status.success(), "{status}");
}
