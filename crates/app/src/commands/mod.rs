//! One file per subcommand.

mod agent;
mod apply;
#[cfg(feature = "host")]
mod candidate;
mod check_config;
mod confirm;
mod daemons;
mod doctor;
mod explain;
pub mod foreign_rust;
mod init;
#[cfg(feature = "host")]
mod keep_python;
#[cfg(feature = "host")]
mod keep_triangle;
mod keygen;
pub mod laboratory;
pub mod list;
mod man;
mod native;
pub mod plan;
mod probe;
pub mod python;
mod record;
mod reload;
pub mod replay;
mod status;
mod top;
mod triangle;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::Context;

use crate::{Commands, Program};

/// A mistake in the input; ends the program with exit code 2.
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

/// A number from `least` to `most`.
pub fn within(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| format!("allowed is a number from {least} to {most}"))
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
    /// List plans, algorithms, queueing disciplines or metrics.
    List(list::List),
    /// Show the changes that a configuration would make on this machine; check plans of experiments.
    Plan(plan::Plan),
    /// Run a sendbox: queue, schedule and pace the traffic of bundles.
    Sendbox(daemons::Sendbox),
    /// Run a receivebox: report to the sendboxes when their packets arrive.
    Receivebox(daemons::Receivebox),
    /// Let an algorithm decide for TCP connections of this machine's kernel.
    Agent(agent::Agent),
    /// Repeat the recording of an agent, or explain and simulate the recording of boxes.
    Replay(replay::Replay),
    /// Give the kernel an algorithm in BPF (Reno, Cubic, or one of core), for TCP connections to select.
    Native(native::Native),
    /// Write a first configuration for this machine: ask the kernel, choose, and say why.
    Init(init::Init),
    /// Check the configuration file of a sendbox or receivebox.
    CheckConfig(check_config::CheckConfig),
    /// Make the shared key of a bundle.
    Keygen(keygen::Keygen),
    /// Show what running boxes and agents do, and why.
    Status(status::Status),
    /// Show live what bundles do: rates, queues here and beyond, delays, states and reasons.
    Top(top::Top),
    /// Explain the rate of a bundle, and what limits it.
    Explain(explain::Explain),
    /// Record what boxes do for some minutes as one file, for a bug report.
    Record(record::Record),
    /// Have running boxes take their configuration and key files as they are now.
    Reload(reload::Reload),
    /// Have a running box take another configuration, and go back unless that is confirmed in time.
    Apply(apply::Apply),
    /// Keep the configuration or the box that is on trial.
    Confirm(confirm::Confirm),
    /// Go back from a trial, at once.
    Revert(confirm::Revert),
    /// Examine whether this machine can carry a box or an agent, and say what to do where it cannot.
    Doctor(doctor::Doctor),
    /// Make or remove the devices and rules that bring routed packets to a sendbox's process, for its unit.
    Triangle(triangle::Triangle),
    /// Measure whether a bundle to a peer would help, before anything is installed.
    Probe(probe::Probe),
    /// Print a completion script for a shell.
    Completions(man::Completions),
    /// Print a manual page, or write the pages of all commands.
    Man(man::Man),
    /// A process that a box starts out of its own program.
    #[cfg(feature = "host")]
    #[command(flatten)]
    Helper(forebay_host::daemon::helpers::Helper),
    /// Keep an algorithm in Python running for a sendbox or an agent.
    #[cfg(feature = "host")]
    #[command(hide = true)]
    KeepPython(keep_python::KeepPython),
    /// Have routed packets pass the triangle of a sendbox.
    #[cfg(feature = "host")]
    #[command(hide = true)]
    KeepTriangle(keep_triangle::KeepTriangle),
}

impl Commands for Command {
    fn mentions(&mut self) -> Vec<&mut String> {
        match self {
            Self::List(arguments) => arguments.mentions(),
            Self::Plan(arguments) => arguments.mentions(),
            Self::Agent(arguments) => arguments.mentions(),
            Self::Replay(arguments) => arguments.mentions(),
            _ => Vec::new(),
        }
    }

    fn is_of_laboratory(&self) -> Option<&'static str> {
        match self {
            Self::List(arguments) => arguments.what.is_of_laboratory(),
            Self::Plan(arguments) => arguments.is_of_laboratory(),
            Self::Replay(arguments) => arguments.is_of_laboratory(),
            _ => None,
        }
    }

    fn execute(self, program: &Program) -> anyhow::Result<ExitCode> {
        match self {
            Self::List(arguments) => arguments.execute(),
            Self::Plan(arguments) => arguments.execute(),
            Self::Sendbox(arguments) => arguments.execute(),
            Self::Receivebox(arguments) => arguments.execute(),
            Self::Agent(arguments) => arguments.execute(),
            Self::Replay(arguments) => arguments.execute(),
            Self::Native(arguments) => arguments.execute(),
            Self::Init(arguments) => arguments.execute(),
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
            Self::Completions(arguments) => arguments.execute((program.cli)()),
            Self::Man(arguments) => arguments.execute((program.cli)()),
            #[cfg(feature = "host")]
            Self::Helper(helper) => {
                helper.execute()?;
                Ok(ExitCode::SUCCESS)
            }
            #[cfg(feature = "host")]
            Self::KeepPython(arguments) => arguments.execute(),
            #[cfg(feature = "host")]
            Self::KeepTriangle(arguments) => arguments.execute(),
        }
    }
}

/// Where [`print`] writes, once [`own_stdout`] has been called.
static STDOUT: OnceLock<File> = OnceLock::new();

/// Keeps stdout for the output of commands. From then on the output of a user's own algorithm, in Rust or in
/// C, goes to stderr: it would break a document that a program reads.
///
/// # Errors
///
/// There is no stdout, or no stderr.
pub fn own_stdout() -> io::Result<()> {
    let kept = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    // No earlier call has set it.
    let _ = STDOUT.set(File::from(kept));
    Ok(())
}

/// Prints on stdout, for all commands. A reader that has seen enough, such as `head`, is no failure:
/// false if it has gone.
pub fn print(text: &str) -> anyhow::Result<bool> {
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
