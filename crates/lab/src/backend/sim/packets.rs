//! The packets of the path, read as the run goes: a log of all would grow with rate and time.

use std::collections::HashSet;
use std::time::Duration;

use forebay_sim::{Fate, Owner, PacketRecord, Simulation};

use super::setup::{FORWARD, Place, link_names};
use crate::metrics::{LinkTruth, Reader, windows};
use crate::plan::Experiment;
use crate::rows::{self, PacketRow};

/// Time between two looks.
pub(super) const INTERVAL: Duration = Duration::from_millis(10);

/// Takes packets out of the logs of a simulation.
pub(super) struct Packets<V> {
    reader: Reader,
    /// How many links there are.
    links: usize,
    has_paths: bool,
    /// Pairs of sites, of flows and of bundles.
    of_flows: Vec<u16>,
    of_bundles: Vec<u16>,
    /// Identities of the boundaries that were sent, and how many of each bundle are among them.
    boundaries: HashSet<u64>,
    known: Vec<usize>,
    /// Is told of every packet, too.
    visit: V,
}

impl<V: FnMut(usize, &PacketRow)> Packets<V> {
    pub fn new(experiment: &Experiment, places: &[Place], visit: V) -> Self {
        let windows: Vec<_> = windows(experiment, None).collect();
        let names = link_names(experiment);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let pair = |name: &str| {
            let place = experiment.pairs.iter().position(|pair| pair == name);
            place.map_or(u16::MAX, |place| place as u16)
        };
        let flows = places.iter().map(|place| pair(&experiment.flows[place.flow].pair));
        let bundles = experiment.bundles.iter().map(|bundle| pair(&bundle.pair));
        Self {
            links: names.len(),
            has_paths: !experiment.paths.is_empty(),
            reader: Reader::new(experiment, &windows, &names),
            of_flows: flows.collect(),
            of_bundles: bundles.collect(),
            boundaries: HashSet::new(),
            known: vec![0; experiment.bundles.len()],
            visit,
        }
    }

    /// Reads the packets that have come to their end since the last time.
    pub fn take(&mut self, simulation: &mut Simulation) {
        // A boundary is known before it comes to a link.
        for (bundle, known) in self.known.iter_mut().enumerate() {
            let sent = simulation.bundle_log(bundle).map_or(&[][..], |log| log.boundaries());
            self.boundaries.extend(&sent[*known..]);
            *known = sent.len();
        }
        for link in 0..self.links {
            simulation.take_packets(link, |packet| self.read(link, packet));
        }
        let now = simulation.now();
        let oldest = |link| simulation.packet_log(link).next().map_or(now, |packet| packet.arrived);
        let oldest: Vec<u64> = (0..self.links).map(|link| oldest(link).as_nanos()).collect();
        self.reader.settle(&oldest);
    }

    /// Reads those that are still on the links, too.
    pub fn finish(mut self, simulation: &mut Simulation) -> Vec<LinkTruth> {
        self.take(simulation);
        for link in 0..self.links {
            simulation.packet_log(link).for_each(|packet| self.read(link, &packet));
        }
        let mut truths = self.reader.finish();
        if self.has_paths {
            let paths = truths.split_off(FORWARD + 2);
            truths[FORWARD].take_paths(&paths);
            truths.extend(paths);
        }
        truths
    }

    fn read(&mut self, link: usize, packet: &PacketRecord) {
        let pair = match packet.owner {
            Owner::Flow(flow) => self.of_flows[flow],
            Owner::Bundle(bundle) => self.of_bundles[bundle],
        };
        let row = packet_row(packet, pair);
        (self.visit)(link, &row);
        self.reader.take(link, &row, self.boundaries.contains(&row.identity));
    }
}

fn packet_row(packet: &PacketRecord, pair: u16) -> PacketRow {
    PacketRow {
        arrived_ns: packet.arrived.as_nanos(),
        departed_ns: packet.departed.map_or(0, |at| at.as_nanos().max(1)),
        released_ns: packet.released.map_or(0, |at| at.as_nanos().max(1)),
        identity: packet.identity,
        bytes: packet.bytes.into(),
        pair,
        fate: match packet.fate {
            Fate::Delivered => rows::Fate::Delivered,
            Fate::QueueDrop => rows::Fate::QueueDrop,
            Fate::Lost => rows::Fate::Lost,
            Fate::Inside => rows::Fate::Inside,
        },
        marked: packet.is_marked,
        queue_packets: packet.queue_packets,
    }
}
