//! Receivers that do more than acknowledge what has come: applications that read at a rate, and
//! acknowledgements that tell more than a number, or not the truth. Apart from what every packet passes.

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

/// Kind, length and two counters of three bytes (RFC 9768 section 3.2.3).
const COUNTS_BYTES: u16 = 8;

/// Who reads what a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// Nobody is told.
    Nobody,
    /// Whoever drives the simulation.
    Caller,
    /// An application that takes its time.
    Application,
}

/// `tcp` with receivers that read and acknowledge as `receiving` says.
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
    /// Sends what a receiver makes of `ack`, which has just been made and has so many SACK blocks.
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

    /// Sends `ack` with all that it tells beside its number.
    fn send_telling(&mut self, flow: u32, mut ack: Ack, blocks: usize) {
        let blocks = blocks as u16;
        let reading = self.connections[flow as usize].reading.as_deref_mut();
        let edge = reading.map(Reading::announce);
        // Whoever claims more than there is room for would announce the room behind that.
        ack.number = edge.map_or(ack.number, |edge| ack.number.min(edge));
        // Kind, length and padding to four bytes, then eight bytes a block (RFC 2018 section 3).
        let option = if blocks > 0 { 4 + 8 * blocks } else { 0 };
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

    /// Writes down what `ack` carries beside itself, and that there is room up to segment `edge`.
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

    /// An application may have read a segment.
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

    /// A sender asks for the window, which is told with an acknowledgement.
    pub(super) fn answer_window_probe(&mut self, flow: u32) {
        let ack = self.connections[flow as usize].receiver.acknowledge_now();
        self.send_ack(flow, ack);
    }
}
