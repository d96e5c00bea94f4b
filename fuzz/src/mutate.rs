//! Makes new inputs from old ones: the usual blind edits of AFL and libFuzzer, seeded.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Longest input of a target: longer than any configuration or message, and still quick to run.
pub const LEN_MAX: usize = 8192;
/// Values at which integers of any width change their meaning.
const EDGES: [u64; 10] =
    [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, u64::MAX];
/// Characters of text formats.
const TOKENS: &[u8] = b"0123456789-+.eE\"'[]{}=,:#\n \t\\/%\0\xff";

/// A seeded source of mutations.
pub struct Mutator {
    random: Xoshiro256PlusPlus,
    len_max: usize,
}

impl Mutator {
    /// Inputs that follow from `seed` and the corpus alone, as long as no coverage guides it.
    pub fn new(seed: u64) -> Self {
        Self::of_length(seed, LEN_MAX)
    }

    /// Inputs of up to `len_max` bytes.
    pub fn of_length(seed: u64, len_max: usize) -> Self {
        Self { random: Xoshiro256PlusPlus::seed_from_u64(seed), len_max }
    }

    /// A new input from one of `corpus`, which must not be empty.
    pub fn next(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = corpus[self.below(corpus.len())].clone();
        // Half of the inputs differ by one edit; the rest by up to 16, to leave a local optimum.
        let edits = 1 << (self.random.next_u32() | 1 << 4).trailing_zeros();
        for _ in 0..edits {
            self.edit(&mut input, corpus);
        }
        input.truncate(self.len_max);
        input
    }

    /// A number below `bound`, zero for bound zero.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.random.next_u64()) * bound as u128) >> 64) as usize
    }

    fn byte(&mut self) -> u8 {
        (self.random.next_u64() >> 56) as u8
    }

    /// A stretch of `len` bytes, short ones more often.
    fn stretch(&mut self, len: usize) -> core::ops::Range<usize> {
        let start = self.below(len + 1);
        let most = (len - start).min(1 << self.below(9));
        start..start + self.below(most + 1)
    }

    fn edit(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let place = self.below(input.len());
        match self.below(10) {
            0 if !input.is_empty() => input[place] ^= 1 << self.below(8),
            1 if !input.is_empty() => input[place] = self.byte(),
            2 if !input.is_empty() => {
                input[place] = input[place].wrapping_add(self.byte() % 16).wrapping_sub(8);
            }
            3 => self.write_edge(input, place),
            4 => {
                let stretch = self.stretch(input.len());
                input.drain(stretch);
            }
            5 => {
                let stretch = self.stretch(input.len());
                let copy = input[stretch].to_vec();
                input.splice(place..place, copy);
            }
            6 => {
                let other = &corpus[self.below(corpus.len())];
                let stretch = self.stretch(other.len());
                input.splice(place..place, other[stretch].iter().copied());
            }
            7 => {
                let other = &corpus[self.below(corpus.len())];
                let from = self.below(other.len() + 1);
                input.truncate(place);
                input.extend_from_slice(&other[from..]);
            }
            8 => {
                let token = TOKENS[self.below(TOKENS.len())];
                input.insert(place, token);
            }
            _ => {
                let byte = self.byte();
                input.insert(place, byte);
            }
        }
    }

    /// Overwrites 1, 2, 4 or 8 bytes with a value at an edge, in either byte order.
    fn write_edge(&mut self, input: &mut [u8], place: usize) {
        let width = 1 << self.below(4);
        let edge = EDGES[self.below(EDGES.len())];
        let mut bytes = edge.to_le_bytes();
        if self.below(2) == 1 {
            bytes[..width].reverse();
        }
        for (to, from) in input.iter_mut().skip(place).zip(&bytes[..width]) {
            *to = *from;
        }
    }
}
