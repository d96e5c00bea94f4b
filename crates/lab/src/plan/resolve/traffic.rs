//! The traffic of flows.

use std::time::Duration;

use forebay_core::traffic::media::Media;
use forebay_core::traffic::video::{LADDER, Video};
use forebay_core::units::{Rate, Ratio};

use super::Files;
use crate::plan::schema;
use forebay_core::traffic::{Connections, Timing};
use forebay_reader::Reader;
use forebay_reader::tree::Value;
use forebay_scenario::{Link, RequestLoad, Traffic};

/// Reads the traffic of `flow` over the link `forward`, and the name of that kind of traffic.
pub(super) fn traffic(
    flow: &Reader<'_>,
    forward: &Link,
    files: &mut Files<'_>,
) -> Option<(&'static str, Traffic)> {
    let table = flow.table("traffic")?;
    let count = flow.whole("count");
    let flows = count.unwrap_or(1);
    Some(match table.text("kind")? {
        "greedy" => ("greedy", Traffic::Greedy { flows }),
        "ping" => ("ping", Traffic::Ping { loops: flows }),
        "video" => ("video", Traffic::Video { flows, video: video(&table)? }),
        "media" => ("media", Traffic::Media { flows, media: media(&table)? }),
        "cbr" => ("cbr", datagrams(&table, flows, Timing::Even)?),
        "poisson" => ("poisson", datagrams(&table, flows, Timing::Poisson)?),
        "on_off" => {
            let (on, off) = (table.duration("on"), table.duration("off"));
            if on.is_some_and(|on| on.is_zero()) {
                table.wrong_because("on", "a duration above zero");
            }
            ("on_off", datagrams(&table, flows, Timing::OnOff { on: on?, off: off? })?)
        }
        _ => {
            if count.is_some() {
                let allowed = "no count with requests: `connections` says how many";
                flow.wrong_because("count", allowed);
            }
            ("requests", requests(&table, forward, files)?)
        }
    })
}

fn video(table: &Reader<'_>) -> Option<Video> {
    let segment = table.duration("segment").unwrap_or(Duration::from_secs(4));
    let rates: Option<Vec<Rate>> = match table.elements("rates") {
        _ if !table.has("rates") => Some(LADDER.to_vec()),
        nodes => nodes.iter().map(|node| schema::RATE.rate(&node.value)).collect(),
    };
    let video = Video {
        segment,
        rates: rates.or_else(|| table.refused("rates"))?,
        buffer: table.duration("buffer").unwrap_or(Duration::from_secs(30)),
        startup: table.duration("startup").unwrap_or(segment),
    };
    video.check().map_err(|error| table.wrong_because(&error.key, &error.allowed)).ok()?;
    Some(video)
}

fn media(table: &Reader<'_>) -> Option<Media> {
    let rate = |key, default| table.rate(key).unwrap_or(Rate::from_bits_per_sec(default));
    let min_rate = rate("min_rate", 150_000);
    let media = Media {
        fps: table.whole("fps").unwrap_or(30),
        min_rate,
        max_rate: rate("max_rate", 1_500_000),
        start_rate: table.rate("start_rate").unwrap_or(min_rate),
        variation: table.number("variation").unwrap_or(0.0),
        late: table.duration("late").unwrap_or(Duration::from_millis(200)),
    };
    media.check().map_err(|error| table.wrong_because(&error.key, &error.allowed)).ok()?;
    Some(media)
}

fn datagrams(table: &Reader<'_>, flows: u32, timing: Timing) -> Option<Traffic> {
    let packet_bytes = table.size("packet").map_or(1514, |packet| packet.as_u64() as u32);
    Some(Traffic::Datagrams { flows, rate: table.rate("rate")?, packet_bytes, timing })
}

fn requests(table: &Reader<'_>, forward: &Link, files: &mut Files<'_>) -> Option<Traffic> {
    let load = table.text("load").and_then(|text| {
        let share = |share: Ratio| Some(forward.nominal_rate()?.scale(share.as_f64()));
        let load = text.parse::<Rate>().ok().or_else(|| share(text.parse().ok()?));
        load.or_else(|| table.refused("load"))
    });
    if load == Some(Rate::ZERO) {
        table.wrong_because("load", "a load above zero");
    }
    let iid = table.choice("sampling", &[("strata", false), ("iid", true)]).unwrap_or(false);
    let connections = match table.node("connections").map(|node| &node.value) {
        None => Connections::Persistent(200),
        Some(Value::Integer(number @ 1..=10_000)) => Connections::Persistent(*number as u32),
        Some(Value::Text(text)) if text == "each" => Connections::Each,
        Some(_) => table.refused("connections")?,
    };
    Some(Traffic::Requests(RequestLoad {
        sizes: files.sizes(table)?,
        load: load?,
        connections,
        iid,
    }))
}
