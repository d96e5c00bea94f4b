//! A bundle: the configuration of its two boxes, and the machine of its receivebox.

use forebay_core::bundle::tuning::Tuning;
use forebay_core::clock::Clock;
use forebay_core::spec::Spec;
use forebay_core::units::{Duration, Rate, Ratio};
use serde::{Deserialize, Serialize};

/// A bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bundle {
    /// Name of its rows, unique in a run. Random numbers of a simulated bundle follow from it and the seed alone.
    pub name: String,
    /// Pair of sites of the bundle.
    pub pair: String,
    /// From B to A.
    pub reversed: bool,
    /// Sendbox algorithm.
    pub cc: Spec,
    /// Sendbox qdisc.
    pub qdisc: Spec,
    /// Packets stay in the kernel at the sendbox, which then uses another qdisc.
    pub in_kernel: bool,
    /// The sendbox enforces limits only while it measures that they pay.
    pub supervised: bool,
    /// Tuning of the sendbox's control. The boxes of the testbed have the defaults.
    pub tuning: Tuning,
    /// Lower bound of the shaper; `None`: the bound follows from the traffic that the path carries.
    pub min_rate: Option<Rate>,
    /// Upper bound of the shaper in every state.
    pub max_rate: Option<Rate>,
    /// Share of the packets that the receivebox does not see, though they arrive: a second uplink, other prefixes.
    pub unseen: Ratio,
    /// Clock of the receivebox, ahead of the run's clock by its readings.
    pub clock: Clock,
    /// Messages of the receivebox leave late by 0 to this, each by a draw of its own.
    pub report_jitter: Duration,
    /// Packets of the bundle are stamped late by 0 to this.
    pub timestamp_jitter: Duration,
}

impl Bundle {
    /// A bundle from A to B with the daemons' defaults.
    pub fn new(name: &str, cc: Spec, qdisc: Spec) -> Self {
        Self {
            name: name.into(),
            pair: String::new(),
            reversed: false,
            cc,
            qdisc,
            in_kernel: false,
            supervised: true,
            tuning: Tuning::DEFAULT,
            min_rate: None,
            max_rate: None,
            unseen: Ratio::ZERO,
            clock: Clock::default(),
            report_jitter: Duration::ZERO,
            timestamp_jitter: Duration::ZERO,
        }
    }
}
