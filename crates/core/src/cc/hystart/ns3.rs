//! HyStart as in ns-3.37 (TcpCubic::HystartUpdate): the older HyStart from 16 segments on, with other
//! thresholds. A train spans min_rtt, or the least of a round's first 8 samples is above min_rtt by
//! min_rtt, 4 to 1000 ms.

use crate::cc::Measurement;
use crate::cc::window::Window;
use crate::units::{Duration, Timestamp};

/// Samples before a round is judged (`HyStartMinSamples`).
const SAMPLES: u64 = 8;
/// Least threshold on the rise of the round trip (`HyStartDelayMin`).
const RISE_MIN: Duration = Duration::from_millis(4);
/// Largest threshold on the rise of the round trip (`HyStartDelayMax`).
const RISE_MAX: Duration = Duration::from_secs(1);
/// Window in segments from which it looks (`HyStartLowWindow`).
const FROM: u64 = 16;
/// Largest gap within a train of acknowledgements (`HyStartAckDelta`).
const TRAIN_GAP: Duration = Duration::from_millis(2);

/// Samples of a round.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    began_at: Timestamp,
    /// The last acknowledgement of an unbroken train.
    train_at: Timestamp,
    pub least: Option<Duration>,
    samples: u64,
}

impl Round {
    /// One that begins at `now`.
    pub fn new(now: Timestamp) -> Self {
        Self { began_at: now, train_at: now, ..Self::default() }
    }

    /// Whether a window is large enough to be looked at.
    pub fn looks_at(window: &Window) -> bool {
        window.segments() >= FROM
    }

    /// Whether slow start is to end.
    pub fn finds(
        &mut self,
        now: Timestamp,
        measurement: &Measurement,
        window: &Window,
        min_rtt: Duration,
    ) -> bool {
        if now.saturating_since(self.train_at) <= TRAIN_GAP {
            self.train_at = now;
            if now.saturating_since(self.began_at) > min_rtt {
                return true;
            }
        }
        if self.samples < SAMPLES {
            if let Some(rtt) = measurement.rtt {
                self.least = Some(self.least.map_or(rtt.min, |least| least.min(rtt.min)));
                let packets = (measurement.acked.as_u64() / window.mss()).max(1);
                self.samples = self.samples.saturating_add(packets);
            }
            return false;
        }
        let rise = min_rtt.clamp(RISE_MIN, RISE_MAX);
        self.least.is_some_and(|least| least > min_rtt.saturating_add(rise))
    }
}
