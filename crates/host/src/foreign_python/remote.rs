//! A connection or bundle under the control of a child.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_core::cc::foreign::Values;
use forebay_core::cc::{
    Algorithm, CongestionControl, CongestionEvent, Interim, Measurement, SendLimits, State,
};
use forebay_core::spec::Spec;
use forebay_core::units::{ByteCount, Duration, Timestamp};

use super::link::{Channel, Heard};
use super::questions::{Questions, send_limits};
use crate::log::foreign::quoted;

/// Time between two looks for an answer that is not late.
const LOOK: Duration = Duration::from_millis(1);
/// Once an answer is late, the time between two looks is its lateness divided by this number.
const LOOK_PART: u32 = 4;
/// An answer later than this is only looked for with the next question: a child that hangs must not cost wake-ups.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// An answer is late after two ticks: an agent looks at least every 10 ms, a sendbox more often.
const LATE: Duration = Duration::from_millis(20);
/// With this many unanswered questions, no further question is sent.
const UNANSWERED_MAX: usize = 64;

/// The source of the current limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Python,
    Late,
    Gone,
    Failed,
}

impl Standing {
    /// Phase and reason, for the state of the algorithm.
    const fn words(self) -> (&'static str, &'static str) {
        let reason = match self {
            Self::Python => return ("python", "a class in Python decides"),
            Self::Late => "the class in Python is two ticks late with an answer",
            Self::Gone => {
                "the child that runs the class in Python has ended, and the next has not started"
            }
            Self::Failed => "the class in Python raised an exception (FB0308 in the log)",
        };
        ("fallback", reason)
    }
}

/// An algorithm in a child, for one connection or bundle.
pub struct Remote {
    questions: Questions,
    /// Name of the connection or bundle in the log.
    whom: String,
    /// The child that has the instance, as [`Heard::generation`] counts them.
    generation: u64,
    seed: u64,
    mss: ByteCount,
    /// Initial window of the host.
    initial_cwnd: ByteCount,
    /// Send times of the unanswered questions, the oldest first.
    unanswered: VecDeque<Timestamp>,
    /// Time of the next look for an answer.
    looks: Option<Timestamp>,
    limits: SendLimits,
    standing: Standing,
    fallback: Box<dyn CongestionControl>,
}

impl Remote {
    /// Makes the algorithm for a connection or bundle that the log calls `whom`. The named algorithm at the other end
    /// of `link` decides, and `fallback` while it does not.
    pub fn new(
        link: Arc<Channel>,
        (algorithm, params): (&str, &Values),
        whom: &str,
        fallback: &Algorithm,
    ) -> Self {
        let questions = Questions::new(link, algorithm, params, false);
        let fallback = fallback.build(&Spec::named(fallback.name));
        Self {
            generation: questions.hear().generation,
            questions,
            whom: whom.into(),
            seed: 0,
            mss: ByteCount::ZERO,
            initial_cwnd: ByteCount::ZERO,
            unanswered: VecDeque::new(),
            looks: None,
            limits: SendLimits::default(),
            standing: Standing::Python,
            fallback: fallback.expect("defaults are valid"),
        }
    }

    /// Creates an instance that starts with this window.
    fn begin(&mut self, now: Timestamp, initial_cwnd: ByteCount) {
        let (mss, seed) = (self.mss, self.seed);
        self.ask(now, |questions| questions.init(now, mss, initial_cwnd, seed));
    }

    /// Sends a question, if a child runs that has not failed.
    fn ask(&mut self, now: Timestamp, question: impl FnOnce(&mut Questions)) {
        if self.is_anybody_there() && self.unanswered.len() < UNANSWERED_MAX {
            question(&mut self.questions);
            self.unanswered.push_back(now);
            self.look(now);
        }
    }

    fn is_anybody_there(&self) -> bool {
        matches!(self.standing, Standing::Python | Standing::Late)
    }

    /// Takes all answers so far.
    fn hear(&mut self, now: Timestamp) {
        let heard = self.questions.hear();
        // An answer to a question that was never sent does not count.
        let asked = self.questions.asked();
        let first = asked - self.unanswered.len() as u64;
        let answered = heard.number.min(asked).saturating_sub(first);
        self.unanswered.drain(..answered as usize);
        self.limits = heard.limits.map_or(self.limits, send_limits);
        let has_followed = heard.generation != self.generation;
        if has_followed {
            self.generation = heard.generation;
            self.unanswered.clear();
        }
        // A fallback may only set a rate.
        let cwnd = self.send_limits().cwnd.unwrap_or(self.initial_cwnd);
        self.standing = self.judge(now, &heard);
        self.tell(&heard);
        self.look(now);
        if has_followed {
            self.limits = SendLimits { cwnd: Some(cwnd), ..SendLimits::default() };
            self.begin(now, cwnd);
        }
    }

    fn judge(&self, now: Timestamp, heard: &Heard) -> Standing {
        let has_failed = heard.failed.is_some() || self.standing == Standing::Failed;
        match self.lateness(now) {
            _ if has_failed => Standing::Failed,
            _ if heard.is_gone => Standing::Gone,
            Some(lateness) if lateness > LATE => Standing::Late,
            _ => Standing::Python,
        }
    }

    /// Logs an exception.
    fn tell(&self, heard: &Heard) {
        let link = self.questions.link();
        if let Some(traceback) = &heard.failed
            && link.may_tell()
        {
            let (whom, file, traceback) = (&self.whom, link.file().display(), quoted(traceback));
            tracing::warn!(
                target: "python",
                %whom,
                "{file} raised an exception, and its fallback decides from now on:\n{traceback}"
            );
        }
    }

    /// Time since the oldest unanswered question.
    fn lateness(&self, now: Timestamp) -> Option<Duration> {
        self.unanswered.front().map(|at| now.saturating_since(*at))
    }

    /// Sets the time of the next look for an answer.
    fn look(&mut self, now: Timestamp) {
        let lateness = self.lateness(now).filter(|lateness| *lateness < LOOK_MAX);
        let wait = |lateness| if lateness > LATE { lateness / LOOK_PART } else { LOOK };
        self.looks = lateness.filter(|_| self.is_anybody_there()).map(|it| now + wait(it));
    }

    fn is_python(&self) -> bool {
        self.standing == Standing::Python
    }
}

impl CongestionControl for Remote {
    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        self.fallback.init(now, mss, initial_cwnd);
        self.mss = mss;
        self.initial_cwnd = initial_cwnd;
        self.limits = SendLimits { cwnd: Some(initial_cwnd), ..SendLimits::default() };
        self.begin(now, initial_cwnd);
    }

    fn set_seed(&mut self, seed: u64) {
        self.fallback.set_seed(seed);
        self.seed = seed;
    }

    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        self.fallback.on_measurement(now, measurement);
        self.hear(now);
        self.ask(now, |questions| questions.on_measurement(now, measurement));
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        self.fallback.on_event(now, event);
        self.hear(now);
        self.ask(now, |questions| questions.on_event(now, event));
    }

    fn on_timer(&mut self, now: Timestamp) {
        if self.fallback.next_timer().is_some_and(|at| at <= now) {
            self.fallback.on_timer(now);
        }
        self.hear(now);
    }

    fn next_timer(&self) -> Option<Timestamp> {
        self.looks.into_iter().chain(self.fallback.next_timer()).min()
    }

    fn send_limits(&self) -> SendLimits {
        if self.is_python() { self.limits } else { self.fallback.send_limits() }
    }

    fn interim(&self) -> Interim {
        if self.is_python() { Interim::HOLD } else { self.fallback.interim() }
    }

    fn state(&self) -> State {
        let (phase, reason) = self.standing.words();
        let state = if self.is_python() { State::default() } else { self.fallback.state() };
        State { phase, reason, ..state }
    }
}

#[cfg(test)]
mod tests;
