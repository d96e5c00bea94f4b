//! The machine of a receivebox: its clock, its delays, and whether it sleeps.

use std::collections::VecDeque;

use forebay_core::clock::Clock;
use forebay_core::random::{Stream, Streams};
use forebay_core::units::{Duration, Timestamp};
use forebay_scenario::Bundle;

/// Reading of its clock at the start of the run, 10^6 s: large enough that a step back stays above zero.
const ORIGIN: Timestamp = Timestamp::from_nanos(1_000_000_000_000_000);

/// A machine with a receivebox.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    clock: Clock,
    timers: Clock,
    timestamp_jitter: Duration,
    report_jitter: Duration,
    random: Stream,
    asleep_since: Option<Timestamp>,
    /// Time for which its clock has stood still.
    slept: Duration,
    /// Late messages, in the order of their departure.
    late: VecDeque<(Timestamp, Vec<u8>)>,
}

impl Machine {
    /// The machine of `bundle`'s receivebox.
    pub fn of(bundle: &Bundle, streams: &Streams) -> Self {
        Self {
            clock: bundle.clock.clone(),
            timers: bundle.clock.without_steps(),
            timestamp_jitter: bundle.timestamp_jitter,
            report_jitter: bundle.report_jitter,
            random: streams.stream("machine"),
            asleep_since: None,
            slept: Duration::ZERO,
            late: VecDeque::new(),
        }
    }

    /// A copy of this machine for a new process, without late messages.
    pub fn renewed(&self) -> Self {
        Self { late: VecDeque::new(), ..self.clone() }
    }

    /// Time that the machine's timers use.
    pub fn time(&self, now: Timestamp) -> Timestamp {
        self.timers.read(now, ORIGIN) - self.slept
    }

    /// Timestamp that the machine gives a packet.
    pub fn stamp(&mut self, now: Timestamp) -> Timestamp {
        let late = uniform(&mut self.random, self.timestamp_jitter);
        self.clock.read(now + late, ORIGIN) - self.slept
    }

    /// Time at which its timers read `time`, at the earliest `now`.
    pub fn when(&self, now: Timestamp, time: Timestamp) -> Timestamp {
        if time == Timestamp::MAX {
            return time;
        }
        now + self.timers.wait(now, time.saturating_since(self.time(now)))
    }

    /// Whether messages leave at once.
    pub fn is_prompt(&self) -> bool {
        self.report_jitter.is_zero()
    }

    /// Delays a message; later ones may overtake it.
    pub fn delay(&mut self, now: Timestamp, message: &[u8]) {
        let at = now + uniform(&mut self.random, self.report_jitter);
        let place = self.late.partition_point(|(other, _)| *other <= at);
        self.late.insert(place, (at, message.to_vec()));
    }

    /// Replaces `out` by the next late message that is due.
    pub fn poll(&mut self, now: Timestamp, out: &mut Vec<u8>) -> bool {
        let Some((_, message)) = self.late.pop_front_if(|(at, _)| *at <= now) else { return false };
        *out = message;
        true
    }

    /// When the next late message is due.
    pub fn next_message(&self) -> Timestamp {
        self.late.front().map_or(Timestamp::MAX, |(at, _)| *at)
    }

    /// Whether the machine sleeps.
    pub fn is_asleep(&self) -> bool {
        self.asleep_since.is_some()
    }

    /// The machine falls asleep: its clock stands still.
    pub fn sleep(&mut self, now: Timestamp) {
        self.asleep_since.get_or_insert(now);
    }

    /// The machine wakes up.
    pub fn wake(&mut self, now: Timestamp) {
        if let Some(since) = self.asleep_since.take() {
            self.slept += now.saturating_since(since);
        }
    }
}

/// A uniform duration from zero to `max`; zero draws nothing from `random`.
fn uniform(random: &mut Stream, max: Duration) -> Duration {
    if max.is_zero() { max } else { max.mul_f64(random.unit()) }
}
