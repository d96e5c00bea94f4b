//! A part: the unit that is run and judged by itself.

use anyhow::Result;
use forebay_lab::judge::Judged;

use super::plan::PlanPart;
use super::platforms::PlatformsPart;

/// A plan on a back end, or a part of `forebay platforms`.
pub enum Part<'a> {
    Plan(Box<PlanPart<'a>>),
    Platforms(PlatformsPart),
}

/// Remaining work of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Left {
    /// Runs, at most: claims may be decided earlier. A measurement of `forebay platforms` counts as one.
    pub runs: usize,
    /// Time for these (min), from earlier runs of the plan or else from the length of a run.
    pub minutes: f64,
}

impl Part<'_> {
    /// `bundler/main@sim` or `platforms/cpu`.
    pub fn name(&self) -> String {
        match self {
            Self::Plan(plan) => plan.name(),
            Self::Platforms(part) => part.name.into(),
        }
    }

    /// Name of the plan or part of `forebay platforms`, without the back end.
    pub fn subject(&self) -> &str {
        match self {
            Self::Plan(plan) => plan.subject(),
            Self::Platforms(part) => part.name,
        }
    }

    /// Whether `name` is the name of the part, of its plan on any back end, or of a folder that the part is in.
    pub fn is_called(&self, name: &str) -> bool {
        is_called(&self.name(), name)
    }

    /// Makes missing runs as long as `may_begin` allows; its argument is the duration of the next step (min).
    pub fn advance(&mut self, may_begin: &mut dyn FnMut(f64) -> bool) -> Result<()> {
        match self {
            Self::Plan(plan) => plan.advance(may_begin),
            Self::Platforms(part) => part.advance(may_begin),
        }
    }

    /// Remaining work.
    pub fn left(&self) -> &Left {
        match self {
            Self::Plan(plan) => &plan.left,
            Self::Platforms(part) => &part.left,
        }
    }

    /// The claims; those that compare two back ends find the other among `parts`. If nothing was run, one row says
    /// that.
    pub fn judge(&self, parts: &[Self]) -> Vec<Judged> {
        let plans = parts.iter().filter_map(|part| match part {
            Self::Plan(plan) => Some(&**plan),
            Self::Platforms(_) => None,
        });
        let judged = match self {
            Self::Plan(plan) => plan.judge(plans),
            Self::Platforms(part) => part.claims.clone(),
        };
        if !judged.is_empty() {
            return judged;
        }
        vec![Judged { of: self.name(), claim: "all of it".into(), ..Judged::default() }]
    }
}

/// Compares whole words between slashes: neither `queue_shift` nor `shift_both` matches `bundler/queue_shift_both`.
fn is_called(part: &str, name: &str) -> bool {
    let plan = part.split('@').next().unwrap_or(part);
    let is_within = |whole: &str| format!("/{whole}/").contains(&format!("/{name}/"));
    is_within(part) || is_within(plan)
}

#[cfg(test)]
mod tests {
    use forebay_lab::judge::{Bound, Verdict};

    use super::*;

    #[test]
    fn a_part_is_called_by_whole_words() {
        let part = "bundler/dynamics/start@sim";
        for name in
            [part, "bundler/dynamics/start", "dynamics/start", "start", "start@sim", "bundler"]
        {
            assert!(is_called(part, name), "{name}");
        }
        for name in
            ["bundler/dynamics/start@emu", "star", "bundler/start", "sim", "dynamics@sim", ""]
        {
            assert!(!is_called(part, name), "{name}");
        }
        assert!(is_called("platforms/cpu", "platforms") && is_called("platforms/cpu", "cpu"));
    }

    #[test]
    fn unrun_part_is_one_row_others_per_claim() {
        let mut part = PlatformsPart::all().unwrap().next().unwrap();
        let claim = Judged { of: part.name.into(), ..Judged::default() };
        let met = claim.clone().by_values(Bound::at_least(0.98), &[0.99; 20], 20, 1);
        let nothing = Part::Platforms(part).judge(&[]);
        assert!(nothing.len() == 1 && matches!(nothing[0].verdict, Verdict::NotShown(_)));
        part = PlatformsPart::all().unwrap().next().unwrap();
        part.claims = vec![met.clone(), claim.clone()];
        assert_eq!(Part::Platforms(part).judge(&[]), [met, claim]);
    }
}
