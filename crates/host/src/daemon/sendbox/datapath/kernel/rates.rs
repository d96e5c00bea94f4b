//! Rates of the classes. A thread of its own sets them, since that takes `CAP_NET_ADMIN`, which the packet
//! thread has dropped.
//!
//! The kernel may refuse a command, or another program may change or remove a part of the qdisc. Then the
//! thread reports it and sets everything again after a pause. Meanwhile the packet thread leaves the traffic
//! to the kernel, and packets in the remaining classes leave unshaped.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_core::units::{ByteCount, Rate};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::htb::{self, Changes, ForeignChange, Htb, Leaf};
use crate::service::privileges::seccomp::Task;
use crate::service::privileges::{self, Confinement};

/// Shortest time between two rates of a class: the tick of a control loop.
const SPACING: Duration = Duration::from_millis(5);
/// Time for making classes and setting leaves between two updates of rates. The thousand leaves of a bundle
/// take a tenth of a second, and its rate must not stay fixed meanwhile. A class takes longer to make the
/// more classes there are: the kernel goes through all classes (`tc_bind_tclass`, sch_api.c) under the lock
/// of all rtnetlink commands.
const MAKING: Duration = Duration::from_millis(1);
/// Super-packets are cut up at lower rates: there 64 KiB take 1.7 ms, and the next packet has to wait for
/// them.
const WHOLE_FROM: Rate = Rate::from_mbit_per_sec(300);
/// Below this share of [`WHOLE_FROM`], super-packets that were left whole are cut up again.
const CUT_BELOW: f64 = 0.8;
/// Longest super-packet (bytes), since its length has 16 bits, ...
const SUPER_PACKET_BYTES: u32 = 1 << 16;
/// ... and the same with headers for each of its packets.
const WHOLE_BYTES: u32 = 1 << 18;
/// Bytes that a leaf holds at any rate. Up to 2 Gbit/s and a round trip of 125 ms, the limit of a bundle
/// allows a single flow less than this.
const HELD: ByteCount = ByteCount::new(32 << 20);

/// Target of CoDel, the kernel's default (sch_fq_codel.c). It grows with [`CODEL_INTERVAL`].
const CODEL_TARGET: Duration = Duration::from_millis(5);
/// Interval of CoDel, the kernel's default (sch_fq_codel.c). Target and interval grow in proportion
/// to the least round trip once that exceeds a fifth of the interval, as in
/// [`forebay_core::qdisc::FqCodel`]. Otherwise CoDel would drop before a flow fills a longer path.
const CODEL_INTERVAL: Duration = Duration::from_millis(100);
/// Least round trips per interval of CoDel. A larger number drops later on long paths.
const CODEL_ROUND_TRIPS: u32 = 5;
/// Relative change of the least round trip that queues follow. Smaller ones are not worth a command to the
/// kernel.
const RTT_CHANGE: f64 = 0.1;

/// Pause between a failure and the next attempt. It doubles each time that another failure follows
/// soon.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause between a failure and the next attempt.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A failure this long after the one before does not follow soon.
const SETTLED: Duration = Duration::from_secs(60);

/// The rate of a place that no bundle has had: its classes do not exist yet.
const UNMADE: u64 = u64::MAX;

/// The classes of the bundle at one place.
#[derive(Clone, Debug)]
pub struct BundleClasses {
    /// The class that has the rate of the bundle.
    pub class: u32,
    /// Classes that packets are put into: the same class, or the classes below it.
    pub leaves: Range<u32>,
    /// Bytes of the longest frame.
    pub frame_bytes: u32,
    /// The kind of the qdisc in each leaf; `None`: a first-in, first-out queue.
    pub qdisc: Option<&'static str>,
}

impl BundleClasses {
    /// Makes the classes, unshaped.
    fn make(&self, htb: &Htb) -> io::Result<()> {
        htb.set_class(self.class, None)?;
        let leaves = &mut self.leaves.clone();
        leaves.try_for_each(|class| self.set_leaf(htb, class, UNSHAPED, Duration::ZERO, true))
    }

    /// Makes a leaf, or changes it. A leaf sends as many bytes at once as a flow sends in its turn. If the
    /// leaf is new or `has_other_turns` than before, these are set, too.
    fn set_leaf(
        &self,
        htb: &Htb,
        class: u32,
        leaf: Leaf,
        rtt: Duration,
        has_other_turns: bool,
    ) -> io::Result<()> {
        // The turn first: this creates the class if it does not exist.
        if has_other_turns && class != self.class {
            htb.set_sharer(class, self.class, turn_bytes(leaf))?;
        }
        htb.set_leaf(class, leaf)?;
        match self.qdisc {
            Some(kind) if has_other_turns => htb.set_queue(class, kind, &queue_options(kind, rtt)),
            _ => Ok(()),
        }
    }

    /// The new settings of the leaves at a rate, given that they are `now` this.
    fn leaf(&self, rate: Option<Rate>, now: Leaf) -> Leaf {
        let is_cut = rate.is_some_and(|rate| is_cut(rate, now.longest == self.frame_bytes));
        Leaf { longest: if is_cut { self.frame_bytes } else { WHOLE_BYTES }, ..UNSHAPED }
    }
}

/// Bytes that a leaf sends in its turn: the bytes that it lets through at once.
fn turn_bytes(leaf: Leaf) -> u32 {
    leaf.longest.min(SUPER_PACKET_BYTES)
}

/// Options of a queue of this kind on a path with this least round trip; zero: unknown.
fn queue_options(kind: &str, rtt: Duration) -> Vec<u8> {
    if kind != "fq_codel" {
        return Vec::new();
    }
    let interval = CODEL_INTERVAL.max(rtt * CODEL_ROUND_TRIPS);
    let factor = interval.as_secs_f64() / CODEL_INTERVAL.as_secs_f64();
    htb::fq_codel_options(CODEL_TARGET.mul_f64(factor), interval)
}

/// Leaves of a class without a rate.
const UNSHAPED: Leaf = Leaf { limit: HELD, longest: WHOLE_BYTES };

/// State that the packet thread wants.
struct Wanted {
    /// Rate at each place in bit/s; 0: none; or [`UNMADE`].
    rates: Vec<AtomicU64>,
    /// Least round trip of the path at each place (ns); 0: not known.
    rtts: Vec<AtomicU64>,
    /// Index of the device. The upper half counts how often the device was replaced.
    device: AtomicU64,
    changed: EventFd,
    is_over: AtomicBool,
    /// Reason why the classes differ from the wanted state, until they match again.
    failed: Mutex<Option<String>>,
}

impl Wanted {
    /// Rate and least round trip at a place.
    fn at(&self, place: usize) -> (u64, Duration) {
        let rtt_ns = self.rtts[place].load(Ordering::Relaxed);
        (self.rates[place].load(Ordering::Relaxed), Duration::from_nanos(rtt_ns))
    }

    fn failed(&self) -> MutexGuard<'_, Option<String>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The packet thread's handle of the thread. Dropping it removes the qdisc.
pub struct Rates {
    wanted: Arc<Wanted>,
    thread: Option<JoinHandle<()>>,
}

impl Rates {
    /// Makes the classes at the first places, one for each of the `bundles`, unshaped, and starts the thread.
    /// The thread runs under SCHED_FIFO if `realtime` is set and allowed: a late rate is a queue at the
    /// bottleneck. The classes at the other `places` are made once they have a rate.
    ///
    /// # Errors
    ///
    /// A command that the kernel refuses, or a thread that cannot be confined. The qdisc is removed again.
    pub fn start(
        htb: Htb,
        places: Vec<BundleClasses>,
        bundles: usize,
        realtime: bool,
        confinement: &Confinement,
    ) -> io::Result<Self> {
        let made = places[..bundles].iter().try_for_each(|place| place.make(&htb));
        let made = made.and_then(|()| htb.keep_queue_length());
        let changes = made.and_then(|()| htb.changes()).inspect_err(|_| {
            // The first error says more than an error of this call.
            let _ = htb.remove();
        })?;
        let first = move |place: usize| if place < bundles { 0 } else { UNMADE };
        let wanted = Arc::new(Wanted {
            rates: (0..places.len()).map(|place| AtomicU64::new(first(place))).collect(),
            rtts: places.iter().map(|_| AtomicU64::new(0)).collect(),
            device: AtomicU64::new(htb.ifindex().into()),
            changed: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            is_over: AtomicBool::new(false),
            failed: Mutex::default(),
        });
        let (shared, confinement) = (wanted.clone(), confinement.clone());
        let (begun, is_begun) = mpsc::channel();
        let thread = std::thread::Builder::new().name("rates".into()).spawn(move || {
            let places = places.into_iter().enumerate();
            let places = places.map(|(place, classes)| Set::new(classes, first(place))).collect();
            let device = htb.ifindex().into();
            let (state, failure) = (State::Set, None);
            let setter = Setter { htb, changes, wanted: shared, device, places, state, failure };
            // The status says whether the packet thread may, which is true of this thread as well.
            let _ = realtime && privileges::go_realtime();
            // Sending fails only if no thread waits for it.
            match confinement.confine(Task::Rates) {
                Ok(()) => {
                    let _ = begun.send(Ok(()));
                    setter.run();
                }
                Err(error) => {
                    let _ = begun.send(Err((error, setter.htb)));
                }
            }
        })?;
        // A thread that sends nothing has panicked.
        match is_begun.recv().map_err(io::Error::other)? {
            Ok(()) => Ok(Self { wanted, thread: Some(thread) }),
            Err((error, htb)) => {
                // In this thread, since the other one may have dropped the privilege for it.
                let _ = htb.remove();
                Err(error)
            }
        }
    }

    /// Sends the bundle at a place at this rate from now on, within milliseconds; `None`: unshaped. While
    /// there are no classes yet, packets of the bundle go past them. The classes of hundreds of bundles take
    /// seconds to make. Queues follow `rtt`, the least round trip of the path, if it is known.
    pub fn set(&self, place: usize, rate: Option<Rate>, rtt: Option<Duration>) {
        let rtt_ns = rtt.map_or(0, |rtt| rtt.as_nanos() as u64);
        self.wanted.rtts[place].store(rtt_ns, Ordering::Relaxed);
        let bits_per_s = rate.map_or(0, Rate::as_bits_per_sec);
        self.wanted.rates[place].store(bits_per_s, Ordering::Relaxed);
        self.wake();
    }

    /// Has qdisc and classes made at another device, which has replaced the one before, from now on. It may
    /// have the same index.
    pub fn follow(&self, ifindex: u32) {
        let times = (self.wanted.device.load(Ordering::Relaxed) >> 32) + 1;
        // First, because the thread clears it when it is done.
        *self.wanted.failed() = Some("the device was replaced".into());
        self.wanted.device.store(times << 32 | u64::from(ifindex), Ordering::Release);
        self.wake();
    }

    /// Reason why the classes differ from the wanted state, until they match again.
    pub fn failed(&self) -> Option<String> {
        self.wanted.failed().clone()
    }

    fn wake(&self) {
        // It fails only if the thread is about to wake anyway.
        let _ = self.wanted.changed.write(1);
    }
}

impl Drop for Rates {
    fn drop(&mut self) {
        self.wanted.is_over.store(true, Ordering::Relaxed);
        self.wake();
        // A thread that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Settings at a place.
struct Set {
    classes: BundleClasses,
    /// Rate in bit/s; 0: none; or [`UNMADE`].
    rate: u64,
    /// Least round trip that the queues follow; zero: unknown.
    rtt: Duration,
    /// State of the leaves at this place, except for `pending`.
    leaf: Leaf,
    /// Leaves that are still to be set to it, ...
    pending: Range<u32>,
    /// ... and whether their turns change, too.
    has_other_turns: bool,
    /// Another program may have changed the leaves, or the queues in them.
    is_doubtful: bool,
}

impl Set {
    /// State after [`BundleClasses::make`]. If that was not called, `rate` is [`UNMADE`].
    fn new(classes: BundleClasses, rate: u64) -> Self {
        let pending = classes.leaves.end..classes.leaves.end;
        let has_other_turns = rate == UNMADE;
        let (leaf, rtt) = (UNSHAPED, Duration::ZERO);
        Self { classes, rate, rtt, leaf, pending, has_other_turns, is_doubtful: false }
    }

    fn set_rate(&mut self, htb: &Htb, bits_per_s: u64, rtt: Duration) -> io::Result<()> {
        if rtt.abs_diff(self.rtt) > self.rtt.mul_f64(RTT_CHANGE) {
            self.follow_rtt(rtt);
        }
        if bits_per_s != self.rate {
            let rate = (bits_per_s > 0).then(|| Rate::from_bits_per_sec(bits_per_s));
            htb.set_class(self.classes.class, rate)?;
            self.follow(bits_per_s, rate);
        }
        Ok(())
    }

    /// Records another least round trip: perhaps the queues need other options.
    fn follow_rtt(&mut self, rtt: Duration) {
        let before = std::mem::replace(&mut self.rtt, rtt);
        let Some(kind) = self.classes.qdisc else { return };
        if self.rate != UNMADE && queue_options(kind, rtt) != queue_options(kind, before) {
            self.has_other_turns = true;
            self.pending = self.classes.leaves.clone();
        }
    }

    /// Records another rate: perhaps the leaves need other settings, too.
    fn follow(&mut self, bits_per_s: u64, rate: Option<Rate>) {
        let is_new = self.rate == UNMADE;
        self.rate = bits_per_s;
        let leaf = self.classes.leaf(rate, self.leaf);
        if is_new || leaf != self.leaf {
            self.has_other_turns |= leaf.longest != self.leaf.longest;
            self.pending = self.classes.leaves.clone();
            self.leaf = leaf;
        }
    }

    /// Drops all knowledge of the settings, which may be gone: everything is to be made again.
    fn forget(&mut self) {
        let (leaf, rtt) = (self.leaf, self.rtt);
        let fresh = Self::new(self.classes.clone(), UNMADE);
        *self = Self { leaf, rtt, is_doubtful: true, ..fresh };
    }

    /// Whether another program's change leaves the classes of this place as they were set; `None`: the change
    /// concerns nothing at this place.
    fn is_as_set(&self, htb: &Htb, change: &ForeignChange) -> Option<bool> {
        if self.rate == UNMADE {
            return None;
        }
        let BundleClasses { class, leaves, .. } = &self.classes;
        if htb.is_class(change, *class) {
            let rate = (self.rate > 0).then(|| Rate::from_bits_per_sec(self.rate));
            return Some(htb.is_bundle_as(change, rate));
        }
        let leaf = leaves.clone().find(|leaf| htb.is_at(change, *leaf))?;
        // A pending leaf will be set in any case.
        let is_set = self.pending.contains(&leaf);
        Some(is_set || htb.is_leaf_as(change, leaf, self.leaf, turn_bytes(self.leaf)))
    }
}

/// Progress of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The classes match the wanted state, or will at the next turn.
    Set,
    /// Nothing is set: the next attempt comes at this time.
    Failed(Instant),
    /// Everything is being set again.
    SettingAnew,
}

/// State that the thread owns.
struct Setter {
    htb: Htb,
    changes: Changes,
    wanted: Arc<Wanted>,
    /// The device last seen in [`Wanted`].
    device: u64,
    places: Vec<Set>,
    state: State,
    /// Time of the last failure, and the pause after it.
    failure: Option<(Instant, Duration)>,
}

impl Setter {
    fn run(mut self) {
        loop {
            let waited = self.wait();
            if let Err(error) = &waited {
                *self.wanted.failed() = Some(error.to_string());
            }
            if waited.is_err() || self.wanted.is_over.load(Ordering::Relaxed) {
                // A device that is gone has taken the qdisc along. A qdisc of another program stays.
                let _ = self.htb.remove();
                return;
            }
            let now = Instant::now();
            if let Err(error) = self.turn(now) {
                self.fail(now, &error);
            }
            std::thread::sleep(SPACING);
        }
    }

    /// Waits until there is something to do.
    fn wait(&self) -> io::Result<()> {
        let timeout = match self.state {
            // The timeout is cut to whole milliseconds.
            State::Failed(until) => {
                let left = until.saturating_duration_since(Instant::now());
                PollTimeout::try_from(left + SPACING).unwrap_or(PollTimeout::MAX)
            }
            State::Set | State::SettingAnew if self.is_all_set() => PollTimeout::NONE,
            State::Set | State::SettingAnew => PollTimeout::ZERO,
        };
        let sources = [self.wanted.changed.as_fd(), self.changes.as_fd()];
        match poll(&mut sources.map(|fd| PollFd::new(fd, PollFlags::POLLIN)), timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        // It fails if nothing has changed.
        let _ = self.wanted.changed.read();
        Ok(())
    }

    fn is_all_set(&self) -> bool {
        let wanted = self.wanted.rates.iter().map(|rate| rate.load(Ordering::Relaxed));
        let mut places = self.places.iter().zip(wanted);
        places.all(|(set, wanted)| {
            set.pending.is_empty() && (set.rate == UNMADE) == (wanted == UNMADE)
        })
    }

    /// Applies the wanted state as far as time allows.
    fn turn(&mut self, now: Instant) -> io::Result<()> {
        let device = self.wanted.device.load(Ordering::Acquire);
        if self.device != device {
            self.device = device;
            self.places.iter_mut().for_each(Set::forget);
            (self.state, self.failure) = (State::Failed(now), None);
            self.htb.follow(device as u32)?;
        }
        let changed = self.changes.take()?.map(|changes| self.difference(&changes));
        match self.state {
            State::Failed(until) if now < until => return Ok(()),
            State::Failed(_) => {
                self.begin_anew(now + MAKING)?;
                self.state = State::SettingAnew;
            }
            State::Set | State::SettingAnew => match changed {
                Some(None) => self.set_rates(now + MAKING)?,
                Some(Some(difference)) => return Err(io::Error::other(difference)),
                None => {
                    return Err(io::Error::other("the kernel lost messages about changes"));
                }
            },
        }
        self.set_leaves(Instant::now() + MAKING)?;
        if self.state == State::SettingAnew && self.is_all_set() {
            self.htb.keep_queue_length()?;
            self.state = State::Set;
            *self.wanted.failed() = None;
        }
        Ok(())
    }

    /// The first change by another program that makes the state differ from the settings, for people.
    fn difference(&self, changes: &[ForeignChange]) -> Option<String> {
        let Self { htb, places, .. } = self;
        let is_as_set = |change: &ForeignChange| {
            let here = htb.is_others_as(change);
            here.or_else(|| places.iter().find_map(|set| set.is_as_set(htb, change)))
        };
        changes.iter().filter(|change| htb.is_of(change)).find_map(|change| {
            if change.is_gone {
                Some(format!("another program has removed {change}"))
            } else {
                let is_other = is_as_set(change) == Some(false);
                is_other.then(|| format!("another program has changed {change}"))
            }
        })
    }

    /// Begins to make the classes. Puts the qdisc there again if it is missing.
    fn begin_anew(&mut self, until: Instant) -> io::Result<()> {
        match self.set_rates(until) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.htb.put().map_err(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => io::Error::new(
                        error.kind(),
                        "another program or user has configured \
                                                      another qdisc there",
                    ),
                    _ => error,
                })?;
                self.set_rates(until)
            }
            set => self.htb.set_others().and(set),
        }
    }

    /// Reports a failure, removes all shaping, and schedules a new attempt after a pause.
    fn fail(&mut self, now: Instant, error: &io::Error) {
        *self.wanted.failed() = Some(error.to_string());
        let pause = self.failure.map_or(PAUSE_MIN, |(at, pause)| next_pause(pause, now - at));
        self.failure = Some((now, pause));
        self.state = State::Failed(now + pause);
        // Waiting packets are to leave before more packets overtake them. If the kernel refuses, the next
        // attempt does it all.
        let is_shaped = |set: &&Set| ![0, UNMADE].contains(&set.rate);
        let mut shaped = self.places.iter().filter(is_shaped);
        let _ = shaped.try_for_each(|set| self.htb.set_class(set.classes.class, None));
        self.places.iter_mut().for_each(Set::forget);
    }

    /// Sets the rates of existing classes. Makes missing ones while time is left, but at least one.
    fn set_rates(&mut self, until: Instant) -> io::Result<()> {
        let is_made = |set: &Set| set.rate != UNMADE;
        for (place, set) in self.places.iter_mut().enumerate().filter(|(_, set)| is_made(set)) {
            let (rate, rtt) = self.wanted.at(place);
            set.set_rate(&self.htb, rate, rtt)?;
        }
        for (place, set) in self.places.iter_mut().enumerate() {
            let (wanted, rtt) = self.wanted.at(place);
            if set.rate == UNMADE && wanted != UNMADE {
                set.set_rate(&self.htb, wanted, rtt)?;
                if Instant::now() >= until {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sets pending leaves while time is left, but at least one.
    fn set_leaves(&mut self, until: Instant) -> io::Result<()> {
        for set in &mut self.places {
            while let Some(class) = set.pending.next() {
                if set.is_doubtful {
                    self.htb.remove_queue(class)?;
                }
                set.classes.set_leaf(&self.htb, class, set.leaf, set.rtt, set.has_other_turns)?;
                set.has_other_turns &= !set.pending.is_empty();
                set.is_doubtful &= !set.pending.is_empty();
                if Instant::now() >= until {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// The pause after a failure that came `after` the one before, which had the pause `before`.
fn next_pause(before: Duration, after: Duration) -> Duration {
    if after >= SETTLED { PAUSE_MIN } else { (2 * before).min(PAUSE_MAX) }
}

/// Whether to cut up super-packets at this rate, given whether they are cut now.
fn is_cut(rate: Rate, is_cut: bool) -> bool {
    let bits_per_s = rate.as_bits_per_sec() as f64;
    let limit = WHOLE_FROM.as_bits_per_sec() as f64;
    bits_per_s < if is_cut { limit } else { CUT_BELOW * limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(leaves: Range<u32>) -> BundleClasses {
        BundleClasses { class: 1, leaves, frame_bytes: 1518, qdisc: None }
    }

    #[test]
    fn segmentation_changes_with_hysteresis() {
        let mbit = Rate::from_mbit_per_sec;
        let cut = [10, 239, 299, 300, 10_000].map(|rate| is_cut(mbit(rate), true));
        assert_eq!(cut, [true, true, true, false, false]);
        let whole = [10, 239, 240, 300].map(|rate| is_cut(mbit(rate), false));
        assert_eq!(whole, [true, true, false, false]);
    }

    #[test]
    fn leaf_updates_are_batched_and_restart_with_rate() {
        let classes = classes(2..102);
        let mut added = Set::new(classes.clone(), UNMADE);
        added.follow(0, None);
        assert_eq!((&added.pending, added.has_other_turns), (&(2..102), true), "none is made yet");
        let mut set = Set::new(classes, 0);
        assert!(set.pending.is_empty(), "all are as they were made");
        let follow = |set: &mut Set, mbit_per_s| {
            let rate = Rate::from_mbit_per_sec(mbit_per_s);
            set.follow(rate.as_bits_per_sec(), Some(rate));
        };
        follow(&mut set, 100);
        assert_eq!((set.leaf.longest, set.has_other_turns), (1518, true));
        assert_eq!(set.pending.nth(59), Some(61));
        follow(&mut set, 1);
        assert_eq!(set.pending, 62..102, "such leaves do for that rate");
        follow(&mut set, 1000);
        assert_eq!((set.leaf.longest, &set.pending), (WHOLE_BYTES, &(2..102)));
    }

    #[test]
    fn queues_follow_the_round_trip() {
        let ms = Duration::from_millis;
        let options = |target, interval| htb::fq_codel_options(ms(target), ms(interval));
        for (rtt, target, interval) in [(0, 5, 100), (20, 5, 100), (40, 10, 200), (600, 150, 3000)]
        {
            assert_eq!(queue_options("fq_codel", ms(rtt)), options(target, interval), "{rtt} ms");
        }
        assert!(queue_options("cake", ms(600)).is_empty());
        let mut set =
            Set::new(BundleClasses { qdisc: Some("fq_codel"), ..classes(1..2) }, 1_000_000);
        set.follow_rtt(ms(15));
        assert_eq!((&set.pending, set.has_other_turns), (&(2..2), false), "the same options");
        set.follow_rtt(ms(40));
        assert_eq!((&set.pending, set.has_other_turns), (&(1..2), true));
    }

    #[test]
    fn failed_change_is_repeated_whole() {
        let mut set = Set::new(classes(2..102), 0);
        let rate = Rate::from_mbit_per_sec(100);
        set.follow(rate.as_bits_per_sec(), Some(rate));
        let leaf = set.leaf;
        assert_eq!(set.pending.nth(59), Some(61));
        set.forget();
        assert_eq!(set.rate, UNMADE);
        assert!(set.pending.is_empty(), "nothing before the next attempt");
        set.follow(rate.as_bits_per_sec(), Some(rate));
        assert_eq!((set.leaf, set.has_other_turns, &set.pending), (leaf, true, &(2..102)));
    }

    #[test]
    fn repeated_failures_lengthen_pauses_to_a_bound() {
        let mut pause = PAUSE_MIN;
        let mut next = |after| {
            pause = next_pause(pause, after);
            pause.as_millis()
        };
        let soon = SETTLED.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!([soon; 8].map(&mut next), [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!([SETTLED, soon].map(&mut next), [100, 200]);
    }
}
