//! The `forebay` command: the daemons are subcommands. A library, so that a program can be the command with
//! algorithms of its own next to `forebay-core`'s, or with further commands, as `forebay-experiments` is.
//!
//! ```text
//! forebay CMD ──► CMD is of the laboratory? ──► commands/laboratory: the other program takes the place of this one
//!                 └──► commands/CMD.rs
//! ```

// A closed pipe makes these macros panic; see `commands::print`.
#![deny(clippy::print_stdout)]

pub mod commands;

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
pub use forebay_policy::algorithms::Own;

pub use crate::commands::{BadInput, Command, laboratory, overview, print, within};

/// The commit that this program was built from, with a digest of uncommitted changes.
pub const COMMIT: &str = env!("FOREBAY_COMMIT");

/// Keeps calls and short requests fast while a backup fills the line between two of your sites.
///
/// A sendbox at one site queues and paces the traffic to the other site. A receivebox there reports
/// the packets that arrive. Without boxes, the same program benchmarks congestion control.
///
/// Exit code 0: done; 1: the command failed, also if it lacks root, a package or a running box; 2:
/// arguments or files are wrong. The help of a command names its other codes.
#[derive(Parser)]
#[command(name = "forebay", bin_name = "forebay", version, propagate_version = true)]
pub struct Cli<C: Subcommand> {
    /// The command to run.
    #[command(subcommand)]
    pub command: C,
}

/// The commands of a program.
pub trait Commands: Subcommand {
    /// The arguments that may name algorithms.
    fn mentions(&mut self) -> Vec<&mut String>;

    /// The laboratory's command that is meant, if the program does not have it.
    fn is_of_laboratory(&self) -> Option<&'static str> {
        None
    }

    /// Runs the command.
    ///
    /// # Errors
    ///
    /// [`BadInput`], or the failure.
    fn execute(self, program: &Program) -> anyhow::Result<ExitCode>;
}

/// One of the programs of forebay.
pub struct Program {
    /// Name of its package.
    pub package: &'static str,
    /// Folder of its package in the sources.
    pub folder: &'static str,
    /// The command line.
    pub cli: fn() -> clap::Command,
}

/// The program `forebay`.
const FOREBAY: Program = Program {
    package: "forebay",
    folder: "crates/app",
    cli: || overview::of_boxes(laboratory::known(Cli::<Command>::command())),
};

/// Runs the command with the arguments of this process; to be called once per process. `own`: the user's own
/// algorithms that the program was built with.
pub fn main(own: &[Own]) -> ExitCode {
    match laboratory::meant(std::env::args_os().skip(1)) {
        Some(command) => ended(Err(laboratory::exec(&command))),
        None => run::<Command>(own, &FOREBAY),
    }
}

/// Runs a command of `program` with the arguments of this process; to be called once per process.
pub fn run<C: Commands>(own: &[Own], program: &Program) -> ExitCode {
    let mut cli = (program.cli)();
    let mut matches = cli.get_matches_mut();
    let parsed = Cli::<C>::from_arg_matches_mut(&mut matches);
    let Cli { command } = parsed.unwrap_or_else(|error| error.format(&mut cli).exit());
    // The target of a line is the name of its event, so none is a path of this program's modules.
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("FOREBAY_LOG")
                .unwrap_or_else(|_| "info".into()),
        )
        .with_writer(log)
        // A line that cannot be written would otherwise be reported on stderr, by a macro that panics.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    #[cfg(feature = "host")]
    let subscriber = match forebay_host::log::format::Lines::of_environment() {
        Ok(lines) => subscriber.event_format(lines),
        Err(problem) => return ended(Err(BadInput(problem.to_string()).into())),
    };
    subscriber.init();
    ended(execute(command, own, program))
}

/// The exit code of a command that has `ended`; an error is the last line of the log.
pub fn ended(ended: anyhow::Result<ExitCode>) -> ExitCode {
    let (code, last_word) = match ended {
        Ok(code) => (code, None),
        Err(error) => (commands::exit_code(&error), Some(format!("error: {}", message(&error)))),
    };
    end_log(last_word.as_deref());
    code
}

/// Runs `command`, crates of algorithms that it names being known.
fn execute<C: Commands>(
    mut command: C,
    own: &[Own],
    program: &Program,
) -> anyhow::Result<ExitCode> {
    if let Some(what) = command.is_of_laboratory() {
        return Err(laboratory::exec(what));
    }
    if !own.is_empty() {
        commands::own_stdout().context("stdout, or stderr")?;
    }
    commands::foreign_rust::register(own)?;
    commands::foreign_rust::name_crates(command.mentions(), program)?;
    commands::python::told_as_error(|| command.execute(program))
}

#[cfg(feature = "host")]
use forebay_host::log::end as end_log;

/// Where `tracing` writes: a daemon's log must not wait for its reader, nor end with it.
#[cfg(feature = "host")]
fn log() -> forebay_host::log::Line {
    forebay_host::log::Line
}

#[cfg(not(feature = "host"))]
use std::io::stderr as log;

#[cfg(not(feature = "host"))]
fn end_log(last_word: Option<&str>) {
    use std::io::Write;
    if let Some(text) = last_word {
        // Nothing can be done about a stderr that is gone.
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

/// The error and its causes, without causes that the text so far contains.
fn message(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if message.is_empty() {
            message = cause;
        } else if !message.contains(&cause) {
            message += &format!(": {cause}");
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::message;

    #[test]
    fn each_cause_is_told_once() {
        let lost = || std::io::Error::other("no carrier");
        let twice = anyhow::Error::new(lost()).context("eth0: no carrier: plug it in");
        assert_eq!(message(&twice), "eth0: no carrier: plug it in");
        let both = Err::<(), _>(lost()).context("eth0").unwrap_err();
        assert_eq!(message(&both), "eth0: no carrier");
    }
}
