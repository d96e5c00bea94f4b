//! Formats log lines for people or as JSON, with the id of their event.
//!
//! ```text
//! 2026-11-25T01:02:03.000004Z  WARN FB0202 peer: receivebox is silent: not shaped bundle="b"
//! {"time":"2026-11-25T01:02:03.000004Z","level":"warn","id":"FB0202","event":"peer","bundle":"b","message":"..."}
//! ```
//! Under systemd, whose journal adds the time, a line for people begins with its level as in sd-daemon(3), so that
//! `journalctl -p warning` works. At most 2,048 lines per minute are written about an event; the next line says how
//! many were left out.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::events::{EVENTS, UNKNOWN, place};

/// Variable of the environment that chooses the format: `text` or `json`.
pub const VARIABLE: &str = "FOREBAY_LOG_FORMAT";

/// Variable by which systemd names the journal's file (systemd.exec(5)).
pub const JOURNAL: &str = "JOURNAL_STREAM";

/// Most lines about one event in a minute, of the level `info` or above: two for each of 1,024 bundles.
const LINES_A_MINUTE: u32 = 2048;

/// Formats the lines of the log.
pub struct Lines {
    is_json: bool,
    /// Stderr leads to the journal.
    is_journal: bool,
    windows: Mutex<Vec<Window>>,
}

/// Number of lines about an event in the last minute.
#[derive(Clone, Copy)]
struct Window {
    began: Instant,
    lines: u32,
    /// Lines left out since the last written one.
    left_out: u64,
}

impl Window {
    /// Whether a line may be written at `now`: the number of lines left out before it, or `None`.
    fn takes(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.began) >= Duration::from_secs(60) {
            (self.began, self.lines) = (now, 0);
        }
        if self.lines == LINES_A_MINUTE {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl Lines {
    /// Reads the format from the environment.
    ///
    /// # Errors
    ///
    /// If [`VARIABLE`] has an unknown value; the text names the allowed ones.
    pub fn of_environment() -> Result<Self, String> {
        let is_json = match std::env::var(VARIABLE).as_deref() {
            Err(std::env::VarError::NotPresent) | Ok("" | "text") => false,
            Ok("json") => true,
            other => {
                let value = other.unwrap_or("no text");
                return Err(format!("{VARIABLE}={value}: allowed is text or json"));
            }
        };
        Ok(Self::new(is_json, is_journal()))
    }

    fn new(is_json: bool, is_journal: bool) -> Self {
        let fresh = Window { began: Instant::now(), lines: 0, left_out: 0 };
        Self { is_json, is_journal, windows: Mutex::new(vec![fresh; EVENTS.len()]) }
    }

    /// Whether a line about the event at `place` may be written: the number of lines left out before it, or `None`.
    fn takes(&self, place: Option<usize>, level: Level) -> Option<u64> {
        let Some(place) = place.filter(|_| level <= Level::INFO) else { return Some(0) };
        // No code panics while it holds the lock.
        let mut windows = self.windows.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        windows[place].takes(Instant::now())
    }
}

/// Whether stderr leads to the journal.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var(JOURNAL) else { return false };
    let file = nix::sys::stat::fstat(std::io::stderr());
    file.is_ok_and(|file| stream == format!("{}:{}", file.st_dev, file.st_ino))
}

/// The priority of a level (syslog(3)).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let (level, target, place) = (*metadata.level(), metadata.target(), place(metadata));
        let id = place.map_or(UNKNOWN, |place| EVENTS[place].id);
        let Some(left_out) = self.takes(place, level) else { return Ok(()) };
        if self.is_json {
            return writeln!(out, "{}", document(event, id, left_out));
        }
        if self.is_journal {
            write!(out, "<{}>", priority(level))?;
        } else {
            SystemTime.format_time(&mut out)?;
            write!(out, " {level:>5} ")?;
        }
        write!(out, "{id} {target}: ")?;
        context.field_format().format_fields(out.by_ref(), event)?;
        if left_out > 0 {
            write!(out, " left_out={left_out}")?;
        }
        writeln!(out)
    }
}

/// A line as a JSON object.
fn document(event: &Event<'_>, id: &str, left_out: u64) -> Value {
    let mut time = String::new();
    // Writing to a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let metadata = event.metadata();
    let mut fields = Fields::default();
    event.record(&mut fields);
    let Fields(mut document) = fields;
    let level = metadata.level().as_str().to_ascii_lowercase();
    for (key, text) in
        [("time", &time[..]), ("level", &level), ("id", id), ("event", metadata.target())]
    {
        document.insert(key.into(), text.into());
    }
    if left_out > 0 {
        document.insert("left_out".into(), left_out.into());
    }
    Value::Object(document)
}

/// The values of a line by name; the sentence is `message`.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().into(), value.into());
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::Arc;

    use super::*;

    /// The bytes that were logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(lines: Lines, work: impl FnOnce()) -> String {
        let log = Log::default();
        let (out, max) = (log.clone(), Level::DEBUG);
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(max)
            .with_ansi(false)
            .with_writer(move || out.clone())
            .event_format(lines)
            .finish();
        tracing::subscriber::with_default(subscriber, work);
        String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
    }

    fn silent() {
        let min_rtt: Option<&str> = None;
        tracing::warn!(target: "peer", bundle = "b\"1\"", packets = 3, min_rtt, "it is silent");
    }

    #[test]
    fn text_line_has_all_fields_and_values() {
        let line = logged(Lines::new(false, false), silent);
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.ends_with('Z') && time.contains('T'), "{line}");
        assert_eq!(rest, " WARN FB0202 peer: it is silent bundle=\"b\\\"1\\\"\" packets=3\n");
    }

    #[test]
    fn journal_line_has_priority_instead_of_time() {
        let line = logged(Lines::new(false, true), silent);
        assert!(line.starts_with("<4>FB0202 peer: it is silent bundle="), "{line}");
    }

    #[test]
    fn json_line_is_one_object_with_typed_values() {
        let line = logged(Lines::new(true, true), silent);
        assert!(line.ends_with("}\n") && line.lines().count() == 1, "{line}");
        let mut document: Value = serde_json::from_str(&line).unwrap();
        assert!(document["time"].take().as_str().unwrap().ends_with('Z'));
        let expected = serde_json::json!({
            "time": null, "level": "warn", "id": "FB0202", "event": "peer",
            "bundle": "b\"1\"", "packets": 3, "message": "it is silent",
        });
        assert_eq!(document, expected);
    }

    #[test]
    fn endless_event_is_rate_limited_separately() {
        let text = logged(Lines::new(false, false), || {
            for _ in 0..2 * LINES_A_MINUTE {
                silent();
                tracing::debug!(target: "control", "a client");
            }
            tracing::info!(target: "peer", "it is there");
        });
        let count = |id: &str| text.matches(id).count();
        assert_eq!(count(" FB0202 "), LINES_A_MINUTE as usize);
        assert_eq!((count(" FB0505 "), count(" FB0201 ")), (2 * LINES_A_MINUTE as usize, 1));
        let mut window = Window { began: Instant::now(), lines: LINES_A_MINUTE, left_out: 4 };
        assert_eq!(window.takes(window.began), None);
        let later = window.began + Duration::from_secs(60);
        assert_eq!((window.takes(later), window.takes(later)), (Some(5), Some(0)));
    }
}
