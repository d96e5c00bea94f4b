//! What the boxes say to each other: one message per UDP datagram, little-endian, authenticated.
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
//! | 5 reports | to the sendbox | count (1), then 1 to 8 of: hash (8), log2 of the epoch size (1), and as varints received at (ns), bytes, packets, of them CE-marked |
//! | 6 scope | both | identity of the peer's scope, or 0 (8), whether an answer is asked for (1), own scope ([`ToldScope`]) |
//! | 7 versions | both | what the peer has told, or 0 (1), whether an answer is asked for (1), the versions of the sampling block that the sender builds (1): a bit for each version, the highest bit if it rests, the next one if it counts what goes to and from boxes but for their messages, and the one below if it sends or answers probes |
//! | 8 probe | to the receivebox | bytes of the datagram (2) |
//! | 9 probed | to the sendbox | bytes of the datagram that came (2) |
//!
//! Behind the tag of a probe zeros follow up to the length that it says ([`super::mtu`]). They are in no tag, so that a long
//! datagram takes no longer to refuse than a short one.
//!
//! A varint is seven bits a byte, the lowest first, with the highest bit set in all but the last, and no longer than
//! it need be. Counters that begin at zero are short: a report of a minute is 107 bytes with all headers, and 124
//! with counters of 8 bytes. A queue in bytes that is full of acknowledgements of 66 bytes takes what is little longer.
//!
//! A challenge asks whoever gets it to prove that it holds the key and runs now. One that is sent to a single address,
//! with a nonce of its own, asks whether the peer is there ([`super::paths`]); its answer is a response like any other, so
//! boxes of all versions give it.
//!
//! The length of a datagram follows from its type and counts; any other length is refused. A type that a
//! version does not know is counted and has no effect, so that a box of another version works on. Whether a
//! message is fresh is for the session to say.
//!
//! What differs between versions of forebay is negotiated in messages of their own, 6 and 7, and the version in the
//! header stays: boxes refuse any other, and an upgrade of one box must not silence it.
//!
//! Of a bundle at rest, of which nothing has left for a while, boxes that both rest say so once a second, and several
//! such keepalives between them share a datagram ([`split`]): each is a whole message with its own tag.

mod scope;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

pub use scope::{ScopeMessage, ToldScope};

use super::keys::{MessageKey, TAG_LEN};
use super::{BlockVersions, BundleId, EpochSize, Report};
use crate::units::{ByteCount, Timestamp};

/// The version of the format that this file reads and writes.
pub const VERSION: u8 = 1;
/// Most reports in a datagram: with 200 datagrams a second 1,600 boundaries a second can be
/// reported, eight times what any law needs.
pub const MAX_REPORTS: usize = 8;
/// Bytes of the largest datagram: fits the smallest IPv4 MTU (576 bytes, RFC 1122 section 3.3.3) with headers of
/// 28 bytes and so is never fragmented.
pub const MAX_DATAGRAM: usize = 548;

/// Bytes of the longest probe: with headers, a packet of the longest jumbo frames that are common (9216 bytes).
pub const MAX_PROBE: usize = 9_216 - 28;

/// Bytes of a datagram with so many reports, of counters of a day or two at a gigabit.
pub const fn reports_len(reports: usize) -> usize {
    HEADER_LEN + 1 + reports * REPORT_LEN + TAG_LEN
}

/// DSCP of the messages: network control (CS6, RFC 4594 section 3.1), which goes first where a queue orders by
/// class. They are few, and what waits behind data says late what the path does.
pub const MESSAGE_DSCP: u8 = 48;

/// Bytes of headers around a datagram: Ethernet 14, IPv4 20, UDP 8.
pub const MESSAGE_HEADERS: ByteCount = ByteCount::new(42);

const MAGIC: [u8; 4] = *b"FBAY";
const HEADER_LEN: usize = 24;
/// Hash, epoch size and varints of 47, 42, 35 and 7 bits.
const REPORT_LEN: usize = 8 + 1 + 7 + 6 + 5 + 1;
/// Numbers of a report that are varints, and bytes of the longest one.
const REPORT_VARINTS: usize = 4;
const VARINT_MAX: usize = 10;
const NO_EPOCH_SIZE: u8 = 255;
/// Type of a keepalive.
const KEEPALIVE: u8 = 3;
/// Bytes of a datagram with a keepalive alone.
const KEEPALIVE_LEN: usize = HEADER_LEN + 2 + TAG_LEN;
/// Type of a probe.
const PROBE: u8 = 8;
/// Bytes of a probe up to its tag, and of the answer.
const PROBE_LEN: usize = HEADER_LEN + 2 + TAG_LEN;
/// Bytes of a datagram with a challenge.
pub const CHALLENGE_LEN: usize = HEADER_LEN + 8 + TAG_LEN;
/// Keepalives that a datagram holds.
pub const SHARED: usize = MAX_DATAGRAM / KEEPALIVE_LEN;

/// What a box says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BoxState {
    /// Sendbox: measures, does not shape.
    Measuring = 1,
    /// Sendbox: shapes.
    Shaping = 2,
    /// Sendbox: measures and logs the rate it would set.
    DryRun = 3,
    /// Receivebox: watches.
    Watching = 4,
    /// Either box: is about to stop.
    Stopping = 5,
    /// Either box: nothing has left for a while, and keepalives become rare. Only a peer that rests is told so.
    Resting = 6,
}

impl BoxState {
    const ALL: [Self; 6] = [
        Self::Measuring,
        Self::Shaping,
        Self::DryRun,
        Self::Watching,
        Self::Stopping,
        Self::Resting,
    ];

    /// Lower-case name for status output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measuring => "measuring",
            Self::Shaping => "shaping",
            Self::DryRun => "dry_run",
            Self::Watching => "watching",
            Self::Stopping => "stopping",
            Self::Resting => "resting",
        }
    }
}

/// Sent every 100 ms where nothing else is, of a bundle at rest every second: that the box is there, and what it works
/// with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// What the box does.
    pub state: BoxState,
    /// Epoch size in force at the sender; `None` at a receivebox that was told none yet.
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

    /// The reports, in the order in which the packets were seen.
    pub fn as_slice(&self) -> &[Report] {
        &self.reports[..self.len]
    }
}

/// What a box can do that not every box can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The versions of the sampling block that it builds.
    pub versions: BlockVersions,
    /// Rare keepalives of a bundle at rest are understood, and several in a datagram.
    pub rests: bool,
    /// Of what goes to and from the machines of boxes only their messages are in no bundle.
    pub counts_boxes: bool,
    /// The path MTU is looked for: a sendbox sends probes, and a receivebox answers them.
    pub probes: bool,
}

impl Offer {
    const RESTS: u8 = 0x80;
    const COUNTS_BOXES: u8 = 0x40;
    const PROBES: u8 = 0x20;

    /// `None` of a box that offers nothing.
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

/// What the boxes offer each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionsMessage {
    /// What the sender has of the receiver; `None`: nothing yet.
    pub held: Option<Offer>,
    /// The sender does not know that its own offer has come, and wants to be answered.
    pub asks: bool,
    /// What the sender offers, at least one version.
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
        /// A challenge in turn, where the sender does not know this session yet.
        challenge: Option<u64>,
    },
    /// The sender is there.
    Keepalive(Keepalive),
    /// The sendbox works with another epoch size from now on.
    EpochNotice(EpochSize),
    /// Boundary packets that the receivebox saw.
    Reports(Reports),
    /// What the sender takes for the bundle's packets.
    Scope(ScopeMessage),
    /// What the sender can sample by, and whether it rests.
    Versions(VersionsMessage),
    /// The sendbox asks whether a datagram of so many bytes, which this is, comes through.
    Probe(u16),
    /// A datagram of so many bytes has come through.
    Probed(u16),
}

/// What stands before the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The bundle.
    pub bundle: BundleId,
    /// The sender's session.
    pub session: u64,
    /// Number of the message in that session.
    pub sequence: u64,
}

/// Why a datagram was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.name())]
#[repr(u8)]
pub enum Reject {
    /// Shorter than its type says, or than any message.
    Truncated,
    /// Longer than its type says, or than any message.
    Oversized,
    /// Not a message of this protocol.
    NotOurs,
    /// The version is another.
    Version,
    /// The message is about a bundle that is not configured.
    UnknownBundle,
    /// The type is unknown.
    UnknownType,
    /// The tag is wrong under every valid key.
    Forged,
    /// Authentic, but with a value out of its range or of a type that the sender never sends.
    Malformed,
    /// Authentic, but of a session that has not answered a fresh nonce: old, or the peer restarted
    /// and is being asked.
    UnknownSession,
    /// The message answers a nonce that is not open.
    StaleNonce,
    /// The sequence number was used, or is older than the window.
    Replayed,
    /// An authentic challenge of an unknown session beyond the rate of replies.
    Limited,
}

impl Reject {
    /// Every reason, in the order of [`RejectCounts`].
    pub const ALL: [Self; 12] = [
        Self::Truncated,
        Self::Oversized,
        Self::NotOurs,
        Self::Version,
        Self::UnknownBundle,
        Self::UnknownType,
        Self::Forged,
        Self::Malformed,
        Self::UnknownSession,
        Self::StaleNonce,
        Self::Replayed,
        Self::Limited,
    ];

    /// Lower-case name for status output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Oversized => "oversized",
            Self::NotOurs => "not_ours",
            Self::Version => "version",
            Self::UnknownBundle => "unknown_bundle",
            Self::UnknownType => "unknown_type",
            Self::Forged => "forged",
            Self::Malformed => "malformed",
            Self::UnknownSession => "unknown_session",
            Self::StaleNonce => "stale_nonce",
            Self::Replayed => "replayed",
            Self::Limited => "limited",
        }
    }
}

/// How many datagrams were rejected for each reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RejectCounts([u64; Reject::ALL.len()]);

impl RejectCounts {
    /// Counts a datagram that was rejected.
    pub fn count(&mut self, reject: Reject) {
        self.0[reject as usize] += 1;
    }

    /// How many for this reason.
    pub const fn get(&self, reject: Reject) -> u64 {
        self.0[reject as usize]
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Reject, u64)> + '_ {
        Reject::ALL.into_iter().zip(self.0)
    }

    /// All reasons together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// A datagram whose length, version and type are right, and whose authenticity is not known yet.
#[derive(Clone, Copy, Debug)]
pub struct Sealed<'a> {
    datagram: &'a [u8],
    header: Header,
}

impl<'a> Sealed<'a> {
    /// Checks what can be checked without a key.
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

    /// The bundle that the datagram claims to be about, to choose the keys by.
    pub const fn bundle(&self) -> BundleId {
        self.header.bundle
    }

    /// Verifies the tag under each of `keys` and reads the message; with it comes the index of the
    /// key that fitted.
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

/// Bytes of `count` reports at the start of `bytes`, whatever they say; `None` if they end before.
fn reports_end(count: u8, bytes: &[u8]) -> Option<usize> {
    let mut end = 0;
    for _ in 0..count {
        end += 9;
        for _ in 0..REPORT_VARINTS {
            let rest = bytes.get(end..)?;
            let last = rest.iter().take(VARINT_MAX).position(|byte| byte & 0x80 == 0);
            // One that is too long has a value out of its range, which the reader finds.
            end += last.map_or(VARINT_MAX, |at| at + 1);
        }
    }
    (end <= bytes.len()).then_some(end)
}

/// The first message of a datagram, and the rest, which is empty but in a datagram of several keepalives, all of one
/// length. Neither is authentic yet, and a rest may be no message. A keepalive with anything else behind it is one
/// message, which is too long.
pub fn split(datagram: &[u8]) -> (&[u8], &[u8]) {
    let may_be_several =
        datagram.len() <= MAX_DATAGRAM && datagram.len().is_multiple_of(KEEPALIVE_LEN);
    match datagram.split_at_checked(KEEPALIVE_LEN) {
        Some((first, rest)) if first[5] == KEEPALIVE && may_be_several => (first, rest),
        _ => (datagram, &[]),
    }
}

/// Whether a datagram of a box's own may wait for others to the same peer, and share a datagram with them: it is the
/// keepalive of a bundle at rest.
pub fn may_share(datagram: &[u8]) -> bool {
    datagram.len() == KEEPALIVE_LEN
        && datagram[5] == KEEPALIVE
        && datagram[HEADER_LEN] == BoxState::Resting as u8
}

/// The payload length that the type and, of reports and scopes, the counts ask for.
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

/// Reads a payload whose length is right; `None` where a value is out of its range.
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

/// Reads fields in order. Every length was checked before; beyond the end it reads zeros.
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

    /// `None` for one that is longer than it need be, or than a number.
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
