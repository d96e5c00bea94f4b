//! Counts and samples packets of a packet socket: this needs no BPF program, nor the capabilities to load
//! one.
//!
//! If the kernel has merged packets on the way (GRO), the receivebox counts and samples the original packets, by
//! core's code. The tests of the BPF programs compare with this code. The sendbox must build version 2 of the
//! sampling block. Each packet costs a system call and a copy: use this for lines of up to some hundred Mbit/s.

mod filter;
mod socket;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use forebay_core::bundle::segments::SuperPacket;
use forebay_core::bundle::{
    BlockVersion, BlockVersions, BundleId, EpochSize, Report, SampleBlock, SamplingKey,
};
use forebay_core::packet::{ETHERNET_HEADER, Ecn, Headers, unpadded_len};
use forebay_core::units::{ByteCount, Timestamp};
use forebay_ebpf::{Boundary, BundleCounters, MAX_LEFT_OUT, Membership, MessageEnd, SamplerBundle};

use self::filter::PacketFilter;
use self::socket::{Gso, PacketSocket, Received};
use super::sampling::Sampling;
use crate::clock;
use crate::port::PortError;
use crate::service::privileges::seccomp::Task;

/// Most packets per round, which bounds the wait of messages and timers: 10 ms of full frames at 300 Mbit/s.
const ROUND: usize = 256;

/// Shortest time between two rounds while packets come: reports wait up to this long. With half of it the
/// thread would wake twice as often, and wake-ups are most of the cost of a packet.
const REST: Duration = Duration::from_millis(1);

/// Next header of ICMPv6 (RFC 4443 section 1).
const ICMPV6: u8 = 58;
/// ICMPv6 types of neighbour discovery and redirects (RFC 4861 section 4).
const DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;

/// Counts and samples the packets that come in at one device.
#[derive(Debug)]
pub(super) struct PacketSampler {
    socket: PacketSocket,
    counts: Counts,
    /// Whether packets came in the last round.
    is_busy: bool,
}

impl PacketSampler {
    /// Reads the packets that come in at a device of the current network namespace from now on; needs
    /// `CAP_NET_RAW`.
    pub fn open(device: &str) -> Result<Self, PortError> {
        let socket = PacketSocket::open(device)?;
        Ok(Self { socket, counts: Counts::default(), is_busy: false })
    }
}

impl Sampling for PacketSampler {
    fn attach_anew(&mut self, _device: &str, ifindex: u32) -> Result<(), Box<dyn Error>> {
        Ok(self.socket.bind(ifindex)?)
    }

    fn change(
        &mut self,
        gone: &[BundleId],
        set: Vec<(BundleId, SamplerBundle)>,
    ) -> Result<(), forebay_ebpf::Error> {
        self.counts.change(gone, set)?;
        let sources = self.counts.membership.sources();
        // Without it the kernel delivers more packets, which this code ignores.
        if let Err(error) = self.socket.set_filter(&PacketFilter::of(&sources)) {
            tracing::debug!(target: "device", %error, "no filter of source prefixes");
            let all = self.socket.set_filter(&PacketFilter::of_any_source());
            all.map_err(|source| forebay_ebpf::Error::Map { map: "filter", source })?;
        }
        Ok(())
    }

    fn set_epoch_size(&mut self, id: BundleId, size: EpochSize) {
        if let Some(bundle) = self.counts.bundles.get_mut(&id) {
            bundle.set_epoch_size(clock::now(), size);
        }
    }

    fn set_senders(
        &mut self,
        id: BundleId,
        addresses: &[IpAddr],
    ) -> Result<(), forebay_ebpf::Error> {
        if let Some(bundle) = self.counts.bundles.get_mut(&id) {
            bundle.senders = addresses.iter().take(MAX_LEFT_OUT).copied().collect();
        }
        Ok(())
    }

    fn set_left_out(
        &mut self,
        id: BundleId,
        addresses: &[IpAddr],
    ) -> Result<(), forebay_ebpf::Error> {
        if let Some(bundle) = self.counts.bundles.get_mut(&id) {
            bundle.left_out = addresses.iter().take(MAX_LEFT_OUT).copied().collect();
        }
        Ok(())
    }

    fn set_messages(&mut self, ends: BTreeSet<MessageEnd>) -> Result<(), forebay_ebpf::Error> {
        self.counts.messages = ends;
        Ok(())
    }

    fn consume(&mut self, f: &mut dyn FnMut(Boundary)) -> io::Result<()> {
        let Self { socket, counts, is_busy } = self;
        *is_busy = false;
        socket.receive(ROUND, &mut |packet| {
            *is_busy = true;
            counts.count(&packet, f);
        })
    }

    fn rest(&self) -> Duration {
        if self.is_busy { REST } else { Duration::ZERO }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn counters(&self, id: BundleId) -> BundleCounters {
        self.counts.bundles.get(&id).map(|bundle| bundle.counters).unwrap_or_default()
    }

    fn mode(&self) -> &'static str {
        "packet socket"
    }

    fn lost(&self) -> (&'static str, u64) {
        ("packets_lost", self.socket.lost())
    }

    fn versions(&self) -> BlockVersions {
        BlockVersions::of(BlockVersion::V2)
    }

    fn task(&self) -> Task {
        Task::Watching
    }
}

/// Counts of all bundles.
#[derive(Debug, Default)]
struct Counts {
    membership: Membership,
    bundles: BTreeMap<BundleId, Counted>,
    /// Destinations of the boxes' messages, which belong to no bundle.
    messages: BTreeSet<MessageEnd>,
}

/// Counts of one bundle, and the settings that close its epochs.
#[derive(Debug)]
struct Counted {
    key: SamplingKey,
    version: BlockVersion,
    epoch_size: EpochSize,
    /// The earlier size, and until when packets came under it: they may be read later.
    before: (EpochSize, Timestamp),
    /// Sources and destinations whose packets the sendbox does not count.
    senders: BTreeSet<IpAddr>,
    left_out: BTreeSet<IpAddr>,
    counters: BundleCounters,
}

impl Counts {
    fn change(
        &mut self,
        gone: &[BundleId],
        set: Vec<(BundleId, SamplerBundle)>,
    ) -> Result<(), forebay_ebpf::Error> {
        self.membership.change(gone, &set)?;
        for id in gone {
            self.bundles.remove(id);
        }
        for (id, SamplerBundle { key, epoch_size, version, .. }) in set {
            let earlier = self.bundles.remove(&id);
            let (senders, left_out, counters) =
                earlier.map(|it| (it.senders, it.left_out, it.counters)).unwrap_or_default();
            let before = (epoch_size, Timestamp::ZERO);
            let counted = Counted { key, version, epoch_size, before, senders, left_out, counters };
            self.bundles.insert(id, counted);
        }
        Ok(())
    }

    /// Counts a packet, or the packets merged in it, if it belongs to a bundle.
    fn count(&mut self, packet: &Received<'_>, f: &mut dyn FnMut(Boundary)) {
        let frame = packet.frame;
        let Ok(headers) = Headers::parse(frame) else { return };
        let Some(id) = self.membership.find(headers.source, headers.destination) else { return };
        let Some(counted) = self.bundles.get_mut(&id) else { return };
        if counted.senders.contains(&headers.source)
            || counted.left_out.contains(&headers.destination)
            || is_discovery(&headers, frame)
            || message_to(&headers, frame).is_some_and(|end| self.messages.contains(&end))
        {
            return;
        }
        let is_ce = headers.ecn == Ecn::Ce;
        let len = unpadded_len(Some(&headers), frame);
        let Some(Gso { size, protocol }) = packet.gso else {
            let block = SampleBlock::new(counted.version, &headers, frame);
            counted.sample(id, packet.at, len, is_ce, &block, f);
            return;
        };
        // A host that numbers no packets sends 0 in all (RFC 6864 section 4.1). The kernel merges them like
        // numbered ones, and the header that it delivers does not distinguish them.
        let is_unnumbered = headers.source.is_ipv4() && frame[ETHERNET_HEADER + 4..][..2] == [0; 2];
        let merged = SuperPacket::new(frame, size, is_unnumbered);
        match merged.filter(|_| headers.protocol == protocol) {
            Some(merged) => {
                let nat = counted.version.nat();
                for segment in merged.segments() {
                    let block = nat.map_or(segment.block, |nat| segment.block.through(nat));
                    counted.sample(id, packet.at, segment.len, is_ce, &block, f);
                }
            }
            // For example of a tunnel: the merged packets are not known.
            None => {
                let packets = u64::from(headers.payload_len.div_ceil(size.max(1)));
                counted.add(len, packets.max(1), is_ce);
            }
        }
    }
}

impl Counted {
    /// Samples the packets that come from now on with this size.
    fn set_epoch_size(&mut self, now: Timestamp, size: EpochSize) {
        self.before = (std::mem::replace(&mut self.epoch_size, size), now);
    }

    fn add(&mut self, bytes: ByteCount, packets: u64, is_ce: bool) {
        self.counters.bytes += bytes;
        self.counters.packets += packets;
        self.counters.ce += if is_ce { packets } else { 0 };
    }

    /// Counts a packet, and reports it if it closes an epoch.
    fn sample(
        &mut self,
        bundle: BundleId,
        at: Timestamp,
        len: ByteCount,
        is_ce: bool,
        block: &SampleBlock,
        f: &mut dyn FnMut(Boundary),
    ) {
        self.add(len, 1, is_ce);
        let (before, until) = self.before;
        let epoch_size = if at < until { before } else { self.epoch_size };
        let hash = block.hash(&self.key);
        if !epoch_size.is_boundary(hash) {
            return;
        }
        let BundleCounters { bytes, packets, ce } = self.counters;
        let report = Report {
            hash,
            received_at: at,
            received_bytes: bytes,
            received_packets: packets,
            received_ce: ce,
            epoch_size,
        };
        // A receivebox needs neither of these two.
        f(Boundary { bundle, report, identity: 0, ahead: ByteCount::ZERO });
    }
}

/// The protocol and bytes right behind the IPv4 header or the fixed IPv6 header, unless the packet is a
/// fragment.
fn transport<'a>(headers: &Headers, frame: &'a [u8]) -> Option<(u8, &'a [u8])> {
    /// Offset of the flags and the fragment offset of IPv4 in a frame (RFC 791).
    const V4_FRAGMENT: usize = ETHERNET_HEADER + 6;
    /// Offset of the protocol of IPv4 in a frame (RFC 791).
    const V4_PROTOCOL: usize = ETHERNET_HEADER + 9;
    /// Offset of the next header of IPv6 in a frame (RFC 8200).
    const V6_NEXT_HEADER: usize = ETHERNET_HEADER + 6;
    let payload = frame.get(usize::from(headers.payload_at)..)?;
    let payload = payload.get(..headers.payload_len.into())?;
    if headers.source.is_ipv6() {
        return Some((*frame.get(V6_NEXT_HEADER)?, payload));
    }
    let fragment = u16::from_be_bytes(*frame.get(V4_FRAGMENT..)?.first_chunk()?);
    let is_fragment = fragment & 0x3fff != 0;
    Some((*frame.get(V4_PROTOCOL)?, payload)).filter(|_| !is_fragment)
}

/// Whether a packet belongs to the link and to no bundle, though both its addresses may be in one.
fn is_discovery(headers: &Headers, frame: &[u8]) -> bool {
    let kind = transport(headers, frame)
        .filter(|(protocol, _)| headers.source.is_ipv6() && *protocol == ICMPV6)
        .and_then(|(_, payload)| payload.first());
    kind.is_some_and(|kind| DISCOVERY.contains(kind))
}

/// The destination of a packet that may be a message of the boxes: UDP.
fn message_to(headers: &Headers, frame: &[u8]) -> Option<MessageEnd> {
    /// Bytes of a UDP header (RFC 768).
    const HEADER: usize = 8;
    let (protocol, payload) = transport(headers, frame)?;
    let header: &[u8; HEADER] = payload.first_chunk()?;
    let port = u16::from_be_bytes([header[2], header[3]]);
    let is_udp = i32::from(protocol) == libc::IPPROTO_UDP;
    is_udp.then_some(MessageEnd { address: headers.destination, port, is_source: false })
}
