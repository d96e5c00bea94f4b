//! Compiles the BPF programs and generates their skeletons.

#[cfg(feature = "programs")]
use std::path::{Path, PathBuf};

#[cfg(feature = "programs")]
use libbpf_cargo::SkeletonBuilder;

/// BPF sources in `bpf` for which a skeleton is built: `NAME.bpf.c`.
#[cfg(feature = "programs")]
const PROGRAMS: [&str; 8] = [
    "capture",
    "classes",
    "merged",
    "sampler",
    "tcp_check",
    "tcp_datapath",
    "tcp_empty",
    "tcp_native",
];

/// There is nothing to compile.
#[cfg(not(feature = "programs"))]
fn main() {}

#[cfg(feature = "programs")]
fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed=bpf");
    // Line information names files: the names must be the same wherever this is built.
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let prefix = format!("-ffile-prefix-map={here}=crates/ebpf");
    for program in PROGRAMS {
        let source = PathBuf::from("bpf").join(program).with_extension("bpf.c");
        // v3: 32-bit arithmetic, which Linux has since 5.1.
        let built = SkeletonBuilder::new()
            .source(&source)
            .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Werror", &prefix])
            .build_and_generate(out.join(program).with_extension("skel.rs"));
        if let Err(error) = built {
            println!("cargo:error=building {} needs clang 14 or later", source.display());
            panic!("{error:?}");
        }
    }
    algorithms(&Path::new(&here).join("bpf/algorithms"), &out.join("algorithms.rs"));
}

#[cfg(feature = "programs")]
/// Writes a table of the objects of `cargo xtask bpf-algorithms` in `folder`. That command builds this
/// crate, too, when there may be no objects yet.
fn algorithms(folder: &Path, table: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    let row = |file: &PathBuf| {
        let name = file.file_name()?.to_str()?.strip_suffix(".bpf.o")?;
        Some(format!("({name:?}, include_bytes!({file:?})),\n"))
    };
    let rows: String = files.iter().filter_map(row).collect();
    let text = format!("pub(super) const OBJECTS: &[(&str, &[u8])] = &[\n{rows}];\n");
    std::fs::write(table, text).expect("OUT_DIR can be written");
}
