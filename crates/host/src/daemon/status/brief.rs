//! One line per bundle, for boxes with too many bundles to show everything.

use std::fmt::{Result, Write};

use forebay_core::bundle::NAME_MAX;

use super::{BundleStatus, mbit, millis};

/// With more bundles than this, each has one line.
pub(super) const MOST_IN_FULL: usize = 20;

/// Writes the lines, and how to see more.
pub(super) fn write(out: &mut impl Write, bundles: &[BundleStatus]) -> Result {
    let names = bundles.iter().map(|bundle| bundle.name.len());
    let width = names.max().unwrap_or(0).min(NAME_MAX);
    let silent = bundles.iter().filter(|bundle| bundle.peer.state != "alive").count();
    writeln!(out, "\n{} bundles, {silent} with a silent peer", bundles.len())?;
    for bundle in bundles {
        writeln!(out, "{:<width$}  {:<8}{}", bundle.name, bundle.peer.state, told(bundle))?;
    }
    writeln!(out, "details of a bundle: forebay status --bundle {}", bundles[0].name)
}

/// The most important state of a bundle.
fn told(bundle: &BundleStatus) -> String {
    let alarm =
        |alarm: &Option<String>| alarm.as_ref().map_or(String::new(), |it| format!("  {it}"));
    match (&bundle.shaping, &bundle.watching) {
        (Some(shaping), _) => {
            let rate = shaping.decision.rate_bps.map_or("unshaped".into(), mbit);
            let last = shaping.last_second;
            let (sent, waited) = (mbit(last.sent_bps), millis(last.queue_delay_ns));
            let (state, alarm) = (&shaping.decision.state, alarm(&shaping.alarm));
            format!("{state:<12} rate {rate:>14}  sent {sent:>14}  waited {waited:>10}{alarm}")
        }
        (None, Some(watching)) => {
            let (packets, reports) = (bundle.packets, watching.reports);
            format!("packets {packets:>12}  reports {reports:>10}{}", alarm(&watching.alarm))
        }
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LastSecond, PeerStatus, ShapingStatus, WatchingStatus};
    use super::*;

    #[test]
    fn brief_status_has_one_line_per_bundle() {
        let bundle = |id: u16| {
            let last_second = LastSecond { sent_bps: 7_000_000, ..LastSecond::default() };
            let mut shaping = ShapingStatus { last_second, ..ShapingStatus::default() };
            shaping.decision.state = "shaping".into();
            shaping.decision.rate_bps = (id != 1).then_some(9_500_000);
            shaping.alarm = (id == 2).then(|| "some packets are not seen".into());
            let state = if id == 3 { "silent" } else { "alive" }.into();
            BundleStatus {
                name: format!("site-{id}"),
                id,
                peer: PeerStatus { state, ..PeerStatus::default() },
                shaping: Some(shaping),
                ..BundleStatus::default()
            }
        };
        let mut bundles: Vec<BundleStatus> = (0..1000).map(bundle).collect();
        bundles[4].shaping = None;
        bundles[4].watching = Some(WatchingStatus { reports: 77, ..WatchingStatus::default() });
        let mut text = String::new();
        write(&mut text, &bundles).unwrap();
        let lines: Vec<&str> = text.trim_start().lines().collect();
        assert_eq!(lines.len(), 1002);
        assert_eq!(lines[0], "1000 bundles, 1 with a silent peer");
        let rows: [(usize, &[&str]); 6] = [
            (1, &["site-0", "alive", "shaping", " 9.500 Mbit/s", " 7.000 Mbit/s"]),
            (2, &["unshaped", "waited    unknown"]),
            (3, &["some packets are not seen"]),
            (4, &["silent"]),
            (5, &["reports         77"]),
            (1001, &["forebay status --bundle site-0"]),
        ];
        for (line, parts) in rows {
            assert!(parts.iter().all(|part| lines[line].contains(part)), "{}", lines[line]);
        }
    }
}
