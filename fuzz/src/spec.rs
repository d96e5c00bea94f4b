//! The reader refuses a text, or reads a kind with parameters. Printing it gives a text with the same value.

use forebay_core::qdisc;
use forebay_core::spec::Spec;
use forebay_core::testing::qdisc::TestPacket;

/// The bytes are a spec as on the command line.
pub fn run(bytes: &[u8]) {
    let Ok(spec) = String::from_utf8_lossy(bytes).parse::<Spec>() else { return };
    let printed = spec.to_string();
    let again: Spec = printed.parse().expect("a printed spec can be read");
    assert_eq!(again.to_string(), printed);
    let _ = qdisc::build::<TestPacket>(&spec);
}
