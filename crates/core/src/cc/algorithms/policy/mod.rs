//! `policy`: a learnt algorithm. From an [`observation`] a graph computes the factor of the window or the
//! rate ([`steering`]); where it fails, Copa takes over.
//!
//! ```text
//! observation ──► graph ──► a ──► W = 2^a W
//!                  │ NaN or infinite                            for good
//!                  ▼ 5 decisions beyond the limits in a row     for 10 s
//!                 Copa, from the current window
//! ```
//! A decision is beyond the limits if more than a fifth of its data is lost. It is also beyond them if its mean
//! round trip exceeds both four times the least one and the least one plus 50 ms. A path that cross traffic fills
//! looks the same, and Copa is no worse there.
//!
//! States: policy; fallback, with its reason.
//!
//! The owner of a graph builds the entry of the registry: core reads no files.

pub mod graph;
mod kernels;
pub mod observation;
pub mod steering;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;

use self::graph::{Evaluation, Graph, GraphError};
use self::observation::{HISTORY_MAX, Outcome, WIDTH};
use self::steering::SteeredSender;
use super::delay::FLOW;
use super::{CongestionControl, CongestionEvent, Field, Measurement, SendLimits, State, copa};
use crate::spec::{Spec, SpecError, Value};
use crate::units::{ByteCount, Duration, Timestamp};

/// Fields that every policy needs.
pub const NEEDS: &[Field] = &[Field::Rtt, Field::DeliveryRate];

/// Largest ratio of mean to least round trip that a policy may cause.
const RTT_RATIO_MAX: f64 = 4.0;
/// Queueing delay that a policy may cause even beyond [`RTT_RATIO_MAX`] (seconds).
const QUEUE_MIN_S: f64 = 0.05;
/// Share of loss that a policy may cause.
const LOSS_MAX: f64 = 0.2;
/// Decisions in a row beyond the limits that are too many.
const BEYOND_MAX: u32 = 5;
/// How long Copa decides then.
const FALLBACK: Duration = Duration::from_secs(10);

/// How many rows of an observation `graph` takes.
///
/// # Errors
///
/// The graph takes no whole number of rows, or gives more numbers than the one of a decision.
pub fn history_of(graph: &Graph) -> Result<usize, GraphError> {
    let (len, rows) = (graph.input_len(), graph.input_len() / WIDTH);
    if len % WIDTH != 0 || !(1..=HISTORY_MAX).contains(&rows) {
        let allowed = format!("1 to {HISTORY_MAX} rows of {WIDTH} numbers");
        return Err(GraphError::new(format!("an input of {len} numbers"), allowed));
    }
    match graph.output_len() {
        1 => Ok(rows),
        len => Err(GraphError::new(format!("an output of {len} numbers"), "1, the action")),
    }
}

/// A sender that `graph` steers, with the parameters [`steering::STEERS`] and [`FLOW`] of `spec`.
///
/// # Errors
///
/// A parameter out of range, or a graph with an input or output that does not fit a policy.
pub fn build(graph: &Arc<Graph>, spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    let history =
        history_of(graph).map_err(|error| SpecError::new("graph", &error.what, &error.allowed))?;
    Ok(Box::new(Policy {
        graph: graph.clone(),
        steering: SteeredSender::new(spec, history)?,
        is_flow: FLOW.of(spec)?,
        mss: ByteCount::new(1),
        action: 0.0,
        beyond: 0,
        fallback: None,
    }))
}

/// Copa instead of the graph.
struct Fallback {
    cc: Box<dyn CongestionControl>,
    reason: &'static str,
    /// [`Timestamp::MAX`]: for good.
    until: Timestamp,
}

struct Policy {
    graph: Arc<Graph>,
    steering: SteeredSender,
    is_flow: bool,
    mss: ByteCount,
    action: f32,
    /// Decisions in a row beyond the limits.
    beyond: u32,
    fallback: Option<Fallback>,
}

impl Policy {
    fn decide(&mut self, now: Timestamp) {
        let outcome = self.steering.close(now);
        if let Some(fallback) = &self.fallback {
            if let Some(window) = fallback.cc.send_limits().cwnd {
                self.steering.set_window(window);
            }
            if now < fallback.until {
                return;
            }
            self.fallback = None;
        }
        // Up to 256 KB, which thousands of connections need not have all the time.
        let mut evaluation = Evaluation::new(self.graph.clone());
        evaluation.input().copy_from_slice(self.steering.observation());
        let action = evaluation.run()[0];
        if !action.is_finite() {
            self.fall_back(now, "the policy returned no finite number", Timestamp::MAX);
            return;
        }
        self.beyond = if is_beyond(&outcome) { self.beyond + 1 } else { 0 };
        if self.beyond >= BEYOND_MAX {
            self.fall_back(now, "queue or loss above the limits", now + FALLBACK);
            return;
        }
        self.action = action.clamp(-1.0, 1.0);
        self.steering.act(action);
    }

    fn fall_back(&mut self, now: Timestamp, reason: &'static str, until: Timestamp) {
        self.beyond = 0;
        self.action = 0.0;
        let spec = Spec::named(copa::ALGORITHM.name).with(FLOW.name, Value::Bool(self.is_flow));
        // Copa takes this parameter, so it is always built.
        let Ok(mut cc) = copa::ALGORITHM.build(&spec) else { return };
        let window = self.steering.window().unwrap_or(self.mss);
        cc.init(now, self.mss, window);
        self.fallback = Some(Fallback { cc, reason, until });
    }
}

fn is_beyond(outcome: &Outcome) -> bool {
    let times = outcome.rtt.zip(outcome.min_rtt);
    let has_queue = times.is_some_and(|(mean, least)| {
        let (mean_s, least_s) = (mean.as_secs_f64(), least.as_secs_f64());
        mean_s > RTT_RATIO_MAX * least_s && mean_s > least_s + QUEUE_MIN_S
    });
    has_queue || outcome.loss() > LOSS_MAX
}

impl CongestionControl for Policy {
    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        self.mss = mss;
        self.beyond = 0;
        self.fallback = None;
        self.steering.start(now, mss, initial_cwnd);
    }

    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        self.steering.on_measurement(measurement);
        if let Some(fallback) = &mut self.fallback {
            fallback.cc.on_measurement(now, measurement);
        }
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        self.steering.on_event(now, event);
        if let Some(fallback) = &mut self.fallback {
            fallback.cc.on_event(now, event);
        }
    }

    fn on_timer(&mut self, now: Timestamp) {
        if let Some(fallback) = &mut self.fallback
            && fallback.cc.next_timer().is_some_and(|at| at <= now)
        {
            fallback.cc.on_timer(now);
        }
        if self.steering.due() <= now {
            self.decide(now);
        }
    }

    fn next_timer(&self) -> Option<Timestamp> {
        let of_fallback = self.fallback.as_ref().and_then(|it| it.cc.next_timer());
        let due = Some(self.steering.due()).filter(|due| *due < Timestamp::MAX);
        [due, of_fallback].into_iter().flatten().min()
    }

    fn send_limits(&self) -> SendLimits {
        match &self.fallback {
            Some(fallback) => {
                let limits = fallback.cc.send_limits();
                let least = self.mss.as_f64() * steering::MIN_WINDOW_MSS;
                let least = ByteCount::new(least as u64);
                SendLimits { cwnd: limits.cwnd.map(|cwnd| cwnd.max(least)), ..limits }
            }
            None => self.steering.send_limits(),
        }
    }

    fn state(&self) -> State {
        let (phase, reason) = match &self.fallback {
            Some(fallback) => ("fallback", fallback.reason),
            None => ("policy", "as decided"),
        };
        let window = self.steering.window().map_or(0.0, ByteCount::as_f64);
        State {
            phase,
            reason,
            min_rtt: self.steering.min_rtt(),
            numbers: vec![("action", f64::from(self.action)), ("window_bytes", window)],
            ..State::default()
        }
    }
}
