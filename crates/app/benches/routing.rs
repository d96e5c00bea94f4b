//! `make bench-routing`: throughput and CPU time of a routed sendbox on the kernel datapath, compared with
//! plain routing, in turns. Root; the machine has to be quiet.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use forebay_core::units::parse_duration;
use forebay_testbed::routing::{Arm, Kind, Load, Turn, measure};

/// Measures packets and bits a second, and CPU time, of a routed sendbox without a rate limit and of plain routing. Exit
/// code 1: an aim was missed.
#[derive(Parser)]
struct Arguments {
    /// How often each has its turn.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Of each block of traffic.
    #[arg(long, default_value = "2s", value_parser = parse_duration)]
    duration: Duration,
    /// Write all turns and figures here, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// What cargo says.
    #[arg(long = "bench", hide = true)]
    _is_bench: bool,
}

/// A measured figure with its bound, and whether the figure keeps it.
#[derive(serde::Serialize)]
struct Figure {
    name: String,
    /// Median over the rounds, least and largest.
    median: f64,
    range: [f64; 2],
    aim: Option<&'static str>,
    is_met: Option<bool>,
}

/// Least share of what plain routing carries.
const SHARE: f64 = 0.9;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and tells; whether all aims are met.
fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let Arguments { rounds, duration, .. } = *arguments;
    let dir = tempfile::tempdir()?;
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_forebay"));
    let turns = measure(&binary, dir.path(), rounds, duration, &mut |turn| {
        eprintln!("round {} of {rounds}: {:?}", turn.round + 1, turn.arm);
    })?;
    let figures = figures(&turns);
    println!("{:<52} {:>12} {:>25}  aim", "", "median", "least .. largest");
    for Figure { name, median, range: [least, largest], aim, is_met } in &figures {
        let aim = aim.unwrap_or_default();
        let verdict = is_met.map_or("", |is_met| if is_met { ": met" } else { ": MISSED" });
        println!("{name:<52} {median:>12.3} {least:>12.3} {largest:>12.3}  {aim}{verdict}");
    }
    if let Some(path) = &arguments.json {
        let document = serde_json::json!({ "figures": figures, "turns": turns });
        std::fs::write(path, format!("{document:#}\n"))?;
    }
    Ok(figures.iter().all(|figure| figure.is_met != Some(false)))
}

fn figures(turns: &[Turn]) -> Vec<Figure> {
    let of = |arm| turns.iter().filter(move |turn| turn.arm == arm);
    let pairs: Vec<[&Turn; 2]> =
        of(Arm::Plain).zip(of(Arm::Sendbox)).map(|(plain, sendbox)| [plain, sendbox]).collect();
    let figure = |name: String, aim, value: &dyn Fn(&[&Turn; 2]) -> f64| {
        let mut values: Vec<f64> = pairs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let (median, range) = (values[values.len() / 2], [values[0], values[values.len() - 1]]);
        Figure { name, median, range, aim, is_met: aim.map(|_| median >= SHARE) }
    };
    let mut figures = Vec::new();
    for (place, Load { kind, flows, .. }) in pairs[0][0].loads.iter().enumerate() {
        let (what, unit, scale) = match kind {
            Kind::Tcp => ("TCP", "Gbit/s", 1e9),
            Kind::Datagrams => ("datagrams", "Mpackets/s", 1e6),
        };
        for (at, who) in [(0, "plain"), (1, "sendbox")] {
            figures.push(figure(format!("{who}, {flows} x {what}: {unit}"), None, &|pair| {
                pair[at].loads[place].rate / scale
            }));
            figures.push(figure(format!("{who}, {flows} x {what}: cores"), None, &|pair| {
                pair[at].loads[place].cores
            }));
        }
        let share = format!("sendbox / plain, {flows} x {what}: {unit}");
        figures.push(figure(share, Some(">= 0.90"), &|pair| {
            pair[1].loads[place].rate / pair[0].loads[place].rate
        }));
    }
    // A turn in which packets went past would measure plain routing.
    let counted =
        figure("sendbox: packets that it counted".into(), None, &|pair| pair[1].packets as f64);
    let is_met = Some(counted.range[0] > 0.0);
    figures.push(Figure { aim: Some("> 0"), is_met, ..counted });
    figures
}
