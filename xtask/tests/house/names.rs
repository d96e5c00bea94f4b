//! Names of tests: the subject and the expectation, in few words.

use std::path::Path;

use crate::idioms::files;
use crate::repository;

/// Most words of a name, joined by underscores. In Python the word `test` in front does not count.
const WORDS_MAX: usize = 8;

/// Names of the tests in a file in Rust.
fn in_rust(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if is_test && !line.starts_with('#') && !line.starts_with("//") {
            // A test that a macro names has no name here.
            found.extend(line.split_once("fn ").map(|(_, rest)| first_name(rest)));
            is_test = false;
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

/// Names of the tests in a file in Python, without `test_`.
fn in_python(source: &str) -> Vec<&str> {
    let lines = source.lines().map(str::trim_start);
    let lines = lines.map(|line| line.strip_prefix("async ").unwrap_or(line));
    lines.filter_map(|line| line.strip_prefix("def test_")).map(first_name).collect()
}

/// The name that `text` begins with.
fn first_name(text: &str) -> &str {
    text.split(|it: char| !it.is_alphanumeric() && it != '_').next().unwrap_or_default()
}

/// The number of words of a name.
fn words(name: &str) -> usize {
    name.split('_').filter(|word| !word.is_empty()).count()
}

#[test]
fn test_names_have_few_words() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (folder, kind) in [("crates", "rs"), ("fuzz", "rs"), ("xtask", "rs"), ("python", "py")] {
        let mut sources = Vec::new();
        files(&repository().join(folder), &[kind], &mut sources);
        for file in sources {
            let source = std::fs::read_to_string(&file).unwrap();
            let names = if kind == "rs" { in_rust(&source) } else { in_python(&source) };
            count += names.len();
            let file: &Path = file.strip_prefix(repository()).unwrap();
            let long = names.into_iter().filter(|name| words(name) > WORDS_MAX);
            wrong.extend(long.map(|name| format!("{}: {name}", file.display())));
        }
    }
    assert!(count > 2000, "{count} tests: expected more");
    assert!(wrong.is_empty(), "more than {WORDS_MAX} words:\n{}", wrong.join("\n"));
}

#[test]
fn names_are_read_behind_attributes() {
    let rust =
        "#[test]\n#[ignore = \"slow\"]\nfn a_b() {}\nfn c() {}\n    #[test]\n    fn $name() {}\n";
    assert_eq!(in_rust(rust), ["a_b"]);
    let python = "def test_a_b(x):\n    pass\nasync def test_c():\ndef other():\n";
    assert_eq!(in_python(python), ["a_b", "c"]);
    assert_eq!((words("a_b__c"), words("_a")), (3, 1));
}
