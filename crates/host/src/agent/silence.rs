//! Finds connections that hold a slot but have sent no record for long. No clock and no I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::units::Timestamp;
use forebay_ebpf::tcp::FlowId;

/// Connections that have never sent a record, and when they were first seen.
#[derive(Default)]
pub struct Silence(BTreeMap<FlowId, Timestamp>);

impl Silence {
    /// Returns the connections of `held` that have been silent for longer than `limit`, and since when.
    /// `held` lists all connections that hold a slot at `now`; `heard` returns when the last record of one
    /// came. A connection without any record counts as silent from the first call that sees it: its first
    /// record may have found no room, or be on its way. Time before `listening` never counts, because no
    /// agent read records then.
    pub fn longer_than(
        &mut self,
        limit: Duration,
        now: Timestamp,
        listening: Timestamp,
        held: impl Iterator<Item = FlowId>,
        heard: impl Fn(FlowId) -> Option<Timestamp>,
    ) -> Vec<(FlowId, Timestamp)> {
        let seen = std::mem::take(&mut self.0);
        let mut silent = Vec::new();
        for flow in held {
            let since = heard(flow).unwrap_or_else(|| {
                let since = seen.get(&flow).copied().unwrap_or(now);
                self.0.insert(flow, since);
                since
            });
            let since = since.max(listening);
            if now.saturating_since(since) > limit {
                silent.push((flow, since));
            }
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_nanos(secs * 1_000_000_000)
    }

    fn flow(slot: u32, generation: u32) -> FlowId {
        FlowId { slot, generation }
    }

    #[test]
    fn silence_counts_from_last_record_or_first_sight() {
        let mut silence = Silence::default();
        let mut look = |now, held: &[FlowId], heard: Option<u64>| {
            let held = held.iter().copied();
            silence.longer_than(HOUR, at(now), at(0), held, |_| heard.map(at))
        };
        let (old, new) = (flow(3, 1), flow(3, 2));
        // On a machine that has been up for a day, time before the agent does not count.
        assert_eq!(look(86_400, &[old], None), []);
        assert_eq!(look(90_000, &[old], None), []);
        // Another connection has the slot, and starts its own hour.
        assert_eq!(look(90_001, &[new], None), []);
        assert_eq!(look(93_601, &[new], None), []);
        assert_eq!(look(93_602, &[new], None), [(new, at(90_001))]);
        // A record resets the time.
        assert_eq!(look(93_603, &[new], Some(90_003)), []);
        assert_eq!(look(93_604, &[new], Some(90_003)), [(new, at(90_003))]);
        assert_eq!(look(93_605, &[new], None), []);
    }
    #[test]
    fn nobody_is_silent_while_nobody_listens() {
        let mut silence = Silence::default();
        let one = flow(3, 1);
        let mut look = |now, listening| {
            silence.longer_than(HOUR, at(now), at(listening), [one].into_iter(), |_| Some(at(10)))
        };
        // An agent that was stopped for a day has not yet read the records written meanwhile.
        assert_eq!(look(86_400, 86_400), []);
        assert_eq!(look(90_000, 86_400), []);
        assert_eq!(look(90_001, 86_400), [(one, at(86_400))]);
    }
}
