//! Keys of faults, upsets and attacks: disturbances of boxes, the agent and sites.

use super::{DURATION, Kind, RATE_OR_NONE, SHARE, Section, key};

/// Most silent clients: a process has 1,024 files by default.
const CLIENTS_MAX: u32 = 1000;

/// The bundle that a fault, an upset or an attack hits.
const BUNDLE: Kind = Kind::Text("the name of a bundle");

/// `[[fault]]`.
pub static FAULT: Section = Section {
    summary: "A signal to a sendbox, a receivebox or the flows' agent during the run. Plans and \
              arms without that program ignore it.",
    keys: &[
        key("at", DURATION, "", "when, since the start of the run"),
        key(
            "bundle",
            BUNDLE,
            "required for a sendbox or receivebox",
            "the bundle of the sendbox or receivebox; not for an agent",
        ),
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
                    "stopped for 450 ms of every 500 ms until \"continue\"; only with `--backend \
                     emu`",
                ),
                ("restart_other_key", "of a box"),
                (
                    "restart_full_log",
                    "of a sendbox or receivebox, on a full disk; only with `--backend emu`",
                ),
                (
                    "restart_blocked_log",
                    "of a sendbox or receivebox, whose log is a pipe that is never read; only with \
                     `--backend emu`",
                ),
            ]),
            "",
            "the signal to the program",
        ),
    ],
};

/// `[[upset]]`.
pub static UPSET: Section = Section {
    summary: "A change to a device of a bundle's sites, to the traffic at its receivebox or to its \
              status clients. It happens in every arm, even without a sendbox. With `--backend \
              sim` only unseen, forged, suspend and resume.",
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
                ("down", "the WAN device of the sendbox or receivebox"),
                ("up", "the same device"),
                ("leave_bridge", "the same device"),
                ("join_bridge", "the same device"),
                ("mtu", "of both ports"),
                ("address", "one more port of the bridge, next to the hosts' ports"),
                ("no_address", "remove that port"),
                ("offloads_on", "of both ports"),
                ("offloads_off", "of both ports"),
                ("remove_lan", "the LAN device of the sendbox or receivebox"),
                ("make_lan", "the same device"),
                (
                    "foreign_tc",
                    "another program sets the rate of the queues below the WAN device's root",
                ),
                (
                    "status_clients",
                    "silent connections to the control sockets of the site's sendbox and \
                     receivebox",
                ),
                (
                    "metrics_clients",
                    "silent connections to the metrics ports of the site's sendbox and receivebox",
                ),
                ("unseen", "packets that bypass the receivebox"),
                ("forged", "packets with forged addresses of the bundle"),
                (
                    "suspend",
                    "the receivebox's machine, while packets still pass; only with `--backend sim`",
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
            "number of clients with \"status_clients\" and \"metrics_clients\", from then on",
        ),
    ],
};

/// `[attack]`.
pub static ATTACK: Section = Section {
    summary: "Forged, replayed, truncated and oversized messages to a sendbox or receivebox in its \
              peer's name, as fast as a socket accepts them. It first replays the whole session \
              before the first fault, then the newest messages. The attack and the second after it \
              are a window called `attack`.",
    keys: &[
        key("at", DURATION, "", "start of the attack, since the start of the run"),
        key("bundle", BUNDLE, "", "the bundle whose sendbox or receivebox is attacked"),
        key("target", Kind::OneOf(&[("sendbox", ""), ("receivebox", "")]), "", "which box"),
        key("messages", Kind::Whole(1, 1_000_000_000), "1000000", "number of messages"),
        key("enabled", Kind::Switch, "true", "false: no attack"),
    ],
};
