//! Networks of many sites: the routes of their packets, and the bundles of sites with boxes.

use forebay_scenario::{Bundle, Flow, Scenario, SitePair, Topology};

use super::{OTHERS, Setup};
use crate::Parts;
use crate::network::{Hop, RoutedBundle};

/// The routes of a connection of `flow` between the sites of `pair`: for its data, and for the packets back.
pub(super) fn ways(
    scenario: &Scenario,
    flow: &Flow,
    pair: &SitePair,
    reversed: bool,
) -> [Vec<Hop>; 2] {
    let is_bundled = scenario.topology.as_ref().is_some_and(|it| it.is_bundled(flow));
    let way = |reversed: bool| match pair.bundle.filter(|_| is_bundled && !reversed) {
        Some(bundle) => vec![Hop::Bundle(bundle)],
        None => over_links(pair, reversed),
    };
    [way(reversed), way(!reversed)]
}

/// The bundles, in the order of their numbers.
pub(super) fn bundles(topology: &Topology) -> Vec<RoutedBundle> {
    let of_pair = |pair: &SitePair| {
        let of = Bundle { name: topology.bundle_name(pair)?, ..topology.bundle.clone()? };
        let [path, back] = [false, true].map(|reversed| over_links(pair, reversed));
        Some(RoutedBundle { log: true, ..RoutedBundle::new(of, path, back) })
    };
    topology.pairs.iter().filter_map(of_pair).collect()
}

/// The parts of the network of a topology; `None`: it is not cut.
pub(super) fn parts(scenario: &Scenario, made: &Setup) -> Option<Parts> {
    let topology = scenario.topology.as_ref()?;
    let (part_of, delay) = topology.parts(&scenario.flows)?;
    let between = |from: usize, to: usize| [part_of[from], part_of[to]];
    let transit = topology.links.iter().map(|it| between(it.from, it.to));
    let ends = |pair: &SitePair| {
        let [first, last] = [pair.there.first()?, pair.there.last()?];
        Some(between(topology.links[*first].from, topology.links[*last].to))
    };
    let of_flow = |(place, reversed): (&super::Place, &bool)| {
        let mut ends = ends(scenario.site_pair(place.flow, place.index)?)?;
        ends.rotate_left(usize::from(*reversed));
        Some(ends)
    };
    let bundled = topology.pairs.iter().filter(|pair| topology.bundle_name(pair).is_some());
    Some(Parts {
        count: part_of.iter().max()? + 1,
        delay,
        // No packet takes the two links of a single bottleneck.
        links: std::iter::repeat_n([0; 2], OTHERS).chain(transit).collect(),
        flows: made.places.iter().zip(&made.reversed).map(of_flow).collect::<Option<_>>()?,
        bundles: bundled.map(ends).collect::<Option<_>>()?,
    })
}

/// The transit links between two sites in a direction, and the access of both.
fn over_links(pair: &SitePair, reversed: bool) -> Vec<Hop> {
    let links = if reversed { &pair.back } else { &pair.there };
    let links = links.iter().map(|link| Hop::Link(OTHERS + link));
    links.chain([Hop::Delay(pair.access)]).collect()
}
