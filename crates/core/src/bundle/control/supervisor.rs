//! Enforces the limits of any congestion-control algorithm only while measurements show a benefit.
//!
//! ```text
//!          a queue stands, and the back-off is over              R and J as good as in passing
//! passing ─────────────────────────────────────────► trying ─────────────────────────────────► shaping
//! (no limits) ◄───────────────────────────────────────┤ drain, then the algorithm's limits        │
//!    ▲                R or J worse than in passing     └──────────────────────────────────────────┘
//!    └──────────────────────────────── R or J worse than in passing ──────────────────────────────┘
//! ```
//! R is the delivery rate. J is the delay of a sparse flow: the round trip plus, under limits, the wait in the sendbox.
//!
//! **Deficit.** Under limits the supervisor compares the delivery with passing for the same busy time. It adds
//! up the shortfall in seconds of the reference rate: `D' = KEEP x busy - R / reference`, never below 0. The
//! bundle passes once D exceeds its budget. Shaping ends within a second if the rate halves, and within ten
//! seconds if it falls by a tenth. The budget grows with the variance of R, which moves D at random: a
//! reflected random walk with drift -(1 - KEEP) exceeds K sigma^2 / (2 (1 - KEEP)) in a share exp(-K) of the time.
//!
//! **Constant rates.** A link that serves the bundle alone delivers at a constant rate. If the delivery rate
//! stays constant at a lower or higher level, the link has changed its rate. The new rate becomes the reference.
//!
//! **Drain.** A trial begins with a drain at a part of the rate. If the delivery rate stays the same while the
//! queue lasts, the queue belongs to the bundle or to bundles that drain together. The trial then goes on.
//!
//! **Back-off.** A failed trial quadruples the time until the next one. In between, the supervisor only drains,
//! at multiples of a time of day, so that bundles that keep each other passing drain together. If the rate
//! holds in such a drain, a trial follows at once.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::bundle::tuning::Tuning;
use crate::cc::Measurement;
use crate::cc::estimators::SlidingMin;
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Sums over a time span, from which means are computed.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    seconds: f64,
    delivered_bytes: f64,
    rtt_sum_s: f64,
    rtts: f64,
    wait_sum_s: f64,
    waits: f64,
    /// Seconds with a backlog in the sendbox, and the backlog's integral over time.
    busy_s: f64,
    backlog_bytes_s: f64,
}

impl Block {
    fn rate(&self) -> f64 {
        self.delivered_bytes / self.seconds.max(1e-9)
    }

    /// Delay of a sparse flow (seconds).
    fn joint_s(&self, tuning: &Tuning) -> f64 {
        self.rtt_sum_s / self.rtts.max(1.0)
            + self.wait_sum_s / self.waits.max(tuning.supervisor_waits * self.seconds)
    }

    /// Mean delay of all packets (seconds): the round trip plus the wait in the sendbox by Little's law. `None`
    /// if the sendbox nearly always has a backlog, because hosts with bulk flows fill any queue.
    fn total_s(&self, tuning: &Tuning) -> Option<f64> {
        let waited_s = self.backlog_bytes_s / self.delivered_bytes.max(1.0);
        (self.busy_s < tuning.supervisor_busy * self.seconds)
            .then(|| self.rtt_sum_s / self.rtts.max(1.0) + waited_s)
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
    /// The rate stays below the reference until round trips stop falling.
    Draining(Drain),
    /// The algorithm's limits, on probation.
    Trying,
    /// The algorithm's limits.
    Shaping,
}

/// A drain at the start of a trial. If the queue belongs to the bundle, or to bundles that drain together, it
/// leaves the bottleneck at the old rate while it lasts. In a shared queue the bundle's delivery rate falls
/// with its sending rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Drain {
    rate: f64,
    /// Share of the reference rate above which the delivery rate counts as unchanged.
    holds: f64,
    /// Packets that left after this time went through the drain (seconds).
    since_s: f64,
    /// Smallest round trips of this loop time and of the last one (seconds).
    least_s: f64,
    last_least_s: f64,
    loop_from_s: f64,
    /// Sum and number of delivery rates of packets sent in the first loop time, and whether the rate held.
    rates: f64,
    reports: u32,
    held: Option<bool>,
    /// The supervisor saw no queue and looks for one below the smallest round trip.
    is_probe: bool,
}

/// A change that the supervisor reports to the control loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitsChange {
    /// The algorithm's limits apply from now on.
    Enforced,
    /// No limits apply from now on.
    Unenforced,
    /// The noise of the delay has changed.
    Noise,
}

/// Decides whether the algorithm's limits are enforced.
#[derive(Clone, Debug)]
pub(super) struct Supervisor {
    mode: Mode,
    now_s: f64,
    since_s: f64,
    /// The supervisor judges the mode from this time on; infinite until the requested limits are in force.
    settled_s: f64,
    base: SlidingMin,
    base_s: f64,
    recent: SlidingMin,
    loop_s: f64,
    /// Time of day minus the supervisor's own time (seconds).
    day_s: f64,
    /// Complete blocks of this mode, and the unfinished one.
    blocks: VecDeque<Block>,
    block: Block,
    /// Rate and delay while passing.
    reference: Block,
    /// Largest rate of a block while passing.
    peak: f64,
    /// The algorithm requests less than the floor.
    is_at_floor: bool,
    deficit_s: f64,
    /// Range of the delivery rate since the deficit was last 0 or the constant rate began: least, largest, start.
    constant: (f64, f64, f64),
    not_before_s: f64,
    back_off_s: f64,
    /// A drain may begin at this time, even during the back-off.
    drain_at_s: f64,
    /// A drain has already looked for a queue below the smallest round trip.
    is_probed: bool,
    /// Rate at the last trial.
    tried_rate: f64,
    /// Round trip of a path that a drain has shown to be longer (seconds).
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
            reason: "no standing queue",
        }
    }
}

impl Supervisor {
    /// Starts in passing mode. `time_of_day` is the time of day at [`Timestamp::ZERO`].
    pub(super) fn new(time_of_day: Duration) -> Self {
        Self { day_s: time_of_day.as_secs_f64(), ..Self::default() }
    }

    /// Adds the wait of one packet of a sparse flow in the bundle's queue.
    pub(super) fn on_wait(&mut self, wait: Duration) {
        self.block.wait_sum_s += wait.as_secs_f64();
        self.block.waits += 1.0;
    }

    /// Discards the measurements and passes without limits until a trial. The smallest round trip stays,
    /// because a queue may already stand. A trial finds out whether the path is longer.
    pub(super) fn restart(&mut self) {
        let Self { day_s, now_s, base_s, .. } = *self;
        let base = core::mem::take(&mut self.base);
        let (since_s, settled_s) = (now_s, now_s);
        *self = Self { day_s, now_s, since_s, settled_s, base, base_s, ..Self::default() };
    }

    /// Adds `by_s` seconds to all earlier round trips.
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

    /// Takes a measurement; `is_limited`: a rate limit is in force.
    pub(super) fn on_measurement(
        &mut self,
        tuning: &Tuning,
        now: Timestamp,
        measurement: &Measurement,
        loop_time: Duration,
        is_limited: bool,
    ) -> Option<LimitsChange> {
        self.now_s = now.as_secs_f64();
        // Without limits the loop time includes the queueing delay.
        self.loop_s = loop_time.as_secs_f64();
        let dt_s = measurement.interval.as_secs_f64();
        let delivered_bytes = measurement.acked.as_f64();
        if let Some(rtt) = measurement.rtt {
            self.on_round_trip(tuning, rtt.latest.as_secs_f64());
        }
        let holds = match self.mode {
            Mode::Passing => self.release.is_none(),
            _ => is_limited,
        };
        if holds && self.settled_s.is_infinite() {
            self.settled_s = self.now_s + tuning.supervisor_settle_loops * self.loop_s;
            self.block = Block::default();
        }
        if self.now_s < self.settled_s && !matches!(self.mode, Mode::Draining(_)) {
            self.block = Block::default();
            return None;
        }
        // The delivered bytes are unknown, for example after a step of the receivebox's clock.
        if measurement.delivery_rate.is_none() && !matches!(self.mode, Mode::Draining(_)) {
            return None;
        }
        let busy = 1.0 - measurement.idle.map_or(0.0, |idle| idle.as_f64());
        let is_whole = self.fill_block(tuning, measurement, busy);
        // If other bundles keep the ceiling low, neither mode shows the capacity of the path.
        if measurement.cwnd_limited == Some(false) && !matches!(self.mode, Mode::Draining(_)) {
            self.deficit_s = 0.0;
            self.blocks.clear();
            return None;
        }
        match self.mode {
            // Bundles that drain together must begin together.
            Mode::Passing => {
                let rate = measurement.delivery_rate.map_or(0.0, Rate::as_bytes_per_sec_f64);
                let is_constant = self.constant_s(tuning, rate, 1.0) > self.constant_min_s(tuning);
                let is_tried = (rate - self.tried_rate).abs() < tuning.supervisor_same * rate;
                if is_constant && !is_tried && self.stands(tuning) {
                    self.not_before_s = self.now_s;
                }
                let is_due = is_whole || self.now_s >= self.drain_at_s;
                if is_due { self.may_try(tuning) } else { None }
            }
            Mode::Draining(drain) => {
                let rtt_s = measurement.rtt?.latest.as_secs_f64();
                let age_s = measurement.feedback_delay.map_or(rtt_s, |age| age.as_secs_f64());
                let rate = measurement.delivery_rate.map_or(0.0, Rate::as_bytes_per_sec_f64);
                self.drain(tuning, drain, rtt_s, age_s, rate)
            }
            Mode::Trying | Mode::Shaping => {
                let rate = measurement.delivery_rate.map_or(0.0, Rate::as_bytes_per_sec_f64);
                self.judge_rate(tuning, dt_s, busy, delivered_bytes, rate)
                    .or_else(|| is_whole.then(|| self.judge_delay(tuning)).flatten())
            }
        }
    }

    /// Adds a measurement to the unfinished block. True if this completes the block, which is then stored.
    fn fill_block(&mut self, tuning: &Tuning, measurement: &Measurement, busy: f64) -> bool {
        let dt_s = measurement.interval.as_secs_f64();
        self.block.seconds += dt_s;
        self.block.delivered_bytes += measurement.acked.as_f64();
        self.block.busy_s += busy * dt_s;
        self.block.backlog_bytes_s += measurement.backlog.map_or(0.0, ByteCount::as_f64) * dt_s;
        let is_whole = self.block.seconds >= self.block_s(tuning);
        if is_whole {
            if self.blocks.len() == tuning.supervisor_blocks as usize {
                self.blocks.pop_front();
            }
            self.blocks.push_back(core::mem::take(&mut self.block));
        }
        is_whole
    }

    fn block_s(&self, tuning: &Tuning) -> f64 {
        tuning.supervisor_block.as_secs_f64().max(tuning.supervisor_block_loops * self.loop_s)
    }

    /// Span over which to take a smallest round trip, for comparison with the span before (seconds).
    fn compared_s(&self, tuning: &Tuning) -> f64 {
        self.loop_s.max(tuning.feedback_span.as_secs_f64())
    }

    fn on_round_trip(&mut self, tuning: &Tuning, rtt_s: f64) {
        self.base.push(self.now_s, rtt_s, tuning.supervisor_back_off.as_secs_f64(), 1);
        self.base_s = self.base.value().unwrap_or(rtt_s);
        self.recent.push(self.now_s, rtt_s, self.block_s(tuning), 1);
        self.block.rtt_sum_s += rtt_s;
        self.block.rtts += 1.0;
        self.loop_least_s = self.loop_least_s.min(rtt_s);
        if self.now_s - self.loop_from_s <= self.compared_s(tuning) {
            return;
        }
        let least_s = core::mem::replace(&mut self.loop_least_s, f64::INFINITY);
        self.loop_from_s = self.now_s;
        let last_s = self.last_least_s.replace(least_s);
        if !matches!(self.mode, Mode::Trying | Mode::Shaping) || self.now_s < self.settled_s {
            return;
        }
        self.differences.extend(last_s.map(|last_s| libm::fabs(least_s - last_s)));
        if self.differences.len() > tuning.usual_count as usize {
            self.differences.pop_front();
        }
    }

    /// Adopts the variation of round trips as noise if it exceeds the known noise. The algorithm keeps the
    /// queue short meanwhile.
    fn raises_noise(&mut self, tuning: &Tuning) -> bool {
        let mut all: Vec<f64> = self.differences.iter().copied().collect();
        all.sort_by(f64::total_cmp);
        let is_known = all.len() >= tuning.reports_few as usize;
        let median_s = all.get(all.len() / 2).filter(|_| is_known).copied().unwrap_or(0.0);
        let noise_s = (tuning.sure_deviations * median_s).min(self.base_s / 2.0);
        let is_more = noise_s > tuning.supervisor_longer * self.noise_s
            && noise_s > tuning.delay_noise.as_secs_f64();
        if is_more {
            self.noise_s = noise_s;
        }
        is_more
    }

    /// Variation of the delay that an algorithm may not take for a queue.
    pub(super) fn noise(&self) -> Duration {
        crate::cc::estimators::duration(self.noise_s)
    }

    /// Sum over the last `count` blocks of this mode.
    fn mean(&self, count: usize) -> Block {
        let mut sum = Block::default();
        self.blocks.iter().rev().take(count).for_each(|block| sum.add(block));
        sum
    }

    /// Variance per second of the rate divided by the reference. It follows from the median squared step
    /// between blocks, because a change of level is only one step.
    fn variance(&self, tuning: &Tuning) -> f64 {
        let rates =
            || self.blocks.iter().map(|block| block.rate() / self.reference.rate().max(1.0));
        let steps = rates().zip(rates().skip(1)).map(|(one, next)| (next - one) * (next - one));
        let mut steps: Vec<f64> = steps.collect();
        steps.sort_by(f64::total_cmp);
        let seconds =
            self.mean(tuning.supervisor_blocks as usize).seconds / self.blocks.len().max(1) as f64;
        // A squared step has twice the variance as its mean, and 0.455 times this mean as its median.
        steps.get(steps.len() / 2).map_or(0.0, |median| median / (2.0 * 0.455) * seconds)
    }

    /// Budget of the deficit (seconds) on a path without variance.
    fn least_budget_s(&self, tuning: &Tuning) -> f64 {
        tuning.supervisor_budget.as_secs_f64().max(2.0 * self.loop_s)
    }

    fn budget_s(&self, tuning: &Tuning) -> f64 {
        self.least_budget_s(tuning)
            + tuning.chance_deviations * self.variance(tuning)
                / (2.0 * (1.0 - tuning.supervisor_keep))
    }

    /// Whether the queue was never short in the last block.
    fn stands(&self, tuning: &Tuning) -> bool {
        self.recent.value().is_some_and(|least_s| {
            least_s - self.base_s > tuning.supervisor_standing.as_secs_f64().max(self.noise_s)
        })
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

    /// The next multiple of `every_s` in the time of day that is at least `after_s` away.
    fn next_multiple(&self, every_s: f64, after_s: f64) -> f64 {
        libm::ceil((self.now_s + after_s + self.day_s) / every_s) * every_s - self.day_s
    }

    fn pass(&mut self, tuning: &Tuning, reason: &'static str) -> Option<LimitsChange> {
        let rate = self.mean(2).rate();
        let mut first_s = tuning.supervisor_back_off.as_secs_f64();
        while first_s < 2.0 * tuning.supervisor_grid_round_trips * self.base_s {
            first_s *= 2.0;
        }
        self.back_off_s = (tuning.supervisor_back_off_growth * self.back_off_s)
            .max(first_s)
            .min(tuning.supervisor_back_off_growth * first_s);
        self.not_before_s = self.next_multiple(self.back_off_s, self.back_off_s / 2.0);
        let grid_s = self.grid_s(tuning);
        self.drain_at_s = self.next_multiple(grid_s, grid_s / 2.0);
        self.release = Some((1.0 + tuning.rates_near) * self.reference.rate().max(rate));
        self.enter(Mode::Passing, reason);
        Some(LimitsChange::Unenforced)
    }

    /// Time between drains that ignore the back-off (seconds).
    fn grid_s(&self, tuning: &Tuning) -> f64 {
        let mut grid_s = tuning.supervisor_grid.as_secs_f64();
        while grid_s < tuning.supervisor_grid_round_trips * self.base_s {
            grid_s *= 2.0;
        }
        grid_s
    }

    fn may_try(&mut self, tuning: &Tuning) -> Option<LimitsChange> {
        let grid_s = self.grid_s(tuning);
        let is_due = self.now_s >= self.not_before_s || self.now_s >= self.drain_at_s;
        if self.now_s >= self.drain_at_s {
            self.drain_at_s = self.next_multiple(grid_s, self.block_s(tuning) / 2.0);
        }
        let (all, recent) = (self.mean(tuning.supervisor_blocks as usize), self.mean(1));
        let before = self.blocks.iter().rev().nth(1).map_or(0.0, Block::rate);
        let is_steady = (recent.rate() - before).abs() < tuning.rates_near * recent.rate();
        // A sendbox that starts under load counts the queue as part of the path.
        let is_probe =
            !self.is_probed && self.blocks.len() <= 2 && is_steady && !self.stands(tuning);
        self.is_probed |= self.blocks.len() > 2;
        // During slow start the delivery rate is still below the rate that passing will reach.
        let is_growing = recent.rate() > (1.0 + tuning.rates_near) * before;
        if self.blocks.is_empty() || is_growing || !is_due || !is_probe && !self.stands(tuning) {
            return None;
        }
        self.is_probed = true;
        self.peak = self.blocks.iter().map(Block::rate).fold(0.0, f64::max);
        self.tried_rate =
            if self.now_s >= self.not_before_s { recent.rate() } else { self.tried_rate };
        self.reference = recent;
        let earlier_s = all.joint_s(tuning) - recent.joint_s(tuning);
        self.reference.rtt_sum_s += earlier_s.max(0.0) * recent.rtts;
        let deviation = libm::sqrt(self.variance(tuning) / recent.seconds.max(1e-9));
        let drain = Drain {
            rate: tuning.supervisor_drain * recent.rate(),
            holds: 1.0
                - (2.0 * deviation)
                    .max(tuning.supervisor_same)
                    .min((1.0 - tuning.supervisor_drain) / 2.0),
            since_s: self.now_s,
            least_s: f64::INFINITY,
            last_least_s: f64::INFINITY,
            loop_from_s: self.now_s,
            rates: 0.0,
            reports: 0,
            held: None,
            is_probe,
        };
        let reason =
            if is_probe { "probing: testing limits" } else { "standing queue: testing limits" };
        self.enter(Mode::Draining(drain), reason);
        None
    }

    /// Takes a report that arrives `age_s` after its packet left. The drain ends once round trips stop falling.
    fn drain(
        &mut self,
        tuning: &Tuning,
        mut drain: Drain,
        rtt_s: f64,
        age_s: f64,
        rate: f64,
    ) -> Option<LimitsChange> {
        let left_s = self.now_s - age_s;
        // A packet that left before the drain shows nothing about it.
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
        if self.now_s - drain.loop_from_s <= self.compared_s(tuning) {
            return None;
        }
        if drain.held.is_none() && drain.reports >= tuning.reports_few {
            let mean = drain.rates / f64::from(drain.reports);
            drain.held = Some(mean > drain.holds * self.reference.rate());
        }
        let is_early = self.now_s < self.not_before_s;
        if drain.held == Some(false) && is_early {
            // Competing traffic, or a longer path without a queue: a drain does not distinguish them.
            return self.go_on_passing(tuning, "delivery fell with the sending rate");
        }
        // The queue is empty once the delivery rate has fallen to the sending rate.
        let is_over = rate < (1.0 + tuning.supervisor_drain) / 2.0 * self.reference.rate()
            || drain.held != Some(true)
                && drain.least_s > drain.last_least_s - tuning.boxes_late.as_secs_f64();
        // A queue of a second takes 8 s to drain.
        let longest_s = 2.0 * f64::from(tuning.waited_count) * self.loop_s;
        let longest_s = longest_s.max(tuning.waited_max.as_secs_f64());
        if !is_over && self.now_s - drain.since_s <= longest_s {
            drain.last_least_s = drain.least_s;
            drain.least_s = f64::INFINITY;
            drain.loop_from_s = self.now_s;
            self.mode = Mode::Draining(drain);
            return None;
        }
        let fell_s = self.reference.joint_s(tuning) - drain.least_s;
        if drain.is_probe && fell_s < tuning.supervisor_standing.as_secs_f64() {
            return self.go_on_passing(tuning, "no standing queue");
        }
        if drain.held.is_none() && is_early {
            return self.go_on_passing(tuning, "unknown whether the bundle causes the queue");
        }
        // After a drain that ended by itself the bundle's own queue is gone, and the rest of the delay is the path's.
        let is_longer = drain.least_s - self.base_s
            > tuning.supervisor_standing.as_secs_f64().max(2.0 * self.noise_s);
        self.longer_s = (is_over && drain.held == Some(true) && is_longer).then_some(drain.least_s);
        if self.longer_s.is_some() {
            self.base.clear();
            self.base.push(self.now_s, drain.least_s, tuning.supervisor_back_off.as_secs_f64(), 1);
            self.base_s = drain.least_s;
        }
        self.enter(Mode::Trying, self.reason);
        self.deficit_s = 0.0;
        self.constant = (0.0, 0.0, self.now_s);
        Some(LimitsChange::Enforced)
    }

    /// Ends a drain without a trial.
    fn go_on_passing(&mut self, tuning: &Tuning, reason: &'static str) -> Option<LimitsChange> {
        self.release = Some((1.0 + tuning.rates_near) * self.reference.rate());
        self.enter(Mode::Passing, reason);
        None
    }

    /// Round trip without any queue that a drain has found, if it is longer than any seen before.
    pub(super) fn longer(&self) -> Option<Duration> {
        self.longer_s.map(crate::cc::estimators::duration)
    }

    /// A rate that stays constant for this time is the link's own (seconds).
    fn constant_min_s(&self, tuning: &Tuning) -> f64 {
        let loops_s = 2.0 * tuning.supervisor_block_loops * self.loop_s;
        tuning.capacity_time.as_secs_f64().max(loops_s)
    }

    /// Time for which the delivery rate has been constant (seconds).
    fn constant_s(&mut self, tuning: &Tuning, rate: f64, busy: f64) -> f64 {
        let (least, largest, since_s) = &mut self.constant;
        if rate > 0.0 && busy > tuning.supervisor_busy {
            (*least, *largest) = (least.min(rate), largest.max(rate));
        }
        if *largest > (1.0 + tuning.supervisor_constant) * *least || busy < tuning.supervisor_busy {
            (*least, *largest, *since_s) = (rate, rate, self.now_s);
        }
        self.now_s - *since_s
    }

    fn judge_rate(
        &mut self,
        tuning: &Tuning,
        dt_s: f64,
        busy: f64,
        delivered_bytes: f64,
        rate: f64,
    ) -> Option<LimitsChange> {
        let reference = self.reference.rate().max(1.0);
        let mut by_s = tuning.supervisor_keep * busy * dt_s - delivered_bytes / reference;
        if busy < tuning.supervisor_busy {
            by_s = by_s.max(-(1.0 - tuning.supervisor_keep) * dt_s);
        }
        self.deficit_s = (self.deficit_s + by_s).max(0.0);
        let constant_s = self.constant_s(tuning, rate, busy);
        // At the floor, the floor itself keeps the rate constant, unless a queue stands.
        let queue_s = self.last_least_s.map_or(0.0, |least_s| least_s - self.base_s);
        let is_own = self.is_at_floor
            && queue_s < tuning.supervisor_standing.as_secs_f64().max(self.noise_s);
        if constant_s > self.constant_min_s(tuning) && !is_own {
            // While passing, the queue would hold as many bytes as before.
            let queue_s = (self.reference.joint_s(tuning) - self.base_s).max(0.0);
            let longer_s = queue_s * (reference / rate.max(1.0) - 1.0);
            self.reference.rtt_sum_s += longer_s * self.reference.rtts;
            self.reference.delivered_bytes = rate * self.reference.seconds;
            self.peak = rate;
            self.deficit_s = 0.0;
        }
        let budget_s = self.budget_s(tuning);
        // Before the limits end, an algorithm that took noise for a queue gets another chance.
        if self.deficit_s > budget_s / 2.0 && !self.stands(tuning) && self.raises_noise(tuning) {
            self.deficit_s = 0.0;
            return Some(LimitsChange::Noise);
        }
        let is_less = self.deficit_s > budget_s;
        // If the rate has been constant since the deficit began, it may be the link's own.
        let unjudged_s = tuning.supervisor_settle_loops * self.loop_s;
        let may_be_alone = constant_s > self.deficit_s / 2.0 && constant_s > unjudged_s && !is_own;
        if is_less && !(may_be_alone && self.deficit_s < tuning.capacity_time.as_secs_f64()) {
            return self.pass(tuning, "limits reduced the delivered rate");
        }
        None
    }

    /// Ends a trial that does not shorten the delay, and shaping that lengthens it.
    fn judge_delay(&mut self, tuning: &Tuning) -> Option<LimitsChange> {
        let reference_s = self.reference.joint_s(tuning);
        let more = self.mean(1).rate() - self.reference.rate();
        if self.mode == Mode::Shaping && more > 0.0 {
            self.reference.delivered_bytes +=
                tuning.supervisor_rise * more * self.reference.seconds;
        }
        match self.mode {
            Mode::Trying if self.blocks.len() >= 2 => {
                let joint_s = self.mean(2).joint_s(tuning);
                let least_s = self.recent.value().unwrap_or(self.base_s);
                if reference_s - joint_s
                    < tuning.supervisor_gain
                        * (reference_s - least_s).max(tuning.delay_noise.as_secs_f64())
                {
                    return self.pass(tuning, "limits did not shorten the delay");
                }
                self.mode = Mode::Shaping;
                self.reason = "shaping shortens the delay";
            }
            Mode::Shaping if self.blocks.len() >= tuning.supervisor_delay_blocks as usize => {
                if self.now_s - self.since_s > tuning.supervisor_back_off.as_secs_f64() {
                    self.back_off_s = 0.0;
                }
                let mean = self.mean(tuning.supervisor_delay_blocks as usize);
                let is_late = mean
                    .total_s(tuning)
                    .is_some_and(|total_s| total_s > tuning.supervisor_longer * reference_s);
                if is_late || mean.joint_s(tuning) > reference_s {
                    return self.pass(tuning, "limits lengthened the delay");
                }
            }
            _ => {}
        }
        None
    }

    /// Delay that limits save a sparse flow; `None` while limits are off or too new.
    pub(super) fn saves(&self, tuning: &Tuning) -> Option<Duration> {
        let is_known = self.mode == Mode::Shaping
            && self.blocks.len() >= tuning.supervisor_delay_blocks as usize;
        let saved_s = self.reference.joint_s(tuning)
            - self.mean(tuning.supervisor_delay_blocks as usize).joint_s(tuning);
        (is_known && saved_s > 0.0).then(|| crate::cc::estimators::duration(saved_s))
    }

    /// Mean round trip without limits, from before the limits began.
    pub(super) fn round_trip(&self, tuning: &Tuning) -> Option<Duration> {
        (self.reference.rtts > 0.0)
            .then(|| crate::cc::estimators::duration(self.reference.joint_s(tuning)))
    }

    /// The rate to enforce, given the rate that the algorithm requests.
    pub(super) fn bound(
        &mut self,
        tuning: &Tuning,
        now: Timestamp,
        rate: Option<Rate>,
        backlog: ByteCount,
        in_flight_bytes: f64,
    ) -> Option<Rate> {
        match self.mode {
            Mode::Passing => {
                // The backlog leaves without a burst.
                let is_over = now.as_secs_f64() - self.since_s > 2.0 * self.block_s(tuning);
                self.release = self.release.filter(|_| backlog > ByteCount::ZERO && !is_over);
                self.release.map(Rate::from_bytes_per_sec_f64)
            }
            Mode::Draining(drain) => Some(Rate::from_bytes_per_sec_f64(drain.rate)),
            Mode::Trying | Mode::Shaping => {
                // At most the bytes in flight without limits: a path that became slower does not get the
                // backlog, too.
                let most_bytes =
                    tuning.rate_ceiling * self.reference.rate() * self.reference.joint_s(tuning);
                // Leave room for a new flow until its packets have been seen.
                let share =
                    if in_flight_bytes < most_bytes { 1.0 - tuning.rates_near } else { 0.0 };
                let peak = self.peak.max(self.reference.rate());
                let least = Rate::from_bytes_per_sec_f64(share * peak);
                self.is_at_floor = rate.is_some_and(|rate| rate < least);
                rate.map(|rate| rate.max(least))
            }
        }
    }

    /// State and reason for logs; `None`: use the ones from the algorithm.
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
