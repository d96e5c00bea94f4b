//! How the requests of many sites fared, each site by itself: a mean over requests hides sites that lose.

use std::collections::BTreeMap;

use super::entry::Pooling::Mean;
use super::entry::{Entry, OWN, entry};
use super::statistics::Sorted;
use super::{JudgedRequest, Metrics};
use crate::experiment::Experiment;

/// What is known of the sites that send a flow.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("site_slowdown_{q}", "flow", "", Mean,
        "percentile over the sites that send the flow of the geometric mean of the slowdowns of each site's requests; \
         with [topology]",
        "Qq over sites of exp(mean(ln slowdown))", OWN),
];

/// Of the flow at place `flow`; nothing where there is one pair of sites.
pub fn metrics(experiment: &Experiment, requests: &[JudgedRequest], flow: usize) -> Metrics {
    let mut sites: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for request in requests.iter().filter(|it| it.counted && it.row.flow == flow) {
        let pair = experiment.site_pair(flow, request.row.connection);
        if let Some((pair, slowdown)) = pair.zip(request.outcome.slowdown) {
            sites.entry(pair.from).or_default().push(slowdown);
        }
    }
    let means = sites.into_values().filter_map(|all| Sorted::new(all).geometric_mean());
    let means = Sorted::new(means);
    let mut metrics = Metrics::default();
    metrics.put_quantiles("site_slowdown_{q}", |share| means.quantile(share));
    metrics
}
