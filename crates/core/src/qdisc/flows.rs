//! Which queue a flow uses: flows are hashed to the queues of their class.
//!
//! ```text
//! classes  : each has queues of its own, so flows of two classes never share one
//! one way  : queue = flow_hash(key) scaled to the queues of the class
//! more ways: the hash names a set of that many queues, and one queue of the set as the flow's home. The
//!            flow uses the queue that is bound to it. Otherwise the first free queue from its home on
//!            becomes bound to it. If no queue is free, the flow is a guest in its home
//! ```
//! Source: T. Høiland-Jørgensen, D. Täht and J. Morton, "Piece of CAKE: A Comprehensive Queue Management
//! Solution for Home Gateways", LANMAN 2018 (8-way set-associative hashing); Linux net/sched/sch_cake.c.
//! Two of 20 flows share one of 1024 queues in 17 % of all cases with one way, and with eight ways as good as
//! never: nine flows would have to meet in one of 128 sets.
//!
//! Departure from Linux, which binds a home to its guest: a guest stays where it is until that queue is free,
//! even when another queue becomes free. So all packets of a flow stand in one queue and keep their order.

use alloc::vec::Vec;

use crate::packet::Packet;
use crate::qdisc::params::FLOWS_MAX;
use crate::spec::{Param, Spec, SpecError};

/// The parameter of every discipline that hashes flows.
pub(super) const WAYS: Param<u64> = Param::new(
    "ways",
    "number of queues that a flow searches for a free one before it shares one (CAKE: 8)",
)
.or(1)
.within(1..=8)
.also(", a power of two that divides the number of queues");

/// How many queues each of `classes` classes has, by the parameter `queues` of `spec`, and how many ways.
pub(super) fn queues_and_ways(
    spec: &Spec,
    queues: &Param<u64>,
    classes: usize,
) -> Result<(u32, u32), SpecError> {
    let (count, ways) = (queues.of(spec)?, WAYS.of(spec)?);
    if count * classes as u64 > FLOWS_MAX {
        return Err(queues.refused(spec));
    }
    if !ways.is_power_of_two() || !count.is_multiple_of(ways) {
        return Err(WAYS.refused(spec));
    }
    Ok((count as u32, ways as u32))
}

/// The queues of all classes.
pub(super) struct Flows {
    /// Sets of queues in each class.
    sets: u32,
    /// Queues in each set.
    ways: u32,
    last_class: u32,
    /// The flow in each queue; nothing where there is one way.
    bindings: Vec<Binding>,
}

/// The flows of a queue that is not free.
#[derive(Clone, Copy, Default)]
struct Binding {
    /// Hash of the flow that the queue is bound to.
    hash: u64,
    /// Other flows have come since.
    has_guests: bool,
}

impl Flows {
    /// Free queues: `queues` in each of `classes` classes, in sets of `ways`, a power of two that divides
    /// `queues`.
    pub fn new(queues: u32, ways: u32, classes: usize) -> Self {
        let last_class = classes.saturating_sub(1) as u32;
        let bindings = if ways == 1 { 0 } else { queues * (last_class + 1) };
        Self {
            sets: queues / ways,
            ways,
            last_class,
            bindings: alloc::vec![Binding::default(); bindings as usize],
        }
    }

    /// Number of queues in all classes together.
    pub fn count(&self) -> u32 {
        self.of_a_class() * (self.last_class + 1)
    }

    /// The class of the flows in `queue`.
    pub fn class_of(&self, queue: u32) -> usize {
        // Spares the division where no classes are configured.
        if self.last_class == 0 { 0 } else { (queue / self.of_a_class()) as usize }
    }

    /// The queue that `packet` belongs to under `key`. Only a queue that is empty may be free.
    #[inline]
    pub fn queue<P: Packet>(&mut self, packet: &P, key: u64, is_free: impl Fn(u32) -> bool) -> u32 {
        let hash = packet.flow_hash(key);
        let class = u32::from(packet.class()).min(self.last_class);
        let set = class * self.of_a_class() + scale(hash, self.sets) * self.ways;
        if self.ways == 1 { set } else { self.queue_in(set, hash, is_free) }
    }

    fn queue_in(&mut self, set: u32, hash: u64, is_free: impl Fn(u32) -> bool) -> u32 {
        // The set is named by the upper bits.
        let queue = |way: u32| set + ((hash as u32).wrapping_add(way) & (self.ways - 1));
        let mut queues = (0..self.ways).map(queue);
        let home = queue(0);
        let bound = queues.clone().find(|queue| self.bindings[*queue as usize].hash == hash);
        let may_be_guest = self.bindings[home as usize].has_guests && !is_free(home);
        let own = match bound {
            None if may_be_guest => None,
            bound => bound.or_else(|| queues.find(|queue| is_free(*queue))),
        };
        let Some(own) = own else {
            self.bindings[home as usize].has_guests = true;
            return home;
        };
        if is_free(own) {
            self.bindings[own as usize] = Binding { hash, has_guests: false };
        }
        own
    }

    fn of_a_class(&self) -> u32 {
        self.sets * self.ways
    }
}

/// Scales `hash` to `0..count`.
fn scale(hash: u64, count: u32) -> u32 {
    let high = hash >> 32;
    ((high * u64::from(count)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::qdisc::TestPacket;
    use alloc::collections::BTreeSet;

    fn packet(flow: u32, class: u8) -> TestPacket {
        TestPacket { flow, class, ..TestPacket::default() }
    }

    /// Queues of the flows, given which queues are not free.
    fn place(flows: &mut Flows, flow: u32, busy: &BTreeSet<u32>) -> u32 {
        flows.queue(&packet(flow, 0), 7, |queue| !busy.contains(&queue))
    }

    #[test]
    fn one_way_scales_the_hash_to_the_queues() {
        let mut flows = Flows::new(1000, 1, 1);
        for flow in 0..100 {
            let hash = packet(flow, 0).flow_hash(7);
            let expected = (u128::from(hash >> 32) * 1000) >> 32;
            let queue = flows.queue(&packet(flow, 5), 7, |_| panic!("nobody looks"));
            assert_eq!(u128::from(queue), expected);
        }
    }

    #[test]
    fn flows_of_a_set_have_separate_free_queues() {
        for ways in [2, 4, 8] {
            // One set: all flows meet.
            let mut flows = Flows::new(ways, ways, 1);
            let mut busy = BTreeSet::new();
            for flow in 0..ways {
                assert!(busy.insert(place(&mut flows, flow, &busy)), "flow {flow} shares a queue");
            }
            let queues: Vec<u32> = (0..ways).map(|flow| place(&mut flows, flow, &busy)).collect();
            let again: Vec<u32> = (0..ways).map(|flow| place(&mut flows, flow, &busy)).collect();
            assert_eq!(queues, again);
            assert_eq!(queues.iter().copied().collect::<BTreeSet<u32>>(), busy);
        }
    }

    #[test]
    fn guest_stays_until_its_home_is_free() {
        let mut flows = Flows::new(4, 4, 1);
        let mut busy = BTreeSet::new();
        let owned: Vec<u32> = (0..4)
            .map(|flow| {
                let queue = place(&mut flows, flow, &busy);
                busy.insert(queue);
                queue
            })
            .collect();
        let home = place(&mut flows, 9, &busy);
        let host = owned.iter().position(|queue| *queue == home).unwrap();
        // Another queue becomes free: the guest's packets stand at home, and its next ones follow them.
        let other = owned[(host + 1) % 4];
        busy.remove(&other);
        assert_eq!(place(&mut flows, 9, &busy), home);
        // A flow that has a queue keeps it.
        assert_eq!(place(&mut flows, host as u32, &busy), home);
        // The home was empty for a moment, and its owner came first.
        busy.remove(&home);
        assert_eq!(place(&mut flows, host as u32, &busy), home);
        busy.insert(home);
        assert_eq!(place(&mut flows, 9, &busy), other);
    }

    #[test]
    fn twenty_flows_collide_with_one_way_not_eight() {
        let has_shared = |ways: u32, seed: u64| {
            let key = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut flows = Flows::new(1024, ways, 1);
            let mut busy = BTreeSet::new();
            for flow in 0..20 {
                let queue = flows.queue(&packet(flow, 0), key, |queue| !busy.contains(&queue));
                busy.insert(queue);
            }
            busy.len() < 20
        };
        let shared = |ways| (0..1000).filter(|seed| has_shared(ways, *seed)).count();
        let (one_way, eight_ways) = (shared(1), shared(8));
        // 1 - (1 - 1/1024) x ... x (1 - 19/1024) = 0.170.
        assert!((120..=220).contains(&one_way), "{one_way} of 1000 seeds");
        assert_eq!(eight_ways, 0);
    }

    #[test]
    fn classes_have_queues_of_their_own() {
        for ways in [1, 8] {
            let mut flows = Flows::new(8, ways, 3);
            assert_eq!(flows.count(), 24);
            for flow in 0..100 {
                // There are three classes: packets of class 3 go to the last.
                for (class, expected) in [(0, 0), (1, 1), (2, 2), (3, 2)] {
                    let queue = flows.queue(&packet(flow, class), 7, |_| true);
                    assert_eq!((flows.class_of(queue), queue / 8), (expected, expected as u32));
                }
            }
        }
    }

    #[test]
    fn uneven_ways_and_too_many_queues_are_refused() {
        const QUEUES: Param<u64> = Param::new("queues", "").or(1024).within(1..=FLOWS_MAX);
        let read = |queues: i64, ways: i64, classes| {
            let number = crate::spec::Value::Integer;
            let spec = Spec::named("x").with("queues", number(queues)).with("ways", number(ways));
            queues_and_ways(&spec, &QUEUES, classes).map_err(|error| error.key)
        };
        assert_eq!(read(1024, 8, 2), Ok((1024, 8)));
        assert_eq!(read(65_536, 1, 1), Ok((65_536, 1)));
        assert_eq!(read(65_536, 1, 2), Err("queues".into()));
        for (queues, ways) in [(1024, 3), (1024, 16), (1024, 0), (1020, 8), (1, 2)] {
            assert_eq!(read(queues, ways, 1), Err("ways".into()), "{queues} queues, {ways} ways");
        }
    }
}
