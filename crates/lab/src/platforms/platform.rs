//! The platforms and the algorithms that run on them.

use std::time::Duration;

use forebay_core::spec::one_of;
use forebay_host::agent::Cadence;
use forebay_testbed::cost::{AgentTerms, Control, CounterScheduling};
use serde::{Deserialize, Serialize};

use super::PlatformsError;

/// CPU time that the slowed agent wastes for every acknowledgement.
const BURDEN: Duration = Duration::from_micros(5);
/// A report per round, at most one per millisecond: the default of `forebay agent`.
const ROUND_MIN: Duration = Duration::from_millis(1);
const MS: Duration = Duration::from_millis(1);

/// Where an algorithm runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Platform {
    /// The kernel's own algorithm.
    Kernel,
    /// The kernel again: a difference between these two is chance.
    KernelAgain,
    /// In BPF alone.
    Native,
    /// An agent with a report per round.
    AgentRound,
    /// An agent with reports and decisions every millisecond.
    #[serde(rename = "agent_1ms")]
    Agent1Ms,
    /// The agent with reports every 10 ms.
    #[serde(rename = "agent_10ms")]
    Agent10Ms,
    /// An agent with a report per acknowledgement that decides every 700 to 840 us.
    AgentAck,
    /// [`Platform::AgentRound`] with 5 us wasted per acknowledgement: the test must detect the difference.
    AgentSlowed,
    /// A BPF program that does nothing: the cost of a call.
    Empty,
    /// The datapath of an agent without a slot, so without decisions and reports: the cost of folding.
    Fold,
}

impl Platform {
    /// All platforms, in the order of reports.
    pub const ALL: [Self; 10] = [
        Self::Kernel,
        Self::KernelAgain,
        Self::Native,
        Self::AgentRound,
        Self::Agent1Ms,
        Self::Agent10Ms,
        Self::AgentAck,
        Self::AgentSlowed,
        Self::Empty,
        Self::Fold,
    ];
    /// Platforms of a block of scored trials.
    pub const SCORED: [Self; 8] = [
        Self::Kernel,
        Self::KernelAgain,
        Self::Native,
        Self::AgentRound,
        Self::Agent1Ms,
        Self::Agent10Ms,
        Self::AgentAck,
        Self::AgentSlowed,
    ];
    /// Platforms with BPF programs to time.
    pub const TIMED: [Self; 7] = [
        Self::Empty,
        Self::Fold,
        Self::Native,
        Self::AgentRound,
        Self::Agent1Ms,
        Self::Agent10Ms,
        Self::AgentAck,
    ];
    /// Platforms with reports.
    pub const REPORTING: [Self; 4] =
        [Self::AgentRound, Self::Agent1Ms, Self::Agent10Ms, Self::AgentAck];
    /// Platforms that are measured with many connections.
    pub const SCALED: [Self; 4] = [Self::Kernel, Self::Native, Self::AgentRound, Self::Agent10Ms];

    /// Platforms whose behaviour is compared, in the order of reports.
    pub const BEHAVING: [Self; 7] = [
        Self::Kernel,
        Self::KernelAgain,
        Self::Native,
        Self::AgentRound,
        Self::Agent1Ms,
        Self::Agent10Ms,
        Self::AgentAck,
    ];

    /// Name for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::KernelAgain => "kernel again",
            Self::Native => "native eBPF",
            Self::AgentRound => "agent per round",
            Self::Agent1Ms => "agent at 1 ms",
            Self::Agent10Ms => "agent at 10 ms",
            Self::AgentAck => "agent per ACK",
            Self::AgentSlowed => "agent slowed by 5 us an ACK",
            Self::Empty => "empty program",
            Self::Fold => "datapath without slot",
        }
    }

    /// The platform that it is compared with.
    pub const fn baseline(self) -> Self {
        match self {
            Self::AgentSlowed => Self::AgentRound,
            _ => Self::Kernel,
        }
    }

    /// The bench's control for `algorithm` on this platform; `None` if the platform does not have it.
    pub fn control(self, algorithm: &Algorithm) -> Option<Control> {
        let agent = |cadence, period| {
            let burden = if self == Self::AgentSlowed { BURDEN } else { Duration::ZERO };
            let name = algorithm.agent.to_string();
            Some(Control::Agent(AgentTerms { algorithm: name, cadence, period, burden }))
        };
        match self {
            Self::Kernel | Self::KernelAgain => Some(Control::Kernel(algorithm.kernel.into())),
            Self::Native => algorithm.native.map(Control::Native),
            Self::AgentRound | Self::AgentSlowed => {
                agent(Cadence::Round { at_least: ROUND_MIN }, 10 * MS)
            }
            Self::Agent1Ms => agent(Cadence::Every(MS), MS),
            Self::Agent10Ms => agent(Cadence::Every(10 * MS), 10 * MS),
            // Answers a report within a millisecond, as in plans/platforms/behaviour.toml.
            Self::AgentAck => agent(Cadence::Every(Duration::ZERO), Duration::from_micros(700)),
            Self::Empty => Some(Control::Empty),
            Self::Fold => Some(Control::Unled),
        }
    }
}

/// An algorithm that exists on several platforms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithm {
    /// Name in the results.
    pub name: &'static str,
    /// Name in the kernel.
    pub kernel: &'static str,
    /// Name in the registry.
    pub agent: &'static str,
    /// Name in plans for BPF alone (`bpf:NAME`).
    pub bpf: Option<&'static str>,
    /// Kind in BPF alone, for the bench.
    pub native: Option<forebay_testbed::cost::NativeKind>,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 4] = {
        use forebay_testbed::cost::NativeKind::{Cubic, Reno};
        const CUBIC: &str = "cubic";
        const RENO: &str = "reno";
        // In BPF, `reno` is written in C and `newreno` is compiled from the registry's algorithm.
        const NEWRENO: &str = "newreno";
        [
            Self {
                name: CUBIC,
                kernel: CUBIC,
                agent: CUBIC,
                bpf: Some(CUBIC),
                native: Some(Cubic),
            },
            Self { name: RENO, kernel: RENO, agent: NEWRENO, bpf: Some(RENO), native: Some(Reno) },
            Self { name: NEWRENO, kernel: RENO, agent: NEWRENO, bpf: Some(NEWRENO), native: None },
            Self { name: "bbr", kernel: "bbr", agent: "bbr", bpf: None, native: None },
        ]
    };

    /// The algorithm `name`, if this kernel has it. `available` is the kernel's list of congestion controls.
    pub fn find(name: &str, available: &str) -> Result<Self, PlatformsError> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name == name);
        let algorithm = found.ok_or_else(|| PlatformsError::Algorithm {
            name: name.into(),
            allowed: one_of(name, &Self::ALL.map(|algorithm| algorithm.name)),
        })?;
        if available.split_whitespace().any(|one| one == algorithm.kernel) {
            return Ok(algorithm);
        }
        Err(PlatformsError::KernelLacks {
            name: name.into(),
            wanted: algorithm.kernel.into(),
            available: available.trim().into(),
        })
    }

    /// The algorithm `name`, if the running kernel has it.
    pub fn of_this_kernel(name: &str) -> Result<Self, PlatformsError> {
        let list = "/proc/sys/net/ipv4/tcp_available_congestion_control";
        Self::find(name, &std::fs::read_to_string(list).unwrap_or_default())
    }

    /// The platforms among `platforms` that have this algorithm.
    pub fn on(&self, platforms: &[Platform]) -> Vec<Platform> {
        let has = |platform: &Platform| platform.control(self).is_some();
        platforms.iter().copied().filter(has).collect()
    }
}

/// Segmentation and pacing of the traffic, and scheduling of the counting process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// At most two segments per super-packet, written one by one: an acknowledgement for every other segment.
    Gso2,
    /// As large as the kernel chooses, 44 segments: an acknowledgement for each super-packet.
    GsoUnlimited,
    /// [`Setting::Gso2`] with the counting process of the study.
    Gso2Nice19,
    /// [`Setting::GsoUnlimited`] with the counting process of the study.
    GsoUnlimitedNice19,
    /// Without a rate limit, as in the study. There is no such setting under SCHED_IDLE: unlimited traffic
    /// leaves such a process no time to count.
    RateUnlimitedNice19,
}

impl Setting {
    /// All settings.
    pub const ALL: [Self; 5] = [
        Self::Gso2,
        Self::GsoUnlimited,
        Self::Gso2Nice19,
        Self::GsoUnlimitedNice19,
        Self::RateUnlimitedNice19,
    ];

    /// Name for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Gso2 => "GSO of 2 segments, SCHED_IDLE",
            Self::GsoUnlimited => "GSO unlimited, SCHED_IDLE",
            Self::Gso2Nice19 => "GSO of 2 segments, nice 19",
            Self::GsoUnlimitedNice19 => "GSO unlimited, nice 19",
            Self::RateUnlimitedNice19 => "rate unlimited, nice 19",
        }
    }

    /// Limit of segments, for the bench.
    pub const fn segments(self) -> Option<u32> {
        match self {
            Self::Gso2 | Self::Gso2Nice19 => Some(2),
            _ => None,
        }
    }

    /// Scheduling of the counting process, for the bench.
    pub const fn counter(self) -> CounterScheduling {
        match self {
            Self::Gso2 | Self::GsoUnlimited => CounterScheduling::Idle,
            _ => CounterScheduling::Nice19,
        }
    }

    /// Whether all platforms send at the same rate.
    pub const fn has_rate(self) -> bool {
        !matches!(self, Self::RateUnlimitedNice19)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowed_agent_differs_in_its_burden_only() {
        let cubic = Algorithm::find("cubic", "reno cubic").unwrap();
        let terms = |platform: Platform| match platform.control(&cubic) {
            Some(Control::Agent(terms)) => terms,
            other => panic!("{other:?}"),
        };
        let slowed = terms(Platform::AgentSlowed);
        assert_eq!(slowed.burden, Duration::from_micros(5));
        let round = terms(Platform::AgentRound);
        assert_eq!(AgentTerms { burden: Duration::ZERO, ..slowed }, round);
        assert!(Platform::REPORTING.iter().all(|platform| terms(*platform).burden.is_zero()));
    }

    #[test]
    fn whatever_is_paced_is_counted_beside_both_ways() {
        let settings = |counter, has_rate| {
            let is = |it: &Setting| it.counter() == counter && it.has_rate() == has_rate;
            let found = Setting::ALL.into_iter().filter(is);
            found.map(Setting::segments).collect::<Vec<_>>()
        };
        let [idle, nice] = [CounterScheduling::Idle, CounterScheduling::Nice19];
        assert_eq!(settings(idle, true), [Some(2), None]);
        assert_eq!(settings(nice, true), [Some(2), None]);
        assert_eq!((settings(idle, false), settings(nice, false)), (vec![], vec![None]));
    }

    #[test]
    fn an_algorithm_has_the_platforms_that_it_runs_on() {
        let bbr = Algorithm::find("bbr", "reno bbr cubic").unwrap();
        assert!(!bbr.on(&Platform::SCORED).contains(&Platform::Native));
        assert_eq!(bbr.on(&Platform::SCORED).len(), 7);
        let error = Algorithm::find("copa", "cubic").unwrap_err().to_string();
        assert!(error.contains("allowed is one of cubic, reno, newreno, bbr"), "{error}");
        let error = Algorithm::find("bbr", "reno cubic\n").unwrap_err().to_string();
        assert!(error.contains("it has reno cubic"), "{error}");
    }
}
