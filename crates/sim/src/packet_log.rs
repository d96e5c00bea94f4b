//! Optional record of every packet of a link.

use std::collections::VecDeque;

use forebay_core::packet::{Ecn, Packet as _};
use forebay_core::record::{Fate, PacketRecord};
use forebay_core::units::Timestamp;

use crate::packet::{Kind, Packet};

/// The sender of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The flow of this index, in either direction.
    Flow(usize),
    /// A message between the boxes of the bundle of this index, in either direction.
    Bundle(usize),
}

#[derive(Debug)]
struct Row {
    arrived: Timestamp,
    departed: Timestamp,
    released: Timestamp,
    identity: u64,
    flow: u32,
    queue_packets: u32,
    len: u16,
    kind: Kind,
    fate: Fate,
    ecn: Ecn,
}

/// The log of a link. A packet on the link carries the number of its row, counted from the first packet of
/// the run.
#[derive(Debug, Default)]
pub(crate) struct PacketLog {
    rows: VecDeque<Row>,
    /// Number of rows taken out.
    taken: u64,
}

impl PacketLog {
    /// A packet arrives; returns its row. The packet is passed by value: a borrowed one would have to be in
    /// memory even on links without a log.
    #[inline(never)]
    pub fn on_arrival(&mut self, now: Timestamp, packet: Packet) -> u64 {
        let (departed, released) = (Timestamp::MAX, Timestamp::MAX);
        let (identity, ecn) = (packet.identity(), packet.ecn());
        let (flow, len, kind) = (packet.flow(), packet.bytes(), packet.kind());
        let (arrived, fate, queue_packets) = (now, Fate::Inside, 0);
        let row = Row {
            arrived,
            departed,
            released,
            identity,
            flow,
            queue_packets,
            len,
            kind,
            fate,
            ecn,
        };
        self.rows.push_back(row);
        self.taken + self.rows.len() as u64 - 1
    }

    fn row(&mut self, number: u64) -> &mut Row {
        &mut self.rows[(number - self.taken) as usize]
    }

    /// Sets the queue length after the arrival of the last packet.
    pub fn set_queue(&mut self, packets: u64) {
        if let Some(row) = self.rows.back_mut() {
            row.queue_packets = u32::try_from(packets).unwrap_or(u32::MAX);
        }
    }

    /// Arrival time of the packet of `row`.
    pub fn arrived(&self, row: u64) -> Timestamp {
        self.rows[(row - self.taken) as usize].arrived
    }

    /// The packet of `row` goes no further.
    pub fn on_end(&mut self, row: u64, fate: Fate) {
        self.row(row).fate = fate;
    }

    /// The packet has left the server.
    #[inline(never)]
    pub fn on_departure(&mut self, now: Timestamp, packet: Packet) {
        let row = self.row(packet.queued);
        row.departed = now;
        let is_marked = packet.ecn() == Ecn::Ce && row.ecn != Ecn::Ce;
        // From here on only the mark matters.
        row.ecn = if is_marked { Ecn::Ce } else { Ecn::NotEct };
    }

    /// The packet of `row` reaches the far end at `at`.
    pub fn on_release(&mut self, row: u64, at: Timestamp) {
        let row = self.row(row);
        (row.released, row.fate) = (at, Fate::Delivered);
    }

    /// The records at `now`, for a network without site pairs; `owner` gives the owner of a packet by its
    /// flow number.
    pub fn records(
        &self,
        now: Timestamp,
        owner: impl Fn(Kind, u32) -> Owner,
    ) -> impl Iterator<Item = (Owner, PacketRecord)> {
        self.rows.iter().map(move |row| (owner(row.kind, row.flow), row.record(now)))
    }

    /// Takes out the first row if nothing can happen to its packet after `now`.
    pub fn take_settled(
        &mut self,
        now: Timestamp,
        owner: impl Fn(Kind, u32) -> Owner,
    ) -> Option<(Owner, PacketRecord)> {
        let row = self.rows.pop_front_if(|row| row.is_settled(now))?;
        self.taken += 1;
        Some((owner(row.kind, row.flow), row.record(now)))
    }
}

impl Row {
    fn is_settled(&self, now: Timestamp) -> bool {
        match self.fate {
            Fate::Delivered => self.released <= now,
            Fate::Inside => false,
            Fate::QueueDrop | Fate::Lost | Fate::EmulatorDrop => true,
        }
    }

    fn record(&self, now: Timestamp) -> PacketRecord {
        let past_ns = |at: Timestamp| if at <= now { at.as_nanos().max(1) } else { 0 };
        let is_inside = self.fate == Fate::Delivered && self.released > now;
        PacketRecord {
            arrived_ns: self.arrived.as_nanos(),
            departed_ns: past_ns(self.departed),
            released_ns: past_ns(self.released),
            identity: self.identity,
            bytes: self.len.into(),
            pair: 0,
            fate: if is_inside { Fate::Inside } else { self.fate },
            marked: self.departed <= now && self.ecn == Ecn::Ce,
            queue_packets: self.queue_packets,
        }
    }
}
