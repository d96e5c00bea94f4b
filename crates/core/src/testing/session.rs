//! Sessions on a path that belongs to an attacker. Messages may be lost, repeated, changed or
//! played back after restarts. Each message is taken at most once, and none from before the start
//! of the box that takes it. Once the attacker leaves, the boxes find each other.

use alloc::vec::Vec;
use core::time::Duration;

use crate::bundle::protocol::keys::{KeyRing, PresharedKey};
use crate::bundle::protocol::session::{Role, Session};
use crate::bundle::protocol::wire::{Message, Reject, Reports};
use crate::bundle::{BundleId, EpochSize, Report};
use crate::units::{ByteCount, Timestamp};

/// Datagrams that the attacker remembers; the oldest go first.
const MAX_RECORDED: usize = 4096;

/// One step; boxes are chosen by their lowest bit, recorded datagrams counted from the
/// newest, modulo their number.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Time passes.
    Advance(Duration),
    /// A box hands over everything that is due; the attacker keeps it.
    Poll(u8),
    /// A box seals a message of its role; the attacker keeps it.
    Say(u8),
    /// The attacker delivers a recorded datagram to a box, not necessarily the one it was for.
    Deliver(u8, usize),
    /// The attacker delivers a recorded datagram with one byte changed.
    Forge(u8, usize, usize, u8),
    /// The attacker delivers bytes of its own.
    Raw(u8, Vec<u8>),
    /// A box restarts.
    Restart(u8),
    /// A box sends a challenge to a single address, which is the attacker's.
    Challenge(u8),
}

struct Recorded {
    datagram: Vec<u8>,
    from: usize,
    /// Number of the operation that sent it.
    sent_at: u64,
    is_taken: bool,
    /// Nonce of a challenge to a single address.
    nonce: Option<u64>,
}

struct Endpoint {
    session: Session,
    /// Number of the operation that started it.
    started_at: u64,
    rejects: u64,
}

/// Two boxes and the path between them.
pub struct Model {
    now: Timestamp,
    step: u64,
    drawn: u64,
    boxes: [Endpoint; 2],
    recorded: Vec<Recorded>,
    /// Nonces of challenges to single addresses that the other box has got.
    delivered: Vec<u64>,
}

impl Default for Model {
    fn default() -> Self {
        let (now, mut drawn) = (Timestamp::from_nanos(1), 0);
        let boxes = [0, 1].map(|which| Endpoint::new(which, now, 0, &mut drawn));
        Self { now, step: 0, drawn, boxes, recorded: Vec::new(), delivered: Vec::new() }
    }
}

impl Model {
    /// Performs `operation` and checks the rules.
    pub fn apply(&mut self, operation: &Operation) {
        self.step += 1;
        let len = self.recorded.len().max(1);
        let recorded = |index: usize| len - 1 - index % len;
        match *operation {
            Operation::Advance(time) => self.now += time,
            Operation::Poll(which) => self.poll(usize::from(which & 1)),
            Operation::Say(which) => self.say(usize::from(which & 1)),
            Operation::Deliver(to, index) if !self.recorded.is_empty() => {
                self.deliver(usize::from(to & 1), recorded(index));
            }
            Operation::Forge(to, index, at, xor) if !self.recorded.is_empty() && xor != 0 => {
                let mut datagram = self.recorded[recorded(index)].datagram.clone();
                let at = at % datagram.len();
                datagram[at] ^= xor;
                self.deliver_forged(usize::from(to & 1), &datagram);
            }
            Operation::Raw(to, ref bytes) => self.deliver_forged(usize::from(to & 1), bytes),
            Operation::Restart(which) => {
                let which = usize::from(which & 1);
                self.boxes[which] = Endpoint::new(which, self.now, self.step, &mut self.drawn);
            }
            Operation::Challenge(which) => self.challenge(usize::from(which & 1)),
            Operation::Deliver(..) | Operation::Forge(..) => {}
        }
        let excess = self.recorded.len().saturating_sub(MAX_RECORDED);
        self.recorded.drain(..excess);
    }

    /// The attacker leaves: within 5 s both boxes know each other and messages arrive.
    pub fn finish(mut self) {
        for _ in 0..500 {
            self.now += Duration::from_millis(10);
            for which in [0, 1] {
                let first = self.recorded.len();
                self.step += 1;
                self.poll(which);
                (first..self.recorded.len()).for_each(|index| {
                    self.deliver(1 - which, index);
                });
            }
            self.recorded.clear();
        }
        for which in [0, 1] {
            assert!(self.boxes[which].session.is_established(), "box {which} knows no peer");
            self.step += 1;
            self.say(which);
            let newest = self.recorded.len() - 1;
            assert!(self.deliver(1 - which, newest), "a message of box {which} is not accepted");
        }
    }

    fn poll(&mut self, from: usize) {
        let mut datagram = Vec::new();
        let mut sent = 0;
        while self.boxes[from].session.poll(self.now, &mut datagram) {
            self.record(from, datagram.clone(), None);
            sent += 1;
            assert!(sent <= 8, "box {from} does not stop sending");
        }
        assert!(self.boxes[from].session.next_timer() > self.now);
    }

    fn say(&mut self, from: usize) {
        let epoch_size = EpochSize::MAX;
        let report = Report {
            hash: self.step,
            received_at: self.now,
            received_bytes: ByteCount::ZERO,
            received_packets: 0,
            received_ce: 0,
            epoch_size,
        };
        let message = match role(from) {
            Role::Sendbox => Message::EpochNotice(epoch_size),
            Role::Receivebox => Message::Reports(Reports::new(&[report]).expect("one report")),
        };
        let mut datagram = Vec::new();
        self.boxes[from].session.seal(self.now, &message, &mut datagram);
        self.record(from, datagram, None);
    }

    fn challenge(&mut self, from: usize) {
        let nonce = draw(&mut self.drawn);
        let timer = self.boxes[from].session.next_timer();
        let mut datagram = Vec::new();
        self.boxes[from].session.challenge_at(nonce, &mut datagram);
        assert_eq!(self.boxes[from].session.next_timer(), timer, "it delays other messages");
        self.record(from, datagram, Some(nonce));
    }

    fn record(&mut self, from: usize, datagram: Vec<u8>, nonce: Option<u64>) {
        self.recorded.push(Recorded { datagram, from, sent_at: self.step, is_taken: false, nonce });
    }

    /// Delivers a datagram as it was sent; returns whether it was taken as a message.
    fn deliver(&mut self, to: usize, index: usize) -> bool {
        let result = self.boxes[to].open(self.now, &self.recorded[index].datagram, &mut self.drawn);
        let recorded = &mut self.recorded[index];
        if to != recorded.from {
            self.delivered.extend(recorded.nonce);
        }
        if let Some(nonce) = self.boxes[to].session.take_answered() {
            assert!(result.is_ok(), "a rejected message answers");
            assert!(self.delivered.contains(&nonce), "an answer to a message that never arrived");
        }
        if !matches!(result, Ok(Some(_))) {
            return false;
        }
        assert_ne!(recorded.from, to, "a box accepts its own message");
        assert!(recorded.sent_at > self.boxes[to].started_at, "a message from before the start");
        assert!(!recorded.is_taken, "a message is accepted twice");
        recorded.is_taken = true;
        true
    }

    fn deliver_forged(&mut self, to: usize, datagram: &[u8]) {
        let timer = self.boxes[to].session.next_timer();
        let result = self.boxes[to].open(self.now, datagram, &mut self.drawn);
        assert!(result.is_err(), "a forged message is accepted");
        assert_eq!(self.boxes[to].session.take_answered(), None, "a forged message answers");
        assert_eq!(self.boxes[to].session.next_timer(), timer, "a forged message is answered");
    }
}

impl Endpoint {
    fn new(which: usize, now: Timestamp, step: u64, drawn: &mut u64) -> Self {
        let keys = KeyRing::new(PresharedKey::new([1; 32]), None);
        let (id, nonce) = (draw(drawn), draw(drawn));
        let session = Session::new(role(which), BundleId(1), &keys, id, nonce, now);
        Self { session, started_at: step, rejects: 0 }
    }

    fn open(
        &mut self,
        now: Timestamp,
        datagram: &[u8],
        drawn: &mut u64,
    ) -> Result<Option<Message>, Reject> {
        let result = self.session.open(now, datagram, &mut || draw(drawn));
        self.rejects += u64::from(result.is_err());
        assert_eq!(self.session.rejects().total(), self.rejects);
        result
    }
}

fn role(which: usize) -> Role {
    if which == 0 { Role::Sendbox } else { Role::Receivebox }
}

/// A Weyl sequence. It never repeats a number, and sessions need no more.
fn draw(drawn: &mut u64) -> u64 {
    *drawn = drawn.wrapping_add(0x9e37_79b9_7f4a_7c15);
    *drawn
}

/// Operations for a fuzz target. Any bytes decode to something.
pub fn decode(mut bytes: &[u8]) -> Vec<Operation> {
    let mut operations = Vec::new();
    while let Some((&kind, values)) = bytes.split_first() {
        let value = |index: usize| usize::from(values.get(index).copied().unwrap_or(0));
        let index = || value(0) << 8 | value(1);
        let which = kind >> 3;
        let (operation, taken) = match kind % 8 {
            0 => (Operation::Advance(Duration::from_millis(value(0) as u64)), 1),
            1 | 2 => (Operation::Poll(which), 0),
            3 => (Operation::Say(which), 0),
            4 => (Operation::Deliver(which, index()), 2),
            5 => (Operation::Forge(which, index(), value(2), value(3) as u8), 4),
            6 => {
                let end = values.len().min(1 + value(0));
                (Operation::Raw(which, values.get(1..end).unwrap_or(&[]).to_vec()), end)
            }
            _ if kind < 64 => (Operation::Restart(which), 0),
            _ if kind >= 192 => (Operation::Challenge(which), 0),
            // The common case of an honest path: the newest datagram arrives.
            _ => (Operation::Deliver(which, 0), 0),
        };
        operations.push(operation);
        bytes = values.get(taken..).unwrap_or(&[]);
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            4 => (0..300_u64).prop_map(|ms| Operation::Advance(Duration::from_millis(ms))),
            8 => (0..2_u8).prop_map(Operation::Poll),
            4 => (0..2_u8).prop_map(Operation::Say),
            16 => (0..2_u8, any::<usize>()).prop_map(|(to, index)| Operation::Deliver(to, index)),
            2 => (0..2_u8, any::<usize>(), 0..120_usize, 1..=255_u8)
                .prop_map(|(to, index, at, xor)| Operation::Forge(to, index, at, xor)),
            1 => (0..2_u8, prop::collection::vec(any::<u8>(), 0..400))
                .prop_map(|(to, bytes)| Operation::Raw(to, bytes)),
            1 => (0..2_u8).prop_map(Operation::Restart),
            4 => (0..2_u8).prop_map(Operation::Challenge),
        ]
    }

    proptest! {
        // Each case ends with 5 s of an honest path, thousands of authenticated messages.
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn attacks_get_no_message_accepted_twice_or_late(
            operations in prop::collection::vec(operation(), 0..300),
        ) {
            let mut model = Model::default();
            operations.iter().for_each(|operation| model.apply(operation));
            model.finish();
        }
    }
}
