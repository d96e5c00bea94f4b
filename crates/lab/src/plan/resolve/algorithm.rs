//! The congestion control of a flow: the algorithm and the platform on which it runs.

use forebay_core::cc::Registry;
use forebay_core::spec::{Spec, one_of};
use forebay_scenario::Platform;

use forebay_policy::algorithms::LINUX_ONLY;
use forebay_reader::Reader;
use forebay_reader::tree::{Node, Value};

/// The congestion controls that a flow may have.
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
    pub fn cc_of(&self, flow: &Reader<'_>) -> Option<FlowCc> {
        let is_aut = |node: &Node| node.value == Value::Text("aut".into());
        if flow.node("cc").is_some_and(is_aut) {
            if !flow.document().root().has("aut") {
                flow.wrong_because("cc", "an algorithm: the plan has no `aut`");
            }
            return self.aut.clone();
        }
        flow_cc(flow, "cc", self.algorithms)
    }
}

/// The algorithm under test; the plan may give each of its arms another one.
pub(super) fn aut(plan: &Reader<'_>, algorithms: &Registry) -> Option<FlowCc> {
    plan.has("aut").then(|| flow_cc(plan, "aut", algorithms)).flatten()
}

/// The algorithm under `key`, and the platform if one is named. The back end asks the kernel for the
/// kernel's algorithms; a name without a platform must be known here.
fn flow_cc(table: &Reader<'_>, key: &str, algorithms: &Registry) -> Option<FlowCc> {
    let check = |cc: &Spec| {
        let cc = algorithms.of_single_flow(cc.clone());
        let built = algorithms.build(&cc, forebay_sim::SUPPLIED);
        built.map(drop).map_err(|error| table.wrong_spec(key, &error)).ok()
    };
    let written = match table.has(key) {
        true => table.spec(key)?,
        false => Spec::named("cubic"),
    };

    let (platform, algorithm) = match written.kind.split_once(':') {
        None => (None, written.kind.as_str()),
        Some((name, algorithm)) => {
            let platform = Platform::ALL.into_iter().find(|platform| platform.name() == name);
            (Some(platform.or_else(|| table.refused(key))?), algorithm)
        }
    };
    let mut cc: Spec = algorithm.parse().ok().or_else(|| table.refused(key))?;
    // Parameters that an override sets in addition to the text.
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
            return table.refuse(key, allowed);
        }
        None | Some(Platform::Kernel) => {
            // TCP_CA_NAME_MAX of Linux, minus the final zero.
            if cc.kind.len() > 15 {
                return table.refused(key);
            }
        }
        Some(Platform::Bpf) => {
            /// Algorithms with a BPF program (`bpf:NAME`).
            const IN_BPF: [&str; 5] = ["reno", "newreno", "cubic", "vegas", "westwood"];
            if !IN_BPF.contains(&cc.kind.as_str()) || !cc.params.is_empty() {
                let allowed = "\"bpf:reno\", \"bpf:cubic\", \"bpf:newreno\", \"bpf:vegas\" or \
                               \"bpf:westwood\", as they are";
                return table.refuse(key, allowed);
            }
        }
        Some(Platform::Agent) => {
            if cc.kind == "reno" {
                cc.kind = "newreno".into();
            }
            check(&cc)?;
        }
    }
    Some(FlowCc { platform, cc, at: table.origin_of(key).to_string() })
}
