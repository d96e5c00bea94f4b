//! Progress reports of a running plan.

use crate::backend;
use crate::store::RunKey;

/// A progress report, sent as things happen; reports of parallel runs are interleaved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress<'a> {
    /// Key of the run: plan, arm, cell and seed.
    pub key: &'a RunKey,
    /// Place of the run in the order in which they begin, 1 to `total`.
    pub number: usize,
    /// Number of requested runs of the plan.
    pub total: usize,
    /// The event.
    pub event: Event<'a>,
}

impl Progress<'_> {
    /// `main copa_sfq seed 2`, for people.
    pub fn name(&self) -> String {
        super::name(self.key)
    }
}

/// Event of a run: it is reused, or has attempts, each from `Begins` to `Ended`. A run that is not tried
/// again has no events. This is a run that failed at every attempt in earlier calls, or that was rejected on
/// the simulator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// The store has it already.
    Reused,
    /// An attempt begins; its number, from 1.
    Begins(usize),
    /// How far the attempt is.
    UnderWay(&'a backend::RunProgress),
    /// The attempt has ended.
    Ended(Ending<'a>),
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending<'a> {
    /// With a valid run.
    Valid,
    /// With a valid run in which limits of a user algorithm were clamped this often.
    Clamped(u64),
    /// With the death of a box, and why: the run counts, against the box.
    Died(&'a str),
    /// With a run that the harness's own figures make invalid.
    Rejected(&'a [String]),
}

impl std::fmt::Display for Ending<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Valid => write!(f, "valid"),
            Self::Clamped(times) => write!(
                f,
                "valid, but an algorithm returned invalid limits {times} times, which were clamped"
            ),
            Self::Died(reason) => write!(
                f,
                "valid, but without results because a sendbox, receivebox or agent ended: {reason}"
            ),
            Self::Rejected(reasons) => write!(f, "rejected: {}", reasons.join("; ")),
        }
    }
}
