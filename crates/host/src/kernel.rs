//! The running kernel.

use std::fs;

/// The release of the running kernel, such as `6.18.44`.
pub fn release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_string()
}

/// Major and minor number of a release; 0 for a missing one.
pub fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
