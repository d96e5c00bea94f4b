//! The frame of every delay-based algorithm around its steering: start, drains, loss and app-limited rules.
//!
//! ```text
//!             x > 3 xd for a full window               every 10 s, or x > 4 x* for 4 Tl
//! measuring ───────────────────────────────► steering ◄─────────────────────────────────► draining
//! (no limits)   W = E x base + Q             (the law)   W = f x R x base for >= 3 Tl
//!     ▲                                                                                    │
//!     └──────── releasing ◄──── a probe that found no queue, before any limit ─────────────┘
//! ```
//! xd is the delay of six packets or 0.75 ms, whichever is longer, where x* may be less: a shorter queue of
//! hosts in slow start comes from a burst.
//!
//! **Start.** Limits are off until self-inflicted queueing is seen, or found by a drain, the probe. A box
//! that starts under load takes the standing queue for a part of the base. All it can see is a delivery rate
//! that stays the same. E is the largest short-train delivery rate of the last loop time. During slow start
//! the rate over a round trip is far below the capacity, while trains that meet a queue leave the bottleneck
//! at its rate. A probe that finds no queue confirms the base for rates up to its own. It then releases the
//! packets held back little by little: buffers too shallow for a queue to be seen would drop them.
//!
//! **Start of a single flow** (`flow = true`, for a TCP sender). No hosts behind it have a window of their
//! own, so "without limits" means slow start here: from the initial window, doubling each round trip. It ends
//! as the limits of a bundle begin, or at the first loss. A timeout leaves the least window, and slow start
//! begins again from there. An algorithm that sets a rate also gets a window of twice the one it steers for:
//! a rate alone would send into a path that has stopped.
//!
//! **Drain.** The base is the least round trip ever seen, and x is relative to it. So only a window small
//! enough to empty the queue shows whether the base still holds; see [`super::drain`]. A drain of another
//! bundle refills the room that a shallow drain makes in a common queue: some drains go below the base.
//!
//! **Competing traffic.** A queue that stands in spite of the window starts a drain, and several drains lead
//! nowhere if cross traffic makes the queue. A single flow can be set to compete (`rival.rs`). The limits of
//! a bundle hold only while they pay, which its sendbox decides (`bundle/control/supervisor.rs`).
//!
//! **Loss.** More than 5 % of the window for 1.5 round trips lowers the window to the delivered bytes and
//! stops growth for 4 round trips; less never lowers it.
//!
//! **Shallow buffers** overflow before a queue of 3 x* can stand (see [`super::overflow`]). From the second
//! overflow on limits hold, once a drain has confirmed the base. Each lowers the window to the content of the
//! path and x*. For half a minute the window grows no further and the rate stays at the bottleneck's. No
//! algorithm looks for more there, and the packets that a drain has held back leave without a burst.
//!
//! **App-limited.** The window falls only if queueing is plain, and grows only if it is nearly full; nothing
//! is drained. This rule does not hold while queueing is visible. A bundle with its queue at the bottleneck
//! would otherwise find its own queue empty and never take control again.

mod draining;
mod rival;
#[cfg(test)]
mod tests;
mod watch;

use alloc::vec;

use self::rival::Rival;
use self::watch::{LossWatch, STEADY_SHARE, Steady};
use super::drain::{DEEP, Drain, DrainVerdict, Release, tolerance_s};
use super::estimators::{Path, PathEstimator, duration};
use super::interim::{Interim, Tripwires};
use super::overflow::OverflowWatch;
use super::{CongestionControl, CongestionEvent, Measurement, SendLimits, State};
use crate::random::{Stream, Streams};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// A steering function around a queue of [`Path::target_bytes`].
pub trait DelayLaw: Send {
    /// A bundle on a slow path aims for less than six packets (see [`PathEstimator`]). For algorithms that
    /// find their share next to another bundle even though the bundle with less then aims for less.
    const IS_SHORT_ON_SLOW_PATHS: bool = false;
    /// The next window in bytes and, for algorithms that set one, the rate in bytes per second.
    fn steer(&mut self, path: &Path, window: &DelayWindow) -> Steering;
    /// The window was set from outside: forget velocity and integrals.
    fn restart(&mut self, path: &Path);
    /// Reason for the last decision.
    fn reason(&self) -> &'static str;
}

/// The window that an algorithm steers, with the bounds it has to respect.
#[derive(Clone, Copy, Debug)]
pub struct DelayWindow {
    /// Window in force (bytes).
    pub bytes: f64,
    /// Largest window that growth may reach (bytes).
    pub growth_limit_bytes: f64,
    /// Bytes that the path holds in a base, no queue included (bytes).
    pub content_bytes: f64,
    /// Segment size (bytes).
    pub mss_bytes: f64,
    /// Recent share of lost bytes, while it is too small to count as congestion.
    pub loss: f64,
    /// Limits have begun to hold so recently that rates still show the slow start.
    pub is_fresh: bool,
}

/// Decision of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steering {
    /// Window in bytes.
    pub window_bytes: f64,
    /// Rate in bytes per second; `None`: derived from the window.
    pub rate_bytes_per_s: Option<f64>,
    /// The window binds in addition to the rate.
    pub window_binds: bool,
}

/// The parameter that fits an algorithm for bundles to a single flow.
pub const FLOW: Param<bool> = Param::switch(
    "flow",
    "for the sender of a single flow: begin with slow start instead of without limits",
);

/// The parameter that lets a single flow compete.
pub const MODE_SWITCHING: Param<bool> = Param::switch(
    "mode_switching",
    "a single flow competes with flows that fill the buffer (paper, section 2.2)",
)
.also(", true only with flow");

/// Standing delay, in targets, above which limits hold.
const START_TARGETS: f64 = 3.0;
/// Window of a flow over the one steered for, where a rate binds.
const FLOW_WINDOW: f64 = 2.0;
/// Jitter of that time: bundles that started together must not drain together for ever.
const DRAIN_JITTER: f64 = 0.2;
/// Time from the first limit to the first drain: other bundles may still be unshaped.
const FIRST_DRAIN_S: f64 = 2.0;
/// Least window over the bytes recently delivered in a base: as in a deep drain.
const WINDOW_FLOOR: f64 = 1.0 - DEEP;
/// Loop times during which the first estimate of the capacity stays: one until its window shows in
/// the delivery rate, one for the rate's span, one for the queue of the slow start to leave.
const FIRST_LOOPS: f64 = 3.0;
/// Largest window over the bytes recently delivered in a base: growth of a quarter a round trip, which the
/// ceiling of the rate allows, too.
const GROWTH: f64 = 1.25;
/// Highest rate over the bottleneck's while a buffer counts as shallow: hardly more must arrive there than
/// leaves, yet new capacity must show.
const SHALLOW_RATE: f64 = 1.05;

#[derive(Clone, Copy, Debug, PartialEq)]
enum DelayPhase {
    Measuring,
    Steering,
    Draining(Drain),
    Releasing(Release),
}

/// A [`DelayLaw`] as a congestion-control algorithm.
pub struct DelayControl<L> {
    law: L,
    estimator: PathEstimator,
    phase: DelayPhase,
    /// When the limits began to hold.
    shaped_since_s: f64,
    /// The capacity that trains had shown until `known_until_s`, or the rate before a drain. After that time
    /// measured rates count.
    known_bytes_per_s: f64,
    known_until_s: f64,
    window_bytes: f64,
    steering: Option<Steering>,
    min_window_mss: f64,
    /// Window of a single flow's slow start in bytes; `None` for an aggregate.
    slow_start_bytes: Option<f64>,
    initial_bytes: f64,
    drains: Stream,
    now_s: f64,
    next_drain_s: f64,
    /// The base after the last drain, or the base that made the next drain due.
    drained_base_s: f64,
    periodic_drains: u32,
    /// Round trip that a deep drain took for the base of a longer path.
    longer_s: Option<f64>,
    steady: Steady,
    is_steady: bool,
    /// Largest delivery rate at which a probe has found no queue.
    confirmed_bytes_per_s: f64,
    /// Duration of the queue that stands although the window is enforced.
    queueing_s: f64,
    /// Since when the bundle has been idle without a sample near the base.
    detached_since_s: Option<f64>,
    loss: LossWatch,
    /// Window before the loss that still lasts, 0 without one.
    before_loss_bytes: f64,
    overflow: OverflowWatch,
    /// State of competing with cross traffic, if a single flow is to compete.
    rival: Option<Rival>,
    /// The host enforces the limits now: a drain that it does not enforce shows nothing.
    is_enforced: bool,
    reason: &'static str,
}

impl<L: DelayLaw> DelayControl<L> {
    /// Runs `law` with a window of at least `min_window_mss` segments.
    pub fn new(law: L, min_window_mss: f64) -> Self {
        Self {
            law,
            estimator: PathEstimator::new(ByteCount::new(1514), L::IS_SHORT_ON_SLOW_PATHS),
            phase: DelayPhase::Measuring,
            shaped_since_s: f64::INFINITY,
            known_bytes_per_s: 0.0,
            known_until_s: 0.0,
            window_bytes: 0.0,
            steering: None,
            min_window_mss,
            slow_start_bytes: None,
            initial_bytes: 0.0,
            drains: Streams::new(0).stream("drains"),
            now_s: 0.0,
            next_drain_s: 0.0,
            drained_base_s: 0.0,
            periodic_drains: 0,
            longer_s: None,
            steady: Steady::default(),
            is_steady: false,
            confirmed_bytes_per_s: 0.0,
            queueing_s: 0.0,
            detached_since_s: None,
            loss: LossWatch::default(),
            before_loss_bytes: 0.0,
            overflow: OverflowWatch::default(),
            rival: None,
            is_enforced: true,
            reason: "no measurement yet",
        }
    }

    /// Reads [`FLOW`].
    pub fn with_host(mut self, spec: &Spec) -> Result<Self, SpecError> {
        self.slow_start_bytes = FLOW.of(spec)?.then_some(0.0);
        Ok(self)
    }

    /// Reads [`MODE_SWITCHING`], which a single flow alone may have.
    pub fn with_mode_switching(mut self, spec: &Spec) -> Result<Self, SpecError> {
        let switches = MODE_SWITCHING.of(spec)?;
        if switches && self.slow_start_bytes.is_none() {
            return Err(MODE_SWITCHING.refused(spec));
        }
        self.rival = switches.then(Rival::default);
        Ok(self)
    }

    fn jittered(&mut self, seconds: f64) -> f64 {
        seconds * (1.0 + DRAIN_JITTER * (2.0 * self.drains.unit() - 1.0))
    }

    /// Removes the limits until a queue is seen, and starts no probe before the rate has been steady.
    fn unlimited(&mut self) {
        self.phase = DelayPhase::Measuring;
        self.shaped_since_s = f64::INFINITY;
        self.steering = None;
        self.steady = Steady::default();
        self.confirmed_bytes_per_s = 0.0;
        self.drained_base_s = 0.0;
        self.longer_s = None;
        self.next_drain_s = self.now_s;
        self.periodic_drains = 0;
        self.queueing_s = 0.0;
        self.loss = LossWatch::default();
        self.before_loss_bytes = 0.0;
        self.overflow = OverflowWatch::default();
        self.rival = self.rival.take().map(|_| Rival::default());
        self.slow_start_bytes = self.slow_start_bytes.map(|_| self.initial_bytes);
    }

    fn slow_start(&mut self, measurement: &Measurement) {
        // The rates of a first window count as app-limited in Linux even where it was filled.
        let is_filled = measurement.cwnd_limited.unwrap_or(!measurement.app_limited);
        if let Some(bytes) = &mut self.slow_start_bytes
            && is_filled
        {
            // Twice the bytes delivered in a window is as fast as slow start goes.
            *bytes += measurement.acked.as_f64().min(*bytes);
        }
    }

    /// A loss or timeout of a single flow; a bundle's hosts have their own answers.
    fn on_flow_loss(&mut self, is_timeout: bool) {
        if self.slow_start_bytes.is_none() {
            return;
        }
        if let Some(rival) = &mut self.rival {
            rival.on_loss();
        }
        let path = *self.estimator.path();
        if is_timeout {
            self.unlimited();
            self.slow_start_bytes = Some(self.min_window_bytes());
            self.reason = "timeout";
        } else if self.phase == DelayPhase::Measuring && path.bottleneck_bytes_per_s > 0.0 {
            let delivery = path.delivery_bytes_per_s;
            self.begin(path.train_bytes_per_s.clamp(delivery, 4.0 * delivery), &path);
            self.reason = "loss in slow start";
        }
    }

    /// The host enforces limits from now on. A queue stood until now, so its departure rate is the path's
    /// rate.
    fn enforced(&mut self) {
        self.is_enforced = true;
        self.estimator.restart();
        self.unlimited();
        let path = *self.estimator.path();
        if path.bottleneck_bytes_per_s > 0.0 {
            self.begin(path.bottleneck_bytes_per_s, &path);
            self.reason = "limits are enforced";
        }
    }

    fn mss_bytes(&self) -> f64 {
        self.estimator.mss_bytes()
    }

    fn min_window_bytes(&self) -> f64 {
        self.min_window_mss * self.mss_bytes()
    }

    fn measure(&mut self, now: Timestamp, path: &Path) {
        self.reason = "no self-inflicted queue seen";
        if !self.estimator.is_standing_known(now) {
            return;
        }
        if path.standing_s > START_TARGETS * path.deep_target_s {
            let delivery = path.delivery_bytes_per_s;
            self.begin(path.train_bytes_per_s.clamp(delivery, 4.0 * delivery), path);
            self.reason = "self-inflicted queue seen";
        } else if self.is_base_known(path) {
            if self.overflow.is_repeated() {
                self.begin(path.recent_bytes_per_s, path);
                self.reason = "buffer overflows, but the queue is too short to measure";
            }
        } else if self.now_s >= self.next_drain_s && self.is_enforced {
            if self.is_steady {
                self.start_drain(path, DEEP, "steady rate: testing for a queue");
            } else if self.overflow.is_repeated() {
                self.start_drain(path, DEEP, "buffer overflows: testing for a queue");
            }
        }
    }

    /// A probe has confirmed the base at about this rate: a queue that came since would show.
    fn is_base_known(&self, path: &Path) -> bool {
        STEADY_SHARE * path.recent_bytes_per_s <= self.confirmed_bytes_per_s
    }

    /// Limits hold from now on.
    fn begin(&mut self, capacity_bytes_per_s: f64, path: &Path) {
        self.known_bytes_per_s = capacity_bytes_per_s;
        self.set_window(capacity_bytes_per_s * path.base_s + path.target_bytes, path);
        self.phase = DelayPhase::Steering;
        self.shaped_since_s = self.now_s;
        self.known_until_s = self.now_s + FIRST_LOOPS * path.loop_s;
        self.next_drain_s = self.now_s + self.jittered(FIRST_DRAIN_S.max(10.0 * path.loop_s));
    }

    fn is_fresh(&self, path: &Path) -> bool {
        self.now_s < self.shaped_since_s + FIRST_LOOPS * path.loop_s
    }

    /// Bytes that the path holds in a base. In the first loop times the delivery rate still shows the hosts'
    /// rate in slow start, and after a drain the rate that the drain let through.
    fn content_bytes(&self, path: &Path) -> f64 {
        let known = if self.now_s < self.known_until_s { self.known_bytes_per_s } else { 0.0 };
        path.recent_bytes_per_s.max(known) * path.base_s
    }

    fn set_window(&mut self, bytes: f64, path: &Path) {
        self.window_bytes = bytes.max(self.min_window_bytes());
        self.steering = None;
        self.law.restart(path);
    }

    fn steer(&mut self, path: &Path) {
        if self.wants_drain(path) {
            return;
        }
        let may_grow = self.now_s >= self.loss.no_growth_until_s;
        let content_bytes = self.content_bytes(path);
        let cap = if self.overflow.is_recent(self.now_s) {
            self.shallow_window_bytes(path)
        } else {
            GROWTH * content_bytes + 2.0 * path.target_bytes
        };
        let window = DelayWindow {
            bytes: self.window_bytes,
            content_bytes,
            growth_limit_bytes: if may_grow { cap } else { self.window_bytes.min(cap) },
            mss_bytes: self.mss_bytes(),
            loss: self.loss.random_share(),
            is_fresh: self.is_fresh(path),
        };
        let steering = self.law.steer(path, &window);
        // With a base that is too small every algorithm lowers the window without end, and the delivery rate
        // with it. Below this floor a drain has to decide.
        let floor = self.min_window_bytes().max(WINDOW_FLOOR * content_bytes);
        self.window_bytes = steering.window_bytes.max(floor.min(self.window_bytes));
        self.steering = Some(steering);
        self.reason = self.law.reason();
    }

    /// Window for a path with a buffer that holds hardly any queue.
    fn shallow_window_bytes(&self, path: &Path) -> f64 {
        (1.0 + self.loss.random_share()) * self.content_bytes(path) + path.target_bytes
    }

    /// Highest rate at which the packets held back make no burst at the end of the buffer.
    fn shallow_rate(&self) -> Option<Rate> {
        let most = SHALLOW_RATE * self.estimator.path().bottleneck_bytes_per_s;
        self.overflow.is_recent(self.now_s).then(|| Rate::from_bytes_per_sec_f64(most))
    }

    fn yield_to_overflow(&mut self, path: &Path) {
        if self.phase == DelayPhase::Steering {
            self.window_bytes = self.window_bytes.min(self.shallow_window_bytes(path));
        }
    }

    fn yield_to_loss(&mut self, path: &Path) {
        let delivered = path.recent_bytes_per_s * (path.base_s + path.standing_s);
        if 0.98 * delivered < self.window_bytes && self.phase == DelayPhase::Steering {
            self.before_loss_bytes = self.before_loss_bytes.max(self.window_bytes);
            self.set_window(0.98 * delivered, path);
            self.reason = "sustained loss";
        }
    }

    /// The loss was no congestion: the window was right before.
    fn take_back_loss(&mut self) {
        self.loss = LossWatch::default();
        self.overflow = OverflowWatch::default();
        self.estimator.take_back_losses();
        if self.phase == DelayPhase::Steering && self.before_loss_bytes > self.window_bytes {
            let path = *self.estimator.path();
            self.set_window(self.before_loss_bytes, &path);
        }
    }

    /// The bytes outstanding include the way back: the window moves with it, the queue stays.
    fn shift(&mut self, by_s: f64) {
        self.estimator.shift_s(by_s);
        self.drained_base_s += by_s;
        self.longer_s = self.longer_s.map(|longer_s| longer_s + by_s);
        let by_bytes = by_s * self.estimator.path().recent_bytes_per_s;
        self.window_bytes = (self.window_bytes + by_bytes).max(self.min_window_bytes());
        if let DelayPhase::Draining(drain) = &mut self.phase {
            drain.shift(by_s, by_bytes);
        }
    }

    /// Raises the base of a mostly idle bundle on a path that has become longer: the bundle cannot drain.
    fn follow_idle_base(&mut self, path: &Path, rtt_s: f64) {
        let near_s = path.base_s + 2.0 * tolerance_s(path);
        if path.idle <= 0.3 || rtt_s <= near_s {
            self.detached_since_s = None;
            return;
        }
        let since_s = *self.detached_since_s.get_or_insert(self.now_s);
        if self.now_s - since_s >= 10.0
            && let Some(recent_s) = self.estimator.recent_rtt_s()
        {
            self.estimator.set_base_s(recent_s);
            self.detached_since_s = None;
            self.reason = "path longer while idle";
        }
    }
}

impl<L: DelayLaw> CongestionControl for DelayControl<L> {
    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        let is_short = L::IS_SHORT_ON_SLOW_PATHS && self.slow_start_bytes.is_none();
        self.estimator = PathEstimator::new(mss, is_short);
        self.now_s = now.as_secs_f64();
        self.initial_bytes = initial_cwnd.as_f64().max(self.min_window_bytes());
        self.unlimited();
    }

    fn set_seed(&mut self, seed: u64) {
        self.drains = Streams::new(seed).stream("drains");
    }

    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        self.now_s = now.as_secs_f64();
        let shaped_since_s = self.shaped_since_s;
        let Some(path) = self.estimator.on_measurement(now, measurement, shaped_since_s) else {
            return;
        };
        let rtt_s = measurement.rtt.map_or(path.base_s, |rtt| rtt.min.as_secs_f64());
        // Packets that left in the first loop time may still have met the full buffer of the slow start.
        let is_ours = path.sent_at_s >= shaped_since_s + path.loop_s;
        let lost_bytes = measurement.lost.filter(|_| is_ours).map_or(0.0, ByteCount::as_f64);
        let is_losing = self.loss.on_measurement(self.now_s, &path, lost_bytes);
        // The host of an aggregate may limit the rate. Such a rate is steady, and shows nothing of the path's
        // capacity.
        let is_held = self.slow_start_bytes.is_none() && measurement.cwnd_limited == Some(false);
        self.is_steady = self.steady.on_rate(self.now_s, &path) && !is_held;
        // The flow of a sender has its own answer to loss.
        if self.slow_start_bytes.is_none() && self.is_enforced {
            let has_lost = measurement.lost.is_some_and(|lost| lost > ByteCount::ZERO);
            let queue_s = rtt_s - path.base_s;
            if self.overflow.on_measurement(self.now_s, &path, queue_s, has_lost) {
                self.yield_to_overflow(&path);
            }
        }
        let competes_alone = self.phase == DelayPhase::Steering && self.rivals(&path, rtt_s);
        match self.phase {
            DelayPhase::Measuring => {
                self.slow_start(measurement);
                self.measure(now, &path);
            }
            DelayPhase::Steering if competes_alone => self.compete_alone(&path),
            DelayPhase::Steering => {
                self.steer(&path);
                if is_losing {
                    self.yield_to_loss(&path);
                } else if self.now_s > self.loss.no_growth_until_s {
                    self.before_loss_bytes = 0.0;
                }
            }
            DelayPhase::Draining(drain) => self.drain(drain, &path, rtt_s),
            DelayPhase::Releasing(release) => self.release(release, now, &path),
        }
        // Without limits a bundle looks idle, even if a queue waits at the bottleneck.
        if self.is_enforced {
            self.follow_idle_base(&path, rtt_s);
        }
    }

    fn on_event(&mut self, _now: Timestamp, event: CongestionEvent) {
        match event {
            CongestionEvent::FeedbackLost => {
                self.estimator.restart();
                self.unlimited();
                self.reason = "waiting for reports";
            }
            CongestionEvent::RttShift(nanos) => self.shift(nanos as f64 * 1e-9),
            CongestionEvent::Spurious => self.take_back_loss(),
            CongestionEvent::Loss => self.on_flow_loss(false),
            CongestionEvent::Rto => self.on_flow_loss(true),
            CongestionEvent::Unenforced => self.is_enforced = false,
            CongestionEvent::Enforced => self.enforced(),
            CongestionEvent::DelayNoise(noise) => self.estimator.set_noise(noise),
            _ => {}
        }
    }

    fn next_timer(&self) -> Option<Timestamp> {
        match &self.phase {
            DelayPhase::Draining(drain) => Some(Timestamp::ZERO + duration(drain.ends_s())),
            _ => None,
        }
    }

    fn on_timer(&mut self, now: Timestamp) {
        self.now_s = now.as_secs_f64();
        let is_due = self.next_timer().is_some_and(|at| now >= at);
        if let DelayPhase::Draining(drain) = self.phase
            && is_due
        {
            let path = *self.estimator.path();
            self.finish_drain(&drain, DrainVerdict::Unknown, &path);
        }
    }

    fn send_limits(&self) -> SendLimits {
        let cwnd = |bytes: f64| Some(ByteCount::new(bytes as u64));
        let (cwnd, pacing_rate) = match (self.phase, self.steering) {
            (DelayPhase::Measuring, _) => (self.slow_start_bytes.and_then(cwnd), None),
            (DelayPhase::Releasing(release), _) => {
                let rate = Rate::from_bytes_per_sec_f64(release.bytes_per_s);
                (self.slow_start_bytes.and_then(cwnd), Some(rate))
            }
            (DelayPhase::Draining(drain), _) => {
                (cwnd(drain.window_bytes.max(self.min_window_bytes())), None)
            }
            (
                DelayPhase::Steering,
                Some(Steering { rate_bytes_per_s: Some(rate), window_binds, .. }),
            ) => {
                let cwnd = if window_binds {
                    cwnd(self.window_bytes)
                } else {
                    self.slow_start_bytes.and_then(|_| cwnd(FLOW_WINDOW * self.window_bytes))
                };
                let rate = Rate::from_bytes_per_sec_f64(rate);
                (cwnd, Some(self.shallow_rate().map_or(rate, |most| rate.min(most))))
            }
            (DelayPhase::Steering, _) => (cwnd(self.window_bytes), self.shallow_rate()),
        };
        // A drain that did not bind would show nothing.
        let is_plain = matches!(self.phase, DelayPhase::Draining(_));
        let app_limited = Some(self.estimator.path().app_limited && !is_plain);
        SendLimits { cwnd, ssthresh: None, pacing_rate, app_limited }
    }

    fn interim(&self) -> Interim {
        if self.phase != DelayPhase::Measuring || self.slow_start_bytes.is_none() {
            return Interim::HOLD;
        }
        // A window that doubles once a round has doubled again before the next report shows a queue.
        let path = self.estimator.path();
        let is_known = path.bottleneck_bytes_per_s > 0.0;
        let queued = || duration(path.base_s + START_TARGETS * path.target_s);
        let rtt = if is_known { queued() } else { Duration::MAX };
        Interim { tripwires: Tripwires { rtt, ..Tripwires::NONE }, ..Interim::DOUBLING }
    }

    fn state(&self) -> State {
        let path = self.estimator.path();
        State {
            phase: match self.phase {
                DelayPhase::Measuring => "measuring",
                DelayPhase::Steering if self.rival.as_ref().is_some_and(Rival::is_competing) => {
                    "competing"
                }
                DelayPhase::Steering if path.app_limited => "app_limited",
                DelayPhase::Steering => "shaping",
                DelayPhase::Draining(_) => "draining",
                DelayPhase::Releasing(_) => "releasing",
            },
            reason: self.reason,
            min_rtt: self.estimator.min_rtt(),
            queue_delay: self.estimator.min_rtt().map(|_| duration(path.standing_s)),
            bottleneck_rate: (path.bottleneck_bytes_per_s > 0.0)
                .then(|| Rate::from_bytes_per_sec_f64(path.bottleneck_bytes_per_s)),
            numbers: vec![
                ("window_bytes", self.window_bytes),
                ("target_bytes", path.target_bytes),
                ("loop_s", path.loop_s),
                ("noise_s", path.noise_s),
            ],
        }
    }
}
