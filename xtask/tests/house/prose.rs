//! Idioms in texts other than comments of Rust and C: strings, pages, plans and Python.

use std::collections::BTreeMap;
use std::path::PathBuf;

use toml::{Table, Value};

use crate::idioms::{Count, FOLDERS, files, judge, words};
use crate::lines::outside_tests;
use crate::repository;

/// Least words of a string literal that counts as prose; shorter ones are names, keys and units.
const STRING_WORDS_MIN: usize = 3;
/// Pages at the root of the repository.
const PAGES: [&str; 3] = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"];
/// Keys whose values a reader of a plan or of claims sees as prose.
const TITLES: [&str; 2] = ["title", "description"];
/// Quotes of strings of several lines in Python.
const QUOTES: [&str; 2] = ["\"\"\"", "'''"];

/// A part of a file as prose: the number of its first line, and its text.
type Piece = (usize, String);

/// Counts the pieces that `read` finds in each file, by the folder of the file.
fn by_folder(paths: Vec<PathBuf>, read: fn(&str) -> Vec<Piece>) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(repository()).unwrap();
        let folder = name.parent().unwrap().display().to_string();
        let count = counts.entry(folder).or_default();
        for (line, piece) in read(&text) {
            count.add(name, line, &piece);
        }
    }
    counts
}

/// Paragraphs and items of lists of a page, without code, tables and headings.
fn paragraphs(page: &str) -> Vec<Piece> {
    let mut found: Vec<Piece> = Vec::new();
    let (mut is_code, mut is_open) = (false, false);
    for (index, line) in page.lines().enumerate() {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence || line.is_empty() || line.starts_with(['|', '#']) {
            is_open = false;
            continue;
        }
        match found.last_mut() {
            Some((_, text)) if is_open && !is_item(line) => {
                text.push(' ');
                text.push_str(line);
            }
            _ => found.push((index + 1, line.to_string())),
        }
        is_open = true;
    }
    found
}

/// Whether a line begins an item of a list.
fn is_item(line: &str) -> bool {
    let rest = line.trim_start_matches(|it: char| it.is_ascii_digit());
    ["- ", "* ", ". "].iter().any(|mark| rest.starts_with(*mark))
}

/// Titles and descriptions of a file in TOML.
fn titles(source: &str) -> Vec<Piece> {
    let table: Table = source.parse().unwrap();
    let mut found = Vec::new();
    add_titles(&table, &mut found);
    let line = |text: &str| {
        let first = text.lines().next().unwrap_or_default();
        source.lines().position(|line| line.contains(first)).map_or(1, |index| index + 1)
    };
    found.into_iter().map(|text| (line(&text), text)).collect()
}

/// Adds the titles and descriptions of a table and of all tables in it.
fn add_titles(table: &Table, found: &mut Vec<String>) {
    for (key, value) in table {
        match value {
            Value::String(text) if TITLES.contains(&key.as_str()) => found.push(text.clone()),
            Value::Table(table) => add_titles(table, found),
            Value::Array(values) => {
                for table in values.iter().filter_map(Value::as_table) {
                    add_titles(table, found);
                }
            }
            _ => {}
        }
    }
}

/// Comments and docstrings of a file in Python, line by line.
fn python(source: &str) -> Vec<Piece> {
    let mut found = Vec::new();
    // The end of a string of several lines, and whether the string is a docstring.
    let mut open: Option<(&str, bool)> = None;
    for (index, line) in source.lines().enumerate() {
        let mut add = |text: &str| found.push((index + 1, text.trim().to_string()));
        let line = line.trim();
        if let Some((quotes, is_documentation)) = open {
            let end = line.find(quotes);
            if is_documentation {
                add(&line[..end.unwrap_or(line.len())]);
            }
            if end.is_some() {
                open = None;
            }
            continue;
        }
        let raw = line.strip_prefix('r').unwrap_or(line);
        if let Some(quotes) = QUOTES.into_iter().find(|it| raw.starts_with(it)) {
            let text = &raw[quotes.len()..];
            let end = text.find(quotes);
            add(&text[..end.unwrap_or(text.len())]);
            open = if end.is_none() { Some((quotes, true)) } else { None };
            continue;
        }
        if let Some(comment) = line.strip_prefix('#') {
            add(comment);
        } else if let Some((_, comment)) = line.split_once("  # ") {
            add(comment);
        }
        let opening = QUOTES.into_iter().find(|it| line.matches(it).count() % 2 == 1);
        open = opening.map(|quotes| (quotes, false));
    }
    found
}

/// A format string with a number in the place of each placeholder: the names of placeholders are code.
fn without_placeholders(text: &str) -> String {
    let mut parts = text.split('{');
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once('}').map_or(part, |(_, behind)| behind));
    std::iter::once(first).chain(rest).collect::<Vec<&str>>().join(" 0 ")
}

#[test]
fn strings_use_plain_words() {
    let mut counts = BTreeMap::new();
    for folder in FOLDERS {
        let mut count = Count::default();
        for (path, found) in outside_tests(folder) {
            let name = path.strip_prefix(repository()).unwrap();
            for (line, text) in &found.strings {
                let text = without_placeholders(text);
                if words(&text).len() >= STRING_WORDS_MIN {
                    count.add(name, *line, &text);
                }
            }
        }
        counts.insert(folder.to_string(), count);
    }
    judge(counts, 20_000);
}

#[test]
fn pages_use_plain_words() {
    let mut pages: Vec<PathBuf> = PAGES.iter().map(|name| repository().join(name)).collect();
    files(&repository().join("docs"), &["md"], &mut pages);
    judge(by_folder(pages, paragraphs), 15_000);
}

#[test]
fn titles_of_plans_use_plain_words() {
    let mut plans = vec![repository().join("docs/claims.toml")];
    files(&repository().join("plans"), &["toml"], &mut plans);
    judge(by_folder(plans, titles), 4_000);
}

#[test]
fn python_uses_plain_words() {
    let mut sources = Vec::new();
    files(&repository().join("python"), &["py"], &mut sources);
    judge(by_folder(sources, python), 6_000);
}

#[test]
fn placeholders_are_no_words() {
    let found = words(&without_placeholders("no {what} is {told:?}, {{so}} many"));
    assert_eq!(found, ["no", "0", "is", "0", "0", "0", "many"]);
}

#[test]
fn paragraphs_are_read_outside_code_and_tables() {
    let page = "# Head\n\nOne\ntwo.\n- three\n  four\n2. five\n\n| six |\n```\ncode\n```\nseven\n";
    let found = paragraphs(page);
    let found: Vec<(usize, &str)> = found.iter().map(|(line, it)| (*line, it.as_str())).collect();
    assert_eq!(found, [(3, "One two."), (5, "- three four"), (7, "2. five"), (13, "seven")]);
}

#[test]
fn titles_are_read_at_every_depth() {
    let plan = "name = \"a b c\"\ntitle = \"One\"\n[[figure]]\ntitle = \"Two\"\n[a.b]\ndescription = \"Three\"\n";
    let mut found = titles(plan);
    found.sort();
    let found: Vec<(usize, &str)> = found.iter().map(|(line, it)| (*line, it.as_str())).collect();
    assert_eq!(found, [(2, "One"), (4, "Two"), (6, "Three")]);
}

#[test]
fn comments_and_docstrings_of_python_are_read() {
    let source = "\"\"\"One\ntwo.\"\"\"\nA = \"\"\"no\n# no\n\"\"\"\n# Three\nb = 1  # four\n    r'''five'''\n";
    let found = python(source);
    let found: Vec<(usize, &str)> = found.iter().map(|(line, it)| (*line, it.as_str())).collect();
    assert_eq!(found, [(1, "One"), (2, "two."), (6, "Three"), (7, "four"), (8, "five")]);
}
