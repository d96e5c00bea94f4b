//! A live encoder: frames at a constant frequency, at a rate that follows the congestion control of their sender.
//!
//! ```text
//! each frame   rate = r / (1.2 + a + d), within the bounds        r: the algorithm's rate for sources
//!              a += ((w - T/4) / T) / 16, 0 to 0.5                 w: wait of the oldest unsent frame   T: 1 / fps
//!              d = 63/64 d + 1/64 excess, up to 0.2                excess: of the size over the nominal one
//!              size = rate T (1 +- variation), uniform             none while w > late
//! ```
//! So the rate falls before frames wait at the sender for long. If they do all the same, frames are skipped.
//!
//! Sources: draft-johansson-ccwg-rfc8298bis-screamv2-06, media rate control; the uniform sizes are those of the
//! tests of its authors (EricssonResearch/scream, test-record, `-rand`).

use crate::random::Stream;
use crate::spec::SpecError;
use crate::units::{ByteCount, Duration, Rate, Timestamp, format_duration, seconds};

/// Room of the rate below the algorithm's (draft): without it, frames wait at the sender.
const ROOM: f64 = 1.2;
/// Gain of a (RATE_ADJUST_GAIN).
const WAIT_GAIN: f64 = 1.0 / 16.0;
/// Largest a.
const WAIT_MAX: f64 = 0.5;
/// Weight of a frame in d (FRAME_SIZE_DEV_ALPHA).
const EXCESS_WEIGHT: f64 = 1.0 / 64.0;
/// Largest d.
const EXCESS_MAX: f64 = 0.2;

/// The frames of an encoder.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Media {
    /// Frames a second, at least 1.
    pub fps: u32,
    /// Lowest rate.
    pub min_rate: Rate,
    /// Highest rate.
    pub max_rate: Rate,
    /// Rate before the algorithm has one.
    pub start_rate: Rate,
    /// Largest deviation of a size from the nominal one, as a share of it (0 to 1).
    pub variation: f64,
    /// A frame that takes longer is late. Frames are skipped while an unsent one is older.
    pub late: Duration,
}

impl Media {
    /// Time between frames.
    pub fn period(&self) -> Duration {
        seconds(1.0 / f64::from(self.fps.max(1)))
    }

    /// Refuses rates out of order, no rate, and a time in which no frame arrives.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.min_rate == Rate::ZERO || self.max_rate < self.min_rate {
            let value = alloc::format!("{}", self.max_rate);
            return Err(SpecError::new("max_rate", &value, "at least min_rate, above zero"));
        }
        if !(self.min_rate..=self.max_rate).contains(&self.start_rate) {
            let value = alloc::format!("{}", self.start_rate);
            return Err(SpecError::new("start_rate", &value, "min_rate to max_rate"));
        }
        if self.late.is_zero() {
            let value = format_duration(self.late);
            return Err(SpecError::new("late", &value, "a duration above zero"));
        }
        Ok(())
    }
}

/// An encoder at work.
#[derive(Clone, Debug)]
pub struct Encoder {
    media: Media,
    start: Timestamp,
    draws: Stream,
    /// Frames captured.
    count: u32,
    /// a and d.
    waiting: f64,
    excess: f64,
}

impl Encoder {
    /// An encoder of `media`, which [`Media::check`] lets pass, from `start` on; sizes are drawn from `draws`.
    pub fn new(media: Media, start: Timestamp, draws: Stream) -> Self {
        Self { media, start, draws, count: 0, waiting: 0.0, excess: 0.0 }
    }

    /// When the next frame is captured.
    pub fn due(&self) -> Timestamp {
        self.start + self.media.period().saturating_mul(self.count)
    }

    /// Captures a frame and returns its bytes, 0 if it is skipped. `rate` is the algorithm's rate for sources,
    /// and `wait` the age of the oldest unsent frame.
    pub fn encode(&mut self, rate: Option<Rate>, wait: Duration) -> ByteCount {
        self.count = self.count.saturating_add(1);
        let period_s = self.media.period().as_secs_f64();
        let error = wait.as_secs_f64() / period_s - 0.25;
        self.waiting = (self.waiting + error * WAIT_GAIN).clamp(0.0, WAIT_MAX);
        let room = ROOM + self.waiting + self.excess;
        let rate = rate.map_or(self.media.start_rate, |rate| rate.scale(1.0 / room));
        let rate = rate.clamp(self.media.min_rate, self.media.max_rate);
        let nominal = rate.as_bytes_per_sec_f64() * period_s;
        let factor = 1.0 + self.media.variation * (2.0 * self.draws.unit() - 1.0);
        if wait > self.media.late {
            return ByteCount::ZERO;
        }
        let excess = (factor - 1.0).max(0.0);
        self.excess = (self.excess + EXCESS_WEIGHT * (excess - self.excess)).min(EXCESS_MAX);
        ByteCount::new(((nominal * factor) as u64).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Streams;

    fn media() -> Media {
        let mbit = Rate::from_mbit_per_sec;
        let late = Duration::from_millis(200);
        let (min_rate, max_rate, start_rate) = (mbit(1), mbit(10), mbit(2));
        Media { fps: 25, min_rate, max_rate, start_rate, variation: 0.0, late }
    }

    fn encoder(media: Media) -> Encoder {
        Encoder::new(media, Timestamp::ZERO, Streams::new(1).stream("media"))
    }

    #[test]
    fn rate_leaves_room_and_keeps_its_bounds() {
        let mut encoder = encoder(media());
        let mut bytes = |mbit: Option<u64>| {
            encoder.encode(mbit.map(Rate::from_mbit_per_sec), Duration::ZERO).as_u64()
        };
        // A 25th of a second at 2, 5, 10 and 1 Mbit/s.
        let sizes = [None, Some(6), Some(100), Some(0)].map(&mut bytes);
        assert_eq!(sizes, [10_000, 25_000, 50_000, 5000]);
        assert_eq!(encoder.due(), Timestamp::from_nanos(160_000_000));
    }

    #[test]
    fn waiting_frames_lower_the_rate_then_skip() {
        let mut encoder = encoder(media());
        let rate = Some(Rate::from_mbit_per_sec(6));
        let mut bytes = |ms| encoder.encode(rate, Duration::from_millis(ms)).as_u64();
        assert_eq!(bytes(10), 25_000);
        assert!((24_000..24_500).contains(&bytes(40)), "less by 0.75 / 16 of 1.2");
        assert_eq!(bytes(201), 0);
        assert!(bytes(200) < 20_000);
    }

    #[test]
    fn sizes_vary_uniformly() {
        let mut encoder = encoder(Media { variation: 0.5, ..media() });
        let sizes: Vec<u64> =
            (0..1000).map(|_| encoder.encode(None, Duration::ZERO).as_u64()).collect();
        assert!(sizes.iter().all(|size| (5000..15_000).contains(size)));
        let mean = sizes.iter().sum::<u64>() / 1000;
        assert!((9700..10_300).contains(&mean), "{mean}");
    }

    #[test]
    fn impossible_media_is_refused() {
        let refused = |media: Media| alloc::format!("{}", media.check().unwrap_err());
        assert_eq!(media().check(), Ok(()));
        let low = Rate::from_bits_per_sec(1000);
        for (wrong, key) in [
            (Media { max_rate: low, ..media() }, "max_rate"),
            (Media { start_rate: low, ..media() }, "start_rate"),
            (Media { late: Duration::ZERO, ..media() }, "late"),
        ] {
            assert!(refused(wrong).starts_with(key));
        }
    }
}
