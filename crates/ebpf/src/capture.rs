//! The capture program: hands frames to AF_XDP sockets.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::units::Timestamp;
use ipnet::IpNet;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, libbpf_sys};

use crate::attach::{XdpLink, XdpMode};
use crate::key::{address_key, mac_key, prefix_key};
use crate::mapped::MappedWords;
use crate::program::KeySet;
use crate::skel::{Plain, capture as skel};
use crate::watched::MessageEnd;
use crate::{Error, program};

/// Bytes in front of a captured frame in the socket's memory that say when it arrived: nanoseconds of
/// `CLOCK_MONOTONIC`, a `u64` in the machine's byte order; zero where the driver has no room for it.
pub const STAMP_LEN: usize = size_of::<u64>();

/// Stands for frames with a tag of IEEE 802.1Q that names no VLAN, but only a priority.
pub const NO_VLAN: u16 = 4095;

/// Numbers that a VLAN can have.
const VLANS: usize = 4096;

/// Which frames are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureOptions {
    /// Every frame, with any contents: for the link emulator, which has no kernel path behind it.
    /// A queue without a socket passes its frames to the kernel, and so does a driver that has no room for the
    /// time of their arrival ([`STAMP_LEN`]).
    All,
    /// IP packets towards the prefixes given to [`Capture::add_prefix`], as long as
    /// [`Capture::beat`] was called less than `stale_after` ago. All else passes to the kernel.
    Bundles {
        /// Age of the last beat from which everything passes; above zero.
        stale_after: Duration,
    },
}

/// Outcomes of the frames that the program saw, since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounters {
    /// Handed to a socket, whose ring may still have been full.
    pub redirected: u64,
    /// Passed: no IP packet to one station, such as ARP, three VLAN tags, multicast and broadcast.
    pub not_ip: u64,
    /// Passed: IP headers that are cut off or contradict themselves.
    pub malformed: u64,
    /// Passed: IPv6 neighbour discovery.
    pub discovery: u64,
    /// Passed: to one of the box's own addresses, and the boxes' messages.
    pub own: u64,
    /// Passed: towards a bundle, in a frame to one of the box's own Ethernet addresses. The kernel
    /// routes it.
    pub own_mac: u64,
    /// Passed: outside every bundle's prefixes.
    pub outside: u64,
    /// Passed: towards a bundle, in a frame longer than [`Capture::set_longest_frame`] allows.
    pub long: u64,
    /// Passed: the process has not beaten for too long.
    pub stale: u64,
    /// Passed: no socket for the receive queue.
    pub no_socket: u64,
    /// Passed: all frames are wanted, and the driver has no room for the time of arrival.
    pub no_stamp: u64,
    /// Passed: towards a bundle, in a VLAN that [`Capture::set_kept_vlans`] does not keep.
    pub vlan: u64,
    /// Passed: MPLS, with any contents.
    pub mpls: u64,
    /// Passed: PPPoE, with any contents.
    pub pppoe: u64,
}

/// The attached capture program of one device. Dropping it detaches.
#[derive(Debug)]
pub struct Capture {
    sockets: MapHandle,
    destinations: MapHandle,
    own: KeySet,
    messages: KeySet,
    own_macs: KeySet,
    kept_vlans: MappedWords,
    fates: MapHandle,
    heartbeat: MappedWords,
    longest_frame: MappedWords,
    program: OwnedFd,
    link: Option<XdpLink>,
}

impl Capture {
    /// Loads the program and attaches it to a device of the current network namespace. `in_pieces`: a
    /// frame may be longer than a piece of the driver's memory, about 3,500 bytes; needs Linux 5.18, and
    /// 6.6 for sockets that take such frames.
    ///
    /// Until [`Capture::set_socket`], and in bundle mode until [`Capture::beat`], all frames pass
    /// to the kernel.
    pub fn attach(ifindex: u32, options: CaptureOptions, in_pieces: bool) -> Result<Self, Error> {
        let mut capture = Self::load(options, in_pieces)?;
        capture.link = Some(XdpLink::attach(capture.program.as_fd(), ifindex)?);
        Ok(capture)
    }

    /// Attaches the program to another device, after the one before was deleted: counters, settings and
    /// prefixes stay, the socket has to be set again. Needs no more than bpf(2), with `CAP_BPF`.
    pub fn attach_anew(&mut self, device: &str, ifindex: u32) -> Result<(), Error> {
        self.link = None;
        self.link = Some(XdpLink::attach_anew(self.program.as_fd(), device, ifindex)?);
        Ok(())
    }

    fn load(options: CaptureOptions, in_pieces: bool) -> Result<Self, Error> {
        program::quiet_libbpf();
        let mut storage = MaybeUninit::uninit();
        let mut open = skel::CaptureSkelBuilder::default()
            .open(&mut storage)
            .map_err(Error::load("capture"))?;
        if in_pieces {
            open.progs.capture.set_flags(libbpf_sys::BPF_F_XDP_HAS_FRAGS);
        }
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.in_pieces = in_pieces;
            match options {
                CaptureOptions::All => rodata.capture_all = true,
                CaptureOptions::Bundles { stale_after } => {
                    rodata.stale_after_ns = stale_after.as_nanos().try_into().unwrap_or(u64::MAX);
                }
            }
        }
        let loaded = open.load().map_err(Error::load("capture"))?;
        let mapped = |map, fd, words| {
            MappedWords::new(fd, words).map_err(|source: std::io::Error| Error::Map { map, source })
        };
        let capture = Self {
            heartbeat: mapped("heartbeat", loaded.maps.heartbeat.as_fd(), 1)?,
            longest_frame: mapped("longest_frame", loaded.maps.longest_frame.as_fd(), 1)?,
            kept_vlans: mapped("kept_vlans", loaded.maps.kept_vlans.as_fd(), VLANS / 64)?,
            own_macs: KeySet::of("own_macs", &loaded.maps.own_macs)?,
            sockets: program::handle("sockets", &loaded.maps.sockets)?,
            destinations: program::handle("destinations", &loaded.maps.destinations)?,
            own: KeySet::of("own", &loaded.maps.own)?,
            messages: KeySet::of("messages", &loaded.maps.messages)?,
            fates: program::handle("fates", &loaded.maps.fates)?,
            program: program::descriptor("capture", loaded.progs.capture.as_fd())?,
            link: None,
        };
        capture.set_kept_vlans(None);
        Ok(capture)
    }

    /// Where on the receive path the program runs. In generic mode frames that the kernel has
    /// merged would be handed over as one: GRO must be off on the device.
    pub fn mode(&self) -> Option<XdpMode> {
        self.link.as_ref().map(|link| link.mode)
    }

    /// Gives the frames of a receive queue to an AF_XDP socket that is bound to this queue.
    /// The kernel forgets the socket when it is closed.
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        self.sockets
            .update(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes(), MapFlags::ANY)
            .map_err(Error::map("sockets"))
    }

    /// Captures packets towards `prefix` from now on (bundle mode).
    pub fn add_prefix(&self, prefix: IpNet) -> Result<(), Error> {
        self.destinations
            .update(prefix_key(prefix)?.as_bytes(), &[1], MapFlags::ANY)
            .map_err(Error::map("destinations"))
    }

    /// Undoes [`Capture::add_prefix`].
    pub fn remove_prefix(&self, prefix: IpNet) -> Result<(), Error> {
        self.destinations.delete(prefix_key(prefix)?.as_bytes()).map_err(Error::map("destinations"))
    }

    /// Lets packets to these addresses pass from now on, the box's own, though a prefix may hold them;
    /// addresses given before no longer count. If there are more than
    /// [`MAX_OWN_ADDRESSES`](crate::MAX_OWN_ADDRESSES), sets only as many and returns an error.
    pub fn set_own_addresses(&mut self, addresses: &BTreeSet<IpAddr>) -> Result<(), Error> {
        let key = |address: &IpAddr| address_key(*address).as_bytes().to_vec();
        self.own.set(addresses.iter().map(key).collect())
    }

    /// Lets messages of the boxes pass from now on: UDP packets with these ends; ends given before no longer
    /// count.
    pub fn set_messages(&mut self, ends: &BTreeSet<MessageEnd>) -> Result<(), Error> {
        self.messages.set(ends.iter().map(MessageEnd::key).collect())
    }

    /// Lets frames to these Ethernet addresses of the box's own devices pass from now on; addresses given
    /// before no longer count. If there are more than 1024, sets only as many and returns an error.
    pub fn set_own_macs(&mut self, macs: &BTreeSet<[u8; 6]>) -> Result<(), Error> {
        self.own_macs.set(macs.iter().map(|mac| mac_key(*mac).as_bytes().to_vec()).collect())
    }

    /// Lets frames pass from now on whose VLAN is not in `kept`, the VLANs whose frames a bridge sends on. 0
    /// stands for frames without a tag of IEEE 802.1Q, and [`NO_VLAN`] for frames with a tag of no VLAN.
    /// `None`: no frame passes for its VLAN.
    pub fn set_kept_vlans(&self, kept: Option<&BTreeSet<u16>>) {
        for (word, first) in self.kept_vlans.words().iter().zip((0..VLANS as u16).step_by(64)) {
            let bit = |vlan: u16| kept.is_none_or(|kept| kept.contains(&vlan));
            let bits = (0..64).filter(|at| bit(first + at)).map(|at| 1_u64 << at).sum();
            // Relaxed: frames of one instant may go either way.
            word.store(bits, Ordering::Relaxed);
        }
    }

    /// Lets frames of more than `bytes` pass from now on (Ethernet header to payload, without FCS), since
    /// neither the socket nor the process could take them. Without it none is too long.
    pub fn set_longest_frame(&self, bytes: usize) {
        self.longest_frame.words()[0].store(bytes as u64, Ordering::Relaxed);
    }

    /// Says that the process makes progress. Call it after the port was read, in each round of the packet
    /// loop and at least every few tens of milliseconds. Never call it from a timer of its own, or while
    /// rounds have come late. Then a loop that hangs, no longer empties its ring, or gets too little
    /// processor time loses the traffic to the kernel.
    pub fn beat(&self) {
        // Relaxed: the word carries no other data with it.
        self.heartbeat.words()[0].store(monotonic_now().as_nanos(), Ordering::Relaxed);
    }

    /// Lets all traffic pass to the kernel from now on: at a clean stop once the queues are empty,
    /// and while the daemon gets nothing out.
    pub fn stop_beating(&self) {
        self.heartbeat.words()[0].store(0, Ordering::Relaxed);
    }

    /// Outcomes of the frames so far, over all CPUs.
    pub fn counters(&self) -> Result<CaptureCounters, Error> {
        let count = |fate: u32| program::per_cpu_sum("fates", &self.fates, fate);
        // The order of `enum fate`.
        Ok(CaptureCounters {
            redirected: count(0)?,
            not_ip: count(1)?,
            malformed: count(2)?,
            discovery: count(3)?,
            own: count(4)?,
            own_mac: count(5)?,
            outside: count(6)?,
            long: count(7)?,
            stale: count(8)?,
            no_socket: count(9)?,
            no_stamp: count(10)?,
            vlan: count(11)?,
            mpls: count(12)?,
            pppoe: count(13)?,
        })
    }
}

/// Now on the clock of `bpf_ktime_get_ns`.
pub(crate) fn monotonic_now() -> Timestamp {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux and `time` is ours to write.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    Timestamp::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use forebay_skips::{Need, skip_without};

    use super::*;
    use crate::MAX_OWN_ADDRESSES;
    use crate::program::tests::{loaded, run};
    use crate::sampler::tests::{between, message_end};

    /// Verdict that hands a frame to the kernel (enum xdp_action, include/uapi/linux/bpf.h).
    const XDP_PASS: u32 = 2;
    /// Longer than a loaded machine lets a test wait between a beat and its packet.
    const STALE_AFTER: Duration = Duration::from_secs(2);

    fn capture(options: CaptureOptions) -> Option<Capture> {
        loaded(Capture::load(options, false))
    }

    fn pass(capture: &Capture, frame: &[u8]) {
        assert_eq!(run(capture.program.as_fd(), frame, 1).action, XDP_PASS);
    }

    /// An IPv4 frame with a payload of 8 bytes.
    fn v4(destination: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 8];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&28_u16.to_be_bytes());
        frame[23] = 17;
        frame[30..34].copy_from_slice(&destination);
        frame
    }

    /// An IPv6 frame of a protocol with a payload of 8 bytes, which begins with `first`.
    fn v6(destination: &str, protocol: u8, first: u8) -> Vec<u8> {
        let destination: std::net::Ipv6Addr = destination.parse().unwrap();
        let mut frame = vec![0; 14 + 40 + 8];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[14] = 0x60;
        frame[18..20].copy_from_slice(&8_u16.to_be_bytes());
        frame[20] = protocol;
        frame[38..54].copy_from_slice(&destination.octets());
        frame[54] = first;
        frame
    }

    /// An IPv4 frame behind `tags` tags, the outermost of VLAN 5.
    fn tagged(destination: [u8; 4], tags: usize) -> Vec<u8> {
        let mut frame = v4(destination);
        for vlan in (0..tags).rev() {
            frame.splice(12..12, [0x81, 0, 0, 5 + vlan as u8]);
        }
        frame
    }

    #[test]
    fn frames_of_vlans_unknown_to_the_bridge_pass() {
        let Some(capture) = capture(CaptureOptions::Bundles { stale_after: STALE_AFTER }) else {
            return;
        };
        capture.add_prefix("10.2.0.0/16".parse().unwrap()).unwrap();
        capture.beat();
        let [bare, of_five] = [0, 1].map(|tags| tagged([10, 2, 0, 1], tags));
        let mut of_provider = of_five.clone();
        of_provider[12..14].copy_from_slice(&[0x88, 0xa8]);
        let mut of_none = of_five.clone();
        of_none[15] = 0;
        let taken = |kept: Option<&[u16]>| {
            let kept = kept.map(|kept| kept.iter().copied().collect());
            capture.set_kept_vlans(kept.as_ref());
            [&bare, &of_provider, &of_five, &of_none].map(|frame| {
                let before = capture.counters().unwrap();
                pass(&capture, frame);
                let after = capture.counters().unwrap();
                let (taken, passed) = (after.no_socket, after.vlan);
                assert_eq!(taken + passed, before.no_socket + before.vlan + 1);
                taken > before.no_socket
            })
        };
        assert_eq!(taken(None), [true; 4]);
        assert_eq!(taken(Some(&[0, 6])), [true, true, false, false]);
        assert_eq!(taken(Some(&[5])), [false, false, true, false]);
        assert_eq!(taken(Some(&[NO_VLAN])), [false, false, false, true]);
        assert_eq!(taken(Some(&[])), [false; 4]);
    }

    #[test]
    fn only_packets_towards_a_bundle_are_taken() {
        let Some(mut capture) = capture(CaptureOptions::Bundles { stale_after: STALE_AFTER })
        else {
            return;
        };
        for prefix in ["10.2.0.0/16", "2001:db8::/32"] {
            capture.add_prefix(prefix.parse().unwrap()).unwrap();
        }
        let mut own: BTreeSet<IpAddr> =
            ["10.2.0.9", "2001:db8::9"].map(|own| own.parse().unwrap()).into();
        own.insert("10.2.0.1".parse().unwrap());
        capture.set_own_addresses(&own).unwrap();
        own.remove(&"10.2.0.1".parse().unwrap());
        capture.set_own_addresses(&own).unwrap();
        capture.beat();
        let [one_tag, two_tags, three_tags] = [1, 2, 3].map(|tags| tagged([10, 2, 0, 1], tags));
        let [mut mpls, mut pppoe] = [(); 2].map(|()| one_tag.clone());
        mpls[16..18].copy_from_slice(&[0x88, 0x47]);
        pppoe[16..18].copy_from_slice(&[0x88, 0x64]);
        let mut arp = v4([10, 2, 0, 1]);
        arp[13] = 6;
        let mut multicast = v4([10, 2, 0, 1]);
        multicast[0] = 1;
        let mut cut_off = v4([10, 2, 0, 1]);
        cut_off.truncate(40);
        let frames = [
            v4([10, 2, 0, 1]),
            v4([10, 2, 255, 255]),
            v6("2001:db8::1", 17, 0),
            v6("2001:db8::1", 58, 128), // echo request
            v4([10, 2, 0, 9]),
            v6("2001:db8::9", 17, 0),
            v4([10, 3, 0, 1]),
            v6("2001:db9::1", 17, 0),
            v6("::ffff:10.2.0.1", 17, 0),
            v6("2001:db8::1", 58, 135), // neighbour solicitation
            one_tag,
            two_tags,
            three_tags,
            mpls,
            pppoe,
            arp,
            multicast,
            cut_off,
        ];
        for frame in &frames {
            pass(&capture, frame);
        }
        let expected = CaptureCounters {
            // The program takes these frames, but no socket receives them.
            no_socket: 6,
            own: 2,
            outside: 3,
            discovery: 1,
            not_ip: 3,
            mpls: 1,
            pppoe: 1,
            malformed: 1,
            ..CaptureCounters::default()
        };
        assert_eq!(capture.counters().unwrap(), expected);
        capture.remove_prefix("10.2.0.0/16".parse().unwrap()).unwrap();
        pass(&capture, &frames[0]);
        assert_eq!(capture.counters().unwrap(), CaptureCounters { outside: 4, ..expected });
    }

    #[test]
    fn traffic_to_a_box_is_captured_except_messages() {
        let Some(mut capture) = capture(CaptureOptions::Bundles { stale_after: STALE_AFTER })
        else {
            return;
        };
        capture.add_prefix("10.2.0.0/16".parse().unwrap()).unwrap();
        let ends = [message_end(2, 61476, false), message_end(1, 61475, true)];
        capture.set_messages(&ends.into()).unwrap();
        capture.beat();
        for (frame, own, no_socket) in [
            (between(17, (1, 5000), (9, 61476)), 1, 0),
            (between(17, (9, 61475), (1, 5000)), 2, 0),
            (between(17, (1, 5000), (9, 443)), 2, 1),
            (between(6, (1, 5000), (9, 61476)), 2, 2),
        ] {
            pass(&capture, &frame);
            let counters = capture.counters().unwrap();
            assert_eq!((counters.own, counters.no_socket), (own, no_socket), "{frame:?}");
        }
    }

    #[test]
    fn excess_own_addresses_fail_and_space_is_reused() {
        let Some(mut capture) = capture(CaptureOptions::Bundles { stale_after: STALE_AFTER })
        else {
            return;
        };
        capture.add_prefix("10.0.0.0/8".parse().unwrap()).unwrap();
        capture.beat();
        let some = |first: u32, count: u32| -> BTreeSet<IpAddr> {
            (first..first + count).map(|address| IpAddr::from(address.to_be_bytes())).collect()
        };
        let full = MAX_OWN_ADDRESSES as u32;
        let base = u32::from_be_bytes([10, 2, 0, 0]);
        capture.set_own_addresses(&some(base, full)).unwrap();
        let error = capture.set_own_addresses(&some(base + 1, full + 1)).unwrap_err().to_string();
        assert_eq!(error, "BPF map own: 16385 entries: allowed are 16384");
        pass(&capture, &v4([10, 2, 0, 1]));
        assert_eq!(capture.counters().unwrap().own, 1);
        capture.set_own_addresses(&some(base + 2, full)).unwrap();
        // On an emulated machine, setting all addresses takes longer than the process may be silent.
        capture.beat();
        pass(&capture, &v4([10, 2, 0, 1]));
        pass(&capture, &v4([10, 2, 64, 1]));
        let counters = capture.counters().unwrap();
        assert_eq!((counters.own, counters.no_socket), (2, 1));
    }

    #[test]
    fn frames_to_own_addresses_pass_after_address_changes() {
        let Some(mut capture) = capture(CaptureOptions::Bundles { stale_after: STALE_AFTER })
        else {
            return;
        };
        capture.add_prefix("10.2.0.0/16".parse().unwrap()).unwrap();
        capture.beat();
        let to = |capture: &Capture, last: u8| {
            let mut frame = v4([10, 2, 0, 1]);
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, last]);
            pass(capture, &frame);
            let counters = capture.counters().unwrap();
            (counters.no_socket, counters.own_mac)
        };
        assert_eq!(to(&capture, 1), (1, 0), "taken, were there a socket");
        for (own, taken) in [([1, 2], [(1, 1), (1, 2), (2, 2)]), ([2, 3], [(3, 2), (3, 3), (3, 4)])]
        {
            let macs = own.map(|last| [2, 0, 0, 0, 0, last]).into();
            capture.set_own_macs(&macs).unwrap();
            assert_eq!([1, 2, 3].map(|last| to(&capture, last)), taken);
        }
        pass(&capture, &v4([10, 3, 0, 1]));
        assert_eq!(capture.counters().unwrap().outside, 1, "no packet of a bundle");
    }

    #[test]
    fn oversized_frames_pass_and_the_limit_can_change() {
        let Some(capture) = capture(CaptureOptions::Bundles { stale_after: STALE_AFTER }) else {
            return;
        };
        capture.add_prefix("10.2.0.0/16".parse().unwrap()).unwrap();
        capture.beat();
        let sent = |bytes: usize| {
            let mut frame = v4([10, 2, 0, 1]);
            frame.resize(bytes, 0);
            pass(&capture, &frame);
            let counters = capture.counters().unwrap();
            (counters.no_socket, counters.long)
        };
        assert_eq!(sent(1514), (1, 0));
        capture.set_longest_frame(1000);
        assert_eq!((sent(1000), sent(1001)), ((2, 0), (2, 1)));
        capture.set_longest_frame(1514);
        assert_eq!((sent(1514), sent(1515)), ((3, 1), (3, 2)));
    }

    #[test]
    fn frame_length_counts_all_fragments_of_the_buffer() {
        if skip_without(Need::FramesInPieces) {
            return;
        }
        let options = CaptureOptions::Bundles { stale_after: STALE_AFTER };
        let Some(capture) = loaded(Capture::load(options, true)) else { return };
        capture.add_prefix("10.2.0.0/16".parse().unwrap()).unwrap();
        capture.set_longest_frame(9018);
        capture.beat();
        let sent = |bytes: usize| {
            let mut frame = v4([10, 2, 0, 1]);
            frame.resize(bytes, 0);
            // The packet ends with the last piece: it is whole only for a program that sees all pieces.
            frame[16..18].copy_from_slice(&(bytes as u16 - 14).to_be_bytes());
            pass(&capture, &frame);
            let counters = capture.counters().unwrap();
            (counters.no_socket, counters.long, counters.malformed)
        };
        assert_eq!([sent(1514), sent(9018)], [(1, 0, 0), (2, 0, 0)]);
        assert_eq!(sent(9019), (2, 1, 0));
    }

    #[test]
    fn everything_passes_unless_the_process_beats() {
        let Some(capture) = capture(CaptureOptions::Bundles { stale_after: STALE_AFTER }) else {
            return;
        };
        capture.add_prefix("0.0.0.0/0".parse().unwrap()).unwrap();
        let stale = || {
            pass(&capture, &v4([10, 2, 0, 1]));
            capture.counters().unwrap().stale
        };
        assert_eq!(stale(), 1, "before the first beat");
        capture.beat();
        assert_eq!(stale(), 1);
        std::thread::sleep(STALE_AFTER);
        assert_eq!(stale(), 2, "too long after a beat");
        capture.beat();
        assert_eq!(stale(), 2);
        capture.stop_beating();
        assert_eq!(stale(), 3, "after a clean stop");
    }

    #[test]
    fn capture_all_takes_frames_of_every_kind() {
        let Some(capture) = capture(CaptureOptions::All) else { return };
        for frame in [v4([10, 2, 0, 1]), vec![0; 14], vec![0xff; 1514]] {
            pass(&capture, &frame);
        }
        let expected = CaptureCounters { no_socket: 3, ..CaptureCounters::default() };
        assert_eq!(capture.counters().unwrap(), expected);
    }

    #[test]
    #[ignore = "a measurement, not a claim"]
    fn cost_of_a_packet() {
        for options in
            [CaptureOptions::All, CaptureOptions::Bundles { stale_after: Duration::from_secs(60) }]
        {
            let Some(capture) = capture(options) else { return };
            capture.add_prefix("10.2.0.0/16".parse().unwrap()).unwrap();
            capture.beat();
            let frame = v4([10, 2, 0, 1]);
            let costs = (0..9).map(|_| run(capture.program.as_fd(), &frame, 100_000).duration_ns);
            println!("{options:?}: {} ns a packet, best of 9", costs.min().unwrap());
        }
    }
}
