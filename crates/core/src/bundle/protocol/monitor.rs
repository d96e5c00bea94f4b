//! Judges by its authentic messages whether the peer is alive.
//!
//! ```text
//! silence   max(500 ms, 3 RTT, min(3 x longest recent gap, 3 s)), and 5 s for a peer at rest
//! ```
//! If the path of the messages is full, it drops most of them. The gaps between the remaining messages then
//! show nothing about the peer. The monitor learns their length before it takes one for silence. On a path
//! without loss no gap exceeds a keepalive's 100 ms, and the limit is 500 ms.

use core::time::Duration;

use crate::cc::estimators::duration;
use crate::units::Timestamp;

/// Shortest time that counts as silence: five keepalives in a row.
const SILENCE_MIN: Duration = Duration::from_millis(500);
/// Shortest time that counts as silence of a peer at rest: five of its keepalives in a row.
const SILENCE_RESTING: Duration = Duration::from_secs(5);
/// Silence in round trips. The delay of a live path may just have grown by this much.
const SILENCE_RTTS: u32 = 3;
/// Silence in gaps between messages. For random gaps, the next one exceeds three times the longest of ten once
/// in 290.
const SILENCE_GAPS: f64 = 3.0;
/// Upper limit on the silence derived from gaps (seconds): a control loop without messages for longer has no
/// usable input.
const SILENCE_GAPS_MAX_S: f64 = 3.0;
/// Half-life of a remembered gap (seconds).
const GAP_HALF_LIFE_S: f64 = 30.0;

/// State of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Not heard since this box started.
    Waiting,
    /// Heard recently.
    Alive,
    /// Not heard for longer than the allowed silence, or the peer has announced its stop.
    Silent,
}

impl Liveness {
    /// Lower-case name for status output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Alive => "alive",
            Self::Silent => "silent",
        }
    }
}

/// Watches one peer.
#[derive(Clone, Copy, Debug)]
pub struct Monitor {
    state: Liveness,
    heard_at: Timestamp,
    /// Longest gap between messages of a live peer that was not at rest, reduced with age (seconds).
    gap_s: f64,
    is_resting: bool,
}

impl Monitor {
    /// Nothing heard yet at `now`.
    pub const fn new(now: Timestamp) -> Self {
        Self { state: Liveness::Waiting, heard_at: now, gap_s: 0.0, is_resting: false }
    }

    /// Records a fresh authentic message. True if the peer was not known to be alive.
    pub fn heard(&mut self, now: Timestamp) -> bool {
        if self.state == Liveness::Alive && !self.is_resting {
            let gap_s = now.saturating_since(self.heard_at).as_secs_f64();
            self.gap_s = gap_s.max(self.gap_s * libm::exp2(-gap_s / GAP_HALF_LIFE_S));
        }
        self.heard_at = self.heard_at.max(now);
        self.enter(Liveness::Alive)
    }

    /// Sets whether the peer has announced, in its latest message, that its next one may be late.
    pub const fn set_resting(&mut self, is_resting: bool) {
        self.is_resting = is_resting;
    }

    /// Records that the peer has announced its stop. True if it was not silent before.
    pub fn stopped(&mut self) -> bool {
        self.enter(Liveness::Silent)
    }

    /// Checks for silence at `now`; `rtt` is the round trip to the peer, if known. True if the peer has just
    /// gone silent.
    pub fn poll(&mut self, now: Timestamp, rtt: Option<Duration>) -> bool {
        self.state == Liveness::Alive
            && now.saturating_since(self.heard_at) >= self.patience(rtt)
            && self.enter(Liveness::Silent)
    }

    /// State of the peer.
    pub const fn state(&self) -> Liveness {
        self.state
    }

    fn patience(&self, rtt: Option<Duration>) -> Duration {
        let gaps = duration((SILENCE_GAPS * self.gap_s).min(SILENCE_GAPS_MAX_S));
        let least = if self.is_resting { SILENCE_RESTING } else { SILENCE_MIN };
        rtt.map_or(least, |rtt| least.max(rtt.saturating_mul(SILENCE_RTTS))).max(gaps)
    }

    fn enter(&mut self, state: Liveness) -> bool {
        core::mem::replace(&mut self.state, state) != state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn peer_silent_after_500_ms_or_3_rtt() {
        for (rtt_ms, silent_ms) in [(None, 500), (Some(100), 500), (Some(300), 900)] {
            let rtt = rtt_ms.map(Duration::from_millis);
            let mut monitor = Monitor::new(at(0));
            assert!(!monitor.poll(at(5000), rtt), "waiting is not silence");
            assert!(monitor.heard(at(6000)));
            assert!(!monitor.poll(at(6000 + silent_ms - 1), rtt));
            assert!(monitor.poll(at(6000 + silent_ms), rtt));
            assert!(!monitor.poll(at(60_000), rtt), "told once");
            assert_eq!(monitor.state(), Liveness::Silent);
            assert!(monitor.heard(at(70_000)));
            assert!(!monitor.heard(at(70_100)));
            assert_eq!(monitor.state(), Liveness::Alive);
        }
    }

    #[test]
    fn lossy_path_is_not_silence_and_recovers_trust() {
        let mut monitor = Monitor::new(at(0));
        let silence = |monitor: &Monitor, from: u64| {
            (from..).find(|ms| monitor.clone().poll(at(*ms), None)).map(|ms| ms - from)
        };
        let mut now = 0;
        for gap in [0, 100, 400, 700, 1300, 2000] {
            assert!(!monitor.poll(at(now + gap), None), "{gap}");
            now += gap;
            monitor.heard(at(now));
        }
        assert_eq!(silence(&monitor, now), Some(3000));
        for _ in 0..1100 {
            now += 100;
            monitor.heard(at(now));
        }
        assert_eq!(silence(&monitor, now), Some(500));
    }

    #[test]
    fn resting_peer_silent_after_5_s_without_loss() {
        let mut monitor = Monitor::new(at(0));
        monitor.heard(at(100));
        monitor.set_resting(true);
        for ms in (1000..60_000).step_by(1000) {
            assert!(!monitor.poll(at(ms - 1), None));
            monitor.heard(at(ms));
        }
        assert!(!monitor.clone().poll(at(59_000 + 4999), None));
        assert!(monitor.clone().poll(at(59_000 + 5000), None));
        monitor.heard(at(59_900));
        monitor.set_resting(false);
        assert!(monitor.poll(at(59_900 + 500), None));
    }

    #[test]
    fn a_peer_that_stops_is_silent_at_once() {
        let mut monitor = Monitor::new(at(0));
        monitor.heard(at(10));
        assert!(monitor.stopped());
        assert_eq!(monitor.state(), Liveness::Silent);
        assert!(monitor.heard(at(30)));
    }

    #[test]
    fn an_endless_round_trip_does_not_overflow() {
        let mut monitor = Monitor::new(at(0));
        monitor.heard(at(1));
        assert!(!monitor.poll(at(1_000_000), Some(Duration::MAX)));
    }
}
