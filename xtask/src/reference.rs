//! `docs/reference/README.md`: algorithms, queueing disciplines, metrics and events as their registries describe them. Also
//! the keys of plans as types of Python.

mod python;

use std::fmt::Write as _;

use anyhow::Context;
use forebay_core::bundle::tuning::Tuning;
use forebay_core::qdisc::DISCIPLINES;
use forebay_core::spec::Parameter;
use forebay_core::traffic::RECEIVERS;
use forebay_host::daemon::config::schema as boxes;
use forebay_host::daemon::metrics::{FAMILIES, Family};
use forebay_host::log::events::EVENTS;
use forebay_lab::metrics::{Entry, HOLES, NOTATION, SERIES, catalogue};
use forebay_lab::plan::schema as plans;
use forebay_policy::algorithms;

use crate::repository;

/// Path of the page.
const FILE: &str = "docs/reference/README.md";

/// Begin of the page, before the algorithms.
const HEAD: &str = "\
# Reference

Written by `cargo xtask reference` from the registries in `crates/core`, `crates/policy`, `crates/lab` and
`crates/host`. `forebay list` prints the first three registries, too. Write a name alone (`cc = \"cubic\"`) or with
parameters (`cc = { kind = \"cubic\", hystart = \"classic\" }`).
";

/// Heading and text before the receivers.
const RECEIVING: &str = "
## Receivers

Values of `receiver` in a plan's flow. `forebay plan schema` shows the flow's other keys for receivers: `read_rate`,
`receive_buffer`, `ack_every` and `ack_delay`.
";

/// Heading and text before the tables of tuning.
const TUNING: &str = "
## Numbers of a bundle's control

Boxes run with the defaults. In the simulator, a plan may set other values for a bundle:
`tuning = { supervisor_keep = 0.95 }`, or `--set bundle.NAME.tuning.supervisor_keep=0.95`.
";

/// Text on networks that only the API describes.
const API_ONLY: &str = "
## Networks beyond plans

A plan has one bottleneck, one return link and the delays of its flows. The bottleneck may be equal links in a row
(`hops`) or side by side (`paths`). Only the API of `forebay-sim` (`Network`) describes links that differ in rate and
access links with a rate.
";

/// Heading and text before the keys of plans.
const PLANS: &str = "
## Keys of plans

`forebay plan schema` prints these tables, with `--json` as a JSON Schema. `--set KEY=VALUE` takes the dotted path of a
key. In a path, name an element of a list by its `name` or by its index from 0: `flow.web.count`,
`bottleneck.change.0.at`.
";

/// Heading and text before the keys of a box's file.
const BOXES: &str = "
## Keys of the file of a box

[Connect two sites](../operate/two-sites.md) shows a first set-up. In a file with several boxes, put the tables of each
box below a `[[box]]`, which may have a `name`: `[[box.bundle]]`, `[box.uplink]`.
";

/// Every file generated from registries, with its text.
fn files() -> [(&'static str, String); 2] {
    [(FILE, text()), (python::FILE, python::text())]
}

/// Writes the files.
pub fn write() -> anyhow::Result<()> {
    for (file, text) in files() {
        let file = repository().join(file);
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
    }
    Ok(())
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
    tuning(&mut text);
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
    let _ = write!(text, "{PLANS}{}{BOXES}{}", plans::PLAN.markdown(), boxes::ONE.root.markdown());
    text
}

/// The tuning of a bundle's control.
fn tuning(text: &mut String) {
    text.push_str(TUNING);
    for (group, source, names) in Tuning::GROUPS {
        let params = Tuning::PARAMS.iter().filter(|param| names.contains(&param.name()));
        let params: Vec<&dyn Parameter> = params.copied().collect();
        let _ = writeln!(text, "\n### {group}\n\nSource: {source}.");
        parameters(text, &params);
    }
}

/// Metrics that a box serves where its file has `[metrics]`.
fn scraped(text: &mut String) {
    text.push_str("\n## Metrics of boxes for Prometheus\n\n| metric | type | labels | boxes | what |\n|---|---|---|---|---|\n");
    for family in FAMILIES {
        let Family { name, kind, help, .. } = family;
        let (labels, boxes) = (family.labels().join(", "), family.boxes());
        let _ = writeln!(text, "| `{name}` | {} | {labels} | {boxes} | {help} |", kind.name());
    }
}

/// Events in the logs of boxes and agents.
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
    parameters(text, params);
}

fn parameters(text: &mut String, params: &[&dyn Parameter]) {
    let _ = writeln!(text, "\n| parameter | default | allowed | |\n|---|---|---|---|");
    for param in params {
        let (name, default) = (param.name(), param.written_default().unwrap_or_default());
        let (allowed, summary) = (param.allowed(), param.summary().trim());
        let _ = writeln!(text, "| `{name}` | {default} | {allowed} | {summary} |");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_that_of_the_registries() {
        for (file, text) in files() {
            let written = std::fs::read_to_string(repository().join(file)).unwrap();
            assert!(written == text, "{file} is out of date: run `cargo xtask reference`");
        }
    }
}
