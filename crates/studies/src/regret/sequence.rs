//! A path, the traffic of a site, and the changes there, drawn from a seed alone.

use std::fmt::Write as _;

use forebay_core::random::{Stream, Streams};

/// End of all traffic (ms). If halved, a sequence has two changes instead of four.
pub const TRAFFIC_MS: u64 = 120_000;
/// End of the run (ms): the later run sends until a moment after [`TRAFFIC_MS`].
const STOP_MS: u64 = TRAFFIC_MS + 1_000;
/// Least time between two changes (ms).
const GAP_MIN_MS: u64 = 20_000;
/// Greatest time between two changes (ms).
const GAP_MAX_MS: u64 = 40_000;
/// Latest time of a change (ms), so that one whole window follows the last one.
const LAST_MS: u64 = TRAFFIC_MS - 20_000;
/// Each connection starts later by a random share of this (ms).
const START_JITTER_MS: u64 = 100;
/// Replaces [`START_JITTER_MS`] in the later run (ms): its connections start up to 2 ms later, 1 ms in the mean.
const LATER_JITTER_MS: u64 = START_JITTER_MS + 2;
/// Interval between changes while the rate swings (ms).
const SWING_MS: u64 = 1_000;
/// Most cross traffic of different kinds at a time.
const CROSS_MAX: usize = 2;
/// Least rate of limits without effect: more than six times the fastest path's.
const UNLIMITED: &str = "1Gbit/s";
/// Bytes of a packet in a bandwidth-delay product, as in plans.
const BDP_PACKET_BYTES: f64 = 1_500.0;
/// A buffer of fewer packets is a broken link.
const BUFFER_MIN_PACKETS: u64 = 10;

/// The queue of the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Drops at the tail (packets).
    Fifo(u64),
    /// CoDel with its defaults.
    Codel,
    /// FQ-CoDel with its defaults.
    FqCodel,
}

/// Delay that varies without a queue, throughout a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegretUnsteady {
    /// The delay does not vary.
    No,
    /// Each packet takes up to this longer (ms).
    Jitter(u64),
    /// Packets leave at whole multiples of this (ms), as on a link that waits for its turn.
    Turns(u64),
}

/// Cross traffic of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegretCross {
    /// Flows that always have data: congestion control and count.
    Bulk(&'static str, u64),
    /// Requests: load (percent of the first rate).
    Web(u64),
    /// Clients that play a video: count.
    Video(u64),
    /// Datagrams at a constant rate: load (percent of the first rate).
    Constant(u64),
}

/// Cross traffic, and when it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Kind of cross traffic.
    pub cross: RegretCross,
    /// When it arrives (ms since the start of the run).
    pub from_ms: u64,
    /// When it leaves (ms since the start of the run).
    pub until_ms: u64,
    /// First round trip of the cross traffic without a queue (1 to 2 times the site's, ms). If round trips were equal,
    /// the order in which packets of one instant reach the queue would decide which flow loses packets.
    pub rtt_ms: u64,
}

/// Kind of change at the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The rate steps to another one (kbit/s).
    Rate(u64),
    /// The route changes: another round trip (ms).
    Rtt(u64),
    /// The rate takes each of these values in turn for [`SWING_MS`]; the last is the one before (kbit/s).
    Swing(Vec<u64>),
}

/// A change of the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegretEvent {
    /// When it happens or begins (ms since the start of the run).
    pub at_ms: u64,
    /// Kind of the change.
    pub kind: ChangeKind,
}

/// A path, the traffic of a site, and the changes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegretSequence {
    /// Seed from which the sequence was drawn, and of its runs.
    pub seed: u64,
    /// First rate of the bottleneck (5,000 to 100,000 kbit/s).
    pub rate_kbit: u64,
    /// First round trip without a queue (10 to 200 ms).
    pub rtt_ms: u64,
    /// Queue of the bottleneck.
    pub queue: Queue,
    /// Delay without a queue.
    pub unsteady: RegretUnsteady,
    /// Bulk flows of the site: 0, 1, 3 or 20.
    pub bulk: u64,
    /// Load of the site's requests (0, or 10 to 50 percent of the first rate).
    pub web_percent: u64,
    /// Cross traffic.
    pub visits: Vec<Visit>,
    /// Changes of the link, in order of time.
    pub events: Vec<RegretEvent>,
}

impl RegretSequence {
    /// The sequence of `seed`, the same every time.
    pub fn draw(seed: u64) -> Self {
        let streams = Streams::new(seed).part("regret");
        let mut random = streams.stream("path");
        let rate_kbit = (log_uniform(&mut random, 5e3, 100e3) / 100.0).round() as u64 * 100;
        let rtt_ms = log_uniform(&mut random, 10.0, 200.0).round() as u64;
        let queue = queue(&mut random, rate_kbit, rtt_ms);
        let unsteady = unsteady(&mut random);
        let (bulk, web_percent) = inside(&mut random);
        let (visits, events) = (Vec::new(), Vec::new());
        let mut sequence =
            Self { seed, rate_kbit, rtt_ms, queue, unsteady, bulk, web_percent, visits, events };
        sequence.draw_changes(&mut streams.stream("changes"));
        sequence
    }

    fn draw_changes(&mut self, random: &mut Stream) {
        let mut present: Vec<usize> = Vec::new();
        if random.chance(0.5) {
            self.arrive(0, &mut present, random);
        }
        let mut rate_kbit = self.rate_kbit;
        let mut at_ms = gap_ms(random);
        while at_ms <= LAST_MS {
            let next_ms = at_ms + gap_ms(random);
            let kind = match random.below(10) {
                0..=2 => {
                    let factor = log_uniform(random, 0.4, 1.6);
                    rate_kbit = (self.rate_kbit as f64 * factor / 100.0).round() as u64 * 100;
                    Some(ChangeKind::Rate(rate_kbit))
                }
                3..=4 => {
                    let rtt_ms = self.rtt_ms as f64 * log_uniform(random, 0.5, 2.0);
                    Some(ChangeKind::Rtt(rtt_ms.round() as u64))
                }
                5 => Some(ChangeKind::Swing(swing(
                    random,
                    rate_kbit,
                    next_ms.min(TRAFFIC_MS) - at_ms,
                ))),
                _ => {
                    self.come_or_go(at_ms, &mut present, random);
                    None
                }
            };
            self.events.extend(kind.map(|kind| RegretEvent { at_ms, kind }));
            at_ms = next_ms;
        }
    }

    /// Cross traffic arrives or leaves.
    fn come_or_go(&mut self, at_ms: u64, present: &mut Vec<usize>, random: &mut Stream) {
        let leaves = present.len() == CROSS_MAX || !present.is_empty() && random.chance(0.5);
        if leaves {
            let place = present.swap_remove(random.below(present.len() as u64) as usize);
            self.visits[place].until_ms = at_ms;
        } else {
            self.arrive(at_ms, present, random);
        }
    }

    fn arrive(&mut self, from_ms: u64, present: &mut Vec<usize>, random: &mut Stream) {
        present.push(self.visits.len());
        let cross = cross(random);
        let rtt_ms = (self.rtt_ms as f64 * log_uniform(random, 1.0, 2.0)).ceil() as u64;
        self.visits.push(Visit { cross, from_ms, until_ms: TRAFFIC_MS, rtt_ms });
    }

    /// The path and the site's traffic in words.
    pub fn words(&self) -> String {
        let queue = match self.queue {
            Queue::Fifo(packets) => format!("FIFO of {packets} packets"),
            Queue::Codel => "CoDel".into(),
            Queue::FqCodel => "FQ-CoDel".into(),
        };
        let unsteady = match self.unsteady {
            RegretUnsteady::No => String::new(),
            RegretUnsteady::Jitter(ms) => format!(", jitter {ms} ms"),
            RegretUnsteady::Turns(ms) => format!(", turns of {ms} ms"),
        };
        let mut inside = Vec::new();
        if self.bulk > 0 {
            inside.push(format!("{} bulk", self.bulk));
        }
        if self.web_percent > 0 {
            inside.push(format!("{} % web", self.web_percent));
        }
        format!(
            "{} Mbit/s, {} ms, {queue}{unsteady}; inside: {}",
            mbit(self.rate_kbit),
            self.rtt_ms,
            inside.join(" and ")
        )
    }

    /// The changes and their times, in words, in order of time.
    pub fn changes(&self) -> Vec<String> {
        let link = self.events.iter().map(|event| (event.at_ms, event.kind.words()));
        let cross = self.visits.iter().flat_map(|visit| {
            let words = format!("{} ({} ms)", visit.cross.words(), visit.rtt_ms);
            let arrives = (visit.from_ms, format!("{words} arrive"));
            let leaves =
                (visit.until_ms < TRAFFIC_MS).then(|| (visit.until_ms, format!("{words} leave")));
            std::iter::once(arrives).chain(leaves)
        });
        let mut all: Vec<(u64, String)> = link.chain(cross).collect();
        all.sort_by_key(|(at_ms, _)| *at_ms);
        all.into_iter().map(|(at_ms, words)| format!("{} s: {words}", seconds(at_ms))).collect()
    }

    /// The sequence as a plan with the arms `status_quo`, `status_quo_later`, `boxes_unlimited` and `boxes`.
    pub fn plan(&self) -> String {
        let Self { seed, rtt_ms, .. } = self;
        let rate = mbit(self.rate_kbit);
        let queue = match self.queue {
            Queue::Fifo(packets) => format!("{{ kind = \"fifo\", limit = \"{packets}p\" }}"),
            Queue::Codel => "{ kind = \"codel\" }".into(),
            Queue::FqCodel => "{ kind = \"fq_codel\" }".into(),
        };
        let mut text = format!(
            "name         = \"regret-{seed}\"\n\
             title        = \"A sequence of paths and cross traffic, seed {seed}\"\n\
             seeds        = \"{seed}\"\n\
             stop         = \"{STOP_MS}ms\"\n\
             drain        = \"1s\"\n\
             start_jitter = \"{START_JITTER_MS}ms\"\n\n\
             [bottleneck]\n\
             rate   = \"{rate}Mbit/s\"\n\
             rtt    = \"{rtt_ms}ms\"\n\
             qdisc  = {queue}\n"
        );
        match self.unsteady {
            RegretUnsteady::No => {}
            RegretUnsteady::Jitter(ms) => text += &format!("jitter = \"{ms}ms\"\n"),
            RegretUnsteady::Turns(ms) => text += &format!("batch  = \"{ms}ms\"\n"),
        }
        self.events.iter().for_each(|event| event.write(&mut text));
        self.write_inside(&mut text);
        for (number, visit) in (1..).zip(&self.visits) {
            self.write_visit(&mut text, number, visit);
        }
        text + &format!(
            "\n[[bundle]]\nname = \"a\"\ncc   = \"copa\"\n\
             \n[[arm]]\nname    = \"status_quo\"\nsummary = \"no boxes\"\n\
             set     = {{ bundle.a.enabled = false }}\n\
             \n[[arm]]\nname    = \"status_quo_later\"\n\
             summary = \"no boxes; each connection starts up to 2 ms later\"\n\
             set     = {{ bundle.a.enabled = false, start_jitter = \"{LATER_JITTER_MS}ms\" }}\n\
             \n[[arm]]\nname    = \"boxes_unlimited\"\nsummary = \"boxes whose limits are above any rate here\"\n\
             set     = {{ bundle.a.min_rate = \"{UNLIMITED}\" }}\n\
             \n[[arm]]\nname    = \"boxes\"\nsummary = \"a bundle with all defaults\"\n"
        )
    }

    fn write_inside(&self, text: &mut String) {
        let mut flow = |name: &str, traffic: &str| {
            let _ = write!(
                text,
                "\n[[flow]]\nname    = \"{name}\"\nbundle  = \"a\"\nstop    = \"{TRAFFIC_MS}ms\"\n{traffic}\n"
            );
        };
        if self.bulk > 0 {
            flow(BULK, &format!("count   = {}\ntraffic = {{ kind = \"greedy\" }}", self.bulk));
        }
        if self.web_percent > 0 {
            flow(WEB, &self.web(self.web_percent));
        }
        flow(PING, "traffic = { kind = \"ping\" }");
    }

    fn write_visit(&self, text: &mut String, number: usize, visit: &Visit) {
        let traffic = match visit.cross {
            RegretCross::Bulk(cc, count) => {
                format!("cc      = \"{cc}\"\ncount   = {count}\ntraffic = {{ kind = \"greedy\" }}")
            }
            RegretCross::Web(percent) => self.web(percent),
            RegretCross::Video(count) => {
                format!("count   = {count}\ntraffic = {{ kind = \"video\" }}")
            }
            RegretCross::Constant(percent) => {
                let kbit = self.rate_kbit * percent / 100;
                format!("traffic = {{ kind = \"cbr\", rate = \"{kbit}kbit/s\" }}")
            }
        };
        let Visit { from_ms, until_ms, rtt_ms, .. } = visit;
        let _ = write!(
            text,
            "\n[[flow]]\nname    = \"cross-{number}\"\nstart   = \"{from_ms}ms\"\nstop    = \"{until_ms}ms\"\n\
             rtt     = \"{rtt_ms}ms\"\n{traffic}\n"
        );
    }

    /// Requests whose arrivals do not depend on how long requests are made.
    fn web(&self, percent: u64) -> String {
        let kbit = self.rate_kbit * percent / 100;
        format!(
            "traffic = {{ kind = \"requests\", sizes = \"caida_1mb\", load = \"{kbit}kbit/s\", connections = 40, \
             sampling = \"iid\" }}"
        )
    }
}

/// Name of the site's bulk flows in plans.
pub const BULK: &str = "bulk";
/// Name of the site's requests in plans.
pub const WEB: &str = "web";
/// Name of the site's sparse flow in plans.
pub const PING: &str = "ping";

impl RegretCross {
    fn words(&self) -> String {
        match self {
            Self::Bulk(cc, count) => format!("{count} {cc} outside"),
            Self::Web(percent) => format!("requests of {percent} % outside"),
            Self::Video(count) => format!("{count} videos outside"),
            Self::Constant(percent) => format!("datagrams of {percent} % outside"),
        }
    }
}

impl ChangeKind {
    fn words(&self) -> String {
        match self {
            Self::Rate(kbit) => format!("the rate becomes {} Mbit/s", mbit(*kbit)),
            Self::Rtt(ms) => format!("the round trip becomes {ms} ms"),
            Self::Swing(kbit) => {
                let (least, most) = (kbit.iter().min(), kbit.iter().max());
                let [least, most] = [least, most].map(|it| mbit(*it.unwrap_or(&0)));
                let lasts_s = seconds(SWING_MS * kbit.len() as u64);
                format!("for {lasts_s} s the rate swings from {least} to {most} Mbit/s")
            }
        }
    }
}

impl RegretEvent {
    fn write(&self, text: &mut String) {
        let mut change = |at_ms: u64, key: &str, value: String| {
            let _ = write!(
                text,
                "\n[[bottleneck.change]]\nat   = \"{at_ms}ms\"\n{key} = \"{value}\"\n"
            );
        };
        match &self.kind {
            ChangeKind::Rate(kbit) => change(self.at_ms, "rate", format!("{kbit}kbit/s")),
            ChangeKind::Rtt(ms) => change(self.at_ms, "rtt", format!("{ms}ms")),
            ChangeKind::Swing(all) => {
                for (step, kbit) in (0..).zip(all) {
                    change(self.at_ms + step * SWING_MS, "rate", format!("{kbit}kbit/s"));
                }
            }
        }
    }
}

fn queue(random: &mut Stream, rate_kbit: u64, rtt_ms: u64) -> Queue {
    let kind = random.unit();
    let bdp_packets = rate_kbit as f64 / 8.0 * rtt_ms as f64 / BDP_PACKET_BYTES;
    let deep = (bdp_packets * log_uniform(random, 0.5, 4.0)).round() as u64;
    let shallow = BUFFER_MIN_PACKETS + random.below(31);
    match kind {
        ..0.7 => Queue::Fifo(deep.max(BUFFER_MIN_PACKETS)),
        ..0.8 => Queue::Fifo(shallow),
        ..0.9 => Queue::Codel,
        _ => Queue::FqCodel,
    }
}

fn unsteady(random: &mut Stream) -> RegretUnsteady {
    let kind = random.unit();
    let ms = log_uniform(random, 1.0, 20.0).round() as u64;
    match kind {
        ..0.15 => RegretUnsteady::Jitter(ms),
        ..0.25 => RegretUnsteady::Turns(ms),
        _ => RegretUnsteady::No,
    }
}

/// Bulk flows, and the load of requests (percent).
fn inside(random: &mut Stream) -> (u64, u64) {
    let kind = random.unit();
    let bulk = [1, 3, 20][random.below(3) as usize];
    let web_percent = 10 + random.below(41);
    match kind {
        ..0.45 => (bulk, 0),
        ..0.65 => (0, web_percent),
        _ => (bulk, web_percent),
    }
}

fn cross(random: &mut Stream) -> RegretCross {
    let count = [1, 3, 10][random.below(3) as usize];
    let percent = 10 + random.below(51);
    match random.below(8) {
        0 | 1 => RegretCross::Bulk("cubic", count),
        2 => RegretCross::Bulk("reno", count),
        3 => RegretCross::Bulk("bbr", count),
        4 => RegretCross::Bulk("bbr3", count),
        5 => RegretCross::Web(percent),
        6 => RegretCross::Video(count),
        _ => RegretCross::Constant(percent / 2),
    }
}

/// Rates in steps of [`SWING_MS`] for at most `lasts_ms`, 0.4 to 1 times `rate_kbit`, and that again.
fn swing(random: &mut Stream, rate_kbit: u64, lasts_ms: u64) -> Vec<u64> {
    let steps = (lasts_ms / SWING_MS).saturating_sub(2);
    let mut all: Vec<u64> = (0..steps)
        .map(|_| (rate_kbit as f64 * (0.4 + 0.6 * random.unit()) / 100.0).round() as u64 * 100)
        .collect();
    all.push(rate_kbit);
    all
}

fn gap_ms(random: &mut Stream) -> u64 {
    GAP_MIN_MS + random.below(GAP_MAX_MS - GAP_MIN_MS + 1)
}

fn log_uniform(random: &mut Stream, min: f64, max: f64) -> f64 {
    min * (max / min).powf(random.unit())
}

fn mbit(kbit: u64) -> f64 {
    kbit as f64 / 1e3
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_lab::plan::Plan;
    use forebay_lab::plan::library::Source;

    fn all() -> impl Iterator<Item = RegretSequence> {
        (1..=200).map(RegretSequence::draw)
    }

    #[test]
    fn a_seed_gives_the_same_sequence_again() {
        assert_eq!(RegretSequence::draw(7), RegretSequence::draw(7));
        assert_ne!(RegretSequence::draw(7).plan(), RegretSequence::draw(8).plan());
    }

    #[test]
    fn every_sequence_is_a_plan() {
        for sequence in all() {
            let source = Source { file: "regret".into(), folder: None, text: sequence.plan() };
            let plan = Plan::from_source(source, &[]).unwrap();
            let arms: Vec<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
            assert_eq!(arms, ["status_quo", "status_quo_later", "boxes_unlimited", "boxes"]);
            let bundles = |arm: usize| {
                let run = plan.experiment(&plan.arms[arm], &plan.cells[0], sequence.seed);
                run.unwrap().bundles.len()
            };
            assert_eq!([0, 1, 2, 3].map(bundles), [0, 0, 1, 1]);
        }
    }

    #[test]
    fn changes_keep_their_distance_and_bounds() {
        for sequence in all() {
            let seed = sequence.seed;
            assert!((5_000..=100_000).contains(&sequence.rate_kbit), "{seed}");
            assert!((10..=200).contains(&sequence.rtt_ms), "{seed}");
            assert!(sequence.bulk + sequence.web_percent > 0, "{seed}");
            let ends = sequence.visits.iter().flat_map(|it| [it.from_ms, it.until_ms]);
            let mut times: Vec<u64> =
                sequence.events.iter().map(|it| it.at_ms).chain(ends).collect();
            times.retain(|at_ms| (1..TRAFFIC_MS).contains(at_ms));
            times.sort_unstable();
            assert!((2..=5).contains(&times.len()), "{seed}: {times:?}");
            assert!(times.windows(2).all(|it| it[1] - it[0] >= GAP_MIN_MS), "{seed}: {times:?}");
        }
    }

    #[test]
    fn every_kind_of_path_and_change_occurs() {
        let text: String =
            all().map(|it| format!("{}\n{}\n", it.words(), it.changes().join("\n"))).collect();
        for word in [
            "FIFO of",
            "; inside: 20 bulk and ",
            "CoDel",
            "FQ-CoDel",
            "jitter",
            "turns",
            "the rate becomes",
            "the round trip becomes",
            "the rate swings",
            "cubic outside",
            "leave",
            "bbr outside",
            "bbr3 outside",
            "requests of",
            "videos outside",
            "datagrams of",
        ] {
            assert!(text.contains(word), "{word}");
        }
    }

    #[test]
    fn later_runs_have_the_same_requests() {
        let sequence = all().find(|it| it.web_percent > 0).unwrap();
        let source = Source { file: "regret".into(), folder: None, text: sequence.plan() };
        let plan = Plan::from_source(source, &[]).unwrap();
        let requests = |arm: usize| {
            let run = plan.experiment(&plan.arms[arm], &plan.cells[0], sequence.seed).unwrap();
            let web = run.flows.iter().find(|flow| flow.name == WEB).unwrap();
            (web.start, run.schedule(web).unwrap().unwrap().requests().to_vec())
        };
        let [(start, first), (later_start, later)] = [requests(0), requests(1)];
        assert!(later_start > start && (later_start - start).as_millis() < 2);
        assert!(first.len() > 100 && first.len().abs_diff(later.len()) <= 1);
        let moved =
            |(one, other): (&forebay_core::traffic::Request, &forebay_core::traffic::Request)| {
                one.size == other.size && one.at.abs_diff(other.at).as_micros() < 100
            };
        assert!(first.iter().zip(&later).all(moved));
    }
}
