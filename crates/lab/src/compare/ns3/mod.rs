//! Compares the simulator with runs of ns-3 stored in a file, metric by metric.
//!
//! ```text
//! file ──► Truths ──► runs in the simulator ──► pairs of metric and run ──► a table for each run, and Totals
//!          truth      simulated, topology       pair                        table
//! ```
//! Nothing here needs ns-3. `cargo xtask ns3-runs` makes the files.

mod pair;
mod simulated;
mod table;
mod topology;
mod truth;

use serde_json::Value;

pub use self::pair::{Pair, Totals};
use self::simulated::Ours;
pub use self::truth::{Class, Truth, Truths};

/// A run of ns-3 repeated in the simulator.
pub struct Simulated<'a> {
    truth: &'a Truth,
    ours: Vec<Ours>,
    pairs: Vec<Pair>,
}

impl<'a> Simulated<'a> {
    /// Simulates `truth` with five or nine starts, or with ten seeds if losses are random, and judges each metric.
    ///
    /// # Errors
    /// The parameter that cannot be simulated, with its value.
    pub fn new(truth: &'a Truth) -> Result<Self, String> {
        let ours = simulated::repeat(truth)?;
        let pairs = pair::judge(truth, &ours);
        Ok(Self { truth, ours, pairs })
    }

    /// A line for each metric: our value, ns-3's least and greatest value, and whether the bound holds.
    pub fn table(&self) -> String {
        table::of_run(self.truth, &self.pairs)
    }

    /// Each metric here and in ns-3.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Throughput in Mbit/s and smoothed round-trip time in ms, second by second: our values next to ns-3's.
    pub fn series(&self) -> String {
        table::series(self.truth, &self.ours)
    }
}

impl Totals {
    /// Counts one run. A run that cannot be simulated misses every bound.
    pub fn count(&mut self, class: Class, simulated: Option<&Simulated>) {
        match simulated {
            Some(simulated) => self.add(class, &simulated.pairs),
            None => self.add_not_run(class),
        }
    }

    /// A line for each class, whether the bounds hold, and the pairs that held at the first look.
    pub fn table(&self, first_look: &Value) -> String {
        table::of_totals(self, first_look)
    }

    /// For each class, how many pairs hold and how many there are; and `runs`, the number of runs.
    pub fn json(&self, runs: usize) -> Value {
        table::json(self, runs)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Runs that hold in every metric; each represents a mechanism.
    const HOLD: [&str; 5] = [
        "step_rate_down_TcpNewReno",
        "step_rate_up_TcpCubic",
        "step_loss_down_TcpNewReno",
        "var_delack2",
        "var_no_sack",
    ];

    /// The runs of both files.
    fn known() -> Vec<Truth> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/ns3");
        let files = ["ground_truth.json", "more_runs.json"].map(|name| folder.join(name));
        files.iter().flat_map(|file| Truths::read(file).unwrap().runs).collect()
    }

    fn truth_with(key: &str, value: &str) -> Truth {
        let mut all = known();
        let place = all.iter().position(|it| it.name == "step_rate_down_TcpNewReno").unwrap();
        let mut truth = all.swap_remove(place);
        truth.params[key] = value.into();
        truth.params["stop_s"] = 3.into();
        truth
    }

    #[test]
    fn every_parameter_changes_run_or_is_refused() {
        let figures = |key, value| {
            simulated::repeat(&truth_with(key, value))
                .map(|ours| (ours[0].flows.clone(), ours[0].link))
        };
        let nominal = figures("ecn", "0").unwrap();
        let changed = [
            ("timestamps", "0"),
            ("sack", "0"),
            ("reverse_rate", "0.5"),
            ("reverse_rate", "100000"),
            ("access_mbps", "100"),
            ("delay_place", "src"),
        ];
        for (key, value) in changed {
            let figures = figures(key, value).unwrap();
            assert!(figures.0[0].received_bytes > 0, "{key}");
            assert_ne!(figures, nominal, "{key} = {value} is ignored");
        }
        let refused = [
            ("short_load_mbps", "2"),
            ("delay_place", "split"),
            ("reverse_rate", "none"),
            ("ecn", "maybe"),
            ("jumbo_frames", "1"),
        ];
        for (key, value) in refused {
            assert_eq!(figures(key, value).unwrap_err(), format!("{key} = {value}"));
        }
    }

    #[test]
    fn ecn_marks_where_the_queue_can() {
        let mut truth = truth_with("ecn", "1");
        truth.params["qdisc"] = "CoDel".into();
        truth.params["qlen"] = "300p".into();
        let marks = |truth: &Truth| {
            let ours = simulated::repeat(truth).unwrap();
            ours[0].link.total_qdisc_marks_l2
        };
        assert!(marks(&truth) > 0);
        truth.params["ecn"] = 0.into();
        assert_eq!(marks(&truth), 0);
    }

    #[test]
    fn these_runs_agree_with_ns3_in_every_metric() {
        let all = known();
        for name in HOLD {
            let truth = all.iter().find(|truth| truth.name == name).unwrap();
            let ours = simulated::repeat(truth).unwrap();
            for pair in pair::judge(truth, &ours) {
                assert!(pair.holds, "{name}: {pair:?}");
            }
        }
    }
}
