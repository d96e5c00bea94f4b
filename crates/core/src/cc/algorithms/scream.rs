//! SCReAMv2: for real-time media. It holds the queueing delay below a target, and lets a frame pass at once.
//!
//! ```text
//! W            reference window; in flight at most h W                  h = 1.5 to 3, less as the delay varies
//! r = W / srtt less up to a fifth below ten segments: for the source    pace = 1.25 r
//! q            mean queueing delay, slow to rise; target 60 ms, more with rivals
//!              0 at the least round trip of the last ten minutes
//! s            (8 (W - Wi) / Wi)^2, 0.1 to 1            Wi: W at a reduction, kept for 10 srtt
//! j            1 with a steady delay, 0.1 with a varying one
//! each ACK     W += unmarked max(s, 1/4) j (mss / W) (1 + 0.02 W / mss p s) min(1, srtt / 25 ms)
//!              unless W > mss + 1.5 bytes in flight     p: 0 at a loss or mark, 1 after 100 srtt
//! loss         W = 0.7 W        classic mark  W = 0.8 W              once an srtt
//! q > target/2 W -= W v / 2     v = 2 q / target - 1, at most 1      once in min(25 ms, srtt), over srtt / 25 ms
//! L4S mark     W -= W a / 2     a: share of marked bytes             the same; less near Wi without a queue
//! ```
//! States: steady, lossy, marked, queueing (the last reduction).
//!
//! Source: draft-johansson-ccwg-rfc8298bis-screamv2-06 (IETF). The source of media
//! ([`crate::traffic::media`]) has the draft's media rate control.
//!
//! Departures, with reasons:
//! - The queueing delay is the round trip's, because few hosts measure one-way delays. A queue on the way back counts, too.
//!   Its base is a sliding minimum, where RFC 6817, to which the draft refers, keeps one minimum a minute.
//! - Losses and classic marks reduce once in srtt, as the draft's text says, and not once in min(25 ms, srtt), as its code
//!   does: one overflow would reduce several times.
//! - The draft's code would count a time before the first loss or mark as if one had come at time 0. Here there was none.
//! - The algorithm does not know the greatest rate of the source. It neither stops growth nor relaxes the pace there.
//! - Bytes stand for data units in the share of marks. Windows count payload, so the rate needs no room for headers.
//! - A timeout counts as a loss. Clock drift, which a round trip does not have, is not treated.
//! - History of rivals: the draft leaves the rate of samples open. Here it has one for each srtt.
//!
//! Ranges: W 2 segments to 1 TB; in floats.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;

use super::{Algorithm, CongestionControl, CongestionEvent, Field, Measurement, SendLimits, State};
use crate::cc::estimators::SlidingMin;
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Duration, Rate, Timestamp, seconds};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "scream",
    summary: "SCReAMv2: media at a queueing delay below a target",
    sources: &["draft-johansson-ccwg-rfc8298bis-screamv2-06", "RFC 8298"],
    params: &[&TARGET],
    needs: &[Field::Rtt],
    min_window_mss: MIN_SEGMENTS * OVERHEAD_MIN,
    // It reduces once in 25 ms, or less often if reports are rarer.
    batch_tolerance: 0.1,
    build: &|spec| Scream::boxed(spec, false),
};

/// Least target of the queueing delay (QDELAY_TARGET_LO). Half of it halves the queue and yields earlier to rivals.
pub(super) const TARGET: Param<Duration> =
    Param::new("target", "queueing delay that is not exceeded without rivals")
        .or(Duration::from_millis(60))
        .within(Duration::from_millis(5)..=Duration::from_millis(400));

/// Largest target in seconds, with rivals that fill the buffer (QDELAY_TARGET_HI).
const TARGET_MAX_S: f64 = 0.4;
/// Least W in segments (MIN_REF_WND, 3000 bytes).
const MIN_SEGMENTS: f64 = 2.0;
/// Largest W in bytes.
const WINDOW_MAX: f64 = 1e12;
/// Seconds after which a round trip is no base of the queueing delay any more (RFC 6817, BASE_HISTORY: ten minutes).
const BASE_WINDOW_S: f64 = 600.0;
/// Bounds of h (REF_WND_OVERHEAD_MIN, REF_WND_OVERHEAD_MAX). With less, frames wait at the sender.
const OVERHEAD_MIN: f64 = 1.5;
/// See [`OVERHEAD_MIN`].
const OVERHEAD_MAX: f64 = 3.0;
/// Part of W that a loss leaves (BETA_LOSS).
const BETA_LOSS: f64 = 0.7;
/// Part of W that a classic mark leaves (BETA_ECN).
const BETA_ECN: f64 = 0.8;
/// Round trip in seconds below which W grows and falls as at this one (VIRTUAL_RTT).
const VIRTUAL_RTT_S: f64 = 0.025;
/// Largest W over the bytes in flight (BYTES_IN_FLIGHT_HEAD_ROOM).
const IN_FLIGHT_HEADROOM: f64 = 1.5;
/// Round trips after a loss or mark until growth has its full pace (POST_CONGESTION_DELAY_RTT).
const CAUTIOUS_RTTS: f64 = 100.0;
/// Growth of W in a round trip as a share of W (MUL_INCREASE_FACTOR).
const MULTIPLICATIVE: f64 = 0.02;
/// Least j (MIN_QUEUE_DELAY_DEV_SCALE).
const STEADINESS_MIN: f64 = 0.1;
/// Weights of a sample in q, in the variation of the delay, and in srtt (QDELAY_AVG_G, QDELAY_DEV_AVG_G, RFC 6298).
const DELAY_WEIGHT: f64 = 0.25;
/// See [`DELAY_WEIGHT`].
const VARIATION_WEIGHT: f64 = 1.0 / 64.0;
/// See [`DELAY_WEIGHT`].
const RTT_WEIGHT: f64 = 0.125;
/// Delay in seconds by which the variation is normalised (QDELAY_DEV_NORM).
const VARIATION_NORM_S: f64 = 0.025;
/// Weights of the share of marks as it rises and as it falls (L4S_AVG_G_UP, L4S_AVG_G_DOWN).
const MARKS_UP: f64 = 0.125;
/// See [`MARKS_UP`].
const MARKS_DOWN: f64 = 1.0 / 128.0;
/// Longest time in seconds between updates of that share.
const MARKS_PERIOD_S: f64 = 0.01;
/// Pace over r: the headroom for a frame (PACKET_PACING_HEADROOM, 1.5) over the room that the source leaves (1.2).
const PACE: f64 = 1.25;
/// Least pace: 75 kbit/s (RATE_PACE_MIN and the headroom).
const PACE_MIN: Rate = Rate::from_bits_per_sec(75_000);
/// Samples of the delay for its variance, and the newest ones for its mean (`adjust_qdelay_target`).
const HISTORY: usize = 200;
/// See [`HISTORY`].
const HISTORY_OF_MEAN: usize = 50;
/// Share of round trips with losses above which there are rivals.
const RIVAL_LOSSES: f64 = 0.002;
/// Variance of the delay, in targets squared, below which a larger target is safe.
const STEADY_VARIANCE: f64 = 0.2;

/// The algorithm, with classic marks or in L4S.
pub(super) struct Scream {
    is_l4s: bool,
    target_min_s: f64,
    target_s: f64,
    mss: f64,
    window: f64,
    /// Wi; 1 byte before the first reduction.
    inflection: f64,
    /// Least round trip of [`BASE_WINDOW_S`].
    base_s: SlidingMin,
    srtt_s: f64,
    delay_s: f64,
    mean_delay_s: f64,
    variation: f64,
    marks: f64,
    /// Acknowledged and marked bytes since the last update of `marks`.
    counted: [f64; 2],
    /// Most bytes in flight in this round trip and in the previous one.
    in_flight: Option<[f64; 2]>,
    /// Delays in targets, and losses, of past round trips.
    history: VecDeque<(f64, bool)>,
    has_lost: bool,
    /// A loss or a mark since the last reduction.
    is_lost: bool,
    is_marked: bool,
    now_s: f64,
    /// Times of the last loss or mark, reduction, and update of Wi, of q, of the marks and of the history.
    congested_s: Option<f64>,
    reduced_s: Option<f64>,
    /// The last reduction by a loss or a classic mark.
    lossy_s: Option<f64>,
    inflected_s: Option<f64>,
    averaged_s: f64,
    marks_s: f64,
    round_s: f64,
    phase: &'static str,
}

impl Scream {
    pub(super) fn boxed(
        spec: &Spec,
        is_l4s: bool,
    ) -> Result<Box<dyn CongestionControl>, SpecError> {
        let target_s = TARGET.of(spec)?.as_secs_f64();
        Ok(Box::new(Self {
            is_l4s,
            target_min_s: target_s,
            target_s,
            mss: 0.0,
            window: 0.0,
            inflection: 1.0,
            base_s: SlidingMin::default(),
            srtt_s: 0.0,
            delay_s: 0.0,
            mean_delay_s: 0.0,
            variation: 0.0,
            marks: 0.0,
            counted: [0.0; 2],
            in_flight: None,
            history: VecDeque::new(),
            has_lost: false,
            is_lost: false,
            is_marked: false,
            now_s: 0.0,
            congested_s: None,
            reduced_s: None,
            lossy_s: None,
            inflected_s: None,
            averaged_s: 0.0,
            marks_s: 0.0,
            round_s: 0.0,
            phase: "steady",
        }))
    }

    /// Threshold of the variation: less in small windows, which grow fast.
    fn threshold(&self) -> f64 {
        (0.1 * (1.0 - self.mss / self.window / 0.1)).max(0.05)
    }

    /// How steady the delay is: 1 to -0.5.
    fn steadiness(&self) -> f64 {
        1.0 - self.variation / self.threshold()
    }

    /// s: small near the window of the last reduction.
    fn distance(&self) -> f64 {
        let share = 8.0 * (self.window - self.inflection) / self.inflection;
        (share * share).clamp(0.1, 1.0)
    }

    fn is_due(&self, since_s: f64, period_s: f64) -> bool {
        self.now_s - since_s >= period_s.min(self.srtt_s)
    }

    fn observe(&mut self, measurement: &Measurement) {
        if let Some(rtt) = measurement.rtt.filter(|rtt| !rtt.min.is_zero()) {
            let latest = rtt.latest.as_secs_f64();
            self.base_s.push(self.now_s, rtt.min.as_secs_f64(), BASE_WINDOW_S, 1);
            let weight = if self.srtt_s > 0.0 { RTT_WEIGHT } else { 1.0 };
            self.srtt_s += weight * (latest - self.srtt_s);
            let base_s = self.base_s.value().map_or(latest, |base_s| base_s.max(0.0));
            self.delay_s = (latest - base_s).max(0.0);
        }
        let [acked, marked] = [measurement.acked, measurement.ecn_ce.unwrap_or_default()];
        self.counted[0] += acked.as_f64();
        self.counted[1] += marked.as_f64();
        if let Some(bytes) = measurement.in_flight {
            let [most, _] = self.in_flight.get_or_insert_default();
            *most = most.max(bytes.as_f64() + acked.as_f64());
        }
        self.is_marked |= self.is_l4s && marked > ByteCount::ZERO;
        let is_lost = measurement.lost.is_some_and(|lost| lost > ByteCount::ZERO);
        self.is_lost |= is_lost;
        self.has_lost |= is_lost;
        if self.is_lost || self.is_marked {
            self.congested_s = Some(self.now_s);
        }
    }

    /// Updates the averages whose time has come.
    fn average(&mut self) {
        if self.is_due(self.marks_s, MARKS_PERIOD_S) && self.counted[0] > 0.0 {
            let share = (self.counted[1] / self.counted[0]).min(1.0);
            let rises = share >= self.marks;
            self.marks = if rises {
                self.marks + MARKS_UP * (share - self.marks)
            } else {
                (1.0 - MARKS_DOWN) * self.marks
            };
            (self.counted, self.marks_s) = ([0.0; 2], self.now_s);
        }
        if self.is_due(self.averaged_s, VIRTUAL_RTT_S) {
            let excess = self.delay_s - self.mean_delay_s;
            self.mean_delay_s += if excess < 0.0 { excess } else { DELAY_WEIGHT * excess };
            let normal = self.delay_s / VARIATION_NORM_S - 0.25;
            let sample = normal.clamp(0.0, 1.5 * self.threshold());
            self.variation += VARIATION_WEIGHT * (sample - self.variation);
            self.averaged_s = self.now_s;
        }
        if self.is_due(self.round_s, f64::INFINITY) {
            self.round_s = self.now_s;
            if let Some(in_flight) = &mut self.in_flight {
                *in_flight = [0.0, in_flight[0]];
            }
            self.adjust_target();
        }
    }

    /// A larger target where rivals fill the buffer.
    fn adjust_target(&mut self) {
        let sample = (self.delay_s / self.target_min_s, core::mem::take(&mut self.has_lost));
        self.history.push_front(sample);
        self.history.truncate(HISTORY);
        let count = self.history.len() as f64;
        let mean = self.history.iter().map(|it| it.0).sum::<f64>() / count;
        let squares = self.history.iter().map(|it| (it.0 - mean) * (it.0 - mean));
        let variance = squares.sum::<f64>() / count;
        let newest = self.history.len().min(HISTORY_OF_MEAN);
        let recent = self.history.iter().take(newest).map(|it| it.0).sum::<f64>() / newest as f64;
        let target_s = (recent + libm::sqrt(variance)) * self.target_min_s;
        let losses = self.history.iter().filter(|it| it.1).count() as f64 / count;
        self.target_s = if losses > RIVAL_LOSSES {
            1.5 * target_s
        } else if variance < STEADY_VARIANCE {
            target_s
        } else if target_s < self.target_min_s {
            (0.5 * self.target_s).max(target_s)
        } else {
            0.9 * self.target_s
        };
        let most = TARGET_MAX_S.max(self.target_min_s);
        self.target_s = self.target_s.clamp(self.target_min_s, most);
    }

    fn reduce(&mut self) {
        let is_new = self.lossy_s.is_none_or(|at_s| self.now_s - at_s >= self.srtt_s);
        self.is_lost &= is_new;
        self.is_marked &= is_new || self.is_l4s;
        let elapsed_s = self.reduced_s.map_or(f64::INFINITY, |at_s| self.now_s - at_s);
        if elapsed_s < VIRTUAL_RTT_S.min(self.srtt_s) {
            return;
        }
        let half = self.target_s / 2.0;
        let distance = self.distance();
        let high_rtt = (self.srtt_s / VIRTUAL_RTT_S).max(1.0);
        let kept = if self.is_lost {
            (self.phase, self.lossy_s) = ("lossy", Some(self.now_s));
            BETA_LOSS
        } else if self.is_marked && self.is_l4s {
            self.phase = "marked";
            let mut backoff = self.marks / 2.0 / high_rtt;
            if self.delay_s < half / 2.0 {
                backoff *= distance.max(0.25) * self.steadiness().max(STEADINESS_MIN);
            }
            let long_s = CAUTIOUS_RTTS * self.srtt_s.max(VIRTUAL_RTT_S);
            if let Some([_, before]) = self.in_flight.filter(|_| elapsed_s > long_s) {
                self.window = self.window.min(before);
            }
            1.0 - backoff
        } else if self.is_marked {
            (self.phase, self.lossy_s) = ("marked", Some(self.now_s));
            BETA_ECN
        } else if self.mean_delay_s > half {
            self.phase = "queueing";
            1.0 - ((self.mean_delay_s - half) / half).min(1.0) / 2.0 / high_rtt
        } else {
            return;
        };
        let is_old = |at_s: f64| self.now_s - at_s > 10.0 * self.srtt_s;
        if self.inflected_s.is_none_or(is_old) {
            (self.inflected_s, self.inflection) = (Some(self.now_s), self.window);
        }
        self.window = (self.window * kept).max(MIN_SEGMENTS * self.mss);
        self.reduced_s = Some(self.now_s);
        (self.is_lost, self.is_marked) = (false, false);
    }

    fn grow(&mut self, unmarked: f64) {
        let cautious_s = CAUTIOUS_RTTS * self.srtt_s.max(VIRTUAL_RTT_S);
        let pace = self.congested_s.map_or(1.0, |at_s| ((self.now_s - at_s) / cautious_s).min(1.0));
        let distance = self.distance();
        let multiple = 1.0 + MULTIPLICATIVE * self.window / self.mss * pace * distance;
        let increment = unmarked
            * (self.mss / self.window).min(1.0)
            * (self.srtt_s / VIRTUAL_RTT_S).min(1.0)
            * distance.max(0.25)
            * self.steadiness().max(STEADINESS_MIN)
            * multiple;
        let grown = self.window + increment;
        let most = self.in_flight.map(|[now, before]| IN_FLIGHT_HEADROOM * now.max(before));
        if most.is_none_or(|most| grown <= most + self.mss) {
            self.window = grown.min(WINDOW_MAX);
        }
    }
}

impl CongestionControl for Scream {
    fn init(&mut self, now: Timestamp, mss: ByteCount, _initial_cwnd: ByteCount) {
        self.mss = mss.as_f64().max(1.0);
        self.window = MIN_SEGMENTS * self.mss;
        self.now_s = now.as_secs_f64();
        (self.averaged_s, self.marks_s, self.round_s) = (self.now_s, self.now_s, self.now_s);
    }

    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        self.now_s = now.as_secs_f64();
        self.observe(measurement);
        if self.srtt_s > 0.0 {
            self.average();
            self.reduce();
            let marked = measurement.ecn_ce.unwrap_or_default();
            self.grow(measurement.acked.saturating_sub(marked).as_f64());
        }
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        self.now_s = now.as_secs_f64();
        match event {
            CongestionEvent::Loss | CongestionEvent::Rto => {
                (self.is_lost, self.has_lost) = (true, true);
            }
            CongestionEvent::EcnCe => self.is_marked = true,
            CongestionEvent::RttShift(nanos) => {
                self.base_s.shift(nanos as f64 / 1e9);
            }
            _ => return,
        }
        if self.is_lost || self.is_marked {
            self.congested_s = Some(self.now_s);
            self.reduce();
        }
    }

    fn send_limits(&self) -> SendLimits {
        let room = (OVERHEAD_MAX - OVERHEAD_MIN) * self.steadiness().max(0.0);
        let cwnd = Some(ByteCount::new((self.window * (OVERHEAD_MIN + room)) as u64));
        let pacing_rate = self.source_rate().map(|rate| rate.scale(PACE).max(PACE_MIN));
        SendLimits { cwnd, pacing_rate, ..SendLimits::default() }
    }

    fn source_rate(&self) -> Option<Rate> {
        let small = (self.mss / self.window - 0.1).clamp(0.0, 0.2);
        let rate = (1.0 - small) * self.window / self.srtt_s;
        (self.srtt_s > 0.0).then(|| Rate::from_bytes_per_sec_f64(rate))
    }

    fn state(&self) -> State {
        State {
            phase: self.phase,
            reason: self.phase,
            min_rtt: self.base_s.value().map(seconds),
            queue_delay: Some(seconds(self.mean_delay_s)),
            numbers: vec![
                ("ref_wnd_bytes", self.window),
                ("inflection_bytes", self.inflection),
                ("target_s", self.target_s),
                ("marks", self.marks),
                ("variation", self.variation),
            ],
            ..State::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scream_l4s;
    use super::*;
    use crate::cc::RttSample;

    /// Segment size in bytes.
    const MSS: u64 = 1000;

    /// A sender over a path of 50 ms whose window is always in flight.
    struct Sender {
        cc: Box<dyn CongestionControl>,
        now: Timestamp,
    }

    impl Sender {
        fn new(algorithm: &Algorithm) -> Self {
            let mut cc = algorithm.build(&Spec::named(algorithm.name)).unwrap();
            cc.init(Timestamp::ZERO, ByteCount::new(MSS), ByteCount::new(10 * MSS));
            Self { cc, now: Timestamp::ZERO }
        }

        fn window(&self) -> f64 {
            self.cc.state().numbers[0].1
        }

        /// Round trips with this queue, and these shares of marked bytes.
        fn rounds(&mut self, count: u32, queue_ms: u64, marked: f64) {
            let rtt = Duration::from_millis(50 + queue_ms);
            for _ in 0..count {
                let acked = self.window();
                for _ in 0..5 {
                    self.now += rtt / 5;
                    let bytes = |bytes: f64| ByteCount::new(bytes as u64);
                    self.cc.on_measurement(
                        self.now,
                        &Measurement {
                            acked: bytes(acked / 5.0),
                            ecn_ce: Some(bytes(acked / 5.0 * marked)),
                            in_flight: Some(bytes(acked)),
                            rtt: Some(RttSample { latest: rtt, min: rtt }),
                            ..Measurement::default()
                        },
                    );
                }
            }
        }
    }

    #[test]
    fn growth_is_a_segment_and_two_percent() {
        let mut sender = Sender::new(&ALGORITHM);
        assert_eq!(sender.window(), 2.0 * MSS as f64);
        sender.rounds(60, 0, 0.0);
        // dW/dt = 1 + 0.02 W in segments, from 2: 50 (1.04 e^1.2 - 1).
        assert!((sender.window() / MSS as f64 - 122.6).abs() < 7.0, "{}", sender.window());
        let rate = sender.cc.source_rate().unwrap().as_bytes_per_sec_f64();
        assert!((rate / (sender.window() / 0.05) - 1.0).abs() < 0.01);
        let limits = sender.cc.send_limits();
        assert_eq!(limits.cwnd.unwrap().as_u64(), (3.0 * sender.window()) as u64);
        assert!((limits.pacing_rate.unwrap().as_bytes_per_sec_f64() / rate - 1.25).abs() < 1e-6);
    }

    #[test]
    fn losses_and_marks_reduce_once_per_round_trip() {
        for (event, beta) in [(CongestionEvent::Loss, 0.7), (CongestionEvent::EcnCe, 0.8)] {
            let mut sender = Sender::new(&ALGORITHM);
            sender.rounds(60, 0, 0.0);
            let before = sender.window();
            sender.cc.on_event(sender.now, event);
            sender.cc.on_event(sender.now + Duration::from_millis(30), event);
            assert_eq!(sender.window(), before * beta);
            sender.rounds(1, 0, 0.0);
            assert!(sender.window() > before * beta, "the same congestion");
        }
    }

    #[test]
    fn queue_above_half_the_target_reduces() {
        let mut sender = Sender::new(&ALGORITHM);
        sender.rounds(60, 0, 0.0);
        let before = sender.window();
        sender.rounds(3, 25, 0.0);
        assert!(sender.window() > before);
        let before = sender.window();
        sender.rounds(10, 60, 0.0);
        assert!(sender.window() < 0.7 * before, "{} of {before}", sender.window());
        assert_eq!(sender.cc.state().phase, "queueing");
    }

    #[test]
    fn steady_delay_raises_the_target() {
        let mut sender = Sender::new(&ALGORITHM);
        sender.rounds(20, 0, 0.0);
        sender.rounds(250, 200, 0.0);
        let target_s = sender.cc.state().numbers[2].1;
        assert!((0.19..0.21).contains(&target_s), "{target_s}");
        sender.rounds(250, 0, 0.0);
        assert_eq!(sender.cc.state().numbers[2].1, 0.06);
    }

    #[test]
    fn longer_path_is_no_queue_after_ten_minutes() {
        let mut sender = Sender::new(&ALGORITHM);
        sender.rounds(20, 0, 0.0);
        let seen = |sender: &Sender| {
            let state = sender.cc.state();
            [state.min_rtt, state.queue_delay].map(|it| it.unwrap().as_millis())
        };
        // 110 ms each: less than ten minutes, then more.
        sender.rounds(5000, 60, 0.0);
        assert_eq!(seen(&sender), [50, 60]);
        sender.rounds(1000, 60, 0.0);
        assert_eq!(seen(&sender), [110, 0]);
    }

    #[test]
    fn l4s_marks_reduce_by_their_share() {
        let mut sender = Sender::new(&scream_l4s::ALGORITHM);
        sender.rounds(60, 0, 0.0);
        let before = sender.window();
        sender.rounds(1, 20, 0.5);
        let alpha = sender.cc.state().numbers[3].1;
        assert!((0.1..0.3).contains(&alpha), "{alpha}");
        // At twice the virtual round trip a step is half as large.
        assert!((0.85 * before..before).contains(&sender.window()), "{}", sender.window());
    }
}
