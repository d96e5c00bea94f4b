//! Packets that a box counts to its bundles, and how it reports that the other box differs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use forebay_core::bundle::scope::{Difference, DifferenceKind, End, Scope};
use ipnet::IpNet;

use super::config::{BundleConfig, Role};

/// Message for the operator if both boxes count the same packets again.
pub const SAME: &str = "both boxes assign the same packets to the bundle";

/// The scopes of the bundles of a box that leaves out packets to the addresses `left_out`. A sendbox also
/// leaves out packets that it sends itself from the addresses `own`.
pub fn scopes<'a>(
    bundles: impl Iterator<Item = &'a BundleConfig> + Clone,
    left_out: &BTreeSet<IpAddr>,
    own: &BTreeSet<IpAddr>,
) -> Vec<Scope> {
    let prefixes: BTreeSet<IpNet> =
        bundles.clone().flat_map(|bundle| &bundle.to).copied().collect();
    let lengths: BTreeSet<u8> = prefixes.iter().map(IpNet::prefix_len).collect();
    // An address belongs to the bundle with the longest prefix; other bundles do not contain it anyway.
    let mut within: BTreeMap<IpNet, Vec<IpAddr>> = BTreeMap::new();
    for &address in left_out {
        let nets = lengths.iter().rev().filter_map(|&length| IpNet::new(address, length).ok());
        let longest = nets.map(|net| net.trunc()).find(|net| prefixes.contains(net));
        if let Some(longest) = longest {
            within.entry(longest).or_default().push(address);
        }
    }
    // Addresses that cannot be sources in another network do not matter.
    let own: Vec<IpAddr> = own.iter().copied().filter(is_routed).collect();
    let scope = |bundle: &BundleConfig| {
        let left_out = bundle.to.iter().filter_map(|net| within.get(net)).flatten().copied();
        let (to, from) = (bundle.to.iter().copied(), bundle.from.iter().copied());
        Scope::new(to, from, left_out, own.iter().copied())
    };
    bundles.map(scope).collect()
}

fn is_routed(address: &IpAddr) -> bool {
    let is_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !is_local && !address.is_loopback()
}

/// The differences, in the words of a box with this `role`.
pub fn sentences(role: Role, differences: &[Difference]) -> Vec<String> {
    differences.iter().map(|difference| sentence(role, difference)).collect()
}

fn sentence(role: Role, difference: &Difference) -> String {
    let (sendbox, receivebox) = match role {
        Role::Sendbox => ("this sendbox", "the receivebox"),
        Role::Receivebox => ("the sendbox", "this receivebox"),
    };
    let which = |end| match end {
        End::Source => format!("packets from {}", list(difference)),
        End::Destination => format!("packets to {}", list(difference)),
    };
    match difference.kind {
        DifferenceKind::NotCounted(end) => format!(
            "{receivebox} does not count {}, which {sendbox} assigns to the bundle: {} differs",
            which(end),
            key(end)
        ),
        DifferenceKind::NotTaken(end) => format!(
            "{receivebox} counts {}, which {sendbox} does not assign to the bundle: {} differs",
            which(end),
            key(end)
        ),
        DifferenceKind::LeftOutByReceivebox => format!(
            "{receivebox} does not count {}, its address for messages, which {sendbox} assigns to \
             the bundle",
            which(End::Destination)
        ),
        DifferenceKind::LeftOutBySendbox => format!(
            "{receivebox} counts {}, which {sendbox} leaves out: its own or another box's address",
            which(End::Destination)
        ),
        DifferenceKind::Unnamed(end) => format!(
            "{} differs between the boxes, in more prefixes than a message holds: compare the two files",
            key(end)
        ),
    }
}

const fn key(end: End) -> &'static str {
    match end {
        End::Source => "`from`",
        End::Destination => "`to`",
    }
}

/// A list of prefixes, with single addresses without their length.
fn list(difference: &Difference) -> String {
    let named: Vec<String> = difference
        .prefixes
        .iter()
        .map(|net| {
            let is_host = net.prefix_len() == net.max_prefix_len();
            if is_host { net.addr().to_string() } else { net.to_string() }
        })
        .collect();
    let more = match difference.more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::daemon::config::Config;

    fn config(bundles: &[(&str, &str)]) -> Config {
        let mut text =
            "[box]\nrole = \"receivebox\"\nwan = \"s0\"\nlisten = \"10.2.0.1\"\n".to_string();
        for (id, (to, from)) in bundles.iter().enumerate() {
            text += &format!(
                "[[bundle]]\nname = \"b{id}\"\nid = {id}\npeer = \"192.0.2.1\"\nto = [\"{to}\"]\nfrom = \
                 [\"{from}\"]\nkey_file = \"key\"\n"
            );
        }
        Config::parse(Path::new("box.toml"), &text).unwrap()
    }

    fn addresses(texts: &[&str]) -> BTreeSet<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn address_is_excluded_from_its_bundle() {
        let config = config(&[("10.0.0.0/8", "10.9.0.0/16"), ("10.2.0.0/16", "10.9.0.0/16")]);
        let [left_out, own] =
            [&["10.2.0.1", "10.3.0.1"][..], &["127.0.0.1", "10.9.0.1", "fe80::1"]];
        let scopes = scopes(config.bundles.iter(), &addresses(left_out), &addresses(own));
        let expected = |index: usize, left_out: &str| {
            let bundle = &config.bundles[index];
            let (to, from) = (bundle.to.iter().copied(), bundle.from.iter().copied());
            Scope::new(to, from, addresses(&[left_out]), addresses(&["10.9.0.1"]))
        };
        assert_eq!(scopes, [expected(0, "10.3.0.1"), expected(1, "10.2.0.1")]);
    }

    #[test]
    fn address_is_excluded_from_longest_prefix_bundles_only() {
        let config = config(&[("10.2.0.0/16", "10.8.0.0/16"), ("10.2.0.0/16", "10.9.0.0/16")]);
        let left_out = addresses(&["10.2.0.1", "192.0.2.1", "fd00::1"]);
        let scopes = scopes(config.bundles.iter(), &left_out, &BTreeSet::new());
        for (scope, bundle) in scopes.iter().zip(&config.bundles) {
            let (to, from) = (bundle.to.iter().copied(), bundle.from.iter().copied());
            assert_eq!(*scope, Scope::new(to, from, addresses(&["10.2.0.1"]), BTreeSet::new()));
        }
    }

    #[test]
    fn a_difference_names_packets_boxes_and_the_key() {
        let difference = |kind, prefixes: &[&str], more| {
            let prefixes = prefixes.iter().map(|text| text.parse().unwrap()).collect();
            Difference { kind, prefixes, more }
        };
        let differences = [
            difference(
                DifferenceKind::NotCounted(End::Destination),
                &["10.1.2.0/24", "10.1.4.1/32"],
                3,
            ),
            difference(DifferenceKind::NotTaken(End::Source), &["2001:db8::/32"], 0),
            difference(DifferenceKind::LeftOutBySendbox, &["2001:db8::1/128"], 0),
            difference(DifferenceKind::Unnamed(End::Source), &[], 0),
        ];
        assert_eq!(
            sentences(Role::Sendbox, &differences)[0],
            "the receivebox does not count packets to 10.1.2.0/24, 10.1.4.1 and 3 more, which this sendbox assigns to the bundle: `to` differs"
        );
        let mirrored = sentences(Role::Receivebox, &differences);
        assert_eq!(
            mirrored[1],
            "this receivebox counts packets from 2001:db8::/32, which the sendbox does not assign to the bundle: \
             `from` differs"
        );
        assert!(
            mirrored[2].contains("packets to 2001:db8::1, which the sendbox leaves out"),
            "{mirrored:?}"
        );
        assert!(mirrored[3].starts_with("`from` differs"), "{mirrored:?}");
    }
}
