//! The result of a comparison as text and as JSON.

use serde_json::{Value, json};

use super::pair::{Pair, Totals};
use super::simulated::Ours;
use super::truth::{Class, Truth};

/// The metrics of one run, each with ns-3's least and greatest value.
pub fn of_run(truth: &Truth, pairs: &[Pair]) -> String {
    let mut text = format!("{} ({:?})\n", truth.name, truth.class);
    for pair in pairs {
        let flow = pair.flow.map_or(String::new(), |flow| format!("[{flow}]"));
        text += &format!(
            "  {:<24}{:>10.3}   {:>9.3} .. {:<9.3} {:>+7.1} %  {}\n",
            format!("{}{flow}", pair.metric),
            pair.ours,
            pair.low,
            pair.high,
            pair.deviation * 100.0,
            match pair {
                Pair { holds: true, .. } => "ok",
                Pair { nearly: true, .. } => "MISS (within the wider bounds of tight runs)",
                _ => "MISS",
            },
        );
    }
    text
}

/// Throughput and smoothed round-trip time second by second, of the median start.
pub fn series(truth: &Truth, ours: &[Ours]) -> String {
    let mut text = String::new();
    for (flow, bins) in ours.get(ours.len() / 2).iter().flat_map(|it| &it.bins).enumerate() {
        text += &format!(
            "  flow {flow}: duration (s), throughput (Mbit/s) and sRTT (ms) in forebay, ns-3.37 \
             and ns-3.44\n"
        );
        let per_second = (1_000_000_000 / forebay_sim::BIN_NS) as usize;
        for (second, bins) in bins.chunks(per_second).enumerate() {
            let bytes: u64 = bins.iter().map(|bin| u64::from(bin.bytes)).sum();
            let srtt: u64 = bins.iter().map(|bin| u64::from(bin.srtt_us)).sum();
            let srtt = srtt as f64 / bins.len() as f64 / 1000.0;
            text += &format!("  {second:>4} {:>9.3} {srtt:>8.2}", bytes as f64 * 8e-6);
            for flows in &truth.flows {
                let of = |name: &str| number(&flows[flow]["series"][name][second]);
                text += &format!("   {:>9} {:>8}", of("throughput_mbps"), of("srtt_ms"));
            }
            text.push('\n');
        }
    }
    text
}

fn number(value: &Value) -> String {
    value.as_f64().map_or("-".into(), |number| format!("{number:.3}"))
}

/// The classes of pairs, in the order of the output.
const CLASSES: [Class; 4] = [Class::Tight, Class::Loose, Class::Loss, Class::Unstable];

/// Name of a class in files.
fn name(class: Class) -> String {
    format!("{class:?}").to_lowercase()
}

/// How many pairs of each class hold, and how many there are; and the number of runs.
pub fn json(totals: &Totals, runs: usize) -> Value {
    let pairs = CLASSES.map(|class| (name(class), json!(totals.of(class))));
    pairs.into_iter().chain([("runs".to_string(), json!(runs))]).collect()
}

/// The pairs that held at the file's first comparison; empty if the file does not say.
fn of_first_look(first: &Value) -> String {
    let Some(commit) = first["commit"].as_str() else { return String::new() };
    let pairs = |class: Class| {
        let [holding, all] = [0, 1].map(|place| first[name(class)][place].as_u64().unwrap_or(0));
        format!("{} {holding} of {all}", name(class))
    };
    format!("at the first comparison ({commit}): {}\n", CLASSES.map(pairs).join(", "))
}

/// The sums over all runs, and the numbers of the first look.
pub fn of_totals(totals: &Totals, first_look: &Value) -> String {
    let mut text = String::from("\n");
    for class in CLASSES {
        let (holding, all) = totals.of(class);
        let share = if all == 0 { 100.0 } else { holding as f64 / all as f64 * 100.0 };
        let class_name = format!("{class:?}");
        text += &format!("{class_name:<9} {holding:>4} of {all:>4} pairs hold  {share:>5.1} %");
        let nearly = totals.nearly(class);
        if nearly > holding {
            text += &format!(", within the wider bounds of tight runs {nearly}");
        }
        text.push('\n');
    }
    text += if totals.holds() { "within the bounds\n" } else { "BEYOND the bounds\n" };
    text + &of_first_look(first_look)
}
