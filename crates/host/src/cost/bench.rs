//! The bench: trials one after the other on one processor.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_ebpf::tcp::{
    Cadence, Datapath, Empty, Native, Options, ProgramTime, RunTimes, program_times,
};
use nix::sys::signal::Signal;
use socket2::SockRef;

use super::counter::Counted;
use super::pair::{Pair, RECEIVER};
use super::part::{AgentSpec, Part, PartSpec, SenderSpec, Times, results};
use super::traffic::{Sent, piece_bytes, sleep_until};
use super::{AgentOutcome, AgentTerms, Control, CostError, Outcome, ProgramCost, Trial};
use crate::agent::features;
use crate::agent::rules::Choice;
use crate::agent::status::AgentStatus;
use crate::clock;
use crate::daemon::control::{Answer, Request, ask};
use crate::process::{self, ProcessorTime};
use crate::roles::Order;
use crate::testbed::TestbedError;
use crate::testbed::lock::{self, Lock};
use crate::testbed::namespace::Namespace;
use crate::testbed::program::Program;
use crate::testbed::run::{READY_TIMEOUT, Starter};

/// A trial starts so long after all its parts are ready (ns): the order to start has come everywhere.
const LEAD_NS: u64 = 50_000_000;

/// Window of a receiver at a fixed rate: what 10 Gbit/s bring while the processor is with others for
/// 3 ms.
const WINDOW_BYTES: u32 = 4 << 20;

/// The machine for oneself: no emulation runs meanwhile.
#[derive(Debug)]
pub struct Turn {
    _lock: Lock,
}

impl Turn {
    /// Waits for it; `waiting` is told who has the machine, ten times a second, for at most 15 minutes.
    pub fn take(waiting: &mut dyn FnMut(String)) -> Result<Self, CostError> {
        Ok(Self { _lock: lock::take(waiting)? })
    }
}

/// Namespaces, and a processor on which everything happens.
#[derive(Debug)]
pub struct Bench {
    binary: PathBuf,
    dir: PathBuf,
    cpu: usize,
    ksoftirqd: Option<u32>,
    pair: Pair,
}

impl Bench {
    /// Builds it with the `forebay` at `binary`; specifications and logs of the parts go into `dir`.
    /// The calling thread, which must outlive the bench, leaves its last processor to it: the first
    /// one has the machine's own interrupts. On a machine with one processor it shares that.
    ///
    /// Errors: no root; a kernel on which no agent can run; no tool `ip`.
    pub fn open(binary: &Path, dir: &Path) -> Result<Self, CostError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(TestbedError::NotRoot.into());
        }
        features::check()?;
        let processors = process::processors().map_err(TestbedError::Proc)?;
        let cpu = *processors.last().ok_or(CostError::NoProcessor)?;
        process::try_keep_off(cpu);
        let dir = dir
            .canonicalize()
            .map_err(|source| TestbedError::File { path: dir.to_path_buf(), source })?;
        let ksoftirqd = process::ksoftirqd(cpu).map_err(TestbedError::Proc)?;
        Ok(Self { binary: binary.to_path_buf(), dir, cpu, ksoftirqd, pair: Pair::build()? })
    }

    /// The processor on which everything happens.
    pub fn cpu(&self) -> usize {
        self.cpu
    }

    /// What the counting process counts in a second of CPU time when no traffic is there.
    pub fn idle_count(&self, duration: Duration) -> Result<f64, CostError> {
        let times = Times { warm_up_ns: 0, duration_ns: nanos(duration) };
        let mut counter = self.counter(times)?;
        self.start(&mut [&mut counter])?;
        counter.await_line("finished", duration + READY_TIMEOUT)?;
        let counted: Counted = self.results("counter")?;
        counter.stop(None)?;
        Ok(counted.per_cpu_s())
    }

    /// Makes one trial.
    pub fn run(&self, trial: &Trial) -> Result<Outcome, CostError> {
        self.pair.set_gso(trial.load.gso_segments)?;
        let times = Times { warm_up_ns: nanos(trial.warm_up), duration_ns: nanos(trial.duration) };
        let known = match trial.times_programs {
            true => Some(ids(&BTreeSet::new())?),
            false => None,
        };
        let timing = known.as_ref().map(|_| RunTimes::enable()).transpose();
        let timing = timing.map_err(CostError::RunTimes)?;
        // At a fixed rate, acknowledgements too shall be the same in every trial.
        let window_bytes = trial.load.rate.map(|_| WINDOW_BYTES);
        let receiver = Part::Receiver { listen: RECEIVER, window_bytes };
        let receiver = self.part("receiver", &self.pair.receiver, receiver)?;
        let mut platform = self.platform(&trial.control)?;
        // What comes later is somebody else's.
        let own = known.map(|known| ids(&known)).transpose()?;
        let spec = SenderSpec {
            to: RECEIVER,
            congestion_control: platform.name.clone(),
            flows: trial.load.flows,
            rate_bps: trial.load.rate.map(|rate| rate.as_bits_per_sec()),
            piece_bytes: piece_bytes(trial.load.gso_segments),
            times,
            output: self.output("sender"),
        };
        let mut sender = self.part("sender", &self.pair.sender, Part::Sender(spec))?;
        let mut counter = self.counter(times)?;
        let started_ns = self.start(&mut [&mut sender, &mut counter])?;
        let window = times.window(started_ns);
        sleep_until(started_ns + times.warm_up_ns / 2);
        let earlier = platform.status()?;
        let mut looks = Vec::new();
        for at in window {
            sleep_until(at);
            looks.push(self.look([&sender, &receiver, &counter], &platform)?);
        }
        let later = platform.status()?;
        for part in [&mut sender, &mut counter] {
            part.await_line("finished", READY_TIMEOUT)?;
        }
        // Before the connections end, whose last words would count.
        let programs = own.map(|own| programs(&own, &trial.control)).transpose()?;
        drop(timing);
        let mut outcome =
            outcome(&looks, window, self.results("sender")?, self.results("counter")?);
        outcome.load = process::load_average().map_err(TestbedError::Proc)?;
        outcome.agent = earlier.zip(later).map(|(earlier, later)| agent(&earlier, &later));
        outcome.programs = programs.unwrap_or_default();
        sender.stop(None)?;
        counter.stop(None)?;
        drop(receiver);
        platform.stop()?;
        Ok(outcome)
    }

    /// Tells parts when to start; that time.
    fn start(&self, parts: &mut [&mut Program]) -> Result<u64, CostError> {
        let started_ns = clock::now().as_nanos() + LEAD_NS;
        for part in parts {
            part.tell(&Order::Start(started_ns).to_string())?;
        }
        Ok(started_ns)
    }

    fn counter(&self, times: Times) -> Result<Program, CostError> {
        let part = Part::Counter { times, output: self.output("counter") };
        self.part("counter", &self.pair.sender, part)
    }

    /// Starts a part and waits until it is ready.
    fn part(&self, name: &str, at: &Namespace, part: Part) -> Result<Program, CostError> {
        let starter = Starter { binary: &self.binary, dir: &self.dir };
        let mut program = starter.role("cost", at, name, &PartSpec { cpu: self.cpu, part })?;
        program.await_line("ready", READY_TIMEOUT)?;
        Ok(program)
    }

    fn platform(&self, control: &Control) -> Result<Platform, CostError> {
        // Whatever else of ours runs on this machine has other names.
        let own = format!("fbc{:x}", std::process::id());
        let held = |held| Platform { name: own.clone(), held: Some(held), agent: None };
        Ok(match control {
            Control::Kernel(name) => Platform { name: name.clone(), held: None, agent: None },
            Control::Native(kind) => held(Held::Native(Native::register(*kind, &own)?)),
            Control::Empty => held(Held::Empty(Empty::register(&own)?)),
            Control::Unled => held(Held::Unled(Box::new(Unled::register(&own)?))),
            Control::Agent(terms) => {
                let _: Choice = terms.algorithm.parse().map_err(|error| {
                    let (name, reason) = (terms.algorithm.clone(), format!("{error}"));
                    CostError::Algorithm { name, reason }
                })?;
                let spec = agent_spec(terms, &own, self.dir.join("agent.sock"));
                let control = spec.control.clone();
                let program = self.part("agent", &self.pair.sender, Part::Agent(spec))?;
                let agent = Some(AgentProgram { program, control });
                Platform { name: own, held: None, agent }
            }
        })
    }

    /// Looks at the processes and the processor.
    fn look(&self, parts: [&Program; 3], platform: &Platform) -> Result<Look, CostError> {
        let at_ns = clock::now().as_nanos();
        let agent = platform.agent.as_ref().map(|agent| agent.program.pid());
        let [sender, receiver, counter] = parts.map(|part| Some(part.pid()));
        let mut cpu_ns = [0; 5];
        let all = [sender, receiver, counter, agent, self.ksoftirqd];
        for (time, pid) in cpu_ns.iter_mut().zip(all) {
            let used = pid.map(process::cpu_clock_ns).transpose().map_err(TestbedError::Proc)?;
            *time = used.unwrap_or(0);
        }
        let processor = ProcessorTime::now(self.cpu).map_err(TestbedError::Proc)?;
        Ok(Look { at_ns, cpu_ns, processor })
    }

    fn output(&self, part: &str) -> PathBuf {
        self.dir.join(format!("{part}-output.json"))
    }

    fn results<T: serde::de::DeserializeOwned>(&self, part: &str) -> Result<T, CostError> {
        let path = self.output(part);
        let read = results(&path);
        // No part may be taken for the one of the next trial.
        let _ = fs::remove_file(&path);
        Ok(read.map_err(|source| TestbedError::File { path, source })?)
    }
}

/// What carries the name that the sender selects.
struct Platform {
    name: String,
    held: Option<Held>,
    agent: Option<AgentProgram>,
}

/// A congestion control that lives as long as this.
#[allow(dead_code)]
enum Held {
    Native(Native),
    Empty(Empty),
    Unled(Box<Unled>),
}

/// A datapath with one slot and a connection that has it, so that no other finds one. Dropped in this
/// order.
#[allow(dead_code)]
struct Unled {
    holders: [TcpStream; 2],
    datapath: Datapath,
}

impl Unled {
    fn register(name: &str) -> Result<Self, CostError> {
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
    /// What the agent says of itself; `None` without one.
    fn status(&self) -> Result<Option<AgentStatus>, CostError> {
        let Some(AgentProgram { control, .. }) = &self.agent else { return Ok(None) };
        let failed = |reason: String| CostError::Agent { path: control.clone(), reason };
        match ask(control, Request::Status).map_err(|error| failed(error.to_string()))? {
            Answer::Agent(status) => Ok(Some(*status)),
            other => Err(failed(format!("it answered {other:?}"))),
        }
    }

    fn stop(&mut self) -> Result<(), CostError> {
        if let Some(agent) = &mut self.agent {
            agent.program.stop(Some(Signal::SIGTERM))?;
        }
        self.held = None;
        Ok(())
    }
}

/// The processes and the processor at an instant.
struct Look {
    at_ns: u64,
    /// CPU time so far (ns) of sender, receiver, counter, agent and the kernel's thread for packet work.
    cpu_ns: [u64; 5],
    processor: ProcessorTime,
}

fn outcome(looks: &[Look], window: [u64; 2], sent: Sent, counted: Counted) -> Outcome {
    let [from, to] = looks else { return Outcome::default() };
    let window_ns = to.at_ns - from.at_ns;
    let used = |part: usize| to.cpu_ns[part].saturating_sub(from.cpu_ns[part]);
    let [sender, receiver, counter, agent, ksoftirqd] = [0, 1, 2, 3, 4].map(used);
    let processor = to.processor.since(from.processor);
    let parts = sender + receiver + counter + agent + ksoftirqd;
    let known = parts + processor.idle_ns + processor.steal_ns;
    let per_s = |count: u64| count as f64 * 1e9 / sent.time_ns.max(1) as f64;
    Outcome {
        counted_per_s: counted.per_s(),
        counter_cpu_ns: counter,
        window_ns,
        lateness_ns: [from.at_ns - window[0], to.at_ns - window[1]],
        bytes_per_s: per_s(sent.bytes),
        acks_per_s: per_s(sent.acks),
        segments_per_s: per_s(sent.segments),
        retransmissions: sent.retransmissions,
        sender_cpu_ns: sender,
        receiver_cpu_ns: receiver,
        agent_cpu_ns: agent,
        ksoftirqd_cpu_ns: ksoftirqd,
        softirq_ns: processor.softirq_ns,
        idle_ns: processor.idle_ns,
        steal_ns: processor.steal_ns,
        foreign_ns: window_ns.saturating_sub(known),
        ..Outcome::default()
    }
}

fn agent(earlier: &AgentStatus, later: &AgentStatus) -> AgentOutcome {
    let seconds = later.at_ns.saturating_sub(earlier.at_ns).max(1) as f64 / 1e9;
    let per_s = |later: u64, earlier: u64| later.saturating_sub(earlier) as f64 / seconds;
    let counter = |wanted: &str| -> u64 {
        let counters = later.algorithms.iter().flat_map(|algorithm| &algorithm.counters);
        counters.filter(|(name, _)| name == wanted).map(|(_, count)| count).sum()
    };
    AgentOutcome {
        reports_per_s: per_s(later.totals.reports, earlier.totals.reports),
        // One that the ring did not take is missed once the next one comes.
        reports_lost: later.totals.missed.max(counter("dropped")),
        decisions_per_s: per_s(later.totals.decisions, earlier.totals.decisions),
        stale: later.totals.stale,
        fallbacks: counter("fallbacks"),
        latency_ns: later.latency_ns,
    }
}

fn agent_spec(terms: &AgentTerms, name: &str, control: PathBuf) -> AgentSpec {
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

/// Those of `own` that belong to the platform, if others register theirs at the same time.
fn programs(own: &BTreeSet<u32>, control: &Control) -> Result<Vec<ProgramCost>, CostError> {
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
    Ok(times.into_iter().filter(is_own).map(ProgramCost::from).collect())
}

fn ids(known: &BTreeSet<u32>) -> Result<BTreeSet<u32>, CostError> {
    let programs = program_times(known).map_err(CostError::RunTimes)?;
    Ok(programs.into_iter().map(|ProgramTime { id, .. }| id).collect())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at_ns: u64, cpu_ns: [u64; 5], total_ns: u64) -> Look {
        let processor = ProcessorTime { steal_ns: total_ns / 100, total_ns, ..Default::default() };
        Look { at_ns, cpu_ns, processor }
    }

    #[test]
    fn what_nobody_of_the_trial_used_was_used_by_others() {
        let looks = [look(1_000, [0, 0, 0, 5, 7], 0), look(2_010, [300, 200, 380, 55, 27], 1_000)];
        let sent = Sent { time_ns: 500, bytes: 1000, acks: 10, segments: 20, retransmissions: 1 };
        let counted = Counted { steps: 600, time_ns: 1_000, cpu_ns: 500 };
        let outcome = outcome(&looks, [990, 2_000], sent, counted);
        assert_eq!(outcome.traffic_cpu_ns(), 300 + 200 + 50 + 20);
        // 1010 less 950 of the trial's own and 10 stolen.
        assert_eq!((outcome.window_ns, outcome.foreign_ns), (1_010, 50));
        assert_eq!(outcome.lateness_ns, [10, 10]);
        assert!((outcome.bytes_per_s - 2e9).abs() < 1.0 && (outcome.acks_per_s - 2e7).abs() < 1.0);
        assert!((outcome.counted_per_s - 6e8).abs() < 1.0);
    }

    #[test]
    fn reports_are_counted_between_two_answers_and_losses_since_the_beginning() {
        let mut earlier = AgentStatus { at_ns: 1_000_000_000, ..AgentStatus::default() };
        earlier.totals.reports = 100;
        let mut later = AgentStatus { at_ns: 3_000_000_000, ..earlier.clone() };
        later.totals.reports = 300;
        later.totals.missed = 2;
        let outcome = agent(&earlier, &later);
        assert!((outcome.reports_per_s - 100.0).abs() < 1e-9);
        assert_eq!(outcome.reports_lost, 2);
    }
}
