//! A shaper: sends the packets of an inner discipline at a rate that may change at any time.
//!
//! ```text
//! credit grows by rate x elapsed time, up to the bucket
//! a packet may leave when credit >= 0, and takes its bytes from it (so credit may turn negative)
//! next departure    = the instant at which credit is 0 again: pacing to absolute times
//! set_rate          : settle the time that has passed at the old rate, then change the rate;
//!                     credit stays the same
//! ```
//! Credit is kept in bits x ns/s, in which `rate x elapsed` is a whole number: nothing is rounded, however
//! often the rate changes. The bytes sent in any interval are the integral of the rates set over it, plus at
//! most the bucket and one packet. Linux' TBF grants a full bucket at each change: with 5000 changes a second
//! it sends 152 Mbit/s where 96 are set. So `tc qdisc change` is no way to control it. A rate that rises
//! shortens the wait for the next departure at once.
//!
//! The packet is taken from the inner discipline at the very moment it leaves, not one ahead as a peek-based
//! bucket must. So a packet of a higher class that comes before the next departure goes first. CoDel sees the
//! true sojourn time, and the backlog is the inner discipline's.
//!
//! There are two buckets, since credit has two causes:
//! - **idle**: nothing stood in the queue. Packets sent at once then add to the queue at the bottleneck, so
//!   this bucket is small: `bucket`, 2 packets in a row (one of credit, one because credit 0 suffices).
//! - **late**: packets were queued and the host came too late for them; user-space daemons wake up 50-100 us
//!   late and may wait out another thread for ms. Sending these packets at once only repairs the delay. At no
//!   time has more left than a punctual shaper would have sent, so the queue at the bottleneck is never
//!   longer than with one. Without this credit each late wake-up would lose throughput for good. The credit
//!   is bounded by `burst`, so that a process stopped for a second does not answer with a second of traffic
//!   at a rate set long ago.
//!
//! Limits in time of the inner discipline go by the mean of the rates set, which forgets within 0.2 s: a
//! control loop lowers its rate to a tenth for milliseconds, and waiting packets need not be dropped for
//! that.
//!
//! Unshaped (rate `None`), packets leave as the inner discipline gives them; shaping begins with
//! credit 0.

use alloc::boxed::Box;
use alloc::string::String;

use crate::packet::Packet;
use crate::qdisc::params::MTU;
use crate::qdisc::sparse::{SparseWait, Watched};
use crate::qdisc::{Backlog, Built, Discipline, DropSink, Qdisc, build_inner};
use crate::spec::{DescribedParam, Param, Quantity, Spec, SpecError};
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// How fast the mean rate, by which limits in time go, follows the rate. Loops of bundles swing in 4 ms and
/// more. A limit that lags by the shortest sensible limit is still a limit.
const MEMORY: Duration = Duration::from_millis(200);
/// Interval of updates of the mean rate between changes.
const STEP: Duration = Duration::from_millis(1);
/// Credit in units of bits x ns/s for a byte.
const CREDIT_PER_BYTE: i128 = 8 * 1_000_000_000;
/// Largest burst as a time.
const BURST_TIME_MAX: Duration = Duration::from_secs(1);
/// Largest burst or bucket in bytes.
pub(super) const BURST_BYTES_MAX: ByteCount = ByteCount::new(100_000_000);

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "shaper",
    summary: "token bucket that paces another discipline to a rate",
    sources: &["Linux net/sched/sch_tbf.c, except at rate changes"],
    params: &[
        &RATE,
        &BUCKET,
        &BURST,
        &DescribedParam {
            name: "inner",
            summary: "the shaped discipline",
            default: Some("fifo"),
            allowed: "a qdisc such as { kind = \"sfq\" }",
        },
    ],
};

pub(super) fn build<P: Packet + Send + 'static>(spec: &Spec, levels: usize) -> Built<P> {
    let mut shaper = Shaper::new(build_inner(spec, levels)?, ShaperParams::from_spec(spec)?);
    shaper.set_rate(Timestamp::ZERO, Some(RATE.of(spec)?));
    Ok(Box::new(shaper))
}

/// A rate that takes a day for one packet is a mistake, and a rate that no device has is one, too.
pub(super) const RATE: Param<Rate> = Param::new("rate", "rate of layer-2 frames without FCS")
    .within(Rate::from_bits_per_sec(1_000)..=Rate::from_mbit_per_sec(1_000_000));
/// Bytes that an idle shaper may send at line rate. A larger one puts longer bursts on the path.
const BUCKET: Param<ByteCount> =
    Param::new("bucket", "bytes that may leave in a row after an idle time, at least one packet")
        .or(ByteCount::new(2 * MTU))
        .within(ByteCount::new(MTU)..=BURST_BYTES_MAX);
/// The scheduler's slice on Linux is 2.8 to 4 ms: waiting out one other thread must cost nothing; and the
/// burst stays below the round-trip times that bundles are shaped for.
const BURST: Param<Burst> =
    Param::new("burst", "time or bytes that may be caught up after the host was late")
        .or(Burst::Time(Duration::from_millis(5)));

/// How much may be caught up after the host came late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Burst {
    /// The bytes that the rate sends in this time.
    Time(Duration),
    /// This many bytes at any rate.
    Bytes(ByteCount),
}

impl Quantity for Burst {
    /// A value of `burst`.
    const WHAT: &'static str = "a duration, 0s to 1s, or a size, 0B to 100MB";
    fn read(text: &str) -> Option<Self> {
        let time = Duration::read(text).filter(|time| *time <= BURST_TIME_MAX).map(Self::Time);
        let bytes = || ByteCount::read(text).filter(|bytes| *bytes <= BURST_BYTES_MAX);
        time.or_else(|| bytes().map(Self::Bytes))
    }
    fn written(&self) -> String {
        match self {
            Self::Time(time) => time.written(),
            Self::Bytes(bytes) => bytes.written(),
        }
    }
}

/// Parameters of [`Shaper`]; the default is the registry's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShaperParams {
    /// Bytes that may leave in a row after an idle time; the last packet may exceed it.
    pub bucket: ByteCount,
    /// How much may be caught up after the host came late; never less than `bucket`.
    pub burst: Burst,
}

impl Default for ShaperParams {
    fn default() -> Self {
        Self::from_spec(&Spec::named(DISCIPLINE.name)).expect("both have defaults")
    }
}

impl ShaperParams {
    pub(crate) fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        Ok(Self { bucket: BUCKET.of(spec)?, burst: BURST.of(spec)? })
    }

    /// Largest credit while packets wait, which the host may catch up.
    fn late_cap(&self, rate: Rate) -> i128 {
        let burst = match self.burst {
            Burst::Time(time) => i128::try_from(rate_times(rate, time)).unwrap_or(i128::MAX),
            Burst::Bytes(bytes) => credit_of(bytes),
        };
        burst.max(self.idle_cap())
    }

    /// Largest credit while nothing waits: the bucket less the packet that credit 0 lets through.
    fn idle_cap(&self) -> i128 {
        credit_of(self.bucket.saturating_sub(ByteCount::new(MTU)))
    }
}

pub(super) fn credit_of(bytes: ByteCount) -> i128 {
    i128::from(bytes.as_u64()) * CREDIT_PER_BYTE
}

/// Exact for any u64 of bits/s and of ns.
pub(super) fn rate_times(rate: Rate, time: Duration) -> u128 {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    u128::from(rate.as_bits_per_sec()) * u128::from(nanos)
}

/// Paces an inner discipline to a rate.
pub struct Shaper<P: Packet, Q: Qdisc<P> = Box<dyn Qdisc<P> + Send>> {
    inner: Q,
    params: ShaperParams,
    /// Bytes that each packet takes of the rate in addition to its own.
    overhead: ByteCount,
    rate: Option<Rate>,
    /// Bits x ns/s; negative: the last packet is not paid for yet. Settled up to `settled_at`.
    credit: i128,
    settled_at: Timestamp,
    /// Since when the next packet could have left; `None` while nothing waits or credit lacks.
    due: Option<Timestamp>,
    lateness: Duration,
    /// Mean of the rates set, up to `mean_at`.
    mean: Option<Rate>,
    mean_at: Timestamp,
    /// Rate at which the shaper itself is served.
    service_rate: Option<Rate>,
    sparse: Option<SparseWait>,
    packets: core::marker::PhantomData<fn(P)>,
}

impl<P: Packet, Q: Qdisc<P>> Shaper<P, Q> {
    /// Unshaped until [`Shaper::set_rate`].
    pub fn new(inner: Q, params: ShaperParams) -> Self {
        Self {
            inner,
            params,
            overhead: ByteCount::ZERO,
            rate: None,
            credit: 0,
            settled_at: Timestamp::ZERO,
            due: None,
            lateness: Duration::ZERO,
            mean: None,
            mean_at: Timestamp::ZERO,
            service_rate: None,
            sparse: None,
            packets: core::marker::PhantomData,
        }
    }

    /// Counts each packet as `overhead` bytes longer than it is here, for headers that are put in front of it
    /// later.
    pub fn set_overhead(&mut self, overhead: ByteCount) {
        self.overhead = overhead;
    }

    /// Watches how long packets of sparse flows wait, for [`Shaper::sparse_wait`].
    pub fn watching(mut self) -> Self {
        self.sparse = Some(SparseWait::default());
        self
    }

    /// How long the packet waited that left last, if its flow had nothing else in the queue when it came.
    pub fn sparse_wait(&mut self) -> Option<Duration> {
        self.sparse.as_mut().and_then(SparseWait::take)
    }

    fn enqueue_inner(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        let Some(sparse) = &mut self.sparse else {
            return self.inner.enqueue(now, packet, drops);
        };
        sparse.on_enqueue(now, &packet);
        self.inner.enqueue(now, packet, &mut Watched { sparse, drops });
    }

    fn dequeue_inner(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P> {
        let Some(sparse) = &mut self.sparse else {
            return self.inner.dequeue(now, drops);
        };
        let packet = self.inner.dequeue(now, &mut Watched { sparse, drops })?;
        sparse.on_departure(now, &packet);
        Some(packet)
    }

    /// The rate in force; `None`: unshaped.
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Changes the rate from `now` on; `None` stops shaping, rate zero stops sending once the
    /// credit at hand is used. Between rates no credit is granted and none taken, so the host may
    /// change them as often as it likes.
    pub fn set_rate(&mut self, now: Timestamp, rate: Option<Rate>) {
        self.settle(now);
        if self.rate.is_none() || rate.is_none() {
            self.credit = 0;
            self.due = (self.inner.backlog().packets > 0).then_some(now);
        }
        self.follow(now);
        self.rate = rate;
        self.mean = rate.and_then(|rate| self.mean.or(Some(rate)));
        self.tell_inner();
    }

    /// Brings the mean rate up to `now`.
    fn follow(&mut self, now: Timestamp) {
        if let (Some(rate), Some(mean)) = (self.rate, self.mean) {
            let passed = now.saturating_since(self.mean_at).min(MEMORY).as_nanos() as i128;
            let [mean, rate] = [mean, rate].map(|rate| i128::from(rate.as_bits_per_sec()));
            let mean = mean + (rate - mean) * passed / MEMORY.as_nanos() as i128;
            self.mean = Some(Rate::from_bits_per_sec(mean as u64));
        }
        self.mean_at = now;
    }

    fn tell_inner(&mut self) {
        let rate = self.mean.into_iter().chain(self.service_rate).min();
        self.inner.set_service_rate(rate);
    }

    /// How long after its due time the last packet left; zero when it was not shaped. A host records it: a
    /// run is valid only while the lateness stays small.
    pub fn lateness(&self) -> Duration {
        self.lateness
    }

    /// The discipline that is shaped.
    pub fn inner(&self) -> &Q {
        &self.inner
    }

    /// Brings `credit` and `due` up to `now`.
    fn settle(&mut self, now: Timestamp) {
        let is_waiting = self.inner.backlog().packets > 0;
        if let Some(rate) = self.rate {
            let cap = if is_waiting {
                if self.due.is_none() {
                    self.due = self.repaid_at(rate).filter(|&at| at <= now);
                }
                self.params.late_cap(rate)
            } else {
                self.params.idle_cap()
            };
            let gain = rate_times(rate, now.saturating_since(self.settled_at));
            self.credit = match i128::try_from(gain) {
                Ok(gain) => self.credit.saturating_add(gain).min(cap),
                Err(_) => cap,
            };
        }
        self.settled_at = self.settled_at.max(now);
    }

    /// When credit is no longer negative; `None`: never, at rate zero.
    fn repaid_at(&self, rate: Rate) -> Option<Timestamp> {
        let debt = self.credit.min(0).unsigned_abs();
        if debt == 0 {
            return Some(self.settled_at);
        }
        let bits = u128::from(rate.as_bits_per_sec());
        let nanos = (bits > 0).then(|| debt.div_ceil(bits))?;
        let wait = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Some(self.settled_at + wait)
    }

    /// Charges a packet of `len` bytes that leaves at `now`.
    fn charge(&mut self, now: Timestamp, rate: Rate, len: ByteCount) {
        let due = self.due.take().unwrap_or(now);
        self.lateness = now.saturating_since(due);
        let len = len + self.overhead;
        self.credit -= credit_of(len);
        if self.credit >= 0 && self.inner.backlog().packets > 0 {
            // The next one is late as well: it was due when this one should have been through.
            let through = len.time_at(rate).map_or(now, |time| due + time);
            self.due = Some(through.min(now));
        }
    }
}

impl<P: Packet, Q: Qdisc<P>> Qdisc<P> for Shaper<P, Q> {
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        if self.mean != self.rate && now.saturating_since(self.mean_at) >= STEP {
            self.follow(now);
            self.tell_inner();
        }
        if self.inner.backlog().packets > 0 {
            return self.enqueue_inner(now, packet, drops);
        }
        self.settle(now);
        self.enqueue_inner(now, packet, drops);
        if self.credit >= 0 && self.inner.backlog().packets > 0 {
            self.due = Some(now);
        }
    }

    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P> {
        self.settle(now);
        let Some(rate) = self.rate else {
            self.lateness = Duration::ZERO;
            return self.dequeue_inner(now, drops);
        };
        if self.credit < 0 {
            return None;
        }
        let packet = self.dequeue_inner(now, drops);
        match &packet {
            Some(packet) => self.charge(now, rate, packet.len()),
            None => self.due = self.due.filter(|_| self.inner.backlog().packets > 0),
        }
        packet
    }

    fn next_timer(&self) -> Option<Timestamp> {
        let inner = self.inner.next_timer()?;
        match self.rate {
            None => Some(inner),
            Some(rate) => self.repaid_at(rate).map(|repaid| repaid.max(inner)),
        }
    }

    fn backlog(&self) -> Backlog {
        self.inner.backlog()
    }

    fn flows(&self) -> Option<u32> {
        self.inner.flows()
    }

    fn set_service_rate(&mut self, rate: Option<Rate>) {
        self.service_rate = rate;
        self.tell_inner();
    }

    fn set_path_rtt(&mut self, rtt: Duration) {
        self.inner.set_path_rtt(rtt);
    }
}

#[cfg(test)]
mod tests;
