//! `forebay-receivebox`: a receivebox for small routers, as one static program that loads no BPF program.
//!
//! The commands and files are the same as for `forebay`.

// A closed pipe makes this macro panic; see `commands::print`.
#![deny(clippy::print_stdout)]

mod commands;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use forebay_host::log;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Reports to sendboxes when their packets arrive. For small routers: a packet socket counts and
/// samples the packets.
///
/// Exit codes: 0 done, 1 the run failed, 2 the input was wrong.
#[derive(Parser)]
#[command(name = "forebay-receivebox", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = start_log().and_then(|()| cli.command.execute());
    let (code, last_word) = match outcome {
        Ok(()) => (ExitCode::SUCCESS, None),
        Err(failure) => (failure.code(), Some(format!("error: {failure}"))),
    };
    log::end(last_word.as_deref());
    code
}

/// Writes lines as `FOREBAY_LOG` and `FOREBAY_LOG_FORMAT` request. The log of a daemon never blocks on
/// its reader.
fn start_log() -> Result<(), commands::Failure> {
    let lines = log::format::Lines::of_environment().map_err(commands::Failure::Input)?;
    let asked = std::env::var("FOREBAY_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let wanted = asked.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(|| log::Line)
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .event_format(lines);
    tracing_subscriber::registry().with(wanted).with(layer).init();
    Ok(())
}
