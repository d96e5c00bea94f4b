//! What was sent to a box in its peer's name, and what it made of it.

use super::Metrics;
use crate::rows::AttackRow;

/// The metrics of an attack.
pub fn metrics(row: &AttackRow) -> Metrics {
    let mut metrics = Metrics::default();
    for (name, counts) in [("attack_sent", &row.sent), ("attack_rejected", &row.rejected)] {
        for (kind, count) in counts {
            metrics.put(&format!("{name}[{kind}]"), Some(*count as f64));
        }
        metrics.put(name, Some(counts.iter().map(|(_, count)| *count as f64).sum()));
    }
    metrics.put("attack_refused", Some(row.refused as f64));
    metrics.put("attack_received", Some(row.received as f64));
    metrics.put("attack_box_cores", row.box_cores);
    metrics.put("attack_took_s", Some(row.took_ns as f64 / 1e9));
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::describe;

    #[test]
    fn every_kind_is_counted_beside_the_sum_and_described() {
        let counts = |kinds: &[(&str, u64)]| {
            kinds.iter().map(|(kind, count)| (kind.to_string(), *count)).collect()
        };
        let metrics = metrics(&AttackRow {
            sent: counts(&[("forged", 5), ("replayed", 7)]),
            refused: 1,
            took_ns: 2_500_000_000,
            box_cores: Some(0.5),
            received: 20,
            rejected: counts(&[("forged", 4), ("unknown_session", 6)]),
        });
        let get = |name: &str| metrics.get(name);
        assert_eq!((get("attack_sent"), get("attack_sent[replayed]")), (Some(12.0), Some(7.0)));
        assert_eq!(get("attack_rejected"), Some(10.0));
        assert_eq!(get("attack_rejected[unknown_session]"), Some(6.0));
        assert_eq!((get("attack_took_s"), get("attack_received")), (Some(2.5), Some(20.0)));
        for name in metrics.0.keys() {
            assert!(describe(name).is_some(), "{name}");
        }
    }
}
