//! What the loaders share: descriptors and counters that outlive the skeleton.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Once;

use libbpf_rs::{Map, MapCore, MapFlags, MapHandle, PrintLevel};

use crate::Error;

/// Sends what libbpf prints, the verifier's log included, to the debug log.
pub(crate) fn quiet_libbpf() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        fn log(_: PrintLevel, line: String) {
            tracing::debug!(target: "libbpf", "{}", line.trim_end());
        }
        libbpf_rs::set_print(Some((PrintLevel::Info, log)));
    });
}

/// A handle of its own for a map, which stays when the skeleton goes.
pub(crate) fn handle(name: &'static str, map: &Map<'_>) -> Result<MapHandle, Error> {
    MapHandle::try_from(map).map_err(Error::map(name))
}

/// A descriptor of its own for a program, which stays when the skeleton goes.
pub(crate) fn descriptor(name: &'static str, fd: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    fd.try_clone_to_owned()
        .map_err(|error: io::Error| Error::Kernel { program: name, reason: error.to_string() })
}

/// The sum over all CPUs of a 64-bit counter in a per-CPU array.
pub(crate) fn per_cpu_sum(name: &'static str, map: &MapHandle, index: u32) -> Result<u64, Error> {
    let values =
        map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).map_err(Error::map(name))?;
    let of_cpu = |bytes: Vec<u8>| bytes.try_into().map_or(0, u64::from_ne_bytes);
    Ok(values.unwrap_or_default().into_iter().map(of_cpu).sum())
}
