//! A delay line: packets in the order of their exit, with one pending event.

use std::collections::VecDeque;

use forebay_core::units::Timestamp;

use crate::event::{Event, Events, after};
use crate::packet::{Kind, Packet};
use crate::route::Step;
use crate::tcp::stack::Device;

/// Time that an acknowledgement takes on the access links, in nanoseconds ([`Device::ack_access_ps`]).
#[inline]
fn access_ns(packet: &Packet, ps_per_byte: u32) -> u64 {
    if packet.kind() == Kind::Ack {
        u64::from(packet.bytes()) * u64::from(ps_per_byte) / 1000
    } else {
        0
    }
}

/// The delay line.
#[derive(Debug)]
pub(crate) struct Line {
    /// Packets, each with its exit time in [`Packet::queued`].
    packets: VecDeque<Packet>,
    event: Event,
    /// Time of the pending event that counts.
    planned: Timestamp,
    delay_ns: u64,
    /// Part of the delay that does not follow the link's delay.
    extra_ns: u64,
    /// Extra time of an acknowledgement, in picoseconds per byte.
    ack_access_ps: u32,
    /// After a decrease of the delay, later packets come out before earlier ones.
    overtakes: bool,
    /// Latest exit time of all packets so far.
    latest: Timestamp,
    /// Next step of the packets.
    pub next: Step,
}

impl Line {
    /// An empty line whose packets come out with `event`, after `extra_ns` and the delay of its link.
    /// `device` sets overtaking and the access links.
    pub fn new(event: Event, extra_ns: u64, device: &Device, next: Step) -> Self {
        Self {
            packets: VecDeque::new(),
            event,
            planned: Timestamp::MAX,
            delay_ns: extra_ns,
            extra_ns,
            ack_access_ps: device.ack_access_ps,
            overtakes: device.packets_overtake,
            latest: Timestamp::ZERO,
            next,
        }
    }

    /// Sets the delay of its link, for later packets.
    pub fn set_delay(&mut self, delay_ns: u64) {
        self.delay_ns = delay_ns.saturating_add(self.extra_ns);
    }

    /// Sets whether later packets may come out before earlier ones; `None` keeps the device's default.
    pub fn set_overtaking(&mut self, overtakes: Option<bool>) {
        self.overtakes = overtakes.unwrap_or(self.overtakes);
    }

    /// Adds a packet; returns its arrival time at the end of the link.
    #[inline]
    pub fn push(&mut self, now: Timestamp, packet: Packet, events: &mut Events) -> Timestamp {
        self.push_late(now, 0, packet, events)
    }

    /// Adds a packet that takes `late_ns` longer than the delay; returns its arrival time at the end of the
    /// link.
    pub fn push_late(
        &mut self,
        now: Timestamp,
        late_ns: u64,
        packet: Packet,
        events: &mut Events,
    ) -> Timestamp {
        let packet = self.timed(now, late_ns, packet);
        let due = Timestamp::from_nanos(packet.queued);
        if due < self.latest {
            self.insert(packet);
        } else {
            self.packets.push_back(packet);
        }
        self.plan(due, events);
        self.end_of(&packet)
    }

    /// `packet` with its exit time in [`Packet::queued`], for a line that ends in another part of the network.
    #[inline]
    pub fn timed(&mut self, now: Timestamp, late_ns: u64, packet: Packet) -> Packet {
        let delay_ns = self.delay_ns + late_ns + access_ns(&packet, self.ack_access_ps);
        let mut due = after(now, delay_ns);
        if due >= self.latest || !self.overtakes {
            due = due.max(self.latest);
            self.latest = due;
        }
        packet.queued_at(due.as_nanos())
    }

    /// Arrival time at the end of the link of a packet with its exit time.
    #[inline]
    pub fn end_of(&self, packet: &Packet) -> Timestamp {
        Timestamp::from_nanos(packet.queued.saturating_sub(self.extra_ns))
    }

    /// Adds a packet with its exit time, from any part of the network.
    pub fn arrive(&mut self, packet: Packet, events: &mut Events) {
        self.insert(packet);
        self.plan(Timestamp::from_nanos(packet.queued), events);
    }

    #[inline]
    fn plan(&mut self, due: Timestamp, events: &mut Events) {
        if due < self.planned {
            self.planned = due;
            events.add(due, self.event);
        }
    }

    /// Inserts a packet in front of the packets that come out later.
    #[cold]
    fn insert(&mut self, packet: Packet) {
        let later = self.packets.iter().rev().take_while(|other| other.queued > packet.queued);
        let place = self.packets.len() - later.count();
        self.packets.insert(place, packet);
    }

    /// Removes the packet for the fired event; `None` for an event that is no longer current.
    pub fn pop(&mut self, now: Timestamp, events: &mut Events) -> Option<Packet> {
        if self.planned != now {
            return None;
        }
        let packet = self.packets.pop_front()?;
        self.planned =
            self.packets.front().map_or(Timestamp::MAX, |next| Timestamp::from_nanos(next.queued));
        if self.planned != Timestamp::MAX {
            events.add(self.planned, self.event);
        }
        Some(packet)
    }

    /// Packets on the line.
    #[cfg(any(test, debug_assertions))]
    pub fn len(&self) -> u64 {
        self.packets.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Kind;

    fn packet(number: u32) -> Packet {
        Packet::new(Kind::Data, 0, number, 1, Timestamp::ZERO)
    }

    /// Pushes packets at these times with these delays; returns their exit times and numbers in order.
    fn run(device: &Device, overtakes: Option<bool>, pushes: &[(u64, u64)]) -> Vec<(u64, u32)> {
        let mut events = Events::default();
        let mut line = Line::new(Event::Line(0), 0, device, Step::Deliver);
        line.set_overtaking(overtakes);
        for (number, (at, delay_ns)) in pushes.iter().enumerate() {
            line.set_delay(*delay_ns);
            line.push(Timestamp::from_nanos(*at), packet(number as u32), &mut events);
        }
        assert_eq!(line.len(), pushes.len() as u64);
        let mut out = Vec::new();
        while let Some((now, _)) = events.pop(Timestamp::MAX) {
            out.extend(line.pop(now, &mut events).map(|it| (now.as_nanos(), it.number())));
        }
        out
    }

    #[test]
    fn after_a_decrease_later_packets_overtake_or_wait() {
        let pushes = [(0, 100), (10, 100), (11, 39), (12, 98), (21, 99)];
        let overtaking = [(50, 2), (100, 0), (110, 1), (110, 3), (120, 4)];
        let waiting = [(100, 0), (110, 1), (110, 2), (110, 3), (120, 4)];
        for (device, own, other) in
            [(Device::NS3, overtaking, waiting), (Device::LINUX, waiting, overtaking)]
        {
            assert_eq!(run(&device, None, &pushes), own);
            assert_eq!(run(&device, Some(!device.packets_overtake), &pushes), other);
        }
    }

    #[test]
    fn only_ns3_access_links_delay_acks() {
        let ack = Packet::new(Kind::Ack, 0, 0, 66, Timestamp::ZERO);
        let end = |device, packet| {
            let mut line = Line::new(Event::Line(0), 0, device, Step::Deliver);
            line.push(Timestamp::ZERO, packet, &mut Events::default()).as_nanos()
        };
        // 66 bytes at 10 Gbit/s are 52.8 ns.
        assert_eq!([end(&Device::NS3, ack), end(&Device::LINUX, ack)], [52, 0]);
        assert_eq!(end(&Device::NS3, packet(0)), 0);
    }

    #[test]
    fn one_event_is_pending_however_many_packets_are() {
        let mut events = Events::default();
        let mut line = Line::new(Event::Line(0), 7, &Device::LINUX, Step::Deliver);
        for now in 0..1000 {
            let end = line.push(Timestamp::from_nanos(now), packet(0), &mut events);
            assert_eq!(end.as_nanos(), now, "the extra delay lies behind the end of the link");
        }
        assert_eq!(events.len(), 1);
    }
}
