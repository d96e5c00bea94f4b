//! New cases: drawn from the whole space, or bred from two that are bad already.

use forebay_core::random::Stream;

use super::case::{Case, CaseEvent};
use super::space::{Number, Patterns, Space};

/// How likely each number of a child moves.
const MOVES: f64 = 0.3;
/// Probability that a number that moves is drawn again from its whole range.
const JUMPS: f64 = 0.2;
/// Greatest distance by which other numbers move, as a part of their range.
const REACH: f64 = 0.25;
/// How likely a child has another competitor than its parent.
const SWAPS: f64 = 0.1;
/// How likely each list of events of a child changes.
const CHANGES: f64 = 0.6;

/// A case from anywhere in `space`.
pub fn draw(space: &Space, random: &mut Stream) -> Case {
    let slots = space.slots();
    let mut events = |patterns: &Patterns| {
        let count = random.below(patterns.events as u64 + 1);
        let drawn = (0..count).map(|_| event(patterns, slots, random)).collect();
        fitting(drawn, patterns, slots, random)
    };
    let (service, cross) = (events(&space.service), events(&space.cross));
    Case {
        numbers: Number::ALL.map(|number| space.range(number).at(random.unit())),
        competitor: competitor(space, random),
        service,
        cross,
    }
}

/// A case that combines parts of two parents, with changes of its own.
pub fn child(space: &Space, parents: [&Case; 2], random: &mut Stream) -> Case {
    let [one, other] = parents;
    let slots = space.slots();
    let mut numbers = one.numbers;
    for number in Number::ALL {
        let range = space.range(number);
        let value = &mut numbers[number as usize];
        if random.chance(0.5) {
            *value = other.number(number);
        }
        if random.chance(MOVES) {
            let place = if random.chance(JUMPS) {
                random.unit()
            } else {
                range.place_of(*value) + REACH * (2.0 * random.unit() - 1.0)
            };
            *value = range.at(place);
        }
    }
    let inherited = if random.chance(0.5) { one } else { other };
    let competitor =
        if random.chance(SWAPS) { competitor(space, random) } else { inherited.competitor.clone() };
    let cut = random.below(u64::from(slots) + 1) as u32;
    let mut events = |one: &[CaseEvent], other: &[CaseEvent], patterns: &Patterns| {
        // Events before a random instant come from one parent, and events from then on from the other.
        let early = one.iter().filter(|event| event.at < cut);
        let late = other.iter().filter(|event| event.at >= cut);
        let mut events: Vec<CaseEvent> = early.chain(late).copied().collect();
        while random.chance(CHANGES) {
            change(&mut events, patterns, slots, random);
        }
        fitting(events, patterns, slots, random)
    };
    Case {
        numbers,
        competitor,
        service: events(&one.service, &other.service, &space.service),
        cross: events(&one.cross, &other.cross, &space.cross),
    }
}

fn competitor(space: &Space, random: &mut Stream) -> Option<String> {
    space.competitors[random.below(space.competitors.len() as u64) as usize].clone()
}

fn event(patterns: &Patterns, slots: u32, random: &mut Stream) -> CaseEvent {
    let [least, most] = patterns.percent;
    CaseEvent {
        at: random.below(slots.into()) as u32,
        slots: 1 + random.below(patterns.longest.into()) as u32,
        percent: least + random.below(u64::from(most - least) + 1) as u32,
    }
}

/// Adds, moves, repeats, redraws or removes one event.
fn change(events: &mut Vec<CaseEvent>, patterns: &Patterns, slots: u32, random: &mut Stream) {
    let drawn = event(patterns, slots, random);
    if events.is_empty() {
        events.push(drawn);
        return;
    }
    let place = random.below(events.len() as u64) as usize;
    match random.below(6) {
        0 => events.push(drawn),
        1 => {
            events.swap_remove(place);
        }
        2 => events[place].at = drawn.at,
        3 => events[place].slots = drawn.slots,
        4 => events[place].percent = drawn.percent,
        // Repeats an event, because a harmful event may harm again: resonance with a timer needs equal
        // distances.
        _ => events.push(CaseEvent { at: drawn.at, ..events[place] }),
    }
}

/// As many of `events` as `patterns` allow, in order of time. Events that reach beyond the end are cut off
/// there.
fn fitting(
    mut events: Vec<CaseEvent>,
    patterns: &Patterns,
    slots: u32,
    random: &mut Stream,
) -> Vec<CaseEvent> {
    for event in &mut events {
        event.slots = event.slots.min(slots - event.at);
    }
    while !patterns.allow(&events, slots) {
        events.swap_remove(random.below(events.len() as u64) as usize);
    }
    events.sort_unstable();
    events.dedup();
    events
}

#[cfg(test)]
mod tests {
    use super::super::case::tests::case;
    use super::super::space::tests::{SMALL, read};
    use super::*;
    use forebay_core::random::Streams;

    #[test]
    fn drawn_and_bred_cases_fit_space_and_differ() {
        for text in [SMALL, &SMALL.replace("competitor = [\"none\", \"reno\"]\n", "")] {
            let space = read(text).unwrap();
            let mut random = Streams::new(1).stream("breed");
            let mut last = Case { competitor: None, ..case() };
            let (mut changed, mut with_events) = (0, 0);
            for _ in 0..1000 {
                let drawn = draw(&space, &mut random);
                let child = child(&space, [&last, &drawn], &mut random);
                assert!(space.contains(&drawn) && space.contains(&child), "{drawn:?}\n{child:?}");
                changed += usize::from(child != last && child != drawn);
                with_events += usize::from(!child.service.is_empty() && !child.cross.is_empty());
                last = child;
            }
            assert!(changed > 900 && with_events > 300, "{changed}, {with_events}");
        }
    }

    #[test]
    fn the_same_stream_gives_the_same_cases() {
        let space = read(SMALL).unwrap();
        let cases = |seed| {
            let mut random = Streams::new(seed).stream("breed");
            [(); 20].map(|()| draw(&space, &mut random))
        };
        assert_eq!(cases(3), cases(3));
        assert_ne!(cases(3), cases(4));
    }
}
