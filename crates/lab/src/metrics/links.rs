//! What a link did, from the emulator's own log of packets.

use std::collections::BTreeMap;
use std::io;

use super::statistics::{Sorted, Timeline, share};
use super::{Metrics, bounds_ns};
use crate::plan::Experiment;
use crate::plan::experiment::{Link, Window};
use crate::rows::{Fate, LinkRow};

/// Interval over which a rate or a queue is taken for the metrics about recovery.
const BIN_NS: u64 = 100_000_000;
/// A queue above this many packets counts as standing (the bound of the evaluation).
const STANDING_PACKETS: f64 = 30.0;
/// A link is in use once it carries this share of its capacity (the bound of the evaluation).
const IN_USE: f64 = 0.9;

/// One packet that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Arrival at the queue.
    pub arrived_ns: u64,
    /// Its last byte left.
    pub departed_ns: u64,
    /// Released to the far end.
    pub released_ns: u64,
    /// Identity.
    pub identity: u64,
    /// Bytes of the frame.
    pub bytes: u32,
    /// Its pair of sites.
    pub pair: u16,
    /// The queue marked it.
    pub marked: bool,
}

impl Passed {
    /// Time in queue and server.
    pub fn sojourn_ns(&self) -> u64 {
        self.departed_ns.saturating_sub(self.arrived_ns)
    }
}

/// What the log of a link says.
#[derive(Clone, Debug, Default)]
pub struct LinkTruth {
    /// `forward` or `reverse`.
    pub name: String,
    /// Packets waiting, without the one being sent.
    pub queue: Timeline,
    /// Packets that passed, in order of departure.
    pub passed: Vec<Passed>,
    /// When and how packets were lost.
    pub drops: Vec<(u64, Fate)>,
}

impl LinkTruth {
    /// Reads the log.
    pub fn read(row: &LinkRow) -> io::Result<Self> {
        let mut arrivals: Vec<(u64, u32)> = Vec::new();
        let mut passed = Vec::new();
        let mut drops = Vec::new();
        row.packets.for_each(|packet| {
            arrivals.push((packet.arrived_ns, packet.queue_packets));
            match packet.fate {
                // A packet still in the queue at the end of the log has not departed.
                Fate::Delivered if packet.departed_ns == 0 => {}
                Fate::Delivered => passed.push(Passed {
                    arrived_ns: packet.arrived_ns,
                    departed_ns: packet.departed_ns,
                    released_ns: packet.released_ns,
                    identity: packet.identity,
                    bytes: packet.bytes,
                    pair: packet.pair,
                    marked: packet.marked,
                }),
                Fate::Inside => {}
                fate => drops.push((packet.arrived_ns, fate)),
            }
        })?;
        arrivals.sort_by_key(|(at, _)| *at);
        passed.sort_by_key(|packet| packet.departed_ns);
        let queue = queue_timeline(&arrivals, &passed);
        Ok(Self { name: row.name.clone(), queue, passed, drops })
    }

    /// Mean of the queue over time (packets).
    pub fn mean_queue(&self, window: &Window) -> Option<f64> {
        let (from, to) = bounds_ns(window);
        self.queue.mean(from, to)
    }

    /// Packets that departed in `from..to`.
    pub fn passed_in(&self, from: u64, to: u64) -> &[Passed] {
        let first = self.passed.partition_point(|packet| packet.departed_ns < from);
        let end = self.passed.partition_point(|packet| packet.departed_ns < to);
        &self.passed[first..end.max(first)]
    }

    /// The metrics of one interval.
    pub fn metrics(&self, experiment: &Experiment, row: &LinkRow, window: &Window) -> Metrics {
        let (from, to) = bounds_ns(window);
        let link = experiment.link(&row.name);
        let mut metrics = Metrics::default();
        let mean = self.queue.mean(from, to);
        metrics.put("queue_mean_packets", mean);
        metrics.put("mean_qdisc_length_l2", mean);
        metrics.put("queue_p95_packets", self.queue.quantile(from, to, 0.95));
        metrics.put("queue_max_packets", self.queue.max(from, to));
        let passed = self.passed_in(from, to);
        let sojourns = Sorted::new(passed.iter().map(|packet| packet.sojourn_ns() as f64 / 1e6));
        metrics.put("mean_qdisc_delay_l2", sojourns.mean());
        metrics.put("sojourn_p50_ms", sojourns.quantile(0.5));
        metrics.put("sojourn_p95_ms", sojourns.quantile(0.95));
        metrics.put("sojourn_p99_ms", sojourns.quantile(0.99));
        let seconds = (to - from) as f64 / 1e9;
        let bytes: u64 = passed.iter().map(|packet| u64::from(packet.bytes)).sum();
        let rate_bps = share(bytes as f64 * 8.0, seconds);
        metrics.put("throughput_mbps", rate_bps.map(|rate| rate / 1e6));
        metrics.put("mean_sending_rate_l1", rate_bps.map(|rate| rate / 1e6));
        let capacity = link.capacity_bits(window.from, window.to);
        metrics.put("utilisation", capacity.and_then(|bits| share(bytes as f64 * 8.0, bits)));
        let dropped = |fate| {
            let hits = self.drops.iter();
            hits.filter(|(at, f)| *f == fate && (from..to).contains(at)).count() as f64
        };
        metrics.put("drops_queue_packets", Some(dropped(Fate::QueueDrop)));
        metrics.put("total_qdisc_drops_l2", Some(dropped(Fate::QueueDrop)));
        let marked = passed.iter().filter(|packet| packet.marked).count() as f64;
        metrics.put("marks_queue_packets", Some(marked));
        metrics.put("drops_loss_packets", Some(dropped(Fate::Lost)));
        metrics.put("passed_packets", Some(passed.len() as f64));
        let in_use = self.in_use_after(link, from, to);
        metrics.put("in_use_after_s", in_use);
        let standing = self.standing(from, to);
        let last = standing.iter().rposition(|stands| *stands).map_or(0, |bin| bin + 1);
        metrics.put("standing_queue_until_s", Some(last as f64 * BIN_NS as f64 / 1e9));
        let back = first_return(&standing) as f64 * BIN_NS as f64 / 1e9;
        metrics.put("queue_back_after_s", Some(back));
        metrics.put("queue_back_after_use_s", in_use.map(|in_use| (back - in_use).max(0.0)));
        self.pairs(experiment, passed, seconds, &mut metrics);
        metrics
    }

    /// Throughput of each pair of sites, and how evenly it is shared (Jain's index).
    fn pairs(&self, experiment: &Experiment, passed: &[Passed], seconds: f64, out: &mut Metrics) {
        let mut bytes: BTreeMap<u16, u64> = BTreeMap::new();
        for packet in passed {
            *bytes.entry(packet.pair).or_default() += u64::from(packet.bytes);
        }
        for (pair, bytes) in &bytes {
            if let Some(name) = experiment.pairs.get(usize::from(*pair)) {
                let rate = share(*bytes as f64 * 8.0 / 1e6, seconds);
                out.put(&format!("throughput_mbps[{name}]"), rate);
            }
        }
        if experiment.pairs.len() > 1 {
            let sum: f64 = bytes.values().map(|b| *b as f64).sum();
            let squares: f64 = bytes.values().map(|b| (*b as f64).powi(2)).sum();
            out.put("jain", share(sum * sum, squares * experiment.pairs.len() as f64));
        }
    }

    /// Seconds from `from` to the end of the first 100 ms in which the link was in use, or to `to`
    /// if it never was.
    fn in_use_after(&self, link: &Link, from: u64, to: u64) -> Option<f64> {
        let mut start = from;
        while start + BIN_NS <= to {
            let end = start + BIN_NS;
            let bytes: u64 = self.passed_in(start, end).iter().map(|p| u64::from(p.bytes)).sum();
            let ns = std::time::Duration::from_nanos;
            if bytes as f64 * 8.0 >= IN_USE * link.capacity_bits(ns(start), ns(end))? {
                return Some((end - from) as f64 / 1e9);
            }
            start = end;
        }
        Some((to - from) as f64 / 1e9)
    }

    /// Whether the queue stood, by its mean, in each 100 ms.
    fn standing(&self, from: u64, to: u64) -> Vec<bool> {
        let starts = (from..to).step_by(BIN_NS as usize);
        let mean = |start| self.queue.mean(start, (start + BIN_NS).min(to));
        starts.map(|start| mean(start).is_some_and(|mean| mean > STANDING_PACKETS)).collect()
    }
}

/// Bins until the queue, having stood, has gone for two bins; 0 if it never stood, all if it never
/// went.
fn first_return(standing: &[bool]) -> usize {
    let Some(first) = standing.iter().position(|stands| *stands) else { return 0 };
    let gone = standing[first..].windows(2).position(|pair| pair == [false, false]);
    gone.map_or(standing.len(), |gone| first + gone)
}

/// The queue over time: what each arrival saw, less what began to be sent since. A packet begins
/// to be sent when it has arrived and the one before it has left.
fn queue_timeline(arrivals: &[(u64, u32)], passed: &[Passed]) -> Timeline {
    let mut last_departed = 0;
    let mut dequeues = passed.iter().map(|packet| {
        let start = packet.arrived_ns.max(last_departed);
        last_departed = packet.departed_ns;
        start
    });
    let mut steps: Vec<(u64, u32)> = Vec::new();
    // A link whose queue stays empty needs no step at all.
    let mut step = |at, waiting| {
        if steps.last().map_or(0, |last| last.1) != waiting {
            steps.push((at, waiting));
        }
    };
    let mut waiting = 0_u32;
    let mut next = dequeues.next();
    for (at, seen) in arrivals {
        while let Some(dequeued) = next.filter(|dequeued| dequeued < at) {
            waiting = waiting.saturating_sub(1);
            step(dequeued, waiting);
            next = dequeues.next();
        }
        waiting = *seen;
        // The arrival's own count is after everything that happened at that instant.
        while next.is_some_and(|dequeued| dequeued == *at) {
            next = dequeues.next();
        }
        step(*at, waiting);
    }
    while let Some(dequeued) = next {
        waiting = waiting.saturating_sub(1);
        step(dequeued, waiting);
        next = dequeues.next();
    }
    Timeline::new(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::testing::{experiment, packet};
    use crate::rows::{PacketLog, PacketRow};

    /// Three packets of 1500 bytes arrive together at 10 ms on a link that needs 5 ms for each; a
    /// fourth is dropped.
    fn truth() -> (LinkRow, LinkTruth) {
        let ms = 1_000_000;
        let packets = vec![
            PacketRow { queue_packets: 0, ..packet(1, 10 * ms, 15 * ms) },
            PacketRow { queue_packets: 1, marked: true, ..packet(2, 10 * ms, 20 * ms) },
            PacketRow { queue_packets: 2, ..packet(3, 10 * ms, 25 * ms) },
            PacketRow { queue_packets: 2, fate: Fate::QueueDrop, ..packet(4, 10 * ms, 0) },
        ];
        let row = LinkRow {
            name: "forward".into(),
            packets: PacketLog::Rows(packets),
            ..Default::default()
        };
        let truth = LinkTruth::read(&row).unwrap();
        (row, truth)
    }

    #[test]
    fn the_queue_is_weighed_by_time() {
        let (_, truth) = truth();
        let ms = 1_000_000;
        // 2 waiting from 10 to 15 ms, 1 from 15 to 20 ms, none from then on.
        assert_eq!(truth.queue.mean(0, 30 * ms), Some((2.0 * 5.0 + 5.0) / 30.0));
        assert_eq!(truth.queue.mean(15 * ms, 20 * ms), Some(1.0));
        assert_eq!(truth.queue.max(0, 30 * ms), Some(2.0));
        assert_eq!(truth.queue.quantile(0, 30 * ms, 0.95), Some(2.0));
    }

    #[test]
    fn a_queue_is_back_once_it_has_gone_for_two_bins() {
        let bins = |text: &str| text.chars().map(|c| c == '#').collect::<Vec<bool>>();
        assert_eq!(first_return(&bins("....")), 0);
        assert_eq!(first_return(&bins(".##.#..#")), 5);
        assert_eq!(first_return(&bins(".###.")), 5);
    }

    #[test]
    fn the_return_of_a_queue_counts_from_when_the_link_is_in_use() {
        // 96 Mbit/s are 8 packets a millisecond. From 100 ms on it is full, and 40 wait until 400 ms.
        let packets = (100..600).flat_map(|at| (0..8).map(move |number| (at, number)));
        let packets = packets.map(|(at, number): (u64, u64)| {
            let departed = at * 1_000_000 + number * 125_000;
            let waits = at < 400;
            PacketRow {
                queue_packets: if waits { 40 } else { 0 },
                ..packet(at * 8 + number, departed - if waits { 5_000_000 } else { 0 }, departed)
            }
        });
        let row = LinkRow {
            name: "forward".into(),
            packets: PacketLog::Rows(packets.collect()),
            ..Default::default()
        };
        let window = Window {
            name: String::new(),
            from: std::time::Duration::ZERO,
            to: std::time::Duration::from_millis(600),
        };
        let metrics = LinkTruth::read(&row).unwrap().metrics(&experiment(), &row, &window);
        let get = |name: &str| metrics.get(name).unwrap();
        assert_eq!([get("in_use_after_s"), get("queue_back_after_s")], [0.2, 0.4]);
        assert!((get("queue_back_after_use_s") - 0.2).abs() < 1e-9);
    }

    #[test]
    fn delays_drops_and_rates_are_those_of_the_log() {
        let (row, truth) = truth();
        let experiment = experiment();
        let window = Window {
            name: String::new(),
            from: std::time::Duration::ZERO,
            to: std::time::Duration::from_millis(100),
        };
        let metrics = truth.metrics(&experiment, &row, &window);
        let get = |name: &str| metrics.get(name).unwrap();
        assert_eq!(get("mean_qdisc_delay_l2"), 10.0);
        assert_eq!(get("sojourn_p50_ms"), 10.0);
        assert_eq!(get("drops_queue_packets"), 1.0);
        assert_eq!(get("marks_queue_packets"), 1.0);
        assert_eq!(get("passed_packets"), 3.0);
        // 3 x 1500 bytes in 100 ms are 0.36 Mbit/s, of 96.
        assert!((get("throughput_mbps") - 0.36).abs() < 1e-9);
        assert!((get("utilisation") - 0.36 / 96.0).abs() < 1e-9);
        assert_eq!(get("standing_queue_until_s"), 0.0);
        assert_eq!(get("in_use_after_s"), 0.1);
        assert_eq!(get("queue_back_after_use_s"), 0.0);
    }
}
