//! LEDBAT as in ns-3.37 (TcpLedbat). Slow start is Reno's up to ssthresh, at the beginning and after
//! timeouts. Delays are one-way and counted in whole milliseconds. The current delay is the least of three.
//! There is no ALLOWED_INCREASE: a window of whole segments that is full never grows. Growth counts bytes
//! acknowledged, not acknowledgements. Bytes that SND.UNA passes at the end of a repair grow the window,
//! once, by up to two segments. Fractions of a byte are lost.

use super::{CURRENT_SAMPLES, Ledbat, MIN_SEGMENTS};
use crate::cc::window::{Steps, Window};
use crate::spec::{Spec, SpecError};
use crate::units::Timestamp;

/// Measurements of the current delay: one is taken away as soon as the filter is full.
const CURRENT: usize = CURRENT_SAMPLES - 1;
/// Nanoseconds in a millisecond: ns-3 measures delays in whole milliseconds.
const MILLISECOND: u64 = 1_000_000;

pub(in crate::cc::algorithms) fn law(spec: &Spec) -> Result<(Ledbat, Steps<Ledbat>), SpecError> {
    let law = Ledbat { is_one_way: true, slow_starts: true, ..Ledbat::read(spec)? };
    let (slow_start, avoid) = (Some(slow_start as _), Some(avoid as _));
    Ok((law, Steps { slow_start, avoid, ..Steps::NONE }))
}

fn slow_start(law: &mut Ledbat, _now: Timestamp, acked: u64, window: &mut Window) -> u64 {
    law.slow_starts |= window.cwnd() <= window.mss();
    if law.slow_starts {
        return window.slow_start(acked);
    }
    steer(law, acked, window);
    0
}

fn avoid(law: &mut Ledbat, _now: Timestamp, acked: u64, window: &mut Window) {
    law.slow_starts = false;
    steer(law, acked, window);
}

/// Counts acknowledged bytes at once, with delays in whole milliseconds, and rounded down.
fn steer(law: &mut Ledbat, acked: u64, window: &mut Window) {
    let base = law.delays.base().map_or(0, |delay| delay / MILLISECOND);
    let newest = law.delays.current.iter().rev().take(CURRENT);
    let current = newest.map(|(_, delay)| delay / MILLISECOND).min().unwrap_or(base);
    let target = i128::from(law.target / MILLISECOND);
    let off = target - i128::from(current.saturating_sub(base));
    let (mss, cwnd) = (i128::from(window.mss()), i128::from(window.cwnd()));
    // Below 2^65 x 2^36 x 2^16 in size.
    let grown = (off * i128::from(acked) * mss).div_euclid(target * cwnd);
    let most = window.in_flight().map_or(u64::MAX, |in_flight| in_flight.saturating_add(acked));
    let next = u64::try_from(cwnd + grown).unwrap_or(0).min(most);
    window.set_cwnd(next.max(MIN_SEGMENTS * window.mss()));
    if window.cwnd() <= window.ssthresh() {
        window.set_ssthresh(window.cwnd() - 1);
    }
}
