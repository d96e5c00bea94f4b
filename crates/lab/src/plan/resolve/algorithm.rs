//! The congestion control of a flow: which algorithm, and where that runs.

use forebay_core::cc::Registry;
use forebay_core::spec::{Spec, one_of};

use crate::algorithms::LINUX_ONLY;
use crate::experiment::Platform;
use crate::plan::error::PlanError;
use crate::plan::reader::Reader;
use crate::plan::tree::{Node, Value};

/// What a flow may have as its congestion control.
pub(super) struct Known<'a> {
    pub algorithms: &'a Registry,
    /// The algorithm under test.
    pub aut: Option<FlowCc>,
}

/// The congestion control of flows.
#[derive(Clone)]
pub(super) struct FlowCc {
    /// The platform, if one is named.
    pub platform: Option<Platform>,
    pub cc: Spec,
    /// Where it was written.
    pub at: String,
}

impl Known<'_> {
    /// The congestion control of `flow`, which may be the algorithm under test.
    pub fn cc_of(&self, flow: &Reader<'_>) -> Result<FlowCc, PlanError> {
        let is_aut = |node: &Node| node.value == Value::Text("aut".into());
        if flow.node("cc").is_some_and(is_aut) {
            let allowed = "an algorithm: the plan has no `aut`";
            return self.aut.clone().ok_or_else(|| flow.wrong_because("cc", allowed));
        }
        flow_cc(flow, "cc", self.algorithms)
    }
}

/// The algorithm under test, one where the plan has several arms with one each.
pub(super) fn aut(plan: &Reader<'_>, algorithms: &Registry) -> Result<Option<FlowCc>, PlanError> {
    plan.has("aut").then(|| flow_cc(plan, "aut", algorithms)).transpose()
}

/// The platform, if one is named, and the algorithm under `key`. Which ones a kernel has is for the back end
/// that asks it; a name without a platform is one that is known here.
fn flow_cc(table: &Reader<'_>, key: &str, algorithms: &Registry) -> Result<FlowCc, PlanError> {
    let check = |cc: &Spec| {
        let cc = algorithms.of_single_flow(cc.clone());
        let built = algorithms.build(&cc, forebay_sim::SUPPLIED);
        built.map(drop).map_err(|error| table.wrong_spec(key, &error))
    };
    let written = table.spec(key)?.unwrap_or_else(|| Spec::named("cubic"));
    let (platform, algorithm) = match written.kind.split_once(':') {
        None => (None, written.kind.as_str()),
        Some((name, algorithm)) => {
            let platform = Platform::ALL.into_iter().find(|platform| platform.name() == name);
            (Some(platform.ok_or_else(|| table.wrong(key))?), algorithm)
        }
    };
    let mut cc: Spec = algorithm.parse().map_err(|_| table.wrong(key))?;
    // What an override sets beside the text.
    cc.params.extend(written.params);
    match platform {
        None if cc.kind == "reno" || algorithms.named(&cc.kind).is_some() => {
            let kind = if cc.kind == "reno" { "newreno".into() } else { cc.kind.clone() };
            check(&Spec { kind, params: cc.params.clone() })?;
        }
        None if !LINUX_ONLY.contains(&cc.kind.as_str()) => {
            let names = algorithms.algorithms().iter().map(|algorithm| algorithm.name);
            let names: Vec<&str> = names.chain(LINUX_ONLY).collect();
            let known = one_of(&cc.kind, &names);
            let allowed = format!("a congestion control: \"kernel:NAME\", or {known}");
            return Err(table.wrong_because(key, &allowed));
        }
        None | Some(Platform::Kernel) => {
            // TCP_CA_NAME_MAX of Linux, less the final zero.
            if cc.kind.len() > 15 {
                return Err(table.wrong(key));
            }
        }
        Some(Platform::Bpf) => {
            const IN_BPF: [&str; 5] = ["reno", "newreno", "cubic", "vegas", "westwood"];
            if !IN_BPF.contains(&cc.kind.as_str()) || !cc.params.is_empty() {
                let allowed = "\"bpf:reno\", \"bpf:cubic\", \"bpf:newreno\", \"bpf:vegas\" or \
                               \"bpf:westwood\", as they are";
                return Err(table.wrong_because(key, allowed));
            }
        }
        Some(Platform::Agent) => {
            if cc.kind == "reno" {
                cc.kind = "newreno".into();
            }
            check(&cc)?;
        }
    }
    Ok(FlowCc { platform, cc, at: table.origin_of(key).to_string() })
}
