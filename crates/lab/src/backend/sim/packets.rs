//! The packets of the path, read during the run: a log of all would grow with rate and time.

use std::collections::HashSet;
use std::time::Duration;

use forebay_core::record::PacketRecord;
use forebay_sim::{FORWARD, OTHERS, Owner, Parts, Place, Simulation};

use super::Sight;
use crate::metrics::{LinkTruth, Reader, windows};
use crate::plan::Experiment;

/// Time between two looks.
pub(super) const INTERVAL: Duration = Duration::from_millis(10);

/// Takes packets out of the logs of a simulation.
pub(super) struct Packets {
    reader: Reader,
    /// The links that are read.
    pub links: Vec<usize>,
    /// Number of paths that merge into the first link.
    paths: usize,
    /// Pair of sites of each flow and of each bundle.
    of_flows: Vec<u16>,
    of_bundles: Vec<u16>,
    /// Identities of the sent boundaries, and how many of each bundle's are included.
    boundaries: HashSet<u64>,
    known: Vec<usize>,
}

impl Packets {
    /// A reader of the links of part `here`; without `parts`, of all links.
    pub fn new(
        experiment: &Experiment,
        places: &[Place],
        parts: Option<&Parts>,
        here: usize,
    ) -> Self {
        let windows: Vec<_> = windows(experiment, None).collect();
        let names: Vec<&str> = experiment.links().map(|link| link.name.as_str()).collect();
        let pair = |name: &str| {
            let place = experiment.pairs.iter().position(|pair| pair == name);
            place.map_or(u16::MAX, |place| place as u16)
        };
        let flows = places.iter().map(|place| pair(&experiment.flows[place.flow].pair));
        let bundles = experiment.bundles.iter().map(|bundle| pair(&bundle.pair));
        let is_here = |link: &usize| parts.is_none_or(|parts| parts.links[*link][0] == here);
        Self {
            links: (0..names.len()).filter(is_here).collect(),
            paths: experiment.paths.len(),
            reader: Reader::new(experiment, &windows, &names),
            of_flows: flows.collect(),
            of_bundles: bundles.collect(),
            boundaries: HashSet::new(),
            known: vec![0; experiment.bundles.len()],
        }
    }

    /// Reads the packets whose fate became final since the last call. `visit` receives them, too, and the
    /// events at endpoints.
    pub fn take(&mut self, simulation: &mut Simulation, visit: &mut impl FnMut(Sight<'_>)) {
        // A boundary is known before it arrives at a link.
        for (bundle, known) in self.known.iter_mut().enumerate() {
            let sent = simulation.bundle_log(bundle).map_or(&[][..], |log| log.boundaries());
            self.boundaries.extend(&sent[*known..]);
            *known = sent.len();
        }
        simulation.take_seen().into_iter().for_each(|seen| visit(Sight::AtEnd(seen)));
        for place in 0..self.links.len() {
            let link = self.links[place];
            simulation.take_packets(link, |owner, packet| self.read(link, owner, packet, visit));
        }
        // Only boundaries wait for other packets.
        if self.known.is_empty() {
            return;
        }
        let now = simulation.now();
        let oldest = |link| {
            let first = simulation.packet_log(link).next();
            first.map_or(now.as_nanos(), |(_, packet)| packet.arrived_ns)
        };
        let oldest: Vec<u64> = self.links.iter().copied().map(oldest).collect();
        self.reader.settle(&oldest);
    }

    /// Reads the packets still on the links, too. Links that are not read have results without packets.
    pub fn finish(
        mut self,
        simulation: &mut Simulation,
        visit: &mut impl FnMut(Sight<'_>),
    ) -> Vec<LinkTruth> {
        self.take(simulation, visit);
        for place in 0..self.links.len() {
            let link = self.links[place];
            let left = simulation.packet_log(link);
            left.for_each(|(owner, packet)| self.read(link, owner, packet, visit));
        }
        let mut truths = self.reader.finish();
        if self.paths > 0 {
            let (ends, others) = truths.split_at_mut(OTHERS);
            ends[FORWARD].take_paths(&others[..self.paths]);
        }
        truths
    }

    fn read(
        &mut self,
        link: usize,
        owner: Owner,
        packet: PacketRecord,
        visit: &mut impl FnMut(Sight<'_>),
    ) {
        let pair = match owner {
            Owner::Flow(flow) => self.of_flows[flow],
            // The experiment has no entry for bundles of a topology.
            Owner::Bundle(bundle) => self.of_bundles.get(bundle).copied().unwrap_or(u16::MAX),
        };
        let packet = PacketRecord { pair, ..packet };
        visit(Sight::OnLink(link, &packet));
        self.reader.take(link, &packet, self.boundaries.contains(&packet.identity));
    }
}
