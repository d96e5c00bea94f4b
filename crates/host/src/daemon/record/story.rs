//! Events in a recording, in sentences.

use std::collections::BTreeMap;

use super::Look;
use crate::daemon::status::{BundleStatus, Status, millis};

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// Time since the beginning of the recording (s).
    pub at_s: f64,
    /// Subject of the event: a box, or a bundle of it.
    pub whom: String,
    /// The event, as a sentence without a full stop.
    pub what: String,
}

/// Known state of a box.
#[derive(Default)]
struct Known {
    pid: u32,
    uptime_ns: u64,
    is_there: bool,
    failed_conditions: Vec<String>,
    bundles: BTreeMap<String, Bundle>,
}

/// Known state of a bundle of a box.
#[derive(Default)]
struct Bundle {
    state: String,
    peer: String,
    alarm: Option<String>,
    dropped: u64,
}

/// Most moments that are kept.
pub const MOMENTS_MAX: usize = 10_000;
/// Longest text of a moment (bytes).
const TEXT_MAX: usize = 1000;
/// Most boxes in a recording: a machine has a few.
pub(super) const BOXES_MAX: usize = 16;

/// Everything that changed from look to look.
#[derive(Default)]
pub(super) struct Story {
    boxes: BTreeMap<String, Known>,
    moments: Vec<Moment>,
    left_out: usize,
}

impl Story {
    /// Adds the next look; `Err`: there are too many boxes.
    pub fn add(&mut self, look: &Look) -> Result<(), String> {
        let Self { boxes, moments, left_out } = self;
        let mut tell = |at_s: f64, whom: &str, what: String| {
            if moments.len() == MOMENTS_MAX {
                *left_out += 1;
                return;
            }
            let [whom, what] =
                [whom, &what].map(|text| text[..text.floor_char_boundary(TEXT_MAX)].into());
            moments.push(Moment { at_s, whom, what });
        };
        // Two boxes of one role on a machine have different devices.
        let named = |status: &Status| {
            let devices: Vec<&str> = status.ports.iter().map(|port| port.device.as_str()).collect();
            format!("{} ({})", status.role, devices.join(", "))
        };
        let names: Vec<String> = look.boxes.iter().map(named).collect();
        for (name, known) in boxes.iter_mut() {
            if known.is_there && !names.contains(name) {
                known.is_there = false;
                tell(look.at_s, name, "no longer answers".into());
            }
        }
        for (name, status) in names.into_iter().zip(&look.boxes) {
            if boxes.len() == BOXES_MAX && !boxes.contains_key(&name) {
                return Err(format!("boxes: allowed are at most {BOXES_MAX} in all"));
            }
            let known = boxes.entry(name.clone()).or_default();
            follow_box(known, look.at_s, &name, status, &mut tell);
        }
        Ok(())
    }

    /// The events in order of time, and how many more there were.
    pub fn finish(mut self) -> (Vec<Moment>, usize) {
        self.moments.sort_by(|one, next| one.at_s.total_cmp(&next.at_s));
        (self.moments, self.left_out)
    }
}

fn follow_box(
    known: &mut Known,
    at_s: f64,
    name: &str,
    status: &Status,
    tell: &mut impl FnMut(f64, &str, String),
) {
    if known.pid != status.pid || known.uptime_ns > status.uptime_ns {
        let version = &status.version;
        let up_s = status.uptime_ns as f64 / 1e9;
        let dry = if status.dry_run { ", in a dry run: nothing is shaped" } else { "" };
        tell(at_s, name, format!("runs for {up_s:.1} s, version {version}{dry}"));
        *known = Known { pid: status.pid, ..Known::default() };
    } else if !known.is_there {
        tell(at_s, name, "answers again".into());
    }
    (known.is_there, known.uptime_ns) = (true, status.uptime_ns);
    let failed: Vec<String> = status.failed_conditions.iter().map(ToString::to_string).collect();
    for fault in failed.iter().filter(|fault| !known.failed_conditions.contains(fault)) {
        tell(at_s, name, fault.clone());
    }
    if failed.is_empty() && !known.failed_conditions.is_empty() {
        tell(at_s, name, "all conditions of its devices hold again".into());
    }
    known.failed_conditions = failed;
    known.bundles.retain(|name, _| status.bundles.iter().any(|bundle| bundle.name == *name));
    for bundle in &status.bundles {
        let whom = format!("{} bundle {}", status.role, bundle.name);
        let known = known.bundles.entry(bundle.name.clone()).or_default();
        follow_bundle(known, at_s, &whom, status, bundle, tell);
    }
}

fn follow_bundle(
    known: &mut Bundle,
    at_s: f64,
    whom: &str,
    status: &Status,
    bundle: &BundleStatus,
    tell: &mut impl FnMut(f64, &str, String),
) {
    let other = status.role.other();
    if known.peer != bundle.peer.state {
        let what = match bundle.peer.state.as_str() {
            "alive" => format!("the {other} at {} is alive", bundle.peer.address),
            "silent" => format!("the {other} at {} is silent", bundle.peer.address),
            _ => format!("the {other} at {} was never heard", bundle.peer.address),
        };
        tell(at_s, whom, what);
        known.peer.clone_from(&bundle.peer.state);
    }
    let watching = bundle.watching.as_ref().and_then(|watching| watching.alarm.clone());
    let alarm = bundle.shaping.as_ref().and_then(|shaping| shaping.alarm.clone()).or(watching);
    if known.alarm != alarm {
        tell(at_s, whom, alarm.clone().unwrap_or_else(|| "the alarm has ended".into()));
        known.alarm = alarm;
    }
    let Some(shaping) = &bundle.shaping else { return };
    // Decisions have times of their own. The newest one is in force now, even if it is not in the list.
    for decision in shaping.decisions.iter().chain([&shaping.decision]) {
        if known.state == decision.state {
            continue;
        }
        let since_s = status.at_ns.saturating_sub(decision.at_ns) as f64 / 1e9;
        let limit = decision
            .rate_bps
            .map_or("unshaped".into(), |bps| format!("shaped to {:.1} Mbit/s", bps as f64 / 1e6));
        let rtt = decision.min_rtt_ns.map_or(String::new(), |ns| {
            let beyond = decision
                .queue_delay_ns
                .map_or(String::new(), |ns| format!(", {} of queue beyond", millis(Some(ns))));
            format!("; {} of round trip{beyond}", millis(Some(ns)))
        });
        let (state, reason) = (&decision.state, &decision.reason);
        // States that began before the recording appear at its beginning.
        tell((at_s - since_s).max(0.0), whom, format!("{state}, {limit}: {reason}{rtt}"));
        known.state.clone_from(state);
    }
    let dropped = shaping.counters.drops_queue;
    if dropped > known.dropped && known.dropped > 0 {
        let more = dropped - known.dropped;
        tell(at_s, whom, format!("its own queue has dropped {more} packets since the last sample"));
    }
    known.dropped = dropped;
}

#[cfg(test)]
mod tests {
    use super::super::tests::{look, sendbox};
    use super::*;
    use crate::daemon::status::PortStatus;

    fn told(looks: &[Look]) -> Vec<String> {
        let mut story = Story::default();
        looks.iter().for_each(|look| story.add(look).unwrap());
        let (moments, left_out) = story.finish();
        assert_eq!(left_out, 0);
        moments.iter().map(|it| format!("{:.1} {}: {}", it.at_s, it.whom, it.what)).collect()
    }

    #[test]
    fn each_state_is_reported_once_at_its_time() {
        let mut looks = vec![
            look(0.0, sendbox(100, &[(90, "measuring"), (99, "shaping")])),
            look(1.0, sendbox(101, &[(101, "shaping")])),
            look(2.0, sendbox(102, &[(101, "competing"), (102, "shaping")])),
        ];
        looks[1].boxes[0].bundles[0].peer.state = "alive".into();
        looks[2].boxes[0].bundles[0].peer.state = "alive".into();
        let told = told(&looks);
        assert!(told[0].starts_with("0.0 sendbox (): runs for 100.0 s, version "), "{told:#?}");
        let expected = [
            "0.0 sendbox bundle b: measuring, unshaped: for a test",
            "0.0 sendbox bundle b: shaping, shaped to 90.0 Mbit/s: for a test",
            "1.0 sendbox bundle b: the receivebox at  is alive",
            "1.0 sendbox bundle b: competing, unshaped: for a test",
            "2.0 sendbox bundle b: shaping, shaped to 90.0 Mbit/s: for a test",
        ];
        assert_eq!(told[1..], expected);
    }

    #[test]
    fn restart_of_a_box_is_reported() {
        let again = Status { uptime_ns: 500_000_000, ..sendbox(103, &[(103, "no_peer")]) };
        let looks = [
            look(0.0, sendbox(100, &[(100, "shaping")])),
            Look { at_s: 1.0, boxes: Vec::new() },
            Look { at_s: 2.0, boxes: Vec::new() },
            look(3.0, again),
        ];
        let told = told(&looks);
        assert_eq!(told.iter().filter(|it| it.ends_with("no longer answers")).count(), 1);
        assert!(told.iter().any(|it| it.starts_with("1.0 sendbox (): no longer")), "{told:#?}");
        assert!(told.iter().any(|it| it.contains("runs for 0.5 s")), "{told:#?}");
        assert!(told.last().unwrap().contains("no_peer, unshaped"), "{told:#?}");
    }
    #[test]
    fn moments_and_boxes_are_bounded() {
        let mut story = Story::default();
        for second in 0..2 * MOMENTS_MAX as u64 {
            let boxes = if second % 2 == 0 { vec![sendbox(second, &[])] } else { Vec::new() };
            story.add(&Look { at_s: second as f64, boxes }).unwrap();
        }
        let (moments, left_out) = story.finish();
        assert_eq!(moments.len(), MOMENTS_MAX);
        assert!(left_out > MOMENTS_MAX / 2, "{left_out}");

        let mut story = Story::default();
        let mut status = sendbox(1, &[]);
        status.failed_conditions.clear();
        status.version = "é".repeat(TEXT_MAX);
        story.add(&look(0.0, status.clone())).unwrap();
        for device in 1..=BOXES_MAX {
            let port = PortStatus { device: format!("wan{device}"), ..PortStatus::default() };
            status.ports = vec![port];
            let result = story.add(&look(device as f64, status.clone()));
            assert_eq!(result.is_ok(), device < BOXES_MAX, "{result:?}");
        }
        assert!(story.finish().0.iter().all(|it| it.what.len() <= TEXT_MAX));
    }
}
