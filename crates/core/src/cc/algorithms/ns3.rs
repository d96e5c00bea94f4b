//! Differences of ns-3.37 from the sources of its algorithms (src/internet/model/tcp-*.cc): steps that
//! replace an algorithm's own. None of it is a parameter of an algorithm: a host that follows ns-3 builds all
//! of it, with [`build`].
//!
//! ```text
//! all        growth    mss^2 / cwnd bytes an acknowledgement, rounded down, at least one, however much it
//!                      acknowledges; in slow start a segment; also of a window that nothing fills
//!            flight    a loss leaves a share of the bytes in flight
//! bic        growth    whole segments by counting acknowledgements, 4 / 5 near the last loss
//!            convergence  m = 0.8 w by fast convergence, and a timeout keeps m; m and w in whole segments
//! dctcp      loss      reduces by alpha, too: without marks it hardly reduces at all
//! highspeed  growth    acknowledged segments times a(w), whole segments added
//!            flight    b(w) of the bytes in flight, in whole segments
//!            (its table has 53667 for the RFC's 53677, which is not followed)
//! htcp       growth    2 (1 - b) a(D), at least 1, *bytes* an acknowledgement on top of Reno's growth
//!            backoff   b is min_rtt / max_rtt since the last loss, within no bounds, whenever the mean
//!                      rate since the last loss is above and below twice the rate before it. Bytes
//!                      acknowledged in a recovery are not in that rate, the time it takes is
//! hybla      growth    whole segments; in slow start each acknowledgement counts as a segment
//!            rho       1 until a smoothed round trip equals the least one, in whole milliseconds
//!            rtt0      50 ms
//! illinois   growth    acknowledgements counted with alpha rounded down, so none below 1
//!            flight    whole segments
//!            delays    in whole milliseconds, of rounds that end as Vegas' and not in a recovery; no
//!                      threshold of 15 segments
//! scalable   growth    50 acknowledgements for a segment, not 100, and whole segments; more of those counted
//!                      before are one segment, and the rest of these is forgotten
//!            flight    7/8 of the bytes in flight in whole segments, below 16 segments too
//! vegas      loss      takes a segment
//!            queue     N is rounded up to whole segments before it is compared: it grows while N <= 1
//!            rounds    a round ends with the bytes outstanding as it began ([`super::rounds`]), and one of
//!                      less than three round trips grows the window as Reno does for its last
//!                      acknowledgement
//! veno       growth    three round-trip samples are wanted for each growth step, but are forgotten at
//!                      each acknowledgement, so that it grows as Reno
//!            queue     as Vegas
//! yeah       delay     1 is divided by 8 in integers, so that any r above the base is slow
//!            segments  whole ones in Q, R and loss reductions; fast rounds add a segment for each window or
//!                      hundred segments acknowledged
//!            rounds    as Vegas
//! ```
//! Larger differences are in files below their algorithms: `cubic/ns3.rs` and the like.

use alloc::boxed::Box;

use super::bic::{self, Bic};
use super::cubic;
use super::dctcp::{self, Dctcp};
use super::highspeed::{self, HighSpeed, response};
use super::htcp::{self, HTcp};
use super::hybla::{self, Hybla};
use super::illinois::{self, Illinois};
use super::ledbat;
use super::lp::{self, Lp};
use super::newreno::{self, NewReno};
use super::rounds::{RoundTrips, queued};
use super::scalable::{self, Scalable};
use super::vegas::{self, Vegas};
use super::veno::{self, Veno};
use super::westwood;
use super::window::{Counting, MinRtt, Steps, Window, WindowControl, WindowLaw};
use super::yeah::{self, Yeah};
use super::{Algorithm, CongestionControl, bbr};
use crate::spec::{Spec, SpecError};
use crate::units::{Duration, Timestamp};

/// The algorithms that ns-3 has, with its arithmetic, each under the name of the algorithm that it replaces.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm { build: &bbr::as_ns3, ..bbr::ALGORITHM },
    Algorithm { build: &|_| counting(bic()), ..bic::ALGORITHM },
    Algorithm { build: &|spec| counting(cubic::ns3::law(spec)?), ..cubic::ALGORITHM },
    Algorithm { build: &|_| counting_bytes(dctcp()), ..dctcp::ALGORITHM },
    Algorithm { build: &|_| counting(highspeed()), ..highspeed::ALGORITHM },
    Algorithm { build: &|_| counting(htcp()), ..htcp::ALGORITHM },
    Algorithm { build: &|_| counting(hybla()), ..hybla::ALGORITHM },
    Algorithm { build: &|_| counting(illinois()), ..illinois::ALGORITHM },
    Algorithm { build: &|spec| counting(ledbat::ns3::law(spec)?), ..ledbat::ALGORITHM },
    Algorithm { build: &|_| counting((Lp::as_ns3(), Steps::NONE)), ..lp::ALGORITHM },
    Algorithm { build: &|_| counting((NewReno, Steps::NONE)), ..newreno::ALGORITHM },
    Algorithm { build: &|_| counting(scalable()), ..scalable::ALGORITHM },
    Algorithm { build: &|spec| counting(vegas(Vegas::read(spec)?)), ..vegas::ALGORITHM },
    Algorithm { build: &|spec| counting(veno(Veno::read(spec)?)), ..veno::ALGORITHM },
    Algorithm { build: &|_| counting(westwood::ns3::law()), ..westwood::ALGORITHM },
    Algorithm { build: &|_| counting(yeah()), ..yeah::ALGORITHM },
];

type Built = Result<Box<dyn CongestionControl>, SpecError>;

/// Builds `algorithm` with the parameters in `spec`, as ns-3 has it if it is one of [`ALGORITHMS`].
///
/// # Errors
///
/// As [`Algorithm::build()`].
pub fn build(algorithm: &Algorithm, spec: &Spec) -> Built {
    let known = ALGORITHMS.iter().find(|known| known.name == algorithm.name);
    known.unwrap_or(algorithm).build(spec)
}

/// An algorithm with some steps replaced, and a window that counts acknowledgements.
fn counting<L: WindowLaw>((law, steps): (L, Steps<L>)) -> Built {
    Ok(Box::new(WindowControl::departing(law, steps, Counting::Acknowledgements)))
}

/// Likewise, counting bytes.
fn counting_bytes<L: WindowLaw>((law, steps): (L, Steps<L>)) -> Built {
    Ok(Box::new(WindowControl::departing(law, steps, Counting::Bytes)))
}

/// Adds a segment for each window of acknowledged segments that were `weighted`.
fn add_weighted(weighted: u64, window: &mut Window) {
    window.counted += weighted;
    while window.counted >= window.segments() {
        window.counted -= window.segments();
        window.add_segments(1);
    }
}

/// Adds a segment for each window or `most` segments acknowledged (`TcpScalable::CongestionAvoidance`).
fn grow_by_count(acked: u64, most: u64, window: &mut Window) {
    let needed = window.segments().min(most);
    // The window has been reduced meanwhile.
    let before = u64::from(window.counted >= needed);
    window.counted = if before > 0 { 0 } else { window.counted } + acked / window.mss();
    let now = window.counted / needed;
    if now > 0 {
        window.counted = 0;
    }
    window.add_segments(before + now);
}

fn bic() -> (Bic, Steps<Bic>) {
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
            window.set_cwnd(window.cwnd() + window.mss());
            window.counted = 0;
        }
    }

    fn on_loss(law: &mut Bic, _now: Timestamp, window: &Window) -> u64 {
        let (segments, mss) = (window.segments(), window.mss());
        let is_below = segments * mss < law.last_max;
        law.last_max = if is_below { segments * 8 / 10 } else { segments } * mss;
        if segments < bic::LOW_WINDOW { window.at_loss() / 2 } else { segments * 8 * mss / 10 }
    }

    let steps = Steps {
        slow_start: None,
        avoid: Some(avoid),
        on_loss: Some(on_loss),
        on_rto: Some(|_, ssthresh, _| ssthresh),
    };
    (Bic::default(), steps)
}

fn dctcp() -> (Dctcp, Steps<Dctcp>) {
    fn on_loss(law: &mut Dctcp, now: Timestamp, window: &Window) -> u64 {
        law.on_loss(now, window);
        law.lowered(window)
    }
    (Dctcp::new(), Steps { on_loss: Some(on_loss), ..Steps::NONE })
}

fn highspeed() -> (HighSpeed, Steps<HighSpeed>) {
    fn avoid(law: &mut HighSpeed, _now: Timestamp, acked: u64, window: &mut Window) {
        law.growth = response(window.segments()).0;
        add_weighted(acked / window.mss() * law.growth, window);
    }
    fn on_loss(law: &mut HighSpeed, now: Timestamp, window: &Window) -> u64 {
        window.whole_segments(law.on_loss(now, window) / window.mss())
    }
    let steps = Steps { avoid: Some(avoid), on_loss: Some(on_loss), ..Steps::NONE };
    (HighSpeed::default(), steps)
}

fn htcp() -> (HTcp, Steps<HTcp>) {
    fn avoid(law: &mut HTcp, now: Timestamp, acked: u64, window: &mut Window) {
        let (mss, growth) = (window.mss(), law.growth(now).max(1000));
        window.grow(acked, |cwnd| mss + cwnd * growth / 1000 / mss);
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
    (HTcp::new(), Steps { avoid: Some(avoid), on_loss: Some(on_loss), ..Steps::NONE })
}

fn hybla() -> (Hybla, Steps<Hybla>) {
    /// Reference round trip (TcpHybla, RRTT).
    const RTT0: Duration = Duration::from_millis(50);

    fn slow_start(law: &mut Hybla, now: Timestamp, acked: u64, window: &mut Window) -> u64 {
        law.slow_start(now, window.mss(), window);
        acked.saturating_sub(window.mss())
    }
    /// Counts growth below a segment, in 1/2^16 segments.
    fn avoid(law: &mut Hybla, _now: Timestamp, acked: u64, window: &mut Window) {
        const ONE: u64 = hybla::ONE * hybla::ONE;
        window.counted += acked / window.mss() * law.rho * law.rho / window.segments();
        window.set_cwnd(window.cwnd() + window.counted / ONE * window.mss());
        window.counted %= ONE;
    }
    let steps = Steps { slow_start: Some(slow_start), avoid: Some(avoid), ..Steps::NONE };
    (Hybla::as_ns3(RTT0), steps)
}

fn illinois() -> (Illinois, Steps<Illinois>) {
    /// Ends a round where the window grows, by acknowledged bytes.
    fn end_round(law: &mut Illinois, window: &Window) {
        let (delivered, in_flight) = law.newest;
        if law.round_until.is_some_and(|until| delivered >= until) {
            let is_measured = law.samples > 0 && law.min_rtt.get().is_some();
            let was_above = law.was_above;
            law.end_round(window);
            // Rounds of low delay count before a high one, too.
            if is_measured && !was_above && !law.was_above {
                law.low_rounds = (law.low_rounds + 1) % illinois::LOW_DELAY_ROUNDS;
            }
            law.round_until = Some(delivered + in_flight);
        }
    }
    fn slow_start(law: &mut Illinois, now: Timestamp, acked: u64, window: &mut Window) -> u64 {
        end_round(law, window);
        law.slow_start(now, acked, window);
        0
    }
    fn avoid(law: &mut Illinois, _now: Timestamp, acked: u64, window: &mut Window) {
        end_round(law, window);
        add_weighted(((acked / window.mss()) as f64 * law.exact.0) as u64, window);
    }
    fn on_loss(law: &mut Illinois, _now: Timestamp, window: &Window) -> u64 {
        let segments = window.at_loss() / window.mss();
        window.whole_segments(((1.0 - law.exact.1) * segments as f64) as u64)
    }
    let mut law = Illinois::new();
    (law.unit_us, law.adaptive_from, law.round_until) = (1000, 0, Some(0));
    let steps = Steps {
        slow_start: Some(slow_start),
        avoid: Some(avoid),
        on_loss: Some(on_loss),
        on_rto: None,
    };
    (law, steps)
}

fn scalable() -> (Scalable, Steps<Scalable>) {
    /// Segments acknowledged for one more (`AIFactor`).
    const ACKED_PER_SEGMENT: u64 = 50;

    fn avoid(_law: &mut Scalable, _now: Timestamp, acked: u64, window: &mut Window) {
        grow_by_count(acked, ACKED_PER_SEGMENT, window);
    }
    fn on_loss(_law: &mut Scalable, _now: Timestamp, window: &Window) -> u64 {
        window.whole_segments(window.at_loss() / window.mss() * 7 / 8)
    }
    (Scalable, Steps { avoid: Some(avoid), on_loss: Some(on_loss), ..Steps::NONE })
}

fn vegas(mut law: Vegas) -> (Vegas, Steps<Vegas>) {
    fn on_loss(law: &mut Vegas, now: Timestamp, window: &Window) -> u64 {
        law.on_loss(now, window);
        window.ssthresh().min(window.cwnd() - window.mss())
    }
    (law.trips, law.is_in_segments) = (RoundTrips::by_outstanding(), true);
    (law, Steps { on_loss: Some(on_loss), ..Steps::NONE })
}

fn yeah() -> (Yeah, Steps<Yeah>) {
    fn avoid(law: &mut Yeah, now: Timestamp, acked: u64, window: &mut Window) {
        if law.slow_rounds > 0 {
            return law.avoid(now, acked, window);
        }
        grow_by_count(acked, yeah::SCALABLE, window);
    }
    let mut law = Yeah::new();
    (law.trips, law.phi) = (RoundTrips::by_outstanding(), u64::MAX);
    law.queue = |window, base, rtt| queued(window.segments(), base, rtt) * window.mss();
    law.part = |bytes, mss| bytes / mss * mss;
    (law, Steps { avoid: Some(avoid), ..Steps::NONE })
}

fn veno(mut law: Veno) -> (Veno, Steps<Veno>) {
    fn avoid(_law: &mut Veno, _now: Timestamp, acked: u64, window: &mut Window) {
        let mss = window.mss();
        window.grow(acked, |_| mss);
    }
    law.compared = whole_segments;
    (law, Steps { avoid: Some(avoid), ..Steps::NONE })
}

/// `bytes` rounded up to segments of `mss`.
pub(super) fn whole_segments(bytes: u64, mss: u64) -> u64 {
    bytes.div_ceil(mss) * mss
}

/// The algorithm `name` with `params` as written in a plan.
#[cfg(test)]
pub(in crate::cc) fn built(name: &str, params: &[(&str, &str)]) -> Box<dyn CongestionControl> {
    let text = |value: &str| crate::spec::Value::Text(value.into());
    let spec =
        params.iter().fold(Spec::named(name), |spec, (key, value)| spec.with(key, text(value)));
    let known = ALGORITHMS.iter().find(|known| known.name == name).expect("one that ns-3 has");
    known.build(&spec).expect("valid parameters")
}
