//! The path, traffic and events of one sequence, drawn from its seed alone.

use std::fmt::Write as _;

use forebay_core::random::{Stream, Streams};

pub use super::event::{ChaosEvent, End, EventKind, Venue};
use super::event::{LASTING_MS, kinds};

/// Earliest time of the first event: start-up is over, and there has been a quiet interval to compare with (ms).
const FIRST_MS: u64 = 6_500;
/// From the end of an event to the next one: 3 s that do not count, and some windows that do (ms).
const GAP_MS: u64 = LASTING_MS;
/// No event ends later, so that a sequence and its tail fit into 46 s (ms).
const LAST_MS: u64 = 30_000;
/// From the end of the last event to the end of the run: 15 s to shape again (ms).
const TAIL_MS: u64 = 15_500;
/// By how much the receivebox's clock is always fast: quartz does no better (ppm).
const DRIFT_PPM: u64 = 20;
/// The second twin's connections start up to this much later (ms): differences from the first twin are chance.
const LATER_MS: u64 = 2;

/// Cause of packet delay at the bottleneck other than a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsteady {
    /// Only the queue delays packets.
    No,
    /// Each packet is late by up to this much (ms).
    Jitter(u64),
    /// The link sends in turns, one each this many milliseconds.
    Turns(u64),
}

/// Cross traffic that shares the bottleneck with the bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cross {
    /// The bundle is alone.
    No,
    /// Greedy connections under Cubic.
    Bulk(u64),
    /// Requests, as a share of the rate (percent).
    Web(u64),
}

/// A path, its traffic, a bundle, and their events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Seed from which the sequence was drawn.
    pub seed: u64,
    /// Rate of the bottleneck (Mbit/s).
    pub rate_mbit: u64,
    /// Round trip (ms).
    pub rtt_ms: u64,
    /// Buffer of the bottleneck (packets).
    pub buffer_packets: u64,
    /// Cause of packet delay there other than a queue.
    pub unsteady: Unsteady,
    /// Cross traffic there.
    pub cross: Cross,
    /// The way back has the same rate, and a greedy connection fills it.
    pub fills_way_back: bool,
    /// The sendbox has the kernel datapath, over fq_codel.
    pub in_kernel: bool,
    /// Controller of the sendbox.
    pub law: &'static str,
    /// Queueing discipline of the sendbox with the user datapath.
    pub qdisc: &'static str,
    /// Greedy connections under Cubic and under Reno.
    pub flows: [u64; 2],
    /// Load of the requests (percent of the rate).
    pub load_percent: u64,
    /// The events in order of time; one ends before the next begins.
    pub events: Vec<ChaosEvent>,
}

/// Controllers of a bundle that sequences draw from, each with the same chance.
const LAWS: [&str; 3] = ["copa", "setpoint", "basic_delay"];
/// Names of the site's greedy flows in the plan.
const BULK: [&str; 2] = ["cubic", "reno"];
/// Name of the site's requests in the plan.
const REQUESTS: &str = "requests";
/// Queueing disciplines of the sendbox that sequences draw from.
const QDISCS: [&str; 3] = ["sfq", "fq_codel", "fifo"];
/// Bytes of a packet in a buffer.
const PACKET_BITS: u64 = 1_500 * 8;

impl Sequence {
    /// The sequence of `seed`, the same every time. Seeds that follow each other begin with every kind of
    /// event in turn.
    pub fn draw(seed: u64, place: Venue) -> Self {
        let streams = Streams::new(seed).part("chaos");
        let mut random = streams.stream("path");
        let rate_mbit = 10 + random.below(91);
        let rtt_ms = 10 + random.below(91);
        let bdp_packets = rate_mbit * rtt_ms * 1_000 / PACKET_BITS;
        let buffer_packets = bdp_packets.max(60) * (1 + random.below(2));
        let [law, qdisc] = [LAWS, QDISCS].map(|all| all[random.below(3) as usize]);
        let count = 3 + random.below(6);
        let cubic = 1 + random.below(count - 1);
        let load_percent = 5 + random.below(11);
        let unsteady = Unsteady::draw(&mut random);
        let cross = Cross::draw(&mut random);
        let fills_way_back = random.below(5) == 0;
        let in_kernel = place == Venue::Testbed { in_kernel: true };
        let mut events: Vec<ChaosEvent> = Vec::new();
        let mut random = streams.stream("events");
        let mut kinds = kinds(place);
        // Two consecutive seeds give one sequence to each datapath of a testbed.
        let turn = if place == Venue::Simulator { seed } else { seed / 2 };
        let first = kinds.remove((turn % kinds.len() as u64) as usize);
        random.shuffle(&mut kinds);
        let wanted = 2 + random.below(3) as usize;
        let mut at_ms = FIRST_MS + random.below(500);
        for number in std::iter::once(first).chain(kinds) {
            let kind = EventKind::draw(number, rate_mbit, &mut random);
            let until_ms = at_ms + kind.lasts_ms(&mut random);
            if events.len() == wanted || until_ms > LAST_MS {
                break;
            }
            events.push(ChaosEvent { at_ms, until_ms, kind });
            at_ms = until_ms + GAP_MS + random.below(500);
        }
        let flows = [cubic, count - cubic];
        Self {
            seed,
            rate_mbit,
            rtt_ms,
            buffer_packets,
            unsteady,
            cross,
            fills_way_back,
            in_kernel,
            law,
            qdisc,
            flows,
            load_percent,
            events,
        }
    }

    /// Whether the flow of this name belongs to the site, so that the sendbox shapes it.
    pub fn is_of_site(name: &str) -> bool {
        name == REQUESTS || BULK.contains(&name)
    }

    /// Whether two runs without boxes carry the same in each window: there is neither competing traffic nor random
    /// delay.
    pub fn is_steady(&self) -> bool {
        self.unsteady == Unsteady::No && self.cross == Cross::No
    }

    /// End of the run (ms).
    pub fn stop_ms(&self) -> u64 {
        self.last_ms() + TAIL_MS
    }

    /// End of the last event (ms).
    pub fn last_ms(&self) -> u64 {
        self.events.last().map_or(FIRST_MS, |event| event.until_ms)
    }

    /// The setting in words.
    pub fn words(&self) -> String {
        let Self { rate_mbit, rtt_ms, buffer_packets, law, load_percent, .. } = self;
        let [cubic, reno] = self.flows;
        let queue = if self.in_kernel { "the kernel datapath" } else { self.qdisc };
        let unsteady = match self.unsteady {
            Unsteady::No => String::new(),
            Unsteady::Jitter(ms) => format!(", jitter of {ms} ms"),
            Unsteady::Turns(ms) => format!(", turns of {ms} ms"),
        };
        let cross = match self.cross {
            Cross::No => String::new(),
            Cross::Bulk(count) => format!("; {count} Cubic flows outside the bundle"),
            Cross::Web(percent) => format!("; requests of {percent} % outside the bundle"),
        };
        let back = if self.fills_way_back { "; a greedy flow fills the return path" } else { "" };
        format!(
            "{rate_mbit} Mbit/s, {rtt_ms} ms, {buffer_packets} packets of buffer{unsteady}; {law} over {queue}; {cubic} \
             Cubic and {reno} Reno flows, {load_percent} % of requests{cross}{back}"
        )
    }

    /// The sequence as a plan with the arms `status_quo` and `bundle`, and between them, unless it is steady,
    /// `status_quo_later`.
    pub fn plan(&self) -> String {
        let Self { seed, rate_mbit, rtt_ms, buffer_packets, .. } = self;
        let stop_ms = self.stop_ms();
        let mut text = format!(
            "name = \"chaos\"\ntitle = \"Sequence of faults, seed {seed}\"\nseeds = \"{seed}\"\n\
             stop = \"{stop_ms}ms\"\ndrain = \"2s\"\n\n\
             [bottleneck]\nrate = \"{rate_mbit}Mbit/s\"\nrtt = \"{rtt_ms}ms\"\n\
             qdisc = {{ kind = \"fifo\", limit = \"{buffer_packets}p\" }}\n"
        );
        match self.unsteady {
            Unsteady::No => {}
            Unsteady::Jitter(ms) => text += &format!("jitter = \"{ms}ms\"\n"),
            Unsteady::Turns(ms) => text += &format!("batch = \"{ms}ms\"\n"),
        }
        if self.fills_way_back {
            text += &format!(
                "\n[reverse]\nrate = \"{rate_mbit}Mbit/s\"\n\
                 qdisc = {{ kind = \"fifo\", limit = \"{buffer_packets}p\" }}\n"
            );
        }
        self.write_bundle(&mut text);
        self.write_flows(&mut text);
        self.events.iter().for_each(|event| event.write(&mut text));
        text
    }

    fn write_bundle(&self, text: &mut String) {
        let Self { law, qdisc, .. } = self;
        let clock = self.clock();
        let datapath = match self.in_kernel {
            true => "datapath = \"kernel\"\n".into(),
            false => format!("qdisc = {{ kind = \"{qdisc}\", limit = \"150ms\" }}\n"),
        };
        let later = match self.is_steady() {
            true => String::new(),
            false => format!(
                "\n[[arm]]\nname = \"status_quo_later\"\n\
                 set = {{ bundle.a.enabled = false, start_jitter = \"{LATER_MS}ms\" }}\n"
            ),
        };
        let _ = write!(
            text,
            "\n[[bundle]]\nname = \"a\"\ncc = \"{law}\"\n{datapath}clock = \"{clock}\"\n\n\
             [[arm]]\nname = \"status_quo\"\nset = {{ bundle.a.enabled = false }}\n{later}\n\
             [[arm]]\nname = \"bundle\"\n"
        );
    }

    fn write_flows(&self, text: &mut String) {
        let mut flow = |name: &str, what: &str| {
            let _ = write!(text, "\n[[flow]]\nname = \"{name}\"\ncc = \"cubic\"\n{what}\n");
        };
        let requests = |percent: u64| {
            format!(
                "traffic = {{ kind = \"requests\", sizes = \"10KB\", load = \"{percent}%\", connections = 8 }}"
            )
        };
        flow(REQUESTS, &format!("bundle = \"a\"\n{}", requests(self.load_percent)));
        match self.cross {
            Cross::No => {}
            Cross::Bulk(count) => {
                flow("cross", &format!("count = {count}\ntraffic = {{ kind = \"greedy\" }}"));
            }
            Cross::Web(percent) => flow("cross", &requests(percent)),
        }
        if self.fills_way_back {
            flow("back", "reversed = true\ntraffic = { kind = \"greedy\" }");
        }
        for (cc, count) in BULK.into_iter().zip(self.flows).filter(|it| it.1 > 0) {
            let _ = write!(
                text,
                "\n[[flow]]\nname = \"{cc}\"\nbundle = \"a\"\ncc = \"{cc}\"\ncount = {count}\n\
                 traffic = {{ kind = \"greedy\" }}\n"
            );
        }
    }

    /// The receivebox's clock as a plan describes it.
    fn clock(&self) -> String {
        // Clocks of two machines never agree.
        let mut clock = format!("0s +{DRIFT_PPM}ppm");
        for ChaosEvent { at_ms, until_ms, kind } in &self.events {
            let _ = match kind {
                EventKind::Slew(ppm) => {
                    write!(clock, ", {at_ms}ms {ppm:+}ppm, {until_ms}ms +{DRIFT_PPM}ppm")
                }
                EventKind::Step(ms) => write!(clock, ", {at_ms}ms {ms:+}ms"),
                _ => Ok(()),
            };
        }
        clock
    }
}

impl Unsteady {
    /// Three of four paths delay packets only by a queue.
    fn draw(random: &mut Stream) -> Self {
        let ms = 1 + random.below(10);
        match random.below(8) {
            0 => Self::Jitter(ms),
            1 => Self::Turns(ms),
            _ => Self::No,
        }
    }
}

impl Cross {
    /// Three of four bottlenecks carry nothing else.
    fn draw(random: &mut Stream) -> Self {
        let figure = random.below(40);
        match random.below(8) {
            0 => Self::Bulk(1 + figure % 4),
            1 => Self::Web(10 + figure),
            _ => Self::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_lab::plan::Plan;
    use forebay_lab::plan::library::Source;

    /// Both back ends, and both datapaths of the testbed.
    const PLACES: [Venue; 3] =
        [Venue::Simulator, Venue::Testbed { in_kernel: false }, Venue::Testbed { in_kernel: true }];

    #[test]
    fn each_seed_gives_its_own_sequence() {
        for place in PLACES {
            assert_eq!(Sequence::draw(7, place), Sequence::draw(7, place));
            assert_ne!(Sequence::draw(7, place).plan(), Sequence::draw(8, place).plan());
        }
    }

    #[test]
    fn every_sequence_is_a_plan_in_time() {
        for place in PLACES {
            for seed in 0..200 {
                let sequence = Sequence::draw(seed, place);
                let source = Source { file: "chaos".into(), folder: None, text: sequence.plan() };
                let plan = Plan::from_source(source, &[]).unwrap();
                assert_eq!(plan.arms.len(), if sequence.is_steady() { 2 } else { 3 });
                assert!((2..=4).contains(&sequence.events.len()), "{seed}: {:?}", sequence.events);
                assert!(
                    (28_000..=46_000).contains(&sequence.stop_ms()),
                    "{seed}: {}",
                    sequence.stop_ms()
                );
                assert!(
                    (10..=100).contains(&sequence.rate_mbit)
                        && (10..=100).contains(&sequence.rtt_ms)
                );
                assert!((3..=8).contains(&sequence.flows.iter().sum::<u64>()));
                for pair in sequence.events.windows(2) {
                    assert!(pair[1].at_ms >= pair[0].until_ms + 5_000, "{seed}: {pair:?}");
                }
            }
        }
    }

    #[test]
    fn draws_and_describes_every_event_kind() {
        for place in PLACES {
            let mut all: Vec<String> = Vec::new();
            for event in (0..200).flat_map(|seed| Sequence::draw(seed, place).events) {
                let debug = format!("{:?}", event.kind);
                all.push(debug.split('(').next().unwrap_or_default().to_string());
                assert!(event.words().starts_with(&format!("{} s: ", event.at_ms as f64 / 1e3)));
            }
            all.sort();
            all.dedup();
            // One number covers two kinds of clients.
            let more = usize::from(place != Venue::Simulator);
            assert_eq!(all.len(), kinds(place).len() + more, "{all:?}");
        }
    }

    #[test]
    fn bundle_table_has_receivebox_clock_faults() {
        let mut sequence = Sequence::draw(1, PLACES[1]);
        let event = |at_ms, until_ms, kind| ChaosEvent { at_ms, until_ms, kind };
        sequence.events = vec![
            event(7_000, 12_000, EventKind::Slew(-83_000)),
            event(18_000, 18_000, EventKind::Step(3)),
            event(25_000, 25_000, EventKind::Step(-30_000)),
        ];
        let expected =
            "0s +20ppm, 7000ms -83000ppm, 12000ms +20ppm, 18000ms +3ms, 25000ms -30000ms";
        assert!(sequence.plan().contains(&format!("clock = \"{expected}\"\n")));
        assert!(expected.parse::<forebay_core::clock::Clock>().is_ok());
        let words: Vec<String> = sequence.events.iter().map(ChaosEvent::words).collect();
        assert_eq!(
            words,
            [
                "7 s: the receivebox's clock is slow by 83000 ppm for 5 s",
                "18 s: the receivebox's clock jumps forward by 0.003 s",
                "25 s: the receivebox's clock jumps back by 30 s",
            ]
        );
    }

    #[test]
    fn back_end_gets_only_supported_events() {
        for seed in 0..100 {
            let plan = Sequence::draw(seed, Venue::Simulator).plan();
            for what in
                ["_log", "down", "bridge", "mtu", "address", "offloads", "starve", "lan", "_tc"]
            {
                assert!(!plan.contains(what), "{seed}: {what}");
            }
            for in_kernel in [false, true] {
                let plan = Sequence::draw(seed, Venue::Testbed { in_kernel }).plan();
                assert!(!plan.contains("suspend"), "{seed}");
                assert!(in_kernel || !plan.contains("foreign_tc"), "{seed}");
                assert_eq!(plan.contains("datapath = \"kernel\""), in_kernel);
            }
        }
    }
}
