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
//! loss    W_max = cwnd, or 0.85 cwnd where cwnd < W_max (fast convergence, 4.7)
//!         ssthresh = b cwnd, b = 0.7                                           (4.6)
//! Rto     the same, and no W_max: K = 0, W_max = W_epoch in the next epoch     (4.8)
//! ```
//! An epoch begins with the first growth above ssthresh after a loss. t leaves out times in which
//! the sender had nothing to send (5.8). Slow start: standard, HyStart++ or HyStart
//! ([`super::hystart`]). States else as in [`super::window`].
//!
//! Departures, with reasons:
//! - b of cwnd and not of the flight size, as 4.6 allows: the window does not grow unless filled.
//! - RTT is the least seen, 0 if none is known: a queue need not hasten growth.
//! - In a measurement over an interval t is that of its middle: what it acknowledges came then.
//! - `ns3_growth`: whole segments, by counting acknowledgements with the integer divisions of Linux
//!   and ns-3, at most one segment for two of them, and 5 % a window before any loss; slow start not
//!   held at ssthresh; after a timeout the least round trip anew; and, as in ns-3.37, no W_est
//!   unless `reno_friendly` asks for it. `ns3_hystart`.
//! - `linux_growth`: as `linux.rs` says, a measurement over an interval in parts. Beside it, a loss
//!   takes 717/1024 of whole segments, every timeout forgets the least round trip, and a loss that was
//!   spurious stays in the function.
//!
//! Ranges, all in integers: time from K up to 2^20 / 1024 s = 17 minutes (beyond that W stays), in
//! 1/1024 s; K up to 34 minutes; W_est in 1/256 byte.

mod linux;

use alloc::boxed::Box;
use alloc::vec::Vec;

use self::linux::Linux;
use super::hystart::{HyStart, Kind};
use super::law::{Beta, Law};
use super::window::{CWND_MAX, MIN_WINDOW_MSS, MinRtt, Ns3, Window, WindowControl, WindowLaw};
use super::{Algorithm, CongestionControl, Measurement};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Duration, Timestamp};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "cubic",
    summary: "a cubic function of the time since the last loss",
    sources: &["RFC 9438", "RFC 9406"],
    params: &[
        &Kind::PARAM,
        &FAST_CONVERGENCE,
        &RENO_FRIENDLY,
        &Ns3::GROWTH,
        &Kind::NS3_PARAM,
        &LINUX_GROWTH,
    ],
    needs: &[],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &build,
};

const FAST_CONVERGENCE: Param<bool> = Param::new(
    "fast_convergence",
    "aim lower after a loss below the last, to make room for others",
)
.or(true);
const RENO_FRIENDLY: Param<bool> =
    Param::new("reno_friendly", "at least the window that Reno would have").or(true);
const LINUX_GROWTH: Param<bool> = Param::switch(
    "linux_growth",
    "count segments as Linux does, reno_friendly in any case; ns3_growth takes precedence",
);

/// Ticks of the cubic function in a second.
const TICKS_PER_SEC: u64 = 1 << 10;
/// Largest distance from K whose cube is taken: its square and a thousandth of its cube fit.
const TICKS_MAX: u64 = 1 << 20;
/// Fraction bits of W_est.
const EST_BITS: u32 = 8;
/// Parts of a round trip, and of a window, in which Linux's growth takes what was acknowledged.
const LINUX_PARTS: u64 = 16;
/// ns-3: most acknowledgements for a segment before any loss (`CntClamp`, 5 % a window).
const NS3_EARLY_COUNT: u64 = 20;

fn build(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    let growth = Ns3::GROWTH.of(spec)?;
    let linux = LINUX_GROWTH.of(spec)?;
    let law = Cubic {
        fast_convergence: FAST_CONVERGENCE.of(spec)?,
        reno_friendly: RENO_FRIENDLY.given(spec)?.unwrap_or(!growth),
        hystart: HyStart::new(Kind::read(spec)?),
        linux: (linux && !growth).then(Linux::default),
        ..Cubic::default()
    };
    // CUBIC's ssthresh is a share of the window in ns-3 too.
    Ok(WindowControl::boxed(law, Ns3 { growth, flight: false }))
}

/// From the first growth after a loss to the next loss.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    began_at: Timestamp,
    /// K in ticks.
    k: u64,
    /// Where the function is flat, bytes.
    origin: u64,
    /// W_est in 1/256 byte.
    estimate: u64,
    /// ns-3: W_est in segments, and acknowledgements towards the next.
    reno_segments: u64,
    reno_counted: u64,
}

#[derive(Clone, Default)]
struct Cubic {
    fast_convergence: bool,
    reno_friendly: bool,
    hystart: HyStart,
    min_rtt: MinRtt,
    /// Interval of the last measurement.
    interval: Duration,
    /// Over which its acknowledgements came: not over a pause before them.
    acked_over: Duration,
    /// Bytes; 0 if there was no loss.
    w_max: u64,
    /// Window before the last loss, bytes.
    before_loss: u64,
    epoch: Option<Epoch>,
    /// W(t + RTT) and what W_est grows by in a window, bytes, when the window last grew: for a host
    /// that is not asked at every acknowledgement.
    target: u64,
    friendly: u64,
    /// ns-3: segments acknowledged since the last one added.
    counted: u64,
    /// Linux's growth, if that is switched on.
    linux: Option<Linux>,
}

/// Greatest integer whose cube is at most `value`.
fn cube_root(value: u64) -> u64 {
    let mut root = 0_u64;
    // The root of a 64-bit number has 22 bits at most; bit by bit, from the top.
    for bit in (0..22).rev() {
        let candidate = root | 1 << bit;
        if candidate.checked_pow(3).is_some_and(|cube| cube <= value) {
            root = candidate;
        }
    }
    root
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
    /// W(`at`) in bytes, below 2^46.
    fn window_at(&self, at: u64, mss: u64) -> u64 {
        let distance = cubic_bytes(at.abs_diff(self.k), mss);
        if at < self.k { self.origin.saturating_sub(distance) } else { self.origin + distance }
    }
}

impl Cubic {
    fn epoch(&mut self, now: Timestamp, window: &Window) -> Epoch {
        *self.epoch.get_or_insert_with(|| {
            let (cwnd, mss) = (window.cwnd(), window.mss());
            Epoch {
                began_at: now,
                k: ticks_to_origin(self.w_max.saturating_sub(cwnd), mss),
                origin: self.w_max.max(cwnd),
                estimate: cwnd << EST_BITS,
                reno_segments: window.segments(),
                reno_counted: 0,
            }
        })
    }

    /// `at` + RTT in ticks of the epoch.
    fn ticks_ahead(&self, at: Timestamp, epoch: &Epoch) -> u64 {
        let rtt = self.min_rtt.get().unwrap_or(Duration::ZERO);
        ticks(at.saturating_since(epoch.began_at).saturating_add(rtt))
    }

    /// Whether W_est still grows slower than Reno's window.
    fn is_slower(&self, epoch: &Epoch) -> bool {
        (epoch.estimate >> EST_BITS) < self.before_loss
    }

    /// W(RTT) of an epoch that begins at `cwnd`.
    fn first_target(&self, cwnd: u64, mss: u64) -> u64 {
        let epoch = Epoch {
            began_at: Timestamp::ZERO,
            k: ticks_to_origin(self.w_max.saturating_sub(cwnd), mss),
            origin: self.w_max.max(cwnd),
            estimate: 0,
            reno_segments: 0,
            reno_counted: 0,
        };
        epoch.window_at(self.ticks_ahead(Timestamp::ZERO, &epoch), mss)
    }

    /// Notes what a host is to do from `now` on. `target` is that of the measurement's middle: for
    /// one of many acknowledgements it is taken anew.
    fn look_ahead(&mut self, now: Timestamp, target: u64, reno: u64, window: &Window) {
        let Some(epoch) = self.epoch else { return };
        let rtt = self.min_rtt.get().unwrap_or(Duration::ZERO);
        let is_batch = self.interval > rtt / 4;
        self.target = if is_batch {
            epoch.window_at(self.ticks_ahead(now, &epoch), window.mss())
        } else {
            target
        };
        self.friendly = match (self.reno_friendly && window.cwnd() <= reno, self.is_slower(&epoch))
        {
            (false, _) => 0,
            (true, true) => window.mss() * 9 / 17,
            (true, false) => window.mss(),
        };
    }

    /// W_est after `acked` bytes, in bytes.
    fn reno_window(&mut self, epoch: Epoch, acked: u64, window: &Window) -> u64 {
        // 9 acked mss 256 < 2^64: acked is below 2^36 and mss at most 2^16.
        let growth = (acked * window.mss()) << EST_BITS;
        let growth = if self.is_slower(&epoch) { growth * 9 / 17 } else { growth } / window.cwnd();
        let estimate = (epoch.estimate + growth).min(CWND_MAX << EST_BITS);
        self.epoch = Some(Epoch { estimate, ..epoch });
        estimate >> EST_BITS
    }

    /// What a measurement over an interval acknowledged is taken in parts, as it came: Linux takes the
    /// count anew where it has grown. Never less than one acknowledgement tells of.
    fn avoid_as_linux(&mut self, now: Timestamp, acked: u64, window: &mut Window) {
        let Some(linux) = &mut self.linux else { return };
        let (mss, min_rtt) = (window.mss(), self.min_rtt.get().unwrap_or(Duration::ZERO));
        let round_trips = self.acked_over.as_nanos() * u128::from(LINUX_PARTS);
        let by_time = round_trips.checked_div(min_rtt.as_nanos()).unwrap_or(0);
        let by_size = acked / (window.cwnd() / LINUX_PARTS).max(2 * mss);
        let parts = u64::try_from(by_time).unwrap_or(u64::MAX).min(by_size).max(1) as u32;
        let mut left = acked;
        for later in (0..parts).rev() {
            let bytes = left / u64::from(later + 1);
            left -= bytes;
            let windows = (window.segments(), self.w_max / mss);
            let at = now - self.acked_over / parts * later;
            let segments = linux.grow(at, (bytes, mss), windows, min_rtt);
            window.set_cwnd(window.cwnd() + segments * mss);
        }
    }

    /// ns-3's W(t + RTT) in segments: whole ones, on either side of the origin.
    fn ns3_target(&self, now: Timestamp, epoch: &Epoch, mss: u64) -> u64 {
        let since = now.saturating_since(epoch.began_at);
        let at = ticks(since.saturating_add(self.min_rtt.get().unwrap_or(Duration::ZERO)));
        let distance = cubic_bytes(at.abs_diff(epoch.k), mss) / mss;
        let origin = epoch.origin / mss;
        if at < epoch.k { origin.saturating_sub(distance) } else { origin + distance }
    }

    /// The segments that ns-3 wants acknowledged for one more.
    fn ns3_count(&mut self, now: Timestamp, acked: u64, window: &Window) -> u64 {
        let mut epoch = self.epoch(now, window);
        let segments = window.segments();
        let target = self.ns3_target(now, &epoch, window.mss());
        let mut count = match target.checked_sub(segments) {
            None | Some(0) => 100 * segments,
            Some(more) => segments / more,
        };
        if self.w_max == 0 {
            count = count.min(NS3_EARLY_COUNT);
        }
        if self.reno_friendly {
            epoch.reno_counted += acked;
            let each = (segments * 17 / 9).max(1);
            epoch.reno_segments += epoch.reno_counted / each;
            epoch.reno_counted %= each;
            if let Some(more) = epoch.reno_segments.checked_sub(segments).filter(|more| *more > 0) {
                count = count.min(segments / more);
            }
            self.epoch = Some(epoch);
        }
        count.max(2)
    }
}

impl WindowLaw for Cubic {
    fn start(&mut self, _now: Timestamp, _window: &Window) {
        self.hystart.restart();
        let (fast_convergence, reno_friendly) = (self.fast_convergence, self.reno_friendly);
        let (hystart, linux) =
            (self.hystart.clone(), self.linux.as_ref().map(|_| Linux::default()));
        *self = Self { fast_convergence, reno_friendly, hystart, linux, ..Self::default() };
    }

    fn observe(&mut self, now: Timestamp, measurement: &Measurement, window: &mut Window) {
        let interval = measurement.interval;
        self.interval = interval;
        self.acked_over = measurement.rtt.map_or(interval, |rtt| interval.min(rtt.latest));
        if self.linux.as_ref().is_some_and(|linux| linux.discards_rtt(now)) {
            return;
        }
        self.min_rtt.observe(measurement);
        self.hystart.observe(now, measurement, window);
        if let Some(epoch) = self.epoch.as_mut().filter(|_| measurement.app_limited) {
            epoch.began_at = (epoch.began_at + interval).min(now);
        }
    }

    fn slow_start(&mut self, _now: Timestamp, acked: u64, window: &mut Window) -> u64 {
        // Counted in bytes in ns-3 too, where Reno counts acknowledgements.
        let counted = self.hystart.counted(acked);
        let room = window.ssthresh().saturating_sub(window.cwnd());
        if window.ns3().growth {
            window.set_cwnd(window.cwnd() + counted);
            return 0;
        }
        window.set_cwnd(window.cwnd() + counted.min(room));
        if self.hystart.is_conservative() { 0 } else { acked.saturating_sub(room) }
    }

    fn avoid(&mut self, now: Timestamp, acked: u64, window: &mut Window) {
        let mss = window.mss();
        if window.ns3().growth {
            let segments = acked / mss;
            self.counted += segments;
            let count = self.ns3_count(now, segments, window);
            if self.counted >= count {
                window.add_segments(1);
                self.counted -= count;
            }
            return;
        }
        if self.linux.is_some() {
            return self.avoid_as_linux(now, acked, window);
        }
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
        let is_below = self.fast_convergence && cwnd < self.w_max;
        self.w_max = if is_below { cwnd * 17 / 20 } else { cwnd };
        self.before_loss = cwnd;
        self.epoch = None;
        self.friendly = 0;
        self.target = self.first_target(cwnd * 7 / 10, window.mss());
        if window.ns3().growth {
            self.w_max -= self.w_max % window.mss();
            return window.whole_segments(window.segments() * 7 / 10);
        }
        if let Some(linux) = &mut self.linux {
            linux.end_epoch();
            return window.whole_segments(window.segments() * 717 / 1024);
        }
        cwnd * 7 / 10
    }

    fn on_rto(&mut self, now: Timestamp, window: &Window) -> u64 {
        let ssthresh = self.on_loss(now, window);
        self.w_max = 0;
        self.target = 0;
        self.hystart.restart();
        if let Some(linux) = &mut self.linux {
            (*linux, self.min_rtt) = (Linux::default(), MinRtt::default());
        } else if window.ns3().growth {
            self.min_rtt = MinRtt::default();
        } else {
            self.counted = 0;
        }
        ssthresh
    }

    fn on_rto_in_episode(&mut self) {
        // Linux forgets at every timeout (cubictcp_state, bictcp_reset).
        if let Some(linux) = &mut self.linux {
            (*linux, self.min_rtt, self.w_max) = (Linux::default(), MinRtt::default(), 0);
            self.hystart.restart();
        }
    }

    fn undo(&mut self, saved: Self) {
        // Linux restores the window (tcp_reno_undo_cwnd) and nothing of struct bictcp.
        if self.linux.is_none() {
            *self = saved;
        }
    }

    fn on_resume(&mut self, now: Timestamp, idle: Duration) {
        if let Some(linux) = &mut self.linux {
            linux.resume(now, idle);
        }
    }

    fn on_idle_restart(&mut self, _now: Timestamp, _window: &Window) {
        self.epoch = None;
    }

    fn on_slow_start_end(&mut self) {
        self.hystart.host_found();
    }

    fn shift_rtt(&mut self, nanos: i64) {
        self.min_rtt.shift(nanos);
        self.hystart.shift_rtt(nanos);
    }

    fn host_law(&self, window: &Window) -> Law {
        if window.ns3().growth {
            return Law { beta: Some(Beta::ONE), ..Law::HOLD };
        }
        let cwnd = window.cwnd();
        if let Some(linux) = &self.linux {
            // Where it is to grow from if it doubles until then.
            let from =
                if window.ssthresh() < CWND_MAX { cwnd.max(window.ssthresh()) } else { cwnd };
            let windows = (from / window.mss(), self.w_max / window.mss());
            let min_rtt = self.min_rtt.get().unwrap_or(Duration::ZERO);
            return Law {
                growth: ByteCount::new(from / linux.count(windows, min_rtt)),
                slow_start: self.hystart.host_slow_start(),
                beta: Some(Beta::of(717, 1024)),
                ..Law::HOLD
            };
        }
        let growth = self.target.min(cwnd / 2 * 3).saturating_sub(cwnd);
        let cap = if self.friendly > 0 { u64::MAX } else { self.target.max(cwnd) };
        Law {
            growth: ByteCount::new(growth.max(self.friendly)),
            cap: ByteCount::new(cap),
            slow_start: self.hystart.host_slow_start(),
            beta: Some(Beta::of(7, 10)),
            ..Law::HOLD
        }
    }

    fn reason(&self) -> &'static str {
        if self.w_max == 0 { "no loss yet" } else { "the window of the last loss" }
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        let (k, estimate) = match &self.linux {
            Some(linux) => (linux.k(), linux.estimate()),
            None => self.epoch.map_or((0, 0), |epoch| (epoch.k, epoch.estimate >> EST_BITS)),
        };
        alloc::vec![
            ("w_max_bytes", self.w_max as f64),
            ("k_s", k as f64 / TICKS_PER_SEC as f64),
            ("w_est_bytes", estimate as f64),
            ("conservative", f64::from(u8::from(self.hystart.is_conservative()))),
        ]
    }
}

#[cfg(test)]
mod tests;
