//! Any lines are refused or are looks at boxes. Looks give moments in order of time, and figures.

use forebay_host::daemon::record::Looks;

/// The bytes are a recording of the boxes' status.
pub fn run(bytes: &[u8]) {
    let mut bytes = bytes;
    let Ok(looks) = Looks::read(&mut bytes) else { return };
    let (moments, figures) = looks.finish();
    assert!(moments.is_sorted_by(|one, next| one.at_s <= next.at_s), "{moments:?}");
    for bundle in figures {
        assert!((0.0..=1.0).contains(&bundle.shaped) && (0.0..=1.0).contains(&bundle.backlogged));
        assert!(bundle.looks > 0 && bundle.here_packets >= 0.0, "{bundle:?}");
    }
}
