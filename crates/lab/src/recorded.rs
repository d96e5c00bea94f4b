//! A plan for the simulator that approximates a bundle as boxes measured it in the field.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use forebay_core::spec::Spec;
use forebay_core::units::{Rate, format_duration};

use crate::plan::references::STATUS_QUO;

/// The arm with the boxes as they were.
pub const AS_RECORDED: &str = "as_recorded";

/// File of the recorded path, which the plan names.
pub const PATH_FILE: &str = "path.csv";

/// File of the plan.
pub const PLAN_FILE: &str = "recorded.toml";

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

/// Simulated time of a recorded path: after the warm-up there are 5 s, and the longest usual recording is whole. A
/// longer one is cut, which [`Measured::approximations`] says.
const PATH_TIMES: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_secs(300);

impl Measured {
    /// The assumption on rate and round trip, the part of the path that is simulated, and the rest of
    /// [`APPROXIMATIONS`].
    pub fn approximations(&self) -> Vec<String> {
        let first = match self.path {
            Some(_) => {
                "rate and round trip of the bottleneck are the recorded ones; between measured rates, the last holds"
            }
            None => {
                "the bottleneck has one rate, the median estimate, and the smallest measured round trip"
            }
        };
        let most = *PATH_TIMES.end();
        let length = self.path.map(|length| Duration::from_secs(length.as_secs()));
        let cut = length.filter(|length| *length > most).map(|length| {
            let [most, length] = [most, length].map(format_duration);
            format!("only the first {most} of the path are simulated, of {length}")
        });
        let rest = APPROXIMATIONS.map(str::to_string);
        std::iter::once(first.to_string()).chain(cut).chain(rest).collect()
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

/// Writes a plan and its recorded path into `folder`, which is created if it does not exist.
///
/// # Errors
///
/// A file of one of these names exists, or the folder cannot be used. Then nothing is written.
pub fn write(folder: &Path, plan: &str, path: Option<&str>) -> io::Result<()> {
    let files = [PATH_FILE, PLAN_FILE].map(|name| folder.join(name));
    if let Some(file) = files.iter().find(|file| file.exists()) {
        let reason = format!("{} exists already and is never overwritten", file.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
    }
    fs::create_dir_all(folder)?;
    path.map_or(Ok(()), |path| fs::write(&files[0], path))?;
    fs::write(&files[1], plan)
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
    fn path_longer_than_simulated_is_said() {
        let said = |secs| {
            let path = Some(Duration::from_secs(secs));
            Measured { path, ..measured() }.approximations().join("; ")
        };
        let cut = "only the first 300s of the path are simulated, of 421s";
        assert!(said(421).contains(cut), "{}", said(421));
        assert!(!said(300).contains("only the first"));
    }

    #[test]
    fn existing_files_are_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("deeper");
        write(&folder, "one", Some("rows")).unwrap();
        for name in [PATH_FILE, PLAN_FILE] {
            let refused = write(&folder, "two", Some("other rows")).unwrap_err().to_string();
            assert!(refused.ends_with(&format!("{name} exists already and is never overwritten")));
            fs::remove_file(folder.join(name)).unwrap();
        }
        assert!(!folder.join(PATH_FILE).exists(), "nothing is written");
        write(&folder, "two", None).unwrap();
        assert_eq!(fs::read_to_string(folder.join(PLAN_FILE)).unwrap(), "two");
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
