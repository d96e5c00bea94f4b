//! Closed loops: a datagram goes to the far end, its answer comes back, and the next one is sent.

use forebay_core::units::Timestamp;

use super::Simulation;
use super::endpoints::{Place, Way};
use crate::event::{Event, Timer, after, nanos_between};
use crate::metrics::FlowMeter;
use crate::network::{Flow, Network};
use crate::packet::{Kind, Packet};

/// Bytes of a ping, and of its answer, on the wire: 40 of payload, UDP, IPv4 and Ethernet without FCS.
pub const PING_FRAME_BYTES: u64 = 40 + 8 + 20 + 14;

/// Wait for an answer, 1 s as in the testbed: a ping without one is then lost, and the loop sends the next.
const TIMEOUT_NS: u64 = 1_000_000_000;

/// Results of a ping loop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pings {
    /// Times from a ping to its answer, in order.
    pub rtts_ns: Vec<u64>,
    /// Pings without an answer in time.
    pub lost: u64,
}

/// A ping loop with both ends.
pub(super) struct PingLoop {
    pub data: Way,
    pub back: Way,
    /// Index among the flows of the network.
    pub flow: u32,
    stop: Timestamp,
    /// Number of the ping that is under way, or of the last one.
    number: u32,
    /// Send time of the ping under way.
    under_way: Option<Timestamp>,
    timer: Timer,
    pub pings: Pings,
    /// Meter of the answers.
    pub meter: FlowMeter,
    pub sent: u64,
}

impl Simulation {
    pub(super) fn add_pings(&mut self, network: &Network, flow: &Flow) {
        let index = self.pings.len();
        let start = Timestamp::ZERO + flow.start;
        let mut timer = Timer::STOPPED;
        timer.set(start);
        timer.plan(&mut self.events, Event::Ping(index as u32));
        let number = self.places.len() as u32;
        self.places.push(Place::Pings(index));
        let (data, back) = (self.way(network, &flow.data), self.way(network, &flow.back));
        self.pings.push(PingLoop {
            data,
            back,
            flow: number,
            stop: flow.stop.map_or(Timestamp::MAX, |stop| Timestamp::ZERO + stop),
            number: 0,
            under_way: None,
            timer,
            pings: Pings::default(),
            meter: FlowMeter::new(start, self.stop),
            sent: 0,
        });
    }

    /// Starts a loop, or gives up on the ping under way after the timeout.
    pub(super) fn on_ping_timer(&mut self, event: Event, index: u32) {
        let ping = &mut self.pings[index as usize];
        if ping.timer.fired(self.now, &mut self.events, event) {
            ping.pings.lost += u64::from(ping.under_way.take().is_some());
            self.send_ping(index);
        }
    }

    fn send_ping(&mut self, index: u32) {
        let now = self.now;
        let ping = &mut self.pings[index as usize];
        if now >= ping.stop {
            ping.timer.stop();
            return;
        }
        ping.number = ping.number.wrapping_add(1);
        ping.under_way = Some(now);
        ping.sent += 1;
        ping.timer.set(after(now, TIMEOUT_NS));
        ping.timer.plan(&mut self.events, Event::Ping(index));
        let (first, number) = (ping.data.first, ping.number);
        self.emit(first, Packet::new(Kind::Ping, index, number, PING_FRAME_BYTES as u16, now));
    }

    /// A ping reaches the far end, which answers it.
    pub(super) fn answer_ping(&mut self, packet: Packet) {
        let first = self.pings[packet.flow() as usize].back.first;
        self.emit(first, packet.turned(Kind::Pong));
    }

    /// An answer reaches the client; one that comes too late does not count.
    pub(super) fn receive_pong(&mut self, packet: Packet) {
        let ping = &mut self.pings[packet.flow() as usize];
        if packet.number() != ping.number {
            return;
        }
        let Some(sent) = ping.under_way.take() else { return };
        ping.pings.rtts_ns.push(nanos_between(sent, self.now));
        ping.meter.on_receive(self.now, packet.bytes().into());
        self.send_ping(packet.flow());
    }

    /// Results of the ping loop of flow `index`; `None` for a flow of another kind.
    pub fn pings(&self, index: usize) -> Option<&Pings> {
        match self.places.get(index)? {
            Place::Pings(index) => Some(&self.pings[*index].pings),
            _ => None,
        }
    }
}
