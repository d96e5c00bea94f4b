//! The trace of a box: every epoch, decision and queue sample as a row, for experiments.
//!
//! The packet thread passes rows to a bounded queue and never waits; a thread of its own writes them as JSON
//! lines. If the queue or the disk is full, a row is counted and left out.
//!
//! Only the user of the daemon reads the file, and no other user chooses it: it is always a new file, and
//! creating it follows no link.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_core::record::{
    BundleCounters, BundleRecord, DecisionRecord, EpochRecord, QueueSample, WaitRecord,
};
use forebay_core::text::of_parser;
use serde::{Deserialize, Serialize};

use super::config::{Config, TraceConfig};
use crate::service::privileges::Confinement;
use crate::service::privileges::seccomp::Task;

/// Most rows that wait for the writer: about 10 s of one busy bundle (200 reports, 100 queue samples and some
/// decisions per second).
const QUEUE: usize = 4096;

/// Bytes that are written together; in a pause of the rows the writer writes all pending bytes.
const PART: usize = 1 << 13;
/// Length of a pause.
const PAUSE: Duration = Duration::from_millis(200);

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceRow {
    /// A matched boundary.
    Epoch(EpochRecord),
    /// The own queue, every 10 ms.
    Queue(QueueSample),
    /// A decision.
    Decision(DecisionRecord),
    /// Waits of sparse flows, for each second that has any.
    Waits(WaitRecord),
    /// All counters, every second and at the end.
    Counters(BundleCounters),
}

#[derive(Serialize, Deserialize)]
struct Line {
    bundle: String,
    #[serde(flatten)]
    row: TraceRow,
}

/// The packet thread's end of the trace. Without a trace it does nothing.
#[derive(Clone, Debug, Default)]
pub struct Tracer {
    rows: Option<SyncSender<(Arc<str>, TraceRow)>>,
    lost: Arc<AtomicU64>,
}

impl Tracer {
    /// Whether rows are wanted.
    pub fn is_on(&self) -> bool {
        self.rows.is_some()
    }

    /// Passes on a row of the bundle of this name.
    pub fn put(&self, bundle: &Arc<str>, row: TraceRow) {
        if let Some(rows) = &self.rows
            && rows.try_send((bundle.clone(), row)).is_err()
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Rows left out so far.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// The thread that writes the rows, if there is a trace.
pub struct TraceWriter(Option<JoinHandle<()>>);

impl TraceWriter {
    /// Waits until all rows are in the file. Drop every [`Tracer`] before.
    pub fn finish(self) -> io::Result<()> {
        let Some(thread) = self.0 else { return Ok(()) };
        thread.join().map_err(|_| io::Error::other("the trace writer panicked"))
    }
}

/// Creates the trace file and starts its writer, which ends when the last [`Tracer`] is dropped.
pub fn start(config: &Config, confinement: &Confinement) -> io::Result<(Tracer, TraceWriter)> {
    match &config.trace {
        Some(trace) => start_writer(trace, confinement.clone()),
        None => Ok((Tracer::default(), TraceWriter(None))),
    }
}

fn start_writer(
    config: &TraceConfig,
    confinement: Confinement,
) -> io::Result<(Tracer, TraceWriter)> {
    let lost = Arc::<AtomicU64>::default();
    let mut file = TraceFile::create(config, lost.clone(), &confinement).map_err(|error| {
        let file = config.file.display();
        io::Error::new(error.kind(), format!("trace.file = \"{file}\": {error}"))
    })?;
    let (sender, receiver) = sync_channel(QUEUE);
    let writer = std::thread::Builder::new().name("trace".into()).spawn(move || {
        match confinement.confine(Task::Trace) {
            Ok(()) => file.write_all(&receiver),
            // The box goes on without a trace; from here on its rows count as lost.
            Err(error) => {
                tracing::error!(target: "trace", %error, "trace {} ends", file.path.display());
            }
        }
    })?;
    Ok((Tracer { rows: Some(sender), lost }, TraceWriter(Some(writer))))
}

struct TraceFile {
    path: PathBuf,
    limit: u64,
    file: File,
    /// Bytes in the file, all in complete rows.
    written: u64,
    /// Rows that are not in the file yet, and their number.
    pending: Vec<u8>,
    pending_rows: u64,
    /// Rows that are in no file.
    lost: Arc<AtomicU64>,
    /// The last attempt to write has failed.
    is_failing: bool,
}

impl TraceFile {
    fn create(
        config: &TraceConfig,
        lost: Arc<AtomicU64>,
        confinement: &Confinement,
    ) -> io::Result<Self> {
        let path = config.file.clone();
        set_aside(&path, &confinement.owners())?;
        let (file, limit) = (create_private(&path)?, config.limit.as_u64());
        if let Some(account) = &confinement.account {
            fchown(&file, Some(account.uid.as_raw()), Some(account.gid.as_raw()))?;
        }
        let (written, pending, pending_rows, is_failing) = (0, Vec::new(), 0, false);
        Ok(Self { path, limit, file, written, pending, pending_rows, lost, is_failing })
    }

    fn write_all(&mut self, rows: &Receiver<(Arc<str>, TraceRow)>) {
        loop {
            match rows.recv_timeout(PAUSE) {
                Ok((bundle, row)) => {
                    self.put(&Line { bundle: bundle.to_string(), row });
                    if self.pending.len() >= PART {
                        self.flush();
                    }
                }
                // In a pause the file shows all rows so far.
                Err(RecvTimeoutError::Timeout) => self.flush(),
                Err(RecvTimeoutError::Disconnected) => return self.flush(),
            }
        }
    }

    fn put(&mut self, line: &Line) {
        let mut text = serde_json::to_vec(line).expect("a row contains only numbers and names");
        text.push(b'\n');
        let is_beyond =
            |file: &Self| file.written + (file.pending.len() + text.len()) as u64 > file.limit;
        if is_beyond(self) {
            self.flush();
        }
        let rotated = if is_beyond(self) { self.rotate() } else { Ok(()) };
        self.pending.extend_from_slice(&text);
        self.pending_rows += 1;
        if rotated.is_err() {
            self.settle(rotated);
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        match std::fs::rename(&self.path, backup(&self.path)) {
            // An earlier attempt has already moved the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        self.file = create_private(&self.path)?;
        self.written = 0;
        Ok(())
    }

    /// Writes the pending rows; rows that cannot be written are lost, and later rows are tried again.
    fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let outcome = self.file.write_all(&self.pending);
        if outcome.is_ok() {
            self.written += self.pending.len() as u64;
            self.pending.clear();
            self.pending_rows = 0;
        } else {
            // A reader takes a cut row for the end. If the disk refuses this call, too, the cut row stays.
            let _ = self.file.set_len(self.written);
        }
        self.settle(outcome);
    }

    /// Counts the rows that an attempt has lost. Logs the first failure and the first success after it.
    fn settle(&mut self, outcome: io::Result<()>) {
        let path = self.path.display();
        match outcome {
            Ok(()) if self.is_failing => {
                let lost = self.lost.load(Ordering::Relaxed);
                tracing::info!(
                    target: "trace",
                    "trace {path} is written again: {lost} rows lost since the start"
                );
                self.is_failing = false;
            }
            Ok(()) => {}
            Err(error) => {
                self.lost.fetch_add(self.pending_rows, Ordering::Relaxed);
                self.pending.clear();
                self.pending_rows = 0;
                if !self.is_failing {
                    tracing::error!(target: "trace", %error, "trace {path}: rows are lost");
                }
                self.is_failing = true;
            }
        }
    }
}

/// Makes room for a new file at `path`. A regular file of this user is renamed, since it may show the last
/// actions of a box that died. Any other file does not belong to the box and is not replaced.
fn set_aside(path: &Path, owners: &[u32]) -> io::Result<()> {
    let there = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        there => there?,
    };
    if !there.is_file() || !owners.contains(&there.uid()) {
        let (owner, kind) =
            (there.uid(), if there.is_symlink() { "a symbolic link" } else { "a file" });
        let reason = format!(
            "{kind} of user {owner} exists there: allowed is nothing, or a regular file of the \
             box's user"
        );
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
    }
    if there.len() > 0 { std::fs::rename(path, backup(path)) } else { std::fs::remove_file(path) }
}

/// A new file that only its owner may read. `O_EXCL` follows no link (open(2)).
fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
}

fn backup(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Reason why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The system refused an operation.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A line is not a row.
    #[error("{file}:{line}: {}", of_parser(&error.to_string()))]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The error of serde.
        error: serde_json::Error,
    },
}

/// Reads the trace at `path`, with the part that was rotated away: one record per bundle, in the
/// order of their first rows. The last line may be cut off, as a killed box leaves it.
pub fn read(path: &Path) -> Result<Vec<BundleRecord>, TraceError> {
    let mut bundles = Vec::new();
    let older = backup(path);
    if older.exists() {
        read_into(&older, &mut bundles)?;
    }
    read_into(path, &mut bundles)?;
    Ok(bundles)
}

fn read_into(path: &Path, bundles: &mut Vec<BundleRecord>) -> Result<(), TraceError> {
    let io = |error| TraceError::Io { file: path.to_owned(), error };
    let mut lines = BufReader::new(File::open(path).map_err(io)?);
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        if lines.read_until(b'\n', &mut text).map_err(io)? == 0 || text.last() != Some(&b'\n') {
            break;
        }
        let Line { bundle, row } = serde_json::from_slice(&text)
            .map_err(|error| TraceError::Malformed { file: path.to_owned(), line, error })?;
        let index = bundles.iter().position(|record| record.name == bundle).unwrap_or_else(|| {
            bundles.push(BundleRecord { name: bundle, ..BundleRecord::default() });
            bundles.len() - 1
        });
        apply(&mut bundles[index], row);
    }
    Ok(())
}

fn apply(record: &mut BundleRecord, row: TraceRow) {
    match row {
        TraceRow::Epoch(epoch) => record.epochs.push(epoch),
        TraceRow::Queue(sample) => record.queue.push(sample),
        TraceRow::Decision(decision) => record.decisions.push(decision),
        TraceRow::Waits(waits) => record.waits.push(waits),
        TraceRow::Counters(counters) => record.counters = counters,
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::units::ByteCount;

    use super::*;
    use crate::service::privileges::seccomp;

    fn create(config: &TraceConfig) -> TraceFile {
        TraceFile::create(config, Arc::default(), &Confinement::default()).unwrap()
    }

    fn queue(at_ns: u64) -> TraceRow {
        TraceRow::Queue(QueueSample { at_ns, packets: 3, bytes: 4542 })
    }

    #[test]
    fn rows_read_back_per_bundle_until_torn_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace");
        let config = TraceConfig { file: file.clone(), limit: ByteCount::new(1_000_000) };
        let (tracer, writer) = start_writer(&config, Confinement::default()).unwrap();
        let [a, b] = ["a", "b"].map(Arc::from);
        tracer.put(&b, queue(10));
        tracer.put(&a, TraceRow::Epoch(EpochRecord { at_ns: 11, ..EpochRecord::default() }));
        let waits = WaitRecord { at_ns: 12, counts: vec![(5, 3)], ..WaitRecord::default() };
        tracer.put(&a, TraceRow::Waits(waits.clone()));
        for drops_queue in [2, 5] {
            tracer
                .put(&b, TraceRow::Counters(BundleCounters { drops_queue, ..Default::default() }));
        }
        assert_eq!(tracer.lost(), 0);
        drop(tracer);
        writer.finish().unwrap();
        let mut text = std::fs::read(&file).unwrap();
        text.extend_from_slice(b"{\"bundle\":\"b\",\"que");
        std::fs::write(&file, &text).unwrap();
        let bundles = read(&file).unwrap();
        assert_eq!(bundles.len(), 2);
        assert_eq!((bundles[0].name.as_str(), bundles[0].counters.drops_queue), ("b", 5));
        assert_eq!(bundles[0].queue[0].at_ns, 10);
        assert_eq!(bundles[1].epochs[0].at_ns, 11);
        assert_eq!(bundles[1].waits, [waits]);
    }

    #[test]
    fn full_file_rotates_once_and_reads_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace");
        let mut trace = create(&TraceConfig { file: file.clone(), limit: ByteCount::new(1000) });
        let write = move || {
            // As in a box.
            seccomp::install(&seccomp::filters(Task::Trace).unwrap()).unwrap();
            for at_ns in 0..60 {
                trace.put(&Line { bundle: "b".into(), row: queue(at_ns) });
            }
            trace.flush();
            assert_eq!(trace.lost.load(Ordering::Relaxed), 0);
        };
        std::thread::spawn(write).join().unwrap();
        for path in [&file, &backup(&file)] {
            assert!(std::fs::metadata(path).unwrap().len() <= 1000);
        }
        let times: Vec<u64> = read(&file).unwrap()[0].queue.iter().map(|s| s.at_ns).collect();
        assert!(times.is_sorted() && times.last() == Some(&59) && times.len() < 60, "{times:?}");
    }

    #[test]
    fn restart_keeps_earlier_rows() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace");
        let config = TraceConfig { file: file.clone(), limit: ByteCount::new(1_000_000) };
        for at_ns in [10, 20, 30] {
            let mut trace = create(&config);
            trace.put(&Line { bundle: "b".into(), row: queue(at_ns) });
            trace.flush();
        }
        let times: Vec<u64> = read(&file).unwrap()[0].queue.iter().map(|s| s.at_ns).collect();
        assert_eq!(times, [20, 30], "FILE.1 is the life before this one");
    }

    #[test]
    fn planted_link_is_refused_and_files_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let [file, victim] = ["trace", "victim"].map(|name| folder.path().join(name));
        std::fs::write(&victim, "precious").unwrap();
        let limit = ByteCount::new(1000);
        let config = TraceConfig { file: file.clone(), limit };
        let refused = |what: &str| {
            let error = start_writer(&config, Confinement::default()).err().unwrap().to_string();
            assert!(error.starts_with("trace.file = ") && error.contains(what), "{error}");
        };
        for target in [&victim, &folder.path().join("not there")] {
            std::os::unix::fs::symlink(target, &file).unwrap();
            refused("a symbolic link of user");
            std::fs::remove_file(&file).unwrap();
        }
        std::fs::create_dir(&file).unwrap();
        refused("allowed is nothing, or a regular file of the box's user");
        std::fs::remove_dir(&file).unwrap();

        // A link that is planted while the box runs, in the place of the backup, is replaced.
        let mut trace = create(&config);
        std::os::unix::fs::symlink(&victim, backup(&file)).unwrap();
        for at_ns in 0..20 {
            trace.put(&Line { bundle: "b".into(), row: queue(at_ns) });
        }
        trace.flush();
        assert_eq!(trace.lost.load(Ordering::Relaxed), 0);
        for path in [&file, &backup(&file)] {
            let there = std::fs::symlink_metadata(path).unwrap();
            assert!(there.is_file() && there.mode() & 0o7777 == 0o600, "{path:?}: {there:?}");
        }
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn dropped_rows_are_counted_and_neighbours_stay_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace");
        let mut trace = create(&TraceConfig { file: file.clone(), limit: ByteCount::new(1000) });
        let put = |trace: &mut TraceFile, at_ns| {
            trace.put(&Line { bundle: "b".into(), row: queue(at_ns) });
            trace.flush();
        };
        put(&mut trace, 1);
        // Like a full disk: nothing is written.
        let writable = std::mem::replace(&mut trace.file, File::open(&file).unwrap());
        put(&mut trace, 2);
        put(&mut trace, 3);
        assert_eq!(trace.lost.load(Ordering::Relaxed), 2);
        trace.file = writable;
        put(&mut trace, 4);
        let times: Vec<u64> = read(&file).unwrap()[0].queue.iter().map(|s| s.at_ns).collect();
        assert_eq!(times, [1, 4]);
        assert_eq!(trace.lost.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn obsolete_counter_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace");
        let row =
            serde_json::to_string(&BundleCounters { drops_queue: 7, ..BundleCounters::default() });
        let row = row.unwrap().replacen('{', "{\"drops_ring\":0,", 1);
        std::fs::write(&file, format!("{{\"bundle\":\"b\",\"counters\":{row}}}\n")).unwrap();
        assert_eq!(read(&file).unwrap()[0].counters.drops_queue, 7);
    }

    #[test]
    fn a_malformed_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace");
        std::fs::write(&file, "{}\n").unwrap();
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains("trace:1: missing field"), "{error}");
    }
}
