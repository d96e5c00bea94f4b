//! Cable upstream: nearly constant rate, and the delay of asking for each grant.

use alloc::vec::Vec;

use super::{BEYOND_MS, chance_within, row, times, uniform};
use crate::link::Change;
use crate::random::Streams;
use crate::units::Duration;

/// Distance of rows: a few grants each.
const STEP: Duration = Duration::from_millis(20);
/// Subscribed upstream rate in Mbit/s. Assumed; a plan's own `rate` is easier than a model where this matters.
const RATE_MBPS: f64 = 20.0;
/// Delay of request and grant in ms (White, Sundaresan, Briscoe, "Low Latency DOCSIS: Technology Overview", CableLabs
/// 2019, also draft-white-tsvwg-lld-00: media acquisition of 2 to 8 ms in DOCSIS 3.1).
const GRANT_MS: [f64; 2] = [2.0, 8.0];
/// Share of the rate that is left while neighbours load the segment. Assumed.
const LOADED_SHARE: f64 = 0.8;
/// Mean time for which they do so, and do not, s. Assumed.
const LOADED_S: f64 = 30.0;

pub(super) fn rows(streams: &Streams, length: Duration) -> Vec<Change> {
    let [mut load, mut grants] = ["load", "grants"].map(|name| streams.stream(name));
    let turns = chance_within(STEP, LOADED_S);
    let mut is_loaded = load.chance(0.5);
    let next = |at| {
        is_loaded ^= load.chance(turns);
        let mbps = if is_loaded { RATE_MBPS * LOADED_SHARE } else { RATE_MBPS };
        row(at, mbps, BEYOND_MS + uniform(&mut grants, GRANT_MS), 0.0)
    };
    times(STEP, length).map(next).collect()
}
