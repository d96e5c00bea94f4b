//! `forebay compare`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use forebay_lab::output::{number, text_table};
use forebay_lab::report::newest_runs;
use forebay_lab::store::Store;
use forebay_lab::summary::{ArmSummary, Requests, summarise};

use super::{print, refuse};

/// Arguments of `forebay compare`.
#[derive(clap::Args)]
pub struct Compare {
    /// A folder that `forebay run --out` wrote.
    #[arg(value_name = "DIR")]
    before: PathBuf,
    /// Another one, such as that of a later commit.
    #[arg(value_name = "DIR")]
    after: PathBuf,
    /// Only metrics whose name contains this.
    #[arg(long, default_value = "", value_name = "TEXT")]
    metric: String,
    /// Only metrics that differ by at least this share.
    #[arg(long, default_value_t = 0.02, value_name = "SHARE")]
    above: f64,
}

impl Compare {
    /// Prints every metric of every arm that differs.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let [before, after] = [&self.before, &self.after].map(|folder| {
            let store = Store::open(folder).map_err(refuse)?;
            let runs = newest_runs(&store)?;
            anyhow::Ok(summarise(&Requests::new(&store), &runs)?)
        });
        let (before, after) = (before?, after?);
        let mut text = String::new();
        for old in &before {
            let same = |new: &&ArmSummary| {
                (&new.plan, &new.cell, &new.arm) == (&old.plan, &old.cell, &old.arm)
                    && new.backend == old.backend
            };
            let title = format!("{} {} {} ({})", old.plan, old.arm, old.cell, old.backend);
            let Some(new) = after.iter().find(same) else {
                writeln!(text, "{title}: only in {}\n", self.before.display())?;
                continue;
            };
            let rows = self.differences(old, new);
            if rows.is_empty() {
                writeln!(text, "{title}: nothing differs by {} or more\n", self.above)?;
                continue;
            }
            let titles = ["metric", "before", "after", "after / before"].map(str::to_string);
            writeln!(text, "{title}\n{}", text_table(&titles, &rows))?;
        }
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    fn differences(&self, old: &ArmSummary, new: &ArmSummary) -> Vec<Vec<String>> {
        let new: std::collections::BTreeMap<String, f64> = numbers(new).collect();
        let differing = numbers(old).filter_map(|(name, before)| {
            let after = *new.get(&name)?;
            let ratio = after / before;
            let differs = (after - before).abs() >= self.above * before.abs().max(after.abs());
            let shown = name.contains(&self.metric) && differs && after != before;
            let ratio = if ratio.is_finite() { number(ratio) } else { "-".into() };
            shown.then(|| vec![name, number(before), number(after), ratio])
        });
        differing.collect()
    }
}

/// Every number of an arm with the part that it belongs to.
fn numbers(arm: &ArmSummary) -> impl Iterator<Item = (String, f64)> + '_ {
    let of_run = arm.metrics.0.iter().map(|(name, value)| (name.clone(), *value));
    let parts = [("flow", &arm.flows), ("link", &arm.links), ("bundle", &arm.bundles)];
    let of_parts = parts.into_iter().flat_map(|(kind, parts)| {
        parts.iter().flat_map(move |part| {
            let name = move |metric: &String| format!("{kind} {} {metric}", part.name);
            part.metrics.0.iter().map(move |(metric, value)| (name(metric), *value))
        })
    });
    of_run.chain(of_parts)
}
