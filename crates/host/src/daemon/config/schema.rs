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

pub(super) const ADDRESS: &str = "one host's IP address, such as \"10.1.3.1\", \"10.1.3.1:7000\" or \
                                  \"[2001:db8::1]:7000\"";
pub(super) const DEVICE: &str = "a network device's name of 1 to 15 characters, such as \"eth0\"";
pub(super) const PREFIX: &str = "a prefix such as \"10.1.2.0/24\" or \"2001:db8:2::/48\"";
pub(super) const PATH: &str = "a path, as a text";
pub(super) const NAMED: &str = "or a name with a dot, such as \"site-b.example.org\"";
/// The name of a bundle, a box, a group or an account.
pub(super) const NAME: Kind = Kind::Name(NAME_MAX, "._-");
const RATE: Kind = Kind::Rate(*RATES.start(), *RATES.end());
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
        &[key("box", Kind::Table(&BOX), "", "what the box is").also(", or several [[box]]")],
        PARTS,
    ]),
};

/// The top level of a file of several boxes.
static ROOT_OF_SEVERAL: Section = Section {
    summary: "Boxes of one machine.",
    keys: &[key("box", Kind::Tables(&ONE_OF_SEVERAL), "", "each of the boxes")],
};

/// `[box]`.
static BOX: Section = Section { summary: "What the box is.", keys: OF_A_BOX };

/// `[[box]]`: contains the sections that a file of one box has next to `[box]`.
static ONE_OF_SEVERAL: Section = Section {
    summary: "One of the boxes of a machine.",
    keys: &joined::<20>(&[
        &[key("name", NAME, "the role", "name of the box, unique in the file")],
        OF_A_BOX,
        PARTS,
    ]),
};

const OF_A_BOX: &[Key] = &[
    key("role", Kind::OneOf(&[("sendbox", ""), ("receivebox", "")]), "", "what the box does"),
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
        "what forwards a sendbox's packets",
    ),
    key(
        "own",
        Kind::Switch,
        "false",
        "bundles have what the machine itself sends, too; with forward = \"route\"",
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
        "what carries a sendbox's packets",
    ),
    key(
        "kernel_qdisc",
        Kind::OneOf(&[("fifo", ""), ("fq_codel", ""), ("cake", ""), ("fq", ""), ("sfq", "")]),
        "queues for flows by their hash",
        "what packets of a bundle wait in with datapath = \"kernel\"",
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
        "the packet thread runs under SCHED_FIFO where that is allowed",
    ),
    key("user", NAME, "forebay, if there is such an account", "the account that the box becomes"),
    key("status_group", NAME, "none", "the group that forebay status answers"),
];

/// Sections of a box next to `[box]`.
const PARTS: &[Key] = &[
    key("xdp", Kind::Table(&XDP), "all defaults", "a sendbox's AF_XDP sockets"),
    key("trace", Kind::Table(&TRACE), "no trace", "rows of epochs, decisions and queues"),
    key("metrics", Kind::Table(&METRICS), "no metrics", "what is served over HTTP"),
    key("uplink", Kind::Table(&UPLINK), "nothing is shared out", "the line of a sendbox's site"),
    key("group", Kind::Tables(&GROUP), "none", "bundles that share the uplink as one"),
    key("bundle", Kind::Tables(&BUNDLE), "", "the bundles"),
];

static XDP: Section = Section {
    summary: "What a sendbox's AF_XDP sockets ask of driver and kernel.",
    keys: &[
        key(
            "busy_poll",
            BUSY_POLL,
            "it sleeps at once",
            "the packet thread looks into the LAN's driver for so long before it sleeps",
        ),
        key("threads", Kind::Switch, "false", "a thread for each receive queue of the LAN"),
        key("zero_copy", Kind::Switch, "false", "driver and box share the memory of frames"),
    ],
};

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

static METRICS: Section = Section {
    summary: "Metrics for Prometheus.",
    keys: &[key("listen", Kind::Text(ADDRESS), "", "own address on which they are served")],
};

/// `[uplink]`.
pub(super) static UPLINK: Section = Section {
    summary: "The line of a sendbox's site.",
    keys: &[key("rate", RATE, "", "what all bundles send together at the most")],
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
        key("key_file", Kind::Text(PATH), "", "what forebay keygen wrote"),
        key(
            "nat",
            Kind::OneOf(&[("source", ""), ("destination", ""), ("both", "")]),
            "no NAT",
            "what NAT between the boxes changes",
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
            "limits hold only while the sendbox measures that they pay",
        ),
        key(
            "min_rate",
            RATE,
            "a quarter of what the path carries, at most 1.2Mbit/s",
            "never slower, unless the share of the uplink is less",
        ),
        key("max_rate", RATE, "none", "never faster"),
        key("weight", WEIGHT, "1", "share among those in the same group; with [uplink]"),
        key("guarantee", RATE, "none", "what is there whatever other bundles send; with [uplink]"),
        key(
            "group",
            Kind::Text("the name of a group"),
            "directly below the uplink",
            "its group; with [uplink]",
        ),
    ],
};

const PEER: &str = "one host's IP address, such as \"10.1.3.1\", \"10.1.3.1:7000\" or \"[2001:db8::1]:7000\", or a \
                    name with a dot, such as \"site-b.example.org\"";
