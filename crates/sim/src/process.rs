//! State of a box's process, and the items that wait while it stands still.

use std::collections::VecDeque;

use forebay_core::random::Stream;
use forebay_core::units::{Duration, Timestamp, stretched};

/// Age of a heartbeat at which the kernel stops handing packets to the sendbox and forwards them itself.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// Most items that wait for a process: frames in a sendbox's receive ring, or boundaries in the ring of a
/// receivebox's sampler.
const RING: usize = 4096;
/// Most datagrams in the socket of a process, some 200 kB.
const DATAGRAMS: usize = 256;

/// The process of a box; the kernel leaves items of type `T` in a ring for it.
#[derive(Debug)]
pub(crate) struct Process<T> {
    state: State,
    ring: VecDeque<T>,
    datagrams: VecDeque<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Stopped { since: Timestamp },
    Dead,
}

impl<T> Default for Process<T> {
    fn default() -> Self {
        Self { state: State::Running, ring: VecDeque::new(), datagrams: VecDeque::new() }
    }
}

impl<T> Process<T> {
    pub fn is_running(&self) -> bool {
        self.state == State::Running
    }

    pub fn is_dead(&self) -> bool {
        self.state == State::Dead
    }

    /// Whether the kernel still hands packets to the process.
    pub fn beats(&self, now: Timestamp) -> bool {
        match self.state {
            State::Running => true,
            State::Stopped { since } => now.saturating_since(since) < HEARTBEAT,
            State::Dead => false,
        }
    }

    pub fn stop(&mut self, now: Timestamp) {
        if self.is_running() {
            self.state = State::Stopped { since: now };
        }
    }

    /// Ends the process and returns the items that waited for it.
    pub fn kill(&mut self) -> VecDeque<T> {
        self.state = State::Dead;
        self.datagrams.clear();
        std::mem::take(&mut self.ring)
    }

    /// Resumes the process and returns the items that waited for it.
    pub fn go_on(&mut self) -> (VecDeque<T>, VecDeque<Vec<u8>>) {
        if let State::Stopped { .. } = self.state {
            self.state = State::Running;
        }
        (std::mem::take(&mut self.ring), std::mem::take(&mut self.datagrams))
    }

    /// Leaves an item in the ring; returns it if the ring is full.
    pub fn leave(&mut self, item: T) -> Option<T> {
        if self.ring.len() == RING {
            return Some(item);
        }
        self.ring.push_back(item);
        None
    }

    /// Leaves a datagram in the socket of a suspended process; a datagram without room is lost.
    pub fn leave_datagram(&mut self, datagram: &[u8]) {
        if !self.is_dead() && self.datagrams.len() < DATAGRAMS {
            self.datagrams.push_back(datagram.to_vec());
        }
    }

    /// Number of items in the ring.
    #[cfg(debug_assertions)]
    pub fn waiting(&self) -> u64 {
        self.ring.len() as u64
    }
}

/// Delay with which a process wakes up to send.
#[derive(Debug)]
pub(crate) struct Wakes {
    delay: Duration,
    random: Stream,
    /// Time until which the process sleeps.
    due: Timestamp,
    /// Time from which the process is awake; without a delay, always.
    at: Timestamp,
}

impl Wakes {
    /// Wakes that are late by an exponential time with mean `delay`.
    pub fn new(delay: Duration, random: Stream) -> Self {
        let at = if delay.is_zero() { Timestamp::ZERO } else { Timestamp::MAX };
        Self { delay, random, due: Timestamp::MAX, at }
    }

    /// Whether the process is awake, so that it may send due packets.
    #[inline]
    pub fn is_awake(&self, now: Timestamp) -> bool {
        self.at <= now
    }

    /// Time at which the process wakes up for the packet `due`, given that it has sent all that was due up to
    /// `now`.
    #[inline]
    pub fn plan(&mut self, now: Timestamp, due: Option<Timestamp>) -> Timestamp {
        let due = due.map_or(Timestamp::MAX, |due| due.max(now));
        if self.delay.is_zero() {
            return due;
        }
        if self.at <= now || due < self.due {
            self.due = due;
            self.at = if due < Timestamp::MAX {
                due + stretched(self.delay, self.random.exponential())
            } else {
                due
            };
        }
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::random::Streams;

    fn at(us: u64) -> Timestamp {
        Timestamp::from_nanos(us * 1000)
    }

    #[test]
    fn process_wakes_late_by_the_mean_delay() {
        let delay = Duration::from_micros(100);
        let mut wakes = Wakes::new(delay, Streams::new(1).stream("wakes"));
        let mut sum = Duration::ZERO;
        for number in 1..=10_000 {
            let due = at(10_000 * number);
            let awake = wakes.plan(at(10_000 * number - 1), Some(due));
            assert!(!wakes.is_awake(due) && wakes.is_awake(awake));
            assert_eq!(wakes.plan(due, Some(due)), awake);
            sum += awake.saturating_since(due);
        }
        let mean = sum / 10_000;
        assert!(mean.abs_diff(delay) < delay / 20, "{mean:?}");
        assert_eq!(wakes.plan(at(200_000_000), None), Timestamp::MAX);
    }

    #[test]
    fn a_process_without_delay_is_always_awake() {
        let mut wakes = Wakes::new(Duration::ZERO, Streams::new(1).stream("wakes"));
        assert!(wakes.is_awake(at(0)));
        assert_eq!(wakes.plan(at(2), Some(at(1))), at(2));
        assert!(wakes.is_awake(at(2)));
    }
}
