//! Gives the program the commit that it is built from.

fn main() -> std::io::Result<()> {
    forebay_sources::tell(std::path::Path::new("../.."), env!("CARGO_PKG_VERSION"))
}
