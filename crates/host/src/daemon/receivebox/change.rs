//! Switches a receivebox to another configuration: completely, or not at all.

use std::collections::BTreeMap;

use forebay_core::bundle::BundleId;

use super::{ReceiveboxWorker, Watch, by_id, scopes};
use crate::daemon::reload::ReloadChange;
use crate::daemon::reload::difference::BundleOrigin;
use crate::daemon::schedule::Schedule;
use crate::daemon::unguessable;

impl ReceiveboxWorker {
    /// Switches to another configuration.
    ///
    /// # Errors
    ///
    /// The reason why the sampler cannot switch. Nothing has changed then, unless the kernel refused only a
    /// part ([`Sampling::change`](super::sampling::Sampling::change)).
    pub(super) fn change(&mut self, change: &ReloadChange) -> Result<(), forebay_ebpf::Error> {
        let now = self.now();
        let ReloadChange { config, keys, origins } = change;
        let gone = change.gone(self.bundles.len());
        let ids: Vec<BundleId> = gone.iter().map(|place| self.bundles[*place].config.id).collect();
        let (mut fresh, mut sampled) = (BTreeMap::new(), Vec::new());
        let (scopes, versions) = (scopes(config), self.sampler.versions());
        for (place, (bundle, origin)) in config.bundles.iter().zip(origins).enumerate() {
            let Some(earlier) = origin.place() else {
                let watch = Watch::new(bundle, &keys[place], scopes[place].clone(), versions, now);
                sampled.push(watch.sampled());
                fresh.insert(place, watch);
                continue;
            };
            let watch = &self.bundles[earlier];
            if (&watch.config.to, &watch.config.from) != (&bundle.to, &bundle.from) {
                sampled.push((bundle.id, watch.sampling(bundle)));
            }
        }
        self.sampler.change(&ids, sampled)?;
        for watch in fresh.values() {
            // There is room for the addresses of all bundles.
            watch.leave_out(self.sampler.as_mut(), &self.own, &self.seen.names)?;
        }
        // Nothing fails from here on.
        for place in gone {
            self.say_farewell(now, place);
            self.messages.retire(self.bundles[place].receivebox.rejects());
        }
        let mut before: Vec<Option<Watch>> = self.bundles.drain(..).map(Some).collect();
        for (place, (bundle, scope)) in config.bundles.iter().zip(scopes).enumerate() {
            self.bundles.push(match origins[place] {
                BundleOrigin::New => fresh.remove(&place).expect("made above"),
                BundleOrigin::Kept { place: earlier, has_other_keys } => {
                    let mut kept = before[earlier].take().expect("one comes from each");
                    kept.config = bundle.clone();
                    if bundle.nat.is_none() {
                        kept.receivebox.set_scope(now, scope);
                    }
                    if has_other_keys {
                        let [session, nonce] = [unguessable(), unguessable()];
                        kept.receivebox.restart(&keys[place], session, nonce, now);
                    }
                    kept
                }
            });
        }
        self.by_id = by_id(&self.bundles);
        self.messages.set_bundles(&config.bundles);
        self.schedule = Schedule::new(self.bundles.len());
        Ok(())
    }
}
