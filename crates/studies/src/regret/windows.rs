//! Bytes that a site received in windows of time, without boxes and with boxes.

use serde::{Deserialize, Serialize};

use super::sequence::TRAFFIC_MS;

/// Length of a window (ms). Shorter windows compare single losses, longer ones hide a stall.
pub const WINDOW_MS: u64 = 10_000;
/// A run is worse in a window if it delivers less than this share of the run without boxes.
pub const SHARE_MIN: f64 = 0.9;
/// A window counts if data waited for this share of its time or longer without boxes. In other windows the requests
/// limit the deliveries, and not the path.
pub const WAITING_MIN: f64 = 0.5;
/// Length of the intervals that windows consist of (ms).
const INTERVAL_MS: u64 = 100;
/// Digits behind the point of stored numbers.
const DIGITS: i32 = 4;

/// Measurements of one run, in intervals of 100 ms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeenRun {
    /// Payload that the site's receivers read (bytes).
    pub bytes: Vec<u64>,
    /// Whether data waited at the end of the interval.
    pub waits: Vec<bool>,
}

/// A window of all runs of a sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegretWindow {
    /// Where the window begins (s since the start of the run).
    pub from_s: f64,
    /// Share of the time in which data waited without boxes (0 to 1).
    pub waiting: f64,
    /// Delivered without boxes (Mbit/s).
    pub none_mbit: f64,
    /// Delivered without boxes by connections that start a little later (Mbit/s).
    pub later_mbit: f64,
    /// Delivered with boxes whose limits are too high to limit anything (Mbit/s).
    pub unlimited_mbit: f64,
    /// Delivered with boxes (Mbit/s).
    pub boxes_mbit: f64,
    /// Share of the time in which the sendbox enforces the algorithm's limits (0 to 1).
    pub shaped: f64,
}

impl RegretWindow {
    /// Where the window ends (s since the start of the run).
    pub fn until_s(&self) -> f64 {
        self.from_s + WINDOW_MS as f64 / 1e3
    }

    /// Whether the window counts.
    pub fn counts(&self) -> bool {
        self.waiting >= WAITING_MIN && self.none_mbit > 0.0
    }

    /// `mbit` as a share of the deliveries without boxes.
    fn share(&self, mbit: f64) -> f64 {
        mbit / self.none_mbit
    }

    /// Deliveries with boxes as a share of those without; `None` where the window does not count.
    pub fn boxes(&self) -> Option<f64> {
        self.counts().then(|| self.share(self.boxes_mbit))
    }

    /// Deliveries of the later run without boxes as a share of the first run's; `None` where the window does not
    /// count.
    pub fn later(&self) -> Option<f64> {
        self.counts().then(|| self.share(self.later_mbit))
    }

    /// Deliveries with boxes that limit nothing as a share of those without boxes; `None` where the window does not
    /// count.
    pub fn unlimited(&self) -> Option<f64> {
        self.counts().then(|| self.share(self.unlimited_mbit))
    }
}

/// The windows from the start until all traffic ends. `shaped` is 0, as for a sendbox that never enforces limits.
pub fn windows(
    none: &SeenRun,
    later: &SeenRun,
    unlimited: &SeenRun,
    boxes: &SeenRun,
) -> Vec<RegretWindow> {
    let wide = (WINDOW_MS / INTERVAL_MS) as usize;
    let window = |number: u64| {
        let from = number as usize * wide;
        let mbit = |seen: &SeenRun| {
            let bytes: u64 = seen.bytes.iter().skip(from).take(wide).sum();
            rounded(bytes as f64 * 8.0 / (WINDOW_MS as f64 * 1e3))
        };
        let waits = none.waits.iter().skip(from).take(wide).filter(|it| **it).count();
        RegretWindow {
            from_s: (number * WINDOW_MS) as f64 / 1e3,
            waiting: rounded(waits as f64 / wide as f64),
            none_mbit: mbit(none),
            later_mbit: mbit(later),
            unlimited_mbit: mbit(unlimited),
            boxes_mbit: mbit(boxes),
            shaped: 0.0,
        }
    };
    (0..TRAFFIC_MS / WINDOW_MS).map(window).collect()
}

/// Rounds `value` as in rows.
pub fn rounded(value: f64) -> f64 {
    let scale = 10_f64.powi(DIGITS);
    // An empty sum is -0.
    (value * scale).round() / scale + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(bytes: u64, waits: usize) -> SeenRun {
        let waits = (0..1_200).map(|at| at % 100 < waits).collect();
        SeenRun { bytes: vec![bytes; 1_200], waits }
    }

    #[test]
    fn windows_have_shares_of_the_twin() {
        let all =
            windows(&seen(125_000, 100), &seen(125_000, 0), &seen(50_000, 0), &seen(100_000, 0));
        assert_eq!(all.len(), 12);
        assert_eq!((all[11].from_s, all[11].none_mbit), (110.0, 10.0));
        assert!(all.iter().all(|it| (it.boxes(), it.later()) == (Some(0.8), Some(1.0))));
        assert!(all.iter().all(|it| it.unlimited() == Some(0.4)));
    }

    #[test]
    fn windows_count_while_data_waits() {
        for (bytes, waits, counts) in [(125_000, 50, true), (125_000, 49, false), (0, 100, false)] {
            let none = seen(bytes, waits);
            let all = windows(&none, &none, &none, &none);
            assert!(all.iter().all(|it| it.counts() == counts), "{bytes} {waits}");
        }
    }

    #[test]
    fn missing_intervals_deliver_nothing() {
        let mut short = seen(125_000, 100);
        short.bytes.truncate(150);
        let all = windows(&seen(125_000, 100), &short, &short, &short);
        let shares: Vec<f64> = all.iter().filter_map(RegretWindow::boxes).collect();
        assert_eq!(&shares[..3], [1.0, 0.5, 0.0]);
    }
}
