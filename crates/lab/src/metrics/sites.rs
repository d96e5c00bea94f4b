//! Slowdowns of many sites, each site by itself: a mean over all requests hides sites that lose.

use std::collections::BTreeMap;

use forebay_core::record::RunRecord;

use super::bundles::passing_share;
use super::entry::Pooling::Mean;
use super::entry::{Entry, OWN, entry};
use super::statistics::{Sorted, mean};
use super::{JudgedRequest, Metrics, bounds_ns};
use crate::experiment::Experiment;

/// Prefix of the metric of a single site. The seed and the number of the site follow, because each seed has
/// other sites.
pub const OF_A_SITE: &str = "site_slowdown[";

/// Metrics of the sites that send a flow.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("site_slowdown_{q}", "flow", "", Mean,
        "percentile over the sending sites of each site's geometric mean of slowdowns; with \
         [topology]",
        "Qq over sites of exp(mean(ln slowdown))", OWN),
    entry("site_slowdown", "flow", "", Mean,
        "geometric mean of the slowdowns of one site's requests, by seed and site number; with \
         [topology]",
        "exp(mean(ln slowdown))", OWN),
    entry("bundles_passing_share", "run arm", "", Mean,
        "share of the time in which the sendbox does not limit a bundle's rate, mean over the \
         bundles of all sites; with [topology]",
        "mean over bundles of passing_share", OWN),
];

/// Metrics of the bundles of all sites together, which have no rows of their own. Empty with a single pair of
/// sites.
pub fn of_bundles(experiment: &Experiment, rows: &RunRecord) -> Metrics {
    let mut metrics = Metrics::default();
    if experiment.topology.is_some() {
        let (from, to) = bounds_ns(&experiment.counted());
        let shares = rows.bundles.iter().filter_map(|row| passing_share(row, from, to));
        metrics.put("bundles_passing_share", mean(shares));
    }
    metrics
}

/// Metrics of the flow at place `flow`; empty with a single pair of sites.
pub fn metrics(experiment: &Experiment, requests: &[JudgedRequest], flow: usize) -> Metrics {
    let mut sites: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for request in requests.iter().filter(|it| it.counted && it.row.flow == flow) {
        let pair = experiment.site_pair(flow, request.row.connection);
        if let Some((pair, slowdown)) = pair.zip(request.outcome.slowdown) {
            sites.entry(pair.from).or_default().push(slowdown);
        }
    }
    let mut metrics = Metrics::default();
    let mut means = Vec::new();
    for (site, slowdowns) in sites {
        let of_site = Sorted::new(slowdowns).geometric_mean();
        metrics.put(&format!("{OF_A_SITE}{}-{site}]", experiment.seed), of_site);
        means.extend(of_site);
    }
    let means = Sorted::new(means);
    metrics.put_quantiles("site_slowdown_{q}", |share| means.quantile(share));
    metrics
}
