//! The links of an experiment, their queues and changes.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::link::{AtEnd, Change, PathTrace, Replay, Service};
use forebay_core::qdisc::{self, check_without_rate};
use forebay_core::spec::{Spec, Value as SpecValue};
use forebay_core::units::{ByteCount, Limit, Rate, Ratio};
use forebay_scenario::{Balance, FULL_FRAME, Link, OwnLink, PROPERTIES, Property, Walk};

use super::Files;
use crate::plan::schema::{DURATION, RATE, SHARE};
use crate::traces::LinkTrace;
use forebay_reader::Reader;
use forebay_reader::schema::Kind;
use forebay_reader::tree::Value;

/// Bytes of a packet in a bandwidth-delay product: the customary MTU, so that 96 Mbit/s x 50 ms is
/// 400 packets.
const BDP_PACKET_BYTES: f64 = 1500.0;

/// Most changes of a pulse: all are kept in memory for the whole run.
const PULSES_MAX: u32 = 100_000;

/// Most changes that a trace makes in a run: half an hour with one per millisecond. All are kept in memory
/// for the whole run, in about 100 MB.
const REPLAYED_MAX: usize = 2_000_000;

/// The links in both directions.
pub(super) struct Links {
    pub forward: Link,
    /// The paths of `forward`, if it has several.
    pub paths: Vec<Link>,
    pub balance: Balance,
    /// The further hops behind `forward`, in order.
    pub hops: Vec<Link>,
    pub reverse: Link,
    /// Own links of pairs of sites that use none of the links above.
    pub own: Vec<OwnLink>,
}

/// The round trip without a queue; other times may be given as multiples of it.
pub(super) fn rtt(plan: &Reader<'_>) -> Option<Duration> {
    plan.table("bottleneck")?.duration("rtt")
}

/// The links of a plan whose round trip is `rtt`.
pub(super) fn links(
    plan: &Reader<'_>,
    rtt: Duration,
    stop: Duration,
    files: &mut Files<'_>,
) -> Option<Links> {
    // Read all links first, so that an invalid one does not hide the errors of the next.
    let table = plan.table("bottleneck")?;
    let forward = forward(&table, rtt, stop, files);
    let reverse = reverse(plan, rtt, stop, files);
    let own = own_links(plan, stop, files);
    let (forward, mut reverse) = (forward?, reverse?);
    follow_delay(&mut reverse, &forward);
    refuse_twice(&table, &forward);
    let own_trace = plan.table("reverse").filter(|reverse| reverse.has("trace"));
    refuse_twice(own_trace.as_ref().unwrap_or(&table), &reverse);
    let balance = table.choice("balance", &BALANCES).unwrap_or_default();
    let paths = paths(&table, &forward);
    let hops = hops(&table, &forward, paths.as_deref().unwrap_or_default());
    Some(Links { forward, paths: paths?, balance, hops, reverse, own })
}

fn forward(
    table: &Reader<'_>,
    rtt: Duration,
    stop: Duration,
    files: &mut Files<'_>,
) -> Option<Link> {
    let mut forward = link("forward", table, rtt / 2, table.spec("qdisc")?, stop, files)?;
    forward.changes = changes(table, stop);
    forward.changes.extend(pulses(table, &forward, rtt, stop));
    forward.changes.sort_by_key(|change| change.at);
    forward.walks = walks(table, forward.rate());
    if !table.has("rate") && !table.has("trace") {
        table.wrong_because("rate", "a rate, or a trace instead");
    }
    Some(forward)
}

fn reverse(
    plan: &Reader<'_>,
    rtt: Duration,
    stop: Duration,
    files: &mut Files<'_>,
) -> Option<Link> {
    if !plan.has("reverse") {
        return Some(unlimited("reverse", rtt / 2));
    }
    let table = plan.table("reverse")?;
    let qdisc = if table.has("qdisc") { table.spec("qdisc")? } else { unnoticed_queue() };
    let mut reverse = link("reverse", &table, rtt / 2, qdisc, stop, files)?;
    reverse.changes = changes(&table, stop);
    reverse.walks = walks(&table, reverse.rate());
    if reverse.ack_filter && reverse.nominal_rate().is_none() {
        table.wrong("ack_filter");
    }
    Some(reverse)
}

/// The own links of pairs of sites.
fn own_links(plan: &Reader<'_>, stop: Duration, files: &mut Files<'_>) -> Vec<OwnLink> {
    let mut own: Vec<OwnLink> = Vec::new();
    for table in plan.tables("link") {
        let Some(link) = own_link(&table, stop, files) else { continue };
        if own.iter().any(|known| known.pair == link.pair) {
            table.repeated("link");
        }
        own.push(link);
    }
    own
}

fn own_link(table: &Reader<'_>, stop: Duration, files: &mut Files<'_>) -> Option<OwnLink> {
    let pair = table.name("name");
    let is_taken = pair.as_deref().is_some_and(|pair| {
        ["forward", "reverse"].contains(&pair)
            || ["path-", "hop-"].iter().any(|start| pair.starts_with(start))
            || pair.ends_with("-back")
    });
    if is_taken {
        table.wrong_because("name", "a name that no other link's rows can have");
    }
    let rtt = table.duration("rtt").unwrap_or_default();
    let name = pair.clone().unwrap_or_default();
    let mut there = link(&name, table, rtt / 2, table.spec("qdisc")?, stop, files)?;
    if !table.has("rate") && !table.has("trace") {
        table.wrong_because("rate", "a rate, or a trace instead");
    }
    there.changes = changes(table, stop);
    let mut back = unlimited(&format!("{name}-back"), rtt / 2);
    follow_delay(&mut back, &there);
    refuse_twice(table, &there);
    Some(OwnLink { pair: pair?, there, back })
}

/// A link that only delays.
fn unlimited(name: &str, delay: Duration) -> Link {
    Link::new(name, Service::Unlimited, delay, unnoticed_queue())
}

/// Applies a change of the round trip to both directions, and also a trace of it, unless the way back has a
/// trace of its own delay.
fn follow_delay(back: &mut Link, there: &Link) {
    let round_trips = there.traces.iter().filter(|replay| replay.trace.is_round_trip());
    let delays = round_trips
        .filter_map(|replay| only(replay, |row| Change { rate: None, loss: None, ..row }));
    if !back.replays(Property::Delay) {
        back.traces.extend(delays);
        settle_order(back);
    }
    for change in there.changes.iter().filter(|change| change.delay.is_some()) {
        back.changes.push(Change { at: change.at, delay: change.delay, ..Change::default() });
    }
    back.changes.sort_by_key(|change| change.at);
}

/// The part of a trace that `keep` leaves, if any.
fn only(replay: &Replay, keep: impl Fn(Change) -> Change) -> Option<Replay> {
    Some(Replay { trace: Arc::new(replay.trace.only(keep)?), ..replay.clone() })
}

/// Packets keep their order when a trace shortens the delay, unless the plan reorders packets.
fn settle_order(link: &mut Link) {
    if link.replays(Property::Delay) {
        link.overtakes = Some(link.reorder > Ratio::ZERO);
    }
}

/// Refuses a property that both a trace and another table set; `table` has the trace.
fn refuse_twice(table: &Reader<'_>, link: &Link) {
    for (_, name) in PROPERTIES.iter().filter(|(property, _)| link.is_set_twice(*property)) {
        let allowed = format!("a trace without {name} values: change, pulse or walk sets them");
        table.wrong_because("trace", allowed);
    }
}

/// Values of the key `balance`.
const BALANCES: [(&str, Balance); 2] = [("flow", Balance::Flow), ("packet", Balance::Packet)];

/// The links behind `first`. They equal it without the propagation delay, all of which `first` has.
fn hops(table: &Reader<'_>, first: &Link, paths: &[Link]) -> Vec<Link> {
    let count = table.whole("hops").unwrap_or(1);
    if count > 1 && !paths.is_empty() {
        table.wrong("hops");
    }
    let changes = first.changes.iter().map(|it| Change { delay: None, ..*it });
    let mut hop = Link { delay: Duration::ZERO, changes: changes.collect(), ..first.clone() };
    hop.walks.retain(|walk| walk.property != Property::Delay);
    let without = |replay| only(replay, |row| Change { delay: None, ..row });
    hop.traces = first.traces.iter().filter_map(without).collect();
    (2..=count).map(|number| Link { name: format!("hop-{number}"), ..hop.clone() }).collect()
}

/// The parallel links of `whole`: each has its share of the rate and of the queue.
fn paths(table: &Reader<'_>, whole: &Link) -> Option<Vec<Link>> {
    let count = table.whole("paths").unwrap_or(1);
    let spread = table.duration("path_spread").unwrap_or(Duration::ZERO);
    if count == 1 {
        return Some(Vec::new());
    }
    let rate = whole.rate().filter(|_| whole.traces.is_empty());
    let rate = rate.or_else(|| table.refused("paths"))?;
    if !whole.walks.is_empty() {
        table.wrong_because("walk", "one path with a walk");
    }
    let share = |rate: Rate| Rate::from_bits_per_sec(rate.as_bits_per_sec() / u64::from(count));
    let changes = whole.changes.iter();
    // A change of the round trip applies behind the paths, where they join again.
    let changes =
        changes.map(|it| Change { rate: it.rate.map(share), delay: None, ..*it }).collect();
    let mut path = Link {
        service: Service::Rate(share(rate)),
        delay: Duration::ZERO,
        changes,
        ..whole.clone()
    };
    let limit = whole.qdisc.value::<Limit>("limit");
    let limit = limit.map_err(|error| table.wrong_spec("qdisc", &error)).ok()?;
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
    let path = |number| Link {
        name: format!("path-{}", number + 1),
        delay: spread * number / (count - 1),
        ..path.clone()
    };
    Some((0..count).map(path).collect())
}

/// The queue of a link that is no bottleneck: long enough that it never drops.
fn unnoticed_queue() -> Spec {
    Spec::named("fifo").with("limit", SpecValue::Text("10000p".into()))
}

fn link(
    name: &str,
    table: &Reader<'_>,
    delay: Duration,
    qdisc: Spec,
    stop: Duration,
    files: &mut Files<'_>,
) -> Option<Link> {
    let (service, replay) = served(table, stop, files);
    let mut link = Link::new(name, service, delay, qdisc);
    link.traces.extend(replay);
    // An invalid rate or trace was already noted, and so was a bottleneck's trace without a rate.
    let is_noted =
        table.has("rate") || (table.has("trace") && (link.traces.is_empty() || table.knows("rtt")));
    link.qdisc = resolve_bdp(table, link.qdisc.clone(), link.nominal_rate(), delay * 2, is_noted)?;
    let checked = qdisc::check(&link.qdisc);
    let checked = if table.has("rate") || link.rate().is_some() {
        checked
    } else {
        checked.and_then(|()| check_without_rate(&link.qdisc))
    };
    if let Err(error) = checked {
        table.wrong_spec("qdisc", &error);
    }
    link.jitter = table.duration("jitter").unwrap_or_default();
    link.batch = table.duration("batch").unwrap_or_default();
    link.loss = share(table, "loss");
    link.message_loss = share(table, "message_loss");
    link.ack_filter = known_switch(table, "ack_filter");
    link.clears_ecn = known_switch(table, "clears_ecn");
    link.reorder = share(table, "reorder");
    link.reorder_packets = table.whole("reorder_packets").unwrap_or(3);
    settle_order(&mut link);
    Some(link)
}

/// Values of the key `trace_end`.
const ENDS: [(&str, AtEnd); 2] = [("repeat", AtEnd::Repeat), ("hold", AtEnd::Hold)];

/// The service of a link, and the trace that it follows.
fn served(table: &Reader<'_>, stop: Duration, files: &mut Files<'_>) -> (Service, Option<Replay>) {
    let constant = table.rate("rate").map_or(Service::Unlimited, Service::Rate);
    let trace = files.trace(table);
    let at_end = table.choice("trace_end", &ENDS).unwrap_or_default();
    let has_rate = match &trace {
        Some(LinkTrace::Opportunities(_)) => true,
        Some(LinkTrace::Path(trace)) => trace.sets_rate(),
        None => false,
    };
    if table.has("rate") && has_rate {
        table.wrong_because("trace", "either a rate or a trace");
    }
    match trace {
        Some(LinkTrace::Opportunities(trace)) => {
            if at_end == AtEnd::Hold {
                table.wrong("trace_end");
            }
            (Service::Trace(Arc::new(trace)), None)
        }
        Some(LinkTrace::Path(trace)) => {
            let replay = Replay { trace: Arc::new(trace), at_end };
            refuse_trace(table, &replay, stop);
            // The nominal rate is the mean rate. The first row replaces it at the start.
            let mean = replay.trace.mean_rate().map(Service::Rate);
            (mean.unwrap_or(constant), Some(replay))
        }
        None => {
            if table.has("trace_end") && !table.has("trace") {
                table.wrong_because("trace_end", "no trace_end without a trace");
            }
            (constant, None)
        }
    }
}

/// Refuses missing and superfluous columns of a trace for the link of `table`.
fn refuse_trace(table: &Reader<'_>, replay: &Replay, stop: Duration) {
    let trace: &PathTrace = &replay.trace;
    // A link with a given round trip is a bottleneck.
    if table.knows("rtt") && !table.has("rate") && !trace.sets_rate() {
        table.wrong_because("rate", "a rate, or a trace with rate_mbps");
    }
    if trace.mean_rate() == Some(Rate::ZERO) {
        table.wrong_because("trace", "a trace with a rate above 0");
    }
    if table.has("loss") && trace.sets_loss() {
        table.wrong_because("loss", "either a loss or a trace with loss");
    }
    let changes = replay.changes().take_while(|change| change.at < stop);
    if changes.take(REPLAYED_MAX + 1).count() > REPLAYED_MAX {
        let allowed = format!("a trace with at most {REPLAYED_MAX} changes until the plan's stop");
        table.wrong_because("trace", allowed);
    }
}

/// A share, 0 if not given; the reader only accepts 0 to 1.
fn share(table: &Reader<'_>, key: &str) -> Ratio {
    table.share(key).and_then(Ratio::new).unwrap_or(Ratio::ZERO)
}

/// A switch that only some links have; off if not given.
fn known_switch(table: &Reader<'_>, key: &str) -> bool {
    table.knows(key) && table.switch(key).unwrap_or(false)
}

/// Values of the key `of` of a walk.
const WALKING: [(&str, Property); 3] =
    [("rate", Property::Rate), ("delay", Property::Delay), ("loss", Property::Loss)];

/// The walks of a link with this rate, as far as their values are valid.
fn walks(link: &Reader<'_>, rate: Option<Rate>) -> Vec<Walk> {
    link.tables("walk").iter().filter_map(|table| walk(table, rate)).collect()
}

fn walk(table: &Reader<'_>, rate: Option<Rate>) -> Option<Walk> {
    let property = table.choice("of", &WALKING)?;
    if property == Property::Rate && rate.is_none() {
        table.wrong("of");
    }
    let value = |key| match property {
        Property::Rate => Some(of_kind(table, key, &RATE, Kind::rate)?.as_bits_per_sec() as f64),
        Property::Delay => Some(of_kind(table, key, &DURATION, Kind::duration)?.as_secs_f64()),
        Property::Loss => of_kind(table, key, &SHARE, Kind::share),
    };
    let [deviation, min, max] = ["deviation", "min", "max"].map(value);
    if min.zip(max).is_some_and(|(min, max)| min > max) {
        table.wrong_because("min", "at most max");
    }
    Some(Walk {
        property,
        interval: table.duration("every")?,
        correlation: table.number("correlation").unwrap_or(0.0),
        deviation: deviation?,
        min: min?,
        max: max?,
    })
}

/// The value of a key whose kind follows from another key.
fn of_kind<T>(
    table: &Reader<'_>,
    key: &str,
    kind: &Kind,
    read: fn(&Kind, &Value) -> Option<T>,
) -> Option<T> {
    let node = table.node(key)?;
    read(kind, &node.value).or_else(|| table.refuse(key, kind.allowed()))
}

/// Values of the key `of` of a pulse.
const PULSING: [(&str, Property); 3] =
    [("rate", Property::Rate), ("rtt", Property::Delay), ("loss", Property::Loss)];

/// The changes that make up the pulses of `link`, which has the round trip `rtt`.
fn pulses(table: &Reader<'_>, link: &Link, rtt: Duration, stop: Duration) -> Vec<Change> {
    let pulses = table.tables("pulse");
    pulses.iter().filter_map(|table| pulse(table, link, rtt, stop)).flatten().collect()
}

fn pulse(
    table: &Reader<'_>,
    link: &Link,
    rtt: Duration,
    stop: Duration,
) -> Option<impl Iterator<Item = Change> + use<>> {
    let ends = match table.choice("of", &PULSING)? {
        Property::Rate => {
            let own = link.rate().or_else(|| table.refused("of"));
            let to = of_kind(table, "to", &RATE, Kind::rate);
            [to?, own?].map(|rate| Change { rate: Some(rate), ..Change::default() })
        }
        Property::Delay => {
            let to = of_kind(table, "to", &DURATION, Kind::duration)?;
            [to, rtt].map(|rtt| Change { delay: Some(rtt / 2), ..Change::default() })
        }
        Property::Loss => {
            let to = of_kind(table, "to", &SHARE, Kind::share)?;
            [Ratio::new(to), Some(link.loss)].map(|loss| Change { loss, ..Change::default() })
        }
    };
    let every = table.duration("every")?;
    if every < stop / PULSES_MAX {
        return table.refused("every");
    }
    let times = (1..).map(move |number| every * number).take_while(move |at| *at < stop);
    let ends = ends.into_iter().cycle();
    Some(times.zip(ends).map(|(at, end)| Change { at, ..end }))
}

/// The changes of a link with the keys that its section knows, as far as their values are valid.
fn changes(link: &Reader<'_>, stop: Duration) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for table in link.tables("change") {
        // Both directions follow the round trip, which the bottleneck's section alone has.
        let rtt = if table.knows("rtt") { table.duration("rtt") } else { None };
        let (rate, loss) = (table.rate("rate"), table.share("loss").and_then(Ratio::new));
        let Some(at) = table.duration("at") else { continue };
        if at >= stop || changes.last().is_some_and(|last| last.at > at) {
            let allowed = "a time before the plan's stop, not before the previous change";
            table.wrong_because("at", allowed);
        }
        changes.push(Change { at, rate, delay: rtt.map(|rtt| rtt / 2), loss });
    }
    changes
}

/// Replaces a limit in bandwidth-delay products by one in packets. `is_noted`: a missing rate was already noted.
fn resolve_bdp(
    table: &Reader<'_>,
    mut qdisc: Spec,
    rate: Option<Rate>,
    rtt: Duration,
    is_noted: bool,
) -> Option<Spec> {
    let Some(SpecValue::Text(text)) = qdisc.params.get("limit") else { return Some(qdisc) };
    let Some(number) = text.strip_suffix("bdp") else { return Some(qdisc) };
    let factor = number.trim().parse::<f64>().ok().filter(|n| (0.001..=1000.0).contains(n));
    if rate.is_none() && is_noted {
        return None;
    }
    let (Some(factor), Some(rate)) = (factor, rate) else {
        return table.refused("qdisc");
    };
    let packets = rate.as_bytes_per_sec_f64() * rtt.as_secs_f64() / BDP_PACKET_BYTES;
    // At least one packet: an empty limit would pass nothing.
    let limit = Limit::Packets(((factor * packets).round() as u64).max(1));
    qdisc.params.insert("limit".into(), SpecValue::Text(limit.to_string()));
    Some(qdisc)
}
