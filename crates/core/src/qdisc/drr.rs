//! Deficit round robin: hashed flows in turn, each sending what its quantum and its saved deficit
//! allow; one shared buffer.
//!
//! ```text
//! flow's turn  : head <= deficit -> send it; deficit -= its bytes
//!                otherwise       -> deficit += quantum, next flow
//! flow empty   : out of the round, deficit forgotten
//! over limit   : the longest flow gives up its newest packet
//! ```
//! Source: M. Shreedhar and G. Varghese, "Efficient Fair Queuing using Deficit Round Robin",
//! IEEE/ACM Transactions on Networking 4(3), 1996, section III (with buffer stealing).
//!
//! It differs from [`super::Sfq`] in that a flow never overdraws its deficit and that the hash key
//! stays. Work is O(1) a packet as long as the quantum is at least the largest packet.

use alloc::vec::Vec;

use crate::packet::Packet;
use crate::qdisc::buffer::{Buffer, DropFrom};
use crate::qdisc::params::{FLOWS_MAX, Holding, QUANTUM, SEED};
use crate::qdisc::round::{Links, Round};
use crate::qdisc::{Backlog, Discipline, DropSink, Qdisc, flow_index};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Limit, Rate, Timestamp};

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "drr",
    summary: "deficit round robin over hashed flows, drops from the longest",
    sources: &["Shreedhar and Varghese, IEEE/ACM ToN 1996"],
    params: &[&LIMIT, &FLOWS, &QUANTUM, &SEED],
};

const LIMIT: Param<Holding> =
    Param::new("limit", "what all flows hold together; the default is that of sfq")
        .or(Holding(Limit::Packets(1200)));
const FLOWS: Param<u64> =
    Param::new("flows", "number of queues that flows are hashed to; the default is that of sfq")
        .or(1024)
        .within(1..=FLOWS_MAX);

/// Parameters of [`Drr`].
#[derive(Clone, Debug, PartialEq)]
pub struct DrrParams {
    /// What all flows may hold together.
    pub limit: Limit,
    /// Number of queues, 1 to 65536.
    pub flows: u32,
    /// Bytes added to a flow's deficit a round.
    pub quantum: ByteCount,
    /// Seed of the flow hash.
    pub seed: u64,
}

impl DrrParams {
    pub(super) fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        Ok(Self {
            limit: LIMIT.of(spec)?.0,
            flows: FLOWS.of(spec)? as u32,
            quantum: QUANTUM.of(spec)?,
            seed: SEED.of(spec)?,
        })
    }
}

/// Deficit round robin.
pub struct Drr<P> {
    params: DrrParams,
    buffer: Buffer<P>,
    links: Links,
    round: Round,
    deficits: Vec<ByteCount>,
}

impl<P: Packet> Drr<P> {
    /// Empty queues.
    pub fn new(params: DrrParams) -> Self {
        Self {
            buffer: Buffer::new(params.flows, params.limit, DropFrom::Tail),
            links: Links::new(params.flows),
            round: Round::EMPTY,
            deficits: alloc::vec![ByteCount::ZERO; params.flows as usize],
            params,
        }
    }

    pub(super) fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        Ok(Self::new(DrrParams::from_spec(spec)?))
    }
}

impl<P: Packet> Qdisc<P> for Drr<P> {
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        let flow = flow_index(&packet, self.params.seed, self.params.flows);
        self.buffer.push(now, flow, packet, drops);
        if self.buffer.flow_backlog(flow).packets > 0 && !self.links.is_listed(flow) {
            self.round.push_back(&mut self.links, flow);
            self.deficits[flow as usize] = self.params.quantum;
        }
    }

    fn dequeue(&mut self, _now: Timestamp, _drops: &mut dyn DropSink<P>) -> Option<P> {
        loop {
            let flow = self.round.front()?;
            let deficit = &mut self.deficits[flow as usize];
            let Some(len) = self.buffer.front(flow).map(Packet::len) else {
                self.round.pop_front(&mut self.links);
                continue;
            };
            if len <= *deficit {
                *deficit -= len;
                let packet = self.buffer.pop(flow);
                if self.buffer.flow_backlog(flow).packets == 0 {
                    self.round.pop_front(&mut self.links);
                }
                return packet;
            }
            *deficit += self.params.quantum;
            self.round.rotate(&mut self.links);
        }
    }

    fn next_timer(&self) -> Option<Timestamp> {
        self.buffer.backlog().ready()
    }

    fn backlog(&self) -> Backlog {
        self.buffer.backlog()
    }

    fn set_service_rate(&mut self, rate: Option<Rate>) {
        self.buffer.set_rate(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::qdisc::{Dropped, TestPacket};

    #[test]
    fn a_flow_waits_until_its_saved_deficit_covers_its_packet() {
        let mut drr = Drr::new(DrrParams {
            limit: Limit::Packets(100),
            flows: 1024,
            quantum: ByteCount::new(500),
            seed: 0,
        });
        let mut drops = Dropped::default();
        for (flow, len) in [(1, 1200), (1, 200), (1, 200), (2, 300), (2, 300), (2, 300), (2, 900)] {
            let packet = TestPacket { flow, len: ByteCount::new(len), ..TestPacket::default() };
            drr.enqueue(Timestamp::ZERO, packet, &mut drops);
        }
        let next = || drr.dequeue(Timestamp::ZERO, &mut drops);
        let order: Vec<(u32, u64)> =
            core::iter::from_fn(next).map(|packet| (packet.flow, packet.len.as_u64())).collect();
        // Deficits at the end of each turn. Flow 1: 500, 1000, 1500 - 1400 = 100, then 600 - 200.
        // Flow 2: 500 - 300 = 200, 700 - 600 = 100, 600, and 1100 after flow 1 has left.
        let expected = [(2, 300), (2, 300), (2, 300), (1, 1200), (1, 200), (1, 200), (2, 900)];
        assert_eq!(order, expected);
    }
}
