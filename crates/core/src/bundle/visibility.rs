//! What share of the traffic the receivebox does not see, and whether that is congestion.
//!
//! Packets that die on the way, that take another way than past the receivebox or that it does not
//! count are missing like lost ones, but a lower rate does not bring them back: a loop that took
//! them for congestion would lower its rate to the floor and stay there. So loss that lasts is put to
//! the test, once:
//!
//! ```text
//! rate         S ───────┐  θ S   ┌─── as before, if what was missing is unseen
//!                       └────────┘
//! seen share   p before    p' under the test
//!   congestion: the path carries p S whatever is sent      p' = min(1, p / θ)
//!   unseen:     a share of whatever is sent is missing     p' = p
//! ```
//! That holds of a bundle that is alone. Traffic outside it takes what a lower rate leaves free, and keeps the buffer full:
//! then the share stays missing, and boundaries meet a queue. So under the test only what leaves while none does shows
//! that something is unseen, and a test without enough of that has found congestion.
//!
//! Congestion has a queue. Where the share comes back and there was none, what was missing is a class that
//! the lower rate takes away first, behind the others of a strict priority, or a policer's: no rate is right
//! for that, and control is given up.
//!
//! Until the test the rate is held where it was, unless a queue explains the loss, and is never lowered for loss
//! below what has arrived within 5 s. A share that changes again and again, a share that cannot be tested, and loss
//! that congestion was found to explain but that stays, without a queue, where the path has carried more leave the bundle unshaped.
//!
//! What is found to be unseen counts as arrived with what is seen, and leaves no trace in the law. An estimate that
//! is too high hides loss and nothing else, for arrival rates rest on when boundaries arrive; so it falls slowly.

mod alarm;
mod stretch;

use crate::cc::estimators::SlidingMax;
use crate::units::{Duration, Rate, Timestamp};

pub use self::alarm::Alarm;
pub use self::stretch::Totals;
use self::stretch::{Mark, Stretch};

/// Least time of a round, in which a share is measured; a loop time at least.
const ROUND_MIN: Duration = Duration::from_millis(100);
/// Bytes sent in a round at least: 20 full packets.
const ROUND_BYTES: f64 = 20.0 * PACKET_BYTES;
/// A full packet, for what chance makes of a share.
const PACKET_BYTES: f64 = 1514.0;
/// Missing beyond what is known to be unseen that is put to the test, and the same of bytes too many.
const EXCESS: f64 = 0.04;
/// Rounds before a test that it is compared with, and rounds in a row that show too many bytes.
const ROUNDS: usize = 3;
/// Evidence that is put to the test: a round with an excess adds 1, one without takes half of that
/// away. So pulses add up, too.
const EVIDENCE: f64 = 4.0;
const EVIDENCE_DECAY: f64 = 0.5;
/// Evidence needed while no rate is enforced: what a slow start overshoots by is lost in fewer rounds.
const EVIDENCE_UNSHAPED: f64 = 8.0;
/// Rate of the test over what the path would carry if it were congested, and over the rate before.
const TEST_SHARE: f64 = 0.8;
const TEST_SHARE_MIN: f64 = 0.7;
/// A rate that cannot be lowered to this share of itself cannot be tested.
const TESTABLE: f64 = 0.9;
/// Missing share from which on the rate is held at the most that has arrived within [`CARRIED_TIME`]: the
/// path carries that, whatever is missing now. Without a queue any excess holds it: until it is known
/// what is missing, what is there must not pay for it. Nor is there a test of a loop at its floor: where
/// there is no queue, or more is missing than this, the rate stays until the test begins.
const HOLD_EXCESS: f64 = 0.2;
const HOLD_ALL_EXCESS: f64 = 0.6;
const CARRIED_TIME: Duration = Duration::from_secs(5);
/// A shorter queueing delay, or one of less than a quarter of the round trip, is no queue that loses.
const QUEUED_MIN: Duration = Duration::from_millis(5);
/// Congestion does not explain that less arrives than this share of what is sent and has arrived of late.
const EXPLAINED: f64 = 0.9;
/// Standard deviations between the two outcomes when the test is judged.
const DEVIATIONS: f64 = 4.0;
/// A mean queue of more packets than this, at the rate that the path has carried, and of more time is
/// congestion's: a buffer that loses so much is nearly full, and small packets make a least round trip
/// shorter by one.
const CONGESTED_PACKETS: f64 = 3.0;
const CONGESTED_MIN: Duration = Duration::from_micros(250);
/// A test that cannot be judged ends after so long, and so many loop times.
const TEST_MAX: Duration = Duration::from_secs(2);
const TEST_LOOPS_MAX: u32 = 10;
/// Rest after a test, and time without control; both double each time up to the longest, and begin
/// anew after [`CALM_TIME`] without an excess.
const REST: Duration = Duration::from_secs(5);
const REST_MAX: Duration = Duration::from_secs(20);
const CALM_TIME: Duration = Duration::from_secs(60);
/// Findings within [`UNSTEADY_TIME`] that more is unseen, or that congestion explains nothing, after
/// which control is given up.
const UNSTEADY_FINDINGS: u32 = 3;
const UNSTEADY_TIME: Duration = Duration::from_secs(30);
/// Standard deviations of chance that an excess must be above.
const CHANCE_DEVIATIONS: f64 = 3.0;
/// How much of the difference to what it shows a round takes over.
const GAIN: f64 = 0.05;
/// A smaller share is none.
const NEGLIGIBLE: f64 = 0.01;
/// An alarm stands for so long after its last sign.
const ALARM_TIME: Duration = Duration::from_secs(10);

/// What a test shows of what was missing before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// The share is missing still.
    Unseen,
    /// The share is back, and there was a queue.
    Congestion,
    /// The share is back, and there was no queue.
    Unexplained,
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    #[default]
    Watching,
    Testing {
        before: Stretch,
        rate: Rate,
        since: Timestamp,
        start: Option<Mark>,
        /// Since when no boundary has met a queue.
        clear: Option<Mark>,
        /// Boundaries have met a queue, before or since.
        was_queued: bool,
    },
    Resting {
        until: Timestamp,
        after_congestion: bool,
    },
}

/// What a match may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// More is unseen than was known: what control has learnt rests on too little.
    Unseen,
    /// What is seen changes by itself again and again, or cannot be tested: control is given up for now.
    Unsteady,
}

/// The loop around it, at a match.
#[derive(Clone, Copy, Debug)]
pub struct Loop {
    /// From departure to report.
    pub time: Duration,
    /// Composed round trip of the boundary, and the least of late.
    pub rtt: Duration,
    /// See `rtt`.
    pub least_rtt: Duration,
    /// A rate is enforced.
    pub is_shaped: bool,
    /// One can be, without which nothing can be tested.
    pub is_testable: bool,
    /// No lower rate is ever enforced.
    pub min_rate: Rate,
}

impl Loop {
    /// Boundaries whose round trips have this mean have met a queue that may lose.
    fn is_queued(&self, mean_rtt_s: f64) -> bool {
        mean_rtt_s - self.least_rtt.as_secs_f64() > QUEUED_MIN.max(self.least_rtt / 4).as_secs_f64()
    }
}

/// Watches the share that the receivebox sees.
#[derive(Clone, Debug, Default)]
pub struct Visibility {
    unseen: f64,
    /// Missing beyond it in the last round, 0 where it is too little to count.
    excess: f64,
    excess_at: Option<Timestamp>,
    is_queued: bool,
    /// Bytes per second sent in the last round without an excess, or in one since.
    calm_bytes_per_s: f64,
    phase: Phase,
    last: Option<Totals>,
    /// Of all matches.
    rtts_s: f64,
    matches: u64,
    round: Option<Mark>,
    /// The last rounds, and which of them is the oldest.
    rounds: [Stretch; ROUNDS],
    oldest: usize,
    evidence: f64,
    /// Bytes per second that arrived in a round, what is known to be unseen included.
    carried: SlidingMax,
    /// Rounds in a row in which more arrived than was sent.
    foreign_rounds: usize,
    foreign_at: Option<Timestamp>,
    rest: Duration,
    findings: u32,
    found_at: Option<Timestamp>,
    /// Control was given up a short while ago: one finding more will do.
    unsteady_until: Option<Timestamp>,
}

impl Visibility {
    /// Takes a boundary matched in order.
    pub fn on_match(&mut self, now: Timestamp, totals: Totals, around: &Loop) -> Option<Verdict> {
        self.rtts_s += around.rtt.as_secs_f64();
        self.matches += 1;
        let mark = Mark { totals, rtts_s: self.rtts_s, matches: self.matches };
        if self.last.replace(totals).is_some_and(|last| totals.received < last.received) {
            self.forget_receivebox();
        }
        if let Some(round) = self.round_until(&mark, around.time)
            && let Some(verdict) = self.on_round(now, round, around)
        {
            return Some(verdict);
        }
        let Phase::Testing { before, since, start, clear, was_queued, .. } = &mut self.phase else {
            return None;
        };
        // What left as the test began met a queue that was full before.
        if totals.sent_at < *since + around.time / 4 {
            return None;
        }
        let start = *start.get_or_insert(mark);
        if around.is_queued(around.rtt.as_secs_f64()) {
            (*clear, *was_queued) = (None, true);
        } else {
            clear.get_or_insert(mark);
        }
        let (before, under) = (*before, Stretch::between(&start, &mark));
        let clear = clear.map(|since| Stretch::between(&since, &mark));
        match self.judge(&before, &under, &clear.unwrap_or_default(), around)? {
            Finding::Unseen => Some(self.found_unseen(now, &before, &under)),
            Finding::Unexplained => Some(self.give_up(now)),
            Finding::Congestion => {
                self.carried.clear();
                let carried = under.received / under.seconds;
                self.carried.push(
                    now.as_secs_f64(),
                    carried / (1.0 - self.unseen),
                    CARRIED_TIME.as_secs_f64(),
                );
                self.rest(now, true);
                None
            }
        }
    }

    /// Time passes.
    pub fn on_tick(&mut self, now: Timestamp, loop_time: Duration) -> Option<Verdict> {
        if self.excess_at.is_some_and(|at| now.saturating_since(at) > CARRIED_TIME) {
            self.excess = 0.0;
        }
        match self.phase {
            Phase::Testing { since, before, was_queued, .. }
                if now.saturating_since(since) > TEST_MAX.max(loop_time * TEST_LOOPS_MAX) =>
            {
                if was_queued {
                    self.rest(now, true);
                    return None;
                }
                let excess = 1.0 - before.seen() / (1.0 - self.unseen);
                if excess > HOLD_EXCESS {
                    return Some(self.give_up(now));
                }
                self.rest(now, false);
            }
            Phase::Resting { until, .. } if now >= until => self.phase = Phase::Watching,
            _ => {}
        }
        None
    }

    /// The round that ends with `mark`, if it is long enough.
    fn round_until(&mut self, mark: &Mark, loop_time: Duration) -> Option<Stretch> {
        let start = *self.round.get_or_insert(*mark);
        let round = Stretch::between(&start, mark);
        let is_whole =
            round.seconds >= ROUND_MIN.max(loop_time).as_secs_f64() && round.sent >= ROUND_BYTES;
        if !is_whole {
            return None;
        }
        self.round = Some(*mark);
        Some(round)
    }

    fn on_round(&mut self, now: Timestamp, round: Stretch, around: &Loop) -> Option<Verdict> {
        let missing = 1.0 - round.seen();
        self.foreign_rounds = if missing < -EXCESS { self.foreign_rounds + 1 } else { 0 };
        if self.foreign_rounds >= ROUNDS {
            self.foreign_at = Some(now);
        }
        self.rounds[self.oldest] = round;
        self.oldest = (self.oldest + 1) % ROUNDS;
        let arrived = (round.received / (1.0 - self.unseen)).min(round.sent) / round.seconds;
        self.carried.push(now.as_secs_f64(), arrived, CARRIED_TIME.as_secs_f64());
        let excess = 1.0 - round.seen() / (1.0 - self.unseen);
        let is_excess = excess > EXCESS.max(CHANCE_DEVIATIONS * self.chance(&round));
        self.excess = if is_excess { excess } else { 0.0 };
        self.is_queued = around.is_queued(round.mean_rtt_s());
        if self.unseen > 0.0 && !is_excess {
            self.unseen += GAIN * (missing.max(0.0) - self.unseen);
            if self.unseen < NEGLIGIBLE {
                self.unseen = 0.0;
            }
        }
        if !is_excess {
            self.evidence = (self.evidence - EVIDENCE_DECAY).max(0.0);
            self.calm_bytes_per_s = round.bytes_per_s();
            return None;
        }
        if self.excess_at.is_none_or(|at| now.saturating_since(at) > CALM_TIME) {
            (self.rest, self.unsteady_until) = (Duration::ZERO, None);
        }
        self.excess_at = Some(now);
        self.calm_bytes_per_s = self.calm_bytes_per_s.max(round.bytes_per_s());
        let enough = if around.is_shaped { EVIDENCE } else { EVIDENCE_UNSHAPED };
        self.evidence = (self.evidence + 1.0).min(enough);
        if self.evidence < enough || !around.is_testable {
            return None;
        }
        match self.phase {
            Phase::Watching => {}
            Phase::Resting { after_congestion: true, .. }
                if !self.is_queued
                    && arrived < EXPLAINED * self.carried.value().min(round.bytes_per_s()) =>
            {
                if self.is_unsteady_with(now) {
                    return Some(self.give_up(now));
                }
            }
            _ => return None,
        }
        self.test(now, around)
    }

    /// Begins a test, or gives up where none can be made.
    fn test(&mut self, now: Timestamp, around: &Loop) -> Option<Verdict> {
        let before = Stretch::sum(&self.rounds);
        let carried = before.seen() / (1.0 - self.unseen);
        let share = (TEST_SHARE * carried).max(TEST_SHARE_MIN);
        let rate = Rate::from_bytes_per_sec_f64(share * before.bytes_per_s());
        self.evidence = 0.0;
        if around.min_rate.as_bytes_per_sec_f64() > TESTABLE * before.bytes_per_s() {
            return around.is_shaped.then(|| self.give_up(now));
        }
        let (rate, was_queued) = (rate.max(around.min_rate), around.is_queued(before.mean_rtt_s()));
        self.phase =
            Phase::Testing { before, rate, since: now, start: None, clear: None, was_queued };
        None
    }

    fn rest(&mut self, now: Timestamp, after_congestion: bool) {
        self.phase = Phase::Resting { until: now + self.next_rest(), after_congestion };
    }

    fn next_rest(&mut self) -> Duration {
        self.rest = (self.rest * 2).clamp(REST, REST_MAX);
        self.rest
    }

    /// Counts a finding; whether what is seen changes by itself again and again.
    fn is_unsteady_with(&mut self, now: Timestamp) -> bool {
        let is_again = self.found_at.is_some_and(|at| now.saturating_since(at) < UNSTEADY_TIME);
        self.findings = if is_again { self.findings + 1 } else { 1 };
        self.found_at = Some(now);
        self.findings >= UNSTEADY_FINDINGS || self.unsteady_until.is_some()
    }

    /// Control is given up for a while.
    fn give_up(&mut self, now: Timestamp) -> Verdict {
        let until = now + self.next_rest();
        (self.findings, self.unsteady_until) = (0, Some(until));
        self.phase = Phase::Resting { until, after_congestion: false };
        Verdict::Unsteady
    }

    /// Standard deviation of a round's seen share over the one expected, by chance alone.
    fn chance(&self, round: &Stretch) -> f64 {
        let packets = round.sent / PACKET_BYTES;
        libm::sqrt(self.unseen / (1.0 - self.unseen) / packets)
    }

    /// What became of what was missing before, or `None` while that cannot be told: by what has left since the test
    /// began (`under`), and since a boundary has last met a queue (`clear`).
    fn judge(
        &self,
        before: &Stretch,
        under: &Stretch,
        clear: &Stretch,
        around: &Loop,
    ) -> Option<Finding> {
        let is_back = |stretch| self.is_back(before, stretch);
        if is_back(under) != Some(true) && !is_back(clear)? {
            return Some(Finding::Unseen);
        }
        let carried = before.received / before.seconds;
        let rtt_s = before.mean_rtt_s().max(under.mean_rtt_s());
        let queue_s = rtt_s - around.least_rtt.as_secs_f64();
        let least_s = CONGESTED_MIN.as_secs_f64().max(CONGESTED_PACKETS * PACKET_BYTES / carried);
        // At a bottleneck that others share more packets pass than the bundle's.
        let is_congestion = queue_s > least_s || around.is_queued(rtt_s);
        Some(if is_congestion { Finding::Congestion } else { Finding::Unexplained })
    }

    /// Whether what was missing before has come back in a stretch under the test; `None`: too little has left to tell.
    fn is_back(&self, before: &Stretch, under: &Stretch) -> Option<bool> {
        if under.seconds <= 0.0 {
            return None;
        }
        let unseen = before.seen();
        let carried = before.received / before.seconds;
        let congested = (carried / under.bytes_per_s()).min(1.0 - self.unseen);
        let gap = congested - unseen;
        let packets = under.sent / PACKET_BYTES;
        let middle = (congested + unseen) / 2.0;
        let variance = (middle * (1.0 - middle)).max(0.02);
        let is_told = gap > 0.0 && packets * gap * gap >= DEVIATIONS * DEVIATIONS * variance;
        is_told.then(|| under.seen() >= middle)
    }

    fn found_unseen(&mut self, now: Timestamp, before: &Stretch, under: &Stretch) -> Verdict {
        // Of a share that is not the same at both rates, the lesser: more is tested again.
        self.unseen = (1.0 - before.seen().max(under.seen())).clamp(0.0, 0.99);
        self.excess = 0.0;
        self.phase = Phase::Watching;
        self.round = None;
        if self.is_unsteady_with(now) { self.give_up(now) } else { Verdict::Unseen }
    }

    /// The receivebox counts anew.
    pub fn forget_receivebox(&mut self) {
        (self.last, self.round, self.excess, self.evidence) = (None, None, 0.0, 0.0);
        if let Phase::Testing { .. } = self.phase {
            self.phase = Phase::Watching;
        }
    }

    /// The rate that is wanted for what there is to find out, of the one that control asks for (`None`:
    /// unshaped).
    pub fn bound(&self, rate: Option<Rate>) -> Option<Rate> {
        match self.phase {
            Phase::Testing { rate, .. } => Some(rate),
            _ if self.excess > if self.is_queued { HOLD_EXCESS } else { 0.0 } => {
                let held = Rate::from_bytes_per_sec_f64(self.held_bytes_per_s());
                rate.map(|rate| rate.max(held))
            }
            _ => rate,
        }
    }

    /// The rate at the least while something is missing.
    fn held_bytes_per_s(&self) -> f64 {
        let share = match self.phase {
            Phase::Watching if !self.is_queued || self.excess > HOLD_ALL_EXCESS => 1.0,
            Phase::Watching => TEST_SHARE_MIN,
            _ => 0.0,
        };
        self.carried.value().max(share * self.calm_bytes_per_s)
    }

    /// Share of the bytes sent that the receivebox does not see, whatever the rate (0 to 1).
    pub const fn unseen(&self) -> f64 {
        self.unseen
    }

    /// Share of what can be seen that was missing of late, 0 where it is too little to count.
    pub const fn missing(&self) -> f64 {
        let is_congestion = matches!(self.phase, Phase::Resting { after_congestion: true, .. });
        if self.is_queued || is_congestion || self.unseen == 0.0 { self.excess } else { 0.0 }
    }

    /// What an operator should look into.
    pub fn alarm(&self, now: Timestamp) -> Option<Alarm> {
        if self.unsteady_until.is_some_and(|until| now < until + ALARM_TIME) {
            return Some(Alarm::Unsteady);
        }
        let is_foreign = self.foreign_at.is_some_and(|at| now.saturating_since(at) < ALARM_TIME);
        let foreign = is_foreign.then_some(Alarm::Foreign);
        foreign.or((self.unseen > 0.0).then_some(Alarm::Unseen))
    }

    /// What is seen changes by itself: nothing can be learnt of it for now.
    pub fn is_unsteady(&self, now: Timestamp) -> bool {
        self.unsteady_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests;
