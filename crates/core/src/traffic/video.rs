//! A client that plays a video. It requests segments one at a time, each at a rate that the throughput so far
//! allows, and plays them out of a buffer.
//!
//! ```text
//!  ask ──► segment ──► buffer ──► playback
//!   ▲                    │  begins with `startup` in it, stands still where it is empty, goes on with the next segment
//!   └────────────────────┘  as soon as one more segment has room
//!
//!  rate    the greatest of the ladder up to 0.85 x the harmonic mean of the throughput of the last 5 segments
//! ```
//! A segment's throughput is its bytes over the time from the request to its last byte, round trip included.
//! The first segment has the lowest rate.
//!
//! Sources: Yin, Jindal, Sekar and Sinopoli compare with the harmonic mean of five segments as the rate-based
//! algorithm (A control-theoretic approach for dynamic adaptive video streaming over HTTP, SIGCOMM 2015). The
//! share of that mean comes from Jiang, Sekar and Zhang (FESTIVE, CoNEXT 2012). Rates are taken at once, up
//! and down, without the latter's steps and random pauses.
//!
//! There is no clock here: the caller passes the time with each call.

use alloc::format;
use alloc::vec::Vec;

use crate::record::VideoRecord;
use crate::spec::SpecError;
use crate::units::{ByteCount, Duration, Rate, Timestamp, format_duration};

/// Rates of a video without given rates: YouTube's recommendation for uploads of 360, 480, 720, 1080 and 1440
/// lines at up to 30 frames a second without HDR.
pub const LADDER: [Rate; 5] = [
    Rate::from_bits_per_sec(1_000_000),
    Rate::from_bits_per_sec(2_500_000),
    Rate::from_bits_per_sec(5_000_000),
    Rate::from_bits_per_sec(8_000_000),
    Rate::from_bits_per_sec(16_000_000),
];

/// Most rates of a video.
pub const RATES_MAX: usize = 32;

/// Least and greatest length of a segment.
pub const SEGMENTS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(60)];

/// Most bytes of a segment.
const SEGMENT_BYTES_MAX: ByteCount = ByteCount::new(1_000_000_000);

/// Newest segments with a throughput that counts.
const SAMPLES: usize = 5;

/// Share of the throughput that a rate may have.
const USED: f64 = 0.85;

/// The video that is played, and the time that is fetched ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Video {
    /// Playing time of a segment.
    pub segment: Duration,
    /// Rates available for each segment, from the lowest to the highest.
    pub rates: Vec<Rate>,
    /// Most playing time that is fetched ahead.
    pub buffer: Duration,
    /// Playing time that is fetched before playback begins.
    pub startup: Duration,
}

impl Video {
    /// Refuses videos that cannot be played: segments of no usual length or above 1 GB, rates that are none
    /// or out of order, a buffer that holds no segment or less than `startup`.
    pub fn check(&self) -> Result<(), SpecError> {
        let refused = |key, duration, allowed: &str| {
            Err(SpecError::new(key, &format_duration(duration), allowed))
        };
        let [least, most] = SEGMENTS;
        if !(least..=most).contains(&self.segment) {
            let allowed = format!("{} to {}", format_duration(least), format_duration(most));
            return refused("segment", self.segment, &allowed);
        }
        let is_ascending = self.rates.is_sorted_by(|lower, higher| lower < higher);
        if !(1..=RATES_MAX).contains(&self.rates.len())
            || !is_ascending
            || self.rates[0] == Rate::ZERO
        {
            let allowed = format!("1 to {RATES_MAX} rates, each above the one before");
            return Err(SpecError::new("rates", &format!("{} rates", self.rates.len()), &allowed));
        }
        let highest = self.rates[self.rates.len() - 1];
        if highest.bytes_in(self.segment) > SEGMENT_BYTES_MAX {
            return Err(SpecError::new("rates", &format!("{highest}"), "at most 1GB a segment"));
        }
        if self.buffer < self.segment {
            return refused("buffer", self.buffer, "at least a segment");
        }
        if self.startup > self.buffer {
            return refused("startup", self.startup, "at most the buffer");
        }
        Ok(())
    }
}

/// A segment on its way.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Timestamp,
    bytes: ByteCount,
}

/// One client in the middle of a video, which has no end.
#[derive(Clone, Debug)]
pub struct Player {
    video: Video,
    start: Timestamp,
    /// Time at which `buffered` and playback are known.
    now: Timestamp,
    /// Playing time that has been fetched and not played.
    buffered: Duration,
    is_playing: bool,
    asked: Option<Asked>,
    /// Throughput of the last segments, in no order.
    throughputs: Vec<Rate>,
    /// Place on the ladder of the last segment requested.
    quality: Option<usize>,
    /// When playback began.
    began: Option<Timestamp>,
    rebuffering: Duration,
    rebuffers: u64,
    switches: u64,
    switched: Timestamp,
    segments: u64,
    /// Bits of all segments.
    bits: u128,
}

impl Player {
    /// A client that begins with `video`, which [`Video::check`] lets pass, at `start`.
    pub fn new(video: Video, start: Timestamp) -> Self {
        Self {
            video,
            start,
            now: start,
            buffered: Duration::ZERO,
            is_playing: false,
            asked: None,
            throughputs: Vec::with_capacity(SAMPLES),
            quality: None,
            began: None,
            rebuffering: Duration::ZERO,
            rebuffers: 0,
            switches: 0,
            switched: start,
            segments: 0,
            bits: 0,
        }
    }

    /// When the next segment is to be requested; `None` while one is on its way.
    pub fn due(&self) -> Option<Timestamp> {
        if self.asked.is_some() {
            return None;
        }
        // Nothing leaves the buffer while playback is stalled: it waits for this segment.
        let excess = (self.buffered + self.video.segment).saturating_sub(self.video.buffer);
        Some(if self.is_playing { self.now + excess } else { self.now })
    }

    /// Requests the next segment; returns its bytes.
    pub fn ask(&mut self, now: Timestamp) -> ByteCount {
        self.play(now);
        let quality = self.affordable();
        if self.quality.replace(quality).is_some_and(|before| before != quality) {
            self.switches += 1;
            self.switched = now;
        }
        let bytes = self.video.rates[quality].bytes_in(self.video.segment);
        self.asked = Some(Asked { at: now, bytes });
        bytes
    }

    /// The last byte of the requested segment has come.
    pub fn on_segment(&mut self, now: Timestamp) {
        self.play(now);
        let Some(Asked { at, bytes }) = self.asked.take() else { return };
        if let Some(throughput) = bytes.per(now.saturating_since(at)) {
            let place = self.segments as usize % SAMPLES;
            match self.throughputs.get_mut(place) {
                Some(oldest) => *oldest = throughput,
                None => self.throughputs.push(throughput),
            }
        }
        self.segments += 1;
        self.bits += u128::from(bytes.as_u64()) * 8;
        self.buffered += self.video.segment;
        let enough = if self.began.is_some() { Duration::ZERO } else { self.video.startup };
        if self.buffered >= enough {
            self.is_playing = true;
            self.began.get_or_insert(now);
        }
    }

    /// The playback until `now`; if playback has not begun, its startup lasts until then.
    pub fn record(&self, now: Timestamp) -> VideoRecord {
        let mut played = self.clone();
        played.play(now);
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let since_start = |at: Timestamp| nanos(at.saturating_since(self.start));
        let playing_ns = u128::from(self.segments) * self.video.segment.as_nanos();
        VideoRecord {
            startup_ns: since_start(self.began.unwrap_or(now)),
            rebuffering_ns: nanos(played.rebuffering),
            rebuffers: played.rebuffers,
            switches: self.switches,
            settled_ns: since_start(self.switched),
            segments: self.segments,
            rate_bps: (self.bits * 1_000_000_000).checked_div(playing_ns).unwrap_or(0) as u64,
        }
    }

    /// Plays until `now`.
    fn play(&mut self, now: Timestamp) {
        let elapsed = now.saturating_since(self.now);
        self.now = self.now.max(now);
        if !self.is_playing {
            if self.began.is_some() {
                self.rebuffering += elapsed;
            }
            return;
        }
        let missing = elapsed.saturating_sub(self.buffered);
        self.buffered = self.buffered.saturating_sub(elapsed);
        if !missing.is_zero() {
            self.is_playing = false;
            self.rebuffers += 1;
            self.rebuffering += missing;
        }
    }

    /// The place on the ladder of the rate that the throughput allows.
    fn affordable(&self) -> usize {
        if self.throughputs.is_empty() {
            return 0;
        }
        let inverse = |rate: &Rate| 1.0 / rate.as_bytes_per_sec_f64();
        let sum: f64 = self.throughputs.iter().map(inverse).sum();
        let mean = Rate::from_bytes_per_sec_f64(self.throughputs.len() as f64 / sum);
        let usable = mean.scale(USED);
        self.video.rates.iter().rposition(|rate| *rate <= usable).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments of 4 s at 1, 2 and 4 Mbit/s, 12 s ahead.
    fn video() -> Video {
        let rates = [1, 2, 4].map(Rate::from_mbit_per_sec).to_vec();
        let seconds = Duration::from_secs;
        Video { segment: seconds(4), rates, buffer: seconds(12), startup: seconds(4) }
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    /// A client from 1 s on, which has got as far as `ms`.
    struct Client {
        player: Player,
        ms: u64,
    }

    impl Client {
        fn new(video: Video) -> Self {
            Self { player: Player::new(video, at(1000)), ms: 1000 }
        }

        /// Requests a segment when it is due and takes its time at `mbit_per_s`; gives the segment's rate.
        fn fetch(&mut self, mbit_per_s: f64) -> f64 {
            let due = self.player.due().unwrap();
            self.ms = self.ms.max(due.as_nanos().div_ceil(1_000_000));
            let bytes = self.player.ask(at(self.ms));
            assert_eq!(self.player.due(), None);
            let bits = bytes.as_f64() * 8.0;
            self.ms += (bits / (mbit_per_s * 1e3)) as u64;
            self.player.on_segment(at(self.ms));
            bits / 4e6
        }

        fn record(&self) -> VideoRecord {
            self.player.record(at(self.ms))
        }
    }

    #[test]
    fn rate_follows_harmonic_mean_of_five_segments() {
        let mut client = Client::new(video());
        // 0.85 x 4 Mbit/s is enough for 2 Mbit/s and not for 4.
        let rates: Vec<f64> = (0..4).map(|_| client.fetch(4.0)).collect();
        assert_eq!(rates, [1.0, 2.0, 2.0, 2.0]);
        // One faster segment moves the mean of five to 4.5 Mbit/s, which is too little, and two to 5.3.
        let rates: Vec<f64> = (0..6).map(|_| client.fetch(10.0)).collect();
        assert_eq!(rates, [2.0, 2.0, 4.0, 4.0, 4.0, 4.0]);
        // A single slow one is enough to come down.
        assert_eq!([client.fetch(1.0), client.fetch(10.0)], [4.0, 2.0]);
        assert_eq!(client.record().switches, 3);
    }

    #[test]
    fn fetching_stops_at_the_buffer_capacity() {
        let mut client = Client::new(video());
        for _ in 0..3 {
            client.fetch(1000.0);
        }
        // 12 s less the time played since the first: the fourth waits until 4 s are free.
        let first_came = 1000 + 4;
        assert_eq!(client.player.due(), Some(at(first_came + 4000)));
        client.fetch(1000.0);
        assert_eq!(client.record().rebuffers, 0);
        assert_eq!(client.record().startup_ns, 4_000_000);
    }

    #[test]
    fn playback_stands_still_while_the_buffer_is_empty() {
        let mut client = Client::new(video());
        // 4 s at 1 Mbit/s take 1 s, and then 8 s: the buffer is empty for 4 s.
        client.fetch(4.0);
        client.player.ask(at(2000));
        for (ms, stalled_ms, count) in
            [(5000, 0, 0), (6000, 0, 0), (7000, 1000, 1), (10_000, 4000, 1)]
        {
            let record = client.player.record(at(ms));
            assert_eq!((record.rebuffering_ns, record.rebuffers), (stalled_ms * 1_000_000, count));
        }
        client.player.on_segment(at(10_000));
        let record = client.player.record(at(14_000));
        assert_eq!((record.rebuffering_ns, record.rebuffers), (4_000_000_000, 1));
        assert_eq!(client.player.record(at(14_500)).rebuffers, 2);
        assert_eq!((record.startup_ns, record.segments), (1_000_000_000, 2));
    }

    #[test]
    fn playback_begins_with_what_startup_asks_for() {
        let startup = Duration::from_secs(8);
        let mut client = Client::new(Video { startup, ..video() });
        client.fetch(4.0);
        assert_eq!(client.player.record(at(60_000)).startup_ns, 59_000_000_000);
        assert_eq!(client.player.record(at(60_000)).rebuffering_ns, 0);
        client.fetch(4.0);
        // 4 s at 1 Mbit/s and 4 s at 2 Mbit/s.
        assert_eq!(client.record().startup_ns, 3_000_000_000);
        assert_eq!(client.record().rate_bps, 1_500_000);
    }

    #[test]
    fn what_cannot_be_played_is_refused() {
        let seconds = Duration::from_secs;
        let mbit = |rates: &[u64]| rates.iter().copied().map(Rate::from_mbit_per_sec).collect();
        assert_eq!(video().check(), Ok(()));
        for (wrong, expected) in [
            (Video { segment: seconds(61), ..video() }, "segment = 61s: allowed is 100ms to 60s"),
            (Video { rates: mbit(&[]), ..video() }, "rates = 0 rates: allowed is 1 to 32 rates"),
            (Video { rates: mbit(&[2, 2]), ..video() }, "rates = 2 rates: allowed is 1 to 32"),
            (Video { rates: mbit(&[0, 2]), ..video() }, "rates = 2 rates: allowed is 1 to 32"),
            (
                Video { rates: mbit(&[2, 3000]), ..video() },
                "rates = 3Gbit/s: allowed is at most 1GB",
            ),
            (Video { buffer: seconds(3), ..video() }, "buffer = 3s: allowed is at least a segment"),
            (Video { startup: seconds(13), ..video() }, "startup = 13s: allowed is at most the"),
        ] {
            let error = format!("{}", wrong.check().unwrap_err());
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
