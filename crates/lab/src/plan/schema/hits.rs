//! Keys of faults, upsets and attacks: disturbances of boxes, the agent and sites.

use super::{DURATION, Kind, RATE_OR_NONE, SHARE, Section, key};

/// Most silent clients: a process has 1,024 files by default.
const CLIENTS_MAX: u32 = 1000;

const BUNDLE: Kind = Kind::Text("the name of a bundle");

/// `[[fault]]`.
pub static FAULT: Section = Section {
    summary: "A signal to a box, or to the agent of the flows, during the run. A plan or an arm \
              without that program goes on without the fault.",
    keys: &[
        key("at", DURATION, "", "when, since the start of the run"),
        key("bundle", BUNDLE, "required of a box", "the bundle whose box it is; not for an agent"),
        key(
            "end",
            Kind::OneOf(&[("sendbox", ""), ("receivebox", ""), ("agent", "")]),
            "",
            "which program",
        ),
        key(
            "action",
            Kind::OneOf(&[
                ("kill", ""),
                ("stop", ""),
                ("continue", ""),
                ("restart", ""),
                (
                    "starve",
                    "stopped for 450 ms of every 500 ms until \"continue\"; with `--backend emu` alone",
                ),
                ("restart_other_key", "of a box"),
                ("restart_full_log", "of a box, on a full disk; with `--backend emu` alone"),
                (
                    "restart_blocked_log",
                    "of a box, its log a pipe that is never read; with `--backend emu` alone",
                ),
            ]),
            "",
            "what happens to the program",
        ),
    ],
};

/// `[[upset]]`.
pub static UPSET: Section = Section {
    summary: "A change of a device of a bundle's sites, of what comes to its receivebox, or of who asks its \
              boxes, in every arm: also in those without the boxes. With `--backend sim` only unseen, \
              forged, suspend and resume.",
    keys: &[
        key("at", DURATION, "", "when, since the start of the run"),
        key("bundle", BUNDLE, "", "the bundle whose sites change"),
        key(
            "site",
            Kind::OneOf(&[("a", ""), ("b", "")]),
            "\"a\"",
            "which site; unseen, forged, suspend and resume are at site B",
        ),
        key(
            "what",
            Kind::OneOf(&[
                ("down", "the WAN device of the box"),
                ("up", "the same device"),
                ("leave_bridge", "the same device"),
                ("join_bridge", "the same device"),
                ("mtu", "of both ports"),
                ("address", "one more of the bridge, among the hosts'"),
                ("no_address", "without that one"),
                ("offloads_on", "of both ports"),
                ("offloads_off", "of both ports"),
                ("remove_lan", "the LAN device of the box"),
                ("make_lan", "the same device"),
                (
                    "foreign_tc",
                    "another program sets the rate of the queues below the WAN device's root",
                ),
                ("status_clients", "silent connections to the control socket of the site's boxes"),
                ("metrics_clients", "silent connections to the metrics port of the site's boxes"),
                ("unseen", "packets that pass the receivebox by"),
                ("forged", "packets in the bundle's name"),
                (
                    "suspend",
                    "the receivebox's machine, which packets pass; with `--backend sim` alone",
                ),
                ("resume", "the same machine"),
            ]),
            "",
            "what changes",
        ),
        key("mtu", Kind::Whole(576, 9000), "none", "bytes, with \"mtu\""),
        key("share", SHARE, "none", "of the packets, with \"unseen\""),
        key(
            "rate",
            RATE_OR_NONE,
            "none",
            "of frames with \"forged\", of queues with \"foreign_tc\"",
        ),
        key(
            "clients",
            Kind::Whole(0, CLIENTS_MAX),
            "none",
            "how many with \"status_clients\" and \"metrics_clients\", from then on",
        ),
    ],
};

/// `[attack]`.
pub static ATTACK: Section = Section {
    summary: "Forged, replayed, truncated and oversized messages to a box in its peer's name, as \
              fast as a socket takes them. Replayed are the newest messages and the session \
              before the first fault, that one first as a whole. Its time and the second after it \
              are a window called `attack`.",
    keys: &[
        key("at", DURATION, "", "when it begins, since the start of the run"),
        key("bundle", BUNDLE, "", "the bundle whose box is attacked"),
        key("target", Kind::OneOf(&[("sendbox", ""), ("receivebox", "")]), "", "which box"),
        key("messages", Kind::Whole(1, 1_000_000_000), "1000000", "how many messages"),
        key("enabled", Kind::Switch, "true", "false: no attack"),
    ],
};
