//! What ends the sleep of an agent.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use forebay_ebpf::tcp::Datapath;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::time::TimeSpec;

/// Events taken from the kernel at a time.
const EVENTS: usize = 16;

/// What ends a sleep: a datapath, or a command.
pub(super) struct Wakes(Epoll);

/// Keys of events.
const DATAPATH: u64 = 0;
const COMMAND: u64 = 1;

impl Wakes {
    /// Any of these.
    pub(super) fn of(datapaths: &[Datapath]) -> io::Result<Self> {
        let wakes = Self(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?);
        for datapath in datapaths {
            wakes.add(datapath.as_fd(), EpollFlags::EPOLLIN | EpollFlags::EPOLLET, DATAPATH)?;
        }
        Ok(wakes)
    }

    fn add(&self, fd: BorrowedFd<'_>, flags: EpollFlags, key: u64) -> io::Result<()> {
        Ok(self.0.add(fd, EpollEvent::new(flags, key))?)
    }

    /// Adds commands, which `fd` announces.
    pub(super) fn add_commands(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.add(fd, EpollFlags::EPOLLIN, COMMAND)
    }

    /// Sleeps until something wakes us, at most so long; true: a command does.
    pub(super) fn wait(&self, time: Duration) -> io::Result<bool> {
        let mut events = [EpollEvent::empty(); EVENTS];
        // The time of epoll_wait is in whole milliseconds.
        let time = TimeSpec::from(time);
        // SAFETY: room for so many events, which are those of libc, and a time that outlives the call.
        let count = unsafe {
            libc::epoll_pwait2(
                self.0.0.as_raw_fd(),
                events.as_mut_ptr().cast(),
                EVENTS as libc::c_int,
                time.as_ref(),
                std::ptr::null(),
            )
        };
        match Errno::result(count) {
            Ok(count) => Ok(events[..count as usize].iter().any(|event| event.data() == COMMAND)),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
