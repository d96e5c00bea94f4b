//! Which bundle packets from one prefix to another belong to, as the sampler's tries hold it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use forebay_core::bundle::BundleId;
use forebay_core::bundle::table::PrefixTable;
use ipnet::IpNet;

use crate::Error;
use crate::watched::SamplerBundle;

/// Bundles that one sampler watches; as in `bpf/bundles.h`.
pub const MAX_BUNDLES: usize = 1024;

/// Destination prefixes of all bundles that the tables of the programs hold; as in `bpf/bundles.h`.
pub const MAX_PREFIXES: usize = 16_384;

/// Pairs of a destination and a source prefix of one bundle that the tables hold; as in `bpf/bundles.h`.
pub const MAX_PAIRS: usize = 65_536;

/// Addresses of the box and of its peers that the programs have room for; as in `bpf/packet.h`.
pub const MAX_OWN_ADDRESSES: usize = 16_384;

/// Destination prefixes that may lie inside each other; as in `bpf/bundles.h`.
pub(crate) const MAX_NESTING: usize = 4;

/// Prefixes of the two sites of a bundle.
#[derive(Clone, Debug)]
pub(crate) struct Sites {
    pub(crate) source: Vec<IpNet>,
    pub(crate) destination: Vec<IpNet>,
}

impl Sites {
    pub(crate) fn of(bundle: &SamplerBundle) -> Self {
        Self { source: bundle.source.clone(), destination: bundle.destination.clone() }
    }

    /// Each destination prefix with each source prefix.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (IpNet, IpNet)> {
        let sources = move |to: &IpNet| {
            let to = to.trunc();
            self.source.iter().map(move |from| (to, from.trunc()))
        };
        self.destination.iter().flat_map(sources)
    }
}

/// Finds the bundle of a packet without a BPF program. Refuses bundles that the tries would refuse.
#[derive(Clone, Debug)]
pub struct Membership {
    bundles: BTreeMap<BundleId, Sites>,
    /// Places in `sources` of the destination prefixes.
    destinations: PrefixTable<usize>,
    /// The source prefixes of the bundles that list a destination.
    sources: Vec<Vec<(IpNet, BundleId)>>,
}

impl Default for Membership {
    fn default() -> Self {
        let destinations = PrefixTable::new(&[]).expect("an empty table is valid");
        Self { bundles: BTreeMap::new(), destinations, sources: Vec::new() }
    }
}

impl Membership {
    /// Forgets the bundles `gone`, and takes or changes the bundles in `set`: all at once, so that prefixes
    /// may go from one bundle to another.
    ///
    /// # Errors
    ///
    /// As [`Sampler::change`](crate::Sampler::change), with everything as before.
    pub fn change(
        &mut self,
        gone: &[BundleId],
        set: &[(BundleId, SamplerBundle)],
    ) -> Result<(), Error> {
        let all = changed(self.bundles.iter().map(|(id, sites)| (*id, sites)), gone, set);
        check(&all)?;
        let mut listing: BTreeMap<IpNet, Vec<(IpNet, BundleId)>> = BTreeMap::new();
        for (id, sites) in &all {
            for (to, from) in sites.pairs() {
                listing.entry(to).or_default().push((from, *id));
            }
        }
        let places: Vec<(IpNet, usize)> = listing.keys().copied().zip(0..).collect();
        let full = |_| Error::Full { map: "destinations", count: places.len(), max: MAX_PREFIXES };
        self.destinations = PrefixTable::new(&places).map_err(full)?;
        self.sources = listing.into_values().collect();
        self.bundles = all.into_iter().collect();
        Ok(())
    }

    /// The bundle of packets from `source` to `destination`.
    pub fn find(&self, source: IpAddr, destination: IpAddr) -> Option<BundleId> {
        self.destinations.lookup(destination).find_map(|place| {
            let mut listed = self.sources[place].iter();
            listed.find(|(from, _)| from.contains(&source)).map(|(_, id)| *id)
        })
    }

    /// The source prefixes of all bundles.
    pub fn sources(&self) -> BTreeSet<IpNet> {
        self.bundles.values().flat_map(|sites| &sites.source).map(IpNet::trunc).collect()
    }
}

/// The bundles after a change.
pub(crate) fn changed<'a>(
    before: impl Iterator<Item = (BundleId, &'a Sites)>,
    gone: &[BundleId],
    set: &[(BundleId, SamplerBundle)],
) -> Vec<(BundleId, Sites)> {
    let named = gone.iter().chain(set.iter().map(|(id, _)| id));
    let named: BTreeSet<BundleId> = named.copied().collect();
    let stay = before.filter(|(id, _)| !named.contains(id));
    let mut all: Vec<(BundleId, Sites)> =
        set.iter().map(|(id, bundle)| (*id, Sites::of(bundle))).collect();
    all.extend(stay.map(|(id, sites)| (id, sites.clone())));
    all
}

/// Checks whether one box can watch these bundles together. If two conflict, the error names the later one first.
pub(crate) fn check(all: &[(BundleId, Sites)]) -> Result<(), Error> {
    if all.len() > MAX_BUNDLES {
        return Err(Error::TooManyBundles { max: MAX_BUNDLES });
    }
    let mut prefixes = all.iter().flat_map(|(_, it)| it.source.iter().chain(&it.destination));
    prefixes.try_for_each(|prefix| refuse_mapped(*prefix))?;
    if let Some(([first, second], destination)) = conflict(all.iter().map(|(id, it)| (*id, it))) {
        return Err(Error::Overlap { first: first.0, second: second.0, destination });
    }
    if nesting(all.iter().flat_map(|(_, sites)| &sites.destination)) > MAX_NESTING {
        return Err(Error::Nesting { max: MAX_NESTING });
    }
    Ok(())
}

/// Refuses prefixes of IPv4 addresses in IPv6 form, which no packet carries.
pub(crate) fn refuse_mapped(net: IpNet) -> Result<(), Error> {
    match net {
        IpNet::V6(v6) if v6.prefix_len() >= 96 && v6.network().to_ipv4_mapped().is_some() => {
            Err(Error::MappedPrefix(net))
        }
        _ => Ok(()),
    }
}

/// A source prefix, and the place and the number of the bundle that lists it.
type Listed = (IpNet, (usize, BundleId));

/// A destination prefix that two bundles list although the source of a packet may be in both, and the two
/// bundles. The first is the later one in `bundles`.
pub(crate) fn conflict<'a>(
    bundles: impl Iterator<Item = (BundleId, &'a Sites)>,
) -> Option<([BundleId; 2], IpNet)> {
    let mut listing: BTreeMap<IpNet, Vec<Listed>> = BTreeMap::new();
    for (place, (id, sites)) in bundles.enumerate() {
        for (to, from) in sites.pairs() {
            listing.entry(to).or_default().push((from, (place, id)));
        }
    }
    listing.into_iter().find_map(|(destination, mut sources)| {
        sources.sort();
        let mut found = None;
        walk(&sources, |around, (_, own)| {
            // Prefixes further out are of the same bundle as this one, or were found before.
            let other = around.last().map(|(_, other)| *other).filter(|other| other.1 != own.1);
            found = found.or(other.map(|other| [own.max(other).1, own.min(other).1]));
        });
        found.map(|both| (both, destination))
    })
}

/// Destination prefixes that lie inside each other, at most.
pub(crate) fn nesting<'a>(prefixes: impl Iterator<Item = &'a IpNet>) -> usize {
    let mut sorted: Vec<(IpNet, ())> = prefixes.map(|prefix| (prefix.trunc(), ())).collect();
    sorted.sort();
    sorted.dedup();
    let mut deepest = 0;
    walk(&sorted, |around, _| deepest = deepest.max(around.len() + 1));
    deepest
}

/// Visits prefixes, sorted by address and then by length, each with the prefixes around it, the innermost
/// last.
fn walk<T: Copy>(sorted: &[(IpNet, T)], mut visit: impl FnMut(&[(IpNet, T)], (IpNet, T))) {
    let mut around: Vec<(IpNet, T)> = Vec::new();
    for &(prefix, value) in sorted {
        while around.pop_if(|(outer, _)| !outer.contains(&prefix)).is_some() {}
        visit(&around, (prefix, value));
        around.push((prefix, value));
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::bundle::{BlockVersion, EpochSize, SamplingKey};

    use super::*;

    fn prefixes(texts: &str) -> Vec<IpNet> {
        texts.split(' ').map(|text| text.parse().unwrap()).collect()
    }

    fn sites(source: &str, destination: &str) -> Sites {
        Sites { source: prefixes(source), destination: prefixes(destination) }
    }

    fn conflict_of(bundles: &[Sites]) -> Option<([u16; 2], String)> {
        let bundles = bundles.iter().zip(0..).map(|(sites, id)| (BundleId(id), sites));
        conflict(bundles).map(|(both, prefix)| (both.map(|id| id.0), prefix.to_string()))
    }

    #[test]
    fn same_destination_conflicts_only_if_sources_overlap() {
        let bundle = sites("10.0.0.0/8", "192.0.2.0/24");
        let other =
            |source, destination| conflict_of(&[bundle.clone(), sites(source, destination)]);
        let found = Some(([1, 0], "192.0.2.0/24".into()));
        assert_eq!(other("10.1.0.0/16", "192.0.2.7/24"), found);
        assert_eq!(other("0.0.0.0/0", "198.51.100.0/24 192.0.2.0/24"), found);
        assert_eq!(other("11.0.0.0/8", "192.0.2.0/24"), None);
        assert_eq!(other("10.1.0.0/16", "192.0.2.0/25"), None);
        assert_eq!(other("::/0", "192.0.2.0/24"), None);
    }

    #[test]
    fn conflict_among_many_bundles_is_always_found() {
        let mut bundles: Vec<Sites> = (0..1000)
            .map(|site| sites(&format!("10.{}.{}.0/24", site / 250, site % 250), "192.0.2.0/24"))
            .collect();
        assert_eq!(conflict_of(&bundles), None);
        // Prefixes of one bundle may lie inside each other, and prefixes of another bundle next to them.
        bundles[500].source.extend(prefixes("10.2.0.128/25 10.99.0.0/16 10.99.3.0/24"));
        assert_eq!(conflict_of(&bundles), None);
        bundles[7].source.extend(prefixes("10.99.3.128/25"));
        assert_eq!(conflict_of(&bundles), Some(([500, 7], "192.0.2.0/24".into())));
    }

    fn watched(source: &str, destination: &str) -> SamplerBundle {
        SamplerBundle {
            source: prefixes(source),
            destination: prefixes(destination),
            key: SamplingKey::IDENTITY,
            epoch_size: EpochSize::from_log2(3).unwrap(),
            version: BlockVersion::V2,
        }
    }

    #[test]
    fn longest_destination_with_matching_source_wins() {
        let mut membership = Membership::default();
        let set = [
            (BundleId(1), watched("10.0.0.0/8", "192.0.2.0/24")),
            (BundleId(2), watched("11.0.0.0/8", "192.0.2.0/24 198.51.100.0/24")),
            (BundleId(3), watched("10.1.0.0/16", "192.0.2.128/25 2001:db8::/32")),
        ];
        membership.change(&[], &set).unwrap();
        let found = |membership: &Membership, from: &str, to: &str| {
            membership.find(from.parse().unwrap(), to.parse().unwrap()).map(|id| id.0)
        };
        assert_eq!(found(&membership, "10.1.2.3", "192.0.2.1"), Some(1));
        assert_eq!(found(&membership, "10.1.2.3", "192.0.2.200"), Some(3));
        assert_eq!(found(&membership, "10.2.2.3", "192.0.2.200"), Some(1));
        assert_eq!(found(&membership, "11.2.2.3", "192.0.2.200"), Some(2));
        assert_eq!(found(&membership, "12.2.2.3", "192.0.2.200"), None);
        assert_eq!(found(&membership, "10.1.2.3", "203.0.113.1"), None);
        // Refused as a whole, and then taken as a whole.
        let other = [(BundleId(4), watched("10.9.0.0/16", "192.0.2.0/24"))];
        let refused = membership.change(&[], &other).unwrap_err();
        assert!(matches!(refused, Error::Overlap { .. }), "{refused}");
        assert_eq!(found(&membership, "10.9.2.3", "192.0.2.1"), Some(1));
        membership.change(&[BundleId(1)], &other).unwrap();
        assert_eq!(found(&membership, "10.9.2.3", "192.0.2.1"), Some(4));
        assert_eq!(found(&membership, "10.1.2.3", "192.0.2.1"), None);
        let mapped = [(BundleId(5), watched("::ffff:10.0.0.0/104", "192.0.2.0/24"))];
        assert!(matches!(membership.change(&[], &mapped), Err(Error::MappedPrefix(_))));
    }

    #[test]
    fn nesting_counts_the_prefixes_around_an_address() {
        let nesting = |texts: &[&str]| {
            let prefixes: Vec<IpNet> = texts.iter().map(|text| text.parse().unwrap()).collect();
            super::nesting(prefixes.iter())
        };
        assert_eq!(nesting(&[]), 0);
        assert_eq!(nesting(&["10.0.0.0/8", "11.0.0.0/8", "::/0", "10.0.0.0/8"]), 1);
        assert_eq!(nesting(&["10.1.0.0/16", "10.0.0.0/8", "0.0.0.0/0", "10.2.0.0/16"]), 3);
    }
}
