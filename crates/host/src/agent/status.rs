//! The status document of a running agent, the same for `forebay status` and `--json`.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::log::LOST_LINES;

/// Version of [`AgentStatus`]; it grows when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// The state of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentStatus {
    /// Version of this part of the document: it grows when a field changes its meaning or goes.
    pub schema: u32,
    /// Version of the program.
    pub version: String,
    /// Process of the agent.
    pub pid: u32,
    /// Now, on `CLOCK_MONOTONIC` (ns).
    pub at_ns: u64,
    /// Time since the start (ns).
    pub uptime_ns: u64,
    /// What connections can select.
    pub algorithms: Vec<AlgorithmStatus>,
    /// Rules that overrule that, as they were given.
    pub rules: Vec<String>,
    /// What the agent counted.
    pub totals: AgentTotals,
    /// From the kernel's time of a record to its answer in the shared memory (ns), of the oldest record
    /// that each decision answers: p50, p90, p99 and the maximum since the start, within 6 %.
    #[serde(default)]
    pub latency_ns: [u64; 4],
    /// The recording, if there is one.
    pub recording: Option<RecordingStatus>,
    /// Lines of the log that could not be written.
    #[serde(default)]
    pub log_lines_lost: u64,
    /// The connections.
    pub flows: Vec<FlowStatus>,
}

/// A name that connections can select.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AlgorithmStatus {
    /// Name in the kernel.
    pub name: String,
    /// Algorithm and parameters.
    pub algorithm: String,
    /// Named counters of the kernel's side since it was registered, such as reports that found
    /// no room.
    pub counters: Vec<(String, u64)>,
    /// Who has its slots.
    #[serde(default)]
    pub slots: SlotsStatus,
}

/// The slots of a name: a connection needs one to be decided about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlotsStatus {
    /// Slots of the name, taken or not.
    pub total: u32,
    /// Without a connection.
    pub free: u32,
    /// Only for connections that root opens.
    pub reserved: u32,
    /// Connections that found none when they began because their user held its share.
    pub beyond_share: u64,
    /// The users that hold most, at most [`HOLDERS_MAX`], those who hold most first.
    pub holders: Vec<HolderStatus>,
}

/// A user and its slots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HolderStatus {
    /// As the initial user namespace numbers it.
    pub uid: u32,
    /// How many its connections hold.
    pub slots: u32,
}

/// Users that a document names.
pub const HOLDERS_MAX: usize = 16;
/// Users that the table names.
const HOLDERS_SHOWN: usize = 4;

/// What was counted since the start of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentTotals {
    /// Connections that came.
    pub opened: u64,
    /// Connections that went.
    pub closed: u64,
    /// Reports taken.
    pub reports: u64,
    /// Reports missed: they found no room.
    pub missed: u64,
    /// Decisions handed to the kernel.
    pub decisions: u64,
    /// Decisions withheld because they came too late.
    pub stale: u64,
    /// Connections whose algorithm failed.
    pub failed: u64,
    /// Connections that lost their slots: idle connections when slots were scarce, and connections of users who had
    /// more than their share.
    #[serde(default)]
    pub taken_back: u64,
}

/// A recording under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordingStatus {
    /// The file.
    pub file: String,
    /// The recording has ended before the agent: too large, or the disk too slow.
    pub ended: bool,
}

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowStatus {
    /// The name that it selected.
    pub name: String,
    /// Slot of the connection in the kernel's table of that name.
    pub slot: u32,
    /// Own end of the connection; unknown if the connection is older than the agent.
    pub local: Option<String>,
    /// The other end.
    pub remote: Option<String>,
    /// Algorithm and parameters.
    pub algorithm: String,
    /// Phase of the algorithm.
    pub phase: String,
    /// Why it decides as it does, or why it failed.
    pub reason: String,
    /// Who sets the window: `agent`, `kernel` (its own law, without an agent) or `start` (the same,
    /// before the first decision).
    pub decides: String,
    /// Window in force at the last report.
    pub cwnd_bytes: u64,
    /// Slow-start threshold, if there is one.
    pub ssthresh_bytes: Option<u64>,
    /// Pacing rate decided, if it is paced.
    pub pacing_bps: Option<u64>,
    /// Delivery rate of the last report.
    pub delivery_bps: Option<u64>,
    /// Smoothed round trip.
    pub srtt_us: u32,
    /// Least round trip the kernel remembers.
    pub min_rtt_us: Option<u32>,
    /// Bytes outstanding.
    pub in_flight_bytes: u64,
    /// Bytes acknowledged since the connection was opened.
    pub acked_bytes: u64,
    /// Packets that were lost since then.
    pub lost_packets: u32,
    /// Records that came.
    pub reports: u64,
    /// Records that found no room.
    pub missed: u64,
    /// Decisions handed to the kernel.
    pub decisions: u64,
    /// Decisions withheld because they came too late.
    pub stale: u64,
    /// Decisions that were out of all bounds.
    pub clamped: u64,
    /// Age of the last record (ns).
    pub heard_ns: u64,
}

/// Connections that the table shows; the JSON document has all.
const SHOWN: usize = 40;

impl AgentStatus {
    /// The table that `forebay status` prints.
    pub fn table(&self) -> String {
        let mut text = String::new();
        self.write_table(&mut text).expect("writing to a string cannot fail");
        text
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        let uptime_s = self.uptime_ns as f64 / 1e9;
        writeln!(out, "forebay agent {}, pid {}, up {uptime_s:.1} s", self.version, self.pid)?;
        for algorithm in &self.algorithms {
            write!(out, "{} ({})", algorithm.name, algorithm.algorithm)?;
            for (name, count) in algorithm.counters.iter().filter(|(_, count)| *count > 0) {
                write!(out, "  {name} {count}")?;
            }
            writeln!(out)?;
            algorithm.slots.write_row(out)?;
        }
        for rule in &self.rules {
            writeln!(out, "rule {rule}")?;
        }
        let AgentTotals { opened, closed, reports, missed, decisions, stale, failed, taken_back } =
            self.totals;
        writeln!(
            out,
            "{opened} connections, {closed} closed; {reports} reports, {missed} missed; \
             {decisions} decisions, {stale} too late; {failed} failed"
        )?;
        if taken_back > 0 {
            writeln!(out, "{taken_back} connections have given up their slots")?;
        }
        if let Some(recording) = &self.recording {
            let state = if recording.ended { "has ended" } else { "goes on" };
            writeln!(out, "recording {}: {state}", recording.file)?;
        }
        if self.log_lines_lost > 0 {
            writeln!(out, "{} {LOST_LINES} could not be written", self.log_lines_lost)?;
        }
        if self.flows.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        for flow in self.flows.iter().take(SHOWN) {
            flow.write_row(out)?;
        }
        match self.flows.len().checked_sub(SHOWN) {
            None | Some(0) => Ok(()),
            Some(more) => writeln!(out, "and {more} more; --json shows all"),
        }
    }
}

impl SlotsStatus {
    fn write_row(&self, out: &mut String) -> std::fmt::Result {
        let Self { total, free, reserved, beyond_share, holders } = self;
        write!(out, "  slots: {free} of {total} free, {reserved} for root alone")?;
        for (at, HolderStatus { uid, slots }) in holders.iter().take(HOLDERS_SHOWN).enumerate() {
            write!(out, "{} uid {uid} {slots}", if at == 0 { "; held by" } else { "," })?;
        }
        if *beyond_share > 0 {
            write!(out, "; {beyond_share} connections beyond their user's share")?;
        }
        writeln!(out)
    }
}

impl FlowStatus {
    fn write_row(&self, out: &mut String) -> std::fmt::Result {
        let mbit = |bits: Option<u64>, none: &str| {
            bits.map_or(none.to_string(), |bits| format!("{:.3} Mbit/s", bits as f64 / 1e6))
        };
        let millis = |us: u32| format!("{:.2} ms", f64::from(us) / 1e3);
        let kind = self.algorithm.split('(').next().unwrap_or_default();
        writeln!(
            out,
            "to {}: {kind}, {}; {} decides; {} reports, {} missed\n    \
             window {} bytes, paced {}, delivered {}, RTT {}, min RTT {}",
            self.remote.as_deref().unwrap_or("unknown"),
            self.phase,
            self.decides,
            self.reports,
            self.missed,
            self.cwnd_bytes,
            mbit(self.pacing_bps, "not at all"),
            mbit(self.delivery_bps, "unknown"),
            millis(self.srtt_us),
            self.min_rtt_us.map_or("unknown".to_string(), millis),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(flows: usize) -> AgentStatus {
        let flow = FlowStatus {
            name: "fb_copa".into(),
            remote: Some("192.0.2.1:443".into()),
            algorithm: "copa(flow=true)".into(),
            phase: "steering".into(),
            decides: "agent".into(),
            cwnd_bytes: 65_000,
            delivery_bps: Some(12_340_000),
            srtt_us: 50_100,
            reports: 17,
            ..FlowStatus::default()
        };
        AgentStatus {
            schema: SCHEMA,
            pid: 7,
            algorithms: vec![AlgorithmStatus {
                name: "fb_copa".into(),
                algorithm: "copa(flow=true)".into(),
                counters: vec![("dropped".into(), 3), ("refused".into(), 0)],
                slots: SlotsStatus {
                    total: 16,
                    free: 4,
                    reserved: 1,
                    beyond_share: 8,
                    holders: [(65_534, 10), (0, 2)]
                        .map(|(uid, slots)| HolderStatus { uid, slots })
                        .to_vec(),
                },
            }],
            rules: vec![":443=bbr".into()],
            recording: Some(RecordingStatus { file: "r".into(), ended: true }),
            log_lines_lost: 6,
            flows: vec![flow; flows],
            ..AgentStatus::default()
        }
    }

    #[test]
    fn the_document_survives_a_round_trip() {
        let status = sample(2);
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<AgentStatus>(&text).unwrap(), status);
    }

    #[test]
    fn table_has_two_lines_per_connection() {
        let table = sample(42).table();
        for part in [
            "fb_copa (copa(flow=true))  dropped 3\n",
            "  slots: 4 of 16 free, 1 for root alone; held by uid 65534 10, uid 0 2; 8 connections beyond \
             their user's share\n",
            "rule :443=bbr",
            "recording r: has ended",
            "\n6 lines of the log could not be written\n",
            "\nto 192.0.2.1:443: copa, steering; agent decides; 17 reports, 0 missed\n    \
             window 65000 bytes, paced not at all, delivered 12.340 Mbit/s, RTT 50.10 ms, min RTT unknown\n",
            "and 2 more",
        ] {
            assert!(table.contains(part), "{part:?} is missing in\n{table}");
        }
        assert!(!table.contains("refused"), "{table}");
        assert_eq!(table.matches("192.0.2.1:443").count(), 40);
        assert!(table.lines().all(|line| line.len() <= 120), "{table}");
    }
}
