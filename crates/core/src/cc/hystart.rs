//! Leaving slow start before it loses: HyStart++ (RFC 9406) and the older HyStart (Ha and Rhee,
//! Computer Networks 55(9), 2011) as Linux and ns-3 have it.
//!
//! ```text
//! HyStart++   a round's least round trip, after 8 samples, at least T above that of the round
//!             before: conservative slow start, a quarter of the growth (RFC 9406, 4.2)
//!             T = last / 8 within 4 to 16 ms
//!             below what it was when that began: slow start again; after 5 rounds: ssthresh = cwnd
//! HyStart     from 16 segments on, ssthresh = cwnd when
//!   train     acknowledgements at most 2 ms apart span (min_rtt + 1 ms) / 2 of a round (ns-3:
//!             min_rtt)
//!   delay     a round's least round trip, after 8 samples, is above min_rtt + T
//!             T = min_rtt / 8 within 4 to 16 ms (ns-3: min_rtt within 4 to 1000 ms)
//! ```
//! HyStart ends slow start once until a timeout: later ones, as after a pause, go up to ssthresh
//! (Linux, net/ipv4/tcp_cubic.c: only bictcp_reset clears `found`). It looks at rounds from the first
//! acknowledgement on, and at acknowledgements as they come, whatever they acknowledge.
//! ns-3 (TcpCubic::HystartUpdate) judges the least of a round's first 8 samples only.
//! A round ends when what was outstanding at its start has been acknowledged, counted in bytes.
//! HyStart++ serves the first slow start only (RFC 9406, 4.3).
//!
//! Departures: no limit L on the bytes of one acknowledgement; see [`super::window`]. To HyStart++ a
//! measurement of many acknowledgements counts as as many samples. Linux's 1 ms, its allowance for
//! the acknowledgements of aggregated segments, is less above 2 Gbit/s (hystart_ack_delay).

use alloc::string::ToString;

use super::Measurement;
use super::law::SlowStart;
use super::window::{CWND_MAX, MinRtt, Window};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{Duration, Timestamp};

/// Round-trip samples before a round is judged (RFC 9406, `N_RTT_SAMPLE`).
const SAMPLES: u64 = 8;
/// Bounds of the threshold on the rise (`MIN_RTT_THRESH`, `MAX_RTT_THRESH`).
const RISE_MIN: Duration = Duration::from_millis(4);
const RISE_MAX: Duration = Duration::from_millis(16);
/// ns-3's upper bound (`HyStartDelayMax`).
const NS3_RISE_MAX: Duration = Duration::from_secs(1);
/// Share of the round trip that is the threshold (`MIN_RTT_DIVISOR`).
const RISE_PARTS: u32 = 8;
/// Slow start's growth over that of conservative slow start (`CSS_GROWTH_DIVISOR`).
const CONSERVATIVE_PARTS: u64 = 4;
/// Rounds of conservative slow start (`CSS_ROUNDS`).
const CONSERVATIVE_ROUNDS: u32 = 5;
/// Window in segments from which HyStart looks (`hystart_low_window`).
const CLASSIC_FROM: u64 = 16;
/// Linux's allowance for acknowledgements that come aggregated (`hystart_ack_delay`).
const ACK_DELAY: Duration = Duration::from_millis(1);
/// Largest gap within a train of acknowledgements (`hystart_ack_delta`).
const TRAIN_GAP: Duration = Duration::from_millis(2);

/// Which of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Slow start until a loss.
    #[default]
    Off,
    /// HyStart as in Linux.
    Classic,
    /// HyStart as in ns-3.
    Ns3,
    /// HyStart++.
    PlusPlus,
}

impl Kind {
    /// The parameter.
    pub const PARAM: Param = Param {
        name: "hystart",
        summary: "leave slow start by delay: HyStart++ (RFC 9406), or HyStart as in Linux",
        default: "off",
        allowed: "off, plus_plus or classic",
    };
    /// The switch of ns-3's variant.
    pub const NS3_PARAM: Param = Param {
        name: "ns3_hystart",
        summary: "leave slow start by HyStart with ns-3's thresholds",
        default: "false",
        allowed: "true or false",
    };

    /// Reads both; ns-3's variant takes precedence.
    pub fn read(spec: &Spec) -> Result<Self, SpecError> {
        let value = spec.params.get(Self::PARAM.name).map(|value| value.to_string());
        let name = value.as_deref().map_or(Self::PARAM.default, |value| value.trim_matches('"'));
        let kind = match name {
            "off" => Self::Off,
            "plus_plus" => Self::PlusPlus,
            "classic" => Self::Classic,
            other => return Err(SpecError::new(Self::PARAM.name, other, Self::PARAM.allowed)),
        };
        let is_ns3 = spec.switch(Self::NS3_PARAM.name)?.unwrap_or(false);
        Ok(if is_ns3 { Self::Ns3 } else { kind })
    }
}

/// Conservative slow start.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// The round's least round trip when it began.
    baseline: Duration,
    rounds: u32,
}

/// Watches slow start.
#[derive(Clone, Debug, Default)]
pub struct HyStart {
    kind: Kind,
    min_rtt: MinRtt,
    /// Bytes to be acknowledged until the round ends.
    round_left: u64,
    round_began_at: Timestamp,
    /// The last acknowledgement of an unbroken train.
    train_at: Timestamp,
    round_min: Option<Duration>,
    last_round_min: Option<Duration>,
    samples: u64,
    conservative: Option<Conservative>,
    /// HyStart has ended slow start.
    is_found: bool,
}

impl HyStart {
    /// Watches as `kind` says.
    pub fn new(kind: Kind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Takes a measurement in slow start; sets ssthresh to the window where that is to end.
    pub fn observe(&mut self, now: Timestamp, measurement: &Measurement, window: &mut Window) {
        self.min_rtt.observe(measurement);
        let is_first = window.ssthresh() == CWND_MAX;
        let is_done = self.kind == Kind::PlusPlus && !is_first;
        let acked = measurement.acked.as_u64();
        if self.kind == Kind::Classic && !window.in_slow_start() {
            self.round_left = self.round_left.saturating_sub(acked);
        }
        if self.kind == Kind::Off || is_done || !window.in_slow_start() || acked == 0 {
            return;
        }
        let ends = match self.kind {
            Kind::PlusPlus => self.plus_plus(now, measurement, window),
            Kind::Ns3 => self.ns3(now, measurement, window),
            _ => self.classic(now, measurement, window),
        };
        if ends {
            window.set_ssthresh(window.cwnd());
            self.conservative = None;
        }
    }

    /// What a host does that is not asked at every acknowledgement.
    pub fn host_slow_start(&self) -> SlowStart {
        match self.kind {
            Kind::Off => SlowStart::Standard,
            Kind::Classic => SlowStart::HyStart,
            Kind::PlusPlus => SlowStart::HyStartPlusPlus,
            Kind::Ns3 => SlowStart::Hold,
        }
    }

    /// What of `acked` slow start counts.
    pub fn counted(&self, acked: u64) -> u64 {
        if self.conservative.is_some() { acked / CONSERVATIVE_PARTS } else { acked }
    }

    /// A timeout: what was seen of the path is forgotten, as Linux does.
    pub fn restart(&mut self) {
        *self = Self::new(self.kind);
    }

    /// Round trips seen before count as longer by so many nanoseconds.
    pub fn shift_rtt(&mut self, nanos: i64) {
        self.min_rtt.shift(nanos);
        (self.round_min, self.last_round_min) = (None, None);
    }

    /// Conservative slow start is under way.
    pub fn is_conservative(&self) -> bool {
        self.conservative.is_some()
    }

    /// Counts towards the round; true if a new one begins with this measurement.
    fn begins_round(&mut self, now: Timestamp, measurement: &Measurement, window: &Window) -> bool {
        let acked = measurement.acked.as_u64();
        if acked < self.round_left {
            self.round_left -= acked;
            return false;
        }
        self.round_left = window.in_flight().unwrap_or(window.cwnd()).max(window.mss());
        self.round_began_at = now;
        self.train_at = now;
        self.last_round_min = self.round_min.take().or(self.last_round_min);
        self.samples = 0;
        true
    }

    fn sample(&mut self, measurement: &Measurement, window: &Window) {
        let Some(rtt) = measurement.rtt else { return };
        self.round_min = Some(self.round_min.map_or(rtt.min, |least| least.min(rtt.min)));
        let packets = (measurement.acked.as_u64() / window.mss()).max(1);
        self.samples = self.samples.saturating_add(packets);
    }

    fn plus_plus(&mut self, now: Timestamp, measurement: &Measurement, window: &Window) -> bool {
        if self.begins_round(now, measurement, window)
            && let Some(conservative) = &mut self.conservative
        {
            // The part of a round in which it began counts as one.
            conservative.rounds += 1;
            if conservative.rounds >= CONSERVATIVE_ROUNDS {
                return true;
            }
        }
        self.sample(measurement, window);
        let Some(least) = self.round_min.filter(|_| self.samples >= SAMPLES) else { return false };
        match (self.conservative, self.last_round_min) {
            (Some(conservative), _) if least < conservative.baseline => self.conservative = None,
            (None, Some(last)) => {
                let rise = (last / RISE_PARTS).clamp(RISE_MIN, RISE_MAX);
                if least >= last.saturating_add(rise) {
                    self.conservative = Some(Conservative { baseline: least, rounds: 0 });
                }
            }
            _ => {}
        }
        false
    }

    fn classic(&mut self, now: Timestamp, measurement: &Measurement, window: &Window) -> bool {
        if self.is_found {
            return false;
        }
        if self.begins_round(now, measurement, window) {
            // Not at the end of what was outstanding, but beyond it.
            self.round_left = self.round_left.saturating_add(1);
        }
        self.is_found = window.segments() >= CLASSIC_FROM && self.classic_finds(now, measurement);
        self.is_found
    }

    fn classic_finds(&mut self, now: Timestamp, measurement: &Measurement) -> bool {
        let Some(min_rtt) = self.min_rtt.get() else { return false };
        if now.saturating_since(self.train_at) <= TRAIN_GAP {
            self.train_at = now;
            let span = now.saturating_since(self.round_began_at);
            if span > min_rtt.saturating_add(ACK_DELAY) / 2 {
                return true;
            }
        }
        let Some(rtt) = measurement.rtt else { return false };
        let least = self.round_min.map_or(rtt.min, |least| least.min(rtt.min));
        self.round_min = Some(least);
        let is_judged = self.samples >= SAMPLES;
        self.samples += u64::from(!is_judged);
        let rise = (min_rtt / RISE_PARTS).clamp(RISE_MIN, RISE_MAX);
        is_judged && least > min_rtt.saturating_add(rise)
    }

    fn ns3(&mut self, now: Timestamp, measurement: &Measurement, window: &Window) -> bool {
        let looks = !self.is_found && window.segments() >= CLASSIC_FROM;
        self.is_found |= looks && self.ns3_finds(now, measurement, window);
        if self.begins_round(now, measurement, window) {
            // Not at the end of what was outstanding, but beyond it.
            self.round_left = self.round_left.saturating_add(1);
        }
        looks && self.is_found
    }

    fn ns3_finds(&mut self, now: Timestamp, measurement: &Measurement, window: &Window) -> bool {
        let Some(min_rtt) = self.min_rtt.get() else { return false };
        if now.saturating_since(self.train_at) <= TRAIN_GAP {
            self.train_at = now;
            if now.saturating_since(self.round_began_at) > min_rtt {
                return true;
            }
        }
        if self.samples < SAMPLES {
            self.sample(measurement, window);
            return false;
        }
        let rise = min_rtt.clamp(RISE_MIN, NS3_RISE_MAX);
        self.round_min.is_some_and(|least| least > min_rtt.saturating_add(rise))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::RttSample;
    use crate::cc::window::tests::{Fed, MSS};

    fn slow_start(kind: &'static str) -> Fed {
        let mut fed = Fed::new(&crate::cc::cubic::ALGORITHM, &[("hystart", kind)]);
        fed.gap = Duration::from_millis(3);
        fed
    }

    fn set_rtt(fed: &mut Fed, ms: u64) {
        let rtt = Duration::from_millis(ms);
        fed.rtt = Some(RttSample { latest: rtt, min: rtt });
    }

    #[test]
    fn a_rise_of_an_eighth_begins_a_quarter_of_the_growth() {
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
    fn slow_start_resumes_where_the_delay_falls_and_ends_after_five_rounds() {
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
    fn hystart_ends_slow_start_when_acknowledgements_span_half_a_round_trip() {
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
        // After a pause slow start is back, and the round trip as long: up to ssthresh this time.
        fed.event(crate::cc::CongestionEvent::IdleRestart(2));
        assert!(fed.cwnd() < found / 2);
        fed.ack(60);
        assert!(fed.cwnd() >= found, "{} of {found}", fed.cwnd());
        // After a timeout it is looked for again, in what the path is like now.
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
    fn hystart_ends_slow_start_when_a_round_is_an_eighth_longer() {
        let mut fed = slow_start("classic");
        set_rtt(&mut fed, 80);
        fed.ack(20);
        set_rtt(&mut fed, 91);
        fed.ack(60);
        assert!(fed.ssthresh().is_some());
    }
}
