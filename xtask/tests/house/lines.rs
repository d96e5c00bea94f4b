//! The amount of code: lines below `crates/` that are neither blank, comment nor test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::Lit;

use crate::repository;
use crate::words::sources;

/// Most lines of code. Lower it when code goes, and raise it only by a new function: traces, models and recordings of
/// paths had 1,900 lines; Vivace, Proteus and LEDBAT++ 700; QUIC 900; SCReAM and live encoders 900; searches on the
/// testbed 500; runs on several cores 700; ns-3's random numbers 300; recorded probes and carriers' models 400.
const LINES_MAX: usize = 116_200;
/// Folders whose files are no part of the product.
const APART: [&str; 4] = ["benches", "examples", "templates", "tests"];

/// Findings in one file.
#[derive(Default)]
pub struct Found {
    /// Lines with code.
    lines: BTreeSet<usize>,
    /// Modules in files of their own that only tests have.
    tests: Vec<String>,
    /// String literals with the numbers of their first lines.
    pub strings: Vec<(usize, String)>,
}

impl Found {
    fn of(source: &str) -> Self {
        let mut found = Self::default();
        found.read(source.parse().expect("Rust"));
        found
    }

    fn read(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            if is_punct(&token, '#') {
                // An attribute of a file or a block has a mark in between.
                let mark = tokens.next_if(|next| is_punct(next, '!'));
                match tokens.peek() {
                    Some(TokenTree::Group(group)) if is_of_tests(group) => {
                        self.skip_item(&mut tokens);
                        continue;
                    }
                    Some(TokenTree::Group(group)) if is_documentation(group) => {
                        tokens.next();
                        continue;
                    }
                    _ => mark.iter().for_each(|mark| self.add(mark)),
                }
            }
            if let TokenTree::Group(group) = token {
                self.lines.insert(group.span_open().start().line);
                self.read(group.stream());
                self.lines.insert(group.span_close().end().line);
            } else {
                self.add(&token);
            }
        }
    }

    fn add(&mut self, token: &TokenTree) {
        let first = token.span().start().line;
        self.lines.extend(first..=token.span().end().line);
        if let TokenTree::Literal(literal) = token
            && let Lit::Str(text) = Lit::new(literal.clone())
        {
            self.strings.push((first, text.value()));
        }
    }

    /// Skips the item after an attribute: up to its semicolon or its block.
    fn skip_item(&mut self, tokens: &mut impl Iterator<Item = TokenTree>) {
        let mut before = [String::new(), String::new()];
        for token in tokens {
            let is_block =
                matches!(&token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
            if is_block || is_punct(&token, ';') {
                let [keyword, name] = before;
                if !is_block && keyword == "mod" {
                    self.tests.push(name);
                }
                return;
            }
            before.rotate_left(1);
            before[1] = token.to_string();
        }
    }
}

fn is_punct(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

fn is_of_tests(attribute: &Group) -> bool {
    let attribute = attribute.stream().to_string().replace(' ', "");
    attribute == "cfg(test)" || attribute.starts_with("cfg(all(test,")
}

/// A comment for rustdoc is an attribute to the compiler.
fn is_documentation(attribute: &Group) -> bool {
    attribute.stream().into_iter().next().is_some_and(|first| first.to_string() == "doc")
}

/// Folder of the modules of the file at `path`.
fn folder_below(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap().to_str().unwrap();
    match stem {
        "lib" | "main" | "mod" => path.parent().unwrap().into(),
        _ => path.with_extension(""),
    }
}

/// The files of the product below `folder` with their findings: no tests, benchmarks, examples and templates.
pub fn outside_tests(folder: &str) -> Vec<(PathBuf, Found)> {
    let mut files = Vec::new();
    sources(&repository().join(folder), &mut files);
    let mut read = Vec::new();
    let mut tests = Vec::new();
    for path in files {
        let within = path.strip_prefix(repository()).unwrap();
        if within.iter().filter_map(|part| part.to_str()).any(|part| APART.contains(&part)) {
            continue;
        }
        let found = Found::of(&std::fs::read_to_string(&path).unwrap());
        tests.extend(found.tests.iter().map(|name| folder_below(&path).join(name)));
        read.push((path, found));
    }
    read.retain(|(path, _)| {
        let module = path.with_extension("");
        !tests.iter().any(|test| module.starts_with(test))
    });
    read
}

/// Lines of code of each crate.
fn counted() -> BTreeMap<String, usize> {
    let root = repository().join("crates");
    let mut crates = BTreeMap::new();
    for (path, found) in outside_tests("crates") {
        let name = path.strip_prefix(&root).unwrap().iter().next().unwrap();
        *crates.entry(name.to_string_lossy().into_owned()).or_default() += found.lines.len();
    }
    crates
}

/// `cargo test -p xtask --test house lines -- --nocapture` prints them.
#[test]
fn lines_of_code_are_bounded() {
    let crates = counted();
    let total: usize = crates.values().sum();
    crates.iter().for_each(|(name, lines)| println!("{lines:>7} {name}"));
    println!("{total:>7} lines of code");
    assert!(total <= LINES_MAX, "{total} lines of code: allowed are {LINES_MAX}");
}

#[test]
fn blanks_comments_and_tests_are_no_code() {
    let source = "//! Head.\n#![allow(x)]\n\n/// Says.\n#[derive(Y)]\nstruct A; // behind\n/* a\nb */\n\
                  #[cfg(test)]\nmod tests {\n    fn t() {}\n}\n#[cfg(test)]\nmod other;\n\
                  const B: &str = \"\n\n\";\nfn f() {\n}\n";
    let found = Found::of(source);
    assert_eq!(found.strings, [(15, "\n\n".to_string())]);
    assert_eq!(found.lines.into_iter().collect::<Vec<_>>(), [2, 5, 6, 15, 16, 17, 18, 19]);
    assert_eq!(found.tests, ["other"]);
}
