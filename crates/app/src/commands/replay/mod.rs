//! `forebay replay`: repeats the recording of an agent, or explains and simulates the recording of boxes.

use std::path::PathBuf;
use std::process::ExitCode;

use super::foreign_rust::With;

#[cfg(feature = "host")]
mod agent;
#[cfg(feature = "host")]
pub mod boxes;

/// Arguments of `forebay replay`.
///
/// From an agent's recording, it feeds the reports to the same algorithms and compares each decision with the
/// recorded one, bit for bit. Exit code 0: all are the same; 1: some differ; 2: it is no recording.
///
/// From a recording of boxes, it prints the events, by time and with reasons. It makes a plan of the
/// measurements of one bundle, runs that plan in the simulator, and shows both next to each other. Nothing of
/// the file is unpacked to the disk. Needs no privilege.
#[derive(clap::Args)]
pub struct Replay {
    /// The file that `forebay agent --record` or `forebay record` wrote.
    pub file: PathBuf,
    #[command(flatten)]
    with: With,
    /// Print every decision of an agent, and the values that led to it.
    #[arg(long, conflicts_with = "json")]
    decisions: bool,
    /// For boxes, only print the events: simulate nothing.
    #[arg(long, conflicts_with = "decisions")]
    explain: bool,
    /// The bundle to simulate [default: the one that carried most].
    #[arg(long, value_name = "NAME", conflicts_with_all = ["decisions", "explain"])]
    pub bundle: Option<String>,
    /// Keep the plan and its results in this folder [default: they are thrown away].
    #[arg(long, value_name = "DIR", conflicts_with_all = ["decisions", "explain"])]
    pub out: Option<PathBuf>,
    /// Print one JSON document, and nothing else, on stdout.
    #[arg(long)]
    pub json: bool,
}

impl Replay {
    /// The arguments that may name algorithms.
    pub fn mentions(&mut self) -> Vec<&mut String> {
        self.with.mentions()
    }

    /// The laboratory's command that simulates the recording, if it is to be simulated.
    pub fn is_of_laboratory(&self) -> Option<&'static str> {
        #[cfg(feature = "host")]
        if !self.explain && forebay_host::daemon::record::is_archive(&self.file) {
            return Some("replay FILE` without `--explain");
        }
        None
    }
}

#[cfg(feature = "host")]
impl Replay {
    /// Prints the recording, and its replay.
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        if forebay_host::daemon::record::is_archive(&self.file) {
            self.execute_of_boxes()
        } else {
            self.execute_of_agent()
        }
    }
}

#[cfg(not(feature = "host"))]
impl Replay {
    /// Refuses the command, which this build lacks.
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = (self.file, self.decisions, self.explain, self.bundle, self.out, self.json);
        Err(super::needs_host("replay"))
    }
}
