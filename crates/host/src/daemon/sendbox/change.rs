//! Switches a sendbox to another configuration: completely, or not at all.

use std::collections::BTreeMap;
use std::io;

use forebay_core::bundle::uplink::Uplink;

use super::bundle::{Bundle, Mode};
use super::datapath::Datapath;
use super::{SendboxWorker, new_bundle, shaping};
use crate::clock;
use crate::daemon::DaemonError;
use crate::daemon::conditions::Devices;
use crate::daemon::config::Forward;
use crate::daemon::reload::ReloadChange;
use crate::daemon::reload::difference::BundleOrigin;
use crate::daemon::schedule::Schedule;

/// Bundles that are created between two rounds: less than a millisecond of work.
const MADE_AT_ONCE: usize = 16;

impl<D: Datapath> SendboxWorker<D> {
    /// Switches to another configuration.
    ///
    /// # Errors
    ///
    /// The reason why the switch failed; nothing has changed then.
    pub(super) fn change(&mut self, change: &ReloadChange) -> Result<(), DaemonError> {
        let ReloadChange { config, keys, origins } = change;
        let mut fresh = self.fresh(change)?;
        let now = clock::now();
        let uplink = self.next_uplink(change)?;
        self.datapath.rearrange(now, config, origins, &self.seen)?;
        // Nothing fails from here on.
        for place in change.gone(self.bundles.len()) {
            let bundle = &mut self.bundles[place];
            bundle.say_farewell(now, &mut self.messages);
            self.messages.retire(bundle.rejects());
        }
        let mut before: Vec<Option<Bundle>> = self.bundles.drain(..).map(Some).collect();
        for (place, (bundle, keys)) in config.bundles.iter().zip(keys).enumerate() {
            self.bundles.push(match origins[place] {
                BundleOrigin::New => fresh.remove(&place).expect("made above"),
                BundleOrigin::Kept { place: earlier, has_other_keys } => {
                    let mut kept = before[earlier].take().expect("one comes from each");
                    kept.set_config(now, place, bundle, shaping(bundle));
                    if has_other_keys {
                        kept.set_keys(now, keys);
                    }
                    kept
                }
            });
        }
        self.messages.set_bundles(&config.bundles);
        self.seen.keep_names(config.bundles.iter().map(|bundle| &bundle.peer));
        self.datapath.follow(&self.seen);
        if config.forward == Forward::Route {
            self.observer.watch_routes(&Devices::of(config).to);
        }
        self.schedule = Schedule::new(self.bundles.len());
        self.uplink = uplink;
        if self.uplink.is_none() {
            for bundle in &mut self.bundles {
                bundle.set_ceiling(now, None, &mut self.datapath);
            }
        }
        if let Some(cause) = self.progress.handed_back() {
            self.set_handed_back(now, Some(cause));
        }
        self.leave_out(now);
        self.look_for_mtu(now);
        self.progress.excuse(clock::now());
        self.share_uplink(now, true);
        Ok(())
    }

    /// The new bundles, by their places. Meanwhile the packets of the other bundles are still
    /// served.
    fn fresh(&mut self, change: &ReloadChange) -> Result<BTreeMap<usize, Bundle>, DaemonError> {
        let (dry_run, is_traced) = (self.dry_run, self.tracer.is_on());
        let overhead = self.overhead;
        let mode = Mode { dry_run, is_traced, versions: D::VERSIONS, overhead };
        let ReloadChange { config, keys, origins } = change;
        let places = (0..origins.len()).filter(|place| origins[*place] == BundleOrigin::New);
        let mut fresh = BTreeMap::new();
        for place in places {
            let made = new_bundle(place, &config.bundles[place], &keys[place], self.seed, mode)?;
            fresh.insert(place, made);
            if fresh.len().is_multiple_of(MADE_AT_ONCE) {
                self.round().map_err(DaemonError::Failed)?;
            }
        }
        Ok(fresh)
    }

    /// The uplink of another configuration, with the known state of the bundles that stay.
    fn next_uplink(&self, change: &ReloadChange) -> Result<Option<Uplink>, DaemonError> {
        let Some(file) = &change.config.uplink else { return Ok(None) };
        let before: Vec<Option<usize>> = change.origins.iter().map(|it| it.place()).collect();
        let next = match &self.uplink {
            Some(uplink) => uplink.succeeded_by(&file.shares, &before),
            None => Uplink::new(&file.shares),
        };
        next.map(Some).map_err(|error| DaemonError::SetUp(io::Error::other(error)))
    }
}
