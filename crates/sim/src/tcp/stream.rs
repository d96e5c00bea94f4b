//! Bytes that an application has written, cut into segments. Numbers count segments, so a message ends with
//! the segment that holds its last byte. Only segments that are not full are recorded.
//!
//! Bytes written while the last segment still waits fill that segment first, as in Linux: tcp_sendmsg appends
//! to the last buffer of the queue until part of it is sent. No segment waits to be filled: the sockets have
//! TCP_NODELAY.

use std::collections::VecDeque;

/// A stream of bytes in segments.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Segments written, [`u32::MAX`] without end.
    end: u32,
    /// Number and payload bytes of segments that are not full, in order, none acknowledged.
    short: VecDeque<(u32, u16)>,
    mss: u16,
}

impl Stream {
    /// A stream of `bytes`; `None`: without end.
    pub fn new(mss: u16, bytes: Option<u64>) -> Self {
        let mut stream = Self { end: 0, short: VecDeque::new(), mss };
        match bytes {
            Some(bytes) => drop(stream.write(bytes, 0)),
            None => stream.end = u32::MAX,
        }
        stream
    }

    /// Starts over with `bytes`; keeps memory.
    pub fn renew(&mut self, bytes: u64) {
        self.short.clear();
        self.end = 0;
        self.write(bytes, 0);
    }

    /// Appends `bytes`; segments from `unsent` on have not been sent. Returns the number after the segment
    /// with the last byte. A stream without end keeps its length.
    pub fn write(&mut self, bytes: u64, unsent: u32) -> u32 {
        let mss = u64::from(self.mss);
        let mut rest = bytes;
        if let Some(last) = self.short.back_mut()
            && last.0 >= unsent
            && last.0 + 1 == self.end
        {
            let added = rest.min(mss - u64::from(last.1));
            last.1 += added as u16;
            rest -= added;
            if u64::from(last.1) == mss {
                self.short.pop_back();
            }
        }
        let segments = u32::try_from(rest.div_ceil(mss)).unwrap_or(u32::MAX);
        self.end = self.end.saturating_add(segments);
        let over = (rest % mss) as u16;
        if over > 0 && self.end < u32::MAX {
            self.short.push_back((self.end - 1, over));
        }
        self.end
    }

    /// Ends a stream without end before segment `next`.
    pub fn close(&mut self, next: u32) {
        self.end = self.end.min(next);
    }

    /// The number after the last segment, [`u32::MAX`] without end.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Payload bytes of segment `number`.
    pub fn payload(&self, number: u32) -> u16 {
        if self.short.is_empty() {
            return self.mss;
        }
        let found = self.short.binary_search_by_key(&number, |(short, _)| *short);
        found.map_or(self.mss, |place| self.short[place].1)
    }

    /// All segments before `una` have been acknowledged.
    pub fn forget(&mut self, una: u32) {
        while self.short.front().is_some_and(|(number, _)| *number < una) {
            self.short.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payloads(stream: &Stream) -> Vec<u16> {
        (0..stream.end()).map(|number| stream.payload(number)).collect()
    }

    #[test]
    fn message_ends_with_a_shorter_segment() {
        assert_eq!(payloads(&Stream::new(1448, Some(3000))), [1448, 1448, 104]);
        assert_eq!(payloads(&Stream::new(1448, Some(2896))), [1448, 1448]);
        assert_eq!(payloads(&Stream::new(1448, Some(0))), [0; 0]);
        let endless = Stream::new(1448, None);
        assert_eq!((endless.end(), endless.payload(1_000_000)), (u32::MAX, 1448));
    }

    #[test]
    fn message_after_sent_one_starts_new_segment() {
        let mut stream = Stream::new(1000, Some(0));
        assert_eq!([stream.write(1500, 0), stream.write(16, 2)], [2, 3]);
        assert_eq!(payloads(&stream), [1000, 500, 16]);
    }

    #[test]
    fn message_after_waiting_one_fills_its_segment() {
        let mut stream = Stream::new(1000, Some(0));
        assert_eq!(stream.write(1500, 0), 2);
        // Segment 1 waits: 300 bytes fit into it, and of 1200 more the first 200.
        assert_eq!([stream.write(300, 1), stream.write(1200, 1)], [2, 3]);
        assert_eq!(payloads(&stream), [1000; 3]);
        assert_eq!(stream.write(1, 1), 4);
        assert_eq!(payloads(&stream), [1000, 1000, 1000, 1]);
    }

    #[test]
    fn nothing_is_kept_of_what_was_acknowledged() {
        let mut stream = Stream::new(1000, Some(0));
        for number in 0..1000 {
            assert_eq!(stream.write(16, number), number + 1);
            stream.forget(number);
        }
        assert_eq!((stream.short.len(), stream.payload(999)), (1, 16));
    }

    #[test]
    fn closed_stream_ends_at_last_sent_segment() {
        let mut stream = Stream::new(1000, None);
        stream.close(7);
        assert_eq!((stream.end(), stream.payload(6)), (7, 1000));
    }
}
