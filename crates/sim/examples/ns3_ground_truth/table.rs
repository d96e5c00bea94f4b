//! What the terminal sees.

use serde_json::{Value, json};

use crate::run::Ours;
use crate::truth::{Class, Truth};
use crate::verdict::{Totals, Verdict};

/// The metrics of one run.
pub fn print(truth: &Truth, verdicts: &[Verdict]) {
    println!("{} ({:?})", truth.name, truth.class);
    for verdict in verdicts {
        let flow = verdict.flow.map_or(String::new(), |flow| format!("[{flow}]"));
        println!(
            "  {:<24}{:>10.3}   {:>9.3} .. {:<9.3} {:>+7.1} %  {}",
            format!("{}{flow}", verdict.metric),
            verdict.ours,
            verdict.low,
            verdict.high,
            verdict.deviation * 100.0,
            match verdict {
                Verdict { holds: true, .. } => "ok",
                Verdict { nearly: true, .. } => "MISS (within the slack of tight runs)",
                _ => "MISS",
            },
        );
    }
}

/// Throughput and smoothed round-trip time second by second.
pub fn print_series(truth: &Truth, ours: &[Ours]) {
    let Some(median) = ours.get(ours.len() / 2) else { return };
    for (flow, bins) in median.bins.iter().enumerate() {
        println!("  flow {flow}: s, throughput Mbit/s and sRTT ms of ours, ns-3.37, ns-3.44");
        let per_second = (1_000_000_000 / forebay_sim::BIN_NS) as usize;
        for (second, bins) in bins.chunks(per_second).enumerate() {
            let bytes: u64 = bins.iter().map(|bin| u64::from(bin.bytes)).sum();
            let srtt: u64 = bins.iter().map(|bin| u64::from(bin.srtt_us)).sum();
            let srtt = srtt as f64 / bins.len() as f64 / 1000.0;
            print!("  {second:>4} {:>9.3} {srtt:>8.2}", bytes as f64 * 8e-6);
            for flows in &truth.flows {
                let of = |name: &str| number(&flows[flow]["series"][name][second]);
                print!("   {:>9} {:>8}", of("throughput_mbps"), of("srtt_ms"));
            }
            println!();
        }
    }
}

fn number(value: &Value) -> String {
    value.as_f64().map_or("-".into(), |number| format!("{number:.3}"))
}

const CLASSES: [Class; 4] = [Class::Tight, Class::Loose, Class::Loss, Class::Unstable];

/// What a class is called in files.
fn name(class: Class) -> String {
    format!("{class:?}").to_lowercase()
}

/// How many of the pairs of each class hold, and of how many; and of how many runs all of them are.
pub fn json(totals: &Totals, runs: usize) -> Value {
    let pairs = CLASSES.map(|class| (name(class), json!(totals.of(class))));
    pairs.into_iter().chain([("runs".to_string(), json!(runs))]).collect()
}

/// What held when the file was first compared, where that stands in it.
pub fn print_first_look(first: &Value) {
    let Some(commit) = first["commit"].as_str() else { return };
    let pairs = |class: Class| {
        let [holding, all] = [0, 1].map(|place| first[name(class)][place].as_u64().unwrap_or(0));
        format!("{} {holding} of {all}", name(class))
    };
    println!("at the first look ({commit}): {}", CLASSES.map(pairs).join(", "));
}

/// The sums over all runs.
pub fn print_totals(totals: &Totals) {
    println!();
    for class in CLASSES {
        let (holding, all) = totals.of(class);
        let share = if all == 0 { 100.0 } else { holding as f64 / all as f64 * 100.0 };
        print!("{:<9} {holding:>4} of {all:>4} pairs hold  {share:>5.1} %", format!("{class:?}"));
        match totals.nearly(class) {
            nearly if nearly > holding => println!(", with the slack of tight runs {nearly}"),
            _ => println!(),
        }
    }
    println!("{}", if totals.holds() { "within the bounds" } else { "BEYOND the bounds" });
}
