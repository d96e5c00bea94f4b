//! Congestion controls that a run brings along: an agent for those that decide in user space, and a
//! program that holds those that run in the kernel alone.
//!
//! Their names are the machine's, whatever the namespace. So they are a run's own: an agent of the
//! user, under the usual `fb_NAME`, keeps its name and its connections, and the next run does not
//! wait until the kernel has let go of the last one's.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::TestbedError;
use super::boxes::control_path;
use super::namespace::Namespace;
use super::program::Program;
use super::run::{READY_TIMEOUT, Starter};
use crate::agent::native::NativeSpec;
use crate::agent::status::AgentStatus;
use crate::daemon::control::{self, Answer, Request};
use crate::record::AgentRecord;
use crate::scenario::{Algorithm, Platform, Scenario};

/// How often an agent that starts is asked whether it is there.
const POLL: Duration = Duration::from_millis(10);

/// The algorithms of a run, registered.
pub(super) struct Algorithms {
    /// Key and registered name of each.
    names: Vec<(String, String)>,
    agent: Option<Agent>,
    native: Option<Program>,
}

struct Agent {
    program: Program,
    control: PathBuf,
    /// Open so that the control socket has a short path.
    _dir: File,
}

impl Algorithms {
    /// Registers what `scenario` brings along; the namespace does not matter.
    pub fn start(
        scenario: &Scenario,
        namespace: &Namespace,
        start: &Starter<'_>,
    ) -> Result<Self, TestbedError> {
        let named: Vec<(&Algorithm, String)> =
            scenario.algorithms.iter().map(|algorithm| (algorithm, own_name())).collect();
        let native = named.iter().filter_map(|(algorithm, name)| match &algorithm.platform {
            Platform::Bpf(kind) => Some((kind.clone(), name.clone())),
            Platform::Agent(_) => None,
        });
        let native = NativeSpec { algorithms: native.collect() };
        let native = (!native.algorithms.is_empty()).then(|| {
            let mut program = start.role("native", namespace, "native algorithms", &native)?;
            program.await_line("ready", READY_TIMEOUT)?;
            Ok::<_, TestbedError>(program)
        });
        let offers = named.iter().filter_map(|(algorithm, name)| match &algorithm.platform {
            Platform::Agent(spec) => Some(format!("{name}={spec}")),
            Platform::Bpf(_) => None,
        });
        let offers: Vec<String> = offers.collect();
        let agent = (!offers.is_empty()).then(|| Agent::start(scenario, &offers, namespace, start));
        Ok(Self {
            native: native.transpose()?,
            agent: agent.transpose()?,
            names: named.into_iter().map(|(it, name)| (it.key.clone(), name)).collect(),
        })
    }

    /// The name under which sockets select `cc`: that of one of these, or its own.
    pub fn name_of<'a>(&'a self, cc: &'a str) -> &'a str {
        self.names.iter().find(|(key, _)| key == cc).map_or(cc, |(_, name)| name)
    }

    /// The other way round.
    pub fn key_of<'a>(&'a self, name: &'a str) -> &'a str {
        self.names.iter().find(|(_, known)| known == name).map_or(name, |(key, _)| key)
    }

    /// What was registered, for the record.
    pub fn settings(&self) -> impl Iterator<Item = String> {
        self.names.iter().map(|(key, name)| format!("congestion control {name} = {key}"))
    }

    /// The running programs.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.agent.iter().map(|agent| &agent.program).chain(&self.native)
    }

    /// An error if one of them has ended.
    pub fn check(&mut self) -> Result<(), TestbedError> {
        let agent = self.agent.iter_mut().map(|agent| &mut agent.program);
        agent.chain(&mut self.native).try_for_each(Program::check)
    }

    /// Ends them; answers what the agent counted.
    pub fn stop(&mut self) -> Result<Option<AgentRecord>, TestbedError> {
        let record = self.agent.as_mut().map(Agent::stop).transpose()?;
        self.native.as_mut().map_or(Ok(()), |program| program.stop(None))?;
        Ok(record)
    }
}

impl Agent {
    fn start(
        scenario: &Scenario,
        offers: &[String],
        namespace: &Namespace,
        start: &Starter<'_>,
    ) -> Result<Self, TestbedError> {
        let dir = File::open(start.dir)
            .map_err(|source| TestbedError::File { path: start.dir.into(), source })?;
        let control = control_path(start.dir, &dir, "agent");
        let mut arguments: Vec<OsString> = vec!["agent".into()];
        arguments.extend(offers.iter().flat_map(|offer| ["--algorithm".into(), offer.into()]));
        let period_us = scenario.agent.period_ns / 1_000;
        for (option, value) in [
            ("--report", scenario.agent.report.clone()),
            ("--period", format!("{period_us}us")),
            ("--seed", scenario.seed.to_string()),
        ] {
            arguments.extend([option.into(), value.into()]);
        }
        arguments.extend(["--control".into(), control.clone().into_os_string()]);
        let program = start.program("agent", namespace, &arguments)?;
        let mut agent = Self { program, control, _dir: dir };
        agent.await_answer()?;
        Ok(agent)
    }

    /// It answers once its names are registered.
    fn await_answer(&mut self) -> Result<(), TestbedError> {
        let started = Instant::now();
        while self.status().is_none() {
            self.program.check()?;
            if started.elapsed() > READY_TIMEOUT {
                return Err(self.program.silent("its status", READY_TIMEOUT));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn status(&self) -> Option<Box<AgentStatus>> {
        match control::ask(&self.control, Request::Status) {
            Ok(Answer::Agent(status)) => Some(status),
            _ => None,
        }
    }

    fn stop(&mut self) -> Result<AgentRecord, TestbedError> {
        let record = self.status().map(|status| record(&status)).unwrap_or_default();
        self.program.stop(Some(Signal::SIGTERM))?;
        Ok(record)
    }
}

fn record(status: &AgentStatus) -> AgentRecord {
    let counters = status.algorithms.iter().flat_map(|algorithm| &algorithm.counters);
    let fallbacks = counters.filter(|(name, _)| name == "fallbacks").map(|(_, count)| count).sum();
    let totals = status.totals;
    AgentRecord {
        reports: totals.reports,
        missed: totals.missed,
        decisions: totals.decisions,
        stale: totals.stale,
        failed: totals.failed,
        fallbacks,
    }
}

/// A name that no other run has had, of at most 15 bytes: the process and a number within it. `fx`
/// and not `fb_`, which agents of users begin with.
fn own_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Processes have at most 22 bits (PID_MAX_LIMIT), six digits.
    format!("fx{:x}_{:x}", std::process::id(), number & 0xf_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::rules::{Choice, NAME_MAX};
    use crate::agent::status::{AlgorithmStatus, Totals};

    #[test]
    fn names_are_a_run_s_own_and_an_agent_takes_them() {
        let [one, other] = [own_name(), own_name()];
        assert_ne!(one, other);
        assert!("fx3fffff_fffff".len() <= NAME_MAX);
        let offer = Choice::offered(&format!("{one}=cubic(hystart=off)")).unwrap();
        assert_eq!((offer.kernel_name(), offer.to_string()), (one, "cubic(hystart=off)".into()));
    }

    #[test]
    fn keys_and_names_stand_for_each_other_and_others_for_themselves() {
        let names = vec![("agent:copa".to_string(), "fx1_0".to_string())];
        let algorithms = Algorithms { names, agent: None, native: None };
        assert_eq!([algorithms.name_of("agent:copa"), algorithms.name_of("bbr")], ["fx1_0", "bbr"]);
        assert_eq!([algorithms.key_of("fx1_0"), algorithms.key_of("bbr")], ["agent:copa", "bbr"]);
    }

    #[test]
    fn an_agent_s_fallbacks_are_those_of_all_its_names() {
        let of_name = |count| AlgorithmStatus {
            counters: vec![("opened".into(), 9), ("fallbacks".into(), count)],
            ..AlgorithmStatus::default()
        };
        let status = AgentStatus {
            algorithms: vec![of_name(1), of_name(2)],
            totals: Totals { reports: 5, stale: 4, ..Totals::default() },
            ..AgentStatus::default()
        };
        let expected = AgentRecord { reports: 5, stale: 4, fallbacks: 3, ..AgentRecord::default() };
        assert_eq!(record(&status), expected);
    }
}
