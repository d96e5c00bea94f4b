//! Clients that must not keep others waiting: a second for all that one asks, and another for all that it reads.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use socket2::SockRef;

/// How long one client may take to ask, and as long again to read, however little it leaves between two bytes.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of an answer handed over at a time.
const PART: usize = 1 << 15;

/// A client's stream, which is given up [`PATIENCE`] after it was made.
pub struct Impatient<'a, S> {
    stream: &'a S,
    until: Instant,
}

impl<'a, S: AsFd> Impatient<'a, S> {
    /// A stream that is given up at a time from now on.
    pub fn of(stream: &'a S) -> Self {
        Self { stream, until: Instant::now() + PATIENCE }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl<'a, S: AsFd> Read for Impatient<'a, S>
where
    &'a S: Read,
{
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        SockRef::from(stream).set_read_timeout(self.left()?)?;
        stream.read(bytes)
    }
}

impl<'a, S: AsFd> Write for Impatient<'a, S>
where
    &'a S: Write,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        SockRef::from(stream).set_write_timeout(self.left()?)?;
        // The kernel waits anew for room for each part of a long text.
        stream.write(&bytes[..bytes.len().min(PART)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
