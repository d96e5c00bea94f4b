//! ns-3 as a back end, to check the simulator: it runs a plan's links and flows and returns comparable rows.
//!
//! ```text
//! Experiment ──► Network ──► cpp/, which ns-3 runs ──► events, packets ──► Outcome ──► rows
//!   translate, qdisc   network       driver                       replay, arrivals
//! ```
//! This is a tool and not part of the product: only this back end needs ns-3 and a compiler. The simulator's
//! own meters process the events, so that a figure means the same in both. ns-3 differs from the sources of
//! some algorithms; with `stack = "ns3"` ([`forebay_sim::Stack::NS3`]) the simulator does the same.
//! [`crate::compare::ns3`] compares the simulator with stored runs of ns-3.

mod arrivals;
mod driver;
mod network;
mod qdisc;
mod replay;
mod translate;

use std::path::Path;

use forebay_core::record::{FlowRecord, HostRecord, RequestRecord, RunRecord, SAMPLED_MAX};
use forebay_core::units::Timestamp;
use forebay_scenario as plan;

pub use driver::Driver;
pub use network::{ALGORITHMS, Network, PlacedFlow, PlacedLink, Qdisc, tcp_attributes};
pub use replay::{FlowOutcome, Outcome};

use self::translate::{Place, Translation, translate};
use super::sim::{of_connection, of_link, payload, scheduled};
use super::{Backend, BackendError, RunProgress};
use crate::experiment::Experiment;
use crate::metrics::{PacketLog, RunRows};

/// The back end.
#[derive(Debug)]
pub struct Ns3 {
    driver: Driver,
}

impl Ns3 {
    /// Looks for ns-3.
    ///
    /// # Errors
    /// The errors of [`Driver::find`].
    pub fn find() -> Result<Self, BackendError> {
        Ok(Self { driver: Driver::find(None)? })
    }
}

impl Backend for Ns3 {
    fn name(&self) -> &'static str {
        super::ORACLE
    }

    fn version(&self) -> Option<String> {
        Some(format!("ns-{}", self.driver.version()))
    }

    fn jobs_max(&self) -> Option<usize> {
        None
    }

    fn is_deterministic(&self) -> bool {
        true
    }

    fn writes_files(&self) -> bool {
        true
    }

    fn check(&self, experiment: &Experiment) -> Result<(), BackendError> {
        super::refuse_costs(experiment, self.name())?;
        translate(experiment).map(drop)
    }

    fn run(
        &self,
        experiment: &Experiment,
        directory: &Path,
        progress: &mut dyn FnMut(RunProgress),
    ) -> Result<RunRows, BackendError> {
        let Translation { network, places } = translate(experiment)?;
        let outcome = self.driver.run(&network, directory, progress)?;
        Ok(rows(experiment, &places, outcome, self.driver.version()))
    }
}

/// Rows of the outcome, by the plan's flows.
fn rows(experiment: &Experiment, places: &[Place], outcome: Outcome, version: &str) -> RunRows {
    let packets = outcome.packets.into_iter();
    let packets = packets.map(|path| PacketLog::File { path, started_ns: 0 }).collect();
    let flows = outcome.flows.iter().zip(places);
    let requests = flows.flat_map(|(flow, place)| request_rows(experiment, place.flow, flow));
    let requests = requests.collect();
    let flows = outcome.flows.into_iter().zip(places);
    let links = experiment.links().zip(&outcome.links);
    let host = HostRecord { settings: vec![format!("ns-3 = {version}")], ..HostRecord::default() };
    let run = RunRecord {
        finished_ns: outcome.end.as_nanos(),
        requests,
        flows: flows.map(|(flow, place)| flow_row(experiment, *place, flow)).collect(),
        links: links.map(|(link, seen)| of_link(&link.name, seen)).collect(),
        host,
        ..RunRecord::default()
    };
    RunRows { run, packets }
}

fn request_rows(
    experiment: &Experiment,
    place: usize,
    outcome: &FlowOutcome,
) -> Vec<RequestRecord> {
    let flow = &experiment.flows[place];
    // The translation has refused schedules that cannot be drawn.
    let schedule = experiment.schedule(flow).ok().flatten().unwrap_or_default();
    let mut rows = Vec::new();
    for (index, (request, times)) in schedule.requests().iter().zip(&outcome.requests).enumerate() {
        let [sent_ns, finished_ns] = times.map(|at| at.map(Timestamp::as_nanos));
        let index = index as u32;
        let row = scheduled(flow, request);
        rows.push(RequestRecord { flow: place, index, sent_ns, finished_ns, ..row });
    }
    rows
}

fn flow_row(experiment: &Experiment, place: Place, outcome: FlowOutcome) -> FlowRecord {
    let flow = &experiment.flows[place.flow];
    let FlowOutcome { metrics, bytes_per_100ms, mut samples, .. } = outcome;
    let row = FlowRecord { flow: place.flow, index: place.index, ..FlowRecord::default() };
    match flow.traffic {
        plan::Traffic::Datagrams { packet_bytes, .. } => {
            // The links' bytes of a datagram equal the plan's frame size.
            let frame = u64::from(packet_bytes);
            FlowRecord {
                bytes: payload(metrics.received_bytes, frame),
                bytes_per_100ms: bytes_per_100ms.iter().map(|it| payload(*it, frame)).collect(),
                lost: metrics.data_packets_sent.saturating_sub(metrics.received_bytes / frame),
                ..row
            }
        }
        plan::Traffic::Requests(_) => {
            FlowRecord { bytes: metrics.received_bytes, bytes_per_100ms, ..row }
        }
        _ => {
            samples.truncate(if flow.connections() <= SAMPLED_MAX { samples.len() } else { 0 });
            let (bytes, measured) = (metrics.received_bytes, of_connection(&metrics));
            FlowRecord { bytes, bytes_per_100ms, measured, samples, ..row }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use forebay_skips::{Need, skip_without};

    use super::*;
    use crate::backend::sim::Sim;
    use crate::metrics::{Evaluation, Metrics, evaluate};
    use crate::plan::Plan;
    use crate::plan::library::Source;

    const PLAN: &str = r#"
        name = "p"
        stop = "8s"
        stack = "ns3"
        [bottleneck]
        rate = "16Mbit/s"
        rtt = "20ms"
        qdisc = { kind = "fifo", limit = "40p" }
        change = [{ at = "4s", rate = "8Mbit/s" }]
        [[flow]]
        name = "bulk"
        cc = "newreno"
        traffic = { kind = "greedy" }
        [[flow]]
        name = "cross"
        traffic = { kind = "poisson", rate = "2Mbit/s" }
    "#;

    fn evaluated(backend: &dyn Backend, experiment: &Experiment) -> Evaluation {
        let folder = tempfile::tempdir().unwrap();
        let rows = backend.run(experiment, folder.path(), &mut |_| ()).unwrap();
        evaluate(experiment, &rows).unwrap()
    }

    #[test]
    fn ns3_has_the_metrics_of_sim_within_bounds() {
        if skip_without(Need::Ns3) {
            return;
        }
        let source = Source { file: "p".into(), folder: None, text: PLAN.into() };
        let plan = Plan::from_source(source, &[]).unwrap();
        let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 3).unwrap();
        let [ours, theirs] = [&Sim::default() as &dyn Backend, &Ns3::find().unwrap()]
            .map(|it| evaluated(it, &experiment));
        let names = |metrics: &Metrics| metrics.0.keys().cloned().collect::<BTreeSet<String>>();
        assert_eq!(names(&ours.links[0].metrics), names(&theirs.links[0].metrics));
        let only = &names(&ours.flows[0].metrics) - &names(&theirs.flows[0].metrics);
        assert_eq!(only, BTreeSet::from(["mean_one_way_delay_l7".to_string()]));
        assert_eq!(
            names(&theirs.flows[0].metrics).difference(&names(&ours.flows[0].metrics)).count(),
            0
        );
        assert!(theirs.invalid.is_empty(), "{:?}", theirs.invalid);
        for (place, name, share) in [
            (0, "goodput_mbps", 0.02),
            (0, "mean_throughput_l4", 0.02),
            (0, "mean_srtt_l4", 0.04),
            (0, "mean_cwnd_l4", 0.06),
            (0, "mean_sending_rate_l7", 0.02),
            (1, "goodput_mbps", 0.02),
        ] {
            let [ours, theirs] =
                [&ours, &theirs].map(|it| it.flows[place].metrics.get(name).unwrap());
            assert!((ours / theirs - 1.0).abs() < share, "{name}: {ours}, ns-3 {theirs}");
        }
        for (name, share) in
            [("utilisation", 0.02), ("mean_qdisc_length_l2", 0.1), ("sojourn_mean_ms", 0.1)]
        {
            let [ours, theirs] = [&ours, &theirs].map(|it| it.links[0].metrics.get(name).unwrap());
            assert!((ours / theirs - 1.0).abs() < share, "{name}: {ours}, ns-3 {theirs}");
        }
    }

    #[test]
    fn requests_in_ns3_are_answered() {
        if skip_without(Need::Ns3) {
            return;
        }
        let text = r#"
            name = "p"
            stop = "4s"
            drain = "4s"
            stack = "ns3"
            bottleneck = { rate = "16Mbit/s", rtt = "20ms", qdisc = { kind = "fifo", limit = "40p" } }
            [[flow]]
            name = "web"
            cc = "cubic"
            traffic = { kind = "requests", sizes = "30KB", load = "20%", connections = "each" }
        "#;
        let source = Source { file: "p".into(), folder: None, text: text.into() };
        let plan = Plan::from_source(source, &[]).unwrap();
        let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 3).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let rows = Ns3::find().unwrap().run(&experiment, folder.path(), &mut |_| ()).unwrap();
        let requests = &rows.run.requests;
        assert!(requests.len() > 10 && requests.iter().all(|it| it.finished_ns.is_some()));
    }
}
