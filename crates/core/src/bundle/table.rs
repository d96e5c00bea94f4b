//! Finds the bundle of a packet: among the bundles with a source prefix that holds its source, the one with the
//! longest destination prefix that holds its destination.
//!
//! Sources come first because a receivebox may serve several sites that do not know each other's bundles. A
//! longer prefix of another site must not claim a packet. The sampler's BPF program follows the same rule.
//!
//! The table flattens the prefixes once into disjoint address ranges in ascending order. However the prefixes
//! nest, a lookup is one binary search: 11 steps for 1,000 prefixes.

use alloc::vec::Vec;
use core::net::IpAddr;

use ipnet::IpNet;

/// Largest number of prefixes in one table: the number of bundle ids. 65,536 IPv4 prefixes take at most 1 MiB.
pub const MAX_PREFIXES: usize = 1 << 16;

/// Invalid prefixes for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// A prefix was given twice.
    #[error("prefix {0} appears twice; each prefix belongs to one bundle")]
    Duplicate(IpNet),
    /// A prefix with bits set behind its length, most likely a mistyped length.
    #[error("prefix {prefix} has bits set after its length; did you mean {truncated}?")]
    HostBits {
        /// The prefix as given.
        prefix: IpNet,
        /// The prefix without those bits.
        truncated: IpNet,
    },
    /// There are more prefixes than [`MAX_PREFIXES`].
    #[error("{0} prefixes; at most {most} are allowed", most = MAX_PREFIXES)]
    TooMany(usize),
}

/// Maps addresses to the values of the prefixes that hold them.
#[derive(Clone, Debug)]
pub struct PrefixTable<T> {
    v4: Ranges<u32, T>,
    v6: Ranges<u128, T>,
}

impl<T: Copy> PrefixTable<T> {
    /// Builds the table. The order of `prefixes` does not matter.
    pub fn new(prefixes: &[(IpNet, T)]) -> Result<Self, TableError> {
        if prefixes.len() > MAX_PREFIXES {
            return Err(TableError::TooMany(prefixes.len()));
        }
        let mut sorted = prefixes.to_vec();
        // By first address, then the shorter prefix first: an outer prefix comes before its inner ones.
        sorted.sort_by_key(|(prefix, _)| (prefix.network(), prefix.prefix_len()));
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(TableError::Duplicate(pair[0].0));
        }
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (prefix, value) in sorted {
            let truncated = prefix.trunc();
            if truncated != prefix {
                return Err(TableError::HostBits { prefix, truncated });
            }
            match prefix {
                IpNet::V4(net) => {
                    v4.push((net.network().to_bits(), net.broadcast().to_bits(), value))
                }
                IpNet::V6(net) => {
                    v6.push((net.network().to_bits(), net.broadcast().to_bits(), value))
                }
            }
        }
        let v4 = Ranges::new(&v4, |last| last.checked_add(1));
        let v6 = Ranges::new(&v6, |last| last.checked_add(1));
        Ok(Self { v4, v6 })
    }

    /// Values of the prefixes that hold `destination`, the longest prefix first.
    pub fn lookup(&self, destination: IpAddr) -> impl Iterator<Item = T> {
        let (intervals, innermost) = match destination {
            IpAddr::V4(address) => (&self.v4.intervals, self.v4.lookup(address.to_bits())),
            IpAddr::V6(address) => (&self.v6.intervals, self.v6.lookup(address.to_bits())),
        };
        let around = |index: &usize| intervals[*index].1;
        core::iter::successors(innermost, around).map(|index| intervals[index].0)
    }
}

/// Finds the bundle of a packet. Bundles are numbered in the order given.
#[derive(Clone, Debug)]
pub struct BundleTable {
    prefixes: PrefixTable<usize>,
    sources: Vec<Vec<IpNet>>,
}

impl BundleTable {
    /// Builds the table from the source and destination prefixes of each bundle. No source prefixes: any source.
    pub fn new<'a>(
        bundles: impl Iterator<Item = (&'a [IpNet], &'a [IpNet])>,
    ) -> Result<Self, TableError> {
        let (mut prefixes, mut sources) = (Vec::new(), Vec::new());
        for (index, (from, to)) in bundles.enumerate() {
            prefixes.extend(to.iter().map(|prefix| (*prefix, index)));
            sources.push(from.to_vec());
        }
        Ok(Self { prefixes: PrefixTable::new(&prefixes)?, sources })
    }

    /// The bundle of packets from `source` to `destination`.
    pub fn find(&self, source: IpAddr, destination: IpAddr) -> Option<usize> {
        self.prefixes.lookup(destination).find(|index| {
            let sources = &self.sources[*index];
            sources.is_empty() || sources.iter().any(|prefix| prefix.contains(&source))
        })
    }
}

/// Disjoint ranges: the interval `innermost[i]` holds from `starts[i]` up to `starts[i + 1]`.
#[derive(Clone, Debug)]
struct Ranges<A, T> {
    starts: Vec<A>,
    innermost: Vec<Option<usize>>,
    /// Value of each interval, and the interval around it.
    intervals: Vec<(T, Option<usize>)>,
}

impl<A: Ord + Copy, T: Copy> Ranges<A, T> {
    /// From nested or disjoint intervals (first, last, value), sorted by first address, outer
    /// before inner.
    fn new(intervals: &[(A, A, T)], next: impl Fn(A) -> Option<A>) -> Self {
        let (starts, innermost) = (Vec::new(), Vec::new());
        let mut ranges = Self { starts, innermost, intervals: Vec::new() };
        // Last addresses of the intervals that hold the current one, the innermost last.
        let mut open: Vec<(A, usize)> = Vec::new();
        for (index, &(first, last, value)) in intervals.iter().enumerate() {
            ranges.close(&mut open, Some(first), &next);
            ranges.push(first, Some(index));
            ranges.intervals.push((value, open.last().map(|(_, around)| *around)));
            open.push((last, index));
        }
        ranges.close(&mut open, None, &next);
        ranges
    }

    /// Closes the intervals that end before `until`, the innermost first.
    fn close(
        &mut self,
        open: &mut Vec<(A, usize)>,
        until: Option<A>,
        next: &impl Fn(A) -> Option<A>,
    ) {
        while let Some(&(last, _)) = open.last() {
            if until.is_some_and(|until| last >= until) {
                return;
            }
            open.pop();
            if let Some(after) = next(last) {
                self.push(after, open.last().map(|(_, around)| *around));
            }
        }
    }

    fn push(&mut self, start: A, interval: Option<usize>) {
        // An interval that begins where another begins or ends takes its place.
        if self.starts.last() == Some(&start) {
            self.innermost.pop();
        } else {
            self.starts.push(start);
        }
        self.innermost.push(interval);
    }

    /// The innermost interval that holds `address`.
    fn lookup(&self, address: A) -> Option<usize> {
        let after = self.starts.partition_point(|start| *start <= address);
        after.checked_sub(1).and_then(|index| self.innermost[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use ipnet::{Ipv4Net, Ipv6Net};
    use proptest::prelude::*;

    fn table(prefixes: &[&str]) -> Result<PrefixTable<usize>, TableError> {
        let prefixes: Vec<(IpNet, usize)> =
            prefixes.iter().enumerate().map(|(n, prefix)| (prefix.parse().unwrap(), n)).collect();
        PrefixTable::new(&prefixes)
    }

    fn check(table: &PrefixTable<usize>, cases: &[(&str, Option<usize>)]) {
        for (address, expected) in cases {
            assert_eq!(table.lookup(address.parse().unwrap()).next(), *expected, "{address}");
        }
    }

    #[test]
    fn the_longest_prefix_wins() {
        let table = table(&["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32"]).unwrap();
        check(
            &table,
            &[
                ("9.255.255.255", None),
                ("10.0.0.0", Some(0)),
                ("10.1.0.0", Some(1)),
                ("10.1.2.2", Some(2)),
                ("10.1.2.3", Some(3)),
                ("10.1.2.4", Some(2)),
                ("10.1.3.0", Some(1)),
                ("10.2.0.0", Some(0)),
                ("11.0.0.0", None),
            ],
        );
    }

    #[test]
    fn both_families_and_default_routes_are_matched() {
        let all = table(&["0.0.0.0/0", "::/0", "255.255.255.255/32", "2001:db8::/32"]).unwrap();
        check(
            &all,
            &[
                ("0.0.0.0", Some(0)),
                ("255.255.255.254", Some(0)),
                ("255.255.255.255", Some(2)),
                ("::", Some(1)),
                ("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", Some(3)),
                ("2001:db9::", Some(1)),
                ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Some(1)),
            ],
        );
        check(&table(&["0.0.0.0/0"]).unwrap(), &[("::", None)]);
        check(&table(&[]).unwrap(), &[("10.0.0.1", None), ("::1", None)]);
    }

    #[test]
    fn a_longer_prefix_of_another_source_claims_nothing() {
        let prefixes = |texts: &[&str]| -> Vec<IpNet> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let bundles = [
            (prefixes(&["192.0.2.0/25"]), prefixes(&["10.0.0.0/8"])),
            (prefixes(&["192.0.2.128/25", "198.51.100.0/24"]), prefixes(&["10.1.0.0/16"])),
            (prefixes(&[]), prefixes(&["10.1.2.0/24"])),
        ];
        let table = BundleTable::new(bundles.iter().map(|(from, to)| (&from[..], &to[..])));
        let table = table.unwrap();
        for (source, destination, bundle) in [
            ("192.0.2.1", "10.2.0.1", Some(0)),
            ("192.0.2.1", "10.1.0.1", Some(0)),
            ("192.0.2.200", "10.1.0.1", Some(1)),
            ("198.51.100.1", "10.1.0.1", Some(1)),
            ("192.0.2.200", "10.2.0.1", None),
            ("203.0.113.1", "10.1.0.1", None),
            ("203.0.113.1", "10.1.2.1", Some(2)),
        ] {
            let found = table.find(source.parse().unwrap(), destination.parse().unwrap());
            assert_eq!(found, bundle, "{source} to {destination}");
        }
    }

    #[test]
    fn what_makes_no_table_is_refused_by_name() {
        let error = table(&["10.0.0.0/8", "10.1.0.0/16", "10.0.0.0/8"]).unwrap_err();
        assert!(error.to_string().contains("10.0.0.0/8 appears twice"));
        let error = table(&["10.1.0.0/8"]).unwrap_err();
        assert!(error.to_string().ends_with("did you mean 10.0.0.0/8?"));
        let many = alloc::vec![("10.0.0.0/8".parse().unwrap(), 0); MAX_PREFIXES + 1];
        assert_eq!(PrefixTable::new(&many).unwrap_err(), TableError::TooMany(MAX_PREFIXES + 1));
    }

    #[test]
    fn one_prefix_per_bundle_id_fits() {
        let prefixes: Vec<(IpNet, u32)> = (0..MAX_PREFIXES as u32)
            .map(|n| (Ipv4Net::new_assert(Ipv4Addr::from_bits(n << 12), 20).into(), n))
            .collect();
        let table = PrefixTable::new(&prefixes).unwrap();
        for n in 0..MAX_PREFIXES as u32 {
            let found = table.lookup(Ipv4Addr::from_bits(n << 12 | 0xfff).into());
            assert_eq!(found.collect::<Vec<_>>(), [n]);
        }
    }

    /// Addresses and prefixes close together, so that they nest and touch.
    fn prefix() -> impl Strategy<Value = IpNet> {
        let v4 = (0..64_u32, 24..=32_u8)
            .prop_map(|(low, len)| Ipv4Net::new_assert(Ipv4Addr::from_bits(low), len).into());
        let v6 = (0..64_u128, 120..=128_u8)
            .prop_map(|(low, len)| Ipv6Net::new_assert(Ipv6Addr::from_bits(low), len).into());
        prop_oneof![v4, v6].prop_map(|prefix: IpNet| prefix.trunc())
    }

    proptest! {
        #[test]
        fn lookups_agree_with_a_search_through_all_prefixes(
            prefixes in prop::collection::btree_set(prefix(), 0..40),
        ) {
            let prefixes: Vec<(IpNet, usize)> = prefixes.into_iter().zip(0..).collect();
            let table = PrefixTable::new(&prefixes).unwrap();
            for low in 0..300_u32 {
                let v6 = Ipv6Addr::from_bits(low.into());
                for address in [IpAddr::V4(Ipv4Addr::from_bits(low)), IpAddr::V6(v6)] {
                    let mut all: Vec<&(IpNet, usize)> =
                        prefixes.iter().filter(|(prefix, _)| prefix.contains(&address)).collect();
                    all.sort_by_key(|(prefix, _)| core::cmp::Reverse(prefix.prefix_len()));
                    let found = table.lookup(address);
                    prop_assert!(found.eq(all.into_iter().map(|(_, value)| *value)));
                }
            }
        }
    }
}
