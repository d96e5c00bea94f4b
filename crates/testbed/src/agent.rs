//! The agent of a run: start, faults, and how its connections fared under them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_ebpf::tcp::{Events, Head};
use nix::sys::signal::Signal;

use super::TestbedError;
use super::boxes::control_path;
use super::namespace::Namespace;
use super::program::Program;
use super::run::{READY_TIMEOUT, Starter};
use super::starver::Starver;
use super::topology::step;
use forebay_core::record::{AgentFault, AgentRecord};
use forebay_host::agent::recording::{self, RecordingError, RecordingRow};
use forebay_host::agent::rows::ReportRow;
use forebay_host::agent::status::AgentStatus;
use forebay_host::clock;
use forebay_host::service::control::{self, Answer, Request};
use forebay_policy::algorithms;
use forebay_scenario::{FaultAction, FaultProgram, Platform, Scenario};

/// Interval of the checks whether a starting agent answers.
const POLL: Duration = Duration::from_millis(10);
/// Round trips after the agent's end before the kernel's fallback takes a connection over, but at
/// least [`PATIENCE_NS`].
const PATIENCE_ROUND_TRIPS: u64 = 4;
/// Least time (ns) after the agent's end before the kernel's fallback takes a connection over.
const PATIENCE_NS: u64 = 100_000_000;

/// State of the agent after the faults so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Running,
    /// Stopped by a signal, and not continued.
    Frozen,
    /// Killed, and not restarted.
    Dead,
}

/// A running agent.
pub(super) struct Agent<'a> {
    program: Program,
    condition: Condition,
    /// Starves the agent while a fault lasts.
    starver: Option<Starver>,
    namespace: Namespace,
    start: Starter<'a>,
    arguments: Vec<OsString>,
    control: PathBuf,
    /// Open so that the control socket has a short path.
    _dir: File,
    /// Counters of the agents that were killed.
    earlier: AgentRecord,
    earlier_cpu_ns: u64,
    /// One file for each start, if connections are followed through faults.
    recordings: Vec<PathBuf>,
    is_recorded: bool,
    /// When the first fault hit the agent.
    hit_ns: Option<u64>,
}

impl<'a> Agent<'a> {
    /// Starts an agent that offers `offers`. If faults will hit it, it records. If a fault will restart it,
    /// it pins its objects on a file system that ends with the run.
    pub fn start(
        scenario: &Scenario,
        offers: &[String],
        namespace: &Namespace,
        start: Starter<'a>,
    ) -> Result<Self, TestbedError> {
        let file_error = |source| TestbedError::File { path: start.dir.into(), source };
        let dir = File::open(start.dir).map_err(file_error)?;
        let control = control_path(start.dir, &dir, "agent");
        let mut arguments = arguments(scenario, offers);
        arguments.extend(["--control".into(), control.clone().into_os_string()]);
        let hits = scenario.faults.iter().filter(|fault| fault.program == FaultProgram::Agent);
        let actions: Vec<FaultAction> = hits.map(|fault| fault.action).collect();
        let namespace = if actions.contains(&FaultAction::Restart) {
            let opened = namespace.with_bpffs();
            let (namespace, pins) = opened.map_err(step("opening a BPF file system", "agent"))?;
            arguments.extend(["--pin".into(), pins.into_os_string()]);
            namespace
        } else {
            namespace.try_clone().map_err(file_error)?
        };
        let is_recorded = !actions.is_empty();
        let mut recordings = Vec::new();
        let program = launch(&arguments, &namespace, start, is_recorded, &mut recordings)?;
        let mut agent = Self {
            program,
            condition: Condition::Running,
            starver: None,
            namespace,
            start,
            arguments,
            control,
            _dir: dir,
            earlier: AgentRecord::default(),
            earlier_cpu_ns: 0,
            recordings,
            is_recorded,
            hit_ns: None,
        };
        agent.await_answer()?;
        Ok(agent)
    }

    /// Fails if the agent ended without a fault that explains it.
    pub fn check(&mut self) -> Result<(), TestbedError> {
        if self.condition == Condition::Dead { Ok(()) } else { self.program.check() }
    }

    /// Name and CPU time so far (ns), earlier agents included.
    pub fn cpu_time_ns(&self) -> (String, u64) {
        let own_ns = self.program.cpu_time_ns().unwrap_or(0);
        (self.program.name.clone(), self.earlier_cpu_ns + own_ns)
    }

    /// Applies a fault.
    pub fn apply(&mut self, action: FaultAction) -> Result<(), TestbedError> {
        match action {
            FaultAction::Kill => {
                self.earlier = self.counted();
                self.earlier_cpu_ns = self.cpu_time_ns().1;
                self.note_hit();
                self.starver = None;
                self.program.kill();
                self.condition = Condition::Dead;
            }
            FaultAction::Stop => {
                self.note_hit();
                self.program.signal(Signal::SIGSTOP)?;
                self.condition = Condition::Frozen;
            }
            FaultAction::Starve => {
                self.note_hit();
                let starver = Starver::start(self.program.pid());
                self.starver = Some(starver.map_err(|source| TestbedError::Start {
                    name: format!("what starves {}", self.program.name),
                    source,
                })?);
                self.condition = Condition::Frozen;
            }
            FaultAction::Continue => {
                self.starver = None;
                self.program.signal(Signal::SIGCONT)?;
                self.condition = Condition::Running;
            }
            FaultAction::Restart if self.condition != Condition::Dead => {
                return Err(TestbedError::NotDead { name: self.program.name.clone() });
            }
            // An agent has no key or log that could fail. The run goes on without its answer, as connections
            // do.
            FaultAction::Restart
            | FaultAction::RestartOtherKey
            | FaultAction::RestartFullLog
            | FaultAction::RestartBlockedLog => {
                let recordings = &mut self.recordings;
                let (namespace, start) = (&self.namespace, self.start);
                self.program =
                    launch(&self.arguments, namespace, start, self.is_recorded, recordings)?;
                self.condition = Condition::Running;
            }
        }
        Ok(())
    }

    /// Ends the agent; returns its counters.
    pub fn stop(&mut self) -> Result<AgentRecord, TestbedError> {
        let counted = self.counted();
        if self.condition != Condition::Dead {
            self.program.stop(Some(Signal::SIGTERM))?;
        }
        let fault = self.hit_ns.map(|hit_ns| after_fault(&self.recordings, hit_ns)).transpose()?;
        Ok(AgentRecord { fault, ..counted })
    }

    fn note_hit(&mut self) {
        self.hit_ns.get_or_insert(clock::now().as_nanos());
    }

    /// Waits until the agent answers, which it does once its names are registered.
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
            Ok(Answer::Status(status)) => Some(status),
            _ => None,
        }
    }

    /// Sum of the counters of all agents so far.
    fn counted(&self) -> AgentRecord {
        let is_heard = self.condition == Condition::Running;
        let status = is_heard.then(|| self.status()).flatten();
        status.map_or(self.earlier, |status| sum(&self.earlier, &record(&status)))
    }
}

fn arguments(scenario: &Scenario, offers: &[String]) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["agent".into()];
    arguments.extend(offers.iter().flat_map(|offer| ["--algorithm".into(), offer.into()]));
    let in_agent = scenario.flows.iter().filter(|it| it.platform == Some(Platform::Agent));
    let files: BTreeSet<&Path> =
        in_agent.filter_map(|flow| algorithms::python(&flow.cc.kind)).collect();
    arguments.extend(files.into_iter().flat_map(|file| ["--cc-python".into(), file.into()]));
    let period_us = scenario.agent.period.as_micros();
    for (option, value) in [
        ("--report", scenario.agent.report.to_string()),
        ("--period", format!("{period_us}us")),
        ("--seed", scenario.seed.to_string()),
    ] {
        arguments.extend([option.into(), value.into()]);
    }
    arguments
}

fn launch(
    arguments: &[OsString],
    namespace: &Namespace,
    start: Starter<'_>,
    is_recorded: bool,
    recordings: &mut Vec<PathBuf>,
) -> Result<Program, TestbedError> {
    let mut arguments = arguments.to_vec();
    if is_recorded {
        let recording = start.dir.join(format!("agent-{}.recording", recordings.len()));
        arguments.extend(["--record".into(), recording.clone().into_os_string()]);
        recordings.push(recording);
    }
    start.program("agent", namespace, &arguments)
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
        fault: None,
    }
}

/// Sum for an agent and its successor, which takes over the kernel's counters.
fn sum(earlier: &AgentRecord, later: &AgentRecord) -> AgentRecord {
    AgentRecord {
        reports: earlier.reports + later.reports,
        missed: earlier.missed + later.missed,
        decisions: earlier.decisions + later.decisions,
        stale: earlier.stale + later.stale,
        failed: earlier.failed + later.failed,
        fallbacks: later.fallbacks,
        fault: None,
    }
}

/// A connection with a record after the fault.
struct Survivor {
    /// Start of the time within which it must fall back: the fault, the timeout for which it waited then, or
    /// its beginning. A connection that hears and sends nothing cannot notice the fault.
    from_ns: u64,
    fallen: Option<Fallen>,
}

/// A connection that the kernel's fallback has taken over.
struct Fallen {
    after_ns: u64,
    late_ns: u64,
    is_resumed: bool,
}

/// Connections that fell back after `hit_ns`, according to the recordings.
fn after_fault(recordings: &[PathBuf], hit_ns: u64) -> Result<AgentFault, RecordingError> {
    // Each agent numbers its connections from the start.
    let mut survivors: BTreeMap<(usize, u64), Survivor> = BTreeMap::new();
    for (number, path) in recordings.iter().enumerate() {
        recording::read(path, |_, row| {
            let (flow, head, heard, is_new) = match &row {
                RecordingRow::Open(open) => {
                    (open.flow, &open.head, open.window_us.zip(open.acks), !open.adopted)
                }
                RecordingRow::Report(ReportRow { flow, report }) => {
                    (*flow, &report.head, Some((report.window_us, report.acks)), false)
                }
                RecordingRow::End { reason } => {
                    return Err(format!("the recording ends before the run: {reason}"));
                }
                _ => return Ok(()),
            };
            if head.at.as_nanos() > hit_ns {
                survivors
                    .entry((number, flow))
                    .or_insert_with(|| Survivor::first_heard(head, heard, is_new, hit_ns))
                    .take(head, heard, hit_ns);
            }
            Ok(())
        })?;
    }
    let fallen = || survivors.values().filter_map(|one| one.fallen.as_ref());
    Ok(AgentFault {
        fell_back: fallen().count() as u64,
        last_ns: fallen().map(|one| one.after_ns).max().unwrap_or(0),
        late_ns: fallen().map(|one| one.late_ns).max().unwrap_or(0),
        resumed: fallen().filter(|one| one.is_resumed).count() as u64,
    })
}

/// Microseconds and acknowledgements that a record covers, including its own.
type Heard = Option<(u32, u32)>;

/// Whether at most `acks_max` acknowledgements came in a record's window, which reaches back to `by_ns` or
/// earlier.
fn is_first_sign(head: &Head, heard: Heard, acks_max: u32, by_ns: u64) -> bool {
    heard.is_some_and(|(window_us, acks)| {
        acks <= acks_max && head.at.as_nanos().saturating_sub(u64::from(window_us) * 1000) <= by_ns
    })
}

impl Survivor {
    fn first_heard(head: &Head, heard: Heard, is_new: bool, hit_ns: u64) -> Self {
        let waited = is_new || is_first_sign(head, heard, 0, hit_ns);
        Self { from_ns: if waited { head.at.as_nanos() } else { hit_ns }, fallen: None }
    }

    fn take(&mut self, head: &Head, heard: Heard, hit_ns: u64) {
        let events = head.events;
        if events.contains(Events::FALLBACK) && self.fallen.is_none() {
            let round_trips_ns = PATIENCE_ROUND_TRIPS * u64::from(head.srtt_us) * 1000;
            let due_ns = self.from_ns + round_trips_ns.max(PATIENCE_NS);
            // One acknowledgement may itself have triggered the fallback.
            let is_in_time = is_first_sign(head, heard, 1, due_ns);
            let late_ns = if is_in_time { 0 } else { head.at.as_nanos().saturating_sub(due_ns) };
            let after_ns = head.at.as_nanos() - hit_ns;
            self.fallen = Some(Fallen { after_ns, late_ns, is_resumed: false });
        }
        if events.contains(Events::RESUMED)
            && let Some(fallen) = &mut self.fallen
        {
            fallen.is_resumed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use forebay_core::spec::Spec;
    use forebay_core::units::Timestamp;
    use forebay_ebpf::tcp::Report;
    use forebay_host::agent::recording::{Open, SCHEMA};
    use forebay_host::agent::status::{AgentTotals, AlgorithmStatus};

    #[test]
    fn agent_fallbacks_sum_over_all_names() {
        let of_name = |count| AlgorithmStatus {
            counters: vec![("opened".into(), 9), ("fallbacks".into(), count)],
            ..AlgorithmStatus::default()
        };
        let status = AgentStatus {
            algorithms: vec![of_name(1), of_name(2)],
            totals: AgentTotals { reports: 5, stale: 4, ..AgentTotals::default() },
            ..AgentStatus::default()
        };
        let expected = AgentRecord { reports: 5, stale: 4, fallbacks: 3, ..AgentRecord::default() };
        assert_eq!(record(&status), expected);
        let both = sum(&expected, &expected);
        assert_eq!((both.reports, both.stale, both.fallbacks), (10, 8, 3));
    }

    fn head(at_ms: u64, events: Events) -> Head {
        let at = Timestamp::from_nanos(at_ms * 1_000_000);
        Head { at, events, srtt_us: 50_000, ..Head::default() }
    }

    fn report(flow: u64, at_ms: u64, events: Events) -> RecordingRow {
        covered(flow, at_ms, events, 0, 0)
    }

    fn covering(flow: u64, at_ms: u64, window_ms: u32, acks: u32) -> RecordingRow {
        covered(flow, at_ms, Events::FALLBACK, window_ms, acks)
    }

    fn covered(flow: u64, at_ms: u64, events: Events, window_ms: u32, acks: u32) -> RecordingRow {
        let head = head(at_ms, events);
        let window_us = window_ms * 1000;
        let report = Report { head, window_us, acks, ..Report::default() };
        RecordingRow::Report(ReportRow { flow, report })
    }

    fn write(path: &std::path::Path, rows: &[RecordingRow]) {
        let start = recording::Start {
            schema: SCHEMA,
            version: "0".into(),
            kernel: "6.18".into(),
            pace: false,
        };
        let rows = [&[RecordingRow::Start(start)], rows].concat();
        let lines = rows.iter().map(|row| serde_json::to_string(row).unwrap() + "\n");
        fs::write(path, lines.collect::<String>()).unwrap();
    }

    #[test]
    fn fallbacks_after_fault_are_counted_with_delay() {
        let folder = tempfile::tempdir().unwrap();
        let recordings = [0, 1].map(|number| folder.path().join(number.to_string()));
        // Nothing counts before the fault at 1 s. 4 round trips are 200 ms. The third connection was silent
        // from the fault on, the fourth was not, and the first recovered before. The fifth waited for its
        // timeout and then had its 200 ms. The sixth heard one acknowledgement and was the latest. The
        // seventh began later.
        write(&recordings[0], &[report(0, 900, Events::FALLBACK), report(0, 950, Events::RESUMED)]);
        let open = Open {
            flow: 0,
            adopted: true,
            cc: Spec::named("cubic"),
            seed: 0,
            remote: None,
            head: head(1150, Events::FALLBACK),
            window_us: None,
            acks: None,
        };
        let begun =
            Open { flow: 7, adopted: false, head: head(1400, Events::OPEN), ..open.clone() };
        let rows = [
            RecordingRow::Open(open),
            RecordingRow::Open(begun),
            covering(7, 1600, 200, 9),
            covering(3, 1900, 800, 1),
            covering(4, 1210, 900, 2),
            covering(1, 1230, 20, 1),
            covered(5, 1800, Events::RTO, 1500, 0),
            covering(5, 1990, 190, 3),
            covered(6, 1050, Events::ROUND, 60, 1),
            covering(6, 1245, 195, 2),
            report(0, 1300, Events::ROUND),
            report(0, 2000, Events::RESUMED),
            report(2, 2000, Events::RESUMED),
        ];
        write(&recordings[1], &rows);
        let seen = after_fault(&recordings, 1_000_000_000).unwrap();
        let (last_ns, late_ns) = (990_000_000, 45_000_000);
        assert_eq!(seen, AgentFault { fell_back: 7, last_ns, late_ns, resumed: 1 });
    }

    #[test]
    fn recording_that_ends_early_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0");
        write(&path, &[RecordingRow::End { reason: "the disk did not keep up".into() }]);
        let error = after_fault(&[path], 0).unwrap_err().to_string();
        assert!(
            error.ends_with("the recording ends before the run: the disk did not keep up"),
            "{error}"
        );
    }
}
