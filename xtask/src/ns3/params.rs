//! The parameters of a run of ns-3, as in the files of runs, and the network that they describe.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use forebay_core::spec::Spec;
use forebay_core::units::{Rate, Ratio};
use forebay_lab::backend::ns3::{ALGORITHMS, Network, PlacedFlow, PlacedLink, Qdisc};
use forebay_scenario::{Change, Flow, Link, Traffic};
use serde_json::{Map, Value};

/// Parameters that are attributes of ns-3's TCP, with the unit of their values.
const ATTRIBUTES: [(&str, &str, &str); 7] = [
    ("mss", "ns3::TcpSocket::SegmentSize", ""),
    ("delack", "ns3::TcpSocket::DelAckCount", ""),
    ("sndbuf", "ns3::TcpSocket::SndBufSize", ""),
    ("rcvbuf", "ns3::TcpSocket::RcvBufSize", ""),
    ("sack", "ns3::TcpSocketBase::Sack", ""),
    ("timestamps", "ns3::TcpSocketBase::Timestamp", ""),
    ("min_rto_s", "ns3::TcpSocketBase::MinRto", "s"),
];
/// Parameters that have one value here: the settings of hosts and devices.
const FIXED: [(&str, &str); 4] =
    [("devq", "1p"), ("access_mbps", "10000"), ("reverse_rate", "same"), ("short_load_mbps", "0")];
/// Rate of a link that only delays packets.
const PATH: Rate = Rate::from_mbit_per_sec(10_000);
/// The queue of a link where nothing waits.
const UNNOTICED: &str = "1000000p";

/// Parameters of a run.
pub struct Params<'a>(&'a Map<String, Value>);

impl<'a> Params<'a> {
    /// The parameters of `run`. Fails where there are none.
    pub fn of(run: &'a Value) -> Result<Self> {
        run["params"].as_object().map(Self).context("the run has no params")
    }

    fn text(&self, name: &str) -> Result<String> {
        let value = self.0.get(name).with_context(|| format!("no {name}"))?;
        Ok(value.as_str().map_or_else(|| value.to_string(), String::from))
    }

    fn numbers(&self, name: &str) -> Result<Vec<f64>> {
        let text = self.text(name)?;
        let parts = text.split(',').filter(|part| !part.is_empty());
        let numbers = parts.map(|part| part.trim().parse::<f64>().ok().filter(|it| *it >= 0.0));
        let numbers: Option<Vec<f64>> = numbers.collect();
        numbers.with_context(|| format!("{name} = {text}: allowed are numbers from 0"))
    }

    fn number(&self, name: &str) -> Result<f64> {
        self.numbers(name)?.first().copied().with_context(|| format!("{name}: expected a number"))
    }

    /// Round trip of the first flow at the start.
    pub fn rtt(&self) -> Result<Duration> {
        Ok(milliseconds(self.number("rtts_ms")?))
    }

    /// Whether packets are lost at random, so that no two runs are alike.
    pub fn is_lossy(&self) -> Result<bool> {
        Ok(self.numbers("loss_series")?.iter().any(|loss| *loss > 0.0))
    }

    /// The run in ns-3 with its flows delayed by `late`, and with the random numbers of run `number`.
    pub fn network(&self, late: Duration, number: u64) -> Result<Network> {
        for (name, value) in FIXED {
            let text = self.text(name)?;
            ensure!(text == value, "{name} = {text}: allowed is {value}");
        }
        let rtts = self.numbers("rtts_ms")?;
        let base = rtts.iter().copied().reduce(f64::min).context("rtts_ms: expected a number")?;
        let (links, ways) = self.links(base)?;
        let stop = seconds(self.number("stop_s")?);
        Ok(Network {
            seed: self.number("seed")? as u32,
            run: number,
            stop,
            latest: stop,
            attributes: self.attributes()?,
            links,
            flows: self.flows(late, &rtts, base, &ways)?,
        })
    }

    fn attributes(&self) -> Result<Vec<(String, String)>> {
        let recovery = format!("ns3::{}", self.text("recovery")?);
        let ecn = if self.number("ecn")? > 0.0 { "On" } else { "Off" };
        let mut all = vec![
            ("ns3::TcpL4Protocol::RecoveryType".to_string(), recovery),
            ("ns3::TcpSocketBase::UseEcn".to_string(), ecn.to_string()),
        ];
        for (name, attribute, unit) in ATTRIBUTES {
            all.push((attribute.into(), self.text(name)? + unit));
        }
        Ok(all)
    }

    /// The bottleneck, the way back, and the links that add delay; and the routes over these.
    fn links(&self, base_ms: f64) -> Result<(Vec<PlacedLink>, [Vec<usize>; 2])> {
        let [rates, losses, times] =
            [self.numbers("rates_mbps")?, self.numbers("loss_series")?, self.numbers("times_s")?];
        let rtts = match self.numbers("rtt_series_ms")? {
            rtts if rtts.is_empty() => vec![base_ms],
            rtts => rtts,
        };
        let link = |ends, qdisc, [has_rate, has_delay, has_loss]: [bool; 3]| {
            let at = |index: usize| Change {
                at: seconds(times.get(index).copied().unwrap_or_default()),
                rate: rates.get(index).filter(|_| has_rate).copied().map(mbit_per_s),
                delay: rtts.get(index).filter(|_| has_delay).map(|ms| milliseconds(*ms) / 2),
                loss: losses.get(index).filter(|_| has_loss).and_then(|loss| Ratio::new(*loss)),
            };
            let first = at(0);
            let (rate, delay) = (first.rate.unwrap_or(PATH), first.delay.unwrap_or_default());
            let of = Link {
                loss: first.loss.unwrap_or(Ratio::ZERO),
                changes: (1..times.len()).map(at).collect(),
                ..Link::at_rate("", rate, delay, Spec::named("fifo"))
            };
            PlacedLink { ends, of, qdisc }
        };
        let unnoticed = || Qdisc::fifo(UNNOTICED);
        match self.text("delay_place")?.as_str() {
            "bottleneck" => {
                let there = link([0, 1], self.qdisc()?, [true, true, true]);
                let back = link([2, 3], unnoticed(), [true, true, false]);
                Ok((vec![there, back], [vec![0], vec![1]]))
            }
            // Behind the bottleneck, and before it on the way back.
            "dst" => {
                let links = vec![
                    link([0, 1], self.qdisc()?, [true, false, true]),
                    link([1, 2], unnoticed(), [false, true, false]),
                    link([3, 4], unnoticed(), [false, true, false]),
                    link([4, 5], unnoticed(), [true, false, false]),
                ];
                Ok((links, [vec![0, 1], vec![2, 3]]))
            }
            other => bail!("delay_place = {other}: allowed is dst or bottleneck"),
        }
    }

    fn qdisc(&self) -> Result<Qdisc> {
        let limit = ("MaxSize", self.text("qlen")?);
        let (type_name, rest): (_, &[(&str, &str)]) = match self.text("qdisc")?.as_str() {
            "FifoQueueDisc" => ("ns3::FifoQueueDisc", &[]),
            "CoDel" => ("ns3::CoDelQueueDisc", &[]),
            "FqCoDel" => ("ns3::FqCoDelQueueDisc", &[]),
            "Pie" => ("ns3::PieQueueDisc", &[]),
            "RedStep" => (
                "ns3::RedQueueDisc",
                &[
                    ("MinTh", "20"),
                    ("MaxTh", "20"),
                    ("QW", "1"),
                    ("Gentle", "false"),
                    ("UseEcn", "true"),
                    ("UseHardDrop", "false"),
                ],
            ),
            other => {
                bail!("qdisc = {other}: allowed is FifoQueueDisc, CoDel, FqCoDel, Pie or RedStep")
            }
        };
        let rest = rest.iter().map(|(name, value)| (*name, value.to_string()));
        Ok(Qdisc { type_name, attributes: std::iter::once(limit).chain(rest).collect() })
    }

    fn flows(
        &self,
        late: Duration,
        rtts_ms: &[f64],
        base_ms: f64,
        ways: &[Vec<usize>; 2],
    ) -> Result<Vec<PlacedFlow>> {
        let (names, starts) = (self.text("cca")?, self.numbers("starts_s")?);
        let names: Vec<&str> = names.split(',').collect();
        let stop = seconds(self.number("stop_s")?);
        let initial_window = self.number("initial_cwnd")? as u32;
        let flow = |index: usize| {
            // A list with one entry applies to all flows.
            let name = names.get(index).or(names.first()).context("no cca")?;
            let start_s = starts.get(index).or(starts.first()).context("no starts_s")?;
            let rtt_ms = rtts_ms.get(index).or(rtts_ms.first()).context("no rtts_ms")?;
            let is_it = |known: &&(&str, &str)| known.1.strip_prefix("ns3::") == Some(*name);
            let known = ALGORITHMS.iter().find(is_it);
            let (cc, algorithm) = known.with_context(|| format!("cca = {name}: ns-3 has none"))?;
            let greedy = Traffic::Greedy { flows: 1 };
            Ok(PlacedFlow {
                of: Flow {
                    start: seconds(*start_s) + late,
                    initial_window,
                    ..Flow::new("", Spec::named(cc), stop, greedy)
                },
                algorithm,
                pair: 0,
                access: [milliseconds(rtt_ms - base_ms) / 2; 2],
                ways: ways.clone(),
                schedule: Vec::new(),
            })
        };
        (0..self.number("n_flows")? as usize).map(flow).collect()
    }
}

fn mbit_per_s(number: f64) -> Rate {
    Rate::from_bits_per_sec((number * 1e6).round() as u64)
}

fn seconds(number: f64) -> Duration {
    Duration::from_nanos((number * 1e9).round() as u64)
}

fn milliseconds(number: f64) -> Duration {
    seconds(number * 1e-3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ns3::runs::{CHOSEN, read};

    /// The run of this name, changed.
    fn text(name: &str, changes: &[(&str, &str)]) -> Result<String> {
        let file = read(&crate::repository().join(CHOSEN)).unwrap();
        let mut runs = file["runs"].as_array().unwrap().iter();
        let mut run = runs.find(|run| run["name"] == name).unwrap().clone();
        for (key, value) in changes {
            run["params"][key] = (*value).into();
        }
        let network = Params::of(&run)?.network(Duration::from_millis(3), 4)?;
        let lines = network.to_string();
        Ok(lines.lines().filter(|line| !line.starts_with("default")).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn delays_lie_behind_the_bottleneck_or_in_it() {
        let expected = "\
seed 42 4
stop 15000000000 15000000000
link 0 1 16000000 0 0
qdisc ns3::FifoQueueDisc MaxSize 20p
change 5000000000 rate 16000000
change 5000000000 loss 0
link 1 2 10000000000 7500000 0
qdisc ns3::FifoQueueDisc MaxSize 1000000p
change 5000000000 delay 30000000
link 3 4 10000000000 7500000 0
qdisc ns3::FifoQueueDisc MaxSize 1000000p
change 5000000000 delay 30000000
link 4 5 16000000 0 0
qdisc ns3::FifoQueueDisc MaxSize 1000000p
change 5000000000 rate 16000000
tcp 0 3000000 15000000000 0 0 0,1 2,3 10 0 ns3::TcpNewReno";
        assert_eq!(text("step_rtt_up_TcpNewReno", &[]).unwrap(), expected);
        let within = text("step_rtt_up_TcpNewReno", &[("delay_place", "bottleneck")]).unwrap();
        assert!(within.contains("link 0 1 16000000 7500000 0\n"), "{within}");
        assert!(within.ends_with("tcp 0 3000000 15000000000 0 0 0 1 10 0 ns3::TcpNewReno"));
    }

    #[test]
    fn flows_have_lists_or_one_value_for_all() {
        let changes = [
            ("n_flows", "2"),
            ("cca", "TcpCubic,TcpVegas"),
            ("rtts_ms", "15,45"),
            ("rtt_series_ms", ""),
            ("starts_s", "0,1.5"),
            ("qdisc", "RedStep"),
        ];
        let text = text("step_rtt_up_TcpNewReno", &changes).unwrap();
        assert!(text.contains("\ntcp 0 3000000 15000000000 0 0 0,1 2,3 10 0 ns3::TcpCubic\n"));
        let second = "tcp 0 1503000000 15000000000 15000000 15000000 0,1 2,3 10 0 ns3::TcpVegas";
        assert!(text.ends_with(second), "{text}");
        assert!(text.contains("qdisc ns3::RedQueueDisc MaxSize 20p MinTh 20 MaxTh 20 QW 1"));
    }

    #[test]
    fn refuses_unmade_parameter_by_name() {
        for (key, value, expected) in [
            ("devq", "2p", "devq = 2p: allowed is 1p"),
            ("reverse_rate", "100", "reverse_rate = 100: allowed is same"),
            ("delay_place", "src", "delay_place = src: allowed is dst or bottleneck"),
            ("qdisc", "Sfq", "qdisc = Sfq: allowed is FifoQueueDisc"),
            ("cca", "TcpCopa", "cca = TcpCopa: ns-3 has none"),
            ("rates_mbps", "16,x", "rates_mbps = 16,x: allowed are numbers"),
        ] {
            let error = text("step_rtt_up_TcpNewReno", &[(key, value)]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
