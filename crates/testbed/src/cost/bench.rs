//! The bench: trials on one processor, of one control or of several that take turns.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_ebpf::tcp::{Empty, Native, RunTimes};

use super::counter::Counted;
use super::pair::{Pair, receiver_of};
use super::part::{Part, PartSpec, SenderSpec, results};
use super::platform::{Held, Platform, Unled, agent, agent_spec, ids, programs};
use super::traffic::{Sent, piece_bytes, sleep_until};
use super::turns::Times;
use super::{AgentTerms, Control, CostError, CounterScheduling, Trial, TrialRecord};
use crate::TestbedError;
use crate::lock::{self, Lock};
use crate::namespace::Namespace;
use crate::orders::Order;
use crate::process::{self, ProcessorTime};
use crate::program::Program;
use crate::run::{READY_TIMEOUT, Starter};
use forebay_host::agent::features;
use forebay_host::agent::rules::Choice;
use forebay_host::agent::status::AgentStatus;
use forebay_host::clock;

/// Time from the last part's readiness to the start of a trial (ns), for the order to start to reach all parts.
const LEAD_NS: u64 = 50_000_000;

/// Window of a receiver at a fixed rate: the bytes that arrive at 10 Gbit/s while the processor runs other
/// processes for 3 ms.
const WINDOW_BYTES: u32 = 4 << 20;

/// Exclusive use of the machine: no emulation runs meanwhile.
#[derive(Debug)]
pub struct Turn {
    _lock: Lock,
}

impl Turn {
    /// Waits at most 15 minutes. Ten times a second `waiting` gets the name of the process that has the machine.
    pub fn take(waiting: &mut dyn FnMut(String)) -> Result<Self, CostError> {
        Ok(Self { _lock: lock::take(waiting)? })
    }
}

/// Namespaces, and the processor on which the trials run.
#[derive(Debug)]
pub struct Bench {
    binary: PathBuf,
    dir: PathBuf,
    cpu: usize,
    ksoftirqd: Option<u32>,
    pair: Pair,
    _processors: Processors,
}

/// The processors on which the calling thread may run again after the bench.
#[derive(Debug)]
struct Processors(Vec<usize>);

impl Drop for Processors {
    fn drop(&mut self) {
        process::try_keep_among(&self.0);
    }
}

impl Bench {
    /// Builds the bench with the `forebay` at `binary`; specifications and logs of the parts go into `dir`.
    /// Until the bench is dropped, the calling thread leaves its last processor to it: the first one has the
    /// machine's own interrupts. On a machine with one processor both share it.
    ///
    /// Errors: [`Bench::check`] fails, or the tool `ip` is missing.
    pub fn open(binary: &Path, dir: &Path) -> Result<Self, CostError> {
        Self::check()?;
        let processors = process::processors().map_err(TestbedError::Proc)?;
        let cpu = *processors.last().ok_or(CostError::NoProcessor)?;
        let _processors = Processors(processors);
        process::try_keep_off(cpu);
        let dir = dir
            .canonicalize()
            .map_err(|source| TestbedError::File { path: dir.to_path_buf(), source })?;
        let ksoftirqd = process::ksoftirqd(cpu).map_err(TestbedError::Proc)?;
        let (binary, pair) = (binary.to_path_buf(), Pair::build()?);
        Ok(Self { binary, dir, cpu, ksoftirqd, pair, _processors })
    }

    /// Refuses to run without root, and on a kernel on which no agent can run.
    pub fn check() -> Result<(), CostError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(TestbedError::NotRoot.into());
        }
        Ok(features::check()?)
    }

    /// Number of the processor on which the trials run.
    pub fn cpu(&self) -> usize {
        self.cpu
    }

    /// Count of the counting process per second of CPU time without traffic.
    pub fn idle_count(
        &self,
        duration: Duration,
        scheduling: CounterScheduling,
    ) -> Result<f64, CostError> {
        let mut counter = self.counter(Times::alone(0, nanos(duration)), scheduling)?;
        self.start([&mut counter])?;
        counter.await_line("finished", duration + READY_TIMEOUT)?;
        let counted: Vec<Counted> = self.results("counter")?;
        counter.stop(None)?;
        Ok(counted.first().copied().unwrap_or_default().per_cpu_s())
    }

    /// Makes a trial of one control.
    pub fn run(&self, trial: &Trial, control: &Control) -> Result<TrialRecord, CostError> {
        let mut outcomes = self.run_in_turns(trial, std::slice::from_ref(control))?;
        Ok(outcomes.pop().expect("one of each control"))
    }

    /// Makes a trial of several controls that take turns; returns one outcome each, in their order.
    pub fn run_in_turns(
        &self,
        trial: &Trial,
        controls: &[Control],
    ) -> Result<Vec<TrialRecord>, CostError> {
        self.pair.set_gso(trial.load.gso_segments)?;
        let timing = trial.times_programs.then(RunTimes::enable).transpose();
        let timing = timing.map_err(CostError::RunTimes)?;
        let times = times(trial, controls.len() as u32);
        let mut members: Vec<Member> = (0..)
            .zip(controls)
            .map(|(turn, control)| self.member(trial, control, times.of_turn(turn)))
            .collect::<Result<_, _>>()?;
        let mut counter = self.counter(times, trial.counter)?;
        let senders = members.iter_mut().map(|member| &mut member.sender);
        let started_ns = self.start(senders.chain([&mut counter]))?;
        sleep_until(times.asked_at(started_ns));
        let earlier = statuses(&members)?;
        for (turn, range) in times.counted(started_ns) {
            let member = &mut members[turn];
            let mut looks = Vec::with_capacity(2);
            for at in [range.start, range.end] {
                sleep_until(at);
                looks.push(self.look(member, &counter)?);
            }
            member.seen.add(&looks, &range);
        }
        let later = statuses(&members)?;
        for member in &mut members {
            member.sender.await_line("finished", READY_TIMEOUT)?;
        }
        counter.await_line("finished", READY_TIMEOUT)?;
        // Read before the connections end, because their last packets would count.
        for (member, control) in members.iter_mut().zip(controls) {
            let own = member.own_programs.take();
            member.seen.outcome.programs =
                own.map(|own| programs(&own, control)).transpose()?.unwrap_or_default();
        }
        drop(timing);
        let load = process::load_average().map_err(TestbedError::Proc)?;
        let counted: Vec<Counted> = self.results("counter")?;
        counter.stop(None)?;
        let told = earlier.into_iter().zip(later);
        let mut outcomes = Vec::with_capacity(members.len());
        for ((mut member, counted), told) in members.into_iter().zip(counted).zip(told) {
            let slices = member.times.slices(started_ns);
            let sent = self.results(&name("sender", member.times.turn))?;
            let mut outcome = member.seen.outcome(sent, counted);
            outcome.load = load;
            outcome.sending_ns = slices.iter().map(|slice| slice.until - slice.from).sum();
            let (earlier, later) = told;
            outcome.agent =
                earlier.zip(later).map(|(earlier, later)| agent(&earlier, &later, &slices));
            member.sender.stop(None)?;
            drop(member.receiver);
            member.platform.stop()?;
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    /// The parts of one control, ready to start.
    fn member(&self, trial: &Trial, control: &Control, times: Times) -> Result<Member, CostError> {
        let known = trial.times_programs.then(|| ids(&BTreeSet::new())).transpose()?;
        // At a fixed rate, acknowledgements should also be the same for every control.
        let window_bytes = trial.load.rate.map(|_| WINDOW_BYTES);
        let to = receiver_of(times.turn);
        let name = |part| name(part, times.turn);
        let receiver = Part::Receiver { listen: to, window_bytes };
        let receiver = self.part(&name("receiver"), &self.pair.receiver, receiver)?;
        let platform = self.platform(control, times.turn)?;
        // Programs that appear later belong to another process.
        let own_programs = known.map(|known| ids(&known)).transpose()?;
        let spec = SenderSpec {
            to,
            congestion_control: platform.name.clone(),
            flows: trial.load.flows,
            rate_bps: trial.load.rate.map(|rate| rate.as_bits_per_sec()),
            piece_bytes: piece_bytes(trial.load.gso_segments),
            times,
            output: self.output(&name("sender")),
        };
        let sender = self.part(&name("sender"), &self.pair.sender, Part::Sender(spec))?;
        let seen = Seen::default();
        Ok(Member { sender, platform, receiver, own_programs, times, seen })
    }

    /// Sends the start time to the parts and returns it.
    fn start<'a>(
        &self,
        parts: impl IntoIterator<Item = &'a mut Program>,
    ) -> Result<u64, CostError> {
        let started_ns = clock::now().as_nanos() + LEAD_NS;
        for part in parts {
            part.tell(&Order::Start(started_ns).to_string())?;
        }
        Ok(started_ns)
    }

    fn counter(&self, times: Times, scheduling: CounterScheduling) -> Result<Program, CostError> {
        let part = Part::Counter { times, scheduling, output: self.output("counter") };
        self.part("counter", &self.pair.sender, part)
    }

    /// Starts a part and waits until it is ready.
    fn part(&self, name: &str, at: &Namespace, part: Part) -> Result<Program, CostError> {
        let starter = Starter { binary: &self.binary, dir: &self.dir };
        let mut program = starter.role("cost", at, name, &PartSpec { cpu: self.cpu, part })?;
        program.await_line("ready", READY_TIMEOUT)?;
        Ok(program)
    }

    fn platform(&self, control: &Control, turn: u32) -> Result<Platform, CostError> {
        // Other processes of this program have other names.
        let own = format!("fbc{:x}_{turn:x}", std::process::id());
        let held = match control {
            Control::Kernel(name) => return Ok(Platform::of_kernel(name)),
            Control::Agent(terms) => return self.agent(terms, own, turn),
            Control::Native(kind) => Held::Native(Native::register(*kind, &own)?),
            Control::Empty => Held::Empty(Empty::register(&own)?),
            Control::Unled => Held::Unled(Box::new(Unled::register(&own)?)),
        };
        Ok(Platform::held(own, held))
    }

    fn agent(&self, terms: &AgentTerms, own: String, turn: u32) -> Result<Platform, CostError> {
        let _: Choice = terms.algorithm.parse().map_err(|error| {
            let (name, reason) = (terms.algorithm.clone(), format!("{error}"));
            CostError::Algorithm { name, reason }
        })?;
        let part = name("agent", turn);
        let spec = agent_spec(terms, &own, self.dir.join(format!("{part}.sock")));
        let control = spec.control.clone();
        let program = self.part(&part, &self.pair.sender, Part::Agent(spec))?;
        Ok(Platform::of_agent(own, program, control))
    }

    /// Reads the CPU times of a control's processes and of the processor.
    fn look(&self, member: &Member, counter: &Program) -> Result<Look, CostError> {
        let at_ns = clock::now().as_nanos();
        let [sender, receiver, counter] =
            [&member.sender, &member.receiver, counter].map(|part| Some(part.pid()));
        let mut cpu_ns = [0; 5];
        let all = [sender, receiver, counter, member.platform.agent_pid(), self.ksoftirqd];
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
        // The next trial must not read this file as its own.
        let _ = fs::remove_file(&path);
        Ok(read.map_err(|source| TestbedError::File { path, source })?)
    }
}

/// One control of a trial, with its processes. Dropped in this order.
struct Member {
    sender: Program,
    platform: Platform,
    receiver: Program,
    /// BPF programs that the control loaded, if they are timed.
    own_programs: Option<BTreeSet<u32>>,
    times: Times,
    seen: Seen,
}

/// CPU times of the processes and the processor at an instant.
struct Look {
    at_ns: u64,
    /// CPU time so far (ns) of sender, receiver, counter, agent and the kernel's thread for packet work.
    cpu_ns: [u64; 5],
    processor: ProcessorTime,
}

/// Measurements of a control so far.
#[derive(Default)]
struct Seen {
    outcome: TrialRecord,
}

impl Seen {
    /// Adds a slice from both looks at it and the times at which they were due.
    fn add(&mut self, looks: &[Look], due: &Range<u64>) {
        let [from, to] = looks else { return };
        let sum = &mut self.outcome;
        let used = |part: usize| to.cpu_ns[part].saturating_sub(from.cpu_ns[part]);
        for (time, part) in [
            (&mut sum.sender_cpu_ns, 0),
            (&mut sum.receiver_cpu_ns, 1),
            (&mut sum.counter_cpu_ns, 2),
            (&mut sum.agent_cpu_ns, 3),
            (&mut sum.ksoftirqd_cpu_ns, 4),
        ] {
            *time += used(part);
        }
        let processor = to.processor.since(from.processor);
        sum.window_ns += to.at_ns - from.at_ns;
        sum.softirq_ns += processor.softirq_ns;
        sum.idle_ns += processor.idle_ns;
        sum.steal_ns += processor.steal_ns;
        let late = [from.at_ns.saturating_sub(due.start), to.at_ns.saturating_sub(due.end)];
        for (most, late) in sum.lateness_ns.iter_mut().zip(late) {
            *most = late.max(*most);
        }
    }

    fn outcome(self, sent: Sent, counted: Counted) -> TrialRecord {
        let seen = self.outcome;
        let known = seen.traffic_cpu_ns() + seen.counter_cpu_ns + seen.idle_ns + seen.steal_ns;
        let per_s = |count: u64| count as f64 * 1e9 / sent.time_ns.max(1) as f64;
        TrialRecord {
            counted_per_s: counted.per_s(),
            bytes_per_s: per_s(sent.bytes),
            acks_per_s: per_s(sent.acks),
            segments_per_s: per_s(sent.segments),
            retransmissions: sent.retransmissions,
            foreign_ns: seen.window_ns.saturating_sub(known),
            ..seen
        }
    }
}

fn times(trial: &Trial, turns: u32) -> Times {
    let [warm_up_ns, duration_ns, slice_ns] =
        [trial.warm_up, trial.duration, trial.slice].map(nanos);
    match turns {
        0 | 1 => Times::alone(warm_up_ns, duration_ns),
        turns => Times { warm_up_ns, duration_ns, slice_ns, turn: 0, turns },
    }
}

fn statuses(members: &[Member]) -> Result<Vec<Option<AgentStatus>>, CostError> {
    members.iter().map(|member| member.platform.status()).collect()
}

fn name(part: &str, turn: u32) -> String {
    format!("{part}-{turn}")
}

pub(super) fn nanos(time: Duration) -> u64 {
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
    fn unclaimed_processor_time_belongs_to_other_processes() {
        let mut seen = Seen::default();
        let looks = [look(1_000, [0, 0, 0, 5, 7], 0), look(2_010, [300, 200, 380, 55, 27], 1_000)];
        seen.add(&looks, &(990..2_000));
        let looks = [look(5_000, [400; 5], 3_000), look(6_000, [700, 700, 750, 400, 400], 3_000)];
        seen.add(&looks, &(4_970..6_000));
        let sent = Sent { time_ns: 500, bytes: 1000, acks: 10, segments: 20, retransmissions: 1 };
        let counted = Counted { steps: 600, time_ns: 1_000, cpu_ns: 500 };
        let outcome = seen.outcome(sent, counted);
        assert_eq!(outcome.traffic_cpu_ns(), 300 + 200 + 50 + 20 + 300 + 300);
        // 1010 minus 950 of the trial's own and 10 stolen, and 1000 minus 950.
        assert_eq!((outcome.window_ns, outcome.foreign_ns), (2_010, 50 + 50));
        assert_eq!(outcome.lateness_ns, [30, 10]);
        assert!((outcome.bytes_per_s - 2e9).abs() < 1.0 && (outcome.acks_per_s - 2e7).abs() < 1.0);
        assert!((outcome.counted_per_s - 6e8).abs() < 1.0);
    }
}
