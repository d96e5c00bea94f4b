//! One thread per receive queue of the LAN (`xdp.threads`). It takes frames out of the socket, reads their
//! headers, and passes them in batches to the single thread that queues, paces and sends.
//!
//! ```text
//!  queue 0 ──► reader 0 ══ batches of frames ══►
//!  queue 1 ──► reader 1 ══ batches of frames ══► bundle by prefix ──► qdisc ──► shaper ──► wan
//!              (a thread each) ◄══ the same batches with unused buffers ══
//! ```
//! A single thread schedules, so that rates and shares hold for all packets of a bundle. The packets of a
//! flow come through one queue, one reader and one channel, and so in order.
//!
//! Each reader uses [`BATCHES`] batches in turn. A reader with no free batch waits, and frames wait in the
//! ring of its queue: no queue without a discipline grows here. A reader that ends or panics ends the
//! process. A reader that takes no turn is overdue ([`Health::overdue`](super::super::Health)), so the
//! traffic is handed back.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel,
};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_core::units::Timestamp;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::super::BATCH;
use super::frame::{Found, Frame, Pool};
use crate::clock;
use crate::port::{Port, XdpPort};
use crate::service::privileges::seccomp::Task;
use crate::service::privileges::{self, Confinement};

/// Batches of a reader: one being filled, one being emptied, and two on their way.
const BATCHES: usize = 4;
/// Longest sleep of a reader. Then it checks whether it has another port or must end.
const IDLE: Duration = Duration::from_millis(10);
/// How often a reader asks the kernel how many frames its ring has lost.
const COUNT: Duration = Duration::from_secs(1);

/// Frames on their way to the thread that shapes, or buffers on their way back.
#[derive(Default)]
struct Batch {
    /// Frames in the order of their arrival.
    frames: VecDeque<Frame>,
    /// Unused buffers of the same sizes as the taken frames, as far as there were any.
    buffers: Vec<Box<[u8]>>,
    found: Found,
}

/// State that a reader reports.
struct Pulse {
    /// Time of its last turn (ns of [`clock::now`]).
    turned_at_ns: AtomicU64,
    is_overrun: AtomicBool,
    ring_drops: AtomicU64,
}

/// Wakes the thread that shapes.
struct Bell {
    event: EventFd,
    /// The thread that shapes sleeps, or is about to.
    is_wanted: AtomicBool,
    /// Batches that all readers have sent.
    sent: AtomicU64,
}

impl Bell {
    /// Records that a batch was sent.
    fn ring(&self) {
        self.sent.fetch_add(1, Ordering::SeqCst);
        if self.is_wanted.swap(false, Ordering::SeqCst) {
            // It cannot be full.
            let _ = self.event.write(1);
        }
    }
}

/// The readers: the handle of the thread that shapes.
pub struct Readers {
    lanes: Vec<Lane>,
    bell: Arc<Bell>,
    /// The lane to empty first next time.
    turn: usize,
    /// Batches taken from all lanes.
    taken: u64,
    /// The bell may have rung.
    has_slept: bool,
    is_zero_copy: bool,
}

/// Channels between a reader and the thread that shapes.
struct Lane {
    queue: usize,
    full: Receiver<Batch>,
    empty: SyncSender<Batch>,
    ports: Sender<XdpPort>,
    /// A batch that is not empty yet.
    open: Option<Batch>,
    pulse: Arc<Pulse>,
    thread: JoinHandle<()>,
}

impl Readers {
    /// Starts a thread for each of these ports, for frames of up to `frame_bytes`. The threads run under
    /// SCHED_FIFO if `realtime` is set and allowed, and are confined to their task.
    ///
    /// # Errors
    ///
    /// The kernel has no thread or descriptor left.
    pub fn start(
        ports: Vec<XdpPort>,
        frame_bytes: usize,
        realtime: bool,
        confinement: &Confinement,
    ) -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        let (is_wanted, sent) = (AtomicBool::new(false), AtomicU64::new(0));
        let bell = Arc::new(Bell { event, is_wanted, sent });
        let is_zero_copy = ports.iter().all(XdpPort::is_zero_copy);
        let lane = |(queue, port)| {
            let pool = Pool::new(frame_bytes, BATCH);
            Lane::start(queue, port, pool, bell.clone(), realtime, confinement.clone())
        };
        let lanes = ports.into_iter().enumerate().map(lane).collect::<io::Result<Vec<Lane>>>()?;
        Ok(Self { lanes, bell, turn: 0, taken: 0, has_slept: false, is_zero_copy })
    }

    /// Has the readers read these ports from now on, one per reader in the order of the queues.
    pub fn read_from(&mut self, ports: Vec<XdpPort>) {
        self.is_zero_copy = ports.iter().all(XdpPort::is_zero_copy);
        for (lane, port) in self.lanes.iter().zip(ports) {
            // A reader that has ended is noticed when its frames are missing.
            let _ = lane.ports.send(port);
        }
    }

    /// Passes frames to `take` with `pool`, at most [`BATCH`], and adds the readers' counts to `found`.
    /// Returns how many frames there were.
    ///
    /// # Errors
    ///
    /// A reader has ended.
    pub fn receive(
        &mut self,
        pool: &mut Pool,
        found: &mut Found,
        take: &mut dyn FnMut(Frame, &mut Pool),
    ) -> io::Result<usize> {
        if std::mem::take(&mut self.has_slept) {
            self.bell.is_wanted.store(false, Ordering::SeqCst);
            // Reading resets the event; an empty one is no problem.
            let _ = self.bell.event.read();
        }
        let (mut count, lanes) = (0, self.lanes.len());
        for place in 0..lanes {
            let lane = &mut self.lanes[(self.turn + place) % lanes];
            while count < BATCH {
                let is_new = lane.open.is_none();
                let Some(mut batch) = lane.next_batch()? else { break };
                self.taken += u64::from(is_new);
                found.add(std::mem::take(&mut batch.found));
                while count < BATCH
                    && let Some(frame) = batch.frames.pop_front()
                {
                    batch.buffers.extend(pool.spare_like(&frame));
                    take(frame, pool);
                    count += 1;
                }
                lane.put_back(batch);
            }
        }
        // Another queue is first next time, even if this one filled the batch alone.
        self.turn = (self.turn + 1).checked_rem(lanes).unwrap_or(0);
        Ok(count)
    }

    /// Whether frames come faster than they are taken.
    pub fn is_overrun(&self) -> bool {
        self.lanes.iter().any(|lane| lane.pulse.is_overrun.load(Ordering::Relaxed))
    }

    /// Largest delay of a reader's next turn: a late reader hangs, or gets no processor time.
    pub fn overdue(&self, now: Timestamp) -> Duration {
        let late = |Lane { pulse, .. }: &Lane| {
            let turned_at = Timestamp::from_nanos(pulse.turned_at_ns.load(Ordering::Relaxed));
            now.saturating_since(turned_at + IDLE)
        };
        self.lanes.iter().map(late).max().unwrap_or_default()
    }

    /// Frames that the rings of the queues have lost, at most a second old.
    pub fn ring_drops(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.pulse.ring_drops.load(Ordering::Relaxed)).sum()
    }

    /// Whether device and box share the frames' memory in all queues.
    pub const fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// The descriptor to poll for input before the thread that shapes sleeps. It is readable as soon as there
    /// are frames.
    pub fn wake(&mut self) -> BorrowedFd<'_> {
        self.has_slept = true;
        self.bell.is_wanted.store(true, Ordering::SeqCst);
        let has_open = self.lanes.iter().any(|lane| lane.open.is_some());
        // Batches sent before the bell was wanted have not rung it.
        if has_open || self.bell.sent.load(Ordering::SeqCst) != self.taken {
            let _ = self.bell.event.write(1);
        }
        self.bell.event.as_fd()
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        for Lane { full, empty, ports, thread, .. } in self.lanes.drain(..) {
            drop((full, empty, ports));
            // No thread waits for its result any more.
            let _ = thread.join();
        }
    }
}

impl Lane {
    fn start(
        queue: usize,
        port: XdpPort,
        pool: Pool,
        bell: Arc<Bell>,
        realtime: bool,
        confinement: Confinement,
    ) -> io::Result<Self> {
        let (filled, full) = sync_channel(BATCHES);
        let (empty, emptied) = sync_channel(BATCHES);
        let (ports, other_ports) = channel();
        let pulse = Arc::new(Pulse {
            turned_at_ns: AtomicU64::new(clock::now().as_nanos()),
            is_overrun: AtomicBool::new(false),
            ring_drops: AtomicU64::new(0),
        });
        for _ in 0..BATCHES {
            let _ = empty.try_send(Batch::default());
        }
        let mut reader = Reader {
            port,
            pool,
            full: filled,
            empty: emptied,
            ports: other_ports,
            pulse: pulse.clone(),
            bell,
        };
        let thread = std::thread::Builder::new().name(format!("reader {queue}")).spawn(move || {
            privileges::cut_timer_slack();
            let _ = realtime && privileges::go_realtime();
            let outcome = confinement.confine(Task::Frames).and_then(|()| reader.run());
            if let Err(error) = outcome {
                tracing::warn!(target: "device", %error, "receive queue {queue} is no longer read");
            }
        })?;
        Ok(Self { queue, full, empty, ports, open: None, pulse, thread })
    }

    /// The open batch, or else the next one, if any has come.
    fn next_batch(&mut self) -> io::Result<Option<Batch>> {
        if let Some(open) = self.open.take() {
            return Ok(Some(open));
        }
        match self.full.try_recv() {
            Ok(batch) => Ok(Some(batch)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                let text = format!("the thread that reads receive queue {} has ended", self.queue);
                Err(io::Error::other(text))
            }
        }
    }

    /// Keeps a batch that still holds frames, and returns an empty one.
    fn put_back(&mut self, batch: Batch) {
        if batch.frames.is_empty() {
            // There is room for all batches.
            let _ = self.empty.try_send(batch);
        } else {
            self.open = Some(batch);
        }
    }
}

/// State of a thread that reads a queue.
struct Reader {
    port: XdpPort,
    pool: Pool,
    full: SyncSender<Batch>,
    empty: Receiver<Batch>,
    /// Ports that replace the current one.
    ports: Receiver<XdpPort>,
    pulse: Arc<Pulse>,
    bell: Arc<Bell>,
}

impl Reader {
    /// Reads until the thread that shapes is gone.
    fn run(&mut self) -> io::Result<()> {
        let (mut batch, mut count_at) = (None, Timestamp::ZERO);
        loop {
            let now = clock::now();
            self.tell(now, &mut count_at);
            match self.ports.try_recv() {
                Ok(port) => self.port = port,
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
            let mut filling = match batch.take().map_or_else(|| self.next_empty(), Ok) {
                Ok(empty) => empty,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            if self.fill(&mut filling)? == 0 {
                batch = Some(filling);
                self.wait(now + IDLE)?;
                continue;
            }
            if self.full.send(filling).is_err() {
                return Ok(());
            }
            self.bell.ring();
        }
    }

    /// An empty batch, once there is one.
    fn next_empty(&mut self) -> Result<Batch, RecvTimeoutError> {
        let mut empty = self.empty.recv_timeout(IDLE)?;
        empty.buffers.drain(..).for_each(|buffer| self.pool.keep(buffer));
        Ok(empty)
    }

    /// Takes frames into a batch; returns how many there were.
    fn fill(&mut self, batch: &mut Batch) -> io::Result<usize> {
        let Self { port, pool, .. } = self;
        let Batch { frames, found, .. } = batch;
        port.receive(BATCH, &mut |bytes, arrived| {
            frames.extend(pool.take_in(bytes, arrived, found));
        })
    }

    /// Waits for frames, at most until `until`.
    fn wait(&self, until: Timestamp) -> io::Result<()> {
        if self.port.busy_poll(until) {
            return Ok(());
        }
        let timeout = PollTimeout::try_from(IDLE).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(self.port.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn tell(&self, now: Timestamp, count_at: &mut Timestamp) {
        self.pulse.turned_at_ns.store(now.as_nanos(), Ordering::Relaxed);
        self.pulse.is_overrun.store(self.port.is_overrun(), Ordering::Relaxed);
        if now >= *count_at {
            *count_at = now + COUNT;
            self.pulse.ring_drops.store(self.port.ring_drops(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_ebpf::{Capture, CaptureOptions};

    use super::*;
    use crate::port::tests::{frame, number, on_a_veth_pair, run};
    use crate::port::{Direction, XdpOptions};

    const QUEUES: u32 = 2;
    const FRAME_BYTES: usize = 1000;
    /// More frames than all batches hold.
    const FRAMES: u32 = 2 * QUEUES * (BATCHES * BATCH) as u32;

    /// Runs `test` with readers of the queues of a device, and with one port per queue at its other end.
    fn with_readers(test: impl FnOnce(Readers, Vec<XdpPort>) + Send + 'static) {
        on_a_veth_pair(|| {
            let queues = format!("numrxqueues {QUEUES} numtxqueues {QUEUES}");
            run(&format!("ip link add many {queues} type veth peer name few {queues}"));
            for device in ["many", "few"] {
                run(&format!("ip link set {device} addrgenmode none up"));
            }
            let options = XdpOptions { threads: true, ..XdpOptions::default() };
            let mut port = XdpPort::open_to_receive("many", options).unwrap();
            let capture = Capture::attach(port.ifindex(), CaptureOptions::All, false).unwrap();
            port.take_from(&capture).unwrap();
            let confinement = Confinement::default();
            let readers = Readers::start(port.split(), FRAME_BYTES, false, &confinement).unwrap();
            // Frames sent on a queue of a veth arrive on the same queue at the other end.
            let sources = XdpPort::open_queues("few", Direction::Transmit, QUEUES, options);
            test(readers, sources.unwrap().split());
            drop(capture);
        });
    }

    fn send(source: &mut XdpPort, frame: &[u8]) {
        assert!(source.send(frame));
        source.flush().unwrap();
    }

    /// Takes frames until `count` have come, or none has for a while.
    fn take(readers: &mut Readers, pool: &mut Pool, count: usize) -> Vec<u32> {
        let (mut numbers, mut last) = (Vec::new(), clock::now());
        while numbers.len() < count && clock::now().saturating_since(last).as_secs() < 10 {
            let take = &mut |frame: Frame, pool: &mut Pool| {
                numbers.extend(number(frame.bytes()));
                pool.give_back(frame);
            };
            let taken = readers.receive(pool, &mut Found::default(), take).unwrap();
            assert!(taken <= BATCH);
            if taken > 0 {
                last = clock::now();
                continue;
            }
            let mut fds = [PollFd::new(readers.wake(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(1000_u16)).unwrap();
        }
        numbers
    }

    #[test]
    fn late_reading_keeps_order_and_loses_nothing() {
        with_readers(|mut readers, mut sources| {
            for number in 0..FRAMES {
                send(&mut sources[(number % QUEUES) as usize], &frame(number, 100));
            }
            let mut pool = Pool::new(FRAME_BYTES, 0);
            let numbers = take(&mut readers, &mut pool, FRAMES as usize);
            assert_eq!(numbers.len(), FRAMES as usize);
            for queue in 0..QUEUES {
                let came = numbers.iter().copied().filter(|number| number % QUEUES == queue);
                assert!(came.eq((queue..FRAMES).step_by(QUEUES as usize)), "{numbers:?}");
            }
        });
    }

    #[test]
    fn frame_wakes_the_sleeper_and_oversized_is_counted() {
        with_readers(|mut readers, mut sources| {
            let mut pool = Pool::new(FRAME_BYTES, 0);
            for round in 0..20 {
                let mut fds = [PollFd::new(readers.wake(), PollFlags::POLLIN)];
                send(&mut sources[1], &frame(round, 60));
                assert_eq!(poll(&mut fds, PollTimeout::from(30_000_u16)), Ok(1), "woken");
                assert_eq!(take(&mut readers, &mut pool, 1), [round]);
            }
            let mut found = Found::default();
            send(&mut sources[0], &frame(0, FRAME_BYTES + 1));
            while found.oversized == 0 {
                readers.receive(&mut pool, &mut found, &mut |_, _| panic!("a frame")).unwrap();
            }
            assert_eq!(found, Found { oversized: 1, finished_checksums: 0 });
        });
    }

    #[test]
    fn silent_reader_is_overdue_ended_reader_an_error() {
        with_readers(|mut readers, _| {
            let second = Duration::from_secs(1);
            assert!(readers.overdue(clock::now() + second) > second / 2);
            assert!(!readers.is_overrun());
            // As if it had ended: the channel that a reader sends to is gone.
            readers.lanes[1].full = sync_channel(1).1;
            let (mut pool, mut found) = (Pool::new(FRAME_BYTES, 0), Found::default());
            let received = readers.receive(&mut pool, &mut found, &mut |_, _| panic!("a frame"));
            let text = received.unwrap_err().to_string();
            assert_eq!(text, "the thread that reads receive queue 1 has ended");
        });
    }
}
