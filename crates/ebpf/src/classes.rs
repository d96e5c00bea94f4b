//! The programs of a sendbox whose packets stay in the kernel (`bpf/classes.bpf.c`): one puts them into the HTB class of
//! their bundle, the other counts and samples what has left through it.

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::bundle::BundleId;
use forebay_core::units::ByteCount;
use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::attach::{TcxLink, TcxSide, TracepointLink};
use crate::capture::monotonic_now;
use crate::mapped::MappedWords;
use crate::membership::MAX_BUNDLES;
use crate::sampler::{Sampler, maps};
use crate::skel::classes::{self as skel, types};
use crate::skel::word_of;
use crate::{Error, program};

/// Handle of the HTB qdisc at the root of the WAN port, `fb:` to tc(8): what somebody else puts there is hardly ever
/// called so, and is not to be taken for it.
pub const QDISC: u32 = 0xfb << 16;
/// Name of the program at the way out of the WAN port, as the kernel tells it.
pub const CLASSIFY: &str = "classify";
/// Leaves of all bundles together: each takes a few KiB of the kernel's memory, and a tenth of a millisecond to make.
const LEAVES: u32 = 1 << 14;
/// Leaves of one bundle, at the most.
const LEAVES_MAX: u32 = 1 << 10;
/// As in `bpf/classes.bpf.c`.
const FIRST_CLASS: u32 = QDISC | 1;
const FIRST_LEAF: u32 = FIRST_CLASS + MAX_BUNDLES as u32;

/// Where packets come from and go to, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassesOptions {
    /// Index of the port towards the site's hosts.
    pub lan: u32,
    /// Index of the port whose root is the qdisc [`QDISC`], of the same network namespace.
    pub wan: u32,
    /// Classes below that of a bundle, for flows by their hash: [`Classes::leaves`], or 0 for none.
    pub leaves: u32,
    /// Packets that wait in all classes together at most, super-packets counted once: what comes then is dropped.
    pub most_packets: u32,
    /// Bytes that they have at most.
    pub most_bytes: u32,
    /// Age of the last [`Classes::beat`] from which packets go past all classes; above zero.
    pub stale_after: Duration,
}

/// What became of the packets from the LAN port on their way out of the WAN port, since the programs were loaded.
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
    /// Dropped: too much waited in all classes together.
    pub full: u64,
}

/// What became of the buffers, each a packet or a super-packet, on their way out of the WAN port behind the qdisc, since
/// the programs were loaded.
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
    /// The program did not run, for it ran already on this processor (`recursion_misses`).
    pub missed: u64,
    /// For how much longer than one that does nothing the program has run (ns). The kernel takes note of it while
    /// `kernel.bpf_stats_enabled` is set.
    pub sampling_ns: u64,
}

/// What stands in all classes of the qdisc together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Packets, super-packets counted once.
    pub packets: u64,
    /// Bytes that they have on the wire.
    pub bytes: ByteCount,
    /// Packets dropped since the qdisc was made.
    pub drops: u64,
}

/// What a bundle has and had in its classes, in packets as they are on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Packets that wait.
    pub waiting: u64,
    /// Packets of this place that were dropped, whichever bundle had it, since the programs were loaded.
    pub dropped: u64,
    /// Buffers of this place that have left: another number than before says that the sampler's counters are others, too.
    pub left: u64,
}

const LEDGER_WORDS: usize = size_of::<types::ledger>() / 8;

/// The programs of two ports. Dropping them detaches them.
///
/// Needs Linux 6.12, whose tracepoints may read what lies in several pieces of a packet.
#[derive(Debug)]
pub struct Classes {
    /// What has left through the classes; its bundles are those that packets are put into classes for, all sampled by
    /// version 2 of the block. A change of a bundle is one of both programs.
    pub sampler: Sampler,
    leaves: u32,
    heartbeat: MappedWords,
    standing: MappedWords,
    ledgers: MappedWords,
    fates: MapHandle,
    classify: OwnedFd,
    departed: OwnedFd,
    refused: OwnedFd,
    dropped: OwnedFd,
    _links: Option<(TcxLink, [TracepointLink; 3])>,
}

impl Classes {
    /// Loads the programs and attaches them, in the current network namespace. Until [`Classes::beat`] no packet is put
    /// into a class, and then only packets of the sampler's bundles.
    pub fn attach(options: ClassesOptions) -> Result<Self, Error> {
        let mut classes = Self::load(options)?;
        let refused = TracepointLink::attach(classes.refused.as_fd(), "classes")?;
        let dropped = TracepointLink::attach(classes.dropped.as_fd(), "classes")?;
        let departed = TracepointLink::attach(classes.departed.as_fd(), "classes")?;
        // Once packets are in a class they are counted.
        let classify = TcxLink::attach(classes.classify.as_fd(), options.wan, TcxSide::Egress)?;
        classes._links = Some((classify, [departed, dropped, refused]));
        Ok(classes)
    }

    fn load(options: ClassesOptions) -> Result<Self, Error> {
        program::quiet_libbpf();
        let mut storage = MaybeUninit::uninit();
        let mut open = skel::ClassesSkelBuilder::default()
            .open(&mut storage)
            .map_err(Error::load("classes"))?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.lan_ifindex = options.lan;
            rodata.wan_ifindex = options.wan;
            rodata.leaves = options.leaves;
            rodata.most_packets = options.most_packets;
            rodata.most_bytes = options.most_bytes;
            rodata.netns_inum = network_namespace().map_err(failed)?;
            rodata.stale_after_ns = options.stale_after.as_nanos().try_into().unwrap_or(u64::MAX);
        }
        let loaded = open.load().map_err(Error::load("classes"))?;
        let departed = program::descriptor("classes", loaded.progs.departed.as_fd())?;
        Ok(Self {
            sampler: Sampler::of(maps!(loaded.maps), departed.try_clone().map_err(failed)?, true)?,
            leaves: options.leaves,
            heartbeat: MappedWords::new(loaded.maps.heartbeat.as_fd(), 1)
                .map_err(|source| Error::Map { map: "heartbeat", source })?,
            standing: MappedWords::new(
                loaded.maps.standing.as_fd(),
                size_of::<types::standing>() / 8,
            )
            .map_err(|source| Error::Map { map: "standing", source })?,
            ledgers: MappedWords::new(loaded.maps.ledgers.as_fd(), MAX_BUNDLES * LEDGER_WORDS)
                .map_err(|source| Error::Map { map: "ledgers", source })?,
            fates: program::handle("fates", &loaded.maps.fates)?,
            classify: program::descriptor("classes", loaded.progs.classify.as_fd())?,
            refused: program::descriptor("classes", loaded.progs.refused.as_fd())?,
            dropped: program::descriptor("classes", loaded.progs.dropped.as_fd())?,
            departed,
            _links: None,
        })
    }

    /// Leaves of each of so many bundles: 1,024, a power of two, and from 17 bundles on fewer.
    pub fn leaves(bundles: usize) -> u32 {
        let most = LEAVES / bundles.clamp(1, MAX_BUNDLES) as u32;
        LEAVES_MAX.min(1 << most.ilog2())
    }

    /// Bundles that there is room for.
    pub fn room(&self) -> usize {
        MAX_BUNDLES.min((LEAVES / self.leaves.max(1)) as usize)
    }

    /// The place of a bundle among the classes, from 0: when it is set, the first that is free. `None` if the sampler
    /// does not know the bundle.
    pub fn place(&self, id: BundleId) -> Option<usize> {
        self.sampler.slot(id).map(|slot| slot as usize)
    }

    /// The class of the bundle at a place, and those that its packets are put into: its leaves, or the class itself
    /// where it has none.
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

    /// Lets all packets go past the classes from now on; what is in them leaves through them.
    pub fn stop_beating(&self) {
        self.heartbeat.words()[0].store(0, Ordering::Relaxed);
    }

    /// What stood in the qdisc when the last packet of a bundle left it.
    pub fn standing(&self) -> Standing {
        let types::standing { packets, bytes, drops } = self.standing.load();
        Standing { packets, bytes: ByteCount::new(bytes), drops }
    }

    /// What the bundle at a place has and had in its classes.
    pub fn ledger(&self, place: usize) -> Ledger {
        let words = &self.ledgers.words()[place * LEDGER_WORDS..][..LEDGER_WORDS];
        // Relaxed: what is read a little early is read again.
        let read = |word: usize| words[word].load(Ordering::Relaxed);
        let came = read(word_of!(types::ledger, came));
        Ledger {
            waiting: came.saturating_sub(read(word_of!(types::ledger, gone))),
            dropped: read(word_of!(types::ledger, dropped)),
            left: read(word_of!(types::ledger, left)),
        }
    }

    /// What became of packets in front of the qdisc so far, over all CPUs.
    pub fn classified(&self) -> Result<ClassifiedCounters, Error> {
        // The order of `enum fate`.
        Ok(ClassifiedCounters {
            bundles: self.fate(0)?,
            not_ip: self.fate(1)?,
            own: self.fate(2)?,
            outside: self.fate(3)?,
            stale: self.fate(4)?,
            full: self.fate(5)?,
        })
    }

    /// What became of buffers behind the qdisc so far, over all CPUs.
    pub fn departed(&self) -> Result<DepartedCounters, Error> {
        let info = program::info(self.departed.as_fd()).map_err(failed)?;
        // That one runs as often, and hardly ever does anything.
        let empty = program::info(self.refused.as_fd()).map_err(failed)?;
        Ok(DepartedCounters {
            sampled: self.fate(6)?,
            unsampled: self.fate(7)?,
            unread: self.fate(8)?,
            outside: self.fate(9)?,
            again: self.fate(10)?,
            missed: info.recursion_misses,
            sampling_ns: info.run_time_ns.saturating_sub(empty.run_time_ns),
        })
    }

    fn fate(&self, fate: u32) -> Result<u64, Error> {
        program::per_cpu_sum("fates", &self.fates, fate)
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

#[cfg(test)]
mod tests {
    use forebay_core::bundle::sample::SamplingKey;
    use forebay_core::bundle::{BlockVersion, EpochSize};
    use forebay_skips::{Need, skip_without};

    use super::*;
    use crate::SamplerBundle;
    use crate::attach::{tcx_ids, tcx_programs};
    use crate::program::tests::{Buffer, INGRESS_IFINDEX, PRIORITY, run_at_tc};

    const LAN: u32 = 7;
    /// No device: the packets of a trial run belong to a socket, and must not leave anywhere.
    const WAN: u32 = i32::MAX as u32;
    /// Longer than a loaded machine lets a test wait between a beat and its packet.
    const STALE_AFTER: Duration = Duration::from_secs(2);
    /// Answers of a program (enum tcx_action_base, include/uapi/linux/bpf.h).
    const TCX_NEXT: i32 = -1;
    const TCX_DROP: i32 = 2;

    fn none() -> ClassifiedCounters {
        ClassifiedCounters::default()
    }

    /// With bundles to 10.2.0.0/16 and 10.3.0.0/16.
    fn classes(leaves: u32) -> Option<Classes> {
        classes_for(leaves, 1)
    }

    /// As [`classes`], of so many packets that may wait: those of trial runs find none before them.
    fn classes_for(leaves: u32, most_packets: u32) -> Option<Classes> {
        if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
            return None;
        }
        let options = ClassesOptions {
            lan: LAN,
            wan: WAN,
            leaves,
            most_packets,
            most_bytes: 1,
            stale_after: STALE_AFTER,
        };
        let mut classes = Classes::load(options).unwrap();
        for (id, to) in [(5, "10.2.0.0/16"), (6, "10.3.0.0/16")] {
            let bundle = SamplerBundle {
                source: vec!["0.0.0.0/0".parse().unwrap()],
                destination: vec![to.parse().unwrap()],
                key: SamplingKey::IDENTITY,
                epoch_size: EpochSize::MAX,
                version: BlockVersion::V2,
            };
            classes.sampler.set_bundle(BundleId(id), bundle).unwrap();
        }
        classes.sampler.add_own_address("10.2.0.9".parse().unwrap()).unwrap();
        Some(classes)
    }

    /// The priority of a UDP packet from 10.1.0.`host`, which came in at a device.
    fn priority(classes: &Classes, host: u8, to: [u8; 4], ingress: u32) -> u32 {
        classified(classes, host, to, ingress).0
    }

    /// As [`priority`], and what was answered to the kernel.
    fn classified(classes: &Classes, host: u8, to: [u8; 4], ingress: u32) -> (u32, i32) {
        let mut frame = vec![0; 60];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[17] = 46;
        frame[22..24].copy_from_slice(&[64, 17]);
        frame[26..30].copy_from_slice(&[10, 1, 0, host]);
        frame[30..34].copy_from_slice(&to);
        let mut buffer: Buffer = [0; 48];
        buffer[INGRESS_IFINDEX] = ingress;
        let run = run_at_tc(classes.classify.as_fd(), &frame, 1, &mut buffer);
        (buffer[PRIORITY], run.action as i32)
    }

    #[test]
    fn packets_from_the_lan_are_put_into_the_class_of_their_bundle_while_the_process_beats() {
        let Some(classes) = classes(0) else { return };
        let priority = |to, ingress| priority(&classes, 1, to, ingress);
        let class = |id| classes.at(classes.place(BundleId(id)).unwrap()).0;
        assert_eq!([5, 6].map(class), [0xfb_0001, 0xfb_0002]);
        assert_eq!(classes.place(BundleId(7)), None);
        assert_eq!(priority([10, 2, 0, 1], LAN), 0, "before the first beat");
        classes.beat();
        assert_eq!(priority([10, 2, 0, 1], LAN), class(5));
        assert_eq!(priority([10, 3, 0, 1], LAN), class(6));
        assert_eq!(priority([10, 4, 0, 1], LAN), 0, "outside");
        assert_eq!(priority([10, 2, 0, 9], LAN), 0, "the box's own");
        assert_eq!(priority([10, 2, 0, 1], 1), 0, "not from the LAN");
        classes.stop_beating();
        assert_eq!(priority([10, 2, 0, 1], LAN), 0, "after a clean stop");
        let expected = ClassifiedCounters { bundles: 2, own: 1, outside: 1, stale: 2, ..none() };
        assert_eq!(classes.classified().unwrap(), expected);
        assert_eq!(classes.departed().unwrap(), DepartedCounters::default());
        // Nothing takes them out again in a trial run.
        assert_eq!([0, 1, 2].map(|place| classes.ledger(place).waiting), [1, 1, 0]);
    }

    #[test]
    fn what_comes_once_too_much_waits_is_dropped_if_it_is_of_a_bundle() {
        let Some(classes) = classes_for(0, 0) else { return };
        let action = |to| classified(&classes, 1, to, LAN).1;
        assert_eq!(action([10, 2, 0, 1]), TCX_NEXT, "before the first beat");
        classes.beat();
        assert_eq!(action([10, 2, 0, 1]), TCX_DROP);
        assert_eq!([action([10, 4, 0, 1]), action([10, 2, 0, 9])], [TCX_NEXT; 2]);
        let expected = ClassifiedCounters { full: 1, own: 1, outside: 1, stale: 1, ..none() };
        assert_eq!(classes.classified().unwrap(), expected);
    }

    #[test]
    fn it_stands_in_front_of_programs_that_were_at_the_way_out_before() {
        if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
            return;
        }
        let apart = std::thread::spawn(|| {
            // SAFETY: a plain number.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
            // The loopback device is the first of a network namespace.
            let options = ClassesOptions {
                lan: 1,
                wan: 1,
                leaves: 0,
                most_packets: 1,
                most_bytes: 1,
                stale_after: STALE_AFTER,
            };
            let [before, it] = [options; 2].map(|options| Classes::attach(options).unwrap());
            let ids = [&it, &before].map(|of| program::info(of.classify.as_fd()).unwrap().id);
            assert_eq!(tcx_ids(1, true).unwrap(), ids);
            assert_eq!(tcx_programs(1, true).unwrap(), [CLASSIFY; 2]);
        });
        apart.join().unwrap();
    }

    #[test]
    fn the_more_bundles_the_fewer_leaves_and_all_have_classes_of_their_own() {
        let leaves = [0, 1, 16, 17, 62, 1000, MAX_BUNDLES].map(Classes::leaves);
        assert_eq!(leaves, [1024, 1024, 1024, 512, 256, 16, 16]);
        let Some(classes) = classes(Classes::leaves(1000)) else { return };
        assert_eq!(classes.room(), MAX_BUNDLES);
        let all: Vec<_> = (0..classes.room()).map(|place| classes.at(place)).collect();
        assert!(all.windows(2).all(|two| two[0].1.end == two[1].1.start && two[0].0 < two[1].0));
        assert!(all[0].1.start > all[MAX_BUNDLES - 1].0);
        assert!(all[MAX_BUNDLES - 1].1.end < QDISC + (1 << 16));
    }

    #[test]
    fn flows_are_spread_over_the_leaves_of_their_bundle() {
        let Some(classes) = classes(64) else { return };
        classes.beat();
        let mut used = std::collections::BTreeSet::new();
        for (id, to) in [(5, [10, 2, 0, 1]), (6, [10, 3, 0, 1])] {
            let (_, leaves) = classes.at(classes.place(BundleId(id)).unwrap());
            assert_eq!(leaves.len(), 64);
            for host in 0..50 {
                let class = priority(&classes, host, to, LAN);
                assert!(leaves.contains(&class), "{class:#x} of {leaves:#x?}");
                assert_eq!(priority(&classes, host, to, LAN), class, "a flow keeps its leaf");
                used.insert(class);
            }
        }
        assert!(used.len() > 40, "{}", used.len());
    }
}
