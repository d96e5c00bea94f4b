//! The configuration file of a box.
//!
//! ```toml
//! [box]
//! role    = "sendbox"                 # or "receivebox"
//! lan     = "s0"                      # port towards the site's hosts (sendbox only, and not without a bridge)
//! wan     = "s1"                      # port towards the Internet; a bridge's are of one bridge
//! forward = "bridge"                  # or "route", the default without `lan` (sendbox only)
//! own     = false                     # with "route": also packets that the machine itself sends
//! listen  = "10.1.3.1"                # own address for messages; ":PORT" may follow
//! datapath = "user"                   # or "kernel" or "auto" (sendbox only)
//! control = "/run/forebay/sendbox.sock"
//!
//! [[bundle]]
//! name     = "b"
//! id       = 1                        # the same at both boxes, unique in each
//! peer     = "10.1.3.2"               # the other box: an address, or a name
//! to       = ["10.1.2.0/24"]          # destinations of the bundle's packets
//! from     = ["10.1.1.0/24"]          # their sources (a receivebox needs them)
//! key_file = "bundle.key"             # made by `forebay keygen`; relative to this file
//! nat      = "source"                 # fields that NAT between the boxes changes, if there is any
//! cc       = "copa"                   # sendbox only, as the rest
//! qdisc    = { kind = "fq_codel", limit = "150ms", target = "25ms", interval = "250ms", follow_rtt = true }
//! min_rate = "2Mbit/s"
//! max_rate = "900Mbit/s"
//!
//! [uplink]
//! rate = "1Gbit/s"                    # shared by all bundles of a sendbox
//! ```
//! A file with several boxes has tables `[[box]]`, each followed by its own sections: `[[box.bundle]]`,
//! `[box.uplink]`.
//!
//! A packet belongs to the bundle with the longest `to` prefix that contains its destination, among the
//! bundles whose `from` contains its source. Prefixes of different bundles may contain each other.
//!
//! Every value carries its unit, and an unknown key is an error: a mistyped limit must not become a default.

mod bundle;
mod check;
mod datapath;
mod peer;
mod places;
pub mod schema;
#[cfg(test)]
mod tests;
mod uplink;
pub(super) mod value;

use std::fmt;
use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use forebay_core::bundle::{BundleId, Nat};
use forebay_core::spec::Spec;
use forebay_core::units::{ByteCount, Rate};
use forebay_reader::Document;
use ipnet::IpNet;
use nix::errno::Errno;
use nix::net::if_::{if_nameindex, if_nametoindex};
use serde::Deserialize;

use crate::port::XdpOptions;
pub(in crate::daemon) use datapath::datapaths;
pub use datapath::{DatapathKind, Forward, KernelQdisc};
/// All errors in the file of a box.
pub use forebay_reader::{FileError as ConfigError, Problem as ConfigProblem};
pub use peer::Peer;
pub use places::Places;
pub use uplink::Uplink;

/// Most bundles in one file: the capacity of the tables of the BPF programs.
pub const MAX_BUNDLES: usize = forebay_ebpf::MAX_BUNDLES;

/// Longest configuration file: `MAX_BUNDLES` generous entries.
pub(super) const MAX_FILE: u64 = 4 << 20;

forebay_core::named! {
    /// Role of a box.
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, Deserialize, schemars::JsonSchema,
    )]
    #[serde(rename_all = "lowercase")]
    pub enum Role {
        /// Queues, schedules and paces.
        Sendbox => "sendbox",
        /// Watches and reports.
        Receivebox => "receivebox",
    }
}

impl Role {
    /// UDP port of a box's messages if the file gives none. Each role has its own, since a machine that sends
    /// and receives runs one box of each. Both ports are in the range that IANA never assigns (RFC 6335
    /// section 6: 49152 to 65535). They are also above Linux's default `ip_local_port_range` (up to 60999),
    /// so that no outgoing connection of the box takes them first.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Sendbox => 61475,
            Self::Receivebox => 61476,
        }
    }

    /// TCP port of a box's metrics if the file gives none. Each role has its own, as for the messages.
    pub const fn metrics_port(self) -> u16 {
        match self {
            Self::Sendbox => 9475,
            Self::Receivebox => 9476,
        }
    }

    /// The box at the other end of a bundle.
    pub const fn other(self) -> Self {
        match self {
            Self::Sendbox => Self::Receivebox,
            Self::Receivebox => Self::Sendbox,
        }
    }
}

/// Folder of the configuration files for systemd units.
pub(super) const UNITS: &str = "/etc/forebay";

/// The systemd unit that runs the only box of a role in `file`, derived from the file's name:
/// `forebay-sendbox@NAME` reads `/etc/forebay/NAME.toml`. `None`: no unit reads this file.
pub fn unit_of(role: Role, file: &Path) -> Option<String> {
    let name = file.strip_prefix(UNITS).ok()?.to_str()?.strip_suffix(".toml")?;
    // Characters that appear unchanged in the name of a unit (systemd-escape(1)).
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":_.-".contains(&byte);
    let is_name = !name.is_empty() && !name.starts_with('.') && name.bytes().all(is_plain);
    is_name.then(|| format!("forebay-{role}@{name}"))
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or(())
    }
}

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file that the configuration came from.
    pub file: PathBuf,
    /// Name of the box; the name of its role if the file gives none.
    pub name: String,
    /// Role of the box.
    pub role: Role,
    /// No other box of the file has the same role.
    pub is_only_of_role: bool,
    /// Device towards the site's hosts. A sendbox on a bridge always has one. A router has one if packets
    /// from other devices are in no bundle.
    pub lan: Option<String>,
    /// Device towards the Internet.
    pub wan: String,
    /// Forwarder of the packets of a sendbox.
    pub forward: Forward,
    /// The bundles of a sendbox also carry packets that the machine itself sends.
    pub own: bool,
    /// Bytes that each packet gains below the port towards the Internet; `None`: derived from the kind of
    /// device.
    pub overhead: Option<u16>,
    /// Datapath of a sendbox.
    pub datapath: DatapathKind,
    /// Qdisc for packets that stay in the kernel; `None`: queues for flows by their hash.
    pub kernel_qdisc: Option<KernelQdisc>,
    /// Own addresses and ports of the messages: one, or one per IP version.
    pub listen: Vec<SocketAddr>,
    /// Path of the control socket.
    pub control: PathBuf,
    /// Runs the packet thread under SCHED_FIFO if the kernel allows it.
    pub realtime: bool,
    /// A receivebox counts and samples packets from a packet socket, and loads no BPF program. The user who
    /// starts the box sets it; it is no key of the file.
    pub by_socket: bool,
    /// The account that the box switches to after its setup; `None`: the default one if it exists.
    pub user: Option<String>,
    /// The group that may query the status, in addition to root and the user of the box.
    pub status_group: Option<String>,
    /// Options that a sendbox's AF_XDP sockets request from driver and kernel.
    pub xdp: XdpOptions,
    /// Rows of every epoch, decision and queue sample, for experiments.
    pub trace: Option<TraceConfig>,
    /// Address that serves metrics over HTTP; `None`: none.
    pub metrics: Option<SocketAddr>,
    /// The uplink that the bundles of a sendbox share; `None`: they share none.
    pub uplink: Option<Uplink>,
    /// The bundles; at least one.
    pub bundles: Vec<BundleConfig>,
    /// Lines of the values in the file.
    pub places: Places,
}

/// Destination of the trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceConfig {
    /// The file.
    pub file: PathBuf,
    /// At this size, and at each start, the file is renamed to `FILE.1`, which replaces an older one.
    pub limit: ByteCount,
}

/// One bundle as one box sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct BundleConfig {
    /// Name in logs, status and rows.
    pub name: String,
    /// Number in the messages, the same at both boxes and unique in each.
    pub id: BundleId,
    /// Location of the other box.
    pub peer: Peer,
    /// Destination prefixes.
    pub to: Vec<IpNet>,
    /// Source prefixes; empty: any (sendbox only). Packets from other sources are in no bundle.
    pub from: Vec<IpNet>,
    /// File of the shared key.
    pub key_file: PathBuf,
    /// Fields that NAT between the boxes changes in packets; `None`: there is no NAT.
    pub nat: Option<Nat>,
    /// Settings of a sendbox only.
    pub shaping: Option<Shaping>,
}

/// Settings of a sendbox for a bundle.
#[derive(Clone, Debug, PartialEq)]
pub struct Shaping {
    /// Congestion-control algorithm.
    pub cc: Spec,
    /// Queueing discipline below the shaper.
    pub qdisc: Spec,
    /// Limits apply only while the sendbox measures a benefit.
    pub supervised: bool,
    /// Lower bound of the shaper's rate, unless the share of the uplink is lower; `None`: derived from the
    /// rate that the path carries.
    pub min_rate: Option<Rate>,
    /// Upper bound of the shaper's rate, even while the bundle is not shaped.
    pub max_rate: Option<Rate>,
}

impl Config {
    /// Reads and checks `file`, which has one box.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::parse(file, &Self::read(file)?)
    }

    /// Reads and checks `file`, and returns all its boxes: at least one.
    pub fn load_all(file: &Path) -> Result<Vec<Self>, ConfigError> {
        Self::parse_all(file, &Self::read(file)?)
    }

    /// Reads and checks `file`, and returns the box of this role and, if given, this name.
    pub fn load_of(file: &Path, role: Role, name: Option<&str>) -> Result<Self, ConfigError> {
        let mut boxes = Self::load_all(file)?;
        if let [only] = &boxes[..] {
            only.expect_role(role)?;
        }
        boxes.retain(|it| it.role == role && name.is_none_or(|name| it.name == name));
        let what = name.map_or_else(|| role.to_string(), |name| format!("{role} named {name:?}"));
        Self::only(file, boxes, &what)
    }

    /// The text of `file`.
    pub fn read(file: &Path) -> Result<String, ConfigError> {
        Self::read_checked(file, 0, |_| Ok(()))
    }

    /// The text of `file`, opened with these flags (`O_*`), unless `check` returns a problem of the open
    /// file.
    pub(super) fn read_checked(
        file: &Path,
        flags: i32,
        check: impl FnOnce(&Metadata) -> Result<(), String>,
    ) -> Result<String, ConfigError> {
        let refused =
            |reason: String| ConfigError::of(file.display(), format!("cannot read it: {reason}"));
        let unreadable = |error: io::Error| refused(error.to_string());
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(file);
        let opened = opened.map_err(unreadable)?;
        let metadata = opened.metadata().map_err(unreadable)?;
        check(&metadata).map_err(refused)?;
        let mut bytes = Vec::new();
        // A pipe has no length, and a file may grow.
        opened.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(refused(format!("longer than {MAX_FILE} bytes, the maximum")));
        }
        String::from_utf8(bytes).map_err(|error| refused(error.to_string()))
    }

    /// Checks `text` as the contents of `file`, which has one box. Relative paths start from `file`.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::only(file, Self::parse_all(file, text)?, "box")
    }

    /// As [`Config::parse`], for a file that may have several boxes: returns the box of this name.
    pub(super) fn parse_of(file: &Path, text: &str, name: &str) -> Result<Self, ConfigError> {
        let mut boxes = Self::parse_all(file, text)?;
        if boxes.len() > 1 {
            boxes.retain(|it| it.name == name);
        }
        Self::only(file, boxes, &format!("box {name:?}"))
    }

    /// As [`Config::parse`]: all boxes of the file, at least one.
    pub fn parse_all(file: &Path, text: &str) -> Result<Vec<Self>, ConfigError> {
        let name = file.display().to_string();
        let likely = if text.contains("[[box]]") { &schema::SEVERAL } else { &schema::ONE };
        let tree = likely.parse(&name, text)?;
        let has_several = tree.get("box").is_some_and(|node| node.value.as_list().is_some());
        let format = if has_several { &schema::SEVERAL } else { &schema::ONE };
        let document = Document::new(&name, tree, format);
        document.visit();
        let boxes = check::boxes(&document, file, has_several);
        document.finish(boxes)
    }

    fn only(file: &Path, boxes: Vec<Self>, what: &str) -> Result<Self, ConfigError> {
        <[Self; 1]>::try_from(boxes).map(|[only]| only).map_err(|boxes| {
            let names: Vec<&str> = boxes.iter().map(|it| it.name.as_str()).collect();
            let problem = if names.is_empty() {
                format!("there is no {what}")
            } else {
                format!("there is more than one {what}: {}; name one by --box", names.join(", "))
            };
            ConfigError::of(file.display(), problem)
        })
    }

    /// Refuses a device towards the hosts that this machine does not have, if the box routes: it would wait
    /// for the device without end. A bridge waits for its ports, which an adapter may add later.
    pub fn expect_lan(&self) -> Result<(), ConfigError> {
        let Some(lan) = self.lan.as_deref().filter(|_| self.forward == Forward::Route) else {
            return Ok(());
        };
        let Err(Errno::ENODEV) = if_nametoindex(lan) else { return Ok(()) };
        let interfaces = if_nameindex();
        let known = interfaces.iter().flat_map(|all| all.iter());
        let known: Vec<String> = known.map(|it| it.name().to_string_lossy().into_owned()).collect();
        let known = known.join(", ");
        let what = format!(
            " = {lan:?}: allowed is a device of this machine ({known}), or no box.lan: then \
             packets of any device belong to bundles"
        );
        Err(self.refuse(None, "box.lan", what))
    }

    /// Refuses a file of the other role.
    pub fn expect_role(&self, role: Role) -> Result<(), ConfigError> {
        if self.role == role {
            return Ok(());
        }
        let what =
            format!(" = \"{}\", but this is `forebay {role}`: allowed is \"{role}\"", self.role);
        Err(self.refuse(None, "box.role", what))
    }
}
