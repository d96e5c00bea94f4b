use proptest::prelude::*;

use super::*;
use crate::bundle::control::RATES;

const MS: Duration = Duration::from_millis(1);
/// Largest rounding error (bit/s).
const ROUNDING: u64 = 10_000;

fn mbit(mbit: u64) -> Rate {
    Rate::from_mbit_per_sec(mbit)
}

fn share(weight: u32) -> Share {
    Share { weight, ..Share::default() }
}

fn member(group: Option<usize>, weight: u32) -> Member {
    Member { group, share: share(weight) }
}

fn flat(rate: Rate, shares: &[Share]) -> UplinkConfig {
    let bundles = shares.iter().map(|&share| Member { group: None, share }).collect();
    UplinkConfig { rate, groups: Vec::new(), bundles }
}

/// The tree in the module's documentation.
fn drawn() -> UplinkConfig {
    UplinkConfig {
        rate: mbit(100),
        groups: alloc::vec![member(None, 3)],
        bundles: alloc::vec![member(Some(0), 2), member(Some(0), 1), member(None, 1)],
    }
}

fn divided(config: &UplinkConfig, demands_mbit: &[u64]) -> Vec<u64> {
    let demands: Vec<Rate> = demands_mbit.iter().map(|rate| mbit(*rate)).collect();
    let divided = Tree::new(config).unwrap().divide(&demands);
    // Round to the nearest, because the division rounds.
    divided.iter().map(|rate| (rate.as_bits_per_sec() + 500_000) / 1_000_000).collect()
}

#[test]
fn siblings_share_by_weight_and_get_spare_first() {
    assert_eq!(divided(&drawn(), &[100, 100, 100]), [50, 25, 25]);
    assert_eq!(divided(&drawn(), &[100, 0, 100]), [75, 0, 25]);
    assert_eq!(divided(&drawn(), &[0, 0, 100]), [0, 0, 100]);
    assert_eq!(divided(&drawn(), &[10, 10, 100]), [10, 10, 80]);
    // Capacity that no bundle demands is divided in the same way.
    assert_eq!(divided(&drawn(), &[10, 10, 10]), [50, 25, 25]);
    assert_eq!(divided(&drawn(), &[60, 10, 10]), [60, 15, 25]);
}

#[test]
fn guarantee_holds_at_any_weight_and_is_lent() {
    let guaranteed = Share { guarantee: Some(mbit(30)), ..share(1) };
    let config = flat(mbit(100), &[guaranteed, share(9)]);
    assert_eq!(divided(&config, &[100, 100]), [30, 70]);
    assert_eq!(divided(&config, &[5, 100]), [5, 95]);
    // The share by weight exceeds the guarantee.
    let config = flat(mbit(100), &[guaranteed, share(1)]);
    assert_eq!(divided(&config, &[100, 100]), [50, 50]);
}

#[test]
fn max_rate_bounds_share_and_demand() {
    let bounded = Share { max_rate: Some(mbit(20)), ..share(3) };
    let config = flat(mbit(100), &[bounded, share(1)]);
    assert_eq!(divided(&config, &[100, 100]), [20, 80]);
    assert_eq!(divided(&config, &[100, 10]), [20, 80]);
    let mut config = drawn();
    config.groups[0].share.max_rate = Some(mbit(30));
    assert_eq!(divided(&config, &[100, 100, 100]), [20, 10, 70]);
}

#[test]
fn invalid_tree_is_refused_by_place_and_key() {
    let guarantee = |rate: u64| Share { guarantee: Some(mbit(rate)), ..share(1) };
    type Edit<'a> = &'a dyn Fn(&mut UplinkConfig);
    let edits: [(&str, Edit<'_>); 10] = [
        ("Uplink: rate = 99kbit/s: allowed is a rate from 100kbit/s", &|it| {
            it.rate = Rate::from_bits_per_sec(99_000);
        }),
        ("Uplink: rate = 100Mbit/s: allowed is a rate of at least 110Mbit/s", &|it| {
            (it.bundles[0].share, it.bundles[2].share) = (guarantee(60), guarantee(50));
        }),
        ("Group(0): guarantee = 50Mbit/s: allowed is a rate of at least 60Mbit/s", &|it| {
            (it.groups[0].share, it.bundles[0].share) = (guarantee(50), guarantee(60));
        }),
        ("Group(0): max_rate = 50Mbit/s: allowed is a rate of at least 60Mbit/s", &|it| {
            it.groups[0].share.max_rate = Some(mbit(50));
            it.bundles[1].share = guarantee(60);
        }),
        ("Bundle(2): guarantee = 6Mbit/s: allowed is a rate of at most max_rate, 5Mbit/s", &|it| {
            it.bundles[2].share = Share { max_rate: Some(mbit(5)), ..guarantee(6) };
        }),
        ("Bundle(1): weight = 0: allowed is a whole number from 1 to 1000", &|it| {
            it.bundles[1].share.weight = 0;
        }),
        ("Group(0): weight = 1001: allowed", &|it| it.groups[0].share.weight = 1001),
        ("Bundle(0): group = 1: allowed is one of the 1 groups", &|it| {
            it.bundles[0].group = Some(1);
        }),
        ("Group(0): parent = 7: allowed is one of", &|it| it.groups[0].group = Some(7)),
        ("Group(0): parent = 1: allowed is a group that is not within this one", &|it| {
            it.groups = alloc::vec![member(Some(1), 1), member(Some(0), 1)];
        }),
    ];
    for (said, edit) in edits {
        let mut config = drawn();
        edit(&mut config);
        let error = Uplink::new(&config).unwrap_err();
        let text = alloc::format!("{:?}: {error}", error.place);
        assert!(text.starts_with(said), "{text}");
    }
}

#[test]
fn successor_keeps_state_of_remaining_bundles() {
    let mut bench = Bench::new(&flat(mbit(100), &[share(1), share(1)]));
    bench.run(500, &[mbit(200), mbit(200)]);
    let config = flat(mbit(80), &[share(1), share(3), share(1)]);
    let uplink = bench.uplink.succeeded_by(&config, &[Some(1), Some(0), None]).unwrap();
    assert_eq!((uplink.rate(), uplink.next_timer()), (mbit(80), bench.uplink.next_timer()));
    for (bundle, expected) in [mbit(20), mbit(60), LIVELY].into_iter().enumerate() {
        let Ceiling { rate, is_short } = uplink.ceiling(bundle);
        let off = rate.as_bits_per_sec().abs_diff(expected.as_bits_per_sec());
        assert!(off <= ROUNDING && is_short == (bundle < 2), "{bundle}: {rate}");
    }
    assert_eq!(uplink.share(1), (3, None));
}

#[test]
fn idle_bundle_starts_at_tenth_within_its_limit() {
    let kbit = |rate: u64| Rate::from_bits_per_sec(rate * 1000);
    let limited = |rate: u64| Share { max_rate: Some(kbit(rate)), ..share(1) };
    let mut config = flat(mbit(100), &[share(1), share(1), limited(300), share(1)]);
    config.groups = alloc::vec![Member { group: None, share: limited(2000) }, member(Some(0), 1)];
    config.bundles[0].group = Some(1);
    let mut bench = Bench::new(&config);
    bench.run(500, &[Rate::ZERO, Rate::ZERO, Rate::ZERO, mbit(200)]);
    for (bundle, expected) in [kbit(200), LIVELY, kbit(300)].into_iter().enumerate() {
        assert_eq!(bench.uplink.ceiling(bundle), Ceiling { rate: expected, is_short: false });
    }
}

/// Bundles of an uplink whose packets leave at their ceilings.
struct Bench {
    uplink: Uplink,
    loads: Vec<BundleLoad>,
    now: Timestamp,
}

impl Bench {
    fn new(config: &UplinkConfig) -> Self {
        let loads = alloc::vec![BundleLoad::default(); config.bundles.len()];
        Self { uplink: Uplink::new(config).unwrap(), loads, now: Timestamp::ZERO }
    }

    /// Offers each bundle its `arriving` rate for `ms` milliseconds.
    fn run(&mut self, ms: u32, arriving: &[Rate]) {
        for _ in 0..ms {
            self.now += MS;
            for (bundle, rate) in arriving.iter().enumerate() {
                let load = &mut self.loads[bundle];
                load.backlog += rate.bytes_in(MS);
                if self.uplink.on_queue(bundle, load) {
                    self.uplink.divide();
                }
                let leaves = self.uplink.ceiling(bundle).rate.bytes_in(MS).min(load.backlog);
                load.sent += leaves;
                load.backlog -= leaves;
            }
            if self.uplink.next_timer() <= self.now {
                self.uplink.on_tick(self.now, self.loads.iter().copied());
            }
        }
    }

    /// Rate of each bundle (Mbit/s) over the next `ms` milliseconds.
    fn rates(&mut self, ms: u32, arriving: &[Rate]) -> Vec<f64> {
        let before = self.loads.clone();
        self.run(ms, arriving);
        let sent = self.loads.iter().zip(&before).map(|(now, before)| now.sent - before.sent);
        sent.map(|sent| sent.as_f64() * 8e-3 / f64::from(ms)).collect()
    }
}

#[test]
fn unused_share_goes_to_other_bundles() {
    let mut bench = Bench::new(&flat(mbit(96), &[share(3), share(1)]));
    bench.run(200, &[mbit(200), mbit(200)]);
    let both = bench.rates(1000, &[mbit(200), mbit(200)]);
    assert!((both[0] - 72.0).abs() < 0.1 && (both[1] - 24.0).abs() < 0.1, "{both:?}");
    bench.loads[1].backlog = ByteCount::ZERO;
    bench.run(200, &[mbit(200), Rate::ZERO]);
    let one = bench.rates(1000, &[mbit(200), Rate::ZERO]);
    assert!(one[0] > 0.98 * 96.0, "{one:?}");
    // A steady stream below its share leaves the rest to the other bundle and is not delayed.
    let stream = bench.rates(1000, &[mbit(200), mbit(12)]);
    assert!(stream[1] > 11.9 && stream[0] + stream[1] > 0.96 * 96.0, "{stream:?}");
}

/// 1,000 bundles on 500 Mbit/s, in two regions of two departments each. 50 bundles have more to send than the
/// line carries. Every seventh of these has a guarantee, and every eleventh is limited below its share.
#[test]
fn thousand_bundles_get_active_shares_within_two_percent() {
    let groups = [(None, 3), (None, 1), (Some(0), 2), (Some(0), 1), (Some(1), 1), (Some(1), 1)];
    let groups: Vec<Member> = groups.map(|(group, weight)| member(group, weight)).to_vec();
    let bundle = |place: usize| {
        let mut member = member(Some(2 + place % 4), 1 + place as u32 % 5);
        if place.is_multiple_of(7) {
            member.share.guarantee = Some(Rate::from_bits_per_sec(500_000));
        }
        if place.is_multiple_of(11) {
            member.share.max_rate = Some(mbit(2));
        }
        member
    };
    let bundles = (0..1000).map(bundle).collect();
    let config = UplinkConfig { rate: mbit(500), groups, bundles };
    let is_busy = |place: usize| place % 20 == place / 20 % 20;
    let arriving: Vec<Rate> =
        (0..1000).map(|place| if is_busy(place) { mbit(600) } else { Rate::ZERO }).collect();
    let mut bench = Bench::new(&config);
    bench.run(100, &arriving);
    let rates = bench.rates(500, &arriving);

    // Expected: the division by the arriving rates.
    let expected = Tree::new(&config).unwrap().divide(&arriving);
    assert!(rates.iter().sum::<f64>() > 0.99 * 500.0);
    for (place, (rate, expected)) in rates.iter().zip(&expected).enumerate() {
        let expected = if is_busy(place) { expected.as_mbit_per_sec_f64() } else { 0.0 };
        assert!((rate - expected).abs() <= 0.02 * expected, "{place}: {rate} of {expected} Mbit/s");
    }
    // A bundle that begins gets its share at once.
    let first = BundleLoad { backlog: ByteCount::new(30_000), ..bench.loads[501] };
    assert!(bench.uplink.on_queue(501, &first));
    bench.uplink.divide();
    assert!(bench.uplink.ceiling(501).rate > mbit(1), "{}", bench.uplink.ceiling(501).rate);
}

#[test]
fn starting_bundle_does_not_wait_for_the_tick() {
    let mut bench = Bench::new(&flat(mbit(96), &[share(1), share(1)]));
    bench.run(300, &[mbit(200), Rate::ZERO]);
    let before = bench.uplink.ceiling(1).rate;
    assert!(before < mbit(1), "{before}");
    let first = BundleLoad { backlog: ByteCount::new(30_000), ..bench.loads[1] };
    assert!(bench.uplink.on_queue(1, &first));
    bench.uplink.divide();
    assert_eq!(divided_of(&bench.uplink), [48, 48]);
    // The bundle already gets less than its demand.
    let more = BundleLoad { backlog: ByteCount::new(300_000), ..first };
    assert!(!bench.uplink.on_queue(1, &more));
}

fn divided_of(uplink: &Uplink) -> Vec<u64> {
    let bits = (0..uplink.bundles.len()).map(|it| uplink.ceiling(it).rate.as_bits_per_sec());
    bits.map(|bits| (bits + 500_000) / 1_000_000).collect()
}

#[test]
fn a_law_that_wants_less_leaves_the_rest() {
    let mut bench = Bench::new(&flat(mbit(96), &[share(1), share(1)]));
    bench.loads[0].wanted = Some(mbit(20));
    bench.run(200, &[mbit(200), mbit(200)]);
    assert_eq!(divided_of(&bench.uplink), [20, 76]);
    // The first bundle gets its full demand.
    assert_eq!([0, 1].map(|bundle| bench.uplink.ceiling(bundle).is_short), [false, true]);
}

/// Up to three groups, nested or not, and up to eight bundles with guarantees that fit.
fn config() -> impl Strategy<Value = UplinkConfig> {
    let share = (1..=1000_u32, prop::option::of(1..100_u64), prop::option::of(100..1000_u64));
    let share = share.prop_map(|(weight, guarantee, most)| Share {
        weight,
        guarantee: guarantee.map(|percent| Rate::from_bits_per_sec(percent * 100_000)),
        max_rate: most.map(|tenths| Rate::from_bits_per_sec(tenths * 100_000)),
    });
    let groups = prop::collection::vec((0..4_usize, 1..=1000_u32), 0..4);
    let bundles = prop::collection::vec((0..4_usize, share), 1..9);
    (100..1000_u64, groups, bundles).prop_map(|(rate, groups, bundles)| {
        let count = groups.len();
        let groups = groups.into_iter().enumerate();
        let groups = groups
            .map(|(place, (parent, weight))| member((parent < place).then_some(parent), weight));
        let bundles = bundles.into_iter();
        let bundles =
            bundles.map(|(group, share)| Member { group: (group < count).then_some(group), share });
        UplinkConfig {
            rate: Rate::from_bits_per_sec(rate * 1_000_000),
            groups: groups.collect(),
            bundles: bundles.collect(),
        }
    })
}

/// A configuration and the demands of its bundles.
fn asked() -> impl Strategy<Value = (UplinkConfig, Vec<Rate>)> {
    config().prop_flat_map(|config| {
        let demand = prop_oneof![
            1 => Just(*RATES.end()),
            1 => Just(Rate::ZERO),
            3 => (0..200_000_000_u64).prop_map(Rate::from_bits_per_sec),
        ];
        let demands = prop::collection::vec(demand, config.bundles.len());
        (Just(config), demands)
    })
}

/// Rate (bit/s) of the bundles below node `node` of the tree. Node 0 is the uplink.
fn below(config: &UplinkConfig, given: &[Rate], node: usize) -> u64 {
    let is_below = |mut group: Option<usize>| loop {
        match group {
            _ if node == 0 => break true,
            Some(place) if place + 1 == node => break true,
            Some(place) => group = config.groups[place].group,
            None => break false,
        }
    };
    let bundles = config.bundles.iter().zip(given);
    bundles.filter(|(it, _)| is_below(it.group)).map(|(_, rate)| rate.as_bits_per_sec()).sum()
}

proptest! {
    #[test]
    fn bounds_hold_and_demanded_rate_is_fully_given((config, demands) in asked()) {
        let given = Tree::new(&config).unwrap().divide(&demands);
        let total = below(&config, &given, 0);
        prop_assert!(total <= config.rate.as_bits_per_sec());
        for ((bundle, demand), rate) in config.bundles.iter().zip(&demands).zip(&given) {
            let most = bundle.share.max_rate.unwrap_or(config.rate);
            let guarantee = bundle.share.guarantee.unwrap_or(Rate::ZERO);
            prop_assert!(*rate <= most);
            prop_assert!(*rate >= guarantee.min(*demand).min(most));
            let is_full = total + ROUNDING >= config.rate.as_bits_per_sec();
            prop_assert!(is_full || rate.as_bits_per_sec() + ROUNDING >= most.as_bits_per_sec());
        }
    }

    #[test]
    fn unsatisfied_member_has_the_largest_share_by_weight((config, demands) in asked()) {
        let tree = Tree::new(&config).unwrap();
        let given = tree.divide(&demands);
        let of = |node: usize| match node.checked_sub(1 + config.groups.len()) {
            Some(bundle) => given[bundle].as_bits_per_sec(),
            None => below(&config, &given, node),
        };
        // A group demands the sum of the demands of its bundles.
        let asks = |node: usize| match node.checked_sub(1 + config.groups.len()) {
            Some(bundle) => {
                let most = config.bundles[bundle].share.max_rate.unwrap_or(config.rate);
                demands[bundle].min(most).as_bits_per_sec()
            }
            None => below(&config, &demands_within(&config, &demands), node),
        };
        let members: Vec<&Member> = config.groups.iter().chain(&config.bundles).collect();
        for (one, member) in members.iter().enumerate() {
            for (other, sibling) in members.iter().enumerate() {
                let is_unserved = of(one + 1) + ROUNDING < asks(one + 1);
                if member.group != sibling.group || !is_unserved {
                    continue;
                }
                let guaranteed = guaranteed(&config, other + 1, &demands);
                let fair = of(one + 1) / u64::from(member.share.weight) + 1;
                let most = (fair * u64::from(sibling.share.weight)).max(guaranteed);
                prop_assert!(of(other + 1) <= most + ROUNDING, "{one} and {other}: {given:?}");
            }
        }
    }

    #[test]
    fn the_order_of_the_bundles_does_not_matter((config, demands) in asked()) {
        let given = Tree::new(&config).unwrap().divide(&demands);
        let turned = UplinkConfig {
            bundles: config.bundles.iter().rev().copied().collect(),
            ..config.clone()
        };
        let demands: Vec<Rate> = demands.into_iter().rev().collect();
        let again = Tree::new(&turned).unwrap().divide(&demands);
        prop_assert!(again.into_iter().rev().eq(given));
    }

    #[test]
    fn whoever_asks_for_more_has_no_less(
        (config, mut demands) in asked(),
        place in 0..8_usize,
        more in 0..100_000_000_u64,
    ) {
        let place = place % demands.len();
        let tree = Tree::new(&config).unwrap();
        let before = tree.divide(&demands)[place].as_bits_per_sec();
        demands[place] = Rate::from_bits_per_sec(demands[place].as_bits_per_sec() + more);
        let after = tree.divide(&demands)[place].as_bits_per_sec();
        prop_assert!(after + ROUNDING >= before, "{before} became {after}");
    }
}

/// The demands, each within its bundle's `max_rate`.
fn demands_within(config: &UplinkConfig, demands: &[Rate]) -> Vec<Rate> {
    let most = config.bundles.iter().map(|it| it.share.max_rate.unwrap_or(config.rate));
    demands.iter().zip(most).map(|(demand, most)| (*demand).min(most)).collect()
}

/// Guaranteed and demanded rate of the bundles of a node (bit/s).
fn guaranteed(config: &UplinkConfig, node: usize, demands: &[Rate]) -> u64 {
    let of = |(it, demand): (&Member, &Rate)| it.share.guarantee.unwrap_or_default().min(*demand);
    let all: Vec<Rate> = config.bundles.iter().zip(demands).map(of).collect();
    match node.checked_sub(1 + config.groups.len()) {
        Some(bundle) => all[bundle].as_bits_per_sec(),
        None => below(config, &all, node),
    }
}
