//! Measurements of a bundle in a recording: enough to try a similar case in a simulator.

use std::collections::BTreeMap;

use super::Look;
use super::story::BOXES_MAX;
use crate::daemon::config::MAX_BUNDLES;
use crate::daemon::status::ShapingStatus;

/// Figures of one bundle at its sendbox, over all looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Name of the bundle.
    pub bundle: String,
    /// Algorithm with its parameters, at the last look.
    pub cc: String,
    /// Queueing discipline with its parameters, at the last look.
    pub qdisc: String,
    /// Looks that included the bundle.
    pub looks: usize,
    /// Share of these looks at which it was shaped (0 to 1).
    pub shaped: f64,
    /// Share of these looks at which packets waited in its own queue (0 to 1).
    pub backlogged: f64,
    /// Rate of departures, mean (bits per second).
    pub sent_bps: f64,
    /// Rate of arrivals, mean (bits per second).
    pub delivered_bps: f64,
    /// Rate of arrivals, maximum (bits per second).
    pub delivered_max_bps: f64,
    /// Estimated rate of the bottleneck, median (bits per second); `None`: never estimated.
    pub bottleneck_bps: Option<f64>,
    /// Least round trip (ns).
    pub min_rtt_ns: Option<u64>,
    /// Delay in the own queue, median (ns).
    pub here_ns: Option<f64>,
    /// Packets in the own queue, mean.
    pub here_packets: f64,
    /// Delay beyond the sendbox, median (ns).
    pub there_ns: Option<f64>,
    /// Flows in the own queue while there were any, median.
    pub flows: Option<f64>,
    /// Packets that the own queue dropped in these minutes.
    pub dropped: u64,
}

/// Most bundles that are told apart.
pub(super) const BUNDLES_MAX: usize = BOXES_MAX * MAX_BUNDLES;

/// Measurements of each bundle of a sendbox, over the looks so far.
#[derive(Default)]
pub(super) struct Summaries(BTreeMap<String, Summary>);

/// Measurements of a bundle over the looks so far: sums, and the values that a median needs.
#[derive(Default)]
struct Summary {
    cc: String,
    qdisc: String,
    looks: usize,
    shaped: usize,
    backlogged: usize,
    sent_bps: f64,
    delivered_bps: f64,
    delivered_max_bps: f64,
    bottleneck_bps: Vec<f64>,
    min_rtt_ns: Option<u64>,
    here_ns: Vec<f64>,
    here_packets: f64,
    there_ns: Vec<f64>,
    flows: Vec<f64>,
    dropped: u64,
    /// Drops of the own queue at the last look.
    dropped_before: Option<u64>,
}

impl Summaries {
    /// Adds the next look; `Err`: there are too many bundles.
    pub fn add(&mut self, look: &Look) -> Result<(), String> {
        for bundle in look.boxes.iter().flat_map(|status| &status.bundles) {
            let Some(shaping) = &bundle.shaping else { continue };
            if !self.0.contains_key(&bundle.name) {
                if self.0.len() == BUNDLES_MAX {
                    return Err(format!("bundles: allowed are at most {BUNDLES_MAX} in all"));
                }
                self.0.insert(bundle.name.clone(), Summary::default());
            }
            if let Some(summary) = self.0.get_mut(&bundle.name) {
                summary.add(shaping);
            }
        }
        Ok(())
    }

    /// The figures, with the busiest bundle first.
    pub fn finish(self) -> Vec<Figures> {
        let figures = self.0.into_iter().map(|(name, summary)| summary.finish(name));
        let mut figures: Vec<Figures> = figures.collect();
        figures.sort_by(|one, other| other.sent_bps.total_cmp(&one.sent_bps));
        figures
    }
}

impl Summary {
    fn add(&mut self, look: &ShapingStatus) {
        let (decision, last) = (&look.decision, &look.last_second);
        self.cc.clone_from(&look.cc);
        self.qdisc.clone_from(&look.qdisc);
        self.looks += 1;
        self.shaped += usize::from(decision.rate_bps.is_some());
        self.backlogged += usize::from(look.queue.packets > 0);
        self.sent_bps += last.sent_bps as f64;
        self.delivered_bps += last.delivered_bps as f64;
        self.delivered_max_bps = self.delivered_max_bps.max(last.delivered_bps as f64);
        self.min_rtt_ns = self.min_rtt_ns.into_iter().chain(decision.min_rtt_ns).min();
        self.here_packets += look.queue.packets as f64;
        let flows = look.flows.filter(|flows| *flows > 0).map(u64::from);
        for (values, value) in [
            (&mut self.bottleneck_bps, decision.bottleneck_bps),
            (&mut self.here_ns, last.queue_delay_ns),
            (&mut self.there_ns, decision.queue_delay_ns),
            (&mut self.flows, flows),
        ] {
            values.extend(value.map(|value| value as f64));
        }
        // A restarted box counts from 0.
        let dropped = look.counters.drops_queue;
        let before = self.dropped_before.replace(dropped).unwrap_or(dropped);
        self.dropped = self.dropped.saturating_add(dropped.saturating_sub(before));
    }

    fn finish(self, bundle: String) -> Figures {
        let mean = |sum: f64| sum / self.looks.max(1) as f64;
        Figures {
            bundle,
            looks: self.looks,
            shaped: mean(self.shaped as f64),
            backlogged: mean(self.backlogged as f64),
            sent_bps: mean(self.sent_bps),
            delivered_bps: mean(self.delivered_bps),
            delivered_max_bps: self.delivered_max_bps,
            bottleneck_bps: median(self.bottleneck_bps),
            min_rtt_ns: self.min_rtt_ns,
            here_ns: median(self.here_ns),
            here_packets: mean(self.here_packets),
            there_ns: median(self.there_ns),
            flows: median(self.flows),
            dropped: self.dropped,
            cc: self.cc,
            qdisc: self.qdisc,
        }
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{look, sendbox};
    use super::*;

    #[test]
    fn figures_cover_all_samples_busiest_bundle_first() {
        let mut looks = Vec::new();
        for second in 0..4_u64 {
            let mut status =
                sendbox(second, &[(second, if second > 0 { "shaping" } else { "no_peer" })]);
            let shaping = status.bundles[0].shaping.as_mut().unwrap();
            shaping.last_second.delivered_bps = 10_000_000 * second;
            shaping.decision.min_rtt_ns = (second > 1).then_some(40_000_000 + second);
            shaping.queue.packets = second;
            shaping.flows = Some(second as u32);
            // The box was restarted before the third second.
            shaping.counters.drops_queue = [5, 9, 12, 1][second as usize];
            let mut busier = status.bundles[0].clone();
            busier.name = "a".into();
            busier.shaping.as_mut().unwrap().last_second.sent_bps = 1;
            status.bundles.push(busier);
            looks.push(look(second as f64, status));
        }
        let mut summaries = Summaries::default();
        looks.iter().for_each(|look| summaries.add(look).unwrap());
        let figures = summaries.finish();
        assert_eq!(figures.iter().map(|it| &it.bundle[..]).collect::<Vec<_>>(), ["a", "b"]);
        let of_b = &figures[1];
        assert_eq!((of_b.shaped, of_b.backlogged, of_b.looks), (0.75, 0.75, 4));
        assert_eq!((of_b.delivered_bps, of_b.delivered_max_bps), (15_000_000.0, 30_000_000.0));
        assert_eq!((of_b.min_rtt_ns, of_b.flows, of_b.dropped), (Some(40_000_002), Some(2.0), 7));
        assert_eq!((of_b.here_ns, of_b.bottleneck_bps), (None, None));
    }
}
