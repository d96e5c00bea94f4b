//! What the log says of the other box.

use forebay_core::bundle::peer::{KEYS_DIFFER, PeerEvent};
use forebay_core::bundle::scope::Difference;
use forebay_core::units::Timestamp;

use super::config::Role;
use super::scope;
use crate::log::Allowance;

/// Says at `now` the news of the other box of a bundle to which this one is a `role`, as far as there is allowance;
/// `differences`: in what the two take different packets for the bundle's.
pub fn say(
    role: Role,
    bundle: &str,
    event: PeerEvent,
    differences: Option<&[Difference]>,
    (allowance, now): (&mut Allowance, Timestamp),
) {
    if !allowance.takes(now) {
        tracing::debug!(target: "peer", bundle, ?event, "not told, as too much was");
        return;
    }
    let other = role.other();
    match event {
        PeerEvent::Alive => tracing::info!(target: "peer", bundle, "{other} is there"),
        PeerEvent::Restarted => tracing::info!(target: "peer", bundle, "{other} restarted"),
        PeerEvent::Stopping => tracing::info!(target: "peer", bundle, "{other} stops"),
        PeerEvent::Silent => {
            tracing::warn!(target: "peer", bundle, "{other} is silent: not shaped");
        }
        PeerEvent::Unverified => tracing::warn!(target: "peer", bundle, "{KEYS_DIFFER}"),
        PeerEvent::Scope => match differences {
            None => {}
            Some([]) => tracing::info!(target: "scope", bundle, "{}", scope::SAME),
            Some(differences) => {
                for sentence in scope::sentences(role, differences) {
                    tracing::warn!(target: "scope", bundle, "{sentence}");
                }
            }
        },
    }
}
