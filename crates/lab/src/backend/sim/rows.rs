//! Turns a finished run into rows.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::record::{
    BundleRecord, DecisionRecord, EpochRecord, FlowRecord, HostRecord, LinkRecord, QueueSample,
    RequestRecord, RunRecord, TcpSample, WaitRecord,
};
use forebay_core::traffic::Request;
use forebay_core::units::Timestamp;
use forebay_scenario as plan;
use forebay_sim::{
    BIN_NS, Bin, FlowMetrics, INTERVAL_NS, LinkMetrics, Place, Requests, Simulation,
};

use crate::metrics::LinkTruth;
use crate::metrics::{PacketLog, RunRows};
use crate::plan::Experiment;
use forebay_core::traffic::Connections;

/// Bytes of Ethernet (without FCS), IPv4 and UDP around the payload of a datagram.
const DATAGRAM_HEADERS: u64 = 14 + 20 + 8;

/// A finished run, to be turned into rows.
pub(super) struct Rows<'a> {
    pub experiment: &'a Experiment,
    pub simulation: Simulation,
    pub places: Vec<Place>,
    pub requests: Requests,
    /// States of connections over time, by flow of the network.
    pub samples: BTreeMap<usize, Vec<TcpSample>>,
    /// Measurements of the packets on each link.
    pub truths: Vec<LinkTruth>,
}

impl Rows<'_> {
    pub fn all(mut self) -> RunRows {
        let truths = std::mem::take(&mut self.truths);
        let links = truths.iter().enumerate();
        let links = links.map(|(index, truth)| self.link_row(index, &truth.name)).collect();
        let run = RunRecord {
            started_ns: 0,
            finished_ns: self.simulation.now().as_nanos(),
            requests: self.request_rows(),
            flows: self.flow_rows(),
            links,
            bundles: self.bundle_rows(),
            attack: None,
            agent: None,
            cost: None,
            // No machine takes part, and nothing is late.
            host: HostRecord::default(),
        };
        let packets = truths.into_iter().map(|truth| PacketLog::Read(Box::new(truth))).collect();
        RunRows { run, packets }
    }

    /// The flows made of requests, with their numbers among the workloads.
    fn workloads(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let flows = self.experiment.flows.iter().enumerate();
        let made = flows.filter(|it| matches!(it.1.traffic, plan::Traffic::Requests(_)));
        let made: Vec<usize> = made.map(|(place, _)| place).collect();
        made.into_iter().enumerate().map(|(workload, place)| (place, workload))
    }

    fn request_rows(&self) -> Vec<RequestRecord> {
        let mut rows = Vec::new();
        for (place, workload) in self.workloads() {
            let flow = &self.experiment.flows[place];
            let outcomes = self.requests.outcomes(workload).iter();
            debug_assert!(self.experiment.schedule_at(place).is_some(), "{}: no seed", flow.name);
            let asked = self.experiment.requests(place).iter().zip(outcomes);
            for (index, (request, outcome)) in asked.enumerate() {
                rows.push(RequestRecord {
                    flow: place,
                    index: index as u32,
                    sent_ns: outcome.sent.map(Timestamp::as_nanos),
                    queued_behind: outcome.queued_behind,
                    finished_ns: outcome.finished.map(Timestamp::as_nanos),
                    ..scheduled(flow, request)
                });
            }
        }
        rows
    }

    fn flow_rows(&mut self) -> Vec<FlowRecord> {
        let mut rows = Vec::new();
        for (place, workload) in self.workloads() {
            let bytes_per_100ms = self.answered(place, workload);
            let bytes = bytes_per_100ms.iter().sum();
            rows.push(FlowRecord { flow: place, bytes, bytes_per_100ms, ..FlowRecord::default() });
        }
        for (number, place) in self.places.clone().into_iter().enumerate() {
            rows.extend(self.flow_row(number, place));
        }
        rows.sort_by_key(|row| (row.flow, row.index));
        rows
    }

    /// Bytes of answers read in each 100 ms. If each request has its own connection, all connections form one
    /// flow of the network.
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

    /// Row of flow `number` of the network. `None` for a part of a request workload, or the half of a
    /// connection that only carries requests.
    fn flow_row(&mut self, number: usize, place: Place) -> Option<FlowRecord> {
        let flow = &self.experiment.flows[place.flow];
        let mut row = FlowRecord { flow: place.flow, index: place.index, ..FlowRecord::default() };
        let metrics = self.simulation.flow_metrics(number)?;
        let bins = self.simulation.flow_bins(number);
        let frame = match flow.traffic {
            plan::Traffic::Requests(_) => return None,
            plan::Traffic::Video { .. } => {
                // The half with the requests is not counted.
                row.video = Some(self.requests.video(number)?);
                row.bytes = metrics.received_bytes;
                row.bytes_per_100ms = per_100ms(Duration::ZERO, bins);
                return Some(row);
            }
            plan::Traffic::Media { .. } => {
                row.media = self.requests.media(number).cloned();
                row.bytes = metrics.received_bytes;
                row.bytes_per_100ms = per_100ms(flow.start_of(place.index), bins);
                row.measured = of_connection(&metrics);
                return Some(row);
            }
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

    fn link_row(&self, index: usize, name: &str) -> LinkRecord {
        of_link(name, &self.simulation.link_metrics(index))
    }

    fn bundle_rows(&mut self) -> Vec<BundleRecord> {
        let experiment = self.experiment;
        let names: Vec<String> = match &experiment.topology {
            Some(topology) => {
                topology.pairs.iter().filter_map(|pair| topology.bundle_name(pair)).collect()
            }
            None => experiment.bundles.iter().map(|bundle| bundle.name.clone()).collect(),
        };
        names.iter().enumerate().map(|(index, name)| self.bundle_row(index, name)).collect()
    }

    /// The boxes are never late and lose nothing by themselves.
    fn bundle_row(&mut self, index: usize, name: &str) -> BundleRecord {
        let counters = self.simulation.bundle_metrics(index).counters;
        let mut row = BundleRecord { name: name.into(), counters, ..BundleRecord::default() };
        if let Some(log) = self.simulation.bundle_log(index) {
            let epochs = log.epochs().iter();
            row.epochs = epochs.map(|(at, epoch)| EpochRecord::of(*at, epoch)).collect();
            let queue = log.queue().iter();
            row.queue = queue.map(|(at, backlog)| QueueSample::of(*at, *backlog)).collect();
            let decisions = log.decisions().iter();
            row.decisions = decisions.map(|(at, it)| DecisionRecord::of(*at, it)).collect();
            row.waits = log.waits().iter().filter_map(WaitRecord::of).collect();
        }
        row
    }
}

/// ccperf's figures of a connection.
pub(in crate::backend) fn of_connection(metrics: &FlowMetrics) -> Vec<(&'static str, f64)> {
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
        ("mean_utility_mpdf_l4", metrics.mean_utility_mpdf_l4),
        ("mean_recovery_time_l4", metrics.mean_recovery_time_l4),
        ("total_retransmissions_l4", metrics.total_retransmissions_l4 as f64),
        ("total_spurious_retransmissions_l4", metrics.total_spurious_retransmissions_l4 as f64),
        ("total_rtos_l4", metrics.total_rtos_l4 as f64),
    ];
    all.extend(metrics.mean_one_way_delay_l7.map(|ms| ("mean_one_way_delay_l7", ms)));
    // Most algorithms have no such figures.
    all.extend(
        (metrics.limits_clamped > 0).then_some(("limits_clamped", metrics.limits_clamped as f64)),
    );
    all.extend(metrics.total_unreceived_l4.map(|it| ("total_unreceived_l4", it as f64)));
    all.extend(metrics.total_window_probes_l4.map(|it| ("total_window_probes_l4", it as f64)));
    all.extend(metrics.rwnd_limited_l4.map(|share| ("rwnd_limited_l4", share)));
    all
}

/// The row of a link of a simulator.
pub(in crate::backend) fn of_link(name: &str, metrics: &LinkMetrics) -> LinkRecord {
    LinkRecord {
        name: name.into(),
        packets_out: metrics.packets,
        drops_queue: metrics.total_qdisc_drops_l2,
        marks_queue: metrics.total_qdisc_marks_l2,
        drops_by_reason: metrics.drops,
        marks_by_reason: metrics.marks,
        drops_loss: metrics.total_loss_drops,
        rate_achieved: 1.0,
        // The packet log ends a packet's wait at the end of its transmission; this figure ends it when the
        // packet leaves the qdisc.
        measured: vec![
            ("mean_qdisc_length_l2", metrics.mean_qdisc_length_l2),
            ("mean_qdisc_delay_l2", metrics.mean_qdisc_delay_l2),
        ],
        ..LinkRecord::default()
    }
}

/// The scheduled part of a request's record.
pub(in crate::backend) fn scheduled(flow: &plan::Flow, request: &Request) -> RequestRecord {
    RequestRecord {
        connection: request.connection,
        size_bytes: request.size.as_u64(),
        scheduled_ns: (flow.start + request.at).as_nanos() as u64,
        ..RequestRecord::default()
    }
}

/// Payload in frames of `frame` bytes; the simulator counts whole frames.
pub(in crate::backend) fn payload(bytes: u64, frame: u64) -> u64 {
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
