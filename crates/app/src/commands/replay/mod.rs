//! `forebay replay`: repeats the recording of an agent, or explains and simulates the recording of boxes.

use std::path::PathBuf;
use std::process::ExitCode;

use super::foreign_rust::With;

#[cfg(feature = "host")]
mod agent;
#[cfg(feature = "host")]
pub mod boxes;

/// Check an agent's recording, or simulate a recording of boxes.
///
/// Recording of an agent (`forebay agent --record`): feeds the reports to the same algorithms, and
/// compares each decision with the recorded one, bit for bit. Exit code 1: some decisions differ.
///
/// Archive of boxes (`forebay record`): prints the events with times and reasons. Then makes a plan
/// from the measurements of one bundle and its recorded path, simulates it, and prints recorded and
/// simulated figures side by side. The simulation needs the package forebay-experiments.
///
/// Archive of a path (`forebay probe --record`): simulates a bundle with all defaults over it.
///
/// Needs no privilege, and unpacks nothing to the disk. Exit code 2: FILE is neither.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay replay copa.recording                 # of `forebay agent --record`\n  \
    forebay replay monday.tar.gz --explain        # of `forebay record`: the events\n  \
    forebay replay monday.tar.gz --bundle berlin  # the events, and a simulation")]
pub struct Replay {
    /// Recording, as `forebay agent --record` or `forebay record` wrote it.
    pub file: PathBuf,
    #[command(flatten)]
    with: With,
    /// Agent: print every decision with the values that led to it.
    #[arg(long, conflicts_with = "json")]
    decisions: bool,
    /// Boxes: only print the events, and simulate nothing.
    #[arg(long, conflicts_with = "decisions")]
    explain: bool,
    /// Boxes: bundle to simulate [default: the bundle with most bytes].
    #[arg(long, value_name = "NAME", conflicts_with_all = ["decisions", "explain"])]
    pub bundle: Option<String>,
    /// Boxes: keep the plan and its results in this folder [default: delete them].
    #[arg(long, value_name = "DIR", conflicts_with_all = ["decisions", "explain"])]
    pub out: Option<PathBuf>,
    /// Print one JSON document and nothing else on stdout.
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
