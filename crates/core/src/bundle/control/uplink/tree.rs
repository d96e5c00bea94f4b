//! A tree of shares, and how it divides its rate among its leaves.
//!
//! ```text
//! among siblings:   a_i = clamp(w_i x level, least_i, most_i),   the largest level whose sum fits the rate
//! first    least: min(guarantee, demand)            most: demand
//! then     least: result of the first step          most: `max_rate`
//! ```
//! The demand of a group is the sum of the demands within it, up to its `max_rate`. Water-filling by a level
//! gives the only division that is weighted max-min fair under the bounds (Bertsekas, Gallager: Data Networks,
//! section 6.5.2). The order of the siblings does not change the result.

use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::{Share, UplinkConfig, UplinkError, UplinkPart, WEIGHTS};
use crate::bundle::control::RATES;
use crate::spec::SpecError;
use crate::units::Rate;

/// Levels count in this fraction of a bit per second. A step of one level is a bit per second for the heaviest
/// sibling, so rounding costs the siblings only a few bits per second.
const SCALE: u64 = *WEIGHTS.end() as u64;

/// The tree: node 0 is the uplink, then come the groups and then the bundles.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// The nodes, parents before children.
    order: Vec<usize>,
    first_bundle: usize,
}

#[derive(Clone, Debug)]
struct Node {
    weight: u64,
    /// Bits per second.
    guarantee: u64,
    /// Bits per second; at most the uplink's rate.
    ceiling: u64,
    /// The lowest ceiling among the node's ancestors.
    above: u64,
    children: Vec<usize>,
}

/// Lower and upper bound of a node, in bits per second.
type Bounds = [u64; 2];

impl Tree {
    /// The tree of a configuration; fails as [`super::Uplink::new`].
    pub fn new(config: &UplinkConfig) -> Result<Self, UplinkError> {
        let Shape { order, children } = Shape::of(config)?;
        let shares = shares(config);
        if !RATES.contains(&config.rate) {
            let allowed = alloc::format!("a rate from {} to {}", RATES.start(), RATES.end());
            return Err(refused(UplinkPart::Uplink, "rate", config.rate, &allowed));
        }
        let mut guaranteed = alloc::vec![Rate::ZERO; shares.len()];
        for &node in order.iter().rev() {
            let within = children[node].iter().map(|child| guaranteed[*child].as_bits_per_sec());
            let within = Rate::from_bits_per_sec(within.fold(0, u64::saturating_add));
            guaranteed[node] = check(place(config, node), &shares[node], within)?;
        }
        let node = |(share, children): (&Share, Vec<usize>)| {
            let ceiling = share.max_rate.unwrap_or(config.rate).min(config.rate);
            Node {
                weight: share.weight.into(),
                guarantee: share.guarantee.unwrap_or(Rate::ZERO).as_bits_per_sec(),
                ceiling: ceiling.as_bits_per_sec(),
                above: config.rate.as_bits_per_sec(),
                children,
            }
        };
        let mut nodes: Vec<Node> = shares.iter().zip(children).map(node).collect();
        for &outer in &order {
            let lowest = nodes[outer].above.min(nodes[outer].ceiling);
            for place in 0..nodes[outer].children.len() {
                let inner = nodes[outer].children[place];
                nodes[inner].above = lowest;
            }
        }
        Ok(Self { nodes, order, first_bundle: 1 + config.groups.len() })
    }

    /// Weight of a bundle, and its guarantee.
    pub fn share(&self, bundle: usize) -> (u32, Option<Rate>) {
        let Node { weight, guarantee, .. } = self.nodes[self.first_bundle + bundle];
        (weight as u32, (guarantee > 0).then(|| Rate::from_bits_per_sec(guarantee)))
    }

    /// The lowest ceiling among the ancestors of a bundle, and its own.
    pub fn ceilings(&self, bundle: usize) -> [Rate; 2] {
        let Node { above, ceiling, .. } = self.nodes[self.first_bundle + bundle];
        [above, ceiling].map(Rate::from_bits_per_sec)
    }

    /// Rate of each bundle for the given `demands`, one for each bundle.
    pub fn divide(&self, demands: &[Rate]) -> Vec<Rate> {
        let served = self.fill(|node| {
            let Node { guarantee, ceiling, .. } = self.nodes[node];
            let asked = node.checked_sub(self.first_bundle).map(|bundle| demands[bundle]);
            [guarantee, asked.map_or(ceiling, |rate| rate.as_bits_per_sec().min(ceiling))]
        });
        let all = self.fill(|node| [served[node], self.nodes[node].ceiling]);
        all[self.first_bundle..].iter().map(|bits| Rate::from_bits_per_sec(*bits)).collect()
    }

    /// Rate of each node within these bounds. The sum of a node's children keeps to the node's bounds as well.
    fn fill(&self, bounds: impl Fn(usize) -> Bounds) -> Vec<u64> {
        let mut bounds: Vec<Bounds> = (0..self.nodes.len()).map(bounds).collect();
        for &node in self.order.iter().rev() {
            let [mut least, mut most] = bounds[node];
            if node < self.first_bundle {
                let children = &self.nodes[node].children;
                let sum = |bound: usize| children.iter().map(|it| bounds[*it][bound]).sum::<u64>();
                (least, most) = (least.max(sum(0)), most.min(sum(1)));
            }
            bounds[node] = [least.min(most), most];
        }
        let mut given = alloc::vec![0; self.nodes.len()];
        given[0] = bounds[0][1];
        for &node in &self.order {
            let children = &self.nodes[node].children;
            let level = self.level(given[node], children, &bounds);
            children.iter().for_each(|it| given[*it] = self.at(level, *it, bounds[*it]));
        }
        given
    }

    /// The largest level at which the sum over the siblings is at most `rate`. `rate` covers the sum of their
    /// lower bounds.
    fn level(&self, rate: u64, siblings: &[usize], bounds: &[Bounds]) -> u64 {
        let fits = |level| {
            let sum: u64 = siblings.iter().map(|it| self.at(level, *it, bounds[*it])).sum();
            sum <= rate
        };
        let highest = siblings.iter().map(|it| bounds[*it][1]).max().unwrap_or(0);
        let (mut low, mut high) = (0, highest * SCALE);
        // Most of the time a line is not full.
        if fits(high) {
            return high;
        }
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(middle) { low = middle } else { high = middle - 1 }
        }
        low
    }

    fn at(&self, level: u64, node: usize, [least, most]: Bounds) -> u64 {
        (self.nodes[node].weight * level / SCALE).clamp(least, most)
    }
}

/// Parents and children of all nodes.
struct Shape {
    order: Vec<usize>,
    children: Vec<Vec<usize>>,
}

impl Shape {
    fn of(config: &UplinkConfig) -> Result<Self, UplinkError> {
        let groups = config.groups.len();
        let members = config.groups.iter().chain(&config.bundles);
        let mut children = alloc::vec![Vec::new(); 1 + groups + config.bundles.len()];
        for (index, member) in members.enumerate() {
            let parent = member.group.map_or(0, |group| group + 1);
            if parent > groups {
                let key = if index < groups { "parent" } else { "group" };
                let allowed = alloc::format!("one of the {groups} groups");
                return Err(refused(place(config, index + 1), key, parent - 1, &allowed));
            }
            children[parent].push(index + 1);
        }
        let mut order = alloc::vec![0];
        let mut seen = 0;
        while seen < order.len() {
            order.extend(&children[order[seen]]);
            seen += 1;
        }
        // Groups within each other are not below the uplink.
        let below: BTreeSet<usize> = order.iter().copied().collect();
        match (1..=groups).find(|group| !below.contains(group)) {
            None => Ok(Self { order, children }),
            Some(group) => {
                let parent = config.groups[group - 1].group.unwrap_or_default();
                let allowed = "a group that is not within this one";
                Err(refused(UplinkPart::Group(group - 1), "parent", parent, allowed))
            }
        }
    }
}

/// Share of each node.
fn shares(config: &UplinkConfig) -> Vec<Share> {
    let uplink = Share { max_rate: Some(config.rate), ..Share::default() };
    let members = config.groups.iter().chain(&config.bundles);
    core::iter::once(uplink).chain(members.map(|member| member.share)).collect()
}

fn place(config: &UplinkConfig, node: usize) -> UplinkPart {
    match node.checked_sub(1) {
        None => UplinkPart::Uplink,
        Some(group) if group < config.groups.len() => UplinkPart::Group(group),
        Some(member) => UplinkPart::Bundle(member - config.groups.len()),
    }
}

/// Guarantee of a node: its own, or `within`, the sum of the guarantees of its children.
fn check(place: UplinkPart, share: &Share, within: Rate) -> Result<Rate, UplinkError> {
    if !WEIGHTS.contains(&share.weight) {
        let allowed =
            alloc::format!("a whole number from {} to {}", WEIGHTS.start(), WEIGHTS.end());
        return Err(refused(place, "weight", share.weight, &allowed));
    }
    let least = alloc::format!("a rate of at least {within}, which is guaranteed to those within");
    if let Some(guarantee) = share.guarantee.filter(|guarantee| *guarantee < within) {
        return Err(refused(place, "guarantee", guarantee, &least));
    }
    let guaranteed = share.guarantee.unwrap_or(within);
    match share.max_rate.filter(|most| *most < guaranteed) {
        None => Ok(guaranteed),
        Some(most) if share.guarantee.is_some() => {
            let allowed = alloc::format!("a rate of at most max_rate, {most}");
            Err(refused(place, "guarantee", guaranteed, &allowed))
        }
        Some(most) => {
            let key = if place == UplinkPart::Uplink { "rate" } else { "max_rate" };
            Err(refused(place, key, most, &least))
        }
    }
}

fn refused(place: UplinkPart, key: &str, value: impl ToString, allowed: &str) -> UplinkError {
    UplinkError { place, error: SpecError::new(key, &value.to_string(), allowed) }
}
