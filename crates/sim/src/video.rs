//! A client that plays a video over one persistent connection: each segment is a request and its answer.

use forebay_core::record::VideoRecord;
use forebay_core::traffic::video::{Player, Video};
use forebay_core::units::{Duration, Timestamp};

use crate::requests::Halves;
use crate::simulation::REQUEST_BYTES;

/// A client with its connection.
#[derive(Debug)]
pub(crate) struct Watching {
    player: Player,
    halves: Halves,
    stop: Timestamp,
    under_way: Option<UnderWay>,
}

/// State of the segment that the client waits for.
#[derive(Clone, Copy, Debug)]
enum UnderWay {
    /// The server has read the request for `bytes` bytes once it has read `end` segments of its half.
    Asked { bytes: u64, end: u32 },
    /// The client has read the answer once it has read `end` segments of its half.
    Answered { end: u32 },
}

impl Watching {
    /// A client that plays `video` from `start` to `stop`.
    pub fn new(video: Video, [start, stop]: [Duration; 2], halves: Halves) -> Self {
        let (start, stop) = (Timestamp::ZERO + start, Timestamp::ZERO + stop);
        Self { player: Player::new(video, start), halves, stop, under_way: None }
    }

    /// Time at which the next segment is to be requested.
    pub fn due(&self) -> Option<Timestamp> {
        self.player.due().filter(|due| *due < self.stop)
    }

    /// Requests the next segment with `write`, which takes a flow and bytes and returns the segment number at
    /// their end.
    pub fn ask(&mut self, now: Timestamp, mut write: impl FnMut(usize, u64) -> u32) {
        let bytes = self.player.ask(now).as_u64();
        let end = write(self.halves.asks, REQUEST_BYTES);
        self.under_way = Some(UnderWay::Asked { bytes, end });
    }

    /// The server has read `segments` of requests, and answers with `write`.
    pub fn hear(&mut self, segments: u32, mut write: impl FnMut(usize, u64) -> u32) {
        if let Some(UnderWay::Asked { bytes, end }) = self.under_way
            && end <= segments
        {
            let end = write(self.halves.answers, bytes);
            self.under_way = Some(UnderWay::Answered { end });
        }
    }

    /// The client has read `segments` of answers.
    pub fn read(&mut self, now: Timestamp, segments: u32) {
        if let Some(UnderWay::Answered { end }) = self.under_way
            && end <= segments
            && now < self.stop
        {
            self.under_way = None;
            self.player.on_segment(now);
        }
    }

    /// The client's record until it stopped.
    pub fn record(&self) -> VideoRecord {
        self.player.record(self.stop)
    }
}
