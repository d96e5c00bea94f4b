//! What ns-3.37 does otherwise than the sources of its laws (src/internet/model/tcp-*.cc): steps that
//! stand in for a law's own where a parameter `ns3_...` is on. `stack = "ns3"` sets all of them.
//!
//! ```text
//! all        growth    mss^2 / cwnd bytes an acknowledgement, rounded down, at least one, however much it
//!                      acknowledges; in slow start a segment; also of a window that nothing fills
//!            flight    a loss leaves a share of the bytes in flight
//! bic        growth    whole segments by counting acknowledgements, 4 / 5 near the last loss
//!            convergence  m = 0.8 w by fast convergence, and a timeout keeps m
//! dctcp      alpha_on_loss  a loss reduces by alpha, too: without marks it hardly reduces at all
//! highspeed  growth    acknowledged segments times a(w), whole segments added
//!            flight    b(w) of the bytes in flight, in whole segments
//!            (its table has 53667 for the RFC's 53677, which is not followed)
//! htcp       growth    2 (1 - b) a(D), at least 1, *bytes* an acknowledgement beside Reno's growth
//!            backoff   b is min_rtt / max_rtt since the last loss, within no bounds, whenever the mean
//!                      rate since the last loss is above and below twice that before it. What is
//!                      acknowledged in a recovery is not in that rate, the time it takes is
//! hybla      growth    whole segments; in slow start each acknowledgement counts as a segment
//!            rtt0      the reference path has 50 ms
//! illinois   growth    acknowledgements counted with alpha rounded down, so none below 1
//!            flight    whole segments
//!            delays    in whole milliseconds, of rounds that end by what is acknowledged and not in a
//!                      recovery; no threshold of 15 segments
//! scalable   growth    50 acknowledgements for a segment, not 100, and whole segments
//!            flight    7/8 of the bytes in flight in whole segments, below 16 segments too
//! vegas      loss      a loss takes a segment
//!            whole_segments  N is rounded up to whole segments before it is compared: it grows while N <= 1
//!            rounds    a round ends with what was outstanding as it began ([`super::rounds`]), and one of
//!                      less than three round trips grows the window as Reno does for its last
//!                      acknowledgement
//! veno       reno_growth  three round-trip samples are wanted for each growth step, but are forgotten at
//!                      each acknowledgement, so that it grows as Reno
//!            whole_segments  as Vegas
//! yeah       any_delay 1 is divided by 8 in integers, so that any r above the base is slow
//!            whole_segments  Q, R and what a loss takes; fast rounds add a segment for each window or
//!                      hundred segments acknowledged
//!            rounds    as Vegas
//! ```
//! Longer ones stand below their laws: `cubic/ns3.rs` and the like.

use alloc::boxed::Box;

use super::CongestionControl;
use super::bic::{self, Bic};
use super::dctcp::Dctcp;
use super::highspeed::{HighSpeed, response};
use super::htcp::{self, HTcp};
use super::hybla::{self, Hybla};
use super::illinois::{self, Illinois};
use super::rounds::{RoundTrips, queued};
use super::scalable::Scalable;
use super::vegas::Vegas;
use super::veno::Veno;
use super::window::{Counting, MinRtt, Steps, Window, WindowControl, WindowLaw};
use super::yeah::{self, Yeah};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{Duration, Timestamp};

pub(super) type Built = Result<Box<dyn CongestionControl>, SpecError>;

/// Growth by acknowledgements.
pub(super) const GROWTH: Param<bool> = Param::switch(
    "ns3_growth",
    "grow per acknowledgement, not per byte, rounded down to bytes, as ns-3 does",
);
/// ssthresh from what is in flight.
pub(super) const FLIGHT: Param<bool> = Param::switch(
    "ns3_flight",
    "take ssthresh from the bytes in flight, not from cwnd, as ns-3 does",
);
pub(super) const CONVERGENCE: Param<bool> = Param::switch(
    "ns3_convergence",
    "fast convergence to 0.8 of the window, kept at timeouts, as in ns-3",
);
pub(super) const ALPHA_ON_LOSS: Param<bool> = Param::switch(
    "ns3_alpha_on_loss",
    "a loss reduces the window by half of alpha, not by half, as in ns-3",
);
pub(super) const BACKOFF: Param<bool> =
    Param::switch("ns3_backoff", "reduce to min_rtt / max_rtt by ns-3's rule");
pub(super) const RTT0: Param<bool> =
    Param::switch("ns3_rtt0", "a reference round trip of 50 ms, as in ns-3, not 25 ms");
pub(super) const DELAYS: Param<bool> =
    Param::switch("ns3_delays", "delays in whole milliseconds, at any window, as in ns-3");
pub(super) const LOSS: Param<bool> =
    Param::switch("ns3_loss", "a loss takes one segment and not half of the window, as in ns-3");
pub(super) const WHOLE_SEGMENTS: Param<bool> = Param::switch(
    "ns3_whole_segments",
    "round the queue up to whole segments before comparing it, as in ns-3",
);
pub(super) const ROUNDS: Param<bool> = Param::switch(
    "ns3_rounds",
    "rounds end with what was outstanding and need three round trips, as in ns-3",
);
pub(super) const ANY_DELAY: Param<bool> =
    Param::switch("ns3_any_delay", "any queueing delay makes a round slow, as in ns-3");
pub(super) const IN_SEGMENTS: Param<bool> = Param::switch(
    "ns3_whole_segments",
    "count the queue, Reno's window and what a loss takes in whole segments, as in ns-3",
);
pub(super) const RENO_GROWTH: Param<bool> = Param::switch(
    "ns3_reno_growth",
    "grow a segment a window whatever the queue, as ns-3 does with an ACK at a time",
);

/// `law` with no steps but its own, its window counting as `spec` asks.
pub(super) fn counting<L: WindowLaw>(law: L, spec: &Spec) -> Built {
    departing(law, Steps::NONE, spec)
}

/// `law` but for `steps`, likewise.
pub(super) fn departing<L: WindowLaw>(law: L, steps: Steps<L>, spec: &Spec) -> Built {
    let counting = Counting { acknowledgements: GROWTH.of(spec)?, flight: FLIGHT.of(spec)? };
    Ok(Box::new(WindowControl::departing(law, steps, counting)))
}

/// Adds a segment for each window of acknowledged segments that were `weighted`.
fn add_weighted(weighted: u64, window: &mut Window) {
    window.counted += weighted;
    while window.counted >= window.segments() {
        window.counted -= window.segments();
        window.add_segments(1);
    }
}

pub(super) fn bic(law: Bic, spec: &Spec) -> Built {
    /// Windows for four segments near the last loss (`SmoothPart`).
    const SMOOTH_PART: u64 = 5;

    /// Segments to be acknowledged for one more.
    fn count(segments: u64, last_max: u64) -> u64 {
        let near = segments * SMOOTH_PART / bic::SEARCH_PARTS;
        let count = if segments < bic::LOW_WINDOW {
            return segments;
        } else if segments < last_max {
            match (last_max - segments) / bic::SEARCH_PARTS {
                0 | 1 => near,
                steps => segments / steps.min(bic::GROWTH_MAX),
            }
        } else if segments < last_max + bic::SEARCH_PARTS {
            near
        } else if segments < last_max + bic::GROWTH_MAX * (bic::SEARCH_PARTS - 1) {
            segments * (bic::SEARCH_PARTS - 1) / (segments - last_max)
        } else {
            segments / bic::GROWTH_MAX
        };
        let most = if last_max == 0 { bic::EARLY_PARTS } else { u64::MAX };
        count.clamp(1, most)
    }

    fn avoid(law: &mut Bic, _now: Timestamp, acked: u64, window: &mut Window) {
        window.counted += acked / window.mss();
        if window.counted > count(window.segments(), law.last_max / window.mss()) {
            window.add_segments(1);
            window.counted = 0;
        }
    }

    fn on_loss(law: &mut Bic, now: Timestamp, window: &Window) -> u64 {
        let is_below = window.cwnd() < law.last_max;
        let ssthresh = law.on_loss(now, window);
        if is_below {
            law.last_max = window.cwnd() / 10 * 8;
        }
        ssthresh
    }

    let mut steps = Steps { avoid: GROWTH.of(spec)?.then_some(avoid as _), ..Steps::NONE };
    if CONVERGENCE.of(spec)? {
        steps.on_loss = Some(on_loss);
        steps.on_rto = Some(|_, ssthresh, _| ssthresh);
    }
    departing(law, steps, spec)
}

pub(super) fn dctcp(law: Dctcp, spec: &Spec) -> Built {
    fn on_loss(law: &mut Dctcp, now: Timestamp, window: &Window) -> u64 {
        law.on_loss(now, window);
        law.lowered(window)
    }
    let on_loss = ALPHA_ON_LOSS.of(spec)?.then_some(on_loss as _);
    departing(law, Steps { on_loss, ..Steps::NONE }, spec)
}

pub(super) fn highspeed(law: HighSpeed, spec: &Spec) -> Built {
    fn avoid(law: &mut HighSpeed, _now: Timestamp, acked: u64, window: &mut Window) {
        law.growth = response(window.segments()).0;
        add_weighted(acked / window.mss() * law.growth, window);
    }
    fn on_loss(law: &mut HighSpeed, now: Timestamp, window: &Window) -> u64 {
        window.whole_segments(law.on_loss(now, window) / window.mss())
    }
    let avoid = GROWTH.of(spec)?.then_some(avoid as _);
    let on_loss = FLIGHT.of(spec)?.then_some(on_loss as _);
    departing(law, Steps { avoid, on_loss, ..Steps::NONE }, spec)
}

pub(super) fn htcp(law: HTcp, spec: &Spec) -> Built {
    fn avoid(law: &mut HTcp, now: Timestamp, acked: u64, window: &mut Window) {
        let (mss, growth) = (window.mss(), law.growth(now).max(1000));
        window.grow(acked, |cwnd| mss + cwnd / mss * growth / 1000);
    }
    fn on_loss(law: &mut HTcp, now: Timestamp, window: &Window) -> u64 {
        let rate = law.rates.acked_since_loss.per(now.saturating_since(law.lost_at));
        let rate = rate.map_or(0, |rate| rate.as_bits_per_sec());
        let before = law.rates.before;
        let follows = before > 0 && rate > before && rate / 2 < before;
        law.backoff = law.rtt_ratio().filter(|_| follows).unwrap_or(htcp::BACKOFF_MIN);
        (law.min_rtt, law.max_rtt) = (MinRtt::default(), Duration::ZERO);
        law.rates.on_loss(now, rate);
        law.reduced(now, window)
    }
    let avoid = GROWTH.of(spec)?.then_some(avoid as _);
    let on_loss = BACKOFF.of(spec)?.then_some(on_loss as _);
    departing(law, Steps { avoid, on_loss, ..Steps::NONE }, spec)
}

pub(super) fn hybla(mut law: Hybla, spec: &Spec) -> Built {
    fn slow_start(law: &mut Hybla, now: Timestamp, _acked: u64, window: &mut Window) -> u64 {
        law.slow_start(now, window.mss(), window)
    }
    /// What is counted is growth below a segment, in 1/2^16 segments.
    fn avoid(law: &mut Hybla, _now: Timestamp, acked: u64, window: &mut Window) {
        const ONE: u64 = hybla::ONE * hybla::ONE;
        window.counted += acked / window.mss() * law.rho * law.rho / window.segments();
        window.add_segments(window.counted / ONE);
        window.counted %= ONE;
    }
    if RTT0.of(spec)? {
        law.rtt0 = Duration::from_millis(50);
    }
    let grows = GROWTH.of(spec)?;
    let steps = Steps {
        slow_start: grows.then_some(slow_start as _),
        avoid: grows.then_some(avoid as _),
        ..Steps::NONE
    };
    departing(law, steps, spec)
}

pub(super) fn illinois(mut law: Illinois, spec: &Spec) -> Built {
    /// A round ends where the window grows, by what is acknowledged.
    fn end_round(law: &mut Illinois, window: &Window) {
        let (delivered, prior) = law.newest;
        if law.round_began.is_some_and(|began| prior >= began) {
            let is_measured = law.samples > 0 && law.min_rtt.get().is_some();
            let was_above = law.was_above;
            law.end_round(window);
            // Rounds of low delay count before a high one, too.
            if is_measured && !was_above && !law.was_above {
                law.low_rounds = (law.low_rounds + 1) % illinois::LOW_DELAY_ROUNDS;
            }
            law.round_began = Some(delivered);
        }
    }
    fn slow_start(law: &mut Illinois, now: Timestamp, acked: u64, window: &mut Window) -> u64 {
        end_round(law, window);
        let left = law.slow_start(now, acked, window);
        if window.counting().acknowledgements { 0 } else { left }
    }
    fn avoid(law: &mut Illinois, now: Timestamp, acked: u64, window: &mut Window) {
        end_round(law, window);
        if !window.counting().acknowledgements {
            return law.avoid(now, acked, window);
        }
        add_weighted(acked / window.mss() * law.alpha / illinois::ONE, window);
    }
    fn on_loss(law: &mut Illinois, _now: Timestamp, window: &Window) -> u64 {
        let segments = window.at_loss() / window.mss();
        window.whole_segments(segments * (illinois::ONE - law.beta) / illinois::ONE)
    }
    let mut steps = Steps::NONE;
    if DELAYS.of(spec)? {
        (law.unit_us, law.adaptive_from, law.round_began) = (1000, 0, Some(0));
    }
    if DELAYS.of(spec)? || GROWTH.of(spec)? {
        steps.slow_start = Some(slow_start);
        steps.avoid = Some(avoid);
    }
    steps.on_loss = FLIGHT.of(spec)?.then_some(on_loss as _);
    departing(law, steps, spec)
}

pub(super) fn scalable(law: Scalable, spec: &Spec) -> Built {
    /// Segments acknowledged for one more (`AIFactor`).
    const ACKED_PER_SEGMENT: u64 = 50;

    fn avoid(_law: &mut Scalable, _now: Timestamp, acked: u64, window: &mut Window) {
        let needed = window.segments().min(ACKED_PER_SEGMENT);
        window.counted += acked / window.mss();
        if window.counted >= needed {
            window.add_segments(window.counted / needed);
            window.counted = 0;
        }
    }
    fn on_loss(_law: &mut Scalable, _now: Timestamp, window: &Window) -> u64 {
        window.whole_segments(window.at_loss() / window.mss() * 7 / 8)
    }
    let avoid = GROWTH.of(spec)?.then_some(avoid as _);
    let on_loss = FLIGHT.of(spec)?.then_some(on_loss as _);
    departing(law, Steps { avoid, on_loss, ..Steps::NONE }, spec)
}

pub(super) fn vegas(mut law: Vegas, spec: &Spec) -> Built {
    fn on_loss(law: &mut Vegas, now: Timestamp, window: &Window) -> u64 {
        law.on_loss(now, window);
        window.ssthresh().min(window.cwnd() - window.mss())
    }
    if ROUNDS.of(spec)? {
        law.trips = RoundTrips::by_outstanding();
    }
    law.is_in_segments = WHOLE_SEGMENTS.of(spec)?;
    let on_loss = LOSS.of(spec)?.then_some(on_loss as _);
    departing(law, Steps { on_loss, ..Steps::NONE }, spec)
}

pub(super) fn yeah(mut law: Yeah, spec: &Spec) -> Built {
    fn avoid(law: &mut Yeah, now: Timestamp, acked: u64, window: &mut Window) {
        if law.slow_rounds > 0 {
            return law.avoid(now, acked, window);
        }
        window.counted += acked / window.mss();
        let needed = window.segments().min(yeah::SCALABLE);
        window.add_segments(window.counted / needed);
        window.counted %= needed;
    }
    if ROUNDS.of(spec)? {
        law.trips = RoundTrips::by_outstanding();
    }
    if ANY_DELAY.of(spec)? {
        law.phi = u64::MAX;
    }
    let is_whole = IN_SEGMENTS.of(spec)?;
    if is_whole {
        law.queue = |window, base, rtt| queued(window.segments(), base, rtt) * window.mss();
        law.part = |bytes, mss| bytes / mss * mss;
    }
    let avoid = is_whole.then_some(avoid as _);
    departing(law, Steps { avoid, ..Steps::NONE }, spec)
}

pub(super) fn veno(mut law: Veno, spec: &Spec) -> Built {
    fn avoid(_law: &mut Veno, _now: Timestamp, acked: u64, window: &mut Window) {
        let mss = window.mss();
        window.grow(acked, |_| mss);
    }
    if WHOLE_SEGMENTS.of(spec)? {
        law.compared = whole_segments;
    }
    let avoid = RENO_GROWTH.of(spec)?.then_some(avoid as _);
    departing(law, Steps { avoid, ..Steps::NONE }, spec)
}

/// `bytes` rounded up to segments of `mss`.
pub(super) fn whole_segments(bytes: u64, mss: u64) -> u64 {
    bytes.div_ceil(mss) * mss
}
