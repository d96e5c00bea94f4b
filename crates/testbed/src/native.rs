//! Algorithms that run in the kernel alone, registered under a run's own names: a role of the
//! testbed.

use std::io::{self, Read};

use forebay_ebpf::tcp::Native;
use forebay_host::agent::{self, AgentError, native};
use forebay_host::service::privileges;
use serde::{Deserialize, Serialize};

use crate::orders;

/// Algorithms to register.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NativeSpec {
    /// Kind, such as `reno` or `vegas`, and the name under which sockets select it.
    pub algorithms: Vec<(String, String)>,
}

/// Registers the algorithms and holds them until stdin ends.
pub fn run(spec: &NativeSpec) -> Result<(), AgentError> {
    agent::check()?;
    let register = |(kind_name, name): &(String, String)| {
        let kind = native::KernelAlgorithm::named(kind_name).map_err(|allowed| {
            let text = format!("algorithm {kind_name:?}: this program supports {allowed}");
            AgentError::SetUp(io::Error::new(io::ErrorKind::InvalidInput, text))
        })?;
        Ok::<_, AgentError>(kind.register(name)?)
    };
    let _held: Vec<Native> = spec.algorithms.iter().map(register).collect::<Result<_, _>>()?;
    privileges::drop_unneeded().map_err(AgentError::SetUp)?;
    orders::tell("ready");
    io::stdin().read_to_end(&mut Vec::new()).map_err(AgentError::Failed)?;
    Ok(())
}
