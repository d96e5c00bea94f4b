//! Whatever an attacker on the path does to two boxes, sessions keep their rules.

use forebay_core::testing::session::{Model, decode};

/// The bytes are operations.
pub fn run(bytes: &[u8]) {
    let mut model = Model::default();
    decode(bytes).iter().for_each(|operation| model.apply(operation));
    model.finish();
}
