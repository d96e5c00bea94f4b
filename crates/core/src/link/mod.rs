//! What a one-way link does to packets: loss, a queue served at a rate or by a trace, delay, reordering.
//!
//! Simulator and testbed have links of their own, in events and in virtual time; what they have in common
//! is here.

mod generate;
mod jitter;
mod server;
mod trace;

use alloc::vec::Vec;

pub use self::generate::{OPPORTUNITIES_MAX, PoissonTrace};
pub use self::jitter::Jitter;
pub use self::server::{Server, Service};
pub use self::trace::{OPPORTUNITY, Trace};
use crate::spec::SpecError;
use crate::units::{Duration, Rate, Ratio, format_duration};

/// Longest time that a packet is held back when too few packets come to overtake it: half of
/// Linux's minimum retransmission timeout (TCP_RTO_MIN, 200 ms), so that a reordered packet is
/// late but not mistaken for a lost one by that timer.
pub const MAX_HOLD: Duration = Duration::from_millis(100);

/// What a link does to packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What it sends at.
    pub service: Service,
    /// Propagation delay.
    pub delay: Duration,
    /// Each packet takes up to so much longer, by a draw of its own; it waits for those before it, so that
    /// nothing is overtaken.
    pub jitter: Duration,
    /// Packets begin the delay together, at whole multiples of this, as those of a radio or cable link that waits
    /// for its turn do; zero: each when it has been sent.
    pub batch: Duration,
    /// Share of the packets that are lost before the queue.
    pub loss: Ratio,
    /// Share of the packets that are held back behind the queue ...
    pub reorder: Ratio,
    /// ... until this many later packets have overtaken them, at most [`MAX_HOLD`].
    pub reorder_packets: u32,
    /// Changes, in order of time.
    pub changes: Vec<Change>,
}

/// A change of a link; `None` leaves the value as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// When, since the start of the link.
    pub at: Duration,
    /// New rate, from the next packet on; not on a link with a trace.
    pub rate: Option<Rate>,
    /// New propagation delay, of packets that depart from then on. After a decrease they wait for
    /// those before them: nothing overtakes.
    pub delay: Option<Duration>,
    /// New loss.
    pub loss: Option<Ratio>,
}

impl Config {
    /// A link at a constant rate with nothing else.
    pub const fn at_rate(rate: Rate, delay: Duration) -> Self {
        Self {
            service: Service::Rate(rate),
            delay,
            jitter: Duration::ZERO,
            batch: Duration::ZERO,
            loss: Ratio::ZERO,
            reorder: Ratio::ZERO,
            reorder_packets: 0,
            changes: Vec::new(),
        }
    }

    /// Refuses changes out of order, or of the rate of a trace.
    pub fn check(&self) -> Result<(), SpecError> {
        let text = |at| format_duration(at);
        for pair in self.changes.windows(2) {
            if pair[1].at < pair[0].at {
                let allowed = "not before the change above it";
                return Err(SpecError::new("at", &text(pair[1].at), allowed));
            }
        }
        if matches!(self.service, Service::Trace(_))
            && let Some(change) = self.changes.iter().find(|change| change.rate.is_some())
        {
            let allowed = "no change of the rate on a link with a trace";
            return Err(SpecError::new("at", &text(change.at), allowed));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn changes_out_of_order_or_against_a_trace_are_refused() {
        let plain = Config::at_rate(Rate::from_mbit_per_sec(12), Duration::ZERO);
        let change =
            |at_ms, rate| Change { at: Duration::from_millis(at_ms), rate, ..Change::default() };
        let changes = vec![change(2, None), change(1, None)];
        assert_eq!(Config { changes, ..plain.clone() }.check().unwrap_err().value, "1ms");
        let service = Service::Trace(Trace::parse("t", "1").unwrap().into());
        let changes = vec![change(7, Some(Rate::ZERO))];
        assert_eq!(Config { service, changes, ..plain }.check().unwrap_err().value, "7ms");
    }
}
