//! AF_XDP sockets (Documentation/networking/af_xdp.rst): opened with privileges, then set up for one queue.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::pieces::{Layout, Pieces};
use super::ring::{Consumer, Mapping, Producer, RingLayout};
use super::{Direction, PortError, last_os_error, os_error, set_option};

/// Chunks that a port receives into, one per frame or part of a frame: 98 ms of full frames at 500 Mbit/s, longer
/// than a loaded machine delays a thread. They take 8 MiB with the smaller chunks. Several queues share them, down to
/// [`RECEIVE_FRAMES_MIN`] each.
const RECEIVE_FRAMES: u32 = 4096;
/// Least number of these chunks per queue: a round of the packet loop at 10 Gbit/s in full frames.
const RECEIVE_FRAMES_MIN: u32 = 512;
/// Chunks in the transmit ring: half a second of full frames at 48 Mbit/s. The shaper paces, so only bursts of a few
/// packets ever queue here.
pub(super) const TRANSMIT_FRAMES: u32 = 2048;
/// Time to wait for a busy queue: the kernel frees it some time after its last owner has closed its socket.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
/// Send buffer in bytes. One call of sendto(2) transmits at most 32 frames (TX_BATCH_SIZE), so frames queue.
const SEND_BUFFER_BYTES: libc::c_int = 8 << 20;
/// Most frames that one look takes from the driver (the kernel's NAPI_POLL_WEIGHT).
const BUSY_POLL_BUDGET: libc::c_int = 64;
/// Socket option: microseconds of busy polling (include/uapi/asm-generic/socket.h).
const SO_BUSY_POLL: libc::c_int = 46;
/// Socket option: busy polling replaces interrupts (include/uapi/asm-generic/socket.h).
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
/// Socket option: most frames per busy poll (include/uapi/asm-generic/socket.h).
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// Optional features of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpOptions {
    /// Device and port share the frames' memory if the driver supports that. Otherwise the kernel copies, without an
    /// error ([`XdpPort::is_zero_copy`](super::XdpPort::is_zero_copy)).
    pub zero_copy: bool,
    /// Time that a port polls the driver before its thread sleeps.
    pub busy_poll: Option<Duration>,
    /// Each receive queue gets a separate thread. To do so, the owner splits the port
    /// ([`XdpPort::split`](super::XdpPort::split)).
    pub threads: bool,
}

/// An AF_XDP socket that is not bound to a device yet. Opening one needs `CAP_NET_RAW`.
#[derive(Debug)]
pub struct SpareSocket(OwnedFd);

impl SpareSocket {
    /// Opens a socket.
    ///
    /// # Errors
    ///
    /// Also if busy polling is requested, and the kernel lacks it (before Linux 5.11) or the caller lacks
    /// `CAP_NET_ADMIN`.
    pub fn open(options: XdpOptions) -> io::Result<Self> {
        // SAFETY: plain system call; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us this descriptor.
        let spare = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        // The kernel charges frames in flight to the send buffer. This is best effort: with a small buffer a flush
        // only stops earlier. The option needs CAP_NET_ADMIN, which the caller may still have.
        let _ = spare.set(libc::SO_SNDBUFFORCE, SEND_BUFFER_BYTES);
        if let Some(time) = options.busy_poll {
            let time_us = libc::c_int::try_from(time.as_micros()).unwrap_or(libc::c_int::MAX);
            spare
                .set(SO_PREFER_BUSY_POLL, 1)
                .and_then(|()| spare.set(SO_BUSY_POLL, time_us))
                .and_then(|()| spare.set(SO_BUSY_POLL_BUDGET, BUSY_POLL_BUDGET))
                .map_err(|error| io::Error::new(error.kind(), format!("busy polling: {error}")))?;
        }
        Ok(spare)
    }

    fn set(&self, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        set_option(self.0.as_fd(), libc::SOL_SOCKET, name, &value)
    }
}

/// One queue of a device: a socket, its rings, and the memory of its frames.
pub(super) struct Socket {
    fd: OwnedFd,
    pub receive: Option<ReceiveSide>,
    pub transmit: Option<TransmitSide>,
    pub umem: Mapping,
    pub is_zero_copy: bool,
}

/// The receive side of a socket.
pub(super) struct ReceiveSide {
    pub fill: Producer<u64>,
    pub rx: Consumer<libc::xdp_desc>,
    /// The chunks that have come of a frame with several chunks.
    pub pieces: Pieces,
}

/// The transmit side of a socket.
pub(super) struct TransmitSide {
    pub tx: Producer<libc::xdp_desc>,
    completion: Consumer<u64>,
    /// Chunks that the kernel does not own.
    pub free: Vec<u64>,
    /// Chunks that the longest frame takes.
    needed: u32,
}

/// The queue of a device that a socket is set up for.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceQueue<'a> {
    pub device: &'a str,
    pub ifindex: u32,
    pub queue: u32,
    /// Number of queues of the port, with this one.
    pub queues: u32,
    pub layout: Layout,
    pub direction: Direction,
    pub options: XdpOptions,
}

impl Socket {
    /// Sets up a socket: maps its rings and binds it.
    pub fn bind(SpareSocket(fd): SpareSocket, place: &DeviceQueue<'_>) -> Result<Self, PortError> {
        let setup = Setup { socket: fd.as_fd(), place };
        let (umem, receive, transmit) = setup.rings()?;
        setup.bind()?;
        let is_zero_copy = place.options.zero_copy && setup.is_zero_copy()?;
        Ok(Self { fd, receive, transmit, umem, is_zero_copy })
    }

    /// Frames that have come but were not taken yet.
    pub fn waiting(&self) -> u32 {
        self.receive.as_ref().map_or(0, |receive| receive.rx.waiting())
    }

    /// Whether the receive ring is at least three quarters full.
    pub fn is_overrun(&self) -> bool {
        self.receive
            .as_ref()
            .is_some_and(|receive| receive.rx.waiting() >= receive.rx.capacity() / 4 * 3)
    }

    /// Makes the kernel poll the driver once. Frames that it finds are in the ring afterwards.
    pub fn look(&self) {
        // SAFETY: no buffer and no address are passed.
        unsafe {
            // This call reads no data: its result is meaningless.
            libc::recvfrom(
                self.fd.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            );
        }
    }

    /// Makes the kernel look at the tx ring. A temporary error is ignored.
    pub fn kick(&self) -> io::Result<()> {
        // SAFETY: no buffer and no address are passed.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
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
            // EAGAIN: more than one batch is queued, or the send buffer is full. ENETDOWN: the carrier or the device
            // is down for now, and the frames stay queued.
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR | libc::ENETDOWN) => {
                Ok(())
            }
            _ => Err(error),
        }
    }

    pub fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        // SAFETY: plain numbers, for which zero is valid.
        let mut statistics: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        get_option(self.fd.as_fd(), libc::XDP_STATISTICS, &mut statistics)?;
        Ok(statistics)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl TransmitSide {
    /// Whether there are free chunks and ring entries for a frame of any length.
    pub fn has_room(&mut self) -> bool {
        let needed = self.needed as usize;
        if self.free.len() < needed {
            self.reclaim();
        }
        self.free.len() >= needed && self.tx.has_room_for(self.needed)
    }

    /// Takes back the chunks that the kernel has sent.
    pub fn reclaim(&mut self) {
        let before = self.free.len();
        while let Some(address) = self.completion.pop() {
            self.free.push(address);
        }
        if self.free.len() > before {
            self.completion.release();
        }
    }
}

/// The inputs for setting up a socket.
struct Setup<'a> {
    socket: BorrowedFd<'a>,
    place: &'a DeviceQueue<'a>,
}

type Rings = (Mapping, Option<ReceiveSide>, Option<TransmitSide>);

impl Setup<'_> {
    /// Registers the frame memory and maps the rings. The first chunks are for receiving, the rest for transmitting.
    /// Both rings of the umem must exist, used or not.
    fn rings(&self) -> Result<Rings, PortError> {
        let direction = self.place.direction;
        let receive_frames = if direction.receives() { self.receive_frames() } else { 0 };
        let transmit_frames = if direction.transmits() { TRANSMIT_FRAMES } else { 0 };
        let umem = self.register_umem(receive_frames + transmit_frames)?;
        self.set(libc::XDP_UMEM_FILL_RING, &receive_frames.max(1))?;
        self.set(libc::XDP_UMEM_COMPLETION_RING, &transmit_frames.max(1))?;
        if direction.receives() {
            self.set(libc::XDP_RX_RING, &receive_frames)?;
        }
        if direction.transmits() {
            self.set(libc::XDP_TX_RING, &transmit_frames)?;
        }
        let offsets = self.offsets()?;
        let layout = self.place.layout;
        let address = |chunk: u32| u64::from(chunk) * u64::from(layout.chunk_bytes);
        let receive = if direction.receives() {
            let ring =
                |page_offset, offsets| RingLayout { page_offset, offsets, entries: receive_frames };
            let mut fill = self.producer(&ring(FILL_PAGE_OFFSET, offsets.fr))?;
            (0..receive_frames).for_each(|frame| {
                fill.push(address(frame));
            });
            fill.publish();
            Some(ReceiveSide {
                fill,
                rx: self.consumer(&ring(libc::XDP_PGOFF_RX_RING, offsets.rx))?,
                pieces: Pieces::new(layout),
            })
        } else {
            None
        };
        let transmit = if direction.transmits() {
            let ring = |page_offset, offsets| RingLayout {
                page_offset,
                offsets,
                entries: transmit_frames,
            };
            Some(TransmitSide {
                tx: self.producer(&ring(libc::XDP_PGOFF_TX_RING, offsets.tx))?,
                completion: self.consumer(&ring(COMPLETION_PAGE_OFFSET, offsets.cr))?,
                free: (receive_frames..receive_frames + transmit_frames).map(address).collect(),
                needed: layout.chunks,
            })
        } else {
            None
        };
        Ok((umem, receive, transmit))
    }

    /// Receive chunks of this queue. Rings need a power of two.
    fn receive_frames(&self) -> u32 {
        let share = RECEIVE_FRAMES / self.place.queues.next_power_of_two();
        share.max(RECEIVE_FRAMES_MIN)
    }

    fn register_umem(&self, chunks: u32) -> Result<Mapping, PortError> {
        let chunk_bytes = self.place.layout.chunk_bytes;
        let umem = Mapping::anonymous(chunks as usize * chunk_bytes as usize)
            .map_err(|source| self.error("allocating frames", source))?;
        // The structure of Linux 5.4 and later, without the later tx_metadata_len.
        let registration = libc::xdp_umem_reg_v1 {
            addr: umem.address(),
            len: umem.len() as u64,
            chunk_size: chunk_bytes,
            headroom: 0,
        };
        self.set(libc::XDP_UMEM_REG, &registration)?;
        Ok(umem)
    }

    fn offsets(&self) -> Result<libc::xdp_mmap_offsets, PortError> {
        // SAFETY: plain numbers, for which zero is valid.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        get_option(self.socket, libc::XDP_MMAP_OFFSETS, &mut offsets)
            .map_err(os_error(self.place.device, "reading the AF_XDP ring offsets"))?;
        Ok(offsets)
    }

    fn is_zero_copy(&self) -> Result<bool, PortError> {
        let mut options = libc::xdp_options { flags: 0 };
        get_option(self.socket, libc::XDP_OPTIONS, &mut options)
            .map_err(os_error(self.place.device, "reading whether frames are copied"))?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    fn set<T>(&self, name: libc::c_int, value: &T) -> Result<(), PortError> {
        set_option(self.socket, libc::SOL_XDP, name, value)
            .map_err(os_error(self.place.device, "setting up AF_XDP rings"))
    }

    fn producer<T: Copy>(&self, layout: &RingLayout) -> Result<Producer<T>, PortError> {
        Producer::new(self.socket, layout).map_err(|source| self.error("mapping a ring", source))
    }

    fn consumer<T: Copy>(&self, layout: &RingLayout) -> Result<Consumer<T>, PortError> {
        Consumer::new(self.socket, layout).map_err(|source| self.error("mapping a ring", source))
    }

    fn error(&self, operation: &'static str, source: io::Error) -> PortError {
        PortError::Os { operation, device: self.place.device.to_string(), source }
    }

    /// Binds to the queue, which stays busy for a moment after its last owner is gone.
    fn bind(&self) -> Result<(), PortError> {
        // With neither XDP_COPY nor XDP_ZEROCOPY, the kernel avoids copies if the driver can (xp_assign_dev).
        let copying = if self.place.options.zero_copy { 0 } else { libc::XDP_COPY };
        let in_pieces = if self.place.layout.is_in_pieces() { libc::XDP_USE_SG } else { 0 };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: copying | in_pieces | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: self.place.ifindex,
            sxdp_queue_id: self.place.queue,
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
                return Err(last_os_error(self.place.device, "binding an AF_XDP socket"));
            }
            if started.elapsed() > BUSY_PATIENCE {
                return Err(PortError::Busy { device: self.place.device.to_string() });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Offset for mmap(2) of the fill ring, with the type that mmap takes.
const FILL_PAGE_OFFSET: i64 = libc::XDP_UMEM_PGOFF_FILL_RING as i64;
/// Offset for mmap(2) of the completion ring, with the type that mmap takes.
const COMPLETION_PAGE_OFFSET: i64 = libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64;

/// Reads an option of `SOL_XDP` into `value`, a structure of plain numbers.
fn get_option<T>(socket: BorrowedFd<'_>, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which `value` has.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            name,
            std::ptr::from_mut(value).cast(),
            &mut len,
        )
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
