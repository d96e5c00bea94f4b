//! Which bundle packets from one prefix to another belong to, as the sampler's tries hold it.

use std::collections::BTreeMap;

use forebay_core::bundle::BundleId;
use ipnet::IpNet;

/// Bundles that one sampler watches; as in `bpf/bundles.h`.
pub const MAX_BUNDLES: usize = 1024;

/// Destination prefixes that the tables of the programs hold, those of all bundles; as in `bpf/bundles.h`.
pub const MAX_PREFIXES: usize = 16_384;

/// Pairs of a destination and a source prefix of one bundle that they hold; as in `bpf/bundles.h`.
pub const MAX_PAIRS: usize = 65_536;

/// Destination prefixes that may lie inside each other; as in `bpf/bundles.h`.
pub(crate) const MAX_NESTING: usize = 4;

/// Prefixes of the two sites of a bundle.
#[derive(Clone, Debug)]
pub(crate) struct Sites {
    pub(crate) source: Vec<IpNet>,
    pub(crate) destination: Vec<IpNet>,
}

impl Sites {
    /// Each destination prefix with each source prefix.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (IpNet, IpNet)> {
        let sources = move |to: &IpNet| {
            let to = to.trunc();
            self.source.iter().map(move |from| (to, from.trunc()))
        };
        self.destination.iter().flat_map(sources)
    }
}

/// A source prefix, and the place and the number of the bundle that lists it.
type Listed = (IpNet, (usize, BundleId));

/// A destination prefix that two bundles list though the source of a packet may be in both, and the two, of which the
/// one that comes later among `bundles` is the first.
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
            // Those further out are of the same bundle as this one, or were found before.
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

/// Visits prefixes, sorted by address and then by length, each with those around it, the innermost last.
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
    fn the_same_destination_conflicts_only_if_the_sources_overlap() {
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
    fn one_conflict_among_many_bundles_is_found_wherever_it_is() {
        let mut bundles: Vec<Sites> = (0..1000)
            .map(|site| sites(&format!("10.{}.{}.0/24", site / 250, site % 250), "192.0.2.0/24"))
            .collect();
        assert_eq!(conflict_of(&bundles), None);
        // Prefixes of one bundle may lie inside each other, and others beside them.
        bundles[500].source.extend(prefixes("10.2.0.128/25 10.99.0.0/16 10.99.3.0/24"));
        assert_eq!(conflict_of(&bundles), None);
        bundles[7].source.extend(prefixes("10.99.3.128/25"));
        assert_eq!(conflict_of(&bundles), Some(([500, 7], "192.0.2.0/24".into())));
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
