//! What a message of the other box says about its being there.

use forebay_core::bundle::monitor::{Liveness, Monitor};
use forebay_core::bundle::wire::BoxState;
use forebay_core::units::Timestamp;

/// Takes an authentic message of a peer that last said it does `state`; answers what has become of
/// the peer if that is news. A peer that stops says so more than once.
pub fn hear(monitor: &mut Monitor, now: Timestamp, state: Option<BoxState>) -> Option<Liveness> {
    let is_news = match state {
        Some(BoxState::Stopping) => monitor.stopped(now),
        _ => monitor.heard(now),
    };
    is_news.then(|| monitor.state())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_comes_stops_and_comes_back_is_news_thrice() {
        use BoxState::{Shaping, Stopping};
        let mut monitor = Monitor::new(Timestamp::ZERO);
        let states = [None, Some(Shaping), Some(Stopping), Some(Stopping), Some(Stopping), None];
        let news: Vec<(usize, Liveness)> = (states.into_iter().enumerate())
            .filter_map(|(at, state)| {
                Some((at, hear(&mut monitor, Timestamp::from_nanos(at as u64), state)?))
            })
            .collect();
        assert_eq!(news, [(0, Liveness::Alive), (2, Liveness::Silent), (5, Liveness::Alive)]);
    }
}
