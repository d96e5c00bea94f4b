use ipnet::IpNet;

use super::*;
use crate::port::tests::{on_a_veth_pair, run};
use crate::port::{Direction, PacketPort, Port};

const BUNDLE: BundleId = BundleId(7);
const TCP: u8 = 6;
const UDP: u8 = 17;

fn prefixes(texts: &str) -> Vec<IpNet> {
    texts.split(' ').map(|text| text.parse().unwrap()).collect()
}

/// A bundle in which each packet is a boundary.
fn watched(source: &str) -> SamplerBundle {
    SamplerBundle {
        source: prefixes(source),
        destination: prefixes("10.2.0.0/16 fd00:2::/32"),
        key: SamplingKey([9; 16]),
        epoch_size: EpochSize::from_log2(0).unwrap(),
        version: BlockVersion::V2,
    }
}

fn counts() -> Counts {
    let mut counts = Counts::default();
    counts.change(&[], vec![(BUNDLE, watched("10.1.0.0/16 fd00:1::/32"))]).unwrap();
    counts
}

/// An IPv4 frame from this host to 10.2.0.1.
fn v4(source: [u8; 4], id: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&id.to_be_bytes());
    frame.extend_from_slice(&[0x40, 0, 64, protocol, 0, 0]);
    frame.extend_from_slice(&source);
    frame.extend_from_slice(&[10, 2, 0, 1]);
    frame.extend_from_slice(payload);
    frame
}

/// A TCP segment without options.
fn tcp(sequence: u32, data: &[u8]) -> Vec<u8> {
    let mut segment = vec![0, 80, 0x9c, 0x40];
    segment.extend_from_slice(&sequence.to_be_bytes());
    segment.extend_from_slice(&[0, 0, 0, 9, 0x50, 0x10, 1, 2, 0, 0, 0, 0]);
    segment.extend_from_slice(data);
    segment
}

fn taken(counts: &mut Counts, frame: &[u8], gso: Option<Gso>) -> Vec<u64> {
    let mut hashes = Vec::new();
    let packet = Received { frame, at: Timestamp::from_nanos(5), gso };
    counts.count(&packet, &mut |boundary| hashes.push(boundary.report.hash));
    hashes
}

fn of(counts: &Counts) -> (u64, u64) {
    let BundleCounters { bytes, packets, .. } = counts.bundles[&BUNDLE].counters;
    (packets, bytes.as_u64())
}

#[test]
fn merged_packets_count_as_on_the_wire() {
    let data = [3; 2500];
    let gso = Some(Gso { size: 1000, protocol: TCP });
    // First with consecutive numbers, then without numbers.
    for step in [1, 0] {
        let (mut merged, mut single) = (counts(), counts());
        let first = 40 * step;
        let whole = v4([10, 1, 0, 1], first, TCP, &tcp(100, &data));
        let hashes = taken(&mut merged, &whole, gso);
        let each = data.chunks(1000).zip(0..).flat_map(|(data, at)| {
            let segment = tcp(100 + 1000 * u32::from(at), data);
            taken(&mut single, &v4([10, 1, 0, 1], first + step * at, TCP, &segment), None)
        });
        assert_eq!(hashes, each.collect::<Vec<_>>());
        assert_eq!(hashes.len(), 3);
        assert_eq!(of(&merged), of(&single));
        assert_eq!(of(&merged), (3, 2500 + 3 * 54));
    }
}

#[test]
fn packets_are_sampled_by_their_original_size() {
    let mut counts = counts();
    let frame = |number: u16| v4([10, 1, 0, 1], 3, UDP, &[number.to_be_bytes(); 50].concat());
    let odd = (0..).map(frame).find(|frame| hash(frame) & 1 == 1).unwrap();
    // `taken` stamps all packets with 5 ns.
    let mut is_boundary = |set_at_ns, log2| {
        let size = EpochSize::from_log2(log2).unwrap();
        let bundle = counts.bundles.get_mut(&BUNDLE).unwrap();
        bundle.set_epoch_size(Timestamp::from_nanos(set_at_ns), size);
        !taken(&mut counts, &odd, None).is_empty()
    };
    assert!(is_boundary(6, 1), "read after a notice that came later");
    assert!(!is_boundary(7, 0), "the sendbox knows that it was not sampled");
    assert!(!is_boundary(2, 1));
    assert!(is_boundary(3, 0));
}

#[test]
fn unknown_super_packets_are_counted_unsampled() {
    let gso = Some(Gso { size: 1000, protocol: TCP });
    let tunnelled = v4([10, 1, 0, 1], 3, UDP, &[0; 2500]);
    let mut counts = counts();
    assert!(taken(&mut counts, &tunnelled, gso).is_empty());
    assert_eq!(of(&counts), (3, 2534));
}

#[test]
fn messages_and_other_traffic_are_left_out() {
    let mut counts = counts();
    let to_port = |port: u16| {
        let mut datagram = vec![0; 100];
        datagram[2..4].copy_from_slice(&port.to_be_bytes());
        v4([10, 1, 0, 1], 3, UDP, &datagram)
    };
    assert!(taken(&mut counts, &v4([10, 9, 0, 1], 3, UDP, &[0; 100]), None).is_empty());
    let mut discovery = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0];
    discovery.extend_from_slice(&[0, 24, 58, 255]);
    discovery.extend_from_slice(&"fd00:1::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    discovery.extend_from_slice(&"fd00:2::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    discovery.extend_from_slice(&[135; 24]);
    assert!(taken(&mut counts, &discovery, None).is_empty());
    discovery[54] = 128;
    assert_eq!(taken(&mut counts, &discovery, None).len(), 1);
    let end = MessageEnd { address: [10, 2, 0, 1].into(), port: 61476, is_source: false };
    counts.messages.insert(end);
    assert!(taken(&mut counts, &to_port(61476), None).is_empty());
    assert_eq!(taken(&mut counts, &to_port(61477), None).len(), 1);
    // A fragment has no ports that both boxes could see.
    let mut fragment = to_port(61476);
    fragment[20] |= 0x20;
    assert_eq!(taken(&mut counts, &fragment, None).len(), 1);
    counts.bundles.get_mut(&BUNDLE).unwrap().senders.insert([10, 1, 0, 9].into());
    assert!(taken(&mut counts, &v4([10, 1, 0, 9], 3, UDP, &[0; 100]), None).is_empty());
    assert_eq!(taken(&mut counts, &to_port(5), None).len(), 1);
    counts.bundles.get_mut(&BUNDLE).unwrap().left_out.insert([10, 2, 0, 1].into());
    assert!(taken(&mut counts, &to_port(5), None).is_empty());
}

/// Boundaries that come within a moment.
fn await_hashes(sampler: &mut PacketSampler, count: usize) -> Vec<u64> {
    let mut hashes = Vec::new();
    for _ in 0..200 {
        sampler.consume(&mut |boundary| hashes.push(boundary.report.hash)).unwrap();
        if hashes.len() >= count {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    hashes
}

fn hash(frame: &[u8]) -> u64 {
    SampleBlock::from_frame(BlockVersion::V2, frame).unwrap().hash(&SamplingKey([9; 16]))
}

#[test]
fn device_made_again_is_read_again() {
    on_a_veth_pair(|| {
        let mut sampler = PacketSampler::open("right").unwrap();
        sampler.change(&[], vec![(BUNDLE, watched("10.1.0.0/16"))]).unwrap();
        let frame = v4([10, 1, 0, 1], 3, UDP, &[0; 100]);
        let send = || assert!(PacketPort::open("left", Direction::Transmit).unwrap().send(&frame));
        send();
        assert_eq!(await_hashes(&mut sampler, 1), [hash(&frame)]);
        run("ip link del left");
        assert!(await_hashes(&mut sampler, 1).is_empty());
        run("ip link add left type veth peer name right");
        run("ip link set left up");
        run("ip link set right up");
        sampler.attach_anew("right", crate::port::ifindex("right").unwrap()).unwrap();
        send();
        assert_eq!(await_hashes(&mut sampler, 1), [hash(&frame)]);
        assert_eq!((sampler.counters(BUNDLE).packets, sampler.lost().1), (2, 0));
    });
}

#[test]
fn kernel_filters_by_source_prefix() {
    on_a_veth_pair(|| {
        let mut sampler = PacketSampler::open("right").unwrap();
        let sources = "10.1.0.0/16 192.0.2.7/32 fd00:1::/33";
        sampler.change(&[], vec![(BUNDLE, watched(sources))]).unwrap();
        let mut left = PacketPort::open("left", Direction::Transmit).unwrap();
        let from = |source| v4(source, 3, UDP, &[0; 100]);
        let mut group = from([10, 1, 0, 1]);
        group[0] = 1;
        let tagged = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
        let inside = [from([10, 1, 255, 1]), from([192, 0, 2, 7])];
        for frame in [&inside[0], &from([10, 2, 0, 1]), &group, &from([192, 0, 2, 6]), &inside[1]] {
            assert!(left.send(frame));
        }
        // The kernel removes a single tag. If there are two, the inner one stays in the frame.
        for frame in [tagged(&inside[0]), tagged(&tagged(&inside[1]))] {
            assert!(left.send(&frame));
        }
        let expected = [0, 1, 0, 1].map(|at: usize| hash(&inside[at]));
        assert_eq!(await_hashes(&mut sampler, 4), expected);
        let mut passed = 0;
        let mut socket = PacketSocket::open("right").unwrap();
        socket.set_filter(&PacketFilter::of(&prefixes(sources).into_iter().collect())).unwrap();
        for source in [[10, 1, 0, 1], [10, 2, 0, 1], [192, 0, 2, 8]] {
            assert!(left.send(&from(source)));
        }
        std::thread::sleep(Duration::from_millis(50));
        socket.receive(ROUND, &mut |_| passed += 1).unwrap();
        assert_eq!(passed, 1);
        // More prefixes than fit into a filter.
        let many = (0..2000_u32).map(|at| IpNet::new(std::net::Ipv4Addr::from(at).into(), 32));
        let many: BTreeSet<IpNet> = many.map(Result::unwrap).collect();
        socket.set_filter(&PacketFilter::of(&many)).unwrap();
        assert!(left.send(&from([10, 2, 0, 1])));
        std::thread::sleep(Duration::from_millis(50));
        socket.receive(ROUND, &mut |_| passed += 1).unwrap();
        assert_eq!(passed, 2);
    });
}

#[test]
fn devices_without_ethernet_are_read_alike() {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    if forebay_skips::skip_without(forebay_skips::Need::Tun) {
        return;
    }
    on_a_veth_pair(|| {
        const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
        const IFF_TUN: u16 = 1;
        const IFF_NO_PI: u16 = 0x1000;
        let mut tun = std::fs::File::options().read(true).write(true).open("/dev/net/tun").unwrap();
        // struct ifreq: a name and flags.
        let mut request = [0_u8; 40];
        request[..4].copy_from_slice(b"tun0");
        request[16..18].copy_from_slice(&(IFF_TUN | IFF_NO_PI).to_ne_bytes());
        // SAFETY: the kernel reads and writes the structure, which is as long as its own.
        let status = unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETIFF as _, request.as_mut_ptr()) };
        assert_eq!(status, 0);
        run("ip link set tun0 up");
        let mut sampler = PacketSampler::open("tun0").unwrap();
        sampler.change(&[], vec![(BUNDLE, watched("10.1.0.0/16"))]).unwrap();
        let frame = v4([10, 1, 0, 1], 3, UDP, &[0; 100]);
        tun.write_all(&frame[ETHERNET_HEADER..]).unwrap();
        assert_eq!(await_hashes(&mut sampler, 1), [hash(&frame)]);
        assert_eq!(sampler.counters(BUNDLE).bytes.as_u64(), frame.len() as u64);
    });
}
