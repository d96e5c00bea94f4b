//! What a run leaves behind, as typed rows: the contract between the programs of a run and the lab.
//!
//! All times are nanoseconds on the machine's monotonic clock (`CLOCK_MONOTONIC`), which all
//! processes of a run share; [`RunRecord::started_ns`] is the start of the run on it.

use std::io;
use std::path::{Path, PathBuf};

use forebay_core::record::PacketRecord;
use forebay_host::record::{BundleRecord, QueueSample};
use serde::{Deserialize, Serialize};

/// Everything a run leaves behind. Long series stay in files of fixed-size little-endian records.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunRecord {
    /// Start of the run; request schedules and link changes count from here.
    pub started_ns: u64,
    /// End of the drain.
    pub finished_ns: u64,
    /// One entry per scheduled request, in schedule order.
    pub requests: Vec<RequestRecord>,
    /// One entry per greedy, paced or ping flow, and one per request workload with the sum of
    /// its connections.
    pub flows: Vec<FlowRecord>,
    /// The links, `forward` then `reverse`.
    pub links: Vec<LinkRecord>,
    /// The bundles.
    pub bundles: Vec<BundleRecord>,
    /// The attack, if there was one.
    #[serde(default)]
    pub attack: Option<AttackRecord>,
    /// The agent, if the run had one.
    #[serde(default)]
    pub agent: Option<AgentRecord>,
    /// The machine and the programs.
    pub host: HostRecord,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Name of the workload.
    pub workload: String,
    /// Place in the schedule.
    pub index: u32,
    /// Connection it used.
    pub connection: u32,
    /// Bytes of the answer.
    pub size_bytes: u64,
    /// Scheduled arrival.
    pub scheduled_ns: u64,
    /// When the request was written to the socket; later than scheduled by the generator's lateness.
    pub sent_ns: Option<u64>,
    /// Another request was unfinished on the connection when this one arrived.
    pub queued_behind: bool,
    /// When the last byte of the answer was read.
    pub finished_ns: Option<u64>,
}

/// One greedy, paced or ping flow, or all connections of a request workload together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Name of the workload.
    pub workload: String,
    /// Number of the flow in the workload.
    pub index: u32,
    /// Bytes of payload read by the receiver.
    pub bytes: u64,
    /// Bytes of payload read in each interval of 100 ms since the start of the run.
    pub bytes_per_100ms: Vec<u64>,
    /// Round trips (ns) of a ping loop, in order; empty otherwise.
    pub rtts_ns: Vec<u64>,
    /// Datagrams that never arrived: paced and ping flows only. A ping without an answer for 1 s
    /// is lost.
    #[serde(default)]
    pub lost: u64,
    /// The connection was reset or failed.
    pub failed: bool,
    /// Congestion control of the sender's socket, read back from it at the end; greedy flows only.
    #[serde(default)]
    pub cc: Option<String>,
    /// The sender's state every 10 ms; greedy flows of at most ten connections only.
    #[serde(default)]
    pub samples: Vec<TcpSample>,
}

/// What the kernel says of a sending connection at an instant (`TCP_INFO`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpSample {
    /// When.
    pub at_ns: u64,
    /// Window in segments.
    pub cwnd: u32,
    /// Smoothed round trip (us); 0: none yet.
    pub srtt_us: u32,
    /// Segments sent again since the connection was opened.
    pub retransmissions: u32,
}

/// What an agent counted from its start to the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
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
    #[serde(default)]
    pub fault: Option<AgentFault>,
}

/// What became of the connections of an agent that was killed or stopped, by the kernel's records,
/// which it or its successor read later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentFault {
    /// Connections that the kernel's own law took.
    pub fell_back: u64,
    /// From the fault until it had the last of them (ns).
    pub last_ns: u64,
    /// By how much that was more than max(4 round trips, 100 ms), for the connection where it was most
    /// and with its smoothed round trip (ns). A connection whose first acknowledgement or timeout
    /// since then was the one that found the law for it was not late, and for one that waited for a
    /// timeout when the fault came the time begins with that timeout.
    pub late_ns: u64,
    /// Those among them that an agent decided for again.
    pub resumed: u64,
}

/// One direction of the emulated path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkRecord {
    /// `forward` or `reverse`.
    pub name: String,
    /// The truth: one [`PacketRecord`] per packet, in order of arrival, in this file.
    pub packets: PathBuf,
    /// The queue every 10 ms.
    pub queue: Vec<QueueSample>,
    /// Packets that arrived.
    pub packets_in: u64,
    /// Packets that left.
    pub packets_out: u64,
    /// Bytes that left.
    pub bytes_out: u64,
    /// Packets dropped by the queue.
    pub drops_queue: u64,
    /// Packets that the queue marked instead.
    #[serde(default)]
    pub marks_queue: u64,
    /// The dropped packets by reason: limit, CoDel, drawn early, forced, policed.
    #[serde(default)]
    pub drops_by_reason: [u64; 5],
    /// The marked packets, likewise.
    #[serde(default)]
    pub marks_by_reason: [u64; 5],
    /// Packets lost on purpose.
    pub drops_loss: u64,
    /// Packets lost by the emulator itself (a full ring): must be zero in a valid run.
    pub drops_ring: u64,
    /// How late packets were released after their due time (ns): p50, p99, p99.9, max.
    pub lateness_ns: [u64; 4],
    /// Time from arrival to departure of the packets that came through (ns): p50, p99, p99.9, max;
    /// at most 1/16 too high.
    #[serde(default)]
    pub sojourn_ns: [u64; 4],
    /// Achieved over configured rate while the queue was backlogged: the time that backlogged
    /// packets had to take over the time they took. 1 if that time is too short to tell.
    pub rate_achieved: f64,
    /// For how long the queue was backlogged (ns).
    #[serde(default)]
    pub backlogged_ns: u64,
    /// Records missing in `packets` because the disk was too slow: must be zero in a valid run.
    #[serde(default)]
    pub records_lost: u64,
}

/// Reads the packets of a link from a file, in order of arrival.
pub fn read_packets(path: &Path) -> io::Result<Vec<PacketRecord>> {
    let invalid = |error: String| {
        let message = format!("{}: {error}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, message)
    };
    let bytes = std::fs::read(path)?;
    let (records, rest) = bytes.as_chunks();
    if !rest.is_empty() {
        return Err(invalid("ends within a record".into()));
    }
    let packets = records.iter().map(PacketRecord::from_bytes);
    packets.collect::<Result<_, _>>().map_err(|error| invalid(error.to_string()))
}

/// An attack on the messages of a bundle: what the attacker sent, and what the box made of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttackRecord {
    /// Messages of the running session with some bytes changed.
    pub forged: u64,
    /// Messages of the running session as they were.
    pub replayed: u64,
    /// Messages of the recorded session as they were: that of before the first fault, or the
    /// running one if there was no fault.
    pub recorded: u64,
    /// Messages cut short.
    pub truncated: u64,
    /// Messages with bytes appended, up to the largest datagram.
    pub oversized: u64,
    /// Of all of these, those that the attacker's own socket refused.
    pub refused: u64,
    /// When the first was sent; 0: none was.
    #[serde(default)]
    pub began_ns: u64,
    /// From the first to the last (ns).
    pub took_ns: u64,
    /// CPU time of the box from the first to the last, in cores, to 100 ms; `None`: the attack did
    /// not end within the run.
    pub box_cores: Option<f64>,
    /// Datagrams that the box read since the attack began, its peer's among them.
    pub received: u64,
    /// Of them, those that it rejected, by its own reasons.
    pub rejected: Vec<(String, u64)>,
}

/// The machine during the run, and what the programs cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostRecord {
    /// `uname -r`.
    pub kernel: String,
    /// Load average (1 min) at the start and at the end.
    pub load: [f64; 2],
    /// Share of CPU time stolen by the hypervisor during the run.
    pub steal: f64,
    /// How late a processor ran what was due (ns): p50, p99, p99.9, max, each the worst of all.
    #[serde(default)]
    pub processor_lateness_ns: [u64; 4],
    /// CPU time of each program over the run, in cores.
    pub cpu_cores: Vec<(String, f64)>,
    /// Programs that ran under SCHED_FIFO.
    pub realtime: Vec<String>,
    /// How late requests were written after their scheduled arrival while their connection was
    /// free (ns): p50, p99, p99.9, max.
    pub generator_lateness_ns: [u64; 4],
    /// Offload state of the devices, as checked: `device: feature=off ..`.
    pub offloads: Vec<String>,
    /// Kernel settings of the hosts' namespaces, as read back: `key = value`.
    #[serde(default)]
    pub settings: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_records_survive_a_file() {
        let record = PacketRecord { arrived_ns: 1, bytes: 1514, ..PacketRecord::default() };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("packets");
        let bytes = [record.to_bytes(), PacketRecord::default().to_bytes()].concat();
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read_packets(&path).unwrap(), [record, PacketRecord::default()]);
        std::fs::write(&path, &bytes[..80]).unwrap();
        let error = read_packets(&path).unwrap_err().to_string();
        assert!(error.ends_with("packets: ends within a record"), "{error}");
    }
}
