//! An epoll instance with one absolute timer.

use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// Target of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Place of the endpoint.
    pub endpoint: u32,
    /// Connection of the endpoint.
    pub connection: u32,
}

impl Key {
    /// Standard input.
    pub const CONTROL: Self = Self { endpoint: u32::MAX, connection: 0 };
    /// The timer of the reactor.
    const TIMER: Self = Self { endpoint: u32::MAX, connection: 1 };

    fn pack(self) -> u64 {
        u64::from(self.endpoint) << 32 | u64::from(self.connection)
    }

    fn unpack(packed: u64) -> Self {
        Self { endpoint: (packed >> 32) as u32, connection: packed as u32 }
    }
}

/// Most events per wait: more than any wake-up sees, few enough for the stack.
const BATCH: usize = 256;

/// The event loop's kernel objects. Closing a socket removes it.
pub(super) struct Reactor {
    epoll: Epoll,
    timer: TimerFd,
    armed: Option<u64>,
}

impl Reactor {
    pub fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        // A timerfd instead of epoll's timeout: absolute, in ns, and without timer slack.
        let timer = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, Key::TIMER.pack()))?;
        Ok(Self { epoll, timer, armed: None })
    }

    /// Reports `interest` (level-triggered) and errors on `socket` under `key`.
    pub fn watch(&self, socket: &impl AsFd, key: Key, interest: EpollFlags) -> io::Result<()> {
        Ok(self.epoll.add(socket, EpollEvent::new(interest, key.pack()))?)
    }

    /// Replaces the interest in `socket`.
    pub fn change(&self, socket: &impl AsFd, key: Key, interest: EpollFlags) -> io::Result<()> {
        Ok(self.epoll.modify(socket, &mut EpollEvent::new(interest, key.pack()))?)
    }

    /// Stops reports about `socket`.
    pub fn forget(&self, socket: &impl AsFd) -> io::Result<()> {
        Ok(self.epoll.delete(socket)?)
    }

    /// Waits for events until `deadline` (ns on `CLOCK_MONOTONIC`; `None`: for ever).
    pub fn wait(
        &mut self,
        deadline: Option<u64>,
    ) -> io::Result<impl Iterator<Item = (Key, EpollFlags)> + use<>> {
        self.arm(deadline)?;
        let mut events = [EpollEvent::empty(); BATCH];
        let count = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
            Err(Errno::EINTR) => 0,
            other => other?,
        };
        let events = events.into_iter().take(count);
        let keyed = events.map(|event| (Key::unpack(event.data()), event.events()));
        // An expired timer stays readable until the next wait arms it again.
        Ok(keyed.filter(|(key, _)| *key != Key::TIMER))
    }

    fn arm(&mut self, deadline: Option<u64>) -> io::Result<()> {
        if deadline == self.armed {
            return Ok(());
        }
        match deadline {
            None => self.timer.unset()?,
            Some(at) => {
                // Zero would disarm it.
                let at = TimeSpec::from_duration(std::time::Duration::from_nanos(at.max(1)));
                let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
                self.timer.set(Expiration::OneShot(at), flags)?;
            }
        }
        self.armed = deadline;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_host::clock;

    #[test]
    fn keys_survive_epoll() {
        for key in [Key { endpoint: 7, connection: u32::MAX }, Key::CONTROL, Key::TIMER] {
            assert_eq!(Key::unpack(key.pack()), key);
        }
    }

    #[test]
    fn wait_ends_at_its_deadline() {
        let mut reactor = Reactor::new().unwrap();
        let deadline = clock::now().as_nanos() + 2_000_000;
        assert_eq!(reactor.wait(Some(deadline)).unwrap().count(), 0);
        assert!(clock::now().as_nanos() >= deadline);
    }

    #[test]
    fn a_past_deadline_does_not_block() {
        let mut reactor = Reactor::new().unwrap();
        assert_eq!(reactor.wait(Some(0)).unwrap().count(), 0);
        assert_eq!(reactor.wait(Some(1)).unwrap().count(), 0);
    }
}
