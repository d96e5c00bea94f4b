//! Which bundles a prefix belongs to, as the sampler's tries hold it.

use std::collections::BTreeMap;

use ipnet::IpNet;

pub(crate) use crate::skel::sampler::types::members as Members;

/// Bundles that one sampler watches: each has a bit.
pub(crate) const MAX_BUNDLES: usize = 8 * size_of::<Members>();

/// Destination prefixes that may lie inside each other; `MAX_NESTING` in `bpf/sampler.bpf.c`.
pub(crate) const MAX_NESTING: usize = 4;

impl Members {
    fn insert(&mut self, slot: usize) {
        self.word[slot / 64] |= 1 << (slot % 64);
    }
}

/// Prefixes of the two sites of a bundle.
#[derive(Clone, Debug)]
pub(crate) struct Sites {
    pub(crate) source: Vec<IpNet>,
    pub(crate) destination: Vec<IpNet>,
}

fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}

impl Sites {
    /// A destination prefix that both bundles list though a packet's source may be in both.
    pub(crate) fn conflict(&self, other: &Self) -> Option<IpNet> {
        let sources_overlap =
            self.source.iter().any(|one| other.source.iter().any(|two| overlap(one, two)));
        let mut shared = self
            .destination
            .iter()
            .filter(|one| other.destination.iter().any(|two| one.trunc() == two.trunc()));
        shared.next().filter(|_| sources_overlap).copied()
    }
}

/// For each source prefix, the bundles that list it or a prefix that holds it: one lookup of the
/// longest prefix then finds all bundles of a source.
pub(crate) fn sources<'a>(
    bundles: impl Iterator<Item = (usize, &'a Sites)> + Clone,
) -> BTreeMap<IpNet, Members> {
    let mut all: BTreeMap<IpNet, Members> = BTreeMap::new();
    for (_, sites) in bundles.clone() {
        all.extend(sites.source.iter().map(|prefix| (prefix.trunc(), Members::default())));
    }
    for (prefix, members) in &mut all {
        for (slot, sites) in bundles.clone() {
            if sites.source.iter().any(|listed| listed.contains(prefix)) {
                members.insert(slot);
            }
        }
    }
    all
}

/// For each destination prefix, the bundles that list exactly it.
pub(crate) fn destinations<'a>(
    bundles: impl Iterator<Item = (usize, &'a Sites)>,
) -> BTreeMap<IpNet, Members> {
    let mut all: BTreeMap<IpNet, Members> = BTreeMap::new();
    for (slot, sites) in bundles {
        for prefix in &sites.destination {
            all.entry(prefix.trunc()).or_default().insert(slot);
        }
    }
    all
}

/// Destination prefixes that lie inside each other, at most.
pub(crate) fn nesting(prefixes: &[IpNet]) -> usize {
    prefixes
        .iter()
        .map(|inner| prefixes.iter().filter(|outer| outer.contains(inner)).count())
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(source: &str, destination: &str) -> Sites {
        Sites {
            source: vec![source.parse().unwrap()],
            destination: vec![destination.parse().unwrap()],
        }
    }

    #[test]
    fn a_source_prefix_belongs_to_the_bundles_of_the_prefixes_around_it() {
        let bundles = [
            (0, sites("10.0.0.0/8", "192.0.2.0/25")),
            (200, sites("10.1.0.0/16", "192.0.2.128/25")),
        ];
        let all = sources(bundles.iter().map(|(slot, sites)| (*slot, sites)));
        assert_eq!(all[&"10.0.0.0/8".parse().unwrap()].word, [1, 0, 0, 0]);
        assert_eq!(all[&"10.1.0.0/16".parse().unwrap()].word, [1, 0, 0, 1 << 8]);
    }

    #[test]
    fn the_same_destination_conflicts_only_if_the_sources_overlap() {
        let bundle = sites("10.0.0.0/8", "192.0.2.0/24");
        assert!(bundle.conflict(&sites("10.1.0.0/16", "192.0.2.7/24")).is_some());
        assert!(bundle.conflict(&sites("11.0.0.0/8", "192.0.2.0/24")).is_none());
        assert!(bundle.conflict(&sites("10.1.0.0/16", "192.0.2.0/25")).is_none());
    }

    #[test]
    fn nesting_counts_the_prefixes_around_an_address() {
        let prefixes = |texts: &[&str]| -> Vec<IpNet> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        assert_eq!(nesting(&[]), 0);
        assert_eq!(nesting(&prefixes(&["10.0.0.0/8", "11.0.0.0/8", "::/0"])), 1);
        assert_eq!(nesting(&prefixes(&["10.0.0.0/8", "0.0.0.0/0", "10.1.0.0/16"])), 3);
    }
}
