//! The implementation behind the name of a congestion control that a sender selects.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;

use forebay_ebpf::tcp::{Cadence, Datapath, Empty, Native, Options, ProgramTime, program_times};
use nix::sys::signal::Signal;
use socket2::SockRef;

use super::bench::nanos;
use super::part::AgentSpec;
use super::turns::Slice;
use super::{AgentTerms, Control, CostError, ProgramRecord, TrialAgentRecord, program_record};
use crate::program::Program;
use forebay_host::agent::status::AgentStatus;
use forebay_host::service::control::{Answer, Request, ask};

/// The implementation behind the name that the sender selects.
pub(super) struct Platform {
    /// Name of the congestion control.
    pub name: String,
    held: Option<Held>,
    agent: Option<AgentProgram>,
}

/// A congestion control that is registered as long as this value lives.
#[allow(dead_code)]
pub(super) enum Held {
    Native(Native),
    Empty(Empty),
    Unled(Box<Unled>),
}

/// A datapath with one slot, and a connection that occupies it, so that no other connection finds one.
/// Dropped in this order.
#[allow(dead_code)]
pub(super) struct Unled {
    holders: [TcpStream; 2],
    datapath: Datapath,
}

impl Unled {
    pub fn register(name: &str) -> Result<Self, CostError> {
        let options = Options { flows: 1, ..Options::named(name) };
        let datapath = Datapath::register(&options)?;
        let holders = connected(name).map_err(CostError::Holder)?;
        Ok(Self { holders, datapath })
    }
}

/// Two ends of a connection on this host; the first one's congestion control is `name`.
fn connected(name: &str) -> io::Result<[TcpStream; 2]> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    SockRef::from(&one).set_tcp_congestion(name.as_bytes())?;
    Ok([one, other])
}

struct AgentProgram {
    program: Program,
    control: PathBuf,
}

impl Platform {
    /// The kernel's own congestion control `name`.
    pub fn of_kernel(name: &str) -> Self {
        Self { name: name.into(), held: None, agent: None }
    }

    /// A congestion control that we registered as `name`.
    pub fn held(name: String, held: Held) -> Self {
        Self { name, held: Some(held), agent: None }
    }

    /// An agent that has registered `name` and answers at `control`.
    pub fn of_agent(name: String, program: Program, control: PathBuf) -> Self {
        Self { name, held: None, agent: Some(AgentProgram { program, control }) }
    }

    /// The agent's process; `None` without one.
    pub fn agent_pid(&self) -> Option<u32> {
        self.agent.as_ref().map(|agent| agent.program.pid())
    }

    /// The agent's status; `None` without an agent.
    pub fn status(&self) -> Result<Option<AgentStatus>, CostError> {
        let Some(AgentProgram { control, .. }) = &self.agent else { return Ok(None) };
        let failed = |reason: String| CostError::Agent { path: control.clone(), reason };
        match ask(control, Request::Status).map_err(|error| failed(error.to_string()))? {
            Answer::Status(status) => Ok(Some(*status)),
            other => Err(failed(format!("it answered {other:?}"))),
        }
    }

    /// Ends the platform, and its agent if there is one.
    pub fn stop(mut self) -> Result<(), CostError> {
        if let Some(agent) = &mut self.agent {
            agent.program.stop(Some(Signal::SIGTERM))?;
        }
        drop(self.held);
        Ok(())
    }
}

/// Counters of an agent during `slices`: connections are silent between them.
pub(super) fn agent(
    earlier: &AgentStatus,
    later: &AgentStatus,
    slices: &[Slice],
) -> TrialAgentRecord {
    let asked = earlier.at_ns..later.at_ns;
    let sending_ns: u64 = slices.iter().map(|slice| slice.overlap(&asked)).sum();
    let seconds = sending_ns.max(1) as f64 / 1e9;
    let per_s = |later: u64, earlier: u64| later.saturating_sub(earlier) as f64 / seconds;
    let counter = |wanted: &str| -> u64 {
        let counters = later.algorithms.iter().flat_map(|algorithm| &algorithm.counters);
        counters.filter(|(name, _)| name == wanted).map(|(_, count)| count).sum()
    };
    TrialAgentRecord {
        reports_per_s: per_s(later.totals.reports, earlier.totals.reports),
        // A report lost for lack of room shows up as missed once the next one arrives.
        reports_lost: later.totals.missed.max(counter("dropped")),
        decisions_per_s: per_s(later.totals.decisions, earlier.totals.decisions),
        stale: later.totals.stale,
        fallbacks: counter("fallbacks"),
        latency_ns: later.latency_ns,
    }
}

pub(super) fn agent_spec(terms: &AgentTerms, name: &str, control: PathBuf) -> AgentSpec {
    let (per_round, time) = match terms.cadence {
        Cadence::Round { at_least } => (true, at_least),
        Cadence::Every(time) => (false, time),
    };
    AgentSpec {
        algorithm: terms.algorithm.clone(),
        name: name.into(),
        report_ns: nanos(time),
        per_round,
        period_ns: nanos(terms.period),
        burden_ns: nanos(terms.burden),
        control,
    }
}

/// Programs among `own` that belong to the platform, since other processes may register theirs at the same time.
pub(super) fn programs(
    own: &BTreeSet<u32>,
    control: &Control,
) -> Result<Vec<ProgramRecord>, CostError> {
    let prefixes: &[&str] = match control {
        Control::Kernel(_) => &[],
        Control::Native(_) => &["native_"],
        Control::Empty => &["empty_"],
        Control::Agent(_) | Control::Unled => &["datapath_", "cong_control_"],
    };
    let times = program_times(&BTreeSet::new()).map_err(CostError::RunTimes)?;
    let is_own = |program: &ProgramTime| {
        own.contains(&program.id) && prefixes.iter().any(|it| program.name.starts_with(it))
    };
    Ok(times.into_iter().filter(is_own).map(program_record).collect())
}

pub(super) fn ids(known: &BTreeSet<u32>) -> Result<BTreeSet<u32>, CostError> {
    let programs = program_times(known).map_err(CostError::RunTimes)?;
    Ok(programs.into_iter().map(|ProgramTime { id, .. }| id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_count_between_answers_losses_since_start() {
        let mut earlier = AgentStatus { at_ns: 1_000_000_000, ..AgentStatus::default() };
        earlier.totals.reports = 100;
        let mut later = AgentStatus { at_ns: 5_000_000_000, ..earlier.clone() };
        later.totals.reports = 300;
        later.totals.missed = 2;
        let slice = |from, until| Slice { from, counted_from: from, until };
        // Half a second before the first answer, two seconds between the answers.
        let slices = [slice(500_000_000, 1_500_000_000), slice(3_000_000_000, 4_500_000_000)];
        let outcome = agent(&earlier, &later, &slices);
        assert!((outcome.reports_per_s - 100.0).abs() < 1e-9);
        assert_eq!(outcome.reports_lost, 2);
    }
}
