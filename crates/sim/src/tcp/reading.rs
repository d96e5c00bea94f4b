//! An application that reads at a rate, and the window that its receiver announces.
//!
//! ```text
//!   read ........ arrived ................ edge
//!    │ waits for the │ room: the window │     at most `buffered` segments from read to edge
//!    │ application   │                  │
//! ```
//! The window never shrinks (RFC 9293 section 3.8.6): the edge only rises. The edge stays while less than a
//! segment or a sixteenth of the buffer is free. Thus the window becomes zero in the end, and does not open
//! in small steps (RFC 9293 section 3.8.6.2.2; Linux, __tcp_select_window). When the application reads and
//! the window is at least twice the one known to the sender, an acknowledgement announces it (Linux,
//! __tcp_cleanup_rbuf).
//!
//! Numbers count segments. Segments above a gap lie within the window, and take no other room.

use forebay_core::units::{ByteCount, Duration, Rate, Timestamp};

use super::stack::Tcp;
use crate::event::{Timer, after};

/// Least free part of the buffer for the window to move, as a divisor.
const LEAST_PART: u32 = 16;

/// Segments that an application has read, and room in its receiver's buffer.
#[derive(Debug)]
pub(crate) struct Reading {
    buffered: u32,
    segment_ns: u64,
    read: u32,
    arrived: u32,
    edge: u32,
    /// When the next segment has been read.
    pub timer: Timer,
}

impl Reading {
    /// An application that reads payload at `rate`, as `tcp` begins.
    pub fn new(tcp: &Tcp, rate: Rate) -> Self {
        let time = ByteCount::new(tcp.mss.into()).time_at(rate).unwrap_or(Duration::MAX);
        let segment_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let buffered = tcp.received_segments();
        Self { buffered, segment_ns, read: 0, arrived: 0, edge: buffered, timer: Timer::STOPPED }
    }

    /// All segments before `next` have arrived.
    pub fn on_arrival(&mut self, now: Timestamp, next: u32) {
        self.arrived = next;
        if !self.timer.is_running() {
            self.read_on(now);
        }
    }

    fn read_on(&mut self, now: Timestamp) {
        if self.read < self.arrived {
            self.timer.set(after(now, self.segment_ns));
        }
    }

    /// [`Reading::timer`] has expired: a segment has been read. True if the receiver must announce the
    /// window.
    pub fn on_read(&mut self, now: Timestamp) -> bool {
        self.read += 1;
        self.read_on(now);
        let known = self.edge.saturating_sub(self.arrived);
        let window = self.next_edge().saturating_sub(self.arrived);
        known <= self.buffered / 2 && window > 0 && window >= 2 * known
    }

    /// The number after the last segment that fits into the buffer, for the current acknowledgement.
    pub fn announce(&mut self) -> u32 {
        self.edge = self.next_edge();
        self.edge
    }

    fn next_edge(&self) -> u32 {
        let free = self.buffered.saturating_sub(self.arrived - self.read);
        let is_crumb = free < (self.buffered / LEAST_PART).max(1);
        if is_crumb { self.edge } else { self.edge.max(self.arrived + free) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Events};

    /// A buffer of 32 segments; 1 is read each ms.
    fn reading() -> Reading {
        let tcp = Tcp { mss: 1000, receive_buffer: 32_999, ..Tcp::LINUX };
        Reading::new(&tcp, Rate::from_mbit_per_sec(8))
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// Reads up to `ms`, and returns the times and edges of announcements.
    fn read(reading: &mut Reading, events: &mut Events, ms: u64) -> Vec<(u64, u32)> {
        let mut told = Vec::new();
        reading.timer.plan(events, Event::Reading(0));
        while let Some((now, event)) = events.pop(at(ms)) {
            if reading.timer.fired(now, events, event) {
                if reading.on_read(now) {
                    told.push((now.as_nanos() / 1_000_000, reading.announce()));
                }
                reading.timer.plan(events, event);
            }
        }
        told
    }

    #[test]
    fn receive_window_closes_and_reopens_with_reading() {
        let (mut reading, mut events) = (reading(), Events::default());
        assert_eq!(reading.announce(), 32);
        reading.on_arrival(at(0), 32);
        // Nothing is read yet: the window is zero, until a sixteenth of the buffer is free.
        assert_eq!(reading.announce(), 32);
        assert_eq!(read(&mut reading, &mut events, 1), []);
        // Then each time the window has doubled.
        assert_eq!(
            read(&mut reading, &mut events, 40),
            [(2, 34), (4, 36), (8, 40), (16, 48), (32, 64)]
        );
        assert_eq!((reading.read, reading.announce()), (32, 64));
        assert!(!reading.timer.is_running(), "there is nothing to read");
    }

    #[test]
    fn small_openings_are_withheld_and_edge_never_shrinks() {
        let (mut reading, mut events) = (reading(), Events::default());
        reading.on_arrival(at(0), 30);
        assert_eq!(reading.announce(), 32, "two segments are free, as the sender knows");
        reading.on_arrival(at(0), 32);
        read(&mut reading, &mut events, 1);
        assert_eq!(reading.announce(), 32, "one segment is less than a sixteenth of 32");
        read(&mut reading, &mut events, 2);
        assert_eq!(reading.announce(), 34);
    }

    #[test]
    fn fast_reader_always_has_room() {
        let (mut reading, mut events) = (reading(), Events::default());
        for ms in 1..100 {
            reading.on_arrival(at(ms), ms as u32);
            assert!(reading.announce() - ms as u32 >= 30);
            assert_eq!(read(&mut reading, &mut events, ms + 1), []);
        }
    }
}
