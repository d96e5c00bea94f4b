//! A few events in order of time; a new event usually belongs between the last few, which then move.

/// Most events; with more, moving them costs more than the wheel.
const CAPACITY: usize = 32;

/// Sorted, with the earliest last. Times and codes are separate arrays, and each element is read and written
/// whole. A wider read of a pair would stall on the two narrower writes.
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
    /// Adds an event behind all of equal time. There must be room.
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

    /// Time of the earliest event.
    #[inline]
    pub fn first(&self) -> Option<u64> {
        self.len.checked_sub(1).map(|last| self.times[last])
    }

    /// Removes the earliest event, which must exist; returns its code.
    #[inline]
    pub fn pop(&mut self) -> u64 {
        self.len -= 1;
        self.codes[self.len]
    }

    /// Appends an event in order of planning; call [`Near::sort`] after the last. There must be room.
    #[inline]
    pub fn append(&mut self, at: u64, code: u64) {
        self.times[self.len] = at;
        self.codes[self.len] = code;
        self.len += 1;
    }

    /// Sorts the appended events. It starts at the last one: a later planned event usually happens later, and
    /// then nothing moves.
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

    /// Removes all events.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Whether there is no room.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len == CAPACITY
    }

    /// Removes all events of the latest time, in order, and passes them to `take`.
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

    /// Number of events.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.len
    }
}
