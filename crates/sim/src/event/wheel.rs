//! A radix wheel: sorts events by the highest six-bit digit in which their time differs from the wheel's.
//!
//! ```text
//! level   highest of 11 digits in which time and wheel's time differ
//! slot    that digit of the time
//! ```
//! All events of a lower level come before all of a higher one, and within a level the slots come in order.
//! So two bit scans find the first event, exact to the nanosecond. When a slot above level 0 has its turn, it
//! is spread over the lower levels if it holds many events. If it holds few, it is handed over whole. Each
//! event moves down at most once per level, so the cost does not depend on the number of events.
//!
//! Source: Ahuja, Mehlhorn, Orlin, Tarjan, Faster algorithms for the shortest path problem, JACM 1990
//! (radix heap), with digits of six bits as in hashed hierarchical timing wheels (Varghese, Lauck,
//! SOSP 1987).

use super::near::Near;

/// Bits of a digit. More bits mean fewer levels, so that an event moves less often, but more slots
/// per level.
const DIGIT_BITS: u32 = 6;
/// Slots of a level, one for each value of a digit.
const SLOTS: usize = 1 << DIGIT_BITS;
/// Digits of a time, one level for each.
const LEVELS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;
/// Most events that a slot hands over to the near events when its turn comes.
const FEW: usize = 16;
/// Marks the end of a list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    at: u64,
    code: u64,
    next: u32,
}

/// A list in order of arrival. Events of equal time are never in two lists.
#[derive(Clone, Copy, Debug)]
struct Slot {
    head: u32,
    tail: u32,
}

/// The wheel.
#[derive(Debug)]
pub(super) struct Wheel {
    /// Time of the last event taken; no pending event lies before it.
    now: u64,
    /// A bit for each level with events.
    levels: u32,
    /// A bit for each slot with events.
    occupied: [u64; LEVELS],
    slots: Vec<Slot>,
    nodes: Vec<Node>,
    /// First of the unused nodes.
    free: u32,
}

impl Default for Wheel {
    fn default() -> Self {
        Self {
            now: 0,
            levels: 0,
            occupied: [0; LEVELS],
            // Allocated with the first event: most simulations need none here.
            slots: Vec::new(),
            nodes: Vec::new(),
            free: NONE,
        }
    }
}

impl Wheel {
    /// Adds an event; its time must not lie before the last one taken.
    pub fn add(&mut self, at: u64, code: u64) {
        if self.slots.is_empty() {
            self.slots = vec![Slot { head: NONE, tail: NONE }; LEVELS * SLOTS];
        }
        let node = Node { at, code, next: NONE };
        let index = if self.free == NONE {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            let index = self.free;
            self.free = std::mem::replace(&mut self.nodes[index as usize], node).next;
            index
        };
        self.link(index, at);
    }

    fn link(&mut self, index: u32, at: u64) {
        let level = level_of(at ^ self.now);
        let digit = digit(at, level);
        let slot = &mut self.slots[level * SLOTS + digit];
        if slot.head == NONE {
            slot.head = index;
            self.occupied[level] |= 1 << digit;
            self.levels |= 1 << level;
        } else {
            self.nodes[slot.tail as usize].next = index;
        }
        slot.tail = index;
    }

    /// Level and digit of the slot with the first event.
    fn first_slot(&self) -> Option<(usize, usize)> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// Removes the first event, unless it lies after `until`; returns its time and code. If few events share
    /// its slot, they go to `near`, in order of arrival if their times are equal.
    pub fn pop(&mut self, until: u64, near: &mut Near) -> Option<(u64, u64)> {
        let (mut level, mut digit) = self.first_slot()?;
        let mut slot = self.slots[level * SLOTS + digit];
        if level > 0 && slot.head != slot.tail {
            if self.hand_over(level, digit, near) {
                let at = near.first().filter(|at| *at <= until)?;
                self.now = at;
                return Some((at, near.pop()));
            }
            let first = self.earliest(slot.head);
            if first > until {
                return None;
            }
            self.spread(level, digit, first);
            (level, digit) = self.first_slot()?;
            slot = self.slots[level * SLOTS + digit];
        }
        // The node is alone in its slot, or on level 0 with events of equal time behind it.
        let Node { at, code, next } = self.nodes[slot.head as usize];
        if at > until {
            return None;
        }
        self.now = at;
        self.slots[level * SLOTS + digit].head = next;
        if next == NONE {
            self.clear(level, digit);
        }
        self.nodes[slot.head as usize].next = self.free;
        self.free = slot.head;
        Some((at, code))
    }

    /// The earliest time in a list.
    fn earliest(&self, head: u32) -> u64 {
        self.list(head).map(|index| self.nodes[index as usize].at).fold(u64::MAX, u64::min)
    }

    /// Moves all events of a slot to `near`, which must be empty. False if the slot holds many; nothing has
    /// moved then.
    fn hand_over(&mut self, level: usize, digit: usize, near: &mut Near) -> bool {
        let Slot { head, tail } = self.slots[level * SLOTS + digit];
        let mut index = head;
        for _ in 0..FEW {
            let Node { at, code, next } = self.nodes[index as usize];
            near.append(at, code);
            if index == tail {
                near.sort();
                self.clear(level, digit);
                self.nodes[tail as usize].next = std::mem::replace(&mut self.free, head);
                return true;
            }
            index = next;
        }
        near.clear();
        false
    }

    fn list(&self, head: u32) -> impl Iterator<Item = u32> {
        let next = |index: &u32| self.nodes[*index as usize].next;
        std::iter::successors(Some(head), move |index| Some(next(index)).filter(|it| *it != NONE))
    }

    /// Distributes a slot again relative to its earliest time `now`; events at that time go to level 0.
    fn spread(&mut self, level: usize, digit: usize, now: u64) {
        let mut index = self.slots[level * SLOTS + digit].head;
        self.clear(level, digit);
        self.now = now;
        while index != NONE {
            let node = &mut self.nodes[index as usize];
            let (at, next) = (node.at, std::mem::replace(&mut node.next, NONE));
            self.link(index, at);
            index = next;
        }
    }

    fn clear(&mut self, level: usize, digit: usize) {
        self.slots[level * SLOTS + digit] = Slot { head: NONE, tail: NONE };
        self.occupied[level] &= !(1 << digit);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// A time before which no event is pending; [`u64::MAX`] if there is none.
    pub fn lower_bound(&self) -> u64 {
        let Some((level, digit)) = self.first_slot() else { return u64::MAX };
        let shift = DIGIT_BITS * level as u32;
        let above = u64::MAX.checked_shl(shift + DIGIT_BITS).unwrap_or(0);
        (self.now & above) | (digit as u64) << shift
    }

    /// Number of pending events.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        let heads = self.slots.iter().map(|slot| slot.head).filter(|head| *head != NONE);
        heads.map(|head| self.list(head).count()).sum()
    }
}

/// The highest digit in which two times differ, given the bits that differ.
fn level_of(difference: u64) -> usize {
    ((u64::BITS - 1 - (difference | 1).leading_zeros()) / DIGIT_BITS) as usize
}

fn digit(at: u64, level: usize) -> usize {
    (at >> (DIGIT_BITS * level as u32)) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Removes the first event of both, like [`super::super::Events::pop`].
    fn pop(wheel: &mut Wheel, near: &mut Near, until: u64) -> Option<(u64, u64)> {
        match near.first() {
            Some(at) => (at <= until).then(|| (at, near.pop())),
            None => wheel.pop(until, near),
        }
    }

    #[test]
    fn levels_are_digits_of_six_bits() {
        let levels = [0, 1, 63, 64, 4095, 4096, u64::MAX].map(level_of);
        assert_eq!(levels, [0, 0, 0, 1, 1, 2, 10]);
        assert_eq!(digit(u64::MAX, 10), 15);
    }

    #[test]
    fn the_lower_bound_lies_not_after_the_first() {
        let (mut wheel, mut near) = (Wheel::default(), Near::default());
        assert_eq!(wheel.lower_bound(), u64::MAX);
        for at in [u64::MAX, 1 << 40, 70, 5] {
            wheel.add(at, 0);
            assert!(wheel.lower_bound() <= at, "{at}");
        }
        for at in [5, 70, 1 << 40, u64::MAX] {
            assert_eq!(pop(&mut wheel, &mut near, at - 1), None);
            assert!(wheel.lower_bound() <= at && wheel.lower_bound() >= at >> 1, "{at}");
            assert_eq!(pop(&mut wheel, &mut near, at), Some((at, 0)));
        }
    }

    #[test]
    fn places_are_used_again() {
        let (mut wheel, mut near) = (Wheel::default(), Near::default());
        for now in 0..1000_u64 {
            wheel.add(now * 1000 + 5, now);
            wheel.add(now * 1000 + 5, now + 1);
            assert_eq!(pop(&mut wheel, &mut near, u64::MAX), Some((now * 1000 + 5, now)));
            assert_eq!(pop(&mut wheel, &mut near, u64::MAX), Some((now * 1000 + 5, now + 1)));
        }
        assert_eq!((wheel.nodes.len(), wheel.len()), (2, 0));
    }

    #[test]
    fn small_slot_is_handed_over_whole() {
        for (count, left) in [(FEW, 0), (FEW + 1, FEW)] {
            let (mut wheel, mut near) = (Wheel::default(), Near::default());
            // Pairs of equal times, the latest first, all in slot 1 of level 1.
            (0..count as u64).for_each(|code| wheel.add(120 - code / 2, code));
            let mut order = Vec::new();
            order.extend(wheel.pop(u64::MAX, &mut near));
            assert_eq!(wheel.len(), left);
            order.extend(std::iter::from_fn(|| pop(&mut wheel, &mut near, u64::MAX)));
            let mut sorted = order.clone();
            sorted.sort();
            assert_eq!((order.len(), order), (count, sorted));
        }
    }
}
