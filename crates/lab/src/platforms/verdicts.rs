//! All claims of all parts in one shape: what a list for people, the exit code and `make evaluate` need.

use serde::{Serialize, Serializer};

use super::What;
use super::behaviour::Behaviour;
use super::fidelity;
use super::figures::{AGENT_SHARE_MAX, FLOWS, Findings, LatencyRow, ScaleRow};
use super::platform::{Platform, Setting};
use super::scores::Scores;
use super::statistics::Verdict;

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It was shown.
    Pass,
    /// The contrary was.
    Fail,
    /// Neither, for the reason in a word or two.
    NotShown(&'static str),
    /// Only a figure, of which nothing is claimed.
    Reported,
}

impl Standing {
    /// In a word or two.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::NotShown(why) => why,
            Self::Reported => "reported",
        }
    }
}

impl Serialize for Standing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.words())
    }
}

impl From<Verdict> for Standing {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Pass => Self::Pass,
            Verdict::Fail => Self::Fail,
            Verdict::Unresolved | Verdict::Void => Self::NotShown(verdict.word()),
        }
    }
}

impl From<fidelity::Verdict> for Standing {
    fn from(verdict: fidelity::Verdict) -> Self {
        match verdict {
            fidelity::Verdict::Pass => Self::Pass,
            fidelity::Verdict::Fail => Self::Fail,
            other => Self::NotShown(other.words()),
        }
    }
}

/// A claim, its bound and what was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// `cpu`, `latency`, `scale` or `behaviour`.
    pub part: &'static str,
    /// What is claimed, with its unit.
    pub claim: String,
    /// Of which platform, and where.
    pub place: String,
    /// The bound in signs; empty: none.
    pub bound: String,
    /// What was found.
    pub figure: Option<f64>,
    /// Pairs, blocks or trials behind it.
    pub behind: usize,
    /// What that says.
    pub verdict: Standing,
}

impl Shown {
    /// In a sentence, why it is not so or not known; `None` where nothing is amiss.
    pub fn complaint(&self) -> Option<String> {
        let Self { part, claim, place, bound, behind, .. } = self;
        let said = self.figure.map_or_else(|| "no figure".into(), crate::output::number);
        let said = format!("{part}, {place}: {claim} {bound}: {said} (of {behind})");
        match self.verdict {
            Standing::Pass | Standing::Reported => None,
            Standing::Fail => Some(format!("FAILED: {said}")),
            Standing::NotShown(why) => Some(format!("NOT SHOWN ({why}): {said}")),
        }
    }
}

/// The claims of what was `wanted`.
pub fn of_costs(findings: &Findings, wanted: &[What]) -> Vec<Shown> {
    let mut all = Vec::new();
    if wanted.contains(&What::Cpu) {
        for setting in Setting::ALL {
            match findings.scores.iter().find(|scores| scores.setting == setting) {
                Some(scores) => all.extend(of_scores(scores)),
                None => all.push(Shown {
                    part: "cpu",
                    claim: "CPU score".into(),
                    place: setting.title().into(),
                    bound: String::new(),
                    figure: None,
                    behind: 0,
                    verdict: Standing::NotShown("not run"),
                }),
            }
        }
        all.extend(findings.program_claims.iter().map(|claim| Shown {
            part: "cpu",
            claim: "an ACK over the empty program (ns)".into(),
            place: format!("{}, {}", claim.platform.title(), Setting::Gso2.title()),
            bound: format!("<= {}", claim.bound_ns),
            figure: claim.over_empty_ns.map(|interval| interval.median),
            behind: claim.blocks,
            verdict: claim.verdict.into(),
        }));
    }
    if wanted.contains(&What::Latency) {
        all.extend(findings.latencies.iter().map(of_latency));
    }
    if wanted.contains(&What::Scale) {
        all.extend(findings.scaling.iter().flat_map(of_scaling));
    }
    all
}

fn of_scores(scores: &Scores) -> Vec<Shown> {
    let setting = scores.setting.title();
    let mut all: Vec<Shown> = scores
        .claims
        .iter()
        .map(|claim| Shown {
            part: "cpu",
            claim: "CPU score".into(),
            place: format!("{}, {setting}", claim.platform.title()),
            bound: format!(">= {}", claim.bound),
            figure: claim.score.map(|score| score.median),
            behind: claim.pairs,
            verdict: claim.verdict.into(),
        })
        .collect();
    let slowed = scores.platforms.iter().find(|it| it.platform == Platform::AgentSlowed);
    all.push(Shown {
        part: "cpu",
        claim: "CPU score, told apart from the agent per round".into(),
        place: format!("{}, {setting}", Platform::AgentSlowed.title()),
        bound: "< 1".into(),
        figure: slowed.and_then(|slowed| Some(slowed.score?.median)),
        behind: slowed.map_or(0, |slowed| slowed.scores.len()),
        verdict: match scores.slowed_is_seen {
            Some(true) => Standing::Pass,
            Some(false) => Standing::Fail,
            None => Standing::NotShown(Verdict::Unresolved.word()),
        },
    });
    all
}

fn of_latency(row: &LatencyRow) -> Shown {
    let most = row.platform.latency_bound_us();
    Shown {
        part: "latency",
        claim: "from report to decision, 99 of 100 (us)".into(),
        place: row.platform.title().into(),
        bound: most.map_or_else(String::new, |most| format!("<= {most}")),
        figure: Some(row.p99_us),
        behind: row.trials,
        verdict: match most {
            Some(most) if row.p99_us <= most => Standing::Pass,
            Some(_) => Standing::Fail,
            None => Standing::Reported,
        },
    }
}

fn of_scaling(row: &ScaleRow) -> Vec<Shown> {
    let at_most = |claim: &str, figure: f64, bound: String, is_within: bool| Shown {
        part: "scale",
        claim: claim.into(),
        place: format!("{}, {} connections", row.platform.title(), row.flows),
        bound,
        figure: Some(figure),
        behind: row.trials,
        verdict: if is_within { Standing::Pass } else { Standing::Fail },
    };
    let mut all = Vec::new();
    if Platform::REPORTING.contains(&row.platform) {
        let lost = row.reports_lost;
        all.push(at_most("reports lost", lost as f64, "<= 0".into(), lost == 0));
    }
    if row.platform == Platform::Agent10Ms && Some(&row.flows) == FLOWS.last() {
        let (percent, most) = (100.0 * row.agent_share, 100.0 * AGENT_SHARE_MAX);
        let is_within = row.agent_share < AGENT_SHARE_MAX;
        all.push(at_most("agent (% of a core)", percent, format!("< {most}"), is_within));
    }
    all
}

/// The claims of the behaviour.
pub fn of_behaviour(behaviour: &Behaviour) -> Vec<Shown> {
    let claims = behaviour.links.iter().flat_map(|one| one.claims.iter().map(move |it| (one, it)));
    claims
        .map(|(one, claim)| Shown {
            part: "behaviour",
            claim: format!("deviation from the kernel in {}", claim.what),
            place: format!("{}, {}", claim.platform.title(), one.link.name),
            bound: claim.most.map_or_else(String::new, |most| format!("<= {most:.4}")),
            figure: claim.deviation,
            behind: claim.trials,
            verdict: claim.verdict.into(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tables::tests::findings;
    use super::*;

    fn scaled(platform: Platform, flows: u32, reports_lost: u64, agent_share: f64) -> ScaleRow {
        ScaleRow { platform, flows, reports_lost, agent_share, ..findings().scaling[0].clone() }
    }

    fn complaints(findings: &Findings, wanted: &[What]) -> Vec<String> {
        of_costs(findings, wanted).iter().filter_map(Shown::complaint).collect()
    }

    #[test]
    fn lost_reports_and_a_busy_agent_fail() {
        let mut findings = findings();
        findings.scaling = vec![
            scaled(Platform::Kernel, 1000, 0, 0.0),
            scaled(Platform::AgentRound, 1000, 3, 0.9),
            scaled(Platform::Agent10Ms, 100, 0, 0.1),
            scaled(Platform::Agent10Ms, 1000, 0, 0.1),
        ];
        let found = complaints(&findings, &[What::Scale]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("agent per round, 1000") && found[0].contains("lost <= 0: 3"));
        assert!(found[1].starts_with("FAILED") && found[1].contains("< 10: 10"), "{found:?}");
        assert!(complaints(&findings, &[What::Latency]).is_empty());
    }

    #[test]
    fn an_agent_that_answers_too_late_fails_where_that_is_claimed() {
        let row = |platform, p99_us| LatencyRow {
            platform,
            trials: 3,
            reports_per_s: 1e4,
            p50_us: 1.0,
            p90_us: 2.0,
            p99_us,
            max_us: 2e4,
        };
        let mut findings = findings();
        findings.latencies = vec![row(Platform::Agent10Ms, 1e4), row(Platform::AgentAck, 990.0)];
        assert!(complaints(&findings, &[What::Latency]).is_empty());
        findings.latencies[1].p99_us = 1010.0;
        let found = complaints(&findings, &[What::Latency]);
        assert!(
            found.len() == 1 && found[0].contains("FAILED: latency, agent per ACK"),
            "{found:?}"
        );
    }

    #[test]
    fn what_is_void_or_was_not_run_is_not_shown() {
        let mut findings = findings();
        findings.scores[0].slowed_is_seen = None;
        findings.scores[0].claims[0].verdict = Verdict::Void;
        let found = complaints(&findings, &[What::Cpu]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("NOT SHOWN (void): cpu, native eBPF, GSO of 2"), "{found:?}");
        assert!(found[1].starts_with("NOT SHOWN (unresolved)") && found[1].contains("slowed"));
        assert!(found[2].starts_with("NOT SHOWN (not run): cpu, GSO unlimited"), "{found:?}");
        findings.scores[0].claims[0].verdict = Verdict::Pass;
        findings.scores[0].slowed_is_seen = Some(false);
        let found = complaints(&findings, &[What::Cpu]);
        assert!(found.len() == 2 && found[0].starts_with("FAILED"), "{found:?}");
    }
}
