//! Strict priority: the band of the lowest number that has something to send goes first.
//!
//! ```text
//! band of a packet = min(Packet::class(), bands - 1)
//! ```
//! Any discipline may stand in a band, a shaper included: while it holds its packets back, the
//! bands below it go on. The classes come from the rules in `classes`, which the host applies with
//! [`super::Classifier`] before it enqueues.
//!
//! Source: Linux net/sched/sch_prio.c. A busy band starves those below it for as long as it is
//! busy; that is what strict priority means.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::packet::Packet;
use crate::qdisc::{Backlog, Discipline, DropSink, Qdisc};
use crate::spec::Described;
use crate::units::{Rate, Timestamp};

/// TCQ_PRIO_BANDS of Linux.
pub(super) const BANDS_MAX: usize = 16;

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "prio",
    summary: "strict priority over bands, any discipline in each",
    sources: &["Linux net/sched/sch_prio.c"],
    params: &[
        &Described {
            name: "bands",
            summary: "the disciplines, first served first",
            default: None,
            allowed: "a list of 1 to 16 qdiscs such as [{ kind = \"sfq\" }, { kind = \"fifo\" }]",
        },
        &Described {
            name: "classes",
            summary: "rules that give packets a class; the first match wins, no match: last band",
            default: None,
            allowed: "a list of rules such as [{ dscp = 46, class = 0 }]",
        },
    ],
};

/// Strict priority over bands.
pub struct Prio<P: Packet> {
    bands: Vec<Box<dyn Qdisc<P> + Send>>,
}

impl<P: Packet> Prio<P> {
    /// Over `bands`, first served first. Without any band every packet is dropped.
    pub fn new(bands: Vec<Box<dyn Qdisc<P> + Send>>) -> Self {
        Self { bands }
    }
}

impl<P: Packet> Qdisc<P> for Prio<P> {
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        let last = self.bands.len().saturating_sub(1);
        match self.bands.get_mut(usize::from(packet.class()).min(last)) {
            Some(band) => band.enqueue(now, packet, drops),
            None => drops.dropped(packet, crate::qdisc::DropReason::Overlimit),
        }
    }

    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P> {
        self.bands.iter_mut().find_map(|band| band.dequeue(now, drops))
    }

    fn next_timer(&self) -> Option<Timestamp> {
        self.bands.iter().filter_map(|band| band.next_timer()).min()
    }

    fn backlog(&self) -> Backlog {
        self.bands.iter().map(|band| band.backlog()).fold(Backlog::default(), |sum, band| Backlog {
            packets: sum.packets + band.packets,
            bytes: sum.bytes + band.bytes,
        })
    }

    /// Any band may have all of it.
    fn set_service_rate(&mut self, rate: Option<Rate>) {
        self.bands.iter_mut().for_each(|band| band.set_service_rate(rate));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qdisc::{Fifo, Shaper, ShaperParams};
    use crate::testing::qdisc::{Dropped, TestPacket};
    use crate::units::{Duration, Limit};

    fn packet(class: u8) -> TestPacket {
        TestPacket { class, ..TestPacket::default() }
    }

    fn fifo() -> Fifo<TestPacket> {
        Fifo::new(Limit::Packets(10))
    }

    #[test]
    fn lower_bands_wait_until_higher_ones_are_empty_and_high_classes_share_the_last() {
        let mut prio = Prio::new(alloc::vec![Box::new(fifo()), Box::new(fifo())]);
        let mut drops = Dropped::default();
        for class in [7, 0, 1, 0] {
            prio.enqueue(Timestamp::ZERO, packet(class), &mut drops);
        }
        assert_eq!(prio.backlog().packets, 4);
        let order = core::iter::from_fn(|| prio.dequeue(Timestamp::ZERO, &mut drops));
        assert_eq!(order.map(|packet| packet.class).collect::<Vec<_>>(), [0, 0, 7, 1]);
    }

    #[test]
    fn a_shaped_band_lets_those_below_go_on() {
        let mut shaper = Shaper::new(fifo(), ShaperParams::default());
        shaper.set_rate(Timestamp::ZERO, Some(Rate::from_mbit_per_sec(1)));
        let mut prio = Prio::new(alloc::vec![Box::new(shaper), Box::new(fifo())]);
        let mut drops = Dropped::default();
        for class in [0, 0, 1] {
            prio.enqueue(Timestamp::ZERO, packet(class), &mut drops);
        }
        let mut next = |prio: &mut Prio<TestPacket>, at| {
            prio.dequeue(Timestamp::ZERO + at, &mut drops).map(|packet| packet.class)
        };
        assert_eq!(next(&mut prio, Duration::ZERO), Some(0));
        assert_eq!(next(&mut prio, Duration::ZERO), Some(1));
        assert_eq!(next(&mut prio, Duration::ZERO), None);
        // 1514 bytes at 1 Mbit/s.
        let timer = prio.next_timer().unwrap();
        assert_eq!(timer, Timestamp::ZERO + Duration::from_micros(12_112));
        assert_eq!(next(&mut prio, Duration::from_micros(12_112)), Some(0));
    }
}
