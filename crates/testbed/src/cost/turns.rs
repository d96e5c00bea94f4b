//! The times of the turns of a trial's controls.
//!
//! On a processor shared by a hypervisor, the work done per second differs by per cents from one second to
//! the next. A counting process that gets two fifths of the processor sees a multiple of that. So compared
//! trials do not follow each other. They run together, and each control sends for a tenth of a second in
//! its turn, over and over. Its processes and connections stay.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Time before a slice counts (ns). Caches and branch predictors still hold the state of the previous turn,
/// and its agent goes on looking for records for 20 ms.
const GUARD_NS: u64 = 25_000_000;
/// Time between the slices of the warm-up and the counted ones (ns): the bench requests the agents' counters.
const GAP_NS: u64 = 50_000_000;

/// The slices of one of several controls and their counted parts, relative to the start.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Times {
    /// Traffic of this control before the counted part (ns).
    pub warm_up_ns: u64,
    /// Counted time of this control (ns).
    pub duration_ns: u64,
    /// Counted part of a slice (ns), above 0.
    pub slice_ns: u64,
    /// Number of the turn, from 0.
    pub turn: u32,
    /// Number of turns.
    pub turns: u32,
}

/// A stretch of time in which a control sends (ns on the clock).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Start of sending.
    pub from: u64,
    /// Start of the counted part; equal to `until` if there is none.
    pub counted_from: u64,
    /// End of sending and of the counted part.
    pub until: u64,
}

impl Slice {
    /// The counted part; `None` if there is none.
    pub fn counted(self) -> Option<Range<u64>> {
        (self.counted_from < self.until).then_some(self.counted_from..self.until)
    }

    /// Length of the slice's part in `range` (ns).
    pub fn overlap(self, range: &Range<u64>) -> u64 {
        self.until.min(range.end).saturating_sub(self.from.max(range.start))
    }
}

impl Times {
    /// Times of a control that has the processor to itself: one slice, no guard, no gap.
    pub fn alone(warm_up_ns: u64, duration_ns: u64) -> Self {
        Self { warm_up_ns, duration_ns, slice_ns: duration_ns.max(1), turn: 0, turns: 1 }
    }

    /// These times for another turn.
    pub fn of_turn(self, turn: u32) -> Self {
        Self { turn, ..self }
    }

    /// Slices in order, on the clock of a trial that starts at `started_ns`.
    pub fn slices(self, started_ns: u64) -> Vec<Slice> {
        if self.turns <= 1 {
            let counted_from = started_ns + self.warm_up_ns;
            let until = counted_from + self.duration_ns;
            return vec![Slice { from: started_ns, counted_from, until }];
        }
        let warm_up = self.warm_up_rounds();
        let counted = self.duration_ns.div_ceil(self.slice_ns.max(1));
        let slice = |round: u64| {
            let gap_ns = if round < warm_up { 0 } else { GAP_NS };
            let slot = round * u64::from(self.turns) + u64::from(self.turn);
            let from = started_ns + gap_ns + slot * self.slot_ns();
            let counted_from = from + GUARD_NS;
            if round < warm_up {
                let until = from + self.slot_ns();
                return Slice { from, counted_from: until, until };
            }
            let left_ns = self.duration_ns - (round - warm_up) * self.slice_ns;
            Slice { from, counted_from, until: counted_from + left_ns.min(self.slice_ns) }
        };
        (0..warm_up + counted).map(slice).collect()
    }

    /// Time to request the counters that agents have from the warm-up.
    pub fn asked_at(self, started_ns: u64) -> u64 {
        match self.turns {
            0 | 1 => started_ns + self.warm_up_ns / 2,
            turns => started_ns + self.warm_up_rounds() * u64::from(turns) * self.slot_ns(),
        }
    }

    /// The counted parts of every turn, in order of time.
    pub fn counted(self, started_ns: u64) -> Vec<(usize, Range<u64>)> {
        let of_turn = |turn| {
            let slices = self.of_turn(turn).slices(started_ns);
            slices.into_iter().filter_map(move |it| Some((turn as usize, it.counted()?)))
        };
        let mut all: Vec<(usize, Range<u64>)> = (0..self.turns.max(1)).flat_map(of_turn).collect();
        all.sort_unstable_by_key(|(_, counted)| counted.start);
        all
    }

    fn warm_up_rounds(self) -> u64 {
        self.warm_up_ns.div_ceil(self.slot_ns())
    }

    fn slot_ns(self) -> u64 {
        GUARD_NS + self.slice_ns.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn one_alone_sends_in_one_piece() {
        let times = Times::alone(500 * MS, 2000 * MS);
        let slice = Slice { from: MS, counted_from: 501 * MS, until: 2501 * MS };
        assert_eq!(times.slices(MS), [slice]);
        assert_eq!(times.counted(MS), [(0, 501 * MS..2501 * MS)]);
        assert_eq!(times.asked_at(MS), 251 * MS);
    }

    #[test]
    fn traffic_of_one_trial_flows_at_a_time() {
        let (slice_ns, turns) = (100 * MS, 3);
        let times = Times { warm_up_ns: 200 * MS, duration_ns: 250 * MS, slice_ns, turn: 0, turns };
        let mut all = Vec::new();
        for turn in 0..3 {
            let slices = times.of_turn(turn).slices(7);
            let counted = slices.iter().filter_map(|slice| slice.counted());
            let lengths: Vec<u64> = counted.map(|it| it.end - it.start).collect();
            assert_eq!(lengths, [100 * MS, 100 * MS, 50 * MS]);
            // Two rounds of 125 ms are the shortest warm-up of at least 200 ms.
            let warm: Vec<u64> = slices[..2].iter().map(|it| it.until - it.from).collect();
            assert_eq!(warm, [125 * MS, 125 * MS]);
            assert!(slices[2..].iter().all(|it| it.counted_from - it.from == GUARD_NS));
            all.extend(slices);
        }
        all.sort_unstable_by_key(|slice| slice.from);
        assert!(all.windows(2).all(|two| two[0].until <= two[1].from), "{all:?}");
        assert_eq!((all[0].from, all[5].until), (7, times.asked_at(7)));
        assert_eq!(all[6].from - all[5].until, GAP_NS);
        let turns: Vec<usize> = times.counted(7).iter().map(|(turn, _)| *turn).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn slice_counts_by_its_overlap_with_a_range() {
        let slice = Slice { from: 10, counted_from: 15, until: 30 };
        assert_eq!(
            [0..100, 20..25, 0..10, 25..40].map(|range| slice.overlap(&range)),
            [20, 5, 0, 5]
        );
    }
}
