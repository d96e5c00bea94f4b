//! How the receivebox's clock goes against the sendbox's, told from reports alone.
//!
//! ```text
//! way forth    received_at - sent_at          path and queue there, plus how far its clock is ahead
//! way back     report arrival - received_at   path and lateness back, minus the same
//! their sum    report arrival - sent_at       no foreign clock in it
//! ```
//! A queue or a route changes one way; a clock changes both by the same and oppositely. So of what the two
//! ways have changed, the clock's part is what they agree on, and no more than the lesser of both: what
//! is missing of it shows later, what is too much would be taken back by nothing.
//!
//! Of each stretch of a tenth of a second the least of either way is kept. **Drift** is the slope of lines
//! below them ([Moon, Skelly and Towsley](https://doi.org/10.1109/INFCOM.1999.749287)), over half a second
//! to ten: the shorter, the plainer it has to be. A **step** is a level that both leave from one stretch to
//! the next; steps in a row are a slew. Without either nothing is corrected at all.
//!
//! A law fills what a slow clock seems to empty, and the queue hides the drift. Where that may be so nine tenths of
//! the usual rate leave until there is no queue, for a second at most (a doubt). No composed round trip is shorter
//! than the least one on the sendbox's own clock but for the lateness of reports, and the base follows it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::cc::estimators::SlidingMin;
use crate::units::Timestamp;

#[cfg(test)]
mod tests;

/// Least time and reports of a stretch.
const STRETCH_S: f64 = 0.1;
const STRETCH_REPORTS: u32 = 6;
/// A pause that no stretch spans.
const PAUSE_S: f64 = 1.0;
/// Memory of stretches, and of the least of both ways together: longer than most queues stand (seconds).
const MEMORY_S: f64 = 10.0;
const STRETCHES_MAX: usize = 100;
const FLOOR_MEMORY_S: f64 = 30.0;
/// Stretches that drift is looked for in, and by how much both ways must have moved in them (seconds).
const WINDOWS: [(usize, f64); 5] =
    [(4, 10e-3), (8, 1.2e-3), (16, 0.6e-3), (32, 0.3e-3), (STRETCHES_MAX, 0.3e-3)];
/// Least movement over how far the stretches are above the line on average: what noise moves is less.
const PLAIN: f64 = 3.0;
const STRAIGHT: f64 = 10.0;
const STRAIGHT_FORTH: f64 = 7.0;
/// Least step (seconds).
const STEP_MIN_S: f64 = 2e-3;
/// Stretches before a step, at least and at most.
const BEFORE_MIN: usize = 3;
const BEFORE_MAX: usize = 9;
/// Stretches from which a slew and a step are told apart.
const SUSPECT_STRETCHES: usize = 4;
/// A suspicion is not left open for longer, however rare reports are (seconds).
const SUSPECT_MAX_S: f64 = 2.0;
/// Changes that differ by no more than this part are the same.
const SAME: f64 = 0.75;
/// Slopes that may be of one drift, the way forth over the way back: a drain of the queue adds to it.
const SAME_DRIFT: RangeInclusive<f64> = 0.6..=2.5;
/// Slopes that may be of one slew in a short window, in which queues of both ways may happen to move oppositely.
const SAME_SLEW: RangeInclusive<f64> = 0.8..=1.25;
/// In longer windows than this so small a part may be some of it.
const PART_MIN: f64 = 0.25;
const LONG: usize = 16;
/// Least time between doubts (seconds); doubles after some, and so many times.
const DOUBTS_FREE: u32 = 3;
const DOUBTS_MAX: u32 = 5;
const DOUBT_AGAIN_S: f64 = 2.5;
/// What ordinary clocks drift by, as a share, is not worth a doubt.
const QUARTZ: f64 = 80e-6;
/// Fastest slew that is followed as such, as a share: chrony's is 8.3 %.
pub const DRIFT_MAX: f64 = 0.2;

/// A least value and when it was seen (seconds).
#[derive(Clone, Copy, Debug)]
struct Least {
    at_s: f64,
    value_s: f64,
}

/// The least of both ways in a stretch, the clock's part taken out.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    forth: Least,
    back: Least,
    /// Least sum of both, in which no clock is.
    both_s: f64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    since_s: f64,
    reports: u32,
    stretch: Stretch,
}

/// Both ways have left these levels oppositely (seconds), so many stretches ago.
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    since_s: f64,
    forth_s: f64,
    back_s: f64,
    stretches: usize,
}

/// Ways relative to those of the first report: the clocks may be any distance apart.
#[derive(Clone, Copy, Debug)]
struct Origin {
    forth_ns: i64,
    back_ns: i64,
}

/// What of a report's times is not the foreign clock's doing.
#[derive(Clone, Copy, Debug)]
pub struct Corrected {
    /// When the packet was received, by a clock that goes like the sendbox's.
    pub received_at: Timestamp,
    /// The way back relative to the first report's (seconds).
    pub back_s: f64,
    /// What the stretch that has just ended tells of the clock.
    pub finding: Option<Finding>,
}

/// What is found out about a clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finding {
    /// The clock is ahead by so many seconds more than was known; corrections just before came too late.
    Ahead(f64),
    /// The clock was put on or back, or drifts otherwise: only ways back since then count.
    Anew,
    /// The way back changes as if the clock drifted, and the way forth, where a queue may hide it, does not.
    Doubt,
}

/// Follows the clock of a receivebox.
#[derive(Clone, Debug, Default)]
pub struct ForeignClock {
    origin: Option<Origin>,
    /// By how much it is ahead at `at` of its own time, since the first report (seconds), and how fast it is.
    ahead_s: f64,
    at: Timestamp,
    drift: f64,
    stretches: VecDeque<Stretch>,
    /// Least of both ways together, over longer than a queue stands.
    floor: SlidingMin,
    open: Option<Open>,
    suspicion: Option<Suspicion>,
    doubted_s: Option<f64>,
    /// Doubts since anything was found.
    doubts: u32,
    heard_s: Option<f64>,
}

impl ForeignClock {
    /// Takes a report that came at `now` of a packet that was sent and received then.
    pub fn on_report(
        &mut self,
        now: Timestamp,
        sent_at: Timestamp,
        received_at: Timestamp,
    ) -> Corrected {
        let forth_ns = received_at.signed_nanos_since(sent_at);
        let back_ns = now.signed_nanos_since(received_at);
        let now_s = now.as_secs_f64();
        if self.heard_s.replace(now_s).is_some_and(|heard_s| now_s - heard_s > PAUSE_S) {
            self.open = None;
        }
        let origin = *self.origin.get_or_insert(Origin { forth_ns, back_ns });
        let finding = self.close_stretch(now_s, received_at);
        let ahead_s = self.ahead_s(received_at);
        let forth_s = forth_ns.saturating_sub(origin.forth_ns) as f64 * 1e-9 - ahead_s;
        let back_s = back_ns.saturating_sub(origin.back_ns) as f64 * 1e-9 + ahead_s;
        self.add(now_s, forth_s, back_s);
        let nanos = i128::from(received_at.as_nanos()) - (ahead_s * 1e9) as i128;
        let received_at = Timestamp::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX));
        Corrected { received_at, back_s, finding }
    }

    /// Forgets what refers to how far the clock is ahead, and not how fast it is.
    pub fn restart(&mut self) {
        *self = Self { drift: self.drift, ..Self::default() };
    }

    /// The least ways back of the last ten seconds, oldest first, and when they were seen (seconds).
    pub fn ways_back(&self) -> impl Iterator<Item = (f64, f64)> {
        let open = self.open.map(|open| open.stretch);
        self.stretches.iter().copied().chain(open).map(|it| (it.back.at_s, it.back.value_s))
    }

    /// How fast the clock is, as a share; exactly zero until that is beyond doubt.
    #[cfg(test)]
    const fn drift(&self) -> f64 {
        self.drift
    }

    /// The clock has just been put on or back, or is being slewed: what reports say of times is not known yet.
    pub const fn is_suspect(&self) -> bool {
        self.suspicion.is_some()
    }

    fn ahead_s(&self, received_at: Timestamp) -> f64 {
        self.ahead_s + self.drift * received_at.signed_nanos_since(self.at) as f64 * 1e-9
    }

    fn add(&mut self, now_s: f64, forth_s: f64, back_s: f64) {
        let [forth, back] = [forth_s, back_s].map(|value_s| Least { at_s: now_s, value_s });
        let Some(open) = &mut self.open else {
            let stretch = Stretch { forth, back, both_s: forth_s + back_s };
            self.open = Some(Open { since_s: now_s, reports: 1, stretch });
            return;
        };
        open.reports += 1;
        open.stretch.both_s = open.stretch.both_s.min(forth_s + back_s);
        for (least, new) in [(&mut open.stretch.forth, forth), (&mut open.stretch.back, back)] {
            if new.value_s < least.value_s {
                *least = new;
            }
        }
    }

    fn close_stretch(&mut self, now_s: f64, received_at: Timestamp) -> Option<Finding> {
        let is_full =
            |open: &Open| open.reports >= STRETCH_REPORTS && now_s - open.since_s >= STRETCH_S;
        let open = self.open.take_if(|open| is_full(open))?;
        self.stretches.push_back(open.stretch);
        self.floor.push(now_s, open.stretch.both_s, FLOOR_MEMORY_S, 1);
        while self.stretches.len() > STRETCHES_MAX
            || self.stretches.front().is_some_and(|it| now_s - it.back.at_s > MEMORY_S)
        {
            self.stretches.pop_front();
        }
        if let Some(suspicion) = &mut self.suspicion {
            suspicion.stretches += 1;
            let suspicion = *suspicion;
            let is_long = now_s - suspicion.since_s > SUSPECT_MAX_S;
            if suspicion.stretches < SUSPECT_STRETCHES && !is_long {
                return None;
            }
            self.suspicion = None;
            return Some(self.resolve(&suspicion, now_s, received_at));
        }
        self.suspicion = self.suspect(now_s);
        if self.suspicion.is_some() {
            return None;
        }
        self.find_hidden_step(received_at).or_else(|| self.follow_drift(now_s, received_at))
    }

    /// What several drains have not told the next will hardly tell.
    fn doubt_again_s(&self) -> f64 {
        DOUBT_AGAIN_S * f64::from(1 << self.doubts.saturating_sub(DOUBTS_FREE).min(DOUBTS_MAX))
    }

    /// The clock is ahead by `by_s` more than was known, and faster by `drift`.
    fn correct(&mut self, received_at: Timestamp, by_s: f64, drift: f64) {
        self.doubts = 0;
        self.ahead_s = self.ahead_s(received_at) + by_s;
        self.at = received_at;
        self.drift = (self.drift + drift).clamp(-DRIFT_MAX, DRIFT_MAX);
    }

    /// Whether both ways have left their levels oppositely. The stretch just before the newest may hold
    /// both sides of a step.
    fn suspect(&self, now_s: f64) -> Option<Suspicion> {
        let newest = self.stretches.back()?;
        let before = self.stretches.len().checked_sub(2).filter(|it| *it >= BEFORE_MIN)?;
        let levels = self.stretches.range(before.saturating_sub(BEFORE_MAX)..before);
        let level = |way: fn(&Stretch) -> f64| {
            let least = levels.clone().map(way).fold(f64::INFINITY, f64::min);
            let noise = levels.clone().map(way).sum::<f64>() / levels.len() as f64 - least;
            let step_s = way(newest) - least;
            let is_step = libm::fabs(step_s) > STEP_MIN_S + PLAIN * noise;
            is_step.then_some((least, step_s))
        };
        let (forth_s, forth_step_s) = level(|it| it.forth.value_s)?;
        let (back_s, back_step_s) = level(|it| it.back.value_s)?;
        agreed(forth_step_s, -back_step_s)?;
        Some(Suspicion { since_s: now_s, forth_s, back_s, stretches: 0 })
    }

    /// Slew and step from the stretches since: nothing has reacted to them.
    fn resolve(&mut self, before: &Suspicion, now_s: f64, received_at: Timestamp) -> Finding {
        let since = self.stretches.len().saturating_sub(before.stretches);
        self.stretches.drain(..since);
        let lines = [
            line_below(self.stretches.iter().map(|it| it.forth)),
            line_below(self.stretches.iter().map(|it| it.back)),
        ];
        let slope = match lines {
            [Some(forth), Some(back)] if libm::fabs(back.slope) * STRETCH_S > back.above_s => {
                agreed(forth.slope, -back.slope).unwrap_or(0.0)
            }
            _ => 0.0,
        };
        for stretch in &mut self.stretches {
            stretch.take_out(now_s, 0.0, slope);
        }
        let least =
            |way: fn(&Stretch) -> f64| self.stretches.iter().map(way).fold(f64::INFINITY, f64::min);
        let forth_step_s = least(|it| it.forth.value_s) - before.forth_s;
        let back_step_s = least(|it| it.back.value_s) - before.back_s;
        let step_s = agreed(forth_step_s, -back_step_s).unwrap_or(0.0);
        for stretch in &mut self.stretches {
            stretch.take_out(now_s, step_s, 0.0);
        }
        self.correct(received_at, step_s, slope);
        Finding::Anew
    }

    /// A step that a queue has hidden on the way forth, as of a law that takes a shorter way for an emptier
    /// queue and fills it: the way back has left its level for good, and once the queue is empty again both
    /// ways together are as long as before.
    fn find_hidden_step(&mut self, received_at: Timestamp) -> Option<Finding> {
        let floor_s = self.floor.value()?;
        let stretches = self.stretches.make_contiguous();
        let cuts = BEFORE_MIN..stretches.len().saturating_sub(BEFORE_MIN);
        let (from, step_s) = cuts
            .filter_map(|cut| {
                let (before, after) = stretches.split_at(cut);
                let [before, after] = [Level::of(before), Level::of(after)];
                let step_s = before.back_s - after.back_s;
                let size_s = libm::fabs(step_s);
                let is_step = size_s > STEP_MIN_S + PLAIN * (before.above_s + after.above_s);
                let is_clock = before.both_s.max(after.both_s) - floor_s < PART_MIN * size_s;
                (is_step && is_clock).then_some((cut, step_s))
            })
            .max_by(|one, two| libm::fabs(one.1).total_cmp(&libm::fabs(two.1)))?;
        for stretch in &mut stretches[from..] {
            stretch.take_out(0.0, step_s, 0.0);
        }
        self.correct(received_at, step_s, 0.0);
        Some(Finding::Anew)
    }

    fn follow_drift(&mut self, now_s: f64, received_at: Timestamp) -> Option<Finding> {
        let mut is_doubted = false;
        let mut before = BEFORE_MIN;
        for (len, moved_min_s) in WINDOWS {
            let len = len.min(self.stretches.len());
            if len <= before {
                break;
            }
            before = len;
            let from = self.stretches.len() - len;
            let window = || self.stretches.range(from..);
            let start_s = self.stretches.get(from)?.back.at_s;
            let span_s = now_s - start_s;
            let has_moved = |slope: f64| libm::fabs(slope) * span_s > moved_min_s;
            let [straight, straight_forth] =
                if len > LONG { [PLAIN; 2] } else { [STRAIGHT, STRAIGHT_FORTH] };
            let back = line_below(window().map(|it| it.back))?;
            if !has_moved(back.slope) || libm::fabs(back.slope) * span_s < straight * back.above_s {
                continue;
            }
            let forth = line_below(window().map(|it| it.forth))?;
            // A queue that happens to move with the clock moves by another amount, and not as straight.
            let ratio = libm::fabs(forth.slope / back.slope);
            let is_plain = libm::fabs(forth.slope) * span_s > straight_forth * forth.above_s;
            let is_plain = if len > LONG {
                SAME_DRIFT.contains(&ratio) || is_plain && ratio > PART_MIN
            } else {
                SAME_SLEW.contains(&ratio) && is_plain
            };
            let agreed =
                agreed(forth.slope, -back.slope).filter(|slope| is_plain && has_moved(*slope));
            let Some(drift) = agreed else {
                is_doubted |= libm::fabs(back.slope) > QUARTZ;
                continue;
            };
            for stretch in self.stretches.range_mut(from..) {
                stretch.take_out(start_s, 0.0, drift);
            }
            self.correct(received_at, drift * span_s, drift);
            if libm::fabs(drift * span_s) > STEP_MIN_S {
                self.stretches.drain(..from);
            }
            return Some(Finding::Ahead(drift * span_s));
        }
        let is_due =
            self.doubted_s.is_none_or(|doubted_s| now_s - doubted_s > self.doubt_again_s());
        (is_doubted && is_due).then(|| {
            self.doubted_s = Some(now_s);
            self.doubts += 1;
            Finding::Doubt
        })
    }
}

impl Stretch {
    /// The clock is ahead by `ahead_s` at `at_s` and fast by `drift`.
    fn take_out(&mut self, at_s: f64, ahead_s: f64, drift: f64) {
        self.forth.value_s -= ahead_s + drift * (self.forth.at_s - at_s);
        self.back.value_s += ahead_s + drift * (self.back.at_s - at_s);
    }
}

/// Least way back of some stretches, how far theirs are above it on average, and the least of both ways
/// (seconds).
#[derive(Clone, Copy, Debug)]
struct Level {
    back_s: f64,
    above_s: f64,
    both_s: f64,
}

impl Level {
    fn of(stretches: &[Stretch]) -> Self {
        let backs = stretches.iter().map(|it| it.back.value_s);
        let back_s = backs.clone().fold(f64::INFINITY, f64::min);
        let above_s = backs.sum::<f64>() / stretches.len() as f64 - back_s;
        let both_s = stretches.iter().map(|it| it.both_s).fold(f64::INFINITY, f64::min);
        Self { back_s, above_s, both_s }
    }
}

/// What two changes agree on. Where they are about the same it is all of that on the way back, where no
/// queue of this bundle is.
fn agreed(forth: f64, back: f64) -> Option<f64> {
    let is_all = libm::fabs(forth) >= SAME * libm::fabs(back);
    (forth * back > 0.0).then_some(if is_all { back } else { forth })
}

#[derive(Clone, Copy, Debug)]
struct Line {
    slope: f64,
    /// How far the points are above it on average (seconds).
    above_s: f64,
}

/// The line below all `points`, which are in order of time, that is closest to them: the edge of their lower
/// hull in the middle of their times. `None` of fewer than two.
fn line_below(points: impl Iterator<Item = Least> + Clone) -> Option<Line> {
    let is_above = |one: &Least, two: &Least, three: &Least| {
        (two.value_s - one.value_s) * (three.at_s - one.at_s)
            >= (three.value_s - one.value_s) * (two.at_s - one.at_s)
    };
    let mut hull: Vec<Least> = Vec::with_capacity(STRETCHES_MAX);
    for point in points.clone() {
        while let [.., one, two] = hull.as_slice()
            && is_above(one, two, &point)
        {
            hull.pop();
        }
        hull.push(point);
    }
    let count = points.clone().count() as f64;
    let middle_s = points.clone().map(|point| point.at_s).sum::<f64>() / count;
    let mean_s = points.map(|point| point.value_s).sum::<f64>() / count;
    let edge = hull.windows(2).find(|edge| edge[1].at_s >= middle_s)?;
    let slope = (edge[1].value_s - edge[0].value_s) / (edge[1].at_s - edge[0].at_s);
    let below_s = edge[0].value_s + slope * (middle_s - edge[0].at_s);
    slope.is_finite().then_some(Line { slope, above_s: mean_s - below_s })
}
