//! The sending end of the plant: hosts that fill the sendbox, and the sendbox with its shaper.

use super::super::qdisc::TestPacket;
use super::event::{Event, InFlight};
use super::plan::{Flow, Source};
use super::{Drops, PACKET, Plant};
use crate::bundle::BoundaryMark;
use crate::qdisc::{Backlog, Qdisc};
use crate::units::{Rate, Timestamp};

impl Plant<'_> {
    pub(super) fn host_sends(&mut self, site: usize, flow: usize) {
        while let Some(id) = self.sites[site].hosts[flow].poll(self.now) {
            self.enqueue(site, flow, id);
        }
        if let Some((at, generation)) = self.sites[site].hosts[flow].take_timer() {
            let delay = at.saturating_since(self.now);
            self.after(delay, Event::Rto(site, flow, generation));
        }
        self.wake(site);
    }

    pub(super) fn stream(&mut self, site: usize, flow: usize) {
        let Source::Flows(flows) = &self.plan.bundles[site].source else { return };
        let Flow::Cbr(rate, _, stop) = flows[flow] else { return };
        if self.now >= Timestamp::ZERO + stop {
            return;
        }
        self.enqueue(site, flow, u64::MAX);
        self.after(PACKET.time_at(rate).expect("a positive rate"), Event::Cbr(site, flow));
        self.wake(site);
    }

    pub(super) fn enqueue(&mut self, site: usize, flow: usize, id: u64) {
        let packet = TestPacket { flow: flow as u32, sequence: id, len: PACKET, ..<_>::default() };
        let site = &mut self.sites[site];
        let was_empty = site.shaper.backlog().packets == 0;
        // A dropped packet is noticed by its host from later acknowledgements.
        site.shaper.enqueue(self.now, packet, &mut Drops::default());
        if was_empty {
            site.sendbox.on_queue(self.now, site.shaper.backlog());
        }
    }

    pub(super) fn acknowledged(&mut self, site: usize, flow: usize, id: u64) {
        self.sites[site].hosts[flow].on_ack(self.now, id);
        if self.sites[site].hosts[flow].is_done() {
            let completion = &mut self.trace.completions[site][flow];
            completion.get_or_insert(self.now.saturating_since(Timestamp::ZERO));
        }
        self.host_sends(site, flow);
    }

    /// Schedules the next departure of a site's shaper.
    pub(super) fn wake(&mut self, index: usize) {
        let delay = self.plan.wake_delay;
        if self.sites[index].is_endless && self.sites[index].shaper.backlog().packets == 0 {
            for flow in 0..4 {
                self.enqueue(index, flow, 0);
            }
        }
        let site = &self.sites[index];
        let Some(due) = site.shaper.next_timer() else { return };
        let at = due.max(self.now).max(site.line_free_at);
        if site.wakes_at.is_some_and(|wake| wake <= at) {
            return;
        }
        let mut late = delay.mul_f64(self.noise.exponential());
        if !delay.is_zero() && self.noise.chance(1e-4) {
            late += delay * 50;
        }
        let at = at + late;
        self.sites[index].wakes_at = Some(at);
        self.after(at.saturating_since(self.now), Event::Wake(index, at));
    }

    pub(super) fn depart(&mut self, index: usize) {
        let site = &mut self.sites[index];
        if site.is_endless && site.shaper.backlog().packets < 4 {
            for flow in 0..4 {
                self.enqueue(index, flow, 0);
            }
        }
        let line = Rate::from_bits_per_sec(self.plan.rate.as_bits_per_sec() * 4);
        let site = &mut self.sites[index];
        while let Some(packet) = site.shaper.dequeue(self.now, &mut Drops::default()) {
            let hash = self.hashes.bits();
            if !site.is_sendbox_down {
                let mark = Some(BoundaryMark { hash, identity: hash });
                site.sendbox.on_departures(&site.departed.count(self.now, packet.len, mark));
            }
            let backlog = site.shaper.backlog();
            if backlog.packets == 0 {
                site.sendbox.on_queue(self.now, backlog);
            }
            let packet = InFlight { bundle: index, packet, hash };
            self.events.add(self.now + self.rtt / 4, Event::AtBottleneck(packet));
            if site.is_endless {
                let time = PACKET.time_at(line).expect("a positive rate");
                site.line_free_at = self.now + time;
                break;
            }
        }
        self.apply(index);
    }

    pub(super) fn tick(&mut self, index: usize) {
        let site = &mut self.sites[index];
        let backlog: Backlog = site.shaper.backlog();
        site.sendbox.on_tick(self.now, backlog);
        let next = site.sendbox.next_timer().saturating_since(self.now);
        self.after(next, Event::Tick(index));
        self.apply(index);
    }

    /// Hands the sendbox's decisions to the shaper and the receivebox.
    pub(super) fn apply(&mut self, index: usize) {
        let site = &mut self.sites[index];
        if site.is_sendbox_down {
            return self.wake(index);
        }
        let rate = site.sendbox.rate().filter(|_| !self.plan.dry_run);
        if site.shaper.rate() != rate {
            site.shaper.set_rate(self.now, rate);
        }
        let size = site.sendbox.epoch_size();
        if size != site.notified {
            site.notified = size;
            self.after(self.rtt / 4, Event::NoticeAtBottleneck(index, size));
        }
        self.wake(index);
    }
}
