//! A plan for the simulator that approximates a bundle as boxes measured it in the field.

use std::time::Duration;

use forebay_core::spec::Spec;
use forebay_core::units::{Rate, format_duration};

use crate::plan::references::STATUS_QUO;

/// The arm with the boxes as they were.
pub const AS_RECORDED: &str = "as_recorded";

/// File of the recorded path, which the plan names.
pub const PATH_FILE: &str = "path.csv";

/// Assumptions of the plan about things that no box can measure.
pub const APPROXIMATIONS: [&str; 5] = [
    "the buffer of the bottleneck is a FIFO of one bandwidth-delay product",
    "there is no cross traffic and no random loss on the path",
    "the hosts' TCP is Cubic",
    "if traffic mostly waited at the sendbox, it is modelled as greedy flows, as many as waited \
     there at a time",
    "other traffic is modelled as responses with the sizes in CAIDA's traces, as many bytes as \
     were sent",
];

/// Simulated rates of a bottleneck (bits per second).
const RATES: std::ops::RangeInclusive<u64> = 200_000..=10_000_000_000;
/// Simulated round trips.
const RTTS: std::ops::RangeInclusive<Duration> =
    Duration::from_micros(100)..=Duration::from_secs(2);
/// Most greedy flows.
const FLOWS_MAX: u32 = 200;
/// Greatest load of requests, as a share of the bottleneck's rate: more would never finish.
const LOAD_MAX: f64 = 0.95;
/// Bytes of a frame that a limit counts as one packet.
const FRAME: f64 = 1514.0;

/// The traffic that was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// This many flows that always have data.
    Greedy(u32),
    /// Requests with this mean rate.
    Offered(Rate),
}

/// Measurements of a bundle.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Algorithm of the sendbox.
    pub cc: Spec,
    /// Queueing discipline of the sendbox.
    pub qdisc: Spec,
    /// Rate of the bottleneck.
    pub rate: Rate,
    /// Round trip of the empty path.
    pub rtt: Duration,
    /// The traffic that was sent.
    pub load: Load,
    /// Length of the recorded path, which [`PATH_FILE`] holds and the bottleneck follows; `None`: one rate and one round
    /// trip hold.
    pub path: Option<Duration>,
}

/// Simulated time of a recorded path: after the warm-up there are 5 s, and the longest usual recording is whole.
const PATH_TIMES: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_secs(300);

impl Measured {
    /// The assumption on rate and round trip, and the rest of [`APPROXIMATIONS`].
    pub fn approximations(&self) -> Vec<&'static str> {
        let first = match self.path {
            Some(_) => {
                "rate and round trip of the bottleneck are the recorded ones; between measured rates, the last holds"
            }
            None => {
                "the bottleneck has one rate, the median estimate, and the smallest measured round trip"
            }
        };
        [first].into_iter().chain(APPROXIMATIONS).collect()
    }

    /// The plan: the bundle as measured, and the same without boxes.
    ///
    /// # Errors
    ///
    /// The rate or the round trip is outside the simulated range; the error says which, and what is allowed.
    pub fn plan(&self) -> Result<String, String> {
        let Self { cc, qdisc, rate, rtt, load, path } = self;
        if !RATES.contains(&rate.as_bits_per_sec()) {
            let [least, most] =
                [RATES.start(), RATES.end()].map(|bps| Rate::from_bits_per_sec(*bps));
            return Err(format!("bottleneck of {rate}: allowed is {least} to {most}"));
        }
        if !RTTS.contains(rtt) {
            let [least, most, given] = [*RTTS.start(), *RTTS.end(), *rtt].map(format_duration);
            return Err(format!("round trip of {given}: allowed is {least} to {most}"));
        }
        let bdp_packets = rate.as_bytes_per_sec_f64() * rtt.as_secs_f64() / FRAME;
        let buffer_packets = (bdp_packets.ceil() as u64).max(10);
        let (traffic, count) = match *load {
            Load::Greedy(flows) => ("{ kind = \"greedy\" }".to_string(), flows.clamp(1, FLOWS_MAX)),
            Load::Offered(offered) => {
                let most = rate.as_bits_per_sec() as f64 * LOAD_MAX;
                let bps = (offered.as_bits_per_sec() as f64).clamp(1000.0, most);
                let load = Rate::from_bits_per_sec(bps as u64);
                (format!("{{ kind = \"requests\", sizes = \"caida\", load = \"{load}\" }}"), 1)
            }
        };
        // Requests have connections of their own.
        let count = if count > 1 { format!("count   = {count}\n") } else { String::new() };
        let (cc, qdisc, rtt) = (written(cc), written(qdisc), format_duration(*rtt));
        let stop = path.map_or(Duration::from_secs(35), |length| {
            length.clamp(*PATH_TIMES.start(), *PATH_TIMES.end())
        });
        let stop = format_duration(Duration::from_secs(stop.as_secs()));
        let serves = match path {
            Some(_) => format!("trace = \"{PATH_FILE}\""),
            None => format!("rate  = \"{rate}\""),
        };
        Ok(format!(
            "name   = \"recorded\"\n\
             title  = \"A simulation of the recorded bundle\"\n\
             seeds  = \"1\"\n\
             stop   = \"{stop}\"\n\
             warmup = \"5s\"\n\n\
             [bottleneck]\n\
             {serves}\n\
             rtt   = \"{rtt}\"\n\
             qdisc = {{ kind = \"fifo\", limit = \"{buffer_packets}p\" }}\n\n\
             [[bundle]]\n\
             name  = \"a\"\n\
             cc    = {cc}\n\
             qdisc = {qdisc}\n\n\
             [[flow]]\n\
             name    = \"load\"\n\
             bundle  = \"a\"\n\
             cc      = \"cubic\"\n\
             traffic = {traffic}\n\
             {count}\n\
             [[arm]]\n\
             name    = \"{AS_RECORDED}\"\n\
             summary = \"sendbox and receivebox as recorded\"\n\n\
             [[arm]]\n\
             name    = \"{STATUS_QUO}\"\n\
             summary = \"no sendbox and no receivebox\"\n\
             set     = {{ \"bundle.a.enabled\" = false }}\n"
        ))
    }
}

/// A kind with its parameters in TOML.
fn written(spec: &Spec) -> String {
    let value = match spec.params.is_empty() {
        true => Ok(toml::Value::String(spec.kind.clone())),
        false => toml::Value::try_from(spec),
    };
    value.expect("a kind is made of texts and numbers").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::plan::library::Source;

    fn measured() -> Measured {
        Measured {
            cc: "copa".parse().unwrap(),
            qdisc: "fq_codel(limit=150ms, target=25ms, interval=250ms)".parse().unwrap(),
            rate: Rate::from_mbit_per_sec(24),
            rtt: Duration::from_micros(40_123),
            load: Load::Greedy(4),
            path: None,
        }
    }

    fn load(measured: &Measured) -> Plan {
        let text = measured.plan().unwrap();
        let source = Source { file: "recorded.toml".into(), folder: None, text };
        Plan::from_source(source, &[]).unwrap()
    }

    #[test]
    fn plan_has_measured_path_boxes_and_load() {
        let plan = load(&measured());
        let runs: Vec<_> = plan.experiments().collect::<Result<_, _>>().unwrap();
        let [with, without] = &runs[..] else { panic!("{runs:?}") };
        assert_eq!((with.arm.as_str(), without.arm.as_str()), (AS_RECORDED, STATUS_QUO));
        assert_eq!(with.rtt, Duration::from_micros(40_123));
        // 24 Mbit/s x 40.123 ms.
        assert_eq!(with.forward.qdisc.to_string(), "fifo(limit=80p)");
        let bundle = with.bundle("a").unwrap();
        assert_eq!(bundle.cc.to_string(), "copa");
        assert_eq!(bundle.qdisc.kind, "fq_codel");
        assert_eq!(with.flows.iter().map(|flow| flow.connections()).sum::<u32>(), 4);
        let offered = Measured { load: Load::Offered(Rate::from_mbit_per_sec(90)), ..measured() };
        assert!(
            offered.plan().unwrap().contains("load = \"22800kbit/s\""),
            "less than the path carries"
        );
        load(&offered);
    }

    #[test]
    fn recorded_path_replaces_the_rate() {
        let length = Duration::from_millis(61_500);
        let measured = Measured { path: Some(length), ..measured() };
        let text = measured.plan().unwrap();
        assert!(text.contains("stop   = \"61s\"") && !text.contains("\nrate "), "{text}");
        let folder = tempfile::tempdir().unwrap();
        let rows = "time_s,rate_mbps,rtt_ms\n0,20,40\n61.5,,\n";
        std::fs::write(folder.path().join(PATH_FILE), rows).unwrap();
        let folder = Some(folder.path().to_owned());
        let plan = Plan::from_source(Source { file: "recorded.toml".into(), folder, text }, &[]);
        assert_eq!(plan.unwrap().traces()[0].rows, 1);
        assert!(measured.approximations()[0].contains("recorded ones"));
    }

    #[test]
    fn out_of_range_measurements_are_refused() {
        let slow = Measured { rate: Rate::from_bits_per_sec(1), ..measured() };
        let told = slow.plan().unwrap_err();
        assert_eq!(told, "bottleneck of 1bit/s: allowed is 200kbit/s to 10Gbit/s");
        let far = Measured { rtt: Duration::from_secs(3600), ..measured() };
        assert!(far.plan().unwrap_err().contains("3600s: allowed is 100us to 2s"));
    }
}
