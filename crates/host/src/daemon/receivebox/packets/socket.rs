//! A packet socket (packet(7)) that copies incoming packets of one device. With each packet it gets the
//! kernel's metadata: time of arrival, offset of the IP header, and how it was merged.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::packet::ETHERNET_HEADER;
use forebay_core::units::{Duration, Timestamp};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, LinkAddr, MsgFlags, recvmsg};
use nix::sys::time::TimeSpec;

use super::filter::PacketFilter;
use crate::clock;
use crate::port::{
    Direction, PortError, bind_packet_socket, dropped_packets, ifindex, os_error, set_option,
};

/// Kernel memory for waiting packets (bytes). A full frame takes 2304 bytes, so at 50 Mbit/s it holds a fifth
/// of a second: longer than a loaded machine keeps the thread waiting.
const BUFFER_BYTES: libc::c_int = 2 << 20;
/// The longest IP packet that is no jumbogram, with room for headers in front of it.
const LONGEST: usize = 65_536 + 64;
/// A stamp older than this means that the time-of-day clock was set meanwhile.
const STAMP_AGE_MAX: Duration = Duration::from_secs(1);

/// Socket option: metadata with each packet (include/uapi/linux/if_packet.h).
const PACKET_AUXDATA: libc::c_int = 8;
/// Socket option: a `virtio_net_hdr` before each packet (include/uapi/linux/if_packet.h).
const PACKET_VNET_HDR: libc::c_int = 15;
/// Flag of `tp_status`: the kernel has removed a VLAN tag (include/uapi/linux/if_packet.h).
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
/// Offset of `tp_status` in `struct tpacket_auxdata`.
const AUX_STATUS: usize = 0;
/// Offset of `tp_net` in `struct tpacket_auxdata`.
const AUX_NET: usize = 14;
/// Bytes of `struct tpacket_auxdata`.
const AUX_LEN: usize = 20;

/// Bytes of `struct virtio_net_hdr` (include/uapi/linux/virtio_net.h).
const VNET_LEN: usize = 10;
/// Offset of `gso_type` in `struct virtio_net_hdr`.
const VNET_GSO_TYPE: usize = 1;
/// Offset of `gso_size` in `struct virtio_net_hdr`.
const VNET_GSO_SIZE: usize = 4;
/// Value of `gso_type`: a single packet.
const GSO_NONE: u8 = 0;
/// Value of `gso_type`: merged TCP packets over IPv4.
const GSO_TCPV4: u8 = 1;
/// Value of `gso_type`: merged TCP packets over IPv6.
const GSO_TCPV6: u8 = 4;
/// Value of `gso_type`: merged UDP packets.
const GSO_UDP_L4: u8 = 5;
/// Flag in `gso_type`: the packets of TCP have ECN marks.
const GSO_ECN: u8 = 0x80;

/// EtherTypes of IPv4 and IPv6.
const ETHERTYPES_IP: [u16; 2] = [0x0800, 0x86dd];
/// EtherTypes of VLAN tags: 802.1Q, 802.1ad, and the older one for stacked tags.
const ETHERTYPES_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Bytes of a VLAN tag (IEEE 802.1Q).
const VLAN_TAG: usize = 4;
/// Most VLAN tags in front of IP. Packets behind further tags are not sampled.
const VLAN_TAGS_MAX: usize = 2;

/// How the kernel has merged a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Bytes of data in each packet except the last.
    pub size: u16,
    /// Protocol of the merged packets; 0: unknown here.
    pub protocol: u8,
}

/// A packet that came in.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// An Ethernet frame without tags, whatever header the device has in front of its packets.
    pub frame: &'a [u8],
    /// Time at which the kernel got the packet.
    pub at: Timestamp,
    /// `None`: the packet was not merged.
    pub gso: Option<Gso>,
}

/// The socket.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    /// The packet, with room for an Ethernet header in front if it has none.
    buffer: Vec<u8>,
    control: Vec<u8>,
    /// Packets that were longer than the buffer, or that the kernel could not describe.
    unread: u64,
    /// Drops that the kernel has reported so far. Reading resets its counter.
    dropped: AtomicU64,
}

impl PacketSocket {
    /// Opens a device of the current network namespace; needs `CAP_NET_RAW`.
    pub fn open(device: &str) -> Result<Self, PortError> {
        let ifindex = ifindex(device)?;
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: plain system call; the result is checked. With protocol 0 the socket receives nothing
        // before it is bound.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(os_error(device, "opening a packet socket")(io::Error::last_os_error()));
        }
        // SAFETY: the kernel just gave us this descriptor.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        for (level, name) in [
            (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING),
            (libc::SOL_PACKET, PACKET_VNET_HDR),
            (libc::SOL_PACKET, PACKET_AUXDATA),
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
        ] {
            set_option(socket.as_fd(), level, name, &1_i32)
                .map_err(os_error(device, "setting up a packet socket"))?;
        }
        // Best effort: without CAP_NET_ADMIN the limit is net.core.rmem_max.
        let forced =
            set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &BUFFER_BYTES);
        if forced.is_err() {
            let _ = set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &BUFFER_BYTES);
        }
        let opened = Self {
            socket,
            buffer: vec![0; ETHERNET_HEADER + LONGEST],
            control: cmsg_space!(TimeSpec, [u8; AUX_LEN]),
            unread: 0,
            dropped: AtomicU64::new(0),
        };
        opened.bind(ifindex).map_err(os_error(device, "binding a packet socket"))?;
        Ok(opened)
    }

    /// Switches to the device of this index, without any privilege.
    pub fn bind(&self, ifindex: u32) -> io::Result<()> {
        bind_packet_socket(self.as_fd(), ifindex, Direction::Receive)
    }

    /// Has the kernel deliver only packets that pass the filter.
    pub fn set_filter(&self, filter: &PacketFilter) -> io::Result<()> {
        filter.attach(self.as_fd())
    }

    /// Passes up to `max` waiting packets to `f`.
    pub fn receive(&mut self, max: usize, f: &mut dyn FnMut(Received<'_>)) -> io::Result<()> {
        // Time of day at 0 of the monotonic clock.
        let day_began = clock::time_of_day();
        let now = clock::now();
        for _ in 0..max {
            match self.receive_one(day_began, now) {
                Ok(Some(packet)) => f(packet),
                Ok(None) => {}
                // The kernel reports ENETDOWN once when the device goes down; it may come up again.
                Err(Errno::EAGAIN | Errno::EINTR | Errno::ENETDOWN) => return Ok(()),
                // The kernel cannot describe how it was merged: the packet is lost.
                Err(Errno::EINVAL) => self.unread += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// `None`: the packet does not concern bundles, or is incomplete.
    fn receive_one(
        &mut self,
        day_began: Duration,
        now: Timestamp,
    ) -> Result<Option<Received<'_>>, Errno> {
        let mut vnet = [0; VNET_LEN];
        let (stamp, aux, address, len) = {
            let mut parts =
                [IoSliceMut::new(&mut vnet), IoSliceMut::new(&mut self.buffer[ETHERNET_HEADER..])];
            let socket = self.socket.as_raw_fd();
            let received = recvmsg::<LinkAddr>(
                socket,
                &mut parts,
                Some(&mut self.control),
                MsgFlags::MSG_DONTWAIT,
            )?;
            let is_whole = !received.flags.contains(MsgFlags::MSG_TRUNC);
            let (mut stamp, mut aux) = (None, None);
            for message in received.cmsgs()? {
                match message {
                    ControlMessageOwned::ScmTimestampns(time) => stamp = Some(time),
                    ControlMessageOwned::Unknown(other)
                        if other.cmsg_header.cmsg_level == libc::SOL_PACKET =>
                    {
                        aux = Aux::parse(&other.data_bytes);
                    }
                    _ => {}
                }
            }
            if !is_whole {
                self.unread += 1;
                return Ok(None);
            }
            (stamp, aux, received.address, received.bytes)
        };
        let (Some(aux), Some(address)) = (aux, address) else { return Ok(None) };
        // A frame to a group is in no bundle.
        if !is_to_one(address.pkttype()) {
            return Ok(None);
        }
        let end = ETHERNET_HEADER + len.saturating_sub(VNET_LEN);
        let protocol = u16::from_be(address.protocol());
        let at = stamp.map_or(now, |stamp| stamped(stamp, day_began, now));
        let frame = aux.untagged(protocol, &mut self.buffer[..end]);
        Ok(frame.map(|frame| Received { frame, at, gso: gso(&vnet) }))
    }

    /// Readable when packets wait.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Packets that came and were not read, since the start.
    pub fn lost(&self) -> u64 {
        // Reading resets the kernel's counter.
        let since_last = dropped_packets(self.as_fd());
        self.dropped.fetch_add(since_last, Ordering::Relaxed) + since_last + self.unread
    }
}

/// Whether a packet is addressed to one station, this machine or another.
fn is_to_one(kind: u8) -> bool {
    [libc::PACKET_HOST, libc::PACKET_OTHERHOST].contains(&kind)
}

/// Time of a packet's arrival, on the clock of all measurements here.
fn stamped(stamp: TimeSpec, day_began: Duration, now: Timestamp) -> Timestamp {
    let since_1970 = Duration::from(stamp).as_nanos() as u64;
    let at = Timestamp::from_nanos(since_1970.saturating_sub(day_began.as_nanos() as u64));
    if at > now || now.saturating_since(at) > STAMP_AGE_MAX { now } else { at }
}

fn gso(vnet: &[u8; VNET_LEN]) -> Option<Gso> {
    let protocol = match vnet[VNET_GSO_TYPE] & !GSO_ECN {
        GSO_NONE => return None,
        GSO_TCPV4 | GSO_TCPV6 => libc::IPPROTO_TCP as u8,
        GSO_UDP_L4 => libc::IPPROTO_UDP as u8,
        _ => 0,
    };
    let size = u16::from_ne_bytes([vnet[VNET_GSO_SIZE], vnet[VNET_GSO_SIZE + 1]]);
    Some(Gso { size, protocol })
}

/// Metadata of a packet from the kernel.
#[derive(Clone, Copy, Debug)]
struct Aux {
    /// Bytes in front of the network's header: the device's header, or none.
    network_at: usize,
    /// The kernel has taken a VLAN tag out of the frame.
    has_tag: bool,
}

impl Aux {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let status = u32::from_ne_bytes(*bytes.get(AUX_STATUS..)?.first_chunk()?);
        let network_at = u16::from_ne_bytes(*bytes.get(AUX_NET..)?.first_chunk()?);
        let has_tag = status & TP_STATUS_VLAN_VALID != 0;
        Some(Self { network_at: network_at.into(), has_tag })
    }

    /// Puts an Ethernet header without tags in front of the IP packet. `received` begins with room for it;
    /// `None`: it is no IP packet behind up to two tags.
    fn untagged(self, mut protocol: u16, received: &mut [u8]) -> Option<&[u8]> {
        // Bytes in front of the IP header in `received`, minus the length of the new header.
        let mut at = self.network_at;
        let mut tags = usize::from(self.has_tag);
        while ETHERTYPES_VLAN.contains(&protocol) && tags < VLAN_TAGS_MAX {
            let tag: [u8; VLAN_TAG] = *received.get(ETHERNET_HEADER + at..)?.first_chunk()?;
            protocol = u16::from_be_bytes([tag[2], tag[3]]);
            at += VLAN_TAG;
            tags += 1;
        }
        if !ETHERTYPES_IP.contains(&protocol) {
            return None;
        }
        let frame = received.get_mut(at..)?;
        let header = frame.get_mut(..ETHERNET_HEADER)?;
        header[..12].fill(0);
        header[12..].copy_from_slice(&protocol.to_be_bytes());
        Some(frame)
    }
}
