//! Repeats what an agent decided on what it was told ([`super::recording`]), and says where this
//! program decides otherwise.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;
use std::time::Duration;

use forebay_core::cc::{Registry, State};
use forebay_core::units::Timestamp;
use forebay_ebpf::tcp::Reporting;

use super::flow::{Flow, Terms};
use super::recording::{self, Open, RecordingError, Row, SCHEMA, Start};
use super::rows::DecisionRow;
use super::rules::Choice;

/// Differences that are kept; all are counted.
const KEPT: usize = 20;
/// What is wrong with any other file.
const NO_START: &str = "a recording begins with a row `start`";

/// A decision that is another now.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Line of the recording.
    pub line: usize,
    /// When, on the clock of the recording.
    pub at: Timestamp,
    /// Algorithm and parameters.
    pub cc: String,
    /// What was decided.
    pub recorded: DecisionRow,
    /// What is decided now; `None`: nothing, for the algorithm panics.
    pub replayed: Option<DecisionRow>,
}

/// What a recording holds, and how much of it could be repeated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replay {
    /// Who recorded; every replay that comes to its end has it.
    pub start: Option<Start>,
    /// Connections of the recording.
    pub flows: u64,
    /// Reports of the recording.
    pub reports: u64,
    /// Decisions of the recording.
    pub decisions: u64,
    /// Decisions that are others now.
    pub different: u64,
    /// The first of these.
    pub differences: Vec<Difference>,
    /// Why the recording ended before its agent.
    pub end: Option<String>,
    /// The last line of the recording is cut off.
    pub is_cut: bool,
}

/// A decision as it was repeated, for those who want to see each.
pub struct Step<'a> {
    /// The connection.
    pub flow: &'a Flow,
    /// What was decided.
    pub decision: &'a DecisionRow,
    /// The state of the algorithm.
    pub state: State,
}

struct Replayer<'a> {
    algorithms: &'a Registry,
    replay: Replay,
    flows: BTreeMap<u64, Flow>,
    terms: Terms,
    see: &'a mut dyn FnMut(&Step<'_>),
}

/// Replays the recording at `path`, as [`replay_from`] does.
pub fn replay(
    path: &Path,
    algorithms: &Registry,
    see: &mut dyn FnMut(&Step<'_>),
) -> Result<Replay, RecordingError> {
    let mut replayer = Replayer::new(algorithms, see);
    let is_whole = recording::read(path, |line, row| replayer.take(line, row))?;
    replayer.finish(path, is_whole)
}

/// Replays a recording that errors call `file`, in which `algorithms` decided; `see` is shown each decision after it was
/// repeated.
pub fn replay_from(
    file: &Path,
    lines: impl BufRead,
    algorithms: &Registry,
    see: &mut dyn FnMut(&Step<'_>),
) -> Result<Replay, RecordingError> {
    let mut replayer = Replayer::new(algorithms, see);
    let is_whole = recording::read_from(file, lines, |line, row| replayer.take(line, row))?;
    replayer.finish(file, is_whole)
}

impl<'a> Replayer<'a> {
    fn new(algorithms: &'a Registry, see: &'a mut dyn FnMut(&Step<'_>)) -> Self {
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

    fn take(&mut self, line: usize, row: Row) -> Result<(), String> {
        if self.replay.start.is_none() && !matches!(row, Row::Start(_)) {
            return Err(NO_START.into());
        }
        match row {
            Row::Start(start) if start.schema != SCHEMA => {
                let (schema, version) = (start.schema, start.version);
                return Err(format!(
                    "rows of schema {schema}, by forebay {version}; this program reads {SCHEMA}"
                ));
            }
            Row::Start(start) => {
                self.terms.pace = start.pace;
                self.replay.start = Some(start);
            }
            Row::Open(open) => self.open(open)?,
            Row::Report(row) => {
                self.flow(row.flow)?.on_report(&row.report);
                self.replay.reports += 1;
            }
            Row::Timer { flow, at_ns } => {
                self.flow(flow)?.on_timer(Timestamp::from_nanos(at_ns));
            }
            Row::Decision(decision) => self.decide(line, &decision)?,
            Row::Close { flow } => {
                self.flow(flow)?;
                self.flows.remove(&flow);
            }
            Row::End { reason } => self.replay.end = Some(reason),
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
            (self.see)(&Step { flow, decision: recorded, state });
        }
        Ok(())
    }
}
