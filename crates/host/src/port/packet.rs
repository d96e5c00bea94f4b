//! Packet sockets (packet(7)): the fallback for kernels and devices without AF_XDP.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::units::Timestamp;

use super::{
    Direction, ETHERNET_HEADER_LEN, Port, PortError, ifindex, last_os_error, os_error, set_option,
};
use crate::clock;
use crate::offload::mtu;

/// Length of a VLAN tag that the kernel leaves in the frame, in bytes.
const VLAN_TAG_LEN: usize = 4;
/// Socket buffer for each direction: 98 ms of full frames at 500 Mbit/s, as in the AF_XDP port. The
/// kernel charges 2304 bytes of memory for such a frame.
const BUFFER_BYTES: libc::c_int = 4096 * 2304;

/// A port over a packet socket. Each frame costs a system call, about 1.5 times the CPU time of
/// [`super::XdpPort`].
///
/// The port receives copies, and the kernel goes on processing the frames. On a bridge or router
/// every frame would be forwarded twice.
pub struct PacketPort {
    socket: OwnedFd,
    direction: Direction,
    buffer: Vec<u8>,
    /// Frames that exceeded the MTU or the buffer, or were sent while the device was down.
    lost: u64,
    /// Drops that the kernel has reported. Reading them resets its counter.
    kernel_drops: AtomicU64,
}

impl PacketPort {
    /// Opens a device of the current network namespace.
    pub fn open(device: &str, direction: Direction) -> Result<Self, PortError> {
        let ifindex = ifindex(device)?;
        let mtu = mtu(device).map_err(os_error(device, "reading the MTU"))?;
        // SAFETY: plain system call; the result is checked. Protocol 0: nothing is received
        // before the socket is bound to its device.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(last_os_error(device, "opening a packet socket"));
        }
        // SAFETY: the kernel just gave us this descriptor.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        for (level, name) in [
            (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING),
            (libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS),
        ] {
            set_option(socket.as_fd(), level, name, &1_i32)
                .map_err(os_error(device, "setting up a packet socket"))?;
        }
        for name in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
            // Best effort: without CAP_NET_ADMIN the default size stays.
            let _ = set_option(socket.as_fd(), libc::SOL_SOCKET, name, &BUFFER_BYTES);
        }
        bind_packet_socket(socket.as_fd(), ifindex, direction)
            .map_err(os_error(device, "binding a packet socket"))?;
        Ok(Self {
            socket,
            direction,
            buffer: vec![0; mtu as usize + ETHERNET_HEADER_LEN + VLAN_TAG_LEN],
            lost: 0,
            kernel_drops: AtomicU64::new(0),
        })
    }
}

impl Port for PacketPort {
    fn receive(&mut self, max: usize, f: &mut dyn FnMut(&[u8], Timestamp)) -> io::Result<usize> {
        if !self.direction.receives() {
            return Ok(0);
        }
        let mut count = 0;
        while count < max {
            // SAFETY: the kernel writes at most the buffer's length.
            let len = unsafe {
                libc::recv(
                    self.socket.as_raw_fd(),
                    self.buffer.as_mut_ptr().cast(),
                    self.buffer.len(),
                    libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                )
            };
            if len < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    // The kernel returns ENETDOWN once when the device goes down. The device may
                    // come up again.
                    Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => break,
                    _ => return Err(error),
                }
            }
            // With MSG_TRUNC the kernel returns the length of the frame even if the buffer is
            // shorter.
            match self.buffer.get(..len as usize) {
                Some(frame) => f(frame, clock::now()),
                None => self.lost += 1,
            }
            count += 1;
        }
        Ok(count)
    }

    fn send(&mut self, frame: &[u8]) -> bool {
        if !self.direction.transmits() {
            return false;
        }
        // SAFETY: the kernel reads the frame's length.
        let sent = unsafe {
            libc::send(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
            )
        };
        if sent >= 0 {
            return true;
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => false,
            _ => {
                self.lost += 1;
                true
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn ring_drops(&self) -> u64 {
        let since_last = dropped_packets(self.socket.as_fd());
        self.kernel_drops.fetch_add(since_last, Ordering::Relaxed) + since_last + self.lost
    }
}

/// Packets dropped by a packet socket for want of room since the last call.
pub(crate) fn dropped_packets(socket: BorrowedFd<'_>) -> u64 {
    // SAFETY: plain numbers, for which zero is valid.
    let mut statistics: libc::tpacket_stats = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&statistics) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which `statistics` has.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &mut len,
        )
    };
    // Reading resets the kernel's counter.
    if status < 0 { 0 } else { u64::from(statistics.tp_drops) }
}

/// Binds a packet socket to a device, which needs no privilege.
pub(crate) fn bind_packet_socket(
    socket: BorrowedFd<'_>,
    ifindex: u32,
    direction: Direction,
) -> io::Result<()> {
    // SAFETY: plain numbers, for which zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = ifindex as i32;
    if direction.receives() {
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    }
    // SAFETY: the kernel reads the address, whose size is passed.
    let status = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
