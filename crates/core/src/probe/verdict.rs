//! Whether a bundle would help, by the findings of a probe.
//!
//! A bundle takes a queue out of the network that its own traffic makes, at one bottleneck behind the sendbox
//! that all its packets pass. So it helps where the load makes a long queue there, and nowhere else. Where
//! several answers fit, the first in the order of [`judge`] is given: ways that differ make all other figures
//! doubtful.
//!
//! **Share.** The load of a probe shows a queue, but not the site's share of the traffic at the bottleneck.
//! Boxes hold back the site's traffic alone, so their gain grows with that share: see [`SHARE_MIN`]. The user
//! of the probe may state the share; otherwise "yes" is said on that condition.
//!
//! **Two rates.** The time under the full load is cut in half. Where the rates of the halves differ by more than
//! [`SWING`], the path is not the same for long enough to be judged.

use core::fmt;

use super::Findings;
use crate::units::{ByteCount, Duration, Rate, Ratio};

/// The share of the traffic at the bottleneck below which boxes gain little. From the simulator with the
/// defaults: where a bundle has 6, 25, 50, 75 or 94 % of the requests there, boxes change the time of these
/// requests (geometric mean of the slowdown) to 1.16, 1.04, 1.0, 0.99 and 0.95 times. At half of this share
/// "yes" would promise a gain where there is none; at 90 % "no" would hide a gain of a few percent.
const SHARE_MIN: f64 = 0.75;

/// Largest difference between the rates of two halves of the load, over the greater one; beyond it the rate
/// is unsteady. Of 196 simulated paths with a constant rate 2 are beyond it, and at half of it 16 would be.
/// At twice this value, a path that lost a sixth of its rate meanwhile would get a gain.
const SWING: f64 = 0.1;

/// A shorter queue is not worth two boxes.
const WORTHWHILE: Duration = Duration::from_millis(10);

/// A shorter queue with a peak above [`BURST`] times its length is managed. An active queue
/// management lets a queue grow for a moment and keeps it short (targets are 5 to 20 ms, RFC 8289
/// and RFC 8033).
const MANAGED: Duration = Duration::from_millis(30);
/// Peak over length of a queue, above which a queue shorter than [`MANAGED`] is managed.
const BURST: f64 = 2.5;

/// A full line with a short buffer, or with an active queue management, has at least this much queue; less is
/// jitter.
const VISIBLE: Duration = Duration::from_millis(2);

/// Segments sent again beyond which packets are lost all the time, and not now and then.
const LOSSY: f64 = 0.0005;

/// A policer, which holds nothing back, has a greater share sent again than this; queues that are kept short
/// a smaller one.
const POLICED: f64 = 0.005;

/// A rate that grows with the number of connections by more than this power of theirs has not met a limit.
/// Loss by chance leaves each connection its rate, whatever the rest does (power 1). A policer leaves all
/// together theirs (0).
const GROWTH_POWER: f64 = 0.5;

/// Share of the load's loss that idle pings must meet before they show loss by chance.
const IDLE_SHARE: f64 = 1.0 / 3.0;
/// Losses of idle pings that must be expected before these pings decide whether loss comes by
/// chance or from load.
const IDLE_EXPECTED_MIN: f64 = 3.0;

/// The share of the configured rate from which a load has reached it.
const REACHED: f64 = 0.8;

/// The share of time beyond which the peer's window, and not the path, held the load back.
const WINDOW_LIMITED: f64 = 0.3;

/// Packets that a bundle leaves at the bottleneck: measured by the plan `bundler/queue_shift`, and the
/// equilibrium of Copa with its delta of 0.125.
const LEFT_PACKETS: u64 = 7;
/// Bytes of a full Ethernet frame.
const FRAME: ByteCount = ByteCount::new(1514);

/// Whether a bundle would help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Answer {
    /// A bundle would take a queue out of the network.
    Yes,
    /// A bundle could do nothing, or not there.
    No,
    /// The probe found no answer.
    Unclear,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unclear => "unclear",
        })
    }
}

/// Reason for a [`Verdict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Reason {
    /// Yes: a queue stands in the network, beyond the site.
    QueueInTheMiddle,
    /// No: a queue stands in this host or site, before the place of a sendbox.
    QueueInTheSite,
    /// No: a queue stands on the way back, where another site sends.
    QueueOnTheWayBack,
    /// No: even the highest configured rate makes no queue.
    NoQueue,
    /// No: the bottleneck drops packets above a rate, and holds nothing back.
    Policer,
    /// No: the bottleneck keeps its queue short, or flows apart, itself.
    QueueManaged,
    /// No: packets are lost by chance, so that the load never fills the path.
    LossByChance,
    /// No: a queue stands in the network, but most of the traffic there comes from elsewhere.
    SmallShare,
    /// No: flows take ways of different lengths or queues, and no single rate fits.
    UnbalancedWays,
    /// Unclear: the peer did not answer.
    NoAnswer,
    /// Unclear: nothing has loaded the path.
    NotLoaded,
    /// Unclear: the peer reads too slowly to fill the path.
    PeerLimited,
    /// Unclear: the load did not fill the path.
    NotFilled,
    /// Unclear: the rate changed by more than a tenth during the load.
    UnsteadyRate,
}

impl Reason {
    /// A sentence for people.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::QueueInTheMiddle => {
                "this site's own traffic fills a queue in the network, beyond the site"
            }
            Self::QueueInTheSite => {
                "the queue is in this host or site, before a sendbox: fix it there, with fq_codel \
                 or cake at the rate of that link"
            }
            Self::QueueOnTheWayBack => "the queue is on the return path: probe from the other site",
            Self::NoQueue => "no queue builds up anywhere at the highest requested rate",
            Self::Policer => {
                "a policer drops packets above its rate and queues none: there is no queue to take \
                 over; shape slightly below that rate instead"
            }
            Self::QueueManaged => {
                "the bottleneck already keeps its queue short or its flows apart (AQM, fair \
                 queueing or a small buffer)"
            }
            Self::LossByChance => {
                "random loss, independent of the load, keeps the load from filling the path"
            }
            Self::SmallShare => {
                "the queue is in the network, beyond the site, but this site sends less than 75 % \
                 of the traffic there: little gain, and a loss for a small share (at 6 %, requests \
                 took 16 % longer in simulations)"
            }
            Self::UnbalancedWays => {
                "flows take paths of different delays: a bundle would notice and not shape them"
            }
            Self::NoAnswer => "the peer did not answer",
            Self::NotLoaded => {
                "nothing filled the path during the probe: probe without --gentle, or while the \
                 site is busy"
            }
            Self::PeerLimited => {
                "the peer reads too slowly to fill the path (its receive window was full)"
            }
            Self::NotFilled => "the load did not fill the path: probe longer or with more flows",
            Self::UnsteadyRate => {
                "the load's rate changed by more than 10 % during the probe: probe again for longer"
            }
        }
    }

    const fn answer(self) -> Answer {
        match self {
            Self::QueueInTheMiddle => Answer::Yes,
            Self::NoAnswer
            | Self::NotLoaded
            | Self::PeerLimited
            | Self::NotFilled
            | Self::UnsteadyRate => Answer::Unclear,
            _ => Answer::No,
        }
    }
}

/// Result of a probe for a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Whether a bundle would help.
    pub answer: Answer,
    /// Reason for the answer.
    pub reason: Reason,
    /// Mean queue at the bottleneck that a bundle would take out of the network; zero unless the answer is
    /// yes. With a share, that part of the queue: a FIFO holds for each sender the packets that it sends
    /// there.
    pub gain: Duration,
    /// The site's share of the traffic at the bottleneck, as the user of the probe states it.
    pub share: Option<Ratio>,
}

impl Verdict {
    /// The condition of the answer, as the end of a sentence; `None` if the answer is unconditional.
    pub const fn condition(&self) -> Option<&'static str> {
        match (self.answer, self.share) {
            (Answer::Yes, None) => {
                Some("only if this site sends most of the traffic there (--share)")
            }
            _ => None,
        }
    }
}

/// The verdict on `found`, for a site that sends `share` of the traffic at the bottleneck (`None`: not known).
pub fn judge(found: &Findings, share: Option<Ratio>) -> Verdict {
    let is_small = share.is_some_and(|share| share.as_f64() < SHARE_MIN);
    let reason = match reason(found) {
        reason if reason.answer() == Answer::Unclear => reason,
        // Chance makes this rate change, and "no" does not depend on it.
        Reason::LossByChance => Reason::LossByChance,
        _ if is_unsteady(found) => Reason::UnsteadyRate,
        Reason::QueueInTheMiddle if is_small => Reason::SmallShare,
        reason => reason,
    };
    let gain = match reason {
        Reason::QueueInTheMiddle => {
            let left = ByteCount::new(LEFT_PACKETS * FRAME.as_u64()).time_at(found.rate);
            let queue = found.queue.saturating_sub(found.noise + left.unwrap_or_default());
            queue.mul_f64(share.unwrap_or(Ratio::ONE).as_f64())
        }
        _ => Duration::ZERO,
    };
    Verdict { answer: reason.answer(), reason, gain, share }
}

/// Whether the load reached another rate in its first half than in its second one.
fn is_unsteady(found: &Findings) -> bool {
    let [one, other] = found.half_rates.map(Rate::as_bytes_per_sec_f64);
    (one - other).abs() > SWING * one.max(other)
}

fn reason(found: &Findings) -> Reason {
    if found.base_rtt.is_none() {
        return Reason::NoAnswer;
    }
    if found.detour > Duration::ZERO {
        return Reason::UnbalancedWays;
    }
    if found.bulk_queue >= WORTHWHILE && found.median_queue < found.bulk_queue / 4 {
        return Reason::QueueManaged;
    }
    if found.uneven > Duration::ZERO {
        return Reason::UnbalancedWays;
    }
    // Without a load, the waits of pings may be jitter; with one, jitter is known.
    let queue = if found.loaded { found.median_queue } else { found.standing_queue };
    if queue >= WORTHWHILE + found.noise {
        return of_a_queue(found);
    }
    if !found.loaded {
        return Reason::NotLoaded;
    }
    if is_visible(found) && !grows(found) {
        return Reason::QueueManaged;
    }
    if found.rate >= found.max_rate.scale(REACHED) {
        return Reason::NoQueue;
    }
    if found.loss >= LOSSY {
        return match is_by_chance(found) {
            true => Reason::LossByChance,
            false if found.loss >= POLICED => Reason::Policer,
            false => Reason::QueueManaged,
        };
    }
    if found.window_limited >= WINDOW_LIMITED { Reason::PeerLimited } else { Reason::NotFilled }
}

/// Place of a queue that is long enough, and who manages it.
fn of_a_queue(found: &Findings) -> Reason {
    let is_half = |part: Duration| 2 * part >= found.queue;
    let usual = found.median_queue;
    let is_managed = usual < MANAGED && found.peak_queue > usual.mul_f64(BURST);
    if is_half(found.own_queue) || found.site_queue.is_some_and(is_half) {
        Reason::QueueInTheSite
    } else if found.forward_queue.is_some_and(|forward| !is_half(forward)) {
        Reason::QueueOnTheWayBack
    } else if found.loaded && is_managed {
        Reason::QueueManaged
    } else {
        Reason::QueueInTheMiddle
    }
}

/// Whether a short queue stands: one beyond the noise, or one that makes the load lose packets.
fn is_visible(found: &Findings) -> bool {
    let standing = found.standing_queue.max(found.standing_bulk_queue);
    standing >= VISIBLE + found.noise || standing >= VISIBLE && found.loss >= LOSSY
}

/// Whether many connections got more than few by so large a factor that nothing held them together.
fn grows(found: &Findings) -> bool {
    let [few, many] = found.flows.map(f64::from);
    let times =
        found.rate.as_bytes_per_sec_f64() / found.rate_of_few.as_bytes_per_sec_f64().max(1.0);
    few > 0.0 && times > libm::pow(many / few, GROWTH_POWER)
}

/// Whether packets are lost at any rate, and not for coming too fast.
fn is_by_chance(found: &Findings) -> bool {
    let [sent, lost] = found.idle_pings.map(|pings| pings as f64);
    let expected = sent * found.loss;
    if expected >= IDLE_EXPECTED_MIN { lost >= expected * IDLE_SHARE } else { grows(found) }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// 20 Mbit/s, 40 ms, eight connections that fill a FIFO of 80 ms.
    fn fifo() -> Findings {
        Findings {
            base_rtt: Some(ms(40)),
            idle_rtt: ms(40),
            idle_pings: [200, 0],
            queue: ms(60),
            median_queue: ms(60),
            standing_queue: ms(50),
            bulk_queue: ms(62),
            standing_bulk_queue: ms(52),
            peak_queue: ms(80),
            site_queue: Some(ms(0)),
            rate: Rate::from_mbit_per_sec(20),
            half_rates: [Rate::from_mbit_per_sec(20); 2],
            rate_of_few: Rate::from_mbit_per_sec(20),
            flows: [2, 8],
            loss: 0.01,
            max_rate: Rate::from_mbit_per_sec(1000),
            loaded: true,
            ..Findings::default()
        }
    }

    /// As above, with pings that wait for `queue`.
    fn with_queue(queue: Duration) -> Findings {
        Findings { queue, median_queue: queue, standing_queue: queue, ..fifo() }
    }

    /// The load of [`fifo`] where it makes no queue.
    fn without_queue() -> Findings {
        let none = Duration::ZERO;
        let bulk_queue = none;
        Findings { bulk_queue, standing_bulk_queue: none, peak_queue: ms(1), ..with_queue(none) }
    }

    #[test]
    fn queue_in_the_middle_is_gained_except_remainder() {
        let verdict = judge(&fifo(), None);
        assert_eq!((verdict.answer, verdict.reason), (Answer::Yes, Reason::QueueInTheMiddle));
        // Seven frames at 20 Mbit/s are 4.24 ms.
        assert_eq!(verdict.gain.as_micros(), 55_760);
        // If no router answers, the own qdisc is the only evidence for the site.
        assert_eq!(judge(&Findings { site_queue: None, ..fifo() }, None), verdict);
        let told = Findings { forward_queue: Some(ms(58)), ..fifo() };
        assert_eq!(judge(&told, None), verdict);
    }

    #[test]
    fn each_finding_against_a_bundle_has_its_reason() {
        let slow = Rate::from_mbit_per_sec(6);
        let few_idle = [20, 0];
        for (expected, found) in [
            (Reason::QueueInTheSite, Findings { site_queue: Some(ms(55)), ..fifo() }),
            (Reason::QueueInTheSite, Findings { own_queue: ms(50), ..fifo() }),
            (Reason::QueueOnTheWayBack, Findings { forward_queue: Some(ms(3)), ..fifo() }),
            (Reason::UnbalancedWays, Findings { detour: ms(20), ..fifo() }),
            (Reason::UnbalancedWays, Findings { uneven: ms(40), ..fifo() }),
            // CoDel, PIE, and fair queueing: sparse flows do not wait.
            (Reason::QueueManaged, Findings { bulk_queue: ms(9), ..with_queue(ms(6)) }),
            (Reason::QueueManaged, Findings { bulk_queue: ms(20), ..with_queue(ms(18)) }),
            (Reason::QueueManaged, with_queue(ms(1))),
            (Reason::QueueManaged, Findings { standing_bulk_queue: ms(3), ..without_queue() }),
            (Reason::Policer, without_queue()),
            (Reason::LossByChance, Findings { idle_pings: [400, 3], ..without_queue() }),
            // Too few pings to go by: the rate of few connections decides.
            (
                Reason::LossByChance,
                Findings { rate_of_few: slow, idle_pings: few_idle, ..without_queue() },
            ),
            (Reason::Policer, Findings { idle_pings: few_idle, ..without_queue() }),
            (
                Reason::NoQueue,
                Findings { loss: 0.0, max_rate: Rate::from_mbit_per_sec(21), ..without_queue() },
            ),
        ] {
            let verdict = judge(&found, None);
            assert_eq!((verdict.answer, verdict.reason), (Answer::No, expected), "{found:?}");
            assert_eq!(verdict.gain, Duration::ZERO);
        }
    }

    #[test]
    fn unfilled_probe_claims_no_knowledge() {
        let slack = Findings { loss: 0.0, ..without_queue() };
        for (expected, found) in [
            (Reason::NoAnswer, Findings::default()),
            (Reason::NotLoaded, Findings { loaded: false, ..slack.clone() }),
            (Reason::PeerLimited, Findings { window_limited: 0.9, ..slack.clone() }),
            (Reason::NotFilled, slack),
        ] {
            let verdict = judge(&found, None);
            assert_eq!((verdict.answer, verdict.reason), (Answer::Unclear, expected), "{found:?}");
        }
    }

    #[test]
    fn standing_queue_without_load_counts_too() {
        let gentle = Findings { loaded: false, rate: Rate::ZERO, peak_queue: ms(300), ..fifo() };
        let verdict = judge(&gentle, None);
        assert_eq!((verdict.answer, verdict.gain), (Answer::Yes, gentle.queue));
    }

    #[test]
    fn gain_depends_on_the_share() {
        let judged = |percent: u32| {
            let verdict = judge(&fifo(), Ratio::new(f64::from(percent) / 100.0));
            (verdict.answer, verdict.reason, verdict.gain.as_micros())
        };
        assert_eq!(judged(100), (Answer::Yes, Reason::QueueInTheMiddle, 55_760));
        assert_eq!(judged(75), (Answer::Yes, Reason::QueueInTheMiddle, 41_820));
        let sentence = Reason::SmallShare.sentence();
        assert!(sentence.contains(&format!("{} %", 100.0 * SHARE_MIN)), "{sentence}");
        for percent in [1, 6, 25, 50, 74] {
            assert_eq!(judged(percent), (Answer::No, Reason::SmallShare, 0), "{percent}");
        }
    }

    #[test]
    fn unknown_share_is_a_condition_of_yes() {
        let share = Ratio::new(0.9);
        let condition = |found: &Findings, share| judge(found, share).condition();
        let said = condition(&fifo(), None).unwrap();
        assert!(said.contains("only if this site sends most of the traffic there"), "{said}");
        assert_eq!(condition(&fifo(), share), None);
        assert_eq!(condition(&without_queue(), None), None);
        // A small share changes no other reason.
        let policed = judge(&without_queue(), Ratio::new(0.1));
        assert_eq!((policed.reason, policed.share), (Reason::Policer, Ratio::new(0.1)));
    }

    #[test]
    fn unsteady_rate_leaves_the_answer_unclear() {
        let halves = |kbit: [u64; 2]| kbit.map(|kbit| Rate::from_bits_per_sec(1_000 * kbit));
        for (found, halves) in [
            (fifo(), halves([20_000, 17_900])),
            (fifo(), halves([17_900, 20_000])),
            (with_queue(ms(1)), halves([10_000, 20_000])),
        ] {
            let verdict = judge(&Findings { half_rates: halves, ..found }, None);
            let Verdict { answer, reason, gain, .. } = verdict;
            let expected = (Answer::Unclear, Reason::UnsteadyRate, Duration::ZERO);
            assert_eq!((answer, reason, gain), expected, "{halves:?}");
        }
        let sentence = Reason::UnsteadyRate.sentence();
        assert!(sentence.contains(&format!("{} %", 100.0 * SWING)), "{sentence}");
        let steady = Findings { half_rates: halves([20_000, 18_100]), ..fifo() };
        assert_eq!(judge(&steady, None).answer, Answer::Yes);
        // The more special reason stays.
        let half_rates = halves([10_000, 20_000]);
        let slow_reader = Findings { window_limited: 0.9, loss: 0.0, ..without_queue() };
        let by_chance = Findings { idle_pings: [400, 3], ..without_queue() };
        for (found, reason) in
            [(slow_reader, Reason::PeerLimited), (by_chance, Reason::LossByChance)]
        {
            assert_eq!(judge(&Findings { half_rates, ..found }, None).reason, reason);
        }
    }

    #[test]
    fn noise_is_no_queue() {
        let noisy = Findings { noise: ms(8), ..fifo() };
        assert_eq!(judge(&noisy, None).gain.as_micros(), 47_760);
        // Neither a queue that is long enough nor one that is kept short.
        let within =
            |noise| Findings { noise, loss: 0.0, bulk_queue: ms(12), ..with_queue(ms(12)) };
        assert_eq!(judge(&within(ms(5)), None).reason, Reason::QueueManaged);
        let standing_bulk_queue = ms(12);
        let noisy = Findings { standing_bulk_queue, ..within(ms(11)) };
        assert_eq!(judge(&noisy, None).reason, Reason::NotFilled);
        // Without a load the wait that lasts all the time counts.
        let gentle = Findings { loaded: false, rate: Rate::ZERO, ..fifo() };
        let jitter = Findings { standing_queue: ms(2), ..gentle };
        assert_eq!(judge(&jitter, None).reason, Reason::NotLoaded);
    }
}
