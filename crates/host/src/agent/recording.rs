//! A recording: what an agent was told and what it decided, as JSON lines, so that a problem in the
//! field becomes a test ([`super::replay`]).
//!
//! The agent hands rows to a bounded queue and never waits; a thread of its own writes them. A
//! recording with a gap could not be replayed: at a row that finds the queue full, or at its largest
//! size, it ends and says so.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_core::cc::law::{self, SlowStart};
use forebay_core::spec::Spec;
use forebay_core::units::{ByteCount, Rate, Timestamp};
use forebay_ebpf::tcp::{CaState, Decision, Events, FlowId, Head, Mode, Report};
use serde::{Deserialize, Serialize};

use super::flow::Origin;
use crate::daemon::privileges::drop_unneeded;

/// Version of the rows; it grows when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;
/// Rows that may wait for the writer: a second of 10,000 reports, each with its decision.
const QUEUE: usize = 20_000;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Row {
    /// The first: who recorded.
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
        /// Its number.
        flow: u64,
    },
    /// The last row of a recording that ended before its agent.
    End {
        /// Why.
        reason: String,
    },
}

/// Who recorded.
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
    /// Its number among those of the recording.
    pub flow: u64,
    /// It was there before the agent.
    pub adopted: bool,
    /// Algorithm and parameters.
    pub cc: Spec,
    /// Seed of the algorithm's random choices.
    pub seed: u64,
    /// Where it goes.
    pub remote: Option<String>,
    /// Its first record.
    pub head: HeadRow,
}

impl Open {
    /// How the connection came.
    pub fn origin(&self) -> Origin {
        if self.adopted { Origin::Adopted } else { Origin::Opened }
    }
}

/// The fields of a [`Head`]; `Option` and enums as there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct HeadRow {
    pub seq: u32,
    pub at_ns: u64,
    pub events: u16,
    pub ca_state: u8,
    pub mode: u8,
    pub bytes_acked: u64,
    pub delivered: u32,
    pub delivered_ce: u32,
    pub lost: u32,
    pub retransmitted: u32,
    pub in_flight: u32,
    pub cwnd: u32,
    pub ssthresh: Option<u32>,
    pub mss: u32,
    pub srtt_us: u32,
    pub min_rtt_us: Option<u32>,
}

/// The fields of a [`Report`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ReportRow {
    pub flow: u64,
    #[serde(flatten)]
    pub head: HeadRow,
    pub pacing_bps: u64,
    pub rtt_us: Option<u32>,
    pub rtt_min_us: Option<u32>,
    pub window_us: u32,
    pub acks: u32,
    pub rate_delivered: u32,
    pub rate_interval_us: u32,
    pub send_interval_us: u32,
    pub prior_delivered: u32,
    pub snd_wnd: u32,
    pub packets_out: u32,
    pub app_limited: bool,
    pub cwnd_limited: bool,
    pub idle_timeouts: u8,
    pub dropped: u32,
}

/// A [`Decision`] as the kernel is given it; segments, 1/1024 and microseconds as there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct DecisionRow {
    pub flow: u64,
    /// Number of the record that it answers.
    pub seq: u32,
    pub cwnd: Option<u32>,
    pub ssthresh: Option<u32>,
    pub pacing_bps: Option<u64>,
    pub growth: u32,
    pub cap: u32,
    pub slow_start: u8,
    pub beta: u16,
    pub trip_rtt_us: u32,
    pub trip_lost: u16,
    pub trip_ce: u16,
}

/// By their numbers in a recording.
const CA_STATES: [CaState; 5] =
    [CaState::Open, CaState::Disorder, CaState::Cwr, CaState::Recovery, CaState::Loss];
/// By their numbers in a recording.
const MODES: [Mode; 3] = [Mode::Start, Mode::Agent, Mode::Fallback];

fn number<T: PartialEq>(all: &[T], one: T) -> u8 {
    all.iter().position(|it| *it == one).map_or(u8::MAX, |at| at as u8)
}

impl HeadRow {
    /// What of `head` is recorded: all but which slot of the kernel it was.
    pub fn of(head: &Head) -> Self {
        Self {
            seq: head.seq,
            at_ns: head.at.as_nanos(),
            events: head.events.bits(),
            ca_state: number(&CA_STATES, head.ca_state),
            mode: number(&MODES, head.mode),
            bytes_acked: head.bytes_acked,
            delivered: head.delivered,
            delivered_ce: head.delivered_ce,
            lost: head.lost,
            retransmitted: head.retransmitted,
            in_flight: head.in_flight,
            cwnd: head.cwnd,
            ssthresh: head.ssthresh,
            mss: head.mss,
            srtt_us: head.srtt_us,
            min_rtt_us: head.min_rtt_us,
        }
    }

    /// The record again; `None` where a number stands for nothing.
    pub fn head(&self) -> Option<Head> {
        Some(Head {
            flow: FlowId { slot: 0, generation: 1 },
            seq: self.seq,
            at: Timestamp::from_nanos(self.at_ns),
            events: Events::from_bits(self.events),
            ca_state: *CA_STATES.get(usize::from(self.ca_state))?,
            mode: *MODES.get(usize::from(self.mode))?,
            bytes_acked: self.bytes_acked,
            delivered: self.delivered,
            delivered_ce: self.delivered_ce,
            lost: self.lost,
            retransmitted: self.retransmitted,
            in_flight: self.in_flight,
            cwnd: self.cwnd,
            ssthresh: self.ssthresh,
            mss: self.mss,
            srtt_us: self.srtt_us,
            min_rtt_us: self.min_rtt_us,
        })
    }
}

impl ReportRow {
    /// `report` of the connection with this number.
    pub fn of(flow: u64, report: &Report) -> Self {
        Self {
            flow,
            head: HeadRow::of(&report.head),
            pacing_bps: report.pacing_rate.as_bits_per_sec(),
            rtt_us: report.rtt_us,
            rtt_min_us: report.rtt_min_us,
            window_us: report.window_us,
            acks: report.acks,
            rate_delivered: report.rate_delivered,
            rate_interval_us: report.rate_interval_us,
            send_interval_us: report.send_interval_us,
            prior_delivered: report.prior_delivered,
            snd_wnd: report.snd_wnd,
            packets_out: report.packets_out,
            app_limited: report.app_limited,
            cwnd_limited: report.cwnd_limited,
            idle_timeouts: report.idle_timeouts,
            dropped: report.dropped,
        }
    }

    /// The report again; `None` where a number stands for nothing.
    pub fn report(&self) -> Option<Report> {
        Some(Report {
            head: self.head.head()?,
            pacing_rate: Rate::from_bits_per_sec(self.pacing_bps),
            rtt_us: self.rtt_us,
            rtt_min_us: self.rtt_min_us,
            window_us: self.window_us,
            acks: self.acks,
            rate_delivered: self.rate_delivered,
            rate_interval_us: self.rate_interval_us,
            send_interval_us: self.send_interval_us,
            prior_delivered: self.prior_delivered,
            snd_wnd: self.snd_wnd,
            packets_out: self.packets_out,
            app_limited: self.app_limited,
            cwnd_limited: self.cwnd_limited,
            idle_timeouts: self.idle_timeouts,
            dropped: self.dropped,
        })
    }
}

impl DecisionRow {
    /// `decision` for the connection with this number, in answer to record `seq`.
    pub fn of(flow: u64, seq: u32, decision: &Decision) -> Self {
        let law::Terms { growth, cap, slow_start, beta, trip_rtt_us, trip_lost, trip_ce } =
            decision.terms;
        Self {
            flow,
            seq,
            cwnd: decision.cwnd,
            ssthresh: decision.ssthresh,
            pacing_bps: decision.pacing_rate.map(Rate::as_bits_per_sec),
            growth,
            cap,
            slow_start: match slow_start {
                SlowStart::Hold => 0,
                SlowStart::Standard => 1,
                SlowStart::HyStart => 2,
                SlowStart::HyStartPlusPlus => 3,
            },
            beta,
            trip_rtt_us,
            trip_lost,
            trip_ce,
        }
    }
}

/// Where the agent puts its rows. Without a recording it does nothing.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    rows: Option<SyncSender<Row>>,
    ended: Arc<AtomicBool>,
}

impl Recorder {
    /// Whether rows are wanted.
    pub fn is_on(&self) -> bool {
        self.rows.is_some() && !self.ended.load(Ordering::Relaxed)
    }

    /// Hands over a row. One that finds no room ends the recording.
    pub fn put(&self, row: Row) {
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
    pub(super) fn for_test() -> (Self, Receiver<Row>) {
        let (rows, taken) = sync_channel(QUEUE);
        (Self { rows: Some(rows), ended: Arc::default() }, taken)
    }
}

/// The thread that writes the rows, if there is a recording.
#[derive(Default)]
pub struct Writer(Option<JoinHandle<io::Result<()>>>);

impl Writer {
    /// Waits until all rows are in the file. Drop every [`Recorder`] before.
    pub fn finish(self) -> io::Result<()> {
        let Some(thread) = self.0 else { return Ok(()) };
        thread.join().map_err(|_| io::Error::other("the writer of the recording panicked"))?
    }
}

/// Creates the recording at `path`, of at most `limit` bytes, and starts its writer, which ends when
/// the last [`Recorder`] is dropped.
pub fn start(path: &Path, limit: ByteCount, start: Start) -> io::Result<(Recorder, Writer)> {
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("recording {}: {error}", path.display()))
    };
    let out = BufWriter::new(File::create(path).map_err(named)?);
    let (rows, received) = sync_channel(QUEUE);
    let ended = Arc::new(AtomicBool::new(false));
    let mut file = Recording { out, left: limit.as_u64(), ended: Arc::clone(&ended) };
    file.write(&Row::Start(start)).map_err(named)?;
    let thread = std::thread::Builder::new().name("recording".into()).spawn(move || {
        drop_unneeded()?;
        let written = file.write_all(&received);
        // The agent goes on without.
        file.ended.store(true, Ordering::Relaxed);
        written
    })?;
    Ok((Recorder { rows: Some(rows), ended }, Writer(Some(thread))))
}

struct Recording {
    out: BufWriter<File>,
    /// Bytes that may still be written, those of the last row not counted.
    left: u64,
    ended: Arc<AtomicBool>,
}

impl Recording {
    fn write_all(&mut self, rows: &Receiver<Row>) -> io::Result<()> {
        loop {
            match rows.recv_timeout(Duration::from_millis(200)) {
                Ok(row) => {
                    if !self.write(&row)? {
                        return self.end("it has reached its largest size");
                    }
                }
                // A pause is the moment to show what there is.
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

    /// False if it does not fit any more.
    fn write(&mut self, row: &Row) -> io::Result<bool> {
        let mut text = serde_json::to_vec(row)?;
        text.push(b'\n');
        let Some(left) = self.left.checked_sub(text.len() as u64) else { return Ok(false) };
        self.left = left;
        self.out.write_all(&text)?;
        Ok(true)
    }

    fn end(&mut self, reason: &str) -> io::Result<()> {
        self.ended.store(true, Ordering::Relaxed);
        serde_json::to_writer(&mut self.out, &Row::End { reason: reason.into() })?;
        self.out.write_all(b"\n")?;
        self.out.flush()
    }
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The system's answer.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// A line is no row, or does not belong there.
    #[error("{file}:{line}: {reason}")]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// Reads the recording at `path` row by row, with the number of the line; what `take` refuses is an
/// error about that line. The last line may be cut off, as a killed agent leaves it: false.
pub fn read(
    path: &Path,
    mut take: impl FnMut(usize, Row) -> Result<(), String>,
) -> Result<bool, RecordingError> {
    let io = |error| RecordingError::Io { file: path.to_owned(), error };
    let mut lines = BufReader::new(File::open(path).map_err(io)?);
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        if lines.read_until(b'\n', &mut text).map_err(io)? == 0 {
            break;
        }
        if text.last() != Some(&b'\n') {
            return Ok(false);
        }
        let row = serde_json::from_slice(&text).map_err(|error| error.to_string());
        row.and_then(|row| take(line, row)).map_err(|reason| RecordingError::Malformed {
            file: path.to_owned(),
            line,
            reason,
        })?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start_row() -> Start {
        Start { schema: SCHEMA, version: "0".into(), kernel: "6.18".into(), pace: false }
    }

    fn rows(path: &Path) -> (Vec<Row>, bool) {
        let mut rows = Vec::new();
        let is_whole = read(path, |_, row| {
            rows.push(row);
            Ok(())
        });
        (rows, is_whole.unwrap())
    }

    #[test]
    fn rows_are_read_as_they_were_put_and_a_torn_line_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("recording");
        let (recorder, writer) = start(&file, ByteCount::new(1 << 20), start_row()).unwrap();
        let report = ReportRow { flow: 7, rtt_us: Some(50_000), ..ReportRow::default() };
        recorder.put(Row::Report(report.clone()));
        recorder.put(Row::Close { flow: 7 });
        drop(recorder);
        writer.finish().unwrap();
        let expected = [Row::Start(start_row()), Row::Report(report), Row::Close { flow: 7 }];
        assert_eq!(rows(&file), (expected.to_vec(), true));
        let mut text = std::fs::read(&file).unwrap();
        text.extend_from_slice(b"{\"close\":{\"fl");
        std::fs::write(&file, text).unwrap();
        assert_eq!(rows(&file), (expected.to_vec(), false));
    }

    #[test]
    fn a_recording_ends_at_its_largest_size_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("recording");
        let (recorder, writer) = start(&file, ByteCount::new(300), start_row()).unwrap();
        for flow in 0..100 {
            recorder.put(Row::Close { flow });
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
        assert!(matches!(rows.last(), Some(Row::End { reason }) if reason.contains("size")));
        assert!(std::fs::metadata(&file).unwrap().len() < 400);
    }

    #[test]
    fn records_survive_a_round_trip_whatever_is_in_them() {
        let row = ReportRow {
            head: HeadRow {
                seq: u32::MAX,
                at_ns: u64::MAX,
                events: u16::MAX,
                ca_state: 3,
                mode: 2,
                bytes_acked: u64::MAX,
                ssthresh: Some(u32::MAX),
                min_rtt_us: None,
                ..HeadRow::default()
            },
            rtt_us: Some(0),
            app_limited: true,
            ..ReportRow::default()
        };
        assert_eq!(ReportRow::of(0, &row.report().unwrap()), row);
        let text = serde_json::to_string(&Row::Report(row.clone())).unwrap();
        assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), Row::Report(row));
        let nonsense = HeadRow { ca_state: 9, ..HeadRow::default() };
        assert_eq!(nonsense.head().map(|head| head.seq), None);
    }
}
