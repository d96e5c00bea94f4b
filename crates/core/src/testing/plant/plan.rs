//! What a run of the plant is given: path, trouble, bundles and their traffic.

use super::trace::Trace;
use super::{PACKET, Plant};
use crate::clock::Clock;
use crate::spec::Spec;
use crate::units::{Duration, Rate};

/// What the way back of reports adds to half a round trip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WayBack {
    /// Nothing.
    Clear,
    /// A queue that rises and falls as a sine: largest delay and period.
    Sine(Duration, Duration),
    /// Uniform from zero to this, drawn for each report.
    Random(Duration),
}

/// A change of the bottleneck during the run.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// When.
    pub at: Duration,
    /// Rate from then on.
    pub rate: Rate,
    /// Two-way propagation delay from then on.
    pub rtt: Duration,
}

/// A box of the first bundle that dies and comes back.
#[derive(Clone, Copy, Debug)]
pub enum Outage {
    /// The sendbox forgets everything; meanwhile packets pass unshaped and unsampled.
    Sendbox,
    /// The receivebox forgets its counters and comes back with another clock.
    Receivebox,
    /// The receivebox's machine sleeps: its clock stands still, and packets pass unseen.
    Suspended,
    /// Not the receivebox, which stays alive to the sendbox, but all of its reports.
    Reports,
}

/// What feeds a bundle.
#[derive(Clone, Debug)]
pub enum Source {
    /// Endless backlog, on an access line of four times the first bottleneck rate.
    Backlog,
    /// Hosts with TCP flows and constant streams.
    Flows(Vec<Flow>),
}

/// One flow of a host.
#[derive(Clone, Copy, Debug)]
pub enum Flow {
    /// Cubic: start and packets, `None` for endless.
    Tcp(Duration, Option<u64>),
    /// A constant stream from start to end.
    Cbr(Rate, Duration, Duration),
}

/// One bundle.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Algorithm; `const` for the status quo.
    pub cc: Spec,
    /// Traffic.
    pub source: Source,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bottleneck rate at the start.
    pub rate: Rate,
    /// Two-way propagation delay at the start.
    pub rtt: Duration,
    /// Packets that fit into the bottleneck's queue; `None`: max(60, 3 BDP).
    pub buffer: Option<usize>,
    /// Changes in order of time.
    pub changes: Vec<Change>,
    /// Additional delay of each report.
    pub report_delay: Duration,
    /// Reports are delayed by a further 0 to this.
    pub report_noise: Duration,
    /// Receive stamps are late by 0 to this.
    pub stamp_noise: Duration,
    /// What the receivebox's clock reads, but for its origin, which is another one.
    pub clock: Clock,
    /// The way back.
    pub way_back: WayBack,
    /// Probability that a report is lost.
    pub report_loss: f64,
    /// Probability that a packet is lost before the bottleneck.
    pub data_loss: f64,
    /// From when on packets are lost.
    pub data_loss_from: Duration,
    /// The sendbox wakes up late by an exponential time of this mean, and one time in 10,000 by
    /// fifty times as much: a process in user space.
    pub wake_delay: Duration,
    /// The sendboxes only say which rate they would set.
    pub dry_run: bool,
    /// A box that dies at the first time and is back at the second.
    pub outage: Option<(Outage, Duration, Duration)>,
    /// The bundles.
    pub bundles: Vec<Bundle>,
    /// Length of the run.
    pub stop: Duration,
    /// Seed.
    pub seed: u64,
}

impl Plan {
    /// An endless backlog under the algorithm `cc`, with noise of +-1 ms.
    pub fn new(cc: &str, rate_mbit: u64, rtt_ms: u64) -> Self {
        Self {
            rate: Rate::from_mbit_per_sec(rate_mbit),
            rtt: Duration::from_millis(rtt_ms),
            buffer: None,
            changes: Vec::new(),
            report_delay: Duration::ZERO,
            report_noise: Duration::from_millis(2),
            stamp_noise: Duration::from_micros(200),
            clock: Clock::fast_by(50.0),
            way_back: WayBack::Clear,
            report_loss: 0.0,
            data_loss: 0.0,
            data_loss_from: Duration::ZERO,
            wake_delay: Duration::ZERO,
            dry_run: false,
            outage: None,
            bundles: vec![Bundle { cc: Spec::named(cc), source: Source::Backlog }],
            stop: Duration::from_secs(40),
            seed: 1,
        }
    }

    /// The same with `flows` instead of the backlog.
    pub fn flows(mut self, flows: Vec<Flow>) -> Self {
        self.bundles[0].source = Source::Flows(flows);
        self
    }

    /// The same with `count` equal bundles.
    pub fn bundles(mut self, count: usize) -> Self {
        self.bundles = vec![self.bundles[0].clone(); count];
        self
    }

    /// The same with a change of the bottleneck.
    pub fn change(mut self, at_s: u64, rate_mbit: u64, rtt_ms: u64) -> Self {
        self.changes.push(Change {
            at: Duration::from_secs(at_s),
            rate: Rate::from_mbit_per_sec(rate_mbit),
            rtt: Duration::from_millis(rtt_ms),
        });
        self
    }

    /// The same for `seconds`.
    pub fn stop(mut self, seconds: u64) -> Self {
        self.stop = Duration::from_secs(seconds);
        self
    }

    /// The same with another seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    pub(super) fn buffer_packets(&self) -> usize {
        let content = self.rate.bytes_in(self.rtt).as_u64() / PACKET.as_u64();
        self.buffer.unwrap_or_else(|| (3 * content as usize).max(60))
    }

    /// Runs the plan.
    pub fn run(&self) -> Trace {
        Plant::new(self).run()
    }
}
