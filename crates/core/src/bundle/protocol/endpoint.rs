//! One end of a bundle's protocol: its session, the agreements with the peer, and the state of the peer.

use alloc::vec::Vec;

use super::exchange::Exchange;
use super::keys::KeyRing;
use super::negotiation::Negotiation;
use super::peer::{PeerEvent, PeerWatch};
use super::scope::{Difference, Scope};
use super::session::{Role, Session};
use super::wire::{MESSAGE_HEADERS, Message, RejectCounts};
use crate::bundle::{BlockVersion, BlockVersions, BundleId, SamplingKey};
use crate::units::{ByteCount, Timestamp};

/// The part that sendbox and receivebox have in common.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub(in crate::bundle) session: Session,
    pub(in crate::bundle) peer: PeerWatch,
    pub(in crate::bundle) scope: Exchange,
    pub(in crate::bundle) versions: Negotiation,
    message_bytes: ByteCount,
}

impl Endpoint {
    /// Starts at `now` without knowledge of the peer. `session_id` and `nonce` are fresh random numbers.
    pub(in crate::bundle) fn new(
        role: Role,
        bundle: BundleId,
        keys: &KeyRing,
        [session_id, nonce]: [u64; 2],
        now: Timestamp,
    ) -> Self {
        Self {
            session: Session::new(role, bundle, keys, session_id, nonce, now),
            peer: PeerWatch::new(now),
            scope: Exchange::new(role),
            versions: Negotiation::new(),
            message_bytes: ByteCount::ZERO,
        }
    }

    /// Starts a new session under other keys, as [`Endpoint::new`] does. Counters keep their values.
    pub(in crate::bundle) fn restart(
        &mut self,
        keys: &KeyRing,
        [session_id, nonce]: [u64; 2],
        now: Timestamp,
    ) {
        self.session.restart(keys, session_id, nonce, now);
        self.scope.restart();
        self.versions.restart();
    }

    /// The peer has a new session, and may be of another version than before.
    pub(in crate::bundle) fn on_session(&mut self, now: Timestamp) {
        self.scope.on_session(now);
        self.versions.on_session(now);
        self.scope.set_counting(now, self.versions.counting());
    }

    /// Takes a message about an agreement between the boxes and ignores all other messages.
    pub(in crate::bundle) fn on_terms(&mut self, now: Timestamp, message: &Message) {
        let differs = match message {
            Message::Scope(message) => self.scope.on_message(now, message),
            Message::Versions(message) => {
                self.versions.on_message(now, message);
                self.scope.set_counting(now, self.versions.counting())
            }
            _ => false,
        };
        if differs {
            self.peer.tell(PeerEvent::Scope);
        }
    }

    /// Replaces `out` by the next message about an agreement. False if none is due.
    pub(in crate::bundle) fn poll_terms(&mut self, now: Timestamp, out: &mut Vec<u8>) -> bool {
        let scope = self.scope.poll(now).map(Message::Scope);
        let message = scope.or_else(|| self.versions.poll(now).map(Message::Versions));
        message.inspect(|message| self.session.seal(now, message, out)).is_some()
    }

    /// When [`Endpoint::poll_terms`] or the session is next needed.
    pub(in crate::bundle) fn next_timer(&self) -> Timestamp {
        let terms = self.scope.next_timer().min(self.versions.next_timer());
        self.session.next_timer().min(terms)
    }

    pub(in crate::bundle) fn count_message(&mut self, datagram: &[u8]) {
        self.message_bytes += ByteCount::new(datagram.len() as u64) + MESSAGE_HEADERS;
    }

    /// Sets which packets of the bundle the host takes or counts from now on. The endpoint sends them to the peer and
    /// compares them with the peer's. A box without a scope sends and compares nothing.
    pub fn set_scope(&mut self, now: Timestamp, scope: Scope) {
        if self.scope.set(now, scope) {
            self.peer.tell(PeerEvent::Scope);
        }
    }

    /// Offers the peer the versions of the sampling block that datapath or sampler can build. A box without an offer
    /// builds version 1.
    pub fn set_versions(&mut self, now: Timestamp, versions: BlockVersions) {
        self.versions.offer(now, versions);
    }

    /// The host splits datagrams ([`split`](super::wire::split)) and may combine messages in one
    /// ([`may_share`](super::wire::may_share)). If the peer's host does, too, the bundle rests while none of
    /// its packets leaves.
    pub fn offer_rest(&mut self, now: Timestamp) {
        self.versions.offer_rest(now);
    }

    /// The host excludes the boxes' messages by their addresses and ports. If the peer's host does, too, all
    /// other traffic of the boxes belongs to the bundle.
    pub fn offer_counting(&mut self, now: Timestamp) {
        self.versions.offer_counting(now);
        self.scope.set_counting(now, self.versions.counting());
    }

    /// Whether both boxes exclude only messages from the traffic of the boxes, by present knowledge. Until then
    /// the host of a sendbox excludes all traffic to the receivebox.
    pub fn counts_boxes(&self) -> bool {
        self.versions.both_count_boxes()
    }

    /// The key to sample with.
    pub fn sampling_key(&self) -> SamplingKey {
        self.session.sampling_key()
    }

    /// The version of the sampling block to sample with; `None`: the boxes have none in common, and nothing is
    /// measured.
    pub fn block_version(&self) -> Option<BlockVersion> {
        self.versions.version()
    }

    /// The next event of the peer, oldest first.
    pub fn take_event(&mut self) -> Option<PeerEvent> {
        self.peer.take_event()
    }

    /// Differences between the scopes of both boxes; `None`: unknown.
    pub fn differences(&self) -> Option<&[Difference]> {
        self.scope.differences()
    }

    /// The state of the peer.
    pub const fn peer(&self) -> &PeerWatch {
        &self.peer
    }

    /// Replaces `out` by a challenge for a single address ([`paths`](super::paths)).
    pub fn challenge_at(&mut self, nonce: u64, out: &mut Vec<u8>) {
        self.session.challenge_at(nonce, out);
        self.count_message(out);
    }

    /// The nonce of such a challenge that the newest datagram has answered.
    pub const fn take_answered(&mut self) -> Option<u64> {
        self.session.take_answered()
    }

    /// Whether a datagram carries the tag of one of the peer's keys, fresh or not. Has no effect.
    pub fn verifies(&self, datagram: &[u8]) -> bool {
        self.session.verifies(datagram)
    }

    /// When the peer was last heard.
    pub const fn heard_at(&self) -> Option<Timestamp> {
        self.session.heard_at()
    }

    /// Bytes of the sent messages, headers included; at a sendbox also the accepted ones.
    pub const fn message_bytes(&self) -> ByteCount {
        self.message_bytes
    }

    /// Counts of the rejected datagrams.
    pub const fn rejects(&self) -> &RejectCounts {
        self.session.rejects()
    }
}
