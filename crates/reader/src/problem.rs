//! Problems of a file, in the words that users read.

use std::fmt;

use forebay_core::text::{TextError, of_parser, without_keys};

use crate::tree::Origin;

/// Most problems that are reported of one file: a user with more corrects these first.
pub const PROBLEMS_MAX: usize = 50;

/// Longest value that a message quotes (characters).
const VALUE_CHARS: usize = 80;

/// All problems of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FileError {
    /// The file, as the user named it.
    pub file: String,
    /// At least one, by line; those without a line come first.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file: the plan, a plan that it extends, or `--set`.
    pub file: String,
    /// The line, from 1, where it is known.
    pub line: Option<usize>,
    /// The column, from 1 (bytes), of text that does not parse.
    pub column: Option<usize>,
    /// The problem there.
    pub what: Wrong,
}

/// The problem at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The table has no such key.
    Key {
        /// The dotted key.
        key: String,
        /// The value as written.
        value: String,
        /// The keys that there are.
        allowed: String,
    },
    /// A value is of the wrong type or out of range.
    Value {
        /// The dotted key.
        key: String,
        /// The value as written.
        value: String,
        /// The values that would be accepted.
        allowed: String,
    },
    /// A required key is absent.
    Missing {
        /// The dotted key.
        key: String,
        /// The values that would be accepted.
        allowed: String,
    },
    /// A value of a data file, such as a trace.
    Data {
        /// The value as written.
        value: String,
        /// The values that would be accepted.
        allowed: String,
    },
    /// Anything else, in its own words.
    Other(String),
}

impl FileError {
    /// A single problem of `file`, at no line.
    pub fn of(file: impl fmt::Display, reason: impl fmt::Display) -> Self {
        let problem = Problem::of_line(&file, None, reason);
        Self { file: problem.file.clone(), problems: vec![problem] }
    }
}

impl From<Problem> for FileError {
    fn from(problem: Problem) -> Self {
        Self { file: problem.file.clone(), problems: vec![problem] }
    }
}

impl fmt::Display for FileError {
    /// A line for each problem, as editors follow them. If there are several, a line with their number comes
    /// first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.problems.len() > 1 {
            writeln!(f, "{}: {} errors", self.file, self.problems.len())?;
        }
        for (place, problem) in self.problems.iter().enumerate() {
            write!(f, "{}{problem}", if place == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl Problem {
    /// The value of `key`, written at `at`, is not `allowed`.
    pub fn value(at: &Origin, key: &str, allowed: impl Into<String>) -> Self {
        let value = at.written().into();
        Self::at(at, Wrong::Value { key: key.into(), value, allowed: allowed.into() })
    }

    /// As [`Problem::value`], for a value that is written in the text in another form or as a part of a
    /// larger one.
    pub fn of_value(at: &Origin, key: &str, value: &str, allowed: impl Into<String>) -> Self {
        Self::at(at, Wrong::Value { key: key.into(), value: value.into(), allowed: allowed.into() })
    }

    /// A problem at `at`.
    pub fn at(at: &Origin, what: Wrong) -> Self {
        Self { file: at.file().into(), line: at.line(), column: None, what }
    }

    /// A problem of a file at a line, in its own words.
    pub fn of_line(
        file: impl fmt::Display,
        line: Option<usize>,
        reason: impl fmt::Display,
    ) -> Self {
        let what = Wrong::Other(reason.to_string());
        Self { file: file.to_string(), line, column: None, what }
    }

    /// Text that does not parse.
    pub fn syntax(at: &Origin, message: &str) -> Self {
        let column = at.line().map(|_| at.column());
        Self { column, ..Self::at(at, Wrong::Other(of_parser(message))) }
    }

    /// The key that the problem is about, its value and the allowed values, each where there is one.
    pub fn parts(&self) -> [Option<&str>; 3] {
        match &self.what {
            Wrong::Key { key, value, allowed } | Wrong::Value { key, value, allowed } => {
                [Some(key), Some(value), Some(allowed)]
            }
            Wrong::Missing { key, allowed } => [Some(key), None, Some(allowed)],
            Wrong::Data { value, allowed } => [None, Some(value), Some(allowed)],
            Wrong::Other(_) => [None; 3],
        }
    }

    /// Whether both report the same problem of one place: copies of a table repeat its problems under other
    /// names.
    pub(crate) fn repeats(&self, other: &Self) -> bool {
        let [own, others] = [self, other].map(|it| {
            let [key, value, allowed] = it.parts();
            let name = |key: &str| match it.line {
                Some(_) => key.rsplit('.').next().map(String::from),
                None => Some(key.into()),
            };
            (&it.file, it.line, key.and_then(name), value, allowed)
        });
        self == other || own == others && own.4.is_some()
    }
}

impl From<TextError> for Problem {
    fn from(error: TextError) -> Self {
        let TextError { file, line, column, value, allowed } = error;
        Self { file, line: Some(line), column: Some(column), what: Wrong::Data { value, allowed } }
    }
}

impl fmt::Display for Problem {
    /// On one line, without anything that looks like a key: a key file may have been given in the place of another.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        let text = match &self.what {
            Wrong::Key { key, value, allowed } => {
                let (key, value) = (shown(key), shown(value));
                format!("{key} = {value}: no such key: allowed is {allowed}")
            }
            Wrong::Value { key, value, allowed } => {
                format!("{} = {}: allowed is {allowed}", shown(key), shown(value))
            }
            Wrong::Missing { key, allowed } => {
                format!("{} is missing: allowed is {allowed}", shown(key))
            }
            Wrong::Data { value, allowed } => format!("{value:?}: allowed is {allowed}"),
            Wrong::Other(text) => text.clone(),
        };
        write!(f, ": {}", without_keys(&text))
    }
}

/// The first 80 characters of the first line of `text`, its control characters written out: none moves a cursor.
pub(crate) fn shown(text: &str) -> String {
    let line = text.trim().chars().take(VALUE_CHARS);
    line.fold(String::new(), |mut shown, letter| {
        if letter.is_control() {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
        shown
    })
}
