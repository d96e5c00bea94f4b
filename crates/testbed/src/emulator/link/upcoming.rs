//! Changes of a link that are still to come.

use std::collections::VecDeque;
use std::iter::Peekable;

use forebay_core::link::{Changes, Replay};
use forebay_core::units::Duration;
use forebay_scenario::{Change, Link};

/// The changes of a link and of its traces in order of time. A trace may repeat without end.
pub(super) struct Upcoming {
    changes: VecDeque<Change>,
    traces: Vec<Peekable<Changes>>,
}

impl Upcoming {
    pub(super) fn of(link: &Link) -> Self {
        let traces = link.traces.iter().map(Replay::changes).map(Iterator::peekable);
        let mut upcoming = Self { changes: link.changes.clone().into(), traces: traces.collect() };
        upcoming.draw();
        upcoming
    }

    /// When the next one takes place, since the start of the link.
    pub(super) fn at(&self) -> Option<Duration> {
        self.changes.front().map(|change| change.at)
    }

    /// Takes the next one.
    pub(super) fn pop(&mut self) -> Option<Change> {
        let next = self.changes.pop_front();
        self.draw();
        next
    }

    /// Brings the next change of a trace to the front where it comes before the others.
    fn draw(&mut self) {
        let at = |trace: &mut Peekable<Changes>| trace.peek().map(|change| change.at);
        let first = self.traces.iter_mut().filter_map(|it| Some((at(it)?, it)));
        let Some((at, trace)) = first.min_by_key(|(at, _)| *at) else { return };
        if self.changes.front().is_none_or(|front| at < front.at) {
            trace.next().into_iter().for_each(|change| self.changes.push_front(change));
        }
    }
}
