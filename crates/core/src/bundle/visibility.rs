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
//! What is found to be unseen counts as arrived with what is seen. An estimate that is too high hides
//! loss and nothing else, for arrival rates rest on when boundaries arrive; so it falls slowly.

use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Least time of a round, in which a share is measured; a loop time at least.
const ROUND_MIN: Duration = Duration::from_millis(100);
/// Bytes sent in a round at least: 20 full packets.
const ROUND_BYTES: f64 = 20.0 * PACKET_BYTES;
/// A full packet, for what chance makes of a share.
const PACKET_BYTES: f64 = 1514.0;
/// Missing beyond what is known to be unseen that is put to the test, and the same of bytes too many.
const EXCESS: f64 = 0.04;
/// Rounds in a row that show it.
const ROUNDS: u32 = 2;
/// Rate of the test over what the path would carry if it were congested, and over the rate before.
const TEST_SHARE: f64 = 0.8;
const TEST_SHARE_MIN: f64 = 0.5;
/// Missing share from which on the rate is held until the test, at [`TEST_SHARE_MIN`] at least, though
/// there is a queue. Without one, any excess holds it where it was: until it is known what is missing,
/// what is there must not pay for it.
const HOLD_EXCESS: f64 = 0.3;
/// Standard deviations between the two outcomes when the test is judged.
const DEVIATIONS: f64 = 4.0;
/// A test that cannot be judged ends after so long, and so many loop times.
const TEST_MAX: Duration = Duration::from_secs(2);
const TEST_LOOPS_MAX: u32 = 10;
/// Rest after a test that has found congestion or nothing; doubled each time up to the longest.
const REST: Duration = Duration::from_secs(5);
const REST_MAX: Duration = Duration::from_secs(80);
/// Tests that found more unseen within [`UNSTEADY_TIME`] after which control is given up for a rest.
const UNSTEADY_TESTS: u32 = 3;
const UNSTEADY_TIME: Duration = Duration::from_secs(30);
/// The same beyond what chance makes of it.
const CHANCE_DEVIATIONS: f64 = 3.0;
/// How much of the difference to what it shows a round takes over, ...
const GAIN: f64 = 0.05;
/// ... unless it shows less of the unseen share than this and chance explain: then only after so long.
/// What comes and goes, as by somebody's will, is found once.
const SHOWN_SHARE: f64 = 0.75;
const SHOWN_TIME: Duration = Duration::from_secs(20);
/// A smaller share is none.
const NEGLIGIBLE: f64 = 0.01;

/// Totals at a boundary that was matched.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    /// When it left.
    pub sent_at: Timestamp,
    /// Bytes sent since the start.
    pub sent: ByteCount,
    /// Bytes that the receivebox had counted.
    pub received: ByteCount,
}

/// A stretch of the traffic between two boundaries.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    seconds: f64,
    sent: f64,
    received: f64,
}

impl Stretch {
    fn between(start: &Totals, end: &Totals) -> Self {
        Self {
            seconds: end.sent_at.saturating_since(start.sent_at).as_secs_f64(),
            sent: end.sent.saturating_sub(start.sent).as_f64(),
            received: end.received.saturating_sub(start.received).as_f64(),
        }
    }

    fn seen(&self) -> f64 {
        if self.sent > 0.0 { self.received / self.sent } else { 1.0 }
    }

    fn bytes_per_s(&self) -> f64 {
        if self.seconds > 0.0 { self.sent / self.seconds } else { 0.0 }
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Watching,
    Testing { before: Stretch, since: Timestamp, start: Option<Totals> },
    Resting { until: Timestamp },
}

/// What a match may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// More is unseen than was known: what control has learnt rests on too little.
    Unseen,
    /// What is seen changes by itself again and again: control is given up for now.
    Unsteady,
}

/// What an operator should look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// A part of what leaves is not seen to arrive, whatever the rate.
    Unseen,
    /// What is seen to arrive changes by itself.
    Unsteady,
    /// More arrives in the bundle's name than leaves.
    Foreign,
}

impl Alarm {
    /// What is found, for people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Unseen => {
                "a part of what leaves never comes to the receivebox, at whatever rate: it dies on \
                 the way, takes another way, or the boxes' prefixes differ"
            }
            Self::Unsteady => "the share of what comes to the receivebox changes by itself",
            Self::Foreign => {
                "more comes to the receivebox in the bundle's name than leaves: it is forged, or \
                 passes the sendbox by"
            }
        }
    }
}

/// Watches the share that the receivebox sees.
#[derive(Clone, Debug)]
pub struct Visibility {
    unseen: f64,
    /// When a round last showed it.
    shown_at: Timestamp,
    /// Missing beyond it in the last round, 0 where it is too little to count.
    excess: f64,
    phase: Phase,
    last: Option<Totals>,
    round: Option<Totals>,
    /// Where the rounds in a row began that show an excess, and how many they are.
    excess_since: Option<Totals>,
    excess_rounds: u32,
    /// What went before the last test, which found no unseen share. The rate falls on, and if what is
    /// missing stays missing without a queue all the same, chance has spoken in the test.
    doubted: Option<Stretch>,
    /// Least rate until a test begins: a loop at its floor could not be tested.
    held: Option<Rate>,
    /// Bytes per second sent in the last round without an excess.
    calm_bytes_per_s: f64,
    /// Rounds in a row in which more arrived than was sent.
    foreign_rounds: u32,
    rest: Duration,
    found_at: Option<Timestamp>,
    found: u32,
    unsteady_until: Option<Timestamp>,
}

impl Default for Visibility {
    fn default() -> Self {
        Self {
            unseen: 0.0,
            shown_at: Timestamp::ZERO,
            excess: 0.0,
            phase: Phase::Watching,
            last: None,
            round: None,
            excess_since: None,
            excess_rounds: 0,
            doubted: None,
            held: None,
            calm_bytes_per_s: 0.0,
            foreign_rounds: 0,
            rest: REST,
            found_at: None,
            found: 0,
            unsteady_until: None,
        }
    }
}

impl Visibility {
    /// Takes a boundary matched in order. `is_queued`: it has met a queue; `is_shaped`: a rate is
    /// enforced, without which nothing can be tested.
    pub fn on_match(
        &mut self,
        now: Timestamp,
        totals: Totals,
        loop_time: Duration,
        [is_queued, is_shaped]: [bool; 2],
    ) -> Option<Verdict> {
        if self.last.replace(totals).is_some_and(|last| totals.received < last.received) {
            self.forget_receivebox();
        }
        if let Some(round) = self.round_until(&totals, loop_time) {
            self.on_round(now, totals, round, [is_queued, is_shaped]);
            if let Some((before, start)) = self.doubted.zip(self.excess_since)
                && !is_queued
                && !matches!(self.phase, Phase::Testing { .. })
                && self.judge(&before, &Stretch::between(&start, &totals)) == Some(true)
            {
                return Some(self.found_unseen(now, &before, &start, &totals));
            }
        }
        let Phase::Testing { before, since, start } = self.phase else { return None };
        // What left as the test began met a queue that was full before.
        if totals.sent_at < since + loop_time / 4 {
            return None;
        }
        let Some(start) = start else {
            self.phase = Phase::Testing { before, since, start: Some(totals) };
            return None;
        };
        let verdict = self.judge(&before, &Stretch::between(&start, &totals));
        let is_over = now.saturating_since(since) > TEST_MAX.max(loop_time * TEST_LOOPS_MAX);
        match verdict {
            Some(true) => Some(self.found_unseen(now, &before, &start, &totals)),
            None if !is_over => None,
            _ => {
                self.doubted = Some(before);
                self.phase = Phase::Resting { until: now + self.rest };
                self.rest = (self.rest * 2).min(REST_MAX);
                None
            }
        }
    }

    /// The round that ends with `totals`, if it is long enough.
    fn round_until(&mut self, totals: &Totals, loop_time: Duration) -> Option<Stretch> {
        let start = *self.round.get_or_insert(*totals);
        let round = Stretch::between(&start, totals);
        let is_whole =
            round.seconds >= ROUND_MIN.max(loop_time).as_secs_f64() && round.sent >= ROUND_BYTES;
        if !is_whole {
            return None;
        }
        self.round = Some(*totals);
        Some(round)
    }

    fn on_round(
        &mut self,
        now: Timestamp,
        end: Totals,
        round: Stretch,
        [is_queued, is_shaped]: [bool; 2],
    ) {
        let missing = 1.0 - round.seen();
        self.foreign_rounds = if missing < -EXCESS { self.foreign_rounds + 1 } else { 0 };
        let excess = 1.0 - round.seen() / (1.0 - self.unseen);
        let is_excess = excess > EXCESS.max(CHANCE_DEVIATIONS * self.chance(&round));
        self.excess = if is_excess { excess } else { 0.0 };
        let chance = CHANCE_DEVIATIONS * self.chance(&round) * (1.0 - self.unseen);
        let is_shown = missing >= SHOWN_SHARE * self.unseen - chance;
        if is_shown {
            self.shown_at = now;
        }
        let is_gone = now.saturating_since(self.shown_at) >= SHOWN_TIME;
        if self.unseen > 0.0 && !is_excess && (is_shown || is_gone) {
            self.unseen += GAIN * (missing.max(0.0) - self.unseen);
            if self.unseen < NEGLIGIBLE {
                self.unseen = 0.0;
            }
        }
        if let Phase::Resting { until } = self.phase
            && now >= until
        {
            self.phase = Phase::Watching;
        }
        if !is_excess {
            (self.excess_rounds, self.excess_since, self.held) = (0, None, None);
            (self.doubted, self.calm_bytes_per_s) = (None, round.bytes_per_s());
            return;
        }
        self.excess_rounds += 1;
        let share = match self.excess > HOLD_EXCESS {
            _ if !is_queued => Some(1.0),
            true => Some(TEST_SHARE_MIN),
            false => None,
        };
        self.calm_bytes_per_s = self.calm_bytes_per_s.max(round.bytes_per_s());
        self.held = share.map(|it| Rate::from_bytes_per_sec_f64(it * self.calm_bytes_per_s));
        let Some(start) = self.excess_since else {
            // From its end on: the round itself may have begun before.
            self.excess_since = Some(end);
            return;
        };
        if self.excess_rounds > ROUNDS && is_shaped && matches!(self.phase, Phase::Watching) {
            let before = Stretch::between(&start, &end);
            self.phase = Phase::Testing { before, since: now, start: None };
            (self.excess_rounds, self.excess_since, self.held) = (0, None, None);
        }
    }

    /// Standard deviation of a round's seen share over the one expected, by chance alone.
    fn chance(&self, round: &Stretch) -> f64 {
        let packets = round.sent / PACKET_BYTES;
        libm::sqrt(self.unseen / (1.0 - self.unseen) / packets)
    }

    /// Whether what was missing before is missing still, or `None` while that cannot be told.
    fn judge(&self, before: &Stretch, under: &Stretch) -> Option<bool> {
        let unseen = before.seen();
        let carried = before.received / before.seconds;
        let congested = (carried / under.bytes_per_s()).min(1.0 - self.unseen);
        let gap = congested - unseen;
        let packets = under.sent / PACKET_BYTES;
        let middle = (congested + unseen) / 2.0;
        let variance = (middle * (1.0 - middle)).max(0.02);
        let is_told = gap > 0.0 && packets * gap * gap >= DEVIATIONS * DEVIATIONS * variance;
        is_told.then(|| under.seen() < middle)
    }

    fn found_unseen(
        &mut self,
        now: Timestamp,
        before: &Stretch,
        start: &Totals,
        end: &Totals,
    ) -> Verdict {
        // Of a share that is not the same at both rates, the lesser: more is tested again.
        let under = Stretch::between(start, end);
        self.unseen = (1.0 - before.seen().max(under.seen())).clamp(0.0, 0.99);
        self.shown_at = now;
        self.excess = 0.0;
        self.doubted = None;
        (self.excess_rounds, self.excess_since, self.held) = (0, None, None);
        self.phase = Phase::Watching;
        self.round = None;
        let is_again = self.found_at.is_some_and(|at| now.saturating_since(at) < UNSTEADY_TIME);
        self.found = if is_again { self.found + 1 } else { 1 };
        self.found_at = Some(now);
        if self.found < UNSTEADY_TESTS {
            return Verdict::Unseen;
        }
        self.found = 0;
        self.unsteady_until = Some(now + self.rest);
        self.phase = Phase::Resting { until: now + self.rest };
        self.rest = (self.rest * 2).min(REST_MAX);
        Verdict::Unsteady
    }

    /// The receivebox counts anew.
    pub fn forget_receivebox(&mut self) {
        (self.last, self.round, self.held, self.doubted) = (None, None, None, None);
        (self.excess_since, self.excess_rounds) = (None, 0);
        if let Phase::Testing { .. } = self.phase {
            self.phase = Phase::Watching;
        }
    }

    /// The rate that is wanted for what there is to find out, of the one that control asks for.
    pub fn bound(&self, rate: Rate) -> Rate {
        match self.phase {
            Phase::Testing { before, .. } => {
                let carried = before.seen() / (1.0 - self.unseen);
                let share = (TEST_SHARE * carried).max(TEST_SHARE_MIN);
                Rate::from_bytes_per_sec_f64(share * before.bytes_per_s())
            }
            Phase::Watching => self.held.map_or(rate, |held| rate.max(held)),
            Phase::Resting { .. } => rate,
        }
    }

    /// Share of the bytes sent that the receivebox does not see, whatever the rate (0 to 1).
    pub const fn unseen(&self) -> f64 {
        self.unseen
    }

    /// Share of what can be seen that was missing of late, 0 where it is too little to count.
    pub const fn missing(&self) -> f64 {
        self.excess
    }

    /// What an operator should look into.
    pub fn alarm(&self, now: Timestamp) -> Option<Alarm> {
        if self.is_unsteady(now) {
            return Some(Alarm::Unsteady);
        }
        let foreign = (self.foreign_rounds >= ROUNDS).then_some(Alarm::Foreign);
        foreign.or((self.unseen > 0.0).then_some(Alarm::Unseen))
    }

    /// What is seen changes by itself: nothing can be learnt of it for now.
    pub fn is_unsteady(&self, now: Timestamp) -> bool {
        self.unsteady_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOP: Duration = Duration::from_millis(50);
    const MATCH_S: f64 = 0.005;

    /// A path that carries `capacity` (bytes per second) past a receivebox that sees a part.
    struct Path {
        visibility: Visibility,
        capacity: f64,
        totals: Totals,
        verdicts: alloc::vec::Vec<Verdict>,
        least_share: f64,
    }

    impl Path {
        fn new(capacity: f64) -> Self {
            let totals = Totals {
                sent_at: Timestamp::from_nanos(1_000_000_000),
                sent: ByteCount::ZERO,
                received: ByteCount::ZERO,
            };
            let visibility = Visibility::default();
            let verdicts = alloc::vec::Vec::new();
            Self { visibility, capacity, totals, verdicts, least_share: 1.0 }
        }

        /// `wanted` bytes per second for so long, of which the receivebox sees `seen`.
        fn run(&mut self, seconds: f64, wanted: f64, seen: f64) {
            for _ in 0..(seconds / MATCH_S) as u32 {
                let rate = self.visibility.bound(Rate::from_bytes_per_sec_f64(wanted));
                let rate = rate.as_bytes_per_sec_f64();
                self.least_share = self.least_share.min(rate / wanted);
                self.totals.sent_at += Duration::from_secs_f64(MATCH_S);
                self.totals.sent += ByteCount::new((rate * MATCH_S) as u64);
                let arrived = rate.min(self.capacity) * seen;
                self.totals.received += ByteCount::new((arrived * MATCH_S) as u64);
                let now = self.totals.sent_at + LOOP;
                let is_queued = rate > self.capacity;
                let flags = [is_queued, true];
                self.verdicts.extend(self.visibility.on_match(now, self.totals, LOOP, flags));
            }
        }
    }

    #[test]
    fn what_stays_missing_at_a_lower_rate_is_unseen() {
        for seen in [0.95, 0.8, 0.5, 0.1] {
            let mut path = Path::new(1e9);
            path.run(5.0, 2.5e6, seen);
            assert_eq!(path.verdicts, [Verdict::Unseen], "{seen}");
            assert!((path.visibility.unseen() - (1.0 - seen)).abs() < 0.01, "{seen}");
            assert_eq!(path.visibility.missing(), 0.0);
            assert!(path.least_share >= TEST_SHARE_MIN, "{seen}: {}", path.least_share);
            assert_eq!(path.visibility.alarm(path.totals.sent_at), Some(Alarm::Unseen));
        }
    }

    #[test]
    fn what_a_lower_rate_brings_back_is_congestion() {
        for overload in [1.1, 1.5, 3.0, 10.0] {
            let mut path = Path::new(2.5e6);
            path.run(60.0, overload * 2.5e6, 1.0);
            assert_eq!(path.verdicts, [], "{overload}");
            assert_eq!(path.visibility.unseen(), 0.0);
            assert!((path.visibility.missing() - (1.0 - 1.0 / overload)).abs() < 0.05);
        }
    }

    #[test]
    fn a_test_that_chance_has_spoilt_is_made_good_once_the_rate_has_fallen() {
        let mut path = Path::new(1e9);
        path.run(0.5, 2.5e6, 0.1);
        assert!(matches!(path.visibility.phase, Phase::Testing { .. }));
        path.run(0.2, 2.5e6, 0.3);
        assert!(matches!(path.visibility.phase, Phase::Resting { .. }));
        path.run(1.0, 0.15e6, 0.1);
        assert_eq!(path.verdicts, [Verdict::Unseen]);
        assert!(path.visibility.unseen() > 0.7, "{}", path.visibility.unseen());
    }

    #[test]
    fn a_share_that_comes_and_goes_is_found_once() {
        let mut path = Path::new(1e9);
        for _ in 0..10 {
            path.run(2.5, 2.5e6, 0.6);
            path.run(2.5, 2.5e6, 1.0);
        }
        assert_eq!(path.verdicts, [Verdict::Unseen]);
    }

    #[test]
    fn what_is_seen_again_is_no_longer_unseen() {
        let mut path = Path::new(1e9);
        path.run(5.0, 2.5e6, 0.7);
        path.run(60.0, 2.5e6, 1.0);
        assert_eq!(path.visibility.unseen(), 0.0);
        assert_eq!(path.visibility.alarm(path.totals.sent_at), None);
    }

    #[test]
    fn a_share_that_changes_again_and_again_is_left_alone_for_a_while() {
        let mut path = Path::new(1e9);
        for seen in [0.9, 0.7, 0.5, 0.3] {
            path.run(2.0, 2.5e6, seen);
        }
        assert_eq!(path.verdicts, [Verdict::Unseen, Verdict::Unseen, Verdict::Unsteady]);
        let alarm = path.visibility.alarm(path.totals.sent_at);
        assert_eq!(alarm, Some(Alarm::Unsteady));
    }

    #[test]
    fn random_loss_and_reordering_are_not_put_to_the_test() {
        let mut path = Path::new(1e9);
        path.run(20.0, 2.5e6, 0.98);
        assert_eq!((path.least_share, path.visibility.missing()), (1.0, 0.0));
    }

    #[test]
    fn bytes_of_others_in_the_bundles_name_are_told_of() {
        let mut path = Path::new(1e9);
        path.run(2.0, 2.5e6, 1.5);
        assert_eq!(path.visibility.alarm(path.totals.sent_at), Some(Alarm::Foreign));
        path.run(1.0, 2.5e6, 1.0);
        assert_eq!(path.visibility.alarm(path.totals.sent_at), None);
    }
}
