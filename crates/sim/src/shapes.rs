//! Networks of known shapes. Acknowledgements return over a path of the same propagation, any rate.

use forebay_core::spec::Spec;
use forebay_core::traffic::{Receiving, Source};
use forebay_core::units::Duration;

use crate::network::{Flow, Hop, Link, Network, Traffic};
use crate::packet::mix;
use crate::tcp::stack::Stack;

/// How packets are shared among parallel paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// A flow keeps to one path, which the seed and its number choose (ECMP).
    ByFlow,
    /// Packets of all flows take turns.
    ByPacket,
}

impl Balance {
    /// The route of flow number `flow` over `paths`, of which there is at least one.
    pub fn route(self, paths: &[Vec<Hop>], seed: u64, flow: usize) -> Vec<Hop> {
        match self {
            Self::ByFlow => {
                let choice = mix(seed ^ mix(flow as u64)) % paths.len().max(1) as u64;
                paths.get(choice as usize).cloned().unwrap_or_default()
            }
            Self::ByPacket => vec![Hop::Spread(paths.to_vec())],
        }
    }
}

impl Network {
    /// Links without flows over them.
    pub fn of_links(stop: Duration, seed: u64, stack: Stack, links: Vec<Link>) -> Self {
        let (bundles, uplinks, flows) = Default::default();
        Self { stop, seed, stack, links, bundles, uplinks, flows }
    }

    /// A parking lot: flow 0 over all links in a row, flow n over the n-th link alone, all greedy.
    ///
    /// ```text
    ///  0 ──►[link 0]──►[link 1]──► ... ──►
    ///     1 ──┘    └─► 2 ──┘    └─►
    /// ```
    pub fn parking_lot(
        stop: Duration,
        seed: u64,
        stack: Stack,
        links: Vec<Link>,
        cc: &Spec,
    ) -> Self {
        let mut network = Self::of_links(stop, seed, stack, links);
        let all: Vec<Hop> = (0..network.links.len()).map(Hop::Link).collect();
        let each = all.iter().map(|hop| vec![hop.clone()]);
        let routes: Vec<_> = std::iter::once(all.clone()).chain(each).collect();
        routes.into_iter().for_each(|route| network.add_greedy(cc, route));
        network
    }

    /// `flows` greedy flows over all links side by side.
    pub fn parallel(
        stop: Duration,
        seed: u64,
        stack: Stack,
        links: Vec<Link>,
        balance: Balance,
        cc: &Spec,
        flows: usize,
    ) -> Self {
        let mut network = Self::of_links(stop, seed, stack, links);
        let paths: Vec<_> = (0..network.links.len()).map(|link| vec![Hop::Link(link)]).collect();
        for flow in 0..flows {
            network.add_greedy(cc, balance.route(&paths, seed, flow));
        }
        network
    }

    fn add_greedy(&mut self, cc: &Spec, data: Vec<Hop>) {
        let back = vec![Hop::Delay(self.least_delay(&data))];
        let traffic = Traffic::Source(Source::Greedy { bytes: None });
        let (cc, start, stop) = (cc.clone(), Duration::ZERO, None);
        self.flows.push(Flow {
            cc,
            traffic,
            start,
            opened: None,
            stop,
            dscp: 0,
            name: String::new(),
            initial_window: None,
            receiving: Receiving::default(),
            data,
            back,
        });
    }

    /// Propagation over a route before any change, the shortest where packets or flows part.
    pub fn least_delay(&self, route: &[Hop]) -> Duration {
        let of = |hop: &Hop| match hop {
            Hop::Link(link) => self.links.get(*link).map_or(Duration::ZERO, |it| it.config.delay),
            Hop::Delay(delay) => *delay,
            Hop::Sendbox(_) => Duration::ZERO,
            Hop::Bundle(bundle) => {
                self.bundles.get(*bundle).map_or(Duration::ZERO, |it| self.least_delay(&it.path))
            }
            Hop::Spread(routes) | Hop::Hashed(routes) => {
                routes.iter().map(|route| self.least_delay(route)).min().unwrap_or_default()
            }
        };
        route.iter().map(of).sum()
    }
}
