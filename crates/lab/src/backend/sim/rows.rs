//! From a run to rows.

use std::time::Duration;

use forebay_core::units::Timestamp;
use forebay_sim::{BIN_NS, Bin, Fate, INTERVAL_NS, Owner, Requests, Simulation};

use super::setup::{FORWARD, Place, REVERSE};
use crate::plan::Experiment;
use crate::plan::experiment as plan;
use crate::rows::{self, FlowRow, HostRow, LinkRow, PacketLog, PacketRow, RequestRow, RunRows};

/// Bytes of Ethernet (without FCS), IPv4 and UDP around the payload of a datagram.
const DATAGRAM_HEADERS: u64 = 14 + 20 + 8;

/// A run that has ended, to be told in rows.
pub(super) struct Rows<'a> {
    pub experiment: &'a Experiment,
    pub simulation: Simulation,
    pub places: Vec<Place>,
    pub requests: Requests,
}

impl Rows<'_> {
    pub fn all(mut self) -> RunRows {
        let links = [("forward", FORWARD), ("reverse", REVERSE)];
        RunRows {
            finished_ns: self.simulation.now().as_nanos(),
            requests: self.request_rows(),
            flows: self.flow_rows(),
            links: links.map(|(name, index)| self.link_row(name, index)).to_vec(),
            bundles: Vec::new(),
            attack: None,
            // There is no machine, and nothing is late.
            host: HostRow::default(),
        }
    }

    /// The flows that are made of requests, with their numbers among the workloads.
    fn workloads(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let flows = self.experiment.flows.iter().enumerate();
        let made = flows.filter(|it| matches!(it.1.traffic, plan::Traffic::Requests(_)));
        let made: Vec<usize> = made.map(|(place, _)| place).collect();
        made.into_iter().enumerate().map(|(workload, place)| (place, workload))
    }

    fn request_rows(&self) -> Vec<RequestRow> {
        let mut rows = Vec::new();
        for (place, workload) in self.workloads() {
            let flow = &self.experiment.flows[place];
            // What could not be drawn was refused before.
            let schedule = self.experiment.schedule(flow).ok().flatten().unwrap_or_default();
            let outcomes = self.requests.outcomes(workload).iter();
            for (index, (request, outcome)) in schedule.requests().iter().zip(outcomes).enumerate()
            {
                rows.push(RequestRow {
                    flow: place,
                    index: index as u32,
                    connection: request.connection,
                    size_bytes: request.size.as_u64(),
                    scheduled_ns: (flow.start + request.at).as_nanos() as u64,
                    sent_ns: outcome.sent.map(Timestamp::as_nanos),
                    queued_behind: outcome.queued_behind,
                    finished_ns: outcome.finished.map(Timestamp::as_nanos),
                });
            }
        }
        rows
    }

    fn flow_rows(&mut self) -> Vec<FlowRow> {
        let mut rows = Vec::new();
        for (place, workload) in self.workloads() {
            let bytes_per_100ms = self.requests.intervals(workload).to_vec();
            let bytes = bytes_per_100ms.iter().sum();
            rows.push(FlowRow { flow: place, bytes, bytes_per_100ms, ..FlowRow::default() });
        }
        for (number, place) in self.places.clone().into_iter().enumerate() {
            rows.extend(self.flow_row(number, place));
        }
        rows.sort_by_key(|row| (row.flow, row.index));
        rows
    }

    /// The row of flow `number` of the network; `None` for a part of a request workload.
    fn flow_row(&mut self, number: usize, place: Place) -> Option<FlowRow> {
        let flow = &self.experiment.flows[place.flow];
        let mut row = FlowRow { flow: place.flow, index: place.index, ..FlowRow::default() };
        let metrics = self.simulation.flow_metrics(number)?;
        let bins = self.simulation.flow_bins(number);
        let frame = match flow.traffic {
            plan::Traffic::Requests(_) => return None,
            plan::Traffic::Greedy { .. } => {
                row.bytes = metrics.received_bytes;
                row.bytes_per_100ms = per_100ms(flow.start, bins);
                return Some(row);
            }
            plan::Traffic::Datagrams { packet_bytes, .. } => u64::from(packet_bytes),
            plan::Traffic::Ping { .. } => {
                let pings = self.simulation.pings(number)?;
                row.rtts_ns = pings.rtts_ns.clone();
                row.lost = pings.lost;
                forebay_sim::PING_FRAME_BYTES
            }
        };
        // The simulator counts frames, a receiver reads what is in them.
        let payload = |bytes: u64| bytes / frame * (frame - DATAGRAM_HEADERS);
        row.bytes = payload(metrics.received_bytes);
        row.bytes_per_100ms = per_100ms(flow.start, bins).into_iter().map(payload).collect();
        if matches!(flow.traffic, plan::Traffic::Datagrams { .. }) {
            row.lost = metrics.data_packets_sent - metrics.received_bytes / frame;
        }
        Some(row)
    }

    fn link_row(&self, name: &str, index: usize) -> LinkRow {
        let pairs: Vec<u16> = self.places.iter().map(|place| self.pair_of(place.flow)).collect();
        let packets = self.simulation.packet_log(index).map(|packet| {
            let Owner::Flow(flow) = packet.owner;
            PacketRow {
                arrived_ns: packet.arrived.as_nanos(),
                departed_ns: packet.departed.map_or(0, |at| at.as_nanos().max(1)),
                released_ns: packet.released.map_or(0, |at| at.as_nanos().max(1)),
                identity: packet.identity,
                bytes: packet.bytes.into(),
                pair: pairs[flow],
                fate: match packet.fate {
                    Fate::Delivered => rows::Fate::Delivered,
                    Fate::QueueDrop => rows::Fate::QueueDrop,
                    Fate::Lost => rows::Fate::Lost,
                    Fate::Inside => rows::Fate::Inside,
                },
                marked: packet.is_marked,
                queue_packets: packet.queue_packets,
            }
        });
        LinkRow {
            name: name.into(),
            packets: PacketLog::Rows(packets.collect()),
            rate_achieved: 1.0,
            ..LinkRow::default()
        }
    }

    fn pair_of(&self, flow: usize) -> u16 {
        let name = &self.experiment.flows[flow].pair;
        let place = self.experiment.pairs.iter().position(|pair| pair == name);
        place.map_or(u16::MAX, |place| place as u16)
    }
}

/// Bytes in each 100 ms of the run, from bins that begin at `start`; a bin counts where it begins.
fn per_100ms(start: Duration, bins: &[Bin]) -> Vec<u64> {
    let start_ns = start.as_nanos() as u64;
    let mut sums: Vec<u64> = Vec::new();
    for (number, bin) in bins.iter().enumerate() {
        let interval = ((start_ns + number as u64 * BIN_NS) / INTERVAL_NS) as usize;
        if sums.len() <= interval {
            sums.resize(interval + 1, 0);
        }
        sums[interval] += u64::from(bin.bytes);
    }
    sums
}
