//! Checks whether the threads that carry packets get the processor when they need it.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_core::units::Timestamp;

/// Largest delay of a turn that is still on time: three times the longest delay seen on a busy machine, and
/// one that a call still bears.
pub const LATE: Duration = Duration::from_millis(100);
/// Window over which a box is judged, ...
const WINDOW: Duration = Duration::from_secs(2);
/// ... and the time beyond [`LATE`] in it, a fifth, from which on the box is starved. A pause counts until
/// the kernel forwards by itself, so a single pause is shorter.
const STARVED: Duration = Duration::from_millis(400);

/// Time for which threads have been late.
#[derive(Debug, Default)]
pub struct Starvation {
    /// Start and end of late times within the last [`WINDOW`], in order. Unless two touch, [`LATE`] or more
    /// lies between their starts, so there are few.
    spans: VecDeque<(Timestamp, Timestamp)>,
}

impl Starvation {
    /// Records that a thread was later than [`LATE`] from `begin` to `end`, if `end` is after `begin`.
    pub fn note(&mut self, begin: Timestamp, end: Timestamp) {
        if begin >= end {
            return;
        }
        let oldest = end - WINDOW;
        while self.spans.front().is_some_and(|(_, end)| *end <= oldest) {
            self.spans.pop_front();
        }
        match self.spans.back_mut() {
            Some((first, last)) if *last >= begin => {
                (*first, *last) = (begin.min(*first), end.max(*last));
            }
            _ => self.spans.push_back((begin, end)),
        }
    }

    /// Whether threads were late for too great a part of the last [`WINDOW`].
    pub fn is_starved(&self, now: Timestamp) -> bool {
        let oldest = now - WINDOW;
        let part = |(begin, end): &(Timestamp, Timestamp)| end.saturating_since(oldest.max(*begin));
        self.spans.iter().map(part).sum::<Duration>() >= STARVED
    }
}
