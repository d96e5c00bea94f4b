//! Tells the module what it was built from, as it is told to the `forebay` command: both know each other's runs.

fn main() -> std::io::Result<()> {
    forebay_sources::tell(std::path::Path::new("../.."), env!("CARGO_PKG_VERSION"))
}
