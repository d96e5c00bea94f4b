//! What the bundles of site A share: the line, and the tree of their shares.

use forebay_core::bundle::uplink::{self, Member, Place, Share, UplinkConfig, WEIGHTS};
use forebay_sim::network::Uplink;

use super::bundles::{DeclaredBundle, shaper_rate};
use crate::experiment::{BoxEnd, FaultProgram};
use crate::plan::error::PlanError;
use crate::plan::reader::Reader;
use crate::plan::schema;

/// Keys of a bundle that are about its share.
const OF_A_BUNDLE: [&str; 3] = ["weight", "guarantee", "group"];

/// Reads the shares of the bundles that are there; `None` without any, or without an uplink.
pub(super) fn uplink(
    plan: &Reader<'_>,
    declared: &[DeclaredBundle],
) -> Result<Option<Uplink>, PlanError> {
    let table = plan.table("uplink", &schema::UPLINK)?;
    let groups = plan.tables("group", &schema::GROUP)?;
    let bundles = plan.tables("bundle", &schema::BUNDLE)?;
    for (bundle, known) in bundles.iter().zip(declared) {
        let is_alone = table.is_none() || known.bundle.reversed;
        if let Some(key) = OF_A_BUNDLE.into_iter().find(|key| is_alone && bundle.has(key)) {
            return Err(bundle.wrong(key));
        }
    }
    let Some(table) = table else {
        return if groups.is_empty() {
            Ok(None)
        } else {
            Err(plan.wrong_because("group", "nothing without [uplink], which groups share"))
        };
    };
    let names = names(&groups)?;
    let member = |reader: &Reader<'_>, key: &str, max_rate| {
        let group = reader.text(key)?.map(|name| names.iter().position(|known| known == name));
        let group = group.map(|place| place.ok_or_else(|| reader.wrong(key))).transpose()?;
        let weight = reader.count("weight", WEIGHTS)?.unwrap_or(Share::default().weight);
        let share = Share { weight, guarantee: shaper_rate(reader, "guarantee")?, max_rate };
        Ok::<_, PlanError>(Member { group, share })
    };
    let group = |reader: &Reader<'_>| member(reader, "parent", shaper_rate(reader, "max_rate")?);
    // Those of the experiment are the enabled ones, in the same order.
    let enabled = bundles.iter().zip(declared).filter(|(_, known)| known.enabled).enumerate();
    let shared: Vec<_> = enabled.filter(|(_, (_, known))| !known.bundle.reversed).collect();
    let shares = UplinkConfig {
        rate: table.require("rate", shaper_rate(&table, "rate")?)?,
        groups: groups.iter().map(group).collect::<Result<_, _>>()?,
        bundles: shared
            .iter()
            .map(|(_, (reader, known))| member(reader, "group", known.bundle.max_rate))
            .collect::<Result<_, _>>()?,
    };
    uplink::Uplink::new(&shares).map_err(|refused| {
        let reader = match refused.place {
            Place::Uplink => &table,
            Place::Group(place) => &groups[place],
            Place::Bundle(place) => shared[place].1.0,
        };
        reader.wrong_because(&refused.error.key, &refused.error.allowed)
    })?;
    let bundles: Vec<usize> = shared.iter().map(|(place, _)| *place).collect();
    Ok((!bundles.is_empty()).then_some(Uplink { shares, bundles }))
}

/// Whether `program` is the sendbox of site A, which all bundles of an uplink have in common.
pub(super) fn is_of_sendbox(program: &FaultProgram, declared: &[DeclaredBundle]) -> bool {
    let FaultProgram::Box { bundle, end: BoxEnd::Sendbox } = program else { return false };
    declared.iter().any(|known| known.bundle.name == *bundle && !known.bundle.reversed)
}

fn names(groups: &[Reader<'_>]) -> Result<Vec<String>, PlanError> {
    let mut names = Vec::new();
    for group in groups {
        let name = group.require("name", group.name("name")?)?;
        if names.contains(&name) {
            return Err(group.repeated("group"));
        }
        names.push(name);
    }
    Ok(names)
}
