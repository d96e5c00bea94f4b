//! `forebay compare-ns3`.

use std::path::PathBuf;
use std::process::ExitCode;

use forebay_lab::compare::ns3::{Simulated, Totals, Truth, Truths};

use forebay::{BadInput, print};

/// Compare the simulator with recorded runs of ns-3.
///
/// A pair is a metric of a run. It holds if the simulator's median over five or nine start times is near
/// ns-3's values over several. With random losses, the mean over ten seeds counts. Runs are tight,
/// loose or unstable: the throughput of ns-3 itself varies between its starts by little, more or
/// much.
///
/// Exit code 1: fewer than 95 % of the tight pairs hold, or a loose pair or a pair with losses does
/// not.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay compare-ns3 --file traces/ns3/ground_truth.json\n  \
    forebay compare-ns3 --file traces/ns3/more_runs.json Vegas")]
pub struct CompareNs3 {
    /// File with runs of ns-3, such as traces/ns3/*.json; `cargo xtask ns3-runs` makes more.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Compare only runs whose names contain one of these texts.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Also show throughput and round trip second by second, next to the values of ns-3 if FILE has
    /// these.
    #[arg(long, conflicts_with = "json")]
    series: bool,
    /// Print one JSON document and nothing else on stdout: for each class, the number of pairs and
    /// of pairs that hold.
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
