//! The claims of `forebay platforms`, which judges them itself.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::claims::{Outcome, Verdict};
use super::{OUT, head, printed};

/// What can be asked for; behind the stroke stands what `--what` is told.
pub const PARTS: [&str; 4] =
    ["platforms/cpu", "platforms/latency", "platforms/scale", "platforms/behaviour"];

/// The document that `forebay platforms` printed of a part; `Null`: none. Trials that were made at
/// this commit are not made again.
pub fn run(root: &Path, part: &str) -> Result<Value> {
    // Trials of another commit are refused.
    let out = format!("{OUT}/platforms/{}", head(root));
    let what = part.rsplit('/').next().unwrap_or(part);
    printed(root, part, &["platforms", "--what", what], &out)
}

/// The claims of a part; one that was not run without a document.
pub fn verdicts(part: &str, document: &Value) -> Vec<Verdict> {
    let commit = [&document["findings"]["start"]["commit"], &document["behaviour"]["commit"]];
    let commit = commit.into_iter().find_map(Value::as_str).unwrap_or_default();
    let text = |claim: &Value, key: &str| claim[key].as_str().unwrap_or_default().to_string();
    let claims = document["claims"].as_array().into_iter().flatten();
    let verdict = |claim: &Value| {
        let (mut said, word) = (text(claim, "claim"), text(claim, "verdict"));
        let outcome = outcome(&word);
        if outcome == Outcome::Open {
            said = format!("{said} ({word})");
        }
        let behind = claim["behind"].as_u64().unwrap_or(0) as usize;
        Verdict {
            plan: part.into(),
            text: said,
            place: text(claim, "place"),
            value: claim["figure"].as_f64(),
            bound: text(claim, "bound"),
            runs: (behind, behind),
            commit: commit.into(),
            outcome,
        }
    };
    let verdicts: Vec<Verdict> = claims.map(verdict).collect();
    if !verdicts.is_empty() {
        return verdicts;
    }
    vec![Verdict {
        plan: part.into(),
        text: "all of `forebay platforms`".into(),
        place: String::new(),
        value: None,
        bound: String::new(),
        runs: (0, 0),
        commit: commit.into(),
        outcome: Outcome::NotRun,
    }]
}

/// What is neither shown nor refuted is open.
fn outcome(word: &str) -> Outcome {
    match word {
        "pass" => Outcome::Holds,
        "fail" => Outcome::Fails,
        "reported" => Outcome::Reported,
        "not run" => Outcome::NotRun,
        _ => Outcome::Open,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_claim_of_the_document_is_a_row_and_none_is_one_that_was_not_run() {
        let claim = |verdict: &str| {
            json!({ "part": "cpu", "claim": "CPU score", "place": "native eBPF", "bound": ">= 0.98",
                    "figure": 0.99, "behind": 20, "verdict": verdict })
        };
        let words = ["pass", "fail", "void", "unresolved", "invalid", "not run", "reported"];
        let document = json!({ "findings": { "start": { "commit": "abc" } },
                               "claims": words.map(claim) });
        let verdicts = verdicts("platforms/cpu", &document);
        let outcomes: Vec<Outcome> = verdicts.iter().map(|verdict| verdict.outcome).collect();
        use Outcome::{Fails, Holds, NotRun, Open, Reported};
        assert_eq!(outcomes, [Holds, Fails, Open, Open, Open, NotRun, Reported]);
        assert_eq!(verdicts[2].text, "CPU score (void)");
        let first = &verdicts[0];
        assert_eq!((first.value, first.runs, first.commit.as_str()), (Some(0.99), (20, 20), "abc"));
        for nothing in [Value::Null, json!({ "claims": [] })] {
            let verdicts = super::verdicts("platforms/scale", &nothing);
            assert_eq!((verdicts.len(), verdicts[0].outcome), (1, NotRun));
        }
    }
}
