//! The way of packets through the bottleneck to the receivebox, and of its reports back.

use super::event::{Event, InFlight};
use super::plan::WayBack;
use super::{PACKET, Plant};
use crate::bundle::Report;
use crate::units::{Duration, Timestamp};

impl Plant<'_> {
    pub(super) fn arrive(&mut self, packet: InFlight) {
        let is_lossy = self.now >= Timestamp::ZERO + self.plan.data_loss_from;
        if self.noise.chance(if is_lossy { self.plan.data_loss } else { 0.0 }) {
            return;
        }
        if self.queue.len() >= self.buffer_packets {
            if let Some(bin) = self.trace.bins.last_mut() {
                bin.drops += 1;
            }
            return;
        }
        self.queue.push_back(packet);
        if !self.is_serving {
            self.serve();
        }
    }

    pub(super) fn serve(&mut self) {
        self.is_serving = true;
        let service = PACKET.time_at(self.rate).expect("a positive rate");
        self.served_at = self.now + service;
        self.after(service, Event::Served);
    }

    pub(super) fn served(&mut self) {
        let packet = self.queue.pop_front().expect("served packets come from the queue");
        self.sites[packet.bundle].bin_bytes += packet.packet.len.as_u64();
        self.after(self.rtt / 4, Event::AtReceivebox(packet));
        self.is_serving = false;
        if !self.queue.is_empty() {
            self.serve();
        }
    }

    pub(super) fn received(&mut self, packet: InFlight) {
        let InFlight { bundle, packet, hash } = packet;
        let site = &mut self.sites[bundle];
        if !site.is_suspended {
            site.received_bytes += packet.len;
            site.received_packets += 1;
        }
        if site.epoch_size.is_boundary(hash) && !site.is_receivebox_down {
            self.report(bundle, hash);
        }
        if packet.sequence != u64::MAX && !self.sites[bundle].is_endless {
            let flow = packet.flow as usize;
            self.after(self.rtt / 2, Event::Ack(bundle, flow, packet.sequence));
        }
    }

    pub(super) fn report(&mut self, bundle: usize, hash: u64) {
        let stamp = self.now + self.uniform(self.plan.stamp_noise);
        let way_back = match self.plan.way_back {
            WayBack::Clear => Duration::ZERO,
            WayBack::Sine(max, period) => {
                let phase = self.now.as_secs_f64() / period.as_secs_f64();
                max.mul_f64(0.5 - 0.5 * libm::cos(phase * core::f64::consts::TAU))
            }
            WayBack::Random(max) => self.uniform(max),
        };
        let noise = self.uniform(self.plan.report_noise);
        if self.noise.chance(self.plan.report_loss) {
            return;
        }
        let site = &self.sites[bundle];
        if site.are_reports_lost {
            return;
        }
        let report = Report {
            hash,
            received_at: self.plan.clock.read(stamp, Timestamp::ZERO + site.clock_origin),
            received_bytes: site.received_bytes,
            received_packets: site.received_packets,
            received_ce: 0,
            epoch_size: site.epoch_size,
        };
        let delay = self.rtt / 2 + self.plan.report_delay + noise + way_back;
        self.after(delay, Event::AtSendbox(bundle, report));
    }
}
