//! `forebay demo`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use forebay_lab::backend::BackendError;
use forebay_lab::plan::Seeds;
use forebay_lab::{Options, RunError, demo, progress, run};

use super::refuse;
use super::run::BUILD;
use forebay::print;

/// A disturbed run is tried again only if the demo still ends within three minutes.
const RETRY_FOR: Duration = Duration::from_secs(90);

/// Show the gain of a bundle on real kernel TCP, in minutes.
///
/// Connects two sites on this machine in network namespaces, and sends traffic with and without
/// boxes. Needs root and Linux 5.15. Changes nothing outside its namespaces.
///
/// Exit code 1: the boxes gained nothing, or the demo cannot run here, for example without root.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay demo --quick")]
pub struct Demo {
    /// Shorter runs: 1.5 minutes instead of 2.5.
    #[arg(long)]
    quick: bool,
    /// Folder for results.
    #[arg(long, default_value = "out/demo", value_name = "DIR")]
    out: PathBuf,
}

impl Demo {
    /// Runs the demo; exit code 1 if the gain is absent.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let [shift, draft] = demo::plans(self.quick).map_err(refuse)?;
        eprintln!(
            "A bundle on real kernel TCP between two sites on this machine, with and without \
             forebay.\nIt takes about {} and changes nothing outside its own network namespaces.",
            if self.quick { "a minute and a half" } else { "two minutes and a half" }
        );
        let options = Options {
            backend: "emu".into(),
            out: Some(self.out),
            seeds: Some(Seeds { first: 1, last: 1 }),
            force: true,
            retry_until: Some(Instant::now() + RETRY_FOR),
            build: BUILD,
            ..Options::default()
        };
        let run = |plan| run(plan, &options, &mut *progress::on_stderr()).map_err(explain);
        let (shift, draft) = (run(&shift)?, run(&draft)?);
        let verdict = demo::judge(&draft.store, &[shift.runs, draft.runs].concat())?;
        let report = draft.report.display();
        print(&format!("{}\nFigures and all numbers: {report}\n", verdict.text))?;
        Ok(if verdict.gained { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The missing requirement and how to install it.
fn explain(error: RunError) -> anyhow::Error {
    match error {
        RunError::Backend(BackendError::Unavailable(error)) => anyhow::anyhow!(
            "the demo cannot run here: {error}\nIt needs Linux 5.15 or newer and root, for \
             network namespaces and BPF: as root, `make demo` installs missing packages and runs it"
        ),
        error => refuse(error),
    }
}
