//! The session of two boxes about one bundle: identifies the running peer and fresh messages.
//!
//! Each start of a box draws a random session id. A box accepts the peer's session only after the peer has
//! answered, under the key, a fresh nonce. An attacker can play a recorded session back to a restarted box, but
//! this proves nothing. Inside a session each sequence number is accepted once.
//!
//! ```text
//!  A (restarted)                          B
//!    challenge(a)              ────────►        B does not know A's session
//!    A takes B's session       ◄────────  response(a), challenge(b)
//!    response(b)               ────────►        B takes A's session
//! ```
//! A box never answers a message that is not authentic, and it limits the rate of answers to authentic old
//! ones. Send its messages only to the peer's configured address, or to an address that has answered its own
//! challenge ([`Session::challenge_at`], [`super::paths`]). A box then cannot be made to send anything to a
//! third party.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::keys::{Direction, KeyRing, MessageKey};
use super::replay::ReplayWindow;
use super::wire::{BoxState, Header, Keepalive, Message, Reject, RejectCounts, SHARED, Sealed};
use crate::bundle::{BundleId, SamplingKey};
use crate::units::Timestamp;

/// Time from the last message of any kind to a keepalive. The peer's monitor reports silence (500 ms) only
/// after five messages in a row are missing, so half of all messages may be lost.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_millis(100);

/// Longest time from one keepalive to the next for a bundle at rest.
const REST_INTERVAL: Duration = Duration::from_secs(1);
/// Time between keepalives to a peer that has fallen silent but may still hear this box. It is shorter than the
/// silence that the peer accepts.
const DOUBT_INTERVAL: Duration = Duration::from_millis(400);
/// Keepalives that announce a rest at the short interval. The rare ones follow, so that a lost announcement does
/// not look like silence.
const SAID_BEFORE_REST: u32 = 10;
/// A peer that is silent for this time gets fewer messages. The boxes of thousands of bundles may
/// be switched off.
const ALONE_AFTER: Duration = Duration::from_secs(60);
/// A peer that has never answered gets fewer messages after this many challenges (6 s).
const UNANSWERED: u32 = 16;
/// Number of send instants in each [`REST_INTERVAL`] for bundles at rest, by one clock for all bundles of a box.
/// Bundles with adjacent numbers send at the same instant and share a datagram. The load spreads over the instants.
const REST_PHASES: u32 = 32;

/// First wait for the answer to a challenge; also the shortest time between two challenges.
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait, while the peer does not answer at all.
const CHALLENGE_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Challenges after which a box that knows its peer's session stops asking for a new one. If half of all
/// messages are lost, at least one of eight exchanges of two messages succeeds with a probability of nine in
/// ten. A peer that did restart triggers the next attempt with its next message.
const CHALLENGES_FOR_ANOTHER: u32 = 8;
/// Number of unknown sessions that a box remembers, so that it answers each of their challenges only once. An
/// attacker with more recorded starts than this can cause answers at the rate below.
const STRANGERS: usize = 16;
/// Shortest time between two answers to unknown sessions. 100 answers a second of 93 bytes limit the effect of
/// replayed challenges, and a restarted peer waits 10 ms at most.
const STRANGER_INTERVAL: Duration = Duration::from_millis(10);
/// Open challenges to single addresses: twice the number of addresses that are tried at a time.
const MAX_AT_ADDRESSES: usize = 8;
/// Responses that wait to be sent. A host that polls after each datagram never has more than one.
const MAX_RESPONSES: usize = 4;

/// Which box this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Shapes the bundle.
    Sendbox,
    /// Watches the bundle.
    Receivebox,
}

impl Role {
    const fn sends(self) -> Direction {
        match self {
            Self::Sendbox => Direction::ToReceivebox,
            Self::Receivebox => Direction::ToSendbox,
        }
    }

    const fn receives(self) -> Direction {
        match self {
            Self::Sendbox => Direction::ToSendbox,
            Self::Receivebox => Direction::ToReceivebox,
        }
    }
}

/// An event that the host must know about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first session of the peer since this box started.
    PeerAlive,
    /// The peer has restarted: its counters and the origin of its clock may have changed.
    PeerRestarted,
    /// The sendbox samples with a new key: [`Session::sampling_key`].
    SamplingKeyChanged,
}

/// The peer's session, after its answer.
#[derive(Clone, Debug)]
struct Peer {
    id: u64,
    window: ReplayWindow,
    /// Highest sequence number of a keepalive or notice. Older messages must not override its content.
    newest_state: u64,
    /// Highest sequence numbers of a scope and of a versions message.
    newest_scope: u64,
    newest_versions: u64,
}

/// A challenge that is not answered yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    nonce: u64,
    sent: u32,
    next: Timestamp,
}

/// A session that has proved the key, but not that it is running now.
#[derive(Clone, Copy, Debug)]
struct Stranger {
    id: u64,
    highest_challenge: u64,
}

#[derive(Clone, Copy, Debug)]
struct Response {
    nonce: u64,
    session: u64,
}

/// One box's end of a session. Pure: time and randomness come in, datagrams go in and out.
#[derive(Clone, Debug)]
pub struct Session {
    role: Role,
    bundle: BundleId,
    id: u64,
    sequence: u64,
    send_key: MessageKey,
    /// In key-ring order, like the sampling keys.
    receive_keys: Vec<MessageKey>,
    sampling_keys: Vec<SamplingKey>,
    sampling_index: usize,
    peer: Option<Peer>,
    pending: Option<Pending>,
    /// Nonces of challenges to single addresses, the oldest first.
    at_addresses: VecDeque<u64>,
    /// Nonce of a challenge to a single address that the newest message answers.
    answered: Option<u64>,
    next_challenge: Timestamp,
    strangers: VecDeque<Stranger>,
    next_stranger: Timestamp,
    responses: VecDeque<Response>,
    keepalive: Keepalive,
    /// Number of times that this keepalive was sent.
    said: u32,
    /// An urgent keepalive is due that other messages must not delay: a stop, or the start or end of a rest. It
    /// changes how long the peer waits for messages.
    is_word_due: bool,
    next_keepalive: Timestamp,
    heard_at: Option<Timestamp>,
    events: VecDeque<Event>,
    rejects: RejectCounts,
}

impl Session {
    /// Creates the session of a box that starts at `now`.
    ///
    /// `session_id` and `nonce` are fresh random numbers: unpredictable ones from the system, not
    /// from a run's seed.
    pub fn new(
        role: Role,
        bundle: BundleId,
        keys: &KeyRing,
        session_id: u64,
        nonce: u64,
        now: Timestamp,
    ) -> Self {
        let state = match role {
            Role::Sendbox => BoxState::Measuring,
            Role::Receivebox => BoxState::Watching,
        };
        Self {
            role,
            bundle,
            id: session_id,
            sequence: 0,
            send_key: keys.current().message_key(bundle, role.sends()),
            receive_keys: keys.keys().map(|key| key.message_key(bundle, role.receives())).collect(),
            sampling_keys: keys.keys().map(|key| key.sampling_key(bundle)).collect(),
            sampling_index: 0,
            peer: None,
            pending: Some(Pending { nonce, sent: 0, next: now }),
            at_addresses: VecDeque::new(),
            answered: None,
            next_challenge: now,
            strangers: VecDeque::with_capacity(STRANGERS),
            next_stranger: now,
            responses: VecDeque::with_capacity(MAX_RESPONSES),
            keepalive: Keepalive { state, epoch_size: None },
            said: 0,
            is_word_due: false,
            next_keepalive: now + KEEPALIVE_INTERVAL,
            heard_at: None,
            events: VecDeque::new(),
            rejects: RejectCounts::default(),
        }
    }

    /// Restarts under other keys, as [`Session::new`] does. The counts of rejected datagrams stay.
    pub fn restart(&mut self, keys: &KeyRing, session_id: u64, nonce: u64, now: Timestamp) {
        let rejects = self.rejects;
        *self = Self::new(self.role, self.bundle, keys, session_id, nonce, now);
        self.rejects = rejects;
    }

    /// Replaces `out` by the datagram with `message`, to be sent now.
    pub fn seal(&mut self, now: Timestamp, message: &Message, out: &mut Vec<u8>) {
        self.write(message, out);
        if matches!(message, Message::Keepalive(_)) {
            self.is_word_due = false;
            self.said = self.said.saturating_add(1);
        }
        // Any other message is a sign of life too, but carries no state.
        if !self.is_word_due {
            self.next_keepalive = self.keepalive_after(now);
        }
    }

    fn write(&mut self, message: &Message, out: &mut Vec<u8>) {
        self.sequence += 1;
        let header = Header { bundle: self.bundle, session: self.id, sequence: self.sequence };
        message.seal(header, &self.send_key, out);
    }

    /// Replaces `out` by a challenge to one address alone. It delays no message to the peer's current address.
    /// `nonce` is a fresh random number for that address.
    pub fn challenge_at(&mut self, nonce: u64, out: &mut Vec<u8>) {
        if !self.at_addresses.contains(&nonce) {
            if self.at_addresses.len() == MAX_AT_ADDRESSES {
                self.at_addresses.pop_front();
            }
            self.at_addresses.push_back(nonce);
        }
        self.write(&Message::Challenge { nonce }, out);
    }

    /// Nonce of [`Session::challenge_at`] that was answered by the latest datagram in [`Session::open`].
    pub const fn take_answered(&mut self) -> Option<u64> {
        self.answered.take()
    }

    /// Whether a datagram carries the tag of one of the peer's keys, fresh or not. Has no effect.
    pub fn verifies(&self, datagram: &[u8]) -> bool {
        let opened = Sealed::parse(datagram)
            .and_then(|sealed| Ok((sealed.bundle(), sealed.open(&self.receive_keys)?.1)));
        opened.is_ok_and(|(bundle, message)| bundle == self.bundle && self.may_receive(&message))
    }

    /// When to send the next keepalive if a message leaves now.
    fn keepalive_after(&self, now: Timestamp) -> Timestamp {
        if self.keepalive.state != BoxState::Resting || self.said < SAID_BEFORE_REST {
            return now
                + match (self.is_alone(now), self.is_established()) {
                    (false, _) => KEEPALIVE_INTERVAL,
                    (true, true) => DOUBT_INTERVAL,
                    (true, false) => REST_INTERVAL,
                };
        }
        let phase = u32::from(self.bundle.0) / SHARED as u32 % REST_PHASES;
        let phase_ns = (REST_INTERVAL / REST_PHASES * phase).as_nanos() as u64;
        let interval_ns = REST_INTERVAL.as_nanos() as u64;
        let since_ns = (now.as_nanos() + interval_ns - phase_ns) % interval_ns;
        now + Duration::from_nanos(interval_ns - since_ns)
    }

    fn note_heard(&mut self, now: Timestamp) {
        self.heard_at = Some(now);
        // A peer that is back does not wait for the rare message of a box that was alone.
        self.next_keepalive = self.next_keepalive.min(self.keepalive_after(now));
    }

    /// Whether the peer seems to be switched off.
    fn is_alone(&self, now: Timestamp) -> bool {
        let is_unanswered = || self.pending.is_some_and(|pending| pending.sent >= UNANSWERED);
        self.heard_at.map_or_else(is_unanswered, |at| now.saturating_since(at) >= ALONE_AFTER)
    }

    /// Takes a datagram. `Ok(Some(_))` is a message from the running peer that the caller handles; `Ok(None)`
    /// needs no further handling. `draw` gives a fresh random number when one is needed. Call [`Session::poll`]
    /// afterwards: an answer may be due.
    pub fn open(
        &mut self,
        now: Timestamp,
        datagram: &[u8],
        draw: &mut dyn FnMut() -> u64,
    ) -> Result<Option<Message>, Reject> {
        self.answered = None;
        let result = self.take(now, datagram, draw);
        if let Err(reject) = result {
            self.rejects.count(reject);
        }
        result
    }

    /// Replaces `out` by the next due datagram: answer, challenge or keepalive. False if none is due; call
    /// until then.
    pub fn poll(&mut self, now: Timestamp, out: &mut Vec<u8>) -> bool {
        let message = if let Some(Response { nonce, session }) = self.responses.pop_front() {
            let challenge = self.challenge(now);
            Message::Response { nonce, session, challenge }
        } else if let Some(nonce) = self.challenge_due(now) {
            Message::Challenge { nonce }
        } else if now >= self.next_keepalive {
            Message::Keepalive(self.keepalive)
        } else {
            return false;
        };
        self.seal(now, &message, out);
        true
    }

    /// When [`Session::poll`] is next needed.
    pub fn next_timer(&self) -> Timestamp {
        if !self.responses.is_empty() {
            return Timestamp::ZERO;
        }
        let challenge = self.pending.map_or(Timestamp::MAX, |pending| pending.next);
        challenge.min(self.next_keepalive)
    }

    /// Sets the content of keepalives. A change is sent with the next [`Session::poll`].
    pub fn set_keepalive(&mut self, keepalive: Keepalive) {
        if keepalive != self.keepalive {
            let rests = [keepalive, self.keepalive].iter().any(|it| it.state == BoxState::Resting);
            self.keepalive = keepalive;
            self.said = 0;
            self.is_word_due = keepalive.state == BoxState::Stopping || rests;
            self.next_keepalive = Timestamp::ZERO;
        }
    }

    /// The next event, oldest first.
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether the peer's session is known.
    pub const fn is_established(&self) -> bool {
        self.peer.is_some()
    }

    /// When the last fresh authentic message arrived.
    pub const fn heard_at(&self) -> Option<Timestamp> {
        self.heard_at
    }

    /// The key that selects boundaries. The sendbox derives it from the pre-shared key that it sends with. The
    /// receivebox follows it during a rotation.
    pub fn sampling_key(&self) -> SamplingKey {
        self.sampling_keys[self.sampling_index]
    }

    /// Counts of the datagrams that [`Session::open`] rejected.
    pub const fn rejects(&self) -> &RejectCounts {
        &self.rejects
    }

    fn take(
        &mut self,
        now: Timestamp,
        datagram: &[u8],
        draw: &mut dyn FnMut() -> u64,
    ) -> Result<Option<Message>, Reject> {
        let sealed = Sealed::parse(datagram)?;
        if sealed.bundle() != self.bundle {
            return Err(Reject::UnknownBundle);
        }
        let (header, message, key) = sealed.open(&self.receive_keys)?;
        if !self.may_receive(&message) {
            return Err(Reject::Malformed);
        }
        match &mut self.peer {
            Some(peer) if peer.id == header.session => {
                if !peer.window.accept(header.sequence) {
                    return Err(Reject::Replayed);
                }
            }
            _ => return self.take_from_stranger(now, header, &message, key, draw).map(|()| None),
        }
        self.note_heard(now);
        self.follow_sampling_key(header, key);
        Ok(self.take_from_peer(header, message))
    }

    /// The sendbox sends no reports, and the receivebox sends no notices.
    const fn may_receive(&self, message: &Message) -> bool {
        match message {
            Message::Reports(_) | Message::Probed(_) => matches!(self.role, Role::Sendbox),
            Message::EpochNotice(_) | Message::Probe(_) => matches!(self.role, Role::Receivebox),
            _ => true,
        }
    }

    fn take_from_peer(&mut self, header: Header, message: Message) -> Option<Message> {
        match message {
            Message::Challenge { nonce } => {
                self.respond(nonce, header.session);
                None
            }
            Message::Response { nonce, session, challenge } => {
                // The challenge went to a peer that had not restarted after all.
                if self.is_answer(nonce, session) {
                    self.pending = None;
                }
                self.note_answered(nonce, session);
                if let Some(nonce) = challenge {
                    self.respond(nonce, header.session);
                }
                None
            }
            Message::Keepalive(_)
            | Message::EpochNotice(_)
            | Message::Scope(_)
            | Message::Versions(_) => {
                let peer = self.peer.as_mut()?;
                let newest = match message {
                    Message::Scope(_) => &mut peer.newest_scope,
                    Message::Versions(_) => &mut peer.newest_versions,
                    _ => &mut peer.newest_state,
                };
                let is_newest = header.sequence > *newest;
                *newest = header.sequence.max(*newest);
                is_newest.then_some(message)
            }
            Message::Reports(_) | Message::Probe(_) | Message::Probed(_) => Some(message),
        }
    }

    /// Handles an authentic message of a session that has not proved yet that it is running.
    fn take_from_stranger(
        &mut self,
        now: Timestamp,
        header: Header,
        message: &Message,
        key: usize,
        draw: &mut dyn FnMut() -> u64,
    ) -> Result<(), Reject> {
        match *message {
            Message::Response { nonce, session, challenge } => {
                if !self.note_answered(nonce, session) && !self.is_answer(nonce, session) {
                    return Err(Reject::StaleNonce);
                }
                self.take_session(now, header, key);
                if let Some(nonce) = challenge {
                    self.respond(nonce, header.session);
                }
                Ok(())
            }
            Message::Challenge { nonce } => {
                self.admit_stranger(now, header)?;
                self.respond(nonce, header.session);
                self.ask(now, draw);
                Ok(())
            }
            _ => {
                self.ask(now, draw);
                Err(Reject::UnknownSession)
            }
        }
    }

    fn is_answer(&self, nonce: u64, session: u64) -> bool {
        session == self.id && self.pending.is_some_and(|pending| pending.nonce == nonce)
    }

    /// Whether this answers a challenge to one address. If so, that challenge is closed.
    fn note_answered(&mut self, nonce: u64, session: u64) -> bool {
        let open = self.at_addresses.iter().position(|it| *it == nonce);
        let Some(at) = open.filter(|_| session == self.id) else { return false };
        self.at_addresses.remove(at);
        self.answered = Some(nonce);
        true
    }

    fn take_session(&mut self, now: Timestamp, header: Header, key: usize) {
        let (id, sequence) = (header.session, header.sequence);
        let peer = Peer {
            id,
            window: ReplayWindow::after(sequence),
            newest_state: 0,
            newest_scope: 0,
            newest_versions: 0,
        };
        let event = match self.peer.replace(peer) {
            None => Event::PeerAlive,
            Some(old) => {
                self.remember_stranger(old.id, old.window.highest());
                Event::PeerRestarted
            }
        };
        self.pending = None;
        self.strangers.retain(|stranger| stranger.id != id);
        self.note_heard(now);
        self.push_event(event);
        self.follow_sampling_key(header, key);
    }

    /// Whether to answer the challenge of an unknown session: each only once, in order, and at a limited total rate.
    fn admit_stranger(&mut self, now: Timestamp, header: Header) -> Result<(), Reject> {
        let (id, sequence) = (header.session, header.sequence);
        let known = self.strangers.iter_mut().find(|stranger| stranger.id == id);
        if known.as_ref().is_some_and(|stranger| sequence <= stranger.highest_challenge) {
            return Err(Reject::Replayed);
        }
        if now < self.next_stranger {
            return Err(Reject::Limited);
        }
        self.next_stranger = now + STRANGER_INTERVAL;
        if let Some(stranger) = known {
            stranger.highest_challenge = sequence;
            return Ok(());
        }
        self.remember_stranger(id, sequence);
        Ok(())
    }

    fn remember_stranger(&mut self, id: u64, highest_challenge: u64) {
        if self.strangers.len() == STRANGERS {
            self.strangers.pop_front();
        }
        self.strangers.push_back(Stranger { id, highest_challenge });
    }

    /// Requests a challenge to the peer, at least [`CHALLENGE_INTERVAL`] after the last one.
    fn ask(&mut self, now: Timestamp, draw: &mut dyn FnMut() -> u64) {
        let soonest = self.next_challenge.max(now);
        match &mut self.pending {
            Some(pending) => pending.next = pending.next.min(soonest),
            None => self.pending = Some(Pending { nonce: draw(), sent: 0, next: soonest }),
        }
    }

    /// The nonce for a challenge message, if one is due.
    fn challenge_due(&mut self, now: Timestamp) -> Option<u64> {
        let pending = self.pending.filter(|pending| now >= pending.next)?;
        if self.peer.is_some() && pending.sent >= CHALLENGES_FOR_ANOTHER {
            self.pending = None;
        }
        self.challenge(now)
    }

    /// The open nonce, which is about to be sent.
    fn challenge(&mut self, now: Timestamp) -> Option<u64> {
        let pending = self.pending.as_mut()?;
        // Waits: 100 ms four times, 200 ms four times, and so on.
        let wait = CHALLENGE_INTERVAL * (1 << (pending.sent / 4).min(4));
        pending.sent = pending.sent.saturating_add(1);
        pending.next = now + wait.min(CHALLENGE_INTERVAL_MAX);
        self.next_challenge = now + CHALLENGE_INTERVAL;
        Some(pending.nonce)
    }

    fn respond(&mut self, nonce: u64, session: u64) {
        if self.responses.len() < MAX_RESPONSES {
            self.responses.push_back(Response { nonce, session });
        }
    }

    /// The receivebox samples with the key of the newest sendbox message.
    fn follow_sampling_key(&mut self, header: Header, key: usize) {
        let is_newest =
            self.peer.as_ref().is_some_and(|peer| peer.window.highest() == header.sequence);
        if self.role == Role::Receivebox && is_newest && key != self.sampling_index {
            self.sampling_index = key;
            self.push_event(Event::SamplingKeyChanged);
        }
    }

    /// Keeps at most one event of each kind: a second one carries no news.
    fn push_event(&mut self, event: Event) {
        if !self.events.contains(&event) {
            self.events.push_back(event);
        }
    }
}

#[cfg(test)]
mod tests;
