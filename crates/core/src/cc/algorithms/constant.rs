//! `const`: a fixed rate, a fixed window, or neither. For tests, and as the arm that only measures.

use alloc::boxed::Box;
use alloc::string::String;

use super::{Algorithm, CongestionControl, CongestionEvent, Measurement, SendLimits, State};
use crate::spec::{Param, Quantity, Spec, SpecError};
use crate::units::{ByteCount, Limit, Rate, Timestamp};

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
/// Fixed window in segments or bytes. Without it the window is unlimited.
const CWND: Param<Fixed> = Param::new("cwnd", "bytes or host segments that may be outstanding");

/// A full packet, the smallest window in bytes.
const FULL_PACKET: ByteCount = ByteCount::new(1514);
/// A window for 100 Gbit/s and 100 ms.
const PACKETS_MAX: u64 = 1_000_000;

/// A window, never in time.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Fixed(Limit);

impl Quantity for Fixed {
    /// A value of `cwnd`.
    const WHAT: &'static str = "packets, 1p to 1000000p, or a size, 1514B or more";
    fn read(text: &str) -> Option<Self> {
        let is_window = |limit: &Limit| match *limit {
            Limit::Packets(packets) => (1..=PACKETS_MAX).contains(&packets),
            Limit::Bytes(bytes) => bytes >= FULL_PACKET,
            Limit::Time(_) => false,
        };
        Limit::read(text).filter(is_window).map(Self)
    }
    fn written(&self) -> String {
        self.0.written()
    }
}

fn build(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    let (rate, cwnd) = (RATE.given(spec)?, CWND.given(spec)?);
    Ok(Box::new(Constant { rate, cwnd, mss: FULL_PACKET }))
}

struct Constant {
    rate: Option<Rate>,
    cwnd: Option<Fixed>,
    /// Bytes of a segment of the host.
    mss: ByteCount,
}

impl Constant {
    fn window(&self) -> Option<ByteCount> {
        match self.cwnd?.0 {
            Limit::Packets(packets) => Some(self.mss * packets),
            Limit::Bytes(bytes) => Some(bytes),
            Limit::Time(_) => None,
        }
    }
}

impl CongestionControl for Constant {
    fn init(&mut self, _now: Timestamp, mss: ByteCount, _initial_cwnd: ByteCount) {
        self.mss = mss;
    }
    fn follows_path(&self) -> bool {
        false
    }
    fn on_measurement(&mut self, _now: Timestamp, _measurement: &Measurement) {}
    fn on_event(&mut self, _now: Timestamp, _event: CongestionEvent) {}
    fn send_limits(&self) -> SendLimits {
        let (cwnd, pacing_rate) = (self.window(), self.rate);
        SendLimits { cwnd, ssthresh: None, pacing_rate, app_limited: None }
    }
    fn state(&self) -> State {
        State { phase: "constant", reason: "configured", ..State::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Value;

    #[test]
    fn window_is_in_host_segments_or_bytes() {
        let window = |text: &str| {
            let spec = Spec::named("const").with("cwnd", Value::Text(text.into()));
            let mut cc = ALGORITHM.build(&spec).ok()?;
            cc.init(Timestamp::ZERO, ByteCount::new(1448), ByteCount::new(14_480));
            cc.send_limits().cwnd.map(ByteCount::as_u64)
        };
        assert_eq!([window("450p"), window("43000B")], [Some(651_600), Some(43_000)]);
        assert_eq!([window("0p"), window("1513B"), window("50ms"), window("450")], [None; 4]);
    }
}
