//! `forebay demo`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use forebay_lab::demo;
use forebay_lab::plan::Seeds;
use forebay_lab::runner::Options;
use forebay_lab::store::Store;

use super::run::{BUILD, bad_plan, run_plans, store_error};
use super::{BadInput, print};

/// A disturbed run is tried again only if the demo still ends within three minutes.
const RETRY_FOR: Duration = Duration::from_secs(90);

/// Arguments of `forebay demo`.
#[derive(clap::Args)]
pub struct Demo {
    /// Shorter runs: a minute and a half instead of two and a half.
    #[arg(long)]
    quick: bool,
    /// Where results go.
    #[arg(long, default_value = "out/demo", value_name = "DIR")]
    out: PathBuf,
}

impl Demo {
    /// Runs the demo; exit code 1 if the gain is absent.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let plans = demo::plans(self.quick).map_err(bad_plan)?;
        eprintln!(
            "A bundle on real kernel TCP between two sites on this machine, with and without \
             forebay.\nIt takes about {} and changes nothing outside its own network namespaces.",
            if self.quick { "a minute and a half" } else { "two minutes and a half" }
        );
        let options = Options {
            jobs: 1,
            build: BUILD,
            seeds: Some(Seeds { first: 1, last: 1 }),
            force: true,
            retry_until: Some(Instant::now() + RETRY_FOR),
            keep_logs: None,
        };
        let results = run_plans(&plans, "emu", self.out.clone(), &options).map_err(explain)?;
        let store = Store::open(&self.out).map_err(store_error)?;
        let verdict = demo::judge(&store, &results.runs)?;
        let report = results.report.map_or_else(String::new, |report| {
            format!("Figures and all numbers: {}\n", report.display())
        });
        print(&format!("{}\n{report}", verdict.text))?;
        Ok(if verdict.gained { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// What is missing and what to do about it.
fn explain(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<BadInput>() {
        Some(reason) => BadInput(format!(
            "the demo cannot run here: {reason}\nIt needs Linux 5.15 or newer and root, for \
             network namespaces and BPF: as root, `make demo` installs what is missing and runs it"
        ))
        .into(),
        None => error,
    }
}
