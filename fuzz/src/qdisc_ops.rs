//! Any operations on any queueing discipline keep its rules.

use forebay_core::testing::qdisc::{Model, decode};

/// The first bytes choose a discipline; the remaining bytes are operations.
pub fn run(bytes: &[u8]) {
    let Some((spec, operations)) = decode(bytes) else { return };
    let mut model = Model::new(&spec).expect("the built-in specs are valid");
    for operation in &operations {
        model.apply(operation);
    }
}
