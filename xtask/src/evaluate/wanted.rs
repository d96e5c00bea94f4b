//! The runs that a plan asks for, read from its file and not from what happened to be run.
//!
//! A reader of its own, of no more than this, since xtask must not know `lab`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use toml::{Table, Value};

/// Seeds and cells of a plan: every arm has a run of each seed in each cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Names of the cells; one without a name where the plan has none.
    pub cells: Vec<String>,
}

impl Wanted {
    /// What the plan called `name` asks for.
    pub fn of(root: &Path, name: &str) -> Result<Self> {
        let path = root.join("plans").join(name).with_extension("toml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let plan: Table = toml::from_str(text)?;
        let seeds = plan.get("seeds").and_then(Value::as_str).context("seeds: missing")?;
        let (first, last) = seeds.split_once("..").unwrap_or((seeds, seeds));
        let seeds = (first.trim().parse()?..=last.trim().parse()?).collect();
        let named = match plan.get("cell") {
            None => vec![String::new()],
            Some(Value::Array(named)) => named.iter().map(name).collect::<Result<_>>()?,
            Some(_) => bail!("cell: not a list of tables"),
        };
        let cells = match plan.get("cells") {
            None => named,
            Some(Value::Table(grid)) => cells(named, grid)?,
            Some(_) => bail!("cells: not a table"),
        };
        Ok(Self { seeds, cells })
    }
}

/// The name of a `[[cell]]`.
fn name(cell: &Value) -> Result<String> {
    let name = cell.get("name").and_then(Value::as_str).context("cell.name: missing")?;
    Ok(name.to_string())
}

/// Every combination with each of `cells`, named as the plan reader names it: `last part of the key=value`,
/// by key.
fn cells(mut cells: Vec<String>, grid: &Table) -> Result<Vec<String>> {
    for (key, values) in grid {
        let short = key.rsplit('.').next().unwrap_or(key);
        let values = values.as_array().with_context(|| format!("cells.{key}: not a list"))?;
        let with = |cell: &String, value: &Value| {
            let gap = if cell.is_empty() { "" } else { " " };
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_string);
            format!("{cell}{gap}{short}={value}")
        };
        cells =
            cells.iter().flat_map(|cell| values.iter().map(|value| with(cell, value))).collect();
    }
    Ok(cells)
}

#[cfg(test)]
mod tests {
    use forebay_lab::plan::Plan;
    use forebay_lab::plan::library::runnable_plans;

    use super::*;

    #[test]
    fn the_reader_of_the_lab_wants_the_same_of_every_plan() {
        let root = crate::repository();
        assert!(runnable_plans().count() > 10);
        for name in runnable_plans() {
            let path = root.join("plans").join(name).with_extension("toml");
            let plan = Plan::load(path.to_str().unwrap(), &[]).unwrap();
            let seeds = plan.seeds.iter().collect();
            let cells = plan.cells.iter().map(|cell| cell.name.clone()).collect();
            assert_eq!(Wanted::of(&root, name).unwrap(), Wanted { seeds, cells }, "{name}");
        }
    }

    #[test]
    fn every_seed_and_every_combination_is_wanted() {
        let wanted = Wanted::parse(
            "seeds = \"2..4\"\n[cells]\n\"link.rtt\" = [\"20ms\", \"50ms\"]\n\"link.rate\" = [1, 2]",
        );
        let cells = ["rate=1 rtt=20ms", "rate=1 rtt=50ms", "rate=2 rtt=20ms", "rate=2 rtt=50ms"];
        let wanted = wanted.unwrap();
        assert_eq!((wanted.seeds, wanted.cells), (vec![2, 3, 4], cells.map(String::from).to_vec()));
        let wanted =
            Wanted::parse("seeds = \"1\"\n[[cell]]\nname = \"slow\"\n[[cell]]\nname = \"fast\"");
        assert_eq!(wanted.unwrap().cells, ["slow", "fast"]);
        let both =
            "seeds = \"1\"\ncell = [{ name = \"slow\" }]\ncells = { \"link.rate\" = [1, 2] }";
        assert_eq!(Wanted::parse(both).unwrap().cells, ["slow rate=1", "slow rate=2"]);
        let wanted = Wanted::parse("seeds = \"7\"").unwrap();
        assert_eq!((wanted.seeds, wanted.cells), (vec![7], vec![String::new()]));
        assert!(Wanted::parse("").is_err());
    }
}
