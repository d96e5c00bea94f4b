//! Many sites, and what of a plan goes together with them.

use super::bundles::DeclaredBundle;
use crate::experiment::schedule::Connections;
use crate::experiment::topology::Topology;
use crate::experiment::{Flow, Traffic};
use crate::plan::error::PlanError;
use crate::plan::reader::Reader;
use crate::plan::schema;

/// What is of one bottleneck or of one pair of sites.
const TABLES: [&str; 7] = ["reverse", "link", "uplink", "group", "fault", "upset", "attack"];
const OF_A_BOTTLENECK: [&str; 7] = ["trace", "path", "paths", "hops", "change", "pulse", "walk"];
const OF_A_FLOW: [&str; 5] = ["pair", "reversed", "rtt", "hop", "ttl"];

/// Reads the topology of a plan that has one, and refuses what does not go together with it.
pub(super) fn topology(
    plan: &Reader<'_>,
    declared: &[DeclaredBundle],
    flows: &[Flow],
) -> Result<Option<Topology>, PlanError> {
    let Some(table) = plan.table("topology", &schema::TOPOLOGY)? else { return Ok(None) };
    let routers = table.require("routers", table.count("routers", 2..=200)?)?;
    let sites = table.require("sites", table.count("sites", 2..=2000)?)?;
    if sites < routers {
        return Err(table.wrong("sites"));
    }
    let utilization = table.share("utilization")?.unwrap_or(0.85);
    if utilization == 0.0 {
        return Err(table.wrong("utilization"));
    }
    refuse(plan, &TABLES)?;
    let bottleneck = plan.table("bottleneck", &schema::BOTTLENECK)?;
    refuse(&plan.require("bottleneck", bottleneck)?, &OF_A_BOTTLENECK)?;
    for (table, flow) in plan.tables("flow", &schema::FLOW)?.iter().zip(flows) {
        refuse(table, &OF_A_FLOW)?;
        let is_drawn = matches!(&flow.traffic, Traffic::Requests(load)
            if load.iid && load.connections != Connections::Each);
        if !is_drawn {
            let allowed = "with [topology] requests with `sampling = \"iid\"` and a number of \
                           `connections`";
            return Err(table.wrong_because("traffic", allowed));
        }
    }
    for (place, table) in plan.tables("bundle", &schema::BUNDLE)?.iter().enumerate() {
        refuse(table, &["reversed"])?;
        if place > 0 {
            let allowed = "one [[bundle]] with [topology], which all of its bundles are like";
            return Err(table.wrong_because("name", allowed));
        }
    }
    Ok(Some(Topology {
        sites: sites as usize,
        routers: routers as usize,
        peers: table.count("peers", 1..=100)?.unwrap_or(1) as usize,
        utilization,
        deployment: table.share("deployment")?.unwrap_or(1.0),
        bundle: declared.iter().find(|it| it.enabled).map(|it| it.bundle.clone()),
        ..Topology::default()
    }))
}

/// Refuses a table that has one of `keys`.
fn refuse(table: &Reader<'_>, keys: &[&str]) -> Result<(), PlanError> {
    match keys.iter().find(|key| table.has(key)) {
        Some(key) => Err(table.wrong_because(key, "nothing with [topology]")),
        None => Ok(()),
    }
}
