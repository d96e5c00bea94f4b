//! Replays the input of an agent from a recording ([`super::recording`]), and lists where this version of the program
//! decides differently.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;
use std::time::Duration;

use forebay_core::cc::{Registry, State};
use forebay_core::units::Timestamp;
use forebay_ebpf::tcp::Reporting;

use super::flow::{Flow, Terms};
use super::recording::{self, Open, RecordingError, RecordingRow, SCHEMA, Start};
use super::rows::DecisionRow;
use super::rules::Choice;

/// Differences that are kept in full. All differences are counted.
const KEPT: usize = 20;
/// The error for any file that is not a recording.
const NO_START: &str = "a recording begins with a row `start`";

/// A decision that differs from the recorded one.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Line of the recording.
    pub line: usize,
    /// Time of the decision, on the clock of the recording.
    pub at: Timestamp,
    /// Algorithm and parameters.
    pub cc: String,
    /// The recorded decision.
    pub recorded: DecisionRow,
    /// The decision now; `None`: none, because the algorithm panics.
    pub replayed: Option<DecisionRow>,
}

/// Contents of a recording, and the result of its replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replay {
    /// The program that recorded; set in every replay that reaches its end.
    pub start: Option<Start>,
    /// Connections of the recording.
    pub flows: u64,
    /// Reports of the recording.
    pub reports: u64,
    /// Decisions of the recording.
    pub decisions: u64,
    /// Decisions that differ now.
    pub different: u64,
    /// The first differences, in order.
    pub differences: Vec<Difference>,
    /// Why the recording ended before its agent.
    pub end: Option<String>,
    /// The last line of the recording is cut off.
    pub is_cut: bool,
}

/// A repeated decision, for callers that inspect each one.
pub struct ReplayedDecision<'a> {
    /// The connection.
    pub flow: &'a Flow,
    /// The decision.
    pub decision: &'a DecisionRow,
    /// The state of the algorithm.
    pub state: State,
}

struct Replayer<'a> {
    algorithms: &'a Registry,
    replay: Replay,
    flows: BTreeMap<u64, Flow>,
    terms: Terms,
    see: &'a mut dyn FnMut(&ReplayedDecision<'_>),
}

/// Replays the recording at `path`, as [`replay_from`] does.
pub fn replay(
    path: &Path,
    algorithms: &Registry,
    see: &mut dyn FnMut(&ReplayedDecision<'_>),
) -> Result<Replay, RecordingError> {
    let mut replayer = Replayer::new(algorithms, see);
    let is_whole = recording::read(path, |line, row| replayer.take(line, row))?;
    replayer.finish(path, is_whole)
}

/// Replays a recording, which errors call `file`, with the given `algorithms`. `see` gets each decision after it was
/// repeated.
pub fn replay_from(
    file: &Path,
    lines: impl BufRead,
    algorithms: &Registry,
    see: &mut dyn FnMut(&ReplayedDecision<'_>),
) -> Result<Replay, RecordingError> {
    let mut replayer = Replayer::new(algorithms, see);
    let is_whole = recording::read_from(file, lines, |line, row| replayer.take(line, row))?;
    replayer.finish(file, is_whole)
}

impl<'a> Replayer<'a> {
    fn new(algorithms: &'a Registry, see: &'a mut dyn FnMut(&ReplayedDecision<'_>)) -> Self {
        let (reporting, stale_after) = (Reporting::default(), Duration::ZERO);
        let terms = Terms { reporting, pace: false, stale_after };
        Self { algorithms, replay: Replay::default(), flows: BTreeMap::new(), terms, see }
    }

    fn finish(self, file: &Path, is_whole: bool) -> Result<Replay, RecordingError> {
        if self.replay.start.is_none() {
            let (file, reason) = (file.to_owned(), NO_START.into());
            return Err(RecordingError::Malformed { file, line: 1, reason });
        }
        Ok(Replay { is_cut: !is_whole, ..self.replay })
    }

    fn take(&mut self, line: usize, row: RecordingRow) -> Result<(), String> {
        if self.replay.start.is_none() && !matches!(row, RecordingRow::Start(_)) {
            return Err(NO_START.into());
        }
        match row {
            RecordingRow::Start(start) if start.schema != SCHEMA => {
                let (schema, version) = (start.schema, start.version);
                return Err(format!(
                    "rows have schema {schema} (forebay {version}); this program reads schema \
                     {SCHEMA}"
                ));
            }
            RecordingRow::Start(start) => {
                self.terms.pace = start.pace;
                self.replay.start = Some(start);
            }
            RecordingRow::Open(open) => self.open(open)?,
            RecordingRow::Report(row) => {
                self.flow(row.flow)?.on_report(&row.report);
                self.replay.reports += 1;
            }
            RecordingRow::Timer { flow, at_ns } => {
                self.flow(flow)?.on_timer(Timestamp::from_nanos(at_ns));
            }
            RecordingRow::Decision(decision) => self.decide(line, &decision)?,
            RecordingRow::Close { flow } => {
                self.flow(flow)?;
                self.flows.remove(&flow);
            }
            RecordingRow::End { reason } => self.replay.end = Some(reason),
        }
        Ok(())
    }

    fn flow(&mut self, number: u64) -> Result<&mut Flow, String> {
        self.flows.get_mut(&number).ok_or_else(|| format!("connection {number} is not open"))
    }

    fn open(&mut self, open: Open) -> Result<(), String> {
        let origin = open.origin();
        let choice = Choice::new(self.algorithms, open.cc).map_err(|error| error.to_string())?;
        self.flows.insert(open.flow, Flow::new(origin, open.head, &choice, open.seed));
        self.replay.flows += 1;
        Ok(())
    }

    fn decide(&mut self, line: usize, recorded: &DecisionRow) -> Result<(), String> {
        let terms = self.terms;
        let flow = self.flow(recorded.flow)?;
        let decision = flow.decide(&terms);
        let head = *flow.head();
        let replayed = decision.map(|it| DecisionRow::of(recorded.flow, head.seq, &it));
        let cc = flow.choice().to_string();
        self.replay.decisions += 1;
        if replayed.as_ref() != Some(recorded) {
            self.replay.different += 1;
            if self.replay.differences.len() < KEPT {
                let (at, recorded) = (head.at, recorded.clone());
                self.replay.differences.push(Difference { line, at, cc, recorded, replayed });
            }
        }
        if let Some(flow) = self.flows.get_mut(&recorded.flow) {
            let state = flow.state();
            (self.see)(&ReplayedDecision { flow, decision: recorded, state });
        }
        Ok(())
    }
}
