//! How evenly greedy connections share their total rate, and how soon after one starts or ends.

use std::ops::Range;
use std::time::Duration;

use forebay_core::record::{FlowRecord, RunRecord};

use super::entry::Pooling::{Max, Mean, Min};
use super::entry::{Entry, JAIN, OWN, entry};
use super::flows::{BIN_NS, is_greedy};
use super::statistics::{jain, mean};
use super::{Metrics, Series};
use crate::experiment::Experiment;

/// Bins over which shares are taken: 1 s.
pub const WINDOW: usize = 10;
/// Bins after a start or an end in which connections may still converge: 2 s, as in the evaluation.
const SETTLING: usize = 20;
/// A connection within this relative distance of its share counts as having it.
const NEAR: f64 = 0.05;
/// A connection with less than this part of its share is starved.
const STARVED: f64 = 0.1;

/// Metrics of all greedy connections together.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("unfairness_max", "run arm", "", Max,
        "largest relative deviation of a greedy connection from the mean of all running ones in \
         any second, not counting 2 s after each start or end",
        "max(abs(x_i / mean(x) - 1)), x bytes in 1 s", OWN),
    entry("fair_after_s", "run arm", "s", Max,
        "longest time from a start or an end until all greedy connections are within 5 % of their \
         fair share for one second; counted to the next start or end at most",
        "max over changes of min{t: abs(x_i / mean(x) - 1) <= 0.05 for all i} - change", "RFC 5166 section 2.3"),
    entry("jain_mean", "run arm", "", Mean,
        "Jain's fairness index of the greedy connections' bytes per second, mean over the seconds \
         in which at least two ran",
        "mean(sum(x)^2 / (n sum(x^2))), x bytes in 1 s", JAIN),
    entry("jain_min", "run arm", "", Min,
        "lowest Jain's fairness index of the greedy connections' bytes in one second, not counting \
         2 s after each start or end",
        "min(sum(x)^2 / (n sum(x^2))), x bytes in 1 s", JAIN),
    entry("starved_s", "run flow arm", "s", Max,
        "seconds in which a greedy connection got less than a tenth of the mean of all running \
         ones, not counting 2 s after each start or end; the worst connection counts",
        "max over i of #{seconds: x_i < 0.1 mean(x)}", "starvation as a ratio of throughputs: Arun et al., SIGCOMM 2022"),
];

/// A greedy connection, and the bins in which it runs from beginning to end.
pub struct Connection<'a> {
    /// Place of its flow in the experiment.
    pub flow: usize,
    bytes: &'a [u64],
    run: Range<usize>,
}

impl<'a> Connection<'a> {
    /// All greedy connections of a run.
    pub fn all(experiment: &Experiment, rows: &'a RunRecord) -> Vec<Self> {
        rows.flows.iter().filter_map(|row| Self::of(experiment, row)).collect()
    }

    fn of(experiment: &Experiment, row: &'a FlowRecord) -> Option<Self> {
        let flow = &experiment.flows[row.flow];
        let bin = |at: Duration| at.as_nanos() as u64 / BIN_NS;
        let first = flow.start_of(row.index).as_nanos().div_ceil(BIN_NS.into()) as usize;
        let run = first..bin(flow.stop) as usize;
        is_greedy(flow).then_some(Self { flow: row.flow, bytes: &row.bytes_per_100ms, run })
    }

    /// Bytes read in the [`WINDOW`] that begins with `bin`; bins beyond the record count as 0.
    pub fn bytes(&self, bin: usize) -> f64 {
        let bins = self.bytes.iter().skip(bin).take(WINDOW);
        bins.map(|bytes| *bytes as f64).sum()
    }
}

/// Consecutive bins, and the connections that run in every bin.
pub struct Spell<'a> {
    /// The bins, at least [`WINDOW`].
    pub bins: Range<usize>,
    /// The connections, by their numbers.
    pub running: Vec<(usize, &'a Connection<'a>)>,
}

/// The spells of at least [`WINDOW`] bins in which a connection runs. Starts and ends of `connections`, and
/// the bins in `also`, separate them.
pub fn spells<'a>(
    connections: &'a [Connection<'a>],
    also: impl Iterator<Item = usize>,
) -> Vec<Spell<'a>> {
    let ends = connections.iter().flat_map(|it| [it.run.start, it.run.end]);
    let mut changes: Vec<usize> = ends.chain(also).collect();
    changes.sort_unstable();
    changes.dedup();
    let between = changes.windows(2).map(|pair| pair[0]..pair[1]);
    let long = between.filter(|bins| bins.len() >= WINDOW);
    let spell = |bins: Range<usize>| {
        let runs = |it: &Connection<'_>| it.run.start <= bins.start && it.run.end >= bins.end;
        let running = connections.iter().enumerate().filter(|(_, it)| runs(it)).collect();
        Spell { bins, running }
    };
    long.map(spell).filter(|spell| !spell.running.is_empty()).collect()
}

/// A second in which at least two connections ran.
struct Second {
    /// When it begins (s since the start of the run).
    at_s: f64,
    /// Jain's index of the connections' rates.
    jain: f64,
    /// The connections have had time to converge.
    is_settled: bool,
}

/// How evenly the connections of a run shared.
pub struct Fairness {
    farthest: Option<f64>,
    fair_after_s: Option<f64>,
    seconds: Vec<Second>,
    /// For each connection with a competitor: the place of its flow, and for how many seconds it was starved.
    starved: Vec<(usize, u32)>,
}

impl Fairness {
    /// Fairness among the connections of all greedy flows; empty if no two ran at the same time.
    pub fn of(experiment: &Experiment, rows: &RunRecord) -> Self {
        let connections = Connection::all(experiment, rows);
        let mut fairness =
            Self { farthest: None, fair_after_s: None, seconds: Vec::new(), starved: Vec::new() };
        let mut starved: Vec<Option<u32>> = vec![None; connections.len()];
        for spell in spells(&connections, std::iter::empty()) {
            if spell.running.len() > 1 {
                fairness.take(&spell, &mut starved);
            }
        }
        let flows = connections.iter().map(|it| it.flow).zip(starved);
        fairness.starved = flows.filter_map(|(flow, seconds)| Some((flow, seconds?))).collect();
        fairness
    }

    fn take(&mut self, spell: &Spell<'_>, starved: &mut [Option<u32>]) {
        let Range { start, end } = spell.bins;
        let shares_from = |bin: usize| -> Vec<f64> {
            spell.running.iter().map(|(_, it)| it.bytes(bin)).collect()
        };
        let distances = (start..=end - WINDOW).map(|bin| distance(&shares_from(bin)));
        let distances: Vec<f64> = distances.collect();
        let settled = distances.iter().skip(SETTLING).step_by(WINDOW).copied();
        self.farthest = self.farthest.into_iter().chain(settled).reduce(f64::max);
        let fair = distances.iter().position(|distance| *distance <= NEAR);
        let after = fair.map_or(end - start, |bin| bin + WINDOW) as f64 * BIN_NS as f64 / 1e9;
        self.fair_after_s = self.fair_after_s.into_iter().chain([after]).reduce(f64::max);
        for bin in (start..=end - WINDOW).step_by(WINDOW) {
            let (shares, is_settled) = (shares_from(bin), bin >= start + SETTLING);
            let at_s = (bin as u64 * BIN_NS) as f64 / 1e9;
            self.seconds.extend(jain(&shares).map(|jain| Second { at_s, jain, is_settled }));
            let bound = mean(shares.iter().copied()).map_or(0.0, |mean| mean * STARVED);
            for ((number, _), share) in spell.running.iter().zip(&shares) {
                let is_starved = is_settled && *share < bound;
                *starved[*number].get_or_insert(0) += u32::from(is_starved);
            }
        }
    }

    /// The metrics of the run.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::default();
        metrics.put("unfairness_max", self.farthest);
        metrics.put("fair_after_s", self.fair_after_s);
        metrics.put("jain_mean", mean(self.seconds.iter().map(|second| second.jain)));
        let settled = self.seconds.iter().filter(|second| second.is_settled);
        metrics.put("jain_min", settled.map(|second| second.jain).reduce(f64::min));
        metrics.put("starved_s", self.starved_s(None));
        metrics
    }

    /// Longest starvation of a single connection (s): of the flow at place `flow`, or of any flow if `None`.
    pub fn starved_s(&self, flow: Option<usize>) -> Option<f64> {
        let of_flow = self.starved.iter().filter(|(place, _)| flow.is_none_or(|it| it == *place));
        of_flow.map(|(_, seconds)| f64::from(*seconds)).reduce(f64::max)
    }

    /// Jain's index of each second.
    pub fn series(&self) -> Option<Series> {
        let points: Vec<_> = self.seconds.iter().map(|it| (it.at_s, it.jain)).collect();
        let series = Series { part: "run", name: String::new(), quantity: "jain", points };
        (!series.points.is_empty()).then_some(series)
    }
}

/// Distance of the farthest share from the mean, over the mean. If nothing was read, the greatest possible
/// distance.
fn distance(shares: &[f64]) -> f64 {
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    if mean == 0.0 {
        return 1.0;
    }
    shares.iter().map(|share| (share / mean - 1.0).abs()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::testing::experiment;
    use forebay_scenario::Traffic;

    /// Two connections; the second starts at 2 s and reads these bytes in each 100 ms, the first the rest of 100.
    fn found(second: &[u64]) -> Fairness {
        let mut experiment = experiment();
        experiment.stop = Duration::from_secs(9);
        let flow = &mut experiment.scenario.flows[0];
        flow.traffic = Traffic::Greedy { flows: 2 };
        (flow.start, flow.stop) = (Duration::ZERO, experiment.scenario.stop);
        flow.other_starts = vec![Duration::from_secs(2)];
        let second = [&[0; 20], second].concat();
        let first = second.iter().map(|bytes| 100 - bytes).collect();
        let row =
            |index, bytes_per_100ms| FlowRecord { index, bytes_per_100ms, ..FlowRecord::default() };
        let rows = RunRecord { flows: vec![row(0, first), row(1, second)], ..RunRecord::default() };
        Fairness::of(&experiment, &rows)
    }

    #[test]
    fn first_two_seconds_after_start_are_ignored() {
        // A quarter for 1.5 s, then half, but 45 % in the last second.
        let second = [&[25; 15][..], &[50; 45], &[45; 10]].concat();
        let fairness = found(&second);
        let metrics = fairness.metrics();
        assert!((metrics.get("unfairness_max").unwrap() - 0.1).abs() < 1e-9);
        // Each bin with a quarter is 5 % off the share of a second, so there must be none.
        assert!((metrics.get("fair_after_s").unwrap() - 2.5).abs() < 1e-9);
        // A quarter is (1 + 3)^2 / 2 (1 + 9) = 0.8, 45 % is 1 / 1.01.
        let series = fairness.series().unwrap();
        let seconds: Vec<f64> = series.points.iter().map(|(at_s, _)| *at_s).collect();
        assert_eq!(seconds, [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert!((series.points[0].1 - 0.8).abs() < 1e-9);
        assert!((metrics.get("jain_min").unwrap() - 1.0 / 1.01).abs() < 1e-9);
        assert_eq!(metrics.get("starved_s"), Some(0.0));
    }

    #[test]
    fn unfair_connection_counts_until_the_end() {
        let metrics = found(&[10; 70]).metrics();
        assert!((metrics.get("unfairness_max").unwrap() - 0.8).abs() < 1e-9);
        assert!((metrics.get("fair_after_s").unwrap() - 7.0).abs() < 1e-9);
    }

    #[test]
    fn below_tenth_of_mean_is_starved() {
        // The mean is 50. 4 in the first three seconds, with two to settle; then 5 for two seconds; then 4
        // for two.
        let fairness = found(&[&[4; 30][..], &[5; 20], &[4; 20]].concat());
        assert_eq!(fairness.metrics().get("starved_s"), Some(3.0));
        assert_eq!((fairness.starved_s(Some(0)), fairness.starved_s(Some(1))), (Some(3.0), None));
    }

    #[test]
    fn one_connection_alone_shares_with_nobody() {
        let rows = RunRecord { flows: vec![FlowRecord::default()], ..RunRecord::default() };
        let fairness = Fairness::of(&experiment(), &rows);
        assert!(fairness.metrics().0.is_empty() && fairness.series().is_none());
    }
}
