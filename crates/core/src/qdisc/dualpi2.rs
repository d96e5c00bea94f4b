//! Dual-queue coupled AQM with a proportional integral controller improved with a square. L4S and classic
//! packets have a queue each. One controller drives the marks of one queue and the drops of the other, so
//! that flows of both kinds get about the same each.
//!
//! ```text
//! ECT(1), CE      -> L queue : marked behind `step_thresh`, else with p_L = k p'        ─┐ by weighted
//! ECT(0), Not-ECT -> C queue : signal with p_C = p'^2: marked if ECN-capable, or dropped ─┘ round robin
//!
//! each tupdate : p' += alpha x (d - target) + beta x (d - d_old);  d_old = d;  0 <= p' <= 1
//! overload     : where k p' > 1, p_C drops packets of both queues, ECN-capable or not, and the rest of L4S
//!                is marked; without `drop_on_overload` p' ends at 1 / k, and only the limit drops these
//! round robin  : while both queues wait, C goes where the credit is above 0, else L;
//!                credit += share x bytes of L, or -= (1 - share) x bytes of C
//! ```
//! d is the longer of the times for which the heads of the queues have waited. So p_C = (p_L / k)^2: rates of
//! scalable flows go by 1 / p. Rates of Reno, and of Cubic where that follows Reno, go by 1 / sqrt(p). Both
//! draw as a packet leaves, and not while less than two full packets stay behind it. The last packet of the L
//! queue has no step to pass: on a slow link it may have waited for no more than the packet being sent.
//!
//! Sources: RFC 9332, sections 2.1 and 2.4 (coupling, k = 2) and appendix A, with the last packet's exemption
//! in A.2; Linux net/sched/sch_dualpi2.c for the step instead of the ramp of appendix A.1 (from 800 us to 1.2
//! ms), the round robin, the two packets, and drops as packets leave. tc-dualpi2(8) for the names.
//!
//! Defaults are Linux's. Appendix A.1 has the same values for the controller, for round trips of up to 100
//! ms; its formulas give a `tupdate` of 15 ms and gains of 0.15 and 3 Hz. The limit there is 250 ms of the
//! link's rate, and the C queue's share a sixteenth for example.
//!
//! Departures:
//! - there is no timer, as in [`super::pie`]: the next arrival or departure runs the due updates, with the
//!   time for which the heads had waited when each was due;
//! - p_C is drawn at once, and not by two draws of p' (Linux). Marks of L4S are drawn by chance, too, as in
//!   Linux; appendix A spaces them evenly (recur);
//! - Linux looks for the step's last packet as a packet arrives, and by default exempts none (min_qlen_step);
//! - Linux bounds the memory of both queues, too (memlimit);
//! - Linux can draw as packets arrive, count the step in packets, and take ECT(0) into the L queue.
//!
//! Ranges: probabilities are floats from 0 to 1, times are whole nanoseconds.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::packet::Packet;
use crate::qdisc::limit::CurrentLimit;
use crate::qdisc::marking::is_l4s;
use crate::qdisc::params::{Holding, MTU, RANDOM_SEED};
use crate::qdisc::periods::Periods;
use crate::qdisc::pool::Queued;
use crate::qdisc::{Backlog, Built, Discipline, DropReason, DropSink, Qdisc, mark};
use crate::random::{Stream, Streams};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Duration, Limit, Rate, Ratio, Timestamp};

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "dualpi2",
    summary: "one queue for L4S and one for other traffic; one controller couples their marks and \
              drops",
    sources: &["RFC 9332", "Linux net/sched/sch_dualpi2.c"],
    params: &[
        &LIMIT,
        &TARGET,
        &TUPDATE,
        &ALPHA,
        &BETA,
        &COUPLING_FACTOR,
        &STEP_THRESH,
        &CLASSIC_PROTECTION,
        &DROP_ON_OVERLOAD,
        &RANDOM_SEED,
    ],
};

pub(super) fn build<P: Packet + Send + 'static>(spec: &Spec, _levels: usize) -> Built<P> {
    Ok(Box::new(DualPi2::from_spec(spec)?))
}

/// Packets, bytes or time of both queues together; arrivals beyond it are dropped.
const LIMIT: Param<Holding> =
    Param::new("limit", "capacity of both queues together (Linux: 10000 packets)")
        .or(Holding(Limit::Packets(10_000)));
/// Queueing delay of classic traffic (RFC 9332, appendix A.1). A lower one costs utilization.
const TARGET: Param<Duration> =
    Param::new("target", "delay to hold in the C queue (RFC 9332 appendix A.1)")
        .or(Duration::from_millis(15))
        .within(Duration::from_micros(100)..=Duration::from_secs(1));
/// Interval of the controller (Linux: 16 ms). The gains are set for it.
const TUPDATE: Param<Duration> =
    Param::new("tupdate", "time between changes of the probability (Linux: 16 ms)")
        .or(Duration::from_millis(16))
        .within(Duration::from_millis(1)..=Duration::from_secs(1));
/// Integral gain in Hz (RFC 9332, appendix A.1). A larger one reaches the target faster and
/// oscillates earlier.
const ALPHA: Param<f64> =
    Param::new("alpha", "gain on the distance from the target, in Hz (Linux: 0.16)")
        .or(0.16)
        .within(0.0..=100.0);
/// Proportional gain in Hz (RFC 9332, appendix A.1). A larger one damps more, up to instability.
const BETA: Param<f64> = Param::new("beta", "gain on the change of the delay, in Hz (Linux: 3.2)")
    .or(3.2)
    .within(0.0..=100.0);
/// Coupling factor k (RFC 9332, section 2.1). A larger one marks L4S traffic more.
const COUPLING_FACTOR: Param<f64> = Param::new(
    "coupling_factor",
    "k: ratio of the L4S marking probability to the root of the drop probability",
)
.or(2.0)
.within(1.0..=255.0);
/// Step threshold of the L queue (Linux: 1 ms).
const STEP_THRESH: Param<Duration> =
    Param::new("step_thresh", "time in the L queue above which its packets are marked")
        .or(Duration::from_millis(1))
        .within(Duration::from_micros(10)..=Duration::from_secs(1));
/// Guaranteed share of the C queue (Linux: 10 %).
const CLASSIC_PROTECTION: Param<Ratio> =
    Param::new("classic_protection", "share of the bytes that the C queue is guaranteed")
        .or(Ratio::new(0.1).unwrap());
/// Overload drops L4S packets too (Linux default). Without it, only the limit drops them.
const DROP_ON_OVERLOAD: Param<bool> =
    Param::new("drop_on_overload", "also drop L4S packets where marks are not enough").or(true);

/// The controller of both queues.
struct Law {
    target: Duration,
    /// Gain on the distance from the target, in Hz.
    alpha: f64,
    /// Gain on the change of the delay, in Hz.
    beta: f64,
    /// The coupling factor k between the probabilities of both queues.
    coupling: f64,
    /// Greatest p', 0 to 1.
    most: f64,
    /// p', 0 to `most`.
    base: f64,
    /// Delay at the last update.
    delay_old: Duration,
}

impl Law {
    fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        let coupling = COUPLING_FACTOR.of(spec)?;
        Ok(Self {
            target: TARGET.of(spec)?,
            alpha: ALPHA.of(spec)?,
            beta: BETA.of(spec)?,
            coupling,
            most: if DROP_ON_OVERLOAD.of(spec)? { 1.0 } else { 1.0 / coupling },
            base: 0.0,
            delay_old: Duration::ZERO,
        })
    }

    /// Updates p' each `tupdate`.
    fn update(&mut self, delay: Duration) {
        let [now, old, target] =
            [delay, self.delay_old, self.target].map(|time| time.as_secs_f64());
        let step = self.alpha * (now - target) + self.beta * (now - old);
        self.base = (self.base + step).clamp(0.0, self.most);
        self.delay_old = delay;
    }

    /// The classic queue's probability of a drop or mark, p_C.
    fn squared(&self) -> f64 {
        self.base * self.base
    }

    /// p_L; above 1 in overload.
    fn coupled(&self) -> f64 {
        self.coupling * self.base
    }
}

/// Two queues with coupled marks and drops.
pub struct DualPi2<P> {
    limit: CurrentLimit,
    law: Law,
    step_thresh: Duration,
    classic_share: f64,
    random: Stream,
    updates: Periods,
    tupdate: Duration,
    l4s: VecDeque<Queued<P>>,
    classic: VecDeque<Queued<P>>,
    backlog: Backlog,
    /// If above 0 the C queue goes first, in bytes.
    credit: f64,
}

impl<P: Packet> DualPi2<P> {
    fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        let tupdate = TUPDATE.of(spec)?;
        let classic_share = CLASSIC_PROTECTION.of(spec)?.as_f64();
        Ok(Self {
            limit: CurrentLimit::new(LIMIT.of(spec)?.0),
            law: Law::from_spec(spec)?,
            step_thresh: STEP_THRESH.of(spec)?,
            classic_share,
            random: Streams::new(RANDOM_SEED.of(spec)?).stream("dualpi2"),
            updates: Periods::new(tupdate),
            tupdate,
            l4s: VecDeque::new(),
            classic: VecDeque::new(),
            backlog: Backlog::default(),
            credit: initial_credit(classic_share),
        })
    }

    /// Makes the updates that are due at `now`.
    fn update(&mut self, now: Timestamp) {
        for at in self.updates.due(now, now + self.tupdate) {
            let heads = [self.l4s.front(), self.classic.front()].into_iter().flatten();
            let waited = heads.map(|head| at.saturating_since(head.enqueued)).max();
            self.law.update(waited.unwrap_or_default());
        }
    }

    /// Whether a packet about to leave the L queue may leave. If a mark is due, it leaves marked.
    fn passes_l4s(
        &mut self,
        now: Timestamp,
        queued: &mut Queued<P>,
        drops: &mut dyn DropSink<P>,
    ) -> bool {
        let is_late = now.saturating_since(queued.enqueued) > self.step_thresh;
        let may_draw = self.may_draw();
        let is_overload = self.law.coupled() > 1.0;
        if may_draw && is_overload && self.random.chance(self.law.squared()) {
            return false;
        }
        if may_draw && self.random.chance(self.law.coupled()) {
            mark(&mut queued.packet, DropReason::Early, drops);
        } else if is_late && !self.l4s.is_empty() {
            mark(&mut queued.packet, DropReason::Forced, drops);
        }
        true
    }

    /// Whether a packet about to leave the C queue may leave, marked or not.
    fn passes_classic(&mut self, packet: &mut P, drops: &mut dyn DropSink<P>) -> bool {
        let is_drawn = self.may_draw() && self.random.chance(self.law.squared());
        let is_overload = self.law.coupled() > 1.0;
        !is_drawn || (!is_overload && mark(packet, DropReason::Early, drops))
    }

    /// Whether the packets that stay behind are a queue.
    fn may_draw(&self) -> bool {
        self.backlog.bytes >= ByteCount::new(2 * MTU)
    }
}

/// Credit with which the queue of the greater share begins.
fn initial_credit(classic_share: f64) -> f64 {
    MTU as f64 * (2.0 * classic_share - 1.0)
}

impl<P: Packet> Qdisc<P> for DualPi2<P> {
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        self.update(now);
        if self.limit.is_exceeded(self.backlog.with(packet.len())) {
            return drops.dropped(packet, DropReason::Overlimit);
        }
        self.backlog.add(packet.len());
        let queue = if is_l4s(&packet) { &mut self.l4s } else { &mut self.classic };
        queue.push_back(Queued { packet, enqueued: now });
    }

    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P> {
        self.update(now);
        loop {
            let both_wait = !self.l4s.is_empty() && !self.classic.is_empty();
            let is_l4s = self.classic.is_empty() || (both_wait && self.credit <= 0.0);
            let queue = if is_l4s { &mut self.l4s } else { &mut self.classic };
            let Some(mut queued) = queue.pop_front() else {
                self.credit = initial_credit(self.classic_share);
                return None;
            };
            let len = queued.packet.len();
            self.backlog.remove(len);
            let passes = if is_l4s {
                self.passes_l4s(now, &mut queued, drops)
            } else {
                self.passes_classic(&mut queued.packet, drops)
            };
            if !passes {
                drops.dropped(queued.packet, DropReason::Early);
                continue;
            }
            if both_wait {
                let share = if is_l4s { self.classic_share } else { self.classic_share - 1.0 };
                self.credit += share * len.as_f64();
            }
            return Some(queued.packet);
        }
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn set_service_rate(&mut self, rate: Option<Rate>) {
        self.limit.set_rate(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Ecn;
    use crate::spec::Value;
    use crate::testing::qdisc::{Dropped, TestPacket};

    fn queue(params: &[(&str, &str)]) -> DualPi2<TestPacket> {
        let spec = params.iter().fold(Spec::named("dualpi2"), |spec, (name, text)| {
            spec.with(name, Value::Text((*text).into()))
        });
        DualPi2::from_spec(&spec.with_defaults(DISCIPLINE.params)).unwrap()
    }

    fn packet(ecn: Ecn) -> TestPacket {
        TestPacket { ecn, ..TestPacket::default() }
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    /// Shares of packets of this kind that were dropped and marked while p' was `base`; time stands still.
    fn fates(queue: &mut DualPi2<TestPacket>, base: f64, ecn: Ecn) -> [f64; 2] {
        queue.law.base = base;
        let mut drops = Dropped::default();
        let sent = 50_000;
        for _ in 0..sent {
            while queue.backlog().packets < 100 {
                queue.enqueue(Timestamp::ZERO, packet(ecn), &mut drops);
            }
            queue.dequeue(Timestamp::ZERO, &mut drops).unwrap();
        }
        let [dropped, marked] = [drops.packets.len(), drops.marks.len()].map(|it| it as f64);
        [dropped / (dropped + f64::from(sent)), marked / (dropped + f64::from(sent))]
    }

    /// Within five standard deviations and more of the draws.
    #[track_caller]
    fn assert_near(found: [f64; 2], expected: [f64; 2]) {
        let is_near = |(found, expected): (&f64, &f64)| (found - expected).abs() < 0.012;
        assert!(found.iter().zip(&expected).all(is_near), "{found:?} and not {expected:?}");
    }

    #[test]
    fn classic_drops_are_squared_l4s_marks_over_k() {
        for (coupling, base) in [("2", 0.4), ("3.5", 0.25)] {
            let fates = |ecn| fates(&mut queue(&[("coupling_factor", coupling)]), base, ecn);
            let p_l = base * coupling.parse::<f64>().unwrap();
            assert_near(fates(Ecn::Ect1), [0.0, p_l]);
            assert_near(fates(Ecn::NotEct), [base * base, 0.0]);
            assert_near(fates(Ecn::Ect0), [0.0, base * base]);
        }
    }

    #[test]
    fn overload_drops_ecn_packets_unless_switched_off() {
        let drops = |ecn| fates(&mut queue(&[]), 0.8, ecn);
        assert_near(drops(Ecn::Ect1), [0.64, 0.36]);
        assert_near(drops(Ecn::Ect0), [0.64, 0.0]);
        assert_near(drops(Ecn::NotEct), [0.64, 0.0]);
        let spares = |ecn| {
            let mut queue = queue(&[("drop_on_overload", "false")]);
            queue.law.update(Duration::from_secs(10));
            let most = queue.law.base;
            fates(&mut queue, most, ecn)
        };
        assert_near(spares(Ecn::Ect1), [0.0, 1.0]);
        assert_near(spares(Ecn::Ect0), [0.0, 0.25]);
        assert_near(spares(Ecn::NotEct), [0.25, 0.0]);
    }

    #[test]
    fn l4s_is_marked_above_step_except_last_packet() {
        for (ecn, marked) in [(Ecn::Ect1, [false, true, false]), (Ecn::Ect0, [false; 3])] {
            let mut queue = queue(&[]);
            let mut drops = Dropped::default();
            for _ in 0..3 {
                queue.enqueue(Timestamp::ZERO, packet(ecn), &mut drops);
            }
            for (millis, is_marked) in [1, 2, 3].into_iter().zip(marked) {
                let out = queue.dequeue(at(millis), &mut drops).unwrap();
                assert_eq!(out.ecn == Ecn::Ce, is_marked, "{ecn:?} after {millis} ms");
            }
            assert!(drops.marks.iter().all(|reason| *reason == DropReason::Forced));
        }
    }

    #[test]
    fn neither_queue_starves_and_l4s_goes_first() {
        for (share, first, classic) in [("10%", Ecn::Ect1, 0.1), ("60%", Ecn::NotEct, 0.6)] {
            let mut queue = queue(&[("classic_protection", share)]);
            let mut drops = Dropped::default();
            let mut bytes = [0.0; 2];
            for turn in 0..5000 {
                // Classic packets are half as long as packets of L4S.
                for (ecn, len) in [(Ecn::NotEct, 757), (Ecn::Ect1, 1514)] {
                    let packet = TestPacket { len: ByteCount::new(len), ..packet(ecn) };
                    queue.enqueue(Timestamp::ZERO, packet, &mut drops);
                }
                let out = queue.dequeue(Timestamp::ZERO, &mut drops).unwrap();
                assert!(turn > 0 || out.ecn == first, "{out:?}");
                bytes[usize::from(out.ecn == Ecn::Ect1)] += out.len.as_f64();
            }
            let found = bytes[0] / (bytes[0] + bytes[1]);
            assert!((found - classic).abs() < 0.001, "{found} of the bytes are classic");
        }
    }

    #[test]
    fn late_updates_match_those_of_a_timer() {
        let [mut once, mut often] = [(); 2].map(|()| queue(&[]));
        for queue in [&mut once, &mut often] {
            queue.enqueue(Timestamp::ZERO, packet(Ecn::NotEct), &mut Dropped::default());
        }
        (1..=48).for_each(|millis| often.update(at(millis)));
        once.update(at(48));
        assert_eq!(once.law.base, often.law.base);
        // The head has waited for 16, 32 and 48 ms: 0.16 Hz x (1 + 17 + 33) ms + 3.2 Hz x 3 x 16 ms.
        assert!((once.law.base - 0.161_76).abs() < 1e-9, "{}", once.law.base);
    }

    #[test]
    fn constant_overload_is_held_at_target_by_drops() {
        let mut queue = queue(&[("seed", "1")]);
        let mut drops = Dropped::default();
        let (mut arrivals, mut delays) = (0, alloc::vec::Vec::new());
        // Three arrivals for two departures: a third is too much.
        for tick in 1..750_000_u64 {
            let now = Timestamp::from_nanos(tick * 40_000);
            if now == at(10_000) {
                (drops, arrivals) = (Dropped::default(), 0);
            }
            if tick.is_multiple_of(2) {
                arrivals += 1;
                queue.enqueue(now, packet(Ecn::NotEct), &mut drops);
            }
            if tick.is_multiple_of(3) {
                let head = queue.classic.front().filter(|_| now > at(10_000));
                delays.extend(head.map(|head| now.saturating_since(head.enqueued).as_secs_f64()));
                queue.dequeue(now, &mut drops);
            }
        }
        let mean_ms = delays.iter().sum::<f64>() / delays.len() as f64 * 1e3;
        assert!((14.0..16.0).contains(&mean_ms), "{mean_ms} ms");
        let share = drops.packets.len() as f64 / f64::from(arrivals);
        assert!((share - 1.0 / 3.0).abs() < 0.01, "{share} of the arrivals are dropped");
    }
}
