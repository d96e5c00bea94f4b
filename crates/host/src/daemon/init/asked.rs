//! Options of `forebay init`, as given on the command line.

use std::path::{Path, PathBuf};

use forebay_core::bundle::NAME_MAX;
use ipnet::IpNet;

use super::{ID_DEFAULT, Wanted};
use crate::daemon::config::{self, Peer, Role, value};

/// Options that were given, with texts as typed.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `--peer`
    pub peer: String,
    /// `--to`
    pub to: Vec<String>,
    /// `--from`
    pub from: Vec<String>,
    /// `--id`
    pub id: Option<u16>,
    /// `--listen`
    pub listen: Option<String>,
    /// `--lan`
    pub lan: Option<String>,
    /// `--wan`
    pub wan: Option<String>,
    /// `--own`
    pub own: bool,
    /// `--name`
    pub name: Option<String>,
    /// `--out`
    pub out: Option<PathBuf>,
    /// `--key`
    pub key: Option<PathBuf>,
}

impl Wanted {
    /// The box of this role that the options describe.
    ///
    /// # Errors
    ///
    /// An option with its value, and the allowed values.
    pub fn of(role: Role, asked: &Asked) -> Result<Self, String> {
        let wrong = |option: &str, text: &str, allowed: &str| {
            format!("{option} {text:?}: allowed is {allowed}")
        };
        let peer = value::peer(role.other(), &asked.peer)
            .map_err(|allowed| wrong("--peer", &asked.peer, &allowed))?;
        let networks = |option: &str, texts: &[String]| -> Result<Vec<IpNet>, String> {
            let network = |text: &String| {
                value::prefix(text).map_err(|allowed| wrong(option, text, &allowed))
            };
            texts.iter().map(network).collect()
        };
        let device = |option: &str, text: &Option<String>| -> Result<Option<String>, String> {
            let device = |text: &String| {
                value::device(text).map_err(|allowed| wrong(option, text, &allowed))
            };
            text.as_ref().map(device).transpose()
        };
        let name = match &asked.name {
            Some(name) => value::name(name).map_err(|allowed| wrong("--name", name, &allowed))?,
            None => name_of(role, &peer),
        };
        let listen = asked.listen.as_ref().map(|text| {
            let host = value::host(role.default_port(), text).map(|address| address.ip());
            host.map_err(|allowed| wrong("--listen", text, &allowed))
        });
        let file = asked.out.clone();
        let file = file.unwrap_or_else(|| Path::new(config::UNITS).join(format!("{name}.toml")));
        let wanted = Self {
            role,
            peer,
            to: networks("--to", &asked.to)?,
            from: networks("--from", &asked.from)?,
            id: asked.id.unwrap_or(ID_DEFAULT),
            listen: listen.transpose()?,
            lan: device("--lan", &asked.lan)?,
            wan: device("--wan", &asked.wan)?,
            own: asked.own,
            key_file: asked.key.clone().unwrap_or_else(|| file.with_extension("key")),
            name,
            file,
        };
        wanted.check()
    }

    fn check(self) -> Result<Self, String> {
        let option = match self.role {
            Role::Sendbox => "--to",
            Role::Receivebox => "--from",
        };
        if self.far().is_empty() {
            let example = "10.2.0.0/16";
            return Err(format!(
                "{option} is missing: allowed are the other site's networks, such as {example}"
            ));
        }
        let version = |network: &IpNet| matches!(network, IpNet::V6(_));
        let first = version(&self.far()[0]);
        if self.role == Role::Receivebox && (self.own || self.lan.is_some()) {
            return Err("--own and --lan are a sendbox's: a receivebox watches one device".into());
        }
        if let Some(other) = self.to.iter().chain(&self.from).find(|it| version(it) != first) {
            return Err(format!(
                "--to and --from {other}: allowed are networks of one IP version; add networks of \
                 the other version to the file"
            ));
        }
        Ok(self)
    }
}

/// The default name of a box and its bundle, derived from the other box.
fn name_of(role: Role, peer: &Peer) -> String {
    let towards = match role {
        Role::Sendbox => "to",
        Role::Receivebox => "from",
    };
    let host = match peer {
        Peer::At(address) => address.ip().to_string().replace(':', "-"),
        Peer::Named { name, .. } => name.clone(),
    };
    format!("{towards}-{host}").chars().take(NAME_MAX).collect()
}
