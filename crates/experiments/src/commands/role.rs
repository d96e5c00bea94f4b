//! `forebay role`: the programs that a testbed starts out of this binary.

use std::path::PathBuf;
use std::process::ExitCode;

use forebay_testbed::roles::{self, RoleError};

use forebay::BadInput;

/// Arguments of `forebay role`.
#[derive(clap::Args)]
pub struct Role {
    /// Which program.
    name: String,
    /// Specification of the role (JSON).
    #[arg(long, value_name = "FILE")]
    spec: PathBuf,
}

impl Role {
    /// Runs until the testbed ends it.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match roles::run(&self.name, &self.spec) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(
                error @ (RoleError::Unknown(_) | RoleError::Read { .. } | RoleError::Spec { .. }),
            ) => Err(BadInput(error.to_string()).into()),
            Err(error) => Err(error.into()),
        }
    }
}
