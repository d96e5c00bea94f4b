//! Traffic in the form that hosts generate: a flow of a scenario, or one of its separately started
//! connections.

use std::ops::Deref;

use forebay_core::random::Streams;
use forebay_core::spec::SpecError;
use forebay_core::traffic;
use forebay_core::units::Duration;
use forebay_scenario::{Flow, Platform, Scenario, Traffic};
use serde::{Deserialize, Serialize};

/// The traffic of one listening port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Workload {
    /// The flow with this traffic.
    pub of: Flow,
    /// Place of the flow in the scenario.
    pub place: usize,
    /// Number of the first connection within the flow.
    pub first: u32,
    /// Name under which sockets select the congestion control.
    pub socket_cc: String,
    /// Requests, in order of time.
    pub requests: Vec<Request>,
    /// Seed of the random times of datagrams.
    pub seed: u64,
}

/// One scheduled request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Scheduled arrival (ns since the start of the run).
    pub at_ns: u64,
    /// Bytes of the answer.
    pub size_bytes: u64,
    /// The persistent connection that carries it; 0 if each request has its own.
    pub connection: u32,
}

impl Deref for Workload {
    type Target = Flow;
    fn deref(&self) -> &Flow {
        &self.of
    }
}

impl Workload {
    /// All workloads of `scenario`, by pair of sites. The error comes with the name of its flow.
    pub fn all(scenario: &Scenario) -> Result<Vec<Vec<Self>>, (String, SpecError)> {
        let of_pair = |pair: &String| {
            let mut workloads = Vec::new();
            for (place, flow) in scenario.flows.iter().enumerate() {
                if flow.pair == *pair {
                    let made = Self::of_flow(scenario, place, flow);
                    workloads.extend(made.map_err(|error| (flow.name.clone(), error))?);
                }
            }
            Ok(workloads)
        };
        scenario.pairs.iter().map(of_pair).collect()
    }

    fn of_flow(scenario: &Scenario, place: usize, flow: &Flow) -> Result<Vec<Self>, SpecError> {
        let drawn = scenario.schedule(flow)?.unwrap_or_default();
        let since_start = |it: &traffic::Request| Request {
            at_ns: ns(flow.start + it.at),
            size_bytes: it.size.as_u64(),
            connection: it.connection,
        };
        let whole = Self {
            of: flow.clone(),
            place,
            first: 0,
            socket_cc: socket_cc(flow),
            requests: drawn.requests().iter().map(since_start).collect(),
            seed: 0,
        };
        let traffic = match &flow.traffic {
            // Each source has its own seed.
            Traffic::Datagrams { rate, packet_bytes, timing, .. } => Traffic::Datagrams {
                flows: 1,
                rate: *rate,
                packet_bytes: *packet_bytes,
                timing: *timing,
            },
            _ if flow.other_starts.is_empty() => return Ok(vec![whole]),
            // A connection that starts separately is its own workload.
            Traffic::Greedy { .. } => Traffic::Greedy { flows: 1 },
            Traffic::Video { video, .. } => Traffic::Video { flows: 1, video: video.clone() },
            Traffic::Ping { .. } => Traffic::Ping { loops: 1 },
            Traffic::Requests(_) | Traffic::Media { .. } => return Ok(vec![whole]),
        };
        let streams = Streams::new(scenario.seed).part("datagrams");
        let one = |number| {
            let name = format!("{}#{number}", flow.name);
            let seed = streams.stream(&name).bits();
            let (start, traffic) = (flow.start_of(number), traffic.clone());
            let of = Flow { name, start, traffic, other_starts: Vec::new(), ..flow.clone() };
            Self { of, first: number, seed, ..whole.clone() }
        };
        Ok((0..flow.connections()).map(one).collect())
    }
}

/// Congestion control for the sockets of a flow: a name that the kernel knows, or the flow's own name for an
/// algorithm of the run. No kernel knows such a name, since it contains a colon.
pub(crate) fn socket_cc(flow: &Flow) -> String {
    match flow.platform {
        None | Some(Platform::Kernel) => kernel_name(&flow.cc.kind).into(),
        Some(Platform::Agent | Platform::Bpf) => flow.cc_name(),
    }
}

/// The kernel's name of a congestion control.
pub fn kernel_name(kind: &str) -> &str {
    if kind == "newreno" { "reno" } else { kind }
}

/// Time since the start of the run (ns).
pub(crate) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use forebay_core::spec::Spec;
    use forebay_core::traffic::video::Video;
    use forebay_core::traffic::{Connections, Timing};
    use forebay_core::units::{ByteCount, Rate, seconds};
    use forebay_scenario::{Link, RequestLoad, fixed_size};

    use super::*;

    /// The workloads of this traffic; its connections start at these milliseconds.
    fn made(traffic: Traffic, [first, others @ ..]: [u64; 3]) -> Vec<Workload> {
        let ms = Duration::from_millis;
        let [forward, reverse] = ["forward", "reverse"].map(|name| Link::delay(name, ms(10)));
        let mut scenario = Scenario::new(forward, reverse, seconds(9.0));
        scenario.pairs = vec!["other".into(), "site".into()];
        let flow = Flow::new("flow", Spec::named("newreno"), seconds(9.0), traffic);
        let is_spread = others != [first; 2];
        let other_starts = if is_spread { others.map(ms).into() } else { Vec::new() };
        scenario.flows.push(Flow { pair: "site".into(), start: ms(first), other_starts, ..flow });
        let [none, workloads] = Workload::all(&scenario).unwrap().try_into().unwrap();
        assert!(none.is_empty() && workloads.iter().all(|it| it.socket_cc == "reno"));
        workloads
    }

    #[test]
    fn connections_with_jitter_become_separate_workloads() {
        let (segment, rates) = (seconds(1.0), vec![Rate::from_mbit_per_sec(2)]);
        let video = Video { segment, rates, buffer: segment * 2, startup: segment };
        let video = Traffic::Video { flows: 3, video };
        for traffic in [Traffic::Ping { loops: 3 }, Traffic::Greedy { flows: 3 }, video] {
            let whole = made(traffic.clone(), [20; 3]);
            assert_eq!((whole.len(), whole[0].connections(), whole[0].first), (1, 3, 0));
            let apart = made(traffic, [20, 5, 9]);
            let seen = apart.iter().map(|it| (it.start.as_millis(), it.first, it.connections()));
            assert_eq!(seen.collect::<Vec<_>>(), [(20, 0, 1), (5, 1, 1), (9, 2, 1)]);
        }
    }

    #[test]
    fn sources_of_datagrams_have_a_seed_each() {
        let (rate, timing) = (Rate::from_mbit_per_sec(1), Timing::Poisson);
        let traffic = Traffic::Datagrams { flows: 2, rate, packet_bytes: 1250, timing };
        let [one, other] = made(traffic, [20; 3]).try_into().unwrap();
        assert_ne!(one.seed, other.seed);
        assert_eq!([one.first, other.first, one.connections()], [0, 1, 1]);
    }

    #[test]
    fn requests_follow_schedule_from_run_start() {
        let load = RequestLoad {
            sizes: fixed_size(ByteCount::new(10_000)).unwrap(),
            load: Rate::from_mbit_per_sec(4),
            connections: Connections::Each,
            iid: false,
        };
        let [workload] = made(Traffic::Requests(load), [1000; 3]).try_into().unwrap();
        assert_eq!(workload.requests.len(), 400);
        assert!(workload.requests.iter().all(|it| it.at_ns >= 1_000_000_000 && it.connection == 0));
    }
}
