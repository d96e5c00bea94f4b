//! A policer: drops packets above a rate, and holds nothing back for it.
//!
//! ```text
//! tokens grow by rate x elapsed time, up to the burst
//! an arrival of no more bytes than there are tokens takes them and goes on to the inner discipline
//! any other is dropped and takes none
//! ```
//! Source: RFC 2697 section 3 with one bucket (its committed one), in color-blind mode; packets that are not
//! green are dropped. Linux' net/sched/act_police.c does the same.
//!
//! In networks, a policer stands before a link that sends faster than the policed rate. The line has a rate
//! of its own, and the inner discipline holds the packets that it cannot send that instant. So a sender meets
//! losses without a queue. If the line is slower than the policer, the queue is the line's, and nothing is
//! policed.
//!
//! Tokens are kept in bits x ns/s, as the shaper's credit: nothing is rounded. A packet longer than the burst
//! never passes.

use alloc::boxed::Box;
use alloc::string::String;

use crate::packet::Packet;
use crate::qdisc::params::{MTU, TIMES};
use crate::qdisc::shaper::{BURST_BYTES_MAX, Burst, RATE, credit_of, rate_times};
use crate::qdisc::{Backlog, Built, Discipline, DropReason, DropSink, Qdisc, build_inner};
use crate::spec::{DescribedParam, Param, Quantity, Spec, SpecError};
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "policer",
    summary: "token bucket that drops packets above a rate and queues none",
    sources: &["RFC 2697", "Linux net/sched/act_police.c"],
    params: &[
        &RATE,
        &BURST,
        &DescribedParam {
            name: "inner",
            summary: "discipline for packets that wait for the link",
            default: Some("fifo"),
            allowed: "a qdisc such as { kind = \"sfq\" }",
        },
    ],
};

pub(super) fn build<P: Packet + Send + 'static>(spec: &Spec, levels: usize) -> Built<P> {
    let (inner, rate) = (build_inner(spec, levels)?, RATE.of(spec)?);
    Ok(Box::new(Policer::new(inner, rate, burst(spec, rate)?)))
}

/// A TCP connection fills a policed rate only if its bursts of a round trip pass.
const BURST: Param<Pause> =
    Param::new("burst", "bytes or time of a burst after a pause; the default is a long round trip")
        .or(Pause(Burst::Time(Duration::from_millis(100))));

/// Burst that may come at once. In bytes at most as the shaper's; less than a millisecond is hardly a packet
/// at most rates, and more than 10 s is no policer.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Pause(Burst);

impl Quantity for Pause {
    /// A value of `burst`.
    const WHAT: &'static str = "a size, 1514B to 100MB, or 1ms to 10s of the rate (at least 1514B)";
    fn read(text: &str) -> Option<Self> {
        let sizes = ByteCount::new(MTU)..=BURST_BYTES_MAX;
        let time = Duration::read(text).filter(|time| TIMES.contains(time)).map(Burst::Time);
        let bytes = || ByteCount::read(text).filter(|bytes| sizes.contains(bytes));
        time.or_else(|| bytes().map(Burst::Bytes)).map(Self)
    }
    fn written(&self) -> String {
        self.0.written()
    }
}

/// The largest number of tokens, in bytes.
fn burst(spec: &Spec, rate: Rate) -> Result<ByteCount, SpecError> {
    Ok(match BURST.of(spec)?.0 {
        Burst::Time(time) => rate.bytes_in(time).max(ByteCount::new(MTU)),
        Burst::Bytes(bytes) => bytes,
    })
}

/// Drops packets above a rate, before an inner discipline.
pub struct Policer<P: Packet, Q: Qdisc<P> = Box<dyn Qdisc<P> + Send>> {
    inner: Q,
    rate: Rate,
    /// The largest and the present number of tokens, in bits x ns/s; settled up to `settled_at`.
    burst: i128,
    tokens: i128,
    settled_at: Timestamp,
    packets: core::marker::PhantomData<fn(P)>,
}

impl<P: Packet, Q: Qdisc<P>> Policer<P, Q> {
    /// Lets packets pass within `rate` and `burst`; the burst is available at first.
    pub fn new(inner: Q, rate: Rate, burst: ByteCount) -> Self {
        let burst = credit_of(burst);
        Self {
            inner,
            rate,
            burst,
            tokens: burst,
            settled_at: Timestamp::ZERO,
            packets: core::marker::PhantomData,
        }
    }

    /// Whether a packet of `len` bytes that comes at `now` conforms; if so, takes its tokens.
    fn takes(&mut self, now: Timestamp, len: ByteCount) -> bool {
        let gain = rate_times(self.rate, now.saturating_since(self.settled_at));
        let gain = i128::try_from(gain).unwrap_or(i128::MAX);
        self.tokens = self.tokens.saturating_add(gain).min(self.burst);
        self.settled_at = self.settled_at.max(now);
        let needed = credit_of(len);
        let conforms = needed <= self.tokens;
        if conforms {
            self.tokens -= needed;
        }
        conforms
    }
}

impl<P: Packet, Q: Qdisc<P>> Qdisc<P> for Policer<P, Q> {
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        if self.takes(now, packet.len()) {
            self.inner.enqueue(now, packet, drops);
        } else {
            drops.dropped(packet, DropReason::Policed);
        }
    }

    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P> {
        self.inner.dequeue(now, drops)
    }

    fn next_timer(&self) -> Option<Timestamp> {
        self.inner.next_timer()
    }

    fn backlog(&self) -> Backlog {
        self.inner.backlog()
    }

    fn set_service_rate(&mut self, rate: Option<Rate>) {
        self.inner.set_service_rate(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qdisc::{self, Fifo};
    use crate::spec::Value;
    use crate::testing::qdisc::{Dropped, TestPacket};
    use crate::units::Limit;

    const RATE: Rate = Rate::from_mbit_per_sec(8);

    fn packet(len: u64) -> TestPacket {
        TestPacket { len: ByteCount::new(len), ..TestPacket::default() }
    }

    fn at(us: u64) -> Timestamp {
        Timestamp::from_nanos(us * 1000)
    }

    fn policer(burst: u64) -> Policer<TestPacket, Fifo<TestPacket>> {
        Policer::new(Fifo::new(Limit::Packets(1000)), RATE, ByteCount::new(burst))
    }

    #[test]
    fn burst_passes_and_then_only_the_rate() {
        let (mut policer, mut drops) = (policer(3000), Dropped::default());
        for _ in 0..4 {
            policer.enqueue(at(0), packet(1000), &mut drops);
        }
        assert_eq!(policer.backlog().packets, 3);
        assert_eq!(drops.reasons(), [DropReason::Policed]);
        // A byte takes a microsecond: the dropped packets have taken no tokens.
        for (us, passed) in [(999, 3), (1000, 4), (1001, 4), (2000, 5)] {
            policer.enqueue(at(us), packet(1000), &mut drops);
            assert_eq!(policer.backlog().packets, passed, "{us}");
        }
    }

    #[test]
    fn tenfold_rate_gets_the_rate_plus_one_burst() {
        let (mut policer, mut drops) = (policer(50_000), Dropped::default());
        for us in (0..10_000_000).step_by(100) {
            policer.enqueue(at(us), packet(1000), &mut drops);
            policer.dequeue(at(us), &mut drops);
        }
        let passed = 100_000 - drops.packets.len();
        assert!((10_049..=10_050).contains(&passed), "{passed}");
    }

    #[test]
    fn tokens_stay_within_burst_and_longer_packets_fail() {
        let (mut policer, mut drops) = (policer(3000), Dropped::default());
        policer.enqueue(at(3_600_000_000), packet(3001), &mut drops);
        assert_eq!(drops.packets.len(), 1);
        policer.enqueue(at(3_600_000_000), packet(3000), &mut drops);
        policer.enqueue(at(3_600_000_000), packet(1), &mut drops);
        assert_eq!((policer.backlog().packets, drops.packets.len()), (1, 2));
    }

    #[test]
    fn time_burst_is_the_bytes_of_the_rate() {
        let spec = |burst: &str| {
            let spec = Spec::named("policer").with("rate", Value::Text("8Mbit/s".into()));
            spec.with("burst", Value::Text(burst.into()))
        };
        for (text, bytes) in [("5ms", 5000), ("1ms", 1514), ("20KB", 20_000)] {
            assert_eq!(burst(&spec(text), RATE), Ok(ByteCount::new(bytes)), "{text}");
        }
        for text in ["999us", "11s", "1513B", "101MB"] {
            let refused = qdisc::build::<TestPacket>(&spec(text)).err().expect("refused");
            assert_eq!((refused.key.as_str(), refused.allowed.as_str()), ("burst", Pause::WHAT));
        }
    }

    #[test]
    fn time_limit_of_inner_queue_needs_link_rate() {
        let inner = Spec::named("fifo").with("limit", Value::Text("150ms".into()));
        let spec = Spec::named("policer").with("inner", Value::Spec(inner));
        let error = qdisc::check_without_rate(&spec).unwrap_err();
        assert_eq!(error.key, "inner.limit");
    }
}
