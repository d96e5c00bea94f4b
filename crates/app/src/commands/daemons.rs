//! `forebay sendbox` and `forebay receivebox`: the daemons, in the foreground.

use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `forebay sendbox`.
///
/// Its two ports must be of one bridge, which forwards all packets that this process does not take. Ends
/// cleanly on SIGTERM and SIGINT: it sends the queued packets, and the kernel takes over. On SIGHUP it takes
/// its files as they are then, as `forebay reload` does.
#[derive(clap::Args)]
pub struct Sendbox {
    /// The configuration file; check it with `forebay check-config`.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Which of the file's sendboxes, by its name; needed where it has several.
    #[arg(long = "box", value_name = "NAME")]
    name: Option<String>,
    /// Measure, decide and log, but never shape.
    #[arg(long)]
    dry_run: bool,
    /// A file in Python whose class decides for all bundles, whatever `cc` the configuration has. A child without
    /// privileges runs it, and Copa decides while its answers are late. `cc = "python"` with `file` does so for a bundle.
    #[arg(long = "cc-python", value_name = "FILE")]
    python: Option<PathBuf>,
}

/// Arguments of `forebay receivebox`.
///
/// It only watches: the kernel forwards, whatever becomes of this process. On SIGHUP it takes its files as
/// they are then, as `forebay reload` does.
#[derive(clap::Args)]
pub struct Receivebox {
    /// The configuration file; check it with `forebay check-config`.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Which of the file's receiveboxes, by its name; needed where it has several.
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
