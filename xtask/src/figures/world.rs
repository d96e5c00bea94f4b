//! The plans of `plans/world` as a map: a column for each path, and a row for each metric.

use anyhow::Result;

use super::rows::{Row, Rows};
use super::svg::{Picture, WIDTH};

/// Rows of the map: the column of the file, its name, and whether more is better.
const METRICS: [(&str, &str, bool); 4] = [
    ("payload", "payload of bulk", true),
    ("ping", "ping: queueing", false),
    ("request_p50", "requests: median", false),
    ("request_p99", "requests: slowest", false),
];
/// Bands of the map from top to bottom: starts of names of plans, each with its heading.
const BANDS: [&[(&str, &str)]; 2] = [
    &[
        ("unsteady", "turns and jitter"),
        ("radio", "radio"),
        ("wired", "slow, long, failing"),
        ("alone", "bulk and web"),
        ("cellular", "cellular"),
    ],
    &[("downloads", "downloads"), ("aqm", "short queues"), ("cross", "deep buffer")],
];
/// Headings of the bands.
const HEADINGS: [&str; 2] = ["Alone on the path", "Next to other traffic"];
/// Ratios at which the colour changes: from worse with boxes to better.
const BOUNDS: [f64; 6] = [0.5, 0.8, 0.95, 1.05, 1.25, 2.0];
/// Where the columns begin (px).
const LEFT: f64 = 134.0;
/// Room between groups of columns (px).
const GAP: f64 = 6.0;
/// Height of a row (px).
const HIGH: f64 = 22.0;

/// How many times better it is with boxes.
fn gain(row: &Row<'_>, column: &str, is_more_better: bool) -> Result<Option<f64>> {
    let ratio = row.maybe(column)?;
    Ok(ratio.map(|it| if is_more_better { it } else { 1.0 / it }))
}

/// The class of a colour.
fn colour(gain: f64) -> String {
    format!("h{}", BOUNDS.iter().filter(|bound| gain >= **bound).count())
}

/// How many rows have a ratio beyond a bound, of how many.
fn count(rows: &Rows, column: &str, is_beyond: impl Fn(f64) -> bool) -> Result<String> {
    let (mut beyond, mut all) = (0, 0);
    for row in rows.iter() {
        if let Some(ratio) = row.maybe(column)? {
            all += 1;
            beyond += usize::from(is_beyond(ratio));
        }
    }
    Ok(format!("{beyond} of {all}"))
}

/// Draws the map.
pub fn world(rows: &Rows) -> Result<Picture> {
    let result = format!(
        "With boxes the queueing of pings is at least 5 % shorter on {} paths, and more than 5 % longer on {}. Bulk flows \
         lose more than 5 % of their payload on {}. The slowest 1 % of requests take more than 5 % longer on {}.",
        count(rows, "ping", |it| it <= 0.95)?,
        count(rows, "ping", |it| it > 1.05)?,
        count(rows, "payload", |it| it < 0.95)?,
        count(rows, "request_p99", |it| it > 1.05)?,
    );
    let conditions = "A column is a path or its traffic. Slowest: 99th percentile. Simulated, boxes with their defaults.";
    let mut picture = Picture::new("With boxes over without, in plans/world", conditions, result);
    for (number, (band, heading)) in BANDS.iter().zip(HEADINGS).enumerate() {
        draw_band(&mut picture, rows, band, heading, 70.0 + 142.0 * number as f64)?;
    }
    draw_key(&mut picture);
    Ok(picture)
}

fn draw_band(
    picture: &mut Picture,
    rows: &Rows,
    band: &[(&str, &str)],
    heading: &str,
    top: f64,
) -> Result<()> {
    let of_group = |start: &str| -> Result<Vec<Row<'_>>> {
        let mut group = Vec::new();
        for row in rows.iter() {
            if row.text("plan")?.strip_prefix("world/").is_some_and(|it| it.starts_with(start)) {
                group.push(row);
            }
        }
        Ok(group)
    };
    let mut groups = Vec::new();
    for (start, name) in band {
        groups.push((*name, of_group(start)?));
    }
    let columns: usize = groups.iter().map(|(_, group)| group.len()).sum();
    let room = WIDTH - 16.0 - LEFT - GAP * (band.len() - 1) as f64;
    let wide = (room / columns.max(1) as f64).min(12.0);
    picture.text("strong", [16.0, top + 8.0], heading);
    for (place, (_, name, _)) in METRICS.iter().enumerate() {
        picture.text("soft end", [LEFT - 8.0, top + 46.0 + HIGH * place as f64], name);
    }
    let mut left = LEFT;
    for (name, group) in groups {
        picture.text("", [left, top + 25.0], name);
        for row in &group {
            for (place, (column, _, is_more_better)) in METRICS.iter().enumerate() {
                let Some(gain) = gain(row, column, *is_more_better)? else { continue };
                let at = [left, top + 31.0 + HIGH * place as f64];
                let told =
                    format!("{} {}: {}", row.text("plan")?, row.text("cell")?, row.text(column)?);
                picture.rect(&colour(gain), at, [wide - 1.0, HIGH - 1.0], &told);
            }
            left += wide;
        }
        left += GAP;
    }
    Ok(())
}

/// Draws the key of the colours.
fn draw_key(picture: &mut Picture) {
    let (left, top, wide) = (LEFT + 88.0, 360.0, 52.0);
    for place in 0..=BOUNDS.len() {
        let at = [left + wide * place as f64, top];
        picture.rect(&format!("h{place}"), at, [wide - 1.0, 14.0], "");
    }
    for (place, name) in ["2", "1.25", "1.05", "1.05", "1.25", "2"].iter().enumerate() {
        let at = [left + wide * (place + 1) as f64, top + 28.0];
        picture.text("soft middle", at, &format!("{name}×"));
    }
    picture.text("end", [left - 8.0, top + 12.0], "worse with boxes");
    picture.text("", [left + wide * 7.0 + 7.0, top + 12.0], "better with boxes");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_grey_in_the_middle() {
        let colours = [0.3, 0.9, 1.0, 1.1, 3.0].map(colour);
        assert_eq!(colours, ["h0", "h2", "h3", "h4", "h6"]);
    }
}
