//! The log of a daemon: lines on stderr, written by a thread of their own.
//!
//! A full disk, or a reader that has gone or does not read, must not delay packets. A line is handed over
//! without waiting, lines that cannot be written are counted ([`lost`]), and the log reports their number once
//! it works again. Panics are logged too, since they would otherwise wait for stderr.

pub mod events;
pub mod foreign;
pub mod format;

use std::io::{self, Write};
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use forebay_core::units::Timestamp;

/// Lines that may wait for the writer: minutes of a daemon's log, and a burst of any.
const QUEUE: usize = 1024;
/// Longest time that the end of a process waits for its last lines.
const FAREWELL: Duration = Duration::from_millis(250);

/// Lines about one subject that may follow each other at once.
const BURST: u32 = 6;
/// Time after which one more line about that subject may follow.
const REFILL: Duration = Duration::from_secs(60);

/// Name of the loss if the log cannot be written.
pub const LOST_LINES: &str = "lines of the log";

/// The queue of the process's log, once there is a writer.
static LINES: OnceLock<SyncSender<Message>> = OnceLock::new();
/// Lines that were dropped because the queue was full or the log could not be written.
static LOST: AtomicU64 = AtomicU64::new(0);

enum Message {
    Line(Vec<u8>),
    /// Request for an answer once all earlier lines have been handled.
    Flush(SyncSender<()>),
}

/// Lines that could not be written since the start.
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Limit on log lines about a subject that can repeat: a few at once, and then one per minute.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowance {
    /// Time at which the allowance for lines is full again.
    settled_at: Timestamp,
}

impl Allowance {
    /// Whether a line may be logged at `now`. Counts it if so.
    pub fn takes(&mut self, now: Timestamp) -> bool {
        let settled_at = self.settled_at.max(now) + REFILL;
        let is_taken = settled_at.saturating_since(now) <= BURST * REFILL;
        if is_taken {
            self.settled_at = settled_at;
        }
        is_taken
    }
}

/// Starts the writer of this process's log, which first calls `prepare`, for example to give up its privileges.
/// Block the signals for other threads before. Before this call, and in commands that are no daemons, each
/// caller writes its own lines.
pub fn start(prepare: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    let (sender, lines) = sync_channel(QUEUE);
    let (failed, outcome) = mpsc::channel();
    std::thread::Builder::new().name("log".into()).spawn(move || match prepare() {
        Ok(()) => {
            drop(failed);
            Writer::new(Stderr).write_all(&lines);
        }
        Err(error) => drop(failed.send(error)),
    })?;
    // Wait until the thread is ready: it then drops its end.
    if let Ok(error) = outcome.recv() {
        return Err(error);
    }
    // A process has one log. A second daemon in it, as in tests, uses the log of the first.
    let _ = LINES.set(sender);
    panic::set_hook(Box::new(|what| {
        let trace = std::backtrace::Backtrace::capture();
        tracing::error!(target: "panic", "{what}\n{trace}");
    }));
    Ok(())
}

/// Prints `text` on stdout from a separate thread, so that a slow reader blocks nothing else.
pub fn announce(text: String) {
    let print = move || {
        let mut stdout = io::stdout().lock();
        // A reader that has gone does no harm.
        let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    };
    if let Err(error) = std::thread::Builder::new().name("stdout".into()).spawn(print) {
        tracing::warn!(target: "stdout", %error, "stdout cannot be written");
    }
}

/// Logs `text`, and then waits a short time until all lines are written: for the end of a process.
pub fn end(text: Option<&str>) {
    if let Some(text) = text {
        // A failure is counted; there is no other remedy.
        let _ = writeln!(Line, "{text}");
    }
    let Some(lines) = LINES.get() else { return };
    let deadline = Instant::now() + FAREWELL;
    let (written, all_written) = sync_channel(1);
    let mut flush = Message::Flush(written);
    while let Err(TrySendError::Full(unsent)) = lines.try_send(flush) {
        if Instant::now() >= deadline {
            return;
        }
        flush = unsent;
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = all_written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
}

/// Takes one line of the log per `write`, as `tracing_subscriber` makes them. Never returns an error.
#[derive(Clone, Copy, Debug)]
pub struct Line;

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let is_taken = match LINES.get() {
            Some(lines) => lines.try_send(Message::Line(line.to_vec())).is_ok(),
            None => Stderr.write_all(line).is_ok(),
        };
        if !is_taken {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn write_fmt(&mut self, text: std::fmt::Arguments<'_>) -> io::Result<()> {
        self.write(text.to_string().as_bytes()).map(drop)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Stderr without the lock of the standard library: a blocked writer blocks no other thread.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(nix::unistd::write(io::stderr(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// State of the writer thread.
struct Writer<W> {
    out: W,
    /// The last line was written in part.
    is_torn: bool,
    /// Lost lines that the log has reported.
    told: u64,
}

impl<W: Write> Writer<W> {
    fn new(out: W) -> Self {
        Self { out, is_torn: false, told: 0 }
    }

    fn write_all(&mut self, messages: &Receiver<Message>) {
        // The sender is never dropped: this thread ends with the process.
        for message in messages {
            match message {
                Message::Flush(written) => drop(written.try_send(())),
                Message::Line(line) => {
                    if self.write(&line) {
                        self.tell_of_losses();
                    } else {
                        LOST.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    /// Reports losses after the first line that could be written. If the queue is full then, the report follows
    /// a later line.
    fn tell_of_losses(&mut self) {
        let lost = lost();
        if lost > self.told {
            tracing::warn!(
                target: "log",
                "the log has lost {lost} lines since the start: they could not be written"
            );
            if self::lost() == lost {
                self.told = lost;
            }
        }
    }

    /// Writes a line; false if a part could not be written.
    fn write(&mut self, line: &[u8]) -> bool {
        let torn: &[u8] = if self.is_torn { b"\n" } else { b"" };
        let line = [torn, line].concat();
        let mut rest = &line[..];
        while !rest.is_empty() {
            match self.out.write(rest) {
                Ok(0) => break,
                Ok(written) => {
                    self.is_torn = true;
                    rest = &rest[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.is_torn &= !rest.is_empty();
        rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for `room` bytes.
    struct Disk {
        room: usize,
        held: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let written = bytes.len().min(self.room);
            if written == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= written;
            self.held.extend_from_slice(&bytes[..written]);
            Ok(written)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn repeated_event_is_logged_at_most_each_minute() {
        let mut allowance = Allowance::default();
        let mut told =
            (0..600).filter(|s| allowance.takes(Timestamp::from_nanos(s * 1_000_000_000)));
        let first: Vec<u64> = told.by_ref().take(6).collect();
        assert_eq!(first, [0, 1, 2, 3, 4, 5]);
        assert_eq!(told.collect::<Vec<u64>>(), [60, 120, 180, 240, 300, 360, 420, 480, 540]);
        let after_an_hour = Timestamp::from_nanos(3_600_000_000_000);
        assert_eq!((0..10).filter(|_| allowance.takes(after_an_hour)).count(), 6);
    }

    #[test]
    fn line_after_a_truncated_one_starts_fresh() {
        let mut writer = Writer::new(Disk { room: 10, held: Vec::new() });
        assert!(writer.write(b"whole\n"));
        assert!(!writer.write(b"cut off\n") && !writer.write(b"no room\n"));
        writer.out.room = 100;
        assert!(writer.write(b"again\n") && writer.write(b"and on\n"));
        assert_eq!(writer.out.held, b"whole\ncut \nagain\nand on\n");
    }
}
