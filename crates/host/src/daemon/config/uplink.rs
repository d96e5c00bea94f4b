//! `[uplink]`, `[[group]]` and the shares of bundles: how a sendbox divides the line of its site.

use std::collections::BTreeMap;

use forebay_core::bundle::uplink::{
    self, Member, Place, Share, UplinkConfig, UplinkError, WEIGHTS,
};
use forebay_core::units::Rate;

use super::bundle::Bundle;
use super::document::{Section, Table};
use super::{MAX_BUNDLES, Role, value};

pub(super) const UPLINK: Section = Section { name: "uplink", is_list: false, keys: &["rate"] };

pub(super) const GROUP: Section = Section {
    name: "group",
    is_list: true,
    keys: &["name", "parent", "weight", "guarantee", "max_rate"],
};

/// Keys of a bundle that say what it has of an uplink.
const SHARE: &[&str] = &["weight", "guarantee", "group"];

/// The line of a sendbox's site, and how it is shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Uplink {
    /// The shares, a bundle for each of the file's, in the same order.
    pub shares: UplinkConfig,
    /// Names of the groups, in the order of the shares' groups.
    pub groups: Vec<String>,
}

/// What of a file is about the uplink of a box of this role, if that is known; `None`: there is none, or something is
/// wrong, as noted.
pub(super) fn read(root: &Table<'_>, role: Option<Role>, bundles: &[Bundle<'_>]) -> Option<Uplink> {
    let uplink = root.table("uplink", &UPLINK);
    let groups = root.tables("group", &GROUP);
    let role = role?;
    if role == Role::Receivebox || !root.has("uplink") {
        let allowed = match role {
            Role::Sendbox => {
                format!("nothing without {}, whose shares these are", root.header(&UPLINK))
            }
            Role::Receivebox => "nothing: the sendbox shapes".into(),
        };
        refuse_all(uplink, &groups, bundles, &allowed);
        return None;
    }
    let names: Vec<Option<String>> =
        groups.iter().map(|group| group.required("name", value::name)).collect();
    let places = places(&groups, &names);
    let place = |table: &Table<'_>, key: &str| {
        let known = |text: &str| {
            let allowed = || format!("the name of a {}", table.header(&GROUP));
            places.get(text).copied().ok_or_else(allowed)
        };
        table.optional(key, known)
    };
    let member = |table: &Table<'_>, parent: &str, max_rate: Option<Rate>| {
        let weight = table.has("weight").then(|| table.number("weight", WEIGHTS)).flatten();
        let weight = weight.unwrap_or(Share::default().weight);
        let guarantee = table.optional("guarantee", value::rate);
        Member { group: place(table, parent), share: Share { weight, guarantee, max_rate } }
    };
    let group =
        |table: &Table<'_>| member(table, "parent", table.optional("max_rate", value::rate));
    let bundle = |bundle: &Bundle<'_>| member(&bundle.table, "group", bundle.max_rate);
    let (in_groups, in_bundles) =
        (groups.iter().map(group).collect(), bundles.iter().map(bundle).collect());
    let uplink = uplink?;
    let rate = uplink.required("rate", value::rate)?;
    let shares = UplinkConfig { rate, groups: in_groups, bundles: in_bundles };
    match uplink::Uplink::new(&shares) {
        Ok(_) => Some(Uplink { shares, groups: names.into_iter().collect::<Option<_>>()? }),
        Err(UplinkError { place, error }) => {
            let table = match place {
                Place::Uplink => &uplink,
                Place::Group(place) => &groups[place],
                Place::Bundle(place) => &bundles[place].table,
            };
            table.wrong(&error.key, &error.allowed);
            None
        }
    }
}

/// Notes every value that only a sendbox with an uplink has.
fn refuse_all(
    uplink: Option<Table<'_>>,
    groups: &[Table<'_>],
    bundles: &[Bundle<'_>],
    allowed: &str,
) {
    let tables = uplink.iter().map(|table| (*table, UPLINK.keys));
    let tables = tables.chain(groups.iter().map(|table| (*table, &GROUP.keys[..1])));
    let tables = tables.chain(bundles.iter().map(|bundle| (bundle.table, SHARE)));
    for (table, keys) in tables {
        for key in keys.iter().filter(|key| table.has(key)) {
            table.wrong(key, allowed);
        }
    }
}

/// Places of the groups by name.
fn places<'a>(groups: &[Table<'_>], names: &'a [Option<String>]) -> BTreeMap<&'a str, usize> {
    let mut places = BTreeMap::new();
    for (place, (group, name)) in groups.iter().zip(names).enumerate() {
        if place == MAX_BUNDLES {
            group.wrong("name", format!("at most {MAX_BUNDLES} groups"));
        }
        if name.as_deref().is_some_and(|name| places.insert(name, place).is_some()) {
            group.wrong("name", "a name that no other group has");
        }
    }
    places
}
