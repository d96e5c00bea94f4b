//! Every key that the file of a box may contain, with its type, unit and range.

use forebay_core::bundle::NAME_MAX;
use forebay_core::bundle::sendbox::RATES;
use forebay_core::bundle::uplink::WEIGHTS;
use forebay_core::units::{ByteCount, Duration};
use forebay_reader::Format;
use forebay_reader::schema::{Key, Kind, Section, group_keys, joined, key};

use super::DatapathKind;

/// A file of one box.
pub static ONE: Format = Format { root: &ROOT, names_elements: false };
/// A file of several boxes: each table `[[box]]` is followed by all sections of that box.
pub static SEVERAL: Format = Format { root: &ROOT_OF_SEVERAL, names_elements: false };

/// Allowed values of an address, for error texts.
pub(super) const ADDRESS: &str = "one host's IP address, such as \"10.1.3.1\", \"10.1.3.1:7000\" or \
                                  \"[2001:db8::1]:7000\"";
/// Allowed values of a device name, for error texts. The kernel's limit is 15 bytes (IFNAMSIZ).
pub(super) const DEVICE: &str = "a network device's name of 1 to 15 characters, such as \"eth0\"";
/// Allowed values of a prefix, for error texts.
pub(super) const PREFIX: &str = "a prefix such as \"10.1.2.0/24\" or \"2001:db8:2::/48\"";
/// Allowed values of a path, for error texts.
pub(super) const PATH: &str = "a path, as a text";
/// The host name that a peer may have instead of an address, for error texts.
pub(super) const NAMED: &str = "or a name with a dot, such as \"site-b.example.org\"";
/// The name of a bundle, a box, a group or an account.
pub(super) const NAME: Kind = Kind::Name(NAME_MAX, "._-");
/// Values of a rate.
const RATE: Kind = Kind::Rate(*RATES.start(), *RATES.end());
/// Values of a weight.
const WEIGHT: Kind = Kind::Whole(*WEIGHTS.start(), *WEIGHTS.end());
/// Largest overhead: more than nested tunnels add.
const OVERHEAD_MAX: ByteCount = ByteCount::new(500);
/// Least limit of a trace.
const TRACE_MIN: ByteCount = ByteCount::new(1_000_000);
/// Bounds of a busy poll: a longer one would delay packets that are due.
const BUSY_POLL: Kind = Kind::Duration(Duration::from_micros(1), Duration::from_millis(1));

/// The top level of a file of one box.
static ROOT: Section = Section {
    summary: "A sendbox or a receivebox.",
    keys: &joined::<7>(&[
        &[key(
            "box",
            Kind::Table(&BOX),
            "",
            "the box: role, devices and \
                                             datapath",
        )
        .also(", or several [[box]]")],
        PARTS,
    ]),
};

/// The top level of a file of several boxes.
static ROOT_OF_SEVERAL: Section = Section {
    summary: "Boxes of one machine.",
    keys: &[key("box", Kind::Tables(&ONE_OF_SEVERAL), "", "each of the boxes")],
};

/// `[box]`.
static BOX: Section = Section { summary: "The box: role, devices and datapath.", keys: OF_A_BOX };

/// `[[box]]`: contains the sections that a file of one box has next to `[box]`.
static ONE_OF_SEVERAL: Section = Section {
    summary: "One of the boxes of a machine.",
    keys: &joined::<20>(&[
        &[key("name", NAME, "the role", "name of the box, unique in the file")],
        OF_A_BOX,
        PARTS,
    ]),
};

/// Keys of the section of one box.
const OF_A_BOX: &[Key] = &[
    key("role", Kind::OneOf(&[("sendbox", ""), ("receivebox", "")]), "", "the role of the box"),
    key(
        "lan",
        Kind::Text(DEVICE),
        "of a sendbox that routes: packets of all devices",
        "device towards the site's hosts; of a sendbox",
    ),
    key("wan", Kind::Text(DEVICE), "", "device towards the Internet"),
    key(
        "forward",
        Kind::OneOf(&[("bridge", ""), ("route", "")]),
        "\"bridge\" with lan, \"route\" without",
        "how the machine forwards the sendbox's packets",
    ),
    key(
        "own",
        Kind::Switch,
        "false",
        "bundles include packets that the machine itself sends; with forward = \"route\"",
    ),
    key(
        "overhead",
        Kind::Size(ByteCount::ZERO, OVERHEAD_MAX),
        "by the kind of wan",
        "bytes that each packet gains below wan",
    ),
    key(
        "datapath",
        Kind::OneOf(DatapathKind::NAMES),
        "\"user\"; with forward = \"route\" \"auto\"",
        "where the sendbox queues packets",
    ),
    key(
        "kernel_qdisc",
        Kind::OneOf(&[("fifo", ""), ("fq_codel", ""), ("cake", ""), ("fq", ""), ("sfq", "")]),
        "queues for flows by their hash",
        "queue of a bundle with datapath = \"kernel\"",
    ),
    key(
        "listen",
        Kind::Any(ADDRESS),
        "",
        "own address for messages, or a list of one of each IP version",
    ),
    key(
        "control",
        Kind::Text("a path of at most 107 bytes"),
        "/run/forebay/NAME.sock",
        "socket of forebay status, reload, apply and explain",
    ),
    key(
        "realtime",
        Kind::Switch,
        "true",
        "the packet thread runs under SCHED_FIFO if the system allows it",
    ),
    key("user", NAME, "forebay, if that account exists", "account to which the box switches"),
    key("status_group", NAME, "none", "group whose members may run forebay status"),
];

/// Sections of a box next to `[box]`.
const PARTS: &[Key] = &[
    key("xdp", Kind::Table(&XDP), "all defaults", "a sendbox's AF_XDP sockets"),
    key("trace", Kind::Table(&TRACE), "no trace", "rows of epochs, decisions and queues"),
    key("metrics", Kind::Table(&METRICS), "no metrics", "metrics over HTTP"),
    key(
        "uplink",
        Kind::Table(&UPLINK),
        "bundles do not share a \
                                         rate",
        "the line of a sendbox's site",
    ),
    key("group", Kind::Tables(&GROUP), "none", "bundles that share the uplink as one"),
    key("bundle", Kind::Tables(&BUNDLE), "", "the bundles"),
];

/// Keys of the table `xdp`.
static XDP: Section = Section {
    summary: "Options of a sendbox's AF_XDP sockets.",
    keys: &[
        key(
            "busy_poll",
            BUSY_POLL,
            "it sleeps at once",
            "time for which the packet thread polls the LAN's driver before it sleeps",
        ),
        key("threads", Kind::Switch, "false", "a thread for each receive queue of the LAN"),
        key("zero_copy", Kind::Switch, "false", "driver and box share the memory of frames"),
    ],
};

/// Keys of the table `trace`.
static TRACE: Section = Section {
    summary: "A row for each epoch, decision and sample of the queue, as JSON lines.",
    keys: &[
        key("file", Kind::Text(PATH), "", "the file"),
        key(
            "limit",
            Kind::Size(TRACE_MIN, ByteCount::new(u64::MAX)),
            "\"256MB\"",
            "size at which the file is renamed to FILE.1",
        ),
    ],
};

/// Keys of the table `metrics`.
static METRICS: Section = Section {
    summary: "Metrics for Prometheus.",
    keys: &[key("listen", Kind::Text(ADDRESS), "", "own address on which they are served")],
};

/// `[uplink]`.
pub(super) static UPLINK: Section = Section {
    summary: "The line of a sendbox's site.",
    keys: &[key("rate", RATE, "", "maximum rate of all bundles together")],
};

/// `[[group]]`.
pub(super) static GROUP: Section = Section {
    summary: "Bundles that share the uplink as one.",
    keys: &group_keys(NAME, WEIGHT, RATE),
};

/// `[[bundle]]`.
static BUNDLE: Section = Section {
    summary: "The traffic between two sites.",
    keys: &[
        key("name", NAME, "", "name in logs, status and rows; unique"),
        key("id", Kind::Whole(0, 65_535), "", "number, the same at both boxes; unique"),
        key("peer", Kind::Text(PEER), "", "the other box"),
        key("to", Kind::Texts(PREFIX), "", "prefixes of the packets' destinations"),
        key(
            "from",
            Kind::Texts(PREFIX),
            "any; required of a receivebox",
            "prefixes of their sources",
        ),
        key("key_file", Kind::Text(PATH), "", "key file, made by forebay keygen"),
        key(
            "nat",
            Kind::OneOf(&[("source", ""), ("destination", ""), ("both", "")]),
            "no NAT",
            "addresses that NAT between the boxes changes",
        )
        .also(", of the packets from the sendbox on"),
        key(
            "cc",
            Kind::Spec("an algorithm such as \"copa\", or a table with `kind`"),
            "required of a sendbox",
            "how the bundle's rate is found",
        ),
        key(
            "qdisc",
            Kind::Spec("a name or a table with `kind`, such as { kind = \"sfq\" }"),
            "fq_codel",
            "how the sendbox schedules",
        ),
        key(
            "supervised",
            Kind::Switch,
            "true",
            "the sendbox limits the rate only while measurements show a benefit",
        ),
        key(
            "min_rate",
            RATE,
            "a quarter of the path's rate, at most 1.2Mbit/s",
            "minimum rate, unless the share of the uplink is less",
        ),
        key("max_rate", RATE, "none", "never faster"),
        key("weight", WEIGHT, "1", "share among those in the same group; with [uplink]"),
        key("guarantee", RATE, "none", "rate guaranteed against other bundles; with [uplink]"),
        key(
            "group",
            Kind::Text("the name of a group"),
            "directly below the uplink",
            "its group; with [uplink]",
        ),
    ],
};

/// Allowed values of `peer`: [`ADDRESS`] or [`NAMED`].
const PEER: &str = "one host's IP address, such as \"10.1.3.1\", \"10.1.3.1:7000\" or \"[2001:db8::1]:7000\", or a \
                    name with a dot, such as \"site-b.example.org\"";
