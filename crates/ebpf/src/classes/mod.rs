//! The programs of a sendbox whose packets stay in the kernel (`bpf/classes.bpf.c`). One puts packets into
//! the HTB class of their bundle. The other counts and samples packets that have left through the class.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use forebay_core::bundle::BundleId;
use forebay_core::units::ByteCount;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

use crate::attach::{TcxLink, TcxSide, TracepointLink};
use crate::capture::monotonic_now;
use crate::key::address_key;
use crate::mapped::MappedWords;
use crate::membership::MAX_BUNDLES;
use crate::program::KeySet;
use crate::sampler::{Sampler, maps};
use crate::skel::classes::{self as skel, types};
use crate::skel::{Plain, word_of};
use crate::standing::QDISC;
use crate::{Error, program};

/// Leaves of all bundles together. Each takes a few KiB of the kernel's memory. The more there are, the
/// longer each takes to make, since the kernel goes through its lists of qdiscs: 2,000 take 0.4 s, 6,000 take
/// 6 s and 14,000 take 48 s.
const LEAVES: u32 = 1 << 13;
/// Leaves of all bundles at a start; the rest are for bundles that come later.
const LEAVES_AT_FIRST: u32 = 1 << 12;
/// Leaves of one bundle, at the most.
const LEAVES_MAX: u32 = 1 << 10;
/// Class of the first bundle. As in `bpf/classes.bpf.c`.
const FIRST_CLASS: u32 = QDISC | 1;
/// Class of the first leaf, after the classes of bundles. As in `bpf/classes.bpf.c`.
const FIRST_LEAF: u32 = FIRST_CLASS + MAX_BUNDLES as u32;

/// Where packets come from and go to, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassesOptions {
    /// Index of the port towards the site's hosts: only packets from it are taken. `None`: packets from any
    /// device are, for a machine that routes.
    pub lan: Option<u32>,
    /// Packets that the machine itself sends are taken, too.
    pub takes_own: bool,
    /// Packets leave without an Ethernet header.
    pub is_bare: bool,
    /// Index of the port whose root is the qdisc [`QDISC`], of the same network namespace.
    pub wan: u32,
    /// Classes below the class of a bundle, for flows by their hash: [`Classes::leaves`], or 0 for none.
    pub leaves: u32,
    /// Packets in the qdisc above which each bundle may only use its share. A super-packet counts once
    /// ([`Classes::set_share`]).
    pub most_packets: u32,
    /// Bytes from which on they are, too.
    pub most_bytes: u32,
    /// Age of the last [`Classes::beat`] from which packets go past all classes; above zero.
    pub stale_after: Duration,
}

/// Outcomes of the hosts' packets on their way out of the WAN port, since the programs were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassifiedCounters {
    /// Put into the class of a bundle.
    pub bundles: u64,
    /// Left alone: no IP packet to one station, or neighbour discovery.
    pub not_ip: u64,
    /// Left alone: to one of the boxes' addresses.
    pub own: u64,
    /// Left alone: of no bundle.
    pub outside: u64,
    /// Left alone: the process has not beaten for too long.
    pub stale: u64,
    /// Dropped: too much waited in the qdisc, and this bundle had more than its share.
    pub full: u64,
    /// Dropped: its leaf had too large a part of the bytes that the bundle may have waiting
    /// ([`Classes::set_limit`]).
    pub overlimit: u64,
}

/// Outcomes of the buffers, each a packet or a super-packet, on their way out of the WAN port behind the
/// qdisc, since the programs were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DepartedCounters {
    /// Counted and sampled.
    pub sampled: u64,
    /// Counted as far as their bytes go: super-packets of tunnels.
    pub unsampled: u64,
    /// Put into a class, and neither counted nor sampled: their headers could not be read.
    pub unread: u64,
    /// Put into no class.
    pub outside: u64,
    /// Counted before, and sent once more: the driver had refused them.
    pub again: u64,
    /// Packets, as they are on the wire, that have left the qdisc by its own count and that the program has
    /// not seen. The program ran already on this processor, or the kernel runs no programs there while some
    /// task is current. They are known once a buffer has left after the next one.
    pub missed: u64,
    /// Time that the program has run beyond a program that does nothing (ns). The kernel measures it while
    /// `kernel.bpf_stats_enabled` is set.
    pub sampling_ns: u64,
}

/// Backlog of all classes of the qdisc together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Packets, super-packets counted once.
    pub packets: u64,
    /// Bytes that they have on the wire.
    pub bytes: ByteCount,
    /// Packets dropped since the qdisc was made.
    pub drops: u64,
}

/// Packets of a bundle in its classes, now and before, as they are on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Packets that wait.
    pub waiting: u64,
    /// Packets of this place that were dropped, whichever bundle had it, since the programs were loaded.
    pub dropped: u64,
    /// Buffers of this place that have left. If the number has changed, the sampler's counters have changed,
    /// too.
    pub left: u64,
}

/// Time that a packet stood in the qdisc if its flow had none there when the packet came. The first packet
/// counts of a super-packet that is cut up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Place of its bundle.
    pub place: usize,
    /// Time between the program in front of the qdisc and the one behind it.
    pub time: Duration,
}

/// Words of 8 bytes in a bundle's ledger.
const LEDGER_WORDS: usize = size_of::<types::ledger>() / 8;

/// The programs of two ports. Dropping them detaches them.
///
/// Needs Linux 6.12: its tracepoints may read packets that lie in several pieces.
#[derive(Debug)]
pub struct Classes {
    /// Counts and samples packets that have left through the classes. Its bundles are the bundles with
    /// classes, all sampled by version 2 of the block. A change of a bundle changes both programs. Counters
    /// that are read while a buffer leaves may have its bytes and not yet its packets.
    pub sampler: Sampler,
    leaves: u32,
    heartbeat: MappedWords,
    ports: MappedWords,
    share: MappedWords,
    limits: MappedWords,
    standing: MappedWords,
    ledgers: MappedWords,
    waits: RingBuffer<'static>,
    waited: mpsc::Receiver<Wait>,
    own: KeySet,
    fates: MapHandle,
    #[cfg(test)]
    backlogs: MapHandle,
    classify: OwnedFd,
    departed: OwnedFd,
    refused: OwnedFd,
    dropped: OwnedFd,
    at_wan: Option<TcxLink>,
    _at_tracepoints: Option<[TracepointLink; 3]>,
}

impl Classes {
    /// Loads the programs and attaches them, in the current network namespace. Until [`Classes::beat`] they
    /// put no packet into a class, and afterwards only packets of the sampler's bundles.
    pub fn attach(options: ClassesOptions) -> Result<Self, Error> {
        let mut classes = Self::load(options)?;
        let refused = TracepointLink::attach(classes.refused.as_fd(), "classes")?;
        let dropped = TracepointLink::attach(classes.dropped.as_fd(), "classes")?;
        let departed = TracepointLink::attach(classes.departed.as_fd(), "classes")?;
        // Once packets are in a class they are counted.
        let classify = TcxLink::attach(classes.classify.as_fd(), options.wan, TcxSide::Egress)?;
        classes.at_wan = Some(classify);
        classes._at_tracepoints = Some([departed, dropped, refused]);
        Ok(classes)
    }

    fn load(options: ClassesOptions) -> Result<Self, Error> {
        program::quiet_libbpf();
        let mut storage = MaybeUninit::uninit();
        let mut open = skel::ClassesSkelBuilder::default()
            .open(&mut storage)
            .map_err(Error::load("classes"))?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.leaves = options.leaves;
            rodata.takes_own = options.takes_own;
            rodata.is_bare = options.is_bare;
            rodata.most_packets = options.most_packets;
            rodata.most_bytes = options.most_bytes;
            rodata.netns_inum = network_namespace().map_err(failed)?;
            rodata.stale_after_ns = options.stale_after.as_nanos().try_into().unwrap_or(u64::MAX);
        }
        let loaded = open.load().map_err(Error::load("classes"))?;
        let departed = program::descriptor("classes", loaded.progs.departed.as_fd())?;
        let (sender, waited) = mpsc::channel();
        let mut waits = RingBufferBuilder::new();
        let add = move |bytes: &[u8]| {
            // The receiver lives as long as the ring.
            let _ = Wait::parse(bytes).map(|wait| sender.send(wait));
            0
        };
        waits.add(&loaded.maps.waits, add).map_err(Error::map("waits"))?;
        let classes = Self {
            sampler: Sampler::of(maps!(loaded.maps), departed.try_clone().map_err(failed)?, true)?,
            leaves: options.leaves,
            heartbeat: MappedWords::new(loaded.maps.heartbeat.as_fd(), 1)
                .map_err(|source| Error::Map { map: "heartbeat", source })?,
            ports: MappedWords::new(loaded.maps.ports.as_fd(), size_of::<types::ports>() / 8)
                .map_err(|source| Error::Map { map: "ports", source })?,
            share: MappedWords::new(loaded.maps.share.as_fd(), 1)
                .map_err(|source| Error::Map { map: "share", source })?,
            limits: MappedWords::new(loaded.maps.limits.as_fd(), MAX_BUNDLES)
                .map_err(|source| Error::Map { map: "limits", source })?,
            standing: MappedWords::new(
                loaded.maps.standing.as_fd(),
                size_of::<types::standing>() / 8,
            )
            .map_err(|source| Error::Map { map: "standing", source })?,
            ledgers: MappedWords::new(loaded.maps.ledgers.as_fd(), MAX_BUNDLES * LEDGER_WORDS)
                .map_err(|source| Error::Map { map: "ledgers", source })?,
            waits: waits.build().map_err(Error::map("waits"))?,
            waited,
            own: KeySet::of("own", &loaded.maps.own)?,
            fates: program::handle("fates", &loaded.maps.fates)?,
            #[cfg(test)]
            backlogs: program::handle("bundle_backlogs", &loaded.maps.bundle_backlogs)?,
            classify: program::descriptor("classes", loaded.progs.classify.as_fd())?,
            refused: program::descriptor("classes", loaded.progs.refused.as_fd())?,
            dropped: program::descriptor("classes", loaded.progs.dropped.as_fd())?,
            departed,
            at_wan: None,
            _at_tracepoints: None,
        };
        classes.set_ports(options.lan, options.wan);
        Ok(classes)
    }

    /// Attaches the programs to other ports, after a port was deleted and made again: bundles and counters
    /// stay. The WAN port is called `device`. Needs no more than bpf(2), with `CAP_BPF`.
    pub fn attach_anew(&mut self, lan: Option<u32>, device: &str, wan: u32) -> Result<(), Error> {
        self.at_wan = None;
        self.set_ports(lan, wan);
        let classify = self.classify.as_fd();
        self.at_wan = Some(TcxLink::attach_anew(classify, device, wan, TcxSide::Egress)?);
        Ok(())
    }

    fn set_ports(&self, lan: Option<u32>, wan: u32) {
        // No device has the index 0.
        let ports = types::ports { lan: lan.unwrap_or(0).into(), wan: wan.into() };
        for (to, from) in self.ports.words().iter().zip(ports.words()) {
            to.store(from, Ordering::Relaxed);
        }
    }

    /// Leaves packets to these addresses out of the bundles from now on; addresses given before no longer
    /// count. If there are more than [`MAX_OWN_ADDRESSES`](crate::MAX_OWN_ADDRESSES), sets only as many and
    /// returns an error. The boxes' messages are set at the [sampler](Classes::sampler).
    pub fn set_own_addresses(&mut self, addresses: &BTreeSet<IpAddr>) -> Result<(), Error> {
        let key = |address: &IpAddr| address_key(*address).as_bytes().to_vec();
        self.own.set(addresses.iter().map(key).collect())
    }

    /// Leaves of each bundle if there are `bundles`: 1,024, a power of two, and from five bundles on fewer.
    pub fn leaves(bundles: usize) -> u32 {
        let most = LEAVES_AT_FIRST / bundles.clamp(1, MAX_BUNDLES) as u32;
        LEAVES_MAX.min(1 << most.ilog2())
    }

    /// Most bundles that the classes have room for.
    pub fn room(&self) -> usize {
        MAX_BUNDLES.min((LEAVES / self.leaves.max(1)) as usize)
    }

    /// The place of a bundle among the classes, from 0: the first place that was free when the bundle was
    /// set. `None` if the sampler does not know the bundle.
    pub fn place(&self, id: BundleId) -> Option<usize> {
        self.sampler.slot(id).map(|slot| slot as usize)
    }

    /// The class of the bundle at a place, and the classes that its packets are put into: its leaves, or the
    /// class itself where it has none.
    pub fn at(&self, place: usize) -> (u32, Range<u32>) {
        let (slot, leaves) = (place as u32, self.leaves);
        let class = FIRST_CLASS + slot;
        let first = if leaves == 0 { class } else { FIRST_LEAF + slot * leaves };
        (class, first..first + leaves.max(1))
    }

    /// Says that the process makes progress, as [`Capture::beat`](crate::Capture::beat) does.
    pub fn beat(&self) {
        // Relaxed: the word carries no other data with it.
        self.heartbeat.words()[0].store(monotonic_now().as_nanos(), Ordering::Relaxed);
    }

    /// Lets all packets go past the classes from now on; packets in the classes leave through them.
    pub fn stop_beating(&self) {
        self.heartbeat.words()[0].store(0, Ordering::Relaxed);
    }

    /// Lets each bundle have `packets` waiting however many wait for other bundles; 0 at first. Packets
    /// beyond that are dropped while the qdisc holds [`ClassesOptions::most_packets`] or more.
    pub fn set_share(&self, packets: u64) {
        // Relaxed: the word carries no other data with it.
        self.share.words()[0].store(packets, Ordering::Relaxed);
    }

    /// Lets the bundle at a place have at most `limit` bytes waiting in its leaves, all its flows together.
    /// `None`, as at first: as many as there is room for. A packet is dropped as it comes if its leaf has
    /// more than twice as much waiting as the bundle may still have; an empty leaf takes one in any case.
    /// Leaves must be first in, first out.
    pub fn set_limit(&self, place: usize, limit: Option<ByteCount>) {
        // Relaxed: the word carries no other data with it.
        let bytes = limit.map_or(0, |limit| limit.as_u64().max(1));
        self.limits.words()[place].store(bytes, Ordering::Relaxed);
    }

    /// Backlog of the qdisc when the last packet of a bundle left it.
    pub fn standing(&self) -> Standing {
        let types::standing { packets, bytes, drops, .. } = self.standing.load();
        Standing { packets, bytes: ByteCount::new(bytes), drops }
    }

    /// Packets of the bundle at a place, now and before.
    pub fn ledger(&self, place: usize) -> Ledger {
        let words = &self.ledgers.words()[place * LEDGER_WORDS..][..LEDGER_WORDS];
        // Relaxed: a value that is read a little early is read again.
        let read = |word: usize| words[word].load(Ordering::Relaxed);
        let came = read(word_of!(types::ledger, came));
        let dropped = read(word_of!(types::ledger, dropped));
        let gone = read(word_of!(types::ledger, left)) + dropped;
        Ledger {
            waiting: came.saturating_sub(gone),
            dropped,
            left: read(word_of!(types::ledger, buffers)),
        }
    }

    /// Hands the waits that have not been read yet to `f`, in the order of departure. If more than a thousand
    /// come between two calls, some are left out.
    pub fn consume_waits(&mut self, f: &mut dyn FnMut(Wait)) -> Result<(), Error> {
        self.waits.consume().map_err(Error::map("waits"))?;
        self.waited.try_iter().for_each(f);
        Ok(())
    }

    /// Outcomes of packets in front of the qdisc so far, over all CPUs.
    pub fn classified(&self) -> Result<ClassifiedCounters, Error> {
        // The order of `enum fate`.
        Ok(ClassifiedCounters {
            bundles: self.fate(0)?,
            not_ip: self.fate(1)?,
            own: self.fate(2)?,
            outside: self.fate(3)?,
            stale: self.fate(4)?,
            full: self.fate(5)?,
            overlimit: self.fate(6)?,
        })
    }

    /// Outcomes of buffers behind the qdisc so far, over all CPUs.
    pub fn departed(&self) -> Result<DepartedCounters, Error> {
        let info = program::info(self.departed.as_fd()).map_err(failed)?;
        // That one runs as often, and hardly ever does anything.
        let empty = program::info(self.refused.as_fd()).map_err(failed)?;
        Ok(DepartedCounters {
            sampled: self.fate(7)?,
            unsampled: self.fate(8)?,
            unread: self.fate(9)?,
            outside: self.fate(10)?,
            again: self.fate(11)?,
            missed: self.standing.load::<types::standing>().unseen,
            sampling_ns: info.run_time_ns.saturating_sub(empty.run_time_ns),
        })
    }

    fn fate(&self, fate: u32) -> Result<u64, Error> {
        program::per_cpu_sum("fates", &self.fates, fate)
    }
}

impl Wait {
    /// `None`: the program writes no such bytes.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let types::wait { ns, slot, .. } = types::wait::from_bytes(bytes)?;
        Some(Self { place: slot as usize, time: Duration::from_nanos(ns) })
    }
}

fn failed(error: io::Error) -> Error {
    Error::Kernel { program: "classes", reason: error.to_string() }
}

/// Number of the network namespace of this thread.
fn network_namespace() -> io::Result<u32> {
    let inode = std::fs::metadata("/proc/thread-self/ns/net")?.st_ino();
    u32::try_from(inode).map_err(io::Error::other)
}
