//! What running a plan tells of itself.

use crate::backend;
use crate::store::RunKey;

/// What goes on, told as it happens; where several runs go at a time, theirs take turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress<'a> {
    /// The run that it is of: plan, arm, cell and seed.
    pub key: &'a RunKey,
    /// Place of the run in the order in which they begin, 1 to `total`.
    pub number: usize,
    /// Runs that are wanted of the plan.
    pub total: usize,
    /// What happened.
    pub event: Event<'a>,
}

impl Progress<'_> {
    /// `main copa_sfq seed 2`, for people.
    pub fn name(&self) -> String {
        super::name(self.key)
    }
}

/// What happens to a run: it is reused, or has attempts, each from `Begins` to `Ended`. Nothing is told of a run
/// that is not tried again: that failed as often as is tried in earlier calls, or was rejected by the simulator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// The store has it already.
    Reused,
    /// An attempt begins; its number, from 1.
    Begins(usize),
    /// How far the attempt is.
    UnderWay(&'a backend::Progress),
    /// The attempt has ended.
    Ended(Ending<'a>),
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending<'a> {
    /// With a run that may be used.
    Valid,
    /// So it did, and limits of an algorithm of somebody's own were brought within bounds so often.
    Clamped(u64),
    /// With a box, and why: the run counts, against the box.
    Died(&'a str),
    /// With a run that the harness's own figures forbid to use.
    Rejected(&'a [String]),
}

impl std::fmt::Display for Ending<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Valid => write!(f, "valid"),
            Self::Clamped(times) => write!(
                f,
                "valid, but limits of an algorithm made no sense {times} times and were brought within bounds"
            ),
            Self::Died(reason) => write!(f, "valid, and counts against the boxes: {reason}"),
            Self::Rejected(reasons) => write!(f, "rejected: {}", reasons.join("; ")),
        }
    }
}
