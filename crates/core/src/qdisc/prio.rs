//! Strict priority: the band of the lowest number that has something to send goes first.
//!
//! Any discipline may stand in a band, a shaper included: while it holds its packets back, the
//! bands below it go on. The classes come from the rules in `classes`, which the host applies with
//! [`super::Classifier`] before it enqueues. A packet that no rule matches goes to the last band.
//!
//! Source: Linux net/sched/sch_prio.c. A busy band starves the bands below it until it is empty, as
//! strict priority means.

use alloc::boxed::Box;

use crate::packet::Packet;
use crate::qdisc::bands::{BANDS, Bands};
use crate::qdisc::classify::CLASSES;
use crate::qdisc::{Built, Discipline, Ets};
use crate::spec::Spec;

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "prio",
    summary: "strict priority over bands, any discipline in each",
    sources: &["Linux net/sched/sch_prio.c"],
    params: &[&BANDS, &CLASSES],
};

/// Builds `ets` in which no band shares.
pub(super) fn build<P: Packet + Send + 'static>(spec: &Spec, levels: usize) -> Built<P> {
    Ok(Box::new(Ets::over(Bands::from_spec(spec, levels)?, core::iter::empty())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qdisc::{Fifo, Qdisc, Shaper, ShaperParams};
    use crate::testing::qdisc::{Dropped, TestPacket};
    use crate::units::{Duration, Limit, Rate, Timestamp};
    use alloc::vec::Vec;

    fn packet(class: u8) -> TestPacket {
        TestPacket { class, ..TestPacket::default() }
    }

    fn fifo() -> Fifo<TestPacket> {
        Fifo::new(Limit::Packets(10))
    }

    #[test]
    fn lower_bands_wait_and_excess_classes_share_last() {
        let mut prio = Ets::new(alloc::vec![Box::new(fifo()), Box::new(fifo())], &[]);
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
        let mut prio = Ets::new(alloc::vec![Box::new(shaper), Box::new(fifo())], &[]);
        let mut drops = Dropped::default();
        for class in [0, 0, 1] {
            prio.enqueue(Timestamp::ZERO, packet(class), &mut drops);
        }
        let mut next = |prio: &mut Ets<TestPacket>, at| {
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
