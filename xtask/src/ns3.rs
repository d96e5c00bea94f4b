//! The simulator beside ns-3: the same scenarios, interleaved, in CPU seconds.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// Scenarios of both programs, and what ns-3 takes for one run.
const SCENARIOS: [(&str, &str); 4] =
    [("b1", "2 s"), ("b2", "3 min"), ("b3", "3 min"), ("overshoot", "25 s")];
/// How many times as fast as ns-3.37 the simulator must be, in the order of [`SCENARIOS`].
const RATIOS: [f64; 4] = [150.0, 200.0, 300.0, 200.0];
/// Runs of ours in one process for each of ns-3's.
const REPETITIONS: &str = "5";
/// Modules of ns-3 that the driver is linked with.
const MODULES: [&str; 6] =
    ["core", "network", "internet", "point-to-point", "traffic-control", "applications"];
/// How far apart the numbers of simulated packets may lie: runs of either are chaotic.
const PACKETS_APART: f64 = 0.1;

/// What both programs print of a run.
#[derive(Deserialize)]
struct Run {
    cpu_s: f64,
    packets: f64,
    drops: u64,
    rss_mb: f64,
}

/// Runs the scenarios named in `arguments` (all without one) `--runs N` times (5) and prints the
/// table. Fails without `libns3-dev` (`--install` installs it), where the two simulate different numbers of
/// packets, and where a ratio is below its bound.
pub fn bench(arguments: &[String]) -> Result<()> {
    let rest: Vec<String> = arguments.iter().filter(|it| *it != "--install").cloned().collect();
    let (runs, wanted) = parse(&rest)?;
    if rest.len() < arguments.len() {
        install()?;
    }
    let root = crate::repository();
    let driver = build_driver(&root)?;
    let ours = build_ours(&root)?;
    println!(
        "| scenario | ns-3 CPU s | forebay CPU s | ratio | ns-3 packets | forebay packets \
         | forebay packets/s | drops | memory MB | asked | |\n\
         |---|---|---|---|---|---|---|---|---|---|---|"
    );
    let (mut apart, mut slow) = (Vec::new(), Vec::new());
    for name in wanted {
        let (mut theirs, mut mine) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            theirs.extend(runs_of(Command::new(&driver).arg(name))?);
            mine.extend(runs_of(Command::new(&ours).args([name, REPETITIONS]))?);
        }
        let ratio = median(&theirs, |run| run.cpu_s)? / median(&mine, |run| run.cpu_s)?;
        let bound = bound(name);
        let verdict = if ratio >= bound { "holds" } else { "MISSES" };
        println!("{} {bound:.0} | {verdict} |", row(name, &theirs, &mine)?);
        if ratio < bound {
            slow.push(format!("{name}: {ratio:.0} of {bound:.0}"));
        }
        let share = median(&mine, |run| run.packets)? / median(&theirs, |run| run.packets)?;
        if (share - 1.0).abs() > PACKETS_APART {
            apart.push(format!("{name}: {share:.2} times ns-3's packets"));
        }
    }
    ensure!(apart.is_empty(), "not the same simulation: {}", apart.join(", "));
    ensure!(slow.is_empty(), "slower than asked: {}", slow.join(", "));
    Ok(())
}

/// How many times as fast as ns-3 scenario `name` must be.
fn bound(name: &str) -> f64 {
    let place = SCENARIOS.iter().position(|(known, _)| *known == name);
    place.map_or(f64::INFINITY, |place| RATIOS[place])
}

/// ns-3's headers and libraries, and the compiler for the driver; as root.
fn install() -> Result<()> {
    let packages = ["install", "--yes", "--no-install-recommends", "libns3-dev", "g++"];
    let status = Command::new("apt-get").args(packages).status().context("apt-get")?;
    ensure!(status.success(), "apt-get {} ended with {status}", packages.join(" "));
    Ok(())
}

fn parse(arguments: &[String]) -> Result<(usize, Vec<&'static str>)> {
    let (mut runs, mut wanted) = (5, Vec::new());
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--runs" {
            let count = arguments.next().and_then(|count| count.parse().ok());
            runs = count.filter(|count| *count > 0).context("--runs N, at least 1")?;
            continue;
        }
        match SCENARIOS.iter().find(|(name, _)| name == argument) {
            Some((name, _)) => wanted.push(*name),
            None => {
                let known = SCENARIOS.map(|(name, time)| format!("{name} ({time} a run of ns-3)"));
                bail!("no scenario {argument}; there are {}", known.join(", "));
            }
        }
    }
    if wanted.is_empty() {
        wanted = SCENARIOS.map(|(name, _)| name).to_vec();
    }
    Ok((runs, wanted))
}

fn build_driver(root: &Path) -> Result<PathBuf> {
    ensure!(
        Path::new("/usr/include/ns3/core-module.h").exists(),
        "ns-3 is not installed: apt-get install libns3-dev g++, or --install"
    );
    let out = root.join("target/ns3");
    std::fs::create_dir_all(&out)?;
    let driver = out.join("dumbbell");
    let libraries = MODULES.map(|module| format!("-lns3-{module}"));
    let status = Command::new("g++")
        .args(["-std=c++17", "-O2", "-o"])
        .arg(&driver)
        .arg(root.join("benches/ns3/dumbbell.cc"))
        .args(libraries)
        .status()
        .context("g++ (apt-get install g++)")?;
    ensure!(status.success(), "the driver does not build: {status}");
    Ok(driver)
}

fn build_ours(root: &Path) -> Result<PathBuf> {
    let package = ["--release", "--locked", "-p", "forebay-sim", "--example", "speed"];
    let status = Command::new(env!("CARGO")).current_dir(root).arg("build").args(package).status();
    ensure!(status?.success(), "the example `speed` of forebay-sim does not build");
    Ok(root.join("target/release/examples/speed"))
}

fn runs_of(command: &mut Command) -> Result<Vec<Run>> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}\n{errors}", output.status);
    let lines = String::from_utf8(output.stdout)?;
    lines.lines().map(|line| serde_json::from_str(line).context(line.to_string())).collect()
}

fn row(name: &str, theirs: &[Run], mine: &[Run]) -> Result<String> {
    let [their_s, my_s] = [median(theirs, |run| run.cpu_s)?, median(mine, |run| run.cpu_s)?];
    let [their_packets, my_packets] =
        [median(theirs, |run| run.packets)?, median(mine, |run| run.packets)?];
    let drops = [theirs, mine].map(|runs| runs.first().map_or(0, |run| run.drops));
    let memory = [median(theirs, |run| run.rss_mb)?, median(mine, |run| run.rss_mb)?];
    Ok(format!(
        "| {name} | {their_s:.2} | {my_s:.4} | {:.0} | {their_packets:.0} | {my_packets:.0} \
         | {:.1} M | {} / {} | {:.0} / {:.0} |",
        their_s / my_s,
        my_packets / my_s / 1e6,
        drops[0],
        drops[1],
        memory[0],
        memory[1],
    ))
}

fn median(runs: &[Run], value: impl Fn(&Run) -> f64) -> Result<f64> {
    let mut values: Vec<f64> = runs.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().context("a program printed no run")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(cpu_s: f64) -> Run {
        Run { cpu_s, packets: 1e6, drops: 7, rss_mb: 3.0 }
    }

    #[test]
    fn a_row_compares_medians() {
        let theirs = [100.0, 90.0, 400.0].map(run);
        let mine = [0.5, 0.1, 0.4].map(run);
        let row = row("b2", &theirs, &mine).unwrap();
        let expected = "| b2 | 100.00 | 0.4000 | 250 | 1000000 | 1000000 | 2.5 M | 7 / 7 | 3 / 3 |";
        assert_eq!(row, expected);
    }

    #[test]
    fn every_scenario_has_the_ratio_asked_for() {
        let asked = SCENARIOS.map(|(name, _)| (name, bound(name)));
        let expected = [("b1", 150.0), ("b2", 200.0), ("b3", 300.0), ("overshoot", 200.0)];
        assert_eq!(asked, expected);
    }

    #[test]
    fn without_a_name_all_scenarios_run_five_times() {
        assert_eq!(parse(&[]).unwrap(), (5, vec!["b1", "b2", "b3", "overshoot"]));
        let arguments = ["--runs", "1", "b2"].map(String::from);
        assert_eq!(parse(&arguments).unwrap(), (1, vec!["b2"]));
        for refused in [&["--runs", "0"][..], &["b9"]] {
            let arguments: Vec<String> = refused.iter().map(|it| it.to_string()).collect();
            assert!(parse(&arguments).is_err());
        }
    }
}
