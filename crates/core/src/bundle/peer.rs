//! What is known of the other box: whether it is there, what it says of itself, and why not a word of
//! it may be understood.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::monitor::{Liveness, Monitor};
use super::wire::{BoxState, Reject};
use crate::units::Timestamp;

/// Datagrams in a row whose tag is wrong under every key that are worth a word: one may be anybody's.
const UNVERIFIED: u32 = 3;
/// Why nothing is known of a peer whose messages come.
pub const KEYS_DIFFER: &str = "the peer's messages do not verify: do the keys differ?";
/// Why nothing is measured with a peer that is there.
pub const NO_COMMON_VERSION: &str =
    "the peer does not sample as this box does: does `nat` differ, or is it of an older version?";

/// News of the peer, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// The peer is there.
    Alive,
    /// The peer is another process than before.
    Restarted,
    /// The peer says that it stops.
    Stopping,
    /// Nothing was heard of the peer for too long.
    Silent,
    /// Messages that claim to be of the peer do not verify, and nothing else is heard.
    Unverified,
    /// The peer takes other packets for the bundle's than this box, no longer does, or takes others than before.
    Scope,
}

/// Watches the other box.
#[derive(Clone, Debug)]
pub struct PeerWatch {
    monitor: Monitor,
    state: Option<BoxState>,
    unverified: u32,
    events: VecDeque<PeerEvent>,
}

impl PeerWatch {
    /// Nothing heard yet at `now`.
    pub fn new(now: Timestamp) -> Self {
        Self { monitor: Monitor::new(now), state: None, unverified: 0, events: VecDeque::new() }
    }

    /// The peer says what it does.
    pub const fn says(&mut self, state: BoxState) {
        self.state = Some(state);
    }

    /// The peer's session is new: what its predecessor said does not hold.
    pub fn renewed(&mut self, now: Timestamp) {
        self.state = None;
        self.unverified = 0;
        self.monitor.heard(now);
        self.monitor.set_resting(false);
        self.tell(PeerEvent::Restarted);
    }

    /// The peer reports packets: it rests no more, if its word of that was lost.
    pub fn reports(&mut self) {
        if self.state == Some(BoxState::Resting) {
            self.state = Some(BoxState::Watching);
        }
    }

    /// A fresh authentic message has arrived, and what it says has been told; answers what has become
    /// of the peer if that is news. A peer that stops says so more than once.
    pub fn heard(&mut self, now: Timestamp) -> Option<Liveness> {
        self.unverified = 0;
        let (is_news, event) = match self.state {
            Some(BoxState::Stopping) => (self.monitor.stopped(), PeerEvent::Stopping),
            _ => (self.monitor.heard(now), PeerEvent::Alive),
        };
        self.monitor.set_resting(self.state == Some(BoxState::Resting));
        if is_news {
            self.tell(event);
        }
        is_news.then(|| self.monitor.state())
    }

    /// A datagram about this bundle was rejected.
    pub fn rejected(&mut self, reject: Reject) {
        if reject != Reject::Forged || self.monitor.state() == Liveness::Alive {
            return;
        }
        self.unverified = self.unverified.saturating_add(1);
        if self.unverified == UNVERIFIED {
            self.tell(PeerEvent::Unverified);
        }
    }

    /// Time passes; `rtt` is the round trip to the peer, if it is known. True if the peer has just
    /// gone silent.
    pub fn poll(&mut self, now: Timestamp, rtt: Option<Duration>) -> bool {
        let is_silent = self.monitor.poll(now, rtt);
        if is_silent {
            self.unverified = 0;
            self.tell(PeerEvent::Silent);
        }
        is_silent
    }

    /// The next news, oldest first.
    pub fn take_event(&mut self) -> Option<PeerEvent> {
        self.events.pop_front()
    }

    /// Whether the peer is there.
    pub const fn liveness(&self) -> Liveness {
        self.monitor.state()
    }

    /// What the peer last said of itself.
    pub const fn state(&self) -> Option<BoxState> {
        self.state
    }

    /// Nothing of what claims to be the peer's verifies.
    pub(super) const fn is_unverified(&self) -> bool {
        self.unverified >= UNVERIFIED
    }

    /// One of each kind waits at most: a host that never asks is no reason to grow.
    pub(super) fn tell(&mut self, event: PeerEvent) {
        self.events.retain(|waiting| *waiting != event);
        self.events.push_back(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(peer: &mut PeerWatch) -> alloc::vec::Vec<PeerEvent> {
        core::iter::from_fn(|| peer.take_event()).collect()
    }

    #[test]
    fn a_peer_that_comes_stops_and_comes_back_is_news_thrice() {
        use BoxState::{Shaping, Stopping};
        let mut peer = PeerWatch::new(Timestamp::ZERO);
        let states = [None, Some(Shaping), Some(Stopping), Some(Stopping), Some(Stopping)];
        let mut news = alloc::vec::Vec::new();
        for (at, state) in states.into_iter().chain([Some(Shaping)]).enumerate() {
            state.into_iter().for_each(|state| peer.says(state));
            if let Some(liveness) = peer.heard(Timestamp::from_nanos(at as u64)) {
                news.push((at, liveness));
            }
        }
        assert_eq!(news, [(0, Liveness::Alive), (2, Liveness::Silent), (5, Liveness::Alive)]);
        assert_eq!(events(&mut peer), [PeerEvent::Stopping, PeerEvent::Alive]);
    }

    #[test]
    fn keys_that_differ_are_told_once_and_only_while_nobody_is_heard() {
        let mut peer = PeerWatch::new(Timestamp::ZERO);
        (0..10).for_each(|_| peer.rejected(Reject::Replayed));
        assert!(!peer.is_unverified());
        (0..10).for_each(|_| peer.rejected(Reject::Forged));
        assert!(peer.is_unverified());
        assert_eq!(events(&mut peer), [PeerEvent::Unverified]);
        peer.heard(Timestamp::from_nanos(1));
        assert!(!peer.is_unverified());
        (0..10).for_each(|_| peer.rejected(Reject::Forged));
        assert!(!peer.is_unverified(), "anybody can send what does not verify");
        assert!(peer.poll(Timestamp::from_nanos(600_000_000), None));
        assert_eq!(events(&mut peer), [PeerEvent::Alive, PeerEvent::Silent]);
    }
}
