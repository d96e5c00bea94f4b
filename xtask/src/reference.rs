//! `docs/reference.md`: algorithms, queueing disciplines, metrics and events as their registries describe them.

use std::fmt::Write as _;

use anyhow::Context;
use forebay_core::qdisc::DISCIPLINES;
use forebay_core::spec::Parameter;
use forebay_core::traffic::RECEIVERS;
use forebay_host::daemon::metrics::{FAMILIES, Family};
use forebay_host::log::events::EVENTS;
use forebay_lab::algorithms;
use forebay_lab::metrics::{Entry, HOLES, NOTATION, SERIES, catalogue};

use crate::repository;

const FILE: &str = "docs/reference.md";

const HEAD: &str = "\
# Reference

Written by `cargo xtask reference` from the registries in `crates/core`, `crates/policy`, `crates/lab` and
`crates/host`; `forebay list` prints those of the first three, too. A name stands alone (`cc = \"cubic\"`) or with its parameters
(`cc = { kind = \"cubic\", hystart = \"classic\" }`).
";

const RECEIVING: &str = "
## Receivers

What the `receiver` of a plan's flow may be. The flow's other keys of receivers, `read_rate`, `receive_buffer`,
`ack_every` and `ack_delay`, are shown by `forebay plan schema`.
";

const API_ONLY: &str = "
## What no plan describes

Links in a row or side by side that differ in rate, and access links with a rate, are of the API of `forebay-sim`
alone (`Network`): a plan has one bottleneck, of equal links in a row (`hops`) or side by side (`paths`), one link back
and the delays of its flows.
";

/// Writes the file.
pub fn write() -> anyhow::Result<()> {
    let file = repository().join(FILE);
    std::fs::write(&file, text()).with_context(|| file.display().to_string())
}

fn text() -> String {
    let mut text = String::from(HEAD);
    text.push_str("\n## Congestion control\n");
    for algorithm in algorithms::known().algorithms() {
        entry(&mut text, algorithm.name, algorithm.summary, algorithm.params, algorithm.sources);
        if !algorithm.needs.is_empty() {
            let needs: Vec<&str> = algorithm.needs.iter().map(|field| field.name()).collect();
            let _ = writeln!(text, "\nRuns only where these are measured: {}.", needs.join(", "));
        }
    }
    text.push_str("\n## Queueing disciplines\n");
    for discipline in DISCIPLINES {
        entry(
            &mut text,
            discipline.name,
            discipline.summary,
            discipline.params,
            discipline.sources,
        );
    }
    text.push_str(RECEIVING);
    for receiver in RECEIVERS {
        entry(&mut text, receiver.name, receiver.summary, receiver.params, receiver.sources);
    }
    text.push_str(API_ONLY);
    // Nothing between brackets is HTML.
    let _ = writeln!(text, "\n## Metrics\n\n{}\n", NOTATION.replace('<', "\\<"));
    for (hole, words) in HOLES {
        let _ = writeln!(text, "- `{hole}` is one of {}.", words.join(", "));
    }
    metrics(&mut text, catalogue());
    text.push_str("\n## Quantities over time\n");
    metrics(&mut text, SERIES.iter());
    scraped(&mut text);
    events(&mut text);
    text
}

/// What a box serves where its file has `[metrics]`.
fn scraped(text: &mut String) {
    text.push_str("\n## What boxes tell Prometheus\n\n| metric | type | labels | boxes | what |\n|---|---|---|---|---|\n");
    for family in FAMILIES {
        let Family { name, kind, help, .. } = family;
        let (labels, boxes) = (family.labels().join(", "), family.boxes());
        let _ = writeln!(text, "| `{name}` | {} | {labels} | {boxes} | {help} |", kind.name());
    }
}

/// What the logs of boxes and agents tell of.
fn events(text: &mut String) {
    text.push_str("\n## Events of the log\n\n| id | event | level | when |\n|---|---|---|---|\n");
    for event in EVENTS {
        let level = event.level.to_string().to_lowercase();
        let _ = writeln!(text, "| {} | `{}` | {level} | {} |", event.id, event.name, event.when);
    }
}

fn metrics<'a>(text: &mut String, entries: impl Iterator<Item = &'a Entry>) {
    text.push_str("\n| name | of | unit | what | formula | source |\n|---|---|---|---|---|---|\n");
    for Entry { name, of, unit, summary, formula, source, .. } in entries {
        let of = of.replace(' ', ", ");
        let _ = writeln!(text, "| `{name}` | {of} | {unit} | {summary} | `{formula}` | {source} |");
    }
}

fn entry(
    text: &mut String,
    name: &str,
    summary: &str,
    params: &[&dyn Parameter],
    sources: &[&str],
) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n### {name}\n\n{summary}.");
    if !sources.is_empty() {
        let _ = writeln!(text, "\nSources: {}.", sources.join("; "));
    }
    if params.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n| parameter | default | allowed | |\n|---|---|---|---|");
    for param in params {
        let (name, default) = (param.name(), param.written_default().unwrap_or_default());
        let (allowed, summary) = (param.allowed(), param.summary());
        let _ = writeln!(text, "| `{name}` | {default} | {allowed} | {summary} |");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_that_of_the_registries() {
        let written = std::fs::read_to_string(repository().join(FILE)).unwrap();
        assert!(written == text(), "{FILE} is out of date: run `cargo xtask reference`");
    }
}
