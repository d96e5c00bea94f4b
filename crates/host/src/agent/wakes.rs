//! Events that end the sleep of an agent.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use forebay_ebpf::tcp::Datapath;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::time::TimeSpec;

/// Events taken from the kernel at a time.
const EVENTS: usize = 16;

/// Wakes an agent: records of a datapath, or a command.
pub(super) struct Wakes(Epoll);

/// Epoll key of events of a datapath.
const DATAPATH: u64 = 0;
/// Epoll key of commands to the agent.
const COMMAND: u64 = 1;

impl Wakes {
    /// Waits for any of these datapaths.
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

    /// Adds the descriptor `fd`, which becomes readable with a command.
    pub(super) fn add_commands(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.add(fd, EpollFlags::EPOLLIN, COMMAND)
    }

    /// Sleeps until an event comes, at most for `time`. Returns true for a command.
    pub(super) fn wait(&self, time: Duration) -> io::Result<bool> {
        let mut events = [EpollEvent::empty(); EVENTS];
        // The timeout of epoll_wait is in whole milliseconds; epoll_pwait2 has nanoseconds.
        let time = TimeSpec::from(time);
        // SAFETY: `events` has room for EVENTS entries in the layout of libc, and `time` outlives the
        // call.
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
