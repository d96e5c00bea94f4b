//! The delay line behind the server; it may hold some packets back on purpose.

use std::collections::VecDeque;

use forebay_core::link::{Jitter, MAX_HOLD};
use forebay_core::units::{Duration, Timestamp};

use super::Delivery;

/// Packets under way, released in order of due time.
pub(super) struct DelayLine<P> {
    delay: Duration,
    jitter: Jitter,
    /// Number of packets that overtake a held packet before it continues.
    overtakers: u64,
    /// After a decrease of the delay, a packet may be due before packets that departed earlier.
    overtakes: bool,
    /// In order of due time.
    moving: VecDeque<Delivery<P>>,
    /// In order of entry, and so in order of both limits.
    held: VecDeque<Held<P>>,
    /// Packets put on the line that were not held.
    passed: u64,
    last_due: Timestamp,
    /// Latest entry so far, with its jitter.
    begun: Timestamp,
}

struct Held<P> {
    packet: Delivery<P>,
    /// Released with the packet that raises `passed` to this value.
    until_passed: u64,
    /// Released at this time at the latest, even if fewer packets have passed.
    until: Timestamp,
}

impl<P> DelayLine<P> {
    pub(super) fn new(delay: Duration, jitter: Jitter, overtakers: u64, overtakes: bool) -> Self {
        Self {
            delay,
            jitter,
            overtakers,
            overtakes,
            moving: VecDeque::new(),
            held: VecDeque::new(),
            begun: Timestamp::ZERO,
            passed: 0,
            last_due: Timestamp::ZERO,
        }
    }

    /// Packets that enter from now on take `delay`, or longer where they would overtake and may not.
    pub(super) fn set_delay(&mut self, delay: Duration) {
        self.delay = delay;
    }

    /// Due time of a packet that departs at `departed`, without its jitter and unless it is held.
    pub(super) fn due(&self, departed: Timestamp) -> Timestamp {
        let due = departed + self.delay;
        if self.overtakes { due } else { due.max(self.last_due) }
    }

    /// Takes a packet at its `departed` time; with `hold`, later packets overtake it.
    pub(super) fn push(&mut self, mut packet: Delivery<P>, hold: bool) {
        // Packets wait for those before them that jitter delays more, also where others may overtake.
        self.begun = self.begun.max(packet.departed + self.jitter.draw(packet.departed));
        let due = self.due(self.begun);
        self.last_due = due;
        self.expire(due);
        packet.due = due;
        if hold && self.overtakers > 0 {
            let until_passed = self.passed + self.overtakers;
            // Where packets overtake, one that was held before may be due later.
            let before = self.held.back().map_or(Timestamp::ZERO, |held| held.until);
            let until = before.max(due + MAX_HOLD);
            self.held.push_back(Held { packet, until_passed, until });
            return;
        }
        self.passed += 1;
        self.insert(packet);
        while self.held.front().is_some_and(|held| held.until_passed <= self.passed) {
            self.release_held(due);
        }
    }

    /// The next packet due at `now` or before. All departures up to `now` must have been pushed.
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<Delivery<P>> {
        self.expire(now);
        self.moving.pop_front_if(|packet| packet.due <= now)
    }

    /// Due time of the next packet on the line.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let moving = self.moving.front().map(|packet| packet.due);
        let held = self.held.front().map(|held| held.until);
        moving.into_iter().chain(held).min()
    }

    /// Packets on the line.
    pub(super) fn len(&self) -> usize {
        self.moving.len() + self.held.len()
    }

    /// Lets go what was held up to `time`.
    fn expire(&mut self, time: Timestamp) {
        while let Some(until) = self.held.front().map(|held| held.until)
            && until <= time
        {
            self.release_held(until);
        }
    }

    fn release_held(&mut self, due: Timestamp) {
        if let Some(mut held) = self.held.pop_front() {
            held.packet.due = held.packet.due.max(due);
            self.insert(held.packet);
        }
    }

    /// Inserts a packet in front of the packets that are due later.
    fn insert(&mut self, packet: Delivery<P>) {
        let later = self.moving.iter().rev().take_while(|other| other.due > packet.due).count();
        self.moving.insert(self.moving.len() - later, packet);
    }
}
