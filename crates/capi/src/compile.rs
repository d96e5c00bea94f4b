//! For the build script of a crate with an algorithm in C.

use std::path::Path;

/// Compiles `file`, a path from the folder of the crate, and links it to the crate. The environment's `CC` and `CFLAGS`
/// count, as for every use of the crate `cc`. A warning of the compiler is shown and stops nothing.
///
/// # Panics
///
/// Not called by a build script, or the compiler refuses the file: what it says is in the message.
pub fn compile(file: &str) {
    println!("cargo:rerun-if-changed={file}");
    println!("cargo:rerun-if-changed=forebay_cc.h");
    let name = Path::new(file).file_stem().and_then(|name| name.to_str());
    let name = name.unwrap_or_else(|| panic!("{file}: allowed is the path of a file of C"));
    cc::Build::new().file(file).include(".").warnings(true).extra_warnings(true).compile(name);
}
