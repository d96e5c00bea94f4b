//! Output of a back end after a run: the input of the metrics.

use forebay_core::record::RunRecord;

use super::links::PacketLog;

/// Everything measured in one run. All times are nanoseconds since its start; earlier events have time 0.
#[derive(Clone, Debug, Default)]
pub struct RunRows {
    /// All but the packets.
    pub run: RunRecord,
    /// The packets of each link, in the order of the links.
    pub packets: Vec<PacketLog>,
}
