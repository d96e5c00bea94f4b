//! A peer that moves, and an attacker who resends its messages from other addresses.

use alloc::vec::Vec;

use super::*;
use crate::bundle::BundleId;
use crate::bundle::protocol::keys::{KeyRing, PresharedKey};
use crate::bundle::protocol::session::{Role, Session};

const MS: Duration = Duration::from_millis(1);

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A receivebox, and the sendbox that it follows to new addresses.
struct Bench {
    now: Timestamp,
    own: Session,
    paths: Paths,
    peer: Session,
    drawn: u64,
    /// Challenges of the receivebox with their destinations.
    challenges: Vec<(SocketAddr, Vec<u8>)>,
}

impl Bench {
    /// Boxes that have never met.
    fn new(may_move: bool) -> Self {
        let now = Timestamp::from_nanos(1_000_000_000);
        let keys = KeyRing::new(PresharedKey::new([1; 32]), None);
        let [own, peer] = [(Role::Receivebox, 10), (Role::Sendbox, 20)]
            .map(|(role, id)| Session::new(role, BundleId(7), &keys, id, id + 1, now));
        let (paths, challenges) = (Paths::new(may_move), Vec::new());
        Self { now, own, paths, peer, drawn: 1000, challenges }
    }

    /// Boxes that know each other, with the peer at its configured address.
    fn met(at: SocketAddr) -> Self {
        let mut bench = Self::new(true);
        for _ in 0..10 {
            bench.now += MS * 100;
            bench.hear_peer(at, true);
            let mut datagram = Vec::new();
            while bench.own.poll(bench.now, &mut datagram) {
                bench.reach_peer(&datagram);
            }
        }
        assert_eq!(bench.paths.current(bench.now), Some(at));
        assert!(bench.own.is_established() && bench.peer.is_established());
        bench
    }

    /// Datagrams that the peer sends now.
    fn due_of_peer(&mut self) -> Vec<Vec<u8>> {
        let mut datagram = Vec::new();
        let peer = &mut self.peer;
        core::iter::from_fn(|| peer.poll(self.now, &mut datagram).then(|| datagram.clone()))
            .collect()
    }

    fn hear_peer(&mut self, source: SocketAddr, is_configured: bool) {
        for datagram in self.due_of_peer() {
            self.deliver(source, &datagram, is_configured);
        }
    }

    fn reach_peer(&mut self, datagram: &[u8]) {
        let drawn = &mut self.drawn;
        let draw = &mut || {
            *drawn += 1;
            *drawn
        };
        let _ = self.peer.open(self.now, datagram, draw);
    }

    /// Hands a datagram to the receivebox and collects the challenges that become due.
    fn deliver(&mut self, source: SocketAddr, datagram: &[u8], is_configured: bool) {
        let drawn = &mut self.drawn;
        let draw = &mut || {
            *drawn += 1;
            *drawn
        };
        if self.own.open(self.now, datagram, draw).is_ok() {
            let is_new = self.own.heard_at() == Some(self.now);
            let answers = self.own.take_answered();
            let bytes = datagram.len();
            let arrival = Arrival { source, bytes, is_new, is_configured, answers };
            self.paths.heard(self.now, arrival, draw);
        }
        while let Some((to, nonce)) = self.paths.challenge_due(self.now) {
            let mut challenge = Vec::new();
            self.own.challenge_at(nonce, &mut challenge);
            assert_eq!(challenge.len(), CHALLENGE_LEN);
            self.challenges.push((to, challenge));
        }
    }
}

#[test]
fn replay_from_third_address_diverts_nothing() {
    let (home, attacker) = (address("192.0.2.1:5"), address("203.0.113.9:9"));
    let mut bench = Bench::met(home);
    let (mut came, mut events) = (0, Vec::new());
    for round in 0..100 {
        bench.now += MS * 100;
        // The attacker intercepts every other message, so the receivebox has not seen it before.
        for datagram in bench.due_of_peer() {
            let source = if round % 2 == 0 { attacker } else { home };
            came += if source == attacker { datagram.len() } else { 0 };
            bench.deliver(source, &datagram, source == home);
            bench.deliver(attacker, &datagram, false);
        }
        let sent: usize = bench.challenges.iter().map(|(_, challenge)| challenge.len()).sum();
        assert!(sent <= came, "{sent} bytes for {came}");
        assert!(bench.challenges.iter().all(|(to, _)| *to == attacker));
        assert_eq!(bench.paths.current(bench.now), Some(home));
        events.extend(bench.paths.take_event());
    }
    assert!(bench.challenges.len() > 10, "it was asked: {}", bench.challenges.len());
    assert_eq!(events, [PathEvent::Elsewhere { current: Some(home), source: attacker }]);
    assert_eq!(bench.paths.elsewhere(bench.now), Some(attacker));
}

#[test]
fn peer_that_answers_from_new_address_moves() {
    let (old, new) = (address("192.0.2.1:5"), address("198.51.100.7:4000"));
    let mut bench = Bench::met(old);
    for round in 0.. {
        bench.now += MS * 100;
        bench.hear_peer(new, false);
        if bench.paths.current(bench.now) == Some(new) {
            assert!(round < 5, "round {round}");
            break;
        }
        assert_eq!(bench.paths.current(bench.now), Some(old));
        for (_, challenge) in core::mem::take(&mut bench.challenges) {
            bench.reach_peer(&challenge);
        }
    }
    let moved = PathEvent::Moved { from: Some(old), to: new };
    assert_eq!((bench.paths.take_event(), bench.paths.take_event()), (Some(moved), None));
    assert_eq!(bench.paths.moved(), Some((Some(old), bench.now)));
    // At the configured address the peer has to answer as well.
    bench.now += MS * 100;
    bench.hear_peer(old, true);
    assert_eq!(bench.paths.current(bench.now), Some(new));
}

#[test]
fn answer_that_takes_another_path_moves_nothing() {
    let (home, attacker) = (address("192.0.2.1:5"), address("203.0.113.9:9"));
    let mut bench = Bench::met(home);
    for _ in 0..20 {
        bench.now += MS * 100;
        bench.hear_peer(attacker, false);
        // The attacker forwards challenges; the peer answers from its own address.
        for (_, challenge) in core::mem::take(&mut bench.challenges) {
            bench.reach_peer(&challenge);
            bench.hear_peer(home, true);
        }
        assert_eq!(bench.paths.current(bench.now), Some(home));
    }
}

#[test]
fn session_begins_from_an_unknown_address() {
    let elsewhere = address("198.51.100.7:4000");
    for may_move in [true, false] {
        let mut bench = Bench::new(may_move);
        for _ in 0..30 {
            bench.now += MS * 100;
            bench.hear_peer(elsewhere, false);
            for (_, challenge) in core::mem::take(&mut bench.challenges) {
                bench.reach_peer(&challenge);
            }
        }
        assert_eq!(bench.own.is_established(), may_move);
        assert_eq!(bench.paths.current(bench.now), may_move.then_some(elsewhere));
        let source = elsewhere;
        let event = (!may_move).then_some(PathEvent::Elsewhere { current: None, source });
        assert_eq!(bench.paths.take_event(), event);
    }
}

#[test]
fn many_addresses_are_not_all_kept() {
    let home = address("192.0.2.1:5");
    let mut bench = Bench::met(home);
    for port in 1..1000 {
        bench.now += MS * 100;
        bench.hear_peer(SocketAddr::from(([203, 0, 113, 9], port)), false);
        bench.now += MS;
        bench.deliver(home, &[], true);
        assert!(bench.paths.tried.len() <= MOST_TRIED);
    }
    // A peer without a current address is expected at the configured one.
    assert_eq!(bench.paths.current(bench.now), None);
    bench.now += MS * 1000;
    bench.hear_peer(home, true);
    assert_eq!(bench.paths.current(bench.now), Some(home));
}

#[test]
fn recorded_messages_keep_nobody_in_place() {
    let (old, new) = (address("192.0.2.1:5"), address("192.0.2.1:6"));
    let mut paths = Paths::new(true);
    let arrival =
        |source, is_new| Arrival { source, bytes: 48, is_new, is_configured: true, answers: None };
    let draw = &mut || 7;
    let start = Timestamp::from_nanos(1);
    paths.heard(start, arrival(old, true), draw);
    paths.heard(start + PATIENCE / 2, arrival(old, false), draw);
    paths.heard(start + PATIENCE / 2, arrival(new, false), draw);
    assert_eq!(paths.current(start + PATIENCE / 2), Some(old));
    assert_eq!(paths.current(start + PATIENCE), None);
    paths.heard(start + PATIENCE, arrival(new, false), draw);
    assert_eq!(paths.current(start + PATIENCE), Some(new));
}
