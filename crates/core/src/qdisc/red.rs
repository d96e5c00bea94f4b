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
//! two drops uniform from 1 to 1/p - 1 arrivals, so that about 2 p of them are given up.
//!
//! Departures:
//! - an arrival at an empty queue counts in the average as well (m + 1 instead of m, as in ns-3):
//!   otherwise the average at weight 1 would never forget;
//! - in bytes the probability does not depend on the length of the packet, as in Linux;
//! - what does not fit is dropped before it could be marked, and is no sample of the spacing.
//!
//! Ranges: the average is a multiple of 2^-32 of its unit, exact within 0.001 at a weight of 1e-6.

use alloc::collections::VecDeque;

use crate::packet::Packet;
use crate::qdisc::params::{self, LIMIT_ALLOWED, RANDOM_SEED};
use crate::qdisc::{Backlog, Discipline, DropReason, DropSink, Qdisc, mark};
use crate::random::{Stream, Streams};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Duration, Limit, Rate, Ratio, Timestamp};

/// 1 in fixed point.
const ONE: u64 = 1 << FRACTION_BITS;
const FRACTION_BITS: u32 = 32;
/// Packets that an idle link could have sent are of this length (tc-red(8): `avpkt`).
const MEAN_PACKET: ByteCount = ByteCount::new(1000);
const SHARE_ALLOWED: &str = "a share from 0.000001 to 1";
const SHARE_MIN: f64 = 1e-6;
const MAX_TH_ALLOWED: &str = "as many packets as min_th or more, or bytes if min_th is bytes";
const BANDWIDTH_ALLOWED: &str = "a rate, 1kbit/s to 1Tbit/s";

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
        Param {
            name: "limit",
            summary: "what the queue holds",
            default: "1000p",
            allowed: LIMIT_ALLOWED,
        },
        Param {
            name: "min_th",
            summary: "average below which nothing is given up (section 6: 5 packets)",
            default: "5p",
            allowed: LIMIT_ALLOWED,
        },
        Param {
            name: "max_th",
            summary: "average from which all is given up; more than 2 min_th, or min_th for a step",
            default: "15p",
            allowed: MAX_TH_ALLOWED,
        },
        Param {
            name: "max_p",
            summary: "probability at max_th (section 6: 1/50)",
            default: "0.02",
            allowed: SHARE_ALLOWED,
        },
        Param {
            name: "weight",
            summary: "weight of the queue in its average (section 6: 0.002; 1: no average)",
            default: "0.002",
            allowed: SHARE_ALLOWED,
        },
        Param {
            name: "gentle",
            summary: "from max_th to 2 max_th the probability rises to 1",
            default: "false",
            allowed: "true or false",
        },
        Param {
            name: "bandwidth",
            summary: "rate at which the average falls on an idle link (tc-red(8): 10 Mbit/s)",
            default: "10Mbit/s",
            allowed: BANDWIDTH_ALLOWED,
        },
        Param {
            name: "ecn",
            summary: "mark ECN-capable packets instead of dropping them",
            default: "false",
            allowed: "true or false",
        },
        Param {
            name: "harddrop",
            summary: "drop them all the same where all is given up",
            default: "false",
            allowed: "true or false",
        },
        RANDOM_SEED,
    ],
};

/// Parameters of [`Red`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedParams {
    /// What the queue holds.
    pub limit: Limit,
    /// Average below which nothing is given up.
    pub min_th: Limit,
    /// Average from which all is given up, at least `min_th` and in its unit.
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
    /// Drop them all the same where all is given up.
    pub harddrop: bool,
    /// Seed of the draws.
    pub seed: u64,
}

impl RedParams {
    pub(super) fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        let min_th = params::limit(spec, "min_th")?;
        let max_th = params::limit(spec, "max_th")?;
        let is_ordered = match (min_th, max_th) {
            (Limit::Packets(min), Limit::Packets(max)) => min <= max,
            (Limit::Bytes(min), Limit::Bytes(max)) => min <= max,
            _ => false,
        };
        if !is_ordered {
            return Err(params::refused(spec, "max_th", MAX_TH_ALLOWED));
        }
        Ok(Self {
            limit: params::limit(spec, "limit")?,
            min_th,
            max_th,
            max_p: share(spec, "max_p")?,
            weight: share(spec, "weight")?,
            gentle: params::switch(spec, "gentle")?,
            bandwidth: bandwidth(spec)?,
            ecn: params::switch(spec, "ecn")?,
            harddrop: params::switch(spec, "harddrop")?,
            seed: params::seed(spec)?,
        })
    }
}

fn share(spec: &Spec, name: &str) -> Result<Ratio, SpecError> {
    let share = params::ratio(spec, name)?;
    let is_allowed = share.as_f64() >= SHARE_MIN;
    if is_allowed { Ok(share) } else { Err(params::refused(spec, name, SHARE_ALLOWED)) }
}

fn bandwidth(spec: &Spec) -> Result<Rate, SpecError> {
    let bandwidth = params::given(spec, "bandwidth", spec.rate("bandwidth"))?;
    let range = Rate::from_bits_per_sec(1000)..=Rate::from_mbit_per_sec(1_000_000);
    let is_allowed = range.contains(&bandwidth);
    let refused = || params::refused(spec, "bandwidth", BANDWIDTH_ALLOWED);
    if is_allowed { Ok(bandwidth) } else { Err(refused()) }
}

/// The average and what follows from it. Lengths and shares are multiples of 1 / [`ONE`].
struct Law {
    min_th: u64,
    max_th: u64,
    max_p: u64,
    weight: u64,
    gentle: bool,
    /// Time of a packet on the link.
    packet_time: Duration,
    average: u64,
    /// Since when the queue has been empty.
    idle_since: Option<Timestamp>,
    /// Arrivals since one was given up, `None` below `min_th`.
    count: Option<u64>,
    random: Stream,
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
            packet_time: MEAN_PACKET.time_at(params.bandwidth).unwrap_or(Duration::MAX),
            average: 0,
            idle_since: None,
            count: None,
            random: Streams::new(params.seed).stream("red"),
        }
    }

    /// An arrival finds a queue of `length`.
    fn sample(&mut self, now: Timestamp, length: u64) {
        let idle = self.idle_since.map_or(Duration::ZERO, |since| now.saturating_since(since));
        let missed = (idle.as_nanos() / self.packet_time.as_nanos()) as u64;
        let kept = power(ONE - self.weight, missed.saturating_add(1));
        self.average =
            product(self.average, kept).saturating_add(self.weight.saturating_mul(length));
        self.idle_since = (length == 0).then_some(now);
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
    law: Law,
    packets: VecDeque<P>,
    backlog: Backlog,
}

impl<P: Packet> Red<P> {
    /// An empty queue.
    pub fn new(params: RedParams) -> Self {
        let (packets, backlog) = (VecDeque::new(), Backlog::default());
        Self { law: Law::new(&params), params, packets, backlog }
    }

    pub(super) fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        Ok(Self::new(RedParams::from_spec(spec)?))
    }

    /// The queue in the unit of the thresholds.
    fn length(&self) -> u64 {
        match self.params.min_th {
            Limit::Packets(_) => self.backlog.packets,
            Limit::Bytes(_) => self.backlog.bytes.as_u64(),
        }
    }

    fn may_mark(&self, reason: DropReason) -> bool {
        self.params.ecn && !(self.params.harddrop && reason == DropReason::Forced)
    }
}

impl<P: Packet> Qdisc<P> for Red<P> {
    fn enqueue(&mut self, now: Timestamp, mut packet: P, drops: &mut dyn DropSink<P>) {
        self.law.sample(now, self.length());
        if self.backlog.with(packet.len()).exceeds(self.params.limit) {
            return drops.dropped(packet, DropReason::Overlimit);
        }
        if let Some(reason) = self.law.judge()
            && !(self.may_mark(reason) && mark(&mut packet, reason, drops))
        {
            return drops.dropped(packet, reason);
        }
        self.law.idle_since = None;
        self.backlog.add(packet.len());
        self.packets.push_back(packet);
    }

    fn dequeue(&mut self, now: Timestamp, _drops: &mut dyn DropSink<P>) -> Option<P> {
        let packet = self.packets.pop_front()?;
        self.backlog.remove(packet.len());
        if self.packets.is_empty() {
            self.law.idle_since = Some(now);
        }
        Some(packet)
    }

    fn next_timer(&self) -> Option<Timestamp> {
        self.backlog.ready()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Ecn;
    use crate::testing::qdisc::{Dropped, TestPacket};
    use alloc::vec::Vec;

    fn params() -> RedParams {
        RedParams::from_spec(&Spec::named("red").with_defaults(DISCIPLINE.params)).unwrap()
    }

    fn ratio(share: f64) -> Ratio {
        Ratio::new(share).unwrap()
    }

    fn real(fixed: u64) -> f64 {
        fixed as f64 / ONE as f64
    }

    /// One arrival with the field `ecn`; what the queue told.
    fn arrive(red: &mut Red<TestPacket>, ecn: Ecn) -> Dropped {
        let mut drops = Dropped::default();
        red.enqueue(Timestamp::ZERO, TestPacket { ecn, ..TestPacket::default() }, &mut drops);
        drops
    }

    #[test]
    fn a_burst_of_100_packets_raises_the_average_to_4_88() {
        // Section 6, equation 3: avg = L + 1 + ((1 - w)^(L + 1) - 1) / w.
        let mut law = Law::new(&RedParams { weight: ratio(0.001), ..params() });
        (0..=100).for_each(|length| law.sample(Timestamp::ZERO, length));
        assert!((real(law.average) - 4.88).abs() < 0.01, "{}", real(law.average));
    }

    #[test]
    fn an_idle_link_forgets_as_if_it_had_sent_small_packets() {
        // 1000 bytes at 8 Mbit/s are 1 ms.
        let mut law = Law::new(&RedParams { bandwidth: Rate::from_mbit_per_sec(8), ..params() });
        law.average = 10 << FRACTION_BITS;
        law.idle_since = Some(Timestamp::ZERO);
        law.sample(Timestamp::ZERO + Duration::from_millis(100), 0);
        let expected = 10.0 * libm::pow(0.998, 101.0);
        assert!((real(law.average) - expected).abs() < 1e-4, "{}", real(law.average));
        law.sample(Timestamp::MAX, 0);
        assert_eq!(law.average, 0);
    }

    #[test]
    fn the_probability_is_linear_between_the_thresholds_and_gentle_above() {
        let params = RedParams { max_p: ratio(0.1), ..params() };
        let at = |gentle, average: f64| {
            let mut law = Law::new(&RedParams { gentle, ..params });
            law.average = (average * ONE as f64) as u64;
            law
        };
        for (average, expected) in
            [(5.0, 0.0), (6.0, 0.01), (10.0, 0.05), (14.0, 0.09), (15.0, 0.1), (22.5, 0.55)]
        {
            let found = real(at(true, average).probability());
            assert!((found - expected).abs() < 1e-6, "{found} at {average}");
        }
        assert_eq!(at(false, 4.99).judge(), None);
        assert_eq!(at(false, 15.0).judge(), Some(DropReason::Forced));
        assert_eq!(at(true, 30.0).judge(), Some(DropReason::Forced));
        assert_ne!(at(true, 29.9).judge(), Some(DropReason::Forced));
    }

    #[test]
    fn distances_of_drops_are_uniform_up_to_one_over_the_probability() {
        // No average: 10 packets stand, so that p = 0.1 x 5 / 10 = 1 / 20.
        let mut red =
            Red::new(RedParams { weight: Ratio::ONE, max_p: ratio(0.1), seed: 1, ..params() });
        while red.backlog().packets < 10 {
            arrive(&mut red, Ecn::NotEct);
        }
        let (mut distance, mut counts) = (0, [0_u32; 20]);
        for _ in 0..100_000 {
            distance += 1;
            let drops = arrive(&mut red, Ecn::NotEct);
            if drops.reasons() == [DropReason::Early] {
                counts[distance] += 1;
                distance = 0;
            } else {
                red.dequeue(Timestamp::ZERO, &mut Dropped::default());
            }
        }
        // 1 to 19, ten on average: 10,000 drops, 526 at each distance within 5 standard errors.
        assert!((9_700..10_300).contains(&counts.iter().sum::<u32>()), "{counts:?}");
        assert!(counts[1..].iter().all(|count| (411..641).contains(count)), "{counts:?}");
    }

    #[test]
    fn an_overload_settles_where_the_average_drops_its_share() {
        let thresholds = RedParams {
            min_th: Limit::Packets(20),
            max_th: Limit::Packets(60),
            max_p: ratio(0.5),
            ..params()
        };
        let mut red = Red::new(thresholds);
        let (mut dropped, mut average) = (0, 0.0);
        for arrival in 0..100_000 {
            // Five arrivals for four departures: a fifth is too much.
            if arrival % 5 != 0 {
                red.dequeue(Timestamp::ZERO, &mut Dropped::default());
            }
            let drops = arrive(&mut red, Ecn::NotEct);
            if arrival >= 20_000 {
                dropped += drops.packets.len();
                average += real(red.law.average) / 80_000.0;
            }
        }
        assert!((15_800..16_200).contains(&dropped), "{dropped}");
        // A fifth is 2 p, so p = 0.1 = 0.5 x (avg - 20) / 40.
        assert!((average - 28.0).abs() < 1.0, "{average}");
    }

    /// The step of DCTCP at 20 packets.
    fn step() -> RedParams {
        let threshold = Limit::Packets(20);
        let limit = Limit::Packets(30);
        RedParams {
            limit,
            min_th: threshold,
            max_th: threshold,
            weight: Ratio::ONE,
            ecn: true,
            ..params()
        }
    }

    #[test]
    fn a_step_marks_every_arrival_that_finds_its_length_and_drops_none() {
        let mut red = Red::new(step());
        let told: Vec<Dropped> = (0..31).map(|_| arrive(&mut red, Ecn::Ect0)).collect();
        for (found, drops) in told.iter().enumerate() {
            let marks: &[DropReason] =
                if (20..30).contains(&found) { &[DropReason::Forced] } else { &[] };
            assert_eq!(drops.marks, marks, "{found} waited");
            let dropped: &[DropReason] = if found < 30 { &[] } else { &[DropReason::Overlimit] };
            assert_eq!(drops.reasons(), dropped, "{found} waited");
        }
        let sent = || red.dequeue(Timestamp::ZERO, &mut Dropped::default());
        let fields: Vec<Ecn> = core::iter::from_fn(sent).map(|packet| packet.ecn).collect();
        assert_eq!(fields, [[Ecn::Ect0; 10], [Ecn::Ect0; 10], [Ecn::Ce; 10]].concat());
        // The average is the queue: nothing of it is left in an empty one.
        assert!(arrive(&mut red, Ecn::Ect0).marks.is_empty());
    }

    #[test]
    fn what_cannot_or_must_not_be_marked_is_dropped() {
        let filled = |params| {
            let mut red = Red::new(params);
            (0..20).for_each(|_| assert!(arrive(&mut red, Ecn::NotEct).packets.is_empty()));
            red
        };
        let forced = [DropReason::Forced];
        assert_eq!(arrive(&mut filled(step()), Ecn::NotEct).reasons(), forced);
        let hard = RedParams { harddrop: true, ..step() };
        assert_eq!(arrive(&mut filled(hard), Ecn::Ect0).reasons(), forced);
        let deaf = RedParams { ecn: false, ..step() };
        assert_eq!(arrive(&mut filled(deaf), Ecn::Ect0).reasons(), forced);
    }

    #[test]
    fn lengths_are_bytes_where_the_thresholds_are() {
        let threshold = Limit::Bytes(ByteCount::new(3000));
        let mut red = Red::new(RedParams { min_th: threshold, max_th: threshold, ..step() });
        let marks = |red: &mut Red<TestPacket>| arrive(red, Ecn::Ect0).marks.len();
        // Packets of 1514 bytes: the third finds 3028.
        assert_eq!([marks(&mut red), marks(&mut red), marks(&mut red)], [0, 0, 1]);
    }

    #[test]
    fn thresholds_of_two_units_or_in_the_wrong_order_are_refused() {
        for (min_th, max_th) in [("5p", "4p"), ("5p", "15KB"), ("15KB", "20p")] {
            let spec = alloc::format!("red(min_th={min_th}, max_th={max_th})").parse();
            let spec: Spec = spec.unwrap();
            let error = RedParams::from_spec(&spec.with_defaults(DISCIPLINE.params)).unwrap_err();
            assert_eq!(error.key, "max_th");
        }
    }
}
