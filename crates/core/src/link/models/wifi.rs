//! Wi-Fi: the rate follows the modulation that Minstrel chooses and the airtime that other stations take, the delay the
//! aggregates that go before.

use alloc::vec::Vec;

use super::{BEYOND_MS, chance_within, row, times, uniform};
use crate::link::Change;
use crate::random::Streams;
use crate::units::Duration;

/// Time after which Minstrel chooses again (Linux `net/mac80211/rc80211_minstrel_ht.c`, `update_interval`: HZ / 20).
const STEP: Duration = Duration::from_millis(50);
/// Rates in Mbit/s of MCS 8 to 15: 802.11n, 20 MHz, two streams, guard interval of 800 ns (IEEE 802.11-2016, 19.5).
const MCS_MBPS: [f64; 8] = [13.0, 26.0, 39.0, 52.0, 78.0, 104.0, 117.0, 130.0];
/// Mean time until Minstrel goes up or down by one, s. Assumed: people move for seconds.
const MCS_S: f64 = 1.0;
/// Stations that share the channel. Assumed.
const STATIONS: usize = 3;
/// Mean time for which each of them is busy, and idle, s. Assumed.
const BUSY_S: f64 = 2.0;
/// Airtime of an aggregate in ms (Linux `drivers/net/wireless/ath/ath9k`: 4 ms).
const AGGREGATE_MS: f64 = 4.0;
/// Airtime in ms that an aggregate takes besides: DIFS of 34 µs, 7.5 slots of 9 µs, preamble of 40 µs, SIFS of 16 µs, block
/// acknowledgement of 44 µs (IEEE 802.11-2016, 10.3 and 19.3).
const OVERHEAD_MS: f64 = 0.2;
/// Share of aggregates sent again: receivers are specified at 10 % (IEEE 802.11-2016, 19.3.19.1). Seven tries, as Minstrel
/// makes, lose one in ten million: no loss is left.
const RETRIES: f64 = 0.1;

pub(super) fn rows(streams: &Streams, length: Duration) -> Vec<Change> {
    let [mut rates, mut stations, mut delays] =
        ["rates", "stations", "delays"].map(|name| streams.stream(name));
    let mut mcs = rates.below(MCS_MBPS.len() as u64) as usize;
    let mut is_busy = [false; STATIONS].map(|_| stations.chance(0.5));
    let (moves, turns) = (chance_within(STEP, MCS_S), chance_within(STEP, BUSY_S));
    let next = |at| {
        let sharing = 1.0 + is_busy.iter().filter(|is_busy| **is_busy).count() as f64;
        let round_ms = sharing * (AGGREGATE_MS + OVERHEAD_MS);
        let mbps = MCS_MBPS[mcs] * AGGREGATE_MS / round_ms;
        let again_ms = if delays.chance(RETRIES) { round_ms } else { 0.0 };
        let delay_ms = BEYOND_MS + uniform(&mut delays, [0.0, round_ms]) + again_ms;
        let is_up = rates.chance(0.5);
        if rates.chance(moves) {
            mcs = if is_up { (mcs + 1).min(MCS_MBPS.len() - 1) } else { mcs.saturating_sub(1) };
        }
        is_busy.iter_mut().for_each(|it| *it ^= stations.chance(turns));
        row(at, mbps, delay_ms, 0.0)
    };
    times(STEP, length).map(next).collect()
}
