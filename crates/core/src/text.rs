//! Texts: line-based data files (link traces, size CDFs), with numbered lines and errors that name them.
//! Quotes of files in errors, and messages of panics.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use core::any::Any;

/// Longest piece of a file that does not parse which an error quotes (characters): enough to find it.
pub const QUOTED_CHARS: usize = 20;

/// Hexadecimal digits in a row that look like a key, or a part of one. A number of 64 bits has at most 20 digits.
const KEY_DIGITS: usize = 24;

/// Replacement in an error for a text that looks like a key.
pub const HIDDEN: &str = "(not shown: it looks like a key)";

/// An error in a data file, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {value:?}: allowed is {allowed}")]
pub struct TextError {
    /// The file, as the caller named it.
    pub file: String,
    /// Line, from 1; the last line where something is missing at the end.
    pub line: usize,
    /// Column of the value, from 1 (bytes).
    pub column: usize,
    /// The offending value, as [`quoted`] has it.
    pub value: String,
    /// The values that are accepted.
    pub allowed: String,
}

impl TextError {
    /// An error about `value`, which is a part of `line` of `file`.
    pub fn new(file: &str, line: Line<'_>, value: &str, allowed: &str) -> Self {
        let within = value.as_ptr().addr().saturating_sub(line.text.as_ptr().addr());
        let column = line.column + if within <= line.text.len() { within } else { 0 };
        let (file, allowed) = (file.to_string(), allowed.to_string());
        Self { file, line: line.number, column, value: quoted(value), allowed }
    }
}

/// A line that carries data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// From 1.
    pub number: usize,
    /// Where the data begins, from 1 (bytes).
    pub column: usize,
    /// The data.
    pub text: &'a str,
}

impl Line<'_> {
    /// Where something is missing in a file without data.
    pub const FIRST: Self = Self { number: 1, column: 1, text: "" };
}

/// The lines of `text` that carry data: a byte-order mark at its start, blank lines and everything after `#` are left out.
pub fn data_lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate().filter_map(|(index, line)| {
        let data = line.split('#').next().unwrap_or("").trim_end();
        let text = data.trim_start();
        let column = 1 + data.len() - text.len();
        (!text.is_empty()).then_some(Line { number: index + 1, column, text })
    })
}

/// Line and column, both from 1 (bytes), of an offset in a text.
pub fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    (line, 1 + before.len() - line_start)
}

/// The part of a file that does not parse which an error quotes: at most 20 characters, and nothing that
/// looks like a key.
pub fn quoted(text: &str) -> String {
    if keys(text).next().is_some() {
        return HIDDEN.to_string();
    }
    text.chars().take(QUOTED_CHARS).collect()
}

/// `text` as a shell reads it, as one word: in quotes where it needs these.
pub fn shell_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:,@%=".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// `text` without the parts that look like keys.
pub fn without_keys(text: &str) -> Cow<'_, str> {
    let mut keys = keys(text).peekable();
    if keys.peek().is_none() {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut end) = (String::new(), 0);
    for (from, to) in keys {
        shown += &text[end..from];
        shown += HIDDEN;
        end = to;
    }
    shown += &text[end..];
    Cow::Owned(shown)
}

/// A parser's message on one line: without texts that look like keys, and with no more than 20 characters of
/// each piece of the file that it quotes.
pub fn of_parser(message: &str) -> String {
    let message = message.trim().replace('\n', ", ");
    let message = without_keys(&message);
    let mut said = String::new();
    let mut quote: Option<(char, usize)> = None;
    for letter in message.chars() {
        match &mut quote {
            Some((mark, _)) if letter == *mark => quote = None,
            Some((_, count)) => {
                *count += 1;
                if *count > QUOTED_CHARS {
                    continue;
                }
            }
            None if letter == '"' || letter == '`' => quote = Some((letter, 0)),
            None => {}
        }
        said.push(letter);
    }
    said
}

/// Places in `text` that look like keys.
fn keys(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    core::iter::from_fn(move || {
        while at < bytes.len() {
            let from = at;
            while at < bytes.len() && bytes[at].is_ascii_hexdigit() {
                at += 1;
            }
            if at - from >= KEY_DIGITS {
                return Some((from, at));
            }
            at += usize::from(at == from);
        }
        None
    })
}

/// The message of a panic; `None`: it carries something else than a text.
pub fn of_panic(panic: &(dyn Any + Send)) -> Option<&str> {
    let plain = panic.downcast_ref::<&str>().copied();
    plain.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_word_is_quoted_where_needed() {
        for (text, word) in [
            ("/home/me/my_cc", "/home/me/my_cc"),
            ("cubic(hystart=off)", "'cubic(hystart=off)'"),
            ("/home/me/my cc", "'/home/me/my cc'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }

    #[test]
    fn panic_text_is_returned_if_present() {
        assert_eq!(of_panic(&"plain"), Some("plain"));
        assert_eq!(of_panic(&"of 3".to_string()), Some("of 3"));
        assert_eq!(of_panic(&7_u8), None);
    }

    #[test]
    fn comments_and_blank_lines_keep_their_numbers() {
        let lines = data_lines("\u{feff}# head\n\n1 # one\r\n  2\n");
        let lines: Vec<_> = lines.map(|line| (line.number, line.column, line.text)).collect();
        assert_eq!(lines, [(3, 1, "1"), (4, 3, "2")]);
    }

    #[test]
    fn errors_name_everything() {
        let line = Line { number: 7, column: 3, text: "12 x" };
        let error = TextError::new("a.trace", line, &line.text[3..], "a whole number");
        assert_eq!(error.to_string(), "a.trace:7:6: \"x\": allowed is a whole number");
    }

    #[test]
    fn offsets_have_lines_and_columns() {
        let places = [0, 2, 3, 4, 99].map(|offset| position("ab\ncd", offset));
        assert_eq!(places, [(1, 1), (1, 3), (2, 1), (2, 2), (2, 3)]);
    }

    #[test]
    fn keys_are_never_quoted() {
        let key = "0123456789abcdef".repeat(4);
        assert_eq!(quoted(&key), HIDDEN);
        assert_eq!(quoted("x".repeat(30).as_str()), "x".repeat(20));
        assert_eq!(quoted("18446744073709551615"), "18446744073709551615");
        let said = format!("a = \"{key}\", b");
        assert_eq!(without_keys(&said), format!("a = \"{HIDDEN}\", b"));
        for cut in [24, 40, 63] {
            assert_eq!(quoted(&key[..cut]), HIDDEN);
            assert!(!of_parser(&format!("invalid `{}x`", &key[..cut])).contains(&key[..16]));
        }
        let long = format!("invalid type: string \"{}\", expected `a`", "y".repeat(50));
        let short = format!("invalid type: string \"{}\", expected `a`", "y".repeat(20));
        assert_eq!(of_parser(&long), short);
    }
}
