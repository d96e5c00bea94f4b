//! The whole of a configuration file: `[box]`, `[trace]`, and the sections that have files of their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use forebay_core::units::ByteCount;
use toml::de::DeTable;

use super::document::{Section, Source, Table};
use super::{Config, Role, TraceConfig, bundle, uplink, value};

const ROOT: Section =
    Section { name: "", keys: &["box", "trace", "metrics", "uplink", "group", "bundle"] };

pub(super) const BOX: Section = Section {
    name: "box",
    keys: &["role", "lan", "wan", "listen", "control", "realtime", "user", "status_group"],
};

pub(super) const TRACE: Section = Section { name: "trace", keys: &["file", "limit"] };

pub(super) const METRICS: Section = Section { name: "metrics", keys: &["listen"] };

/// All that a file may have, with the headers that begin them.
pub(super) const SECTIONS: [(&str, &Section); 6] = [
    ("[box]", &BOX),
    ("[[bundle]]", &bundle::BUNDLE),
    ("[uplink]", &uplink::UPLINK),
    ("[[group]]", &uplink::GROUP),
    ("[trace]", &TRACE),
    ("[metrics]", &METRICS),
];

/// Default size of a trace: an hour of a bundle with 500 rows/s of 150 bytes.
const TRACE_LIMIT: ByteCount = ByteCount::new(256_000_000);

/// The configuration; `None`: something is wrong, as noted.
pub(super) fn config(source: &Source<'_>, document: &DeTable<'_>) -> Option<Config> {
    let root = Table::open(source, &ROOT, document, 0);
    let folder = source.file.parent().unwrap_or(Path::new(""));
    let node = root.table("box", &BOX);
    if !root.has("box") {
        root.wrong("box", "a table [box], which says what the box is");
    }
    let role = node.and_then(|node| node.required("role", value::role));
    // Without a role the file is refused, whatever port this is.
    let own_role = role.unwrap_or(Role::Sendbox);
    let listen =
        node.and_then(|node| node.required("listen", |text| value::address(own_role, text)));
    let trace = root.table("trace", &TRACE).and_then(|table| trace(table, folder));
    let metrics = root.table("metrics", &METRICS).and_then(|table| metrics(table, own_role));
    let bundles = bundle::read(source, &root, role, listen, folder);
    let uplink = uplink::read(&root, role, &bundles);
    let node = node?;
    let wan = node.required("wan", value::device);
    let lan = lan(&node, role, wan.as_deref());
    let control = node.optional("control", |text| value::socket_path(folder, text));
    let (user, status_group) =
        (node.optional("user", value::name), node.optional("status_group", value::name));
    let realtime = node.switch("realtime");
    let role = role?;
    Some(Config {
        file: source.file.to_owned(),
        role,
        lan,
        wan: wan?,
        listen: listen?,
        control: control.unwrap_or_else(|| PathBuf::from(format!("/run/forebay/{role}.sock"))),
        realtime: realtime.unwrap_or(true),
        user,
        status_group,
        trace,
        metrics,
        uplink,
        bundles: bundles.into_iter().map(|bundle| bundle.finish(role)).collect::<Option<_>>()?,
    })
}

/// The port towards a sendbox's hosts; a receivebox has none.
fn lan(node: &Table<'_>, role: Option<Role>, wan: Option<&str>) -> Option<String> {
    if role == Some(Role::Receivebox) {
        if node.has("lan") {
            node.wrong("lan", "nothing: a receivebox only watches box.wan");
        }
        return None;
    }
    if role.is_some() && !node.has("lan") {
        node.wrong("lan", "the port of a sendbox towards its hosts");
    }
    let lan = node.optional("lan", value::device);
    if lan.is_some() && lan.as_deref() == wan {
        node.wrong("lan", "a device other than box.wan");
    }
    lan
}

fn trace(table: Table<'_>, folder: &Path) -> Option<TraceConfig> {
    let limit = table.optional("limit", value::trace_size).unwrap_or(TRACE_LIMIT);
    let file = table.required("file", |text| value::path(folder, text))?;
    Some(TraceConfig { file, limit })
}

fn metrics(table: Table<'_>, role: Role) -> Option<SocketAddr> {
    table.required("listen", |text| value::host(role.metrics_port(), text))
}
