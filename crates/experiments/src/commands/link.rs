//! `forebay link`: a command behind an emulated link.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use forebay_core::link::AtEnd;
#[cfg(feature = "host")]
use forebay_core::link::{Change, Replay, Service};
use forebay_core::spec::{Spec, SpecError};
use forebay_core::units::{ParseQuantityError, Rate, Ratio, parse_duration, parse_link_rate};
use forebay_lab::plan::library::Source;
use forebay_lab::traces::{self, LinkTrace, Understood};
#[cfg(feature = "host")]
use forebay_scenario::{self as scenario, Property};

/// Run a command behind an emulated link.
///
/// The command runs in its own network namespace. Its only way out is the emulated link to this
/// machine. $FOREBAY_LINK_OUTSIDE has this machine's address at the link, which is also the default
/// route. The command cannot reach services on this machine's loopback address. It reaches other
/// hosts only if this machine forwards and translates its packets.
///
/// Needs root. Prints a summary of both directions on stderr.
///
/// Exit code: the exit code of the command, or 128 plus the number of the signal that ended it. If the
/// command did not start: 1 without root, and 2 for a wrong option or an unknown command.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay link --rate 10Mbit/s --delay 25ms --qdisc 'fq_codel(limit=1000p)' -- \\\n    \
    sh -c 'ping -c 3 $FOREBAY_LINK_OUTSIDE'\n  \
    forebay link --trace traces/leo_handovers.csv -- sh -c 'ping -c 20 $FOREBAY_LINK_OUTSIDE'")]
pub struct Link {
    #[command(flatten)]
    forward: Forward,
    #[command(flatten)]
    reverse: Reverse,
    /// Seed of losses, reordering and queues.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write a record of every packet, and samples of the queues, into this folder.
    #[arg(long, value_name = "DIR")]
    log: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The link from the command to this machine. The way back has the same values unless `Reverse`
/// replaces some.
#[derive(clap::Args)]
struct Forward {
    /// Rate of Ethernet frames [default: unlimited].
    #[arg(long, value_parser = parse_link_rate, value_name = "RATE")]
    rate: Option<Rate>,
    /// Trace to follow: CSV with time_ms or time_s and any of rate_mbps, delay_ms, rtt_ms (half in
    /// each direction) and loss; mahimahi (one line for each chance to send 1500 bytes, in
    /// milliseconds); or the output of iperf3 --json.
    #[arg(long, value_parser = trace, value_name = "FILE")]
    trace: Option<ReadTrace>,
    /// After the end of a trace: repeat it, or hold its last values.
    #[arg(long, value_enum, default_value_t, value_name = "END")]
    trace_end: TraceEnd,
    /// Propagation delay in one direction [default: 0ms].
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    delay: Option<Duration>,
    /// Largest additional delay, 0s to 1s: each packet takes a uniformly random part of it, and
    /// packets keep their order.
    #[arg(long, value_parser = jitter, default_value = "0s", value_name = "TIME")]
    jitter: Duration,
    /// Interval at whose multiples packets leave together, 0s to 1s, as on a radio link that waits
    /// for its turn.
    #[arg(long, value_parser = jitter, default_value = "0s", value_name = "TIME")]
    batch: Duration,
    /// Share of packets that the link loses [default: 0].
    #[arg(long, value_name = "SHARE", value_parser = ratio)]
    loss: Option<Ratio>,
    /// Share of packets that the link holds back. Above 0, packets also overtake when a trace
    /// shortens the delay.
    #[arg(long, default_value = "0", value_name = "SHARE", value_parser = ratio)]
    reorder: Ratio,
    /// Number of later packets that overtake a packet that is held back.
    #[arg(long, default_value_t = 3, value_name = "N")]
    reorder_packets: u32,
    /// Queueing discipline, such as fifo, sfq(limit=1200p) or codel(target=5ms).
    #[arg(long, default_value = "fifo", value_parser = spec, value_name = "QDISC")]
    qdisc: Spec,
}

/// The link from this machine to the command. Omitted values are the same as in the other direction.
#[derive(clap::Args)]
struct Reverse {
    /// Rate towards the command.
    #[arg(long, value_parser = parse_link_rate, value_name = "RATE")]
    reverse_rate: Option<Rate>,
    /// Trace towards the command; the other direction gives the values that it does not set.
    #[arg(long, value_parser = trace, value_name = "FILE")]
    reverse_trace: Option<ReadTrace>,
    /// Delay towards the command.
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    reverse_delay: Option<Duration>,
    /// Jitter towards the command.
    #[arg(long, value_parser = jitter, value_name = "TIME")]
    reverse_jitter: Option<Duration>,
    /// Batches towards the command.
    #[arg(long, value_parser = jitter, value_name = "TIME")]
    reverse_batch: Option<Duration>,
    /// Loss towards the command.
    #[arg(long, value_name = "SHARE", value_parser = ratio)]
    reverse_loss: Option<Ratio>,
    /// Reordering towards the command.
    #[arg(long, value_name = "SHARE", value_parser = ratio)]
    reverse_reorder: Option<Ratio>,
    /// Number of overtaking packets towards the command.
    #[arg(long, value_name = "N")]
    reverse_reorder_packets: Option<u32>,
    /// Queueing discipline towards the command.
    #[arg(long, value_parser = spec, value_name = "QDISC")]
    reverse_qdisc: Option<Spec>,
}

fn ratio(text: &str) -> Result<Ratio, ParseQuantityError> {
    text.parse()
}

/// A trace and its interpretation.
type ReadTrace = (LinkTrace, Understood);

fn trace(path: &str) -> Result<ReadTrace, String> {
    let drawn = Source::drawn_trace(path);
    let source = drawn.unwrap_or_else(|| Source::read(std::path::Path::new(path)));
    let source = source.map_err(|error| error.to_string())?;
    traces::read(path, &source.text).map_err(|error| error.to_string())
}

/// Longest jitter and distance of batches, as in plans.
const JITTER_MAX: Duration = Duration::from_secs(1);

fn jitter(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).ok().filter(|time| *time <= JITTER_MAX);
    time.ok_or_else(|| "allowed is a duration such as \"5ms\", 0s to 1s".into())
}

/// Behaviour after the end of a trace.
#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum TraceEnd {
    #[default]
    Repeat,
    Hold,
}

impl From<TraceEnd> for AtEnd {
    fn from(end: TraceEnd) -> Self {
        match end {
            TraceEnd::Repeat => Self::Repeat,
            TraceEnd::Hold => Self::Hold,
        }
    }
}

fn spec(text: &str) -> Result<Spec, SpecError> {
    text.parse()
}

#[cfg(feature = "host")]
impl Link {
    /// Runs the command.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        use std::os::unix::process::ExitStatusExt;
        use std::process::Command;

        use forebay::BadInput;
        use forebay_testbed::emulator::shell::{self, ShellSpec};

        if let Some(log) = &self.log {
            std::fs::create_dir_all(log)
                .map_err(|error| BadInput(format!("{}: {error}", log.display())))?;
        }
        let traces = [&self.forward.trace, &self.reverse.reverse_trace];
        for (_, understood) in traces.into_iter().flatten() {
            eprintln!("note: {understood}");
            let warnings = understood.warnings.iter();
            warnings.for_each(|it| eprintln!("warning: {}: {it}", understood.file));
        }
        let at_end = self.forward.trace_end.into();
        let forward = self.forward.link()?;
        let reverse = self.reverse.link(&forward, at_end)?;
        let spec = ShellSpec { seed: self.seed, forward, reverse, out: self.log };
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        let outcome = shell::run_behind(&spec, command).map_err(|error| {
            if error.is_bad_input() {
                anyhow::Error::new(BadInput(error.to_string()))
            } else {
                error.into()
            }
        })?;
        for (name, link) in ["out", "in"].iter().zip(&outcome.links) {
            eprintln!("{}", summary(name, link, outcome.elapsed));
        }
        // As shells do: 128 and the number of the signal that ended it.
        let code = outcome.status.code().or(outcome.status.signal().map(|signal| 128 + signal));
        Ok(ExitCode::from(u8::try_from(code.unwrap_or(1)).unwrap_or(1)))
    }
}

#[cfg(feature = "host")]
impl Forward {
    fn link(self) -> anyhow::Result<scenario::Link> {
        let mut link = scenario::Link {
            jitter: self.jitter,
            batch: self.batch,
            loss: self.loss.unwrap_or_default(),
            reorder: self.reorder,
            reorder_packets: self.reorder_packets,
            ..scenario::Link::new(
                "forward",
                self.rate.map_or(Service::Unlimited, Service::Rate),
                self.delay.unwrap_or_default(),
                self.qdisc,
            )
        };
        let given = [
            ("rate", self.rate.is_some()),
            ("delay", self.delay.is_some()),
            ("loss", self.loss.is_some()),
        ];
        if let Some((trace, _)) = self.trace {
            follow(&mut link, trace, self.trace_end.into(), "trace", &given)?;
        }
        Ok(link)
    }
}

#[cfg(feature = "host")]
impl Reverse {
    fn link(self, forward: &scenario::Link, at_end: AtEnd) -> anyhow::Result<scenario::Link> {
        let forward = forward.clone();
        let given = [
            ("rate", self.reverse_rate.is_some()),
            ("delay", self.reverse_delay.is_some()),
            ("loss", self.reverse_loss.is_some()),
        ];
        let mut link = scenario::Link {
            name: "reverse".into(),
            service: self.reverse_rate.map_or(forward.service, Service::Rate),
            delay: self.reverse_delay.unwrap_or(forward.delay),
            jitter: self.reverse_jitter.unwrap_or(forward.jitter),
            batch: self.reverse_batch.unwrap_or(forward.batch),
            loss: self.reverse_loss.unwrap_or(forward.loss),
            reorder: self.reverse_reorder.unwrap_or(forward.reorder),
            reorder_packets: self.reverse_reorder_packets.unwrap_or(forward.reorder_packets),
            qdisc: self.reverse_qdisc.unwrap_or(forward.qdisc),
            traces: Vec::new(),
            overtakes: None,
            ..forward
        };
        if let Some((trace, _)) = self.reverse_trace {
            follow(&mut link, trace, at_end, "reverse-trace", &given)?;
        }
        // Properties that neither an option nor a trace sets here are as for the other direction.
        let is_own = |property, place: usize| given[place].1 || link.replays(property);
        let [rate, delay, loss] = [
            is_own(Property::Rate, 0) || matches!(link.service, Service::Trace(_)),
            is_own(Property::Delay, 1),
            is_own(Property::Loss, 2),
        ];
        let rest = |row: Change| Change {
            at: row.at,
            rate: row.rate.filter(|_| !rate),
            delay: row.delay.filter(|_| !delay),
            loss: row.loss.filter(|_| !loss),
        };
        let inherited = forward.traces.iter().filter_map(|replay| {
            Some(Replay { trace: replay.trace.only(rest)?.into(), ..replay.clone() })
        });
        link.traces.extend(inherited);
        settle_order(&mut link);
        Ok(link)
    }
}

/// Makes a link follow the trace of `option`, in addition to the `given` options.
#[cfg(feature = "host")]
fn follow(
    link: &mut scenario::Link,
    trace: LinkTrace,
    at_end: AtEnd,
    option: &str,
    given: &[(&str, bool); 3],
) -> anyhow::Result<()> {
    let refused = |reason: String| Err(forebay::BadInput(format!("--{option}: {reason}")).into());
    let sets = match &trace {
        LinkTrace::Opportunities(_) => [true, false, false],
        LinkTrace::Path(trace) => [trace.sets_rate(), trace.sets_delay(), trace.sets_loss()],
    };
    let twice = given.iter().zip(sets).find(|((_, is_given), is_set)| *is_given && *is_set);
    if let Some(((name, _), _)) = twice {
        let prefix = option.trim_end_matches("trace");
        let allowed = format!("allowed is a trace without it, or no --{prefix}{name}");
        return refused(format!("sets the {name}: {allowed}"));
    }
    match trace {
        LinkTrace::Opportunities(_) if at_end == AtEnd::Hold => {
            return refused("a mahimahi trace repeats: allowed is --trace-end repeat".into());
        }
        LinkTrace::Opportunities(trace) => link.service = Service::Trace(trace.into()),
        LinkTrace::Path(trace) => {
            match trace.mean_rate() {
                Some(Rate::ZERO) => {
                    return refused("its rate is 0: allowed is a rate above 0 in any row".into());
                }
                Some(mean) => link.service = Service::Rate(mean),
                None => {}
            }
            link.traces.push(Replay { trace: trace.into(), at_end });
        }
    }
    settle_order(link);
    Ok(())
}

/// Packets keep their order when a trace shortens the delay, unless reordering is requested.
#[cfg(feature = "host")]
fn settle_order(link: &mut scenario::Link) {
    if link.replays(Property::Delay) {
        link.overtakes = Some(link.reorder > Ratio::ZERO);
    }
}

/// One line about one direction.
#[cfg(feature = "host")]
fn summary(name: &str, link: &forebay_core::record::LinkRecord, elapsed: Duration) -> String {
    let mbit_per_sec = link.bytes_out as f64 * 8e-6 / elapsed.as_secs_f64().max(1e-9);
    let ms = |ns: u64| ns as f64 / 1e6;
    let [sojourn_p50, sojourn_p99, _, sojourn_max] = link.sojourn_ns.map(ms);
    let [_, late_p99, _, late_max] = link.lateness_ns.map(ms);
    let mut line = format!(
        "{name:<3} {mbit_per_sec:.2} Mbit/s, {} packets through, {} dropped by the queue, {} lost; \
         in the queue {sojourn_p50:.1} ms (median), {sojourn_p99:.1} ms (p99), \
         {sojourn_max:.1} ms (max); late by {late_p99:.2} ms (p99), {late_max:.2} ms (max)",
        link.packets_out, link.drops_queue, link.drops_loss,
    );
    if link.marks_queue > 0 {
        line += &format!("; the queue marked {} packets", link.marks_queue);
    }
    if link.drops_ring > 0 {
        line += &format!("; the emulator itself lost {} packets", link.drops_ring);
    }
    line
}

#[cfg(not(feature = "host"))]
impl Link {
    /// Returns the error that names the missing feature.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = self;
        Err(super::needs_host("link"))
    }
}
