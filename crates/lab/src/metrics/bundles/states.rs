//! States of a bundle: when its limits are in force, and how often that changes.

use forebay_core::record::{BundleRecord, DecisionRecord};
use serde::Serialize;

use super::super::Metrics;
use super::super::statistics::Timeline;

/// Longest time that a decision counts (ns). A sendbox writes one at least every 100 ms, at most a tick of 5
/// ms late. A sendbox that is silent for more than two and a half of these intervals is dead or not running,
/// so it shapes nothing.
const DECISION_HOLDS_NS: u64 = 250_000_000;

/// States of a bundle without limits: of its supervisor, and of Nimbus, which competes by itself.
const PASSING: [&str; 2] = ["passing", "competing"];
/// State of a bundle whose supervisor tries the algorithm's limits.
const TRYING: &str = "trying";
/// States without limits, or with limits on trial. In any other state the algorithm's limits are in force.
const UNSHAPED: [&str; 7] =
    ["passing", "competing", TRYING, "no_peer", "no_reports", "unsteady", "handed_back"];

/// Metrics of the sendbox's decisions.
pub(super) fn control(row: &BundleRecord, from: u64, to: u64, metrics: &mut Metrics) {
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

/// When limits were first in force, apart from trials (s since the start of the run).
pub(super) fn first_shape_s(row: &BundleRecord) -> Option<f64> {
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
    /// Why the state began.
    pub reason: String,
}

impl Transition {
    /// Whether the algorithm's limits are enforced in the new state.
    pub fn is_shaped(&self) -> bool {
        !UNSHAPED.contains(&self.state.as_str())
    }

    /// Whether limits are off or on trial in the new state.
    pub fn is_unlimited(&self) -> bool {
        let state = self.state.as_str();
        PASSING.contains(&state) || state == TRYING
    }
}

/// Every change of a bundle's state, including the first state.
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

/// 1 while the decision in force meets `is`, else 0. Also 0 once the sendbox has been silent, because it then
/// enforces no decision.
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

/// The range of the shaper's rate. During a decision without a rate, the previous rate counts.
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
