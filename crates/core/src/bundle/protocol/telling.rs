//! Timing of a message that a box repeats until the peer acknowledges it.

use core::time::Duration;

use crate::units::Timestamp;

/// Shortest time between two messages: ten a second.
const SPACING: Duration = Duration::from_millis(100);
/// First wait for an answer. It doubles each time up to [`LONGEST_WAIT`].
const WAIT: Duration = Duration::from_millis(250);
/// Longest wait for an answer. A peer that does not know the message type costs one datagram in
/// this time.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// One item that a box sends to the peer. A box answers only messages that ask for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Telling {
    /// There is an item to send, and a session to send it in.
    is_open: bool,
    /// The peer has acknowledged the latest item.
    is_held: bool,
    /// The peer waits for the acknowledgement of its own item.
    is_asked: bool,
    sent_at: Option<Timestamp>,
    wait: Duration,
    next: Timestamp,
}

impl Telling {
    /// A box that has nothing to send.
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

    /// Starts sending a new item.
    pub fn begin(&mut self, now: Timestamp) {
        self.is_open = true;
        self.is_held = false;
        self.wait = WAIT;
        self.plan(now);
    }

    /// Stops sending, without an item or a session. A requested answer is no longer needed.
    pub const fn end(&mut self) {
        self.is_open = false;
        self.is_asked = false;
        self.next = Timestamp::MAX;
    }

    /// Takes the peer's message: whether it holds the latest item, and whether it asks for an answer.
    pub fn on_message(&mut self, now: Timestamp, is_held: bool, asks: bool) {
        self.is_held = is_held;
        self.is_asked |= asks;
        self.plan(now);
    }

    /// Whether to send the item now. If so, returns whether to ask the peer for an answer.
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

    /// Whether the peer has acknowledged the latest item.
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
