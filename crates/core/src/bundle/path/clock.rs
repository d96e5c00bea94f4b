//! Estimates the receivebox's clock relative to the sendbox's, from reports alone.
//!
//! ```text
//! way forth    received_at - sent_at          path and queue there, plus how far its clock is ahead
//! way back     report arrival - received_at   path and lateness back, minus the same
//! their sum    report arrival - sent_at       no foreign clock in it
//! ```
//! A queue or a route changes one way. A clock changes both ways by the same amount in opposite
//! directions. So the clock's part is the change that both ways agree on, at most the smaller of the two.
//! A part that was missed shows up later, but nothing would take back an excess.
//!
//! The minimum of either way is kept for each stretch of a tenth of a second. **Drift** is the slope of
//! lines below these minima ([Moon, Skelly and Towsley](https://doi.org/10.1109/INFCOM.1999.749287)),
//! over half a second to ten. A shorter window needs clearer evidence. A **step** is a level that both
//! ways leave from one stretch to the next; steps in a row are a slew. Without drift or step nothing is corrected.
//!
//! A controller fills a queue that a slow clock makes look empty, and that queue hides the drift. In such
//! a doubt the sendbox sends a part of the usual rate until the queue is empty, for at most half of the
//! time between doubts. No composed round trip is shorter than the least one on the sendbox's own clock,
//! minus the lateness of reports, and the base follows that bound.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::bundle::tuning::Tuning;
use crate::cc::estimators::SlidingMin;
use crate::units::Timestamp;

#[cfg(test)]
mod tests;

/// Maximum number of doublings of the time between doubts; bounds that time.
const DOUBTS_MAX: u32 = 5;
/// Fastest slew that is followed as a slew, as a share. Bounds the effect of a faulty clock. chrony's is
/// 8.3 %.
pub const DRIFT_MAX: f64 = 0.2;

/// A least value and when it was seen (seconds).
#[derive(Clone, Copy, Debug)]
struct Least {
    at_s: f64,
    value_s: f64,
}

/// Minima of both ways in a stretch, with the clock's part removed.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    forth: Least,
    back: Least,
    /// Least sum of both ways, which no clock offset affects.
    both_s: f64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    since_s: f64,
    reports: u32,
    stretch: Stretch,
}

/// Both ways have left these levels (seconds) in opposite directions, `stretches` stretches ago.
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    since_s: f64,
    forth_s: f64,
    back_s: f64,
    stretches: usize,
}

/// Ways of the first report, from which all later ways are counted: the offset between the clocks is unbounded.
#[derive(Clone, Copy, Debug)]
struct Origin {
    forth_ns: i64,
    back_ns: i64,
}

/// Times of a report without the error of the receivebox's clock.
#[derive(Clone, Copy, Debug)]
pub struct Corrected {
    /// When the packet was received, by a clock that goes like the sendbox's.
    pub received_at: Timestamp,
    /// The way back relative to the first report's (seconds).
    pub back_s: f64,
    /// Finding about the clock from the stretch that has just ended.
    pub finding: Option<Finding>,
}

/// A finding about a clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finding {
    /// The clock is ahead by this many seconds more than was known; recent corrections came too late.
    Ahead(f64),
    /// The clock was stepped, or its drift changed: only ways back since then count.
    Anew,
    /// The way back changes as if the clock drifted. The way forth, where a queue may hide drift, does not.
    Doubt,
}

/// Follows the clock of a receivebox.
#[derive(Clone, Debug, Default)]
pub struct ForeignClock {
    origin: Option<Origin>,
    /// How far the clock is ahead at `at` of its own time, since the first report (seconds), and how fast
    /// it is.
    ahead_s: f64,
    at: Timestamp,
    drift: f64,
    stretches: VecDeque<Stretch>,
    /// Least sum of both ways, over a time longer than a queue persists.
    floor: SlidingMin,
    open: Option<Open>,
    suspicion: Option<Suspicion>,
    doubted_s: Option<f64>,
    /// Doubts since anything was found.
    doubts: u32,
    heard_s: Option<f64>,
}

impl ForeignClock {
    /// Takes a report that arrived at `now`, of a packet sent at `sent_at` and received at `received_at`.
    pub fn on_report(
        &mut self,
        tuning: &Tuning,
        now: Timestamp,
        sent_at: Timestamp,
        received_at: Timestamp,
    ) -> Corrected {
        let forth_ns = received_at.signed_nanos_since(sent_at);
        let back_ns = now.signed_nanos_since(received_at);
        let now_s = now.as_secs_f64();
        if self
            .heard_s
            .replace(now_s)
            .is_some_and(|heard_s| now_s - heard_s > tuning.pause().as_secs_f64())
        {
            self.open = None;
        }
        let origin = *self.origin.get_or_insert(Origin { forth_ns, back_ns });
        let finding = self.close_stretch(tuning, now_s, received_at);
        let ahead_s = self.ahead_s(received_at);
        let forth_s = forth_ns.saturating_sub(origin.forth_ns) as f64 * 1e-9 - ahead_s;
        let back_s = back_ns.saturating_sub(origin.back_ns) as f64 * 1e-9 + ahead_s;
        self.add(now_s, forth_s, back_s);
        let nanos = i128::from(received_at.as_nanos()) - (ahead_s * 1e9) as i128;
        let received_at = Timestamp::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX));
        Corrected { received_at, back_s, finding }
    }

    /// Forgets everything but the drift of the clock: all else refers to its offset.
    pub fn restart(&mut self) {
        *self = Self { drift: self.drift, ..Self::default() };
    }

    /// The least ways back of the last ten seconds, oldest first, and when they were seen (seconds).
    pub fn ways_back(&self) -> impl Iterator<Item = (f64, f64)> {
        let open = self.open.map(|open| open.stretch);
        self.stretches.iter().copied().chain(open).map(|it| (it.back.at_s, it.back.value_s))
    }

    /// How fast the clock is, as a share; exactly zero until a drift is certain.
    #[cfg(test)]
    const fn drift(&self) -> f64 {
        self.drift
    }

    /// The clock has just been stepped or is being slewed; the times in reports are not usable yet.
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

    fn close_stretch(
        &mut self,
        tuning: &Tuning,
        now_s: f64,
        received_at: Timestamp,
    ) -> Option<Finding> {
        // Half as many again: the least of fewer reports is noisier, and noise looks like a clock that moves.
        let is_full = |open: &Open| {
            open.reports >= tuning.reports_few * 3 / 2
                && now_s - open.since_s >= tuning.reports_time.as_secs_f64()
        };
        let open = self.open.take_if(|open| is_full(open))?;
        self.stretches.push_back(open.stretch);
        self.floor.push(now_s, open.stretch.both_s, tuning.long_memory().as_secs_f64(), 1);
        while self.stretches.len() > stretches_max(tuning)
            || self
                .stretches
                .front()
                .is_some_and(|it| now_s - it.back.at_s > tuning.feedback_memory.as_secs_f64())
        {
            self.stretches.pop_front();
        }
        if let Some(suspicion) = &mut self.suspicion {
            suspicion.stretches += 1;
            let suspicion = *suspicion;
            // Matched reports answer nothing meanwhile: it ends before reports count as missing.
            let is_long = now_s - suspicion.since_s > 2.0 * tuning.pause().as_secs_f64();
            if suspicion.stretches < tuning.reports_few as usize && !is_long {
                return None;
            }
            self.suspicion = None;
            return Some(self.resolve(tuning, &suspicion, now_s, received_at));
        }
        self.suspicion = self.suspect(tuning, now_s);
        if self.suspicion.is_some() {
            return None;
        }
        self.find_hidden_step(tuning, received_at)
            .or_else(|| self.follow_drift(tuning, now_s, received_at))
    }

    /// Time until the next doubt (seconds): it doubles with each drain that settled nothing, beyond a few.
    fn doubt_again_s(&self, tuning: &Tuning) -> f64 {
        tuning.waited_max.as_secs_f64()
            * f64::from(1 << self.doubts.saturating_sub(tuning.persistent).min(DOUBTS_MAX))
    }

    /// The clock is ahead by `by_s` more than was known, and faster by `drift`.
    fn correct(&mut self, received_at: Timestamp, by_s: f64, drift: f64) {
        self.doubts = 0;
        self.ahead_s = self.ahead_s(received_at) + by_s;
        self.at = received_at;
        self.drift = (self.drift + drift).clamp(-DRIFT_MAX, DRIFT_MAX);
    }

    /// Whether both ways have left their levels in opposite directions. The stretch just before the
    /// newest may hold both sides of a step.
    fn suspect(&self, tuning: &Tuning, now_s: f64) -> Option<Suspicion> {
        let newest = self.stretches.back()?;
        let before =
            self.stretches.len().checked_sub(2).filter(|it| *it >= tuning.persistent as usize)?;
        let levels =
            self.stretches.range(before.saturating_sub(tuning.reports_few as usize * 2)..before);
        let level = |way: fn(&Stretch) -> f64| {
            let least = levels.clone().map(way).fold(f64::INFINITY, f64::min);
            let noise = levels.clone().map(way).sum::<f64>() / levels.len() as f64 - least;
            let step_s = way(newest) - least;
            let is_step =
                libm::fabs(step_s) > step_min_s(tuning) + tuning.chance_deviations * noise;
            is_step.then_some((least, step_s))
        };
        let (forth_s, forth_step_s) = level(|it| it.forth.value_s)?;
        let (back_s, back_step_s) = level(|it| it.back.value_s)?;
        agreed(tuning, forth_step_s, -back_step_s)?;
        Some(Suspicion { since_s: now_s, forth_s, back_s, stretches: 0 })
    }

    /// Estimates slew and step from the stretches since then. No controller has reacted to them yet.
    fn resolve(
        &mut self,
        tuning: &Tuning,
        before: &Suspicion,
        now_s: f64,
        received_at: Timestamp,
    ) -> Finding {
        let since = self.stretches.len().saturating_sub(before.stretches);
        self.stretches.drain(..since);
        let lines = [
            line_below(self.stretches.iter().map(|it| it.forth)),
            line_below(self.stretches.iter().map(|it| it.back)),
        ];
        let slope = match lines {
            [Some(forth), Some(back)]
                if libm::fabs(back.slope) * tuning.reports_time.as_secs_f64() > back.above_s =>
            {
                agreed(tuning, forth.slope, -back.slope).unwrap_or(0.0)
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
        let step_s = agreed(tuning, forth_step_s, -back_step_s).unwrap_or(0.0);
        for stretch in &mut self.stretches {
            stretch.take_out(now_s, step_s, 0.0);
        }
        self.correct(received_at, step_s, slope);
        Finding::Anew
    }

    /// Finds a step that a queue has hidden on the way forth. A controller may take a shorter way for an
    /// emptier queue and fill it. Then the way back has left its level for good. Once the queue is empty
    /// again, both ways together are as long as before.
    fn find_hidden_step(&mut self, tuning: &Tuning, received_at: Timestamp) -> Option<Finding> {
        let floor_s = self.floor.value()?;
        let stretches = self.stretches.make_contiguous();
        let least = tuning.persistent as usize;
        let cuts = least..stretches.len().saturating_sub(least);
        let (from, step_s) = cuts
            .filter_map(|cut| {
                let (before, after) = stretches.split_at(cut);
                let [before, after] = [Level::of(before), Level::of(after)];
                let step_s = before.back_s - after.back_s;
                let size_s = libm::fabs(step_s);
                let is_step = size_s
                    > step_min_s(tuning)
                        + tuning.chance_deviations * (before.above_s + after.above_s);
                let is_clock =
                    before.both_s.max(after.both_s) - floor_s < tuning.clock_part * size_s;
                (is_step && is_clock).then_some((cut, step_s))
            })
            .max_by(|one, two| libm::fabs(one.1).total_cmp(&libm::fabs(two.1)))?;
        for stretch in &mut stretches[from..] {
            stretch.take_out(0.0, step_s, 0.0);
        }
        self.correct(received_at, step_s, 0.0);
        Some(Finding::Anew)
    }

    fn follow_drift(
        &mut self,
        tuning: &Tuning,
        now_s: f64,
        received_at: Timestamp,
    ) -> Option<Finding> {
        let mut is_doubted = false;
        let mut before = tuning.persistent as usize;
        for (len, moved_min_s) in windows(tuning) {
            let len = len.min(self.stretches.len());
            if len <= before {
                continue;
            }
            before = len;
            let from = self.stretches.len() - len;
            let window = || self.stretches.range(from..);
            let start_s = self.stretches.get(from)?.back.at_s;
            let span_s = now_s - start_s;
            let has_moved = |slope: f64| libm::fabs(slope) * span_s > moved_min_s;
            let is_long = len > (tuning.reports_few as usize) << 2;
            let straight = if is_long { tuning.chance_deviations } else { tuning.clock_straight };
            let back = line_below(window().map(|it| it.back))?;
            if !has_moved(back.slope) || libm::fabs(back.slope) * span_s < straight * back.above_s {
                continue;
            }
            let forth = line_below(window().map(|it| it.forth))?;
            // A queue that happens to move with the clock moves by another amount, and less evenly.
            let ratio = libm::fabs(forth.slope / back.slope);
            let is_plain = libm::fabs(forth.slope) * span_s > straight * forth.above_s;
            let is_plain = if is_long {
                (tuning.clock_same_drift_min..=tuning.clock_same_drift_max).contains(&ratio)
                    || is_plain && ratio > tuning.clock_part
            } else {
                let least = 1.0 - tuning.clock_part;
                (least..=1.0 / least).contains(&ratio) && is_plain
            };
            let agreed = agreed(tuning, forth.slope, -back.slope)
                .filter(|slope| is_plain && has_moved(*slope));
            let Some(drift) = agreed else {
                is_doubted |= libm::fabs(back.slope) > skew(tuning);
                continue;
            };
            for stretch in self.stretches.range_mut(from..) {
                stretch.take_out(start_s, 0.0, drift);
            }
            self.correct(received_at, drift * span_s, drift);
            if libm::fabs(drift * span_s) > step_min_s(tuning) {
                self.stretches.drain(..from);
            }
            return Some(Finding::Ahead(drift * span_s));
        }
        let is_due =
            self.doubted_s.is_none_or(|doubted_s| now_s - doubted_s > self.doubt_again_s(tuning));
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

/// Least way back of some stretches, the mean excess of their minima over it, and the least sum of both
/// ways (seconds).
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

/// Tolerated drift between the two clocks, as a share: the delay noise over the feedback memory.
pub fn skew(tuning: &Tuning) -> f64 {
    tuning.delay_noise.as_secs_f64() / tuning.feedback_memory.as_secs_f64()
}

/// Smallest step that is detected (seconds). The levels before and after it are both noisy. A way back
/// that changes by this much more than both ways take was stepped at once.
pub fn step_min_s(tuning: &Tuning) -> f64 {
    2.0 * tuning.delay_noise.as_secs_f64()
}

/// Most stretches remembered under any tuning: the search for a step compares every pair of stretches.
const STRETCHES_MAX: usize = 400;

/// Number of stretches remembered: as many as the memory time has room for.
fn stretches_max(tuning: &Tuning) -> usize {
    let fitting = (tuning.feedback_memory.as_nanos() / tuning.reports_time.as_nanos()) as usize;
    fitting.clamp(4 * tuning.persistent as usize, STRETCHES_MAX)
}

/// Window lengths for drift (stretches), and how far both ways must have moved in each (seconds).
fn windows(tuning: &Tuning) -> [(usize, f64); 5] {
    let least = tuning.reports_few as usize;
    let noise_s = tuning.delay_noise.as_secs_f64();
    let long_s = noise_s / 2.0;
    [
        (least, tuning.clock_straight * noise_s),
        (least << 1, noise_s),
        (least << 2, long_s),
        (least << 3, long_s / 2.0),
        (stretches_max(tuning), long_s / 2.0),
    ]
}

/// The part that two changes agree on. If they are about equal, the change of the way back is taken
/// whole, because this bundle has no queue there.
fn agreed(tuning: &Tuning, forth: f64, back: f64) -> Option<f64> {
    let is_all = libm::fabs(forth) >= (1.0 - tuning.clock_part) * libm::fabs(back);
    (forth * back > 0.0).then_some(if is_all { back } else { forth })
}

#[derive(Clone, Copy, Debug)]
struct Line {
    slope: f64,
    /// Mean distance of the points above the line (seconds).
    above_s: f64,
}

/// The closest line below all `points`, which are in order of time: the edge of their lower hull in the
/// middle of their times. `None` for fewer than two points.
fn line_below(points: impl Iterator<Item = Least> + Clone) -> Option<Line> {
    let is_above = |one: &Least, two: &Least, three: &Least| {
        (two.value_s - one.value_s) * (three.at_s - one.at_s)
            >= (three.value_s - one.value_s) * (two.at_s - one.at_s)
    };
    let mut hull: Vec<Least> = Vec::new();
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
