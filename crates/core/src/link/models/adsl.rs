//! ADSL: a constant rate in ATM cells behind an interleaver, with impulse noise and, rarely, a line that trains again.

use alloc::vec::Vec;

use super::{BEYOND_MS, chance_within, row, times, uniform};
use crate::link::Change;
use crate::random::Streams;
use crate::units::Duration;

/// Distance of rows, and length of a burst of losses: an impulse spoils all that the interleaver spreads over 16 ms.
const STEP: Duration = Duration::from_millis(20);
/// Rate at which the line trains, in Mbit/s: up to 8.128, 254 times 32 kbit/s (ITU-T G.992.1). The lower end is assumed.
const SYNC_MBPS: [f64; 2] = [2.0, 8.128];
/// Share of frames in cells: 1514 bytes, 10 of RFC 2684 and 8 of AAL5 take 32 cells of 53 bytes.
const CELLS: f64 = 1514.0 / 1696.0;
/// Delay of the interleaver in ms: 8 to 16 in providers' profiles (DSLAM manuals; ITU-T G.997.1 leaves the most to them).
const INTERLEAVING_MS: [f64; 2] = [8.0, 16.0];
/// Mean distance of impulses that the interleaver does not repair, s. Assumed: a line on which noise is an issue.
const IMPULSE_S: f64 = 60.0;
/// Mean time until the line trains again, s. Assumed: once an hour, on a bad line.
const RETRAIN_S: f64 = 3600.0;
/// Rows for which it trains: 20 s. Assumed.
const RETRAIN_STEPS: u32 = 1000;

pub(super) fn rows(streams: &Streams, length: Duration) -> Vec<Change> {
    let [mut line, mut noise] = ["line", "noise"].map(|name| streams.stream(name));
    let mbps = uniform(&mut line, SYNC_MBPS) * CELLS;
    let delay_ms = BEYOND_MS + uniform(&mut line, INTERLEAVING_MS);
    let (strikes, retrains) = (chance_within(STEP, IMPULSE_S), chance_within(STEP, RETRAIN_S));
    let mut training = 0_u32;
    let next = |at| {
        let loss = if noise.chance(strikes) { 1.0 } else { 0.0 };
        if training > 0 {
            training -= 1;
            return row(at, 0.0, delay_ms, 0.0);
        }
        if line.chance(retrains) {
            training = RETRAIN_STEPS;
        }
        row(at, mbps, delay_ms, loss)
    };
    times(STEP, length).map(next).collect()
}
