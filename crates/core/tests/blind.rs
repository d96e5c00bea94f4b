//! Traffic that a receivebox does not see must not throttle the traffic that it sees. A bundle of two
//! classes passes a bottleneck, and one class dies on the way there, at shares that change with time.

use std::collections::VecDeque;

use forebay_core::bundle::sendbox::{SUPPLIED, SendboxConfig};
use forebay_core::bundle::{BoundaryMark, DepartureCounters, Report};
use forebay_core::qdisc::Backlog;
use forebay_core::spec::Spec;
use forebay_core::testing::Control;
use forebay_core::units::{ByteCount, Duration, Rate, Timestamp};

/// Algorithms under test.
const LAWS: [&str; 3] = ["copa", "setpoint", "basic_delay"];
/// Length of a full frame (bytes).
const PACKET_BYTES: u64 = 1514;
/// [`PACKET_BYTES`] in bits.
const PACKET_BITS: f64 = PACKET_BYTES as f64 * 8.0;
/// Rate of the bottleneck (Mbit/s).
const CAPACITY_MBIT: f64 = 20.0;
/// Buffer of the bottleneck in packets: 126 ms at its rate.
const BUFFER_PACKETS: usize = 208;
/// One-way delay of the path.
const ONE_WAY: Duration = Duration::from_millis(20);
/// Time step of the model.
const STEP: Duration = Duration::from_micros(100);
/// Steps between two ticks of the sendbox: 5 ms.
const TICK_STEPS: u64 = 50;
/// The measurement begins here.
const WARMUP_S: f64 = 5.0;
/// `min_rate` of the bundle.
const MIN_RATE: Rate = Rate::from_bits_per_sec(1_200_000);

/// Mbit/s that hosts offer at a time in seconds.
type Load = Box<dyn Fn(f64) -> f64>;

/// The loads of both classes, and their duration.
struct Case {
    name: String,
    seen: Load,
    blind: Load,
    seconds: f64,
    /// The class that is seen leaves first; otherwise both take turns.
    has_priority: bool,
}

impl Case {
    fn new(
        name: &str,
        seconds: f64,
        seen: impl Fn(f64) -> f64 + 'static,
        blind: impl Fn(f64) -> f64 + 'static,
    ) -> Self {
        let (seen, blind): (Load, Load) = (Box::new(seen), Box::new(blind));
        Self { name: name.into(), seen, blind, seconds, has_priority: false }
    }
}

#[derive(Debug)]
struct Outcome {
    /// Mbit/s of the class that is seen.
    goodput: f64,
    /// Share of the time in which a rate is enforced.
    shaped: f64,
    /// Mbit/s of the class that is seen, in the last ten seconds.
    last: f64,
    /// Mbit/s of the class that is not seen, in the last ten seconds.
    last_blind: f64,
}

/// A class's queue in front of the shaper, in packets.
struct Class {
    queue: f64,
    limit: f64,
}

impl Class {
    fn offer(&mut self, mbit: f64) {
        self.queue = (self.queue + mbit * 1e6 * STEP.as_secs_f64() / PACKET_BITS).min(self.limit);
    }

    fn is_empty(&self) -> bool {
        self.queue < 1.0
    }
}

fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn run(law: &str, case: &Case) -> Outcome {
    // The algorithm decides alone: the test checks whether blind traffic misleads it.
    let config = SendboxConfig {
        min_rate: Some(MIN_RATE),
        supervised: false,
        seed: 1,
        ..SendboxConfig::default()
    };
    let cc = forebay_core::cc::build(&Spec::named(law), SUPPLIED).unwrap();
    let mut control = Control::new(config, cc);
    let mut departures = DepartureCounters::default();
    let mut seen = Class { queue: 0.0, limit: 600.0 };
    let mut blind = Class { queue: 0.0, limit: 200.0 };
    let (mut may_send, mut may_forward) = (0.0_f64, 0.0_f64);
    let mut number = 0;
    let mut bottleneck = VecDeque::new();
    let mut flying = VecDeque::new();
    let mut reports: VecDeque<(Timestamp, Report)> = VecDeque::new();
    let (mut received, mut passed_by) = (0, 0);
    let (mut at_warmup, mut near_end) = (0, [0; 2]);
    let (mut shaped_steps, mut steps) = (0_u64, 0_u64);
    let mut was_empty = true;
    for step in 0..(case.seconds / STEP.as_secs_f64()) as u64 {
        let elapsed_s = step as f64 * STEP.as_secs_f64();
        let now = Timestamp::from_nanos(1_000_000_000) + STEP * step as u32;
        seen.offer((case.seen)(elapsed_s));
        blind.offer((case.blind)(elapsed_s));
        let is_empty = seen.is_empty() && blind.is_empty();
        let backlog = |seen: &Class, blind: &Class| {
            let packets = seen.queue as u64 + blind.queue as u64;
            Backlog { packets, bytes: ByteCount::new(packets * PACKET_BYTES) }
        };
        if is_empty != was_empty {
            control.on_queue(now, backlog(&seen, &blind));
            was_empty = is_empty;
        }
        let rate = control.rate().map_or(1e9, |rate| rate.as_bits_per_sec() as f64);
        let per_step = rate * STEP.as_secs_f64() / PACKET_BITS;
        may_send = (may_send + per_step).min(2.0 + per_step);
        while may_send >= 1.0 && !(seen.is_empty() && blind.is_empty()) {
            may_send -= 1.0;
            number += 1;
            let has_turn = !case.has_priority && number % 2 == 0;
            let is_blind = seen.is_empty() || (!blind.is_empty() && has_turn);
            if is_blind {
                blind.queue -= 1.0;
                passed_by += 1;
            } else {
                seen.queue -= 1.0
            }
            let hash = mix(number);
            let is_boundary = control.epoch_size().is_boundary(hash);
            let mark = is_boundary.then_some(BoundaryMark { hash, identity: number });
            control.on_departures(&departures.count(now, ByteCount::new(PACKET_BYTES), mark));
            if !is_blind && bottleneck.len() < BUFFER_PACKETS {
                bottleneck.push_back(hash);
            }
        }
        may_forward += CAPACITY_MBIT * 1e6 * STEP.as_secs_f64() / PACKET_BITS;
        while may_forward >= 1.0
            && let Some(hash) = bottleneck.pop_front()
        {
            may_forward -= 1.0;
            flying.push_back((now + ONE_WAY, hash));
        }
        may_forward = may_forward.min(1.0);
        while let Some(&(at, hash)) = flying.front()
            && at <= now
        {
            flying.pop_front();
            received += 1;
            let epoch_size = control.epoch_size();
            if epoch_size.is_boundary(hash) {
                let report = Report {
                    hash,
                    received_at: at,
                    received_bytes: ByteCount::new(received * PACKET_BYTES),
                    received_packets: received,
                    received_ce: 0,
                    epoch_size,
                };
                reports.push_back((at + ONE_WAY, report));
            }
        }
        while let Some((at, report)) = reports.front()
            && *at <= now
        {
            control.on_report(now, report);
            reports.pop_front();
        }
        if step % TICK_STEPS == 0 {
            control.on_tick(now, backlog(&seen, &blind));
        }
        if elapsed_s < WARMUP_S {
            at_warmup = received;
        } else {
            steps += 1;
            shaped_steps += u64::from(control.rate().is_some());
        }
        if elapsed_s < case.seconds - 10.0 {
            near_end = [received, passed_by];
        }
    }
    let mbit = |packets: u64, seconds: f64| packets as f64 * PACKET_BITS * 1e-6 / seconds;
    Outcome {
        goodput: mbit(received - at_warmup, case.seconds - WARMUP_S),
        shaped: shaped_steps as f64 / steps as f64,
        last: mbit(received - near_end[0], 10.0),
        last_blind: mbit(passed_by - near_end[1], 10.0),
    }
}

/// Each case with each algorithm.
fn run_all(cases: &[Case]) -> Vec<(String, Outcome)> {
    let runs = cases.iter().flat_map(|case| LAWS.map(|law| (law, case)));
    runs.map(|(law, case)| (format!("{law}, {}", case.name), run(law, case))).collect()
}

/// The cases that fail `is_good`.
fn failures(cases: &[Case], is_good: impl Fn(&Outcome) -> bool) -> Vec<(String, Outcome)> {
    run_all(cases).into_iter().filter(|(_, outcome)| !is_good(outcome)).collect()
}

/// A load above the path's capacity.
fn greedy(_elapsed_s: f64) -> f64 {
    1.2 * CAPACITY_MBIT
}

#[test]
fn constant_blind_share_costs_neither_goodput_nor_shaping() {
    let cases: Vec<_> = [0.0, 1.5, 3.0, 6.0, 12.0, 40.0]
        .into_iter()
        .map(|mbit| {
            let blind = move |at| if at > 5.0 { mbit } else { 0.0 };
            Case::new(&format!("{mbit} Mbit/s blind"), 60.0, greedy, blind)
        })
        .collect();
    let failures = failures(&cases, |outcome| outcome.goodput >= 19.0 && outcome.shaped >= 0.9);
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn pulses_of_blind_traffic_do_not_ratchet_down() {
    let mut cases = Vec::new();
    for mbit in [6.0, 8.0, 16.0] {
        for period in [0.3, 0.6, 2.0, 5.0] {
            for duty in [0.3, 0.5, 0.7] {
                let blind =
                    move |at: f64| if at > 5.0 && at % period < period * duty { mbit } else { 0.0 };
                let name = format!("pulses of {mbit} Mbit/s, {duty} of {period} s");
                cases.push(Case::new(&name, 60.0, greedy, blind));
            }
        }
    }
    let outcomes = run_all(&cases);
    let mean =
        outcomes.iter().map(|(_, outcome)| outcome.goodput).sum::<f64>() / outcomes.len() as f64;
    assert!(mean >= 19.0, "{mean} Mbit/s: {outcomes:#?}");
    // Pulses shorter than a round look like a constant share, and a fair queue gives them half of it.
    let failures: Vec<_> = outcomes.iter().filter(|(_, outcome)| outcome.goodput < 14.0).collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn slowly_changing_blind_share_costs_no_goodput() {
    let cases: Vec<_> = [6.0, 10.0, 20.0, 40.0]
        .into_iter()
        .map(|period| {
            let blind = move |at: f64| {
                if at > 5.0 {
                    6.0 + 4.0 * (at * core::f64::consts::TAU / period).sin()
                } else {
                    0.0
                }
            };
            Case::new(&format!("a sine of {period} s"), 120.0, greedy, blind)
        })
        .collect();
    let failures = failures(&cases, |outcome| outcome.goodput >= 18.0);
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn earlier_quiet_time_does_not_hide_blind_share() {
    let mut cases = Vec::new();
    for (mbit, share) in [(0.5, 0.5), (1.0, 0.2), (2.0, 0.5)] {
        for quiet in [30.0, 100.0] {
            let of = move |seen: f64| seen * share / (1.0 - share);
            let seen = move |at| if at < quiet { mbit } else { greedy(at) };
            let name = format!("{mbit} Mbit/s for {quiet} s, {share} blind");
            cases.push(Case::new(&name, quiet + 30.0, seen, move |at| of(seen(at))));
        }
    }
    let failures = failures(&cases, |outcome| outcome.last >= 19.0);
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn earlier_congestion_does_not_hide_later_blindness() {
    let pulses = [8.0, 17.0, 32.0, 58.0, 105.0];
    let cases: Vec<_> = [0.46, 0.5, 0.54]
        .into_iter()
        .map(|on| {
            let blind = move |at: f64| {
                let is_pulse = pulses.iter().any(|from| (*from..from + on).contains(&at));
                if at > 108.0 { 12.0 } else { 2.0 * f64::from(u8::from(is_pulse)) }
            };
            Case::new(&format!("five pulses of {on} s"), 150.0, greedy, blind)
        })
        .collect();
    let failures = failures(&cases, |outcome| outcome.last >= 19.0 && outcome.goodput >= 19.0);
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn blind_class_of_lower_priority_is_no_congestion() {
    let mut cases = Vec::new();
    for (mbit, blind_mbit) in [(2.0, 6.0), (8.0, 3.0), (8.0, 16.0), (14.0, 14.0)] {
        let seen = move |at| if at < 10.0 { greedy(at) } else { mbit };
        let blind = move |at| if at < 10.0 { 0.0 } else { blind_mbit };
        let name = format!("{mbit} Mbit/s above {blind_mbit} blind");
        let case = Case::new(&name, 60.0, seen, blind);
        cases.push((Case { has_priority: true, ..case }, mbit, blind_mbit));
    }
    let mut failures = Vec::new();
    for (case, mbit, blind_mbit) in &cases {
        for law in LAWS {
            let outcome = run(law, case);
            if outcome.last < 0.95 * mbit || outcome.last_blind < 0.95 * blind_mbit {
                failures.push((law, &case.name, outcome));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
