//! Sets of addresses that are equal if they hold the same addresses, however their prefixes are written.

use alloc::vec::Vec;
use core::hash::Hasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use siphasher::sip::SipHasher13;

/// IPv4 and IPv6 are separate: an IPv6 packet to `::ffff:10.1.2.3` is no IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    V4,
    V6,
}

/// A range that includes both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    family: Family,
    first: u128,
    last: u128,
}

impl Range {
    fn of(prefix: IpNet) -> Self {
        match prefix {
            IpNet::V4(net) => Self {
                family: Family::V4,
                first: net.network().to_bits().into(),
                last: net.broadcast().to_bits().into(),
            },
            IpNet::V6(net) => Self {
                family: Family::V6,
                first: net.network().to_bits(),
                last: net.broadcast().to_bits(),
            },
        }
    }

    fn prefixes(self) -> impl Iterator<Item = IpNet> {
        let Self { family, first, last } = self;
        let v4 = (family == Family::V4).then(|| {
            // An IPv4 address is in the lower 32 bits.
            let [first, last] = [first, last].map(|bits| Ipv4Addr::from_bits(bits as u32));
            Ipv4Subnets::new(first, last, 0).map(IpNet::V4)
        });
        let v6 = (family == Family::V6).then(|| {
            let [first, last] = [first, last].map(Ipv6Addr::from_bits);
            Ipv6Subnets::new(first, last, 0).map(IpNet::V6)
        });
        v4.into_iter().flatten().chain(v6.into_iter().flatten())
    }
}

/// A set of addresses: ranges in ascending order that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet(Vec<Range>);

impl FromIterator<IpNet> for AddressSet {
    /// Accepts prefixes in any order, overlapping, and with any bits after their length.
    fn from_iter<I: IntoIterator<Item = IpNet>>(prefixes: I) -> Self {
        let mut ranges: Vec<Range> = prefixes.into_iter().map(Range::of).collect();
        ranges.sort_unstable();
        let mut merged: Vec<Range> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last)
                    if last.family == range.family
                        && range.first <= last.last.saturating_add(1) =>
                {
                    last.last = last.last.max(range.last);
                }
                _ => merged.push(range),
            }
        }
        Self(merged)
    }
}

impl FromIterator<IpAddr> for AddressSet {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        addresses.into_iter().map(IpNet::from).collect()
    }
}

impl AddressSet {
    /// The empty set.
    pub const NONE: Self = Self(Vec::new());

    /// Whether the set is empty.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Addresses in this set that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        for range in &self.0 {
            let begins = other
                .0
                .partition_point(|hole| (hole.family, hole.last) < (range.family, range.first));
            let holes = other.0[begins..]
                .iter()
                .take_while(|hole| hole.family == range.family && hole.first <= range.last);
            let mut first = Some(range.first);
            for hole in holes {
                if let Some(first) = first.filter(|first| *first < hole.first) {
                    left.push(Range { first, last: hole.first - 1, ..*range });
                }
                first = hole.last.checked_add(1);
            }
            if let Some(first) = first.filter(|first| *first <= range.last) {
                left.push(Range { first, ..*range });
            }
        }
        Self(left)
    }

    /// Addresses in both sets.
    pub fn within(&self, other: &Self) -> Self {
        self.without(&self.without(other))
    }

    /// The fewest prefixes that hold exactly these addresses, in ascending order.
    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> + '_ {
        self.0.iter().flat_map(|range| range.prefixes())
    }

    /// All addresses. There may be too many to iterate over.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.0.iter().flat_map(|Range { family, first, last }| {
            (*first..=*last).map(|bits| match family {
                Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
                Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(bits)),
            })
        })
    }

    /// Hash of the set; 0 only for the empty set.
    pub fn digest(&self) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let mut hasher = SipHasher13::new();
        for Range { family, first, last } in &self.0 {
            hasher.write(&[*family as u8]);
            hasher.write(&first.to_le_bytes());
            hasher.write(&last.to_le_bytes());
        }
        hasher.finish().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use proptest::prelude::*;

    fn set(prefixes: &[&str]) -> AddressSet {
        prefixes.iter().map(|text| text.parse::<IpNet>().unwrap()).collect()
    }

    fn texts(set: &AddressSet) -> Vec<String> {
        set.prefixes().map(|prefix| prefix.to_string()).collect()
    }

    #[test]
    fn equal_address_sets_compare_equal_however_written() {
        let spellings: &[(&[&str], &[&str])] = &[
            (&["10.1.2.0/24", "10.1.9.0/24"], &["10.1.9.0/24", "10.1.2.0/24"]),
            (&["10.1.2.0/24"], &["10.1.2.77/24"]),
            (&["10.1.2.0/23"], &["10.1.2.0/24", "10.1.3.0/24"]),
            (&["10.0.0.0/8"], &["10.1.2.0/24", "10.0.0.0/8", "10.0.0.0/8"]),
            (&["0.0.0.0/0"], &["128.0.0.0/1", "0.0.0.0/1"]),
            (&["::/0"], &["::/1", "8000::/1", "2001:DB8:0:0::/64"]),
            (&["2001:db8::/32", "10.0.0.0/8"], &["10.0.0.0/8", "2001:0db8:0::1/32"]),
        ];
        for (one, other) in spellings {
            assert_eq!(set(one), set(other), "{one:?} and {other:?}");
            assert_eq!(set(one).digest(), set(other).digest(), "{one:?} and {other:?}");
        }
    }

    #[test]
    fn ipv4_is_no_part_of_ipv6() {
        let [v4, mapped, all] =
            [&["10.1.2.0/24"], &["::ffff:10.1.2.0/120"], &["::/0"]].map(|p| set(p));
        assert_ne!(v4, mapped);
        assert_eq!(v4.without(&all), v4);
        assert!(mapped.without(&all).is_empty());
        // Ranges that are adjacent as numbers only.
        assert_eq!(texts(&set(&["255.255.255.255/32", "::1:0:0/96"])).len(), 2);
    }

    #[test]
    fn a_difference_is_named_in_the_fewest_prefixes() {
        let left = set(&["10.1.2.0/23", "fd00::/8"]).without(&set(&["10.1.2.0/24", "10.9.0.0/16"]));
        assert_eq!(texts(&left), ["10.1.3.0/24", "fd00::/8"]);
        let around = set(&["10.1.2.0/30"]).without(&set(&["10.1.2.1/32"]));
        assert_eq!(texts(&around), ["10.1.2.0/32", "10.1.2.2/31"]);
        assert_eq!(texts(&set(&["::/0", "0.0.0.0/0"])), ["0.0.0.0/0", "::/0"]);
        assert!(set(&["::/0"]).without(&set(&["::/1", "8000::/1"])).is_empty());
        assert_eq!(texts(&set(&["10.1.2.0/24"]).within(&set(&["10.1.2.8/32"]))), ["10.1.2.8/32"]);
        assert_eq!(AddressSet::default().digest(), 0);
        let few: Vec<IpAddr> = set(&["fd00::/8", "10.1.2.2/31"]).addresses().take(3).collect();
        assert_eq!(
            few.iter().map(IpAddr::to_string).collect::<Vec<_>>(),
            ["10.1.2.2", "10.1.2.3", "fd00::"]
        );
    }

    proptest! {
        #[test]
        fn sets_match_a_search_through_all_prefixes(
            one in prop::collection::vec((0..16_u8, 28..=32_u8), 0..6),
            other in prop::collection::vec((0..16_u8, 28..=32_u8), 0..6),
        ) {
            let nets = |list: &[(u8, u8)]| -> Vec<IpNet> {
                let net = |(host, len): &(u8, u8)| IpNet::new([10, 0, 0, *host].into(), *len).unwrap();
                list.iter().map(net).collect()
            };
            let (one, other) = (nets(&one), nets(&other));
            let left: AddressSet =
                one.iter().copied().collect::<AddressSet>().without(&other.iter().copied().collect());
            let holds = |nets: &[IpNet], address: IpAddr| nets.iter().any(|net| net.contains(&address));
            let named: Vec<IpNet> = left.prefixes().collect();
            for host in 0..32 {
                let address = IpAddr::from([10, 0, 0, host]);
                let expected = holds(&one, address) && !holds(&other, address);
                prop_assert_eq!(holds(&named, address), expected, "{}", address);
            }
            prop_assert_eq!(&named.iter().copied().collect::<AddressSet>(), &left);
        }
    }
}
