//! Both ends of the traffic: a sender at a fixed or unlimited rate, and a receiver.
//!
//! On a path without delay, three things would make trials random: the number of acknowledgements, the part
//! that a congestion control sees, and the CPU time of the receiver. The causes and remedies:
//!
//! - A receiver acknowledges every second segment only while its window does not shrink
//!   (`__tcp_ack_snd_check` in net/ipv4/tcp_input.c), otherwise when it is read: 22 segments instead of 2
//!   here. So its buffer is far larger than its window limit.
//! - Acknowledgements that arrive during a write of the sender wait for its end, and the kernel merges
//!   nine of ten (`tcp_add_backlog` in net/ipv4/tcp_ipv4.c). So a write is at most as large as the piece
//!   that the kernel hands to the device.
//! - A receiver that wakes as soon as there is data wakes once or many times per chunk. The scheduler
//!   decides, and an agent that wakes in between changes its decision. So the receiver sleeps until a
//!   whole chunk has arrived.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use super::PartError;
use super::part::{SenderSpec, finish, ready};
use super::tcp_info::TcpInfo;
use super::turns::Slice;
use crate::orders;
use forebay_host::clock;

/// Data bytes in a segment: an MTU of 1500 bytes minus IPv4, TCP and timestamps.
const SEGMENT: usize = 1448;
/// Segments of the largest piece: about 64 KiB, the most that Linux hands over.
const PIECE_SEGMENTS: usize = 44;
/// Bytes that become due at a time.
const CHUNK: usize = PIECE_SEGMENTS * SEGMENT;
/// Receive buffer of a receiver with a fixed window.
const BUFFER_BYTES: i32 = 32 << 20;
/// Bytes read in one call.
const READ: usize = 256 * 1024;
/// Unsent bytes that the kernel accepts from a connection without a rate.
const UNSENT_BYTES: u32 = 64 * 1024;
/// Events taken per call.
const EVENTS: usize = 64;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Bytes of the largest piece that the kernel hands to the device with a limit of `segments`.
pub(super) fn piece_bytes(segments: Option<u32>) -> usize {
    let segments = segments.map_or(PIECE_SEGMENTS, |segments| segments as usize);
    segments.clamp(1, PIECE_SEGMENTS) * SEGMENT
}

/// Traffic in the counted ranges, by the kernel's own counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sent {
    /// From the first to the second look (ns).
    pub time_ns: u64,
    /// Bytes acknowledged.
    pub bytes: u64,
    /// Acknowledgements received.
    pub acks: u64,
    /// Segments with data sent.
    pub segments: u64,
    /// Segments sent again.
    pub retransmissions: u64,
}

/// Connects, sends in its slices, and writes their counters.
pub(super) fn sender(spec: &SenderSpec) -> Result<(), PartError> {
    let sockets = (0..spec.flows.max(1)).map(|_| connect(spec)).collect::<Result<Vec<_>, _>>()?;
    let Some(started_ns) = ready()? else { return Ok(()) };
    let slices = spec.times.slices(started_ns);
    let mut looks = Looks::new(&slices);
    for slice in slices {
        sleep_until(slice.from);
        match spec.rate_bps {
            Some(rate) => paced(&sockets, spec.piece_bytes, rate.max(1), slice, &mut looks)?,
            None => greedy(&sockets, slice, &mut looks)?,
        }
    }
    Ok(finish(&spec.output, &looks.sent())?)
}

/// Accepts all connections and reads their data, until stdin ends.
pub(super) fn receiver(listen: SocketAddrV4, window: Option<u32>) -> Result<(), PartError> {
    let listener = listener(listen, window).map_err(socket_error("listen"))?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(io::Error::from)?;
    let watch = |socket: &dyn AsFd, key: u64| -> io::Result<()> {
        Ok(epoll.add(socket.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, key))?)
    };
    const STDIN: u64 = u64::MAX;
    const LISTENER: u64 = STDIN - 1;
    watch(&io::stdin(), STDIN)?;
    watch(&listener, LISTENER)?;
    let mut streams: Vec<(TcpStream, u64)> = Vec::new();
    let mut buffer = vec![0; READ];
    orders::tell("ready");
    loop {
        for event in wait(&epoll, EpollTimeout::NONE)? {
            match event.data() {
                STDIN => return Ok(()),
                LISTENER => {
                    let (stream, _) = listener.accept()?;
                    stream.set_nonblocking(true)?;
                    if window.is_some() {
                        set_option(&stream, libc::SOL_SOCKET, libc::SO_RCVLOWAT, CHUNK as i32)?;
                    }
                    watch(&stream, streams.len() as u64)?;
                    streams.push((stream, 0));
                }
                key => {
                    let (stream, reads) = &mut streams[key as usize];
                    *reads += 1;
                    if reads.is_power_of_two() {
                        fix_window(stream, window)?;
                    }
                    match stream.read(&mut buffer) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Ok(length) if length > 0 => {}
                        // The sender has ended; the bench deals with that.
                        _ => epoll.delete(&*stream).map_err(io::Error::from)?,
                    }
                }
            }
        }
    }
}

/// Looks at the connections' counters at both ends of each counted range.
struct Looks {
    due: Vec<u64>,
    taken: Vec<(u64, TcpInfo)>,
}

impl Looks {
    fn new(slices: &[Slice]) -> Self {
        let counted = slices.iter().filter_map(|slice| slice.counted());
        let due: Vec<u64> = counted.flat_map(|it| [it.start, it.end]).collect();
        let taken = Vec::with_capacity(due.len());
        Self { due, taken }
    }

    /// Time of the next look; `None`: all are taken.
    fn due(&self) -> Option<u64> {
        self.due.get(self.taken.len()).copied()
    }

    /// Takes the look if it is due.
    fn take(&mut self, sockets: &[TcpStream]) -> io::Result<()> {
        while let Some(due) = self.due() {
            let now = clock::now().as_nanos();
            if now < due {
                break;
            }
            self.taken.push((now, TcpInfo::sum(sockets)?));
        }
        Ok(())
    }

    fn sent(&self) -> Sent {
        let mut sent = Sent::default();
        for two in self.taken.chunks_exact(2) {
            let [(from_ns, from), (to_ns, to)] = [two[0], two[1]];
            let counted = to.since(from);
            sent.time_ns += to_ns - from_ns;
            sent.bytes += counted.bytes_acked;
            sent.acks += counted.segments_in;
            sent.segments += counted.data_segments_out;
            sent.retransmissions += counted.retransmitted;
        }
        sent
    }
}

/// Writes a chunk to the connections in turn whenever one is due by the schedule. A late sender catches up
/// until the slice ends.
fn paced(
    sockets: &[TcpStream],
    piece_bytes: usize,
    rate_bps: u64,
    slice: Slice,
    looks: &mut Looks,
) -> Result<(), PartError> {
    let chunk = [0; CHUNK];
    for number in 0_u64.. {
        let due = slice.from + time_of(number, rate_bps);
        loop {
            looks.take(sockets)?;
            let now = clock::now().as_nanos();
            if now >= slice.until {
                return Ok(looks.take(sockets)?);
            }
            if now >= due {
                break;
            }
            sleep_until(due.min(slice.until).min(looks.due().unwrap_or(due)));
        }
        let mut socket = &sockets[(number % sockets.len() as u64) as usize];
        for piece in chunk.chunks(piece_bytes.max(1)) {
            socket.write_all(piece).map_err(socket_error("send"))?;
        }
    }
    Ok(())
}

/// Time at which the chunk `number` is due, since the start (ns).
fn time_of(number: u64, rate_bps: u64) -> u64 {
    let bits = u128::from(number) * CHUNK as u128 * 8;
    u64::try_from(bits * 1_000_000_000 / u128::from(rate_bps)).unwrap_or(u64::MAX)
}

/// Writes as fast as the kernel takes it until the slice ends.
fn greedy(sockets: &[TcpStream], slice: Slice, looks: &mut Looks) -> Result<(), PartError> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(io::Error::from)?;
    for (key, socket) in sockets.iter().enumerate() {
        socket.set_nonblocking(true)?;
        let event = EpollEvent::new(EpollFlags::EPOLLOUT, key as u64);
        epoll.add(socket, event).map_err(io::Error::from)?;
    }
    let chunk = [0; CHUNK];
    loop {
        looks.take(sockets)?;
        let now = clock::now().as_nanos();
        if now >= slice.until {
            return Ok(looks.take(sockets)?);
        }
        let next = looks.due().unwrap_or(slice.until).min(slice.until);
        let left = Duration::from_nanos(next.saturating_sub(now)).as_millis().min(1000) as u16;
        for event in wait(&epoll, EpollTimeout::from(left))? {
            let mut socket = &sockets[event.data() as usize];
            match socket.write(&chunk) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Err(socket_error("send")(error));
                }
                _ => {}
            }
        }
    }
}

fn connect(spec: &SenderSpec) -> Result<TcpStream, PartError> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
        .map_err(socket_error("socket"))?;
    let name = &spec.congestion_control;
    socket.set_tcp_congestion(name.as_bytes()).map_err(|source| {
        let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        let available = available.unwrap_or_default().trim().to_string();
        PartError::CongestionControl { name: name.clone(), source, available }
    })?;
    socket.set_tcp_nodelay(true).map_err(socket_error("TCP_NODELAY"))?;
    if spec.rate_bps.is_none() {
        socket.set_tcp_notsent_lowat(UNSENT_BYTES).map_err(socket_error("TCP_NOTSENT_LOWAT"))?;
    }
    socket.connect(&spec.to.into()).map_err(socket_error("connect"))?;
    Ok(socket.into())
}

fn listener(address: SocketAddrV4, window: Option<u32>) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    // Connections of the previous trial may still exist.
    socket.set_reuse_address(true)?;
    if window.is_some() {
        // Connections inherit it. Root may go beyond net.core.rmem_max.
        set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_BYTES)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Limits the window of a connection. Linux sets its own limit again once it has measured a
/// segment's size in memory (`tcp_measure_rcv_mss` in net/ipv4/tcp_input.c).
fn fix_window(stream: &TcpStream, window: Option<u32>) -> io::Result<()> {
    let Some(window) = window else { return Ok(()) };
    let window = i32::try_from(window).unwrap_or(i32::MAX);
    set_option(stream, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, window)
}

fn set_option(socket: &impl AsRawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let (value, len) = ((&raw const value).cast(), size_of::<i32>() as u32);
    // SAFETY: the value outlives the call.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn wait(epoll: &Epoll, timeout: EpollTimeout) -> io::Result<impl Iterator<Item = EpollEvent>> {
    let mut events = [EpollEvent::empty(); EVENTS];
    let count = match epoll.wait(&mut events, timeout) {
        Err(Errno::EINTR) => 0,
        other => other?,
    };
    Ok(events.into_iter().take(count))
}

/// Sleeps until this time on `CLOCK_MONOTONIC` (ns); a signal may end it earlier.
pub(super) fn sleep_until(at_ns: u64) {
    let at = TimeSpec::from_duration(Duration::from_nanos(at_ns));
    let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at);
}

fn socket_error(action: &'static str) -> impl FnOnce(io::Error) -> PartError {
    move |source| PartError::Socket { action, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_due_at_the_rate() {
        // 63,712 bytes at 600 Mbit/s: 849.49 us.
        assert_eq!(time_of(0, 600_000_000), 0);
        assert_eq!(time_of(1, 600_000_000), 849_493);
        assert_eq!(time_of(1000, 600_000_000), 849_493_333);
        // No piece of two segments has a remainder.
        assert_eq!(CHUNK % piece_bytes(Some(2)), 0);
        assert_eq!((piece_bytes(Some(2)), piece_bytes(None)), (2896, CHUNK));
    }

    #[test]
    fn all_counted_bytes_arrive() {
        let info =
            |bytes_acked, segments_in| TcpInfo { bytes_acked, segments_in, ..TcpInfo::default() };
        let slices = [
            Slice { from: 0, counted_from: 10, until: 20 },
            Slice { from: 30, counted_from: 40, until: 40 },
            Slice { from: 50, counted_from: 60, until: 70 },
        ];
        let mut looks = Looks::new(&slices);
        assert_eq!((looks.due(), looks.sent()), (Some(10), Sent::default()));
        looks.taken = vec![(11, info(5, 1)), (22, info(50, 4))];
        let sent = Sent { time_ns: 11, bytes: 45, acks: 3, ..Sent::default() };
        assert_eq!((looks.due(), looks.sent()), (Some(60), sent));
        looks.taken.extend([(60, info(70, 9)), (70, info(80, 10))]);
        let sent = Sent { time_ns: 21, bytes: 55, acks: 4, ..Sent::default() };
        assert_eq!((looks.due(), looks.sent()), (None, sent));
    }
}
