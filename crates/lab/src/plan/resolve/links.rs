//! The links of an experiment, their queues and changes.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::qdisc::{self, check_without_rate};
use forebay_core::spec::{Spec, Value as SpecValue};
use forebay_core::units::{ByteCount, Limit, Rate, Ratio};
use forebay_sim::network::{Property, Walk};

use super::{Files, jitter};
use crate::experiment::{Balance, Change, FULL_FRAME, Link, OwnLink};
use crate::plan::error::PlanError;
use crate::plan::reader::Reader;
use crate::plan::schema::{self, Section};

/// Bytes of a packet in a bandwidth-delay product: the customary MTU, so that 96 Mbit/s x 50 ms is
/// 400 packets.
const BDP_PACKET_BYTES: f64 = 1500.0;

/// Most links side by side or in a row.
const LINKS_MAX: u32 = 32;
/// Least time between steps of a walk: each is an event of the simulation.
const STEP_MIN: Duration = Duration::from_millis(1);

/// Most changes of a pulse: each is held for the whole run.
const PULSES_MAX: u32 = 100_000;

/// The links there and back.
pub(super) struct Links {
    pub forward: Link,
    /// What `forward` is made of, where that is several.
    pub paths: Vec<Link>,
    pub balance: Balance,
    /// What stands behind `forward` in a row.
    pub hops: Vec<Link>,
    pub reverse: Link,
    /// Links of pairs of sites that take none of these.
    pub own: Vec<OwnLink>,
}

fn bottleneck<'a>(plan: &Reader<'a>) -> Result<Reader<'a>, PlanError> {
    plan.require("bottleneck", plan.table("bottleneck", &schema::BOTTLENECK)?)
}

/// The round trip without a queue, in which other times may be given.
pub(super) fn rtt(plan: &Reader<'_>) -> Result<Duration, PlanError> {
    let table = bottleneck(plan)?;
    table.require("rtt", table.duration("rtt")?)
}

/// The links of a plan whose round trip is `rtt`.
pub(super) fn links(
    plan: &Reader<'_>,
    rtt: Duration,
    stop: Duration,
    files: &mut Files<'_>,
) -> Result<Links, PlanError> {
    let table = bottleneck(plan)?;
    let qdisc = table.require("qdisc", table.spec("qdisc")?)?;
    let mut forward = link(&table, rtt / 2, qdisc, files)?;
    forward.changes = changes(&table, &schema::CHANGE, stop)?;
    let pulses = pulses(&table, &forward, rtt, stop)?;
    forward.changes.extend(pulses);
    forward.changes.sort_by_key(|change| change.at);
    forward.walks = walks(&table, &schema::WALK, forward.rate)?;
    if forward.rate.is_none() && forward.trace.is_none() {
        return Err(table.wrong_because("rate", "a rate, or a trace instead"));
    }
    let mut reverse = match plan.table("reverse", &schema::REVERSE)? {
        Some(table) => {
            let qdisc = table.spec("qdisc")?.unwrap_or_else(unnoticed_queue);
            let mut reverse = link(&table, rtt / 2, qdisc, files)?;
            reverse.changes = changes(&table, &schema::REVERSE_CHANGE, stop)?;
            reverse.walks = walks(&table, &schema::REVERSE_WALK, reverse.rate)?;
            if reverse.ack_filter && reverse.nominal_rate.is_none() {
                return Err(table.wrong("ack_filter"));
            }
            reverse
        }
        None => unlimited(rtt / 2),
    };
    follow_delay(&mut reverse, &forward);
    let balance = table.choice("balance", &BALANCES)?.unwrap_or_default();
    let paths = paths(&table, &forward)?;
    let hops = hops(&table, &forward, &paths)?;
    let own = own_links(plan, stop, files)?;
    Ok(Links { forward, paths, balance, hops, reverse, own })
}

/// The links of pairs of sites that take no others.
fn own_links(
    plan: &Reader<'_>,
    stop: Duration,
    files: &mut Files<'_>,
) -> Result<Vec<OwnLink>, PlanError> {
    let mut own: Vec<OwnLink> = Vec::new();
    for table in plan.tables("link", &schema::LINK)? {
        let pair = table.require("name", table.name("name")?)?;
        if own.iter().any(|known| known.pair == pair) {
            return Err(table.repeated("link"));
        }
        let is_taken = ["forward", "reverse"].contains(&&*pair)
            || ["path-", "hop-"].iter().any(|start| pair.starts_with(start))
            || pair.ends_with("-back");
        if is_taken {
            return Err(table.wrong_because("name", "a name that no other link's rows can have"));
        }
        let rtt = table.require("rtt", table.duration("rtt")?)?;
        let qdisc = table.require("qdisc", table.spec("qdisc")?)?;
        let mut there = link(&table, rtt / 2, qdisc, files)?;
        if there.nominal_rate.is_none() {
            return Err(table.wrong_because("rate", "a rate, or a trace instead"));
        }
        there.changes = changes(&table, &schema::LINK_CHANGE, stop)?;
        let mut back = unlimited(rtt / 2);
        follow_delay(&mut back, &there);
        own.push(OwnLink { pair, there, back });
    }
    Ok(own)
}

/// A link that delays, and does nothing else.
fn unlimited(delay: Duration) -> Link {
    Link {
        rate: None,
        nominal_rate: None,
        trace: None,
        delay,
        jitter: Duration::ZERO,
        batch: Duration::ZERO,
        loss: 0.0,
        message_loss: 0.0,
        ack_filter: false,
        clears_ecn: false,
        reorder: 0.0,
        reorder_packets: 3,
        qdisc: unnoticed_queue(),
        walks: Vec::new(),
        changes: Vec::new(),
    }
}

/// A change of the round trip is one of both directions.
fn follow_delay(back: &mut Link, there: &Link) {
    for change in there.changes.iter().filter(|change| change.delay.is_some()) {
        back.changes.push(Change { at: change.at, delay: change.delay, ..Change::default() });
    }
    back.changes.sort_by_key(|change| change.at);
}

const BALANCES: [(&str, Balance); 2] = [("flow", Balance::Flow), ("packet", Balance::Packet)];

/// The links behind `first`, like it but for the propagation, which all of them have together.
fn hops(table: &Reader<'_>, first: &Link, paths: &[Link]) -> Result<Vec<Link>, PlanError> {
    let count = table.count("hops", 1..=LINKS_MAX)?.unwrap_or(1);
    if count > 1 && !paths.is_empty() {
        return Err(table.wrong("hops"));
    }
    let changes = first.changes.iter().map(|it| Change { delay: None, ..*it });
    let mut hop = Link { delay: Duration::ZERO, changes: changes.collect(), ..first.clone() };
    hop.walks.retain(|walk| walk.property != Property::Delay);
    Ok(vec![hop; count as usize - 1])
}

/// The links side by side that `whole` is made of: each has its share of the rate and of the queue.
fn paths(table: &Reader<'_>, whole: &Link) -> Result<Vec<Link>, PlanError> {
    let count = table.count("paths", 1..=LINKS_MAX)?.unwrap_or(1);
    let spread = table.duration("path_spread")?.unwrap_or(Duration::ZERO);
    if count == 1 {
        return Ok(Vec::new());
    }
    let Some(rate) = whole.rate else { return Err(table.wrong("paths")) };
    if !whole.walks.is_empty() {
        return Err(table.wrong_because("walk", "no walk of several paths"));
    }
    let share = |rate: Rate| Rate::from_bits_per_sec(rate.as_bits_per_sec() / u64::from(count));
    let changes = whole.changes.iter();
    // The round trip changes behind the paths, where they are one again.
    let changes =
        changes.map(|it| Change { rate: it.rate.map(share), delay: None, ..*it }).collect();
    let mut path = Link {
        rate: Some(share(rate)),
        nominal_rate: Some(share(rate)),
        delay: Duration::ZERO,
        changes,
        ..whole.clone()
    };
    let limit =
        whole.qdisc.value::<Limit>("limit").map_err(|error| table.wrong_spec("qdisc", &error))?;
    let limit = limit.map(|limit| match limit {
        Limit::Packets(packets) => Limit::Packets(packets.div_ceil(count.into())),
        Limit::Bytes(bytes) => {
            Limit::Bytes(FULL_FRAME.max(ByteCount::new(bytes.as_u64() / u64::from(count))))
        }
        Limit::Time(time) => Limit::Time(time),
    });
    if let Some(limit) = limit {
        path.qdisc.params.insert("limit".into(), SpecValue::Text(limit.to_string()));
    }
    let delay = |number| spread * number / (count - 1);
    Ok((0..count).map(|number| Link { delay: delay(number), ..path.clone() }).collect())
}

/// The queue of a link that is no bottleneck: long enough never to drop.
fn unnoticed_queue() -> Spec {
    Spec::named("fifo").with("limit", SpecValue::Text("10000p".into()))
}

fn link(
    table: &Reader<'_>,
    delay: Duration,
    qdisc: Spec,
    files: &mut Files<'_>,
) -> Result<Link, PlanError> {
    let rate = table.rate("rate")?;
    let trace = files.trace(table)?;
    if rate.is_some() && trace.is_some() {
        return Err(table.wrong_because("trace", "either a rate or a trace"));
    }
    let nominal_rate = rate.or(trace.as_ref().map(|trace| trace.mean_rate()));
    let qdisc = resolve_bdp(table, qdisc, nominal_rate, delay * 2)?;
    let checked = qdisc::check(&qdisc);
    let checked =
        if rate.is_some() { checked } else { checked.and_then(|()| check_without_rate(&qdisc)) };
    checked.map_err(|error| table.wrong_spec("qdisc", &error))?;
    Ok(Link {
        rate,
        nominal_rate,
        trace: trace.map(Arc::new),
        delay,
        jitter: jitter(table, "jitter")?,
        batch: jitter(table, "batch")?,
        loss: table.share("loss")?.unwrap_or(0.0),
        message_loss: table.share("message_loss")?.unwrap_or(0.0),
        ack_filter: known_switch(table, "ack_filter")?,
        clears_ecn: known_switch(table, "clears_ecn")?,
        reorder: table.share("reorder")?.unwrap_or(0.0),
        reorder_packets: table.count("reorder_packets", 1..=1000)?.unwrap_or(3),
        qdisc,
        walks: Vec::new(),
        changes: Vec::new(),
    })
}

/// A switch that only some links have; off where it is not given.
fn known_switch(table: &Reader<'_>, key: &str) -> Result<bool, PlanError> {
    let switch = if table.knows(key) { table.switch(key)? } else { None };
    Ok(switch.unwrap_or(false))
}

const PROPERTIES: [(&str, Property); 3] =
    [("rate", Property::Rate), ("delay", Property::Delay), ("loss", Property::Loss)];

/// The walks of a link, which has this rate.
fn walks(
    link: &Reader<'_>,
    section: &'static Section,
    rate: Option<Rate>,
) -> Result<Vec<Walk>, PlanError> {
    let mut walks = Vec::new();
    for table in link.tables("walk", section)? {
        let property = table.require("of", table.choice("of", &PROPERTIES)?)?;
        if property == Property::Rate && rate.is_none() {
            return Err(table.wrong("of"));
        }
        let value = |key| {
            let value = match property {
                Property::Rate => table.rate(key)?.map(|rate| rate.as_bits_per_sec() as f64),
                Property::Delay => table.duration(key)?.map(|delay| delay.as_secs_f64()),
                Property::Loss => table.share(key)?,
            };
            table.require(key, value)
        };
        let walk = Walk {
            property,
            interval: table.require("every", table.duration("every")?)?,
            correlation: table.number("correlation")?.unwrap_or(0.0),
            deviation: value("deviation")?,
            min: value("min")?,
            max: value("max")?,
        };
        if walk.interval < STEP_MIN {
            return Err(table.wrong("every"));
        }
        if !(-1.0..=1.0).contains(&walk.correlation) {
            return Err(table.wrong("correlation"));
        }
        if walk.min > walk.max {
            return Err(table.wrong_because("min", "at most max"));
        }
        walks.push(walk);
    }
    Ok(walks)
}

const PULSING: [(&str, Property); 3] =
    [("rate", Property::Rate), ("rtt", Property::Delay), ("loss", Property::Loss)];

/// The changes that the pulses of `link` are made of, whose round trip is `rtt`.
fn pulses(
    table: &Reader<'_>,
    link: &Link,
    rtt: Duration,
    stop: Duration,
) -> Result<Vec<Change>, PlanError> {
    let mut changes = Vec::new();
    for pulse in table.tables("pulse", &schema::PULSE)? {
        let of = pulse.require("of", pulse.choice("of", &PULSING)?)?;
        let ends: [Change; 2] = match of {
            Property::Rate => {
                let own = link.rate.ok_or_else(|| pulse.wrong("of"))?;
                let to = pulse.require("to", pulse.rate("to")?)?;
                [to, own].map(|rate| Change { rate: Some(rate), ..Change::default() })
            }
            Property::Delay => {
                let to = pulse.require("to", pulse.duration("to")?)?;
                [to, rtt].map(|rtt| Change { delay: Some(rtt / 2), ..Change::default() })
            }
            Property::Loss => {
                let to = pulse.require("to", pulse.share("to")?)?;
                [to, link.loss].map(|loss| Change { loss: Ratio::new(loss), ..Change::default() })
            }
        };
        let every = pulse.require("every", pulse.duration("every")?)?;
        if every < STEP_MIN.max(stop / PULSES_MAX) {
            return Err(pulse.wrong("every"));
        }
        let times = (1..).map(|number| every * number).take_while(|at| *at < stop);
        let ends = ends.iter().cycle();
        changes.extend(times.zip(ends).map(|(at, end)| Change { at, ..*end }));
    }
    Ok(changes)
}

/// The changes of a link, which has those that its section knows.
fn changes(
    link: &Reader<'_>,
    section: &'static Section,
    stop: Duration,
) -> Result<Vec<Change>, PlanError> {
    let mut changes: Vec<Change> = Vec::new();
    for table in link.tables("change", section)? {
        let at = table.require("at", table.duration("at")?)?;
        if at >= stop || changes.last().is_some_and(|last| last.at > at) {
            let allowed = "a time before the plan's stop, not before the previous change";
            return Err(table.wrong_because("at", allowed));
        }
        // Both directions follow the round trip, which the bottleneck's section alone has.
        let rtt = if table.knows("rtt") { table.duration("rtt")? } else { None };
        let delay = rtt.map(|rtt| rtt / 2);
        let rate = table.rate_or_none("rate")?;
        let loss = table.share("loss")?.and_then(Ratio::new);
        changes.push(Change { at, rate, delay, loss });
    }
    Ok(changes)
}

/// Replaces a limit in bandwidth-delay products by one in packets.
fn resolve_bdp(
    table: &Reader<'_>,
    mut qdisc: Spec,
    rate: Option<Rate>,
    rtt: Duration,
) -> Result<Spec, PlanError> {
    let Some(SpecValue::Text(text)) = qdisc.params.get("limit") else { return Ok(qdisc) };
    let Some(number) = text.strip_suffix("bdp") else { return Ok(qdisc) };
    let factor = number.trim().parse::<f64>().ok().filter(|n| (0.001..=1000.0).contains(n));
    let (Some(factor), Some(rate)) = (factor, rate) else {
        return Err(table.wrong("qdisc"));
    };
    let packets = rate.as_bytes_per_sec_f64() * rtt.as_secs_f64() / BDP_PACKET_BYTES;
    // At least one packet: an empty limit would pass nothing.
    let limit = Limit::Packets(((factor * packets).round() as u64).max(1));
    qdisc.params.insert("limit".into(), SpecValue::Text(limit.to_string()));
    Ok(qdisc)
}
