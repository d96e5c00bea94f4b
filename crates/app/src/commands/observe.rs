//! `forebay observe`: the process of a box that watches its devices.

use std::process::ExitCode;

use forebay_host::daemon::observer;
use forebay_host::service::privileges::Account;

use super::BadInput;

/// Arguments of `forebay observe`.
#[derive(clap::Args)]
pub struct Observe {
    /// The devices to observe, and the box that they are of (JSON).
    devices: String,
    #[command(flatten)]
    account: As,
}

/// Another user of this machine, whom a process becomes.
#[derive(clap::Args)]
pub struct As {
    /// The user.
    #[arg(long, requires = "gid")]
    uid: Option<u32>,
    /// Group of that user.
    #[arg(long, requires = "uid")]
    gid: Option<u32>,
}

impl As {
    /// The account; `None`: there is no other.
    pub fn account(&self) -> Option<Account> {
        Some(Account::of(self.uid?, self.gid?))
    }
}

impl Observe {
    /// Runs until the box ends it.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let devices = serde_json::from_str(&self.devices)
            .map_err(|error| BadInput(format!("devices: {error}")))?;
        observer::run(&devices, self.account.account().as_ref())?;
        Ok(ExitCode::SUCCESS)
    }
}
