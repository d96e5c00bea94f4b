//! Decisions for the datapath: a slot of 64 bytes for each connection, in memory shared with the kernel
//! (`struct slot` of `bpf/tcp_flow.h`).
//!
//! A slot has one writer. Its count is odd while it is written. The datapath takes a reading only if
//! the count was even and the same before and after, and the sum over the words agrees. That also holds
//! where the machine reorders stores. Nothing else in a slot is trusted: the datapath clamps every
//! number.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{Ordering, fence};

use forebay_core::cc::interim::{SEGMENTS_MAX, SlowStart, Terms, in_segments};
use forebay_core::cc::{Interim, SendLimits};
use forebay_core::units::{ByteCount, Duration, Rate};

use super::report::Head;
use crate::mapped::MappedWords;
use crate::skel::Plain;
use crate::skel::tcp_datapath::types;
pub(crate) use crate::skel::tcp_datapath::types::slot as Slot;

/// Words of 8 bytes in a slot.
const SLOT_WORDS: usize = size_of::<Slot>() / 8;

/// When a report closes, unless an event closes it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cadence {
    /// With each round, as long as the last report is so old.
    Round {
        /// The least time between two reports.
        at_least: Duration,
    },
    /// With the first acknowledgement after this time; zero: with every one.
    Every(Duration),
}

/// How a connection is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reporting {
    /// When the kernel reports.
    pub cadence: Cadence,
    /// Each report wakes its reader, not only an urgent one.
    pub wake: bool,
}

impl Default for Reporting {
    /// A report per round, at most one per millisecond, and none wakes.
    fn default() -> Self {
        Self { cadence: Cadence::Round { at_least: Duration::from_millis(1) }, wake: false }
    }
}

impl Reporting {
    /// The time between reports, and the flags of a slot.
    fn words(self) -> (u32, u16) {
        let wake = if self.wake { WAKE } else { 0 };
        match self.cadence {
            Cadence::Round { at_least } => (micros(at_least), PER_ROUND | wake),
            Cadence::Every(period) => (micros(period), wake),
        }
    }
}

/// A decision about a connection, in segments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Decision {
    /// The window, counted from the reported window where the interim moves it; `None` leaves it.
    pub cwnd: Option<u32>,
    /// Slow-start threshold; `None` leaves it.
    pub ssthresh: Option<u32>,
    /// Pacing rate; `None`: not paced.
    pub pacing_rate: Option<Rate>,
    /// The terms that it follows until the next decision.
    pub terms: Terms,
    /// When it reports.
    pub reporting: Reporting,
}

impl Decision {
    /// Limits and interim of an algorithm for segments of `mss` bytes ([`Head::mss`]).
    pub fn new(limits: &SendLimits, interim: &Interim, mss: u32, reporting: Reporting) -> Self {
        let mss = ByteCount::new(u64::from(mss));
        let (cwnd, ssthresh) = in_segments(limits, mss);
        let terms = Terms::new(interim, mss);
        Self { cwnd, ssthresh, pacing_rate: limits.pacing_rate, terms, reporting }
    }
}

/// Bit of `flags`: a report each round trip (`LAW_PER_ROUND`). The lowest two bits are the kind of
/// slow start.
pub(crate) const PER_ROUND: u16 = 1 << 2;
/// Bit of `flags`: each report wakes the reader (`LAW_WAKE`).
pub(crate) const WAKE: u16 = 1 << 3;

/// The kind of slow start as the datapath numbers it.
pub(crate) fn slow_start_bits(kind: SlowStart) -> u16 {
    match kind {
        SlowStart::Hold => 0,
        SlowStart::Standard => 1,
        SlowStart::HyStart => 2,
        SlowStart::HyStartPlusPlus => 3,
    }
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

impl Slot {
    /// `decision` in answer to `answers`; the count is left at 0.
    pub(crate) fn new(answers: &Head, decision: &Decision) -> Self {
        // A rate of zero would mean none.
        let pacing_rate =
            decision.pacing_rate.map_or(0, |rate| (rate.as_bits_per_sec() / 8).max(1));
        let mut slot = Self {
            generation: answers.flow.generation,
            answered: answers.seq,
            answered_us: (answers.at.as_nanos() / 1000) as u32,
            cwnd: decision.cwnd.map_or(0, |cwnd| cwnd.clamp(1, SEGMENTS_MAX)),
            known_cwnd: answers.cwnd,
            ssthresh: decision.ssthresh.map_or(0, |ssthresh| ssthresh.clamp(1, SEGMENTS_MAX)),
            law: law(&decision.terms, decision.reporting),
            pacing_rate,
            ..Self::default()
        };
        slot.seal();
        slot
    }

    /// Sets the sum.
    pub(crate) fn seal(&mut self) {
        self.check = 0;
        let sum = self.words().fold(0_u32, |sum, word| {
            sum.wrapping_add(word as u32).wrapping_add((word >> 32) as u32)
        });
        self.check = sum.wrapping_sub(self.count);
    }
}

/// Terms and reporting as the datapath has them.
pub(crate) fn law(terms: &Terms, reporting: Reporting) -> types::law {
    let (report_us, reporting) = reporting.words();
    types::law {
        growth: terms.growth,
        cap: terms.cap,
        beta: terms.beta,
        flags: slow_start_bits(terms.slow_start) | reporting,
        trip_lost: terms.trip_lost,
        trip_ce: terms.trip_ce,
        trip_rtt_us: terms.trip_rtt_us,
        report_us,
    }
}

/// The slots of a datapath, in memory shared with it.
#[derive(Debug)]
pub(crate) struct Slots {
    memory: MappedWords,
    count: usize,
}

impl Slots {
    /// Maps the array behind `map`, of `count` slots.
    pub(crate) fn new(map: impl AsFd, count: usize) -> io::Result<Self> {
        Ok(Self { memory: MappedWords::new(map, count * SLOT_WORDS)?, count })
    }

    /// Writes a slot; false if there is none of that number. `&mut`: a slot has one writer.
    pub(crate) fn write(&mut self, index: u32, slot: &Slot) -> bool {
        let index = index as usize;
        if index >= self.count {
            return false;
        }
        let words = &self.memory.words()[index * SLOT_WORDS..][..SLOT_WORDS];
        // The first word is the count and the generation.
        let count = words[0].load(Ordering::Relaxed) as u32 | 1;
        let head = |count: u32| u64::from(count) | u64::from(slot.generation) << 32;
        words[0].store(head(count), Ordering::Relaxed);
        fence(Ordering::Release);
        for (to, from) in words.iter().zip(slot.words()).skip(1) {
            to.store(from, Ordering::Relaxed);
        }
        words[0].store(head(count.wrapping_add(1)), Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::cc::interim::Beta;

    use super::super::report::{Events, tests};
    use super::*;

    fn head() -> Head {
        let head = tests::parsed(&tests::blank(Events::ROUND)).head;
        Head { cwnd: 20, at: forebay_core::units::Timestamp::from_nanos(5_000_999), ..head }
    }

    #[test]
    fn decision_converts_limits_to_segments() {
        let limits = SendLimits {
            cwnd: Some(ByteCount::new(20 * 1448 + 1447)),
            ssthresh: None,
            pacing_rate: Some(Rate::from_bits_per_sec(7)),
            ..SendLimits::default()
        };
        let interim = Interim {
            growth: ByteCount::new(724),
            slow_start: SlowStart::HyStartPlusPlus,
            beta: Some(Beta::of(7, 10)),
            ..Interim::HOLD
        };
        let reporting = Reporting { wake: true, ..Reporting::default() };
        let decision = Decision::new(&limits, &interim, 1448, reporting);
        let slot = Slot::new(&head(), &decision);
        assert_eq!((slot.generation, slot.answered, slot.answered_us), (7, 3, 5_000));
        assert_eq!((slot.cwnd, slot.known_cwnd, slot.ssthresh), (20, 20, 0));
        assert_eq!((slot.law.growth, slot.law.cap, slot.law.beta), (512, SEGMENTS_MAX, 717));
        assert_eq!((slot.law.flags, slot.law.report_us), (3 | PER_ROUND | WAKE, 1_000));
        assert_eq!(slot.pacing_rate, 1);
    }

    #[test]
    fn the_sum_tells_a_slot_that_was_torn() {
        let mut slot = Slot::new(&head(), &Decision::default());
        let sum = slot.check;
        slot.count = 77;
        slot.seal();
        assert_eq!(slot.check, sum, "the count is no part of it");
        slot.cwnd += 1;
        slot.seal();
        assert_ne!(slot.check, sum);
    }
}
