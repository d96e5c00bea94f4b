//! Runs of ns-3 without choice by a person: drawn from a stated space by a seed, for a comparison that nothing was
//! fitted to.
//!
//! | drawn | from |
//! |---|---|
//! | event | in 3 of 12 nothing, in 3 a step of the rate, in 2 one of the round trip, in 1 random losses, in |
//! | | 2 a second flow of the same algorithm, in 1 one of another |
//! | rate | 4, 8, 12, 16, 24, 32, 48 or 64 Mbit/s; after a step a quarter, half, twice or four times that |
//! | round trip | 10, 15, 20, 30, 40, 60, 80 or 100 ms; after a step half or twice that |
//! | queue | in 7 of 10 a FIFO of half, one, two or four bandwidth-delay products, at least 10 packets; else |
//! | | CoDel, FQ-CoDel or PIE with 1000 packets |
//! | losses | 0.1, 0.5, 1 or 2 % of the packets |
//! | algorithm | one of [`ALGORITHMS`] but DCTCP, which needs marks |
//! | second flow | starts at 0 or 5 s |
//!
//! Steps are at 8 s of 20 s.

use forebay_core::random::{Stream, Streams};
use forebay_lab::backend::ns3::ALGORITHMS;
use serde_json::{Value, json};

/// Rates of the bottleneck that runs draw from (Mbit/s), before a step.
const RATES_MBPS: [f64; 8] = [4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0];
/// Round trips without queues that runs draw from (ms), before a step.
const RTTS_MS: [f64; 8] = [10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0];
/// Length of a run (s).
const STOP_S: f64 = 20.0;
/// Time of a step of rate or round trip (s).
const STEP_S: f64 = 8.0;
/// Bits of a full segment on the wire.
const SEGMENT_BITS: f64 = 1502.0 * 8.0;

/// A run that was drawn.
#[derive(Clone, Debug, PartialEq)]
struct Case {
    number: usize,
    happens: &'static str,
    /// The algorithm of each flow, by the name of its type.
    algorithms: Vec<&'static str>,
    starts_s: Vec<f64>,
    /// One rate for each of the times 0 and [`STEP_S`], or for 0 alone.
    rates_mbps: Vec<f64>,
    rtts_ms: Vec<f64>,
    loss: f64,
    qdisc: &'static str,
    packets: u64,
}

/// Draws the first `count` runs of the space with this `seed`, name and params; each is the same for any count.
/// `versions` are the versions of ns-3 that make the runs.
pub fn draw(seed: u64, count: usize, versions: &str) -> Vec<Value> {
    let run = |case: &Case| json!({ "name": case.name(), "params": case.params(versions) });
    cases(seed, count).iter().map(run).collect()
}

fn cases(seed: u64, count: usize) -> Vec<Case> {
    let streams = Streams::new(seed);
    (0..count).map(|number| Case::draw(number, streams.stream(&format!("run {number}")))).collect()
}

fn pick<T: Copy>(stream: &mut Stream, of: &[T]) -> T {
    of[stream.below(of.len() as u64) as usize]
}

impl Case {
    fn draw(number: usize, mut stream: Stream) -> Self {
        let happens = match stream.below(12) {
            0..3 => "steady",
            3..6 => "rate",
            6..8 => "rtt",
            8 => "loss",
            9..11 => "pair",
            _ => "mix",
        };
        let rate = pick(&mut stream, &RATES_MBPS);
        let rtt = pick(&mut stream, &RTTS_MS);
        let of_rate = pick(&mut stream, &[0.25, 0.5, 2.0, 4.0]);
        let of_rtt = pick(&mut stream, &[0.5, 2.0]);
        let loss = pick(&mut stream, &[0.001, 0.005, 0.01, 0.02]);
        let known = ALGORITHMS.map(|(_, type_name)| type_name);
        let known: Vec<&str> = known.into_iter().filter(|it| *it != "ns3::TcpDctcp").collect();
        let algorithms = [(); 2].map(|()| pick(&mut stream, &known));
        let later_s = pick(&mut stream, &[0.0, 5.0]);
        let of_bdp = pick(&mut stream, &[0.5, 1.0, 2.0, 4.0]);
        let bdp = rate * 1e3 * rtt / SEGMENT_BITS;
        let (qdisc, packets) = match stream.below(10) {
            0..7 => ("FifoQueueDisc", ((bdp * of_bdp).round() as u64).max(10)),
            7 => ("CoDel", 1000),
            8 => ("FqCoDel", 1000),
            _ => ("Pie", 1000),
        };
        let series = |first: f64, factor: f64, is_step: bool| {
            if is_step { vec![first, first * factor] } else { vec![first] }
        };
        let flows = if matches!(happens, "pair" | "mix") { 2 } else { 1 };
        let second = usize::from(happens == "mix");
        let is_step = matches!(happens, "rate" | "rtt");
        let of_rate = if happens == "rate" { of_rate } else { 1.0 };
        let of_rtt = if happens == "rtt" { of_rtt } else { 1.0 };
        Self {
            number,
            happens,
            algorithms: [algorithms[0], algorithms[second]][..flows].into(),
            starts_s: [0.0, later_s][..flows].into(),
            rates_mbps: series(rate, of_rate, is_step),
            rtts_ms: series(rtt, of_rtt, is_step),
            loss: if happens == "loss" { loss } else { 0.0 },
            qdisc,
            packets,
        }
    }

    /// Name of the run: its number, event, algorithms and queue.
    fn name(&self) -> String {
        let Self { number, happens, qdisc, .. } = self;
        let names = self.names().map(|name| name.trim_start_matches("Tcp"));
        let names = names.collect::<Vec<_>>().join("_");
        format!("drawn_{number}_{happens}_{names}_{}", qdisc.trim_end_matches("QueueDisc"))
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.algorithms.iter().map(|name| name.trim_start_matches("ns3::"))
    }

    /// All parameters, by ns-3's names as in the other files of runs.
    fn params(&self, versions: &str) -> Value {
        let times = [0.0, STEP_S];
        let losses = vec![self.loss; self.rates_mbps.len()];
        json!({
            "simulator": versions,
            "cca": self.names().collect::<Vec<_>>().join(","),
            "recovery": "TcpPrrRecovery",
            "times_s": list(&times[..self.rates_mbps.len()]),
            "rates_mbps": list(&self.rates_mbps),
            "rtts_ms": list(&self.rtts_ms[..1]),
            "rtt_series_ms": if self.happens == "rtt" { list(&self.rtts_ms) } else { String::new() },
            "loss_series": list(&losses),
            "n_flows": self.algorithms.len(),
            "starts_s": list(&self.starts_s),
            "qdisc": self.qdisc,
            "qlen": format!("{}p", self.packets),
            "devq": "1p",
            "access_mbps": "10000",
            "delay_place": "bottleneck",
            "reverse_rate": "same",
            "mss": 1448,
            "initial_cwnd": 10,
            "delack": 1,
            "sack": 1,
            "timestamps": 1,
            "ecn": 0,
            "sndbuf": 4_000_000,
            "rcvbuf": 6_291_456,
            "min_rto_s": 1,
            "stop_s": STOP_S,
            "seed": 42,
            "qdisc_stream": 2000,
            "run": 1,
            "short_load_mbps": 0,
        })
    }
}

fn list(numbers: &[f64]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::ns3::params::Params;

    #[test]
    fn each_seed_draws_its_own_runs() {
        let drawn = cases(7, 80);
        assert_eq!(cases(7, 10), drawn[..10]);
        assert_ne!(cases(8, 80), drawn);
        let happens: BTreeSet<&str> = drawn.iter().map(|case| case.happens).collect();
        assert_eq!(happens, BTreeSet::from(["steady", "rate", "rtt", "loss", "pair", "mix"]));
        let names: BTreeSet<String> = drawn.iter().map(Case::name).collect();
        assert_eq!(names.len(), 80);
    }

    #[test]
    fn every_drawn_run_can_be_made() {
        for (case, run) in cases(7, 80).iter().zip(draw(7, 80, "ns-3.37")) {
            let params = Params::of(&run).unwrap();
            assert_eq!(params.is_lossy().unwrap(), case.happens == "loss");
            let text = params.network(Duration::ZERO, 1).unwrap().to_string();
            let rate = case.rates_mbps[0] * 1e6;
            assert!(text.contains(&format!("link 0 1 {rate} ")), "{text}");
            let steps = text.matches("change 8000000000 rate").count();
            assert_eq!(steps, if case.rates_mbps.len() > 1 { 2 } else { 0 }, "{text}");
            let flows = text.lines().filter(|line| line.starts_with("tcp ")).count();
            assert_eq!(flows, case.algorithms.len());
        }
    }
}
