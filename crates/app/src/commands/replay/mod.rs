//! `forebay replay`: what an agent or boxes have recorded, once more.

use std::path::PathBuf;
use std::process::ExitCode;

use super::own::With;

#[cfg(feature = "host")]
mod agent;
#[cfg(feature = "host")]
mod boxes;

/// Arguments of `forebay replay`.
///
/// Of an agent's recording it feeds the reports to the same algorithms and compares each decision with the recorded one,
/// bit for bit. Exit code 0: all are the same; 1: some differ; 2: it is no recording.
///
/// Of boxes' it tells what happened, by time and with reasons, makes a plan of what was measured of one bundle, runs that
/// plan in the simulator, and shows both beside each other. Nothing of the file is unpacked to the disk. Needs no
/// privilege.
#[derive(clap::Args)]
pub struct Replay {
    /// What `forebay agent --record` or `forebay record` wrote.
    file: PathBuf,
    #[command(flatten)]
    with: With,
    /// Print every decision of an agent, and what it was made of.
    #[arg(long, conflicts_with = "json")]
    decisions: bool,
    /// Of boxes, only tell what happened: simulate nothing.
    #[arg(long, conflicts_with = "decisions")]
    explain: bool,
    /// The bundle to simulate [default: the one that carried most].
    #[arg(long, value_name = "NAME", conflicts_with_all = ["decisions", "explain"])]
    bundle: Option<String>,
    /// Keep the plan and its results in this folder [default: they are thrown away].
    #[arg(long, value_name = "DIR", conflicts_with_all = ["decisions", "explain"])]
    out: Option<PathBuf>,
    /// Print one JSON document, and nothing else, on stdout.
    #[arg(long)]
    json: bool,
}

impl Replay {
    /// The arguments that may name algorithms.
    pub fn mentions(&mut self) -> Vec<&mut String> {
        self.with.mentions()
    }
}

#[cfg(feature = "host")]
impl Replay {
    /// Prints what was recorded, and what comes of it now.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        if forebay_host::daemon::record::is_archive(&self.file) {
            self.execute_of_boxes()
        } else {
            self.execute_of_agent()
        }
    }
}

#[cfg(not(feature = "host"))]
impl Replay {
    /// Says what is missing.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = (self.file, self.decisions, self.explain, self.bundle, self.out, self.json);
        Err(super::needs_host("replay"))
    }
}
