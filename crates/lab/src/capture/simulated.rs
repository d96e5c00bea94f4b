//! Turns the events of a simulation into packets with headers and into events of connections.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use forebay_core::packet::Ecn;
use forebay_core::record::Fate;
use forebay_core::units::Timestamp;
use forebay_scenario as scenario;
use forebay_sim::{Conversation as Key, Owner, Seen, Segment, Sent, Stack, flags};

use super::conversation::{Conversation, offer};
use super::frames::Frames;
use super::headers::{Envelope, Host, write_tcp, write_udp};
use super::points::{RECEIVER, SENDER};
use super::qlog::Qlog;
use crate::backend::{NetworkFlow, Sight};
use crate::plan::Experiment;

/// Ports of data senders, from this one on, as on the testbed.
const FIRST_PORT: u16 = 5000;
/// Ports of the other ends: Linux's range of ephemeral ports.
const OTHER_PORTS: std::ops::Range<u16> = 32768..61000;

/// A simulation under observation.
pub struct Simulated<'a> {
    /// The packets, if requested.
    pub frames: Option<Frames>,
    /// The connections, if requested.
    pub qlog: Option<Qlog>,
    experiment: &'a Experiment,
    stack: Stack,
    flows: Vec<NetworkFlow>,
    numbers: HashMap<Key, u32>,
    conversations: Vec<Conversation>,
    /// By packet of `frames`.
    carried: Vec<Carried>,
}

/// Information that a packet carries to its receiver.
#[derive(Clone, Copy)]
struct Carried {
    conversation: u32,
    is_back: bool,
    /// Whether the packet is between hosts; otherwise it is between boxes.
    is_of_hosts: bool,
    /// Start of the next segment, and the timestamp (ms); 0 for a datagram.
    end: u32,
    time: u32,
}

impl<'a> Simulated<'a> {
    /// An observer before the first event.
    pub fn new(experiment: &'a Experiment, frames: Option<Frames>, qlog: Option<Qlog>) -> Self {
        let stack = match experiment.stack {
            scenario::Stack::Linux => Stack::LINUX,
            scenario::Stack::Ns3 => Stack::NS3,
        };
        Self {
            frames,
            qlog,
            experiment,
            stack,
            flows: Vec::new(),
            numbers: HashMap::new(),
            conversations: Vec::new(),
            carried: Vec::new(),
        }
    }

    /// Takes the next event.
    pub fn take(&mut self, sight: Sight<'_>) {
        match sight {
            Sight::Flows(flows) => self.flows = flows,
            Sight::OnLink(link, record) => {
                let is_dropped = !matches!(record.fate, Fate::Delivered | Fate::Inside);
                if is_dropped && let Some(qlog) = &mut self.qlog {
                    qlog.on_dropped(record.identity);
                }
                if let Some(frames) = &mut self.frames
                    && let Some(packet) = frames.packet(record.identity)
                {
                    frames.pass_link(packet, link, record);
                }
            }
            Sight::AtEnd(Seen::Sent(sent)) => self.on_sent(&sent),
            Sight::AtEnd(Seen::Received(it)) => self.on_received(it.at, it.identity),
            Sight::AtEnd(Seen::Lost { at, conversation, number }) => {
                let connection = self.number(conversation);
                if let Some(qlog) = &mut self.qlog {
                    qlog.on_lost(connection, at, number);
                }
            }
            Sight::AtEnd(Seen::State { at, conversation, state }) => {
                let connection = self.number(conversation);
                if let Some(qlog) = &mut self.qlog {
                    qlog.on_state(connection, at, state);
                }
            }
        }
    }

    fn on_sent(&mut self, sent: &Sent) {
        let number = self.number(sent.conversation);
        if let (Some(qlog), Some(segment)) = (&mut self.qlog, &sent.segment) {
            qlog.on_sent(number, sent.at, sent.identity, sent.bytes, segment);
        }
        let is_first = std::mem::take(&mut self.conversations[number as usize].is_new);
        let about = is_first.then(|| self.about(sent));
        let Some(frames) = &mut self.frames else { return };
        let at_ns = sent.at.as_nanos();
        if frames.is_full(at_ns) {
            return;
        }
        let conversation = &mut self.conversations[number as usize];
        let [from, to] = conversation.ends;
        let (from, to) = if sent.is_back { (to, from) } else { (from, to) };
        let tos = conversation.dscp << 2 | ecn_bits(sent.ecn);
        let envelope = Envelope { link: frames.link(), from, to, tos };
        let (packet, is_of_hosts) = (frames.next(), is_of_hosts(&sent.conversation));
        let (mut end, mut time) = (0, 0);
        match &sent.segment {
            Some(segment) => {
                let told = conversation.tell(at_ns, sent.is_back, segment);
                (end, time) = (told.end, told.time);
                frames.add(sent.identity, about, |out| write_tcp(&envelope, &told.tcp, out));
            }
            None => {
                let bytes = sent.bytes.into();
                frames.add(sent.identity, about, |out| write_udp(&envelope, bytes, out));
            }
        }
        let is_back = sent.is_back;
        self.carried.push(Carried { conversation: number, is_back, is_of_hosts, end, time });
        if is_of_hosts {
            frames.pass(packet, if is_back { RECEIVER } else { SENDER }, at_ns);
        }
    }

    fn on_received(&mut self, at: Timestamp, identity: u64) {
        if let Some(qlog) = &mut self.qlog {
            qlog.on_received(at, identity);
        }
        let Some(frames) = &mut self.frames else { return };
        let Some(packet) = frames.packet(identity) else { return };
        let Carried { conversation, is_back, is_of_hosts, end, time } =
            self.carried[packet as usize];
        self.conversations[conversation as usize].hear(is_back, end, time);
        if is_of_hosts {
            frames.pass(packet, if is_back { SENDER } else { RECEIVER }, at.as_nanos());
        }
    }

    /// The number of a conversation.
    fn number(&mut self, key: Key) -> u32 {
        let next = self.conversations.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        if number < next {
            return number;
        }
        let conversation = self.conversation(&key, number);
        self.conversations.push(conversation);
        let title = match key.owner {
            Owner::Flow(flow) if self.is_tcp(flow) => Some(self.name(self.flows[flow])),
            _ => None,
        };
        if let (Some(qlog), Some(title)) = (&mut self.qlog, title) {
            qlog.open(number, title);
        }
        number
    }

    /// Whether a flow of the network is TCP.
    fn is_tcp(&self, flow: usize) -> bool {
        self.experiment.flows[self.flows[flow].flow].is_tcp()
    }

    fn conversation(&self, key: &Key, number: u32) -> Conversation {
        let (pair, is_reversed, dscp, last_bytes) = match key.owner {
            Owner::Flow(flow) => {
                let NetworkFlow { flow, reversed, .. } = self.flows[flow];
                let flow = &self.experiment.flows[flow];
                (&flow.pair, reversed, flow.dscp, [[1, 1], [2, 1]])
            }
            Owner::Bundle(bundle) => {
                let bundle = &self.experiment.bundles[bundle];
                (&bundle.pair, bundle.reversed, 0, [[3, 1], [3, 2]])
            }
        };
        let place = self.experiment.pairs.iter().position(|known| known == pair);
        let second = place.map_or(0, |place| (place % 254 + 1) as u8);
        let others = u32::from(OTHER_PORTS.end - OTHER_PORTS.start);
        let ports = [
            FIRST_PORT.wrapping_add((number / others) as u16),
            OTHER_PORTS.start + (number % others) as u16,
        ];
        let host = |[third, fourth]: [u8; 2], port| {
            let address = Ipv4Addr::new(10, second, third, fourth);
            Host { address, port }
        };
        let [left, right] = last_bytes;
        let (sender, other) = if is_reversed { (right, left) } else { (left, right) };
        let ends = [host(sender, ports[0]), host(other, ports[1])];
        Conversation::new(ends, dscp, &self.stack)
    }

    /// Comment of the first packet of a conversation.
    fn about(&self, sent: &Sent) -> String {
        let flow = match sent.conversation.owner {
            Owner::Flow(flow) => self.flows[flow],
            Owner::Bundle(bundle) => {
                return format!("messages of bundle {}", self.experiment.bundles[bundle].name);
            }
        };
        let name = self.name(flow);
        match &sent.segment {
            Some(segment) if !is_syn(segment) => {
                format!("flow {name}: opened before the run, with {}", offer(&self.stack))
            }
            _ => format!("flow {name}"),
        }
    }

    /// Name of a flow of the network; for TCP with its congestion control.
    fn name(&self, NetworkFlow { flow, index, reversed }: NetworkFlow) -> String {
        let flow = &self.experiment.flows[flow];
        let cc = if flow.is_tcp() { format!(", {}", flow.cc_name()) } else { String::new() };
        // The requests of a connection are a half of their own.
        let half = if reversed == flow.reversed { "" } else { ", requests" };
        format!("{}#{index}{cc}{half}", flow.name)
    }
}

/// Whether the packet is between hosts and not between boxes.
fn is_of_hosts(key: &Key) -> bool {
    matches!(key.owner, Owner::Flow(_))
}

fn is_syn(segment: &Segment) -> bool {
    segment.flags & flags::SYN != 0
}

fn ecn_bits(ecn: Ecn) -> u8 {
    ecn as u8
}
