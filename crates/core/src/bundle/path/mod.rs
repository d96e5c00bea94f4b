//! The path as a sendbox observes it, from boundary packets that left and the reports on them.
//!
//! ```text
//! departures ──► boundary table ──┐
//! reports ────────────────────────┴► feedback ──► Observation ──► control
//!                                      ▲ unseen share                  │ limits in force
//!                                      └─── visibility ◄───────────────┘
//! ```
//! [`Path`] owns all parts. Control gets an [`Observation`] with each report, and a [`View`] when it sets
//! the rate.

mod arrivals;
mod boundary;
mod clock;
mod epoch;
mod feedback;
mod order;
mod outstanding;
pub mod sample;
pub mod segments;
mod silence;
pub mod spans;
mod visibility;

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use self::boundary::{Boundary, BoundaryTable};
use self::epoch::EpochSizer;
use self::feedback::{Feedback, Progress, Sample, WayBack};
use self::order::Order;
pub use self::order::Tally;
use self::outstanding::{Accepted, IdleClock, Outstanding};
use self::silence::Unanswered;
use self::spans::{Arrival, PathSpan, Spans};
pub use self::visibility::{Alarm, VisibilityVerdict};
use self::visibility::{Loop, Totals, Visibility};
use super::tuning::Tuning;
use super::{BoundaryMark, Departures, EpochSize, Report};
use crate::cc::estimators::{BottleneckRate, SlidingMin, duration, is_idle};
use crate::cc::{Measurement, RttSample};
use crate::qdisc::{Backlog, MTU};
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Frame bytes of a full segment on Ethernet without FCS.
pub const MSS: ByteCount = ByteCount::new(MTU);
/// Matched boundaries that are remembered for rates and their order, and over which the mean lateness is
/// taken. Five seconds at 200 a second; bounds the memory.
const MATCHED_MAX: usize = 1024;
/// Longest time between ticks.
pub const TICK: Duration = Duration::from_millis(5);

/// One matched boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Identity given at the departure.
    pub identity: u64,
    /// Identity of the boundary from which `delivery_rate` is counted.
    pub previous_identity: Option<u64>,
    /// When the boundary left.
    pub sent_at: Timestamp,
    /// Composed round-trip time.
    pub rtt: Duration,
    /// Report arrival minus departure.
    pub raw_rtt: Duration,
    /// Rate of arrival at the receivebox since the previous identity, about one round trip before.
    pub delivery_rate: Option<Rate>,
    /// Epoch size in force at the receivebox.
    pub epoch_size: EpochSize,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendboxCounters {
    /// Packets that left.
    pub packets_sent: u64,
    /// Bytes that left.
    pub bytes_sent: ByteCount,
    /// Boundaries sent whose report could be expected: under the coarser of both boxes' sizes, once the
    /// receivebox has named its own. If a notice of a coarser size overtakes packets on the way, their
    /// boundaries stay unmatched.
    pub boundaries_sent: u64,
    /// Boundaries sent whose report could not be expected, and none came. The peer was silent, had named
    /// no size, or had named a larger size.
    pub boundaries_unexpected: u64,
    /// Boundaries matched by a report.
    pub boundaries_matched: u64,
    /// Matched after a boundary that left later.
    pub reports_stale: u64,
    /// Reports of boundaries that are unknown here.
    pub reports_unmatched: u64,
    /// Reports of boundaries matched before.
    pub reports_duplicate: u64,
    /// Reports of a hash that several packets had.
    pub reports_ambiguous: u64,
    /// Matched reports that cannot be true.
    pub reports_implausible: u64,
    /// Boundaries overwritten before a report came.
    pub boundaries_overwritten: u64,
    /// Boundaries that arrived in the order of their departure, and boundaries that arrived after one
    /// that left later (`order`).
    pub order: Tally,
}

/// Content of one report.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// The matched boundary.
    pub epoch: Epoch,
    /// Earlier round trips count as longer by this many nanoseconds (negative: shorter).
    pub shift_ns: Option<i64>,
    /// How much longer the way back is than when the base was measured.
    pub way_back: Duration,
    /// Lower bound of the least round trip with the present way back (seconds); `None`: no bound.
    pub base_min_s: Option<f64>,
    /// While a queue persists, it is undecidable whether the way back or the receivebox's clock has changed.
    pub is_doubted: bool,
    /// Input for the controller; `None` for a boundary that left before one matched earlier.
    pub measurement: Option<Measurement>,
    totals: Totals,
}

/// The state of control that affects observation.
#[derive(Clone, Copy, Debug)]
pub struct Steering {
    /// Least round trip of the controller.
    pub base: Option<Duration>,
    /// A rate is enforced.
    pub is_shaped: bool,
    /// A rate can be enforced; otherwise no test is possible.
    pub is_testable: bool,
    /// The lowest rate that is ever enforced.
    pub min_rate: Rate,
}

/// Results of a tick.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticked {
    /// Reason why no departure is reported although the receivebox is alive.
    pub blind: Option<&'static str>,
    /// A change in the share that the receivebox sees.
    pub verdict: Option<VisibilityVerdict>,
    /// The judgement of the packets' order has changed.
    pub is_order_changed: bool,
}

/// State of the path when a rate is set.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Rate at which the receivebox sees the bundle arrive, over about one round trip.
    pub delivery_rate: Rate,
    /// Recent maximum of the delivery rate.
    pub bottleneck_rate: Option<Rate>,
    /// Least time from the departure of a boundary to the arrival of its report.
    pub loop_time: Duration,
    /// Bytes outstanding.
    pub in_flight_bytes: f64,
    /// The bundle's own queue was empty for part of the time.
    pub app_limited: bool,
    /// Bytes in the bundle's own queue.
    pub backlog: ByteCount,
    /// Boundaries have left, but no report of one has arrived for longer than the loop takes.
    pub is_report_missing: bool,
}

/// The observing side of one bundle.
pub struct Path {
    tuning: Arc<Tuning>,
    boundaries: BoundaryTable,
    feedback: Feedback,
    visibility: Visibility,
    order: Order,
    sizer: EpochSizer,
    idle: IdleClock,
    /// Bytes in the bundle's own queue, as last given by the host.
    backlog: ByteCount,
    counters: SendboxCounters,
    /// Epoch size of the receivebox by its latest message; `None`: it has named none.
    peer_size: Option<EpochSize>,
    delivered: ByteCount,
    loop_times: SlidingMin,
    bottleneck: BottleneckRate,
    /// Largest estimate of the bottleneck's rate since the start, or since the feedback was lost.
    carried: Rate,
    delivery_rate: Rate,
    /// Mean delivery rate over the last few loop times (bytes per second).
    mean_bytes_per_s: f64,
    app_limited: bool,
    measured_at: Option<Timestamp>,
    outstanding: Outstanding,
    accepted: Accepted,
    unanswered: Option<Unanswered>,
    /// A longer way back is subtracted from round trips instead of being added to the base.
    keeps_base: bool,
    /// How much longer the way back is than when the base was measured (nanoseconds, not negative).
    way_back_longer_ns: i64,
    ticked_at: Timestamp,
    /// Boundaries that left earlier are not matched: the box stood still when their reports arrived.
    resumed_at: Timestamp,
    spans: Spans,
}

impl Path {
    /// Nothing has left yet. With `keeps_base` a longer way back does not move the controller's base.
    pub fn new(tuning: Arc<Tuning>, keeps_base: bool) -> Self {
        Self {
            sizer: EpochSizer::new(&tuning),
            tuning,
            boundaries: BoundaryTable::default(),
            feedback: Feedback::default(),
            visibility: Visibility::default(),
            order: Order::default(),
            peer_size: None,
            idle: IdleClock::default(),
            backlog: ByteCount::ZERO,
            counters: SendboxCounters::default(),
            delivered: ByteCount::ZERO,
            loop_times: SlidingMin::default(),
            bottleneck: BottleneckRate::default(),
            carried: Rate::ZERO,
            delivery_rate: Rate::ZERO,
            mean_bytes_per_s: 0.0,
            app_limited: true,
            measured_at: None,
            outstanding: Outstanding::default(),
            accepted: Accepted::default(),
            unanswered: None,
            keeps_base,
            way_back_longer_ns: 0,
            ticked_at: Timestamp::ZERO,
            resumed_at: Timestamp::ZERO,
            spans: Spans::default(),
        }
    }

    /// Observation of the bundle starts at `now`.
    pub fn start(&mut self, now: Timestamp) {
        self.idle.updated_at = now;
        self.outstanding.updated_at = now;
        self.ticked_at = now;
    }

    /// Takes the totals that have left; `shaped` is the enforced rate, if any. True if the last packet is
    /// a boundary of the size in force. While `is_peer_silent`, no report is expected.
    pub fn on_departures(
        &mut self,
        sent: &Departures,
        shaped: Option<Rate>,
        is_peer_silent: bool,
    ) -> bool {
        let now = sent.at;
        let packets = sent.packets.saturating_sub(self.counters.packets_sent);
        let len = sent.bytes.saturating_sub(self.counters.bytes_sent);
        self.idle.on_departures(now, packets, len, shaped);
        self.outstanding.advance(now, self.counters.bytes_sent, self.delivery_rate);
        if self.outstanding.bytes == 0.0 {
            let round_trip = self.feedback.least_rtt().unwrap_or(Duration::ZERO);
            self.outstanding.credit_from = Some(now + round_trip);
        }
        self.counters.packets_sent += packets;
        self.counters.bytes_sent += len;
        self.accepted.on_departures(now, len, self.delivery_rate);
        let size = self.sizer.size();
        let boundary = sent.boundary.filter(|boundary| size.is_boundary(boundary.hash));
        self.sizer.on_departures(&self.tuning, now, packets, len, boundary.is_some());
        let Some(BoundaryMark { hash, identity }) = boundary else { return false };
        // A receivebox that has not named a size yet may already use this one.
        let is_sampled = self.peer_size.unwrap_or(size).is_boundary(hash);
        let may_be_reported = !is_peer_silent && is_sampled;
        let is_expected = may_be_reported && self.peer_size.is_some();
        self.counters.boundaries_sent += u64::from(is_expected);
        self.counters.boundaries_unexpected += u64::from(!is_expected);
        if may_be_reported {
            self.await_report(now);
        }
        let boundary = Boundary {
            hash,
            identity,
            sent_at: now,
            sent_bytes: self.counters.bytes_sent,
            accepted_bytes: self.accepted.bytes,
            idle: self.idle.idle,
            delivered: self.delivered,
            is_expected,
        };
        self.boundaries.insert(boundary, self.report_age_max());
        true
    }

    /// Takes an authentic report. `None`: it contains no observation.
    pub fn on_report(&mut self, now: Timestamp, report: &Report) -> Option<Observation> {
        self.notice_standstill(now);
        self.peer_size = Some(report.epoch_size);
        let boundary = self.boundaries.take(report.hash);
        let boundary = match boundary.and_then(|it| it.left_since(self.resumed_at)) {
            Ok(boundary) => boundary,
            Err(mismatch) => {
                self.count_mismatch(mismatch);
                return None;
            }
        };
        self.order.on_match(&self.tuning, now, &boundary, report);
        let seen = self.visibility.seen();
        let Some(mut sample) = self.feedback.on_match(&self.tuning, now, &boundary, report, seen)
        else {
            self.counters.reports_implausible += 1;
            return None;
        };
        self.counters.boundaries_matched += 1;
        self.unanswered = None;
        // The peer used a smaller size before its reports named it. The boundary now counts as expected.
        self.counters.boundaries_sent += u64::from(!boundary.is_expected);
        self.counters.boundaries_unexpected -= u64::from(!boundary.is_expected);
        self.count_in_span(&boundary, &sample);
        let shift_ns = sample.way_back.and_then(|change| self.follow_way_back(change));
        let way_back = Duration::from_nanos(self.way_back_longer_ns.unsigned_abs());
        if !way_back.is_zero() {
            let least = (sample.rtt / 8).max(self.tuning.boxes_late).min(sample.rtt);
            sample.rtt = sample.rtt.saturating_sub(way_back).max(least);
        }
        let measurement = sample.progress.map(|it| self.measure(now, &boundary, &sample, &it));
        self.counters.reports_stale += u64::from(measurement.is_none());
        let epoch = Epoch {
            identity: boundary.identity,
            previous_identity: sample.progress.and_then(|progress| progress.previous_identity),
            sent_at: boundary.sent_at,
            rtt: sample.rtt,
            raw_rtt: sample.raw_rtt,
            delivery_rate: sample.progress.and_then(|progress| progress.delivery_rate),
            epoch_size: report.epoch_size,
        };
        let totals = Totals {
            sent_at: boundary.sent_at,
            sent: boundary.sent_bytes,
            received: report.received_bytes,
        };
        let (base_min_s, is_doubted) =
            (self.feedback.base_min_s(&self.tuning, now), sample.is_doubted);
        Some(Observation { epoch, shift_ns, way_back, base_min_s, is_doubted, measurement, totals })
    }

    fn count_in_span(&mut self, boundary: &Boundary, sample: &Sample) {
        let Some(progress) = sample.progress else { return };
        self.spans.on_arrival(&Arrival {
            sent_at: boundary.sent_at,
            rtt: sample.rtt,
            raw_rtt: sample.raw_rtt,
            received: progress.acked,
            lost: progress.lost,
            is_shifted: sample.way_back.is_some(),
        });
    }

    /// Bytes and delays of the path in the last spans of 100 ms, oldest first.
    pub const fn spans(&self) -> &VecDeque<PathSpan> {
        self.spans.kept()
    }

    /// The shift of the base that a change of the way back requires (nanoseconds). A longer way back says
    /// nothing about the way forth, and limits can change only the way forth.
    fn follow_way_back(&mut self, change: WayBack) -> Option<i64> {
        let nanos = |by_s: f64| libm::round(by_s * 1e9) as i64;
        match change {
            WayBack::Shifted(by_s) if !self.keeps_base => Some(nanos(by_s)),
            WayBack::Shifted(by_s) => {
                let longer = self.way_back_longer_ns + nanos(by_s);
                self.way_back_longer_ns = longer.max(0);
                (longer < 0).then_some(longer)
            }
            WayBack::Shorter(by_s) => {
                self.way_back_longer_ns = (self.way_back_longer_ns - nanos(by_s)).max(0);
                None
            }
        }
    }

    /// Judges which share of the traffic the receivebox sees, after control has taken the report's measurement.
    pub fn judge(
        &mut self,
        now: Timestamp,
        observation: &Observation,
        steering: &Steering,
    ) -> Option<VisibilityVerdict> {
        let Steering { base, is_shaped, is_testable, min_rate } = *steering;
        let rtt = observation.epoch.rtt;
        let recent_rtt = self.feedback.least_rtt().unwrap_or(rtt);
        // A queue may have persisted for longer than the recent minimum remembers, for example after a silence.
        let least_rtt = base.map_or(recent_rtt, |base| base.min(recent_rtt));
        let time = self.loop_time();
        let around = Loop { time, rtt, least_rtt, is_shaped, is_testable, min_rate };
        let verdict = self.visibility.on_match(&self.tuning, now, observation.totals, &around);
        self.take_verdict(verdict)
    }

    fn take_verdict(&mut self, verdict: Option<VisibilityVerdict>) -> Option<VisibilityVerdict> {
        self.sizer.set_seen(1.0 - self.visibility.seen().unseen);
        if verdict.is_some() {
            // Rates across the change would count one part as unseen and one part as lost.
            self.feedback.forget_rates();
        }
        verdict
    }

    /// The bundle's own queue became empty or non-empty.
    pub fn on_queue(&mut self, now: Timestamp, backlog: Backlog) {
        self.idle.advance(now);
        self.idle.is_empty = backlog.packets == 0;
        self.backlog = backlog.bytes;
    }

    /// Time passes; call at least every `TICK`.
    pub fn on_tick(&mut self, now: Timestamp, backlog: Backlog) -> Ticked {
        self.on_queue(now, backlog);
        self.notice_standstill(now);
        self.ticked_at = now;
        self.sizer.on_tick(&self.tuning, now, self.feedback.least_rtt());
        let blind = self.judge_reports(now);
        let loop_time = self.loop_time();
        let verdict = self.visibility.on_tick(&self.tuning, now, loop_time);
        let verdict = self.take_verdict(verdict);
        Ticked { blind, verdict, is_order_changed: self.order.on_tick(&self.tuning, now) }
    }

    /// A ceiling set elsewhere holds the bundle back; for the controller it has nothing more to send.
    pub fn set_held(&mut self, now: Timestamp, is_held: bool) {
        if is_held != self.idle.is_held {
            self.idle.advance(now);
            self.idle.is_held = is_held;
        }
    }

    /// Forgets the receivebox's counters and clock.
    pub fn forget_receivebox(&mut self) {
        self.feedback.forget_receivebox();
        self.spans.pause();
        self.forget_missed();
    }

    /// Forgets counts that the receivebox missed while it slept; they say nothing about the path.
    pub fn forget_missed(&mut self) {
        self.visibility.forget_receivebox();
        self.order.forget_receivebox(&self.tuning);
    }

    /// Boundaries that left before will not be reported, or need not be.
    pub fn forget_unanswered(&mut self) {
        self.unanswered = None;
    }

    /// No boundary that has left will be reported any more.
    pub fn forget_boundaries(&mut self) {
        self.boundaries.clear();
        self.spans.clear();
    }

    /// Forgets the carried rate and the change of the way back, which belong to another path or time.
    pub fn forget_path(&mut self) {
        self.way_back_longer_ns = 0;
        self.carried = Rate::ZERO;
    }

    /// State of the path at `now`, on which a rate can rest.
    pub fn view(&mut self, now: Timestamp) -> View {
        self.outstanding.advance(now, self.counters.bytes_sent, self.delivery_rate);
        View {
            delivery_rate: self.delivery_rate,
            bottleneck_rate: self.bottleneck_rate(),
            loop_time: self.loop_time(),
            in_flight_bytes: self.outstanding.bytes,
            app_limited: self.app_limited,
            backlog: self.backlog,
            is_report_missing: self.is_report_missing(now),
        }
    }

    /// The rate to enforce, given the rate that control requested (`None`: unshaped): a visibility test
    /// may change it.
    pub fn bound(&self, rate: Option<Rate>) -> Option<Rate> {
        self.visibility.bound(&self.tuning, rate)
    }

    fn measure(
        &mut self,
        now: Timestamp,
        boundary: &Boundary,
        sample: &Sample,
        progress: &Progress,
    ) -> Measurement {
        let least_s = self.feedback.least_rtt().unwrap_or(sample.rtt).as_secs_f64();
        let raw_rtt_s = sample.raw_rtt.as_secs_f64();
        self.loop_times.push(now.as_secs_f64(), raw_rtt_s, 2.0 * least_s, 1);
        self.delivered += progress.acked;
        let interval = self.measured_at.map_or(Duration::ZERO, |at| now.saturating_since(at));
        if let Some(rate) = progress.delivery_rate {
            self.delivery_rate = rate;
            self.update_mean(interval);
        }
        // Bytes sent after the boundary, minus the bytes that arrived while its report was late.
        let sent_since = if progress.loss > self.tuning.feedback_overflow {
            self.accepted.bytes - boundary.accepted_bytes
        } else {
            self.counters.bytes_sent.saturating_sub(boundary.sent_bytes).as_f64()
        };
        let late_s = raw_rtt_s - sample.rtt.as_secs_f64();
        let arrived = self.mean_bytes_per_s * late_s;
        self.outstanding = Outstanding {
            bytes: (sent_since - arrived).max(0.0),
            updated_at: now,
            sent_bytes: self.counters.bytes_sent,
            credit_from: None,
        };
        self.measured_at = Some(now);
        let measurement = Measurement {
            interval,
            acked: progress.acked,
            lost: Some(progress.lost),
            ecn_ce: Some(progress.ecn_ce),
            ect1: None,
            rtt: Some(RttSample { latest: sample.rtt, min: sample.rtt }),
            feedback_delay: Some(sample.raw_rtt),
            one_way: None,
            send_rate: progress.send_rate,
            delivery_rate: progress.delivery_rate,
            train_rate: progress.train_rate,
            in_flight: Some(ByteCount::new(self.outstanding.bytes as u64)),
            delivered: self.delivered,
            prior_delivered: boundary.delivered,
            lost_prior_delivered: None,
            app_limited: progress.idle.is_some_and(|idle| idle.as_f64() > 0.0),
            cwnd_limited: self.idle.is_held.then_some(false),
            idle: progress.idle,
            backlog: Some(self.backlog),
        };
        self.app_limited = is_idle(&measurement);
        if progress.delivery_rate.is_some() {
            let rate = self.delivery_rate.as_bytes_per_sec_f64();
            let loop_s = self.loop_time().as_secs_f64();
            self.bottleneck.push(rate, interval.as_secs_f64(), loop_s, self.app_limited);
            self.carried =
                self.bottleneck_rate().map_or(self.carried, |rate| rate.max(self.carried));
        }
        measurement
    }

    fn update_mean(&mut self, interval: Duration) {
        let rate = self.delivery_rate.as_bytes_per_sec_f64();
        let time_s = self.tuning.feedback_mean_loops * self.loop_time().as_secs_f64();
        if self.mean_bytes_per_s == 0.0 || time_s == 0.0 {
            self.mean_bytes_per_s = rate;
            return;
        }
        let gain = 1.0 - libm::exp(-interval.as_secs_f64() / time_s);
        self.mean_bytes_per_s += gain * (rate - self.mean_bytes_per_s);
    }

    /// Epoch size of the receivebox by its latest message; `None`: it has named none.
    pub const fn peer_size(&self) -> Option<EpochSize> {
        self.peer_size
    }

    /// The receivebox has named its epoch size, or said that it has none.
    pub const fn set_peer_size(&mut self, size: Option<EpochSize>) {
        self.peer_size = size;
    }

    /// The epoch size for notices to the receivebox.
    pub fn epoch_size(&self) -> EpochSize {
        self.sizer.size()
    }

    /// When time last passed.
    pub const fn ticked_at(&self) -> Timestamp {
        self.ticked_at
    }

    /// Recent least composed round trip.
    pub fn least_rtt(&self) -> Option<Duration> {
        self.feedback.least_rtt()
    }

    /// Least time from a departure to its report.
    pub fn least_loop_time(&self) -> Option<Duration> {
        self.loop_times.value().map(duration)
    }

    /// Loop time, at least the least round trip.
    pub fn loop_time(&self) -> Duration {
        let least = self.feedback.least_rtt().unwrap_or(Duration::ZERO);
        self.loop_times.value().map_or(least, |seconds| least.max(duration(seconds)))
    }

    /// Recent maximum of the delivery rate.
    pub fn bottleneck_rate(&self) -> Option<Rate> {
        let rate = self.bottleneck.bytes_per_s();
        (rate > 0.0).then(|| Rate::from_bytes_per_sec_f64(rate))
    }

    /// Largest estimate of the bottleneck's rate since the start, or since the feedback was lost.
    pub const fn carried(&self) -> Rate {
        self.carried
    }

    /// Bytes outstanding; `None` before the first measurement.
    pub fn in_flight(&self) -> Option<ByteCount> {
        self.measured_at.map(|_| ByteCount::new(self.outstanding.bytes as u64))
    }

    /// Whether recent raw round trips, which no clock affects, exceed the least one.
    pub fn is_queued(&self) -> bool {
        self.feedback.is_queued(&self.tuning)
    }

    /// The receivebox's clock has just been stepped or is being slewed, and no report is believed.
    pub const fn is_clock_suspect(&self) -> bool {
        self.feedback.is_suspect()
    }

    /// The seen share changes by itself: nothing can be learnt from it at present.
    pub fn is_unsteady(&self, now: Timestamp) -> bool {
        self.visibility.is_unsteady(now)
    }

    /// The packets take several paths of different delay.
    pub const fn is_imbalanced(&self) -> bool {
        self.order.is_imbalanced()
    }

    /// A condition that an operator should look into.
    pub fn alarm(&self, now: Timestamp) -> Option<Alarm> {
        let imbalanced = self.order.is_imbalanced().then_some(Alarm::Imbalanced);
        self.visibility.alarm(&self.tuning, now).or(imbalanced)
    }

    /// The order of boundaries in the last few seconds.
    pub const fn recent_order(&self) -> Tally {
        self.order.recent()
    }

    /// Share of the bytes sent that the receivebox does not see at any rate (0 to 1).
    pub const fn unseen(&self) -> f64 {
        self.visibility.unseen()
    }

    /// Bytes that have arrived, according to the reports.
    pub const fn delivered(&self) -> ByteCount {
        self.delivered
    }

    /// Bytes that have left.
    pub const fn sent(&self) -> ByteCount {
        self.counters.bytes_sent
    }

    /// Counters since the start.
    pub fn counters(&self) -> SendboxCounters {
        let boundaries_overwritten = self.boundaries.overwritten();
        SendboxCounters {
            boundaries_overwritten,
            order: self.order.total(&self.tuning),
            ..self.counters
        }
    }
}
