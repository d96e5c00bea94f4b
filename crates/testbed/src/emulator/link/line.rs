//! The delay line behind the server, where some packets may be held back on purpose.

use std::collections::VecDeque;

use forebay_core::link::{Jitter, MAX_HOLD};
use forebay_core::units::{Duration, Timestamp};

use super::Delivery;

/// Packets under way, released in order of their due times.
pub(super) struct DelayLine<P> {
    delay: Duration,
    jitter: Jitter,
    /// Overtaken by this many packets, a held packet goes on.
    overtakers: u64,
    /// In order of due time.
    moving: VecDeque<Delivery<P>>,
    /// In order of entry, so in order of both limits.
    held: VecDeque<Held<P>>,
    /// Packets put on the line that were not held.
    passed: u64,
    last_due: Timestamp,
}

struct Held<P> {
    packet: Delivery<P>,
    /// Released with the packet that brings `passed` here.
    until_passed: u64,
    /// Released at this time at the latest, whatever has passed.
    until: Timestamp,
}

impl<P> DelayLine<P> {
    pub(super) fn new(delay: Duration, jitter: Jitter, overtakers: u64) -> Self {
        Self {
            delay,
            jitter,
            overtakers,
            moving: VecDeque::new(),
            held: VecDeque::new(),
            passed: 0,
            last_due: Timestamp::ZERO,
        }
    }

    /// Packets that enter from now on take `delay`, or longer where they would otherwise overtake.
    pub(super) fn set_delay(&mut self, delay: Duration) {
        self.delay = delay;
    }

    /// When a packet that departs at `departed` will be due, without its jitter and unless it is held.
    pub(super) fn due(&self, departed: Timestamp) -> Timestamp {
        (departed + self.delay).max(self.last_due)
    }

    /// Takes a packet at its `departed` time; `hold` asks for it to be overtaken.
    pub(super) fn push(&mut self, mut packet: Delivery<P>, hold: bool) {
        let late = self.jitter.draw(packet.departed);
        let due = self.due(packet.departed + late);
        self.last_due = due;
        self.expire(due);
        packet.due = due;
        if hold && self.overtakers > 0 {
            let until_passed = self.passed + self.overtakers;
            self.held.push_back(Held { packet, until_passed, until: due + MAX_HOLD });
            return;
        }
        self.passed += 1;
        self.moving.push_back(packet);
        while self.held.front().is_some_and(|held| held.until_passed <= self.passed) {
            self.release_held(due);
        }
    }

    /// The next packet that is due at `now` or before. Every departure up to `now` must have been
    /// pushed.
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<Delivery<P>> {
        self.expire(now);
        self.moving.pop_front_if(|packet| packet.due <= now)
    }

    /// When the next packet on the line is due.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let moving = self.moving.front().map(|packet| packet.due);
        let held = self.held.front().map(|held| held.until);
        moving.into_iter().chain(held).min()
    }

    /// Packets on the line.
    pub(super) fn len(&self) -> usize {
        self.moving.len() + self.held.len()
    }

    /// Lets go what was held up to `time`. The line stays sorted: what is on it is due before the
    /// limit of any packet still held, or it would have been let go when the former was pushed.
    fn expire(&mut self, time: Timestamp) {
        while let Some(until) = self.held.front().map(|held| held.until)
            && until <= time
        {
            self.release_held(until);
        }
    }

    fn release_held(&mut self, due: Timestamp) {
        if let Some(mut held) = self.held.pop_front() {
            held.packet.due = due;
            self.moving.push_back(held.packet);
        }
    }
}
