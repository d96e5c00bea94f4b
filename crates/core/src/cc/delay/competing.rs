//! Beside traffic that fills the bottleneck's buffer: the hosts compete as if there were no boxes, and now and
//! then a test shows whether the others are still there.
//!
//! ```text
//!              a sign of others                       first the backlog, at half of mu
//! steering ──────────────────────► competing (no limits) ◄──────────────────────┐
//!     ▲                                │ now and then         what we withhold  │
//!     │                                ▼                      is made up for    │
//!     │                   testing (0.85 of what is delivered) ──────────────────┤
//!     │                                │ the queue is gone                      │
//!     │    and stays away              ▼                      a queue is back   │
//!     └────────────────── confirming (0.9 of it) ───────────────────────────────┘
//! ```
//! **Test.** For a packet sent at t, with r what was delivered before the test:
//!
//! ```text
//! D = (r (t - t0) - bytes sent since t0) / mu      what was withheld, as time of the link
//! U = q(t) - q(t0) + D                             what others have put in its place
//! ```
//! Traffic that does not answer leaves U at 0, and the queue goes as D grows; traffic that fills the buffer
//! takes what it can get, and U follows D.
//!
//! **Thorough tests.** Requests that have piled up beside a bundle without limits answer as lasting flows do, and
//! a bundle that competes with them keeps the pile. So now and then a test falls to 0.4 of what was delivered and
//! asks only whether the queue goes.
//!
//! **Confirmation.** The queue of one flow that has just halved goes in any test, and comes back at a rate that
//! stays the same. The first test of an entry needs none: a bundle that nobody has answered yet would only lose its
//! share to another bundle meanwhile. Behind a shallow buffer it does, since a test empties that whoever fills it.

use super::others::{Sign, theta_s};
use super::{DelayControl, DelayLaw, Phase};
use crate::cc::estimators::Path;

/// Rate of the release of what waits here over the bottleneck's, and for how long at most (seconds).
const RELEASE_SHARE: f64 = 0.5;
const RELEASE_S: f64 = 2.0;
/// Rate of the release after a test, over what was delivered before the test.
const RETURN_SHARE: f64 = 1.5;
/// Least time of competing (seconds), its growth where others were found again soon after they had left, and
/// how soon that is.
const HOLD_S: f64 = 1.0;
const HOLD_GROWTH: f64 = 4.0;
const HOLD_MAX_S: f64 = 8.0;
const AGAIN_S: f64 = 20.0;
/// Time before the first test (seconds).
const FIRST_TEST_S: f64 = 1.0;
/// Later tests begin at whole multiples of a time of the day: bundles that hold each other in competition, though
/// nobody else is left, then test together. That time where hardly anybody else is left (seconds), and how often it
/// doubles.
const SOON_S: f64 = 1.25;
const SOON_DOUBLINGS: u32 = 2;
/// Time of the day between all other tests (seconds), and how often that time doubles.
const NEXT_TEST_S: f64 = 2.5;
const NEXT_TEST_DOUBLINGS: u32 = 2;
/// How often the time doubles where less than this share of mu is delivered: each test costs much beside many
/// others, and when they leave what is delivered shows it.
const SMALL_SHARE: f64 = 0.42;
const SMALL_DOUBLINGS: u32 = 3;
/// What is delivered over what was delivered at the last test, from which on a test is due at once.
const MORE: f64 = 1.3;
/// What is delivered over mu, from which on there is hardly anybody else.
const NEARLY_ALL: f64 = 0.9;
/// Time constant of what is delivered (seconds).
const MEAN_S: f64 = 0.5;
/// A queue that was this short for most of a second is nobody's.
const EMPTY_S: f64 = 1e-3;
const EMPTY_SHARE: f64 = 0.7;
/// Rate of a test over what was delivered.
const TEST_SHARE: f64 = 0.85;
/// What is judged: after so many round trips, and while so much of the queue is left.
const TEST_ROUND_TRIPS: f64 = 1.5;
const TEST_QUEUE_S: f64 = 4e-3;
const TEST_QUEUE_SHARE: f64 = 0.15;
/// U beyond which others answer: error of what was delivered before, and share of what is withheld.
const ERROR_S: f64 = 8e-3;
const ERROR_SHARE: f64 = 0.05;
const ERROR_DRIFT: f64 = 0.01;
const ANSWER_SHARE: f64 = 0.4;
/// No more U is asked for than a few others can answer with: this share of what they get.
const OTHERS_SHARE: f64 = 0.3;
/// A thorough test falls to this share within some time (seconds).
const THOROUGH_SHARE: f64 = 0.4;
const THOROUGH_FALL_S: f64 = 1.0;
/// By the time in which the bottleneck sends so many packets, this much of the queue has to be gone: requests that had
/// piled up get done.
const PILE_PACKETS: f64 = 5500.0;
const PILE_GONE: f64 = 0.6;
/// Time after that in which the rest of the queue has to go (seconds, and bases).
const THOROUGH_S: f64 = 1.3;
const THOROUGH_BASES: f64 = 4.0;
/// How many tests others have answered before it, how long the last one is past (seconds), and the share of mu that
/// is ours at most.
const THOROUGH_AFTER: u32 = 2;
const THOROUGH_EVERY_S: f64 = 25.0;
const THOROUGH_OURS: f64 = 0.75;
/// Patience of a test: seconds, bases, and the time to drain the queue.
const PATIENCE_S: f64 = 1.0;
const PATIENCE_BASES: f64 = 6.0;
const PATIENCE_DRAINS: f64 = 1.5;
/// A buffer that has overflowed, though no queue took as many bases, is shallow: a test empties it, whoever fills it.
const SHALLOW_BASES: f64 = 1.2;
/// Rate after a test that the others have not answered, over what was delivered before.
const LEAVE_SHARE: f64 = 0.9;
/// Rate while it is confirmed that the others have left, after a thorough test, over what was delivered before.
const CONFIRM_SHARE: f64 = 0.6;
/// How long a confirmation takes (seconds, and bases), and the age of a queue that others make meanwhile.
const CONFIRM_S: f64 = 2.0;
const CONFIRM_BASES: f64 = 4.0;
const CONFIRM_AGE_S: f64 = 0.8;
const CONFIRM_AGE_BASES: f64 = 2.0;

/// Competing without limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Competing {
    since_s: f64,
    /// What waits here leaves at this rate (bytes per second) until then (seconds).
    release: Option<(f64, f64)>,
    /// No test and no end before.
    hold_until_s: f64,
    next_test_s: f64,
    /// When the next test is due where hardly anybody else is left.
    next_soon_s: f64,
    /// Tests that others have answered, and those that high rates alone have caused.
    tests: u32,
    high_tests: u32,
    /// What was delivered at the last of them (bytes per second), and when it ended.
    tested_bytes_per_s: f64,
    tested_s: f64,
    /// When the last thorough test ended.
    thorough_s: f64,
    /// What was delivered when a decline led here: it is ours again if nobody answers (bytes per second).
    shared_bytes_per_s: f64,
    /// Mean of what is delivered (bytes per second).
    mean_bytes_per_s: f64,
    /// Share of time with hardly any queue, of about the last second.
    empty: f64,
    /// The longest queue since it began (seconds), and whether anything was lost: only then was the buffer full.
    longest_s: f64,
    is_lossy: bool,
}

impl Competing {
    /// Rate while what has waited here leaves (bytes per second).
    pub(super) fn bytes_per_s(&self) -> Option<f64> {
        self.release.map(|(bytes_per_s, _)| bytes_per_s)
    }

    fn is_shallow(&self, path: &Path) -> bool {
        self.is_lossy && self.longest_s < SHALLOW_BASES * path.base_s
    }
}

/// The first whole multiple of a time of the day that is at least a quarter of it away, by the clock of `now_s`, at
/// whose zero it was `day_s` (seconds).
fn next_multiple(now_s: f64, day_s: f64, every_s: f64) -> f64 {
    (libm::floor((now_s + day_s) / every_s + 0.25) + 1.0) * every_s - day_s
}

/// A test whether others answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Test {
    since_s: f64,
    /// What was delivered before (bytes per second).
    before: f64,
    /// First packet of the test that was reported: when it left, and its queue (seconds).
    start: Option<(f64, f64)>,
    sent_bytes: f64,
    is_thorough: bool,
    competing: Competing,
}

impl Test {
    /// Rate while it lasts (bytes per second).
    pub(super) fn bytes_per_s(&self, now_s: f64) -> f64 {
        if !self.is_thorough {
            return TEST_SHARE * self.before;
        }
        let over = ((now_s - self.since_s) / THOROUGH_FALL_S).min(1.0);
        (TEST_SHARE - (TEST_SHARE - THOROUGH_SHARE) * over) * self.before
    }
}

/// The queue went in a test: does it come back at a rate that stays the same?
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Confirmation {
    since_s: f64,
    /// When the queue was last short.
    short_s: f64,
    test: Test,
}

impl Confirmation {
    /// Rate while it lasts (bytes per second).
    pub(super) fn bytes_per_s(&self) -> f64 {
        let share = if self.test.is_thorough { CONFIRM_SHARE } else { LEAVE_SHARE };
        share * self.test.before
    }
}

/// How a test ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The queue is gone.
    Gone,
    /// Others have taken what was withheld.
    Elastic,
}

impl Test {
    fn on_measurement(
        &mut self,
        now_s: f64,
        path: &Path,
        lost_bytes: f64,
        mu: f64,
    ) -> Option<Answer> {
        if path.sent_at_s < self.since_s {
            return None;
        }
        let queue_s = path.fresh_s;
        let Some((start_s, before_s)) = self.start else {
            self.start = Some((path.sent_at_s, queue_s));
            return None;
        };
        self.sent_bytes += path.acked_bytes + lost_bytes;
        if queue_s < EMPTY_S {
            return Some(Answer::Gone);
        }
        let elapsed_s = path.sent_at_s - start_s;
        if self.is_thorough {
            let pile_s = PILE_PACKETS * 1514.0 / mu;
            let is_left = queue_s > (1.0 - PILE_GONE) * before_s;
            let patience_s = pile_s + THOROUGH_S + THOROUGH_BASES * path.base_s;
            let is_answered = elapsed_s > pile_s + path.base_s + queue_s && is_left;
            return (is_answered || now_s - self.since_s > patience_s).then_some(Answer::Elastic);
        }
        let withheld_s = (self.before * elapsed_s - self.sent_bytes) / mu;
        let others_s = queue_s - before_s + withheld_s;
        let few_s = OTHERS_SHARE * (mu - self.before).max(0.0) * elapsed_s / mu;
        let bound_s = (ERROR_S + ERROR_SHARE * withheld_s)
            .max((ANSWER_SHARE * withheld_s).min(few_s))
            + ERROR_DRIFT * elapsed_s;
        let is_judged = elapsed_s > TEST_ROUND_TRIPS * (path.base_s + queue_s)
            && queue_s > TEST_QUEUE_S.max(TEST_QUEUE_SHARE * before_s);
        if is_judged && others_s > bound_s {
            return Some(Answer::Elastic);
        }
        let patience_s = PATIENCE_S
            + PATIENCE_BASES * path.base_s
            + PATIENCE_DRAINS * before_s / (1.0 - TEST_SHARE);
        (now_s - self.since_s > patience_s).then_some(Answer::Elastic)
    }
}

impl<L: DelayLaw> DelayControl<L> {
    /// Watches for others while limits hold.
    pub(super) fn sign_of_others(&mut self, path: &Path, rtt_s: f64) -> Option<Sign> {
        let is_limited = match self.phase {
            Phase::Steering | Phase::Doubting(_) => true,
            Phase::Draining(_) => self.shaped_since_s.is_finite(),
            _ => false,
        };
        if !is_limited || !self.yields {
            return None;
        }
        let sign = self.others.on_measurement(self.now_s, path, rtt_s);
        // A deep drain is about to tell whether the queue is one, or the path longer.
        let is_open = matches!(self.phase, Phase::Draining(drain) if drain.is_deep());
        sign.filter(|_| !is_open)
    }

    /// Somebody else fills the buffer: no limits from now on.
    pub(super) fn compete(&mut self, sign: Sign, path: &Path) {
        let is_again = self.left_s.is_some_and(|left_s| self.now_s - left_s < AGAIN_S);
        self.hold_s = if is_again { (HOLD_GROWTH * self.hold_s).min(HOLD_MAX_S) } else { HOLD_S };
        let mu = self.others.capacity(path.recent_bytes_per_s);
        let is_decline = sign == Sign::Squeezed;
        self.phase = Phase::Competing(Competing {
            since_s: self.now_s,
            release: Some((RELEASE_SHARE * mu, self.now_s + RELEASE_S)),
            hold_until_s: self.now_s + self.hold_s,
            next_test_s: self.now_s + FIRST_TEST_S.max(self.hold_s),
            next_soon_s: self.soon_after(0),
            tests: 0,
            high_tests: 0,
            tested_bytes_per_s: f64::INFINITY,
            tested_s: self.now_s,
            thorough_s: f64::NEG_INFINITY,
            shared_bytes_per_s: if is_decline { path.mean_bytes_per_s } else { 0.0 },
            mean_bytes_per_s: path.delivery_bytes_per_s,
            empty: 0.0,
            longest_s: 0.0,
            is_lossy: false,
        });
        // Losses from now on are those of a buffer that others fill.
        self.shaped_since_s = f64::INFINITY;
        self.steering = None;
        self.reason = sign.reason();
    }

    pub(super) fn on_competing(
        &mut self,
        mut competing: Competing,
        path: &Path,
        rtt_s: f64,
        lost_bytes: f64,
    ) {
        let gain = 1.0 - libm::exp(-path.dt_s / MEAN_S);
        let rate = path.delivery_bytes_per_s;
        competing.mean_bytes_per_s += gain * (rate - competing.mean_bytes_per_s);
        let is_empty = f64::from(u8::from(rtt_s - path.base_s < EMPTY_S));
        competing.longest_s = competing.longest_s.max(rtt_s - path.base_s);
        competing.is_lossy |= lost_bytes > 0.0;
        competing.empty += (1.0 - libm::exp(-path.dt_s)) * (is_empty - competing.empty);
        if let Some((_, until_s)) = competing.release
            && (self.now_s >= until_s || path.idle > 0.0 && path.sent_at_s >= competing.since_s)
        {
            competing.release = None;
        }
        self.phase = Phase::Competing(competing);
        if self.now_s < competing.hold_until_s {
            return;
        }
        if competing.empty > EMPTY_SHARE {
            self.stop_competing(competing.mean_bytes_per_s, path);
            self.reason = "nobody is queueing";
            return;
        }
        let mean = competing.mean_bytes_per_s;
        let since_test_s = self.now_s - competing.tested_s;
        let is_more = mean > MORE * competing.tested_bytes_per_s && since_test_s > 1.0;
        let is_soon = self.now_s >= competing.next_soon_s;
        let is_nearly_all = is_soon && mean > NEARLY_ALL * self.others.capacity(mean);
        if is_nearly_all {
            competing.high_tests += 1;
        } else if is_soon {
            competing.next_soon_s = self.soon_after(competing.high_tests);
            self.phase = Phase::Competing(competing);
        }
        if is_more || is_nearly_all || self.now_s >= competing.next_test_s {
            competing.release = None;
            let before = path.mean_bytes_per_s;
            let is_thorough = competing.tests >= THOROUGH_AFTER
                && self.now_s - competing.thorough_s > THOROUGH_EVERY_S
                && before < THOROUGH_OURS * self.others.capacity(before);
            self.phase = Phase::Testing(Test {
                since_s: self.now_s,
                before,
                start: None,
                sent_bytes: 0.0,
                is_thorough,
                competing,
            });
            self.reason = "do others answer?";
        }
    }

    pub(super) fn on_testing(&mut self, mut test: Test, path: &Path, lost_bytes: f64) {
        let mu = self.others.capacity(test.before);
        test.competing.is_lossy |= lost_bytes > 0.0;
        let answer = test.on_measurement(self.now_s, path, lost_bytes, mu);
        self.phase = Phase::Testing(test);
        match answer {
            None => {}
            Some(Answer::Gone) if test.competing.tests == 0 && !test.competing.is_shallow(path) => {
                self.stop_competing(test.before.max(test.competing.shared_bytes_per_s), path);
                self.others.doubt_declines(self.now_s);
                self.reason = "others have left";
            }
            Some(Answer::Gone) => {
                let (since_s, short_s) = (self.now_s, self.now_s);
                self.phase = Phase::Confirming(Confirmation { since_s, short_s, test });
                self.reason = "the queue is gone: have others left?";
            }
            Some(Answer::Elastic) => self.compete_again(test, mu),
        }
    }

    pub(super) fn on_confirming(&mut self, mut confirmation: Confirmation, path: &Path) {
        let Confirmation { since_s, test, .. } = confirmation;
        if path.sent_at_s < since_s || path.fresh_s < theta_s(path) {
            confirmation.short_s = self.now_s;
        }
        self.phase = Phase::Confirming(confirmation);
        let age_s = self.now_s - confirmation.short_s;
        if age_s > CONFIRM_AGE_S + CONFIRM_AGE_BASES * path.base_s {
            self.compete_again(test, self.others.capacity(test.before));
        } else if self.now_s - since_s > CONFIRM_S + CONFIRM_BASES * path.base_s {
            self.stop_competing(test.before, path);
            self.others.have_left(self.now_s, test.before);
            self.reason = "others have left";
        }
    }

    /// Others have answered `test`.
    fn compete_again(&mut self, test: Test, mu: f64) {
        let Competing { tests, high_tests, .. } = test.competing;
        let is_small = test.before < SMALL_SHARE * mu;
        let doublings = if is_small { SMALL_DOUBLINGS } else { NEXT_TEST_DOUBLINGS };
        let every_s = NEXT_TEST_S * f64::from(1_u32 << tests.min(doublings));
        self.phase = Phase::Competing(Competing {
            release: Some((RETURN_SHARE * test.before, self.now_s + RELEASE_S)),
            next_test_s: next_multiple(self.now_s, self.day_s, every_s),
            next_soon_s: self.soon_after(high_tests),
            tests: tests + 1,
            tested_bytes_per_s: test.before,
            tested_s: self.now_s,
            since_s: self.now_s,
            mean_bytes_per_s: test.before,
            empty: 0.0,
            thorough_s: if test.is_thorough { self.now_s } else { test.competing.thorough_s },
            ..test.competing
        });
        self.reason = "others answer";
    }

    /// When the next test is due where hardly anybody else is left, after so many of them (seconds).
    fn soon_after(&self, high_tests: u32) -> f64 {
        let every_s = SOON_S * f64::from(1_u32 << high_tests.min(SOON_DOUBLINGS));
        next_multiple(self.now_s, self.day_s, every_s)
    }

    /// Limits hold again.
    fn stop_competing(&mut self, bytes_per_s: f64, path: &Path) {
        self.left_s = Some(self.now_s);
        self.others.restart();
        self.begin(LEAVE_SHARE * bytes_per_s, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sendboxes whose machines started at different times, and whose last tests ended at different times.
    #[test]
    fn bundles_of_different_machines_test_at_the_same_time() {
        let days_s = [1.8e9 + 0.4, 1.8e9 - 3_333.3];
        for since_s in [0.1, 2.4, 7.4] {
            let times = days_s.map(|day_s| {
                let now_s = 1.8e9 + 5_000.0 + since_s - day_s;
                let at_s = next_multiple(now_s, day_s, 10.0);
                assert!((2.5..=12.5).contains(&(at_s - now_s)), "{now_s} {at_s}");
                at_s + day_s
            });
            assert!((times[0] - times[1]).abs() < 1e-3, "{times:?}");
        }
    }

    const MU: f64 = 12e6;

    /// Runs a thorough test from 0 s on, in which the queue (seconds) is what `queue_s` says; its answer, and when.
    fn thorough(queue_s: impl Fn(f64) -> f64) -> Option<(f64, Answer)> {
        let competing = Competing {
            since_s: -10.0,
            release: None,
            hold_until_s: -9.0,
            next_test_s: 0.0,
            next_soon_s: 0.0,
            tests: THOROUGH_AFTER,
            high_tests: 0,
            tested_bytes_per_s: 0.5 * MU,
            tested_s: -5.0,
            thorough_s: f64::NEG_INFINITY,
            shared_bytes_per_s: 0.0,
            mean_bytes_per_s: 0.5 * MU,
            empty: 0.0,
            longest_s: 0.15,
            is_lossy: false,
        };
        let mut test = Test {
            since_s: 0.0,
            before: 0.5 * MU,
            start: None,
            sent_bytes: 0.0,
            is_thorough: true,
            competing,
        };
        (0..1000).find_map(|step| {
            let now_s = 0.05 + 0.01 * f64::from(step);
            let path = Path {
                dt_s: 0.01,
                base_s: 0.05,
                sent_at_s: now_s - 0.05,
                fresh_s: queue_s(now_s),
                acked_bytes: 0.01 * test.bytes_per_s(now_s),
                ..Path::default()
            };
            test.on_measurement(now_s, &path, 0.0, MU).map(|answer| (now_s, answer))
        })
    }

    #[test]
    fn a_thorough_test_asks_whether_the_queue_goes_however_much_others_answer() {
        // Requests that get done: the queue goes more slowly than by what is withheld.
        let (at_s, answer) = thorough(|at_s| 0.15 - 0.12 * at_s).unwrap();
        assert_eq!(answer, Answer::Gone);
        assert!((1.2..1.3).contains(&at_s), "{at_s}");
        // Flows that last: it stays.
        let (at_s, answer) = thorough(|_| 0.15).unwrap();
        assert_eq!(answer, Answer::Elastic);
        // 5500 packets at 96 Mbit/s, and a round trip.
        assert!((0.85..1.0).contains(&at_s), "{at_s}");
        // It falls, and does not go.
        let (at_s, answer) = thorough(|at_s| (0.15 - 0.2 * at_s).max(0.03)).unwrap();
        assert_eq!(answer, Answer::Elastic);
        assert!((2.1..2.4).contains(&at_s), "{at_s}");
    }
}
