//! Texts: line-based data files (link traces, size CDFs), with numbered lines and errors that name them, and what panics
//! say.

use alloc::string::{String, ToString};
use core::any::Any;

/// Longest piece of a bad line that an error quotes (characters).
const QUOTED_CHARS: usize = 40;

/// What is wrong with a data file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {value:?}: allowed is {allowed}")]
pub struct TextError {
    /// The file, as the caller named it.
    pub file: String,
    /// Line, from 1; the last line where something is missing at the end.
    pub line: usize,
    /// The offending value, shortened to 40 characters.
    pub value: String,
    /// What would be accepted.
    pub allowed: String,
}

impl TextError {
    /// An error about `value` in `line` of `file`.
    pub fn new(file: &str, line: usize, value: &str, allowed: &str) -> Self {
        let value = value.chars().take(QUOTED_CHARS).collect();
        Self { file: file.to_string(), line, value, allowed: allowed.to_string() }
    }
}

/// The lines of `text` that carry data, with their numbers: blank lines and everything after `#`
/// are left out.
pub fn data_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let data = line.split('#').next().unwrap_or("").trim();
        (!data.is_empty()).then_some((index + 1, data))
    })
}

/// What a panic says; `None`: it carries something else than a text.
pub fn of_panic(panic: &(dyn Any + Send)) -> Option<&str> {
    let plain = panic.downcast_ref::<&str>().copied();
    plain.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_says_its_text_if_it_has_one() {
        assert_eq!(of_panic(&"plain"), Some("plain"));
        assert_eq!(of_panic(&"of 3".to_string()), Some("of 3"));
        assert_eq!(of_panic(&7_u8), None);
    }

    #[test]
    fn comments_and_blank_lines_keep_their_numbers() {
        let lines: Vec<_> = data_lines("# head\n\n1 # one\r\n  2\n").collect();
        assert_eq!(lines, [(3, "1"), (4, "2")]);
    }

    #[test]
    fn errors_name_everything() {
        let error = TextError::new("a.trace", 7, "x", "a whole number");
        assert_eq!(error.to_string(), "a.trace:7: \"x\": allowed is a whole number");
    }
}
