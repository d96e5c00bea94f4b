//! Idioms that make texts hard to read, counted per 1,000 words: here in comments of Rust and C, in `prose` in other texts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::repository;

/// Most uses of one idiom per 1,000 words, over all texts of one kind.
const PER_IDIOM: f64 = 0.4;
/// Most uses of all idioms together per 1,000 words, in each folder of more than [`FOLDER_WORDS_MIN`] words.
const TOGETHER: f64 = 2.5;
/// Least words of a folder that is judged alone: in a smaller one, a single text weighs too much.
const FOLDER_WORDS_MIN: usize = 5000;
/// Folders with Rust that are judged one by one, and together.
pub const FOLDERS: [&str; 17] = [
    "crates/app",
    "crates/capi",
    "crates/core",
    "crates/ebpf",
    "crates/experiments",
    "crates/host",
    "crates/lab",
    "crates/policy",
    "crates/python",
    "crates/reader",
    "crates/receivebox",
    "crates/scenario",
    "crates/sim",
    "crates/studies",
    "crates/testbed",
    "fuzz",
    "xtask",
];

/// Words behind "what" that make a noun of it: `what is allowed`, `what the box says`.
const BEHIND_WHAT: [&str; 64] = [
    "a", "an", "another", "all", "are", "arrives", "became", "becomes", "belongs", "came", "can",
    "come", "comes", "could", "counts", "did", "differs", "do", "does", "each", "every", "follows",
    "goes", "had", "has", "have", "he", "hold", "holds", "is", "it", "its", "keeps", "leaves",
    "made", "make", "makes", "may", "might", "must", "needs", "no", "one", "other", "others",
    "passes", "said", "says", "stand", "stands", "such", "takes", "that", "the", "there", "they",
    "this", "took", "users", "waits", "was", "we", "went", "were",
];

/// The idiom that two words in a row make, if they make one.
fn idiom(word: &str, next: &str) -> Option<&'static str> {
    match (word, next) {
        ("what", next) if BEHIND_WHAT.contains(&next) => Some("what as a noun"),
        ("tell" | "tells" | "told", _) => Some("tell"),
        ("somebody" | "nobody" | "anybody" | "everybody" | "whoever" | "others", _) => {
            Some("somebody")
        }
        ("that" | "those", "of") | ("of", "them") => Some("that of"),
        ("of", "late") | ("as", "of") | ("anew" | "beside" | "likewise", _) => Some("of late"),
        ("of", "which" | "whom" | "what") => Some("of which"),
        ("so", "much" | "many" | "long") => Some("so much"),
        _ => None,
    }
}

/// The texts of comments with the numbers of their lines: Rust, C and shell-like files.
fn comments(source: &str) -> impl Iterator<Item = (usize, &str)> {
    source.lines().enumerate().filter_map(|(index, line)| {
        let line = line.trim_start();
        let text = ["///", "//!", "//", "/*", "* "].iter().find_map(|it| line.strip_prefix(it))?;
        Some((index + 1, text.trim_end_matches("*/")))
    })
}

/// The words of `text` in lower case, without punctuation and without code in backticks.
pub fn words(text: &str) -> Vec<String> {
    let prose: Vec<&str> = text.split('`').step_by(2).collect();
    let word = |it: &str| it.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    prose.join(" ").split_whitespace().map(word).filter(|word| !word.is_empty()).collect()
}

/// Words of texts, and uses of each idiom with their places.
#[derive(Default)]
pub struct Count {
    words: usize,
    uses: BTreeMap<&'static str, Vec<String>>,
}

impl Count {
    /// Counts `text`, which begins in `line` of `file`.
    pub fn add(&mut self, file: &Path, line: usize, text: &str) {
        let words = words(text);
        self.words += words.len();
        let next = words.iter().skip(1).map(String::as_str).chain([""]);
        for (index, (word, next)) in words.iter().zip(next).enumerate() {
            if let Some(idiom) = idiom(word, next) {
                let near = &words[index.saturating_sub(3)..words.len().min(index + 5)];
                let place = format!("{}:{line}: .. {} ..", file.display(), near.join(" "));
                self.uses.entry(idiom).or_default().push(place);
            }
        }
    }

    fn per_thousand(&self, uses: usize) -> f64 {
        1000.0 * uses as f64 / self.words.max(1) as f64
    }
}

/// Files with one of the extensions `kinds` below `folder`, without built ones.
pub fn files(folder: &Path, kinds: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            files(&path, kinds, found);
        } else if path.extension().is_some_and(|it| kinds.iter().any(|kind| it == *kind)) {
            found.push(path);
        }
    }
}

/// Fails if a folder, or all together, use too many idioms. Also fails if there are at most `words_min` words: then a
/// reader of texts finds no texts.
pub fn judge(counts: BTreeMap<String, Count>, words_min: usize) {
    let mut all = Count::default();
    let mut wrong = String::new();
    for (folder, count) in counts {
        let together = count.per_thousand(count.uses.values().map(Vec::len).sum());
        if count.words > FOLDER_WORDS_MIN && together > TOGETHER {
            let places: Vec<String> = count.uses.values().flatten().cloned().collect();
            writeln!(wrong, "{folder}: {together:.2} in 1,000 words:\n{}", places.join("\n"))
                .unwrap();
        }
        all.words += count.words;
        for (idiom, uses) in count.uses {
            all.uses.entry(idiom).or_default().extend(uses);
        }
    }
    assert!(all.words > words_min, "{} words: expected more than {words_min}", all.words);
    for (idiom, uses) in &all.uses {
        let share = all.per_thousand(uses.len());
        if share > PER_IDIOM {
            writeln!(wrong, "{idiom}: {share:.2} in 1,000 words:\n{}", uses.join("\n")).unwrap();
        }
    }
    assert!(wrong.is_empty(), "say who acts:\n{wrong}");
}

#[test]
fn comments_use_plain_words() {
    let mut counts = BTreeMap::new();
    for folder in FOLDERS {
        let mut count = Count::default();
        let mut sources = Vec::new();
        files(&repository().join(folder), &["c", "h", "rs"], &mut sources);
        for file in sources {
            let source = std::fs::read_to_string(&file).unwrap();
            let name = file.strip_prefix(repository()).unwrap();
            comments(&source).for_each(|(line, text)| count.add(name, line, text));
        }
        counts.insert(folder.to_string(), count);
    }
    judge(counts, 200_000);
}

#[test]
fn idioms_are_found_in_comments_alone() {
    let mut count = Count::default();
    let source = "/// What is wanted, `what is` not.\nlet told = 1;\n// Those of others, anew.\n * so many\n";
    comments(source).for_each(|(line, text)| count.add(Path::new("a.rs"), line, text));
    let uses: BTreeMap<&str, usize> =
        count.uses.iter().map(|(idiom, it)| (*idiom, it.len())).collect();
    let expected =
        [("of late", 1), ("so much", 1), ("somebody", 1), ("that of", 1), ("what as a noun", 1)];
    assert_eq!(uses, expected.into());
    assert_eq!(count.words, 10);
}
