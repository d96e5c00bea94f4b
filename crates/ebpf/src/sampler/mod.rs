//! The sampler programs: they count the packets of bundles and report those that close an epoch.

pub(crate) mod maps;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use forebay_core::bundle::{BlockVersion, BundleId, EpochSize, Nat, Report};
use forebay_core::units::{ByteCount, Timestamp};
use ipnet::IpNet;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, RingBuffer, RingBufferBuilder};

use self::maps::Maps;
pub(crate) use self::maps::maps;
use crate::attach::{TcxLink, TcxSide, XdpLink, XdpMode};
use crate::key::{address_key, pair_key, prefix_key, prefix_length};
use crate::mapped::MappedWords;
use crate::membership::{self, MAX_BUNDLES, Sites};
use crate::skel::sampler::types;
use crate::skel::{self, Plain, word_of};
use crate::watched::{Boundary, BundleCounters, MAX_LEFT_OUT, MessageEnd, SamplerBundle};
use crate::{Error, program};

/// Where a sampler's program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplerPlace {
    /// On frames as they come in. In generic mode packets that the kernel has merged are counted as one: GRO must be
    /// off on the device.
    Xdp(XdpMode),
    /// At tc, behind all merging of packets. The packets that a super-packet was merged from are counted and
    /// sampled by version 2 of the block, also where the bundle says version 1.
    Tcx,
}

/// The attached sampler of one device. Dropping it detaches.
#[derive(Debug)]
pub struct Sampler {
    bundles: BTreeMap<BundleId, Slot>,
    installed: Installed,
    maps: Maps,
    settings: MappedWords,
    ring: RingBuffer<'static>,
    records: mpsc::Receiver<Boundary>,
    program: OwnedFd,
    is_at_tc: bool,
    link: Option<Link>,
}

/// Contents of the tries, also after the kernel has refused a change.
#[derive(Debug, Default)]
struct Installed {
    destinations: BTreeMap<IpNet, Destination>,
    /// The slot of the bundle that lists a destination and a source prefix.
    pairs: BTreeMap<(IpNet, IpNet), u32>,
    /// Numbers that were given back, and how many there were.
    free: Vec<u32>,
    numbers: u32,
    /// The kernel has refused a part of the last change.
    is_behind: bool,
}

/// A destination prefix of pairs that are there.
#[derive(Debug)]
struct Destination {
    number: u32,
    /// The program finds it.
    is_there: bool,
}

#[derive(Debug)]
enum Link {
    Xdp(XdpLink),
    Tcx { _held: TcxLink },
}

#[derive(Debug)]
struct Slot {
    index: usize,
    sites: Sites,
    /// Destinations and sources that are left out.
    left_out: [BTreeSet<IpAddr>; 2],
}

/// Words of 8 bytes in a bundle's entry.
const WORDS_PER_BUNDLE: usize = size_of::<types::bundle>() / 8;

impl Sampler {
    /// Loads the program and attaches it to frames as they come in at a device of the current network namespace.
    pub fn attach(ifindex: u32) -> Result<Self, Error> {
        let mut sampler = Self::load()?;
        sampler.link = Some(Link::Xdp(XdpLink::attach(sampler.program.as_fd(), ifindex)?));
        Ok(sampler)
    }

    /// As [`Sampler::attach`], at tc ([`SamplerPlace::Tcx`]); needs Linux 6.6.
    pub fn attach_at_tc(ifindex: u32) -> Result<Self, Error> {
        let mut sampler = Self::load_at_tc()?;
        let held = TcxLink::attach(sampler.program.as_fd(), ifindex, TcxSide::Ingress)?;
        sampler.link = Some(Link::Tcx { _held: held });
        Ok(sampler)
    }

    /// Attaches the program to another device, after the one before was deleted: bundles and counters
    /// stay. Needs no more than bpf(2), with `CAP_BPF`.
    pub fn attach_anew(&mut self, device: &str, ifindex: u32) -> Result<(), Error> {
        self.link = None;
        let program = self.program.as_fd();
        self.link = Some(if self.is_at_tc {
            Link::Tcx { _held: TcxLink::attach_anew(program, device, ifindex, TcxSide::Ingress)? }
        } else {
            Link::Xdp(XdpLink::attach_anew(program, device, ifindex)?)
        });
        Ok(())
    }

    fn load() -> Result<Self, Error> {
        program::quiet_libbpf();
        let mut storage = MaybeUninit::uninit();
        let loaded = skel::sampler::SamplerSkelBuilder::default()
            .open(&mut storage)
            .and_then(|open| open.load())
            .map_err(Error::load("sampler"))?;
        let program = program::descriptor("sampler", loaded.progs.sampler.as_fd())?;
        Self::of(maps!(loaded.maps), program, false)
    }

    fn load_at_tc() -> Result<Self, Error> {
        program::quiet_libbpf();
        let mut storage = MaybeUninit::uninit();
        let loaded = skel::merged::MergedSkelBuilder::default()
            .open(&mut storage)
            .and_then(|open| open.load())
            .map_err(Error::load("merged"))?;
        let program = program::descriptor("merged", loaded.progs.merged.as_fd())?;
        Self::of(maps!(loaded.maps), program, true)
    }

    /// The sampler of a program that is loaded, and not attached, with its maps.
    pub(crate) fn of(maps: Maps, program: OwnedFd, is_at_tc: bool) -> Result<Self, Error> {
        let settings = MappedWords::new(maps.bundles.as_fd(), MAX_BUNDLES * WORDS_PER_BUNDLE)
            .map_err(|source| Error::Map { map: "bundles", source })?;
        let (sender, records) = mpsc::channel();
        let mut ring = RingBufferBuilder::new();
        ring.add(&maps.boundaries, move |bytes| {
            // The receiver lives as long as the ring.
            let _ = Boundary::parse(bytes).map(|boundary| sender.send(boundary));
            0
        })
        .map_err(Error::map("boundaries"))?;
        let ring = ring.build().map_err(Error::map("boundaries"))?;
        Ok(Self {
            bundles: BTreeMap::new(),
            installed: Installed::default(),
            maps,
            settings,
            ring,
            records,
            program,
            is_at_tc,
            link: None,
        })
    }

    /// Where the program runs; `None`: it is not attached.
    pub fn place(&self) -> Option<SamplerPlace> {
        self.link.as_ref().map(|link| match link {
            Link::Xdp(link) => SamplerPlace::Xdp(link.mode),
            Link::Tcx { .. } => SamplerPlace::Tcx,
        })
    }

    /// Watches a bundle from now on, or changes one. The counters of a bundle that is changed go
    /// on; a key change may give the packets of one instant neither the old hash nor the new one.
    ///
    /// # Errors
    ///
    /// As for [`Sampler::change`].
    pub fn set_bundle(&mut self, id: BundleId, bundle: SamplerBundle) -> Result<(), Error> {
        self.change(&[], vec![(id, bundle)])
    }

    /// Stops watching the bundles `gone`, and watches or changes the bundles in `set`, as
    /// [`Sampler::set_bundle`] would: all at once, so that prefixes may go from one bundle to another.
    ///
    /// # Errors
    ///
    /// Refused, with everything as before: bundles that overlap in both source and destination where neither
    /// destination prefix is the longer one, and more than [`MAX_BUNDLES`] bundles. If the kernel refuses, a
    /// part may have changed: the next call does the rest, together with its own change.
    pub fn change(
        &mut self,
        gone: &[BundleId],
        set: Vec<(BundleId, SamplerBundle)>,
    ) -> Result<(), Error> {
        // Another key or version moves no prefix.
        let moves = self.installed.is_behind
            || !gone.is_empty()
            || set.iter().any(|(id, bundle)| !self.has(*id, bundle));
        if moves {
            self.check(gone, &set)?;
        }
        for id in gone {
            self.set_senders(*id, &[])?;
            self.set_left_out(*id, &[])?;
            self.bundles.remove(id);
        }
        if !gone.is_empty() {
            // Before another bundle has the slot.
            self.install()?;
        }
        let taken: BTreeSet<usize> = self.bundles.values().map(|slot| slot.index).collect();
        let mut free = (0..MAX_BUNDLES).filter(|index| !taken.contains(index));
        for (id, bundle) in set {
            let before = self.bundles.remove(&id);
            let is_new = before.is_none();
            let (index, left_out) = match before {
                Some(slot) => (slot.index, slot.left_out),
                None => {
                    let index = free.next().ok_or(Error::TooManyBundles { max: MAX_BUNDLES })?;
                    (index, Default::default())
                }
            };
            let sites = Sites::of(&bundle);
            self.bundles.insert(id, Slot { index, sites, left_out });
            if is_new {
                self.zero_counters(index)?;
            }
            let key = u128::from_le_bytes(bundle.key.0);
            let settings = types::bundle {
                key: [key as u64, (key >> 64) as u64],
                epoch_mask: u64::from(bundle.epoch_size.packets() - 1),
                id: id.0.into(),
                version: bundle.version as u32,
                nat: changed(bundle.version),
            };
            for (to, from) in self.settings_of(index).iter().zip(settings.words()) {
                to.store(from, Ordering::Relaxed);
            }
        }
        if moves { self.install() } else { Ok(()) }
    }

    /// Whether a bundle is watched with these prefixes.
    fn has(&self, id: BundleId, bundle: &SamplerBundle) -> bool {
        let listed = |sites: &Sites| {
            (&sites.source, &sites.destination) == (&bundle.source, &bundle.destination)
        };
        self.bundles.get(&id).is_some_and(|slot| listed(&slot.sites))
    }

    /// Leaves packets from these addresses out of a bundle, and counts packets from all other addresses
    /// again: a sendbox's own packets do not pass its LAN port. If there are more than [`MAX_LEFT_OUT`], the
    /// first count. Nothing happens if the bundle is not watched.
    pub fn set_senders(&mut self, id: BundleId, addresses: &[IpAddr]) -> Result<(), Error> {
        self.set_ends(id, true, addresses)
    }

    /// As [`Sampler::set_senders`], for packets to these addresses.
    pub fn set_left_out(&mut self, id: BundleId, addresses: &[IpAddr]) -> Result<(), Error> {
        self.set_ends(id, false, addresses)
    }

    fn set_ends(
        &mut self,
        id: BundleId,
        is_source: bool,
        addresses: &[IpAddr],
    ) -> Result<(), Error> {
        let Some(slot) = self.bundles.get_mut(&id) else { return Ok(()) };
        let wanted: BTreeSet<IpAddr> = addresses.iter().take(MAX_LEFT_OUT).copied().collect();
        let (index, held) = (slot.index as u32, &mut slot.left_out[usize::from(is_source)]);
        let differing: Vec<IpAddr> = held.symmetric_difference(&wanted).copied().collect();
        for address in differing {
            let (slot, is_source) = (index, is_source.into());
            let key = types::left_out { address: address_key(address), slot, is_source };
            let (key, map) = (key.as_bytes(), &self.maps.left_out);
            if wanted.contains(&address) {
                map.update(key, &[1], MapFlags::ANY).map_err(Error::map("left_out"))?;
                held.insert(address);
            } else {
                map.delete(key).map_err(Error::map("left_out"))?;
                held.remove(&address);
            }
        }
        Ok(())
    }

    /// Changes a bundle's epoch size, by one store to memory; false if the bundle is not watched.
    pub fn set_epoch_size(&self, id: BundleId, size: EpochSize) -> bool {
        let Some(slot) = self.bundles.get(&id) else { return false };
        // Relaxed: the mask carries no other data with it.
        self.settings_of(slot.index)[word_of!(types::bundle, epoch_mask)]
            .store(u64::from(size.packets() - 1), Ordering::Relaxed);
        true
    }

    /// Leaves messages of the boxes out of all bundles from now on: UDP packets with these ends; ends given
    /// before no longer count.
    pub fn set_messages(&mut self, ends: &BTreeSet<MessageEnd>) -> Result<(), Error> {
        self.maps.messages.set(ends.iter().map(MessageEnd::key).collect())
    }

    /// Hands the boundaries that wait to `f`, roughly in order of arrival (packets that arrived on
    /// different CPUs at the same time may change places); returns how many.
    pub fn consume(&mut self, f: &mut dyn FnMut(Boundary)) -> Result<usize, Error> {
        self.ring.consume().map_err(Error::map("boundaries"))?;
        Ok(self.records.try_iter().map(f).count())
    }

    /// Readable when boundaries wait.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.maps.boundaries.as_fd()
    }

    /// Counters of a bundle; `None` if it is not watched.
    pub fn counters(&self, id: BundleId) -> Result<Option<BundleCounters>, Error> {
        let Some(slot) = self.bundles.get(&id) else { return Ok(None) };
        let value = self
            .maps
            .counters
            .lookup(&(slot.index as u32).to_ne_bytes(), MapFlags::LOCK)
            .map_err(Error::map("counters"))?;
        let counters = value.and_then(|value| types::counters::from_bytes(&value));
        Ok(counters.map(|types::counters { bytes, packets, ce, .. }| BundleCounters {
            bytes: ByteCount::new(bytes),
            packets,
            ce,
        }))
    }

    /// The place of a bundle among the watched bundles; `None` if it is not watched.
    pub(crate) fn slot(&self, id: BundleId) -> Option<u32> {
        self.bundles.get(&id).map(|slot| slot.index as u32)
    }

    /// Boundaries lost because they were not read in time, since the start.
    pub fn lost_boundaries(&self) -> Result<u64, Error> {
        program::per_cpu_sum("lost", &self.maps.lost, 0)
    }

    fn settings_of(&self, index: usize) -> &[std::sync::atomic::AtomicU64] {
        &self.settings.words()[index * WORDS_PER_BUNDLE..][..WORDS_PER_BUNDLE]
    }

    /// Whether the bundles can be watched together.
    fn check(&self, gone: &[BundleId], set: &[(BundleId, SamplerBundle)]) -> Result<(), Error> {
        let before = self.bundles.iter().map(|(id, slot)| (*id, &slot.sites));
        membership::check(&membership::changed(before, gone, set))
    }

    fn zero_counters(&self, index: usize) -> Result<(), Error> {
        let zeros = types::counters::default();
        self.maps
            .counters
            .update(&(index as u32).to_ne_bytes(), zeros.as_bytes(), MapFlags::LOCK)
            .map_err(Error::map("counters"))
    }

    /// Brings the tries in line with the bundles, one atomic change of an entry at a time. A destination is there only
    /// with all its sources.
    fn install(&mut self) -> Result<(), Error> {
        let Self { bundles, installed, maps, .. } = self;
        let mut wanted: BTreeMap<(IpNet, IpNet), u32> = BTreeMap::new();
        for slot in bundles.values() {
            wanted.extend(slot.sites.pairs().map(|pair| (pair, slot.index as u32)));
        }
        let destinations: BTreeSet<IpNet> = wanted.keys().map(|(to, _)| *to).collect();
        installed.is_behind = true;
        for to in &destinations {
            installed.know(*to);
        }
        for (pair, slot) in &wanted {
            if installed.pairs.get(pair) != Some(slot) {
                let key = installed.key(pair);
                maps.pairs
                    .update(key.as_bytes(), &slot.to_ne_bytes(), MapFlags::ANY)
                    .map_err(Error::map("pairs"))?;
                installed.pairs.insert(*pair, *slot);
            }
        }
        for (to, destination) in &mut installed.destinations {
            let is_wanted = destinations.contains(to);
            if is_wanted == destination.is_there {
                continue;
            }
            let key = prefix_key(*to)?;
            let (length, number) = (prefix_length(*to), destination.number);
            let value = types::destination { length, number };
            let changed = if is_wanted {
                maps.destinations.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY)
            } else {
                maps.destinations.delete(key.as_bytes())
            };
            changed.map_err(Error::map("destinations"))?;
            destination.is_there = is_wanted;
        }
        let stale: Vec<(IpNet, IpNet)> =
            installed.pairs.keys().filter(|pair| !wanted.contains_key(pair)).copied().collect();
        for pair in stale {
            let key = installed.key(&pair);
            maps.pairs.delete(key.as_bytes()).map_err(Error::map("pairs"))?;
            installed.pairs.remove(&pair);
        }
        let given_back = installed.destinations.extract_if(.., |to, _| !destinations.contains(to));
        installed.free.extend(given_back.map(|(_, destination)| destination.number));
        installed.is_behind = false;
        Ok(())
    }
}

/// All bits for sources, and for destinations, where a version of the block leaves out the fields that NAT
/// changes.
fn changed(version: BlockVersion) -> [u64; 2] {
    let changes = |end: fn(Nat) -> bool| version.nat().is_some_and(end);
    [changes(Nat::changes_source), changes(Nat::changes_destination)]
        .map(|is_out| if is_out { u64::MAX } else { 0 })
}

impl Installed {
    /// Gives a destination a number that no other has, unless it has one.
    fn know(&mut self, to: IpNet) {
        let Self { destinations, free, numbers, .. } = self;
        destinations.entry(to).or_insert_with(|| {
            let number = free.pop().unwrap_or_else(|| {
                *numbers += 1;
                *numbers
            });
            Destination { number, is_there: false }
        });
    }

    /// The key of a pair, whose destination has a number.
    fn key(&self, (to, from): &(IpNet, IpNet)) -> types::pair {
        pair_key(self.destinations[to].number, *from)
    }
}

impl Boundary {
    /// `None`: the program writes no such bytes.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let record = types::boundary::from_bytes(bytes)?;
        Some(Self {
            bundle: BundleId(record.bundle as u16),
            report: Report {
                hash: record.hash,
                received_at: Timestamp::from_nanos(record.received_at_ns),
                received_bytes: ByteCount::new(record.received_bytes),
                received_packets: record.received_packets,
                received_ce: record.received_ce,
                epoch_size: EpochSize::from_log2(record.epoch_mask.trailing_ones() as u8)?,
            },
            identity: record.identity,
            ahead: ByteCount::new(record.ahead_bytes),
        })
    }
}
