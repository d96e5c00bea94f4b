//! Tells the program what it was built from.

fn main() -> std::io::Result<()> {
    forebay_sources::tell(std::path::Path::new("../.."), env!("CARGO_PKG_VERSION"))
}
