//! A live encoder that writes its frames to a connection.

use std::collections::VecDeque;

use forebay_core::record::{MediaFrame, MediaRecord};
use forebay_core::traffic::media::{Encoder, Media};
use forebay_core::units::{Duration, Rate, Timestamp};

use forebay_core::random::Stream;

/// An encoder with its connection.
#[derive(Debug)]
pub(crate) struct Streaming {
    encoder: Encoder,
    /// The flow of the network that carries the frames.
    pub flow: usize,
    stop: Timestamp,
    record: MediaRecord,
    /// Place in the record of frames on their way, and the segments read at their end.
    under_way: VecDeque<(usize, u32)>,
}

impl Streaming {
    /// An encoder of `media` from `start` to `stop` that writes to `flow` and draws sizes from `draws`.
    pub fn new(media: Media, [start, stop]: [Duration; 2], flow: usize, draws: Stream) -> Self {
        let record = MediaRecord {
            period_ns: media.period().as_nanos() as u64,
            late_ns: media.late.as_nanos() as u64,
            frames: Vec::new(),
        };
        let [start, stop] = [start, stop].map(|time| Timestamp::ZERO + time);
        let encoder = Encoder::new(media, start, draws);
        Self { encoder, flow, stop, record, under_way: VecDeque::new() }
    }

    /// When the next frame is captured.
    pub fn due(&self) -> Option<Timestamp> {
        Some(self.encoder.due()).filter(|due| *due < self.stop)
    }

    /// Captures a frame and writes it with `write`, which takes a flow and bytes and returns the segment
    /// number at their end. The algorithm allows `rate`, and `sent` segments have left.
    pub fn capture(
        &mut self,
        now: Timestamp,
        (rate, sent): (Option<Rate>, u32),
        mut write: impl FnMut(usize, u64) -> u32,
    ) {
        let unsent = self.under_way.iter().find(|(_, end)| *end > sent);
        let captured = unsent.map(|(place, _)| self.record.frames[*place].captured_ns);
        let wait_ns = captured.map_or(0, |captured_ns| now.as_nanos() - captured_ns);
        let bytes = self.encoder.encode(rate, Duration::from_nanos(wait_ns)).as_u64();
        let place = self.record.frames.len();
        self.record.frames.push(MediaFrame { captured_ns: now.as_nanos(), bytes, delay_ns: None });
        if bytes > 0 {
            self.under_way.push_back((place, write(self.flow, bytes)));
        }
    }

    /// The receiver has read `segments`.
    pub fn read(&mut self, now: Timestamp, segments: u32) {
        while let Some((place, _)) = self.under_way.pop_front_if(|(_, end)| *end <= segments) {
            let frame = &mut self.record.frames[place];
            frame.delay_ns = Some(now.as_nanos() - frame.captured_ns);
        }
    }

    /// The frames so far.
    pub fn record(&self) -> &MediaRecord {
        &self.record
    }
}
