//! Whether boundaries arrive in the order in which they left. If they persistently do not, the bundle's
//! packets take several paths of different delay, and one delay does not describe any of these paths.
//!
//! ```text
//! order of departure   a   b   c   d        a counts as late: c left after it, was received before it,
//! order of arrival     b   c   a   d        and had less to wait:  (a's transit) - (c's transit) > 1 ms
//! ```
//! Both orders come from the boxes' own counters: the bytes sent by then, and the packets that the
//! receivebox had seen. So lost, jittered or batched reports change nothing, and neither does a step of a
//! clock. Time stamps only say how much later a boundary arrived. Receive queues and processors cause
//! differences below a millisecond, which do not harm a controller.
//!
//! ```text
//! imbalanced    > 5 % of the boundaries of 4 s late, and of each of three sixths of these
//! balanced      < 2.5 % for a hold of 5 s, which doubles up to 60 s where imbalance is back within a minute
//! ```
//! Packets that a link holds back until three have overtaken them are rarely boundaries among boundaries:
//! if the link holds back 1 %, a few in a thousand. A change of route or of a clock happens within one
//! sixth. Measurement goes on unshaped: the paths then behave as without a sendbox.
//!
//! A fair queue at the bottleneck (fq_codel, cake, SFQ) looks the same: it sends one flow before another
//! that left earlier. The boxes cannot distinguish the two, so the alarm names both; limits help in
//! neither case.
//!
//! Source of the rule and of 5 %: EuroSys'21 "Site-to-site internet traffic control", section 7.6: at most
//! 0.4 % of the feedback arrives out of order over one path, at least 20 % over imbalanced ones.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::MATCHED_MAX;
use super::boundary::Boundary;
use crate::bundle::Report;
use crate::bundle::tuning::Tuning;
use crate::units::{ByteCount, Duration, Timestamp};

/// How many boundaries arrived in order and how many late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// In the order of departure.
    pub in_order: u64,
    /// After a boundary that left later and took less time.
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

    /// Share of the late boundaries (0 to 1); 0 if there are none at all.
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
    /// The part of the window in which the boundary's report arrived.
    fn part(&self, tuning: &Tuning) -> usize {
        let part = tuning.order_window.as_nanos() / u128::from(2 * tuning.persistent);
        (u128::from(self.heard_at.as_nanos()) / part.max(1)) as usize % parts_max(tuning)
    }

    /// Whether this boundary left before `other`, was received after it, and took longer.
    fn is_late_behind(&self, tuning: &Tuning, other: &Self) -> bool {
        let waited = self.received_at.checked_since(other.received_at);
        let later = other.sent_at.checked_since(self.sent_at);
        let by = waited.zip(later).map(|(waited, later)| waited + later);
        self.sent_bytes < other.sent_bytes && by.is_some_and(|by| by > tuning.delay_noise)
    }
}

/// Parts that hold boundaries: twice the persistent count, one that is beginning and one that is ending.
const fn parts_max(tuning: &Tuning) -> usize {
    (2 * tuning.persistent + 2) as usize
}

/// The judgement of the paths.
#[derive(Clone, Copy, Debug, Default)]
enum OrderPhase {
    #[default]
    Balanced,
    /// Shaping is off; the share has been as low as on balanced paths since `calm_since`.
    Imbalanced { calm_since: Option<Timestamp> },
}

/// The boundaries of the window.
#[derive(Clone, Debug, Default)]
struct Tallied {
    all: Tally,
    /// The boundaries of each part of the window.
    parts: Vec<Tally>,
    /// The boundary that left last, in the window or before it.
    newest: Option<Arrival>,
}

impl Tallied {
    /// Takes the next boundary in the order of arrival.
    fn add(&mut self, tuning: &Tuning, arrival: &Arrival) {
        let is_late = self.newest.is_some_and(|newest| arrival.is_late_behind(tuning, &newest));
        self.newest = later(self.newest, arrival);
        self.all.count(is_late);
        self.parts.resize(parts_max(tuning), Tally::default());
        self.parts[arrival.part(tuning)].count(is_late);
    }
}

/// Watches the order in which boundaries arrive.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// In the order of arrival at the receivebox.
    window: VecDeque<Arrival>,
    /// The boundary that left last among the forgotten ones.
    forgotten: Option<Arrival>,
    /// Boundaries that have left the window.
    past: Tally,
    tallied: Tallied,
    /// A boundary arrived after one that was received later: the window must be tallied again.
    is_stale: bool,
    /// Boundaries in the window at the last judgement.
    recent: Tally,
    judged_at: Timestamp,
    phase: OrderPhase,
    hold: Duration,
    /// When the imbalance was last judged to be over.
    ended_at: Option<Timestamp>,
}

impl Order {
    /// Takes a matched boundary; reports may arrive in any order.
    pub fn on_match(
        &mut self,
        tuning: &Tuning,
        now: Timestamp,
        boundary: &Boundary,
        report: &Report,
    ) {
        let arrival = Arrival {
            number: report.received_packets,
            sent_bytes: boundary.sent_bytes,
            sent_at: boundary.sent_at,
            received_at: report.received_at,
            heard_at: now,
        };
        // The new boundary is nearly always the last.
        let before = |other: &&Arrival| other.number > arrival.number;
        let behind = self.window.iter().rev().take_while(before).count();
        self.window.insert(self.window.len() - behind, arrival);
        self.is_stale |= behind > 0;
        if !self.is_stale {
            self.tallied.add(tuning, &arrival);
        }
        if self.window.len() > MATCHED_MAX {
            self.forget_oldest(tuning);
        }
    }

    /// Time passes. True if the judgement of the paths has changed.
    pub fn on_tick(&mut self, tuning: &Tuning, now: Timestamp) -> bool {
        if now.saturating_since(self.judged_at) < tuning.reports_time {
            return false;
        }
        self.judged_at = now;
        while self
            .window
            .front()
            .is_some_and(|it| now.saturating_since(it.heard_at) > tuning.order_window)
        {
            self.forget_oldest(tuning);
        }
        if self.is_stale {
            (self.tallied, self.is_stale) = (self.tally(tuning), false);
        }
        self.recent = self.tallied.all;
        let is_imbalanced = |part: &&Tally| part.share() > tuning.order_imbalanced;
        let parts = self.tallied.parts.iter().filter(is_imbalanced).count();
        let was_imbalanced = self.is_imbalanced();
        self.judge(tuning, now, parts);
        self.is_imbalanced() != was_imbalanced
    }

    fn tally(&self, tuning: &Tuning) -> Tallied {
        let mut tallied = Tallied { newest: self.forgotten, ..Tallied::default() };
        self.window.iter().for_each(|arrival| tallied.add(tuning, arrival));
        tallied
    }

    /// Judges the boundaries of the window; `parts` parts are imbalanced by themselves.
    fn judge(&mut self, tuning: &Tuning, now: Timestamp, parts: usize) {
        let boundaries = self.recent.in_order + self.recent.late;
        let is_known = boundaries as f64 >= tuning.share_packets;
        let share = self.recent.share();
        match &mut self.phase {
            OrderPhase::Balanced
                if is_known
                    && share > tuning.order_imbalanced
                    && parts >= tuning.persistent as usize =>
            {
                let is_back =
                    self.ended_at.is_some_and(|at| now.saturating_since(at) < tuning.calm);
                self.hold = if is_back { tuning.calm.min(self.hold * 2) } else { tuning.rest };
                self.phase = OrderPhase::Imbalanced { calm_since: None };
            }
            OrderPhase::Balanced => {}
            OrderPhase::Imbalanced { calm_since }
                if is_known && share < tuning.order_imbalanced / 2.0 =>
            {
                let since = *calm_since.get_or_insert(now);
                if now.saturating_since(since) >= self.hold {
                    self.phase = OrderPhase::Balanced;
                    self.ended_at = Some(now);
                }
            }
            OrderPhase::Imbalanced { calm_since } => *calm_since = None,
        }
    }

    fn forget_oldest(&mut self, tuning: &Tuning) {
        let Some(oldest) = self.window.pop_front() else { return };
        let is_late = self.forgotten.is_some_and(|newest| oldest.is_late_behind(tuning, &newest));
        self.past.count(is_late);
        self.forgotten = later(self.forgotten, &oldest);
        if !self.is_stale {
            self.tallied.all.uncount(is_late);
            self.tallied.parts[oldest.part(tuning)].uncount(is_late);
        }
    }

    /// The receivebox restarts its counters or was silent: later boundaries are not compared with earlier ones.
    pub fn forget_receivebox(&mut self, tuning: &Tuning) {
        while !self.window.is_empty() {
            self.forget_oldest(tuning);
        }
        (self.forgotten, self.tallied.newest) = (None, None);
        self.recent = Tally::default();
    }

    /// The packets take several paths of different delay.
    pub const fn is_imbalanced(&self) -> bool {
        matches!(self.phase, OrderPhase::Imbalanced { .. })
    }

    /// Boundaries of the last few seconds.
    pub const fn recent(&self) -> Tally {
        self.recent
    }

    /// Boundaries since the start.
    pub fn total(&self, tuning: &Tuning) -> Tally {
        let recent = if self.is_stale { self.tally(tuning).all } else { self.tallied.all };
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

    const MS: u64 = 1_000_000;

    /// Boundaries `gap_ms` apart. `transit_us` gives the transit by number, and `back_us` the way back of
    /// the report.
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
                self.order.on_match(&Tuning::DEFAULT, now, &boundary, &report);
                self.order.on_tick(&Tuning::DEFAULT, now);
            }
            self.now_ms += ms;
            self.order.is_imbalanced()
        }
    }

    /// A number below `n` without a pattern.
    fn mixed(n: u64) -> u64 {
        (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
    }

    #[test]
    fn one_path_is_in_order_whatever_its_reports() {
        let mut path = Path::new(10);
        assert!(!path.run(20_000, |n| 20_000 + 9 * (n % 1000), |n| 10_000 + mixed(n) % 200_000));
        assert_eq!(path.order.recent().late, 0);
        assert!(path.order.recent().in_order > 300);
        let total = path.order.total(&Tuning::DEFAULT);
        assert_eq!((total.in_order, total.late), (2000, 0));
    }

    #[test]
    fn two_paths_are_found_and_cleared_in_time() {
        let two = |n: u64| if mixed(n).is_multiple_of(2) { 20_000 } else { 50_000 };
        for gap_ms in [5, 60] {
            let mut path = Path::new(gap_ms);
            let back = |n: u64| 20_000 + mixed(n) % 50_000;
            assert!(!path.run(6000, |_| 20_000, back));
            let two = |n: u64| if gap_ms == 60 { 4 * two(n) } else { two(n) };
            assert!(path.run(if gap_ms == 60 { 4000 } else { 2000 }, two, back), "{gap_ms}");
            assert!(path.order.recent().share() > Tuning::DEFAULT.order_imbalanced);
            assert!(path.run(6000, |_| 20_000, back), "{gap_ms}: the window and the hold");
            assert!(!path.run(5000, |_| 20_000, back), "{gap_ms}");
            // The imbalance returns: the hold is longer.
            assert!(path.run(4000, two, back));
            assert!(path.run(10_000, |_| 20_000, back));
            assert!(!path.run(6000, |_| 20_000, back));
        }
    }

    #[test]
    fn path_step_and_slight_reordering_are_no_imbalance() {
        let mut path = Path::new(5);
        // Every hundredth is held back until three have passed.
        let held = |n: u64| if n.is_multiple_of(100) { 36_000 } else { 20_000 };
        assert!(!path.run(10_000, held, |_| 10_000));
        assert!((path.order.total(&Tuning::DEFAULT).share() - 0.01).abs() < 0.002);
        // All packets on a way of 300 ms are overtaken once.
        let shorter = |n: u64| if n < 200 { 300_000 } else { 20_000 };
        for _ in 0..3 {
            assert!(!path.run(6000, shorter, |_| 10_000));
        }
    }

    #[test]
    fn submillisecond_gaps_and_clock_steps_change_no_order() {
        let mut path = Path::new(5);
        assert!(!path.run(5000, |n| if n.is_multiple_of(2) { 20_000 } else { 15_500 }, |_| 0));
        assert_eq!(path.order.total(&Tuning::DEFAULT).late, 0);
        let mut path = Path::new(5);
        // Received in order, by stamps that go back and on.
        path.run(2000, |n| 20_000 + n, |_| 0);
        let mut stamped = path.order.window.clone();
        for (n, arrival) in stamped.iter_mut().enumerate() {
            let by = Duration::from_secs(mixed(n as u64) % 30);
            arrival.received_at += by;
        }
        path.order.window = stamped;
        assert_eq!(path.order.tally(&Tuning::DEFAULT).all.late, 0);
    }

    #[test]
    fn counts_from_before_a_receivebox_restart_are_ignored() {
        let mut path = Path::new(5);
        path.run(3000, |_| 20_000, |_| 0);
        path.order.forget_receivebox(&Tuning::DEFAULT);
        path.number = 0;
        assert!(!path.run(6000, |_| 20_000, |_| 0));
        assert_eq!(
            (path.order.total(&Tuning::DEFAULT).in_order, path.order.total(&Tuning::DEFAULT).late),
            (1800, 0)
        );
    }
}
