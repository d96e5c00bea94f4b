//! Input of the driver: the network as plain values, and as the text that the driver reads.

use std::fmt;
use std::time::Duration;

use forebay_core::units::Rate;
use forebay_scenario::{Change, Flow, Link, Traffic};
use forebay_sim::{MinRto, Tcp};

/// Rate of a link without a limit (bits per second): ns-3 needs one.
const UNLIMITED_BPS: u64 = 100_000_000_000;

/// Bytes of PPP, IPv4 and UDP around the payload of a datagram.
pub const DATAGRAM_HEADERS: u32 = 2 + 20 + 8;

/// Hosts, links and flows, every number resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Seed of ns-3's random numbers, not 0.
    pub seed: u32,
    /// Number of the run; ns-3 draws other numbers for each run of a seed.
    pub run: u64,
    /// End of the simulation if no answers are outstanding.
    pub stop: Duration,
    /// End of the simulation even if answers are outstanding.
    pub latest: Duration,
    /// Attributes of ns-3's objects with their values, such as [`tcp_attributes`].
    pub attributes: Vec<(String, String)>,
    /// The links; flows name them by their position.
    pub links: Vec<PlacedLink>,
    /// The flows.
    pub flows: Vec<PlacedFlow>,
}

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedLink {
    /// Numbers of the nodes at the start and the end.
    pub ends: [u32; 2],
    /// The plan's link: its rate, delay, loss and changes are written.
    pub of: Link,
    /// The queue; it replaces the queue of `of`.
    pub qdisc: Qdisc,
}

/// A queueing discipline of ns-3.
#[derive(Clone, Debug, PartialEq)]
pub struct Qdisc {
    /// Name of its type, such as `ns3::FifoQueueDisc`.
    pub type_name: &'static str,
    /// Attributes with their values. `QUANTUM` stands for a setting that has a method but no attribute.
    pub attributes: Vec<(&'static str, String)>,
}

impl Qdisc {
    /// A queue that drops arrivals when full.
    pub fn fifo(limit: &str) -> Self {
        Self { type_name: "ns3::FifoQueueDisc", attributes: vec![("MaxSize", limit.into())] }
    }
}

/// A connection or source of a flow, between two hosts of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedFlow {
    /// The plan's flow: its start, stop, DSCP, initial window and kind of traffic are written.
    pub of: Flow,
    /// Type name of the congestion control, such as `ns3::TcpNewReno`; it replaces that in `of`. Empty for
    /// datagrams.
    pub algorithm: &'static str,
    /// Number of its pair of sites.
    pub pair: u16,
    /// Delays outside the links: of the data, and of the way back.
    pub access: [Duration; 2],
    /// The links on the way of the data, and on the way back.
    pub ways: [Vec<usize>; 2],
    /// In order: when each datagram is sent, with its payload (bytes), or when each answer is requested, with
    /// its size (bytes).
    pub schedule: Vec<(Duration, u64)>,
}

/// Attributes that set up ns-3's TCP like the simulator's stack `ns3`; with `ecn`, RFC 3168 is on.
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

/// ns-3's algorithms: the simulator's name and ns-3's type name.
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
    /// The text that `cpp/driver.cc` reads.
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

impl fmt::Display for PlacedLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, to] = self.ends;
        let rate_bps = self.of.rate().map_or(UNLIMITED_BPS, Rate::as_bits_per_sec);
        let (delay_ns, loss) = (self.of.delay.as_nanos(), self.of.loss.as_f64());
        writeln!(f, "link {from} {to} {rate_bps} {delay_ns} {loss}")?;
        write!(f, "qdisc {}", self.qdisc.type_name)?;
        self.qdisc.attributes.iter().try_for_each(|(name, value)| write!(f, " {name} {value}"))?;
        writeln!(f)?;
        for Change { at, rate, delay, loss } in &self.of.changes {
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

impl fmt::Display for PlacedFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, algorithm, pair, .. } = self;
        let [start_ns, stop_ns] = [of.start, of.stop].map(|at| at.as_nanos());
        let [data_ns, back_ns] = self.access.map(|access| access.as_nanos());
        let [data, back] = self
            .ways
            .each_ref()
            .map(|way| way.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
        let way = format!("{stop_ns} {data_ns} {back_ns} {data} {back}");
        let (window, tos) = (of.initial_window, of.dscp << 2);
        match &of.traffic {
            Traffic::Datagrams { packet_bytes, .. } => {
                writeln!(f, "udp {pair} {way} {} {tos}", packet_bytes - DATAGRAM_HEADERS)?;
                self.schedule.iter().try_for_each(|(at, _)| writeln!(f, "send {}", at.as_nanos()))
            }
            Traffic::Requests(_) => {
                writeln!(f, "requests {pair} {way} {window} {tos} {algorithm}")?;
                let mut asks = self.schedule.iter();
                asks.try_for_each(|(at, bytes)| writeln!(f, "ask {} {bytes}", at.as_nanos()))
            }
            // The translation has refused other traffic.
            _ => writeln!(f, "tcp {pair} {start_ns} {way} {window} {tos} {algorithm}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::spec::Spec;
    use forebay_core::traffic::{Connections, Timing};
    use forebay_core::units::Ratio;
    use forebay_scenario::{RequestLoad, fixed_size};

    use super::*;

    #[test]
    fn a_network_is_written_line_by_line() {
        let (rate, delay) = (Rate::from_mbit_per_sec(16), Duration::from_millis(7));
        let mut of = Link::at_rate("forward", rate, delay, Spec::named("fifo"));
        of.changes.push(Change {
            at: Duration::from_secs(5),
            rate: Some(Rate::from_mbit_per_sec(4)),
            loss: Ratio::new(0.01),
            ..Change::default()
        });
        let link = PlacedLink { ends: [0, 1], of, qdisc: Qdisc::fifo("20p") };
        let of = Link::delay("reverse", delay);
        let back = PlacedLink { ends: [2, 3], of, qdisc: Qdisc::fifo("20p") };
        let start = Duration::from_millis(1);
        let flow = |traffic, algorithm, schedule| PlacedFlow {
            of: Flow {
                start,
                dscp: 2,
                initial_window: 3,
                ..Flow::new("flow", Spec::named("vegas"), Duration::from_secs(9), traffic)
            },
            algorithm,
            pair: 1,
            access: [Duration::from_millis(2), Duration::ZERO],
            ways: [vec![0], vec![1]],
            schedule,
        };
        let (rate, timing) = (Rate::from_mbit_per_sec(1), Timing::Even);
        let datagrams = Traffic::Datagrams { flows: 1, rate, packet_bytes: 130, timing };
        let web = Traffic::Requests(RequestLoad {
            sizes: fixed_size("5KB".parse().unwrap()).unwrap(),
            load: rate,
            connections: Connections::Each,
            iid: false,
        });
        let network = Network {
            seed: 1,
            run: 42,
            stop: Duration::from_secs(9),
            latest: Duration::from_secs(10),
            attributes: vec![("ns3::TcpSocket::SegmentSize".into(), "1448".into())],
            links: vec![link, back],
            flows: vec![
                flow(Traffic::Greedy { flows: 1 }, "ns3::TcpVegas", Vec::new()),
                flow(datagrams, "", vec![(start, 100), (start * 2, 100)]),
                flow(web, "ns3::TcpCubic", vec![(start, 5000)]),
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
tcp 1 1000000 9000000000 2000000 0 0 1 3 8 ns3::TcpVegas
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
