//! The HTB qdisc at the root of a WAN port (rtnetlink(7), sch_htb.c): a class for each bundle, whose rate the sendbox sets.
//!
//! HTB and not TBF, which fills its bucket anew at every change of its rate (sch_tbf.c) and so sends more the more often
//! it is changed. Packets that are put into no class go past all of them, unshaped.
//!
//! Each leaf is a TBF all the same: of a rate that holds nothing back, for a super-packet that is longer than its bucket
//! is cut up into packets there ([`Leaf`]). HTB would send it whole, and the next packet as much later.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use forebay_core::units::{ByteCount, Rate};
use nix::sys::socket::SockProtocol;
use socket2::{SockFilter, Socket};

use crate::egress::{self, about};
use crate::netlink::{self, Commands, HEADER, attribute_of};

// include/uapi/linux/rtnetlink.h, pkt_sched.h
const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_NEWTCLASS: u16 = 40;
const RTM_DELTCLASS: u16 = 41;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_INGRESS_BLOCK: u16 = 13;
const TC_H_ROOT: u32 = 0xffff_ffff;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_DIRECT_QLEN: u16 = 5;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const TC_HTB_PROTOVER: u32 = 3;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TCA_FQ_CODEL_TARGET: u16 = 1;
const TCA_FQ_CODEL_INTERVAL: u16 = 3;
const TC_LINKLAYER_ETHERNET: u8 = 1;
/// `struct tcmsg`, behind the header of a message.
const TC_HEADER: usize = 20;
/// Handles from here on the kernel gives by itself (`qdisc_alloc_handle`).
const GIVEN_HANDLES: u32 = 0x8000_0000;
/// Nanoseconds of a tick, in which buckets are told (`PSCHED_SHIFT`).
const TICK_NS: f64 = 64.0;

/// What is as good as no rate: more than any port has.
const UNSHAPED: Rate = Rate::from_bits_per_sec(100_000_000_000);
/// What a leaf lets pass (bytes per second): so much that its bucket, which is counted in whole nanoseconds, loses none
/// for any super-packet (`psched_l2t_ns`). A bucket of one frame that packets do empty would have the second of two wait
/// for a timer, and hold back for ever a super-packet that was queued before the leaf began to cut them up.
const LEAF_BYTES_PER_S: u64 = 1 << 50;
/// Packets that go past all classes and wait for the device.
const DIRECT_PACKETS: u32 = 10_000;
/// Bytes that a class sends in its turn, where no others share its rate: no matter.
const QUANTUM: u32 = 1514;

/// The qdisc of one device. It stays where it is when this is dropped, and holds nothing back that is put into no class.
#[derive(Debug)]
pub struct Htb {
    kernel: Commands,
    ifindex: u32,
    handle: u32,
}

impl Htb {
    /// Puts the qdisc, called `handle` (a major number, shifted by 16), at the root of a device of the current network
    /// namespace, in place of what is there: the kernel's own, or one that was left behind.
    pub fn create(ifindex: u32, handle: u32) -> io::Result<Self> {
        let htb = Self { kernel: Commands::open()?, ifindex, handle };
        if is_left_behind(ifindex, handle)? {
            htb.remove()?;
        }
        // Somebody may have asked for none (`noqueue`), which is one.
        htb.make(netlink::NLM_F_REPLACE)?;
        Ok(htb)
    }

    /// Puts the qdisc, which was taken away, at the root again.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`]: somebody else has put one there, which stays; and what the kernel refuses it
    /// with.
    pub fn put(&self) -> io::Result<()> {
        self.make(0)
    }

    fn make(&self, flags: u16) -> io::Result<()> {
        // struct tc_htb_glob: version, rate2quantum, default class, debug, direct packets.
        let global = words(&[TC_HTB_PROTOVER, 10, 0, 0, 0]);
        let options = [
            attribute_of(TCA_HTB_INIT, &global),
            attribute_of(TCA_HTB_DIRECT_QLEN, &words(&[DIRECT_PACKETS])),
        ];
        let options = attribute_of(TCA_OPTIONS, &options.concat());
        let body = body_of(tcmsg(self.ifindex, self.handle, TC_H_ROOT), "htb", &options);
        self.kernel.command(RTM_NEWQDISC, flags | netlink::NLM_F_CREATE, &body)
    }

    /// From now on, what anybody else takes away of the qdisc.
    pub fn losses(&self) -> io::Result<Losses> {
        let told = netlink::subscribe(SockProtocol::NetlinkRoute, netlink::RTMGRP_TC)?;
        let told = Socket::from(told);
        told.attach_filter(&only(
            [RTM_DELQDISC, RTM_DELTCLASS],
            self.ifindex,
            self.kernel.port()?,
        ))?;
        Ok(Losses { told: told.into(), ifindex: self.ifindex, handle: self.handle })
    }

    /// Makes a class below the qdisc, or sets the rate of one that is there; `None`: as fast as the device takes
    /// packets.
    pub fn set_class(&self, class: u32, rate: Option<Rate>) -> io::Result<()> {
        let bytes_per_s = bytes_per_s(rate.unwrap_or(UNSHAPED));
        // Two frames, and half a millisecond of the rate, which is more than the kernel's timers are late.
        let burst = (2.0 * 1514.0_f64).max(bytes_per_s as f64 * 0.5e-3);
        let burst = Bucket { bytes_per_s, ticks: ticks(burst / bytes_per_s as f64) };
        let options = class_options(burst, burst, QUANTUM);
        self.change(RTM_NEWTCLASS, class, self.handle, "htb", &options)
    }

    /// Makes a class below another, or changes it, of whose rate it may use all that others below leave it: where they
    /// want more all have turns of `turn_bytes`. That is to be what a leaf lets through at once: of less each turn is one
    /// buffer, and a flow of packets gets as many of them as one of super-packets does of those.
    pub fn set_sharer(&self, class: u32, of: u32, turn_bytes: u32) -> io::Result<()> {
        // What a class has of its own it sends whatever the other has left, which pays for it later: a packet, and the
        // next one after a minute without any, beyond which no debt is counted (`mbuffer`, sch_htb.c).
        let own = Bucket { bytes_per_s: 1, ticks: 1 };
        let bytes_per_s = bytes_per_s(UNSHAPED);
        let most = Bucket { bytes_per_s, ticks: ticks(0.5e-3) };
        self.change(RTM_NEWTCLASS, class, of, "htb", &class_options(own, most, turn_bytes))
    }

    /// Puts a first-in, first-out queue below a class, or changes the one that is there.
    pub fn set_leaf(&self, class: u32, leaf: Leaf) -> io::Result<()> {
        self.change(RTM_NEWQDISC, self.leaf_handle(class), class, "tbf", &leaf.options())
    }

    /// Has packets wait in a qdisc of this kind, in the place of the queue of the leaf, which goes on cutting them up.
    /// `options` are the kernel's defaults but for these ([`fq_codel_options`]). One of this kind that is already there
    /// takes the options and keeps its packets.
    pub fn set_queue(&self, class: u32, kind: &str, options: &[u8]) -> io::Result<()> {
        // TBF calls its only class 1 (`tbf_find`, sch_tbf.c).
        self.change(RTM_NEWQDISC, 0, self.leaf_handle(class) | 1, kind, options)
    }

    /// The handle of the qdisc below a class: major numbers behind that of the root, as many as there are classes.
    fn leaf_handle(&self, class: u32) -> u32 {
        self.handle + ((class & 0xffff) << 16)
    }

    /// Takes the qdisc away: the device has the kernel's own again.
    pub fn remove(&self) -> io::Result<()> {
        self.kernel.command(RTM_DELQDISC, 0, &tcmsg(self.ifindex, self.handle, TC_H_ROOT))
    }

    fn change(
        &self,
        message: u16,
        handle: u32,
        parent: u32,
        kind: &str,
        options: &[u8],
    ) -> io::Result<()> {
        let options = match options {
            [] => Vec::new(),
            _ => attribute_of(TCA_OPTIONS, options),
        };
        let body = body_of(tcmsg(self.ifindex, handle, parent), kind, &options);
        self.kernel.command(message, netlink::NLM_F_CREATE | netlink::NLM_F_REPLACE, &body)
    }
}

/// What is taken away of a qdisc and of all below it. Readable when there may be something new.
#[derive(Debug)]
pub struct Losses {
    told: OwnedFd,
    ifindex: u32,
    handle: u32,
}

impl Losses {
    /// Whether there was any since this was asked last.
    pub fn any(&self) -> io::Result<bool> {
        let mut is_any = false;
        netlink::take(&self.told, |message| {
            is_any |= message.is_empty() || is_below(message, self.ifindex, self.handle);
        })?;
        Ok(is_any)
    }
}

impl AsFd for Losses {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.told.as_fd()
    }
}

/// Whether a message is about the qdisc called `handle` of a device, a class of it, or a qdisc below one: their major
/// numbers follow, up to those that the kernel gives.
fn is_below(message: &[u8], ifindex: u32, handle: u32) -> bool {
    let ours = handle..GIVEN_HANDLES;
    egress::qdisc_of(message, ifindex)
        .is_some_and(|it| ours.contains(&it.handle) || ours.contains(&it.parent))
}

/// A filter that lets only messages of these kinds about a device through to a socket, which somebody else than the socket
/// at `port` has caused: the kernel tells of each rate that is set, and of what gives way to a leaf that is made again.
fn only(kinds: [u16; 2], ifindex: u32, port: u32) -> [SockFilter; 9] {
    let step = |code: u32, jt: u8, jf: u8, k: u32| SockFilter::new(code as u16, jt, jf, k);
    let load = |width: u32, at: usize| step(libc::BPF_LD | width | libc::BPF_ABS, 0, 0, at as u32);
    let compare = |jt, jf, k| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k);
    let answer = |len| step(libc::BPF_RET | libc::BPF_K, 0, 0, len);
    // A filter loads in the byte order of the network what the kernel writes in its own.
    let kinds = kinds.map(|kind| u32::from(u16::from_be_bytes(kind.to_ne_bytes())));
    let [ifindex, port] = [ifindex, port].map(|word| u32::from_be_bytes(word.to_ne_bytes()));
    [
        load(libc::BPF_H, 4),
        compare(1, 0, kinds[0]),
        compare(0, 5, kinds[1]),
        load(libc::BPF_W, HEADER + 4),
        compare(0, 3, ifindex),
        load(libc::BPF_W, 12),
        compare(1, 0, port),
        answer(u32::MAX),
        answer(0),
    ]
}

/// What a message says of a qdisc or class of this `kind`, with `more` attributes.
fn body_of(tcmsg: [u8; TC_HEADER], kind: &str, more: &[u8]) -> Vec<u8> {
    let kind = [kind.as_bytes(), b"\0"].concat();
    [&tcmsg[..], &attribute_of(TCA_KIND, &kind), more].concat()
}

/// Makes sure that the kernel has qdiscs of a `kind`, for which it may load a module; needs a device, to which nothing
/// happens, and the handle of a qdisc that is not there.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`]: the kernel has none of this kind; and what it refuses to say that with.
pub fn look_for(kind: &str, ifindex: u32, handle: u32) -> io::Result<()> {
    // Filters that devices share are for qdiscs at a way in: others are refused them, once their kind is known and
    // before anything is done (`qdisc_block_indexes_set`, sch_api.c).
    let block = attribute_of(TCA_INGRESS_BLOCK, &words(&[1]));
    let body = body_of(tcmsg(ifindex, handle, TC_H_ROOT), kind, &block);
    let flags = netlink::NLM_F_CREATE | netlink::NLM_F_REPLACE;
    match Commands::open()?.command(RTM_NEWQDISC, flags, &body) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A first-in, first-out queue below a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Bytes that wait in the queue at most.
    pub limit: ByteCount,
    /// Super-packets of more than these bytes are cut up: those of a frame, or more than there ever are.
    pub longest: u32,
}

impl Leaf {
    fn options(self) -> Vec<u8> {
        let limit = self.limit.as_u64().min(u32::MAX.into()) as u32;
        // struct tc_tbf_qopt: rate, peak rate, limit, bucket, MTU.
        let parameters =
            [ratespec(LEAF_BYTES_PER_S).to_vec(), vec![0; 12], words(&[limit, 0, 0])].concat();
        [
            attribute_of(TCA_TBF_PARMS, &parameters),
            attribute_of(TCA_TBF_RATE64, &LEAF_BYTES_PER_S.to_ne_bytes()),
            attribute_of(TCA_TBF_BURST, &words(&[self.longest])),
        ]
        .concat()
    }
}

/// Whether a sendbox has left its qdisc, called `handle`, at the root of a device.
pub fn is_left_behind(ifindex: u32, handle: u32) -> io::Result<bool> {
    let root = egress::root(ifindex)?;
    Ok(root.is_some_and(|qdisc| qdisc.handle == handle && qdisc.kind == "htb"))
}

/// Options of `fq_codel` that set target and interval of CoDel.
pub fn fq_codel_options(target: Duration, interval: Duration) -> Vec<u8> {
    let micros = |time: Duration| words(&[u32::try_from(time.as_micros()).unwrap_or(u32::MAX)]);
    [
        attribute_of(TCA_FQ_CODEL_TARGET, &micros(target)),
        attribute_of(TCA_FQ_CODEL_INTERVAL, &micros(interval)),
    ]
    .concat()
}

/// A rate, and for how long at that rate the kernel lets packets through at once.
#[derive(Clone, Copy)]
struct Bucket {
    bytes_per_s: u64,
    ticks: u32,
}

/// The options of a class that has one of the rates of its own, and sends up to the other, in turns of `quantum` bytes.
fn class_options(own: Bucket, most: Bucket, quantum: u32) -> Vec<u8> {
    // struct tc_htb_opt: rate, ceil, bucket and bucket of ceil, quantum, level, priority.
    let parameters = [
        ratespec(own.bytes_per_s).to_vec(),
        ratespec(most.bytes_per_s).to_vec(),
        words(&[own.ticks, most.ticks, quantum, 0, 0]),
    ];
    [
        attribute_of(TCA_HTB_PARMS, &parameters.concat()),
        attribute_of(TCA_HTB_RATE64, &own.bytes_per_s.to_ne_bytes()),
        attribute_of(TCA_HTB_CEIL64, &most.bytes_per_s.to_ne_bytes()),
    ]
    .concat()
}

/// `struct tc_ratespec`: cell_log, linklayer, overhead, cell_align, mpu, rate in bytes per second. With a link layer the
/// kernel wants no table of rates.
fn ratespec(bytes_per_s: u64) -> [u8; 12] {
    let mut spec = [0; 12];
    spec[1] = TC_LINKLAYER_ETHERNET;
    spec[8..].copy_from_slice(&(bytes_per_s.min(u32::MAX.into()) as u32).to_ne_bytes());
    spec
}

fn bytes_per_s(rate: Rate) -> u64 {
    (rate.as_bits_per_sec() / 8).max(1)
}

fn ticks(seconds: f64) -> u32 {
    (1e9 * seconds / TICK_NS).clamp(1.0, f64::from(u32::MAX)) as u32
}

fn tcmsg(ifindex: u32, handle: u32, parent: u32) -> [u8; TC_HEADER] {
    let mut body = about(ifindex, parent);
    body[8..12].copy_from_slice(&handle.to_ne_bytes());
    body
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    use nix::net::if_::if_nametoindex;
    use nix::sys::socket::{setsockopt, sockopt};

    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    const HANDLE: u32 = 1 << 16;

    fn tc(arguments: &str) -> String {
        let output = std::process::Command::new("tc").args(arguments.split(' ')).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn classes_have_the_rates_that_they_were_set_to_and_nothing_stays_once_it_is_removed() {
        on_a_veth_pair(|| {
            let ifindex = if_nametoindex("left").unwrap();
            assert!(!is_left_behind(ifindex, HANDLE).unwrap());
            let htb = Htb::create(ifindex, HANDLE).unwrap();
            assert!(is_left_behind(ifindex, HANDLE).unwrap());
            for (rate, shown) in [
                (Some(Rate::from_mbit_per_sec(96)), "rate 96Mbit ceil 96Mbit"),
                (Some(Rate::from_bits_per_sec(120_000)), "rate 120Kbit ceil 120Kbit"),
                (Some(Rate::from_mbit_per_sec(40_000)), "rate 40Gbit ceil 40Gbit"),
                (None, "rate 100Gbit ceil 100Gbit"),
            ] {
                htb.set_class(HANDLE | 1, rate).unwrap();
                let classes = tc("class show dev left");
                assert!(classes.contains(shown), "{classes}");
                assert_eq!(classes.lines().count(), 1);
            }
            for longest in [1518, 70_000] {
                htb.set_sharer(HANDLE | 0x400, HANDLE | 1, longest).unwrap();
                let classes = tc("-d class show dev left");
                assert!(classes.contains(&format!("quantum {longest} ")), "{classes}");
                let limit = ByteCount::new(40_000);
                htb.set_leaf(HANDLE | 0x400, Leaf { limit, longest }).unwrap();
                let qdiscs = tc("qdisc show dev left");
                assert!(
                    qdiscs.contains("qdisc tbf ") && qdiscs.contains("parent 1:400"),
                    "{qdiscs}"
                );
            }
            htb.remove().unwrap();
            assert!(!is_left_behind(ifindex, HANDLE).unwrap());
        });
    }

    #[test]
    fn what_others_take_away_is_told_and_not_what_is_set_or_of_others() {
        on_a_veth_pair(|| {
            let ifindex = if_nametoindex("left").unwrap();
            let htb = Htb::create(ifindex, HANDLE).unwrap();
            let losses = htb.losses().unwrap();
            let (class, leaf) = (HANDLE | 1, HANDLE | 0x400);
            let make = || {
                htb.set_class(class, Some(Rate::from_mbit_per_sec(96)))?;
                htb.set_sharer(leaf, class, 1518)?;
                htb.set_leaf(leaf, Leaf { limit: ByteCount::new(40_000), longest: 1518 })?;
                htb.set_queue(leaf, "pfifo", &[])
            };
            for taken in [
                "tc qdisc del dev left parent 401:1",
                "tc qdisc del dev left parent 1:400",
                "tc class del dev left classid 1:400",
                "tc qdisc del dev left root",
            ] {
                make().unwrap();
                make().unwrap();
                run("tc qdisc add dev left clsact");
                run("tc qdisc del dev left clsact");
                run("tc qdisc replace dev right root handle 1: pfifo");
                run("tc qdisc del dev right root");
                assert!(!losses.any().unwrap(), "before `{taken}`");
                run(taken);
                assert!(losses.any().unwrap(), "{taken}");
                assert!(!losses.any().unwrap(), "told once");
            }
            assert_eq!(make().unwrap_err().kind(), io::ErrorKind::NotFound);
            run("tc qdisc add dev left root pfifo");
            assert_eq!(htb.put().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            run("tc qdisc del dev left root");
            htb.put().unwrap();
            make().unwrap();
            assert!(!losses.any().unwrap(), "all of that was another's");
        });
    }

    #[test]
    fn the_kernel_is_asked_for_kinds_of_qdiscs_and_none_is_made() {
        on_a_veth_pair(|| {
            let ifindex = if_nametoindex("left").unwrap();
            for others in [None, Some("tc qdisc add dev left root handle 2: htb")] {
                others.into_iter().for_each(run);
                // The kernel's own packets, such as those that look for routers, are counted meanwhile.
                let qdiscs = || {
                    let all = tc("qdisc show dev left");
                    all.split(" direct_packets_stat").next().unwrap_or_default().to_owned()
                };
                let before = qdiscs();
                for kind in ["htb", "tbf", "pfifo"] {
                    look_for(kind, ifindex, HANDLE).unwrap();
                }
                let error = look_for("none_such", ifindex, HANDLE).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
                assert_eq!(qdiscs(), before);
            }
        });
    }

    #[test]
    fn packets_wait_in_the_qdisc_that_is_named_whatever_becomes_of_the_leaf_above_it() {
        on_a_veth_pair(|| {
            let htb = Htb::create(if_nametoindex("left").unwrap(), HANDLE).unwrap();
            let class = HANDLE | 1;
            htb.set_class(class, None).unwrap();
            for longest in [70_000, 1518] {
                htb.set_leaf(class, Leaf { limit: ByteCount::new(40_000), longest }).unwrap();
                htb.set_queue(class, "pfifo", &[]).unwrap();
                let qdiscs = tc("qdisc show dev left");
                assert!(qdiscs.contains("qdisc tbf 2: parent 1:1 "), "{qdiscs}");
                let of_pfifo: Vec<&str> =
                    qdiscs.lines().filter(|line| line.contains("pfifo")).collect();
                assert!(of_pfifo.len() == 1 && of_pfifo[0].contains("parent 2:1 "), "{qdiscs}");
            }
            let error = htb.set_queue(class, "none_such", &[]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        });
    }

    #[test]
    fn fq_codel_takes_other_options_and_keeps_its_packets() {
        if forebay_skips::skip_without(forebay_skips::Need::FlowQdiscs) {
            return;
        }
        on_a_veth_pair(|| {
            run("ip address add 10.9.0.1/24 dev left");
            run("ip neighbour add 10.9.0.2 lladdr 02:00:00:00:00:09 dev left");
            let htb = Htb::create(if_nametoindex("left").unwrap(), HANDLE).unwrap();
            let losses = htb.losses().unwrap();
            let class = HANDLE | 1;
            htb.set_class(class, Some(Rate::from_bits_per_sec(100_000))).unwrap();
            htb.set_leaf(class, Leaf { limit: ByteCount::new(1 << 20), longest: 1518 }).unwrap();
            htb.set_queue(class, "fq_codel", &[]).unwrap();
            let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
            setsockopt(&socket, sockopt::Priority, &(class as i32)).unwrap();
            for _ in 0..20 {
                socket.send_to(&[7; 1400], "10.9.0.2:9").unwrap();
            }
            let shown = || {
                let all = tc("-s qdisc show dev left");
                all.split("qdisc fq_codel").nth(1).unwrap().to_owned()
            };
            let waiting = |shown: &str| -> u32 {
                let backlog = shown.split("backlog ").nth(1).unwrap();
                let packets = backlog.split(' ').nth(1).unwrap();
                packets.trim_end_matches('p').parse().unwrap()
            };
            let before = shown();
            assert!(before.contains("interval 100ms") && waiting(&before) > 10, "{before}");
            let options = fq_codel_options(Duration::from_millis(20), Duration::from_millis(400));
            htb.set_queue(class, "fq_codel", &options).unwrap();
            let after = shown();
            // A frame leaves in 115 ms.
            assert!(after.contains("interval 400ms"), "{after}");
            assert!(waiting(&after) + 5 >= waiting(&before), "{before}{after}");
            assert!(after.contains("dropped 0,"), "{after}");
            assert!(!losses.any().unwrap(), "nothing was taken away");
        });
    }

    #[test]
    fn super_packets_that_wait_leave_though_the_leaf_has_begun_to_cut_them_up() {
        on_a_veth_pair(|| {
            run("ip address add 10.9.0.1/24 dev left");
            run("ip neighbour add 10.9.0.2 lladdr 02:00:00:00:00:09 dev left");
            let htb = Htb::create(if_nametoindex("left").unwrap(), HANDLE).unwrap();
            let class = HANDLE | 1;
            htb.set_class(class, Some(Rate::from_bits_per_sec(100_000))).unwrap();
            let limit = ByteCount::new(1 << 20);
            htb.set_leaf(class, Leaf { limit, longest: 1 << 18 }).unwrap();
            let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
            setsockopt(&socket, sockopt::Priority, &(class as i32)).unwrap();
            setsockopt(&socket, sockopt::UdpGsoSegment, &1000).unwrap();
            for _ in 0..3 {
                socket.send_to(&[7; 30_000], "10.9.0.2:9").unwrap();
            }
            // The first has emptied the bucket of the class for 2.5 s, whatever its rate from then on.
            let queued =
                || tc("-s qdisc show dev left").split("backlog ").nth(1).unwrap().to_owned();
            assert!(queued().contains("b 2p "), "{}", queued());
            htb.set_leaf(class, Leaf { limit, longest: 1518 }).unwrap();
            htb.set_class(class, None).unwrap();
            let deadline = Instant::now() + Duration::from_secs(20);
            while !queued().starts_with("0b 0p ") {
                assert!(Instant::now() < deadline, "{}", queued());
                std::thread::sleep(Duration::from_millis(10));
            }
        });
    }

    #[test]
    fn a_qdisc_of_somebody_else_is_not_taken_for_one_that_was_left_behind() {
        on_a_veth_pair(|| {
            let ifindex = if_nametoindex("left").unwrap();
            run("tc qdisc add dev left root handle 2: htb");
            assert!(!is_left_behind(ifindex, HANDLE).unwrap());
            run("tc qdisc replace dev left root handle 1: pfifo");
            assert!(!is_left_behind(ifindex, HANDLE).unwrap());
            assert!(Htb::create(9999, HANDLE).is_err());
            run("tc qdisc replace dev left root noqueue");
            Htb::create(ifindex, HANDLE).unwrap();
        });
    }
}
