//! Ports over AF_XDP (Documentation/networking/af_xdp.rst), with one socket per queue.
//!
//! One thread reads all queues of a port in turn, or the port is split and one thread reads each part. All queues feed
//! one scheduler. Frames of one queue stay in order, the kernel does its part of the work on each queue's own
//! processor, and no locks are needed.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use forebay_core::units::Timestamp;
use forebay_ebpf::{Capture, STAMP_LEN};

use super::pieces::Layout;
use super::ring::Mapping;
use super::socket::{DeviceQueue, Socket, SpareSocket, TRANSMIT_FRAMES, TransmitSide, XdpOptions};
use super::{Direction, Port, PortError, QUEUES_MAX, ifindex, os_error};
use crate::clock;
use crate::offload::receive_queues;

/// A port over AF_XDP sockets. It receives the frames that a [`Capture`] program redirects to it; sending needs no
/// program.
pub struct XdpPort {
    // The capture is dropped first, so that no frame is redirected to a closed socket.
    capture: Option<Capture>,
    ifindex: u32,
    /// The queue of the first socket.
    first_queue: u32,
    layout: Layout,
    direction: Direction,
    options: XdpOptions,
    /// One per queue, in order of the queues. All frames are sent through the first one.
    sockets: Vec<Socket>,
    /// The queue to read first in the next call.
    turn: usize,
    oversized: u64,
}

impl XdpPort {
    /// Opens queue 0 of a device of the current network namespace. A port that receives requires that the device has no
    /// other receive queue.
    ///
    /// To receive, attach a [`Capture`] (for frames in pieces if [`XdpPort::is_in_pieces`]), and give it this port's
    /// [`XdpPort::queues`].
    pub fn open(device: &str, direction: Direction) -> Result<Self, PortError> {
        let queues = if direction.receives() { Self::receive_queues(device, 1)? } else { 1 };
        Self::open_queues(device, direction, queues, XdpOptions::default())
    }

    /// Opens the second transmit queue of a device of the current network namespace, next to a port that receives from
    /// it.
    pub fn open_beside(device: &str) -> Result<Self, PortError> {
        Self::open_from(device, Direction::Transmit, 1..2, XdpOptions::default())
    }

    /// Opens all receive queues of a device of the current network namespace, at most [`QUEUES_MAX`]. Attach
    /// a [`Capture`] and give it this port's [`XdpPort::queues`].
    pub fn open_to_receive(device: &str, options: XdpOptions) -> Result<Self, PortError> {
        let queues = Self::receive_queues(device, QUEUES_MAX)?;
        Self::open_queues(device, Direction::Receive, queues, options)
    }

    fn receive_queues(device: &str, max: u32) -> Result<u32, PortError> {
        // A missing device gets its own error, before the request for its queues fails.
        ifindex(device)?;
        let queues = receive_queues(device)
            .map_err(os_error(device, "reading the number of receive queues"))?;
        if queues > max {
            return Err(PortError::Queues { device: device.to_string(), queues, max });
        }
        Ok(queues)
    }

    pub(crate) fn open_queues(
        device: &str,
        direction: Direction,
        queues: u32,
        options: XdpOptions,
    ) -> Result<Self, PortError> {
        Self::open_from(device, direction, 0..queues, options)
    }

    fn open_from(
        device: &str,
        direction: Direction,
        queues: Range<u32>,
        options: XdpOptions,
    ) -> Result<Self, PortError> {
        let ifindex = ifindex(device)?;
        let layout = Layout::of(device)?;
        let spares = queues.clone().map(|_| SpareSocket::open(options));
        let spares = spares.collect::<io::Result<Vec<SpareSocket>>>();
        let spares = spares.map_err(os_error(device, "opening an AF_XDP socket"))?;
        let (queue, queues) = (queues.start, queues.len() as u32);
        Self::on(spares, DeviceQueue { device, ifindex, queue, queues, layout, direction, options })
    }

    /// Opens a port like this one, without its capture program, on a device that replaces a deleted one. `spares` are
    /// sockets opened with the options of this port, one per queue.
    ///
    /// Needs setsockopt(2) and getsockopt(2) of `SOL_XDP`, mmap(2) and bind(2). It also needs `CAP_IPC_LOCK`, or a
    /// limit on locked memory that allows 8 to 16 MiB more.
    pub fn anew(
        &self,
        spares: Vec<SpareSocket>,
        device: &str,
        ifindex: u32,
    ) -> Result<Self, PortError> {
        let Self { first_queue: queue, layout, direction, options, .. } = *self;
        let queues = spares.len() as u32;
        Self::on(spares, DeviceQueue { device, ifindex, queue, queues, layout, direction, options })
    }

    fn on(spares: Vec<SpareSocket>, place: DeviceQueue<'_>) -> Result<Self, PortError> {
        let bind = |(queue, spare)| Socket::bind(spare, &DeviceQueue { queue, ..place });
        let sockets = (place.queue..).zip(spares).map(bind);
        let sockets = sockets.collect::<Result<Vec<Socket>, PortError>>()?;
        let DeviceQueue { ifindex, queue, layout, direction, options, .. } = place;
        Ok(Self {
            capture: None,
            ifindex,
            first_queue: queue,
            layout,
            direction,
            options,
            sockets,
            turn: 0,
            oversized: 0,
        })
    }

    /// Moves each queue to a separate port, in order of the queues. This port keeps only the capture program: without
    /// queues it neither receives nor sends, and has no descriptor.
    pub fn split(&mut self) -> Vec<Self> {
        let sockets = std::mem::take(&mut self.sockets);
        let of_one = |socket| Self {
            capture: None,
            ifindex: self.ifindex,
            first_queue: self.first_queue,
            layout: self.layout,
            direction: self.direction,
            options: self.options,
            sockets: vec![socket],
            turn: 0,
            oversized: 0,
        };
        sockets.into_iter().map(of_one).collect()
    }

    /// Index of the device.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// The queues and their sockets, each readable when frames wait.
    pub fn queues(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        (self.first_queue..).zip(self.sockets.iter().map(AsFd::as_fd))
    }

    /// Bytes of the longest frame that the port receives. Longer ones are dropped.
    pub fn longest_frame(&self) -> usize {
        self.layout.longest_received()
    }

    /// Whether a frame may be longer than one chunk of memory.
    pub fn is_in_pieces(&self) -> bool {
        self.layout.is_in_pieces()
    }

    /// Whether device and port share the frames' memory in all queues; otherwise the kernel copies.
    pub fn is_zero_copy(&self) -> bool {
        self.sockets.iter().all(|socket| socket.is_zero_copy)
    }

    /// The capture program that the port holds, if any.
    pub fn capture(&self) -> Option<&Capture> {
        self.capture.as_ref()
    }

    /// As [`XdpPort::capture`], mutable.
    pub fn capture_mut(&mut self) -> Option<&mut Capture> {
        self.capture.as_mut()
    }

    /// Returns the capture program, for another port.
    pub fn release(&mut self) -> Option<Capture> {
        self.capture.take()
    }

    /// Makes `capture` redirect the frames of all queues to this port.
    pub fn take_from(&self, capture: &Capture) -> Result<(), forebay_ebpf::Error> {
        self.queues().try_for_each(|(queue, socket)| capture.set_socket(queue, socket))
    }

    /// Keeps `capture` attached as long as the port lives.
    pub fn hold(&mut self, capture: Capture) {
        self.capture = Some(capture);
    }

    /// Polls the driver until frames have come, at most until `until` and for the time of [`XdpOptions::busy_poll`].
    /// Returns whether frames have come; without that option always false.
    pub fn busy_poll(&self, until: Timestamp) -> bool {
        let Some(longest) = self.options.busy_poll else { return false };
        let until = until.min(clock::now() + longest);
        loop {
            if self.sockets.iter().any(|socket| socket.waiting() > 0) {
                return true;
            }
            if clock::now() >= until {
                return false;
            }
            self.sockets.iter().for_each(Socket::look);
        }
    }

    fn transmit(&mut self) -> Option<&mut TransmitSide> {
        self.sockets.first_mut()?.transmit.as_mut()
    }

    /// Whether a frame could be sent now. Ring entries become free once the device has taken frames, which may need a
    /// [`Port::flush`].
    pub fn has_room(&mut self) -> bool {
        self.transmit().is_some_and(TransmitSide::has_room)
    }

    /// Sent frames, or parts of long ones, that the kernel has not taken yet. They are lost if the port is closed.
    pub fn pending(&mut self) -> u32 {
        self.transmit().map_or(0, |transmit| transmit.tx.pending())
    }

    /// Whether poll(2) would wait for the device. The kernel reports POLLOUT while the tx ring is at most half full
    /// (xsk_tx_writeable), even if no frame has left yet. Polling also makes the kernel send, as [`Port::flush`] does.
    pub fn is_worth_polling(&mut self) -> bool {
        self.pending() > TRANSMIT_FRAMES / 2
    }

    /// Whether the receive ring of a queue is at least three quarters full. It stays nearly full while frames come
    /// faster than they are taken; excess frames are lost.
    pub fn is_overrun(&self) -> bool {
        self.sockets.iter().any(Socket::is_overrun)
    }
}

impl Port for XdpPort {
    fn receive(&mut self, max: usize, f: &mut dyn FnMut(&[u8], Timestamp)) -> io::Result<usize> {
        let reading =
            Reading { chunk_mask: !u64::from(self.layout.chunk_bytes - 1), now: clock::now() };
        let (mut count, queues) = (0, self.sockets.len());
        for place in 0..queues {
            let socket = &mut self.sockets[(self.turn + place) % queues];
            count += reading.take(socket, max - count, f)?;
        }
        // A queue that fills a batch alone must leave the next batch to another queue.
        self.turn = (self.turn + 1).checked_rem(queues).unwrap_or(0);
        Ok(count)
    }

    fn send(&mut self, frame: &[u8]) -> bool {
        if frame.len() > self.layout.longest_sent() && self.direction.transmits() {
            self.oversized += 1;
            return true;
        }
        let Some(Socket { transmit: Some(transmit), umem, .. }) = self.sockets.first_mut() else {
            return false;
        };
        if !transmit.has_room() {
            return false;
        }
        let mut pieces = frame.chunks(self.layout.chunk_bytes as usize).peekable();
        while let Some(piece) = pieces.next() {
            let Some(addr) = transmit.free.pop() else { return false };
            // SAFETY: a free chunk belongs to us, and no slice of a free chunk exists.
            let written = unsafe { umem.write(addr as usize, piece) };
            debug_assert!(written, "free chunks lie inside the umem");
            let options = if pieces.peek().is_some() { libc::XDP_PKT_CONTD } else { 0 };
            transmit.tx.push(libc::xdp_desc { addr, len: piece.len() as u32, options });
        }
        true
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(transmit) = self.transmit() else { return Ok(()) };
        transmit.tx.publish();
        let mut pending = transmit.tx.pending();
        let mut wants_kick = transmit.tx.needs_wakeup();
        while pending > 0 && wants_kick {
            self.sockets[0].kick()?;
            let Some(transmit) = self.transmit() else { break };
            let left = transmit.tx.pending();
            if left == pending {
                // The device is busy: the frames stay for the next flush.
                break;
            }
            (pending, wants_kick) = (left, transmit.tx.needs_wakeup());
        }
        if let Some(transmit) = self.transmit() {
            transmit.reclaim();
        }
        Ok(())
    }

    /// The descriptor of the first queue, see [`XdpPort::queues`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sockets[0].as_fd()
    }

    fn ring_drops(&self) -> u64 {
        let of_kernel = self.sockets.iter().filter_map(|socket| socket.statistics().ok());
        // An empty fill ring counts as a dropped frame too, so it is not added.
        let lost = |of: libc::xdp_statistics| of.rx_dropped + of.rx_ring_full + of.tx_invalid_descs;
        let received = self.sockets.iter().filter_map(|socket| socket.receive.as_ref());
        let too_long = received.map(|receive| receive.pieces.too_long).sum::<u64>();
        let capture = self.capture.as_ref().and_then(|capture| capture.counters().ok());
        of_kernel.map(lost).sum::<u64>()
            + self.oversized
            + too_long
            + capture.map_or(0, |counters| counters.no_stamp)
    }
}

/// Parameters for reading the frames of a port.
struct Reading {
    /// Mask for the bits of an address that name the chunk.
    chunk_mask: u64,
    /// Arrival time of frames without a stamp.
    now: Timestamp,
}

impl Reading {
    /// Hands up to `max` frames of a queue to `f`.
    fn take(
        &self,
        socket: &mut Socket,
        max: usize,
        f: &mut dyn FnMut(&[u8], Timestamp),
    ) -> io::Result<usize> {
        let Socket { receive: Some(receive), umem, .. } = socket else { return Ok(0) };
        let (mut count, mut is_any) = (0, false);
        while count < max {
            let Some(descriptor) = receive.rx.pop() else { break };
            is_any = true;
            if let Some(next) = receive.rx.peek() {
                // Another processor has written it: fetching it takes longer than the work on a frame's headers.
                umem.prefetch(next.addr as usize);
            }
            let is_begun = !receive.pieces.is_empty();
            let is_last = descriptor.options & libc::XDP_PKT_CONTD == 0;
            // Only the first piece has a stamp.
            let stamp_len = if is_begun { 0 } else { STAMP_LEN };
            // SAFETY: the kernel released this chunk with the entry, and gets it back below.
            let (arrived, piece) = unsafe { stamped(umem, &descriptor, stamp_len) }
                .ok_or_else(|| io::Error::other("the kernel named a frame outside the umem"))?;
            let arrived = arrived.unwrap_or(self.now);
            if is_last && !is_begun {
                f(piece, arrived);
            } else {
                receive.pieces.push(piece, arrived);
                if is_last {
                    receive.pieces.finish(f);
                }
            }
            // The push cannot fail: the ring has an entry for each receive chunk.
            receive.fill.push(descriptor.addr & self.chunk_mask);
            count += usize::from(is_last);
        }
        if is_any {
            receive.rx.release();
            receive.fill.publish();
            let is_starving = receive.fill.needs_wakeup();
            if is_starving {
                // A driver that found the fill ring empty needs a wake-up to see the new entries.
                socket.look();
            }
        }
        Ok(count)
    }
}

/// The frame that a descriptor names, and its time of arrival from the `stamp_len` bytes in front of it, if stamped.
/// `None` if the bytes are not inside the umem. Only stamps are ever written to these bytes.
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
    // SAFETY: the caller's promise.
    let bytes = unsafe { umem.frame(start, stamp_len + descriptor.len as usize) }?;
    let (stamp, frame) = bytes.split_at(stamp_len);
    let stamp = stamp.try_into().ok().map(u64::from_ne_bytes).filter(|ns| *ns > 0);
    Some((stamp.map(Timestamp::from_nanos), frame))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_ebpf::CaptureOptions;

    use super::super::tests::{frame, number, on_a_veth_pair, quiet_ipv6, receive, run};
    use super::*;

    const OPTIONS: XdpOptions = XdpOptions { zero_copy: false, busy_poll: None, threads: false };

    /// A port that receives all frames of a device.
    fn open_all_queues(device: &str, options: XdpOptions) -> XdpPort {
        let mut port = XdpPort::open_to_receive(device, options).unwrap();
        let capture = Capture::attach(port.ifindex(), CaptureOptions::All, port.is_in_pieces());
        let capture = capture.unwrap();
        port.take_from(&capture).unwrap();
        port.hold(capture);
        port
    }

    #[test]
    fn all_queues_are_read_in_order() {
        on_a_veth_pair(|| {
            let queues = "numrxqueues 2 numtxqueues 2";
            run(&format!("ip link add many {queues} type veth peer name few {queues}"));
            for device in ["many", "few"] {
                run(&format!("ip link set {device} addrgenmode none up"));
            }
            let mut port = open_all_queues("many", OPTIONS);
            assert!(port.queues().map(|(queue, _)| queue).eq([0, 1]));
            let mut source = XdpPort::open_queues("few", Direction::Transmit, 2, OPTIONS).unwrap();
            for number in 0..200 {
                // A frame from one queue of a veth arrives in the same queue of the other end.
                source.sockets.swap(0, 1);
                assert!(source.send(&frame(number, 100)));
                source.flush().unwrap();
            }
            let deadline = clock::now() + Duration::from_secs(30);
            while port.sockets.iter().any(|socket| socket.waiting() < 100) {
                assert!(clock::now() < deadline, "a queue gets no frames");
            }
            let numbers: Vec<u32> =
                receive(&mut port, 200).iter().filter_map(|frame| number(frame)).collect();
            for queue in [0, 1] {
                let came = numbers.iter().copied().filter(|number| number % 2 == queue);
                assert!(came.eq((0..200).filter(|number| number % 2 == queue)), "{numbers:?}");
            }
        });
    }

    #[test]
    fn jumbo_frames_arrive_whole_among_short_ones() {
        if forebay_skips::skip_without(forebay_skips::Need::FramesInPieces) {
            return;
        }
        on_a_veth_pair(|| {
            quiet_ipv6();
            for device in ["left", "right"] {
                run(&format!("ip link set {device} mtu 9000"));
            }
            let mut right = open_all_queues("right", OPTIONS);
            let mut left = XdpPort::open("left", Direction::Transmit).unwrap();
            assert!(left.is_in_pieces() && right.is_in_pieces());
            // Lengths around one chunk of sent and of received frames, up to the longest frame with a tag. There are
            // enough rounds to use each chunk several times.
            let lens = [60, 3840, 3841, 4096, 4097, 7680, 9014, 9018];
            for round in 0..400 {
                let frame = |at: usize| frame(round * 8 + at as u32, lens[at]);
                let sent: Vec<Vec<u8>> = (0..lens.len()).map(frame).collect();
                assert!(sent.iter().all(|frame| left.send(frame)));
                left.flush().unwrap();
                assert_eq!(receive(&mut right, sent.len()), sent, "round {round}");
            }
            assert_eq!(left.ring_drops() + right.ring_drops(), 0);
        });
    }

    #[test]
    fn jumbo_port_is_full_until_the_longest_fits() {
        if forebay_skips::skip_without(forebay_skips::Need::FramesInPieces) {
            return;
        }
        on_a_veth_pair(|| {
            run("ip link set left mtu 9000");
            let mut left = XdpPort::open("left", Direction::Transmit).unwrap();
            run("ip link set left down");
            let mut sent = 0;
            while left.has_room() {
                assert!(left.send(&frame(0, 9018)));
                sent += 1;
                left.flush().unwrap();
            }
            assert_eq!(sent, TRANSMIT_FRAMES / 3);
            assert!(!left.send(&frame(0, 60)), "nothing is taken in part");
            assert_eq!(left.pending(), sent * 3);
        });
    }

    #[test]
    fn busy_polling_ends_at_frame_or_timeout() {
        on_a_veth_pair(|| {
            quiet_ipv6();
            let never = clock::now() + Duration::from_secs(600);
            let options = XdpOptions { busy_poll: Some(Duration::from_secs(60)), ..OPTIONS };
            let mut port = open_all_queues("right", options);
            let mut source = XdpPort::open("left", Direction::Transmit).unwrap();
            assert!(source.send(&frame(7, 100)));
            source.flush().unwrap();
            assert!(port.busy_poll(never));
            assert_eq!(receive(&mut port, 1), [frame(7, 100)]);
            for longest in [Some(Duration::from_micros(20)), None] {
                port.options.busy_poll = longest;
                assert!(!port.busy_poll(never), "{longest:?}");
            }
        });
    }

    #[test]
    fn driver_without_zero_copy_falls_back_to_copying() {
        on_a_veth_pair(|| {
            let mut right = open_all_queues("right", XdpOptions { zero_copy: true, ..OPTIONS });
            assert!(!right.is_zero_copy(), "a veth cannot");
            let mut left = XdpPort::open("left", Direction::Transmit).unwrap();
            assert!(left.send(&frame(7, 100)));
            left.flush().unwrap();
            assert_eq!(receive(&mut right, 1), [frame(7, 100)]);
        });
    }
}
