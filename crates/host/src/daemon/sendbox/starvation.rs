//! Whether the threads that carry packets get the processor when they need it.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_core::units::Timestamp;

/// A thread that takes its turn within this time of when it should is on time: three times what a busy machine was
/// seen to keep one waiting, and a delay that a call still bears.
pub const LATE: Duration = Duration::from_millis(100);
/// A starved box is judged by so long, ...
const WINDOW: Duration = Duration::from_secs(2);
/// ... of which a fifth was beyond [`LATE`]. A pause counts until the kernel forwards by itself, and one alone is less.
const STARVED: Duration = Duration::from_millis(400);

/// For how long threads have been late.
#[derive(Debug, Default)]
pub struct Starvation {
    /// From when to when, within the last [`WINDOW`], in order. Each begins [`LATE`] after the one before, if there
    /// is one between them, so there are few.
    spans: VecDeque<(Timestamp, Timestamp)>,
}

impl Starvation {
    /// From `begin` to `end`, if that is later, a thread was later than [`LATE`].
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

    /// Whether a box was late for too much of the last [`WINDOW`].
    pub fn is_starved(&self, now: Timestamp) -> bool {
        let oldest = now - WINDOW;
        let part = |(begin, end): &(Timestamp, Timestamp)| end.saturating_since(oldest.max(*begin));
        self.spans.iter().map(part).sum::<Duration>() >= STARVED
    }
}
