//! AF_XDP in copy mode (Documentation/networking/af_xdp.rst).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use forebay_core::units::Timestamp;
use forebay_ebpf::{Capture, STAMP_LEN};

use super::ring::{Consumer, Mapping, Producer, RingLayout};
use super::{Direction, ETHERNET_HEADER_LEN, Port, PortError, ifindex, last_os_error, os_error};
use crate::clock;
use crate::offload::{mtu, receive_queues};

/// Frames in the receive ring: 98 ms of full frames at 500 Mbit/s, longer than a loaded machine
/// keeps a thread waiting; 8 MiB with the smaller frame size.
const RECEIVE_FRAMES: u32 = 4096;
/// Frames in the transmit ring: half a second of full frames at 48 Mbit/s. The shaper paces, so
/// that only bursts of a few packets are ever queued here.
const TRANSMIT_FRAMES: u32 = 2048;
/// The kernel leaves XDP_PACKET_HEADROOM free at the start of each receive frame.
const HEADROOM: u32 = 256;
/// A VLAN tag (802.1Q) makes a frame longer than the MTU and the Ethernet header.
const VLAN_TAG_LEN: u32 = 4;
/// The two frame sizes that fit both the kernel (a power of two, at most a page) and real MTUs.
const FRAME_SIZES: [u32; 2] = [2048, 4096];
/// The kernel frees a queue some time after its last owner has closed its socket.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
/// One call of sendto(2) transmits at most 32 frames (TX_BATCH_SIZE); allows for queued ones.
const SEND_BUFFER_BYTES: libc::c_int = 8 << 20;

/// A port over an AF_XDP socket. It receives what a [`Capture`] program redirects to it; sending
/// needs no program.
pub struct XdpPort {
    // The capture goes first, so that no frame is redirected to a closed socket.
    capture: Option<Capture>,
    socket: OwnedFd,
    ifindex: u32,
    frame_size: u32,
    receive: Option<ReceiveSide>,
    transmit: Option<TransmitSide>,
    umem: Mapping,
    oversized: u64,
}

/// An AF_XDP socket of no device yet, for [`XdpPort::anew`]. To open one needs `CAP_NET_RAW`.
#[derive(Debug)]
pub struct SpareSocket(OwnedFd);

impl SpareSocket {
    /// Opens one.
    pub fn open() -> io::Result<Self> {
        // SAFETY: plain system call; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us this descriptor.
        let spare = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        spare.force_send_buffer();
        Ok(spare)
    }

    /// Frames in flight are charged to the send buffer. Best effort: a small one only makes
    /// flushing stop earlier. It needs `CAP_NET_ADMIN`, as whoever opens the socket may still have.
    fn force_send_buffer(&self) {
        // SAFETY: the kernel reads one int.
        unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_SNDBUFFORCE,
                std::ptr::from_ref(&SEND_BUFFER_BYTES).cast(),
                size_of_val(&SEND_BUFFER_BYTES) as libc::socklen_t,
            );
        }
    }
}

struct ReceiveSide {
    fill: Producer<u64>,
    rx: Consumer<libc::xdp_desc>,
}

struct TransmitSide {
    tx: Producer<libc::xdp_desc>,
    completion: Consumer<u64>,
    /// Frames that the kernel does not own.
    free: Vec<u64>,
}

impl XdpPort {
    /// Opens queue 0 of a device of the current network namespace; one that receives must have no
    /// other receive queue.
    ///
    /// For one that receives, attach a [`Capture`] and give it this port's descriptor.
    pub fn open(device: &str, direction: Direction) -> Result<Self, PortError> {
        let ifindex = ifindex(device)?;
        let frame_size = Self::frame_size(device)?;
        if direction.receives() {
            let queues = receive_queues(device)
                .map_err(os_error(device, "reading the number of receive queues"))?;
            if queues > 1 {
                return Err(PortError::Queues { device: device.to_string(), queues });
            }
        }
        let SpareSocket(socket) =
            SpareSocket::open().map_err(os_error(device, "opening an AF_XDP socket"))?;
        Self::on(socket, device, ifindex, frame_size, direction)
    }

    /// A port like this one, without its capture program, on a device that has taken the place of one
    /// that was deleted.
    ///
    /// It takes setsockopt(2) and getsockopt(2) of `SOL_XDP`, mmap(2) and bind(2), and `CAP_IPC_LOCK` or
    /// a limit on locked memory that allows 8 to 16 MiB more.
    pub fn anew(
        &self,
        SpareSocket(socket): SpareSocket,
        device: &str,
        ifindex: u32,
    ) -> Result<Self, PortError> {
        let direction = match (&self.receive, &self.transmit) {
            (Some(_), None) => Direction::Receive,
            (None, _) => Direction::Transmit,
            (Some(_), Some(_)) => Direction::Both,
        };
        Self::on(socket, device, ifindex, self.frame_size, direction)
    }

    fn on(
        socket: OwnedFd,
        device: &str,
        ifindex: u32,
        frame_size: u32,
        direction: Direction,
    ) -> Result<Self, PortError> {
        let setup = Setup { device, socket: socket.as_fd(), frame_size, direction };
        let (umem, receive, transmit) = setup.rings()?;
        setup.bind(ifindex)?;
        Ok(Self {
            capture: None,
            socket,
            ifindex,
            frame_size,
            receive,
            transmit,
            umem,
            oversized: 0,
        })
    }

    /// The smallest frame size that holds the device's frames behind the headroom.
    pub(crate) fn frame_size(device: &str) -> Result<u32, PortError> {
        let mtu = mtu(device).map_err(os_error(device, "reading the MTU"))?;
        let overhead = HEADROOM + ETHERNET_HEADER_LEN as u32 + VLAN_TAG_LEN;
        FRAME_SIZES.into_iter().find(|size| mtu.saturating_add(overhead) <= *size).ok_or_else(
            || {
                let max = FRAME_SIZES[FRAME_SIZES.len() - 1] - overhead;
                PortError::Mtu { device: device.to_string(), mtu, max }
            },
        )
    }

    /// Index of the device.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// The receive queue that the socket is bound to.
    pub fn queue(&self) -> u32 {
        0
    }

    /// Bytes of the longest frame that the port receives. The kernel drops longer ones.
    pub fn longest_frame(&self) -> usize {
        (self.frame_size - HEADROOM) as usize
    }

    /// The capture program that the port holds, if any.
    pub fn capture(&self) -> Option<&Capture> {
        self.capture.as_ref()
    }

    /// As [`XdpPort::capture`], to attach it elsewhere.
    pub fn capture_mut(&mut self) -> Option<&mut Capture> {
        self.capture.as_mut()
    }

    /// Gives the capture program up to another port.
    pub fn release(&mut self) -> Option<Capture> {
        self.capture.take()
    }

    /// Keeps `capture` attached as long as the port lives.
    pub fn hold(&mut self, capture: Capture) {
        self.capture = Some(capture);
    }

    /// Whether a frame could be sent now. Places come back when the device has taken frames, which
    /// may need a [`Port::flush`].
    pub fn has_room(&mut self) -> bool {
        self.transmit.as_mut().is_some_and(TransmitSide::has_room)
    }

    /// Frames sent that the kernel has not taken yet. They are lost if the port is closed.
    pub fn pending(&mut self) -> u32 {
        self.transmit.as_mut().map_or(0, |transmit| transmit.tx.pending())
    }

    /// Whether poll(2) would wait for the device: the kernel says POLLOUT while the tx ring is at
    /// most half full (xsk_tx_writeable), though all frames may still be on their way. Polling
    /// also has the kernel send, as [`Port::flush`] does.
    pub fn is_worth_polling(&mut self) -> bool {
        self.pending() > TRANSMIT_FRAMES / 2
    }

    /// Whether the receive ring is at least three quarters full. It hovers about its end while
    /// more comes than is taken: what does not fit is lost.
    pub fn is_overrun(&self) -> bool {
        let waiting = self.receive.as_ref().map_or(0, |receive| receive.rx.waiting());
        waiting >= RECEIVE_FRAMES / 4 * 3
    }

    fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        // SAFETY: plain numbers, for which zero is valid.
        let mut statistics: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        let mut len = size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, which `statistics` has.
        let status = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_XDP,
                libc::XDP_STATISTICS,
                (&raw mut statistics).cast(),
                &mut len,
            )
        };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(statistics) }
    }
}

impl Port for XdpPort {
    fn receive(&mut self, max: usize, f: &mut dyn FnMut(&[u8], Timestamp)) -> io::Result<usize> {
        let Some(receive) = self.receive.as_mut() else { return Ok(0) };
        let frame_mask = !u64::from(self.frame_size - 1);
        let is_stamping = self.capture.as_ref().is_some_and(Capture::is_stamping);
        let stamp_len = if is_stamping { STAMP_LEN } else { 0 };
        let now = clock::now();
        let mut count = 0;
        while count < max {
            let Some(descriptor) = receive.rx.pop() else { break };
            // SAFETY: the kernel gave this frame up with the entry and gets it back below.
            let (arrived, frame) = unsafe { stamped(&self.umem, &descriptor, stamp_len) }
                .ok_or_else(|| io::Error::other("the kernel named a frame outside the umem"))?;
            f(frame, arrived.unwrap_or(now));
            // There is room: the ring is as large as the number of receive frames.
            receive.fill.push(descriptor.addr & frame_mask);
            count += 1;
        }
        if count > 0 {
            receive.rx.release();
            receive.fill.publish();
        }
        Ok(count)
    }

    fn send(&mut self, frame: &[u8]) -> bool {
        let Some(transmit) = self.transmit.as_mut() else { return false };
        if frame.len() > self.frame_size as usize {
            self.oversized += 1;
            return true;
        }
        if !transmit.has_room() {
            return false;
        }
        let Some(address) = transmit.free.pop() else { return false };
        // SAFETY: a free frame belongs to us, and nobody keeps slices of free frames.
        let written = unsafe { self.umem.write(address as usize, frame) };
        debug_assert!(written, "free frames lie inside the umem");
        let descriptor = libc::xdp_desc { addr: address, len: frame.len() as u32, options: 0 };
        transmit.tx.push(descriptor)
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(transmit) = self.transmit.as_mut() else { return Ok(()) };
        transmit.tx.publish();
        let mut pending = transmit.tx.pending();
        while pending > 0 && transmit.tx.needs_wakeup() {
            kick(self.socket.as_fd())?;
            let left = transmit.tx.pending();
            if left == pending {
                // The device is busy: the frames stay for the next flush.
                break;
            }
            pending = left;
        }
        transmit.reclaim();
        Ok(())
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn ring_drops(&self) -> u64 {
        let of_kernel = self.statistics().map_or(0, |statistics| {
            // An empty fill ring counts as a dropped frame too, so it is not added.
            statistics.rx_dropped + statistics.rx_ring_full + statistics.tx_invalid_descs
        });
        let capture = self.capture.as_ref().and_then(|capture| capture.counters().ok());
        of_kernel + self.oversized + capture.map_or(0, |counters| counters.no_stamp)
    }
}

impl TransmitSide {
    /// Whether there is a free frame, and a place for it in the ring.
    fn has_room(&mut self) -> bool {
        if self.free.is_empty() {
            self.reclaim();
        }
        !self.free.is_empty() && self.tx.has_room()
    }

    fn reclaim(&mut self) {
        let before = self.free.len();
        while let Some(address) = self.completion.pop() {
            self.free.push(address);
        }
        if self.free.len() > before {
            self.completion.release();
        }
    }
}

/// The frame that a descriptor names, and the time of arrival that `stamp_len` bytes in front of it
/// hold; `None` if they are not inside the umem.
///
/// # Safety
///
/// As for [`Mapping::frame`].
unsafe fn stamped<'a>(
    umem: &'a Mapping,
    descriptor: &libc::xdp_desc,
    stamp_len: usize,
) -> Option<(Option<Timestamp>, &'a [u8])> {
    let start = (descriptor.addr as usize).checked_sub(stamp_len)?;
    // SAFETY: by the caller's promise.
    let bytes = unsafe { umem.frame(start, stamp_len + descriptor.len as usize) }?;
    let (stamp, frame) = bytes.split_at(stamp_len);
    let stamp = stamp.try_into().ok().map(u64::from_ne_bytes);
    Some((stamp.map(Timestamp::from_nanos), frame))
}

/// Makes the kernel look at the tx ring. An error that passes by itself is no error.
fn kick(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no buffer and no address are passed.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            std::ptr::null(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null(),
            0,
        )
    };
    if sent >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // EAGAIN: more than one batch is queued, or the send buffer is full. ENETDOWN: carrier or
        // device are down for now, and the frames wait.
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR | libc::ENETDOWN) => Ok(()),
        _ => Err(error),
    }
}

/// What is needed while a socket is made ready.
struct Setup<'a> {
    device: &'a str,
    socket: BorrowedFd<'a>,
    frame_size: u32,
    direction: Direction,
}

type Rings = (Mapping, Option<ReceiveSide>, Option<TransmitSide>);

impl Setup<'_> {
    /// Registers the frame memory and maps the rings. The first frames are for receiving, the
    /// others for transmitting. Both rings of the umem must exist, used or not.
    fn rings(&self) -> Result<Rings, PortError> {
        let receive_frames = if self.direction.receives() { RECEIVE_FRAMES } else { 0 };
        let transmit_frames = if self.direction.transmits() { TRANSMIT_FRAMES } else { 0 };
        let umem = self.register_umem(receive_frames + transmit_frames)?;
        self.set_option(libc::XDP_UMEM_FILL_RING, &receive_frames.max(1))?;
        self.set_option(libc::XDP_UMEM_COMPLETION_RING, &transmit_frames.max(1))?;
        if self.direction.receives() {
            self.set_option(libc::XDP_RX_RING, &receive_frames)?;
        }
        if self.direction.transmits() {
            self.set_option(libc::XDP_TX_RING, &transmit_frames)?;
        }
        let offsets = self.offsets()?;
        let address = |frame: u32| u64::from(frame) * u64::from(self.frame_size);
        let receive = if self.direction.receives() {
            let layout =
                |page_offset, offsets| RingLayout { page_offset, offsets, entries: receive_frames };
            let mut fill = self.producer(&layout(FILL_PAGE_OFFSET, offsets.fr))?;
            (0..receive_frames).for_each(|frame| {
                fill.push(address(frame));
            });
            fill.publish();
            Some(ReceiveSide {
                fill,
                rx: self.consumer(&layout(libc::XDP_PGOFF_RX_RING, offsets.rx))?,
            })
        } else {
            None
        };
        let transmit = if self.direction.transmits() {
            let layout = |page_offset, offsets| RingLayout {
                page_offset,
                offsets,
                entries: transmit_frames,
            };
            Some(TransmitSide {
                tx: self.producer(&layout(libc::XDP_PGOFF_TX_RING, offsets.tx))?,
                completion: self.consumer(&layout(COMPLETION_PAGE_OFFSET, offsets.cr))?,
                free: (receive_frames..receive_frames + transmit_frames).map(address).collect(),
            })
        } else {
            None
        };
        Ok((umem, receive, transmit))
    }

    fn register_umem(&self, frames: u32) -> Result<Mapping, PortError> {
        let umem = Mapping::anonymous(frames as usize * self.frame_size as usize)
            .map_err(|source| self.error("allocating frames", source))?;
        // The layout of Linux 5.4 and later, up to and without tx_metadata_len.
        let registration = libc::xdp_umem_reg_v1 {
            addr: umem.address(),
            len: umem.len() as u64,
            chunk_size: self.frame_size,
            headroom: 0,
        };
        self.set_option(libc::XDP_UMEM_REG, &registration)?;
        Ok(umem)
    }

    fn offsets(&self) -> Result<libc::xdp_mmap_offsets, PortError> {
        // SAFETY: plain numbers, for which zero is valid.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        let mut len = size_of_val(&offsets) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, which `offsets` has.
        let status = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_XDP,
                libc::XDP_MMAP_OFFSETS,
                (&raw mut offsets).cast(),
                &mut len,
            )
        };
        if status < 0 {
            return Err(last_os_error(self.device, "reading the AF_XDP ring offsets"));
        }
        Ok(offsets)
    }

    fn set_option<T>(&self, name: libc::c_int, value: &T) -> Result<(), PortError> {
        // SAFETY: the kernel reads `size_of::<T>()` bytes of `value`.
        let status = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_XDP,
                name,
                std::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        if status < 0 { Err(last_os_error(self.device, "setting up AF_XDP rings")) } else { Ok(()) }
    }

    fn producer<T: Copy>(&self, layout: &RingLayout) -> Result<Producer<T>, PortError> {
        Producer::new(self.socket, layout).map_err(|source| self.error("mapping a ring", source))
    }

    fn consumer<T: Copy>(&self, layout: &RingLayout) -> Result<Consumer<T>, PortError> {
        Consumer::new(self.socket, layout).map_err(|source| self.error("mapping a ring", source))
    }

    fn error(&self, operation: &'static str, source: io::Error) -> PortError {
        PortError::Os { operation, device: self.device.to_string(), source }
    }

    /// Binds to queue 0. The queue stays busy for a moment after its last owner has gone.
    fn bind(&self, ifindex: u32) -> Result<(), PortError> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: ifindex,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        let started = Instant::now();
        loop {
            // SAFETY: the kernel reads the address, whose size is passed.
            let status = unsafe {
                libc::bind(
                    self.socket.as_raw_fd(),
                    std::ptr::from_ref(&address).cast(),
                    size_of_val(&address) as libc::socklen_t,
                )
            };
            if status == 0 {
                return Ok(());
            }
            if io::Error::last_os_error().raw_os_error() != Some(libc::EBUSY) {
                return Err(last_os_error(self.device, "binding an AF_XDP socket"));
            }
            if started.elapsed() > BUSY_PATIENCE {
                return Err(PortError::Busy { device: self.device.to_string() });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

const FILL_PAGE_OFFSET: i64 = libc::XDP_UMEM_PGOFF_FILL_RING as i64;
const COMPLETION_PAGE_OFFSET: i64 = libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64;
