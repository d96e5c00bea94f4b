//! Sessions keep their rules under any attack by a host on the path between two boxes.

use forebay_core::testing::session::{Model, decode};

/// The bytes are operations.
pub fn run(bytes: &[u8]) {
    let mut model = Model::default();
    decode(bytes).iter().for_each(|operation| model.apply(operation));
    model.finish();
}
