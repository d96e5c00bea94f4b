//! The loop of an agent: drain, decide, sleep.
//!
//! ```text
//! busy    reports in the last 20 ms: T = min(period, max(shortest RTT / 4, 3 ms)), and no less
//!         than the time between two reports of a connection as long as that is within the period
//! idle    50 ms
//! ```
//! A sleep lasts up to a fifth of min(period, 3 ms) longer if that saves an interrupt (SLACK_PARTS). Only urgent
//! records end a busy sleep early: a new connection, a loss, a timeout, a tripwire. A wake-up costs the kernel
//! several microseconds on the path of the ACK. During an idle sleep the kernel's side wakes the agent with the
//! first record of any kind.

use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use forebay_core::units::Timestamp;
use forebay_ebpf::tcp::{Counters, Datapath, Options, Record, Reporting};

use super::connections::Connections;
use super::flow::Terms;
use super::idle::{self, IDLE_AFTER, IdleConnection};
use super::recording::{self, Recorder, RecordingWriter, SCHEMA, Start};
use super::rules::Choice;
use super::silence::Silence;
use super::status::{self, AgentStatus, AlgorithmStatus, RecordingStatus};
use super::status::{HOLDERS_MAX, HolderStatus, SlotsStatus};
use super::wakes::Wakes;
use super::{AgentConfig, AgentError, Cadence, PERIOD_MAX};
use crate::lateness::Lateness;
use crate::service::control::{Answer, Request};
use crate::service::privileges;
use crate::service::supervisor::{Desk, Handle, Mailbox, Worker, block_signals, supervise};
use crate::{clock, kernel, log};

/// After a report within this time the agent expects more and polls. Later reports wake it: that costs an
/// acknowledgement 5 us, while each poll costs a processor some 15 us.
const BUSY: Duration = Duration::from_millis(20);
/// Longest sleep; the first record ends it early.
const IDLE: Duration = Duration::from_millis(50);
/// Shortest sleep, even if the shortest round trip or a timer requires less.
const NAP_MIN: Duration = Duration::from_millis(3);
/// Each sleep may last longer by this part of the shortest sleep, if another timer interrupts the processor then
/// anyway. An extra interrupt costs a virtual machine more than the look itself.
const SLACK_PARTS: u32 = 5;
/// The agent sleeps for one part in this number of the shortest round trip.
const ROUND_TRIP_PARTS: u32 = 4;
/// Oldest report that still gets a decision: the report waited for a period, and the agent for the processor.
const STALE_AFTER: Duration = PERIOD_MAX.saturating_mul(2);
/// An agent with a shorter period must not wait for another process's time slice, which would be as long.
const PROMPT: Duration = Duration::from_millis(1);
/// Time between two searches for connections whose last record was lost.
const SWEEP: Duration = Duration::from_secs(1);
/// If two looks are further apart, the agent was stopped or had no processor: records written meanwhile may have
/// found no room.
const DEAF: Duration = Duration::from_secs(1);

/// Runs an agent until a signal or command stops it, and returns its last state. `started` is called once its names
/// can be selected and its control socket exists.
pub fn run(
    config: &AgentConfig,
    started: impl FnOnce() + Send + 'static,
) -> Result<AgentStatus, AgentError> {
    super::check()?;
    let signals = block_signals().map_err(AgentError::SetUp)?;
    log::start(privileges::drop_unneeded).map_err(AgentError::SetUp)?;
    let worker = AgentWorker::open(config, Box::new(started))?;
    let control = config.control_path();
    supervise(&control, &"agent", signals, None, worker, AgentDesk).map_err(AgentError::Failed)
}

/// Answers requests for the state; no setting of an agent can be changed while it runs.
struct AgentDesk;

impl Desk<AgentWorker> for AgentDesk {
    fn answer(&mut self, _: &Handle<AgentWorker>, request: Request) -> Option<Answer<AgentStatus>> {
        if request == Request::Status {
            return None;
        }
        /// Answer to requests for a reload or a trial.
        const REASON: &str = "an agent has no configuration file: start it again to change it";
        tracing::warn!(target: "reload", "{REASON}");
        Some(Answer::Failed(REASON.into()))
    }
}

/// Everything the worker thread owns.
struct AgentWorker {
    /// One per algorithm, in their order.
    datapaths: Vec<Datapath>,
    /// One per datapath.
    silence: Vec<Silence>,
    /// Requests for a slot that had been in vain at the last sweep, per datapath.
    in_vain: Vec<u64>,
    wakes: Wakes,
    connections: Connections,
    algorithms: Vec<AlgorithmStatus>,
    rules: Vec<String>,
    period: Duration,
    /// Least time between two reports of a connection.
    interval: Duration,
    burden: Duration,
    latency: Lateness,
    recorder: Recorder,
    recording: Option<String>,
    writer: RecordingWriter,
    started: Timestamp,
    tell_started: Box<dyn FnOnce() + Send>,
    heard: Timestamp,
    swept: Timestamp,
    /// Time of the last look, and the time since which no look was missed.
    looked: Timestamp,
    listening: Timestamp,
    is_pinned: bool,
}

impl AgentWorker {
    fn open(config: &AgentConfig, started: Box<dyn FnOnce() + Send>) -> Result<Self, AgentError> {
        let now = clock::now();
        let seed = config.seed.map_or_else(getrandom::u64, Ok);
        let seed = seed.map_err(|error| AgentError::SetUp(io::Error::other(error)))?;
        let choices = config.rules.choices();
        let datapaths = choices.iter().map(|choice| register(config, choice));
        let datapaths = datapaths.collect::<Result<Vec<_>, _>>()?;
        // Open the recording only now: a refused agent must not empty the recording of the running one.
        let (recorder, writer) = match &config.recording {
            None => (Recorder::default(), RecordingWriter::default()),
            Some((path, limit)) => {
                let start = Start {
                    schema: SCHEMA,
                    version: env!("CARGO_PKG_VERSION").into(),
                    kernel: kernel::release(),
                    pace: config.pace,
                };
                recording::start(path, *limit, start).map_err(AgentError::SetUp)?
            }
        };
        let terms = Terms {
            reporting: Reporting { cadence: config.cadence, wake: config.period.is_zero() },
            pace: config.pace,
            stale_after: STALE_AFTER,
        };
        let rules = config.rules.clone();
        Ok(Self {
            wakes: Wakes::of(&datapaths).map_err(AgentError::SetUp)?,
            silence: datapaths.iter().map(|_| Silence::default()).collect(),
            in_vain: datapaths.iter().map(|datapath| datapath.counters().in_vain).collect(),
            datapaths,
            algorithms: choices
                .iter()
                .map(|choice| AlgorithmStatus {
                    name: choice.kernel_name(),
                    algorithm: choice.to_string(),
                    ..AlgorithmStatus::default()
                })
                .collect(),
            rules: rules.rules().iter().map(ToString::to_string).collect(),
            connections: Connections::new(rules, terms, seed, recorder.clone()),
            period: config.period,
            interval: match config.cadence {
                Cadence::Round { at_least } => at_least,
                Cadence::Every(time) => time,
            },
            burden: config.burden,
            latency: Lateness::default(),
            recorder,
            recording: config.recording.as_ref().map(|(path, _)| path.display().to_string()),
            writer,
            started: now,
            tell_started: started,
            heard: now,
            swept: now,
            looked: now,
            listening: now,
            is_pinned: config.pins.is_some(),
        })
    }

    /// Takes all records and answers them.
    fn round(&mut self) -> Result<(), forebay_ebpf::Error> {
        if self.drain()? > 0 {
            self.heard = clock::now();
        }
        let now = clock::now();
        if now.saturating_since(self.looked) > DEAF {
            self.listening = now;
        }
        self.looked = now;
        self.sweep(now)?;
        self.connections.on_timers(now);
        let (datapaths, latency) = (&mut self.datapaths, &mut self.latency);
        self.connections.decide(now, &mut |answer| {
            datapaths[answer.table].decide(answer.head, answer.decision);
            if let Some(since) = answer.waits_since {
                latency.record(clock::now().saturating_since(since));
            }
        });
        Ok(())
    }

    /// Drops the connections that the kernel no longer has and whose last record found no room.
    fn sweep(&mut self, now: Timestamp) -> Result<(), forebay_ebpf::Error> {
        if now.saturating_since(self.swept) < SWEEP {
            return Ok(());
        }
        self.swept = now;
        self.take_back(now);
        let datapaths = &self.datapaths;
        let ended = self.connections.ended(&|table, flow| datapaths[table].mode(flow).is_none());
        if !ended.is_empty() {
            // By now all records of these connections are in the ring.
            self.drain()?;
            self.connections.drop_unheard(&ended);
        }
        Ok(())
    }

    /// Takes slots back if other connections need them: from idle connections and from users beyond their share.
    /// Idle ones include connections whose end the kernel did not report.
    fn take_back(&mut self, now: Timestamp) {
        for table in 0..self.datapaths.len() {
            let idle = self.take_back_idle(table, now);
            let surplus = self.take_back_surplus(table);
            let name = self.datapaths[table].name();
            for (count, whose) in [
                (idle, "idle connections"),
                (surplus, "connections of users with more than their share"),
            ] {
                if count > 0 {
                    tracing::info!(target: "agent_slots", name, "{count} {whose} have given up their slots");
                }
            }
        }
    }

    fn take_back_idle(&mut self, table: usize, now: Timestamp) -> u32 {
        let datapath = &mut self.datapaths[table];
        let held = datapath.connections().map(|(flow, _)| flow);
        let heard = |flow| self.connections.heard(table, flow);
        let silent = self.silence[table].longer_than(IDLE_AFTER, now, self.listening, held, heard);
        let in_vain = datapath.counters().in_vain;
        let is_wanted = std::mem::replace(&mut self.in_vain[table], in_vain) != in_vain;
        let lacking = idle::lacking(datapath.slots(), datapath.free_slots(), is_wanted);
        if lacking == 0 {
            return 0;
        }
        let of_user =
            |(flow, since)| Some(IdleConnection { flow, uid: datapath.uid(flow)?, since });
        let idle = silent.into_iter().filter_map(of_user).collect();
        let mut count = 0;
        for flow in idle::in_turn(idle, &datapath.holders()) {
            if count < lacking && datapath.take_back(flow) {
                self.connections.lose(table, flow);
                count += 1;
            }
        }
        count
    }

    fn take_back_surplus(&mut self, table: usize) -> u32 {
        let datapath = &mut self.datapaths[table];
        let (holders, reserved) = (datapath.holders(), datapath.reserved_slots());
        let slots = datapath.slots() - reserved;
        let free = datapath.free_slots().saturating_sub(reserved);
        let (lacking, keeps) = idle::surplus(slots, free, &holders);
        if lacking == 0 {
            return 0;
        }
        let mut beyond = idle::beyond(keeps, &holders);
        let heard = |flow| self.connections.heard(table, flow).unwrap_or_default();
        let of_user =
            |(flow, _)| Some(IdleConnection { flow, uid: datapath.uid(flow)?, since: heard(flow) });
        let held = datapath.connections().filter_map(of_user);
        let held = held.filter(|it| beyond.contains_key(&it.uid)).collect();
        let mut count = 0;
        for flow in idle::in_turn(held, &holders) {
            let left = datapath.uid(flow).and_then(|uid| beyond.get_mut(&uid));
            let Some(left) = left.filter(|left| **left > 0) else { continue };
            if count < lacking && datapath.take_back(flow) {
                self.connections.lose(table, flow);
                *left -= 1;
                count += 1;
            }
        }
        count
    }

    fn drain(&mut self) -> Result<usize, forebay_ebpf::Error> {
        let connections = &mut self.connections;
        let (mut records, mut acks) = (0, 0_u32);
        for (table, datapath) in self.datapaths.iter_mut().enumerate() {
            records += datapath.drain(&mut |record| {
                if let Record::Report(report) = &record {
                    acks = acks.saturating_add(report.acks);
                }
                connections.on_record(table, &record);
            })?;
        }
        waste(self.burden.saturating_mul(acks));
        Ok(records)
    }

    /// Sleeps until there may be something to do; true: a command waits.
    fn sleep(&mut self) -> io::Result<bool> {
        let now = clock::now();
        let timer = self.connections.next_timer().map(|at| at.saturating_since(now));
        let is_busy = now.saturating_since(self.heard) < BUSY && !self.period.is_zero();
        // An algorithm whose timer is always due must not keep a processor busy.
        let limited = |time: Duration| timer.map_or(time, |timer| timer.max(NAP_MIN).min(time));
        if is_busy {
            let time = nap(self.period, self.interval, self.connections.shortest_rtt());
            return self.wakes.wait(limited(time));
        }
        self.set_asleep(true);
        // Records from before the kernel's side knew of the sleep wake no one, and neither does one being written
        // now.
        let waits = self.drain().map_err(io::Error::other)? > 0
            || self.datapaths.iter().any(Datapath::has_records);
        // Look for commands here even under constant load.
        let slept = self.wakes.wait(if waits { Duration::ZERO } else { limited(IDLE) });
        self.set_asleep(false);
        if waits {
            self.heard = now;
        }
        slept
    }

    fn set_asleep(&self, is_asleep: bool) {
        for datapath in &self.datapaths {
            datapath.set_asleep(is_asleep);
        }
    }

    /// Handles pending commands; false: stop.
    fn obey(&mut self, mailbox: &Mailbox<Self>) -> bool {
        mailbox
            .obey(self, Self::status, |_, never: &Infallible| -> io::Result<()> { match *never {} })
    }

    fn status(&mut self) -> AgentStatus {
        let now = clock::now();
        for (algorithm, datapath) in self.algorithms.iter_mut().zip(&self.datapaths) {
            let counters = datapath.counters();
            algorithm.slots = slots(datapath, counters.beyond_share);
            algorithm.counters = named(counters);
        }
        AgentStatus {
            schema: status::SCHEMA,
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            at_ns: now.as_nanos(),
            uptime_ns: now.saturating_since(self.started).as_nanos() as u64,
            algorithms: self.algorithms.clone(),
            rules: self.rules.clone(),
            totals: self.connections.totals(),
            latency_ns: [0.5, 0.9, 0.99, 1.0].map(|share| self.latency.percentile(share)),
            recording: self.recording.as_ref().map(|file| RecordingStatus {
                file: file.clone(),
                ended: self.recorder.has_ended(),
            }),
            log_lines_lost: log::lost(),
            flows: self.connections.status(now),
        }
    }
}

impl Worker for AgentWorker {
    type Status = AgentStatus;
    type Change = Infallible;

    fn run(mut self, mailbox: Mailbox<Self>) -> io::Result<AgentStatus> {
        privileges::set_timer_slack(slack(self.period));
        if self.period < PROMPT {
            privileges::shorten_slices();
        }
        // From here on nothing can refuse this agent any more.
        if self.is_pinned {
            self.datapaths.iter_mut().try_for_each(Datapath::pin).map_err(io::Error::other)?;
        }
        privileges::drop_unneeded()?;
        self.wakes.add_commands(mailbox.as_fd())?;
        std::mem::replace(&mut self.tell_started, Box::new(|| ()))();
        loop {
            self.round().map_err(io::Error::other)?;
            // Only a wake-up leads to a look for commands, which costs a system call.
            if self.sleep()? && !self.obey(&mailbox) {
                break;
            }
        }
        let status = self.status();
        let Self { datapaths, connections, recorder, writer, .. } = self;
        drop(datapaths);
        if !connections.is_empty() {
            let left = connections.len();
            tracing::info!(target: "stopping", "{left} connections continue with the kernel's own \
                                                algorithm");
        }
        drop((connections, recorder));
        writer.finish()?;
        Ok(status)
    }
}

fn register(config: &AgentConfig, choice: &Choice) -> Result<Datapath, forebay_ebpf::Error> {
    let name = choice.kernel_name();
    let pins = config.pins.as_ref().map(|folder| folder.join(&name));
    let ecn = choice.needs_marks();
    Datapath::register(&Options { flows: config.slots, pins, ecn, ..Options::named(&name) })
}

/// Keeps the processor busy for this time.
fn waste(time: Duration) {
    if time.is_zero() {
        return;
    }
    let began = clock::now();
    while clock::now().saturating_since(began) < time {
        std::hint::spin_loop();
    }
}

/// Time to sleep between two looks at the reports.
fn nap(period: Duration, interval: Duration, shortest_rtt: Option<Duration>) -> Duration {
    // Urgent records wake the agent; nothing else comes from a connection before its interval is over.
    let part = shortest_rtt.map_or(period, |rtt| interval.max(rtt / ROUND_TRIP_PARTS));
    period.min(part.max(NAP_MIN))
}

/// Time by which a sleep may last longer than requested.
fn slack(period: Duration) -> Duration {
    let shortest = if period.is_zero() { NAP_MIN } else { period.min(NAP_MIN) };
    shortest / SLACK_PARTS
}

fn slots(datapath: &Datapath, beyond_share: u64) -> SlotsStatus {
    let holders = datapath.holders().into_iter().take(HOLDERS_MAX);
    SlotsStatus {
        total: datapath.slots(),
        free: datapath.free_slots(),
        reserved: datapath.reserved_slots(),
        beyond_share,
        holders: holders.map(|it| HolderStatus { uid: it.uid, slots: it.slots }).collect(),
    }
}

fn named(counters: Counters) -> Vec<(String, u64)> {
    let Counters {
        opened,
        closed,
        refused,
        beyond_share: _,
        regained,
        in_vain,
        records,
        dropped,
        fallbacks,
        resumed,
        refused_decisions,
        made_up,
    } = counters;
    [
        ("opened", opened),
        ("closed", closed),
        ("refused", refused),
        ("in_vain", in_vain),
        ("regained", regained),
        ("records", records),
        ("dropped", dropped),
        ("fallbacks", fallbacks),
        ("resumed", resumed),
        ("refused_decisions", refused_decisions),
        ("made_up", made_up),
    ]
    .map(|(name, count)| (name.to_string(), count))
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::super::PERIOD_MIN;
    use super::*;

    #[test]
    fn naps_are_a_bounded_quarter_round_trip() {
        let ms = Duration::from_millis;
        for (period, interval, rtt, nap_ms) in [
            (10, 1, Some(40), 10),
            (10, 1, Some(20), 5),
            (10, 1, Some(1), 3),
            (10, 0, Some(1), 3),
            (10, 1, None, 10),
            (1, 1, Some(100), 1),
            (4, 1, Some(100), 4),
            // No report can come earlier.
            (10, 10, Some(1), 10),
            (10, 4, Some(1), 4),
            (10, 50, Some(1), 10),
        ] {
            let nap = nap(ms(period), ms(interval), rtt.map(ms));
            assert_eq!(nap, ms(nap_ms), "{period} {interval} {rtt:?}");
        }
        assert_eq!(nap(PERIOD_MIN, ms(0), Some(ms(100))), PERIOD_MIN);
    }

    #[test]
    fn sleeps_last_no_more_than_a_fifth_longer() {
        let us = Duration::from_micros;
        for (period_us, slack_us) in [(500, 100), (1000, 200), (10_000, 600), (0, 600)] {
            assert_eq!(slack(us(period_us)), us(slack_us), "{period_us}");
        }
    }
}
