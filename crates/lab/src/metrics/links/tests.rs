use std::time::Duration;

use forebay_core::record::{BundleRecord, EpochRecord, Fate, PacketRecord};
use forebay_core::units::Rate;
use forebay_scenario::Change;

use super::super::statistics::{Sorted, Timeline};
use super::*;
use crate::metrics::RunRows;
use crate::metrics::testing::{experiment, packet};

/// One millisecond (ns).
const MS: u64 = 1_000_000;

fn window(from_ms: u64, to_ms: u64) -> Window {
    let [from, to] = [from_ms, to_ms].map(Duration::from_millis);
    Window { name: String::new(), from, to }
}

fn rows(forward: Vec<PacketRecord>, reverse: Vec<PacketRecord>) -> RunRows {
    let names = ["forward", "reverse"].map(String::from);
    let links = names.map(|name| LinkRecord { name, ..LinkRecord::default() }).to_vec();
    let packets = [forward, reverse].map(PacketLog::Rows).to_vec();
    RunRows { run: RunRecord { links, ..RunRecord::default() }, packets }
}

/// Three packets of 1500 bytes arrive together at 10 ms on a link that needs 5 ms for each; a
/// fourth is dropped.
fn burst() -> RunRows {
    let packets = vec![
        PacketRecord { queue_packets: 0, ..packet(1, 10 * MS, 15 * MS) },
        PacketRecord { queue_packets: 1, marked: true, ..packet(2, 10 * MS, 20 * MS) },
        PacketRecord { queue_packets: 2, ..packet(3, 10 * MS, 25 * MS) },
        PacketRecord { queue_packets: 2, fate: Fate::QueueDrop, ..packet(4, 10 * MS, 0) },
    ];
    rows(packets, Vec::new())
}

#[test]
fn the_queue_is_weighed_by_time() {
    let of = |window: Window| {
        let RunRows { run, packets } = burst();
        let truths = read(&experiment(), &run, &packets, std::slice::from_ref(&window)).unwrap();
        truths[0].window(&window).queue.clone()
    };
    // 2 waiting from 10 to 15 ms, 1 from 15 to 20 ms, none afterwards.
    let whole = of(window(0, 30));
    assert_eq!(whole.mean(), Some((2.0 * 5.0 + 5.0) / 30.0));
    assert_eq!((whole.max(), whole.quantile(0.95)), (2.0, Some(2.0)));
    assert_eq!(of(window(15, 20)).mean(), Some(1.0));
}

#[test]
fn queue_is_back_after_two_low_bins() {
    let bins = |text: &str| text.chars().map(|c| c == '#').collect::<Vec<bool>>();
    assert_eq!(first_return(&bins("....")), 0);
    assert_eq!(first_return(&bins(".##.#..#")), 5);
    assert_eq!(first_return(&bins(".###.")), 5);
}

#[test]
fn queue_return_counts_from_link_use() {
    // 96 Mbit/s are 8 packets a millisecond. From 100 ms on it is full, and 40 wait until 400 ms.
    let packets = (100..600).flat_map(|at| (0..8).map(move |number| (at, number)));
    let packets = packets.map(|(at, number): (u64, u64)| {
        let departed = at * MS + number * 125_000;
        let waits = at < 400;
        PacketRecord {
            queue_packets: if waits { 40 } else { 0 },
            ..packet(at * 8 + number, departed - if waits { 5 * MS } else { 0 }, departed)
        }
    });
    let (rows, window) = (rows(packets.collect(), Vec::new()), window(0, 600));
    let truths =
        read(&experiment(), &rows.run, &rows.packets, std::slice::from_ref(&window)).unwrap();
    let metrics = truths[0].metrics(&experiment(), &rows.run.links[0], &window);
    let get = |name: &str| metrics.get(name).unwrap();
    assert_eq!([get("in_use_after_s"), get("queue_back_after_s")], [0.2, 0.4]);
    assert!((get("queue_back_after_use_s") - 0.2).abs() < 1e-9);
    // Until then it had no rate and could carry nothing.
    let mut stopped = experiment();
    let change = |ms, rate| Change { at: Duration::from_millis(ms), rate, ..Change::default() };
    stopped.forward.changes =
        vec![change(0, Some(Rate::ZERO)), change(100, stopped.forward.rate())];
    let metrics = truths[0].metrics(&stopped, &rows.run.links[0], &window);
    assert_eq!(metrics.get("in_use_after_s"), Some(0.2));
}

#[test]
fn delays_drops_and_rates_match_the_log() {
    let (rows, window) = (burst(), window(0, 100));
    let truths =
        read(&experiment(), &rows.run, &rows.packets, std::slice::from_ref(&window)).unwrap();
    let metrics = truths[0].metrics(&experiment(), &rows.run.links[0], &window);
    let get = |name: &str| metrics.get(name).unwrap();
    assert_eq!(get("sojourn_mean_ms"), 10.0);
    // 5 ms from 15 to 20 ms, 10 to 25 ms, 15 to the end at 100 ms.
    assert_eq!(get("mean_qdisc_delay_l2"), (5.0 * 5.0 + 5.0 * 10.0 + 75.0 * 15.0) / 85.0);
    assert_eq!(get("sojourn_p50_ms"), 10.0);
    assert_eq!(get("drops_queue_packets"), 1.0);
    assert_eq!(get("marks_queue_packets"), 1.0);
    assert_eq!(get("passed_packets"), 3.0);
    // 3 x 1500 bytes in 100 ms are 0.36 Mbit/s, of 96.
    assert!((get("throughput_mbps") - 0.36).abs() < 1e-9);
    assert!((get("utilisation") - 0.36 / 96.0).abs() < 1e-9);
    assert_eq!(get("standing_queue_until_s"), 0.0);
    assert_eq!(get("in_use_after_s"), 0.1);
    assert_eq!(get("queue_back_after_use_s"), 0.0);
}

/// A pseudo-random number below `below`; the sequence is always the same.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// Packets of an irregular link: it reorders, releases several together, and loses and keeps some.
fn unruly(mut seed: u64) -> Vec<PacketRecord> {
    let state = &mut seed;
    let mut at = 0;
    let packets = (0..3000).map(|number| {
        at += draw(state, 3) * draw(state, 2) * MS / 5;
        // Departures fall on a grid.
        let departed = (at + draw(state, 20) * MS).div_ceil(MS) * MS;
        let fate = match draw(state, 20) {
            0 => Fate::QueueDrop,
            1 => Fate::Lost,
            2 => Fate::Inside,
            3 => Fate::EmulatorDrop,
            _ => Fate::Delivered,
        };
        PacketRecord {
            fate,
            released_ns: departed + draw(state, 30) * MS,
            queue_packets: draw(state, 5) as u32 * draw(state, 3) as u32,
            pair: draw(state, 2) as u16,
            marked: draw(state, 10) == 0,
            bytes: 60 + draw(state, 1440) as u32,
            ..packet(number, at, if draw(state, 50) == 0 { 0 } else { departed })
        }
    });
    packets.collect()
}

/// The queue over time and the packets that passed, computed from all packets at once.
fn at_once(packets: &[PacketRecord]) -> (Timeline, Vec<&PacketRecord>) {
    let is_passed = |it: &&PacketRecord| it.fate == Fate::Delivered && it.departed_ns > 0;
    let mut passed: Vec<&PacketRecord> = packets.iter().filter(is_passed).collect();
    passed.sort_by_key(|packet| packet.departed_ns);
    // Arrivals with the queue after each; packets that begin to be sent. At the same instant, the arrival
    // counts.
    let mut events: Vec<(u64, Option<u32>)> =
        packets.iter().map(|it| (it.arrived_ns, Some(it.queue_packets))).collect();
    let mut last = 0;
    for packet in &passed {
        let begun = packet.arrived_ns.max(last);
        last = packet.departed_ns;
        if packets.binary_search_by_key(&begun, |it| it.arrived_ns).is_err() {
            events.push((begun, None));
        }
    }
    events.sort_by_key(|(at, _)| *at);
    let mut waiting = 0_u32;
    let steps = events.into_iter().map(|(at, seen)| {
        waiting = seen.unwrap_or(waiting.saturating_sub(1));
        (at, waiting)
    });
    (Timeline::new(steps.collect()), passed)
}

#[test]
fn streamed_packets_give_same_metrics() {
    let mut experiment = experiment();
    experiment.pairs.push("other".into());
    for seed in 1..20 {
        let packets = unruly(seed);
        let end = packets.last().unwrap().arrived_ns / MS;
        let windows = [window(0, end), window(end / 3, end - 7), window(100, 250)];
        let rows = rows(packets.clone(), Vec::new());
        let truth = read(&experiment, &rows.run, &rows.packets, &windows).unwrap().swap_remove(0);
        let (queue, passed) = at_once(&packets);
        for window in &windows {
            let metrics = truth.metrics(&experiment, &rows.run.links[0], window);
            let (from, to) = bounds_ns(window);
            let within = |at: u64| (from..to).contains(&at);
            let passed: Vec<_> = passed.iter().filter(|it| within(it.departed_ns)).collect();
            let ms = |it: &&&PacketRecord| (it.departed_ns - it.arrived_ns) as f64 / 1e6;
            let sojourns = Sorted::new(passed.iter().map(ms));
            let bits = passed.iter().map(|it| u64::from(it.bytes) * 8).sum::<u64>() as f64;
            let dropped = |it: &&PacketRecord| it.fate == Fate::QueueDrop && within(it.arrived_ns);
            for (name, expected) in [
                ("queue_mean_packets", queue.mean(from, to)),
                ("queue_p95_packets", queue.quantile(from, to, 0.95)),
                ("queue_max_packets", queue.max(from, to)),
                ("sojourn_mean_ms", sojourns.mean()),
                ("sojourn_p5_ms", sojourns.quantile(0.05)),
                ("sojourn_p50_ms", sojourns.quantile(0.5)),
                ("sojourn_p99_ms", sojourns.quantile(0.99)),
                ("passed_packets", Some(passed.len() as f64)),
                ("throughput_mbps", share(bits, (to - from) as f64 / 1e9).map(|rate| rate / 1e6)),
                ("drops_queue_packets", Some(packets.iter().filter(dropped).count() as f64)),
                ("marks_queue_packets", Some(passed.iter().filter(|it| it.marked).count() as f64)),
            ] {
                assert_eq!(metrics.get(name), expected, "{name}, seed {seed}, {window:?}");
            }
            let of_pair = passed.iter().filter(|it| it.pair == 1).map(|it| u64::from(it.bytes));
            let of_pair: u64 = of_pair.sum();
            assert_eq!(truth.bytes_of(1, window), of_pair);
        }
        for (bin, mean) in truth.queue_over_time().enumerate() {
            let from = bin as u64 * QUEUE_BIN_NS;
            assert_eq!(Some(mean), queue.mean(from, from + QUEUE_BIN_NS));
        }
    }
}

/// Reads both links in turns, each step up to a later time, and drops old packets.
fn by_turns(
    experiment: &Experiment,
    rows: [&[PacketRecord]; 2],
    is_boundary: impl Fn(u64) -> bool,
) -> Vec<LinkTruth> {
    let mut reader = Reader::new(experiment, &[window(0, 100)], &["forward", "reverse"]);
    let mut read = [0; 2];
    for now in (0..2000).map(|step| step * MS) {
        for (link, packets) in rows.iter().enumerate() {
            let is_over = |it: &PacketRecord| it.departed_ns.max(it.released_ns) <= now;
            while let Some(packet) = packets.get(read[link]).filter(|it| is_over(it)) {
                reader.take(link, packet, is_boundary(packet.identity));
                read[link] += 1;
            }
        }
        let oldest =
            |link: usize| rows[link].get(read[link]).map_or(now, |it| it.arrived_ns.min(now));
        reader.settle(&[0, 1].map(oldest));
    }
    for (link, packets) in rows.iter().enumerate() {
        packets[read[link]..].iter().for_each(|it| reader.take(link, it, is_boundary(it.identity)));
    }
    reader.finish()
}

#[test]
fn boundaries_know_return_wait_in_any_order() {
    let mut experiment = experiment();
    let other_way = experiment.bundles[0].clone();
    experiment.bundles.push(other_way);
    experiment.bundles[1].reversed = true;
    let [forward, reverse] = [unruly(1), unruly(2)];
    let is_boundary = |identity: u64| identity % 7 == 3;
    let epochs = (0..3000).filter(|identity| is_boundary(*identity)).map(|identity| EpochRecord {
        identity,
        previous_identity: identity,
        ..EpochRecord::default()
    });
    let mut rows = rows(forward.clone(), reverse.clone());
    rows.run.bundles.push(BundleRecord { epochs: epochs.collect(), ..BundleRecord::default() });
    let later = read(&experiment, &rows.run, &rows.packets, &[window(0, 100)]).unwrap();
    let meanwhile = by_turns(&experiment, [&forward, &reverse], is_boundary);
    for (link, [there, back]) in [[&forward, &reverse], [&reverse, &forward]].iter().enumerate() {
        assert_eq!(later[link].boundaries, meanwhile[link].boundaries);
        let (_, there) = at_once(there);
        let (_, back) = at_once(back);
        let boundaries: Vec<_> = there.iter().filter(|it| is_boundary(it.identity)).collect();
        assert!(boundaries.len() > 300 && boundaries.len() == later[link].boundaries.len());
        for (packet, boundary) in boundaries.into_iter().zip(&later[link].boundaries) {
            let waits = back.iter().filter(|it| it.arrived_ns >= packet.released_ns);
            let waited = waits.map(|it| (it.arrived_ns, it.departed_ns - it.arrived_ns)).min();
            assert_eq!(boundary.waited_ns, waited.map_or(0, |(_, sojourn)| sojourn));
            assert_eq!(boundary.identity, packet.identity);
        }
    }
}

#[test]
fn reader_keeps_only_packets_in_transit() {
    let mut reader = Reader::new(&experiment(), &[window(0, 1000)], &["forward", "reverse"]);
    let mut most = 0;
    // 8 packets a millisecond; 40 wait and 200 are on their way.
    for number in 0..100_000_u64 {
        let at = number * 125_000;
        for link in 0..2 {
            reader.take(link, &packet(number, at, at + 5 * MS), number % 64 == 0);
        }
        if number % 80 == 0 {
            reader.settle(&[at.saturating_sub(30 * MS); 2]);
            most = most.max(reader.kept());
        }
    }
    assert!(most < 2000, "{most}");
}
