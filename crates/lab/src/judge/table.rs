//! Tables of claims and of anything else: titles and rows, as text or as markdown.

use std::fmt::Write as _;

use super::{Interval, Judged, Verdict};
use crate::output::{number, text_table};

/// Titles and rows.
pub type Table = (Vec<String>, Vec<Vec<String>>);

/// A table of rows with as many cells as there are titles.
pub fn table<const N: usize>(titles: [&str; N], rows: Vec<[String; N]>) -> Table {
    (titles.map(String::from).to_vec(), rows.into_iter().map(Vec::from).collect())
}

/// `0.987 [0.980, 0.995]`; `-` without one.
pub fn interval(interval: Option<Interval>) -> String {
    interval.map_or_else(
        || "-".into(),
        |Interval { median, low, high }| {
            format!("{} [{}, {}]", cell(median), cell(low), cell(high))
        },
    )
}

/// The figure of a claim, with its interval where there is one.
pub fn figure(judged: &Judged) -> String {
    match (judged.interval, judged.figure) {
        (Some(found), _) => interval(Some(found)),
        (None, figure) => figure.map_or_else(|| "missing".into(), cell),
    }
}

/// Three digits behind the point of small numbers, or four; what a dead box left is no number.
pub fn cell(value: f64) -> String {
    match value.abs() {
        size if size.is_infinite() => "a box died".into(),
        size if size > 0.0 && size < 0.1 => format!("{value:.4}"),
        size if size < 10.0 => format!("{value:.3}"),
        _ => number(value),
    }
}

/// The verdict, with that of the rule before where it was another.
fn verdict(judged: &Judged) -> String {
    let before = judged.before.as_ref().map(|before| format!(" (before: {before})"));
    format!("{}{}", judged.verdict.words(), before.unwrap_or_default())
}

/// The claims of one plan or part, for people; what others report only where somebody does.
pub fn of_claims<'a>(claims: impl IntoIterator<Item = &'a Judged>) -> Table {
    let row = |judged: &Judged| {
        [
            judged.place.clone(),
            judged.claim.clone(),
            judged.bound.clone(),
            judged.published.as_ref().map_or_else(|| "-".into(), |it| number(it.value)),
            figure(judged),
            judged.behind.to_string(),
            verdict(judged),
        ]
    };
    let titles = ["where", "claim", "bound", "published", "found", "behind it", "verdict"];
    let (mut titles, mut rows) = table(titles, claims.into_iter().map(row).collect());
    let column = titles.iter().position(|title| title == "published").expect("it is one");
    if rows.iter().all(|row| row[column] == "-") {
        titles.remove(column);
        rows.iter_mut().for_each(|row| drop(row.remove(column)));
    }
    (titles, rows)
}

/// As text, under a title; nothing of a table without rows.
pub fn titled(title: &str, (titles, rows): &Table) -> String {
    if rows.is_empty() { String::new() } else { format!("{title}\n{}\n", text_table(titles, rows)) }
}

/// The claims of everything in markdown, with how many came to what below.
pub fn markdown<'a>(claims: impl Iterator<Item = &'a Judged> + Clone) -> String {
    let mut text = String::from(
        "| plan | claim | where | bound | figure | verdict | runs |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for judged in claims.clone() {
        let Judged { of, claim, place, bound, behind, .. } = judged;
        let (figure, mut verdict) = (figure(judged), verdict(judged));
        if !judged.verdict.is_fine() {
            verdict = format!("**{verdict}**");
        }
        let cells = [of, claim, place, bound, &figure, &verdict, &behind.to_string()];
        let cells = cells.map(String::as_str).join(" | ");
        let _ = writeln!(text, "| {cells} |");
    }
    let _ = writeln!(text, "\n{}", counts(claims));
    text
}

/// `3 met, 1 failed, 0 open, 2 not shown, 5 reported; 1 otherwise than before`.
pub fn counts<'a>(claims: impl Iterator<Item = &'a Judged>) -> String {
    let (mut counts, mut otherwise) = ([0; 5], 0);
    for judged in claims {
        otherwise += usize::from(judged.before.is_some());
        counts[match judged.verdict {
            Verdict::Met => 0,
            Verdict::Failed => 1,
            Verdict::Open => 2,
            Verdict::NotShown(_) => 3,
            Verdict::Reported => 4,
        }] += 1;
    }
    let [met, failed, open, not_shown, reported] = counts;
    format!(
        "{met} met, {failed} failed, {open} open, {not_shown} not shown, {reported} reported; \
         {otherwise} otherwise than before"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Behind, Bound, SEED};

    #[test]
    fn the_table_ends_in_the_counts() {
        let judged = Judged {
            of: "p".into(),
            claim: "t".into(),
            place: "copa_sfq".into(),
            behind: Behind { values: 2, wanted: 3, made: Vec::new() },
            ..Judged::default()
        };
        let before = Some("pooled 1.200 failed".into());
        let met = Judged { before, ..judged.clone() };
        let met = met.by_values(Bound::at_most(1.0), &[0.5, 0.5], 2, SEED);
        let died = judged.clone().by_one(Bound::at_most(1.0), Some(f64::INFINITY));
        let all = [met, died, judged];
        let table = markdown(all.iter());
        let lines: Vec<&str> = table.lines().collect();
        let expected = "| p | t | copa_sfq | ≤ 1 | 0.500 [0.500, 0.500] \
                        | met (before: pooled 1.200 failed) | 2/3 |";
        assert_eq!(lines[2], expected);
        assert_eq!(lines[3], "| p | t | copa_sfq | ≤ 1 | a box died | **failed** | 2/3 |");
        assert!(lines[4].ends_with("| **not shown: not run** | 2/3 |"), "{table}");
        let counts = "1 met, 1 failed, 0 open, 1 not shown, 0 reported; 1 otherwise than before";
        assert_eq!(lines.last(), Some(&counts));
    }
}
