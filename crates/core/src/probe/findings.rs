//! Results of a probe: figures of delay, rate, loss and ways.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{FlowLook, Load, Observed, Ping};
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Figures of a probe. Queues are delays that the load adds to the idle round trip.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Shortest round trip of a ping; `None`: none came back.
    pub base_rtt: Option<Duration>,
    /// Lower quartile of the round trips while the probe did not load the path. It includes jitter of the
    /// path, but not lateness of busy hosts.
    pub idle_rtt: Duration,
    /// Jitter: twice the median difference between the round trips of successive pings before the load. For
    /// uniform jitter that is about its interquartile range. A queue changes more slowly than this. Zero
    /// without a load.
    pub noise: Duration,
    /// Pings sent meanwhile, and how many did not come back.
    pub idle_pings: [u64; 2],
    /// Mean queue that pings met under the load of many connections; without a load, over the base round trip.
    pub queue: Duration,
    /// Median of these queues, which single late pings do not move.
    pub median_queue: Duration,
    /// Three quarters of the pings under load waited longer: a queue that stands, and no lateness of hosts. Without a
    /// load, the median over seconds of the shortest wait: jitter comes down to zero in each second, a queue does not.
    pub standing_queue: Duration,
    /// Median queue that the connections of the load met themselves.
    pub bulk_queue: Duration,
    /// Three quarters of the looks at these connections found a longer one.
    pub standing_bulk_queue: Duration,
    /// The third longest wait of a ping under load: the capacity of the path's buffers, without single
    /// accidents.
    pub peak_queue: Duration,
    /// Mean queue on the way there, where the peer reports times.
    pub forward_queue: Option<Duration>,
    /// Mean queue before the last router of the site; `None`: it did not answer often enough.
    pub site_queue: Option<Duration>,
    /// Mean time that the backlog of the own qdisc takes at the measured rate.
    pub own_queue: Duration,
    /// Bytes acknowledged a second, with many connections.
    pub rate: Rate,
    /// Bytes acknowledged a second in the first and in the second half of that time.
    pub half_rates: [Rate; 2],
    /// Bytes acknowledged a second, with few connections.
    pub rate_of_few: Rate,
    /// Connections: few, many.
    pub flows: [u16; 2],
    /// Share of the segments that were sent again, with many connections (0 to 1).
    pub loss: f64,
    /// Share of the busy time in which the peer's receive window held the connections back (0 to 1).
    pub window_limited: f64,
    /// How much longer than the shortest way other source ports take; zero where all take about the same
    /// time.
    pub detour: Duration,
    /// How much longer some connections wait than the rest under the same load. Zero where all wait alike,
    /// and where pings of all ports do. A fair queue holds connections apart and lets pings pass.
    pub uneven: Duration,
    /// Highest rate of the load.
    pub max_rate: Rate,
    /// The path was loaded.
    pub loaded: bool,
}

/// Ways differ if the usual shortest round trips of two ports differ by a tenth and by this: less is jitter.
const DETOUR_MIN: Duration = Duration::from_millis(3);

/// Queues differ if two connections wait longer than another by this and by half of the longest wait.
const UNEVEN_MIN: Duration = Duration::from_millis(10);

/// Without a load, each such interval is searched for a queue.
const WINDOW: Duration = Duration::from_secs(1);

/// If a wait is the same in all windows, within this share, and no ping is lost, the way is longer: a queue
/// moves as senders probe, or overflows.
const FLAT: f64 = 0.05;

/// Answers of a router from which its delay is taken, idle and under load. Linux answers one packet a second
/// after a burst of six (`icmp_ratelimit`, ip-sysctl).
const HOP_ANSWERS_MIN: usize = 2;

impl Findings {
    /// The figures in `observed`.
    pub fn of(observed: &Observed) -> Self {
        let found = Self { max_rate: observed.max_rate, ..Self::default() };
        let Some(base_rtt) = observed.pings.iter().filter_map(|ping| ping.rtt).min() else {
            return found;
        };
        let loaded_from = observed.load.map_or(Timestamp::MAX, |load| load.few.from);
        let idle = || observed.pings.iter().filter(move |ping| ping.at < loaded_from);
        let idle_rtt = quarter(idle().filter_map(|ping| ping.rtt)).unwrap_or(base_rtt);
        let lost = idle().filter(|ping| ping.rtt.is_none()).count() as u64;
        let found = Self {
            base_rtt: Some(base_rtt),
            idle_rtt,
            idle_pings: [idle().count() as u64, lost],
            detour: detour(idle()),
            ..found
        };
        match observed.load {
            Some(load) => found.under_load(observed, load),
            None => {
                let waits = || idle().filter_map(|ping| ping.rtt).map(move |rtt| rtt - base_rtt);
                let queue = mean(waits()).unwrap_or_default();
                let median_queue = median(waits()).unwrap_or_default();
                let standing_queue = standing(&observed.pings, base_rtt);
                let peak_queue = third_longest(waits());
                Self { queue, median_queue, standing_queue, peak_queue, ..found }
            }
        }
    }

    fn under_load(self, observed: &Observed, load: Load) -> Self {
        let idle_rtt = self.idle_rtt;
        let steady = load.many.steady();
        let within = move |at: Timestamp| (steady.0..steady.1).contains(&at);
        let waits = |ping: &Ping| ping.rtt.map(|rtt| rtt.saturating_sub(idle_rtt));
        let idle = observed.pings.iter().filter(|ping| ping.at < load.few.from);
        let pings = || observed.pings.iter().filter(move |ping| within(ping.at));
        let looks = || observed.looks.iter().filter(move |look| within(look.at));

        let bulk = || looks().map(move |look| look.srtt.saturating_sub(idle_rtt));
        let bulk_queue = median(bulk()).unwrap_or_default();
        // Pings may all be lost in a queue longer than their timeout.
        let queue = mean(pings().filter_map(waits)).unwrap_or(bulk_queue);
        let median_queue = median(pings().filter_map(waits)).unwrap_or(bulk_queue);
        let under_load = observed.pings.iter().filter(|ping| ping.at >= load.few.from);
        let total = |from, to| Totals::within(&observed.looks, from, to);
        let middle = steady.0 + steady.1.saturating_since(steady.0) / 2;
        let [many, few] = [steady, load.few.steady()].map(|(from, to)| total(from, to));
        let halves = [total(steady.0, middle), total(middle, steady.1)];
        let own = observed.backlog.iter().filter(|look| within(look.at));
        let own = mean(own.filter_map(|look| look.bytes.time_at(many.rate)));
        Self {
            noise: jitter(idle.filter_map(|ping| ping.rtt)),
            queue,
            median_queue,
            standing_queue: quarter(pings().filter_map(waits)).unwrap_or_default(),
            bulk_queue,
            standing_bulk_queue: quarter(bulk()).unwrap_or_default(),
            peak_queue: third_longest(under_load.filter_map(waits)),
            forward_queue: forward_queue(observed, load, pings()),
            site_queue: site_queue(observed, load),
            own_queue: own.unwrap_or_default(),
            rate: many.rate,
            half_rates: halves.map(|half| half.rate),
            rate_of_few: few.rate,
            flows: [load.few.flows, load.many.flows],
            loss: many.loss,
            window_limited: many.window_limited,
            uneven: uneven(looks(), pings(), idle_rtt),
            loaded: true,
            ..self
        }
    }
}

/// Totals of all connections in some time.
#[derive(Default)]
struct Totals {
    rate: Rate,
    loss: f64,
    window_limited: f64,
}

impl Totals {
    fn within(looks: &[FlowLook], from: Timestamp, to: Timestamp) -> Self {
        let mut ends: BTreeMap<u16, (&FlowLook, &FlowLook)> = BTreeMap::new();
        for look in looks.iter().filter(|look| (from..to).contains(&look.at)) {
            ends.entry(look.flow).and_modify(|ends| ends.1 = look).or_insert((look, look));
        }
        let sum = |of: fn(&FlowLook) -> u64| -> u64 {
            ends.values().map(|(first, last)| of(last).saturating_sub(of(first))).sum()
        };
        let share = |part: u64, whole: u64| (part as f64 / whole.max(1) as f64).min(1.0);
        let millis = |duration: Duration| duration.as_millis() as u64;
        let spans = ends.values().map(|(first, last)| last.at.saturating_since(first.at));
        let acked = ByteCount::new(sum(|look| look.acked.as_u64()));
        Self {
            rate: acked.per(spans.max().unwrap_or_default()).unwrap_or_default(),
            loss: share(sum(|look| look.resent), sum(|look| look.sent)),
            window_limited: share(
                ends.values()
                    .map(|(a, b)| millis(b.window_limited.saturating_sub(a.window_limited)))
                    .sum(),
                ends.values().map(|(a, b)| millis(b.busy.saturating_sub(a.busy))).sum(),
            ),
        }
    }
}

/// Twice the median difference between successive `rtts`.
fn jitter(rtts: impl Iterator<Item = Duration>) -> Duration {
    let rtts: Vec<Duration> = rtts.collect();
    let differences = rtts.windows(2).map(|pair| pair[0].abs_diff(pair[1]));
    2 * median(differences).unwrap_or_default()
}

/// How much longer pings of at least two source ports take than pings of two more: the shortest round trip of
/// the one over the lower quartile of the other's pings, for a way takes its time each time. Round trips of
/// one port may differ by more among themselves, as in a fair queue that it shares with a busy flow. They
/// then say nothing about ways.
fn detour<'a>(pings: impl Iterator<Item = &'a Ping>) -> Duration {
    let mut ports: BTreeMap<u16, Vec<Duration>> = BTreeMap::new();
    for (port, rtt) in pings.filter_map(|ping| Some((ping.port, ping.rtt?))) {
        ports.entry(port).or_default().push(rtt);
    }
    let mut low: Vec<Duration> =
        ports.values().filter_map(|rtts| quarter(rtts.iter().copied())).collect();
    low.sort_unstable();
    let Some(&short) = low.get(1) else { return Duration::ZERO };
    // For each port, its shortest round trip, and by how much the lowest three quarters of the rest exceed
    // it: of four pings, one may be late.
    let ways = ports.values_mut().filter_map(|rtts| {
        rtts.sort_unstable();
        let least = *rtts.first()?;
        Some((least, rtts[(rtts.len() - 1) * 3 / 4].saturating_sub(least)))
    });
    let ways: Vec<(Duration, Duration)> = ways.collect();
    let jitter = median(ways.iter().map(|(_, jitter)| *jitter)).unwrap_or_default();
    let margin = DETOUR_MIN.max(short / 10).max(jitter);
    let longer = ways.iter().map(|&(least, jitter)| (least.saturating_sub(short), jitter));
    let longer = longer.filter(|&(more, jitter)| more > margin.max(jitter)).map(|(more, _)| more);
    let longer: Vec<Duration> = longer.collect();
    if longer.len() < 2 { Duration::ZERO } else { median(longer.into_iter()).unwrap_or_default() }
}

/// How much longer some connections wait than the rest, if pings of some ports do so, too.
fn uneven<'a>(
    looks: impl Iterator<Item = &'a FlowLook>,
    pings: impl Iterator<Item = &'a Ping>,
    idle_rtt: Duration,
) -> Duration {
    let wait = |rtt: Duration| rtt.saturating_sub(idle_rtt);
    let of_connections = apart(looks.map(|look| (look.flow, wait(look.srtt))));
    let of_ports = apart(pings.filter_map(|ping| Some((ping.port, wait(ping.rtt?)))));
    if of_ports > Duration::ZERO { of_connections } else { Duration::ZERO }
}

/// Difference between the second longest and the second shortest wait.
fn apart(all: impl Iterator<Item = (u16, Duration)>) -> Duration {
    let mut waits: BTreeMap<u16, Vec<Duration>> = BTreeMap::new();
    for (number, wait) in all {
        waits.entry(number).or_default().push(wait);
    }
    let mut means: Vec<Duration> =
        waits.into_values().filter_map(|waits| mean(waits.into_iter())).collect();
    means.sort_unstable();
    // Two on either side: a single accident is no second way.
    let [_, low, .., high, most] = means[..] else { return Duration::ZERO };
    let more = high.saturating_sub(low);
    if more > UNEVEN_MIN.max(most / 2) { more } else { Duration::ZERO }
}

/// The queue that stands without a load: the median of the shortest waits of all windows. If the counted
/// windows are all equal and no ping was lost, the queue is zero: the way has become longer, or its least
/// round trip was an accident.
fn standing(pings: &[Ping], base_rtt: Duration) -> Duration {
    let mut windows: BTreeMap<u128, Duration> = BTreeMap::new();
    for (at, rtt) in pings.iter().filter_map(|ping| Some((ping.at, ping.rtt?))) {
        let window = at.saturating_since(Timestamp::ZERO).as_nanos() / WINDOW.as_nanos();
        let wait = rtt.saturating_sub(base_rtt);
        windows.entry(window).and_modify(|least| *least = wait.min(*least)).or_insert(wait);
    }
    let usual = median(windows.values().copied()).unwrap_or_default();
    let long = || windows.values().copied().filter(|least| 2 * *least >= usual);
    let [low, high] = [1, 3].map(|part| quantile(long(), part, 4).unwrap_or_default());
    let is_flat = high.saturating_sub(low) <= usual.mul_f64(FLAT);
    if is_flat && pings.iter().all(|ping| ping.rtt.is_some()) { Duration::ZERO } else { usual }
}

/// The mean queue on the way to the peer: one-way times of `pings` over the lower quartile of the idle ones.
fn forward_queue<'a>(
    observed: &Observed,
    load: Load,
    pings: impl Iterator<Item = &'a Ping>,
) -> Option<Duration> {
    let idle = observed.pings.iter().filter(|ping| ping.at < load.few.from);
    let mut idle: Vec<i64> = idle.filter_map(|ping| ping.forward_ns).collect();
    idle.sort_unstable();
    let usual = *idle.get(idle.len() / 4)?;
    let more = |ping: &Ping| Some(ping.forward_ns?.saturating_sub(usual).max(0).unsigned_abs());
    mean(pings.filter_map(more).map(Duration::from_nanos))
}

/// The queue before the routers of the site: the most that the load adds to the answers of one router.
fn site_queue(observed: &Observed, load: Load) -> Option<Duration> {
    let steady = load.many.steady();
    let of_hop = |hops: u8| {
        let answers = || observed.hops.iter().filter(move |answer| answer.hops == hops);
        let idle = answers().filter(|answer| answer.at < load.few.from).map(|answer| answer.rtt);
        let loaded = answers().filter(|answer| (steady.0..steady.1).contains(&answer.at));
        let loaded = loaded.map(|answer| answer.rtt);
        let enough = idle.clone().count().min(loaded.clone().count()) >= HOP_ANSWERS_MIN;
        enough.then(|| Some(mean(loaded)?.saturating_sub(median(idle)?))).flatten()
    };
    (1..=observed.site_hops).filter_map(of_hop).max()
}

fn mean(values: impl Iterator<Item = Duration>) -> Option<Duration> {
    let (count, sum) = values.fold((0, Duration::ZERO), |(count, sum), it| (count + 1, sum + it));
    (count > 0).then(|| sum / count)
}

fn median(values: impl Iterator<Item = Duration>) -> Option<Duration> {
    quantile(values, 1, 2)
}

/// The value that a quarter of `values` are below.
fn quarter(values: impl Iterator<Item = Duration>) -> Option<Duration> {
    quantile(values, 1, 4)
}

/// The value that `part` in `whole` of `values` are below.
fn quantile(values: impl Iterator<Item = Duration>, part: usize, whole: usize) -> Option<Duration> {
    let mut values: Vec<Duration> = values.collect();
    values.sort_unstable();
    values.get(values.len() * part / whole).copied()
}

fn third_longest(values: impl Iterator<Item = Duration>) -> Duration {
    let mut values: Vec<Duration> = values.collect();
    values.sort_unstable();
    values.iter().rev().nth(2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::probe::{BacklogLook, HopAnswer, LoadPhase};

    const PORTS: u64 = 16;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Two seconds of nothing, two with two connections and four with eight.
    const LOAD: Load = Load {
        few: LoadPhase { flows: 2, from: at(2_000), to: at(4_000) },
        many: LoadPhase { flows: 8, from: at(4_000), to: at(8_000) },
    };

    /// A ping every 10 ms that takes `rtt` (time, port; ms).
    fn pinged(rtt: impl Fn(u64, u64) -> Option<u64>) -> Observed {
        let ping = |number: u64| Ping {
            at: at(10 * number),
            port: (number % PORTS) as u16,
            rtt: rtt(10 * number, number % PORTS).map(ms),
            forward_ns: None,
        };
        Observed { pings: (0..800).map(ping).collect(), load: Some(LOAD), ..Observed::default() }
    }

    /// A look every 100 ms at `flows` connections, each of 1 MB/s, that wait for `srtt` (connection; ms).
    fn looked(flows: u16, srtt: impl Fn(u16) -> u64) -> Vec<FlowLook> {
        let look = |millis: u64, flow: u16| FlowLook {
            at: at(millis),
            flow,
            srtt: ms(srtt(flow)),
            acked: ByteCount::new(millis * 1_000),
            sent: millis,
            resent: millis / 50,
            busy: ms(millis),
            window_limited: ms(millis / 4),
        };
        let times = (20..80).map(|tenth| 100 * tenth);
        times.flat_map(|millis| (0..flows).map(move |flow| look(millis, flow))).collect()
    }

    #[test]
    fn queue_is_the_rise_above_idle_round_trip() {
        let rtt = |time: u64, _| Some(if time < 2_000 { 41 + time / 10 % 3 } else { 102 });
        let mut observed = pinged(rtt);
        observed.looks = looked(8, |_| 105);
        let found = Findings::of(&observed);
        assert_eq!((found.base_rtt, found.idle_rtt), (Some(ms(41)), ms(41)));
        assert_eq!((found.queue, found.bulk_queue, found.peak_queue), (ms(61), ms(64), ms(61)));
        assert_eq!((found.detour, found.uneven), (Duration::ZERO, Duration::ZERO));
        assert_eq!(found.rate, Rate::from_mbit_per_sec(64));
        assert!((found.loss - 0.02).abs() < 1e-3 && (found.window_limited - 0.25).abs() < 1e-9);
        assert!(found.loaded && found.forward_queue.is_none() && found.site_queue.is_none());
    }

    #[test]
    fn start_of_a_load_counts_as_peak_only() {
        let rtt = |time: u64, _| Some(if (4_000..4_900).contains(&time) { 300 } else { 45 });
        let found = Findings::of(&pinged(rtt));
        assert_eq!((found.queue, found.peak_queue), (Duration::ZERO, ms(255)));
        let stalled = |time: u64, _| Some(if (6_000..6_300).contains(&time) { 345 } else { 45 });
        let found = Findings::of(&pinged(stalled));
        assert_eq!((found.queue, found.median_queue), (ms(30), Duration::ZERO));
        let late =
            |time: u64, _| Some(if time < 2_000 || time.is_multiple_of(30) { 45 } else { 51 });
        let found = Findings::of(&pinged(late));
        assert_eq!((found.median_queue, found.standing_queue), (ms(6), Duration::ZERO));
        let accident = |time: u64, _| Some(if (5_000..5_020).contains(&time) { 300 } else { 45 });
        assert_eq!(Findings::of(&pinged(accident)).peak_queue, Duration::ZERO, "two values");
    }

    #[test]
    fn lost_pings_leave_the_finding_to_connections() {
        let mut observed = pinged(|time, _| (time < 2_000 && time % 100 != 0).then_some(40));
        observed.looks = looked(8, |_| 900);
        let found = Findings::of(&observed);
        assert_eq!((found.queue, found.idle_pings), (ms(860), [200, 20]));
        let silent = Findings::of(&pinged(|_, _| None));
        assert_eq!(silent, Findings::default());
    }

    #[test]
    fn paths_differ_when_two_ports_always_take_longer() {
        let other_way =
            |ports: u64| pinged(move |_, port| Some(if port < ports { 62 } else { 40 }));
        assert_eq!(Findings::of(&other_way(5)).detour, ms(22));
        assert_eq!(Findings::of(&other_way(1)).detour, Duration::ZERO, "one port is an accident");
        // Every ping is late at times, but no port's pings are always late.
        let jitter = pinged(|time, port| Some(40 + (time / 10 + 7 * port) % 11));
        assert_eq!(Findings::of(&jitter).detour, Duration::ZERO);
        // Two ports are late by 6 ms each time, and the rest by up to 20 ms at times.
        let noise = |time: u64, port| if port < 2 { 6 } else { (time / 160 + port) % 11 * 2 };
        let noisy = pinged(move |time, port| Some(40 + noise(time, port)));
        assert_eq!(Findings::of(&noisy).detour, Duration::ZERO);
        // A tenth of a long way is no other way.
        let long = pinged(|_, port| Some(if port < 5 { 219 } else { 200 }));
        assert_eq!(Findings::of(&long).detour, Duration::ZERO);
    }

    #[test]
    fn queues_differ_when_two_connections_wait_longer() {
        let mut observed = pinged(|_, _| Some(40));
        observed.looks = looked(8, |flow| if flow < 3 { 140 } else { 60 });
        assert_eq!(Findings::of(&observed).uneven, Duration::ZERO, "pings all wait alike");
        let two_ways = |time: u64, port| match (time, port) {
            (..2_000, _) => Some(40),
            (_, ..5) => Some(140),
            _ => Some(60),
        };
        observed.pings = pinged(two_ways).pings;
        assert_eq!(Findings::of(&observed).uneven, ms(80));
        observed.looks = looked(8, |flow| if flow < 1 { 140 } else { 60 });
        assert_eq!(Findings::of(&observed).uneven, Duration::ZERO);
        observed.looks = looked(8, |flow| 130 + u64::from(flow));
        assert_eq!(Findings::of(&observed).uneven, Duration::ZERO);
    }

    #[test]
    fn site_queue_shows_in_routers_and_own_qdisc() {
        let mut observed = pinged(|time, _| Some(if time < 2_000 { 40 } else { 100 }));
        observed.site_hops = 2;
        observed.looks = looked(8, |_| 100);
        let answer = |hops, millis, rtt| HopAnswer { at: at(millis), hops, rtt: ms(rtt) };
        let answers = |hops, loaded| {
            [(500, 1), (900, 1), (6_000, loaded), (7_000, loaded)]
                .map(|(millis, rtt)| answer(hops, millis, rtt))
        };
        observed.hops = [answers(1, 2), answers(2, 51), answers(3, 61)].concat();
        assert_eq!(Findings::of(&observed).site_queue, Some(ms(50)), "the third is beyond");
        observed.hops.truncate(3);
        assert_eq!(Findings::of(&observed).site_queue, None, "one answer is too few");
        let look = |millis| BacklogLook { at: at(millis), bytes: ByteCount::new(80_000) };
        observed.backlog = vec![look(1_000), look(6_000), look(7_000)];
        assert_eq!(Findings::of(&observed).own_queue, ms(10), "at 64 Mbit/s");
    }

    #[test]
    fn times_of_unset_clock_show_the_forward_queue() {
        let mut observed = pinged(|time, _| Some(if time < 2_000 { 40 } else { 100 }));
        for ping in &mut observed.pings {
            let queue_ms = if ping.at < at(2_000) { 0 } else { 45 };
            ping.forward_ns = Some(-7_000_000_000 + 1_000_000 * (20 + queue_ms));
        }
        assert_eq!(Findings::of(&observed).forward_queue, Some(ms(45)));
    }

    #[test]
    fn unloaded_queue_is_the_excess_over_shortest_rtt() {
        let mut observed = pinged(|time, _| Some(if time < 4_000 { 40 } else { 80 }));
        observed.load = None;
        let found = Findings::of(&observed);
        assert_eq!((found.queue, found.loaded, found.rate), (ms(20), false, Rate::ZERO));
    }

    #[test]
    fn floor_above_one_early_ping_is_no_detour() {
        // The first ping alone found the path empty.
        let queue = |time: u64, _| Some(if time == 0 { 40 } else { 60 + time / 10 % 3 });
        let found = Findings::of(&pinged(queue));
        assert_eq!((found.base_rtt, found.detour), (Some(ms(40)), Duration::ZERO));
    }

    #[test]
    fn ports_behind_busy_flows_are_no_detour() {
        // Three ports wait behind flows with queues that come and go.
        let sawtooth = |time: u64, port| match port {
            ..3 => 20 + (time / 160 + port) * 7 % 50,
            _ => 0,
        };
        let found = Findings::of(&pinged(|time, port| Some(40 + sawtooth(time, port))));
        assert_eq!(found.detour, Duration::ZERO);
    }

    #[test]
    fn one_late_ping_in_four_hides_no_detour() {
        // Four pings of each port, one late by 20 ms; five ports go the long way.
        let late = |number: u64| if number.is_multiple_of(4) { 20 } else { 0 };
        let way = |port| if port < 5 { 52 } else { 40 };
        let rtt = |time: u64, port| (time < 640).then(|| way(port) + late(time / 160 + port));
        assert_eq!(Findings::of(&pinged(rtt)).detour, ms(12));
    }

    #[test]
    fn halves_of_a_load_have_their_rates() {
        let mut observed = pinged(|_, _| Some(40));
        observed.looks = looked(8, |_| 40);
        // Steady from 5 s on, so that the middle is at 6.5 s: there the connections become half as fast.
        for look in &mut observed.looks {
            let late = look.at.saturating_since(at(6_500)).as_millis() as u64;
            look.acked -= ByteCount::new(500 * late);
        }
        let found = Findings::of(&observed);
        assert_eq!(found.half_rates, [64, 32].map(Rate::from_mbit_per_sec));
    }

    #[test]
    fn noise_is_how_idle_pings_vary() {
        let jitter = |time: u64, _| Some(40 + if time < 2_000 { time / 10 * 5 % 21 } else { 19 });
        let found = Findings::of(&pinged(jitter));
        assert_eq!((found.idle_rtt, found.noise, found.median_queue), (ms(45), ms(10), ms(14)));
        // A queue of other senders that comes and goes within a second.
        let slow = |time: u64, _| Some(40 + time / 50 % 20);
        assert_eq!(Findings::of(&pinged(slow)).noise, Duration::ZERO);
    }

    #[test]
    fn only_a_queue_stands_without_a_load() {
        let standing = |rtt: fn(u64) -> u64| {
            let observed = pinged(|time, _| Some(rtt(time)));
            Findings::of(&Observed { load: None, ..observed }).standing_queue
        };
        assert_eq!(standing(|time| 40 + time / 10 * 13 % 41), Duration::ZERO, "jitter");
        assert_eq!(standing(|time| if time < 500 { 40 } else { 70 }), Duration::ZERO, "a floor");
        // From 40 ms to 90 ms in three seconds, again and again.
        let sawtooth = standing(|time| if time < 500 { 40 } else { 80 + time % 3_000 / 60 });
        assert!((ms(40)..ms(80)).contains(&sawtooth), "{sawtooth:?}");
    }
}
