//! State of the other box: whether it is alive, its latest announcements, and why its messages may be unreadable.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::monitor::{Liveness, Monitor};
use super::wire::{BoxState, Reject};
use crate::units::Timestamp;

/// Datagrams in a row with an invalid tag under every key that raise an event. A single one may come from any host.
const UNVERIFIED: u32 = 3;
/// Reason if messages arrive but none verifies.
pub const KEYS_DIFFER: &str = "the peer's messages do not verify: do the keys differ?";
/// Reason if the peer has announced its stop and no new session has begun.
pub const PEER_STOPPED: &str = "the receivebox stopped and closed the session";
/// Reason if the peer is alive but nothing is measured with it.
pub const NO_COMMON_VERSION: &str =
    "the peer does not sample as this box does: does `nat` differ, or is it of an older version?";

/// An event of the peer, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// The peer is alive.
    Alive,
    /// The peer has restarted.
    Restarted,
    /// The peer has announced its stop.
    Stopping,
    /// The peer was silent for too long.
    Silent,
    /// Messages that claim to come from the peer do not verify, and no valid ones arrive.
    Unverified,
    /// The scopes of the two boxes differ, no longer differ, or differ in another way.
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

    /// Records the state that the peer has announced.
    pub const fn says(&mut self, state: BoxState) {
        self.state = Some(state);
    }

    /// The peer's session is new: its predecessor's announcements are void.
    pub fn renewed(&mut self, now: Timestamp) {
        self.state = None;
        self.unverified = 0;
        self.monitor.heard(now);
        self.monitor.set_resting(false);
        self.tell(PeerEvent::Restarted);
    }

    /// The peer reports packets, so it no longer rests, even if its announcement was lost.
    pub fn reports(&mut self) {
        if self.state == Some(BoxState::Resting) {
            self.state = Some(BoxState::Watching);
        }
    }

    /// Records a fresh authentic message after its content was handled. Returns the peer's state if it has
    /// changed. A peer that stops announces it several times.
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

    /// Records that a datagram about this bundle was rejected.
    pub fn rejected(&mut self, reject: Reject) {
        if reject != Reject::Forged || self.monitor.state() == Liveness::Alive {
            return;
        }
        self.unverified = self.unverified.saturating_add(1);
        if self.unverified == UNVERIFIED {
            self.tell(PeerEvent::Unverified);
        }
    }

    /// Checks for silence at `now`; `rtt` is the round trip to the peer, if known. True if the peer has just
    /// gone silent.
    pub fn poll(&mut self, now: Timestamp, rtt: Option<Duration>) -> bool {
        let is_silent = self.monitor.poll(now, rtt);
        if is_silent {
            self.unverified = 0;
            self.tell(PeerEvent::Silent);
        }
        is_silent
    }

    /// The next event, oldest first.
    pub fn take_event(&mut self) -> Option<PeerEvent> {
        self.events.pop_front()
    }

    /// Whether the peer is alive.
    pub const fn liveness(&self) -> Liveness {
        self.monitor.state()
    }

    /// The latest state that the peer has announced.
    pub const fn state(&self) -> Option<BoxState> {
        self.state
    }

    /// Whether messages that claim to come from the peer arrive but do not verify.
    pub(crate) const fn is_unverified(&self) -> bool {
        self.unverified >= UNVERIFIED
    }

    /// Whether the peer is silent because it has announced its stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.monitor.state() == Liveness::Silent && self.state == Some(BoxState::Stopping)
    }

    /// Queues an event. At most one of each kind waits, so that the queue stays small if the host never asks.
    pub(crate) fn tell(&mut self, event: PeerEvent) {
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
    fn peer_start_stop_and_return_are_three_events() {
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
    fn wrong_keys_are_reported_once_while_nothing_verifies() {
        let mut peer = PeerWatch::new(Timestamp::ZERO);
        (0..10).for_each(|_| peer.rejected(Reject::Replayed));
        assert!(!peer.is_unverified());
        (0..10).for_each(|_| peer.rejected(Reject::Forged));
        assert!(peer.is_unverified());
        assert_eq!(events(&mut peer), [PeerEvent::Unverified]);
        peer.heard(Timestamp::from_nanos(1));
        assert!(!peer.is_unverified());
        (0..10).for_each(|_| peer.rejected(Reject::Forged));
        assert!(!peer.is_unverified(), "any host can send messages that do not verify");
        assert!(peer.poll(Timestamp::from_nanos(600_000_000), None));
        assert_eq!(events(&mut peer), [PeerEvent::Alive, PeerEvent::Silent]);
    }
}
