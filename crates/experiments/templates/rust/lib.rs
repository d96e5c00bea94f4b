//! my_cc: additive increase, multiplicative decrease (AIMD), as TCP Reno has it. A place to begin.
//!
//! ```text
//! slow start    cwnd < ssthresh: cwnd += bytes acknowledged
//! avoidance     cwnd += mss for each window acknowledged
//! loss, mark    ssthresh = keep x cwnd, at least 2 mss; cwnd = ssthresh; once an episode
//! timeout       the same ssthresh; cwnd = 1 mss
//! ```
//! The algorithm gets measurements and events of the path, and answers with limits. It has no clock (time is an
//! argument) and does no I/O. It draws random numbers only from the seed of `set_seed`: the same run then has the same
//! result. An algorithm that only defines how a window grows and shrinks can be shorter: see
//! `forebay_core::cc::window::WindowLaw`.

use forebay_core::cc::{
    Algorithm, CongestionControl, CongestionEvent, Measurement, SendLimits, State,
};
use forebay_core::spec::{Param, Spec, SpecError};
use forebay_core::units::{ByteCount, Timestamp};

/// The registry entry: forebay looks for it under this name.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "my_cc",
    summary: "additive increase, multiplicative decrease",
    sources: &[],
    params: &[&KEEP],
    // Fields of `Measurement` that it cannot do without, such as `Field::Rtt`: hosts without them refuse it. Hosts
    // sample rates and request marks (ECN) only if `Field::DeliveryRate` and `Field::EcnCe` stand here.
    needs: &[],
    // The smallest window it ever sets, in segments.
    min_window_mss: 1.0,
    // Largest change of its mean window if it gets a measurement for each round trip instead of each packet (share of
    // the window).
    batch_tolerance: 0.05,
    build: &build,
};

/// A parameter, for `forebay bench './my_cc(keep=0.7)'`: its name, summary, default and range.
const KEEP: Param<f64> =
    Param::new("keep", "share of the window that a loss leaves").or(0.5).within(0.1..=0.95);

fn build(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    Ok(Box::new(MyCc {
        keep: KEEP.of(spec)?,
        mss: 1,
        initial: 1,
        cwnd: 1,
        ssthresh: CWND_MAX,
        growth: 0,
        phase: Phase::Open,
        saved: None,
    }))
}

/// Largest window in bytes: products of a window and a segment fit into 64 bits.
const CWND_MAX: u64 = 1 << 32;
/// Least ssthresh in segments (RFC 5681, equation 4).
const SSTHRESH_MIN_MSS: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Losses are being repaired: no growth, and no further reduction.
    Recovery,
    /// After a timeout: growth, but no reduction for losses of before.
    Timeout,
    /// After a reduction that no `RecoveryEnd` ends: bytes yet to be acknowledged.
    Reduced(u64),
}

#[derive(Clone)]
struct MyCc {
    keep: f64,
    /// Bytes of a segment.
    mss: u64,
    /// The first window, in bytes.
    initial: u64,
    /// The window, in bytes.
    cwnd: u64,
    /// Slow start ends here, in bytes.
    ssthresh: u64,
    /// Growth not yet a byte, in parts of 1/cwnd byte.
    growth: u64,
    phase: Phase,
    /// Window and ssthresh before the last reduction.
    saved: Option<(u64, u64)>,
}

impl MyCc {
    fn set_cwnd(&mut self, bytes: u64) {
        self.cwnd = bytes.clamp(self.mss, CWND_MAX);
        self.growth = 0;
    }

    /// Lowers ssthresh, and the window to it.
    fn reduce(&mut self) {
        self.saved = Some((self.cwnd, self.ssthresh));
        let kept = (self.cwnd as f64 * self.keep) as u64;
        self.ssthresh = kept.max(SSTHRESH_MIN_MSS * self.mss);
        self.set_cwnd(self.ssthresh);
    }

    /// A sign of congestion that no event begins or ends an episode for: once a window.
    fn on_mark(&mut self) {
        if self.phase == Phase::Open {
            let window = self.cwnd;
            self.reduce();
            self.phase = Phase::Reduced(window);
        }
    }

    fn grow(&mut self, acked: u64) {
        // An acknowledgement of more than a window counts as one window.
        let acked = acked.min(self.cwnd);
        if self.cwnd < self.ssthresh {
            self.set_cwnd((self.cwnd + acked).min(self.ssthresh));
            return;
        }
        let growth = self.growth + acked * self.mss;
        let window = self.cwnd;
        self.set_cwnd(window + growth / window);
        self.growth = growth % window;
    }
}

impl CongestionControl for MyCc {
    /// The connection starts: bytes of a segment, and bytes that the host has in flight until it asks for limits.
    fn init(&mut self, _now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        self.mss = mss.as_u64().clamp(1, 1 << 16);
        self.initial = initial_cwnd.as_u64().clamp(self.mss, CWND_MAX);
        self.ssthresh = CWND_MAX;
        self.set_cwnd(self.initial);
    }

    /// Measurements since the last call: one acknowledgement, one report of a kernel, or one epoch of a bundle. `None`
    /// in a field means not known here. Some of the fields:
    /// - `acked`, bytes newly delivered, and `lost`, bytes newly taken for lost;
    /// - `rtt.latest` and `rtt.min`, round trips of the interval; `delivery_rate`, at which bytes arrived;
    /// - `in_flight`, bytes outstanding; `app_limited` and `cwnd_limited`, whether the sender had more to send.
    fn on_measurement(&mut self, _now: Timestamp, measurement: &Measurement) {
        // A sendbox sees losses and repairs none, so no event comes with them.
        if measurement.lost.is_some_and(|lost| lost > ByteCount::ZERO) {
            self.on_mark();
        }
        let acked = measurement.acked.as_u64();
        match &mut self.phase {
            Phase::Recovery => return,
            Phase::Reduced(left) => {
                *left = left.saturating_sub(acked);
                if *left == 0 {
                    self.phase = Phase::Open;
                }
                return;
            }
            Phase::Open | Phase::Timeout => {}
        }
        // A window that was not filled needs no growth.
        if measurement.cwnd_limited.unwrap_or(!measurement.app_limited) {
            self.grow(acked);
        }
    }

    /// Handles events that cannot wait for the next measurement.
    fn on_event(&mut self, _now: Timestamp, event: CongestionEvent) {
        match event {
            CongestionEvent::Loss => {
                if !matches!(self.phase, Phase::Reduced(_)) {
                    self.reduce();
                }
                self.phase = Phase::Recovery;
            }
            CongestionEvent::RecoveryEnd => self.phase = Phase::Open,
            CongestionEvent::Rto => {
                if self.phase == Phase::Open {
                    self.reduce();
                }
                self.set_cwnd(self.mss);
                self.phase = Phase::Timeout;
            }
            CongestionEvent::EcnCe => self.on_mark(),
            CongestionEvent::Spurious => {
                if let Some((cwnd, ssthresh)) = self.saved.take() {
                    self.set_cwnd(self.cwnd.max(cwnd));
                    self.ssthresh = ssthresh;
                }
                self.phase = Phase::Open;
            }
            // The path's capacity may have changed by now.
            CongestionEvent::IdleRestart(_) | CongestionEvent::FeedbackLost => {
                self.set_cwnd(self.cwnd.min(self.initial));
            }
            _ => {}
        }
    }

    /// The limits in force. The host derives those left out: here the pacing rate, from window and round trip.
    fn send_limits(&self) -> SendLimits {
        let ssthresh = Some(self.ssthresh).filter(|ssthresh| *ssthresh < CWND_MAX);
        SendLimits {
            cwnd: Some(ByteCount::new(self.cwnd)),
            ssthresh: ssthresh.map(ByteCount::new),
            ..SendLimits::default()
        }
    }

    /// For logs: a word, and numbers with names.
    fn state(&self) -> State {
        let phase = match self.phase {
            Phase::Recovery | Phase::Reduced(_) => "reduced",
            Phase::Open | Phase::Timeout if self.cwnd < self.ssthresh => "slow_start",
            Phase::Open | Phase::Timeout => "avoidance",
        };
        State { phase, numbers: vec![("cwnd_bytes", self.cwnd as f64)], ..State::default() }
    }

    /// Copies the algorithm in its current state, for hosts that open many short connections.
    fn copied(&self) -> Option<Box<dyn CongestionControl>> {
        Some(Box::new(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any measurements leave a valid window, hearing less often hardly moves it, wrong parameters are refused.
    #[test]
    fn it_keeps_the_rules_of_every_algorithm() {
        forebay_core::testing::cc::conform(&ALGORITHM);
    }

    #[test]
    fn loss_reduces_window_once_per_episode() {
        let mut cc = ALGORITHM.build(&Spec::named(ALGORITHM.name)).unwrap();
        cc.init(Timestamp::ZERO, ByteCount::new(1000), ByteCount::new(10_000));
        let acked = Measurement { acked: ByteCount::new(10_000), ..Measurement::default() };
        cc.on_measurement(Timestamp::ZERO, &acked);
        assert_eq!(cc.send_limits().cwnd, Some(ByteCount::new(20_000)), "slow start");
        cc.on_event(Timestamp::ZERO, CongestionEvent::Loss);
        let lost = Measurement { lost: Some(ByteCount::new(3000)), ..acked };
        cc.on_measurement(Timestamp::ZERO, &lost);
        assert_eq!(
            cc.send_limits().cwnd,
            Some(ByteCount::new(10_000)),
            "half of it, and no growth"
        );
        cc.on_event(Timestamp::ZERO, CongestionEvent::RecoveryEnd);
        cc.on_measurement(Timestamp::ZERO, &acked);
        assert_eq!(cc.send_limits().cwnd, Some(ByteCount::new(11_000)), "a segment a window");
    }
}
