//! `const`: a fixed rate, a fixed window, or neither. For tests, and as the arm that only measures.

use alloc::boxed::Box;

use super::{Algorithm, CongestionControl, CongestionEvent, Measurement, SendLimits, State};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Rate, Timestamp};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "const",
    summary: "a fixed rate or window; without parameters no limit at all",
    sources: &[],
    params: &[&RATE, &CWND],
    needs: &[],
    min_window_mss: 1.0,
    batch_tolerance: 0.0,
    build: &build,
};

/// Smallest rate: a full packet in about 1.5 s.
const RATE: Param<Rate> =
    Param::new("rate", "pacing rate").at_least(Rate::from_bits_per_sec(8_000));
/// Smallest window: a full packet.
const CWND: Param<ByteCount> =
    Param::new("cwnd", "bytes that may be outstanding").at_least(ByteCount::new(1514));

fn build(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    let (rate, cwnd) = (RATE.given(spec)?, CWND.given(spec)?);
    Ok(Box::new(Constant { rate, cwnd }))
}

struct Constant {
    rate: Option<Rate>,
    cwnd: Option<ByteCount>,
}

impl CongestionControl for Constant {
    fn init(&mut self, _now: Timestamp, _mss: ByteCount, _initial_cwnd: ByteCount) {}
    fn on_measurement(&mut self, _now: Timestamp, _measurement: &Measurement) {}
    fn on_event(&mut self, _now: Timestamp, _event: CongestionEvent) {}
    fn send_limits(&self) -> SendLimits {
        let (cwnd, pacing_rate) = (self.cwnd, self.rate);
        SendLimits { cwnd, ssthresh: None, pacing_rate, app_limited: None }
    }
    fn state(&self) -> State {
        State { phase: "constant", reason: "configured", ..State::default() }
    }
}
