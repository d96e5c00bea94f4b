//! A connection or bundle that a child decides for.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_core::cc::{
    Algorithm, CongestionControl, CongestionEvent, Law, Measurement, SendLimits, State,
};
use forebay_core::spec::Spec;
use forebay_core::units::{ByteCount, Duration, Rate, Ratio, Timestamp};
use serde_json::{Value, json};

use super::link::{Heard, Link};

/// Time between two looks for an answer, and the part of its lateness where that is too late.
const LOOK: Duration = Duration::from_millis(1);
const LOOK_PART: u32 = 4;
/// An answer that is later is looked for with the next question alone: a child that hangs costs nobody's sleep.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// Two ticks: the longest time between two looks of an agent is 10 ms, that of a sendbox shorter.
const LATE: Duration = Duration::from_millis(20);
/// With so many questions that have no answer nothing more is asked.
const UNANSWERED_MAX: usize = 64;

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Python,
    Late,
    Gone,
    Failed,
}

impl Standing {
    /// Phase and reason, as states of algorithms have them.
    const fn words(self) -> (&'static str, &'static str) {
        let reason = match self {
            Self::Python => return ("python", "a class in Python decides"),
            Self::Late => "the class in Python is two ticks late with an answer",
            Self::Gone => "the child that runs the class in Python has ended, and the next has not begun",
            Self::Failed => "the class in Python raised an exception, which the log has told (FB0308)",
        };
        ("fallback", reason)
    }
}

/// An algorithm in a child, for one connection or bundle.
pub struct Remote {
    link: Arc<Link>,
    algorithm: String,
    connection: u64,
    /// The child that has the instance, as [`Heard::generation`] counts them.
    generation: u64,
    seed: u64,
    mss: ByteCount,
    /// Number of the newest question.
    asked: u64,
    /// When the questions were put that have no answer, the oldest first.
    unanswered: VecDeque<Timestamp>,
    /// When to look for an answer.
    looks: Option<Timestamp>,
    limits: SendLimits,
    standing: Standing,
    fallback: Box<dyn CongestionControl>,
}

impl Remote {
    /// What the log calls `whom`, for which the algorithm of this name decides at the other end of `link`, and
    /// `fallback` where that does not.
    pub fn new(link: Arc<Link>, algorithm: &str, whom: &str, fallback: &Algorithm) -> Self {
        let connection = link.open(whom);
        let fallback = fallback.build(&Spec::named(fallback.name));
        Self {
            connection,
            generation: link.hear(connection).generation,
            link,
            algorithm: algorithm.into(),
            seed: 0,
            mss: ByteCount::ZERO,
            asked: 0,
            unanswered: VecDeque::new(),
            looks: None,
            limits: SendLimits::default(),
            standing: Standing::Python,
            fallback: fallback.expect("defaults are valid"),
        }
    }

    /// Has an instance made that starts with this window.
    fn begin(&mut self, now: Timestamp, initial_cwnd: ByteCount) {
        let start = json!({
            "now_ns": now.as_nanos(),
            "mss_bytes": self.mss.as_u64(),
            "initial_cwnd_bytes": initial_cwnd.as_u64(),
            "seed": self.seed,
        });
        self.ask(now, "init", json!({ "algorithm": self.algorithm, "start": start }));
    }

    /// Puts a question: what of `call` the callback of that name is told.
    fn ask(&mut self, now: Timestamp, call: &str, told: Value) {
        let is_anybody_there = matches!(self.standing, Standing::Python | Standing::Late);
        if !is_anybody_there || self.unanswered.len() == UNANSWERED_MAX {
            return;
        }
        self.asked += 1;
        self.unanswered.push_back(now);
        self.look(now);
        self.link.ask(&json!({
            "connection": self.connection,
            "number": self.asked,
            "now_ns": now.as_nanos(),
            "call": call,
            "told": told,
        }));
    }

    /// Takes what has been heard by now.
    fn hear(&mut self, now: Timestamp) {
        let heard = self.link.hear(self.connection);
        // Nobody has answered what was not asked.
        let first = self.asked - self.unanswered.len() as u64;
        let answered = heard.number.min(self.asked).saturating_sub(first);
        self.unanswered.drain(..answered as usize);
        if let Some([cwnd, ssthresh, rate]) = heard.limits {
            // A number that makes no sense becomes the nearest one that a u64 can be.
            let whole = |number: Option<f64>| number.map(|number| number as u64);
            self.limits = SendLimits {
                cwnd: whole(cwnd).map(ByteCount::new),
                ssthresh: whole(ssthresh).map(ByteCount::new),
                pacing_rate: whole(rate).map(Rate::from_bits_per_sec),
                app_limited: None,
            };
        }
        let has_followed = heard.generation != self.generation;
        if has_followed {
            self.generation = heard.generation;
            self.unanswered.clear();
        }
        let cwnd = self.send_limits().cwnd;
        self.standing = self.judge(now, &heard);
        self.look(now);
        if has_followed && let Some(cwnd) = cwnd {
            self.limits = SendLimits { cwnd: Some(cwnd), ..SendLimits::default() };
            self.begin(now, cwnd);
        }
    }

    fn judge(&self, now: Timestamp, heard: &Heard) -> Standing {
        match self.lateness(now) {
            _ if heard.has_failed => Standing::Failed,
            _ if heard.is_gone => Standing::Gone,
            Some(lateness) if lateness > LATE => Standing::Late,
            _ => Standing::Python,
        }
    }

    /// How long the oldest question has had no answer.
    fn lateness(&self, now: Timestamp) -> Option<Duration> {
        self.unanswered.front().map(|at| now.saturating_since(*at))
    }

    /// Sets when to look for an answer next.
    fn look(&mut self, now: Timestamp) {
        let awaits = matches!(self.standing, Standing::Python | Standing::Late);
        let lateness = self.lateness(now).filter(|lateness| awaits && *lateness < LOOK_MAX);
        self.looks = lateness.map(|lateness| {
            now + if lateness > LATE { lateness / LOOK_PART } else { LOOK }
        });
    }

    fn is_python(&self) -> bool {
        self.standing == Standing::Python
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.link.ask(&json!({ "connection": self.connection, "call": "end" }));
        self.link.close(self.connection);
    }
}

impl CongestionControl for Remote {
    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        self.fallback.init(now, mss, initial_cwnd);
        self.mss = mss;
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
        self.ask(now, "on_measurement", measured(measurement));
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        self.fallback.on_event(now, event);
        self.hear(now);
        let (name, value) = event.named();
        self.ask(now, "on_event", json!({ "event": name, "value": value }));
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

    fn law(&self) -> Law {
        if self.is_python() { Law::HOLD } else { self.fallback.law() }
    }

    fn state(&self) -> State {
        let (phase, reason) = self.standing.words();
        let state = if self.is_python() { State::default() } else { self.fallback.state() };
        State { phase, reason, ..state }
    }
}

/// `it` under the names that Python has for the fields.
fn measured(it: &Measurement) -> Value {
    let bytes = |bytes: Option<ByteCount>| bytes.map(ByteCount::as_u64);
    let nanos = |time: Option<Duration>| {
        time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    };
    let rate = |rate: Option<Rate>| rate.map(Rate::as_bits_per_sec);
    json!({
        "interval_ns": nanos(Some(it.interval)),
        "acked_bytes": it.acked.as_u64(),
        "lost_bytes": bytes(it.lost),
        "ecn_ce_bytes": bytes(it.ecn_ce),
        "ect1_bytes": bytes(it.ect1),
        "rtt_latest_ns": nanos(it.rtt.map(|rtt| rtt.latest)),
        "rtt_min_ns": nanos(it.rtt.map(|rtt| rtt.min)),
        "feedback_delay_ns": nanos(it.feedback_delay),
        "one_way_ns": nanos(it.one_way),
        "send_rate_bits_per_s": rate(it.send_rate),
        "delivery_rate_bits_per_s": rate(it.delivery_rate),
        "train_rate_bits_per_s": rate(it.train_rate),
        "in_flight_bytes": bytes(it.in_flight),
        "delivered_bytes": it.delivered.as_u64(),
        "prior_delivered_bytes": it.prior_delivered.as_u64(),
        "lost_prior_delivered_bytes": bytes(it.lost_prior_delivered),
        "backlog_bytes": bytes(it.backlog),
        "idle_share": it.idle.map(Ratio::as_f64),
        "app_limited": it.app_limited,
        "cwnd_limited": it.cwnd_limited,
    })
}

#[cfg(test)]
mod tests;
