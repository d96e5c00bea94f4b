//! Packets held back behind a link's server until later packets have overtaken them.

use std::collections::VecDeque;

use forebay_core::link::MAX_HOLD;
use forebay_core::random::{Stream, Streams};
use forebay_core::units::{Ratio, Timestamp};
use forebay_scenario::Link;

use crate::event::{Event, Events, Timer};
use crate::packet::Packet;

/// A packet held back, with the limits of its hold.
struct Held {
    packet: Packet,
    until_passed: u64,
    until: Timestamp,
}

/// Store of a link for packets held back.
pub(crate) struct Reorder {
    event: Event,
    share: f64,
    stream: Stream,
    overtakers: u64,
    /// In order of entry, and therefore in order of both limits.
    held: VecDeque<Held>,
    /// Number of packets that were not held.
    passed: u64,
    timer: Timer,
}

impl Reorder {
    /// The reordering of `link`, woken with `event`; `None` if the link holds nothing back.
    pub fn new(link: &Link, event: Event, streams: &Streams) -> Option<Self> {
        let is_wanted = link.reorder > Ratio::ZERO && link.reorder_packets > 0;
        is_wanted.then(|| Self {
            event,
            share: link.reorder.as_f64(),
            stream: streams.stream("reorder"),
            overtakers: u64::from(link.reorder_packets),
            held: VecDeque::new(),
            passed: 0,
            timer: Timer::STOPPED,
        })
    }

    /// Holds a packet back, or returns it; then call [`Reorder::release`].
    pub fn hold(&mut self, now: Timestamp, packet: Packet, events: &mut Events) -> Option<Packet> {
        if !self.stream.chance(self.share) {
            self.passed += 1;
            return Some(packet);
        }
        let (until_passed, until) = (self.passed + self.overtakers, now + MAX_HOLD);
        self.held.push_back(Held { packet, until_passed, until });
        if !self.timer.is_running() {
            self.timer.set(until);
            self.timer.plan(events, self.event);
        }
        None
    }

    /// The next packet that was overtaken or has waited long enough.
    pub fn release(&mut self, now: Timestamp) -> Option<Packet> {
        let passed = self.passed;
        let is_over = |held: &mut Held| held.until_passed <= passed || held.until <= now;
        self.held.pop_front_if(is_over).map(|held| held.packet)
    }

    /// Handles the event; true if packets may have waited long enough.
    pub fn on_timer(&mut self, now: Timestamp, events: &mut Events) -> bool {
        let has_fired = self.timer.fired(now, events, self.event);
        let left = self.held.iter().find(|held| held.until > now);
        if let Some(held) = left.filter(|_| has_fired) {
            self.timer.set(held.until);
            self.timer.plan(events, self.event);
        }
        has_fired
    }

    /// Packets held back.
    #[cfg(debug_assertions)]
    pub fn len(&self) -> u64 {
        self.held.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Kind;
    use forebay_core::units::Duration;

    fn packet(len: u16) -> Packet {
        Packet::new(Kind::Data, 0, 0, len, Timestamp::ZERO)
    }

    #[test]
    fn held_packet_leaves_after_overtakers_or_timeout() {
        let mut link = Link::delay("l", Duration::ZERO);
        (link.reorder, link.reorder_packets) = (Ratio::ONE, 2);
        let mut events = Events::default();
        let mut reorder = Reorder::new(&link, Event::Held(0), &Streams::new(1)).unwrap();
        let now = Timestamp::from_nanos(5);
        assert_eq!(reorder.hold(now, packet(1), &mut events), None);
        reorder.share = 0.0;
        assert_eq!(reorder.hold(now, packet(2), &mut events), Some(packet(2)));
        assert_eq!(reorder.release(now), None);
        assert_eq!(reorder.hold(now, packet(3), &mut events), Some(packet(3)));
        assert_eq!((reorder.release(now), reorder.release(now)), (Some(packet(1)), None));
        reorder.share = 1.0;
        assert_eq!(reorder.hold(now, packet(4), &mut events), None);
        let mut released = Vec::new();
        while let Some((now, _)) = events.pop(Timestamp::MAX) {
            if reorder.on_timer(now, &mut events) {
                released.extend(reorder.release(now).map(|packet| (now, packet.bytes())));
            }
        }
        assert_eq!(released, [(now + MAX_HOLD, 4)]);
    }
}
