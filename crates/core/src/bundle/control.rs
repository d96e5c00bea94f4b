//! The control loop of a sendbox: it takes departures and reports, and sets the shaper's rate and the epoch
//! size. [`Sendbox`](super::sendbox::Sendbox) is the endpoint around it.
//!
//! ```text
//! departures, reports ──► path ──► Measurement ──► CongestionControl
//!                                                     │ SendLimits
//! rate of the shaper ◄── window_to_rate ◄─────────────┘
//! ```
//! If a report is missing, the loop keeps the rate: fewer packets would mean fewer boundaries and even fewer
//! reports. It only lowers a rate above the rates that the path has carried, because no report would show the
//! growing queue. The endpoint decides whether the receivebox is alive ([`Peer`]). If the receivebox is alive
//! but its reports match no departure, the loop also leaves the bundle unshaped.

pub mod decision;
mod enforcement;
mod rate;
mod supervisor;
#[cfg(test)]
mod tests;
pub mod uplink;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::ops::RangeInclusive;

use self::decision::Decision;
use self::supervisor::{LimitsChange, Supervisor};
use super::path::spans::PathSpan;
use super::path::{Alarm, MSS, Observation, Path, Steering, TICK, Tally, VisibilityVerdict};
pub use super::path::{Epoch, SendboxCounters};
use super::tuning::Tuning;
use super::{Departures, EpochSize, Report};
use crate::cc::estimators::duration;
use crate::cc::interim::INITIAL_SEGMENTS;
use crate::cc::{CongestionControl, CongestionEvent, Field, Measurement};
use crate::qdisc::Backlog;
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Fields of a [`Measurement`] that a sendbox fills in once reports span a round trip. Only the TCP endpoints
/// of a flow could count the remaining ones.
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

/// Allowed rates: from one full frame in 120 ms to more than any port has.
pub const RATES: RangeInclusive<Rate> =
    Rate::from_bits_per_sec(100_000)..=Rate::from_bits_per_sec(100_000_000_000);

/// The operator's settings for a bundle.
#[derive(Clone, Debug, PartialEq)]
pub struct SendboxConfig {
    /// The shaper's lowest rate, unless a [`Ceiling`] is lower; `None`: it follows from the rate that the path carries.
    pub min_rate: Option<Rate>,
    /// The shaper's highest rate in every state.
    pub max_rate: Option<Rate>,
    /// The sendbox only logs the rate that it would set, and the host does not shape.
    pub dry_run: bool,
    /// The algorithm's limits apply only while the sendbox measures a benefit.
    pub supervised: bool,
    /// The time of day at [`Timestamp::ZERO`]. Sendboxes of several sites use it to drain a common queue together.
    pub time_of_day: Duration,
    /// Seed of the bundle's random choices.
    pub seed: u64,
    /// Tuning of the control loop.
    pub tuning: Arc<Tuning>,
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
            tuning: Arc::default(),
        }
    }
}

/// State of the receivebox, as the endpoint's monitor sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Authentic messages arrive.
    Alive,
    /// No authentic message for too long: the bundle is unshaped.
    Silent,
    /// A new session: its counters, and perhaps its clock, have restarted.
    Restarted,
}

/// Temporary limit on a bundle's rate, in every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// Upper limit of the shaper's rate.
    pub rate: Rate,
    /// The bundle requests more than this, and other bundles use the rest. If the ceiling binds, the rate does
    /// not show the capacity of the path.
    pub is_short: bool,
}

/// The control loop of one bundle.
pub struct Control {
    config: SendboxConfig,
    cc: Box<dyn CongestionControl>,
    path: Path,
    is_started: bool,
    peer: Peer,
    /// Why the departures are not reported although the receivebox is alive.
    blind: Option<&'static str>,
    /// The rate that the loop requests, without the operator's bounds, and its recent mean.
    wanted_rate: Option<Rate>,
    usual_bytes_per_s: f64,
    /// When a drift of the receivebox's clock was last suspected, unless the queue has been empty since.
    doubted_at: Option<Timestamp>,
    ceiling: Option<Ceiling>,
    /// `None`: the limits always apply, or never in a dry run.
    supervisor: Option<Supervisor>,
    rate: Option<Rate>,
}

impl Control {
    /// A bundle that has sent nothing yet and is controlled by `cc`.
    pub fn new(config: SendboxConfig, mut cc: Box<dyn CongestionControl>) -> Self {
        cc.set_seed(config.seed);
        let is_supervised = config.supervised && cc.follows_path() && !config.dry_run;
        Self {
            path: Path::new(Arc::clone(&config.tuning), is_supervised),
            cc,
            is_started: false,
            peer: Peer::Alive,
            blind: None,
            wanted_rate: None,
            usual_bytes_per_s: 0.0,
            doubted_at: None,
            ceiling: None,
            supervisor: is_supervised.then(|| Supervisor::new(config.time_of_day)),
            rate: config.max_rate,
            config,
        }
    }

    /// Takes the departures until now. True if the last packet is a boundary of the epoch size in force.
    pub fn on_departures(&mut self, sent: &Departures) -> bool {
        self.start(sent.at);
        // A rate that is not enforced keeps no packet busy.
        let shaped = self.rate.filter(|_| !self.config.dry_run);
        self.path.on_departures(sent, shaped, self.peer == Peer::Silent)
    }

    /// Takes an authentic report. Returns the matched boundary.
    pub fn on_report(&mut self, now: Timestamp, report: &Report) -> Option<Epoch> {
        self.start(now);
        let seen = self.path.on_report(now, report)?;
        self.blind = None;
        if let Some(nanos) = seen.shift_ns {
            self.shift(now, nanos);
        }
        let base = self.cc.state().min_rtt.map(|base| base + seen.way_back);
        let short_s = base.zip(seen.base_min_s).map(|(base, min_s)| min_s - base.as_secs_f64());
        let least_s = self.config.tuning.boxes_late.as_secs_f64() / 2.0;
        if let Some(short_s) = short_s.filter(|short_s| *short_s > least_s) {
            let nanos = i64::try_from(duration(short_s).as_nanos()).unwrap_or(i64::MAX);
            self.shift(now, nanos);
        }
        if seen.is_doubted {
            self.doubted_at = Some(now);
        }
        if let Some(measurement) = &seen.measurement {
            self.cc.on_measurement(now, measurement);
            self.supervise(now, measurement);
            self.judge_visibility(now, &seen);
            self.enforce(now);
        }
        Some(seen.epoch)
    }

    /// The bundle's own queue became empty or non-empty.
    pub fn on_queue(&mut self, now: Timestamp, backlog: Backlog) {
        self.start(now);
        self.path.on_queue(now, backlog);
    }

    /// Time passes; call at least every `TICK`.
    pub fn on_tick(&mut self, now: Timestamp, backlog: Backlog) {
        self.start(now);
        let ticked = self.path.on_tick(now, backlog);
        if self.cc.next_timer().is_some_and(|at| at <= now) {
            self.cc.on_timer(now);
        }
        if self.blind.is_none() && ticked.blind.is_some() {
            self.blind = ticked.blind;
            self.lose_feedback(now);
        }
        self.take_verdict(now, ticked.verdict);
        if ticked.is_order_changed {
            // The estimates mix several paths, or come from the time without a rate.
            self.lose_feedback(now);
        }
        self.enforce(now);
        self.update_usual_rate();
    }

    /// The endpoint's judgement of the receivebox has changed.
    pub fn on_peer(&mut self, now: Timestamp, peer: Peer) {
        self.start(now);
        match peer {
            Peer::Alive if self.peer == Peer::Silent => self.path.forget_missed(),
            Peer::Alive => {}
            Peer::Silent if self.peer == Peer::Silent => {}
            Peer::Silent => self.lose_feedback(now),
            Peer::Restarted => self.path.forget_receivebox(),
        }
        if peer != Peer::Alive {
            // The receivebox will not report earlier departures.
            self.path.forget_unanswered();
            self.blind = None;
        }
        self.peer = if peer == Peer::Silent { Peer::Silent } else { Peer::Alive };
        self.enforce(now);
    }

    /// Adds `nanos` to all earlier round trips.
    fn shift(&mut self, now: Timestamp, nanos: i64) {
        self.cc.on_event(now, CongestionEvent::RttShift(nanos));
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.shift(nanos as f64 * 1e-9);
        }
    }

    /// The estimates belong to another path or another time.
    fn lose_feedback(&mut self, now: Timestamp) {
        self.cc.on_event(now, CongestionEvent::FeedbackLost);
        self.path.forget_path();
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.restart();
            self.cc.on_event(now, CongestionEvent::Unenforced);
        }
    }

    /// Records how long a packet of a sparse flow waited in the bundle's queue.
    pub fn on_wait(&mut self, wait: Duration) {
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.on_wait(wait);
        }
    }

    /// Discards all boundaries that wait for a report.
    pub fn forget_boundaries(&mut self) {
        self.path.forget_boundaries();
    }

    /// Sets the ceiling; `None`: no ceiling.
    pub fn set_ceiling(&mut self, now: Timestamp, ceiling: Option<Ceiling>) {
        self.start(now);
        self.ceiling = ceiling;
        self.bound(now);
    }

    /// Sets the operator's bounds.
    pub fn set_bounds(&mut self, now: Timestamp, min_rate: Option<Rate>, max_rate: Option<Rate>) {
        self.start(now);
        (self.config.min_rate, self.config.max_rate) = (min_rate, max_rate);
        self.bound(now);
    }

    /// Rate of the shaper; `None`: unshaped.
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// The rate without upper bounds; `None`: unshaped.
    pub fn wanted_rate(&self) -> Option<Rate> {
        self.wanted_rate.map(|rate| rate.max(self.min_rate()))
    }

    /// The shaper's lowest rate. The operator sets it. By default it is 1.2 Mbit/s, or a quarter of the rate
    /// that the path has carried if that is less.
    pub fn min_rate(&self) -> Rate {
        self.config.min_rate.unwrap_or_else(|| match self.path.carried() {
            Rate::ZERO => self.config.tuning.rate_min,
            carried => {
                self.config.tuning.rate_min.min(carried.scale(self.config.tuning.rate_min_share))
            }
        })
    }

    /// Latest epoch size from the receivebox; `None`: it has sent none.
    pub const fn peer_size(&self) -> Option<EpochSize> {
        self.path.peer_size()
    }

    /// Sets the receivebox's epoch size; `None`: it has none.
    pub const fn set_peer_size(&mut self, size: Option<EpochSize>) {
        self.path.set_peer_size(size);
    }

    /// The epoch size for notices to the receivebox.
    pub fn epoch_size(&self) -> EpochSize {
        self.path.epoch_size()
    }

    /// Least round-trip time in force.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.cc.state().min_rtt.or(self.path.least_rtt())
    }

    /// Round trip for queueing disciplines that follow it; `None`: unknown. By default it is the smallest one.
    /// If the bundle is supervised, it is the hosts' round trip with the present way back, or the one measured
    /// without limits.
    pub fn path_rtt(&self) -> Option<Duration> {
        let Some(supervisor) = &self.supervisor else { return self.min_rtt() };
        self.path.least_loop_time().max(supervisor.round_trip(&self.config.tuning))
    }

    /// Delay that limits save a sparse flow; `None`: unknown.
    pub fn saves(&self) -> Option<Duration> {
        self.supervisor.as_ref()?.saves(&self.config.tuning)
    }

    /// Variation of the path's delay without a queue; `None`: negligible or unknown.
    pub fn varies(&self) -> Option<Duration> {
        let noise = self.supervisor.as_ref().map(Supervisor::noise);
        noise.filter(|noise| !noise.is_zero())
    }

    /// When the next tick is due.
    pub fn next_timer(&self) -> Timestamp {
        let tick = self.path.ticked_at() + TICK;
        self.cc.next_timer().map_or(tick, |at| at.min(tick))
    }

    /// The decision in force, and the reason.
    pub fn decision(&self) -> Decision {
        let state = self.cc.state();
        let is_unsteady = self.path.is_unsteady(self.path.ticked_at());
        let (phase, reason) = match (self.peer, self.blind) {
            (Peer::Silent, _) => ("no_peer", "no authentic message"),
            _ if is_unsteady => ("unsteady", Alarm::Unsteady.text()),
            (_, Some(reason)) => ("no_reports", reason),
            _ if self.path.is_imbalanced() => ("imbalanced", Alarm::Imbalanced.text()),
            (_, None) => {
                let phase = self.supervisor.as_ref().and_then(Supervisor::phase);
                phase.unwrap_or((state.phase, state.reason))
            }
        };
        Decision {
            rate: self.rate,
            cwnd: self.cc.send_limits().cwnd,
            in_flight: self.path.in_flight(),
            min_rtt: state.min_rtt.or(self.path.least_rtt()),
            queue_delay: state.queue_delay,
            bottleneck_rate: state.bottleneck_rate.or(self.path.bottleneck_rate()),
            state: phase,
            reason,
        }
    }

    /// A condition that needs the operator's attention.
    pub fn alarm(&self, now: Timestamp) -> Option<Alarm> {
        self.path.alarm(now)
    }

    /// The order of boundaries in the last few seconds.
    pub const fn recent_order(&self) -> Tally {
        self.path.recent_order()
    }

    /// Bytes and delays of the path in the last spans of 100 ms, oldest first.
    pub const fn spans(&self) -> &VecDeque<PathSpan> {
        self.path.spans()
    }

    /// Share of the bytes sent that the receivebox does not see at any rate (0 to 1).
    pub const fn unseen(&self) -> f64 {
        self.path.unseen()
    }

    /// Bytes that the receivebox has reported as arrived.
    pub const fn delivered(&self) -> ByteCount {
        self.path.delivered()
    }

    /// Bytes that have left the sendbox.
    pub const fn sent(&self) -> ByteCount {
        self.path.sent()
    }

    /// Counters since the start.
    pub fn counters(&self) -> SendboxCounters {
        self.path.counters()
    }

    fn start(&mut self, now: Timestamp) {
        if self.is_started {
            return;
        }
        self.is_started = true;
        self.cc.init(now, MSS, MSS * u64::from(INITIAL_SEGMENTS));
        if self.config.dry_run || self.supervisor.is_some() {
            // Until a trial; in a dry run, always.
            self.cc.on_event(now, CongestionEvent::Unenforced);
        }
        self.path.start(now);
    }

    fn supervise(&mut self, now: Timestamp, measurement: &Measurement) {
        let (loop_time, is_limited) = (self.path.loop_time(), self.wanted_rate.is_some());
        let Some(supervisor) = &mut self.supervisor else { return };
        match supervisor.on_measurement(
            &self.config.tuning,
            now,
            measurement,
            loop_time,
            is_limited,
        ) {
            Some(LimitsChange::Enforced) => {
                let (noise, longer) = (supervisor.noise(), supervisor.longer());
                let base = self.cc.state().min_rtt.unwrap_or(Duration::MAX);
                if let Some(by) = longer.and_then(|rtt| rtt.checked_sub(base)) {
                    let nanos = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
                    self.cc.on_event(now, CongestionEvent::RttShift(nanos));
                }
                self.cc.on_event(now, CongestionEvent::DelayNoise(noise));
                self.cc.on_event(now, CongestionEvent::Enforced);
            }
            Some(LimitsChange::Noise) => {
                let noise = supervisor.noise();
                self.cc.on_event(now, CongestionEvent::DelayNoise(noise));
            }
            Some(LimitsChange::Unenforced) => self.cc.on_event(now, CongestionEvent::Unenforced),
            None => {}
        }
    }

    /// Measures the share of the traffic that the receivebox sees.
    fn judge_visibility(&mut self, now: Timestamp, seen: &Observation) {
        let steering = Steering {
            base: self.cc.state().min_rtt,
            // A ceiling applies in every state.
            is_shaped: self.wanted_rate.or(self.config.max_rate).is_some() && !self.config.dry_run,
            is_testable: !self.config.dry_run && !self.is_given_up(now),
            min_rate: self.min_rate(),
        };
        let verdict = self.path.judge(now, seen, &steering);
        self.take_verdict(now, verdict);
    }

    fn take_verdict(&mut self, now: Timestamp, verdict: Option<VisibilityVerdict>) {
        match verdict {
            None => {}
            Some(_) if self.path.unseen() < self.config.tuning.unseen_lost => {
                self.cc.on_event(now, CongestionEvent::Spurious);
            }
            Some(_) => self.lose_feedback(now),
        }
    }
}
