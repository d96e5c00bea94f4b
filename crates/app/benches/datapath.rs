//! `make bench-datapath`: what a sendbox's datapath in user space costs, beside a bare AF_XDP forwarder and the
//! kernel's bridge, in turns. Root; the machine has to be quiet.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use forebay_core::units::parse_duration;
use forebay_testbed::forwarding::{Arm, Options, Turn, measure};

/// Measures packets a second, CPU time and latency of a sendbox beside a bare AF_XDP forwarder and a bridge. Exit code
/// 1: an aim was missed.
#[derive(Parser)]
struct Arguments {
    /// How often each has its turn.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Of each block of traffic.
    #[arg(long, default_value = "2s", value_parser = parse_duration)]
    duration: Duration,
    /// Echoes in a block.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(20..=100_000))]
    echoes: u32,
    /// The sendbox has a thread for its receive queue (`xdp.threads`), and what carries all processors but the source's.
    #[arg(long)]
    threads: bool,
    /// Write all turns and figures here, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// What cargo says.
    #[arg(long = "bench", hide = true)]
    _is_bench: bool,
}

/// A figure, what it should be, and whether it is.
#[derive(serde::Serialize)]
struct Figure {
    name: String,
    /// Median over the rounds, least and largest.
    median: f64,
    range: [f64; 2],
    aim: Option<&'static str>,
    is_met: Option<bool>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(is_met) if is_met => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and tells; whether all aims are met.
fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let Arguments { rounds, duration, echoes, threads, .. } = *arguments;
    let dir = tempfile::tempdir()?;
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_forebay"));
    let options = Options { rounds, duration, echoes, threads };
    let turns = measure(&binary, dir.path(), options, &mut |turn| {
        eprintln!("round {} of {rounds}: {:?}", turn.round + 1, turn.arm);
    })?;
    let figures = figures(&turns);
    println!("{:<58} {:>12} {:>25}  aim", "", "median", "least .. largest");
    for Figure { name, median, range: [least, largest], aim, is_met } in &figures {
        let aim = aim.unwrap_or_default();
        let verdict = is_met.map_or("", |is_met| if is_met { ": met" } else { ": MISSED" });
        println!("{name:<58} {median:>12.3} {least:>12.3} {largest:>12.3}  {aim}{verdict}");
    }
    if let Some(path) = &arguments.json {
        let document = serde_json::json!({ "figures": figures, "turns": turns });
        std::fs::write(path, format!("{document:#}\n"))?;
    }
    Ok(figures.iter().all(|figure| figure.is_met != Some(false)))
}

fn figures(turns: &[Turn]) -> Vec<Figure> {
    let of = |arm| turns.iter().filter(move |turn| turn.arm == arm);
    let pairs: Vec<[&Turn; 3]> = of(Arm::Bridge)
        .zip(of(Arm::Forwarder))
        .zip(of(Arm::Sendbox))
        .map(|((bridge, forwarder), sendbox)| [bridge, forwarder, sendbox])
        .collect();
    let figure = |name: &str, value: &dyn Fn(&[&Turn; 3]) -> f64| {
        let mut values: Vec<f64> = pairs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let range = [values[0], values[values.len() - 1]];
        Figure { name: name.into(), median: middle(&values), range, aim: None, is_met: None }
    };
    let judged = |mut figure: Figure, aim: &'static str, is_met: fn(f64) -> bool| {
        figure.aim = Some(aim);
        figure.is_met = Some(is_met(figure.median));
        figure
    };
    let mut figures = Vec::new();
    for (place, load) in pairs[0][1].loads.iter().enumerate() {
        let size = load.frame_bytes;
        for (at, who) in [(1, "forwarder"), (2, "sendbox")] {
            figures.push(figure(&format!("{who}, {size} B: packets a second"), &|pair| {
                pair[at].loads[place].packets_per_s
            }));
            figures.push(figure(&format!("{who}, {size} B: CPU time of a packet (ns)"), &|pair| {
                pair[at].loads[place].cpu_ns
            }));
            figures.push(figure(&format!("{who}, {size} B: packets lost"), &|pair| {
                pair[at].loads[place].lost as f64
            }));
        }
        let share = figure(&format!("sendbox / forwarder, {size} B: packets a second"), &|pair| {
            pair[2].loads[place].packets_per_s / pair[1].loads[place].packets_per_s
        });
        figures.push(judged(share, ">= 0.90", |share| share >= 0.9));
    }
    // Such a turn measures the bridge, too.
    let passed = figure("sendbox: packets that the kernel carried past it", &|pair| {
        pair[2].passed.map_or(f64::NAN, |packets| packets as f64)
    });
    figures.push(judged(passed, "0", |packets| packets == 0.0));
    let cores = |turn: &Turn| turn.cores_at_96_mbit.unwrap_or(f64::NAN);
    figures.push(figure("forwarder, 96 Mbit/s: cores", &|pair| cores(pair[1])));
    let of_sendbox = figure("sendbox, 96 Mbit/s: cores", &|pair| cores(pair[2]));
    figures.push(judged(of_sendbox, "<= 0.15", |cores| cores <= 0.15));
    for (at, who) in [(0, "bridge"), (1, "forwarder"), (2, "sendbox")] {
        figures.push(figure(&format!("{who}: echo, p95 (us)"), &|pair| p95_us(pair[at])));
    }
    let added =
        figure("sendbox - bridge: echo, p95 (us)", &|pair| p95_us(pair[2]) - p95_us(pair[0]));
    figures.push(judged(added, "<= 200", |us| us <= 200.0));
    figures
}

/// Of sorted values, at least one.
fn middle(values: &[f64]) -> f64 {
    let half = values.len() / 2;
    if values.len().is_multiple_of(2) {
        (values[half - 1] + values[half]) / 2.0
    } else {
        values[half]
    }
}

/// NaN where no echo came.
fn p95_us(turn: &Turn) -> f64 {
    let rank = (turn.echoes_ns.len() * 95).div_ceil(100).saturating_sub(1);
    turn.echoes_ns.get(rank).map_or(f64::NAN, |ns| *ns as f64 / 1000.0)
}
