//! Documentation that can be read alone.

use std::path::{Path, PathBuf};

use forebay_core::cc::ALGORITHMS;
use forebay_core::qdisc::DISCIPLINES;
use forebay_core::traffic::RECEIVERS;
use forebay_lab::metrics::catalogue;
use forebay_lab::plan::schema;

use crate::repository;

/// Forbidden openings of an item's documentation: words for something that only a neighbour names.
const OPENINGS: [&str; 11] = [
    "And", "It", "Its", "Of them", "Of these", "Of those", "That", "The same", "They", "Those",
    "Whose",
];

/// Rust files below `folder`.
pub fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
}

/// With which of [`OPENINGS`] `text` begins.
fn opening(text: &str) -> Option<&'static str> {
    let begins = |opening: &&str| {
        let (start, rest) = text.split_at_checked(opening.len()).unwrap_or(("", text));
        start.eq_ignore_ascii_case(opening) && !rest.starts_with(char::is_alphanumeric)
    };
    OPENINGS.into_iter().find(begins)
}

/// Whether `text` is one word. A name in backticks or brackets refers to something that defines it.
fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(' ') && !text.starts_with(['`', '['])
}

/// Numbers and texts of the first lines of documentation comments in `source`.
fn first_lines(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut within = false;
    source.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let is_first = !std::mem::replace(&mut within, text.is_some());
        text.filter(|_| is_first).map(|text| (index + 1, text.trim()))
    })
}

#[test]
fn documentation_names_its_subject() {
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "fuzz"] {
        sources(&repository().join(folder), &mut files);
    }
    assert!(files.len() > 400, "{} files: where are the others?", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let source = std::fs::read_to_string(&file).unwrap();
        for (line, text) in first_lines(&source) {
            if opening(text).is_some() || is_word(text) {
                wrong.push(format!("{}:{line}: {text}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "name the subject:\n{}", wrong.join("\n"));
}

#[test]
fn summaries_name_their_subject() {
    let metrics = catalogue().map(|entry| (entry.name, entry.summary));
    let headings = schema::headings();
    let keys = headings.iter().flat_map(|heading| heading.section.keys);
    let keys = keys.map(|key| (key.name, key.summary));
    let of_laws = ALGORITHMS.iter().flat_map(|it| it.params);
    let params = of_laws.chain(DISCIPLINES.iter().flat_map(|it| it.params));
    let params = params.chain(RECEIVERS.iter().flat_map(|it| it.params));
    let params = params.map(|param| (param.name(), param.summary()));
    for (name, summary) in metrics.chain(keys).chain(params) {
        let opening = opening(summary);
        assert!(opening.is_none(), "{name}: {summary:?} begins with {opening:?}");
    }
}
