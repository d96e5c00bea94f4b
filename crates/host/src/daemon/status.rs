//! Status of a running box: one document, the same for `forebay status` and `--json`.

mod brief;

use forebay_core::bundle::mtu::PathMtu;
use forebay_core::bundle::sendbox::Ceiling;
use forebay_core::bundle::uplink::Uplink;
use forebay_core::bundle::waits::WaitSecond;
use forebay_core::record::{BundleCounters, DecisionRecord, PathRecord, QueueSample};
use forebay_core::units::Rate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conditions::FailedCondition;
use super::config::Role;
use crate::log::LOST_LINES;

/// Version of [`Status`]; it grows when a field changes its meaning or is removed.
pub const SCHEMA: u32 = 3;

/// The state of a box.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Version of this part of the document: it grows when a field changes its meaning or is removed.
    pub schema: u32,
    /// Version of the program.
    pub version: String,
    /// Sendbox or receivebox.
    pub role: Role,
    /// Process of the box.
    pub pid: u32,
    /// Now, on `CLOCK_MONOTONIC` (ns).
    pub at_ns: u64,
    /// Time since the start (ns).
    pub uptime_ns: u64,
    /// The box measures and decides but does not shape.
    pub dry_run: bool,
    /// The packet thread runs under SCHED_FIFO.
    pub realtime: bool,
    /// Failed conditions of the devices. While there is one, a sendbox leaves the packets to the kernel, and
    /// a receivebox reports nothing.
    #[serde(default, alias = "void")]
    pub failed_conditions: Vec<FailedCondition>,
    /// Datapath that `box.datapath = "auto"` selects on this machine, and why; `None`: the file names a
    /// datapath.
    #[serde(default)]
    pub datapath: Option<String>,
    /// Bytes that each packet of a sendbox gains below the port towards the Internet, which all rates count.
    #[serde(default)]
    pub overhead_bytes: u16,
    /// Parts of the routes of a sendbox's machine that may lead packets of bundles elsewhere or by several
    /// ways, such as multipath routes and rules.
    #[serde(default)]
    pub routing: Vec<String>,
    /// Devices, and the mode in which packets are taken from them.
    pub ports: Vec<PortStatus>,
    /// Datagrams of all bundles.
    pub messages: MessageCounters,
    /// Trace rows dropped because the writer's queue was full.
    pub trace_rows_lost: u64,
    /// Lines of the log that could not be written.
    #[serde(default)]
    pub log_lines_lost: u64,
    /// Rate that all bundles of a sendbox share (bits per second); `None`: they share no rate.
    #[serde(default)]
    pub uplink_bps: Option<u64>,
    /// The configuration file of the box.
    #[serde(default)]
    pub config_file: String,
    /// A change that the box reverts unless it is confirmed.
    #[serde(default)]
    pub trial: Option<TrialStatus>,
    /// The bundles, in the order of the configuration.
    pub bundles: Vec<BundleStatus>,
}

/// A change that has not been confirmed yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrialStatus {
    /// Time until the box reverts it (s).
    pub left_s: u64,
    /// The change, in words.
    pub what: String,
    /// The box itself is on trial, which ends unless its start is confirmed.
    #[serde(default)]
    pub is_start: bool,
}

/// One device of a box.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortStatus {
    /// Device name.
    pub device: String,
    /// `xdp native`, `xdp generic`, `xdp transmit`, `tcx` or `packet socket`. With packets in the kernel:
    /// `bridge` or `route`, where the device may be `any`, and `htb`. Behind AF_XDP also `zero copy`, the
    /// number of queues that are read, and `reader threads`.
    pub mode: String,
    /// Named counters since the start, such as frames handed to the box, or passed to the kernel because they
    /// are outside every bundle.
    pub counters: Vec<(String, u64)>,
}

/// Messages sent and received on the message socket, by outcome. Messages of bundles at rest share datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessageCounters {
    /// Messages sent.
    pub sent: u64,
    /// Bytes sent, UDP payload.
    pub sent_bytes: u64,
    /// Messages received, whatever the outcome.
    pub received: u64,
    /// Bytes received, UDP payload.
    pub received_bytes: u64,
    /// Accepted as authentic and new.
    pub accepted: u64,
    /// Rejected, by reason.
    pub rejected: Vec<(String, u64)>,
}

impl MessageCounters {
    /// Rejected since `earlier`, by reason.
    pub fn rejected_since(&self, earlier: &Self) -> Vec<(String, u64)> {
        let before = |reason: &str| {
            earlier.rejected.iter().find(|(name, _)| name == reason).map_or(0, |(_, count)| *count)
        };
        let rejected = self.rejected.iter();
        rejected.map(|(name, count)| (name.clone(), count.saturating_sub(before(name)))).collect()
    }

    /// Counts rejected datagrams under `reason`, one of a fixed few.
    pub fn add_rejected(&mut self, reason: &'static str, count: u64) {
        match self.rejected.iter_mut().find(|(name, _)| name == reason) {
            Some((_, total)) => *total += count,
            None if count == 0 => {}
            None => self.rejected.push((reason.to_string(), count)),
        }
    }
}

/// One bundle of a box.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BundleStatus {
    /// Name of the bundle.
    pub name: String,
    /// Number in the messages.
    pub id: u16,
    /// The other box.
    pub peer: PeerStatus,
    /// Epoch size in force (packets).
    pub epoch_packets: u32,
    /// Packets sent by the sendbox, or seen by the receivebox.
    pub packets: u64,
    /// Their bytes, as layer-2 frames without FCS.
    pub bytes: u64,
    /// Differences in the packets that the two boxes count to the bundle; `None`: the other box has not
    /// reported yet.
    #[serde(default)]
    pub differences: Option<Vec<String>>,
    /// Fields of a sendbox only.
    pub shaping: Option<ShapingStatus>,
    /// Fields of a receivebox only.
    pub watching: Option<WatchingStatus>,
}

/// State of the other box, according to its authentic messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PeerStatus {
    /// Address of the peer.
    pub address: String,
    /// `waiting` (never heard), `alive` or `silent`.
    pub state: String,
    /// Activity that it reports: `measuring`, `shaping`, `dry_run`, `watching`, `resting` or `stopping`.
    pub doing: Option<String>,
    /// Time since its last authentic message (ns); `None`: never heard.
    pub heard_ns: Option<u64>,
    /// The last move of the other box to another address; `None`: it has not moved since the box started.
    #[serde(default)]
    pub moved: Option<MovedStatus>,
    /// Another address that its authentic messages come from. The box sends only challenges there.
    #[serde(default)]
    pub elsewhere: Option<String>,
    /// The largest packets that arrive at a receivebox; `None`: not known.
    #[serde(default)]
    pub path_mtu: Option<PathMtuStatus>,
}

/// The path MTU between the boxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathMtuStatus {
    /// Bytes of the largest IP packet that came through.
    pub bytes: u16,
    /// Bytes of the largest packet that was tried: the MTU of the port towards the Internet, or 9216 if that
    /// is more.
    pub tried: u16,
}

impl From<PathMtu> for PathMtuStatus {
    fn from(PathMtu { bytes, tried }: PathMtu) -> Self {
        Self { bytes, tried }
    }
}

/// Advice about packets that are too long for the path.
pub const MTU_FIX: &str =
    "set this MTU on the hosts' routes or on the port, or clamp the MSS of TCP to it";

/// A move of the other box to another address, where it has answered a challenge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MovedStatus {
    /// Address and port before.
    pub from: String,
    /// Address and port from then on.
    pub to: String,
    /// Time since then (ns).
    pub ago_ns: u64,
}

impl PeerStatus {
    /// The last move of the other box, and the other place where it seems to be, in sentences.
    pub fn whereabouts(&self) -> impl Iterator<Item = String> {
        let moved = self.moved.iter().map(|MovedStatus { from, to, ago_ns }| {
            format!("The other box has moved from {from} to {to}, {} ago.", seconds(*ago_ns))
        });
        let elsewhere = self.elsewhere.iter().map(|elsewhere| {
            format!(
                "Authentic messages come from {elsewhere}, where the other box has not answered: \
                 this box still sends to {}.",
                self.address
            )
        });
        moved.chain(elsewhere)
    }

    /// The known path MTU, in a sentence.
    pub fn mtu(&self) -> Option<String> {
        let PathMtuStatus { bytes, tried } = self.path_mtu?;
        Some(if bytes < tried {
            format!(
                "Packets longer than {bytes} bytes do not reach the receivebox, but packets of \
                 {tried} bytes may leave: {MTU_FIX}."
            )
        } else {
            format!("Packets of {bytes} bytes, the longest that may leave, reach the receivebox.")
        })
    }
}

/// A bundle at the sendbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ShapingStatus {
    /// Algorithm with its parameters.
    pub cc: String,
    /// Qdisc with its parameters.
    pub qdisc: String,
    /// Lower bound of the rate, set by the operator or derived from the path (bits per second).
    pub min_rate_bps: u64,
    /// The operator's upper bound of the rate (bits per second), if there is one.
    pub max_rate_bps: Option<u64>,
    /// The newest decision: rate, window, estimates, state and reason.
    pub decision: DecisionRecord,
    /// The bundle's share of the uplink, if there is one.
    pub share: Option<ShareStatus>,
    /// A problem for the operator to look into.
    #[serde(default)]
    pub alarm: Option<String>,
    /// Share of departures that the receivebox does not see, at any rate (0 to 1).
    #[serde(default)]
    pub unseen: f64,
    /// The sendbox's own queue now.
    pub queue: QueueSample,
    /// Flows in the own queue now; `None`: its discipline does not distinguish flows.
    pub flows: Option<u32>,
    /// Bytes that left and arrived, and how long bytes waited in the own queue.
    pub last_second: LastSecond,
    /// Waits of packets of sparse flows in the own queue in the last second.
    pub sparse_wait: SparseWaitStatus,
    /// Time by which shaping shortens the delay of a sparse flow (ns); `None`: not measured.
    pub saves_ns: Option<u64>,
    /// Variation of the path's delay without a queue (ns): shorter queues cannot be detected. `None`: it
    /// varies by less than a queue that matters.
    pub varies_ns: Option<u64>,
    /// Counters that the trace has, too.
    #[serde(flatten)]
    pub counters: BundleCounters,
    /// Packets that the own queue marked congestion experienced instead of dropping them.
    pub marks_queue: u64,
    /// Share of packets in the last 4 s that were late (0 to 1).
    pub out_of_order: f64,
    /// Reports that matched no boundary.
    pub reports_unmatched: u64,
    /// Reports of packets that looked alike, so that the match is ambiguous.
    pub reports_ambiguous: u64,
    /// The newest decisions, oldest first: up to 64, and fewer per bundle if there are many bundles.
    pub decisions: Vec<DecisionRecord>,
    /// What the path carried in the newest spans of 100 ms, oldest first: up to 32, and fewer of each where there are many
    /// bundles. Empty of a bundle at rest.
    pub path: Vec<PathRecord>,
}

/// Averages over the last whole second; all 0 or unknown before the end of the first second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastSecond {
    /// Rate of the bytes that left the sendbox (bits per second).
    pub sent_bps: u64,
    /// Rate of the bytes that the receivebox has reported (bits per second).
    pub delivered_bps: u64,
    /// Wait of bytes in the sendbox's own queue (ns); `None`: no byte left.
    pub queue_delay_ns: Option<u64>,
}

/// Waits of sparse flows in the own queue over the last whole second. A packet counts if its flow had nothing
/// else in the queue when it came: pings, calls and the first packets of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SparseWaitStatus {
    /// Packets that counted.
    pub packets: u64,
    /// Median (ns); `None`: no packet counted.
    pub p50_ns: Option<u64>,
    /// 99th percentile (ns); `None`: no packet counted.
    pub p99_ns: Option<u64>,
}

impl SparseWaitStatus {
    /// The waits of one second.
    pub fn of(second: &WaitSecond) -> Self {
        let [p50_ns, p99_ns] =
            [second.p50, second.p99].map(|wait| wait.map(|wait| wait.as_nanos() as u64));
        Self { packets: second.count, p50_ns, p99_ns }
    }
}

/// A bundle's share of the uplink now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ShareStatus {
    /// Rate that the bundle may use (bits per second).
    pub rate_bps: u64,
    /// Share of the uplink's rate that the bundle may use (0 to 1).
    pub share: f64,
    /// Weight among its siblings.
    pub weight: u32,
    /// Rate that the bundle is guaranteed (bits per second).
    pub guarantee_bps: Option<u64>,
    /// The bundle needs more, but other bundles use it.
    pub is_short: bool,
}

impl ShareStatus {
    /// The share that the bundle at this index has of an uplink.
    pub fn of(uplink: &Uplink, bundle: usize) -> Self {
        let Ceiling { rate, is_short } = uplink.ceiling(bundle);
        let (weight, guarantee) = uplink.share(bundle);
        Self {
            rate_bps: rate.as_bits_per_sec(),
            share: rate.as_bytes_per_sec_f64() / uplink.rate().as_bytes_per_sec_f64(),
            weight,
            guarantee_bps: guarantee.map(Rate::as_bits_per_sec),
            is_short,
        }
    }
}

/// A bundle at the receivebox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WatchingStatus {
    /// A problem for the operator to look into.
    #[serde(default)]
    pub alarm: Option<String>,
    /// Boundaries reported.
    pub reports: u64,
    /// Datagrams that carried the reports.
    pub datagrams: u64,
    /// Reports dropped because too many waited for the limit on messages.
    pub dropped: u64,
    /// Boundaries seen while there was no sendbox to report to.
    pub without_sendbox: u64,
}

impl Status {
    /// The state of a box of this program and process, with all counters at zero.
    pub fn new(role: Role, dry_run: bool) -> Self {
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").into(),
            role,
            pid: std::process::id(),
            at_ns: 0,
            uptime_ns: 0,
            dry_run,
            realtime: false,
            failed_conditions: Vec::new(),
            datapath: None,
            overhead_bytes: 0,
            routing: Vec::new(),
            ports: Vec::new(),
            messages: MessageCounters::default(),
            trace_rows_lost: 0,
            log_lines_lost: 0,
            uplink_bps: None,
            config_file: String::new(),
            trial: None,
            bundles: Vec::new(),
        }
    }

    /// The table that `forebay status` prints.
    pub fn table(&self) -> String {
        let mut text = String::new();
        self.write_table(&mut text).expect("writing to a string cannot fail");
        text
    }

    fn write_table(&self, out: &mut impl std::fmt::Write) -> std::fmt::Result {
        let dry = if self.dry_run { ", dry run: nothing is shaped" } else { "" };
        let realtime = if self.realtime { "SCHED_FIFO" } else { "normal scheduling" };
        writeln!(
            out,
            "forebay {} {}, pid {}, up {}, {realtime}{dry}",
            self.role,
            self.version,
            self.pid,
            seconds(self.uptime_ns)
        )?;
        if let Some(TrialStatus { left_s, what, is_start }) = &self.trial {
            let then = if *is_start { "the box ends" } else { "reverts" };
            writeln!(out, "on trial: {what}: {then} in {left_s} s, unless you confirm")?;
        }
        for failed in &self.failed_conditions {
            writeln!(out, "{} does not hold: {failed}", failed.condition)?;
        }
        if let Some(datapath) = &self.datapath {
            writeln!(out, "datapath {datapath}")?;
        }
        if self.overhead_bytes > 0 {
            writeln!(out, "rates include an overhead of {} bytes per packet", self.overhead_bytes)?;
        }
        for way in &self.routing {
            writeln!(out, "routing: {way}")?;
        }
        for port in &self.ports {
            let counters = port.counters.iter().filter(|(_, count)| *count > 0);
            let counters = counters.map(|(name, count)| format!("  {name} {count}"));
            writeln!(out, "{}", in_lines(format!("{} ({})", port.device, port.mode), counters))?;
        }
        let messages = &self.messages;
        let taken = format!("messages: {} sent, {} accepted", messages.sent, messages.accepted);
        let rejected =
            messages.rejected.iter().map(|(reason, count)| format!(", {count} {reason}"));
        writeln!(out, "{}", in_lines(taken, rejected))?;
        if let Some(rate) = self.uplink_bps {
            writeln!(out, "uplink: {}", mbit(rate))?;
        }
        for (lost, of_what) in
            [(self.trace_rows_lost, "rows of the trace"), (self.log_lines_lost, LOST_LINES)]
        {
            if lost > 0 {
                writeln!(out, "{lost} {of_what} could not be written")?;
            }
        }
        if self.bundles.len() > brief::MOST_IN_FULL {
            return brief::write(out, &self.bundles);
        }
        // Mode of the port at which the kernel queues, if it does.
        let in_kernel = self.ports.iter().map(|port| &*port.mode).find(|it| it.starts_with(HTB));
        self.bundles.iter().try_for_each(|bundle| bundle.write_table(out, self.at_ns, in_kernel))
    }
}

/// Prefix of the mode of a port at which the kernel queues.
pub const HTB: &str = "htb, ";

impl BundleStatus {
    fn write_table(
        &self,
        out: &mut impl std::fmt::Write,
        now_ns: u64,
        in_kernel: Option<&str>,
    ) -> std::fmt::Result {
        let heard = match self.peer.heard_ns {
            Some(ns) => format!("heard {} ago", millis(Some(ns))),
            None => "never heard".into(),
        };
        let doing = self.peer.doing.as_deref().unwrap_or("unknown");
        writeln!(
            out,
            "\nbundle {} (id {}), peer {} {} ({doing}), {heard}",
            self.name, self.id, self.peer.address, self.peer.state
        )?;
        let mut row = |name: &str, value: String| writeln!(out, "  {name:<18}{value}");
        row("packets", format!("{} ({} bytes)", self.packets, self.bytes))?;
        row("epoch size", format!("{} packets", self.epoch_packets))?;
        for difference in self.differences.iter().flatten() {
            row("difference", difference.clone())?;
        }
        for sentence in self.peer.whereabouts() {
            row("address", sentence)?;
        }
        if let Some(sentence) = self.peer.mtu() {
            row("path MTU", sentence)?;
        }
        if let Some(watching) = &self.watching {
            if let Some(alarm) = &watching.alarm {
                row("alarm", alarm.clone())?;
            }
            row(
                "reports",
                format!(
                    "{} in {} datagrams, {} given up, {} without a sendbox",
                    watching.reports,
                    watching.datagrams,
                    watching.dropped,
                    watching.without_sendbox
                ),
            )?;
        }
        let Some(shaping) = &self.shaping else { return Ok(()) };
        let decision = &shaping.decision;
        row("algorithm", format!("{} over {}", shaping.cc, in_kernel.unwrap_or(&shaping.qdisc)))?;
        row("state", format!("{}: {}", decision.state, decision.reason))?;
        if let Some(alarm) = &shaping.alarm {
            row("alarm", alarm.clone())?;
        }
        if shaping.unseen > 0.0 {
            row("unseen", format!("{:.0} % of the sent bytes", 100.0 * shaping.unseen))?;
        }
        row("rate", decision.rate_bps.map_or("unshaped".into(), mbit))?;
        if let Some(ShareStatus { rate_bps, share, .. }) = shaping.share {
            row("share", format!("{}, {:.1} % of the uplink", mbit(rate_bps), 100.0 * share))?;
        }
        let LastSecond { sent_bps, delivered_bps, queue_delay_ns } = shaping.last_second;
        row(
            "delivered",
            format!("{} of {} sent, last second", mbit(delivered_bps), mbit(sent_bps)),
        )?;
        let (QueueSample { packets, bytes: queued, .. }, waited) =
            (shaping.queue, millis(queue_delay_ns));
        let flows = shaping.flows.map_or(String::new(), |flows| format!(" of {flows} flows"));
        row(
            "own queue",
            format!("{packets} packets{flows}, {queued} bytes; delay {waited}, last second"),
        )?;
        let SparseWaitStatus { packets, p50_ns, p99_ns } = shaping.sparse_wait;
        if packets > 0 {
            let [p50, p99] = [p50_ns, p99_ns].map(millis);
            let waits = format!("p50 {p50}, p99 {p99}; {packets} packets, last second");
            row("sparse flows wait", waits)?;
        }
        if let Some(saved) = shaping.saves_ns {
            row("shaping saves", millis(Some(saved)))?;
        }
        if let Some(varies) = shaping.varies_ns {
            row("path's delay", format!("varies by {}", millis(Some(varies))))?;
        }
        let counters = &shaping.counters;
        let (drops, marks) = (counters.drops_queue, shaping.marks_queue);
        row("drops", format!("{drops} packets, {marks} marked instead"))?;
        row("bottleneck", decision.bottleneck_bps.map_or("unknown".into(), mbit))?;
        row("min RTT", millis(decision.min_rtt_ns))?;
        row("queue beyond", format!("delay {}", millis(decision.queue_delay_ns)))?;
        row("window", bytes(decision.cwnd_bytes))?;
        row("in flight", bytes(decision.in_flight_bytes))?;
        row(
            "boundaries",
            format!(
                "{} of {} matched, {} reports unmatched, {} ambiguous",
                counters.boundaries_matched,
                counters.boundaries_sent,
                shaping.reports_unmatched,
                shaping.reports_ambiguous
            ),
        )?;
        if counters.boundaries_late > 0 {
            let recent = 100.0 * shaping.out_of_order;
            let late = counters.boundaries_late;
            row("out of order", format!("{late} boundaries, {recent:.1} % in the last 4 s"))?;
        }
        let [p50, p99, _, max] = counters.lateness_ns.map(|ns| ns / 1000);
        row("send lateness", format!("p50 {p50} us, p99 {p99} us, max {max} us"))?;
        // The last five: the JSON document has the whole list.
        for decision in shaping.decisions.iter().rev().take(5).rev() {
            writeln!(
                out,
                "    {:>9} ago  {:>14}  {}: {}",
                seconds(now_ns.saturating_sub(decision.at_ns)),
                decision.rate_bps.map_or("unshaped".into(), mbit),
                decision.state,
                decision.reason
            )?;
        }
        Ok(())
    }
}

/// Longest line of a list, in characters.
const LINE_MAX: usize = 120;

/// Joins `first` and `rest` in a line, or in several lines if one gets too long.
fn in_lines(first: String, rest: impl Iterator<Item = String>) -> String {
    let (mut length, mut text) = (first.len(), first);
    for part in rest {
        if length + part.len() > LINE_MAX {
            text += "\n  ";
            length = 2;
        }
        text += &part;
        length += part.len();
    }
    text
}

pub(super) fn mbit(bits_per_sec: u64) -> String {
    format!("{:.3} Mbit/s", bits_per_sec as f64 / 1e6)
}

pub(super) fn millis(ns: Option<u64>) -> String {
    ns.map_or("unknown".into(), |ns| format!("{:.2} ms", ns as f64 / 1e6))
}

pub(super) fn seconds(ns: u64) -> String {
    format!("{:.1} s", ns as f64 / 1e9)
}

fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or("unknown".into(), |bytes| format!("{bytes} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Status {
        let decision = DecisionRecord {
            at_ns: 4_000_000_000,
            rate_bps: Some(95_900_000),
            cwnd_bytes: Some(615_000),
            min_rtt_ns: Some(50_100_000),
            state: "shaping".into(),
            reason: "window law".into(),
            ..DecisionRecord::default()
        };
        let mut messages = MessageCounters { sent: 7, accepted: 5, ..MessageCounters::default() };
        messages.add_rejected("forged", 1);
        messages.add_rejected("forged", 1);
        Status {
            at_ns: 5_000_000_000,
            uptime_ns: 3_000_000_000,
            messages,
            log_lines_lost: 6,
            uplink_bps: Some(400_000_000),
            trial: Some(TrialStatus { left_s: 34, what: "1 changed".into(), is_start: false }),
            bundles: vec![BundleStatus {
                name: "b".into(),
                differences: Some(vec!["`to` differs".into()]),
                shaping: Some(ShapingStatus {
                    decision: decision.clone(),
                    share: Some(ShareStatus {
                        rate_bps: 100_000_000,
                        share: 0.25,
                        ..ShareStatus::default()
                    }),
                    alarm: None,
                    decisions: vec![decision],
                    counters: BundleCounters {
                        drops_queue: 4,
                        boundaries_late: 12,
                        ..BundleCounters::default()
                    },
                    marks_queue: 9,
                    last_second: LastSecond {
                        sent_bps: 94_000_000,
                        delivered_bps: 93_500_000,
                        queue_delay_ns: Some(12_340_000),
                    },
                    sparse_wait: SparseWaitStatus {
                        packets: 40,
                        p50_ns: Some(1_500_000),
                        p99_ns: Some(20_000_000),
                    },
                    saves_ns: Some(31_000_000),
                    varies_ns: Some(7_000_000),
                    reports_ambiguous: 3,
                    out_of_order: 0.25,
                    ..ShapingStatus::default()
                }),
                ..BundleStatus::default()
            }],
            ..Status::new(Role::Sendbox, true)
        }
    }

    #[test]
    fn the_document_survives_a_round_trip() {
        let status = sample();
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
    }

    #[test]
    fn absent_counters_are_zero() {
        let mut document = serde_json::to_value(sample()).unwrap();
        let shaping = document["bundles"][0]["shaping"].as_object_mut().unwrap();
        assert!(
            shaping.remove("packets_sent").is_some() && shaping.remove("boundaries_late").is_some()
        );
        let status: Status = serde_json::from_value(document).unwrap();
        let counters = status.bundles[0].shaping.as_ref().unwrap().counters;
        assert_eq!(
            (counters.packets_sent, counters.boundaries_late, counters.drops_queue),
            (0, 0, 4)
        );
    }

    #[test]
    fn many_counters_go_on_in_another_line() {
        let counters = (0..40).map(|i| (format!("counter_{i}"), 1_000_000));
        let port = PortStatus { counters: counters.collect(), ..PortStatus::default() };
        let table = Status { ports: vec![port], ..sample() }.table();
        assert!(
            table.contains("\n    counter_") && table.contains("counter_39 1000000"),
            "{table}"
        );
        assert!(table.lines().all(|line| line.len() <= LINE_MAX), "{table}");
    }

    #[test]
    fn table_shows_rate_reason_and_unknown_values() {
        let table = sample().table();
        for part in [
            "dry run",
            "2 forged",
            "\n6 lines of the log could not be written\n",
            "\non trial: 1 changed: reverts in 34 s, unless you confirm\n",
            "bundle b",
            "never heard",
            "difference        `to` differs",
            "95.900 Mbit/s",
            "\nuplink: 400.000 Mbit/s\n",
            "share             100.000 Mbit/s, 25.0 % of the uplink",
            "shaping: window law",
            "delivered         93.500 Mbit/s of 94.000 Mbit/s sent, last second",
            "own queue         0 packets, 0 bytes; delay 12.34 ms, last second",
            "queue beyond      delay unknown",
            "bottleneck        unknown",
            "min RTT           50.10 ms",
            "sparse flows wait p50 1.50 ms, p99 20.00 ms; 40 packets, last second",
            "shaping saves     31.00 ms",
            "path's delay      varies by 7.00 ms",
            "1.0 s ago",
            "4 packets, 9 marked instead",
            "0 reports unmatched, 3 ambiguous",
            "out of order      12 boundaries, 25.0 % in the last 4 s",
        ] {
            assert!(table.contains(part), "{part:?} is missing in\n{table}");
        }
    }
}
