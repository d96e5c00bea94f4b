//! Tables of claims and of anything else: titles and rows, as text, and claims as CSV.

use std::borrow::Cow;

use super::{Interval, Judged, Verdict};
use crate::export::{Csv, Sink};
use crate::output::{number, text_table};
use crate::store::{Cell, Column, ColumnKind};

/// Columns of [`csv`]; `docs/evidence/README.md` describes their contents.
const COLUMNS: [(&str, ColumnKind); 12] = [
    ("plan", ColumnKind::Text),
    ("back_end", ColumnKind::Text),
    ("figure", ColumnKind::Text),
    ("where", ColumnKind::Text),
    ("bound", ColumnKind::Text),
    ("value", ColumnKind::Real),
    ("low", ColumnKind::Real),
    ("high", ColumnKind::Real),
    ("verdict", ColumnKind::Text),
    ("before", ColumnKind::Text),
    ("runs", ColumnKind::Text),
    ("commit", ColumnKind::Text),
];
/// Why writing a table cannot fail.
const IN_MEMORY: &str = "writing to memory cannot fail";

/// Titles and rows.
pub type PlainTable = (Vec<String>, Vec<Vec<String>>);

/// A table whose rows have as many cells as there are titles.
pub fn table<const N: usize>(titles: [&str; N], rows: Vec<[String; N]>) -> PlainTable {
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

/// The figure of a claim, with its interval if it has one.
pub fn figure(judged: &Judged) -> String {
    match (judged.interval, judged.figure) {
        (Some(found), _) => interval(Some(found)),
        (None, figure) => figure.map_or_else(|| "missing".into(), cell),
    }
}

/// Three decimals, or four for numbers below 0.1. The infinite figure of a dead box becomes words.
pub fn cell(value: f64) -> String {
    match value.abs() {
        size if size.is_infinite() => "a box died".into(),
        size if size > 0.0 && size < 0.1 => format!("{value:.4}"),
        size if size < 10.0 => format!("{value:.3}"),
        _ => number(value),
    }
}

/// The verdict, with the verdict of the previous rule if that differs.
fn verdict(judged: &Judged) -> String {
    let before = judged.before.as_ref().map(|before| format!(" (before: {before})"));
    format!("{}{}", judged.verdict.words(), before.unwrap_or_default())
}

/// The claims of one plan or part, for people; the column of published values is left out if there are none.
pub fn of_claims<'a>(claims: impl IntoIterator<Item = &'a Judged>) -> PlainTable {
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

/// As text, under a title; empty for a table without rows.
pub fn titled(title: &str, (titles, rows): &PlainTable) -> String {
    if rows.is_empty() { String::new() } else { format!("{title}\n{}\n", text_table(titles, rows)) }
}

/// The claims as CSV (RFC 4180), one row each below a header.
pub fn csv<'a>(claims: impl Iterator<Item = &'a Judged>) -> String {
    let mut text = Vec::new();
    let columns = COLUMNS.map(|(name, kind)| Column::new(name, kind));
    let mut csv = Csv::new(&mut text, &columns).expect(IN_MEMORY);
    for judged in claims {
        // The demo has no back end.
        let (plan, back_end) = judged.of.split_once('@').unwrap_or((judged.of.as_str(), ""));
        let [value, low, high] = match judged.interval {
            Some(Interval { median, low, high }) => [median, low, high].map(Some),
            None => [judged.figure, None, None],
        };
        let [value, low, high] = [value, low, high].map(|it| it.map_or(Cell::Nothing, Cell::Real));
        let runs = judged.behind.to_string();
        let before = judged.before.as_deref().unwrap_or_default();
        let text = |text| Cell::Text(Cow::Borrowed(text));
        let Judged { claim, place, bound, verdict, commit, .. } = judged;
        let [plan, back_end, claim, place, bound] = [plan, back_end, claim, place, bound].map(text);
        let [verdict, before, runs, commit] = [verdict.words(), before, &runs, commit].map(text);
        let cells =
            [plan, back_end, claim, place, bound, value, low, high, verdict, before, runs, commit];
        csv.row(&cells).expect(IN_MEMORY);
    }
    String::from_utf8(text).expect("cells are UTF-8")
}

/// Counts in words: `3 met, 1 failed, 0 open, 2 not shown, 5 reported; 1 changed since ..`.
pub fn counts<'a>(claims: impl Iterator<Item = &'a Judged> + Clone) -> String {
    let otherwise = claims.clone().filter(|judged| judged.before.is_some()).count();
    let [met, failed, open, not_shown, reported] = by_verdict(claims);
    format!(
        "{met} met, {failed} failed, {open} open, {not_shown} not shown, {reported} reported; \
         {otherwise} changed since the last verdict"
    )
}

/// Numbers of claims met, failed, open, not shown and reported.
fn by_verdict<'a>(claims: impl Iterator<Item = &'a Judged>) -> [usize; 5] {
    let mut counts = [0; 5];
    for judged in claims {
        counts[match judged.verdict {
            Verdict::Met => 0,
            Verdict::Failed => 1,
            Verdict::Open => 2,
            Verdict::NotShown(_) => 3,
            Verdict::Reported => 4,
        }] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Behind, Bound, SEED};

    #[test]
    fn claims_become_rows_and_counts() {
        let judged = Judged {
            of: "bundler/p@sim".into(),
            claim: "share, at the end".into(),
            place: "copa_sfq".into(),
            commit: "c".into(),
            behind: Behind { values: 2, wanted: 3, made: Vec::new() },
            ..Judged::default()
        };
        let before = Some("pooled 1.200 failed".into());
        let both = Bound { at_least: Some(0.5), at_most: Some(1.0) };
        let met = Judged { before, ..judged.clone() };
        let met = met.by_values(both, &[0.5, 0.75, 1.0], 2, SEED);
        let died = Judged { of: "platforms/cpu".into(), ..judged.clone() };
        let died = died.by_one(Bound::at_most(1.0), Some(f64::INFINITY));
        let all = [met, died, judged];
        let expected = "plan,back_end,figure,where,bound,value,low,high,verdict,before,runs,commit\n\
            bundler/p,sim,\"share, at the end\",copa_sfq,\"≥ 0.5, ≤ 1\",0.75,0.5,1,met,\
            pooled 1.200 failed,2/3,c\n\
            platforms/cpu,,\"share, at the end\",copa_sfq,≤ 1,inf,,,failed,,2/3,c\n\
            bundler/p,sim,\"share, at the end\",copa_sfq,,,,,not shown: not run,,2/3,c\n";
        assert_eq!(csv(all.iter()), expected);
        let expected = "1 met, 1 failed, 0 open, 1 not shown, 0 reported; 1 changed \
                        since the last verdict";
        assert_eq!(counts(all.iter()), expected);
    }
}
