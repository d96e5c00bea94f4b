//! Whether the packet path gets on, so that the heartbeat tells the truth: a box that cannot send,
//! or does not keep up with what comes, must leave the traffic to the kernel though its loop turns.

use std::time::Duration;

use forebay_core::units::Timestamp;

/// The traffic is taken again after this long without a sign of a stall. It also bounds how often
/// the traffic changes hands, and with it the log.
const RECOVERY: Duration = Duration::from_secs(5);

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
    hand_backs: u64,
}

impl Progress {
    /// A stall of `patience` hands the traffic back.
    pub fn new(patience: Duration) -> Self {
        Self { patience, wan_since: None, lan_since: None, stalled_at: None, hand_backs: 0 }
    }

    /// Takes how a round begins: whether the WAN is blocked (its ring has no room, after what was
    /// sent by now has left it), and whether the LAN's ring is overrun.
    pub fn judge(&mut self, now: Timestamp, wan: bool, lan: bool) -> Option<Change> {
        self.wan_since = wan.then(|| self.wan_since.unwrap_or(now));
        self.lan_since = lan.then(|| self.lan_since.unwrap_or(now));
        let Some(stalled_at) = self.stalled_at else {
            let stall = self.stall(now)?;
            self.stalled_at = Some(now);
            self.hand_backs += 1;
            return Some(Change::HandBack(stall));
        };
        if wan || lan {
            self.stalled_at = Some(now);
            return None;
        }
        let is_over = now.saturating_since(stalled_at) >= RECOVERY;
        is_over.then(|| {
            self.stalled_at = None;
            Change::TakeAgain
        })
    }

    /// Whether the process may say that it makes progress.
    pub fn is_made(&self) -> bool {
        self.stalled_at.is_none()
    }

    /// How often the traffic was handed back.
    pub fn hand_backs(&self) -> u64 {
        self.hand_backs
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
}
