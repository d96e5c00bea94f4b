//! A first configuration for this machine: `forebay init` queries the kernel, chooses values and writes a
//! file.
//!
//! [`Survey`] queries the kernel, [`Draft::of`] chooses values with reasons, and `text` writes the file. A
//! value that the kernel does not reveal stays as a commented choice and is listed as open.

mod asked;
mod place;
mod survey;
mod text;
mod write;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use forebay_core::text::shell_word;
use ipnet::IpNet;
use serde::Serialize;

pub use self::asked::Asked;
use self::place::Place;
pub use self::survey::{Survey, SurveyedLink, Way};
pub use self::write::{KeyState, WriteError};
use super::config::{self, Peer, Role};
use crate::kernel;

/// The requested box, as far as the caller specifies it.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Role of the box.
    pub role: Role,
    /// The other box.
    pub peer: Peer,
    /// Destinations of the bundle. A sendbox needs them.
    pub to: Vec<IpNet>,
    /// Sources of the bundle. A receivebox needs them.
    pub from: Vec<IpNet>,
    /// The bundle's number at both boxes.
    pub id: u16,
    /// Own address for messages; `None`: the source address of the route to the peer.
    pub listen: Option<IpAddr>,
    /// Port towards the hosts.
    pub lan: Option<String>,
    /// Device towards the other site.
    pub wan: Option<String>,
    /// The bundle also carries packets that this machine itself sends.
    pub own: bool,
    /// Name of the bundle.
    pub name: String,
    /// The file to write.
    pub file: PathBuf,
    /// The key file.
    pub key_file: PathBuf,
}

impl Wanted {
    /// The networks at the other site.
    pub fn far(&self) -> &[IpNet] {
        match self.role {
            Role::Sendbox => &self.to,
            Role::Receivebox => &self.from,
        }
    }

    /// The networks at this site, as far as the caller names them.
    fn near(&self) -> &[IpNet] {
        match self.role {
            Role::Sendbox => &self.from,
            Role::Receivebox => &self.to,
        }
    }
}

/// A value of the file, with the reason for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chosen {
    /// The key, such as `box.wan`.
    pub key: &'static str,
    /// The value in the file; `None`: open, and commented out.
    pub value: Option<String>,
    /// The kernel's answer, and the conclusion.
    pub why: String,
}

/// A manual step before the box starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ManualStep {
    /// The command.
    pub command: String,
    /// Purpose of the command.
    pub why: String,
}

/// Commands for the other site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Other {
    /// Copies the key there.
    pub copy: String,
    /// Writes the other box's file.
    pub init: String,
}

/// A file for this machine, not written yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Draft {
    /// Role of the box.
    pub role: Role,
    /// The file's name.
    pub file: PathBuf,
    /// The key file's name.
    pub key_file: PathBuf,
    /// The file's text.
    pub text: String,
    /// The kernel's answers, in sentences.
    pub seen: Vec<String>,
    /// The choices.
    pub chosen: Vec<Chosen>,
    /// Open values, and how to settle them: the file is incomplete until then.
    pub open: Vec<String>,
    /// Manual steps before the start.
    pub before: Vec<ManualStep>,
    /// The command that starts the box.
    pub start: String,
    /// Commands for the other site.
    pub other: Other,
}

/// The oldest kernel in which a datapath keeps packets of a sendbox in the kernel.
const KERNEL_DATAPATH: (u32, u32) = (6, 12);

/// Placeholder for a network that only the operator knows.
const NETWORKS: &str = "NETWORKS";

impl Draft {
    /// Chooses the values of the file from the survey.
    pub fn of(wanted: &Wanted, seen: &Survey) -> Self {
        let place = Place::of(wanted, seen);
        let listen = listen(wanted, seen);
        let near = place::near(wanted, seen, &place);
        let mut chosen = place.chosen(wanted, seen);
        chosen.push(match &listen {
            Ok((address, why)) => Chosen {
                key: "box.listen",
                value: Some(quoted(&address.to_string())),
                why: why.clone(),
            },
            Err(why) => Chosen { key: "box.listen", value: None, why: why.clone() },
        });
        chosen.extend(near.chosen(wanted));
        let is_open = |it: &&Chosen| it.value.is_none() && text::is_required(wanted.role, it.key);
        let open = chosen.iter().filter(is_open).map(|it| format!("{}: {}", it.key, it.why));
        let open = open.collect();
        let own = listen.ok().map(|(address, _)| address);
        Self {
            role: wanted.role,
            file: wanted.file.clone(),
            key_file: wanted.key_file.clone(),
            text: text::write(wanted, &seen.release, &chosen, &nat(seen, &place)),
            seen: sentences(wanted, seen),
            before: before(wanted, seen, &place, own),
            start: start(wanted),
            other: other(wanted, own, &near.networks),
            open,
            chosen,
        }
    }

    /// The parsed configuration of the file.
    ///
    /// # Errors
    ///
    /// The file would be refused, for example because of a value from the caller.
    pub fn check(&self) -> Result<config::Config, config::ConfigError> {
        config::Config::parse(&self.file, &self.text)
    }
}

/// The own address for messages, and the reason for it.
fn listen(wanted: &Wanted, seen: &Survey) -> Result<(IpAddr, String), String> {
    if let Some(address) = wanted.listen {
        return Ok((address, "Set by --listen.".into()));
    }
    let peer = text::peer(wanted);
    let Some(way) = &seen.peer else {
        return Err(format!("{}: add the route, or give --listen ADDRESS", seen.peer_problem));
    };
    if way.is_local {
        return Err(format!("{peer} is this machine's own: --peer is the other box"));
    }
    let why = format!("The address that packets to {peer} leave with, through {}.", way.device);
    let problem = format!("{} has no address of the IP version of {peer}: --listen", way.device);
    way.source.map(|address| (address, why)).ok_or(problem)
}

/// The kernel's answers, in sentences.
fn sentences(wanted: &Wanted, seen: &Survey) -> Vec<String> {
    let on = |is_on: bool| if is_on { "on" } else { "off" };
    let [v4, v6] = seen.forwards.map(on);
    let mut sentences =
        vec![format!("Linux {}; forwarding is {v4} for IPv4, {v6} for IPv6", seen.release)];
    let told = |way: &Option<Way>| match way {
        None => "has no route here".to_string(),
        Some(way) if way.is_local => "is this machine's own".into(),
        Some(way) => {
            let port = way.port.as_ref().map_or(String::new(), |port| format!(" (port {port})"));
            format!("is reached through {}{port}", way.device)
        }
    };
    sentences.push(format!("{} {}", text::peer(wanted), told(&seen.peer)));
    sentences.extend(seen.far.iter().map(|(prefix, way)| format!("{prefix} {}", told(way))));
    let ways = seen.far.iter().filter_map(|(_, way)| way.as_ref()).chain(&seen.peer);
    let mut devices: Vec<&str> = ways.map(|way| way.device.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    for link in devices.into_iter().filter_map(|device| seen.link(device)) {
        let kind = if link.kind.is_empty() { "a device" } else { &link.kind };
        let header = if link.is_ethernet { "" } else { ", without Ethernet headers" };
        let SurveyedLink { name, mtu, .. } = link;
        sentences.push(format!("{name} is {kind} with an MTU of {mtu} bytes{header}"));
        let ports: Vec<&str> = seen.ports(name).map(|port| port.name.as_str()).collect();
        if !ports.is_empty() {
            sentences.push(format!("{name} has the ports {}", ports.join(" and ")));
        }
    }
    sentences
}

/// The comment on `nat`: the box sees packets after this machine has changed their sources, as the other box
/// does.
fn nat(seen: &Survey, place: &Place) -> String {
    let between = "If NAT between the boxes changes the traffic, set this at both boxes; or \
                   \"destination\", or \"both\".";
    match (place, &seen.source_nat) {
        (Place::Route { .. }, Some(what)) => format!(
            "{between} {what} of this machine acts before the box: if it changes the bundle's \
             sources, set `from` at both boxes to the changed address."
        ),
        _ => between.into(),
    }
}

/// Manual steps before the box starts.
fn before(wanted: &Wanted, seen: &Survey, place: &Place, own: Option<IpAddr>) -> Vec<ManualStep> {
    let mut steps = Vec::new();
    let is_new = kernel::version(&seen.release) >= KERNEL_DATAPATH;
    for link in place.devices().filter_map(|device| seen.link(device)) {
        let must_go: Vec<String> = place.unwanted(link, is_new);
        if !must_go.is_empty() {
            let list: String = must_go.iter().map(|it| format!(" {it} off")).collect();
            steps.push(ManualStep {
                command: format!("ethtool -K {}{list}", link.name),
                why: "a box needs packets as they are on the wire".into(),
            });
        }
    }
    let shaper =
        place.wan().and_then(|wan| seen.link(wan)).filter(|_| wanted.role == Role::Sendbox);
    if let Some(SurveyedLink { name, foreign_qdisc: Some(kind), .. }) = shaper {
        steps.push(ManualStep {
            command: format!("tc qdisc del dev {name} root"),
            why: format!(
                "{kind} is configured there, and a sendbox needs that place for its own \
                          queues"
            ),
        });
    }
    if let (Place::Route { wan, .. }, Some(what)) = (place, &seen.source_nat) {
        steps.push(ManualStep {
            command: format!("# {what} may change the sources of packets that leave through {wan}"),
            why: "if it changes packets of the bundle, give the changed address as --from at both \
                 boxes"
                .into(),
        });
    }
    let is_private = |address: &IpAddr| matches!(address, IpAddr::V4(it) if it.is_private());
    let peer = wanted.peer.address().map(|address| address.ip());
    if let (Some(own), Some(peer)) = (own, peer)
        && is_private(&own)
        && peer.is_ipv4()
        && !is_private(&peer)
    {
        steps.push(ManualStep {
            command: format!("# the other box reaches this one at a public address, not at {own}"),
            why: "give that address as --peer there; set bundle.nat if NAT changes the traffic"
                .into(),
        });
    }
    let ports = Role::default_port;
    steps.push(ManualStep {
        command: format!(
            "# firewalls and security groups: UDP {} (sendbox), {} (receivebox)",
            ports(Role::Sendbox),
            ports(Role::Receivebox)
        ),
        why: "the boxes exchange messages".into(),
    });
    steps
}

/// The command that starts the box.
fn start(wanted: &Wanted) -> String {
    match config::unit_of(wanted.role, &wanted.file) {
        Some(unit) => format!("systemctl enable --now {unit}"),
        None => format!("forebay {} --config {}", wanted.role, shown(&wanted.file)),
    }
}

/// Commands for the other site. `networks` are the known networks of this site.
fn other(wanted: &Wanted, own: Option<IpAddr>, networks: &[IpNet]) -> Other {
    let list = |networks: &[IpNet]| {
        let list: Vec<String> = networks.iter().map(ToString::to_string).collect();
        if list.is_empty() { NETWORKS.into() } else { list.join(",") }
    };
    let (to, from) = match wanted.role {
        Role::Sendbox => (list(&wanted.to), list(networks)),
        Role::Receivebox => (list(networks), list(&wanted.from)),
    };
    let role = wanted.role.other();
    let peer = own.map_or("ADDRESS".into(), |own| own.to_string());
    let key = wanted.key_file.file_name().unwrap_or_default().to_string_lossy();
    let folder = config::UNITS;
    let id = if wanted.id == ID_DEFAULT { String::new() } else { format!(" --id {}", wanted.id) };
    let host = match &wanted.peer {
        Peer::At(address) => match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        },
        Peer::Named { name, .. } => name.clone(),
    };
    Other {
        copy: format!("scp -p {} root@{host}:{folder}/", shown(&wanted.key_file)),
        init: format!(
            "forebay init {role} --peer {peer} --to {to} --from {from}{id} --key {folder}/{key}"
        ),
    }
}

/// The default number of the bundle.
pub const ID_DEFAULT: u16 = 1;

/// A path, quoted for a shell.
fn shown(path: &Path) -> String {
    shell_word(&path.display().to_string())
}

/// A text, quoted for TOML.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Networks as a TOML list.
fn list(networks: &[IpNet]) -> String {
    let list: Vec<String> = networks.iter().map(|network| quoted(&network.to_string())).collect();
    format!("[{}]", list.join(", "))
}

#[cfg(test)]
mod tests;
