//! Sendboxes with several bundles: the share of the site's line for each bundle.

use forebay_core::bundle::uplink::Uplink;

use super::Simulation;
use crate::event::Event;
use crate::network::Network;

/// All uplinks of a simulation.
#[derive(Default)]
pub(super) struct Uplinks {
    /// Each uplink with its bundles.
    all: Vec<(Uplink, Vec<u32>)>,
    /// For each bundle its uplink and its place there; empty if the network has no uplink.
    places: Vec<Option<(u32, usize)>>,
}

impl Simulation {
    /// Sets up the uplinks of a network that has been checked.
    pub(super) fn add_uplinks(&mut self, network: &Network) {
        let Uplinks { all, places } = &mut self.uplinks;
        for (index, uplink) in (0..).zip(&network.uplinks) {
            places.resize(network.bundles.len(), None);
            for (place, bundle) in uplink.bundles.iter().enumerate() {
                places[*bundle] = Some((index, place));
            }
            let divided = Uplink::new(&uplink.shares).expect("a network's shares are checked");
            all.push((divided, uplink.bundles.iter().map(|bundle| *bundle as u32).collect()));
            self.events.add(self.now, Event::Uplink(index));
        }
    }

    /// Divides an uplink by the bytes that its bundles have sent and would send.
    pub(super) fn divide_uplink(&mut self, index: u32) {
        let (uplink, bundles) = &mut self.uplinks.all[index as usize];
        let loads = bundles.iter().map(|bundle| self.sendboxes[*bundle as usize].load());
        uplink.on_tick(self.now, loads);
        self.events.add(uplink.next_timer(), Event::Uplink(index));
        self.enforce_uplink(index);
    }

    /// Divides the uplink of a bundle at once if the bundle's queue cannot wait for the next division.
    #[inline]
    pub(super) fn watch_uplink(&mut self, bundle: u32) {
        let place = self.uplinks.places.get(bundle as usize);
        let Some((index, place)) = place.copied().flatten() else { return };
        let load = self.sendboxes[bundle as usize].load();
        let (uplink, _) = &mut self.uplinks.all[index as usize];
        if uplink.on_queue(place, &load) {
            uplink.divide();
            self.enforce_uplink(index);
        }
    }

    fn enforce_uplink(&mut self, index: u32) {
        let (uplink, bundles) = &self.uplinks.all[index as usize];
        for (place, bundle) in bundles.iter().enumerate() {
            let sendbox = &mut self.sendboxes[*bundle as usize];
            sendbox.set_ceiling(self.now, uplink.ceiling(place));
            sendbox.plan(self.now, &mut self.events);
        }
    }
}
