//! Which processors do which part of a run's work.
//!
//! A frame that the emulator hands to a device is received at the other end within the same call:
//! bridged, taken by the TCP of its host and answered, all before the emulator's next frame. Behind
//! two full directions acknowledgements come in bursts, and one burst held it up for 1-2 ms. Receive
//! packet steering (Documentation/networking/scaling.rst of the kernel) at the devices of the boxes
//! moves that work to other processors. It goes before any process there, of whatever priority, so
//! the emulator keeps to the one that is left out.

use std::fmt::Write as _;
use std::io;

use crate::process;

/// The parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processors {
    /// Where the emulator runs.
    pub emulator: usize,
    /// The others, as the kernel reads a set: hexadecimal, in groups of 32 bits.
    pub others: String,
}

impl Processors {
    /// Splits the processors on which this thread may run; `None` where there is only one.
    pub fn split() -> io::Result<Option<Self>> {
        Ok(Self::of(&process::processors()?))
    }

    fn of(allowed: &[usize]) -> Option<Self> {
        // The first one has the machine's own interrupts.
        let (emulator, others) = allowed.split_last().filter(|(_, others)| !others.is_empty())?;
        Some(Self { emulator: *emulator, others: mask(others) })
    }
}

fn mask(processors: &[usize]) -> String {
    let groups = processors.iter().max().map_or(1, |last| last / 32 + 1);
    let mut text = String::new();
    for group in (0..groups).rev() {
        let inside = processors.iter().filter(|processor| **processor / 32 == group);
        let bits = inside.fold(0u32, |bits, processor| bits | 1 << (processor % 32));
        let comma = if group > 0 { "," } else { "" };
        let _ = write!(text, "{bits:08x}{comma}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emulator_has_the_last_processor_for_itself() {
        assert_eq!(Processors::of(&[3]), None);
        let parts = Processors { emulator: 1, others: "00000001".into() };
        assert_eq!(Processors::of(&[0, 1]), Some(parts));
        let parts = Processors { emulator: 40, others: "00000081,80000004".into() };
        assert_eq!(Processors::of(&[2, 31, 32, 39, 40]), Some(parts));
    }
}
