//! The receivebox of one bundle: it takes boundary packets and sends reports.
//!
//! It reads the kernel sampler and touches no traffic. Reports leave at once while the budget allows it (200
//! datagrams a second, 1 % of the bundle's bytes). Beyond the budget they wait and share datagrams. They are
//! only lost if their queue is full. A delayed report does not harm the sendbox's estimates, because it carries
//! the packet's arrival time.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

use super::protocol::endpoint::Endpoint;
use super::protocol::keys::KeyRing;
use super::protocol::monitor::Liveness;
use super::protocol::peer::{KEYS_DIFFER, NO_COMMON_VERSION};
use super::protocol::scope::AddressSet;
use super::protocol::session::{Event, Role};
use super::protocol::wire::{
    BoxState, Keepalive, MAX_REPORTS, MESSAGE_HEADERS, Message, Reject, Reports, reports_len,
};
use super::{BundleId, EpochSize, Report};
use crate::units::{ByteCount, Timestamp};

/// Shortest mean time between datagrams with reports: at most 200 a second.
const SPACING: Duration = Duration::from_millis(5);
/// Datagrams that may leave without waiting after a pause. Gaps between boundaries are geometric: sometimes
/// this many are close together although their mean rate is far below the limit.
const BURST: u32 = 10;
/// One byte of reports per this many bytes of the bundle: 1 %.
const BYTES_PER_REPORT_BYTE: u64 = 100;
/// Longest time that a report may wait for the budget of [`BYTES_PER_REPORT_BYTE`]. Even a slow bundle closes
/// an epoch every 100 ms. A fifth of that hardly ages a report, and limits the excess over the budget to 50
/// datagrams a second.
const MAX_WAIT: Duration = Duration::from_millis(20);
/// Reports that may wait: eight full datagrams, 40 ms at the highest rate of datagrams.
const MAX_WAITING: usize = 8 * MAX_REPORTS;
/// No reports to a sendbox that was silent for this time. The sendbox itself waits 500 ms or 3 RTT.
const GONE: Duration = Duration::from_secs(3);

/// A boundary packet, as the sampler saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The sampling hash.
    pub hash: u64,
    /// Arrival time on the receivebox's clock.
    pub received_at: Timestamp,
    /// Bytes of the bundle since the receivebox's start, this packet included.
    pub received_bytes: ByteCount,
    /// Packets of the bundle since the receivebox's start, this one included.
    pub received_packets: u64,
    /// Packets among these that were marked congestion experienced.
    pub received_ce: u64,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveboxCounters {
    /// Boundaries reported.
    pub reports: u64,
    /// Datagrams with reports.
    pub report_datagrams: u64,
    /// Boundaries without a report, because no sendbox was there or it would not have known them.
    pub without_sendbox: u64,
    /// Reports dropped because too many waited.
    pub dropped: u64,
}

/// The receivebox of one bundle. Pure: the host moves datagrams and reads the sampler.
#[derive(Clone, Debug)]
pub struct Receivebox {
    end: Endpoint,
    epoch_size: Option<EpochSize>,
    /// State in the keepalives: watching, resting as the sendbox does, or stopping.
    state: BoxState,
    waiting: VecDeque<Report>,
    /// Bytes of the probe to answer.
    probed: Option<u16>,
    budget: Budget,
    counters: ReceiveboxCounters,
}

impl Deref for Receivebox {
    type Target = Endpoint;
    fn deref(&self) -> &Endpoint {
        &self.end
    }
}

impl DerefMut for Receivebox {
    fn deref_mut(&mut self) -> &mut Endpoint {
        &mut self.end
    }
}

impl Receivebox {
    /// Starts at `now`. `session_id` and `nonce` are fresh random numbers: unpredictable ones from the system,
    /// not from a run's seed.
    pub fn new(
        bundle: BundleId,
        keys: &KeyRing,
        session_id: u64,
        nonce: u64,
        now: Timestamp,
    ) -> Self {
        Self {
            end: Endpoint::new(Role::Receivebox, bundle, keys, [session_id, nonce], now),
            epoch_size: None,
            state: BoxState::Watching,
            waiting: VecDeque::with_capacity(MAX_WAITING),
            probed: None,
            budget: Budget::new(now),
            counters: ReceiveboxCounters::default(),
        }
    }

    /// Restarts under other keys, as [`Receivebox::new`] does. Counters keep their values.
    pub fn restart(&mut self, keys: &KeyRing, session_id: u64, nonce: u64, now: Timestamp) {
        self.end.restart(keys, [session_id, nonce], now);
        self.epoch_size = None;
        self.waiting.clear();
    }

    /// The host accepts datagrams of up to [`MAX_PROBE`](super::wire::MAX_PROBE) bytes, so the sendbox may
    /// search for the path MTU.
    pub fn offer_probes(&mut self, now: Timestamp) {
        self.end.versions.offer_probes(now);
    }

    /// Takes a datagram from the sendbox. `draw` gives a fresh random number when one is needed. Afterwards set
    /// the sampler to [`Receivebox::sampling_size`], [`Endpoint::sampling_key`] and [`Endpoint::block_version`]
    /// if they changed, and send the datagrams of [`Receivebox::poll`].
    pub fn on_datagram(
        &mut self,
        now: Timestamp,
        datagram: &[u8],
        draw: &mut dyn FnMut() -> u64,
    ) -> Result<(), Reject> {
        let opened = self.end.session.open(now, datagram, draw);
        while let Some(event) = self.end.session.take_event() {
            self.waiting.clear();
            match event {
                Event::PeerAlive => self.begin_session(now),
                // The new sendbox does not know the boundaries of its predecessor.
                Event::PeerRestarted => {
                    self.begin_session(now);
                    self.end.peer.renewed(now);
                }
                Event::SamplingKeyChanged => {}
            }
        }
        let message = opened.inspect_err(|reject| self.end.peer.rejected(*reject))?;
        match message {
            Some(Message::Keepalive(Keepalive { state, epoch_size })) => {
                self.end.peer.says(state);
                self.rest(state == BoxState::Resting);
                self.epoch_size = epoch_size.or(self.epoch_size);
            }
            Some(Message::EpochNotice(epoch_size)) => self.epoch_size = Some(epoch_size),
            Some(message @ (Message::Scope(_) | Message::Versions(_))) => {
                self.end.on_terms(now, &message);
            }
            // If several probes arrive at once, answer only the last. The answer is much shorter than a probe.
            Some(Message::Probe(len)) => self.probed = Some(len),
            Some(
                Message::Reports(_)
                | Message::Challenge { .. }
                | Message::Response { .. }
                | Message::Probed(_),
            )
            | None => {}
        }
        // A response to an unknown session is no sign of life.
        if self.end.session.heard_at() == Some(now) {
            self.end.peer.heard(now);
        }
        self.announce();
        Ok(())
    }

    /// Takes a packet that the sampler chose as a boundary by the epoch size in force when it arrived. Hand
    /// over all available boundaries, then send the datagrams of [`Receivebox::poll`]: reports of the same
    /// instant share a datagram.
    pub fn on_boundary(&mut self, now: Timestamp, seen: &Seen) {
        self.budget.earn(seen.received_bytes);
        let is_understood = self.has_sendbox(now) && self.block_version().is_some();
        let Some(epoch_size) = self.epoch_size.filter(|_| is_understood) else {
            self.counters.without_sendbox += 1;
            return;
        };
        if self.waiting.len() == MAX_WAITING {
            // The newest report is the best evidence of the path's present state.
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
        self.end.peer.poll(now, None);
        if let Some(reports) = self.reports_due(now) {
            self.end.session.seal(now, &Message::Reports(reports), out);
            self.counters.reports += reports.as_slice().len() as u64;
            self.counters.report_datagrams += 1;
            self.budget.spend(now, out.len());
        } else if let Some(len) = self.probed.take() {
            self.end.session.seal(now, &Message::Probed(len), out);
        } else if !self.end.poll_terms(now, out) && !self.end.session.poll(now, out) {
            return false;
        }
        self.end.count_message(out);
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
        reports.min(self.end.next_timer())
    }

    /// Announces the stop with the next [`Receivebox::poll`], so that the sendbox need not wait for silence.
    pub fn stop(&mut self) {
        self.state = BoxState::Stopping;
        self.announce();
    }

    /// Epoch size in force; `None` until the sendbox has sent one.
    pub const fn epoch_size(&self) -> Option<EpochSize> {
        self.epoch_size
    }

    /// Epoch size to sample with: the largest until the sendbox has sent one, because reports are not needed before.
    pub fn sampling_size(&self) -> EpochSize {
        self.epoch_size.unwrap_or(EpochSize::MAX)
    }

    /// The sendbox's own addresses among the sources. It cannot count its own packets, so the host must not
    /// count them either. `None`: unknown.
    pub fn sendbox_addresses(&self) -> Option<&AddressSet> {
        self.end.scope.peer_own()
    }

    /// A condition that needs the operator's attention.
    pub fn alarm(&self) -> Option<&'static str> {
        if self.end.peer.is_unverified() {
            return Some(KEYS_DIFFER);
        }
        let is_alive = self.end.peer.liveness() == Liveness::Alive;
        (is_alive && self.block_version().is_none()).then_some(NO_COMMON_VERSION)
    }

    /// Counters since the start.
    pub const fn counters(&self) -> &ReceiveboxCounters {
        &self.counters
    }

    fn rest(&mut self, rests: bool) {
        if self.state != BoxState::Stopping {
            self.state = if rests { BoxState::Resting } else { BoxState::Watching };
        }
    }

    fn begin_session(&mut self, now: Timestamp) {
        self.rest(false);
        self.epoch_size = None;
        self.end.on_session(now);
    }

    fn has_sendbox(&self, now: Timestamp) -> bool {
        self.end.session.heard_at().is_some_and(|heard_at| now.saturating_since(heard_at) < GONE)
    }

    fn announce(&mut self) {
        let Self { state, epoch_size, .. } = *self;
        self.end.session.set_keepalive(Keepalive { state, epoch_size });
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

/// Decides when the next datagram with reports may leave. It limits the rate of datagrams (like the generic
/// cell rate algorithm) and their share of the bundle's bytes.
#[derive(Clone, Copy, Debug)]
struct Budget {
    /// Time of the next datagram if all had left evenly spaced.
    even_departure: Timestamp,
    /// Bytes of the bundle that have not paid for a datagram yet.
    unspent: u64,
    /// The bundle's counter when it was last read.
    received_bytes: Option<ByteCount>,
    /// Start of the oldest report's wait.
    waiting_since: Timestamp,
}

impl Budget {
    /// Price of a burst of datagrams with one report each.
    const UNSPENT_MAX: u64 = BURST as u64 * Self::price(1);

    const fn new(now: Timestamp) -> Self {
        let unspent = Self::UNSPENT_MAX;
        Self { even_departure: now, unspent, received_bytes: None, waiting_since: now }
    }

    /// Bytes of the bundle that pay for a datagram with this number of reports.
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
        // The remaining reports start a new wait: beyond the budget, one datagram leaves per wait.
        self.waiting_since = now;
    }
}

#[cfg(test)]
mod tests;
