//! Times of packets, exact, in about two bytes each.
//!
//! ```text
//!  times ──► up to RUN in arrival order ──► sorted, as differences ──► merged for a summary
//! ```
//! Quantiles and the mean over all times need every time. Sorted times of a queue lie close together. With
//! RUN times within 40 ms, neighbours differ by a microsecond; with an empty queue, by nothing. A run is
//! therefore stored as its first time and differences, each in as many bytes as needed (LEB128, seven bits a
//! byte). After a difference of 0 follows the number of further equal times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times to sort together: 256 kB.
const RUN: usize = 1 << 15;

/// A multiset of times in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Sojourns {
    fresh: Vec<u64>,
    runs: Vec<Box<[u8]>>,
    count: u64,
}

/// Mean and quantiles, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary<const N: usize> {
    /// Of all packets.
    pub mean: f64,
    /// In the order of the requested shares; type 7, see [`super::super::statistics`].
    pub quantiles: [f64; N],
}

impl Sojourns {
    /// Adds a time.
    pub fn push(&mut self, ns: u64) {
        self.count += 1;
        self.fresh.push(ns);
        if self.fresh.len() == RUN {
            self.seal();
        }
    }

    /// Packs the times added since the last run.
    fn seal(&mut self) {
        self.fresh.sort_unstable();
        if !self.fresh.is_empty() {
            self.runs.push(packed(&self.fresh));
        }
        self.fresh.clear();
    }

    /// Ends the set: no time follows.
    pub fn close(&mut self) {
        self.seal();
        self.fresh = Vec::new();
        self.runs.shrink_to_fit();
    }

    /// Number of times.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean, and the quantiles at these shares, 0 to 1; `None` without times. The mean sums from the
    /// smallest time to the largest, as everywhere.
    pub fn summary<const N: usize>(&self, shares: [f64; N]) -> Option<Summary<N>> {
        let last = self.count.checked_sub(1)?;
        let ranks = shares.map(|share| share.clamp(0.0, 1.0) * last as f64);
        let (mut place, mut sum) = (0, 0.0);
        let mut around = [[0.0; 2]; N];
        for (ns, count) in self.ascending() {
            let ms = ns as f64 / 1e6;
            let places = place..place + count;
            for (rank, around) in ranks.iter().zip(&mut around) {
                for (closest, value) in [rank.floor(), rank.ceil()].into_iter().zip(around) {
                    if places.contains(&(closest as u64)) {
                        *value = ms;
                    }
                }
            }
            (0..count).for_each(|_| sum += ms);
            place += count;
        }
        let mut quantiles = [0.0; N];
        for ((quantile, rank), [below, above]) in quantiles.iter_mut().zip(ranks).zip(around) {
            *quantile = below + (above - below) * rank.fract();
        }
        Some(Summary { mean: sum / self.count as f64, quantiles })
    }

    /// Times and their counts, ascending; a time may occur several times in a row.
    fn ascending(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut fresh = self.fresh.clone();
        fresh.sort_unstable();
        let fresh = fresh.into_iter().map(|ns| (ns, 1_u64));
        let runs = self.runs.iter().map(|run| Box::new(Unpacked::of(run)) as Run<'_>);
        let mut runs: Vec<Run<'_>> = runs.chain([Box::new(fresh) as Run<'_>]).collect();
        let firsts =
            runs.iter_mut().enumerate().filter_map(|(n, run)| Some(Reverse((run.next()?, n))));
        let mut heads: BinaryHeap<_> = firsts.collect();
        std::iter::from_fn(move || {
            let mut head = heads.peek_mut()?;
            let Reverse((least, run)) = *head;
            match runs[run].next() {
                Some(next) => *head = Reverse((next, run)),
                None => drop(std::collections::binary_heap::PeekMut::pop(head)),
            }
            Some(least)
        })
    }
}

type Run<'a> = Box<dyn Iterator<Item = (u64, u64)> + 'a>;

/// Packs ascending `times`.
fn packed(times: &[u64]) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(2 * times.len());
    let mut last = 0;
    for equal in times.chunk_by(|one, other| one == other) {
        put(&mut bytes, equal[0] - last);
        if equal.len() > 1 {
            put(&mut bytes, 0);
            put(&mut bytes, equal.len() as u64 - 1);
        }
        last = equal[0];
    }
    bytes.into_boxed_slice()
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads the output of [`packed`].
struct Unpacked<'a> {
    bytes: std::slice::Iter<'a, u8>,
    last: Option<u64>,
}

impl<'a> Unpacked<'a> {
    fn of(run: &'a [u8]) -> Self {
        Self { bytes: run.iter(), last: None }
    }

    fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = *self.bytes.next()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
    }
}

impl Iterator for Unpacked<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let number = self.number()?;
        match self.last {
            Some(last) if number == 0 => Some((last, self.number()?)),
            last => {
                let ns = last.unwrap_or(0) + number;
                self.last = Some(ns);
                Some((ns, 1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::statistics::Sorted;
    use super::*;

    /// Times below `most`, always the same.
    fn times(count: u64, most: u64) -> impl Iterator<Item = u64> + Clone {
        let next = |state: &u64| {
            Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963))
        };
        std::iter::successors(Some(count), next)
            .skip(1)
            .map(move |state| (state >> 16) % most)
            .take(count as usize)
    }

    #[test]
    fn mean_and_quantiles_are_exact() {
        let shares = [0.0, 0.5, 0.95, 0.99, 1.0];
        for (count, most) in [(1, 10), (2, 1 << 40), (1000, 3), (100_000, 40_000_000), (70_000, 1)]
        {
            let mut sojourns = Sojourns::default();
            times(count, most).for_each(|ns| sojourns.push(ns));
            let sorted = Sorted::new(times(count, most).map(|ns| ns as f64 / 1e6));
            let expected = Summary {
                mean: sorted.mean().unwrap(),
                quantiles: shares.map(|share| sorted.quantile(share).unwrap()),
            };
            assert_eq!(sojourns.summary(shares), Some(expected));
            sojourns.close();
            assert_eq!(sojourns.summary(shares), Some(expected));
        }
        assert_eq!(Sojourns::default().summary([0.5]), None);
    }

    #[test]
    fn the_greatest_times_and_numbers_come_back() {
        let times = [0, 0, 127, 128, u64::MAX - 1, u64::MAX, u64::MAX];
        let mut sojourns = Sojourns::default();
        times.iter().rev().for_each(|ns| sojourns.push(*ns));
        sojourns.close();
        let most = u64::MAX;
        let expected = [0, 0, 127, 128, most - 1, most, most].map(|ns| (ns, 1));
        assert_eq!(sojourns.ascending().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn time_takes_two_bytes_repeats_none() {
        for (most, bytes) in [(40_000_000, 2.1), (1, 0.001)] {
            let mut sojourns = Sojourns::default();
            times(10 * RUN as u64, most).for_each(|ns| sojourns.push(ns));
            let kept: usize = sojourns.runs.iter().map(|run| run.len()).sum();
            assert!(kept as f64 / sojourns.count() as f64 <= bytes, "{kept} of {most}");
        }
    }
}
