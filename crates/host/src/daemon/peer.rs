//! Log lines about the other box.

use forebay_core::bundle::peer::{KEYS_DIFFER, PeerEvent};
use forebay_core::bundle::scope::Difference;
use forebay_core::units::Timestamp;

use super::config::Role;
use super::scope;
use crate::log::Allowance;

/// Log lines about the other box of a bundle.
#[derive(Clone, Copy, Debug, Default)]
pub struct News {
    liveness: Topic,
    scope: Topic,
}

impl News {
    /// Logs at `now` an event at the other box of a bundle, and earlier events that were held back, as far
    /// as the allowance permits. This box has the role `role`. `differences` lists packets that only one of
    /// the two boxes counts to the bundle.
    pub fn say(
        &mut self,
        now: Timestamp,
        event: Option<PeerEvent>,
        role: Role,
        bundle: &str,
        differences: Option<&[Difference]>,
    ) {
        let (liveness, scope) = match event {
            Some(PeerEvent::Scope) => (None, event),
            other => (other, None),
        };
        let due = [self.liveness.take(now, liveness), self.scope.take(now, scope)];
        for event in due.into_iter().flatten() {
            tell(event, role, bundle, differences);
        }
    }
}

/// Events that supersede earlier ones of their kind: the newest is always logged, if necessary later.
#[derive(Clone, Copy, Debug, Default)]
struct Topic {
    allowance: Allowance,
    untold: Option<PeerEvent>,
}

impl Topic {
    /// The event to log at `now`, given that `event` has happened.
    fn take(&mut self, now: Timestamp, event: Option<PeerEvent>) -> Option<PeerEvent> {
        self.untold = event.or(self.untold);
        self.untold.take_if(|_| self.allowance.takes(now))
    }
}

fn tell(event: PeerEvent, role: Role, bundle: &str, differences: Option<&[Difference]>) {
    let other = role.other();
    match event {
        PeerEvent::Alive => tracing::info!(target: "peer", bundle, "{other} is alive"),
        PeerEvent::Restarted => tracing::info!(target: "peer", bundle, "{other} began a new \
                                                                        session (restart or new \
                                                                        keys)"),
        PeerEvent::Stopping => tracing::info!(target: "peer", bundle, "{other} stops and closes \
                                                                       the session"),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn newest_suppressed_message_is_logged_later() {
        let (start, mut topic) = (Timestamp::ZERO, Topic::default());
        let told = (0..10).filter_map(|_| topic.take(start, Some(PeerEvent::Silent))).count();
        assert_eq!(told, 6);
        assert_eq!(topic.take(start, Some(PeerEvent::Alive)), None);
        assert_eq!(topic.take(start, None), None);
        let minutes = |count: u32| start + Duration::from_secs(60) * count;
        assert_eq!(topic.take(minutes(1), None), Some(PeerEvent::Alive));
        assert_eq!(topic.take(minutes(3), None), None, "once");
    }
}
