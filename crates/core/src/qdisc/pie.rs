//! Proportional integral controller enhanced: arrivals are dropped or marked with a probability
//! that a controller of the queueing delay sets.
//!
//! ```text
//! each tupdate : p += (alpha x (d - target) + beta x (d - d_old)) / scale(p);  d_old = d
//!                at most + 2 % where p >= 10 %;  p -= p / 64 where d = d_old = 0;  0 <= p <= 1
//! scale(p)     : 1 from 10 % on, then 2, 8, 32, 128, 512 a power of ten, 2048 below 0.0001 %
//! burst        : the whole allowance while p = 0 and d, d_old < target / 2, else - tupdate
//! an arrival   : passes with allowance left, or where d < target / 2 and p < 20 %, or where less
//!                than two full packets wait; otherwise it is signalled with probability p
//! signalled    : marked if ECN-capable and p <= ecn_threshold, else dropped
//! ```
//! d is the sojourn time of the packet that left last, 0 if it left nothing behind.
//!
//! Source: RFC 8033, sections 4.1 (random dropping), 4.2 (probability), 4.3 (delay by timestamps
//! instead of a departure rate), 4.4 (bursts), 5.1 (ECN), 5.4 (derandomisation: between two drops
//! the probabilities of the arrivals add up to at least 0.85 and at most 8.5), 5.5 (the 2 %).
//! Linux net/sched/sch_pie.c for the units of the gains and the defaults. With derandomisation p
//! is not the share of drops, which is lower; the controller finds the p that it takes.
//!
//! Departures:
//! - there is no timer: the next arrival or departure runs the due updates. Nothing else changes d in
//!   between, so the outcome is the same as with a timer, up to 4096 periods in one go;
//! - Linux adds 2 % a period above 250 ms, and can scale p by the length of a packet; RFC 8033
//!   does neither by default, nor does this;
//! - Linux spends the burst allowance by the time between departures, RFC 8033 by the period;
//! - decay rounds up, so that p reaches 0 with any gains.
//!
//! ns-3 (PieQueueDisc, [`PieParams::as_ns3`]) differs: updates are due at multiples of `tupdate` from 0 on; p
//! is 0 as long as there is burst allowance, which comes back only after 1.5 s of calm; p decays by 2 %. An
//! arrival passes where at most two packets wait. It also passes where the delay at the last update, not at
//! the last departure, is below target / 2 and p < 20 %.
//!
//! Ranges: probabilities are multiples of 2^-56, times are whole nanoseconds.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::packet::Packet;
use crate::qdisc::limit::CurrentLimit;
use crate::qdisc::params::{ECN, Holding, MTU, RANDOM_SEED};
use crate::qdisc::periods::Periods;
use crate::qdisc::pool::Queued;
use crate::qdisc::{Backlog, Built, Discipline, DropReason, DropSink, Qdisc, mark, ns3_stream};
use crate::random::{Ns3Stream, Stream, Streams};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Duration, Limit, Rate, Ratio, Timestamp};

/// Probability 1.
const ONE: u64 = 1 << 56;
/// RFC 8033 section 5.4: no drop while the probabilities since the last one add up to less ...
const ACCUMULATED_LOW: u64 = ONE / 100 * 85;
/// ... and one for certain once they add up to this.
const ACCUMULATED_HIGH: u64 = ONE / 2 * 17;
/// tc-pie(8): the gains are given in 1/16 Hz.
const GAIN_UNITS_PER_HZ: i128 = 16;
/// ns-3: calm after which a burst may pass again (BURST_RESET_TIMEOUT).
const NS3_CALM: Duration = Duration::from_millis(1500);
/// Numbers of 64 bits.
pub(super) const TWO_64: f64 = 18_446_744_073_709_551_616.0;
/// Nanoseconds in a second.
const NANOS_PER_SEC: i128 = 1_000_000_000;

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "pie",
    summary: "one queue that drops or marks arrivals with a probability set by the delay",
    sources: &["RFC 8033", "Linux net/sched/sch_pie.c"],
    params: &[
        &LIMIT,
        &TARGET,
        &TUPDATE,
        &ALPHA,
        &BETA,
        &BURST,
        &ECN,
        &ECN_THRESHOLD,
        &DERANDOMIZE,
        &RANDOM_SEED,
    ],
};

pub(super) fn build<P: Packet + Send + 'static>(spec: &Spec, _levels: usize) -> Built<P> {
    Ok(Box::new(Pie::new(PieParams::from_spec(spec)?)))
}

/// Largest gain in 1/16 Hz.
const GAIN_MAX: u64 = 32;
/// Packets, bytes or time in the queue; arrivals beyond it are dropped.
const LIMIT: Param<Holding> = Param::new("limit", "capacity of the queue (Linux: 1000 packets)")
    .or(Holding(Limit::Packets(1000)));
/// QDELAY_REF (RFC 8033, section 4.2). A lower one costs utilization.
const TARGET: Param<Duration> =
    Param::new("target", "delay to hold (RFC 8033 section 4.2: QDELAY_REF)")
        .or(Duration::from_millis(15))
        .within(Duration::from_micros(100)..=Duration::from_secs(1));
/// T_UPDATE (RFC 8033, section 4.2). The gains are set for it.
const TUPDATE: Param<Duration> =
    Param::new("tupdate", "time between changes of the probability (section 4.2: T_UPDATE)")
        .or(Duration::from_millis(15))
        .within(Duration::from_millis(1)..=Duration::from_secs(1));
/// alpha of RFC 8033, section 4.2, in 1/16 Hz. A larger one reaches the target faster and
/// oscillates earlier.
const ALPHA: Param<u64> =
    Param::new("alpha", "gain on the distance from the target, in 1/16 Hz (tc-pie(8))")
        .or(2)
        .within(0..=GAIN_MAX);
/// beta of RFC 8033, section 4.2, in 1/16 Hz. A larger one damps more, up to instability.
const BETA: Param<u64> =
    Param::new("beta", "gain on the change of the delay, in 1/16 Hz (tc-pie(8))")
        .or(20)
        .within(0..=GAIN_MAX);
/// MAX_BURST (RFC 8033, section 4.4): drops begin only after this much congestion. Zero protects no
/// burst.
const BURST: Param<Duration> =
    Param::new("burst", "length of a burst that is not dropped (section 4.4: MAX_BURST)")
        .or(Duration::from_millis(150))
        .within(Duration::ZERO..=Duration::from_secs(10));
/// Probability above which PIE drops instead of marking (RFC 8033, section 5.1).
const ECN_THRESHOLD: Param<Ratio> = Param::new(
    "ecn_threshold",
    "probability above which ECN-capable packets are also dropped (section 5.1)",
)
.or(Ratio::new(0.1).unwrap());
/// De-randomization (RFC 8033, section 5.4).
const DERANDOMIZE: Param<bool> = Param::new(
    "derandomize",
    "keep drops neither too close together nor too far apart (section 5.4; Linux does)",
)
.or(true);

/// Parameters of [`Pie`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PieParams {
    /// Limit of the queue.
    pub limit: Limit,
    /// Delay that is held.
    pub target: Duration,
    /// Time between changes of the probability, above 0.
    pub tupdate: Duration,
    /// Gain on the distance from the target, 1/16 Hz, 0 to 32.
    pub alpha: u8,
    /// Gain on the change of the delay, 1/16 Hz, 0 to 32.
    pub beta: u8,
    /// How long a burst passes untouched.
    pub burst: Duration,
    /// Mark ECN-capable packets instead of dropping them.
    pub ecn: bool,
    /// Probability above which ECN-capable packets are dropped, too.
    pub ecn_threshold: Ratio,
    /// Keep drops from coming too close or too far apart.
    pub derandomize: bool,
    /// Update, bursts and safe arrivals as in ns-3.
    pub as_ns3: bool,
    /// Seed of the draws.
    pub seed: u64,
}

impl PieParams {
    pub(super) fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        Ok(Self {
            limit: LIMIT.of(spec)?.0,
            target: TARGET.of(spec)?,
            tupdate: TUPDATE.of(spec)?,
            alpha: ALPHA.of(spec)? as u8,
            beta: BETA.of(spec)? as u8,
            burst: BURST.of(spec)?,
            ecn: ECN.of(spec)?,
            ecn_threshold: ECN_THRESHOLD.of(spec)?,
            derandomize: DERANDOMIZE.of(spec)?,
            as_ns3: false,
            seed: RANDOM_SEED.of(spec)?,
        })
    }
}

/// The controller.
#[derive(Clone, Debug, PartialEq)]
struct Law {
    /// Drop probability, in units of 1 / [`ONE`].
    probability: u64,
    /// Sojourn time of the packet that left last.
    delay: Duration,
    /// Delay of the queue at the last update.
    delay_old: Duration,
    /// Burst allowance left.
    allowance: Duration,
    /// How long it has been calm since the allowance was spent.
    calm: Duration,
    /// Sum of the probabilities of the arrivals since the last drop.
    accumulated: u64,
}

impl Law {
    fn new(params: &PieParams) -> Self {
        Self {
            probability: 0,
            delay: Duration::ZERO,
            delay_old: Duration::ZERO,
            allowance: params.burst,
            calm: Duration::ZERO,
            accumulated: 0,
        }
    }

    /// Updates p each `tupdate` (RFC 8033 sections 4.2, 4.4 and 5.5).
    fn update(&mut self, params: &PieParams) {
        if params.as_ns3 {
            return self.update_as_ns3(params);
        }
        let mut step = self.step(params);
        if self.probability >= ONE / 10 {
            step = step.min(i128::from(ONE / 50));
        }
        let probability = i128::from(self.probability) + step;
        self.probability = probability.clamp(0, i128::from(ONE)) as u64;
        if self.delay.is_zero() && self.delay_old.is_zero() {
            self.probability -= self.probability.div_ceil(64);
        }
        let is_low = |delay| delay < params.target / 2;
        let is_calm = self.probability == 0 && is_low(self.delay) && is_low(self.delay_old);
        self.allowance =
            if is_calm { params.burst } else { self.allowance.saturating_sub(params.tupdate) };
        self.delay_old = self.delay;
    }

    /// ns-3's `PieQueueDisc::CalculateP`.
    fn update_as_ns3(&mut self, params: &PieParams) {
        let is_low = |delay| delay < params.target / 2;
        if self.allowance.is_zero() {
            let step = self.step(params);
            let step =
                if self.probability >= ONE / 10 { step.min(i128::from(ONE / 50)) } else { step };
            self.probability =
                (i128::from(self.probability) + step).clamp(0, i128::from(ONE)) as u64;
        } else {
            self.probability = 0;
        }
        if self.delay.is_zero() && self.delay_old.is_zero() {
            self.probability -= self.probability / 50;
        }
        self.allowance = self.allowance.saturating_sub(params.tupdate);
        let is_calm = self.probability == 0 && is_low(self.delay) && is_low(self.delay_old);
        let lasts = is_calm && self.allowance.is_zero();
        self.calm = if lasts { self.calm + params.tupdate } else { Duration::ZERO };
        if self.calm > NS3_CALM {
            (self.allowance, self.calm) = (params.burst, Duration::ZERO);
        }
        self.delay_old = self.delay;
    }

    /// `(alpha x (d - target) + beta x (d - d_old)) / scale`. No overflow: gains below 2^6, times
    /// below 2^64 ns and probabilities of 2^56 make less than 2^127.
    fn step(&self, params: &PieParams) -> i128 {
        let [delay, old, target] =
            [self.delay, self.delay_old, params.target].map(|time| time.as_nanos() as i128);
        let pull =
            i128::from(params.alpha) * (delay - target) + i128::from(params.beta) * (delay - old);
        pull * i128::from(ONE) / (GAIN_UNITS_PER_HZ * NANOS_PER_SEC * scale(self.probability))
    }

    /// Whether to signal congestion on an arrival that finds this `waiting` (sections 4.1, 4.4 and 5.4).
    fn gives_up(
        &mut self,
        params: &PieParams,
        waiting: Backlog,
        mut bits: impl FnMut() -> u64,
    ) -> bool {
        let delay = if params.as_ns3 { self.delay_old } else { self.delay };
        let is_light = delay < params.target / 2 && self.probability < ONE / 5;
        let is_short = if params.as_ns3 {
            waiting.packets <= 2
        } else {
            waiting.bytes < ByteCount::new(2 * MTU)
        };
        if !self.allowance.is_zero() || is_light || is_short {
            return false;
        }
        if params.derandomize {
            self.accumulated =
                if self.probability == 0 { 0 } else { self.accumulated + self.probability };
            if self.accumulated < ACCUMULATED_LOW {
                return false;
            }
            if self.accumulated >= ACCUMULATED_HIGH {
                return true;
            }
        }
        bits() >> 8 < self.probability
    }
}

/// Divisor of the gains: the smaller the probability, the smaller its steps must be (RFC 8033 section 4.2).
fn scale(probability: u64) -> i128 {
    match probability {
        p if p < ONE / 1_000_000 => 2048,
        p if p < ONE / 100_000 => 512,
        p if p < ONE / 10_000 => 128,
        p if p < ONE / 1000 => 32,
        p if p < ONE / 100 => 8,
        p if p < ONE / 10 => 2,
        _ => 1,
    }
}

/// One queue under PIE.
pub struct Pie<P> {
    params: PieParams,
    limit: CurrentLimit,
    law: Law,
    ecn_threshold: u64,
    random: Stream,
    /// The draws as in ns-3, which take long to set up.
    ns3: Option<Ns3Stream>,
    updates: Periods,
    packets: VecDeque<Queued<P>>,
    backlog: Backlog,
}

impl<P: Packet> Pie<P> {
    /// An empty queue.
    pub fn new(params: PieParams) -> Self {
        Self {
            limit: CurrentLimit::new(params.limit),
            law: Law::new(&params),
            ecn_threshold: (params.ecn_threshold.as_f64() * ONE as f64) as u64,
            random: Streams::new(params.seed).stream("pie"),
            ns3: params.as_ns3.then(|| ns3_stream(params.seed)),
            updates: Periods::new(params.tupdate),
            packets: VecDeque::new(),
            backlog: Backlog::default(),
            params,
        }
    }

    /// Makes the updates that are due at `now`.
    fn update(&mut self, now: Timestamp) {
        let period = self.params.tupdate;
        // ns-3's timer runs from the beginning on, with or without packets.
        let since = if self.params.as_ns3 { now.as_nanos() as u128 % period.as_nanos() } else { 0 };
        let first = now + period.saturating_sub(Duration::from_nanos(since as u64));
        for _ in self.updates.due(now, first) {
            let before = self.law.clone();
            self.law.update(&self.params);
            // The update changed nothing. The other updates have the same input, so they change nothing, too.
            if self.law == before {
                break;
            }
        }
    }

    fn may_mark(&self) -> bool {
        self.params.ecn && self.law.probability <= self.ecn_threshold
    }
}

impl<P: Packet> Qdisc<P> for Pie<P> {
    fn enqueue(&mut self, now: Timestamp, mut packet: P, drops: &mut dyn DropSink<P>) {
        self.update(now);
        if self.limit.is_exceeded(self.backlog.with(packet.len())) {
            self.law.accumulated = 0;
            return drops.dropped(packet, DropReason::Overlimit);
        }
        let (random, ns3) = (&mut self.random, &mut self.ns3);
        let bits = || match ns3 {
            Some(ns3) => (ns3.unit() * TWO_64) as u64,
            None => random.bits(),
        };
        if self.law.gives_up(&self.params, self.backlog, bits) {
            self.law.accumulated = 0;
            if !(self.may_mark() && mark(&mut packet, DropReason::Early, drops)) {
                return drops.dropped(packet, DropReason::Early);
            }
        }
        self.backlog.add(packet.len());
        self.packets.push_back(Queued { packet, enqueued: now });
    }

    fn dequeue(&mut self, now: Timestamp, _drops: &mut dyn DropSink<P>) -> Option<P> {
        self.update(now);
        let Queued { packet, enqueued } = self.packets.pop_front()?;
        self.backlog.remove(packet.len());
        self.law.delay =
            if self.packets.is_empty() { Duration::ZERO } else { now.saturating_since(enqueued) };
        Some(packet)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn set_service_rate(&mut self, rate: Option<Rate>) {
        self.limit.set_rate(rate);
    }
}

#[cfg(test)]
mod tests;
