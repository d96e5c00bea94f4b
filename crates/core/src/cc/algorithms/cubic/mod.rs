//! CUBIC (RFC 9438): a window that is a cubic function of the time since the last loss, flat where
//! that loss was.
//!
//! ```text
//! W(t)    C (t - K)^3 + W_max                  C = 0.4 segments / s^3            (4.2, figure 1)
//! K       cbrt((W_max - W_epoch) / C)                                            (4.2, figure 2)
//! growth  W(t + RTT), within cwnd and 1.5 cwnd, less cwnd, a window            (4.2, 4.4, 4.5)
//! W_est   += a mss for each window acknowledged, from W_epoch on; cwnd is at least that
//!         a = 3 (1 - b) / (1 + b) = 9/17 until W_est reaches the window of the last loss, then 1
//!                                                                              (4.3)
//! loss    W_max = cwnd, or (1 + b) / 2 cwnd where cwnd < W_max (fast convergence, 4.7)
//!         ssthresh = b cwnd, b = 0.7 unless `beta` says otherwise              (4.6)
//! Rto     the same, and no W_max: K = 0, W_max = W_epoch in the next epoch     (4.8)
//! ```
//! An epoch begins with the first growth above ssthresh after a loss. t leaves out times in which
//! the sender had nothing to send (5.8). Slow start: standard, HyStart++ or HyStart
//! ([`super::hystart`]). States else as in [`super::window`].
//!
//! Departures, with reasons:
//! - b of cwnd and not of the flight size, as 4.6 allows: the window does not grow unless filled.
//! - RTT is the least seen, 0 if none is known: a queue need not hasten growth.
//! - In a measurement over an interval t is taken at its middle, when its acknowledgements came.
//!
//! Linux counts whole segments: a law of its own (`linux.rs`). So does ns-3 (`ns3.rs`).
//!
//! Ranges, all in integers: time from K up to 2^20 / 1024 s = 17 minutes (beyond that W stays), in
//! 1/1024 s; K up to 34 minutes; W_est in 1/256 byte.

mod linux;
pub(super) mod ns3;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub use self::linux::Linux;
use super::hystart::{HyStart, HyStartKind};
use super::interim::{Beta, Interim};
use super::window::{CWND_MAX, MIN_WINDOW_MSS, MinRtt, Window, WindowControl, WindowLaw};
use super::{Algorithm, CongestionControl, Measurement};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Duration, Ratio, Timestamp};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "cubic",
    summary: "a cubic function of the time since the last loss",
    sources: &["RFC 9438", "RFC 9406"],
    params: &[&HyStartKind::PARAM, &BETA, &FAST_CONVERGENCE, &RENO_FRIENDLY, &LINUX_GROWTH],
    needs: &[],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &build,
};

/// Share of the window left by a loss (RFC 9438, section 4.6). A larger one yields to other flows
/// more slowly.
const BETA: Param<Ratio> =
    Param::new("beta", "share of the window left by a loss, to a tenth of a percent (section 4.6)")
        .or(Ratio::new(0.7).unwrap())
        .within(Ratio::new(0.1).unwrap()..=Ratio::new(0.95).unwrap());
/// Fast convergence (RFC 9438, section 4.7).
const FAST_CONVERGENCE: Param<bool> = Param::new(
    "fast_convergence",
    "aim lower after a loss below the last, to make room for other flows",
)
.or(true);
/// Reno-friendly region (RFC 9438, section 4.3). Without it, small windows grow more slowly than
/// Reno's.
const RENO_FRIENDLY: Param<bool> =
    Param::new("reno_friendly", "at least the window that Reno would have").or(true);
/// Growth counted as in Linux `tcp_cubic.c` instead of RFC 9438; off by default.
const LINUX_GROWTH: Param<bool> =
    Param::switch("linux_growth", "count segments as Linux does, always with reno_friendly");

/// Ticks of the cubic function in a second.
const TICKS_PER_SEC: u64 = 1 << 10;
/// Largest distance from K that is cubed: its square and a thousandth of its cube fit.
const TICKS_MAX: u64 = 1 << 20;
/// Fraction bits of W_est.
const EST_BITS: u32 = 8;

fn build(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    let common = Common::read(spec, HyStartKind::PARAM.of(spec)?)?;
    if LINUX_GROWTH.of(spec)? {
        return Ok(WindowControl::boxed(Linux::new(common)));
    }
    let reno_friendly = RENO_FRIENDLY.of(spec)?;
    Ok(WindowControl::boxed(Cubic { common, reno_friendly, ..Cubic::default() }))
}

/// Share of the window that remains after a loss, in thousandths: b.
#[derive(Clone, Copy, Debug)]
struct Decrease(u64);

impl Default for Decrease {
    fn default() -> Self {
        Self(700)
    }
}

impl Decrease {
    fn read(spec: &Spec) -> Result<Self, SpecError> {
        Ok(Self((BETA.of(spec)?.as_f64() * 1000.0 + 0.5) as u64))
    }

    /// The rest of a window, in bytes or segments.
    const fn of(self, window: u64) -> u64 {
        window * self.0 / 1000
    }

    /// W_max after fast convergence.
    const fn converging(self, window: u64) -> u64 {
        window * (1000 + self.0) / 2000
    }

    /// `amount` times a.
    const fn friendly(self, amount: u64) -> u64 {
        (amount as u128 * (3 * (1000 - self.0)) as u128 / (1000 + self.0) as u128) as u64
    }

    /// Segments to be acknowledged for one more of W_est: `segments` over a.
    const fn each(self, segments: u64) -> u64 {
        segments * (1000 + self.0) / (3 * (1000 - self.0))
    }

    /// The remaining share, as hosts have it.
    const fn beta(self) -> Beta {
        Beta::of(self.0 as u32, 1000)
    }
}

/// CUBIC except its growth, which is computed in several ways.
#[derive(Clone, Debug, Default)]
struct Common {
    decrease: Decrease,
    fast_convergence: bool,
    hystart: HyStart,
    min_rtt: MinRtt,
    /// Bytes; 0 if there was no loss.
    w_max: u64,
}

impl Common {
    /// Reads the parameters in `spec`, with `hystart`.
    fn read(spec: &Spec, hystart: HyStartKind) -> Result<Self, SpecError> {
        Ok(Self {
            decrease: Decrease::read(spec)?,
            fast_convergence: FAST_CONVERGENCE.of(spec)?,
            hystart: HyStart::new(hystart),
            ..Self::default()
        })
    }

    /// The least round trip, 0 if none is known.
    fn min_rtt(&self) -> Duration {
        self.min_rtt.get().unwrap_or(Duration::ZERO)
    }

    fn observe(&mut self, now: Timestamp, measurement: &Measurement, window: &mut Window) {
        self.min_rtt.observe(measurement);
        self.hystart.observe(now, measurement, window);
    }

    fn slow_start(&self, acked: u64, window: &mut Window) -> u64 {
        let room = window.ssthresh().saturating_sub(window.cwnd());
        window.set_cwnd(window.cwnd() + self.hystart.counted(acked).min(room));
        if self.hystart.is_conservative() { 0 } else { acked.saturating_sub(room) }
    }

    fn on_loss(&mut self, cwnd: u64) {
        let is_below = self.fast_convergence && cwnd < self.w_max;
        self.w_max = if is_below { self.decrease.converging(cwnd) } else { cwnd };
    }

    fn on_rto(&mut self) {
        self.w_max = 0;
        self.hystart.restart();
    }

    fn shift_rtt(&mut self, nanos: i64) {
        self.min_rtt.shift(nanos);
        self.hystart.shift_rtt(nanos);
    }

    fn reason(&self) -> &'static str {
        if self.w_max == 0 { "no loss yet" } else { "cubic growth since the last loss" }
    }

    /// `k` in ticks.
    fn numbers(&self, k: u64, estimate: u64) -> Vec<(&'static str, f64)> {
        alloc::vec![
            ("w_max_bytes", self.w_max as f64),
            ("k_s", k as f64 / TICKS_PER_SEC as f64),
            ("w_est_bytes", estimate as f64),
            ("conservative", f64::from(u8::from(self.hystart.is_conservative()))),
        ]
    }
}

/// From the first growth after a loss to the next loss.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    began_at: Timestamp,
    /// The window then, in bytes.
    from: u64,
    /// K in ticks.
    k: u64,
    /// Where the function is flat, bytes.
    origin: u64,
    /// W_est in 1/256 byte and, where it grows by segments, those acknowledged towards the next.
    estimate: u64,
    acked: u64,
}

#[derive(Clone, Default)]
pub(super) struct Cubic {
    common: Common,
    reno_friendly: bool,
    /// Interval of the last measurement.
    interval: Duration,
    /// Window before the last loss, bytes.
    before_loss: u64,
    epoch: Option<Epoch>,
    /// W(t + RTT), and the bytes by which W_est grows in a window, when the window last grew: for a
    /// host that does not call at every acknowledgement.
    target: u64,
    friendly: u64,
}

/// Cube root of `value`, rounded down.
fn cube_root(value: u64) -> u64 {
    /// Cube root of the largest value.
    const ROOT_MAX: u64 = 2_642_245;

    let mut root = 0_u64;
    // The root of a 64-bit number has 22 bits at most; bit by bit, from the top. Without a branch: the
    // verifier of BPF follows both ways of each.
    for bit in (0..22).rev() {
        let candidate = root | 1 << bit;
        let cube = candidate.wrapping_mul(candidate).wrapping_mul(candidate);
        let is_above = borrow(value, cube) | borrow(ROOT_MAX, candidate);
        root |= (is_above ^ 1) << bit;
    }
    root
}

/// 1 if `a` is below `b`, else 0.
fn borrow(a: u64, b: u64) -> u64 {
    ((!a & b) | ((!a | b) & a.wrapping_sub(b))) >> 63
}

/// cbrt(`bytes` / C) in ticks, C being 0.4 mss / s^3.
fn ticks_to_origin(bytes: u64, mss: u64) -> u64 {
    let cube = (bytes << 10) / mss * 5 / 2; // s^3 in 1/2^10, below 2^44
    cube_root(cube.min(u64::MAX >> 20) << 20)
}

/// C `ticks`^3 in bytes, C being 0.4 mss / s^3.
fn cubic_bytes(ticks: u64, mss: u64) -> u64 {
    let ticks = ticks.min(TICKS_MAX);
    let cube = (ticks * ticks * ticks) >> 20; // s^3 in 1/2^10, at most 2^40
    (cube * mss * 2 / 5) >> 10
}

fn ticks(duration: Duration) -> u64 {
    let fraction = u64::from(duration.subsec_nanos()) * TICKS_PER_SEC / 1_000_000_000;
    duration.as_secs().min(TICKS_MAX) * TICKS_PER_SEC + fraction
}

impl Epoch {
    /// An epoch that begins at a window of `cwnd`, the last loss having been at `w_max`.
    fn new(now: Timestamp, cwnd: u64, w_max: u64, mss: u64) -> Self {
        Self {
            began_at: now,
            from: cwnd,
            k: ticks_to_origin(w_max.saturating_sub(cwnd), mss),
            origin: w_max.max(cwnd),
            estimate: cwnd << EST_BITS,
            acked: 0,
        }
    }

    /// W(`at`) in bytes, below 2^46.
    fn window_at(&self, at: u64, mss: u64) -> u64 {
        let distance = cubic_bytes(at.abs_diff(self.k), mss);
        if at < self.k { self.origin.saturating_sub(distance) } else { self.origin + distance }
    }
}

impl Cubic {
    fn epoch(&mut self, now: Timestamp, window: &Window) -> Epoch {
        *self
            .epoch
            .get_or_insert_with(|| Epoch::new(now, window.cwnd(), self.common.w_max, window.mss()))
    }

    /// `at` + RTT in ticks of the epoch.
    fn ticks_ahead(&self, at: Timestamp, epoch: &Epoch) -> u64 {
        ticks(at.saturating_since(epoch.began_at).saturating_add(self.common.min_rtt()))
    }

    /// Whether W_est still grows slower than Reno's window.
    fn is_slower(&self, epoch: &Epoch) -> bool {
        (epoch.estimate >> EST_BITS) < self.before_loss
    }

    /// W(RTT) of an epoch that begins at `cwnd`.
    fn first_target(&self, cwnd: u64, mss: u64) -> u64 {
        let epoch = Epoch::new(Timestamp::ZERO, cwnd, self.common.w_max, mss);
        epoch.window_at(self.ticks_ahead(Timestamp::ZERO, &epoch), mss)
    }

    /// Notes the growth that a host is to do from `now` on. `target` is the target at the
    /// measurement's middle. For a measurement of many acknowledgements the target is computed again.
    fn look_ahead(&mut self, now: Timestamp, target: u64, reno: u64, window: &Window) {
        let Some(epoch) = self.epoch else { return };
        let is_batch = self.interval > self.common.min_rtt() / 4;
        self.target = if is_batch {
            epoch.window_at(self.ticks_ahead(now, &epoch), window.mss())
        } else {
            target
        };
        self.friendly = match (self.reno_friendly && window.cwnd() <= reno, self.is_slower(&epoch))
        {
            (false, _) => 0,
            (true, true) => self.common.decrease.friendly(window.mss()),
            (true, false) => window.mss(),
        };
    }

    /// W_est after `acked` bytes, in bytes.
    fn reno_window(&mut self, epoch: Epoch, acked: u64, window: &Window) -> u64 {
        // acked mss 256 < 2^61: acked is below 2^36 and mss at most 2^16.
        let growth = (acked * window.mss()) << EST_BITS;
        let decrease = self.common.decrease;
        let growth = if self.is_slower(&epoch) { decrease.friendly(growth) } else { growth };
        let growth = growth / window.cwnd();
        let estimate = (epoch.estimate + growth).min(CWND_MAX << EST_BITS);
        self.epoch = Some(Epoch { estimate, ..epoch });
        estimate >> EST_BITS
    }
}

impl WindowLaw for Cubic {
    fn observe(&mut self, now: Timestamp, measurement: &Measurement, window: &mut Window) {
        self.interval = measurement.interval;
        self.common.observe(now, measurement, window);
        if let Some(epoch) = self.epoch.as_mut().filter(|_| measurement.app_limited) {
            epoch.began_at = (epoch.began_at + measurement.interval).min(now);
        }
    }

    fn slow_start(&mut self, _now: Timestamp, acked: u64, window: &mut Window) -> u64 {
        self.common.slow_start(acked, window)
    }

    fn avoid(&mut self, now: Timestamp, acked: u64, window: &mut Window) {
        let mss = window.mss();
        let epoch = self.epoch(now, window);
        let middle = now - self.interval / 2;
        let target = epoch.window_at(self.ticks_ahead(middle, &epoch), mss);
        let reno = self.reno_window(epoch, acked, window);
        window.grow(acked, |cwnd| target.clamp(cwnd, cwnd / 2 * 3) - cwnd);
        if self.reno_friendly && window.cwnd() < reno {
            window.set_cwnd(reno);
        }
        self.look_ahead(now, target, reno, window);
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        let cwnd = window.cwnd();
        self.common.on_loss(cwnd);
        self.before_loss = cwnd;
        self.epoch = None;
        self.friendly = 0;
        let left = self.common.decrease.of(cwnd);
        self.target = self.first_target(left, window.mss());
        left
    }

    fn on_rto(&mut self, ssthresh: u64, _window: &Window) -> u64 {
        self.common.on_rto();
        self.target = 0;
        ssthresh
    }

    fn on_idle_restart(&mut self, _now: Timestamp, _window: &Window) {
        self.epoch = None;
    }

    fn on_slow_start_end(&mut self) {
        self.common.hystart.host_found();
    }

    fn shift_rtt(&mut self, nanos: i64) {
        self.common.shift_rtt(nanos);
    }

    fn interim(&self, window: &Window) -> Interim {
        let cwnd = window.cwnd();
        let growth = self.target.min(cwnd / 2 * 3).saturating_sub(cwnd);
        let cap = if self.friendly > 0 { u64::MAX } else { self.target.max(cwnd) };
        Interim {
            growth: ByteCount::new(growth.max(self.friendly)),
            cap: ByteCount::new(cap),
            slow_start: self.common.hystart.host_slow_start(),
            beta: Some(self.common.decrease.beta()),
            ..Interim::HOLD
        }
    }

    fn reason(&self) -> &'static str {
        self.common.reason()
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        let (k, estimate) =
            self.epoch.map_or((0, 0), |epoch| (epoch.k, epoch.estimate >> EST_BITS));
        self.common.numbers(k, estimate)
    }
}

#[cfg(test)]
mod tests;
