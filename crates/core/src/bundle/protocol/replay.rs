//! The anti-replay window of a session (RFC 4303 section 3.4.3), as a ring of bits that never shifts (RFC 6479).

/// Largest distance of an accepted message from the newest one, in sequence numbers. Far beyond the reordering
/// of a path that carries at most about 210 messages a second.
pub const WINDOW: u64 = 1024;

/// Twice the window in bits. A word that is being cleared then never holds a bit of the window.
const WORDS: u64 = 2 * WINDOW / 64;

/// The accepted sequence numbers of a session.
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    highest: u64,
    seen: [u64; WORDS as usize],
}

impl ReplayWindow {
    /// Marks all numbers up to and including `sequence` as seen. A predecessor of this box may have received
    /// messages sent before the session was accepted.
    pub fn after(sequence: u64) -> Self {
        let mut seen = [u64::MAX; WORDS as usize];
        seen[word(sequence)] = u64::MAX >> (63 - sequence % 64);
        Self { highest: sequence, seen }
    }

    /// The highest sequence number accepted.
    pub const fn highest(&self) -> u64 {
        self.highest
    }

    /// Accepts `sequence` once; false if it was used or is older than the window.
    pub fn accept(&mut self, sequence: u64) -> bool {
        if sequence > self.highest {
            let entered = (sequence / 64 - self.highest / 64).min(WORDS);
            for step in 0..entered {
                self.seen[word((sequence / 64 - step) * 64)] = 0;
            }
            self.highest = sequence;
        } else if self.highest - sequence >= WINDOW {
            return false;
        }
        let bit = 1 << (sequence % 64);
        let seen = &mut self.seen[word(sequence)];
        let is_new = *seen & bit == 0;
        *seen |= bit;
        is_new
    }
}

const fn word(sequence: u64) -> usize {
    (sequence / 64 % WORDS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    #[test]
    fn the_window_is_1024_wide() {
        let mut window = ReplayWindow::after(0);
        assert!(window.accept(5000));
        assert!(window.accept(5000 - 1023));
        assert!(!window.accept(5000 - 1024));
    }

    #[test]
    fn nothing_from_before_the_start_is_accepted() {
        for start in [0, 1, 63, 64, 65, 1000, u64::MAX - 1] {
            let mut window = ReplayWindow::after(start);
            assert!((start.saturating_sub(3000)..=start).all(|sequence| !window.accept(sequence)));
            assert!(window.accept(start + 1));
        }
    }

    #[test]
    fn the_last_sequence_number_does_not_overflow() {
        let mut window = ReplayWindow::after(7);
        assert!(window.accept(u64::MAX));
        assert!(window.accept(u64::MAX - 1));
        assert!(!window.accept(u64::MAX));
        assert!(!window.accept(8));
    }

    proptest! {
        #[test]
        fn each_number_in_the_window_is_accepted_once(
            start in 0..5000_u64,
            steps in prop::collection::vec((0..3_u8, 0..1500_u64), 1..400),
        ) {
            let mut window = ReplayWindow::after(start);
            let mut seen = BTreeSet::new();
            let mut highest = start;
            for (kind, distance) in steps {
                let sequence = match kind {
                    0 => highest + 1,
                    1 => highest + distance,
                    _ => highest.saturating_sub(distance),
                };
                let expected = sequence > start
                    && (sequence > highest || highest - sequence < WINDOW)
                    && !seen.contains(&sequence);
                prop_assert_eq!(window.accept(sequence), expected);
                seen.insert(sequence);
                highest = highest.max(sequence);
            }
        }
    }
}
