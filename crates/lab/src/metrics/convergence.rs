//! How soon greedy connections reach their share, and keep it.

use std::collections::BTreeSet;

use forebay_core::record::RunRecord;

use super::Metrics;
use super::entry::Pooling::Max;
use super::entry::{Entry, entry};
use super::fairness::{Connection, Spell, WINDOW, spells};
use super::flows::BIN_NS;
use super::path::{Path, Steps};
use crate::experiment::Experiment;

/// Bins for which a connection must keep its share: 5 s.
const KEPT: usize = 5 * WINDOW;
/// A connection within this relative distance of its share in a second counts as having it.
const NEAR: f64 = 0.25;

/// Metrics of the greedy connections on each link.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("converged_after_s", "run arm", "s", Max,
        "longest time until all greedy connections on a link converge: each within 25 % of an \
         equal share for five seconds. Counted from a start, an end or a rate change to the next \
         one at most; gaps below 5 s are skipped",
        "max over changes of min{t: abs(n x_i / C - 1) <= 0.25 in each second of t .. t + 5 s, for all i} - change",
        "convergence time of PCC (Dong et al., NSDI 2015)"),
];

/// Metrics of the connections of all greedy flows.
pub fn metrics(experiment: &Experiment, rows: &RunRecord) -> Metrics {
    let paths: Vec<Path> = experiment.flows.iter().map(|flow| Path::of(experiment, flow)).collect();
    let links: BTreeSet<&str> = paths.iter().map(|path| path.link.as_str()).collect();
    let mut longest = None::<f64>;
    for link in links {
        let path = paths.iter().find(|path| path.link == link);
        let Some(rate) = path.and_then(|path| path.rate.as_ref()) else { continue };
        let mut connections = Connection::all(experiment, rows);
        connections.retain(|it| paths[it.flow].link == link);
        let steps = rate.changes().map(|at| at.div_ceil(BIN_NS) as usize);
        let spells = spells(&connections, steps);
        let times = spells.iter().filter_map(|spell| converged_after_s(spell, rate));
        longest = longest.into_iter().chain(times).reduce(f64::max);
    }
    let mut metrics = Metrics::default();
    metrics.put("converged_after_s", longest);
    metrics
}

/// Time from the beginning of `spell` until its connections keep their shares of `rate`; if they never do, to
/// its end. `None` if the spell is too short.
fn converged_after_s(spell: &Spell<'_>, rate: &Steps) -> Option<f64> {
    let last = spell.bins.end.checked_sub(KEPT).filter(|last| *last >= spell.bins.start)?;
    let count = spell.running.len() as f64;
    let second = |bin: usize| {
        let [from, to] = [bin, bin + WINDOW].map(|bin| bin as u64 * BIN_NS);
        let bytes = rate.mean(from, to) / 8.0 * (to - from) as f64 / 1e9;
        let is_near = |got: f64| (got * count / bytes - 1.0).abs() <= NEAR;
        spell.running.iter().all(|(_, it)| is_near(it.bytes(bin)))
    };
    let is_kept = |bin: &usize| (*bin..*bin + KEPT).step_by(WINDOW).all(second);
    let after =
        (spell.bins.start..=last).find(is_kept).unwrap_or(spell.bins.end) - spell.bins.start;
    Some((after as u64 * BIN_NS) as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_core::record::FlowRecord;
    use forebay_core::units::Rate;

    use super::*;
    use crate::metrics::testing::experiment;
    use forebay_scenario::{Change, Traffic};

    /// Connections over 96 Mbit/s for 20 s, each by its start and its rate (Mbit/s) in each second from then on.
    fn converged_after(connections: &[(u64, &[u64])], changes: &[Change]) -> Option<f64> {
        let mut experiment = experiment();
        experiment.stop = Duration::from_secs(20);
        experiment.forward.changes = changes.to_vec();
        let flow = &mut experiment.scenario.flows[0];
        flow.traffic = Traffic::Greedy { flows: connections.len() as u32 };
        (flow.start, flow.stop) = (Duration::from_secs(connections[0].0), experiment.scenario.stop);
        let others = connections[1..].iter();
        flow.other_starts = others.map(|(start, _)| Duration::from_secs(*start)).collect();
        let row = |(index, (start, rates)): (usize, &(u64, &[u64]))| {
            let mut seconds = vec![0; *start as usize];
            seconds.extend_from_slice(rates);
            seconds.resize(20, *rates.last().unwrap());
            let bins = seconds.iter().flat_map(|mbps| [mbps * 12_500; WINDOW]);
            let index = index as u32;
            FlowRecord { index, bytes_per_100ms: bins.collect(), ..FlowRecord::default() }
        };
        let flows = connections.iter().enumerate().map(row).collect();
        let rows = RunRecord { flows, ..RunRecord::default() };
        metrics(&experiment, &rows).get("converged_after_s")
    }

    #[test]
    fn convergence_needs_five_seconds_at_share() {
        assert_eq!(converged_after(&[(0, &[90])], &[]), Some(0.0));
        // The first near period lasts only three seconds. Every window of a second must be near, also those
        // that begin within a second.
        let late = converged_after(&[(0, &[10, 90, 90, 90, 40, 90])], &[]).unwrap();
        assert!((4.0..=5.0).contains(&late), "{late}");
        assert_eq!(converged_after(&[(0, &[30])], &[]), Some(20.0));
    }

    #[test]
    fn second_connection_converges_to_half_the_link() {
        // Alone for 8 s; from then on the share is 48 Mbit/s, which both reach 4 s later.
        let first: &[u64] = &[90, 90, 90, 90, 90, 90, 90, 90, 80, 70, 65, 65, 48];
        let after = converged_after(&[(0, first), (8, &[10, 20, 25, 30, 46])], &[]).unwrap();
        assert!((3.0..=4.0).contains(&after), "{after}");
    }

    #[test]
    fn rate_step_restarts_and_short_gaps_are_skipped() {
        let step = |s, mbps| Change {
            at: Duration::from_secs(s),
            rate: Some(Rate::from_mbit_per_sec(mbps)),
            ..Change::default()
        };
        assert_eq!(converged_after(&[(0, &[90])], &[step(10, 24)]), Some(10.0));
        let often: Vec<Change> = (1..20).map(|s| step(s, 90 + s)).collect();
        assert_eq!(converged_after(&[(0, &[90])], &often), None);
    }
}
