//! Shapes only while shaping is measured to pay, whichever algorithm sets the limits.
//!
//! ```text
//!          a queue stands, and the back-off is over              R and J as good as in passing
//! passing ─────────────────────────────────────────► trying ─────────────────────────────────► shaping
//! (no limits) ◄───────────────────────────────────────┤ drain, then the algorithm's limits        │
//!    ▲                R or J worse than in passing     └──────────────────────────────────────────┘
//!    └──────────────────────────────── R or J worse than in passing ──────────────────────────────┘
//! ```
//! R is the delivery rate. J is the delay of a sparse flow: the round trip, and under limits the wait in the box.
//!
//! **Deficit.** Under limits the supervisor adds up what passing would have delivered in the same busy time and the
//! limits did not, in seconds of the reference rate: `D' = KEEP x busy - R / reference`, never below 0. The bundle
//! passes once D exceeds its budget. So a rate that halves ends shaping within a second, and one that is a tenth
//! lower within ten. The budget grows with the variance of R, by which D strays without any cause (the reflected
//! random walk with drift -(1 - KEEP) exceeds K sigma^2 / (2 (1 - KEEP)) in a share exp(-K) of the time).
//!
//! **Constant rates.** A link that serves the bundle alone delivers at a rate that stays the same. A lower rate that
//! stays the same is a link that has become slower: it is the new reference, and so is a higher one.
//!
//! **Drain.** A trial begins with a drain at a part of the rate. If that leaves the delivery rate as it was while the
//! queue lasts, the queue is the bundle's own, or that of bundles that drain together, and the trial goes on.
//!
//! **Back-off.** A failed trial quadruples the time until the next. Until then there are drains alone, at multiples of
//! a time of the day, so that bundles that hold each other in passing drain together; a trial follows at once if the
//! rate holds in one.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::cc::Measurement;
use crate::cc::estimators::SlidingMin;
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Share of the reference rate that limits have to deliver.
const KEEP: f64 = 0.97;
/// A box with a backlog in less of the time is idle at times: its hosts have no more to send.
const BUSY: f64 = 0.9;
/// Mean delay of all packets over the round trip in passing that ends shaping, where hosts have no more to send.
const LATE: f64 = 1.2;
/// Deficit that ends shaping on a path without variance (seconds of the reference rate).
const BUDGET_S: f64 = 0.25;
/// Multiples of the mean stray of the deficit in its budget.
const BUDGET_STRAYS: f64 = 3.0;
/// Shortest time over which rates and delays are averaged (seconds), and in loop times. A trial is twice as long.
const BLOCK_S: f64 = 1.0;
const BLOCK_LOOPS: f64 = 5.0;
/// Loop times after a change of limits that are not judged.
const SETTLE_LOOPS: f64 = 3.0;
/// Fewer waits a second than this count for less: most of a bundle of bulk flows is not sparse.
const WAITS_PER_S: f64 = 10.0;
/// Blocks of the mean delay that ends shaping.
const DELAY_BLOCKS: usize = 10;
/// Blocks that are kept, and so the longest time of a mean.
const BLOCKS: usize = 25;
/// A queue stands whose delay stays above this for a block (seconds).
const STANDING_S: f64 = 4e-3;
/// Rates within this share over [`CONSTANT_S`] are the same: of a link that serves the bundle alone.
const CONSTANT: f64 = 0.015;
const CONSTANT_S: f64 = 5.0;
/// Rates within this share are those of one trial.
const SAME: f64 = 0.05;
/// Rates of two blocks within this share are steady: a drain probes for a queue below the least round trip.
const PROBE_STEADY: f64 = 0.1;
/// Share of the excess delay that a trial has to take away.
const GAIN: f64 = 0.33;
/// Shortest back-off in seconds and in least round trips, its growth, and the longest over the shortest.
const BACK_OFF_S: f64 = 120.0;
const BACK_OFF_ROUND_TRIPS: f64 = 100.0;
const BACK_OFF_GROWTH: f64 = 4.0;
const BACK_OFF_MOST: f64 = 4.0;
/// Drains that need not wait for the back-off begin at multiples of this time of the day (seconds), and of so many least
/// round trips at least.
const GRID_S: f64 = 20.0;
const GRID_ROUND_TRIPS: f64 = 50.0;
/// Rate while the queue is drained at the start of a trial, over the reference.
const DRAIN: f64 = 0.87;
/// No limits are lower than this share of the reference while less is on its way than was without limits: a flow that
/// arrives is not given the path before it is seen.
const FLOOR: f64 = 0.9;
/// Most that is on its way without limits, over the mean.
const PEAK: f64 = 1.25;
/// Part of what a block delivers above the reference that the reference takes over: passing would give as much.
const RISE: f64 = 0.25;
/// Share of the rate that it falls by at least in a drain of a queue that competing traffic shares.
const DRAIN_FALL: f64 = 0.05;
/// Reports that show whether the rate holds in a drain, at least.
const DRAIN_REPORTS: u32 = 4;
/// Rate over the reference at which what the box held back leaves.
const RELEASE: f64 = 1.1;
/// Memory of the least round trip (seconds).
const BASE_S: f64 = 120.0;
/// Differences between the least delays of successive loop times that count as noise, and how many are kept.
const NOISE: f64 = 4.0;
const DIFFERENCES: usize = 41;
/// Growth of the noise that is worth another chance, and less than which is none (seconds).
const NOISE_STEP: f64 = 1.2;
const NOISE_MIN_S: f64 = 1e-3;

/// Means over a time.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    seconds: f64,
    delivered_bytes: f64,
    rtt_sum_s: f64,
    rtts: f64,
    wait_sum_s: f64,
    waits: f64,
    /// Time in which the box had a backlog, and the backlog's integral over time.
    busy_s: f64,
    backlog_bytes_s: f64,
}

impl Block {
    fn rate(&self) -> f64 {
        self.delivered_bytes / self.seconds.max(1e-9)
    }

    /// Delay of a sparse flow (seconds).
    fn joint_s(&self) -> f64 {
        self.rtt_sum_s / self.rtts.max(1.0)
            + self.wait_sum_s / self.waits.max(WAITS_PER_S * self.seconds)
    }

    /// Mean delay of all packets, in the box by Little's law (seconds). Hosts with bulk flows fill any queue, so there is
    /// none of a box that always has a backlog.
    fn total_s(&self) -> Option<f64> {
        let waited_s = self.backlog_bytes_s / self.delivered_bytes.max(1.0);
        (self.busy_s < BUSY * self.seconds).then(|| self.rtt_sum_s / self.rtts.max(1.0) + waited_s)
    }

    fn add(&mut self, other: &Self) {
        self.busy_s += other.busy_s;
        self.backlog_bytes_s += other.backlog_bytes_s;
        self.seconds += other.seconds;
        self.delivered_bytes += other.delivered_bytes;
        self.rtt_sum_s += other.rtt_sum_s;
        self.rtts += other.rtts;
        self.wait_sum_s += other.wait_sum_s;
        self.waits += other.waits;
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// No limits.
    Passing,
    /// The rate is held below the reference until round trips fall no further.
    Draining(Drain),
    /// The algorithm's limits, on probation.
    Trying,
    /// The algorithm's limits.
    Shaping,
}

/// A drain at the start of a trial. A queue that is the bundle's alone, or that of bundles that drain together, leaves the
/// bottleneck at the rate before as long as it lasts. In a shared queue the bundle's part falls with what it
/// sends.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Drain {
    rate: f64,
    /// A higher share of the reference rate is the same rate.
    holds: f64,
    /// What left since meets the drain (seconds).
    since_s: f64,
    /// Least round trips of this loop time and the last one (seconds).
    least_s: f64,
    last_least_s: f64,
    loop_from_s: f64,
    /// Delivery rates of what left in the first loop time, and whether they show that the rate holds.
    rates: f64,
    reports: u32,
    held: Option<bool>,
    /// No queue was seen: is there one below the least round trip?
    is_probe: bool,
}

/// What the supervisor asks of the loop around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The algorithm's limits hold from now on.
    Enforced,
    /// No limits hold from now on.
    Unenforced,
    /// The noise of the delay has become another.
    Noise,
}

/// Decides whether the limits of an algorithm are enforced.
#[derive(Clone, Debug)]
pub(super) struct Supervisor {
    mode: Mode,
    now_s: f64,
    since_s: f64,
    /// From then on the mode is judged; infinite until what is asked for is in force.
    settled_s: f64,
    base: SlidingMin,
    base_s: f64,
    recent: SlidingMin,
    loop_s: f64,
    /// Time of the day over our own (seconds).
    day_s: f64,
    /// Of this mode, and the one under way.
    blocks: VecDeque<Block>,
    block: Block,
    /// Rate and delay in passing.
    reference: Block,
    /// Largest rate of a block in passing.
    peak: f64,
    /// The algorithm asks for less than the floor.
    is_at_floor: bool,
    deficit_s: f64,
    /// Delivery rates since the deficit was last 0, or since the constant rate began: least, largest, since when.
    constant: (f64, f64, f64),
    not_before_s: f64,
    back_off_s: f64,
    /// A drain may begin then, whatever the back-off is.
    drain_at_s: f64,
    /// A drain has looked for a queue below the least round trip.
    is_probed: bool,
    /// Rate at the last trial.
    tried_rate: f64,
    /// Round trip of a path that was found to be longer (seconds).
    longer_s: Option<f64>,
    release: Option<f64>,
    loop_least_s: f64,
    loop_from_s: f64,
    last_least_s: Option<f64>,
    differences: VecDeque<f64>,
    noise_s: f64,
    reason: &'static str,
}

impl Default for Supervisor {
    fn default() -> Self {
        Self {
            mode: Mode::Passing,
            now_s: 0.0,
            since_s: 0.0,
            settled_s: 0.0,
            base: SlidingMin::default(),
            base_s: 0.0,
            recent: SlidingMin::default(),
            loop_s: 0.0,
            day_s: 0.0,
            blocks: VecDeque::new(),
            block: Block::default(),
            reference: Block::default(),
            peak: 0.0,
            is_at_floor: false,
            deficit_s: 0.0,
            constant: (0.0, 0.0, 0.0),
            not_before_s: 0.0,
            back_off_s: 0.0,
            drain_at_s: 0.0,
            is_probed: false,
            tried_rate: 0.0,
            longer_s: None,
            release: None,
            loop_least_s: f64::INFINITY,
            loop_from_s: 0.0,
            last_least_s: None,
            differences: VecDeque::new(),
            noise_s: 0.0,
            reason: "no queue stands",
        }
    }
}

impl Supervisor {
    /// Passes at first. The time of the day was `time_of_day` at [`Timestamp::ZERO`].
    pub(super) fn new(time_of_day: Duration) -> Self {
        Self { day_s: time_of_day.as_secs_f64(), ..Self::default() }
    }

    /// A packet of a sparse flow has waited so long in the bundle's queue.
    pub(super) fn on_wait(&mut self, wait: Duration) {
        self.block.wait_sum_s += wait.as_secs_f64();
        self.block.waits += 1.0;
    }

    /// What was measured is of another time: no limits until a trial. The least round trip is kept, since a queue may stand
    /// already; a trial finds out whether the path is longer.
    pub(super) fn restart(&mut self) {
        let Self { day_s, now_s, base_s, .. } = *self;
        let base = core::mem::take(&mut self.base);
        let (since_s, settled_s) = (now_s, now_s);
        *self = Self { day_s, now_s, since_s, settled_s, base, base_s, ..Self::default() };
    }

    /// All round trips seen before count as longer by this.
    pub(super) fn shift(&mut self, by_s: f64) {
        let all = self.blocks.iter_mut().chain([&mut self.block, &mut self.reference]);
        all.for_each(|block| block.rtt_sum_s += by_s * block.rtts);
        self.base.shift(by_s);
        self.recent.shift(by_s);
        self.base_s += by_s;
        self.loop_least_s += by_s;
        if let Mode::Draining(drain) = &mut self.mode {
            drain.least_s += by_s;
            drain.last_least_s += by_s;
        }
        self.last_least_s = self.last_least_s.map(|least_s| least_s + by_s);
    }

    /// Takes a measurement; `is_limited`: a rate is in force.
    pub(super) fn on_measurement(
        &mut self,
        now: Timestamp,
        measurement: &Measurement,
        loop_time: Duration,
        is_limited: bool,
    ) -> Option<Change> {
        self.now_s = now.as_secs_f64();
        // Without limits a loop time has the queue in it.
        self.loop_s = loop_time.as_secs_f64();
        let dt_s = measurement.interval.as_secs_f64();
        let delivered_bytes = measurement.acked.as_f64();
        if let Some(rtt) = measurement.rtt {
            let rtt_s = rtt.latest.as_secs_f64();
            self.base.push(self.now_s, rtt_s, BASE_S, 1);
            self.base_s = self.base.value().unwrap_or(rtt_s);
            self.recent.push(self.now_s, rtt_s, self.block_s(), 1);
            self.on_round_trip(rtt_s);
            self.block.rtt_sum_s += rtt_s;
            self.block.rtts += 1.0;
        }
        let holds = match self.mode {
            Mode::Passing => self.release.is_none(),
            _ => is_limited,
        };
        if holds && self.settled_s.is_infinite() {
            self.settled_s = self.now_s + SETTLE_LOOPS * self.loop_s;
            self.block = Block::default();
        }
        if self.now_s < self.settled_s && !matches!(self.mode, Mode::Draining(_)) {
            self.block = Block::default();
            return None;
        }
        // What was delivered is not known, as after a step of the receivebox's clock.
        if measurement.delivery_rate.is_none() && !matches!(self.mode, Mode::Draining(_)) {
            return None;
        }
        self.block.seconds += dt_s;
        self.block.delivered_bytes += delivered_bytes;
        let busy = 1.0 - measurement.idle.map_or(0.0, |idle| idle.as_f64());
        self.block.busy_s += busy * dt_s;
        self.block.backlog_bytes_s += measurement.backlog.map_or(0.0, ByteCount::as_f64) * dt_s;
        let is_whole = self.block.seconds >= self.block_s();
        if is_whole {
            if self.blocks.len() == BLOCKS {
                self.blocks.pop_front();
            }
            self.blocks.push_back(core::mem::take(&mut self.block));
        }
        // Behind a ceiling that other bundles make low neither mode shows what the path would carry.
        if measurement.cwnd_limited == Some(false) && !matches!(self.mode, Mode::Draining(_)) {
            self.deficit_s = 0.0;
            self.blocks.clear();
            return None;
        }
        match self.mode {
            // Bundles that drain together have to begin together.
            Mode::Passing => {
                let rate = measurement.delivery_rate.map_or(0.0, Rate::as_bytes_per_sec_f64);
                let is_constant = self.constant_s(rate, 1.0) > CONSTANT_S.max(20.0 * self.loop_s);
                let is_tried = (rate - self.tried_rate).abs() < SAME * rate;
                if is_constant && !is_tried && self.stands() {
                    self.not_before_s = self.now_s;
                }
                let is_due = is_whole || self.now_s >= self.drain_at_s;
                if is_due { self.may_try() } else { None }
            }
            Mode::Draining(drain) => {
                let rtt_s = measurement.rtt?.latest.as_secs_f64();
                let age_s = measurement.feedback_delay.map_or(rtt_s, |age| age.as_secs_f64());
                let rate = measurement.delivery_rate.map_or(0.0, Rate::as_bytes_per_sec_f64);
                self.drain(drain, rtt_s, age_s, rate)
            }
            Mode::Trying | Mode::Shaping => {
                let rate = measurement.delivery_rate.map_or(0.0, Rate::as_bytes_per_sec_f64);
                self.judge_rate(dt_s, busy, delivered_bytes, rate)
                    .or_else(|| is_whole.then(|| self.judge_delay()).flatten())
            }
        }
    }

    fn block_s(&self) -> f64 {
        BLOCK_S.max(BLOCK_LOOPS * self.loop_s)
    }

    fn on_round_trip(&mut self, rtt_s: f64) {
        self.loop_least_s = self.loop_least_s.min(rtt_s);
        if self.now_s - self.loop_from_s <= self.loop_s.max(0.02) {
            return;
        }
        let least_s = core::mem::replace(&mut self.loop_least_s, f64::INFINITY);
        self.loop_from_s = self.now_s;
        let last_s = self.last_least_s.replace(least_s);
        if !matches!(self.mode, Mode::Trying | Mode::Shaping) || self.now_s < self.settled_s {
            return;
        }
        self.differences.extend(last_s.map(|last_s| libm::fabs(least_s - last_s)));
        if self.differences.len() > DIFFERENCES {
            self.differences.pop_front();
        }
    }

    /// Takes up by how much round trips vary while the algorithm keeps the queue short, if that is more than was known.
    fn raises_noise(&mut self) -> bool {
        let mut all: Vec<f64> = self.differences.iter().copied().collect();
        all.sort_by(f64::total_cmp);
        let median_s = all.get(all.len() / 2).filter(|_| all.len() >= 5).copied().unwrap_or(0.0);
        let noise_s = (NOISE * median_s).min(0.5 * self.base_s);
        let is_more = noise_s > NOISE_STEP * self.noise_s && noise_s > NOISE_MIN_S;
        if is_more {
            self.noise_s = noise_s;
        }
        is_more
    }

    /// The noise that a law may not take for a queue.
    pub(super) fn noise(&self) -> Duration {
        crate::cc::estimators::duration(self.noise_s)
    }

    /// Mean over the last `count` blocks of this mode.
    fn mean(&self, count: usize) -> Block {
        let mut sum = Block::default();
        self.blocks.iter().rev().take(count).for_each(|block| sum.add(block));
        sum
    }

    /// Variance of the rate over the reference from second to second: by the median of the squared steps between blocks,
    /// of which a change of level is but one.
    fn variance(&self) -> f64 {
        let rates =
            || self.blocks.iter().map(|block| block.rate() / self.reference.rate().max(1.0));
        let steps = rates().zip(rates().skip(1)).map(|(one, next)| (next - one) * (next - one));
        let mut steps: Vec<f64> = steps.collect();
        steps.sort_by(f64::total_cmp);
        let seconds = self.mean(BLOCKS).seconds / self.blocks.len().max(1) as f64;
        // The square of a step has twice the variance for its mean, and 0.455 of that for its median.
        steps.get(steps.len() / 2).map_or(0.0, |median| median / (2.0 * 0.455) * seconds)
    }

    /// Budget of the deficit on a path without variance (seconds).
    fn least_budget_s(&self) -> f64 {
        BUDGET_S.max(2.0 * self.loop_s)
    }

    fn budget_s(&self) -> f64 {
        self.least_budget_s() + BUDGET_STRAYS * self.variance() / (2.0 * (1.0 - KEEP))
    }

    /// A queue that has not been short for a block.
    fn stands(&self) -> bool {
        self.recent
            .value()
            .is_some_and(|least_s| least_s - self.base_s > STANDING_S.max(self.noise_s))
    }

    fn enter(&mut self, mode: Mode, reason: &'static str) {
        self.mode = mode;
        self.since_s = self.now_s;
        self.settled_s = f64::INFINITY;
        self.blocks.clear();
        self.block = Block::default();
        self.constant = (0.0, 0.0, self.now_s);
        self.reason = reason;
    }

    /// The next multiple of `every_s` of the day that is at least `after_s` away.
    fn next_multiple(&self, every_s: f64, after_s: f64) -> f64 {
        libm::ceil((self.now_s + after_s + self.day_s) / every_s) * every_s - self.day_s
    }

    fn pass(&mut self, reason: &'static str) -> Option<Change> {
        let rate = self.mean(2).rate();
        let mut first_s = BACK_OFF_S;
        while first_s < BACK_OFF_ROUND_TRIPS * self.base_s {
            first_s *= 2.0;
        }
        self.back_off_s =
            (BACK_OFF_GROWTH * self.back_off_s).clamp(first_s, BACK_OFF_MOST * first_s);
        self.not_before_s = self.next_multiple(self.back_off_s, 0.5 * self.back_off_s);
        let grid_s = self.grid_s();
        self.drain_at_s = self.next_multiple(grid_s, 0.5 * grid_s);
        self.release = Some(RELEASE * self.reference.rate().max(rate));
        self.enter(Mode::Passing, reason);
        Some(Change::Unenforced)
    }

    /// Time between drains that need not wait for the back-off (seconds).
    fn grid_s(&self) -> f64 {
        let mut grid_s = GRID_S;
        while grid_s < GRID_ROUND_TRIPS * self.base_s {
            grid_s *= 2.0;
        }
        grid_s
    }

    fn may_try(&mut self) -> Option<Change> {
        let grid_s = self.grid_s();
        let is_due = self.now_s >= self.not_before_s || self.now_s >= self.drain_at_s;
        if self.now_s >= self.drain_at_s {
            self.drain_at_s = self.next_multiple(grid_s, 0.5 * self.block_s());
        }
        let (all, recent) = (self.mean(BLOCKS), self.mean(1));
        let before = self.blocks.iter().rev().nth(1).map_or(0.0, Block::rate);
        let is_steady = (recent.rate() - before).abs() < PROBE_STEADY * recent.rate();
        // A box that begins under load takes the queue for a part of the path.
        let is_probe = !self.is_probed && self.blocks.len() <= 2 && is_steady && !self.stands();
        self.is_probed |= self.blocks.len() > 2;
        // What is delivered in a slow start is less than passing will give.
        let is_growing = recent.rate() > (1.0 + PROBE_STEADY) * before;
        if self.blocks.is_empty() || is_growing || !is_due || !is_probe && !self.stands() {
            return None;
        }
        self.is_probed = true;
        self.peak = self.blocks.iter().map(Block::rate).fold(0.0, f64::max);
        self.tried_rate =
            if self.now_s >= self.not_before_s { recent.rate() } else { self.tried_rate };
        self.reference = recent;
        let earlier_s = all.joint_s() - recent.joint_s();
        self.reference.rtt_sum_s += earlier_s.max(0.0) * recent.rtts;
        let deviation = libm::sqrt(self.variance() / recent.seconds.max(1e-9));
        let drain = Drain {
            rate: DRAIN * recent.rate(),
            holds: 1.0 - (2.0 * deviation).clamp(DRAIN_FALL, 0.75 * (1.0 - DRAIN)),
            since_s: self.now_s,
            least_s: f64::INFINITY,
            last_least_s: f64::INFINITY,
            loop_from_s: self.now_s,
            rates: 0.0,
            reports: 0,
            held: None,
            is_probe,
        };
        self.enter(Mode::Draining(drain), "a queue stands: does shaping pay?");
        None
    }

    /// Takes a report; `age_s` after its packet left. Ends once round trips fall no further.
    fn drain(&mut self, mut drain: Drain, rtt_s: f64, age_s: f64, rate: f64) -> Option<Change> {
        let left_s = self.now_s - age_s;
        // What left before the drain says nothing of it.
        if left_s < drain.since_s {
            drain.loop_from_s = self.now_s;
            self.mode = Mode::Draining(drain);
            return None;
        }
        drain.least_s = drain.least_s.min(rtt_s);
        if left_s < drain.since_s + self.loop_s {
            drain.rates += rate;
            drain.reports += 1;
        }
        self.mode = Mode::Draining(drain);
        if self.now_s - drain.loop_from_s <= self.loop_s.max(0.02) {
            return None;
        }
        if drain.held.is_none() && drain.reports >= DRAIN_REPORTS {
            let mean = drain.rates / f64::from(drain.reports);
            drain.held = Some(mean > drain.holds * self.reference.rate());
        }
        let is_early = self.now_s < self.not_before_s;
        if drain.held == Some(false) && is_early {
            // Of competing traffic, or of a longer path without a queue: a drain does not tell them apart.
            return self.go_on_passing("less is delivered as soon as less is sent");
        }
        // The queue is empty once no more is delivered than is sent.
        let is_over = rate < 0.5 * (1.0 + DRAIN) * self.reference.rate()
            || drain.held != Some(true) && drain.least_s > drain.last_least_s - 0.1 * STANDING_S;
        if !is_over && self.now_s - drain.since_s <= 2.0 + 20.0 * self.loop_s {
            drain.last_least_s = drain.least_s;
            drain.least_s = f64::INFINITY;
            drain.loop_from_s = self.now_s;
            self.mode = Mode::Draining(drain);
            return None;
        }
        let fell_s = self.reference.joint_s() - drain.least_s;
        if drain.is_probe && fell_s < STANDING_S {
            return self.go_on_passing("no queue stands");
        }
        if drain.held.is_none() && is_early {
            return self.go_on_passing("it is not known whose queue it is");
        }
        // A queue that was the bundle's own is gone: what is left is the path's round trip.
        let is_longer = drain.least_s - self.base_s > STANDING_S.max(2.0 * self.noise_s);
        self.longer_s = (drain.held == Some(true) && is_longer).then_some(drain.least_s);
        if self.longer_s.is_some() {
            self.base.clear();
            self.base.push(self.now_s, drain.least_s, BASE_S, 1);
            self.base_s = drain.least_s;
        }
        self.enter(Mode::Trying, self.reason);
        self.deficit_s = 0.0;
        self.constant = (0.0, 0.0, self.now_s);
        Some(Change::Enforced)
    }

    /// Ends a drain that no trial follows.
    fn go_on_passing(&mut self, reason: &'static str) -> Option<Change> {
        self.release = Some(RELEASE * self.reference.rate());
        self.enter(Mode::Passing, reason);
        None
    }

    /// The round trip that the path was found to have without any queue, if that is longer than any seen before.
    pub(super) fn longer(&self) -> Option<Duration> {
        self.longer_s.map(crate::cc::estimators::duration)
    }

    /// For how long the delivery rate has been the same (seconds).
    fn constant_s(&mut self, rate: f64, busy: f64) -> f64 {
        let (least, largest, since_s) = &mut self.constant;
        if rate > 0.0 && busy > BUSY {
            (*least, *largest) = (least.min(rate), largest.max(rate));
        }
        if *largest > (1.0 + CONSTANT) * *least || busy < BUSY {
            (*least, *largest, *since_s) = (rate, rate, self.now_s);
        }
        self.now_s - *since_s
    }

    fn judge_rate(
        &mut self,
        dt_s: f64,
        busy: f64,
        delivered_bytes: f64,
        rate: f64,
    ) -> Option<Change> {
        let reference = self.reference.rate().max(1.0);
        let mut by_s = KEEP * busy * dt_s - delivered_bytes / reference;
        if busy < BUSY {
            by_s = by_s.max(-(1.0 - KEEP) * dt_s);
        }
        self.deficit_s = (self.deficit_s + by_s).max(0.0);
        let constant_s = self.constant_s(rate, busy);
        // At the floor the rate is constant because of the floor, unless a queue stands.
        let queue_s = self.last_least_s.map_or(0.0, |least_s| least_s - self.base_s);
        let is_own = self.is_at_floor && queue_s < STANDING_S.max(self.noise_s);
        if constant_s > CONSTANT_S.max(2.0 * BLOCK_LOOPS * self.loop_s) && !is_own {
            // The queue of passing would be as many bytes as before.
            let queue_s = (self.reference.joint_s() - self.base_s).max(0.0);
            let longer_s = queue_s * (reference / rate.max(1.0) - 1.0);
            self.reference.rtt_sum_s += longer_s * self.reference.rtts;
            self.reference.delivered_bytes = rate * self.reference.seconds;
            self.peak = rate;
            self.deficit_s = 0.0;
        }
        let budget_s = self.budget_s();
        // Before limits are given up, a law that took noise for a queue gets another chance.
        if self.deficit_s > 0.5 * budget_s && !self.stands() && self.raises_noise() {
            self.deficit_s = 0.0;
            return Some(Change::Noise);
        }
        let is_less = self.deficit_s > budget_s;
        // A rate that has stayed the same since the deficit began may be the link's own.
        let may_be_alone =
            constant_s > 0.5 * self.deficit_s && constant_s > 4.0 * self.loop_s && !is_own;
        if is_less && !(may_be_alone && self.deficit_s < CONSTANT_S) {
            return self.pass("less is delivered under limits");
        }
        None
    }

    /// Ends a trial, and shaping that makes packets wait longer.
    fn judge_delay(&mut self) -> Option<Change> {
        let reference_s = self.reference.joint_s();
        let more = self.mean(1).rate() - self.reference.rate();
        if self.mode == Mode::Shaping && more > 0.0 {
            self.reference.delivered_bytes += RISE * more * self.reference.seconds;
        }
        match self.mode {
            Mode::Trying if self.blocks.len() >= 2 => {
                let joint_s = self.mean(2).joint_s();
                let least_s = self.recent.value().unwrap_or(self.base_s);
                if reference_s - joint_s < GAIN * (reference_s - least_s).max(1e-3) {
                    return self.pass("packets wait as long under limits");
                }
                self.mode = Mode::Shaping;
                self.reason = "shaping pays";
            }
            Mode::Shaping if self.blocks.len() >= DELAY_BLOCKS => {
                if self.now_s - self.since_s > BACK_OFF_S {
                    self.back_off_s = 0.0;
                }
                let mean = self.mean(DELAY_BLOCKS);
                let is_late = mean.total_s().is_some_and(|total_s| total_s > LATE * reference_s);
                if is_late || mean.joint_s() > reference_s {
                    return self.pass("packets wait longer under limits");
                }
            }
            _ => {}
        }
        None
    }

    /// By how much less a sparse flow waits than without limits; `None` while limits are off or too new.
    pub(super) fn saves(&self) -> Option<Duration> {
        let is_known = self.mode == Mode::Shaping && self.blocks.len() >= DELAY_BLOCKS;
        let saved_s = self.reference.joint_s() - self.mean(DELAY_BLOCKS).joint_s();
        (is_known && saved_s > 0.0).then(|| crate::cc::estimators::duration(saved_s))
    }

    /// Mean round trip without limits, before they began to hold.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        (self.reference.rtts > 0.0)
            .then(|| crate::cc::estimators::duration(self.reference.joint_s()))
    }

    /// The rate to enforce, of the one that the algorithm asks for.
    pub(super) fn bound(
        &mut self,
        now: Timestamp,
        rate: Option<Rate>,
        backlog: ByteCount,
        in_flight_bytes: f64,
    ) -> Option<Rate> {
        match self.mode {
            Mode::Passing => {
                // What was held back leaves without a burst.
                let is_over = now.as_secs_f64() - self.since_s > 2.0 * self.block_s();
                self.release = self.release.filter(|_| backlog > ByteCount::ZERO && !is_over);
                self.release.map(Rate::from_bytes_per_sec_f64)
            }
            Mode::Draining(drain) => Some(Rate::from_bytes_per_sec_f64(drain.rate)),
            Mode::Trying | Mode::Shaping => {
                // As much as was on its way without limits, and no more: a path that became slower does not get what waits.
                let most_bytes = PEAK * self.reference.rate() * self.reference.joint_s();
                let share = if in_flight_bytes < most_bytes { FLOOR } else { 0.0 };
                let peak = self.peak.max(self.reference.rate());
                let least = Rate::from_bytes_per_sec_f64(share * peak);
                self.is_at_floor = rate.is_some_and(|rate| rate < least);
                rate.map(|rate| rate.max(least))
            }
        }
    }

    /// State and reason for logs; `None`: the algorithm's.
    pub(super) fn phase(&self) -> Option<(&'static str, &'static str)> {
        match self.mode {
            Mode::Passing => Some(("passing", self.reason)),
            Mode::Draining(_) | Mode::Trying => Some(("trying", self.reason)),
            Mode::Shaping => None,
        }
    }
}

#[cfg(test)]
mod tests;
