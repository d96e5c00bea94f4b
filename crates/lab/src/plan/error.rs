//! What is wrong with a plan, said so that it can be mended.

use forebay_core::text::TextError;

use super::tree::Origin;

/// A plan, or a file it names, that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The text is not TOML.
    #[error("{at}: {message}")]
    Syntax {
        /// Where the file says so.
        at: Origin,
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
    pub fn syntax(at: Origin, message: &str) -> Self {
        // The parser's messages may span lines; ours are one line each.
        Self::Syntax { at, message: message.lines().collect::<Vec<_>>().join(", ") }
    }

    /// A wrong key or value.
    pub fn value(at: Origin, key: &str, value: &str, allowed: &str) -> Self {
        Self::Value { at, key: key.into(), value: value.into(), allowed: allowed.into() }
    }

    /// An unreadable file.
    pub fn file(file: &str, reason: impl ToString) -> Self {
        Self::File { file: file.into(), reason: reason.to_string() }
    }
}
