//! What matched boundaries tell of the path: round trips, rates and losses.
//!
//! ```text
//! composed RTT   (received_at - sent_at) + least of 10 s of (report arrival - received_at)
//! rate           bytes received / time between their arrivals, over max(least RTT, 20 ms)
//! ```
//! In the composed RTT the unknown offset between the clocks of the two boxes cancels, and the
//! queues and delays of the way back drop out. What is known of how they drift ([`clock`](super::clock)) is
//! taken out before; 50 ppm that are not known cost at most 0.5 ms in 10 s.
//!
//! The least way back may change by more than skew explains: a route, a queue that stood for longer
//! than the memory, or the first reports, whose least is still that of a few. This says nothing of
//! the way forth, so it comes out as a shift that applies to all earlier round trips too, and
//! queueing delays stay what they are.

use alloc::collections::VecDeque;

use super::Report;
use super::arrivals::Arrivals;
use super::boundary::Boundary;
use super::clock::{Corrected, DRIFT_MAX, Finding, ForeignClock};
use crate::cc::estimators::{SlidingMin, duration};
use crate::units::{ByteCount, Duration, Rate, Ratio, Timestamp};

/// Matched boundaries remembered for rates; at 200 a second two and a half seconds.
const HISTORY_MAX: usize = 512;
/// Shortest span of a rate: stamps that are 0.2 ms late then cost 1 %.
const RATE_SPAN_MIN: Duration = Duration::from_millis(20);
/// Shortest span of a train rate.
const TRAIN_SPAN_MIN: Duration = Duration::from_millis(5);
/// Memory of the least way back and of the least round trip.
const MEMORY_S: f64 = 10.0;

/// Memory of the least round trip of all after the clock has changed, and what a base may be short of it.
const LONG_MEMORY_S: f64 = 30.0;
const SHORT_MIN_S: f64 = 0.1e-3;
/// Memory of round trips of late, and how much longer than the least ones with a queue are.
const RECENT_MEMORY_S: f64 = 0.05;
const QUEUED_MIN_S: f64 = 0.3e-3;

/// A change of the least way back that is a jump: twice the noise assumed of it.
const JUMP_S: f64 = 1e-3;
/// Drift of one clock against another that is allowed for: twice that of ordinary quartz.
const SKEW_MAX: f64 = 100e-6;
/// A change of the least way back from one report to the next that needs no second look.
const SUDDEN_S: f64 = 5e-3;
/// By how much less a way back must have changed than both ways take, unless a clock was put on or back.
const STEP_SLACK_S: f64 = 2e-3;
/// How long another is waited with: meanwhile it may turn out to be the clock's.
const DOUBT_S: f64 = 3.0;
/// After a pause of this length clocks may have drifted by more than goes unnoticed between reports.
const PAUSE_S: f64 = 1.0;
/// Ways back that the least is taken of, at least; as many show the drift of a pause, and until so
/// many are known every better one counts at once.
const RETURNS_MIN: u64 = 32;
/// Reports of which the mean lateness is, and by what part of it and how much at least the least of all may
/// be late.
const LATE_REPORTS: u32 = 1024;
const LATE_SHARE: f64 = 0.1;
/// Part of the mean lateness where nothing is known against the clock: late stamps seem to be early reports.
const LATE_SHARE_QUIET: f64 = 1.5;
const LATE_MIN_S: f64 = 0.25e-3;

/// One matched boundary.
#[derive(Clone, Copy, Debug)]
struct Matched {
    boundary: Boundary,
    received_at: Timestamp,
    /// Counter of the receivebox.
    received_bytes: ByteCount,
    /// What of the bytes sent has arrived.
    arrived_bytes: ByteCount,
    received_packets: u64,
    received_ce: u64,
}

/// A report as it came (seconds).
#[derive(Clone, Copy, Debug)]
struct Heard {
    now_s: f64,
    back_s: f64,
    raw_s: f64,
}

/// How late reports are, over the least way back of the last second: the least of the means of seconds, for
/// while a clock is slewed all seem late (seconds).
#[derive(Clone, Debug, Default)]
struct Lateness {
    since_s: f64,
    sum_s: f64,
    count: u32,
    means: SlidingMin,
}

impl Lateness {
    fn push(&mut self, now_s: f64, late_s: f64) {
        self.sum_s += late_s;
        self.count += 1;
        if now_s - self.since_s >= 1.0 && self.count >= 32 {
            self.means.push(now_s, self.sum_s / f64::from(self.count), LONG_MEMORY_S, 1);
            (self.since_s, self.sum_s, self.count) = (now_s, 0.0, 0);
        }
    }

    fn value(&self) -> f64 {
        self.means.value().unwrap_or(self.sum_s / f64::from(self.count.max(1)))
    }
}

/// What one report adds.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Report arrival minus departure.
    pub raw_rtt: Duration,
    /// Composed round trip.
    pub rtt: Duration,
    /// The way back has changed: earlier round trips count as longer by this many nanoseconds.
    pub shift_ns: Option<i64>,
    /// Whether the way back or the receivebox's clock has changed cannot be told while there is a queue.
    pub is_doubted: bool,
    /// Rates and losses; `None` for a boundary that left before one matched earlier.
    pub progress: Option<Progress>,
}

/// What an in-order report adds.
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
    /// Ways back in seconds, relative to the first: the clocks may be any distance apart.
    returns: SlidingMin,
    /// Mean of how late a report is, over the least way back.
    late_s: f64,
    reports: u32,
    lateness: Lateness,
    raw_round_trips: SlidingMin,
    long_raw_round_trips: SlidingMin,
    recent_raw_round_trips: SlidingMin,
    recent_returns: SlidingMin,
    last: Option<Heard>,
    /// When the clock was last found to go otherwise than was known.
    clock_found_s: Option<f64>,
    /// Since when the least way back is another, and nothing was made of it.
    changed_s: Option<f64>,
    least_s: Option<f64>,
    /// Ways back that the least of all is taken of anew, so that none is a change.
    settling: u64,
    /// The way back that is part of every composed round trip.
    reference_s: Option<f64>,
    followed_at_s: f64,
    /// What clocks may have drifted in the last pause, and the reports since then.
    pause_drift_s: f64,
    since_pause: u64,
    round_trips: SlidingMin,
    arrivals: Arrivals,
    /// Share of the bytes sent that the receivebox does not see, and what is missing of the others.
    unseen: f64,
    missing: f64,
}

impl Feedback {
    /// Takes the report of `boundary`. `None` for a report that cannot be true.
    pub fn on_match(
        &mut self,
        now: Timestamp,
        boundary: &Boundary,
        report: &Report,
    ) -> Option<Sample> {
        let raw_rtt = now.checked_since(boundary.sent_at)?;
        let Corrected { received_at, back_s, finding } =
            self.clock.on_report(now, boundary.sent_at, report.received_at);
        let (now_s, raw_s) = (now.as_secs_f64(), raw_rtt.as_secs_f64());
        match finding {
            Some(Finding::Ahead(by_s)) => self.follow_clock(by_s),
            Some(Finding::Anew) => {
                self.history.clear();
                self.follow_clock(0.0);
                self.settling = RETURNS_MIN;
            }
            Some(Finding::Doubt) | None => {}
        }
        if self.clock.is_suspect() {
            return None;
        }
        if self.is_step(now_s, back_s, raw_s) {
            self.restart_clock();
            return None;
        }
        if now_s - self.followed_at_s > MEMORY_S && self.reference_s.is_some() {
            self.returns.replace(core::iter::empty());
            self.reference_s = None;
            self.settling = RETURNS_MIN;
        }
        self.returns.push(now_s, back_s, MEMORY_S, RETURNS_MIN);
        self.raw_round_trips.push(now_s, raw_s, MEMORY_S, 1);
        self.long_raw_round_trips.push(now_s, raw_s, LONG_MEMORY_S, 1);
        self.recent_raw_round_trips.push(now_s, raw_s, RECENT_MEMORY_S, 4);
        let shift_s = self.follow_returns(now_s);
        if let Some(shift_s) = shift_s {
            self.round_trips.shift(shift_s);
        }
        self.recent_returns.push(now_s, back_s, 1.0, 8);
        let recent_s = back_s - self.recent_returns.value()?;
        let late_s = back_s - self.reference_s?;
        let [least_s, _] = self.bounds_s()?;
        let rtt_s = (raw_s - late_s).max(least_s).min(raw_s).max(1e-9);
        self.reports = (self.reports + 1).min(LATE_REPORTS);
        self.late_s += (recent_s - self.late_s) / self.reports as f64;
        self.lateness.push(now_s, recent_s);
        self.round_trips.push(now_s, rtt_s, MEMORY_S, 1);
        let rtt = duration(rtt_s);
        let is_newest = self.history.back().is_none_or(|last| {
            last.boundary.sent_bytes < boundary.sent_bytes && last.received_at <= received_at
        });
        let progress = if is_newest { self.progress(boundary, received_at, report) } else { None };
        let shift_ns = shift_s.map(|shift_s| libm::round(shift_s * 1e9) as i64);
        let is_doubted = finding == Some(Finding::Doubt) || self.changed_s == Some(now_s);
        Some(Sample { raw_rtt, rtt, shift_ns, is_doubted, progress })
    }

    /// Moves the reference towards the least way back. As fast as clocks drift it moves unnoticed,
    /// which takes the drift out of the way forth; a jump comes back as a shift (seconds).
    fn follow_returns(&mut self, now_s: f64) -> Option<f64> {
        let least_s = self.returns.value()?;
        let reference_s = self.reference_s.unwrap_or(least_s);
        let before_s = self.least_s.replace(least_s).unwrap_or(least_s);
        let elapsed_s = (now_s - self.followed_at_s).max(0.0);
        self.followed_at_s = now_s;
        if elapsed_s > PAUSE_S {
            self.pause_drift_s = SKEW_MAX * elapsed_s;
            self.since_pause = 0;
        }
        self.since_pause += 1;
        if self.since_pause > RETURNS_MIN {
            self.pause_drift_s = 0.0;
        }
        let drift_max_s = SKEW_MAX * elapsed_s.min(PAUSE_S) + self.pause_drift_s;
        let change_s = least_s - reference_s;
        if self.settling > 0 {
            self.settling -= 1;
            self.reference_s = Some(least_s);
            return None;
        }
        // The first report's luck, let out as slowly as clocks drift, would become queue for 10 s.
        let jump_s = if self.returns.count() <= RETURNS_MIN { 0.0 } else { JUMP_S };
        if libm::fabs(change_s) <= jump_s + drift_max_s {
            self.reference_s = Some(reference_s + change_s.clamp(-drift_max_s, drift_max_s));
            self.changed_s = None;
            return None;
        }
        // Further than the least sum of both ways has moved, it is the clock: then nothing is another
        // than it was, and what was composed with the reference before was wrong.
        let shift_s = match (self.bounds_s(), self.round_trips.value()) {
            (Some([least_s, most_s]), Some(rtt_s)) => {
                (rtt_s + change_s).min(most_s).max(least_s) - rtt_s
            }
            _ => change_s,
        };
        let is_sudden = libm::fabs(least_s - before_s) > SUDDEN_S || jump_s == 0.0;
        if change_s < 0.0 && !is_sudden || libm::fabs(shift_s) < JUMP_S && jump_s > 0.0 {
            // What came with a shorter way back than any was shorter, too, without a shift.
            self.reference_s = Some(least_s);
            return None;
        }
        let since_s = *self.changed_s.get_or_insert(now_s);
        if !is_sudden && now_s - since_s < DOUBT_S {
            return None;
        }
        self.reference_s = Some(least_s);
        self.changed_s = None;
        Some(shift_s)
    }

    /// Bounds of the least composed round trip that no clock has a part in (seconds): the least time from a
    /// departure to its report, and what such a report may have been late.
    fn bounds_s(&self) -> Option<[f64; 2]> {
        let most_s = self.raw_round_trips.value()?;
        let is_found =
            self.clock_found_s.is_some_and(|at_s| self.followed_at_s - at_s < LONG_MEMORY_S);
        let late_s = if is_found {
            LATE_SHARE * self.lateness.value()
        } else {
            LATE_SHARE_QUIET * self.late_s
        };
        let least_s = most_s - (LATE_MIN_S + late_s);
        Some([least_s.max(most_s / 2.0), most_s])
    }

    /// Whether the way back has changed since the last report by more than either way takes, and faster than
    /// by a slew: only a clock that is put on or back does that.
    fn is_step(&mut self, now_s: f64, back_s: f64, raw_s: f64) -> bool {
        let Some(last) = self.last.replace(Heard { now_s, back_s, raw_s }) else { return false };
        let slewed_s = DRIFT_MAX * (now_s - last.now_s);
        libm::fabs(back_s - last.back_s) > raw_s.max(last.raw_s) + slewed_s + STEP_SLACK_S
    }

    /// The receivebox's clock was put on or back: no way has changed by more than both take.
    fn restart_clock(&mut self) {
        self.clock.restart();
        self.last = None;
        self.history.clear();
        self.returns.replace(core::iter::empty());
        self.recent_returns.clear();
        self.reference_s = None;
        self.changed_s = None;
        self.settling = RETURNS_MIN;
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

    /// By how much `base` is too short, by what no clock has a part in, after the receivebox's clock has
    /// changed.
    pub fn shortfall(&self, now: Timestamp, base: Duration) -> Option<Duration> {
        let since_s = now.as_secs_f64() - self.clock_found_s?;
        let [least_s, _] = self.bounds_s()?;
        let margin_s = self.raw_round_trips.value()? - least_s;
        let long_s = self.long_raw_round_trips.value()? - margin_s;
        let short_s = long_s - base.as_secs_f64();
        (since_s < LONG_MEMORY_S && short_s > SHORT_MIN_S).then(|| duration(short_s))
    }

    fn progress(
        &mut self,
        boundary: &Boundary,
        received_at: Timestamp,
        report: &Report,
    ) -> Option<Progress> {
        if self.history.back().is_some_and(|last| last.received_bytes > report.received_bytes) {
            // Counters that went back: the receivebox has restarted.
            self.forget_receivebox();
        }
        let (sent, received) = (boundary.sent_bytes, report.received_bytes);
        let lost = self.arrivals.on_match(sent, received, self.unseen, self.missing);
        let matched = Matched {
            boundary: *boundary,
            received_at,
            received_bytes: received,
            arrived_bytes: self.arrivals.arrived(),
            received_packets: report.received_packets,
            received_ce: report.received_ce,
        };
        let span = RATE_SPAN_MIN.max(self.least_rtt()?);
        let start = self.start_of(&matched, span);
        let train_span = TRAIN_SPAN_MIN.max(self.least_rtt()? / 8);
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
        while self.history.len() > HISTORY_MAX
            || self.history.get(1).is_some_and(|second| {
                matched.received_at.saturating_since(second.received_at) > span
            })
        {
            self.history.pop_front();
        }
        Some(progress)
    }

    /// The newest boundary that arrived at least `span` before `end`, or else the oldest one if it
    /// gives at least half of it.
    fn start_of(&self, end: &Matched, span: Duration) -> Option<Matched> {
        let age = |start: &&Matched| end.received_at.saturating_since(start.received_at);
        let long_enough = self.history.iter().rev().find(|start| age(start) >= span);
        long_enough.or(self.history.front().filter(|start| age(start) >= span / 2)).copied()
    }

    /// The receivebox does not see `unseen` of the bytes sent (0 to 1) and of the others misses
    /// `missing`, by what [`Visibility`](super::visibility::Visibility) has found.
    pub fn set_visible(&mut self, unseen: f64, missing: f64) {
        (self.unseen, self.missing) = (unseen, missing);
    }

    /// Least composed round trip of the last 10 s.
    pub fn least_rtt(&self) -> Option<Duration> {
        self.round_trips.value().map(duration)
    }

    /// Whether round trips of late, in which no clock is, are longer than the least of all.
    pub fn is_queued(&self) -> bool {
        let recent_s = self.recent_raw_round_trips.value().unwrap_or(0.0);
        recent_s > self.long_raw_round_trips.value().unwrap_or(0.0) + QUEUED_MIN_S
    }

    /// The receivebox's clock has just been put on or back, or is being slewed, and no report is believed.
    pub const fn is_suspect(&self) -> bool {
        self.clock.is_suspect()
    }

    /// Forgets what rates would be counted from.
    pub fn forget_rates(&mut self) {
        self.history.clear();
    }

    /// Forgets what refers to the counters and the clock of the receivebox.
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
    fn a_first_report_that_is_late_leaves_no_trace_in_round_trips() {
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
            let sample = feedback.on_match(now, &boundary, &report).expect("plausible");
            (sample.rtt.as_micros(), sample.shift_ns)
        };
        assert_eq!(round_trip(1, 900), (10_900, None), "nothing better is known");
        let (rtt_us, shift_ns) = round_trip(2, 0);
        assert_eq!(rtt_us, 10_000);
        assert_eq!(shift_ns.map(|nanos| nanos / 1_000), Some(-900), "the base follows");
        // From 32 reports on, what comes as slowly as clocks drift is taken for drift.
        assert!((3..40).all(|number| round_trip(number, 300) == (10_000, None)));
    }
}
