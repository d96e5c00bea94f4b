//! `learner`: the algorithm whose decisions come from outside of the simulation.
//!
//! ```text
//! running ──── a decision is due ────► waiting ──── a caller acts ─────► decided
//!    ▲                                                                     │
//!    └───────────────────────────── 1 ns later ◄───────────────────────────┘
//! ```
//! So a simulation stands still between two events until a caller decides, and the sender then continues with
//! that decision.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use forebay_core::cc::delay::FLOW;
use forebay_core::cc::policy::NEEDS;
use forebay_core::cc::policy::observation::Outcome;
use forebay_core::cc::policy::steering::{HISTORY, MIN_WINDOW_MSS, STEERS, SteeredSender};
use forebay_core::cc::{
    Algorithm, CongestionControl, CongestionEvent, Measurement, SendLimits, State,
};
use forebay_core::spec::{Spec, SpecError};
use forebay_core::units::{ByteCount, Timestamp};

/// The registry entry, which only plans of an environment may name.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "learner",
    summary: "takes its decisions from outside of the simulation",
    sources: &["this project: studies/src/rl"],
    params: &[&HISTORY, &STEERS, &FLOW],
    needs: NEEDS,
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.2,
    build: &build,
};

thread_local! {
    /// Seats that this thread has built and no environment has collected yet. A registry entry lives as long
    /// as the program, and an environment does not.
    static BUILT: RefCell<Vec<Weak<Mutex<Seat>>>> = const { RefCell::new(Vec::new()) };
}

fn build(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    let steering = SteeredSender::new(spec, HISTORY.of(spec)? as usize)?;
    let seat = Seat { steering, stage: Stage::Running, asked_at: Timestamp::ZERO };
    let seat = Arc::new(Mutex::new(seat));
    BUILT.with_borrow_mut(|built| {
        // Seats that were built only for a check are gone by now.
        built.retain(|seat| seat.strong_count() > 0);
        built.push(Arc::downgrade(&seat));
    });
    Ok(Box::new(Learner(seat)))
}

/// The seats that this thread has built since the last call and that are still in use, in that order.
pub(super) fn collect() -> Vec<Arc<Mutex<Seat>>> {
    BUILT.take().iter().filter_map(Weak::upgrade).collect()
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Running,
    Waiting(Outcome),
    Decided(f32),
}

/// A learner's seat, shared by the sender and the learner.
#[derive(Debug)]
pub(super) struct Seat {
    steering: SteeredSender,
    stage: Stage,
    asked_at: Timestamp,
}

impl Seat {
    /// The outcome to decide on, if a decision is due.
    pub fn waits(&self) -> Option<Outcome> {
        match self.stage {
            Stage::Waiting(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Accepts the decision that is due.
    pub fn act(&mut self, action: f32) {
        if let Stage::Waiting(_) = self.stage {
            self.stage = Stage::Decided(action);
        }
    }

    /// The outcome until `now`, at which the episode ends.
    pub fn end(&mut self, now: Timestamp) -> Outcome {
        self.waits().unwrap_or_else(|| self.steering.close(now))
    }

    /// Rows of [`forebay_core::cc::policy::observation::WIDTH`] numbers, the newest last.
    pub fn observation(&self) -> &[f32] {
        self.steering.observation()
    }

    /// Time of the next decision; [`Timestamp::MAX`] before the start.
    pub fn next(&self) -> Timestamp {
        match self.stage {
            Stage::Running => self.steering.due(),
            Stage::Waiting(_) | Stage::Decided(_) => self.asked_at + Duration::from_nanos(1),
        }
    }
}

/// Locks the seat, even if a thread panicked while it held the lock.
pub(super) fn locked(seat: &Mutex<Seat>) -> MutexGuard<'_, Seat> {
    seat.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Learner(Arc<Mutex<Seat>>);

impl CongestionControl for Learner {
    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        locked(&self.0).steering.start(now, mss, initial_cwnd);
    }

    fn on_measurement(&mut self, _now: Timestamp, measurement: &Measurement) {
        locked(&self.0).steering.on_measurement(measurement);
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        locked(&self.0).steering.on_event(now, event);
    }

    fn on_timer(&mut self, now: Timestamp) {
        let mut seat = locked(&self.0);
        if seat.next() > now {
            return;
        }
        seat.stage = match seat.stage {
            Stage::Running => {
                seat.asked_at = now;
                Stage::Waiting(seat.steering.close(now))
            }
            // No decision has arrived, as where a box was late or restarted: window and rate stay. Waiting
            // further would request the same instant for ever.
            Stage::Waiting(_) => Stage::Running,
            Stage::Decided(action) => {
                seat.steering.act(action);
                Stage::Running
            }
        };
    }

    fn next_timer(&self) -> Option<Timestamp> {
        Some(locked(&self.0).next()).filter(|at| *at < Timestamp::MAX)
    }

    fn send_limits(&self) -> SendLimits {
        locked(&self.0).steering.send_limits()
    }

    fn state(&self) -> State {
        let min_rtt = locked(&self.0).steering.min_rtt();
        State { phase: "learner", reason: "as decided", min_rtt, ..State::default() }
    }
}
