//! What the log says of the other box.

use forebay_core::bundle::peer::{KEYS_DIFFER, PeerEvent};

/// Says news of the other box of a bundle, which is a `role`.
pub fn say(role: &str, bundle: &str, event: PeerEvent) {
    match event {
        PeerEvent::Alive => tracing::info!(bundle, "{role} is there"),
        PeerEvent::Restarted => tracing::info!(bundle, "{role} restarted"),
        PeerEvent::Stopping => tracing::info!(bundle, "{role} stops"),
        PeerEvent::Silent => tracing::warn!(bundle, "{role} is silent: not shaped"),
        PeerEvent::Unverified => tracing::warn!(bundle, "{KEYS_DIFFER}"),
    }
}
