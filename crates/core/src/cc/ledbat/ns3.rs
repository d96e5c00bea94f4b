//! LEDBAT as in ns-3.37 (TcpLedbat). `slow_start`: Reno's up to ssthresh, at the beginning and after
//! timeouts. `growth` also leaves out ALLOWED_INCREASE (a window of whole segments that is full never
//! grows), counts delays in whole milliseconds, the current one over three of them, and bytes
//! acknowledged, not acknowledgements: what SND.UNA passes at the end of a repair grows the window, once,
//! by up to two segments. Fractions of a byte are lost to it. `one_way`: delays are.

use super::{CURRENT_SAMPLES, Ledbat, MIN_SEGMENTS};
use crate::cc::ns3::{Built, GROWTH, departing};
use crate::cc::window::{Steps, Window};
use crate::spec::{Param, Spec};
use crate::units::Timestamp;

pub(super) const SLOW_START: Param<bool> =
    Param::switch("ns3_slow_start", "begin with Reno's slow start, as ns-3 does");
pub(super) const ONE_WAY: Param<bool> =
    Param::switch("ns3_one_way", "delays one-way, from timestamps, as in ns-3");

/// Measurements of the current delay: one is taken away as soon as the filter is full.
const CURRENT: usize = CURRENT_SAMPLES - 1;
const MILLISECOND: u64 = 1_000_000;

pub(super) fn ledbat(mut law: Ledbat, spec: &Spec) -> Built {
    let has_slow_start = SLOW_START.of(spec)?;
    law.is_one_way = ONE_WAY.of(spec)?;
    law.slow_starts = has_slow_start.then_some(true);
    let mut steps = Steps::NONE;
    if has_slow_start || GROWTH.of(spec)? {
        steps.slow_start = Some(slow_start);
        steps.avoid = Some(avoid);
    }
    departing(law, steps, spec)
}

fn slow_start(law: &mut Ledbat, _now: Timestamp, acked: u64, window: &mut Window) -> u64 {
    if let Some(goes_on) = &mut law.slow_starts {
        *goes_on |= window.cwnd() <= window.mss();
        if *goes_on {
            return window.slow_start(acked);
        }
    }
    steer(law, acked, window);
    0
}

fn avoid(law: &mut Ledbat, _now: Timestamp, acked: u64, window: &mut Window) {
    law.slow_starts = law.slow_starts.map(|_| false);
    steer(law, acked, window);
}

/// What is acknowledged counts at once, in whole milliseconds, and rounded down.
fn steer(law: &mut Ledbat, acked: u64, window: &mut Window) {
    if !window.counting().acknowledgements {
        return law.steer(acked, window);
    }
    let base = law.bases.iter().min().map_or(0, |delay| delay / MILLISECOND);
    let newest = law.current.iter().rev().take(CURRENT);
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
