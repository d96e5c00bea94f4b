//! What happens in one sequence, drawn from its seed alone.

use std::fmt::Write as _;

use forebay_core::random::{Stream, Streams};

/// When the first event may come: start-up is over, and a quiet interval before it is there to compare with
/// (ms).
const FIRST_MS: u64 = 6_500;
/// From the end of an event to the next one: 3 s that do not count, and some windows that do (ms).
const GAP_MS: u64 = 5_700;
/// No event ends later, so that 46 s hold a sequence with what follows (ms).
const LAST_MS: u64 = 30_000;
/// From the end of the last event to the end of the run: 15 s to shape again (ms).
const TAIL_MS: u64 = 15_500;
/// How long a condition lasts that may harm as long as it lasts (ms).
const LASTING_MS: u64 = 5_700;
/// By how much the receivebox's clock is always fast: quartz does no better (ppm).
const DRIFT_PPM: u64 = 20;
/// How long a box takes to be started again where it is away for its configuration alone (ms).
const RESTART_MS: u64 = 300;

/// What a back end can do to a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Simulated links and boxes.
    Simulator,
    /// Namespaces, devices, processes.
    Testbed,
}

/// A box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At site A.
    Sendbox,
    /// At site B.
    Receivebox,
}

impl End {
    const fn name(self) -> &'static str {
        match self {
            Self::Sendbox => "sendbox",
            Self::Receivebox => "receivebox",
        }
    }

    const fn site(self) -> &'static str {
        match self {
            Self::Sendbox => "a",
            Self::Receivebox => "b",
        }
    }
}

/// What happens. Where it lasts, it begins at [`Event::at_ms`] and ends at [`Event::until_ms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Both directions of the path lose everything.
    LinkDown,
    /// Both directions lose this share of the packets (percent).
    Loss(u64),
    /// The route changes: another round trip (ms).
    Route(u64),
    /// A box is killed and started again.
    Kill(End),
    /// A box is stopped and goes on.
    Stop(End),
    /// A box is started anew with a key that the other one has not, and then with the right one.
    OtherKey(End),
    /// A box is started anew with its log on a full disk.
    FullLog(End),
    /// The box is killed and starts anew with a log into a full pipe that nobody reads.
    BlockedLog(End),
    /// This share of the packets passes the receivebox by (percent).
    Unseen(u64),
    /// Packets in the bundle's name that no sendbox has sent (kbit/s).
    Forged(u64),
    /// The WAN device of a box goes down and up.
    DeviceDown(End),
    /// The WAN device of a box leaves its bridge and comes back.
    LeaveBridge(End),
    /// The ports of a box get another MTU (bytes), and then 1500 again.
    Mtu(End, u64),
    /// The bridge of a box gets one more address, and loses it.
    Address(End),
    /// The offloads of the ports of a box are switched on, and off.
    Offloads(End),
    /// The clock of the receivebox is fast by so much (ppm), or slow, and right again.
    Slew(i64),
    /// The clock of the receivebox is put on by so much (ms), or back.
    Step(i64),
    /// The machine of the receivebox sleeps.
    Suspend,
}

/// The numbers of the kinds of events that a back end has, as [`Kind::draw`] takes them.
fn kinds(place: Place) -> Vec<u64> {
    match place {
        // No devices and no logs.
        Place::Simulator => (0..8).chain(15..18).collect(),
        // All programs run on one machine.
        Place::Testbed => (0..17).collect(),
    }
}

/// How far a clock is slewed (ppm): as by NTP and twice that, as chrony does at the most, and beyond.
const SLEWS: [i64; 4] = [500, 1_000, 83_000, 100_000];
/// How far a clock is put on or back (ms).
const STEPS: [i64; 4] = [3, 50, 1_000, 30_000];

impl Kind {
    /// The kind of this number, its figures drawn from `random`.
    fn draw(number: u64, rate_mbit: u64, random: &mut Stream) -> Self {
        let end = if random.below(2) == 0 { End::Sendbox } else { End::Receivebox };
        let figure = random.below(1_000);
        match number {
            0 => Self::LinkDown,
            1 => Self::Loss(5 + figure % 26),
            2 => Self::Route(10 + figure % 91),
            3 => Self::Kill(end),
            4 => Self::Stop(end),
            5 => Self::OtherKey(end),
            6 => Self::Unseen([5, 20, 50, 90][(figure % 4) as usize]),
            // A tenth of the link's rate to all of it.
            7 => Self::Forged(rate_mbit * (100 + figure * 9 / 10)),
            8 => Self::FullLog(end),
            9 => Self::BlockedLog(end),
            10 => Self::DeviceDown(end),
            11 => Self::LeaveBridge(end),
            12 => Self::Mtu(end, if figure < 500 { 1400 } else { 2000 }),
            13 => Self::Address(end),
            14 => Self::Offloads(end),
            15 => Self::Slew(signed(SLEWS[(figure % 4) as usize], figure)),
            16 => Self::Step(signed(STEPS[(figure % 4) as usize], figure)),
            _ => Self::Suspend,
        }
    }

    /// How long it lasts (ms).
    fn lasts_ms(self, random: &mut Stream) -> u64 {
        match self {
            Self::Route(_) | Self::Step(_) => 0,
            Self::FullLog(_) | Self::BlockedLog(_) => RESTART_MS,
            Self::LinkDown | Self::Loss(_) | Self::DeviceDown(_) | Self::LeaveBridge(_) => {
                200 + random.below(2_000)
            }
            Self::Mtu(_, bytes) if bytes < 1500 => 200 + random.below(1_300),
            // As often for a moment as for longer than anybody waits.
            Self::Kill(_) | Self::Stop(_) | Self::Suspend if random.below(2) == 0 => {
                RESTART_MS + random.below(1_500)
            }
            Self::Kill(_)
            | Self::Stop(_)
            | Self::OtherKey(_)
            | Self::Unseen(_)
            | Self::Forged(_)
            | Self::Mtu(..)
            | Self::Address(_)
            | Self::Offloads(_)
            | Self::Slew(_)
            | Self::Suspend => LASTING_MS,
        }
    }

    /// The path carries less, or nothing, as long as it lasts, with boxes or without.
    pub fn is_outage(self) -> bool {
        match self {
            Self::LinkDown | Self::Loss(_) | Self::DeviceDown(_) | Self::LeaveBridge(_) => true,
            Self::Mtu(_, bytes) => bytes < 1500,
            _ => false,
        }
    }
}

/// One event of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happens or begins (ms since the start of the run).
    pub at_ms: u64,
    /// When it ends; the same where it does not last.
    pub until_ms: u64,
    /// What happens.
    pub kind: Kind,
}

impl Event {
    /// In words.
    pub fn words(&self) -> String {
        let s = |ms: u64| ms as f64 / 1e3;
        let (at, lasts) = (s(self.at_ms), s(self.until_ms - self.at_ms));
        let what = match self.kind {
            Kind::LinkDown => format!("the path loses everything for {lasts} s"),
            Kind::Loss(percent) => {
                format!("the path loses {percent} % of the packets for {lasts} s")
            }
            Kind::Route(rtt_ms) => format!("the route changes: the round trip takes {rtt_ms} ms"),
            Kind::Kill(end) => {
                format!("the {} is killed, and started again {lasts} s later", end.name())
            }
            Kind::Stop(end) => {
                format!("the {} is stopped, and goes on {lasts} s later", end.name())
            }
            Kind::OtherKey(end) => {
                format!(
                    "the {} is started with another key, and with its own {lasts} s later",
                    end.name()
                )
            }
            Kind::FullLog(end) => {
                format!("the {} is started with its log on a full disk", end.name())
            }
            Kind::BlockedLog(end) => {
                format!("the {} is started with its log in a pipe that nobody reads", end.name())
            }
            Kind::Unseen(percent) => {
                format!("{percent} % of the packets pass the receivebox by for {lasts} s")
            }
            Kind::Forged(kbit) => {
                format!("{} Mbit/s are forged in the bundle's name for {lasts} s", s(kbit))
            }
            Kind::DeviceDown(end) => {
                format!("the WAN device of site {} is down for {lasts} s", end.site())
            }
            Kind::LeaveBridge(end) => {
                format!("the WAN device of site {} is out of its bridge for {lasts} s", end.site())
            }
            Kind::Mtu(end, bytes) => {
                format!(
                    "the ports of the box at site {} have an MTU of {bytes} for {lasts} s",
                    end.site()
                )
            }
            Kind::Address(end) => {
                format!("the bridge of site {} has one more address for {lasts} s", end.site())
            }
            Kind::Offloads(end) => {
                format!("the ports of the box at site {} have offloads for {lasts} s", end.site())
            }
            Kind::Slew(ppm) => {
                format!("the receivebox's clock is {} for {lasts} s", fast_or_slow(ppm))
            }
            Kind::Step(ms) => {
                format!("the receivebox's clock is put {} s", on_or_back(ms))
            }
            Kind::Suspend => format!("the receivebox's machine sleeps for {lasts} s"),
        };
        format!("{at} s: {what}")
    }
}

/// `figure` draws the sign of `value`.
fn signed(value: i64, figure: u64) -> i64 {
    if figure < 500 { value } else { -value }
}

fn fast_or_slow(ppm: i64) -> String {
    format!("{} by {} ppm", if ppm < 0 { "slow" } else { "fast" }, ppm.abs())
}

fn on_or_back(ms: i64) -> String {
    format!("{} by {}", if ms < 0 { "back" } else { "on" }, ms.abs() as f64 / 1e3)
}

/// A path, its traffic, a bundle, and what happens to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// What it was drawn from.
    pub seed: u64,
    /// Rate of the bottleneck (Mbit/s).
    pub rate_mbit: u64,
    /// Round trip (ms).
    pub rtt_ms: u64,
    /// Buffer of the bottleneck (packets).
    pub buffer_packets: u64,
    /// Law of the sendbox.
    pub law: &'static str,
    /// Queueing discipline of the sendbox.
    pub qdisc: &'static str,
    /// Greedy connections under Cubic and under Reno.
    pub flows: [u64; 2],
    /// Load of the requests (percent of the rate).
    pub load_percent: u64,
    /// What happens, in order of time; one ends before the next begins.
    pub events: Vec<Event>,
}

const LAWS: [&str; 3] = ["copa", "setpoint", "basic_delay"];
const QDISCS: [&str; 3] = ["sfq", "fq_codel", "fifo"];
/// Bytes of a packet in a buffer.
const PACKET_BITS: u64 = 1_500 * 8;

impl Sequence {
    /// The sequence of `seed`, the same every time. Seeds that follow each other begin with every kind of
    /// event in turn.
    pub fn draw(seed: u64, place: Place) -> Self {
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
        let mut events: Vec<Event> = Vec::new();
        let mut random = streams.stream("events");
        let mut kinds = kinds(place);
        let first = kinds.remove((seed % kinds.len() as u64) as usize);
        random.shuffle(&mut kinds);
        let wanted = 2 + random.below(3) as usize;
        let mut at_ms = FIRST_MS + random.below(500);
        for number in std::iter::once(first).chain(kinds) {
            let kind = Kind::draw(number, rate_mbit, &mut random);
            let until_ms = at_ms + kind.lasts_ms(&mut random);
            if events.len() == wanted || until_ms > LAST_MS {
                break;
            }
            events.push(Event { at_ms, until_ms, kind });
            at_ms = until_ms + GAP_MS + random.below(500);
        }
        let flows = [cubic, count - cubic];
        Self { seed, rate_mbit, rtt_ms, buffer_packets, law, qdisc, flows, load_percent, events }
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
        let Self { rate_mbit, rtt_ms, buffer_packets, law, qdisc, load_percent, .. } = self;
        let [cubic, reno] = self.flows;
        format!(
            "{rate_mbit} Mbit/s, {rtt_ms} ms, {buffer_packets} packets of buffer; {law} over {qdisc}; {cubic} \
             Cubic and {reno} Reno flows, {load_percent} % of requests"
        )
    }

    /// The sequence as a plan with the arms `status_quo` and `bundle`.
    pub fn plan(&self) -> String {
        let Self { seed, rate_mbit, rtt_ms, buffer_packets, law, qdisc, load_percent, .. } = self;
        let (stop_ms, clock) = (self.stop_ms(), self.clock());
        let mut text = format!(
            "name = \"chaos\"\ntitle = \"What happens with seed {seed}\"\nseeds = \"{seed}\"\n\
             stop = \"{stop_ms}ms\"\ndrain = \"2s\"\n\n\
             [bottleneck]\nrate = \"{rate_mbit}Mbit/s\"\nrtt = \"{rtt_ms}ms\"\n\
             qdisc = {{ kind = \"fifo\", limit = \"{buffer_packets}p\" }}\n\n\
             [[bundle]]\nname = \"a\"\ncc = \"{law}\"\nqdisc = {{ kind = \"{qdisc}\", limit = \"150ms\" }}\n\
             clock = \"{clock}\"\n\n\
             [[flow]]\nname = \"requests\"\nbundle = \"a\"\ncc = \"cubic\"\ntraffic = {{ kind = \
             \"requests\", sizes = \"10KB\", load = \"{load_percent}%\", connections = 8 }}\n\n\
             [[arm]]\nname = \"status_quo\"\nset = {{ bundle.a.enabled = false }}\n\n\
             [[arm]]\nname = \"bundle\"\n"
        );
        for (cc, count) in ["cubic", "reno"].into_iter().zip(self.flows).filter(|it| it.1 > 0) {
            let _ = write!(
                text,
                "\n[[flow]]\nname = \"{cc}\"\nbundle = \"a\"\ncc = \"{cc}\"\ncount = {count}\n\
                 traffic = {{ kind = \"greedy\" }}\n"
            );
        }
        self.events.iter().for_each(|event| event.write(&mut text));
        text
    }

    /// What the receivebox's clock does, as a plan says it.
    fn clock(&self) -> String {
        // Clocks of two machines never agree.
        let mut clock = format!("0s +{DRIFT_PPM}ppm");
        for Event { at_ms, until_ms, kind } in &self.events {
            let _ = match kind {
                Kind::Slew(ppm) => {
                    write!(clock, ", {at_ms}ms {ppm:+}ppm, {until_ms}ms +{DRIFT_PPM}ppm")
                }
                Kind::Step(ms) => write!(clock, ", {at_ms}ms {ms:+}ms"),
                _ => Ok(()),
            };
        }
        clock
    }
}

impl Event {
    /// Adds its tables to a plan.
    fn write(&self, text: &mut String) {
        let Self { at_ms, until_ms, kind } = *self;
        match kind {
            Kind::LinkDown => self.write_loss(text, 100),
            Kind::Loss(percent) => self.write_loss(text, percent),
            Kind::Route(rtt_ms) => {
                let _ = write!(
                    text,
                    "\n[[bottleneck.change]]\nat = \"{at_ms}ms\"\nrtt = \"{rtt_ms}ms\"\n"
                );
            }
            Kind::Kill(end) => write_faults(text, end, &[(at_ms, "kill"), (until_ms, "restart")]),
            Kind::Stop(end) => write_faults(text, end, &[(at_ms, "stop"), (until_ms, "continue")]),
            Kind::OtherKey(end) => write_faults(
                text,
                end,
                &[
                    (at_ms, "kill"),
                    (at_ms + RESTART_MS, "restart_other_key"),
                    (until_ms - RESTART_MS, "kill"),
                    (until_ms, "restart"),
                ],
            ),
            Kind::FullLog(end) => {
                write_faults(text, end, &[(at_ms, "kill"), (until_ms, "restart_full_log")]);
            }
            Kind::BlockedLog(end) => {
                write_faults(text, end, &[(at_ms, "kill"), (until_ms, "restart_blocked_log")]);
            }
            Kind::Unseen(percent) => {
                self.write_upsets(
                    text,
                    "b",
                    ["unseen", "unseen"],
                    [&format!("share = \"{percent}%\"\n"), "share = 0\n"],
                );
            }
            Kind::Forged(kbit) => {
                self.write_upsets(
                    text,
                    "b",
                    ["forged", "forged"],
                    [&format!("rate = \"{kbit}kbit/s\"\n"), "rate = \"0kbit/s\"\n"],
                );
            }
            Kind::DeviceDown(end) => self.write_upsets(text, end.site(), ["down", "up"], [""; 2]),
            Kind::LeaveBridge(end) => {
                self.write_upsets(text, end.site(), ["leave_bridge", "join_bridge"], [""; 2]);
            }
            Kind::Mtu(end, bytes) => {
                let first = format!("mtu = {bytes}\n");
                self.write_upsets(text, end.site(), ["mtu", "mtu"], [&first, "mtu = 1500\n"]);
            }
            Kind::Address(end) => {
                self.write_upsets(text, end.site(), ["address", "no_address"], [""; 2]);
            }
            Kind::Offloads(end) => {
                self.write_upsets(text, end.site(), ["offloads_on", "offloads_off"], [""; 2]);
            }
            Kind::Suspend => self.write_upsets(text, "b", ["suspend", "resume"], [""; 2]),
            // In the bundle's table.
            Kind::Slew(_) | Kind::Step(_) => {}
        }
    }

    /// Both directions lose `percent` of the packets from the beginning to the end.
    fn write_loss(&self, text: &mut String, percent: u64) {
        for link in ["bottleneck", "reverse"] {
            for (at_ms, percent) in [(self.at_ms, percent), (self.until_ms, 0)] {
                let _ = write!(
                    text,
                    "\n[[{link}.change]]\nat = \"{at_ms}ms\"\nloss = \"{percent}%\"\n"
                );
            }
        }
    }

    /// `what` at the beginning and at the end, each with its figures.
    fn write_upsets(&self, text: &mut String, site: &str, what: [&str; 2], figures: [&str; 2]) {
        for ((at_ms, what), figure) in
            [self.at_ms, self.until_ms].into_iter().zip(what).zip(figures)
        {
            let _ = write!(
                text,
                "\n[[upset]]\nat = \"{at_ms}ms\"\nbundle = \"a\"\nsite = \"{site}\"\nwhat = \"{what}\"\n{figure}"
            );
        }
    }
}

fn write_faults(text: &mut String, end: End, faults: &[(u64, &str)]) {
    for (at_ms, action) in faults {
        let _ = write!(
            text,
            "\n[[fault]]\nat = \"{at_ms}ms\"\nbundle = \"a\"\nend = \"{}\"\naction = \"{action}\"\n",
            end.name()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::plan::library::Source;

    const PLACES: [Place; 2] = [Place::Simulator, Place::Testbed];

    #[test]
    fn a_seed_gives_the_same_sequence_again_and_others_give_others() {
        for place in PLACES {
            assert_eq!(Sequence::draw(7, place), Sequence::draw(7, place));
            assert_ne!(Sequence::draw(7, place).plan(), Sequence::draw(8, place).plan());
        }
    }

    #[test]
    fn every_sequence_is_a_plan_with_two_arms_and_fits_its_time() {
        for place in PLACES {
            for seed in 0..200 {
                let sequence = Sequence::draw(seed, place);
                let source = Source { file: "chaos".into(), folder: None, text: sequence.plan() };
                let plan = Plan::from_source(source, &[]).unwrap();
                assert_eq!(plan.arms.len(), 2);
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
    fn every_kind_of_event_is_drawn_and_said_in_words() {
        for place in PLACES {
            let mut all: Vec<String> = Vec::new();
            for event in (0..200).flat_map(|seed| Sequence::draw(seed, place).events) {
                let debug = format!("{:?}", event.kind);
                all.push(debug.split('(').next().unwrap_or_default().to_string());
                assert!(event.words().starts_with(&format!("{} s: ", event.at_ms as f64 / 1e3)));
            }
            all.sort();
            all.dedup();
            assert_eq!(all.len(), kinds(place).len(), "{all:?}");
        }
    }

    #[test]
    fn what_the_clock_of_the_receivebox_does_stands_in_the_table_of_the_bundle() {
        let mut sequence = Sequence::draw(1, Place::Testbed);
        let event = |at_ms, until_ms, kind| Event { at_ms, until_ms, kind };
        sequence.events = vec![
            event(7_000, 12_000, Kind::Slew(-83_000)),
            event(18_000, 18_000, Kind::Step(3)),
            event(25_000, 25_000, Kind::Step(-30_000)),
        ];
        let expected =
            "0s +20ppm, 7000ms -83000ppm, 12000ms +20ppm, 18000ms +3ms, 25000ms -30000ms";
        assert!(sequence.plan().contains(&format!("clock = \"{expected}\"\n")));
        assert!(expected.parse::<forebay_core::clock::Clock>().is_ok());
        let words: Vec<String> = sequence.events.iter().map(Event::words).collect();
        assert_eq!(
            words,
            [
                "7 s: the receivebox's clock is slow by 83000 ppm for 5 s",
                "18 s: the receivebox's clock is put on by 0.003 s",
                "25 s: the receivebox's clock is put back by 30 s",
            ]
        );
    }

    #[test]
    fn a_back_end_gets_only_what_it_can_do() {
        for seed in 0..100 {
            let plan = Sequence::draw(seed, Place::Simulator).plan();
            for what in ["_log", "down", "bridge", "mtu", "address", "offloads"] {
                assert!(!plan.contains(what), "{seed}: {what}");
            }
            let plan = Sequence::draw(seed, Place::Testbed).plan();
            assert!(!plan.contains("suspend"), "{seed}");
        }
    }
}
