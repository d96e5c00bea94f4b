//! Networks of many sites: the routes of their packets, and the bundles of sites with boxes.

use forebay_scenario::{Bundle, Flow, Scenario, SitePair, Topology};

use super::OTHERS;
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

/// The transit links between two sites in a direction, and the access of both.
fn over_links(pair: &SitePair, reversed: bool) -> Vec<Hop> {
    let links = if reversed { &pair.back } else { &pair.there };
    let links = links.iter().map(|link| Hop::Link(OTHERS + link));
    links.chain([Hop::Delay(pair.access)]).collect()
}
