//! Runs of ns-3 in the simulator: parameters of ns-3's programs become a dumbbell.

use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::Source;
use forebay_core::units::{Duration, Rate, Ratio};
use forebay_sim::{
    Bin, Change, Device, Dumbbell, EcnMode, Flow, FlowMetrics, LinkMetrics, MinRto, Reduction,
    RttSource, Simulation, Stack, Tcp,
};

use super::topology;
use super::truth::{Class, Truth};

/// Number of runs whose median is compared with runs of other programs. Their starts are one round trip divided
/// by this number apart, and each has its own random draws. The ensembles of ns-3 share one draw; under PIE
/// another draw may lose thirty times as much.
const JITTERS: u32 = 9;
/// Starts of the runs of `cargo xtask ns3-runs`, in round trips: with equal starts the events are equal, too.
const STARTS: [f64; 5] = [0.0, 0.1, 0.25, 0.5, 0.75];
/// Seeds of a run with random losses.
const SEEDS: u64 = 10;

/// Results of one run in the simulator.
pub struct Ours {
    pub flows: Vec<FlowMetrics>,
    pub link: LinkMetrics,
    /// Throughput and round-trip time in bins, for each flow.
    pub bins: Vec<Vec<Bin>>,
}

/// The runs to compare: one for each start; with random losses, one for each seed, which loses as in ns-3.
pub fn repeat(truth: &Truth) -> Result<Vec<Ours>, String> {
    check(truth)?;
    let nominal = dumbbell(truth)?;
    if truth.class == Class::Loss {
        return (1..=SEEDS).map(|seed| run(truth, Dumbbell { seed, ..nominal.clone() })).collect();
    }
    // A queue whose stream is known draws as in ns-3, and there all starts share one draw.
    let of_ns3 = truth.number("qdisc_stream").and_then(|_| truth.number("run"));
    let once = |part: u32, share: f64| {
        let seed = of_ns3.as_ref().map_or(nominal.seed + u64::from(part), |run| *run as u64);
        let late = nominal.rtt.mul_f64(share);
        run(truth, Dumbbell { seed, ..started_later(&nominal, late) })
    };
    // Runs of other programs than `cargo xtask ns3-runs` have the series of a nominal run.
    let starts: Vec<f64> = match truth.flows[0].is_null() {
        true => STARTS.into(),
        false => (0..JITTERS).map(|part| f64::from(part) / f64::from(JITTERS)).collect(),
    };
    (0_u32..).zip(starts).map(|(part, share)| once(part, share)).collect()
}

fn started_later(nominal: &Dumbbell, by: Duration) -> Dumbbell {
    let mut dumbbell = nominal.clone();
    dumbbell.flows.iter_mut().for_each(|flow| flow.start += by);
    dumbbell
}

/// The parameters that this module or `topology` reads.
const READ: [&str; 27] = [
    "access_mbps",
    "cca",
    "delack",
    "delay_place",
    "devq",
    "ecn",
    "initial_cwnd",
    "loss_series",
    "min_rto_s",
    "mss",
    "n_flows",
    "qdisc",
    "qdisc_stream",
    "qlen",
    "rates_mbps",
    "rcvbuf",
    "recovery",
    "reverse_rate",
    "rtt_series_ms",
    "rtts_ms",
    "sack",
    "seed",
    "sndbuf",
    "starts_s",
    "stop_s",
    "times_s",
    "timestamps",
];
/// Parameters that affect no figure: the version, ns-3's substream (our draws differ anyway), and the
/// sampling interval of its series.
const IMMATERIAL: [&str; 3] = ["run", "sample_s", "simulator"];

/// Refuses parameters that the simulator does not model: ignoring them would compare two different runs.
fn check(truth: &Truth) -> Result<(), String> {
    let is_known = |name: &str| READ.contains(&name) || IMMATERIAL.contains(&name);
    // There is no description of ns-3's source of short flows to implement.
    let is_without = |name: &str| name == "short_load_mbps" && truth.number(name) == Ok(0.0);
    match truth.names().find(|name| !is_known(name) && !is_without(name)) {
        Some(name) => Err(format!("{name} = {}", truth.text(name))),
        None => Ok(()),
    }
}

fn run(truth: &Truth, dumbbell: Dumbbell) -> Result<Ours, String> {
    let network = topology::network(truth, &dumbbell)?;
    let mut simulation = Simulation::new(network).map_err(|error| error.to_string())?;
    simulation.run();
    let count = dumbbell.flows.len();
    Ok(Ours {
        flows: (0..count).filter_map(|flow| simulation.flow_metrics(flow)).collect(),
        link: simulation.link_metrics(0),
        bins: (0..count).map(|flow| simulation.flow_bins(flow).to_vec()).collect(),
    })
}

fn dumbbell(truth: &Truth) -> Result<Dumbbell, String> {
    let rates = truth.numbers("rates_mbps")?;
    let losses = truth.numbers("loss_series")?;
    let seed = truth.number("seed")? as u64;
    Ok(Dumbbell {
        stop: seconds(truth.number("stop_s")?),
        seed,
        stack: stack(truth)?,
        rate: mbit_per_s(*rates.first().ok_or("no rates_mbps")?),
        rtt: milliseconds(truth.number("rtts_ms")?),
        loss: losses.first().map_or(Ratio::ZERO, |loss| share(*loss)),
        qdisc: qdisc(truth)?,
        changes: changes(truth, &rates, &losses)?,
        flows: flows(truth)?,
    })
}

fn stack(truth: &Truth) -> Result<Stack, String> {
    let whole = |name| truth.number(name).map(|number| number as u64);
    let device = truth.text("devq");
    let packets = device.trim_end_matches('p').parse().map_err(|_| format!("devq = {device}"))?;
    let reduction = match truth.text("recovery").as_str() {
        "TcpPrrRecovery" => Tcp::NS3.reduction,
        "TcpClassicRecovery" => Reduction::AtOnce,
        other => return Err(format!("recovery = {other}")),
    };
    let has_timestamps = switch(truth, "timestamps")?;
    let nominal = &Tcp::NS3;
    // Without the option, ns-3 takes samples only from segments sent once (TcpSocketBase::EstimateRtt).
    let (rtt_source, overhead) = match has_timestamps {
        true => (nominal.rtt_source, nominal.overhead),
        false => (RttSource::Segments, nominal.overhead - TIMESTAMP_OPTION),
    };
    let tcp = Tcp {
        reduction,
        rtt_source,
        overhead,
        ecn: if switch(truth, "ecn")? { EcnMode::Classic } else { EcnMode::Off },
        sack: switch(truth, "sack")?,
        min_rto: MinRto::OfSum(seconds(truth.number("min_rto_s")?).as_nanos() as u64),
        mss: whole("mss")? as u16,
        initial_window: whole("initial_cwnd")? as u32,
        send_buffer: whole("sndbuf")?,
        receive_buffer: whole("rcvbuf")?,
        ack_every: whole("delack")? as u32,
        ..Tcp::NS3
    };
    // `topology` has the access links.
    let device = Device { packets, ack_access_ps: 0, ..Device::NS3 };
    Ok(Stack { tcp, device, ..Stack::NS3 })
}

/// Bytes of the timestamps option (RFC 7323), padded.
const TIMESTAMP_OPTION: u16 = 12;

/// 0 or 1, or one of ns-3's words for them.
fn switch(truth: &Truth, name: &str) -> Result<bool, String> {
    match truth.text(name).as_str() {
        "0" | "false" => Ok(false),
        "1" | "true" => Ok(true),
        other => Err(format!("{name} = {other}")),
    }
}

fn qdisc(truth: &Truth) -> Result<Spec, String> {
    let limit = Value::Text(truth.text("qlen"));
    let marks = || switch(truth, "ecn").map(Value::Bool);
    let spec = match truth.text("qdisc").as_str() {
        "FifoQueueDisc" => Spec::named("fifo"),
        // The queue marks only packets that the hosts make ECN-capable (UseEcn, if they use ECN).
        "CoDel" => Spec::named("codel").with("ecn", marks()?),
        "FqCoDel" => Spec::named("fq_codel").with("ecn", marks()?),
        "Pie" => Spec::named("pie").with("ecn", marks()?),
        // RED with MinTh = MaxTh = 20, QW = 1 and ECN.
        "RedStep" => {
            let packets = || Value::Text("20p".into());
            let step = Spec::named("red").with("min_th", packets()).with("max_th", packets());
            step.with("weight", Value::Text("1".into())).with("ecn", Value::Bool(true))
        }
        other => return Err(format!("qdisc = {other}")),
    };
    Ok(spec.with("limit", limit))
}

fn changes(truth: &Truth, rates: &[f64], losses: &[f64]) -> Result<Vec<Change>, String> {
    let rtts = truth.numbers("rtt_series_ms")?;
    let times = truth.numbers("times_s")?;
    let change = |(index, at): (usize, &f64)| Change {
        at: seconds(*at),
        rate: rates.get(index).copied().map(mbit_per_s),
        rtt: rtts.get(index).copied().map(milliseconds),
        loss: losses.get(index).copied().map(share),
    };
    Ok(times.iter().enumerate().skip(1).map(change).collect())
}

fn flows(truth: &Truth) -> Result<Vec<Flow>, String> {
    let count = truth.number("n_flows")? as usize;
    let (starts, rtts) = (truth.numbers("starts_s")?, truth.numbers("rtts_ms")?);
    let names = truth.text("cca");
    let names: Vec<&str> = names.split(',').collect();
    let flow = |index: usize| {
        Ok(Flow {
            cc: Spec::named(algorithm(of(&names, index)?)?),
            source: Source::Greedy { bytes: None },
            start: seconds(*of(&starts, index)?),
            rtt: (rtts.len() > 1).then(|| milliseconds(rtts[index.min(rtts.len() - 1)])),
        })
    };
    (0..count).map(flow).collect()
}

/// The `index`-th value of a list; a list of one holds the value for all.
fn of<T>(list: &[T], index: usize) -> Result<&T, String> {
    list.get(index).or(list.first()).ok_or_else(|| "an empty list".into())
}

fn algorithm(name: &str) -> Result<&'static str, String> {
    Ok(match name {
        "TcpBbr" => "bbr",
        "TcpBic" => "bic",
        "TcpCubic" => "cubic",
        "TcpDctcp" => "dctcp",
        "TcpHighSpeed" => "highspeed",
        "TcpHtcp" => "htcp",
        "TcpHybla" => "hybla",
        "TcpIllinois" => "illinois",
        "TcpLedbat" => "ledbat",
        "TcpLp" => "lp",
        "TcpNewReno" | "TcpLinuxReno" => "newreno",
        "TcpScalable" => "scalable",
        "TcpVegas" => "vegas",
        "TcpVeno" => "veno",
        "TcpWestwood" | "TcpWestwoodPlus" => "westwood",
        "TcpYeah" => "yeah",
        other => return Err(format!("cca = {other}")),
    })
}

fn seconds(number: f64) -> Duration {
    Duration::from_nanos((number * 1e9).round() as u64)
}

fn milliseconds(number: f64) -> Duration {
    seconds(number * 1e-3)
}

fn mbit_per_s(number: f64) -> Rate {
    Rate::from_bits_per_sec((number * 1e6).round() as u64)
}

fn share(number: f64) -> Ratio {
    Ratio::new(number).unwrap_or(Ratio::ZERO)
}
