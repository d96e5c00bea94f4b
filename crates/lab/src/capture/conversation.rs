//! Converts the simulator's segment numbers into TCP's byte sequence numbers.
//!
//! The numbers of a connection begin with 0: its SYN has 0 and its first byte 1. They wrap as TCP's do. A
//! simulated SYN carries no options. Here it gets the options of a real SYN, eight bytes more. A data
//! segment carries the acknowledgement and the echoed timestamp that its sender had received by then.

use forebay_sim::{Segment, Stack, flags};

use super::headers::{Host, Tcp, TcpOptions};

/// The two ends of a packet exchange, and the state of each.
#[derive(Debug)]
pub struct Conversation {
    /// The end that sends data or pings, or the sendbox; then the other end.
    pub ends: [Host; 2],
    /// DSCP of the packets.
    pub dscp: u8,
    /// No packet has been captured yet.
    pub is_new: bool,
    mss: u16,
    receive_buffer: u64,
    /// Data segments that are not full, in order. Each has the bytes that all segments up to it lack.
    short: Vec<(u32, u64)>,
    /// End of all sent data and of the FIN, not wrapped.
    sent: u64,
    /// The segment of data that ends the connection.
    last: Option<u32>,
    /// Bytes of the other end's request, once sent.
    asked: u32,
    /// The other end has sent its FIN.
    is_ended: bool,
    /// Received so far: the acknowledgement number at the first end, and the newest timestamp at both.
    heard: u32,
    heard_times: [u32; 2],
}

/// A segment as captured, and the values that its receiver learns from it.
#[derive(Debug)]
pub struct Told {
    /// The header.
    pub tcp: Tcp,
    /// Start of the next segment.
    pub end: u32,
    /// The timestamp (ms).
    pub time: u32,
}

impl Conversation {
    /// A conversation before its first packet. Connections opened before the run have already exchanged their
    /// SYNs.
    pub fn new(ends: [Host; 2], dscp: u8, stack: &Stack) -> Self {
        Self {
            ends,
            dscp,
            is_new: true,
            mss: stack.tcp.mss,
            receive_buffer: stack.tcp.receive_buffer,
            short: Vec::new(),
            sent: 1,
            last: None,
            asked: 0,
            is_ended: false,
            heard: 1,
            heard_times: [0; 2],
        }
    }

    /// The header of a segment that is sent at `at_ns`.
    pub fn tell(&mut self, at_ns: u64, is_back: bool, segment: &Segment) -> Told {
        let is_syn = segment.flags & flags::SYN != 0;
        let is_end = segment.flags & flags::FIN != 0;
        if let Some(number) = segment.data {
            self.note_data(number, segment.payload, is_end);
        }
        self.asked = self.asked.max(if is_back { segment.payload.into() } else { 0 });
        let sequence = match segment.data {
            _ if is_syn => 0,
            Some(number) => self.place(number),
            None if !is_back => self.sent as u32,
            None if segment.payload > 0 => 1,
            None => 1 + self.asked + u32::from(self.is_ended && !is_end),
        };
        self.is_ended |= is_back && is_end;
        let length = u32::from(segment.payload) + u32::from(is_syn) + u32::from(is_end);
        let end = sequence.wrapping_add(length);
        let time = millis(at_ns);
        let echo = segment.echo.map(|at| millis(at.as_nanos()));
        let times = [time, echo.unwrap_or(self.heard_times[usize::from(is_back)])];
        let blocks = segment.blocks.iter().map(|block| block.map(|number| self.place(number)));
        let options = if is_syn {
            TcpOptions::of_syn(self.mss, self.shift(), times)
        } else {
            TcpOptions::of_segment(times, &blocks.collect::<Vec<_>>())
        };
        let is_acknowledging = segment.flags & flags::ACK != 0;
        let acknowledgement = match segment.acked {
            _ if !is_acknowledging => 0,
            Some(number) => {
                let is_whole = self.last.is_some_and(|last| number > last);
                self.place(number).wrapping_add(u32::from(is_whole))
            }
            None if is_back => 1,
            None => self.heard,
        };
        let shift = if is_syn { 0 } else { self.shift() };
        let room = segment.window.map(|segments| u64::from(segments) * u64::from(self.mss));
        let room = room.unwrap_or(self.receive_buffer);
        let window = (room >> shift).min(u16::MAX.into()) as u16;
        let (flags, payload) = (segment.flags, segment.payload);
        let tcp = Tcp { sequence, acknowledgement, flags, window, options, payload };
        Told { tcp, end, time }
    }

    /// A captured segment arrives at its receiver.
    pub fn hear(&mut self, is_back: bool, end: u32, time: u32) {
        if is_back {
            self.heard = self.heard.max(end);
        }
        let newest = &mut self.heard_times[usize::from(!is_back)];
        *newest = (*newest).max(time);
    }

    fn note_data(&mut self, number: u32, payload: u16, is_end: bool) {
        let (known, lacking) = self.short.last().map_or((None, 0), |it| (Some(it.0), it.1));
        if payload < self.mss && known.is_none_or(|known| number > known) {
            self.short.push((number, lacking + u64::from(self.mss - payload)));
        }
        if is_end {
            self.last = Some(number);
        }
        let end = self.unwrapped_place(number) + u64::from(payload) + u64::from(is_end);
        self.sent = self.sent.max(end);
    }

    /// Start of data segment `number`.
    fn place(&self, number: u32) -> u32 {
        self.unwrapped_place(number) as u32
    }

    /// Start of data segment `number` if numbers did not wrap.
    fn unwrapped_place(&self, number: u32) -> u64 {
        let shorter = self.short.partition_point(|(short, _)| *short < number);
        let lacking = shorter.checked_sub(1).map_or(0, |last| self.short[last].1);
        1 + u64::from(number) * u64::from(self.mss) - lacking
    }

    fn shift(&self) -> u8 {
        shift(self.receive_buffer)
    }
}

/// Text of the options in the SYNs of a connection, for those opened before the run.
pub fn offer(stack: &Stack) -> String {
    let (mss, shift) = (stack.tcp.mss, shift(stack.tcp.receive_buffer));
    format!("MSS {mss}, SACK, timestamps of 1 ms, window scale {shift}")
}

/// The smallest window scale that can express `receive_buffer` bytes.
fn shift(receive_buffer: u64) -> u8 {
    let bits = u64::BITS - receive_buffer.leading_zeros();
    bits.saturating_sub(u16::BITS).min(14) as u8
}

fn millis(at_ns: u64) -> u32 {
    (at_ns / 1_000_000) as u32
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use forebay_core::units::Timestamp;

    use super::*;

    /// One millisecond (ns).
    const MS: u64 = 1_000_000;

    fn conversation() -> Conversation {
        let host = |last| Host { address: Ipv4Addr::new(10, 1, last, 1), port: 5000 };
        Conversation::new([host(1), host(2)], 0, &Stack::LINUX)
    }

    fn data(number: u32, payload: u16, flags: u16) -> Segment {
        Segment { flags: flags::ACK | flags, data: Some(number), payload, ..Segment::default() }
    }

    fn ack(number: u32, blocks: &[[u32; 2]]) -> Segment {
        let echo = Some(Timestamp::from_nanos(3 * MS));
        Segment {
            flags: flags::ACK,
            acked: Some(number),
            blocks: blocks.into(),
            echo,
            ..Segment::default()
        }
    }

    #[test]
    fn numbers_of_segments_become_those_of_bytes() {
        let mut it = conversation();
        let sequence =
            |it: &mut Conversation, segment: &Segment| it.tell(5 * MS, false, segment).tcp.sequence;
        assert_eq!([0, 1].map(|number| sequence(&mut it, &data(number, 1448, 0))), [1, 1449]);
        // The third is not full; its retransmission has the same place.
        assert_eq!(sequence(&mut it, &data(2, 100, 0)), 2897);
        assert_eq!(sequence(&mut it, &data(3, 1448, 0)), 2997);
        assert_eq!(sequence(&mut it, &data(2, 100, 0)), 2897);
        let told = it.tell(9 * MS, true, &ack(2, &[[3, 4]]));
        assert_eq!((told.tcp.sequence, told.tcp.acknowledgement), (1, 2897));
        assert_eq!(told.tcp.options, TcpOptions::of_segment([9, 3], &[[2997, 2997 + 1448]]));
        // A segment echoes the newest timestamp received.
        it.hear(true, told.end, told.time);
        let told = it.tell(12 * MS, false, &data(4, 1448, 0));
        assert_eq!(told.tcp.options, TcpOptions::of_segment([12, 9], &[]));
        assert_eq!(u64::from(told.tcp.window) << 8, Stack::LINUX.tcp.receive_buffer >> 8 << 8);
    }

    #[test]
    fn a_window_that_changes_is_told_in_bytes() {
        let mut it = conversation();
        let mut window = |window| it.tell(0, true, &Segment { window, ..ack(0, &[]) }).tcp.window;
        assert_eq!([window(Some(0)), window(Some(44))], [0, (44 * 1448) >> 8]);
    }

    #[test]
    fn sequence_numbers_wrap_after_four_gibibytes() {
        let mut it = conversation();
        let last = ((1_u64 << 32) / 1448) as u32;
        let end = (u64::from(last) + 1) * 1448 + 1 - (1_u64 << 32);
        for number in [last - 1, last] {
            it.tell(5 * MS, false, &data(number, 1448, 0));
        }
        let bare = Segment { flags: flags::ACK, ..Segment::default() };
        assert_eq!(u64::from(it.tell(6 * MS, false, &bare).tcp.sequence), end);
    }

    #[test]
    fn message_conversation_begins_and_ends_like_tcp() {
        let mut it = conversation();
        let mut say = |is_back, flags, data, payload, acked| {
            let segment = Segment { flags, data, payload, acked, ..Segment::default() };
            let told = it.tell(0, is_back, &segment);
            it.hear(is_back, told.end, told.time);
            (told.tcp.sequence, told.tcp.acknowledgement)
        };
        let (syn, ack, fin) = (flags::SYN, flags::ACK, flags::FIN);
        assert_eq!(say(true, syn, None, 0, None), (0, 0));
        assert_eq!(say(false, syn | ack, None, 0, None), (0, 1));
        assert_eq!(say(true, ack, None, 0, None), (1, 1));
        assert_eq!(say(true, ack, None, 16, None), (1, 1));
        assert_eq!(say(false, ack | fin, Some(0), 1000, None), (1, 17));
        assert_eq!(say(true, ack, None, 0, Some(1)), (17, 1002));
        assert_eq!(say(true, ack | fin, None, 0, Some(1)), (17, 1002));
        assert_eq!(say(false, ack, None, 0, None), (1002, 18));
        // The FIN again.
        assert_eq!(say(true, ack | fin, None, 0, Some(1)), (17, 1002));
    }
}
