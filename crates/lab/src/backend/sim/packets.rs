//! The packets of the path, read during the run: a log of all would grow with rate and time.

use std::collections::HashSet;
use std::time::Duration;

use forebay_core::record::PacketRecord;
use forebay_sim::{FORWARD, OTHERS, Owner, Place, Simulation};

use super::Sight;
use crate::metrics::{LinkTruth, Reader, windows};
use crate::plan::Experiment;

/// Time between two looks.
pub(super) const INTERVAL: Duration = Duration::from_millis(10);

/// Takes packets out of the logs of a simulation.
pub(super) struct Packets<V> {
    reader: Reader,
    /// Number of links.
    links: usize,
    /// Number of paths that merge into the first link.
    paths: usize,
    /// Pair of sites of each flow and of each bundle.
    of_flows: Vec<u16>,
    of_bundles: Vec<u16>,
    /// Identities of the sent boundaries, and how many of each bundle's are included.
    boundaries: HashSet<u64>,
    known: Vec<usize>,
    /// Receives every packet, too, and the events at endpoints.
    visit: V,
}

impl<V: FnMut(Sight<'_>)> Packets<V> {
    pub fn new(experiment: &Experiment, places: &[Place], visit: V) -> Self {
        let windows: Vec<_> = windows(experiment, None).collect();
        let names: Vec<&str> = experiment.links().map(|link| link.name.as_str()).collect();
        let pair = |name: &str| {
            let place = experiment.pairs.iter().position(|pair| pair == name);
            place.map_or(u16::MAX, |place| place as u16)
        };
        let flows = places.iter().map(|place| pair(&experiment.flows[place.flow].pair));
        let bundles = experiment.bundles.iter().map(|bundle| pair(&bundle.pair));
        Self {
            links: names.len(),
            paths: experiment.paths.len(),
            reader: Reader::new(experiment, &windows, &names),
            of_flows: flows.collect(),
            of_bundles: bundles.collect(),
            boundaries: HashSet::new(),
            known: vec![0; experiment.bundles.len()],
            visit,
        }
    }

    /// Reads the packets whose fate became final since the last call.
    pub fn take(&mut self, simulation: &mut Simulation) {
        // A boundary is known before it arrives at a link.
        for (bundle, known) in self.known.iter_mut().enumerate() {
            let sent = simulation.bundle_log(bundle).map_or(&[][..], |log| log.boundaries());
            self.boundaries.extend(&sent[*known..]);
            *known = sent.len();
        }
        simulation.take_seen().into_iter().for_each(|seen| (self.visit)(Sight::AtEnd(seen)));
        for link in 0..self.links {
            simulation.take_packets(link, |owner, packet| self.read(link, owner, packet));
        }
        let now = simulation.now();
        let oldest = |link| {
            let first = simulation.packet_log(link).next();
            first.map_or(now.as_nanos(), |(_, packet)| packet.arrived_ns)
        };
        let oldest: Vec<u64> = (0..self.links).map(oldest).collect();
        self.reader.settle(&oldest);
    }

    /// Reads the packets still on the links, too.
    pub fn finish(mut self, simulation: &mut Simulation) -> Vec<LinkTruth> {
        self.take(simulation);
        for link in 0..self.links {
            let left = simulation.packet_log(link);
            left.for_each(|(owner, packet)| self.read(link, owner, packet));
        }
        let mut truths = self.reader.finish();
        if self.paths > 0 {
            let (ends, others) = truths.split_at_mut(OTHERS);
            ends[FORWARD].take_paths(&others[..self.paths]);
        }
        truths
    }

    fn read(&mut self, link: usize, owner: Owner, packet: PacketRecord) {
        let pair = match owner {
            Owner::Flow(flow) => self.of_flows[flow],
            // The experiment has no entry for bundles of a topology.
            Owner::Bundle(bundle) => self.of_bundles.get(bundle).copied().unwrap_or(u16::MAX),
        };
        let packet = PacketRecord { pair, ..packet };
        (self.visit)(Sight::OnLink(link, &packet));
        self.reader.take(link, &packet, self.boundaries.contains(&packet.identity));
    }
}
