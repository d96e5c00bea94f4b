//! The event loop: receive, release, sleep.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use forebay_core::random::{Stream, Streams};
use forebay_core::units::{Ratio, Timestamp};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockNanosleepFlags, clock_nanosleep};

use super::frame::{FRAME_BYTES_MAX, Pool};
use super::path::Path;
use super::{Beside, DevicePair, EmulatorError, EmulatorSpec};
use crate::orders::{Heard, Order, Orders};
use crate::process::{try_keep_to, try_realtime};
use forebay_core::record::LinkRecord;
use forebay_host::clock;
use forebay_host::offload::mtu;
use forebay_host::port::{Direction, ETHERNET_HEADER_LEN, Port, open_all};

/// Shortest interval between two rounds of the loop. A round serves all timers and arrivals within it
/// together. At 96 Mbit/s in both directions there is an event every 42 us, and a wake-up for each
/// would cost more than the packet. A packet is late by half the interval on average.
pub const QUANTUM: Duration = Duration::from_micros(50);

/// Above boxes and generators, since all depend on the time that packets spend here.
const REALTIME_PRIORITY: i32 = 10;

/// Most frames per port and round: all that its ring holds. The link cannot go back in time for
/// earlier frames left there.
const RECEIVE_BATCH: usize = 4096;

/// Interval of the checks for orders while packets leave no time to wait for them.
const CONTROL_EVERY: Duration = Duration::from_millis(10);

/// The emulator.
pub struct Emulator {
    ports: Vec<PortPair>,
    /// Forward and reverse links: first the shared ones, then the own links of pairs.
    links: Vec<[Path; 2]>,
    pool: Pool,
    waiting: Waiting,
    control: Control,
    cpu: Option<usize>,
    realtime: bool,
    beside_stream: Stream,
}

struct PortPair {
    left: Box<dyn Port>,
    right: Box<dyn Port>,
    beside: Option<SecondWay>,
    /// Place of the links in [`Emulator::links`].
    links: usize,
}

/// A second way to the right.
struct SecondWay {
    port: Box<dyn Port>,
    /// Share of the frames that take this way.
    share: Ratio,
    /// Changes of the share: time since the start, and the new share.
    changes: VecDeque<(Duration, Ratio)>,
    start: Option<Timestamp>,
}

impl Emulator {
    /// Opens the devices, which must be in the caller's network namespace.
    pub fn open(spec: &EmulatorSpec) -> Result<Self, EmulatorError> {
        if spec.pairs.is_empty() || spec.pairs.len() > usize::from(u16::MAX) {
            return Err(EmulatorError::Pairs { pairs: spec.pairs.len() });
        }
        let link = |link: &_| {
            let (out, keeps_headers) = (spec.out.as_deref(), spec.keeps_headers);
            Path::new(link, spec.seed, spec.routed, out, keeps_headers)
        };
        let mut links = vec![[link(&spec.forward)?, link(&spec.reverse)?]];
        let mut ports = spec.pairs.iter().map(PortPair::open).collect::<Result<Vec<_>, _>>()?;
        for (pair, own) in &spec.own {
            let pairs = EmulatorError::Pairs { pairs: *pair };
            ports.get_mut(*pair).ok_or(pairs)?.links = links.len();
            links.push([link(&own.there)?, link(&own.back)?]);
        }
        let waiting = Waiting::new(&ports).map_err(EmulatorError::os("setting up timers"))?;
        Ok(Self {
            ports,
            links,
            pool: Pool::default(),
            waiting,
            control: Control::default(),
            cpu: spec.cpu,
            realtime: false,
            beside_stream: Streams::new(spec.seed).stream("beside"),
        })
    }

    /// Takes orders from `source`, a pipe or socket: `start NS` starts the run, the end of `source`
    /// ends it.
    pub fn obey(&mut self, source: &impl AsFd) -> Result<(), EmulatorError> {
        let orders = Orders::from(source).map_err(EmulatorError::os("reading orders"))?;
        self.waiting.add(&orders).map_err(EmulatorError::os("waiting for orders"))?;
        self.control.orders = Some(orders);
        Ok(())
    }

    /// Ends the run when `sigterm` is readable; see [`block_sigterm`].
    pub(super) fn stop_on(&mut self, sigterm: SignalFd) -> Result<(), EmulatorError> {
        self.waiting.add(&sigterm).map_err(EmulatorError::os("waiting for signals"))?;
        self.control.sigterm = Some(sigterm);
        Ok(())
    }

    /// Forwards frames on the calling thread until the orders end or `SIGTERM` comes.
    pub fn run(&mut self) -> Result<(), EmulatorError> {
        self.realtime = try_realtime(REALTIME_PRIORITY);
        if let Some(cpu) = self.cpu
            && !try_keep_to(cpu)
        {
            tracing::warn!(target: "emulator", cpu, "cannot pin the emulator to this processor");
        }
        // Best effort: under SCHED_FIFO timers have no slack anyway.
        let _ = prctl::set_timerslack(1);
        let mut control_at = Timestamp::ZERO;
        loop {
            let now = clock::now();
            if now >= control_at {
                control_at = now + CONTROL_EVERY;
                match self.control.check() {
                    Some(Command::Start(start)) => {
                        self.links.iter_mut().flatten().for_each(|link| link.start(start));
                        let second = self.ports.iter_mut().filter_map(|it| it.beside.as_mut());
                        second.for_each(|it| it.start = Some(start));
                    }
                    Some(Command::Stop) => return Ok(()),
                    None => {}
                }
            }
            let worked = self.round(now).map_err(EmulatorError::os("packet I/O"))?;
            if worked {
                nap_until(now + QUANTUM);
            } else {
                let next = self.links.iter().flatten().filter_map(Path::next_timer).min();
                self.waiting.wait_until(next).map_err(EmulatorError::os("waiting"))?;
                control_at = Timestamp::ZERO;
            }
        }
    }

    /// Whether the emulator ran under `SCHED_FIFO`.
    pub fn realtime(&self) -> bool {
        self.realtime
    }

    /// Closes the ports and writes the rest of the truth log; returns the records of the shared
    /// forward and reverse links.
    pub fn finish(self) -> Result<[LinkRecord; 2], EmulatorError> {
        let mut links = self.finish_all()?.into_iter();
        Ok(std::array::from_fn(|_| links.next().expect("the two shared links come first")))
    }

    /// Like [`Self::finish`], followed by the records of the own links of pairs.
    pub fn finish_all(self) -> Result<Vec<LinkRecord>, EmulatorError> {
        let Self { ports, links, .. } = self;
        let drops = |at: usize, port: fn(&PortPair) -> &dyn Port| -> u64 {
            ports.iter().filter(|pair| pair.links == at).map(|pair| port(pair).ring_drops()).sum()
        };
        let mut records = Vec::new();
        for (at, [forward, reverse]) in links.into_iter().enumerate() {
            records.push(forward.finish(drops(at, |pair| pair.left.as_ref()))?);
            records.push(reverse.finish(drops(at, |pair| pair.right.as_ref()))?);
        }
        Ok(records)
    }

    /// Receives arrived frames and releases frames due at `now`; false if there were none.
    fn round(&mut self, now: Timestamp) -> io::Result<bool> {
        let Self { ports, links, pool, beside_stream, .. } = self;
        let mut worked = false;
        for (pair, PortPair { left, right, beside, links: at }) in (0..).zip(ports.iter_mut()) {
            let [forward, reverse] = &mut links[*at];
            if let Some(beside) = beside {
                beside.follow(now);
            }
            let from_left = left.receive(RECEIVE_BATCH, &mut |bytes, arrived| {
                forward.receive(arrived, bytes, pair, pool);
            })?;
            let from_right = right.receive(RECEIVE_BATCH, &mut |bytes, arrived| {
                reverse.receive(arrived, bytes, pair, pool);
            })?;
            worked |= from_left + from_right > 0;
        }
        let mut released = false;
        for [forward, reverse] in links.iter_mut() {
            forward.admit(now, pool);
            reverse.admit(now, pool);
            released |= forward.release(now, pool, |bytes, pair| {
                let PortPair { right, beside, .. } = &mut ports[usize::from(pair)];
                // Drawn only if there are two ways, so that frames of other pairs meet the same chance
                // as without them.
                match beside {
                    Some(beside) if beside_stream.chance(beside.share.as_f64()) => {
                        send(beside.port.as_mut(), bytes)
                    }
                    _ => send(right.as_mut(), bytes),
                }
            });
            released |= reverse.release(now, pool, |bytes, pair| {
                send(ports[usize::from(pair)].left.as_mut(), bytes)
            });
        }
        if released {
            for PortPair { left, right, beside, .. } in ports {
                left.flush()?;
                right.flush()?;
                beside.as_mut().map_or(Ok(()), |beside| beside.port.flush())?;
            }
            worked = true;
        }
        let now = clock::now();
        links.iter_mut().flatten().for_each(|link| link.stamp(now));
        Ok(worked)
    }
}

/// Turns `SIGTERM` into a readable file. Call it before any thread starts: a thread that does not
/// block the signal would end the process.
pub(super) fn block_sigterm() -> Result<SignalFd, EmulatorError> {
    let open = || -> io::Result<SignalFd> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTERM);
        signals.thread_block()?;
        Ok(SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
    };
    open().map_err(EmulatorError::os("handling signals"))
}

impl PortPair {
    fn open(devices: &DevicePair) -> Result<Self, EmulatorError> {
        let open = |device: &str, direction| -> Result<Box<dyn Port>, EmulatorError> {
            let port = open_all(device, direction)?;
            let mtu = mtu(device).map_err(EmulatorError::os("reading the MTU"))?;
            let max = (FRAME_BYTES_MAX - ETHERNET_HEADER_LEN) as u32;
            if mtu > max {
                return Err(EmulatorError::Mtu { device: device.to_string(), mtu, max });
            }
            Ok(port)
        };
        let both = |device: &str| open(device, Direction::Both);
        let beside = |beside: &Beside| {
            Ok::<_, EmulatorError>(SecondWay {
                port: open(&beside.device, Direction::Transmit)?,
                share: beside.share,
                changes: beside.changes.clone().into(),
                start: None,
            })
        };
        Ok(Self {
            left: both(&devices.left)?,
            right: both(&devices.right)?,
            beside: devices.beside.as_ref().map(beside).transpose()?,
            links: 0,
        })
    }
}

impl SecondWay {
    /// Applies the changes that are due.
    fn follow(&mut self, now: Timestamp) {
        let Some(elapsed) = self.start.map(|start| now.saturating_since(start)) else { return };
        while let Some((_, share)) = self.changes.pop_front_if(|(at, _)| *at <= elapsed) {
            self.share = share;
        }
    }
}

/// Sends a frame; if the ring is full, flushes it and tries once more.
fn send(port: &mut dyn Port, bytes: &[u8]) -> bool {
    port.send(bytes) || (port.flush().is_ok() && port.send(bytes))
}

fn nap_until(at: Timestamp) {
    // The caller reads the clock, so an interrupted sleep does no harm.
    let _ = clock_nanosleep(
        nix::time::ClockId::CLOCK_MONOTONIC,
        ClockNanosleepFlags::TIMER_ABSTIME,
        &timespec(at),
    );
}

fn timespec(at: Timestamp) -> TimeSpec {
    TimeSpec::from_duration(Duration::from_nanos(at.as_nanos()))
}

/// Waits for ports, orders and the next due time together.
struct Waiting {
    epoll: Epoll,
    timer: TimerFd,
}

impl Waiting {
    fn new(ports: &[PortPair]) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        let waiting = Self { epoll, timer };
        waiting.add(&waiting.timer)?;
        for pair in ports {
            waiting.add(&pair.left.as_fd())?;
            waiting.add(&pair.right.as_fd())?;
        }
        Ok(waiting)
    }

    fn add(&self, fd: &impl AsFd) -> io::Result<()> {
        Ok(self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))?)
    }

    /// Returns when a file is readable, at `at`, or early.
    fn wait_until(&self, at: Option<Timestamp>) -> io::Result<()> {
        match at {
            Some(at) => {
                // A time of zero would disarm the timer.
                let at = timespec(at.max(Timestamp::from_nanos(1)));
                self.timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
            }
            None => self.timer.unset()?,
        }
        match self.epoll.wait(&mut [EpollEvent::empty(); 1], EpollTimeout::NONE) {
            Err(error) if error != Errno::EINTR => Err(error.into()),
            _ => Ok(()),
        }
    }
}

enum Command {
    Start(Timestamp),
    Stop,
}

/// Sources of orders to start and stop the run. Without orders and signal, it runs without a start and
/// an end.
#[derive(Default)]
struct Control {
    orders: Option<Orders>,
    sigterm: Option<SignalFd>,
}

impl Control {
    /// The next command since the last call.
    fn check(&mut self) -> Option<Command> {
        if let Some(signal) = &self.sigterm
            && matches!(signal.read_signal(), Ok(Some(_)))
        {
            return Some(Command::Stop);
        }
        match self.orders.as_mut()?.hear() {
            Heard::Order(Order::Start(at)) => Some(Command::Start(Timestamp::from_nanos(at))),
            Heard::Order(order) => {
                tracing::warn!(target: "emulator", ?order, "unsupported order");
                None
            }
            Heard::Nothing => None,
            Heard::End => Some(Command::Stop),
        }
    }
}
