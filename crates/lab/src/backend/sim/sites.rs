//! Many sites as a network: what their packets take, and the bundles of those that have boxes.

use forebay_sim::network::{Bundle, Hop};

use super::setup::{OTHERS, bundle};
use crate::plan::Experiment;
use crate::plan::experiment as plan;
use crate::plan::experiment::topology::{SitePair, Topology};

/// What the data of a connection of `flow` between the sites of `pair` take, and what comes back.
pub(super) fn ways(
    experiment: &Experiment,
    flow: &plan::Flow,
    pair: &SitePair,
    reversed: bool,
) -> [Vec<Hop>; 2] {
    let is_bundled = experiment.topology.as_ref().is_some_and(|it| it.is_bundled(flow));
    let way = |reversed: bool| match pair.bundle.filter(|_| is_bundled && !reversed) {
        Some(bundle) => vec![Hop::Bundle(bundle)],
        None => over_links(pair, reversed),
    };
    [way(reversed), way(!reversed)]
}

/// The bundles, in the order of their numbers.
pub(super) fn bundles(topology: &Topology) -> Vec<Bundle> {
    let of_pair = |pair: &SitePair| {
        let like = plan::Bundle { name: topology.bundle_name(pair)?, ..topology.bundle.clone()? };
        let mut built = bundle(&like, [false, true].map(|reversed| over_links(pair, reversed)));
        built.log = true;
        Some(built)
    };
    topology.pairs.iter().filter_map(of_pair).collect()
}

/// The transit links between two sites in a direction, and the access of both.
fn over_links(pair: &SitePair, reversed: bool) -> Vec<Hop> {
    let links = if reversed { &pair.back } else { &pair.there };
    let links = links.iter().map(|link| Hop::Link(OTHERS + link));
    links.chain([Hop::Delay(pair.access)]).collect()
}
