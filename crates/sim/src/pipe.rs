//! A delay line: packets in the order in which they come out, with one pending event.

use std::collections::VecDeque;

use forebay_core::units::Timestamp;

use crate::event::{Event, Events};
use crate::packet::Packet;

/// The delay line. Its delay is its owner's: a shorter one lets later packets overtake.
#[derive(Debug)]
pub(crate) struct Pipe {
    packets: VecDeque<(Timestamp, Packet)>,
    event: Event,
    /// Time of the pending event that counts.
    planned: Timestamp,
}

impl Pipe {
    /// An empty line whose packets come out with `event`.
    pub fn new(event: Event) -> Self {
        Self { packets: VecDeque::new(), event, planned: Timestamp::MAX }
    }

    /// Takes a packet that comes out at `due`.
    pub fn push(&mut self, due: Timestamp, packet: Packet, events: &mut Events) {
        if self.packets.back().is_none_or(|last| last.0 <= due) {
            self.packets.push_back((due, packet));
        } else {
            let place = self.packets.partition_point(|other| other.0 <= due);
            self.packets.insert(place, (due, packet));
        }
        if due < self.planned {
            self.planned = due;
            events.add(due, self.event);
        }
    }

    /// The packet whose event has fired; `None` for an event that was overtaken.
    pub fn pop(&mut self, now: Timestamp, events: &mut Events) -> Option<Packet> {
        if self.planned != now {
            return None;
        }
        let (_, packet) = self.packets.pop_front()?;
        self.planned = self.packets.front().map_or(Timestamp::MAX, |next| next.0);
        if self.planned != Timestamp::MAX {
            events.add(self.planned, self.event);
        }
        Some(packet)
    }

    /// Packets on the line.
    pub fn len(&self) -> u64 {
        self.packets.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Kind, SackHandle};

    fn packet(number: u32) -> Packet {
        let (sent, arrived) = (Timestamp::ZERO, Timestamp::ZERO);
        Packet { sent, arrived, flow: 0, number, sack: SackHandle::NONE, len: 1, kind: Kind::Data }
    }

    #[test]
    fn packets_come_out_by_time_and_those_sent_later_may_overtake() {
        let mut events = Events::default();
        let mut pipe = Pipe::new(Event::Forward(0));
        for (number, due) in [(0, 100), (1, 110), (2, 50), (3, 110), (4, 120)] {
            pipe.push(Timestamp::from_nanos(due), packet(number), &mut events);
        }
        assert_eq!(pipe.len(), 5);
        let mut out = Vec::new();
        while let Some((now, _)) = events.pop(Timestamp::MAX) {
            out.extend(pipe.pop(now, &mut events).map(|it| (now.as_nanos(), it.number)));
        }
        assert_eq!(out, [(50, 2), (100, 0), (110, 1), (110, 3), (120, 4)]);
    }

    #[test]
    fn one_event_is_pending_however_many_packets_are() {
        let mut events = Events::default();
        let mut pipe = Pipe::new(Event::Forward(0));
        for due in 0..1000 {
            pipe.push(Timestamp::from_nanos(due), packet(0), &mut events);
        }
        assert_eq!(events.len(), 1);
    }
}
