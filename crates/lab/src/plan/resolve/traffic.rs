//! What flows send.

use std::time::Duration;

use forebay_core::traffic::video::{LADDER, Video};
use forebay_core::units::{ByteCount, Rate, Ratio};

use super::Files;
use crate::experiment::schedule::{Connections, RequestLoad};
use crate::experiment::{Link, Timing, Traffic};
use crate::plan::error::PlanError;
use crate::plan::reader::Reader;
use crate::plan::schema;

/// Reads what `flow` sends, over the link `forward`, and the name of that kind.
pub(super) fn traffic(
    flow: &Reader<'_>,
    forward: &Link,
    files: &mut Files<'_>,
) -> Result<(&'static str, Traffic), PlanError> {
    let raw = flow.require("traffic", flow.raw_table("traffic")?)?;
    let kind = raw.get("kind").map(|node| node.value.to_string());
    let section = match kind.as_deref() {
        Some("\"greedy\"") => &schema::GREEDY,
        Some("\"requests\"") => &schema::REQUESTS,
        Some("\"video\"") => &schema::VIDEO,
        Some("\"cbr\"") => &schema::CBR,
        Some("\"poisson\"") => &schema::POISSON,
        Some("\"on_off\"") => &schema::ON_OFF,
        Some("\"ping\"") => &schema::PING,
        _ => return Err(flow.wrong("traffic")),
    };
    let table = flow.require("traffic", flow.table("traffic", section)?)?;
    let count = flow.count("count", 1..=10_000)?;
    let flows = count.unwrap_or(1);
    match kind.as_deref() {
        Some("\"greedy\"") => Ok(("greedy", Traffic::Greedy { flows })),
        Some("\"ping\"") => Ok(("ping", Traffic::Ping { loops: flows })),
        Some("\"video\"") => Ok(("video", Traffic::Video { flows, video: video(&table)? })),
        Some("\"cbr\"") => Ok(("cbr", datagrams(&table, flows, Timing::Even)?)),
        Some("\"poisson\"") => Ok(("poisson", datagrams(&table, flows, Timing::Poisson)?)),
        Some("\"on_off\"") => {
            let on = table.require("on", table.duration("on")?)?;
            let off = table.require("off", table.duration("off")?)?;
            if on.is_zero() {
                return Err(table.wrong_because("on", "a duration above zero"));
            }
            Ok(("on_off", datagrams(&table, flows, Timing::OnOff { on, off })?))
        }
        _ => {
            if count.is_some() {
                let allowed = "no count with requests: `connections` says how many";
                return Err(flow.wrong_because("count", allowed));
            }
            Ok(("requests", requests(&table, forward, files)?))
        }
    }
}

fn video(table: &Reader<'_>) -> Result<Video, PlanError> {
    let segment = table.duration("segment")?.unwrap_or(Duration::from_secs(4));
    let video = Video {
        segment,
        rates: table.rates("rates")?.unwrap_or_else(|| LADDER.to_vec()),
        buffer: table.duration("buffer")?.unwrap_or(Duration::from_secs(30)),
        startup: table.duration("startup")?.unwrap_or(segment),
    };
    match video.check() {
        Ok(()) => Ok(video),
        Err(error) => Err(table.wrong_because(&error.key, &error.allowed)),
    }
}

fn datagrams(table: &Reader<'_>, flows: u32, timing: Timing) -> Result<Traffic, PlanError> {
    let rate = table.require("rate", table.rate("rate")?)?;
    let packet = table.parsed::<ByteCount>("packet")?;
    let packet_bytes = packet.map_or(1514, |packet| packet.as_u64());
    // An Ethernet frame without FCS: 60 bytes at least, 64 keep a sequence number inside.
    if !(64..=1514).contains(&packet_bytes) {
        return Err(table.wrong("packet"));
    }
    Ok(Traffic::Datagrams { flows, rate, packet_bytes: packet_bytes as u32, timing })
}

fn requests(
    table: &Reader<'_>,
    forward: &Link,
    files: &mut Files<'_>,
) -> Result<Traffic, PlanError> {
    let text = table.require("load", table.text("load")?)?;
    let load = match (text.parse::<Rate>(), text.parse::<Ratio>()) {
        (Ok(load), _) => load,
        (Err(_), Ok(share)) => {
            let rate = forward.nominal_rate.ok_or_else(|| table.wrong("load"))?;
            rate.scale(share.as_f64())
        }
        _ => return Err(table.wrong("load")),
    };
    if load == Rate::ZERO {
        return Err(table.wrong_because("load", "a load above zero"));
    }
    let iid = table.choice("sampling", &[("strata", false), ("iid", true)])?.unwrap_or(false);
    let connections = match table.text("connections") {
        Ok(Some("each")) => Connections::Each,
        _ => Connections::Persistent(table.count("connections", 1..=10_000)?.unwrap_or(200)),
    };
    Ok(Traffic::Requests(RequestLoad { sizes: files.sizes(table)?, load, connections, iid }))
}
