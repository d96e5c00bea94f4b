//! `forebay trace`: link traces made to measure, shown and converted.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use forebay_core::link::{DrawnPath, PathModel, PoissonTrace, Trace as LinkTrace};
use forebay_core::random::Streams;
#[cfg(feature = "host")]
use forebay_core::record::{path_csv, path_times};
use forebay_core::spec::SpecError;
use forebay_core::units::{Rate, format_duration, parse_duration};

use forebay::{BadInput, print};
#[cfg(feature = "host")]
use forebay_host::daemon::record::Paths;
use forebay_lab::plan::library::Source;
use forebay_lab::traces::sizes::{self, PACKET_BYTES};
use forebay_lab::traces::{self, LinkTrace as AnyTrace, Understood};

/// Create, convert and show traces of links.
///
/// `constant` and `poisson` write mahimahi's format: one line for each chance to send a packet of
/// 1500 bytes, with its time in milliseconds. The trace repeats after its last line. The other
/// models write CSV with rate, delay and loss over time. Plans and `forebay link --trace` read both
/// formats.
///
/// `show` and `convert` also read output of iperf3 --json. `convert` also reads archives of
/// `forebay record`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay trace lte --seed 3 --seconds 120 --out lte.csv\n  \
    forebay trace poisson --rate 2.64Mbit/s --cold-start 1s --out poisson.trace  # as in ccperf\n  \
    forebay trace convert monday.tar.gz --bundle berlin --out berlin.csv         # of `forebay record`")]
pub struct Trace {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(clap::Subcommand)]
enum Kind {
    /// Link of constant rate: chances at equal intervals.
    Constant(Constant),
    /// Link with chances at the arrivals of a Poisson process.
    Poisson(Poisson),
    /// Cellular downlink: a random walk of the rate up to 12 Mbit/s, with outages (model of
    /// Sprout).
    Lte(Draw),
    /// Cellular downlink fitted to a recording of AT&T: 5 Mbit/s, up to 33.
    #[command(name = "lte_att")]
    LteAtt(Draw),
    /// Cellular downlink fitted to a recording of T-Mobile: 13 Mbit/s, up to 89.
    #[command(name = "lte_tmobile")]
    LteTmobile(Draw),
    /// Cellular downlink fitted to a recording of Verizon: 5 Mbit/s, up to 21.
    #[command(name = "lte_verizon")]
    LteVerizon(Draw),
    /// Starlink downlink: 50 to 220 Mbit/s; every 15 s a new rate, a new delay and losses.
    Leo(Draw),
    /// Wi-Fi shared with up to three stations: 3 to 124 Mbit/s, with the delay of aggregates.
    Wifi(Draw),
    /// Cable upstream: 16 to 20 Mbit/s, with a delay of 2 to 8 ms for grants.
    Docsis(Draw),
    /// ADSL downlink: one rate up to 7.3 Mbit/s, with interleaving delay and bursts of losses.
    Adsl(Draw),
    /// Print how forebay reads a trace: duration, mean rate, longest gap.
    Show(Show),
    /// Convert a trace, a recorded path or a size distribution into forebay's format.
    ///
    /// Reads a trace of mahimahi, CSV, iperf3 --json or LeoReplayer, or an archive of `forebay
    /// record`, and writes CSV with time_ms and rate_mbps, delay_ms or loss. Reads a size
    /// distribution of HPCC, pFabric or opera-sim, and writes one for plans.
    Convert(Convert),
}

/// Where the trace goes.
#[derive(clap::Args)]
struct Output {
    /// The new file [default: stdout].
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace an existing file, after the new one is complete.
    #[arg(long, requires = "out")]
    force: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay trace constant --rate 24Mbit/s --out 24.trace")]
struct Constant {
    /// Rate in packets of 1500 bytes, without Ethernet headers.
    #[arg(long)]
    rate: Rate,
    /// Largest length, 1ms to 40 days.
    #[arg(long, value_parser = parse_duration, default_value = "60s", value_name = "TIME")]
    duration: Duration,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay trace poisson --rate 2.64Mbit/s --cold-start 1s --out 2.64mbps-poisson.trace")]
struct Poisson {
    /// Mean rate in packets of 1500 bytes, without Ethernet headers.
    #[arg(long)]
    rate: Rate,
    /// Smallest length, 1ms to 40 days: the trace ends with the first chance at or after this time.
    #[arg(long, value_parser = parse_duration, default_value = "60s", value_name = "TIME")]
    duration: Duration,
    /// Time at the start with one chance in 100 ms; traces of Pantheon and ccperf have 1s.
    #[arg(long, value_parser = parse_duration, default_value = "0s", value_name = "TIME")]
    cold_start: Duration,
    /// Seed of the arrivals; the same seed gives the same trace.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay trace lte --seed 3 --seconds 120 --out lte.csv\n  \
    forebay trace leo --seconds 300 --json --out leo.csv")]
struct Draw {
    /// Seed of all random choices; the same seed gives the same file.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Length in seconds, 1 to 3600.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600), value_name = "N")]
    seconds: u64,
    /// Print mean rate, delays and loss as JSON. Only --out gets the trace itself.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay trace show traces/leo_handovers.csv")]
struct Show {
    /// Trace to show.
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay trace convert monday.tar.gz --bundle berlin --out berlin.csv\n  \
    forebay trace convert bw_1.txt --delays delay_1.txt --out path.csv")]
struct Convert {
    /// Trace, archive of `forebay record`, or size distribution.
    file: PathBuf,
    /// Archive: bundle whose path to convert [default: the bundle with most bytes].
    #[arg(long, value_name = "NAME")]
    bundle: Option<String>,
    /// Trace of chances: time over which to average the rate, 1ms or more.
    #[arg(long, value_parser = parse_duration, default_value = "100ms", value_name = "TIME")]
    every: Duration,
    /// LeoReplayer: file with one one-way delay in ms on each line. The shorter trace repeats.
    #[arg(long, value_name = "FILE")]
    delays: Option<PathBuf>,
    /// LeoReplayer: time for which each delay holds, 1ms or more.
    #[arg(long, value_parser = parse_duration, default_value = "10ms", value_name = "TIME")]
    delay_every: Duration,
    /// Bytes of a packet, the unit of size distributions with three columns, 1 to 65535.
    #[arg(long, default_value_t = PACKET_BYTES, value_name = "BYTES",
          value_parser = clap::value_parser!(u32).range(1..=65535))]
    packet_bytes: u32,
    #[command(flatten)]
    output: Output,
}

impl Trace {
    /// Writes or shows the trace. Exit code 2: a trace cannot have this rate, or the file is not a trace.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let (text, output) = match self.kind {
            Kind::Constant(Constant { rate, duration, output }) => {
                (LinkTrace::constant(rate, duration).map_err(refused)?.to_string(), output)
            }
            Kind::Poisson(Poisson { rate, duration, cold_start, seed, output }) => {
                let plan = PoissonTrace { rate, duration, cold_start };
                let trace = LinkTrace::poisson(&plan, &Streams::new(seed));
                (trace.map_err(refused)?.to_string(), output)
            }
            Kind::Lte(draw) => return draw.execute(PathModel::Lte),
            Kind::LteAtt(draw) => return draw.execute(PathModel::LteAtt),
            Kind::LteTmobile(draw) => return draw.execute(PathModel::LteTmobile),
            Kind::LteVerizon(draw) => return draw.execute(PathModel::LteVerizon),
            Kind::Leo(draw) => return draw.execute(PathModel::Leo),
            Kind::Wifi(draw) => return draw.execute(PathModel::Wifi),
            Kind::Docsis(draw) => return draw.execute(PathModel::Docsis),
            Kind::Adsl(draw) => return draw.execute(PathModel::Adsl),
            Kind::Show(show) => return show.execute(),
            Kind::Convert(convert) => (convert.text()?, convert.output),
        };
        output.write(&text)
    }
}

impl Output {
    fn write(self, text: &str) -> anyhow::Result<ExitCode> {
        let Self { out, force } = self;
        match out {
            Some(path) if path.is_file() && !force => {
                let reason = "the file exists: allowed is a new file, or --force";
                return Err(BadInput(format!("--out {}: {reason}", path.display())).into());
            }
            Some(path) => replace(&path, text.as_bytes())
                .with_context(|| format!("cannot write {}", path.display()))?,
            None => drop(print(text)?),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Draw {
    fn execute(self, model: PathModel) -> anyhow::Result<ExitCode> {
        let Self { seed, seconds, json, output } = self;
        let path = DrawnPath { model, seed, seconds };
        let text = path.trace().map_err(refused)?.to_string();
        if !json {
            return output.write(&text);
        }
        let (_, understood) = traces::read(&path.to_string(), &text).map_err(bad_input)?;
        if output.out.is_some() {
            output.write(&text)?;
        }
        print(&format!("{:#}\n", serde_json::to_value(&understood)?))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Show {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let (_, understood) = read(&self.file)?;
        if self.json {
            print(&format!("{:#}\n", serde_json::to_value(&understood)?))?;
        } else {
            print(&format!("{understood}\n"))?;
            warn(&understood);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Convert {
    /// The file in our form; says on stderr how it was read.
    fn text(&self) -> anyhow::Result<String> {
        for (option, time) in [("every", self.every), ("delay-every", self.delay_every)] {
            if time < Duration::from_millis(1) {
                let reason =
                    format!("--{option} {}: allowed is 1ms or more", format_duration(time));
                return Err(BadInput(reason).into());
            }
        }
        let file = self.file.display().to_string();
        #[cfg(feature = "host")]
        if forebay_host::daemon::record::is_archive(&self.file) {
            return self.recorded(&file);
        }
        if let Some(bundle) = &self.bundle {
            let reason = format!("--bundle {bundle}: allowed with an archive of `forebay record`");
            return Err(BadInput(reason).into());
        }
        let text = Source::read(&self.file).map_err(bad_input)?.text;
        if self.delays.is_none() && sizes::is_cdf(&text) {
            return Ok(sizes::converted(&file, &text, self.packet_bytes).map_err(bad_input)?);
        }
        let (trace, understood) = traces::read(&file, &text).map_err(bad_input)?;
        eprintln!("note: {understood}");
        warn(&understood);
        let path = match trace {
            AnyTrace::Path(path) => path,
            AnyTrace::Opportunities(trace) => {
                traces::binned(&trace, self.every).ok_or_else(|| self.too_fine())?
            }
        };
        let Some(delays) = &self.delays else { return Ok(path.to_string()) };
        let source = Source::read(delays).map_err(bad_input)?;
        let delays = traces::leo_delays(&source.file, &source.text, self.delay_every);
        let delays = delays.map_err(bad_input)?;
        if path.sets_delay() {
            let reason = format!("--delays {}: allowed with a trace without delays", source.file);
            return Err(BadInput(reason).into());
        }
        Ok(traces::merged(&path, &delays).ok_or_else(|| self.too_fine())?.to_string())
    }

    /// The path of a bundle in an archive; says on stderr what share of the time is measured.
    #[cfg(feature = "host")]
    fn recorded(&self, file: &str) -> anyhow::Result<String> {
        use forebay_core::spec::one_of;

        if let Some(delays) = &self.delays {
            let reason = "allowed with a trace without delays that is not an archive";
            return Err(BadInput(format!("--delays {}: {reason}", delays.display())).into());
        }
        let paths = Paths::read_archive(&self.file).map_err(bad_input)?;
        let names: Vec<String> = paths.names().map(|name| name.escape_debug().collect()).collect();
        let Some((bundle, rows)) = paths.of(self.bundle.as_deref()) else {
            let reason = match &self.bundle {
                Some(name) if !names.is_empty() => {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    format!("--bundle {name}: allowed is {}", one_of(name, &names))
                }
                _ => format!(
                    "{file}: the archive has no path: allowed is one with path.jsonl, which `forebay record` \
                     writes if a bundle of a sendbox carried packets"
                ),
            };
            return Err(BadInput(reason).into());
        };
        let text = path_csv(rows);
        let (_, understood) = traces::read(file, &text).map_err(bad_input)?;
        let [whole, measured] = path_times(rows).map(|time| time.as_secs_f64());
        let share = 100.0 * (measured / whole.max(f64::MIN_POSITIVE)).min(1.0);
        eprintln!(
            "note: {understood}; bundle {}: the rate is measured for {measured:.1} of {whole:.1} s ({share:.0} %)",
            bundle.escape_debug()
        );
        if measured == 0.0 {
            eprintln!(
                "warning: {file}: the bundle never filled the path, so all rates are lower bounds"
            );
        }
        Ok(text)
    }

    fn too_fine(&self) -> BadInput {
        let (every, most) = (format_duration(self.every), traces::ROWS_MAX);
        BadInput(format!(
            "--every {every}: allowed is a time with which the result has at most {most} rows"
        ))
    }
}

/// Reads a trace of any format.
fn read(file: &Path) -> anyhow::Result<(AnyTrace, Understood)> {
    let source = Source::read(file).map_err(bad_input)?;
    if sizes::is_cdf(&source.text) {
        let reason = format!(
            "{}: a size distribution: allowed is a trace; `forebay trace convert` reads distributions",
            file.display()
        );
        return Err(BadInput(reason).into());
    }
    Ok(traces::read(&source.file, &source.text).map_err(bad_input)?)
}

fn bad_input(error: impl std::fmt::Display) -> BadInput {
    BadInput(error.to_string())
}

fn warn(understood: &Understood) {
    let warnings = understood.warnings.iter();
    warnings.for_each(|it| eprintln!("warning: {}: {it}", understood.file));
}

/// Errors of core name parameters; on the command line they are options.
fn refused(error: SpecError) -> BadInput {
    let option = error.key.replace('_', "-");
    BadInput(format!("--{option} {}: allowed is {}", error.value, error.allowed))
}

/// Writes `text` next to `path` and then renames the new file to it. A reader finds either all of
/// the old file or all of the new one.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    // Behind a symbolic link, its target is replaced; a device or pipe never is.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if std::fs::metadata(&target).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return std::fs::write(&target, text);
    }
    let path = target.as_path();
    let mut partial = OsString::from(path);
    partial.push(format!(".{}.partial", std::process::id()));
    let written = std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, path));
    if written.is_err() {
        // Only the first error matters; there may be no file.
        let _ = std::fs::remove_file(&partial);
    }
    written
}
