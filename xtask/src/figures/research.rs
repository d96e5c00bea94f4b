//! Pictures of the benchmark, and of the simulator compared with ns-3.

use anyhow::Result;

use super::rows::{Rows, median};
use super::svg::{Picture, Scale, around};

/// Algorithms, each with its colour.
pub const ALGORITHMS: [(&str, &str); 6] =
    [("newreno", "f"), ("cubic", "a"), ("bbr", "b"), ("bbr3", "d"), ("copa", "c"), ("vegas", "e")];

/// Throughput over queueing delay of algorithms: each path, and the median of the paths.
pub fn bench(rows: &Rows) -> Result<Picture> {
    let numbers = rows.numbers(["delay_ms", "utilisation"])?;
    let mut algorithms = Vec::new();
    for (name, class) in ALGORITHMS {
        let mut points = Vec::new();
        for (row, numbers) in rows.iter().zip(&numbers) {
            if row.text("algorithm")? == name {
                points.push([numbers[0], 100.0 * numbers[1]]);
            }
        }
        let middle = [0, 1].map(|axis| median(points.iter().map(|point| point[axis])));
        algorithms.push((name, class, points, middle));
    }
    let paths = algorithms[0].2.len();
    let each = algorithms.iter().map(|(name, _, points, [delay, filled])| {
        let text = format!("{name} {filled:.0} % and {}", milliseconds(*delay));
        match points.iter().filter(|point| point[1] < 50.0).count() {
            0 => text,
            low => format!("{text} (below 50 % on {low})"),
        }
    });
    let result = format!(
        "Median of {paths} paths, throughput in % of the link and queueing delay: {}.",
        each.collect::<Vec<_>>().join(", ")
    );
    let conditions = format!(
        "One flow on each of {paths} paths of the benchmark, simulated. Small: a path. Large: the median of the paths."
    );
    let mut picture = Picture::new("Throughput over queueing delay", &conditions, result);
    let [low, high] = around(numbers.iter().map(|it| it[0]));
    let x = Scale::log([high, low], [70.0, 696.0]);
    let y = Scale::linear([0.0, 100.0], [352.0, 84.0]);
    let titles = ["mean queueing delay (ms), less is to the right", "throughput (% of the link)"];
    picture.axes(&x, &y, titles);
    for (_, class, points, _) in &algorithms {
        for [delay, filled] in points {
            picture.circle(&format!("faint {class}"), [x.at(*delay), y.at(*filled)], 3.5);
        }
    }
    let mut left = 70.0;
    for (name, class, _, [delay, filled]) in &algorithms {
        let at = [x.at(*delay), y.at(*filled)];
        picture.circle(&format!("mark {class}"), at, 8.0);
        picture.circle(&format!("mark {class}"), [left + 6.0, 66.0], 6.0);
        picture.text(&format!("name {class}"), [left + 17.0, 70.0], name);
        left += 34.0 + 8.0 * name.len() as f64;
    }
    picture.text("soft", [80.0, 342.0], "better: up and to the right");
    Ok(picture)
}

fn milliseconds(delay: f64) -> String {
    if delay < 10.0 { format!("{delay:.1} ms") } else { format!("{delay:.0} ms") }
}

/// Metrics of runs of ns-3, each with its name and unit.
pub const NS3_METRICS: [(&str, &str); 4] = [
    ("mean_throughput_l4", "throughput (Mbit/s)"),
    ("mean_srtt_l4", "round trip (ms)"),
    ("mean_qdisc_length_l2", "queue (packets)"),
    ("total_qdisc_drops_l2", "drops (packets)"),
];

/// The simulator's figures over those of ns-3.
pub fn ns3(rows: &Rows) -> Result<Picture> {
    let numbers = rows.numbers(["ns3_least", "ns3_greatest", "simulator", "holds"])?;
    let mut panels = Vec::new();
    for (metric, name) in NS3_METRICS {
        let mut pairs = Vec::new();
        for (row, [low, high, ours, holds]) in rows.iter().zip(&numbers) {
            if row.text("metric")? == metric {
                pairs.push(([(low + high) / 2.0, *ours], *holds > 0.0));
            }
        }
        panels.push((name, pairs));
    }
    let counts = panels.iter().map(|(name, pairs)| {
        let name = name.split(" (").next().unwrap_or(name);
        format!("{name} {} of {}", pairs.iter().filter(|it| it.1).count(), pairs.len())
    });
    let result = format!(
        "Pairs of simulator and ns-3 within their bound: {}.",
        counts.collect::<Vec<_>>().join(", ")
    );
    let conditions = "Runs drawn at random, to which the simulator was not fitted. A point is one metric of one run.";
    let mut picture = Picture::new("The simulator compared with ns-3", conditions, result);
    for (place, (name, pairs)) in panels.iter().enumerate() {
        let left = 62.0 + 168.0 * place as f64;
        let ends = around(pairs.iter().flat_map(|(pair, _)| *pair));
        let x = Scale::log(ends, [left, left + 128.0]);
        let y = Scale::log(ends, [342.0, 112.0]);
        picture.axes(&x, &y, ["ns-3", if place == 0 { "simulator" } else { "" }]);
        picture.path("even", ends.map(|end| [x.at(end), y.at(end)]));
        picture.text("strong", [left, 102.0], name);
        for is_within in [true, false] {
            for ([theirs, ours], _) in pairs.iter().filter(|it| it.1 == is_within) {
                let class = if is_within { "faint b" } else { "mark a" };
                picture.circle(class, [x.at(*theirs), y.at(*ours)], 3.5);
            }
        }
    }
    picture.circle("faint b", [66.0, 70.0], 3.5);
    picture.text("", [76.0, 74.0], "within the bound");
    picture.circle("mark a", [206.0, 70.0], 3.5);
    picture.text("", [216.0, 74.0], "beyond it");
    Ok(picture)
}
