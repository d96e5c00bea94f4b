//! Cellular downlink after the model of Sprout: a Poisson process whose rate is a Brownian motion, with outages.
//!
//! Source: Winstein, Sivaraman, Balakrishnan, "Stochastic forecasts achieve high throughput and low delay over cellular
//! networks", NSDI 2013, section 3. Sprout infers with the model. To draw from it, a value after an outage is needed:
//! as at Sprout's start, all rates are then equally likely.

use alloc::vec::Vec;
use core::f64::consts::PI;

use super::{chance_within, row, times};
use crate::link::Change;
use crate::random::{Stream, Streams};
use crate::units::Duration;

/// Tick of Sprout's inference. The double hides changes that last less than 40 ms.
const TICK: Duration = Duration::from_millis(20);
/// Highest rate in packets of 1500 bytes per second (Sprout). The mean is proportional.
const LAMBDA_MAX: f64 = 1000.0;
/// Sprout's sigma: Brownian noise in packets/s per square root of a second. The double makes outages 4 times as frequent.
const SIGMA: f64 = 200.0;
/// Sprout's lambda_z: rate of leaving an outage, 1/s. The double halves outages.
const LAMBDA_Z: f64 = 1.0;
/// One-way propagation delay in ms (Sprout, section 4.2: Cellsim with 20 ms in each direction).
const DELAY_MS: f64 = 20.0;
/// Round trip of a retransmission in ms: 8 subframes (3GPP TS 36.321, FDD).
const HARQ_MS: f64 = 8.0;
/// Share of transport blocks sent again: the target of channel quality reports (3GPP TS 36.213, 7.2.3).
const BLOCK_ERRORS: f64 = 0.1;
/// Most retransmissions of a block. Assumed: four transmissions in all.
const RETRANSMISSIONS_MAX: u32 = 3;
/// Megabits of a packet of 1500 bytes.
const PACKET_MBIT: f64 = 0.012;

pub(super) fn rows(streams: &Streams, length: Duration) -> Vec<Change> {
    let [mut walk, mut packets, mut blocks] =
        ["walk", "packets", "blocks"].map(|name| streams.stream(name));
    let tick_s = TICK.as_secs_f64();
    let leaves = chance_within(TICK, 1.0 / LAMBDA_Z);
    let mut lambda = LAMBDA_MAX * walk.unit();
    let next = |at| {
        let mbps = f64::from(poisson(&mut packets, lambda * tick_s)) * PACKET_MBIT / tick_s;
        let delay = delay_ms(&mut blocks);
        lambda = if lambda > 0.0 {
            moved(lambda, SIGMA * libm::sqrt(tick_s) * normal(&mut walk))
        } else if walk.chance(leaves) {
            LAMBDA_MAX * walk.unit()
        } else {
            0.0
        };
        row(at, mbps, delay, 0.0)
    };
    times(TICK, length).map(next).collect()
}

/// One-way delay in ms of the next block.
pub(super) fn delay_ms(blocks: &mut Stream) -> f64 {
    let again = (0..RETRANSMISSIONS_MAX).take_while(|_| blocks.chance(BLOCK_ERRORS)).count();
    DELAY_MS + HARQ_MS * again as f64
}

/// `lambda` after a step: reflected at its maximum, held at zero, where an outage begins.
fn moved(lambda: f64, step: f64) -> f64 {
    let free = lambda + step;
    let reflected = if free > LAMBDA_MAX { 2.0 * LAMBDA_MAX - free } else { free };
    reflected.max(0.0)
}

/// Normally distributed with variance 1 (Box and Muller).
pub(super) fn normal(stream: &mut Stream) -> f64 {
    libm::sqrt(2.0 * stream.exponential()) * libm::cos(2.0 * PI * stream.unit())
}

/// Arrivals of a Poisson process with this mean.
fn poisson(stream: &mut Stream, mean: f64) -> u32 {
    let mut left = mean - stream.exponential();
    let mut count = 0;
    while left > 0.0 {
        count += 1;
        left -= stream.exponential();
    }
    count
}

/// Bound on the rate of a tick in Mbit/s: 20 packets in the mean, and ten standard deviations.
#[cfg(test)]
pub(super) const MOST_MBPS: f64 = 65.0 * PACKET_MBIT / 0.02;
