//! The `forebay` command: one binary, the daemons are subcommands. A library, so that a program can be the command
//! with algorithms of its own beside those of `forebay-core`.

// A closed pipe makes these macros panic; see `commands::print`.
#![deny(clippy::print_stdout)]

mod commands;
#[cfg(all(test, feature = "host"))]
mod documented;
#[cfg(all(test, feature = "host"))]
mod readers;

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
pub use forebay_lab::algorithms::Own;

/// Moves queues from the middle of the Internet to the edge of the site that owns the traffic.
///
/// Exit codes: 0 done, 1 the run failed, 2 the input was wrong.
#[derive(Parser)]
#[command(name = "forebay", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

/// Runs the command with the arguments of this process; once a process. `own` are the algorithms of somebody's own
/// that the program was built with.
pub fn main(own: &[Own]) -> ExitCode {
    let cli = Cli::parse();
    // The target of a line is the name of its event: none is a path of this program's modules.
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("FOREBAY_LOG")
                .unwrap_or_else(|_| "info".into()),
        )
        .with_writer(log)
        // What cannot be written would otherwise be told on stderr, by a macro that panics.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    #[cfg(feature = "host")]
    let subscriber = match forebay_host::log::format::Lines::of_environment() {
        Ok(lines) => subscriber.event_format(lines),
        Err(problem) => {
            end_log(Some(&format!("error: {problem}")));
            return ExitCode::from(2);
        }
    };
    subscriber.init();
    let (code, last_word) = match execute(cli.command, own) {
        Ok(code) => (code, None),
        Err(error) => (commands::exit_code(&error), Some(format!("error: {}", message(&error)))),
    };
    end_log(last_word.as_deref());
    code
}

/// Runs `command`, crates of algorithms that it names being known.
fn execute(mut command: commands::Command, own: &[Own]) -> anyhow::Result<ExitCode> {
    if !own.is_empty() {
        commands::own_stdout().context("stdout, or stderr")?;
    }
    commands::own::register(own)?;
    commands::own::name_crates(command.mentions())?;
    commands::python::told_as_error(|| command.execute())
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

/// The error and its causes, less those that an error before them has told already.
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
