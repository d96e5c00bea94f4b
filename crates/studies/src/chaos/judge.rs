//! Whether a bundle was ever worse than no boxes.

use super::sequence::Sequence;

/// Length of an interval of the series (ms).
const INTERVAL_MS: u64 = 100;
/// Time after an event that is not judged (ms).
const SETTLE_MS: u64 = 3_000;
/// Length of the windows that are judged (ms).
const WINDOW_MS: u64 = 2_000;
/// Least share of the twin's bytes that a window of the bundle must carry. A steady sequence is compared with the
/// twin's mean, an unsteady one with the twin's same window.
const SHARE_MIN: f64 = 0.5;
/// Windows of an unsteady sequence are judged where the second twin carries this share of the first: elsewhere chance
/// alone may halve a window.
const ALIKE_MIN: f64 = 0.7;
/// The twin has recovered from an outage once it carries [`SHARE_MIN`] for this long (ms).
const RECOVERED_MS: u64 = 500;
/// Longest time from the end of the last event until the bundle is shaped (ms).
const SHAPED_MS: u64 = 15_000;
/// A sendbox without decisions for this long does not shape: it reports one every 100 ms (ms).
const SILENT_MS: u64 = 1_000;
/// The start of a run is an event, too: connections start until then (ms).
const STARTED_MS: u64 = 1_000;

/// Measurements of one arm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeenArm {
    /// Bytes that the receivers of all flows read, in each 100 ms.
    pub bytes_per_100ms: Vec<u64>,
    /// The flows that were reset or failed, by name and number.
    pub resets: Vec<String>,
    /// Decisions of the sendbox in order of time: the time (ms), whether it shaped or passed traffic by choice, and the
    /// reason.
    pub decisions: Vec<(u64, bool, String)>,
}

impl SeenArm {
    /// Bytes in the intervals `from..to` (numbers of 100 ms).
    fn bytes(&self, from: usize, to: usize) -> u64 {
        let end = to.min(self.bytes_per_100ms.len());
        self.bytes_per_100ms.get(from.min(end)..end).map_or(0, |part| part.iter().sum())
    }

    /// Mean over `from..to` (Mbit/s).
    fn mbit(&self, from: usize, to: usize) -> f64 {
        let ms = (to.saturating_sub(from) as u64 * INTERVAL_MS).max(1);
        self.bytes(from, to) as f64 * 8.0 / (ms as f64 * 1e3)
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq)]
pub enum Violation {
    /// A connection was reset that the twin's was not.
    Reset(String),
    /// A window of 2 s carried too little.
    Starved {
        /// Where the worst one begins (s).
        at_s: f64,
        /// Share of the twin's bytes that it carried.
        share: f64,
    },
    /// The bundle was not shaped 15 s after the last event, and why.
    Unshaped(String),
}

impl Violation {
    /// One word for counting.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Reset(_) => "reset",
            Self::Starved { .. } => "starved",
            Self::Unshaped(_) => "unshaped",
        }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reset(flow) => write!(f, "flow {flow} was reset; the twin's was not"),
            Self::Starved { at_s, share } => write!(
                f,
                "the 2 s from {at_s:.1} s carried {share:.2} of the twin's data; allowed is {SHARE_MIN} or more"
            ),
            Self::Unshaped(why) => write!(f, "not shaped 15 s after the last event: {why}"),
        }
    }
}

/// Result of judging a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceVerdict {
    /// The rules that were broken; none: the bundle was never worse.
    pub violations: Vec<Violation>,
    /// The twin's mean over quiet windows (Mbit/s).
    pub twin_mbit: f64,
    /// Windows that were judged.
    pub windows: usize,
    /// The least window as a share of the twin's mean or window, and where it begins (s).
    pub least: Option<(f64, f64)>,
    /// When the bundle was shaped again for good, after the end of the last event (s).
    pub shaped_after_s: Option<f64>,
}

/// Judges the bundle's arm of `sequence` by its twins: one, or two of a sequence that is not steady.
///
/// # Panics
///
/// Without a twin.
pub fn judge(sequence: &Sequence, bundle: &SeenArm, twins: &[SeenArm]) -> SequenceVerdict {
    let twin = &twins[0];
    let quiet = quiet(sequence, twin);
    let length: usize = quiet.iter().map(|(from, to)| to - from).sum();
    let bytes: u64 = quiet.iter().map(|(from, to)| twin.bytes(*from, *to)).sum();
    let twin_mbit = bytes as f64 * 8.0 / ((length as u64 * INTERVAL_MS).max(1) as f64 * 1e3);
    let wide = (WINDOW_MS / INTERVAL_MS) as usize;
    let starts =
        quiet.iter().flat_map(|(from, to)| *from..(to + 1).saturating_sub(wide).max(*from));
    let carried = |seen: &SeenArm, from: usize| seen.mbit(from, from + wide);
    // Bytes that a window is compared with; `None` if it is not judged.
    let expected = |from: usize| match twins {
        [twin, again, ..] => {
            let first = carried(twin, from);
            (carried(again, from) >= ALIKE_MIN * first).then_some(first)
        }
        _ => Some(twin_mbit),
    };
    let share = |from: usize| Some((carried(bundle, from) / expected(from)?, from));
    let windows: Vec<(f64, f64)> = starts
        .filter_map(share)
        .map(|(share, from)| (share, from as f64 * INTERVAL_MS as f64 / 1e3))
        .collect();
    let least =
        windows.iter().copied().filter(|it| it.0.is_finite()).min_by(|a, b| a.0.total_cmp(&b.0));
    let new = bundle.resets.iter().filter(|flow| !twin.resets.contains(flow));
    let mut violations: Vec<Violation> = new.map(|flow| Violation::Reset(flow.clone())).collect();
    violations.extend(
        least
            .filter(|(share, _)| *share < SHARE_MIN)
            .map(|(share, at_s)| Violation::Starved { at_s, share }),
    );
    let shaped_after_s = match shaped_again(sequence.last_ms(), &bundle.decisions) {
        Ok(after_s) => Some(after_s),
        Err(why) => {
            violations.push(Violation::Unshaped(why));
            None
        }
    };
    SequenceVerdict { violations, twin_mbit, windows: windows.len(), least, shaped_after_s }
}

/// The quiet intervals, in numbers of 100 ms: from 3 s after each beginning or end of an event to the next. After an
/// outage they begin 3 s after the twin recovered.
fn quiet(sequence: &Sequence, twin: &SeenArm) -> Vec<(usize, usize)> {
    let mut marks: Vec<(u64, u64, bool)> = vec![(0, STARTED_MS, false)];
    for event in &sequence.events {
        if event.kind.is_outage() {
            marks.push((event.at_ms, event.until_ms, true));
        } else {
            marks.extend([event.at_ms, event.until_ms].map(|at_ms| (at_ms, at_ms, false)));
        }
    }
    let number = |ms: u64| ms.div_ceil(INTERVAL_MS) as usize;
    let stop = (sequence.stop_ms() / INTERVAL_MS) as usize;
    let ends = marks.iter().skip(1).map(|mark| (mark.0 / INTERVAL_MS) as usize);
    let mut quiet: Vec<(usize, usize)> = Vec::new();
    let mut usual = None;
    for ((_, until_ms, is_outage), end) in marks.iter().zip(ends.chain([stop])) {
        let over = number(*until_ms);
        let over = if *is_outage { recovered(twin, over, end, usual) } else { over };
        let from = over + number(SETTLE_MS);
        if from + number(WINDOW_MS) <= end {
            quiet.push((from, end));
            usual = usual.or_else(|| Some(twin.mbit(from, end)));
        }
    }
    quiet
}

/// When the twin again carried half of the bytes that were `usual` before the first event; `end` if it did not before.
fn recovered(twin: &SeenArm, from: usize, end: usize, usual: Option<f64>) -> usize {
    let wide = (RECOVERED_MS / INTERVAL_MS) as usize;
    let enough = SHARE_MIN * usual.unwrap_or_default();
    let carries = |at: &usize| [1, wide].iter().all(|long| twin.mbit(*at, at + long) >= enough);
    (from..end).find(carries).unwrap_or(end)
}

/// How long after `last_ms` the bundle was shaped for good (s), or why it was not within 15 s.
fn shaped_again(last_ms: u64, decisions: &[(u64, bool, String)]) -> Result<f64, String> {
    let deadline_ms = last_ms + SHAPED_MS;
    let known = decisions.iter().take_while(|(at_ms, ..)| *at_ms <= deadline_ms);
    let known: Vec<_> = known.collect();
    let Some((said_ms, is_shaped, why)) = known.last().copied() else {
        return Err("the sendbox reported no decision".into());
    };
    if said_ms + SILENT_MS < deadline_ms {
        let ago_s = (deadline_ms - said_ms) as f64 / 1e3;
        return Err(format!(
            "the sendbox reported no decision for {ago_s:.1} s; the last was: {why}"
        ));
    }
    if !is_shaped {
        return Err(why.clone());
    }
    let shaped =
        known.iter().rev().take_while(|(at_ms, is_shaped, _)| *is_shaped && *at_ms >= last_ms);
    let since_ms = shaped.last().map_or(deadline_ms, |(at_ms, ..)| *at_ms);
    Ok((since_ms - last_ms) as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::super::sequence::{ChaosEvent, Cross, End, EventKind, Unsteady};
    use super::*;

    /// Bytes of an undisturbed bundle in 100 ms: 10 Mbit/s.
    const PER_100MS: u64 = 125_000;
    /// The twin recovers at 16 s from the outage that ends at 15 s.
    const OUTAGE: Range<usize> = 140..160;

    /// A route change at 8 s, an outage from 14 to 15 s and a kill from 24 to 26 s; the run ends at 41.5 s.
    fn sequence() -> Sequence {
        let event = |at_ms, until_ms, kind| ChaosEvent { at_ms, until_ms, kind };
        Sequence {
            seed: 1,
            rate_mbit: 10,
            rtt_ms: 10,
            buffer_packets: 60,
            unsteady: Unsteady::No,
            cross: Cross::No,
            fills_way_back: false,
            in_kernel: false,
            law: "copa",
            qdisc: "sfq",
            flows: [2, 1],
            load_percent: 5,
            events: vec![
                event(8_000, 8_000, EventKind::Route(50)),
                event(14_000, 15_000, EventKind::LinkDown),
                event(24_000, 26_000, EventKind::Kill(End::Sendbox)),
            ],
        }
    }

    /// An arm that carries 10 Mbit/s but in the outage and a gap (numbers of 100 ms), where nothing passes.
    fn seen(outage: Range<usize>, gap: Range<usize>) -> SeenArm {
        let passes = |at: &usize| !outage.contains(at) && !gap.contains(at);
        let carried = |at: usize| if passes(&at) { PER_100MS } else { 0 };
        let shaped = |ms: u64| (ms, !(24_000..28_000).contains(&ms), "test".to_string());
        SeenArm {
            bytes_per_100ms: (0..415).map(carried).collect(),
            decisions: (0..415).map(|at| shaped(at * 100)).collect(),
            ..SeenArm::default()
        }
    }

    fn twin() -> SeenArm {
        seen(OUTAGE, 0..0)
    }

    fn kinds(bundle: &SeenArm) -> Vec<&'static str> {
        judge(&sequence(), bundle, &[twin()]).violations.iter().map(Violation::kind).collect()
    }

    #[test]
    fn bundle_like_its_twin_breaks_no_rule() {
        let verdict = judge(&sequence(), &twin(), &[twin()]);
        assert_eq!(verdict.violations, []);
        assert!((verdict.twin_mbit - 10.0).abs() < 1e-9);
        assert_eq!(verdict.least.map(|it| it.0), Some(1.0));
        assert_eq!(verdict.shaped_after_s, Some(2.0));
        // 4 to 8 s, 11 to 14 s, 19 to 24 s (3 s after the twin recovered) and 29 to 41.5 s.
        assert_eq!(quiet(&sequence(), &twin()), [(40, 80), (110, 140), (190, 240), (290, 415)]);
        assert_eq!(verdict.windows, 21 + 11 + 31 + 106);
    }

    #[test]
    fn reset_that_twin_lacks_is_a_violation() {
        let mut bundle = twin();
        bundle.resets = vec!["cubic 1".into()];
        assert_eq!(kinds(&bundle), ["reset"]);
        let mut other = twin();
        other.resets = vec!["cubic 1".into(), "reno 0".into()];
        assert_eq!(judge(&sequence(), &bundle, &[other]).violations, []);
    }

    #[test]
    fn slow_window_is_violation_only_while_quiet() {
        // 1.1 of 2 s without a byte; half of the time is allowed.
        let worse = judge(&sequence(), &seen(OUTAGE, 200..211), &[twin()]);
        let [Violation::Starved { at_s, share }] = worse.violations[..] else {
            panic!("{worse:?}")
        };
        assert!((19.0..=20.0).contains(&at_s) && (share - 0.45).abs() < 1e-9, "{at_s} {share}");
        assert_eq!(kinds(&seen(OUTAGE, 200..210)), [""; 0]);
        // Up to 3 s after an event, and 3 s after the twin recovered, nothing is judged.
        for gap in [80..110, 140..190, 240..270, 260..290] {
            assert_eq!(kinds(&seen(OUTAGE, gap.clone())), [""; 0], "{gap:?}");
        }
        for gap in [95..125, 180..205, 275..305, 400..415] {
            assert_eq!(kinds(&seen(OUTAGE, gap.clone())), ["starved"], "{gap:?}");
        }
        // Missing intervals at the end count as empty.
        let mut short = twin();
        short.bytes_per_100ms.truncate(400);
        assert_eq!(kinds(&short), ["starved"]);
    }

    #[test]
    fn unsteady_windows_are_compared_with_two_twins() {
        let half = |range: Range<usize>| {
            let mut seen = twin();
            seen.bytes_per_100ms[range].iter_mut().for_each(|it| *it /= 2);
            seen
        };
        let judged =
            |bundle: &SeenArm, twins: &[SeenArm]| judge(&sequence(), bundle, twins).violations;
        // A third of the mean, where the first twin has a half: two thirds of its window.
        let mut bundle = twin();
        bundle.bytes_per_100ms[190..240].iter_mut().for_each(|it| *it /= 3);
        assert_eq!(judged(&bundle, &[half(190..240), half(190..240)]), []);
        assert_eq!(judged(&bundle, &[twin(), twin()])[0].kind(), "starved");
        // If the second twin has less than 0.7 of the first, the window is not judged: chance explains the difference.
        assert_eq!(judged(&bundle, &[twin(), half(190..240)]), []);
    }

    #[test]
    fn outage_is_unjudged_unless_twin_recovers() {
        let lost = seen(140..240, 0..0);
        assert_eq!(quiet(&sequence(), &lost), [(40, 80), (110, 140), (290, 415)]);
        assert_eq!(judge(&sequence(), &seen(140..240, 0..0), &[lost]).violations, []);
    }

    #[test]
    fn bundle_must_be_shaped_15_s_after_events() {
        let mut bundle = twin();
        let unshaped_until = |bundle: &mut SeenArm, ms| {
            let decisions = bundle.decisions.iter_mut().filter(|it| it.0 >= 26_000);
            decisions.for_each(|it| it.1 = it.0 >= ms);
        };
        unshaped_until(&mut bundle, 41_000);
        assert_eq!(kinds(&bundle), [""; 0]);
        unshaped_until(&mut bundle, 41_100);
        assert_eq!(kinds(&bundle), ["unshaped"]);
        // A sendbox that stops reporting is not shaped either.
        let mut silent = twin();
        silent.decisions.retain(|it| it.0 < 39_900);
        assert_eq!(kinds(&silent), ["unshaped"]);
        silent.decisions.clear();
        assert_eq!(kinds(&silent), ["unshaped"]);
    }
}
