//! Strict priority: the band of the lowest number that has something to send goes first.
//!
//! Any discipline may stand in a band, a shaper included: while it holds its packets back, the
//! bands below it go on. The classes come from the rules in `classes`, which the host applies with
//! [`super::Classifier`] before it enqueues. What no rule matches stands in the last band.
//!
//! Source: Linux net/sched/sch_prio.c. A busy band starves those below it for as long as it is
//! busy; that is what strict priority means.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::packet::Packet;
use crate::qdisc::bands::{BANDS, Bands};
use crate::qdisc::classify::CLASSES;
use crate::qdisc::{Backlog, Discipline, DropSink, Qdisc};
use crate::spec::{Spec, SpecError};
use crate::units::{Rate, Timestamp};

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "prio",
    summary: "strict priority over bands, any discipline in each",
    sources: &["Linux net/sched/sch_prio.c"],
    params: &[&BANDS, &CLASSES],
};

/// Strict priority over bands.
pub struct Prio<P: Packet> {
    bands: Bands<P>,
}

impl<P: Packet> Prio<P> {
    /// Over `bands`, first served first. Without any band every packet is dropped.
    pub fn new(bands: Vec<Box<dyn Qdisc<P> + Send>>) -> Self {
        Self { bands: Bands(bands) }
    }

    pub(super) fn from_spec(spec: &Spec, levels: usize) -> Result<Self, SpecError>
    where
        P: Send + 'static,
    {
        Ok(Self { bands: Bands::from_spec(spec, levels)? })
    }
}

impl<P: Packet> Qdisc<P> for Prio<P> {
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        self.bands.enqueue(now, packet, drops);
    }

    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P> {
        self.bands.0.iter_mut().find_map(|band| band.dequeue(now, drops))
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
