//! CUBIC as in ns-3.37 (TcpCubic): whole segments, by counting acknowledgements.
//!
//! ```text
//! cnt     floor(cwnd / (target - cwnd)), 100 cwnd where the target is not above; at least 2
//!         before any loss at most 20: 5 % a window
//!         with W_est (`reno_friendly`, off by default) at most floor(cwnd / (W_est - cwnd))
//! slow start  counted in bytes, where Reno counts acknowledgements, and not held at ssthresh
//! loss    whole segments                    Rto    the least round trip is measured again
//! HyStart with its thresholds unless `hystart` is given; no `linux_growth`
//! ```

use super::{Common, Cubic, EST_BITS, HyStartKind, LINUX_GROWTH, RENO_FRIENDLY};
use crate::cc::window::{MinRtt, Steps, Window, WindowLaw};
use crate::spec::{Spec, SpecError};
use crate::units::Timestamp;

/// C in segments / s^3; ns-3 takes roots in floating point.
const C: f64 = 0.4;
/// Most acknowledgements for a segment before any loss (`CntClamp`).
const EARLY_COUNT: u64 = 20;

pub(in crate::cc::algorithms) fn law(spec: &Spec) -> Result<(Cubic, Steps<Cubic>), SpecError> {
    if LINUX_GROWTH.of(spec)? {
        return Err(SpecError::new(LINUX_GROWTH.name, "true", "false for the CUBIC of ns-3"));
    }
    let common = Common::read(spec, HyStartKind::PARAM.given(spec)?.unwrap_or(HyStartKind::Ns3))?;
    let reno_friendly = RENO_FRIENDLY.given(spec)?.unwrap_or(false);
    let law = Cubic { common, reno_friendly, ..Cubic::default() };
    let steps = Steps {
        slow_start: Some(slow_start),
        avoid: Some(avoid),
        on_loss: Some(on_loss),
        on_rto: Some(on_rto),
    };
    Ok((law, steps))
}

/// Segments to be acknowledged for one more, after `acked` segments.
fn count(law: &mut Cubic, now: Timestamp, acked: u64, window: &Window) -> u64 {
    let (segments, mss) = (window.segments(), window.mss());
    let mut epoch = law.epoch(now, window);
    let origin = epoch.origin / mss;
    let below = origin - epoch.from / mss;
    let k_s = libm::pow(below as f64 / C, 1.0 / 3.0);
    let at = now.saturating_since(epoch.began_at).saturating_add(law.common.min_rtt());
    let (at_s, is_before) = (at.as_secs_f64(), at.as_secs_f64() < k_s);
    let distance = (C * libm::pow(libm::fabs(at_s - k_s), 3.0)) as u64;
    let target = if is_before { origin.saturating_sub(distance) } else { origin + distance };
    let mut count = match target.checked_sub(segments) {
        None | Some(0) => 100 * segments,
        Some(more) => segments / more,
    };
    if law.common.w_max == 0 {
        count = count.min(EARLY_COUNT);
    }
    if law.reno_friendly {
        epoch.acked += acked;
        let each = law.common.decrease.each(segments).max(1);
        epoch.estimate += (epoch.acked / each * mss) << EST_BITS;
        epoch.acked %= each;
        law.epoch = Some(epoch);
        let estimate = (epoch.estimate >> EST_BITS) / mss;
        if let Some(more) = estimate.checked_sub(segments).filter(|more| *more > 0) {
            count = count.min(segments / more);
        }
    }
    count.max(2)
}

fn slow_start(law: &mut Cubic, _now: Timestamp, acked: u64, window: &mut Window) -> u64 {
    window.set_cwnd(window.cwnd() + law.common.hystart.counted(acked));
    0
}

fn avoid(law: &mut Cubic, now: Timestamp, acked: u64, window: &mut Window) {
    let acked = acked / window.mss();
    window.counted += acked;
    let count = count(law, now, acked, window);
    if window.counted >= count {
        window.set_cwnd(window.cwnd() + window.mss());
        window.counted -= count;
    }
}

fn on_loss(law: &mut Cubic, now: Timestamp, window: &Window) -> u64 {
    law.on_loss(now, window);
    law.common.w_max -= law.common.w_max % window.mss();
    window.whole_segments(law.common.decrease.of(window.segments()))
}

fn on_rto(law: &mut Cubic, ssthresh: u64, window: &Window) -> u64 {
    law.common.min_rtt = MinRtt::default();
    law.on_rto(ssthresh, window)
}
