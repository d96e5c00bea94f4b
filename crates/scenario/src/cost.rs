//! A trial of costs: one algorithm on one platform, on one processor, instead of links and sites.

use forebay_core::units::{Duration, Rate};
use serde::{Deserialize, Serialize};

/// Subject and method of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Where the algorithm runs.
    pub platform: CostPlatform,
    /// The algorithm.
    pub algorithm: CostAlgorithm,
    /// The arm with which the trial is compared; `None`: only figures of the trial itself count.
    pub over: Option<String>,
    /// Connections, 1 to 10,000.
    pub connections: u32,
    /// Most segments in one piece from the kernel to the device; `None`: no limit.
    pub segments: Option<u32>,
    /// Rate of the traffic.
    pub rate: CostRate,
    /// Scheduling of the counting process.
    pub counter: Counter,
    /// Measured time in each turn of an arm; zero: the arms follow each other.
    pub turn: Duration,
    /// The kernel times the BPF programs.
    pub times_programs: bool,
    /// CPU time that the agent wastes per acknowledgement.
    pub burden: Duration,
}

impl Cost {
    /// Whether the bench has the algorithm on this platform: in BPF alone it has those written in C.
    pub fn exists(&self) -> bool {
        let is_in_c = matches!(self.algorithm, CostAlgorithm::Cubic | CostAlgorithm::Reno);
        self.platform != CostPlatform::Native || is_in_c
    }
}

/// Where an algorithm runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CostPlatform {
    /// In the kernel.
    Kernel,
    /// In BPF alone.
    Native,
    /// In an agent, which hears of its connections as [`Agent`](crate::Agent) says.
    Agent,
    /// A BPF program that does nothing: the cost of a call.
    Empty,
    /// The datapath of an agent without a slot: it measures, without decisions and reports.
    Fold,
}

impl CostPlatform {
    /// All platforms with their names.
    pub const ALL: [(&str, Self); 5] = [
        ("kernel", Self::Kernel),
        ("native", Self::Native),
        ("agent", Self::Agent),
        ("empty", Self::Empty),
        ("fold", Self::Fold),
    ];
}

/// An algorithm that exists on several platforms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CostAlgorithm {
    /// Linux's Cubic.
    Cubic,
    /// Reno; in BPF written in C.
    Reno,
    /// The registry's `newreno`, in BPF compiled from its Rust source.
    Newreno,
    /// The kernel's BBR.
    Bbr,
}

impl CostAlgorithm {
    /// All algorithms with their names.
    pub const ALL: [(&str, Self); 4] = [
        ("cubic", Self::Cubic),
        ("reno", Self::Reno),
        ("newreno", Self::Newreno),
        ("bbr", Self::Bbr),
    ];

    /// Name in plans.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// Name in the kernel.
    pub fn kernel(self) -> &'static str {
        if self == Self::Newreno { Self::Reno.name() } else { self.name() }
    }

    /// Name in the registry.
    pub fn agent(self) -> &'static str {
        if self == Self::Reno { Self::Newreno.name() } else { self.name() }
    }

    /// Name in BPF alone; `None`: it does not exist there.
    pub fn bpf(self) -> Option<&'static str> {
        (self != Self::Bbr).then(|| self.name())
    }
}

/// Rate of the traffic of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CostRate {
    /// The one at which the kernel's own algorithm takes half to seven tenths of the processor.
    Searched,
    /// As fast as possible.
    Unlimited,
    /// This rate.
    Fixed(Rate),
}

/// How the scheduler ranks the counting process below the other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counter {
    /// Under SCHED_IDLE: a process that wakes gets the processor at once.
    Idle,
    /// At nice 19, as in the study of eBPFCCP. Since Linux 6.6 (EEVDF) such a process keeps the processor for
    /// a slice of its own, whichever process wakes meanwhile. The sender would be late by milliseconds and
    /// catch up. Next to an agent this happens less, because its wake-ups end slices.
    Nice19,
}

impl Counter {
    /// Both with their names.
    pub const ALL: [(&str, Self); 2] = [("idle", Self::Idle), ("nice19", Self::Nice19)];
}
