//! The events of the logs of boxes and agents, each with an id that stays the same from version to version.
//!
//! An id belongs to the name and the level of a line: the start and the end of a condition are two events. Numbers are
//! never reused: an unused one leaves a gap.

use tracing::{Level, Metadata};

/// A kind of log line with its own id.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The id: `FB` and four digits. Never changes.
    pub id: &'static str,
    /// The name, which is the target of its lines.
    pub name: &'static str,
    /// The level of its lines.
    pub level: Level,
    /// When such a line is logged.
    pub when: &'static str,
}

const fn event(id: &'static str, name: &'static str, level: Level, when: &'static str) -> Event {
    Event { id, name, level, when }
}

/// The id of a line that is in no table, such as one of a library.
pub const UNKNOWN: &str = "FB0000";

/// All events, by id.
pub const EVENTS: &[Event] = &[
    event("FB0101", "started", Level::INFO, "the box or agent runs"),
    event(
        "FB0102",
        "stopping",
        Level::INFO,
        "the box or agent was told to end, by which signal; what goes on",
    ),
    event(
        "FB0103",
        "stopped",
        Level::INFO,
        "the box or agent has ended as told; another end is a line `error:`",
    ),
    event(
        "FB0104",
        "stopping",
        Level::WARN,
        "packets that the box could not send any more when it ended",
    ),
    event(
        "FB0105",
        "reload",
        Level::INFO,
        "the files were read again, for SIGHUP, `forebay reload` or `apply`, and what changed; what was on trial was \
         confirmed or has gone back",
    ),
    event(
        "FB0106",
        "reload",
        Level::WARN,
        "why the files were not taken: what was in force before stays so",
    ),
    event("FB0107", "systemd", Level::WARN, "the service manager could not be told"),
    event("FB0108", "privileges", Level::WARN, "the box has more than it should"),
    event("FB0109", "panic", Level::ERROR, "a bug: please report it with the lines below"),
    event("FB0201", "peer", Level::INFO, "the other box is there, stops, or was started again"),
    event("FB0202", "peer", Level::WARN, "the other box is silent, or has other keys"),
    event("FB0203", "scope", Level::INFO, "the boxes take the same packets for the bundle's again"),
    event(
        "FB0204",
        "scope",
        Level::WARN,
        "the boxes take different packets for the bundle's: which",
    ),
    event(
        "FB0205",
        "address",
        Level::INFO,
        "the other box has another address, where it has answered a challenge: the old and the new one",
    ),
    event(
        "FB0206",
        "address",
        Level::WARN,
        "authentic messages come from an address that is not used: which, and why",
    ),
    event(
        "FB0207",
        "path_mtu",
        Level::INFO,
        "the longest packets that may leave come through again",
    ),
    event(
        "FB0208",
        "path_mtu",
        Level::WARN,
        "packets that may leave are longer than the path to the receivebox takes: which",
    ),
    event(
        "FB0301",
        "bundle_state",
        Level::INFO,
        "a bundle is shaped, or no longer and why; in a dry run also the rate",
    ),
    event("FB0302", "bundle_state", Level::DEBUG, "a state of a bundle's law"),
    event("FB0303", "bundle_alarm", Level::WARN, "what an operator should look into"),
    event("FB0304", "bundle_alarm", Level::INFO, "that is over"),
    event(
        "FB0305",
        "traffic",
        Level::WARN,
        "traffic is left to the kernel, or the receivebox is blind, and why",
    ),
    event("FB0306", "traffic", Level::INFO, "that is over"),
    event(
        "FB0307",
        "passing",
        Level::WARN,
        "frames that the kernel forwards, unshaped, whatever they are for: MPLS, PPPoE, VLANs that the bridge drops, \
         frames too long; told once of each",
    ),
    event(
        "FB0308",
        "python",
        Level::WARN,
        "an algorithm in Python raised an exception, with the traceback, or cannot be run, or its child has ended: \
         fallbacks decide",
    ),
    event("FB0309", "python", Level::INFO, "the next child runs, and decides"),
    event(
        "FB0310",
        "python_output",
        Level::INFO,
        "a line that an algorithm in Python, or what its child runs, has written on standard error, as far as there is \
         room for it",
    ),
    event(
        "FB0311",
        "expired",
        Level::WARN,
        "the box did not run for more than 2 s, and drops packets that waited so long",
    ),
    event(
        "FB0401",
        "device",
        Level::WARN,
        "a device does what it should not, or could not be attached to again",
    ),
    event("FB0402", "device", Level::INFO, "a device was made again, and is attached to"),
    event(
        "FB0403",
        "device",
        Level::DEBUG,
        "a driver refuses one way of taking packets, and another is tried",
    ),
    event(
        "FB0404",
        "datapath",
        Level::INFO,
        "which datapath was taken, where that is left to the box",
    ),
    event(
        "FB0405",
        "waiting",
        Level::WARN,
        "what a box that has not begun waits for: a device, its settings, an address; each minute",
    ),
    event("FB0406", "waiting", Level::INFO, "all is there, and the box begins"),
    event("FB0501", "trace", Level::ERROR, "rows of the trace are lost"),
    event("FB0502", "trace", Level::INFO, "the trace is written again"),
    event("FB0503", "log", Level::WARN, "lines of the log were lost"),
    event("FB0504", "stdout", Level::WARN, "nothing is said on stdout"),
    event("FB0505", "control", Level::DEBUG, "a client of the control socket was not answered"),
    event("FB0506", "metrics", Level::ERROR, "metrics are not served"),
    event("FB0507", "metrics", Level::DEBUG, "a client of the metrics was not answered"),
    event("FB0601", "agent_slots", Level::INFO, "connections have given up their slots"),
    event(
        "FB0602",
        "agent_algorithm",
        Level::ERROR,
        "an algorithm failed, and the kernel's law has its connection",
    ),
    event("FB0603", "recording", Level::ERROR, "a recording ends before its agent"),
    event("FB0604", "libbpf", Level::DEBUG, "what the library that loads BPF programs says"),
];

/// Index in [`EVENTS`] of the event of a line with this metadata.
pub(super) fn place(metadata: &Metadata<'_>) -> Option<usize> {
    let is_it = |event: &Event| event.name == metadata.target() && event.level == *metadata.level();
    EVENTS.iter().position(is_it)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_in_order_and_of_one_form() {
        let ids: Vec<&str> = EVENTS.iter().map(|event| event.id).collect();
        assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
        for id in &ids {
            let digits = id.strip_prefix("FB").expect(id);
            assert!(digits.len() == 4 && digits.bytes().all(|it| it.is_ascii_digit()), "{id}");
            assert_ne!(*id, UNKNOWN);
        }
        let keys: BTreeSet<(&str, String)> =
            EVENTS.iter().map(|event| (event.name, event.level.to_string())).collect();
        assert_eq!(keys.len(), EVENTS.len(), "two ids of one name and level");
    }
}
