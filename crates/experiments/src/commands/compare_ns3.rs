//! `forebay compare-ns3`.

use std::path::PathBuf;
use std::process::ExitCode;

use forebay_lab::compare::ns3::{Simulated, Totals, Truth, Truths};

use forebay::{BadInput, print};

/// Arguments of `forebay compare-ns3`.
#[derive(clap::Args)]
#[command(
    after_help = "A pair is a metric of a run. It holds where the simulator's median of nine starts is near what ns-3 had in \
    several, or its mean of ten seeds where losses are random. Runs are tight, loose or unstable by how much the \
    throughput of ns-3's own starts differs.\n\n\
    Exit code 1: fewer than 95 % of the tight pairs hold, or a loose or a loss pair does not.\n\n\
    Example: where does Vegas differ?\n  \
    forebay compare-ns3 --file traces/ns3/more_runs.json Vegas"
)]
pub struct CompareNs3 {
    /// Runs of ns-3, such as those in traces/ns3; `cargo xtask ns3-runs` makes more.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Only runs whose names contain one of these.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Show throughput and round trip second by second, too, next to those from ns-3 if FILE has them.
    #[arg(long, conflicts_with = "json")]
    series: bool,
    /// Print one JSON document on stdout and nothing else there: for each class how many pairs hold, and of how many.
    #[arg(long)]
    json: bool,
}

impl CompareNs3 {
    /// Simulates each run and prints which pairs hold; exit code 1 where too few do.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let truths =
            Truths::read(&self.file).map_err(|error| BadInput(format!("--file {error}")))?;
        let runs = self.wanted(&truths)?;
        let mut totals = Totals::default();
        for truth in &runs {
            let simulated = match Simulated::new(truth) {
                Ok(simulated) => Some(simulated),
                Err(error) => {
                    eprintln!("{} ({:?})\n  not run: {error}", truth.name, truth.class);
                    None
                }
            };
            totals.count(truth.class, simulated.as_ref());
            if let Some(simulated) = simulated.filter(|_| !self.json) {
                let series = if self.series { simulated.series() } else { String::new() };
                print(&(simulated.table() + &series))?;
            }
        }
        let totals_text = match self.json {
            true => format!("{}\n", totals.json(runs.len())),
            false => totals.table(&truths.first_look),
        };
        print(&totals_text)?;
        Ok(if totals.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn wanted<'a>(&self, truths: &'a Truths) -> anyhow::Result<Vec<&'a Truth>> {
        let is_of = |part: &String, truth: &Truth| truth.name.contains(part);
        if let Some(part) =
            self.names.iter().find(|part| !truths.runs.iter().any(|it| is_of(part, it)))
        {
            let file = self.file.display();
            return Err(BadInput(format!(
                "{part}: allowed is a part of the name of a run in {file}"
            ))
            .into());
        }
        let is_wanted = |truth: &&Truth| {
            self.names.is_empty() || self.names.iter().any(|part| is_of(part, truth))
        };
        Ok(truths.runs.iter().filter(is_wanted).collect())
    }
}
