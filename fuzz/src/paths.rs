//! Any lines are refused or are rows of paths, which make traces that are refused or read.

use forebay_core::link::PathTrace;
use forebay_core::record::{path_csv, path_times};
use forebay_host::daemon::record::Paths;

/// The bytes are what a recording of boxes has of their paths.
pub fn run(bytes: &[u8]) {
    let mut bytes = bytes;
    let Ok(paths) = Paths::read(&mut bytes) else { return };
    assert_eq!(paths.sentences().len(), paths.names().count());
    for name in paths.names() {
        let Some((_, rows)) = paths.of(Some(name)) else { panic!("{name} has no rows") };
        let [_, measured] = path_times(rows);
        assert_eq!(measured.is_zero(), rows.iter().all(|row| !row.is_measured || row.took_ns == 0));
        if let Ok(trace) = PathTrace::parse("path.csv", &path_csv(rows)) {
            assert!(trace.sets_rate() && trace.is_round_trip());
        }
    }
}
