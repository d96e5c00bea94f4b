//! Routes compiled before the run: the next step after each element for each packet, with the fewest delay
//! lines and look-ups.
//!
//! Consecutive delays form one line, and the delay of a link joins the delays after it. All packets on a line
//! have the same next step, so a line needs no look-up. A link needs one only if its packets part ways.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_core::link::Service;
use forebay_core::spec::SpecError;
use forebay_core::units::Duration;
use forebay_scenario::{Link, Property};

use crate::classes::Classes;
use crate::event::Event;
use crate::line::Line;
use crate::network::{Hop, Network};
use crate::packet::mix;
use crate::parts::Parts;

/// The next step of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// To the end of its route.
    Deliver,
    /// Onto a delay line.
    Line(u32),
    /// Onto a delay line that may end in another part of the network.
    Cut(u32),
    /// To a link.
    Link(u32),
    /// To one of several steps.
    Spread(u32),
    /// To a queue that has classes, or whose link clears the ECN field.
    Classify(u32),
    /// To a sendbox.
    Sendbox(u32),
    /// To a receivebox.
    Receivebox(u32),
}

/// Numbering of links and boxes as elements of routes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Elements {
    links: u32,
    bundles: u32,
}

impl Elements {
    pub fn link(self, link: u32) -> u32 {
        link
    }

    pub fn receivebox(self, bundle: u32) -> u32 {
        self.links + bundle
    }

    pub fn sendbox(self, bundle: u32) -> u32 {
        self.links + self.bundles + bundle
    }
}

/// The step after an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// One step for all packets.
    Always(Step),
    /// The step that [`Routes::after`] returns for the packet's route.
    ByRoute,
    /// One step for all packets of a link that keeps a log or holds packets back.
    Watched,
}

/// A set of steps; each packet takes one.
#[derive(Debug)]
pub(crate) struct Spread {
    steps: Vec<Step>,
    choice: Choice,
}

/// Rule for the choice of the step.
#[derive(Debug)]
enum Choice {
    /// The steps take turns; the next is this one.
    Turn(usize),
    /// A hash of the packet's flow with this salt decides.
    Flow(u64),
}

impl Spread {
    /// The step for the next packet, which belongs to `flow`.
    pub fn take(&mut self, flow: u64) -> Step {
        let count = self.steps.len();
        match &mut self.choice {
            Choice::Turn(next) => {
                let turn = *next;
                *next = (turn + 1) % count;
                self.steps[turn]
            }
            Choice::Flow(salt) => self.steps[(mix(*salt ^ mix(flow)) % count as u64) as usize],
        }
    }
}

/// The routes of a network.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// The numbers of the elements.
    pub elements: Elements,
    /// For each route, the steps after its elements.
    after: Vec<Vec<(u32, Step)>>,
    first: Vec<Step>,
    numbers: BTreeMap<Vec<Hop>, u32>,
    line_numbers: BTreeMap<(Option<u32>, u64, Step), u32>,
    /// The delay lines.
    pub lines: Vec<Line>,
    /// For each link, the lines that have its delay.
    pub lines_of: Vec<Vec<u32>>,
    /// The points at which packets or flows part.
    pub spreads: Vec<Spread>,
    /// The queues that have classes, or whose link clears the ECN field.
    pub classes: Vec<(Step, Classes)>,
    /// The parts of the network, if it is cut.
    parts: Option<Arc<Parts>>,
}

impl Routes {
    /// An empty set of routes. Refuses classes that the simulator's packets cannot have.
    pub fn new(network: &Network, parts: Option<&Arc<Parts>>) -> Result<Self, SpecError> {
        let elements =
            Elements { links: network.links.len() as u32, bundles: network.bundles.len() as u32 };
        let links = network.links.iter().map(|link| (&link.name, &link.qdisc, link.clears_ecn));
        let links = (0..).map(Step::Link).zip(links);
        let bundles =
            network.bundles.iter().map(|bundle| (&bundle.of.name, &bundle.of.qdisc, false));
        let bundles = (0..).map(Step::Sendbox).zip(bundles);
        let mut classes = Vec::new();
        for (queue, (name, qdisc, clears_ecn)) in links.chain(bundles) {
            let found = Classes::new(qdisc, clears_ecn, network)
                .map_err(|error| error.within("qdisc").within(name))?;
            classes.extend(found.map(|found| (queue, found)));
        }
        let lines_of = vec![Vec::new(); network.links.len()];
        Ok(Self { elements, lines_of, classes, parts: parts.cloned(), ..Self::default() })
    }

    /// The number of the route `hops`; equal routes have the same number.
    pub fn add(&mut self, network: &Network, hops: &[Hop]) -> u32 {
        if let Some(number) = self.numbers.get(hops) {
            return *number;
        }
        let mut after = Vec::new();
        let first = self.compile(network, hops, Step::Deliver, &mut after);
        let number = self.first.len() as u32;
        self.first.push(first);
        self.after.push(after);
        self.numbers.insert(hops.to_vec(), number);
        number
    }

    /// The first step of a route. It never delivers at once: a sent packet arrives in another event.
    pub fn first(&self, route: u32) -> Step {
        self.first[route as usize]
    }

    /// The step after `element` on `route`.
    pub fn after(&self, route: u32, element: u32) -> Step {
        let after = &self.after[route as usize];
        after.iter().find(|entry| entry.0 == element).map_or(Step::Deliver, |entry| entry.1)
    }

    /// The step after each element.
    pub fn after_elements(&self) -> Vec<After> {
        let mut all = vec![None; (self.elements.links + 2 * self.elements.bundles) as usize];
        for (element, step) in self.after.iter().flatten() {
            let known = &mut all[*element as usize];
            *known = match known {
                None => Some(After::Always(*step)),
                Some(After::Always(other)) if other == step => continue,
                Some(_) => Some(After::ByRoute),
            };
        }
        all.into_iter().map(|after| after.unwrap_or(After::Always(Step::Deliver))).collect()
    }

    /// Compiles a route backwards from its end, after which comes `step`.
    fn compile(
        &mut self,
        network: &Network,
        hops: &[Hop],
        mut step: Step,
        after: &mut Vec<(u32, Step)>,
    ) -> Step {
        // Delay before `step` that no line contains yet.
        let mut extra_ns = 0;
        for hop in hops.iter().rev() {
            match hop {
                Hop::Delay(delay) => extra_ns += nanos(*delay),
                Hop::Link(index) => {
                    let (link, number) = (&network.links[*index], *index as u32);
                    let delay_ns = nanos(link.delay);
                    let (is_delay, has_one_delay) = (network.is_delay(*index), has_one_delay(link));
                    if is_delay && has_one_delay {
                        extra_ns += delay_ns;
                        continue;
                    }
                    let is_unlimited = link.service == Service::Unlimited;
                    let is_punctual = link.jitter.is_zero() && link.batch.is_zero();
                    let is_constant = has_one_delay && is_punctual;
                    let is_instant = extra_ns == 0 && delay_ns == 0 && is_constant;
                    if is_unlimited || !is_instant {
                        step = self.line(network, Some(number), extra_ns, step);
                    }
                    extra_ns = 0;
                    if !is_delay {
                        after.push((self.elements.link(number), step));
                        step = self.to_queue(Step::Link(number));
                    }
                }
                Hop::Bundle(index) => {
                    if extra_ns > 0 {
                        step = self.line(network, None, extra_ns, step);
                        extra_ns = 0;
                    }
                    let bundle = *index as u32;
                    after.push((self.elements.receivebox(bundle), step));
                    step = Step::Receivebox(bundle);
                    step = self.compile(network, &network.bundles[*index].path, step, after);
                    if step == Step::Receivebox(bundle) {
                        step = self.line(network, None, 0, step);
                    }
                    after.push((self.elements.sendbox(bundle), step));
                    step = self.to_queue(Step::Sendbox(bundle));
                }
                Hop::Sendbox(index) => {
                    if extra_ns > 0 || step == Step::Deliver {
                        step = self.line(network, None, extra_ns, step);
                        extra_ns = 0;
                    }
                    after.push((self.elements.sendbox(*index as u32), step));
                    step = self.to_queue(Step::Sendbox(*index as u32));
                }
                Hop::Spread(routes) | Hop::Hashed(routes) => {
                    if extra_ns > 0 {
                        step = self.line(network, None, extra_ns, step);
                        extra_ns = 0;
                    }
                    let steps =
                        routes.iter().map(|it| self.compile(network, it, step, after)).collect();
                    step = Step::Spread(self.spreads.len() as u32);
                    let choice = match hop {
                        Hop::Hashed(_) => Choice::Flow(mix(network.seed)),
                        _ => Choice::Turn(0),
                    };
                    self.spreads.push(Spread { steps, choice });
                }
            }
        }
        if extra_ns > 0 || step == Step::Deliver {
            step = self.line(network, None, extra_ns, step);
        }
        step
    }

    /// The step to `queue`, through its classes if it has some.
    fn to_queue(&self, queue: Step) -> Step {
        let found = self.classes.iter().position(|(known, _)| *known == queue);
        found.map_or(queue, |number| Step::Classify(number as u32))
    }

    fn line(&mut self, network: &Network, link: Option<u32>, extra_ns: u64, next: Step) -> Step {
        let number = self.lines.len() as u32;
        let found = *self.line_numbers.entry((link, extra_ns, next)).or_insert(number);
        if found == number {
            let mut line = Line::new(Event::Line(number), extra_ns, &network.stack.device, next);
            if let Some(link) = link {
                let of = &network.links[link as usize];
                line.set_delay(nanos(of.delay));
                line.set_overtaking(of.overtakes);
                self.lines_of[link as usize].push(number);
            }
            self.lines.push(line);
        }
        let is_inside = |parts: &Arc<Parts>| link.is_some_and(|it| !parts.cuts(it as usize));
        if self.parts.as_ref().is_none_or(is_inside) { Step::Line(found) } else { Step::Cut(found) }
    }

    /// The link before each delay line; `None` for mere propagation.
    pub fn links_of_lines(&self) -> Vec<Option<u32>> {
        let mut links = vec![None; self.lines.len()];
        self.line_numbers.iter().for_each(|((link, ..), line)| links[*line as usize] = *link);
        links
    }
}

/// Whether the delay of `link` never changes.
fn has_one_delay(link: &Link) -> bool {
    link.walks.iter().all(|walk| walk.property != Property::Delay)
        && link.changes.iter().all(|change| change.delay.is_none())
        && !link.replays(Property::Delay)
}

/// `duration` in nanoseconds, at most 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
