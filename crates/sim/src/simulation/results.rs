//! Results of a run.

use forebay_core::record::{PacketRecord, TcpSample};
use forebay_core::units::{Duration, Rate, Timestamp};

use super::Simulation;
use super::endpoints::{Connection, Place};
use crate::bundle::BundleMetrics;
use crate::bundle_log::BundleLog;
use crate::metrics::{Bin, FlowMetrics, LinkMetrics, mbit_per_s, ratio};
use crate::packet::Kind;
use crate::packet_log::Owner;
use crate::written::WriteLog;

impl Simulation {
    /// Checks that every sent packet has been dropped, lost or delivered, or is on its way; the same for each
    /// link.
    #[cfg(debug_assertions)]
    pub(super) fn check_conservation(&self) {
        let mut ended = 0;
        let mut inside = 0;
        for link in &self.links {
            let (counters, queued) = (link.counters(), link.queued_packets());
            let before = counters.lost_before + link.dropped();
            assert_eq!(counters.offered, before + queued + counters.departed);
            ended += before + counters.lost_behind;
            inside += queued + link.held_packets();
        }
        for sendbox in &self.sendboxes {
            let [offered, dropped, queued] = sendbox.balance();
            assert!(offered >= dropped + queued);
            ended += dropped;
            inside += queued;
        }
        inside += self.routes.lines.iter().map(|line| line.len()).sum::<u64>();
        let [left, arrived] = self.crossed();
        assert_eq!(self.sent + arrived, ended + inside + self.delivered + left);
    }

    /// Simulated time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Events handled so far.
    pub fn events(&self) -> u64 {
        self.handled
    }

    /// Packets that have reached the end of their route, including acknowledgements.
    pub fn packets(&self) -> u64 {
        self.delivered
    }

    /// A hash over all events so far with their times and order: equal runs have equal hashes.
    pub fn event_hash(&self) -> u64 {
        self.hash
    }

    /// Results of flow `index`; `None` if there is no such flow. A datagram source has only sent and received
    /// counts, in bytes on the wire. A flow of messages has the totals of all its connections.
    pub fn flow_metrics(&mut self, index: usize) -> Option<FlowMetrics> {
        let (now, mss) = (self.now, u64::from(self.stack.tcp.mss));
        let index = match *self.places.get(index)? {
            Place::Connection(index) => index,
            Place::Source(index) => {
                let source = &mut self.sources[index];
                let data_packets_sent = source.sent;
                return Some(FlowMetrics { data_packets_sent, ..source.meter.metrics(now, mss) });
            }
            Place::Pool(index) => return Some(self.pool_metrics(index)),
            Place::Pings(index) => {
                let ping = &mut self.pings[index];
                let data_packets_sent = ping.sent;
                return Some(FlowMetrics { data_packets_sent, ..ping.meter.metrics(now, mss) });
            }
        };
        let metrics = self.connection_metrics(index);
        let Some(life) = self.lives.get(&(index as u32)) else { return Some(metrics) };
        // Packets on their way when a flow stops still count in totals, but not in means.
        Some(FlowMetrics {
            total_retransmissions_l4: metrics.total_retransmissions_l4,
            total_spurious_retransmissions_l4: metrics.total_spurious_retransmissions_l4,
            total_rtos_l4: metrics.total_rtos_l4,
            total_unreceived_l4: metrics.total_unreceived_l4,
            total_window_probes_l4: metrics.total_window_probes_l4,
            data_packets_sent: metrics.data_packets_sent,
            received_bytes: metrics.received_bytes,
            completed: metrics.completed,
            ..*life
        })
    }

    /// Results of a connection up to now.
    pub(super) fn connection_metrics(&mut self, index: usize) -> FlowMetrics {
        let (now, mss) = (self.now, u64::from(self.stack.tcp.mss));
        let connection = &mut self.connections[index];
        let life = now.saturating_since(connection.start);
        let sender = &connection.sender;
        let counters = sender.counters;
        let (episodes, episodes_ns) = sender.recoveries();
        let limits = sender.window_limits(now);
        FlowMetrics {
            mean_sending_rate_l4: mbit_per_s(counters.sent * mss, life),
            mean_sending_rate_l7: mbit_per_s(sender.written_bytes(), life),
            mean_recovery_time_l4: ratio(episodes_ns as f64 * 1e-6, episodes as f64),
            recovery_episodes: episodes,
            mean_one_way_delay_l7: connection.written.as_ref().map(|log| log.mean_ms(now)),
            total_retransmissions_l4: counters.resent,
            total_spurious_retransmissions_l4: connection.receiver.duplicates(),
            total_rtos_l4: counters.timeouts,
            limits_clamped: sender.clamped(),
            total_unreceived_l4: connection.receiver.unreceived(),
            total_window_probes_l4: limits.map(|(probes, _)| probes),
            rwnd_limited_l4: limits.map(|(_, ns)| ratio(ns as f64 * 1e-9, life.as_secs_f64())),
            data_packets_sent: counters.sent,
            ..self.meters[connection.meter as usize].metrics(now, mss)
        }
    }

    /// The sender of flow `index` as it stands; `None` if that is no connection, or not open yet.
    pub fn sender_state(&self, index: usize) -> Option<TcpSample> {
        let Place::Connection(index) = *self.places.get(index)? else { return None };
        let Connection { sender, receiver, .. } = &self.connections[index];
        let (cwnd, srtt_ns) = (sender.cwnd(), sender.srtt_ns());
        let segments = |bytes: u64| bytes as f64 / f64::from(self.stack.tcp.mss);
        (cwnd > 0).then(|| TcpSample {
            at_ns: self.now.as_nanos(),
            cwnd_segments: segments(cwnd),
            srtt_ms: (srtt_ns > 0).then(|| Duration::from_nanos(srtt_ns).as_secs_f64() * 1e3),
            in_flight_segments: Some(segments(sender.in_flight_bytes().as_u64())),
            delivered_bytes: Some(sender.delivered_bytes().as_u64()),
            retransmissions: sender.counters.resent,
            duplicates: Some(receiver.duplicates()),
        })
    }

    /// The rate of payload that the algorithm of flow `index` allows a source that adapts, and the number of
    /// segments sent at least once. Nothing for a flow that is no connection.
    pub fn source_state(&self, index: usize) -> (Option<Rate>, u32) {
        let Some(Place::Connection(index)) = self.places.get(index) else { return (None, 0) };
        let sender = &self.connections[*index].sender;
        (sender.source_rate(), sender.next())
    }

    /// Measures [`FlowMetrics::mean_one_way_delay_l7`] of flow `index` from its start on. The flow must be a
    /// connection whose application always has more to send. The cost is 16 bytes for each acknowledgement
    /// within a send buffer. Call before the run; a flow of another kind is not measured.
    pub fn watch_writing(&mut self, index: usize) {
        let Some(Place::Connection(index)) = self.places.get(index).copied() else { return };
        let segments = self.stack.tcp.send_buffer / u64::from(self.stack.tcp.mss);
        let segments = u32::try_from(segments).unwrap_or(u32::MAX).max(1);
        let connection = &mut self.connections[index];
        let mut log = WriteLog::new(segments);
        if connection.opened_ns.is_some() {
            log.on_ack(connection.start, 0);
        }
        connection.written = Some(Box::new(log));
    }

    /// Throughput and round-trip time of flow `index` in bins of [`crate::BIN_NS`] from its start on.
    /// Datagrams count with their bytes on the wire. Empty if there is no such flow.
    pub fn flow_bins(&self, index: usize) -> &[Bin] {
        match self.places.get(index) {
            Some(Place::Connection(index)) => {
                self.meters[self.connections[*index].meter as usize].bins()
            }
            Some(Place::Pool(index)) => self.meters[self.pools[*index].meter as usize].bins(),
            Some(Place::Source(index)) => self.sources[*index].meter.bins(),
            Some(Place::Pings(index)) => self.pings[*index].meter.bins(),
            None => &[],
        }
    }

    /// Results of link `index`; zeros for a link that is a mere delay. Panics if there is no such link.
    pub fn link_metrics(&self, index: usize) -> LinkMetrics {
        self.links[index].metrics(self.now)
    }

    /// Results of bundle `index`. Panics if there is no such bundle.
    pub fn bundle_metrics(&self, index: usize) -> BundleMetrics {
        self.receiveboxes[index].add_metrics(self.sendboxes[index].metrics(self.now))
    }

    /// The log of bundle `index` so far; `None` if it keeps none, or if there is no such bundle.
    pub fn bundle_log(&mut self, index: usize) -> Option<&BundleLog> {
        self.sendboxes.get_mut(index)?.log(self.now)
    }

    /// The packets of link `index` not taken out yet, in order of arrival, each with its owner. Empty for a
    /// link without a log.
    pub fn packet_log(&self, index: usize) -> impl Iterator<Item = (Owner, PacketRecord)> {
        let log = self.links.get(index).and_then(|link| link.log());
        let owner = |kind, flow| self.owner(kind, flow);
        log.into_iter().flat_map(move |log| log.records(self.now, owner))
    }

    /// Takes packets of link `index` out of its log, in order of arrival, up to the first that is still on
    /// the link. A caller that does this during the run keeps the log short.
    pub fn take_packets(&mut self, index: usize, mut take: impl FnMut(Owner, PacketRecord)) {
        let Some(mut log) = self.links.get_mut(index).and_then(|link| link.ended().log.take())
        else {
            return;
        };
        let owner = |kind, flow| self.owner(kind, flow);
        while let Some((owner, record)) = log.take_settled(self.now, owner) {
            take(owner, record);
        }
        self.links[index].ended().log = Some(log);
    }

    /// The sender of a packet of `kind` that carries `flow`.
    pub(super) fn owner(&self, kind: Kind, flow: u32) -> Owner {
        match kind {
            Kind::Datagram => Owner::Flow(self.sources[flow as usize].flow as usize),
            Kind::Message => Owner::Bundle(flow as usize / 2),
            Kind::Ping | Kind::Pong => Owner::Flow(self.pings[flow as usize].flow as usize),
            _ => Owner::Flow(self.connections[flow as usize].flow as usize),
        }
    }
}
