//! Starlink downlink: satellites are assigned again every 15 s, with a step of rate and delay, and losses at each change.

use alloc::vec::Vec;

use super::{row, times, uniform};
use crate::link::Change;
use crate::random::Streams;
use crate::units::Duration;

/// Distance of rows: shorter than a handover.
const STEP: Duration = Duration::from_millis(100);
/// Rows of an interval: 15 s, from 12, 27, 42 and 57 s past the minute (Mohan et al., "A multifaceted look at Starlink
/// performance", WWW 2024).
const INTERVAL_STEPS: u64 = 150;
/// Rate of an interval in Mbit/s: the range of medians of counties is 47 to 147 (Ookla, Q3 2021), and Michel et al.
/// (IMC 2022) saw more than 300. The upper end is assumed.
const RATE_MBPS: [f64; 2] = [50.0, 220.0];
/// One-way delay of an interval in ms. Michel et al. (APNIC blog, 2022-11-28): round trips from 20 ms, quartiles 40 and
/// 60 ms; the ends are assumed around them.
const DELAY_MS: [f64; 2] = [15.0, 40.0];
/// Most jitter in ms, uniform. Two directions of it differ by 6.5 ms from round trip to round trip: Huston, "A transport
/// protocol's view of Starlink" (APNIC blog, 2024-05-17), measured 6.7 ms.
const JITTER_MS: f64 = 14.0;
/// Rows of a handover. Its 200 ms are assumed: pings a second apart, as in the sources, do not resolve it.
const HANDOVER_STEPS: u64 = 2;
/// One-way delay in ms that a handover adds: half of Huston's 30 to 50 ms of round trip.
const HANDOVER_DELAY_MS: [f64; 2] = [15.0, 25.0];
/// Loss in a handover: "up to 50 %" (Kassem et al., "A browser-side view of Starlink connectivity", IMC 2022). In the
/// mean of an interval 0.7 %; Huston saw 1 to 2 %.
const HANDOVER_LOSS: f64 = 0.5;

pub(super) fn rows(streams: &Streams, length: Duration) -> Vec<Change> {
    let [mut interval, mut jitter] = ["interval", "jitter"].map(|name| streams.stream(name));
    // Runs start at any time of day.
    let mut into = interval.below(INTERVAL_STEPS);
    let mut mbps = uniform(&mut interval, RATE_MBPS);
    let mut delay_ms = uniform(&mut interval, DELAY_MS);
    let next = |at| {
        if into == INTERVAL_STEPS {
            into = 0;
            mbps = uniform(&mut interval, RATE_MBPS);
            delay_ms = uniform(&mut interval, DELAY_MS);
        }
        let late_ms = delay_ms + uniform(&mut jitter, [0.0, JITTER_MS]);
        into += 1;
        if into > HANDOVER_STEPS {
            return row(at, mbps, late_ms, 0.0);
        }
        row(at, mbps, late_ms + uniform(&mut jitter, HANDOVER_DELAY_MS), HANDOVER_LOSS)
    };
    times(STEP, length).map(next).collect()
}
