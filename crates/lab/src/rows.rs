//! What a back end hands over after a run, as rows: the input of the metrics.
//!
//! All times are nanoseconds since the start of the run; what happened before counts as 0.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::PathBuf;

use forebay_core::qdisc::ByReason;
use forebay_core::record::PacketRecord;

use crate::metrics::LinkTruth;

/// Everything measured in one run.
#[derive(Clone, Debug, Default)]
pub struct RunRows {
    /// End of the drain.
    pub finished_ns: u64,
    /// One per scheduled request.
    pub requests: Vec<RequestRow>,
    /// One per flow, and one per request workload with the sum of its connections.
    pub flows: Vec<FlowRow>,
    /// The links, `forward` and `reverse`.
    pub links: Vec<LinkRow>,
    /// The bundles.
    pub bundles: Vec<BundleRow>,
    /// Hostile messages, if some were sent.
    pub attack: Option<AttackRow>,
    /// The agent, if flows had one.
    pub agent: Option<AgentRow>,
    /// The machine and the programs.
    pub host: HostRow,
}

impl RunRows {
    /// The link called `name`.
    pub fn link(&self, name: &str) -> Option<&LinkRow> {
        self.links.iter().find(|link| link.name == name)
    }
}

/// One request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRow {
    /// Place of its flow in the experiment.
    pub flow: usize,
    /// Place in the schedule.
    pub index: u32,
    /// Connection.
    pub connection: u32,
    /// Bytes of the answer.
    pub size_bytes: u64,
    /// Scheduled arrival.
    pub scheduled_ns: u64,
    /// When it was written to the socket.
    pub sent_ns: Option<u64>,
    /// Another request was unfinished on its connection when it arrived.
    pub queued_behind: bool,
    /// When the last byte of the answer was read.
    pub finished_ns: Option<u64>,
}

/// One flow, or all connections of a request workload together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowRow {
    /// Place in the experiment's flows.
    pub flow: usize,
    /// Number among the flows alike.
    pub index: u32,
    /// Bytes of payload read by the receiver.
    pub bytes: u64,
    /// The same in each 100 ms since the start.
    pub bytes_per_100ms: Vec<u64>,
    /// Round trips of a ping loop.
    pub rtts_ns: Vec<u64>,
    /// Datagrams that never arrived.
    pub lost: u64,
    /// The connection was reset or failed.
    pub failed: bool,
    /// What only its back end can see, under the names of the catalogue.
    pub measured: Vec<(&'static str, f64)>,
    /// The sender's state every 10 ms: greedy flows of at most [`SAMPLED_MAX`] connections.
    pub samples: Vec<TcpRow>,
}

/// Most connections of a flow whose states are taken.
pub const SAMPLED_MAX: u32 = 10;

/// The state of a sending TCP connection at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TcpRow {
    /// When.
    pub at_ns: u64,
    /// Window.
    pub cwnd_segments: f64,
    /// Smoothed round trip; `None` before the first.
    pub srtt_ms: Option<f64>,
    /// Segments sent again so far.
    pub retransmissions: u64,
}

/// What an agent counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AgentRow {
    /// Reports that it took.
    pub reports: u64,
    /// Reports that found no room.
    pub missed: u64,
    /// Decisions that it handed to the kernel.
    pub decisions: u64,
    /// Decisions that it withheld because they came too late.
    pub stale: u64,
    /// Connections whose algorithm failed.
    pub failed: u64,
    /// Times that the kernel's own law took a connection, since no answer came in time.
    pub fallbacks: u64,
    /// What the first fault that hit it did to its connections.
    pub fault: Option<AgentFaultRow>,
}

/// What became of the connections of an agent that was killed or stopped, by the kernel's records.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AgentFaultRow {
    /// Connections that the kernel's own law took.
    pub fell_back: u64,
    /// From the fault until it had the last of them (ms).
    pub last_ms: f64,
    /// By how much that was more than max(4 round trips, 100 ms), where it was most (ms).
    pub late_ms: f64,
    /// Those among them that an agent decided for again.
    pub resumed: u64,
}

/// One direction of the path.
#[derive(Clone, Debug, Default)]
pub struct LinkRow {
    /// `forward` or `reverse`.
    pub name: String,
    /// Every packet.
    pub packets: PacketLog,
    /// Packets lost by the emulator itself.
    pub drops_ring: u64,
    /// Packets missing in the log.
    pub records_lost: u64,
    /// How late packets were released: p50, p99, p99.9, max.
    pub lateness_ns: [u64; 4],
    /// Achieved over configured rate while backlogged, 1 if there was no telling.
    pub rate_achieved: f64,
    /// What its back end measures itself over the whole run, under the names of the catalogue.
    pub measured: Vec<(&'static str, f64)>,
}

/// Packets that a queue dropped and marked over the whole run, by reason, under the names of the catalogue.
pub fn by_reason(drops: ByReason, marks: ByReason) -> [(&'static str, f64); 8] {
    [
        ("drops_overlimit_packets", drops.overlimit),
        ("drops_codel_packets", drops.codel),
        ("drops_early_packets", drops.early),
        ("drops_forced_packets", drops.forced),
        ("drops_policed_packets", drops.policed),
        ("marks_codel_packets", marks.codel),
        ("marks_early_packets", marks.early),
        ("marks_forced_packets", marks.forced),
    ]
    .map(|(name, packets)| (name, packets as f64))
}

/// The log of the packets of a link.
#[derive(Clone, Debug)]
pub enum PacketLog {
    /// In a file of records, with the start of the run on the clock of its times.
    File {
        /// The file.
        path: PathBuf,
        /// Start of the run.
        started_ns: u64,
    },
    /// In memory.
    Rows(Vec<PacketRecord>),
    /// Read as the run went, for the metrics of the experiment's windows, and not kept.
    Read(Box<LinkTruth>),
}

impl Default for PacketLog {
    fn default() -> Self {
        Self::Rows(Vec::new())
    }
}

impl PacketLog {
    /// What the packets said, if they were read before.
    pub fn truth(&self) -> Option<&LinkTruth> {
        match self {
            Self::Read(truth) => Some(truth),
            Self::File { .. } | Self::Rows(_) => None,
        }
    }

    /// Calls `visit` with every packet, in order of arrival. Fails if they cannot be read.
    pub fn for_each(&self, mut visit: impl FnMut(&PacketRecord)) -> io::Result<()> {
        let (path, started_ns) = match self {
            Self::Rows(rows) => {
                rows.iter().for_each(visit);
                return Ok(());
            }
            Self::Read(_) => return Err(io::Error::other("packets that were not kept")),
            Self::File { path, started_ns } => (path, *started_ns),
        };
        let mut reader = BufReader::with_capacity(1 << 20, File::open(path)?);
        let mut record = [0; PacketRecord::BYTES];
        loop {
            match reader.read_exact(&mut record) {
                Ok(()) => {
                    let packet = PacketRecord::from_bytes(&record);
                    let packet =
                        packet.map_err(|it| io::Error::new(io::ErrorKind::InvalidData, it))?;
                    visit(&packet.since(started_ns));
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// A queue at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueRow {
    /// When.
    pub at_ns: u64,
    /// Packets.
    pub packets: u64,
}

/// One bundle.
#[derive(Clone, Debug, Default)]
pub struct BundleRow {
    /// Name.
    pub name: String,
    /// One per matched boundary.
    pub epochs: Vec<EpochRow>,
    /// The sendbox's queue every 10 ms.
    pub queue: Vec<QueueRow>,
    /// Decisions of the sendbox.
    pub decisions: Vec<DecisionRow>,
    /// Boundaries sent while reports could be expected back.
    pub boundaries_sent: u64,
    /// Boundaries sent that no report could be expected of, and none came.
    pub boundaries_unexpected: u64,
    /// Boundaries matched.
    pub boundaries_matched: u64,
    /// Matched boundaries that arrived in the order of their departure.
    pub boundaries_in_order: u64,
    /// Those that arrived late: behind one that left later and took less time.
    pub boundaries_late: u64,
    /// Packets dropped by the sendbox's queue.
    pub drops_queue: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes of messages, both ways.
    pub message_bytes: u64,
    /// How late packets left: p50, p99, p99.9, max.
    pub lateness_ns: [u64; 4],
    /// Packets lost by the box itself, in its rings to and from the devices.
    pub drops_ring: u64,
    /// Times that the sendbox left its traffic to the kernel, since it did not keep up.
    pub hand_backs: u64,
    /// Boundaries lost by the receivebox itself.
    pub boundaries_lost: u64,
    /// Rows missing above because the trace's writer was too slow.
    pub rows_lost: u64,
}

/// Hostile messages to a box, and what it made of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttackRow {
    /// Messages sent, by kind.
    pub sent: Vec<(String, u64)>,
    /// Of them, those that the attacker's own socket refused.
    pub refused: u64,
    /// The first was sent.
    pub began_ns: u64,
    /// From the first to the last.
    pub took_ns: u64,
    /// CPU time of the box meanwhile, in cores; `None`: the attack did not end within the run.
    pub box_cores: Option<f64>,
    /// Datagrams that the box read since the attack began, its peer's among them.
    pub received: u64,
    /// Of them, those that it rejected, by its own reasons.
    pub rejected: Vec<(String, u64)>,
}

/// One matched boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpochRow {
    /// When the report was handled.
    pub at_ns: u64,
    /// Identity of the boundary packet.
    pub identity: u64,
    /// Identity of the previous matched boundary.
    pub previous_identity: u64,
    /// Departure of the boundary packet from the sendbox.
    pub sent_ns: u64,
    /// Composed RTT.
    pub rtt_ns: u64,
    /// Report arrival minus departure.
    pub raw_rtt_ns: u64,
    /// Receive rate since the previous boundary, 0 if unknown.
    pub delivery_rate_bps: u64,
    /// Epoch size in force.
    pub epoch_packets: u32,
}

/// One decision of a sendbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionRow {
    /// When.
    pub at_ns: u64,
    /// The shaper's rate; `None`: unshaped.
    pub rate_bps: Option<u64>,
    /// Base RTT.
    pub min_rtt_ns: Option<u64>,
    /// Estimated bottleneck rate.
    pub bottleneck_bps: Option<u64>,
    /// State.
    pub state: String,
    /// Why.
    pub reason: String,
}

/// The machine during the run, and what the programs cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostRow {
    /// Kernel release.
    pub kernel: String,
    /// Load average at start and end.
    pub load: [f64; 2],
    /// Share of CPU time stolen by the hypervisor.
    pub steal: f64,
    /// How late a processor ran what was due: p50, p99, p99.9, max.
    pub processor_lateness_ns: [u64; 4],
    /// CPU time of each program, in cores.
    pub cpu_cores: Vec<(String, f64)>,
    /// Programs under SCHED_FIFO.
    pub realtime: Vec<String>,
    /// How late requests were written while their connection was free: p50, p99, p99.9, max.
    pub generator_lateness_ns: [u64; 4],
    /// Offload state of the devices: `device: feature=off ..`.
    pub offloads: Vec<String>,
    /// Kernel settings: `key = value`.
    pub settings: Vec<String>,
}
