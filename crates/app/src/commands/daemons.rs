//! `forebay sendbox` and `forebay receivebox`: the daemons, in the foreground.

use std::path::PathBuf;
use std::process::ExitCode;

/// Run a sendbox: it queues and paces the traffic of bundles.
///
/// Runs in the foreground, as root or with the capabilities of its systemd unit. As a bridge, the
/// box needs two ports of one bridge, which forwards all packets that this process does not take.
/// As a router (`forward = "route"`), the box needs one device.
///
/// On SIGTERM and SIGINT the sendbox sends its queued packets, and the kernel takes over. On SIGHUP
/// it reads its files again, as after `forebay reload`.
///
/// Exit code 1: a device is unfit, a privilege or a port is missing, or the box failed; 2: a file is wrong, or
/// the start was on trial and you did not confirm it. Units start the box again after 1, not after 2.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay sendbox --config sendbox.toml --dry-run   # measures, and shapes nothing\n  \
    forebay sendbox --config sendbox.toml")]
pub struct Sendbox {
    /// The configuration file; check it with `forebay check-config`.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Name of the sendbox; required if FILE has several.
    #[arg(long = "box", value_name = "NAME")]
    name: Option<String>,
    /// Measure, decide and log, but never limit a rate.
    #[arg(long)]
    dry_run: bool,
    /// Python file whose class controls all bundles, instead of `cc` of the configuration. A child
    /// process without privileges runs it, and Copa takes over while its answers are late. For one
    /// bundle, set `cc = "python"` with `file`.
    #[arg(long = "cc-python", value_name = "FILE")]
    python: Option<PathBuf>,
}

/// Run a receivebox: it reports arriving packets to sendboxes.
///
/// Runs in the foreground, as root or with the capabilities of its systemd unit. The receivebox
/// only watches: the kernel forwards, even if this process ends. On SIGHUP it reads its files
/// again, as after `forebay reload`.
///
/// Exit code 1: a device is unfit, a privilege or a port is missing, or the box failed; 2: a file is wrong, or
/// the start was on trial and you did not confirm it. Units start the box again after 1, not after 2.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay receivebox --config receivebox.toml")]
pub struct Receivebox {
    /// The configuration file; check it with `forebay check-config`.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Name of the receivebox; required if FILE has several.
    #[arg(long = "box", value_name = "NAME")]
    name: Option<String>,
}

#[cfg(feature = "host")]
mod with_host {
    use std::path::Path;

    use forebay_host::daemon::{self, Config, DaemonError, Role};

    use super::*;
    use crate::commands::BadInput;

    fn exit(error: DaemonError) -> anyhow::Error {
        if error.is_bad_input() { BadInput(error.to_string()).into() } else { error.into() }
    }

    fn load(file: &Path, role: Role, name: Option<&str>) -> anyhow::Result<Config> {
        Config::load_of(file, role, name).map_err(|error| exit(error.into()))
    }

    impl Sendbox {
        /// Runs until a signal stops it.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            let config = load(&self.config, Role::Sendbox, self.name.as_deref())?;
            daemon::sendbox::run(&config, self.dry_run, self.python.as_deref()).map_err(exit)?;
            Ok(ExitCode::SUCCESS)
        }
    }

    impl Receivebox {
        /// Runs until a signal stops it.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            let config = load(&self.config, Role::Receivebox, self.name.as_deref())?;
            daemon::receivebox::run(&config).map_err(exit)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

#[cfg(not(feature = "host"))]
mod without_host {
    use super::*;

    impl Sendbox {
        /// Refuses the command, which this build lacks.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            let _ = (self.config, self.name, self.dry_run, self.python);
            Err(crate::commands::needs_host("sendbox"))
        }
    }

    impl Receivebox {
        /// Refuses the command, which this build lacks.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            let _ = (self.config, self.name);
            Err(crate::commands::needs_host("receivebox"))
        }
    }
}
