//! What the log says of the other box.

use forebay_core::bundle::peer::{KEYS_DIFFER, PeerEvent};
use forebay_core::bundle::scope::Difference;

use super::config::Role;
use super::scope;

/// Says news of the other box of a bundle to which this one is a `role`; `differences`: in what the two take
/// different packets for the bundle's.
pub fn say(role: Role, bundle: &str, event: PeerEvent, differences: Option<&[Difference]>) {
    let other = match role {
        Role::Sendbox => Role::Receivebox,
        Role::Receivebox => Role::Sendbox,
    };
    match event {
        PeerEvent::Alive => tracing::info!(bundle, "{other} is there"),
        PeerEvent::Restarted => tracing::info!(bundle, "{other} restarted"),
        PeerEvent::Stopping => tracing::info!(bundle, "{other} stops"),
        PeerEvent::Silent => tracing::warn!(bundle, "{other} is silent: not shaped"),
        PeerEvent::Unverified => tracing::warn!(bundle, "{KEYS_DIFFER}"),
        PeerEvent::Scope => match differences {
            None => {}
            Some([]) => tracing::info!(bundle, "{}", scope::SAME),
            Some(differences) => {
                for sentence in scope::sentences(role, differences) {
                    tracing::warn!(bundle, "{sentence}");
                }
            }
        },
    }
}
