//! Turns the emulator's record of a run on real kernels into packets of a capture. Times count from the first
//! packet, because handshakes precede the run.

use std::path::Path;

use forebay_core::record::PacketRecord;

use super::frames::Frames;
use super::points::{RECEIVER, SENDER};
use crate::backend::{self, BackendError, RunProgress};
use crate::plan::Experiment;

/// Number of the link from site A to site B.
const FORWARD: usize = 0;

/// Runs `experiment` with its files in `directory`, and adds its packets to `frames`. There the sender is
/// site A, and the receiver site B.
pub fn emulate(
    experiment: &Experiment,
    directory: &Path,
    frames: &mut Frames,
    progress: &mut dyn FnMut(RunProgress),
) -> Result<(), BackendError> {
    let mut first_ns = None;
    backend::emulate(experiment, directory, progress, |link, record, header| {
        let record = record.since(*first_ns.get_or_insert(record.arrived_ns));
        add(frames, link, &record, header);
    })
}

/// Adds a packet of a link, seen at both ends.
fn add(frames: &mut Frames, link: usize, record: &PacketRecord, header: &[u8]) {
    if frames.is_full(record.arrived_ns) {
        return;
    }
    let packet = frames.next();
    frames.add(record.identity, None, |out| {
        out.extend(header);
        record.bytes as usize
    });
    let [from, to] = if link == FORWARD { [SENDER, RECEIVER] } else { [RECEIVER, SENDER] };
    frames.pass(packet, from, record.arrived_ns);
    frames.pass_link(packet, link, record);
    if record.released_ns > 0 {
        frames.pass(packet, to, record.released_ns);
    }
}
