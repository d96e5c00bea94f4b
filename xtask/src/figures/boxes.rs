//! Pictures of runs without and with boxes.

use anyhow::Result;

use super::rows::Rows;
use super::svg::{Picture, Scale, around, from_zero};

/// Left and right end of axes that are as wide as a picture (px).
const WIDE: [f64; 2] = [70.0, 696.0];
/// Seconds of the queue's plan that its metrics leave out.
const WARM_UP_S: f64 = 5.0;

/// Mean of numbers.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    values.iter().sum::<f64>() / values.len() as f64
}

/// Queues over time, without boxes above those with boxes.
pub fn queue(rows: &Rows) -> Result<Picture> {
    let names = ["at_s", "without_bottleneck", "with_bottleneck", "with_sendbox"];
    let rows = rows.numbers(names)?;
    let [without, with, sendbox] = [1, 2, 3].map(|column| {
        mean(rows.iter().filter(|row| row[0] >= WARM_UP_S).map(|row| row[column])).round()
    });
    let result = format!(
        "Without boxes {without} packets wait at the bottleneck in the mean. With boxes {with} packets wait there, and \
         {sendbox} in the sendbox of the site."
    );
    let conditions =
        "One bulk flow over 96 Mbit/s and 50 ms. Simulated, boxes with their defaults.";
    let mut picture = Picture::new("Where the queue is", conditions, result);
    let greatest =
        rows.iter().flat_map(|row| &row[1..]).fold(0.0, |one: f64, other| one.max(*other));
    let end = rows.iter().map(|row| row[0]).fold(0.0, f64::max);
    let x = Scale::linear([0.0, end.ceil()], WIDE);
    let panels = [
        (72.0, "Without boxes", &[("a", 1)][..], ""),
        (228.0, "With boxes", &[("a", 2), ("b", 3)][..], "time (s)"),
    ];
    for (top, heading, lines, x_title) in panels {
        let y = Scale::linear(from_zero(greatest), [top + 124.0, top + 10.0]);
        picture.axes(&x, &y, [x_title, "queue (packets)"]);
        picture.text("strong", [WIDE[0], top], heading);
        for (class, column) in lines {
            let points = rows.iter().map(|row| [x.at(row[0]), y.at(row[*column])]);
            picture.path(&format!("line {class}"), points);
        }
    }
    picture.legend([420.0, 72.0], &[("a", "at the bottleneck")]);
    picture.legend([420.0, 228.0], &[("a", "at the bottleneck"), ("b", "in the sendbox")]);
    Ok(picture)
}

/// Names of the paths in the cells of `world/alone_mixed`.
const PATHS: [(&str, &str); 7] = [
    ("docsis", "cable (DOCSIS)"),
    ("starlink", "satellite in steps"),
    ("fading", "fading radio"),
    ("suspends", "Wi-Fi with scans"),
    ("adsl", "ADSL, 2 Mbit/s"),
    ("failover", "failover at 25 s"),
    ("outage", "outage of 2 s"),
];

/// Round trips of pings on some paths: medians and 99th percentiles.
pub fn ping(rows: &Rows) -> Result<Picture> {
    let names = ["without_p50_ms", "with_p50_ms", "without_p99_ms", "with_p99_ms"];
    let values = rows.numbers(names)?;
    let span = |place: usize| {
        let ratios = values.iter().map(|row| row[place + 1] / row[place]);
        let ends =
            ratios.fold([f64::INFINITY, 0.0_f64], |[low, high], it| [low.min(it), high.max(it)]);
        ends.map(|end| format!("{end:.2}"))
    };
    let ([low, high], [slow_low, slow_high]) = (span(0), span(2));
    let result = format!(
        "On {} kinds of path pings next to bulk flows and requests take {low} to {high} times as long with boxes as \
         without, by the median, and {slow_low} to {slow_high} times by the 99th percentile.",
        values.len()
    );
    let conditions = "Pings next to bulk flows and requests of the same site, alone on the path. Simulated, defaults.";
    let mut picture = Picture::new("Round trips of pings", conditions, result);
    let ends = around(values.iter().flatten().copied());
    for (left, place, x_title) in [(150.0, 0, "median (ms)"), (452.0, 2, "99th percentile (ms)")] {
        let x = Scale::log(ends, [left, left + 244.0]);
        picture.x_axis(&x, [340.0, 84.0], x_title);
        for (number, row) in values.iter().enumerate() {
            let at = 84.0 + 256.0 * (number as f64 + 0.5) / values.len() as f64;
            let [without, with] = [row[place], row[place + 1]].map(|value| x.at(value));
            picture.path("grid", [[left, at], [left + 244.0, at]]);
            picture.path("line b", [[without, at], [with, at]]);
            picture.circle("ring a", [without, at], 5.0);
            picture.circle("mark b", [with, at], 6.0);
        }
    }
    for (number, row) in rows.iter().enumerate() {
        let cell = row.text("cell")?;
        let name = PATHS.iter().find(|(it, _)| *it == cell).map_or(cell, |(_, name)| name);
        let at = 84.0 + 256.0 * (number as f64 + 0.5) / values.len() as f64;
        picture.text("end", [142.0, at + 4.0], name);
    }
    picture.circle("ring a", [458.0, 66.0], 5.0);
    picture.text("", [468.0, 70.0], "without boxes");
    picture.circle("mark b", [578.0, 66.0], 6.0);
    picture.text("", [588.0, 70.0], "with boxes");
    Ok(picture)
}

/// Times of requests as shares that take at most so long.
pub fn requests(rows: &Rows) -> Result<Picture> {
    let columns = ["share", "without_ms", "with_ms", "in_network_fq_ms"];
    let rows = rows.numbers(columns)?;
    let at = |share: f64| {
        let row = rows.iter().find(|row| row[0] >= share).unwrap_or(&rows[0]);
        [1, 2, 3].map(|column| row[column].round())
    };
    let ([a, b, c], [slow_a, slow_b, slow_c]) = (at(0.5), at(0.99));
    let result = format!(
        "Half of the requests take at most {a} ms without boxes, {b} ms with boxes and {c} ms with fair queueing in the \
         network; 99 % take at most {slow_a}, {slow_b} and {slow_c} ms."
    );
    let conditions = "Web-like traffic of 84 Mbit/s over 96 Mbit/s and 50 ms. Simulated, boxes with their defaults.";
    let mut picture = Picture::new("How long requests take", conditions, result);
    let is_shown = |row: &&[f64; 4]| row[0] <= 0.99;
    let ends = around(rows.iter().filter(is_shown).flat_map(|row| row[1..].iter().copied()));
    let (x, y) = (Scale::log(ends, WIDE), Scale::linear([0.0, 100.0], [352.0, 84.0]));
    picture.axes(&x, &y, ["time of a request (ms)", "requests (%) that take at most so long"]);
    let lines = [("a", 1), ("c", 3), ("b", 2)];
    for (class, column) in lines {
        let points = rows.iter().filter(is_shown);
        let points = points.map(|row| [x.at(row[column]), y.at(100.0 * row[0])]);
        picture.path(&format!("line {class}"), points);
    }
    let names =
        [("a", "without boxes"), ("b", "with boxes"), ("c", "fair queueing in the network")];
    picture.legend([70.0, 70.0], &names);
    Ok(picture)
}

/// Times of requests with boxes over those without, by the share of the bundle.
pub fn share(rows: &Rows) -> Result<Picture> {
    let names = ["share_pct", "median", "least", "greatest"];
    let of = |side: &str| -> Result<Vec<[f64; 4]>> {
        let mut points = Vec::new();
        for (row, numbers) in rows.iter().zip(rows.numbers(names)?) {
            if row.text("requests")? == side {
                points.push(numbers);
            }
        }
        Ok(points)
    };
    let (inside, outside) = (of("inside")?, of("outside")?);
    let (Some(first), Some(last)) = (inside.first(), inside.last()) else {
        anyhow::bail!("no requests inside");
    };
    let [[few, slower, ..], [many, faster, ..]] = [first, last];
    let result = format!(
        "Requests of a site that sends {few} % of all requests take {slower:.2} times as long with boxes as without; \
         where it sends {many} %, they take {faster:.2} times as long."
    );
    let conditions =
        "Requests of 51 Mbit/s over 60 Mbit/s and 60 ms; boxes at one site. Simulated, defaults.";
    let mut picture = Picture::new("Gain over the share of the bundle", conditions, result);
    let all = || inside.iter().chain(&outside).flat_map(|row| &row[1..]);
    let beyond = all().fold(0.05_f64, |one, other| one.max((other - 1.0).abs()));
    let most = (beyond * 20.0).ceil() / 20.0;
    let x = Scale::linear([0.0, 100.0], WIDE);
    let y = Scale::linear([1.0 - most, 1.0 + most], [352.0, 84.0]);
    let titles =
        ["share of the requests that are in the bundle (%)", "time with boxes over time without"];
    picture.axes(&x, &y, titles);
    picture.path("even", [[WIDE[0], y.at(1.0)], [WIDE[1], y.at(1.0)]]);
    picture.text("soft end", [690.0, 98.0], "slower with boxes");
    picture.text("soft end", [690.0, 344.0], "faster with boxes");
    for (class, points, aside) in [("c", &outside, 4.0), ("b", &inside, 0.0)] {
        let at = |share: f64| x.at(share) + aside;
        picture.path(&format!("line {class}"), points.iter().map(|row| [at(row[0]), y.at(row[1])]));
        for row in points {
            picture
                .path(&format!("thin {class}"), [row[2], row[3]].map(|it| [at(row[0]), y.at(it)]));
            picture.circle(&format!("mark {class}"), [at(row[0]), y.at(row[1])], 5.0);
        }
    }
    let names = [("b", "requests of the site with boxes"), ("c", "requests of other sites")];
    picture.legend([70.0, 70.0], &names);
    picture.text("soft end", [696.0, 70.0], "bars: least and greatest seed");
    Ok(picture)
}
