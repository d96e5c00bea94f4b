//! A shaper: sends what an inner discipline holds at a rate that may change at any time.
//!
//! ```text
//! credit grows by rate x elapsed time, up to the bucket
//! a packet may leave when credit >= 0, and takes its bytes from it (so credit may turn negative)
//! next departure    = the instant at which credit is 0 again: pacing to absolute times
//! set_rate          : settle the time that has passed at the old rate, then change the rate;
//!                     credit stays what it is
//! ```
//! Credit is kept in bits x ns/s, in which `rate x elapsed` is a whole number: nothing is rounded,
//! however often the rate changes. The bytes sent in any interval are the integral of the rates
//! set over it, plus at most the bucket and one packet. (Linux' TBF grants a full bucket at each
//! change: with 5000 changes a second it sends 152 Mbit/s where 96 are set, so `tc qdisc change`
//! is no way to control it.) A rate that rises shortens the wait for the next departure at once.
//!
//! The packet is taken from the inner discipline at the very moment it leaves, not one ahead as a
//! peek-based bucket must: a packet of a higher class that comes before the next departure goes
//! first, CoDel sees the true sojourn time, and the backlog is the inner discipline's.
//!
//! There are two buckets, since credit has two causes:
//! - **idle**: nothing stood in the queue. What is then sent at once adds to the queue at the
//!   bottleneck, so this bucket is small: `bucket`, 2 packets in a row (one of credit, one because
//!   credit 0 suffices).
//! - **late**: packets stood in the queue and the host came too late for them; user-space daemons
//!   wake up 50-100 us late and may wait out another thread for ms. Sending these packets at once
//!   only repairs the delay: at no time has more left than a punctual shaper would have sent, so
//!   the queue at the bottleneck is never longer than with one. Without this credit each late
//!   wake-up would lose throughput for good. It is bounded by `burst`, so that a process stopped
//!   for a second does not answer with a second of traffic at a rate set long ago.
//!
//! Unshaped (rate `None`), packets leave as the inner discipline gives them; shaping begins with
//! credit 0.

use alloc::boxed::Box;

use crate::packet::Packet;
use crate::qdisc::params::{self, MTU};
use crate::qdisc::{Backlog, Discipline, DropSink, Qdisc};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Credit in units of bits x ns/s for a byte.
const CREDIT_PER_BYTE: i128 = 8 * 1_000_000_000;
/// A rate that takes a day for one packet is a mistake, and so is one that no device has.
const RATE_ALLOWED: &str = "a rate, 1kbit/s to 1Tbit/s";
const RATE_MIN: Rate = Rate::from_bits_per_sec(1_000);
const RATE_MAX: Rate = Rate::from_mbit_per_sec(1_000_000);
/// Largest burst in time or bytes.
const BURST_ALLOWED: &str = "a duration, 0s to 1s, or a size, 0B to 100MB";
const BURST_TIME_MAX: Duration = Duration::from_secs(1);
const BURST_BYTES_MAX: ByteCount = ByteCount::new(100_000_000);

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "shaper",
    summary: "token bucket that paces another discipline to a rate",
    sources: &["Linux net/sched/sch_tbf.c, from which it departs at rate changes"],
    params: &[
        Param {
            name: "rate",
            summary: "rate of layer-2 frames without FCS",
            default: "",
            allowed: RATE_ALLOWED,
        },
        Param {
            name: "bucket",
            summary: "bytes that may leave in a row after an idle time, at least one packet",
            default: "3028B",
            allowed: "a size, 1514B to 100MB",
        },
        Param {
            name: "burst",
            // The scheduler's slice on Linux is 2.8 to 4 ms: waiting out one other thread must
            // cost nothing; and it stays below the round-trip times that bundles are shaped for.
            summary: "how much may be caught up after the host came late",
            default: "5ms",
            allowed: BURST_ALLOWED,
        },
        Param {
            name: "inner",
            summary: "the discipline that is shaped",
            default: "fifo",
            allowed: "a qdisc such as { kind = \"sfq\" }",
        },
    ],
};

/// How much may be caught up after the host came late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Burst {
    /// What the rate sends in this time.
    Time(Duration),
    /// This many bytes at any rate.
    Bytes(ByteCount),
}

/// Parameters of [`Shaper`]; the default is that of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShaperParams {
    /// Bytes that may leave in a row after an idle time; the last packet may exceed it.
    pub bucket: ByteCount,
    /// How much may be caught up after the host came late; never less than `bucket`.
    pub burst: Burst,
}

impl Default for ShaperParams {
    fn default() -> Self {
        Self { bucket: ByteCount::new(2 * MTU), burst: Burst::Time(Duration::from_millis(5)) }
    }
}

impl ShaperParams {
    pub(crate) fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        let bucket = params::given(spec, "bucket", spec.bytes("bucket"))?;
        if !(MTU..=BURST_BYTES_MAX.as_u64()).contains(&bucket.as_u64()) {
            let allowed = "a size, 1514B to 100MB";
            return Err(params::refused(spec, "bucket", allowed));
        }
        Ok(Self { bucket, burst: burst(spec)? })
    }

    /// Largest credit while packets wait: what the host may catch up.
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

fn burst(spec: &Spec) -> Result<Burst, SpecError> {
    let burst = match (spec.duration("burst"), spec.bytes("burst")) {
        (Ok(Some(time)), _) => Burst::Time(time),
        (_, Ok(Some(bytes))) => Burst::Bytes(bytes),
        (found, _) => return params::given(spec, "burst", found).map(Burst::Time),
    };
    let is_allowed = match burst {
        Burst::Time(time) => time <= BURST_TIME_MAX,
        Burst::Bytes(bytes) => bytes <= BURST_BYTES_MAX,
    };
    if is_allowed { Ok(burst) } else { Err(params::refused(spec, "burst", BURST_ALLOWED)) }
}

fn rate(spec: &Spec) -> Result<Rate, SpecError> {
    let rate = params::given(spec, "rate", spec.rate("rate"))?;
    if (RATE_MIN..=RATE_MAX).contains(&rate) {
        Ok(rate)
    } else {
        Err(params::refused(spec, "rate", RATE_ALLOWED))
    }
}

fn credit_of(bytes: ByteCount) -> i128 {
    i128::from(bytes.as_u64()) * CREDIT_PER_BYTE
}

/// Exact for any u64 of bits/s and of ns.
fn rate_times(rate: Rate, time: Duration) -> u128 {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    u128::from(rate.as_bits_per_sec()) * u128::from(nanos)
}

/// Paces an inner discipline to a rate.
pub struct Shaper<P: Packet, Q: Qdisc<P> = Box<dyn Qdisc<P> + Send>> {
    inner: Q,
    params: ShaperParams,
    rate: Option<Rate>,
    /// Bits x ns/s; negative: the last packet is not paid for yet. Settled up to `settled_at`.
    credit: i128,
    settled_at: Timestamp,
    /// Since when the next packet could have left; `None` while nothing waits or credit lacks.
    due: Option<Timestamp>,
    lateness: Duration,
    packets: core::marker::PhantomData<fn(P)>,
}

impl<P: Packet> Shaper<P> {
    pub(super) fn from_spec(
        spec: &Spec,
        inner: Box<dyn Qdisc<P> + Send>,
    ) -> Result<Self, SpecError> {
        let mut shaper = Self::new(inner, ShaperParams::from_spec(spec)?);
        shaper.rate = Some(rate(spec)?);
        Ok(shaper)
    }
}

impl<P: Packet, Q: Qdisc<P>> Shaper<P, Q> {
    /// Unshaped until [`Shaper::set_rate`].
    pub fn new(inner: Q, params: ShaperParams) -> Self {
        Self {
            inner,
            params,
            rate: None,
            credit: 0,
            settled_at: Timestamp::ZERO,
            due: None,
            lateness: Duration::ZERO,
            packets: core::marker::PhantomData,
        }
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
        self.rate = rate;
    }

    /// How long after its due time the last packet left; zero when it was not shaped. A host
    /// records it: the harness is valid only while it stays small.
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
        if self.inner.backlog().packets > 0 {
            return self.inner.enqueue(now, packet, drops);
        }
        self.settle(now);
        self.inner.enqueue(now, packet, drops);
        if self.credit >= 0 && self.inner.backlog().packets > 0 {
            self.due = Some(now);
        }
    }

    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P> {
        self.settle(now);
        let Some(rate) = self.rate else {
            self.lateness = Duration::ZERO;
            return self.inner.dequeue(now, drops);
        };
        if self.credit < 0 {
            return None;
        }
        let packet = self.inner.dequeue(now, drops);
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qdisc::{Fifo, discipline};
    use crate::testing::qdisc::{Dropped, TestPacket};
    use crate::units::Limit;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const MBIT_96: Rate = Rate::from_mbit_per_sec(96);

    type Subject = Shaper<TestPacket, Fifo<TestPacket>>;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_nanos(micros * 1000)
    }

    /// A shaper with `packets` waiting since time 0.
    fn filled(rate: Option<Rate>, packets: u64) -> Subject {
        let mut shaper = Shaper::new(Fifo::new(Limit::Packets(packets)), ShaperParams::default());
        shaper.set_rate(Timestamp::ZERO, rate);
        for sequence in 0..packets {
            let packet = TestPacket { sequence, ..TestPacket::default() };
            shaper.enqueue(Timestamp::ZERO, packet, &mut Dropped::default());
        }
        shaper
    }

    /// All packets that may leave at `now`; their number.
    fn drain(shaper: &mut Subject, now: Timestamp) -> u64 {
        core::iter::from_fn(|| shaper.dequeue(now, &mut Dropped::default())).count() as u64
    }

    #[test]
    fn departures_are_paced_to_absolute_times_without_drift() {
        let mut shaper = filled(Some(MBIT_96), 100_000);
        let mut departures = 0;
        let mut now = Timestamp::ZERO;
        while let Some(timer) = shaper.next_timer() {
            now = now.max(timer);
            assert!(shaper.dequeue(now, &mut Dropped::default()).is_some());
            departures += 1;
        }
        assert_eq!(departures, 100_000);
        // 99,999 packets of 1514 bytes lie between the first departure and the last: 126166.67 ns
        // each, and each instant rounded up on its own.
        assert_eq!(now, Timestamp::from_nanos((99_999_u64 * 1514 * 8 * 1000).div_ceil(96)));
    }

    #[test]
    fn a_thousand_rate_changes_a_second_send_what_the_rates_add_up_to() {
        // Where Linux' TBF sends 105 and 152 Mbit/s at 850 and 4750 changes a second.
        for changes_per_sec in [100, 850, 4750, 50_000] {
            let mut shaper = filled(Some(MBIT_96), 10_000);
            let (mut packets, mut changes) = (0, 0);
            // The host looks every 20 us, sending and changing what is due.
            for now in (0..1_000_000).step_by(20) {
                while changes * 1_000_000 <= now * changes_per_sec {
                    shaper.set_rate(at(now), Some(MBIT_96));
                    changes += 1;
                }
                packets += drain(&mut shaper, at(now));
            }
            let sent = ByteCount::new(packets * 1514).per(Duration::from_secs(1)).unwrap();
            // One packet more or less is 0.012 Mbit/s.
            assert!((95.98..=96.02).contains(&sent.as_mbit_per_sec_f64()), "{sent}");
        }
    }

    proptest! {
        #[test]
        fn any_rates_send_their_time_weighted_mean(
            steps in prop::collection::vec((0u64..400_000_000, 1u64..300_000), 500..1000)
        ) {
            let mut shaper = filled(Some(Rate::ZERO), 100_000);
            let (mut now, mut packets, mut bits) = (Timestamp::ZERO, 0, 0.0);
            for (rate, nanos) in steps {
                shaper.set_rate(now, Some(Rate::from_bits_per_sec(rate)));
                let end = now + Duration::from_nanos(nanos);
                while let Some(timer) = shaper.next_timer().filter(|timer| *timer <= end) {
                    now = now.max(timer);
                    packets += shaper.dequeue(now, &mut Dropped::default()).map_or(0, |_| 1);
                }
                now = end;
                bits += rate as f64 * nanos as f64 / 1e9;
            }
            let ahead = packets as f64 * 1514.0 * 8.0 - bits;
            // A punctual host leaves at most the packet under way.
            prop_assert!((-1.0..=1514.0 * 8.0).contains(&ahead), "{ahead} bits ahead");
        }
    }

    #[test]
    fn a_new_rate_moves_the_next_departure_at_once() {
        let mut shaper = filled(Some(Rate::from_mbit_per_sec(1)), 10);
        assert_eq!(drain(&mut shaper, Timestamp::ZERO), 1);
        assert_eq!(shaper.next_timer(), Some(at(12_112)));
        // Half of the packet is paid for after 6056 us, the other half takes a tenth of that.
        shaper.set_rate(at(6056), Some(Rate::from_mbit_per_sec(10)));
        assert_eq!(shaper.next_timer(), Some(Timestamp::from_nanos(6_661_600)));
        shaper.set_rate(at(6056), Some(Rate::ZERO));
        assert_eq!(shaper.next_timer(), None);
        assert_eq!(drain(&mut shaper, at(1_000_000)), 0);
        shaper.set_rate(at(1_000_000), Some(Rate::from_mbit_per_sec(1)));
        assert_eq!(shaper.next_timer(), Some(at(1_006_056)));
    }

    #[test]
    fn a_host_that_comes_late_loses_no_throughput() {
        let mut shaper = filled(Some(MBIT_96), 20_000);
        let packets: u64 = (0..=333).map(|wake| drain(&mut shaper, at(wake * 3000))).sum();
        // 999 ms at 96 Mbit/s and the packet at time 0.
        assert_eq!(packets, 999_000 * 12 / 1514 + 1);
    }

    #[test]
    fn a_host_that_stops_for_a_second_catches_up_a_burst_only() {
        let mut shaper = filled(Some(MBIT_96), 20_000);
        assert_eq!(drain(&mut shaper, Timestamp::ZERO), 1);
        // 5 ms at 96 Mbit/s, and the packet that credit 0 lets through.
        assert_eq!(drain(&mut shaper, at(1_000_000)), 60_000 / 1514 + 1);
    }

    #[test]
    fn an_idle_time_earns_two_packets_however_long_it_was() {
        let mut shaper = filled(Some(MBIT_96), 1);
        assert_eq!(drain(&mut shaper, Timestamp::ZERO), 1);
        let now = at(60_000_000);
        let mut sent = 0;
        for _ in 0..5 {
            shaper.enqueue(now, TestPacket::default(), &mut Dropped::default());
            sent += drain(&mut shaper, now);
        }
        assert_eq!(sent, 2);
    }

    #[test]
    fn each_departure_says_how_late_it_was() {
        let mut shaper = filled(Some(Rate::from_mbit_per_sec(1)), 10);
        drain(&mut shaper, Timestamp::ZERO);
        let mut lateness = |now| {
            let packet = shaper.dequeue(at(now), &mut Dropped::default());
            packet.map(|_| shaper.lateness().as_micros())
        };
        assert_eq!(lateness(12_112), Some(0));
        assert_eq!(lateness(24_223), None);
        assert_eq!(lateness(24_224 + 77), Some(77));
        // Late for two packets: the bucket holds the credit for the second.
        assert_eq!(lateness(36_336 + 13_112), Some(13_112));
        assert_eq!(lateness(36_336 + 13_112), Some(1000));
        assert_eq!(lateness(36_336 + 13_112), None);
    }

    #[test]
    fn late_packets_sent_together_are_each_measured_against_their_own_time() {
        let mut shaper = filled(Some(MBIT_96), 10);
        drain(&mut shaper, Timestamp::ZERO);
        let lateness: Vec<u128> = core::iter::from_fn(|| {
            shaper.dequeue(at(500), &mut Dropped::default())?;
            Some(shaper.lateness().as_micros())
        })
        .collect();
        // Due at 126.2, 252.3 and 378.5 us.
        assert_eq!(lateness, [373, 247, 121]);
    }

    #[test]
    fn unshaped_packets_leave_at_once_and_leave_no_credit_behind() {
        let mut shaper = filled(None, 10);
        assert_eq!(shaper.next_timer(), Some(Timestamp::ZERO));
        for _ in 0..5 {
            shaper.dequeue(at(10), &mut Dropped::default()).unwrap();
        }
        assert_eq!(shaper.lateness(), Duration::ZERO);
        shaper.set_rate(at(1_000_000), Some(MBIT_96));
        assert_eq!(drain(&mut shaper, at(1_000_000)), 1);
        assert_eq!(shaper.backlog().packets, 4);
    }

    #[test]
    fn the_largest_rates_and_times_overflow_nothing() {
        let params = ShaperParams { burst: Burst::Time(Duration::MAX), ..Default::default() };
        let mut shaper = Shaper::new(Fifo::new(Limit::Packets(9)), params);
        let mut drops = Dropped::default();
        for (now, rate) in [(0, u64::MAX), (u64::MAX, u64::MAX), (5, 1), (u64::MAX, 0)] {
            shaper.set_rate(Timestamp::from_nanos(now), Some(Rate::from_bits_per_sec(rate)));
            shaper.enqueue(Timestamp::from_nanos(now), TestPacket::default(), &mut drops);
            let _ = shaper.dequeue(Timestamp::MAX, &mut drops);
            let _ = shaper.next_timer();
        }
    }

    #[test]
    fn the_default_is_that_of_the_registry() {
        let spec = Spec::named("shaper");
        let spec = spec.with_defaults(discipline(&spec).unwrap().params);
        assert_eq!(ShaperParams::from_spec(&spec), Ok(ShaperParams::default()));
    }

    #[test]
    fn rates_and_bursts_out_of_range_are_refused() {
        for (key, value) in [
            ("rate", "0bit/s"),
            ("rate", "2Tbit/s"),
            ("burst", "2s"),
            ("burst", "1GB"),
            ("burst", "5"),
            ("bucket", "100B"),
        ] {
            let spec = Spec::named("shaper")
                .with("rate", crate::spec::Value::Text("1Mbit/s".into()))
                .with(key, crate::spec::Value::Text(value.into()));
            let error = crate::qdisc::build::<TestPacket>(&spec).err().expect("refused");
            assert_eq!((error.key.as_str(), error.value.trim_matches('"')), (key, value));
        }
    }
}
