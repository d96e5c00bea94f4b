//! Many sites that send to one another: an Internet in small, drawn from the seed of a run.
//!
//! ```text
//!  site ── access ──┐                                   ┌── access ── site
//!  site ── access ── router ══ transit link ══ .. ══ router ── access ── site
//! ```
//! - Each new router joins two earlier ones, each drawn in proportion to the links that it has (Barabasi and
//!   Albert, Science 286, 1999). Packets take the way of least propagation.
//! - Each site has a mass, exponentially distributed. It sends to some sites at other routers, drawn without
//!   regard to their masses. A pair of sites offers data in proportion to both masses: the gravity model (Roughan, CCR
//!   35(5), 2005). If receivers were drawn by mass as well, their mass would count twice.
//! - A transit link is as fast as the load offered to it requires, and access is propagation alone: all
//!   queues stand at transit links and in the boxes of sites.

use std::collections::BTreeSet;

use forebay_core::link::Service;
use forebay_core::random::{Stream, Streams};
use forebay_core::traffic::Connections;
use forebay_core::units::{Duration, Rate, stretched};
use serde::{Deserialize, Serialize};

use crate::{Bundle, Flow, Link, RequestLoad, Scenario, Traffic};

/// Suffix, behind the name in the plan, of the flow of the sites that have boxes, or would have them.
pub const DEPLOYERS: &str = "deployers";
/// Suffix of the flow of all other sites.
pub const OTHERS: &str = "others";

/// Most parts of a cut network. It depends on the plan alone: if it were the number of processors, results would
/// differ between machines. More parts share the work more evenly, and each costs some memory.
const PARTS_MAX: usize = 8;
/// Least delay between parts. It is the time that a part is simulated without news of the other parts, so a
/// shorter one would cost more time than several processors save.
const CUT_DELAY_MIN: Duration = Duration::from_millis(1);

/// Sites, routers and links as a plan describes them, and the draws of a seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Topology {
    /// Number of sites, at least the number of routers.
    pub sites: usize,
    /// Number of routers, at least 2.
    pub routers: usize,
    /// To how many sites each sends.
    pub peers: usize,
    /// Answers that are offered to a transit link over the link's rate.
    pub utilization: f64,
    /// Share of the sites that have a sendbox, in a random order that is the same for every share.
    pub deployment: f64,
    /// Settings of the bundle of each such site; `None`: this arm has no boxes.
    pub bundle: Option<Bundle>,
    /// The transit links: of every two in a row, each is the way back of the other.
    pub links: Vec<Transit>,
    /// Pairs of sites, one of which sends to the other.
    pub pairs: Vec<SitePair>,
    /// For each flow of the experiment, the pair of each connection, by its place in `pairs`.
    pub ends: Vec<Vec<usize>>,
}

/// A link from one router to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transit {
    /// Number of the router that sends over the link.
    pub from: usize,
    /// Number of the router that the link leads to.
    pub to: usize,
    /// Rate, propagation and queue.
    pub link: Link,
}

/// A site that sends, and a site that receives from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SitePair {
    /// Number of the site that sends.
    pub from: usize,
    /// Number of the site that receives.
    pub to: usize,
    /// Transit links of the data, by their places.
    pub there: Vec<usize>,
    /// Transit links of the way back.
    pub back: Vec<usize>,
    /// One-way propagation of the access of both sites.
    pub access: Duration,
    /// Two-way propagation delay.
    pub rtt: Duration,
    /// Rate of the slowest link there.
    pub rate: Rate,
    /// Whether the site that sends has a sendbox, or would have one in an arm with boxes.
    pub deploys: bool,
    /// Number of the bundle among all, where there is one.
    pub bundle: Option<usize>,
    /// Load that the pair offers, in proportion to other pairs.
    weight: f64,
}

/// A site by itself.
struct Site {
    router: usize,
    /// One-way propagation to the router.
    access: Duration,
    mass: f64,
    deploys: bool,
}

impl Topology {
    /// Draws everything from `streams`: links `like` this one, but at least as fast and with half to one and
    /// a half of its delay, and the pair of each connection of `flows`. These are requests over persistent
    /// connections. Returns the flows, each split into the deployers' flow and the flow of all other sites,
    /// with the load of their connections.
    pub(crate) fn draw(&mut self, streams: &Streams, like: &Link, flows: &[Flow]) -> Vec<Flow> {
        self.links = transit(self.routers, like, &mut streams.stream("routers"));
        let sites = self.draw_sites(streams, like.delay);
        self.pairs = self.draw_pairs(&sites, &mut streams.stream("peers"));
        let flows = self.spread(flows, streams);
        self.provision(like, &flows);
        self.number_bundles(&flows);
        flows
    }

    /// Whether `flow` is one whose packets bundles carry.
    pub fn is_bundled(&self, flow: &Flow) -> bool {
        self.bundle.as_ref().is_some_and(|bundle| bundle.pair == flow.pair)
    }

    /// Name of the bundle of `pair`; `None` where the pair has none.
    pub fn bundle_name(&self, pair: &SitePair) -> Option<String> {
        pair.bundle?;
        Some(format!("{}-{}-{}", self.bundle.as_ref()?.name, pair.from, pair.to))
    }

    /// Each router has a site at least, or some transit link would lead nowhere.
    fn draw_sites(&self, streams: &Streams, delay: Duration) -> Vec<Site> {
        let mut order: Vec<usize> = (0..self.sites).collect();
        streams.stream("deployment").shuffle(&mut order);
        let deployed = (self.deployment * self.sites as f64).round() as usize;
        let deployed: BTreeSet<usize> = order.into_iter().take(deployed).collect();
        let mut stream = streams.stream("sites");
        let site = |number: usize| {
            let anywhere = stream.below(self.routers as u64) as usize;
            Site {
                router: if number < self.routers { number } else { anywhere },
                access: delay.mul_f64(stream.unit() / 2.0),
                mass: stream.exponential(),
                deploys: deployed.contains(&number),
            }
        };
        (0..self.sites).map(site).collect()
    }

    fn draw_pairs(&self, sites: &[Site], stream: &mut Stream) -> Vec<SitePair> {
        let reached: Vec<Vec<Option<usize>>> =
            (0..self.routers).map(|router| self.shortest(router)).collect();
        let mut pairs = Vec::new();
        for (from, sender) in sites.iter().enumerate() {
            let is_elsewhere = |site: &Site| site.router != sender.router;
            let mut chances: Vec<f64> =
                sites.iter().map(|it| f64::from(u8::from(is_elsewhere(it)))).collect();
            for _ in 0..self.peers {
                let Some(to) = weighted(&chances, stream) else { break };
                chances[to] = 0.0;
                let there = self.way(&reached[sender.router], sites[to].router);
                let access = sender.access + sites[to].access;
                let delay = |link: &usize| self.links[*link].link.delay;
                pairs.push(SitePair {
                    from,
                    to,
                    back: there.iter().rev().map(|link| link ^ 1).collect(),
                    access,
                    rtt: (access + there.iter().map(delay).sum::<Duration>()) * 2,
                    there,
                    rate: Rate::ZERO,
                    deploys: sender.deploys,
                    bundle: None,
                    weight: sender.mass * sites[to].mass,
                });
            }
        }
        pairs
    }

    /// For each router, the last link of the shortest way from `source`.
    fn shortest(&self, source: usize) -> Vec<Option<usize>> {
        let mut reached = vec![None; self.routers];
        let mut delays = vec![Duration::MAX; self.routers];
        delays[source] = Duration::ZERO;
        let mut next = BTreeSet::from([(Duration::ZERO, source)]);
        while let Some((so_far, router)) = next.pop_first() {
            let links = self.links.iter().enumerate();
            for (number, Transit { to, link, .. }) in links.filter(|(_, it)| it.from == router) {
                let delay = so_far + link.delay;
                if delay < delays[*to] {
                    next.remove(&(delays[*to], *to));
                    next.insert((delay, *to));
                    (delays[*to], reached[*to]) = (delay, Some(number));
                }
            }
        }
        reached
    }

    /// The links to router `to` from the router whose tree `reached` is.
    fn way(&self, reached: &[Option<usize>], to: usize) -> Vec<usize> {
        let last = reached[to];
        let mut way: Vec<usize> =
            std::iter::successors(last, |link| reached[self.links[*link].from]).collect();
        way.reverse();
        way
    }

    /// Draws the pair of each connection, and splits each flow by who sends.
    fn spread(&mut self, flows: &[Flow], streams: &Streams) -> Vec<Flow> {
        let weights: Vec<f64> = self.pairs.iter().map(|pair| pair.weight).collect();
        let mut spread = Vec::new();
        for flow in flows {
            let Some((load, connections)) = persistent(flow) else { continue };
            let mut stream = streams.part(&flow.name).stream("ends");
            let ends = (0..connections).filter_map(|_| weighted(&weights, &mut stream));
            let (deploying, others): (Vec<usize>, Vec<usize>) =
                ends.partition(|pair| self.pairs[*pair].deploys);
            for (group, ends) in [(DEPLOYERS, deploying), (OTHERS, others)] {
                if ends.is_empty() {
                    continue;
                }
                let share = ends.len() as f64 / f64::from(connections);
                let traffic = Traffic::Requests(RequestLoad {
                    load: load.load.scale(share),
                    connections: Connections::Persistent(ends.len() as u32),
                    ..load.clone()
                });
                let name = format!("{}-{group}", flow.name);
                spread.push(Flow { name, traffic, ..flow.clone() });
                self.ends.push(ends);
            }
        }
        spread
    }

    /// Gives each link the rate that its offered load requires, at least the rate of `like`.
    fn provision(&mut self, like: &Link, flows: &[Flow]) {
        let mut offered_bps = vec![0.0; self.links.len()];
        for (flow, ends) in flows.iter().zip(&self.ends) {
            let Some((load, connections)) = persistent(flow) else { continue };
            let each_bps = load.load.as_bits_per_sec() as f64 / f64::from(connections);
            for link in ends.iter().flat_map(|pair| &self.pairs[*pair].there) {
                offered_bps[*link] += each_bps;
            }
        }
        let least = like.rate().unwrap_or(Rate::ZERO);
        for (transit, bps) in self.links.iter_mut().zip(offered_bps) {
            let rate = Rate::from_bits_per_sec((bps / self.utilization) as u64).max(least);
            transit.link.service = Service::Rate(rate);
        }
        for pair in &mut self.pairs {
            let rates = pair.there.iter().filter_map(|link| self.links[*link].link.rate());
            pair.rate = rates.min().unwrap_or(least);
        }
    }

    /// The part of each router, from 0 on, and the least delay of the links between parts, where `flows` are the
    /// flows of the run. `None`: the network has less than two parts with a delay of 1 ms or more between all.
    ///
    /// Routers that are close to one another share a part, as far as no part gets more than its share of the
    /// packets. The busiest part is the first.
    pub fn parts(&self, flows: &[Flow]) -> Option<(Vec<usize>, Duration)> {
        let mut loads = self.router_loads(flows);
        let fair = loads.iter().sum::<f64>() / PARTS_MAX as f64;
        let mut groups: Vec<usize> = (0..self.routers).collect();
        let mut links: Vec<&Transit> = self.links.iter().step_by(2).collect();
        links.sort_by_key(|it| it.link.delay);
        for Transit { from, to, link } in links {
            let (kept, joined) = (groups[*from], groups[*to]);
            let is_short = link.delay < CUT_DELAY_MIN;
            if kept != joined && !is_short && loads[kept] + loads[joined] > fair {
                break;
            }
            if kept != joined {
                loads[kept] += std::mem::take(&mut loads[joined]);
                groups.iter_mut().filter(|it| **it == joined).for_each(|it| *it = kept);
            }
        }
        let mut order: Vec<usize> =
            groups.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        order.sort_by(|one, other| loads[*other].total_cmp(&loads[*one]));
        // Each group joins the part that has the least so far.
        let mut parts = vec![0.0_f64; PARTS_MAX.min(order.len())];
        let mut part_of = vec![0; self.routers];
        for group in order {
            let least =
                (0..parts.len()).min_by(|one, other| parts[*one].total_cmp(&parts[*other]))?;
            parts[least] += loads[group];
            part_of[group] = least;
        }
        let part_of: Vec<usize> = groups.into_iter().map(|group| part_of[group]).collect();
        let cut = self.links.iter().filter(|it| part_of[it.from] != part_of[it.to]);
        cut.map(|it| it.link.delay).min().map(|delay| (part_of, delay))
    }

    /// Packets that each router handles, in proportion: data count one, acknowledgements a half.
    fn router_loads(&self, flows: &[Flow]) -> Vec<f64> {
        let mut loads = vec![0.0; self.routers];
        for (flow, ends) in flows.iter().zip(&self.ends) {
            let Some((load, connections)) = persistent(flow) else { continue };
            let each_bps = load.load.as_bits_per_sec() as f64 / f64::from(connections);
            for SitePair { there, back, .. } in ends.iter().map(|pair| &self.pairs[*pair]) {
                for (links, share) in [(there, 1.0), (back, 0.5)] {
                    // The first queue is at the router of the sender, which works as well.
                    let queues = links.first().into_iter().chain(links);
                    queues.for_each(|link| loads[self.links[*link].from] += each_bps * share);
                }
            }
        }
        loads
    }

    /// Numbers the bundles of the pairs that have a connection which a bundle would carry.
    fn number_bundles(&mut self, flows: &[Flow]) {
        let bundled = flows.iter().zip(&self.ends).filter(|(flow, _)| self.is_bundled(flow));
        let used: BTreeSet<usize> = bundled.flat_map(|(_, ends)| ends.iter().copied()).collect();
        let used = used.into_iter().filter(|pair| self.pairs[*pair].deploys);
        for (number, pair) in used.collect::<Vec<_>>().into_iter().enumerate() {
            self.pairs[pair].bundle = Some(number);
        }
    }
}

impl Scenario {
    /// The sites of the connection of this number of the flow at place `flow`, if the run has a topology.
    pub fn site_pair(&self, flow: usize, connection: u32) -> Option<&SitePair> {
        let topology = self.topology.as_ref()?;
        topology.pairs.get(*topology.ends.get(flow)?.get(connection as usize)?)
    }
}

/// The load of `flow` and its connections; `None` unless it has requests over persistent connections.
fn persistent(flow: &Flow) -> Option<(&RequestLoad, u32)> {
    match &flow.traffic {
        Traffic::Requests(load) => match load.connections {
            Connections::Persistent(connections) => Some((load, connections)),
            Connections::Each => None,
        },
        _ => None,
    }
}

/// The links between `routers` routers, both ways.
fn transit(routers: usize, like: &Link, stream: &mut Stream) -> Vec<Transit> {
    let mut joined = vec![[0, 1]];
    for router in 2..routers {
        // An end of a link is a router, drawn in proportion to the links that it has.
        let mut ends: Vec<usize> = joined.iter().flatten().copied().collect();
        for _ in 0..2 {
            let other = ends[stream.below(ends.len() as u64) as usize];
            ends.retain(|end| *end != other);
            joined.push([other, router]);
        }
    }
    let both_ways = |[one, other]: [usize; 2]| {
        let delay = stretched(like.delay, 0.5 + stream.unit());
        [[one, other], [other, one]].map(|[from, to]| Transit {
            from,
            to,
            link: Link { name: format!("r{from}-r{to}"), delay, ..like.clone() },
        })
    };
    joined.into_iter().flat_map(both_ways).collect()
}

/// One of the places of `weights`, drawn in proportion to them; `None` where none has a weight.
fn weighted(weights: &[f64], stream: &mut Stream) -> Option<usize> {
    let mut left = stream.unit() * weights.iter().sum::<f64>();
    let is_reached = |weight: &f64| {
        left -= weight;
        left < 0.0
    };
    // Rounding may leave next to nothing behind the last.
    weights.iter().position(is_reached).or_else(|| weights.iter().rposition(|it| *it > 0.0))
}

#[cfg(test)]
mod tests {
    use forebay_core::spec::Spec;

    use super::*;
    use crate::fixed_size;

    /// The topology of 20 sites and 6 routers, and 200 connections over it as flows.
    fn drawn(seed: u64, deployment: f64) -> (Topology, Vec<Flow>) {
        let traffic = Traffic::Requests(RequestLoad {
            sizes: fixed_size("10KB".parse().unwrap()).unwrap(),
            load: Rate::from_mbit_per_sec(100),
            connections: Connections::Persistent(200),
            iid: true,
        });
        let (cc, stop) = (Spec::named("cubic"), Duration::from_secs(1));
        let flow = Flow { pair: "sites".into(), ..Flow::new("bulk", cc, stop, traffic) };
        let (rate, delay) = (Rate::from_mbit_per_sec(1), Duration::from_millis(25));
        let like = Link::at_rate("forward", rate, delay, Spec::named("fifo"));
        let bundle = Bundle::new("a", Spec::named("copa"), Spec::named("sfq"));
        let mut topology = Topology {
            sites: 20,
            routers: 6,
            peers: 3,
            utilization: 0.8,
            deployment,
            bundle: Some(Bundle { pair: "sites".into(), ..bundle }),
            ..Topology::default()
        };
        let flows = topology.draw(&Streams::new(seed), &like, &[flow]);
        (topology, flows)
    }

    #[test]
    fn routes_connect_sites_both_ways() {
        let (topology, _) = drawn(1, 1.0);
        // One link between the first two, and two for each other router; both ways.
        assert_eq!((topology.links.len(), topology.pairs.len()), (2 * 9, 60));
        for pair in &topology.pairs {
            assert!(pair.from != pair.to && !pair.there.is_empty());
            for two in pair.there.windows(2) {
                assert_eq!(topology.links[two[0]].to, topology.links[two[1]].from);
            }
            let delay = |link: &usize| topology.links[*link].link.delay;
            let [there, back] =
                [&pair.there, &pair.back].map(|way| way.iter().map(delay).sum::<Duration>());
            assert_eq!((there, pair.rtt), (back, (there + pair.access) * 2));
            let ends = |way: &[usize]| {
                (topology.links[way[0]].from, topology.links[way[way.len() - 1]].to)
            };
            let (first, last) = ends(&pair.there);
            assert_eq!(ends(&pair.back), (last, first));
        }
    }

    #[test]
    fn pair_load_is_proportional_to_both_masses() {
        let (mut of_receivers, mut receivers, mut of_all, mut all) = (0.0, 0.0, 0.0, 0.0);
        for seed in 0..50 {
            let (topology, _) = drawn(seed, 1.0);
            let sites = topology.draw_sites(&Streams::new(seed), Duration::ZERO);
            for pair in &topology.pairs {
                let [from, to] = [pair.from, pair.to].map(|site| sites[site].mass);
                assert!((pair.weight - from * to).abs() < 1e-12, "{pair:?}");
                (of_receivers, receivers) = (of_receivers + to, receivers + 1.0);
            }
            of_all += sites.iter().map(|site| site.mass).sum::<f64>();
            all += sites.len() as f64;
        }
        // Drawn by mass, receivers would have nearly twice the mean of all.
        let ratio = (of_receivers / receivers) / (of_all / all);
        assert!((ratio - 1.0).abs() < 0.2, "{ratio}");
    }

    #[test]
    fn link_rate_follows_its_load() {
        let (topology, flows) = drawn(1, 0.5);
        let loads = flows.iter().filter_map(persistent);
        let bps: u64 = loads.map(|(load, _)| load.load.as_bits_per_sec()).sum();
        assert!(bps.abs_diff(100_000_000) < 10);
        // Each connection offers half a megabit per second.
        let connections = |link: usize| {
            let ends = topology.ends.iter().flatten();
            ends.filter(|pair| topology.pairs[**pair].there.contains(&link)).count()
        };
        for (number, transit) in topology.links.iter().enumerate() {
            let asked = (connections(number) as f64 * 0.5e6 / 0.8).max(1e6);
            let rate = transit.link.rate().unwrap().as_bits_per_sec() as f64;
            assert!((rate - asked).abs() < 100.0, "{}: {rate} for {asked}", transit.link.name);
        }
        let slowest = |pair: &SitePair| {
            pair.there.iter().filter_map(|link| topology.links[*link].link.rate()).min()
        };
        assert!(topology.pairs.iter().all(|pair| slowest(pair) == Some(pair.rate)));
    }

    #[test]
    fn deployment_order_is_fixed() {
        let deploying = |topology: &Topology| -> BTreeSet<usize> {
            let pairs = topology.pairs.iter().filter(|pair| pair.deploys);
            pairs.map(|pair| pair.from).collect()
        };
        let [few, many] = [0.1, 0.5].map(|share| drawn(3, share).0);
        assert_eq!([deploying(&few).len(), deploying(&many).len()], [2, 10]);
        assert!(deploying(&few).is_subset(&deploying(&many)));
        let ways = |topology: &Topology| -> Vec<Vec<usize>> {
            topology.pairs.iter().map(|pair| pair.there.clone()).collect()
        };
        assert_eq!(ways(&few), ways(&many));
        assert_ne!(ways(&few), ways(&drawn(4, 0.1).0));
    }

    #[test]
    fn flows_split_by_sender_bundles_by_deployer() {
        let (topology, flows) = drawn(2, 0.5);
        let names: Vec<&str> = flows.iter().map(|flow| flow.name.as_str()).collect();
        assert_eq!(names, ["bulk-deployers", "bulk-others"]);
        for (ends, deploys) in topology.ends.iter().zip([true, false]) {
            assert!(ends.iter().all(|pair| topology.pairs[*pair].deploys == deploys));
            assert!(ends.iter().all(|pair| topology.pairs[*pair].bundle.is_some() == deploys));
        }
        let numbers: Vec<usize> = topology.pairs.iter().filter_map(|pair| pair.bundle).collect();
        assert_eq!(numbers, (0..numbers.len()).collect::<Vec<_>>());
        let (topology, flows) = drawn(2, 1.0);
        assert_eq!((flows.len(), topology.ends[0].len()), (1, 200));
    }
}
