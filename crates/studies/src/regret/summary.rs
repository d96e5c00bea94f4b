//! Summary of rows: the two figures, their bounds, and the worst sequences.

use serde::Serialize;

use super::run::RegretRow;
use super::windows::{RegretWindow, SHARE_MIN};
use forebay_lab::metrics::statistics::{Sorted, share};

/// Most windows that may be worse with boxes, in addition to windows that are worse by chance (percentage points).
pub const BOUND_POINTS: f64 = 2.0;
/// Most that a sparse flow may wait with boxes, as a share of its wait without them.
pub const BOUND_PING: f64 = 0.8;
/// Shorter waits count as this long (ms), so that unnoticeable waits do not dominate ratios. A full frame takes 2.4 ms
/// at the slowest first rate.
const WAIT_MIN_MS: f64 = 1.0;

/// Deliveries of a run as a share of those without boxes; `None` where the window does not count.
type OfWindow = fn(&RegretWindow) -> Option<f64>;
/// Shares of the runs that are compared: with boxes, and the later run without boxes.
const OF_RUNS: [OfWindow; 2] = [RegretWindow::boxes, RegretWindow::later];

/// The figures of a set of sequences.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegretSummary {
    /// Sequences that were measured.
    pub sequences: usize,
    /// Windows that count.
    pub windows: usize,
    /// Windows that deliver less than [`SHARE_MIN`] with boxes (percent of `windows`).
    pub worse_boxes_percent: f64,
    /// Windows that deliver less than [`SHARE_MIN`] in the later run without boxes (percent): chance.
    pub worse_later_percent: f64,
    /// Windows that deliver less than [`SHARE_MIN`] with boxes whose limits are too high to limit anything (percent):
    /// the cost of boxes without limits, and chance.
    pub worse_unlimited_percent: f64,
    /// Windows in which the run without boxes delivers less than [`SHARE_MIN`] of the run with boxes (percent of those
    /// that count).
    pub better_boxes_percent: f64,
    /// Windows in which the run without boxes delivers less than [`SHARE_MIN`] of the later run (percent).
    pub better_later_percent: f64,
    /// How many more are worse with boxes than by chance (percentage points).
    pub regret_points: f64,
    /// Half the width of the 95 % interval of `regret_points`, over sequences (percentage points).
    pub regret_error_points: f64,
    /// Whether `regret_points` is at most [`BOUND_POINTS`].
    pub regret_is_met: bool,
    /// The part of `regret_points` from windows in which the sendbox enforces limits for at least half of the time
    /// (percentage points). The rest is from windows in which the sendbox mostly passes traffic.
    pub regret_shaped_points: f64,
    /// Windows in which the sendbox enforces limits for at least half of the time (percent of `windows`).
    pub shaped_percent: f64,
    /// Wait of a sparse flow with boxes over that without: geometric mean over sequences.
    pub ping_geometric: Option<f64>,
    /// Wait of a sparse flow with boxes over that without: ratio of the means over sequences.
    pub ping_of_means: Option<f64>,
    /// Both ratios of the run without boxes that starts a little later: chance.
    pub ping_later: [Option<f64>; 2],
    /// Whether both ratios with boxes are at most [`BOUND_PING`].
    pub ping_is_met: bool,
}

impl RegretSummary {
    /// The figures of `rows`.
    pub fn of(rows: &[RegretRow]) -> Self {
        let windows: usize = rows.iter().map(|row| counted(row).count()).sum();
        let percent =
            |worse: usize| share(worse as f64 * 100.0, windows as f64).unwrap_or_default();
        let worse = |of: OfWindow| percent(rows.iter().map(|row| row.worse(of)).sum());
        let better = |of: OfWindow| percent(rows.iter().map(|row| row.better(of)).sum());
        let [worse_boxes_percent, worse_later_percent] = OF_RUNS.map(worse);
        let [better_boxes_percent, better_later_percent] = OF_RUNS.map(better);
        let regret_points = worse_boxes_percent - worse_later_percent;
        let shaped = || rows.iter().flat_map(counted).filter(|window| window.shaped >= 0.5);
        let [shaped_boxes, shaped_later] =
            OF_RUNS.map(|of| percent(shaped().filter(is_worse(of)).count()));
        let [ping_geometric, ping_of_means] = pings(rows, |row| row.ping.boxes_ms);
        let is_short = |ratio: Option<f64>| ratio.is_some_and(|ratio| ratio <= BOUND_PING);
        Self {
            sequences: rows.len(),
            windows,
            worse_boxes_percent,
            worse_later_percent,
            worse_unlimited_percent: worse(RegretWindow::unlimited),
            better_boxes_percent,
            better_later_percent,
            regret_points,
            regret_shaped_points: shaped_boxes - shaped_later,
            shaped_percent: percent(shaped().count()),
            regret_error_points: error_points(rows, windows, regret_points),
            regret_is_met: regret_points <= BOUND_POINTS,
            ping_geometric,
            ping_of_means,
            ping_later: pings(rows, |row| row.ping.later_ms),
            ping_is_met: is_short(ping_geometric) && is_short(ping_of_means),
        }
    }

    /// Whether both bounds are met.
    pub fn is_fine(&self) -> bool {
        self.regret_is_met && self.ping_is_met
    }
}

impl RegretRow {
    /// Number of windows in which a run delivers less than [`SHARE_MIN`] of the run without boxes.
    pub fn worse(&self, of: OfWindow) -> usize {
        self.windows.iter().filter(is_worse(of)).count()
    }

    /// Number of windows in which the run without boxes delivers less than [`SHARE_MIN`] of this run.
    fn better(&self, of: OfWindow) -> usize {
        self.windows.iter().filter_map(of).filter(|share| share * SHARE_MIN > 1.0).count()
    }

    /// Sum of the shortfalls below [`SHARE_MIN`] in windows that are worse with boxes, minus the larger sum of the two
    /// runs without limits (windows).
    pub fn excess(&self) -> f64 {
        let shortfall = |of: OfWindow| {
            let shares = self.windows.iter().filter_map(of);
            shares.map(|share| (SHARE_MIN - share).max(0.0)).sum::<f64>()
        };
        shortfall(RegretWindow::boxes)
            - shortfall(RegretWindow::later).max(shortfall(RegretWindow::unlimited))
    }

    /// Wait of the sparse flow with boxes divided by the wait without.
    pub fn ping_ratio(&self) -> Option<f64> {
        share(wait_ms(self.ping.boxes_ms?), wait_ms(self.ping.none_ms?))
    }

    /// The rows that fall short most with boxes beyond runs without limits, worst first.
    pub fn worst(rows: &[Self], most: usize) -> Vec<&Self> {
        let mut worst: Vec<&Self> = rows.iter().filter(|row| row.excess() > 0.0).collect();
        worst.sort_by(|one, other| other.excess().total_cmp(&one.excess()));
        worst.truncate(most);
        worst
    }
}

fn counted(row: &RegretRow) -> impl Iterator<Item = &RegretWindow> {
    row.windows.iter().filter(|window| window.counts())
}

/// Whether a run delivers less than [`SHARE_MIN`] of the run without boxes.
fn is_worse(of: OfWindow) -> impl Fn(&&RegretWindow) -> bool {
    move |window| of(window).is_some_and(|share| share < SHARE_MIN)
}

fn wait_ms(ms: f64) -> f64 {
    ms.max(WAIT_MIN_MS)
}

/// The geometric mean of the ratios of waits, and the ratio of their means.
fn pings(rows: &[RegretRow], of: fn(&RegretRow) -> Option<f64>) -> [Option<f64>; 2] {
    let both = rows.iter().filter_map(|row| Some((wait_ms(of(row)?), wait_ms(row.ping.none_ms?))));
    let both: Vec<(f64, f64)> = both.collect();
    let geometric = Sorted::new(both.iter().map(|(wait, none)| wait / none)).geometric_mean();
    let [waits, nones] = [both.iter().map(|it| it.0).sum(), both.iter().map(|it| it.1).sum()];
    [geometric, share(waits, nones)]
}

/// Half the 95 % interval of the difference: sequences are independent, windows of one are not.
fn error_points(rows: &[RegretRow], windows: usize, regret_points: f64) -> f64 {
    let residual = |row: &RegretRow| {
        let more = row.worse(RegretWindow::boxes) as f64 - row.worse(RegretWindow::later) as f64;
        more - regret_points / 100.0 * counted(row).count() as f64
    };
    let squares: f64 = rows.iter().map(|row| residual(row).powi(2)).sum();
    share(1.96 * 100.0 * squares.sqrt(), windows as f64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::run::Ping;
    use super::*;

    /// A row whose windows have these shares with boxes and without.
    fn row(seed: u64, shares: &[(f64, f64)], ping: [f64; 3]) -> RegretRow {
        let window = |(boxes, later): &(f64, f64)| RegretWindow {
            from_s: 0.0,
            waiting: 1.0,
            none_mbit: 10.0,
            later_mbit: 10.0 * later,
            unlimited_mbit: if seed == 5 { 1.0 } else { 10.0 },
            boxes_mbit: 10.0 * boxes,
            shaped: if *boxes < 0.8 { 0.6 } else { 0.4 },
        };
        let [none_ms, later_ms, boxes_ms] = ping.map(Some);
        RegretRow {
            seed,
            sources: String::new(),
            plan_sha256: String::new(),
            setting: String::new(),
            changes: Vec::new(),
            windows: shares.iter().map(window).collect(),
            ping: Ping { none_ms, later_ms, boxes_ms },
            states: Vec::new(),
        }
    }

    #[test]
    fn regret_is_what_exceeds_chance() {
        let rows = [
            row(1, &[(0.5, 1.0), (0.95, 0.8), (1.0, 1.0)], [10.0, 10.0, 5.0]),
            row(2, &[(0.85, 1.2)], [40.0, 40.0, 5.0]),
        ];
        let summary = RegretSummary::of(&rows);
        assert_eq!((summary.sequences, summary.windows), (2, 4));
        assert_eq!((summary.worse_boxes_percent, summary.worse_later_percent), (50.0, 25.0));
        assert_eq!((summary.better_boxes_percent, summary.better_later_percent), (0.0, 25.0));
        assert_eq!((summary.regret_points, summary.regret_is_met), (25.0, false));
        assert_eq!((summary.regret_shaped_points, summary.shaped_percent), (25.0, 25.0));
        // A geometric mean of 1/2 and 1/8, and 10 over 50 ms.
        assert!((summary.ping_geometric.unwrap() - 0.25).abs() < 1e-12);
        assert_eq!((summary.ping_of_means, summary.ping_later), (Some(0.2), [Some(1.0); 2]));
        assert!(summary.ping_is_met && !summary.is_fine());
        assert!(
            (summary.regret_error_points - 1.96 * 25.0 * (0.75_f64.powi(2) * 2.0).sqrt()).abs()
                < 1e-9
        );
    }

    #[test]
    fn short_waits_count_as_one_millisecond() {
        let rows = [row(1, &[], [0.1, 0.1, 0.5])];
        assert_eq!(RegretSummary::of(&rows).ping_geometric, Some(1.0));
    }

    #[test]
    fn worst_rows_fall_short_most() {
        let rows = [
            row(1, &[(0.8, 1.0), (0.8, 1.0)], [1.0; 3]),
            row(2, &[(0.1, 1.0)], [1.0; 3]),
            row(3, &[(0.95, 0.1)], [1.0; 3]),
            row(4, &[(0.2, 0.1)], [1.0; 3]),
            row(5, &[(0.2, 1.0)], [1.0; 3]),
        ];
        let seeds: Vec<u64> = RegretRow::worst(&rows, 5).iter().map(|row| row.seed).collect();
        assert_eq!(seeds, [2, 1]);
        assert_eq!(RegretRow::worst(&rows, 1).len(), 1);
    }

    #[test]
    fn nothing_measured_meets_no_ping_bound() {
        let summary = RegretSummary::of(&[]);
        assert!(summary.regret_is_met && !summary.ping_is_met);
        assert_eq!((summary.regret_points, summary.ping_of_means), (0.0, None));
    }
}
