//! The sendbox of one bundle, whole but for packets: what has left and what the receivebox says in, the
//! rate of the shaper and messages out.
//!
//! ```text
//! counters, boundaries ──► control ──► rate            a call of the host, then
//! datagrams ──► session ──► reports ──┘ │               1. take the rate
//!                  └──► peer ──► alive, silent           2. send what poll has
//! datagrams ◄── session ◄── notices, keepalives ◄──┘     3. let packets leave
//! ```
//! Pure: the host owns clock, chance, packets, qdisc and sockets. A departure is counters and boundaries
//! and need not be every packet: a datapath in the kernel tells of no more.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

pub use super::control::{Ceiling, Counters, Epoch, SUPPLIED, SendboxConfig};
use super::control::{Control, Peer};
use super::decision::Decision;
use super::exchange::Exchange;
use super::keys::KeyRing;
use super::monitor::Liveness;
use super::mtu::{PathMtu, Search};
use super::negotiation::Negotiation;
use super::order::Tally;
use super::peer::{KEYS_DIFFER, NO_COMMON_VERSION, PeerEvent, PeerWatch};
use super::scope::{Difference, Scope};
use super::session::{Event as SessionEvent, Role, Session};
pub use super::visibility::Alarm;
use super::waits::{WaitSecond, Waits};
use super::wire::{
    BoxState, Keepalive, MAX_REPORTS, MESSAGE_HEADERS, Message, Reject, RejectCounts,
};
use super::{
    BlockVersion, BlockVersions, BundleId, Departures, EpochSize, Overhead, Report, SamplingKey,
};
use crate::cc::CongestionControl;
use crate::qdisc::Backlog;
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// A bundle of which nothing has left for so long, and nothing is queued, is at rest. No report of what left before
/// is worth waiting for.
const REST_AFTER: Duration = Duration::from_secs(5);

/// Shortest time between two repeated notices, while the receivebox works with another size.
const NOTICE_AGAIN: Duration = Duration::from_millis(50);

/// Bounds of the rate that can be asked for: from one full frame in 120 ms to more than any port has.
pub const RATES: RangeInclusive<Rate> =
    Rate::from_bits_per_sec(100_000)..=Rate::from_bits_per_sec(100_000_000_000);

/// What a bundle has sent and what it would send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// What has left since the start.
    pub sent: ByteCount,
    /// What waits.
    pub backlog: ByteCount,
    /// The rate that the control loop asks for; `None`: as fast as it comes.
    pub wanted: Option<Rate>,
}

/// The sendbox of one bundle.
pub struct Sendbox {
    control: Control,
    session: Session,
    peer: PeerWatch,
    /// Epoch size of the receivebox by its latest message.
    peer_size: Option<EpochSize>,
    /// Size of the latest notice, and when it left.
    notified: (Option<EpochSize>, Timestamp),
    scope: Exchange,
    versions: Negotiation,
    mtu: Search,
    overhead: Overhead,
    dry_run: bool,
    is_stopping: bool,
    departed_at: Timestamp,
    is_resting: bool,
    /// Why the kernel forwards the packets, past this box.
    handed_back: Option<&'static str>,
    /// What a decision rests on has changed since it was taken last.
    is_undecided: bool,
    epochs: VecDeque<Epoch>,
    waits: Waits,
    message_bytes: ByteCount,
}

impl Sendbox {
    /// A bundle that has sent nothing yet, steered by `cc`. `session_id` and `nonce` are fresh random
    /// numbers: unpredictable ones from the system, not from a run's seed.
    pub fn new(
        config: SendboxConfig,
        cc: Box<dyn CongestionControl>,
        bundle: BundleId,
        keys: &KeyRing,
        [session_id, nonce]: [u64; 2],
        now: Timestamp,
    ) -> Self {
        let mut control = Control::new(config, cc);
        // Nothing is known of the peer before it answers.
        control.on_peer(now, Peer::Silent);
        Self {
            control,
            session: Session::new(Role::Sendbox, bundle, keys, session_id, nonce, now),
            peer: PeerWatch::new(now),
            peer_size: None,
            notified: (None, Timestamp::ZERO),
            scope: Exchange::new(Role::Sendbox),
            versions: Negotiation::new(),
            mtu: Search::new(),
            overhead: Overhead::default(),
            dry_run: config.dry_run,
            is_stopping: false,
            departed_at: now,
            is_resting: false,
            handed_back: None,
            is_undecided: true,
            epochs: VecDeque::with_capacity(MAX_REPORTS),
            waits: Waits::default(),
            message_bytes: ByteCount::ZERO,
        }
    }

    /// Begins a new session under other keys; the control loop goes on.
    pub fn restart(&mut self, keys: &KeyRing, [session_id, nonce]: [u64; 2], now: Timestamp) {
        self.session.restart(keys, session_id, nonce, now);
        self.notified.0 = None;
        self.scope.restart();
        self.versions.restart();
    }

    /// The host takes these packets into the bundle from now on: the receivebox is told, and what it counts is
    /// compared. A box without a scope tells and compares nothing.
    pub fn set_scope(&mut self, now: Timestamp, scope: Scope) {
        if self.scope.set(now, scope) {
            self.peer.tell(PeerEvent::Scope);
        }
    }

    /// The datapath can build these versions of the sampling block: the receivebox is told. A box that does not say
    /// builds version 1.
    pub fn set_versions(&mut self, now: Timestamp, versions: BlockVersions) {
        self.versions.offer(now, versions);
    }

    /// The host splits datagrams ([`split`](super::wire::split)) and may have messages share one
    /// ([`may_share`](super::wire::may_share)): with a receivebox of which that is so, too, a bundle rests while
    /// nothing of it leaves.
    pub fn offer_rest(&mut self, now: Timestamp) {
        self.versions.offer_rest(now);
    }

    /// The host leaves the boxes' messages out by their addresses and ports: where the receivebox does, too, all else
    /// to and from boxes is in the bundle.
    pub fn offer_counting(&mut self, now: Timestamp) {
        self.versions.offer_counting(now);
    }

    /// Whether both boxes leave out messages alone of what goes to and from boxes, as far as is known. Before that the
    /// host leaves out all that goes to the receivebox.
    pub fn counts_boxes(&self) -> bool {
        self.versions.both_count_boxes()
    }

    /// All rates and windows, those of the operator and of the shaper among them, are of packets with this overhead, which
    /// neither the host nor the receivebox counts. To be said before anything leaves.
    pub const fn set_overhead(&mut self, overhead: Overhead) {
        self.overhead = overhead;
    }

    fn with_overhead(&self, backlog: Backlog) -> Backlog {
        Backlog { bytes: self.overhead.on(backlog.packets, backlog.bytes), ..backlog }
    }

    /// The host sends datagrams of up to [`MAX_PROBE`](super::wire::MAX_PROBE) bytes whole or not at all, and packets of the
    /// bundle of so many bytes (IP); messages go by this IP version. With a receivebox that answers probes the path MTU is
    /// looked for.
    pub fn look_for_mtu(&mut self, now: Timestamp, packet_bytes: u16, is_v6: bool) {
        self.versions.offer_probes(now);
        self.mtu.begin(now, packet_bytes, is_v6);
    }

    /// The largest packets that have come through to the receivebox; `None`: not known.
    pub const fn path_mtu(&self) -> Option<PathMtu> {
        self.mtu.found()
    }

    /// So much has left by now. True if the last packet is a boundary of the size in force.
    pub fn on_departures(&mut self, sent: &Departures) -> bool {
        self.departed_at = sent.at;
        self.set_resting(false);
        let bytes = self.overhead.on(sent.packets, sent.bytes);
        self.control.on_departures(&Departures { bytes, ..*sent })
    }

    /// The bundle's own queue became empty or non-empty.
    pub fn on_queue(&mut self, now: Timestamp, backlog: Backlog) {
        self.control.on_queue(now, self.with_overhead(backlog));
    }

    /// A packet of a sparse flow has waited so long in the bundle's queue
    /// ([`SparseWait`](crate::qdisc::SparseWait)).
    pub fn on_wait(&mut self, wait: Duration) {
        self.waits.record(wait);
        self.control.on_wait(wait);
    }

    /// This holds from now on: the bundle's share of an [`uplink`](super::uplink) at this time; `None`: it
    /// shares none.
    pub fn set_ceiling(&mut self, now: Timestamp, ceiling: Option<Ceiling>) {
        let before = self.rate();
        self.control.set_ceiling(now, ceiling);
        self.is_undecided |= self.rate() != before;
    }

    /// The operator's bounds ([`SendboxConfig`]) are these from now on; session and control loop go on.
    pub fn set_bounds(&mut self, now: Timestamp, min_rate: Option<Rate>, max_rate: Option<Rate>) {
        self.control.set_bounds(now, min_rate, max_rate);
        self.is_undecided = true;
    }

    /// The shaper is never slower, unless a [`Ceiling`] is lower.
    pub fn min_rate(&self) -> Rate {
        self.control.min_rate()
    }

    /// What the bundle would send, where so much waits.
    pub fn load(&self, backlog: Backlog) -> Load {
        Load {
            sent: self.control.sent(),
            backlog: self.with_overhead(backlog).bytes,
            wanted: self.control.wanted_rate(),
        }
    }

    /// Takes a datagram that claims to come from the peer; `draw` gives a fresh random
    /// number where one is needed.
    pub fn on_datagram(
        &mut self,
        now: Timestamp,
        datagram: &[u8],
        draw: &mut dyn FnMut() -> u64,
    ) -> Result<(), Reject> {
        self.epochs.clear();
        let opened = self.session.open(now, datagram, draw);
        while let Some(event) = self.session.take_event() {
            self.on_session_event(now, event);
        }
        match opened.inspect_err(|reject| self.peer.rejected(*reject))? {
            Some(Message::Reports(reports)) => {
                for report in reports.as_slice() {
                    self.peer_size = Some(report.epoch_size);
                    let (packets, bytes) = (report.received_packets, report.received_bytes);
                    let received_bytes = self.overhead.on(packets, bytes);
                    let report = Report { received_bytes, ..*report };
                    self.epochs.extend(self.control.on_report(now, &report));
                }
                self.is_undecided = true;
                self.peer.reports();
            }
            Some(Message::Keepalive(Keepalive { state, epoch_size })) => {
                self.peer_size = epoch_size;
                self.peer.says(state);
            }
            Some(Message::Scope(message)) => {
                if self.scope.on_message(now, &message) {
                    self.peer.tell(PeerEvent::Scope);
                }
            }
            Some(Message::Versions(message)) => {
                self.versions.on_message(now, &message);
                if self.scope.set_counting(now, self.versions.both_count_boxes()) {
                    self.peer.tell(PeerEvent::Scope);
                }
            }
            Some(Message::Probed(len)) => self.mtu.on_answer(now, len),
            Some(
                Message::EpochNotice(_)
                | Message::Challenge { .. }
                | Message::Response { .. }
                | Message::Probe(_),
            )
            | None => {}
        }
        self.count_message(datagram);
        // An answer to a stranger is no sign of life.
        if self.session.heard_at() == Some(now) {
            match self.peer.heard(now) {
                Some(Liveness::Alive) => self.tell_control(now, Peer::Alive),
                Some(_) => self.tell_control(now, Peer::Silent),
                None => {}
            }
        }
        Ok(())
    }

    fn on_session_event(&mut self, now: Timestamp, event: SessionEvent) {
        match event {
            SessionEvent::SamplingKeyChanged => {}
            SessionEvent::PeerAlive => self.begin_session(now),
            SessionEvent::PeerRestarted => {
                self.begin_session(now);
                self.peer.renewed(now);
                self.tell_control(now, Peer::Restarted);
            }
        }
        // A new session at the receivebox knows no epoch size.
        self.notified.0 = None;
    }

    fn begin_session(&mut self, now: Timestamp) {
        // The peer may be of another version than before.
        self.set_resting(false);
        self.scope.on_session(now);
        self.versions.on_session(now);
        self.mtu.restart(now);
    }

    fn tell_control(&mut self, now: Timestamp, peer: Peer) {
        self.control.on_peer(now, peer);
        self.is_undecided = true;
    }

    /// Does what is due at `now`; call at [`Sendbox::next_timer`], or earlier.
    pub fn on_timer(&mut self, now: Timestamp, backlog: Backlog) {
        if self.peer.poll(now, self.control.min_rtt()) {
            self.tell_control(now, Peer::Silent);
        }
        if self.control.next_timer() <= now {
            self.control.on_tick(now, self.with_overhead(backlog));
            self.is_undecided = true;
        }
        self.waits.on_time(now);
        let is_still = backlog.packets == 0 && now.saturating_since(self.departed_at) >= REST_AFTER;
        self.set_resting(is_still && self.versions.both_rest());
    }

    fn set_resting(&mut self, is_resting: bool) {
        if is_resting == self.is_resting {
            return;
        }
        self.is_resting = is_resting;
        self.session.set_keepalive(self.keepalive());
        if is_resting {
            self.control.forget_boundaries();
        }
    }

    /// Whether the bundle is at rest, with little memory and rare messages: nothing of it leaves, and nothing is queued.
    pub const fn is_resting(&self) -> bool {
        self.is_resting
    }

    /// When [`Sendbox::on_timer`] or [`Sendbox::poll`] is next needed.
    pub fn next_timer(&self) -> Timestamp {
        self.next_tick().min(self.next_message())
    }

    /// When [`Sendbox::on_timer`] is next needed. While nothing leaves and nothing is queued, a tenth of
    /// a second later will do, and a second later while the bundle is at rest.
    pub fn next_tick(&self) -> Timestamp {
        self.control.next_timer()
    }

    /// When [`Sendbox::poll`] is next needed.
    pub fn next_message(&self) -> Timestamp {
        let mtu = if self.probes() { self.mtu.next_timer() } else { Timestamp::MAX };
        let told = self.scope.next_timer().min(self.versions.next_timer());
        self.session.next_timer().min(told).min(mtu)
    }

    /// Replaces `out` by the next datagram that is due. False if none is; call until then.
    pub fn poll(&mut self, now: Timestamp, out: &mut Vec<u8>) -> bool {
        if let Some(size) = self.notice_due(now) {
            self.session.seal(now, &Message::EpochNotice(size), out);
            self.notified = (Some(size), now);
        } else if let Some(scope) = self.scope.poll(now) {
            self.session.seal(now, &Message::Scope(scope), out);
        } else if let Some(versions) = self.versions.poll(now) {
            self.session.seal(now, &Message::Versions(versions), out);
        } else if let Some(len) = self.mtu.poll(now, self.probes()) {
            self.session.seal(now, &Message::Probe(len), out);
        } else {
            if now < self.session.next_timer() {
                return false;
            }
            self.session.set_keepalive(self.keepalive());
            if !self.session.poll(now, out) {
                return false;
            }
        }
        self.count_message(out);
        true
    }

    /// Whether probes are answered.
    fn probes(&self) -> bool {
        self.session.is_established() && self.versions.both_probe()
    }

    fn notice_due(&self, now: Timestamp) -> Option<EpochSize> {
        let size = self.control.epoch_size();
        let (told, told_at) = self.notified;
        // A lost notice shows in what the receivebox says it works with.
        let is_lost = self.peer_size.is_some_and(|peer| peer != size)
            && now.saturating_since(told_at) >= NOTICE_AGAIN;
        let is_due = self.session.is_established() && (told != Some(size) || is_lost);
        is_due.then_some(size)
    }

    fn keepalive(&self) -> Keepalive {
        let state = if self.is_stopping {
            BoxState::Stopping
        } else if self.is_resting {
            BoxState::Resting
        } else if self.dry_run {
            BoxState::DryRun
        } else if self.rate().is_some() && self.handed_back.is_none() {
            BoxState::Shaping
        } else {
            BoxState::Measuring
        };
        Keepalive { state, epoch_size: Some(self.control.epoch_size()) }
    }

    fn count_message(&mut self, datagram: &[u8]) {
        self.message_bytes += ByteCount::new(datagram.len() as u64) + MESSAGE_HEADERS;
    }

    /// Says farewell with the next [`Sendbox::poll`].
    pub fn stop(&mut self) {
        self.is_stopping = true;
        self.session.set_keepalive(self.keepalive());
    }

    /// The kernel forwards what comes, past this box, for this reason; `None`: it passes the box again.
    pub fn set_handed_back(&mut self, reason: Option<&'static str>) {
        self.handed_back = reason;
        self.is_undecided = true;
    }

    /// Rate of the shaper; `None`: unshaped, as always in a dry run.
    pub fn rate(&self) -> Option<Rate> {
        if self.dry_run { None } else { self.control.rate() }
    }

    /// Round trip for queueing disciplines that follow it; `None`: not known.
    pub fn path_rtt(&self) -> Option<Duration> {
        self.control.path_rtt()
    }

    /// How long packets of sparse flows waited in the bundle's queue in the last whole second.
    pub const fn waits(&self) -> &WaitSecond {
        self.waits.last()
    }

    /// As [`Sendbox::waits`], if that second has ended since this was called last.
    pub fn take_waits(&mut self) -> Option<&WaitSecond> {
        self.waits.take()
    }

    /// By how much limits shorten the delay of a sparse flow, round trip and wait in the bundle's queue: the last ten
    /// blocks of a second, or of five loop times, under limits, compared with the time before without. `None`: not known,
    /// as while no limits hold.
    pub fn saves(&self) -> Option<Duration> {
        self.control.saves()
    }

    /// By how much the delay of the path varies without a queue, from a millisecond on: the algorithm takes no shorter
    /// queue for one. `None`: by less, or not known.
    pub fn varies(&self) -> Option<Duration> {
        self.control.varies()
    }

    /// Epoch size in force: what the datapath is to take for boundaries.
    pub fn epoch_size(&self) -> EpochSize {
        self.control.epoch_size()
    }

    /// The key to sample with.
    pub fn sampling_key(&self) -> SamplingKey {
        self.session.sampling_key()
    }

    /// The version of the sampling block to sample with; `None`: the receivebox builds none that this box does, as far
    /// as it has told.
    pub fn block_version(&self) -> Option<BlockVersion> {
        self.versions.version()
    }

    /// The decision in force: of a dry run the one that would be.
    pub fn decision(&self) -> Decision {
        let decision = self.control.decision();
        if let Some(reason) = self.handed_back {
            return Decision { rate: None, state: "handed_back", reason, ..decision };
        }
        if self.peer.is_unverified() {
            return Decision { reason: KEYS_DIFFER, ..decision };
        }
        if self.peer.liveness() == Liveness::Alive && self.block_version().is_none() {
            return Decision { reason: NO_COMMON_VERSION, ..decision };
        }
        decision
    }

    /// The decision in force, if something that it rests on has happened since it was taken last.
    pub fn take_decision(&mut self) -> Option<Decision> {
        core::mem::take(&mut self.is_undecided).then(|| self.decision())
    }

    /// The boundaries that the latest datagram has reported, oldest first.
    pub fn take_epoch(&mut self) -> Option<Epoch> {
        self.epochs.pop_front()
    }

    /// News of the receivebox, oldest first.
    pub fn take_event(&mut self) -> Option<PeerEvent> {
        self.peer.take_event()
    }

    /// What an operator should look into: nothing of what passed the box by while it was handed back.
    pub fn alarm(&self, now: Timestamp) -> Option<Alarm> {
        self.control.alarm(now).filter(|_| self.handed_back.is_none())
    }

    /// Share of the bytes sent that the receivebox does not see, whatever the rate (0 to 1).
    pub const fn unseen(&self) -> f64 {
        self.control.unseen()
    }

    /// The order of boundaries in the last few seconds.
    pub const fn recent_order(&self) -> Tally {
        self.control.recent_order()
    }

    /// In what the boxes differ that they take for the bundle's packets; `None`: not known.
    pub fn differences(&self) -> Option<&[Difference]> {
        self.scope.differences()
    }

    /// What is known of the receivebox.
    pub const fn peer(&self) -> &PeerWatch {
        &self.peer
    }

    /// Replaces `out` by a challenge that is to be sent to one address alone ([`super::paths`]).
    pub fn challenge_at(&mut self, nonce: u64, out: &mut Vec<u8>) {
        self.session.challenge_at(nonce, out);
        self.count_message(out);
    }

    /// The nonce of such a challenge that the newest datagram has answered.
    pub const fn take_answered(&mut self) -> Option<u64> {
        self.session.take_answered()
    }

    /// Whether a datagram was made with a key of the receivebox, now or long ago; has no effect.
    pub fn verifies(&self, datagram: &[u8]) -> bool {
        self.session.verifies(datagram)
    }

    /// When the receivebox was last heard.
    pub const fn heard_at(&self) -> Option<Timestamp> {
        self.session.heard_at()
    }

    /// Bytes that have left, with [`Overhead`].
    pub const fn sent(&self) -> ByteCount {
        self.control.sent()
    }

    /// What was counted since the start, bytes without [`Overhead`].
    pub fn counters(&self) -> Counters {
        let counters = self.control.counters();
        let bytes_sent = self.overhead.off(counters.packets_sent, counters.bytes_sent);
        Counters { bytes_sent, ..counters }
    }

    /// Bytes that the receivebox has reported since the start, with [`Overhead`].
    pub const fn delivered(&self) -> ByteCount {
        self.control.delivered()
    }

    /// Bytes of the messages that were sent or taken, headers included.
    pub const fn message_bytes(&self) -> ByteCount {
        self.message_bytes
    }

    /// Datagrams that were rejected.
    pub const fn rejects(&self) -> &RejectCounts {
        self.session.rejects()
    }
}
