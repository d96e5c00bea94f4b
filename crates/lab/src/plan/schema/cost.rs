//! Keys of trials of costs.

use std::time::Duration;

use super::{Kind, NAME, RATE_OR_NONE, Section, key};

/// Longest turn: the processor's speed changes over longer times than a block of turns.
const TURN_MAX: Duration = Duration::from_secs(1);
/// Most CPU time that an agent may waste per acknowledgement.
const BURDEN_MAX: Duration = Duration::from_millis(1);

/// `[cost]`.
pub static COST: Section = Section {
    summary: "A trial on one processor between `warmup` and `stop`; the arms of a cell and seed are measured together.",
    keys: &[
        key(
            "platform",
            Kind::OneOf(&[
                ("kernel", "the kernel's own"),
                ("native", "in BPF alone"),
                ("agent", "in an agent, see [agent]"),
                ("empty", "a BPF program that does nothing"),
                ("fold", "the BPF program of an agent, without decisions"),
            ]),
            "\"kernel\"",
            "where the algorithm runs",
        ),
        key(
            "algorithm",
            Kind::OneOf(&[
                ("cubic", ""),
                ("reno", ""),
                ("newreno", "the kernel's reno, and the registry's newreno"),
                ("bbr", "on the platforms kernel and agent"),
            ]),
            "\"cubic\"",
            "the algorithm",
        ),
        key(
            "over",
            NAME,
            "the plan's baseline",
            "the arm of the same cell and seed with which the trial is compared",
        ),
        key("connections", Kind::Whole(1, 10_000), "1", "connections that share the rate"),
        key(
            "segments",
            Kind::Whole(1, 44),
            "no limit",
            "segments that the kernel hands to the device in one piece at most",
        ),
        key(
            "rate",
            RATE_OR_NONE,
            "searched: the kernel's algorithm takes half to seven tenths of the processor",
            "rate of the traffic; \"0bit/s\": as fast as possible",
        ),
        key(
            "counter",
            Kind::OneOf(&[("idle", "SCHED_IDLE"), ("nice19", "nice 19")]),
            "\"idle\"",
            "how the process runs that counts in the remaining time of the processor",
        ),
        key(
            "turn",
            Kind::Duration(Duration::ZERO, TURN_MAX),
            "\"100ms\"",
            "measured time in each turn of an arm; 0s: the arms follow each other",
        ),
        key("times_programs", Kind::Switch, "false", "whether the kernel times the BPF programs"),
        key(
            "burden",
            Kind::Duration(Duration::ZERO, BURDEN_MAX),
            "\"0s\"",
            "CPU time that an agent wastes per acknowledgement, for a difference of known size",
        ),
    ],
};
