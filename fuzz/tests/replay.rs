//! Every committed input runs through its target.

use forebay_fuzz::{TARGETS, corpus, directory};

#[test]
fn every_target_takes_its_corpus() {
    for (name, target) in TARGETS {
        let inputs = corpus(name).unwrap_or_else(|error| panic!("corpus of {name}: {error}"));
        assert!(!inputs.is_empty(), "{name} has no corpus");
        target(&[]);
        for (path, bytes) in inputs {
            let result = std::panic::catch_unwind(|| target(&bytes));
            assert!(result.is_ok(), "{} panics", path.display());
        }
    }
}

#[test]
fn every_corpus_has_a_target() {
    let root = directory("corpus", "");
    for entry in std::fs::read_dir(root).expect("fuzz/corpus exists") {
        let name = entry.expect("readable").file_name();
        assert!(TARGETS.iter().any(|(target, _)| **target == *name), "{name:?} has no target");
    }
}
