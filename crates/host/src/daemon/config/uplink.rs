//! `[uplink]`, `[[group]]` and the shares of bundles: how a sendbox divides the line of its site.

use std::collections::BTreeMap;

use forebay_core::bundle::uplink::{self, Member, Share, UplinkConfig, UplinkError, UplinkPart};
use forebay_core::units::Rate;
use forebay_reader::Reader;

use super::bundle::Bundle;
use super::{MAX_BUNDLES, Role};

/// Keys of a bundle for its share of an uplink.
const SHARE: &[&str] = &["weight", "guarantee", "group"];

/// The line of a sendbox's site, and how it is shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Uplink {
    /// The shares, with one bundle for each bundle of the file, in the same order.
    pub shares: UplinkConfig,
    /// Names of the groups, in the order of the shares' groups.
    pub groups: Vec<String>,
}

/// Reads the uplink sections for a box of this role, if that is known; `None`: there are none, or an error
/// was noted.
pub(super) fn read(
    root: &Reader<'_>,
    role: Option<Role>,
    bundles: &[Bundle<'_>],
) -> Option<Uplink> {
    let (uplink, groups) = (root.table("uplink"), root.tables("group"));
    let role = role?;
    if role == Role::Receivebox || !root.has("uplink") {
        let allowed = match role {
            Role::Sendbox => {
                format!("nothing without {}, which these shares divide", root.header("uplink"))
            }
            Role::Receivebox => "nothing: the sendbox shapes".into(),
        };
        refuse_all(uplink.as_ref(), &groups, bundles, &allowed);
        return None;
    }
    let names: Vec<Option<String>> = groups.iter().map(|group| group.name("name")).collect();
    let places = places(&groups, &names);
    let place = |table: &Reader<'_>, key: &str| {
        let allowed = || format!("the name of a {}", root.header("group"));
        table.checked(key, |text| places.get(text).copied().ok_or_else(allowed))
    };
    let member = |table: &Reader<'_>, parent: &str, max_rate: Option<Rate>| {
        let weight = table.whole("weight").unwrap_or(Share::default().weight);
        let share = Share { weight, guarantee: table.rate("guarantee"), max_rate };
        Member { group: place(table, parent), share }
    };
    let group = |table: &Reader<'_>| member(table, "parent", table.rate("max_rate"));
    let bundle = |bundle: &Bundle<'_>| member(&bundle.table, "group", bundle.max_rate);
    let (in_groups, in_bundles) =
        (groups.iter().map(group).collect(), bundles.iter().map(bundle).collect());
    let uplink = uplink?;
    let shares =
        UplinkConfig { rate: uplink.rate("rate")?, groups: in_groups, bundles: in_bundles };
    match uplink::Uplink::new(&shares) {
        Ok(_) => Some(Uplink { shares, groups: names.into_iter().collect::<Option<_>>()? }),
        Err(UplinkError { place, error }) => {
            let table = match place {
                UplinkPart::Uplink => &uplink,
                UplinkPart::Group(place) => &groups[place],
                UplinkPart::Bundle(place) => &bundles[place].table,
            };
            table.wrong_because(&error.key, &error.allowed);
            None
        }
    }
}

/// Notes every value that needs a sendbox with an uplink.
fn refuse_all(
    uplink: Option<&Reader<'_>>,
    groups: &[Reader<'_>],
    bundles: &[Bundle<'_>],
    allowed: &str,
) {
    let tables = uplink.into_iter().map(|table| (table, &["rate"][..]));
    let tables = tables.chain(groups.iter().map(|table| (table, &["name"][..])));
    let tables = tables.chain(bundles.iter().map(|bundle| (&bundle.table, SHARE)));
    for (table, keys) in tables {
        for key in keys.iter().filter(|key| table.has(key)) {
            table.wrong_because(key, allowed);
        }
    }
}

/// Indices of the groups by name.
fn places<'a>(groups: &[Reader<'_>], names: &'a [Option<String>]) -> BTreeMap<&'a str, usize> {
    let mut places = BTreeMap::new();
    for (place, (group, name)) in groups.iter().zip(names).enumerate() {
        if place == MAX_BUNDLES {
            group.wrong_because("name", format!("at most {MAX_BUNDLES} groups"));
        }
        if name.as_deref().is_some_and(|name| places.insert(name, place).is_some()) {
            group.repeated("group");
        }
    }
    places
}
