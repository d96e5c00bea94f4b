//! Regret: how often, and by how much, a site with boxes gets less than the same site without them.
//!
//! ```text
//! seed ──► sequence ──► plan ──► no boxes ───────────────────┐
//!                        ├─────► no boxes, a little later ───┤
//!                        ├─────► boxes that limit nothing ───┼──► a row (JSON lines) ──► summary
//!                        └─────► boxes ──────────────────────┘
//! ```
//! A sequence is a path, the traffic of a site, and what changes every 20 to 40 s. The second run shows how far runs
//! without boxes differ by chance alone, the third whether boxes do anything but by their limits. A row has what was measured; the summary alone judges it.

mod run;
mod sequence;
mod summary;
mod windows;

pub use run::{Ping, Request, Row, State, regret};
pub use sequence::Sequence;
pub use summary::{BOUND_PING, BOUND_POINTS, Summary};
pub use windows::{SHARE_MIN, WAITING_MIN, Window};
