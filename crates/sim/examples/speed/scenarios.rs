//! The simulations for speed measurements, here and for comparison with ns-3 (`benches/ns3`).

use forebay_core::random::Streams;
use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::{Receiving, Request, Source};
use forebay_core::units::{ByteCount, Duration, Rate, Ratio};
use forebay_scenario::Link;
use forebay_sim::network::{self, Hop, Network, Opener, Traffic};
use forebay_sim::{Change, Dumbbell, Flow, Requests, Simulation, Stack, Tcp};

/// A simulation and its requests.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The network.
    pub network: Network,
    schedule: Vec<Request>,
}

impl From<Dumbbell> for Scenario {
    fn from(dumbbell: Dumbbell) -> Self {
        Self { network: (&dumbbell).into(), schedule: Vec::new() }
    }
}

impl Scenario {
    /// Runs to the end. With requests, flow 0 has a connection for each.
    pub fn run(&self) -> (Simulation, Requests) {
        let mut simulation = Simulation::new(&self.network).expect("a valid scenario");
        let mut requests = Requests::default();
        if self.schedule.is_empty() {
            simulation.run();
        } else {
            requests.add_messages(Duration::ZERO, self.schedule.clone(), 0);
            let end = simulation.now() + self.network.stop;
            requests.run_until(&mut simulation, end);
        }
        (simulation, requests)
    }
}

/// B1, ccperf #60: one NewReno flow over 64 Mbit/s, 16 Mbit/s from 5 s on.
pub fn rate_step() -> Dumbbell {
    let rate = Some(Rate::from_mbit_per_sec(16));
    let at = Duration::from_secs(5);
    Dumbbell {
        stop: Duration::from_secs(15),
        rate: Rate::from_mbit_per_sec(64),
        rtt: Duration::from_millis(15),
        qdisc: fifo(20),
        changes: vec![Change { at, rate, ..Change::default() }],
        ..dumbbell(1, "newreno")
    }
}

/// B2: `flows` NewReno flows over 1 Gbit/s, 40 ms and a queue of one bandwidth-delay product.
pub fn many(flows: usize, stop: Duration) -> Dumbbell {
    Dumbbell { stop, ..dumbbell(flows, "newreno") }
}

/// `flows` NewReno flows over 10 Gbit/s and 40 ms, to measure the cost of their number. With 10,000, each
/// has a window of a few segments.
pub fn crowd(flows: usize, stop: Duration) -> Dumbbell {
    let rate = Rate::from_mbit_per_sec(10_000);
    Dumbbell { rate, qdisc: fifo(33_000), stop, ..dumbbell(flows, "newreno") }
}

/// One Cubic flow whose slow start overruns a queue of 1000 packets with a window of thousands.
pub fn overshoot(stop: Duration) -> Dumbbell {
    let base = dumbbell(1, "cubic");
    // The buffers of B1 would end the slow start below the bandwidth-delay product.
    let tcp = Tcp { send_buffer: 32_000_000, receive_buffer: 32_000_000, ..base.stack.tcp };
    let stack = Stack { tcp, ..base.stack };
    Dumbbell { stop, qdisc: fifo(1000), stack, ..base }
}

/// B3: 84 Mbit/s of requests over 96 Mbit/s and 50 ms. There are 2622 requests a second, each over its own
/// Cubic connection that the sender opens.
pub fn requests(stop: Duration) -> Scenario {
    let rtt = Duration::from_millis(50);
    let rate = Rate::from_mbit_per_sec(96);
    let links = vec![Link::at_rate("bottleneck", rate, Duration::ZERO, fifo(400))];
    let flow = network::Flow {
        cc: Spec::named("cubic"),
        traffic: Traffic::Messages(Opener::Sender),
        start: Duration::ZERO,
        opened: None,
        stop: None,
        dscp: 0,
        name: String::new(),
        initial_window: None,
        receiving: Receiving::default(),
        data: vec![Hop::Link(0), Hop::Delay(rtt / 2)],
        back: vec![Hop::Delay(rtt / 2)],
    };
    let network = Network::of_links(stop, 1, Stack::NS3, links);
    let network = Network { flows: vec![flow], ..network };
    Scenario { network, schedule: schedule(stop) }
}

/// Mean of [`request_bytes`].
const MEAN_REQUEST_BYTES: f64 = 4005.0;

fn schedule(stop: Duration) -> Vec<Request> {
    let streams = Streams::new(1);
    let [mut gaps, mut sizes] = ["arrivals", "sizes"].map(|name| streams.stream(name));
    let mean_gap_s = MEAN_REQUEST_BYTES * 8.0 / 84e6;
    let arrivals = std::iter::repeat_with(|| mean_gap_s * gaps.exponential());
    let times = arrivals.scan(0.0, |at, gap| {
        *at += gap;
        Some(Duration::from_secs_f64(*at))
    });
    let request = |at| Request { at, size: request_bytes(sizes.unit()), connection: 0 };
    times.take_while(|at| *at < stop).map(request).collect()
}

/// Nine of ten are log-uniform over 200 B to 5 kB, and the tenth is Pareto with exponent 1 over 5 kB to 1
/// MB. `unit` is 0 to 1.
fn request_bytes(unit: f64) -> ByteCount {
    let bytes = if unit < 0.9 {
        200.0 * libm::pow(25.0, unit / 0.9)
    } else {
        5e3 / (1.0 - (unit - 0.9) / 0.1 * (1.0 - 5e3 / 1e6))
    };
    ByteCount::new(bytes as u64)
}

fn dumbbell(flows: usize, cc: &str) -> Dumbbell {
    let flow = Flow {
        cc: Spec::named(cc),
        source: Source::Greedy { bytes: None },
        start: Duration::ZERO,
        rtt: None,
    };
    Dumbbell {
        stop: Duration::ZERO,
        seed: 1,
        stack: Stack::NS3,
        rate: Rate::from_mbit_per_sec(1000),
        rtt: Duration::from_millis(40),
        loss: Ratio::ZERO,
        qdisc: fifo(3300),
        changes: Vec::new(),
        flows: vec![flow; flows],
    }
}

fn fifo(packets: u32) -> Spec {
    Spec::named("fifo").with("limit", Value::Text(format!("{packets}p")))
}
