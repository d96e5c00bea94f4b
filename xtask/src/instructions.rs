//! Instructions that the simulator takes for a packet. Unlike its time they do not depend on other load of the machine,
//! so a check can fail a change that raises them. Counted by callgrind (valgrind).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

use crate::{Misuse, repository};

/// File with the last accepted counts.
const RECORD: &str = "crates/sim/benches/instructions.json";
/// Scenarios of `crates/sim/examples/speed`.
const SCENARIOS: [&str; 4] = ["b1", "b2", "b3", "overshoot"];
/// Largest allowed increase over the last accepted count, as a share of it.
const MORE: f64 = 0.05;

#[derive(Deserialize, Serialize)]
struct Record {
    about: String,
    /// `rustc --version`: another compiler makes other instructions from the same sources.
    rustc: String,
    instructions_per_packet: BTreeMap<String, f64>,
}

/// Counts the instructions of each scenario and prints them next to the recorded counts. Fails if a scenario takes
/// more than [`MORE`] above its record. With `--update` the counts become the record.
pub fn check(arguments: &[String]) -> Result<()> {
    let is_update = match arguments {
        [] => false,
        [one] if one == "--update" => true,
        _ => return Err(Misuse::of(anyhow!("instructions takes --update or nothing"))),
    };
    let root = repository();
    let path = root.join(RECORD);
    let program = build(&root)?;
    let counted = SCENARIOS.iter().map(|name| Ok(((*name).into(), count(&program, name)?)));
    let counted = counted.collect::<Result<BTreeMap<String, f64>>>()?;
    let rustc = Command::new("rustc").arg("--version").output().context("rustc")?.stdout;
    let rustc = String::from_utf8(rustc)?.trim().to_owned();
    if is_update {
        let about = "Instructions for a packet in the scenarios of crates/sim/examples/speed, counted by callgrind: \
                     cargo xtask instructions --update.";
        let record = Record { about: about.into(), rustc, instructions_per_packet: counted };
        let text = serde_json::to_string_pretty(&record)? + "\n";
        return std::fs::write(&path, text).with_context(|| RECORD.to_owned());
    }
    let record = std::fs::read_to_string(&path).with_context(|| RECORD.to_owned())?;
    let record: Record = serde_json::from_str(&record).with_context(|| RECORD.to_owned())?;
    if record.rustc != rustc {
        println!("the record was counted with {}, this count with {rustc}", record.rustc);
    }
    let raised = raised(&record.instructions_per_packet, &counted)?;
    ensure!(
        raised.is_empty(),
        "more than {:.0} % above the record: {}",
        MORE * 100.0,
        raised.join(", ")
    );
    Ok(())
}

/// Prints both, and returns the scenarios that take more than allowed.
fn raised(before: &BTreeMap<String, f64>, now: &BTreeMap<String, f64>) -> Result<Vec<String>> {
    let mut raised = Vec::new();
    println!("| scenario | instructions a packet before | now | change |\n|---|---|---|---|");
    for (name, now) in now {
        let before = before.get(name).with_context(|| format!("{RECORD} has no {name}"))?;
        let change = now / before - 1.0;
        println!("| {name} | {before:.1} | {now:.1} | {:+.1} % |", change * 100.0);
        if change > MORE {
            raised.push(name.clone());
        }
    }
    Ok(raised)
}

fn build(root: &Path) -> Result<PathBuf> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--locked", "-p", "forebay-sim", "--example", "speed"]);
    crate::run(cargo.current_dir(root))?;
    Ok(root.join("target/release/examples/speed"))
}

/// Instructions a packet in the second of two runs, without the start of the program.
fn count(program: &Path, scenario: &str) -> Result<f64> {
    let (one, packets) = callgrind(program, scenario, "1")?;
    let (two, _) = callgrind(program, scenario, "2")?;
    Ok((two - one) / packets)
}

/// Instructions of `runs` runs, and the packets of one.
fn callgrind(program: &Path, scenario: &str, runs: &str) -> Result<(f64, f64)> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    let output = valgrind.args([scenario, runs]).output().context("valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{valgrind:?} ended with {}: {said}", output.status);
    #[derive(Deserialize)]
    struct Run {
        packets: f64,
    }
    let run = String::from_utf8(output.stdout)?;
    let run: Run = serde_json::from_str(run.lines().next().context("the program printed no run")?)?;
    Ok((collected(&said).with_context(|| said.to_string())?, run.packets))
}

/// The sum at callgrind's end, `==1== Collected : 123`.
fn collected(said: &str) -> Option<f64> {
    said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_scenarios_with_five_percent_more_instructions() {
        let of = |b1, b2| BTreeMap::from([("b1".into(), b1), ("b2".into(), b2)]);
        assert_eq!(raised(&of(500.0, 400.0), &of(524.0, 421.0)).unwrap(), ["b2"]);
        assert!(raised(&BTreeMap::new(), &of(1.0, 1.0)).is_err());
    }

    #[test]
    fn reads_sum_from_last_callgrind_lines() {
        let said = "==7== Events    : Ir\n==7== Collected : 123456\n==7== \n";
        assert_eq!((collected(said), collected("")), (Some(123_456.0), None));
    }

    #[test]
    fn the_record_has_every_scenario() {
        let record = std::fs::read_to_string(repository().join(RECORD)).unwrap();
        let record: Record = serde_json::from_str(&record).unwrap();
        assert!(record.instructions_per_packet.keys().eq(SCENARIOS.iter()));
    }
}
