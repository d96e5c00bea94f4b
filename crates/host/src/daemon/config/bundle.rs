//! `[[bundle]]`: reads the bundles, and checks that no two can be confused.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use forebay_core::bundle::sendbox::SUPPLIED;
use forebay_core::bundle::{BundleId, Nat};
use forebay_core::qdisc::{self, Classifier, bundle_default, of_bundle};
use forebay_core::spec::{Spec, SpecError};
use forebay_core::units::Rate;
use forebay_ebpf::{MAX_PAIRS, MAX_PREFIXES};
use forebay_reader::Reader;
use ipnet::IpNet;

use super::{BundleConfig, MAX_BUNDLES, Peer, Role, Shaping, value};
use crate::foreign_python;

/// Keys of a sendbox's bundles only, without the shares of its uplink.
const SHAPING: [&str; 5] = ["cc", "qdisc", "supervised", "min_rate", "max_rate"];

/// A bundle, as far as its values are valid.
pub(super) struct Bundle<'a> {
    pub table: Reader<'a>,
    name: Option<String>,
    id: Option<BundleId>,
    peer: Option<Peer>,
    to: Vec<Option<IpNet>>,
    from: Vec<Option<IpNet>>,
    key_file: Option<PathBuf>,
    nat: Option<Nat>,
    pub max_rate: Option<Rate>,
    shaping: Option<Shaping>,
}

/// The bundles of a box of this role, if that is known, with these `listen` addresses.
pub(super) fn read<'a>(
    root: &Reader<'a>,
    role: Option<Role>,
    listen: &[SocketAddr],
    folder: &Path,
) -> Vec<Bundle<'a>> {
    let tables = root.tables("bundle");
    if tables.len() > MAX_BUNDLES {
        let allowed = format!("1 to {MAX_BUNDLES}");
        root.wrong_count("bundle", tables.len(), tables.get(MAX_BUNDLES), allowed);
    }
    let bundles: Vec<Bundle<'a>> =
        tables.into_iter().map(|table| Bundle::read(table, role, folder)).collect();
    let limits: [Limit<'_>; 3] = [
        ("to", "prefixes", |bundle| bundle.to.len(), MAX_PREFIXES),
        ("from", "prefixes", |bundle| bundle.from.len(), MAX_PREFIXES),
        (
            "from",
            "pairs of `to` and `from` of one bundle",
            |bundle| bundle.to.len() * bundle.from.len(),
            MAX_PAIRS,
        ),
    ];
    // If there are too many prefixes, there are too many pairs to compare, and the error is known already.
    if limits.iter().all(|limit| is_kept(limit, &bundles)) {
        compare(&bundles, role, listen);
    }
    bundles
}

/// A key of bundles, the name of the counted items, how to count them, and the most in all bundles of a box.
type Limit<'a> = (&'static str, &'static str, fn(&Bundle<'a>) -> usize, usize);

/// Whether bundles keep a limit. The first bundle above it gets a note.
fn is_kept<'a>((key, what, count, max): &Limit<'a>, bundles: &[Bundle<'a>]) -> bool {
    let mut total = 0;
    let beyond = bundles.iter().find(|bundle| {
        total += count(bundle);
        total > *max
    });
    let Some(beyond) = beyond else { return true };
    let all: usize = bundles.iter().map(count).sum();
    beyond.table.note(key, format!("{all} {what} in all: allowed are {max}"));
    false
}

impl<'a> Bundle<'a> {
    fn read(table: Reader<'a>, role: Option<Role>, folder: &Path) -> Self {
        let peer_role = role.map_or(Role::Receivebox, Role::other);
        let bundle = Self {
            name: table.name("name"),
            id: table.whole("id").map(|id| BundleId(id as u16)),
            peer: table.checked("peer", |text| value::peer(peer_role, text)),
            to: table.list("to", value::prefix),
            from: table.list("from", value::prefix),
            key_file: table.checked("key_file", |text| value::path(folder, text)),
            nat: table.choice("nat", &Nat::ALL.map(|it| (it.name(), it))),
            max_rate: table.rate("max_rate"),
            shaping: None,
            table,
        };
        let table = &bundle.table;
        if table.has("to") && bundle.to.is_empty() {
            table.wrong_because("to", "at least one prefix, such as [\"10.1.2.0/24\"]");
        }
        match role {
            Some(Role::Sendbox) => Self { shaping: bundle.shaping(), ..bundle },
            Some(Role::Receivebox) => {
                if bundle.from.is_empty() {
                    let allowed = "at least one prefix: a receivebox distinguishes the bundles of \
                                   several sites by their sources";
                    table.wrong_because("from", allowed);
                }
                for key in SHAPING.into_iter().filter(|key| table.has(key)) {
                    table.wrong_because(key, "nothing: the sendbox shapes");
                }
                bundle
            }
            None => bundle,
        }
    }

    fn shaping(&self) -> Option<Shaping> {
        let table = &self.table;
        if !table.has("cc") {
            table.wrong_because("cc", "an algorithm such as \"copa\"");
        }
        let cc = table.checked_spec("cc", check_cc);
        let qdisc = table.checked_spec("qdisc", check_qdisc);
        let min_rate = table.rate("min_rate");
        if let (Some(min_rate), Some(max_rate)) = (min_rate, self.max_rate)
            && max_rate < min_rate
        {
            table.wrong_because("max_rate", format!("a rate of at least min_rate, {min_rate}"));
        }
        let qdisc = qdisc.map_or_else(bundle_default, of_bundle);
        let supervised = table.switch("supervised").unwrap_or(true);
        Some(Shaping { cc: cc?, qdisc, supervised, min_rate, max_rate: self.max_rate })
    }

    /// The bundle, if all its values are valid.
    pub(super) fn finish(self, role: Role) -> Option<BundleConfig> {
        Some(BundleConfig {
            name: self.name?,
            id: self.id?,
            peer: self.peer?,
            to: self.to.into_iter().collect::<Option<_>>()?,
            from: self.from.into_iter().collect::<Option<_>>()?,
            key_file: self.key_file?,
            nat: self.nat,
            shaping: match role {
                Role::Sendbox => Some(self.shaping?),
                Role::Receivebox => None,
            },
        })
    }
}

/// Notes bundles that cannot be distinguished: equal names, numbers or prefixes.
fn compare(bundles: &[Bundle<'_>], role: Option<Role>, listen: &[SocketAddr]) {
    let mut names = BTreeMap::new();
    let mut ids = BTreeMap::new();
    let mut paths = BTreeMap::new();
    for bundle in bundles {
        let table = &bundle.table;
        let name = bundle.name.as_deref().unwrap_or_default();
        if bundle.name.is_some() && names.insert(name, ()).is_some() {
            table.wrong_because("name", "a name that no other bundle has");
        }
        if let Some(other) = bundle.id.and_then(|id| ids.insert(id, name)) {
            table.wrong_because("id", format!("a number that bundle {other:?} does not have"));
        }
        if let Some(peer) = bundle.peer.as_ref().and_then(Peer::address) {
            if listen.iter().any(|listen| peer.ip() == listen.ip()) {
                table.wrong_because(
                    "peer",
                    "the address of the other box, which differs from box.listen",
                );
            }
            // For a trial, both boxes may run on one machine.
            if peer.ip().is_loopback() && !listen.iter().any(|it| it.ip().is_loopback()) {
                table.wrong_because(
                    "peer",
                    "an address of the other box, not one of this machine alone",
                );
            }
            let is_broadcast = |to: &IpNet| match to {
                IpNet::V4(net) => net.prefix_len() < 31 && IpAddr::V4(net.broadcast()) == peer.ip(),
                IpNet::V6(_) => false,
            };
            if bundle.to.iter().flatten().any(is_broadcast) {
                table.wrong_because(
                    "peer",
                    "an address of one host, not the last (broadcast) address of a network in `to`",
                );
            }
            if !listen.is_empty() && listen.iter().all(|it| peer.is_ipv4() != it.is_ipv4()) {
                table.wrong_because("peer", "an address of the same IP version as box.listen");
            }
        } else if bundle.peer.is_some() && bundle.nat.is_some_and(Nat::changes_destination) {
            let allowed = "the address of the NAT, which is within `to`: NAT changes destinations";
            table.wrong_because("peer", allowed);
        }
        if role == Some(Role::Sendbox) {
            for (place, prefix) in bundle.to.iter().enumerate() {
                // A receivebox sees no packets to a network of this site. `0.0.0.0/0` means all other
                // networks.
                let is_own = |prefix: &IpNet| {
                    prefix.prefix_len() > 0 && listen.iter().any(|it| prefix.contains(&it.ip()))
                };
                if prefix.as_ref().is_some_and(is_own) {
                    let allowed = "a prefix of the other site that does not contain box.listen: \
                                   list the networks of a wider prefix one by one";
                    table.wrong_element("to", place, allowed);
                }
            }
        }
        // A sendbox's table holds each destination prefix once, for all sources.
        let any = [Some(IpNet::from(IpAddr::from([0; 16])))];
        let from = if role == Some(Role::Receivebox) { &bundle.from[..] } else { &any[..] };
        for (place, prefix) in bundle.to.iter().enumerate() {
            for source in from {
                let (Some(prefix), Some(source)) = (prefix, source) else { continue };
                if let Some(other) = paths.insert((*source, *prefix), name) {
                    let allowed = format!("a prefix that bundle {other:?} does not have");
                    table.wrong_element("to", place, allowed);
                }
            }
        }
    }
}

fn check_cc(spec: &Spec) -> Result<(), SpecError> {
    let registry = foreign_python::named::registry();
    registry.fit(spec, SUPPLIED)?;
    if spec.kind == foreign_python::named::ALGORITHM.name {
        return foreign_python::named::check(spec);
    }
    if spec.kind == forebay_policy::ALGORITHM.name {
        // As a configuration is read, so is the file that it names.
        forebay_policy::refresh(spec)?;
    }
    registry.build(spec, SUPPLIED).map(|_| ())
}

fn check_qdisc(spec: &Spec) -> Result<(), SpecError> {
    qdisc::check(spec)?;
    Classifier::from_spec(spec).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use std::fmt::Write;

    /// This many bundles, each to a network of its own by two prefixes, in one of ten groups of an uplink.
    fn parse(bundles: usize, edit: impl Fn(String) -> String) -> Result<Config, String> {
        let mut text = "[box]\nrole = \"sendbox\"\nlan = \"s0\"\nwan = \"s1\"\n\
                        listen = \"10.255.0.1\"\n[uplink]\nrate = \"1Gbit/s\"\n"
            .to_string();
        for group in 0..10 {
            let parent = if group == 0 { "" } else { "parent = \"g0\"\n" };
            write!(text, "[[group]]\nname = \"g{group}\"\n{parent}").unwrap();
        }
        for id in 0..bundles {
            let (net, host, group) = (id / 256, id % 256, id % 10);
            write!(
                text,
                "[[bundle]]\nname = \"site-{id}\"\nid = {id}\npeer = \"10.255.1.1\"\n\
                 to = [\"10.{net}.{host}.0/25\", \"10.{net}.{host}.128/25\"]\n\
                 key_file = \"keys/{id}.key\"\ncc = \"copa\"\ngroup = \"g{group}\"\n"
            )
            .unwrap();
        }
        Config::parse(Path::new("box.toml"), &edit(text)).map_err(|error| error.to_string())
    }

    #[test]
    fn bundles_beyond_the_table_size_are_refused() {
        let config = parse(MAX_BUNDLES, |text| text).unwrap();
        assert_eq!(config.bundles.len(), 1024);
        let shares = config.uplink.unwrap().shares;
        assert_eq!((shares.bundles.len(), shares.bundles[999].group), (1024, Some(9)));
        let told = parse(MAX_BUNDLES + 1, |text| text).unwrap_err();
        assert!(told.contains(":8229: 1025 [[bundle]] tables: allowed are 1 to 1024"), "{told}");
    }

    #[test]
    fn two_ambiguous_bundles_among_thousand_are_named() {
        let told = parse(1000, |text| text.replace("10.3.200.0/25", "10.0.17.128/25")).unwrap_err();
        let named = "bundle.to = \"10.0.17.128/25\": allowed is a prefix that bundle \"site-17\" does not have";
        assert!(told.contains(named) && told.lines().count() == 1, "{told}");
        let told = parse(1000, |text| text.replace("id = 900\n", "id = 90\n")).unwrap_err();
        assert!(told.contains("a number that bundle \"site-90\" does not have"), "{told}");
    }

    #[test]
    fn prefix_pairs_beyond_the_table_size_are_refused() {
        let from = |count: u32| {
            let prefixes = (0..count).map(|net| format!("\"11.{}.{}.0/24\"", net / 256, net % 256));
            format!("from = [{}]\nkey_file", prefixes.collect::<Vec<_>>().join(", "))
        };
        let with = |count: u32| parse(1024, |text| text.replace("key_file", &from(count)));
        assert!(with(32).is_err_and(|told| told.contains("bundle.from: 32768 prefixes in all")));
        let told = parse(1, |text| {
            let to: Vec<_> =
                (0..300).map(|net| format!("\"12.{}.{}.0/24\"", net / 256, net % 256)).collect();
            let text = text.replace("\"10.0.0.0/25\", \"10.0.0.128/25\"", &to.join(", "));
            text.replace("key_file", &from(300))
        });
        let named =
            "bundle.from: 90000 pairs of `to` and `from` of one bundle in all: allowed are 65536";
        assert!(told.unwrap_err().contains(named));
    }
}
