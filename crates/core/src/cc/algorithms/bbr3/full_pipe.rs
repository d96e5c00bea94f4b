//! Whether faster sending still raises the delivery rate (draft, section 5.3.1.2).

use crate::units::Rate;

/// Growth of the delivery rate below which a round has brought little, in percent.
const GROWTH_PERCENT: u64 = 125;
/// Rounds in a row that bring little until the pipe counts as full.
const ROUNDS: u32 = 3;

/// Looks for a plateau of the delivery rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    /// Rate that was last seen to grow (BBR.full_bw), and the rounds since (BBR.full_bw_count).
    baseline: Rate,
    rounds: u32,
    /// The pipe is full, as far as was seen since the last start (BBR.full_bw_now).
    pub is_now: bool,
    /// The pipe has been full since the connection began (BBR.full_bw_reached).
    pub has_been: bool,
}

impl FullPipe {
    /// Looks again, for more than `baseline`.
    pub fn restart(&mut self, baseline: Rate) {
        (self.baseline, self.rounds, self.is_now) = (baseline, 0, false);
    }

    /// Takes the delivery rate of a round that has ended and was not app-limited.
    pub fn on_round(&mut self, rate: Rate) {
        if self.is_now {
            return;
        }
        let grown = super::percent(self.baseline.as_bits_per_sec(), GROWTH_PERCENT);
        if rate.as_bits_per_sec() >= grown {
            self.restart(rate);
            return;
        }
        self.rounds += 1;
        if self.rounds >= ROUNDS {
            self.fill();
        }
    }

    /// The pipe is full, whatever the rate was.
    pub fn fill(&mut self) {
        (self.is_now, self.has_been) = (true, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(mbit: &[u64]) -> FullPipe {
        let mut pipe = FullPipe::default();
        mbit.iter().for_each(|mbit| pipe.on_round(Rate::from_mbit_per_sec(*mbit)));
        pipe
    }

    #[test]
    fn three_rounds_below_25_percent_growth_fill_it() {
        assert!(!after(&[10, 20, 24, 24]).is_now);
        assert!(after(&[10, 20, 24, 24, 24]).is_now);
        // A round that gains a quarter starts the count of three rounds again.
        assert!(!after(&[10, 20, 24, 24, 25, 26, 27]).is_now);
    }

    #[test]
    fn full_pipe_stays_known_during_a_new_search() {
        let mut pipe = after(&[10, 10, 10, 10]);
        pipe.restart(Rate::from_mbit_per_sec(10));
        assert_eq!((pipe.is_now, pipe.has_been), (false, true));
        pipe.on_round(Rate::from_mbit_per_sec(12));
        pipe.on_round(Rate::from_mbit_per_sec(12));
        assert!(!pipe.is_now);
        pipe.on_round(Rate::from_mbit_per_sec(12));
        assert!(pipe.is_now);
    }
}
