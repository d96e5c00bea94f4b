//! One file per subcommand.

mod bench;
mod capture;
mod chaos;
mod compare;
mod compare_ns3;
mod demo;
mod engine;
mod export;
mod link;
mod list;
mod new_algorithm;
mod plan;
mod platforms;
mod regret;
#[cfg(feature = "host")]
mod replay;
mod report;
mod reproduce;
#[cfg(feature = "host")]
mod role;
mod run;
mod search;
mod sensitivity;
mod trace;

use std::process::ExitCode;

#[cfg(not(feature = "host"))]
use forebay::commands::needs_host;
use forebay::{BadInput, Commands, Program};
use forebay_lab::RunError;
use forebay_lab::backend::BackendError;
use forebay_lab::store::StoreError;

/// Turns errors that stop a plan into errors of the command. Wrong arguments and files end the program
/// with exit code 2, and a machine or a user that cannot run the plan with 1.
pub fn refuse(error: impl Into<RunError>) -> anyhow::Error {
    match error.into() {
        error @ RunError::Backend(BackendError::Unavailable(_)) => error.into(),
        RunError::Store(error @ StoreError::Folder { .. }) => {
            BadInput(format!("--out {error}")).into()
        }
        error if error.is_bad_input() => BadInput(error.to_string()).into(),
        error => error.into(),
    }
}

/// A share, 0 to 1.
pub fn share(text: &str) -> Result<f64, String> {
    forebay::within(text, 0.0, 1.0)
}

/// Default number of runs at a time: one for each processor with `sim` and `ns3`. An emulation
/// needs the machine for itself.
pub fn jobs(backend: &str) -> usize {
    match backend {
        "sim" | "ns3" => std::thread::available_parallelism().map_or(1, usize::from),
        _ => 1,
    }
}

/// The subcommands, in the order of [`forebay::laboratory::COMMANDS`]. The documentation of the
/// arguments is the help text: documentation of a variant would replace it.
#[derive(clap::Subcommand)]
pub enum Command {
    Demo(demo::Demo),
    Run(run::Run),
    Bench(bench::Bench),
    Reproduce(reproduce::Reproduce),
    Chaos(chaos::Arguments),
    Regret(regret::Arguments),
    Sensitivity(sensitivity::Arguments),
    Search(search::Search),
    Report(report::Report),
    Compare(compare::Compare),
    CompareNs3(compare_ns3::CompareNs3),
    NewAlgorithm(new_algorithm::NewAlgorithm),
    Export(export::Export),
    Capture(capture::Capture),
    /// Measure the cost of an algorithm in kernel, eBPF and agent.
    Platforms(platforms::Platforms),
    Link(Box<link::Link>),
    Trace(trace::Trace),
    /// The commands of `forebay`.
    #[command(flatten)]
    OfForebay(forebay::Command),
    /// Run one program of a testbed.
    #[cfg(feature = "host")]
    #[command(hide = true)]
    Role(role::Role),
}

impl Commands for Command {
    fn mentions(&mut self) -> Vec<&mut String> {
        match self {
            Self::Run(arguments) => arguments.mentions(),
            Self::Bench(arguments) => arguments.mentions(),
            Self::Search(arguments) => arguments.mentions(),
            Self::Capture(arguments) => arguments.mentions(),
            Self::OfForebay(command) => command.mentions(),
            _ => Vec::new(),
        }
    }

    fn execute(self, program: &Program) -> anyhow::Result<ExitCode> {
        match self {
            Self::Demo(arguments) => arguments.execute(),
            Self::Run(arguments) => arguments.execute(),
            Self::Bench(arguments) => arguments.execute(),
            Self::Reproduce(arguments) => arguments.execute(),
            Self::Chaos(arguments) => arguments.execute(),
            Self::Regret(arguments) => arguments.execute(),
            Self::Sensitivity(arguments) => arguments.execute(),
            Self::Search(arguments) => arguments.execute(),
            Self::Report(arguments) => arguments.execute(),
            Self::Compare(arguments) => arguments.execute(),
            Self::CompareNs3(arguments) => arguments.execute(),
            Self::NewAlgorithm(arguments) => arguments.execute(),
            Self::Export(arguments) => arguments.execute(),
            Self::Capture(arguments) => arguments.execute(),
            Self::Platforms(arguments) => arguments.execute(),
            Self::Link(arguments) => arguments.execute(),
            Self::Trace(arguments) => arguments.execute(),
            Self::OfForebay(command) if command.is_of_laboratory().is_some() => shared(command),
            Self::OfForebay(command) => command.execute(program),
            #[cfg(feature = "host")]
            Self::Role(arguments) => arguments.execute(),
        }
    }
}

/// Commands of `forebay` that the laboratory executes.
fn shared(command: forebay::Command) -> anyhow::Result<ExitCode> {
    match command {
        forebay::Command::List(arguments) => list::execute(&arguments),
        forebay::Command::Plan(forebay::commands::plan::Plan { action: Some(action), .. }) => {
            plan::execute(&action)
        }
        #[cfg(feature = "host")]
        forebay::Command::Replay(arguments) => replay::execute(&arguments),
        _ => unreachable!("`is_of_laboratory` names these"),
    }
}
