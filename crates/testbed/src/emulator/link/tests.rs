use std::collections::VecDeque;
use std::sync::Arc;

use forebay_core::link::{AtEnd, MAX_HOLD, PathTrace, Replay, Service, Trace};
use forebay_core::qdisc;
use forebay_core::spec::Spec;
use forebay_core::testing::qdisc::TestPacket;
use forebay_core::units::{Duration, Rate, Ratio};
use forebay_scenario::Change;

use super::*;

/// Bytes of a full packet.
const PACKET: u64 = 1500;

#[derive(Clone, Debug, PartialEq)]
struct Sized(u64);

impl Packet for Sized {
    fn len(&self) -> ByteCount {
        ByteCount::new(self.0)
    }
    fn flow_hash(&self, _key: u64) -> u64 {
        0
    }
    fn class(&self) -> u8 {
        0
    }
    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }
    fn set_ce(&mut self) {}
}

/// A tail-drop queue that remembers the times at which it was asked.
struct Queue {
    packets: VecDeque<Carried<Sized>>,
    limit: usize,
    asked: Vec<Timestamp>,
    /// Gives no packet before this time, as a shaper would.
    closed_until: Timestamp,
}

impl Queue {
    fn of(limit: usize) -> Self {
        let closed_until = Timestamp::ZERO;
        Self { packets: VecDeque::new(), limit, asked: Vec::new(), closed_until }
    }
}

impl Qdisc<Carried<Sized>> for Queue {
    fn enqueue(
        &mut self,
        _now: Timestamp,
        packet: Carried<Sized>,
        drops: &mut dyn DropSink<Carried<Sized>>,
    ) {
        if self.packets.len() == self.limit {
            drops.dropped(packet, DropReason::Overlimit);
        } else {
            self.packets.push_back(packet);
        }
    }
    fn dequeue(
        &mut self,
        now: Timestamp,
        _drops: &mut dyn DropSink<Carried<Sized>>,
    ) -> Option<Carried<Sized>> {
        self.asked.push(now);
        if now < self.closed_until { None } else { self.packets.pop_front() }
    }
    fn next_timer(&self) -> Option<Timestamp> {
        (!self.packets.is_empty()).then_some(self.closed_until)
    }
    fn backlog(&self) -> Backlog {
        Backlog {
            packets: self.packets.len() as u64,
            bytes: self.packets.iter().map(Packet::len).sum(),
        }
    }
    fn set_service_rate(&mut self, _rate: Option<Rate>) {}
}

fn us(us: u64) -> Timestamp {
    Timestamp::from_nanos(us * 1000)
}

fn link(config: scenario::Link, limit: usize) -> Link<Sized, Queue> {
    Link::new(&config, Queue::of(limit), Timestamp::ZERO, &Streams::new(1)).unwrap()
}

fn ignore(_: Discard<Sized>) {}

/// Takes the packets that have passed by `now`: number, departure and due time in microseconds.
fn drain(link: &mut Link<Sized, Queue>, now: Timestamp) -> Vec<(u64, u64, u64)> {
    let mut out = Vec::new();
    while let Some(delivery) = link.poll(now, &mut ignore) {
        let [departed, due] = [delivery.departed, delivery.due].map(|at| at.as_nanos() / 1000);
        out.push((delivery.number, departed, due));
    }
    out
}

/// 12 Mbit/s: 1 ms for a packet of 1500 bytes.
fn slow(delay_ms: u64) -> scenario::Link {
    let (rate, delay) = (Rate::from_mbit_per_sec(12), Duration::from_millis(delay_ms));
    scenario::Link::at_rate("l", rate, delay, Spec::named("fifo"))
}

#[test]
fn departures_are_independent_of_polling_times() {
    let arrivals = [0, 100, 200, 2_500, 9_000, 9_100];
    let run = |poll_every: Option<u64>| {
        let mut link = link(slow(5), 100);
        let mut out = Vec::new();
        let mut next_poll = 0;
        for at in arrivals {
            while let Some(every) = poll_every
                && next_poll < at
            {
                out.extend(drain(&mut link, us(next_poll)));
                next_poll += every;
            }
            link.offer(us(at), Sized(PACKET), &mut ignore);
        }
        out.extend(drain(&mut link, us(1_000_000)));
        (out, link.qdisc.asked)
    };
    let (late, asked_late) = run(None);
    let (often, asked_often) = run(Some(70));
    assert_eq!(late, often);
    assert_eq!(asked_late, asked_often);
    let departures: Vec<u64> = late.iter().map(|(_, departed, _)| *departed).collect();
    assert_eq!(departures, [1_000, 2_000, 3_000, 4_000, 10_000, 11_000]);
    assert!(late.iter().all(|(_, departed, due)| due - departed == 5_000));
}

#[test]
fn qdiscs_see_virtual_time_on_late_host() {
    let share = Ratio::new(0.05).unwrap();
    let full = ["sfq(limit=50p)", "drr(limit=50p)", "fifo(limit=50p)"];
    for queue in ["codel", "fq_codel", "pie", "red"].into_iter().chain(full) {
        let spec: Spec = queue.parse().unwrap();
        let run = |poll_share: f64| {
            let streams = Streams::new(7);
            let [mut arrivals, mut polls] = ["arrivals", "polls"].map(|name| streams.stream(name));
            let jitter = Duration::from_millis(3);
            let config = scenario::Link {
                loss: share,
                reorder: share,
                reorder_packets: 2,
                jitter,
                ..slow(20)
            };
            let queue = qdisc::build(&spec).unwrap();
            let mut link = Link::new(&config, queue, Timestamp::ZERO, &streams).unwrap();
            let (mut out, mut gone) = (Vec::new(), Vec::new());
            let mut now = 0;
            for sequence in 0..5_000 {
                // 10 % more than the link carries, so that AQM acts.
                now += arrivals.below(1_800);
                let flow = arrivals.below(10) as u32;
                let packet = TestPacket { flow, sequence, ..TestPacket::default() };
                let mut discard = |it: Discard<_>| gone.push((it.number, it.at, it.cause));
                link.offer(us(now), packet, &mut discard);
                while polls.chance(poll_share)
                    && let Some(it) = link.poll(us(now), &mut discard)
                {
                    out.push((it.number, it.departed, it.due));
                }
            }
            let mut discard = |it: Discard<_>| gone.push((it.number, it.at, it.cause));
            while let Some(it) = link.poll(us(now + 10_000_000), &mut discard) {
                out.push((it.number, it.departed, it.due));
            }
            (out, gone)
        };
        let (late, often) = (run(0.0), run(0.9));
        assert_eq!(late, often, "{queue}");
        let dropped = late.1.iter().filter(|(_, _, cause)| *cause != Cause::Lost).count();
        assert!(dropped > 50, "{queue}: {dropped}");
    }
}

#[test]
fn drops_and_marks_are_counted_by_reason() {
    let spec: Spec = "red(limit=6p, min_th=2p, max_th=2p, weight=1, ecn=true)".parse().unwrap();
    let queue = qdisc::build(&spec).unwrap();
    let mut link = Link::new(&slow(0), queue, Timestamp::ZERO, &Streams::new(1)).unwrap();
    let mut discarded = 0;
    // When the fourth arrives, one is being sent and two wait.
    for ecn in [[Ecn::Ect0; 5], [Ecn::NotEct; 5], [Ecn::Ect1; 5]].concat() {
        let packet = TestPacket { ecn, ..TestPacket::default() };
        link.offer(us(0), packet, &mut |_| discarded += 1);
    }
    let counters = link.counters();
    assert_eq!(counters.marks, ByReason { forced: 4, ..ByReason::default() });
    assert_eq!(counters.drops, ByReason { forced: 5, overlimit: 3, ..ByReason::default() });
    assert_eq!((counters.dropped, discarded), (8, 8));
}

#[test]
fn queue_is_polled_at_virtual_departures_in_order() {
    let mut link = link(slow(0), 100);
    for at in [0, 10, 20] {
        link.offer(us(at), Sized(PACKET), &mut ignore);
    }
    link.offer(us(2_500), Sized(PACKET), &mut ignore);
    assert_eq!(link.qdisc.asked, [us(0), us(1_000), us(2_000)]);
}

#[test]
fn arrival_sees_queue_after_earlier_departures() {
    let mut link = link(slow(0), 2);
    let mut dropped = Vec::new();
    let mut backlogs = Vec::new();
    // The third waits behind the second, and the fourth finds no room. At 1 ms there is room again.
    for at in [0, 0, 0, 0, 1_000] {
        let mut discard = |gone: Discard<Sized>| dropped.push((gone.number, gone.cause));
        let arrival = link.offer(us(at), Sized(PACKET), &mut discard);
        backlogs.push((arrival.queue.packets, arrival.queue.bytes.as_u64()));
    }
    assert_eq!(dropped, [(3, Cause::Queue(DropReason::Overlimit))]);
    assert_eq!(backlogs, [(0, 0), (1, 1500), (2, 3000), (2, 3000), (2, 3000)]);
    assert_eq!(link.counters().dropped, 1);
}

#[test]
fn busy_link_keeps_its_rate_exactly() {
    // 1514 bytes take 126,166.67 ns at 96 Mbit/s: three packets take 378.5 us.
    let config = scenario::Link { service: Service::Rate(Rate::from_mbit_per_sec(96)), ..slow(0) };
    let mut link = link(config, 1000);
    for _ in 0..300 {
        link.offer(Timestamp::ZERO, Sized(1514), &mut ignore);
    }
    let mut last = Timestamp::ZERO;
    while let Some(delivery) = link.poll(us(1_000_000), &mut ignore) {
        last = delivery.departed;
    }
    assert_eq!(last.as_nanos(), 100 * 378_500);
}

#[test]
fn new_rate_applies_from_next_packet() {
    let mut config = slow(0);
    let change = |at_ms, mbit| Change {
        at: Duration::from_millis(at_ms),
        rate: Some(Rate::from_mbit_per_sec(mbit)),
        ..Change::default()
    };
    config.changes = vec![change(2, 24), change(3, 0), change(10, 12)];
    let mut link = link(config, 100);
    for _ in 0..6 {
        link.offer(us(500), Sized(PACKET), &mut ignore);
    }
    let departures: Vec<u64> = drain(&mut link, us(100_000)).iter().map(|out| out.1).collect();
    // The second began at 1.5 ms at the old rate; from 3 ms to 10 ms the link stands still.
    assert_eq!(departures, [1_500, 2_500, 3_000, 11_000, 12_000, 13_000]);
}

#[test]
fn a_shorter_delay_never_reorders() {
    let mut config = slow(20);
    let shorter = Some(Duration::from_millis(1));
    config.changes =
        vec![Change { at: Duration::from_millis(3), delay: shorter, ..Change::default() }];
    let mut link = link(config, 100);
    for _ in 0..30 {
        link.offer(us(0), Sized(PACKET), &mut ignore);
    }
    // The second packet departs before the change, at 2 ms, so it is due at 22 ms.
    assert_eq!(link.next_timer(), Some(us(3_000)));
    let out = drain(&mut link, us(100_000));
    assert!(out.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].2 <= pair[1].2));
    assert_eq!(out[1], (1, 2_000, 22_000));
    assert_eq!(out[2], (2, 3_000, 22_000));
    assert_eq!(out[29], (29, 30_000, 31_000));
}

#[test]
fn a_rate_that_returns_wakes_the_link() {
    let mut config = slow(7);
    let at = |ms, rate| Change { at: Duration::from_millis(ms), rate, ..Change::default() };
    config.changes = vec![at(1, Some(Rate::ZERO)), at(20, Some(Rate::from_mbit_per_sec(12)))];
    let mut link = link(config, 100);
    link.offer(us(5_000), Sized(PACKET), &mut ignore);
    assert_eq!(link.next_timer(), Some(us(20_000)));
    assert_eq!(link.poll(us(20_000), &mut ignore), None);
    assert_eq!(link.next_timer(), Some(us(28_000)));
}

#[test]
fn jitter_keeps_the_order_where_packets_overtake() {
    let overtakes = Some(true);
    let config = scenario::Link { jitter: Duration::from_millis(5), overtakes, ..slow(10) };
    let mut link = link(config, 10_000);
    for n in 0..2_000 {
        link.offer(us(n * 1_000), Sized(PACKET), &mut ignore);
    }
    let out = drain(&mut link, us(100_000_000));
    assert!(out.iter().map(|(number, ..)| *number).eq(0..2_000));
}

#[test]
fn timer_is_set_to_next_delivery() {
    let mut link = link(slow(7), 100);
    assert_eq!(link.next_timer(), None);
    link.offer(us(100), Sized(PACKET), &mut ignore);
    link.offer(us(100), Sized(PACKET), &mut ignore);
    for due in [8_100, 9_100] {
        assert_eq!(link.next_timer(), Some(us(due)));
        assert_eq!(link.poll(us(due - 1), &mut ignore), None);
        assert_eq!(link.poll(us(due), &mut ignore).unwrap().due, us(due));
    }
    assert_eq!(link.next_timer(), None);
    assert_eq!(link.held_packets(), 0);
}

#[test]
fn loss_precedes_queue_and_is_reproducible() {
    let run = |seed| {
        let loss = Ratio::new(0.1).unwrap();
        let config = scenario::Link { service: Service::Unlimited, loss, ..slow(0) };
        let mut link =
            Link::new(&config, Queue::of(10), Timestamp::ZERO, &Streams::new(seed)).unwrap();
        let mut lost = Vec::new();
        for n in 0..10_000 {
            link.offer(us(n), Sized(PACKET), &mut |gone: Discard<Sized>| {
                assert_eq!(gone.cause, Cause::Lost);
                lost.push(gone.number);
            });
        }
        assert_eq!(link.counters().lost, lost.len() as u64);
        assert_eq!(drain(&mut link, us(10_000)).len() + lost.len(), 10_000);
        lost
    };
    let lost = run(1);
    // Five standard deviations of a binomial(10000, 0.1).
    assert!(lost.len().abs_diff(1_000) < 150, "{}", lost.len());
    assert_eq!(lost, run(1));
    assert_ne!(lost, run(2));
}

#[test]
fn jitter_makes_packets_late_and_none_overtakes() {
    let run = |gap_us: u64| {
        let config = scenario::Link { jitter: Duration::from_millis(5), ..slow(10) };
        let mut link = link(config, 10_000);
        for n in 0..2_000 {
            link.offer(us(n * gap_us), Sized(PACKET), &mut ignore);
        }
        let out = drain(&mut link, us(100_000_000));
        assert!(out.iter().map(|(number, ..)| *number).eq(0..2_000));
        out.iter().map(|(_, departed, due)| due - departed - 10_000).collect::<Vec<u64>>()
    };
    // No packet waits for one that came 6 ms before. So the jitter is uniform with mean 2.5 ms, up to
    // the error of 2000 draws.
    let apart = run(6_000);
    assert!(apart.iter().all(|late| *late <= 5_000));
    let mean = apart.iter().sum::<u64>() / 2_000;
    assert!((2_400..=2_600).contains(&mean), "{mean}");
    // In a row, each packet waits for the latest earlier one, but never longer than the maximum jitter.
    let in_a_row = run(1_000);
    assert!(in_a_row.iter().zip(&apart).all(|(late, own)| (*own..=5_000).contains(late)));
    assert!(in_a_row.windows(2).all(|pair| pair[1] + 1_000 >= pair[0]));
}

#[test]
fn a_held_packet_is_overtaken_by_exactly_k() {
    let reorder = Ratio::new(0.05).unwrap();
    let config = scenario::Link { reorder, reorder_packets: 3, ..slow(10) };
    let mut link = link(config, 10_000);
    for n in 0..2_000 {
        link.offer(us(n * 1_000), Sized(PACKET), &mut ignore);
    }
    let out = drain(&mut link, us(10_000_000));
    assert_eq!(out.len(), 2_000);
    assert!(out.windows(2).all(|pair| pair[0].2 <= pair[1].2), "release times never decrease");
    let order: Vec<u64> = out.iter().map(|(number, ..)| *number).collect();
    let mut reordered = 0;
    for (place, number) in order.iter().enumerate() {
        let overtaken_by = order[..place].iter().filter(|earlier| *earlier > number).count();
        // Packets held at the same time leave in their own order and may overtake each other's slots.
        assert!(overtaken_by <= 3 + 3, "{overtaken_by}");
        reordered += usize::from(overtaken_by >= 3);
    }
    assert!((50..150).contains(&reordered), "{reordered}");
}

#[test]
fn held_packet_without_successor_is_released() {
    let config = scenario::Link { reorder: Ratio::ONE, reorder_packets: 3, ..slow(10) };
    let mut link = link(config, 100);
    link.offer(us(0), Sized(PACKET), &mut ignore);
    let due = us(1_000) + Duration::from_millis(10) + MAX_HOLD;
    link.poll(us(20_000), &mut ignore);
    assert_eq!(link.next_timer(), Some(due));
    assert_eq!(link.poll(due, &mut ignore).unwrap().due, due);
}

#[test]
fn moving_the_start_moves_changes_and_trace() {
    let trace = Arc::new(Trace::parse("t", "10").unwrap());
    let config = scenario::Link { service: Service::Trace(trace), ..slow(0) };
    let mut link = Link::new(&config, Queue::of(9), Timestamp::MAX, &Streams::new(1)).unwrap();
    link.set_start(us(1_000));
    link.offer(us(2_000), Sized(100), &mut ignore);
    link.set_start(us(4_000));
    assert_eq!(drain(&mut link, us(100_000)), [(0, 4_000, 4_000)]);

    let delay = Some(Duration::from_millis(3));
    let at = Duration::from_millis(10);
    let changes = vec![Change { at, delay, ..Change::default() }];
    let config = scenario::Link { changes, ..slow(0) };
    let mut link = Link::new(&config, Queue::of(9), Timestamp::MAX, &Streams::new(1)).unwrap();
    link.offer(us(0), Sized(PACKET), &mut ignore);
    link.set_start(us(5_000));
    link.offer(us(16_000), Sized(PACKET), &mut ignore);
    assert_eq!(drain(&mut link, us(100_000)), [(0, 1_000, 1_000), (1, 17_000, 20_000)]);
}

fn replay(text: &str, at_end: AtEnd) -> Replay {
    Replay { trace: PathTrace::parse("t", text).unwrap().into(), at_end }
}

#[test]
fn traces_set_delay_and_rate_from_the_start() {
    let delay = "time_ms,delay_ms\n0,30\n10,4\n20,\n";
    let rate = "time_ms,rate_mbps\n0,12\n15,6\n100,\n";
    for (at_end, overtakes, last) in [
        (AtEnd::Repeat, Some(true), (2, 27_000, 57_000)),
        (AtEnd::Hold, Some(true), (2, 27_000, 31_000)),
        (AtEnd::Hold, None, (2, 27_000, 36_000)),
    ] {
        let traces = vec![replay(rate, AtEnd::Hold), replay(delay, at_end)];
        let config = scenario::Link { traces, overtakes, ..slow(1) };
        let mut link = Link::new(&config, Queue::of(9), Timestamp::MAX, &Streams::new(1)).unwrap();
        link.set_start(us(0));
        for at in [5_000, 12_000, 25_000] {
            link.offer(us(at), Sized(PACKET), &mut ignore);
        }
        // The second packet departs 9 ms later and takes 26 ms less.
        let kept = overtakes.is_none();
        let second = (1, 13_000, if kept { 36_000 } else { 17_000 });
        let mut expected = vec![second, last, (0, 6_000, 36_000)];
        expected.sort_by_key(|(number, _, due)| (*due, *number));
        assert_eq!(drain(&mut link, us(200_000)), expected);
    }
}

#[test]
fn delivery_reports_whether_link_was_busy() {
    let mut link = link(slow(0), 10);
    for at in [0, 0, 500, 5_000] {
        link.offer(us(at), Sized(PACKET), &mut ignore);
    }
    let poll = |_| link.poll(us(100_000), &mut ignore).unwrap().backlogged;
    assert_eq!([(); 4].map(poll), [false, true, true, false]);
}

#[test]
fn delaying_queue_is_polled_again_when_due() {
    let mut link = link(slow(0), 10);
    link.qdisc.closed_until = us(5_000);
    link.offer(us(0), Sized(PACKET), &mut ignore);
    assert_eq!(link.next_timer(), Some(us(5_000)));
    assert_eq!(drain(&mut link, us(10_000)), [(0, 6_000, 6_000)]);
    assert_eq!(link.qdisc.asked, [us(5_000)]);
}

#[test]
fn packets_are_delivered_dropped_or_held() {
    let streams = Streams::new(5);
    let mut stream = streams.stream("test");
    let share = |share| Ratio::new(share).unwrap();
    let config =
        scenario::Link { loss: share(0.02), reorder: share(0.3), reorder_packets: 5, ..slow(30) };
    let mut link = Link::new(&config, Queue::of(20), Timestamp::ZERO, &streams).unwrap();
    let (mut given_up, mut out, mut now) = (0, 0, 0);
    for _ in 0..20_000 {
        now += stream.below(1_000);
        link.offer(us(now), Sized(40 + stream.below(1_475)), &mut |_| given_up += 1);
        if stream.chance(0.2) {
            while link.poll(us(now), &mut |_| given_up += 1).is_some() {
                out += 1;
            }
        }
        assert_eq!(link.counters().packets_in, given_up + out + link.held_packets());
    }
    assert!(given_up > 0 && link.counters().dropped > 0);
}

#[test]
fn forced_loss_changes_no_other_packet() {
    let share = Ratio::new(0.2).unwrap();
    let config = scenario::Link { loss: share, reorder: share, ..slow(0) };
    let run = |chosen: fn(u64) -> bool| {
        let mut link = link(config.clone(), 1000);
        let mut lost = Vec::new();
        for number in 0..500 {
            let mut discard = |gone: Discard<Sized>| lost.push((gone.number, gone.cause));
            let at = us(number * 10);
            let arrival = if chosen(number) {
                link.lose(at, Sized(PACKET), &mut discard)
            } else {
                link.offer(at, Sized(PACKET), &mut discard)
            };
            assert_eq!(arrival.number, number);
        }
        assert_eq!((link.counters().packets_in, link.counters().lost), (500, lost.len() as u64));
        lost
    };
    let (without, with) = (run(|_| false), run(|number| number % 7 == 0));
    let expected = (0..500).filter(|n| n % 7 == 0 || without.contains(&(*n, Cause::Lost)));
    assert!(with.into_iter().eq(expected.map(|number| (number, Cause::Lost))));
}
