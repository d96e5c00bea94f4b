//! A flood of messages that look like the receivebox's, during a running bundle.

use std::collections::BTreeMap;

use forebay_testbed::scenario::{Attack, BoxEnd, FaultTarget};

use crate::{SECOND, bundle, run, scenario};

/// Sent within 6 s by an unoptimized build; the plan `bundler/hostile_messages` sends more.
const MESSAGES: u64 = 200_000;
/// The start's own overshoot is over by then.
const BEGINS_NS: u64 = 10 * SECOND;
/// Reports leave as at most so many datagrams a second (`core::bundle::receivebox`).
const REPORTS_PER_SECOND: u64 = 200;
/// The time before the flood that it is compared with.
const CALM_NS: u64 = 2 * SECOND;

#[test]
fn a_flood_of_bad_messages_is_counted_and_changes_nothing() {
    let mut scenario = scenario(30, bundle("copa", "sfq"), None);
    let target = FaultTarget { pair: 0, reverse: false, end: BoxEnd::Sendbox };
    scenario.attack = Some(Attack { at_ns: BEGINS_NS, target, messages: MESSAGES });
    let Some(record) = run(&scenario) else { return };
    let attack = record.attack.as_ref().unwrap();

    let sent = attack.forged + attack.replayed + attack.recorded + attack.truncated;
    assert!(sent + attack.oversized >= MESSAGES, "{attack:?}");
    let rejected: BTreeMap<&str, u64> =
        attack.rejected.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    for kind in ["forged", "replayed", "truncated", "oversized"] {
        // What the socket's buffer does not hold is lost before it is counted.
        let count = rejected.get(kind).copied().unwrap_or(0);
        assert!(count > MESSAGES / 20, "{kind}: {attack:?}");
    }
    // What was not rejected was the peer's: a twentieth of the flood would already be more.
    let accepted = attack.received - attack.rejected.iter().map(|(_, count)| count).sum::<u64>();
    let seconds = (record.finished_ns - attack.began_ns) / SECOND + 2;
    assert!(accepted <= 2 * REPORTS_PER_SECOND * seconds, "{accepted} in {seconds} s: {attack:?}");
    // While the flood lasts, and some round trips later, the bundle is shaped as before.
    let rates = |from_ns: u64, to_ns: u64| -> Vec<u64> {
        let decisions = record.bundles[0].decisions.iter();
        let during = decisions.filter(|decision| (from_ns..to_ns).contains(&decision.at_ns));
        during.map(|decision| decision.rate_bps.unwrap_or(u64::MAX)).collect()
    };
    let begin = attack.began_ns;
    let calm = rates(begin - CALM_NS, begin);
    let flooded = rates(begin, begin + attack.took_ns + SECOND);
    let (least, most) = (calm.iter().min().unwrap(), calm.iter().max().unwrap());
    println!("{} s of flood, calm {least}..{most}", attack.took_ns as f64 / 1e9);
    println!("flooded {:?}..{:?}", flooded.iter().min(), flooded.iter().max());
    // Twice the spread: the flood's sender takes one of perhaps two cores from the emulation.
    let is_as_before = |rate: &u64| (least / 2..=most * 2).contains(rate);
    assert!(flooded.len() > 5 && flooded.iter().all(is_as_before), "{flooded:?}");
    assert!(attack.box_cores.is_some_and(|cores| cores <= 1.0), "{attack:?}");
    assert!(record.flows.iter().all(|flow| !flow.failed && flow.bytes > 0));
}
