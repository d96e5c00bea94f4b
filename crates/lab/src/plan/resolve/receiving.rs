//! How the receivers of a flow read and acknowledge.

use forebay_core::spec::Spec;
use forebay_core::traffic::{Conduct, Receiving};
use forebay_reader::Reader;

use forebay_scenario::Traffic;

/// Keys of applications that only read, and of receivers with data that no application waits for.
const OF_GREEDY: [&str; 2] = ["receiver", "read_rate"];
/// Keys of all receivers of TCP.
const OF_TCP: [&str; 3] = ["receive_buffer", "ack_every", "ack_delay"];

/// Reads the receivers' settings of `flow`, which sends `traffic`.
pub(super) fn receiving(flow: &Reader<'_>, traffic: &Traffic, is_tcp: bool) -> Option<Receiving> {
    let is_greedy = is_tcp && matches!(traffic, Traffic::Greedy { .. });
    let refused = OF_GREEDY.iter().filter(|_| !is_greedy);
    let refused = refused.chain(OF_TCP.iter().filter(|_| !is_tcp));
    refused.filter(|key| flow.has(key)).for_each(|key| flow.wrong(key));
    Some(Receiving {
        conduct: if flow.has("receiver") { conduct(flow)? } else { Conduct::Honest },
        read_rate: flow.rate("read_rate"),
        buffer: flow.size("receive_buffer"),
        ack_every: flow.whole("ack_every"),
        ack_delay: flow.duration("ack_delay"),
    })
}

fn conduct(flow: &Reader<'_>) -> Option<Conduct> {
    let written = flow.spec("receiver")?;
    let mut spec: Spec = written.kind.parse().ok().or_else(|| flow.refused("receiver"))?;
    // Parameters that an override sets in addition to the text.
    spec.params.extend(written.params);
    Conduct::from_spec(&spec).map_err(|error| flow.wrong_spec("receiver", &error)).ok()
}
