//! The session of two boxes about one bundle: who the peer is now, and which messages are fresh.
//!
//! Each start of a box draws a random session id. The peer's session is taken only after the peer
//! answered, under the key, a nonce that this box drew: a recorded session can be played back to a
//! box that restarted, and proves nothing. Inside a session each sequence number is accepted once.
//!
//! ```text
//!  A (restarted)                          B
//!    challenge(a)              ────────►        B does not know A's session
//!    A takes B's session       ◄────────  response(a), challenge(b)
//!    response(b)               ────────►        B takes A's session
//! ```
//! Nothing here is answered that is not authentic, and what is authentic but old is answered at a
//! bounded rate. Send what comes out to the configured address of the peer, never to the source of
//! a datagram: then a box cannot be made to send anything to a third party.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::keys::{KeyRing, MessageKey};
use super::replay::ReplayWindow;
use super::wire::{BoxState, Direction, Header, Keepalive, Message, Reject, RejectCounts, Sealed};
use super::{BundleId, SamplingKey};
use crate::units::Timestamp;

/// A keepalive follows the last message of whatever kind by this much. Half of the messages may be
/// lost and five in a row must be missed before the monitor of the peer calls silence (500 ms).
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_millis(100);

/// First wait for the answer to a challenge; also the shortest time between two challenges.
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait, while the peer does not answer at all.
const CHALLENGE_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Challenges after which a box that knows its peer's session stops asking for another: with
/// half of all messages lost, one of eight exchanges of two messages succeeds at nine in ten, and
/// a peer that did restart starts the next attempt with its next message.
const CHALLENGES_FOR_ANOTHER: u32 = 8;
/// Unknown sessions that are remembered so that each of their challenges is answered only once.
/// Whoever recorded more starts of a box than this can make it answer at the rate below.
const STRANGERS: usize = 16;
/// Shortest time between two answers to unknown sessions: 100 answers a second of 93 bytes bound
/// what playing back recorded challenges can cause, and a restarted peer waits 10 ms at most.
const STRANGER_INTERVAL: Duration = Duration::from_millis(10);
/// Responses waiting to be sent; a host that polls after each datagram never has more than one.
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

/// What the host must know of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer's session is known for the first time since this box started.
    PeerAlive,
    /// The peer is another process than before: its counters and its clock's origin may be new.
    PeerRestarted,
    /// The sendbox samples with another key: [`Session::sampling_key`].
    SamplingKeyChanged,
}

/// The peer's session, once it answered.
#[derive(Clone, Debug)]
struct Peer {
    id: u64,
    window: ReplayWindow,
    /// Highest sequence number of a keepalive or notice: what it says, older ones must not undo.
    newest_state: u64,
}

/// A challenge that is not answered yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    nonce: u64,
    sent: u32,
    next: Timestamp,
}

/// A session that proved the key, but not that it is running now.
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
    /// In the order of the key ring, as are the sampling keys.
    receive_keys: Vec<MessageKey>,
    sampling_keys: Vec<SamplingKey>,
    sampling_index: usize,
    peer: Option<Peer>,
    pending: Option<Pending>,
    next_challenge: Timestamp,
    strangers: VecDeque<Stranger>,
    next_stranger: Timestamp,
    responses: VecDeque<Response>,
    keepalive: Keepalive,
    next_keepalive: Timestamp,
    heard_at: Option<Timestamp>,
    events: VecDeque<Event>,
    rejects: RejectCounts,
}

impl Session {
    /// A session of a box that starts at `now`.
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
            next_challenge: now,
            strangers: VecDeque::with_capacity(STRANGERS),
            next_stranger: now,
            responses: VecDeque::with_capacity(MAX_RESPONSES),
            keepalive: Keepalive { state, epoch_size: None },
            next_keepalive: now + KEEPALIVE_INTERVAL,
            heard_at: None,
            events: VecDeque::new(),
            rejects: RejectCounts::default(),
        }
    }

    /// Replaces `out` by the datagram that carries `message`, to be sent now.
    pub fn seal(&mut self, now: Timestamp, message: &Message, out: &mut Vec<u8>) {
        self.sequence += 1;
        let header = Header { bundle: self.bundle, session: self.id, sequence: self.sequence };
        message.seal(header, &self.send_key, out);
        self.next_keepalive = now + KEEPALIVE_INTERVAL;
    }

    /// Takes a datagram. `Ok(Some(_))` is a keepalive, notice or reports from the running peer;
    /// `Ok(None)` was handled here. `draw` gives a fresh random number where one is needed.
    /// [`Session::poll`] afterwards: an answer may be due.
    pub fn open(
        &mut self,
        now: Timestamp,
        datagram: &[u8],
        draw: &mut dyn FnMut() -> u64,
    ) -> Result<Option<Message>, Reject> {
        let result = self.take(now, datagram, draw);
        if let Err(reject) = result {
            self.rejects.count(reject);
        }
        result
    }

    /// Replaces `out` by the next datagram that is due: answer, challenge or keepalive. False if
    /// none is; call until then.
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

    /// What keepalives say from now on. A change is sent with the next [`Session::poll`].
    pub fn set_keepalive(&mut self, keepalive: Keepalive) {
        if keepalive != self.keepalive {
            self.keepalive = keepalive;
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

    /// The key that boundaries are chosen with: the sendbox's is derived from the pre-shared key
    /// it sends with, and the receivebox follows it during a rotation.
    pub fn sampling_key(&self) -> SamplingKey {
        self.sampling_keys[self.sampling_index]
    }

    /// Datagrams that [`Session::open`] rejected.
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
        self.heard_at = Some(now);
        self.follow_sampling_key(header, key);
        Ok(self.take_from_peer(header, message))
    }

    /// The sendbox sends no reports, the receivebox no notices.
    const fn may_receive(&self, message: &Message) -> bool {
        match message {
            Message::Reports(_) => matches!(self.role, Role::Sendbox),
            Message::EpochNotice(_) => matches!(self.role, Role::Receivebox),
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
                // A challenge to a peer that did not restart after all.
                if self.is_answer(nonce, session) {
                    self.pending = None;
                }
                if let Some(nonce) = challenge {
                    self.respond(nonce, header.session);
                }
                None
            }
            Message::Keepalive(_) | Message::EpochNotice(_) => {
                let peer = self.peer.as_mut()?;
                let is_newest = header.sequence > peer.newest_state;
                peer.newest_state = peer.newest_state.max(header.sequence);
                is_newest.then_some(message)
            }
            Message::Reports(_) => Some(message),
        }
    }

    /// An authentic message of a session that did not prove yet that it is running.
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
                if !self.is_answer(nonce, session) {
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

    fn take_session(&mut self, now: Timestamp, header: Header, key: usize) {
        let (id, sequence) = (header.session, header.sequence);
        let peer = Peer { id, window: ReplayWindow::after(sequence), newest_state: 0 };
        let event = match self.peer.replace(peer) {
            None => Event::PeerAlive,
            Some(old) => {
                self.remember_stranger(old.id, old.window.highest());
                Event::PeerRestarted
            }
        };
        self.pending = None;
        self.strangers.retain(|stranger| stranger.id != id);
        self.heard_at = Some(now);
        self.push_event(event);
        self.follow_sampling_key(header, key);
    }

    /// Whether the challenge of an unknown session may be answered: each once, in order, and not
    /// too often in all.
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

    /// Asks who the peer is, as soon as the last challenge is [`CHALLENGE_INTERVAL`] old.
    fn ask(&mut self, now: Timestamp, draw: &mut dyn FnMut() -> u64) {
        let soonest = self.next_challenge.max(now);
        match &mut self.pending {
            Some(pending) => pending.next = pending.next.min(soonest),
            None => self.pending = Some(Pending { nonce: draw(), sent: 0, next: soonest }),
        }
    }

    /// The nonce to send in a challenge of its own, if it is time to.
    fn challenge_due(&mut self, now: Timestamp) -> Option<u64> {
        let pending = self.pending.filter(|pending| now >= pending.next)?;
        if self.peer.is_some() && pending.sent >= CHALLENGES_FOR_ANOTHER {
            self.pending = None;
        }
        self.challenge(now)
    }

    /// The open nonce, which is sent now.
    fn challenge(&mut self, now: Timestamp) -> Option<u64> {
        let pending = self.pending.as_mut()?;
        // 100 ms four times, 200 ms four times, and so on.
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

    /// The receivebox samples with the key under which the newest message of the sendbox came.
    fn follow_sampling_key(&mut self, header: Header, key: usize) {
        let is_newest =
            self.peer.as_ref().is_some_and(|peer| peer.window.highest() == header.sequence);
        if self.role == Role::Receivebox && is_newest && key != self.sampling_index {
            self.sampling_index = key;
            self.push_event(Event::SamplingKeyChanged);
        }
    }

    /// At most one of each kind waits: a second one would tell the host nothing new.
    fn push_event(&mut self, event: Event) {
        if !self.events.contains(&event) {
            self.events.push_back(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::PresharedKey;
    use super::super::wire::Reports;
    use super::super::{EpochSize, Report};
    use super::*;
    use crate::units::ByteCount;
    use alloc::vec;
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    const BUNDLE: BundleId = BundleId(7);
    const ONE_WAY: Duration = Duration::from_millis(25);
    const MS: Duration = Duration::from_millis(1);

    fn ring(bytes: &[u8]) -> KeyRing {
        let key = |byte: &u8| PresharedKey::new([*byte; 32]);
        KeyRing::new(key(&bytes[0]), bytes.get(1).map(key))
    }

    fn reports(hash: u64) -> Message {
        let report = Report {
            hash,
            received_at: Timestamp::ZERO,
            received_bytes: ByteCount::ZERO,
            received_packets: 0,
            received_ce: 0,
            epoch_size: EpochSize::MAX,
        };
        Message::Reports(Reports::new(&[report]).unwrap())
    }

    fn size(log2: u8) -> EpochSize {
        EpochSize::from_log2(log2).unwrap()
    }

    /// Two boxes 25 ms apart. Everything sent is recorded with its receiver.
    struct Pair {
        now: Timestamp,
        random: Xoshiro256PlusPlus,
        boxes: [Session; 2],
        loss_percent: u64,
        flying: VecDeque<(Timestamp, usize, Vec<u8>)>,
        recorded: Vec<(usize, Vec<u8>)>,
        received: [Vec<Message>; 2],
        rejected: [Vec<Reject>; 2],
    }

    const SENDBOX: usize = 0;
    const RECEIVEBOX: usize = 1;

    impl Pair {
        fn new(seed: u64) -> Self {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let now = Timestamp::ZERO + MS * 1000;
            let boxes = [Role::Sendbox, Role::Receivebox].map(|role| {
                let (id, nonce) = (random.next_u64(), random.next_u64());
                Session::new(role, BUNDLE, &ring(&[1]), id, nonce, now)
            });
            let (flying, recorded) = (VecDeque::new(), Vec::new());
            let (received, rejected) = Default::default();
            Self { now, random, boxes, loss_percent: 0, flying, recorded, received, rejected }
        }

        fn restart(&mut self, which: usize, keys: &KeyRing) {
            let role = self.boxes[which].role;
            let (id, nonce) = (self.random.next_u64(), self.random.next_u64());
            self.boxes[which] = Session::new(role, BUNDLE, keys, id, nonce, self.now);
        }

        fn send(&mut self, to: usize, datagram: Vec<u8>) {
            self.recorded.push((to, datagram.clone()));
            if self.random.next_u64() % 100 >= self.loss_percent {
                self.flying.push_back((self.now + ONE_WAY, to, datagram));
            }
        }

        fn say(&mut self, from: usize, message: &Message) {
            let mut datagram = Vec::new();
            self.boxes[from].seal(self.now, message, &mut datagram);
            self.send(1 - from, datagram);
        }

        /// Hands a datagram to box `to`, and what it answers to the path.
        fn deliver(&mut self, to: usize, datagram: &[u8]) -> Result<Option<Message>, Reject> {
            let random = &mut self.random;
            let result = self.boxes[to].open(self.now, datagram, &mut || random.next_u64());
            match result {
                Ok(Some(message)) => self.received[to].push(message),
                Ok(None) => {}
                Err(reject) => self.rejected[to].push(reject),
            }
            result
        }

        fn run(&mut self, time: Duration) {
            let end = self.now + time;
            while self.now < end {
                self.now += MS;
                while self.flying.front().is_some_and(|(at, ..)| *at <= self.now) {
                    let (_, to, datagram) = self.flying.pop_front().unwrap();
                    let _ = self.deliver(to, &datagram);
                }
                for from in [SENDBOX, RECEIVEBOX] {
                    let mut datagram = Vec::new();
                    while self.boxes[from].poll(self.now, &mut datagram) {
                        self.send(1 - from, datagram.clone());
                    }
                    assert!(self.boxes[from].next_timer() > self.now);
                }
            }
        }

        fn is_established(&self) -> bool {
            self.boxes.iter().all(Session::is_established)
        }

        fn events(&mut self, which: usize) -> Vec<Event> {
            core::iter::from_fn(|| self.boxes[which].take_event()).collect()
        }
    }

    #[test]
    fn two_boxes_know_each_other_after_one_round_trip() {
        let mut pair = Pair::new(1);
        pair.run(ONE_WAY * 2 + MS * 2);
        assert!(pair.is_established());
        assert_eq!(pair.events(SENDBOX), [Event::PeerAlive]);
        assert_eq!(pair.events(RECEIVEBOX), [Event::PeerAlive]);
        pair.say(RECEIVEBOX, &reports(5));
        pair.run(ONE_WAY + MS);
        assert!(pair.received[SENDBOX].contains(&reports(5)));
    }

    #[test]
    fn a_restarted_peer_is_known_after_one_and_a_half_round_trips() {
        for restarted in [SENDBOX, RECEIVEBOX] {
            let mut pair = Pair::new(2);
            pair.run(MS * 5000);
            for which in [SENDBOX, RECEIVEBOX] {
                assert_eq!(pair.events(which), [Event::PeerAlive]);
            }
            pair.restart(restarted, &ring(&[1]));
            pair.run(ONE_WAY * 3 + MS * 3);
            assert_eq!(pair.events(1 - restarted), [Event::PeerRestarted]);
            assert_eq!(pair.events(restarted), [Event::PeerAlive]);
        }
    }

    #[test]
    fn a_box_that_starts_long_after_its_peer_does_not_wait_for_the_slow_retries() {
        let mut pair = Pair::new(3);
        pair.loss_percent = 100;
        pair.run(Duration::from_secs(60));
        let per_minute = pair.recorded.iter().filter(|(to, _)| *to == SENDBOX).count();
        assert!(per_minute < 700, "{per_minute} messages to a peer that is away");
        pair.loss_percent = 0;
        pair.restart(SENDBOX, &ring(&[1]));
        pair.run(ONE_WAY * 3 + MS * 3);
        assert!(pair.is_established());
    }

    #[test]
    fn the_handshake_survives_the_loss_of_half_of_all_messages() {
        for seed in 0..50 {
            let mut pair = Pair::new(seed);
            pair.loss_percent = 50;
            pair.run(Duration::from_secs(10));
            assert!(pair.is_established(), "seed {seed}");
            pair.restart(RECEIVEBOX, &ring(&[1]));
            pair.run(Duration::from_secs(10));
            pair.loss_percent = 0;
            pair.run(MS * 200);
            pair.received = Default::default();
            pair.say(RECEIVEBOX, &reports(seed));
            pair.run(ONE_WAY + MS);
            assert!(pair.received[SENDBOX].contains(&reports(seed)), "seed {seed}");
        }
    }

    #[test]
    fn keepalives_repeat_the_epoch_size_when_half_of_them_are_lost() {
        let mut pair = Pair::new(4);
        pair.run(MS * 200);
        pair.loss_percent = 50;
        for log2 in 2..10 {
            let expected = Keepalive { state: BoxState::Shaping, epoch_size: Some(size(log2)) };
            pair.boxes[SENDBOX].set_keepalive(expected);
            pair.run(Duration::from_secs(2));
            assert_eq!(pair.received[RECEIVEBOX].last(), Some(&Message::Keepalive(expected)));
        }
    }

    #[test]
    fn an_idle_bundle_exchanges_keepalives_every_100_ms() {
        let mut pair = Pair::new(5);
        pair.run(Duration::from_secs(1));
        pair.recorded.clear();
        pair.run(Duration::from_secs(10));
        let to_receivebox = pair.recorded.iter().filter(|(to, _)| *to == RECEIVEBOX).count();
        assert_eq!((to_receivebox, pair.recorded.len()), (100, 200));
    }

    #[test]
    fn an_older_notice_does_not_undo_a_newer_one() {
        let mut pair = Pair::new(6);
        pair.run(MS * 200);
        let mut seal = |log2| {
            let mut datagram = Vec::new();
            let notice = Message::EpochNotice(size(log2));
            pair.boxes[SENDBOX].seal(pair.now, &notice, &mut datagram);
            datagram
        };
        let (old, new) = (seal(4), seal(5));
        assert_eq!(pair.deliver(RECEIVEBOX, &new), Ok(Some(Message::EpochNotice(size(5)))));
        assert_eq!(pair.deliver(RECEIVEBOX, &old), Ok(None));
    }

    #[test]
    fn a_replay_from_the_live_session_is_rejected() {
        let mut pair = Pair::new(7);
        for n in 0..2000 {
            pair.run(MS * 5);
            pair.say(RECEIVEBOX, &reports(n));
        }
        pair.run(ONE_WAY * 2);
        let before = pair.received.clone().map(|received| received.len());
        pair.rejected = Default::default();
        for (to, datagram) in pair.recorded.clone() {
            let result = pair.deliver(to, &datagram);
            assert!(matches!(result, Err(Reject::Replayed | Reject::StaleNonce)), "{result:?}");
        }
        assert_eq!(pair.received.clone().map(|received| received.len()), before);
        assert!(pair.boxes.iter().all(|session| session.responses.is_empty()));
    }

    #[test]
    fn a_whole_recorded_session_is_rejected_after_both_boxes_restarted() {
        let mut pair = Pair::new(8);
        for n in 0..500 {
            pair.run(MS * 5);
            pair.say(RECEIVEBOX, &reports(n));
            pair.say(SENDBOX, &Message::EpochNotice(size(4)));
        }
        pair.run(ONE_WAY * 2);
        for with_peer in [false, true] {
            let recorded = pair.recorded.clone();
            pair.restart(SENDBOX, &ring(&[1]));
            pair.restart(RECEIVEBOX, &ring(&[1]));
            if with_peer {
                pair.run(MS * 200);
                assert!(pair.is_established());
            }
            pair.received = Default::default();
            for (to, datagram) in recorded {
                assert!(!matches!(pair.deliver(to, &datagram), Ok(Some(_))));
                let mut answer = Vec::new();
                while pair.boxes[to].poll(pair.now, &mut answer) {}
                pair.now += MS / 10;
            }
            assert_eq!(pair.is_established(), with_peer);
            // The replay opened challenges; the live peers settle them and go on.
            pair.run(Duration::from_secs(3));
            assert!(pair.boxes.iter().all(|session| session.pending.is_none()));
            for which in [SENDBOX, RECEIVEBOX] {
                assert_eq!(pair.events(which), [Event::PeerAlive]);
            }
        }
    }

    #[test]
    fn messages_delivered_to_a_predecessor_are_not_accepted_by_its_successor() {
        let mut pair = Pair::new(9);
        for n in 0..20 {
            pair.run(MS * 20);
            pair.say(RECEIVEBOX, &reports(n));
        }
        pair.run(ONE_WAY * 2);
        let recorded = pair.recorded.clone();
        pair.restart(SENDBOX, &ring(&[1]));
        pair.run(MS * 200);
        assert!(pair.is_established());
        for (to, datagram) in recorded.into_iter().filter(|(to, _)| *to == SENDBOX) {
            let result = pair.deliver(to, &datagram);
            assert!(matches!(result, Err(Reject::Replayed)), "{result:?}");
        }
    }

    #[test]
    fn nothing_unauthentic_is_answered() {
        let mut pair = Pair::new(10);
        pair.run(MS * 200);
        let mut foreign = Pair::new(11);
        let keys = ring(&[2]);
        foreign.restart(SENDBOX, &keys);
        foreign.restart(RECEIVEBOX, &keys);
        foreign.run(MS * 500);
        for (to, datagram) in foreign.recorded {
            assert_eq!(pair.deliver(to, &datagram), Err(Reject::Forged));
        }
        for session in &pair.boxes {
            assert!(session.responses.is_empty() && session.pending.is_none());
            assert_eq!(session.rejects().total(), session.rejects().get(Reject::Forged));
        }
    }

    #[test]
    fn a_flood_of_recorded_challenges_causes_few_answers_and_stops_no_handshake() {
        // An attacker who recorded 40 starts of the receivebox.
        let mut pair = Pair::new(12);
        for _ in 0..40 {
            pair.restart(RECEIVEBOX, &ring(&[1]));
            pair.run(MS * 100);
        }
        pair.recorded.retain(|(to, _)| *to == SENDBOX);
        let flood = core::mem::take(&mut pair.recorded);
        pair.restart(SENDBOX, &ring(&[1]));
        pair.restart(RECEIVEBOX, &ring(&[1]));
        let started = pair.now;
        let mut established_after = None;
        for (_, datagram) in flood.iter().cycle().take(100_000) {
            if pair.now.as_nanos() % 1_000_000 == 0 {
                pair.run(MS);
            }
            pair.now += MS / 100;
            let _ = pair.deliver(SENDBOX, datagram);
            if pair.is_established() && established_after.is_none() {
                established_after = Some(pair.now.saturating_since(started));
            }
        }
        assert!(established_after.is_some_and(|time| time < MS * 500), "{established_after:?}");
        let sent = pair.recorded.iter().filter(|(to, _)| *to == RECEIVEBOX).count() as f64;
        let seconds = pair.now.saturating_since(started).as_secs_f64();
        // 100 answers a second, and as many challenges and keepalives as without the flood.
        assert!(sent / seconds < 140.0, "{sent} messages in {seconds} s");
    }

    #[test]
    fn memory_stays_bounded_whatever_arrives() {
        let mut pair = Pair::new(13);
        let mut stranger = Pair::new(14);
        for _ in 0..200 {
            stranger.restart(RECEIVEBOX, &ring(&[1]));
            stranger.run(MS * 30);
        }
        for (to, datagram) in stranger.recorded {
            pair.now += STRANGER_INTERVAL;
            let _ = pair.deliver(to, &datagram);
        }
        let session = &pair.boxes[SENDBOX];
        assert_eq!((session.strangers.len(), session.responses.len()), (STRANGERS, MAX_RESPONSES));
        assert!(session.events.len() <= 3);
    }

    #[test]
    fn keys_rotate_without_a_gap_and_the_receivebox_follows_the_sampling_key() {
        let mut pair = Pair::new(15);
        pair.run(MS * 200);
        // New key accepted by both, sent by both, old key removed from both; one box at a time.
        let steps = [vec![1, 2], vec![2, 1], vec![2]];
        for keys in steps.iter().map(|keys| ring(keys)) {
            for which in [RECEIVEBOX, SENDBOX] {
                pair.restart(which, &keys);
                pair.run(MS * 300);
                assert!(pair.is_established());
                let sampling = pair.boxes.each_ref().map(Session::sampling_key);
                assert_eq!(sampling[SENDBOX], sampling[RECEIVEBOX]);
            }
        }
        assert!(pair.rejected.iter().flatten().all(|reject| *reject != Reject::Forged));
    }

    #[test]
    fn a_message_that_the_peer_never_sends_is_malformed() {
        let mut pair = Pair::new(16);
        pair.run(MS * 200);
        pair.say(SENDBOX, &reports(1));
        pair.say(RECEIVEBOX, &Message::EpochNotice(size(1)));
        pair.run(ONE_WAY + MS);
        assert_eq!(pair.rejected, [[Reject::Malformed], [Reject::Malformed]]);
    }
}
