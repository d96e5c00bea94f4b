//! What a run leaves behind: plain values that the simulator and the testbed fill and the lab reads.
//!
//! A field stands here once, with its unit; what is made of it stands in the lab's catalogue of metrics.
//! All times are nanoseconds: of the testbed on the machine's monotonic clock (`CLOCK_MONOTONIC`), which
//! all processes of a run share, of the simulator since the start of the run.

mod packets;

pub use packets::{Fate, PacketRecord, UnknownFate};
