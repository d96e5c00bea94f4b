//! The programs of a trial. Each is a role of this binary and stays on the one processor.
//!
//! | stdout of the part | stdin of the part |
//! |---|---|
//! | `ready` | `start NS`: traffic begins at `NS` on `CLOCK_MONOTONIC` |
//! | `finished` (sender, counter): the results are written | end of file: exit |
//!
//! An agent ends with SIGTERM, as in normal use.

use std::io;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use forebay_ebpf::tcp::Cadence;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::counter;
use super::traffic::{receiver, sender};
use super::turns::Times;
use super::{CounterScheduling, PartError};
use crate::orders::{self, Order};
use crate::process;
use forebay_host::agent::rules::{Choice, Rules};
use forebay_host::agent::{self, AgentConfig};
use forebay_host::service::privileges::cut_timer_slack;

/// One program of a trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartSpec {
    /// The processor.
    pub cpu: usize,
    /// The program's part in the trial.
    pub part: Part,
}

/// The part of a program in a trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Sends to a receiver.
    Sender(SenderSpec),
    /// Accepts connections and reads the data.
    Receiver {
        /// Address to listen at.
        listen: SocketAddrV4,
        /// Keeps the window that it announces at this many bytes, see `traffic.rs`; `None`:
        /// Linux tunes it.
        window_bytes: Option<u32>,
    },
    /// Counts in the remaining processor time.
    Counter {
        /// Times of the first turn; the other turns follow it.
        times: Times,
        /// Scheduling relative to the other processes.
        scheduling: CounterScheduling,
        /// File for the `counter::Counted` of each turn (JSON).
        output: PathBuf,
    },
    /// Decides for the sender's connections.
    Agent(AgentSpec),
}

/// Orders for a sender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SenderSpec {
    /// The receiver.
    pub to: SocketAddrV4,
    /// Congestion control of its connections.
    pub congestion_control: String,
    /// Number of connections.
    pub flows: u32,
    /// Total rate of all connections (bit/s); `None`: unlimited.
    pub rate_bps: Option<u64>,
    /// Bytes written in one call.
    pub piece_bytes: usize,
    /// When turns begin and end.
    pub times: Times,
    /// File for the `traffic::Sent` (JSON).
    pub output: PathBuf,
}

/// Orders for an agent, as text and numbers; see [`super::AgentTerms`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentSpec {
    /// Algorithm with its parameters.
    pub algorithm: String,
    /// The name under which it is registered with the kernel.
    pub name: String,
    /// Minimum time between two reports of one connection (ns); 0: none.
    pub report_ns: u64,
    /// Reports are sent only at the end of rounds.
    pub per_round: bool,
    /// Time between two looks (ns).
    pub period_ns: u64,
    /// CPU time wasted per acknowledgement (ns).
    pub burden_ns: u64,
    /// Control socket.
    pub control: PathBuf,
}

/// Runs a part until the bench ends it.
pub fn run(spec: PartSpec) -> Result<(), PartError> {
    if !process::try_keep_to(spec.cpu) {
        return Err(PartError::Processor(spec.cpu));
    }
    process::raise_file_limit()?;
    match spec.part {
        Part::Sender(spec) => sender(&spec),
        Part::Receiver { listen, window_bytes } => receiver(listen, window_bytes),
        Part::Counter { times, scheduling, output } => counter::run(times, scheduling, &output),
        Part::Agent(spec) => agent(spec),
    }
}

fn agent(spec: AgentSpec) -> Result<(), PartError> {
    let wrong = |error: String| PartError::Algorithm(format!("{}: {error}", spec.algorithm));
    let choice: Choice = spec.algorithm.parse().map_err(|error| wrong(format!("{error}")))?;
    let choice = choice.named(&spec.name).map_err(|error| wrong(format!("{error}")))?;
    let time = Duration::from_nanos(spec.report_ns);
    let config = AgentConfig {
        rules: Rules::new(vec![choice], Vec::new()).map_err(wrong)?,
        cadence: match spec.per_round {
            true => Cadence::Round { at_least: time },
            false => Cadence::Every(time),
        },
        period: Duration::from_nanos(spec.period_ns),
        burden: Duration::from_nanos(spec.burden_ns),
        pace: false,
        pins: None,
        recording: None,
        slots: agent::SLOTS_DEFAULT,
        seed: Some(1),
        control: Some(spec.control),
    };
    agent::run(&config, || orders::tell("ready"))?;
    Ok(())
}

/// Announces that a part is ready and waits for its start; `None`: the part is no longer needed.
pub(super) fn ready() -> io::Result<Option<u64>> {
    cut_timer_slack();
    orders::tell("ready");
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    match Order::parse(line.trim_end()) {
        Some(Order::Start(at)) => Ok(Some(at)),
        None if line.is_empty() => Ok(None),
        _ => Err(io::Error::other(format!("unknown order {line:?}"))),
    }
}

/// Hands over the results and waits for the end of stdin.
pub(super) fn finish(output: &std::path::Path, results: &impl Serialize) -> io::Result<()> {
    std::fs::write(output, serde_json::to_vec(results)?)?;
    orders::tell("finished");
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    Ok(())
}

/// Reads the results that a part has handed over.
pub(super) fn results<T: DeserializeOwned>(output: &std::path::Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&std::fs::read(output)?)?)
}
