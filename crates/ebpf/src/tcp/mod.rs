//! Congestion control of this machine's TCP connections: the datapath whose algorithm runs in user
//! space, as in CCP (Narayan et al., SIGCOMM 2018), and algorithms that run in the kernel alone.
//!
//! A [`Datapath`] registers a congestion control by name. Each connection that takes it gets a slot and
//! writes [`Record`]s: one per round or interval, and one at once for an event that cannot wait. Its reader
//! answers each with a [`Decision`], by a store to memory. Between decisions the kernel executes the
//! decision's interim, acknowledgement by acknowledgement (`forebay_core::cc::interim`).
//!
//! A connection that gets no answers any more falls back to Reno or Cubic in the kernel within max(4 RTT, 100
//! ms), and so does one that finds no slot. A fresh answer ends that. A user (uid) has a share of the slots,
//! and root a reserve: `bpf/tcp_share.h`. A BPF link holds the name: the name goes with its process, and
//! connections that use it keep their algorithm.

mod algorithm;
mod costs;
mod halves;
mod load;
mod meter;
mod native;
mod pins;
mod report;
mod shares;
mod slot;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use forebay_core::cc::interim::{Interim, Terms};
use forebay_core::units::ByteCount;
use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBuffer};

pub use self::algorithm::CoreLaw;
pub use self::costs::{Empty, ProgramTime, RunTimes, program_times};
use self::halves::Halves;
pub use self::meter::Meter;
pub use self::native::{Native, NativeKind};
use self::pins::Pins;
pub use self::report::{CaState, Events, FlowId, Head, Mode, Opened, RECORD_LEN, Record, Report};
use self::shares::Shares;
pub use self::shares::{Holder, SHARE_OF_FREE};
pub use self::slot::{Cadence, Decision, Reporting};
use self::slot::{Slot, Slots};
use crate::Error;
use crate::mapped::MappedWords;
use crate::skel::tcp_datapath::types::counters;
use crate::skel::word_of;

/// Longest name of a congestion control, in bytes (`TCP_CA_NAME_MAX` without its end).
pub const NAME_MAX: usize = 15;

/// The algorithm of a connection that gets no decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// Reno (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
}

/// How to register a datapath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Name of the congestion control, 1 to [`NAME_MAX`] bytes of letters, digits, `_` and `-`.
    pub name: String,
    /// The algorithm without decisions.
    pub fallback: Fallback,
    /// The interim before the first decision.
    pub first: Interim,
    /// Connections at a time, 1 to 65,535; more count as that.
    pub flows: u32,
    /// Records that may wait at a time without loss, at least 1; there is room for twice as many, each in 128
    /// bytes.
    pub records: u32,
    /// Connections ask for ECN regardless of `net.ipv4.tcp_ecn`, like DCTCP connections. A listener agrees if
    /// its algorithm asks for it too, or the route to the peer says `features ecn`.
    pub ecn: bool,
    /// Directory on a BPF file system, for this name alone. Maps that [`Datapath::pin`] has kept there are
    /// used again, in the size they have: connections that outlive their reader are under the next one.
    pub pins: Option<PathBuf>,
}

impl Options {
    /// Room for 16,384 connections and 30,000 records that wait (7.7 MB); nothing pinned.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_string(),
            fallback: Fallback::default(),
            first: Interim {
                growth: ByteCount::new(1448),
                slow_start: forebay_core::cc::interim::SlowStart::HyStartPlusPlus,
                beta: Some(forebay_core::cc::interim::Beta::of(1, 2)),
                ..Interim::HOLD
            },
            flows: 16_384,
            records: 30_000,
            ecn: false,
            pins: None,
        }
    }

    /// The first interim, as it counts before a connection has a segment size of its own.
    fn first_terms(&self) -> Terms {
        Terms::new(&self.first, ByteCount::new(1448))
    }
}

/// Counts since the datapath was registered, or since its pinned maps were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that took it.
    pub opened: u64,
    /// Connections with a slot that ended or took another.
    pub closed: u64,
    /// Connections that found no slot when they began and are under the kernel's algorithm.
    pub refused: u64,
    /// Connections without a slot whose user held its share of the slots.
    pub beyond_share: u64,
    /// Connections that got a slot later: they had found none, or lost theirs while they were silent.
    pub regained: u64,
    /// Requests for a slot in vain: at the start of a connection, and then once per second.
    pub in_vain: u64,
    /// Records written, including dropped ones.
    pub records: u64,
    /// Records that found no room.
    pub dropped: u64,
    /// Times that a connection fell back, including connections without a slot.
    pub fallbacks: u64,
    /// Times that a connection resumed.
    pub resumed: u64,
    /// Decisions that were torn, out of date or for a connection that has ended.
    pub refused_decisions: u64,
    /// Reductions, restored windows and begins that the kernel did not pass to the programs, made up for
    /// later.
    pub made_up: u64,
}

/// The mode of a slot that the queue of free slots did not take back (`MODE_STRANDED`).
const STRANDED: u64 = 4;
/// Place among [`pins::MAPS`] of the ring that wakes the reader.
const WAKES: usize = 1;
/// Place among [`pins::MAPS`] of the queue of free slots.
const FREE_SLOTS: usize = 4;

/// A registered datapath. Dropping it frees the name, unless it is pinned; connections that use it go on
/// under the kernel's algorithm.
#[derive(Debug)]
pub struct Datapath {
    name: String,
    pins: Option<Pins>,
    slots: Slots,
    modes: MappedWords,
    shares: Shares,
    flows: u32,
    counts: MappedWords,
    /// In the order of [`pins::MAPS`].
    maps: [MapHandle; pins::MAPS.len()],
    /// Stranded slots that there were when they were last given back.
    given_back: u64,
    halves: Halves,
    /// The ring that wakes the reader; it carries no data.
    wakes: RingBuffer<'static>,
    instructions: Vec<(&'static str, u32)>,
    link: OwnedFd,
}

impl Datapath {
    /// Loads the programs and registers the congestion control, for all network namespaces.
    ///
    /// Errors: no privilege; a kernel that cannot run them; a name that is taken or impossible; pins
    /// that another process uses or another version has left.
    pub fn register(options: &Options) -> Result<Self, Error> {
        load::register(options)
    }

    /// A datapath that the kernel neither asks for windows nor notifies of reductions. The kernel takes
    /// `left_out` segments for a threshold and for a window that is restored. If odd, it notifies of no state
    /// at all.
    #[cfg(test)]
    pub(super) fn left_out(options: &Options, left_out: u32) -> Result<Self, Error> {
        load::register_for(options, load::Hook { left_out, ..load::Hook::of_kernel() })
    }

    /// A datapath that the kernel does not notify of connections that begin.
    #[cfg(test)]
    pub(super) fn without_init(options: &Options) -> Result<Self, Error> {
        let hook = load::Hook { is_init_left_out: true, ..load::Hook::of_kernel() };
        load::register_for(options, hook)
    }

    /// The name to select it by (socket option `TCP_CONGESTION`, `congctl` of a route, sysctl
    /// `net.ipv4.tcp_congestion_control`).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Hands the waiting records to `take`, each connection's in order; returns how many. No system call.
    pub fn drain(&mut self, take: &mut dyn FnMut(Record)) -> Result<usize, Error> {
        // First: a record that comes from now on wakes again.
        self.wakes.consume().map_err(Error::map("wakes"))?;
        let stranded = self.counts.words()[word_of!(counters, stranded)].load(Ordering::Relaxed);
        if stranded != self.given_back {
            self.give_back(stranded);
        }
        let mut count = 0;
        self.halves.drain(&mut |bytes| {
            if let Some(record) = Record::parse(bytes) {
                count += 1;
                take(record);
            }
        });
        Ok(count)
    }

    /// Whether [`Datapath::drain`] has a record to take, or soon will: a record that is being written may wake
    /// no reader.
    pub fn has_records(&self) -> bool {
        self.halves.has_records()
    }

    /// Gives back the slots that the datapath could not give back. If the queue does not take a slot now, it
    /// may take it the next time.
    fn give_back(&mut self, stranded: u64) {
        let mut is_done = true;
        for (slot, word) in self.modes.words().iter().enumerate() {
            // No other code writes there before the slot is taken from the queue.
            if word.load(Ordering::Relaxed) == STRANDED {
                word.store(0, Ordering::Relaxed);
                if !self.free(slot as u32) {
                    word.store(STRANDED, Ordering::Relaxed);
                    is_done = false;
                }
            }
        }
        if is_done {
            self.given_back = stranded;
        }
    }

    /// Lets the next connection have a slot without a connection; false: the queue does not take it now.
    fn free(&self, slot: u32) -> bool {
        // Once it is in the queue it may have another.
        let owner = self.shares.owner(slot);
        let is_free = self.maps[FREE_SLOTS].update(&[], &slot.to_ne_bytes(), MapFlags::ANY).is_ok();
        if is_free {
            self.shares.release(owner);
        }
        is_free
    }

    /// Sleeps for at most `timeout` until a record comes that cannot wait, and not at all if a record is
    /// there already. True if there is one. Records that can wait do not wake.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        if self.has_records() {
            return Ok(true);
        }
        let millis = timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
        let mut polled =
            libc::pollfd { fd: self.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        match unsafe { libc::poll(&mut polled, 1, millis) } {
            -1 => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                error => Err(error),
            },
            ready => Ok(ready > 0),
        }
    }

    /// While its reader sleeps, the next record of any kind wakes it, once. A reader sets this, drains once
    /// more and then sleeps unless [`Datapath::has_records`]; the record that wakes it clears this.
    pub fn set_asleep(&self, asleep: bool) {
        self.halves.set_asleep(asleep);
        // The datapath must see it before the records are looked at again.
        fence(Ordering::SeqCst);
    }

    /// Readable from a record that wakes until [`Datapath::drain`]; records that can wait do not show here.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.maps[WAKES].as_fd()
    }

    /// Answers a record: the connection takes the decision at its next acknowledgement. The newest
    /// record of a connection is enough. An answer that does not know of the last event neither
    /// moves the window nor the threshold. Does nothing for a connection that has ended.
    pub fn decide(&mut self, answers: &Head, decision: &Decision) {
        self.slots.write(answers.flow.slot, &Slot::new(answers, decision));
    }

    /// The mode of a connection now; `None` if it has ended.
    pub fn mode(&self, flow: FlowId) -> Option<Mode> {
        let word = self.modes.words().get(flow.slot as usize)?.load(Ordering::Relaxed);
        if (word >> 32) as u32 == flow.generation { Mode::of(word as u32) } else { None }
    }

    /// Takes back the slot of a silent connection: it may be idle, or the kernel may have kept its end to
    /// itself. If it lives, it goes on under the kernel's algorithm. Where slots are free, it gets another
    /// slot and another number within a second of its next acknowledgement, or with it after a longer
    /// silence. False: it has none, or the slot could not be freed now.
    pub fn take_back(&mut self, flow: FlowId) -> bool {
        let Some(word) = self.modes.words().get(flow.slot as usize) else { return false };
        let shown = word.load(Ordering::Relaxed);
        let is_taken = (shown >> 32) as u32 == flow.generation && shown as u32 != 0;
        if !is_taken
            || word.compare_exchange(shown, 0, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return false;
        }
        let is_free = self.free(flow.slot);
        if !is_free {
            word.store(shown, Ordering::Relaxed);
        }
        is_free
    }

    /// Every connection that has a slot, with its mode, read from memory.
    pub fn connections(&self) -> impl Iterator<Item = (FlowId, Mode)> + '_ {
        self.modes.words().iter().enumerate().filter_map(|(slot, word)| {
            let word = word.load(Ordering::Relaxed);
            let flow = FlowId { slot: slot as u32, generation: (word >> 32) as u32 };
            Some((flow, Mode::of(word as u32)?))
        })
    }

    /// The user to whom a connection belongs, as the initial user namespace numbers it: the owner of its
    /// socket when it got its slot; `None` if it has none.
    pub fn uid(&self, flow: FlowId) -> Option<u32> {
        self.mode(flow).map(|_| self.shares.uid(flow.slot))
    }

    /// The users that hold slots, the largest holder first.
    pub fn holders(&self) -> Vec<Holder> {
        self.shares.holders()
    }

    /// Slots that only root's own connections can take.
    pub fn reserved_slots(&self) -> u32 {
        self.shares.reserve()
    }

    /// All slots.
    pub fn slots(&self) -> u32 {
        self.flows
    }

    /// Slots without a connection.
    pub fn free_slots(&self) -> u32 {
        let taken =
            self.modes.words().iter().filter(|word| word.load(Ordering::Relaxed) as u32 != 0);
        self.flows.saturating_sub(taken.count() as u32)
    }

    /// The counts so far.
    pub fn counters(&self) -> Counters {
        let all: counters = self.counts.load();
        Counters {
            opened: all.opened,
            closed: all.closed,
            refused: all.refused,
            beyond_share: all.beyond_share,
            regained: all.regained,
            in_vain: all.in_vain,
            records: self.halves.count(),
            dropped: all.dropped,
            fallbacks: all.fallbacks,
            resumed: all.resumed,
            refused_decisions: all.refused_decisions,
            made_up: all.made_up,
        }
    }

    /// Instructions that the verifier looked at, program by program (0 before Linux 5.16).
    pub fn instructions(&self) -> &[(&'static str, u32)] {
        &self.instructions
    }

    /// Keeps name and maps when this process ends. The next process that registers with the same
    /// [`Options::pins`] takes the name over in one step. On an error nothing is kept.
    pub fn pin(&mut self) -> Result<(), Error> {
        let Some(pins) = &mut self.pins else { return Err(Error::NoPins) };
        pins.keep(self.link.as_fd(), &self.maps)
    }

    /// Removes the pins: with this process name and maps go too.
    pub fn unpin(&mut self) -> Result<(), Error> {
        self.pins.as_mut().map_or(Ok(()), Pins::give_up)
    }
}
