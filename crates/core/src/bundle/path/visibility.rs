//! The share of the traffic that the receivebox does not see, and whether congestion causes it.
//!
//! Packets may die on the way, bypass the receivebox, or not be counted by it. They are missing like lost
//! ones, but a lower rate does not bring them back. A loop that took them for congestion would lower its
//! rate to the floor and stay there. So the sendbox tests persistent loss, once:
//!
//! ```text
//! rate         S ───────┐  θ S   ┌─── as before, if the missing share is unseen
//!                       └────────┘
//! seen share   p before    p' under the test
//!   congestion: the path carries p S at any send rate      p' = min(1, p / θ)
//!   unseen:     the same share is missing at any send rate p' = p
//! ```
//! This holds for a bundle that is alone. Cross traffic takes the capacity that a lower rate leaves free,
//! and keeps the buffer full. Then the share stays missing, and boundaries meet a queue. So only the part
//! of the test in which no boundary meets a queue can prove that packets are unseen. A test with too
//! little of that part has found congestion.
//!
//! Congestion has a queue. If the share returns and there was no queue, a lower rate relieves one class
//! first: the last of a strict priority, or a policer's. No rate is right then, and the bundle becomes unshaped.
//!
//! Until the test the rate stays where it was, unless a queue explains the loss. Loss never lowers the
//! rate below the arrival rate of the last 5 s. The bundle becomes unshaped if the share
//! changes again and again or cannot be tested. It also becomes unshaped if a test found congestion, but loss
//! without a queue persists at a rate that the path has exceeded before.
//!
//! The unseen share counts as arrived along with the seen one, and leaves no trace in the controller. An
//! estimate that is too high only hides loss, because arrival rates rest on when boundaries arrive. So it
//! falls slowly.

mod alarm;
mod stretch;

use alloc::vec::Vec;

use crate::bundle::tuning::Tuning;
use crate::cc::estimators::SlidingMax;
use crate::units::{Duration, Rate, Timestamp};

pub use self::alarm::Alarm;
pub use self::stretch::Totals;
use self::stretch::{Mark, Stretch};
use super::MSS;

/// A full packet (bytes), for the statistical noise of a share.
const PACKET_BYTES: f64 = MSS.as_u64() as f64;

/// The result of a test about the share that was missing before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// The share is still missing.
    Unseen,
    /// The share has returned, and there was a queue.
    Congestion,
    /// The share has returned, and there was no queue.
    Unexplained,
}

#[derive(Clone, Copy, Debug, Default)]
enum TestPhase {
    #[default]
    Watching,
    Testing {
        before: Stretch,
        rate: Rate,
        since: Timestamp,
        start: Option<Mark>,
        /// Since when no boundary has met a queue.
        clear: Option<Mark>,
        /// Boundaries have met a queue, before the test or during it.
        was_queued: bool,
    },
    Resting {
        until: Timestamp,
        after_congestion: bool,
    },
}

/// The shares that the receivebox sees and misses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Share of the bytes sent that the receivebox does not see at any rate (0 to 1).
    pub unseen: f64,
    /// Share of the remaining bytes that was missing recently; 0 if too small to count.
    pub missing: f64,
}

/// Consequences of a match for control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisibilityVerdict {
    /// More is unseen than was known: control has learnt from too few bytes.
    Unseen,
    /// The seen share keeps changing by itself, or cannot be tested: the bundle is unshaped for now.
    Unsteady,
}

/// The control loop at a match.
#[derive(Clone, Copy, Debug)]
pub struct Loop {
    /// Time from departure to report.
    pub time: Duration,
    /// Composed round trip of the boundary, and the recent minimum.
    pub rtt: Duration,
    /// See `rtt`.
    pub least_rtt: Duration,
    /// A rate is enforced.
    pub is_shaped: bool,
    /// A rate can be enforced; otherwise no test is possible.
    pub is_testable: bool,
    /// The lowest rate that is ever enforced.
    pub min_rate: Rate,
}

impl Loop {
    /// Whether boundaries with this mean round trip have met a queue that may lose packets.
    fn is_queued(&self, tuning: &Tuning, mean_rtt_s: f64) -> bool {
        mean_rtt_s - self.least_rtt.as_secs_f64()
            > tuning.unseen_queued.max(self.least_rtt / 4).as_secs_f64()
    }
}

/// Watches the share that the receivebox sees.
#[derive(Clone, Debug, Default)]
pub struct Visibility {
    unseen: f64,
    /// Share missing in the last round beyond `unseen`; 0 if too small to count.
    excess: f64,
    excess_at: Option<Timestamp>,
    is_queued: bool,
    /// Bytes per second sent in the last round without an excess, or in a later one.
    calm_bytes_per_s: f64,
    phase: TestPhase,
    last: Option<Totals>,
    /// Sum of the round trips of all matches.
    rtts_s: f64,
    matches: u64,
    round: Option<Mark>,
    /// The last rounds, as many as `persistent`, and the index of the oldest.
    rounds: Vec<Stretch>,
    oldest: usize,
    evidence: f64,
    /// Bytes per second that arrived in a round, including the known unseen share.
    carried: SlidingMax,
    /// Rounds in a row in which more arrived than was sent.
    foreign_rounds: u32,
    foreign_at: Option<Timestamp>,
    rest: Duration,
    findings: u32,
    found_at: Option<Timestamp>,
    /// The bundle became unshaped a short while ago: a single further finding suffices.
    unsteady_until: Option<Timestamp>,
}

impl Visibility {
    /// Takes a boundary matched in order.
    pub fn on_match(
        &mut self,
        tuning: &Tuning,
        now: Timestamp,
        totals: Totals,
        around: &Loop,
    ) -> Option<VisibilityVerdict> {
        self.rtts_s += around.rtt.as_secs_f64();
        self.matches += 1;
        let mark = Mark { totals, rtts_s: self.rtts_s, matches: self.matches };
        if self.last.replace(totals).is_some_and(|last| totals.received < last.received) {
            self.forget_receivebox();
        }
        if let Some(round) = self.round_until(tuning, &mark, around.time)
            && let Some(verdict) = self.on_round(tuning, now, round, around)
        {
            return Some(verdict);
        }
        let TestPhase::Testing { before, since, start, clear, was_queued, .. } = &mut self.phase
        else {
            return None;
        };
        // Packets that left as the test began met a queue that was already full.
        if totals.sent_at < *since + around.time / 4 {
            return None;
        }
        let start = *start.get_or_insert(mark);
        if around.is_queued(tuning, around.rtt.as_secs_f64()) {
            (*clear, *was_queued) = (None, true);
        } else {
            clear.get_or_insert(mark);
        }
        let (before, under) = (*before, Stretch::between(&start, &mark));
        let clear = clear.map(|since| Stretch::between(&since, &mark));
        match self.judge(tuning, &before, &under, &clear.unwrap_or_default(), around)? {
            Finding::Unseen => Some(self.found_unseen(tuning, now, &before, &under)),
            Finding::Unexplained => Some(self.give_up(tuning, now)),
            Finding::Congestion => {
                self.carried.clear();
                let carried = under.received / under.seconds;
                self.carried.push(
                    now.as_secs_f64(),
                    carried / (1.0 - self.unseen),
                    tuning.capacity_time.as_secs_f64(),
                );
                self.rest(tuning, now, true);
                None
            }
        }
    }

    /// Time passes.
    pub fn on_tick(
        &mut self,
        tuning: &Tuning,
        now: Timestamp,
        loop_time: Duration,
    ) -> Option<VisibilityVerdict> {
        if self.excess_at.is_some_and(|at| now.saturating_since(at) > tuning.capacity_time) {
            self.excess = 0.0;
        }
        match self.phase {
            TestPhase::Testing { since, before, was_queued, .. }
                if now.saturating_since(since)
                    > tuning.waited_max.max(loop_time * tuning.waited_count) =>
            {
                if was_queued {
                    self.rest(tuning, now, true);
                    return None;
                }
                let excess = 1.0 - before.seen() / (1.0 - self.unseen);
                if excess > tuning.unseen_hold {
                    return Some(self.give_up(tuning, now));
                }
                self.rest(tuning, now, false);
            }
            TestPhase::Resting { until, .. } if now >= until => self.phase = TestPhase::Watching,
            _ => {}
        }
        None
    }

    /// The round that ends with `mark`, if it is long enough.
    fn round_until(
        &mut self,
        tuning: &Tuning,
        mark: &Mark,
        loop_time: Duration,
    ) -> Option<Stretch> {
        let start = *self.round.get_or_insert(*mark);
        let round = Stretch::between(&start, mark);
        let is_whole = round.seconds >= tuning.reports_time.max(loop_time).as_secs_f64()
            && round.sent >= tuning.share_packets * PACKET_BYTES;
        if !is_whole {
            return None;
        }
        self.round = Some(*mark);
        Some(round)
    }

    fn on_round(
        &mut self,
        tuning: &Tuning,
        now: Timestamp,
        round: Stretch,
        around: &Loop,
    ) -> Option<VisibilityVerdict> {
        let missing = 1.0 - round.seen();
        self.foreign_rounds =
            if missing < -tuning.unseen_excess { self.foreign_rounds + 1 } else { 0 };
        if self.foreign_rounds >= tuning.persistent {
            self.foreign_at = Some(now);
        }
        self.rounds.resize(tuning.persistent as usize, Stretch::default());
        self.rounds[self.oldest] = round;
        self.oldest = (self.oldest + 1) % self.rounds.len();
        let arrived = (round.received / (1.0 - self.unseen)).min(round.sent) / round.seconds;
        self.carried.push(now.as_secs_f64(), arrived, tuning.capacity_time.as_secs_f64());
        let excess = 1.0 - round.seen() / (1.0 - self.unseen);
        let is_excess =
            excess > tuning.unseen_excess.max(tuning.chance_deviations * self.chance(&round));
        self.excess = if is_excess { excess } else { 0.0 };
        self.is_queued = around.is_queued(tuning, round.mean_rtt_s());
        if self.unseen > 0.0 && !is_excess {
            self.unseen += tuning.unseen_gain * (missing.max(0.0) - self.unseen);
            if self.unseen < tuning.unseen_negligible {
                self.unseen = 0.0;
            }
        }
        if !is_excess {
            self.evidence = (self.evidence - tuning.unseen_evidence_decay).max(0.0);
            self.calm_bytes_per_s = round.bytes_per_s();
            return None;
        }
        if self.excess_at.is_none_or(|at| now.saturating_since(at) > tuning.calm) {
            (self.rest, self.unsteady_until) = (Duration::ZERO, None);
        }
        self.excess_at = Some(now);
        self.calm_bytes_per_s = self.calm_bytes_per_s.max(round.bytes_per_s());
        let enough = tuning.unseen_evidence * if around.is_shaped { 1.0 } else { 2.0 };
        self.evidence = (self.evidence + 1.0).min(enough);
        if self.evidence < enough || !around.is_testable {
            return None;
        }
        match self.phase {
            TestPhase::Watching => {}
            TestPhase::Resting { after_congestion: true, .. }
                if !self.is_queued
                    && arrived
                        < (1.0 - tuning.rates_near)
                            * self.carried.value().min(round.bytes_per_s()) =>
            {
                if self.is_unsteady_with(tuning, now) {
                    return Some(self.give_up(tuning, now));
                }
            }
            _ => return None,
        }
        self.test(tuning, now, around)
    }

    /// Begins a test, or gives up if no test is possible.
    fn test(
        &mut self,
        tuning: &Tuning,
        now: Timestamp,
        around: &Loop,
    ) -> Option<VisibilityVerdict> {
        let before = Stretch::sum(&self.rounds);
        let carried = before.seen() / (1.0 - self.unseen);
        let share = (tuning.unseen_test_share * carried).max(tuning.unseen_test_share_min);
        let rate = Rate::from_bytes_per_sec_f64(share * before.bytes_per_s());
        self.evidence = 0.0;
        if around.min_rate.as_bytes_per_sec_f64() > (1.0 - tuning.rates_near) * before.bytes_per_s()
        {
            return around.is_shaped.then(|| self.give_up(tuning, now));
        }
        let (rate, was_queued) =
            (rate.max(around.min_rate), around.is_queued(tuning, before.mean_rtt_s()));
        self.phase =
            TestPhase::Testing { before, rate, since: now, start: None, clear: None, was_queued };
        None
    }

    fn rest(&mut self, tuning: &Tuning, now: Timestamp, after_congestion: bool) {
        self.phase = TestPhase::Resting { until: now + self.next_rest(tuning), after_congestion };
    }

    fn next_rest(&mut self, tuning: &Tuning) -> Duration {
        // Two findings with a rest between them are still counted together.
        self.rest = (self.rest * 2).max(tuning.rest).min(tuning.calm / 2);
        self.rest
    }

    /// Counts a finding. True if the seen share keeps changing by itself.
    fn is_unsteady_with(&mut self, tuning: &Tuning, now: Timestamp) -> bool {
        let is_again = self.found_at.is_some_and(|at| now.saturating_since(at) < tuning.calm);
        self.findings = if is_again { self.findings + 1 } else { 1 };
        self.found_at = Some(now);
        self.findings >= tuning.persistent || self.unsteady_until.is_some()
    }

    /// Gives up control for a while.
    fn give_up(&mut self, tuning: &Tuning, now: Timestamp) -> VisibilityVerdict {
        let until = now + self.next_rest(tuning);
        (self.findings, self.unsteady_until) = (0, Some(until));
        self.phase = TestPhase::Resting { until, after_congestion: false };
        VisibilityVerdict::Unsteady
    }

    /// Standard deviation by chance of a round's seen share, relative to the expected share.
    fn chance(&self, round: &Stretch) -> f64 {
        let packets = round.sent / PACKET_BYTES;
        libm::sqrt(self.unseen / (1.0 - self.unseen) / packets)
    }

    /// The fate of the share that was missing before, or `None` while it is open. `under` holds the
    /// packets that left since the test began, `clear` those since a boundary last met a queue.
    fn judge(
        &self,
        tuning: &Tuning,
        before: &Stretch,
        under: &Stretch,
        clear: &Stretch,
        around: &Loop,
    ) -> Option<Finding> {
        let is_back = |stretch| self.is_back(tuning, before, stretch);
        if is_back(under) != Some(true) && !is_back(clear)? {
            return Some(Finding::Unseen);
        }
        let carried = before.received / before.seconds;
        let rtt_s = before.mean_rtt_s().max(under.mean_rtt_s());
        let queue_s = rtt_s - around.least_rtt.as_secs_f64();
        let least_s = tuning
            .boxes_late
            .as_secs_f64()
            .max(tuning.unseen_congested_packets * PACKET_BYTES / carried);
        // At a shared bottleneck more packets pass than the bundle's.
        let is_congestion = queue_s > least_s || around.is_queued(tuning, rtt_s);
        Some(if is_congestion { Finding::Congestion } else { Finding::Unexplained })
    }

    /// Whether the missing share has returned in a stretch under the test; `None`: too few packets have left.
    fn is_back(&self, tuning: &Tuning, before: &Stretch, under: &Stretch) -> Option<bool> {
        if under.seconds <= 0.0 {
            return None;
        }
        let unseen = before.seen();
        let carried = before.received / before.seconds;
        let congested = (carried / under.bytes_per_s()).min(1.0 - self.unseen);
        let gap = congested - unseen;
        let packets = under.sent / PACKET_BYTES;
        let middle = (congested + unseen) / 2.0;
        let variance = (middle * (1.0 - middle)).max(2.0 * tuning.unseen_negligible);
        let is_told = gap > 0.0
            && packets * gap * gap >= tuning.sure_deviations * tuning.sure_deviations * variance;
        is_told.then(|| under.seen() >= middle)
    }

    fn found_unseen(
        &mut self,
        tuning: &Tuning,
        now: Timestamp,
        before: &Stretch,
        under: &Stretch,
    ) -> VisibilityVerdict {
        // If the share differs between the two rates, take the lesser; a larger one is tested again.
        self.unseen =
            (1.0 - before.seen().max(under.seen())).clamp(0.0, 1.0 - tuning.unseen_negligible);
        self.excess = 0.0;
        self.phase = TestPhase::Watching;
        self.round = None;
        if self.is_unsteady_with(tuning, now) {
            self.give_up(tuning, now)
        } else {
            VisibilityVerdict::Unseen
        }
    }

    /// The receivebox restarts its counters.
    pub fn forget_receivebox(&mut self) {
        (self.last, self.round, self.excess, self.evidence) = (None, None, 0.0, 0.0);
        if let TestPhase::Testing { .. } = self.phase {
            self.phase = TestPhase::Watching;
        }
    }

    /// The rate to enforce, given the rate that control requested (`None`: unshaped): a test or missing
    /// packets may change it.
    pub fn bound(&self, tuning: &Tuning, rate: Option<Rate>) -> Option<Rate> {
        match self.phase {
            TestPhase::Testing { rate, .. } => Some(rate),
            _ if self.excess > if self.is_queued { tuning.unseen_hold } else { 0.0 } => {
                let held = Rate::from_bytes_per_sec_f64(self.held_bytes_per_s(tuning));
                rate.map(|rate| rate.max(held))
            }
            _ => rate,
        }
    }

    /// The lowest rate while packets are missing.
    fn held_bytes_per_s(&self, tuning: &Tuning) -> f64 {
        let share = match self.phase {
            TestPhase::Watching if !self.is_queued || self.excess > tuning.unseen_lost => 1.0,
            TestPhase::Watching => tuning.unseen_test_share_min,
            _ => 0.0,
        };
        self.carried.value().max(share * self.calm_bytes_per_s)
    }

    /// The shares that the receivebox sees and misses.
    pub const fn seen(&self) -> Seen {
        Seen { unseen: self.unseen, missing: self.missing() }
    }

    /// Share of the bytes sent that the receivebox does not see at any rate (0 to 1).
    pub const fn unseen(&self) -> f64 {
        self.unseen
    }

    /// Share of the visible bytes that was missing recently; 0 if too small to count.
    const fn missing(&self) -> f64 {
        let is_congestion = matches!(self.phase, TestPhase::Resting { after_congestion: true, .. });
        if self.is_queued || is_congestion || self.unseen == 0.0 { self.excess } else { 0.0 }
    }

    /// The alarm for the operator; a sign stays for `feedback_memory`, long enough to be read.
    pub fn alarm(&self, tuning: &Tuning, now: Timestamp) -> Option<Alarm> {
        let memory = tuning.feedback_memory;
        if self.unsteady_until.is_some_and(|until| now < until + memory) {
            return Some(Alarm::Unsteady);
        }
        let is_foreign = self.foreign_at.is_some_and(|at| now.saturating_since(at) < memory);
        let foreign = is_foreign.then_some(Alarm::Foreign);
        foreign.or((self.unseen > 0.0).then_some(Alarm::Unseen))
    }

    /// The seen share changes by itself: nothing can be learnt from it at present.
    pub fn is_unsteady(&self, now: Timestamp) -> bool {
        self.unsteady_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests;
