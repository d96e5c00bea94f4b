//! Programs that a testbed starts from its own binary: `forebay-experiments role NAME --spec FILE`. A role
//! reads its specification (JSON) from the file and then exchanges lines with the testbed as `orders.rs`
//! describes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use forebay_host::agent::AgentError;
use forebay_host::daemon::DaemonError;
use serde::de::DeserializeOwned;

use crate::cost::{PartError, part};
use crate::forwarding::forwarder::{self, ForwarderError};
use crate::generator::{self, hostile};
use crate::{emulator, native, receivebox};

/// A role that could not start or failed.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// No such role.
    #[error(
        "role {0:?}: allowed is one of cost, emulator, forwarder, hosts, hostile, native, receivebox"
    )]
    Unknown(String),
    /// The specification cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why the file cannot be read.
        source: io::Error,
    },
    /// The specification has other contents than the role expects.
    #[error("{}: {source}", path.display())]
    Spec {
        /// The file.
        path: PathBuf,
        /// Line, column and key.
        source: serde_json::Error,
    },
    /// The link emulator failed.
    #[error(transparent)]
    Emulator(#[from] emulator::EmulatorError),
    /// The bare forwarder failed.
    #[error(transparent)]
    Forwarder(#[from] ForwarderError),
    /// The traffic generator failed.
    #[error(transparent)]
    Hosts(#[from] generator::GeneratorError),
    /// The attacker failed.
    #[error(transparent)]
    Hostile(#[from] hostile::HostileError),
    /// A part of a trial failed.
    #[error(transparent)]
    Cost(#[from] PartError),
    /// A congestion control cannot be registered.
    #[error(transparent)]
    Native(#[from] AgentError),
    /// The receivebox failed.
    #[error(transparent)]
    Receivebox(#[from] DaemonError),
}

/// Runs the role `name` until the testbed ends it.
pub fn run(name: &str, spec: &Path) -> Result<(), RoleError> {
    match name {
        "cost" => Ok(part::run(read_spec(spec)?)?),
        "emulator" => Ok(emulator::run(&read_spec(spec)?)?),
        "forwarder" => Ok(forwarder::run(&read_spec(spec)?)?),
        "hosts" => Ok(generator::run(read_spec(spec)?)?),
        "hostile" => Ok(hostile::run(read_spec(spec)?)?),
        "native" => Ok(native::run(&read_spec(spec)?)?),
        "receivebox" => Ok(receivebox::run(&read_spec(spec)?)?),
        _ => Err(RoleError::Unknown(name.to_string())),
    }
}

fn read_spec<T: DeserializeOwned>(path: &Path) -> Result<T, RoleError> {
    let text =
        fs::read(path).map_err(|source| RoleError::Read { path: path.to_path_buf(), source })?;
    serde_json::from_slice(&text)
        .map_err(|source| RoleError::Spec { path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_role_names_the_allowed_ones() {
        let error = run("router", Path::new("/nonexistent")).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("one of cost, emulator, forwarder, hosts, hostile, native, receivebox"),
            "{error}"
        );
    }
}
