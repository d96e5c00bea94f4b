//! The page of a comparison: every change with its interval, drawn and in numbers.

use std::path::Path;

use anyhow::Context;

use super::{Change, Comparison, FigurePlace};
use crate::judge::INTERVAL_WORDS;
use crate::metrics::with_unit;
use crate::output::number;
use crate::report::figure::{Axis, intervals};
use crate::report::page::{Block, Chart, Page, PageSection, PageTable};
use crate::summary::Spread;

/// Most changes in one figure.
const DRAWN: usize = 60;

/// Writes the page to `path`, whole or not at all.
pub fn write(comparison: &Comparison, path: &Path) -> anyhow::Result<()> {
    let partial = path.with_added_extension("partial");
    let html = page(comparison).render();
    std::fs::write(&partial, html).with_context(|| partial.display().to_string())?;
    std::fs::rename(&partial, path).with_context(|| path.display().to_string())
}

fn page(comparison: &Comparison) -> Page {
    let names = comparison.old.names(&comparison.new);
    let mut sections = Vec::new();
    for changes in comparison.listed().chunk_by(|one, other| one.place == other.place) {
        let mut blocks = vec![drawn(changes, &names)];
        blocks.push(Block::Table(table(changes, &names)));
        sections.push(PageSection { heading: changes[0].place.to_string(), blocks });
    }
    for (only, name) in [(&comparison.only_old, &names[0]), (&comparison.only_new, &names[1])] {
        if !only.is_empty() {
            let places: Vec<String> = only.iter().map(FigurePlace::to_string).collect();
            let blocks = vec![Block::Text(places.join("; "))];
            sections.push(PageSection { heading: format!("Only in {name}"), blocks });
        }
    }
    let title = format!("{} compared with {}", names[1], names[0]);
    Page { title, lead: comparison.in_a_sentence(), sections }
}

fn drawn(changes: &[Change], names: &[String; 2]) -> Block {
    let row = |change: &Change| {
        let share = change.share()?;
        let edges = [share.low, share.median, share.high].map(|share| share * 100.0);
        Some((change.metric.clone(), edges))
    };
    let rows: Vec<_> = changes.iter().filter_map(row).take(DRAWN).collect();
    let title = format!("{} minus {} (% of {})", names[1], names[0], names[0]);
    let caption = format!(
        "Change of the median with its {INTERVAL_WORDS}. Shown: {} of {} metrics.",
        rows.len(),
        changes.len()
    );
    Block::Figure(Chart { caption, spec: intervals(&rows, Axis::linear(&title)) })
}

/// The changes of one arm in numbers.
pub fn table(changes: &[Change], names: &[String; 2]) -> PageTable {
    let titles = ["figure", &names[0], &names[1], "change", "ratio", "p"];
    let row = |change: &Change| {
        let share = change.share().map_or_else(
            || number(change.difference.median),
            |share| {
                let [median, low, high] =
                    [share.median, share.low, share.high].map(|share| share * 100.0);
                format!("{median:+.1} % [{low:+.1}, {high:+.1}]")
            },
        );
        let [old, new] = [change.old, change.new].map(spread);
        let p = change.p.map_or_else(|| "not tested".into(), |p| format!("{p:.4}"));
        vec![with_unit(&change.metric, change.unit), old, new, share, ratio(change), p]
    };
    PageTable {
        columns: titles.map(String::from).to_vec(),
        rows: changes.iter().map(row).collect(),
        caption: format!(
            "Median over the seeds, with the smallest and largest value in parentheses. Change: \
             change of the median with its {INTERVAL_WORDS}. Ratio: ratio of the medians. p: \
             chance that any metric changes this much when nothing differs."
        ),
    }
}

/// The new median over the old one.
fn ratio(change: &Change) -> String {
    let ratio = change.new.median / change.old.median;
    if ratio.is_finite() { format!("{ratio:.3}") } else { "-".into() }
}

fn spread(spread: Spread) -> String {
    let Spread { least, median, greatest, .. } = spread;
    match least == greatest {
        true => number(median),
        false => format!("{} ({} to {})", number(median), number(least), number(greatest)),
    }
}
