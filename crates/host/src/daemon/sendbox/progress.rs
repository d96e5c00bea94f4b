//! Whether the packet path gets on, so that the heartbeat tells the truth: a box that cannot send,
//! or does not keep up with what comes, must leave the traffic to the kernel though its loop turns.

use std::time::Duration;

use forebay_core::units::Timestamp;

/// The traffic is taken again after this long without a sign of a stall, at first. It also bounds
/// how often the traffic changes hands, and with it the log.
const RECOVERY: Duration = Duration::from_secs(5);
/// At most so long: what overloads a box may end at any time.
const RECOVERY_MAX: Duration = Duration::from_secs(300);
/// A stall this soon after the traffic was taken is the same again: the next recovery takes twice
/// as long, for each change of hands drops and reorders packets.
const SOON: Duration = Duration::from_secs(60);
/// A stall this long after is another one.
const LONG: Duration = Duration::from_secs(600);

/// What does not get on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// The WAN's ring is full and nothing leaves it.
    Wan,
    /// The LAN's ring is full whenever it is looked at.
    Lan,
}

impl Stall {
    /// What is wrong, for people.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Wan => "the WAN port takes no packets",
            Self::Lan => "packets come in faster than they can be handled",
        }
    }
}

/// Who forwards from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The kernel.
    HandBack(Stall),
    /// This process, again.
    TakeAgain,
}

/// Judges each round of the loop.
#[derive(Debug)]
pub struct Progress {
    patience: Duration,
    /// Since when each has been stalled at every round.
    wan_since: Option<Timestamp>,
    lan_since: Option<Timestamp>,
    /// While the kernel forwards: when a stall was last seen.
    stalled_at: Option<Timestamp>,
    /// When the traffic was last taken again.
    taken_at: Option<Timestamp>,
    recovery: Duration,
    hand_backs: u64,
}

impl Progress {
    /// A stall of `patience` hands the traffic back.
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            wan_since: None,
            lan_since: None,
            stalled_at: None,
            taken_at: None,
            recovery: RECOVERY,
            hand_backs: 0,
        }
    }

    /// Takes how a round begins: whether the WAN is blocked (its ring has no room, after what was
    /// sent by now has left it), and whether the LAN's ring is overrun.
    pub fn judge(&mut self, now: Timestamp, wan: bool, lan: bool) -> Option<Change> {
        self.wan_since = wan.then(|| self.wan_since.unwrap_or(now));
        self.lan_since = lan.then(|| self.lan_since.unwrap_or(now));
        let Some(stalled_at) = self.stalled_at else {
            let stall = self.stall(now)?;
            self.stalled_at = Some(now);
            self.recovery = self.next_recovery(now);
            self.hand_backs += 1;
            return Some(Change::HandBack(stall));
        };
        if wan || lan {
            self.stalled_at = Some(now);
            return None;
        }
        let is_over = now.saturating_since(stalled_at) >= self.recovery;
        is_over.then(|| {
            self.stalled_at = None;
            self.taken_at = Some(now);
            Change::TakeAgain
        })
    }

    /// Whether the process may say that it makes progress.
    pub fn is_made(&self) -> bool {
        self.stalled_at.is_none()
    }

    /// How long no stall must be seen until the traffic, handed back, is taken again.
    pub fn recovery(&self) -> Duration {
        self.recovery
    }

    /// How often the traffic was handed back.
    pub fn hand_backs(&self) -> u64 {
        self.hand_backs
    }

    /// The recovery from a stall that is found `now`.
    fn next_recovery(&self, now: Timestamp) -> Duration {
        match self.taken_at.map(|taken_at| now.saturating_since(taken_at)) {
            Some(kept) if kept < SOON => (self.recovery * 2).min(RECOVERY_MAX),
            Some(kept) if kept < LONG => self.recovery,
            _ => RECOVERY,
        }
    }

    fn stall(&self, now: Timestamp) -> Option<Stall> {
        let is_long = |since: Option<Timestamp>| {
            since.is_some_and(|since| now.saturating_since(since) >= self.patience)
        };
        if is_long(self.wan_since) {
            return Some(Stall::Wan);
        }
        is_long(self.lan_since).then_some(Stall::Lan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn progress() -> Progress {
        Progress::new(Duration::from_millis(500))
    }

    #[test]
    fn either_stall_hands_the_traffic_back_after_the_patience_and_once() {
        for (stall, wan, lan) in [(Stall::Wan, true, false), (Stall::Lan, false, true)] {
            let mut progress = progress();
            assert_eq!(progress.judge(at(1000), wan, lan), None);
            assert_eq!(progress.judge(at(1499), wan, lan), None);
            assert!(progress.is_made());
            assert_eq!(progress.judge(at(1500), wan, lan), Some(Change::HandBack(stall)));
            assert!(!progress.is_made());
            assert_eq!(progress.judge(at(1520), wan, lan), None);
            assert_eq!(progress.judge(at(60_000), wan, lan), None);
            assert_eq!(progress.hand_backs(), 1);
        }
    }

    #[test]
    fn a_slow_wan_and_a_busy_ring_are_no_stall() {
        let mut progress = progress();
        for ms in 0..10_000 {
            // Room once in 499 ms; a ring that is overrun in all other rounds.
            let change = progress.judge(at(ms), ms % 499 != 0, ms % 2 == 0);
            assert_eq!(change, None, "{ms}");
        }
        assert!(progress.is_made());
    }

    #[test]
    fn two_short_stalls_of_different_kinds_do_not_add_up() {
        let mut progress = progress();
        for (ms, wan, lan) in [(0, true, false), (400, false, true), (899, false, true)] {
            assert_eq!(progress.judge(at(ms), wan, lan), None);
        }
    }

    #[test]
    fn traffic_is_taken_again_after_five_seconds_without_a_stall_and_may_stall_again() {
        let mut progress = progress();
        progress.judge(at(0), true, false);
        assert_eq!(progress.judge(at(500), true, false), Some(Change::HandBack(Stall::Wan)));
        assert_eq!(progress.judge(at(3000), false, false), None);
        // The other ring counts too, however shortly.
        assert_eq!(progress.judge(at(4000), false, true), None);
        assert_eq!(progress.judge(at(8999), false, false), None);
        assert_eq!(progress.judge(at(9000), false, false), Some(Change::TakeAgain));
        assert!(progress.is_made());
        assert_eq!(progress.judge(at(9001), true, false), None);
        assert_eq!(progress.judge(at(9501), true, false), Some(Change::HandBack(Stall::Wan)));
        assert_eq!(progress.hand_backs(), 2);
    }

    /// A box that is overloaded whenever it has carried for `kept_ms`; answers how long each of its
    /// next recoveries takes.
    fn recoveries(progress: &mut Progress, now_ms: &mut u64, kept_ms: u64, count: u32) -> Vec<u64> {
        let mut recoveries = Vec::new();
        for _ in 0..count {
            assert_eq!(progress.judge(at(*now_ms), false, false), None);
            *now_ms += kept_ms - 500;
            assert_eq!(progress.judge(at(*now_ms), false, true), None);
            *now_ms += 500;
            let change = progress.judge(at(*now_ms), false, true);
            assert_eq!(change, Some(Change::HandBack(Stall::Lan)));
            let stalled_ms = *now_ms;
            while progress.judge(at(*now_ms), false, false) != Some(Change::TakeAgain) {
                *now_ms += 500;
            }
            recoveries.push((*now_ms - stalled_ms) / 1000);
        }
        recoveries
    }

    #[test]
    fn a_box_that_stalls_again_soon_leaves_the_traffic_alone_for_longer_each_time() {
        let (mut progress, mut now_ms) = (progress(), 1_000_000);
        let soon = recoveries(&mut progress, &mut now_ms, 1000, 9);
        assert_eq!(soon, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn a_stall_after_a_while_takes_no_longer_and_one_after_long_is_another() {
        let (mut progress, mut now_ms) = (progress(), 1_000_000);
        assert_eq!(recoveries(&mut progress, &mut now_ms, 1000, 3), [5, 10, 20]);
        assert_eq!(recoveries(&mut progress, &mut now_ms, 60_000, 2), [20, 20]);
        assert_eq!(recoveries(&mut progress, &mut now_ms, 59_999, 1), [40]);
        assert_eq!(recoveries(&mut progress, &mut now_ms, 600_000, 2), [5, 5]);
        assert_eq!(recoveries(&mut progress, &mut now_ms, 1000, 1), [10]);
    }
}
