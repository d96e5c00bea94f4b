//! Topologies of many sites, and the keys that a plan may not combine with them.

use super::bundles::DeclaredBundle;
use forebay_core::traffic::Connections;
use forebay_reader::Reader;
use forebay_scenario::{Flow, Topology, Traffic};

/// Tables for a single bottleneck or a single pair of sites.
const TABLES: [&str; 7] = ["reverse", "link", "uplink", "group", "fault", "upset", "attack"];
/// Keys of `[bottleneck]` that cannot be combined with `[topology]`.
const OF_A_BOTTLENECK: [&str; 7] = ["trace", "path", "paths", "hops", "change", "pulse", "walk"];
/// Keys of `[[flow]]` that cannot be combined with `[topology]`.
const OF_A_FLOW: [&str; 5] = ["pair", "reversed", "rtt", "hop", "ttl"];

/// Reads the topology of a plan that has one, and refuses keys that cannot be combined with it.
pub(super) fn topology(
    plan: &Reader<'_>,
    declared: &[DeclaredBundle],
    flows: &[Flow],
) -> Option<Topology> {
    let table = plan.table("topology")?;
    let (routers, sites) = (table.whole("routers"), table.whole("sites"));
    if routers.zip(sites).is_some_and(|(routers, sites)| sites < routers) {
        table.wrong("sites");
    }
    let utilization = table.share("utilization").unwrap_or(0.85);
    if utilization == 0.0 {
        table.wrong("utilization");
    }
    refuse(plan, &TABLES);
    plan.table("bottleneck").iter().for_each(|table| refuse(table, &OF_A_BOTTLENECK));
    for (table, flow) in plan.tables("flow").iter().zip(flows) {
        refuse(table, &OF_A_FLOW);
        let is_drawn = matches!(&flow.traffic, Traffic::Requests(load)
            if load.iid && load.connections != Connections::Each);
        if !is_drawn {
            let allowed = "with [topology] requests with `sampling = \"iid\"` and a number of \
                           `connections`";
            table.wrong_because("traffic", allowed);
        }
    }
    for (place, table) in plan.tables("bundle").iter().enumerate() {
        refuse(table, &["reversed"]);
        if place > 0 {
            let allowed = "one [[bundle]] with [topology]: it is the template for all bundles";
            table.wrong_because("name", allowed);
        }
    }
    Some(Topology {
        sites: sites? as usize,
        routers: routers? as usize,
        peers: table.whole("peers").unwrap_or(1) as usize,
        utilization,
        deployment: table.share("deployment").unwrap_or(1.0),
        bundle: declared.iter().find(|it| it.enabled).map(|it| it.bundle.clone()),
        ..Topology::default()
    })
}

/// Refuses each of `keys` that a table has.
fn refuse(table: &Reader<'_>, keys: &[&str]) {
    let given = keys.iter().filter(|key| table.has(key));
    given.for_each(|key| table.wrong_because(key, "nothing with [topology]"));
}
