//! Algorithms that run in the kernel alone, registered for as long as this process lives.

use forebay_ebpf::tcp::Native;
pub use forebay_ebpf::tcp::NativeKind;
use nix::sys::signal::{SigSet, Signal};

use super::AgentError;
use crate::log;
use crate::service::privileges;

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
