//! Where the other boxes of bundles are, and which of their addresses messages go to.
//!
//! A box with a name may have several addresses. Until it is heard messages go to one address more every
//! [`ATTEMPT_DELAY`], IP versions alternating, as RFC 8305 (sections 4 and 5) has connections begun. All messages go
//! then to where the last authentic one came from, until none has come for [`PATIENCE`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use forebay_core::bundle::wire::{Reject, Sealed};
use forebay_core::bundle::{BundleId, Nat};
use forebay_core::units::Timestamp;

use crate::daemon::config::{BundleConfig, Peer};
use crate::daemon::observer::names::{Names, Resolved};

/// From one address of a peer to the next (RFC 8305 section 5: Connection Attempt Delay).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// A peer that was not heard for this long is looked for at all its addresses again: longer than one at rest may be
/// silent.
const PATIENCE: Duration = Duration::from_secs(6);
/// Names of peers that are not heard are looked up again after this time.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(30);

/// The other boxes, by the places of their bundles.
pub struct Peers {
    peers: Vec<Remote>,
    places: BTreeMap<BundleId, usize>,
    /// Which IP versions this box has an address of: 4, 6.
    has_version: [bool; 2],
    /// What was found of names so far.
    names: Names,
    next_look_up: Timestamp,
}

/// The other box of one bundle.
struct Remote {
    bundle: BundleId,
    peer: Peer,
    /// NAT in front of the peer gives it any port.
    has_any_port: bool,
    /// Where it may be, in the order in which these are tried.
    candidates: Vec<SocketAddr>,
    /// Where the last authentic message came from, and when.
    heard: Option<(SocketAddr, Timestamp)>,
    /// Since when the candidates are tried.
    tried_since: Timestamp,
}

impl Peers {
    /// No peers yet, of a box with these addresses.
    pub fn new(listen: &[SocketAddr]) -> Self {
        let has_version =
            [listen.iter().any(SocketAddr::is_ipv4), listen.iter().any(SocketAddr::is_ipv6)];
        Self {
            peers: Vec::new(),
            places: BTreeMap::new(),
            has_version,
            names: Names::new(),
            next_look_up: Timestamp::ZERO,
        }
    }

    /// The peers are those of these bundles from now on; one that was there before is where it was heard.
    pub fn set_bundles(&mut self, now: Timestamp, bundles: &[BundleConfig]) {
        let mut before = std::mem::take(&mut self.peers);
        for bundle in bundles {
            let is_it = |it: &Remote| it.bundle == bundle.id && it.peer == bundle.peer;
            let is_sendbox = bundle.shaping.is_some();
            let changes_peer =
                if is_sendbox { Nat::changes_destination } else { Nat::changes_source };
            let heard = before.iter().position(is_it).and_then(|at| before.swap_remove(at).heard);
            self.peers.push(Remote {
                bundle: bundle.id,
                peer: bundle.peer.clone(),
                has_any_port: bundle.nat.is_some_and(changes_peer),
                candidates: Vec::new(),
                heard,
                tried_since: now,
            });
        }
        self.places = bundles.iter().map(|bundle| bundle.id).zip(0..).collect();
        self.next_look_up = Timestamp::ZERO;
        self.set_candidates(now);
    }

    /// This was found of names.
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

    /// Names of peers that are to be looked up now: of those that are not heard, once in a while.
    pub fn take_unknown(&mut self, now: Timestamp) -> BTreeSet<String> {
        if now < self.next_look_up {
            return BTreeSet::new();
        }
        self.next_look_up = now + LOOK_UP_AGAIN;
        let unheard = self.peers.iter().filter(|remote| remote.current(now).is_none());
        unheard.filter_map(|remote| remote.peer.name()).map(str::to_string).collect()
    }

    /// Where messages to the peer of this place go now.
    pub fn targets(&mut self, now: Timestamp, place: usize) -> Vec<SocketAddr> {
        let remote = &mut self.peers[place];
        if let Some(current) = remote.current(now) {
            return vec![current];
        }
        if remote.heard.take().is_some() {
            remote.tried_since = now;
        }
        let tried = now.saturating_since(remote.tried_since).as_nanos() / ATTEMPT_DELAY.as_nanos();
        let count = usize::try_from(tried).unwrap_or(usize::MAX).saturating_add(1);
        remote.candidates.iter().take(count).copied().collect()
    }

    /// The place of the bundle that a datagram is about; `Err`: why it cannot be a message of a peer.
    pub fn bundle_of(&self, source: SocketAddr, datagram: &[u8]) -> Result<usize, &'static str> {
        let sealed = Sealed::parse(datagram).map_err(Reject::name)?;
        let place = *self.places.get(&sealed.bundle()).ok_or(Reject::UnknownBundle.name())?;
        if self.peers[place].may_send_from(source) { Ok(place) } else { Err("not_the_peer") }
    }

    /// An authentic message of the peer of this place has come from there, and `is_new` or may be one that somebody
    /// has recorded: that moves no peer who was heard lately.
    pub fn heard(&mut self, now: Timestamp, place: usize, source: SocketAddr, is_new: bool) {
        let remote = &mut self.peers[place];
        if is_new || remote.current(now).is_none() {
            remote.heard = Some((source, now));
        }
    }

    /// Where the peer of this place is, for people.
    pub fn describe(&self, place: usize) -> String {
        let remote = &self.peers[place];
        let list = || {
            let all: Vec<String> = remote.candidates.iter().map(ToString::to_string).collect();
            all.join(", ")
        };
        match (&remote.peer, remote.heard) {
            (Peer::At(address), Some((source, _))) if *address != source => {
                format!("{address} (heard from {source})")
            }
            (Peer::At(address), _) => address.to_string(),
            (named, Some((source, _))) => format!("{named} ({source})"),
            (named, None) if !remote.candidates.is_empty() => {
                format!("{named} (trying {})", list())
            }
            (named, None) => format!("{named} ({})", self.why_unknown(named)),
        }
    }

    fn why_unknown(&self, peer: &Peer) -> &str {
        match peer.name().and_then(|name| self.names.get(name)) {
            None => "not looked up yet",
            Some(Resolved { problem: Some(problem), .. }) => problem,
            Some(_) => "no address of an IP version of box.listen",
        }
    }
}

impl Remote {
    /// Where the peer was heard lately.
    fn current(&self, now: Timestamp) -> Option<SocketAddr> {
        let is_fresh = |at: Timestamp| now.saturating_since(at) < PATIENCE;
        self.heard.filter(|(_, at)| is_fresh(*at)).map(|(source, _)| source)
    }

    fn may_send_from(&self, source: SocketAddr) -> bool {
        let is_it = |it: &SocketAddr| *it == source || self.has_any_port && it.ip() == source.ip();
        // A name may have got others while the peer is still where it was.
        self.candidates.iter().any(is_it) || self.heard.is_some_and(|(heard, _)| heard == source)
    }
}

/// Addresses in their order, but that IP versions alternate (RFC 8305 section 4).
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
    fn addresses_of_a_name_are_tried_one_after_the_other_until_the_peer_is_heard_and_again_when_it_is_lost()
     {
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
        peers.heard(now, 0, expected[1], true);
        now += PATIENCE / 2;
        assert_eq!(peers.targets(now, 0), [expected[1]]);
        assert_eq!(peers.describe(0), "b.example:5 (192.0.2.1:5)");
        now += LOOK_UP_AGAIN;
        peers.heard(now, 0, expected[1], true);
        assert_eq!(peers.take_unknown(now), BTreeSet::new(), "it is there");
        now += PATIENCE;
        assert_eq!(peers.targets(now, 0), [expected[0]]);
        now += LOOK_UP_AGAIN;
        assert_eq!(peers.take_unknown(now).len(), 1, "it is lost");
        peers.set_names(now, &named(&["192.0.2.77"]));
        assert_eq!(peers.targets(now, 0), ["192.0.2.77:5".parse().unwrap()]);
    }

    #[test]
    fn only_an_address_of_the_peer_may_send_and_behind_nat_any_port_of_it() {
        let may = |nat: &str, source: &str| {
            peers(&bundles("192.0.2.1:5", nat)).peers[0].may_send_from(source.parse().unwrap())
        };
        for (source, plain, behind_nat) in [
            ("192.0.2.1:5", true, true),
            ("192.0.2.1:6", false, true),
            ("192.0.2.2:5", false, false),
        ] {
            let nat = "nat = \"source\"\n";
            assert_eq!((may("", source), may(nat, source)), (plain, behind_nat), "{source}");
        }
        let mut peers = peers(&bundles("192.0.2.1:5", "nat = \"both\"\n"));
        let elsewhere = "192.0.2.1:4000".parse().unwrap();
        peers.heard(Timestamp::ZERO, 0, elsewhere, true);
        assert_eq!(peers.targets(Timestamp::ZERO, 0), [elsewhere]);
        // What may be recorded moves nobody who is there.
        let recorded = "192.0.2.1:4001".parse().unwrap();
        peers.heard(Timestamp::ZERO, 0, recorded, false);
        assert_eq!(peers.targets(Timestamp::ZERO, 0), [elsewhere]);
        let later = Timestamp::ZERO + PATIENCE;
        peers.heard(later, 0, recorded, false);
        assert_eq!(peers.targets(later, 0), [recorded]);
    }

    #[test]
    fn a_reload_forgets_only_what_is_of_another_peer() {
        let mut peers = peers(&bundles("192.0.2.1:5", "nat = \"source\"\n"));
        let (now, elsewhere) = (Timestamp::ZERO, "192.0.2.1:4000".parse().unwrap());
        peers.heard(now, 0, elsewhere, true);
        peers.set_bundles(now, &bundles("192.0.2.1:5", "nat = \"source\"\n"));
        assert_eq!(peers.targets(now, 0), [elsewhere]);
        peers.set_bundles(now, &bundles("192.0.2.2:5", ""));
        assert_eq!(peers.targets(now, 0), ["192.0.2.2:5".parse().unwrap()]);
    }
}
