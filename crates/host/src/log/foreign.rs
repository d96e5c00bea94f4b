//! Prepares texts from outside the program for the log.

/// Most characters of a text of several lines.
const CHARACTERS_MAX: usize = 8_000;

/// Puts `text` on one line, with control characters written as `\n` or `\u{1b}`, so that none moves a
/// terminal's cursor.
pub fn plain(text: &str) -> String {
    let mut line = String::new();
    for letter in text.chars() {
        if letter.is_control() {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line
}

/// The first 8,000 characters of `text`, with a mark in front of each line, so that no reader takes it for
/// a line of the log.
pub fn quoted(text: &str) -> String {
    let end = text.char_indices().nth(CHARACTERS_MAX).map_or(text.len(), |(end, _)| end);
    let lines = text[..end].lines().map(|line| format!("  | {}", plain(line)));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_and_letters_stay() {
        assert_eq!(plain("\u{1b}[2J a\tb\r\n\u{9b}é"), "\\u{1b}[2J a\\tb\\r\\n\\u{9b}é");
    }

    #[test]
    fn foreign_lines_are_distinguished_from_own() {
        let text = "Traceback\n<3>FB0101 started: \u{7}\n\nLookupError\n";
        let expected = "  | Traceback\n  | <3>FB0101 started: \\u{7}\n  | \n  | LookupError";
        assert_eq!(quoted(text), expected);
        assert_eq!(quoted(&"é".repeat(9_000)).chars().count(), 4 + CHARACTERS_MAX);
    }
}
