//! Judges whether packets move, so that the heartbeat is honest. Even if its loop runs, the box must leave
//! the traffic to the kernel in four cases. It cannot send; it does not keep up with new packets; it gets too
//! little processor time; or a condition of its devices fails.

use std::time::Duration;

use forebay_core::units::Timestamp;

use super::IDLE;
use super::datapath::Health;
use super::starvation::{LATE, Starvation};

/// At first, the box takes the traffic again after this long without a sign of a stall. This also bounds how
/// often the traffic changes hands, and with it the log.
const RECOVERY: Duration = Duration::from_secs(5);
/// Longest such time after overloads: the cause of an overload may end at any time.
const RECOVERY_MAX: Duration = Duration::from_secs(300);
/// Time that a failed condition must hold again: an operator may need several commands to repair it. A
/// process that stood still must also run for this long: if it stands still again, it loses the packets that
/// it took.
const SETTLING: Duration = Duration::from_millis(500);
/// An overload this soon after one is the same overload, caused by the packets that the box takes. The next
/// recovery then takes twice as long, since each change of hands drops and reorders packets. A WAN that
/// stalls has its own reasons.
const SOON: Duration = Duration::from_secs(60);
/// An overload this long after one is unrelated to it.
const LONG: Duration = Duration::from_secs(600);
/// Kinds of stall of the packet path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// No packet leaves towards the WAN.
    Wan,
    /// More comes from the LAN than is taken, at every look.
    Lan,
    /// The threads that carry packets run too late.
    Starved,
}

impl Stall {
    /// The problem, for people.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Wan => "the WAN port takes no packets",
            Self::Lan => "packets arrive faster than the box can handle",
            Self::Starved => {
                "the box gets too little processor time: its packet thread was late by more than \
                 100 ms for 20 % of 2 s"
            }
        }
    }

    /// Whether taking packets may cause it.
    fn is_overload(self) -> bool {
        self != Self::Wan
    }
}

/// Reason why the kernel forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Packets do not move.
    Stall(Stall),
    /// A condition fails that must hold; with its consequence.
    FailedCondition(&'static str),
}

impl Cause {
    /// The problem, for people.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Stall(stall) => stall.reason(),
            Self::FailedCondition(reason) => reason,
        }
    }
}

/// Next forwarder of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwarderChange {
    /// The kernel, also if it forwards already and only the reason changes.
    HandBack(Cause),
    /// This process, again.
    TakeAgain,
}

/// Judges each round of the loop.
#[derive(Debug)]
pub struct Progress {
    patience: Duration,
    /// Start of the current stall, which every round since has seen.
    wan_since: Option<Timestamp>,
    lan_since: Option<Timestamp>,
    /// Start of the last round, or the end of the last work other than packets.
    turned_at: Option<Timestamp>,
    starvation: Starvation,
    /// When a process that stood still has run for long enough, and whether that is still to come.
    settles_at: Timestamp,
    is_settling: bool,
    /// While the kernel forwards: the reason, and when it was last seen.
    handed_back: Option<(Cause, Timestamp)>,
    /// The last overload: its recovery time, and until when it kept the traffic with the kernel.
    overload: Option<(Duration, Timestamp)>,
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
            turned_at: None,
            starvation: Starvation::default(),
            settles_at: Timestamp::ZERO,
            is_settling: false,
            handed_back: None,
            overload: None,
            recovery: RECOVERY,
            hand_backs: 0,
        }
    }

    /// Time since the round before began; zero before the first.
    pub fn since_turn(&self, now: Timestamp) -> Duration {
        self.turned_at.map_or(Duration::ZERO, |before| now.saturating_since(before))
    }

    /// Excuses the time that the loop spent on requests other than packets: it was not lost.
    pub fn excuse(&mut self, now: Timestamp) {
        self.turned_at = Some(now);
    }

    /// Judges the start of a round from the health of the packet path and the effect of a failed condition,
    /// if any.
    pub fn judge(
        &mut self,
        now: Timestamp,
        Health { is_blocked: wan, is_overrun: lan, overdue }: Health,
        failed_condition: Option<&'static str>,
    ) -> Option<ForwarderChange> {
        let is_late = self.take_turn(now, overdue);
        if let Some((Cause::Stall(stall), _)) = self.handed_back
            && stall.is_overload()
        {
            self.overload = Some((self.recovery, now));
        }
        // A port also stalls if its device is down or gone: that is no sign of overload.
        let counts = |stalls: bool| stalls && failed_condition.is_none();
        self.wan_since = counts(wan).then(|| self.wan_since.unwrap_or(now));
        self.lan_since = counts(lan).then(|| self.lan_since.unwrap_or(now));
        if let Some(cause) = failed_condition.map(Cause::FailedCondition) {
            let before = self.handed_back.replace((cause, now)).map(|(cause, _)| cause);
            self.hand_backs += u64::from(before.is_none());
            return (before != Some(cause)).then_some(ForwarderChange::HandBack(cause));
        }
        let Some((cause, seen_at)) = self.handed_back else {
            let stall = self.stall(now)?;
            let cause = Cause::Stall(stall);
            self.handed_back = Some((cause, now));
            self.recovery = self.next_recovery(now, stall);
            self.hand_backs += 1;
            return Some(ForwarderChange::HandBack(cause));
        };
        if wan || lan || is_late && self.starvation.is_starved(now) {
            self.handed_back = Some((cause, now));
            return None;
        }
        let patience = match cause {
            Cause::Stall(_) => self.recovery,
            Cause::FailedCondition(_) => SETTLING,
        };
        let is_over = now.saturating_since(seen_at) >= patience;
        is_over.then(|| {
            self.handed_back = None;
            ForwarderChange::TakeAgain
        })
    }

    /// Records the start of a round and the delay of the latest other thread; returns whether any thread is
    /// too late.
    fn take_turn(&mut self, now: Timestamp, overdue: Duration) -> bool {
        let before = self.turned_at.replace(now).unwrap_or(now);
        // From then on the kernel had the traffic. It keeps the traffic until this process has shown that it
        // runs.
        let is_stale_at = before + self.patience;
        if now >= is_stale_at {
            self.settles_at = now + SETTLING;
        }
        self.is_settling = now < self.settles_at;
        let own = before + IDLE + LATE;
        self.starvation.note(own, now.min(is_stale_at));
        self.starvation.note(before.max(now - overdue.saturating_sub(LATE)), now);
        now > own || overdue > LATE
    }

    /// Whether the process may beat: packets move, and it has settled.
    pub fn is_made(&self) -> bool {
        self.handed_back.is_none() && !self.is_settling
    }

    /// Reason why the kernel forwards, if it does.
    pub fn handed_back(&self) -> Option<Cause> {
        self.handed_back.map(|(cause, _)| cause)
    }

    /// Time without a stall after which the box takes traffic that it handed back again.
    pub fn recovery(&self) -> Duration {
        self.recovery
    }

    /// How often the traffic was handed back.
    pub fn hand_backs(&self) -> u64 {
        self.hand_backs
    }

    /// The recovery time after a stall found `now`.
    fn next_recovery(&self, now: Timestamp, stall: Stall) -> Duration {
        let Some((before, until)) = self.overload.filter(|_| stall.is_overload()) else {
            return RECOVERY;
        };
        match now.saturating_since(until) {
            kept if kept < SOON => (before * 2).min(RECOVERY_MAX),
            kept if kept < LONG => before,
            _ => RECOVERY,
        }
    }

    fn stall(&self, now: Timestamp) -> Option<Stall> {
        let is_long = |since: Option<Timestamp>| {
            since.is_some_and(|since| now.saturating_since(since) >= self.patience)
        };
        // A box that does not run sees no packets move either.
        if self.starvation.is_starved(now) {
            return Some(Stall::Starved);
        }
        if is_long(self.wan_since) {
            return Some(Stall::Wan);
        }
        is_long(self.lan_since).then_some(Stall::Lan)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    const HAND_BACK_WAN: ForwarderChange = ForwarderChange::HandBack(Cause::Stall(Stall::Wan));

    fn health(wan: bool, lan: bool) -> Health {
        Health { is_blocked: wan, is_overrun: lan, ..Health::default() }
    }

    /// Judges a box that has run all the time.
    fn look(
        progress: &mut Progress,
        now: Timestamp,
        health: Health,
        failed_condition: Option<&'static str>,
    ) -> Option<ForwarderChange> {
        progress.excuse(now);
        progress.judge(now, health, failed_condition)
    }

    fn judge(
        progress: &mut Progress,
        now: Timestamp,
        wan: bool,
        lan: bool,
    ) -> Option<ForwarderChange> {
        look(progress, now, health(wan, lan), None)
    }

    /// Judges a box that is kept from running for `stopped_ms` of each `period_ms`, over `seconds`. Returns
    /// each change and its second.
    fn duty(
        progress: &mut Progress,
        from_ms: u64,
        [stopped_ms, period_ms]: [u64; 2],
        seconds: u64,
    ) -> Vec<(f64, ForwarderChange)> {
        let turns = (from_ms..from_ms + 1000 * seconds)
            .step_by(5)
            .filter(|ms| (ms - from_ms) % period_ms >= stopped_ms);
        let change = |ms| {
            let change = progress.judge(at(ms), Health::default(), None)?;
            Some(((ms - from_ms) as f64 / 1000.0, change))
        };
        turns.filter_map(change).collect()
    }

    fn progress() -> Progress {
        Progress::new(Duration::from_millis(500))
    }

    #[test]
    fn each_stall_hands_back_once_after_the_patience() {
        for (stall, wan, lan) in [(Stall::Wan, true, false), (Stall::Lan, false, true)] {
            let mut progress = progress();
            assert_eq!(judge(&mut progress, at(1000), wan, lan), None);
            assert_eq!(judge(&mut progress, at(1499), wan, lan), None);
            assert!(progress.is_made());
            assert_eq!(
                judge(&mut progress, at(1500), wan, lan),
                Some(ForwarderChange::HandBack(Cause::Stall(stall)))
            );
            assert!(!progress.is_made());
            assert_eq!(judge(&mut progress, at(1520), wan, lan), None);
            assert_eq!(judge(&mut progress, at(60_000), wan, lan), None);
            assert_eq!(progress.hand_backs(), 1);
        }
    }

    #[test]
    fn slow_wan_or_busy_ring_is_no_stall() {
        let mut progress = progress();
        for ms in 0..10_000 {
            // Room once in 499 ms, and a ring that is overrun in every other round.
            let change = judge(&mut progress, at(ms), ms % 499 != 0, ms % 2 == 0);
            assert_eq!(change, None, "{ms}");
        }
        assert!(progress.is_made());
    }

    #[test]
    fn short_stalls_of_different_kinds_do_not_add() {
        let mut progress = progress();
        for (ms, wan, lan) in [(0, true, false), (400, false, true), (899, false, true)] {
            assert_eq!(judge(&mut progress, at(ms), wan, lan), None);
        }
    }

    #[test]
    fn shaping_resumes_five_seconds_after_a_stall() {
        let mut progress = progress();
        judge(&mut progress, at(0), true, false);
        assert_eq!(judge(&mut progress, at(500), true, false), Some(HAND_BACK_WAN));
        assert_eq!(judge(&mut progress, at(3000), false, false), None);
        // A stall of the other ring counts, too, even a short one.
        assert_eq!(judge(&mut progress, at(4000), false, true), None);
        assert_eq!(judge(&mut progress, at(8999), false, false), None);
        assert_eq!(judge(&mut progress, at(9000), false, false), Some(ForwarderChange::TakeAgain));
        assert!(progress.is_made());
        assert_eq!(judge(&mut progress, at(9001), true, false), None);
        assert_eq!(judge(&mut progress, at(9501), true, false), Some(HAND_BACK_WAN));
        assert_eq!(progress.hand_backs(), 2);
    }

    /// A box that stalls each time after it has carried traffic for `kept_ms`. Returns the duration of each
    /// of its next recoveries.
    fn stalls(
        progress: &mut Progress,
        now_ms: &mut u64,
        stall: Stall,
        kept_ms: u64,
        count: u32,
    ) -> Vec<u64> {
        let (wan, lan) = (stall == Stall::Wan, stall == Stall::Lan);
        let mut recoveries = Vec::new();
        for _ in 0..count {
            assert_eq!(judge(progress, at(*now_ms), false, false), None);
            *now_ms += kept_ms - 500;
            assert_eq!(judge(progress, at(*now_ms), wan, lan), None);
            *now_ms += 500;
            let change = judge(progress, at(*now_ms), wan, lan);
            assert_eq!(change, Some(ForwarderChange::HandBack(Cause::Stall(stall))));
            let stalled_ms = *now_ms;
            while judge(progress, at(*now_ms), false, false) != Some(ForwarderChange::TakeAgain) {
                *now_ms += 500;
            }
            recoveries.push((*now_ms - stalled_ms) / 1000);
        }
        recoveries
    }

    fn recoveries(progress: &mut Progress, now_ms: &mut u64, kept_ms: u64, count: u32) -> Vec<u64> {
        stalls(progress, now_ms, Stall::Lan, kept_ms, count)
    }

    #[test]
    fn repeated_overload_lengthens_the_hand_back() {
        let (mut progress, mut now_ms) = (progress(), 1_000_000);
        let soon = recoveries(&mut progress, &mut now_ms, 1000, 9);
        assert_eq!(soon, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn overload_pause_resets_after_a_long_time() {
        let (mut progress, mut now_ms) = (progress(), 1_000_000);
        assert_eq!(recoveries(&mut progress, &mut now_ms, 1000, 3), [5, 10, 20]);
        assert_eq!(recoveries(&mut progress, &mut now_ms, 60_000, 2), [20, 20]);
        assert_eq!(recoveries(&mut progress, &mut now_ms, 59_999, 1), [40]);
        assert_eq!(recoveries(&mut progress, &mut now_ms, 600_000, 2), [5, 5]);
        assert_eq!(recoveries(&mut progress, &mut now_ms, 1000, 1), [10]);
    }

    #[test]
    fn repeated_wan_stall_always_waits_five_seconds() {
        let (mut progress, mut now_ms) = (progress(), 1_000_000);
        assert_eq!(stalls(&mut progress, &mut now_ms, Stall::Wan, 1000, 5), [5; 5]);
        assert_eq!(recoveries(&mut progress, &mut now_ms, 1000, 2), [5, 10], "no overload before");
        assert_eq!(stalls(&mut progress, &mut now_ms, Stall::Wan, 1000, 2), [5, 5]);
        assert_eq!(recoveries(&mut progress, &mut now_ms, 1000, 1), [20], "and the same again");
    }

    #[test]
    fn unmet_condition_between_overloads_keeps_their_count() {
        let (mut progress, mut now_ms) = (progress(), 1_000_000);
        for recovery in [RECOVERY, RECOVERY * 2] {
            judge(&mut progress, at(now_ms), false, true);
            judge(&mut progress, at(now_ms + 500), false, true);
            assert_eq!(progress.recovery(), recovery);
            look(&mut progress, at(now_ms + 510), health(false, false), Some("a"));
            judge(&mut progress, at(now_ms + 520), false, false);
            now_ms += 1020;
            assert_eq!(
                judge(&mut progress, at(now_ms), false, false),
                Some(ForwarderChange::TakeAgain)
            );
        }
    }

    #[test]
    fn unmet_condition_hands_back_until_met_half_second() {
        let mut progress = progress();
        let mut at_ms = |ms, failed_condition| {
            look(&mut progress, at(ms), health(false, false), failed_condition)
        };
        let back = |reason| Some(ForwarderChange::HandBack(Cause::FailedCondition(reason)));
        assert_eq!(at_ms(0, None), None);
        assert_eq!(at_ms(1, Some("a")), back("a"));
        assert_eq!(at_ms(2, Some("a")), None);
        assert_eq!(at_ms(5000, Some("b")), back("b"), "another reason is reported");
        assert_eq!(at_ms(5499, None), None);
        assert_eq!(at_ms(5500, None), Some(ForwarderChange::TakeAgain));
        assert_eq!(at_ms(5501, Some("a")), back("a"));
        assert_eq!((progress.hand_backs(), progress.is_made()), (2, false));
    }

    #[test]
    fn stall_of_a_down_device_is_no_overload() {
        let mut progress = progress();
        assert!(look(&mut progress, at(0), health(true, true), Some("down")).is_some());
        assert_eq!(look(&mut progress, at(60_000), health(true, true), Some("down")), None);
        // Its ring has to empty first.
        assert_eq!(judge(&mut progress, at(60_400), true, false), None);
        assert_eq!(judge(&mut progress, at(60_899), false, false), None);
        assert_eq!(
            judge(&mut progress, at(60_900), false, false),
            Some(ForwarderChange::TakeAgain)
        );
        assert_eq!(progress.recovery(), RECOVERY);
    }

    const HAND_BACK_STARVED: ForwarderChange =
        ForwarderChange::HandBack(Cause::Stall(Stall::Starved));

    #[test]
    fn a_starved_box_hands_back_within_two_seconds() {
        // A box that stands still for longer has the kernel carry the traffic meanwhile, by the stale beat.
        for duty_ms in [[450, 500], [490, 500], [200, 250], [700, 800], [330, 1000]] {
            let mut progress = progress();
            duty(&mut progress, 0, [0, 100], 10);
            let changes = duty(&mut progress, 10_000, duty_ms, 30);
            assert_eq!(changes.len(), 1, "{duty_ms:?}: {changes:?}");
            let (second, change) = changes[0];
            assert!(second <= 2.0 && change == HAND_BACK_STARVED, "{duty_ms:?}: {changes:?}");
            // Five seconds from the last turn that came late.
            let recovered = duty(&mut progress, 40_000, [0, 100], 10);
            let [(second, ForwarderChange::TakeAgain)] = recovered[..] else {
                panic!("{recovered:?}")
            };
            assert!((4.0..5.1).contains(&second), "{duty_ms:?}: {second}");
        }
    }

    #[test]
    fn pauses_of_a_busy_machine_are_no_starvation() {
        // Late by 30 ms for ten minutes, once by 450 ms, and now and then by 110 ms.
        for (duty_ms, seconds) in
            [([30, 50], 600), ([110, 115], 600), ([450, 3000], 600), ([220, 1500], 600)]
        {
            let mut progress = progress();
            assert_eq!(duty(&mut progress, 0, duty_ms, seconds), [], "{duty_ms:?}");
        }
    }

    #[test]
    fn a_box_that_starves_again_waits_longer() {
        let (mut progress, mut now_ms, mut recoveries) = (progress(), 0, Vec::new());
        for _ in 0..4 {
            assert!(!duty(&mut progress, now_ms, [450, 500], 2).is_empty());
            recoveries.push(progress.recovery().as_secs());
            now_ms += 2000;
            duty(&mut progress, now_ms, [0, 100], 60);
            now_ms += 60_000;
        }
        assert_eq!(recoveries, [5, 10, 20, 40]);
    }

    #[test]
    fn a_box_that_stood_still_settles_first() {
        let mut progress = progress();
        assert_eq!(duty(&mut progress, 0, [0, 100], 5), []);
        let mut looks = |from_ms: u64, to_ms: u64| {
            let mut look = |ms| {
                let change = progress.judge(at(ms), Health::default(), None);
                (change, progress.is_made())
            };
            let looks = (from_ms..=to_ms).step_by(5).map(&mut look);
            looks.map(|(change, is_made)| (change.is_some(), is_made)).collect::<BTreeSet<_>>()
        };
        // A single pause is no starvation, however long. Repeated pauses keep the traffic where it is.
        for from_ms in (25_000..60_000).step_by(3000) {
            assert_eq!(looks(from_ms, from_ms + 495), [(false, false)].into(), "{from_ms}");
        }
        assert_eq!(looks(60_000, 60_495), [(false, false)].into());
        assert_eq!(looks(60_500, 70_000), [(false, true)].into());
    }

    #[test]
    fn one_reader_that_starves_is_enough() {
        let mut progress = progress();
        let changed = (0..2000_u64).step_by(5).find_map(|ms| {
            let overdue = Duration::from_millis((ms % 500).min(450));
            progress.judge(at(ms), Health { overdue, ..Health::default() }, None)
        });
        assert_eq!(changed, Some(HAND_BACK_STARVED));
    }

    #[test]
    fn time_for_a_change_is_no_starvation() {
        let mut progress = progress();
        for ms in (0..60_000).step_by(600) {
            progress.excuse(at(ms));
            assert_eq!(progress.judge(at(ms + 5), Health::default(), None), None);
        }
    }
}
