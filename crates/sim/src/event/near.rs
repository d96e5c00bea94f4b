//! A few events in order of time: what is planned next falls between the last few, which are moved.

/// Most events; beyond that moving them costs more than the wheel.
const CAPACITY: usize = 32;

/// Sorted, the earliest last. Times and codes stand apart, and each is read and written whole: a
/// pair that is read wider than its halves were written waits for the memory.
#[derive(Debug)]
pub(super) struct Near {
    times: [u64; CAPACITY],
    codes: [u64; CAPACITY],
    len: usize,
}

impl Default for Near {
    fn default() -> Self {
        Self { times: [0; CAPACITY], codes: [0; CAPACITY], len: 0 }
    }
}

impl Near {
    /// Takes an event behind all of the same time. There must be room.
    #[inline]
    pub fn add(&mut self, at: u64, code: u64) {
        let mut place = self.len;
        while place > 0 && self.times[place - 1] <= at {
            self.times[place] = self.times[place - 1];
            self.codes[place] = self.codes[place - 1];
            place -= 1;
        }
        self.times[place] = at;
        self.codes[place] = code;
        self.len += 1;
    }

    /// Time of the earliest.
    #[inline]
    pub fn first(&self) -> Option<u64> {
        self.len.checked_sub(1).map(|last| self.times[last])
    }

    /// Takes the earliest, which there must be; returns its code.
    #[inline]
    pub fn pop(&mut self) -> u64 {
        self.len -= 1;
        self.codes[self.len]
    }

    /// Takes events in order of planning until [`Near::sort`]. There must be room.
    #[inline]
    pub fn append(&mut self, at: u64, code: u64) {
        self.times[self.len] = at;
        self.codes[self.len] = code;
        self.len += 1;
    }

    /// Puts all in order, which were appended. From the last one on: what is planned later mostly
    /// happens later, and then nothing is moved.
    pub fn sort(&mut self) {
        let (times, codes) = (&mut self.times[..self.len], &mut self.codes[..self.len]);
        times.reverse();
        codes.reverse();
        for next in 1..times.len() {
            let (at, code) = (times[next], codes[next]);
            let mut place = next;
            while place > 0 && times[place - 1] < at {
                times[place] = times[place - 1];
                codes[place] = codes[place - 1];
                place -= 1;
            }
            times[place] = at;
            codes[place] = code;
        }
    }

    /// Forgets them all.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// There is no room.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len == CAPACITY
    }

    /// Takes out all that happen at the latest time of any, in order, and gives them to `take`.
    pub fn spill(&mut self, mut take: impl FnMut(u64, u64)) {
        let Some(latest) = self.times[..self.len].first().copied() else { return };
        let count = self.times[..self.len].iter().take_while(|at| **at == latest).count();
        for place in (0..count).rev() {
            take(latest, self.codes[place]);
        }
        self.times.copy_within(count..self.len, 0);
        self.codes.copy_within(count..self.len, 0);
        self.len -= count;
    }

    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.len
    }
}
