//! A file under check: its tree, its format, and the problems found so far.

use std::cell::RefCell;

use forebay_core::spec::{nearest, one_of};
use forebay_core::text::{HIDDEN, QUOTED_CHARS, of_parser, quoted};

use crate::problem::{FileError, PROBLEMS_MAX, Problem, shown};
use crate::reader::Reader;
use crate::schema::Section;
use crate::tree::{self, Origin, Table};

/// Most tables that a message offers as the place of a key.
const HOMES_MAX: usize = 3;

/// The allowed form, in place of a text that is no TOML.
const TOML: &str = "allowed are lines like key = \"text\", key = 1, key = true and key = \
                    [\"text\", \"text\"]";

/// A kind of file.
#[derive(Debug)]
pub struct Format {
    /// Keys of the top level.
    pub root: &'static Section,
    /// Keys in messages have the names of elements of lists: `flow.web.cc`, as overrides call them.
    pub names_elements: bool,
}

impl Format {
    /// Reads the text of `file`.
    ///
    /// # Errors
    ///
    /// All places that are not TOML.
    pub fn parse(&self, file: &str, text: &str) -> Result<Table, FileError> {
        tree::parse_with(text, file, |at, message| self.explained(at, message))
    }

    /// A parser's message about a place, with the line that it is about.
    fn explained(&self, at: &Origin, message: &str) -> String {
        let line = at.whole_line();
        let from = line.get(at.column() - 1..);
        let from = from.filter(|_| line.trim().chars().count() > QUOTED_CHARS);
        // Text that looks like a key is not shown, not even a part of it.
        let text = match quoted(line) {
            hidden if hidden == HIDDEN => hidden,
            _ => shown(&quoted(from.unwrap_or(line).trim())),
        };
        match of_parser(message).as_str() {
            "duplicate key" => {
                let lists = self.root.headings().into_iter().filter(|heading| heading.is_list);
                let lists: Vec<String> = lists.map(|heading| heading.text).collect();
                let lists = match lists.len() {
                    0..=HOMES_MAX => lists.join(" or "),
                    _ => "table of a list".into(),
                };
                format!(
                    "`{text}` is repeated: allowed is once in a table; delete one, or begin \
                     another {lists}"
                )
            }
            message => format!("`{text}`: {message}: {TOML}"),
        }
    }

    /// The keys that are allowed in place of a key that `section` does not have.
    pub(crate) fn other_than(&self, section: &Section, key: &str) -> String {
        let names: Vec<&str> = section.keys.iter().map(|key| key.name).collect();
        let allowed = one_of(key, &names);
        let mut homes: Vec<String> = Vec::new();
        for heading in self.root.headings() {
            if heading.section.key(key).is_some() && !homes.contains(&heading.text) {
                homes.push(heading.text);
            }
        }
        match homes.len() {
            1..=HOMES_MAX => {
                format!("{allowed}; `{key}` belongs to {}: move it there", homes.join(" and "))
            }
            0 if nearest(key, &names).is_none() => {
                let version = env!("CARGO_PKG_VERSION");
                format!("{allowed}; this is forebay {version}; a newer version may have more keys")
            }
            _ => allowed,
        }
    }
}

/// A file under check.
#[derive(Debug)]
pub struct Document {
    pub(crate) format: &'static Format,
    file: String,
    tree: Table,
    start: Origin,
    problems: RefCell<Vec<Problem>>,
}

impl Document {
    /// The document of `tree`, which was read from `file`.
    pub fn new(file: &str, tree: Table, format: &'static Format) -> Self {
        let (start, problems) = (Origin::start_of(file), RefCell::default());
        Self { format, file: file.into(), tree, start, problems }
    }

    /// A reader of the top level.
    pub fn root(&self) -> Reader<'_> {
        Reader::of(self, &self.tree, self.format.root, &self.start)
    }

    /// Notes every key that is unknown, missing, of the wrong type or out of range.
    pub fn visit(&self) {
        self.root().visit();
    }

    /// Notes a problem, unless it is known or there are enough.
    pub fn note(&self, problem: impl Into<Problem>) {
        let problem = problem.into();
        let mut problems = self.problems.borrow_mut();
        if problems.len() < PROBLEMS_MAX && !problems.iter().any(|known| known.repeats(&problem)) {
            problems.push(problem);
        }
    }

    /// Notes all problems of `error`.
    pub fn note_all(&self, error: FileError) {
        error.problems.into_iter().for_each(|problem| self.note(problem));
    }

    /// All problems.
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }

    /// Whether something is wrong so far.
    pub fn is_wrong(&self) -> bool {
        !self.problems.borrow().is_empty()
    }

    /// Whether no further problem would be reported.
    pub fn is_full(&self) -> bool {
        self.problems.borrow().len() >= PROBLEMS_MAX
    }

    /// `value`, if nothing was wrong.
    ///
    /// # Errors
    ///
    /// All problems, by line.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, FileError> {
        let Self { file, problems, .. } = self;
        let mut problems = problems.into_inner();
        match value {
            Some(value) if problems.is_empty() => Ok(value),
            value => {
                debug_assert!(
                    value.is_some() || !problems.is_empty(),
                    "{file}: no problem was noted"
                );
                problems.sort_by_key(|it| (it.file != file, it.line));
                Err(FileError { file, problems })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::units::Duration;

    use super::*;
    use crate::schema::{Kind, key};

    /// The table of the test format.
    static INNER: Section = Section {
        summary: "A table.",
        keys: &[
            key("name", Kind::Name(8, "_"), "", "what it is called"),
            key("wait", WAIT, "\"1s\"", "how long"),
        ],
    };
    /// The test format.
    static ROOT: Section = Section {
        summary: "A file.",
        keys: &[
            key("count", Kind::Whole(1, 9), "", "how many").also(", odd"),
            key("part", Kind::Tables(&INNER), "none", "its parts"),
        ],
    };
    /// A duration with bounds.
    const WAIT: Kind = Kind::Duration(Duration::from_millis(1), Duration::from_secs(2));
    /// The test format; problems name elements of lists.
    static NAMED: Format = Format { root: &ROOT, names_elements: true };
    /// The test format; problems number elements of lists.
    static UNNAMED: Format = Format { root: &ROOT, names_elements: false };

    fn errors(text: &str, format: &'static Format) -> String {
        let tree = format.parse("f.toml", text);
        let read = tree.and_then(|tree| {
            let document = Document::new("f.toml", tree, format);
            document.visit();
            document.finish(Some(()))
        });
        read.err().map_or(String::new(), |error| error.to_string())
    }

    #[test]
    fn every_key_is_visited() {
        let text =
            "count = 12\nname = \"x\"\n[[part]]\nname = \"a\"\nwait = 5\n[[part]]\nnmae = \"b\"\n";
        let expected = [
            "f.toml: 5 errors",
            "f.toml:1: count = 12: allowed is a whole number, 1 to 9, odd",
            "f.toml:2: name = \"x\": no such key: allowed is one of count, part; `name` belongs to [[part]]: move it there",
            "f.toml:5: part.a.wait = 5: allowed is a duration such as \"50ms\", 1ms to 2s",
            "f.toml:6: part.1.name is missing: allowed is a text of 1 to 8 letters, digits or `_`",
            "f.toml:7: part.1.nmae = \"b\": no such key: allowed is one of name, wait; nearest is name",
        ];
        assert_eq!(errors(text, &NAMED).lines().collect::<Vec<_>>(), expected);
        assert!(errors(text, &UNNAMED).contains("f.toml:5: part.wait = 5: "));
        assert_eq!(errors("count = 1\n[[part]]\nname = \"a\"\n", &NAMED), "");
    }

    #[test]
    fn keys_of_boxes_are_never_shown() {
        let key = "0123456789abcdef".repeat(4);
        for text in [format!("count = \"{key}\""), format!("{key} = 1"), key.clone()] {
            let error = errors(&text, &NAMED);
            assert!(!error.is_empty() && !error.contains(&key[..16]), "{error}");
        }
    }

    #[test]
    fn tables_and_schema_follow_from_keys() {
        let headings = ROOT.headings();
        let texts: Vec<&str> = headings.iter().map(|heading| &*heading.text).collect();
        assert_eq!(texts, ["(top level)", "[[part]]"]);
        let line = "| `wait` | \"1s\" | a duration such as \"50ms\", 1ms to 2s | how long |\n";
        assert!(ROOT.markdown().contains(line), "{}", ROOT.markdown());
        assert!(ROOT.listing().contains("[[part]]\n  # A table.\n  name"));
        let schema = ROOT.json_schema();
        assert_eq!(schema["required"], serde_json::json!(["count"]));
        assert_eq!(schema["properties"]["count"]["maximum"], 9);
        assert_eq!(schema["properties"]["part"]["items"]["properties"]["wait"]["type"], "string");
    }
}
