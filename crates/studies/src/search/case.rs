//! One scenario: its path, the events and their times, and the plan that runs it.

use std::fmt::Write as _;

use forebay_core::units::{Rate, format_duration};

use super::objective::rounded;
use super::space::{Number, Space};
use forebay_lab::plan::Seeds;

/// Name of the flow whose algorithm is tested, in plans.
pub const TESTED: &str = "tested";
/// Name of the flow that competes with the tested one.
pub const COMPETITOR: &str = "competitor";
/// Every case is simulated with each of these; the median counts, so that a single start is no finding.
pub const SEEDS: Seeds = Seeds { first: 1, last: 3 };

/// A buffer of fewer packets is a broken link, and no finding about an algorithm.
const BUFFER_MIN_PACKETS: f64 = 10.0;
/// Bytes of a packet in a bandwidth-delay product, as in plans.
const BDP_PACKET_BYTES: f64 = 1500.0;
/// Starts are jittered by a slot over this.
const JITTERS_IN_SLOT: u32 = 4;

/// An event that lasts for `slots` slots from the slot `at` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CaseEvent {
    /// First slot, from 0.
    pub at: u32,
    /// How many slots, at least 1.
    pub slots: u32,
    /// Percentage of the link's rate that remains, or that cross traffic sends.
    pub percent: u32,
}

/// A scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Rate (Mbit/s), round trip (ms), buffer (bandwidth-delay products), random loss (percent) and start (ms).
    pub numbers: [f64; Number::ALL.len()],
    /// Algorithm of the flow that competes with the tested one.
    pub competitor: Option<String>,
    /// When the link is slower.
    pub service: Vec<CaseEvent>,
    /// When cross traffic sends datagrams.
    pub cross: Vec<CaseEvent>,
}

impl Case {
    /// The number `number` in its unit.
    pub const fn number(&self, number: Number) -> f64 {
        self.numbers[number as usize]
    }

    fn buffer_packets(&self) -> u64 {
        let [rate_mbit, rtt_ms, buffer_bdp, ..] = self.numbers;
        let bdp_packets = rate_mbit * 1e3 / 8.0 * rtt_ms / BDP_PACKET_BYTES;
        (buffer_bdp * bdp_packets).round().max(BUFFER_MIN_PACKETS) as u64
    }

    /// The case in words.
    pub fn words(&self) -> String {
        let [rate_mbit, rtt_ms, buffer_bdp, loss_percent, start_ms] = self.numbers;
        let mut words = format!("{rate_mbit} Mbit/s, {rtt_ms} ms, {buffer_bdp} BDP");
        if loss_percent > 0.0 {
            let _ = write!(words, ", {loss_percent} % lost");
        }
        if let Some(competitor) = &self.competitor {
            let _ = write!(words, ", against {competitor}");
        }
        if start_ms > 0.0 {
            let _ = write!(words, ", from {start_ms} ms");
        }
        for (count, one, many) in [
            (self.service.len(), "slow-down", "slow-downs"),
            (self.cross.len(), "burst of cross traffic", "bursts of cross traffic"),
        ] {
            if count > 0 {
                let _ = write!(words, ", {count} {}", if count == 1 { one } else { many });
            }
        }
        words
    }

    /// The case as a plan called `name` with `seeds`, whose flow has the algorithm `algorithm`.
    pub fn plan(&self, space: &Space, algorithm: &str, name: &str, seeds: Seeds) -> String {
        let [rate_mbit, rtt_ms, _, loss_percent, start_ms] = self.numbers;
        let [stop, warmup, jitter] =
            [space.stop, space.warmup, space.slot / JITTERS_IN_SLOT].map(format_duration);
        let buffer_packets = self.buffer_packets();
        let mut text = format!(
            "name         = \"{name}\"\n\
             title        = \"A bad case for {algorithm}\"\n\
             seeds        = \"{seeds}\"\n\
             stop         = \"{stop}\"\n\
             warmup       = \"{warmup}\"\n\
             start_jitter = \"{jitter}\"\n\n\
             [bottleneck]\n\
             rate  = \"{rate_mbit}Mbit/s\"\n\
             rtt   = \"{rtt_ms}ms\"\n\
             loss  = \"{loss_percent}%\"\n\
             qdisc = {{ kind = \"fifo\", limit = \"{buffer_packets}p\" }}\n"
        );
        self.write_changes(space, &mut text);
        write_flow(&mut text, TESTED, algorithm, start_ms);
        if let Some(competitor) = &self.competitor {
            write_flow(&mut text, COMPETITOR, competitor, 0.0);
        }
        self.write_bursts(space, &mut text);
        text + FIGURES
    }

    /// Writes the rate of each slot in which it changes.
    fn write_changes(&self, space: &Space, text: &mut String) {
        let left = |slot: u32| {
            let lasting =
                self.service.iter().filter(|it| (it.at..it.at + it.slots).contains(&slot));
            lasting.map(|event| event.percent).min().unwrap_or(100)
        };
        let mut before = 100;
        for slot in 0..space.slots() {
            let percent = left(slot);
            if percent != before {
                let (at, rate) = (format_duration(space.slot * slot), self.part_of_rate(percent));
                let _ =
                    write!(text, "\n[[bottleneck.change]]\nat   = \"{at}\"\nrate = \"{rate}\"\n");
            }
            before = percent;
        }
    }

    fn write_bursts(&self, space: &Space, text: &mut String) {
        for (number, event) in (1..).zip(&self.cross) {
            let [start, stop] =
                [event.at, event.at + event.slots].map(|slot| format_duration(space.slot * slot));
            let rate = self.part_of_rate(event.percent);
            let _ = write!(
                text,
                "\n[[flow]]\n\
                 name    = \"burst-{number}\"\n\
                 start   = \"{start}\"\n\
                 stop    = \"{stop}\"\n\
                 traffic = {{ kind = \"cbr\", rate = \"{rate}\" }}\n"
            );
        }
    }

    fn part_of_rate(&self, percent: u32) -> Rate {
        let bits = self.number(Number::Rate) * 1e6 * f64::from(percent) / 100.0;
        Rate::from_bits_per_sec(bits.round() as u64)
    }

    /// The cases within `space` that have one feature less than this one, or one that is rounder or shorter; the
    /// largest simplification comes first. No sequence of these steps leads back here.
    pub fn simpler(&self, space: &Space) -> Vec<Self> {
        let mut simpler = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut case = self.clone();
            change(&mut case);
            if case != *self && space.contains(&case) {
                simpler.push(case);
            }
        };
        for at in 0..self.service.len() {
            add(&|case| {
                case.service.remove(at);
            });
        }
        for at in 0..self.cross.len() {
            add(&|case| {
                case.cross.remove(at);
            });
        }
        add(&|case| case.competitor = None);
        for number in [Number::Loss, Number::Start] {
            add(&|case| case.numbers[number as usize] = space.range(number).min());
        }
        for digits in [1, 2] {
            for number in Number::ALL {
                // If the minimum were rounded, the next step would set it to the minimum again, without end.
                if self.number(number) > space.range(number).min() {
                    add(&|case| {
                        case.numbers[number as usize] = rounded(case.number(number), digits);
                    });
                }
            }
        }
        for step in [50, 10] {
            for at in 0..self.service.len() {
                add(&|case| case.service[at].percent = to_multiple(case.service[at].percent, step));
            }
            for at in 0..self.cross.len() {
                add(&|case| case.cross[at].percent = to_multiple(case.cross[at].percent, step));
            }
        }
        for at in 0..self.service.len() {
            add(&|case| case.service[at].slots = (case.service[at].slots / 2).max(1));
        }
        for at in 0..self.cross.len() {
            add(&|case| case.cross[at].slots = (case.cross[at].slots / 2).max(1));
        }
        simpler
    }
}

/// The multiple of `step` that is closest to `value`.
const fn to_multiple(value: u32, step: u32) -> u32 {
    (value + step / 2) / step * step
}

/// A flow that always has data, between a pair of sites of its own.
fn write_flow(text: &mut String, name: &str, cc: &str, start_ms: f64) {
    let _ = write!(
        text,
        "\n[[flow]]\n\
         name    = \"{name}\"\n\
         pair    = \"{name}\"\n\
         cc      = {cc:?}\n\
         start   = \"{start_ms}ms\"\n\
         traffic = {{ kind = \"greedy\" }}\n"
    );
}

/// Figures of a written plan, as text that is appended to it.
const FIGURES: &str = r#"
[[figure]]
kind   = "bars"
title  = "Utilisation of the bottleneck: the share of its rate that it carried."
metric = "links/forward/utilisation"

[[figure]]
kind   = "bars"
title  = "Time of a packet in queue and server, mean over packets."
metric = "links/forward/sojourn_mean_ms"

[[figure]]
kind   = "ribbon"
title  = "What left the bottleneck, and what of it was the tested flow's."
series = ["links/forward/throughput_mbps", "flows/tested/throughput_mbps"]
facet  = "arm"

[[figure]]
kind   = "timeline"
title  = "The queue at the bottleneck."
series = ["links/forward/queue_packets"]
"#;

#[cfg(test)]
pub(super) mod tests {
    use super::super::space::tests::{SMALL, read};
    use super::*;
    use forebay_lab::plan::Plan;
    use forebay_lab::plan::library::Source;

    /// A case of the small space.
    pub fn case() -> Case {
        let event = |at, slots, percent| CaseEvent { at, slots, percent };
        Case {
            numbers: [2.34, 23.4, 1.27, 0.5, 120.0],
            competitor: Some("reno".into()),
            service: vec![event(3, 2, 12), event(4, 2, 0), event(19, 1, 80)],
            cross: vec![event(7, 1, 77)],
        }
    }

    #[test]
    fn case_is_a_plan_with_timed_events() {
        let space = read(SMALL).unwrap();
        let text = case().plan(&space, "cubic(hystart=off)", "case", SEEDS);
        let source = Source { file: "case.toml".into(), folder: None, text };
        let plan = Plan::from_source(source, &[]).unwrap();
        let run = plan.experiments().next().unwrap().unwrap();
        assert_eq!(plan.seeds, SEEDS);
        assert_eq!(run.start_jitter, space.slot / 4);
        // 1.27 x 2.34 Mbit/s x 23.4 ms are 6 packets, and no buffer has so few.
        assert_eq!(run.forward.qdisc.to_string(), "fifo(limit=10p)");
        assert_eq!((run.forward.loss.as_f64(), run.rtt.as_micros()), (0.005, 23_400));
        let changes: Vec<(u128, u64)> = run
            .forward
            .changes
            .iter()
            .map(|it| (it.at.as_millis(), it.rate.unwrap().as_bits_per_sec()))
            .collect();
        let (slow, full) = (280_800, 2_340_000);
        assert_eq!(changes, [(300, slow), (400, 0), (600, full), (1900, 1_872_000)]);
        let flows: Vec<_> = run
            .flows
            .iter()
            .map(|flow| (flow.name.as_str(), flow.cc.kind.as_str(), flow.stop.as_millis()))
            .collect();
        assert_eq!(
            flows,
            [("tested", "cubic", 2000), ("competitor", "reno", 2000), ("burst-1", "cubic", 800)]
        );
        assert_eq!(
            case().words(),
            "2.34 Mbit/s, 23.4 ms, 1.27 BDP, 0.5 % lost, against reno, from 120 ms, 3 slow-downs, 1 burst of \
             cross traffic"
        );
    }

    #[test]
    fn simplification_stays_in_space_and_ends() {
        let space = read(SMALL).unwrap();
        assert!(space.contains(&case()));
        let first = case().simpler(&space);
        assert_eq!(first[0].service.len(), 2);
        assert!(first.iter().any(|it| it.competitor.is_none()));
        assert!(first.iter().any(|it| it.number(Number::Rate) == 2.0));
        assert!(first.iter().any(|it| it.service[0].percent == 10));
        assert!(first.iter().all(|it| space.contains(it)));
        for last in [false, true] {
            let mut steps = 0;
            let mut case = case();
            loop {
                let mut next = case.simpler(&space);
                let Some(next) = (if last { next.pop() } else { next.drain(..).next() }) else {
                    break;
                };
                (case, steps) = (next, steps + 1);
            }
            assert!(steps < 60, "{steps}");
            assert!(case.service.is_empty() && case.cross.is_empty() && case.competitor.is_none());
        }
    }

    #[test]
    fn simplification_cannot_cycle_at_unrounded_minima() {
        let text = SMALL
            .replace("loss   = { min = \"0%\"", "loss   = { min = \"0.16%\"")
            .replace("start  = { min = \"0s\"", "start  = { min = \"160ms\"");
        let space = read(&text).unwrap();
        let minima = [Number::Loss, Number::Start].map(|number| space.range(number).min());
        assert_eq!(minima, [0.16, 160.0]);
        let case = |loss_percent, start_ms| Case {
            numbers: [2.0, 20.0, 1.0, loss_percent, start_ms],
            competitor: None,
            service: Vec::new(),
            cross: Vec::new(),
        };
        assert!(case(0.16, 160.0).simpler(&space).is_empty());
        let mut left = vec![case(0.234, 234.0)];
        let mut place = 0;
        while let Some(case) = left.get(place) {
            let simpler = case.simpler(&space);
            for case in simpler {
                if !left.contains(&case) {
                    left.push(case);
                }
            }
            place += 1;
        }
        // Repeatedly removes cases that lead to no remaining one: those on a circle would remain.
        assert!(left.len() > 4, "{left:?}");
        let mut before = 0;
        while left.len() != before {
            before = left.len();
            let leads_on = |it: &Case| it.simpler(&space).iter().any(|next| left.contains(next));
            left = left.iter().filter(|it| leads_on(it)).cloned().collect();
        }
        assert!(left.is_empty(), "{left:?}");
    }
}
