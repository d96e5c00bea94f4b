//! `forebay observe`: the process of a box that watches its devices.

use std::process::ExitCode;

use forebay_host::daemon::observer;

use super::BadInput;

/// Arguments of `forebay observe`.
#[derive(clap::Args)]
pub struct Observe {
    /// The devices to observe, and the box that they are of (JSON).
    devices: String,
}

impl Observe {
    /// Runs until the box ends it.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let devices = serde_json::from_str(&self.devices)
            .map_err(|error| BadInput(format!("devices: {error}")))?;
        observer::run(&devices)?;
        Ok(ExitCode::SUCCESS)
    }
}
