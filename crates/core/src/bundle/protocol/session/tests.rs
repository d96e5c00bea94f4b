//! Two boxes on a path of 25 ms each way, with loss, restarts and an attacker who has recorded all messages.

use super::*;
use crate::bundle::protocol::keys::PresharedKey;
use crate::bundle::protocol::wire::Reports;
use crate::bundle::{EpochSize, Report};
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

    /// Hands a datagram to box `to`, and sends its answers.
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
fn boxes_know_each_other_after_one_round_trip() {
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
fn restarted_peer_is_known_within_two_round_trips() {
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
fn late_starter_does_not_wait_for_slow_retries() {
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
fn handshake_survives_half_of_messages_lost() {
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
fn keepalives_repeat_epoch_size_when_half_are_lost() {
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
fn resting_bundle_repeats_notice_then_sends_with_neighbours() {
    let mut pair = Pair::new(5);
    pair.run(MS * 200);
    let resting = Keepalive { state: BoxState::Resting, epoch_size: None };
    pair.boxes.iter_mut().for_each(|session| session.set_keepalive(resting));
    pair.recorded.clear();
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.recorded.len(), 20);
    pair.run(Duration::from_secs(1));
    pair.recorded.clear();
    pair.run(Duration::from_secs(20));
    assert_eq!(pair.recorded.len(), 40);
    // Any other state is sent at once and frequently again.
    pair.recorded.clear();
    pair.boxes[SENDBOX].set_keepalive(Keepalive { state: BoxState::Shaping, epoch_size: None });
    pair.run(MS);
    assert_eq!(pair.recorded.len(), 1);
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.recorded.iter().filter(|(to, _)| *to == RECEIVEBOX).count(), 11);
}

#[test]
fn absent_peer_gets_few_messages_until_it_returns() {
    // A peer that was alive may still hear, and must not take the pauses for silence.
    for (was_there, expected) in [(false, 38..=42), (true, 96..=104)] {
        let mut pair = Pair::new(9);
        pair.loss_percent = if was_there { 0 } else { 100 };
        pair.run(MS * 300);
        assert_eq!(pair.is_established(), was_there);
        pair.loss_percent = 100;
        pair.run(Duration::from_secs(70));
        pair.recorded.clear();
        pair.run(Duration::from_secs(20));
        let sent = pair.recorded.len();
        assert!(expected.contains(&sent), "{sent} messages of two boxes in 20 s");
        pair.loss_percent = 0;
        pair.run(MS * 1300);
        assert!(pair.is_established());
        assert!(pair.boxes.iter().all(|session| {
            session.heard_at().is_some_and(|at| pair.now.saturating_since(at) < MS * 300)
        }));
    }
}

#[test]
fn resting_bundles_with_close_numbers_send_together() {
    let instant = |bundle: u16, started_ms: u32| {
        let now = Timestamp::ZERO + MS * started_ms;
        let mut session = Session::new(Role::Sendbox, BundleId(bundle), &ring(&[1]), 1, 2, now);
        session.set_keepalive(Keepalive { state: BoxState::Resting, epoch_size: None });
        session.said = SAID_BEFORE_REST;
        session.keepalive_after(now).as_nanos() % 1_000_000_000
    };
    let together: Vec<u64> = (13..26).map(|id| instant(id, 3 * u32::from(id))).collect();
    assert!(together.iter().all(|at| *at == together[0]), "{together:?}");
    let all: alloc::collections::BTreeSet<u64> = (0..1000).map(|id| instant(id, 77)).collect();
    assert_eq!(all.len(), REST_PHASES as usize);
}

#[test]
fn older_notice_does_not_undo_a_newer_one() {
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
fn recorded_session_is_rejected_after_both_boxes_restart() {
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
        // The replay has opened challenges. The running peers settle them and continue.
        pair.run(Duration::from_secs(3));
        assert!(pair.boxes.iter().all(|session| session.pending.is_none()));
        for which in [SENDBOX, RECEIVEBOX] {
            assert_eq!(pair.events(which), [Event::PeerAlive]);
        }
    }
}

#[test]
fn successor_rejects_messages_for_its_predecessor() {
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
fn challenge_flood_causes_few_answers_and_no_lockout() {
    // An attacker who has recorded 40 starts of the receivebox.
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
        if pair.now.as_nanos().is_multiple_of(1_000_000) {
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
    // 100 answers a second, and the same number of challenges and keepalives as without the flood.
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
fn keys_rotate_without_gap_and_update_sampling_key() {
    let mut pair = Pair::new(15);
    pair.run(MS * 200);
    // Both accept a new key, then both send with it, then both drop the old key; one box at a time.
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
fn message_that_peers_never_send_is_malformed() {
    let mut pair = Pair::new(16);
    pair.run(MS * 200);
    pair.say(SENDBOX, &reports(1));
    pair.say(RECEIVEBOX, &Message::EpochNotice(size(1)));
    pair.run(ONE_WAY + MS);
    assert_eq!(pair.rejected, [[Reject::Malformed], [Reject::Malformed]]);
}
