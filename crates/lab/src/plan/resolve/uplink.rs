//! The uplink that the bundles of site A share: the line and the tree of shares.

use forebay_core::bundle::uplink::{self, Member, Share, UplinkConfig, UplinkPart};
use forebay_scenario::{BoxEnd, FaultProgram, Uplink};

use super::bundles::DeclaredBundle;
use forebay_reader::Reader;

/// Keys of a bundle for its share.
const OF_A_BUNDLE: [&str; 3] = ["weight", "guarantee", "group"];

/// Reads the shares of the enabled bundles; `None` without such bundles, or without an uplink. All bundles
/// of the plan are `declared`.
pub(super) fn uplink(plan: &Reader<'_>, declared: &[DeclaredBundle]) -> Option<Uplink> {
    let (groups, bundles) = (plan.tables("group"), plan.tables("bundle"));
    for (bundle, known) in bundles.iter().zip(declared) {
        let is_alone = !plan.has("uplink") || known.bundle.reversed;
        let refused = OF_A_BUNDLE.iter().filter(|key| is_alone && bundle.has(key));
        refused.for_each(|key| bundle.wrong(key));
    }
    if !plan.has("uplink") && !groups.is_empty() {
        plan.wrong_because("group", "nothing without [uplink], which groups share");
    }
    let table = plan.table("uplink")?;
    let names = names(&groups);
    let member = |reader: &Reader<'_>, key: &str, max_rate| {
        let group = reader.text(key).and_then(|name| {
            let place = names.iter().position(|known| known.as_deref() == Some(name));
            place.or_else(|| reader.refused(key))
        });
        let weight = reader.whole("weight").unwrap_or(Share::default().weight);
        Member { group, share: Share { weight, guarantee: reader.rate("guarantee"), max_rate } }
    };
    let group = |reader: &Reader<'_>| member(reader, "parent", reader.rate("max_rate"));
    // The experiment has the enabled bundles, in the same order.
    let enabled = bundles.iter().zip(declared).filter(|(_, known)| known.enabled).enumerate();
    let shared: Vec<_> = enabled.filter(|(_, (_, known))| !known.bundle.reversed).collect();
    let of_bundle = |(_, (reader, known)): &(usize, (&Reader<'_>, &DeclaredBundle))| {
        member(reader, "group", known.bundle.max_rate)
    };
    let (groups_of, bundles_of) =
        (groups.iter().map(group).collect(), shared.iter().map(of_bundle).collect());
    let shares = UplinkConfig { rate: table.rate("rate")?, groups: groups_of, bundles: bundles_of };
    if let Err(refused) = uplink::Uplink::new(&shares) {
        let reader = match refused.place {
            UplinkPart::Uplink => &table,
            UplinkPart::Group(place) => &groups[place],
            UplinkPart::Bundle(place) => shared[place].1.0,
        };
        reader.wrong_because(&refused.error.key, &refused.error.allowed);
    }
    let bundles: Vec<usize> = shared.iter().map(|(place, _)| *place).collect();
    (!bundles.is_empty()).then_some(Uplink { shares, bundles })
}

/// Whether `program` is the sendbox of site A, which all bundles of an uplink share.
pub(super) fn is_of_sendbox(program: &FaultProgram, declared: &[DeclaredBundle]) -> bool {
    let FaultProgram::Box { bundle, end: BoxEnd::Sendbox } = program else { return false };
    declared.iter().any(|known| known.bundle.name == *bundle && !known.bundle.reversed)
}

fn names(groups: &[Reader<'_>]) -> Vec<Option<String>> {
    let mut names: Vec<Option<String>> = Vec::new();
    for group in groups {
        let name = group.name("name");
        if name.is_some() && names.contains(&name) {
            group.repeated("group");
        }
        names.push(name);
    }
    names
}
