//! What is wrong with a plan, said so that it can be mended.

use forebay_core::text::{TextError, of_parser, without_keys};

use super::tree::Origin;

/// A plan, or a file it names, that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The text is not TOML.
    #[error("{at}{}: {message}", column.map_or(String::new(), |column| format!(":{column}")))]
    Syntax {
        /// Where the file says so.
        at: Origin,
        /// Column, from 1 (bytes); `None` on the command line.
        column: Option<usize>,
        /// What the TOML parser says.
        message: String,
    },
    /// A key is unknown or its value is out of range.
    #[error("{at}: {key} = {value}: allowed is {allowed}")]
    Value {
        /// Where the file says so.
        at: Origin,
        /// The dotted key.
        key: String,
        /// The value as written.
        value: String,
        /// What would be accepted.
        allowed: String,
    },
    /// A required key is absent.
    #[error("{at}: {key} is missing: allowed is {allowed}")]
    Missing {
        /// Where the surrounding table begins.
        at: Origin,
        /// The dotted key.
        key: String,
        /// What would be accepted.
        allowed: String,
    },
    /// A trace or size CDF is wrong.
    #[error(transparent)]
    Data(TextError),
    /// A file cannot be read.
    #[error("{file}: {reason}")]
    File {
        /// The file or plan name as given.
        file: String,
        /// Why, and what would do.
        reason: String,
    },
}

impl PlanError {
    /// Text that is not TOML.
    pub fn syntax(at: Origin, column: Option<usize>, message: &str) -> Self {
        Self::Syntax { at, column, message: of_parser(message) }
    }

    /// A wrong key or value.
    pub fn value(at: Origin, key: &str, value: &str, allowed: &str) -> Self {
        let [key, value] = [key, value].map(|text| without_keys(text).into_owned());
        Self::Value { at, key, value, allowed: allowed.into() }
    }

    /// An unreadable file.
    pub fn file(file: &str, reason: impl ToString) -> Self {
        Self::File { file: file.into(), reason: reason.to_string() }
    }
}
