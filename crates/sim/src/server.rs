//! The transmitter of a link: a constant rate is computed here, a trace in core.

use forebay_core::link;
use forebay_core::units::{ByteCount, Rate, Timestamp};

use crate::event::after;

/// The transmitter of a link.
#[derive(Debug)]
pub(crate) enum Server {
    /// A constant rate; zero stops it.
    Rate(RateServer),
    /// The opportunities of a trace.
    Trace(TraceServer),
    /// No limit: every packet leaves at once.
    Unlimited,
}

impl Server {
    /// An idle server; a trace begins at time zero. With `rounds` each service time is rounded to whole
    /// nanoseconds, as in ns-3 (DataRate::CalculateBytesTxTime).
    pub fn new(service: &link::Service, rounds: bool) -> Self {
        match service {
            link::Service::Unlimited => Self::Unlimited,
            link::Service::Rate(rate) => Self::Rate(RateServer::new(*rate, rounds)),
            link::Service::Trace(_) => {
                let server = link::Server::new(service.clone(), Timestamp::ZERO);
                Self::Trace(TraceServer { server: Box::new(server), ready_at: None })
            }
        }
    }

    /// Whether the waiting packet may be taken at `now`, given that none is being sent.
    #[inline]
    pub fn is_ready(&mut self, now: Timestamp) -> bool {
        match self {
            Self::Rate(server) => server.rate > Rate::ZERO,
            Self::Trace(server) => server.ready_at(now).is_some_and(|at| at <= now),
            Self::Unlimited => true,
        }
    }

    /// Departure time of a packet of `len` bytes taken at `now`. The server must be ready.
    #[inline]
    pub fn send(&mut self, now: Timestamp, len: u16) -> Timestamp {
        match self {
            Self::Rate(server) => server.send(now, len),
            Self::Trace(server) => {
                server.ready_at = None;
                server.server.send(now, ByteCount::new(u64::from(len)))
            }
            Self::Unlimited => now,
        }
    }

    /// Sends packets at `rate` from now on; the packet in transmission is not affected.
    pub fn set_rate(&mut self, rate: Rate) {
        let rounds = matches!(self, Self::Rate(server) if server.rounds);
        *self = Self::Rate(RateServer::new(rate, rounds));
    }
}

/// The transmitter of a trace.
#[derive(Debug)]
pub(crate) struct TraceServer {
    server: Box<link::Server>,
    /// Time at which the waiting packet may be taken; computed once for each.
    ready_at: Option<Timestamp>,
}

impl TraceServer {
    /// Time at which a packet that waits at `now` may be taken.
    pub fn ready_at(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.ready_at = self.ready_at.or_else(|| self.server.ready_at(now));
        self.ready_at
    }

    /// No packet waits: the rest of an opportunity is lost.
    pub fn idle(&mut self) {
        self.server.idle();
        self.ready_at = None;
    }
}

/// Nanoseconds per second.
const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A transmitter of constant rate. Service times are whole nanoseconds. The remainder is carried, so that a
/// busy server keeps its rate, or rounded.
#[derive(Debug)]
pub(crate) struct RateServer {
    rate: Rate,
    rounds: bool,
    /// Carried part of a nanosecond, in bit nanoseconds per second, below the rate.
    carry: u64,
    /// Last departure.
    free_at: Timestamp,
    /// Service time and remainder for packets of `len`: most have the same length.
    len: u16,
    service_ns: u64,
    remainder: u64,
}

impl RateServer {
    const fn new(rate: Rate, rounds: bool) -> Self {
        let free_at = Timestamp::ZERO;
        Self { rate, rounds, carry: 0, free_at, len: 0, service_ns: 0, remainder: 0 }
    }

    fn send(&mut self, now: Timestamp, len: u16) -> Timestamp {
        if now > self.free_at {
            self.carry = 0;
        }
        if len != self.len {
            // Like `ByteCount::time_at_carrying`, but in 64 bits: short connections change the length all the
            // time.
            let (work, rate) = (u64::from(len) * 8 * NANOS_PER_SEC, self.rate.as_bits_per_sec());
            self.len = len;
            self.service_ns = work.checked_div(rate).unwrap_or(u64::MAX);
            self.remainder = work.checked_rem(rate).unwrap_or(0);
            if self.rounds {
                self.service_ns += u64::from(2 * self.remainder >= rate && rate > 0);
                self.remainder = 0;
            }
        }
        self.carry += self.remainder;
        let is_due = self.carry >= self.rate.as_bits_per_sec();
        if is_due {
            self.carry -= self.rate.as_bits_per_sec();
        }
        self.free_at = after(now, self.service_ns + u64::from(is_due));
        self.free_at
    }
}
