//! Whether boundaries arrive in the order in which they left: where they persistently do not, the bundle's
//! packets take several paths that take different times, and a delay says nothing of any of them.
//!
//! ```text
//! order of departure   a   b   c   d        a counts as late: c left after it, was received before it,
//! order of arrival     b   c   a   d        and had less to wait:  (a's transit) - (c's transit) > 1 ms
//! ```
//! Both orders are the boxes' own: what was sent by then, and how many packets the receivebox had seen. So
//! reports that are lost, jittered or shared by a datagram change nothing, nor does any clock's step: stamps
//! are asked for no more than how much later. A difference below a millisecond is that of receive queues and
//! of processors, and does no harm to a law.
//!
//! ```text
//! imbalanced    > 5 % of the boundaries of 4 s late, and of each of three half seconds of them
//! balanced      < 2 % for a hold of 5 s, which doubles up to 60 s where imbalance is back within a minute
//! ```
//! Packets that a link holds back until three have overtaken them are rarely boundaries among boundaries:
//! with 1 % of them a few in a thousand. A change of route or of a clock happens within one half second.
//! The ratio goes on unshaped: what the paths do then is what they do without a sendbox.
//!
//! A fair queue at the bottleneck (fq_codel, cake, SFQ) looks the same: it sends one flow before another that left
//! earlier. Which of the two it is cannot be seen, so both are named; limits are of no use in either.
//!
//! Source of the rule and of 5 %: EuroSys'21 "Site-to-site internet traffic control", section 7.6: at most
//! 0.4 % of the feedback arrives out of order over one path, at least 20 % over imbalanced ones.

use alloc::collections::VecDeque;

use super::Report;
use super::boundary::Boundary;
use crate::units::{ByteCount, Duration, Timestamp};

/// Time for which matched boundaries are remembered, and most of them: at 200 a second all.
const WINDOW: Duration = Duration::from_secs(4);
const WINDOW_MAX: usize = 1024;
/// Time between judgements.
const JUDGED_EVERY: Duration = Duration::from_millis(100);
/// A smaller difference between two transits is none.
const LATE_MIN: Duration = Duration::from_millis(1);
/// Fewer boundaries say nothing of a share.
const BOUNDARIES_MIN: u64 = 24;
/// Share of late boundaries above which the paths are imbalanced, and below which they are not any more.
const IMBALANCED: f64 = 0.05;
const BALANCED: f64 = 0.02;
/// What is persistent shows in so many parts of the window, of which there are at most [`PARTS`].
const PART: Duration = Duration::from_millis(500);
const PARTS_MIN: usize = 3;
const PARTS: usize = 16;
/// Balance that lasts for so long is believed; doubled up to the longest by each imbalance that comes back
/// within [`CALM_TIME`].
const HOLD: Duration = Duration::from_secs(5);
const HOLD_MAX: Duration = Duration::from_secs(60);
const CALM_TIME: Duration = Duration::from_secs(60);

/// How many boundaries arrived in order and how many late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// In the order of departure.
    pub in_order: u64,
    /// After one that left later and took less time.
    pub late: u64,
}

impl Tally {
    fn count(&mut self, is_late: bool) {
        self.in_order += u64::from(!is_late);
        self.late += u64::from(is_late);
    }

    fn uncount(&mut self, is_late: bool) {
        self.in_order -= u64::from(!is_late);
        self.late -= u64::from(is_late);
    }

    /// Share of the late ones (0 to 1); 0 of none.
    pub fn share(&self) -> f64 {
        match self.in_order + self.late {
            0 => 0.0,
            all => self.late as f64 / all as f64,
        }
    }
}

/// A matched boundary.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// Packets of the bundle that the receivebox had seen.
    number: u64,
    sent_bytes: ByteCount,
    sent_at: Timestamp,
    received_at: Timestamp,
    heard_at: Timestamp,
}

impl Arrival {
    /// The part of the window in which the boundary was heard of.
    fn part(&self) -> usize {
        (self.heard_at.as_nanos() / PART.as_nanos() as u64) as usize % PARTS
    }

    /// Whether this boundary left before `other`, was received after it, and took longer.
    fn is_late_behind(&self, other: &Self) -> bool {
        let waited = self.received_at.checked_since(other.received_at);
        let later = other.sent_at.checked_since(self.sent_at);
        let by = waited.zip(later).map(|(waited, later)| waited + later);
        self.sent_bytes < other.sent_bytes && by.is_some_and(|by| by > LATE_MIN)
    }
}

/// What the order says of the paths.
#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    #[default]
    Balanced,
    /// Shaping is off; `calm_since` is when the share became that of balanced paths again.
    Imbalanced { calm_since: Option<Timestamp> },
}

/// The boundaries of the window.
#[derive(Clone, Debug, Default)]
struct Tallied {
    all: Tally,
    /// The boundaries of each part of the window.
    parts: [Tally; PARTS],
    /// The boundary that left last, of the window and of all before it.
    newest: Option<Arrival>,
}

impl Tallied {
    /// Takes the next boundary in the order of arrival.
    fn count(&mut self, arrival: &Arrival) {
        let is_late = self.newest.is_some_and(|newest| arrival.is_late_behind(&newest));
        self.newest = later(self.newest, arrival);
        self.all.count(is_late);
        self.parts[arrival.part()].count(is_late);
    }
}

/// Watches the order in which boundaries arrive.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// In the order of arrival at the receivebox.
    window: VecDeque<Arrival>,
    /// The boundary that left last of those that are not remembered any more.
    forgotten: Option<Arrival>,
    /// Boundaries that are not remembered any more.
    past: Tally,
    tallied: Tallied,
    /// A boundary came after others that were received later: the window is to be tallied anew.
    is_stale: bool,
    /// Boundaries that were remembered at the last judgement.
    recent: Tally,
    judged_at: Timestamp,
    phase: Phase,
    hold: Duration,
    /// When it was last believed to be over.
    ended_at: Option<Timestamp>,
}

impl Order {
    /// Takes a matched boundary, whose reports may come in any order.
    pub fn on_match(&mut self, now: Timestamp, boundary: &Boundary, report: &Report) {
        let arrival = Arrival {
            number: report.received_packets,
            sent_bytes: boundary.sent_bytes,
            sent_at: boundary.sent_at,
            received_at: report.received_at,
            heard_at: now,
        };
        // Nearly always behind all others.
        let before = |other: &&Arrival| other.number > arrival.number;
        let behind = self.window.iter().rev().take_while(before).count();
        self.window.insert(self.window.len() - behind, arrival);
        self.is_stale |= behind > 0;
        if !self.is_stale {
            self.tallied.count(&arrival);
        }
        if self.window.len() > WINDOW_MAX {
            self.forget_oldest();
        }
    }

    /// Time passes. True where what is to be believed of the paths has changed.
    pub fn on_tick(&mut self, now: Timestamp) -> bool {
        if now.saturating_since(self.judged_at) < JUDGED_EVERY {
            return false;
        }
        self.judged_at = now;
        while self.window.front().is_some_and(|it| now.saturating_since(it.heard_at) > WINDOW) {
            self.forget_oldest();
        }
        if self.is_stale {
            (self.tallied, self.is_stale) = (self.tally(), false);
        }
        self.recent = self.tallied.all;
        let is_imbalanced = |part: &&Tally| part.share() > IMBALANCED;
        let parts = self.tallied.parts.iter().filter(is_imbalanced).count();
        let was_imbalanced = self.is_imbalanced();
        self.judge(now, parts);
        self.is_imbalanced() != was_imbalanced
    }

    fn tally(&self) -> Tallied {
        let mut tallied = Tallied { newest: self.forgotten, ..Tallied::default() };
        self.window.iter().for_each(|arrival| tallied.count(arrival));
        tallied
    }

    /// Judges by the boundaries of the window, of which `parts` parts are imbalanced by themselves.
    fn judge(&mut self, now: Timestamp, parts: usize) {
        let is_known = self.recent.in_order + self.recent.late >= BOUNDARIES_MIN;
        let share = self.recent.share();
        match &mut self.phase {
            Phase::Balanced if is_known && share > IMBALANCED && parts >= PARTS_MIN => {
                let is_back = self.ended_at.is_some_and(|at| now.saturating_since(at) < CALM_TIME);
                self.hold = if is_back { HOLD_MAX.min(self.hold * 2) } else { HOLD };
                self.phase = Phase::Imbalanced { calm_since: None };
            }
            Phase::Balanced => {}
            Phase::Imbalanced { calm_since } if is_known && share < BALANCED => {
                let since = *calm_since.get_or_insert(now);
                if now.saturating_since(since) >= self.hold {
                    self.phase = Phase::Balanced;
                    self.ended_at = Some(now);
                }
            }
            Phase::Imbalanced { calm_since } => *calm_since = None,
        }
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.window.pop_front() else { return };
        let is_late = self.forgotten.is_some_and(|newest| oldest.is_late_behind(&newest));
        self.past.count(is_late);
        self.forgotten = later(self.forgotten, &oldest);
        if !self.is_stale {
            self.tallied.all.uncount(is_late);
            self.tallied.parts[oldest.part()].uncount(is_late);
        }
    }

    /// The receivebox counts anew, or has been silent: what comes is not compared with what was before.
    pub fn forget_receivebox(&mut self) {
        while !self.window.is_empty() {
            self.forget_oldest();
        }
        (self.forgotten, self.tallied.newest) = (None, None);
        self.recent = Tally::default();
    }

    /// The packets take several paths that take different times.
    pub const fn is_imbalanced(&self) -> bool {
        matches!(self.phase, Phase::Imbalanced { .. })
    }

    /// Boundaries of the last few seconds.
    pub const fn recent(&self) -> Tally {
        self.recent
    }

    /// Boundaries since the start.
    pub fn total(&self) -> Tally {
        let recent = if self.is_stale { self.tally().all } else { self.tallied.all };
        let Tally { in_order, late } = self.past;
        Tally { in_order: in_order + recent.in_order, late: late + recent.late }
    }
}

/// The one of the two that left later.
fn later(newest: Option<Arrival>, arrival: &Arrival) -> Option<Arrival> {
    let newest = newest.filter(|newest| newest.sent_bytes > arrival.sent_bytes);
    Some(newest.unwrap_or(*arrival))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::EpochSize;
    use alloc::vec::Vec;

    const MS: u64 = 1_000_000;

    /// Boundaries `gap_ms` apart of which each takes what `transit_us` says of its number, and their reports
    /// what `back_us` says.
    struct Path {
        order: Order,
        now_ms: u64,
        gap_ms: u64,
        /// Packets that the receivebox has counted.
        number: u64,
    }

    impl Path {
        fn new(gap_ms: u64) -> Self {
            Self { order: Order::default(), now_ms: 1000, gap_ms, number: 0 }
        }

        /// Lets boundaries leave for `ms`; true if the judgement was imbalanced at the end.
        fn run(
            &mut self,
            ms: u64,
            transit_us: impl Fn(u64) -> u64,
            back_us: impl Fn(u64) -> u64,
        ) -> bool {
            let count = ms / self.gap_ms;
            let mut received: Vec<(u64, u64, u64)> = (0..count)
                .map(|n| {
                    let sent_ns = (self.now_ms + n * self.gap_ms) * MS;
                    (sent_ns + transit_us(n) * 1000, n, sent_ns)
                })
                .collect();
            received.sort_unstable();
            let mut heard: Vec<(u64, u64, (u64, u64, u64))> = Vec::new();
            for it in received {
                self.number += 10;
                heard.push((it.0 + back_us(it.1) * 1000, self.number, it));
            }
            heard.sort_unstable();
            for (heard_ns, number, (received_ns, n, sent_ns)) in heard {
                let boundary = Boundary {
                    sent_at: Timestamp::from_nanos(sent_ns),
                    sent_bytes: ByteCount::new(sent_ns / 1000),
                    identity: n,
                    ..Boundary::default()
                };
                let report = Report {
                    hash: 0,
                    received_at: Timestamp::from_nanos(received_ns),
                    received_bytes: ByteCount::ZERO,
                    received_packets: number,
                    received_ce: 0,
                    epoch_size: EpochSize::MAX,
                };
                let now = Timestamp::from_nanos(heard_ns);
                self.order.on_match(now, &boundary, &report);
                self.order.on_tick(now);
            }
            self.now_ms += ms;
            self.order.is_imbalanced()
        }
    }

    /// A number without a pattern, of `n`.
    fn mixed(n: u64) -> u64 {
        (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
    }

    #[test]
    fn one_path_is_in_order_however_its_reports_come() {
        let mut path = Path::new(10);
        assert!(!path.run(20_000, |n| 20_000 + 9 * (n % 1000), |n| 10_000 + mixed(n) % 200_000));
        assert_eq!(path.order.recent().late, 0);
        assert!(path.order.recent().in_order > 300);
        let total = path.order.total();
        assert_eq!((total.in_order, total.late), (2000, 0));
    }

    #[test]
    fn two_paths_of_different_times_are_found_within_two_seconds_and_their_end_after_the_hold() {
        let two = |n: u64| if mixed(n).is_multiple_of(2) { 20_000 } else { 50_000 };
        for gap_ms in [5, 60] {
            let mut path = Path::new(gap_ms);
            let back = |n: u64| 20_000 + mixed(n) % 50_000;
            assert!(!path.run(6000, |_| 20_000, back));
            let two = |n: u64| if gap_ms == 60 { 4 * two(n) } else { two(n) };
            assert!(path.run(if gap_ms == 60 { 4000 } else { 2000 }, two, back), "{gap_ms}");
            assert!(path.order.recent().share() > IMBALANCED);
            assert!(path.run(6000, |_| 20_000, back), "{gap_ms}: the window and the hold");
            assert!(!path.run(5000, |_| 20_000, back), "{gap_ms}");
            // It comes back: the hold is longer.
            assert!(path.run(4000, two, back));
            assert!(path.run(10_000, |_| 20_000, back));
            assert!(!path.run(6000, |_| 20_000, back));
        }
    }

    #[test]
    fn a_step_of_the_path_and_a_little_reordering_are_no_imbalance() {
        let mut path = Path::new(5);
        // Every hundredth is held back until three have passed.
        let held = |n: u64| if n.is_multiple_of(100) { 36_000 } else { 20_000 };
        assert!(!path.run(10_000, held, |_| 10_000));
        assert!((path.order.total().share() - 0.01).abs() < 0.002);
        // All that are on a way of 300 ms are overtaken once.
        let shorter = |n: u64| if n < 200 { 300_000 } else { 20_000 };
        for _ in 0..3 {
            assert!(!path.run(6000, shorter, |_| 10_000));
        }
    }

    #[test]
    fn less_than_a_millisecond_is_none_and_a_clock_that_is_put_on_or_back_changes_no_order() {
        let mut path = Path::new(5);
        assert!(!path.run(5000, |n| if n.is_multiple_of(2) { 20_000 } else { 15_500 }, |_| 0));
        assert_eq!(path.order.total().late, 0);
        let mut path = Path::new(5);
        // Received in order, by stamps that go back and on.
        path.run(2000, |n| 20_000 + n, |_| 0);
        let mut stamped = path.order.window.clone();
        for (n, arrival) in stamped.iter_mut().enumerate() {
            let by = Duration::from_secs(mixed(n as u64) % 30);
            arrival.received_at += by;
        }
        path.order.window = stamped;
        assert_eq!(path.order.tally().all.late, 0);
    }

    #[test]
    fn what_a_receivebox_counted_before_its_restart_is_not_compared() {
        let mut path = Path::new(5);
        path.run(3000, |_| 20_000, |_| 0);
        path.order.forget_receivebox();
        path.number = 0;
        assert!(!path.run(6000, |_| 20_000, |_| 0));
        assert_eq!((path.order.total().in_order, path.order.total().late), (1800, 0));
    }
}
