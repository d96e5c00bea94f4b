//! The figures that claims about plans are judged by.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::claims::{Claim, PlanClaims, SameOrder};
use super::{Behind, ClaimResults, Interval, Judged, SEED, VALUES_MIN, Verdict, Why};
use crate::metrics::{Pooling, describe};
use crate::plan::{Override, Plan, PlanError};
use crate::summary::baselines;

#[cfg(test)]
mod tests;

/// The results of a plan on one back end, and on the other that claims may compare with.
#[derive(Clone, Copy)]
struct Sides<'a> {
    here: &'a ClaimResults,
    there: Option<&'a ClaimResults>,
    /// Cells about which nothing is shown.
    void: &'a [&'a str],
}

/// The arms of a figure and a cell. Only an order has more than one arm.
struct ArmsInCell<'a> {
    arms: Vec<&'a str>,
    cell: &'a str,
}

impl PlanClaims {
    /// Judges the results on `backend`; `there` holds the simulator's results, for claims that compare the
    /// testbed with it.
    pub fn judge(
        &self,
        backend: &str,
        here: &ClaimResults,
        there: Option<&ClaimResults>,
    ) -> Vec<Judged> {
        let (name, void) = (self.part(backend), self.void_cells(backend, here));
        let sides = Sides { here, there, void: &void };
        self.of(backend).flat_map(|claim| claim.judge(&name, sides)).collect()
    }

    /// The cells in which a control is not met.
    fn void_cells<'a>(&self, backend: &str, here: &'a ClaimResults) -> Vec<&'a str> {
        let sides = Sides { here, there: None, void: &[] };
        let is_void = |cell: &&str| {
            let mut controls = self.of(backend).filter(|claim| claim.control && claim.is_of(cell));
            let is_met = |judged: Judged| judged.verdict == Verdict::Met;
            !controls.all(|claim| claim.in_cell("", sides, cell).into_iter().all(is_met))
        };
        here.cells.iter().map(String::as_str).filter(is_void).collect()
    }

    /// The arms of `cell` that need more values: arms of unsettled claims that need several values, along
    /// with the arms that these are compared with.
    pub fn open_arms(&self, here: &ClaimResults, cell: &str) -> BTreeSet<String> {
        let sides = Sides { here, there: None, void: &[] };
        let needs_several = |claim: &&Claim| claim.least.is_some_and(|least| least > 1);
        let mut open = BTreeSet::new();
        for claim in self.claim.iter().filter(needs_several).filter(|claim| claim.is_of(cell)) {
            for (arm, judged) in claim.arms.iter().zip(claim.in_cell("", sides, cell)) {
                let is_enough = judged.behind.values >= judged.behind.wanted;
                let is_settled =
                    judged.interval.is_some_and(|found| claim.bound().is_settled(found));
                if !(is_enough && is_settled) {
                    open.extend(claim.needed(&[arm.as_str()]).into_iter().map(String::from));
                }
            }
        }
        open
    }

    /// The arms whose runs on `backend` a claim needs; no other arm is run.
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

    /// The claims that need these arms alone.
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

    /// Whether more seeds would hardly change a verdict: every claim has [`VALUES_MIN`] values, and its
    /// interval lies on one side of its bound. A bound on each run or on the figure of all runs has no
    /// interval, so it needs every seed. Claims between two back ends use the runs that exist.
    pub fn is_decided(&self, backend: &str, here: &ClaimResults) -> bool {
        let sides = Sides { here, there: None, void: &[] };
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
        let is_meant = |cell: &&String| self.is_of(cell);
        let cells: Vec<&String> = sides.here.cells.iter().filter(is_meant).collect();
        let mut judged = Vec::new();
        for arms in groups {
            for cell in &cells {
                let place = ArmsInCell { arms: arms.clone(), cell };
                judged.extend(each.iter().map(|seeds| self.at(plan, sides, &place, seeds)));
            }
        }
        judged
    }

    /// Whether it is about `cell`.
    fn is_of(&self, cell: &str) -> bool {
        self.cells.is_empty() || self.cells.iter().any(|known| known == cell)
    }

    /// Judges each arm in one cell by all seeds.
    fn in_cell(&self, plan: &str, sides: Sides<'_>, cell: &str) -> Vec<Judged> {
        let of_arm = |arm: &String| {
            let place = ArmsInCell { arms: vec![arm.as_str()], cell };
            self.at(plan, sides, &place, &sides.here.seeds)
        };
        self.arms.iter().map(of_arm).collect()
    }

    /// Judges one place by the runs of `seeds`.
    fn at(&self, plan: &str, sides: Sides<'_>, place: &ArmsInCell<'_>, seeds: &[u64]) -> Judged {
        let chance = self.chance(sides, place);
        let noise = self.noise.as_ref().and_then(|it| self.pooled_of(sides, place, &it.arm));
        let bound = self.widened(chance, noise);
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
            _ => judged.by_values(bound, &values, self.least.unwrap_or(1), SEED),
        };
        let mut judged = Judged { bound: self.bound_words(bound), ..judged };
        let is_there = |seed: &u64| {
            let needed = self.needed(&place.arms);
            needed.iter().all(|arm| sides.here.row(arm, place.cell, Some(*seed)).is_some())
        };
        if self.report_only && !seeds.is_empty() && seeds.iter().all(is_there) {
            // If nothing is claimed of a figure, some runs may lack it.
            judged.verdict = Verdict::Reported;
        } else if values.is_empty() || (self.least.is_none() && values.len() < seeds.len()) {
            judged.verdict = Verdict::NotShown(Why::NotRun);
        } else if !self.is_steady(sides, place) {
            judged.verdict = Verdict::NotShown(Why::Unsteady);
        } else if !self.control && sides.void.contains(&place.cell) {
            judged.verdict = Verdict::NotShown(Why::Void);
        } else if self.whole && judged.verdict == Verdict::Met {
            let is_settled = judged.interval.is_some_and(|found| bound.is_settled(found));
            judged.verdict = if is_settled { Verdict::Met } else { Verdict::Open };
        }
        if pooled.is_none() { judged } else { judged.beside_pooled(bound, pooled) }
    }

    /// Whether the figure is taken from all runs together, such as the worst run or a share of all time. Such
    /// a figure does not vary, and the median would hide the single run that decides it.
    fn is_of_all(&self) -> bool {
        let is_of_all = |path: &String| {
            let metric = path.rsplit('/').next().unwrap_or(path);
            let pooling = describe(metric).map(|entry| entry.pooling);
            matches!(pooling, Some(Pooling::Time | Pooling::Sum | Pooling::Min | Pooling::Max))
        };
        let is_plain = self.over.is_none() && self.gap.is_none() && !self.is_beside();
        self.pooled || (is_plain && self.value.iter().any(is_of_all))
    }

    /// How far chance moves the figure at a place: the ratio of the arm `chance` to `over`. Taken from all
    /// runs together, or as the median of the seeds.
    fn chance(&self, sides: Sides<'_>, place: &ArmsInCell<'_>) -> Option<f64> {
        let arm = self.chance.as_deref()?;
        let value = |seed| self.value(sides.here, arm, place.cell, seed);
        if self.is_of_all() {
            return value(None);
        }
        let values: Vec<f64> = sides.here.seeds.iter().filter_map(|it| value(Some(*it))).collect();
        Some(Interval::of(&values, SEED)?.median)
    }

    /// The figure of `arm` over all seeds.
    fn pooled_of(&self, sides: Sides<'_>, place: &ArmsInCell<'_>, arm: &str) -> Option<f64> {
        sides.here.row(arm, place.cell, None)?.sum(&self.value)
    }

    /// Whether the arm that differs by chance alone does so by a small amount.
    fn is_steady(&self, sides: Sides<'_>, place: &ArmsInCell<'_>) -> bool {
        let Some(steady) = &self.steady else { return true };
        let Some(row) = sides.here.row(&steady.arm, place.cell, None) else { return false };
        let is_within = |path: &String| {
            row.sum(std::slice::from_ref(path)).is_some_and(|it| it <= steady.at_most)
        };
        steady.value.iter().all(is_within)
    }

    /// The arms that serve as a reference in comparisons.
    fn compared_with(&self) -> impl Iterator<Item = &str> {
        let noise = self.noise.iter().map(|noise| noise.arm.as_str());
        let steady = self.steady.iter().map(|steady| steady.arm.as_str());
        let named = self.baseline.as_deref().into_iter().chain(noise).chain(steady);
        let of_metrics = self.value.iter().filter(|_| self.baseline.is_none());
        named.chain(of_metrics.flat_map(|metric| baselines(metric).iter().copied()))
    }

    /// The arms whose runs are needed for a figure of `arms`.
    fn needed<'a>(&'a self, arms: &[&'a str]) -> Vec<&'a str> {
        let mut needed = arms.to_vec();
        needed.extend(self.over.as_deref());
        needed.extend(self.chance.as_deref());
        needed.extend(self.gap.iter().flat_map(|gap| [gap.from.as_str(), gap.to.as_str()]));
        needed.extend(self.compared_with());
        let mut seen = BTreeSet::new();
        needed.retain(|arm| seen.insert(*arm));
        needed
    }

    fn died(&self, sides: Sides<'_>, place: &ArmsInCell<'_>, seed: u64) -> bool {
        let died = |results: &ClaimResults| {
            self.needed(&place.arms).iter().any(|arm| results.died(arm, place.cell, seed))
        };
        died(sides.here) || sides.there.is_some_and(died)
    }

    fn behind(
        &self,
        sides: Sides<'_>,
        place: &ArmsInCell<'_>,
        seeds: &[u64],
        values: usize,
    ) -> Behind {
        let needed = self.needed(&place.arms);
        let made = |results: &ClaimResults| {
            needed.iter().map(|arm| results.made(arm, place.cell, seeds)).collect::<Vec<_>>()
        };
        let mut all = made(sides.here);
        for mut one in sides.there.map(made).into_iter().flatten() {
            one.arm += " beside";
            all.push(one);
        }
        Behind { values, wanted: self.least.unwrap_or(seeds.len()), made: all }
    }

    /// Arms, cell and seed. For an order, also the arms that are in another order over all seeds.
    fn place_words(&self, sides: Sides<'_>, place: &ArmsInCell<'_>, seeds: &[u64]) -> String {
        let seed = match (self.each_run, seeds) {
            (true, [seed]) => format!("seed {seed}"),
            _ => String::new(),
        };
        let words = [&place.arms.join(", "), place.cell, &seed];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let pairs = self.same_order.and_then(|order| self.pairs(order, sides, place, None));
        words.join(" ") + &pairs.map(|pairs| pairs.words()).unwrap_or_default()
    }

    /// The figure of one seed, or of all seeds together; `None` if a run that it needs is missing.
    fn figure(&self, sides: Sides<'_>, place: &ArmsInCell<'_>, seed: Option<u64>) -> Option<f64> {
        if let Some(order) = self.same_order {
            return Some(self.pairs(order, sides, place, seed)?.turned.len() as f64);
        }
        let value = |results: &ClaimResults| self.value(results, place.arms[0], place.cell, seed);
        match self.within {
            Some(within) => Some(within.distance(value(sides.here)?, value(sides.there?)?)),
            None => value(sides.here),
        }
    }

    fn pairs(
        &self,
        order: SameOrder,
        sides: Sides<'_>,
        place: &ArmsInCell<'_>,
        seed: Option<u64>,
    ) -> Option<Pairs> {
        let figures = |results: &ClaimResults| -> Option<Vec<f64>> {
            place.arms.iter().map(|arm| self.value(results, arm, place.cell, seed)).collect()
        };
        Some(order.pairs(&place.arms, &figures(sides.here)?, &figures(sides.there?)?))
    }

    /// The claim's value for an arm on one back end.
    fn value(
        &self,
        results: &ClaimResults,
        arm: &str,
        cell: &str,
        seed: Option<u64>,
    ) -> Option<f64> {
        // Some metrics change their meaning if an optional reference arm is missing.
        if self.compared_with().any(|arm| results.lacks(arm, cell, seed)) {
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
    /// Order of two figures; tied ones are equal.
    fn compare(self, one: f64, other: f64) -> Ordering {
        match (one - other).abs() > self.apart * one.abs().min(other.abs()) {
            true => one.total_cmp(&other),
            false => Ordering::Equal,
        }
    }

    /// Compares every two of `arms` by their figures on both back ends.
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

/// Pairs of arms without the same order on both back ends.
#[derive(Debug, Default)]
struct Pairs {
    /// Too near to each other on a back end to have an order.
    tied: Vec<String>,
    /// Apart on both back ends, in opposite orders.
    turned: Vec<String>,
}

impl Pairs {
    fn words(&self) -> String {
        let lists = [("turned round", &self.turned), ("tied", &self.tied)];
        let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
        lists.map(|(name, list)| format!("; {name}: {}", list.join(", "))).collect()
    }
}
