//! One file per subcommand.

mod agent;
mod apply;
mod bench;
#[cfg(feature = "host")]
mod candidate;
mod capture;
mod chaos;
mod check_config;
mod compare;
mod confirm;
mod daemons;
mod demo;
mod doctor;
mod engine;
mod explain;
mod export;
#[cfg(feature = "host")]
mod keep_python;
#[cfg(feature = "host")]
mod keep_triangle;
mod keygen;
mod link;
mod list;
#[cfg(feature = "host")]
mod look_up;
mod man;
mod native;
mod new_algorithm;
#[cfg(feature = "host")]
mod observe;
pub mod own;
mod plan;
mod platforms;
mod probe;
pub mod python;
#[cfg(feature = "host")]
mod read_keys;
mod record;
mod regret;
mod reload;
mod replay;
mod report;
mod reproduce;
#[cfg(feature = "host")]
mod role;
mod run;
mod search;
mod status;
mod top;
mod trace;
mod triangle;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::Context;
use forebay_lab::RunError;
use forebay_lab::store::StoreError;

/// What the input got wrong; ends the program with exit code 2.
#[derive(Debug)]
pub struct BadInput(pub String);

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// The exit code that `error` ends the program with.
pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.downcast_ref::<BadInput>().is_some() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// Of what stops a plan, what the user can mend ends the program with exit code 2.
pub fn refuse(error: impl Into<RunError>) -> anyhow::Error {
    match error.into() {
        RunError::Store(error @ StoreError::Folder { .. }) => {
            BadInput(format!("--out {error}")).into()
        }
        error if error.is_bad_input() => BadInput(error.to_string()).into(),
        error => error.into(),
    }
}

/// A share, 0 to 1.
pub fn share(text: &str) -> Result<f64, String> {
    within(text, 0.0, 1.0)
}

/// A number from `least` to `most`.
pub fn within(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| format!("allowed is a number from {least} to {most}"))
}

/// Runs at a time where nobody says: an emulation needs the machine for itself.
pub fn jobs(backend: &str) -> usize {
    match backend {
        "sim" | "ns3" => std::thread::available_parallelism().map_or(1, usize::from),
        _ => 1,
    }
}

/// The answer of a command that this build cannot run: the command stays visible and says why.
#[cfg(not(feature = "host"))]
pub fn needs_host(command: &str) -> anyhow::Error {
    BadInput(format!(
        "`forebay {command}` is not in this build, which was made with --no-default-features: \
         on Linux, with clang and libelf-dev installed, run `cargo build --release`"
    ))
    .into()
}

/// The subcommands, in the order of the help text.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show in minutes what a bundle is worth, on real kernel TCP.
    Demo(demo::Demo),
    /// Run plans and write results and a report.
    Run(run::Run),
    /// Put congestion-control algorithms through the benchmark, and compare them.
    Bench(bench::Bench),
    /// Repeat all experiments of published work, and say which of its claims hold here.
    Reproduce(reproduce::Reproduce),
    /// Do everything to a bundle that may go wrong, and judge it by a twin without boxes.
    Chaos(chaos::Arguments),
    /// Compare a site with boxes and without on random paths whose rate, delay and cross traffic change.
    Regret(regret::Arguments),
    /// Find the path and the events on it that are worst for an algorithm, as a plan.
    Search(search::Search),
    /// Write the report of a folder of results.
    Report(report::Report),
    /// Compare two folders of results.
    Compare(compare::Compare),
    /// Write a crate with an algorithm of your own, for `forebay bench ./NAME`.
    NewAlgorithm(new_algorithm::NewAlgorithm),
    /// Write results as files for other programs.
    Export(export::Export),
    /// Write the packets of a run for Wireshark, and its connections for viewers of qlog.
    Capture(capture::Capture),
    /// List plans, algorithms, queueing disciplines or metrics.
    List(list::List),
    /// Show what a configuration would change on this machine; check plans of experiments.
    Plan(plan::Plan),
    /// Run a sendbox: queue, schedule and pace the traffic of bundles.
    Sendbox(daemons::Sendbox),
    /// Run a receivebox: report to the sendboxes when their packets arrive.
    Receivebox(daemons::Receivebox),
    /// Let an algorithm decide for TCP connections of this machine's kernel.
    Agent(agent::Agent),
    /// Repeat what an agent has recorded, or tell and simulate what boxes have.
    Replay(replay::Replay),
    /// Measure what an algorithm costs in the kernel, in eBPF and in an agent.
    Platforms(platforms::Platforms),
    /// Give the kernel an algorithm in BPF (Reno, Cubic, or one of core), for TCP connections to select.
    Native(native::Native),
    /// Check the configuration file of a sendbox or receivebox.
    CheckConfig(check_config::CheckConfig),
    /// Make the shared key of a bundle.
    Keygen(keygen::Keygen),
    /// Show what running boxes and agents do, and why.
    Status(status::Status),
    /// Show live what bundles do: rates, queues here and beyond, delays, states and reasons.
    Top(top::Top),
    /// Say why the rate of a bundle is what it is, and what limits it.
    Explain(explain::Explain),
    /// Record what boxes do for some minutes as one file, for a bug report.
    Record(record::Record),
    /// Have running boxes take their configuration and key files as they are now.
    Reload(reload::Reload),
    /// Have a running box take another configuration, and go back unless that is confirmed in time.
    Apply(apply::Apply),
    /// Keep what is on trial.
    Confirm(confirm::Confirm),
    /// Go back from what is on trial, at once.
    Revert(confirm::Revert),
    /// Examine whether this machine can carry a box or an agent, and say what to do where it cannot.
    Doctor(doctor::Doctor),
    /// Make or remove what brings routed packets to a sendbox's process, for its unit.
    Triangle(triangle::Triangle),
    /// Measure whether a bundle to a peer would help, before anything is installed.
    Probe(probe::Probe),
    /// Run a command behind an emulated link.
    Link(link::Link),
    /// Make a trace, which says when a link may send.
    Trace(trace::Trace),
    /// Print a completion script for a shell.
    Completions(man::Completions),
    /// Print a manual page, or write those of all commands.
    Man(man::Man),
    /// Look names of other boxes up for a box.
    #[cfg(feature = "host")]
    #[command(hide = true)]
    LookUp(look_up::LookUp),
    /// Watch the devices of a box.
    #[cfg(feature = "host")]
    #[command(hide = true)]
    Observe(observe::Observe),
    /// Read the key files of a box.
    #[cfg(feature = "host")]
    #[command(hide = true)]
    ReadKeys(read_keys::ReadKeys),
    /// Keep an algorithm in Python running for a sendbox or an agent.
    #[cfg(feature = "host")]
    #[command(hide = true)]
    KeepPython(keep_python::KeepPython),
    /// Have routed packets pass the triangle of a sendbox.
    #[cfg(feature = "host")]
    #[command(hide = true)]
    KeepTriangle(keep_triangle::KeepTriangle),
    /// Run one program of a testbed.
    #[cfg(feature = "host")]
    #[command(hide = true)]
    Role(role::Role),
}

impl Command {
    /// The arguments that may name algorithms.
    pub fn mentions(&mut self) -> Vec<&mut String> {
        match self {
            Self::Run(arguments) => arguments.mentions(),
            Self::Bench(arguments) => arguments.mentions(),
            Self::Search(arguments) => arguments.mentions(),
            Self::Capture(arguments) => arguments.mentions(),
            Self::List(arguments) => arguments.mentions(),
            Self::Plan(arguments) => arguments.mentions(),
            Self::Agent(arguments) => arguments.mentions(),
            Self::Replay(arguments) => arguments.mentions(),
            _ => Vec::new(),
        }
    }

    /// Runs the subcommand.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Demo(arguments) => arguments.execute(),
            Self::Run(arguments) => arguments.execute(),
            Self::Bench(arguments) => arguments.execute(),
            Self::Reproduce(arguments) => arguments.execute(),
            Self::Chaos(arguments) => arguments.execute(),
            Self::Regret(arguments) => arguments.execute(),
            Self::Search(arguments) => arguments.execute(),
            Self::Report(arguments) => arguments.execute(),
            Self::Compare(arguments) => arguments.execute(),
            Self::NewAlgorithm(arguments) => arguments.execute(),
            Self::Export(arguments) => arguments.execute(),
            Self::Capture(arguments) => arguments.execute(),
            Self::List(arguments) => arguments.execute(),
            Self::Plan(arguments) => arguments.execute(),
            Self::Sendbox(arguments) => arguments.execute(),
            Self::Receivebox(arguments) => arguments.execute(),
            Self::Agent(arguments) => arguments.execute(),
            Self::Replay(arguments) => arguments.execute(),
            Self::Platforms(arguments) => arguments.execute(),
            Self::Native(arguments) => arguments.execute(),
            Self::CheckConfig(arguments) => arguments.execute(),
            Self::Keygen(arguments) => arguments.execute(),
            Self::Status(arguments) => arguments.execute(),
            Self::Top(arguments) => arguments.execute(),
            Self::Explain(arguments) => arguments.execute(),
            Self::Record(arguments) => arguments.execute(),
            Self::Reload(arguments) => arguments.execute(),
            Self::Apply(arguments) => arguments.execute(),
            Self::Confirm(arguments) => arguments.execute(),
            Self::Revert(arguments) => arguments.execute(),
            Self::Doctor(arguments) => arguments.execute(),
            Self::Triangle(arguments) => arguments.execute(),
            Self::Probe(arguments) => arguments.execute(),
            Self::Link(arguments) => arguments.execute(),
            Self::Trace(arguments) => arguments.execute(),
            Self::Completions(arguments) => arguments.execute(),
            Self::Man(arguments) => arguments.execute(),
            #[cfg(feature = "host")]
            Self::LookUp(arguments) => arguments.execute(),
            #[cfg(feature = "host")]
            Self::Observe(arguments) => arguments.execute(),
            #[cfg(feature = "host")]
            Self::ReadKeys(arguments) => arguments.execute(),
            #[cfg(feature = "host")]
            Self::KeepPython(arguments) => arguments.execute(),
            #[cfg(feature = "host")]
            Self::KeepTriangle(arguments) => arguments.execute(),
            #[cfg(feature = "host")]
            Self::Role(arguments) => arguments.execute(),
        }
    }
}

/// Where [`print`] writes, once [`own_stdout`] has been called.
static STDOUT: OnceLock<File> = OnceLock::new();

/// Keeps stdout for what commands print. What an algorithm of somebody's own prints, in Rust or in C, goes to stderr from
/// then on: it would break a document that a program reads.
///
/// # Errors
///
/// There is no stdout, or no stderr.
pub fn own_stdout() -> io::Result<()> {
    let kept = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    // Nobody has called this before.
    let _ = STDOUT.set(File::from(kept));
    Ok(())
}

/// Prints on stdout, for all commands. A reader that has seen enough, such as `head`, is no failure:
/// false if it has gone.
fn print(text: &str) -> anyhow::Result<bool> {
    let written = match STDOUT.get() {
        Some(mut stdout) => stdout.write_all(text.as_bytes()),
        None => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
        }
    };
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).context("cannot write to stdout"),
    }
}
