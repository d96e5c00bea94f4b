//! Planned events: integer time, and a total order of (time, order of planning).
//!
//! A link or a delay line produces events in order of time. It keeps them in its own ring and has at most one
//! pending entry here, and so does each timer. Therefore a dumbbell of 16 flows has well under 64 pending
//! entries; most are timers far ahead.
//!
//! ```text
//!  near   sorted, at most 32: a new event belongs between the last few        (near.rs)
//!  ────── horizon: all of near before, all of the wheel at or after it ──────
//!  far    wheel: time alone gives the place of an event                       (wheel.rs)
//! ```
//! Neither part compares insertion numbers: both keep events of equal time in order of arrival.

mod near;
mod wheel;

use forebay_core::units::Timestamp;

use self::near::Near;
use self::wheel::Wheel;

/// The kind of an event. The number is an index of the connection, the source, the link or the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A connection begins.
    Start(u32),
    /// A link has sent a packet.
    Departure(u32),
    /// A link's queue asked to be called again.
    Queue(u32),
    /// The first packet of a delay line has reached its end.
    Line(u32),
    /// A link may have held a packet back for long enough.
    Held(u32),
    /// A retransmission timer may have expired.
    Rto(u32),
    /// A paced sender may send again.
    Pacing(u32),
    /// An algorithm asked to be called without an acknowledgement.
    Algorithm(u32),
    /// A delayed acknowledgement may be due.
    DelayedAck(u32),
    /// A source sends its next datagram.
    Datagram(u32),
    /// A link changes.
    Change(u32),
    /// The application stops writing to a connection.
    Stop(u32),
    /// Something is due at a sendbox.
    Sendbox(u32),
    /// Something is due at a receivebox.
    Receivebox(u32),
    /// A ping loop begins, or its timeout may have expired.
    Ping(u32),
    /// The receiving end of a short connection may have to repeat its request.
    Peer(u32),
    /// A box of a bundle changes.
    Upset(u32),
    /// An uplink is divided again.
    Uplink(u32),
    /// An application that reads at a rate has read a segment.
    Reading(u32),
}

impl Event {
    /// Kind and index as one number, for the hash of the event stream.
    pub fn code(self) -> u64 {
        let (kind, index) = match self {
            Self::Start(index) => (0, index),
            Self::Departure(index) => (1, index),
            Self::Queue(index) => (2, index),
            Self::Line(index) => (3, index),
            Self::Held(index) => (4, index),
            Self::Rto(index) => (5, index),
            Self::Pacing(index) => (6, index),
            Self::Algorithm(index) => (7, index),
            Self::DelayedAck(index) => (8, index),
            Self::Datagram(index) => (9, index),
            Self::Change(index) => (10, index),
            Self::Stop(index) => (11, index),
            Self::Sendbox(index) => (12, index),
            Self::Receivebox(index) => (13, index),
            Self::Ping(index) => (14, index),
            Self::Peer(index) => (15, index),
            Self::Upset(index) => (16, index),
            Self::Uplink(index) => (17, index),
            Self::Reading(index) => (18, index),
        };
        (kind << 32) | u64::from(index)
    }

    /// The event with this [`Event::code`].
    #[inline]
    fn from_code(code: u64) -> Self {
        let index = code as u32;
        match code >> 32 {
            0 => Self::Start(index),
            1 => Self::Departure(index),
            2 => Self::Queue(index),
            3 => Self::Line(index),
            4 => Self::Held(index),
            5 => Self::Rto(index),
            6 => Self::Pacing(index),
            7 => Self::Algorithm(index),
            8 => Self::DelayedAck(index),
            9 => Self::Datagram(index),
            10 => Self::Change(index),
            11 => Self::Stop(index),
            12 => Self::Sendbox(index),
            13 => Self::Receivebox(index),
            14 => Self::Ping(index),
            15 => Self::Peer(index),
            16 => Self::Upset(index),
            17 => Self::Uplink(index),
            _ => Self::Reading(index),
        }
    }
}

/// Pending events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    near: Near,
    far: Wheel,
    /// Lower bound of the times in `far`.
    horizon: Horizon,
    /// Time of the last event taken.
    now: u64,
}

/// Horizon in nanoseconds; [`u64::MAX`] while `far` is empty.
#[derive(Clone, Copy, Debug)]
struct Horizon(u64);

impl Default for Horizon {
    fn default() -> Self {
        Self(u64::MAX)
    }
}

impl Events {
    /// Plans `event` for `at`, which must not be in the past. Events of equal time happen in the order of
    /// planning.
    #[inline]
    pub fn add(&mut self, at: Timestamp, event: Event) {
        debug_assert!(at.as_nanos() >= self.now, "an event in the past");
        let (at, code) = (at.as_nanos().max(self.now), event.code());
        if at < self.horizon.0 && self.near.is_full() {
            self.spill();
        }
        if at < self.horizon.0 {
            self.near.add(at, code);
        } else {
            self.far.add(at, code);
        }
    }

    /// Moves the latest near event, and all of equal time, to the far ones.
    #[cold]
    fn spill(&mut self) {
        let Self { near, far, horizon, .. } = self;
        near.spill(|at, code| {
            horizon.0 = at;
            far.add(at, code);
        });
    }

    /// The next event, unless it lies after `until`.
    #[inline]
    pub fn pop(&mut self, until: Timestamp) -> Option<(Timestamp, Event)> {
        let (at, code) = match self.near.first() {
            Some(at) if at > until.as_nanos() => return None,
            Some(at) => (at, self.near.pop()),
            None => {
                let first = self.far.pop(until.as_nanos(), &mut self.near);
                self.horizon.0 = self.far.lower_bound();
                first?
            }
        };
        self.now = at;
        Some((Timestamp::from_nanos(at), Event::from_code(code)))
    }

    /// Whether more events may be due at `now`, the time of the last event taken.
    #[inline]
    pub fn is_followed(&self, now: Timestamp) -> bool {
        self.near.first().unwrap_or(self.horizon.0) <= now.as_nanos()
    }

    /// Number of pending events.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.near.len() + self.far.len()
    }
}

/// `nanos` nanoseconds after `at`; [`Timestamp::MAX`] if out of range.
pub(crate) fn after(at: Timestamp, nanos: u64) -> Timestamp {
    Timestamp::from_nanos(at.as_nanos().saturating_add(nanos))
}

/// Nanoseconds from `earlier` to `later`; zero if the order is reversed.
pub(crate) fn nanos_between(earlier: Timestamp, later: Timestamp) -> u64 {
    later.as_nanos().saturating_sub(earlier.as_nanos())
}

/// Milliseconds from `earlier` to `later`, as read from a clock of whole milliseconds (RFC 7323).
pub(crate) fn millis_between(earlier: Timestamp, later: Timestamp) -> u32 {
    /// Nanoseconds per tick.
    const TICK_NS: u64 = 1_000_000;
    let ticks = (later.as_nanos() / TICK_NS).saturating_sub(earlier.as_nanos() / TICK_NS);
    u32::try_from(ticks).unwrap_or(u32::MAX)
}

/// A timer with at most one useful entry in the queue. Moving the deadline back costs nothing: the entry
/// fires at the old time and is planned again. Nothing is ever cancelled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    deadline: Timestamp,
    /// Time of the pending entry that counts; [`Timestamp::MAX`] if there is none.
    planned: Timestamp,
}

impl Timer {
    /// A timer that is stopped.
    pub const STOPPED: Self = Self { deadline: Timestamp::MAX, planned: Timestamp::MAX };

    /// Sets the deadline, [`Timestamp::MAX`] to stop the timer.
    pub fn set(&mut self, deadline: Timestamp) {
        self.deadline = deadline;
    }

    /// Stops the timer.
    pub fn stop(&mut self) {
        self.deadline = Timestamp::MAX;
    }

    /// This timer, stopped; a pending entry can still serve it.
    #[must_use]
    pub fn stopped(self) -> Self {
        Self { deadline: Timestamp::MAX, ..self }
    }

    /// Whether the timer has a deadline.
    pub fn is_running(&self) -> bool {
        self.deadline != Timestamp::MAX
    }

    /// Plans `event` if no pending entry is early enough.
    pub fn plan(&mut self, events: &mut Events, event: Event) {
        if self.deadline < self.planned {
            self.planned = self.deadline;
            events.add(self.deadline, event);
        }
    }

    /// Handles an entry that fires at `now`. True if the deadline is reached; the timer is then stopped.
    pub fn fired(&mut self, now: Timestamp, events: &mut Events, event: Event) -> bool {
        if self.planned != now {
            return false;
        }
        self.planned = Timestamp::MAX;
        if self.deadline <= now {
            self.stop();
            return true;
        }
        self.plan(events, event);
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use forebay_core::random::Streams;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn events_pop_by_time_then_insertion_order() {
        let mut events = Events::default();
        for (time, index) in [(5, 0), (3, 1), (5, 2), (3, 3), (4, 4)] {
            events.add(at(time), Event::Start(index));
        }
        let order = std::iter::from_fn(|| events.pop(Timestamp::MAX));
        let order: Vec<u64> = order.map(|(_, event)| event.code()).collect();
        assert_eq!(order, [1, 3, 4, 0, 2]);
    }

    /// Runs the queue as a simulation does: it takes the first event and plans more, with short, long and
    /// equal delays mixed. The expected order is a stable sort by time.
    #[test]
    fn event_order_equals_a_stable_sort() {
        for (pending, longest_ns) in [(3, 50), (40, 30), (500, 3), (5_000, 1 << 40), (200, 1 << 13)]
        {
            let mut events = Events::default();
            let mut model: BTreeMap<(u64, u32), ()> = BTreeMap::new();
            let mut random = Streams::new(pending).stream("events");
            let (mut now, mut planned) = (0, 0);
            for step in 0..20_000_u64 {
                let wanted = if step < 15_000 { pending } else { 0 };
                while (model.len() as u64) < wanted {
                    let delay = random.below(longest_ns) >> random.below(20);
                    events.add(at(now + delay), Event::Start(planned));
                    model.insert((now + delay, planned), ());
                    planned += 1;
                }
                let expected = model.pop_first().map(|(key, ())| key);
                let Some((time, index)) = expected else { break };
                // A call that comes too early takes nothing and has no effect.
                assert!(time == 0 || events.pop(at(time - 1)).is_none());
                assert_eq!(events.pop(Timestamp::MAX), Some((at(time), Event::Start(index))));
                now = time;
            }
            assert_eq!(events.len(), 0);
        }
    }

    #[test]
    fn codes_tell_events_apart() {
        let events = [
            Event::Start(7),
            Event::Departure(1),
            Event::Queue(0),
            Event::Line(u32::MAX),
            Event::Held(1),
            Event::Rto(2),
            Event::Pacing(3),
            Event::Algorithm(4),
            Event::DelayedAck(5),
            Event::Datagram(6),
            Event::Change(0),
            Event::Stop(3),
            Event::Sendbox(4),
            Event::Receivebox(5),
            Event::Ping(6),
            Event::Peer(7),
            Event::Upset(8),
            Event::Uplink(9),
            Event::Reading(10),
        ];
        assert!(events.iter().all(|event| Event::from_code(event.code()) == *event));
    }

    #[test]
    fn nothing_comes_after_the_end() {
        let mut events = Events::default();
        events.add(at(7), Event::Departure(0));
        assert_eq!(events.pop(at(6)), None);
        assert_eq!(events.pop(at(7)), Some((at(7), Event::Departure(0))));
    }

    #[test]
    fn postponed_timer_keeps_a_single_entry() {
        let (mut events, mut timer) = (Events::default(), Timer::STOPPED);
        for now in 0..1000 {
            timer.set(at(now + 100));
            timer.plan(&mut events, Event::Rto(0));
        }
        assert_eq!(events.len(), 1);
        let (now, event) = events.pop(Timestamp::MAX).unwrap();
        assert_eq!(now, at(100));
        assert!(!timer.fired(now, &mut events, event), "the deadline has moved to 1099");
        let (now, event) = events.pop(Timestamp::MAX).unwrap();
        assert_eq!(now, at(1099));
        assert!(timer.fired(now, &mut events, event));
        assert!(!timer.is_running() && events.len() == 0);
    }

    #[test]
    fn timer_moved_earlier_fires_once() {
        let (mut events, mut timer) = (Events::default(), Timer::STOPPED);
        for deadline in [100, 50] {
            timer.set(at(deadline));
            timer.plan(&mut events, Event::Rto(0));
        }
        let (now, event) = events.pop(Timestamp::MAX).unwrap();
        assert!(now == at(50) && timer.fired(now, &mut events, event));
        let (now, event) = events.pop(Timestamp::MAX).unwrap();
        assert!(now == at(100) && !timer.fired(now, &mut events, event), "a stale entry");
    }

    #[test]
    fn a_stopped_timer_does_not_fire() {
        let (mut events, mut timer) = (Events::default(), Timer::STOPPED);
        timer.set(at(10));
        timer.plan(&mut events, Event::Rto(0));
        timer.stop();
        let (now, event) = events.pop(Timestamp::MAX).unwrap();
        assert!(!timer.fired(now, &mut events, event) && events.len() == 0);
    }
}
