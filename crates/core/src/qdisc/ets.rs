//! Enhanced transmission selection: bands in strict priority, and behind them bands that share the rest by
//! weight.
//!
//! ```text
//! strict bands      : the first that has something to send goes first, as in `prio`
//! then the rest     : deficit > 0 -> send; deficit -= the packet's bytes
//!   in turn           otherwise   -> deficit += quantum x weight, next band
//!                     nothing to send now -> next band
//! ```
//! A band's share thus depends on its weight alone: neither on how many flows stand in it, nor on the sizes
//! of their packets. The other bands use the rest of a band's share, in proportion to their weights.
//!
//! Sources: IEEE 802.1Q-2018, section 37 (802.1Qaz); Linux net/sched/sch_ets.c.
//!
//! Departures from Linux:
//! - the scheduler does not look at a band's next packet in advance, since CoDel or a shaper chooses it when it
//!   leaves. A packet may overdraw the deficit, as in RFC 8290, and the overdraft counts in the next round,
//!   even if the band was empty in between;
//! - a band that is empty or holds its packets back (a shaper) keeps the rest of its deficit, which is never
//!   more than one round's.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::packet::Packet;
use crate::qdisc::bands::{BANDS, Bands};
use crate::qdisc::classify::{CLASSES, CLASSES_MAX};
use crate::qdisc::params::quantum;
use crate::qdisc::weights::Weights;
use crate::qdisc::{Backlog, Built, Discipline, DropSink, Qdisc};
use crate::spec::{Param, Spec};
use crate::units::{ByteCount, Rate, Timestamp};

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "ets",
    summary: "bands in strict priority, then bands that share by weight; any discipline in each",
    sources: &["IEEE 802.1Q-2018 section 37", "Linux net/sched/sch_ets.c"],
    params: &[&BANDS, &CLASSES, &STRICT, &WEIGHTS, &QUANTUM],
};

pub(super) fn build<P: Packet + Send + 'static>(spec: &Spec, levels: usize) -> Built<P> {
    let bands = Bands::from_spec(spec, levels)?;
    let sharing = bands.0.len().checked_sub(STRICT.of(spec)? as usize);
    let sharing = sharing.ok_or_else(|| STRICT.refused(spec))?;
    let weights = WEIGHTS.given(spec)?;
    if weights.is_some_and(|weights| weights.classes() != sharing) {
        return Err(WEIGHTS.refused(spec));
    }
    let quantum = QUANTUM.of(spec)?;
    let weight = |band| weights.map_or(1, |weights| weights.of(band));
    Ok(Box::new(Ets::over(bands, (0..sharing).map(|band| quantum * weight(band)))))
}

/// Number of strict bands (`tc-ets(8)`: strict).
const STRICT: Param<u64> = Param::new(
    "strict",
    "number of bands in strict priority, from the first; the other bands share",
)
.or(0)
.within(0..=CLASSES_MAX as u64)
.also(", at most the number of bands");
/// Weights of the sharing bands.
const WEIGHTS: Param<Weights> =
    Param::new("weights", "quanta of each sharing band; by default all are equal")
        .also(", one for each band that is not strict");
/// Bytes for each weight in a round (`tc-ets(8)`: quanta).
const QUANTUM: Param<ByteCount> = quantum("bytes that a band of weight 1 may send in a round");

/// Bands in strict priority, and bands that share.
pub struct Ets<P: Packet> {
    bands: Bands<P>,
    /// Number of strict bands.
    strict: usize,
    shares: Vec<Share>,
    /// Which of `shares` has its turn.
    turn: usize,
}

/// The deficit of one band that shares.
struct Share {
    /// Bytes a round.
    quantum: i64,
    /// Bytes in this turn; negative where a packet overdrew it.
    deficit: i64,
}

impl<P: Packet> Ets<P> {
    /// Over `bands`, the first strict and the last ones with a quantum each, above 0 bytes a round. Without
    /// any band every packet is dropped.
    pub fn new(bands: Vec<Box<dyn Qdisc<P> + Send>>, quanta: &[ByteCount]) -> Self {
        Self::over(Bands(bands), quanta.iter().copied())
    }

    /// Over `bands`; the last ones share by `quanta`.
    pub(super) fn over(bands: Bands<P>, quanta: impl Iterator<Item = ByteCount>) -> Self {
        let share = |quantum: ByteCount| Share { quantum: quantum.as_u64() as i64, deficit: 0 };
        let shares: Vec<Share> = quanta.take(bands.0.len()).map(share).collect();
        Self { strict: bands.0.len() - shares.len(), bands, shares, turn: 0 }
    }
}

impl<P: Packet> Qdisc<P> for Ets<P> {
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        self.bands.enqueue(now, packet, drops);
    }

    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P> {
        let (strict, sharing) = self.bands.0.split_at_mut(self.strict);
        if let Some(packet) = strict.iter_mut().find_map(|band| band.dequeue(now, drops)) {
            return Some(packet);
        }
        // Bands that have nothing to send now, a bit each.
        let mut silent = 0_u32;
        while (silent.count_ones() as usize) < self.shares.len() {
            let (band, share) = (&mut sharing[self.turn], &mut self.shares[self.turn]);
            if share.deficit <= 0 {
                share.deficit += share.quantum;
            } else if let Some(packet) = band.dequeue(now, drops) {
                share.deficit -= packet.len().as_u64() as i64;
                return Some(packet);
            } else {
                silent |= 1 << self.turn;
            }
            self.turn = (self.turn + 1) % self.shares.len();
        }
        None
    }

    fn next_timer(&self) -> Option<Timestamp> {
        self.bands.next_timer()
    }

    fn backlog(&self) -> Backlog {
        self.bands.backlog()
    }

    fn set_service_rate(&mut self, rate: Option<Rate>) {
        self.bands.set_service_rate(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qdisc::{Fifo, Shaper, ShaperParams, build};
    use crate::spec::Value;
    use crate::testing::qdisc::{Dropped, TestPacket};
    use crate::units::Limit;

    fn packet(class: u8, flow: u32, len: u64) -> TestPacket {
        TestPacket { class, flow, len: ByteCount::new(len), ..TestPacket::default() }
    }

    fn ets(bands: &[&str], params: &[(&str, Value)]) -> Spec {
        let bands = bands.iter().map(|kind| Value::Text((*kind).into())).collect();
        let spec = Spec::named("ets").with("bands", Value::List(bands));
        params.iter().fold(spec, |spec, (name, value)| spec.with(name, value.clone()))
    }

    fn list(weights: &[i64]) -> Value {
        Value::List(weights.iter().copied().map(Value::Integer).collect())
    }

    /// Bytes of each class among `total` bytes sent. For each arrival of `arrivals` that leaves, the next
    /// one like it comes.
    fn shares(spec: &Spec, arrivals: &[TestPacket], total: u64) -> Vec<u64> {
        let mut queue = build::<TestPacket>(spec).unwrap();
        let mut drops = Dropped::default();
        for packet in arrivals.iter().cycle().take(arrivals.len() * 50) {
            queue.enqueue(Timestamp::ZERO, packet.clone(), &mut drops);
        }
        let mut shares = alloc::vec![0; 4];
        while shares.iter().sum::<u64>() < total {
            let packet = queue.dequeue(Timestamp::ZERO, &mut drops).unwrap();
            shares[usize::from(packet.class)] += packet.len.as_u64();
            queue.enqueue(Timestamp::ZERO, packet, &mut drops);
        }
        assert!(drops.packets.is_empty());
        shares
    }

    #[test]
    fn shares_follow_weights_whatever_the_flows_and_sizes() {
        let spec = ets(&["sfq", "fifo", "drr"], &[("weights", list(&[5, 3, 2]))]);
        let mut arrivals = alloc::vec![packet(0, 0, 1514)];
        arrivals.extend((1..8).map(|flow| packet(1, flow, 100)));
        arrivals.extend((8..11).map(|flow| packet(2, flow, 700)));
        let shares = shares(&spec, &arrivals, 1_000_000);
        for (share, expected) in shares.iter().zip([500_000_u64, 300_000, 200_000]) {
            // A round of ten quanta is 15 kB.
            assert!(share.abs_diff(expected) < 20_000, "{shares:?}");
        }
    }

    #[test]
    fn unused_share_of_a_band_goes_to_rest() {
        let spec = ets(&["fifo", "fifo", "fifo"], &[("weights", list(&[8, 3, 1]))]);
        let shares = shares(&spec, &[packet(1, 0, 1000), packet(2, 0, 1000)], 1_000_000);
        assert_eq!(shares[0], 0);
        assert!(shares[1].abs_diff(750_000) < 20_000, "{shares:?}");
    }

    #[test]
    fn strict_bands_go_first_and_rest_share_evenly() {
        let spec = ets(&["fifo", "fifo", "fifo"], &[("strict", Value::Integer(1))]);
        let shares = shares(&spec, &[packet(1, 0, 300), packet(2, 0, 1500)], 1_000_000);
        assert!(shares[1].abs_diff(shares[2]) < 10_000, "{shares:?}");
        let mut queue = build::<TestPacket>(&spec).unwrap();
        let mut drops = Dropped::default();
        for class in [2, 1, 0, 2, 0] {
            queue.enqueue(Timestamp::ZERO, packet(class, 0, 1514), &mut drops);
        }
        let next = || queue.dequeue(Timestamp::ZERO, &mut drops);
        let order: Vec<u8> = core::iter::from_fn(next).map(|packet| packet.class).collect();
        assert_eq!(order, [0, 0, 1, 2, 2]);
    }

    #[test]
    fn waiting_band_leaves_the_link_to_the_rest() {
        let fifo = || Fifo::<TestPacket>::new(Limit::Packets(100));
        let mut shaper = Shaper::new(fifo(), ShaperParams::default());
        shaper.set_rate(Timestamp::ZERO, Some(Rate::from_mbit_per_sec(1)));
        let quanta = [64, 1].map(|weight| ByteCount::new(1514) * weight);
        let mut ets = Ets::new(alloc::vec![Box::new(shaper), Box::new(fifo())], &quanta);
        let mut drops = Dropped::default();
        for class in [0, 0, 0, 1, 1, 1] {
            ets.enqueue(Timestamp::ZERO, packet(class, 0, 1514), &mut drops);
        }
        let mut next = |at_us: u64| {
            let now = Timestamp::from_nanos(at_us * 1000);
            ets.dequeue(now, &mut drops).map(|packet| packet.class)
        };
        assert_eq!([next(0), next(0), next(0), next(0)], [Some(0), Some(1), Some(1), Some(1)]);
        assert_eq!(next(0), None);
        // 1514 bytes at 1 Mbit/s.
        assert_eq!([next(12_111), next(12_112)], [None, Some(0)]);
    }

    #[test]
    fn debt_is_paid_although_the_band_was_empty() {
        let mut queue = build::<TestPacket>(&ets(&["fifo", "fifo"], &[])).unwrap();
        let mut drops = Dropped::default();
        // One packet of 20 quanta stands in the first band, or none; the other is never empty.
        queue.enqueue(Timestamp::ZERO, packet(0, 0, 30_280), &mut drops);
        for _ in 0..50 {
            queue.enqueue(Timestamp::ZERO, packet(1, 0, 1514), &mut drops);
        }
        let mut sent = [0_u64; 2];
        for _ in 0..2000 {
            let packet = queue.dequeue(Timestamp::ZERO, &mut drops).unwrap();
            sent[usize::from(packet.class)] += packet.len.as_u64();
            queue.enqueue(Timestamp::ZERO, packet, &mut drops);
        }
        assert!(sent[0].abs_diff(sent[1]) <= 2 * 30_280, "{sent:?}");
    }

    #[test]
    fn what_does_not_fit_the_bands_is_refused() {
        let refusal = |params: &[(&str, Value)]| {
            let spec = ets(&["fifo", "fifo", "fifo"], params);
            build::<TestPacket>(&spec).err().map(|error| error.key)
        };
        let strict = |count| ("strict", Value::Integer(count));
        let weights = |weights: &[i64]| ("weights", list(weights));
        assert_eq!(refusal(&[strict(3)]), None);
        assert_eq!(refusal(&[strict(1), weights(&[3, 1])]), None);
        assert_eq!(refusal(&[strict(4)]), Some("strict".into()));
        assert_eq!(refusal(&[strict(3), weights(&[1])]), Some("weights".into()));
        assert_eq!(refusal(&[strict(1), weights(&[3, 1, 1])]), Some("weights".into()));
        assert_eq!(refusal(&[weights(&[3, 1])]), Some("weights".into()));
        assert_eq!(refusal(&[("quantum", Value::Text("1B".into()))]), Some("quantum".into()));
    }
}
