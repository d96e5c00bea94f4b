//! What of the traffic to and from the machines of boxes is in no bundle: the boxes' messages, which both boxes of a
//! bundle tell by their addresses and ports.
//!
//! A box of an older version leaves out all that goes to the receivebox's address. With one of these the other box
//! does so, too: the boxes say in the session which they do.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use forebay_core::bundle::Nat;
use forebay_ebpf::MessageEnd;

use super::config::{BundleConfig, Peer, Role};
use super::observer::names::Names;

/// What a sendbox leaves out of its bundles, whichever they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Apart {
    /// Messages of the boxes.
    pub messages: BTreeSet<MessageEnd>,
    /// Addresses of receiveboxes that count nothing of what goes to them.
    pub addresses: BTreeSet<IpAddr>,
}

impl Apart {
    /// Of a sendbox that sends its own messages from the addresses `listen`. With each bundle stands whether its
    /// receivebox counts what goes to it.
    pub fn of<'a>(
        listen: &[SocketAddr],
        bundles: impl Iterator<Item = (&'a BundleConfig, bool)>,
        names: &Names,
    ) -> Self {
        let own = listen.iter().map(|own| end(own.ip(), own.port(), true));
        let mut apart = Self { messages: own.collect(), addresses: BTreeSet::new() };
        for (bundle, counts) in bundles {
            let (addresses, port) = peer(&bundle.peer, names);
            // The address of NAT in front of a box is its hosts', too.
            let is_its_own = !bundle.nat.is_some_and(Nat::changes_destination);
            for address in addresses {
                apart.messages.extend(ends(address, port));
                if !counts && is_its_own {
                    apart.addresses.insert(address);
                }
            }
        }
        apart
    }
}

/// The messages that a receivebox leaves out which takes its own at the addresses `listen`.
pub fn of_receivebox(listen: &[SocketAddr]) -> BTreeSet<MessageEnd> {
    listen.iter().flat_map(|own| ends(own.ip(), own.port())).collect()
}

/// Where messages to a box go: to its own port, and to those that a box of the other role at this address has unless
/// its file says otherwise. Both boxes of a bundle must leave out the same.
fn ends(address: IpAddr, port: u16) -> impl Iterator<Item = MessageEnd> {
    let defaults = [Role::Sendbox, Role::Receivebox].map(Role::default_port);
    defaults.into_iter().chain([port]).map(move |port| end(address, port, false))
}

const fn end(address: IpAddr, port: u16, is_source: bool) -> MessageEnd {
    MessageEnd { address, port, is_source }
}

/// The addresses of a peer, as far as they are known, and its port.
fn peer(peer: &Peer, names: &Names) -> (Vec<IpAddr>, u16) {
    match peer {
        Peer::At(address) => (vec![address.ip()], address.port()),
        Peer::Named { name, port } => {
            (names.get(name).map_or_else(Vec::new, |it| it.addresses.clone()), *port)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::daemon::config::Config;
    use crate::daemon::observer::names::Resolved;

    fn bundles(peers: &[&str]) -> Vec<BundleConfig> {
        let mut text =
            "[box]\nrole = \"sendbox\"\nlan = \"l0\"\nwan = \"w0\"\nlisten = \"10.1.0.9\"\n"
                .to_string();
        for (id, peer) in peers.iter().enumerate() {
            text += &format!(
                "[[bundle]]\nname = \"b{id}\"\nid = {id}\npeer = {peer}\nto = [\"10.{}.0.0/16\"]\nkey_file = \
                 \"key\"\ncc = \"copa\"\n",
                id + 2
            );
        }
        Config::parse(Path::new("box.toml"), &text).unwrap().bundles
    }

    fn messages(ends: &BTreeSet<MessageEnd>) -> Vec<String> {
        let text = |end: &MessageEnd| {
            let from = if end.is_source { "from" } else { "to" };
            format!("{from} {}", SocketAddr::from((end.address, end.port)))
        };
        ends.iter().map(text).collect()
    }

    #[test]
    fn both_boxes_leave_out_the_same_ports() {
        let listen = ["10.2.0.9:7000".parse().unwrap()];
        let of_receivebox = messages(&of_receivebox(&listen));
        assert_eq!(of_receivebox, ["to 10.2.0.9:7000", "to 10.2.0.9:61475", "to 10.2.0.9:61476"]);
        let own = ["10.1.0.9:61475".parse().unwrap()];
        let bundles = bundles(&["\"10.2.0.9:7000\""]);
        let of_sendbox = Apart::of(&own, [(&bundles[0], true)].into_iter(), &Names::new());
        let expected = [vec!["from 10.1.0.9:61475".to_string()], of_receivebox].concat();
        assert_eq!(messages(&of_sendbox.messages), expected);
        assert_eq!(of_sendbox.addresses, BTreeSet::new());
    }

    #[test]
    fn older_receiveboxes_are_left_out_whole() {
        let bundles =
            bundles(&["\"10.2.0.9\"", "\"192.0.2.1\"\nnat = \"destination\"", "\"b.example\""]);
        let resolved = Resolved { addresses: vec![[10, 4, 0, 9].into()], problem: None };
        let names = Names::from([("b.example".to_string(), resolved)]);
        let apart = |counts| Apart::of(&[], bundles.iter().map(|it| (it, counts)), &names);
        let older: Vec<IpAddr> = apart(false).addresses.into_iter().collect();
        assert_eq!(older, [IpAddr::from([10, 2, 0, 9]), IpAddr::from([10, 4, 0, 9])]);
        assert_eq!(apart(true).addresses, BTreeSet::new());
        assert_eq!(apart(true).messages, apart(false).messages);
        assert_eq!(apart(true).messages.len(), 2 * bundles.len());
    }
}
