//! ECN marks of disciplines that otherwise only drop when they are full.
//!
//! ```text
//! `l4s`, ECT(1) or CE     : marked if the packet stood there for longer than the step
//! `ecn`, any other ECT    : marked if the buffer, the packet included, held more than `mark` and the packet's
//!                           queue was the longest; a `mark` in time: if the packet stood there for longer
//! Not-ECT                 : never
//! ```
//! A full buffer takes from the longest queue, so only flows that would lose packets are marked before. The
//! buffer counts and not the queue of the flow: where many flows share a full buffer, none of their queues is
//! long. A flow that loses packets to the `depth` of sfq alone is not warned. Packets are marked as they
//! leave, so the sender hears of a mark earlier by the time that a packet stands in the queue.
//!
//! Sources: RFC 3168 section 5; RFC 9331 section 5.1 for the packets of L4S; RFC 9332 appendix A.1, with its
//! ramp from 0.8 to 1.2 ms as a step here, as in Linux net/sched/sch_dualpi2.c, and coupled to nothing.

use alloc::string::String;

use crate::packet::{Ecn, Packet};
use crate::qdisc::limit::CurrentLimit;
use crate::qdisc::params::{ECN, Holding};
use crate::qdisc::pool::Queued;
use crate::qdisc::{Backlog, DropReason, DropSink, mark};
use crate::spec::{Param, Quantity, Spec, SpecError};
use crate::units::{ByteCount, Duration, Limit, Timestamp};

/// The parameter for the unmarked backlog.
pub(super) const MARK: Param<Mark> = Param::new(
    "mark",
    "queue length above which packets of the longest queue are marked; by default half the limit",
)
.also(", with ecn and below the limit");
/// The parameter of the step. Without it nothing is marked by the step.
pub(super) const L4S: Param<Duration> =
    Param::new("l4s", "time in the queue above which packets of L4S are marked (dualpi2: 1ms)")
        .within(Duration::from_micros(10)..=Duration::from_secs(1));

/// Type of the parameter `mark`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct Mark(Limit);

impl Quantity for Mark {
    /// A value of `mark`.
    const WHAT: &'static str = "1p to 1000000p, 1514B to 1GB, or 1ms to 10s in the queue";
    fn read(text: &str) -> Option<Self> {
        Holding::read(text).map(|holding| Self(holding.0))
    }
    fn written(&self) -> String {
        self.0.written()
    }
}

/// Which packets are marked; by default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marking {
    /// Backlog above which ECN-capable packets of the longest queue are marked; a time is the time of a
    /// packet in its queue.
    pub mark: Option<Limit>,
    /// Time in the queue above which packets of L4S are marked.
    pub step: Option<Duration>,
}

impl Marking {
    /// As `spec` says for a queue of this limit.
    pub(super) fn from_spec(spec: &Spec, limit: Limit) -> Result<Self, SpecError> {
        let mark = match (ECN.of(spec)?, MARK.given(spec)?) {
            (true, None) => Some(half(limit)),
            (true, Some(Mark(mark))) if mark >= limit => return Err(MARK.refused(spec)),
            (true, Some(Mark(mark))) => Some(mark),
            (false, None) => None,
            (false, Some(_)) => return Err(MARK.refused(spec)),
        };
        Ok(Self { mark, step: L4S.given(spec)? })
    }

    /// Whether any packet may be marked.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.mark.is_some() || self.step.is_some()
    }

    /// Marks `queued`, which leaves at `now`, if a mark is due. `backlog` was in the buffer with it.
    pub(super) fn judge<P: Packet>(
        &self,
        now: Timestamp,
        queued: &mut Queued<P>,
        backlog: Backlog,
        is_longest: bool,
        drops: &mut dyn DropSink<P>,
    ) {
        let sojourn = now.saturating_since(queued.enqueued);
        let is_due = match (self.step, self.mark) {
            (Some(step), _) if is_l4s(&queued.packet) => sojourn > step,
            (_, Some(Limit::Time(time))) => sojourn > time,
            (_, Some(amount)) => is_longest && CurrentLimit::new(amount).is_exceeded(backlog),
            (_, None) => false,
        };
        if is_due {
            // A packet that is not ECN-capable passes unmarked.
            mark(&mut queued.packet, DropReason::Forced, drops);
        }
    }
}

/// Whether `packet` belongs to L4S. A CE that was ECT(0) looks like any other CE (RFC 9331 section 5.1).
pub(super) fn is_l4s<P: Packet>(packet: &P) -> bool {
    matches!(packet.ecn(), Ecn::Ect1 | Ecn::Ce)
}

fn half(limit: Limit) -> Limit {
    match limit {
        Limit::Packets(packets) => Limit::Packets(packets / 2),
        Limit::Bytes(bytes) => Limit::Bytes(ByteCount::new(bytes.as_u64() / 2)),
        Limit::Time(time) => Limit::Time(time / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qdisc::build;
    use crate::spec::Value;
    use crate::testing::qdisc::{Dropped, TestPacket};
    use alloc::string::ToString;
    use alloc::vec::Vec;

    const KINDS: [&str; 4] = ["fifo", "sfq", "drr", "las"];

    fn spec(kind: &str, params: &[(&str, &str)]) -> Spec {
        let value = |text: &str| Value::Text(text.into());
        params.iter().fold(Spec::named(kind), |spec, (name, text)| spec.with(name, value(text)))
    }

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn packet(flow: u32, ecn: Ecn) -> TestPacket {
        TestPacket { flow, ecn, ..TestPacket::default() }
    }

    /// Flow and ECN field of the packets that leave: at 0 ms come `arrivals`, and every ms one packet leaves.
    fn out(spec: &Spec, arrivals: &[TestPacket]) -> Vec<(u32, Ecn)> {
        let mut queue = build::<TestPacket>(spec).unwrap();
        let mut drops = Dropped::default();
        for packet in arrivals {
            queue.enqueue(ms(0), packet.clone(), &mut drops);
        }
        let next = |at| queue.dequeue(ms(at), &mut drops);
        let out = (0..).map_while(next).map(|packet| (packet.flow, packet.ecn)).collect();
        assert_eq!(drops.packets, [], "{spec}");
        out
    }

    #[test]
    fn ecn_packets_are_marked_while_queue_exceeds_mark() {
        for kind in KINDS {
            let spec = spec(kind, &[("limit", "20p"), ("ecn", "true"), ("mark", "4p")]);
            for (ecn, marked) in [(Ecn::Ect0, 6), (Ecn::Ect1, 6), (Ecn::NotEct, 0)] {
                let out = out(&spec, &alloc::vec![packet(1, ecn); 10]);
                let expected = (0..10).map(|place| if place < marked { Ecn::Ce } else { ecn });
                assert!(out.iter().map(|(_, ecn)| *ecn).eq(expected), "{spec}: {out:?}");
            }
        }
    }

    #[test]
    fn time_mark_applies_to_each_packet() {
        for kind in KINDS {
            for (mark, limit) in [("3ms", "20p"), ("3ms", "20ms"), ("", "6ms")] {
                let mut params = alloc::vec![("limit", limit), ("ecn", "true"), ("mark", mark)];
                params.retain(|(_, text)| !text.is_empty());
                let out = out(&spec(kind, &params), &alloc::vec![packet(1, Ecn::Ect0); 8]);
                let marked: Vec<bool> = out.iter().map(|(_, ecn)| *ecn == Ecn::Ce).collect();
                assert_eq!(marked, [[false; 4], [true; 4]].concat(), "{kind} of {params:?}");
            }
        }
    }

    #[test]
    fn marks_precede_drops_and_hit_the_same_flow() {
        for kind in ["sfq", "drr", "las"] {
            let mut queue =
                build::<TestPacket>(&spec(kind, &[("limit", "40p"), ("ecn", "true")])).unwrap();
            let mut drops = Dropped::default();
            let (mut marked, mut dropped_before) = ([0; 4], [0; 4]);
            for step in 0..400 {
                // Flow 3 sends less than its share; 0 to 2 more, and no third of the buffer is half of it.
                let arrivals = [0, 1, 2, 3];
                for flow in arrivals.into_iter().filter(|flow| *flow < 3 || step % 8 == 0) {
                    queue.enqueue(ms(step), packet(flow, Ecn::Ect0), &mut drops);
                }
                for (packet, _) in drops.packets.drain(..) {
                    let flow = packet.flow as usize;
                    dropped_before[flow] += u32::from(marked[flow] == 0);
                }
                let out = queue.dequeue(ms(step), &mut drops).unwrap();
                marked[out.flow as usize] += u32::from(out.ecn == Ecn::Ce);
            }
            assert_eq!(dropped_before, [0; 4], "{kind}");
            assert!(marked[..3].iter().all(|marks| *marks > 0), "{kind}: {marked:?}");
            assert_eq!(marked[3], 0, "{kind}");
        }
    }

    #[test]
    fn the_step_is_for_l4s_alone() {
        for kind in KINDS {
            let step = spec(kind, &[("l4s", "2ms")]);
            let both = spec(kind, &[("l4s", "2ms"), ("ecn", "true")]);
            for (ecn, marked) in [(Ecn::Ect1, 7), (Ecn::Ect0, 0), (Ecn::NotEct, 0)] {
                for spec in [&step, &both] {
                    let out = out(spec, &alloc::vec![packet(1, ecn); 10]);
                    let ce = out.iter().filter(|(_, ecn)| *ecn == Ecn::Ce).count();
                    assert_eq!(ce, marked, "{spec}: {out:?}");
                }
            }
        }
    }

    #[test]
    fn marks_that_cannot_be_are_refused() {
        for kind in KINDS {
            for params in [
                &[("mark", "5p")][..],
                &[("ecn", "false"), ("mark", "5p")],
                &[("ecn", "true"), ("mark", "0p")],
                &[("ecn", "true"), ("mark", "20p"), ("limit", "20p")],
                &[("ecn", "true"), ("mark", "30ms"), ("limit", "20ms")],
            ] {
                let error = crate::qdisc::check(&spec(kind, params)).unwrap_err().to_string();
                assert!(error.starts_with("mark = "), "{error}");
                assert!(error.ends_with("in the queue, with ecn and below the limit"), "{error}");
            }
            let error = crate::qdisc::check(&spec(kind, &[("l4s", "2s")])).unwrap_err().to_string();
            assert!(error.contains("a duration, 10us to 1s"), "{error}");
        }
    }
}
