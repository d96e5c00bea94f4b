//! Rounds as ns-3.37 counts them (TcpVegas, TcpYeah).

use super::least;
use crate::cc::Measurement;
use crate::units::ByteCount;

/// Round trips that a round needs.
const SAMPLES: u32 = 3;

/// A round ends when all bytes outstanding at its beginning are acknowledged. That is an
/// acknowledgement earlier than in [`super::Rounds`]. A round counts with three round trips measured
/// or more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    /// Delivered at the end of the round; `None`: it begins with the next measurement.
    until: Option<ByteCount>,
    samples: u32,
    /// Since a duplicate acknowledgement, until SND.UNA moves.
    is_disordered: bool,
}

impl Outstanding {
    /// Before the first measurement.
    pub fn new() -> Self {
        Self { until: Some(ByteCount::ZERO), samples: 0, is_disordered: false }
    }

    /// True where the duplicates reported no loss: ns-3 then is in the state CA_OPEN again, with
    /// which it begins a new round.
    pub fn is_order_restored(&mut self, measurement: &Measurement) -> bool {
        let is_duplicate = measurement.acked == ByteCount::ZERO;
        !is_duplicate & core::mem::replace(&mut self.is_disordered, is_duplicate)
    }

    /// True if a round ends with this measurement.
    pub fn on_measurement(&mut self, measurement: &Measurement) -> bool {
        self.samples += u32::from(least(measurement).is_some());
        let has_begun = self.until.is_some();
        if measurement.acked == ByteCount::ZERO
            || self.until.is_some_and(|until| measurement.delivered < until)
        {
            return false;
        }
        self.until = Some(measurement.delivered + measurement.in_flight.unwrap_or_default());
        has_begun
    }

    /// Whether too little was measured in the round that has ended.
    pub fn was_too_short(&mut self) -> bool {
        core::mem::take(&mut self.samples) < SAMPLES
    }

    /// Samples from now on belong to another round.
    pub fn restart(&mut self) {
        (self.until, self.samples, self.is_disordered) = (None, 0, false);
    }
}
