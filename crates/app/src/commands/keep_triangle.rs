//! `forebay keep-triangle`: the process of a box that has routed packets pass its triangle.

use std::process::ExitCode;

use forebay_host::triangle::keeper;

use super::BadInput;

/// Arguments of `forebay keep-triangle`.
#[derive(clap::Args)]
pub struct KeepTriangle {
    /// The triangle (JSON).
    triangle: String,
}

impl KeepTriangle {
    /// Runs until the box ends.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let spec = serde_json::from_str(&self.triangle)
            .map_err(|error| BadInput(format!("triangle: {error}")))?;
        keeper::run(spec)?;
        Ok(ExitCode::SUCCESS)
    }
}
