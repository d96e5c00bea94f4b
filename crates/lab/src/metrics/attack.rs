//! Messages sent to a box in its peer's name, and the box's reaction.

use forebay_core::record::AttackRecord;

use super::Metrics;
use super::entry::Pooling::{Min, Sum};
use super::entry::{Entry, OWN, entry};
use super::statistics::share;

/// Rejection reasons of a box (`forebay_core::bundle::wire::Reject`) for each kind of message. A changed byte
/// may hit any field. A session recorded before a restart also has unknown handshakes.
const REASONS: [(&str, &[&str]); 5] = [
    ("forged", &["forged", "not_ours", "version", "unknown_bundle", "unknown_type", "malformed"]),
    ("replayed", &["replayed"]),
    ("recorded", &["unknown_session", "stale_nonce", "limited"]),
    ("truncated", &["truncated"]),
    ("oversized", &["oversized"]),
];

/// Metrics of an attack.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("attack_sent", "run arm", "", Sum, "hostile messages sent; also by [kind]",
        "#{messages}", OWN),
    entry("attack_refused", "run arm", "", Sum,
        "hostile messages that the attacker's own socket could not send",
        "#{messages refused}", OWN),
    entry("attack_received", "run arm", "", Sum,
        "datagrams that the attacked sendbox or receivebox read, including its peer's",
        "#{datagrams read}", OWN),
    entry("attack_rejected", "run arm", "", Sum,
        "datagrams that the attacked sendbox or receivebox rejected; also by [reason]",
        "#{datagrams rejected}", OWN),
    entry("attack_counted", "run arm", "", Min,
        "by [kind]: rejected datagrams of the kind divided by the arrived datagrams of the kind, \
         estimated from the kind's share of all sent messages",
        "rejected_kind / (sent_kind min(1, received / (sent - refused)))", OWN),
];

/// The metrics of an attack.
pub fn metrics(row: &AttackRecord) -> Metrics {
    let mut metrics = Metrics::default();
    let sent = [
        ("forged", row.forged),
        ("replayed", row.replayed),
        ("recorded", row.recorded),
        ("truncated", row.truncated),
        ("oversized", row.oversized),
    ]
    .map(|(kind, count)| (kind.to_string(), count));
    for (name, counts) in [("attack_sent", &sent[..]), ("attack_rejected", &row.rejected)] {
        for (kind, count) in counts {
            metrics.put(&format!("{name}[{kind}]"), Some(*count as f64));
        }
        metrics.put(name, Some(sum(counts, |_| true)));
    }
    metrics.put("attack_refused", Some(row.refused as f64));
    metrics.put("attack_received", Some(row.received as f64));
    // A socket drops excess messages regardless of their kind.
    let reached = sum(&sent, |_| true) - row.refused as f64;
    let arrived = share(row.received as f64, reached).map_or(0.0, |arrived| arrived.min(1.0));
    for (kind, reasons) in REASONS {
        let sent = sum(&sent, |name| name == kind);
        let rejected = sum(&row.rejected, |name| reasons.contains(&name));
        metrics.put(&format!("attack_counted[{kind}]"), share(rejected, sent * arrived));
    }
    metrics
}

fn sum(counts: &[(String, u64)], keep: impl Fn(&str) -> bool) -> f64 {
    counts.iter().filter(|(name, _)| keep(name)).map(|(_, count)| *count as f64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::describe;

    #[test]
    fn every_kind_is_counted_and_described() {
        let counts = |kinds: &[(&str, u64)]| {
            kinds.iter().map(|(kind, count)| (kind.to_string(), *count)).collect()
        };
        let metrics = metrics(&AttackRecord {
            forged: 5,
            replayed: 7,
            recorded: 9,
            refused: 1,
            received: 10,
            rejected: counts(&[("forged", 1), ("version", 1), ("unknown_session", 3)]),
            ..AttackRecord::default()
        });
        let get = |name: &str| metrics.get(name);
        assert_eq!((get("attack_sent"), get("attack_sent[replayed]")), (Some(21.0), Some(7.0)));
        assert_eq!(get("attack_rejected"), Some(5.0));
        assert_eq!(get("attack_rejected[unknown_session]"), Some(3.0));
        // Half of the messages arrived: 2 of 2.5 forged ones are recognised.
        assert_eq!(get("attack_counted[forged]"), Some(0.8));
        assert_eq!(get("attack_counted[replayed]"), Some(0.0));
        assert_eq!(get("attack_counted[truncated]"), None);
        for name in metrics.0.keys() {
            assert!(describe(name).is_some(), "{name}");
        }
    }

    #[test]
    fn the_reasons_are_those_of_the_boxes() {
        let names = forebay_core::bundle::wire::Reject::ALL.map(|reject| reject.name());
        for reason in REASONS.iter().flat_map(|(_, reasons)| *reasons) {
            assert!(names.contains(reason), "{reason}");
        }
    }
}
