//! For the build script of a crate with an algorithm in C.

use std::path::Path;

/// Compiles `file`, a path from the folder of the crate, and links it to the crate. `CC` and `CFLAGS` of the
/// environment apply, as always with the crate `cc`. Warnings of the compiler are shown and stop nothing.
///
/// # Panics
///
/// If no build script is running, or if the compiler refuses the file; the message then has the compiler's output.
pub fn compile(file: &str) {
    println!("cargo:rerun-if-changed={file}");
    println!("cargo:rerun-if-changed=forebay_cc.h");
    let name = Path::new(file).file_stem().and_then(|name| name.to_str());
    let name = name.unwrap_or_else(|| panic!("{file}: allowed is the path of a C file"));
    cc::Build::new().file(file).include(".").warnings(true).extra_warnings(true).compile(name);
}
