//! The control loop of a sendbox: departures and reports in, the rate of the shaper and the epoch size
//! out. [`Sendbox`](super::sendbox::Sendbox) is the endpoint around it.
//!
//! ```text
//! departures ──► boundary table ──┐
//! reports ────────────────────────┴► feedback ──► Measurement ──► CongestionControl
//!                                                                    │ SendLimits
//!               rate of the shaper ◄── window_to_rate ◄──────────────┘
//! ```
//! A missing report freezes the rate: fewer packets would mean fewer boundaries and still fewer
//! reports. Only what exceeds the rates that the path was seen to carry is taken back, since nothing
//! would show the queue that grows of it. Whether the receivebox is alive is the endpoint's judgement
//! ([`Peer`]); one that is alive and reports nothing that says when it left is as good as silent.

mod enforcement;
mod outstanding;
mod silence;
mod supervisor;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;

use self::outstanding::{Accepted, IdleClock, Outstanding};
use self::silence::Unanswered;
use self::supervisor::{Change, Supervisor};
use super::boundary::{Boundary, BoundaryTable};
use super::decision::Decision;
use super::epoch::EpochSizer;
use super::feedback::{Feedback, Progress, Sample};
use super::order::{Order, Tally};
use super::visibility::{Alarm, Loop, Totals, Verdict, Visibility};
use super::{BoundaryMark, Departures, EpochSize, Report};
use crate::cc::estimators::{BottleneckRate, SlidingMin, duration, is_idle};
use crate::cc::{CongestionControl, CongestionEvent, Field, Measurement, RttSample};
use crate::qdisc::Backlog;
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Frame bytes of a full segment on Ethernet without FCS.
const MSS: ByteCount = ByteCount::new(1514);
/// Newly found unseen share from which on what control has learnt rests on too little.
const UNSEEN_MAX: f64 = 0.4;
/// What a sendbox fills in of a [`Measurement`], once reports span a round trip: all but what only the TCPs of a
/// flow can count.
pub const SUPPLIED: &[Field] = &[
    Field::Lost,
    Field::EcnCe,
    Field::Rtt,
    Field::FeedbackDelay,
    Field::SendRate,
    Field::DeliveryRate,
    Field::TrainRate,
    Field::InFlight,
    Field::Idle,
    Field::Backlog,
];
/// Longest time between ticks.
pub const TICK: Duration = Duration::from_millis(5);
/// Time constant of the mean delivery rate in loop times. With an empty queue the delivery rate is
/// what was sent a loop time ago: a correction by its latest value would feed that back.
const MEAN_LOOPS: f64 = 2.0;
/// Share of lost bytes that shows a buffer at its end and no mere random loss.
const OVERFLOW_LOSS: f64 = 0.05;

/// Most of `min_rate` where none is given: one full frame in 10 ms. At lower rates a raised rate takes
/// effect late, because boundaries, and with them reports, become rare.
const DEFAULT_MIN_RATE: Rate = Rate::from_bits_per_sec(1_200_000);
/// `min_rate` over what the path has carried, where none is given and that is less than [`DEFAULT_MIN_RATE`].
const MIN_RATE_SHARE: f64 = 0.25;

/// What an operator fixes for a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendboxConfig {
    /// The shaper is never slower, unless a [`Ceiling`] is lower; `None`: it follows from what the path carries.
    pub min_rate: Option<Rate>,
    /// The shaper is never faster, in whatever state.
    pub max_rate: Option<Rate>,
    /// The host lets packets leave as they come, and only says what the rate would be.
    pub dry_run: bool,
    /// The algorithm's limits hold only while the sendbox measures that they pay.
    pub supervised: bool,
    /// The time of day at [`Timestamp::ZERO`], by which sendboxes of several sites drain a common queue together.
    pub time_of_day: Duration,
    /// Seed of the bundle's random choices.
    pub seed: u64,
}

impl Default for SendboxConfig {
    /// Without bounds, supervised.
    fn default() -> Self {
        Self {
            min_rate: None,
            max_rate: None,
            dry_run: false,
            supervised: true,
            time_of_day: Duration::ZERO,
            seed: 0,
        }
    }
}

/// The receivebox, as the monitor of the endpoint sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Authentic messages arrive.
    Alive,
    /// None for too long: the bundle goes unshaped.
    Silent,
    /// A new session: its counters and perhaps its clock start anew.
    Restarted,
}

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

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that left.
    pub packets_sent: u64,
    /// Bytes that left.
    pub bytes_sent: ByteCount,
    /// Boundaries sent whose report could be expected: under the coarser of both boxes' sizes.
    /// A notice of a coarser size that overtakes packets on the way leaves boundaries unmatched.
    pub boundaries_sent: u64,
    /// Boundaries sent whose report could not be expected, and none came: while the peer was silent, or under
    /// a smaller size than the peer had told.
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
    /// Boundaries that arrived in the order of their departure, and those that arrived after one that left
    /// later (`bundle::order`).
    pub order: Tally,
}

/// What a bundle may send for a time, in whatever state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// The shaper is not faster.
    pub rate: Rate,
    /// The bundle asks for more, which others have: a ceiling that binds then says nothing of the path.
    pub is_short: bool,
}

/// The control loop of one bundle.
pub struct Control {
    config: SendboxConfig,
    cc: Box<dyn CongestionControl>,
    is_started: bool,
    peer: Peer,
    boundaries: BoundaryTable,
    feedback: Feedback,
    visibility: Visibility,
    order: Order,
    sizer: EpochSizer,
    idle: IdleClock,
    /// Bytes in the bundle's own queue, as the host told last.
    backlog: ByteCount,
    counters: Counters,
    /// Epoch size of the receivebox by its latest report.
    peer_size: EpochSize,
    delivered: ByteCount,
    loop_times: SlidingMin,
    bottleneck: BottleneckRate,
    /// Largest estimate of the bottleneck's rate since the start, or since the feedback was lost.
    carried: Rate,
    delivery_rate: Rate,
    /// Mean delivery rate of the last few loop times (bytes per second).
    mean_bytes_per_s: f64,
    app_limited: bool,
    measured_at: Option<Timestamp>,
    outstanding: Outstanding,
    accepted: Accepted,
    unanswered: Option<Unanswered>,
    /// Why nothing is known of what leaves, though the receivebox is there.
    blind: Option<&'static str>,
    /// The rate that control asks for, without the operator's bounds, and its mean of late.
    wanted_rate: Option<Rate>,
    usual_bytes_per_s: f64,
    /// When it was last in doubt whether the receivebox's clock drifts, unless the queue has been emptied since.
    doubted_at: Option<Timestamp>,
    ceiling: Option<Ceiling>,
    /// By how much the way back is longer than when the base was measured (nanoseconds, not negative).
    way_back_longer_ns: i64,
    /// `None`: the limits hold whatever they cost, or in a dry run never.
    supervisor: Option<Supervisor>,
    rate: Option<Rate>,
    ticked_at: Timestamp,
    /// What left before is not matched: the box stood still when its reports came.
    resumed_at: Timestamp,
}

impl Control {
    /// A bundle that has sent nothing yet, steered by `cc`.
    pub fn new(config: SendboxConfig, mut cc: Box<dyn CongestionControl>) -> Self {
        cc.set_seed(config.seed);
        let is_supervised = config.supervised && cc.follows_path() && !config.dry_run;
        let sizer = EpochSizer::default();
        Self {
            config,
            cc,
            is_started: false,
            peer: Peer::Alive,
            boundaries: BoundaryTable::default(),
            feedback: Feedback::default(),
            visibility: Visibility::default(),
            order: Order::default(),
            peer_size: sizer.size(),
            sizer,
            idle: IdleClock {
                idle: Duration::ZERO,
                is_empty: true,
                is_held: false,
                updated_at: Timestamp::ZERO,
                busy_until: Timestamp::ZERO,
            },
            backlog: ByteCount::ZERO,
            counters: Counters::default(),
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
            blind: None,
            wanted_rate: None,
            usual_bytes_per_s: 0.0,
            doubted_at: None,
            ceiling: None,
            way_back_longer_ns: 0,
            supervisor: is_supervised.then(|| Supervisor::new(config.time_of_day)),
            rate: config.max_rate,
            ticked_at: Timestamp::ZERO,
            resumed_at: Timestamp::ZERO,
        }
    }

    /// So much has left by now. True if the last packet is a boundary of the size in force.
    pub fn on_departures(&mut self, sent: &Departures) -> bool {
        let now = sent.at;
        self.start(now);
        let packets = sent.packets.saturating_sub(self.counters.packets_sent);
        let len = sent.bytes.saturating_sub(self.counters.bytes_sent);
        // A rate that nobody enforces keeps no packet busy.
        let shaped = self.rate.filter(|_| !self.config.dry_run);
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
        self.sizer.on_departures(now, packets, len, boundary.is_some());
        let Some(BoundaryMark { hash, identity }) = boundary else { return false };
        let is_expected = self.peer != Peer::Silent && self.peer_size.is_boundary(hash);
        self.counters.boundaries_sent += u64::from(is_expected);
        self.counters.boundaries_unexpected += u64::from(!is_expected);
        if is_expected {
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

    /// Takes an authentic report. Returns the matched boundary.
    pub fn on_report(&mut self, now: Timestamp, report: &Report) -> Option<Epoch> {
        self.start(now);
        self.notice_standstill(now);
        self.peer_size = report.epoch_size;
        let boundary = self.boundaries.take(report.hash);
        let boundary = match boundary.and_then(|it| it.left_since(self.resumed_at)) {
            Ok(boundary) => boundary,
            Err(mismatch) => {
                self.count_mismatch(mismatch);
                return None;
            }
        };
        self.order.on_match(now, &boundary, report);
        let Some(mut sample) = self.feedback.on_match(now, &boundary, report) else {
            self.counters.reports_implausible += 1;
            return None;
        };
        self.counters.boundaries_matched += 1;
        self.unanswered = None;
        self.blind = None;
        // The peer took up a smaller size before its reports said so: both counts are of one set.
        self.counters.boundaries_sent += u64::from(!boundary.is_expected);
        self.counters.boundaries_unexpected -= u64::from(!boundary.is_expected);
        if let Some(nanos) = sample.shift_ns {
            // A way back that has become longer says nothing of the way forth, which is all that limits can change.
            let longer = self.way_back_longer_ns + nanos;
            if self.supervisor.is_none() {
                self.shift(now, nanos);
            } else {
                self.way_back_longer_ns = longer.max(0);
                if longer < 0 {
                    self.shift(now, longer);
                }
            }
        }
        let way_back = Duration::from_nanos(self.way_back_longer_ns.unsigned_abs());
        if !way_back.is_zero() {
            sample.rtt = sample.rtt.saturating_sub(way_back).max(sample.rtt / 8);
        }
        let base = self.cc.state().min_rtt.map(|base| base + way_back);
        if let Some(short) = base.and_then(|base| self.feedback.shortfall(now, base)) {
            let nanos = i64::try_from(short.as_nanos()).unwrap_or(i64::MAX);
            self.shift(now, nanos);
        }
        if sample.is_doubted {
            self.doubted_at = Some(now);
        }
        match sample.progress {
            Some(progress) => {
                self.measure(now, &boundary, &sample, &progress);
                self.judge_visibility(now, &boundary, report, &sample);
                self.enforce(now);
            }
            None => self.counters.reports_stale += 1,
        }
        Some(Epoch {
            identity: boundary.identity,
            previous_identity: sample.progress.and_then(|progress| progress.previous_identity),
            sent_at: boundary.sent_at,
            rtt: sample.rtt,
            raw_rtt: sample.raw_rtt,
            delivery_rate: sample.progress.and_then(|progress| progress.delivery_rate),
            epoch_size: report.epoch_size,
        })
    }

    /// The bundle's own queue became empty or non-empty.
    pub fn on_queue(&mut self, now: Timestamp, backlog: Backlog) {
        self.start(now);
        self.idle.advance(now);
        self.idle.is_empty = backlog.packets == 0;
        self.backlog = backlog.bytes;
    }

    /// Time passes; call at least every `TICK`.
    pub fn on_tick(&mut self, now: Timestamp, backlog: Backlog) {
        self.on_queue(now, backlog);
        self.notice_standstill(now);
        self.ticked_at = now;
        self.sizer.on_tick(now, self.feedback.least_rtt());
        if self.cc.next_timer().is_some_and(|at| at <= now) {
            self.cc.on_timer(now);
        }
        self.judge_reports(now);
        let verdict = self.visibility.on_tick(now, self.loop_time());
        self.take_verdict(now, verdict);
        if self.order.on_tick(now) {
            // What was learnt is of several paths, or of the time without a rate.
            self.lose_feedback(now);
        }
        self.enforce(now);
        self.update_usual_rate();
    }

    /// The host's judgement of the receivebox has changed.
    pub fn on_peer(&mut self, now: Timestamp, peer: Peer) {
        self.start(now);
        match peer {
            // What it missed in its sleep tells nothing of the path.
            Peer::Alive if self.peer == Peer::Silent => {
                self.visibility.forget_receivebox();
                self.order.forget_receivebox();
            }
            Peer::Alive => {}
            Peer::Silent if self.peer == Peer::Silent => {}
            Peer::Silent => self.lose_feedback(now),
            Peer::Restarted => self.forget_receivebox(),
        }
        if peer != Peer::Alive {
            // What left before will not be reported.
            self.unanswered = None;
            self.blind = None;
        }
        self.peer = if peer == Peer::Silent { Peer::Silent } else { Peer::Alive };
        self.enforce(now);
    }

    /// What the receivebox has counted, and its clock, say nothing any more.
    fn forget_receivebox(&mut self) {
        self.feedback.forget_receivebox();
        self.visibility.forget_receivebox();
        self.order.forget_receivebox();
    }

    /// Earlier round trips count as longer by this.
    fn shift(&mut self, now: Timestamp, nanos: i64) {
        self.cc.on_event(now, CongestionEvent::RttShift(nanos));
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.shift(nanos as f64 * 1e-9);
        }
    }

    /// What was learnt is of another path or another time.
    fn lose_feedback(&mut self, now: Timestamp) {
        self.cc.on_event(now, CongestionEvent::FeedbackLost);
        self.way_back_longer_ns = 0;
        self.carried = Rate::ZERO;
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.restart();
            self.cc.on_event(now, CongestionEvent::Unenforced);
        }
    }

    /// A packet of a sparse flow has waited so long in the bundle's queue.
    pub fn on_wait(&mut self, wait: Duration) {
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.on_wait(wait);
        }
    }

    /// Nothing that has left will be reported any more.
    pub fn forget_boundaries(&mut self) {
        self.boundaries.clear();
    }

    /// This holds from now on; `None`: there is no ceiling.
    pub fn set_ceiling(&mut self, now: Timestamp, ceiling: Option<Ceiling>) {
        self.start(now);
        self.ceiling = ceiling;
        self.bound(now);
    }

    /// These bounds of the operator's hold from now on.
    pub fn set_bounds(&mut self, now: Timestamp, min_rate: Option<Rate>, max_rate: Option<Rate>) {
        self.start(now);
        self.config = SendboxConfig { min_rate, max_rate, ..self.config };
        self.bound(now);
    }

    /// Rate of the shaper; `None`: unshaped.
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// What the rate would be without upper bounds; `None`: unshaped.
    pub fn wanted_rate(&self) -> Option<Rate> {
        self.wanted_rate.map(|rate| rate.max(self.min_rate()))
    }

    /// The shaper is never slower: what the operator says, else 1.2 Mbit/s, or a quarter of what the path was seen to carry
    /// where that is less.
    pub fn min_rate(&self) -> Rate {
        self.config.min_rate.unwrap_or_else(|| match self.carried {
            Rate::ZERO => DEFAULT_MIN_RATE,
            carried => DEFAULT_MIN_RATE.min(carried.scale(MIN_RATE_SHARE)),
        })
    }

    /// The epoch size for notices to the receivebox.
    pub fn epoch_size(&self) -> EpochSize {
        self.sizer.size()
    }

    /// Least round-trip time in force.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.cc.state().min_rtt.or(self.feedback.least_rtt())
    }

    /// Round trip for queueing disciplines that follow it: the least one, or of a supervised bundle what its hosts see,
    /// with the way back as it is, or saw while no limits held. `None`: not known.
    pub fn path_rtt(&self) -> Option<Duration> {
        let Some(supervisor) = &self.supervisor else { return self.min_rtt() };
        self.loop_times.value().map(duration).max(supervisor.round_trip())
    }

    /// By how much limits shorten the delay of a sparse flow; `None`: not known.
    pub fn saves(&self) -> Option<Duration> {
        self.supervisor.as_ref().and_then(Supervisor::saves)
    }

    /// By how much the delay of the path varies without a queue; `None`: too little to matter, or not known.
    pub fn varies(&self) -> Option<Duration> {
        let noise = self.supervisor.as_ref().map(Supervisor::noise);
        noise.filter(|noise| !noise.is_zero())
    }

    /// When the next tick is due.
    pub fn next_timer(&self) -> Timestamp {
        let tick = self.ticked_at + TICK;
        self.cc.next_timer().map_or(tick, |at| at.min(tick))
    }

    /// What is enforced now, and why.
    pub fn decision(&self) -> Decision {
        let state = self.cc.state();
        let is_unsteady = self.visibility.is_unsteady(self.ticked_at);
        let (phase, reason) = match (self.peer, self.blind) {
            (Peer::Silent, _) => ("silent", "no authentic message"),
            _ if is_unsteady => ("silent", Alarm::Unsteady.text()),
            (_, Some(reason)) => ("silent", reason),
            _ if self.order.is_imbalanced() => ("imbalanced", Alarm::Imbalanced.text()),
            (_, None) => {
                let phase = self.supervisor.as_ref().and_then(Supervisor::phase);
                phase.unwrap_or((state.phase, state.reason))
            }
        };
        Decision {
            rate: self.rate,
            cwnd: self.cc.send_limits().cwnd,
            in_flight: self.measured_at.map(|_| ByteCount::new(self.outstanding.bytes as u64)),
            min_rtt: state.min_rtt.or(self.feedback.least_rtt()),
            queue_delay: state.queue_delay,
            bottleneck_rate: state.bottleneck_rate.or(self.bottleneck_rate()),
            state: phase,
            reason,
        }
    }

    /// What an operator should look into.
    pub fn alarm(&self, now: Timestamp) -> Option<Alarm> {
        let imbalanced = self.order.is_imbalanced().then_some(Alarm::Imbalanced);
        self.visibility.alarm(now).or(imbalanced)
    }

    /// The order of boundaries in the last few seconds.
    pub const fn recent_order(&self) -> Tally {
        self.order.recent()
    }

    /// Share of the bytes sent that the receivebox does not see, whatever the rate (0 to 1).
    pub const fn unseen(&self) -> f64 {
        self.visibility.unseen()
    }

    /// Bytes that reports have told to have arrived.
    pub const fn delivered(&self) -> ByteCount {
        self.delivered
    }

    /// Bytes that have left.
    pub const fn sent(&self) -> ByteCount {
        self.counters.bytes_sent
    }

    /// What was counted since the start.
    pub fn counters(&self) -> Counters {
        let boundaries_overwritten = self.boundaries.overwritten();
        Counters { boundaries_overwritten, order: self.order.total(), ..self.counters }
    }

    fn start(&mut self, now: Timestamp) {
        if self.is_started {
            return;
        }
        self.is_started = true;
        self.cc.init(now, MSS, MSS * 10);
        if self.config.dry_run || self.supervisor.is_some() {
            // Until a trial, or in a dry run for good.
            self.cc.on_event(now, CongestionEvent::Unenforced);
        }
        self.idle.updated_at = now;
        self.outstanding.updated_at = now;
        self.ticked_at = now;
    }

    fn bottleneck_rate(&self) -> Option<Rate> {
        let rate = self.bottleneck.bytes_per_s();
        (rate > 0.0).then(|| Rate::from_bytes_per_sec_f64(rate))
    }

    /// Loop time, at least the least round trip.
    fn loop_time(&self) -> Duration {
        let least = self.feedback.least_rtt().unwrap_or(Duration::ZERO);
        self.loop_times.value().map_or(least, |seconds| least.max(duration(seconds)))
    }

    fn measure(
        &mut self,
        now: Timestamp,
        boundary: &Boundary,
        sample: &Sample,
        progress: &Progress,
    ) {
        let least_s = self.feedback.least_rtt().unwrap_or(sample.rtt).as_secs_f64();
        let raw_rtt_s = sample.raw_rtt.as_secs_f64();
        self.loop_times.push(now.as_secs_f64(), raw_rtt_s, 2.0 * least_s, 1);
        self.delivered += progress.acked;
        let interval = self.measured_at.map_or(Duration::ZERO, |at| now.saturating_since(at));
        if let Some(rate) = progress.delivery_rate {
            self.delivery_rate = rate;
            self.update_mean(interval);
        }
        // Bytes sent after the boundary, less what arrived while its report was late.
        let sent_since = if progress.loss > OVERFLOW_LOSS {
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
        self.cc.on_measurement(now, &measurement);
        self.supervise(now, &measurement);
    }

    fn supervise(&mut self, now: Timestamp, measurement: &Measurement) {
        let (loop_time, is_limited) = (self.loop_time(), self.wanted_rate.is_some());
        let Some(supervisor) = &mut self.supervisor else { return };
        match supervisor.on_measurement(now, measurement, loop_time, is_limited) {
            Some(Change::Enforced) => {
                let (noise, longer) = (supervisor.noise(), supervisor.longer());
                let base = self.cc.state().min_rtt.unwrap_or(Duration::MAX);
                if let Some(by) = longer.and_then(|rtt| rtt.checked_sub(base)) {
                    let nanos = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
                    self.cc.on_event(now, CongestionEvent::RttShift(nanos));
                }
                self.cc.on_event(now, CongestionEvent::DelayNoise(noise));
                self.cc.on_event(now, CongestionEvent::Enforced);
            }
            Some(Change::Noise) => {
                let noise = supervisor.noise();
                self.cc.on_event(now, CongestionEvent::DelayNoise(noise));
            }
            Some(Change::Unenforced) => self.cc.on_event(now, CongestionEvent::Unenforced),
            None => {}
        }
    }

    fn update_mean(&mut self, interval: Duration) {
        let rate = self.delivery_rate.as_bytes_per_sec_f64();
        let time_s = MEAN_LOOPS * self.loop_time().as_secs_f64();
        if self.mean_bytes_per_s == 0.0 || time_s == 0.0 {
            self.mean_bytes_per_s = rate;
            return;
        }
        let gain = 1.0 - libm::exp(-interval.as_secs_f64() / time_s);
        self.mean_bytes_per_s += gain * (rate - self.mean_bytes_per_s);
    }

    /// Watches what share of the traffic the receivebox sees.
    fn judge_visibility(
        &mut self,
        now: Timestamp,
        boundary: &Boundary,
        report: &Report,
        sample: &Sample,
    ) {
        let totals = Totals {
            sent_at: boundary.sent_at,
            sent: boundary.sent_bytes,
            received: report.received_bytes,
        };
        // A ceiling is there in every state.
        let is_shaped = self.wanted_rate.or(self.config.max_rate).is_some() && !self.config.dry_run;
        let is_testable = !self.config.dry_run && !self.is_given_up(now);
        let min_rate = self.min_rate();
        let recent_rtt = self.feedback.least_rtt().unwrap_or(sample.rtt);
        // A queue that has stood for longer than the least of late remembers, as after a silence, is one.
        let least_rtt = self.cc.state().min_rtt.map_or(recent_rtt, |base| base.min(recent_rtt));
        let (time, rtt) = (self.loop_time(), sample.rtt);
        let around = Loop { time, rtt, least_rtt, is_shaped, is_testable, min_rate };
        let verdict = self.visibility.on_match(now, totals, &around);
        self.take_verdict(now, verdict);
    }

    fn take_verdict(&mut self, now: Timestamp, verdict: Option<Verdict>) {
        let unseen = self.visibility.unseen();
        self.feedback.set_visible(unseen, self.visibility.missing());
        self.sizer.set_seen(1.0 - unseen);
        if verdict.is_some() {
            // Rates across it would count a part as unseen and a part as lost.
            self.feedback.forget_rates();
            if unseen < UNSEEN_MAX {
                self.cc.on_event(now, CongestionEvent::Spurious);
            } else {
                self.lose_feedback(now);
            }
        }
    }
}
