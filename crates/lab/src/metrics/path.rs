//! The path of a flow in the plan at each instant: the reference for metrics.

use std::time::Duration;

use forebay_core::units::Rate;
use forebay_scenario::{Change, FULL_FRAME, Flow, Link};

use crate::experiment::Experiment;

/// A number that holds from each step to the next.
#[derive(Clone, Debug)]
pub struct Steps(Vec<(u64, f64)>);

impl Steps {
    /// `first` from the start on, and from each of `changes` on its `value`, if it has one.
    fn new(first: f64, changes: &[Change], value: impl Fn(&Change) -> Option<f64>) -> Self {
        let later = changes.iter().filter_map(|it| Some((it.at.as_nanos() as u64, value(it)?)));
        Self(std::iter::once((0, first)).chain(later).collect())
    }

    /// Number of steps that begin up to `at`, at least the first.
    fn begun(&self, at: u64) -> usize {
        self.0.partition_point(|(step, _)| *step <= at)
    }

    /// The number at `at` (ns since the start of the run).
    pub fn at(&self, at: u64) -> f64 {
        self.0[self.begun(at) - 1].1
    }

    /// Mean over the time `from..to` (ns since the start of the run); the number at `from` if there is no such time.
    pub fn mean(&self, from: u64, to: u64) -> f64 {
        let (mut since, mut value, mut area) = (from, self.at(from), 0.0);
        for (step, next) in self.0[self.begun(from)..].iter().take_while(|(step, _)| *step < to) {
            area += value * (step - since) as f64;
            (since, value) = (*step, *next);
        }
        match to.checked_sub(from) {
            None | Some(0) => value,
            Some(time) => (area + value * (to - since) as f64) / time as f64,
        }
    }

    /// When the number changes (ns since the start of the run).
    pub fn changes(&self) -> impl Iterator<Item = u64> {
        self.0[1..].iter().map(|(at, _)| *at)
    }
}

/// The links on a flow's way, with their rate and their least delays.
#[derive(Clone, Debug)]
pub struct Path {
    /// Name, in the rows, of the link that limits the flow.
    pub link: String,
    /// Rate of that link (bit/s), for a trace the mean; `None`: without a rate.
    pub rate: Option<Steps>,
    /// Two-way propagation delay of the flow before any change (ms).
    rtt_ms: f64,
    /// One-way delays of the links both ways (ms).
    delays: [Steps; 2],
}

impl Path {
    /// The path of `flow`.
    pub fn of(experiment: &Experiment, flow: &Flow) -> Self {
        let bottleneck = link_of(experiment, flow);
        let bps = |rate: Rate| rate.as_bits_per_sec() as f64;
        let rate = bottleneck
            .nominal_rate()
            // With many sites no single link limits a flow.
            .filter(|_| experiment.topology.is_none())
            .map(|rate| Steps::new(bps(rate), &bottleneck.changes, |change| change.rate.map(bps)));
        let delay = |link: &Link| {
            // With several links in a row, only the first one's propagation changes.
            let changes: &[Change] =
                if flow.hop.is_some_and(|hop| hop > 0) && link.name == "forward" {
                    &[]
                } else {
                    &link.changes
                };
            let ms = |delay: Duration| delay.as_secs_f64() * 1e3;
            Steps::new(ms(link.delay), changes, |change| change.delay.map(ms))
        };
        Self {
            link: bottleneck.name.clone(),
            rate,
            rtt_ms: experiment.rtt_of(flow).as_secs_f64() * 1e3,
            delays: experiment.ways(&flow.pair).map(delay),
        }
    }

    /// Two-way propagation delay, with `of` applied to the delay of each link.
    fn rtt(&self, of: impl Fn(&Steps) -> f64) -> f64 {
        let longer = self.delays.iter().map(|delay| of(delay) - delay.0[0].1);
        self.rtt_ms + longer.sum::<f64>()
    }

    /// Mean two-way propagation delay (ms) over the time `from..to` (ns since the start of the run).
    pub fn mean_rtt_ms(&self, from: u64, to: u64) -> f64 {
        self.rtt(|delay| delay.mean(from, to))
    }

    /// Full frames that the path holds at `at` (ns since the start of the run) without any queue; `None`
    /// without a rate.
    pub fn bdp_packets(&self, at: u64) -> Option<f64> {
        let bits = self.rate.as_ref()?.at(at) * self.rtt(|delay| delay.at(at)) / 1e3;
        Some((bits / 8.0 / FULL_FRAME.as_u64() as f64).floor())
    }
}

/// The link that limits `flow`. For a reversed flow: the link back, if it has a rate.
pub fn link_of<'a>(experiment: &'a Experiment, flow: &Flow) -> &'a Link {
    let [there, back] = experiment.ways(&flow.pair);
    match flow.hop {
        _ if flow.reversed && back.nominal_rate().is_some() => back,
        Some(hop @ 1..) => experiment.hops.get(hop - 1).unwrap_or(there),
        _ => there,
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::link::Service;

    use super::*;
    use crate::metrics::testing::experiment;

    /// One second (ns).
    const S: u64 = 1_000_000_000;

    #[test]
    fn path_follows_its_links_changes() {
        let mut experiment = experiment();
        let ms = Duration::from_millis;
        let (rate, delay) = (Some(Rate::from_mbit_per_sec(24)), Some(ms(45)));
        experiment.forward.changes = vec![
            Change { at: ms(1000), rate, ..Change::default() },
            Change { at: ms(2000), delay, ..Change::default() },
        ];
        experiment.flows[0].rtt = Some(ms(80));
        let path = Path::of(&experiment, &experiment.flows[0]);
        let rate = path.rate.as_ref().unwrap();
        assert_eq!([0, S - 1, S].map(|at| rate.at(at)), [96e6, 96e6, 24e6]);
        // Half a second at each rate.
        assert_eq!(rate.mean(S / 2, 3 * S / 2), 60e6);
        assert_eq!(rate.mean(S, S), 24e6);
        assert_eq!(rate.changes().collect::<Vec<_>>(), [S]);
        // 80 ms, and 20 ms more from the third second on.
        assert!((path.mean_rtt_ms(S, 3 * S) - 90.0).abs() < 1e-9);
        // 24 Mbit/s x 100 ms: 198.15 frames of 1514 bytes.
        assert_eq!(path.bdp_packets(2 * S), Some(198.0));
        experiment.forward.service = Service::Unlimited;
        let path = Path::of(&experiment, &experiment.flows[0]);
        assert!(path.rate.is_none() && path.bdp_packets(0).is_none());
    }

    #[test]
    fn flow_link_is_the_limiting_one() {
        let mut experiment = experiment();
        let name = |it: &Experiment| link_of(it, &it.flows[0]).name.clone();
        let hop = |name: &str| Link { name: name.into(), ..experiment.forward.clone() };
        experiment.hops = vec![hop("hop-2"), hop("hop-3")];
        assert_eq!(name(&experiment), "forward");
        experiment.flows[0].hop = Some(2);
        assert_eq!(name(&experiment), "hop-3");
        experiment.flows[0].reversed = true;
        experiment.reverse.service = Service::Rate(Rate::from_mbit_per_sec(5));
        assert_eq!(name(&experiment), "reverse");
    }
}
