//! The configuration file of a box.
//!
//! ```toml
//! [box]
//! role    = "sendbox"                 # or "receivebox"
//! lan     = "s0"                      # port towards the site's hosts (sendbox only)
//! wan     = "s1"                      # port towards the Internet; a sendbox's are of one bridge
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
//! nat      = "source"                 # what NAT between the boxes changes, if there is any
//! cc       = "copa"                   # sendbox only, as the rest
//! qdisc    = { kind = "fq_codel", limit = "150ms", target = "25ms", interval = "250ms" }
//! min_rate = "2Mbit/s"
//! max_rate = "900Mbit/s"
//!
//! [uplink]
//! rate = "1Gbit/s"                    # what all bundles of a sendbox share
//! ```
//! A file of several boxes has tables `[[box]]` with all of this behind each: `[[box.bundle]]`, `[box.uplink]`.
//!
//! A packet belongs to the bundle with the longest `to` prefix that holds its destination, among the
//! bundles whose `from` holds its source. Prefixes of different bundles may lie in each other.
//!
//! Every value carries its unit, and a key that is not known here is an error: a mistyped limit
//! must not become a default.

mod bundle;
mod check;
mod datapath;
mod document;
mod peer;
mod uplink;
mod value;

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
use ipnet::IpNet;
use serde::Deserialize;

use crate::port::XdpOptions;
pub use datapath::{DatapathKind, KernelQdisc};
use document::Source;
pub(super) use document::{PROBLEMS_MAX, key_file_lines};
pub use peer::Peer;
pub use uplink::Uplink;

/// Most bundles in one file: what the tables of the BPF programs hold.
pub const MAX_BUNDLES: usize = forebay_ebpf::MAX_BUNDLES;

/// Longest configuration file: `MAX_BUNDLES` generous entries.
pub(super) const MAX_FILE: u64 = 4 << 20;

/// What a box does.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Queues, schedules and paces.
    Sendbox,
    /// Watches and reports.
    Receivebox,
}

impl Role {
    /// The name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sendbox => "sendbox",
            Self::Receivebox => "receivebox",
        }
    }

    /// UDP port of a box's messages where none is given: another for each role, since a machine that sends and
    /// receives has one of each. Both lie in the range that IANA never assigns (RFC 6335 section 6: 49152 to 65535)
    /// and above Linux's default `ip_local_port_range` (up to 60999), so that no outgoing connection of the box takes
    /// them first.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Sendbox => 61475,
            Self::Receivebox => 61476,
        }
    }

    /// TCP port of a box's metrics where none is given: another for each role, as of the messages.
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

/// Where units of systemd have the files of boxes.
const UNITS: &str = "/etc/forebay";

/// The unit of systemd that runs a box by `file`, as it is named: `forebay-sendbox@NAME` reads
/// `/etc/forebay/NAME.toml`. `None`: no unit reads this file.
pub fn unit_of(role: Role, file: &Path) -> Option<String> {
    let name = file.strip_prefix(UNITS).ok()?.to_str()?.strip_suffix(".toml")?;
    // What stands in the name of a unit as it is (systemd-escape(1)).
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
        [Self::Sendbox, Self::Receivebox].into_iter().find(|role| role.name() == text).ok_or(())
    }
}

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file it came from.
    pub file: PathBuf,
    /// Which of the boxes of the file it is; the name of its role where the file gives none.
    pub name: String,
    /// What the box does.
    pub role: Role,
    /// Port towards the site's hosts; present exactly in a sendbox.
    pub lan: Option<String>,
    /// Port towards the Internet.
    pub wan: String,
    /// What carries the packets of a sendbox.
    pub datapath: DatapathKind,
    /// What packets wait in that stay in the kernel; `None`: queues for flows by their hash.
    pub kernel_qdisc: Option<KernelQdisc>,
    /// Own addresses and ports of the messages: one, or one of each IP version.
    pub listen: Vec<SocketAddr>,
    /// Path of the control socket.
    pub control: PathBuf,
    /// Run the packet thread under SCHED_FIFO where the kernel allows it.
    pub realtime: bool,
    /// The account that the box goes over to once it is set up; `None`: the default one if it exists.
    pub user: Option<String>,
    /// The group that may ask for the status, beside root and the user of the box.
    pub status_group: Option<String>,
    /// What a sendbox's AF_XDP sockets ask of driver and kernel.
    pub xdp: XdpOptions,
    /// Rows of every epoch, decision and queue sample, for experiments.
    pub trace: Option<TraceConfig>,
    /// Where metrics are served over HTTP; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// What the bundles of a sendbox share; `None`: nothing is shared out.
    pub uplink: Option<Uplink>,
    /// The bundles; at least one.
    pub bundles: Vec<BundleConfig>,
}

/// Where the trace goes.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceConfig {
    /// The file.
    pub file: PathBuf,
    /// At this size, and at a start, the file is renamed to `FILE.1`, replacing an older one.
    pub limit: ByteCount,
}

/// One bundle as one box sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct BundleConfig {
    /// Name in logs, status and rows.
    pub name: String,
    /// Number in the messages, the same at both boxes and unique in each.
    pub id: BundleId,
    /// Where the other box is.
    pub peer: Peer,
    /// Destination prefixes.
    pub to: Vec<IpNet>,
    /// Source prefixes; empty: any (sendbox only). What comes from elsewhere is in no bundle.
    pub from: Vec<IpNet>,
    /// File of the shared key.
    pub key_file: PathBuf,
    /// What NAT between the boxes changes of the packets; `None`: there is no NAT.
    pub nat: Option<Nat>,
    /// What only a sendbox has.
    pub shaping: Option<Shaping>,
}

/// How a sendbox treats a bundle.
#[derive(Clone, Debug, PartialEq)]
pub struct Shaping {
    /// Congestion-control algorithm.
    pub cc: Spec,
    /// Queueing discipline below the shaper.
    pub qdisc: Spec,
    /// The shaper is never set lower, unless the share of the uplink is.
    pub min_rate: Rate,
    /// The shaper is never set higher, not even while the bundle is not shaped.
    pub max_rate: Option<Rate>,
}

impl Config {
    /// Reads and checks `file`, which has one box.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::parse(file, &Self::read(file)?)
    }

    /// Reads and checks `file`, and answers all its boxes: at least one.
    pub fn load_all(file: &Path) -> Result<Vec<Self>, ConfigError> {
        Self::parse_all(file, &Self::read(file)?)
    }

    /// Reads and checks `file`, and answers the box of this role and, if one is given, this name.
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

    /// The text of `file`, opened with these flags (`O_*`), unless `check` says what is wrong with the open file.
    pub(super) fn read_checked(
        file: &Path,
        flags: i32,
        check: impl FnOnce(&Metadata) -> Result<(), String>,
    ) -> Result<String, ConfigError> {
        let refused = |reason: String| ConfigError::of(file, format!("cannot read it: {reason}"));
        let unreadable = |error: io::Error| refused(error.to_string());
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(file);
        let opened = opened.map_err(unreadable)?;
        let metadata = opened.metadata().map_err(unreadable)?;
        check(&metadata).map_err(refused)?;
        let mut bytes = Vec::new();
        // A pipe has no length, and a file may grow.
        opened.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(refused(format!(
                "longer than {MAX_FILE} bytes, which is the most allowed"
            )));
        }
        String::from_utf8(bytes).map_err(|error| refused(error.to_string()))
    }

    /// Checks `text` as the contents of `file`, which has one box and which relative paths start from.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::only(file, Self::parse_all(file, text)?, "box")
    }

    /// As [`Config::parse`], of a file that may have several boxes: that of this name.
    pub(super) fn parse_of(file: &Path, text: &str, name: &str) -> Result<Self, ConfigError> {
        let mut boxes = Self::parse_all(file, text)?;
        if boxes.len() > 1 {
            boxes.retain(|it| it.name == name);
        }
        Self::only(file, boxes, &format!("box {name:?}"))
    }

    /// As [`Config::parse`]: all boxes of the file, at least one.
    pub fn parse_all(file: &Path, text: &str) -> Result<Vec<Self>, ConfigError> {
        let source = Source::new(file, text, &check::SECTIONS);
        let document = source.document();
        let boxes = document.and_then(|document| check::boxes(&source, &document));
        let boxes = source.finish(boxes)?;
        if boxes.is_empty() {
            return Err(ConfigError::of(file, "box = []: allowed is at least one [[box]]".into()));
        }
        Ok(boxes)
    }

    fn only(file: &Path, boxes: Vec<Self>, what: &str) -> Result<Self, ConfigError> {
        <[Self; 1]>::try_from(boxes).map(|[only]| only).map_err(|boxes| {
            let names: Vec<&str> = boxes.iter().map(|it| it.name.as_str()).collect();
            let problem = if names.is_empty() {
                format!("there is no {what}")
            } else {
                format!("there is more than one {what}: {}; name one by --box", names.join(", "))
            };
            ConfigError::of(file, problem)
        })
    }

    /// Refuses a file that is meant for the other box.
    pub fn expect_role(&self, role: Role) -> Result<(), ConfigError> {
        if self.role == role {
            return Ok(());
        }
        let problem = format!(
            "box.role = \"{}\", but this is `forebay {role}`: allowed is \"{role}\"",
            self.role
        );
        Err(ConfigError::of(&self.file, problem))
    }
}

/// What is wrong with a configuration file: all that was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// At least one, by line; those of no line come first.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong with a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1, where it can be told.
    pub line: Option<usize>,
    /// The key, its value and what is allowed.
    pub text: String,
}

impl ConfigError {
    /// A single problem of no line.
    pub fn of(file: &Path, text: String) -> Self {
        Self { file: file.to_owned(), problems: vec![Problem { line: None, text }] }
    }
}

impl fmt::Display for ConfigError {
    /// A line for each problem, as editors follow them: `FILE:LINE: KEY = VALUE: allowed is ..`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        if self.problems.len() > 1 {
            writeln!(f, "{file}: {} errors", self.problems.len())?;
        }
        for (place, Problem { line, text }) in self.problems.iter().enumerate() {
            f.write_str(if place == 0 { "" } else { "\n" })?;
            match line {
                Some(line) => write!(f, "{file}:{line}: {text}")?,
                None => write!(f, "{file}: {text}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::bundle::uplink::{Member, Share};
    use forebay_core::qdisc::bundle_default;

    const SENDBOX: &str = r#"
[box]
role = "sendbox"
lan = "s0"
wan = "s1"
listen = "10.1.3.1"

[[bundle]]
name = "b"
id = 1
peer = "10.1.3.2:7000"
to = ["10.1.2.0/24", "2001:db8:2::/48"]
key_file = "bundle.key"
cc = "copa"
qdisc = { kind = "sfq", limit = "1200p" }
min_rate = "2Mbit/s"
"#;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(Path::new("/etc/forebay/a.toml"), text)
    }

    #[test]
    fn the_files_of_the_guide_are_of_two_boxes_that_fit_and_its_table_has_every_key() {
        let guide = include_str!("../../../../../docs/howto/connect-two-sites.md");
        let files: Vec<Config> = guide
            .split("```toml\n")
            .skip(1)
            .map(|rest| parse(rest.split("```").next().unwrap()).unwrap())
            .collect();
        let [sendbox, receivebox] = &files[..] else { panic!("{files:?}") };
        assert_eq!((sendbox.role, receivebox.role), (Role::Sendbox, Role::Receivebox));
        assert_eq!(sendbox.bundles[0].peer, receivebox.listen[0].into());
        assert_eq!(receivebox.bundles[0].peer, sendbox.listen[0].into());
        assert_eq!(sendbox.bundles[0].shaping.as_ref().unwrap().qdisc, bundle_default());
        let step = |command: &str| guide.find(command).unwrap_or_else(|| panic!("{command}"));
        assert!(
            step("forebay keygen") < step("forebay doctor --config sendbox"),
            "a key is made first"
        );
        for (_, section) in check::SECTIONS {
            for key in section.keys {
                let key = format!("{}.{key}", section.name);
                assert!(guide.contains(&format!("\n| `{key}` |")), "{key}");
            }
        }
    }

    #[test]
    fn the_files_of_the_package_are_of_two_boxes_that_fit() {
        let [sendbox, receivebox] = [
            include_str!("../../../../../packaging/etc/sendbox.toml"),
            include_str!("../../../../../packaging/etc/receivebox.toml"),
        ]
        .map(|text| parse(text).unwrap());
        assert_eq!((sendbox.role, receivebox.role), (Role::Sendbox, Role::Receivebox));
        let ([sent], [received]) = (&sendbox.bundles[..], &receivebox.bundles[..]) else {
            panic!()
        };
        let peers = [sent.peer.clone(), received.peer.clone()];
        assert_eq!(peers, [receivebox.listen[0], sendbox.listen[0]].map(Peer::At));
        assert_eq!((&sent.name, sent.id, &sent.to), (&received.name, received.id, &received.to));
        assert_eq!(sent.shaping.as_ref().unwrap().qdisc, bundle_default());
    }

    #[test]
    fn a_unit_reads_the_file_of_its_name() {
        let unit = |file: &str| unit_of(Role::Sendbox, Path::new(file));
        assert_eq!(unit("/etc/forebay/site-b.1.toml").unwrap(), "forebay-sendbox@site-b.1");
        for file in
            ["/etc/forebay/b.conf", "/etc/forebay/.toml", "/etc/forebay/a b.toml", "/etc/b.toml"]
        {
            assert_eq!(unit(file), None, "{file}");
        }
        assert_eq!(unit("/etc/forebay/below/b.toml"), None);
    }

    #[test]
    fn a_complete_file_is_read_with_its_defaults() {
        let config = parse(SENDBOX).unwrap();
        assert_eq!(config.listen, ["10.1.3.1:61475".parse().unwrap()]);
        assert_eq!(config.control, Path::new("/run/forebay/sendbox.sock"));
        let bundle = &config.bundles[0];
        assert_eq!(bundle.peer.to_string(), "10.1.3.2:7000");
        assert_eq!(bundle.key_file, Path::new("/etc/forebay/bundle.key"));
        let shaping = bundle.shaping.as_ref().unwrap();
        assert_eq!(shaping.min_rate, Rate::from_mbit_per_sec(2));
        assert_eq!(shaping.max_rate, None);
        assert_eq!(shaping.qdisc.kind, "sfq");
        let unnamed = SENDBOX.replace("qdisc = { kind = \"sfq\", limit = \"1200p\" }\n", "");
        let unnamed = parse(&unnamed).unwrap();
        assert_eq!(unnamed.bundles[0].shaping.as_ref().unwrap().qdisc, bundle_default());
        assert!(config.expect_role(Role::Receivebox).is_err());
    }

    #[test]
    fn boxes_of_both_roles_on_one_machine_have_ports_of_their_own() {
        let sendbox = parse(&SENDBOX.replace("10.1.3.2:7000", "10.1.3.2")).unwrap();
        let receivebox = SENDBOX.replace("\"sendbox\"\nlan = \"s0\"", "\"receivebox\"");
        let receivebox = receivebox
            .replace("10.1.3.2:7000", "10.1.3.2")
            .replace("key_f", "from = [\"10.1.1.0/24\"]\nkey_f");
        let receivebox = parse(&receivebox[..receivebox.find("cc = ").unwrap()]).unwrap();
        assert_ne!(sendbox.listen, receivebox.listen);
        assert_ne!(sendbox.control, receivebox.control);
        for (one, other) in [(&sendbox, &receivebox), (&receivebox, &sendbox)] {
            assert_eq!(one.bundles[0].peer.address().unwrap().port(), other.listen[0].port());
        }
    }

    #[test]
    fn a_datapath_left_to_the_box_is_the_process_where_the_kernel_could_not_do_it() {
        let auto = SENDBOX.replace("lan = ", "datapath = \"auto\"\nlan = ");
        assert_eq!(parse(&auto).unwrap().datapath, DatapathKind::User);
        let unnamed = auto.replace("qdisc = { kind = \"sfq\", limit = \"1200p\" }\n", "");
        assert_eq!(parse(&unnamed).unwrap().datapath, DatapathKind::Auto);
        let kernel = unnamed.replace("auto", "kernel");
        assert_eq!(parse(&kernel).unwrap().datapath, DatapathKind::Kernel);
        for name in ["fifo", "fq_codel", "cake", "fq", "sfq"] {
            let named = kernel.replace("lan =", &format!("kernel_qdisc = \"{name}\"\nlan ="));
            assert_eq!(parse(&named).unwrap().kernel_qdisc.unwrap().name(), name);
        }
    }

    /// Each row: what is replaced, by what, and what the message must name.
    #[test]
    fn an_error_names_line_key_value_and_what_is_allowed() {
        let rows: &[(&str, &str, &[&str])] = &[
            ("role = \"sendbox\"", "role = \"relay\"", &[":3:", "box.role", "relay", "receivebox"]),
            (
                "lan = \"s0\"",
                "lann = \"s0\"",
                &[":4:", "box.lann", "s0", "no such key", "role, lan, wan"],
            ),
            ("lan = \"s0\"", "lan = \"s1\"", &[":4:", "box.lan", "s1", "other than"]),
            (
                "lan = \"s0\"",
                "lan = \"s0\"\ndatapath = \"fast\"",
                &[":5:", "box.datapath", "fast", "\"user\", \"kernel\""],
            ),
            (
                "lan = \"s0\"",
                "lan = \"s0\"\ndatapath = \"kernel\"",
                &[":16:", "bundle.qdisc", "nothing with box.datapath"],
            ),
            (
                "lan = \"s0\"",
                "lan = \"s0\"\nkernel_qdisc = \"red\"",
                &[":5:", "box.kernel_qdisc", "red", "\"fq_codel\", \"cake\""],
            ),
            (
                "lan = \"s0\"",
                "lan = \"s0\"\nkernel_qdisc = \"fq\"",
                &[":5:", "box.kernel_qdisc", "fq", "nothing without box.datapath"],
            ),
            ("lan = \"s0\"\n", "", &["box.lan is missing"]),
            ("wan = \"s1\"", "wan = \"a/b\"", &[":5:", "box.wan", "a/b", "device"]),
            ("\"10.1.3.1\"", "\"0.0.0.0\"", &[":6:", "box.listen", "0.0.0.0", "one host's"]),
            ("\"10.1.3.1\"", "10", &[":6:", "box.listen = 10", "\"10.1.3.1\""]),
            (
                "lan = \"s0\"",
                "lan = \"s0\"\nuser = \"a b\"",
                &[":5:", "box.user", "a b", "letters"],
            ),
            ("lan = \"s0\"", "lan = \"s0\"\nstatus_group = \"\"", &[":5:", "box.status_group"]),
            ("name = \"b\"", "name = \"a b\"", &[":9:", "bundle.name", "a b", "letters"]),
            ("id = 1", "id = 70000", &[":10:", "bundle.id", "70000", "65535"]),
            ("id = 1\n", "", &[":8:", "bundle.id is missing", "65535"]),
            ("10.1.3.2:7000", "10.1.3.1", &[":11:", "bundle.peer", "other box"]),
            ("10.1.3.2:7000", "[::1]:7000", &[":11:", "bundle.peer", "same IP version"]),
            (
                "\"10.1.3.1\"",
                "[\"10.1.3.1\", \"10.1.3.9\"]",
                &[":6:", "box.listen = \"10.1.3.9\"", "list of one each"],
            ),
            ("\"10.1.3.1\"", "[]", &[":6:", "box.listen = []", "list of one each"]),
            (
                "min_rate",
                "nat = \"yes\"\nmin_rate",
                &[":16:", "bundle.nat = \"yes\"", "\"destination\""],
            ),
            (
                "\"10.1.3.2:7000\"",
                "\"b.example\"\nnat = \"both\"",
                &[":11:", "bundle.peer = \"b.example\"", "NAT changes destinations"],
            ),
            ("10.1.2.0/24", "10.1.2.1/24", &[":12:", "bundle.to", "10.1.2.1/24", "10.1.2.0/24"]),
            ("10.1.2.0/24", "10.1.2.0", &[":12:", "bundle.to", "10.1.2.0", "prefix such as"]),
            ("2Mbit/s", "2", &[":16:", "bundle.min_rate", "\"2\"", "such as"]),
            ("2Mbit/s", "2bit/s", &[":16:", "bundle.min_rate", "2bit/s", "100kbit/s"]),
            ("min_rate = \"2Mbit/s\"", "min_rate = 2", &[":16:", "min_rate = 2", "such as"]),
            ("cc = \"copa\"\n", "", &[":8:", "bundle.cc is missing", "copa"]),
            ("\"copa\"", "\"nonesuch\"", &[":14:", "bundle.cc: kind", "nonesuch", "copa"]),
            ("1200p", "0p", &[":15:", "bundle.qdisc: limit", "0p", "1p to"]),
            ("limit", "limmit", &[":15:", "bundle.qdisc: limmit", "limit"]),
        ];
        for (from, to, named) in rows {
            let text = SENDBOX.replace(from, to);
            assert_ne!(text, SENDBOX, "{from} stands in the sample");
            let error = parse(&text).expect_err(to).to_string();
            assert!(error.starts_with("/etc/forebay/a.toml:"), "{error}");
            for part in *named {
                assert!(error.contains(part), "{to}: {error:?} does not name {part:?}");
            }
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once_and_by_line() {
        let second = "[[bundle]]\nname = \"b\"\nid = 1\npeer = \"here\"\nto = \"10.0.0.0/8\"\n\
                      key_fiel = \"k\"\ncc = \"nonesuch\"\nqdisc = { kind = \"sfq\", limit = \"0p\" }\n\
                      weight = 2\n";
        let text = format!("{SENDBOX}{second}").replace("wan = \"s1\"\n", "wann = \"s1\"\n");
        let error = parse(&text).unwrap_err();
        let told = error.to_string();
        for part in [
            "a.toml: 11 errors\n",
            "a.toml:2: box.wan is missing",
            "a.toml:5: box.wann = \"s1\": no such key",
            "a.toml:18: bundle.name = \"b\": allowed is a name that no other bundle has",
            "a.toml:19: bundle.id = 1: allowed is a number that bundle \"b\" has not",
            "a.toml:20: bundle.peer = \"here\": allowed is one host's IP address",
            "a.toml:21: bundle.to = \"10.0.0.0/8\": allowed is a list: a prefix such as",
            "a.toml:22: bundle.key_fiel = \"k\": no such key",
            "a.toml:17: bundle.key_file is missing: allowed is a path",
            "a.toml:23: bundle.cc: kind = nonesuch",
            "a.toml:24: bundle.qdisc: limit = ",
            "a.toml:25: bundle.weight = 2: allowed is nothing without [uplink]",
        ] {
            assert!(told.contains(part), "{part:?} is missing in\n{told}");
        }
        assert!(error.problems.is_sorted_by_key(|problem| problem.line), "{told}");
    }

    #[test]
    fn of_too_many_prefixes_nothing_but_their_number_is_told() {
        let many = vec!["\"10.0.0.0/8\""; 16_385].join(", ");
        let text = SENDBOX.replace("\"10.1.2.0/24\", \"2001:db8:2::/48\"", &many);
        let told = parse(&text).unwrap_err().to_string();
        assert!(told.contains("bundle.to: 16385 prefixes in all: allowed are 16384"), "{told}");
        assert!(!told.contains("has not"), "{told}");
    }

    #[test]
    fn values_of_a_specification_are_told_short_and_on_one_line() {
        let long = format!("\\u001b[2J\\n{}", "x".repeat(1000));
        let told = parse(&SENDBOX.replace("\"copa\"", &format!("\"{long}\"")));
        let told = told.unwrap_err().to_string();
        assert!(told.contains("bundle.cc: kind = \\u{1b}[2J\\nxxx"), "{told}");
        assert!(told.lines().count() == 1 && !told.contains(&"x".repeat(80)), "{told}");
    }

    #[test]
    fn text_that_is_no_toml_is_told_line_by_line() {
        let text = SENDBOX.replace("\"s0\"", "s0").replace("\"copa\"", "\"copa");
        let told = parse(&text).unwrap_err().to_string();
        assert!(told.contains(":4: `lan = s0`: ") && told.contains(":14: `cc = \"copa`"), "{told}");
        assert!(!told.contains("missing"), "{told}");
    }

    #[test]
    fn a_file_without_its_first_table_and_one_with_tables_for_values_are_refused() {
        let told = parse("").unwrap_err().to_string();
        assert!(told.contains("box is missing") && told.contains("0 [[bundle]] tables"), "{told}");
        let told = parse("box = 1\nbundle = 2\n[boxx]\nrole = 3\n").unwrap_err().to_string();
        for part in ["box = 1: allowed is a table: [box]", "a list of tables: [[bundle]]", "boxx"] {
            assert!(told.contains(part), "{told}");
        }
    }

    /// Two bundles in a group, and shares of all keys.
    fn shared() -> String {
        let second = &SENDBOX[SENDBOX.find("[[bundle]]").unwrap()..];
        let second = second.replace("\"b\"", "\"c\"").replace("id = 1", "id = 2");
        let second = second.replace("10.1.2.0/24", "10.1.4.0/24").replace("db8:2:", "db8:4:");
        let first = format!("{SENDBOX}weight = 3\ngroup = \"inner\"\n");
        format!(
            "{first}{second}guarantee = \"20Mbit/s\"\ngroup = \"inner\"\n\
             [uplink]\nrate = \"100Mbit/s\"\n\
             [[group]]\nname = \"inner\"\nparent = \"outer\"\nguarantee = \"30Mbit/s\"\n\
             [[group]]\nname = \"outer\"\nweight = 2\nmax_rate = \"90Mbit/s\"\n"
        )
    }

    #[test]
    fn shares_are_read_with_groups_in_any_order() {
        let Uplink { shares, groups } = parse(&shared()).unwrap().uplink.unwrap();
        assert_eq!(groups, ["inner", "outer"]);
        assert_eq!(shares.rate, Rate::from_mbit_per_sec(100));
        let mbit = |mbit| Some(Rate::from_mbit_per_sec(mbit));
        let inner = Share { guarantee: mbit(30), ..Share::default() };
        let outer = Share { weight: 2, max_rate: mbit(90), ..Share::default() };
        assert_eq!(shares.groups[0], Member { group: Some(1), share: inner });
        assert_eq!(shares.groups[1], Member { group: None, share: outer });
        let [first, second] = &shares.bundles[..] else { panic!("{shares:?}") };
        assert_eq!((first.group, first.share.weight), (Some(0), 3));
        assert_eq!((second.share.weight, second.share.guarantee), (1, mbit(20)));
        assert_eq!(parse(SENDBOX).unwrap().uplink, None);
    }

    /// Each row: what is replaced, by what, and what the message must name.
    #[test]
    fn shares_that_do_not_fit_are_refused_with_line_and_key() {
        let rows: &[(&str, &str, &[&str])] = &[
            ("weight = 3", "weight = 0", &[":17:", "bundle.weight = 0", "1 to 1000"]),
            ("weight = 2", "weight = 1001", &[":38:", "group.weight = 1001", "1 to 1000"]),
            ("weight = 3", "weight = \"3\"", &[":17:", "weight = \"3\"", "whole number"]),
            ("\"20Mbit/s\"", "\"20Mbit\"", &[":28:", "bundle.guarantee", "20Mbit", "such as"]),
            (
                "\"20Mbit/s\"",
                "\"40Mbit/s\"",
                &[":35:", "group.guarantee = \"30Mbit/s\"", "at least 40Mbit/s"],
            ),
            (
                "\"90Mbit/s\"",
                "\"29Mbit/s\"",
                &[":39:", "group.max_rate = \"29Mbit/s\"", "at least 30Mbit/s"],
            ),
            (
                "\"100Mbit/s\"",
                "\"29Mbit/s\"",
                &[":31:", "uplink.rate = \"29Mbit/s\"", "at least 30Mbit/s"],
            ),
            ("\"100Mbit/s\"", "\"1bit/s\"", &[":31:", "uplink.rate", "1bit/s", "100kbit/s"]),
            ("rate = \"100Mbit/s\"", "", &[":30:", "uplink.rate is missing"]),
            (
                "parent = \"outer\"",
                "parent = \"inner\"",
                &[":34:", "group.parent = \"inner\"", "not within this one"],
            ),
            ("\"outer\"\nw", "\"inner\"\nw", &["group.name = \"inner\"", "no other group has"]),
            (
                "group = \"inner\"\n[u",
                "group = \"x\"\n[u",
                &[":29:", "bundle.group = \"x\"", "[[group]]"],
            ),
            (
                "[uplink]\nrate = \"100Mbit/s\"\n",
                "",
                &["group.name = \"inner\"", "without [uplink]"],
            ),
        ];
        for (from, to, named) in rows {
            let text = shared().replacen(from, to, 1);
            assert_ne!(text, shared(), "{from} stands in the sample");
            let error = parse(&text).expect_err(to).to_string();
            for part in *named {
                assert!(error.contains(part), "{to}: {error:?} does not name {part:?}");
            }
        }
        for key in ["weight = 3", "guarantee = \"1Mbit/s\"", "group = \"x\""] {
            let error = parse(&format!("{SENDBOX}{key}\n")).unwrap_err().to_string();
            assert!(
                error.contains(&format!(":17: bundle.{key}: allowed is nothing without [up")),
                "{error}"
            );
        }
    }

    #[test]
    fn bundles_that_could_not_be_told_apart_are_refused() {
        let second = &SENDBOX[SENDBOX.find("[[bundle]]").unwrap()..];
        let twice = format!("{SENDBOX}{second}");
        assert!(parse(&twice).unwrap_err().to_string().contains("no other bundle has"));
        let renamed = format!("{SENDBOX}{}", second.replace("\"b\"", "\"c\""));
        assert!(parse(&renamed).unwrap_err().to_string().contains("bundle.id = 1"));
        let renumbered =
            format!("{SENDBOX}{}", second.replace("\"b\"", "\"c\"").replace("id = 1", "id = 2"));
        assert!(
            parse(&renumbered).unwrap_err().to_string().contains("bundle.to = \"10.1.2.0/24\"")
        );
    }

    /// A file with a sendbox and a receivebox.
    fn both_roles() -> String {
        let sendbox = SENDBOX.replace("[box]", "[[box]]").replace("[[bundle]]", "[[box.bundle]]");
        format!(
            "{sendbox}[box.uplink]\nrate = \"100Mbit/s\"\n[[box]]\nrole = \"receivebox\"\nwan = \"s1\"\n\
             listen = \"10.1.3.1\"\n[[box.bundle]]\nname = \"b\"\nid = 2\npeer = \"10.1.3.2\"\n\
             to = [\"10.1.1.0/24\"]\nfrom = [\"10.1.2.0/24\"]\nkey_file = \"back.key\"\n"
        )
    }

    #[test]
    fn boxes_of_one_file_have_what_stands_behind_them() {
        let file = Path::new("/etc/forebay/a.toml");
        let boxes = Config::parse_all(file, &both_roles()).unwrap();
        let [sendbox, receivebox] = &boxes[..] else { panic!("{boxes:?}") };
        assert_eq!((sendbox.name.as_str(), receivebox.name.as_str()), ("sendbox", "receivebox"));
        assert_eq!(sendbox.bundles[0].id, BundleId(1));
        assert_eq!(receivebox.bundles[0].id, BundleId(2));
        assert!(sendbox.uplink.is_some() && receivebox.uplink.is_none());
        assert_eq!(&Config::parse_of(file, &both_roles(), "receivebox").unwrap(), receivebox);
        let alone = SENDBOX.replace("key_file", "# the same as before\nkey_file");
        assert_eq!(Config::parse_of(file, &alone, "another").unwrap().name, "sendbox");
        for (told, expected) in [
            (Config::parse(file, &both_roles()), "more than one box: sendbox, receivebox"),
            (Config::parse_of(file, &both_roles(), "x"), "there is no box \"x\""),
        ] {
            let told = told.unwrap_err().to_string();
            assert!(told.contains(expected), "{told}");
        }
    }

    /// Each row: what is replaced, by what, and what the message must name.
    #[test]
    fn boxes_of_one_file_that_would_collide_are_refused() {
        let rows: &[(&str, &str, &[&str])] = &[
            (
                "listen = \"10.1.3.1\"\n[[",
                "listen = \"10.1.3.1:61475\"\n[[",
                &["box.listen", "\"sendbox\" has not"],
            ),
            (
                "role = \"receivebox\"",
                "name = \"sendbox\"\nrole = \"receivebox\"",
                &["box.name", "no other box"],
            ),
            (
                "role = \"receivebox\"",
                "control = \"/run/forebay/sendbox.sock\"\nrole = \"receivebox\"",
                &["box.control"],
            ),
            (
                "[[box]]\nrole = \"receivebox\"",
                "[trace]\nfile = \"t\"\n[[box]]\nrole = \"receivebox\"",
                &["trace", "[box.trace]"],
            ),
            (
                "role = \"receivebox\"",
                "lann = \"x\"\nrole = \"receivebox\"",
                &["box.lann", "no such key"],
            ),
        ];
        for (from, to, named) in rows {
            let text = both_roles().replace(from, to);
            assert_ne!(text, both_roles(), "{from} stands in the sample");
            let error = Config::parse_all(Path::new("a.toml"), &text).expect_err(to).to_string();
            for part in *named {
                assert!(error.contains(part), "{to}: {error:?} does not name {part:?}");
            }
        }
        let second = "role = \"sendbox\"\nname = \"second\"\nlan = \"s0\"";
        let text = both_roles().replace("role = \"receivebox\"", second);
        let text = text.replace("\"back.key\"", "\"back.key\"\ncc = \"copa\"");
        let error = Config::parse_all(Path::new("a.toml"), &text).unwrap_err().to_string();
        assert!(error.contains("box.lan = \"s0\": allowed is a device that is not box"), "{error}");
        let error = Config::parse_all(Path::new("a.toml"), "box = []\n").unwrap_err().to_string();
        assert!(error.contains("at least one [[box]]"), "{error}");
    }

    #[test]
    fn a_receivebox_takes_no_shaping_and_needs_sources() {
        let text = SENDBOX.replace("\"sendbox\"", "\"receivebox\"").replace("lan = \"s0\"\n", "");
        let error = parse(&text.replace("cc = \"copa\"\n", "")).unwrap_err().to_string();
        assert!(error.contains("bundle.from is missing"), "{error}");
        let text = text.replace("key_file", "from = [\"10.1.1.0/24\"]\nkey_file");
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains("bundle.cc = \"copa\": allowed is nothing"), "{error}");
        let start = text.find("cc = ").unwrap();
        let config = parse(&text[..start]).unwrap();
        assert_eq!(config.role, Role::Receivebox);
        assert!(config.bundles[0].shaping.is_none());
        for (key, shown) in
            [("weight = 3", "bundle.weight = 3"), ("[uplink]\nrate = \"1Mbit/s\"", "uplink.rate")]
        {
            let error = parse(&format!("{}{key}\n", &text[..start])).unwrap_err().to_string();
            assert!(error.contains(shown) && error.contains("the sendbox shapes"), "{error}");
        }
    }
}
