//! Reads packets one after the other, while a run goes on or when it is over.
//!
//! ```text
//!  order of departure   a packet goes through once one has arrived after it departed: all others do,
//!                       and depart, later
//!  queue over time      what each arrival saw, less what began to be sent since; a packet begins to be
//!                       sent when it has arrived and the one before it has left
//! ```
//! So packets wait here for about as long as they were on the link. Arrivals wait until all departures
//! up to them are known, for a packet that is lost behind the queue did not pass.

use std::collections::{BTreeMap, VecDeque};

use forebay_core::record::{Fate, PacketRecord};

use super::boundaries::{Boundary, Waits};
use super::{LinkTruth, Passed};
use crate::experiment::{Experiment, Window};

/// Reads the packets of the links of a path.
#[derive(Debug)]
pub struct Reader {
    links: Vec<LinkReader>,
    /// Links there and back of bundles.
    ways: Vec<[usize; 2]>,
}

impl Reader {
    /// For metrics of `windows`; `names` are those of the links, in the order in which they are numbered.
    pub fn new(experiment: &Experiment, windows: &[Window], names: &[&str]) -> Self {
        let link = |name: &&str| LinkReader::new(LinkTruth::new(name, windows, experiment.stop));
        let place = |name: &str| names.iter().position(|it| *it == name);
        let mut ways: Vec<[usize; 2]> = Vec::new();
        for bundle in &experiment.bundles {
            let mut names = experiment.way_names(&bundle.pair);
            names[..].rotate_left(usize::from(bundle.reversed));
            let way = place(&names[0]).zip(place(&names[1])).map(<[usize; 2]>::from);
            ways.extend(way.filter(|way| !ways.contains(way)));
        }
        let mut links: Vec<LinkReader> = names.iter().map(link).collect();
        for [_, back] in &ways {
            links[*back].waits = Some(Waits::default());
        }
        Self { links, ways }
    }

    /// Takes the next packet of link `index`, in order of arrival. `is_boundary`: estimates may be made
    /// from it.
    pub fn take(&mut self, index: usize, packet: &PacketRecord, is_boundary: bool) {
        self.links[index].take(packet, is_boundary);
    }

    /// No packet that is still to be taken of link `index` arrives before `not_before_ns[index]`: answers
    /// what can be answered, and forgets what nobody will ask for.
    pub fn settle(&mut self, not_before_ns: &[u64]) {
        for [there, back] in self.ways.clone() {
            let mut waits = self.links[back].waits.take().expect("a link back has them");
            let least = self.links[there].ask(&waits, Waits::is_known);
            waits.forget_before(least.min(not_before_ns[there]));
            self.links[back].waits = Some(waits);
        }
    }

    /// Packets, arrivals and waits that are kept for now.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        let waits = |it: &LinkReader| it.waits.as_ref().map_or(0, Waits::len);
        let of =
            |it: &LinkReader| it.passing.len() + it.begun.len() + it.arrivals.len() + waits(it);
        self.links.iter().map(of).sum()
    }

    /// What the packets said, by link.
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
    /// When packets began to be sent, after the last arrival that was settled.
    begun: VecDeque<u64>,
    /// Arrivals, and the queue that each left behind.
    arrivals: VecDeque<(u64, u32)>,
    queue: Steps,
    /// Bytes that left, by pair of sites.
    bytes: BTreeMap<u16, u64>,
    /// How many boundaries know what was waited on the link back.
    answered: usize,
    waits: Option<Waits>,
}

/// The queue as it goes on.
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
        // What departs later begins to be sent later than these came.
        self.settle_arrivals(self.last_departed_ns);
    }

    /// Takes a packet that departed; those that depart together go in order of arrival.
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

    /// A packet goes through, in order of departure.
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
            // The arrival's own count is after everything that happened at that instant.
            while self.begun.pop_front_if(|begun| *begun == at).is_some() {}
            self.queue.set(at, seen, &mut self.truth);
        }
    }

    /// No packet will come any more.
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

    /// Tells boundaries, in order, what was waited on the link back, as far as `is_known`. Gives a time
    /// before which no other will ask.
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

    /// The queue stayed as it is up to `at`.
    fn hold(&mut self, at: u64, truth: &mut LinkTruth) {
        truth.waiting.hold(self.since_ns, at, self.waiting);
        for window in &mut truth.windows {
            window.waiting.hold(self.since_ns, at.min(window.to), self.waiting);
        }
        self.since_ns = at;
    }

    /// The level stays as it is.
    fn close(&mut self, truth: &mut LinkTruth) {
        self.hold(u64::MAX, truth);
        for window in &mut truth.windows {
            window.queue.close();
            window.sojourns.close();
        }
        truth.boundaries.shrink_to_fit();
    }
}
