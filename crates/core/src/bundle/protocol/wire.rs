//! Messages between the boxes: one message per UDP datagram, little-endian, authenticated.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | `FBAY` |
//! | 4 | version, 1 |
//! | 5 | type |
//! | 6..8 | bundle |
//! | 8..16 | session of the sender: a random number drawn at its start |
//! | 16..24 | sequence number in the session, from 1 |
//! | 24..n | payload |
//! | n..n+16 | tag over everything before it ([`super::keys::MessageKey`]) |
//!
//! | type | direction | payload |
//! |---|---|---|
//! | 1 challenge | both | nonce (8) |
//! | 2 response | both | nonce answered (8), session answered (8), whether a nonce follows (1), own nonce (8) |
//! | 3 keepalive | both | state (1), log2 of the epoch size (1), 255 where there is none |
//! | 4 epoch notice | to the receivebox | log2 of the epoch size (1) |
//! | 5 reports | to the sendbox | count (1), then 1 to 8 reports: hash (8), log2 of the epoch size (1), then as varints: received at (ns), bytes, packets, CE-marked packets |
//! | 6 scope | both | identity of the peer's scope, or 0 (8), whether the sender wants an answer (1), own scope ([`ToldScope`]) |
//! | 7 versions | both | the peer's latest offer, or 0 (1), whether the sender wants an answer (1), own offer (1): a bit for each version of the sampling block that the sender builds. The highest bit: it rests. The next bit: it counts all traffic of the boxes except their messages. The bit below: it sends or answers probes |
//! | 8 probe | to the receivebox | bytes of the datagram (2) |
//! | 9 probed | to the sendbox | bytes of the datagram that arrived (2) |
//!
//! Zeros follow the tag of a probe up to its stated length ([`super::mtu`]). No tag covers them, so that
//! refusing a long datagram takes no longer than a short one.
//!
//! A varint has seven bits per byte, the lowest first. The highest bit is set in all bytes but the last, and
//! the form must be the shortest possible. Counters that begin at zero are short: a report after a minute takes
//! 107 bytes with all headers, and 124 with counters of 8 bytes. A queue limited in bytes that is full of
//! acknowledgements of 66 bytes accepts only short packets.
//!
//! A challenge asks the receiver to prove that it holds the key and runs now. A challenge to a single address
//! has a nonce of its own and asks whether the peer is there ([`super::paths`]). Its answer is a normal
//! response, so boxes of all versions send it.
//!
//! The length of a datagram follows from its type and counts. Any other length is refused. A box counts a
//! message of an unknown type and ignores it, so that boxes of different versions work together. The session
//! decides whether a message is fresh.
//!
//! Messages 6 and 7 negotiate the differences between versions of forebay. The version in the header stays the
//! same: boxes refuse any other, and an upgrade of one box must not silence it.
//!
//! A bundle is at rest if nothing has left for a while. If both boxes rest, their keepalives leave once a
//! second. Several of these keepalives share a datagram ([`split`]), each as a whole message with its own tag.

mod scope;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

pub use scope::{ScopeMessage, ToldScope};

use super::keys::{MessageKey, TAG_LEN};
use crate::bundle::{BlockVersions, BundleId, EpochSize, Report};
use crate::units::{ByteCount, Timestamp};

/// The version of the format that this file reads and writes.
pub const VERSION: u8 = 1;
/// Most reports in a datagram. 200 datagrams a second then carry 1,600 boundaries a second, eight times the
/// need of any algorithm.
pub const MAX_REPORTS: usize = 8;
/// Bytes of the largest datagram. It fits the smallest IPv4 MTU (576 bytes, RFC 1122 section 3.3.3) with
/// headers of 28 bytes and so is never fragmented.
pub const MAX_DATAGRAM: usize = 548;

/// Bytes of the longest probe: with headers, a packet of the longest common jumbo frames (9216 bytes).
pub const MAX_PROBE: usize = 9_216 - 28;

/// Bytes of a datagram with this number of reports, with counters after a day or two at 1 Gbit/s.
pub const fn reports_len(reports: usize) -> usize {
    HEADER_LEN + 1 + reports * REPORT_LEN + TAG_LEN
}

/// DSCP of the messages: network control (CS6, RFC 4594 section 3.1), which queues with classes serve first.
/// The messages are few, and a message that waits behind data arrives too late to show the state of the path.
pub const MESSAGE_DSCP: u8 = 48;

/// Bytes of headers around a datagram: Ethernet 14, IPv4 20, UDP 8.
pub const MESSAGE_HEADERS: ByteCount = ByteCount::new(42);

/// First bytes of every datagram. A datagram without them is refused.
const MAGIC: [u8; 4] = *b"FBAY";
/// Bytes of the header in front of the messages of a datagram.
const HEADER_LEN: usize = 24;
/// Hash, epoch size and varints of 47, 42, 35 and 7 bits.
const REPORT_LEN: usize = 8 + 1 + 7 + 6 + 5 + 1;
/// Number of varints in a report.
const REPORT_VARINTS: usize = 4;
/// Bytes of the longest varint: 64 bits, seven in each byte.
const VARINT_MAX: usize = 10;
/// Value of the epoch-size byte that means "none"; other values are the binary logarithm.
const NO_EPOCH_SIZE: u8 = 255;
/// Type of a keepalive.
const KEEPALIVE: u8 = 3;
/// Bytes of a datagram with a keepalive alone.
const KEEPALIVE_LEN: usize = HEADER_LEN + 2 + TAG_LEN;
/// Type of a probe.
const PROBE: u8 = 8;
/// Bytes of a probe up to and including its tag, and of the answer.
const PROBE_LEN: usize = HEADER_LEN + 2 + TAG_LEN;
/// Bytes of a datagram with a challenge.
pub const CHALLENGE_LEN: usize = HEADER_LEN + 8 + TAG_LEN;
/// Largest number of keepalives in a datagram.
pub const SHARED: usize = MAX_DATAGRAM / KEEPALIVE_LEN;

crate::named! {
    /// State of a box in its keepalives.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum BoxState {
        /// Sendbox: measures, does not shape.
        Measuring = 1 => "measuring",
        /// Sendbox: shapes.
        Shaping = 2 => "shaping",
        /// Sendbox: measures and logs the rate it would set.
        DryRun = 3 => "dry_run",
        /// Receivebox: watches.
        Watching = 4 => "watching",
        /// Either box: is about to stop.
        Stopping = 5 => "stopping",
        /// Either box: nothing has left for a while, and keepalives become rare. Sent only to a peer that
        /// rests, too.
        Resting = 6 => "resting",
    }
}

/// Sent every 100 ms if nothing else is, and every second for a bundle at rest. It shows that the box is alive,
/// and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// State of the sender.
    pub state: BoxState,
    /// Epoch size in force at the sender; `None` at a receivebox that has received none yet.
    pub epoch_size: Option<EpochSize>,
}

/// 1 to [`MAX_REPORTS`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reports {
    reports: [Report; MAX_REPORTS],
    len: usize,
}

impl Reports {
    /// `None` unless there are 1 to [`MAX_REPORTS`].
    pub fn new(reports: &[Report]) -> Option<Self> {
        let first = *reports.first()?;
        let mut batch = Self { reports: [first; MAX_REPORTS], len: reports.len() };
        batch.reports.get_mut(..reports.len())?.copy_from_slice(reports);
        Some(batch)
    }

    /// The reports, in order of the packets' arrival.
    pub fn as_slice(&self) -> &[Report] {
        &self.reports[..self.len]
    }
}

/// Optional abilities of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Versions of the sampling block that the box builds.
    pub versions: BlockVersions,
    /// The box understands rare keepalives of a bundle at rest, and several in a datagram.
    pub rests: bool,
    /// All traffic of the boxes belongs to bundles, except their messages.
    pub counts_boxes: bool,
    /// The box searches for the path MTU: a sendbox sends probes, and a receivebox answers them.
    pub probes: bool,
}

impl Offer {
    /// Bit of `rests` in the byte of an offer.
    const RESTS: u8 = 0x80;
    /// Bit of `counts_boxes` in the byte of an offer.
    const COUNTS_BOXES: u8 = 0x40;
    /// Bit of `probes` in the byte of an offer. The bits below are the versions.
    const PROBES: u8 = 0x20;

    /// `None` if the box offers nothing.
    const fn from_byte(byte: u8) -> Option<Self> {
        if byte == 0 {
            return None;
        }
        Some(Self {
            versions: BlockVersions::from_bits(
                byte & !(Self::RESTS | Self::COUNTS_BOXES | Self::PROBES),
            ),
            rests: byte & Self::RESTS != 0,
            counts_boxes: byte & Self::COUNTS_BOXES != 0,
            probes: byte & Self::PROBES != 0,
        })
    }

    const fn byte(self) -> u8 {
        let rests = if self.rests { Self::RESTS } else { 0 };
        let counts_boxes = if self.counts_boxes { Self::COUNTS_BOXES } else { 0 };
        let probes = if self.probes { Self::PROBES } else { 0 };
        self.versions.bits() | rests | counts_boxes | probes
    }
}

/// The offers of both boxes, as far as the sender knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionsMessage {
    /// The receiver's offer, as the sender knows it; `None`: unknown.
    pub held: Option<Offer>,
    /// The sender wants an answer, because it does not know whether its offer has arrived.
    pub asks: bool,
    /// The sender's offer: at least one version.
    pub offered: Offer,
}

/// One message: 550 bytes on the stack, 200 times a second at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Asks the peer to prove that it is running now.
    Challenge {
        /// Fresh random number.
        nonce: u64,
    },
    /// Proves that the sender was running after `nonce` was drawn.
    Response {
        /// The nonce answered.
        nonce: u64,
        /// The session whose challenge is answered.
        session: u64,
        /// A challenge in return, if the sender does not know this session yet.
        challenge: Option<u64>,
    },
    /// The sender is alive.
    Keepalive(Keepalive),
    /// The sendbox uses another epoch size from now on.
    EpochNotice(EpochSize),
    /// Boundary packets that the receivebox saw.
    Reports(Reports),
    /// The packets that the sender counts as the bundle's.
    Scope(ScopeMessage),
    /// The sender's versions of the sampling block and other abilities.
    Versions(VersionsMessage),
    /// Tests whether a datagram of this many bytes, such as this one, reaches the receivebox.
    Probe(u16),
    /// A datagram of this many bytes has reached the receivebox.
    Probed(u16),
}

/// Fields before the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The bundle.
    pub bundle: BundleId,
    /// The sender's session.
    pub session: u64,
    /// Number of the message in that session.
    pub sequence: u64,
}

crate::named! {
    /// Why a datagram was not accepted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    #[error("{}", self.name())]
    #[repr(u8)]
    pub enum Reject {
        /// Shorter than its type requires, or than any message.
        Truncated => "truncated",
        /// Longer than its type allows, or than any message.
        Oversized => "oversized",
        /// Not a message of this protocol.
        NotOurs => "not_ours",
        /// The version is not supported.
        Version => "version",
        /// The message is about a bundle that is not configured.
        UnknownBundle => "unknown_bundle",
        /// The type is unknown.
        UnknownType => "unknown_type",
        /// The tag is wrong under every valid key.
        Forged => "forged",
        /// Authentic, but a value is out of its range, or the sender never sends this type.
        Malformed => "malformed",
        /// Authentic, but its session has not answered a fresh nonce. The session is old, or the peer has
        /// restarted and a challenge is under way.
        UnknownSession => "unknown_session",
        /// The message answers a nonce that is not open.
        StaleNonce => "stale_nonce",
        /// The sequence number was used before, or is older than the window.
        Replayed => "replayed",
        /// An authentic challenge of an unknown session, beyond the limit on the rate of replies.
        Limited => "limited",
    }
}

/// Number of rejected datagrams for each reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RejectCounts([u64; Reject::ALL.len()]);

impl RejectCounts {
    /// Counts a rejected datagram.
    pub fn count(&mut self, reject: Reject) {
        self.0[reject as usize] += 1;
    }

    /// Count for this reason.
    pub const fn get(&self, reject: Reject) -> u64 {
        self.0[reject as usize]
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Reject, u64)> + '_ {
        Reject::ALL.into_iter().zip(self.0)
    }

    /// Sum over all reasons.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// A datagram with a valid length, version and type that is not authenticated yet.
#[derive(Clone, Copy, Debug)]
pub struct Sealed<'a> {
    datagram: &'a [u8],
    header: Header,
}

impl<'a> Sealed<'a> {
    /// Performs the checks that need no key.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Reject> {
        if datagram.len() < HEADER_LEN + TAG_LEN {
            return Err(Reject::Truncated);
        }
        let is_probe = datagram[5] == PROBE;
        if datagram.len() > if is_probe { MAX_PROBE } else { MAX_DATAGRAM } {
            return Err(Reject::Oversized);
        }
        if datagram[..4] != MAGIC {
            return Err(Reject::NotOurs);
        }
        if datagram[4] != VERSION {
            return Err(Reject::Version);
        }
        let len = datagram.len();
        let datagram = if is_probe { &datagram[..len.min(PROBE_LEN)] } else { datagram };
        let payload = &datagram[HEADER_LEN..datagram.len() - TAG_LEN];
        match payload.len().cmp(&payload_len(datagram[5], payload)?) {
            core::cmp::Ordering::Less => return Err(Reject::Truncated),
            core::cmp::Ordering::Greater => return Err(Reject::Oversized),
            core::cmp::Ordering::Equal => {}
        }
        if is_probe {
            match len.cmp(&usize::from(Reader(payload).u16())) {
                core::cmp::Ordering::Less => return Err(Reject::Truncated),
                core::cmp::Ordering::Greater => return Err(Reject::Oversized),
                core::cmp::Ordering::Equal => {}
            }
        }
        let mut fields = Reader(&datagram[6..HEADER_LEN]);
        let bundle = BundleId(u16::from_le_bytes(fields.array()));
        let header = Header { bundle, session: fields.u64(), sequence: fields.u64() };
        Ok(Self { datagram, header })
    }

    /// The bundle that the datagram claims to be about. It selects the keys.
    pub const fn bundle(&self) -> BundleId {
        self.header.bundle
    }

    /// Verifies the tag under each of `keys` and reads the message. Also returns the index of the matching key.
    pub fn open(&self, keys: &[MessageKey]) -> Result<(Header, Message, usize), Reject> {
        let (body, tag) = self.datagram.split_at(self.datagram.len() - TAG_LEN);
        let tag = tag.try_into().map_err(|_| Reject::Truncated)?;
        let key = keys.iter().position(|key| key.verifies(body, tag)).ok_or(Reject::Forged)?;
        let message = read_payload(body[5], &body[HEADER_LEN..]).ok_or(Reject::Malformed)?;
        Ok((self.header, message, key))
    }
}

impl Message {
    /// Replaces the content of `out` by the datagram.
    pub fn seal(&self, header: Header, key: &MessageKey, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, self.kind()]);
        out.extend_from_slice(&header.bundle.0.to_le_bytes());
        out.extend_from_slice(&header.session.to_le_bytes());
        out.extend_from_slice(&header.sequence.to_le_bytes());
        self.write_payload(out);
        let tag = key.tag(out);
        out.extend_from_slice(&tag);
        if let Self::Probe(len) = self {
            out.resize(out.len().max(usize::from(*len)), 0);
        }
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Challenge { .. } => 1,
            Self::Response { .. } => 2,
            Self::Keepalive(_) => KEEPALIVE,
            Self::EpochNotice(_) => 4,
            Self::Reports(_) => 5,
            Self::Scope(_) => 6,
            Self::Versions(_) => 7,
            Self::Probe(_) => PROBE,
            Self::Probed(_) => 9,
        }
    }

    fn write_payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::Challenge { nonce } => out.extend_from_slice(&nonce.to_le_bytes()),
            Self::Response { nonce, session, challenge } => {
                out.extend_from_slice(&nonce.to_le_bytes());
                out.extend_from_slice(&session.to_le_bytes());
                out.push(u8::from(challenge.is_some()));
                out.extend_from_slice(&challenge.unwrap_or(0).to_le_bytes());
            }
            Self::Keepalive(Keepalive { state, epoch_size }) => {
                let log2 = epoch_size.map_or(NO_EPOCH_SIZE, EpochSize::log2);
                out.extend_from_slice(&[*state as u8, log2]);
            }
            Self::EpochNotice(epoch_size) => out.push(epoch_size.log2()),
            Self::Reports(reports) => {
                out.push(reports.len as u8);
                reports.as_slice().iter().for_each(|report| write_report(report, out));
            }
            Self::Scope(scope) => scope.write(out),
            Self::Versions(VersionsMessage { held, asks, offered }) => {
                let held = held.map_or(0, Offer::byte);
                out.extend_from_slice(&[held, u8::from(*asks), offered.byte()]);
            }
            Self::Probe(len) | Self::Probed(len) => out.extend_from_slice(&len.to_le_bytes()),
        }
    }
}

fn write_report(report: &Report, out: &mut Vec<u8>) {
    out.extend_from_slice(&report.hash.to_le_bytes());
    out.push(report.epoch_size.log2());
    write_varint(report.received_at.as_nanos(), out);
    write_varint(report.received_bytes.as_u64(), out);
    write_varint(report.received_packets, out);
    write_varint(report.received_ce, out);
}

fn write_varint(mut number: u64, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Bytes of `count` reports at the start of `bytes`, with any values; `None` if `bytes` is too short.
fn reports_end(count: u8, bytes: &[u8]) -> Option<usize> {
    let mut end = 0;
    for _ in 0..count {
        end += 9;
        for _ in 0..REPORT_VARINTS {
            let rest = bytes.get(end..)?;
            let last = rest.iter().take(VARINT_MAX).position(|byte| byte & 0x80 == 0);
            // A longer varint has a value out of range, which the reader detects.
            end += last.map_or(VARINT_MAX, |at| at + 1);
        }
    }
    (end <= bytes.len()).then_some(end)
}

/// The first message of a datagram, and the rest. The rest is empty unless the datagram consists of keepalives,
/// which all have one length. Neither part is authenticated yet, and the rest need not be a message. A
/// keepalive followed by anything else is one message, which is too long.
pub fn split(datagram: &[u8]) -> (&[u8], &[u8]) {
    let may_be_several =
        datagram.len() <= MAX_DATAGRAM && datagram.len().is_multiple_of(KEEPALIVE_LEN);
    match datagram.split_at_checked(KEEPALIVE_LEN) {
        Some((first, rest)) if first[5] == KEEPALIVE && may_be_several => (first, rest),
        _ => (datagram, &[]),
    }
}

/// Whether an outgoing datagram may wait and share a datagram with other messages to the same peer. Only the
/// keepalive of a bundle at rest may.
pub fn may_share(datagram: &[u8]) -> bool {
    datagram.len() == KEEPALIVE_LEN
        && datagram[5] == KEEPALIVE
        && datagram[HEADER_LEN] == BoxState::Resting as u8
}

/// The payload length by the type and, for reports and scopes, by the counts.
fn payload_len(kind: u8, payload: &[u8]) -> Result<usize, Reject> {
    match kind {
        1 => Ok(8),
        2 => Ok(25),
        KEEPALIVE => Ok(2),
        4 => Ok(1),
        5 => match payload.first() {
            None => Err(Reject::Truncated),
            Some(0) => Err(Reject::Truncated),
            Some(&count) if usize::from(count) > MAX_REPORTS => Err(Reject::Oversized),
            Some(&count) => {
                reports_end(count, &payload[1..]).map(|len| 1 + len).ok_or(Reject::Truncated)
            }
        },
        6 => ScopeMessage::payload_len(payload).ok_or(Reject::Truncated),
        7 => Ok(3),
        PROBE | 9 => Ok(2),
        _ => Err(Reject::UnknownType),
    }
}

/// Reads a payload of valid length; `None` if a value is out of its range.
fn read_payload(kind: u8, payload: &[u8]) -> Option<Message> {
    let mut fields = Reader(payload);
    match kind {
        1 => Some(Message::Challenge { nonce: fields.u64() }),
        2 => {
            let (nonce, session) = (fields.u64(), fields.u64());
            let challenge = match (fields.u8(), fields.u64()) {
                (0, 0) => None,
                (1, nonce) => Some(nonce),
                _ => return None,
            };
            Some(Message::Response { nonce, session, challenge })
        }
        KEEPALIVE => {
            let state = fields.u8();
            let state = BoxState::ALL.into_iter().find(|known| *known as u8 == state)?;
            let epoch_size = match fields.u8() {
                NO_EPOCH_SIZE => None,
                log2 => Some(EpochSize::from_log2(log2)?),
            };
            Some(Message::Keepalive(Keepalive { state, epoch_size }))
        }
        4 => Some(Message::EpochNotice(EpochSize::from_log2(fields.u8())?)),
        5 => {
            let first = read_report(&mut Reader(&payload[1..]))?;
            let mut reports = Reports { reports: [first; MAX_REPORTS], len: fields.u8().into() };
            for report in reports.reports.get_mut(..reports.len)? {
                *report = read_report(&mut fields)?;
            }
            Some(Message::Reports(reports))
        }
        6 => ScopeMessage::read(payload).map(Message::Scope),
        7 => {
            let held = Offer::from_byte(fields.u8());
            let asks = flag(fields.u8())?;
            let offered = Offer::from_byte(fields.u8())?;
            Some(Message::Versions(VersionsMessage { held, asks, offered }))
        }
        PROBE => Some(Message::Probe(fields.u16())),
        9 => Some(Message::Probed(fields.u16())),
        _ => None,
    }
}

const fn flag(byte: u8) -> Option<bool> {
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn read_report(fields: &mut Reader<'_>) -> Option<Report> {
    let (hash, epoch_size) = (fields.u64(), EpochSize::from_log2(fields.u8())?);
    Some(Report {
        hash,
        received_at: Timestamp::from_nanos(fields.varint()?),
        received_bytes: ByteCount::new(fields.varint()?),
        received_packets: fields.varint()?,
        received_ce: fields.varint()?,
        epoch_size,
    })
}

/// Reads fields in order. Callers have checked every length; past the end it reads zeros.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let Some((bytes, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *bytes
    }

    fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// `None` if the varint is not the shortest form, or exceeds 64 bits.
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for at in 0..VARINT_MAX {
            let byte = self.u8();
            let bits = u64::from(byte & 0x7f);
            if at + 1 == VARINT_MAX && bits > 1 {
                return None;
            }
            number |= bits << (7 * at);
            if byte & 0x80 == 0 {
                return (byte != 0 || at == 0).then_some(number);
            }
        }
        None
    }
}
