//! What a recording measured of a bundle: enough to try the like of it in a simulator.

use super::Look;
use crate::daemon::status::{BundleStatus, ShapingStatus};

/// Figures of one bundle at its sendbox, over all looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Name of the bundle.
    pub bundle: String,
    /// Algorithm with its parameters, at the last look.
    pub cc: String,
    /// Queueing discipline with its parameters, at the last look.
    pub qdisc: String,
    /// Looks that it was there at.
    pub looks: usize,
    /// Share of them at which it was shaped (0 to 1).
    pub shaped: f64,
    /// Share of them at which packets waited in its own queue (0 to 1).
    pub backlogged: f64,
    /// What left, mean (bits per second).
    pub sent_bps: f64,
    /// What arrived, mean (bits per second).
    pub delivered_bps: f64,
    /// What arrived, at its greatest (bits per second).
    pub delivered_max_bps: f64,
    /// The bottleneck's rate as estimated, median; `None`: it never was (bits per second).
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

/// Figures of each bundle of a sendbox, the one that carried most first.
pub fn figures(looks: &[Look]) -> Vec<Figures> {
    let bundles = || looks.iter().flat_map(|look| &look.boxes).flat_map(|status| &status.bundles);
    let mut names: Vec<&str> =
        bundles().filter(|it| it.shaping.is_some()).map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut figures: Vec<Figures> = names
        .into_iter()
        .map(|name| {
            let of_name = bundles().filter(|it| it.name == name);
            figures_of(name, &of_name.filter_map(shaping).collect::<Vec<_>>())
        })
        .collect();
    figures.sort_by(|one, other| other.sent_bps.total_cmp(&one.sent_bps));
    figures
}

fn shaping(bundle: &BundleStatus) -> Option<&ShapingStatus> {
    bundle.shaping.as_ref()
}

fn figures_of(name: &str, looks: &[&ShapingStatus]) -> Figures {
    let share = |is_so: fn(&ShapingStatus) -> bool| {
        mean(looks.iter().map(|look| f64::from(u8::from(is_so(look)))))
    };
    let known = |read: fn(&ShapingStatus) -> Option<u64>| -> Vec<f64> {
        looks.iter().filter_map(|look| read(look)).map(|value| value as f64).collect()
    };
    let last = looks.last();
    let delivered = || looks.iter().map(|look| look.last_second.delivered_bps as f64);
    let dropped = |look: &&ShapingStatus| look.counters.drops_queue;
    Figures {
        bundle: name.into(),
        cc: last.map_or_else(String::new, |look| look.cc.clone()),
        qdisc: last.map_or_else(String::new, |look| look.qdisc.clone()),
        looks: looks.len(),
        shaped: share(|look| look.decision.rate_bps.is_some()),
        backlogged: share(|look| look.queue.packets > 0),
        sent_bps: mean(looks.iter().map(|look| look.last_second.sent_bps as f64)),
        delivered_bps: mean(delivered()),
        delivered_max_bps: delivered().fold(0.0, f64::max),
        bottleneck_bps: median(known(|look| look.decision.bottleneck_bps)),
        min_rtt_ns: looks.iter().filter_map(|look| look.decision.min_rtt_ns).min(),
        here_ns: median(known(|look| look.last_second.queue_delay_ns)),
        here_packets: mean(looks.iter().map(|look| look.queue.packets as f64)),
        there_ns: median(known(|look| look.decision.queue_delay_ns)),
        flows: median(known(|look| look.flows.filter(|flows| *flows > 0).map(u64::from))),
        // A box that was started again counts from 0.
        dropped: looks
            .windows(2)
            .map(|pair| dropped(&pair[1]).saturating_sub(dropped(&pair[0])))
            .fold(0, u64::saturating_add),
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
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
    fn figures_are_of_all_looks_and_the_busiest_bundle_comes_first() {
        let mut looks = Vec::new();
        for second in 0..4_u64 {
            let mut status =
                sendbox(second, &[(second, if second > 0 { "shaping" } else { "silent" })]);
            let shaping = status.bundles[0].shaping.as_mut().unwrap();
            shaping.last_second.delivered_bps = 10_000_000 * second;
            shaping.decision.min_rtt_ns = (second > 1).then_some(40_000_000 + second);
            shaping.queue.packets = second;
            shaping.flows = Some(second as u32);
            // Started again before the third second.
            shaping.counters.drops_queue = [5, 9, 12, 1][second as usize];
            let mut busier = status.bundles[0].clone();
            busier.name = "a".into();
            busier.shaping.as_mut().unwrap().last_second.sent_bps = 1;
            status.bundles.push(busier);
            looks.push(look(second as f64, status));
        }
        let figures = figures(&looks);
        assert_eq!(figures.iter().map(|it| &it.bundle[..]).collect::<Vec<_>>(), ["a", "b"]);
        let of_b = &figures[1];
        assert_eq!((of_b.shaped, of_b.backlogged, of_b.looks), (0.75, 0.75, 4));
        assert_eq!((of_b.delivered_bps, of_b.delivered_max_bps), (15_000_000.0, 30_000_000.0));
        assert_eq!((of_b.min_rtt_ns, of_b.flows, of_b.dropped), (Some(40_000_002), Some(2.0), 7));
        assert_eq!((of_b.here_ns, of_b.bottleneck_bps), (None, None));
    }
}
