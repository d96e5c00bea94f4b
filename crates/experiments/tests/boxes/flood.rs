//! A flood of messages that look like the receivebox's, during a running bundle.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::record::DecisionRecord;
use forebay_scenario::{Attack, BoxEnd};

use crate::{SECOND, bundle, run, scenario};

/// Sent within 6 s by an unoptimized build; the plan `bundler/hostile_messages` sends more.
const MESSAGES: u64 = 200_000;
/// The start's own overshoot is over by then.
const BEGINS_NS: u64 = 10 * SECOND;
/// Limit on report datagrams per second (`core::bundle::receivebox`).
const REPORTS_PER_SECOND: u64 = 200;
/// Time before the flood that the flood is compared with.
const CALM_NS: u64 = 2 * SECOND;
/// Window for mean rates: two round trips. A burst after 15 ms without a departure was seen to lower the rate from 25
/// to 6 Mbit/s for 5 ms. Queues did not grow then.
const WINDOW_NS: u64 = SECOND / 10;

#[test]
fn flood_of_bad_messages_is_only_counted() {
    let mut scenario = scenario(22, bundle("copa", "sfq"), None);
    scenario.attack = Some(Attack {
        at: Duration::from_nanos(BEGINS_NS),
        bundle: "b".into(),
        end: BoxEnd::Sendbox,
        messages: MESSAGES,
    });
    let Some(record) = run(&scenario) else { return };
    let attack = record.attack.as_ref().unwrap();

    let sent = attack.forged + attack.replayed + attack.recorded + attack.truncated;
    assert!(sent + attack.oversized >= MESSAGES, "{attack:?}");
    let rejected: BTreeMap<&str, u64> =
        attack.rejected.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    for kind in ["forged", "replayed", "truncated", "oversized"] {
        // Messages that do not fit into the socket's buffer are lost before they are counted.
        let count = rejected.get(kind).copied().unwrap_or(0);
        assert!(count > MESSAGES / 20, "{kind}: {attack:?}");
    }
    // Accepted messages came from the peer: a twentieth of the flood would already be more.
    let accepted = attack.received - attack.rejected.iter().map(|(_, count)| count).sum::<u64>();
    let seconds = (record.finished_ns - attack.began_ns) / SECOND + 2;
    assert!(accepted <= 2 * REPORTS_PER_SECOND * seconds, "{accepted} in {seconds} s: {attack:?}");
    // While the flood lasts, and some round trips later, the bundle is shaped as before.
    let decisions = &record.bundles[0].decisions;
    let begin = attack.began_ns;
    let calm = mean_rates(decisions, begin - CALM_NS, begin);
    let flood = begin..begin + attack.took_ns + SECOND;
    let flooded = mean_rates(decisions, flood.start, flood.end);
    assert!(decisions.iter().filter(|decision| flood.contains(&decision.at_ns)).count() > 5);
    let least = calm.iter().copied().fold(f64::INFINITY, f64::min);
    let most = calm.iter().copied().fold(0.0, f64::max);
    // Twice the spread: the sender of the flood takes a core from the emulation, which may have only two.
    let is_as_before = |rate: &f64| (least / 2.0..=most * 2.0).contains(rate);
    assert!(flooded.iter().all(is_as_before), "{calm:?}, then {flooded:?}");
    assert!(attack.box_cores.is_some_and(|cores| cores <= 1.0), "{attack:?}");
    assert!(record.flows.iter().all(|flow| !flow.failed && flow.bytes > 0));
}

/// Mean rates of a bundle between two times, one for each whole window, in bit/s; each decision holds until the next.
fn mean_rates(decisions: &[DecisionRecord], from_ns: u64, to_ns: u64) -> Vec<f64> {
    let until = decisions.iter().skip(1).map(|next| next.at_ns).chain([to_ns]);
    let held: Vec<_> = decisions
        .iter()
        .zip(until)
        .map(|(decision, until_ns)| {
            (decision.at_ns, until_ns, decision.rate_bps.unwrap_or(u64::MAX) as f64)
        })
        .collect();
    let windows = (from_ns..to_ns).step_by(WINDOW_NS as usize).filter(|at| at + WINDOW_NS <= to_ns);
    let mean = |start_ns: u64| -> f64 {
        let part = |(since_ns, until_ns, rate_bps): &(u64, u64, f64)| {
            let held_ns =
                (*until_ns).min(start_ns + WINDOW_NS).saturating_sub((*since_ns).max(start_ns));
            rate_bps * held_ns as f64 / WINDOW_NS as f64
        };
        held.iter().map(part).sum()
    };
    windows.map(mean).collect()
}
