//! Regret: how often, and by how much, a site with boxes gets less than the same site without them.
//!
//! ```text
//! seed ──► sequence ──► plan ──► no boxes ───────────────────┐
//!                        ├─────► no boxes, a little later ───┤
//!                        ├─────► boxes that limit nothing ───┼──► a row (JSON lines) ──► summary
//!                        └─────► boxes ──────────────────────┘
//! ```
//! A sequence is a path, the traffic of a site, and changes every 20 to 40 s. The second run shows how far runs without
//! boxes differ by chance alone. The third run shows whether boxes have any effect other than their limits. A row has
//! the measurements; only the summary judges these.

mod run;
mod sequence;
mod summary;
mod windows;

pub use run::{Ping, RegretRequest, RegretRow, State, regret};
pub use sequence::RegretSequence;
pub use summary::{BOUND_PING, BOUND_POINTS, RegretSummary};
pub use windows::{RegretWindow, SHARE_MIN, WAITING_MIN};
