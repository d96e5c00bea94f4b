//! Any lines are refused or are looks at boxes, of which a story is told in order of time and figures are made.

use forebay_host::daemon::record::{figures, looks, story};

/// The bytes are what a recording of boxes has of their status.
pub fn run(bytes: &[u8]) {
    let Ok(looks) = looks(&String::from_utf8_lossy(bytes)) else { return };
    let moments = story(&looks);
    assert!(moments.is_sorted_by(|one, next| one.at_s <= next.at_s), "{moments:?}");
    for bundle in figures(&looks) {
        assert!((0.0..=1.0).contains(&bundle.shaped) && (0.0..=1.0).contains(&bundle.backlogged));
        assert!(bundle.looks > 0 && bundle.here_packets >= 0.0, "{bundle:?}");
    }
}
