//! Algorithms that run in the kernel alone, registered for as long as this process lives.

use std::io::{self, Read};

use forebay_ebpf::tcp::Native;
pub use forebay_ebpf::tcp::NativeKind;
use nix::sys::signal::{SigSet, Signal};
use serde::{Deserialize, Serialize};

use super::AgentError;
use crate::daemon::privileges;
use crate::{log, roles};

/// What is registered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NativeSpec {
    /// Kind, `reno` or `cubic`, and the name under which sockets select it.
    pub algorithms: Vec<(String, String)>,
}

/// The algorithm called `name`: `reno` or `cubic`.
pub fn kind(name: &str) -> Option<NativeKind> {
    match name {
        "reno" => Some(NativeKind::Reno),
        "cubic" => Some(NativeKind::Cubic),
        _ => None,
    }
}

/// Registers the algorithms of these kinds under their own names, says so on stdout, and holds them until a
/// signal asks for the end.
pub fn hold(kinds: &[NativeKind], announcement: String) -> Result<(), AgentError> {
    super::check()?;
    let ends = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    ends.thread_block().map_err(|errno| AgentError::SetUp(errno.into()))?;
    log::start(privileges::drop_unneeded).map_err(AgentError::SetUp)?;
    let register = |kind: &NativeKind| Native::register(*kind, kind.name());
    let _held: Vec<Native> = kinds.iter().map(register).collect::<Result<_, _>>()?;
    privileges::drop_unneeded().map_err(AgentError::SetUp)?;
    log::announce(announcement);
    ends.wait().map_err(|errno| AgentError::Failed(errno.into()))?;
    Ok(())
}

/// Registers them and holds them until stdin ends: a role of the testbed.
pub fn run(spec: &NativeSpec) -> Result<(), AgentError> {
    super::check()?;
    let register = |(kind_name, name): &(String, String)| {
        let kind = kind(kind_name).ok_or_else(|| {
            let text = format!("algorithm {kind_name:?}: allowed is reno or cubic");
            AgentError::SetUp(io::Error::new(io::ErrorKind::InvalidInput, text))
        })?;
        Ok::<_, AgentError>(Native::register(kind, name)?)
    };
    let _held: Vec<Native> = spec.algorithms.iter().map(register).collect::<Result<_, _>>()?;
    privileges::drop_unneeded().map_err(AgentError::SetUp)?;
    roles::tell("ready");
    io::stdin().read_to_end(&mut Vec::new()).map_err(AgentError::Failed)?;
    Ok(())
}
