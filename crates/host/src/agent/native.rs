//! Algorithms that run in the kernel alone, registered for as long as this process lives.

use forebay_core::spec::one_of;
use forebay_ebpf::Error;
use forebay_ebpf::tcp::{CoreLaw, Native, NativeKind};
use nix::sys::signal::{SigSet, Signal};

use super::AgentError;
use crate::log;
use crate::service::privileges;

/// An algorithm that runs in the kernel alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelAlgorithm {
    /// In C, by hand.
    ByHand(NativeKind),
    /// An algorithm of core.
    Core(CoreLaw),
}

impl KernelAlgorithm {
    /// Finds an algorithm by name: `reno` or `cubic`, in C, or an algorithm of core that has a BPF object,
    /// as `vegas` or `core:vegas`.
    ///
    /// # Errors
    ///
    /// The allowed names, with the nearest one.
    pub fn named(name: &str) -> Result<Self, String> {
        match name {
            "reno" => Ok(Self::ByHand(NativeKind::Reno)),
            "cubic" => Ok(Self::ByHand(NativeKind::Cubic)),
            _ => CoreLaw::named(name.strip_prefix("core:").unwrap_or(name))
                .map(Self::Core)
                .ok_or_else(|| {
                    let laws = CoreLaw::all().map(|law| format!("core:{}", law.name()));
                    let by_hand = ["reno", "cubic"].map(String::from);
                    let all: Vec<String> = by_hand.into_iter().chain(laws).collect();
                    let all: Vec<&str> = all.iter().map(String::as_str).collect();
                    one_of(name, &all)
                }),
        }
    }

    /// Usual name as a congestion control.
    pub fn name(self) -> String {
        match self {
            Self::ByHand(kind) => kind.name().to_string(),
            // Longer ones do not fit (`TCP_CA_NAME_MAX`).
            Self::Core(law) => format!("fb_bpf_{}", law.name()),
        }
    }

    /// Registers it under `name`.
    pub fn register(self, name: &str) -> Result<Native, Error> {
        match self {
            Self::ByHand(kind) => Native::register(kind, name),
            Self::Core(law) => law.register(name),
        }
    }
}

/// Registers these algorithms under their usual names, announces that on stdout, and holds them until a
/// signal ends the process.
pub fn hold(kinds: &[KernelAlgorithm], announcement: String) -> Result<(), AgentError> {
    super::check()?;
    let ends = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    ends.thread_block().map_err(|errno| AgentError::SetUp(errno.into()))?;
    log::start(privileges::drop_unneeded).map_err(AgentError::SetUp)?;
    let register = |kind: &KernelAlgorithm| kind.register(&kind.name());
    let _held: Vec<Native> = kinds.iter().map(register).collect::<Result<_, _>>()?;
    privileges::drop_unneeded().map_err(AgentError::SetUp)?;
    log::announce(announcement);
    ends.wait().map_err(|errno| AgentError::Failed(errno.into()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprefixed_names_prefer_the_c_algorithms() {
        assert_eq!(KernelAlgorithm::named("cubic"), Ok(KernelAlgorithm::ByHand(NativeKind::Cubic)));
        for law in CoreLaw::all() {
            let of_core = KernelAlgorithm::Core(law);
            assert_eq!(KernelAlgorithm::named(&format!("core:{}", law.name())), Ok(of_core));
            assert!(of_core.name().len() <= forebay_ebpf::tcp::NAME_MAX, "{}", of_core.name());
        }
        let allowed = KernelAlgorithm::named("core:nonesuch").unwrap_err();
        assert!(allowed.starts_with("one of reno, cubic"), "{allowed}");
        assert!(KernelAlgorithm::named("cubci").unwrap_err().ends_with("; nearest is cubic"));
    }
}
