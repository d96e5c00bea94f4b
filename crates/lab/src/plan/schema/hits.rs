//! Keys of what hits boxes, the agent and sites.

use super::{DURATION, SHARE, Section, key};

/// `[[fault]]`.
pub static FAULT: Section = Section {
    heading: "[[fault]]",
    summary: "A signal to a box, or to the agent of the flows, during the run. A plan or an arm \
              without that program goes on without the fault.",
    keys: &[
        key("at", DURATION, "", "when, since the start of the run"),
        key("bundle", "the name of a bundle", "", "the bundle whose box it is; not for an agent"),
        key("end", "\"sendbox\", \"receivebox\" or \"agent\"", "", "which program"),
        key(
            "action",
            "\"kill\", \"stop\", \"continue\", \"restart\" or, with `--backend emu` alone, \"starve\" (stopped \
             for 450 ms of every 500 ms until \"continue\"); of a box also \"restart_other_key\", \
             \"restart_full_log\" (on a full disk) or \"restart_blocked_log\" (a pipe that is never read), \
             these two with `--backend emu` alone",
            "",
            "what happens to the program",
        ),
    ],
};

/// `[[upset]]`.
pub static UPSET: Section = Section {
    heading: "[[upset]]",
    summary: "A change of a device of a bundle's sites, of what comes to its receivebox, or of who asks its \
              boxes, in every arm: also in those without the boxes. With `--backend sim` only unseen, \
              forged, suspend and resume.",
    keys: &[
        key("at", DURATION, "", "when, since the start of the run"),
        key("bundle", "the name of a bundle", "", "the bundle whose sites change"),
        key(
            "site",
            "\"a\" or \"b\"",
            "\"a\"",
            "which site; unseen, forged, suspend and resume are at site B",
        ),
        key(
            "what",
            "\"down\", \"up\" (the WAN device of the box), \"leave_bridge\", \"join_bridge\" (the \
             same device), \"mtu\" (of both ports), \"address\", \"no_address\" (one more of the \
             bridge, among the hosts'), \"offloads_on\", \"offloads_off\" (of both ports), \"remove_lan\", \
             \"make_lan\" (the LAN device of the box), \"foreign_tc\" (another program sets the rate of \
             the queues below the WAN device's root), \"status_clients\", \"metrics_clients\" (silent \
             connections to the control socket and the metrics port of the site's boxes), \"unseen\" \
             (packets that pass the receivebox by), \"forged\" (packets in the bundle's name), \
             \"suspend\" or \"resume\" (the receivebox's machine, which packets pass, with \
             `--backend sim` alone)",
            "",
            "what changes",
        ),
        key("mtu", "a whole number, 576 to 9000", "none", "bytes, with \"mtu\""),
        key("share", SHARE, "none", "of the packets, with \"unseen\""),
        key(
            "rate",
            "0kbit/s or a rate such as \"10Mbit/s\"",
            "none",
            "of frames with \"forged\", of queues with \"foreign_tc\"",
        ),
        key(
            "clients",
            "a whole number, 0 to 1000",
            "none",
            "how many with \"status_clients\" and \"metrics_clients\", from then on",
        ),
    ],
};

/// `[attack]`.
pub static ATTACK: Section = Section {
    heading: "[attack]",
    summary: "Forged, replayed, truncated and oversized messages to a box in its peer's name, as \
              fast as a socket takes them. Replayed are the newest messages and the session \
              before the first fault, that one first as a whole. Its time and the second after it \
              are a window called `attack`.",
    keys: &[
        key("at", DURATION, "", "when it begins, since the start of the run"),
        key("bundle", "the name of a bundle", "", "the bundle whose box is attacked"),
        key("target", "\"sendbox\" or \"receivebox\"", "", "which box"),
        key("messages", "a whole number, 1 to 1000000000", "1000000", "how many messages"),
        key("enabled", "true or false", "true", "false: no attack"),
    ],
};
