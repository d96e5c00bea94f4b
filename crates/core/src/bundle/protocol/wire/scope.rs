//! The scope of a bundle in a message.
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | digest of the destinations of the bundle |
//! | 8..16 | digest of the sources; 0: any |
//! | 16 | 1: lists follow; 0: the lists did not fit |
//! | 17..n | lists of destinations, excluded destinations, sources and own addresses |
//!
//! A list is its count (1), then prefixes: length (1; for IPv6 plus 64), address (4; for IPv6 16).

use core::hash::Hasher;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use siphasher::sip::SipHasher13;

use super::super::scope::{AddressSet, End, Scope};
use super::{HEADER_LEN, MAX_DATAGRAM, Reader, TAG_LEN, flag};

/// The sender's scope of the bundle, and the identity of the receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeMessage {
    /// [`ToldScope::identity`] of the receiver's scope, as the sender knows it; 0: unknown.
    pub held: u64,
    /// The sender wants an answer, because it does not know whether its scope has arrived.
    pub asks: bool,
    /// The scope of the sender.
    pub told: ToldScope,
}

/// Bytes before the scope.
const BEFORE: usize = 9;
/// Bytes of a scope without lists.
const FIXED: usize = 17;
/// Bytes of a scope: 95 prefixes of IPv4 or 28 of IPv6 in one list.
const MAX_SCOPE: usize = MAX_DATAGRAM - HEADER_LEN - BEFORE - TAG_LEN;
/// Lists in a scope.
const LISTS: usize = 4;
/// Added to the length of an IPv6 prefix.
const IPV6: u8 = 64;

/// A scope in wire format.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ToldScope {
    /// Zeros after `len`.
    bytes: [u8; MAX_SCOPE],
    len: usize,
}

impl core::fmt::Debug for ToldScope {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ToldScope({:?})", self.as_slice())
    }
}

impl ToldScope {
    /// Includes the lists if all fit.
    pub fn new(scope: &Scope) -> Self {
        let mut told = Self { bytes: [0; MAX_SCOPE], len: FIXED };
        told.bytes[..8].copy_from_slice(&scope.taken().digest().to_le_bytes());
        told.bytes[8..16].copy_from_slice(&scope.from.digest().to_le_bytes());
        let lists = [&scope.to, &scope.left_out, &scope.from, &scope.own];
        if lists.iter().all(|list| told.push_list(list).is_some()) {
            told.bytes[16] = 1;
        } else {
            told.bytes[FIXED..].fill(0);
            told.len = FIXED;
        }
        told
    }

    /// `None` if the list does not fit.
    fn push_list(&mut self, list: &AddressSet) -> Option<()> {
        let count_at = self.len;
        self.push(&[0])?;
        for prefix in list.prefixes() {
            match prefix {
                IpNet::V4(net) => {
                    self.push(&[net.prefix_len()])?;
                    self.push(&net.network().octets())?;
                }
                IpNet::V6(net) => {
                    self.push(&[IPV6 + net.prefix_len()])?;
                    self.push(&net.network().octets())?;
                }
            }
            self.bytes[count_at] += 1;
        }
        Some(())
    }

    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len + bytes.len();
        self.bytes.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Hash that identifies the scope; never 0.
    pub fn identity(&self) -> u64 {
        let mut hasher = SipHasher13::new();
        hasher.write(self.as_slice());
        hasher.finish().max(1)
    }

    /// The scope; `None` if its lists did not fit.
    pub fn scope(&self) -> Option<Scope> {
        let mut fields = Reader(&self.as_slice()[FIXED - 1..]);
        if fields.u8() == 0 {
            return None;
        }
        // The lists were checked when the message was read, so no prefix is invalid.
        let mut list = || -> AddressSet {
            let count = fields.u8();
            (0..count).filter_map(|_| read_prefix(&mut fields)).collect()
        };
        Some(Scope { to: list(), left_out: list(), from: list(), own: list() })
    }

    /// The ends in which two scopes differ by their digests.
    pub fn differs_from(&self, other: &Self) -> impl Iterator<Item = End> {
        let digests = |told: &Self| {
            let mut fields = Reader(&told.bytes);
            [fields.u64(), fields.u64()]
        };
        let ([to, from], [other_to, other_from]) = (digests(self), digests(other));
        // 0: any source.
        let is_from_other = from != other_from && from != 0 && other_from != 0;
        let ends = [(End::Destination, to != other_to), (End::Source, is_from_other)];
        ends.into_iter().filter_map(|(end, differs)| differs.then_some(end))
    }
}

impl ScopeMessage {
    pub(super) fn write(&self, out: &mut alloc::vec::Vec<u8>) {
        out.extend_from_slice(&self.held.to_le_bytes());
        out.push(u8::from(self.asks));
        out.extend_from_slice(self.told.as_slice());
    }

    /// The payload length by the counts; `None`: longer than the payload.
    pub(super) fn payload_len(payload: &[u8]) -> Option<usize> {
        let mut at = BEFORE + FIXED;
        if *payload.get(at - 1)? == 0 {
            return Some(at);
        }
        for _ in 0..LISTS {
            let count = *payload.get(at)?;
            at += 1;
            for _ in 0..count {
                at += 1 + if *payload.get(at)? < IPV6 { 4 } else { 16 };
            }
        }
        Some(at)
    }

    /// Reads a payload of valid length; `None` if a value is out of its range.
    pub(super) fn read(payload: &[u8]) -> Option<Self> {
        let mut fields = Reader(payload);
        let held = fields.u64();
        let asks = flag(fields.u8())?;
        let scope = fields.0;
        let mut told = ToldScope { bytes: [0; MAX_SCOPE], len: 0 };
        told.push(scope)?;
        let (_digests, is_listed): ([u8; 16], bool) = (fields.array(), flag(fields.u8())?);
        for _ in 0..if is_listed { LISTS } else { 0 } {
            for _ in 0..fields.u8() {
                read_prefix(&mut fields)?;
            }
        }
        Some(Self { held, asks, told })
    }
}

/// `None` if the length is invalid, or bits are set after it.
fn read_prefix(fields: &mut Reader<'_>) -> Option<IpNet> {
    let prefix: IpNet = match fields.u8() {
        len @ ..IPV6 => Ipv4Net::new(fields.array::<4>().into(), len).ok()?.into(),
        len => Ipv6Net::new(fields.array::<16>().into(), len - IPV6).ok()?.into(),
    };
    (prefix.trunc() == prefix).then_some(prefix)
}
