//! Claims about plans, and whether results bear them out.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

/// All claims, by plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The plans in the order in which they run.
    pub plan: Vec<PlanClaims>,
}

/// What one plan must show.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanClaims {
    /// Name as `forebay run` takes it.
    pub name: String,
    /// The claims.
    pub claim: Vec<Claim>,
}

/// A bound on a metric.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// In words.
    pub text: String,
    /// Arms that must meet it.
    pub arms: Vec<String>,
    /// Cells that must meet it; absent: all.
    #[serde(default)]
    pub cells: Vec<String>,
    /// Metrics, added up: `metric`, or `links/forward/metric` and likewise for `flows` and
    /// `bundles`, or `host/cpu_cores/program`.
    pub value: Vec<String>,
    /// Divide by the same value of this arm.
    pub over: Option<String>,
    /// Every valid run must meet it, not only the pooled seeds.
    #[serde(default)]
    pub each_run: bool,
    /// Lower bound.
    pub at_least: Option<f64>,
    /// Upper bound.
    pub at_most: Option<f64>,
}

/// A claim, the place where it was looked up, and what was found there.
#[derive(Debug)]
pub struct Verdict {
    /// Plan.
    pub plan: String,
    /// The claim in words.
    pub text: String,
    /// Arm, cell and seed.
    pub place: String,
    /// The figure; `None`: the results lack it.
    pub value: Option<f64>,
    /// The bounds in words.
    pub bound: String,
    /// The figure is there and within its bounds.
    pub holds: bool,
}

impl Claims {
    /// Reads and checks a file of claims.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let claims: Self = toml::from_str(&text).with_context(|| path.display().to_string())?;
        for claim in claims.plan.iter().flat_map(|plan| &plan.claim) {
            ensure!(
                claim.at_least.is_some() || claim.at_most.is_some(),
                "{}: claim {:?}: one of at_least, at_most is needed",
                path.display(),
                claim.text
            );
        }
        Ok(claims)
    }
}

impl PlanClaims {
    /// Judges the document that `forebay run --json` printed.
    pub fn judge(&self, document: &Value) -> Vec<Verdict> {
        self.claim.iter().flat_map(|claim| claim.judge(&self.name, document)).collect()
    }
}

impl Claim {
    fn judge(&self, plan: &str, document: &Value) -> Vec<Verdict> {
        let rows = if self.each_run { &document["runs"] } else { &document["summary"] };
        let rows: Vec<&Value> = rows.as_array().into_iter().flatten().collect();
        let mut verdicts = Vec::new();
        for arm in &self.arms {
            let wanted: Vec<&&Value> = rows
                .iter()
                .filter(|row| row["arm"] == **arm && row["valid"] != Value::Bool(false))
                .filter(|row| {
                    self.cells.is_empty() || self.cells.iter().any(|cell| row["cell"] == **cell)
                })
                .collect();
            if wanted.is_empty() {
                verdicts.push(self.verdict(plan, arm.clone(), None));
            }
            for row in wanted {
                let words = ["cell", "seed"].map(|key| match &row[key] {
                    Value::String(text) => text.clone(),
                    Value::Number(number) => format!("seed {number}"),
                    _ => String::new(),
                });
                let place = [arm.as_str(), &words[0], &words[1]].join(" ");
                let value = self.value_of(row, &rows);
                verdicts.push(self.verdict(plan, place.trim().to_string(), value));
            }
        }
        verdicts
    }

    fn value_of(&self, row: &Value, rows: &[&Value]) -> Option<f64> {
        let value: f64 = self.value.iter().map(|path| look_up(row, path)).sum::<Option<f64>>()?;
        let Some(over) = &self.over else { return Some(value) };
        let other = rows.iter().find(|other| {
            other["arm"] == **over && other["cell"] == row["cell"] && other["seed"] == row["seed"]
        })?;
        let other: f64 = self.value.iter().map(|path| look_up(other, path)).sum::<Option<f64>>()?;
        (other != 0.0).then(|| value / other)
    }

    fn verdict(&self, plan: &str, place: String, value: Option<f64>) -> Verdict {
        let bound = [(self.at_least, "≥"), (self.at_most, "≤")]
            .iter()
            .filter_map(|(bound, sign)| Some(format!("{sign} {}", (*bound)?)))
            .collect::<Vec<_>>()
            .join(", ");
        let within = |value: f64| {
            self.at_least.is_none_or(|least| value >= least)
                && self.at_most.is_none_or(|most| value <= most)
        };
        let plan = plan.to_string();
        let holds = value.is_some_and(within);
        Verdict { plan, text: self.text.clone(), place, value, bound, holds }
    }
}

/// `metric`, `links/forward/metric` or `host/cpu_cores/program`.
fn look_up(row: &Value, path: &str) -> Option<f64> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [metric] => row["metrics"][metric].as_f64(),
        ["host", group, name] => row["host"][group][name].as_f64(),
        [list, name, metric] => {
            let list = row[list].as_array()?;
            list.iter().find(|part| part["name"] == **name)?["metrics"][metric].as_f64()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(json: Value) -> Claim {
        serde_json::from_value(json).unwrap()
    }

    fn document() -> Value {
        let arm = |arm: &str, queue: f64| {
            json!({ "arm": arm, "cell": "", "metrics": { "goodput_mbps": 90.0 },
                    "links": [{ "name": "forward", "metrics": { "queue_mean_packets": queue } }] })
        };
        json!({ "runs": [], "summary": [arm("status_quo", 900.0), arm("copa_sfq", 9.0)] })
    }

    #[test]
    fn a_bound_is_judged_on_values_and_on_ratios() {
        let path = "links/forward/queue_mean_packets";
        let below = claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [path],
                                  "at_most": 15.0 }));
        assert!(below.judge("p", &document())[0].holds);
        let ratio = claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [path],
                                  "over": "status_quo", "at_least": 0.02 }));
        let verdict = &ratio.judge("p", &document())[0];
        assert_eq!((verdict.value, verdict.holds), (Some(0.01), false));
    }

    #[test]
    fn a_figure_that_is_not_there_holds_no_claim() {
        for (arm, value) in [("copa_sfq", "no_such_metric"), ("no_such_arm", "goodput_mbps")] {
            let claim = claim(json!({ "text": "t", "arms": [arm], "value": [value],
                                      "at_least": 0.0 }));
            let verdicts = claim.judge("p", &document());
            assert_eq!(verdicts.len(), 1);
            assert!(!verdicts[0].holds);
        }
    }

    #[test]
    fn the_claims_of_the_repository_can_be_read() {
        let claims = Claims::load(&crate::repository().join(super::super::CLAIMS)).unwrap();
        assert!(claims.plan.len() > 5);
    }
}
