//! The rates of classes: set by a thread of its own, since that takes `CAP_NET_ADMIN`, which the packet thread has given
//! up.
//!
//! Where the kernel refuses something, or another program changes the qdisc or takes a part of it away, the thread says
//! so, and sets all of it anew after a pause: the packet thread leaves the traffic to the kernel meanwhile, and what waits in classes
//! that are left leaves unshaped.

use std::io;
use std::ops::{Range, RangeInclusive};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_core::units::{ByteCount, Rate};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::htb::{self, Change, Changes, Htb, Leaf};
use crate::service::privileges::seccomp::Task;
use crate::service::privileges::{self, Confinement};

/// Shortest time between two rates of a class: that of the ticks of a control loop.
const SPACING: Duration = Duration::from_millis(5);
/// Between two settings of rates, classes are made and leaves set for so long. The thousand leaves of a bundle take a tenth
/// of a second, in which the rate is not to stay as it was; and a class takes the longer to make the more there are, since
/// the kernel goes through all of them (`tc_bind_tclass`, sch_api.c) under the lock of all rtnetlink commands.
const MAKING: Duration = Duration::from_millis(1);
/// Super-packets are cut up at lower rates: 64 KiB take 1.7 ms there, which the next packet waits.
const WHOLE_FROM: Rate = Rate::from_mbit_per_sec(300);
/// Super-packets that are left whole are cut up again below this share of [`WHOLE_FROM`].
const CUT_BELOW: f64 = 0.8;
/// A super-packet is no longer, for its length is told in 16 bits, ...
const SUPER_PACKET_BYTES: u32 = 1 << 16;
/// ... nor longer than this with headers for each of its packets.
const WHOLE_BYTES: u32 = 1 << 18;
/// Time at the rate that a leaf is to hold at least, and no less than the least round trip: a flow alone then fills the
/// path in spite of its drops.
const HELD: Duration = Duration::from_millis(100);
/// Leaves hold this many times as much once they are set, ...
const HELD_ON_SETTING: f64 = 1.25;
/// ... and are set anew at once where they hold more than this many times as much, ...
const HELD_MOST: f64 = 4.0;
/// ... or more than this many times if they were not set lately: one queue that is longer than need be holds up no
/// other flow, but its own.
const HELD_LONG: f64 = 1.5;
/// "Not lately": to set 1024 leaves takes a tenth of a second.
const LEAVES_AGAIN: Duration = Duration::from_secs(10);
/// What leaves hold at the lowest rates, and at the highest or without one.
const LIMITS: RangeInclusive<u64> = 64 << 10..=32 << 20;

/// Target and interval of CoDel as the kernel has them where nothing is set (sch_fq_codel.c). Both grow in proportion to
/// a least round trip of more than a fifth of the interval, as in [`forebay_core::qdisc::FqCodel`]: CoDel would drop
/// before a flow fills a longer path.
const CODEL_TARGET: Duration = Duration::from_millis(5);
const CODEL_INTERVAL: Duration = Duration::from_millis(100);
const CODEL_ROUND_TRIPS: u32 = 5;
/// Change of the least round trip (share) that queues follow. Smaller ones are not worth a command to the kernel.
const RTT_CHANGE: f64 = 0.1;

/// From a failure to the next attempt, and twice as long each time that another follows soon.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A failure so long after the one before does not follow soon.
const SETTLED: Duration = Duration::from_secs(60);

/// The rate of a place that no bundle has had: its classes are yet to be made.
const UNMADE: u64 = u64::MAX;

/// The classes of the bundle at one place.
#[derive(Clone, Debug)]
pub struct BundleClasses {
    /// The one that has the rate of the bundle.
    pub class: u32,
    /// Classes that packets are put into: the same one, or those below it.
    pub leaves: Range<u32>,
    /// Bytes of the longest frame.
    pub frame_bytes: u32,
    /// The kind of the qdisc that packets wait in; `None`: a first-in, first-out queue for each leaf.
    pub qdisc: Option<&'static str>,
}

impl BundleClasses {
    /// Makes the classes, unshaped.
    fn make(&self, htb: &Htb) -> io::Result<()> {
        htb.set_class(self.class, None)?;
        let leaves = &mut self.leaves.clone();
        leaves.try_for_each(|class| self.set_leaf(htb, class, UNSHAPED, Duration::ZERO, true))
    }

    /// Makes a leaf, or changes it. What flows send in their turns is what it lets through at once: of a leaf that
    /// `has_other_turns` than before, or that is new, this is set, too.
    fn set_leaf(
        &self,
        htb: &Htb,
        class: u32,
        leaf: Leaf,
        rtt: Duration,
        has_other_turns: bool,
    ) -> io::Result<()> {
        // The turn first, which makes the class where there is none.
        if has_other_turns && class != self.class {
            htb.set_sharer(class, self.class, turn_bytes(leaf))?;
        }
        htb.set_leaf(class, leaf)?;
        match self.qdisc {
            Some(kind) if has_other_turns => htb.set_queue(class, kind, &queue_options(kind, rtt)),
            _ => Ok(()),
        }
    }

    /// What the leaves are to be at a rate, which they are not set anew for each of: there are many. They are `now`
    /// this, and since this time.
    fn leaf(&self, rate: Option<Rate>, rtt: Duration, now: Leaf, since: Duration) -> Leaf {
        let Some(rate) = rate else { return UNSHAPED };
        let longest = if is_cut(rate, now.longest == self.frame_bytes) {
            self.frame_bytes
        } else {
            WHOLE_BYTES
        };
        let least = rate.bytes_in(HELD.max(rtt)).as_u64().clamp(*LIMITS.start(), *LIMITS.end());
        let times = now.limit.as_f64() / least as f64;
        let most = if since < LEAVES_AGAIN { HELD_MOST } else { HELD_LONG };
        let limit = if (1.0..=most).contains(&times) {
            now.limit
        } else {
            ByteCount::new((HELD_ON_SETTING * least as f64) as u64)
        };
        Leaf { limit, longest }
    }
}

/// Bytes that a leaf sends in its turn: what it lets through at once.
fn turn_bytes(leaf: Leaf) -> u32 {
    leaf.longest.min(SUPER_PACKET_BYTES)
}

/// Options of a queue of this kind on a path with this least round trip; zero: it is not known.
fn queue_options(kind: &str, rtt: Duration) -> Vec<u8> {
    if kind != "fq_codel" {
        return Vec::new();
    }
    let interval = CODEL_INTERVAL.max(rtt * CODEL_ROUND_TRIPS);
    let factor = interval.as_secs_f64() / CODEL_INTERVAL.as_secs_f64();
    htb::fq_codel_options(CODEL_TARGET.mul_f64(factor), interval)
}

/// Leaves of a class without a rate.
const UNSHAPED: Leaf = Leaf { limit: ByteCount::new(*LIMITS.end()), longest: WHOLE_BYTES };

/// What the packet thread wants.
struct Wanted {
    /// At each place in bit/s; 0: none; or [`UNMADE`].
    rates: Vec<AtomicU64>,
    /// Least round trip of the path at each place (ns); 0: not known.
    rtts: Vec<AtomicU64>,
    /// Index of the device, and, in the upper half, how often it was another one.
    device: AtomicU64,
    changed: EventFd,
    is_over: AtomicBool,
    /// Why classes are not as they are wanted, until they are again.
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

/// The thread, as the packet thread sees it. Dropping it takes the qdisc away.
pub struct Rates {
    wanted: Arc<Wanted>,
    thread: Option<JoinHandle<()>>,
}

impl Rates {
    /// Makes the classes at the first places, those of so many `bundles`, unshaped, and starts the thread, under
    /// SCHED_FIFO if it is to be `realtime` and may: a rate that comes late is a queue at the bottleneck. The classes at
    /// the other `places` are made once they have a rate.
    ///
    /// # Errors
    ///
    /// What the kernel refuses, and that the thread cannot be confined: the qdisc is taken away again.
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
            // The first error says more than one of this.
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
            // The status says whether the packet thread may, and so may this one.
            let _ = realtime && privileges::go_realtime();
            // Sending fails only where nobody waits for it.
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
        // A thread that says nothing has panicked.
        match is_begun.recv().map_err(io::Error::other)? {
            Ok(()) => Ok(Self { wanted, thread: Some(thread) }),
            Err((error, htb)) => {
                // Here, since that thread may have given up the privilege for it.
                let _ = htb.remove();
                Err(error)
            }
        }
    }

    /// Has the bundle at a place sent at this rate from now on, within milliseconds; `None`: unshaped. Where there are no
    /// classes yet, packets of the bundle go past them until they are made: those of hundreds of bundles take seconds.
    /// Queues follow `rtt`, the least round trip of its path, where it is known.
    pub fn set(&self, place: usize, rate: Option<Rate>, rtt: Option<Duration>) {
        let rtt_ns = rtt.map_or(0, |rtt| rtt.as_nanos() as u64);
        self.wanted.rtts[place].store(rtt_ns, Ordering::Relaxed);
        let bits_per_s = rate.map_or(0, Rate::as_bits_per_sec);
        self.wanted.rates[place].store(bits_per_s, Ordering::Relaxed);
        self.wake();
    }

    /// Has qdisc and classes made at another device, which has taken the place of the one before, from now on. It may have
    /// the same index.
    pub fn follow(&self, ifindex: u32) {
        let times = (self.wanted.device.load(Ordering::Relaxed) >> 32) + 1;
        // First, for the thread says when it is over.
        *self.wanted.failed() = Some("the device is another one".into());
        self.wanted.device.store(times << 32 | u64::from(ifindex), Ordering::Release);
        self.wake();
    }

    /// Why classes are not as they are wanted, until they are again.
    pub fn failed(&self) -> Option<String> {
        self.wanted.failed().clone()
    }

    fn wake(&self) {
        // It fails only where it would wake anyway.
        let _ = self.wanted.changed.write(1);
    }
}

impl Drop for Rates {
    fn drop(&mut self) {
        self.wanted.is_over.store(true, Ordering::Relaxed);
        self.wake();
        // One that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What was set at a place.
struct Set {
    classes: BundleClasses,
    /// In bit/s; 0: none; or [`UNMADE`].
    rate: u64,
    /// Least round trip that the queues follow; zero: not known.
    rtt: Duration,
    /// What the leaves at this place are, but for `pending`, and since when.
    leaf: Leaf,
    since: Instant,
    /// Leaves that are to become so, ...
    pending: Range<u32>,
    /// ... and whether their turns are others, too.
    has_other_turns: bool,
    /// Another program may have changed the leaves, or what stands in them.
    is_doubtful: bool,
}

impl Set {
    /// What [`BundleClasses::make`] makes, unless that was not called.
    fn new(classes: BundleClasses, rate: u64) -> Self {
        let pending = classes.leaves.end..classes.leaves.end;
        let has_other_turns = rate == UNMADE;
        let (leaf, since, rtt) = (UNSHAPED, Instant::now(), Duration::ZERO);
        Self { classes, rate, rtt, leaf, since, pending, has_other_turns, is_doubtful: false }
    }

    fn set_rate(&mut self, htb: &Htb, bits_per_s: u64, rtt: Duration) -> io::Result<()> {
        let has_other_rtt = rtt.abs_diff(self.rtt) > self.rtt.mul_f64(RTT_CHANGE);
        if has_other_rtt {
            self.follow_rtt(rtt);
        }
        if bits_per_s != self.rate || has_other_rtt {
            let rate = (bits_per_s > 0).then(|| Rate::from_bits_per_sec(bits_per_s));
            htb.set_class(self.classes.class, rate)?;
            self.follow(Instant::now(), bits_per_s, rate);
        }
        Ok(())
    }

    /// The least round trip is another: perhaps the queues are to have other options.
    fn follow_rtt(&mut self, rtt: Duration) {
        let before = std::mem::replace(&mut self.rtt, rtt);
        let Some(kind) = self.classes.qdisc else { return };
        if self.rate != UNMADE && queue_options(kind, rtt) != queue_options(kind, before) {
            self.has_other_turns = true;
            self.pending = self.classes.leaves.clone();
        }
    }

    /// The rate is another: perhaps the leaves are to be others, too.
    fn follow(&mut self, now: Instant, bits_per_s: u64, rate: Option<Rate>) {
        let is_new = self.rate == UNMADE;
        self.rate = bits_per_s;
        let leaf = self.classes.leaf(rate, self.rtt, self.leaf, now - self.since);
        if is_new || leaf != self.leaf {
            self.has_other_turns |= leaf.longest != self.leaf.longest;
            self.pending = self.classes.leaves.clone();
            (self.leaf, self.since) = (leaf, now);
        }
    }

    /// What was set is perhaps not there any more: all is to be made.
    fn forget(&mut self) {
        let (leaf, rtt) = (self.leaf, self.rtt);
        let fresh = Self::new(self.classes.clone(), UNMADE);
        *self = Self { leaf, rtt, is_doubtful: true, ..fresh };
    }

    /// Whether a change that another program has made leaves the classes of this place as they were set; `None`: it is of
    /// nothing at this place.
    fn is_as_set(&self, htb: &Htb, change: &Change) -> Option<bool> {
        if self.rate == UNMADE {
            return None;
        }
        let BundleClasses { class, leaves, .. } = &self.classes;
        if htb.is_class(change, *class) {
            let rate = (self.rate > 0).then(|| Rate::from_bits_per_sec(self.rate));
            return Some(htb.is_bundle_as(change, rate));
        }
        let leaf = leaves.clone().find(|leaf| htb.is_at(change, *leaf))?;
        // What is pending is set all the same.
        let is_set = self.pending.contains(&leaf);
        Some(is_set || htb.is_leaf_as(change, leaf, self.leaf, turn_bytes(self.leaf)))
    }
}

/// How far the thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Classes are as they are wanted, or become so at the next turn.
    Set,
    /// Nothing is set: the next attempt is to come then.
    Failed(Instant),
    /// All is set anew.
    SettingAnew,
}

/// What the thread owns.
struct Setter {
    htb: Htb,
    changes: Changes,
    wanted: Arc<Wanted>,
    /// As last seen in [`Wanted`].
    device: u64,
    places: Vec<Set>,
    state: State,
    /// When something failed last, and the pause after that.
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
                // A device that is gone has taken it along, and what somebody else has put there stays.
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
            // Milliseconds are cut off.
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
        // It fails where nothing has changed.
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

    /// Sets what is wanted and not set, as much as there is time for.
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
                    return Err(io::Error::other("more was changed than the kernel could tell"));
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

    /// The first of the changes of other programs by which something is not as it was set, for people.
    fn difference(&self, changes: &[Change]) -> Option<String> {
        let Self { htb, places, .. } = self;
        let is_as_set = |change: &Change| {
            let here = htb.is_others_as(change);
            here.or_else(|| places.iter().find_map(|set| set.is_as_set(htb, change)))
        };
        changes.iter().filter(|change| htb.is_of(change)).find_map(|change| {
            if change.is_gone {
                Some(format!("another program has taken away {change}"))
            } else {
                let is_other = is_as_set(change) == Some(false);
                is_other.then(|| format!("another program has changed {change}"))
            }
        })
    }

    /// Begins to make the classes, below a qdisc that is put there again if it is not there.
    fn begin_anew(&mut self, until: Instant) -> io::Result<()> {
        match self.set_rates(until) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.htb.put().map_err(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => {
                        io::Error::new(error.kind(), "somebody has put another qdisc there")
                    }
                    _ => error,
                })?;
                self.set_rates(until)
            }
            set => self.htb.set_others().and(set),
        }
    }

    /// Says that something failed, shapes nothing, and has all set anew after a pause.
    fn fail(&mut self, now: Instant, error: &io::Error) {
        *self.wanted.failed() = Some(error.to_string());
        let pause = self.failure.map_or(PAUSE_MIN, |(at, pause)| next_pause(pause, now - at));
        self.failure = Some((now, pause));
        self.state = State::Failed(now + pause);
        // What still waits is to leave before more overtakes it. Where that is refused, the next attempt does it all.
        let is_shaped = |set: &&Set| ![0, UNMADE].contains(&set.rate);
        let mut shaped = self.places.iter().filter(is_shaped);
        let _ = shaped.try_for_each(|set| self.htb.set_class(set.classes.class, None));
        self.places.iter_mut().for_each(Set::forget);
    }

    /// Sets the rates of classes that are there, and makes those that are not as long as there is time, but one at least.
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

    /// Sets leaves that are pending, as long as there is time, but one at least.
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

/// The pause after a failure that came so long `after` the one before, which had this pause.
fn next_pause(before: Duration, after: Duration) -> Duration {
    if after >= SETTLED { PAUSE_MIN } else { (2 * before).min(PAUSE_MAX) }
}

/// Whether super-packets are to be cut up at this rate, if they are now or are not.
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
    fn around_the_limit_super_packets_stay_as_they_are() {
        let mbit = Rate::from_mbit_per_sec;
        let cut = [10, 239, 299, 300, 10_000].map(|rate| is_cut(mbit(rate), true));
        assert_eq!(cut, [true, true, true, false, false]);
        let whole = [10, 239, 240, 300].map(|rate| is_cut(mbit(rate), false));
        assert_eq!(whole, [true, true, false, false]);
    }

    #[test]
    fn leaves_follow_a_rate_in_parts_and_begin_anew_with_another_rate() {
        let classes = classes(2..102);
        let mut added = Set::new(classes.clone(), UNMADE);
        added.follow(Instant::now(), 0, None);
        assert_eq!((&added.pending, added.has_other_turns), (&(2..102), true), "none is made yet");
        let mut set = Set::new(classes, 0);
        assert!(set.pending.is_empty(), "all are as they were made");
        let follow = |set: &mut Set, mbit_per_s| {
            let rate = Rate::from_mbit_per_sec(mbit_per_s);
            set.follow(set.since, rate.as_bits_per_sec(), Some(rate));
        };
        follow(&mut set, 100);
        assert_eq!((set.leaf.longest, set.has_other_turns), (1518, true));
        assert_eq!(set.pending.nth(59), Some(61));
        follow(&mut set, 50);
        assert_eq!(set.pending, 62..102, "such leaves do for that rate");
        let rate = Rate::from_mbit_per_sec(50);
        set.follow(set.since + LEAVES_AGAIN, rate.as_bits_per_sec(), Some(rate));
        assert_eq!(set.pending, 2..102, "but not for ever");
        follow(&mut set, 10);
        assert_eq!(set.pending, 2..102);
        set.pending = 102..102;
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
        // A leaf of its own holds a round trip at least.
        let rate = Some(Rate::from_mbit_per_sec(100));
        let held = |rtt| classes(2..4).leaf(rate, ms(rtt), UNSHAPED, LEAVES_AGAIN).limit.as_f64();
        assert!((held(400) / held(50) - 4.0).abs() < 0.01, "{} {}", held(400), held(50));
    }

    #[test]
    fn what_failed_is_set_anew_whole_whatever_was_pending() {
        let mut set = Set::new(classes(2..102), 0);
        let rate = Rate::from_mbit_per_sec(100);
        set.follow(set.since, rate.as_bits_per_sec(), Some(rate));
        let leaf = set.leaf;
        assert_eq!(set.pending.nth(59), Some(61));
        set.forget();
        assert_eq!(set.rate, UNMADE);
        assert!(set.pending.is_empty(), "nothing before the next attempt");
        set.follow(set.since, rate.as_bits_per_sec(), Some(rate));
        assert_eq!((set.leaf, set.has_other_turns, &set.pending), (leaf, true, &(2..102)));
    }

    #[test]
    fn failures_that_follow_soon_have_longer_pauses_up_to_a_bound() {
        let mut pause = PAUSE_MIN;
        let mut next = |after| {
            pause = next_pause(pause, after);
            pause.as_millis()
        };
        let soon = SETTLED.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!([soon; 8].map(&mut next), [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!([SETTLED, soon].map(&mut next), [100, 200]);
    }

    #[test]
    fn leaves_hold_a_tenth_of_a_second_and_are_set_anew_for_few_rates() {
        let classes = classes(2..4);
        for (since, held_most_ms) in [(Duration::ZERO, 401.0), (LEAVES_AGAIN, 151.0)] {
            let mut now = UNSHAPED;
            let mut changes = 0;
            for rate in (1..2000).chain((1..2000).rev()).chain((0..2000).map(|at| 90 + at % 16)) {
                let rate_now = Some(Rate::from_mbit_per_sec(rate));
                let leaf = classes.leaf(rate_now, Duration::ZERO, now, since);
                changes += u32::from(leaf != now);
                now = leaf;
                let held_ms = now.limit.as_f64() * 8.0 / (rate as f64 * 1e3);
                let is_in_bounds = (100.0..=held_most_ms).contains(&held_ms);
                assert!(is_in_bounds || rate < 11, "{rate}: {held_ms} ms");
            }
            assert!(changes < 70, "{changes}");
            assert_eq!(classes.leaf(None, Duration::ZERO, now, since), UNSHAPED);
        }
    }
}
