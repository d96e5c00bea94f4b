//! Sequences of faults on a running bundle, each judged by a twin of the same seed without boxes: a
//! bundle must never be worse than none.
//!
//! ```text
//! seed ──► sequence ──► plan ──► back end: status quo ──┐
//!                        ├─────► ... once more, unless steady
//!                        └─────► back end: bundle ──────┴► judge ──► a row (JSON lines)
//! ```

mod event;
pub mod judge;
mod rows;
mod run;
pub mod sequence;

pub use judge::{SequenceVerdict, Violation};
pub use rows::{ChaosRow, ChaosRows};
pub use run::{ATTEMPTS, Chaos, ChaosError};
pub use sequence::{Sequence, Venue};
