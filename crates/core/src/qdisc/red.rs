//! Random early detection: arrivals are dropped or marked with a probability that grows with the
//! average length of the queue.
//!
//! ```text
//! average            : avg = (1 - weight)^(m + 1) x avg + weight x q,  q before the arrival,
//!                      m = packets that the link could have sent while the queue stood empty
//! avg < min_th       : the arrival passes
//! min_th .. max_th   : p = max_p x (avg - min_th) / (max_th - min_th)
//! from max_th on     : given up; with `gentle` only from 2 max_th on, and in between
//!                      p = max_p + (1 - max_p) x (avg - max_th) / max_th
//! spacing            : given up with p / (1 - count x p), count = arrivals since the last one
//! given up           : marked if ECN-capable, else dropped
//! ```
//! Sources: S. Floyd and V. Jacobson, "Random Early Detection Gateways for Congestion Avoidance",
//! IEEE/ACM Transactions on Networking 1(4), 1993: figure 2 with its defaults in section 6, and the
//! uniform spacing of section 7. S. Floyd, "Recommendation on using the gentle_ variant of RED",
//! 2000. Linux net/sched/sch_red.c for ECN, `harddrop` and the bandwidth.
//!
//! `min_th` = `max_th` with `weight` 1 and `ecn` is the step marking of DCTCP (RFC 8257 section
//! 3.1): every arrival that finds K packets or more is marked.
//!
//! Lengths are packets or bytes, in the unit of the thresholds. The spacing makes the distances of
//! two drops uniform from 1 to 1/p - 1 arrivals, so that about 2 p of the arrivals are given up.
//!
//! Departures:
//! - an arrival at an empty queue counts in the average as well (m + 1 instead of m, as in ns-3):
//!   otherwise the average at weight 1 would never forget;
//! - in bytes the probability does not depend on the length of the packet, as in Linux;
//! - a packet that does not fit is dropped before it could be marked, and is no sample of the
//!   spacing.
//!
//! ns-3 (RedQueueDisc, [`RedParams::as_ns3`]) differs: it waits for 1/p arrivals after each drop (`Wait`), and the
//! next one follows uniformly within as many. An arrival passes where at most one packet (or byte) waits, or where
//! the average has just crossed `min_th`. In bytes p is scaled by the packet's length. A packet that does not fit
//! is judged first. A link counts as idle since the qdisc was last asked in vain.
//!
//! Ranges: the average is a multiple of 2^-32 of its unit, exact within 0.001 at a weight of 1e-6.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;

use crate::packet::Packet;
use crate::qdisc::limit::{BYTES_MAX, CurrentLimit};
use crate::qdisc::params::{ECN, Holding, RANDOM_SEED, Threshold};
use crate::qdisc::{Backlog, Built, Discipline, DropReason, DropSink, Qdisc, mark, ns3_stream};
use crate::random::{Ns3Stream, Stream, Streams};
use crate::spec::{Param, Quantity, Spec, SpecError};
use crate::units::{ByteCount, Duration, Limit, Rate, Ratio, Timestamp};

/// 1 in fixed point.
const ONE: u64 = 1 << FRACTION_BITS;
/// Bits after the point of probabilities and averages.
const FRACTION_BITS: u32 = 32;
/// Packets that an idle link could have sent are of this length (tc-red(8): `avpkt`).
const MEAN_PACKET: ByteCount = ByteCount::new(1000);
/// Smallest `max_p` and `weight`.
const SHARE_MIN: Ratio = Ratio::new(1e-6).unwrap();

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "red",
    summary: "one queue that drops or marks arrivals by its average length; ECN step marking",
    sources: &[
        "Floyd and Jacobson, IEEE/ACM Transactions on Networking 1(4), 1993",
        "Linux net/sched/sch_red.c",
        "RFC 8257",
    ],
    params: &[
        &LIMIT,
        &MIN_TH,
        &MAX_TH,
        &MAX_P,
        &WEIGHT,
        &GENTLE,
        &BANDWIDTH,
        &ECN,
        &HARDDROP,
        &RANDOM_SEED,
    ],
};

pub(super) fn build<P: Packet + Send + 'static>(spec: &Spec, _levels: usize) -> Built<P> {
    Ok(Box::new(Red::new(RedParams::from_spec(spec)?)))
}

/// Packets, bytes or time in the queue; arrivals beyond it are dropped.
const LIMIT: Param<Holding> =
    Param::new("limit", "capacity of the queue").or(Holding(Limit::Packets(1000)));
/// Lower threshold of the average (paper, section 6). Below it no packet is dropped or marked.
const MIN_TH: Param<Threshold> = Param::new(
    "min_th",
    "average below which no packet is dropped or marked (section 6: 5 packets)",
)
.or(Threshold(Limit::Packets(5)));
/// Upper threshold of the average (paper, section 6). A larger one keeps a longer queue.
const MAX_TH: Param<Above> = Param::new(
    "max_th",
    "average from which all packets are dropped or marked; more than 2 min_th, or min_th for a \
     step",
)
.or(Above(Limit::Packets(15)));
/// Probability at the upper threshold (paper, section 6). A larger one keeps the average further
/// below it.
const MAX_P: Param<Ratio> = Param::new("max_p", "probability at max_th (section 6: 1/50)")
    .or(Ratio::new(0.02).unwrap())
    .within(SHARE_MIN..=Ratio::ONE);
/// Weight of each arrival in the average (paper, section 6). A smaller one lets longer bursts pass.
const WEIGHT: Param<Ratio> =
    Param::new("weight", "weight of the queue in its average (section 6: 0.002; 1: no average)")
        .or(Ratio::new(0.002).unwrap())
        .within(SHARE_MIN..=Ratio::ONE);
/// Gentle RED: no jump of the probability at the upper threshold.
const GENTLE: Param<bool> =
    Param::switch("gentle", "from max_th to 2 max_th the probability rises to 1");
/// Rate at which an idle link is assumed to send, for the decay of the average.
const BANDWIDTH: Param<Rate> = Param::new(
    "bandwidth",
    "link rate assumed for the decay of the average while idle (tc-red(8): 10 Mbit/s)",
)
.or(Rate::from_mbit_per_sec(10))
.within(Rate::from_bits_per_sec(1000)..=Rate::from_mbit_per_sec(1_000_000));
/// Drop instead of mark where the probability is 1 (`tc-red(8)`: harddrop).
const HARDDROP: Param<bool> = Param::switch(
    "harddrop",
    "also drop ECN-capable packets where all packets are dropped or marked",
);

/// A threshold above another.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Above(Limit);

impl Quantity for Above {
    /// A value of `max_th`.
    const WHAT: &'static str = "as many packets as min_th or more, or bytes if min_th is bytes";
    fn read(text: &str) -> Option<Self> {
        Threshold::read(text).map(|threshold| Self(threshold.0))
    }
    fn written(&self) -> String {
        self.0.written()
    }
}

/// Parameters of [`Red`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedParams {
    /// Limit of the queue.
    pub limit: Limit,
    /// Average below which nothing is given up.
    pub min_th: Limit,
    /// Average from which everything is given up, at least `min_th` and in its unit.
    pub max_th: Limit,
    /// Probability at `max_th`.
    pub max_p: Ratio,
    /// Weight of the queue in its average, 1e-6 to 1.
    pub weight: Ratio,
    /// From `max_th` to twice that the probability rises to 1.
    pub gentle: bool,
    /// Rate at which the average falls on an idle link, above 0.
    pub bandwidth: Rate,
    /// Mark ECN-capable packets instead of dropping them.
    pub ecn: bool,
    /// Drop ECN-capable packets, too, where everything is given up.
    pub harddrop: bool,
    /// Spacing and idle time as in ns-3.
    pub as_ns3: bool,
    /// Seed of the draws.
    pub seed: u64,
}

impl RedParams {
    pub(super) fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        // Any limit of a queue, before the comparison with min_th.
        spec.value::<Threshold>(MAX_TH.name)?;
        let (min_th, max_th) = (MIN_TH.of(spec)?.0, MAX_TH.of(spec)?.0);
        // False of packets and bytes, too.
        let is_ordered = min_th <= max_th;
        if !is_ordered {
            return Err(MAX_TH.refused(spec));
        }
        Ok(Self {
            limit: LIMIT.of(spec)?.0,
            min_th,
            max_th,
            max_p: MAX_P.of(spec)?,
            weight: WEIGHT.of(spec)?,
            gentle: GENTLE.of(spec)?,
            bandwidth: BANDWIDTH.of(spec)?,
            ecn: ECN.of(spec)?,
            harddrop: HARDDROP.of(spec)?,
            as_ns3: false,
            seed: RANDOM_SEED.of(spec)?,
        })
    }
}

/// The average and the probability derived from it. Lengths and shares are multiples of 1 /
/// [`ONE`].
struct Law {
    min_th: u64,
    max_th: u64,
    max_p: u64,
    weight: u64,
    gentle: bool,
    /// The thresholds are bytes.
    in_bytes: bool,
    as_ns3: bool,
    /// Time of a packet on the link.
    packet_time: Duration,
    average: u64,
    /// Since when the queue has been empty.
    idle_since: Option<Timestamp>,
    /// Arrivals since one was given up, or bytes in ns-3 if the thresholds are bytes; `None` below `min_th`.
    count: Option<u64>,
    random: Stream,
    /// The draws as in ns-3, which take long to set up.
    ns3: Option<Ns3Stream>,
}

impl Law {
    fn new(params: &RedParams) -> Self {
        let fixed = |share: Ratio| libm::round(share.as_f64() * ONE as f64) as u64;
        Self {
            min_th: amount(params.min_th) << FRACTION_BITS,
            max_th: amount(params.max_th) << FRACTION_BITS,
            max_p: fixed(params.max_p),
            weight: fixed(params.weight),
            gentle: params.gentle,
            in_bytes: !matches!(params.min_th, Limit::Packets(_)),
            as_ns3: params.as_ns3,
            packet_time: MEAN_PACKET.time_at(params.bandwidth).unwrap_or(Duration::MAX),
            average: 0,
            idle_since: None,
            count: None,
            random: Streams::new(params.seed).stream("red"),
            ns3: params.as_ns3.then(|| ns3_stream(params.seed)),
        }
    }

    /// An arrival finds a queue of `length`.
    fn sample(&mut self, now: Timestamp, length: u64) {
        let idle = self.idle_since.map_or(Duration::ZERO, |since| now.saturating_since(since));
        let missed = (idle.as_nanos() / self.packet_time.as_nanos()) as u64;
        let kept = power(ONE - self.weight, missed.saturating_add(1));
        self.average =
            product(self.average, kept).saturating_add(self.weight.saturating_mul(length));
        self.idle_since = (length == 0 && !self.as_ns3).then_some(now);
    }

    /// Why the arrival that was sampled is given up, if it is.
    fn judge(&mut self) -> Option<DropReason> {
        if self.average < self.min_th {
            self.count = None;
            return None;
        }
        let forced_from = if self.gentle { 2 * self.max_th } else { self.max_th };
        if self.average >= forced_from {
            self.count = Some(0);
            return Some(DropReason::Forced);
        }
        let count = self.count.map_or(0, |count| count + 1);
        self.count = Some(count);
        let probability = self.probability();
        // u < p / (1 - count x p), without the division.
        let room = u128::from(ONE).saturating_sub(u128::from(count) * u128::from(probability));
        let drawn = u128::from(self.random.bits() >> (64 - FRACTION_BITS));
        if drawn * room >= u128::from(probability) << FRACTION_BITS {
            return None;
        }
        self.count = Some(0);
        Some(DropReason::Early)
    }

    /// ns-3's `RedQueueDisc::DoEnqueue`, for an arrival of `bytes` at a queue of `length`.
    fn judge_as_ns3(&mut self, length: u64, bytes: u64) -> Option<DropReason> {
        if self.average < self.min_th || length <= 1 {
            self.count = None;
            return None;
        }
        let step = if self.in_bytes { bytes } else { 1 };
        let count = self.count.map(|count| count + step);
        let forced_from = if self.gentle { 2 * self.max_th } else { self.max_th };
        if self.average >= forced_from {
            self.count = count;
            return Some(DropReason::Forced);
        }
        self.count = Some(count.unwrap_or(step));
        let mean = MEAN_PACKET.as_u64();
        let arrivals = if self.in_bytes { count? / mean } else { count? };
        let (one, p) = (u128::from(ONE), u128::from(self.probability()));
        let spaced = match u128::from(arrivals) * p {
            due if due < one => 0,
            due if due < 2 * one => p * one / (2 * one - due),
            _ => one,
        };
        let is_scaled = self.in_bytes && spaced < one;
        let spaced = if is_scaled { spaced * u128::from(bytes) / u128::from(mean) } else { spaced };
        if self.ns3.as_mut()?.unit() * ONE as f64 > spaced as f64 {
            return None;
        }
        self.count = Some(0);
        Some(DropReason::Early)
    }

    /// The probability before spacing, of an average from `min_th` on.
    fn probability(&self) -> u64 {
        let scaled = |share: u64, part: u64, whole: u64| {
            (u128::from(share) * u128::from(part) / u128::from(whole)) as u64
        };
        if self.average < self.max_th {
            scaled(self.max_p, self.average - self.min_th, self.max_th - self.min_th)
        } else {
            let above = (self.average - self.max_th).min(self.max_th);
            self.max_p + scaled(ONE - self.max_p, above, self.max_th)
        }
    }
}

/// The number in a limit, at most 10^9: shifted and doubled it still fits.
fn amount(limit: Limit) -> u64 {
    match limit {
        Limit::Packets(packets) => packets,
        Limit::Bytes(bytes) => bytes.as_u64(),
        // No spec gives a threshold in time (`params::threshold`).
        Limit::Time(_) => BYTES_MAX,
    }
}

/// `a` x `b` for `b` up to [`ONE`], rounded down.
fn product(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> FRACTION_BITS) as u64
}

/// `base` to the power `exponent` by repeated squaring, for `base` up to [`ONE`].
fn power(mut base: u64, mut exponent: u64) -> u64 {
    let mut power = ONE;
    while exponent > 0 && power > 0 {
        if exponent & 1 == 1 {
            power = product(power, base);
        }
        base = product(base, base);
        exponent >>= 1;
    }
    power
}

/// One queue under RED.
pub struct Red<P> {
    params: RedParams,
    limit: CurrentLimit,
    law: Law,
    packets: VecDeque<P>,
    backlog: Backlog,
}

impl<P: Packet> Red<P> {
    /// An empty queue.
    pub fn new(params: RedParams) -> Self {
        let (packets, backlog) = (VecDeque::new(), Backlog::default());
        let limit = CurrentLimit::new(params.limit);
        Self { law: Law::new(&params), limit, params, packets, backlog }
    }

    /// The queue in the unit of the thresholds.
    fn length(&self) -> u64 {
        match self.params.min_th {
            Limit::Packets(_) => self.backlog.packets,
            Limit::Bytes(_) | Limit::Time(_) => self.backlog.bytes.as_u64(),
        }
    }

    fn may_mark(&self, reason: DropReason) -> bool {
        self.params.ecn && !(self.params.harddrop && reason == DropReason::Forced)
    }
}

impl<P: Packet> Qdisc<P> for Red<P> {
    fn enqueue(&mut self, now: Timestamp, mut packet: P, drops: &mut dyn DropSink<P>) {
        self.law.sample(now, self.length());
        let is_full = self.limit.is_exceeded(self.backlog.with(packet.len()));
        let judged = match (self.params.as_ns3, is_full) {
            (true, _) => self.law.judge_as_ns3(self.length(), packet.len().as_u64()),
            (false, true) => None,
            (false, false) => self.law.judge(),
        };
        if let Some(reason) = judged
            && !(self.may_mark(reason) && mark(&mut packet, reason, drops))
        {
            return drops.dropped(packet, reason);
        }
        if is_full {
            return drops.dropped(packet, DropReason::Overlimit);
        }
        self.law.idle_since = None;
        self.backlog.add(packet.len());
        self.packets.push_back(packet);
    }

    fn dequeue(&mut self, now: Timestamp, _drops: &mut dyn DropSink<P>) -> Option<P> {
        let packet = self.packets.pop_front();
        if let Some(packet) = &packet {
            self.backlog.remove(packet.len());
        }
        // ns-3 notices an empty queue when it is asked again.
        if self.packets.is_empty() && packet.is_none() == self.params.as_ns3 {
            self.law.idle_since = Some(now);
        }
        packet
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
