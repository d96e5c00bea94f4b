//! Congestion controls that a run registers: an agent for algorithms in user space, and a program
//! that holds algorithms in the kernel.
//!
//! Names of congestion controls apply to all network namespaces of the machine. So a run uses its
//! own names. An agent of the user, with the usual `fb_NAME`, keeps its name and its
//! connections. The next run need not wait until the kernel has released the last run's names.

use std::sync::atomic::{AtomicU32, Ordering};

use super::TestbedError;
use super::agent::Agent;
use super::namespace::Namespace;
use super::program::Program;
use super::run::{READY_TIMEOUT, Starter};
use crate::generator::socket_cc;
use crate::native::NativeSpec;
use forebay_core::record::AgentRecord;
use forebay_scenario::{FaultAction, Flow, Platform, Scenario};

/// The registered algorithms of a run.
pub(super) struct Algorithms<'a> {
    /// Key and registered name of each.
    names: Vec<(String, String)>,
    agent: Option<Agent<'a>>,
    native: Option<Program>,
}

impl<'a> Algorithms<'a> {
    /// Registers the algorithms of `scenario`; any namespace will do.
    pub fn start(
        scenario: &Scenario,
        namespace: &Namespace,
        start: Starter<'a>,
    ) -> Result<Self, TestbedError> {
        let mut flows: Vec<&Flow> = Vec::new();
        for flow in scenario.flows.iter().filter(|flow| flow.is_tcp()) {
            let is_own = matches!(flow.platform, Some(Platform::Agent | Platform::Bpf));
            if is_own && flows.iter().all(|known| socket_cc(known) != socket_cc(flow)) {
                flows.push(flow);
            }
        }
        let named: Vec<(&Flow, String)> = flows.into_iter().map(|it| (it, own_name())).collect();
        let on = |platform| named.iter().filter(move |(it, _)| it.platform == Some(platform));
        let native = on(Platform::Bpf).map(|(flow, name)| (flow.cc.kind.clone(), name.clone()));
        let native = NativeSpec { algorithms: native.collect() };
        let native = (!native.algorithms.is_empty()).then(|| {
            let mut program = start.role("native", namespace, "native algorithms", &native)?;
            program.await_line("ready", READY_TIMEOUT)?;
            Ok::<_, TestbedError>(program)
        });
        let offers = on(Platform::Agent).map(|(flow, name)| format!("{name}={}", flow.cc));
        let offers: Vec<String> = offers.collect();
        let agent = (!offers.is_empty()).then(|| Agent::start(scenario, &offers, namespace, start));
        Ok(Self {
            native: native.transpose()?,
            agent: agent.transpose()?,
            names: named.into_iter().map(|(flow, name)| (socket_cc(flow), name)).collect(),
        })
    }

    /// The name under which sockets select `cc`: the registered name, or `cc` itself if it was not
    /// registered here.
    pub fn name_of<'n>(&'n self, cc: &'n str) -> &'n str {
        self.names.iter().find(|(key, _)| key == cc).map_or(cc, |(_, name)| name)
    }

    /// Key of a registered name; the reverse of [`Self::name_of`].
    pub fn key_of<'n>(&'n self, name: &'n str) -> &'n str {
        self.names.iter().find(|(_, known)| known == name).map_or(name, |(key, _)| key)
    }

    /// The registered names, for the record.
    pub fn settings(&self) -> impl Iterator<Item = String> {
        self.names.iter().map(|(key, name)| format!("congestion control {name} = {key}"))
    }

    /// Name and CPU time so far (ns) of each program.
    pub fn cpu_times_ns(&self) -> Vec<(String, u64)> {
        let native = self.native.iter();
        let native =
            native.map(|program| (program.name.clone(), program.cpu_time_ns().unwrap_or(0)));
        self.agent.iter().map(Agent::cpu_time_ns).chain(native).collect()
    }

    /// Fails if a program has ended without a fault that explains it.
    pub fn check(&mut self) -> Result<(), TestbedError> {
        self.agent.as_mut().map_or(Ok(()), Agent::check)?;
        self.native.as_mut().map_or(Ok(()), Program::check)
    }

    /// Applies a fault to the agent.
    pub fn apply(&mut self, action: FaultAction) -> Result<(), TestbedError> {
        self.agent.as_mut().ok_or(TestbedError::NoAgent)?.apply(action)
    }

    /// Ends the programs; returns the counters of the agent.
    pub fn stop(&mut self) -> Result<Option<AgentRecord>, TestbedError> {
        let record = self.agent.as_mut().map(Agent::stop).transpose()?;
        self.native.as_mut().map_or(Ok(()), |program| program.stop(None))?;
        Ok(record)
    }
}

/// A name that no other run has had, of at most 15 bytes: the process and a number within it. The
/// prefix is `fx`, since agents of users begin with `fb_`.
fn own_name() -> String {
    /// Number of the next name of this process.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Process numbers have at most 22 bits (PID_MAX_LIMIT), six hexadecimal digits.
    format!("fx{:x}_{:x}", std::process::id(), number & 0xf_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::cc::Registry;
    use forebay_host::agent::rules::{Choice, NAME_MAX};

    #[test]
    fn names_are_unique_and_valid_for_an_agent() {
        let [one, other] = [own_name(), own_name()];
        assert_ne!(one, other);
        assert!("fx3fffff_fffff".len() <= NAME_MAX);
        let text = format!("{one}=cubic(hystart=off)");
        let offer = Choice::offered(&Registry::BUILTIN, &text).unwrap();
        assert_eq!((offer.kernel_name(), offer.to_string()), (one, "cubic(hystart=off)".into()));
    }

    #[test]
    fn keys_and_names_translate_both_ways() {
        let names = vec![("agent:copa".to_string(), "fx1_0".to_string())];
        let algorithms = Algorithms { names, agent: None, native: None };
        assert_eq!([algorithms.name_of("agent:copa"), algorithms.name_of("bbr")], ["fx1_0", "bbr"]);
        assert_eq!([algorithms.key_of("fx1_0"), algorithms.key_of("bbr")], ["agent:copa", "bbr"]);
    }
}
