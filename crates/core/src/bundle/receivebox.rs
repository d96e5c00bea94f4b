//! The receivebox of one bundle: boundary packets seen come in, reports go out.
//!
//! It sees what the kernel sampler hands up and touches no traffic. Reports leave at once as long
//! as the budget lets them (200 datagrams a second, 1 % of the bundle's bytes); beyond it they wait
//! and share datagrams, and are only lost when the queue for them is full. A report that waited does
//! no harm to the sendbox's estimates: it carries the packet's own time of arrival.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::exchange::Exchange;
use super::keys::KeyRing;
use super::monitor::Liveness;
use super::negotiation::Negotiation;
use super::peer::{KEYS_DIFFER, NO_COMMON_VERSION, PeerEvent, PeerWatch};
use super::scope::{AddressSet, Difference, Scope};
use super::session::{Event, Role, Session};
use super::wire::{
    BoxState, Keepalive, MAX_REPORTS, MESSAGE_HEADERS, Message, Reject, RejectCounts, Reports,
    reports_len,
};
use super::{BlockVersion, BlockVersions, BundleId, EpochSize, Report, SamplingKey};
use crate::units::{ByteCount, Timestamp};

/// Shortest mean time between datagrams with reports: at most 200 a second.
const SPACING: Duration = Duration::from_millis(5);
/// Datagrams that may leave without waiting after a pause. Gaps between boundaries are geometric:
/// this many come close together now and then although their mean rate is far below the limit.
const BURST: u32 = 10;
/// One byte of reports per this many bytes of the bundle: 1 %.
const BYTES_PER_REPORT_BYTE: u64 = 100;
/// Longest wait of a report for that budget. A slow bundle closes an epoch every 100 ms however
/// few bytes it sends; a fifth of that hardly ages a report, and bounds what is sent beyond the
/// budget to 50 datagrams a second.
const MAX_WAIT: Duration = Duration::from_millis(20);
/// Reports that may wait: eight full datagrams, 40 ms at the highest rate of datagrams.
const MAX_WAITING: usize = 8 * MAX_REPORTS;
/// No reports to a sendbox that was not heard for so long; its own patience is 500 ms or 3 RTT.
const GONE: Duration = Duration::from_secs(3);

/// A boundary packet, as the sampler saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The sampling hash.
    pub hash: u64,
    /// When, on the receivebox's clock.
    pub received_at: Timestamp,
    /// Bytes of the bundle since the receivebox's start, this packet included.
    pub received_bytes: ByteCount,
    /// Packets likewise.
    pub received_packets: u64,
    /// Packets marked congestion experienced likewise.
    pub received_ce: u64,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Boundaries reported.
    pub reports: u64,
    /// Datagrams that reports left in.
    pub report_datagrams: u64,
    /// Bytes of all messages, headers included.
    pub message_bytes: ByteCount,
    /// Packets handed up that are no boundary of the size in force: the sampler lags behind.
    pub not_boundaries: u64,
    /// Boundaries seen while there was no sendbox to tell, or none that would have known them.
    pub without_sendbox: u64,
    /// Reports given up because too many waited.
    pub dropped: u64,
}

/// The receivebox of one bundle. Pure: the host moves datagrams and reads the sampler.
#[derive(Clone, Debug)]
pub struct Receivebox {
    session: Session,
    peer: PeerWatch,
    scope: Exchange,
    versions: Negotiation,
    epoch_size: Option<EpochSize>,
    /// What keepalives say: watching, resting as the sendbox does, or stopping.
    state: BoxState,
    waiting: VecDeque<Report>,
    /// Bytes of the probe that is to be answered.
    probed: Option<u16>,
    budget: Budget,
    counters: Counters,
}

impl Receivebox {
    /// Starts at `now`. `session_id` and `nonce` are fresh random numbers: unpredictable ones from the
    /// system, not from a run's seed.
    pub fn new(
        bundle: BundleId,
        keys: &KeyRing,
        session_id: u64,
        nonce: u64,
        now: Timestamp,
    ) -> Self {
        Self {
            session: Session::new(Role::Receivebox, bundle, keys, session_id, nonce, now),
            peer: PeerWatch::new(now),
            scope: Exchange::new(Role::Receivebox),
            versions: Negotiation::new(),
            epoch_size: None,
            state: BoxState::Watching,
            waiting: VecDeque::with_capacity(MAX_WAITING),
            probed: None,
            budget: Budget::new(now),
            counters: Counters::default(),
        }
    }

    /// Begins again under other keys, as [`Receivebox::new`] does; what was counted stays.
    pub fn restart(&mut self, keys: &KeyRing, session_id: u64, nonce: u64, now: Timestamp) {
        self.session.restart(keys, session_id, nonce, now);
        self.epoch_size = None;
        self.waiting.clear();
        self.scope.restart();
        self.versions.restart();
    }

    /// The host counts these packets of the bundle from now on, as for
    /// [`Sendbox::set_scope`](super::sendbox::Sendbox::set_scope).
    pub fn set_scope(&mut self, now: Timestamp, scope: Scope) {
        if self.scope.set(now, scope) {
            self.peer.tell(PeerEvent::Scope);
        }
    }

    /// The sampler can build these versions of the sampling block, as for
    /// [`Sendbox::set_versions`](super::sendbox::Sendbox::set_versions).
    pub fn set_versions(&mut self, now: Timestamp, versions: BlockVersions) {
        self.versions.offer(now, versions);
    }

    /// The host splits datagrams and may have messages share one, as for
    /// [`Sendbox::offer_rest`](super::sendbox::Sendbox::offer_rest): the bundle rests when the sendbox says so.
    pub fn offer_rest(&mut self, now: Timestamp) {
        self.versions.offer_rest(now);
    }

    /// The host leaves the boxes' messages out by their addresses and ports, as for
    /// [`Sendbox::offer_counting`](super::sendbox::Sendbox::offer_counting): where the sendbox does, too, all else to
    /// and from boxes is counted.
    pub fn offer_counting(&mut self, now: Timestamp) {
        self.versions.offer_counting(now);
    }

    /// The host takes datagrams of up to [`MAX_PROBE`](super::wire::MAX_PROBE) bytes: the sendbox may look for the path
    /// MTU.
    pub fn offer_probes(&mut self, now: Timestamp) {
        self.versions.offer_probes(now);
    }

    /// Takes a datagram from the sendbox; `draw` gives a fresh random number where one is needed.
    /// Afterwards set the sampler to [`Receivebox::sampling_size`], [`Receivebox::sampling_key`] and
    /// [`Receivebox::block_version`] if they changed, and send what [`Receivebox::poll`] has.
    pub fn on_datagram(
        &mut self,
        now: Timestamp,
        datagram: &[u8],
        draw: &mut dyn FnMut() -> u64,
    ) -> Result<(), Reject> {
        let opened = self.session.open(now, datagram, draw);
        while let Some(event) = self.session.take_event() {
            self.waiting.clear();
            match event {
                Event::PeerAlive => self.begin_session(now),
                // Nobody there knows the boundaries that the predecessor sent.
                Event::PeerRestarted => {
                    self.begin_session(now);
                    self.peer.renewed(now);
                }
                Event::SamplingKeyChanged => {}
            }
        }
        let message = opened.inspect_err(|reject| self.peer.rejected(*reject))?;
        match message {
            Some(Message::Keepalive(Keepalive { state, epoch_size })) => {
                self.peer.says(state);
                self.rest(state == BoxState::Resting);
                self.epoch_size = epoch_size.or(self.epoch_size);
            }
            Some(Message::EpochNotice(epoch_size)) => self.epoch_size = Some(epoch_size),
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
            // Of several at once the last is answered, by far the shorter datagram.
            Some(Message::Probe(len)) => self.probed = Some(len),
            Some(
                Message::Reports(_)
                | Message::Challenge { .. }
                | Message::Response { .. }
                | Message::Probed(_),
            )
            | None => {}
        }
        // An answer to a stranger is no sign of life.
        if self.session.heard_at() == Some(now) {
            self.peer.heard(now);
        }
        self.announce();
        Ok(())
    }

    /// A packet that the sampler took for a boundary. Hand over all that are there, then send what
    /// [`Receivebox::poll`] has: reports of the same instant share a datagram.
    pub fn on_boundary(&mut self, now: Timestamp, seen: &Seen) {
        self.budget.earn(seen.received_bytes);
        let is_understood = self.has_sendbox(now) && self.block_version().is_some();
        let Some(epoch_size) = self.epoch_size.filter(|_| is_understood) else {
            self.counters.without_sendbox += 1;
            return;
        };
        if !epoch_size.is_boundary(seen.hash) {
            self.counters.not_boundaries += 1;
            return;
        }
        if self.waiting.len() == MAX_WAITING {
            // The newest says most about the path as it is now.
            self.waiting.pop_front();
            self.counters.dropped += 1;
        }
        if self.waiting.is_empty() {
            self.budget.waiting_since = now;
        }
        self.waiting.push_back(Report {
            hash: seen.hash,
            received_at: seen.received_at,
            received_bytes: seen.received_bytes,
            received_packets: seen.received_packets,
            received_ce: seen.received_ce,
            epoch_size,
        });
    }

    /// Replaces `out` by the next datagram that is due. False if none is; call until then.
    pub fn poll(&mut self, now: Timestamp, out: &mut Vec<u8>) -> bool {
        self.peer.poll(now, None);
        if let Some(reports) = self.reports_due(now) {
            self.session.seal(now, &Message::Reports(reports), out);
            self.counters.reports += reports.as_slice().len() as u64;
            self.counters.report_datagrams += 1;
            self.budget.spend(now, out.len());
        } else if let Some(len) = self.probed.take() {
            self.session.seal(now, &Message::Probed(len), out);
        } else if let Some(scope) = self.scope.poll(now) {
            self.session.seal(now, &Message::Scope(scope), out);
        } else if let Some(versions) = self.versions.poll(now) {
            self.session.seal(now, &Message::Versions(versions), out);
        } else if !self.session.poll(now, out) {
            return false;
        }
        self.counters.message_bytes += ByteCount::new(out.len() as u64) + MESSAGE_HEADERS;
        true
    }

    /// When [`Receivebox::poll`] is next needed.
    pub fn next_timer(&self) -> Timestamp {
        let reports = match self.waiting.len() {
            0 => Timestamp::MAX,
            waiting => self.budget.next_datagram(waiting),
        };
        if self.probed.is_some() {
            return Timestamp::ZERO;
        }
        let told = self.scope.next_timer().min(self.versions.next_timer());
        reports.min(self.session.next_timer()).min(told)
    }

    /// Says farewell with the next [`Receivebox::poll`]: the sendbox need not wait for silence.
    pub fn stop(&mut self) {
        self.state = BoxState::Stopping;
        self.announce();
    }

    /// Epoch size in force; `None` before the sendbox named one.
    pub const fn epoch_size(&self) -> Option<EpochSize> {
        self.epoch_size
    }

    /// Epoch size to sample with: before the sendbox named one nobody waits for reports.
    pub fn sampling_size(&self) -> EpochSize {
        self.epoch_size.unwrap_or(EpochSize::MAX)
    }

    /// The key to sample with.
    pub fn sampling_key(&self) -> SamplingKey {
        self.session.sampling_key()
    }

    /// The version of the sampling block to sample with; `None`: the sendbox builds none that this box does, as far as
    /// it has told, and nothing is reported.
    pub fn block_version(&self) -> Option<BlockVersion> {
        self.versions.version()
    }

    /// News of the sendbox, oldest first.
    pub fn take_event(&mut self) -> Option<PeerEvent> {
        self.peer.take_event()
    }

    /// In what the boxes differ that they take for the bundle's packets; `None`: not known.
    pub fn differences(&self) -> Option<&[Difference]> {
        self.scope.differences()
    }

    /// Addresses of the sendbox among the sources, whose packets it cannot count: the host is to leave them out
    /// too. `None`: not known.
    pub fn sendbox_addresses(&self) -> Option<&AddressSet> {
        self.scope.peer_own()
    }

    /// Whether both boxes leave out messages alone of what goes to and from boxes, as far as is known.
    pub fn counts_boxes(&self) -> bool {
        self.versions.both_count_boxes()
    }

    /// What is known of the sendbox.
    pub const fn peer(&self) -> &PeerWatch {
        &self.peer
    }

    /// What an operator should look into.
    pub fn alarm(&self) -> Option<&'static str> {
        if self.peer.is_unverified() {
            return Some(KEYS_DIFFER);
        }
        let is_alive = self.peer.liveness() == Liveness::Alive;
        (is_alive && self.block_version().is_none()).then_some(NO_COMMON_VERSION)
    }

    /// Replaces `out` by a challenge that is to be sent to one address alone ([`super::paths`]).
    pub fn challenge_at(&mut self, nonce: u64, out: &mut Vec<u8>) {
        self.session.challenge_at(nonce, out);
        self.counters.message_bytes += ByteCount::new(out.len() as u64) + MESSAGE_HEADERS;
    }

    /// The nonce of such a challenge that the newest datagram has answered.
    pub const fn take_answered(&mut self) -> Option<u64> {
        self.session.take_answered()
    }

    /// Whether a datagram was made with a key of the sendbox, now or long ago; has no effect.
    pub fn verifies(&self, datagram: &[u8]) -> bool {
        self.session.verifies(datagram)
    }

    /// When the sendbox was last heard.
    pub const fn heard_at(&self) -> Option<Timestamp> {
        self.session.heard_at()
    }

    /// What was counted since the start.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Datagrams that were rejected.
    pub const fn rejects(&self) -> &RejectCounts {
        self.session.rejects()
    }

    fn rest(&mut self, rests: bool) {
        if self.state != BoxState::Stopping {
            self.state = if rests { BoxState::Resting } else { BoxState::Watching };
        }
    }

    fn begin_session(&mut self, now: Timestamp) {
        self.rest(false);
        self.epoch_size = None;
        self.scope.on_session(now);
        self.versions.on_session(now);
    }

    fn has_sendbox(&self, now: Timestamp) -> bool {
        self.session.heard_at().is_some_and(|heard_at| now.saturating_since(heard_at) < GONE)
    }

    fn announce(&mut self) {
        let Self { state, epoch_size, .. } = *self;
        self.session.set_keepalive(Keepalive { state, epoch_size });
    }

    fn reports_due(&mut self, now: Timestamp) -> Option<Reports> {
        let waiting = self.waiting.len();
        if waiting == 0 || now < self.budget.next_datagram(waiting) {
            return None;
        }
        let batch = waiting.min(MAX_REPORTS);
        let reports = Reports::new(&self.waiting.make_contiguous()[..batch]);
        self.waiting.drain(..batch);
        reports
    }
}

/// When the next datagram with reports may leave: a rate of datagrams (as the generic cell rate
/// algorithm) and a share of the bundle's bytes.
#[derive(Clone, Copy, Debug)]
struct Budget {
    /// When the next datagram would be due if all had left evenly spaced.
    even_departure: Timestamp,
    /// Bytes of the bundle that no datagram was paid with yet.
    unspent: u64,
    /// The bundle's counter when it was last read.
    received_bytes: Option<ByteCount>,
    /// Since when the oldest report waits.
    waiting_since: Timestamp,
}

impl Budget {
    /// What a burst of datagrams with one report each costs.
    const UNSPENT_MAX: u64 = BURST as u64 * Self::price(1);

    const fn new(now: Timestamp) -> Self {
        let unspent = Self::UNSPENT_MAX;
        Self { even_departure: now, unspent, received_bytes: None, waiting_since: now }
    }

    /// Bytes of the bundle that pay for a datagram with so many reports.
    const fn price(reports: usize) -> u64 {
        BYTES_PER_REPORT_BYTE * (reports_len(reports) as u64 + MESSAGE_HEADERS.as_u64())
    }

    fn earn(&mut self, received_bytes: ByteCount) {
        let before = self.received_bytes.replace(received_bytes).unwrap_or(received_bytes);
        let earned = received_bytes.saturating_sub(before).as_u64();
        self.unspent = self.unspent.saturating_add(earned).min(Self::UNSPENT_MAX);
    }

    fn next_datagram(&self, waiting: usize) -> Timestamp {
        let is_paid = self.unspent >= Self::price(waiting.min(MAX_REPORTS));
        let paid = if is_paid { self.waiting_since } else { self.waiting_since + MAX_WAIT };
        paid.max(self.even_departure - SPACING * (BURST - 1))
    }

    fn spend(&mut self, now: Timestamp, datagram_len: usize) {
        self.even_departure = self.even_departure.max(now) + SPACING;
        let price = BYTES_PER_REPORT_BYTE * (datagram_len as u64 + MESSAGE_HEADERS.as_u64());
        self.unspent = self.unspent.saturating_sub(price);
        // Those that are left wait anew: there is one datagram per wait beyond the budget.
        self.waiting_since = now;
    }
}

#[cfg(test)]
mod tests;
