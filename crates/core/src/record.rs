//! Records of a run: plain values that the simulator and the testbed fill and the lab reads.
//!
//! A field is declared here once, with its unit; the lab's catalogue of metrics derives the rest. All times
//! are nanoseconds. Times of the testbed are on the machine's monotonic clock (`CLOCK_MONOTONIC`), which all
//! processes of a run share, until [`RunRecord::since_start`]; times of the simulator count from the start.

mod bundles;
mod cost;
mod packets;
mod path;

use alloc::string::String;
use alloc::vec::Vec;

pub use bundles::{
    BundleCounters, BundleRecord, DecisionRecord, EpochRecord, QueueSample, WaitRecord,
};
pub use cost::{CostRecord, ProgramRecord, TrialAgentRecord, TrialRecord};
pub use packets::{Fate, PacketRecord, UnknownFate};
pub use path::{PathRecord, PathRow, QUEUE_MIN as PATH_QUEUE_MIN, path_csv, path_rows, path_times};

use crate::qdisc::ByReason;

/// Complete record of a run except its packets, which are [`PacketRecord`]s by link.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct RunRecord {
    /// Start of the run; request schedules and link changes count from here.
    pub started_ns: u64,
    /// End of the drain.
    pub finished_ns: u64,
    /// One entry per scheduled request, in schedule order.
    pub requests: Vec<RequestRecord>,
    /// One entry per greedy, paced, ping or video flow, and one per request workload with the sum of
    /// its connections.
    pub flows: Vec<FlowRecord>,
    /// The links, `forward` and `reverse` first.
    pub links: Vec<LinkRecord>,
    /// The bundles.
    pub bundles: Vec<BundleRecord>,
    /// The attack, if there was one.
    pub attack: Option<AttackRecord>,
    /// The agent, if flows had one.
    pub agent: Option<AgentRecord>,
    /// A trial of costs, if the run was one.
    pub cost: Option<CostRecord>,
    /// The machine and the programs; empty for a simulator, which has none.
    pub host: HostRecord,
}

impl RunRecord {
    /// The link called `name`.
    pub fn link(&self, name: &str) -> Option<&LinkRecord> {
        self.links.iter().find(|link| link.name == name)
    }

    /// This record with times that count from the start of the run; earlier times count as 0.
    pub fn since_start(mut self) -> Self {
        let start_ns = core::mem::take(&mut self.started_ns);
        let shift = |at_ns: &mut u64| *at_ns = at_ns.saturating_sub(start_ns);
        shift(&mut self.finished_ns);
        for request in &mut self.requests {
            shift(&mut request.scheduled_ns);
            request.sent_ns.iter_mut().chain(&mut request.finished_ns).for_each(shift);
        }
        self.flows
            .iter_mut()
            .flat_map(|flow| &mut flow.samples)
            .for_each(|it| shift(&mut it.at_ns));
        let queues = self.links.iter_mut().map(|link| &mut link.queue);
        for queue in queues.chain(self.bundles.iter_mut().map(|bundle| &mut bundle.queue)) {
            queue.iter_mut().for_each(|it| shift(&mut it.at_ns));
        }
        for bundle in &mut self.bundles {
            for epoch in &mut bundle.epochs {
                shift(&mut epoch.at_ns);
                shift(&mut epoch.sent_ns);
            }
            bundle.decisions.iter_mut().for_each(|it| shift(&mut it.at_ns));
            bundle.waits.iter_mut().for_each(|it| shift(&mut it.at_ns));
        }
        self.attack.iter_mut().for_each(|it| shift(&mut it.began_ns));
        self
    }
}

/// One request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct RequestRecord {
    /// Place of its flow in the experiment; the testbed reports the place of its workload in the scenario.
    pub flow: usize,
    /// Place in the schedule.
    pub index: u32,
    /// Connection that it used.
    pub connection: u32,
    /// Bytes of the answer.
    pub size_bytes: u64,
    /// Scheduled arrival.
    pub scheduled_ns: u64,
    /// When the request was written to the socket, or when its own connection was opened; later than
    /// scheduled by the generator's lateness.
    pub sent_ns: Option<u64>,
    /// Another request was unfinished on its connection when it arrived.
    pub queued_behind: bool,
    /// When the last byte of the answer was read.
    pub finished_ns: Option<u64>,
}

/// One greedy, paced, ping, video or media flow, or all connections of a request workload together.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct FlowRecord {
    /// Place in the experiment's flows; the testbed reports the place of its workload in the scenario.
    pub flow: usize,
    /// Number among the flows of the same place.
    pub index: u32,
    /// Bytes of payload read by the receiver.
    pub bytes: u64,
    /// Bytes of payload read in each 100 ms since the start of the run.
    pub bytes_per_100ms: Vec<u64>,
    /// Round trips (ns) of a ping loop, in order; empty otherwise.
    pub rtts_ns: Vec<u64>,
    /// Datagrams that never arrived: paced and ping flows only. A ping without an answer for 1 s counts as
    /// lost.
    pub lost: u64,
    /// The connection was reset or failed.
    pub failed: bool,
    /// Congestion control of the sender's socket, read back from it at the end; greedy flows of the
    /// testbed only.
    pub cc: Option<String>,
    /// The sender's state every 10 ms; greedy flows of at most [`SAMPLED_MAX`] connections only.
    pub samples: Vec<TcpSample>,
    /// The playback of a client that plays a video until the end of the flow.
    pub video: Option<VideoRecord>,
    /// The frames of a live encoder.
    pub media: Option<MediaRecord>,
    /// Values that only a simulator sees, under the names of the lab's catalogue; never written.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub measured: Vec<(&'static str, f64)>,
}

/// A frame, sent or skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct MediaFrame {
    /// When it was captured, since the start of the run.
    pub captured_ns: u64,
    /// Bytes of the frame; 0: skipped.
    pub bytes: u64,
    /// Time from its capture to the arrival of its last byte; `None`: it has not arrived.
    pub delay_ns: Option<u64>,
}

/// The frames of an encoder, with their fate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct MediaRecord {
    /// Time between frames.
    pub period_ns: u64,
    /// A frame that takes longer is late.
    pub late_ns: u64,
    /// All frames, in order.
    pub frames: Vec<MediaFrame>,
}

/// The playback of a client that plays a video.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct VideoRecord {
    /// From the start of the flow until playback began, or until its end if it never did.
    pub startup_ns: u64,
    /// How long playback was stalled after it had begun.
    pub rebuffering_ns: u64,
    /// How often playback stalled.
    pub rebuffers: u64,
    /// Segments of another rate than the one before.
    pub switches: u64,
    /// From the start of the flow to the last request for a segment of another rate; 0: there was none.
    pub settled_ns: u64,
    /// Segments that came whole.
    pub segments: u64,
    /// Mean rate of the segments that came (bits per second); 0: there was none.
    pub rate_bps: u64,
}

/// Most connections of a flow with recorded states: on the testbed each look is a system call.
pub const SAMPLED_MAX: u32 = 10;

/// The state of a sending connection at an instant. A value is `None` if the transport does not give it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct TcpSample {
    /// When the state was read.
    pub at_ns: u64,
    /// Window (segments of TCP, full datagrams of QUIC).
    pub cwnd_segments: f64,
    /// Smoothed round trip (ms); `None` before the first.
    pub srtt_ms: Option<f64>,
    /// Segments outstanding that are neither SACKed nor lost.
    pub in_flight_segments: Option<f64>,
    /// Payload delivered, SACKed or acknowledged, since the connection was opened.
    pub delivered_bytes: Option<u64>,
    /// Segments sent again since the connection was opened; over QUIC lost packets, whose data are sent again.
    pub retransmissions: u64,
    /// Segments that have arrived twice since the connection was opened; of the testbed as D-SACK reports them.
    pub duplicates: Option<u64>,
}

/// Counters of an agent from its start to the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct AgentRecord {
    /// Reports that it took.
    pub reports: u64,
    /// Reports that found no room.
    pub missed: u64,
    /// Decisions that it handed to the kernel.
    pub decisions: u64,
    /// Decisions that it withheld because they came too late.
    pub stale: u64,
    /// Connections with an algorithm that failed.
    pub failed: u64,
    /// Times that the kernel's own algorithm took a connection, since no answer came in time.
    pub fallbacks: u64,
    /// Effect of the agent's first fault on its connections.
    pub fault: Option<AgentFault>,
}

/// Fate of the connections of an agent that was killed or stopped, by the kernel's records, which it or its
/// successor read later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct AgentFault {
    /// Connections that the kernel's own algorithm took.
    pub fell_back: u64,
    /// From the fault until it had the last connection (ns).
    pub last_ns: u64,
    /// By how much that was more than max(4 round trips, 100 ms), for the connection where it was most and
    /// with its smoothed round trip (ns). A connection was not late if its first acknowledgement or timeout
    /// since the fault found the algorithm for it. If a connection waited for a timeout when the fault came,
    /// its time begins with that timeout.
    pub late_ns: u64,
    /// Connections among them that an agent decided for again.
    pub resumed: u64,
}

/// One direction of the path, or a link of several.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct LinkRecord {
    /// `forward`, `reverse`, or the name in a plan with several links.
    pub name: String,
    /// The queue every 10 ms; of the testbed.
    pub queue: Vec<QueueSample>,
    /// Packets that arrived; of the testbed.
    pub packets_in: u64,
    /// Packets that left.
    pub packets_out: u64,
    /// Bytes that left; of the testbed.
    pub bytes_out: u64,
    /// Packets dropped by the queue.
    pub drops_queue: u64,
    /// Packets that the queue marked instead.
    pub marks_queue: u64,
    /// The dropped packets by reason.
    pub drops_by_reason: ByReason,
    /// The marked packets by reason.
    pub marks_by_reason: ByReason,
    /// Packets lost on purpose.
    pub drops_loss: u64,
    /// Packets lost by the emulator itself (a full ring): must be zero in a valid run.
    pub drops_ring: u64,
    /// How late packets were released after their due time (ns): p50, p99, p99.9, max.
    pub lateness_ns: [u64; 4],
    /// Time from arrival to departure of the packets that came through (ns): p50, p99, p99.9, max;
    /// at most 1/16 too high; of the testbed.
    pub sojourn_ns: [u64; 4],
    /// Achieved over configured rate while the queue was backlogged for half a second or longer: the time that
    /// backlogged packets had to take over the time they took. 1 if it never was.
    pub rate_achieved: f64,
    /// For how long the queue was backlogged (ns); of the testbed.
    pub backlogged_ns: u64,
    /// Records missing in `packets` because the disk was too slow: must be zero in a valid run.
    pub records_lost: u64,
    /// Values that only a simulator sees, under the names of the lab's catalogue; never written.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub measured: Vec<(&'static str, f64)>,
}

/// An attack on the messages of a bundle: the messages that the attacker sent, and how the box treated them.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct AttackRecord {
    /// Messages of the running session with some bytes changed.
    pub forged: u64,
    /// Messages of the running session as they were.
    pub replayed: u64,
    /// Messages of the recorded session as they were: of the session before the first fault, or of the
    /// running one if there was no fault.
    pub recorded: u64,
    /// Messages cut short.
    pub truncated: u64,
    /// Messages with bytes appended, up to the largest datagram.
    pub oversized: u64,
    /// Messages among all of these that the attacker's own socket refused.
    pub refused: u64,
    /// When the first was sent; 0: none was.
    pub began_ns: u64,
    /// From the first to the last (ns).
    pub took_ns: u64,
    /// CPU time of the box from the first to the last, in cores, to 100 ms; `None`: the attack did
    /// not end within the run.
    pub box_cores: Option<f64>,
    /// Datagrams that the box read since the attack began, its peer's among them.
    pub received: u64,
    /// Datagrams among them that it rejected, by its own reasons.
    pub rejected: Vec<(String, u64)>,
}

/// Entry of [`HostRecord::offloads`] for a device that is meant to merge packets: hosts hand them to a box
/// that queues in the kernel.
pub const SUPER_PACKETS: &str = "super-packets";

/// The machine during the run, and the costs of the programs.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct HostRecord {
    /// `uname -r`.
    pub kernel: String,
    /// Load average (1 min) at the start and at the end.
    pub load: [f64; 2],
    /// Share of CPU time stolen by the hypervisor during the run.
    pub steal: f64,
    /// How late a processor ran due work (ns): p50, p99, p99.9, max, each the worst of all.
    pub processor_lateness_ns: [u64; 4],
    /// CPU time of each program over the run, in cores.
    pub cpu_cores: Vec<(String, f64)>,
    /// Programs that ran under SCHED_FIFO.
    pub realtime: Vec<String>,
    /// How late requests were written after their scheduled arrival while their connection was
    /// free (ns): p50, p99, p99.9, max.
    pub generator_lateness_ns: [u64; 4],
    /// Offload state of the devices, as checked: `device: feature=off ..`, or `device, super-packets: feature=on ..`
    /// ([`SUPER_PACKETS`]).
    pub offloads: Vec<String>,
    /// Kernel settings of the hosts' namespaces, as read back: `key = value`.
    pub settings: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_counts_from_the_start() {
        let queue = vec![QueueSample { at_ns: 1_010, packets: 3, bytes: 4_000 }];
        let record = RunRecord {
            started_ns: 1_000,
            finished_ns: 9_000,
            requests: vec![RequestRecord {
                scheduled_ns: 1_020,
                sent_ns: Some(1_030),
                ..RequestRecord::default()
            }],
            flows: vec![FlowRecord {
                samples: vec![TcpSample { at_ns: 1_040, ..TcpSample::default() }],
                ..FlowRecord::default()
            }],
            links: vec![LinkRecord { queue: queue.clone(), ..LinkRecord::default() }],
            bundles: vec![BundleRecord {
                epochs: vec![EpochRecord {
                    at_ns: 1_050,
                    sent_ns: 990,
                    rtt_ns: 60,
                    ..EpochRecord::default()
                }],
                queue,
                decisions: vec![DecisionRecord { at_ns: 1_060, ..DecisionRecord::default() }],
                waits: vec![WaitRecord { at_ns: 1_080, ..WaitRecord::default() }],
                ..BundleRecord::default()
            }],
            attack: Some(AttackRecord { began_ns: 1_070, took_ns: 5, ..AttackRecord::default() }),
            ..RunRecord::default()
        };
        let it = record.since_start();
        assert_eq!([it.started_ns, it.finished_ns], [0, 8_000]);
        let request = &it.requests[0];
        assert_eq!(
            (request.scheduled_ns, request.sent_ns, request.finished_ns),
            (20, Some(30), None)
        );
        let bundle = &it.bundles[0];
        let epoch = bundle.epochs[0];
        assert_eq!([epoch.at_ns, epoch.sent_ns, epoch.rtt_ns], [50, 0, 60]);
        let queues = [it.links[0].queue[0].at_ns, bundle.queue[0].at_ns];
        assert_eq!((queues, it.flows[0].samples[0].at_ns), ([10, 10], 40));
        let attack = it.attack.as_ref().unwrap();
        assert_eq!([bundle.decisions[0].at_ns, attack.began_ns, attack.took_ns], [60, 70, 5]);
        assert_eq!(bundle.waits[0].at_ns, 80);
    }
}
