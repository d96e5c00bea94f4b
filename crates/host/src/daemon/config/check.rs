//! The whole of a configuration file: `[box]`, `[trace]`, and the sections that have files of their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use forebay_core::units::ByteCount;
use toml::de::DeTable;

use super::bundle::Bundle;
use super::document::{Section, Source, Table};
use super::places::Places;
use super::{Config, DatapathKind, Forward, Role, TraceConfig, bundle, uplink, value};
use crate::port::XdpOptions;

const ROOT: Section = Section {
    name: "",
    is_list: false,
    keys: &["box", "xdp", "trace", "metrics", "uplink", "group", "bundle"],
};

pub(super) const BOX: Section = Section {
    name: "box",
    is_list: false,
    keys: &[
        "role",
        "lan",
        "wan",
        "forward",
        "own",
        "overhead",
        "datapath",
        "kernel_qdisc",
        "listen",
        "control",
        "realtime",
        "user",
        "status_group",
    ],
};

/// One of several boxes of a file: with a name, and with what a file of one box has beside the box.
const ONE_OF_SEVERAL: Section = Section {
    name: "box",
    is_list: true,
    keys: &[
        "name",
        "role",
        "lan",
        "wan",
        "forward",
        "own",
        "overhead",
        "datapath",
        "kernel_qdisc",
        "listen",
        "control",
        "realtime",
        "user",
        "status_group",
        "xdp",
        "trace",
        "metrics",
        "uplink",
        "group",
        "bundle",
    ],
};

pub(super) const TRACE: Section =
    Section { name: "trace", is_list: false, keys: &["file", "limit"] };

pub(super) const XDP: Section =
    Section { name: "xdp", is_list: false, keys: &["busy_poll", "threads", "zero_copy"] };

pub(super) const METRICS: Section = Section { name: "metrics", is_list: false, keys: &["listen"] };

/// All that a file may have.
pub(super) const SECTIONS: [&Section; 7] =
    [&BOX, &bundle::BUNDLE, &uplink::UPLINK, &uplink::GROUP, &TRACE, &METRICS, &XDP];

/// Default size of a trace: an hour of a bundle with 500 rows/s of 150 bytes.
const TRACE_LIMIT: ByteCount = ByteCount::new(256_000_000);

/// The boxes of a document: one, or as many as it has tables `[[box]]`. `None`: something is wrong, as noted.
pub(super) fn boxes(source: &Source<'_>, document: &DeTable<'_>) -> Option<Vec<Config>> {
    let root = Table::open(source, &ROOT, document, 0);
    if root.is_list("box") {
        return several(source, &root);
    }
    let node = root.table("box", &BOX);
    if !root.has("box") {
        root.wrong("box", "a table [box], which says what the box is, or several [[box]]");
    }
    Some(vec![config(source, &root, node, None)?])
}

fn several(source: &Source<'_>, root: &Table<'_>) -> Option<Vec<Config>> {
    for section in SECTIONS.iter().filter(|it| it.name != "box" && root.has(it.name)) {
        let header = root.header(section);
        root.wrong(section.name, format!("{header} behind the [[box]] that it is of"));
    }
    let tables = root.tables("box", &ONE_OF_SEVERAL);
    if tables.is_empty() {
        root.wrong("box", "at least one [[box]]");
    }
    let read = |table: &Table<'_>| {
        let name = table.optional("name", value::name);
        config(source, table, Some(*table), name)
    };
    let mut boxes: Vec<Option<Config>> = tables.iter().map(read).collect();
    for (place, table) in tables.iter().enumerate() {
        let Some(own) = &boxes[place] else { continue };
        for other in boxes[..place].iter().flatten() {
            keep_apart(table, own, other);
        }
    }
    let roles: Vec<Role> = boxes.iter().flatten().map(|it| it.role).collect();
    for own in boxes.iter_mut().flatten() {
        own.is_only_of_role = roles.iter().filter(|role| **role == own.role).count() == 1;
    }
    boxes.into_iter().collect()
}

/// Notes what two boxes of one machine cannot both have.
fn keep_apart(table: &Table<'_>, own: &Config, other: &Config) {
    let name = &other.name;
    if own.name == *name {
        let allowed = "a name that no other box has: without one a box has the name of its role";
        table.wrong("name", allowed);
        return;
    }
    let has_same = own.listen.iter().any(|address| other.listen.contains(address));
    if has_same {
        table.wrong("listen", format!("an address or a port that box {name:?} has not"));
    }
    if own.lan.is_some() && own.lan == other.lan {
        table.wrong("lan", format!("a device that is not box {name:?}'s"));
    }
    if own.lan.as_ref() == Some(&other.wan) {
        table.wrong("lan", format!("a device that is not the WAN of box {name:?}"));
    }
    if other.lan.as_ref() == Some(&own.wan) {
        table.wrong("wan", format!("a device that is not the LAN of box {name:?}"));
    }
    if own.role == other.role && own.wan == other.wan {
        // Each holds a queue of it, or the one program that it can have.
        let role = own.role;
        table.wrong("wan", format!("a device that is not the WAN of {role} {name:?}"));
    }
    if own.control == other.control {
        table.wrong("control", format!("a path that box {name:?} has not"));
    }
    let wrong_within = |section: &'static Section, key: &str, allowed: String| {
        if let Some(within) = table.opened(section) {
            within.wrong(key, allowed);
        }
    };
    if own.metrics.is_some() && own.metrics == other.metrics {
        wrong_within(&METRICS, "listen", format!("an address or a port that box {name:?} has not"));
    }
    let file = |config: &Config| config.trace.as_ref().map(|trace| trace.file.clone());
    if own.trace.is_some() && file(own) == file(other) {
        wrong_within(&TRACE, "file", format!("a file that is not box {name:?}'s"));
    }
}

/// The box of the table `node`, whose other sections are in `root`; `None`: something is wrong, as noted.
fn config(
    source: &Source<'_>,
    root: &Table<'_>,
    node: Option<Table<'_>>,
    name: Option<String>,
) -> Option<Config> {
    let folder = source.file.parent().unwrap_or(Path::new(""));
    let role = node.and_then(|node| node.required("role", value::role));
    // Without a role the file is refused, whatever port this is.
    let own_role = role.unwrap_or(Role::Sendbox);
    let listen = node.and_then(|node| listen(&node, own_role));
    let trace = root.table("trace", &TRACE).and_then(|table| trace(table, folder));
    let xdp = xdp(root, role);
    let metrics = root.table("metrics", &METRICS).and_then(|table| metrics(table, own_role));
    let addresses = listen.as_deref().unwrap_or_default();
    let bundles = bundle::read(root, role, addresses, folder);
    let uplink = uplink::read(root, role, &bundles);
    let node = node?;
    let wan = node.required("wan", value::device);
    let forward = forward(&node, role);
    let lan = lan(&node, role, wan.as_deref(), forward);
    let own = own(&node, role, forward);
    let overhead = node.optional("overhead", value::overhead);
    if role == Some(Role::Receivebox) && overhead.is_some() {
        node.wrong("overhead", "nothing: a receivebox has no rates");
    }
    let datapath = datapath(&node, role, forward, &bundles);
    if datapath == DatapathKind::Kernel && root.has("xdp") {
        root.wrong("xdp", "nothing with box.datapath = \"kernel\", which opens no AF_XDP sockets");
    }
    let kernel_qdisc = node.optional("kernel_qdisc", value::kernel_qdisc);
    if datapath == DatapathKind::User && kernel_qdisc.is_some() {
        let allowed = "nothing without box.datapath = \"kernel\", or \"auto\" where no bundle has \
                       a qdisc";
        node.wrong("kernel_qdisc", allowed);
    }
    let control = node.optional("control", |text| value::socket_path(folder, text));
    let (user, status_group) =
        (node.optional("user", value::name), node.optional("status_group", value::name));
    let realtime = node.switch("realtime");
    let role = role?;
    let places = places(source, root, &node, &bundles);
    let name = name.unwrap_or_else(|| role.name().into());
    let control = control.unwrap_or_else(|| PathBuf::from(format!("/run/forebay/{name}.sock")));
    Some(Config {
        file: source.file.to_owned(),
        name,
        role,
        is_only_of_role: true,
        lan,
        wan: wan?,
        forward,
        own,
        overhead,
        datapath,
        kernel_qdisc,
        listen: listen?,
        control,
        realtime: realtime.unwrap_or(true),
        by_socket: false,
        user,
        status_group,
        xdp,
        trace,
        metrics,
        uplink,
        places,
        bundles: bundles.into_iter().map(|bundle| bundle.finish(role)).collect::<Option<_>>()?,
    })
}

/// The lines of what only files and devices show to be wrong.
fn places(
    source: &Source<'_>,
    root: &Table<'_>,
    node: &Table<'_>,
    bundles: &[bundle::Bundle<'_>],
) -> Places {
    let of_box = [
        ("box.role", node.line("role")),
        ("box.lan", node.line("lan")),
        ("box.listen", node.line("listen")),
        ("box.user", node.line("user")),
        ("box.status_group", node.line("status_group")),
        ("metrics.listen", root.line("metrics.listen")),
        ("uplink.rate", root.line("uplink.rate")),
    ];
    let of_box = of_box.map(|(key, line)| ((None, key), line));
    let of_bundle = |(place, bundle): (usize, &bundle::Bundle<'_>)| {
        let keys = [("bundle.key_file", "key_file"), ("bundle.max_rate", "max_rate")];
        keys.map(|(key, within)| ((Some(place), key), bundle.table.line(within)))
    };
    let of_bundles = bundles.iter().enumerate().flat_map(of_bundle);
    Places::new(source.has_several(), of_box.into_iter().chain(of_bundles))
}

/// The own addresses for messages.
fn listen(node: &Table<'_>, role: Role) -> Option<Vec<SocketAddr>> {
    let listen = node.one_or_list("listen", |text| value::address(role, text));
    let listen: Vec<SocketAddr> = listen.into_iter().collect::<Option<_>>()?;
    let allowed = "an address of IPv4, one of IPv6, or a list of one each";
    if listen.is_empty() {
        node.wrong("listen", allowed);
    }
    for (place, address) in listen.iter().enumerate() {
        if listen[..place].iter().any(|it| it.is_ipv4() == address.is_ipv4()) {
            node.wrong_element("listen", place, allowed);
        }
    }
    Some(listen)
}

/// What forwards the packets of a sendbox: what the file says, or what follows from whether it has a `lan`. A bridge
/// needs one.
fn forward(node: &Table<'_>, role: Option<Role>) -> Forward {
    if role == Some(Role::Receivebox) {
        if node.has("forward") {
            node.wrong("forward", "nothing: a receivebox forwards no packets");
        }
        return Forward::default();
    }
    let derived = if node.has("lan") { Forward::Bridge } else { Forward::Route };
    let forward = node.optional("forward", value::forward).unwrap_or(derived);
    if role.is_some() && forward == Forward::Bridge && !node.has("lan") {
        let allowed =
            "\"route\" without box.lan: a bridge needs the port of a sendbox towards its hosts";
        node.wrong("forward", allowed);
    }
    forward
}

/// The device towards a sendbox's hosts: of a bridge the other port, else the only one whose packets are taken. A
/// receivebox has none.
fn lan(
    node: &Table<'_>,
    role: Option<Role>,
    wan: Option<&str>,
    forward: Forward,
) -> Option<String> {
    if role == Some(Role::Receivebox) {
        if node.has("lan") {
            node.wrong("lan", "nothing: a receivebox only watches box.wan");
        }
        return None;
    }
    let lan = node.optional("lan", value::device);
    if forward == Forward::Bridge && lan.is_some() && lan.as_deref() == wan {
        node.wrong("lan", "a device other than box.wan");
    }
    lan
}

/// Whether a sendbox's bundles have what the machine itself sends.
fn own(node: &Table<'_>, role: Option<Role>, forward: Forward) -> bool {
    let own = node.switch("own");
    if role == Some(Role::Receivebox) && node.has("own") {
        node.wrong("own", "nothing: a receivebox counts what came from box.from");
    } else if own == Some(true) && forward == Forward::Bridge {
        node.wrong("own", "false with box.forward = \"bridge\"");
    }
    own.unwrap_or_default()
}

fn xdp(root: &Table<'_>, role: Option<Role>) -> XdpOptions {
    let Some(table) = root.table("xdp", &XDP) else { return XdpOptions::default() };
    if role == Some(Role::Receivebox) {
        root.wrong("xdp", "nothing: a receivebox only watches box.wan");
    }
    XdpOptions {
        zero_copy: table.switch("zero_copy").unwrap_or_default(),
        busy_poll: table.optional("busy_poll", value::busy_poll),
        threads: table.switch("threads").unwrap_or_default(),
    }
}

/// What carries the packets; refuses what the kernel's queues cannot do.
fn datapath(
    node: &Table<'_>,
    role: Option<Role>,
    forward: Forward,
    bundles: &[Bundle<'_>],
) -> DatapathKind {
    let default = match forward {
        Forward::Bridge => DatapathKind::User,
        Forward::Route => DatapathKind::Auto,
    };
    let datapath = node.optional("datapath", value::datapath).unwrap_or(default);
    if role == Some(Role::Receivebox) && node.has("datapath") {
        node.wrong("datapath", "nothing: a receivebox carries no packets");
    }
    let mut with_qdisc = bundles.iter().filter(|bundle| bundle.table.has("qdisc"));
    match datapath {
        DatapathKind::Auto if with_qdisc.next().is_some() => {
            let says_nothing = ["lan", "forward", "datapath"].iter().all(|key| !node.has(key));
            if role == Some(Role::Sendbox) && says_nothing {
                // What a bridge has by default, so that its port may have been forgotten.
                let allowed = "the port of a sendbox towards its hosts, or box.forward = \"route\"";
                node.wrong("lan", allowed);
            }
            DatapathKind::User
        }
        DatapathKind::Kernel => {
            for bundle in with_qdisc {
                let allowed = "nothing with box.datapath = \"kernel\": box.kernel_qdisc says what \
                               packets wait in there";
                bundle.table.wrong("qdisc", allowed);
            }
            datapath
        }
        DatapathKind::Auto | DatapathKind::User => datapath,
    }
}

fn trace(table: Table<'_>, folder: &Path) -> Option<TraceConfig> {
    let limit = table.optional("limit", value::trace_size).unwrap_or(TRACE_LIMIT);
    let file = table.required("file", |text| value::path(folder, text))?;
    Some(TraceConfig { file, limit })
}

fn metrics(table: Table<'_>, role: Role) -> Option<SocketAddr> {
    table.required("listen", |text| value::host(role.metrics_port(), text))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parse(role: &str, xdp: &str) -> Result<XdpOptions, String> {
        let (lan, cc) = match role {
            "sendbox" => ("lan = \"s0\"\n", "cc = \"copa\"\n"),
            _ => ("", ""),
        };
        let text = format!(
            "[box]\nrole = \"{role}\"\nwan = \"s1\"\nlisten = \"10.1.3.1\"\n{lan}[xdp]\n{xdp}\n[[bundle]]\n\
             name = \"b\"\nid = 1\npeer = \"10.1.3.2\"\nto = [\"10.1.2.0/24\"]\nfrom = [\"10.1.1.0/24\"]\n\
             key_file = \"key\"\n{cc}"
        );
        let config = Config::parse(Path::new("box.toml"), &text);
        config.map(|config| config.xdp).map_err(|error| error.to_string())
    }

    #[test]
    fn a_sendbox_s_sockets_are_asked_for_what_the_file_says() {
        let busy_poll = Some(Duration::from_micros(50));
        let options = XdpOptions { zero_copy: true, busy_poll, threads: true };
        let all = "zero_copy = true\nbusy_poll = \"50us\"\nthreads = true";
        assert_eq!(parse("sendbox", all), Ok(options));
        assert_eq!(parse("sendbox", ""), Ok(XdpOptions::default()));
        for (role, xdp, named) in [
            ("sendbox", "busy_poll = \"2ms\"", [":7: xdp.busy_poll = \"2ms\"", "1us to 1ms"]),
            ("sendbox", "busy_poll = \"0s\"", [":7: xdp.busy_poll = \"0s\"", "1us to 1ms"]),
            ("sendbox", "zero_copy = \"yes\"", [":7: xdp.zero_copy = \"yes\"", "true or false"]),
            ("sendbox", "zerocopy = true", [":7: xdp.zerocopy", "busy_poll, threads, zero_copy"]),
            ("sendbox", "threads = 4", [":7: xdp.threads = 4", "true or false"]),
            ("receivebox", "zero_copy = true", [": xdp = ", "a receivebox only watches"]),
        ] {
            let error = parse(role, xdp).unwrap_err();
            assert!(named.iter().all(|part| error.contains(part)), "{xdp}: {error}");
        }
    }
}
