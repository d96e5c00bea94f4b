//! One connection: its algorithm, fed with the reports of the kernel. No clock and no I/O: the same
//! records at the same times give the same decisions, bit for bit. A replay of a recording verifies
//! that.
//!
//! ```text
//! report ─► acknowledged data ─► events ─► lost data ─► decision
//! ```
//! A report covers some time, mostly a round trip, and its events are at the end of that time: the
//! acknowledgements came before them. In a report of a single acknowledgement a loss comes first, as
//! [`CongestionEvent`] requires, and so does a pause that the acknowledgement ends.
//!
//! Records may be lost. Their counters are cumulative, so the next record covers the same bytes. Lost
//! events are derived from the kernel's state (`Flow::reconcile`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use forebay_core::cc::{CongestionControl, CongestionEvent, Measurement, SendLimits, State};
use forebay_core::text;
use forebay_core::units::{ByteCount, Rate, Timestamp};
use forebay_ebpf::tcp::{CaState, Decision, Head, Meter, Mode, Report, Reporting};

use super::rules::Choice;

/// Largest accepted window: beyond the largest that TCP can announce (RFC 7323, section 2.3: 1 GiB).
const CWND_MAX: ByteCount = ByteCount::new(1 << 32);
/// Lowest accepted rate: one packet of 1000 bytes per second. Lower decisions are raised to it.
const RATE_MIN: Rate = Rate::from_bits_per_sec(8_000);
/// Highest accepted rate: 10 Tbit/s, above the speed of any device. Higher decisions are lowered to
/// it.
const RATE_MAX: Rate = Rate::from_mbit_per_sec(10_000_000);

/// Settings for the decisions of all flows of an agent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// How often the kernel reports.
    pub reporting: Reporting,
    /// Algorithms that only set a window are paced, too.
    pub pace: bool,
    /// A decision on a report of this age (or of two round trips, if that is longer) comes too late.
    pub stale_after: Duration,
}

/// How a connection came to its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowOrigin {
    /// The connection has just been opened.
    Opened,
    /// The connection existed before: its window goes on from its current value.
    Adopted,
}

/// State of loss recovery as the algorithm knows it from events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Open,
    Recovery,
    Timeout,
}

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records received.
    pub records: u64,
    /// Records that found no room.
    pub missed: u64,
    /// Decisions handed to the kernel.
    pub decisions: u64,
    /// Decisions withheld because their report was too old.
    pub stale: u64,
    /// Decisions outside the accepted bounds, clamped into them.
    pub clamped: u64,
}

/// A connection.
pub struct Flow {
    choice: Choice,
    seed: u64,
    algorithm: Box<dyn CongestionControl>,
    /// The newest record.
    last: Head,
    meter: Meter,
    /// Measurement of the last report.
    measured: Measurement,
    now: Timestamp,
    told: Told,
    /// The kernel's fallback has controlled the connection since the last decision of the algorithm.
    is_away: bool,
    decision: Option<Decision>,
    failure: Option<String>,
    counts: Counts,
}

impl Flow {
    /// Makes a connection with the state `head`. The seed is for the random choices of the algorithm.
    pub fn new(origin: FlowOrigin, head: Head, choice: &Choice, seed: u64) -> Self {
        let mut flow = Self {
            choice: choice.clone(),
            seed,
            algorithm: choice.build(),
            last: head,
            meter: Meter::new(&head),
            measured: Measurement::default(),
            now: head.at,
            told: Told::Open,
            is_away: false,
            decision: None,
            failure: None,
            counts: Counts { records: 1, ..Counts::default() },
        };
        match origin {
            FlowOrigin::Opened => flow.start(bytes(head.cwnd, head.mss)),
            FlowOrigin::Adopted => flow.adopt(),
        }
        flow
    }

    /// A connection whose algorithm is not in the registry.
    #[cfg(test)]
    pub(super) fn with_algorithm(mut self, algorithm: Box<dyn CongestionControl>) -> Self {
        self.algorithm = algorithm;
        self
    }

    /// Takes a report. A report that is not newer than the last one is ignored.
    pub fn on_report(&mut self, report: &Report) {
        let gap = report.head.seq.wrapping_sub(self.last.seq);
        if gap == 0 || gap > u32::MAX / 2 {
            return;
        }
        let missed = u64::from(gap - 1);
        self.counts.records += 1;
        self.counts.missed += missed;
        let measurement = self.meter.measure(report);
        let events = match report.has_congestion_events() {
            true => report.congestion_events().collect(),
            false => Vec::new(),
        };
        self.last = report.head;
        self.now = self.now.max(report.head.at);
        self.measured = measurement;
        self.is_away |= report.head.mode == Mode::Fallback;
        if !self.is_away {
            let events = self.reconcile(events, missed > 0, &measurement);
            self.feed(&measurement, &events, report.acks <= 1);
        }
    }

    /// The algorithm's timer is due.
    pub fn on_timer(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        let now = self.now;
        if !self.is_away {
            self.guarded(|algorithm| algorithm.on_timer(now));
        }
    }

    /// When the algorithm wants to be called without a report.
    pub fn next_timer(&self) -> Option<Timestamp> {
        if self.failure.is_some() || self.is_away { None } else { self.algorithm.next_timer() }
    }

    /// The answer to the newest record; `None` after a failure of the algorithm. Without an answer
    /// the kernel's fallback takes over the connection.
    pub fn decide(&mut self, terms: &Terms) -> Option<Decision> {
        if self.is_away {
            self.adopt();
        }
        let (limits, interim) =
            self.guarded(|algorithm| (algorithm.send_limits(), algorithm.interim()))?;
        let (limits, is_clamped) = believable(&self.complete(limits, terms.pace));
        self.counts.clamped += u64::from(is_clamped);
        self.counts.decisions += 1;
        let decision = Decision::new(&limits, &interim, self.last.mss.max(1), terms.reporting);
        self.decision = Some(decision);
        Some(decision)
    }

    /// Whether a decision on the newest record would come too late at `now`; counts it if so.
    pub fn is_stale(&mut self, now: Timestamp, terms: &Terms) -> bool {
        let round_trips = Duration::from_micros(u64::from(self.last.srtt_us) * 2);
        let age = now.saturating_since(self.last.at);
        let is_stale = age > round_trips.max(terms.stale_after);
        self.counts.stale += u64::from(is_stale);
        is_stale
    }

    /// Algorithm and parameters.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The seed of the algorithm's random choices.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The newest record.
    pub fn head(&self) -> &Head {
        &self.last
    }

    /// Measurement of the last report.
    pub fn measured(&self) -> &Measurement {
        &self.measured
    }

    /// The last decision.
    pub fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// Counters of the connection.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Why the algorithm no longer decides.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The algorithm's own state.
    pub fn state(&mut self) -> State {
        self.guarded(|algorithm| algorithm.state()).unwrap_or_default()
    }

    /// Returns the events in order, with lost ones added that follow from the kernel's state.
    fn reconcile(
        &mut self,
        mut events: Vec<CongestionEvent>,
        has_gap: bool,
        measurement: &Measurement,
    ) -> Vec<CongestionEvent> {
        let was_open = self.told == Told::Open;
        for event in &events {
            self.told = match event {
                CongestionEvent::Loss => Told::Recovery,
                CongestionEvent::Rto => Told::Timeout,
                // The kernel reports the end separately: without SACK it comes after the undo.
                CongestionEvent::RecoveryEnd => Told::Open,
                _ => self.told,
            };
        }
        let is = match self.last.ca_state {
            CaState::Recovery => Told::Recovery,
            CaState::Loss => Told::Timeout,
            // After a loss or a mark. Only the event says which of the two it was.
            CaState::Cwr if self.told == Told::Recovery => Told::Recovery,
            CaState::Open | CaState::Disorder | CaState::Cwr => Told::Open,
        };
        match (self.told, is) {
            (Told::Open, Told::Recovery) => events.push(CongestionEvent::Loss),
            (Told::Open | Told::Recovery, Told::Timeout) => events.push(CongestionEvent::Rto),
            (Told::Recovery | Told::Timeout, Told::Open) => {
                events.push(CongestionEvent::RecoveryEnd);
            }
            // A recovery after a timeout is the same episode.
            (Told::Timeout, Told::Recovery) => return events,
            (Told::Open, Told::Open) => {
                let has_lost = measurement.lost.is_some_and(|lost| lost > ByteCount::ZERO);
                if has_gap && was_open && has_lost && !events.contains(&CongestionEvent::Loss) {
                    events.extend([CongestionEvent::Loss, CongestionEvent::RecoveryEnd]);
                }
            }
            (Told::Recovery, Told::Recovery) | (Told::Timeout, Told::Timeout) => {}
        }
        self.told = is;
        events
    }

    fn feed(&mut self, measurement: &Measurement, events: &[CongestionEvent], is_single: bool) {
        let now = self.now;
        let is_loss =
            |event: &CongestionEvent| matches!(event, CongestionEvent::Loss | CongestionEvent::Rto);
        // A pause, always the first event, came before the acknowledgement that ended it.
        let is_pause = matches!(events.first(), Some(CongestionEvent::IdleRestart(_)));
        let (pause, events) = events.split_at(usize::from(is_single && is_pause));
        let loss = events.iter().position(is_loss);
        let (before, after) = match loss {
            None => (Some(*measurement), None),
            Some(_) if is_single => (None, Some(*measurement)),
            Some(_) => {
                let (acked, lost) = split(measurement);
                (Some(acked), Some(lost))
            }
        };
        self.guarded(|algorithm| {
            for pause in pause {
                algorithm.on_event(now, *pause);
            }
            if let Some(before) = before {
                algorithm.on_measurement(now, &before);
            }
            for (number, event) in events.iter().enumerate() {
                algorithm.on_event(now, *event);
                // The measurement comes before the end of the episode; after it, the losses would
                // begin a new episode.
                if let Some(after) = after.filter(|_| loss == Some(number)) {
                    algorithm.on_measurement(now, &after);
                }
            }
        });
    }

    fn start(&mut self, window: ByteCount) {
        let (now, seed, mss) = (self.now, self.seed, bytes(1, self.last.mss));
        self.guarded(|algorithm| {
            algorithm.set_seed(seed);
            algorithm.init(now, mss, window);
        });
    }

    /// Makes a new algorithm that goes on from the kernel's window. If the kernel has lowered its
    /// window in a loss episode, the algorithm starts in the state that such a loss leaves. Otherwise
    /// it would begin with slow start.
    fn adopt(&mut self) {
        self.is_away = false;
        let head = self.last;
        let is_open = matches!(head.ca_state, CaState::Open | CaState::Disorder);
        let segments = head.ssthresh.filter(|_| !is_open).unwrap_or(head.cwnd);
        let target = bytes(segments, head.mss);
        self.algorithm = self.choice.build();
        self.told = Told::Open;
        self.start(target);
        if head.ssthresh.is_none() && is_open {
            return;
        }
        let now = self.now;
        let left = self.guarded(|algorithm| {
            algorithm.on_event(now, CongestionEvent::Loss);
            algorithm.send_limits().cwnd
        });
        if let Some(Some(left)) = left
            && left < target
        {
            let from = u128::from(target.as_u64()).pow(2) / u128::from(left.as_u64().max(1));
            let from = u64::try_from(from).unwrap_or(u64::MAX).min(CWND_MAX.as_u64());
            self.algorithm = self.choice.build();
            self.start(ByteCount::new(from));
            self.guarded(|algorithm| algorithm.on_event(now, CongestionEvent::Loss));
        }
        let (event, told) = match head.ca_state {
            CaState::Cwr | CaState::Recovery => (None, Told::Recovery),
            CaState::Loss => (Some(CongestionEvent::Rto), Told::Timeout),
            _ => (Some(CongestionEvent::RecoveryEnd), Told::Open),
        };
        self.told = told;
        if let Some(event) = event {
            self.guarded(|algorithm| algorithm.on_event(now, event));
        }
    }

    fn complete(&self, limits: SendLimits, pace: bool) -> SendLimits {
        let rtt = Some(Duration::from_micros(u64::from(self.last.srtt_us)));
        let rtt = rtt.filter(|rtt| !rtt.is_zero());
        let is_unlimited = limits.cwnd.is_none() && limits.pacing_rate.is_none();
        SendLimits {
            cwnd: if is_unlimited { Some(CWND_MAX) } else { limits.window(rtt) },
            pacing_rate: if pace && !is_unlimited { limits.rate(rtt) } else { limits.pacing_rate },
            ..limits
        }
    }

    /// Calls the algorithm unless it has failed. A panic ends the algorithm for this connection and
    /// affects no other one.
    fn guarded<T>(&mut self, call: impl FnOnce(&mut dyn CongestionControl) -> T) -> Option<T> {
        if self.failure.is_some() {
            return None;
        }
        match catch_unwind(AssertUnwindSafe(|| call(&mut *self.algorithm))) {
            Ok(result) => Some(result),
            Err(panic) => {
                self.failure = Some(text::of_panic(&*panic).unwrap_or("panicked").into());
                None
            }
        }
    }
}

fn bytes(segments: u32, mss: u32) -> ByteCount {
    ByteCount::new(u64::from(segments.max(1)) * u64::from(mss.max(1)))
}

/// Splits a measurement into data acknowledged before a loss was seen, and the lost data.
fn split(measurement: &Measurement) -> (Measurement, Measurement) {
    let none = ByteCount::ZERO;
    let acked = Measurement { lost: measurement.lost.map(|_| none), ..*measurement };
    let lost = Measurement {
        lost: measurement.lost,
        in_flight: measurement.in_flight,
        delivered: measurement.delivered,
        prior_delivered: measurement.prior_delivered,
        app_limited: measurement.app_limited,
        ..Measurement::default()
    };
    (acked, lost)
}

/// Clamps `limits` to the accepted bounds, and says whether that changed them.
fn believable(limits: &SendLimits) -> (SendLimits, bool) {
    let one = ByteCount::new(1);
    let believed = SendLimits {
        cwnd: limits.cwnd.map(|cwnd| cwnd.clamp(one, CWND_MAX)),
        ssthresh: limits.ssthresh.map(|ssthresh| ssthresh.clamp(one, CWND_MAX)),
        pacing_rate: limits.pacing_rate.map(|rate| rate.clamp(RATE_MIN, RATE_MAX)),
        ..*limits
    };
    (believed, believed != *limits)
}

#[cfg(test)]
pub(super) mod tests;
