//! `[uplink]`, `[[group]]` and the shares of bundles: how a sendbox divides the line of its site.

use std::collections::BTreeMap;
use std::ops::Range;

use forebay_core::bundle::uplink::{
    self, Member, Place, Share, UplinkConfig, UplinkError, WEIGHTS,
};
use serde::Deserialize;
use toml::Spanned;

use super::raw::RawBundle;
use super::value::{Source, name, rate, required_rate};
use super::{BundleConfig, ConfigError, MAX_BUNDLES, Role};

/// The line of a sendbox's site, and how it is shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Uplink {
    /// The shares, a bundle for each of the file's, in the same order.
    pub shares: UplinkConfig,
    /// Names of the groups, in the order of the shares' groups.
    pub groups: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawUplink {
    rate: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGroup {
    name: Spanned<String>,
    parent: Option<Spanned<String>>,
    weight: Option<Spanned<i64>>,
    guarantee: Option<Spanned<String>>,
    max_rate: Option<Spanned<String>>,
}

/// What of a file is about its uplink.
pub(super) struct RawShares<'a> {
    pub uplink: Option<&'a RawUplink>,
    pub groups: &'a [RawGroup],
    pub bundles: &'a [Spanned<RawBundle>],
}

impl RawShares<'_> {
    /// Checks all of it for a box of this role, whose bundles are `checked`.
    pub fn check(
        &self,
        source: &Source<'_>,
        role: Role,
        checked: &[BundleConfig],
    ) -> Result<Option<Uplink>, ConfigError> {
        let uplink = self.uplink.filter(|_| role == Role::Sendbox);
        let Some(uplink) = uplink else {
            return match self.first() {
                None => Ok(None),
                Some((key, span)) => {
                    let allowed = match role {
                        Role::Sendbox => "nothing without [uplink], whose shares these are",
                        Role::Receivebox => "nothing: the sendbox shapes",
                    };
                    Err(source.value(&span, key, &source.text[span.clone()], allowed))
                }
            };
        };
        let names = self.names(source)?;
        let place = |key: &str, text: &Option<Spanned<String>>| {
            let Some(text) = text else { return Ok(None) };
            let known = names.get(text.get_ref().as_str()).copied();
            let value = format_args!("{:?}", text.get_ref());
            let wrong = || source.value(&text.span(), key, value, "the name of a [[group]]");
            known.map(Some).ok_or_else(wrong)
        };
        let group = |raw: &RawGroup| {
            let share = Share {
                weight: weight(source, "group.weight", raw.weight.as_ref())?,
                guarantee: rate(source, "group.guarantee", raw.guarantee.as_ref())?,
                max_rate: rate(source, "group.max_rate", raw.max_rate.as_ref())?,
            };
            Ok::<_, ConfigError>(Member { group: place("group.parent", &raw.parent)?, share })
        };
        let bundle = |(raw, checked): (&Spanned<RawBundle>, &BundleConfig)| {
            let raw = raw.get_ref();
            let share = Share {
                weight: weight(source, "bundle.weight", raw.weight.as_ref())?,
                guarantee: rate(source, "bundle.guarantee", raw.guarantee.as_ref())?,
                max_rate: checked.shaping.as_ref().and_then(|shaping| shaping.max_rate),
            };
            Ok::<_, ConfigError>(Member { group: place("bundle.group", &raw.group)?, share })
        };
        let shares = UplinkConfig {
            rate: required_rate(source, "uplink.rate", &uplink.rate)?,
            groups: self.groups.iter().map(group).collect::<Result<_, _>>()?,
            bundles: self.bundles.iter().zip(checked).map(bundle).collect::<Result<_, _>>()?,
        };
        uplink::Uplink::new(&shares).map_err(|error| self.refused(source, uplink, &error))?;
        let groups = self.groups.iter().map(|group| group.name.get_ref().clone()).collect();
        Ok(Some(Uplink { shares, groups }))
    }

    /// The first value that only a sendbox with an uplink has.
    fn first(&self) -> Option<(&'static str, Range<usize>)> {
        let uplink = self.uplink.map(|uplink| ("uplink.rate", uplink.rate.span()));
        let group = self.groups.first().map(|group| ("group.name", group.name.span()));
        let bundle = self.bundles.iter().map(Spanned::get_ref).find_map(|bundle| {
            let weight = bundle.weight.as_ref().map(|it| ("bundle.weight", it.span()));
            let guarantee = bundle.guarantee.as_ref().map(|it| ("bundle.guarantee", it.span()));
            let group = bundle.group.as_ref().map(|it| ("bundle.group", it.span()));
            weight.or(guarantee).or(group)
        });
        uplink.or(group).or(bundle)
    }

    /// Places of the groups by name.
    fn names(&self, source: &Source<'_>) -> Result<BTreeMap<&str, usize>, ConfigError> {
        let mut names = BTreeMap::new();
        for (place, group) in self.groups.iter().enumerate() {
            name(source, "group.name", &group.name)?;
            let value = format_args!("{:?}", group.name.get_ref());
            let wrong =
                |allowed: &str| source.value(&group.name.span(), "group.name", value, allowed);
            if place == MAX_BUNDLES {
                return Err(wrong(&format!("at most {MAX_BUNDLES} groups")));
            }
            if names.insert(group.name.get_ref().as_str(), place).is_some() {
                return Err(wrong("a name that no other group has"));
            }
        }
        Ok(names)
    }

    /// The error about shares that do not fit, with its place in the file.
    fn refused(
        &self,
        source: &Source<'_>,
        uplink: &RawUplink,
        refused: &UplinkError,
    ) -> ConfigError {
        let UplinkError { place, error } = refused;
        let (table, text) = match *place {
            Place::Uplink => ("uplink", Some(&uplink.rate)),
            Place::Group(place) => {
                let RawGroup { parent, guarantee, max_rate, .. } = &self.groups[place];
                let text = match error.key.as_str() {
                    "parent" => parent,
                    "guarantee" => guarantee,
                    _ => max_rate,
                };
                ("group", text.as_ref())
            }
            Place::Bundle(place) => ("bundle", self.bundles[place].get_ref().guarantee.as_ref()),
        };
        let key = format!("{table}.{}", error.key);
        // A value that is refused stands in the file; of a parent the error has its place, and the file its name.
        let span = text.map(Spanned::span).unwrap_or_default();
        source.value(&span, &key, &source.text[span.clone()], &error.allowed)
    }
}

fn weight(source: &Source<'_>, key: &str, raw: Option<&Spanned<i64>>) -> Result<u32, ConfigError> {
    let Some(raw) = raw else { return Ok(Share::default().weight) };
    let weight = u32::try_from(*raw.get_ref()).ok().filter(|weight| WEIGHTS.contains(weight));
    weight.ok_or_else(|| {
        let allowed = format!("a whole number from {} to {}", WEIGHTS.start(), WEIGHTS.end());
        source.value(&raw.span(), key, raw.get_ref(), allowed)
    })
}
