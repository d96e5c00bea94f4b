//! `forebay trace`: link traces made to measure.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use forebay_core::link::{PoissonTrace, Trace as LinkTrace};
use forebay_core::random::Streams;
use forebay_core::spec::SpecError;
use forebay_core::units::{Rate, parse_duration};

use super::{BadInput, print};

/// Arguments of `forebay trace`.
///
/// A trace says when a link may send: one line per chance to send a packet of 1500 bytes, its time
/// in milliseconds; after the last line it repeats. `forebay link --trace`, plans and mahimahi
/// read it.
#[derive(clap::Args)]
#[command(
    after_help = "Example: the mean rate of a cellular path in Mexico, as ccperf replays it\n  \
    forebay trace poisson --rate 2.64Mbit/s --cold-start 1s --seed 1 --out 2.64mbps-poisson.trace"
)]
pub struct Trace {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(clap::Subcommand)]
enum Kind {
    /// Chances at equal distances: a link of constant rate.
    Constant(Constant),
    /// Chances at the arrivals of a Poisson process; the same for the same seed.
    Poisson(Poisson),
}

/// Where the trace goes.
#[derive(clap::Args)]
struct Output {
    /// The new file [default: stdout].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace a file that is there already, once the new one is whole.
    #[arg(long, requires = "out")]
    force: bool,
}

#[derive(clap::Args)]
struct Constant {
    /// Rate in packets of 1500 bytes, without Ethernet headers.
    #[arg(long)]
    rate: Rate,
    /// Longest period: 1ms to 40 days.
    #[arg(long, value_parser = parse_duration, default_value = "60s", value_name = "TIME")]
    duration: Duration,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
struct Poisson {
    /// Mean rate in packets of 1500 bytes, without Ethernet headers.
    #[arg(long)]
    rate: Rate,
    /// Shortest period, 1ms to 40 days: the first chance that does not come before it is the last.
    #[arg(long, value_parser = parse_duration, default_value = "60s", value_name = "TIME")]
    duration: Duration,
    /// For how long chances come every 100 ms first; 1s in the traces of Pantheon and ccperf.
    #[arg(long, value_parser = parse_duration, default_value = "0s", value_name = "TIME")]
    cold_start: Duration,
    /// Seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

impl Trace {
    /// Writes the trace; exit code 2 if there is none at such a rate.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let (trace, Output { out, force }) = match self.kind {
            Kind::Constant(Constant { rate, duration, output }) => {
                (LinkTrace::constant(rate, duration), output)
            }
            Kind::Poisson(Poisson { rate, duration, cold_start, seed, output }) => {
                let plan = PoissonTrace { rate, duration, cold_start };
                (LinkTrace::poisson(&plan, &Streams::new(seed)), output)
            }
        };
        let text = trace.map_err(refused)?.to_string();
        match out {
            Some(path) if path.is_file() && !force => {
                let reason = "a file is there already: allowed is a new one, or --force";
                return Err(BadInput(format!("--out {}: {reason}", path.display())).into());
            }
            Some(path) => replace(&path, text.as_bytes())
                .with_context(|| format!("cannot write {}", path.display()))?,
            None => drop(print(&text)?),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Errors of core name parameters; on the command line they are options.
fn refused(error: SpecError) -> BadInput {
    let option = error.key.replace('_', "-");
    BadInput(format!("--{option} {}: allowed is {}", error.value, error.allowed))
}

/// Writes `text` beside `path` and then gives it that name: whoever opens the file finds all of
/// the old or all of the new one.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    // Behind a symbolic link, what it points to is replaced; a device or pipe never is.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if std::fs::metadata(&target).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return std::fs::write(&target, text);
    }
    let path = target.as_path();
    let mut partial = OsString::from(path);
    partial.push(format!(".{}.partial", std::process::id()));
    let written = std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, path));
    if written.is_err() {
        // What matters is the first error; there may be no file.
        let _ = std::fs::remove_file(&partial);
    }
    written
}
