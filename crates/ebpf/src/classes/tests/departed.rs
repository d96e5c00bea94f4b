//! Handling of buffers in `departed`, each sent through a device by a socket that puts it into a class
//! itself.

use std::fs::File;
use std::io::{Error, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::{Duration, Instant};

use forebay_core::bundle::SampleBlock;
use forebay_core::bundle::segments::SuperPacket;
use libbpf_rs::{MapCore, MapFlags, libbpf_sys};

use super::*;
use crate::Boundary;
use crate::program::tests::{command, in_namespace};
use crate::sampler::tests::{KEY, tagged, transport};

/// The way out of the namespace of the calling thread, and the classes in front of it.
struct Port {
    classes: Classes,
    socket: File,
}

/// Bytes of data, and bytes of data per packet if the frame is cut up.
const SIZES: [(usize, u16); 11] = [
    (0, 0),
    (3, 0),
    (12, 0),
    (30, 0),
    (1448, 0),
    (8000, 0),
    (3000, 1448),
    (2896, 1448),
    (24_000, 1000),
    (23_999, 1000),
    (9000, 100),
];
/// Bytes in the first piece of a buffer that is longer than a page.
const LINEAR: [usize; 6] = [0, 20, 40, 60, 90, 128];

/// Hash and identity of a packet.
type Marks = (u64, u64);
/// Marks, bytes and packets until then, and bytes in front of the packet in its buffer.
type Seen = (Marks, u64, u64, u64);

impl Port {
    /// Has a bundle of all packets.
    fn new(epoch_size: EpochSize) -> Self {
        command("ip link add wan mtu 9000 type veth peer name far mtu 9000");
        command("ip link set far up");
        command("ip link set wan up");
        // SAFETY: a string that ends, and numbers.
        let ifindex = unsafe { libc::if_nametoindex(c"wan".as_ptr()) };
        let most_packets = u32::MAX;
        let options = ClassesOptions {
            takes_own: true,
            wan: ifindex,
            most_packets,
            most_bytes: most_packets,
            ..BRIDGED
        };
        Self::at(options, epoch_size, 0)
    }

    /// As [`Port::new`], for a device that exists; `protocol`: EtherType of packets without Ethernet headers.
    fn at(options: ClassesOptions, epoch_size: EpochSize, protocol: u16) -> Self {
        let mut classes = Classes::attach(options).unwrap();
        let all = vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
        let bundle = SamplerBundle {
            source: all.clone(),
            destination: all,
            key: KEY,
            epoch_size,
            version: BlockVersion::V2,
        };
        classes.sampler.set_bundle(BundleId(5), bundle).unwrap();
        let class = classes.at(0).0;
        Self { classes, socket: socket(options.wan, class, protocol) }
    }

    /// Sends a frame whose first piece of the buffer has at least `linear` bytes, to be cut up by `gso_size`
    /// unless that is 0.
    fn send(&mut self, frame: &[u8], linear: usize, gso_size: u16) {
        self.send_behind(frame, 0, linear, gso_size);
    }

    /// As [`Port::send`], without the first `skipped` bytes.
    fn send_behind(&mut self, frame: &[u8], skipped: usize, linear: usize, gso_size: u16) {
        self.try_send(frame, skipped, linear, gso_size).unwrap();
    }

    /// As [`Port::send_behind`]; fails where the frame is dropped before it is queued.
    fn try_send(
        &mut self,
        frame: &[u8],
        skipped: usize,
        linear: usize,
        gso_size: u16,
    ) -> std::io::Result<()> {
        let is_v6 = frame[12] == 0x86;
        let (payload_at, protocol) = if is_v6 { (54, frame[20]) } else { (34, frame[23]) };
        let payload_at = payload_at - skipped;
        let (kind, checksum_at) = match (protocol, is_v6) {
            // VIRTIO_NET_HDR_GSO_TCPV4, _TCPV6 and _UDP_L4.
            (6, false) => (1, 16),
            (6, true) => (4, 16),
            _ => (5, 6),
        };
        // struct virtio_net_hdr (include/uapi/linux/virtio_net.h)
        let mut header = if gso_size == 0 { [0; 10] } else { [1, kind, 0, 0, 0, 0, 0, 0, 0, 0] };
        header[2..4].copy_from_slice(&(linear as u16).to_ne_bytes());
        if gso_size != 0 {
            header[4..6].copy_from_slice(&gso_size.to_ne_bytes());
            header[6..8].copy_from_slice(&(payload_at as u16).to_ne_bytes());
            header[8..10].copy_from_slice(&(checksum_at as u16).to_ne_bytes());
        }
        self.socket.write_all(&[&header, &frame[skipped..]].concat())
    }

    fn seen(&mut self) -> Vec<Seen> {
        let mut seen = Vec::new();
        let take = &mut |Boundary { report, identity, ahead, .. }: Boundary| {
            let bytes = report.received_bytes.as_u64();
            let marks = (report.hash, identity);
            seen.push((marks, bytes, report.received_packets, ahead.as_u64()));
        };
        self.classes.sampler.consume(take).unwrap();
        seen
    }
}

/// A socket that sends in a class, through a device: whole frames, or packets of this EtherType where there
/// are no frames. Each is behind a `struct virtio_net_hdr`.
fn socket(ifindex: u32, class: u32, protocol: u16) -> File {
    let set = |fd, level, option, value: u32| {
        let len = size_of_val(&value) as u32;
        // SAFETY: a number that outlives the call, and its length.
        let status = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), len) };
        assert_eq!(status, 0, "{}", Error::last_os_error());
    };
    // SAFETY: plain numbers, for which zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    (address.sll_family, address.sll_ifindex) = (libc::AF_PACKET as u16, ifindex as i32);
    address.sll_protocol = protocol.to_be();
    // SAFETY: plain numbers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    assert!(fd >= 0, "{}", Error::last_os_error());
    // SAFETY: the descriptor has no other owner.
    let socket = unsafe { File::from_raw_fd(fd) };
    let len = size_of_val(&address) as u32;
    // SAFETY: an address that outlives the call, and its length.
    let status = unsafe { libc::bind(fd, (&raw const address).cast(), len) };
    assert_eq!(status, 0, "{}", Error::last_os_error());
    set(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, class);
    set(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1);
    socket
}

/// The packets that a frame becomes, with the bytes of each.
fn expected(frame: &[u8], gso_size: u16) -> Vec<(Marks, u64)> {
    let marks = |block: SampleBlock| (block.hash(&KEY), block.identity());
    if gso_size == 0 {
        let block = SampleBlock::from_frame(BlockVersion::V2, frame).unwrap();
        return vec![(marks(block), frame.len() as u64)];
    }
    let cut = SuperPacket::new(frame, gso_size, false).unwrap();
    cut.segments().map(|segment| (marks(segment.block), segment.len.as_u64())).collect()
}

#[test]
fn what_leaves_unseen_is_missed() {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
        return;
    }
    in_namespace(|| {
        let mut port = Port::new(EpochSize::MAX);
        command("tc qdisc replace dev wan root handle fb: htb");
        command("tc class add dev wan parent fb: classid fb:1 htb rate 1gbit quantum 1514");
        let frame = transport(false, 17, 100);
        let send = |port: &mut Port, count| (0..count).for_each(|_| port.send(&frame, 0, 0));
        send(&mut port, 20);
        port.classes._at_tracepoints = None;
        send(&mut port, 7);
        let departed = TracepointLink::attach(port.classes.departed.as_fd(), "classes").unwrap();
        send(&mut port, 20);
        drop(departed);
        let counts = port.classes.departed().unwrap();
        let seen = counts.sampled + counts.outside;
        // This kernel may skip some more, and nothing is known yet of the last ones.
        assert!(counts.missed >= 7 && (44..=47).contains(&(seen + counts.missed)), "{counts:?}");
        let ledger = port.classes.ledger(0);
        assert_eq!(ledger.waiting, 0, "{ledger:?}");
    });
}

#[test]
fn packets_of_a_cut_buffer_wait_no_longer() {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
        return;
    }
    in_namespace(|| {
        let mut port = Port::new(EpochSize::MAX);
        command("tc qdisc replace dev wan root handle fb: htb default 2");
        command("tc class add dev wan parent fb: classid fb:1 htb rate 1gbit quantum 60000");
        command(
            "tc class add dev wan parent fb: classid fb:2 htb rate 8bit ceil 8bit quantum 1514",
        );
        command("tc qdisc add dev wan parent fb:1 tbf rate 80mbit burst 2000 limit 1000000");
        port.classes.beat();
        // Packets of no bundle: some stay, so that the qdisc is never empty, which would correct the counts.
        let mut others = vec![0; 1000];
        others[12..14].copy_from_slice(&[0x88, 0xb5]);
        // SAFETY: a string that ends.
        let mut outside = socket(unsafe { libc::if_nametoindex(c"wan".as_ptr()) }, 0, 0);
        (0..5).for_each(|_| outside.write_all(&[&[0; 10], &others[..]].concat()).unwrap());
        let frame = transport(false, 17, 8000);
        for _ in 0..10 {
            port.send(&frame, 0, 1000);
        }
        let place = 0_u32.to_ne_bytes();
        let counted = || {
            let backlog = port.classes.backlogs.lookup(&place, MapFlags::ANY).unwrap().unwrap();
            let word = |at: usize| u32::from_ne_bytes(backlog[4 * at..][..4].try_into().unwrap());
            (word(0), word(0).wrapping_sub(word(1)))
        };
        let end = Instant::now() + Duration::from_secs(5);
        while counted().1 > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let (came, waits) = counted();
        assert!(came > 80_000 && waits == 0, "{waits} of {came} bytes");
    });
}

#[test]
fn limit_forgets_what_left_unseen() {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
        return;
    }
    in_namespace(|| {
        let mut port = Port::new(EpochSize::MAX);
        command("tc qdisc replace dev wan root handle fb: htb");
        command("tc class add dev wan parent fb: classid fb:1 htb rate 1gbit quantum 1514");
        let frame = transport(false, 17, 100);
        port.classes.set_limit(0, Some(ByteCount::new(10 * frame.len() as u64)));
        let refused = |port: &mut Port, count: usize| {
            port.classes.beat();
            (0..count).filter(|_| port.try_send(&frame, 0, 0, 0).is_err()).count()
        };
        assert_eq!(refused(&mut port, 100), 0, "each leaves before the next comes");
        port.classes._at_tracepoints = None;
        assert_eq!(refused(&mut port, 100), 0, "the qdisc is empty each time");
        // A frame takes 7 s; a few leave at once.
        command("tc class change dev wan parent fb: classid fb:1 htb rate 160bit quantum 1514");
        let admitted = 100 - refused(&mut port, 100);
        assert!((7..30).contains(&admitted), "{admitted}: two thirds of the limit wait");
        assert_eq!(port.classes.classified().unwrap().full, 0);
    });
}

#[test]
fn nonlinear_buffers_are_sampled_as_their_packets() {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
        return;
    }
    in_namespace(|| {
        let mut port = Port::new(EpochSize::from_log2(0).unwrap());
        let (mut bytes, mut packets, mut marks, mut buffers) = (0, 0, 0, 0);
        for (is_v6, protocol) in [(false, 6), (true, 6), (false, 17), (true, 17), (false, 50)] {
            for (data, gso_size) in SIZES.into_iter().filter(|(_, it)| *it == 0 || protocol != 50) {
                let mut bare = transport(is_v6, protocol, data);
                bare[15] |= if is_v6 { 0 } else { 3 };
                let mut frames = vec![bare.clone()];
                if gso_size == 0 {
                    frames.extend([tagged(&bare, false), tagged(&bare, true)]);
                }
                let becomes = expected(&bare, gso_size);
                let each = frames.iter().flat_map(|frame| LINEAR.map(|linear| (frame, linear)));
                for (frame, linear) in each {
                    port.send(frame, linear.min(frame.len()), gso_size);
                    let mut ahead = 0;
                    let expected = becomes.iter().map(|(marks, len)| {
                        (bytes, packets, ahead) = (bytes + len, packets + 1, ahead + len);
                        (*marks, bytes, packets, ahead - len)
                    });
                    let expected: Vec<Seen> = expected.collect();
                    buffers += 1;
                    marks += if is_v6 { 0 } else { expected.len() as u64 };
                    let what = format!("v6: {is_v6}, protocol {protocol}, {data} by {gso_size}");
                    let tags = frame.len() - bare.len();
                    assert_eq!(
                        port.seen(),
                        expected,
                        "{what}, {tags} of tags, {linear} in a piece"
                    );
                }
            }
        }
        let mut to_a_group = transport(false, 17, 100);
        to_a_group[0] = 1;
        port.send(&to_a_group, 60, 0);
        assert_eq!(port.seen(), []);
        let departed = port.classes.departed().unwrap();
        assert_eq!((departed.sampled, departed.unread, departed.missed), (buffers, 1, 0));
        let counted = port.classes.sampler.counters(BundleId(5)).unwrap().unwrap();
        assert_eq!((counted.bytes.as_u64(), counted.packets, counted.ce), (bytes, packets, marks));
        assert_eq!(port.classes.ledger(0).left, buffers);
    });
}

/// A device without Ethernet headers that takes super-packets, as long as the file is open.
fn open_tun() -> (File, u32) {
    let device = File::options().read(true).write(true).open("/dev/net/tun").unwrap();
    // struct ifreq: the name, and the flags IFF_TUN and IFF_NO_PI.
    let mut request = [0_u8; 40];
    request[..4].copy_from_slice(b"tun0");
    request[16..18].copy_from_slice(&0x1001_u16.to_ne_bytes());
    // Checksums, TCP and UDP of both IP versions: TUN_F_CSUM, _TSO4, _TSO6, _USO4 and _USO6.
    let offloads = 1 | 2 | 4 | 0x20 | 0x40;
    let fd = device.as_raw_fd();
    // SAFETY: the request is as long as the kernel reads and writes.
    assert_eq!(unsafe { libc::ioctl(fd, libc::TUNSETIFF as _, request.as_mut_ptr()) }, 0);
    // SAFETY: a number.
    assert_eq!(unsafe { libc::ioctl(fd, libc::TUNSETOFFLOAD as _, offloads) }, 0);
    command("ip link set tun0 mtu 9000 up");
    // SAFETY: a string that ends, and numbers.
    (device, unsafe { libc::if_nametoindex(c"tun0".as_ptr()) })
}

#[test]
fn bare_packets_are_sampled_as_in_frames() {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
        return;
    }
    in_namespace(|| {
        let (_tun, wan) = open_tun();
        for (is_v6, protocol, kind) in
            [(false, 6, 0x800), (true, 6, 0x86dd), (false, 17, 0x800), (true, 17, 0x86dd)]
        {
            let routed = ClassesOptions { lan: None, is_bare: true, wan, ..BRIDGED };
            let mut port = Port::at(routed, EpochSize::from_log2(0).unwrap(), kind);
            let (mut bytes, mut packets) = (0, 0);
            for (data, gso_size) in SIZES {
                let frame = transport(is_v6, protocol, data);
                port.send_behind(&frame, 14, 60.min(frame.len() - 14), gso_size);
                let mut ahead = 0;
                let expected: Vec<Seen> = expected(&frame, gso_size)
                    .into_iter()
                    .map(|(marks, len)| {
                        (bytes, packets, ahead) = (bytes + len, packets + 1, ahead + len);
                        (marks, bytes, packets, ahead - len)
                    })
                    .collect();
                assert_eq!(port.seen(), expected, "{kind:#x}, {protocol}, {data} by {gso_size}");
            }
            let departed = port.classes.departed().unwrap();
            assert_eq!((departed.sampled, departed.unread), (SIZES.len() as u64, 0));
        }
    });
}

#[test]
#[ignore = "a measurement, not a claim"]
fn cost_of_a_packet_that_leaves() {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
        return;
    }
    in_namespace(|| {
        // SAFETY: a number.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        assert!(fd >= 0, "{}", Error::last_os_error());
        // SAFETY: the descriptor has no other owner. The kernel takes the time while it is open.
        let _stats = unsafe { File::from_raw_fd(fd) };
        let mut port = Port::new(EpochSize::from_log2(10).unwrap());
        let trains = [("TCP", 6, 57_920, 1448), ("UDP", 17, 57_920, 1448)];
        let singles = [("TCP", 6, 1448, 0), ("UDP", 17, 1448, 0)];
        for (name, protocol, data, gso_size) in trains.into_iter().chain(singles) {
            let frame = transport(false, protocol, data);
            let (packets, buffers) = match gso_size {
                0 => (1, 10_000),
                size => (data / usize::from(size), 1000),
            };
            let mut costs = [0.0; 21].map(|_: f64| {
                let before = port.classes.departed().unwrap();
                for _ in 0..buffers {
                    port.send(&frame, 66.min(frame.len()), gso_size);
                }
                port.seen();
                let after = port.classes.departed().unwrap();
                let sampled = (after.sampled - before.sampled) as usize;
                (after.sampling_ns - before.sampling_ns) as f64 / (sampled * packets) as f64
            });
            costs.sort_by(f64::total_cmp);
            let [best, median] = [0, costs.len() / 2].map(|at| costs[at]);
            println!("{name}, {packets} packets: {median:.1} ns each, the best {best:.1}");
        }
    });
}
