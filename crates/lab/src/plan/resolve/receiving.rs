//! How the receivers of a flow read and acknowledge.

use std::ops::RangeInclusive;
use std::time::Duration;

use forebay_core::spec::Spec;
use forebay_core::traffic::{Conduct, Receiving};
use forebay_core::units::ByteCount;

use crate::experiment::Traffic;
use crate::plan::error::PlanError;
use crate::plan::reader::Reader;

/// Keys of applications that only read, and of receivers whose data nobody waits for.
const OF_GREEDY: [&str; 2] = ["receiver", "read_rate"];
/// Keys of all receivers of TCP.
const OF_TCP: [&str; 3] = ["receive_buffer", "ack_every", "ack_delay"];
/// From two full segments on; more than the most takes memory and bounds nothing.
const BUFFERS: RangeInclusive<ByteCount> = ByteCount::new(4_000)..=ByteCount::new(64_000_000);
/// Receivers acknowledge within half a second (RFC 9293 section 3.8.6.3).
const ACK_DELAYS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(500);

/// Reads what `flow`, which sends `traffic`, says of them.
pub(super) fn receiving(flow: &Reader<'_>, traffic: &Traffic) -> Result<Receiving, PlanError> {
    let is_greedy = matches!(traffic, Traffic::Greedy { .. });
    let refused = OF_GREEDY.iter().filter(|_| !is_greedy);
    let refused = refused.chain(OF_TCP.iter().filter(|_| !traffic.is_tcp()));
    if let Some(key) = refused.copied().find(|key| flow.has(key)) {
        return Err(flow.wrong(key));
    }
    let receiving = Receiving {
        conduct: conduct(flow)?,
        read_rate: flow.rate("read_rate")?,
        buffer: flow.parsed("receive_buffer")?,
        ack_every: flow.count("ack_every", 1..=1000)?,
        ack_delay: flow.duration("ack_delay")?,
    };
    if receiving.buffer.is_some_and(|buffer| !BUFFERS.contains(&buffer)) {
        return Err(flow.wrong("receive_buffer"));
    }
    if receiving.ack_delay.is_some_and(|delay| !ACK_DELAYS.contains(&delay)) {
        return Err(flow.wrong("ack_delay"));
    }
    Ok(receiving)
}

fn conduct(flow: &Reader<'_>) -> Result<Conduct, PlanError> {
    let Some(written) = flow.spec("receiver")? else { return Ok(Conduct::Honest) };
    let mut spec: Spec = written.kind.parse().map_err(|_| flow.wrong("receiver"))?;
    // What an override sets beside the text.
    spec.params.extend(written.params);
    Conduct::from_spec(&spec).map_err(|error| flow.wrong_spec("receiver", &error))
}
