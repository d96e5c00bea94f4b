//! Runs of ns-3 as data, with which `forebay compare-ns3` compares the simulator.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forebay_lab::backend::ns3::{Driver, Outcome};
use serde_json::{Map, Value, json};

use super::params::Params;

/// Runs that were chosen, each with all its parameters.
pub const CHOSEN: &str = "traces/ns3/more_runs.json";
/// Start of a run's flow, in round trips: differences between these starts are chance.
const STARTS: [f64; 5] = [0.0, 0.1, 0.25, 0.5, 0.75];
/// Number of times that a run with random losses is made; means are compared.
const SEEDS: u64 = 10;
/// Largest half range of the throughput, as a share of its median, for tight and loose runs.
const CLASSES: [(&str, f64); 3] = [("tight", 0.02), ("loose", 0.08), ("unstable", f64::INFINITY)];
/// Keys of the results of runs with random losses for each version of ns-3, the first one for 3.37.
const BY_SEEDS: [&str; 2] = ["seeds_1_10", "seeds_1_10_ns3_44"];
/// Resolution of figures: parts of one.
const PARTS: f64 = 1e4;

/// Results of one start of a run.
struct Figures {
    /// Metrics of each flow.
    flows: Vec<Map<String, Value>>,
    /// Metrics of the link.
    link: Map<String, Value>,
}

/// Makes the runs at the places `wanted` of `file` in the ns-3 of each of `drivers`, `jobs` at a time. Writes the least
/// and greatest value of each metric into these runs, and after each run also into the file at `path`.
pub fn make(
    path: &Path,
    file: &mut Value,
    wanted: &[usize],
    drivers: &[Driver],
    jobs: usize,
) -> Result<()> {
    let runs = file["runs"].as_array().cloned().unwrap_or_default();
    let queue = Mutex::new(wanted.iter());
    let made = Mutex::new((file, 0));
    let work = || -> Result<()> {
        loop {
            let next = queue.lock().ok().and_then(|mut queue| queue.next().copied());
            let Some(place) = next else { return Ok(()) };
            let run = complete(runs[place].clone(), drivers)?;
            // If another thread has panicked, this one ends, too.
            let Ok(mut made) = made.lock() else { return Ok(()) };
            made.1 += 1;
            println!("{} of {}: {}", made.1, wanted.len(), run["name"]);
            made.0["runs"][place] = run;
            write(path, &*made.0)?;
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|it| it.join().expect("a thread does not panic"));
        ended.collect()
    })
}

/// `run` with the results of its starts.
fn complete(mut run: Value, drivers: &[Driver]) -> Result<Value> {
    let name = run["name"].to_string();
    let params = Params::of(&run).context(name.clone())?;
    let rtt = params.rtt()?;
    let is_lossy = params.is_lossy()?;
    let once = |driver: &Driver, late: Duration, number: u64| {
        let folder = tempfile::tempdir()?;
        let network = params.network(late, number)?;
        let outcome = driver.run(&network, folder.path(), &mut |_| ());
        anyhow::Ok(figures(&outcome?))
    };
    let mut versions = Vec::new();
    for driver in drivers {
        let starts: Result<Vec<Figures>> = match is_lossy {
            true => (1..=SEEDS).map(|seed| once(driver, Duration::ZERO, seed)).collect(),
            false => STARTS.iter().map(|part| once(driver, rtt.mul_f64(*part), 1)).collect(),
        };
        versions.push(starts.context(name.clone())?);
    }
    if !is_lossy {
        put(&mut run, &versions)?;
        return Ok(run);
    }
    for (key, seeds) in BY_SEEDS.into_iter().zip(&versions) {
        run[key] = by_seed(seeds);
    }
    // A lossy run is judged by its means.
    run["stability"] = json!({ "class": "loss" });
    Ok(run)
}

fn figures(outcome: &Outcome) -> Figures {
    let rounded = |value: f64| json!((value * PARTS).round() / PARTS);
    let map = |pairs: &[(&str, Value)]| -> Map<String, Value> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
    };
    let flows = outcome.flows.iter().map(|flow| {
        let metrics = &flow.metrics;
        map(&[
            ("mean_throughput_l4", rounded(metrics.mean_throughput_l4)),
            ("mean_cwnd_l4", rounded(metrics.mean_cwnd_l4)),
            ("mean_in_flight_l4", rounded(metrics.mean_in_flight_l4)),
            ("mean_srtt_l4", rounded(metrics.mean_srtt_l4)),
            ("total_rtos_l4", json!(metrics.total_rtos_l4)),
            ("total_retransmissions_l4", json!(metrics.total_retransmissions_l4)),
        ])
    });
    let link = outcome.links.first().copied().unwrap_or_default();
    Figures {
        flows: flows.collect(),
        link: map(&[
            ("mean_qdisc_length_l2", rounded(link.mean_qdisc_length_l2)),
            ("total_qdisc_drops_l2", json!(link.total_qdisc_drops_l2)),
        ]),
    }
}

/// The values of each metric of a run with one flow.
fn by_seed(seeds: &[Figures]) -> Value {
    let mut values = Map::new();
    for figures in seeds {
        for (name, value) in figures.flows.iter().flatten().chain(&figures.link) {
            let of = values.entry(name.clone()).or_insert_with(|| json!({ "values": [] }));
            if let Some(list) = of["values"].as_array_mut() {
                list.push(value.clone());
            }
        }
    }
    Value::Object(values)
}

/// Writes into a run the results of its starts with each version of ns-3.
fn put(run: &mut Value, versions: &[Vec<Figures>]) -> Result<()> {
    let all: Vec<&Figures> = versions.iter().flatten().collect();
    let first: Vec<&Figures> = versions.iter().take(1).flatten().collect();
    let half_range = half_range(&all)?;
    let class = CLASSES.iter().find(|(_, most)| half_range <= *most).context("no throughput")?.0;
    let count = all.first().map_or(0, |start| start.flows.len());
    let flows = (0..count).map(|flow| ranges(&of_flow(&all, flow)?)).collect::<Result<Vec<_>>>()?;
    let link = ranges(&all.iter().map(|start| &start.link).collect::<Vec<_>>())?;
    run["stability"] =
        json!({ "throughput_half_range_3_37": self::half_range(&first)?, "class": class });
    if versions.len() > 1 {
        run["stability"]["throughput_half_range_with_3_44"] = half_range.into();
    }
    run["ensemble_with_3_44"] = json!({ "flows": flows, "link": link });
    Ok(())
}

/// Half the range of the throughput over starts, divided by its median, for the flow with the largest value.
fn half_range(starts: &[&Figures]) -> Result<f64> {
    let of = |flow| {
        let rates = of_flow(starts, flow)?;
        let rates = sorted(&rates, "mean_throughput_l4")?;
        let rates: Vec<f64> = rates.into_iter().map(number).collect();
        anyhow::Ok((rates[rates.len() - 1] - rates[0]) / 2.0 / rates[rates.len() / 2])
    };
    let count = starts.first().context("no start")?.flows.len();
    let all = (0..count).map(of).collect::<Result<Vec<f64>>>()?;
    let most = all.into_iter().reduce(f64::max).context("no flow")?;
    // More digits would not be read back as they were written.
    Ok((most * 1e9).round() / 1e9)
}

fn of_flow<'a>(starts: &[&'a Figures], flow: usize) -> Result<Vec<&'a Map<String, Value>>> {
    starts.iter().map(|start| start.flows.get(flow).context("flows differ")).collect()
}

/// Least and greatest value of each metric.
fn ranges(starts: &[&Map<String, Value>]) -> Result<Map<String, Value>> {
    let first = starts.first().context("no start")?;
    let range = |name: &String| {
        let values = sorted(starts, name)?;
        Ok((name.clone(), json!({ "min": values[0], "max": values[values.len() - 1] })))
    };
    first.keys().map(range).collect()
}

/// A metric of all starts, the least first.
fn sorted<'a>(figures: &[&'a Map<String, Value>], name: &str) -> Result<Vec<&'a Value>> {
    let values = figures.iter().map(|it| it.get(name).filter(|value| value.is_number()));
    let mut values = values.collect::<Option<Vec<_>>>().with_context(|| format!("no {name}"))?;
    values.sort_by(|one, other| f64::total_cmp(&number(one), &number(other)));
    Ok(values)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// Reads a file of runs.
pub fn read(path: &Path) -> Result<Value> {
    let name = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(name)?;
    let file: Value = serde_json::from_str(&text).with_context(name)?;
    ensure!(file["runs"].is_array(), "{}: no runs", path.display());
    Ok(file)
}

/// Writes a file of runs completely or not at all.
pub fn write(path: &Path, file: &Value) -> Result<()> {
    let half = path.with_extension("part");
    std::fs::write(&half, text(file)?).with_context(|| half.display().to_string())?;
    std::fs::rename(&half, path).with_context(|| path.display().to_string())
}

/// The text of the file: its description, and a run on each line.
fn text(file: &Value) -> Result<String> {
    let runs = file["runs"].as_array().context("no runs")?;
    let lines: Vec<String> = runs.iter().map(Value::to_string).collect();
    let others = file.as_object().into_iter().flatten().filter(|(key, _)| *key != "runs");
    let head: String = others.map(|(key, value)| format!("{key:?}:{value},")).collect();
    Ok(format!("{{{head}\"runs\":[\n{}\n]}}\n", lines.join(",\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(json: Value) -> Map<String, Value> {
        json.as_object().unwrap().clone()
    }

    fn start<const FLOWS: usize>(rates: [f64; FLOWS], drops: u64) -> Figures {
        Figures {
            flows: rates.map(|rate| map(json!({ "mean_throughput_l4": rate }))).into(),
            link: map(json!({ "total_qdisc_drops_l2": drops })),
        }
    }

    #[test]
    fn run_has_least_and_greatest_of_starts() {
        let mut run = json!({ "name": "r" });
        put(&mut run, &[vec![start([9.8], 7), start([10.0], 9), start([10.4], 8)]]).unwrap();
        let ensemble = &run["ensemble_with_3_44"];
        let range = json!({ "min": 9.8, "max": 10.4 });
        assert_eq!(ensemble["flows"], json!([{ "mean_throughput_l4": range }]));
        assert_eq!(ensemble["link"]["total_qdisc_drops_l2"], json!({ "min": 7, "max": 9 }));
        assert_eq!(run["stability"]["class"], "loose");
        put(&mut run, &[vec![start([8.0, 1.0], 7), start([8.0, 2.0], 7)]]).unwrap();
        assert_eq!(run["stability"]["class"], "unstable", "as the second flow is");
        let without = Figures { flows: vec![Map::new()], ..start([1.0], 7) };
        assert!(put(&mut run, &[vec![without]]).is_err());
    }

    #[test]
    fn versions_make_one_ensemble() {
        let mut run = json!({ "name": "r" });
        put(&mut run, &[vec![start([10.0], 7), start([10.1], 7)], vec![start([11.0], 3)]]).unwrap();
        let stability = &run["stability"];
        assert_eq!(stability["throughput_half_range_3_37"], 0.004950495);
        assert_eq!(stability["throughput_half_range_with_3_44"], 0.04950495);
        assert_eq!(stability["class"], "loose");
        let drops = &run["ensemble_with_3_44"]["link"]["total_qdisc_drops_l2"];
        assert_eq!(*drops, json!({ "min": 3, "max": 7 }));
    }

    #[test]
    fn keeps_each_seed_of_lossy_run() {
        let expected = json!({
            "mean_throughput_l4": { "values": [4.0, 5.0] },
            "total_qdisc_drops_l2": { "values": [3, 3] },
        });
        assert_eq!(by_seed(&[start([4.0], 3), start([5.0], 3)]), expected);
    }

    #[test]
    fn the_file_is_as_it_is_written() {
        let path = crate::repository().join(CHOSEN);
        let there = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text(&read(&path).unwrap()).unwrap(), there);
    }
}
