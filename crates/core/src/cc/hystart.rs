//! Leaving slow start before it loses: HyStart++ (RFC 9406) and the older HyStart (Ha and Rhee,
//! Computer Networks 55(9), 2011) as Linux and ns-3 have it.
//!
//! ```text
//! HyStart++   a round's least round trip, after 8 samples, at least T above the least of the round
//!             before: conservative slow start, a quarter of the growth (RFC 9406, 4.2)
//! HyStart     ssthresh = cwnd where acknowledgements close to each other span half a round trip, or
//!             a round's least round trip is an eighth above the least of all
//! ```
//! Hosts that execute an interim judge a round by the same code ([`super::interim::hystart`], with the
//! thresholds). Here a round ends when the bytes outstanding at its start have been acknowledged. HyStart of
//! Linux and ns-3 wants one byte more. HyStart++ serves the first slow start only (RFC 9406, 4.3), HyStart
//! one until a timeout, or until the host says that it has ended it.
//!
//! Departures: no limit L on the bytes of one acknowledgement; see [`super::window`]. To HyStart++ a
//! measurement of many acknowledgements counts as that many samples. Aggregated acknowledgements may be 1 ms
//! late at any rate, which Linux allows up to 2 Gbit/s (hystart_ack_delay). Every sender counts as unpaced.

mod ns3;

use alloc::string::String;

use super::Measurement;
use super::interim::SlowStart;
use super::interim::hystart::{self as of_hosts, ACK_DELAY_MAX_US, HyStartSample};
use super::window::{CWND_MAX, MinRtt, Window};
use crate::spec::{Param, Quantity};
use crate::units::{Duration, Timestamp, duration_nanos};

/// Growth in slow start over growth in conservative slow start (`CSS_GROWTH_DIVISOR`).
const CONSERVATIVE_PARTS: u64 = 4;

/// The variant of HyStart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd)]
pub enum HyStartKind {
    /// Slow start until a loss.
    #[default]
    Off,
    /// HyStart as in Linux.
    Classic,
    /// HyStart as in ns-3.
    Ns3,
    /// HyStart++ (RFC 9406).
    PlusPlus,
}

impl HyStartKind {
    /// The parameter.
    pub const PARAM: Param<Self> = Param::new(
        "hystart",
        "leave slow start by delay: HyStart++ (RFC 9406), or HyStart as in Linux",
    )
    .or(Self::Off);
}

/// [`HyStartKind::Ns3`] has no name: only CUBIC as in ns-3 has it.
const NAMES: [(&str, HyStartKind); 3] = [
    ("off", HyStartKind::Off),
    ("plus_plus", HyStartKind::PlusPlus),
    ("classic", HyStartKind::Classic),
];

impl Quantity for HyStartKind {
    /// The values of `hystart`.
    const WHAT: &'static str = "off, plus_plus or classic";
    fn read(text: &str) -> Option<Self> {
        NAMES.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind)
    }
    fn written(&self) -> String {
        NAMES.iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| *name).into()
    }
}

/// Watches slow start.
#[derive(Clone, Debug, Default)]
pub struct HyStart {
    kind: HyStartKind,
    min_rtt: MinRtt,
    /// Bytes to be acknowledged until the round ends.
    round_left: u64,
    watch: of_hosts::HostHyStart,
    ns3: ns3::Round,
}

fn micros(duration: Duration) -> u32 {
    (duration_nanos(duration) / 1000).clamp(1, u32::MAX.into()) as u32
}

impl HyStart {
    /// Watches as `kind` says.
    pub fn new(kind: HyStartKind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Takes a measurement in slow start; sets ssthresh to the window where that is to end.
    pub fn observe(&mut self, now: Timestamp, measurement: &Measurement, window: &mut Window) {
        self.min_rtt.observe(measurement);
        let is_first = window.ssthresh() == CWND_MAX;
        let is_done = self.kind == HyStartKind::PlusPlus && !is_first;
        let acked = measurement.acked.as_u64();
        if self.kind == HyStartKind::Classic && !window.in_slow_start() {
            self.round_left = self.round_left.saturating_sub(acked);
        }
        if self.kind == HyStartKind::Off || is_done || !window.in_slow_start() || acked == 0 {
            return;
        }
        let ends = match self.kind {
            HyStartKind::PlusPlus => self.plus_plus(measurement, window),
            HyStartKind::Ns3 => self.ns3(now, measurement, window),
            _ => self.classic(now, measurement, window),
        };
        if ends {
            window.set_ssthresh(window.cwnd());
        }
    }

    /// Slow start of a host that does not call at every acknowledgement.
    pub fn host_slow_start(&self) -> SlowStart {
        match self.kind {
            HyStartKind::Off => SlowStart::Standard,
            HyStartKind::Classic if self.watch.is_found => SlowStart::Standard,
            HyStartKind::Classic => SlowStart::HyStart,
            HyStartKind::PlusPlus => SlowStart::HyStartPlusPlus,
            HyStartKind::Ns3 => SlowStart::Hold,
        }
    }

    /// The host has ended slow start, as the algorithm wanted.
    pub fn host_found(&mut self) {
        self.watch.is_found = true;
    }

    /// The part of `acked` that slow start counts.
    pub fn counted(&self, acked: u64) -> u64 {
        if self.is_conservative() { acked / CONSERVATIVE_PARTS } else { acked }
    }

    /// A timeout: forgets all samples of the path, as Linux does.
    pub fn restart(&mut self) {
        *self = Self::new(self.kind);
    }

    /// Round trips seen before count as `nanos` nanoseconds longer.
    pub fn shift_rtt(&mut self, nanos: i64) {
        self.min_rtt.shift(nanos);
        (self.watch.round_min, self.watch.base, self.ns3.least) = (0, 0, None);
    }

    /// Conservative slow start is under way.
    pub fn is_conservative(&self) -> bool {
        self.watch.is_conservative()
    }

    /// Counts towards the round; true if a new one begins with this measurement.
    fn begins_round(&mut self, measurement: &Measurement, window: &Window) -> bool {
        let acked = measurement.acked.as_u64();
        if acked < self.round_left {
            self.round_left -= acked;
            return false;
        }
        self.round_left = window.in_flight().unwrap_or(window.cwnd()).max(window.mss());
        // Not at the end of the outstanding bytes, but beyond it.
        self.round_left =
            self.round_left.saturating_add(u64::from(self.kind != HyStartKind::PlusPlus));
        true
    }

    fn plus_plus(&mut self, measurement: &Measurement, window: &Window) -> bool {
        // The part of a round in which conservative slow start began counts as one.
        if self.begins_round(measurement, window) && self.watch.begin_plus_plus() {
            return true;
        }
        if let Some(rtt) = measurement.rtt {
            let packets = (measurement.acked.as_u64() / window.mss()).clamp(1, 255);
            self.watch.judge_plus_plus(micros(rtt.min), packets as u8);
        }
        false
    }

    fn classic(&mut self, now: Timestamp, measurement: &Measurement, window: &Window) -> bool {
        let (Some(rtt), Some(min_rtt)) = (measurement.rtt, self.min_rtt.get()) else {
            self.round_left = self.round_left.saturating_sub(measurement.acked.as_u64());
            return false;
        };
        if self.watch.is_found {
            return false;
        }
        let now_us = (now.as_nanos() / 1000) as u32;
        if self.begins_round(measurement, window) {
            self.watch.begin(now_us);
        }
        self.watch.base = micros(min_rtt);
        self.watch.finds(&HyStartSample {
            rtt_us: micros(rtt.min),
            now_us,
            cwnd: u32::try_from(window.segments()).unwrap_or(u32::MAX),
            ack_delay_us: ACK_DELAY_MAX_US,
            is_paced: false,
        })
    }

    fn ns3(&mut self, now: Timestamp, measurement: &Measurement, window: &Window) -> bool {
        let looks = !self.watch.is_found && ns3::Round::looks_at(window);
        if let Some(min_rtt) = self.min_rtt.get().filter(|_| looks) {
            self.watch.is_found = self.ns3.finds(now, measurement, window, min_rtt);
        }
        if self.begins_round(measurement, window) {
            self.ns3 = ns3::Round::new(now);
        }
        looks && self.watch.is_found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::RttSample;
    use crate::cc::window::tests::{Fed, MSS};

    fn slow_start(kind: &'static str) -> Fed {
        let mut fed = Fed::new(&crate::cc::algorithms::cubic::ALGORITHM, &[("hystart", kind)]);
        fed.gap = Duration::from_millis(3);
        fed
    }

    fn set_rtt(fed: &mut Fed, ms: u64) {
        let rtt = Duration::from_millis(ms);
        fed.rtt = Some(RttSample { latest: rtt, min: rtt });
    }

    #[test]
    fn rise_of_an_eighth_quarters_the_growth() {
        let mut fed = slow_start("plus_plus");
        set_rtt(&mut fed, 80);
        fed.ack_windows(2); // 10 to 40 segments: rounds of 1, 10 or 11, 20 or 22
        let before = fed.cwnd();
        set_rtt(&mut fed, 89); // 1 ms less than the threshold
        fed.ack(40);
        assert_eq!(fed.cwnd(), before + 40 * MSS);
        fed.ack(80);
        set_rtt(&mut fed, 110);
        fed.ack(160);
        let before = fed.cwnd();
        assert_eq!(fed.number("conservative"), 1.0);
        fed.ack(40);
        assert_eq!(fed.cwnd(), before + 10 * MSS);
        assert_eq!(fed.ssthresh(), None);
    }

    #[test]
    fn slow_start_resumes_on_falling_delay_or_ends() {
        let mut fed = slow_start("plus_plus");
        set_rtt(&mut fed, 40);
        fed.ack_windows(2);
        set_rtt(&mut fed, 60);
        fed.ack_windows(1);
        assert_eq!(fed.number("conservative"), 1.0);
        set_rtt(&mut fed, 50);
        fed.ack_windows(2);
        assert_eq!(fed.number("conservative"), 0.0);
        set_rtt(&mut fed, 80);
        fed.ack_windows(1);
        assert_eq!(fed.number("conservative"), 1.0);
        assert_eq!(fed.ssthresh(), None);
        fed.ack_windows(6);
        assert!(fed.ssthresh().is_some());
    }

    #[test]
    fn hystart_ends_when_acknowledgements_span_half_a_round() {
        let mut fed = slow_start("classic");
        set_rtt(&mut fed, 100);
        fed.gap = Duration::from_millis(1);
        fed.ack(7); // 17 segments
        fed.ack(50);
        assert_eq!(fed.ssthresh(), None);
        let mut fed = slow_start("classic");
        set_rtt(&mut fed, 20);
        fed.gap = Duration::from_millis(1);
        fed.ack(30);
        // The second round begins with the 12th acknowledgement, at 21 segments.
        assert_eq!(fed.ssthresh(), Some(32 * MSS), "a train of more than 10.5 ms");
    }

    #[test]
    fn hystart_ends_slow_start_once_until_a_timeout() {
        let mut fed = slow_start("classic");
        set_rtt(&mut fed, 80);
        fed.ack(20);
        set_rtt(&mut fed, 120);
        fed.ack(60);
        let found = fed.ssthresh().expect("a round half as long again");
        // After a pause slow start is back, and the round trip is still long: up to ssthresh this time.
        fed.event(crate::cc::CongestionEvent::IdleRestart(2));
        assert!(fed.cwnd() < found / 2);
        fed.ack(60);
        assert!(fed.cwnd() >= found, "{} of {found}", fed.cwnd());
        // After a timeout slow start ends again, by the samples of the present path.
        fed.event(crate::cc::CongestionEvent::Rto);
        fed.event(crate::cc::CongestionEvent::RecoveryEnd);
        set_rtt(&mut fed, 80);
        fed.ack(4);
        let before = fed.ssthresh();
        set_rtt(&mut fed, 120);
        fed.ack(30);
        assert!(fed.ssthresh() < before, "{:?}, {before:?}", fed.ssthresh());
    }

    #[test]
    fn host_ended_slow_start_is_final_until_timeout() {
        use crate::cc::CongestionEvent;
        let interim = |fed: &Fed| fed.cc.interim().slow_start;
        let mut fed = slow_start("classic");
        set_rtt(&mut fed, 80);
        fed.ack(20);
        assert_eq!(interim(&fed), SlowStart::HyStart);
        fed.event(CongestionEvent::SlowStartEnd(crate::units::ByteCount::new(30 * MSS)));
        assert_eq!(interim(&fed), SlowStart::Standard);
        fed.event(CongestionEvent::IdleRestart(1));
        let before = fed.ssthresh();
        set_rtt(&mut fed, 200);
        fed.ack(10);
        assert_eq!(fed.ssthresh(), before);
        fed.event(CongestionEvent::Rto);
        assert_eq!(interim(&fed), SlowStart::HyStart);
    }

    #[test]
    fn hystart_ends_when_a_round_is_eighth_longer() {
        let mut fed = slow_start("classic");
        set_rtt(&mut fed, 80);
        fed.ack(20);
        set_rtt(&mut fed, 91);
        fed.ack(60);
        assert!(fed.ssthresh().is_some());
    }
}
