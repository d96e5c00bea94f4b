//! Size distributions of other programs, in the form that plans read.
//!
//! | form | a line |
//! |---|---|
//! | HPCC and similar | bytes and per cent: `10000 15` |
//! | opera-sim | bytes and probability with a comma: `5971,0.077` |
//! | ns-2 of pFabric and similar | size in packets, a column that is not used, probability: `6 1 0.15` |

use std::fmt::Write as _;

use forebay_core::text::{Line, TextError, data_lines};
use forebay_core::traffic::SizeCdf;

/// Bytes of a packet in ns-2's distributions: the payload of pFabric's segments.
pub const PACKET_BYTES: u32 = 1460;

/// Whether the first line of `text` that carries data is two or three numbers.
pub fn is_cdf(text: &str) -> bool {
    data_lines(text).next().is_some_and(|line| {
        let cells: Vec<&str> = cells(line.text).collect();
        (2..=3).contains(&cells.len()) && cells.iter().all(|cell| cell.parse::<f64>().is_ok())
    })
}

/// The distribution of `text` in our form; sizes in three columns count packets of `packet_bytes`.
///
/// # Errors
///
/// A line that has none of the forms, or a result that [`SizeCdf::parse`] refuses.
pub fn converted(file: &str, text: &str, packet_bytes: u32) -> Result<String, TextError> {
    let mut points: Vec<(f64, f64, Line<'_>)> = Vec::new();
    for line in data_lines(text) {
        let allowed = "bytes and a probability or per cent, or packets, a number and a probability";
        let error = |value| TextError::new(file, line, value, allowed);
        let numbers: Result<Vec<f64>, TextError> = cells(line.text)
            .map(|cell| {
                cell.parse::<f64>().ok().filter(|it| it.is_finite()).ok_or_else(|| error(cell))
            })
            .collect();
        match numbers?[..] {
            [bytes, probability] => points.push((bytes, probability, line)),
            [packets, _, probability] => {
                points.push((packets * f64::from(packet_bytes), probability, line));
            }
            _ => return Err(error(line.text)),
        }
    }
    let most = points.last().map_or(1.0, |(_, last, _)| *last);
    // Probabilities end at 1, per cents at 100.
    let whole = if most > 1.0 { 100.0 } else { 1.0 };
    let mut out = String::new();
    // Our form begins at probability 0: here with a jump at the least size.
    let jump = points.first().filter(|(_, first, _)| *first > 0.0).map(|(bytes, ..)| (*bytes, 0.0));
    let scaled = points.iter().map(|(bytes, probability, _)| (*bytes, probability / whole));
    for (bytes, probability) in jump.into_iter().chain(scaled) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(out, "{bytes} {probability}");
    }
    let at = |number: usize| {
        let added = out.lines().count() - points.len();
        points.get((number - 1).saturating_sub(added)).map_or(Line::FIRST, |(.., line)| *line)
    };
    let checked = SizeCdf::parse(file, &out);
    checked.map_err(|error| {
        let line = at(error.line);
        TextError::new(file, line, line.text, &error.allowed)
    })?;
    Ok(out)
}

/// The numbers of a line.
fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| letter == ',' || letter.is_whitespace()).filter(|it| !it.is_empty())
}
