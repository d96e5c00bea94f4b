//! From a run to rows.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::bundle::control::Epoch;
use forebay_core::bundle::decision::Decision;
use forebay_core::qdisc::Backlog;
use forebay_core::units::{Rate, Timestamp};
use forebay_sim::{BIN_NS, Bin, FlowMetrics, INTERVAL_NS, LinkMetrics, Requests, Simulation};

use super::setup::Place;
use crate::metrics::LinkTruth;
use crate::plan::Experiment;
use crate::plan::experiment as plan;
use crate::plan::schedule::Connections;
use crate::rows::{
    self, BundleRow, DecisionRow, EpochRow, FlowRow, HostRow, LinkRow, PacketLog, QueueRow,
    RequestRow, RunRows, TcpRow,
};

/// Bytes of Ethernet (without FCS), IPv4 and UDP around the payload of a datagram.
const DATAGRAM_HEADERS: u64 = 14 + 20 + 8;

/// A run that has ended, to be told in rows.
pub(super) struct Rows<'a> {
    pub experiment: &'a Experiment,
    pub simulation: Simulation,
    pub places: Vec<Place>,
    pub requests: Requests,
    /// States of connections over time, by flow of the network.
    pub samples: BTreeMap<usize, Vec<TcpRow>>,
    /// What the packets of the links said.
    pub truths: Vec<LinkTruth>,
}

impl Rows<'_> {
    pub fn all(mut self) -> RunRows {
        let truths = std::mem::take(&mut self.truths).into_iter().enumerate();
        let links = truths.map(|(index, truth)| self.link_row(index, truth)).collect();
        RunRows {
            finished_ns: self.simulation.now().as_nanos(),
            requests: self.request_rows(),
            flows: self.flow_rows(),
            links,
            bundles: self.bundle_rows(),
            attack: None,
            agent: None,
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
            let bytes_per_100ms = self.answered(place, workload);
            let bytes = bytes_per_100ms.iter().sum();
            rows.push(FlowRow { flow: place, bytes, bytes_per_100ms, ..FlowRow::default() });
        }
        for (number, place) in self.places.clone().into_iter().enumerate() {
            rows.extend(self.flow_row(number, place));
        }
        rows.sort_by_key(|row| (row.flow, row.index));
        rows
    }

    /// Bytes of answers read in each 100 ms. Where each request has a connection, all of them are a flow of
    /// the network.
    fn answered(&mut self, place: usize, workload: usize) -> Vec<u64> {
        let flow = &self.experiment.flows[place];
        let each = matches!(&flow.traffic, plan::Traffic::Requests(load)
            if load.connections == Connections::Each);
        let number = self.places.iter().position(|it| it.flow == place).filter(|_| each);
        let Some(number) = number else { return self.requests.intervals(workload).to_vec() };
        let received = self.simulation.flow_metrics(number).map_or(0, |it| it.received_bytes);
        let mut sums = per_100ms(Duration::ZERO, self.simulation.flow_bins(number));
        // The last bin has not ended.
        let last = (self.simulation.now().as_nanos() / INTERVAL_NS) as usize;
        sums.resize(sums.len().max(last + 1), 0);
        sums[last] += received - sums.iter().sum::<u64>();
        sums
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
                row.bytes_per_100ms = per_100ms(flow.start_of(place.index), bins);
                row.measured = of_connection(&metrics);
                row.samples = self.samples.remove(&number).unwrap_or_default();
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
        row.bytes = payload(metrics.received_bytes, frame);
        let frames = per_100ms(flow.start_of(place.index), bins).into_iter();
        row.bytes_per_100ms = frames.map(|bytes| payload(bytes, frame)).collect();
        if matches!(flow.traffic, plan::Traffic::Datagrams { .. }) {
            row.lost = metrics.data_packets_sent - metrics.received_bytes / frame;
        }
        Some(row)
    }

    fn link_row(&self, index: usize, truth: LinkTruth) -> LinkRow {
        LinkRow {
            name: truth.name.clone(),
            packets: PacketLog::Read(Box::new(truth)),
            rate_achieved: 1.0,
            measured: of_link(&self.simulation.link_metrics(index)),
            ..LinkRow::default()
        }
    }

    fn bundle_rows(&mut self) -> Vec<BundleRow> {
        let experiment = self.experiment;
        let bundles = experiment.bundles.iter().enumerate();
        bundles.map(|(index, bundle)| self.bundle_row(index, &bundle.name)).collect()
    }

    /// The boxes are never late and lose nothing by themselves.
    fn bundle_row(&mut self, index: usize, name: &str) -> BundleRow {
        let metrics = self.simulation.bundle_metrics(index);
        let mut row = BundleRow {
            name: name.into(),
            boundaries_sent: metrics.boundaries_sent,
            boundaries_unexpected: metrics.boundaries_unexpected,
            boundaries_matched: metrics.boundaries_matched,
            boundaries_in_order: metrics.boundaries_in_order,
            boundaries_late: metrics.boundaries_late,
            drops_queue: metrics.drops_queue,
            packets_sent: metrics.packets_sent,
            bytes_sent: metrics.bytes_sent,
            message_bytes: metrics.message_bytes,
            ..BundleRow::default()
        };
        if let Some(log) = self.simulation.bundle_log(index) {
            row.epochs = log.epochs().iter().map(|(at, epoch)| epoch_row(*at, epoch)).collect();
            let queue = log.queue().iter();
            let sample = |(at, backlog): &(Timestamp, Backlog)| QueueRow {
                at_ns: at.as_nanos(),
                packets: backlog.packets,
            };
            row.queue = queue.map(sample).collect();
            let decisions = log.decisions().iter();
            row.decisions = decisions.map(|(at, decision)| decision_row(*at, decision)).collect();
        }
        row
    }
}

fn epoch_row(at: Timestamp, epoch: &Epoch) -> EpochRow {
    EpochRow {
        at_ns: at.as_nanos(),
        identity: epoch.identity,
        previous_identity: epoch.previous_identity.unwrap_or(0),
        sent_ns: epoch.sent_at.as_nanos(),
        rtt_ns: nanos(epoch.rtt),
        raw_rtt_ns: nanos(epoch.raw_rtt),
        delivery_rate_bps: epoch.delivery_rate.map_or(0, Rate::as_bits_per_sec),
        epoch_packets: epoch.epoch_size.packets(),
    }
}

fn decision_row(at: Timestamp, decision: &Decision) -> DecisionRow {
    DecisionRow {
        at_ns: at.as_nanos(),
        rate_bps: decision.rate.map(Rate::as_bits_per_sec),
        min_rtt_ns: decision.min_rtt.map(nanos),
        bottleneck_bps: decision.bottleneck_rate.map(Rate::as_bits_per_sec),
        state: decision.state.into(),
        reason: decision.reason.into(),
    }
}

/// ccperf's figures of a connection.
fn of_connection(metrics: &FlowMetrics) -> Vec<(&'static str, f64)> {
    let mut all = vec![
        ("mean_cwnd_l4", metrics.mean_cwnd_l4),
        ("mean_in_flight_l4", metrics.mean_in_flight_l4),
        ("cov_in_flight_l4", metrics.cov_in_flight_l4),
        ("mean_srtt_l4", metrics.mean_srtt_l4),
        ("mean_idt_ewma_l4", metrics.mean_idt_ewma_l4),
        ("mean_throughput_l4", metrics.mean_throughput_l4),
        ("cov_throughput_l4", metrics.cov_throughput_l4),
        ("mean_sending_rate_l4", metrics.mean_sending_rate_l4),
        ("mean_sending_rate_l7", metrics.mean_sending_rate_l7),
        ("mean_network_power_l4", metrics.mean_network_power_l4),
        ("mean_utility_pf_l4", metrics.mean_utility_pf_l4),
        ("mean_recovery_time_l4", metrics.mean_recovery_time_l4),
        ("total_retransmissions_l4", metrics.total_retransmissions_l4 as f64),
        ("total_rtos_l4", metrics.total_rtos_l4 as f64),
    ];
    all.extend(metrics.mean_one_way_delay_l7.map(|ms| ("mean_one_way_delay_l7", ms)));
    all
}

/// ccperf's figures of a link, which the packet log does not give: the log ends a packet's wait when
/// it has been sent, and not when it left the qdisc.
fn of_link(metrics: &LinkMetrics) -> Vec<(&'static str, f64)> {
    let mut all = vec![
        ("mean_qdisc_length_l2", metrics.mean_qdisc_length_l2),
        ("mean_held_qdisc_delay_l2", metrics.mean_qdisc_delay_l2),
    ];
    all.extend(rows::by_reason(metrics.drops, metrics.marks));
    all
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What receivers read of frames of `frame` bytes, which is what the simulator counts.
fn payload(bytes: u64, frame: u64) -> u64 {
    bytes / frame * (frame - DATAGRAM_HEADERS)
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
