//! Packet I/O: whole Ethernet frames of one network device, without the kernel's network stack.

mod packet;
mod pieces;
mod ring;
mod socket;
#[cfg(feature = "bpf")]
mod xdp;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use forebay_core::units::Timestamp;
#[cfg(feature = "bpf")]
use forebay_ebpf::{Capture, CaptureOptions};
use netlink_packet_route::link::{LinkAttribute, LinkXdp, XdpAttached};

use crate::rtnetlink::{self, first};

pub use packet::PacketPort;
pub(crate) use packet::{bind_packet_socket, dropped_packets};
pub(crate) use pieces::Layout;
pub use pieces::MtuMax;
pub use socket::{SpareSocket, XdpOptions};
#[cfg(feature = "bpf")]
pub use xdp::XdpPort;

/// Length of an Ethernet header, in bytes.
pub const ETHERNET_HEADER_LEN: usize = 14;

/// Most receive queues of a device that a port reads: more than one thread can use.
pub const QUEUES_MAX: u32 = 16;

/// Sends and receives frames (Ethernet header to payload, without FCS) on one device.
pub trait Port: Send {
    /// Hands up to `max` received frames to `f`, with the time of their arrival, and returns their number. The
    /// kernel takes the time for frames of a [`Capture`] program; for others it is the time of this call.
    fn receive(&mut self, max: usize, f: &mut dyn FnMut(&[u8], Timestamp)) -> io::Result<usize>;
    /// Queues one frame for transmission. False: the ring is full, and the frame was not taken. A frame longer
    /// than the device can carry is taken, lost and counted in [`Port::ring_drops`].
    fn send(&mut self, frame: &[u8]) -> bool;
    /// Makes the kernel send all queued frames. Frames that the device does not take at once stay queued for the
    /// next flush.
    fn flush(&mut self) -> io::Result<()>;
    /// A descriptor that is readable when frames wait.
    fn as_fd(&self) -> BorrowedFd<'_>;
    /// Frames lost in the port's rings since it was opened.
    fn ring_drops(&self) -> u64;
}

/// Directions in which a port is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Frames are only received.
    Receive,
    /// Frames are only sent.
    Transmit,
    /// Frames are received and sent.
    Both,
}

impl Direction {
    fn receives(self) -> bool {
        self != Self::Transmit
    }

    fn transmits(self) -> bool {
        self != Self::Receive
    }
}

/// Why a port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// There is no such network device in this network namespace.
    #[error("no network device {device} in this network namespace")]
    NoDevice {
        /// The requested name.
        device: String,
    },
    /// Packet sockets and AF_XDP need a privilege.
    #[error("raw packets on {device} need root, or CAP_NET_RAW and CAP_NET_ADMIN")]
    Privilege {
        /// Device name.
        device: String,
    },
    /// Frames of the device would be longer than AF_XDP carries.
    #[error(
        "{device} has an MTU of {mtu} bytes, AF_XDP carries at most {max}: set it with \
         `ip link set dev {device} mtu {}`",
        .max.bytes
    )]
    Mtu {
        /// Device name.
        device: String,
        /// MTU of the device, in bytes.
        mtu: u32,
        /// The largest possible MTU.
        max: MtuMax,
    },
    /// Frames of the other receive queues would bypass the port.
    #[error(
        "{device} has {queues} receive queues and the port reads {max}: use `ethtool -L {device} \
         combined {max}`, or `rx {max}` if `ethtool -l` shows RX"
    )]
    Queues {
        /// Device name.
        device: String,
        /// Receive queues in use.
        queues: u32,
        /// Queues that the port reads.
        max: u32,
    },
    /// Some other socket is bound to the queue.
    #[error("{device} is in use by another AF_XDP socket")]
    Busy {
        /// Device name.
        device: String,
    },
    /// A system call failed.
    #[error("{operation} on {device}: {source}")]
    Os {
        /// The operation that failed.
        operation: &'static str,
        /// Device name.
        device: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The capture program could not be attached.
    #[error(transparent)]
    Ebpf(#[from] forebay_ebpf::Error),
}

/// Opens a port that receives every frame of the device: AF_XDP with its own capture program, or a packet socket
/// if this kernel or device has no AF_XDP.
///
/// For devices whose frames nothing else forwards, such as the ones of the link emulator. A foreign XDP program
/// or a missing privilege is an error, never a reason to fall back.
#[cfg(feature = "bpf")]
pub fn open_all(device: &str, direction: Direction) -> Result<Box<dyn Port>, PortError> {
    match open_all_xdp(device, direction) {
        Ok(port) => Ok(Box::new(port)),
        Err(
            error @ (PortError::Os { .. }
            | PortError::Mtu { .. }
            | PortError::Ebpf(
                forebay_ebpf::Error::Kernel { .. } | forebay_ebpf::Error::Attach { .. },
            )),
        ) => {
            tracing::warn!(target: "device", device, %error, "no AF_XDP, using a packet socket");
            Ok(Box::new(PacketPort::open(device, direction)?))
        }
        Err(error) => Err(error),
    }
}

#[cfg(feature = "bpf")]
fn open_all_xdp(device: &str, direction: Direction) -> Result<XdpPort, PortError> {
    let mut port = XdpPort::open(device, direction)?;
    if direction.receives() {
        let capture = Capture::attach(port.ifindex(), CaptureOptions::All, port.is_in_pieces())?;
        port.take_from(&capture)?;
        port.hold(capture);
    }
    Ok(port)
}

/// The index of a device of the current network namespace.
pub(crate) fn ifindex(device: &str) -> Result<u32, PortError> {
    nix::net::if_::if_nametoindex(device)
        .map_err(|_| PortError::NoDevice { device: device.to_string() })
}

/// An XDP program at a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XdpProgram {
    /// Number of the program in the kernel.
    pub id: u32,
    /// The program runs behind the driver, and behind GRO.
    pub is_generic: bool,
}

/// The program of a device of the current network namespace.
pub(crate) fn xdp_program(device: &str) -> io::Result<Option<XdpProgram>> {
    let link = rtnetlink::link(nix::net::if_::if_nametoindex(device)?)?;
    let xdp = first!(link.attributes, LinkAttribute::Xdp).map_or(&[][..], Vec::as_slice);
    let is_generic = xdp.contains(&LinkXdp::Attached(XdpAttached::SocketBuffer));
    Ok(first!(xdp, LinkXdp::ProgId).map(|id| XdpProgram { id: *id, is_generic }))
}

/// An error about `device` from a system call.
pub(crate) fn os_error(
    device: &str,
    operation: &'static str,
) -> impl FnOnce(io::Error) -> PortError {
    move |source| match source.raw_os_error() {
        Some(libc::EPERM) => PortError::Privilege { device: device.to_string() },
        _ => PortError::Os { operation, device: device.to_string(), source },
    }
}

/// An error about `device` from the system call just made.
fn last_os_error(device: &str, operation: &'static str) -> PortError {
    os_error(device, operation)(io::Error::last_os_error())
}

/// Sets an option of a socket.
pub(crate) fn set_option<T>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of `value`.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use nix::sys::socket::{getsockopt, sockopt};

    use super::*;
    use crate::clock;

    /// Runs `test` in a separate network namespace that holds the veth pair `left` and `right`. The kernel
    /// removes the namespace when the thread and its sockets are gone.
    pub(crate) fn on_a_veth_pair(test: impl FnOnce() + Send + 'static) {
        if forebay_skips::skip_without(forebay_skips::Need::Root) {
            return;
        }
        let thread = std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            for command in [
                "ip link add left type veth peer name right",
                "ip link set left up",
                "ip link set right up",
            ] {
                run(command);
            }
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }

    /// Silences IPv6, so that only frames of the test follow.
    pub(super) fn quiet_ipv6() {
        run("ip link set left down");
        run("ip link set right addrgenmode none");
        run("ip link set left addrgenmode none up");
    }

    pub(crate) fn run(command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        let status = Command::new(words[0]).args(&words[1..]).status().expect("iproute2 is here");
        assert!(status.success(), "{command}");
    }

    /// Frames that a device should have sent but dropped: its `tx_dropped`, which `/proc/net/dev` shows for the
    /// network namespace of the thread.
    fn sent_drops(device: &str) -> u64 {
        let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let row =
            table.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
        // Eight receive columns, then bytes, packets and errors of the transmit side.
        row.unwrap().split_whitespace().nth(8 + 3).unwrap().parse().unwrap()
    }

    /// A frame of an experimental EtherType (IEEE 802) that carries `number`.
    pub(crate) fn frame(number: u32, len: usize) -> Vec<u8> {
        let mut frame = vec![number as u8; len];
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame[14..18].copy_from_slice(&number.to_be_bytes());
        frame
    }

    pub(crate) fn number(frame: &[u8]) -> Option<u32> {
        let ours = frame[12..14] == [0x88, 0xb5];
        ours.then(|| u32::from_be_bytes(frame[14..18].try_into().unwrap()))
    }

    /// Receives until `count` frames of the test have come, or none has come for a second.
    pub(super) fn receive(port: &mut dyn Port, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut last = Instant::now();
        while frames.len() < count {
            // Taken before the look at the port, since this thread itself may have been late.
            let waited = last.elapsed();
            let got = port.receive(64, &mut |frame, _| {
                if number(frame).is_some() {
                    frames.push(frame.to_vec());
                }
            });
            if got.unwrap() > 0 {
                last = Instant::now();
            } else if waited > Duration::from_secs(1) {
                break;
            }
        }
        frames
    }

    /// The result of `open` once the previous program is detached. A child that another test starts holds its
    /// descriptors until it has become its own program.
    fn once_detached<T>(mut open: impl FnMut() -> Result<T, PortError>) -> T {
        let started = Instant::now();
        loop {
            match open() {
                Err(error) if error.to_string().contains("already runs the XDP program") => {
                    assert!(started.elapsed() < Duration::from_secs(30), "{error}");
                    std::thread::sleep(Duration::from_millis(1));
                }
                result => return result.unwrap(),
            }
        }
    }

    fn exchange(left: &mut dyn Port, right: &mut dyn Port) {
        // More frames than the rings hold, so that each entry is used several times.
        const ROUNDS: u32 = 400;
        const BATCH: u32 = 32;
        for round in 0..ROUNDS {
            let sent: Vec<Vec<u8>> = (0..BATCH)
                .map(|index| frame(round * BATCH + index, 60 + (round * 37 % 1455) as usize))
                .collect();
            let (from, to): (&mut dyn Port, &mut dyn Port) =
                if round % 2 == 0 { (left, right) } else { (right, left) };
            for frame in &sent {
                assert!(from.send(frame));
            }
            from.flush().unwrap();
            assert_eq!(receive(to, sent.len()), sent, "round {round}");
        }
        assert_eq!(left.ring_drops() + right.ring_drops(), 0);
    }

    #[test]
    fn af_xdp_carries_all_sizes_in_order() {
        on_a_veth_pair(|| {
            let mut left = open_all_xdp("left", Direction::Both).unwrap();
            let mut right = open_all_xdp("right", Direction::Both).unwrap();
            assert_eq!(left.capture().unwrap().mode(), Some(forebay_ebpf::XdpMode::Native));
            exchange(&mut left, &mut right);
        });
    }

    #[test]
    fn late_read_frames_keep_their_arrival_time() {
        on_a_veth_pair(|| {
            quiet_ipv6();
            let mut left = open_all_xdp("left", Direction::Transmit).unwrap();
            let mut right = open_all_xdp("right", Direction::Receive).unwrap();
            let started = clock::now();
            let mut between = Vec::new();
            for index in 0..2 {
                assert!(left.send(&frame(index, 100)));
                left.flush().unwrap();
                // The first frame has arrived; the second one is awaited below.
                let fd = nix::poll::PollFd::new(right.as_fd(), nix::poll::PollFlags::POLLIN);
                assert_eq!(nix::poll::poll(&mut [fd], 30_000_u16), Ok(1));
                between.push(clock::now());
            }
            let mut arrivals = Vec::new();
            while arrivals.len() < 2 {
                right
                    .receive(64, &mut |frame, arrived| {
                        arrivals.extend(number(frame).map(|number| (number, arrived)));
                    })
                    .unwrap();
            }
            let [(0, first), (1, second)] = arrivals[..] else { panic!("{arrivals:?}") };
            assert!(started <= first && first <= between[0], "{first:?}");
            assert!(between[0] <= second && second <= clock::now(), "{second:?}");
        });
    }

    #[test]
    fn packet_sockets_carry_all_sizes_in_order() {
        on_a_veth_pair(|| {
            let mut left = PacketPort::open("left", Direction::Both).unwrap();
            let mut right = PacketPort::open("right", Direction::Both).unwrap();
            exchange(&mut left, &mut right);
        });
    }

    #[test]
    fn transmit_only_port_has_no_program_or_input() {
        on_a_veth_pair(|| {
            let mut left = open_all_xdp("left", Direction::Transmit).unwrap();
            assert!(left.capture().is_none());
            let mut right = open_all_xdp("right", Direction::Receive).unwrap();
            assert!(left.send(&frame(7, 100)));
            assert!(!right.send(&frame(8, 100)));
            left.flush().unwrap();
            assert_eq!(receive(&mut right, 1), [frame(7, 100)]);
            assert_eq!(left.receive(1, &mut |_, _| panic!("a frame")).unwrap(), 0);
        });
    }

    #[test]
    fn sent_frames_bypass_the_qdisc() {
        on_a_veth_pair(|| {
            quiet_ipv6();
            run("tc qdisc add dev left root pfifo");
            let passed = || {
                let mut tc = Command::new("tc");
                let tc = tc.args(["-s", "-j", "qdisc", "show", "dev", "left"]).output().unwrap();
                let qdiscs: serde_json::Value = serde_json::from_slice(&tc.stdout).unwrap();
                (qdiscs[0]["kind"].clone(), qdiscs[0]["packets"].clone())
            };
            let mut left = open_all_xdp("left", Direction::Transmit).unwrap();
            let mut right = open_all_xdp("right", Direction::Receive).unwrap();
            assert!(left.send(&frame(7, 100)));
            left.flush().unwrap();
            assert_eq!(receive(&mut right, 1), [frame(7, 100)]);
            assert_eq!(passed(), ("pfifo".into(), 0.into()));
        });
    }

    #[test]
    fn every_frame_that_overflows_a_port_is_counted() {
        for open in [
            (|device| Box::new(open_all_xdp(device, Direction::Receive).unwrap()) as Box<dyn Port>)
                as fn(&str) -> Box<dyn Port>,
            |device| Box::new(PacketPort::open(device, Direction::Receive).unwrap()),
        ] {
            on_a_veth_pair(move || {
                quiet_ipv6();
                let mut left = open_all_xdp("left", Direction::Transmit).unwrap();
                let mut right = open("right");
                std::thread::sleep(Duration::from_millis(100));
                receive(right.as_mut(), 1);
                let sent = 100_000;
                for index in 0..sent {
                    assert!(left.send(&frame(index, 60)));
                    // Batches below the 256 entries of a veth's own queue.
                    if index % 32 == 31 {
                        left.flush().unwrap();
                    }
                }
                left.flush().unwrap();
                let received = receive(right.as_mut(), sent as usize).len();
                let drops = right.ring_drops();
                assert!(drops > 0);
                // Drops of the veth itself, if its softirq ran late.
                let before = sent_drops("left");
                assert_eq!(
                    received as u64 + drops + before,
                    u64::from(sent),
                    "{received} + {drops} + {before}"
                );
            });
        }
    }

    #[test]
    fn foreign_program_is_refused_by_name_and_kept() {
        on_a_veth_pair(|| {
            let first = open_all_xdp("right", Direction::Receive).unwrap();
            // The socket is closed first, so that only the program is in the way.
            let left = ifindex("left").unwrap();
            let held = Capture::attach(left, CaptureOptions::All, false).unwrap();
            let error = open_all("left", Direction::Receive).err().expect("refused");
            let text = error.to_string();
            assert!(text.contains("left already runs the XDP program with id "), "{text}");
            drop((first, held));
            once_detached(|| open_all("left", Direction::Receive));
        });
    }

    #[test]
    fn queue_is_free_soon_after_its_port_closes() {
        on_a_veth_pair(|| {
            for _ in 0..5 {
                drop(once_detached(|| open_all_xdp("left", Direction::Both)));
            }
        });
    }

    #[test]
    fn port_on_recreated_device_sends_unprivileged_at_once() {
        on_a_veth_pair(|| {
            let port = open_all_xdp("left", Direction::Transmit).unwrap();
            let spares = vec![SpareSocket::open(XdpOptions::default()).unwrap()];
            run("ip link del left");
            run("ip link add left up type veth peer name right");
            let kept = [caps::Capability::CAP_IPC_LOCK].into();
            caps::set(None, caps::CapSet::Effective, &kept).unwrap();
            let again = port.anew(spares, "left", ifindex("left").unwrap()).unwrap();
            let bytes = |port: &XdpPort| getsockopt(&port.as_fd(), sockopt::SndBuf).unwrap();
            assert_eq!(bytes(&again), bytes(&port));
            // The kernel reports twice the requested size.
            assert!(bytes(&port) >= 8 << 20, "{} bytes", bytes(&port));
        });
    }

    #[test]
    fn device_with_unread_queues_is_refused() {
        on_a_veth_pair(|| {
            run("ip link add many numrxqueues 2 numtxqueues 2 type veth peer name few");
            let error = XdpPort::open("many", Direction::Receive).err().expect("refused");
            assert!(error.to_string().contains("many has 2 receive queues"), "{error}");
            XdpPort::open("many", Direction::Transmit).unwrap();
        });
    }

    #[test]
    fn mtu_beyond_af_xdp_is_refused() {
        on_a_veth_pair(|| {
            run("ip link set left mtu 16000");
            let error = XdpPort::open("left", Direction::Both).err().expect("refused");
            let fix = format!("`ip link set dev left mtu {}`", MtuMax::here().bytes);
            assert!(error.to_string().contains(&fix), "{error}");
            let missing = XdpPort::open("nowhere", Direction::Both).err().expect("refused");
            assert!(matches!(missing, PortError::NoDevice { .. }), "{missing}");
        });
    }
}
