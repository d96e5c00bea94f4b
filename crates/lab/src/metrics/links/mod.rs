//! Measurements of a link, from the log of its packets.
//!
//! ```text
//!  packets in order of arrival ──► Reader: in order of departure ──► Counted, one per window
//!                                                               └──► Boundary, if requested
//! ```
//! Each packet is read once and then dropped, so a log need not be kept. The windows keep each packet's time
//! in the queue (two bytes); the boundaries of bundles are kept whole.

mod boundaries;
mod log;
mod reader;
mod sojourns;
#[cfg(test)]
mod tests;
mod window;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::time::Duration;

use forebay_core::record::{LinkRecord, RunRecord};
use forebay_scenario::{Link, Window};

use super::entry::Pooling::{Max, Mean};
use super::entry::{CCPERF, Entry, JAIN, LINUX_QDISC, OWN, entry};
use super::statistics::{jain, share};
use super::{Metrics, bounds_ns};
use crate::experiment::Experiment;
pub use boundaries::Boundary;
pub use log::PacketLog;
pub use reader::Reader;
use window::{Bins, Counted};

/// Interval for rates and queues in the metrics about recovery, and for rates in figures.
pub const BIN_NS: u64 = 100_000_000;
/// Interval for queues in figures.
pub const QUEUE_BIN_NS: u64 = 10_000_000;
/// A queue above this many packets counts as standing (the bound of the evaluation).
const STANDING_PACKETS: f64 = 30.0;
/// A link is in use once it carries this share of its capacity (the bound of the evaluation).
const IN_USE: f64 = 0.9;

/// Metrics of links, and of all queues together.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("queue_total_mean_packets", "run arm", "packets", Mean,
        "total queue of both links and all sendboxes, mean over time",
        "sum over queues of <packets>", OWN),
    entry("queue_mean_packets", "link bundle", "packets", Mean, "packets waiting, mean over time",
        "<packets>", OWN),
    entry("queue_{p}_packets", "link bundle", "packets", Mean,
        "percentile over time of the packets waiting: p95 is exceeded 5 % of the time",
        "Qp<packets>", OWN),
    entry("queue_max_packets", "link bundle", "packets", Max, "most packets waiting",
        "max(packets)", OWN),
    entry("mean_qdisc_length_l2", "link", "packets", Mean, "queue_mean_packets",
        "<packets>", CCPERF),
    entry("mean_qdisc_delay_l2", "link", "ms", Mean,
        "queueing time of the packet that left last, mean over time; in a window and in the \
         emulator including its transmission",
        "<sojourn of the packet that left last>", CCPERF),
    entry("sojourn_mean_ms", "link", "ms", Mean,
        "time in queue and transmission, mean over packets",
        "mean(sojourn)", OWN),
    entry("sojourn_{p}_ms", "link", "ms", Mean,
        "percentile over packets of the time in queue and transmission",
        "Qp(sojourn)", OWN),
    entry("throughput_mbps", "link bundle", "Mbit/s", Mean, "frames that left the link",
        "8 bytes of frames / time", "RFC 5166 section 2.1"),
    entry("throughput_mbps[pair]", "link", "Mbit/s", Mean,
        "rate of the frames of a pair of sites that left the link",
        "8 bytes of frames / time", OWN),
    entry("jain", "link", "", Mean, "Jain's index of the pairs' throughputs",
        "sum(x)^2 / (n sum(x^2))", JAIN),
    entry("mean_sending_rate_l1", "link", "Mbit/s", Mean, "throughput_mbps",
        "8 bytes of frames / time", CCPERF),
    entry("utilisation", "link", "", Mean,
        "bits of the frames that left divided by the link's capacity",
        "8 bytes of frames / sum of C dt", "RFC 5166 section 2.1"),
    entry("drops_queue_packets", "link bundle", "packets", Mean, "packets dropped by the queue",
        "#{drops}", LINUX_QDISC),
    entry("total_qdisc_drops_l2", "link", "packets", Mean, "drops_queue_packets of a link",
        "#{drops}", CCPERF),
    entry("marks_queue_packets", "link", "packets", Mean,
        "packets marked (ECN) by the queue instead of dropped",
        "#{marks}", "RFC 3168 section 5"),
    entry("drops_overlimit_packets", "link", "packets", Mean,
        "packets dropped because the queue was full, whole run",
        "#{drops}", LINUX_QDISC),
    entry("drops_codel_packets", "link", "packets", Mean,
        "packets dropped by CoDel's control law, whole run",
        "#{drops}", "RFC 8289"),
    entry("drops_early_packets", "link", "packets", Mean,
        "packets dropped at random by PIE or RED, whole run",
        "#{drops}", "RFC 8033 (PIE), RED (Floyd and Jacobson, 1993)"),
    entry("drops_forced_packets", "link", "packets", Mean,
        "packets dropped above RED's upper threshold, whole run",
        "#{drops}", "RED (Floyd and Jacobson, 1993)"),
    entry("drops_policed_packets", "link", "packets", Mean,
        "packets dropped by a policer that had no tokens left, whole run",
        "#{drops}", LINUX_QDISC),
    entry("drops_superseded_packets", "link", "packets", Mean,
        "acknowledgements that a filter dropped because a later one made them redundant, whole \
         run; part of the queue's drops, as in CAKE; absent if there were none",
        "#{drops}", "Linux net/sched/sch_cake.c (cake_ack_filter)"),
    entry("marks_codel_packets", "link", "packets", Mean,
        "packets marked by CoDel's control law, whole run",
        "#{marks}", "RFC 8289"),
    entry("marks_early_packets", "link", "packets", Mean,
        "packets marked at random by PIE or RED, whole run",
        "#{marks}", "RFC 8033 (PIE), RED (Floyd and Jacobson, 1993)"),
    entry("marks_forced_packets", "link", "packets", Mean,
        "packets marked above a threshold of the queue, whole run",
        "#{marks}", "RFC 8257 section 3.1"),
    entry("drops_loss_packets", "link", "packets", Mean,
        "packets lost by the link's configured loss",
        "#{drops}", OWN),
    entry("passed_packets", "link", "packets", Mean, "packets that left",
        "#{packets}", OWN),
    entry("in_use_after_s", "link", "s", Max,
        "time until the link first carried 90 % of its capacity for 100 ms; if never, until the \
         end",
        "min{t: 8 bytes in 100 ms before t >= 0.9 C 100 ms} - start", "RFC 5166 section 2.2"),
    entry("standing_queue_until_s", "link", "s", Max,
        "time until the queue last exceeded 30 packets for 100 ms; 0: never",
        "max{t: mean(packets) in 100 ms before t > 30} - start", OWN),
    entry("queue_back_after_s", "link", "s", Max,
        "time until the queue, once above 30 packets, first stayed below for 200 ms; if never, \
         until the end",
        "min{t: mean(packets) in 200 ms from t <= 30, once above} - start", "RFC 5166 section 2.2"),
    entry("queue_back_after_use_s", "link", "s", Max,
        "queue_back_after_s, counted from when the link first carried 90 % of its capacity \
         (in_use_after_s)",
        "max(0, queue_back_after_s - in_use_after_s)", OWN),
];

/// One packet that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passed {
    /// Arrival at the queue.
    arrived_ns: u64,
    /// The packet's last byte left.
    departed_ns: u64,
    /// Released to the far end.
    released_ns: u64,
    /// Identity of the packet.
    identity: u64,
    /// The packet is a boundary of a bundle.
    is_boundary: bool,
    /// Bytes of the frame.
    bytes: u32,
    /// Pair of sites of the packet.
    pair: u16,
    /// The queue marked it.
    marked: bool,
}

impl Passed {
    /// Time in queue and server.
    fn sojourn_ns(&self) -> u64 {
        self.departed_ns.saturating_sub(self.arrived_ns)
    }
}

/// Everything measured from the packets of a link.
#[derive(Clone, Debug)]
pub struct LinkTruth {
    /// `forward` or `reverse`.
    pub name: String,
    /// The boundaries of bundles that passed, in order of departure.
    pub boundaries: Vec<Boundary>,
    windows: Vec<Counted>,
    /// Packets waiting x time in each 10 ms of the run.
    waiting: Bins,
    /// Bytes that left in each 100 ms of the run.
    carried: Bins,
}

/// Reads the logs of the packets of all links of `run`, for metrics of `windows`. Fails if a log cannot be
/// read.
pub fn read(
    experiment: &Experiment,
    run: &RunRecord,
    logs: &[PacketLog],
    windows: &[Window],
) -> io::Result<Vec<LinkTruth>> {
    let epochs = run.bundles.iter().flat_map(|bundle| &bundle.epochs);
    let wanted: HashSet<u64> =
        epochs.flat_map(|epoch| [epoch.identity, epoch.previous_identity]).collect();
    let names: Vec<&str> = run.links.iter().map(|link| link.name.as_str()).collect();
    let mut reader = Reader::new(experiment, windows, &names);
    for (index, packets) in logs.iter().enumerate() {
        packets.for_each(|packet| {
            reader.take(index, packet, wanted.contains(&packet.identity));
        })?;
    }
    Ok(reader.finish())
}

impl LinkTruth {
    fn new(name: &str, windows: &[Window], stop: Duration) -> Self {
        let stop_ns = stop.as_nanos() as u64;
        let counted = windows.iter().map(bounds_ns).map(|(from, to)| Counted::new(from, to));
        Self {
            name: name.into(),
            boundaries: Vec::new(),
            windows: counted.collect(),
            waiting: Bins::new(0, QUEUE_BIN_NS, stop_ns / QUEUE_BIN_NS),
            carried: Bins::new(0, BIN_NS, stop_ns / BIN_NS),
        }
    }

    fn window(&self, window: &Window) -> &Counted {
        let bounds = bounds_ns(window);
        let found = self.windows.iter().find(|counted| (counted.from, counted.to) == bounds);
        found.expect("every window is known before packets are read")
    }

    /// Packets waiting: the mean of each 10 ms of the run.
    pub fn queue_over_time(&self) -> impl Iterator<Item = f64> {
        self.waiting.sums().iter().map(|area| *area as f64 / QUEUE_BIN_NS as f64)
    }

    /// Bytes that left in each 100 ms of the run.
    pub fn bytes_over_time(&self) -> &[u64] {
        self.carried.sums()
    }

    /// Mean of the queue over time (packets), including the queues of its paths.
    pub fn mean_queue(&self, window: &Window) -> Option<f64> {
        self.window(window).mean_queue()
    }

    /// Merges `paths` into this link. Packets that waited or were dropped or marked on a path count as if on
    /// this link, and boundaries' times on both are added.
    pub fn take_paths(&mut self, paths: &[Self]) {
        let boundaries = paths.iter().flat_map(|path| &path.boundaries);
        let arrived_ns: HashMap<u64, u64> =
            boundaries.map(|it| (it.identity, it.departed_ns - it.sojourn_ns)).collect();
        for boundary in &mut self.boundaries {
            if let Some(arrived_ns) = arrived_ns.get(&boundary.identity) {
                boundary.sojourn_ns = boundary.departed_ns.saturating_sub(*arrived_ns);
            }
        }
        for path in paths {
            self.waiting.add_all(&path.waiting);
            self.windows.iter_mut().zip(&path.windows).for_each(|(it, path)| it.take_path(path));
        }
    }

    /// Bytes of a pair of sites that left the link.
    pub fn bytes_of(&self, pair: u16, window: &Window) -> u64 {
        self.window(window).of_pairs.get(&pair).copied().unwrap_or(0)
    }

    /// The metrics of one interval.
    pub fn metrics(&self, experiment: &Experiment, row: &LinkRecord, window: &Window) -> Metrics {
        let link = experiment.link(&row.name);
        let counted = self.window(window);
        let mut metrics = Metrics::default();
        let mean = counted.mean_queue();
        metrics.put("queue_mean_packets", mean);
        metrics.put("mean_qdisc_length_l2", mean);
        // Where paths merge, no packet waits; the joint distribution of the paths' queues is unknown.
        let is_queue = counted.mean_of_paths.is_none();
        let queue = |share| counted.queue.quantile(share).filter(|_| is_queue);
        metrics.put_quantiles("queue_{p}_packets", queue);
        metrics.put("queue_max_packets", is_queue.then(|| counted.queue.max()));
        let sojourns = counted.sojourns.summary([0.05, 0.5, 0.95, 0.99]);
        if let Some(sojourns) = sojourns.filter(|_| is_queue) {
            metrics.put("mean_qdisc_delay_l2", counted.held.mean_ms(counted.to));
            metrics.put("sojourn_mean_ms", Some(sojourns.mean));
            for (name, value) in
                ["sojourn_p5_ms", "sojourn_p50_ms", "sojourn_p95_ms", "sojourn_p99_ms"]
                    .into_iter()
                    .zip(sojourns.quantiles)
            {
                metrics.put(name, Some(value));
            }
        }
        let seconds = (counted.to - counted.from) as f64 / 1e9;
        let bits = counted.bytes as f64 * 8.0;
        let rate_bps = share(bits, seconds);
        metrics.put("throughput_mbps", rate_bps.map(|rate| rate / 1e6));
        metrics.put("mean_sending_rate_l1", rate_bps.map(|rate| rate / 1e6));
        let capacity = link.capacity_bits(window.from, window.to);
        metrics.put("utilisation", capacity.and_then(|capacity| share(bits, capacity)));
        metrics.put("drops_queue_packets", Some(counted.dropped as f64));
        metrics.put("total_qdisc_drops_l2", Some(counted.dropped as f64));
        metrics.put("marks_queue_packets", Some(counted.marked as f64));
        metrics.put("drops_loss_packets", Some(counted.lost as f64));
        metrics.put("passed_packets", Some(counted.passed() as f64));
        recovery(counted, link, &mut metrics);
        pairs(experiment, &row.name, &counted.of_pairs, seconds, &mut metrics);
        metrics
    }
}

/// Counters of the link's own record, over the whole run.
pub fn whole_run(row: &LinkRecord) -> Metrics {
    let mut metrics = Metrics::default();
    let (drops, marks) = (row.drops_by_reason, row.marks_by_reason);
    for (name, packets) in [
        ("drops_overlimit_packets", drops.overlimit),
        ("drops_codel_packets", drops.codel),
        ("drops_early_packets", drops.early),
        ("drops_forced_packets", drops.forced),
        ("drops_policed_packets", drops.policed),
        ("marks_codel_packets", marks.codel),
        ("marks_early_packets", marks.early),
        ("marks_forced_packets", marks.forced),
    ] {
        metrics.put(name, Some(packets as f64));
    }
    let superseded = Some(drops.superseded).filter(|packets| *packets > 0);
    metrics.put("drops_superseded_packets", superseded.map(|packets| packets as f64));
    row.measured.iter().for_each(|(name, value)| metrics.put(name, Some(*value)));
    metrics
}

/// How soon the link was in use again, and its queue short again.
fn recovery(counted: &Counted, link: &Link, metrics: &mut Metrics) {
    let in_use = in_use_after(counted, link);
    metrics.put("in_use_after_s", in_use);
    let standing = standing(counted);
    let last = standing.iter().rposition(|stands| *stands).map_or(0, |bin| bin + 1);
    metrics.put("standing_queue_until_s", Some(last as f64 * BIN_NS as f64 / 1e9));
    let back = first_return(&standing) as f64 * BIN_NS as f64 / 1e9;
    metrics.put("queue_back_after_s", Some(back));
    metrics.put("queue_back_after_use_s", in_use.map(|in_use| (back - in_use).max(0.0)));
}

/// Throughput of each pair of sites on the link `link`, and how evenly the pairs that use the link share it
/// (Jain's index).
fn pairs(
    experiment: &Experiment,
    link: &str,
    bytes: &BTreeMap<u16, u64>,
    seconds: f64,
    out: &mut Metrics,
) {
    for (pair, bytes) in bytes {
        if let Some(name) = experiment.pairs.get(usize::from(*pair)) {
            let rate = share(*bytes as f64 * 8.0 / 1e6, seconds);
            out.put(&format!("throughput_mbps[{name}]"), rate);
        }
    }
    let own = experiment.own_links.len();
    let mut own_links = experiment.own_links.iter().flat_map(|own| [&own.there, &own.back]);
    let is_own = own_links.any(|own| own.name == link);
    let takers = if is_own { 1 } else { experiment.pairs.len() - own };
    if takers > 1 {
        let mut taken: Vec<f64> = bytes.values().map(|bytes| *bytes as f64).collect();
        taken.resize(takers.max(taken.len()), 0.0);
        out.put("jain", jain(&taken));
    }
}

/// Seconds from the start to the end of the first 100 ms in which the link was in use. If it never was, the
/// whole length.
fn in_use_after(counted: &Counted, link: &Link) -> Option<f64> {
    let mut start = counted.from;
    for bytes in counted.carried.sums() {
        let end = start + BIN_NS;
        let ns = Duration::from_nanos;
        let capacity = link.capacity_bits(ns(start), ns(end))?;
        // A stopped link has no capacity to carry a share of.
        if capacity > 0.0 && *bytes as f64 * 8.0 >= IN_USE * capacity {
            return Some((end - counted.from) as f64 / 1e9);
        }
        start = end;
    }
    Some((counted.to - counted.from) as f64 / 1e9)
}

/// Whether the queue was standing in each 100 ms, by its mean.
fn standing(counted: &Counted) -> Vec<bool> {
    let starts = (counted.from..counted.to).step_by(BIN_NS as usize);
    let mean = |(start, area): (u64, &u64)| {
        share(*area as f64, ((start + BIN_NS).min(counted.to) - start) as f64)
    };
    let means = starts.zip(counted.waiting.sums()).map(mean);
    means.map(|mean| mean.is_some_and(|mean| mean > STANDING_PACKETS)).collect()
}

/// Bins until a standing queue has been short for two bins; 0 if the queue never stood, all bins if it never
/// became short.
fn first_return(standing: &[bool]) -> usize {
    let Some(first) = standing.iter().position(|stands| *stands) else { return 0 };
    let gone = standing[first..].windows(2).position(|pair| pair == [false, false]);
    gone.map_or(standing.len(), |gone| first + gone)
}
