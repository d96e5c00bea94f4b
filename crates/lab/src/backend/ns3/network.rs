//! What the driver simulates, as plain values and as the text that it reads.

use std::fmt;
use std::time::Duration;

use forebay_core::link::Change;
use forebay_core::units::{Rate, Ratio};
use forebay_sim::{MinRto, Tcp};

/// Rate of a link that has none of its own (bits per second): ns-3 knows no links without.
const UNLIMITED_BPS: u64 = 100_000_000_000;

/// Bytes of PPP, IPv4 and UDP around the payload of a datagram.
pub const DATAGRAM_HEADERS: u32 = 2 + 20 + 8;

/// Hosts, links and flows, every number resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Seed of ns-3's random numbers, not 0.
    pub seed: u32,
    /// Number of the run, for which ns-3 draws others from the same seed.
    pub run: u64,
    /// End of the simulation, where no answers to requests are awaited.
    pub stop: Duration,
    /// End of the simulation whatever is awaited.
    pub latest: Duration,
    /// Attributes of ns-3's objects with their values, such as those of [`tcp_attributes`].
    pub attributes: Vec<(String, String)>,
    /// The links, by which flows name them by number.
    pub links: Vec<Link>,
    /// The flows.
    pub flows: Vec<Flow>,
}

/// A link one way.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Numbers of the nodes that it leads from and to.
    pub ends: [u32; 2],
    /// Rate of frames; `None`: as good as without limit.
    pub rate: Option<Rate>,
    /// Propagation delay.
    pub delay: Duration,
    /// Share of the packets that are lost on the wire.
    pub loss: Ratio,
    /// The queue.
    pub qdisc: Qdisc,
    /// Changes, in order of time; none of a rate on a link without one.
    pub changes: Vec<Change>,
}

/// A queueing discipline of ns-3.
#[derive(Clone, Debug, PartialEq)]
pub struct Qdisc {
    /// Name of its type, such as `ns3::FifoQueueDisc`.
    pub type_name: &'static str,
    /// Attributes with their values; `QUANTUM` stands for what has a method and no attribute.
    pub attributes: Vec<(&'static str, String)>,
}

impl Qdisc {
    /// A queue that drops what arrives when it is full.
    pub fn fifo(limit: &str) -> Self {
        Self { type_name: "ns3::FifoQueueDisc", attributes: vec![("MaxSize", limit.into())] }
    }
}

/// A flow between two hosts of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Number of its pair of sites.
    pub pair: u16,
    /// Last byte or datagram.
    pub stop: Duration,
    /// What its data and what comes back take beside the links.
    pub access: [Duration; 2],
    /// The links that its data take, and those back.
    pub ways: [Vec<usize>; 2],
    /// Type of service of its packets: the DSCP x 4.
    pub tos: u8,
    /// What is sent.
    pub traffic: Traffic,
}

/// What a flow sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Traffic {
    /// One TCP connection that always has data.
    Greedy {
        /// When it is opened.
        start: Duration,
        /// Name of the algorithm's type, such as `ns3::TcpNewReno`.
        algorithm: &'static str,
        /// Segments in flight before the first acknowledgement.
        initial_window: u32,
    },
    /// Datagrams of UDP.
    Datagrams {
        /// Bytes of payload of each.
        payload: u32,
        /// When they are sent, in order.
        sends: Vec<Duration>,
    },
    /// Answers over TCP connections of their own, which their receivers open.
    Requests {
        /// Name of the type of the senders' algorithm.
        algorithm: &'static str,
        /// Segments in flight before the first acknowledgement.
        initial_window: u32,
        /// When each is asked for, in order, and its bytes.
        asks: Vec<(Duration, u64)>,
    },
}

/// ns-3's TCP as the simulator's stack `ns3` has it; with `ecn` that of RFC 3168.
pub fn tcp_attributes(ecn: bool) -> Vec<(String, String)> {
    let tcp = &Tcp::NS3;
    let (MinRto::OfSum(min_rto_ns) | MinRto::OfVariation(min_rto_ns)) = tcp.min_rto;
    let ecn = if ecn { "On" } else { "Off" };
    let attributes = [
        ("TcpL4Protocol::RecoveryType", "ns3::TcpPrrRecovery".to_string()),
        ("TcpSocket::SegmentSize", tcp.mss.to_string()),
        ("TcpSocket::DelAckCount", tcp.ack_every.to_string()),
        ("TcpSocket::SndBufSize", tcp.send_buffer.to_string()),
        ("TcpSocket::RcvBufSize", tcp.receive_buffer.to_string()),
        ("TcpSocketBase::Sack", tcp.sack.to_string()),
        ("TcpSocketBase::MinRto", format!("{min_rto_ns}ns")),
        ("TcpSocketBase::UseEcn", ecn.into()),
    ];
    attributes.map(|(name, value)| (format!("ns3::{name}"), value)).into()
}

/// The algorithms that ns-3 has, by the simulator's names for them and those of ns-3's types.
pub const ALGORITHMS: [(&str, &str); 16] = [
    ("bbr", "ns3::TcpBbr"),
    ("bic", "ns3::TcpBic"),
    ("cubic", "ns3::TcpCubic"),
    ("dctcp", "ns3::TcpDctcp"),
    ("highspeed", "ns3::TcpHighSpeed"),
    ("htcp", "ns3::TcpHtcp"),
    ("hybla", "ns3::TcpHybla"),
    ("illinois", "ns3::TcpIllinois"),
    ("ledbat", "ns3::TcpLedbat"),
    ("lp", "ns3::TcpLp"),
    ("newreno", "ns3::TcpNewReno"),
    ("scalable", "ns3::TcpScalable"),
    ("vegas", "ns3::TcpVegas"),
    ("veno", "ns3::TcpVeno"),
    ("westwood", "ns3::TcpWestwoodPlus"),
    ("yeah", "ns3::TcpYeah"),
];

impl fmt::Display for Network {
    /// As `cpp/driver.cc` reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends_ns = [self.stop, self.latest].map(|end| end.as_nanos());
        writeln!(f, "seed {} {}\nstop {} {}", self.seed, self.run, ends_ns[0], ends_ns[1])?;
        for (name, value) in &self.attributes {
            writeln!(f, "default {name} {value}")?;
        }
        self.links.iter().try_for_each(|link| link.fmt(f))?;
        self.flows.iter().try_for_each(|flow| flow.fmt(f))
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, to] = self.ends;
        let rate_bps = self.rate.map_or(UNLIMITED_BPS, Rate::as_bits_per_sec);
        let (delay_ns, loss) = (self.delay.as_nanos(), self.loss.as_f64());
        writeln!(f, "link {from} {to} {rate_bps} {delay_ns} {loss}")?;
        write!(f, "qdisc {}", self.qdisc.type_name)?;
        self.qdisc.attributes.iter().try_for_each(|(name, value)| write!(f, " {name} {value}"))?;
        writeln!(f)?;
        for Change { at, rate, delay, loss } in &self.changes {
            let values = [
                rate.map(|rate| ("rate", rate.as_bits_per_sec().to_string())),
                delay.map(|delay| ("delay", delay.as_nanos().to_string())),
                loss.map(|loss| ("loss", loss.as_f64().to_string())),
            ];
            for (what, value) in values.into_iter().flatten() {
                writeln!(f, "change {} {what} {value}", at.as_nanos())?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pair, tos, .. } = self;
        let stop_ns = self.stop.as_nanos();
        let [data_ns, back_ns] = self.access.map(|access| access.as_nanos());
        let [data, back] = self
            .ways
            .each_ref()
            .map(|way| way.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
        match &self.traffic {
            Traffic::Greedy { start, algorithm, initial_window } => writeln!(
                f,
                "tcp {pair} {} {stop_ns} {data_ns} {back_ns} {data} {back} {initial_window} {tos} {algorithm}",
                start.as_nanos()
            ),
            Traffic::Datagrams { payload, sends } => {
                writeln!(
                    f,
                    "udp {pair} {stop_ns} {data_ns} {back_ns} {data} {back} {payload} {tos}"
                )?;
                sends.iter().try_for_each(|at| writeln!(f, "send {}", at.as_nanos()))
            }
            Traffic::Requests { algorithm, initial_window, asks } => {
                writeln!(
                    f,
                    "requests {pair} {stop_ns} {data_ns} {back_ns} {data} {back} {initial_window} {tos} {algorithm}"
                )?;
                asks.iter().try_for_each(|(at, bytes)| writeln!(f, "ask {} {bytes}", at.as_nanos()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_written_line_by_line() {
        let link = Link {
            ends: [0, 1],
            rate: Some(Rate::from_mbit_per_sec(16)),
            delay: Duration::from_millis(7),
            loss: Ratio::ZERO,
            qdisc: Qdisc::fifo("20p"),
            changes: vec![Change {
                at: Duration::from_secs(5),
                rate: Some(Rate::from_mbit_per_sec(4)),
                loss: Ratio::new(0.01),
                ..Change::default()
            }],
        };
        let back = Link { ends: [2, 3], rate: None, changes: Vec::new(), ..link.clone() };
        let flow = |traffic| Flow {
            pair: 1,
            stop: Duration::from_secs(9),
            access: [Duration::from_millis(2), Duration::ZERO],
            ways: [vec![0], vec![1]],
            tos: 8,
            traffic,
        };
        let start = Duration::from_millis(1);
        let network = Network {
            seed: 1,
            run: 42,
            stop: Duration::from_secs(9),
            latest: Duration::from_secs(10),
            attributes: vec![("ns3::TcpSocket::SegmentSize".into(), "1448".into())],
            links: vec![link, back],
            flows: vec![
                flow(Traffic::Greedy { start, algorithm: "ns3::TcpVegas", initial_window: 10 }),
                flow(Traffic::Datagrams { payload: 100, sends: vec![start, start * 2] }),
                flow(Traffic::Requests {
                    algorithm: "ns3::TcpCubic",
                    initial_window: 3,
                    asks: vec![(start, 5000)],
                }),
            ],
        };
        let expected = "\
seed 1 42
stop 9000000000 10000000000
default ns3::TcpSocket::SegmentSize 1448
link 0 1 16000000 7000000 0
qdisc ns3::FifoQueueDisc MaxSize 20p
change 5000000000 rate 4000000
change 5000000000 loss 0.01
link 2 3 100000000000 7000000 0
qdisc ns3::FifoQueueDisc MaxSize 20p
tcp 1 1000000 9000000000 2000000 0 0 1 10 8 ns3::TcpVegas
udp 1 9000000000 2000000 0 0 1 100 8
send 1000000
send 2000000
requests 1 9000000000 2000000 0 0 1 3 8 ns3::TcpCubic
ask 1000000 5000
";
        assert_eq!(network.to_string(), expected);
    }

    #[test]
    fn tcp_is_that_of_the_stack_ns3() {
        let text = tcp_attributes(false);
        let value = |name: &str| {
            let found = text.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(value("ns3::TcpSocket::SegmentSize"), Some("1448"));
        assert_eq!(value("ns3::TcpSocketBase::MinRto"), Some("1000000000ns"));
        assert_eq!(value("ns3::TcpSocketBase::UseEcn"), Some("Off"));
        assert!(tcp_attributes(true).contains(&("ns3::TcpSocketBase::UseEcn".into(), "On".into())));
    }
}
