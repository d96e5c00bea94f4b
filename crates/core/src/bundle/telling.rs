//! When a box tells the other something, until the other has said that it has it.

use core::time::Duration;

use crate::units::Timestamp;

/// Shortest time between two messages: ten a second.
const SPACING: Duration = Duration::from_millis(100);
/// Wait for an answer, doubled each time up to the longest. A peer that does not know the type of the message costs a
/// datagram in ten seconds.
const WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// One thing that a box tells the other: what is asked is answered, what is not asked is not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Telling {
    /// There is something to tell, and a session to tell it in.
    is_open: bool,
    /// The peer has said that it has what was told last.
    is_held: bool,
    /// The peer waits to hear that what it told has come.
    is_asked: bool,
    sent_at: Option<Timestamp>,
    wait: Duration,
    next: Timestamp,
}

impl Telling {
    /// Of a box that has nothing to tell.
    pub const fn new() -> Self {
        Self {
            is_open: false,
            is_held: false,
            is_asked: false,
            sent_at: None,
            wait: WAIT,
            next: Timestamp::MAX,
        }
    }

    /// There is something else to tell from now on.
    pub fn begin(&mut self, now: Timestamp) {
        self.is_open = true;
        self.is_held = false;
        self.wait = WAIT;
        self.plan(now);
    }

    /// There is nothing to tell, or nobody: what was asked need not be answered.
    pub const fn end(&mut self) {
        self.is_open = false;
        self.is_asked = false;
        self.next = Timestamp::MAX;
    }

    /// The peer has told something: it has what was told last, or not, and asks for an answer, or not.
    pub fn on_message(&mut self, now: Timestamp, is_held: bool, asks: bool) {
        self.is_held = is_held;
        self.is_asked |= asks;
        self.plan(now);
    }

    /// Whether it is to be told now, and then whether the peer is asked for an answer.
    pub fn poll(&mut self, now: Timestamp) -> Option<bool> {
        if now < self.next {
            return None;
        }
        self.is_asked = false;
        if self.sent_at.replace(now).is_some() {
            self.wait = (self.wait * 2).min(LONGEST_WAIT);
        }
        self.plan(now);
        Some(!self.is_held)
    }

    /// When [`Telling::poll`] is next needed.
    pub const fn next_timer(&self) -> Timestamp {
        self.next
    }

    /// Whether the peer has said that it has what was told last.
    #[cfg(test)]
    pub const fn is_held(&self) -> bool {
        self.is_held
    }

    fn plan(&mut self, now: Timestamp) {
        let after = |wait| self.sent_at.map_or(now, |sent_at| sent_at + wait);
        self.next = if !self.is_open {
            Timestamp::MAX
        } else if self.is_asked {
            after(SPACING)
        } else if !self.is_held {
            after(self.wait)
        } else {
            Timestamp::MAX
        };
    }
}
