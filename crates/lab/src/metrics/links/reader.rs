//! Reads packets one after the other, during a run or after it.
//!
//! ```text
//! order of departure   a packet is passed on once another has arrived after its departure: all later
//!                      arrivals depart later
//! queue over time      the queue at each arrival, less the packets that began to be sent since; a packet
//!                      begins to be sent when it has arrived and the previous one has left
//! ```
//! Packets therefore stay here about as long as they were on the link. Arrivals stay until all departures up
//! to them are known, because a packet lost behind the queue did not pass.

use std::collections::{BTreeMap, VecDeque};

use forebay_core::record::{Fate, PacketRecord};
use forebay_scenario::Window;

use super::boundaries::{Boundary, Waits};
use super::{LinkTruth, Passed};
use crate::experiment::Experiment;

/// Reads the packets of the links of a path.
#[derive(Debug)]
pub struct Reader {
    links: Vec<LinkReader>,
    /// Link of a bundle's data and link back, by number.
    ways: Vec<[usize; 2]>,
}

impl Reader {
    /// A reader for metrics of `windows`; `names` are the names of the links, in the order of their numbers.
    pub fn new(experiment: &Experiment, windows: &[Window], names: &[&str]) -> Self {
        let link = |name: &&str| LinkReader::new(LinkTruth::new(name, windows, experiment.stop));
        let place = |name: &str| names.iter().position(|it| *it == name);
        let mut ways: Vec<[usize; 2]> = Vec::new();
        for bundle in &experiment.bundles {
            let mut links = experiment.ways(&bundle.pair);
            links[..].rotate_left(usize::from(bundle.reversed));
            let way = place(&links[0].name).zip(place(&links[1].name)).map(<[usize; 2]>::from);
            ways.extend(way.filter(|way| !ways.contains(way)));
        }
        let mut links: Vec<LinkReader> = names.iter().map(link).collect();
        for [_, back] in &ways {
            links[*back].waits = Some(Waits::default());
        }
        Self { links, ways }
    }

    /// Takes the next packet of link `index`, in order of arrival. `is_boundary`: boxes may estimate from it.
    pub fn take(&mut self, index: usize, packet: &PacketRecord, is_boundary: bool) {
        self.links[index].take(packet, is_boundary);
    }

    /// No further packet of link `index` will arrive before `not_before_ns[index]`. Completes the boundaries
    /// that can be completed, and drops waits that no boundary needs.
    pub fn settle(&mut self, not_before_ns: &[u64]) {
        for [there, back] in self.ways.clone() {
            let mut waits = self.links[back].waits.take().expect("a link back has them");
            let least = self.links[there].ask(&waits, Waits::is_known);
            waits.forget_before(least.min(not_before_ns[there]));
            self.links[back].waits = Some(waits);
        }
    }

    /// Packets, arrivals and waits in memory.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        let waits = |it: &LinkReader| it.waits.as_ref().map_or(0, Waits::len);
        let of =
            |it: &LinkReader| it.passing.len() + it.begun.len() + it.arrivals.len() + waits(it);
        self.links.iter().map(of).sum()
    }

    /// The results of all packets, by link.
    pub fn finish(mut self) -> Vec<LinkTruth> {
        self.links.iter_mut().for_each(LinkReader::finish);
        for [there, back] in self.ways {
            let waits = self.links[back].waits.take().expect("a link back has them");
            self.links[there].ask(&waits, |_, _| true);
            self.links[back].waits = Some(waits);
        }
        self.links.into_iter().map(|link| link.truth).collect()
    }
}

#[derive(Debug)]
struct LinkReader {
    truth: LinkTruth,
    /// Packets that passed, in order of departure.
    passing: VecDeque<Passed>,
    last_departed_ns: u64,
    /// When packets began to be sent, after the last settled arrival.
    begun: VecDeque<u64>,
    /// Arrivals, and the queue after each.
    arrivals: VecDeque<(u64, u32)>,
    queue: Steps,
    /// Bytes that left, by pair of sites.
    bytes: BTreeMap<u16, u64>,
    /// Number of boundaries with a known wait on the link back.
    answered: usize,
    waits: Option<Waits>,
}

/// The queue as a step function.
#[derive(Debug, Default)]
struct Steps {
    waiting: u32,
    since_ns: u64,
}

impl LinkReader {
    fn new(truth: LinkTruth) -> Self {
        Self {
            truth,
            passing: VecDeque::new(),
            last_departed_ns: 0,
            begun: VecDeque::new(),
            arrivals: VecDeque::new(),
            queue: Steps::default(),
            bytes: BTreeMap::new(),
            answered: 0,
            waits: None,
        }
    }

    fn take(&mut self, packet: &PacketRecord, is_boundary: bool) {
        self.arrivals.push_back((packet.arrived_ns, packet.queue_packets));
        match packet.fate {
            // A packet still in the queue at the end of the log has not departed.
            Fate::Delivered if packet.departed_ns == 0 => {}
            Fate::Delivered => self.put(Passed {
                arrived_ns: packet.arrived_ns,
                departed_ns: packet.departed_ns,
                released_ns: packet.released_ns,
                identity: packet.identity,
                is_boundary,
                bytes: packet.bytes,
                pair: packet.pair,
                marked: packet.marked,
            }),
            Fate::Inside => {}
            fate => {
                let windows = self.truth.windows.iter_mut();
                windows.for_each(|window| window.end(packet.arrived_ns, fate));
            }
        }
        while let Some(passed) = self.passing.pop_front_if(|it| it.departed_ns <= packet.arrived_ns)
        {
            self.pass(&passed);
        }
        // Later departures begin to be sent after these arrivals.
        self.settle_arrivals(self.last_departed_ns);
    }

    /// Takes a packet that departed; simultaneous departures stay in order of arrival.
    fn put(&mut self, passed: Passed) {
        if let Some(waits) = &mut self.waits {
            waits.push(passed.arrived_ns, passed.sojourn_ns());
        }
        if self.passing.back().is_none_or(|last| last.departed_ns <= passed.departed_ns) {
            self.passing.push_back(passed);
        } else {
            let place = self.passing.partition_point(|it| it.departed_ns <= passed.departed_ns);
            self.passing.insert(place, passed);
        }
    }

    /// Passes a packet on, in order of departure.
    fn pass(&mut self, passed: &Passed) {
        self.begun.push_back(passed.arrived_ns.max(self.last_departed_ns));
        self.last_departed_ns = passed.departed_ns;
        let bytes = self.bytes.entry(passed.pair).or_default();
        *bytes += u64::from(passed.bytes);
        if passed.is_boundary {
            self.truth.boundaries.push(Boundary {
                identity: passed.identity,
                pair: passed.pair,
                departed_ns: passed.departed_ns,
                released_ns: passed.released_ns,
                sojourn_ns: passed.sojourn_ns(),
                bytes: *bytes,
                waited_ns: 0,
            });
        }
        self.truth.carried.add(passed.departed_ns, passed.bytes.into());
        self.truth.windows.iter_mut().for_each(|window| window.pass(passed));
    }

    /// Settles the queue at the arrivals before `until_ns`.
    fn settle_arrivals(&mut self, until_ns: u64) {
        while let Some((at, seen)) = self.arrivals.pop_front_if(|(at, _)| *at < until_ns) {
            while let Some(begun) = self.begun.pop_front_if(|begun| *begun < at) {
                self.queue.set(begun, self.queue.waiting.saturating_sub(1), &mut self.truth);
            }
            // The queue recorded at the arrival already covers all events of that instant.
            while self.begun.pop_front_if(|begun| *begun == at).is_some() {}
            self.queue.set(at, seen, &mut self.truth);
        }
    }

    /// Ends the log: no packet follows.
    fn finish(&mut self) {
        while let Some(passed) = self.passing.pop_front() {
            self.pass(&passed);
        }
        self.settle_arrivals(u64::MAX);
        while let Some(begun) = self.begun.pop_front() {
            self.queue.set(begun, self.queue.waiting.saturating_sub(1), &mut self.truth);
        }
        self.queue.close(&mut self.truth);
    }

    /// Sets the wait on the link back of boundaries, in order, as far as `is_known`. Returns a time; no later
    /// boundary needs an earlier wait.
    fn ask(&mut self, back: &Waits, is_known: impl Fn(&Waits, u64) -> bool) -> u64 {
        for boundary in &mut self.truth.boundaries[self.answered..] {
            if !is_known(back, boundary.released_ns) {
                break;
            }
            boundary.waited_ns = back.after(boundary.released_ns).unwrap_or(0);
            self.answered += 1;
        }
        let asking = self.truth.boundaries[self.answered..].iter().map(|it| it.released_ns);
        // A packet is released after it has departed.
        let passing = self.passing.front().map(|it| it.departed_ns);
        asking.chain(passing).min().unwrap_or(u64::MAX)
    }
}

impl Steps {
    /// The queue is `waiting` from `at` on. A link whose queue stays empty has no step at all.
    fn set(&mut self, at: u64, waiting: u32, truth: &mut LinkTruth) {
        if waiting == self.waiting {
            return;
        }
        self.hold(at, truth);
        truth.windows.iter_mut().for_each(|window| window.queue.set(at, waiting));
        self.waiting = waiting;
    }

    /// The queue is unchanged up to `at`.
    fn hold(&mut self, at: u64, truth: &mut LinkTruth) {
        truth.waiting.hold(self.since_ns, at, self.waiting);
        for window in &mut truth.windows {
            window.waiting.hold(self.since_ns, at.min(window.to), self.waiting);
        }
        self.since_ns = at;
    }

    /// The queue is unchanged to the end.
    fn close(&mut self, truth: &mut LinkTruth) {
        self.hold(u64::MAX, truth);
        for window in &mut truth.windows {
            window.queue.close();
            window.sojourns.close();
        }
        truth.boundaries.shrink_to_fit();
    }
}
