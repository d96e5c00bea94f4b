//! Any lines are refused or are looks at boxes, of which a story is told in order of time and figures are made.

use forebay_host::daemon::record::Looks;

/// The bytes are what a recording of boxes has of their status.
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
