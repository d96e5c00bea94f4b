//! Receivers that do more than acknowledge arrivals. Applications may read at a rate, and acknowledgements
//! may carry more than a number, or false claims. This code is kept apart from the path of every packet.

use forebay_core::traffic::Receiving;
use forebay_core::units::ByteCount;

use super::Simulation;
use super::endpoints::Connection;
use crate::event::{Event, millis_between};
use crate::packet::{Kind, Marks, Packet, SackHandle};
use crate::route::nanos;
use crate::tcp::reading::Reading;
use crate::tcp::receiver::Ack;
use crate::tcp::stack::Tcp;

/// Size in bytes of the AccECN option: kind, length and two counters of three bytes (RFC 9768 section 3.2.3).
const COUNTS_BYTES: u16 = 8;

/// The reader of a connection's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// No reader: the simulation reports no reads.
    Nobody,
    /// The caller that drives the simulation.
    Caller,
    /// An application that reads at a rate.
    Application,
}

/// `tcp` with receivers that read and acknowledge according to `receiving`.
pub(super) fn with_receiving(tcp: Tcp, receiving: &Receiving) -> Tcp {
    let Receiving { buffer, ack_every, ack_delay, .. } = *receiving;
    Tcp {
        receive_buffer: buffer.map_or(tcp.receive_buffer, ByteCount::as_u64),
        ack_every: ack_every.unwrap_or(tcp.ack_every),
        ack_delay_ns: ack_delay.map_or(tcp.ack_delay_ns, nanos),
        adapts_ack_delay: tcp.adapts_ack_delay && ack_delay.is_none(),
        ..tcp
    }
}

impl Simulation {
    /// Sends the acknowledgements that a receiver makes of the new `ack` with `blocks` SACK blocks.
    #[inline(never)]
    pub(super) fn send_answers(&mut self, flow: u32, ack: Ack, blocks: usize) {
        match self.connections[flow as usize].receiver.answers(ack) {
            Some(answers) => answers.for_each(|answer| {
                let blocks = self.connections[flow as usize].receiver.block_count(&answer);
                self.send_telling(flow, answer, blocks);
            }),
            None => self.send_telling(flow, ack, blocks),
        }
    }

    /// Sends `ack` with all options that it carries.
    fn send_telling(&mut self, flow: u32, mut ack: Ack, blocks: usize) {
        let blocks = blocks as u16;
        let reading = self.connections[flow as usize].reading.as_deref_mut();
        let edge = reading.map(Reading::announce);
        // A receiver that acknowledges data beyond its room would also move its window beyond it.
        ack.number = edge.map_or(ack.number, |edge| ack.number.min(edge));
        // Kind, length and padding to four bytes, then eight bytes for each block (RFC 2018 section 3). ns-3 pads
        // all options together: here kind and length take the place of the timestamps' padding.
        let head = if self.stack.is_ns3 { 0 } else { 4 };
        let option = if blocks > 0 { head + 8 * blocks } else { 0 };
        let counts = if ack.tells_counts { COUNTS_BYTES } else { 0 };
        let bytes = self.stack.tcp.overhead + option + counts;
        let packet = Packet::new(Kind::Ack, flow, ack.number, bytes, ack.echo)
            .with_marks(Marks::of_ack(ack.is_ece));
        if blocks > 0 || ack.tells_one_way || ack.tells_counts || edge.is_some() {
            let sack = self.note_told(flow, &ack, edge);
            return self.send_back(packet.with_sack(sack));
        }
        self.send_back(packet);
    }

    /// Stores the options of `ack`, and the room up to segment `edge`, in the SACK table.
    fn note_told(&mut self, flow: u32, ack: &Ack, edge: Option<u32>) -> SackHandle {
        if self.sacks.is_full() {
            self.reclaim();
        }
        let (sack, blocks) = self.sacks.add();
        self.connections[flow as usize].receiver.fill(ack, blocks);
        if ack.tells_one_way {
            blocks.tell_one_way(millis_between(ack.echo, self.now));
        }
        if let Some(edge) = edge {
            blocks.tell_window(edge.saturating_sub(ack.number));
        }
        sack
    }

    /// Lets an application read a segment if one is due.
    pub(super) fn on_reading_timer(&mut self, event: Event, flow: u32) {
        let Connection { receiver, reading, .. } = &mut self.connections[flow as usize];
        let Some(reading) = reading.as_deref_mut() else { return };
        if !reading.timer.fired(self.now, &mut self.events, event) {
            return;
        }
        let is_update_due = reading.on_read(self.now);
        reading.timer.plan(&mut self.events, event);
        if is_update_due {
            let ack = receiver.acknowledge_now();
            self.send_ack(flow, ack);
        }
    }

    /// Answers a sender's window probe with an acknowledgement, which carries the window.
    pub(super) fn answer_window_probe(&mut self, flow: u32) {
        let ack = self.connections[flow as usize].receiver.acknowledge_now();
        self.send_ack(flow, ack);
    }
}
