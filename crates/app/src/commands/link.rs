//! `forebay link`: a command behind an emulated link.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use forebay_core::spec::{Spec, SpecError};
use forebay_core::units::{ParseQuantityError, Rate, Ratio, parse_duration};
use forebay_lab::plan::parse_rate;

/// Arguments of `forebay link`.
///
/// The command runs in a network namespace of its own. Its only way out is the emulated link to
/// this machine, whose address there is in $FOREBAY_LINK_OUTSIDE and is its default route; services
/// on this machine's loopback address are out of its reach, and so is the rest of the world unless
/// this machine forwards and translates its packets.
///
/// Needs root. Exits with the command's status; a summary of both directions goes to stderr.
#[derive(clap::Args)]
#[command(
    after_help = "Example: an echo of 50 ms through 10 Mbit/s, with a queue of its own kind\n  \
    forebay link --rate 10Mbit/s --delay 25ms --qdisc 'fq_codel(limit=1000p)' -- \\\n    \
    sh -c 'ping -c 3 $FOREBAY_LINK_OUTSIDE'"
)]
pub struct Link {
    #[command(flatten)]
    forward: Forward,
    #[command(flatten)]
    reverse: Reverse,
    /// Seed of losses, reordering and queues.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write a record of every packet and samples of the queues to this directory.
    #[arg(long, value_name = "DIR")]
    log: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The link from the command to this machine, and back too where nothing else is said.
#[derive(clap::Args)]
struct Forward {
    /// Rate of Ethernet frames [default: unlimited].
    #[arg(long, conflicts_with = "trace", value_parser = parse_rate, value_name = "RATE")]
    rate: Option<Rate>,
    /// A mahimahi trace: one line per chance to send a packet of 1500 bytes, in milliseconds.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Propagation delay, one way.
    #[arg(long, value_parser = parse_duration, default_value = "0ms", value_name = "TIME")]
    delay: Duration,
    /// Share of the packets that are lost.
    #[arg(long, default_value = "0", value_name = "SHARE", value_parser = ratio)]
    loss: Ratio,
    /// Share of the packets that are held back.
    #[arg(long, default_value = "0", value_name = "SHARE", value_parser = ratio)]
    reorder: Ratio,
    /// How many later packets overtake one that is held back.
    #[arg(long, default_value_t = 3, value_name = "N")]
    reorder_packets: u32,
    /// The queue, such as fifo, sfq(limit=1200p) or codel(target=5ms).
    #[arg(long, default_value = "fifo", value_parser = spec, value_name = "QDISC")]
    qdisc: Spec,
}

/// The link from this machine to the command; what is not given is as for the other direction.
#[derive(clap::Args)]
struct Reverse {
    /// Rate towards the command.
    #[arg(long, conflicts_with = "reverse_trace", value_parser = parse_rate, value_name = "RATE")]
    reverse_rate: Option<Rate>,
    /// Trace of the link towards the command.
    #[arg(long, value_name = "FILE")]
    reverse_trace: Option<PathBuf>,
    /// Delay towards the command.
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    reverse_delay: Option<Duration>,
    /// Loss towards the command.
    #[arg(long, value_name = "SHARE", value_parser = ratio)]
    reverse_loss: Option<Ratio>,
    /// Reordering towards the command.
    #[arg(long, value_name = "SHARE", value_parser = ratio)]
    reverse_reorder: Option<Ratio>,
    /// Overtaking packets towards the command.
    #[arg(long, value_name = "N")]
    reverse_reorder_packets: Option<u32>,
    /// Queue towards the command.
    #[arg(long, value_parser = spec, value_name = "QDISC")]
    reverse_qdisc: Option<Spec>,
}

fn ratio(text: &str) -> Result<Ratio, ParseQuantityError> {
    text.parse()
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

        use forebay_testbed::emulator::shell::{self, ShellSpec};

        if let Some(log) = &self.log {
            std::fs::create_dir_all(log)
                .map_err(|error| super::BadInput(format!("{}: {error}", log.display())))?;
        }
        let forward = self.forward.link();
        let reverse = self.reverse.link(&forward);
        let spec = ShellSpec { seed: self.seed, forward, reverse, out: self.log };
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        let outcome = shell::run_behind(&spec, command).map_err(|error| {
            if error.is_bad_input() {
                anyhow::Error::new(super::BadInput(error.to_string()))
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
    fn link(self) -> forebay_testbed::scenario::LinkSpec {
        forebay_testbed::scenario::LinkSpec {
            rate_bps: self.rate.map(Rate::as_bits_per_sec),
            trace: self.trace,
            delay_ns: nanos(self.delay),
            jitter_ns: 0,
            batch_ns: 0,
            loss: self.loss.as_f64(),
            message_loss: 0.0,
            reorder: self.reorder.as_f64(),
            reorder_packets: self.reorder_packets,
            qdisc: self.qdisc,
            changes: Vec::new(),
        }
    }
}

#[cfg(feature = "host")]
impl Reverse {
    fn link(
        self,
        forward: &forebay_testbed::scenario::LinkSpec,
    ) -> forebay_testbed::scenario::LinkSpec {
        let mut link = forward.clone();
        if self.reverse_rate.is_some() || self.reverse_trace.is_some() {
            link.rate_bps = self.reverse_rate.map(Rate::as_bits_per_sec);
            link.trace = self.reverse_trace;
        }
        link.delay_ns = self.reverse_delay.map_or(link.delay_ns, nanos);
        link.loss = self.reverse_loss.map_or(link.loss, Ratio::as_f64);
        link.reorder = self.reverse_reorder.map_or(link.reorder, Ratio::as_f64);
        link.reorder_packets = self.reverse_reorder_packets.unwrap_or(link.reorder_packets);
        link.qdisc = self.reverse_qdisc.unwrap_or(link.qdisc);
        link
    }
}

#[cfg(feature = "host")]
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
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
         {sojourn_max:.1} ms (most); late by {late_p99:.2} ms (p99), {late_max:.2} ms (most)",
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
    /// Says what is missing.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = self;
        Err(super::needs_host("link"))
    }
}
