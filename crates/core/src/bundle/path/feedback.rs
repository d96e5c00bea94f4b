//! Round trips, rates and losses from matched boundaries.
//!
//! ```text
//! composed RTT   (received_at - sent_at) + least of 10 s of (report arrival - received_at)
//! rate           bytes received / time between their arrivals, over max(least RTT, 20 ms)
//! ```
//! In the composed RTT the unknown offset between the clocks of the two boxes cancels, and the queues and
//! delays of the way back drop out. Known clock drift ([`clock`](super::clock)) is removed first. An
//! unknown drift of 50 ppm costs at most 0.5 ms in 10 s.
//!
//! The least way back may change by more than skew explains. Causes are a new route, a queue that
//! persisted longer than the memory, or the first reports, a minimum over a few samples. Such a change
//! says nothing about the way forth. So it is returned as a shift that also applies to all earlier round
//! trips, and queueing delays stay the same.

use alloc::collections::VecDeque;

use super::arrivals::Arrivals;
use super::boundary::Boundary;
use super::clock::{Corrected, DRIFT_MAX, Finding, ForeignClock, skew, step_min_s};
use super::visibility::Seen;
use super::{MATCHED_MAX, TICK};
use crate::bundle::Report;
use crate::bundle::tuning::Tuning;
use crate::cc::estimators::{SlidingMin, duration};
use crate::units::{ByteCount, Duration, Rate, Ratio, Timestamp};

/// One matched boundary.
#[derive(Clone, Copy, Debug)]
struct Matched {
    boundary: Boundary,
    received_at: Timestamp,
    /// Counter of the receivebox.
    received_bytes: ByteCount,
    /// Bytes that have arrived of those sent.
    arrived_bytes: ByteCount,
    received_packets: u64,
    received_ce: u64,
}

/// A report as it arrived (seconds).
#[derive(Clone, Copy, Debug)]
struct Heard {
    now_s: f64,
    back_s: f64,
    raw_s: f64,
}

/// Mean lateness of reports over the least way back of the last second (seconds). The least of the means
/// per second counts, because all reports seem late while a clock is slewed.
#[derive(Clone, Debug, Default)]
struct Lateness {
    since_s: f64,
    sum_s: f64,
    count: u32,
    means: SlidingMin,
}

impl Lateness {
    fn add(&mut self, tuning: &Tuning, now_s: f64, late_s: f64) {
        self.sum_s += late_s;
        self.count += 1;
        if now_s - self.since_s >= 1.0 && self.count >= tuning.usual_count {
            self.means.push(
                now_s,
                self.sum_s / f64::from(self.count),
                tuning.long_memory().as_secs_f64(),
                1,
            );
            (self.since_s, self.sum_s, self.count) = (now_s, 0.0, 0);
        }
    }

    fn value(&self) -> f64 {
        self.means.value().unwrap_or(self.sum_s / f64::from(self.count.max(1)))
    }
}

/// How the way back has changed (seconds).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WayBack {
    /// Earlier round trips count as longer by this.
    Shifted(f64),
    /// The way back is shorter by this, and so were the round trips that showed it.
    Shorter(f64),
}

/// Result of one report.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Report arrival minus departure.
    pub raw_rtt: Duration,
    /// Composed round trip.
    pub rtt: Duration,
    /// `None`: the way back is as it was.
    pub way_back: Option<WayBack>,
    /// While a queue persists, it is undecidable whether the way back or the receivebox's clock has changed.
    pub is_doubted: bool,
    /// Rates and losses; `None` for a boundary that left before one matched earlier.
    pub progress: Option<Progress>,
}

/// Result of an in-order report.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Identity of the boundary at which the span of the rates begins.
    pub previous_identity: Option<u64>,
    /// Rate of arrival over about one round trip.
    pub delivery_rate: Option<Rate>,
    /// Rate of arrival over a small part of a round trip.
    pub train_rate: Option<Rate>,
    /// Rate of departure of the same bytes as in `delivery_rate`.
    pub send_rate: Option<Rate>,
    /// Share of the departure time of these bytes in which the bundle had nothing to send.
    pub idle: Option<Ratio>,
    /// Share of the bytes that left in the span of the rates and did not arrive (0 to 1).
    pub loss: f64,
    /// Bytes newly received.
    pub acked: ByteCount,
    /// Bytes newly missing.
    pub lost: ByteCount,
    /// Bytes newly received with a congestion mark.
    pub ecn_ce: ByteCount,
}

/// Turns matched boundaries into samples.
#[derive(Clone, Debug, Default)]
pub struct Feedback {
    history: VecDeque<Matched>,
    clock: ForeignClock,
    /// Ways back in seconds, relative to the first: the offset between the clocks is unbounded.
    returns: SlidingMin,
    /// Mean lateness of a report over the least way back.
    late_s: f64,
    reports: u32,
    lateness: Lateness,
    raw_round_trips: SlidingMin,
    long_raw_round_trips: SlidingMin,
    recent_raw_round_trips: SlidingMin,
    recent_returns: SlidingMin,
    last: Option<Heard>,
    /// When the clock was last found to differ from the estimate.
    clock_found_s: Option<f64>,
    /// Since when the least way back differs from the reference without a shift.
    changed_s: Option<f64>,
    least_s: Option<f64>,
    /// Reports left until the least way back is settled; until then no difference counts as a change.
    settling: u64,
    /// The way back that is part of every composed round trip.
    reference_s: Option<f64>,
    followed_at_s: f64,
    /// Possible drift of the clocks in the last pause, and the reports since then.
    pause_drift_s: f64,
    since_pause: u64,
    round_trips: SlidingMin,
    arrivals: Arrivals,
}

impl Feedback {
    /// Takes the report of `boundary`; `seen` says which share of the traffic the receivebox sees. `None`
    /// for a report that cannot be true.
    pub fn on_match(
        &mut self,
        tuning: &Tuning,
        now: Timestamp,
        boundary: &Boundary,
        report: &Report,
        seen: Seen,
    ) -> Option<Sample> {
        let raw_rtt = now.checked_since(boundary.sent_at)?;
        let Corrected { received_at, back_s, finding } =
            self.clock.on_report(tuning, now, boundary.sent_at, report.received_at);
        let (now_s, raw_s) = (now.as_secs_f64(), raw_rtt.as_secs_f64());
        match finding {
            Some(Finding::Ahead(by_s)) => self.follow_clock(by_s),
            Some(Finding::Anew) => {
                self.history.clear();
                self.follow_clock(0.0);
                self.settling = u64::from(tuning.usual_count);
            }
            Some(Finding::Doubt) | None => {}
        }
        if self.clock.is_suspect() {
            return None;
        }
        if self.is_step(tuning, now_s, back_s, raw_s) {
            self.restart_clock(tuning);
            return None;
        }
        if now_s - self.followed_at_s > tuning.feedback_memory.as_secs_f64()
            && self.reference_s.is_some()
        {
            self.returns.replace(core::iter::empty());
            self.reference_s = None;
            self.settling = u64::from(tuning.usual_count);
        }
        self.returns.push(
            now_s,
            back_s,
            tuning.feedback_memory.as_secs_f64(),
            u64::from(tuning.usual_count),
        );
        self.raw_round_trips.push(now_s, raw_s, tuning.feedback_memory.as_secs_f64(), 1);
        self.long_raw_round_trips.push(now_s, raw_s, tuning.long_memory().as_secs_f64(), 1);
        let few = u64::from(tuning.reports_few);
        self.recent_raw_round_trips.push(now_s, raw_s, tuning.reports_time.as_secs_f64(), few);
        let way_back = self.follow_returns(tuning, now_s);
        if let Some(WayBack::Shifted(by_s)) = way_back {
            self.round_trips.shift(by_s);
        }
        self.recent_returns.push(now_s, back_s, 1.0, few);
        let recent_s = back_s - self.recent_returns.value()?;
        let late_s = back_s - self.reference_s?;
        let [least_s, _] = self.bounds_s(tuning)?;
        let rtt_s = (raw_s - late_s).max(least_s).min(raw_s).max(1e-9);
        self.reports = (self.reports + 1).min(MATCHED_MAX as u32);
        self.late_s += (recent_s - self.late_s) / self.reports as f64;
        self.lateness.add(tuning, now_s, recent_s);
        self.round_trips.push(now_s, rtt_s, tuning.feedback_memory.as_secs_f64(), 1);
        let rtt = duration(rtt_s);
        let is_newest = self.history.back().is_none_or(|last| {
            last.boundary.sent_bytes < boundary.sent_bytes && last.received_at <= received_at
        });
        let progress = if is_newest {
            self.progress(tuning, boundary, received_at, report, seen)
        } else {
            None
        };
        let is_doubted = finding == Some(Finding::Doubt) || self.changed_s == Some(now_s);
        Some(Sample { raw_rtt, rtt, way_back, is_doubted, progress })
    }

    /// Moves the reference towards the least way back. At the speed of clock drift it moves silently,
    /// which removes the drift from the way forth; a jump is returned.
    fn follow_returns(&mut self, tuning: &Tuning, now_s: f64) -> Option<WayBack> {
        let least_s = self.returns.value()?;
        let reference_s = self.reference_s.unwrap_or(least_s);
        let before_s = self.least_s.replace(least_s).unwrap_or(least_s);
        let elapsed_s = (now_s - self.followed_at_s).max(0.0);
        self.followed_at_s = now_s;
        if elapsed_s > tuning.pause().as_secs_f64() {
            self.pause_drift_s = skew(tuning) * elapsed_s;
            self.since_pause = 0;
        }
        self.since_pause += 1;
        if self.since_pause > u64::from(tuning.usual_count) {
            self.pause_drift_s = 0.0;
        }
        let drift_max_s =
            skew(tuning) * elapsed_s.min(tuning.pause().as_secs_f64()) + self.pause_drift_s;
        let change_s = least_s - reference_s;
        if self.settling > 0 {
            self.settling -= 1;
            self.reference_s = Some(least_s);
            return None;
        }
        // Following the first reports' luck only as slowly as clocks drift would add queue for 10 s.
        let jump_s = if self.returns.count() <= u64::from(tuning.usual_count) {
            0.0
        } else {
            tuning.delay_noise.as_secs_f64()
        };
        if libm::fabs(change_s) <= jump_s + drift_max_s {
            self.reference_s = Some(reference_s + change_s.clamp(-drift_max_s, drift_max_s));
            self.changed_s = None;
            return None;
        }
        // The clock explains any change that the least sum of both ways does not show. Then no way has
        // changed, and only the round trips composed with the earlier reference were wrong.
        let shift_s = match (self.bounds_s(tuning), self.round_trips.value()) {
            (Some([least_s, most_s]), Some(rtt_s)) => {
                (rtt_s + change_s).min(most_s).max(least_s) - rtt_s
            }
            _ => change_s,
        };
        let is_sudden =
            libm::fabs(least_s - before_s) > tuning.feedback_sudden.as_secs_f64() || jump_s == 0.0;
        if change_s < 0.0 && !is_sudden
            || libm::fabs(shift_s) < tuning.delay_noise.as_secs_f64() && jump_s > 0.0
        {
            // A round trip measured over a shorter way back was itself shorter, and needs no shift.
            self.reference_s = Some(least_s);
            return (change_s < 0.0).then_some(WayBack::Shorter(-change_s));
        }
        let since_s = *self.changed_s.get_or_insert(now_s);
        if !is_sudden && now_s - since_s < tuning.waited_max.as_secs_f64() {
            return None;
        }
        self.reference_s = Some(least_s);
        self.changed_s = None;
        Some(WayBack::Shifted(shift_s))
    }

    /// Bounds of the least composed round trip that no clock affects (seconds). The upper one is
    /// the least time from a departure to its report. The lower one subtracts that report's possible lateness.
    fn bounds_s(&self, tuning: &Tuning) -> Option<[f64; 2]> {
        let most_s = self.raw_round_trips.value()?;
        let is_found = self
            .clock_found_s
            .is_some_and(|at_s| self.followed_at_s - at_s < tuning.long_memory().as_secs_f64());
        let late_s = if is_found {
            tuning.feedback_late_share * self.lateness.value()
        } else {
            tuning.feedback_late_quiet * self.late_s
        };
        let least_s = most_s - (tuning.boxes_late.as_secs_f64() + late_s);
        Some([least_s.max(most_s / 2.0), most_s])
    }

    /// Whether the way back has changed since the last report by more than either way takes, and faster
    /// than a slew. Only a stepped clock does that.
    fn is_step(&mut self, tuning: &Tuning, now_s: f64, back_s: f64, raw_s: f64) -> bool {
        let Some(last) = self.last.replace(Heard { now_s, back_s, raw_s }) else { return false };
        let slewed_s = DRIFT_MAX * (now_s - last.now_s);
        libm::fabs(back_s - last.back_s) > raw_s.max(last.raw_s) + slewed_s + step_min_s(tuning)
    }

    /// The receivebox's clock was stepped: the way back changed by more than both ways take.
    fn restart_clock(&mut self, tuning: &Tuning) {
        self.clock.restart();
        self.last = None;
        self.history.clear();
        self.returns.replace(core::iter::empty());
        self.recent_returns.clear();
        self.reference_s = None;
        self.changed_s = None;
        self.settling = u64::from(tuning.usual_count);
        self.clock_found_s = Some(self.followed_at_s);
    }

    /// The receivebox's clock was ahead by `by_s` more than was known.
    fn follow_clock(&mut self, by_s: f64) {
        self.last = None;
        let by = duration(libm::fabs(by_s));
        for Matched { received_at, .. } in &mut self.history {
            *received_at = if by_s > 0.0 { *received_at - by } else { *received_at + by };
        }
        self.returns.replace(self.clock.ways_back());
        self.recent_returns.clear();
        self.reference_s = self.returns.value();
        self.least_s = self.reference_s;
        self.changed_s = None;
        self.clock_found_s = Some(self.followed_at_s);
    }

    /// Lower bound of the base after the receivebox's clock has changed (seconds), from times that no
    /// clock affects.
    pub fn base_min_s(&self, tuning: &Tuning, now: Timestamp) -> Option<f64> {
        let since_s = now.as_secs_f64() - self.clock_found_s?;
        let [least_s, _] = self.bounds_s(tuning)?;
        let margin_s = self.raw_round_trips.value()? - least_s;
        let long_s = self.long_raw_round_trips.value()? - margin_s;
        (since_s < tuning.long_memory().as_secs_f64()).then_some(long_s)
    }

    fn progress(
        &mut self,
        tuning: &Tuning,
        boundary: &Boundary,
        received_at: Timestamp,
        report: &Report,
        seen: Seen,
    ) -> Option<Progress> {
        if self.history.back().is_some_and(|last| last.received_bytes > report.received_bytes) {
            // Counters that went back: the receivebox has restarted.
            self.forget_receivebox();
        }
        let (sent, received) = (boundary.sent_bytes, report.received_bytes);
        let lost = self.arrivals.on_match(sent, received, seen);
        let matched = Matched {
            boundary: *boundary,
            received_at,
            received_bytes: received,
            arrived_bytes: self.arrivals.arrived(),
            received_packets: report.received_packets,
            received_ce: report.received_ce,
        };
        let span = tuning.feedback_span.max(self.least_rtt()?);
        let start = self.start_of(&matched, span);
        let train_span = TICK.max(self.least_rtt()? / 8);
        let train = self.start_of(&matched, train_span);
        let last = self.history.back().copied();
        let acked = last.map_or(ByteCount::ZERO, |last| {
            matched.arrived_bytes.saturating_sub(last.arrived_bytes)
        });
        let progress = Progress {
            previous_identity: start.map(|start| start.boundary.identity),
            delivery_rate: start.and_then(|start| matched.delivery_rate_since(&start)),
            train_rate: train.and_then(|start| matched.delivery_rate_since(&start)),
            send_rate: start.and_then(|start| matched.send_rate_since(&start)),
            idle: start.and_then(|start| matched.idle_since(&start)),
            loss: start.map_or(0.0, |start| matched.loss_since(&start)),
            acked,
            lost,
            ecn_ce: last.map_or(ByteCount::ZERO, |last| matched.marked_since(&last, acked)),
        };
        self.history.push_back(matched);
        while self.history.len() > MATCHED_MAX
            || self.history.get(1).is_some_and(|second| {
                matched.received_at.saturating_since(second.received_at) > span
            })
        {
            self.history.pop_front();
        }
        Some(progress)
    }

    /// The newest boundary that arrived at least `span` before `end`. Otherwise the oldest one, if it
    /// lies at least half of `span` before `end`.
    fn start_of(&self, end: &Matched, span: Duration) -> Option<Matched> {
        let age = |start: &&Matched| end.received_at.saturating_since(start.received_at);
        let long_enough = self.history.iter().rev().find(|start| age(start) >= span);
        long_enough.or(self.history.front().filter(|start| age(start) >= span / 2)).copied()
    }

    /// Least composed round trip of the last 10 s.
    pub fn least_rtt(&self) -> Option<Duration> {
        self.round_trips.value().map(duration)
    }

    /// Whether recent raw round trips, which no clock affects, exceed the least one.
    pub fn is_queued(&self, tuning: &Tuning) -> bool {
        let recent_s = self.recent_raw_round_trips.value().unwrap_or(0.0);
        recent_s
            > self.long_raw_round_trips.value().unwrap_or(0.0) + tuning.boxes_late.as_secs_f64()
    }

    /// The receivebox's clock has just been stepped or is being slewed, and no report is believed.
    pub const fn is_suspect(&self) -> bool {
        self.clock.is_suspect()
    }

    /// Forgets the boundaries from which rates are counted.
    pub fn forget_rates(&mut self) {
        self.history.clear();
    }

    /// Forgets everything from the counters and the clock of the receivebox.
    pub fn forget_receivebox(&mut self) {
        self.history.clear();
        self.returns.clear();
        self.recent_returns.clear();
        self.clock = ForeignClock::default();
        self.changed_s = None;
        self.least_s = None;
        self.reference_s = None;
        self.arrivals.forget_receivebox();
    }
}

impl Matched {
    fn delivery_rate_since(&self, start: &Self) -> Option<Rate> {
        let bytes = self.arrived_bytes.saturating_sub(start.arrived_bytes);
        bytes.per(self.received_at.saturating_since(start.received_at))
    }

    fn send_rate_since(&self, start: &Self) -> Option<Rate> {
        let bytes = self.boundary.sent_bytes.saturating_sub(start.boundary.sent_bytes);
        bytes.per(self.boundary.sent_at.saturating_since(start.boundary.sent_at))
    }

    fn loss_since(&self, start: &Self) -> f64 {
        let sent = self.boundary.sent_bytes.saturating_sub(start.boundary.sent_bytes).as_f64();
        let arrived = self.arrived_bytes.saturating_sub(start.arrived_bytes).as_f64();
        if sent > 0.0 { (1.0 - arrived / sent).clamp(0.0, 1.0) } else { 0.0 }
    }

    fn idle_since(&self, start: &Self) -> Option<Ratio> {
        let elapsed = self.boundary.sent_at.saturating_since(start.boundary.sent_at);
        let idle = self.boundary.idle.saturating_sub(start.boundary.idle);
        if elapsed.is_zero() {
            return None;
        }
        Ratio::new((idle.as_secs_f64() / elapsed.as_secs_f64()).min(1.0))
    }

    fn marked_since(&self, last: &Self, acked: ByteCount) -> ByteCount {
        let packets = self.received_packets.saturating_sub(last.received_packets);
        let marked = self.received_ce.saturating_sub(last.received_ce).min(packets);
        if packets == 0 {
            return ByteCount::ZERO;
        }
        ByteCount::new((acked.as_f64() * marked as f64 / packets as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_first_report_does_not_affect_round_trips() {
        let mut feedback = Feedback::default();
        // 5 ms there and 5 ms back; the clock of the other box is an hour ahead.
        let mut round_trip = |number: u64, late_us: u64| {
            let sent_at = Timestamp::from_nanos(number * 5_000_000);
            let now = sent_at + Duration::from_micros(10_000 + late_us);
            let sent_bytes = ByteCount::new(number * 100_000);
            let boundary = Boundary { sent_at, sent_bytes, ..Boundary::default() };
            let report = Report {
                hash: 0,
                received_at: sent_at + Duration::from_secs(3600) + Duration::from_millis(5),
                received_bytes: ByteCount::new(number * 100_000),
                received_packets: number * 70,
                received_ce: 0,
                epoch_size: crate::bundle::EpochSize::MAX,
            };
            let sample = feedback
                .on_match(&Tuning::DEFAULT, now, &boundary, &report, Seen::default())
                .expect("plausible");
            (sample.rtt.as_micros(), sample.way_back)
        };
        assert_eq!(round_trip(1, 900), (10_900, None), "nothing better is known");
        let (rtt_us, way_back) = round_trip(2, 0);
        assert_eq!(rtt_us, 10_000);
        let follows =
            matches!(way_back, Some(WayBack::Shifted(by_s)) if (by_s + 0.9e-3).abs() < 1e-6);
        assert!(follows, "the base does: {way_back:?}");
        // After 32 reports, a change as slow as clock drift counts as drift.
        assert!((3..40).all(|number| round_trip(number, 300) == (10_000, None)));
    }
}
