//! Rewards for decisions.

use forebay_core::cc::policy::observation::Outcome;
use forebay_core::spec::one_of;

/// A reward for the outcome from one decision to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reward {
    /// The binary logarithm of power, which is throughput over round trip: log2 of segments a second minus
    /// log2 of the mean round trip over the least one. On any path the reward is greatest where power is.
    #[default]
    Power,
    /// `(10 throughput - 1000 latency - 2000 loss) / 1000`, in packets a second, seconds and a share (Jay
    /// et al.: A deep reinforcement learning perspective on Internet congestion control, ICML 2019; PCC-RL,
    /// `network_sim.py`).
    Aurora,
    /// `(throughput - 5 lost) / greatest throughput`, times `1.25 least round trip / mean round trip` where
    /// that is below 1 (Abbasloo et al.: Classic meets modern, SIGCOMM 2020; Orca, `envwrapper.py`). Unlike
    /// the source, it is not normalised by running means.
    Orca,
}

impl Reward {
    /// Names and rewards.
    pub const ALL: [(&str, Self); 3] =
        [("power", Self::Power), ("aurora", Self::Aurora), ("orca", Self::Orca)];
}

impl std::str::FromStr for Reward {
    type Err = String;

    /// Reads a name of [`Reward::ALL`].
    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(name, _)| *name == text);
        known.map(|(_, reward)| *reward).ok_or_else(|| {
            let names = Self::ALL.map(|(name, _)| name);
            format!("reward = {text}: allowed is {}", one_of(text, &names))
        })
    }
}

/// Weight of throughput (1 per segment/s) in Aurora's linear reward; a larger one favours rate.
const AURORA_THROUGHPUT: f64 = 10.0;
/// Weight of the mean round trip (1/s) in Aurora's linear reward; a larger one favours low delay.
const AURORA_LATENCY: f64 = 1000.0;
/// Weight of the share of lost packets in Aurora's linear reward; a larger one favours low loss.
const AURORA_LOSS: f64 = 2000.0;
/// Factor on Aurora's whole reward, which keeps its size convenient for learning.
const AURORA_SCALE: f64 = 1e-3;
/// Orca's ζ: a lost byte costs as much as this number of delivered bytes earns.
const ORCA_LOSS: f64 = 5.0;
/// Orca's margin on the least round trip: mean round trips up to this factor cost nothing.
const ORCA_MARGIN: f64 = 1.25;

/// The rewards of one agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge {
    reward: Reward,
    /// Greatest throughput so far.
    most_bytes_per_s: f64,
}

impl Judge {
    pub fn new(reward: Reward) -> Self {
        Self { reward, most_bytes_per_s: 0.0 }
    }

    /// The reward for `outcome`; always finite.
    pub fn reward(&mut self, outcome: &Outcome) -> f64 {
        let bytes_per_s = outcome.bytes_per_s();
        self.most_bytes_per_s = self.most_bytes_per_s.max(bytes_per_s);
        let segments_per_s = bytes_per_s / outcome.mss.as_f64().max(1.0);
        let times = outcome.rtt.zip(outcome.min_rtt);
        let ratio =
            times.map_or(1.0, |(mean, least)| mean.as_secs_f64() / least.as_secs_f64().max(1e-9));
        match self.reward {
            Reward::Power => segments_per_s.max(1.0).log2() - ratio.max(1.0).log2(),
            Reward::Aurora => {
                let latency_s = outcome.rtt.map_or(0.0, |rtt| rtt.as_secs_f64());
                let gain = AURORA_THROUGHPUT * segments_per_s;
                AURORA_SCALE * (gain - AURORA_LATENCY * latency_s - AURORA_LOSS * outcome.loss())
            }
            Reward::Orca if self.most_bytes_per_s > 0.0 => {
                let interval_s = outcome.interval.as_secs_f64().max(1e-9);
                let lost = outcome.lost.map_or(0.0, |lost| lost.as_f64() / interval_s);
                let delay = (ORCA_MARGIN / ratio).min(1.0);
                (bytes_per_s - ORCA_LOSS * lost) / self.most_bytes_per_s * delay
            }
            Reward::Orca => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_core::units::ByteCount;

    use super::*;

    /// 100 segments of 1000 bytes and 25 lost in 100 ms, the mean round trip twice the least one.
    const OUTCOME: Outcome = Outcome {
        interval: Duration::from_millis(100),
        mss: ByteCount::new(1000),
        acked: ByteCount::new(100_000),
        lost: Some(ByteCount::new(25_000)),
        marked: None,
        rtt: Some(Duration::from_millis(40)),
        min_rtt: Some(Duration::from_millis(20)),
        delivery_share: None,
        in_flight: None,
    };

    #[test]
    fn rewards_are_those_of_their_sources() {
        let of = |reward| Judge::new(reward).reward(&OUTCOME);
        // 1000 segments a second, a fifth of all lost, 40 ms.
        assert!((of(Reward::Power) - (1000.0_f64.log2() - 1.0)).abs() < 1e-9);
        assert!((of(Reward::Aurora) - (10_000.0 - 40.0 - 400.0) / 1000.0).abs() < 1e-9);
        // (1 - 5 x 0.25) x 1.25 / 2
        assert!((of(Reward::Orca) + 0.156_25).abs() < 1e-9);
        let mut judge = Judge::new(Reward::Orca);
        judge.reward(&Outcome { acked: ByteCount::new(200_000), ..OUTCOME });
        let half = judge.reward(&Outcome { lost: None, rtt: OUTCOME.min_rtt, ..OUTCOME });
        assert!((half - 0.5).abs() < 1e-9, "{half}");
    }

    #[test]
    fn nothing_at_all_has_a_finite_reward() {
        for (_, reward) in Reward::ALL {
            assert!(Judge::new(reward).reward(&Outcome::default()).is_finite());
        }
        assert_eq!("orca".parse(), Ok(Reward::Orca));
        let error = "powr".parse::<Reward>().unwrap_err();
        assert_eq!(error, "reward = powr: allowed is one of power, aurora, orca; nearest is power");
    }
}
