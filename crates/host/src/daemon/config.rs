//! The configuration file of a box.
//!
//! ```toml
//! [box]
//! role    = "sendbox"                 # or "receivebox"
//! lan     = "s0"                      # port towards the site's hosts (sendbox only)
//! wan     = "s1"                      # port towards the Internet
//! listen  = "10.1.3.1"                # own address for messages; ":PORT" may follow
//! control = "/run/forebay/sendbox.sock"
//!
//! [[bundle]]
//! name     = "b"
//! id       = 1                        # the same at both boxes, unique in each
//! peer     = "10.1.3.2"               # address of the other box
//! to       = ["10.1.2.0/24"]          # destinations of the bundle's packets
//! from     = ["10.1.1.0/24"]          # their sources (a receivebox needs them)
//! key_file = "bundle.key"             # made by `forebay keygen`; relative to this file
//! cc       = "copa"                   # sendbox only, as the rest
//! qdisc    = { kind = "sfq", limit = "1200p" }
//! min_rate = "2Mbit/s"
//! max_rate = "900Mbit/s"
//! ```
//! Every value carries its unit, and a key that is not known here is an error: a mistyped limit
//! must not become a default.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use forebay_core::bundle::BundleId;
use forebay_core::cc;
use forebay_core::qdisc::{self, Classifier};
use forebay_core::spec::{Spec, SpecError};
use forebay_core::units::{ByteCount, Rate};
use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;

use super::sendbox::Frame;

/// UDP port of the messages where none is given. It lies in the range that IANA never assigns
/// (RFC 6335 section 6: 49152 to 65535) and above Linux's default `ip_local_port_range` (up to
/// 60999), so that no outgoing connection of the box takes it first.
pub const DEFAULT_PORT: u16 = 61475;

/// Most bundles in one file: what the tables of the receivebox's BPF program hold.
pub const MAX_BUNDLES: usize = 256;

/// Longest configuration file: `MAX_BUNDLES` generous entries.
const MAX_FILE: u64 = 4 << 20;

/// Longest name: names stand in tables, rows and log lines.
const MAX_NAME: usize = 32;

/// What a box does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, Deserialize)]
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
    /// What the box does.
    pub role: Role,
    /// Port towards the site's hosts; present exactly in a sendbox.
    pub lan: Option<String>,
    /// Port towards the Internet.
    pub wan: String,
    /// Own address and port of the messages.
    pub listen: SocketAddr,
    /// Path of the control socket.
    pub control: PathBuf,
    /// Run the packet thread under SCHED_FIFO where the kernel allows it.
    pub realtime: bool,
    /// Rows of every epoch, decision and queue sample, for experiments.
    pub trace: Option<TraceConfig>,
    /// The bundles; at least one.
    pub bundles: Vec<BundleConfig>,
}

/// Where the trace goes.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceConfig {
    /// The file; truncated at start.
    pub file: PathBuf,
    /// At this size the file is renamed to `FILE.1`, replacing an older one, and begun anew.
    pub limit: ByteCount,
}

/// One bundle as one box sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct BundleConfig {
    /// Name in logs, status and rows.
    pub name: String,
    /// Number in the messages, the same at both boxes and unique in each.
    pub id: BundleId,
    /// Address and port of the other box.
    pub peer: SocketAddr,
    /// Destination prefixes.
    pub to: Vec<IpNet>,
    /// Source prefixes; empty: any (sendbox only). What comes from elsewhere is in no bundle.
    pub from: Vec<IpNet>,
    /// File of the shared key.
    pub key_file: PathBuf,
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
    /// The shaper is never set lower.
    pub min_rate: Rate,
    /// The shaper is never set higher, not even while the bundle is not shaped.
    pub max_rate: Option<Rate>,
}

/// `min_rate` where none is given: one full frame in 10 ms. At lower rates a raised rate takes effect
/// late, because boundaries, and with them reports, become rare.
pub const DEFAULT_MIN_RATE: Rate = Rate::from_bits_per_sec(1_200_000);

/// Rates that can be asked for: from one full frame in 120 ms to more than any port has.
const RATES: RangeInclusive<Rate> =
    Rate::from_bits_per_sec(100_000)..=Rate::from_bits_per_sec(100_000_000_000);

impl Config {
    /// Reads and checks `file`.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let unreadable = |reason: String| ConfigError {
            file: file.to_owned(),
            line: None,
            problem: format!("cannot read it: {reason}"),
        };
        let length = std::fs::metadata(file).map_err(|error| unreadable(error.to_string()))?.len();
        if length > MAX_FILE {
            return Err(unreadable(format!("{length} bytes, allowed are at most {MAX_FILE}")));
        }
        let text = std::fs::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
        Self::parse(file, &text)
    }

    /// Checks `text` as the contents of `file`, which relative paths start from.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let source = Source { file, text };
        let raw: RawConfig = toml::from_str(text).map_err(|error| source.syntax(&error))?;
        let config = raw.check(&source)?;
        Ok(config)
    }

    /// Refuses a file that is meant for the other box.
    pub fn expect_role(&self, role: Role) -> Result<(), ConfigError> {
        if self.role == role {
            return Ok(());
        }
        Err(ConfigError {
            file: self.file.clone(),
            line: None,
            problem: format!(
                "box.role = \"{}\", but this is `forebay {role}`: allowed is \"{role}\"",
                self.role
            ),
        })
    }
}

/// What is wrong with a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1, where it can be told.
    pub line: Option<usize>,
    /// The key, its value and what is allowed.
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file.display(), self.problem),
            None => write!(f, "{}: {}", self.file.display(), self.problem),
        }
    }
}

/// The text under check, to turn positions into lines.
struct Source<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn line_of(&self, offset: usize) -> usize {
        1 + self.text.as_bytes()[..offset.min(self.text.len())]
            .iter()
            .filter(|b| **b == b'\n')
            .count()
    }

    fn at(&self, span: &Range<usize>, problem: String) -> ConfigError {
        ConfigError { file: self.file.to_owned(), line: Some(self.line_of(span.start)), problem }
    }

    /// An error of one value.
    fn value(
        &self,
        span: &Range<usize>,
        key: &str,
        value: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> ConfigError {
        self.at(span, format!("{key} = {value}: allowed is {allowed}"))
    }

    /// An error of the TOML reader, with the line it is about: that line names key and value.
    fn syntax(&self, error: &toml::de::Error) -> ConfigError {
        let message = error.message().trim().replace('\n', ", ");
        let Some(span) = error.span() else {
            return ConfigError { file: self.file.to_owned(), line: None, problem: message };
        };
        let line = self.line_of(span.start);
        let text = self.text.lines().nth(line - 1).unwrap_or_default().trim();
        // A line of a hostile file may be long: enough to recognise it will do.
        let shown: String = text.chars().take(80).collect();
        self.at(&span, format!("`{shown}`: {message}"))
    }

    fn spec(&self, span: &Range<usize>, key: &str, error: &SpecError) -> ConfigError {
        // A parameter of an inline table has no position of its own: look for it after its start.
        let within =
            self.text.get(span.clone()).and_then(|text| text.find(&error.key)).unwrap_or(0);
        self.at(&(span.start + within..span.end), format!("{key}: {error}"))
    }

    /// Reads a text value of type `T`.
    fn parse<T: FromStr>(
        &self,
        key: &str,
        text: &Spanned<String>,
        allowed: &str,
    ) -> Result<T, ConfigError> {
        let value = text.get_ref();
        value.parse().map_err(|_| self.value(&text.span(), key, format_args!("{value:?}"), allowed))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    #[serde(rename = "box")]
    node: RawBox,
    trace: Option<RawTrace>,
    #[serde(default, rename = "bundle")]
    bundles: Vec<Spanned<RawBundle>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBox {
    role: Spanned<String>,
    lan: Option<Spanned<String>>,
    wan: Spanned<String>,
    listen: Spanned<String>,
    control: Option<Spanned<String>>,
    realtime: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTrace {
    file: Spanned<String>,
    limit: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBundle {
    name: Spanned<String>,
    id: Spanned<i64>,
    peer: Spanned<String>,
    to: Vec<Spanned<String>>,
    from: Option<Vec<Spanned<String>>>,
    key_file: Spanned<String>,
    cc: Option<Spanned<Spec>>,
    qdisc: Option<Spanned<Spec>>,
    min_rate: Option<Spanned<String>>,
    max_rate: Option<Spanned<String>>,
}

impl RawConfig {
    fn check(self, source: &Source<'_>) -> Result<Config, ConfigError> {
        let node = &self.node;
        let role: Role = source.parse("box.role", &node.role, "\"sendbox\" or \"receivebox\"")?;
        let wan = device(source, "box.wan", &node.wan)?;
        let lan = match (role, &node.lan) {
            (Role::Sendbox, Some(name)) => Some(device(source, "box.lan", name)?),
            (Role::Sendbox, None) => {
                return Err(source.at(
                    &node.role.span(),
                    "box.lan is missing: a sendbox needs the port towards its hosts".into(),
                ));
            }
            (Role::Receivebox, Some(name)) => {
                let value = format_args!("{:?}", name.get_ref());
                let allowed = "nothing: a receivebox only watches box.wan";
                return Err(source.value(&name.span(), "box.lan", value, allowed));
            }
            (Role::Receivebox, None) => None,
        };
        if let (Some(name), Some(raw)) = (&lan, &node.lan)
            && *name == wan
        {
            let allowed = "a device other than box.wan";
            return Err(source.value(&raw.span(), "box.lan", format_args!("{name:?}"), allowed));
        }
        let config = Config {
            file: source.file.to_owned(),
            role,
            lan,
            wan,
            listen: address(source, "box.listen", &node.listen)?,
            control: control_path(source, role, node.control.as_ref())?,
            realtime: node.realtime.unwrap_or(true),
            trace: self.trace.map(|trace| trace.check(source)).transpose()?,
            bundles: bundles(source, role, &self.bundles)?,
        };
        check_peers(source, &config, &self.bundles)?;
        Ok(config)
    }
}

impl RawTrace {
    /// Default size of a trace: a day of one bundle at about 500 rows/s would be more, an hour less.
    const LIMIT: ByteCount = ByteCount::new(256_000_000);

    fn check(&self, source: &Source<'_>) -> Result<TraceConfig, ConfigError> {
        let allowed = "a size of at least 1MB such as \"256MB\"";
        let limit = match &self.limit {
            None => Self::LIMIT,
            Some(text) => {
                let limit: ByteCount = source.parse("trace.limit", text, allowed)?;
                if limit < ByteCount::new(1_000_000) {
                    let value = format_args!("{:?}", text.get_ref());
                    return Err(source.value(&text.span(), "trace.limit", value, allowed));
                }
                limit
            }
        };
        Ok(TraceConfig { file: path(source, "trace.file", &self.file)?, limit })
    }
}

impl RawBundle {
    fn check(&self, source: &Source<'_>, role: Role) -> Result<BundleConfig, ConfigError> {
        let id = u16::try_from(*self.id.get_ref()).map_err(|_| {
            source.value(
                &self.id.span(),
                "bundle.id",
                self.id.get_ref(),
                "a number from 0 to 65535",
            )
        })?;
        let from = match &self.from {
            Some(list) => prefixes(source, "bundle.from", list)?,
            None => Vec::new(),
        };
        let to = prefixes(source, "bundle.to", &self.to)?;
        if to.is_empty() {
            return Err(source.at(
                &self.name.span(),
                format!(
                    "bundle {:?}: to = []: allowed is at least one prefix",
                    self.name.get_ref()
                ),
            ));
        }
        if role == Role::Receivebox && from.is_empty() {
            return Err(source.at(
                &self.name.span(),
                format!(
                    "bundle {:?}: from is missing: a receivebox tells the bundles of several \
                     sites apart by their source prefixes",
                    self.name.get_ref()
                ),
            ));
        }
        Ok(BundleConfig {
            name: name(source, &self.name)?,
            id: BundleId(id),
            peer: address(source, "bundle.peer", &self.peer)?,
            to,
            from,
            key_file: path(source, "bundle.key_file", &self.key_file)?,
            shaping: self.shaping(source, role)?,
        })
    }

    fn shaping(&self, source: &Source<'_>, role: Role) -> Result<Option<Shaping>, ConfigError> {
        let given = [
            ("cc", self.cc.as_ref().map(Spanned::span)),
            ("qdisc", self.qdisc.as_ref().map(Spanned::span)),
            ("min_rate", self.min_rate.as_ref().map(Spanned::span)),
            ("max_rate", self.max_rate.as_ref().map(Spanned::span)),
        ];
        if role == Role::Receivebox {
            if let Some((key, Some(span))) = given.into_iter().find(|(_, span)| span.is_some()) {
                let value = &source.text[span.clone()];
                let key = format!("bundle.{key}");
                return Err(source.value(&span, &key, value, "nothing: the sendbox shapes"));
            }
            return Ok(None);
        }
        let missing = |key: &str| {
            let name = self.name.get_ref();
            source.at(&self.name.span(), format!("bundle {name:?}: {key} is missing"))
        };
        let cc = self.cc.as_ref().ok_or_else(|| missing("cc (such as \"copa\")"))?;
        let qdisc = self
            .qdisc
            .as_ref()
            .ok_or_else(|| missing("qdisc (such as { kind = \"sfq\", limit = \"1200p\" })"))?;
        check_cc(cc.get_ref()).map_err(|error| source.spec(&cc.span(), "bundle.cc", &error))?;
        check_qdisc(qdisc.get_ref())
            .map_err(|error| source.spec(&qdisc.span(), "bundle.qdisc", &error))?;
        let min_rate =
            rate(source, "bundle.min_rate", self.min_rate.as_ref())?.unwrap_or(DEFAULT_MIN_RATE);
        let max_rate = rate(source, "bundle.max_rate", self.max_rate.as_ref())?;
        if let (Some(max_rate), Some(text)) = (max_rate, &self.max_rate)
            && max_rate < min_rate
        {
            let span = text.span();
            let allowed = format!("a rate of at least min_rate, {min_rate}");
            return Err(source.value(&span, "bundle.max_rate", max_rate, allowed));
        }
        Ok(Some(Shaping {
            cc: cc.get_ref().clone(),
            qdisc: qdisc.get_ref().clone(),
            min_rate,
            max_rate,
        }))
    }
}

/// Most destination prefixes of a file, and most source prefixes: what the BPF programs' tables hold.
const MAX_PREFIXES: usize = 4096;

fn bundles(
    source: &Source<'_>,
    role: Role,
    raw: &[Spanned<RawBundle>],
) -> Result<Vec<BundleConfig>, ConfigError> {
    if raw.is_empty() || raw.len() > MAX_BUNDLES {
        return Err(ConfigError {
            file: source.file.to_owned(),
            line: None,
            problem: format!("{} [[bundle]] tables: allowed are 1 to {MAX_BUNDLES}", raw.len()),
        });
    }
    let bundles: Vec<BundleConfig> =
        raw.iter().map(|bundle| bundle.get_ref().check(source, role)).collect::<Result<_, _>>()?;
    for (key, count) in [
        ("to", bundles.iter().map(|bundle| bundle.to.len()).sum::<usize>()),
        ("from", bundles.iter().map(|bundle| bundle.from.len()).sum()),
    ] {
        if count > MAX_PREFIXES {
            return Err(ConfigError {
                file: source.file.to_owned(),
                line: None,
                problem: format!(
                    "bundle.{key}: {count} prefixes in all: allowed are {MAX_PREFIXES}"
                ),
            });
        }
    }
    Ok(bundles)
}

/// Refuses what could not be told apart: equal names, numbers or prefixes.
fn check_peers(
    source: &Source<'_>,
    config: &Config,
    raw: &[Spanned<RawBundle>],
) -> Result<(), ConfigError> {
    let mut names = BTreeMap::new();
    let mut ids = BTreeMap::new();
    let mut paths = BTreeMap::new();
    for (bundle, raw) in config.bundles.iter().zip(raw) {
        let raw = raw.get_ref();
        let name = &bundle.name;
        if names.insert(name, ()).is_some() {
            let value = format_args!("{name:?}");
            let allowed = "a name that no other bundle has";
            return Err(source.value(&raw.name.span(), "bundle.name", value, allowed));
        }
        if let Some(other) = ids.insert(bundle.id, name) {
            let allowed = format!("a number that bundle {other:?} has not");
            return Err(source.value(&raw.id.span(), "bundle.id", bundle.id.0, allowed));
        }
        if bundle.peer == config.listen {
            let value = format_args!("{:?}", raw.peer.get_ref());
            let allowed = "the address of the other box, not box.listen";
            return Err(source.value(&raw.peer.span(), "bundle.peer", value, allowed));
        }
        if bundle.peer.is_ipv4() != config.listen.is_ipv4() {
            let value = format_args!("{:?}", raw.peer.get_ref());
            let allowed = "an address of the same IP version as box.listen";
            return Err(source.value(&raw.peer.span(), "bundle.peer", value, allowed));
        }
        let any = IpNet::from(IpAddr::from([0; 16]));
        // A sendbox finds the bundle by destination alone.
        let is_sendbox = config.role == Role::Sendbox;
        let from = if is_sendbox { vec![any] } else { bundle.from.clone() };
        for (prefix, raw) in bundle.to.iter().zip(&raw.to) {
            for source_prefix in &from {
                if let Some(other) = paths.insert((*source_prefix, *prefix), name) {
                    let value = format_args!("{prefix}");
                    let allowed = format!("a prefix that bundle {other:?} has not");
                    return Err(source.value(&raw.span(), "bundle.to", value, allowed));
                }
            }
        }
    }
    Ok(())
}

fn name(source: &Source<'_>, text: &Spanned<String>) -> Result<String, ConfigError> {
    let value = text.get_ref();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if value.is_empty() || value.len() > MAX_NAME || !value.chars().all(is_plain) {
        let allowed = format!("1 to {MAX_NAME} letters, digits, \".\", \"_\" or \"-\"");
        return Err(source.value(&text.span(), "bundle.name", format_args!("{value:?}"), allowed));
    }
    Ok(value.clone())
}

/// A name the kernel accepts for a device (`dev_valid_name`, net/core/dev.c).
fn device(source: &Source<'_>, key: &str, text: &Spanned<String>) -> Result<String, ConfigError> {
    let value = text.get_ref();
    let is_bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    if value.is_empty()
        || value.len() >= libc::IFNAMSIZ
        || value == "."
        || value == ".."
        || value.contains(is_bad)
    {
        let allowed = "a network device's name, 1 to 15 characters";
        return Err(source.value(&text.span(), key, format_args!("{value:?}"), allowed));
    }
    Ok(value.clone())
}

fn address(
    source: &Source<'_>,
    key: &str,
    text: &Spanned<String>,
) -> Result<SocketAddr, ConfigError> {
    let value = text.get_ref();
    let parsed = value
        .parse::<SocketAddr>()
        .or_else(|_| value.parse::<IpAddr>().map(|address| SocketAddr::new(address, DEFAULT_PORT)));
    match parsed {
        Ok(address)
            if address.port() != 0
                && !address.ip().is_unspecified()
                && !address.ip().is_multicast() =>
        {
            Ok(address)
        }
        _ => {
            let allowed = "one host's IP address, such as \"10.1.3.1\", \"10.1.3.1:61475\" or \
                           \"[2001:db8::1]:61475\"";
            Err(source.value(&text.span(), key, format_args!("{value:?}"), allowed))
        }
    }
}

fn prefixes(
    source: &Source<'_>,
    key: &str,
    list: &[Spanned<String>],
) -> Result<Vec<IpNet>, ConfigError> {
    let mut prefixes = Vec::with_capacity(list.len());
    for text in list {
        let allowed = "a prefix such as \"10.1.2.0/24\" or \"2001:db8:2::/48\"";
        let prefix: IpNet = source.parse(key, text, allowed)?;
        if prefix != prefix.trunc() {
            let value = format_args!("{:?}", text.get_ref());
            let allowed = format!("a prefix without host bits: \"{}\"", prefix.trunc());
            return Err(source.value(&text.span(), key, value, allowed));
        }
        prefixes.push(prefix);
    }
    Ok(prefixes)
}

/// A path, relative to the folder of the configuration file.
fn path(source: &Source<'_>, key: &str, text: &Spanned<String>) -> Result<PathBuf, ConfigError> {
    let value = text.get_ref();
    if value.is_empty() || value.contains('\0') {
        return Err(source.value(&text.span(), key, format_args!("{value:?}"), "a path"));
    }
    Ok(source.file.parent().unwrap_or(Path::new("")).join(value))
}

fn control_path(
    source: &Source<'_>,
    role: Role,
    text: Option<&Spanned<String>>,
) -> Result<PathBuf, ConfigError> {
    let Some(text) = text else {
        return Ok(PathBuf::from(format!("/run/forebay/{role}.sock")));
    };
    let path = path(source, "box.control", text)?;
    // sockaddr_un.sun_path holds 108 bytes with its terminator.
    if path.as_os_str().len() > 107 {
        let value = format_args!("{:?}", text.get_ref());
        return Err(source.value(
            &text.span(),
            "box.control",
            value,
            "a path of at most 107 bytes",
        ));
    }
    Ok(path)
}

fn rate(
    source: &Source<'_>,
    key: &str,
    text: Option<&Spanned<String>>,
) -> Result<Option<Rate>, ConfigError> {
    let Some(text) = text else { return Ok(None) };
    let allowed = format!("a rate from {} to {}, such as \"96Mbit/s\"", RATES.start(), RATES.end());
    let rate: Rate = source.parse(key, text, &allowed)?;
    if !RATES.contains(&rate) {
        let value = format_args!("{:?}", text.get_ref());
        return Err(source.value(&text.span(), key, value, allowed));
    }
    Ok(Some(rate))
}

fn check_cc(spec: &Spec) -> Result<(), SpecError> {
    cc::build(spec).map(|_| ())
}

fn check_qdisc(spec: &Spec) -> Result<(), SpecError> {
    qdisc::build::<Frame>(spec)?;
    Classifier::from_spec(spec).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_complete_file_is_read_with_its_defaults() {
        let config = parse(SENDBOX).unwrap();
        assert_eq!(config.listen.port(), DEFAULT_PORT);
        assert_eq!(config.control, Path::new("/run/forebay/sendbox.sock"));
        let bundle = &config.bundles[0];
        assert_eq!(bundle.peer.port(), 7000);
        assert_eq!(bundle.key_file, Path::new("/etc/forebay/bundle.key"));
        let shaping = bundle.shaping.as_ref().unwrap();
        assert_eq!(shaping.min_rate, Rate::from_mbit_per_sec(2));
        assert_eq!(shaping.max_rate, None);
        assert_eq!(shaping.qdisc.kind, "sfq");
        assert!(config.expect_role(Role::Receivebox).is_err());
    }

    /// Each row: what is replaced, by what, and what the message must name.
    #[test]
    fn an_error_names_line_key_value_and_what_is_allowed() {
        let rows: &[(&str, &str, &[&str])] = &[
            ("role = \"sendbox\"", "role = \"relay\"", &[":3:", "box.role", "relay", "receivebox"]),
            ("lan = \"s0\"", "lann = \"s0\"", &[":4:", "lann", "s0", "`lan`"]),
            ("lan = \"s0\"", "lan = \"s1\"", &[":4:", "box.lan", "s1", "other than"]),
            ("lan = \"s0\"\n", "", &["box.lan is missing"]),
            ("wan = \"s1\"", "wan = \"a/b\"", &[":5:", "box.wan", "a/b", "device"]),
            ("\"10.1.3.1\"", "\"0.0.0.0\"", &[":6:", "box.listen", "0.0.0.0", "one host's"]),
            ("\"10.1.3.1\"", "10", &[":6:", "listen = 10", "string"]),
            ("name = \"b\"", "name = \"a b\"", &[":9:", "bundle.name", "a b", "letters"]),
            ("id = 1", "id = 70000", &[":10:", "bundle.id", "70000", "65535"]),
            ("id = 1\n", "", &[":8:", "missing field `id`"]),
            ("10.1.3.2:7000", "10.1.3.1:61475", &[":11:", "bundle.peer", "other box"]),
            ("10.1.3.2:7000", "[::1]:7000", &[":11:", "bundle.peer", "same IP version"]),
            ("10.1.2.0/24", "10.1.2.1/24", &[":12:", "bundle.to", "10.1.2.1/24", "10.1.2.0/24"]),
            ("10.1.2.0/24", "10.1.2.0", &[":12:", "bundle.to", "10.1.2.0", "prefix such as"]),
            ("2Mbit/s", "2", &[":16:", "bundle.min_rate", "\"2\"", "such as"]),
            ("2Mbit/s", "2bit/s", &[":16:", "bundle.min_rate", "2bit/s", "100kbit/s"]),
            ("min_rate = \"2Mbit/s\"", "min_rate = 2", &[":16:", "min_rate = 2", "string"]),
            ("cc = \"copa\"\n", "", &["bundle \"b\"", "cc"]),
            ("\"copa\"", "\"vegas\"", &[":14:", "bundle.cc: kind", "vegas", "copa"]),
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
    fn bundles_that_could_not_be_told_apart_are_refused() {
        let second = &SENDBOX[SENDBOX.find("[[bundle]]").unwrap()..];
        let twice = format!("{SENDBOX}{second}");
        assert!(parse(&twice).unwrap_err().to_string().contains("no other bundle has"));
        let renamed = format!("{SENDBOX}{}", second.replace("\"b\"", "\"c\""));
        assert!(parse(&renamed).unwrap_err().to_string().contains("bundle.id = 1"));
        let renumbered =
            format!("{SENDBOX}{}", second.replace("\"b\"", "\"c\"").replace("id = 1", "id = 2"));
        assert!(parse(&renumbered).unwrap_err().to_string().contains("bundle.to = 10.1.2.0/24"));
    }

    #[test]
    fn a_receivebox_takes_no_shaping_and_needs_sources() {
        let text = SENDBOX.replace("\"sendbox\"", "\"receivebox\"").replace("lan = \"s0\"\n", "");
        let error = parse(&text.replace("cc = \"copa\"\n", "")).unwrap_err().to_string();
        assert!(error.contains("from is missing"), "{error}");
        let text = text.replace("key_file", "from = [\"10.1.1.0/24\"]\nkey_file");
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains("bundle.cc = \"copa\": allowed is nothing"), "{error}");
        let start = text.find("cc = ").unwrap();
        let config = parse(&text[..start]).unwrap();
        assert_eq!(config.role, Role::Receivebox);
        assert!(config.bundles[0].shaping.is_none());
    }
}
