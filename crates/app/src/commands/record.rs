//! `forebay record`: records boxes for some minutes as one file for a bug report.

use std::path::PathBuf;
use std::process::ExitCode;

use super::within;

/// Record boxes for some minutes into one file, for a bug report.
///
/// Reads the state of all boxes of this machine once a second, and at the end their log,
/// configuration and traces. Writes a tar.gz archive of at most some tens of megabytes. `forebay
/// replay` explains and simulates it, and `forebay trace convert` turns the path of a bundle into a
/// trace for links.
///
/// The archive has no key files and no comments. It has addresses, prefixes, and the names of
/// devices and bundles.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay record --minutes 5 --out monday.tar.gz\n  \
    forebay replay monday.tar.gz                          # explains and simulates it\n  \
    forebay trace convert monday.tar.gz --out path.csv    # the path as a trace")]
pub struct Record {
    /// Length of the recording in minutes, 0.05 to 60.
    #[arg(long, value_parser = |text: &str| within(text, 0.05, 60.0), default_value = "5", value_name = "N")]
    minutes: f64,
    /// Control socket of one box: `box.control` in its configuration [default: every socket in
    /// /run/forebay].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Configuration files of the boxes [default: all files in /etc/forebay].
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Log file of the boxes, if they have one [default: the journal of the units forebay-*].
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The new file [default: forebay-TIME.tar.gz, with TIME in seconds since 1970].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[cfg(feature = "host")]
pub(super) use with_host::{now_s, origin, refuse_existing, write_new};

#[cfg(feature = "host")]
mod with_host {
    use std::fs::OpenOptions;
    use std::io::{self, Read, Write};
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    use anyhow::Context;
    use forebay_host::daemon::record::{About, FORMAT, LOG_MAX, Look, Recording, newest_lines};

    use super::*;
    use crate::COMMIT;
    use crate::commands::status::Target;
    use crate::commands::{BadInput, print};

    /// Time between two looks.
    const INTERVAL: Duration = Duration::from_secs(1);
    /// Where units have their configuration.
    const CONFIGS: &str = "/etc/forebay";

    impl Record {
        /// Records, writes the file and prints its name.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            let began_s = now_s();
            let out = self.out.unwrap_or_else(|| format!("forebay-{began_s}.tar.gz").into());
            refuse_existing("out", &out)?;
            let target = Target::of(self.socket);
            // Before minutes are spent: at least one box has to answer.
            target.status()?;
            let mut recording = Recording::new(origin(began_s));
            look(&mut recording, &target, Duration::from_secs_f64(60.0 * self.minutes));
            match self.log {
                Some(file) => match newest_lines(&file, LOG_MAX) {
                    Ok(log) => recording.log = log,
                    Err(error) => recording.left_out(format!("{}: {error}", file.display())),
                },
                None => match journal(began_s) {
                    Ok(log) => recording.log = log,
                    Err(error) => recording.left_out(format!("the log: journalctl: {error}")),
                },
            }
            let configs = if self.config.is_empty() { usual_configs() } else { self.config };
            configs.iter().for_each(|file| recording.add_config(file));
            let bytes = recording.to_file().context("the recording cannot be packed")?;
            write_new(&out, &bytes)?;
            recording.about.left_out.iter().for_each(|what| eprintln!("left out: {what}"));
            print(&format!("{}\n", out.display()))?;
            Ok(ExitCode::SUCCESS)
        }
    }

    /// Refuses a file for `--option` that exists.
    pub fn refuse_existing(option: &str, file: &Path) -> anyhow::Result<()> {
        if file.symlink_metadata().is_ok() {
            let file = file.display();
            return Err(BadInput(format!("--{option} {file}: allowed is a new file")).into());
        }
        Ok(())
    }

    /// Seconds since 1970.
    pub fn now_s() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
    }

    /// Origin of a recording of this program that began at `began_s` (s since 1970).
    pub fn origin(began_s: u64) -> About {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        About {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").into(),
            commit: COMMIT.into(),
            kernel: kernel.trim().into(),
            began_s,
            ..About::default()
        }
    }

    /// Looks at the boxes once a second for the time `span`, and reports progress on stderr.
    fn look(recording: &mut Recording, target: &Target, span: Duration) {
        let (began, span_s) = (Instant::now(), span.as_secs());
        eprintln!("recording for {span_s} s; the file is written at the end");
        for number in 0.. {
            let due = INTERVAL * number;
            if due > span {
                break;
            }
            std::thread::sleep((began + due).saturating_duration_since(Instant::now()));
            if number > 0 && number % 60 == 0 {
                eprintln!("recorded {number} of {span_s} s");
            }
            let at_s = began.elapsed().as_secs_f64();
            // Boxes that do not answer are part of the story.
            let boxes = target.status().map_or_else(|_| Vec::new(), |answers| answers.boxes);
            if !recording.add(Look { at_s, boxes }) {
                recording
                    .left_out(format!("looks after {at_s:.0} s: the file would get too large"));
                break;
            }
        }
        recording.about.took_s = began.elapsed().as_secs_f64();
    }

    /// The journal of the boxes' units since then (s since 1970).
    fn journal(since_s: u64) -> io::Result<String> {
        let mut command = Command::new("journalctl");
        command.args(["--quiet", "--no-pager", "--output=short-iso-precise", "--unit=forebay-*"]);
        command.arg(format!("--since=@{since_s}"));
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut bytes = Vec::new();
        let output = child.stdout.take().expect("it is piped");
        let read = output.take(LOG_MAX as u64).read_to_end(&mut bytes);
        // One that has more to say would wait for a reader.
        let _ = child.kill();
        let _ = child.wait();
        read.map(|_| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn usual_configs() -> Vec<PathBuf> {
        let entries = std::fs::read_dir(CONFIGS).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .collect();
        files.sort();
        files
    }

    /// A new file that its owner alone may read; whole or not there.
    pub fn write_new(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = opened.and_then(|mut file| {
            let written = file.write_all(bytes).and_then(|()| file.sync_all());
            if written.is_err() {
                // The first error is the one to report.
                let _ = std::fs::remove_file(path);
            }
            written
        });
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

#[cfg(not(feature = "host"))]
impl Record {
    /// Refuses the command, which this build lacks.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = (self.minutes, self.socket, self.config, self.log, self.out);
        Err(super::needs_host("record"))
    }
}
