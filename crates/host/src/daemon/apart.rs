//! Messages of the boxes, which belong to no bundle. Both boxes of a bundle recognise them by addresses and
//! ports.
//!
//! An older version leaves out all packets to the receivebox's address. A box does the same if its peer is that
//! old: in the session, each box says which packets it leaves out.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use forebay_core::bundle::Nat;
use forebay_ebpf::MessageEnd;

use super::config::{BundleConfig, Peer, Role};
use super::observer::names::Names;

/// Traffic that a sendbox leaves out of all its bundles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Apart {
    /// Messages of the boxes.
    pub messages: BTreeSet<MessageEnd>,
    /// Addresses of receiveboxes that do not count packets to their own address.
    pub addresses: BTreeSet<IpAddr>,
}

impl Apart {
    /// The traffic to leave out at a sendbox that sends its messages from the addresses `listen`. With each
    /// bundle, `bundles` gives whether its receivebox counts packets to itself, and the address that the
    /// receivebox sent from. A receivebox may answer before its name is looked up.
    pub fn of<'a>(
        listen: &[SocketAddr],
        bundles: impl Iterator<Item = (&'a BundleConfig, bool, Option<SocketAddr>)>,
        names: &Names,
    ) -> Self {
        let own = listen.iter().map(|own| end(own.ip(), own.port(), true));
        let mut apart = Self { messages: own.collect(), addresses: BTreeSet::new() };
        for (bundle, counts, heard) in bundles {
            let ends_of_peer = at(&bundle.peer, names).into_iter().chain(heard);
            // If a NAT is in front of the receivebox, its hosts have the same address.
            let is_its_own = !bundle.nat.is_some_and(Nat::changes_destination);
            for end in ends_of_peer {
                apart.messages.extend(ends(end.ip(), end.port()));
                if !counts && is_its_own {
                    apart.addresses.insert(end.ip());
                }
            }
        }
        apart
    }
}

/// The messages to leave out at a receivebox that receives its own messages at the addresses `listen`.
pub fn of_receivebox(listen: &[SocketAddr]) -> BTreeSet<MessageEnd> {
    listen.iter().flat_map(|own| ends(own.ip(), own.port())).collect()
}

/// Destinations of messages to a box: at `address`, its own port and the default ports of both roles. Both
/// boxes of a bundle must leave out the same ports.
fn ends(address: IpAddr, port: u16) -> impl Iterator<Item = MessageEnd> {
    let defaults = [Role::Sendbox, Role::Receivebox].map(Role::default_port);
    defaults.into_iter().chain([port]).map(move |port| end(address, port, false))
}

const fn end(address: IpAddr, port: u16, is_source: bool) -> MessageEnd {
    MessageEnd { address, port, is_source }
}

/// Known addresses of a peer: from the configuration, or from the look-up of its name.
fn at(peer: &Peer, names: &Names) -> Vec<SocketAddr> {
    match peer {
        Peer::At(address) => vec![*address],
        Peer::Named { name, port } => {
            let addresses = names.get(name).into_iter().flat_map(|it| &it.addresses);
            addresses.map(|address| SocketAddr::new(*address, *port)).collect()
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
        let of_sendbox = Apart::of(&own, [(&bundles[0], true, None)].into_iter(), &Names::new());
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
        let apart = |counts| Apart::of(&[], bundles.iter().map(|it| (it, counts, None)), &names);
        let older: Vec<IpAddr> = apart(false).addresses.into_iter().collect();
        assert_eq!(older, [IpAddr::from([10, 2, 0, 9]), IpAddr::from([10, 4, 0, 9])]);
        assert_eq!(apart(true).addresses, BTreeSet::new());
        assert_eq!(apart(true).messages, apart(false).messages);
        assert_eq!(apart(true).messages.len(), 2 * bundles.len());
    }

    #[test]
    fn named_receiveboxes_are_left_out_where_heard() {
        let bundles = bundles(&["\"b.example\""]);
        let apart = |counts, heard: Option<&str>| {
            let heard = heard.map(|it| it.parse().unwrap());
            Apart::of(&[], [(&bundles[0], counts, heard)].into_iter(), &Names::new())
        };
        assert_eq!(apart(false, None), Apart::default(), "not looked up yet");
        let heard = apart(false, Some("10.2.0.9:7000"));
        assert_eq!(heard.addresses, [IpAddr::from([10, 2, 0, 9])].into());
        assert!(messages(&heard.messages).contains(&"to 10.2.0.9:7000".to_string()), "{heard:?}");
        assert_eq!(apart(true, Some("10.2.0.9:7000")).addresses, BTreeSet::new());
    }
}
