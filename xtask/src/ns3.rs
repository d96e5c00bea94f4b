//! The simulator compared with ns-3: the same scenarios, interleaved, in CPU seconds.

mod drawn;
mod params;
mod runs;
mod space;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use forebay_lab::judge::{Bound, Judged, SEED};
use forebay_lab::metrics::statistics::Sorted;
use serde::Deserialize;

pub use drawn::make;

use crate::Misuse;

/// A scenario for both programs, and the simulator's bounds there.
#[derive(Debug, PartialEq)]
struct Scenario {
    name: &'static str,
    /// Duration of one run of ns-3.
    ns3_takes: &'static str,
    /// How many times as fast as ns-3.37 it must be.
    ratio: f64,
    /// Packets that it must simulate in a second of CPU time.
    packets_per_s: Option<f64>,
    /// Largest memory that it may take.
    memory_mb: f64,
}

/// Scenarios with their bounds: ratios to ns-3.37, packets a second and memory.
const SCENARIOS: [Scenario; 4] = [
    scenario("b1", "2 s", 150.0),
    Scenario { packets_per_s: Some(7e6), ..scenario("b2", "3 min", 200.0) },
    Scenario { memory_mb: 100.0, ..scenario("b3", "3 min", 300.0) },
    scenario("overshoot", "25 s", 200.0),
];

const fn scenario(name: &'static str, ns3_takes: &'static str, ratio: f64) -> Scenario {
    Scenario { name, ns3_takes, ratio, packets_per_s: None, memory_mb: 50.0 }
}

/// Runs of ours in one process for each of ns-3's.
const REPETITIONS: &str = "5";
/// Modules of ns-3 that the driver is linked with.
const MODULES: [&str; 6] =
    ["core", "network", "internet", "point-to-point", "traffic-control", "applications"];
/// Largest difference between the numbers of simulated packets, as a share: runs of either are chaotic.
const PACKETS_APART: f64 = 0.1;

/// Output of both programs for a run.
#[derive(Deserialize)]
struct Run {
    cpu_s: f64,
    packets: f64,
    drops: u64,
    rss_mb: f64,
}

/// The runs of both in one turn.
struct Turn {
    theirs: Vec<Run>,
    mine: Vec<Run>,
}

/// Runs the scenarios named in `arguments` (all without one) in `--runs N` turns (5) and prints the table.
/// Fails without `libns3-dev` (`--install` installs it), or if both programs simulate different numbers of
/// packets. Also fails if a ratio, the packets a second or the memory miss their bound.
pub fn bench(arguments: &[String]) -> Result<()> {
    let rest: Vec<String> = arguments.iter().filter(|it| *it != "--install").cloned().collect();
    let (runs, wanted) = parse(&rest).map_err(Misuse::of)?;
    if rest.len() < arguments.len() {
        install()?;
    }
    let root = crate::repository();
    let driver = build_driver(&root)?;
    let ours = build_ours(&root)?;
    println!(
        "| scenario | ns-3 CPU s | forebay CPU s | ratio | ns-3 packets | forebay packets \
         | forebay packets/s | drops | memory MB | asked |\n\
         |---|---|---|---|---|---|---|---|---|---|"
    );
    let (mut apart, mut missed) = (Vec::new(), Vec::new());
    for scenario in wanted {
        let name = scenario.name;
        let turn = |_| {
            let theirs = runs_of(Command::new(&driver).arg(name))?;
            anyhow::Ok(Turn {
                theirs,
                mine: runs_of(Command::new(&ours).args([name, REPETITIONS]))?,
            })
        };
        let turns = (0..runs).map(turn).collect::<Result<Vec<_>>>()?;
        let judged = scenario.judge(&turns)?;
        let words =
            judged.iter().map(|it| format!("{} {} {}", it.claim, it.bound, it.verdict.words()));
        println!("{} {} |", row(name, &turns)?, words.collect::<Vec<_>>().join(", "));
        missed.extend(judged.iter().filter_map(Judged::complaint));
        let share = packets(&turns, mine)? / packets(&turns, theirs)?;
        if (share - 1.0).abs() > PACKETS_APART {
            apart.push(format!("{name}: {share:.2} times ns-3's packets"));
        }
    }
    ensure!(apart.is_empty(), "the simulations differ: {}", apart.join(", "));
    ensure!(missed.is_empty(), "bounds missed:\n{}", missed.join("\n"));
    Ok(())
}

impl Scenario {
    /// Judges the turns by the medians of both programs in each turn.
    fn judge(&self, turns: &[Turn]) -> Result<Vec<Judged>> {
        let judged = |claim: &str, bound, of: &dyn Fn(&Turn) -> Result<f64>| {
            let values = turns.iter().map(of).collect::<Result<Vec<_>>>()?;
            let claim = Judged { of: self.name.into(), claim: claim.into(), ..Judged::default() };
            anyhow::Ok(claim.by_values(bound, &values, 1, SEED))
        };
        let my_s = |turn: &Turn| median(&turn.mine, |run| run.cpu_s);
        let ratio = |turn: &Turn| Ok(median(&turn.theirs, |run| run.cpu_s)? / my_s(turn)?);
        let rate = |turn: &Turn| Ok(median(&turn.mine, |run| run.packets)? / my_s(turn)? / 1e6);
        let memory_mb = |turn: &Turn| median(&turn.mine, |run| run.rss_mb);
        let mut all = vec![judged("ratio", Bound::at_least(self.ratio), &ratio)?];
        if let Some(least) = self.packets_per_s {
            all.push(judged("M packets/s", Bound::at_least(least / 1e6), &rate)?);
        }
        all.push(judged("MB", Bound::at_most(self.memory_mb), &memory_mb)?);
        Ok(all)
    }
}

/// Installs ns-3's headers and libraries, the compiler for the driver, and pkg-config, which finds them; as
/// root.
fn install() -> Result<()> {
    let packages = ["libns3-dev", "g++", "pkg-config"];
    let arguments = [&["install", "--yes", "--no-install-recommends"][..], &packages].concat();
    let status = Command::new("apt-get").args(&arguments).status().context("apt-get")?;
    ensure!(status.success(), "apt-get {} ended with {status}", arguments.join(" "));
    Ok(())
}

fn parse(arguments: &[String]) -> Result<(usize, Vec<&'static Scenario>)> {
    let (mut runs, mut wanted) = (5, Vec::new());
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--runs" {
            let count = arguments.next().and_then(|count| count.parse().ok());
            runs = count.filter(|count| *count > 0).context("--runs N, at least 1")?;
            continue;
        }
        match SCENARIOS.iter().find(|scenario| scenario.name == argument) {
            Some(scenario) => wanted.push(scenario),
            None => {
                let known = SCENARIOS
                    .map(|known| format!("{} ({} a run of ns-3)", known.name, known.ns3_takes));
                bail!("no scenario {argument}: allowed is one of {}", known.join(", "));
            }
        }
    }
    if wanted.is_empty() {
        wanted = SCENARIOS.iter().collect();
    }
    Ok((runs, wanted))
}

/// Builds the program of `benches/ns3`.
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

fn theirs(turn: &Turn) -> &[Run] {
    &turn.theirs
}

fn mine(turn: &Turn) -> &[Run] {
    &turn.mine
}

fn row(name: &str, turns: &[Turn]) -> Result<String> {
    let of = |side: fn(&Turn) -> &[Run], value: fn(&Run) -> f64| {
        median(turns.iter().flat_map(side), value)
    };
    let [their_s, my_s] = [of(theirs, |run| run.cpu_s)?, of(mine, |run| run.cpu_s)?];
    let [their_packets, my_packets] = [packets(turns, theirs)?, packets(turns, mine)?];
    let drops =
        [theirs, mine].map(|side| turns.iter().flat_map(side).next().map_or(0, |run| run.drops));
    let memory = [of(theirs, |run| run.rss_mb)?, of(mine, |run| run.rss_mb)?];
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

fn packets(turns: &[Turn], side: fn(&Turn) -> &[Run]) -> Result<f64> {
    median(turns.iter().flat_map(side), |run| run.packets)
}

fn median<'a>(runs: impl IntoIterator<Item = &'a Run>, value: fn(&Run) -> f64) -> Result<f64> {
    let values = Sorted::new(runs.into_iter().map(value));
    values.quantile(0.5).context("a program printed no result")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(cpu_s: f64) -> Run {
        Run { cpu_s, packets: 1e6, drops: 7, rss_mb: 3.0 }
    }

    #[test]
    fn a_row_compares_medians() {
        let turn = |(theirs, mine)| Turn { theirs: vec![run(theirs)], mine: vec![run(mine)] };
        let row = row("b2", &[(100.0, 0.5), (90.0, 0.1), (400.0, 0.4)].map(turn)).unwrap();
        let expected = "| b2 | 100.00 | 0.4000 | 250 | 1000000 | 1000000 | 2.5 M | 7 / 7 | 3 / 3 |";
        assert_eq!(row, expected);
    }

    #[test]
    fn every_scenario_has_the_bounds_asked_for() {
        let asked = SCENARIOS.map(|it| (it.name, it.ratio, it.packets_per_s, it.memory_mb));
        let expected = [
            ("b1", 150.0, None, 50.0),
            ("b2", 200.0, Some(7e6), 50.0),
            ("b3", 300.0, None, 100.0),
            ("overshoot", 200.0, None, 50.0),
        ];
        assert_eq!(asked, expected);
    }

    #[test]
    fn each_bound_is_judged_by_the_turns() {
        use forebay_lab::judge::Verdict::{Failed, Met, Open};

        let [_, b2, b3, _] = &SCENARIOS;
        let verdicts = |scenario: &Scenario, theirs_s: [f64; 3], mine: [f64; 3]| {
            let [cpu_s, packets, rss_mb] = mine;
            let mine = || [cpu_s, cpu_s, 9.0].map(|cpu_s| Run { cpu_s, packets, drops: 0, rss_mb });
            let turns = theirs_s.map(|it| Turn { theirs: vec![run(it)], mine: mine().into() });
            let judged = scenario.judge(&turns).unwrap();
            judged.iter().map(|judged| judged.verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(b2, [200.0; 3], [1.0, 7e6, 50.0]), [Met, Met, Met]);
        assert_eq!(verdicts(b2, [199.0; 3], [1.0, 6.9e6, 50.1]), [Failed, Failed, Failed]);
        assert_eq!(verdicts(b2, [150.0, 199.0, 300.0], [1.0, 7e6, 50.0]), [Open, Met, Met]);
        assert_eq!(verdicts(b3, [300.0, 310.0, 10.0], [1.0, 1.0, 100.1]), [Met, Failed]);
        assert!(b2.judge(&[Turn { theirs: vec![run(1.0)], mine: Vec::new() }]).is_err());
    }

    #[test]
    fn without_a_name_all_scenarios_run_five_times() {
        assert_eq!(parse(&[]).unwrap(), (5, SCENARIOS.iter().collect()));
        let arguments = ["--runs", "1", "b2"].map(String::from);
        assert_eq!(parse(&arguments).unwrap(), (1, vec![&SCENARIOS[1]]));
        for refused in [&["--runs", "0"][..], &["b9"]] {
            let arguments: Vec<String> = refused.iter().map(|it| it.to_string()).collect();
            assert!(parse(&arguments).is_err());
        }
    }
}
