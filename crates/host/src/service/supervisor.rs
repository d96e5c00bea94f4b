//! The common frame of all daemons. A worker thread handles packets and messages, or the reports of the kernel. The
//! main thread waits for signals, serves the control socket and reads files.

use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::clients::timeout;
#[cfg(test)]
use super::control::PATIENCE;
use super::control::{Answer, ControlSocket, Request};
use super::privileges::seccomp::Task;
use super::privileges::{self, Confinement};
use super::watchdog::Watchdog;

/// Commands that may wait for the worker. Clients are served one at a time, so one would be enough.
const COMMANDS: usize = 8;

/// Error for a worker that has not returned its state within [`PATIENCE`](super::control::PATIENCE). A worker looks at
/// its commands in every round, or when it is woken for them, within a few tens of milliseconds.
const HANGS: &str = "the packet thread does not answer: it hangs";

/// Longest time until the worker has answered a change: hundreds of bundles at once, in parallel with packets. If the
/// worker has begun by then, the main thread waits for the end.
const CHANGE_PATIENCE: Duration = Duration::from_secs(3);

/// Longest time for the worker to stop. A sendbox paces its queue for a second and then sends the rest at once; a
/// trace may have to reach the disk. A worker that takes longer hangs, and the process ends without it. The kernel
/// then detaches its programs, and the bridge forwards.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Commands from the main thread to the worker.
pub enum Command<W: Worker> {
    /// Return the worker's state.
    Status(WorkerReply<W::Status>),
    /// Apply this change. On an error the old state stays, and the answer has the reason.
    Change(W::Change, SyncSender<Result<(), String>>),
    /// Send all queued packets and end.
    Stop,
}

/// Returns the worker's state to the main thread.
pub struct WorkerReply<T> {
    sender: SyncSender<T>,
    told: Arc<EventFd>,
}

impl<T> WorkerReply<T> {
    /// Sends the state. The requester may have stopped waiting.
    pub fn send(&self, status: T) {
        drop(self.sender.try_send(status));
        // Full only after 2^64 answers.
        let _ = self.told.write(1);
    }
}

/// A thread that does the work of a daemon.
pub trait Worker: Send + Sized + 'static {
    /// The state that it reports.
    type Status: Send + 'static;
    /// A change that it can apply while it works.
    type Change: Send + 'static;
    /// Works until [`Command::Stop`], and returns the final state.
    fn run(self, mailbox: Mailbox<Self>) -> io::Result<Self::Status>;
}

/// The work of a daemon's main thread: requests of clients, and timers.
pub trait Desk<W: Worker> {
    /// Answers a request; `None`: the answer is the worker's state.
    fn answer(&mut self, worker: &Handle<W>, request: Request) -> Option<Answer<W::Status>>;

    /// Adds the main thread's part to the worker's state.
    fn complete(&self, status: W::Status) -> W::Status {
        status
    }

    /// Time of the next call of [`Desk::on_timer`].
    fn next_timer(&self) -> Option<Instant> {
        None
    }

    /// Does the work that is due. False: the daemon must end.
    ///
    /// # Errors
    ///
    /// The reason why the daemon must end: the work could not be done.
    fn on_timer(&mut self, _worker: &Handle<W>) -> io::Result<bool> {
        Ok(true)
    }
}

/// A command on its way to the worker.
struct Letter<W: Worker> {
    command: Command<W>,
    /// Set by the first of two: the worker takes the command, or the sender takes it back.
    is_settled: Arc<AtomicBool>,
}

/// The worker's end of the queue of commands.
pub struct Mailbox<W: Worker> {
    commands: Receiver<Letter<W>>,
    wake: Arc<EventFd>,
    rounds: Arc<AtomicU64>,
}

impl<W: Worker> Mailbox<W> {
    /// The next command, without waiting. If the main thread is gone, that is [`Command::Stop`].
    pub fn take(&self) -> Option<Command<W>> {
        // Only this thread writes the counter.
        self.rounds.store(self.rounds.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        match self.open() {
            Ok(command) => Some(command),
            Err(TryRecvError::Disconnected) => Some(Command::Stop),
            Err(TryRecvError::Empty) => {
                // Reading resets the event. The counter cannot overflow, and an empty one is fine.
                let _ = self.wake.read();
                // A command that came between the two would otherwise wait for the next event.
                self.open().ok()
            }
        }
    }

    /// Executes all waiting commands on `worker` with these functions. False: it must stop.
    pub fn obey<E: Display>(
        &self,
        worker: &mut W,
        status: impl Fn(&mut W) -> W::Status,
        change: impl Fn(&mut W, &W::Change) -> Result<(), E>,
    ) -> bool {
        while let Some(command) = self.take() {
            match command {
                Command::Status(reply) => reply.send(status(worker)),
                // The requester may have stopped waiting.
                Command::Change(to, reply) => {
                    let changed = change(worker, &to).map_err(|error| error.to_string());
                    drop(reply.try_send(changed));
                }
                Command::Stop => return false,
            }
        }
        true
    }

    /// The next command that was not taken back.
    fn open(&self) -> Result<Command<W>, TryRecvError> {
        loop {
            let letter = self.commands.try_recv()?;
            if !letter.is_settled.swap(true, Ordering::AcqRel) {
                return Ok(letter.command);
            }
        }
    }
}

/// Readable when a command may wait.
impl<W: Worker> AsFd for Mailbox<W> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Signals the main thread that the worker has ended, for any reason.
struct Farewell(Arc<EventFd>);

impl Drop for Farewell {
    fn drop(&mut self) {
        // The counter cannot overflow: this is the only write.
        let _ = self.0.write(1);
    }
}

/// A running worker.
pub struct Handle<W: Worker> {
    commands: SyncSender<Letter<W>>,
    wake: Arc<EventFd>,
    ended: Arc<EventFd>,
    /// Readable once the worker has sent its state.
    told: Arc<EventFd>,
    /// Number of times that the worker has looked for a command.
    rounds: Arc<AtomicU64>,
    thread: JoinHandle<io::Result<W::Status>>,
}

impl<W: Worker> Handle<W> {
    /// Starts the thread of a worker.
    pub(crate) fn start(worker: W) -> io::Result<Self> {
        let event = || EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        let (wake, ended, told) = (Arc::new(event()?), Arc::new(event()?), Arc::new(event()?));
        let (sender, commands) = sync_channel(COMMANDS);
        let rounds = Arc::new(AtomicU64::new(0));
        let mailbox = Mailbox { commands, wake: wake.clone(), rounds: rounds.clone() };
        let farewell = Farewell(ended.clone());
        let thread = std::thread::Builder::new().name("packets".into()).spawn(move || {
            let _farewell = farewell;
            worker.run(mailbox)
        })?;
        Ok(Self { commands: sender, wake, ended, told, rounds, thread })
    }

    /// Sends the worker a command, or returns why it takes none. The sender takes the command back by setting the
    /// returned flag before the worker does.
    fn send(&self, command: Command<W>) -> Result<Arc<AtomicBool>, &'static str> {
        let is_settled = Arc::new(AtomicBool::new(false));
        let letter = Letter { command, is_settled: is_settled.clone() };
        self.commands.try_send(letter).map_err(|_| "the packet thread takes no commands")?;
        self.wake();
        Ok(is_settled)
    }

    /// Makes the worker look for commands.
    fn wake(&self) {
        // Full only after 2^64 commands.
        let _ = self.wake.write(1);
    }

    /// Requests the worker's state without waiting for it.
    fn ask(&self) -> Result<Receiver<W::Status>, &'static str> {
        let (sender, receiver) = sync_channel(1);
        self.send(Command::Status(WorkerReply { sender, told: self.told.clone() }))?;
        Ok(receiver)
    }

    /// The worker's state.
    #[cfg(test)]
    pub fn status(&self) -> Result<W::Status, &'static str> {
        self.ask()?.recv_timeout(PATIENCE).map_err(|_| HANGS)
    }

    /// Applies a change to the worker. On an error the old state stays.
    pub fn change(&self, change: W::Change) -> Result<(), String> {
        self.change_within(change, CHANGE_PATIENCE)
    }

    fn change_within(&self, change: W::Change, patience: Duration) -> Result<(), String> {
        let (sender, receiver) = sync_channel(1);
        let is_settled = self.send(Command::Change(change, sender))?;
        if let Ok(answer) = receiver.recv_timeout(patience) {
            return answer;
        }
        if !is_settled.swap(true, Ordering::AcqRel) {
            return Err("the packet thread does not look at its commands: it hangs".into());
        }
        // The worker has begun, so the state in force is known only at its end. A worker that ends instead drops the
        // sender.
        let answer = receiver.recv();
        answer.map_err(|_| "the packet thread has ended in the middle of a change")?
    }

    /// Stops the worker, and waits for it at most for `patience`. A hanging thread ends with the process.
    pub(crate) fn stop(self, patience: Duration) -> io::Result<W::Status> {
        // A worker that takes no command may still have ended by itself.
        let told = self.send(Command::Stop);
        let mut fds = [PollFd::new(self.ended.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(patience).map_err(io::Error::other)?;
        if poll(&mut fds, timeout)? > 0 {
            return self.join();
        }
        let told = told.err().unwrap_or("the packet thread hangs after the command to stop");
        Err(io::Error::other(format!(
            "{told}; ended without it after {patience:?}: its queued packets may be lost"
        )))
    }

    fn join(self) -> io::Result<W::Status> {
        match self.thread.join() {
            Ok(result) => result,
            Err(_) => Err(io::Error::other("the packet thread panicked")),
        }
    }
}

/// Blocks SIGTERM, SIGINT and SIGHUP for [`supervise`]. Call it before any thread is started, so that all inherit it.
pub fn block_signals() -> io::Result<SignalFd> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    Ok(SignalFd::with_flags(&signals, flags)?)
}

/// Runs `worker`, called `name` in logs, until SIGTERM, SIGINT or `desk` ends it, and returns its last state. `desk`
/// answers the clients of the control socket at `control`; SIGHUP counts as [`Request::Reload`]. Without a
/// `confinement` the process only gives up capabilities.
pub fn supervise<W: Worker<Status: serde::Serialize>>(
    control: &Path,
    name: &dyn Display,
    signals: SignalFd,
    confinement: Option<&Confinement>,
    worker: W,
    mut desk: impl Desk<W>,
) -> io::Result<W::Status> {
    let path = control;
    // Bound before the worker starts: a second daemon must not touch the traffic. Clients wait in the socket's queue
    // until it is served.
    let mut control = ControlSocket::bind(path, confinement.unwrap_or(&Confinement::default()))?;
    let worker = Handle::start(worker)?;
    match confinement {
        Some(confinement) => confinement.confine(Task::Control)?,
        None => privileges::drop_unneeded()?,
    }
    // End the status text of a box that has waited for its devices.
    notify_systemd("READY=1\nSTATUS=");
    let mut watchdog = Watchdog::of_environment();
    let (version, started) = (env!("CARGO_PKG_VERSION"), Instant::now());
    tracing::info!(target: "started", version, control = %path.display(), "{name} runs");
    let stop = |worker: Handle<W>| -> io::Result<W::Status> {
        notify_systemd("STOPPING=1");
        let status = worker.stop(STOP_PATIENCE)?;
        let up_s = started.elapsed().as_secs_f64();
        tracing::info!(target: "stopped", "{name} has ended as requested, after {up_s:.1} s");
        Ok(status)
    };
    let mut inquiry = Inquiry::default();
    loop {
        let signs = [signals.as_fd(), worker.ended.as_fd(), worker.told.as_fd()];
        let signs = signs.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let mut fds: Vec<PollFd<'_>> = signs.into_iter().chain(control.fds()).collect();
        let timers =
            [desk.next_timer(), watchdog.as_ref().map(Watchdog::next), control.next_timer()];
        match poll(&mut fds, timeout(timers.into_iter().flatten().min())) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [signalled, ended, _] = [0, 1, 2].map(|place: usize| fds[place].any().unwrap_or(true));
        drop(fds);
        if ended {
            return worker.join();
        }
        if signalled && let Some(signal) = signals.read_signal()? {
            if signal.ssi_signo != Signal::SIGHUP as u32 {
                let signal =
                    Signal::try_from(signal.ssi_signo as i32).map_or("a signal", Signal::as_str);
                tracing::info!(target: "stopping", "{name} ends: received {signal}");
                return stop(worker);
            }
            desk.answer(&worker, Request::Reload);
        }
        let now = Instant::now();
        if let Some(watchdog) = watchdog.as_mut().filter(|it| it.next() <= now) {
            if watchdog.look(now, worker.rounds.load(Ordering::Relaxed)) {
                notify_systemd("WATCHDOG=1");
            }
            // An idle worker must begin a round too.
            worker.wake();
        }
        let is_due = desk.next_timer().is_some_and(|at| at <= now);
        if is_due {
            match desk.on_timer(&worker) {
                Ok(true) => {}
                Ok(false) => return stop(worker),
                Err(error) => {
                    notify_systemd("STOPPING=1");
                    worker.stop(STOP_PATIENCE)?;
                    return Err(error);
                }
            }
        }
        control.serve(|request| desk.answer(&worker, request));
        inquiry.go_on(&worker, &desk, &mut control);
    }
}

/// A pending request for the worker's state, on behalf of all waiting clients.
struct Inquiry<W: Worker>(Option<Receiver<W::Status>>);

impl<W: Worker> Default for Inquiry<W> {
    fn default() -> Self {
        Self(None)
    }
}

impl<W: Worker<Status: serde::Serialize>> Inquiry<W> {
    /// Requests the worker's state if clients wait for it, and passes an answer on to them.
    fn go_on(&mut self, worker: &Handle<W>, desk: &impl Desk<W>, control: &mut ControlSocket) {
        // Reading resets the event; an empty one is fine.
        let _ = worker.told.read();
        let failed = |reason: &str| Answer::<W::Status>::Failed(reason.into());
        match self.0.as_ref().map(Receiver::try_recv) {
            Some(Ok(status)) => {
                control.tell(&Answer::Status(Box::new(desk.complete(status))));
                self.0 = None;
            }
            Some(Err(TryRecvError::Disconnected)) => {
                control.tell(&failed("the packet thread has ended"));
                self.0 = None;
            }
            Some(Err(TryRecvError::Empty)) | None => {}
        }
        if control.asks_for_status() {
            match worker.ask() {
                Ok(receiver) => self.0 = Some(receiver),
                Err(reason) => control.tell(&failed(reason)),
            }
        }
        control.tell_late(&failed(HANGS));
    }
}

/// Notifies systemd, if it started this process and set up a socket (sd_notify(3)).
pub(crate) fn notify_systemd(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let sent = UnixDatagram::unbound().and_then(|socket| socket.send_to(state.as_bytes(), path));
    if let Err(error) = sent {
        tracing::warn!(target: "systemd", %error, "NOTIFY_SOCKET");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    struct Echo {
        seen: std::sync::mpsc::Sender<&'static str>,
        panics: bool,
    }

    impl Worker for Echo {
        type Status = u64;
        type Change = &'static str;
        fn run(self, mailbox: Mailbox<Self>) -> io::Result<u64> {
            let mut status = 0;
            loop {
                let mut fds = [PollFd::new(mailbox.as_fd(), PollFlags::POLLIN)];
                poll(&mut fds, PollTimeout::from(10_000u16)).unwrap();
                while let Some(command) = mailbox.take() {
                    match command {
                        Command::Status(_) if self.panics => panic!("as the test asks"),
                        Command::Status(reply) => {
                            status += 1;
                            reply.send(status);
                        }
                        Command::Change(what, reply) => {
                            self.seen.send(what).unwrap();
                            reply.send(Err("not now".into())).unwrap();
                        }
                        Command::Stop => return Ok(status),
                    }
                }
            }
        }
    }

    #[test]
    fn worker_answers_refuses_changes_and_stops() {
        let (seen, received) = channel();
        let handle = Handle::start(Echo { seen, panics: false }).unwrap();
        assert_eq!(handle.status().unwrap(), 1);
        assert_eq!(handle.change("keys"), Err("not now".into()));
        assert_eq!(received.recv().unwrap(), "keys");
        assert_eq!(handle.stop(Duration::from_secs(10)).unwrap(), 1);
    }

    /// A worker that takes no command until the test lets it continue.
    struct Hung(Receiver<()>);

    impl Worker for Hung {
        type Status = u64;
        type Change = ();
        fn run(self, _mailbox: Mailbox<Self>) -> io::Result<u64> {
            let _ = self.0.recv();
            Ok(0)
        }
    }

    /// Takes commands after a first message of the test, and answers a change after a second one.
    struct Late {
        go_on: Receiver<()>,
        begun: std::sync::mpsc::Sender<&'static str>,
    }

    impl Worker for Late {
        type Status = ();
        type Change = &'static str;
        fn run(self, mailbox: Mailbox<Self>) -> io::Result<()> {
            let _ = self.go_on.recv();
            loop {
                let mut fds = [PollFd::new(mailbox.as_fd(), PollFlags::POLLIN)];
                poll(&mut fds, PollTimeout::from(10_000u16)).unwrap();
                while let Some(command) = mailbox.take() {
                    match command {
                        Command::Status(reply) => reply.send(()),
                        Command::Change(what, reply) => {
                            self.begun.send(what).unwrap();
                            let _ = self.go_on.recv();
                            reply.send(Ok(())).unwrap();
                        }
                        Command::Stop => return Ok(()),
                    }
                }
            }
        }
    }

    #[test]
    fn refused_change_never_applies_begun_one_is_awaited() {
        let ((go_on, held), (sender, begun)) = (channel(), channel());
        let handle = Handle::start(Late { go_on: held, begun: sender }).unwrap();
        let error = handle.change_within("first", Duration::from_millis(1)).unwrap_err();
        assert!(error.contains("hangs"), "{error}");
        let answer = std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                go_on.send(()).unwrap();
                let what = begun.recv().unwrap();
                // Longer than the requester waits.
                std::thread::sleep(Duration::from_millis(1500));
                go_on.send(()).unwrap();
                what
            });
            let answer = handle.change_within("second", Duration::from_secs(1));
            assert_eq!(other.join().unwrap(), "second", "the first was taken back");
            answer
        });
        assert_eq!(answer, Ok(()));
        handle.stop(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn a_worker_that_hangs_is_not_waited_for() {
        let (release, held) = channel();
        let handle = Handle::start(Hung(held)).unwrap();
        let error = handle.stop(Duration::from_millis(1)).unwrap_err().to_string();
        assert!(error.contains("hangs") && error.contains("1ms"), "{error}");
        drop(release);
    }

    #[test]
    fn a_worker_that_panics_is_noticed() {
        let handle = Handle::start(Echo { seen: channel().0, panics: true }).unwrap();
        assert!(handle.status().is_err());
        let mut fds = [PollFd::new(handle.ended.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(10_000u16)), Ok(1));
        assert!(handle.join().unwrap_err().to_string().contains("panicked"));
    }
}
