//! The complete configuration file: `[box]`, `[trace]`, and the sections that have modules of their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use forebay_core::units::ByteCount;
use forebay_reader::{Document, Reader};

use super::bundle::Bundle;
use super::places::Places;
use super::{Config, DatapathKind, Forward, KernelQdisc, Role, TraceConfig, bundle, uplink, value};
use crate::port::XdpOptions;

/// Default size of a trace: an hour of a bundle with 500 rows/s of 150 bytes.
const TRACE_LIMIT: ByteCount = ByteCount::new(256_000_000);

/// The boxes in the document of `file`: one, or one per table `[[box]]`. `None`: an error was noted.
pub(super) fn boxes(document: &Document, file: &Path, has_several: bool) -> Option<Vec<Config>> {
    let root = document.root();
    if has_several {
        return several(file, &root);
    }
    Some(vec![config(file, &root, root.table("box").as_ref(), None)?])
}

fn several(file: &Path, root: &Reader<'_>) -> Option<Vec<Config>> {
    let tables = root.tables("box");
    if tables.is_empty() {
        root.wrong_because("box", "at least one [[box]]");
    }
    let read = |table: &Reader<'_>| {
        let name = table.name("name");
        config(file, table, Some(table), Some(name))
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

/// Notes conflicts between two boxes of one machine.
fn keep_apart(table: &Reader<'_>, own: &Config, other: &Config) {
    let name = &other.name;
    if own.name == *name {
        let allowed = "a name that no other box has; without a name, a box has the name of its \
                       role";
        table.wrong_because("name", allowed);
        return;
    }
    let has_same = own.listen.iter().any(|address| other.listen.contains(address));
    if has_same {
        table.wrong_because(
            "listen",
            format!(
                "an address or a port that box {name:?} does not \
                                               use"
            ),
        );
    }
    if own.lan.is_some() && own.lan == other.lan {
        table.wrong_because("lan", format!("a device that box {name:?} does not use"));
    }
    if own.lan.as_ref() == Some(&other.wan) {
        table.wrong_because("lan", format!("a device that is not the WAN of box {name:?}"));
    }
    if other.lan.as_ref() == Some(&own.wan) {
        table.wrong_because("wan", format!("a device that is not the LAN of box {name:?}"));
    }
    if own.role == other.role && own.wan == other.wan {
        // Each box holds a queue of the device, or the only program that it can have.
        let role = own.role;
        table.wrong_because("wan", format!("a device that is not the WAN of {role} {name:?}"));
    }
    if own.control == other.control {
        table.wrong_because("control", format!("a path that box {name:?} does not use"));
    }
    let wrong_within = |name: &str, key: &str, allowed: String| {
        table.table(name).iter().for_each(|within| within.wrong_because(key, &allowed));
    };
    if own.metrics.is_some() && own.metrics == other.metrics {
        wrong_within(
            "metrics",
            "listen",
            format!("an address or a port that box {name:?} does not use"),
        );
    }
    let file = |config: &Config| config.trace.as_ref().map(|trace| trace.file.clone());
    if own.trace.is_some() && file(own) == file(other) {
        wrong_within("trace", "file", format!("a file that box {name:?} does not use"));
    }
}

/// The box of the table `node`, whose other sections are in `root`; `None`: an error was noted. If the file
/// has several boxes, `name` is its name in the file.
fn config(
    file: &Path,
    root: &Reader<'_>,
    node: Option<&Reader<'_>>,
    name: Option<Option<String>>,
) -> Option<Config> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let role = node.and_then(|node| node.choice("role", &Role::ALL.map(|it| (it.name(), it))));
    // Without a role the reader refuses the file anyway, so the port does not matter.
    let own_role = role.unwrap_or(Role::Sendbox);
    let listen = node.and_then(|node| listen(node, own_role));
    let trace = root.table("trace").and_then(|table| trace(&table, folder));
    let xdp = xdp(root, role);
    let metrics = root.table("metrics").and_then(|table| {
        table.checked("listen", |text| value::host(own_role.metrics_port(), text))
    });
    let addresses = listen.as_deref().unwrap_or_default();
    let bundles = bundle::read(root, role, addresses, folder);
    let uplink = uplink::read(root, role, &bundles);
    let node = node?;
    let wan = node.checked("wan", value::device);
    let forward = forward(node, role);
    let lan = lan(node, role, wan.as_deref(), forward);
    let own = own(node, role, forward);
    let overhead = node.size("overhead").map(|bytes| bytes.as_u64() as u16);
    if role == Some(Role::Receivebox) && overhead.is_some() {
        node.wrong_because("overhead", "nothing: a receivebox has no rates");
    }
    let datapath = datapath(node, role, forward, &bundles);
    if datapath.is_in_kernel() && root.has("xdp") {
        let allowed = "nothing with box.datapath = \"kernel\", which opens no AF_XDP sockets";
        root.wrong_because("xdp", allowed);
    }
    let kernel_qdisc = node.choice("kernel_qdisc", &KernelQdisc::ALL.map(|it| (it.name(), it)));
    if datapath == DatapathKind::User && kernel_qdisc.is_some() {
        let allowed = "nothing without box.datapath = \"kernel\", or \"auto\" if no bundle has a \
                       qdisc";
        node.wrong_because("kernel_qdisc", allowed);
    }
    let control = node.checked("control", |text| value::socket_path(folder, text));
    let (user, status_group) = (node.name("user"), node.name("status_group"));
    let realtime = node.switch("realtime");
    let role = role?;
    let places = places(name.is_some(), root, node, &bundles);
    let name = name.flatten().unwrap_or_else(|| role.name().into());
    let control = control.unwrap_or_else(|| PathBuf::from(format!("/run/forebay/{name}.sock")));
    Some(Config {
        file: file.to_owned(),
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

/// The lines of values whose errors show only in files and devices.
fn places(
    is_one_of_several: bool,
    root: &Reader<'_>,
    node: &Reader<'_>,
    bundles: &[Bundle<'_>],
) -> Places {
    let within = |table: &str, key: &str| root.table(table)?.line(key);
    let of_box = [
        ("box.role", node.line("role")),
        ("box.lan", node.line("lan")),
        ("box.listen", node.line("listen")),
        ("box.user", node.line("user")),
        ("box.status_group", node.line("status_group")),
        ("metrics.listen", within("metrics", "listen")),
        ("uplink.rate", within("uplink", "rate")),
    ];
    let of_box = of_box.map(|(key, line)| ((None, key), line));
    let of_bundle = |(place, bundle): (usize, &Bundle<'_>)| {
        let keys = [("bundle.key_file", "key_file"), ("bundle.max_rate", "max_rate")];
        keys.map(|(key, within)| ((Some(place), key), bundle.table.line(within)))
    };
    let of_bundles = bundles.iter().enumerate().flat_map(of_bundle);
    Places::new(is_one_of_several, of_box.into_iter().chain(of_bundles))
}

/// The own addresses for messages.
fn listen(node: &Reader<'_>, role: Role) -> Option<Vec<SocketAddr>> {
    let address = |text: &str| value::address(role, text);
    let listen = match node.node("listen")?.value.as_list() {
        Some(_) => node.list("listen", address),
        None => vec![node.checked("listen", address)],
    };
    let listen: Vec<SocketAddr> = listen.into_iter().collect::<Option<_>>()?;
    let allowed = "an address of IPv4, one of IPv6, or a list of one each";
    if listen.is_empty() {
        node.wrong_because("listen", allowed);
    }
    for (place, address) in listen.iter().enumerate() {
        if listen[..place].iter().any(|it| it.is_ipv4() == address.is_ipv4()) {
            node.wrong_element("listen", place, allowed);
        }
    }
    Some(listen)
}

/// Forwarder of the packets of a sendbox: from the file, or derived from `lan`. A bridge needs a `lan`.
fn forward(node: &Reader<'_>, role: Option<Role>) -> Forward {
    if role == Some(Role::Receivebox) {
        if node.has("forward") {
            node.wrong_because("forward", "nothing: a receivebox forwards no packets");
        }
        return Forward::default();
    }
    let derived = if node.has("lan") { Forward::Bridge } else { Forward::Route };
    let forward =
        node.choice("forward", &Forward::ALL.map(|it| (it.name(), it))).unwrap_or(derived);
    if role.is_some() && forward == Forward::Bridge && !node.has("lan") {
        let allowed =
            "\"route\" without box.lan: on a bridge, a sendbox needs its port towards the hosts";
        node.wrong_because("forward", allowed);
    }
    forward
}

/// The device towards a sendbox's hosts. For a bridge it is the other port, else the only device whose
/// packets are taken. A receivebox has none.
fn lan(
    node: &Reader<'_>,
    role: Option<Role>,
    wan: Option<&str>,
    forward: Forward,
) -> Option<String> {
    if role == Some(Role::Receivebox) {
        if node.has("lan") {
            node.wrong_because("lan", "nothing: a receivebox only watches box.wan");
        }
        return None;
    }
    let lan = node.checked("lan", value::device);
    if forward == Forward::Bridge && lan.is_some() && lan.as_deref() == wan {
        node.wrong_because("lan", "a device other than box.wan");
    }
    lan
}

/// Whether a sendbox's bundles also carry packets that the machine itself sends.
fn own(node: &Reader<'_>, role: Option<Role>, forward: Forward) -> bool {
    let own = node.switch("own");
    if role == Some(Role::Receivebox) && node.has("own") {
        node.wrong_because("own", "nothing: a receivebox counts the packets from bundle.from");
    } else if own == Some(true) && forward == Forward::Bridge {
        node.wrong_because("own", "false with box.forward = \"bridge\"");
    }
    own.unwrap_or_default()
}

fn xdp(root: &Reader<'_>, role: Option<Role>) -> XdpOptions {
    let Some(table) = root.table("xdp") else { return XdpOptions::default() };
    if role == Some(Role::Receivebox) {
        root.wrong_because("xdp", "nothing: a receivebox only watches box.wan");
    }
    XdpOptions {
        zero_copy: table.switch("zero_copy").unwrap_or_default(),
        busy_poll: table.duration("busy_poll"),
        threads: table.switch("threads").unwrap_or_default(),
    }
}

/// Datapath of the box; refuses settings that the kernel's queues cannot implement.
fn datapath(
    node: &Reader<'_>,
    role: Option<Role>,
    forward: Forward,
    bundles: &[Bundle<'_>],
) -> DatapathKind {
    let default = match forward {
        Forward::Bridge => DatapathKind::User,
        Forward::Route => DatapathKind::Auto,
    };
    let datapath = node.choice("datapath", DatapathKind::CHOICES).unwrap_or(default);
    if role == Some(Role::Receivebox) && node.has("datapath") {
        node.wrong_because("datapath", "nothing: a receivebox carries no packets");
    }
    let mut with_qdisc = bundles.iter().filter(|bundle| bundle.table.has("qdisc"));
    match datapath {
        DatapathKind::Auto if with_qdisc.next().is_some() => {
            let says_nothing = ["lan", "forward", "datapath"].iter().all(|key| !node.has(key));
            if role == Some(Role::Sendbox) && says_nothing {
                // The default of a bridge, so the port may have been forgotten.
                let allowed = "the port of a sendbox towards its hosts, or box.forward = \"route\"";
                node.wrong_because("lan", allowed);
            }
            DatapathKind::User
        }
        _ if datapath.is_in_kernel() => {
            for bundle in with_qdisc {
                let allowed = "nothing with box.datapath = \"kernel\": there, box.kernel_qdisc \
                               sets the queue";
                bundle.table.wrong_because("qdisc", allowed);
            }
            datapath
        }
        _ => datapath,
    }
}

fn trace(table: &Reader<'_>, folder: &Path) -> Option<TraceConfig> {
    let limit = table.size("limit").unwrap_or(TRACE_LIMIT);
    let file = table.checked("file", |text| value::path(folder, text))?;
    Some(TraceConfig { file, limit })
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
    fn xdp_options_follow_the_file() {
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
