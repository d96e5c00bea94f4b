//! How evenly greedy connections share what they have together, and how soon after one has come or gone.

use std::time::Duration;

use forebay_core::record::{FlowRecord, RunRecord};

use super::Metrics;
use super::entry::Pooling::Max;
use super::entry::{Entry, entry};
use crate::experiment::{Experiment, Traffic};

/// Length of the bins in [`FlowRecord::bytes_per_100ms`].
const BIN_NS: u64 = 100_000_000;
/// Bins over which shares are taken: 1 s.
const WINDOW: usize = 10;
/// Bins after a start or an end that are left to find new shares: 2 s, as the evaluation allows.
const SETTLING: usize = 20;
/// A connection that is so near to its share has it.
const NEAR: f64 = 0.05;

/// What is known of all greedy connections together.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("unfairness_max", "run arm", "", Max,
        "farthest that a greedy connection was from the mean of all that ran, over that mean, in any second \
         from 2 s after each start or end on"),
    entry("fair_after_s", "run arm", "s", Max,
        "longest time from a start or an end until each greedy connection first was within 5 % of its share \
         for a second, at most to the next start or end"),
];

/// Of the connections of all greedy flows; nothing where never two of them ran together.
pub fn metrics(experiment: &Experiment, rows: &RunRecord) -> Metrics {
    let connections: Vec<Connection<'_>> =
        rows.flows.iter().filter_map(|row| Connection::of(experiment, row)).collect();
    let mut changes: Vec<usize> = connections.iter().flat_map(|it| [it.first, it.end]).collect();
    changes.sort_unstable();
    changes.dedup();
    let (mut farthest, mut longest) = (None::<f64>, None::<f64>);
    for between in changes.windows(2) {
        let (first, end) = (between[0], between[1]);
        let running: Vec<&Connection<'_>> =
            connections.iter().filter(|it| it.first <= first && it.end >= end).collect();
        if running.len() < 2 || end < first + WINDOW {
            continue;
        }
        let starts = first..=end - WINDOW;
        let distances: Vec<f64> = starts.map(|bin| distance(&running, bin)).collect();
        let settled = distances.iter().skip(SETTLING).step_by(WINDOW).copied();
        farthest = farthest.into_iter().chain(settled).reduce(f64::max);
        let fair = distances.iter().position(|distance| *distance <= NEAR);
        let after = fair.map_or(end - first, |bin| bin + WINDOW) as f64 * BIN_NS as f64 / 1e9;
        longest = longest.into_iter().chain([after]).reduce(f64::max);
    }
    let mut metrics = Metrics::default();
    metrics.put("unfairness_max", farthest);
    metrics.put("fair_after_s", longest);
    metrics
}

/// A greedy connection, and the bins in which it runs from beginning to end.
struct Connection<'a> {
    bytes: &'a [u64],
    first: usize,
    end: usize,
}

impl<'a> Connection<'a> {
    fn of(experiment: &Experiment, row: &'a FlowRecord) -> Option<Self> {
        let flow = &experiment.flows[row.flow];
        let bin = |at: Duration| at.as_nanos() as u64 / BIN_NS;
        let first = flow.start_of(row.index).as_nanos().div_ceil(BIN_NS.into()) as usize;
        let end = bin(flow.stop) as usize;
        let is_greedy = matches!(flow.traffic, Traffic::Greedy { .. });
        is_greedy.then_some(Self { bytes: &row.bytes_per_100ms, first, end })
    }

    /// Bytes read in the [`WINDOW`] that begins with `bin`; in a bin beyond the record nothing was.
    fn bytes(&self, bin: usize) -> f64 {
        let bins = self.bytes.iter().skip(bin).take(WINDOW);
        bins.map(|bytes| *bytes as f64).sum()
    }
}

/// How far the farthest connection is from the mean of all, over that mean; where nothing was read, as far as can be.
fn distance(running: &[&Connection<'_>], bin: usize) -> f64 {
    let bytes: Vec<f64> = running.iter().map(|it| it.bytes(bin)).collect();
    let mean = bytes.iter().sum::<f64>() / bytes.len() as f64;
    if mean == 0.0 {
        return 1.0;
    }
    bytes.iter().map(|bytes| (bytes / mean - 1.0).abs()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::testing::experiment;

    /// Two connections; the second starts at 2 s and reads these bytes in each 100 ms, the first the rest of 100.
    fn found(second: &[u64]) -> Metrics {
        let mut experiment = experiment();
        experiment.stop = Duration::from_secs(9);
        let flow = &mut experiment.flows[0];
        flow.traffic = Traffic::Greedy { flows: 2 };
        (flow.start, flow.stop) = (Duration::ZERO, experiment.stop);
        flow.other_starts = vec![Duration::from_secs(2)];
        let second = [&[0; 20], second].concat();
        let first = second.iter().map(|bytes| 100 - bytes).collect();
        let row =
            |index, bytes_per_100ms| FlowRecord { index, bytes_per_100ms, ..FlowRecord::default() };
        let rows = RunRecord { flows: vec![row(0, first), row(1, second)], ..RunRecord::default() };
        metrics(&experiment, &rows)
    }

    #[test]
    fn shares_are_judged_from_two_seconds_after_a_start() {
        // A quarter for 1.5 s, then half, but 45 % in the last second.
        let second = [&[25; 15][..], &[50; 45], &[45; 10]].concat();
        let metrics = found(&second);
        assert!((metrics.get("unfairness_max").unwrap() - 0.1).abs() < 1e-9);
        // Each bin with a quarter is 5 % off the share of a second, so there must be none.
        assert!((metrics.get("fair_after_s").unwrap() - 2.5).abs() < 1e-9);
    }

    #[test]
    fn a_connection_that_never_has_its_share_is_unfair_to_the_end() {
        let metrics = found(&[10; 70]);
        assert!((metrics.get("unfairness_max").unwrap() - 0.8).abs() < 1e-9);
        assert!((metrics.get("fair_after_s").unwrap() - 7.0).abs() < 1e-9);
    }

    #[test]
    fn one_connection_alone_shares_with_nobody() {
        let rows = RunRecord { flows: vec![FlowRecord::default()], ..RunRecord::default() };
        assert_eq!(metrics(&experiment(), &rows).0.len(), 0);
    }
}
