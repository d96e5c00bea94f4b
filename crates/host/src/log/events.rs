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
    /// When the box logs this line.
    pub when: &'static str,
}

const fn event(id: &'static str, name: &'static str, level: Level, when: &'static str) -> Event {
    Event { id, name, level, when }
}

/// The id of a line that is in no table, such as one of a library.
pub const UNKNOWN: &str = "FB0000";

/// All events, by id.
pub const EVENTS: &[Event] = &[
    event("FB0101", "started", Level::INFO, "the box or agent has started"),
    event(
        "FB0102",
        "stopping",
        Level::INFO,
        "the box or agent received a signal to end; how traffic continues",
    ),
    event(
        "FB0103",
        "stopped",
        Level::INFO,
        "the box or agent has ended as requested; any other end prints a line `error:`",
    ),
    event(
        "FB0104",
        "stopping",
        Level::WARN,
        "packets that the box could no longer send when it ended",
    ),
    event(
        "FB0105",
        "reload",
        Level::INFO,
        "the box has read its files again (SIGHUP, `forebay reload` or `apply`), with the changes; \
         or a trial was confirmed or reverted",
    ),
    event(
        "FB0106",
        "reload",
        Level::WARN,
        "the box refuses the files, with the reason: the previous configuration stays in force",
    ),
    event("FB0107", "systemd", Level::WARN, "the service manager could not be notified"),
    event("FB0108", "privileges", Level::WARN, "the box has more privileges than it needs"),
    event("FB0109", "panic", Level::ERROR, "a bug: please report it with the lines below"),
    event(
        "FB0201",
        "peer",
        Level::INFO,
        "the other box is alive, stops, or began a new session \
                                          (restart or new keys)",
    ),
    event("FB0202", "peer", Level::WARN, "the other box is silent, or has other keys"),
    event("FB0203", "scope", Level::INFO, "both boxes assign the same packets to the bundle again"),
    event(
        "FB0204",
        "scope",
        Level::WARN,
        "the boxes assign different packets to the bundle: which",
    ),
    event(
        "FB0205",
        "address",
        Level::INFO,
        "the other box has a new address, where it has answered a challenge: the old and the new \
         address",
    ),
    event(
        "FB0206",
        "address",
        Level::WARN,
        "authentic messages come from an address that this box does not use: which, and why",
    ),
    event(
        "FB0207",
        "path_mtu",
        Level::INFO,
        "the longest packets that may leave reach the receivebox again",
    ),
    event(
        "FB0208",
        "path_mtu",
        Level::WARN,
        "packets that may leave are longer than the path to the receivebox carries: which",
    ),
    event(
        "FB0301",
        "bundle_state",
        Level::INFO,
        "a bundle is shaped, or no longer, with the reason; in a dry run also the rate",
    ),
    event("FB0302", "bundle_state", Level::DEBUG, "a state of a bundle's algorithm"),
    event("FB0303", "bundle_alarm", Level::WARN, "a problem that needs an operator"),
    event("FB0304", "bundle_alarm", Level::INFO, "the problem has ended"),
    event(
        "FB0305",
        "traffic",
        Level::WARN,
        "the kernel forwards the traffic, or the receivebox is blind, with the reason",
    ),
    event("FB0306", "traffic", Level::INFO, "the box takes the traffic again"),
    event(
        "FB0307",
        "passing",
        Level::WARN,
        "frames that the kernel always forwards unshaped: MPLS, PPPoE, VLANs that the bridge \
         drops, frames too long; logged once per kind",
    ),
    event(
        "FB0308",
        "python",
        Level::WARN,
        "an algorithm in Python raised an exception (with the traceback), cannot run, or its child \
         has ended: fallbacks decide",
    ),
    event("FB0309", "python", Level::INFO, "the next child runs and decides"),
    event(
        "FB0310",
        "python_output",
        Level::INFO,
        "a line on standard error from an algorithm in Python or a program of its child, up to a \
         limit",
    ),
    event(
        "FB0311",
        "expired",
        Level::WARN,
        "the box did not run for more than 2 s, and drops the packets that waited",
    ),
    event(
        "FB0401",
        "device",
        Level::WARN,
        "a device misbehaves, or the box could not attach to it again",
    ),
    event(
        "FB0402",
        "device",
        Level::INFO,
        "a device was made again, and the box has attached to \
                                            it",
    ),
    event(
        "FB0403",
        "device",
        Level::DEBUG,
        "a driver refuses one way of receiving packets, and the box tries another",
    ),
    event(
        "FB0404",
        "datapath",
        Level::INFO,
        "the datapath that the box chose, with box.datapath = \"auto\"",
    ),
    event(
        "FB0405",
        "waiting",
        Level::WARN,
        "a starting box waits for a device, its settings or an address; each minute",
    ),
    event(
        "FB0406",
        "waiting",
        Level::INFO,
        "all devices and addresses are ready, and the box \
                                             starts",
    ),
    event("FB0501", "trace", Level::ERROR, "rows of the trace were lost"),
    event("FB0502", "trace", Level::INFO, "the trace is written again"),
    event("FB0503", "log", Level::WARN, "lines of the log were lost"),
    event("FB0504", "stdout", Level::WARN, "stdout cannot be written"),
    event("FB0505", "control", Level::DEBUG, "a client of the control socket was not answered"),
    event("FB0506", "metrics", Level::ERROR, "metrics are not served"),
    event("FB0507", "metrics", Level::DEBUG, "a client of the metrics was not answered"),
    event("FB0601", "agent_slots", Level::INFO, "connections have given up their slots"),
    event(
        "FB0602",
        "agent_algorithm",
        Level::ERROR,
        "an algorithm failed, and the kernel's own algorithm has its connection",
    ),
    event("FB0603", "recording", Level::ERROR, "a recording ends before its agent"),
    event("FB0604", "libbpf", Level::DEBUG, "a message of the library that loads BPF programs"),
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
    fn ids_are_unique_sorted_and_uniform() {
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
