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
pub mod interrupt;
#[cfg(feature = "host")]
mod keep_python;
#[cfg(feature = "host")]
mod keep_triangle;
mod keygen;
pub mod laboratory;
pub mod list;
mod man;
mod native;
pub mod overview;
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

/// A mistake in the arguments or in a file; ends the program with exit code 2.
#[derive(Debug)]
pub struct BadInput(pub String);

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// The exit code that `error` ends the program with: 2 for wrong arguments and files, else 1.
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
    anyhow::anyhow!(
        "`forebay {command}` is not in this build, which was made with --no-default-features: \
         on Linux, with clang and libelf-dev installed, run `cargo build --release`"
    )
}

/// The subcommands. The documentation of the arguments is the help text: documentation of a variant
/// would replace it.
#[derive(clap::Subcommand)]
#[expect(missing_docs, reason = "see above")]
pub enum Command {
    List(list::List),
    Plan(plan::Plan),
    Sendbox(daemons::Sendbox),
    Receivebox(daemons::Receivebox),
    Agent(agent::Agent),
    Replay(replay::Replay),
    Native(native::Native),
    Init(init::Init),
    CheckConfig(check_config::CheckConfig),
    Keygen(keygen::Keygen),
    Status(status::Status),
    Top(top::Top),
    Explain(explain::Explain),
    Record(record::Record),
    Reload(reload::Reload),
    Apply(apply::Apply),
    Confirm(confirm::Confirm),
    Revert(confirm::Revert),
    Doctor(doctor::Doctor),
    Triangle(triangle::Triangle),
    Probe(probe::Probe),
    Completions(man::Completions),
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
