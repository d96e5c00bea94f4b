//! Any file is replayed up to its first wrong row, and no algorithm panics on the recorded input.

use std::path::Path;

use forebay_core::cc::Registry;
use forebay_host::agent::replay::replay_from;

/// The bytes are a recording.
pub fn run(bytes: &[u8]) {
    let mut steps = 0;
    match replay_from(Path::new("flows.jsonl"), bytes, &Registry::BUILTIN, &mut |_| steps += 1) {
        Ok(replay) => {
            assert!(replay.different <= replay.decisions && replay.decisions == steps);
            // An algorithm that panics has no decision to compare.
            let silent = replay.differences.iter().find(|it| it.replayed.is_none());
            assert!(silent.is_none(), "{silent:?}");
        }
        Err(error) => assert!(error.to_string().contains("flows.jsonl:"), "{error}"),
    }
}
