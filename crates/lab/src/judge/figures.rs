//! The figures that claims about plans are judged by.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::claims::{Claim, PlanClaims, SameOrder};
use super::{Behind, Interval, Judged, Results, SEED, VALUES_MIN, Verdict, Why};
use crate::metrics::{Pooling, describe};
use crate::plan::{Override, Plan, PlanError};
use crate::summary::baselines;

#[cfg(test)]
mod tests;

/// The results of a plan on a back end, and on the one beside.
#[derive(Clone, Copy)]
struct Sides<'a> {
    here: &'a Results,
    there: Option<&'a Results>,
}

/// Arms, which is one but for an order, and a cell.
struct Place<'a> {
    arms: Vec<&'a str>,
    cell: &'a str,
}

impl PlanClaims {
    /// Judges what was found on `backend`; `there` is what was found in the simulator, of which claims about the
    /// testbed may speak.
    pub fn judge(&self, backend: &str, here: &Results, there: Option<&Results>) -> Vec<Judged> {
        let (name, sides) = (self.part(backend), Sides { here, there });
        self.of(backend).flat_map(|claim| claim.judge(&name, sides)).collect()
    }

    /// The arms whose runs on `backend` a claim needs: no other is run.
    pub fn arms(&self, backend: &str) -> BTreeSet<&str> {
        let is_meant = |claim: &&Claim| {
            claim.is_beside() || claim.backend.as_ref().is_none_or(|only| only == backend)
        };
        let mut arms = BTreeSet::new();
        for claim in self.claim.iter().filter(is_meant) {
            let of_claim: Vec<&str> = claim.arms.iter().map(String::as_str).collect();
            arms.extend(claim.needed(&of_claim));
        }
        arms
    }

    /// The plan with the arms that the claims need on `backend`.
    ///
    /// # Errors
    /// There is no such plan, or it cannot be resolved.
    pub fn plan(&self, backend: &str) -> Result<Plan, PlanError> {
        let needed = self.arms(backend);
        let settings = self.settings().iter().map(|setting| Override::parse(setting));
        let mut sets: Vec<Override> = settings.collect::<Result<_, _>>()?;
        if self.as_published {
            sets.push(Override::algorithms(needed, "claims"));
            return Plan::load_as_published(&self.name, &sets);
        }
        let mut plan = Plan::load(&self.name, &sets)?;
        plan.arms.retain(|arm| needed.contains(arm.name.as_str()));
        Ok(plan)
    }

    /// What is claimed of these arms alone.
    pub fn of_arms(mut self, names: &BTreeSet<&str>) -> Self {
        for claim in &mut self.claim {
            claim.arms.retain(|arm| names.contains(arm.as_str()));
        }
        let is_of_some = |claim: &Claim| {
            let arms: Vec<&str> = claim.arms.iter().map(String::as_str).collect();
            !arms.is_empty() && claim.needed(&arms).iter().all(|arm| names.contains(arm))
        };
        self.claim.retain(is_of_some);
        self
    }

    /// Whether more seeds would hardly change a verdict: there are [`VALUES_MIN`], and every interval lies on one side
    /// of its bound. A bound on each run or on all of them together has no interval, and needs every seed. Claims about
    /// two back ends are judged by the runs that were made.
    pub fn is_decided(&self, backend: &str, here: &Results) -> bool {
        let sides = Sides { here, there: None };
        let is_settled = |claim: &Claim| {
            let needs_all = !claim.report_only && (claim.each_run || claim.is_of_all());
            let is_shown = |judged: &Judged| match (judged.verdict, judged.interval) {
                (Verdict::NotShown(_), _) => false,
                (_, interval) => interval.is_none_or(|found| claim.bound().is_settled(found)),
            };
            !needs_all && claim.judge("", sides).iter().all(is_shown)
        };
        let mut claims = self.of(backend).filter(|claim| !claim.is_beside());
        here.seeds.len() >= VALUES_MIN && claims.all(is_settled)
    }
}

impl Claim {
    fn judge(&self, plan: &str, sides: Sides<'_>) -> Vec<Judged> {
        let sides = Sides { there: sides.there.filter(|_| self.is_beside()), ..sides };
        let is_on_both = |seed: &u64| sides.there.is_none_or(|there| there.seeds.contains(seed));
        let seeds: Vec<u64> = sides.here.seeds.iter().copied().filter(is_on_both).collect();
        let each: Vec<Vec<u64>> = match self.each_run {
            true => seeds.iter().map(|seed| vec![*seed]).collect(),
            false => vec![seeds],
        };
        let arms: Vec<&str> = self.arms.iter().map(String::as_str).collect();
        let groups = if self.same_order.is_some() {
            vec![arms]
        } else {
            arms.chunks(1).map(<[_]>::to_vec).collect()
        };
        let is_meant = |cell: &&String| self.cells.is_empty() || self.cells.contains(cell);
        let cells: Vec<&String> = sides.here.cells.iter().filter(is_meant).collect();
        let mut judged = Vec::new();
        for arms in groups {
            for cell in &cells {
                let place = Place { arms: arms.clone(), cell };
                judged.extend(each.iter().map(|seeds| self.at(plan, sides, &place, seeds)));
            }
        }
        judged
    }

    /// Judges one place by the runs of `seeds`.
    fn at(&self, plan: &str, sides: Sides<'_>, place: &Place<'_>, seeds: &[u64]) -> Judged {
        let chance = self.chance(sides, place);
        let bound = self.widened(chance);
        let of_seed = |seed: &u64| match self.died(sides, place, *seed) {
            true => Some(bound.missed()),
            false => self.figure(sides, place, Some(*seed)),
        };
        let values: Vec<f64> = seeds.iter().filter_map(of_seed).collect();
        let judged = Judged {
            of: plan.into(),
            claim: self.text.clone(),
            place: self.place_words(sides, place, seeds),
            behind: self.behind(sides, place, seeds, values.len()),
            commit: sides.here.commits(&place.arms, place.cell),
            published: self.published(&place.arms, place.cell),
            chance: chance.filter(|_| bound != self.bound()),
            ..Judged::default()
        };
        let pooled = if self.each_run { None } else { self.figure(sides, place, None) };
        let has_died = seeds.iter().any(|seed| self.died(sides, place, *seed));
        let judged = match pooled {
            Some(_) if self.is_of_all() && has_died => judged.by_one(bound, Some(bound.missed())),
            Some(pooled) if self.is_of_all() => judged.by_one(bound, Some(pooled)),
            _ => judged.by_values(bound, &values, 1, SEED),
        };
        let mut judged = Judged { bound: self.bound_words(bound), ..judged };
        let is_there = |seed: &u64| {
            let needed = self.needed(&place.arms);
            needed.iter().all(|arm| sides.here.row(arm, place.cell, Some(*seed)).is_some())
        };
        if self.report_only && !seeds.is_empty() && seeds.iter().all(is_there) {
            // Not every run need have a figure of which nothing is claimed.
            judged.verdict = Verdict::Reported;
        } else if values.len() < seeds.len() {
            judged.verdict = Verdict::NotShown(Why::NotRun);
        }
        if pooled.is_none() { judged } else { judged.beside_pooled(bound, pooled) }
    }

    /// Whether the figure is of all runs together, such as the worst of them or a share of all time: then it does
    /// not vary, and the median would hide the one run that all of it is about.
    fn is_of_all(&self) -> bool {
        let is_of_all = |path: &String| {
            let metric = path.rsplit('/').next().unwrap_or(path);
            let pooling = describe(metric).map(|entry| entry.pooling);
            matches!(pooling, Some(Pooling::Time | Pooling::Sum | Pooling::Min | Pooling::Max))
        };
        let is_plain = self.over.is_none() && self.gap.is_none() && !self.is_beside();
        self.pooled || (is_plain && self.value.iter().any(is_of_all))
    }

    /// How far chance moves the figure at a place, as a ratio: that of `chance` to `over`, of all runs together or the
    /// median of the seeds.
    fn chance(&self, sides: Sides<'_>, place: &Place<'_>) -> Option<f64> {
        let arm = self.chance.as_deref()?;
        let value = |seed| self.value(sides.here, arm, place.cell, seed);
        if self.is_of_all() {
            return value(None);
        }
        let values: Vec<f64> = sides.here.seeds.iter().filter_map(|it| value(Some(*it))).collect();
        Some(Interval::of(&values, SEED)?.median)
    }

    /// The arms whose runs are needed for a figure of `arms`.
    fn needed<'a>(&'a self, arms: &[&'a str]) -> Vec<&'a str> {
        let mut needed = arms.to_vec();
        needed.extend(self.over.as_deref());
        needed.extend(self.chance.as_deref());
        needed.extend(self.gap.iter().flat_map(|gap| [gap.from.as_str(), gap.to.as_str()]));
        needed.extend(self.value.iter().flat_map(|metric| baselines(metric)));
        let mut seen = BTreeSet::new();
        needed.retain(|arm| seen.insert(*arm));
        needed
    }

    fn died(&self, sides: Sides<'_>, place: &Place<'_>, seed: u64) -> bool {
        let died = |results: &Results| {
            self.needed(&place.arms).iter().any(|arm| results.died(arm, place.cell, seed))
        };
        died(sides.here) || sides.there.is_some_and(died)
    }

    fn behind(&self, sides: Sides<'_>, place: &Place<'_>, seeds: &[u64], values: usize) -> Behind {
        let needed = self.needed(&place.arms);
        let made = |results: &Results| {
            needed.iter().map(|arm| results.made(arm, place.cell, seeds)).collect::<Vec<_>>()
        };
        let mut all = made(sides.here);
        for mut one in sides.there.map(made).into_iter().flatten() {
            one.arm += " beside";
            all.push(one);
        }
        Behind { values, wanted: seeds.len(), made: all }
    }

    /// Arms, cell and seed; of an order also which arms stand otherwise over all seeds.
    fn place_words(&self, sides: Sides<'_>, place: &Place<'_>, seeds: &[u64]) -> String {
        let seed = match (self.each_run, seeds) {
            (true, [seed]) => format!("seed {seed}"),
            _ => String::new(),
        };
        let words = [&place.arms.join(", "), place.cell, &seed];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let pairs = self.same_order.and_then(|order| self.pairs(order, sides, place, None));
        words.join(" ") + &pairs.map(|pairs| pairs.words()).unwrap_or_default()
    }

    /// The figure of one seed, or of all together; `None` without runs that have it.
    fn figure(&self, sides: Sides<'_>, place: &Place<'_>, seed: Option<u64>) -> Option<f64> {
        if let Some(order) = self.same_order {
            return Some(self.pairs(order, sides, place, seed)?.turned.len() as f64);
        }
        let value = |results: &Results| self.value(results, place.arms[0], place.cell, seed);
        match self.within {
            Some(within) => Some(within.distance(value(sides.here)?, value(sides.there?)?)),
            None => value(sides.here),
        }
    }

    fn pairs(
        &self,
        order: SameOrder,
        sides: Sides<'_>,
        place: &Place<'_>,
        seed: Option<u64>,
    ) -> Option<Pairs> {
        let figures = |results: &Results| -> Option<Vec<f64>> {
            place.arms.iter().map(|arm| self.value(results, arm, place.cell, seed)).collect()
        };
        Some(order.pairs(&place.arms, &figures(sides.here)?, &figures(sides.there?)?))
    }

    /// What is claimed of an arm on one back end.
    fn value(&self, results: &Results, arm: &str, cell: &str, seed: Option<u64>) -> Option<f64> {
        let mut baselines = self.value.iter().flat_map(|metric| baselines(metric));
        // Some comparisons do without an arm that a plan need not have, and are then others.
        if baselines.any(|arm| results.lacks(arm, cell, seed)) {
            return None;
        }
        let of = |arm: &str, paths: &[String]| results.row(arm, cell, seed)?.sum(paths);
        let value = of(arm, &self.value)?;
        if let Some(gap) = &self.gap {
            return Some(gap.closed(of(&gap.from, &self.value)?, of(&gap.to, &self.value)?, value));
        }
        let Some(over) = &self.over else { return Some(value) };
        let paths = if self.over_value.is_empty() { &self.value } else { &self.over_value };
        let base = of(over, paths)?;
        (base != 0.0).then(|| value / base)
    }
}

impl SameOrder {
    /// How one figure stands to another; tied ones are equal.
    fn compare(self, one: f64, other: f64) -> Ordering {
        match (one - other).abs() > self.apart * one.abs().min(other.abs()) {
            true => one.total_cmp(&other),
            false => Ordering::Equal,
        }
    }

    /// Every two of `arms` by their figures on both backends.
    fn pairs(self, arms: &[&str], here: &[f64], there: &[f64]) -> Pairs {
        let mut pairs = Pairs::default();
        for second in 1..arms.len() {
            for first in 0..second {
                let [here, there] =
                    [here, there].map(|figures| self.compare(figures[first], figures[second]));
                let words = format!("{} and {}", arms[first], arms[second]);
                match (here, there) {
                    (Ordering::Equal, _) | (_, Ordering::Equal) => pairs.tied.push(words),
                    _ if here != there => pairs.turned.push(words),
                    _ => {}
                }
            }
        }
        pairs
    }
}

/// Two arms each that do not stand in the same order on both backends.
#[derive(Debug, Default)]
struct Pairs {
    /// Too near to each other to have an order.
    tied: Vec<String>,
    /// Apart, and the other way round.
    turned: Vec<String>,
}

impl Pairs {
    fn words(&self) -> String {
        let lists = [("turned round", &self.turned), ("tied", &self.tied)];
        let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
        lists.map(|(name, list)| format!("; {name}: {}", list.join(", "))).collect()
    }
}
