//! A recording: the input and the decisions of an agent as JSON lines, so that a problem in the field
//! becomes a test ([`super::replay`]).
//!
//! The agent hands rows to a bounded queue and never waits; a separate thread writes them. A recording
//! with a gap could not be replayed. If the queue is full or the largest size is reached, the recording
//! ends with a row that says so.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_core::spec::Spec;
use forebay_core::text::of_parser;
use forebay_core::units::ByteCount;
use forebay_ebpf::tcp::Head;
use serde::{Deserialize, Serialize};

use super::flow::FlowOrigin;
use super::rows::{DecisionRow, ReportRow};
use crate::service::privileges::drop_unneeded;

/// Version of the rows. It grows if a field changes its meaning or is removed.
pub const SCHEMA: u32 = 1;
/// Rows that may wait for the writer: a second of 10,000 reports, each with its decision.
const QUEUE: usize = 20_000;
/// Longest line that is read, with its end, in bytes. Written lines have less than a tenth of it.
const LINE_MAX: u64 = 1 << 14;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingRow {
    /// The first row: the program that recorded.
    Start(Start),
    /// A connection came to the agent.
    Open(Open),
    /// The kernel reported.
    Report(ReportRow),
    /// The algorithm's timer was due.
    Timer {
        /// Number of the connection.
        flow: u64,
        /// Now, on `CLOCK_MONOTONIC`.
        at_ns: u64,
    },
    /// The agent decided.
    Decision(DecisionRow),
    /// The connection is gone.
    Close {
        /// Number of the connection.
        flow: u64,
    },
    /// The last row of a recording that ended before its agent.
    End {
        /// Why the recording ended.
        reason: String,
    },
}

/// The program and kernel that recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the program.
    pub version: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Algorithms that only set a window were paced.
    pub pace: bool,
}

/// A connection came to the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// Number of the connection, unique within the recording.
    pub flow: u64,
    /// The connection existed before the agent.
    pub adopted: bool,
    /// Algorithm and parameters.
    pub cc: Spec,
    /// Seed of the algorithm's random choices.
    pub seed: u64,
    /// Address and port of the destination.
    pub remote: Option<String>,
    /// First record of the connection.
    pub head: Head,
    /// Time that this record covers, if the connection existed before the agent.
    #[serde(default)]
    pub window_us: Option<u32>,
    /// Acknowledgements in that time.
    #[serde(default)]
    pub acks: Option<u32>,
}

impl Open {
    /// How the connection came to the agent.
    pub fn origin(&self) -> FlowOrigin {
        if self.adopted { FlowOrigin::Adopted } else { FlowOrigin::Opened }
    }
}

/// The agent's end of the queue of rows. Without a recording it does nothing.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    rows: Option<SyncSender<RecordingRow>>,
    ended: Arc<AtomicBool>,
}

impl Recorder {
    /// Whether a recording takes rows.
    pub fn is_on(&self) -> bool {
        self.rows.is_some() && !self.ended.load(Ordering::Relaxed)
    }

    /// Hands over a row. If the queue is full, the recording ends.
    pub fn put(&self, row: RecordingRow) {
        if self.is_on()
            && let Some(rows) = &self.rows
            && rows.try_send(row).is_err()
        {
            self.ended.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the recording has ended before the agent.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// A recorder whose rows a test takes.
    #[cfg(test)]
    pub(super) fn for_test() -> (Self, Receiver<RecordingRow>) {
        let (rows, taken) = sync_channel(QUEUE);
        (Self { rows: Some(rows), ended: Arc::default() }, taken)
    }
}

/// The thread that writes the rows, if there is a recording.
#[derive(Default)]
pub struct RecordingWriter(Option<JoinHandle<io::Result<()>>>);

impl RecordingWriter {
    /// Waits until all rows are in the file. Drop every [`Recorder`] before.
    pub fn finish(self) -> io::Result<()> {
        let Some(thread) = self.0 else { return Ok(()) };
        thread.join().map_err(|_| io::Error::other("the writer of the recording panicked"))?
    }
}

/// Creates the recording at `path`, of at most `limit` bytes, and starts its writer. The writer ends
/// when the last [`Recorder`] is dropped. An existing file stays unchanged, and the error has the kind
/// `AlreadyExists`.
pub fn start(
    path: &Path,
    limit: ByteCount,
    start: Start,
) -> io::Result<(Recorder, RecordingWriter)> {
    let shown = path.display().to_string();
    let named =
        move |error: io::Error| io::Error::new(error.kind(), format!("recording {shown}: {error}"));
    let out = BufWriter::new(create(path).map_err(&named)?);
    let (rows, received) = sync_channel(QUEUE);
    let ended = Arc::new(AtomicBool::new(false));
    let mut file = Recording { out, left: limit.as_u64(), ended: Arc::clone(&ended) };
    if !file.write(&RecordingRow::Start(start)).map_err(&named)? {
        // Leave no partly written file, which would block the next attempt.
        if path.is_file() {
            std::fs::remove_file(path).map_err(&named)?;
        }
        let reason = format!("{limit} are not enough for its first row");
        return Err(named(io::Error::new(io::ErrorKind::InvalidInput, reason)));
    }
    let thread = std::thread::Builder::new().name("recording".into()).spawn(move || {
        drop_unneeded()?;
        let written = file.write_all(&received);
        // The agent continues without a recording.
        file.ended.store(true, Ordering::Relaxed);
        let written = written.map_err(named);
        written.inspect_err(|error| {
            tracing::error!(target: "recording", "{error}: the recording \
                                                                          ends here")
        })
    })?;
    Ok((Recorder { rows: Some(rows), ended }, RecordingWriter(Some(thread))))
}

/// Creates a file, or opens an existing one that is not a regular file, such as a pipe.
fn create(path: &Path) -> io::Result<File> {
    match File::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir()) {
                return File::options().write(true).open(path);
            }
            let reason = "the file exists already: remove it or choose another name";
            Err(io::Error::new(error.kind(), reason))
        }
        created => created,
    }
}

struct Recording {
    out: BufWriter<File>,
    /// Bytes that may still be written, without the reserve for the last row.
    left: u64,
    ended: Arc<AtomicBool>,
}

impl Recording {
    fn write_all(&mut self, rows: &Receiver<RecordingRow>) -> io::Result<()> {
        loop {
            match rows.recv_timeout(Duration::from_millis(200)) {
                Ok(row) => {
                    if !self.write(&row)? {
                        return self.end("it has reached its maximum size");
                    }
                }
                // During a pause, make the rows visible to readers.
                Err(RecvTimeoutError::Timeout) => {
                    self.out.flush()?;
                    if self.ended.load(Ordering::Relaxed) {
                        return self.end("the disk did not keep up");
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    if self.ended.load(Ordering::Relaxed) {
                        return self.end("the disk did not keep up");
                    }
                    return self.out.flush();
                }
            }
        }
    }

    /// Writes a row; false if it does not fit any more.
    fn write(&mut self, row: &RecordingRow) -> io::Result<bool> {
        let mut text = serde_json::to_vec(row)?;
        text.push(b'\n');
        let Some(left) = self.left.checked_sub(text.len() as u64) else { return Ok(false) };
        self.left = left;
        self.out.write_all(&text)?;
        Ok(true)
    }

    fn end(&mut self, reason: &str) -> io::Result<()> {
        self.ended.store(true, Ordering::Relaxed);
        serde_json::to_writer(&mut self.out, &RecordingRow::End { reason: reason.into() })?;
        self.out.write_all(b"\n")?;
        self.out.flush()
    }
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The system's error.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A line is not a row, or is in the wrong place.
    #[error("{file}:{line}: {reason}")]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The mistake in the line.
        reason: String,
    },
}

/// Reads the recording at `path`, as [`read_from`] does.
pub fn read(
    path: &Path,
    take: impl FnMut(usize, RecordingRow) -> Result<(), String>,
) -> Result<bool, RecordingError> {
    let file =
        File::open(path).map_err(|error| RecordingError::Io { file: path.to_owned(), error })?;
    read_from(path, BufReader::new(file), take)
}

/// Reads a recording row by row, and passes each row with its line number to `take`. If `take` refuses
/// a row, the error names that line of `file`. Returns false if the last line is cut off, as a killed
/// agent leaves it.
pub fn read_from(
    file: &Path,
    mut lines: impl BufRead,
    mut take: impl FnMut(usize, RecordingRow) -> Result<(), String>,
) -> Result<bool, RecordingError> {
    let io = |error| RecordingError::Io { file: file.to_owned(), error };
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let read = lines.by_ref().take(LINE_MAX).read_until(b'\n', &mut text).map_err(io)?;
        if read == 0 {
            break;
        }
        let malformed = |reason| RecordingError::Malformed { file: file.to_owned(), line, reason };
        if text.last() != Some(&b'\n') {
            let is_cut = (read as u64) < LINE_MAX;
            let reason = || malformed(format!("a row has at most {LINE_MAX} bytes"));
            return if is_cut { Ok(false) } else { Err(reason()) };
        }
        let row = serde_json::from_slice(&text).map_err(|error| of_parser(&error.to_string()));
        row.and_then(|row| take(line, row)).map_err(malformed)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use forebay_ebpf::tcp::Report;

    use super::*;

    fn start_row() -> Start {
        Start { schema: SCHEMA, version: "0".into(), kernel: "6.18".into(), pace: false }
    }

    fn rows(path: &Path) -> (Vec<RecordingRow>, bool) {
        let mut rows = Vec::new();
        let is_whole = read(path, |_, row| {
            rows.push(row);
            Ok(())
        });
        (rows, is_whole.unwrap())
    }

    #[test]
    fn rows_round_trip_and_torn_line_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("recording");
        let (recorder, writer) = start(&file, ByteCount::new(1 << 20), start_row()).unwrap();
        let report = Report { rtt_us: Some(50_000), ..Report::default() };
        let report = ReportRow { flow: 7, report };
        recorder.put(RecordingRow::Report(report.clone()));
        recorder.put(RecordingRow::Close { flow: 7 });
        drop(recorder);
        writer.finish().unwrap();
        let expected = [
            RecordingRow::Start(start_row()),
            RecordingRow::Report(report),
            RecordingRow::Close { flow: 7 },
        ];
        assert_eq!(rows(&file), (expected.to_vec(), true));
        let mut text = std::fs::read(&file).unwrap();
        text.extend_from_slice(b"{\"close\":{\"fl");
        std::fs::write(&file, text).unwrap();
        assert_eq!(rows(&file), (expected.to_vec(), false));
    }

    #[test]
    fn unwritable_recording_is_reported_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("recording");
        let refused = start(&file, ByteCount::new(20), start_row()).map(drop).unwrap_err();
        assert!(refused.to_string().contains("recording: 20B are not enough"), "{refused}");
        let full = Path::new("/dev/full");
        let (recorder, writer) = start(full, ByteCount::new(1 << 20), start_row()).unwrap();
        recorder.put(RecordingRow::Close { flow: 7 });
        drop(recorder);
        let error = writer.finish().unwrap_err().to_string();
        assert!(error.starts_with("recording /dev/full: "), "{error}");
    }

    #[test]
    fn a_file_that_is_there_is_never_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("recording");
        std::fs::write(&file, "of another day").unwrap();
        let limit = ByteCount::new(1 << 20);
        let refused = start(&file, limit, start_row()).map(drop).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert!(
            refused
                .to_string()
                .ends_with("recording: the file exists already: remove it or choose another name")
        );
        assert_eq!(std::fs::read(&file).unwrap(), b"of another day");
        let (recorder, writer) = start(Path::new("/dev/null"), limit, start_row()).unwrap();
        drop(recorder);
        writer.finish().unwrap();
    }

    #[test]
    fn endless_line_is_refused_early() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("recording");
        std::fs::write(&file, [b' '; 1 << 20]).unwrap();
        let error = read(&file, |_, _| Ok(())).unwrap_err().to_string();
        assert!(error.ends_with("recording:1: a row has at most 16384 bytes"), "{error}");
    }

    #[test]
    fn recording_ends_at_max_size_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("recording");
        let (recorder, writer) = start(&file, ByteCount::new(300), start_row()).unwrap();
        for flow in 0..100 {
            recorder.put(RecordingRow::Close { flow });
        }
        let ended = recorder.clone();
        drop(recorder);
        while !ended.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(ended);
        writer.finish().unwrap();
        let (rows, is_whole) = rows(&file);
        assert!(is_whole && rows.len() < 30);
        assert!(
            matches!(rows.last(), Some(RecordingRow::End { reason }) if reason.contains("size"))
        );
        assert!(std::fs::metadata(&file).unwrap().len() < 400);
    }
}
