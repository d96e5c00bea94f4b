//! Assigns processors to the parts of a run's work.
//!
//! When the emulator hands a frame to a device, the kernel receives it at the other end within the
//! same call. It bridges the frame, passes it to TCP and answers it, all before the emulator's next
//! frame. With both directions full, acknowledgements come in bursts, and one burst held the
//! emulator up for 1-2 ms. Receive packet steering (Documentation/networking/scaling.rst of the
//! kernel) at the devices of the boxes moves that work to other processors. There it runs before any
//! process, regardless of priority. So the emulator keeps to the processor that is left out.

use std::fmt::Write as _;
use std::io;

use crate::process;

/// Processors by part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processors {
    /// Processor of the emulator.
    pub emulator: usize,
    /// All other processors, in the kernel's notation of a set: hexadecimal, in groups of 32 bits.
    pub others: String,
}

impl Processors {
    /// Splits the processors on which this thread may run; `None` where there is only one.
    pub fn split() -> io::Result<Option<Self>> {
        Ok(Self::of(&process::processors()?))
    }

    fn of(allowed: &[usize]) -> Option<Self> {
        // The machine's own interrupts run on the first one.
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
