//! Address of the other box of a bundle, and how it changes.
//!
//! An authentic message proves who made it, but not who sent it: an attacker can intercept it and resend it from
//! any address. A box therefore sends a challenge to the new address alone. It uses the address only after the
//! peer has answered from there (path validation, RFC 9000 sections 8.2 and 9.3). Until then messages go to the
//! old address. The new address gets at most as many bytes as its authentic messages had (RFC 9000 section 8.1,
//! with a factor of 1).
//!
//! ```text
//!  peer behind NAT              this box
//!    message from old  ───────►            messages go to old
//!    message from new  ───────►            messages go to old
//!    message from new  ───────►
//!                      ◄───────  challenge(n) to new
//!    response(n)       ───────►            messages go to new
//! ```

use alloc::collections::VecDeque;
use core::net::SocketAddr;
use core::time::Duration;

use super::wire::CHALLENGE_LEN;
use crate::units::Timestamp;

/// Time (s) without an authentic message after which an address expires: longer than the silence of a bundle at
/// rest. Half of it would lose a peer at rest after five lost messages. Twice of it would delay the search for
/// a peer that has moved silently.
pub const PATIENCE: Duration = Duration::from_secs(6);
/// Time between two challenges to an address, as at the start of a session.
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(100);
/// New addresses that are tried at a time. An attacker who replays intercepted messages from more addresses
/// delays a peer that has moved.
const MOST_TRIED: usize = 4;
/// Time without an answer after which an address is reported: longer than a round trip.
const UNANSWERED_AFTER: Duration = Duration::from_secs(1);

/// An authentic message of the peer.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Where the message came from.
    pub source: SocketAddr,
    /// Length of the message (bytes of UDP payload).
    pub bytes: usize,
    /// The message belongs to the running session. Otherwise it may be a recorded one.
    pub is_new: bool,
    /// The operator has configured this address. A peer with no current address is assumed to be there.
    pub is_configured: bool,
    /// The challenge that the message answers.
    pub answers: Option<u64>,
}

/// An event about the peer's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// The peer has answered from a new address, and messages now go there.
    Moved {
        /// The old address; `None`: no address had answered before.
        from: Option<SocketAddr>,
        /// The new address.
        to: SocketAddr,
    },
    /// Authentic messages come from an address that has not answered, or that the configuration does not allow.
    /// Only challenges go there.
    Elsewhere {
        /// The present address of the peer; `None`: unknown.
        current: Option<SocketAddr>,
        /// Where the messages come from.
        source: SocketAddr,
    },
}

/// Tracks the address of a bundle's peer.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Addresses that the operator has not configured may be tried.
    may_move: bool,
    /// The address in use, and when an authentic message last came from there.
    current: Option<(SocketAddr, Timestamp)>,
    /// Addresses that have not answered, in the order in which they appeared.
    tried: VecDeque<Tried>,
    /// The last move.
    moved: Option<(Option<SocketAddr>, Timestamp)>,
    event: Option<PathEvent>,
}

/// An address that has not answered.
#[derive(Clone, Copy, Debug)]
struct Tried {
    address: SocketAddr,
    nonce: u64,
    received_bytes: usize,
    sent_bytes: usize,
    since: Timestamp,
    heard_at: Timestamp,
    next_challenge: Timestamp,
    is_told: bool,
}

impl Paths {
    /// A peer that has not been heard. `may_move`: it may use addresses that the operator has not configured.
    pub const fn new(may_move: bool) -> Self {
        Self { may_move, current: None, tried: VecDeque::new(), moved: None, event: None }
    }

    /// Sets whether the peer may move.
    pub const fn set_may_move(&mut self, may_move: bool) {
        self.may_move = may_move;
    }

    /// Whether addresses may be tried that the operator has not configured.
    pub const fn may_move(&self) -> bool {
        self.may_move
    }

    /// The address that messages go to, if the peer was heard there within [`PATIENCE`].
    pub fn current(&self, now: Timestamp) -> Option<SocketAddr> {
        self.current.filter(|(_, at)| is_fresh(now, *at)).map(|(address, _)| address)
    }

    /// The address where the peer was last heard, at any time.
    pub fn last(&self) -> Option<SocketAddr> {
        self.current.map(|(address, _)| address)
    }

    /// The address before the last move, and the time of the move.
    pub const fn moved(&self) -> Option<(Option<SocketAddr>, Timestamp)> {
        self.moved
    }

    /// The newest unused address that authentic messages come from.
    pub fn elsewhere(&self, now: Timestamp) -> Option<SocketAddr> {
        let told = self.tried.iter().filter(|it| it.is_told && is_fresh(now, it.heard_at));
        told.max_by_key(|it| it.heard_at).map(|it| it.address)
    }

    /// Whether this address is the peer's, or is being challenged.
    pub fn knows(&self, source: SocketAddr) -> bool {
        self.last() == Some(source) || self.tried.iter().any(|it| it.address == source)
    }

    /// Takes an authentic message. `draw` gives an unpredictable number for a challenge.
    pub fn heard(&mut self, now: Timestamp, arrival: Arrival, draw: &mut dyn FnMut() -> u64) {
        let Arrival { source, bytes, is_new, is_configured, answers } = arrival;
        let current = self.current(now);
        if self.last() == Some(source) || current.is_none() && is_configured {
            // A message that may be recorded does not confirm the current address.
            if is_new || current.is_none() {
                self.settle(now, source);
            }
            return;
        }
        self.tried.retain(|it| is_fresh(now, it.heard_at));
        let known = self.tried.iter().position(|it| it.address == source);
        let at = known.unwrap_or_else(|| {
            if self.tried.len() == MOST_TRIED {
                self.tried.pop_front();
            }
            self.tried.push_back(Tried {
                address: source,
                nonce: draw(),
                received_bytes: 0,
                sent_bytes: 0,
                since: now,
                heard_at: now,
                next_challenge: now,
                is_told: false,
            });
            self.tried.len() - 1
        });
        let tried = &mut self.tried[at];
        tried.heard_at = now;
        tried.received_bytes = tried.received_bytes.saturating_add(bytes);
        if self.may_move && answers == Some(tried.nonce) {
            self.settle(now, source);
        } else if !tried.is_told && now.saturating_since(tried.since) >= UNANSWERED_AFTER {
            tried.is_told = true;
            self.event = Some(PathEvent::Elsewhere { current, source });
        }
    }

    /// Makes `address` the peer's address.
    fn settle(&mut self, now: Timestamp, address: SocketAddr) {
        let before = self.last();
        self.current = Some((address, now));
        self.tried.retain(|it| it.address != address);
        if before.is_some_and(|before| before != address) {
            self.moved = Some((before, now));
            self.event = Some(PathEvent::Moved { from: before, to: address });
        }
    }

    /// Address and nonce of a challenge to send now: [`CHALLENGE_LEN`] bytes, to that address alone.
    pub fn challenge_due(&mut self, now: Timestamp) -> Option<(SocketAddr, u64)> {
        if !self.may_move {
            return None;
        }
        let is_due = |it: &&mut Tried| {
            now >= it.next_challenge
                && is_fresh(now, it.heard_at)
                && it.sent_bytes.saturating_add(CHALLENGE_LEN) <= it.received_bytes
        };
        let tried = self.tried.iter_mut().find(is_due)?;
        tried.sent_bytes += CHALLENGE_LEN;
        tried.next_challenge = now + CHALLENGE_INTERVAL;
        Some((tried.address, tried.nonce))
    }

    /// The newest event since the last call.
    pub const fn take_event(&mut self) -> Option<PathEvent> {
        self.event.take()
    }
}

fn is_fresh(now: Timestamp, heard_at: Timestamp) -> bool {
    now.saturating_since(heard_at) < PATIENCE
}

#[cfg(test)]
mod tests;
