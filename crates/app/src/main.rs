//! The `forebay` command: one binary, the daemons are subcommands.

// A closed pipe makes these macros panic; see `commands::print`.
#![deny(clippy::print_stdout)]

mod commands;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

/// Moves queues from the middle of the Internet to the edge of the site that owns the traffic.
///
/// Exit codes: 0 done, 1 the run failed, 2 the input was wrong.
#[derive(Parser)]
#[command(name = "forebay", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("FOREBAY_LOG")
                .unwrap_or_else(|_| "info".into()),
        )
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    match cli.command.execute() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            commands::exit_code(&error)
        }
    }
}
