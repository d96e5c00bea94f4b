//! At which address the other box of a bundle is, and how it moves to another one.
//!
//! A message that is authentic shows who made it, and not who sent it from where: whoever intercepts it can send it on
//! from any address. So a new address is used only after the peer has answered, from there, a challenge that was sent to
//! that address alone (path validation, RFC 9000 sections 8.2 and 9.3). Until then messages go to the old address, and no
//! more bytes are sent to the new one than authentic messages of it had (RFC 9000 section 8.1, with a factor of 1).
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

/// An address from which no authentic message has come for this long (s) is given up: longer than a bundle at rest is
/// silent. Half of it would lose a peer at rest to five lost messages; with twice of it one that has moved without a
/// word is looked for later.
pub const PATIENCE: Duration = Duration::from_secs(6);
/// From one challenge to an address to the next: as a session's first ones.
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(100);
/// New addresses that are tried at a time. Whoever plays intercepted messages from more delays a peer that has moved.
const MOST_TRIED: usize = 4;
/// An address that has not answered for so long is news: round trips are shorter.
const UNANSWERED_AFTER: Duration = Duration::from_secs(1);

/// An authentic message of the peer.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Where the message came from.
    pub source: SocketAddr,
    /// Length of the message (bytes of UDP payload).
    pub bytes: usize,
    /// The message is of the session that runs, and not one that may have been recorded.
    pub is_new: bool,
    /// The operator has named this address: a peer that is nowhere else is taken to be there.
    pub is_configured: bool,
    /// The challenge that the message answers.
    pub answers: Option<u64>,
}

/// News of the peer's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// The peer has answered from another address than before, and messages go there.
    Moved {
        /// The address before; `None`: the peer was at none that it had answered from.
        from: Option<SocketAddr>,
        /// The address from now on.
        to: SocketAddr,
    },
    /// Authentic messages come from an address that has not answered, or that the peer may not be at: nothing is sent
    /// there but challenges.
    Elsewhere {
        /// Where the peer is taken to be; `None`: nowhere.
        current: Option<SocketAddr>,
        /// Where the messages come from.
        source: SocketAddr,
    },
}

/// Where the peer of a bundle is.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Addresses are tried that the operator has not named.
    may_move: bool,
    /// The address in use, and when an authentic message last came from there.
    current: Option<(SocketAddr, Timestamp)>,
    /// Addresses that have not answered, the longest known first.
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
    /// Of a peer that has not been heard; `may_move`: also to addresses that the operator has not named.
    pub const fn new(may_move: bool) -> Self {
        Self { may_move, current: None, tried: VecDeque::new(), moved: None, event: None }
    }

    /// The peer may move from now on, or may not.
    pub const fn set_may_move(&mut self, may_move: bool) {
        self.may_move = may_move;
    }

    /// Whether addresses are tried that the operator has not named.
    pub const fn may_move(&self) -> bool {
        self.may_move
    }

    /// The address that messages go to, if the peer was heard there within [`PATIENCE`].
    pub fn current(&self, now: Timestamp) -> Option<SocketAddr> {
        self.current.filter(|(_, at)| is_fresh(now, *at)).map(|(address, _)| address)
    }

    /// The address where the peer was heard last, however long ago.
    pub fn last(&self) -> Option<SocketAddr> {
        self.current.map(|(address, _)| address)
    }

    /// The address before the last move, and when that was.
    pub const fn moved(&self) -> Option<(Option<SocketAddr>, Timestamp)> {
        self.moved
    }

    /// An address that authentic messages come from and that is not used, the newest of them.
    pub fn elsewhere(&self, now: Timestamp) -> Option<SocketAddr> {
        let told = self.tried.iter().filter(|it| it.is_told && is_fresh(now, it.heard_at));
        told.max_by_key(|it| it.heard_at).map(|it| it.address)
    }

    /// Whether messages from this address are known to be of the peer, or are being asked for an answer.
    pub fn knows(&self, source: SocketAddr) -> bool {
        self.last() == Some(source) || self.tried.iter().any(|it| it.address == source)
    }

    /// An authentic message has come; `draw` gives a number that cannot be guessed, for a challenge.
    pub fn heard(&mut self, now: Timestamp, arrival: Arrival, draw: &mut dyn FnMut() -> u64) {
        let Arrival { source, bytes, is_new, is_configured, answers } = arrival;
        let current = self.current(now);
        if self.last() == Some(source) || current.is_none() && is_configured {
            // What may have been recorded keeps nobody in place.
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

    /// The peer is there.
    fn settle(&mut self, now: Timestamp, address: SocketAddr) {
        let before = self.last();
        self.current = Some((address, now));
        self.tried.retain(|it| it.address != address);
        if before.is_some_and(|before| before != address) {
            self.moved = Some((before, now));
            self.event = Some(PathEvent::Moved { from: before, to: address });
        }
    }

    /// The address and nonce of a challenge that is to be sent now, of [`CHALLENGE_LEN`] bytes, to that address alone.
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

    /// What has happened since the last call; of several events the newest.
    pub const fn take_event(&mut self) -> Option<PathEvent> {
        self.event.take()
    }
}

fn is_fresh(now: Timestamp, heard_at: Timestamp) -> bool {
    now.saturating_since(heard_at) < PATIENCE
}

#[cfg(test)]
mod tests;
