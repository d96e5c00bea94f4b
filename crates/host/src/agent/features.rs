//! Kernel features that an agent needs, and a check for missing ones.
//!
//! | kernel | needed feature |
//! |---|---|
//! | 5.6 | congestion control in BPF (`struct_ops`), which needs the types of the kernel (BTF) |
//! | 5.8 | BPF ring buffers |
//! | 6.0 | pacing rate and window may be written by a congestion control in BPF |
//! | 6.4 | a congestion control held by a BPF link, which ends with its process |
//!
//! Before 6.10 `cong_control` has two arguments, and BPF may not write the time stamp of the window. The
//! loader then takes another entry and does not write the stamp (`docs/operate/agent.md`; untried).

use std::fs;
use std::path::Path;

use crate::kernel::{release, version};

/// The oldest kernel with all of these features.
pub const KERNEL_MIN: (u32, u32) = (6, 4);

/// File with the types of the kernel.
const BTF: &str = "/sys/kernel/btf/vmlinux";
/// Whether the kernel compiles BPF programs; `struct_ops` needs that.
const JIT: &str = "/proc/sys/net/core/bpf_jit_enable";

/// A missing feature, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The kernel is too old.
    #[error(
        "Linux {0} does not support BPF links for congestion control: forebay agent needs Linux \
         6.4 or later"
    )]
    Version(String),
    /// The kernel has no BTF.
    #[error(
        "this kernel has no type information ({BTF} is missing): forebay agent needs a kernel \
         built with CONFIG_DEBUG_INFO_BTF"
    )]
    Btf,
    /// The JIT compiler is off.
    #[error(
        "the BPF JIT is off, and congestion control in BPF needs it: sysctl -w \
         net.core.bpf_jit_enable=1"
    )]
    Jit,
}

/// Returns the first missing feature as an error.
pub fn check() -> Result<(), Missing> {
    let jit = fs::read_to_string(JIT).ok();
    judge(&release(), Path::new(BTF).exists(), jit.as_deref().map(str::trim))
}

fn judge(release: &str, has_btf: bool, jit: Option<&str>) -> Result<(), Missing> {
    if version(release) < KERNEL_MIN {
        return Err(Missing::Version(release.to_string()));
    }
    if !has_btf {
        return Err(Missing::Btf);
    }
    if jit == Some("0") { Err(Missing::Jit) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_feature_is_named_in_one_sentence() {
        assert_eq!(judge("6.18.44", true, Some("1")), Ok(()));
        assert_eq!(judge("6.4.0-1-amd64", true, None), Ok(()));
        for (release, has_btf, jit, part) in [
            ("6.1.0-37-amd64", true, Some("1"), "Linux 6.1.0-37-amd64 does not support"),
            ("5.15.0", false, Some("0"), "needs Linux 6.4"),
            ("", true, None, "needs Linux 6.4"),
            ("6.12.1", false, Some("1"), "CONFIG_DEBUG_INFO_BTF"),
            ("6.12.1", true, Some("0"), "bpf_jit_enable=1"),
        ] {
            let text = judge(release, has_btf, jit).unwrap_err().to_string();
            assert!(text.contains(part) && !text.contains('\n'), "{text}");
        }
    }
}
