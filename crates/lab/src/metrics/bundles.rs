//! What a bundle did, and its estimates against the truth.
//!
//! The truth comes from the link emulator's own logs only, matched by the identity of the boundary
//! packet. Its RTT is the propagation delay there and back, the packet's sojourn at the bottleneck,
//! and what a packet entering the return link at that moment waited there. Where a link has jitter, propagation
//! there is what the packet took, and back what it takes at least. Its rate is the bytes of
//! the pair of sites that left the bottleneck between the two boundaries, over the time between
//! their departures.
//!
//! Nothing is corrected and no estimate is left out: shares are of all matched boundaries, so one
//! without a truth, or without a rate because it was overtaken, counts as wrong. In the shares that
//! end with `_of_all` every other boundary that left counts as wrong, too. A report that gives
//! no round trip above zero matches nothing and counts against `boundaries_matched`.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use forebay_core::record::{BundleRecord, DecisionRecord, EpochRecord, RunRecord, WaitRecord};
use serde::Serialize;

use super::entry::Pooling::{Max, Mean, Min, Sum, Time};
use super::entry::{BUNDLER, Entry, OWN, entry};
use super::links::{Boundary, LinkTruth};
use super::statistics::{Sorted, Timeline, mean, share};
use super::{Metrics, bounds_ns};
use crate::experiment::{Bundle, Experiment, Link, Window};

/// What is known of bundles.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("queue_share_at_sendbox", "bundle", "", Mean,
        "mean queue at the sendbox over the mean of both queues",
        "<q_sendbox> / (<q_sendbox> + <q_bottleneck>)", BUNDLER),
    entry("rtt_within_1ms", "bundle", "", Mean,
        "share of matched boundaries whose RTT estimate is within 1 ms of the truth",
        "#{abs(estimate - truth) <= 1 ms} / #{matched}", BUNDLER),
    entry("rtt_within_1ms_of_all", "bundle", "", Mean,
        "share of all boundaries of the run, matched or not, whose RTT estimate is within 1 ms",
        "#{abs(estimate - truth) <= 1 ms} / #{sent}", OWN),
    entry("rtt_error_abs_p50_ms", "bundle", "ms", Mean,
        "median distance of RTT estimate and truth",
        "Q50(abs(estimate - truth))", BUNDLER),
    entry("rtt_error_abs_p80_ms", "bundle", "ms", Mean,
        "80th percentile of the distance of RTT estimate and truth",
        "Q80(abs(estimate - truth))", BUNDLER),
    entry("rtt_error_p10_ms", "bundle", "ms", Mean, "RTT estimate less truth, 10th percentile",
        "Q10(estimate - truth)", OWN),
    entry("rtt_error_p50_ms", "bundle", "ms", Mean, "RTT estimate less truth, median",
        "Q50(estimate - truth)", OWN),
    entry("rtt_error_p90_ms", "bundle", "ms", Mean, "RTT estimate less truth, 90th percentile",
        "Q90(estimate - truth)", OWN),
    entry("rate_within_4pct", "bundle", "", Mean,
        "share of matched boundaries whose rate estimate is within 4 % of the truth",
        "#{abs(estimate / truth - 1) <= 0.04} / #{matched}", BUNDLER),
    entry("rate_within_4pct_of_all", "bundle", "", Mean,
        "share of all boundaries of the run, matched or not, whose rate estimate is within 4 %",
        "#{abs(estimate / truth - 1) <= 0.04} / #{sent}", OWN),
    entry("rate_within_2mbps", "bundle", "", Mean,
        "share of matched boundaries whose rate estimate is within 2 Mbit/s of the truth",
        "#{abs(estimate - truth) <= 2 Mbit/s} / #{matched}", BUNDLER),
    entry("rate_within_2mbps_of_all", "bundle", "", Mean,
        "share of all boundaries of the run, matched or not, whose rate estimate is within 2 Mbit/s",
        "#{abs(estimate - truth) <= 2 Mbit/s} / #{sent}", OWN),
    entry("rate_error_p50", "bundle", "", Mean, "median of rate estimate over truth, less 1",
        "Q50(estimate / truth - 1)", OWN),
    entry("epochs_with_rate", "bundle", "", Mean,
        "share of matched boundaries with an estimate and a truth of the rate",
        "#{matched, estimate and truth known} / #{matched}", OWN),
    entry("samples_per_rtt", "bundle", "", Mean, "matched boundaries per true round trip",
        "#{matched} mean(true RTT) / time", OWN),
    entry("epochs_without_truth", "bundle", "", Sum,
        "matched boundaries that are not in the emulator's log",
        "#{matched, not in the log}", OWN),
    entry("epoch_size_changes", "bundle", "", Mean, "changes of the epoch size",
        "#{matched, epoch size unlike the one before}", OWN),
    entry("boundaries_sent", "bundle", "", Mean,
        "boundary packets sent while the peer was heard, at the epoch size that it reported last",
        "#{boundaries}", OWN),
    entry("boundaries_matched", "bundle", "", Mean, "share of boundaries_sent that a report has matched",
        "#{matched} / #{sent}", OWN),
    entry("boundaries_matched_of_all", "bundle", "", Mean,
        "share of all boundary packets of the run, expected to be reported or not, that a report matched",
        "#{matched} / #{sent}, expected or not", OWN),
    entry("out_of_order_ratio", "bundle", "", Mean,
        "share of the matched boundaries that arrived behind one that left later and took 1 ms less",
        "#{matched out of order} / #{matched}", BUNDLER),
    entry("message_share", "bundle", "", Mean, "bytes of messages both ways over bytes sent",
        "bytes of messages / bytes sent", OWN),
    entry("hand_backs", "bundle", "", Sum,
        "times that the sendbox left its traffic to the kernel, since it did not keep up",
        "#{times}", OWN),
    entry("drops_ring_packets", "bundle", "packets", Sum,
        "lost by the boxes themselves, in their rings to and from the devices",
        "#{drops}", OWN),
    entry("boundaries_lost", "bundle", "", Sum, "boundaries lost by the receivebox itself",
        "#{boundaries}", OWN),
    entry("trace_rows_lost", "bundle", "", Sum,
        "estimates and decisions that the sendbox's trace lacks, and the metrics with it",
        "#{rows}", OWN),
    entry("min_rtt_ms", "bundle", "ms", Mean, "smallest base RTT since the bundle was first shaped",
        "min(base RTT)", OWN),
    entry("min_rtt_drift_ms", "bundle", "ms", Max,
        "largest less smallest base RTT since the bundle was first shaped",
        "max(base RTT) - min(base RTT)", OWN),
    entry("min_rtt_error_max_ms", "bundle", "ms", Max,
        "largest distance of the base RTT from the links' propagation delays",
        "max(abs(base RTT - D))", OWN),
    entry("transitions", "bundle", "", Sum, "changes of the bundle's state",
        "#{state unlike the one before}", OWN),
    entry("rate_min_mbps", "bundle", "Mbit/s", Min, "lowest rate of the shaper while it had one",
        "min(rate)", OWN),
    entry("rate_p5_mbps", "bundle", "Mbit/s", Mean,
        "rate of the shaper that is not exceeded 5 % of the time",
        "Q5<rate>", OWN),
    entry("rate_p95_mbps", "bundle", "Mbit/s", Mean,
        "rate of the shaper that is exceeded 5 % of the time",
        "Q95<rate>", OWN),
    entry("rate_max_mbps", "bundle", "Mbit/s", Max, "highest rate of the shaper",
        "max(rate)", OWN),
    entry("shaped_share", "bundle", "", Time, "share of the time with a rate in force, and decisions of the sendbox",
        "<1 with a rate, else 0>", OWN),
    entry("passing_share", "bundle", "", Time,
        "share of the time in which the sendbox lets traffic pass without limits",
        "<1 while passing or competing, else 0>", OWN),
    entry("trying_share", "bundle", "", Time,
        "share of the time in which the supervisor tries limits, to find out whether they pay",
        "<1 while trying, else 0>", OWN),
    entry("trials", "bundle", "", Mean, "trials of limits that began",
        "#{trying, the state before is another}", OWN),
    entry("first_shape_s", "bundle", "s", Mean,
        "from the start of the run until limits were first in force, trials aside; absent: they never were",
        "min{t: state is none of passing, trying, silent, handed_back}", OWN),
    entry("sparse_wait_p50_ms", "bundle", "ms", Mean,
        "median wait at the sendbox of packets whose flow had nothing else in its queue when they came",
        "Q50(wait)", OWN),
    entry("sparse_wait_p99_ms", "bundle", "ms", Mean,
        "99th percentile of the wait at the sendbox of these packets",
        "Q99(wait)", OWN),
];

/// An estimate that is this close counts as right: the bounds of the evaluation.
const RTT_CLOSE_MS: f64 = 1.0;
const RATE_CLOSE_SHARE: f64 = 0.04;
const RATE_CLOSE_MBPS: f64 = 2.0;
/// A sendbox writes a decision at least every 100 ms, a tick of 5 ms late at most. One that has been
/// silent for longer than two of them and half of another is dead or does not run: it shapes nothing.
const DECISION_HOLDS_NS: u64 = 250_000_000;

/// States of a bundle without limits: of its supervisor, and of Nimbus, which competes by itself.
const PASSING: [&str; 2] = ["passing", "competing"];
/// State of a bundle whose supervisor tries the algorithm's limits.
const TRYING: &str = "trying";
/// States without limits, or with limits on trial. In any other state the algorithm's limits are in force.
const UNSHAPED: [&str; 5] = ["passing", "competing", TRYING, "silent", "handed_back"];
/// Time that a row of waits is of.
const WAIT_SECOND_NS: u64 = 1_000_000_000;

/// Whether an estimate is close.
type IsClose = fn(&JudgedEpoch) -> bool;

/// Shares of estimates that are close, as called of matched boundaries and of all.
const CLOSE: [(&str, &str, IsClose); 3] = [
    ("rtt_within_1ms", "rtt_within_1ms_of_all", JudgedEpoch::has_close_rtt),
    ("rate_within_4pct", "rate_within_4pct_of_all", JudgedEpoch::has_close_rate),
    ("rate_within_2mbps", "rate_within_2mbps_of_all", JudgedEpoch::has_close_mbps),
];

/// The bundles that ran, with what they are configured as.
pub fn declared<'a>(
    experiment: &'a Experiment,
    rows: &'a RunRecord,
) -> impl Iterator<Item = (&'a Bundle, &'a BundleRecord)> {
    rows.bundles.iter().filter_map(|row| Some((experiment.bundle(&row.name)?, row)))
}

/// A matched boundary with what was true of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JudgedEpoch {
    /// What the sendbox made of it.
    pub estimate: EpochRecord,
    /// The true round trip (ms); `None`: the packet is not in the log.
    pub rtt_ms: Option<f64>,
    /// The true rate (Mbit/s); `None`: a boundary is not in the log, or both left together.
    pub rate_mbps: Option<f64>,
}

impl JudgedEpoch {
    fn rtt_error_ms(&self) -> Option<f64> {
        Some(self.estimate.rtt_ns as f64 / 1e6 - self.rtt_ms?)
    }

    /// The estimated rate (Mbit/s), if one was made.
    pub fn estimated_mbps(&self) -> Option<f64> {
        let rate = self.estimate.delivery_rate_bps;
        (rate > 0).then_some(rate as f64 / 1e6)
    }

    /// Estimated and true rate, where both are known.
    fn rates(&self) -> Option<(f64, f64)> {
        Some((self.estimated_mbps()?, self.rate_mbps?))
    }

    fn has_close_rtt(&self) -> bool {
        self.rtt_error_ms().is_some_and(|error| error.abs() <= RTT_CLOSE_MS)
    }

    fn has_close_rate(&self) -> bool {
        let error = self.rates().map(|(estimate, truth)| estimate / truth - 1.0);
        error.is_some_and(|error| error.abs() <= RATE_CLOSE_SHARE)
    }

    fn has_close_mbps(&self) -> bool {
        self.rates().is_some_and(|(estimate, truth)| (estimate - truth).abs() <= RATE_CLOSE_MBPS)
    }
}

/// Finds the truth about every matched boundary.
pub fn judge_epochs(
    experiment: &Experiment,
    bundle: &Bundle,
    row: &BundleRecord,
    there: &LinkTruth,
) -> Vec<JudgedEpoch> {
    let Some(pair) = experiment.pairs.iter().position(|name| *name == bundle.pair) else {
        return Vec::new();
    };
    let mut boundaries: HashMap<u64, Vec<&Boundary>> = HashMap::new();
    for boundary in there.boundaries.iter().filter(|boundary| usize::from(boundary.pair) == pair) {
        boundaries.entry(boundary.identity).or_default().push(boundary);
    }
    let links = links(experiment, bundle);
    let find = |identity: u64, by: u64| {
        let found = boundaries.get(&identity)?;
        // The newest of that identity that can have been reported by then.
        found.iter().copied().rev().find(|boundary| boundary.released_ns <= by)
    };
    let judge = |epoch: &EpochRecord| {
        let this = find(epoch.identity, epoch.at_ns);
        let previous = find(epoch.previous_identity, epoch.at_ns);
        let rate_mbps = this.zip(previous).and_then(|(this, previous)| {
            let bytes = this.bytes.checked_sub(previous.bytes)?;
            let time_us = this.departed_ns.checked_sub(previous.departed_ns)? as f64 / 1e3;
            share(bytes as f64 * 8.0, time_us)
        });
        let rtt_ms = this.map(|this| true_rtt_ms(this, links));
        JudgedEpoch { estimate: *epoch, rtt_ms, rate_mbps }
    };
    row.epochs.iter().map(judge).collect()
}

/// The links there and back.
fn links<'a>(experiment: &'a Experiment, bundle: &Bundle) -> (&'a Link, &'a Link) {
    let [there, back] = experiment.way_names(&bundle.pair).map(|name| experiment.link(&name));
    if bundle.reversed { (back, there) } else { (there, back) }
}

fn true_rtt_ms(boundary: &Boundary, (there, back): (&Link, &Link)) -> f64 {
    let forth = match there.jitter.is_zero() {
        true => there.delay_at(Duration::from_nanos(boundary.departed_ns)),
        false => Duration::from_nanos(boundary.released_ns.saturating_sub(boundary.departed_ns)),
    };
    let delay = forth + back.delay_at(Duration::from_nanos(boundary.released_ns));
    delay.as_secs_f64() * 1e3 + (boundary.sojourn_ns + boundary.waited_ns) as f64 / 1e6
}

/// The queue of a sendbox over time.
fn queue(row: &BundleRecord) -> Timeline {
    let packets = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    Timeline::new(row.queue.iter().map(|sample| (sample.at_ns, packets(sample.packets))).collect())
}

/// Mean queue of a sendbox (packets).
pub fn mean_queue(row: &BundleRecord, window: &Window) -> Option<f64> {
    let (from, to) = bounds_ns(window);
    queue(row).mean(from, to)
}

/// The metrics of one interval.
pub fn metrics(
    experiment: &Experiment,
    bundle: &Bundle,
    row: &BundleRecord,
    there: &LinkTruth,
    judged: &[JudgedEpoch],
    window: &Window,
) -> Metrics {
    let (from, to) = bounds_ns(window);
    let mut metrics = Metrics::default();
    let queue = queue(row);
    let at_sendbox = queue.mean(from, to);
    metrics.put("queue_mean_packets", at_sendbox);
    metrics.put_quantiles("queue_{p}_packets", |share| queue.quantile(from, to, share));
    metrics.put("queue_max_packets", queue.max(from, to));
    if let (Some(here), Some(there)) = (at_sendbox, there.mean_queue(window)) {
        metrics.put("queue_share_at_sendbox", share(here, here + there));
    }
    let pair = experiment.pairs.iter().position(|name| *name == bundle.pair);
    let bytes = pair.map_or(0, |pair| there.bytes_of(pair as u16, window));
    metrics.put("throughput_mbps", share(bytes as f64 * 8e3, (to - from) as f64));
    let in_window: Vec<&JudgedEpoch> =
        judged.iter().filter(|epoch| (from..to).contains(&epoch.estimate.at_ns)).collect();
    accuracy(&in_window, (to - from) as f64 / 1e6, &mut metrics);
    control(row, from, to, &mut metrics);
    waits(row, from, to, &mut metrics);
    base(row, links(experiment, bundle), from, to, &mut metrics);
    if window.name.is_empty() {
        whole_run(row, judged, &mut metrics);
    }
    metrics
}

fn accuracy(epochs: &[&JudgedEpoch], window_ms: f64, metrics: &mut Metrics) {
    for (name, _, is_close) in CLOSE {
        let close = epochs.iter().filter(|epoch| is_close(epoch)).count();
        metrics.put(name, share(close as f64, epochs.len() as f64));
    }
    let errors: Vec<f64> = epochs.iter().filter_map(|epoch| epoch.rtt_error_ms()).collect();
    let distance = |epoch: &&JudgedEpoch| epoch.rtt_error_ms().map_or(f64::INFINITY, f64::abs);
    let absolute = Sorted::new(epochs.iter().map(distance));
    metrics.put("rtt_error_abs_p50_ms", absolute.quantile(0.5));
    metrics.put("rtt_error_abs_p80_ms", absolute.quantile(0.8));
    let signed = Sorted::new(errors.iter().copied());
    metrics.put("rtt_error_p10_ms", signed.quantile(0.1));
    metrics.put("rtt_error_p50_ms", signed.quantile(0.5));
    metrics.put("rtt_error_p90_ms", signed.quantile(0.9));
    let estimated = Sorted::new(epochs.iter().map(|epoch| epoch.estimate.rtt_ns as f64 / 1e6));
    metrics.put("rtt_p50_ms", estimated.quantile(0.5));
    let rates: Vec<(f64, f64)> = epochs.iter().filter_map(|epoch| epoch.rates()).collect();
    metrics.put("epochs_with_rate", share(rates.len() as f64, epochs.len() as f64));
    let relative = |(estimate, truth): &(f64, f64)| estimate / truth - 1.0;
    metrics.put("rate_error_p50", Sorted::new(rates.iter().map(relative)).quantile(0.5));
    let truths = epochs.iter().filter_map(|epoch| epoch.rtt_ms);
    let round_trips = mean(truths.clone()).map(|rtt| window_ms / rtt);
    let matched = truths.count() as f64;
    metrics.put("samples_per_rtt", round_trips.and_then(|rounds| share(matched, rounds)));
    let missing = epochs.iter().filter(|epoch| epoch.rtt_ms.is_none()).count();
    metrics.put("epochs_without_truth", Some(missing as f64));
    let sizes: Vec<u32> = epochs.iter().map(|epoch| epoch.estimate.epoch_packets).collect();
    let changes = sizes.windows(2).filter(|pair| pair[0] != pair[1]).count();
    metrics.put("epoch_size_changes", Some(changes as f64));
}

/// How long packets of sparse flows waited at the sendbox, in the seconds most of which lie between `from` and `to`.
fn waits(row: &BundleRecord, from: u64, to: u64, metrics: &mut Metrics) {
    let is_inside = |it: &&WaitRecord| {
        let middle = it.at_ns.saturating_sub(WAIT_SECOND_NS / 2);
        (from..to).contains(&middle)
    };
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for (wait_ns, count) in row.waits.iter().filter(is_inside).flat_map(|it| &it.counts) {
        *counts.entry(*wait_ns).or_default() += u64::from(*count);
    }
    let total: u64 = counts.values().sum();
    for (name, percent) in [("sparse_wait_p50_ms", 50), ("sparse_wait_p99_ms", 99)] {
        let rank = (total * percent).div_ceil(100);
        let mut seen = 0;
        let found = counts.iter().find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        metrics.put(name, found.map(|(wait_ns, _)| *wait_ns as f64 / 1e6));
    }
}

/// What the sendbox decided.
fn control(row: &BundleRecord, from: u64, to: u64, metrics: &mut Metrics) {
    let decisions: Vec<&DecisionRecord> =
        row.decisions.iter().filter(|decision| (from..to).contains(&decision.at_ns)).collect();
    let before = row.decisions.iter().rfind(|decision| decision.at_ns < from);
    let states: Vec<&str> =
        before.into_iter().chain(decisions).map(|decision| decision.state.as_str()).collect();
    let transitions = states.windows(2).filter(|pair| pair[0] != pair[1]).count();
    metrics.put("transitions", Some(transitions as f64));
    metrics.put("shaped_share", times(row, |it| it.rate_bps.is_some()).mean(from, to));
    metrics.put("passing_share", passing_share(row, from, to));
    metrics.put("trying_share", times(row, |it| it.state == TRYING).mean(from, to));
    let is_trial = |pair: &&[&str]| pair[0] != TRYING && pair[1] == TRYING;
    let at_start = usize::from(before.is_none() && states.first() == Some(&TRYING));
    let trials = at_start + states.windows(2).filter(is_trial).count();
    metrics.put("trials", Some(trials as f64));
    shaper_rate(row, from, to, metrics);
}

/// Share of the time from `from` to `to` (ns since the start) in which a bundle's traffic passes without limits.
pub fn passing_share(row: &BundleRecord, from: u64, to: u64) -> Option<f64> {
    times(row, |it| PASSING.contains(&it.state.as_str())).mean(from, to)
}

/// When limits were first in force other than on trial (s since the start of the run).
fn first_shape_s(row: &BundleRecord) -> Option<f64> {
    let first = row.decisions.iter().find(|it| !UNSHAPED.contains(&it.state.as_str()))?;
    Some(first.at_ns as f64 / 1e9)
}

/// A change of a bundle's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Transition {
    /// The bundle.
    pub bundle: String,
    /// When (s since the start of the run).
    pub at_s: f64,
    /// The state that begins.
    pub state: String,
    /// What it was begun for.
    pub reason: String,
}

impl Transition {
    /// Whether the algorithm's limits are enforced from here on.
    pub fn is_shaped(&self) -> bool {
        !UNSHAPED.contains(&self.state.as_str())
    }

    /// Whether limits are off or on trial from here on.
    pub fn is_unlimited(&self) -> bool {
        let state = self.state.as_str();
        PASSING.contains(&state) || state == TRYING
    }
}

/// Every change of a bundle's state, its first one included.
pub fn transitions(row: &BundleRecord) -> Vec<Transition> {
    let mut all: Vec<Transition> = Vec::new();
    for decision in &row.decisions {
        if all.last().is_none_or(|last| last.state != decision.state) {
            all.push(Transition {
                bundle: row.name.clone(),
                at_s: decision.at_ns as f64 / 1e9,
                state: decision.state.clone(),
                reason: decision.reason.clone(),
            });
        }
    }
    all
}

/// 1 while the decision in force `is` so, 0 otherwise: also once a sendbox is not heard of any more, which
/// cannot have one in force.
fn times(row: &BundleRecord, is: impl Fn(&DecisionRecord) -> bool) -> Timeline {
    let mut steps = Vec::new();
    let next = row.decisions.iter().skip(1).map(|next| next.at_ns).chain([u64::MAX]);
    for (decision, next) in row.decisions.iter().zip(next) {
        steps.push((decision.at_ns, u32::from(is(decision))));
        let until = decision.at_ns.saturating_add(DECISION_HOLDS_NS);
        if next > until {
            steps.push((until, 0));
        }
    }
    Timeline::new(steps)
}

/// What the sendbox takes for the round trip of an empty path, from when it first shaped.
fn base(row: &BundleRecord, links: (&Link, &Link), from: u64, to: u64, metrics: &mut Metrics) {
    let shaped = row.decisions.iter().skip_while(|decision| decision.rate_bps.is_none());
    let in_window = shaped.filter(|decision| (from..to).contains(&decision.at_ns));
    let bases: Vec<(u64, f64)> =
        in_window.filter_map(|d| Some((d.at_ns, d.min_rtt_ns? as f64 / 1e6))).collect();
    let sorted = Sorted::new(bases.iter().map(|(_, base)| *base));
    if let (Some(least), Some(most)) = (sorted.quantile(0.0), sorted.quantile(1.0)) {
        metrics.put("min_rtt_ms", Some(least));
        metrics.put("min_rtt_drift_ms", Some(most - least));
    }
    let error = |(at, base): &(u64, f64)| {
        let at = Duration::from_nanos(*at);
        let truth = links.0.delay_at(at) + links.1.delay_at(at);
        (base - truth.as_secs_f64() * 1e3).abs()
    };
    metrics.put("min_rtt_error_max_ms", bases.iter().map(error).reduce(f64::max));
}

/// The range of the shaper's rate; without one, the rate before goes on.
fn shaper_rate(row: &BundleRecord, from: u64, to: u64, metrics: &mut Metrics) {
    let kbps = |bps: u64| u32::try_from(bps / 1000).unwrap_or(u32::MAX);
    let steps = row.decisions.iter().filter_map(|d| Some((d.at_ns, kbps(d.rate_bps?))));
    let steps: Vec<(u64, u32)> = steps.collect();
    let Some((first, _)) = steps.first() else { return };
    let from = from.max(*first);
    let rate = Timeline::new(steps);
    for (name, share) in [
        ("rate_min_mbps", 0.0),
        ("rate_p5_mbps", 0.05),
        ("rate_p95_mbps", 0.95),
        ("rate_max_mbps", 1.0),
    ] {
        metrics.put(name, rate.quantile(from, to, share).map(|kbps| kbps / 1e3));
    }
}

fn whole_run(row: &BundleRecord, judged: &[JudgedEpoch], metrics: &mut Metrics) {
    let counters = &row.counters;
    let all = (counters.boundaries_sent + counters.boundaries_unexpected) as f64;
    metrics.put("boundaries_sent", Some(counters.boundaries_sent as f64));
    for (_, name, is_close) in CLOSE {
        let close = judged.iter().filter(|epoch| is_close(epoch)).count();
        metrics.put(name, share(close as f64, all));
    }
    let matched = share(counters.boundaries_matched as f64, counters.boundaries_sent as f64);
    metrics.put("boundaries_matched", matched);
    metrics.put("boundaries_matched_of_all", share(counters.boundaries_matched as f64, all));
    let (in_order, late) = (counters.boundaries_in_order as f64, counters.boundaries_late as f64);
    metrics.put("out_of_order_ratio", share(late, in_order + late));
    metrics.put("drops_queue_packets", Some(row.counters.drops_queue as f64));
    metrics.put(
        "message_share",
        share(row.counters.message_bytes as f64, row.counters.bytes_sent as f64),
    );
    metrics.put("hand_backs", Some(row.hand_backs as f64));
    metrics.put("drops_ring_packets", Some(row.drops_ring as f64));
    metrics.put("boundaries_lost", Some(row.boundaries_lost as f64));
    metrics.put("trace_rows_lost", Some(row.rows_lost as f64));
    metrics.put("first_shape_s", first_shape_s(row));
}

#[cfg(test)]
mod tests {

    use forebay_core::record::{BundleCounters, LinkRecord, PacketRecord, QueueSample};

    use super::*;
    use crate::metrics::links;
    use crate::metrics::testing::{experiment, packet};
    use crate::rows::{PacketLog, RunRows};

    const MS: u64 = 1_000_000;

    /// The whole of what is read.
    fn window() -> Window {
        Window { name: String::new(), from: Duration::ZERO, to: Duration::from_millis(100) }
    }

    fn bundle_row() -> BundleRecord {
        let epoch = |at, identity, previous_identity, rtt_ns, delivery_rate_bps| EpochRecord {
            at_ns: at * MS,
            identity,
            previous_identity,
            rtt_ns,
            delivery_rate_bps,
            epoch_packets: 4,
            ..EpochRecord::default()
        };
        let decision = |at, rate_bps, min_rtt, state: &str| DecisionRecord {
            at_ns: at * MS,
            rate_bps,
            min_rtt_ns: Some(min_rtt),
            state: state.into(),
            ..DecisionRecord::default()
        };
        BundleRecord {
            name: "a".into(),
            // True round trips are 50 + 2 + 3 ms and 50 + 4 + 0 ms; the third is unknown.
            epochs: vec![
                epoch(70, 11, 10, 55_400_000, 12_300_000),
                epoch(80, 12, 11, 56_000_000, 0),
                epoch(90, 99, 12, 50_000_000, 1_000_000),
            ],
            queue: vec![
                QueueSample { at_ns: 0, packets: 10, bytes: 0 },
                QueueSample { at_ns: 50 * MS, packets: 30, bytes: 0 },
            ],
            decisions: vec![
                decision(0, None, 58_000_000, "measuring"),
                decision(25, Some(5_000_000), 50_200_000, "shaping"),
                decision(90, Some(9_000_000), 50_400_000, "shaping"),
                decision(98, Some(7_000_000), 50_200_000, "shaping"),
            ],
            counters: BundleCounters {
                boundaries_sent: 4,
                boundaries_unexpected: 1,
                boundaries_matched: 3,
                boundaries_in_order: 2,
                boundaries_late: 1,
                ..BundleCounters::default()
            },
            ..BundleRecord::default()
        }
    }

    fn judged() -> (Experiment, LinkTruth, Vec<JudgedEpoch>) {
        let experiment = experiment();
        let at = |identity, arrived, departed| PacketRecord {
            identity,
            ..packet(identity, arrived * MS, departed * MS)
        };
        let there = vec![at(10, 10, 11), at(11, 12, 14), at(12, 12, 16), at(50, 14, 15)];
        // The report about 11 leaves at 39 ms and waits 3 ms; that about 12 meets nobody.
        let back = vec![at(71, 20, 29), at(70, 40, 43)];
        let packets = [there, back].map(PacketLog::Rows).to_vec();
        let names = ["forward", "reverse"].map(String::from);
        let links = names.map(|name| LinkRecord { name, ..LinkRecord::default() }).to_vec();
        let run = RunRecord { links, bundles: vec![bundle_row()], ..RunRecord::default() };
        let rows = RunRows { run, packets };
        let there = links::read(&experiment, &rows, &[window()]).unwrap().swap_remove(0);
        let row = &rows.run.bundles[0];
        let judged = judge_epochs(&experiment, &experiment.bundles[0], row, &there);
        (experiment, there, judged)
    }

    #[test]
    fn the_truth_is_propagation_sojourn_and_the_way_back() {
        let (_, _, judged) = judged();
        let rtts: Vec<Option<f64>> = judged.iter().map(|epoch| epoch.rtt_ms).collect();
        assert_eq!(rtts, [Some(55.0), Some(54.0), None]);
    }

    #[test]
    fn the_true_rate_is_what_left_between_the_same_boundaries() {
        let (_, _, judged) = judged();
        // One packet of 1500 bytes in 3 ms; two in 2 ms; the third boundary is unknown.
        let rates: Vec<Option<f64>> = judged.iter().map(|epoch| epoch.rate_mbps).collect();
        assert_eq!(rates, [Some(4.0), Some(12.0), None]);
    }

    #[test]
    fn a_change_of_state_at_the_start_of_a_window_is_a_transition() {
        let mut metrics = Metrics::default();
        control(&bundle_row(), 25 * MS, 100 * MS, &mut metrics);
        assert_eq!(metrics.get("transitions"), Some(1.0));
    }

    #[test]
    fn time_handed_back_to_the_kernel_is_not_shaped() {
        let mut row = bundle_row();
        let handed_back = DecisionRecord {
            at_ns: 50 * MS,
            state: "handed_back".into(),
            ..DecisionRecord::default()
        };
        row.decisions.insert(2, handed_back);
        let mut metrics = Metrics::default();
        control(&row, 0, 100 * MS, &mut metrics);
        // From 25 to 50 and from 90 to 100 ms.
        assert_eq!(metrics.get("shaped_share"), Some(0.35));
        assert_eq!(metrics.get("transitions"), Some(3.0));
    }

    #[test]
    fn waits_of_sparse_flows_are_pooled_over_seconds() {
        let second = |at_s: u64, counts: &[(u64, u32)]| WaitRecord {
            at_ns: at_s * 1000 * MS,
            counts: counts.iter().map(|(wait_ms, count)| (wait_ms * MS, *count)).collect(),
            ..WaitRecord::default()
        };
        let waits = vec![
            second(1, &[(1, 50)]),
            second(2, &[(2, 60), (30, 1)]),
            second(3, &[(4, 38), (50, 1)]),
            second(4, &[(90, 9)]),
        ];
        let row = BundleRecord { waits, ..BundleRecord::default() };
        let found = |from_s: u64, to_s: u64| {
            let mut metrics = Metrics::default();
            super::waits(&row, from_s * 1000 * MS, to_s * 1000 * MS, &mut metrics);
            ["sparse_wait_p50_ms", "sparse_wait_p99_ms"].map(|name| metrics.get(name))
        };
        // Without the first second and the last.
        assert_eq!(found(1, 3), [Some(2.0), Some(30.0)]);
        assert_eq!(found(3, 4), [Some(90.0); 2]);
        assert_eq!(found(10, 20), [None; 2]);
    }

    #[test]
    fn states_of_the_supervisor() {
        let decision = |at, state: &str| DecisionRecord {
            at_ns: at * MS,
            state: state.into(),
            ..DecisionRecord::default()
        };
        let times = [
            (0, "silent"),
            (50, "passing"),
            (150, "trying"),
            (200, "passing"),
            (250, "trying"),
            (300, "trying"),
            (325, "app_limited"),
            (350, "shaping"),
        ];
        let decisions = times.map(|(at, state)| decision(at, state)).to_vec();
        let row = BundleRecord { decisions, ..BundleRecord::default() };
        let get = |from, to, name: &str| {
            let mut metrics = Metrics::default();
            control(&row, from * MS, to * MS, &mut metrics);
            metrics.get(name)
        };
        assert_eq!(get(0, 400, "passing_share"), Some(0.375));
        assert_eq!(get(0, 400, "trying_share"), Some(0.3125));
        assert_eq!(get(0, 400, "trials"), Some(2.0));
        assert_eq!(get(150, 200, "trying_share"), Some(1.0));
        assert_eq!(get(160, 400, "trials"), Some(1.0));
        assert_eq!(get(330, 400, "passing_share"), Some(0.0));
        assert_eq!(first_shape_s(&row), Some(0.325));
        let all = transitions(&row);
        assert_eq!(
            all.iter().map(Transition::is_unlimited).collect::<Vec<_>>(),
            [false, true, true, true, true, false, false]
        );
        assert_eq!((all[1].at_s, all[1].state.as_str()), (0.05, "passing"));
    }

    #[test]
    fn never_shaped() {
        let decision = DecisionRecord { state: "passing".into(), ..DecisionRecord::default() };
        let row = BundleRecord { decisions: vec![decision], ..BundleRecord::default() };
        assert_eq!(first_shape_s(&row), None);
    }

    #[test]
    fn a_sendbox_that_says_nothing_does_not_shape() {
        let decision = |at, rate_bps| DecisionRecord { at_ns: at * MS, rate_bps, ..<_>::default() };
        let shaped = Some(9_000_000);
        // Rows as they come, then 650 ms without any, and nothing after 1.2 s.
        let times = [0, 100, 205, 855, 955, 1200];
        let decisions = times.map(|at| decision(at, shaped)).to_vec();
        let mut row = BundleRecord { decisions, ..BundleRecord::default() };
        let share = |row: &BundleRecord, from, to| {
            let mut metrics = Metrics::default();
            control(row, from * MS, to * MS, &mut metrics);
            metrics.get("shaped_share").unwrap()
        };
        assert_eq!(share(&row, 0, 455), 1.0);
        assert_eq!(share(&row, 455, 855), 0.0);
        assert_eq!(share(&row, 0, 1000), 0.6);
        assert_eq!(share(&row, 1200, 1700), 0.5);
        row.decisions.clear();
        assert_eq!(share(&row, 0, 1000), 0.0);
    }

    #[test]
    fn estimates_are_counted_against_the_truth() {
        let (experiment, there, judged) = judged();
        let row = bundle_row();
        let bundle = &experiment.bundles[0];
        let metrics = metrics(&experiment, bundle, &row, &there, &judged, &window());
        let get = |name: &str| metrics.get(name).unwrap();
        // Errors are 0.4 and 2.0 ms; that of the third is unknown.
        assert_eq!(get("rtt_within_1ms"), 1.0 / 3.0);
        // Five boundaries were sent, one of which no report could be expected of.
        assert_eq!(get("rtt_within_1ms_of_all"), 0.2);
        assert!((get("rtt_error_abs_p50_ms") - 2.0).abs() < 1e-9);
        assert_eq!(metrics.get("rtt_error_abs_p80_ms"), None);
        assert_eq!(get("epochs_without_truth"), 1.0);
        // Only the first has both rates: 12.3 against 4.
        assert_eq!(get("epochs_with_rate"), 1.0 / 3.0);
        assert_eq!([get("rate_within_4pct"), get("rate_within_4pct_of_all")], [0.0, 0.0]);
        assert!((get("rate_error_p50") - 2.075).abs() < 1e-9);
        // Two samples in 100 ms of round trips of 54.5 ms.
        assert!((get("samples_per_rtt") - 2.0 * 54.5 / 100.0).abs() < 1e-9);
        assert_eq!([get("boundaries_matched"), get("boundaries_matched_of_all")], [0.75, 0.6]);
        assert_eq!(get("out_of_order_ratio"), 1.0 / 3.0);
        assert_eq!(get("queue_mean_packets"), 20.0);
        assert!(get("queue_share_at_sendbox") > 0.99);
        assert_eq!(get("shaped_share"), 0.75);
        assert_eq!(get("transitions"), 1.0);
        // 5 for 65 ms, 9 for 8 ms, 7 for 2 ms.
        assert_eq!([get("rate_min_mbps"), get("rate_p5_mbps")], [5.0, 5.0]);
        assert_eq!([get("rate_p95_mbps"), get("rate_max_mbps")], [9.0, 9.0]);
        // 50.2, 50.4 and 50.2 ms of 50 ms since it was first shaped at 25 ms.
        assert!((get("min_rtt_ms") - 50.2).abs() < 1e-9);
        assert!((get("min_rtt_drift_ms") - 0.2).abs() < 1e-9);
        assert!((get("min_rtt_error_max_ms") - 0.4).abs() < 1e-9);
    }
}
