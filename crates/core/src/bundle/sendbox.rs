//! The sendbox of one bundle without packet handling. It takes departures and reports, and gives the shaper's
//! rate and messages.
//!
//! ```text
//! counters, boundaries ──► control ──► rate            a call of the host, then
//! datagrams ──► session ──► reports ──┘ │               1. take the rate
//!                  └──► peer ──► alive, silent           2. send what poll has
//! datagrams ◄── session ◄── notices, keepalives ◄──┘     3. let packets leave
//! ```
//! Pure: the host owns the clock, random numbers, packets, the qdisc and the sockets. A departure consists of
//! counters and boundaries and need not be a single packet. A datapath in the kernel reports no more than this.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use super::control::decision::Decision;
pub use super::control::uplink::BundleLoad;
pub use super::control::{Ceiling, Epoch, RATES, SUPPLIED, SendboxConfig, SendboxCounters};
use super::control::{Control, Peer};
pub use super::path::Alarm;
use super::path::Tally;
pub use super::path::spans::PathSpan;
use super::protocol::endpoint::Endpoint;
use super::protocol::keys::KeyRing;
use super::protocol::monitor::Liveness;
use super::protocol::mtu::{PathMtu, Search};
use super::protocol::peer::{KEYS_DIFFER, NO_COMMON_VERSION, PEER_STOPPED};
use super::protocol::session::{Event as SessionEvent, Role};
use super::protocol::wire::{BoxState, Keepalive, MAX_REPORTS, Message, Reject};
use super::waits::{WaitSecond, Waits};
use super::{BundleId, Departures, EpochSize, Overhead, Report};
use crate::cc::CongestionControl;
use crate::qdisc::Backlog;
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// A bundle is at rest if nothing has left for this time and nothing is queued. Reports about earlier
/// departures are then no longer useful.
const REST_AFTER: Duration = Duration::from_secs(5);

/// Shortest time between repeated notices while the receivebox uses another epoch size.
const NOTICE_AGAIN: Duration = Duration::from_millis(50);

/// The sendbox of one bundle.
pub struct Sendbox {
    control: Control,
    end: Endpoint,
    /// Size of the latest notice, and when it left.
    notified: (Option<EpochSize>, Timestamp),
    mtu: Search,
    overhead: Overhead,
    dry_run: bool,
    is_stopping: bool,
    departed_at: Timestamp,
    is_resting: bool,
    /// Why the kernel forwards the packets without the sendbox.
    handed_back: Option<&'static str>,
    /// An input of the decision has changed since the last one was taken.
    is_undecided: bool,
    epochs: VecDeque<Epoch>,
    waits: Waits,
}

impl Deref for Sendbox {
    type Target = Endpoint;
    fn deref(&self) -> &Endpoint {
        &self.end
    }
}

impl DerefMut for Sendbox {
    fn deref_mut(&mut self) -> &mut Endpoint {
        &mut self.end
    }
}

impl Sendbox {
    /// A bundle that has sent nothing yet and is controlled by `cc`. `random` holds the session id and the
    /// first nonce: unpredictable numbers from the system, not from a run's seed.
    pub fn new(
        config: SendboxConfig,
        cc: Box<dyn CongestionControl>,
        bundle: BundleId,
        keys: &KeyRing,
        random: [u64; 2],
        now: Timestamp,
    ) -> Self {
        let dry_run = config.dry_run;
        let mut control = Control::new(config, cc);
        // The state of the peer is unknown until it answers.
        control.on_peer(now, Peer::Silent);
        Self {
            control,
            end: Endpoint::new(Role::Sendbox, bundle, keys, random, now),
            notified: (None, Timestamp::ZERO),
            mtu: Search::new(),
            overhead: Overhead::default(),
            dry_run,
            is_stopping: false,
            departed_at: now,
            is_resting: false,
            handed_back: None,
            is_undecided: true,
            epochs: VecDeque::with_capacity(MAX_REPORTS),
            waits: Waits::default(),
        }
    }

    /// Begins a new session under other keys; the control loop goes on.
    pub fn restart(&mut self, keys: &KeyRing, random: [u64; 2], now: Timestamp) {
        self.end.restart(keys, random, now);
        self.notified.0 = None;
    }

    /// Sets the overhead of each packet that neither the host nor the receivebox counts. All rates and windows
    /// then include it, also the operator's bounds and the shaper's rate. Call before anything leaves.
    pub const fn set_overhead(&mut self, overhead: Overhead) {
        self.overhead = overhead;
    }

    fn with_overhead(&self, backlog: Backlog) -> Backlog {
        Backlog { bytes: self.overhead.on(backlog.packets, backlog.bytes), ..backlog }
    }

    /// Starts the search for the path MTU, once the receivebox answers probes. The host must send datagrams of
    /// up to [`MAX_PROBE`](super::wire::MAX_PROBE) bytes unfragmented. `packet_bytes` is the size of the
    /// bundle's largest IP packets, and messages use IPv6 if `is_v6`.
    pub fn look_for_mtu(&mut self, now: Timestamp, packet_bytes: u16, is_v6: bool) {
        self.end.versions.offer_probes(now);
        self.mtu.begin(now, packet_bytes, is_v6);
    }

    /// The largest packets that have reached the receivebox; `None`: unknown.
    pub const fn path_mtu(&self) -> Option<PathMtu> {
        self.mtu.found()
    }

    /// Takes the departures until now. True if the last packet is a boundary of the epoch size in force.
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

    /// Records how long a packet of a sparse flow waited in the bundle's queue
    /// ([`SparseWait`](crate::qdisc::SparseWait)).
    pub fn on_wait(&mut self, wait: Duration) {
        self.waits.record(wait);
        self.control.on_wait(wait);
    }

    /// Sets the bundle's present share of an [`uplink`](super::uplink); `None`: the bundle shares none.
    pub fn set_ceiling(&mut self, now: Timestamp, ceiling: Option<Ceiling>) {
        let before = self.rate();
        self.control.set_ceiling(now, ceiling);
        self.is_undecided |= self.rate() != before;
    }

    /// Sets the operator's bounds ([`SendboxConfig`]). The session and the control loop go on.
    pub fn set_bounds(&mut self, now: Timestamp, min_rate: Option<Rate>, max_rate: Option<Rate>) {
        self.control.set_bounds(now, min_rate, max_rate);
        self.is_undecided = true;
    }

    /// The shaper's lowest rate, unless a [`Ceiling`] is lower.
    pub fn min_rate(&self) -> Rate {
        self.control.min_rate()
    }

    /// Load of the bundle with this backlog, for the division of an uplink.
    pub fn load(&self, backlog: Backlog) -> BundleLoad {
        BundleLoad {
            sent: self.control.sent(),
            backlog: self.with_overhead(backlog).bytes,
            wanted: self.control.wanted_rate(),
        }
    }

    /// Takes a datagram that claims to come from the peer. `draw` gives a fresh random number when one is needed.
    pub fn on_datagram(
        &mut self,
        now: Timestamp,
        datagram: &[u8],
        draw: &mut dyn FnMut() -> u64,
    ) -> Result<(), Reject> {
        self.epochs.clear();
        let opened = self.end.session.open(now, datagram, draw);
        while let Some(event) = self.end.session.take_event() {
            self.on_session_event(now, event);
        }
        match opened.inspect_err(|reject| self.end.peer.rejected(*reject))? {
            Some(Message::Reports(reports)) => {
                for report in reports.as_slice() {
                    let (packets, bytes) = (report.received_packets, report.received_bytes);
                    let received_bytes = self.overhead.on(packets, bytes);
                    let report = Report { received_bytes, ..*report };
                    self.epochs.extend(self.control.on_report(now, &report));
                }
                self.is_undecided = true;
                self.end.peer.reports();
            }
            Some(Message::Keepalive(Keepalive { state, epoch_size })) => {
                self.control.set_peer_size(epoch_size);
                self.end.peer.says(state);
            }
            Some(message @ (Message::Scope(_) | Message::Versions(_))) => {
                self.end.on_terms(now, &message);
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
        self.end.count_message(datagram);
        // A response to an unknown session is no sign of life.
        if self.end.session.heard_at() == Some(now) {
            match self.end.peer.heard(now) {
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
                self.end.peer.renewed(now);
                self.tell_control(now, Peer::Restarted);
            }
        }
        // A new session of the receivebox has no epoch size yet.
        self.notified.0 = None;
    }

    fn begin_session(&mut self, now: Timestamp) {
        self.set_resting(false);
        self.end.on_session(now);
        self.mtu.restart(now);
    }

    fn tell_control(&mut self, now: Timestamp, peer: Peer) {
        self.control.on_peer(now, peer);
        self.is_undecided = true;
    }

    /// Performs the actions due at `now`; call at [`Sendbox::next_timer`], or earlier.
    pub fn on_timer(&mut self, now: Timestamp, backlog: Backlog) {
        if self.end.peer.poll(now, self.control.min_rtt()) {
            self.tell_control(now, Peer::Silent);
        }
        if self.control.next_timer() <= now {
            self.control.on_tick(now, self.with_overhead(backlog));
            self.is_undecided = true;
        }
        self.waits.on_time(now);
        let is_still = backlog.packets == 0 && now.saturating_since(self.departed_at) >= REST_AFTER;
        self.set_resting(is_still && self.end.versions.both_rest());
    }

    fn set_resting(&mut self, is_resting: bool) {
        if is_resting == self.is_resting {
            return;
        }
        self.is_resting = is_resting;
        self.end.session.set_keepalive(self.keepalive());
        if is_resting {
            self.control.forget_boundaries();
        }
    }

    /// Whether the bundle is at rest: nothing leaves and nothing is queued. It then uses little memory and few
    /// messages.
    pub const fn is_resting(&self) -> bool {
        self.is_resting
    }

    /// When [`Sendbox::on_timer`] or [`Sendbox::poll`] is next needed.
    pub fn next_timer(&self) -> Timestamp {
        self.next_tick().min(self.next_message())
    }

    /// When [`Sendbox::on_timer`] is next needed. While nothing leaves and nothing is queued, a delay of 0.1 s
    /// is allowed. While the bundle is at rest, a delay of 1 s is.
    pub fn next_tick(&self) -> Timestamp {
        self.control.next_timer()
    }

    /// When [`Sendbox::poll`] is next needed.
    pub fn next_message(&self) -> Timestamp {
        let mtu = if self.probes() { self.mtu.next_timer() } else { Timestamp::MAX };
        self.end.next_timer().min(mtu)
    }

    /// Replaces `out` by the next datagram that is due. False if none is; call until then.
    pub fn poll(&mut self, now: Timestamp, out: &mut Vec<u8>) -> bool {
        if let Some(size) = self.notice_due(now) {
            self.end.session.seal(now, &Message::EpochNotice(size), out);
            self.notified = (Some(size), now);
        } else if self.end.poll_terms(now, out) {
            // Terms go before probes and keepalives.
        } else if let Some(len) = self.mtu.poll(now, self.probes()) {
            self.end.session.seal(now, &Message::Probe(len), out);
        } else {
            if now < self.end.session.next_timer() {
                return false;
            }
            self.end.session.set_keepalive(self.keepalive());
            if !self.end.session.poll(now, out) {
                return false;
            }
        }
        self.end.count_message(out);
        true
    }

    /// Whether the receivebox answers probes.
    fn probes(&self) -> bool {
        self.end.session.is_established() && self.end.versions.both_probe()
    }

    fn notice_due(&self, now: Timestamp) -> Option<EpochSize> {
        let size = self.control.epoch_size();
        let (told, told_at) = self.notified;
        // If a notice is lost, the receivebox keeps reporting its old size.
        let is_lost = self.control.peer_size().is_some_and(|peer| peer != size)
            && now.saturating_since(told_at) >= NOTICE_AGAIN;
        let is_due = self.end.session.is_established() && (told != Some(size) || is_lost);
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

    /// Announces the stop with the next [`Sendbox::poll`].
    pub fn stop(&mut self) {
        self.is_stopping = true;
        self.end.session.set_keepalive(self.keepalive());
    }

    /// Sets why the kernel forwards all traffic without the sendbox; `None`: the traffic passes the sendbox again.
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

    /// Waits of packets of sparse flows in the bundle's queue in the last whole second.
    pub const fn waits(&self) -> &WaitSecond {
        self.waits.last()
    }

    /// Same as [`Sendbox::waits`], if that second has ended since the last call.
    pub fn take_waits(&mut self) -> Option<&WaitSecond> {
        self.waits.take()
    }

    /// Delay that limits save a sparse flow: round trip and wait in the bundle's queue. Compares the last ten
    /// blocks under limits with the time before without limits. A block is a second or five loop times. `None`:
    /// unknown, as while no limits apply.
    pub fn saves(&self) -> Option<Duration> {
        self.control.saves()
    }

    /// Variation of the path's delay without a queue, if it is at least a millisecond. The algorithm ignores
    /// shorter queues than this. `None`: less, or unknown.
    pub fn varies(&self) -> Option<Duration> {
        self.control.varies()
    }

    /// Epoch size in force, by which the datapath chooses boundaries.
    pub fn epoch_size(&self) -> EpochSize {
        self.control.epoch_size()
    }

    /// The decision in force; in a dry run the decision that would be.
    pub fn decision(&self) -> Decision {
        let decision = self.control.decision();
        if let Some(reason) = self.handed_back {
            return Decision { rate: None, state: "handed_back", reason, ..decision };
        }
        if self.end.peer.is_unverified() {
            return Decision { reason: KEYS_DIFFER, ..decision };
        }
        if self.end.peer.is_stopped() {
            return Decision { reason: PEER_STOPPED, ..decision };
        }
        if self.end.peer.liveness() == Liveness::Alive && self.block_version().is_none() {
            return Decision { reason: NO_COMMON_VERSION, ..decision };
        }
        decision
    }

    /// The decision in force, if one of its inputs has changed since the last call.
    pub fn take_decision(&mut self) -> Option<Decision> {
        core::mem::take(&mut self.is_undecided).then(|| self.decision())
    }

    /// The boundaries in the latest datagram's reports, oldest first.
    pub fn take_epoch(&mut self) -> Option<Epoch> {
        self.epochs.pop_front()
    }

    /// A condition that needs the operator's attention. `None` while traffic bypasses the sendbox.
    pub fn alarm(&self, now: Timestamp) -> Option<Alarm> {
        self.control.alarm(now).filter(|_| self.handed_back.is_none())
    }

    /// Bytes and delays of the bundle on its path in the last spans of 100 ms, at most
    /// [`KEPT`](super::spans::KEPT), oldest first. Nothing of a bundle at rest.
    pub const fn path_spans(&self) -> &VecDeque<PathSpan> {
        self.control.spans()
    }

    /// Share of the bytes sent that the receivebox does not see at any rate (0 to 1).
    pub const fn unseen(&self) -> f64 {
        self.control.unseen()
    }

    /// The order of boundaries in the last few seconds.
    pub const fn recent_order(&self) -> Tally {
        self.control.recent_order()
    }

    /// Bytes that have left the sendbox, with [`Overhead`].
    pub const fn sent(&self) -> ByteCount {
        self.control.sent()
    }

    /// Counters since the start, bytes without [`Overhead`].
    pub fn counters(&self) -> SendboxCounters {
        let counters = self.control.counters();
        let bytes_sent = self.overhead.off(counters.packets_sent, counters.bytes_sent);
        SendboxCounters { bytes_sent, ..counters }
    }

    /// Bytes that the receivebox has reported since the start, with [`Overhead`].
    pub const fn delivered(&self) -> ByteCount {
        self.control.delivered()
    }
}
