//! Runs of ns-3 as data, which `--example ns3_ground_truth` of forebay-sim compares with.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

/// The runs, each with all that is set in it.
const FILE: &str = "traces/ns3/more_runs.json";
/// When the flow of a run starts, in round trips: what changes with this is chance.
const STARTS: [f64; 5] = [0.0, 0.1, 0.25, 0.5, 0.75];
/// Metrics of the link; the others are the flow's.
const LINK: [&str; 2] = ["mean_qdisc_length_l2", "total_qdisc_drops_l2"];
/// Largest half range of the throughput, as a share of its median, of runs that are tight and loose.
const CLASSES: [(&str, f64); 3] = [("tight", 0.02), ("loose", 0.08), ("unstable", f64::INFINITY)];

/// Makes the runs whose names contain one of `arguments` (all without one) anew and writes least and greatest
/// value of each metric into the file. Fails without `libns3-dev` (`--install` installs it).
pub fn make(arguments: &[String]) -> Result<()> {
    let (flags, names): (Vec<&String>, _) = arguments.iter().partition(|it| *it == "--install");
    if !flags.is_empty() {
        super::install()?;
    }
    let root = crate::repository();
    let driver = super::build_driver(&root, "run")?;
    let path = root.join(FILE);
    let mut file: Value = serde_json::from_str(&std::fs::read_to_string(&path)?).context(FILE)?;
    let is_wanted = |run: &&mut Value| {
        let name = run["name"].as_str().unwrap_or_default();
        names.is_empty() || names.iter().any(|part: &&String| name.contains(part.as_str()))
    };
    let runs = file["runs"].as_array_mut().context(FILE)?;
    for run in runs.iter_mut().filter(is_wanted) {
        println!("{}", run["name"]);
        let figures = repeat(&driver, &run["params"])?;
        put(run, &figures)?;
    }
    Ok(std::fs::write(path, text(&file)?)?)
}

/// What one run comes to, a start each.
fn repeat(driver: &Path, params: &Value) -> Result<Vec<Map<String, Value>>> {
    let params = params.as_object().context("a run without params")?;
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), String::from);
    let rtt_ms: f64 = params.get("rtts_ms").map(plain).context("no rtts_ms")?.parse()?;
    let start = |part: f64| {
        let values = params.iter().map(|(name, value)| format!("{name}={}", plain(value)));
        let late = format!("start_s={}", part * rtt_ms / 1e3);
        let mut command = Command::new(driver);
        command.args(values.chain([late])).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let started = STARTS.map(start).into_iter().collect::<Result<Vec<_>, _>>()?;
    let figures = |child: std::process::Child| {
        let output = child.wait_with_output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ns-3 ended with {}\n{errors}", output.status);
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    started.into_iter().map(figures).collect()
}

/// Writes into a run what its starts came to.
fn put(run: &mut Value, figures: &[Map<String, Value>]) -> Result<()> {
    let (mut flow, mut link) = (Map::new(), Map::new());
    for name in figures.first().context("no start")?.keys() {
        let values = sorted(figures, name)?;
        let range = json!({ "min": values[0], "max": values[values.len() - 1] });
        let of = if LINK.contains(&name.as_str()) { &mut link } else { &mut flow };
        of.insert(name.clone(), range);
    }
    let rates = sorted(figures, "mean_throughput_l4")?;
    let rates: Vec<f64> = rates.iter().filter_map(|rate| rate.as_f64()).collect();
    let half_range = (rates[rates.len() - 1] - rates[0]) / 2.0 / rates[rates.len() / 2];
    // Digits beyond are not read back as they were written.
    let half_range = (half_range * 1e9).round() / 1e9;
    let class = CLASSES.iter().find(|(_, most)| half_range <= *most).context("no throughput")?.0;
    run["stability"] = json!({ "throughput_half_range_3_37": half_range, "class": class });
    run["ensemble_with_3_44"] = json!({ "flows": [flow], "link": link });
    Ok(())
}

/// A metric of all starts, the least first.
fn sorted<'a>(figures: &'a [Map<String, Value>], name: &str) -> Result<Vec<&'a Value>> {
    let values = figures.iter().map(|it| it.get(name).filter(|value| value.is_number()));
    let mut values = values.collect::<Option<Vec<_>>>().with_context(|| format!("no {name}"))?;
    values.sort_by(|one, other| f64::total_cmp(&number(one), &number(other)));
    Ok(values)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// The file: a run a line.
fn text(file: &Value) -> Result<String> {
    let runs = file["runs"].as_array().context(FILE)?;
    let lines: Vec<String> = runs.iter().map(Value::to_string).collect();
    Ok(format!("{{\"about\":{},\"runs\":[\n{}\n]}}\n", file["about"], lines.join(",\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_the_least_and_the_greatest_of_its_starts() {
        let start = |rate: f64, drops: u64| {
            let json = json!({ "mean_throughput_l4": rate, "total_qdisc_drops_l2": drops });
            json.as_object().unwrap().clone()
        };
        let mut run = json!({ "name": "r" });
        put(&mut run, &[start(9.8, 7), start(10.0, 9), start(10.4, 8)]).unwrap();
        let ensemble = &run["ensemble_with_3_44"];
        let range = json!({ "min": 9.8, "max": 10.4 });
        assert_eq!(ensemble["flows"], json!([{ "mean_throughput_l4": range }]));
        assert_eq!(ensemble["link"]["total_qdisc_drops_l2"], json!({ "min": 7, "max": 9 }));
        assert_eq!(run["stability"]["class"], "loose");
        let without = json!({ "total_qdisc_drops_l2": 7 });
        assert!(put(&mut run, &[without.as_object().unwrap().clone()]).is_err());
    }

    #[test]
    fn the_file_is_as_it_is_written() {
        let path = crate::repository().join(FILE);
        let there = std::fs::read_to_string(path).unwrap();
        assert_eq!(text(&serde_json::from_str(&there).unwrap()).unwrap(), there);
    }
}
