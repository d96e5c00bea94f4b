//! The tables of a configuration file as written, and what must hold between their values.

use std::collections::BTreeMap;
use std::net::IpAddr;

use forebay_core::bundle::BundleId;
use forebay_core::bundle::sendbox::{DEFAULT_MIN_RATE, SUPPLIED};
use forebay_core::cc;
use forebay_core::qdisc::{self, Classifier, bundle_default};
use forebay_core::spec::{Spec, SpecError};
use forebay_core::units::ByteCount;
use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;

use super::uplink::{RawGroup, RawShares, RawUplink};
use super::value::{Source, address, control_path, device, name, path, prefixes, rate};
use super::{BundleConfig, Config, ConfigError, MAX_BUNDLES, Role, Shaping, TraceConfig};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConfig {
    #[serde(rename = "box")]
    node: RawBox,
    trace: Option<RawTrace>,
    uplink: Option<RawUplink>,
    #[serde(default, rename = "group")]
    groups: Vec<RawGroup>,
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
    user: Option<Spanned<String>>,
    status_group: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTrace {
    file: Spanned<String>,
    limit: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBundle {
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
    pub weight: Option<Spanned<i64>>,
    pub guarantee: Option<Spanned<String>>,
    pub group: Option<Spanned<String>>,
}

impl RawConfig {
    /// Checks everything.
    pub(super) fn check(self, source: &Source<'_>) -> Result<Config, ConfigError> {
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
        let account = |key, text: &Option<Spanned<String>>| {
            text.as_ref().map(|text| name(source, key, text)).transpose()
        };
        let bundles = bundles(source, role, &self.bundles)?;
        let Self { uplink, groups, bundles: raw, .. } = &self;
        let shares = RawShares { uplink: uplink.as_ref(), groups, bundles: raw };
        let config = Config {
            file: source.file.to_owned(),
            role,
            lan,
            wan,
            listen: address(source, "box.listen", &node.listen)?,
            control: control_path(source, role, node.control.as_ref())?,
            realtime: node.realtime.unwrap_or(true),
            user: account("box.user", &node.user)?,
            status_group: account("box.status_group", &node.status_group)?,
            trace: self.trace.as_ref().map(|trace| trace.check(source)).transpose()?,
            uplink: shares.check(source, role, &bundles)?,
            bundles,
        };
        check_peers(source, &config, &self.bundles)?;
        Ok(config)
    }
}

impl RawTrace {
    /// Default size of a trace: an hour of a bundle with 500 rows/s of 150 bytes.
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
            name: name(source, "bundle.name", &self.name)?,
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
        check_cc(cc.get_ref()).map_err(|error| source.spec(&cc.span(), "bundle.cc", &error))?;
        if let Some(qdisc) = &self.qdisc {
            check_qdisc(qdisc.get_ref())
                .map_err(|error| source.spec(&qdisc.span(), "bundle.qdisc", &error))?;
        }
        let qdisc = self.qdisc.as_ref().map(|qdisc| qdisc.get_ref().clone());
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
            qdisc: qdisc.unwrap_or_else(bundle_default),
            min_rate,
            max_rate,
        }))
    }
}

/// Most destination prefixes of a file, and most source prefixes: what the BPF programs' tables
/// hold.
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
        // A sendbox's table holds each destination prefix once, whatever the sources.
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

fn check_cc(spec: &Spec) -> Result<(), SpecError> {
    cc::build(spec, SUPPLIED).map(|_| ())
}

fn check_qdisc(spec: &Spec) -> Result<(), SpecError> {
    qdisc::check(spec)?;
    Classifier::from_spec(spec).map(|_| ())
}
