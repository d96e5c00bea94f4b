//! One bundle at the sendbox: its control loop, its session, and their status and log.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::bundle::decision::DecisionRows;
use forebay_core::bundle::keys::KeyRing;
use forebay_core::bundle::mtu::PathMtu;
use forebay_core::bundle::scope::Scope;
use forebay_core::bundle::sendbox::{Alarm, BundleLoad, Ceiling, Sendbox, SendboxConfig};
use forebay_core::bundle::uplink::Uplink;
use forebay_core::bundle::wire::RejectCounts;
use forebay_core::bundle::{BlockVersions, Departures, Overhead};
use forebay_core::qdisc::Backlog;
use forebay_core::random::Streams;
use forebay_core::record::{
    BundleCounters, DecisionRecord, EpochRecord, PathRecord, QueueSample, WaitRecord,
};
use forebay_core::spec::SpecError;
use forebay_core::units::{Rate, Timestamp};

use super::datapath::{Datapath, Listener, Steering};
use super::decisions::DecisionLog;
use super::meter::{Meter, Totals};
use crate::clock;
use crate::daemon::config::{BundleConfig, Peer, Role, Shaping};
use crate::daemon::messages::{Admission, Messages, Taken};
use crate::daemon::observer::names::Names;
use crate::daemon::peer::News;
use crate::daemon::schedule::Next;
use crate::daemon::status::{
    BundleStatus, MTU_FIX, PeerStatus, ShapingStatus, ShareStatus, SparseWaitStatus,
};
use crate::daemon::trace::{TraceRow, Tracer};
use crate::daemon::{scope, unguessable};
use crate::foreign_python;
use crate::log::Allowance;

/// A bundle is quiet if its queue is empty and it has sent nothing for this long. Quiet bundles tick rarely.
const QUIET_AFTER: Duration = Duration::from_secs(1);
/// Tick of a quiet bundle.
const QUIET_TICK: Duration = Duration::from_millis(100);
/// Tick of a bundle at rest: as often as a keepalive is due.
const RESTING_TICK: Duration = Duration::from_secs(1);
/// Spacing of queue samples in the trace.
const QUEUE_SAMPLE: Duration = Duration::from_millis(10);
/// Relative change of the path's least round trip that is passed to the datapath. Smaller changes are noise,
/// and parameters of a qdisc that follow the round trip have more slack.
const PATH_RTT_CHANGE: f64 = 0.05;
/// Spans of the path of all bundles together that a status has: 128 bundles have all of their own. Twice as many make a
/// status of a megabyte.
const SPANS_TOLD: usize = 4096;
/// Fewest spans of each bundle: with fewer than ten, looks of a second miss some.
const SPANS_TOLD_MIN: usize = 12;
/// Spacing of counter rows in the trace.
const COUNTER_ROW: Duration = Duration::from_secs(1);

/// Settings of all bundles of a box.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// Nothing is shaped.
    pub dry_run: bool,
    /// Rows are written.
    pub is_traced: bool,
    /// Versions of the sampling block that the datapath can build without NAT.
    pub versions: BlockVersions,
    /// Bytes that each packet gains below the WAN port.
    pub overhead: Overhead,
}

/// Stage of a bundle that is stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stopping {
    /// The bundle is not stopping.
    No,
    /// Queued packets leave at the rate in force.
    Paced,
    /// Queued packets leave at once.
    AtOnce,
}

/// One bundle.
pub struct Bundle {
    index: usize,
    config: BundleConfig,
    shaping: Shaping,
    /// Name in rows.
    name: Arc<str>,
    is_traced: bool,
    stopping: Stopping,
    is_handed_back: bool,
    control: Sendbox,
    /// The last share of the uplink.
    ceiling: Option<Ceiling>,
    /// The last steering passed to the datapath.
    steered: Option<Steering>,
    departed_at: Timestamp,
    meter: Meter,
    log: DecisionLog,
    rows: DecisionRows,
    /// The last alarm in the log.
    told: Option<Alarm>,
    /// The last path MTU in the log.
    told_mtu: Option<PathMtu>,
    /// Limits the log lines about alarms.
    alarms: Allowance,
    /// Log lines about the receivebox.
    news: News,
    next_queue_sample: Timestamp,
    next_counter_row: Timestamp,
    scratch: Vec<u8>,
}

impl Bundle {
    /// The bundle at `index` in the configuration. `seed` is random; a seed in a specification has
    /// precedence.
    pub fn new(
        index: usize,
        config: &BundleConfig,
        shaping: &Shaping,
        keys: &KeyRing,
        seed: u64,
        mode: Mode,
    ) -> Result<Self, SpecError> {
        let now = clock::now();
        let streams = Streams::new(seed).part(&config.name);
        let control = SendboxConfig {
            min_rate: shaping.min_rate,
            max_rate: shaping.max_rate,
            dry_run: mode.dry_run,
            supervised: shaping.supervised,
            time_of_day: clock::time_of_day(),
            seed: streams.stream("control").bits(),
            ..SendboxConfig::default()
        };
        let cc = foreign_python::named::build(&shaping.cc, &config.name)?;
        let session = [unguessable(), unguessable()];
        let mut control = Sendbox::new(control, cc, config.id, keys, session, now);
        control.set_versions(now, mode.versions.with_nat(config.nat));
        control.set_overhead(mode.overhead);
        control.offer_rest(now);
        control.offer_counting(now);
        Ok(Self {
            index,
            config: config.clone(),
            shaping: shaping.clone(),
            name: config.name.as_str().into(),
            is_traced: mode.is_traced,
            stopping: Stopping::No,
            is_handed_back: false,
            control,
            ceiling: None,
            steered: None,
            departed_at: Timestamp::ZERO,
            meter: Meter::default(),
            log: DecisionLog::new(mode.dry_run),
            rows: DecisionRows::default(),
            told: None,
            told_mtu: None,
            alarms: Allowance::default(),
            news: News::default(),
            next_queue_sample: now,
            next_counter_row: now + COUNTER_ROW,
            scratch: Vec::new(),
        })
    }

    /// Counts of rejected datagrams.
    pub fn rejects(&self) -> &RejectCounts {
        self.control.rejects()
    }

    /// Sets another index and configuration from now on. Name, number, peer and controller are unchanged:
    /// session and control loop go on.
    pub fn set_config(
        &mut self,
        now: Timestamp,
        index: usize,
        config: &BundleConfig,
        shaping: &Shaping,
    ) {
        let bounds = |shaping: &Shaping| (shaping.min_rate, shaping.max_rate);
        if bounds(shaping) != bounds(&self.shaping) {
            self.control.set_bounds(now, shaping.min_rate, shaping.max_rate);
        }
        self.index = index;
        self.config = config.clone();
        self.shaping = shaping.clone();
    }

    /// Notifies the peer that the bundle ends.
    pub fn say_farewell(&mut self, now: Timestamp, messages: &mut Messages) {
        self.control.stop();
        self.send_messages(now, messages);
    }

    /// Begins a new session with other keys.
    pub fn set_keys(&mut self, now: Timestamp, keys: &KeyRing) {
        self.control.restart(keys, [unguessable(), unguessable()], now);
    }

    /// Configuration of the bundle.
    pub fn config(&self) -> &BundleConfig {
        &self.config
    }

    /// Sets the packets that the box takes into the bundle from now on. Behind NAT packets have other
    /// addresses at the receivebox, so the sendbox does not send it the scope.
    pub fn set_scope(&mut self, now: Timestamp, scope: Scope) {
        if self.config.nat.is_none() {
            self.control.set_scope(now, scope);
        }
        self.say_news();
    }

    /// Probes the path MTU from now on, with packets of up to `packet_bytes`.
    pub fn look_for_mtu(&mut self, now: Timestamp, packet_bytes: u16, names: &Names) {
        let is_v6 = match &self.config.peer {
            Peer::At(address) => address.is_ipv6(),
            Peer::Named { name, .. } => {
                names.get(name).and_then(|it| it.addresses.first()).is_some_and(IpAddr::is_ipv6)
            }
        };
        self.control.look_for_mtu(now, packet_bytes, is_v6);
    }

    /// Whether the receivebox counts packets to itself, as far as is known.
    pub fn counts_boxes(&self) -> bool {
        self.control.counts_boxes()
    }

    /// Handles a datagram that claims to come from the peer; returns whether it was accepted.
    pub fn on_datagram(
        &mut self,
        now: Timestamp,
        datagram: &[u8],
        admission: Admission,
        tracer: &Tracer,
    ) -> Taken {
        if admission == Admission::Verify {
            return Taken::verified(self.control.verifies(datagram));
        }
        let opened = self.control.on_datagram(now, datagram, &mut unguessable);
        let is_heard = self.control.heard_at() == Some(now);
        let taken = Taken::of(opened, is_heard, self.control.take_answered());
        while let Some(epoch) = self.control.take_epoch() {
            if self.is_traced {
                tracer.put(&self.name, TraceRow::Epoch(EpochRecord::of(now, &epoch)));
            }
        }
        self.say_news();
        taken
    }

    fn say_news(&mut self) {
        let now = clock::now();
        loop {
            let event = self.control.take_event();
            let (name, differences) = (&self.config.name, self.control.differences());
            self.news.say(now, event, Role::Sendbox, name, differences);
            if event.is_none() {
                return;
            }
        }
    }

    fn say_mtu(&mut self) {
        let Some(found) = self.control.path_mtu().filter(|it| Some(*it) != self.told_mtu) else {
            return;
        };
        let was_below = self.told_mtu.replace(found).is_some_and(PathMtu::is_below_device);
        let (PathMtu { bytes, tried }, bundle) = (found, &self.config.name);
        if found.is_below_device() {
            tracing::warn!(
                target: "path_mtu",
                %bundle,
                bytes,
                "packets longer than {bytes} bytes do not reach the receivebox, but packets of \
                 {tried} bytes may leave: {MTU_FIX}"
            );
        } else if was_below {
            tracing::info!(target: "path_mtu", %bundle, bytes, "the longest packets that may leave \
                                                                reach the receivebox again");
        }
    }

    fn say_alarm(&mut self, now: Timestamp) {
        let alarm = self.control.alarm(now);
        // An alarm that is not logged now is logged later, if it still holds.
        if alarm == self.told || !self.alarms.takes(now) {
            return;
        }
        self.told = alarm;
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let unseen = percent(self.control.unseen());
        let out_of_order = percent(self.control.recent_order().share());
        let bundle = &self.config.name;
        match alarm {
            Some(alarm) => {
                let text = alarm.text();
                tracing::warn!(target: "bundle_alarm", %bundle, unseen, out_of_order, "{text}");
            }
            None => tracing::info!(
                target: "bundle_alarm",
                %bundle,
                unseen,
                out_of_order,
                "the receivebox sees all packets again, in order"
            ),
        }
    }

    /// Does all due work and returns when to call again.
    pub fn serve(
        &mut self,
        now: Timestamp,
        datapath: &mut impl Datapath,
        messages: &mut Messages,
        tracer: &Tracer,
    ) -> Next {
        let backlog = datapath.backlog(self.index);
        if self.tick_at(backlog) <= now {
            self.control.on_timer(now, backlog);
            let sent = self.control.sent();
            let totals = Totals { sent, delivered: self.control.delivered() };
            self.meter.update(now, backlog.bytes, totals);
            self.say_news();
            self.say_mtu();
            self.say_alarm(now);
        }
        self.steer(now, datapath);
        self.send_messages(now, messages);
        let next = datapath.serve(now, self.index, self);
        self.record(now, datapath, tracer);
        let Next::At(departure) = next else { return next };
        let sample = if self.is_traced { self.next_queue_sample } else { Timestamp::MAX };
        let tick = self.tick_at(datapath.backlog(self.index));
        Next::At(departure.min(tick).min(self.control.next_message()).min(sample))
    }

    /// Stops the bundle with the box: notifies the peer, and empties the queue.
    pub fn stop(&mut self, now: Timestamp, how: Stopping, datapath: &mut impl Datapath) {
        self.stopping = how;
        self.control.stop();
        self.steer(now, datapath);
    }

    /// The kernel forwards new packets, for this reason, and queued packets leave at once, before new ones
    /// overtake them; `None`: packets pass the queue again.
    pub fn set_handed_back(
        &mut self,
        now: Timestamp,
        reason: Option<&'static str>,
        datapath: &mut impl Datapath,
    ) {
        self.control.set_handed_back(reason);
        self.is_handed_back = reason.is_some();
        self.steer(now, datapath);
    }

    /// The rate at which packets leave now; `None`: at once.
    pub fn shaped_to(&self) -> Option<Rate> {
        self.steered?.rate
    }

    /// Bytes that the bundle has sent and would send.
    pub fn load(&self, datapath: &impl Datapath) -> BundleLoad {
        self.control.load(datapath.backlog(self.index))
    }

    /// Sets the bundle's share of the uplink from now on, if there is one. Returns whether the rate of its
    /// packets changes.
    pub fn set_ceiling(
        &mut self,
        now: Timestamp,
        ceiling: Option<Ceiling>,
        datapath: &mut impl Datapath,
    ) -> bool {
        if ceiling == self.ceiling {
            return false;
        }
        self.ceiling = ceiling;
        self.control.set_ceiling(now, ceiling);
        self.steer(now, datapath)
    }

    /// Whether the bundle's queue is empty and, at this time, it has sent nothing for a while.
    pub fn is_quiet(&self, at: Timestamp, backlog: Backlog) -> bool {
        backlog.packets == 0 && at > self.departed_at + QUIET_AFTER
    }

    fn tick_at(&self, backlog: Backlog) -> Timestamp {
        let at = self.control.next_tick();
        if self.is_traced || !self.is_quiet(at, backlog) {
            at
        } else if self.control.is_resting() {
            at + RESTING_TICK
        } else {
            at + QUIET_TICK
        }
    }

    /// Has packets leave as the controller decided; returns whether that differs from before.
    fn steer(&mut self, now: Timestamp, datapath: &mut impl Datapath) -> bool {
        let is_free = self.is_handed_back || self.stopping == Stopping::AtOnce;
        let steering = Steering {
            rate: if is_free { None } else { self.control.rate() },
            epoch_size: self.control.epoch_size(),
            sampling_key: self.control.sampling_key(),
            // Without a common version nothing is matched, so any version will do.
            version: self.control.block_version().unwrap_or_default(),
            path_rtt: followed(self.steered.and_then(|it| it.path_rtt), self.control.path_rtt()),
        };
        let is_new = self.steered.replace(steering) != Some(steering);
        if is_new {
            datapath.steer(now, self.index, &steering);
        }
        is_new
    }

    fn send_messages(&mut self, now: Timestamp, messages: &mut Messages) {
        while self.control.poll(now, &mut self.scratch) {
            messages.send(self.index, &self.scratch);
        }
        while let Some((to, nonce)) = messages.challenge_due(self.index) {
            self.control.challenge_at(nonce, &mut self.scratch);
            messages.send_to(to, &self.scratch);
        }
    }

    fn record(&mut self, now: Timestamp, datapath: &impl Datapath, tracer: &Tracer) {
        if let Some(decision) = self.control.take_decision() {
            self.log.note(now, decision, &self.config.name);
            if self.is_traced && self.rows.takes(now, &decision) {
                tracer.put(&self.name, TraceRow::Decision(DecisionRecord::of(now, &decision)));
            }
        }
        if self.is_traced
            && let Some(waits) = self.control.take_waits().and_then(WaitRecord::of)
        {
            tracer.put(&self.name, TraceRow::Waits(waits));
        }
        if self.is_traced && now >= self.next_queue_sample {
            tracer.put(
                &self.name,
                TraceRow::Queue(QueueSample::of(now, datapath.backlog(self.index))),
            );
            // Evenly spaced, unless the box was delayed for longer.
            self.next_queue_sample = (self.next_queue_sample + QUEUE_SAMPLE).max(now);
        }
        if self.is_traced && now >= self.next_counter_row {
            self.put_counters(datapath, tracer);
            self.next_counter_row = now + COUNTER_ROW;
        }
    }

    /// Writes the current counters.
    pub fn put_counters(&self, datapath: &impl Datapath, tracer: &Tracer) {
        tracer.put(&self.name, TraceRow::Counters(self.counters(datapath)));
    }

    fn counters(&self, datapath: &impl Datapath) -> BundleCounters {
        let queue = datapath.queue(self.index);
        let counters = BundleCounters::of(&self.control, queue.dropped);
        BundleCounters { lateness_ns: queue.lateness_ns, ..counters }
    }

    /// Status of the bundle, one of `bundles` that share `uplink`. `peer_address` is the state of its peer's
    /// address.
    pub fn status(
        &self,
        now: Timestamp,
        datapath: &impl Datapath,
        uplink: Option<&Uplink>,
        bundles: usize,
        peer_address: PeerStatus,
    ) -> BundleStatus {
        let counters = self.control.counters();
        let queue = datapath.queue(self.index);
        let (peer, heard) = (self.control.peer(), self.control.heard_at());
        BundleStatus {
            name: self.config.name.clone(),
            id: self.config.id.0,
            peer: PeerStatus {
                state: peer.liveness().name().into(),
                doing: peer.state().map(|state| state.name().into()),
                heard_ns: heard.map(|at| now.saturating_since(at).as_nanos() as u64),
                path_mtu: self.control.path_mtu().map(Into::into),
                ..peer_address
            },
            epoch_packets: self.control.epoch_size().packets(),
            packets: counters.packets_sent,
            bytes: counters.bytes_sent.as_u64(),
            differences: self
                .control
                .differences()
                .map(|differences| scope::sentences(Role::Sendbox, differences)),
            shaping: Some(ShapingStatus {
                cc: self.shaping.cc.to_string(),
                qdisc: datapath
                    .discipline()
                    .map_or_else(|| self.shaping.qdisc.to_string(), Into::into),
                min_rate_bps: self.control.min_rate().as_bits_per_sec(),
                max_rate_bps: self.shaping.max_rate.map(Rate::as_bits_per_sec),
                decision: DecisionRecord::of(now, &self.control.decision()),
                share: uplink.map(|uplink| ShareStatus::of(uplink, self.index)),
                alarm: self.control.alarm(now).map(|alarm| alarm.text().into()),
                unseen: self.control.unseen(),
                queue: QueueSample::of(now, datapath.backlog(self.index)),
                flows: queue.flows,
                last_second: self.meter.last(),
                sparse_wait: SparseWaitStatus::of(self.control.waits()),
                saves_ns: self.control.saves().map(|saved| saved.as_nanos() as u64),
                varies_ns: self.control.varies().map(|noise| noise.as_nanos() as u64),
                counters: self.counters(datapath),
                marks_queue: queue.marked,
                out_of_order: self.control.recent_order().share(),
                reports_unmatched: counters.reports_unmatched,
                reports_ambiguous: counters.reports_ambiguous,
                decisions: self.log.records(bundles),
                path: self.path_records(bundles),
            }),
            watching: None,
        }
    }
}

impl Bundle {
    /// The newest spans of the path, one of so many bundles.
    fn path_records(&self, bundles: usize) -> Vec<PathRecord> {
        let spans = self.control.path_spans();
        let told = (SPANS_TOLD / bundles.max(1)).max(SPANS_TOLD_MIN);
        let older = spans.len().saturating_sub(told);
        spans.iter().skip(older).map(PathRecord::of).collect()
    }
}

impl Listener for Bundle {
    fn on_departures(&mut self, sent: &Departures) {
        self.departed_at = sent.at;
        self.control.on_departures(sent);
    }

    fn on_queue(&mut self, now: Timestamp, backlog: Backlog) {
        self.control.on_queue(now, backlog);
    }

    fn on_wait(&mut self, wait: Duration) {
        self.control.on_wait(wait);
    }
}

/// The least round trip for the datapath to follow, given that it follows `before`.
fn followed(before: Option<Duration>, least: Option<Duration>) -> Option<Duration> {
    match (before, least) {
        (Some(before), Some(least)) if least.abs_diff(before) > before.mul_f64(PATH_RTT_CHANGE) => {
            Some(least)
        }
        (before, least) => before.or(least),
    }
}

#[cfg(test)]
mod tests {
    use super::super::datapath::stub::Stub;
    use super::super::tests::config;
    use super::*;
    use crate::daemon::{keys, trace};
    use crate::service::privileges::Confinement;

    #[test]
    fn datapath_learns_of_rtt_changes_above_a_twentieth() {
        let ms = |ms: f64| Some(Duration::from_secs_f64(ms / 1e3));
        for (before, least, expected) in [
            (None, None, None),
            (None, ms(40.0), ms(40.0)),
            (ms(40.0), ms(41.9), ms(40.0)),
            (ms(40.0), ms(38.1), ms(40.0)),
            (ms(40.0), ms(42.1), ms(42.1)),
            (ms(40.0), ms(10.0), ms(10.0)),
            (ms(40.0), None, ms(40.0)),
        ] {
            assert_eq!(followed(before, least), expected, "{before:?} {least:?}");
        }
    }

    #[test]
    fn status_and_trace_show_that_the_kernel_forwards() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let bundle = &config.bundles[0];
        let keys = keys::load(&bundle.key_file).unwrap();
        let overhead = Overhead::default();
        let mode = Mode { dry_run: false, is_traced: true, versions: BlockVersions::ALL, overhead };
        let shaping = bundle.shaping.as_ref().unwrap();
        let mut bundle = Bundle::new(0, bundle, shaping, &keys, 1, mode).unwrap();
        let (tracer, writer) = trace::start(&config, &Confinement::default()).unwrap();
        let now = clock::now();
        let mut stub = Stub::default();
        bundle.steer(now, &mut stub);
        let mut said = Vec::new();
        for reason in [None, Some("the WAN port takes no packets"), Some("another"), None] {
            bundle.set_handed_back(now, reason, &mut stub);
            bundle.record(now, &stub, &tracer);
            let status = bundle.status(now, &stub, None, 1, PeerStatus::default());
            let decision = status.shaping.unwrap().decision;
            assert_eq!(reason.is_none(), stub.kernel().steering.unwrap().rate.is_some());
            assert_eq!(reason.is_none(), decision.rate_bps.is_some(), "{decision:?}");
            said.push((decision.state, decision.reason));
        }
        assert_eq!(said[1], ("handed_back".into(), "the WAN port takes no packets".into()));
        drop(tracer);
        writer.finish().unwrap();
        let rows = &trace::read(&folder.path().join("trace")).unwrap()[0].decisions;
        let traced: Vec<_> =
            rows.iter().map(|row| (row.state.clone(), row.reason.clone())).collect();
        assert_eq!(traced, said);
        let shaped: Vec<bool> = rows.iter().map(|row| row.rate_bps.is_some()).collect();
        assert_eq!(shaped, [true, false, false, true]);
    }
}
