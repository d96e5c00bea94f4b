//! Addresses of the other boxes of bundles, and the choice of the address for messages.
//!
//! A box with a name may have several addresses. Until the box is heard, messages go to one more address
//! every [`ATTEMPT_DELAY`], with alternating IP versions, as RFC 8305 (sections 4 and 5) does for
//! connections. Then all messages go to the address where it is heard ([`Paths`]), until it falls silent. A
//! peer with a name, or a peer whose address NAT changes, may be at any address that it answers from.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use forebay_core::bundle::paths::{Arrival, PathEvent, Paths};
use forebay_core::bundle::wire::{Reject, Sealed};
use forebay_core::bundle::{BundleId, Nat};
use forebay_core::units::Timestamp;

use super::Taken;
use crate::daemon::config::{BundleConfig, Peer};
use crate::daemon::observer::names::{Names, Resolved};
use crate::daemon::status::MovedStatus;
use crate::daemon::unguessable;
use crate::log::Allowance;

/// Time from one address of a peer to the next (RFC 8305 section 5: Connection Attempt Delay).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Time after which the names of silent peers are looked up again.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(30);
/// Least time between two messages that a box accepts from addresses of no known peer. Each may cost a check
/// of its tag, some 2 us, so that a flood takes 0.2 % of a core. A peer that has moved sends a message every
/// 100 ms.
const FROM_ELSEWHERE_INTERVAL: Duration = Duration::from_millis(1);

/// Treatment of a datagram that may be a message of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The session takes it.
    Take,
    /// The peer may not be at this source: the session only checks whether the message is authentic.
    Verify,
}

/// The other boxes, by the indices of their bundles.
pub struct Peers {
    peers: Vec<Remote>,
    places: BTreeMap<BundleId, usize>,
    /// Whether this box has an address of IP version 4, and of 6.
    has_version: [bool; 2],
    /// Look-up results so far.
    names: Names,
    next_look_up: Timestamp,
    /// Names of peers that have fallen silent since the last look-up.
    lost: BTreeSet<String>,
    /// Time from which the box accepts the next message from elsewhere.
    next_from_elsewhere: Timestamp,
    /// A peer was heard at another address than before.
    has_moved: bool,
}

/// The other box of one bundle.
struct Remote {
    bundle: BundleId,
    name: String,
    peer: Peer,
    /// Possible addresses of the peer, in the order in which they are tried.
    candidates: Vec<SocketAddr>,
    paths: Paths,
    /// The peer was recently heard at its current address.
    is_found: bool,
    /// Start of trying the candidates.
    tried_since: Timestamp,
    allowance: Allowance,
}

impl Peers {
    /// An empty set of peers, for a box with these addresses.
    pub fn new(listen: &[SocketAddr]) -> Self {
        let has_version =
            [listen.iter().any(SocketAddr::is_ipv4), listen.iter().any(SocketAddr::is_ipv6)];
        Self {
            peers: Vec::new(),
            places: BTreeMap::new(),
            has_version,
            names: Names::new(),
            next_look_up: Timestamp::ZERO,
            lost: BTreeSet::new(),
            next_from_elsewhere: Timestamp::ZERO,
            has_moved: false,
        }
    }

    /// Sets the peers of these bundles from now on. A peer that is kept stays at the address where it was
    /// heard.
    pub fn set_bundles(&mut self, now: Timestamp, bundles: &[BundleConfig]) {
        let mut before = std::mem::take(&mut self.peers);
        for bundle in bundles {
            let is_it = |it: &Remote| it.bundle == bundle.id && it.peer == bundle.peer;
            let is_sendbox = bundle.shaping.is_some();
            let changes_peer =
                if is_sendbox { Nat::changes_destination } else { Nat::changes_source };
            let may_move = bundle.peer.name().is_some() || bundle.nat.is_some_and(changes_peer);
            let known = before.iter().position(is_it).map(|at| before.swap_remove(at));
            let mut paths = known.map_or_else(|| Paths::new(may_move), |known| known.paths);
            paths.set_may_move(may_move);
            self.peers.push(Remote {
                bundle: bundle.id,
                name: bundle.name.clone(),
                peer: bundle.peer.clone(),
                candidates: Vec::new(),
                is_found: paths.current(now).is_some(),
                paths,
                tried_since: now,
                allowance: Allowance::default(),
            });
        }
        self.places = bundles.iter().map(|bundle| bundle.id).zip(0..).collect();
        self.next_look_up = Timestamp::ZERO;
        self.set_candidates(now);
    }

    /// Sets the look-up results.
    pub fn set_names(&mut self, now: Timestamp, names: &Names) {
        if self.names != *names {
            self.names.clone_from(names);
            self.set_candidates(now);
        }
    }

    fn set_candidates(&mut self, now: Timestamp) {
        let Self { peers, names, has_version, .. } = self;
        for remote in peers {
            let candidates = match &remote.peer {
                Peer::At(address) => vec![*address],
                Peer::Named { name, port } => {
                    let found = names.get(name).map_or(&[][..], |it| it.addresses.as_slice());
                    let reachable = |ip: &&IpAddr| has_version[usize::from(ip.is_ipv6())];
                    let found: Vec<IpAddr> = found.iter().filter(reachable).copied().collect();
                    let found = alternating(&found).into_iter();
                    found.map(|ip| SocketAddr::new(ip, *port)).collect()
                }
            };
            if remote.candidates != candidates {
                remote.candidates = candidates;
                remote.tried_since = now;
            }
        }
    }

    /// Names of peers to look up now: each peer that has fallen silent at once, and all silent peers once in
    /// a while.
    pub fn take_unknown(&mut self, now: Timestamp) -> BTreeSet<String> {
        let mut unknown = std::mem::take(&mut self.lost);
        if now >= self.next_look_up {
            self.next_look_up = now + LOOK_UP_AGAIN;
            let unheard = self.peers.iter().filter(|remote| remote.paths.current(now).is_none());
            unknown.extend(unheard.filter_map(|remote| remote.peer.name()).map(str::to_string));
        }
        unknown
    }

    /// Addresses for messages to the peer of this bundle now.
    pub fn targets(&mut self, now: Timestamp, place: usize) -> Vec<SocketAddr> {
        let remote = &mut self.peers[place];
        if let Some(current) = remote.paths.current(now) {
            return vec![current];
        }
        if std::mem::take(&mut remote.is_found) {
            remote.tried_since = now;
            self.lost.extend(remote.peer.name().map(str::to_string));
        }
        let tried = now.saturating_since(remote.tried_since).as_nanos() / ATTEMPT_DELAY.as_nanos();
        let count = usize::try_from(tried).unwrap_or(usize::MAX).saturating_add(1);
        remote.candidates.iter().take(count).copied().collect()
    }

    /// The next address that must get a challenge now, and its nonce.
    pub fn challenge_due(&mut self, now: Timestamp, place: usize) -> Option<(SocketAddr, u64)> {
        self.peers[place].paths.challenge_due(now)
    }

    /// The index of the bundle of a datagram, and its treatment; `Err`: the reason why it cannot be a message
    /// of a peer.
    pub fn admit(
        &mut self,
        now: Timestamp,
        source: SocketAddr,
        datagram: &[u8],
    ) -> Result<(usize, Admission), &'static str> {
        let sealed = Sealed::parse(datagram).map_err(Reject::name)?;
        let place = *self.places.get(&sealed.bundle()).ok_or(Reject::UnknownBundle.name())?;
        let remote = &self.peers[place];
        let is_known = remote.candidates.contains(&source) || remote.paths.knows(source);
        if !is_known {
            if now < self.next_from_elsewhere {
                return Err(NOT_THE_PEER);
            }
            self.next_from_elsewhere = now + FROM_ELSEWHERE_INTERVAL;
        }
        // A fixed peer that is known from elsewhere is still not there.
        let is_taken = remote.paths.may_move() || remote.candidates.contains(&source);
        Ok((place, if is_taken { Admission::Take } else { Admission::Verify }))
    }

    /// Records an authentic message of this peer from this source.
    pub fn heard(
        &mut self,
        now: Timestamp,
        place: usize,
        source: SocketAddr,
        bytes: usize,
        taken: Taken,
    ) {
        let remote = &mut self.peers[place];
        let (is_new, answers) = match taken {
            Taken::Rejected => return,
            Taken::Authentic => (false, None),
            Taken::New { answers } => (true, answers),
        };
        let is_configured = remote.candidates.contains(&source);
        let arrival = Arrival { source, bytes, is_new, is_configured, answers };
        let before = remote.paths.last();
        remote.paths.heard(now, arrival, &mut unguessable);
        self.has_moved |= remote.paths.last() != before;
        remote.is_found |= remote.paths.current(now).is_some();
        remote.say(now);
    }

    /// The address where this peer was last heard, among the addresses that messages may go to.
    pub fn heard_from(&self, place: usize) -> Option<SocketAddr> {
        self.peers[place].paths.last()
    }

    /// Whether a peer was heard at another address than before since the last call.
    pub const fn take_moved(&mut self) -> bool {
        std::mem::replace(&mut self.has_moved, false)
    }

    /// Location of this peer, for people.
    pub fn describe(&self, place: usize) -> String {
        let remote = &self.peers[place];
        let list = || {
            let all: Vec<String> = remote.candidates.iter().map(ToString::to_string).collect();
            all.join(", ")
        };
        match (&remote.peer, remote.paths.last().filter(|_| remote.is_found)) {
            (Peer::At(address), Some(source)) if *address != source => {
                format!("{address} (heard from {source})")
            }
            (Peer::At(address), _) => address.to_string(),
            (named, Some(source)) => format!("{named} ({source})"),
            (named, None) if !remote.candidates.is_empty() => {
                format!("{named} (trying {})", list())
            }
            (named, None) => format!("{named} ({})", self.why_unknown(named)),
        }
    }

    /// The last move of this peer, if it has moved.
    pub fn moved(&self, now: Timestamp, place: usize) -> Option<MovedStatus> {
        let paths = &self.peers[place].paths;
        let (from, at) = paths.moved()?;
        let ago_ns = now.saturating_since(at).as_nanos() as u64;
        Some(MovedStatus { from: from?.to_string(), to: paths.last()?.to_string(), ago_ns })
    }

    /// An unused address from which authentic messages of this peer come.
    pub fn elsewhere(&self, now: Timestamp, place: usize) -> Option<SocketAddr> {
        self.peers[place].paths.elsewhere(now)
    }

    fn why_unknown(&self, peer: &Peer) -> &str {
        match peer.name().and_then(|name| self.names.get(name)) {
            None => "not looked up yet",
            Some(Resolved { problem: Some(problem), .. }) => problem,
            Some(_) => "no address of an IP version of box.listen",
        }
    }
}

/// Reason for rejecting a datagram from an address that is not a peer's.
pub const NOT_THE_PEER: &str = "not_the_peer";

impl Remote {
    /// Logs where the peer is or seems to be, as far as the allowance permits.
    fn say(&mut self, now: Timestamp) {
        let Some(event) = self.paths.take_event().filter(|_| self.allowance.takes(now)) else {
            return;
        };
        let (bundle, named) = (&self.name, self.peer.to_string());
        match event {
            PathEvent::Moved { from, to } => {
                let from = from.map_or(named, |from| from.to_string());
                tracing::info!(
                    target: "address",
                    bundle,
                    "the other box has moved from {from} to {to} and answers there"
                );
            }
            PathEvent::Elsewhere { current, source } => {
                let current = current.map_or(named, |current| current.to_string());
                let why = if self.paths.may_move() {
                    "it does not answer a challenge there"
                } else {
                    "the file allows no other address: `peer` is an address, and `nat` does not \
                     change it"
                };
                tracing::warn!(
                    target: "address",
                    bundle,
                    "authentic messages come from {source}, but the other box stays at {current}: \
                     {why}"
                );
            }
        }
    }
}

/// The addresses in their order, except that IP versions alternate (RFC 8305 section 4).
fn alternating(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let Some(first) = addresses.first() else { return Vec::new() };
    let (one, other): (Vec<IpAddr>, Vec<IpAddr>) =
        addresses.iter().partition(|it| it.is_ipv4() == first.is_ipv4());
    let mut all = Vec::with_capacity(addresses.len());
    for place in 0..one.len().max(other.len()) {
        all.extend(one.get(place).into_iter().chain(other.get(place)));
    }
    all
}

#[cfg(test)]
mod tests {
    use forebay_core::bundle::keys::{Direction, PresharedKey};
    use forebay_core::bundle::paths::PATIENCE;
    use forebay_core::bundle::wire::{Header, Message};

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn ip_versions_alternate_and_each_keeps_its_order() {
        let found = alternating(&addresses(&["2001:db8::1", "2001:db8::2", "192.0.2.1"]));
        assert_eq!(found, addresses(&["2001:db8::1", "192.0.2.1", "2001:db8::2"]));
        let found = alternating(&addresses(&["192.0.2.2", "192.0.2.1"]));
        assert_eq!(found, addresses(&["192.0.2.2", "192.0.2.1"]));
        assert!(alternating(&[]).is_empty());
    }

    fn bundles(peer: &str, nat: &str) -> Vec<BundleConfig> {
        let text = format!(
            "[box]\nrole = \"receivebox\"\nwan = \"s0\"\nlisten = [\"192.0.2.9\", \"2001:db8::9\"]\n\
             [[bundle]]\nname = \"b\"\nid = 7\npeer = \"{peer}\"\nto = [\"10.0.0.0/8\"]\n\
             from = [\"192.0.2.0/24\"]\nkey_file = \"key\"\n{nat}"
        );
        let file = std::path::Path::new("box.toml");
        crate::daemon::Config::parse(file, &text).unwrap().bundles
    }

    fn peers(bundles: &[BundleConfig]) -> Peers {
        let mut peers =
            Peers::new(&["192.0.2.9:1".parse().unwrap(), "[2001:db8::9]:1".parse().unwrap()]);
        peers.set_bundles(Timestamp::ZERO, bundles);
        peers
    }

    fn named(found: &[&str]) -> Names {
        let resolved = Resolved { addresses: addresses(found), problem: None };
        [("b.example".to_string(), resolved)].into()
    }

    #[test]
    fn addresses_of_a_name_are_tried_until_heard() {
        let mut peers = peers(&bundles("b.example:5", ""));
        let mut now = Timestamp::from_nanos(1);
        assert_eq!(peers.take_unknown(now), ["b.example".to_string()].into());
        assert_eq!((peers.take_unknown(now), peers.targets(now, 0)), (BTreeSet::new(), vec![]));
        assert!(peers.describe(0).ends_with("(not looked up yet)"));
        peers.set_names(now, &named(&["2001:db8::1", "2001:db8::2", "192.0.2.1"]));
        let expected = ["[2001:db8::1]:5", "192.0.2.1:5", "[2001:db8::2]:5"];
        let expected: Vec<SocketAddr> = expected.iter().map(|it| it.parse().unwrap()).collect();
        for count in [1, 2, 3, 3] {
            assert_eq!(peers.targets(now, 0), expected[..count]);
            now += ATTEMPT_DELAY;
        }
        heard(&mut peers, now, expected[1], true);
        now += PATIENCE / 2;
        assert_eq!(peers.targets(now, 0), [expected[1]]);
        assert_eq!(peers.describe(0), "b.example:5 (192.0.2.1:5)");
        now += LOOK_UP_AGAIN;
        heard(&mut peers, now, expected[1], true);
        assert_eq!(peers.take_unknown(now), BTreeSet::new(), "it is there");
        now += PATIENCE;
        assert_eq!(peers.targets(now, 0), [expected[0]]);
        assert_eq!(peers.take_unknown(now).len(), 1, "it has fallen silent");
        assert_eq!(peers.take_unknown(now).len(), 0, "it is being looked up");
        now += LOOK_UP_AGAIN;
        assert_eq!(peers.take_unknown(now).len(), 1, "it is lost");
        peers.set_names(now, &named(&["192.0.2.77"]));
        assert_eq!(peers.targets(now, 0), ["192.0.2.77:5".parse().unwrap()]);
    }

    fn heard(peers: &mut Peers, now: Timestamp, source: SocketAddr, is_new: bool) {
        let taken = if is_new { Taken::New { answers: None } } else { Taken::Authentic };
        peers.heard(now, 0, source, 48, taken);
    }

    /// A peer at this address, which has answered the challenge sent there.
    fn at(peers: &mut Peers, now: Timestamp, source: SocketAddr) {
        heard(peers, now, source, true);
        let (to, nonce) = peers.challenge_due(now, 0).unwrap();
        assert_eq!(to, source);
        peers.heard(now, 0, source, 65, Taken::New { answers: Some(nonce) });
    }

    #[test]
    fn stray_messages_are_limited_to_moving_peers() {
        let mut now = Timestamp::from_nanos(1);
        let mut datagram = Vec::new();
        let message = Message::Challenge { nonce: 1 };
        let header = Header { bundle: BundleId(7), session: 1, sequence: 1 };
        let key = PresharedKey::new([1; 32]).message_key(BundleId(7), Direction::ToReceivebox);
        message.seal(header, &key, &mut datagram);
        for (nat, admission) in [("", Admission::Verify), ("nat = \"source\"\n", Admission::Take)] {
            let mut peers = peers(&bundles("192.0.2.1:5", nat));
            let home = "192.0.2.1:5".parse().unwrap();
            assert_eq!(peers.admit(now, home, &datagram), Ok((0, Admission::Take)));
            // Other ports and other addresses are treated alike.
            for source in ["192.0.2.1:6", "198.51.100.7:5"] {
                now += FROM_ELSEWHERE_INTERVAL;
                let source = source.parse().unwrap();
                assert_eq!(peers.admit(now, source, &datagram), Ok((0, admission)));
                assert_eq!(peers.admit(now, source, &datagram), Err(NOT_THE_PEER));
                // After an authentic message the source does not compete with a flood.
                peers.heard(now, 0, source, datagram.len(), Taken::Authentic);
                assert_eq!(peers.admit(now, source, &datagram), Ok((0, admission)));
            }
        }
    }

    #[test]
    fn peer_moves_after_answering_and_status_shows_it() {
        let mut peers = peers(&bundles("192.0.2.1:5", "nat = \"both\"\n"));
        let (home, now) = ("192.0.2.1:5".parse().unwrap(), Timestamp::from_nanos(1));
        let elsewhere: SocketAddr = "198.51.100.7:4000".parse().unwrap();
        heard(&mut peers, now, home, true);
        heard(&mut peers, now, elsewhere, true);
        assert_eq!(peers.targets(now, 0), [home]);
        assert_eq!((peers.take_moved(), peers.heard_from(0)), (true, Some(home)));
        let mut later = now + Duration::from_secs(1);
        heard(&mut peers, later, elsewhere, true);
        assert_eq!(peers.elsewhere(later, 0), Some(elsewhere));
        assert!(!peers.take_moved(), "it has not answered from there");
        at(&mut peers, later, elsewhere);
        assert_eq!((peers.targets(later, 0), peers.elsewhere(later, 0)), (vec![elsewhere], None));
        assert_eq!((peers.take_moved(), peers.heard_from(0)), (true, Some(elsewhere)));
        assert_eq!(peers.describe(0), "192.0.2.1:5 (heard from 198.51.100.7:4000)");
        later += Duration::from_secs(2);
        let moved = MovedStatus {
            from: home.to_string(),
            to: elsewhere.to_string(),
            ago_ns: 2_000_000_000,
        };
        assert_eq!(peers.moved(later, 0), Some(moved));
    }

    #[test]
    fn reload_forgets_only_changed_peers() {
        let mut peers = peers(&bundles("192.0.2.1:5", "nat = \"source\"\n"));
        let (now, elsewhere) = (Timestamp::ZERO, "192.0.2.1:4000".parse().unwrap());
        at(&mut peers, now, elsewhere);
        peers.set_bundles(now, &bundles("192.0.2.1:5", "nat = \"source\"\n"));
        assert_eq!(peers.targets(now, 0), [elsewhere]);
        peers.set_bundles(now, &bundles("192.0.2.2:5", ""));
        assert_eq!(peers.targets(now, 0), ["192.0.2.2:5".parse().unwrap()]);
    }
}
