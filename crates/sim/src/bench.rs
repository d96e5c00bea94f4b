//! Loops over private parts of the simulator, for the benches.

use forebay_core::random::{Stream, Streams};
use forebay_core::units::Timestamp;

use crate::event::{Event, Events};
use crate::packet::Range;
use crate::tcp::scoreboard::{Scoreboard, Sent};

/// The hold model of event queues. Each step takes the first event and plans it again up to twice the mean
/// delay ahead, with a constant number pending (Jones, CACM 1986).
pub struct Hold {
    events: Events,
    random: Stream,
}

impl Hold {
    /// Longest delay in ns, twice the mean; the delays are uniform.
    const LONGEST_NS: u64 = 40_000_000;

    /// A model with `pending` events.
    pub fn new(pending: u32) -> Self {
        let mut hold = Self { events: Events::default(), random: Streams::new(1).stream("hold") };
        for index in 0..pending {
            hold.plan(Timestamp::ZERO, Event::Start(index));
        }
        hold
    }

    fn plan(&mut self, now: Timestamp, event: Event) {
        let delay_ns = self.random.below(Self::LONGEST_NS);
        self.events.add(Timestamp::from_nanos(now.as_nanos() + delay_ns), event);
    }

    /// Takes an event and plans it again; returns its time.
    pub fn step(&mut self) -> u64 {
        let Some((now, event)) = self.events.pop(Timestamp::MAX) else { return 0 };
        self.plan(now, event);
        now.as_nanos()
    }
}

/// A window of segments with losses, retransmissions and acknowledgements.
pub struct Window {
    board: Scoreboard,
    segments: u32,
    lost_of: u32,
}

impl Window {
    /// A window of `segments` segments; the first of every `lost_of` is lost, none for 0.
    pub fn new(segments: u32, lost_of: u32) -> Self {
        Self { board: Scoreboard::new(false), segments, lost_of }
    }

    /// Sends a window, takes an acknowledgement for each arriving segment, repairs losses and takes the
    /// acknowledgements of the repairs. Returns the number of segments reported delivered.
    pub fn cycle(&mut self) -> u32 {
        let base = self.board.next();
        let end = base + self.segments;
        let is_lost = |at: u32| self.lost_of > 0 && (at - base).is_multiple_of(self.lost_of);
        (base..end).for_each(|_| {
            self.board.send_new(Sent::default());
        });
        let (mut una, mut delivered) = (base, 0);
        for number in base..end {
            if is_lost(number) {
                continue;
            }
            let in_order = una == number;
            una += u32::from(in_order);
            let block = Range { start: number, end: number + 1 };
            let blocks: &[Range] = if in_order { &[] } else { &[block] };
            delivered += self.board.acknowledge(una, blocks).delivered;
            while let Some(lost) = self.board.next_lost() {
                self.board.send_again(lost, Sent::default());
            }
        }
        while una < end {
            una += 1;
            while una < end && !is_lost(una) {
                una += 1;
            }
            delivered += self.board.acknowledge(una, &[]).delivered;
        }
        delivered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_segment_of_a_cycle_is_delivered_once() {
        for lost_of in [0, 2, 7] {
            let mut window = Window::new(100, lost_of);
            assert_eq!([window.cycle(), window.cycle()], [100, 100]);
            assert_eq!(window.board.in_flight(), 0);
        }
    }
}
