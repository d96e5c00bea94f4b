//! Counts what happens on a link within an interval, packet by packet.

use std::collections::BTreeMap;

use forebay_core::record::Fate;

use super::super::statistics::share;
use super::sojourns::Sojourns;
use super::{BIN_NS, Passed};

/// Values below this are counted in an array; a queue rarely has more packets.
const DENSE: usize = 1 << 16;

/// Counts of one interval.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Start of the window (ns since the start of the run).
    pub from: u64,
    /// End of the window.
    pub to: u64,
    /// Packets waiting, without the one being sent.
    pub queue: Levels,
    /// Packets waiting x time, in each 100 ms; the last may be shorter.
    pub waiting: Bins,
    /// Bytes that left in each whole 100 ms.
    pub carried: Bins,
    /// Times in queue and server.
    pub sojourns: Sojourns,
    /// The time of the last packet in queue and server, over time.
    pub held: Held,
    /// Bytes that left.
    pub bytes: u64,
    /// Bytes that left, by pair of sites.
    pub of_pairs: BTreeMap<u16, u64>,
    /// Packets that the queue marked.
    pub marked: u64,
    /// Packets that the queue dropped, by their arrival.
    pub dropped: u64,
    /// Packets lost on purpose, by their arrival.
    pub lost: u64,
    /// Mean of the queues of the paths that merge here, added; `None`: no paths.
    pub mean_of_paths: Option<f64>,
}

impl Counted {
    pub fn new(from: u64, to: u64) -> Self {
        let length = to.saturating_sub(from);
        Self {
            from,
            to,
            queue: Levels::new(from, to),
            waiting: Bins::new(from, BIN_NS, length.div_ceil(BIN_NS)),
            carried: Bins::new(from, BIN_NS, length / BIN_NS),
            sojourns: Sojourns::default(),
            held: Held::default(),
            bytes: 0,
            of_pairs: BTreeMap::new(),
            marked: 0,
            dropped: 0,
            lost: 0,
            mean_of_paths: None,
        }
    }

    /// Mean of the queue, including the queues of paths.
    pub fn mean_queue(&self) -> Option<f64> {
        Some(self.queue.mean()? + self.mean_of_paths.unwrap_or(0.0))
    }

    /// Adds the counts of a path that merges here.
    pub fn take_path(&mut self, path: &Self) {
        self.waiting.add_all(&path.waiting);
        self.marked += path.marked;
        self.dropped += path.dropped;
        self.lost += path.lost;
        if let Some(mean) = path.queue.mean() {
            *self.mean_of_paths.get_or_insert(0.0) += mean;
        }
    }

    /// A packet has left.
    pub fn pass(&mut self, packet: &Passed) {
        if !(self.from..self.to).contains(&packet.departed_ns) {
            return;
        }
        let bytes = u64::from(packet.bytes);
        self.bytes += bytes;
        *self.of_pairs.entry(packet.pair).or_default() += bytes;
        self.carried.add(packet.departed_ns, bytes);
        self.marked += u64::from(packet.marked);
        self.sojourns.push(packet.sojourn_ns());
        self.held.set(packet.departed_ns, packet.sojourn_ns());
    }

    /// The link dropped or lost a packet that arrived at `at`.
    pub fn end(&mut self, at: u64, fate: Fate) {
        if (self.from..self.to).contains(&at) {
            self.dropped += u64::from(fate == Fate::QueueDrop);
            self.lost += u64::from(fate == Fate::Lost);
        }
    }

    /// Packets that left.
    pub fn passed(&self) -> u64 {
        self.sojourns.count()
    }
}

/// Mean over time, from the first value on, of a number that holds until it is set again.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// When it was first set.
    first: Option<u64>,
    since: u64,
    value: u64,
    /// Value x time (ns) up to `since`.
    area: u128,
}

impl Held {
    /// Sets the number to `value` (ns) from `at` on; calls are in order of time.
    pub fn set(&mut self, at: u64, value: u64) {
        self.first.get_or_insert(at);
        self.area += u128::from(self.value) * u128::from(at - self.since);
        (self.since, self.value) = (at, value);
    }

    /// Mean up to `to` (ms); `None` before the first value.
    pub fn mean_ms(&self, to: u64) -> Option<f64> {
        let rest = u128::from(self.value) * u128::from(to.saturating_sub(self.since));
        share((self.area + rest) as f64 / 1e6, to.saturating_sub(self.first?) as f64)
    }
}

/// How long a number had each value within an interval. The number begins with 0 and holds until it is set
/// again.
#[derive(Clone, Debug)]
pub struct Levels {
    from: u64,
    to: u64,
    /// The time before this is counted.
    counted: u64,
    value: u32,
    /// Time at each value below [`DENSE`], and at the larger ones.
    times: Vec<u64>,
    rest: BTreeMap<u32, u64>,
    /// Greatest value, if only for an instant.
    most: u32,
}

impl Levels {
    pub fn new(from: u64, to: u64) -> Self {
        let (times, rest) = (Vec::new(), BTreeMap::new());
        Self { from, to, counted: from, value: 0, times, rest, most: 0 }
    }

    /// Sets the number to `value` from `at` on; calls are in order of time.
    pub fn set(&mut self, at: u64, value: u32) {
        if at >= self.to {
            return;
        }
        if at > self.from {
            self.count_to(at);
        }
        self.value = value;
    }

    fn count_to(&mut self, at: u64) {
        self.most = self.most.max(self.value);
        let time = at.saturating_sub(self.counted);
        let place = self.value as usize;
        if place >= DENSE {
            *self.rest.entry(self.value).or_default() += time;
        } else {
            if self.times.len() <= place {
                self.times.resize(place + 1, 0);
            }
            self.times[place] += time;
        }
        self.counted = self.counted.max(at);
    }

    /// Ends the levels: no value follows.
    pub fn close(&mut self) {
        self.count_to(self.to);
    }

    /// Values and the time (ns) at each, ascending.
    fn times(&self) -> impl Iterator<Item = (u32, u64)> {
        let dense = self.times.iter().enumerate().map(|(value, time)| (value as u32, *time));
        dense.chain(self.rest.iter().map(|(value, time)| (*value, *time)))
    }

    /// Mean over the interval; `None` if it has no length.
    pub fn mean(&self) -> Option<f64> {
        let area =
            self.times().fold(0.0, |area, (value, time)| area + f64::from(value) * time as f64);
        share(area, self.to.saturating_sub(self.from) as f64)
    }

    /// The `share` quantile over the interval: the number is at most this large
    /// for that share of the time.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let needed = share * self.to.checked_sub(self.from).filter(|time| *time > 0)? as f64;
        let mut passed = 0.0;
        let found = self.times().find(|(_, time)| {
            passed += *time as f64;
            *time > 0 && passed >= needed
        });
        Some(f64::from(found.map_or(self.most, |(value, _)| value)))
    }

    /// The largest value.
    pub fn max(&self) -> f64 {
        f64::from(self.most)
    }
}

/// Sums over consecutive intervals of equal length.
#[derive(Clone, Debug)]
pub struct Bins {
    from: u64,
    width: u64,
    sums: Vec<u64>,
}

impl Bins {
    pub fn new(from: u64, width: u64, count: u64) -> Self {
        Self { from, width, sums: vec![0; count as usize] }
    }

    /// Adds `amount` at an instant; instants outside the intervals do not count.
    pub fn add(&mut self, at: u64, amount: u64) {
        let Some(since) = at.checked_sub(self.from) else { return };
        if let Some(sum) = self.sums.get_mut((since / self.width) as usize) {
            *sum += amount;
        }
    }

    /// Adds `value` x time for the time `from..to`.
    pub fn hold(&mut self, from: u64, to: u64, value: u32) {
        let mut at = from.max(self.from);
        if value == 0 || at >= to {
            return;
        }
        let first = ((at - self.from) / self.width) as usize;
        let mut end = self.from + (first as u64 + 1) * self.width;
        for sum in self.sums.iter_mut().skip(first) {
            *sum += u64::from(value) * (to.min(end) - at);
            if to <= end {
                return;
            }
            (at, end) = (end, end + self.width);
        }
    }

    /// Adds other sums over the same intervals.
    pub fn add_all(&mut self, others: &Self) {
        self.sums.iter_mut().zip(&others.sums).for_each(|(sum, other)| *sum += other);
    }

    /// The sums.
    pub fn sums(&self) -> &[u64] {
        &self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(from: u64, to: u64, steps: &[(u64, u32)]) -> Levels {
        let mut levels = Levels::new(from, to);
        steps.iter().for_each(|(at, value)| levels.set(*at, *value));
        levels.close();
        levels
    }

    #[test]
    fn values_are_weighted_by_time_held() {
        // 0 until 10, 4 until 30, 1 from then on; and the same ten thousand times as high.
        for scale in [1, 100_000] {
            let of = |from, to| levels(from, to, &[(10, 4 * scale), (30, scale)]);
            let value = |times: f64| f64::from(scale) * times;
            assert_eq!(of(0, 40).mean(), Some(value((20.0 * 4.0 + 10.0) / 40.0)));
            assert_eq!(of(20, 30).mean(), Some(value(4.0)));
            assert_eq!(of(35, 45).mean(), Some(value(1.0)));
            assert_eq!(of(0, 40).quantile(0.5), Some(value(1.0)));
            assert_eq!(of(0, 40).quantile(0.51), Some(value(4.0)));
            assert_eq!(
                [of(0, 40).max(), of(0, 10).max(), of(10, 11).max()],
                [4, 0, 4].map(f64::from).map(value)
            );
            assert_eq!((of(5, 5).mean(), of(5, 5).quantile(0.5)), (None, None));
        }
    }

    #[test]
    fn held_value_counts_from_first_set() {
        let mut held = Held::default();
        assert_eq!(held.mean_ms(9), None);
        held.set(100, 2_000_000);
        held.set(110, 5_000_000);
        // 2 ms for 10 ns and 5 ms for 20 ns.
        assert_eq!(held.mean_ms(130), Some(4.0));
    }

    #[test]
    fn instant_value_is_max_but_no_quantile() {
        let levels = levels(0, 10, &[(5, 1), (5, 9), (5, 2)]);
        assert_eq!(
            (levels.max(), levels.quantile(1.0), levels.mean()),
            (9.0, Some(2.0), Some(1.0))
        );
    }

    #[test]
    fn bins_take_what_falls_into_them() {
        let mut bins = Bins::new(100, 10, 3);
        bins.hold(95, 125, 2);
        bins.hold(128, 200, 1);
        bins.add(99, 1000);
        bins.add(109, 1000);
        bins.add(130, 1000);
        assert_eq!(bins.sums(), [1020, 20, 12]);
    }
}
