//! The children's standard error as lines of the log, limited in number and length and marked as theirs.

use std::fmt::Write;
use std::io::{ErrorKind, Read};

use forebay_core::units::{Duration, Timestamp};

use crate::log::foreign::plain;

/// Longest line in bytes, before escaping.
const LINE_MAX: usize = 1000;
/// Bytes in front of each line in the log.
const HEAD: usize = 64;
/// Bytes that children may write to the log at once.
const BURST: u64 = 16_000;
/// Time after which a burst of [`BURST`] bytes may follow: 1 kB/s on average.
const REFILL: Duration = Duration::from_secs(16);
/// Bytes of the log in all, from one start of a daemon to the next.
const TOTAL_MAX: u64 = 64 << 20;

/// Calls `tell` for each line `from` children, until all writers have closed their end.
pub fn tell_lines(mut from: impl Read, now: impl Fn() -> Timestamp, mut tell: impl FnMut(&str)) {
    let (mut lines, mut chunk) = (Lines::default(), [0; 4096]);
    loop {
        let length = match from.read(&mut chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        for byte in &chunk[..length] {
            if let Some(line) = lines.take(*byte, &now) {
                tell(&line);
            }
        }
    }
}

/// Collects lines byte by byte.
#[derive(Default)]
struct Lines {
    line: Vec<u8>,
    /// Bytes cut off the end of this line.
    cut: u64,
    /// Lines left out since the last logged one.
    left_out: u64,
    /// Time at which the allowance for bytes is full again.
    settled_at: Timestamp,
    /// Bytes logged in all.
    told: u64,
}

impl Lines {
    /// Takes a byte. Returns the line that the byte ends, if the log may take it.
    fn take(&mut self, byte: u8, now: impl Fn() -> Timestamp) -> Option<String> {
        match byte {
            b'\n' => return self.end(now()),
            _ if self.line.len() < LINE_MAX => self.line.push(byte),
            _ => self.cut += 1,
        }
        None
    }

    fn end(&mut self, now: Timestamp) -> Option<String> {
        let mut line = plain(&String::from_utf8_lossy(&self.line));
        self.line.clear();
        let cut = std::mem::take(&mut self.cut);
        if line.is_empty() {
            return None;
        }
        if !self.may_tell((line.len() + HEAD) as u64, now) {
            self.left_out += 1;
            return None;
        }
        let left_out = std::mem::take(&mut self.left_out);
        let is_last = self.told > TOTAL_MAX;
        for (applies, words) in [
            (cut > 0, format!("{cut} more bytes")),
            (left_out > 0, format!("{left_out} lines before it are left out")),
            (is_last, "no further output is logged".into()),
        ] {
            if applies {
                // Writing to a string cannot fail.
                let _ = write!(line, " ({words})");
            }
        }
        Some(line)
    }

    /// Whether this number of bytes may be logged at `now`. Counts them if so.
    fn may_tell(&mut self, bytes: u64, now: Timestamp) -> bool {
        let takes_ns = REFILL.as_nanos() as u64 * bytes / BURST;
        let settled_at = self.settled_at.max(now) + Duration::from_nanos(takes_ns);
        let may = self.told <= TOTAL_MAX && settled_at.saturating_since(now) <= REFILL;
        if may {
            self.settled_at = settled_at;
            self.told += bytes;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines logged for `text`, if it comes at this time.
    fn told(lines: &mut Lines, text: &str, at_s: u64) -> Vec<String> {
        let now = || Timestamp::from_nanos(at_s * 1_000_000_000);
        text.bytes().filter_map(|byte| lines.take(byte, now)).collect()
    }

    #[test]
    fn logged_line_has_no_control_characters() {
        let text = b"\x1b[2J<0>FB0101 started:\rx\n\n\xff and so on\nnot ended";
        let mut lines = Vec::new();
        tell_lines(&text[..], || Timestamp::ZERO, |line| lines.push(line.to_string()));
        assert_eq!(lines, ["\\u{1b}[2J<0>FB0101 started:\\rx", "\u{fffd} and so on"]);
    }

    #[test]
    fn a_line_that_is_too_long_is_cut() {
        let text = "a".repeat(5000) + "\nb\n";
        let lines = told(&mut Lines::default(), &text, 0);
        assert_eq!(lines, ["a".repeat(LINE_MAX) + " (4000 more bytes)", "b".into()]);
    }

    #[test]
    fn burst_is_logged_then_limited_per_second() {
        let mut lines = Lines::default();
        let each = 1 + HEAD as u64;
        let first = told(&mut lines, &"x\n".repeat(10_000), 1);
        assert_eq!(first.len() as u64, BURST / each);
        let next = told(&mut lines, &"x\n".repeat(10_000), 2);
        assert_eq!(next[0], format!("x ({} lines before it are left out)", 10_000 - first.len()));
        assert!((1000 / each..=1000 / each + 1).contains(&(next.len() as u64)), "{}", next.len());
        assert_eq!(told(&mut lines, &"x\n".repeat(10_000), 1000).len(), first.len());
    }

    #[test]
    fn in_all_there_is_an_end() {
        let mut lines = Lines { told: TOTAL_MAX - 3000, ..Lines::default() };
        let text = ("a".repeat(LINE_MAX) + "\n").repeat(5);
        let told = told(&mut lines, &text, 1);
        assert_eq!(told.len(), 3);
        assert!(told[2].ends_with("a (no further output is logged)"), "{}", told[2]);
    }
}
